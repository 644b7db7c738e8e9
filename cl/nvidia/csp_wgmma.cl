/* A CSP block of D-FINE's encoder and the 3x3 convolution behind it (graph/nodes.h) as one launch on the matrix
 * instructions of warpgroups, in half storage with sums in float: a work-group makes TILE_H x TILE_W pixels of the
 * result. Goes with nvidia/ptx and nvidia/wgmma.
 *
 * As in nvidia/csp every layer is a matrix product, pixels by outputs, on the pixels that the layers behind it need:
 * grid s has one more on each side than grid s + 1, grid 0 is the 1x1 layer's, the last the tile. All grids lie in rows
 * of WIDTH pixels, so that what a tap of a 3x3 layer reads is the map from another row of its tile on (nvidia/wgmma);
 * what that makes beyond a grid's right side is not read. Maps between layers are tiles of 64 channels, zeros outside
 * the map.
 *
 * The rows of a layer, in blocks of 64, are shared among the two warpgroups where their number is even, its outputs
 * elsewhere. Weights come in chunks in the order of their use through a ring, asked for AHEAD chunks ahead across the
 * layers; a chunk's products run under the next one's.
 *
 * Arguments: y; x; weights: for each 64 inputs of the 1x1 layer a tile of 128 outputs, then for each 3x3 layer and tap
 * one of 64; bias [128] and [64] for each 3x3 layer; in = {h, w, ld, c0, tiles across, 0, 0, 0}, out = {n, ld, c0, c}.
 * -D IN: inputs, in eights; NECKS; TILE_H; TILE_W. Grid: x = tiles, y = items. */
#ifndef IN
#define IN     64
#define NECKS  1
#define TILE_H 4
#define TILE_W 4
#endif
#define THREADS     256
#define CHUNKS      4 /* of the ring: one multiplies, one has, the others come */
#define AHEAD       (CHUNKS - 2)
#define COPIES      1 /* AHEAD - 1: those that may be under way behind the next one */
#define C           64
#define WIDTH       (TILE_W + 2 * (NECKS + 1))
#define GRID_H(s)   (TILE_H + 2 * (NECKS + 1 - (s)))
#define GRID_W(s)   (TILE_W + 2 * (NECKS + 1 - (s)))
#define PIXELS(s)   ((GRID_H(s) - 1) * WIDTH + GRID_W(s)) /* from a grid's first to its last */
#define BLOCKS(s)   ((PIXELS(s) + 63) / 64)
#define EACH(s)     (BLOCKS(s) % 2 ? BLOCKS(s) : BLOCKS(s) / 2) /* blocks of a warpgroup */
#define FIRSTS      ((IN + 63) / 64)
#define ROWS        ((PIXELS(0) + 7) / 8 * 8) /* of a tile of 64 channels: of the inputs or a map */
#define PASSES      ((ROWS + 31) / 32)
#define TILE_BYTES  (ROWS * 128)
#define MAPS        ((FIRSTS > 3 ? FIRSTS : 3) * TILE_BYTES)
#define CHUNK       1536 /* sixteens of bytes: three taps; of the first layer 64 inputs are 1024 */
#define FIRST_CHUNK 1024
#define ALL         (FIRSTS + (NECKS + 1) * 3)
#define BIAS        ((NECKS + 3) * C)

/* Outputs of a warpgroup, as literals: grid 0 has 128 in all, the others 64. */
#if BLOCKS(0) % 2
#define N_0 64
#else
#define N_0 128
#endif
#if BLOCKS(1) % 2
#define N_1 32
#else
#define N_1 64
#endif
#if BLOCKS(2) % 2
#define N_2 32
#else
#define N_2 64
#endif
#if NECKS > 1
#if BLOCKS(3) % 2
#define N_3 32
#else
#define N_3 64
#endif
#endif

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
csp(__global T *restrict y, __global const T *restrict x, __global const uint4 *restrict w,
    __global const float4 *restrict bias, __global const int *restrict limit, int8 in, int4 out) {
    MATRIX_SCRATCH
    __local uint4 memory[MAPS / 16 + CHUNKS * CHUNK + BIAS / 4 + 64]; /* from a multiple of 1024 */
    const int id = get_local_id(0), lane = id & 31, warp = id / 32 % 4, group = id / 128;
    const int n = get_group_id(1), tile_y = (int)get_group_id(0) / in.s4,
              tile_x = (int)get_group_id(0) - tile_y * in.s4;
    const int y0 = tile_y * TILE_H, x0 = tile_x * TILE_W;
    const uint start = SHARED(memory), shared = (start + 1023u) & ~1023u, ring = shared + MAPS;

    /* What this work-item copies of the inputs: part `part` of pixels id / 8, 32 further, .. */
    const int part = id % 8;
    int offset[PASSES]; /* in elements; -1 where there is no pixel */
    UNROLL for (int i = 0; i < PASSES; i++) {
        const int p = id / 8 + i * 32, gy = p / WIDTH;
        const int iy = y0 - (NECKS + 1) + gy, ix = x0 - (NECKS + 1) + p - gy * WIDTH;
        const bool real = (uint)iy < (uint)in.s0 && (uint)ix < (uint)in.s1;
        offset[i] = real ? ((n * in.s0 + iy) * in.s1 + ix) * in.s2 + in.s3 : -1;
    }
    const uint to_x = shared + id / 8 * 128 + (part ^ (id / 8 & 7)) * 16;
#define ASK_INPUTS(STEP)                                                                                               \
    do {                                                                                                               \
        const int c = (STEP) * 64 + part * 8;                                                                          \
        UNROLL for (int i = 0; i < PASSES; i++) if (ROWS % 32 == 0 || id / 8 + i * 32 < ROWS)                          \
            COPY16(to_x + ((STEP) * ROWS + i * 32) * 128, x + (max(offset[i], 0) + min(c, IN - 8)),                    \
                   offset[i] >= 0 && c < IN ? 16 : 0);                                                                 \
    } while (0)
    /* Chunk Q of the weights, with the inputs that it multiplies. */
#define ASK(Q)                                                                                                         \
    do {                                                                                                               \
        const int chunk = (Q), first = chunk < FIRSTS, count = chunk >= ALL ? 0 : first ? FIRST_CHUNK : CHUNK;         \
        const int from = first ? chunk * FIRST_CHUNK : FIRSTS * FIRST_CHUNK + (chunk - FIRSTS) * CHUNK;                \
        _Pragma("unroll") for (int i = 0; i < CHUNK / THREADS; i++) {                                                  \
            const int j = id + i * THREADS;                                                                            \
            if (j < count) COPY16(ring + (chunk % CHUNKS * CHUNK + j) * 16, w + (from + j), 16);                       \
        }                                                                                                              \
        if (first) ASK_INPUTS(chunk);                                                                                  \
        COPY_COMMIT();                                                                                                 \
    } while (0)
    for (int i = id; i < BIAS / 4; i += THREADS) COPY16(ring + (CHUNKS * CHUNK + i) * 16, bias + i, 16);
#pragma unroll 1
    for (int q = 0; q < AHEAD; q++) ASK(q);
    if (n >= min(out.s0, *limit)) {
        COPY_WAIT(0); /* no copy outlives its group */
        return;
    }
    __local uint *const maps = (__local uint *)(memory + (shared - start) / 16);
    __local const float *biases = (__local const float *)(memory + (ring - start) / 16 + CHUNKS * CHUNK);
    const matrix_at from_a = MATRIX_AT(shared), from_b = MATRIX_AT(ring);
    int q = 0;

    /* Chunk q is there and what was written to maps before it; nobody needs chunk q - 2. */
#define NEXT()                                                                                                         \
    do {                                                                                                               \
        COPY_WAIT(COPIES);                                                                                             \
        GROUP_PUBLISH();                                                                                               \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        ASK(q + AHEAD);                                                                                                \
    } while (0)
    /* Ends the products of a layer with N outputs. */
#define PRODUCTS_END(SUM, S, N)                                                                                        \
    do {                                                                                                               \
        GROUP_WAIT(0);                                                                                                 \
        UNROLL for (int i = 0; i < EACH(S); i++) UNROLL for (int c = 0; c < N / 8; c++) GROUP_TAKE(SUM[i], c);         \
    } while (0)
#define CLEAR(SUM, S, N)                                                                                               \
    UNROLL for (int i = 0; i < EACH(S); i++) UNROLL for (int c = 0; c < N / 8; c++) {                                  \
        SUM[i][c][0] = SUM[i][c][1] = SUM[i][c][2] = SUM[i][c][3] = 0.0f;                                              \
        GROUP_TAKE(SUM[i], c);                                                                                         \
    }
    /* First row and first output of a warpgroup. */
#define ROW0(S)       (BLOCKS(S) % 2 ? 0 : group * (EACH(S) * 64))
#define COLUMN0(S, N) (BLOCKS(S) % 2 ? group * N : 0)
    /* Two neighbouring channels of row ROW of grid S, activated. */
#define RESULT(SUM, S, I, J, COLUMN)                                                                                   \
    float2 v = (float2)(SUM[(I) / 2][J][(I) % 2 * 2] + biases[COLUMN],                                                 \
                        SUM[(I) / 2][J][(I) % 2 * 2 + 1] + biases[(COLUMN) + 1]);                                      \
    v *= quick_sigmoids(v)
    /* Which row of grid S is a work-item's I-th, and which pixel of the map; REAL: there is one. */
#define PLACE(S, I)                                                                                                    \
    const int row = ROW0(S) + (I) / 2 * 64 + warp * 16 + lane / 4 + (I) % 2 * 8;                                       \
    const int gy = row / WIDTH, gx = row - gy * WIDTH;                                                                 \
    const int iy = y0 - (NECKS + 1 - (S)) + gy, ix = x0 - (NECKS + 1 - (S)) + gx;                                      \
    const bool real = (uint)iy < (uint)in.s0 && (uint)ix < (uint)in.s1
    /* A word of a map: two channels from c on of a row. */
#define WORD(map, row, c) maps[((map) * TILE_BYTES + (row) * 128) / 4 + ((c) / 8 ^ ((row) & 7)) * 4 + (c) % 8 / 2]

    {
        float sum[EACH(0)][N_0 / 8][4];
        CLEAR(sum, 0, N_0)
#pragma unroll 1
        for (; q < FIRSTS; q++) {
            NEXT();
            GROUP_STEP(N_0, EACH(0), sum, from_a, q * (ROWS * 8) + ROW0(0) * 8, 512, from_b,
                       q % CHUNKS * CHUNK + COLUMN0(0, N_0) * 8);
            GROUP_WAIT(1);
        }
        PRODUCTS_END(sum, 0, N_0);
        barrier(CLK_LOCAL_MEM_FENCE); /* maps lie where x was: the left half, results of layers, the right half */
        UNROLL for (int i = 0; i < 2 * EACH(0); i++) {
            PLACE(0, i);
            if (row < PIXELS(0)) UNROLL for (int c8 = 0; c8 < N_0 / 8; c8++) {
                const int c = COLUMN0(0, N_0) + c8 * 8 + lane % 4 * 2;
                RESULT(sum, 0, i, c8, c);
                WORD(c < C ? 0 : 2, row, c % C) = real ? halves_of(v.x, v.y) : 0u;
            }
        }
        biases += 2 * C;
    }
    /* 3x3 layer S: grid S in map FROM to grid S + 1 in map 1 - FROM, N outputs. */
#define LAYER(S, FROM, N)                                                                                              \
    do {                                                                                                               \
        float sum[EACH(S + 1)][N / 8][4];                                                                              \
        CLEAR(sum, S + 1, N)                                                                                           \
        _Pragma("unroll 1") for (int ty = 0; ty < 3; ty++, q++) {                                                      \
            NEXT();                                                                                                    \
            GROUP_BEGIN();                                                                                             \
            UNROLL for (int k = 0; k < 12; k++) UNROLL for (int i = 0; i < EACH(S + 1); i++)                           \
                GROUP_MULTIPLY(N, sum[i],                                                                              \
                               from_a + (uint)(FROM * (TILE_BYTES / 16) +                                              \
                                               (ROW0(S + 1) + i * 64 + ty * WIDTH + k / 4) * 8 + k % 4 * 2),           \
                               from_b + (uint)(q % CHUNKS * CHUNK + (k / 4 * C + COLUMN0(S + 1, N)) * 8 + k % 4 * 2)); \
            GROUP_COMMIT();                                                                                            \
            GROUP_WAIT(1);                                                                                             \
        }                                                                                                              \
        PRODUCTS_END(sum, S + 1, N);                                                                                   \
        UNROLL for (int i = 0; i < 2 * EACH(S + 1); i++) {                                                             \
            PLACE(S + 1, i);                                                                                           \
            if (row < PIXELS(S + 1)) UNROLL for (int c8 = 0; c8 < N / 8; c8++) {                                       \
                const int c = COLUMN0(S + 1, N) + c8 * 8 + lane % 4 * 2;                                               \
                RESULT(sum, S + 1, i, c8, c);                                                                          \
                if (S == NECKS - 1) {                                                                                  \
                    const int place = min(row + (WIDTH + 1) * NECKS, ROWS - 1);                                        \
                    v += floats_of(WORD(2, place, c));                                                                 \
                }                                                                                                      \
                if (S < NECKS)                                                                                         \
                    WORD(1 - FROM, row, c) = real ? halves_of(v.x, v.y) : 0u;                                          \
                else if (real && gx < TILE_W && c < out.s3)                                                            \
                    *(__global uint *)(y + (size_t)((n * in.s0 + iy) * in.s1 + ix) * out.s1 + out.s2 + c) =            \
                        halves_of(v.x, v.y);                                                                           \
            }                                                                                                          \
        }                                                                                                              \
        biases += C;                                                                                                   \
    } while (0)
    LAYER(0, 0, N_1);
    LAYER(1, 1, N_2);
#if NECKS > 1
    LAYER(2, 0, N_3);
#endif
    COPY_WAIT(0);
}
