/* Dense convolution in half storage as an implicit matrix product on matrix instructions, sums in float: a work-group
 * of WM x WN subgroups makes BM output pixels by BN channels. Goes with portable/vector (VL = 8) and matrix/matrix.
 *
 * The product runs over `chunks` of eight inputs: of each tap in turn the channels, padded with zeros to a multiple of
 * eight. A step takes BK / 8 chunks of every pixel, which the group gathers into local memory while it multiplies those
 * of the step before; zeros stand for padding and for chunks that do not exist. Weights are read in fragment order,
 * from the first-level cache where subgroups share them. Sums reach the epilogue through local memory, ROWS lines of
 * every subgroup's tile at a time.
 *
 * Arguments: weights [DEPTH inputs][COLS channels][fragment]; bias, in whole vectors of eight. Grid: x = row
 * tiles times the group, y = column tiles. ACT: the activation. */
#define THREADS   (LANES * WM * WN)
#define TM        (BM / WM) /* a subgroup's tile, and its fragments */
#define TN        (BN / WN)
#define MI        (TM / ROWS)
#define NI        (TN / COLS)
#define PARTS     (BK / 8) /* chunks of a pixel */
#define PASSES    ((BM * PARTS + THREADS - 1) / THREADS)
#define PITCH     (BK / 8 + 1)       /* chunks from row to row in local memory: rows lie in different banks */
#define SUM_PITCH (BN + 4)           /* floats */
#define SUM_LINES (WM * ROWS)
#define TILE      (BM * PITCH)       /* chunks */
#define SUM_PARTS (SUM_LINES * SUM_PITCH / 4)

/* The next eight channels of a pixel, zeros beyond the last of `left`. */
static inline uint4 chunk_of(__global const T *x, int left) {
    __global const ushort *p = (__global const ushort *)x;
    if (left >= 8) {
#ifdef ALIGNED
        return *(__global const uint4 *)p;
#else
        return as_uint4(vload8(0, p));
#endif
    }
    uint v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = i < left ? p[i] : 0;
    return (uint4)(v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16);
}

/* A fragment of sums as rows, SUM_PITCH floats apart. */
MATRIX_FUNCTION void put_sums(__local float *to, matrix_sums_t sums, int lane) {
#pragma unroll
    for (int e = 0; e < SUMS; e++) to[SUM_ROW(lane, e) * SUM_PITCH + SUM_COL(lane)] = ((const float *)&sums)[e];
}

/* Eight sums of product row `p` become results. */
MATRIX_FUNCTION void finish_part(__local const float4 *sums, __global const float *bias, int p, int c,
                                 __global TY *y, __global const T *before, __global const T *after,
                                 const conv_shape shape, epilogue_args epi, const divider by_w, const divider by_h) {
    int line = divided(p, by_w), n = divided(line, by_h);
    int oy = line - n * shape.y_h, ox = p - line * shape.y_w;
    size_t b = before_pixel(n, oy, ox, shape.y_h, shape.y_w, epi.flags);
    size_t a = after_pixel(n, oy, ox, shape.y_h, shape.y_w, epi.flags);
    epi.act = ACT;
    finish((float8)(sums[0], sums[1]) + vload8(0, bias + c), shape.y_c - c, y + (size_t)p * shape.y_ld + shape.y_c0 + c,
           before + b * epi.before_ld + epi.before_c0 + c, after + a * epi.after_ld + epi.after_c0 + c, epi);
}

MATRIX_KERNEL __kernel void conv(__global const T *restrict x, __global const uint4 *restrict w,
                                 __global const float *restrict bias, __global TY *restrict y,
                                 __global const T *restrict before, __global const T *restrict after,
                                 __global const int *restrict limit, conv_matrix_args arg) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    MATRIX_SCRATCH
    __local uint4 memory[2 * TILE > SUM_PARTS ? 2 * TILE : SUM_PARTS]; /* two steps' pixels, later sums */
    int id = get_local_id(0), lane = id % LANES, wm = id / LANES % WM, wn = id / LANES / WM;
    int rows = min(shape.items, *limit) * shape.y_h * shape.y_w, p0 = get_group_id(0) * BM;
    if (p0 >= rows) return;

    /* What this work-item gathers: chunk `part` of the rows id / PARTS, THREADS / PARTS further and so on. */
    int part = id % PARTS, taps = shape.kh * shape.kw, from[PASSES], top[PASSES], left[PASSES];
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
        int p = min(p0 + (id + i * THREADS) / PARTS, rows - 1);
        int line = divided(p, arg.by_w), n = divided(line, arg.by_h);
        top[i] = (line - n * shape.y_h) * shape.stride - shape.top;
        left[i] = (p - line * shape.y_w) * shape.stride - shape.left;
        from[i] = ((n * shape.x_h + top[i]) * shape.x_w + left[i]) * shape.x_ld + shape.x_c0;
    }
    uint4 next[PASSES];
#define GATHER(STEP)                                                                                                   \
    do {                                                                                                               \
        int chunk = (STEP)*PARTS + part, tap = divided(chunk, arg.by_tap_chunks), ky = divided(tap, arg.by_kw);        \
        int kx = tap - ky * shape.kw, c = (chunk - tap * arg.tap_chunks) * 8,                                          \
            away = (ky * shape.x_w + kx) * shape.x_ld + c;                                                             \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++) {                                                           \
            bool inside =                                                                                              \
                tap < taps && (uint)(top[i] + ky) < (uint)shape.x_h && (uint)(left[i] + kx) < (uint)shape.x_w;         \
            next[i] = inside ? chunk_of(x + (from[i] + away), shape.x_c - c) : (uint4)(0);                             \
        }                                                                                                              \
    } while (0)
#define KEEP(SLOT)                                                                                                     \
    do {                                                                                                               \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++)                                                             \
            if (BM * PARTS % THREADS == 0 || id + i * THREADS < BM * PARTS)                                            \
                memory[(SLOT) * TILE + (id + i * THREADS) / PARTS * PITCH + part] = next[i];                           \
    } while (0)

    matrix_sums_t acc[MI][NI];
#pragma unroll
    for (int i = 0; i < MI * NI; i++) acc[i / NI][i % NI] = 0.0f;
    int first = get_group_id(1) * (BN / COLS) + wn * NI;
    GATHER(0);
    KEEP(0);
    for (int step = 0; step < arg.steps; step++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        GATHER(step + 1); /* behind the last there are only zeros */
        __local const uint *tile = (__local const uint *)(memory + step % 2 * TILE + wm * TM * PITCH);
        int at = step * (BK / DEPTH) * arg.blocks;
#pragma unroll
        for (int k = 0; k < BK / DEPTH; k++) {
            matrix_t b[NI];
#pragma unroll
            for (int j = 0; j < NI; j++) b[j] = matrix_b(w, at + k * arg.blocks + min(first + j, arg.blocks - 1), lane);
#pragma unroll
            for (int i = 0; i < MI; i++) {
                matrix_t a = matrix_a(tile + (i * ROWS * PITCH * 4 + k * (DEPTH / 2)), PITCH * 4, lane);
#pragma unroll
                for (int j = 0; j < NI; j++) MATRIX_MULTIPLY(acc[i][j], a, b[j]);
            }
        }
        KEEP((step + 1) % 2);
    }

    __local float *sums = (__local float *)memory, *mine = sums + wm * ROWS * SUM_PITCH + wn * TN;
    int column = id % (BN / 8) * 8, c = get_group_id(1) * BN + column;
    for (int i = 0; i < MI; i++) {
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (int m = 0; m < MI * NI; m++) /* the index of an array in registers has to be constant */
            if (m / NI == i) put_sums(mine + m % NI * COLS, acc[m / NI][m % NI], lane);
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (int j = 0; j < (SUM_LINES * BN / 8 + THREADS - 1) / THREADS; j++) {
            int line = (id + j * THREADS) / (BN / 8), p = p0 + line / ROWS * TM + i * ROWS + line % ROWS;
            if (line < SUM_LINES && p < rows && c < shape.y_c)
                finish_part((__local const float4 *)(sums + line * SUM_PITCH + column), bias, p, c, y, before,
                            after, shape, epi, arg.by_w, arg.by_h);
        }
    }
}
