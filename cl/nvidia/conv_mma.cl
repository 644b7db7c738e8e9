/* Dense convolution in half storage as an implicit matrix product on matrix instructions, sums in float: a work-group
 * of WM x WN x WK warps makes BM output pixels by BN channels; the WK warps of one place share its sum. Goes with
 * nvidia/ptx and nvidia/conv_parts.
 *
 * The product runs over `chunks` of eight inputs: of each tap in turn the channels, padded with zeros to a multiple of
 * eight; with GATHER (pixels that do not start on 16 bytes, few channels) the taps follow each other without padding;
 * with BLOCKED (channels a multiple of BK) of BK channels in turn the taps, so that a pixel's reuse is near. HALO, for
 * 3x3 convolutions that keep the extents: the same order, but a block's pixels are copied once for its nine taps. The
 * tile's pixels follow each other in the map, so HALO = BM + 2 w + 2 pixels in a row are what all taps read; a tap
 * outside the map reads a pixel of zeros. The next block's come while this one's taps are multiplied. SQUARE:
 * the tile is BM / LINE lines of LINE pixels of one image, and HALO what lies in and around it. A step takes
 * BK / 8 chunks. Steps are copied to local memory STAGES - 1 ahead (AHEAD is STAGES - 2), zeros standing for
 * padding, rows and chunks that do not exist. Pixels lie there in rows of BK halves whose 16-byte parts are exchanged
 * within the row (swizzle), so that eight rows of one part lie in different banks; weights lie in fragment order.
 *
 * Weights [chunk pair][16 channels][lane][8 halves], the fragments b[0..1] of two column blocks,
 * with zeros up to a whole number of steps; bias [16-channel blocks]. NORM (1x1; channels rounded up to 64): x is
 * normalised on the way; the weights have the scale, bias the shift and behind it [16-channel blocks] sums of a
 * channel's weights. With splits > 1 a tile's steps are divided among groups: each leaves its sums in
 * partial[tile][split], and the last to arrive adds them up in the order of the splits and finishes the tile;
 * arrived[tile] counts and is zero before and after. Grid: x = tiles times the group, those of the same pixels one
 * after the other (they find them in a cache), y = 1, z = splits. ACT: the activation. POINT: 1x1, stride 1, no
 * padding; else, without GATHER, at most 31 taps. HALO: splits begin with a block. */
#define THREADS (32 * WM * WN * WK)
#define TM      (BM / WM) /* a warp's tile, and its fragments */
#define TN      (BN / WN)
#define MI      (TM / 16)
#define NI      (TN / 8)
#define KI      (BK / 16 / WK) /* a warp's instructions along a step */
#define PARTS   (BK / 8)       /* 16-byte parts of a row in local memory */
#define PASS    (THREADS / PARTS)
#define PASSES  ((BM + PASS - 1) / PASS)
#ifdef HALO
#define TAPS        9
#define LINE        16 /* of SQUARE */
#define PATCH_LINE  (LINE + 2)
#define PATCH       ((HALO + 1) * BK * 2) /* the pixels of a block and one of zeros */
#define A_BYTES     (2 * PATCH)
#define STAGE       (BN * BK * 2)
#define TILES_BYTES (A_BYTES + STAGES * STAGE)
#define SLICES      (TAPS + 1 - STAGES) /* steps in which the next block is copied: not before this one's first */
#define SLICE       ((HALO + PASS * SLICES - 1) / (PASS * SLICES)) /* passes of each */
#else
#define A_BYTES     (BM * BK * 2)
#define STAGE       (A_BYTES + BN * BK * 2)
#define TILES_BYTES (STAGES * STAGE)
#endif
#define B_PARTS  (BN * BK / 8)
#define B_COPIES ((B_PARTS + THREADS - 1) / THREADS)
#if THREADS == 128 && WK == 1 && BM >= 64 && BN >= 64 && !defined(Y32)
#define IN_PLACE    /* results are made from fragments; as halves they pass through local memory, where addends await  \
                       them */
#define SUMS_BYTES  (BM * BN * 2)
#else
#define PITCH      (BN + 8) /* floats of a row of sums: rows of a fragment lie in different banks */
#define SUMS_BYTES (WK * BM * PITCH * 4)
#endif
#define MAIN_BYTES (TILES_BYTES > SUMS_BYTES ? TILES_BYTES : SUMS_BYTES)
#ifdef NORM
#define BIAS_BYTES (BN * 8)
#define NORM_BYTES (BM * 8)
#else
#define BIAS_BYTES (BN * 4)
#define NORM_BYTES 0
#endif
#if BK >= 64
#define SWIZZLE(row) ((row)&7)
#else
#define SWIZZLE(row) ((row) >> 1 & 3)
#endif
#ifdef IN_PLACE
/* Part `part` (eight channels) of a row of the tile of results lies at this number of bytes, its parts exchanged within
 * the row so that a fragment's rows lie in different banks. */
#define RESULT_TURN(row)     (BN % 64 == 0 ? (row)&7 : BN % 32 == 0 ? (row) >> 1 & 3 : (row) >> 2 & 1)
#define RESULT_AT(row, part) ((row) * (BN * 2) + (((part) ^ RESULT_TURN(row)) << 4))

/* Copies MOST parts, all or none, of an addend's tile to where the results will lie: of the one behind the activation
 * where BEHIND, else of that before it. */
#define COPY_ADDEND(BEHIND, MOST)                                                                                      \
    do {                                                                                                               \
        int ld = BEHIND ? epi.after_ld : epi.before_ld, c0 = BEHIND ? epi.after_c0 : epi.before_c0;                    \
        int flags =                                                                                                    \
            BEHIND ? epi.flags & EPI_AFTER_ONE ? EPI_BEFORE_ONE : 0 : epi.flags & (EPI_BEFORE_UP2 | EPI_BEFORE_ONE);   \
        __global const T *addend = BEHIND ? after : before;                                                            \
        _Pragma("unroll 1") for (int j = id; j < (MOST); j += THREADS) {                                               \
            int r = j / (BN / 8), at = j % (BN / 8), c = block0 * 16 + at * 8, p = min(ROW_PIXEL(r), all - 1);         \
            int bytes = clamp(2 * (shape.y_c - c), 0, 16);                                                             \
            if (flags) p = place(p, shape, flags, arg.by_w, arg.by_h);                                                 \
            __global const T *from = addend + ((size_t)p * ld + c0 + (bytes ? c : 0));                                 \
            if (((ld | c0) & 7) == 0)                                                                                  \
                COPY16(shared + RESULT_AT(r, at), from, bytes);                                                        \
            else                                                                                                       \
                memory[RESULT_AT(r, at) / 16] = gathered(from, bytes / 2);                                             \
        }                                                                                                              \
    } while (0)

#endif

#ifdef SQUARE
#define PATCH_PIXEL(row) (p0 + ((row) / PATCH_LINE - 1) * shape.x_w + (row) % PATCH_LINE - 1)
#define PATCH_INSIDE(row)                                                                                              \
    ((uint)(y0 - 1 + (row) / PATCH_LINE) < (uint)shape.x_h && (uint)(x0 - 1 + (row) % PATCH_LINE) < (uint)shape.x_w)
#define ROW_PIXEL(r)  (p0 + (r) / LINE * shape.y_w + (r) % LINE)
#define ROW_EXISTS(r) (y0 + (r) / LINE < shape.y_h && x0 + (r) % LINE < shape.y_w)
#else
#define PATCH_PIXEL(row)  (p0 - shape.x_w - 1 + (row))
#define PATCH_INSIDE(row) true
#define ROW_PIXEL(r)      (p0 + (r))
#define ROW_EXISTS(r)     true
#endif

#ifdef HALO
/* Passes FIRST .. FIRST + COUNT over a block's pixels. */
#define COPY_PATCH(BLOCK, FIRST, COUNT)                                                                                \
    do {                                                                                                               \
        _Pragma("unroll") for (int i = 0; i < (COUNT); i++) {                                                          \
            int row = first + ((FIRST) + i) * PASS, p = PATCH_PIXEL(row);                                              \
            bool real = (uint)p < (uint)all && PATCH_INSIDE(row);                                                      \
            if (row < HALO)                                                                                            \
                COPY16(to_a + ((BLOCK)&1) * PATCH + ((FIRST) + i) * (PASS * BK * 2),                                   \
                       x + ((real ? p : 0) * shape.x_ld + shape.x_c0 + (BLOCK)*BK + part * 8), real ? 16 : 0);         \
        }                                                                                                              \
    } while (0)
#define COPY_PIXELS(STEP, SLOT)                                                                                        \
    do {                                                                                                               \
        int block = (STEP) / TAPS, slice = (STEP)-block * TAPS - (STAGES - 1);                                         \
        if (slice >= 0 && (block + 1) * TAPS < end) COPY_PATCH(block + 1, slice * SLICE, SLICE);                       \
    } while (0)
#elif defined(POINT)
#define COPY_PIXELS(STEP, SLOT)                                                                                        \
    do {                                                                                                               \
        int channel = (STEP)*BK + part * 8, bytes = clamp(2 * (shape.x_c - channel), 0, 16);                           \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++) if (BM % PASS == 0 || first + i * PASS < BM)                \
            COPY16(to_a + (SLOT)*STAGE + i * (PASS * BK * 2), x + (offset[i] + channel), bytes);                       \
    } while (0)
#elif defined(BLOCKED)
#define COPY_PIXELS(STEP, SLOT)                                                                                        \
    do {                                                                                                               \
        int block = divided(STEP, arg.by_inner), tap = (STEP)-block * (shape.kh * shape.kw);                           \
        int ky = divided(tap, arg.by_kw);                                                                              \
        int away = (ky * shape.x_w + tap - ky * shape.kw) * shape.x_ld + block * BK + part * 8;                        \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++) if (BM % PASS == 0 || first + i * PASS < BM)                \
            COPY16(to_a + (SLOT)*STAGE + i * (PASS * BK * 2), x + (offset[i] + away), inside[i] >> tap & 1 ? 16 : 0);  \
    } while (0)
#elif !defined(GATHER)
#define COPY_PIXELS(STEP, SLOT)                                                                                        \
    do {                                                                                                               \
        int chunk = (STEP)*PARTS + part, tap = divided(chunk, arg.by_inner), ky = divided(tap, arg.by_kw);             \
        int channel = (chunk - tap * arg.tap_chunks) * 8,                                                              \
            away = (ky * shape.x_w + tap - ky * shape.kw) * shape.x_ld + channel;                                      \
        int bytes = min(2 * (shape.x_c - channel), 16);                                                                \
        tap = min(tap, 31);                                                                                            \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++) if (BM % PASS == 0 || first + i * PASS < BM) COPY16(        \
            to_a + (SLOT)*STAGE + i * (PASS * BK * 2), x + (offset[i] + away), inside[i] >> tap & 1 ? bytes : 0);      \
    } while (0)
#else
#define COPY_PIXELS(STEP, SLOT)                                                                                        \
    do {                                                                                                               \
        int tap_y[8], tap_x[8], away[8];                                                                               \
        _Pragma("unroll") for (int e = 0; e < 8; e++) {                                                                \
            int k = ((STEP)*PARTS + part) * 8 + e, tap = divided(k, arg.by_inner);                                     \
            tap_y[e] = divided(tap, arg.by_kw);                                                                        \
            tap_x[e] = tap - tap_y[e] * shape.kw;                                                                      \
            away[e] = (tap_y[e] * shape.x_w + tap_x[e]) * shape.x_ld + k - tap * shape.x_c;                            \
            if (tap_y[e] >= shape.kh) tap_y[e] = -0x4000;                                                              \
        }                                                                                                              \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++) {                                                           \
            uint v[8];                                                                                                 \
            _Pragma("unroll") for (int e = 0; e < 8; e++) {                                                            \
                int iy = (inside[i] >> 16) + tap_y[e], ix = (int)(short)inside[i] + tap_x[e];                          \
                v[e] = 0;                                                                                              \
                if ((uint)iy < (uint)shape.x_h && (uint)ix < (uint)shape.x_w)                                          \
                    v[e] = ((__global const ushort *)x)[offset[i] + away[e]];                                          \
            }                                                                                                          \
            if (BM % PASS == 0 || first + i * PASS < BM)                                                               \
                memory[(to_a - shared + (SLOT)*STAGE + i * (PASS * BK * 2)) / 16] =                                    \
                    (uint4)(v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16);               \
        }                                                                                                              \
    } while (0)
#endif
#if THREADS % (BN * 2) && BN * 2 % THREADS
#define COPY_WEIGHTS(STEP, SLOT)                                                                                       \
    do {                                                                                                               \
        int at = from_w + (STEP) * (BK / 16) * pair_size;                                                              \
        _Pragma("unroll") for (int i = 0; i < B_COPIES; i++) {                                                         \
            int j = id + i * THREADS, pair = j / (BN * 2), rest = j - pair * (BN * 2);                                 \
            if (B_PARTS % THREADS == 0 || j < B_PARTS)                                                                 \
                COPY16(to_b + (SLOT)*STAGE + i * (THREADS * 16), w + (at + pair * pair_size + rest),                   \
                       rest < real_w ? 16 : 0);                                                                        \
        }                                                                                                              \
    } while (0)
#else
/* Copy i of a work-item: pair B_PAIR(i) of the step (and id / (BN * 2) more), B_REST(i) + id % (BN * 2) in it. */
#define B_PAIR(i) ((i)*THREADS / (BN * 2))
#define B_REST(i) ((i)*THREADS % (BN * 2))
#define COPY_WEIGHTS(STEP, SLOT)                                                                                       \
    do {                                                                                                               \
        int at = from_w + (STEP) * (BK / 16) * pair_size;                                                              \
        _Pragma("unroll") for (int i = 0; i < B_COPIES; i++) if (B_PARTS % THREADS == 0 || id + i * THREADS < B_PARTS) \
            COPY16(to_b + (SLOT)*STAGE + i * (THREADS * 16), w + (at + B_PAIR(i) * pair_size + B_REST(i)),             \
                   B_REST(i) + id % (BN * 2) < real_w ? 16 : 0);                                                       \
    } while (0)
#endif

#ifdef NORM
/* Mean and 1 / deviation of `parts` 8-channel parts of a pixel, part p with the work-item p % 8 of eight. */
static inline float2 statistics(const uint4 *u, int parts, float eps MATRIX_SCRATCH_PARAMETER) {
    int mine = get_local_id(0) % 8;
    float sum = 0.0f, squares = 0.0f, count = parts * 8;
#pragma unroll
    for (int i = 0; i < NORM / 64; i++) {
        float2 a = floats_of(u[i].x), b = floats_of(u[i].y), c = floats_of(u[i].z), d = floats_of(u[i].w);
        if (mine + i * 8 < parts) sum += a.x + a.y + (b.x + b.y) + (c.x + c.y + (d.x + d.y));
    }
    SUM_OF_8(sum);
    float mean = sum / count;
#pragma unroll
    for (int i = 0; i < NORM / 64; i++) {
        float2 a = floats_of(u[i].x) - mean, b = floats_of(u[i].y) - mean;
        float2 c = floats_of(u[i].z) - mean, d = floats_of(u[i].w) - mean;
        a = a * a + b * b + (c * c + d * d);
        if (mine + i * 8 < parts) squares += a.x + a.y;
    }
    SUM_OF_8(squares);
    return (float2)(mean, rsqrt(squares / count + eps));
}
#endif

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
conv(__global const T *restrict x, __global const uint4 *restrict w, __global const float *restrict bias,
     __global float4 *restrict partial, __global int *restrict arrived, __global TY *restrict y,
     __global const T *restrict before, __global const T *restrict after, __global const int *restrict limit,
     conv_mma_args arg) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    MATRIX_SCRATCH
    /* Stages, later sums; bias, with NORM the channels' sums; the rows' norms; a flag. */
    __local uint4 memory[(MAIN_BYTES + BIAS_BYTES + NORM_BYTES) / 16 + 1];
    __local int *flag = (__local int *)(memory + (MAIN_BYTES + BIAS_BYTES + NORM_BYTES) / 16);
    int id = get_local_id(0), lane = id & 31, warp = id >> 5;
    int wm = warp % WM, wn = warp / WM % WN, wk = warp / (WM * WN);
    int splits = arg.splits, split = get_group_id(2);
    int group = get_group_id(0), row_tile = divided(group, arg.by_col_tiles);
    int column_tile = group - row_tile * arg.col_tiles;
    int block0 = column_tile * (BN / 16), all = shape.items * shape.y_h * shape.y_w;
#ifdef SQUARE
    int strip = divided(row_tile, arg.by_w), image = divided(strip, arg.by_h);
    int y0 = (strip - image * arg.squares_y) * (BM / LINE), x0 = (row_tile - strip * arg.squares_x) * LINE;
    int p0 = (image * shape.y_h + y0) * shape.y_w + x0;
#else
    int p0 = row_tile * BM;
#endif
    int step = split * arg.split_steps, end = min(step + arg.split_steps, arg.steps);
    int rows = min(shape.items, *limit) * shape.y_h * shape.y_w;
    uint shared = SHARED(memory);

    /* What this work-item copies: part `part` of the rows first, first + PASS, .. and of the weights. */
    int part = id % PARTS, first = id / PARTS;
    uint to_a = shared + first * (BK * 2) + ((part ^ SWIZZLE(first)) << 4), to_b = shared + A_BYTES + id * 16;
    int pair_size = arg.blocks * 32, real_w = pair_size - block0 * 32;
    int from_w = block0 * 32;
#ifdef B_PAIR
    from_w += id / (BN * 2) * pair_size + id % (BN * 2);
#endif
#ifndef HALO
    int offset[PASSES]; /* of the pixel (with padding: where its window starts), in elements */
#ifndef POINT
    int inside[PASSES]; /* taps inside the map, a bit each; GATHER: the window's first row and column, 16 bits each */
#endif
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
        int p = min(p0 + first + i * PASS, all - 1); /* rows beyond the last are made and not stored */
#ifdef POINT
        offset[i] = p * shape.x_ld + shape.x_c0;
#else
        int line = divided(p, arg.by_w), n = divided(line, arg.by_h);
        int iy = (line - n * shape.y_h) * shape.stride - shape.top;
        int ix = (p - line * shape.y_w) * shape.stride - shape.left;
        offset[i] = ((n * shape.x_h + iy) * shape.x_w + ix) * shape.x_ld + shape.x_c0;
#ifdef GATHER
        inside[i] = (int)((uint)iy << 16 | (ix & 0xffff));
#else
        inside[i] = inside_bits(iy, ix, shape);
#endif
#endif
    }
#endif

    for (int i = id; i < BIAS_BYTES / 16; i += THREADS) {
        int row = i / (BN / 4), column = i % (BN / 4);
        bool real = block0 + column / 4 < arg.blocks;
        COPY16(shared + MAIN_BYTES + i * 16, bias + ((row * arg.blocks + block0) * 16 + column * 4), real ? 16 : 0);
    }
#ifdef HALO
    COPY_PATCH(step / TAPS, 0, (HALO + PASS - 1) / PASS);
    if (id < 2 * PARTS) memory[(id / PARTS * PATCH + HALO * (BK * 2)) / 16 + id % PARTS] = (uint4)(0);
#endif
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++) {
        if (step + s < end) {
            COPY_WEIGHTS(step + s, s);
            COPY_PIXELS(step + s, s);
        }
        COPY_COMMIT();
    }
#ifdef NORM
    /* (x - mean) / deviation (gamma W) = (x (gamma W) - mean (1 gamma W)) / deviation: the product is that of the map
     * as it is, and rows are corrected behind it. */
    __local float2 *norms = (__local float2 *)(memory + (MAIN_BYTES + BIAS_BYTES) / 16);
#pragma unroll 1
    for (int r = id / 8; r < BM; r += THREADS / 8) {
        __global const uint4 *from =
            (__global const uint4 *)(x + ((size_t)min(p0 + r, all - 1) * shape.x_ld + shape.x_c0));
        int parts = shape.x_c / 8;
        uint4 u[NORM / 64];
#pragma unroll
        for (int i = 0; i < NORM / 64; i++) u[i] = from[min(id % 8 + i * 8, parts - 1)];
        float2 norm = statistics(u, parts, arg.norm_eps MATRIX_SCRATCH_ARGUMENT);
        if (id % 8 == 0) norms[r] = norm;
    }
#endif
    if (p0 >= rows) {
        COPY_WAIT(0); /* no copy outlives its group */
        return;
    }

    float acc[MI][NI][4];
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NI; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) acc[i][j][e] = 0.0f;

    int a_row = wm * TM + lane % 16;
#ifdef HALO
#ifdef SQUARE
#define PATCH_ROW(i) ((wm * (TM / LINE) + (i)) * PATCH_LINE + lane % LINE + tap / 3 * PATCH_LINE + tap % 3)
#else
#define PATCH_ROW(i) (inside[i] >> tap & 1 ? a_row + (i)*16 + tap / 3 * shape.x_w + tap % 3 : HALO)
    int inside[MI]; /* taps inside the map, a bit each */
#pragma unroll
    for (int i = 0; i < MI; i++) {
        int p = min(p0 + a_row + i * 16, all - 1), line = divided(p, arg.by_w), n = divided(line, arg.by_h);
        uint columns = valid_bits(p - line * shape.y_w - 1, 3, shape.x_w);
        uint lines = valid_bits(line - n * shape.y_h - 1, 3, shape.x_h);
        inside[i] =
            (int)((lines & 1 ? columns : 0u) | (lines & 2 ? columns << 3 : 0u) | (lines & 4 ? columns << 6 : 0u));
    }
#endif
    int tap = 0, patch = step / TAPS & 1;
    uint from_a[MI], a_part[MI];
#define AT_STEP()                                                                                                      \
    do {                                                                                                               \
        _Pragma("unroll") for (int i = 0; i < MI; i++) {                                                               \
            int row = PATCH_ROW(i);                                                                                    \
            from_a[i] = shared + patch * PATCH + row * (BK * 2);                                                       \
            a_part[i] = ((lane / 16 ^ SWIZZLE(row)) << 4) ^ wk << 5;                                                   \
        }                                                                                                              \
        tap = tap == TAPS - 1 ? 0 : tap + 1;                                                                           \
        patch ^= tap == 0;                                                                                             \
    } while (0)
#define A_ADDRESS(I, SLOT, K) (from_a[I] + (a_part[I] ^ (K)*WK << 5))
#else
#define AT_STEP()
#define A_ADDRESS(I, SLOT, K) (from_a + (SLOT)*STAGE + (I) * (16 * BK * 2) + (a_part ^ (K)*WK << 5))
    uint from_a = shared + a_row * (BK * 2), a_part = ((lane / 16 ^ SWIZZLE(a_row)) << 4) ^ wk << 5;
#endif
    uint from_b = shared + A_BYTES + (wk * (BN / 16) + wn * (TN / 16)) * 512 + lane * 16;
    uint a[2][MI][4], b[2][NI / 2][4];
#define LOAD_FRAGMENTS(SLOT, K)                                                                                        \
    do {                                                                                                               \
        _Pragma("unroll") for (int i = 0; i < MI; i++) MATRIX_LOAD(a[(K) % 2][i], A_ADDRESS(i, SLOT, (K) % KI));       \
        _Pragma("unroll") for (int j = 0; j < NI / 2; j++)                                                             \
            SHARED_LOAD(b[(K) % 2][j], from_b + (SLOT)*STAGE + ((K) % KI * WK * (BN / 16) + j) * 512);                 \
    } while (0)
/* The step in SLOT begins; its first fragments are the K-th loaded. */
#define BEGIN_STEP(SLOT, K)                                                                                            \
    do {                                                                                                               \
        COPY_WAIT(AHEAD);                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        AT_STEP();                                                                                                     \
        LOAD_FRAGMENTS(SLOT, K);                                                                                       \
    } while (0)
#define COPY_AHEAD()                                                                                                   \
    do {                                                                                                               \
        int free_slot = slot == 0 ? STAGES - 1 : slot - 1;                                                             \
        if (step + STAGES - 1 < end) {                                                                                 \
            COPY_WEIGHTS(step + STAGES - 1, free_slot);                                                                \
            COPY_PIXELS(step + STAGES - 1, free_slot);                                                                 \
        }                                                                                                              \
        COPY_COMMIT();                                                                                                 \
    } while (0)
    /* HALO, whose groups are few on a unit: the next step begins before this one's last multiplications, so that its
     * first fragments come meanwhile (KI is even; behind the last step some are loaded and not used). Elsewhere the
     * registers for that cost more than it gains. */
    int slot = 0;
#ifdef HALO
    BEGIN_STEP(0, 0);
#endif
    for (; step < end; step++) {
        int next = slot == STAGES - 1 ? 0 : slot + 1;
#ifndef HALO
        BEGIN_STEP(slot, 0);
        COPY_AHEAD();
#endif
#pragma unroll
        for (int k = 0; k < KI; k++) {
            if (k + 1 < KI) LOAD_FRAGMENTS(slot, k + 1);
#ifdef HALO
            if (k + 1 == KI) BEGIN_STEP(next, KI);
            if (k == 0) COPY_AHEAD();
#endif
#pragma unroll
            for (int j = 0; j < NI / 2; j++)
#pragma unroll
                for (int i = 0; i < MI; i++) {
                    MATRIX_MULTIPLY(acc[i][2 * j], a[k % 2][i], b[k % 2][j][0], b[k % 2][j][1]);
                    MATRIX_MULTIPLY(acc[i][2 * j + 1], a[k % 2][i], b[k % 2][j][2], b[k % 2][j][3]);
                }
        }
        slot = next;
    }
    COPY_WAIT(0);

    if (splits > 1) {
        __global float4 *mine = partial + (size_t)(group * splits + split) * (MI * NI * THREADS) + id;
#pragma unroll
        for (int f = 0; f < MI * NI; f++) {
            float *c = acc[f / NI][f % NI];
            mine[f * THREADS] = (float4)(c[0], c[1], c[2], c[3]);
        }
        DEVICE_FENCE();
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        if (id == 0) {
            int before_me = atomic_inc((volatile __global int *)arrived + group);
            *flag = before_me == splits - 1;
            if (before_me == splits - 1) arrived[group] = 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (!*flag) return;
        DEVICE_FENCE();
        __global const float4 *all_sums = partial + (size_t)group * splits * (MI * NI * THREADS) + id;
#pragma unroll
        for (int f = 0; f < MI * NI; f++) {
            float4 sum = load_shared_result(all_sums + f * THREADS);
#pragma unroll 1
            for (int s = 1; s < splits; s++)
                sum += load_shared_result(all_sums + (size_t)(s * (MI * NI) + f) * THREADS);
            float *c = acc[f / NI][f % NI];
            c[0] = sum.x, c[1] = sum.y, c[2] = sum.z, c[3] = sum.w;
        }
    }

    bool y_aligned = ((shape.y_ld | shape.y_c0) & (sizeof(TY) == 2 ? 7 : 3)) == 0;
#ifdef IN_PLACE
    /* From fragments, two neighbouring channels of a pixel in each word, by the way of the tile in local memory, so
     * that a work-item stores eight channels. */
    int most = epi.flags & (EPI_BEFORE | EPI_AFTER) ? BM * BN / 8 : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    COPY_ADDEND(!(epi.flags & EPI_BEFORE), most);
    COPY_COMMIT();
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    int g = lane / 4, t = lane % 4;
    __local uint *tile = (__local uint *)memory + ((wm * TM + g) * (BN * 2)) / 4 + t;
#define PAIR(i, j, h) tile[((i)*16 + (h)*8) * (BN / 2) + ((wn * (TN / 8) + (j) ^ RESULT_TURN(g)) << 2)]
#define ADD_ADDEND()                                                                                                   \
    do {                                                                                                               \
        _Pragma("unroll") for (int i = 0; i < MI; i++) _Pragma("unroll") for (int j = 0; j < NI; j++)                  \
            _Pragma("unroll") for (int h = 0; h < 2; h++) {                                                            \
            float2 addend = floats_of(PAIR(i, j, h));                                                                  \
            acc[i][j][2 * h] += addend.x, acc[i][j][2 * h + 1] += addend.y;                                            \
        }                                                                                                              \
    } while (0)
    __local const float2 *biases = (__local const float2 *)(memory + MAIN_BYTES / 16) + wn * (TN / 2) + t;
#pragma unroll
    for (int j = 0; j < NI; j++) {
        float2 b = biases[j * 4];
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float2 v = (float2)(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
#ifdef NORM
                float2 norm = norms[wm * TM + i * 16 + h * 8 + g];
                v = norm.y * (v - norm.x * biases[BN / 2 + j * 4]);
#endif
                acc[i][j][2 * h] = v.x + b.x, acc[i][j][2 * h + 1] = v.y + b.y;
            }
    }
    if (epi.flags & EPI_BEFORE) ADD_ADDEND();
    float lab_scale = epi.flags & EPI_LAB ? epi.lab_scale : 1.0f, lab_bias = epi.flags & EPI_LAB ? epi.lab_bias : 0.0f;
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NI; j++)
#pragma unroll
            for (int e = 0; e < 4; e += 2) {
                float2 v = activated((float2)(acc[i][j][e], acc[i][j][e + 1]));
                acc[i][j][e] = fma(v.x, lab_scale, lab_bias), acc[i][j][e + 1] = fma(v.y, lab_scale, lab_bias);
            }
    if (epi.flags & EPI_AFTER && epi.flags & EPI_BEFORE) {
        most = BM * BN / 8;
        barrier(CLK_LOCAL_MEM_FENCE);
        COPY_ADDEND(true, most);
        COPY_COMMIT();
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (epi.flags & EPI_AFTER) ADD_ADDEND();
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NI; j++)
#pragma unroll
            for (int h = 0; h < 2; h++) PAIR(i, j, h) = halves_of(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
    barrier(CLK_LOCAL_MEM_FENCE);
#ifdef SQUARE
    most = p0 < rows ? BM * BN / 8 : 0;
#else
    most = min(BM, rows - p0) * (BN / 8);
#endif
#pragma unroll 4
    for (int j = id; j < most; j += THREADS) {
        int r = j / (BN / 8), at = j % (BN / 8), c = block0 * 16 + at * 8, p = ROW_PIXEL(r);
        store_halves(memory[RESULT_AT(r, at) / 16], y + (size_t)p * shape.y_ld + shape.y_c0 + c,
                     ROW_EXISTS(r) ? shape.y_c - c : 0, y_aligned);
    }
#else
    int column = id % (BN / 8) * 8, c = block0 * 16 + column, left = shape.y_c - c;
    bool before_aligned = ((epi.before_ld | epi.before_c0) & 7) == 0;
    bool after_aligned = ((epi.after_ld | epi.after_c0) & 7) == 0;
    __local const float4 *biases = (__local const float4 *)(memory + MAIN_BYTES / 16) + column / 4;
    float4 bias_low = biases[0], bias_high = biases[1];
#ifdef NORM
    float4 sum_low = biases[BN / 4], sum_high = biases[BN / 4 + 1]; /* of the channels' weights */
#endif
    __local float *sums = (__local float *)memory;
    if (THREADS % (BN / 8) && id >= THREADS / (BN / 8) * (BN / 8)) left = 0;

    /* From fragments to rows, so that a work-item has eight channels of one pixel. */
    barrier(CLK_LOCAL_MEM_FENCE);
    int row = wk * BM + wm * TM + lane / 4;
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NI; j++) {
            __local float *to = sums + (row + i * 16) * PITCH + wn * TN + j * 8 + lane % 4 * 2;
            *(__local float2 *)to = (float2)(acc[i][j][0], acc[i][j][1]);
            *(__local float2 *)(to + 8 * PITCH) = (float2)(acc[i][j][2], acc[i][j][3]);
        }
    barrier(CLK_LOCAL_MEM_FENCE);
#ifdef SQUARE
    int most = left > 0 ? BM : 0;
#else
    int most = left > 0 ? min(BM, rows - p0) : 0;
#endif
#pragma unroll 2
    for (int r = id / (BN / 8); r < most; r += THREADS / (BN / 8)) {
        int p = ROW_PIXEL(r), from_before = p, from_after = p;
        if (!ROW_EXISTS(r)) continue;
        if (epi.flags & (EPI_BEFORE_UP2 | EPI_BEFORE_ONE | EPI_AFTER_ONE)) {
            from_before = place(p, shape, epi.flags & (EPI_BEFORE_UP2 | EPI_BEFORE_ONE), arg.by_w, arg.by_h);
            from_after = place(p, shape, epi.flags & EPI_AFTER_ONE ? EPI_BEFORE_ONE : 0, arg.by_w, arg.by_h);
        }
        __local const float4 *from = (__local const float4 *)(sums + r * PITCH + column);
        float4 low = from[0], high = from[1];
#pragma unroll
        for (int k = 1; k < WK; k++) low += from[k * (BM * PITCH / 4)], high += from[k * (BM * PITCH / 4) + 1];
#ifdef NORM
        float2 norm = norms[r];
        low = norm.y * (low - norm.x * sum_low), high = norm.y * (high - norm.x * sum_high);
#endif
        low += bias_low, high += bias_high;
        float v[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        if (epi.flags & EPI_BEFORE)
            add_part(v, before + (size_t)from_before * epi.before_ld + epi.before_c0 + c, left, before_aligned);
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            float2 a = activated((float2)(v[i], v[i + 1]));
            v[i] = a.x, v[i + 1] = a.y;
        }
        if (epi.flags & EPI_LAB) {
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = fma(v[i], epi.lab_scale, epi.lab_bias);
        }
        if (epi.flags & EPI_AFTER)
            add_part(v, after + (size_t)from_after * epi.after_ld + epi.after_c0 + c, left, after_aligned);
        store_part(v, y + (size_t)p * shape.y_ld + shape.y_c0 + c, left, y_aligned);
    }
#endif
}
