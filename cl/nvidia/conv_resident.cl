/* Dense convolution in half storage as an implicit matrix product on the matrix instructions of warpgroups, for filters
 * that fit local memory: a group copies those of its BN channels there once and then makes tile after tile of 64 pixels
 * by BN channels, each warpgroup its own tiles, so that one makes results while others multiply. Goes with nvidia/ptx,
 * nvidia/wgmma and nvidia/conv_parts.
 *
 * TAPS 1: 1x1 convolutions with stride 1, CHUNKS steps of 64 inputs, zeros behind the last. TAPS 9: 3x3 convolutions
 * that keep the extents, of CHUNKS times 64 channels; the 64 pixels are eight lines of eight, and the 10 x 10 in and
 * around them are copied once for all taps, as PATCHES in nvidia/conv_wgmma. The pixels of SLOTS - 1 chunks are under
 * way.
 *
 * Buffers and weights as in nvidia/conv_wgmma, without addends. LEFT_OUT, for TAPS 1: tiles of rows that are left out
 * are passed over. Grid: x = groups, those of different channels one after the other. */
#define THREADS (128 * GROUPS)
#define BK      64
#define PARTS   8  /* 16-byte parts of a row in local memory */
#define PASS    16 /* rows that the work-items of a warpgroup copy at a time */
#if TAPS == 9
#define PATCH_LINE 10
#define ROWS       (PATCH_LINE * PATCH_LINE) /* of a chunk */
#else
#define PATCH_LINE 8
#define ROWS       64
#endif
#define PASSES  ((ROWS + PASS - 1) / PASS)
#define CHUNK   (ROWS * 128)
#define NI      (BN / 8)
#define STEP    (BN * 128) /* bytes of a step's weights */
#define WEIGHTS (CHUNKS * TAPS * STEP)
#define RESULTS (64 * BN / 8) /* 16-byte parts of a tile of results */
#if TAPS == 9
#define ROW_PIXEL(r)                                                                                                   \
    (y0 + (r) / 8 < lines && x0 + (r) % 8 < shape.y_w ? (n * shape.y_h + y0 + (r) / 8) * shape.y_w + x0 + (r) % 8 : -1)
#else
#define ROW_PIXEL(r) (pixel0 + (r) < pixels ? pixel0 + (r) : -1)
#endif
#define PLACES  (WEIGHTS + BN * 4) /* results of the warpgroups, behind bias; chunks come first: they begin on 1024 bytes */
#define CHUNKS_BYTES ((GROUPS * SLOTS * CHUNK + 1023) / 1024 * 1024)

#ifdef LEFT_OUT
/* Tiles of an item whose rows are left out: the first, and how many. */
static inline int2 tiles_left_out(int n, int tiles, int w, __global const int *content, const padding_reuse_args arg) {
    const left_out_rows out = rows_left_out(content, arg, n);
    const int most = tiles * 64 / w, first = (min(out.from, most) * w + 63) / 64;
    return (int2)(first, max(min(out.past, most) * w / 64 - first, 0));
}

/* Tile number i of those that have rows to make, each item of `tiles`; beyond the last of `items`: how many there are,
 * where i is INT_MAX, and one behind all. */
static inline int tile_made(int i, int items, int tiles, int w, __global const int *content,
                            const padding_reuse_args arg) {
    int all = 0;
    for (int n = 0; n < items; n++) {
        const int2 none = tiles_left_out(n, tiles, w, content, arg);
        const int there = i - all;
        if (there < tiles - none.y) return n * tiles + (there < none.x ? there : there + none.y);
        all += tiles - none.y;
    }
    return i == INT_MAX ? all : items * tiles;
}
#endif

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
conv(__global const T *restrict x, __global const uint4 *restrict w, __global const float *restrict bias,
     __global float4 *restrict partial, __global const int *restrict content, __global T *restrict y,
     __global const T *restrict before, __global const T *restrict after, __global const int *restrict limit,
     conv_resident_args arg) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    __local uint4 memory[(CHUNKS_BYTES + PLACES + GROUPS * RESULTS * 16) / 16 + 64]; /* from a multiple of 1024 */
    const int id = get_local_id(0), lane = id & 31, group = get_group_id(0), mine = id >> 7, me = id & 127;
    const uint start = SHARED(memory), shared = (start + 1023u) & ~1023u;
    const int row_group = divided(group, arg.by_col_tiles), column_tile = group - row_group * arg.col_tiles;
    const int block0 = column_tile * (BN / 16), row_groups = get_num_groups(0) / arg.col_tiles;
    const int items = min(shape.items, *limit), step_size = arg.blocks * (16 * PARTS);

    /* Tile of this warpgroup's turn. */
#define PLACE(turn) (((turn)*row_groups + row_group) * GROUPS + mine)
#ifdef LEFT_OUT
    const int tiles = shape.y_h * shape.y_w / 64;
    const int2 none = tiles_left_out(0, tiles, shape.y_w, content, arg.out); /* of one item, without a loop */
#define TILE(turn)                                                                                                     \
    (items == 1 ? PLACE(turn) + (PLACE(turn) < none.x ? 0 : none.y)                                                    \
                : tile_made(PLACE(turn), items, tiles, shape.y_w, content, arg.out))
#else
#define TILE(turn) PLACE(turn)
#endif
    const int part = me % PARTS, first = me / PARTS;
    const uint to_chunks = shared + mine * (SLOTS * CHUNK), weights_at = shared + CHUNKS_BYTES;
#if TAPS == 9
    const int all = shape.items * arg.squares;
#define COPY_CHUNK(turn, chunk, slot)                                                                                  \
    do {                                                                                                               \
        const int square = min(TILE(turn), all - 1), n = divided(square, arg.by_squares);                              \
        const int at = square - n * arg.squares, line = divided(at, arg.by_squares_x);                                 \
        const int y0 = line * 8 - 1, x0 = (at - line * arg.squares_x) * 8 - 1;                                         \
        /* an odd number of chunks in front ends in the middle of eight rows */                                        \
        const uint to =                                                                                                \
            to_chunks + (slot)*CHUNK + first * 128 + ((part ^ (first & 7) ^ ((mine * SLOTS + (slot)) & 1) << 2) << 4); \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++) {                                                           \
            const int row = first + i * PASS, iy = y0 + row / PATCH_LINE, ix = x0 + row % PATCH_LINE;                  \
            const bool inside = (uint)iy < (uint)shape.x_h && (uint)ix < (uint)shape.x_w;                              \
            if (ROWS % PASS == 0 || row < ROWS)                                                                        \
                COPY16(to + i * (PASS * 128),                                                                          \
                       x + ((inside ? (n * shape.x_h + iy) * shape.x_w + ix : 0) * shape.x_ld + shape.x_c0 +           \
                            (chunk)*BK + part * 8),                                                                    \
                       inside ? 16 : 0);                                                                               \
        }                                                                                                              \
    } while (0)
#else
    const int all = shape.items * shape.y_h * shape.y_w;
#define COPY_CHUNK(turn, chunk, slot)                                                                                  \
    do {                                                                                                               \
        const int channel = (chunk)*BK + part * 8, bytes = clamp(2 * (shape.x_c - channel), 0, 16);                    \
        const int row0 = TILE(turn) * 64 + first;                                                                      \
        const uint to = to_chunks + (slot)*CHUNK + first * 128 + ((part ^ (first & 7)) << 4);                          \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++) COPY16(                                                     \
            to + i * (PASS * 128),                                                                                     \
            x + (min(row0 + i * PASS, all - 1) * shape.x_ld + shape.x_c0 + (bytes ? channel : 0)),                     \
            bytes);                                                                                                    \
    } while (0)
#endif

    /* Of the last turn some have none: what they would make there, and where they must make it, is not stored. */
#if TAPS == 9
    const int last = all - 1;
#else
    const int last = (all - 1) / 64;
#endif
#ifdef LEFT_OUT
    const int made = tile_made(INT_MAX, items, tiles, shape.y_w, content, arg.out);
    const int turns = GROUP_TURNS((max(made - PLACE(0), 0) + row_groups * GROUPS - 1) / (row_groups * GROUPS), arg.turns);
#else
    const int turns = GROUP_TURNS(arg.turns - (TILE(arg.turns - 1) > last), arg.turns);
#endif

#pragma unroll 1
    for (int i = id; i < WEIGHTS / 16; i += THREADS) {
        const int step = i / (BN * PARTS), rest = i - step * (BN * PARTS) + block0 * (16 * PARTS);
        COPY16(weights_at + i * 16, w + (step * step_size + min(rest, step_size - 1)), rest < step_size ? 16 : 0);
    }
    for (int i = id; i < BN / 4; i += THREADS)
        COPY16(weights_at + WEIGHTS + i * 16, bias + min(block0 * 16 + i * 4, arg.blocks * 16 - 4),
               block0 + i / 4 < arg.blocks ? 16 : 0);
    /* The next chunk to copy: of which turn, which of the turn, and where to. */
    int turn_to = 0, chunk_to = 0, to_slot = 0, slot = 0;
#define COPY_NEXT()                                                                                                    \
    do {                                                                                                               \
        if (turn_to < turns) COPY_CHUNK(turn_to, chunk_to, to_slot);                                                   \
        COPY_COMMIT();                                                                                                 \
        turn_to += chunk_to == CHUNKS - 1;                                                                             \
        chunk_to = chunk_to == CHUNKS - 1 ? 0 : chunk_to + 1;                                                          \
        to_slot = to_slot == SLOTS - 1 ? 0 : to_slot + 1;                                                              \
    } while (0)
#pragma unroll 1
    for (int i = 0; i < SLOTS - 1; i++) COPY_NEXT();
    COPY_WAIT(AHEAD);
    GROUP_PUBLISH();
    barrier(CLK_LOCAL_MEM_FENCE);

    const matrix_at from_b = MATRIX_AT(weights_at);
    const matrix_at from_a = MATRIX_AT_PITCH(to_chunks, PATCH_LINE * 8);
    __local const float2 *biases =
        (__local const float2 *)(memory + (weights_at - start + WEIGHTS) / 16) + lane % 4;
    __local uint4 *const results = memory + (shared - start + CHUNKS_BYTES + PLACES) / 16 + mine * RESULTS;
    __local uint *const words = (__local uint *)results;
    const int row = me / 32 * 16 + lane / 4;
#pragma unroll 1
    for (int turn = 0; turn < turns; turn++) {
        float acc[NI][4];
#pragma unroll
        for (int j = 0; j < NI; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) acc[j][e] = 0.0f;
#pragma unroll 1
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            COPY_WAIT(AHEAD);
            GROUP_PUBLISH();
            GROUP_BARRIER(mine);
            const matrix_at a = from_a + (uint)(slot * (CHUNK / 16)), b = from_b + (uint)(chunk * (TAPS * STEP / 16));
            GROUP_BEGIN();
UNROLL
            for (int tap = 0; tap < TAPS; tap++)
                UNROLL
                for (int s = 0; s < 4; s++)
                    GROUP_MULTIPLY(BN, acc, a + (uint)((tap / 3 * PATCH_LINE + tap % 3) * 8 + 2 * s),
                                   b + (uint)(tap * (STEP / 16) + 2 * s));
            GROUP_COMMIT();
            COPY_NEXT();
            GROUP_WAIT(0);
            slot = slot == SLOTS - 1 ? 0 : slot + 1;
        }
        /* Results are made from fragments and leave by way of local memory in rows, 16 bytes a work-item. */
#pragma unroll
        for (int j = 0; j < NI; j++) {
            const float2 b = biases[j * 4];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float2 v = affine(activated((float2)(acc[j][2 * h], acc[j][2 * h + 1]) + b), epi);
                words[RESULT_PART(row + h * 8, j) / 4 + lane % 4] = halves_of(v.x, v.y);
            }
        }
        GROUP_BARRIER(mine);
#if TAPS == 9
        const int square = TILE(turn), n = divided(square, arg.by_squares), at = square - n * arg.squares;
        const int line = divided(at, arg.by_squares_x), y0 = line * 8, x0 = (at - line * arg.squares_x) * 8;
        const int lines = n < items ? shape.y_h : 0;
#else
        const int pixel0 = TILE(turn) * 64, pixels = items * shape.y_h * shape.y_w;
#endif
        STORE_ROWS(me, 128, 64, results, ROW_PIXEL);
    }
    COPY_WAIT(0); /* no copy outlives its group */
}
