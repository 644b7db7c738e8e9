/* Dense convolution in half storage as an implicit matrix product on matrix instructions, sums in float: a work-group of
 * WM x WN warps makes BM output pixels by BN channels. Goes with isa/ptx.
 *
 * The product runs over `chunks` of eight inputs: of each tap in turn the channels, padded with zeros to a multiple of
 * eight; with GATHER (pixels that do not start on 16 bytes, few channels) the taps follow each other without padding.
 * A step takes BK / 8 chunks. Steps are copied to local memory STAGES - 1 ahead (AHEAD is STAGES - 2), zeros standing
 * for padding, rows and chunks that do not exist. Pixels lie there in rows of BK halves whose 16-byte parts are exchanged
 * within the row (swizzle), so that eight rows of one part lie in different banks; weights lie in fragment order.
 *
 * Arguments: weights [phase][chunk pair][16 channels][lane][8 halves], the fragments b[0..1] of two column blocks;
 * bias [16-channel blocks]. With splits > 1 a tile's steps are divided among groups: each leaves its sums in
 * partial[tile][split], and the last to arrive adds them up in the order of the splits and finishes the tile; arrived
 * [tile] counts and is zero before and after.
 * in = {h, w, ld, c0, c, c in units of `div` 2, 0, 0}, win and out as in op/conv,
 * tiles = {chunk pairs, 16-channel blocks, steps, splits, chunks, 0, 0, 0},
 * div = {multiplier, shift} for out width, out height, chunks of a tap (GATHER: channels), kernel width.
 * Grid: x = row tiles times the group, y = column tiles, z = phases * splits. POINT: 1x1, stride 1, no padding. */
#define THREADS (32 * WM * WN)
#define TM      (BM / WM)
#define TN      (BN / WN)
#define MI      (TM / 16)
#define NI      (TN / 8)
#define PARTS   (BK / 8) /* 16-byte parts of a row in local memory */
#define PASS    (THREADS / PARTS)
#define PASSES  ((BM + PASS - 1) / PASS)
#define A_BYTES (BM * BK * 2)
#define STAGE   (A_BYTES + BN * BK * 2)
#define B_PARTS (BN * BK / 8)
#define B_COPIES ((B_PARTS + THREADS - 1) / THREADS)
#define PITCH   (BN + 8) /* floats of a row of sums: rows of a fragment lie in different banks */
#define TILES_BYTES (STAGES * STAGE)
#define SUMS_BYTES  (BM * PITCH * 4)
#define MAIN_BYTES  (TILES_BYTES > SUMS_BYTES ? TILES_BYTES : SUMS_BYTES)
#if BK == 64
#define SWIZZLE(row) ((row) & 7)
#else
#define SWIZZLE(row) ((row) >> 1 & 3)
#endif
#ifdef Y32
typedef float TY;
#else
typedef T TY;
#endif

/* n / d for 0 <= n < 2^31 (Granlund and Montgomery 1994). */
static inline int divided(int n, int multiplier, int shift) {
    return (int)((ulong)(uint)n * (uint)multiplier >> shift);
}

/* Activations to the precision of half. GELU: v times the normal distribution's integral by the rational approximation
 * 7.1.26 of Abramowitz and Stegun, 1.5e-7 absolute. */
static inline float activated(float v, int act) {
    if (act == ACT_RELU) return max(v, 0.0f);
    if (act == ACT_SILU) return v * quick_reciprocal(1.0f + quick_exp2(-1.44269504f * v));
    if (act == ACT_SIGMOID) return quick_reciprocal(1.0f + quick_exp2(-1.44269504f * v));
    if (act == ACT_GELU) {
        float a = fabs(v), t = quick_reciprocal(fma(a, 0.3275911f * 0.70710678f, 1.0f));
        float p = fma(t, 0.5f * 1.061405429f, 0.5f * -1.453152027f);
        p = fma(p, t, 0.5f * 1.421413741f);
        p = fma(p, t, 0.5f * -0.284496736f);
        p = fma(p, t, 0.5f * 0.254829592f) * t * quick_exp2(v * v * (-0.5f * 1.44269504f)) * a;
        return v > 0.0f ? v - p : -p;
    }
    return v;
}

/* v[0..8) += the addend's channels, of which `left` exist. */
static inline void add_part(float *v, __global const T *p, int left, bool aligned) {
    if (aligned && left >= 8) {
        uint4 u = *(__global const uint4 *)p;
        float2 a = floats_of(u.x), b = floats_of(u.y), c = floats_of(u.z), d = floats_of(u.w);
        v[0] += a.x, v[1] += a.y, v[2] += b.x, v[3] += b.y, v[4] += c.x, v[5] += c.y, v[6] += d.x, v[7] += d.y;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < left) v[i] += LOAD(p, i);
    }
}

static inline void store_part(const float *v, __global TY *p, int left, bool aligned) {
    if (aligned && left >= 8) {
#ifdef Y32
        ((__global float4 *)p)[0] = (float4)(v[0], v[1], v[2], v[3]);
        ((__global float4 *)p)[1] = (float4)(v[4], v[5], v[6], v[7]);
#else
        *(__global uint4 *)p =
            (uint4)(halves_of(v[0], v[1]), halves_of(v[2], v[3]), halves_of(v[4], v[5]), halves_of(v[6], v[7]));
#endif
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) {
#ifdef Y32
            if (i < left) p[i] = v[i];
#else
            if (i < left) STORE(v[i], p, i);
#endif
        }
    }
}

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
conv(__global const T *restrict x, __global const uint4 *restrict w, __global const float *restrict bias,
     __global float4 *restrict partial, __global int *restrict arrived, __global TY *restrict y,
     __global const T *restrict before, __global const T *restrict after, __global const int *restrict limit, int8 in,
     int8 win, int8 out, int8 epi, float4 lab, int8 tiles, int8 div) {
    __local uint4 memory[(MAIN_BYTES + BN * 4) / 16 + 1]; /* stages, later sums; bias; a flag */
    __local const float *biases = (__local const float *)(memory + MAIN_BYTES / 16);
    __local int *flag = (__local int *)(memory + (MAIN_BYTES + BN * 4) / 16);
    int id = get_local_id(0), lane = id & 31, warp = id >> 5, wm = warp % WM, wn = warp / WM;
    int pairs = tiles.s0, blocks = tiles.s1, splits = tiles.s3, chunks = tiles.s4;
    int split = get_group_id(2) % splits, phase = get_group_id(2) / splits;
    int p0 = get_group_id(0) * BM, block0 = get_group_id(1) * (BN / 16), all = out.s0 * out.s1 * out.s2;
    int step = tiles.s2 * split / splits, end = tiles.s2 * (split + 1) / splits;
    int rows = min(out.s0, *limit) * out.s1 * out.s2;
    uint shared = SHARED(memory);
    w += (size_t)phase * pairs * blocks * 32;

    /* What this work-item copies: part `part` of the rows first, first + PASS, .. and of the weights. */
    int part = id % PARTS, first = id / PARTS;
    uint to_a = shared + first * (BK * 2) + ((part ^ SWIZZLE(first)) << 4), to_b = shared + A_BYTES + id * 16;
    int offset[PASSES]; /* of the pixel (with padding: where its window starts), in elements */
#ifndef POINT
    int corner[PASSES]; /* the window's first row and column, 16 bits each */
#endif
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
        int p = p0 + first + i * PASS;
#ifdef POINT
        offset[i] = p < all && (BM % PASS == 0 || first + i * PASS < BM) ? p * in.s2 + in.s3 : -1;
#else
        int line = divided(p, div.s0, div.s1), n = divided(line, div.s2, div.s3);
        int iy = (line - n * out.s1) * win.s2 - win.s3, ix = (p - line * out.s2) * win.s2 - win.s4;
        offset[i] = ((n * in.s0 + iy) * in.s1 + ix) * in.s2 + in.s3;
        if (p >= all) iy = -0x4000;
        corner[i] = (int)((uint)iy << 16 | (ix & 0xffff));
#endif
    }

#ifdef GATHER
#define COPY_PIXELS(STEP, SLOT)                                                                                        \
    do {                                                                                                               \
        int tap_y[8], tap_x[8], away[8];                                                                               \
        _Pragma("unroll") for (int e = 0; e < 8; e++) {                                                                \
            int k = ((STEP) * PARTS + part) * 8 + e, tap = divided(k, div.s4, div.s5);                                 \
            tap_y[e] = divided(tap, div.s6, div.s7);                                                                   \
            tap_x[e] = tap - tap_y[e] * win.s1;                                                                        \
            away[e] = (tap_y[e] * in.s1 + tap_x[e]) * in.s2 + k - tap * in.s4;                                         \
            if (tap_y[e] >= win.s0) tap_y[e] = -0x4000;                                                                \
        }                                                                                                              \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++) {                                                           \
            uint v[8];                                                                                                 \
            _Pragma("unroll") for (int e = 0; e < 8; e++) {                                                            \
                int iy = (corner[i] >> 16) + tap_y[e], ix = (int)(short)corner[i] + tap_x[e];                          \
                v[e] = 0;                                                                                              \
                if ((uint)iy < (uint)in.s0 && (uint)ix < (uint)in.s1)                                                  \
                    v[e] = ((__global const ushort *)x)[offset[i] + away[e]];                                          \
            }                                                                                                          \
            if (BM % PASS == 0 || first + i * PASS < BM)                                                               \
                memory[(to_a - shared + (SLOT) * STAGE + i * (PASS * BK * 2)) / 16] =                                  \
                    (uint4)(v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16);               \
        }                                                                                                              \
    } while (0)
#elif defined(POINT)
#define COPY_PIXELS(STEP, SLOT)                                                                                        \
    do {                                                                                                               \
        int channel = ((STEP) * PARTS + part) * 8, bytes = clamp(2 * (in.s4 - channel), 0, 16);                        \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++) {                                                           \
            bool real = offset[i] >= 0 && bytes > 0;                                                                   \
            if (BM % PASS == 0 || first + i * PASS < BM)                                                               \
                COPY16(to_a + (SLOT) * STAGE + i * (PASS * BK * 2), x + (real ? offset[i] + channel : 0),              \
                       real ? bytes : 0);                                                                              \
        }                                                                                                              \
    } while (0)
#else
#define COPY_PIXELS(STEP, SLOT)                                                                                        \
    do {                                                                                                               \
        int chunk = (STEP) * PARTS + part, tap = divided(chunk, div.s4, div.s5), channel = (chunk - tap * in.s5) * 8;  \
        int ky = divided(tap, div.s6, div.s7), kx = tap - ky * win.s1, bytes = min(2 * (in.s4 - channel), 16);         \
        int away = (ky * in.s1 + kx) * in.s2 + channel;                                                                \
        if (chunk >= chunks) ky = -0x4000;                                                                             \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++) {                                                           \
            int iy = (corner[i] >> 16) + ky, ix = (int)(short)corner[i] + kx;                                          \
            bool real = (uint)iy < (uint)in.s0 && (uint)ix < (uint)in.s1;                                              \
            if (BM % PASS == 0 || first + i * PASS < BM)                                                               \
                COPY16(to_a + (SLOT) * STAGE + i * (PASS * BK * 2), x + (real ? offset[i] + away : 0),                 \
                       real ? bytes : 0);                                                                              \
        }                                                                                                              \
    } while (0)
#endif
#define COPY_WEIGHTS(STEP, SLOT)                                                                                       \
    do {                                                                                                               \
        _Pragma("unroll") for (int i = 0; i < B_COPIES; i++) {                                                         \
            int j = id + i * THREADS, pair = (STEP) * (BK / 16) + j / (BN * 2), of_pair = j % (BN * 2);                \
            bool real = pair < pairs && block0 + of_pair / 32 < blocks;                                                \
            if (B_PARTS % THREADS == 0 || j < B_PARTS)                                                                 \
                COPY16(to_b + (SLOT) * STAGE + i * (THREADS * 16),                                                     \
                       w + (real ? (pair * blocks + block0) * 32 + of_pair : 0), real ? 16 : 0);                       \
        }                                                                                                              \
    } while (0)

    if (id < BN / 4) {
        bool real = block0 + id / 4 < blocks;
        COPY16(shared + MAIN_BYTES + id * 16, bias + (real ? block0 * 16 + id * 4 : 0), real ? 16 : 0);
    }
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (step + s < end) {
            COPY_WEIGHTS(step + s, s);
            COPY_PIXELS(step + s, s);
        }
        COPY_COMMIT();
    }
    if (p0 >= rows) return;

    float acc[MI][NI][4];
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NI; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) acc[i][j][e] = 0.0f;

    int a_row = wm * TM + lane % 16;
    uint from_a = shared + a_row * (BK * 2), a_part = (lane / 16 ^ SWIZZLE(a_row)) << 4;
    uint from_b = shared + A_BYTES + wn * (TN / 16 * 512) + lane * 16;
    int slot = 0;
    for (; step < end; step++) {
        COPY_WAIT(AHEAD);
        barrier(CLK_LOCAL_MEM_FENCE);
        int free_slot = slot == 0 ? STAGES - 1 : slot - 1;
        if (step + STAGES - 1 < end) {
            COPY_WEIGHTS(step + STAGES - 1, free_slot);
            COPY_PIXELS(step + STAGES - 1, free_slot);
        }
        COPY_COMMIT();
#pragma unroll
        for (int k = 0; k < BK / 16; k++) {
            uint a[MI][4], b[NI / 2][4];
#pragma unroll
            for (int i = 0; i < MI; i++)
                MATRIX_LOAD(a[i], from_a + slot * STAGE + i * (16 * BK * 2) + (a_part ^ k << 5));
#pragma unroll
            for (int j = 0; j < NI / 2; j++)
                SHARED_LOAD(b[j], from_b + slot * STAGE + (k * (BN / 16) + j) * 512);
#pragma unroll
            for (int j = 0; j < NI / 2; j++)
#pragma unroll
                for (int i = 0; i < MI; i++) {
                    MATRIX_MULTIPLY(acc[i][2 * j], a[i], b[j][0], b[j][1]);
                    MATRIX_MULTIPLY(acc[i][2 * j + 1], a[i], b[j][2], b[j][3]);
                }
        }
        slot = slot == STAGES - 1 ? 0 : slot + 1;
    }
    COPY_WAIT(0);

    if (splits > 1) {
        int tile = (phase * get_num_groups(1) + get_group_id(1)) * get_num_groups(0) + get_group_id(0);
        __global float4 *mine = partial + (size_t)(tile * splits + split) * (MI * NI * THREADS) + id;
#pragma unroll
        for (int f = 0; f < MI * NI; f++) {
            float *c = acc[f / NI][f % NI];
            mine[f * THREADS] = (float4)(c[0], c[1], c[2], c[3]);
        }
        DEVICE_FENCE();
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        if (id == 0) {
            int before_me = atomic_inc((volatile __global int *)arrived + tile);
            *flag = before_me == splits - 1;
            if (before_me == splits - 1) arrived[tile] = 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (!*flag) return;
        DEVICE_FENCE();
        __global const float4 *all_sums = partial + (size_t)tile * splits * (MI * NI * THREADS) + id;
#pragma unroll
        for (int f = 0; f < MI * NI; f++) {
            float4 sum = load_shared_result(all_sums + f * THREADS);
            for (int s = 1; s < splits; s++)
                sum += load_shared_result(all_sums + (size_t)(s * (MI * NI) + f) * THREADS);
            float *c = acc[f / NI][f % NI];
            c[0] = sum.x, c[1] = sum.y, c[2] = sum.z, c[3] = sum.w;
        }
    }

    /* From fragments to rows, so that a work-item has eight channels of one pixel. */
    __local float *sums = (__local float *)memory;
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NI; j++) {
            __local float *to = sums + (wm * TM + i * 16 + lane / 4) * PITCH + wn * TN + j * 8 + lane % 4 * 2;
            *(__local float2 *)to = (float2)(acc[i][j][0], acc[i][j][1]);
            *(__local float2 *)(to + 8 * PITCH) = (float2)(acc[i][j][2], acc[i][j][3]);
        }
    barrier(CLK_LOCAL_MEM_FENCE);

    int column = id % (BN / 8) * 8, c = block0 * 16 + column, left = out.s5 - c, up = out.s6;
    bool y_aligned = ((out.s3 | out.s4) & (sizeof(TY) == 2 ? 7 : 3)) == 0;
    bool before_aligned = ((epi.s2 | epi.s3) & 7) == 0, after_aligned = ((epi.s4 | epi.s5) & 7) == 0;
    if (left <= 0) return;
#pragma unroll 4
    for (int r = id / (BN / 8); r < BM; r += THREADS / (BN / 8)) {
        int p = p0 + r, dst = p, from_before = p, from_after = p;
        if (p >= rows) break;
        if (up > 1 || epi.s1 & (EPI_BEFORE_UP2 | EPI_BEFORE_ONE | EPI_AFTER_ONE)) {
            int line = divided(p, div.s0, div.s1), n = divided(line, div.s2, div.s3), h = out.s1 * up, wd = out.s2 * up;
            int oy = (line - n * out.s1) * up + (phase >> 1), ox = (p - line * out.s2) * up + (phase & 1);
            int n_before = epi.s1 & EPI_BEFORE_ONE ? 0 : n, n_after = epi.s1 & EPI_AFTER_ONE ? 0 : n;
            dst = (n * h + oy) * wd + ox;
            from_after = (n_after * h + oy) * wd + ox;
            from_before = (n_before * h + oy) * wd + ox;
            if (epi.s1 & EPI_BEFORE_UP2) from_before = (n_before * (h >> 1) + (oy >> 1)) * (wd >> 1) + (ox >> 1);
        }
        float v[8];
        float4 low = *(__local float4 *)(sums + r * PITCH + column);
        float4 high = *(__local float4 *)(sums + r * PITCH + column + 4);
        v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
        v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] += biases[column + i];
        if (epi.s1 & EPI_BEFORE)
            add_part(v, before + (size_t)from_before * epi.s2 + epi.s3 + c, left, before_aligned);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = activated(v[i], epi.s0);
        if (epi.s1 & EPI_LAB) {
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = fma(v[i], lab.s0, lab.s1);
        }
        if (epi.s1 & EPI_AFTER) add_part(v, after + (size_t)from_after * epi.s4 + epi.s5 + c, left, after_aligned);
        store_part(v, y + (size_t)dst * out.s3 + out.s4 + c, left, y_aligned);
    }
}
