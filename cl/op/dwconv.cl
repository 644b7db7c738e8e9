/* Depthwise convolution for CPUs: one work-item per group computes a band of output rows of one column segment for 16
 * channels. The k input rows in use lie, converted to float and padded with zeros, in a ring of lines in private memory:
 * no bounds tests in the sums, and neighbouring pixels are neighbours in the cache however wide the map's pixels are.
 *
 * -D RING: vectors of 16 in the ring; the host chooses `cols` so that k * ((cols - 1) * stride + k) <= RING.
 * Needs isa/vector with VL = 16.
 * Weights [channel block][tap][16], bias [channel block][16]. Grid: x = column segment + segments * band,
 * y = channel block, z = item. */
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
        } else {
            line[i] = input_part(p, left);
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
    int k = win.s0, stride = win.s1;
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
                int ox = ox0 + i;
                long p = (n * out.s1 + oy) * out.s2 + ox, b = before_pixel(n, oy, ox, out.s1, out.s2, epi.s1);
                long a = after_pixel(n, oy, ox, out.s1, out.s2, epi.s1);
                finish(acc[r], left, y + p * out.s3 + out.s4 + c, before + b * epi.s2 + epi.s3 + c,
                       after + a * epi.s4 + epi.s5 + c, epi, lab);
            }
        }
    }
}
