/* What cl/cpu/window takes by value. */
#ifndef IST_VARIANTS_CPU_WINDOW_ARGS_H
#define IST_VARIANTS_CPU_WINDOW_ARGS_H

#include "variants/window_args.h"

typedef struct ist_cpu_window_args {
    ist_window_args common;
    int items, per_map, side;      /* maps, windows of each, tokens along a window */
    int heads, tile_heads;         /* in all, and of an item of work */
    int backwards;                 /* whether the items of work are taken from the last one on */
    int at_right, at_end, at_both; /* where biases begin of windows that the map's right end, lower end, both cut */
    int table_size;                /* a head's biases */
} ist_cpu_window_args;

#endif
