/* HGNetv2's stem (graph/nodes.h) as one launch on matrix instructions, in half storage with sums in float: a work-group
 * makes TILE_H x TILE_W pixels of the result. Goes with nvidia/ptx.
 *
 * Each layer is a matrix product on the pixels that the layers behind it need, 16 pixels and some blocks of eight
 * outputs for a warp at a time: y = stem1 of the image (39 x 39 pixels for a tile of 8 x 8) on 19 x 19, z = stem2a y on
 * 18 x 18, then {the maximum of y, stem2b z} on 17 x 17, stem3 of that and stem4 on the tile. All of it stays in local
 * memory as halves, zeros outside the maps; a pixel is 16 bytes longer than its channels, so that eight pixels lie in
 * different banks. Channels are rounded up to 16 (MP of y and stem3, ZP of z), with weights of zero. The image is read
 * by two halves: of each line of a window the nine values, and seven of what follows for zero weights.
 *
 * Arguments: y; x the image; weights of the five layers as variants/fragments.h has them, [32 inputs][block of 8
 * outputs], taps outermost, stem1's lines as 16 inputs each; constants {scale, shift} of the layers, 16 floats, then
 * the biases [MP][ZP][M][MP][OUT]; in = {h, w, ld, c0}, out = {n, ld, c0, tiles across}. -D M, OUT, TILE_H, TILE_W.
 * Grid: x = tiles, y = items. */
#ifndef M
#define M      16
#define OUT    16
#define TILE_H 8
#define TILE_W 8
#endif
#ifndef THREADS
#define THREADS   256
#endif
#define WARPS      (THREADS / 32)
#define MP        ((M + 15) / 16 * 16)
#define ZP        ((M / 2 + 15) / 16 * 16)
#define CAT_H     (2 * TILE_H + 1)
#define CAT_W     (2 * TILE_W + 1)
#define Z_H       (CAT_H + 1)
#define Z_W       (CAT_W + 1)
#define Y_H       (CAT_H + 2)
#define Y_W       (CAT_W + 2)
#define IMAGE_H   (2 * Y_H + 1)
#define IMAGE_W   (2 * Y_W + 1)
#define LINE      (3 * Y_W + 5) /* words of a line of the image */
#define Y_PITCH   (MP * 2 + 16) /* bytes of a pixel */
#define Z_PITCH   (ZP * 2 + 16)
#define CAT_PITCH (M * 4 + 16)
#define WHOLE(n)  (((n) + 15) / 16 * 16)
#define MOST(a, b) ((a) > (b) ? (a) : (b))
#define Z_AT       0 /* first the image is there, later the result of stem3 */
#define Y_AT       MOST(WHOLE(IMAGE_H *LINE * 4), MOST(Z_H *Z_W *Z_PITCH, TILE_H *TILE_W *Y_PITCH))
#define CAT_AT     (Y_AT + Y_H * Y_W * Y_PITCH)
#define W_AT      (CAT_AT + CAT_H * CAT_W * CAT_PITCH)
#define W1        0 /* weights of the layers, in blocks of 512 bytes */
#define W2        (W1 + 2 * (MP / 8))
#define W3        (W2 + MP / 8 * (ZP / 8))
#define W4        (W3 + ZP / 8 * (M / 8))
#define W5        (W4 + (18 * M + 31) / 32 * (MP / 8))
#define W_END     (W5 + (MP + 31) / 32 * (OUT / 8))
#define CONSTANTS (16 + 2 * MP + ZP + M + OUT)

static inline void put_pair(__global T *p, float2 v, bool aligned) {
    if (aligned) {
        *(__global uint *)p = halves_of(v.x, v.y);
    } else {
        STORE(v.x, p, 0);
        STORE(v.y, p, 1);
    }
}

__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
stem(__global T *restrict y, __global const T *restrict x, __global const uint4 *restrict w,
     __global const float4 *restrict constants, __global const int *restrict limit, int4 in, int4 out) {
    MATRIX_SCRATCH
    __local uint4 memory[W_AT / 16 + W_END * 32 + CONSTANTS / 4];
    const int id = get_local_id(0), lane = id & 31, warp = id >> 5, n = get_group_id(1);
    const int tile_y = (int)get_group_id(0) / out.s3, tile_x = (int)get_group_id(0) - tile_y * out.s3;
    const int h2 = in.s0 / 2, w2 = in.s1 / 2, cy0 = tile_y * (2 * TILE_H) - 1, cx0 = tile_x * (2 * TILE_W) - 1;
    const uint shared = SHARED(memory);
    __local uint *const words = (__local uint *)memory;

    for (int i = id; i < W_END * 32; i += THREADS) COPY16(shared + W_AT + i * 16, w + i, 16);
    for (int i = id; i < CONSTANTS / 4; i += THREADS) COPY16(shared + W_AT + (W_END * 32 + i) * 16, constants + i, 16);
    COPY_COMMIT();
    __local ushort *const image = (__local ushort *)memory;
#pragma unroll 6
    for (int i = id; i < IMAGE_H * IMAGE_W; i += THREADS) {
        const int line = i / IMAGE_W, column = i - line * IMAGE_W, iy = 2 * cy0 - 1 + line, ix = 2 * cx0 - 1 + column;
        const bool real = (uint)iy < (uint)in.s0 && (uint)ix < (uint)in.s1;
        __global const ushort *from =
            (__global const ushort *)x + (real ? ((n * in.s0 + iy) * in.s1 + ix) * in.s2 + in.s3 : in.s3);
        const ushort r = from[0], g = from[1], b = from[2];
        __local ushort *to = image + line * (2 * LINE) + column * 3;
        to[0] = real ? r : 0, to[1] = real ? g : 0, to[2] = real ? b : 0;
    }
    for (int i = id; i < IMAGE_H * (2 * LINE - 3 * IMAGE_W); i += THREADS) /* what follows the last pixel */
        image[(i / (2 * LINE - 3 * IMAGE_W) + 1) * (2 * LINE) - 1 - i % (2 * LINE - 3 * IMAGE_W)] = 0;
    if (n >= min(out.s0, *limit)) {
        COPY_WAIT(0); /* no copy outlives its group */
        return;
    }
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    __local const float *const scales = (__local const float *)(memory + W_AT / 16 + W_END * 32);

/* For each 16 of PIXELS and NS of N8 blocks of outputs: LOAD(k) fetches the fragment `a` of 16 inputs for pixel `p`,
 * STORE takes channels c and c + 1 of pixel r in v, activated with the layer's bias from B on. */
#define LAYER(NUMBER, PIXELS, N8, NS, K16, W, B, LOAD, STORE)                                                          \
    do {                                                                                                               \
        const float scale = scales[2 * (NUMBER)], shift = scales[2 * (NUMBER) + 1];                                    \
        _Pragma("unroll 1") for (int round = 0; round < ((PIXELS) + 15) / 16 * ((N8) / (NS)); round += WARPS) {        \
            const int unit = round + warp, first = unit % ((N8) / (NS)) * (NS), frame = unit / ((N8) / (NS)) * 16;     \
            const int p = min(frame + lane % 16, (PIXELS)-1);                                                          \
            float sum[NS][4];                                                                                          \
            _Pragma("unroll") for (int j = 0; j < 4 * (NS); j++) sum[j / 4][j % 4] = 0.0f;                             \
            _Pragma("unroll") for (int k = 0; k < (K16); k++) {                                                        \
                uint a[4], b[NS][4];                                                                                   \
                LOAD(k);                                                                                               \
                _Pragma("unroll") for (int j = 0; j < (NS); j++)                                                       \
                    SHARED_LOAD(b[j], shared + W_AT + (((W) + k / 2 * (N8) + first + j) * 32 + lane) * 16);            \
                _Pragma("unroll") for (int j = 0; j < (NS); j++)                                                       \
                    MATRIX_MULTIPLY(sum[j], a, b[j][k % 2 * 2], b[j][k % 2 * 2 + 1]);                                  \
            }                                                                                                          \
            _Pragma("unroll") for (int j = 0; j < 2 * (NS); j++) {                                                     \
                const int r = frame + lane / 4 + j % 2 * 8, c = (first + j / 2) * 8 + lane % 4 * 2;                    \
                __local const float *bias = scales + 16 + (B) + c;                                                     \
                float2 v = (float2)(sum[j / 2][j % 2 * 2], sum[j / 2][j % 2 * 2 + 1]) + (float2)(bias[0], bias[1]);    \
                v = fma(max(v, (float2)(0.0f)), (float2)(scale), (float2)(shift));                                     \
                if (r < (PIXELS)) STORE;                                                                               \
            }                                                                                                          \
        }                                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)
#define INSIDE(WIDE)         ((uint)(cy0 + r / (WIDE)) < (uint)h2 && (uint)(cx0 + r % (WIDE)) < (uint)w2)
#define PUT(AT, PITCH, WIDE) words[((AT) + r * (PITCH)) / 4 + c / 2] = INSIDE(WIDE) ? halves_of(v.x, v.y) : 0u

/* pixel (row of a fragment), of which this lane has two neighbouring inputs; the second 16 pixels down are 8 further */
#define IMAGE_WORD(E) a[E] = words[(pixel##E / Y_W * 2 + k) * LINE + pixel##E % Y_W * 3 + lane % 4 + (E) / 2 * 4]
#define LOAD1(k)                                                                                                       \
    const int pixel0 = min(frame + lane / 4, Y_H * Y_W - 1), pixel1 = min(frame + lane / 4 + 8, Y_H * Y_W - 1);        \
    const int pixel2 = pixel0, pixel3 = pixel1;                                                                        \
    IMAGE_WORD(0), IMAGE_WORD(1), IMAGE_WORD(2), IMAGE_WORD(3)
    LAYER(0, Y_H * Y_W, MP / 8, MP / 8, 3, W1, 0, LOAD1, PUT(Y_AT, Y_PITCH, Y_W));

#define LOAD2(k)                                                                                                       \
    MATRIX_LOAD(a, shared + Y_AT + ((p / Z_W + k / (MP / 16) / 2) * Y_W + p % Z_W + k / (MP / 16) % 2) * Y_PITCH +     \
                       k % (MP / 16) * 32 + lane / 16 * 16)
    for (int i = id; i < CAT_H * CAT_W * (M / 2); i += THREADS) {
        const int r = i / (M / 2), c = i % (M / 2), at = (Y_AT + (r / CAT_W * Y_W + r % CAT_W) * Y_PITCH) / 4 + c;
        const float2 near = fmax(floats_of(words[at]), floats_of(words[at + Y_PITCH / 4]));
        const float2 far =
            fmax(floats_of(words[at + Y_W * Y_PITCH / 4]), floats_of(words[at + (Y_W + 1) * Y_PITCH / 4]));
        const float2 most = fmax(near, far);
        words[(CAT_AT + r * CAT_PITCH) / 4 + c] = INSIDE(CAT_W) ? halves_of(most.x, most.y) : 0u;
    }
    LAYER(1, Z_H * Z_W, ZP / 8, ZP / 8, MP / 4, W2, MP, LOAD2, PUT(Z_AT, Z_PITCH, Z_W));

#define LOAD3(k)                                                                                                       \
    MATRIX_LOAD(a, shared + Z_AT + ((p / CAT_W + k / (ZP / 16) / 2) * Z_W + p % CAT_W + k / (ZP / 16) % 2) * Z_PITCH + \
                       k % (ZP / 16) * 32 + lane / 16 * 16)
    LAYER(2, CAT_H * CAT_W, M / 8, M / 8, ZP / 4, W3, MP + ZP, LOAD3, PUT(CAT_AT + M * 2, CAT_PITCH, CAT_W));

#define LOAD4(k)                                                                                                       \
    MATRIX_LOAD(a, shared + CAT_AT +                                                                                   \
                       ((p / TILE_W * 2 + k / (M / 8) / 3) * CAT_W + p % TILE_W * 2 + k / (M / 8) % 3) * CAT_PITCH +   \
                       k % (M / 8) * 32 + lane / 16 * 16)
    LAYER(3, TILE_H * TILE_W, MP / 8, 1, 18 * M / 16, W4, MP + ZP + M, LOAD4,
          words[(Z_AT + r * Y_PITCH) / 4 + c / 2] = halves_of(v.x, v.y));

#define LOAD5(k) MATRIX_LOAD(a, shared + Z_AT + p * Y_PITCH + k * 32 + lane / 16 * 16)
    const int oy0 = tile_y * TILE_H, ox0 = tile_x * TILE_W, oh = in.s0 / 4, ow = in.s1 / 4;
    LAYER(4, TILE_H * TILE_W, OUT / 8, 1, MP / 16, W5, 2 * MP + ZP + M, LOAD5,
          if (oy0 + r / TILE_W < oh && ox0 + r % TILE_W < ow)
              put_pair(y + (size_t)((n * oh + oy0 + r / TILE_W) * ow + ox0 + r % TILE_W) * out.s1 + out.s2 + c, v,
                       ((out.s1 | out.s2) & 1) == 0));
}
