/* Scalar definitions of the operators: what every kernel is compared with.
 *
 * Each function is the textbook formula in plain C with double accumulation, on dense NHWC maps. One source per family:
 * ref_conv.c (convolutions, pooling, activations) and further ref_*.c beside it. Nothing here sees the engine. */
#ifndef IST_TESTS_REF_H
#define IST_TESTS_REF_H

#include <stdbool.h>
#include <stddef.h>

/* Dense NHWC map; v[((n * h + y) * w + x) * c + ch]. The maker of a map owns v. */
typedef struct ref_map {
    int n, h, w, c;
    float *v;
} ref_map;

static inline size_t ref_size(ref_map m) {
    return (size_t)m.n * m.h * m.w * m.c;
}
static inline float *ref_at(ref_map m, int n, int y, int x) {
    return m.v + (((size_t)n * m.h + y) * m.w + x) * m.c;
}

/* ---- convolution family: ref_conv.c ---- */

/* 0 none, 1 relu, 2 silu, 3 gelu (erf), 4 sigmoid */
double ref_act(double v, int act);

/* v = acc; v += add_before (nearest upsampled x2 when up2); v = act(v); v = scale v + bias when has_lab; v += add_after.
 * An addend with v = NULL is absent; one with n = 1 serves every item. */
typedef struct ref_epilogue {
    int act;
    bool has_lab, up2;
    float lab_scale, lab_bias;
    ref_map add_before, add_after;
} ref_epilogue;
double ref_finish(double acc, const ref_epilogue *e, int n, int y, int x, int ch);

typedef struct ref_window {
    int kh, kw, stride, top, left;
} ref_window;
/* w [y.c][x.c][kh][kw], b [y.c] or NULL; y's extents are given. */
void ref_conv(ref_map x, const float *w, const float *b, ref_window k, const ref_epilogue *e, ref_map y);
/* w [c][kh][kw]. */
void ref_dwconv(ref_map x, const float *w, const float *b, ref_window k, const ref_epilogue *e, ref_map y);
/* w [x.c][y.c][2][2], y twice as high and wide as x. */
void ref_deconv2x2(ref_map x, const float *w, const float *b, const ref_epilogue *e, ref_map y);
/* Max over 2x2, stride 1, zeros beyond the right and lower edge. */
void ref_maxpool2x2(ref_map x, ref_map y);

#endif
