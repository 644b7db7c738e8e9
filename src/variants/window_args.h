/* What kernels take by value that cut a map of tokens into windows without copying it. */
#ifndef IST_VARIANTS_WINDOW_ARGS_H
#define IST_VARIANTS_WINDOW_ARGS_H

#include "variants/padding_reuse_args.h"

/* TinyViT's. */
typedef struct ist_window_args {
    int h, w;                           /* tokens of a map */
    int across;                         /* windows in a row of them */
    int qkv_ld, qkv_c0, out_ld, out_c0; /* elements from a token to the next, first channels */
    float scale;                        /* of q . k */
    ist_padding_reuse_args in, out;     /* rows of tokens that are left out, of qkv and of the result */
} ist_window_args;

/* Those with decomposed relative positions. */
typedef struct ist_relative_args {
    int h, w, across;
    int c; /* channels of queries, of keys and of values: qkv has them one after the other */
    int qkv_ld, qkv_c0, out_ld, out_c0;
    float scale;
} ist_relative_args;

#endif
