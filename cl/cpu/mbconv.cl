/* Inverted bottleneck for CPUs (graph/nodes.h): 1x1 expansion, 3x3 depthwise, 1x1 projection in one pass, so that
 * the wide map between them never leaves the second-level cache. One work-item per group, needs cpu/tile, cpu/repeated_rows.
 *
 * A piece of work is a band of output rows of one column segment, at most RUN columns. The last three rows of the
 * expanded map, columns of padding included, lie in the group's part of `scratch` as a ring of lines [HIDDEN / 16]
 * [pixel][16], which a row's depthwise sums read from one end to the other, a vector of channels at a time. They go
 * to private memory and from there into the projection. Of rows of the result that are alike a piece makes its first
 * and copies it.
 *
 * -D CIN, HIDDEN, COUT: channels; CIN is a multiple of 16, the others of 64. -D ACT: of the result. -D STRIDE: of the
 * depthwise filter. */
#define NV    PANEL_VECTORS
#define RUN   66 /* pixels that share what a panel costs to fetch */
#define HV    (HIDDEN / 16)
#define CV    (CIN / 16)
#define EACH6(F) F(0) F(1) F(2) F(3) F(4) F(5)

/* line[j][r] = gelu(acc[r][j]), lines of vectors `apart` pixels long. */
NOINLINE void store_tile(__global float *line, int apart, const float16 *acc) {
    for (int j = 0; j < NV; j++)
        for (int r = 0; r < TILE_ROWS; r++) vstore16(ist_gelu_float16(acc[r * NV + j]), j * apart + r, line);
}

/* Input row iy, columns from ix on, expanded into `line`; zeros outside the map. w1 [HIDDEN / PANEL][CIN][PANEL]. */
NOINLINE void expand_line(__global float *line, int apart, int length, __global const T *x, int n, int iy, int ix,
                          __global const float *w1, __global const float *b1, const cpu_mbconv_args arg) {
    float16 xs[RUN * CV], acc[TILE_ROWS * NV], bias[NV];
    const bool row = iy >= 0 && iy < arg.x_h;
    for (int t0 = 0; t0 < length && row; t0 += RUN) {
        const int tiles = (min(RUN, length - t0) + TILE_ROWS - 1) / TILE_ROWS, below = min(iy + 1, arg.x_h - 1);
        __global const T *from = x + (size_t)(n * arg.x_h + iy) * arg.x_w * arg.x_ld + arg.x_c0;
        __global const T *next = x + (size_t)(n * arg.x_h + below) * arg.x_w * arg.x_ld + arg.x_c0;
        for (int r = 0; r < tiles * TILE_ROWS; r++) {
            const size_t at = (size_t)clamp(ix + t0 + r, 0, arg.x_w - 1) * arg.x_ld;
            for (int i = 0; i < CV; i++) xs[r * CV + i] = LOAD16(from, at + i * 16);
        }
        for (int j = 0; j < HIDDEN; j += PANEL) {
            for (int i = 0; i < NV; i++) bias[i] = vload16(i, b1 + j);
            for (int t = 0; t < tiles; t++) {
                const size_t near = (size_t)clamp(ix + t0 + t * TILE_ROWS, 0, arg.x_w - 1) * arg.x_ld;
                panel_product(acc, NV, bias, 0, (const float *)(xs + t * TILE_ROWS * CV), CIN, w1 + j * CIN, CIN, w1,
                              next + near + j % CIN, arg.x_ld);
                store_tile(line + (j / 16 * apart + t0 + t * TILE_ROWS) * 16, apart, acc);
            }
        }
    }
    const int left = row ? max(-ix, 0) : length, right = max(arg.x_w - ix, left);
    for (int v = 0; v < HV; v++, line += apart * 16) {
        for (int t = 0; t < left; t++) vstore16((float16)(0.0f), t, line);
        for (int t = right; t < length; t++) vstore16((float16)(0.0f), t, line);
    }
}

#define SUM_OPEN(r)  float16 a##r = bias;
#define SUM_TAP(r)   a##r = fma(vload16(r * STRIDE, e), wv, a##r);
#define SUM_COLUMN(kx)                                                                                                 \
    {                                                                                                                  \
        const float16 wv = vload16(ky * 3 + kx, w);                                                                    \
        __global const float *e = line + kx * 16;                                                                      \
        EACH6(SUM_TAP)                                                                                                 \
    }
#define SUM_CLOSE(r) to[r * HV] = a##r;
#define SUM_GELU(r)  before[r * HV] = ist_gelu_float16(before[r * HV]);

/* d [pixel][HV] = gelu(depthwise sums) pixels in sixes; l0, l1, l2: three lines. w [HV][9][16].
 * Where what GELU needs fits registers beside the sums it takes those of the six pixels before, which wait for nothing:
 * a core sees some hundred operations at a time. */
NOINLINE void spread(float16 *d, int pixels, __global const float *l0, __global const float *l1,
                     __global const float *l2, int apart, __global const float *w, __global const float *b) {
    float16 *before = d + TILE_ROWS * HV; /* not yet made, or not wanted */
    for (int v = 0; v < HV; v++, w += 9 * 16) {
        const float16 bias = vload16(v, b);
        for (int t = 0; t < pixels; t += TILE_ROWS) {
            const int at = (v * apart + t * STRIDE) * 16;
            float16 *to = d + t * HV + v;
            EACH6(SUM_OPEN)
#pragma unroll
            for (int ky = 0; ky < 3; ky++) {
                __global const float *line = (ky == 0 ? l0 : ky == 1 ? l1 : l2) + at;
                SUM_COLUMN(0) SUM_COLUMN(1) SUM_COLUMN(2)
            }
#ifdef SIMD16
            EACH6(SUM_GELU)
#endif
            EACH6(SUM_CLOSE)
            before = to;
        }
    }
#ifdef SIMD16
    activate_rows(before, TILE_ROWS, 1, HV, ACT_GELU);
#else
    activate_all(d, (pixels + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS * HV, ACT_GELU);
#endif
}

/* Piece i of an item: segment i % segments, band i / segments; groups share them out by `queue` (see prelude). content:
 * see cpu/repeated_rows. scratch [group][3][HIDDEN / 16][line_pixels + 5 STRIDE][16]: pixels past a line's end are
 * written with tiles, and read for output pixels that are not stored. */
NOINLINE void mbconv_group(__global T *restrict y, __global const T *restrict x, __global float *restrict scratch,
                           __global const float *restrict w1, __global const float *restrict b1,
                           __global const float *restrict w2, __global const float *restrict b2,
                           __global const float *restrict w3, __global const float *restrict b3,
                           __global const int *restrict limit, __global const int *restrict content,
                           const cpu_mbconv_args arg, __global int *queue, const int4 group) {
    const int apart = arg.line_pixels + 5 * STRIDE, line = apart * HIDDEN;
    const int y_ld = arg.y_ld, segments = arg.segments, pieces = arg.pieces;
    float16 d[RUN * HV], acc[TILE_ROWS * NV], bias[NV];
    scratch += group.x * (size_t)3 * line;
    work_t work = work_begin(group.w, min(arg.items, *limit) * pieces, arg.backwards);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int n = item / pieces, piece = item - n * pieces, band = piece / segments;
        const int x0 = (piece - band * segments) * arg.segment_w, cols = min(arg.segment_w, arg.y_w - x0);
        const int2 same = alike_rows(content, arg.same, n);
        const int y0 = alike_band(band, arg.bands, arg.y_h, same), y1 = alike_band(band + 1, arg.bands, arg.y_h, same);
        const int length = (cols - 1) * STRIDE + 3;
        int filled = y0 * STRIDE - 1;
        for (int oy = y0; oy < y1; oy++) {
            const int top = oy * STRIDE - 1, pixel = (n * arg.y_h + oy) * arg.y_w + x0;
            __global T *to = y + (size_t)pixel * y_ld + arg.y_c0;
            if (oy > max(y0, same.x) && oy < same.y) {
                copy_pixels(to, to - (size_t)arg.y_w * y_ld, cols, y_ld, COUT);
                continue;
            }
            for (filled = max(filled, top); filled < top + 3; filled++)
                expand_line(scratch + (filled + 3) % 3 * line, apart, length, x, n, filled, x0 * STRIDE - 1, w1, b1,
                            arg);
            spread(d, cols, scratch + (top + 3) % 3 * line, scratch + (top + 4) % 3 * line,
                   scratch + (top + 5) % 3 * line, apart, w2, b2);
            for (int j = 0; j < COUT; j += PANEL) {
                for (int i = 0; i < NV; i++) bias[i] = vload16(i, b3 + j);
                for (int t = 0; t < cols; t += TILE_ROWS) {
                    const int count = min(TILE_ROWS, cols - t);
                    panel_product(acc, NV, bias, 0, (const float *)(d + t * HV), HIDDEN, w3 + j * HIDDEN, HIDDEN, w3,
                                  to + t * y_ld + j, y_ld);
                    for (int i = 0; i < count * NV && arg.residual; i++)
                        acc[i] += LOAD16(x, (size_t)(pixel + t + i / NV) * arg.x_ld + arg.x_c0 + j + i % NV * 16);
                    activate_all(acc, TILE_ROWS * NV, ACT);
                    for (int i = 0; i < count * NV; i++)
                        STORE16(acc[i], to, (size_t)(t + i / NV) * y_ld + j + i % NV * 16);
                }
            }
        }
    }
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
mbconv(__global T *restrict y, __global const T *restrict x, __global float *restrict scratch,
       __global const float *restrict w1, __global const float *restrict b1, __global const float *restrict w2,
       __global const float *restrict b2, __global const float *restrict w3, __global const float *restrict b3,
       __global const int *restrict limit, __global const int *restrict content, cpu_mbconv_args arg,
       __global int *queue) {
    mbconv_group(y, x, scratch, w1, b1, w2, b2, w3, b3, limit, content, arg, queue, THIS_GROUP);
}
