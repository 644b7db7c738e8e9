/* Depthwise convolution for CPUs: one work-item per group computes a band of output rows of one column segment for up
 * to 64 channels, 16 at a time. The k input rows in use lie, converted to float and padded with zeros, in a ring of
 * lines in private memory: no bounds tests in the sums, and neighbouring pixels are neighbours in the cache however
 * wide the map's pixels are; 64 channels are what makes reading and writing the map efficient.
 *
 * -D RING: vectors of 16 in the ring; the host chooses columns and blocks of 16 channels so that they fit. Needs
 * portable/vector with VL = 16. Weights [block][tap][16], bias [block][16].
 * Grid: x = compute units, which share out bands by segments by chunks of blocks by `queue` (see prelude). */
#define TAP(r)   a##r = fma(row[kx + r * stride], wv, a##r);
#define FIRST(r) float16 a##r = bias;
#define KEEP(r)  acc[r] = a##r;
#define EACH4(F) F(0) F(1) F(2) F(3)
#define EACH8(F) EACH4(F) F(4) F(5) F(6) F(7)

/* Sums of N neighbouring output pixels whose windows start at vector `first` of each line. */
#define DEFINE_SUMS(F, N)                                                                                              \
    static inline void F(const float16 *ring, int line_length, int slot, int first, int k, int stride,                 \
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
DEFINE_SUMS(sums4, 4)
#ifdef SIMD16
DEFINE_SUMS(sums8, 8)
#else /* 8 registers of 8 floats instead of 16 */
static inline void sums8(const float16 *ring, int line_length, int slot, int first, int k, int stride,
                         __global const float *w, float16 bias, float16 *acc) {
    sums4(ring, line_length, slot, first, k, stride, w, bias, acc);
    sums4(ring, line_length, slot, first + 4 * stride, k, stride, w, bias, acc + 4);
}
#endif

/* Input row iy, columns from ix on, into the same line of every block's ring; `left` channels exist. */
static inline void fill_lines(float16 *line, int length, int block_step, int blocks, __global const TX *x, int n, int iy,
                              int ix, int left, int8 in) {
    bool row = iy >= 0 && iy < in.s0;
    __global const TX *p = x + ((long)(n * in.s0 + iy) * in.s1 + ix) * in.s2 + in.s3;
    for (int i = 0; i < length; i++, p += in.s2) {
        bool inside = row && ix + i >= 0 && ix + i < in.s1;
        for (int b = 0; b < blocks; b++)
            line[b * block_step + i] = inside ? input_part(p + 16 * b, left - 16 * b) : (float16)(0.0f);
    }
}

/* Asks for one block of `count` pixels of input row iy, a part of what fill_lines will read for the next row. */
static inline void expect(__global const TX *x, int n, int iy, int ix, int count, int8 in) {
    if (iy < 0 || iy >= in.s0) return;
    __global const TX *p = x + (long)(n * in.s0 + iy) * in.s1 * in.s2 + in.s3;
    for (int i = max(ix, 0); i < min(ix + count, in.s1); i++) PREFETCH(p + (long)i * in.s2);
}

/* One band of one column segment and chunk of blocks of item n; the arguments are the kernel's. */
NOINLINE void band(float16 *ring, __global const TX *x, __global const float *w, __global const float *bias,
                   __global TY *y, __global const T *before, __global const T *after, int n, int line, int segment,
                   int chunk, int8 in, int8 win, int8 out, int8 epi, float4 lab) {
    int c = chunk * win.s7 * 16, left = in.s4 - c, blocks = min(win.s7, (left + 15) / 16), k = win.s0, stride = win.s1;
    int ox0 = segment * win.s4, cols = min(win.s4, out.s2 - ox0), oy0 = line * win.s5, oy1 = min(out.s1, oy0 + win.s5);
    int filled = oy0 * stride, length = (win.s4 - 1) * stride + k, block_step = k * length;
    const bool simple = epi.s0 <= ACT_RELU && (epi.s1 & ~EPI_LAB) == 0;
    const V low = (V)(epi.s0 == ACT_RELU ? 0.0f : -INFINITY);
    const V scale = (V)(epi.s1 & EPI_LAB ? lab.s0 : 1.0f), shift = (V)(epi.s1 & EPI_LAB ? lab.s1 : 0.0f);
    float16 acc[8];
    w += c * k * k;
    bias += c;
    for (int oy = oy0; oy < oy1; oy++) {
        int top = oy * stride;
        for (filled = max(filled, top); filled < top + k; filled++)
            fill_lines(ring + filled % k * length, length, block_step, blocks, x + c, n, filled - win.s2,
                       ox0 * stride - win.s3, left, in);
        for (int i = 0, count; i < cols; i += count) {
            count = min(cols - i, 8);
            for (int b = 0; b < blocks; b++) {
                const float16 *lines = ring + b * block_step;
                __global const float *wb = w + b * k * k * 16;
                if (count > 4) {
                    sums8(lines, length, top % k, i * stride, k, stride, wb, vload16(b, bias), acc);
                } else {
                    sums4(lines, length, top % k, i * stride, k, stride, wb, vload16(b, bias), acc);
                }
                for (int r = 0; r < stride && oy + 1 < oy1; r++)
                    expect(x + c + 16 * b, n, filled + r - win.s2, (ox0 + i) * stride - win.s3, count * stride, in);
                if (simple && left - 16 * b >= 16) {
                    __global TY *yp = y + ((long)(n * out.s1 + oy) * out.s2 + ox0 + i) * out.s3 + out.s4 + c + 16 * b;
                    for (int r = 0; r < count; r++, yp += out.s3)
                        STORE_YV(fma(max(acc[r], low), scale, shift), yp, 0);
                    continue;
                }
                for (int r = 0; r < count; r++) {
                    int ox = ox0 + i + r, ch = c + 16 * b;
                    long p = (n * out.s1 + oy) * out.s2 + ox, q = before_pixel(n, oy, ox, out.s1, out.s2, epi.s1);
                    long a = after_pixel(n, oy, ox, out.s1, out.s2, epi.s1);
                    finish(acc[r], left - 16 * b, y + p * out.s3 + out.s4 + ch, before + q * epi.s2 + epi.s3 + ch,
                           after + a * epi.s4 + epi.s5 + ch, epi, lab);
                }
            }
        }
    }
}

/* in = {h, w, ld, c0, c, 0, 0, 0}, win = {k, stride, top, left, cols, rows, segments, blocks}, out = {n, h, w, ld, c0,
 * backwards, 0, 0}, epi as in portable/vector. */
__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
dwconv(__global const TX *restrict x, __global const float *restrict w, __global const float *restrict bias,
       __global TY *restrict y, __global const T *restrict before, __global const T *restrict after,
       __global const int *restrict limit, int8 in, int8 win, int8 out, int8 epi, float4 lab, __global int *queue) {
    float16 ring[RING];
    int chunks = (in.s4 + win.s7 * 16 - 1) / (win.s7 * 16), bands = (out.s1 + win.s5 - 1) / win.s5;
    work_t work = work_begin((int)get_num_groups(0), min(out.s0, *limit) * bands * win.s6 * chunks, out.s5);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        int place = item / chunks, line = place / win.s6;
        band(ring, x, w, bias, y, before, after, line / bands, line % bands, place % win.s6, item % chunks, in, win, out,
             epi, lab);
    }
    work_end(&work, queue);
}
