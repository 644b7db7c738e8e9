/* Scalar convolutions, pooling and activations. */
#include "ref.h"

#include <math.h>

double ref_act(double v, int act) {
    switch (act) {
    case 1:
        return v > 0 ? v : 0;
    case 2:
        return v / (1 + exp(-v));
    case 3:
        return 0.5 * v * (1 + erf(v * 0.70710678118654752440));
    case 4:
        return 1 / (1 + exp(-v));
    default:
        return v;
    }
}

float ref_bf16(float v) {
    int exponent;
    double mantissa = frexp(v, &exponent); /* [0.5, 1): eight bits of it remain */
    return isfinite(v) ? (float)ldexp(nearbyint(ldexp(mantissa, 8)), exponent - 8) : v;
}

static double addend(ref_map m, int n, int y, int x, int ch, bool up2) {
    if (!m.v) return 0;
    return ref_at(m, m.n == 1 ? 0 : n, up2 ? y / 2 : y, up2 ? x / 2 : x)[ch];
}

double ref_finish(double acc, const ref_epilogue *e, int n, int y, int x, int ch) {
    double v = ref_act(acc + addend(e->add_before, n, y, x, ch, e->up2), e->act);
    if (e->has_lab) v = e->lab_scale * v + e->lab_bias;
    return v + addend(e->add_after, n, y, x, ch, false);
}

static bool inside(ref_map m, int y, int x) {
    return y >= 0 && y < m.h && x >= 0 && x < m.w;
}

static double conv_at(ref_map x, const float *w, ref_window k, int n, int oy, int ox) {
    double acc = 0;
    for (int ky = 0; ky < k.kh; ky++)
        for (int kx = 0; kx < k.kw; kx++) {
            int iy = oy * k.stride - k.top + ky, ix = ox * k.stride - k.left + kx;
            if (!inside(x, iy, ix)) continue;
            const float *px = ref_at(x, n, iy, ix);
            for (int i = 0; i < x.c; i++) acc += (double)px[i] * w[(i * k.kh + ky) * k.kw + kx];
        }
    return acc;
}

void ref_conv(ref_map x, const float *w, const float *b, ref_window k, const ref_epilogue *e, ref_map y) {
    for (int n = 0; n < y.n; n++)
        for (int oy = 0; oy < y.h; oy++)
            for (int ox = 0; ox < y.w; ox++)
                for (int o = 0; o < y.c; o++) {
                    double acc = conv_at(x, w + (size_t)o * x.c * k.kh * k.kw, k, n, oy, ox) + (b ? b[o] : 0);
                    ref_at(y, n, oy, ox)[o] = (float)ref_finish(acc, e, n, oy, ox, o);
                }
}

void ref_dwconv(ref_map x, const float *w, const float *b, ref_window k, const ref_epilogue *e, ref_map y) {
    for (int n = 0; n < y.n; n++)
        for (int oy = 0; oy < y.h; oy++)
            for (int ox = 0; ox < y.w; ox++)
                for (int o = 0; o < y.c; o++) {
                    double acc = b ? b[o] : 0;
                    for (int ky = 0; ky < k.kh; ky++)
                        for (int kx = 0; kx < k.kw; kx++) {
                            int iy = oy * k.stride - k.top + ky, ix = ox * k.stride - k.left + kx;
                            if (inside(x, iy, ix))
                                acc += (double)ref_at(x, n, iy, ix)[o] * w[((size_t)o * k.kh + ky) * k.kw + kx];
                        }
                    ref_at(y, n, oy, ox)[o] = (float)ref_finish(acc, e, n, oy, ox, o);
                }
}

void ref_maxpool2x2(ref_map x, ref_map y) {
    for (int n = 0; n < y.n; n++)
        for (int oy = 0; oy < y.h; oy++)
            for (int ox = 0; ox < y.w; ox++)
                for (int o = 0; o < y.c; o++) {
                    float best = ref_at(x, n, oy, ox)[o];
                    for (int k = 1; k < 4; k++) {
                        int iy = oy + k / 2, ix = ox + k % 2;
                        float v = inside(x, iy, ix) ? ref_at(x, n, iy, ix)[o] : 0;
                        if (v > best) best = v;
                    }
                    ref_at(y, n, oy, ox)[o] = best;
                }
}
