/* The second half of an inverted bottleneck in one launch on the matrix instructions of warpgroups with half storage
 * (graph/nodes.h; goes with nvidia/ptx, portable/fetch and nvidia/wgmma): y = act(P gelu(spread(u)) + x), spread a depthwise
 * 3x3 convolution with padding 1. What lies between the two is never stored.
 *
 * A group of two warpgroups makes 8 by WIDE pixels. Its work-items have four channels each and make COLS columns of LINES
 * lines: they walk down the lines of u, of which each is asked for while the one before it is at work and read once, and
 * results become the tile of rows of 64 halves that nvidia/wgmma wants. Then each warpgroup makes its 64 pixels, or half
 * of the channels of all 64. Channels lie in an order in which a work-item of four has eight of 32 in a row: y is stored
 * so, straight from the sums.
 *
 * -D HID: channels of u, 64, 128 or 256. -D COUT: of y, 64 or 128. -D STRIDE: 1 or 2. -D WIDE: 8 or 16. -D RESIDUAL: x
 * has y's extents. -D ACT. LEFT_OUT: rows of u, of y or of both are left out (portable/left_out). */
#define THREADS 256
#define HIGH    8
#if WIDE == 16
#define MINE COUT /* channels of a warpgroup */
#elif COUT == 64
#define MINE 32
#else
#define MINE 64
#endif
#if STRIDE == 1 || HID == 256
#define COLS 4
#else
#define COLS 2
#endif
#define PIXELS  (HIGH * WIDE)
#define SPAN    ((COLS - 1) * STRIDE + 3) /* columns of u */
#define VECTORS (HID / 4)
#define STRIPS  (WIDE / COLS)                      /* side by side */
#define LINES   (HIGH * STRIPS * VECTORS / THREADS) /* of y */
#define U_LINES ((LINES - 1) * STRIDE + 3)
#define A_PARTS (HID * PIXELS / 8) /* uint4 */
#define W_PARTS (HID * COUT / 8)
#define TAPS    (A_PARTS + W_PARTS)
#define BIAS    (TAPS + 10 * VECTORS)
#define ALL     (BIAS + COUT / 4)

/* Weights of tap `i`, or biases (9), of this work-item's channels: read at each use, since registers are few. */
#define TAP(f, i)                                                                                                      \
    do {                                                                                                               \
        uint raw_tap[4];                                                                                               \
        SHARED_LOAD(raw_tap, shared + (TAPS + (i)*VECTORS) * 16 + c * 4);                                              \
        (f) = (float4)(as_float(raw_tap[0]), as_float(raw_tap[1]), as_float(raw_tap[2]), as_float(raw_tap[3]));        \
    } while (0)

/* Asks for line `i` of this work-item's part of u, and zeros beside the map. */
#define FETCH_LINE(i)                                                                                                  \
    do {                                                                                                               \
        const int iy = iy0 + (i), from = (ROW_OF(iy, there) * arg.u_w + ix0) * arg.u_ld;                               \
        const uint w = (uint)iy < (uint)arg.u_h ? arg.u_w : 0;                                                         \
        UNROLL for (int j = 0; j < SPAN; j++) raw[j] =                                                                 \
            fetch_uint2_if((uint)(ix0 + j) < w, map + (from + j * arg.u_ld));                                          \
    } while (0)
/* sums += v by the taps of line ky. */
#define ADD_TAPS(sums, ky)                                                                                             \
    UNROLL for (int k = 0; k < 3; k++) {                                                                               \
        float4 f;                                                                                                      \
        TAP(f, (ky)*3 + k);                                                                                            \
        UNROLL for (int o = 0; o < COLS; o++)(sums)[o] = fma(v[o * STRIDE + k], f, (sums)[o]);                         \
    }
/* Line `i`, which is there, belongs to three lines of y or fewer: as the last of line r, whose sums `own` are then stored,
 * as the second of that with sums `between`, and as the first of that which has `own` next. */
#define ADD_LINE(i, ends, own, r, is_between, between, begins)                                                         \
    do {                                                                                                               \
        float4 v[SPAN];                                                                                                \
        UNROLL for (int j = 0; j < SPAN; j++) v[j] = VALUES4(raw[j]);                                                  \
        if ((i) + 1 < U_LINES) FETCH_LINE((i) + 1);                                                                    \
        if (ends) {                                                                                                    \
            ADD_TAPS(own, 2);                                                                                          \
            UNROLL for (int o = 0; o < COLS; o++) {                                                                    \
                const int row = (line + (r)) * WIDE + column + o;                                                      \
                const float4 sum = (own)[o];                                                                           \
                tile[(c / 64 * (PIXELS * 8) + row * 8 + (c % 64 / 8 ^ (row & 7))) * 2 + c / 4 % 2] = (uint2)(          \
                    halves_of(quick_gelu(sum.x), quick_gelu(sum.y)), halves_of(quick_gelu(sum.z), quick_gelu(sum.w))); \
            }                                                                                                          \
        }                                                                                                              \
        if (is_between) ADD_TAPS(between, 1);                                                                          \
        if (begins) {                                                                                                  \
            TAP((own)[0], 9);                                                                                          \
            UNROLL for (int o = 1; o < COLS; o++)(own)[o] = (own)[0];                                                  \
            ADD_TAPS(own, 0);                                                                                          \
        }                                                                                                              \
    } while (0)

/* u [n,h,w,HID]; taps {[9][HID], biases [HID]}; weights [HID / 64][COUT][8 pieces of 16 bytes], exchanged as
 * nvidia/wgmma says, bias [COUT]. Group (i, n): tile i. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
mbconv(__global half *restrict y, __global const half *restrict u, __global const half *restrict x,
       __global const float *restrict taps, __global const uint4 *restrict weights, __global const float *restrict bias,
       __global const int *restrict limit, __global const int *restrict content, mbconv_wgmma_args arg) {
    __local uint4 memory[ALL + 64]; /* from a multiple of 1024 */
    const int id = get_local_id(0), n = get_group_id(1), lane = id % 32, g = lane / 4, t = lane % 4;
    const int y0 = (int)get_group_id(0) / arg.across * HIGH, x0 = (int)get_group_id(0) % arg.across * WIDE;
    const uint start = SHARED(memory), shared = (start + 1023u) & ~1023u;
    __local uint2 *tile = (__local uint2 *)(memory + (shared - start) / 16);
#ifdef LEFT_OUT
    const left_out_rows none = rows_left_out(content, arg.out, n), there = rows_left_out(content, arg.in, n);
    if (all_left_out(y0, min(y0 + HIGH, arg.y_h), none)) return;
#endif
    for (int i = id; i < W_PARTS; i += THREADS) COPY16(shared + (A_PARTS + i) * 16, weights + i, 16);
    for (int i = id; i < 10 * VECTORS; i += THREADS) COPY16(shared + (TAPS + i) * 16, taps + i * 4, 16);
    if (id < COUT / 4) COPY16(shared + (BIAS + id) * 16, bias + id * 4, 16);
    COPY_COMMIT();

    const int c = id % VECTORS * 4, strip = id / VECTORS;
    const int line = strip / STRIPS * LINES, column = strip % STRIPS * COLS;
    const int iy0 = (y0 + line) * STRIDE - 1, ix0 = (x0 + column) * STRIDE - 1;
    __global const half *map = u + (size_t)n * arg.u_h * arg.u_w * arg.u_ld + arg.u_c0 + c;
    uint2 raw[SPAN];
    FETCH_LINE(0);
    COPY_WAIT(0);
    if (n >= *limit) return; /* which is there when what was asked for is */
    barrier(CLK_LOCAL_MEM_FENCE);
    float4 p[COLS];
#if STRIDE == 1
    float4 q[COLS];
#pragma unroll 1
    for (int i = 0; i < U_LINES; i += 2) {
        ADD_LINE(i, i, p, i - 2, i && i <= LINES, q, i < LINES);
        if (i + 1 < U_LINES) ADD_LINE(i + 1, i, q, i - 1, i < LINES, p, i + 1 < LINES);
    }
#else
#pragma unroll 1
    for (int i = 0; i < U_LINES; i += 2) {
        ADD_LINE(i, i, p, i / 2 - 1, false, p, i / 2 < LINES);
        if (i + 1 < U_LINES) ADD_LINE(i + 1, false, p, 0, true, p, false);
    }
#endif

    const int part = id / 128, down = MINE == COUT ? part : 0, across = part - down; /* of 64 pixels, of MINE channels */
    const int row = down * 64 + id / 32 % 4 * 16 + g, channel0 = across * MINE + t * 8;
#ifdef RESIDUAL
    uint add[2][MINE / 32][4];
    UNROLL for (int r = 0; r < 2; r++) {
        const int py = min(y0 + (row + 8 * r) / WIDE, arg.y_h - 1), px = min(x0 + (row + 8 * r) % WIDE, arg.y_w - 1);
        __global const half *from = x + ((size_t)(n * arg.y_h + py) * arg.y_w + px) * arg.x_ld + arg.x_c0 + channel0;
        UNROLL for (int k = 0; k < MINE / 32; k++) FETCH16(add[r][k], from + k * 32);
    }
#endif
    float sums[MINE / 8][4];
    UNROLL for (int k = 0; k < MINE / 32; k++) UNROLL for (int j = 0; j < 2; j++) {
        uint two[4];
        SHARED_LOAD(two, shared + BIAS * 16 + (channel0 + k * 32 + j * 4) * 4);
        UNROLL for (int e = 0; e < 8; e++) sums[4 * k + 2 * j + e / 4][e % 4] = as_float(two[e / 4 * 2 + e % 2]);
    }
    const matrix_at from_a = MATRIX_AT(shared), from_w = MATRIX_AT(shared + A_PARTS * 16);
    GROUP_PUBLISH();
    barrier(CLK_LOCAL_MEM_FENCE);
    GROUP_BEGIN();
    UNROLL for (int k = 0; k < HID / 16; k++)
        GROUP_MULTIPLY(MINE, sums, from_a + (uint)(k / 4 * (PIXELS * 8) + down * (64 * 8) + k % 4 * 2),
                       from_w + (uint)(k / 4 * (COUT * 8) + across * (MINE * 8) + k % 4 * 2));
    GROUP_COMMIT();
    GROUP_WAIT(0);
    UNROLL for (int j = 0; j < MINE / 8; j++) GROUP_TAKE(sums, j);
    UNROLL for (int r = 0; r < 2; r++) {
        const int py = y0 + (row + 8 * r) / WIDE, px = x0 + (row + 8 * r) % WIDE;
        const size_t pixel = (size_t)(n * arg.y_h + py) * arg.y_w + px;
        if (py >= arg.y_h || px >= arg.y_w) continue;
        UNROLL for (int k = 0; k < MINE / 32; k++) {
            uint word[4];
            UNROLL for (int j = 0; j < 4; j++) {
                float2 v = (float2)(sums[4 * k + j][2 * r], sums[4 * k + j][2 * r + 1]);
#ifdef RESIDUAL
                v += floats_of(add[r][k][j]);
#endif
#if ACT == ACT_GELU
                v = (float2)(quick_gelu(v.x), quick_gelu(v.y));
#endif
                word[j] = halves_of(v.x, v.y);
            }
            *(__global uint4 *)(y + pixel * arg.y_ld + arg.y_c0 + channel0 + k * 32) =
                (uint4)(word[0], word[1], word[2], word[3]);
        }
    }
}
