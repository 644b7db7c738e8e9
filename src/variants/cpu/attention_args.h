/* What cl/cpu/attention takes by value. */
#ifndef IST_VARIANTS_CPU_ATTENTION_ARGS_H
#define IST_VARIANTS_CPU_ATTENTION_ARGS_H

#include "variants/attention_args.h"
#include "variants/window_args.h"

typedef struct ist_cpu_attention_args {
    ist_attention_args common;
    int items, heads, dim;        /* sequences, heads of each, channels of a head */
    int tile_heads, tile_queries; /* of an item of work */
    int backwards;                /* whether the items of work are taken from the last one on */
} ist_cpu_attention_args;

typedef struct ist_cpu_relative_args {
    ist_relative_args common;
    int items, heads, dim; /* maps, heads of each, channels of a head */
    int per_map;           /* windows of a map */
    int backwards;
} ist_cpu_relative_args;

#endif
