/* What kernels of SAM's mask upscaling take by value. */
#ifndef IST_VARIANTS_UPSCALE_ARGS_H
#define IST_VARIANTS_UPSCALE_ARGS_H

typedef struct ist_upscale_args {
    int h, w, x_ld, x_c0;                /* of the image's tokens; elements from one to the next, first channel */
    int vectors, vectors_ld, vectors_c0; /* of an item; each makes a mask */
    float eps;                           /* of the norm */
} ist_upscale_args;

#endif
