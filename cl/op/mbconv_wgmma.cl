/* The second half of an inverted bottleneck in one launch on the matrix instructions of warpgroups with half storage
 * (src/ops/mbconv.h; goes with isa/ptx, isa/fetch and isa/wgmma): y = act(P gelu(spread(u)) + x), spread a depthwise
 * 3x3 convolution with padding 1. What lies between the two is never stored.
 *
 * A group of two warpgroups makes 8 x 8 pixels. All pixels under their windows are asked for at once, 64 channels after
 * the other, zeros standing for padding. As they come, a work-item makes four pixels of four channels; what it made of
 * 64 channels then takes their place, as the tile of rows of 64 halves that isa/wgmma wants. At the end each warpgroup
 * makes half of the results' channels. These lie in an order in which a work-item of four has eight of 32 in a row: y
 * is stored so, straight from the sums.
 *
 * -D HID: channels of u, 64, 128 or 256. -D COUT: of y, 64 or 128. -D STRIDE: 1 or 2. -D RESIDUAL: x has y's extents.
 * -D ACT. */
#define THREADS 256
#define SIDE    8
#if COUT == 64
#define MINE 32 /* channels of a warpgroup */
#else
#define MINE 64
#endif
#define CHUNKS  (HID / 64)
#define UNDER   ((SIDE - 1) * STRIDE + 3)            /* side of the pixels under the windows */
#define CHUNK   ((UNDER * UNDER * 8 + 63) / 64 * 64) /* uint4 */
#define COLS    4
#define SPAN    ((COLS - 1) * STRIDE + 3)
#define W_PARTS (HID * COUT / 8)
#define MATRIX  (CHUNKS * CHUNK)
#define TAPS    (MATRIX + W_PARTS)
#define ALL     (TAPS + 10 * HID / 4)

/* 64 channels of chunk `j` are there. */
#define AWAIT_CHUNK(j)                                                                                                 \
    do {                                                                                                               \
        if (CHUNKS - 1 - (j) == 3) COPY_WAIT(3);                                                                       \
        if (CHUNKS - 1 - (j) == 2) COPY_WAIT(2);                                                                       \
        if (CHUNKS - 1 - (j) == 1) COPY_WAIT(1);                                                                       \
        if (CHUNKS - 1 - (j) == 0) COPY_WAIT(0);                                                                       \
    } while (0)
/* What this work-item made of chunk `j` to its place in the matrix. */
#define PLACE_CHUNK(j)                                                                                                 \
    UNROLL for (int o = 0; o < COLS; o++)                                                                              \
        tile[((j)*CHUNK + (place + o) * 8 + (c / 8 ^ (place + o & 7))) * 2 + c / 4 % 2] = made[o]

/* u [n,h,w,HID], places {ld, c0 of u, of x}; taps {[9][HID], biases [HID]}; weights [HID / 64][COUT][8 pieces of 16
 * bytes], exchanged as isa/wgmma says, bias [COUT]; size {h, w of u, of y}; out {ld, c0, groups of a line}. Group (i,
 * n): tile i. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
mbconv(__global half *restrict y, __global const half *restrict u, __global const half *restrict x,
       __global const float *restrict taps, __global const uint4 *restrict weights, __global const float *restrict bias,
       __global const int *restrict limit, int4 size, int4 places, int4 out) {
    __local uint4 memory[ALL + 64]; /* from a multiple of 1024 */
    const int id = get_local_id(0), n = get_group_id(1), lane = id % 32, g = lane / 4, t = lane % 4;
    const int y0 = (int)get_group_id(0) / out.z * SIDE, x0 = (int)get_group_id(0) % out.z * SIDE;
    const uint start = SHARED(memory), shared = (start + 1023u) & ~1023u;
    __local uint2 *tile = (__local uint2 *)(memory + (shared - start) / 16);
    if (n >= *limit) return;
    for (int i = id; i < 10 * HID / 4; i += THREADS) COPY16(shared + (TAPS + i) * 16, taps + i * 4, 16);
    UNROLL for (int j = 0; j < CHUNKS; j++) {
        for (int i = id; i < UNDER * UNDER * 8; i += THREADS) {
            const int iy = y0 * STRIDE - 1 + i / 8 / UNDER, ix = x0 * STRIDE - 1 + i / 8 % UNDER;
            const bool in = (uint)iy < (uint)size.x && (uint)ix < (uint)size.y;
            const size_t pixel = (size_t)(n * size.x + (in ? iy : 0)) * size.y + (in ? ix : 0);
            COPY16(shared + (j * CHUNK + i) * 16, u + pixel * places.x + places.y + j * 64 + i % 8 * 8, in ? 16 : 0);
        }
        if (j == CHUNKS - 1)
            for (int i = id; i < W_PARTS; i += THREADS) COPY16(shared + (MATRIX + i) * 16, weights + i, 16);
        COPY_COMMIT();
    }

    /* Work-item: channels c to c + 3 of 64, four pixels from `place` on. */
    const int c = id % 16 * 4, place = id / 16 * COLS;
    const int under = (place / SIDE * UNDER + place % SIDE) * STRIDE;
    uint2 made[COLS];
    UNROLL for (int j = 0; j < CHUNKS; j++) {
        AWAIT_CHUNK(j);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (j) PLACE_CHUNK(j - 1);
        __local const float4 *f = (__local const float4 *)(tile + TAPS * 2) + (j * 64 + c) / 4;
        float4 acc[COLS];
        UNROLL for (int o = 0; o < COLS; o++) acc[o] = f[9 * HID / 4];
        UNROLL for (int ky = 0; ky < 3; ky++) {
            float4 v[SPAN];
            UNROLL for (int i = 0; i < SPAN; i++) v[i] =
                VALUES4(tile[(j * CHUNK + (under + ky * UNDER + i) * 8) * 2 + c / 4]);
            UNROLL for (int kx = 0; kx < 3; kx++) {
                const float4 w = f[(ky * 3 + kx) * HID / 4];
                UNROLL for (int o = 0; o < COLS; o++) acc[o] = fma(v[o * STRIDE + kx], w, acc[o]);
            }
        }
        UNROLL for (int o = 0; o < COLS; o++) made[o] = (uint2)(halves_of(quick_gelu(acc[o].x), quick_gelu(acc[o].y)),
                                                                halves_of(quick_gelu(acc[o].z), quick_gelu(acc[o].w)));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    PLACE_CHUNK(CHUNKS - 1);

    const int part = id / 128, row = id / 32 % 4 * 16 + g;
    float sums[MINE / 8][4];
    UNROLL for (int j = 0; j < MINE / 8; j++) UNROLL for (int e = 0; e < 4; e++) sums[j][e] =
        bias[part * MINE + j / 4 * 32 + t * 8 + j % 4 * 2 + e % 2];
    const matrix_at from_a = MATRIX_AT(shared), from_w = MATRIX_AT(shared + MATRIX * 16);
    GROUP_PUBLISH();
    barrier(CLK_LOCAL_MEM_FENCE);
    GROUP_BEGIN();
    UNROLL for (int k = 0; k < HID / 16; k++)
        GROUP_MULTIPLY(MINE, sums, from_a + (uint)(k / 4 * CHUNK + k % 4 * 2),
                       from_w + (uint)(k / 4 * (COUT * 8) + part * (MINE * 8) + k % 4 * 2));
    GROUP_COMMIT();
    GROUP_WAIT(0);
    UNROLL for (int j = 0; j < MINE / 8; j++) GROUP_TAKE(sums, j);
    UNROLL for (int r = 0; r < 2; r++) {
        const int py = y0 + (row + 8 * r) / SIDE, px = x0 + (row + 8 * r) % SIDE;
        const size_t pixel = (size_t)(n * size.z + py) * size.w + px;
        if (py >= size.z || px >= size.w) continue;
        UNROLL for (int k = 0; k < MINE / 32; k++) {
            const int at = part * MINE + k * 32 + t * 8;
            uint word[4];
#ifdef RESIDUAL
            const uint4 add = *(__global const uint4 *)(x + pixel * places.z + places.w + at);
            const uint more[4] = {add.x, add.y, add.z, add.w};
#endif
            UNROLL for (int j = 0; j < 4; j++) {
                float2 v = (float2)(sums[4 * k + j][2 * r], sums[4 * k + j][2 * r + 1]);
#ifdef RESIDUAL
                v += floats_of(more[j]);
#endif
#if ACT == ACT_GELU
                v = (float2)(quick_gelu(v.x), quick_gelu(v.y));
#endif
                word[j] = halves_of(v.x, v.y);
            }
            *(__global uint4 *)(y + pixel * out.x + out.y + at) = (uint4)(word[0], word[1], word[2], word[3]);
        }
    }
}
