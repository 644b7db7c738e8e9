/* Inverted bottleneck for CPUs (src/ops/mbconv.h): 1x1 expansion, 3x3 depthwise, 1x1 projection in one pass, so that
 * the wide map between them never leaves the second-level cache. One work-item per group, needs isa/tile, isa/alike.
 *
 * A piece of work is a band of output rows of one column segment. The last three rows of the expanded map, columns of
 * padding included, lie in the group's part of `scratch` as a ring of lines [pixel][HIDDEN]. For every RUN output
 * pixels the depthwise sums of all hidden channels go to private memory and from there into the projection. Of rows of
 * the result that are alike a piece makes its first and copies it.
 *
 * -D CIN, HIDDEN, COUT: channels; CIN is a multiple of 16, the others of 64. -D ACT: of the result. -D STRIDE: of the
 * depthwise filter. */
#define NV   PANEL_VECTORS
#define RUN  (PANEL == 64 ? TILE_ROWS : 66) /* pixels that share what a panel costs to fetch: narrow ones more */
#define HV   (HIDDEN / 16)
#define CV   (CIN / 16)
#define EACH6(F) F(0) F(1) F(2) F(3) F(4) F(5)

/* Input row iy, columns from ix on, expanded into `line`; zeros outside the map. w1 [HIDDEN / PANEL][CIN][PANEL]. */
NOINLINE void expand_line(__global float *line, int length, __global const T *x, int n, int iy, int ix,
                          __global const float *w1, __global const float *b1, int8 in) {
    const bool row = iy >= 0 && iy < in.s0;
    for (int t0 = 0; t0 < length; t0 += RUN) {
        float16 xs[RUN * CV], acc[TILE_ROWS * NV], bias[NV];
        const int run = min(RUN, length - t0);
        for (int r = 0; r < (run + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS && row; r++) {
            const int column = clamp(ix + t0 + min(r, run - 1), 0, in.s1 - 1);
            const size_t at = (((size_t)n * in.s0 + iy) * in.s1 + column) * in.s2 + in.s3;
            for (int i = 0; i < CV; i++) xs[r * CV + i] = LOAD16(x, at + i * 16);
        }
        for (int j = 0; j < HIDDEN; j += PANEL) {
            for (int i = 0; i < NV; i++) bias[i] = vload16(i, b1 + j);
            for (int t = t0; t < t0 + run; t += TILE_ROWS) {
                const int count = min(TILE_ROWS, t0 + run - t);
                const int below = min(iy + 1, in.s0 - 1), near = clamp(ix + t, 0, in.s1 - 1);
                __global const T *next = x + (((size_t)n * in.s0 + max(below, 0)) * in.s1 + near) * in.s2 + in.s3;
                if (row)
                    panel_product(acc, NV, bias, 0, (const float *)(xs + (t - t0) * CV), CIN, w1 + j * CIN, CIN, w1,
                                  next + j % CIN, in.s2);
                if (row && count == TILE_ROWS && ix + t >= 0 && ix + t + count <= in.s1) {
                    activate_to((float16 *)(size_t)(line + t * HIDDEN + j), HV, acc, TILE_ROWS, NV, NV, ACT_GELU);
                    continue;
                }
                if (row) activate_all(acc, TILE_ROWS * NV, ACT_GELU);
                for (int r = 0; r < count; r++) {
                    const bool inside = row && ix + t + r >= 0 && ix + t + r < in.s1;
                    for (int i = 0; i < NV; i++)
                        vstore16(inside ? acc[r * NV + i] : (float16)(0.0f), i, line + (t + r) * HIDDEN + j);
                }
            }
        }
    }
}

#define SUM_OPEN(r)  float16 a##r = bias;
#define SUM_TAP(r)   a##r = fma(vload16(0, e + r * STRIDE * HIDDEN), wv, a##r);
#define SUM_COLUMN(kx)                                                                                                 \
    {                                                                                                                  \
        const float16 wv = vload16(v * 9 + ky * 3 + kx, w2);                                                           \
        EACH6(SUM_TAP)                                                                                                 \
        e += HIDDEN;                                                                                                   \
    }
#ifdef SIMD16 /* what GELU needs fits registers beside the sums, and works while these wait for lines of the map */
#define SUM_CLOSE(r) d[r * HV + v] = ist_gelu_float16(a##r);
#else
#define SUM_CLOSE(r) d[r * HV + v] = a##r;
#endif

/* d = gelu(depthwise sums) of six output pixels whose windows begin at pixel `first` of the three lines. w2
 * [HV][9][16]. */
NOINLINE void spread(float16 *d, __global const float *l0, __global const float *l1, __global const float *l2,
                          int first, __global const float *w2, __global const float *b2) {
    for (int v = 0; v < HV; v++) {
        const float16 bias = vload16(v, b2);
        EACH6(SUM_OPEN)
        for (int ky = 0; ky < 3; ky++) {
            __global const float *e = (ky == 0 ? l0 : ky == 1 ? l1 : l2) + first * HIDDEN + v * 16;
            SUM_COLUMN(0) SUM_COLUMN(1) SUM_COLUMN(2)
        }
        EACH6(SUM_CLOSE)
    }
#ifndef SIMD16
    activate_all(d, TILE_ROWS * HV, ACT_GELU);
#endif
}

/* in = {h, w, ld, c0, length of a line, columns, bands, segments}, out = {n, h, w, ld, c0, residual?, pieces of an
 * item, backwards?}. Piece i of an item: segment i % segments, band i / segments; groups share them out by `queue`
 * (see prelude). content, alike: see isa/alike. scratch [group][3][length + 5 STRIDE][HIDDEN]: pixels past a line's end
 * are read for output pixels that are not stored. */
NOINLINE void mbconv_group(__global T *restrict y, __global const T *restrict x, __global float *restrict scratch,
                           __global const float *restrict w1, __global const float *restrict b1,
                           __global const float *restrict w2, __global const float *restrict b2,
                           __global const float *restrict w3, __global const float *restrict b3,
                           __global const int *restrict limit, __global const int *restrict content, int8 in, int8 out,
                           int8 alike, __global int *queue, const int4 group) {
    const int line = (in.s4 + 5 * STRIDE) * HIDDEN;
    float16 d[RUN * HV], acc[TILE_ROWS * NV], bias[NV];
    scratch += group.x * (size_t)3 * line;
    work_t work = work_begin(group.w, min(out.s0, *limit) * out.s6, out.s7);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int n = item / out.s6, piece = item - n * out.s6, band = piece / in.s7;
        const int x0 = (piece - band * in.s7) * in.s5, cols = min(in.s5, out.s2 - x0);
        const int2 same = alike_rows(content, alike, n);
        const int y0 = alike_band(band, in.s6, out.s1, same), y1 = alike_band(band + 1, in.s6, out.s1, same);
        const int length = (cols - 1) * STRIDE + 3;
        int filled = y0 * STRIDE - 1;
        for (int oy = y0; oy < y1; oy++) {
            const int top = oy * STRIDE - 1;
            if (oy > max(y0, same.x) && oy < same.y) {
                __global T *to = y + (((size_t)n * out.s1 + oy) * out.s2 + x0) * out.s3 + out.s4;
                copy_pixels(to, to - (size_t)out.s2 * out.s3, cols, out.s3, COUT);
                continue;
            }
            for (filled = max(filled, top); filled < top + 3; filled++)
                expand_line(scratch + (filled + 3) % 3 * line, length, x, n, filled, x0 * STRIDE - 1, w1, b1, in);
            for (int t0 = 0; t0 < cols; t0 += RUN) {
                const int run = min(RUN, cols - t0);
                for (int t = 0; t < run; t += TILE_ROWS)
                    spread(d + t * HV, scratch + (top + 3) % 3 * line, scratch + (top + 4) % 3 * line,
                           scratch + (top + 5) % 3 * line, (t0 + t) * STRIDE, w2, b2);
                for (int j = 0; j < COUT; j += PANEL) {
                    for (int i = 0; i < NV; i++) bias[i] = vload16(i, b3 + j);
                    for (int t = 0; t < run; t += TILE_ROWS) {
                        const int pixel = (n * out.s1 + oy) * out.s2 + x0 + t0 + t, count = min(TILE_ROWS, run - t);
                        panel_product(acc, NV, bias, 0, (const float *)(d + t * HV), HIDDEN, w3 + j * HIDDEN, HIDDEN,
                                      w3, y + (size_t)pixel * out.s3 + out.s4 + j, out.s3);
                        for (int i = 0; i < count * NV && out.s5; i++)
                            acc[i] += LOAD16(x, (size_t)(pixel + i / NV) * in.s2 + in.s3 + j + i % NV * 16);
                        activate_all(acc, TILE_ROWS * NV, ACT);
                        for (int i = 0; i < count * NV; i++)
                            STORE16(acc[i], y, (size_t)(pixel + i / NV) * out.s3 + out.s4 + j + i % NV * 16);
                    }
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
       __global const int *restrict limit, __global const int *restrict content, int8 in, int8 out, int8 alike,
       __global int *queue) {
    mbconv_group(y, x, scratch, w1, b1, w2, b2, w3, b3, limit, content, in, out, alike, queue, THIS_GROUP);
}
