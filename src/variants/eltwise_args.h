/* What cl/portable/eltwise takes by value. */
#ifndef IST_VARIANTS_ELTWISE_ARGS_H
#define IST_VARIANTS_ELTWISE_ARGS_H

/* Modes: what there is besides y = a. */
enum {
    IST_ELTWISE_B_EACH = 1,      /* + b, with the extents of a */
    IST_ELTWISE_B_ONE_ITEM = 2,  /* b: one item for all */
    IST_ELTWISE_B_ONE_PIXEL = 4, /* b: one pixel per item */
    IST_ELTWISE_A_MAPPED = 8,    /* item n of a is map[n] */
    IST_ELTWISE_CLAMPED = 16,
    IST_ELTWISE_A_ONE_ITEM = 32
};

typedef struct ist_eltwise_args {
    int a_ld, b_ld, y_ld; /* elements from a pixel to the next */
    int a_c0, b_c0, y_c0; /* first channels */
    int items, pixels, c; /* items of y, pixels of each that are taken, channels */
    int y_stride;         /* pixels from an item of y to the next */
    int rows, span;       /* pixels and channels of a work-item */
    int mode;             /* IST_ELTWISE_* */
    float lo, hi;         /* of a clamp */
} ist_eltwise_args;

#endif
