/* The second half of an inverted bottleneck in one launch on the matrix instructions of warpgroups with half storage
 * (graph/nodes.h; goes with nvidia/ptx, portable/fetch and nvidia/wgmma): y = act(P gelu(spread(u)) + x), spread a depthwise
 * 3x3 convolution with padding 1. What lies between the two is never stored.
 *
 * A group of two warpgroups makes 8 x 8 pixels. Its work-items have four channels each and make pieces of two lines by
 * COLS pixels, each from one window of pixels, which become the tile of rows of 64 halves that nvidia/wgmma wants; then
 * each warpgroup makes half of the channels. These lie in an order in which a work-item of four has eight of 32 in a
 * row: y is stored so, straight from the sums.
 *
 * -D HID: channels of u, 64, 128 or 256. -D COUT: of y, 64 or 128. -D STRIDE: 1 or 2. -D RESIDUAL: x has y's extents.
 * -D ACT. LEFT_OUT: rows of u, of y or of both are left out (portable/left_out). */
#define THREADS 256
#define SIDE    8
#if COUT == 64
#define MINE 32 /* channels of a warpgroup */
#else
#define MINE 64
#endif
#define COLS    (STRIDE == 1 ? 4 : 2)
#define SPAN_X  ((COLS - 1) * STRIDE + 3)
#define SPAN_Y  (STRIDE + 3)
#define VECTORS (HID / 4)
#define STRIPS  (SIDE * SIDE / 2 / COLS)
#define A_PARTS (HID * SIDE * SIDE / 8) /* uint4 */
#define W_PARTS (HID * COUT / 8)
#define TAPS    (A_PARTS + W_PARTS)
#define ALL     (TAPS + 10 * VECTORS)

/* Weights of tap `i`, or biases (9), of this work-item's channels: read at each use, since registers are few. */
#define TAP(f, i)                                                                                                      \
    do {                                                                                                               \
        uint raw_tap[4];                                                                                               \
        SHARED_LOAD(raw_tap, shared + (TAPS + (i)*VECTORS) * 16 + c * 4);                                              \
        (f) = (float4)(as_float(raw_tap[0]), as_float(raw_tap[1]), as_float(raw_tap[2]), as_float(raw_tap[3]));        \
    } while (0)

/* u [n,h,w,HID]; taps {[9][HID], biases [HID]}; weights [HID / 64][COUT][8 pieces of 16 bytes], exchanged as
 * nvidia/wgmma says, bias [COUT]. Group (i, n): tile i. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
mbconv(__global half *restrict y, __global const half *restrict u, __global const half *restrict x,
       __global const float *restrict taps, __global const uint4 *restrict weights, __global const float *restrict bias,
       __global const int *restrict limit, __global const int *restrict content, mbconv_wgmma_args arg) {
    __local uint4 memory[ALL + 64]; /* from a multiple of 1024 */
    const int id = get_local_id(0), n = get_group_id(1), lane = id % 32, g = lane / 4, t = lane % 4;
    const int y0 = (int)get_group_id(0) / arg.across * SIDE, x0 = (int)get_group_id(0) % arg.across * SIDE;
    const uint start = SHARED(memory), shared = (start + 1023u) & ~1023u;
    __local uint2 *tile = (__local uint2 *)(memory + (shared - start) / 16);
    if (n >= *limit) return;
#ifdef LEFT_OUT
    if (all_left_out(y0, min(y0 + SIDE, arg.y_h), rows_left_out(content, arg.out, n))) return;
    const left_out_rows there = rows_left_out(content, arg.in, n);
#endif
    for (int i = id; i < W_PARTS; i += THREADS) COPY16(shared + (A_PARTS + i) * 16, weights + i, 16);
    for (int i = id; i < 10 * VECTORS; i += THREADS) COPY16(shared + (TAPS + i) * 16, taps + i * 4, 16);
    COPY_COMMIT();

    const int c = id % VECTORS * 4;
#pragma unroll 1
    for (int s0 = 0; s0 < STRIPS; s0 += THREADS / VECTORS) {
        const int s = s0 + id / VECTORS, line = s * COLS / SIDE * 2, column = s * COLS % SIDE;
        const int iy0 = (y0 + line) * STRIDE - 1, ix0 = (x0 + column) * STRIDE - 1;
        uint2 raw[SPAN_Y][SPAN_X];
        UNROLL for (int i = 0; i < SPAN_Y; i++) {
            const int iy = ROW_OF(clamp(iy0 + i, 0, arg.u_h - 1), there);
            __global const half *from = u + (size_t)((n * arg.u_h + iy) * arg.u_w) * arg.u_ld;
            UNROLL for (int j = 0; j < SPAN_X; j++) raw[i][j] =
                fetch_uint2(from + clamp(ix0 + j, 0, arg.u_w - 1) * arg.u_ld + arg.u_c0 + c);
        }
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        float4 acc[2][COLS], first;
        TAP(first, 9);
        UNROLL for (int r = 0; r < 2; r++) UNROLL for (int o = 0; o < COLS; o++) acc[r][o] = first;
        UNROLL for (int i = 0; i < SPAN_Y; i++) {
            const uint in_y = (uint) - (int)((uint)(iy0 + i) < (uint)arg.u_h);
            float4 v[SPAN_X];
            UNROLL for (int j = 0; j < SPAN_X; j++) v[j] =
                VALUES4(raw[i][j] & (in_y & (uint) - (int)((uint)(ix0 + j) < (uint)arg.u_w)));
            UNROLL for (int r = 0; r < 2; r++) {
                const int ky = i - r * STRIDE;
                if (ky < 0 || ky > 2) continue;
                UNROLL for (int k = 0; k < 3; k++) {
                    float4 f;
                    TAP(f, ky * 3 + k);
                    UNROLL for (int o = 0; o < COLS; o++) acc[r][o] = fma(v[o * STRIDE + k], f, acc[r][o]);
                }
            }
        }
        if (s < STRIPS) {
            UNROLL for (int r = 0; r < 2; r++) UNROLL for (int o = 0; o < COLS; o++) {
                const int row = (line + r) * SIDE + column + o;
                const float4 v = acc[r][o];
                tile[(c / 64 * (SIDE * SIDE * 8) + row * 8 + (c % 64 / 8 ^ (row & 7))) * 2 + c / 4 % 2] =
                    (uint2)(halves_of(quick_gelu(v.x), quick_gelu(v.y)), halves_of(quick_gelu(v.z), quick_gelu(v.w)));
            }
        }
    }

    const int part = id / 128, row = id / 32 % 4 * 16 + g;
    float sums[MINE / 8][4];
    UNROLL for (int j = 0; j < MINE / 8; j++) UNROLL for (int e = 0; e < 4; e++) sums[j][e] =
        bias[part * MINE + j / 4 * 32 + t * 8 + j % 4 * 2 + e % 2];
    const matrix_at from_a = MATRIX_AT(shared), from_w = MATRIX_AT(shared + A_PARTS * 16);
    GROUP_PUBLISH();
    barrier(CLK_LOCAL_MEM_FENCE);
    GROUP_BEGIN();
    UNROLL for (int k = 0; k < HID / 16; k++)
        GROUP_MULTIPLY(MINE, sums, from_a + (uint)(k / 4 * (SIDE * SIDE * 8) + k % 4 * 2),
                       from_w + (uint)(k / 4 * (COUT * 8) + part * (MINE * 8) + k % 4 * 2));
    GROUP_COMMIT();
    GROUP_WAIT(0);
    UNROLL for (int j = 0; j < MINE / 8; j++) GROUP_TAKE(sums, j);
    UNROLL for (int r = 0; r < 2; r++) {
        const int py = y0 + (row + 8 * r) / SIDE, px = x0 + (row + 8 * r) % SIDE;
        const size_t pixel = (size_t)(n * arg.y_h + py) * arg.y_w + px;
        if (py >= arg.y_h || px >= arg.y_w) continue;
        UNROLL for (int k = 0; k < MINE / 32; k++) {
            const int at = part * MINE + k * 32 + t * 8;
            uint word[4];
#ifdef RESIDUAL
            const uint4 add = *(__global const uint4 *)(x + pixel * arg.x_ld + arg.x_c0 + at);
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
            *(__global uint4 *)(y + pixel * arg.y_ld + arg.y_c0 + at) = (uint4)(word[0], word[1], word[2], word[3]);
        }
    }
}
