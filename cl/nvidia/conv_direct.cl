/* Dense convolution in half storage on matrix instructions, for few channels: a warp makes 16 output pixels after the other by
 * all channels, whose filter is in its registers, from pixels that go from global memory to registers. Nothing lies in local
 * memory and nobody waits for others, so that such maps, of which there is little to compute, pass at the rate of memory.
 * Goes with nvidia/ptx and nvidia/conv_parts.
 *
 * CIN: channels; 8, a multiple of 16, or 3: images of whole words a line, whose windows begin at odd columns. A step is 16
 * inputs; its columns are channels in an order in which a lane's lie side by side in memory (variants/nvidia/conv_direct.c
 * packs filters likewise), and the columns of its 8 BLOCKS results are so as well. Filters: [step][block][lane] of two
 * words each.
 *
 * POOL: 2x2 windows, whose maximum goes to `pool`.
 *
 * Buffers as in nvidia/conv_wgmma, without addends. Channels of the result in whole parts of 8, on multiples of 16
 * bytes. Grid: x = groups. */
#define WARPS   4
#define THREADS (32 * WARPS)
#define TAPS    (KH * KW)
#if CIN == 3
#define WORDS   5 /* of a line of the window, from the half in front of it */
#define STEPS   ((KH * WORDS + 7) / 8)
#elif CIN == 8
#define STEPS   ((TAPS + 1) / 2)
#else
#define PER_TAP (CIN / 16)
#define STEPS   (TAPS * PER_TAP)
#endif

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
conv(__global const T *restrict x, __global const uint2 *restrict w, __global const float *restrict bias,
     __global T *restrict pool, __global int *restrict arrived, __global T *restrict y,
     __global const T *restrict before, __global const T *restrict after, __global const int *restrict limit,
     conv_direct_args arg) {
    const conv_shape shape = arg.shape;
    const epilogue_args epi = arg.epi;
    MATRIX_SCRATCH
    const int lane = get_local_id(0) & 31, g = lane / 4, t = lane % 4;
    const int warp = get_group_id(0) * WARPS + get_local_id(0) / 32;
    const int all = shape.items * shape.y_h * shape.y_w, rows = min(shape.items, *limit) * shape.y_h * shape.y_w;

    uint2 filter[STEPS][BLOCKS];
#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int j = 0; j < BLOCKS; j++) filter[s][j] = w[(s * BLOCKS + j) * 32 + lane];
    float start[2 * BLOCKS];
#pragma unroll
    for (int j = 0; j < 2 * BLOCKS; j++) start[j] = bias[t * (2 * BLOCKS) + j];
#if CIN == 3
    int line[2 * STEPS], word[2 * STEPS]; /* of this lane's words of a window */
#pragma unroll
    for (int k = 0; k < 2 * STEPS; k++) {
        const int q = t + 4 * k;
        line[k] = q < KH * WORDS ? q / WORDS : 0; /* what is behind the last meets a zero of the filter */
        word[k] = q < KH * WORDS ? q % WORDS * 2 : 0;
    }
#endif

#pragma unroll 1
    for (int turn = 0; turn < arg.turns; turn++) {
        const int p0 = (turn * arg.warps + warp) * 16 + g;
        float acc[BLOCKS][4];
#pragma unroll
        for (int j = 0; j < BLOCKS; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) acc[j][e] = start[2 * j + e % 2];
        uint a[STEPS][4];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int p = min(p0 + 8 * r, all - 1), row = divided(p, arg.by_w), n = divided(row, arg.by_h);
            const int iy = (row - n * shape.y_h) * STRIDE - shape.top, ix = (p - row * shape.y_w) * STRIDE - shape.left;
#if CIN == 3
            const int at = ix * 3 - 1;
            __global const T *from = x + ((n * shape.x_h + iy) * shape.x_w * 3 + at);
#pragma unroll
            for (int k = 0; k < 2 * STEPS; k++)
                FETCH4_IF(a[k / 2][k % 2 * 2 + r], from + (line[k] * shape.x_w * 3 + word[k]),
                          (uint)(iy + line[k]) < (uint)shape.x_h && (uint)(at + word[k]) < (uint)(shape.x_w * 3));
#else
            __global const T *from =
                x + (((n * shape.x_h + iy) * shape.x_w + ix) * shape.x_ld + shape.x_c0 + t * (CIN / 4));
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++) {
                const int dy = tap / KW, dx = tap % KW, away = (dy * shape.x_w + dx) * shape.x_ld;
                const bool inside = (uint)(iy + dy) < (uint)shape.x_h && (uint)(ix + dx) < (uint)shape.x_w;
#if CIN == 8
                FETCH4_IF(a[tap / 2][tap % 2 * 2 + r], from + away, inside);
#else
#pragma unroll
                for (int s = tap * PER_TAP; s < (tap + 1) * PER_TAP; s += CIN % 32 ? 1 : 2) {
#if CIN % 32
                    FETCH8_IF(a[s][r], a[s][2 + r], from + (away + s % PER_TAP * 4), inside);
#else
                    FETCH16_IF(a[s][r], a[s][2 + r], a[s + 1][r], a[s + 1][2 + r], from + (away + s % PER_TAP * 4),
                               inside);
#endif
                }
#endif
            }
#endif
#if CIN == 8 && KH * KW % 2
            a[STEPS - 1][2 + r] = 0;
#endif
        }

#ifdef POOL
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int p = p0 + 8 * r;
            uint v[2 * PER_TAP];
#pragma unroll
            for (int k = 0; k < 2 * PER_TAP; k++) {
                v[k] = a[k / 2][k % 2 * 2 + r];
#pragma unroll
                for (int tap = 1; tap < TAPS; tap++) v[k] = halves_max(v[k], a[tap * PER_TAP + k / 2][k % 2 * 2 + r]);
            }
            __global T *to = pool + ((size_t)p * arg.pool_ld + arg.pool_c0 + t * (CIN / 4));
            if (p < rows) {
#if PER_TAP % 2
#pragma unroll
                for (int k = 0; k < 2 * PER_TAP; k += 2) *(__global uint2 *)(to + 2 * k) = (uint2)(v[k], v[k + 1]);
#else
#pragma unroll
                for (int k = 0; k < 2 * PER_TAP; k += 4)
                    *(__global uint4 *)(to + 2 * k) = (uint4)(v[k], v[k + 1], v[k + 2], v[k + 3]);
#endif
            }
        }
#endif

        UNROLL
        for (int s = 0; s < STEPS; s++)
            UNROLL
            for (int j = 0; j < BLOCKS; j++) MATRIX_MULTIPLY(acc[j], a[s], filter[s][j].x, filter[s][j].y);

#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint v[BLOCKS];
#pragma unroll
            for (int j = 0; j < BLOCKS; j++) {
                float2 f = activated((float2)(acc[j][2 * r], acc[j][2 * r + 1]));
                if (epi.flags & EPI_LAB) f = fma(f, (float2)(epi.lab_scale), (float2)(epi.lab_bias));
                v[j] = halves_of(f.x, f.y);
            }
            const int p = p0 + 8 * r;
            if (p < rows) {
                __global T *to = y + ((size_t)p * shape.y_ld + shape.y_c0 + t * (2 * BLOCKS));
#if BLOCKS % 4 == 0
#pragma unroll
                for (int j = 0; j < BLOCKS; j += 4)
                    *(__global uint4 *)(to + 2 * j) = (uint4)(v[j], v[j + 1], v[j + 2], v[j + 3]);
#elif BLOCKS % 2 == 0
#pragma unroll
                for (int j = 0; j < BLOCKS; j += 2) *(__global uint2 *)(to + 2 * j) = (uint2)(v[j], v[j + 1]);
#else
#pragma unroll
                for (int j = 0; j < BLOCKS; j++) *(__global uint *)(to + 2 * j) = v[j];
#endif
            }
        }
    }
}
