/* HGNetv2's first stage and the downsampling behind it (variants/nvidia/stage.h) as one launch on matrix instructions, in half
 * storage with sums in float: a work-group makes TILE x TILE pixels of the downsampled map. Goes with nvidia/ptx.
 *
 * Each layer is a matrix product on the pixels that the layers behind it need: grid 0 is the input under the tile (17 x
 * 17 pixels for 5 x 5), grids 1 to 3 the results of the 3x3 layers, one pixel less on each side each, and on grid 3 the
 * two 1x1 layers, whose 16 pixels stay with one warp, so that the first one's results are the second one's fragments.
 * The strided depthwise layer reads its sum from local memory. Maps lie there as halves, zeros outside the map, and a
 * pixel is 16 bytes longer than its channels, so that eight pixels lie in different banks.
 *
 * Arguments: y; x; weights of the five dense layers as variants/fragments.h has them, [32 inputs][block of 8 outputs],
 * the 3x3 layers' taps outermost, with zeros for a tenth; constants {scale, shift} of those layers, 12 floats, then
 * their biases [16][16][16][32][64], the depthwise taps [9][64] and bias [64]; in = {h, w, ld, c0}, out = {n, h, w, ld,
 * c0, tiles across, 0, 0}. Grid: x = tiles, y = items. -D TILE: at most 5. */
#ifndef TILE
#define TILE 5
#endif
#define THREADS   256
#define WARPS     (THREADS / 32)
#define LAYERS    3
#define C         16 /* channels of the input and of each 3x3 layer */
#define MID       32
#define OUT       64
#define SIDE(s)   (2 * TILE + 1 + 2 * (LAYERS - (s)))
#define PIXELS(s) (SIDE(s) * SIDE(s))
#define MI(s)     ((PIXELS(s) + 16 * WARPS - 1) / (16 * WARPS)) /* sixteens of pixels of a warp */
#define PITCH     (C * 2 + 16)
#define WIDE      (OUT * 2 + 16)
#define MAP(s)                                                                                                         \
    (((s) > 0 ? PIXELS(0) * PITCH : 0) + ((s) > 1 ? PIXELS(1) * PITCH : 0) + ((s) > 2 ? PIXELS(2) * PITCH : 0))
#define SUM_AT    (MAP(3) + PIXELS(3) * PITCH) /* results of the second 1x1 layer */
#define W_AT      (SUM_AT + PIXELS(3) * WIDE)
#define W_LAYER   (5 * C / 8) /* in blocks of 512 bytes */
#define W_MIX     (LAYERS * W_LAYER)
#define W_LAST    (W_MIX + (LAYERS + 1) * C / 32 * (MID / 8))
#define W_END     (W_LAST + MID / 32 * (OUT / 8))
#define BIAS      12
#define TAPS      (BIAS + LAYERS * C + MID + OUT)
#define CONSTANTS (TAPS + 10 * OUT)

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
stage(__global T *restrict y, __global const T *restrict x, __global const uint4 *restrict w,
      __global const float4 *restrict constants, __global const int *restrict limit, int4 in, int8 out) {
    MATRIX_SCRATCH
    __local uint4 memory[W_AT / 16 + W_END * 32 + CONSTANTS / 4];
    const int id = get_local_id(0), lane = id & 31, warp = id >> 5, n = get_group_id(1);
    const int tile_y = (int)get_group_id(0) / out.s5, tile_x = (int)get_group_id(0) - tile_y * out.s5;
    const int y0 = 2 * TILE * tile_y - 1, x0 = 2 * TILE * tile_x - 1; /* where grid 3 begins */
    const uint shared = SHARED(memory);
    __local uint *const words = (__local uint *)memory;
    __local const float *const scales = (__local const float *)(memory + W_AT / 16 + W_END * 32);

    for (int i = id; i < PIXELS(0) * (C / 8); i += THREADS) {
        const int p = i / (C / 8), gy = p / SIDE(0), iy = y0 - LAYERS + gy, ix = x0 - LAYERS + p - gy * SIDE(0);
        const bool real = (uint)iy < (uint)in.s0 && (uint)ix < (uint)in.s1;
        const int at = real ? ((n * in.s0 + iy) * in.s1 + ix) * in.s2 + i % (C / 8) * 8 : 0;
        COPY16(shared + p * PITCH + i % (C / 8) * 16, x + (at + in.s3), real ? 16 : 0);
    }
    for (int i = id; i < W_END * 32; i += THREADS) COPY16(shared + W_AT + i * 16, w + i, 16);
    for (int i = id; i < CONSTANTS / 4; i += THREADS) COPY16(shared + W_AT + (W_END * 32 + i) * 16, constants + i, 16);
    if (n >= min(out.s0, *limit)) {
        COPY_WAIT(0); /* no copy outlives its group */
        return;
    }
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);

    /* Two neighbouring channels' sums of layer NUMBER, whose biases begin at B: with bias, activated, scaled. */
#define RESULT(NUMBER, SUM, B, COLUMN)                                                                                 \
    fma(max((float2)((SUM)[0] + scales[(B) + (COLUMN)], (SUM)[1] + scales[(B) + (COLUMN) + 1]), (float2)(0.0f)),       \
        (float2)(scales[2 * (NUMBER)]), (float2)(scales[2 * (NUMBER) + 1]))
    /* Whether pixel R of grid S is one of the map. */
#define INSIDE(S, R)                                                                                                   \
    ((uint)(y0 - (LAYERS - (S)) + (R) / SIDE(S)) < (uint)in.s0 &&                                                      \
     (uint)(x0 - (LAYERS - (S)) + (R) % SIDE(S)) < (uint)in.s1)
    /* sum += taps 2 K and, of HALVES 2, 2 K + 1 of layer S. */
#define STEP(S, K, HALVES)                                                                                             \
    do {                                                                                                               \
        uint a[HALVES][MI(S + 1)][4], b[C / 8][4];                                                                     \
        _Pragma("unroll") for (int j = 0; j < C / 8; j++)                                                              \
            SHARED_LOAD(b[j], shared + W_AT + (((S)*W_LAYER + (K) * (C / 8) + j) * 32 + lane) * 16);                   \
        _Pragma("unroll") for (int i = 0; i < (HALVES)*MI(S + 1); i++) {                                               \
            const int tap = 2 * (K) + i / MI(S + 1);                                                                   \
            MATRIX_LOAD(a[i / MI(S + 1)][i % MI(S + 1)], at[i % MI(S + 1)] + (tap / 3 * SIDE(S) + tap % 3) * PITCH);   \
        }                                                                                                              \
        _Pragma("unroll") for (int i = 0; i < (HALVES)*MI(S + 1) * (C / 8); i++) {                                     \
            const int second = i / (MI(S + 1) * (C / 8)), block = i / (C / 8) % MI(S + 1), j = i % (C / 8);            \
            MATRIX_MULTIPLY(sum[block][j], a[second][block], b[j][second * 2], b[j][second * 2 + 1]);                  \
        }                                                                                                              \
    } while (0)
    /* 3x3 layer S: grid S to grid S + 1. */
#define LAYER(S)                                                                                                       \
    do {                                                                                                               \
        float sum[MI(S + 1)][C / 8][4];                                                                                \
        uint at[MI(S + 1)];                                                                                            \
        _Pragma("unroll") for (int i = 0; i < MI(S + 1) * (C / 2); i++) sum[i / (C / 2)][i / 4 % (C / 8)][i % 4] =     \
            0.0f;                                                                                                      \
        _Pragma("unroll") for (int i = 0; i < MI(S + 1); i++) {                                                        \
            const int row = min((i * WARPS + warp) * 16 + lane % 16, PIXELS(S + 1) - 1);                               \
            at[i] = shared + MAP(S) + (row + row / SIDE(S + 1) * 2) * PITCH + lane / 16 * 16;                          \
        }                                                                                                              \
        _Pragma("unroll") for (int k = 0; k < 4; k++) STEP(S, k, 2);                                                   \
        STEP(S, 4, 1);                                                                                                 \
        _Pragma("unroll") for (int i = 0; i < 2 * MI(S + 1) * (C / 8); i++) {                                          \
            const int block = i / (C / 4), j = i / 2 % (C / 8), c = j * 8 + lane % 4 * 2;                              \
            const int row = (block * WARPS + warp) * 16 + lane / 4 + i % 2 * 8;                                        \
            const float2 v = RESULT(S, sum[block][j] + i % 2 * 2, BIAS + (S)*C, c);                                    \
            if (row < PIXELS(S + 1))                                                                                   \
                words[(MAP(S + 1) + row * PITCH) / 4 + c / 2] = INSIDE(S + 1, row) ? halves_of(v.x, v.y) : 0u;         \
        }                                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)
    LAYER(0);
    LAYER(1);
    LAYER(2);

    /* The 1x1 layers: 16 pixels of grid 3 for each warp. */
    {
        const int pixel = min(warp * 16 + lane % 16, PIXELS(LAYERS) - 1);
        float mid[MID / 8][4], sum[OUT / 8][4];
        uint a[MID / 16][4];
#pragma unroll
        for (int i = 0; i < MID / 2; i++) mid[i / 4][i % 4] = 0.0f;
#pragma unroll
        for (int i = 0; i < OUT / 2; i++) sum[i / 4][i % 4] = 0.0f;
#define MIX(S)                                                                                                         \
    do {                                                                                                               \
        uint part[4], b[MID / 8][4];                                                                                   \
        MATRIX_LOAD(part,                                                                                              \
                    shared + MAP(S) +                                                                                  \
                        ((pixel / SIDE(LAYERS) + LAYERS - (S)) * SIDE(S) + pixel % SIDE(LAYERS) + LAYERS - (S)) *      \
                            PITCH +                                                                                    \
                        lane / 16 * 16);                                                                               \
        _Pragma("unroll") for (int j = 0; j < MID / 8; j++)                                                            \
            SHARED_LOAD(b[j], shared + W_AT + ((W_MIX + (S) / 2 * (MID / 8) + j) * 32 + lane) * 16);                   \
        _Pragma("unroll") for (int j = 0; j < MID / 8; j++)                                                            \
            MATRIX_MULTIPLY(mid[j], part, b[j][(S) % 2 * 2], b[j][(S) % 2 * 2 + 1]);                                   \
    } while (0)
        MIX(0);
        MIX(1);
        MIX(2);
        MIX(3);
#pragma unroll
        for (int i = 0; i < MID / 4; i++) { /* fragments as results have them */
            const float2 v = RESULT(3, mid[i / 2] + i % 2 * 2, BIAS + LAYERS * C, i / 2 * 8 + lane % 4 * 2);
            a[i / 4][i % 4] = halves_of(v.x, v.y);
        }
#pragma unroll
        for (int j = 0; j < OUT / 8; j++) {
            uint b[4];
            SHARED_LOAD(b, shared + W_AT + ((W_LAST + j) * 32 + lane) * 16);
            MATRIX_MULTIPLY(sum[j], a[0], b[0], b[1]);
            MATRIX_MULTIPLY(sum[j], a[1], b[2], b[3]);
        }
#pragma unroll
        for (int i = 0; i < OUT / 4; i++) {
            const int row = warp * 16 + lane / 4 + i % 2 * 8, c = i / 2 * 8 + lane % 4 * 2;
            const float2 v = RESULT(4, sum[i / 2] + i % 2 * 2, BIAS + LAYERS * C + MID, c);
            if (row < PIXELS(LAYERS))
                words[(SUM_AT + row * WIDE) / 4 + c / 2] = INSIDE(LAYERS, row) ? halves_of(v.x, v.y) : 0u;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    __local const float2 *const taps = (__local const float2 *)(scales + TAPS);
    for (int unit = id; unit < TILE * TILE * (OUT / 2); unit += THREADS) {
        const int pair = unit % (OUT / 2), p = unit / (OUT / 2), line = p / TILE, column = p - line * TILE;
        const int oy = TILE * tile_y + line, ox = TILE * tile_x + column;
        float2 v = taps[9 * (OUT / 2) + pair];
#pragma unroll
        for (int t = 0; t < 9; t++)
            v = fma(
                floats_of(words[(SUM_AT + ((2 * line + t / 3) * SIDE(LAYERS) + 2 * column + t % 3) * WIDE) / 4 + pair]),
                taps[t * (OUT / 2) + pair], v);
        if (oy < out.s1 && ox < out.s2)
            *(__global uint *)(y + (size_t)((n * out.s1 + oy) * out.s2 + ox) * out.s3 + out.s4 + pair * 2) =
                halves_of(v.x, v.y);
    }
}
