/* Depthwise convolution for CPUs: one work-item per group computes a band of output rows of one column segment for 16
 * channels. The k input rows in use lie, converted to float and padded with zeros, in a ring of lines in private memory:
 * no bounds tests in the sums, and neighbouring pixels are neighbours in the cache however wide the map's pixels are.
 *
 * -D RING: vectors of 16 in the ring; the host chooses `cols` so that k * ((cols - 1) * stride + k) <= RING.
 * -D X32 / Y32: input / output are float although T is half.
 * Weights [channel block][tap][16], bias [channel block][16]. Grid: x = column segment + segments * band,
 * y = channel block, z = item. */
#ifdef X32
typedef float TX;
#define LOAD_X(p, i)   ((p)[i])
#define LOAD_X16(p, i) vload16(0, (p) + (i))
#else
typedef T TX;
#define LOAD_X(p, i)   LOAD(p, i)
#define LOAD_X16(p, i) LOAD16(p, i)
#endif
#ifdef Y32
typedef float TY;
#define STORE_Y(v, p, i)   ((p)[i] = (v))
#define STORE_Y16(v, p, i) vstore16((v), 0, (p) + (i))
#else
typedef T TY;
#define STORE_Y(v, p, i)   STORE(v, p, i)
#define STORE_Y16(v, p, i) STORE16(v, p, i)
#endif

static inline float16 load_addend(__global const T *p, int n) {
    if (n >= 16) return LOAD16(p, 0);
    float t[16];
    for (int i = 0; i < 16; i++) t[i] = i < n ? LOAD(p, i) : 0.0f;
    return vload16(0, t);
}

/* The result of one pixel: dst, before, after point at its channels. */
static inline void finish(float16 v, int left, __global TY *dst, __global const T *before, __global const T *after,
                          int8 epi, float4 lab) {
    if (epi.s1 & EPI_BEFORE) v += load_addend(before, left);
    v = activate_float16(v, epi.s0);
    if (epi.s1 & EPI_LAB) v = fma(v, (float16)(lab.s0), (float16)(lab.s1));
    if (epi.s1 & EPI_AFTER) v += load_addend(after, left);
    if (left >= 16) {
        STORE_Y16(v, dst, 0);
    } else {
        float t[16];
        vstore16(v, 0, t);
        for (int i = 0; i < left; i++) STORE_Y(t[i], dst, i);
    }
}

#define TAP(r)   a##r = fma(row[kx + r * stride], wv, a##r);
#define FIRST(r) float16 a##r = bias;
#define KEEP(r)  acc[r] = a##r;
#define EACH4(F) F(0) F(1) F(2) F(3)
#define EACH8(F) EACH4(F) F(4) F(5) F(6) F(7)

/* Sums of N neighbouring output pixels whose windows start at vector `first` of each line. */
#define DEFINE_SUMS(N)                                                                                                 \
    static inline void sums##N(const float16 *ring, int line_length, int slot, int first, int k, int stride,           \
                               __global const float *w, float16 bias, float16 *acc) {                                  \
        EACH##N(FIRST)                                                                                                 \
        for (int ky = 0; ky < k; ky++) {                                                                               \
            const float16 *row = ring + slot * line_length + first;                                                    \
            for (int kx = 0; kx < k; kx++, w += 16) {                                                                  \
                float16 wv = vload16(0, w);                                                                            \
                EACH##N(TAP)                                                                                           \
            }                                                                                                          \
            slot = slot + 1 == k ? 0 : slot + 1;                                                                       \
        }                                                                                                              \
        EACH##N(KEEP)                                                                                                  \
    }
DEFINE_SUMS(8)
DEFINE_SUMS(4)

/* Input row iy, columns from ix on, into a line; `left` channels exist. */
static inline void fill_line(float16 *line, int length, __global const TX *x, int n, int iy, int ix, int c, int left,
                             int8 in) {
    if (iy < 0 || iy >= in.s0) {
        for (int i = 0; i < length; i++) line[i] = 0.0f;
        return;
    }
    __global const TX *p = x + ((long)(n * in.s0 + iy) * in.s1 + ix) * in.s2 + in.s3 + c;
    for (int i = 0; i < length; i++, p += in.s2) {
        if (ix + i < 0 || ix + i >= in.s1) {
            line[i] = 0.0f;
        } else if (left >= 16) {
            line[i] = LOAD_X16(p, 0);
        } else {
            float t[16];
            for (int j = 0; j < 16; j++) t[j] = j < left ? LOAD_X(p, j) : 0.0f;
            line[i] = vload16(0, t);
        }
    }
}

/* in = {h, w, ld, c0, c, 0, 0, 0}, win = {k, stride, top, left, cols, rows, segments, 0}, out = {n, h, w, ld, c0, 0, 0, 0},
 * epi as in op/conv. */
__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
dwconv(__global const TX *restrict x, __global const float *restrict w, __global const float *restrict bias,
       __global TY *restrict y, __global const T *restrict before, __global const T *restrict after,
       __global const int *restrict limit, int8 in, int8 win, int8 out, int8 epi, float4 lab) {
    int n = get_group_id(2), c = get_group_id(1) * 16, left = in.s4 - c;
    if (n >= *limit) return;
    int k = win.s0, stride = win.s1, flags = epi.s1;
    int band = get_group_id(0) / win.s6, ox0 = (get_group_id(0) - band * win.s6) * win.s4;
    int cols = min(win.s4, out.s2 - ox0), oy0 = band * win.s5, oy1 = min(out.s1, oy0 + win.s5);
    int length = (win.s4 - 1) * stride + k, filled = oy0 * stride;
    float16 ring[RING], acc[8], start = vload16(get_group_id(1), bias);
    w += get_group_id(1) * k * k * 16;
    for (int oy = oy0; oy < oy1; oy++) {
        int top = oy * stride;
        for (filled = max(filled, top); filled < top + k; filled++)
            fill_line(ring + filled % k * length, length, x, n, filled - win.s2, ox0 * stride - win.s3, c, left, in);
        for (int i = 0; i < cols;) {
            int count = min(cols - i, 8);
            if (count > 4) {
                sums8(ring, length, top % k, i * stride, k, stride, w, start, acc);
            } else {
                sums4(ring, length, top % k, i * stride, k, stride, w, start, acc);
            }
            for (int r = 0; r < count; r++, i++) {
                int ox = ox0 + i, p = (n * out.s1 + oy) * out.s2 + ox, b = p, a = p;
                int nb = flags & EPI_BEFORE_ONE ? 0 : n;
                b = flags & EPI_BEFORE_UP2 ? (nb * (out.s1 >> 1) + (oy >> 1)) * (out.s2 >> 1) + (ox >> 1)
                                           : (nb * out.s1 + oy) * out.s2 + ox;
                if (flags & EPI_AFTER_ONE) a = oy * out.s2 + ox;
                finish(acc[r], left, y + (long)p * out.s3 + out.s4 + c, before + (long)b * epi.s2 + epi.s3 + c,
                       after + (long)a * epi.s4 + epi.s5 + c, epi, lab);
            }
        }
    }
}
