/* An epilogue as kernels of the convolution family take it (ist_epilogue in graph/nodes.h). */
#ifndef IST_VARIANTS_EPILOGUE_ARGS_H
#define IST_VARIANTS_EPILOGUE_ARGS_H

/* What there is besides bias and activation. */
enum {
    IST_EPI_BEFORE = 1,     /* an addend in front of the activation */
    IST_EPI_BEFORE_UP2 = 2, /* it has half the height and width */
    IST_EPI_BEFORE_ONE = 4, /* it has one item for all */
    IST_EPI_LAB = 8,        /* the learnable affine block */
    IST_EPI_AFTER = 16,     /* an addend behind both */
    IST_EPI_AFTER_ONE = 32  /* it has one item for all */
};

typedef struct ist_epilogue_args {
    int act, flags;            /* ACT_*, EPI_* */
    int before_ld, before_c0;  /* added before the activation: elements per pixel, first channel */
    int after_ld, after_c0;    /* and after it */
    float lab_scale, lab_bias; /* the learnable affine block's */
} ist_epilogue_args;

#endif
