/* A 1x1 convolution without activation and the depthwise K x K convolution behind it as one launch, in half storage
 * with sums in float: a work-group of WM x WN warps makes TILE_H x TILE_W output pixels of BN channels. It computes the
 * 1x1 convolution for every pixel under the tile's windows (PIXELS of them, rounded up to BM) as a matrix product,
 * keeps the result as halves in local memory, zeros outside the map, and sums up the windows from there. What groups
 * compute twice at their borders costs less than a launch and the way through global memory. Goes with nvidia/ptx.
 *
 * The product runs in steps of BK inputs, copied to local memory STAGES - 1 ahead (AHEAD is STAGES - 2); pixels lie
 * there in rows whose 16-byte parts are exchanged within the row (swizzle), so that eight rows of one part lie in
 * different banks. With -D WARPGROUPS (and nvidia/wgmma) two warpgroups multiply, WM is 8 and WN 1.
 *
 * Arguments: y; x; weights [32 inputs][block of 8 channels][lane][8 halves] as variants/fragments.h has them, zeros up
 * to a whole step (WARPGROUPS: [block of BN][step] tiles of 64 inputs); depth [BN channels]{bias of the 1x1
 * convolution, taps [K * K], bias}[BN]. Grid: x = blocks of BN channels times the group, y = tiles, z = items. -D ACT;
 * COLS: outputs of a work-item in a line. */
#ifndef TILE_H
#define TILE_H 5
#define TILE_W 10
#define K      5
#define STRIDE 1
#define COLS   5
#define BN     16
#define WM     8
#define WN     1
#define STAGES 4
#define AHEAD  2
#define ACT    1
#endif
#define THREADS (32 * WM * WN)
#define HALO_H  ((TILE_H - 1) * STRIDE + K)
#define HALO_W  ((TILE_W - 1) * STRIDE + K)
#define PIXELS  (HALO_H * HALO_W)
#define BM      ((PIXELS + 16 * WM - 1) / (16 * WM) * (16 * WM))
#define BK      64
#define TM      (BM / WM) /* a warp's tile, and its fragments */
#define TN      (BN / WN)
#define MI      (TM / 16)
#define NI      (TN / 8)
#define PARTS   (BK / 8) /* 16-byte parts of a row in local memory */
#define PASS    (THREADS / PARTS)
#define PASSES  ((BM + PASS - 1) / PASS)
#define A_BYTES (BM * BK * 2)
#define STAGE   (A_BYTES + BN * BK * 2)
#define B_PARTS (BN * BK / 8)
#define DEPTH   ((K * K + 2) * BN) /* floats */
/* Words of a pixel of the 1x1 convolution's result, an odd multiple of four: fragments lie in different banks. */
#define PITCH   (BN % 16 ? BN / 2 : BN / 2 + 4)
#define SPAN    ((COLS - 1) * STRIDE + K)
#define PAIRS   (BN / 2)
#define STRIPS  (TILE_W / COLS)

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
separable(__global T *restrict y, __global const T *restrict x, __global const uint4 *restrict w,
          __global const float4 *restrict depth, __global const int *restrict limit, separable_args arg) {
    MATRIX_SCRATCH
#ifdef WARPGROUPS
    __local uint4 memory[(STAGES * STAGE + DEPTH * 4) / 16 + 64]; /* from a multiple of 1024 */
    const uint start = SHARED(memory), shared = (start + 1023u) & ~1023u;
#else
    __local uint4 memory[(STAGES * STAGE + DEPTH * 4) / 16];
    const uint start = SHARED(memory), shared = start;
#endif
    __local uint middle[BM * PITCH];
    const int id = get_local_id(0), lane = id & 31, warp = id >> 5, wm = warp % WM, wn = warp / WM;
    const int columns = get_group_id(0), tile_y = (int)get_group_id(1) / arg.across, n = get_group_id(2);
    const int oy0 = tile_y * TILE_H, ox0 = ((int)get_group_id(1) - tile_y * arg.across) * TILE_W;
    const int iy0 = oy0 * STRIDE - arg.top, ix0 = ox0 * STRIDE - arg.left;

    /* What this work-item copies: part `part` of the rows first, first + PASS, .. */
    const int part = id % PARTS, first = id / PARTS;
    const uint to_a = shared + first * (BK * 2) + ((part ^ (first & 7)) << 4);
    int offset[PASSES]; /* in elements; -1 where there is no pixel */
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
        const int row = first + i * PASS, hy = row / HALO_W, iy = iy0 + hy, ix = ix0 + row - hy * HALO_W;
        const bool real = row < PIXELS && (uint)iy < (uint)arg.x_h && (uint)ix < (uint)arg.x_w;
        offset[i] = real ? ((n * arg.x_h + iy) * arg.x_w + ix) * arg.x_ld + arg.x_c0 : -1;
    }
#ifdef WARPGROUPS
#define PART_OF(STEP, j) ((columns * arg.steps + (STEP)) * B_PARTS + (j))
#else
#define PART_OF(STEP, j)                                                                                               \
    ((((STEP) * (BK / 32) + (j) / (BN * 4)) * arg.blocks + columns * (BN / 8)) * 32 + (j) % (BN * 4))
#endif
#define COPY_STEP(STEP, SLOT)                                                                                          \
    do {                                                                                                               \
        _Pragma("unroll") for (int i = 0; i < (B_PARTS + THREADS - 1) / THREADS; i++) {                                \
            const int j = id + i * THREADS;                                                                            \
            if (B_PARTS % THREADS == 0 || j < B_PARTS)                                                                 \
                COPY16(shared + (SLOT)*STAGE + A_BYTES + j * 16, w + PART_OF(STEP, j), 16);                            \
        }                                                                                                              \
        const int channel = (STEP)*BK + part * 8;                                                                      \
        _Pragma("unroll") for (int i = 0; i < PASSES; i++) if (BM % PASS == 0 || first + i * PASS < BM)                \
            COPY16(to_a + (SLOT)*STAGE + i * (PASS * BK * 2), x + (max(offset[i], 0) + min(channel, arg.x_c - 8)),     \
                   offset[i] >= 0 && channel < arg.x_c ? 16 : 0);                                                      \
    } while (0)
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < arg.steps) COPY_STEP(s, s);
        COPY_COMMIT();
    }
    for (int i = id; i < DEPTH / 4; i += THREADS) /* with the next steps' */
        COPY16(shared + STAGES * STAGE + i * 16, depth + (columns * (DEPTH / 4) + i), 16);
    if (n >= min(arg.items, *limit)) {
        COPY_WAIT(0); /* no copy outlives its group */
        return;
    }

    float acc[MI][NI][4];
#pragma unroll
    for (int i = 0; i < MI * NI * 4; i++) acc[i / (NI * 4)][i / 4 % NI][i % 4] = 0.0f;
#ifdef WARPGROUPS
    const matrix_at from_a = MATRIX_AT(shared + (uint)WARP_UNIFORM(warp / 4) * (64 * BK * 2)),
                    from_b = MATRIX_AT(shared + A_BYTES);
    for (int step = 0, slot = 0; step < arg.steps; step++, slot = slot == STAGES - 1 ? 0 : slot + 1) {
        COPY_WAIT(AHEAD);
        GROUP_PUBLISH();
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLL for (int j = 0; j < NI; j++) GROUP_TAKE(acc[0], j);
        GROUP_STEP(BN, 1, acc, from_a, slot * (STAGE / 16), 0, from_b, slot * (STAGE / 16));
        if (step + STAGES - 1 < arg.steps) COPY_STEP(step + STAGES - 1, slot == 0 ? STAGES - 1 : slot - 1);
        COPY_COMMIT();
        GROUP_WAIT(0);
    }
    UNROLL for (int j = 0; j < NI; j++) GROUP_TAKE(acc[0], j);
#else
    const int a_row = wm * TM + lane % 16;
    const uint from_a = shared + a_row * (BK * 2), a_part = (lane / 16 ^ (a_row & 7)) << 4;
    const uint from_b = shared + A_BYTES + wn * NI * 512 + lane * 16;
    int slot = 0;
    for (int step = 0; step < arg.steps; step++) {
        COPY_WAIT(AHEAD);
        barrier(CLK_LOCAL_MEM_FENCE);
        const int free_slot = slot == 0 ? STAGES - 1 : slot - 1;
        if (step + STAGES - 1 < arg.steps) COPY_STEP(step + STAGES - 1, free_slot);
        COPY_COMMIT();
#pragma unroll
        for (int k = 0; k < BK / 32; k++) {
            uint a[2][MI][4], b[NI][4];
#pragma unroll
            for (int j = 0; j < NI; j++) SHARED_LOAD(b[j], from_b + slot * STAGE + (k * (BN / 8) + j) * 512);
#pragma unroll
            for (int i = 0; i < 2 * MI; i++)
                MATRIX_LOAD(a[i / MI][i % MI],
                            from_a + slot * STAGE + i % MI * (16 * BK * 2) + (a_part ^ (k * 2 + i / MI) << 5));
#pragma unroll
            for (int i = 0; i < 2 * MI * NI; i++)
                MATRIX_MULTIPLY(acc[i / NI % MI][i % NI], a[i / (MI * NI)][i / NI % MI], b[i % NI][i / (MI * NI) * 2],
                                b[i % NI][i / (MI * NI) * 2 + 1]);
        }
        slot = slot == STAGES - 1 ? 0 : slot + 1;
    }
#endif
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);

    __local const float *const constants = (__local const float *)(memory + (shared - start + STAGES * STAGE) / 16);
#pragma unroll
    for (int i = 0; i < 2 * MI; i++) {
        const int row = wm * TM + lane / 4 + i * 8, hy = row / HALO_W, iy = iy0 + hy, ix = ix0 + row - hy * HALO_W;
        const bool real = (uint)iy < (uint)arg.x_h && (uint)ix < (uint)arg.x_w;
#pragma unroll
        for (int j = 0; j < NI; j++) {
            const int c = wn * TN + j * 8 + lane % 4 * 2;
            const float *v = acc[i / 2][j] + i % 2 * 2;
            middle[row * PITCH + c / 2] = real ? halves_of(v[0] + constants[c], v[1] + constants[c + 1]) : 0u;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    for (int unit = id; unit < TILE_H * STRIPS * PAIRS; unit += THREADS) {
        const int pair = unit % PAIRS, strip = unit / PAIRS % STRIPS, line = unit / (PAIRS * STRIPS);
        __local const float2 *const taps = (__local const float2 *)(constants + BN) + pair;
        __local const uint *const from = middle + (line * STRIDE * HALO_W + strip * COLS * STRIDE) * PITCH + pair;
        float2 sum[COLS];
#pragma unroll
        for (int o = 0; o < COLS; o++) sum[o] = taps[K * K * PAIRS];
#pragma unroll
        for (int ky = 0; ky < K; ky++) {
            float2 v[SPAN];
#pragma unroll
            for (int i = 0; i < SPAN; i++) v[i] = floats_of(from[(ky * HALO_W + i) * PITCH]);
#pragma unroll
            for (int kx = 0; kx < K; kx++) {
                const float2 tap = taps[(ky * K + kx) * PAIRS];
#pragma unroll
                for (int o = 0; o < COLS; o++) sum[o] = fma(v[o * STRIDE + kx], tap, sum[o]);
            }
        }
        const int oy = oy0 + line, c = columns * BN + pair * 2;
#pragma unroll
        for (int o = 0; o < COLS; o++) {
            const int ox = ox0 + strip * COLS + o;
            float2 v = (float2)(activate_float(sum[o].x, ACT), activate_float(sum[o].y, ACT));
            if (arg.has_lab) v = fma(v, (float2)(arg.lab_scale), (float2)(arg.lab_bias));
            if (oy < arg.y_h && ox < arg.y_w)
                *(__global uint *)(y + (size_t)((n * arg.y_h + oy) * arg.y_w + ox) * arg.y_ld + arg.y_c0 + c) =
                    halves_of(v.x, v.y);
        }
    }
}
