/* HGNetv2's second stage and the downsampling behind it (variants/nvidia/stage.h) as one launch on matrix instructions, in half
 * storage with sums in float: a work-group makes TILE x TILE pixels of the downsampled map and the four times as many
 * of the stage's own result that lie above them. Goes with nvidia/ptx.
 *
 * As nvidia/stage, with more channels: grid 0 is the input under the tile (15 x 15 pixels for 4 x 4), grids 1 to 3 the
 * results of the 3x3 layers, and on grid 3 the two 1x1 layers. In the 3x3 layers WM warps have the pixels and two share
 * a sum, half of the inputs each: so a fragment of the weights is read by fewer warps. In the 1x1 layers two warps have
 * the pixels and WN the outputs. Weights do not all fit beside the maps: those of the last layer come where the 3x3
 * layers' were, and sums that are exchanged lie where weights are no longer or not yet.
 *
 * Arguments: y; x; weights of the five dense layers as variants/fragments.h has them, [32 inputs][block of 8 outputs],
 * the 3x3 layers' [half of the channels][tap][channel] filled up with zeros; constants {scale, shift} of those layers,
 * 12 floats, then their biases [32][32][32][128][256], the depthwise taps [9][256] and bias [256]; in = {h, w, ld, c0},
 * out = {n, h, w, ld, c0, tiles across, ld and c0 of whole}; whole, the stage's own result, unless its ld is 0. Grid: x
 * = tiles, y = items. -D TILE: at most 4. */
#ifndef TILE
#define TILE 4
#endif
#define THREADS   256
#define WM        4
#define WN        4
#define LAYERS    3
#define IN        64
#define C         32 /* outputs of a 3x3 layer */
#define MID       128
#define OUT       256
#define INPUTS(s) ((s) > 0 ? C : IN) /* channels of grid s */
#define SIDE(s)   (2 * TILE + 1 + 2 * (LAYERS - (s)))
#define PIXELS(s) (SIDE(s) * SIDE(s))
#define MI(s)     ((PIXELS(s) + 16 * WM - 1) / (16 * WM)) /* sixteens of pixels of a warp */
#define MIXED     ((PIXELS(LAYERS) + 31) / 32)            /* the same in the 1x1 layers */
#define PITCH(s)  (INPUTS(s) * 2 + 16)
#define MID_PITCH (MID * 2 + 16)
#define WIDE      (OUT * 2 + 16)
#define MAP(s)                                                                                                         \
    (((s) > 0 ? PIXELS(0) * PITCH(0) : 0) + ((s) > 1 ? PIXELS(1) * PITCH(1) : 0) + ((s) > 2 ? PIXELS(2) * PITCH(2) : 0))
#define MID_AT        MAP(1) /* results of the first 1x1 layer */
#define STEPS(s)      ((9 * INPUTS(s) / 2 + 31) / 32)
#define LAYER(s)      (2 * STEPS(s) * (C / 8) * 32) /* weights of 3x3 layer s, in sixteens of bytes */
#define FROM(s)       (((s) > 0 ? LAYER(0) : 0) + ((s) > 1 ? LAYER(1) : 0) + ((s) > 2 ? LAYER(2) : 0))
#define MIX           ((IN + LAYERS * C) * MID / 8)
#define LAST          (MID * OUT / 8)
#define W_AT(s)       (MAP(LAYERS) + PIXELS(LAYERS) * PITCH(LAYERS) + FROM(s) * 16)
#define LAST_AT(half) W_AT(half) /* of the last layer: halves of its inputs */
#define MIX_AT        W_AT(LAYERS)
#define SUM_AT        MIX_AT /* results of the second 1x1 layer */
#define SCALES_AT     (SUM_AT + PIXELS(LAYERS) * WIDE)
#define BIAS          12
#define TAPS          (BIAS + LAYERS * C + MID + OUT)
#define CONSTANTS     (TAPS + 10 * OUT)

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
stage(__global T *restrict y, __global const T *restrict x, __global const uint4 *restrict w,
      __global const float4 *restrict constants, __global const int *restrict limit, int4 in, int8 out,
      __global T *restrict whole) {
    MATRIX_SCRATCH
    __local uint4 memory[SCALES_AT / 16 + CONSTANTS / 4];
    const int id = get_local_id(0), lane = id & 31, warp = id >> 5, n = get_group_id(1);
    const int tile_y = (int)get_group_id(0) / out.s5, tile_x = (int)get_group_id(0) - tile_y * out.s5;
    const int y0 = 2 * TILE * tile_y - 1, x0 = 2 * TILE * tile_x - 1; /* where grid 3 begins */
    const uint shared = SHARED(memory);
    __local uint *const words = (__local uint *)memory;
    __local const float *const scales = (__local const float *)(memory + SCALES_AT / 16);

    /* COUNT sixteens of bytes of the weights, from FIRST on, to local memory at AT. */
#define ASK(AT, FIRST, COUNT)                                                                                          \
    do {                                                                                                               \
        for (int i = id; i < (COUNT); i += THREADS) COPY16(shared + (AT) + i * 16, w + ((FIRST) + i), 16);             \
        COPY_COMMIT();                                                                                                 \
    } while (0)
    for (int i = id; i < PIXELS(0) * (IN / 8); i += THREADS) {
        const int p = i / (IN / 8), gy = p / SIDE(0), iy = y0 - LAYERS + gy, ix = x0 - LAYERS + p - gy * SIDE(0);
        const bool real = (uint)iy < (uint)in.s0 && (uint)ix < (uint)in.s1;
        const int at = real ? ((n * in.s0 + iy) * in.s1 + ix) * in.s2 + i % (IN / 8) * 8 : 0;
        COPY16(shared + p * PITCH(0) + i % (IN / 8) * 16, x + (at + in.s3), real ? 16 : 0);
    }
    for (int i = id; i < CONSTANTS / 4; i += THREADS) COPY16(shared + SCALES_AT + i * 16, constants + i, 16);
    ASK(W_AT(0), 0, LAYER(0));
    ASK(W_AT(1), FROM(1), LAYER(1) + LAYER(2));
    if (n >= min(out.s0, *limit)) {
        COPY_WAIT(0); /* no copy outlives its group */
        return;
    }
    COPY_WAIT(1);
    barrier(CLK_LOCAL_MEM_FENCE);

    /* Two neighbouring channels' sums of layer NUMBER, whose biases begin at B: with bias, activated, scaled. */
#define RESULT(NUMBER, SUM, B, COLUMN)                                                                                 \
    fma(max((SUM) + (float2)(scales[(B) + (COLUMN)], scales[(B) + (COLUMN) + 1]), (float2)(0.0f)),                     \
        (float2)(scales[2 * (NUMBER)]), (float2)(scales[2 * (NUMBER) + 1]))
    /* Whether pixel R of grid S is one of the map. */
#define INSIDE(S, R)                                                                                                   \
    ((uint)(y0 - (LAYERS - (S)) + (R) / SIDE(S)) < (uint)in.s0 &&                                                      \
     (uint)(x0 - (LAYERS - (S)) + (R) % SIDE(S)) < (uint)in.s1)
    /* sum += HALVES times 16 inputs, at A(i, half) for the warp's pixels i, by the weights at B(j) for its outputs j.
     */
#define MULTIPLY(MS, NS, HALVES, A, B)                                                                                 \
    do {                                                                                                               \
        uint a[HALVES][MS][4], b[NS][4];                                                                               \
        _Pragma("unroll") for (int j = 0; j < (NS); j++) SHARED_LOAD(b[j], shared + (B(j)) + lane * 16);               \
        _Pragma("unroll") for (int i = 0; i < (HALVES) * (MS); i++)                                                    \
            MATRIX_LOAD(a[i / (MS)][i % (MS)], A(i % (MS), i / (MS)));                                                 \
        _Pragma("unroll") for (int i = 0; i < (HALVES) * (MS) * (NS); i++)                                             \
            MATRIX_MULTIPLY(sum[i / (NS) % (MS)][i % (NS)], a[i / ((MS) * (NS))][i / (NS) % (MS)],                     \
                            b[i % (NS)][i / ((MS) * (NS)) * 2], b[i % (NS)][i / ((MS) * (NS)) * 2 + 1]);               \
    } while (0)
#define ZEROS(MS, NS)                                                                                                  \
    _Pragma("unroll") for (int i = 0; i < (MS) * (NS)*4; i++) sum[i / (4 * (NS))][i / 4 % (NS)][i % 4] = 0.0f

    const int wm = warp % WM, part = warp / WM;
    /* 3x3 layer S: grid S to grid S + 1. A warp's own outputs come first, then those of the warp that has the other
     * half of the inputs; what each has of the other's is exchanged at SHARE. */
#define COLUMN(j)    (((j) ^ part * 2) * 8)
#define WEIGHT(S, j) (W_AT(S) + ((part * STEPS(S) + k) * (C / 8) + ((j) ^ part * 2)) * 512)
#define FOUR(v)      (float4)((v)[0], (v)[1], (v)[2], (v)[3])
#define TAP(S, t)    (((t) / 3 * SIDE(S) + (t) % 3) * PITCH(S))
#define LAYER_OF(S, SHARE, PRODUCTS)                                                                                   \
    do {                                                                                                               \
        float sum[MI(S + 1)][C / 8][4];                                                                                \
        uint at[MI(S + 1)];                                                                                            \
        ZEROS(MI(S + 1), C / 8);                                                                                       \
        _Pragma("unroll") for (int i = 0; i < MI(S + 1); i++) {                                                        \
            const int row = min((i * WM + wm) * 16 + lane % 16, PIXELS(S + 1) - 1);                                    \
            at[i] = shared + MAP(S) + (row + row / SIDE(S + 1) * 2) * PITCH(S) + part * INPUTS(S) + lane / 16 * 16;    \
        }                                                                                                              \
        PRODUCTS                                                                                                       \
        _Pragma("unroll") for (int i = 0; i < 2 * MI(S + 1); i++) {                                                    \
            const float4 v = FOUR(sum[i / 2][2 + i % 2]);                                                              \
            memory[(SHARE) / 16 + (warp * 2 * MI(S + 1) + i) * 32 + lane] = as_uint4(v);                               \
        }                                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        _Pragma("unroll") for (int i = 0; i < 2 * MI(S + 1); i++) {                                                    \
            const float4 v = FOUR(sum[i / 2][i % 2]) +                                                                 \
                             as_float4(memory[(SHARE) / 16 + ((warp ^ WM) * 2 * MI(S + 1) + i) * 32 + lane]);          \
            const int c = COLUMN(i % 2) + lane % 4 * 2;                                                                \
            _Pragma("unroll") for (int lower = 0; lower < 2; lower++) {                                                \
                const int row = (i / 2 * WM + wm) * 16 + lane / 4 + lower * 8;                                         \
                const float2 r = RESULT(S, lower ? v.hi : v.lo, BIAS + (S)*C, c);                                      \
                if (row < PIXELS(S + 1))                                                                               \
                    words[(MAP(S + 1) + row * PITCH(S + 1)) / 4 + c / 2] =                                             \
                        INSIDE(S + 1, row) ? halves_of(r.x, r.y) : 0u;                                                 \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)
#define MAP_AT(i, h) (at[i] + TAP(0, k) + (h)*32) /* a tap of 32 inputs of the half */
#define W_OF(j)      WEIGHT(0, j)
    LAYER_OF(0, MIX_AT, UNROLL for (int k = 0; k < STEPS(0); k++) MULTIPLY(MI(1), C / 8, 2, MAP_AT, W_OF););
#undef MAP_AT
#undef W_OF
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    ASK(MIX_AT, FROM(LAYERS), MIX);
#define MAP_AT(i, h) (at[i] + TAP(1, 2 * k + (h))) /* two taps of 16 inputs; the ninth alone */
#define W_OF(j)      WEIGHT(1, j)
    LAYER_OF(1, W_AT(0), UNROLL for (int k = 0; k < 4; k++) MULTIPLY(MI(2), C / 8, 2, MAP_AT, W_OF); const int k = 4;
             MULTIPLY(MI(2), C / 8, 1, MAP_AT, W_OF););
#undef MAP_AT
#undef W_OF
    barrier(CLK_LOCAL_MEM_FENCE);
    ASK(LAST_AT(0), FROM(LAYERS) + MIX, LAST / 2);
#define MAP_AT(i, h) (at[i] + TAP(2, 2 * k + (h)))
#define W_OF(j)      WEIGHT(2, j)
    LAYER_OF(2, W_AT(1), UNROLL for (int k = 0; k < 4; k++) MULTIPLY(MI(3), C / 8, 2, MAP_AT, W_OF); const int k = 4;
             MULTIPLY(MI(3), C / 8, 1, MAP_AT, W_OF););
    COPY_WAIT(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    ASK(LAST_AT(1), FROM(LAYERS) + MIX + LAST / 2, LAST / 2);

    const int rows = warp % 2, wn = warp / 2;
    {
        float sum[MIXED][MID / 8 / WN][4];
        int gy[MIXED], gx[MIXED];
        ZEROS(MIXED, MID / 8 / WN);
#pragma unroll
        for (int i = 0; i < MIXED; i++) {
            const int row = min((i * 2 + rows) * 16 + lane % 16, PIXELS(LAYERS) - 1);
            gy[i] = row / SIDE(LAYERS), gx[i] = row - gy[i] * SIDE(LAYERS);
        }
        /* 32 channels of grid S, from byte AWAY of a pixel on, by step K of the weights. */
#define GRID_AT(i, h)                                                                                                  \
    (shared + MAP(grid) + ((gy[i] + LAYERS - grid) * SIDE(grid) + gx[i] + LAYERS - grid) * PITCH(grid) + away +        \
     (h)*32 + lane / 16 * 16)
#define MIX_OF(j) (MIX_AT + (step * (MID / 8) + wn * (MID / 8 / WN) + (j)) * 512)
#define MIX_GRID(S, K, AWAY)                                                                                           \
    do {                                                                                                               \
        enum { grid = S, step = K, away = AWAY };                                                                      \
        MULTIPLY(MIXED, MID / 8 / WN, 2, GRID_AT, MIX_OF);                                                             \
    } while (0)
        MIX_GRID(0, 0, 0);
        MIX_GRID(0, 1, 64);
        MIX_GRID(1, 2, 0);
        MIX_GRID(2, 3, 0);
        MIX_GRID(3, 4, 0);
        barrier(CLK_LOCAL_MEM_FENCE); /* its results lie where grid 1 was */
#pragma unroll
        for (int i = 0; i < 2 * MIXED * (MID / 8 / WN); i++) {
            const int block = i / 2 / (MID / 8 / WN), j = i / 2 % (MID / 8 / WN), lower = i % 2;
            const int row = (block * 2 + rows) * 16 + lane / 4 + lower * 8;
            const int c = (wn * (MID / 8 / WN) + j) * 8 + lane % 4 * 2;
            const float2 r =
                RESULT(LAYERS, (float2)(sum[block][j][lower * 2], sum[block][j][lower * 2 + 1]), BIAS + LAYERS * C, c);
            if (row < PIXELS(LAYERS)) words[(MID_AT + row * MID_PITCH) / 4 + c / 2] = halves_of(r.x, r.y);
        }
    }
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    {
        float sum[MIXED][OUT / 8 / WN][4];
        uint at[MIXED];
        ZEROS(MIXED, OUT / 8 / WN);
#pragma unroll
        for (int i = 0; i < MIXED; i++)
            at[i] =
                shared + MID_AT + min((i * 2 + rows) * 16 + lane % 16, PIXELS(LAYERS) - 1) * MID_PITCH + lane / 16 * 16;
#define MID_OF(i, h) (at[i] + k * 64 + (h)*32)
#define LAST_OF(j)                                                                                                     \
    ((k < MID / 64 ? LAST_AT(0) : LAST_AT(1)) + (k % (MID / 64) * (OUT / 8) + wn * (OUT / 8 / WN) + (j)) * 512)
        UNROLL for (int k = 0; k < MID / 32; k++) MULTIPLY(MIXED, OUT / 8 / WN, 2, MID_OF, LAST_OF);
#pragma unroll
        for (int i = 0; i < 2 * MIXED * (OUT / 8 / WN); i++) {
            const int block = i / 2 / (OUT / 8 / WN), j = i / 2 % (OUT / 8 / WN), lower = i % 2;
            const int row = (block * 2 + rows) * 16 + lane / 4 + lower * 8;
            const int c = (wn * (OUT / 8 / WN) + j) * 8 + lane % 4 * 2;
            const float2 r = RESULT(LAYERS + 1, (float2)(sum[block][j][lower * 2], sum[block][j][lower * 2 + 1]),
                                    BIAS + LAYERS * C + MID, c);
            if (row < PIXELS(LAYERS))
                words[(SUM_AT + row * WIDE) / 4 + c / 2] = INSIDE(LAYERS, row) ? halves_of(r.x, r.y) : 0u;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    for (int i = id; out.s6 > 0 && i < 4 * TILE * TILE * (OUT / 8); i += THREADS) {
        const int eight = i % (OUT / 8), p = i / (OUT / 8), gy = p / (2 * TILE) + 1, gx = p % (2 * TILE) + 1;
        const int iy = y0 + gy, ix = x0 + gx;
        if (iy < in.s0 && ix < in.s1)
            *(__global uint4 *)(whole + (size_t)((n * in.s0 + iy) * in.s1 + ix) * out.s6 + out.s7 + eight * 8) =
                memory[(SUM_AT + (gy * SIDE(LAYERS) + gx) * WIDE) / 16 + eight];
    }
    const int pair = id % (OUT / 2);
    float2 taps[10]; /* the last one is the bias */
#pragma unroll
    for (int t = 0; t < 10; t++) taps[t] = vload2(0, scales + TAPS + t * OUT + pair * 2);
    for (int p = id / (OUT / 2); p < TILE * TILE; p += THREADS / (OUT / 2)) {
        const int line = p / TILE, column = p % TILE, oy = TILE * tile_y + line, ox = TILE * tile_x + column;
        float2 v = taps[9];
#pragma unroll
        for (int t = 0; t < 9; t++)
            v = fma(
                floats_of(words[(SUM_AT + ((2 * line + t / 3) * SIDE(LAYERS) + 2 * column + t % 3) * WIDE) / 4 + pair]),
                taps[t], v);
        if (oy < out.s1 && ox < out.s2)
            *(__global uint *)(y + (size_t)((n * out.s1 + oy) * out.s2 + ox) * out.s3 + out.s4 + pair * 2) =
                halves_of(v.x, v.y);
    }
}
