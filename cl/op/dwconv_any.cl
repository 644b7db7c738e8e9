/* Depthwise convolution for any device: a work-item computes one channel of one output pixel; neighbouring work-items
 * are neighbouring channels. Arguments are those of op/dwconv, weights [tap][c], bias [c].
 * Grid: x = channels, y = pixels of an item (both rounded up to the group), z = items. */
#ifdef X32
typedef float TX;
#define LOAD_X(p, i) ((p)[i])
#else
typedef T TX;
#define LOAD_X(p, i) LOAD(p, i)
#endif
#ifdef Y32
typedef float TY;
#define STORE_Y(v, p, i) ((p)[i] = (v))
#else
typedef T TY;
#define STORE_Y(v, p, i) STORE(v, p, i)
#endif

__kernel void dwconv(__global const TX *restrict x, __global const float *restrict w, __global const float *restrict bias,
                     __global TY *restrict y, __global const T *restrict before, __global const T *restrict after,
                     __global const int *restrict limit, int8 in, int8 win, int8 out, int8 epi, float4 lab) {
    int c = get_global_id(0), n = get_global_id(2), k = win.s0, flags = epi.s1;
    if (c >= in.s4 || n >= *limit) return;
    int oy = get_global_id(1) / out.s2, ox = get_global_id(1) - oy * out.s2;
    if (oy >= out.s1) return;
    int iy0 = oy * win.s1 - win.s2, ix0 = ox * win.s1 - win.s3;
    float v = bias[c];
    for (int ky = max(0, -iy0); ky < min(k, in.s0 - iy0); ky++)
        for (int kx = max(0, -ix0); kx < min(k, in.s1 - ix0); kx++) {
            long p = (long)(n * in.s0 + iy0 + ky) * in.s1 + ix0 + kx;
            v = fma(LOAD_X(x, p * in.s2 + in.s3 + c), w[(ky * k + kx) * in.s4 + c], v);
        }
    int nb = flags & EPI_BEFORE_ONE ? 0 : n, na = flags & EPI_AFTER_ONE ? 0 : n;
    long b = flags & EPI_BEFORE_UP2 ? (nb * (out.s1 >> 1) + (oy >> 1)) * (out.s2 >> 1) + (ox >> 1)
                                    : (nb * out.s1 + oy) * out.s2 + ox;
    if (flags & EPI_BEFORE) v += LOAD(before, b * epi.s2 + epi.s3 + c);
    v = activate_float(v, epi.s0);
    if (flags & EPI_LAB) v = fma(v, lab.s0, lab.s1);
    if (flags & EPI_AFTER) v += LOAD(after, (long)((na * out.s1 + oy) * out.s2 + ox) * epi.s4 + epi.s5 + c);
    STORE_Y(v, y, (long)((n * out.s1 + oy) * out.s2 + ox) * out.s3 + out.s4 + c);
}
