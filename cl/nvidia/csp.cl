/* A CSP block of D-FINE's encoder and the 3x3 convolution behind it (graph/nodes.h) as one launch, in half storage with
 * sums in float: a work-group makes TILE_H x TILE_W pixels of the result.
 *
 * Every layer is a matrix product, outputs by inputs, on the pixels that the layers behind it need: one more on each
 * side per 3x3 layer (grid s, of which grid 0 is the 1x1 layer's and the last is the tile). Maps between layers stay in
 * local memory as halves, zeros outside the map, with a pixel 16 bytes longer than its channels, so that eight pixels
 * lie in different banks. Weights come in chunks in the order of their use, through a ring that is filled CHUNKS - 1
 * ahead (AHEAD is CHUNKS - 2), across the layers; a chunk costs a barrier and its latencies, so that few large ones are
 * faster.
 *
 * Arguments: y; x; weights [chunk], each [32 inputs][block of 8 outputs][lane][8 halves] as variants/fragments.h has
 * them: for the 1x1 layer DEPTH times 32 inputs and 2 CP outputs, then for each 3x3 layer TAPS taps of CP inputs and CP
 * outputs; bias [2 CP] and [CP] for each 3x3 layer; in = {h, w, ld, c0, tiles across, 0, 0, 0}, out = {n, ld, c0, c}.
 * -D IN: inputs, in eights; CP: channels of a half, rounded up to 32; NECKS; TILE_W: 4 or 8. Grid: x = tiles, y =
 * items. */
#ifndef IN
#define IN     64
#define CP     32
#define NECKS  1
#define TAPS   3
#define TILE_W 8
#define DEPTH  2
#define CHUNKS 4
#define AHEAD  2
#endif
#define THREADS   256
#define TILE_H    4
#define WM        2
#define WN        4
#define GRID_H(s) (TILE_H + 2 * (NECKS + 1 - (s)))
#define GRID_W(s) (TILE_W + 2 * (NECKS + 1 - (s)))
#define PIXELS(s) (GRID_H(s) * GRID_W(s))
#define ROWS(s)   ((PIXELS(s) + 16 * WM - 1) / (16 * WM) * (16 * WM))
#define MI(s)     (ROWS(s) / (16 * WM))
#define NI        (CP / 8 / WN) /* blocks of eight outputs of a warp; the first layer has twice as many */
#define STEPS     ((IN + 31) / 32)
#define X_PITCH   (STEPS * 64 + 16) /* bytes of a pixel of x, and of the maps between layers */
#define PITCH     (CP * 2 + 16)
#define X_BYTES   (ROWS(0) * X_PITCH)
#define MAP_BYTES (ROWS(0) * PITCH)
#define MAPS      (X_BYTES > 3 * MAP_BYTES ? X_BYTES : 3 * MAP_BYTES)
#define FIRST     (DEPTH * CP * 8) /* sixteens of bytes of a chunk of the first layer, and of the others */
#define LATER     (TAPS * CP * CP / 8)
#define CHUNK     (FIRST > LATER ? FIRST : LATER)
#define FIRSTS    (STEPS / DEPTH)
#define ALL       (FIRSTS + (NECKS + 1) * (9 / TAPS))
#define BIAS      ((NECKS + 3) * CP)

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
csp(__global T *restrict y, __global const T *restrict x, __global const uint4 *restrict w,
    __global const float4 *restrict bias, __global const int *restrict limit, int8 in, int4 out) {
    MATRIX_SCRATCH
    __local uint4 memory[MAPS / 16 + CHUNKS * CHUNK + BIAS / 4];
    const int id = get_local_id(0), lane = id & 31, warp = id >> 5, wm = warp % WM, wn = warp / WM;
    const int n = get_group_id(1), tile_y = (int)get_group_id(0) / in.s4,
              tile_x = (int)get_group_id(0) - tile_y * in.s4;
    const int y0 = tile_y * TILE_H, x0 = tile_x * TILE_W;
    const uint shared = SHARED(memory), ring = shared + MAPS;

#define ASK(Q)                                                                                                         \
    do {                                                                                                               \
        const int chunk = (Q), first = chunk < FIRSTS, count = chunk >= ALL ? 0 : first ? FIRST : LATER;               \
        const int from = first ? chunk * FIRST : FIRSTS * FIRST + (chunk - FIRSTS) * LATER;                            \
        _Pragma("unroll") for (int i = 0; i < (CHUNK + THREADS - 1) / THREADS; i++) {                                  \
            const int j = id + i * THREADS;                                                                            \
            if (j < count) COPY16(ring + (chunk % CHUNKS * CHUNK + j) * 16, w + (from + j), 16);                       \
        }                                                                                                              \
        COPY_COMMIT();                                                                                                 \
    } while (0)
    for (int i = id; i < PIXELS(0) * STEPS * 4; i += THREADS) {
        const int p = i / (STEPS * 4), part = i - p * (STEPS * 4), gy = p / GRID_W(0);
        const int iy = y0 - (NECKS + 1) + gy, ix = x0 - (NECKS + 1) + p - gy * GRID_W(0);
        const bool real = (uint)iy < (uint)in.s0 && (uint)ix < (uint)in.s1 && part * 8 < IN;
        const int at = real ? ((n * in.s0 + iy) * in.s1 + ix) * in.s2 + part * 8 : 0;
        COPY16(shared + p * X_PITCH + part * 16, x + (at + in.s3), real ? 16 : 0);
    }
    for (int i = id; i < BIAS / 4; i += THREADS) COPY16(ring + (CHUNKS * CHUNK + i) * 16, bias + i, 16);
#pragma unroll 1
    for (int q = 0; q < CHUNKS - 1; q++) ASK(q);
    if (n >= min(out.s0, *limit)) {
        COPY_WAIT(0); /* no copy outlives its group */
        return;
    }
    __local const float *biases = (__local const float *)(memory + MAPS / 16 + CHUNKS * CHUNK);
    __local uint *const maps = (__local uint *)memory;
    int q = 0;
    /* Chunk q is there, and everybody is done with the one before. */
#define NEXT()                                                                                                         \
    do {                                                                                                               \
        COPY_WAIT(AHEAD);                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        ASK(q + CHUNKS - 1);                                                                                           \
    } while (0)
    /* sum += the 32 inputs at A_AT(i) bytes of each row by those at B in the ring. */
#define MULTIPLY(SUM, MS, NS, A_AT, B)                                                                                 \
    do {                                                                                                               \
        uint a[2][MS][4], b[NS][4];                                                                                    \
        _Pragma("unroll") for (int j = 0; j < NS; j++)                                                                 \
            SHARED_LOAD(b[j], ring + (q % CHUNKS * CHUNK + (B) + (wn * NS + j) * 32 + lane) * 16);                     \
        _Pragma("unroll") for (int i = 0; i < 2 * MS; i++)                                                             \
            MATRIX_LOAD(a[i / MS][i % MS], shared + A_AT(i % MS) + i / MS * 32 + lane / 16 * 16);                      \
        _Pragma("unroll") for (int i = 0; i < 2 * MS * NS; i++)                                                        \
            MATRIX_MULTIPLY(SUM[i / NS % MS][i % NS], a[i / (MS * NS)][i / NS % MS], b[i % NS][i / (MS * NS) * 2],     \
                            b[i % NS][i / (MS * NS) * 2 + 1]);                                                         \
    } while (0)
    /* Two neighbouring channels of row r of grid S: activated, or zeros outside the map. */
#define RESULT(SUM, S, I, J, COLUMN, REAL)                                                                             \
    const int row = (wm * MI(S) + (I) / 2) * 16 + lane / 4 + (I) % 2 * 8, gy = row / GRID_W(S);                        \
    const int iy = y0 - (NECKS + 1 - (S)) + gy, ix = x0 - (NECKS + 1 - (S)) + row - gy * GRID_W(S);                    \
    const bool REAL = (uint)iy < (uint)in.s0 && (uint)ix < (uint)in.s1 && row < PIXELS(S);                             \
    float2 v = (float2)(SUM[(I) / 2][J][(I) % 2 * 2] + biases[COLUMN],                                                 \
                        SUM[(I) / 2][J][(I) % 2 * 2 + 1] + biases[(COLUMN) + 1]);                                      \
    v *= quick_sigmoids(v)

    {
        float sum[MI(0)][2 * NI][4];
#pragma unroll
        for (int i = 0; i < MI(0) * 2 * NI * 4; i++) sum[i / (8 * NI)][i / 4 % (2 * NI)][i % 4] = 0.0f;
#pragma unroll 1
        for (; q < FIRSTS; q++) {
            NEXT();
#define X_AT(i) (((wm * MI(0) + (i)) * 16 + lane % 16) * X_PITCH + (q * DEPTH + k) * 64)
#pragma unroll
            for (int k = 0; k < DEPTH; k++) MULTIPLY(sum, MI(0), (2 * NI), X_AT, k * (CP * 8));
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* maps lie where x was: the left half, results of layers, the right half */
#pragma unroll
        for (int i = 0; i < 2 * MI(0); i++)
#pragma unroll
            for (int j = 0; j < 2 * NI; j++) {
                const int c = (wn * 2 * NI + j) * 8 + lane % 4 * 2, right = c >= CP;
                RESULT(sum, 0, i, j, c, real);
                maps[(right * 2 * MAP_BYTES + row * PITCH) / 4 + (c - right * CP) / 2] =
                    real ? halves_of(v.x, v.y) : 0u;
            }
        biases += 2 * CP;
    }
    int from = 0, to = MAP_BYTES;
    /* 3x3 layer S: grid S to grid S + 1. */
#define LAYER(S)                                                                                                       \
    do {                                                                                                               \
        float sum[MI(S + 1)][NI][4];                                                                                   \
        uint at[MI(S + 1)];                                                                                            \
        _Pragma("unroll") for (int i = 0; i < MI(S + 1) * NI * 4; i++) sum[i / (4 * NI)][i / 4 % NI][i % 4] = 0.0f;    \
        _Pragma("unroll") for (int i = 0; i < MI(S + 1); i++) {                                                        \
            const int row = min((wm * MI(S + 1) + i) * 16 + lane % 16, PIXELS(S + 1) - 1);                             \
            at[i] = from + (row + row / GRID_W(S + 1) * 2) * PITCH;                                                    \
        }                                                                                                              \
        _Pragma("unroll 1") for (int tap = 0; tap < 9; tap += TAPS, q++) {                                             \
            NEXT();                                                                                                    \
            _Pragma("unroll") for (int k = 0; k < TAPS * (CP / 32); k++) {                                             \
                const int t = tap + k / (CP / 32);                                                                     \
                const uint away = (t / 3 * GRID_W(S) + t % 3) * PITCH + k % (CP / 32) * 64;                            \
                MULTIPLY(sum, MI(S + 1), NI, MAP_AT, k *(CP * 4));                                                     \
            }                                                                                                          \
        }                                                                                                              \
        _Pragma("unroll") for (int i = 0; i < 2 * MI(S + 1); i++) _Pragma("unroll") for (int j = 0; j < NI; j++) {     \
            const int c = (wn * NI + j) * 8 + lane % 4 * 2;                                                            \
            RESULT(sum, S + 1, i, j, c, real);                                                                         \
            if (S == NECKS - 1) {                                                                                      \
                const int centre = min(row, PIXELS(S + 1) - 1);                                                        \
                const int place = centre + (centre / GRID_W(S + 1) * 2 + GRID_W(0) + 1) * NECKS;                       \
                v += floats_of(maps[(2 * MAP_BYTES + place * PITCH) / 4 + c / 2]);                                     \
            }                                                                                                          \
            if (S < NECKS)                                                                                             \
                maps[(to + row * PITCH) / 4 + c / 2] = real ? halves_of(v.x, v.y) : 0u;                                \
            else if (real && c < out.s3)                                                                               \
                *(__global uint *)(y + (size_t)((n * in.s0 + iy) * in.s1 + ix) * out.s1 + out.s2 + c) =                \
                    halves_of(v.x, v.y);                                                                               \
        }                                                                                                              \
        biases += CP;                                                                                                  \
        const int other = from;                                                                                        \
        from = to, to = other;                                                                                         \
    } while (0)
#define MAP_AT(i) (at[i] + away)
    LAYER(0);
    LAYER(1);
#if NECKS > 1
    LAYER(2);
#endif
    COPY_WAIT(0);
}
