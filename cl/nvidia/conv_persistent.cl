/* Dense convolution in half storage as an implicit matrix product on the matrix instructions of warpgroups, for many
 * pixels: a work-group stays and walks over tiles of BM = 64 GROUPS EACH output pixels by BN channels, and the first
 * steps of the next tile are copied while the results of one are made. Goes with nvidia/ptx, nvidia/wgmma and nvidia/conv_parts.
 *
 * The product runs in steps of 64 inputs, at least three. TAPS 1: 1x1 convolutions with stride 1 and without padding,
 * zeros behind the last channel. TAPS 9: 3x3 convolutions that keep the extents, of whole blocks of 64 channels, of
 * each block all taps; 64 pixels are eight lines of eight, and the 10 x 10 in and around them are copied once for all
 * taps, as PATCHES in nvidia/conv_wgmma. The copies of a step begin STAGES - 2 steps ahead, and its products before those
 * of the step before it have ended. Sums begin with the bias.
 *
 * Results pass through local memory a warp at a time: 16 rows of 64 channels, in the place of the pixels that only
 * its warpgroup's products have read, 128 bytes a line. BEFORE, AFTER: at most one addend, in front of the activation
 * or behind it.
 *
 * Buffers and weights as in nvidia/conv_wgmma. Grid: x = groups; group g makes tiles g, g + groups, .. of which those
 * of the same pixels are neighbours. */
#define THREADS (128 * GROUPS)
#define BM      (64 * GROUPS * EACH)
#define BK      64
#define PARTS   8 /* 16-byte parts of a row in local memory */
#define PASS    (THREADS / PARTS)
#define NI      (BN / 8)
#define LATER   (STAGES - 2) /* steps from a copy to its products */
#define B_BYTES (BN * 128)
#if TAPS == 9
#define SQUARES    (BM / 64)
#define PATCH_LINE 10
#define ROWS       (PATCH_LINE * PATCH_LINE) /* of 64 pixels */
#define PASSES     ((SQUARES * ROWS + PASS - 1) / PASS)
#define BUFFER     (SQUARES * ROWS * 128) /* a multiple of 1024: SQUARES is even */
#define A_BYTES    (2 * BUFFER)
#define STAGE      B_BYTES
#define TILES_BYTES (A_BYTES + STAGES * STAGE)
#define SLICES     (TAPS - LATER) /* steps in which the next patches are copied: not a block's first, others may read */
#define SLICE      ((PASSES + SLICES - 1) / SLICES) /* passes of each */
#else
#define ROWS       64
#define PASSES     (BM / PASS)
#define A_BYTES    (BM * 128)
#define STAGE      (A_BYTES + B_BYTES)
#define TILES_BYTES (STAGES * STAGE)
#endif
#define B_PARTS  (BN * PARTS)
#define B_COPIES ((B_PARTS + THREADS - 1) / THREADS)
#define PIECES   (BN / 64) /* of a row of results */

/* The weights of step `step_to` of the tile that is copied. */
#define COPY_WEIGHTS(SLOT)                                                                                             \
    do {                                                                                                               \
        const int at = from_w + step_to * step_size;                                                                   \
        _Pragma("unroll") for (int i = 0; i < B_COPIES; i++) if (B_PARTS % THREADS == 0 || id + i * THREADS < B_PARTS) \
            COPY16(to_b + (SLOT)*STAGE + i * (THREADS * 16), w + (at + i * THREADS),                                   \
                   id + i * THREADS < real_w ? 16 : 0);                                                                \
    } while (0)
#if TAPS == 9
/* Passes FROM .. FROM + COUNT over the pixels of 64 channels from CHANNEL on of the tile with this table. */
#define COPY_PATCHES(TABLE, CHANNEL, INTO, FROM, COUNT)                                                                \
    do {                                                                                                               \
        _Pragma("unroll") for (int i = 0; i < (COUNT); i++) {                                                          \
            const int row = first + ((FROM) + i) * PASS;                                                               \
            if (row < SQUARES * ROWS) {                                                                                \
                const int p = pixels[TABLE][row];                                                                      \
                COPY16(to_a + (INTO)*BUFFER + ((FROM) + i) * (PASS * 128),                                             \
                       x + (max(p, 0) * shape.x_ld + shape.x_c0 + (CHANNEL) + part * 8), p >= 0 ? 16 : 0);             \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)
/* Pixels of the patches of a tile, -1 outside the map. */
#define SET_TABLE(TABLE, TILE)                                                                                         \
    do {                                                                                                               \
        const int square0 = divided(TILE, arg.by_col_tiles) * SQUARES;                                                 \
        _Pragma("unroll") for (int m = 0; m < (SQUARES * ROWS + THREADS - 1) / THREADS; m++) {                         \
            const int i = id + m * THREADS, square = square0 + i / ROWS, n = divided(square, arg.by_h);                \
            const int at = square - n * arg.squares, line = divided(at, arg.by_w);                                     \
            const int iy = line * 8 + i % ROWS / PATCH_LINE - 1,                                                       \
                      ix = (at - line * arg.squares_x) * 8 + i % PATCH_LINE - 1;                                       \
            const bool real = n < shape.items && (uint)iy < (uint)shape.x_h && (uint)ix < (uint)shape.x_w;             \
            if (i < SQUARES * ROWS) pixels[TABLE][i] = real ? (n * shape.x_h + iy) * shape.x_w + ix : -1;              \
        }                                                                                                              \
    } while (0)
#else
#define COPY_PIXELS(SLOT)                                                                                              \
    do {                                                                                                               \
        const int channel = step_to * BK + part * 8, bytes = clamp(2 * (shape.x_c - channel), 0, 16);                  \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++) {                                                           \
            const int p = pixel_to + i * PASS;                                                                         \
            COPY16(to_a + (SLOT)*STAGE + i * (PASS * 128), x + (min(p, all - 1) * shape.x_ld + shape.x_c0 + channel),  \
                   bytes);                                                                                             \
        }                                                                                                              \
    } while (0)
#endif
/* What the copies of tile `tile_to` need. */
#define BEGIN_TILE()                                                                                                   \
    do {                                                                                                               \
        const int row_to = divided(tile_to, arg.by_col_tiles),                                                         \
                  block_to = (tile_to - row_to * arg.col_tiles) * (BN / 16);                                           \
        from_w = block_to * (16 * PARTS) + id, real_w = step_size - block_to * (16 * PARTS);                           \
        pixel_to = row_to * BM + first;                                                                                \
        for (int i = id; i < BN / 4; i += THREADS)                                                                     \
            COPY16(shared + TILES_BYTES + (turn_to & 1) * (BN * 4) + i * 16,                                           \
                   bias + min(block_to * 16 + i * 4, arg.blocks * 16 - 4), block_to + i / 4 < arg.blocks ? 16 : 0);    \
    } while (0)
/* Weights, and pixels where taps have their own, of the next step, of the next tile behind the last. */
#if TAPS == 9
#define COPY_STEP() COPY_WEIGHTS(to)
#else
#define COPY_STEP()                                                                                                    \
    do {                                                                                                               \
        COPY_WEIGHTS(to);                                                                                              \
        COPY_PIXELS(to);                                                                                               \
    } while (0)
#endif
#define COPY_NEXT()                                                                                                    \
    do {                                                                                                               \
        if (turn_to < turns) COPY_STEP();                                                                              \
        to = to == STAGES - 1 ? 0 : to + 1;                                                                            \
        if (++step_to == end) {                                                                                        \
            step_to = 0, turn_to++, tile_to += groups;                                                                 \
            if (turn_to < turns) BEGIN_TILE();                                                                         \
        }                                                                                                              \
    } while (0)

#if defined(BEFORE) || defined(AFTER)
/* Of this warp's rows of 64 pixels I the addend's 64 channels of piece C, four times 16 bytes a work-item. */
#define FETCH_ADDEND(I, C)                                                                                             \
    do {                                                                                                               \
        _Pragma("unroll") for (int m = 0; m < 4; m++)                                                                  \
            FETCH16_IF(extra[m][0], extra[m][1], extra[m][2], extra[m][3],                                             \
                       addend + ((size_t)max(from_addend[I][m], 0) * addend_ld + addend_c0 + channel0 + (C)*64),       \
                       from_addend[I][m] >= 0 && channel0 + (C)*64 < shape.y_c);                                       \
    } while (0)
#endif

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
conv(__global const T *restrict x, __global const uint4 *restrict w, __global const float *restrict bias,
     __global float4 *restrict partial, __global int *restrict arrived, __global T *restrict y,
     __global const T *restrict before, __global const T *restrict after, __global const int *restrict limit,
     conv_persistent_args arg) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    __local uint4 memory[(TILES_BYTES + 2 * BN * 4) / 16 + 64]; /* steps, and two biases; from a multiple of 1024 */
    const int id = get_local_id(0), lane = id & 31, warp = id >> 5;
    const uint start = SHARED(memory), shared = (start + 1023u) & ~1023u;
    __local uint4 *main = memory + (shared - start) / 16;
    const int group = get_group_id(0), groups = get_num_groups(0);
    const int items = min(shape.items, *limit), rows = items * shape.y_h * shape.y_w, end = arg.steps;
#if TAPS == 9
    const int real_tiles = (items * arg.squares + SQUARES - 1) / SQUARES * arg.col_tiles;
    __local int pixels[2][SQUARES * ROWS];
#else
    const int all = shape.items * shape.y_h * shape.y_w, real_tiles = (rows + BM - 1) / BM * arg.col_tiles;
#endif
    const int turns = GROUP_TURNS((real_tiles - group + groups - 1) / groups, arg.turns);

    /* What this work-item copies: part `part` of the rows first, first + PASS, .. and of the weights. */
    const int part = id % PARTS, first = id / PARTS;
    const uint to_a = shared + first * 128 + ((part ^ (first & 7)) << 4), to_b = shared + A_BYTES + id * 16;
#if TAPS == 9
    const matrix_at from_a = MATRIX_AT_PITCH(shared + warp / 4 * (EACH * ROWS * 128), PATCH_LINE * 8);
    int buffer = 0, tap = 0, block = 0;
    SET_TABLE(0, group);
    barrier(CLK_LOCAL_MEM_FENCE);
    COPY_PATCHES(0, 0, 0, 0, PASSES);
#else
    const matrix_at from_a = MATRIX_AT(shared + warp / 4 * (EACH * ROWS * 128));
#endif
    const matrix_at from_b = MATRIX_AT(shared + A_BYTES);
    const int step_size = arg.blocks * (16 * PARTS);
    /* The step that is copied next, of which turn and tile, and where to; the slot of the step that is multiplied. */
    int step_to = 0, turn_to = 0, tile_to = group, to = 0, slot = 0, from_w, real_w, pixel_to;
    BEGIN_TILE();
#pragma unroll 1
    for (int s = 0; s < LATER; s++) {
        COPY_NEXT();
        COPY_COMMIT();
    }
    COPY_WAIT(AHEAD);
    GROUP_PUBLISH();
    barrier(CLK_LOCAL_MEM_FENCE);

#pragma unroll 1
    for (int turn = 0; turn < turns; turn++) {
        const int tile = group + turn * groups, row_tile = divided(tile, arg.by_col_tiles);
        const int block0 = (tile - row_tile * arg.col_tiles) * (BN / 16), channel0 = block0 * 16 + lane % 8 * 8;
#if TAPS == 9
        SET_TABLE((turn + 1) & 1, tile + groups); /* whoever read that table has passed a barrier since */
#endif
        /* Pixels of this work-item's rows of results, -1 for none. */
        int result_pixel[EACH][4];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int strip = row_tile * (BM / 64) + warp / 4 * EACH + i;
#if TAPS == 9
            const int n = divided(strip, arg.by_h), at = strip - n * arg.squares, line = divided(at, arg.by_w);
            const int oy = line * 8 + warp % 4 * 2, ox = (at - line * arg.squares_x) * 8 + lane / 8;
#endif
#pragma unroll
            for (int m = 0; m < 4; m++) {
#if TAPS == 9
                const int iy = oy + m / 2, ix = ox + m % 2 * 4;
                result_pixel[i][m] =
                    n < items && iy < shape.y_h && ix < shape.y_w ? (n * shape.y_h + iy) * shape.y_w + ix : -1;
#else
                const int p = strip * 64 + warp % 4 * 16 + lane / 8 + m * 4;
                result_pixel[i][m] = p < rows ? p : -1;
#endif
            }
        }
#if defined(BEFORE) || defined(AFTER)
#ifdef BEFORE
        __global const T *addend = before;
        const int addend_ld = epi.before_ld, addend_c0 = epi.before_c0, flags = epi.flags;
#else
        __global const T *addend = after;
        const int addend_ld = epi.after_ld, addend_c0 = epi.after_c0;
        const int flags = epi.flags & EPI_AFTER_ONE ? EPI_BEFORE_ONE : 0;
#endif
        int from_addend[EACH][4];
        uint extra[4][4];
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int m = 0; m < 4; m++) {
                const int p = result_pixel[i][m];
                const int from = p < 0 || !(flags & (EPI_BEFORE_UP2 | EPI_BEFORE_ONE))
                                     ? p
                                     : place(p, shape, flags, arg.by_w, arg.by_h);
                const int c = block0 * 16 + lane % 8 * 64; /* a work-item asks for a line of a row */
                from_addend[i][m] = from;
                if (from >= 0 && lane % 8 < PIECES && c < shape.y_c)
                    ASK_FOR(addend + ((size_t)from * addend_ld + addend_c0 + c));
            }
#endif
        float acc[EACH][NI][4];
        __local const float2 *biases =
            (__local const float2 *)(main + (TILES_BYTES + (turn & 1) * (BN * 4)) / 16) + lane % 4;
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < NI; j++) {
                const float2 b = biases[j * 4];
                acc[i][j][0] = b.x, acc[i][j][1] = b.y, acc[i][j][2] = b.x, acc[i][j][3] = b.y;
                GROUP_TAKE(acc[i], j);
            }
#pragma unroll 1
        for (int step = 0; step < end; step++) {
#if TAPS == 9
            const int a_at = buffer * (BUFFER / 16) + (tap / 3 * PATCH_LINE + tap % 3) * 8;
#else
            const int a_at = slot * (STAGE / 16);
#endif
            GROUP_STEP(BN, EACH, acc, from_a, a_at, ROWS * 8, from_b, slot * (STAGE / 16));
            COPY_NEXT();
#if TAPS == 9
            if (tap > 0 && tap <= SLICES) {
                const bool same = (block + 1) * TAPS < end;
                if (same || turn + 1 < turns)
                    COPY_PATCHES(same ? turn & 1 : (turn + 1) & 1, same ? (block + 1) * BK : 0, buffer ^ 1,
                                 (tap - 1) * SLICE, SLICE);
            }
            block += tap == TAPS - 1;
            buffer ^= tap == TAPS - 1;
            tap = tap == TAPS - 1 ? 0 : tap + 1;
#endif
            COPY_COMMIT();
#if defined(BEFORE) || defined(AFTER)
            if (step == end - 1) FETCH_ADDEND(0, 0);
#endif
            GROUP_WAIT(1);
            COPY_WAIT(AHEAD);
            GROUP_PUBLISH();
            barrier(CLK_LOCAL_MEM_FENCE);
            slot = slot == STAGES - 1 ? 0 : slot + 1;
        }
        GROUP_WAIT(0);
#if TAPS == 9
        block = 0;
        const int used = (buffer ^ 1) * BUFFER;
#else
        const int used = (slot == 0 ? STAGES - 1 : slot - 1) * STAGE;
#endif
        GROUP_BARRIER(warp / 4); /* all warps of the group have read their pixels */
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < NI; j++) GROUP_TAKE(acc[i], j);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            __local uint4 *place_of = main + used / 16 + ((warp / 4 * EACH + i) * ROWS + warp % 4 * 16) * PARTS;
            __local uint *words = (__local uint *)place_of + lane / 4 * 32 + lane % 4;
#pragma unroll
            for (int c = 0; c < PIECES; c++) {
#if defined(BEFORE) || defined(AFTER)
#pragma unroll
                for (int m = 0; m < 4; m++)
                    place_of[(lane / 8 + m * 4) * PARTS + (lane % 8 ^ (lane / 8 + m * 4) % 8)] =
                        (uint4)(extra[m][0], extra[m][1], extra[m][2], extra[m][3]);
                if (c + 1 < PIECES)
                    FETCH_ADDEND(i, c + 1);
                else if (i + 1 < EACH)
                    FETCH_ADDEND((i + 1) % EACH, 0);
                WARP_MEETS();
#endif
#pragma unroll
                for (int j = 0; j < 8; j++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        __local uint *word = words + h * 256 + ((j ^ lane / 4) << 2);
                        float2 v = (float2)(acc[i][c * 8 + j][2 * h], acc[i][c * 8 + j][2 * h + 1]);
#ifdef BEFORE
                        v += floats_of(*word);
#endif
                        v = affine(activated(v), epi);
#ifdef AFTER
                        v += floats_of(*word);
#endif
                        *word = halves_of(v.x, v.y);
                    }
                WARP_MEETS();
#pragma unroll
                for (int m = 0; m < 4; m++)
                    if (result_pixel[i][m] >= 0 && channel0 + c * 64 < shape.y_c)
                        *(__global uint4 *)(y + ((size_t)result_pixel[i][m] * shape.y_ld + shape.y_c0 + channel0 +
                                                 c * 64)) =
                            place_of[(lane / 8 + m * 4) * PARTS + (lane % 8 ^ (lane / 8 + m * 4) % 8)];
                WARP_MEETS();
            }
        }
    }
    COPY_WAIT(0); /* no copy outlives its group */
}
