/* What kernels of SAM's mask upscaling take by value. */
#ifndef IST_VARIANTS_UPSCALE_ARGS_H
#define IST_VARIANTS_UPSCALE_ARGS_H

/* Which tokens of an image show a picture (ist_upscale's content). */
typedef struct ist_tokens_seen_args {
    int content_ld, content_c0; /* ints from a picture's extents to the next one's, first; ld 0: all tokens are seen */
    int token_pixels;           /* side of a token, in pixels of a picture */
} ist_tokens_seen_args;

typedef struct ist_upscale_args {
    int h, w, x_ld, x_c0;                /* of the image's tokens; elements from one to the next, first channel */
    int vectors, vectors_ld, vectors_c0; /* of an item; each makes a mask */
    float eps;                           /* of the norm */
    ist_tokens_seen_args seen;
} ist_upscale_args;

#endif
