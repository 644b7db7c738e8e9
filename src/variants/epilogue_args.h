/* An epilogue as kernels of the convolution family take it (ist_epilogue in graph/nodes.h). */
#ifndef IST_VARIANTS_EPILOGUE_ARGS_H
#define IST_VARIANTS_EPILOGUE_ARGS_H

typedef struct ist_epilogue_args {
    int act, flags;            /* ACT_*, EPI_* */
    int before_ld, before_c0;  /* added before the activation: elements per pixel, first channel */
    int after_ld, after_c0;    /* and after it */
    float lab_scale, lab_bias; /* the learnable affine block's */
} ist_epilogue_args;

#endif
