/* y = z + W2 gelu(W1 LN(z) + b1) + b2 on matrix instructions with half storage (graph/nodes.h; goes with
 * nvidia/ptx), z = x or, with SPREAD, a depthwise 3x3 convolution of x: the hidden channels are never stored, and z only
 * where y will be. W1 and b1 come with the norm's scale and shift in them. With nvidia/spread.
 *
 * A group of eight warps takes BM rows, whose normalised values lie in local memory, and makes BH hidden channels at a
 * time: first the warps share rows by sixteen and hidden channels, then, behind their barrier, they are two by four on
 * rows and results, whose sums stay in registers. The weights of both layers pass through a ring of STAGES slices of
 * local memory, copied as they lie: fragments in the order of their use. Rows there lie an odd number of 16-byte
 * pieces apart, so that eight rows of a matrix are in different banks.
 *
 * With SPREAD the map's width is a multiple of four: a work-item takes four pixels of a line at a time.
 *
 * -D C: channels, a multiple of 32. -D BM: 32 or 64. -D BH: a multiple of 32. -D STAGES. */
#define THREADS 256
#define LDX     (C / 8 + 1) /* uint4 from row to row */
#define LDH     (BH / 8 + 1)
#define LDY     (C + 8)             /* floats */
#define WM      (BM / 16)           /* warps along the rows, first layer; 2 in the second */
#define NT1     (BH / 8 / (8 / WM)) /* tiles of eight channels of a warp */
#define NT2     (C / 32)
#define MI      (BM / 32)
#define SLICE   (C * BH / 8) /* uint4 */
#define RING    (BM * LDX)
#define HIDDEN  (RING + STAGES * SLICE)
#define BIAS    (HIDDEN + BM * LDH)
#define ALL     (BIAS + HID / 4)
#define PIECES  (C / 8)
#define PER     ((PIECES + 31) / 32)

/* Copies slice `s` of the weights, if there is one. */
#define COPY_SLICE(s)                                                                                                  \
    do {                                                                                                               \
        if ((s) < 2 * (HID / BH)) {                                                                                    \
            for (int i = id; i < SLICE; i += THREADS)                                                                  \
                COPY16(shared + (RING + (s) % STAGES * SLICE + i) * 16, weights + (size_t)(s)*SLICE + i, 16);          \
        }                                                                                                              \
        COPY_COMMIT();                                                                                                 \
    } while (0)
/* Slice `s` is there for all; its fragments from `at` on. */
#define TAKE_SLICE(s, at)                                                                                              \
    do {                                                                                                               \
        COPY_WAIT_FOR(STAGES);                                                                                         \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        COPY_SLICE((s) + STAGES - 1);                                                                                  \
        (at) = shared + (RING + (s) % STAGES * SLICE + lane) * 16;                                                     \
    } while (0)
#if STAGES == 2
#define COPY_WAIT_FOR(stages) COPY_WAIT(0)
#elif STAGES == 3
#define COPY_WAIT_FOR(stages) COPY_WAIT(1)
#else
#define COPY_WAIT_FOR(stages) COPY_WAIT(2)
#endif

/* Group i: rows [BM i, ..) of all items. weights [HID / BH] {fragments of W1 [BH / 8][C / 32][lane][8 halves], of W2
 * [C / 8][BH / 32][lane][8]}; table {b1 [HID], b2 [C]}; taps of SPREAD. -D HID: hidden channels, a multiple of
 * BH. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
norm_mlp(__global half *restrict y, __global const half *restrict x, __global const uint4 *restrict weights,
         __global const float *restrict table, __global const float *restrict taps, __global const int *restrict limit,
         __global const int *restrict content, norm_mlp_mma_args arg) {
    MATRIX_SCRATCH
    __local uint4 memory[ALL];
    __local uint *words = (__local uint *)memory;
    const int id = get_local_id(0), lane = id & 31, warp = id / 32, g = lane / 4, t = lane % 4;
    const int r0 = get_group_id(0) * BM, rows = min(arg.items, *limit) * arg.rows;
    const uint shared = SHARED(memory);
    if (r0 >= rows) return;
#ifdef LEFT_OUT
    if (pixels_left_out(r0, r0 + BM, arg.h, arg.w, content, arg.out)) return;
#endif
    for (int i = id; i < HID / 4; i += THREADS) COPY16(shared + (BIAS + i) * 16, table + i * 4, 16);
    for (int s = 0; s < STAGES - 1; s++) COPY_SLICE(s);

    /* The norm: a warp takes BM / 8 rows, four at a time, a work-item pieces of eight channels. */
    UNROLL for (int i0 = 0; i0 < BM / 8; i0 += 4) {
        const int first = warp * (BM / 8) + i0;
        eight z[PER][4];
        UNROLL for (int j = 0; j < PER; j++) {
            const int c = min(lane + 32 * j, PIECES - 1) * 8;
#ifdef SPREAD
            Z_OF(z[j], min(r0 + first, rows - 4), c);
            UNROLL for (int i = 0; i < 4; i++)
                if (lane + 32 * j < PIECES && r0 + first < rows)
                    *(__global uint4 *)(y + (size_t)(r0 + first + i) * arg.y_ld + arg.y_c0 + c) =
                        pieces_of(z[j][i].f, 1.0f);
#else
            uint v[4][4];
            UNROLL for (int i = 0; i < 4; i++)
                FETCH16(v[i], x + (size_t)min(r0 + first + i, rows - 1) * arg.x_ld + arg.x_c0 + c);
            UNROLL for (int i = 0; i < 4; i++) z[j][i] = eight_of(v[i]);
#endif
        }
        UNROLL for (int i = 0; i < 4; i++) {
            float mean = 0.0f, square = 0.0f;
            UNROLL for (int j = 0; j < PER; j++) {
                const float in = lane + 32 * j < PIECES ? 1.0f : 0.0f;
                UNROLL for (int e = 0; e < 8; e++) mean = fma(in, z[j][i].f[e], mean);
            }
            WARP_SUM(mean);
            mean /= C;
            UNROLL for (int j = 0; j < PER; j++) {
                const float in = lane + 32 * j < PIECES ? 1.0f : 0.0f;
                UNROLL for (int e = 0; e < 8; e++) {
                    z[j][i].f[e] -= mean;
                    square = fma(in * z[j][i].f[e], z[j][i].f[e], square);
                }
            }
            WARP_SUM(square);
            square = 1.0f / sqrt(square / C + arg.eps);
            UNROLL for (int j = 0; j < PER; j++)
                if (lane + 32 * j < PIECES) memory[(first + i) * LDX + lane + 32 * j] = pieces_of(z[j][i].f, square);
        }
    }

    const int row1 = warp % WM * 16, tile1 = warp / WM * NT1, row2 = warp % 2 * (16 * MI), tile2 = warp / 2 * NT2;
    float o[MI][NT2][4];
    UNROLL for (int c = 0; c < NT2; c++)
        UNROLL for (int i = 0; i < MI; i++) {
            o[i][c][0] = o[i][c][2] = table[HID + (tile2 + c) * 8 + 2 * t];
            o[i][c][1] = o[i][c][3] = table[HID + (tile2 + c) * 8 + 2 * t + 1];
        }
    for (int chunk = 0; chunk < HID / BH; chunk++) {
        uint at;
        float u[NT1][4];
        TAKE_SLICE(2 * chunk, at);
        UNROLL for (int c = 0; c < NT1; c++) {
            const float2 b = *(__local const float2 *)(words + BIAS * 4 + chunk * BH + (tile1 + c) * 8 + 2 * t);
            u[c][0] = u[c][2] = b.x;
            u[c][1] = u[c][3] = b.y;
        }
        UNROLL for (int k = 0; k < C / 32; k++) {
            uint a[2][4], b[4];
            UNROLL for (int j = 0; j < 2; j++)
                MATRIX_LOAD(a[j], shared + ((row1 + lane % 16) * LDX + (2 * k + j) * 2 + lane / 16) * 16);
            UNROLL for (int c = 0; c < NT1; c++) {
                SHARED_LOAD(b, at + ((tile1 + c) * (C / 32) + k) * 512);
                MATRIX_MULTIPLY(u[c], a[0], b[0], b[1]);
                MATRIX_MULTIPLY(u[c], a[1], b[2], b[3]);
            }
        }
        UNROLL for (int c = 0; c < NT1; c++)
            UNROLL for (int r = 0; r < 2; r++)
                words[(HIDDEN + (row1 + g + 8 * r) * LDH + tile1 + c) * 4 + t] =
                    halves_of(quick_gelu(u[c][2 * r]), quick_gelu(u[c][2 * r + 1]));
        TAKE_SLICE(2 * chunk + 1, at);
        UNROLL for (int k = 0; k < BH / 32; k++) {
            uint a[MI][2][4], b[4];
            UNROLL for (int i = 0; i < MI; i++)
                UNROLL for (int j = 0; j < 2; j++)
                    MATRIX_LOAD(a[i][j], shared + (HIDDEN + (row2 + i * 16 + lane % 16) * LDH + (2 * k + j) * 2 +
                                                   lane / 16) * 16);
            UNROLL for (int c = 0; c < NT2; c++) {
                SHARED_LOAD(b, at + ((tile2 + c) * (BH / 32) + k) * 512);
                UNROLL for (int i = 0; i < MI; i++) {
                    MATRIX_MULTIPLY(o[i][c], a[i][0], b[0], b[1]);
                    MATRIX_MULTIPLY(o[i][c], a[i][1], b[2], b[3]);
                }
            }
        }
    }

    /* Sums by rows, so that z is added and y stored in pieces of eight channels. */
    __local float *sums = (__local float *)memory;
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    UNROLL for (int i = 0; i < MI; i++)
        UNROLL for (int c = 0; c < NT2; c++)
            UNROLL for (int r = 0; r < 2; r++)
                *(__local float2 *)(sums + (row2 + i * 16 + g + 8 * r) * LDY + (tile2 + c) * 8 + 2 * t) =
                    (float2)(o[i][c][2 * r], o[i][c][2 * r + 1]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = id; i < min(BM, rows - r0) * PIECES; i += THREADS) {
        const int row = i / PIECES, c = i % PIECES * 8;
        __local const float4 *from = (__local const float4 *)(sums + row * LDY + c);
#ifdef SPREAD
        const uint4 v = *(__global const uint4 *)(y + (size_t)(r0 + row) * arg.y_ld + arg.y_c0 + c);
#else
        const uint4 v = *(__global const uint4 *)(x + (size_t)(r0 + row) * arg.x_ld + arg.x_c0 + c);
#endif
        const float4 low = from[0], high = from[1];
        const float2 v0 = floats_of(v.x), v1 = floats_of(v.y), v2 = floats_of(v.z), v3 = floats_of(v.w);
        *(__global uint4 *)(y + (size_t)(r0 + row) * arg.y_ld + arg.y_c0 + c) =
            (uint4)(halves_of(low.x + v0.x, low.y + v0.y), halves_of(low.z + v1.x, low.w + v1.y),
                    halves_of(high.x + v2.x, high.y + v2.y), halves_of(high.z + v3.x, high.w + v3.y));
    }
}
