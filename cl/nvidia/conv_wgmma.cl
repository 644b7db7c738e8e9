/* Dense convolution in half storage as an implicit matrix product on the matrix instructions of warpgroups, sums in float:
 * a work-group of GROUPS warpgroups makes BM = 64 GROUPS EACH output pixels by BN channels. Goes with nvidia/ptx,
 * nvidia/wgmma and nvidia/conv_parts.
 *
 * The product runs in steps of 64 inputs: POINT (1x1, stride 1, no padding) of channels, zeros behind the last; else, where
 * channels are a multiple of 64, of 64 channels in turn the taps, at most 31. A step's pixels and weights are copied to local
 * memory as nvidia/wgmma wants tiles, STAGES - 1 steps ahead (FLIGHT 1: one less, and a step's products begin before those of
 * the one before it have ended).
 *
 * PATCHES, for 3x3 convolutions that keep the extents: 64 pixels are eight lines of eight, and the 10 x 10 in and around them
 * are copied once for nine taps, whose products read the same rows from another start. PATCHES 2: the next 64 channels'
 * come while these are multiplied; 1: there are no more than 64. KEPT: there are places for all of them, so that all are
 * asked for at the beginning, those of block b + 1 with the weights of step b, and later copies are weights alone.
 *
 * BEFORE, AFTER: with addends in front of the activation and behind it and the affine block. TOP, for POINT: the channels
 * of the first TOP steps are those of `before`, a map of half the extents that is upsampled (nearest).
 *
 * Buffers as in nvidia/conv_mma, but weights [step][16-channel blocks * 16][64 halves], the 16-byte parts of a row
 * exchanged as there, and neither partial sums nor splits, but with LEFT_OUT, for POINT, `content` (portable/left_out);
 * channels of the result and of addends in whole parts of 16 bytes. */
#define THREADS (128 * GROUPS)
#define BM      (64 * GROUPS * EACH)
#define BK      64
#define PARTS   8 /* 16-byte parts of a row in local memory */
#define PASS    (THREADS / PARTS)
#define PASSES  (BM / PASS)
#define NI      (BN / 8)
#define LATER   (STAGES - 1 - FLIGHT) /* steps from a copy to its products */
#ifdef PATCHES
#define TAPS       9
#define SQUARES    (BM / 64)
#define PATCH_LINE 10
#define PATCH_ROWS (PATCH_LINE * PATCH_LINE)
#define BUFFER     ((SQUARES * PATCH_ROWS * 128 + 1023) / 1024 * 1024)
#define A_BYTES    (PATCHES * BUFFER)
#define STAGE      (BN * 128)
#define TILES_BYTES (A_BYTES + STAGES * STAGE)
#define PATCH_PASSES ((SQUARES * PATCH_ROWS + PASS - 1) / PASS)
#ifdef KEPT
#define BUFFER_OF(block) ((block)*BUFFER)
#else
#define BUFFER_OF(block) (((block)&1) * BUFFER)
#endif
#define SLICES     (TAPS - LATER) /* steps in which the next patches are copied: not a block's first, which others may read */
#define SLICE      ((PATCH_PASSES + SLICES - 1) / SLICES) /* passes of each */
#define SQUARE_AT  (PATCH_ROWS * 8) /* from a square's rows to the next one's, as nvidia/wgmma counts */
#else
#define A_BYTES    (BM * 128)
#define STAGE      (A_BYTES + BN * 128)
#define TILES_BYTES (STAGES * STAGE)
#define SQUARE_AT  512
#endif
#define B_PARTS  (BN * 8)
#define B_COPIES ((B_PARTS + THREADS - 1) / THREADS)
#define RESULTS (BM * BN / 8) /* 16-byte parts of the tile of results */
#if defined(BEFORE) && defined(AFTER)
#define AFTER_AT RESULTS /* the addend behind the activation lies behind the other one */
#else
#define AFTER_AT 0
#endif
/* One addend that fits a step's place is copied there while the last steps are multiplied; results then lie there. */
#if !defined(PATCHES) && defined(BEFORE) + defined(AFTER) == 1 && RESULTS * 16 <= STAGE
#define EARLY
#define RESULTS_AT (end % STAGES * STAGE)
#else
#define RESULTS_AT 0
#endif
#define MAIN_BYTES (TILES_BYTES > (AFTER_AT + RESULTS) * 16 ? TILES_BYTES : (AFTER_AT + RESULTS) * 16)

#ifdef PATCHES
/* Passes FIRST .. FIRST + COUNT over the pixels of 64 channels. */
#define COPY_PATCHES(BLOCK, FIRST, COUNT)                                                                              \
    do {                                                                                                               \
        _Pragma("unroll") for (int i = 0; i < (COUNT); i++) {                                                          \
            int row = first + ((FIRST) + i) * PASS;                                                                    \
            if (row < SQUARES * PATCH_ROWS) {                                                                          \
                int p = pixels[row];                                                                                   \
                COPY16(to_a + BUFFER_OF(BLOCK) + ((FIRST) + i) * (PASS * 128),                                         \
                       x + (max(p, 0) * shape.x_ld + shape.x_c0 + (BLOCK)*BK + part * 8), p >= 0 ? 16 : 0);            \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)
#elif defined(TOP)
/* Steps come in order: with the first one of x the source and the places in it change. */
#define COPY_PIXELS(STEP, SLOT)                                                                                        \
    do {                                                                                                               \
        if ((STEP) == TOP) {                                                                                           \
            source = x;                                                                                                \
            _Pragma("unroll") for (int i = 0; i < PASSES; i++)                                                         \
                offset[i] = min(p0 + first + i * PASS, all - 1) * shape.x_ld + shape.x_c0;                             \
        }                                                                                                              \
        int channel = ((STEP) < TOP ? (STEP) : (STEP)-TOP) * BK + part * 8;                                            \
        int bytes = (STEP) < TOP ? 16 : clamp(2 * (shape.x_c - channel), 0, 16);                                       \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++)                                                             \
            COPY16(to_a + (SLOT)*STAGE + i * (PASS * 128), source + (offset[i] + channel), bytes);                     \
    } while (0)
#elif defined(POINT)
#define COPY_PIXELS(STEP, SLOT)                                                                                        \
    do {                                                                                                               \
        int channel = (STEP)*BK + part * 8, bytes = clamp(2 * (shape.x_c - channel), 0, 16);                           \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++)                                                             \
            COPY16(to_a + (SLOT)*STAGE + i * (PASS * 128), x + (offset[i] + channel), bytes);                          \
    } while (0)
#else
#define COPY_PIXELS(STEP, SLOT)                                                                                        \
    do {                                                                                                               \
        int block = divided(STEP, arg.by_taps), tap = (STEP)-block * (shape.kh * shape.kw);                            \
        int ky = divided(tap, arg.by_kw);                                                                              \
        int away = (ky * shape.x_w + tap - ky * shape.kw) * shape.x_ld + block * BK + part * 8;                        \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++)                                                             \
            COPY16(to_a + (SLOT)*STAGE + i * (PASS * 128), x + (offset[i] + away), inside[i] >> tap & 1 ? 16 : 0);     \
    } while (0)
#endif
#define COPY_WEIGHTS(STEP, SLOT)                                                                                       \
    do {                                                                                                               \
        int at = from_w + (STEP)*step_size;                                                                            \
        _Pragma("unroll") for (int i = 0; i < B_COPIES; i++) if (B_PARTS % THREADS == 0 || id + i * THREADS < B_PARTS) \
            COPY16(to_b + (SLOT)*STAGE + i * (THREADS * 16), w + (at + i * THREADS),                                   \
                   id + i * THREADS < real_w ? 16 : 0);                                                                \
    } while (0)

/* The tile's pixels of an addend, in rows, to local memory; FLAGS as `place` wants them. */
#define COPY_ADDEND(TO, FROM, LD, C0, FLAGS)                                                                           \
    do {                                                                                                               \
        const int flags = FLAGS;                                                                                       \
        _Pragma("unroll 4") for (int k = id; k < RESULTS; k += THREADS) {                                              \
            const int r = k / (BN / 8), q = k % (BN / 8), c = block0 * 16 + q * 8;                                     \
            const int p = clamp(ROW_PIXEL(r), 0, all - 1);                                                             \
            const int at = flags ? place(p, shape, flags, arg.by_w, arg.by_h) : p;                                     \
            COPY16((TO) + RESULT_PART(r, q), (FROM) + ((size_t)at * (LD) + (C0) + c), c < shape.y_c ? 16 : 0);         \
        }                                                                                                              \
    } while (0)
#ifdef BEFORE
#define COPY_BEFORE(to)                                                                                                \
    COPY_ADDEND(to, before, epi.before_ld, epi.before_c0, epi.flags & (EPI_BEFORE_UP2 | EPI_BEFORE_ONE))
#else
#define COPY_BEFORE(to)
#endif
#ifdef AFTER
#define COPY_AFTER(to)                                                                                                 \
    COPY_ADDEND((to) + AFTER_AT * 16, after, epi.after_ld, epi.after_c0,                                               \
                epi.flags & EPI_AFTER_ONE ? EPI_BEFORE_ONE : 0)
#else
#define COPY_AFTER(to)
#endif

#ifdef PATCHES
#define ROW_PIXEL(r) pixels[(r) / 64 * PATCH_ROWS + ((r) % 64 / 8 + 1) * PATCH_LINE + (r) % 8 + 1] /* < 0: none */
#else
#define ROW_PIXEL(r) (p0 + (r))
#endif
#define REAL_PIXEL(r) (ROW_PIXEL(r) < rows ? ROW_PIXEL(r) : -1)

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
conv(__global const T *restrict x, __global const uint4 *restrict w, __global const float *restrict bias,
     __global float4 *restrict partial, __global const int *restrict content, __global T *restrict y,
     __global const T *restrict before, __global const T *restrict after, __global const int *restrict limit,
     conv_wgmma_args arg) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    __local uint4 memory[(MAIN_BYTES + BN * 4) / 16 + 64]; /* stages, later results, bias; from a multiple of 1024 */
    const int id = get_local_id(0), lane = id & 31, warp = id >> 5;
    const uint start = SHARED(memory), shared = (start + 1023u) & ~1023u;
    __local uint4 *main = memory + (shared - start) / 16;
    const int group = get_group_id(0);
    const int row_tile = divided(group, arg.by_col_tiles), column_tile = group - row_tile * arg.col_tiles;
    const int block0 = column_tile * (BN / 16), all = shape.items * shape.y_h * shape.y_w;
    const int items = min(shape.items, *limit), rows = items * shape.y_h * shape.y_w, end = arg.steps;

    /* What this work-item copies: part `part` of the rows first, first + PASS, .. and of the weights. */
    const int part = id % PARTS, first = id / PARTS;
    const uint to_a = shared + first * 128 + ((part ^ (first & 7)) << 4), to_b = shared + A_BYTES + id * 16;
    const int step_size = arg.blocks * (16 * PARTS), real_w = step_size - block0 * (16 * PARTS);
    const int from_w = block0 * (16 * PARTS) + id;
#ifdef PATCHES
    __local int pixels[SQUARES * PATCH_ROWS]; /* -1 outside the map */
    for (int i = id; i < SQUARES * PATCH_ROWS; i += THREADS) {
        const int square = row_tile * SQUARES + i / PATCH_ROWS, n = divided(square, arg.by_squares);
        const int at = square - n * arg.squares, line = divided(at, arg.by_squares_x);
        const int iy = line * 8 + i % PATCH_ROWS / PATCH_LINE - 1;
        const int ix = (at - line * arg.squares_x) * 8 + i % PATCH_LINE - 1;
        const bool real = n < shape.items && (uint)iy < (uint)shape.x_h && (uint)ix < (uint)shape.x_w;
        pixels[i] = real ? (n * shape.x_h + iy) * shape.x_w + ix : -1;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#else
    const int p0 = row_tile * BM;
    int offset[PASSES]; /* of the pixel (with padding: where its window starts), in elements */
#ifdef TOP
    __global const T *source = before;
#endif
#ifndef POINT
    int inside[PASSES]; /* taps inside the map, a bit each */
#endif
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
        int p = min(p0 + first + i * PASS, all - 1); /* rows beyond the last are made and not stored */
#ifdef TOP
        offset[i] = place(p, shape, EPI_BEFORE_UP2, arg.by_w, arg.by_h) * epi.before_ld + epi.before_c0;
#elif defined(POINT)
        offset[i] = p * shape.x_ld + shape.x_c0;
#else
        int line = divided(p, arg.by_w), n = divided(line, arg.by_h);
        int iy = (line - n * shape.y_h) * shape.stride - shape.top;
        int ix = (p - line * shape.y_w) * shape.stride - shape.left;
        offset[i] = ((n * shape.x_h + iy) * shape.x_w + ix) * shape.x_ld + shape.x_c0;
        inside[i] = inside_bits(iy, ix, shape);
#endif
    }
#ifdef LEFT_OUT
    if (pixels_left_out(p0, p0 + BM, shape.y_h, shape.y_w, content, arg.out)) return;
#endif
#endif

    for (int i = id; i < BN / 4; i += THREADS)
        COPY16(shared + MAIN_BYTES + i * 16, bias + (block0 * 16 + i * 4), block0 + i / 4 < arg.blocks ? 16 : 0);
#ifdef PATCHES
    COPY_PATCHES(0, 0, PATCH_PASSES);
#endif
#pragma unroll 1
    for (int s = 0; s < LATER; s++) {
        if (s < end) {
            COPY_WEIGHTS(s, s);
#ifndef PATCHES
            COPY_PIXELS(s, s);
#endif
        }
#ifdef KEPT
        if (s + 1 < PATCHES) COPY_PATCHES(s + 1, 0, PATCH_PASSES);
#endif
        COPY_COMMIT();
    }
#ifdef PATCHES
    const bool beyond = row_tile * SQUARES >= items * arg.squares;
#else
    const bool beyond = p0 >= rows;
#endif
    if (beyond) { /* not before, since the limit is only there when the first copies are under way */
        COPY_WAIT(0); /* no copy outlives its group */
        return;
    }

    float acc[EACH][NI][4];
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < NI; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) acc[i][j][e] = 0.0f;

#ifdef PATCHES
    const matrix_at from_a = MATRIX_AT_PITCH(shared + warp / 4 * (EACH * PATCH_ROWS * 128), PATCH_LINE * 8);
    int block = 0, tap = 0;
#else
    const matrix_at from_a = MATRIX_AT(shared + warp / 4 * (EACH * 64 * 128));
#endif
    const matrix_at from_b = MATRIX_AT(shared + A_BYTES);
    int slot = 0, to = LATER; /* of the step, and of the one that is copied meanwhile */
    for (int step = 0; step < end; step++) {
        COPY_WAIT(AHEAD);
        GROUP_PUBLISH();
#if FLIGHT == 0
        GROUP_WAIT(0);
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
#ifdef PATCHES
        const int a_at = BUFFER_OF(block) / 16 + (tap / 3 * PATCH_LINE + tap % 3) * 8;
#else
        const int a_at = slot * (STAGE / 16);
#endif
        GROUP_STEP(BN, EACH, acc, from_a, a_at, SQUARE_AT, from_b, slot * (STAGE / 16));
        if (step + LATER < end) {
            COPY_WEIGHTS(step + LATER, to);
#ifndef PATCHES
            COPY_PIXELS(step + LATER, to);
#endif
        }
#ifdef EARLY
        if (step == max(end - LATER, 0)) {
            COPY_BEFORE(shared + RESULTS_AT);
            COPY_AFTER(shared + RESULTS_AT);
        }
#endif
#ifdef PATCHES
#ifdef KEPT
        if (step + LATER + 1 < PATCHES) COPY_PATCHES(step + LATER + 1, 0, PATCH_PASSES);
#elif PATCHES > 1
        if (tap > 0 && tap <= SLICES && (block + 1) * TAPS < end) COPY_PATCHES(block + 1, (tap - 1) * SLICE, SLICE);
#endif
        block += tap == TAPS - 1;
        tap = tap == TAPS - 1 ? 0 : tap + 1;
#endif
        COPY_COMMIT();
#if FLIGHT == 1
        GROUP_WAIT(1);
#endif
        slot = slot == STAGES - 1 ? 0 : slot + 1;
        to = to == STAGES - 1 ? 0 : to + 1;
    }
    GROUP_WAIT(0);
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);

    /* Results are made from fragments and leave local memory in rows. */
#if (defined(BEFORE) || defined(AFTER)) && !defined(EARLY)
    COPY_BEFORE(shared + RESULTS_AT);
    COPY_AFTER(shared + RESULTS_AT);
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    __local const float2 *biases = (__local const float2 *)(main + MAIN_BYTES / 16) + lane % 4;
    __local uint4 *const results = main + RESULTS_AT / 16;
    __local uint *const words = (__local uint *)results;
    const int row = warp / 4 * (EACH * 64) + warp % 4 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < NI; j++) {
            const float2 b = biases[j * 4];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int at = RESULT_PART(row + i * 64 + h * 8, j) / 4 + lane % 4;
                float2 v = (float2)(acc[i][j][2 * h], acc[i][j][2 * h + 1]) + b;
#ifdef BEFORE
                v += floats_of(words[at]);
#endif
                v = affine(activated(v), epi);
#ifdef AFTER
                v += floats_of(words[at + AFTER_AT * 4]);
#endif
                words[at] = halves_of(v.x, v.y);
            }
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    STORE_ROWS(id, THREADS, BM, results, REAL_PIXEL);
}
