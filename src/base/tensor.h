/* A tensor is a value: a view of one plan buffer as NHWC pixels. Copy it freely; it owns nothing.
 *
 * Element (n, y, x, ch) lies at ((n * h + y) * w + x) * ld + c0 + ch of its buffer. A channel slice has ld > c and lets
 * producers write their part of a concatenation in place. Token sequences are maps with h = 1, w = tokens. */
#ifndef IST_BASE_TENSOR_H
#define IST_BASE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>

/* IST_ELEM_T is the storage type of activations: float in fp32 mode, half in fp16 mode. The others are exact. */
typedef enum ist_elem { IST_ELEM_T, IST_ELEM_F32, IST_ELEM_I32, IST_ELEM_U8 } ist_elem;

typedef struct ist_tensor {
    int buffer;      /* number within the plan; 0: no tensor */
    int n, h, w, c;
    int ld, c0;      /* elements per pixel of the buffer, first channel of this view */
    ist_elem elem;
} ist_tensor;

static inline bool ist_has(ist_tensor t) {
    return t.buffer != 0;
}

/* Channels [c0, c0 + c) of t. */
static inline ist_tensor ist_slice(ist_tensor t, int c0, int c) {
    t.c0 += c0;
    t.c = c;
    return t;
}

/* The same pixels under other extents; n * h * w must stay the same. */
static inline ist_tensor ist_view(ist_tensor t, int n, int h, int w) {
    t.n = n;
    t.h = h;
    t.w = w;
    return t;
}

/* Pixels [first, first + count) in storage order as a row of tokens [1, 1, count, c]: a level of a token sequence, an
 * item of a batch. */
static inline ist_tensor ist_rows(ist_tensor t, int first, int count) {
    t.c0 += first * t.ld;
    return ist_view(t, 1, 1, count);
}

/* n * h * w. */
static inline int ist_pixels(ist_tensor t) {
    return t.n * t.h * t.w;
}

#endif
