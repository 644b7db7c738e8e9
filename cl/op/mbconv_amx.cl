/* Inverted bottleneck for CPUs with AMX (src/ops/mbconv.h): 1x1 expansion, 3x3 depthwise, 1x1 projection in one pass,
 * so that the wide map between them never leaves the second-level cache. One work-item per group; needs isa/tile,
 * isa/bf16, isa/amx, isa/amx_rest with UNITS.
 *
 * A group takes a band of output rows of one column segment. The last three rows of the expanded map, columns of
 * padding included, lie in its part of `scratch` as a ring of lines [pixel][HIDDEN]. While 32 pixels are projected,
 * the depthwise sums of the 32 that follow are made and split.
 *
 * -D CIN, HIDDEN, COUT: channels, multiples of 32. -D ACT: of the result. -D STRIDE: of the depthwise filter. */
#define HV      (HIDDEN / 16)
#define CV      (CIN / 16)
#define RUN     8 /* pixels of a unit */
#define UNITS_OF_TILE (AMX_BLOCK / RUN * HV)
#define PLANE_X (AMX_BLOCK * PITCH(CIN))
#define PLANE_D (AMX_BLOCK * PITCH(HIDDEN))

/* What the depthwise filter reads, and where its sums go. w [HV][9][16]. */
typedef struct {
    rest_t rest; /* first: rest_unit gets its address */
    __global const float *lines[3], *w, *b;
    ushort *d;
    int turn; /* which of the two blocks of sums is free */
    float16 sums[2][AMX_BLOCK * 2];
} bottleneck_t;

#define SUM_OPEN(r)  float16 a##r = bias;
#define SUM_TAP(r)   a##r = fma(vload16(0, e + r * STRIDE * HIDDEN), wv, a##r);
#define SUM_COLUMN(kx)                                                                                                 \
    {                                                                                                                  \
        const float16 wv = vload16(v * 9 + ky * 3 + kx, b->w);                                                         \
        EACH8(SUM_TAP)                                                                                                 \
        e += HIDDEN;                                                                                                   \
    }
#define SUM_CLOSE(r) sums[r] = a##r;

/* Unit i of a tile: gelu(depthwise sums) of RUN output pixels and 16 channels, split. */
NOINLINE void rest_unit(const rest_t *rest, int i) {
    const bottleneck_t *b = (const bottleneck_t *)rest;
    const int v = i % HV, first = i / HV * RUN;
    const float16 bias = vload16(v, b->b);
    float16 sums[RUN];
    EACH8(SUM_OPEN)
    for (int ky = 0; ky < 3; ky++) {
        __global const float *e = b->lines[ky] + first * STRIDE * HIDDEN + v * 16;
        SUM_COLUMN(0) SUM_COLUMN(1) SUM_COLUMN(2)
    }
    EACH8(SUM_CLOSE)
    activate_all(sums, RUN, ACT_GELU);
    for (int r = 0; r < RUN; r++) amx_split(sums[r], (size_t)(b->d + (first + r) * PITCH(HIDDEN) + v * 16), PLANE_D);
}

/* A block of 32 columns from j on of `count` rows, whose bias, activation and residual wait for the next product. */
static inline void block_of(bottleneck_t *b, const ushort *rows, int pitch, int plane, __global const ushort *w,
                            __global const float *bias, int depth, int j, int act, int count, __global float *y,
                            int ldy, __global const float *add, int ld_add) {
    float *sums = (float *)b->sums[b->turn];
    rest_product(&b->rest, sums, AMX_BLOCK, rows, pitch, plane, w + j * depth * PARTS, depth / AMX_DEPTH, false);
    b->turn ^= 1;
    b->rest.sums = sums;
    b->rest.piece = 0;
    b->rest.pieces = count;
    b->rest.act = act;
    b->rest.bias = bias + j;
    b->rest.y = y + j;
    b->rest.ldy = ldy;
    b->rest.add = add ? add + j : 0;
    b->rest.ld_add = ld_add;
}

static inline void zero_pixels(__global float *line, int from, int to) {
    for (int i = from * HV; i < to * HV; i++) vstore16((float16)(0.0f), i, line);
}

/* Input row iy, columns from ix on, expanded into `line`; zeros outside the map. */
NOINLINE void expand_line(bottleneck_t *b, __global float *line, int length, __global const float *x, int n, int iy,
                          int ix, __global const ushort *w1, __global const float *b1, int8 in) {
    const bool row = iy >= 0 && iy < in.s0;
    const int from = row ? max(0, -ix) : length, to = row ? min(length, in.s1 - ix) : length;
    uint16 u[PARTS * PLANE_X / 32];
    x += ((size_t)n * in.s0 + max(iy, 0)) * in.s1 * in.s2 + in.s3;
    zero_pixels(line, 0, from);
    zero_pixels(line, to, length);
    if (!row) return;
    b->rest.near = (size_t)(x + ((size_t)in.s1 + ix + from) * in.s2);
    b->rest.near_end = b->rest.near + (size_t)(to - from) * in.s2 * sizeof(float);
    for (int t = from; t < to; t += AMX_BLOCK) {
        const int count = min(AMX_BLOCK, to - t);
        for (int r = 0; r < AMX_BLOCK; r++) {
            __global const float *pixel = x + (size_t)(ix + t + min(r, count - 1)) * in.s2;
            for (int i = 0; i < CV; i++)
                amx_split(vload16(i, pixel), (size_t)((ushort *)u + r * PITCH(CIN) + i * 16), PLANE_X);
        }
        for (int j = 0; j < HIDDEN; j += AMX_BLOCK)
            block_of(b, (const ushort *)u, PITCH(CIN), PLANE_X, w1, b1, CIN, j, ACT_GELU, count, line + t * HIDDEN,
                     HIDDEN, 0, 0);
    }
}

/* in = {h, w, ld, c0, length of a line, columns, rows, segments}, out = {n, h, w, ld, c0, residual?, 0, 0}. Group
 * (i, n): segment i % segments, band i / segments. scratch [group][3][length + 31 STRIDE][HIDDEN]: pixels past a
 * line's end are read for output pixels that are not stored. w1, w3: panels (isa/amx). */
__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
mbconv(__global float *restrict y, __global const float *restrict x, __global float *restrict scratch,
       __global const ushort *restrict w1, __global const float *restrict b1, __global const float *restrict w2,
       __global const float *restrict b2, __global const ushort *restrict w3, __global const float *restrict b3,
       __global const int *restrict limit, int8 in, int8 out) {
    const int n = get_group_id(1);
    if (n >= *limit) return;
    const int band = get_group_id(0) / in.s7, x0 = (get_group_id(0) - band * in.s7) * in.s5;
    const int y0 = band * in.s6, y1 = min(out.s1, y0 + in.s6), cols = min(in.s5, out.s2 - x0);
    const int length = (cols - 1) * STRIDE + 3, line = (in.s4 + 31 * STRIDE) * HIDDEN;
    scratch += (get_group_id(0) + get_num_groups(0) * (size_t)n) * 3 * line;
    uint16 d[2][PARTS * PLANE_D / 32];
    bottleneck_t work = {.w = w2, .b = b2};
    work.rest.ld = AMX_BLOCK;
    work.rest.across = 1;
    amx_begin();
    int filled = y0 * STRIDE - 1;
    for (int oy = y0; oy < y1; oy++) {
        const int top = oy * STRIDE - 1;
        for (filled = max(filled, top); filled < top + 3; filled++)
            expand_line(&work, scratch + (filled + 3) % 3 * line, length, x, n, filled, x0 * STRIDE - 1, w1, b1, in);
        for (int t = -AMX_BLOCK, half_of = 0; t < cols; t += AMX_BLOCK, half_of ^= 1) {
            const size_t pixel = ((size_t)n * out.s1 + oy) * out.s2 + x0 + max(t, 0);
            const int next = t + AMX_BLOCK, panels = COUT / AMX_BLOCK;
            for (int ky = 0; ky < 3; ky++)
                work.lines[ky] = scratch + (top + 3 + ky) % 3 * line + next * STRIDE * HIDDEN;
            work.d = (ushort *)d[half_of ^ 1];
            work.rest.unit = work.rest.units = 0;
            if (t < 0) {
                rest_all(&work.rest); /* the last rows of the expansion, which the filter reads */
                work.rest.units = UNITS_OF_TILE;
                rest_all(&work.rest);
                continue;
            }
            for (int j = 0; j < panels; j++) {
                if (next < cols) work.rest.units = UNITS_OF_TILE * (j + 1) / panels;
                block_of(&work, (const ushort *)d[half_of], PITCH(HIDDEN), PLANE_D, w3, b3, HIDDEN, j * AMX_BLOCK, ACT,
                         min(AMX_BLOCK, cols - t), y + pixel * out.s3 + out.s4, out.s3,
                         out.s5 ? x + pixel * in.s2 + in.s3 : 0, in.s2);
            }
        }
        work.rest.unit = work.rest.units = 0;
    }
    rest_all(&work.rest);
    amx_end();
}
