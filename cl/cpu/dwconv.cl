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
                              int ix, int left, const conv_shape shape) {
    bool row = iy >= 0 && iy < shape.x_h;
    __global const TX *p = x + ((long)(n * shape.x_h + iy) * shape.x_w + ix) * shape.x_ld + shape.x_c0;
    for (int i = 0; i < length; i++, p += shape.x_ld) {
        bool inside = row && ix + i >= 0 && ix + i < shape.x_w;
        for (int b = 0; b < blocks; b++)
            line[b * block_step + i] = inside ? input_part(p + 16 * b, left - 16 * b) : (float16)(0.0f);
    }
}

/* Asks for one block of `count` pixels of input row iy, a part of what fill_lines will read for the next row. */
static inline void expect(__global const TX *x, int n, int iy, int ix, int count, const conv_shape shape) {
    if (iy < 0 || iy >= shape.x_h) return;
    __global const TX *p = x + (long)(n * shape.x_h + iy) * shape.x_w * shape.x_ld + shape.x_c0;
    for (int i = max(ix, 0); i < min(ix + count, shape.x_w); i++) PREFETCH(p + (long)i * shape.x_ld);
}

/* One band of one column segment and chunk of blocks of item n; the arguments are the kernel's. */
NOINLINE void band(float16 *ring, __global const TX *x, __global const float *w, __global const float *bias,
                   __global TY *y, __global const T *before, __global const T *after, int n, int line, int segment,
                   int chunk, const dwconv_ring_args arg) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    int c = chunk * arg.blocks * 16, left = shape.x_c - c, blocks = min(arg.blocks, (left + 15) / 16), k = shape.kh;
    int stride = shape.stride;
    int ox0 = segment * arg.cols, cols = min(arg.cols, shape.y_w - ox0), oy0 = line * arg.rows;
    int oy1 = min(shape.y_h, oy0 + arg.rows);
    int filled = oy0 * stride, length = (arg.cols - 1) * stride + k, block_step = k * length;
    const bool simple = epi.act <= ACT_RELU && (epi.flags & ~EPI_LAB) == 0;
    const V low = (V)(epi.act == ACT_RELU ? 0.0f : -INFINITY);
    const V scale = (V)(epi.flags & EPI_LAB ? epi.lab_scale : 1.0f);
    const V shift = (V)(epi.flags & EPI_LAB ? epi.lab_bias : 0.0f);
    float16 acc[8];
    w += c * k * k;
    bias += c;
    for (int oy = oy0; oy < oy1; oy++) {
        int top = oy * stride;
        for (filled = max(filled, top); filled < top + k; filled++)
            fill_lines(ring + filled % k * length, length, block_step, blocks, x + c, n, filled - shape.top,
                       ox0 * stride - shape.left, left, shape);
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
                    expect(x + c + 16 * b, n, filled + r - shape.top, (ox0 + i) * stride - shape.left, count * stride,
                           shape);
                if (simple && left - 16 * b >= 16) {
                    __global TY *yp =
                        y + ((long)(n * shape.y_h + oy) * shape.y_w + ox0 + i) * shape.y_ld + shape.y_c0 + c + 16 * b;
                    for (int r = 0; r < count; r++, yp += shape.y_ld)
                        STORE_YV(fma(max(acc[r], low), scale, shift), yp, 0);
                    continue;
                }
                for (int r = 0; r < count; r++) {
                    int ox = ox0 + i + r, ch = c + 16 * b;
                    long p = (n * shape.y_h + oy) * shape.y_w + ox;
                    long q = before_pixel(n, oy, ox, shape.y_h, shape.y_w, epi.flags);
                    long a = after_pixel(n, oy, ox, shape.y_h, shape.y_w, epi.flags);
                    finish(acc[r], left - 16 * b, y + p * shape.y_ld + shape.y_c0 + ch,
                           before + q * epi.before_ld + epi.before_c0 + ch,
                           after + a * epi.after_ld + epi.after_c0 + ch, epi);
                }
            }
        }
    }
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
dwconv(__global const TX *restrict x, __global const float *restrict w, __global const float *restrict bias,
       __global TY *restrict y, __global const T *restrict before, __global const T *restrict after,
       __global const int *restrict limit, dwconv_ring_args arg, __global int *queue) {
    float16 ring[RING];
    int chunks = (arg.shape.x_c + arg.blocks * 16 - 1) / (arg.blocks * 16);
    int bands = (arg.shape.y_h + arg.rows - 1) / arg.rows;
    work_t work =
        work_begin((int)get_num_groups(0), min(arg.shape.items, *limit) * bands * arg.segments * chunks, arg.backwards);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        int place = item / chunks, line = place / arg.segments;
        band(ring, x, w, bias, y, before, after, line / bands, line % bands, place % arg.segments, item % chunks, arg);
    }
    work_end(&work, queue);
}
