/* What cl/portable/norm takes by value. */
#ifndef IST_VARIANTS_NORM_ARGS_H
#define IST_VARIANTS_NORM_ARGS_H

/* The addend: none, one for each item, one for all. */
enum { IST_NORM_ADD_NONE, IST_NORM_ADD_EACH, IST_NORM_ADD_ONE };

typedef struct ist_layernorm_args {
    int x_ld, add_ld, out_ld; /* elements from a pixel to the next */
    int x_c0, add_c0, out_c0; /* first channels */
    int items, pixels, c;     /* items, pixels of each, channels */
    int rows;                 /* pixels of an item of work (on CPUs) */
    int adds, act;            /* NORM_ADD_*, ACT_* */
    float eps, bound;         /* values are clamped to -bound and bound, 0: they are not */
    float inverse_c;          /* 1 / c */
} ist_layernorm_args;

typedef struct ist_gate_args {
    int g_ld, x_ld, y_ld, out_ld;
    int g_c0, x_c0, y_c0, out_c0;
    int pixels, c; /* pixels of an item, channels of x */
    int rows;      /* pixels of a group (on CPUs) */
    float eps;
} ist_gate_args;

#endif
