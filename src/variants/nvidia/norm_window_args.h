/* What cl/nvidia/norm_window takes by value. */
#ifndef IST_VARIANTS_NVIDIA_NORM_WINDOW_ARGS_H
#define IST_VARIANTS_NVIDIA_NORM_WINDOW_ARGS_H

#include "variants/padding_reuse_args.h"

typedef struct ist_norm_window_args {
    int h, w;                       /* tokens of a map */
    int across, per_map;            /* windows in a row of them, and of a map */
    int groups_of_map;              /* of the windows that a group takes together */
    int each, more;                 /* heads of such windows for a group, one more for each of the first `more` */
    int x_ld, x_c0, out_ld, out_c0; /* elements from a token to the next, first channels */
    float eps, scale;               /* of the norm; of q . k */
    ist_padding_reuse_args in, out; /* rows that are left out, of what is read and of the result */
} ist_norm_window_args;

#endif
