/* An inverted bottleneck (src/ops/mbconv.h) of stride 1 on matrix instructions with half storage (goes with isa/ptx):
 * the hidden maps are never stored.
 *
 * A group of 16 warps makes SIDE x SIDE pixels from HALO x HALO of the input, which lie in local memory, EACH hidden
 * channels at a time: expansion (a line of the halo is the 16 rows of a warp's fragment; zeros outside the map, which
 * is what the depthwise convolution pads with), depthwise convolution (a work-item takes half a line of two channels),
 * projection, whose sums stay in registers. Rows lie an odd number of 16-byte pieces apart, so that eight rows of a
 * matrix are in different banks, and lines of the expansion 16 words off a whole number of banks.
 *
 * -D C, OUT: channels in and out, multiples of 32. -D HID: hidden channels, a multiple of 32. -D RESIDUAL: x is added
 * (C is OUT). -D ACT: of the result, none or GELU. */
#define THREADS 512
#define SIDE    14
#define STRIP   (SIDE / 2)
#define HALO    16
#define EACH    32
#define LDX     (C / 8 + 1) /* uint4 from row to row */
#define LDE     5
#define LINE    (HALO * LDE + 4)
#define LDY     (OUT / 8 + 1)
#define PIXELS  (SIDE * SIDE)
#define BLOCKS  ((PIXELS + 15) / 16)
#define FIRST   (EACH / 8 * (C / 32) * 32) /* uint4 of a chunk's weights: expansion, projection; numbers */
#define LAST    (OUT / 8 * 32)
#define NUMBERS (11 * EACH / 4)
#define WEIGHTS (HALO * HALO * LDX)
#define RECORD  (FIRST + LAST + NUMBERS)
#define WIDE    (WEIGHTS + 2 * RECORD)
#define SPREAD  (WIDE + HALO * LINE)
#define ROOM    (HALO * LINE + BLOCKS * 16 * LDE > PIXELS * LDY ? HALO * LINE + BLOCKS * 16 * LDE : PIXELS * LDY)

#define COPY_CHUNK(i)                                                                                                  \
    do {                                                                                                               \
        const uint to = shared + (WEIGHTS + (i) % 2 * RECORD) * 16;                                                    \
        if ((i) < HID / EACH) {                                                                                        \
            for (int j = id; j < FIRST + LAST; j += THREADS)                                                           \
                COPY16(to + j * 16, weights + (i) * (FIRST + LAST) + j, 16);                                           \
            for (int j = id; j < NUMBERS; j += THREADS)                                                                \
                COPY16(to + (FIRST + LAST + j) * 16, numbers + ((i)*NUMBERS + j) * 4, 16);                             \
        }                                                                                                              \
        COPY_COMMIT();                                                                                                 \
    } while (0)

/* Group (i, n): tile i of item n. weights [HID / EACH] {fragments of the expansion [EACH / 8][C / 32][lane][8 halves],
 * of the projection [OUT / 8][lane][8]}; numbers [HID / EACH] {bias of the expansion [EACH], taps [9][EACH], bias
 * [EACH]}, then the projection's bias [OUT]. sizes {height, width, tiles of a line, 0}; lds {x ld, c0, y ld, c0}. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
mbconv(__global half *restrict y, __global const half *restrict x, __global const uint4 *restrict weights,
       __global const float *restrict numbers, __global const int *restrict limit, int4 sizes, int4 lds) {
    MATRIX_SCRATCH
    __local uint4 memory[WIDE + ROOM];
    __local uint *words = (__local uint *)memory;
    const int id = get_local_id(0), lane = id & 31, warp = id / 32, g = lane / 4, t = lane % 4, n = get_group_id(1);
    const int y0 = get_group_id(0) / sizes.z * SIDE, x0 = get_group_id(0) % sizes.z * SIDE;
    const uint shared = SHARED(memory);
    if (n >= *limit) return;
    for (int i = id; i < HALO * HALO * (C / 8); i += THREADS) {
        const int pixel = i / (C / 8), py = clamp(y0 + pixel / HALO - 1, 0, sizes.x - 1);
        const int px = clamp(x0 + pixel % HALO - 1, 0, sizes.y - 1);
        COPY16(shared + (pixel * LDX + i % (C / 8)) * 16,
               x + ((size_t)(n * sizes.x + py) * sizes.y + px) * lds.x + lds.y + i % (C / 8) * 8, 16);
    }
    COPY_CHUNK(0);
    float o[OUT / 8][4];
    UNROLL for (int c = 0; c < OUT / 8; c++) {
        o[c][0] = o[c][2] = numbers[11 * HID + c * 8 + 2 * t];
        o[c][1] = o[c][3] = numbers[11 * HID + c * 8 + 2 * t + 1];
    }
    for (int chunk = 0; chunk < HID / EACH; chunk++) {
        COPY_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        COPY_CHUNK(chunk + 1);
        const int record = WEIGHTS + chunk % 2 * RECORD;
        __local const float *number = (__local const float *)(memory + record + FIRST + LAST);

        float u[EACH / 8][4];
        UNROLL for (int c = 0; c < EACH / 8; c++) {
            const float2 b = *(__local const float2 *)(number + c * 8 + 2 * t);
            u[c][0] = u[c][2] = b.x;
            u[c][1] = u[c][3] = b.y;
        }
        uint a[2][4], b[4];
        UNROLL for (int k = 0; k < C / 32; k++) {
            UNROLL for (int j = 0; j < 2; j++)
                MATRIX_LOAD(a[j], shared + ((warp * HALO + lane % 16) * LDX + (2 * k + j) * 2 + lane / 16) * 16);
            UNROLL for (int c = 0; c < EACH / 8; c++) {
                SHARED_LOAD(b, shared + (record + (c * (C / 32) + k) * 32 + lane) * 16);
                MATRIX_MULTIPLY(u[c], a[0], b[0], b[1]);
                MATRIX_MULTIPLY(u[c], a[1], b[2], b[3]);
            }
        }
        UNROLL for (int r = 0; r < 2; r++) {
            const int px = g + 8 * r;
            const bool in = (uint)(y0 + warp - 1) < (uint)sizes.x && (uint)(x0 + px - 1) < (uint)sizes.y;
            UNROLL for (int c = 0; c < EACH / 8; c++) {
                const uint two = halves_of(quick_gelu(u[c][2 * r]), quick_gelu(u[c][2 * r + 1]));
                words[(WIDE + warp * LINE + px * LDE + c) * 4 + t] = in ? two : 0u;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (id < 2 * SIDE * EACH / 2) {
            const int pair = id % (EACH / 2), line = id / (EACH / 2) % SIDE, start = id / (SIDE * EACH / 2) * STRIP;
            __local const uint *from = words + (WIDE + line * LINE + start * LDE) * 4 + pair;
            __local uint *to = words + (SPREAD + (line * SIDE + start) * LDE) * 4 + pair;
            __local const float2 *two = (__local const float2 *)(number + EACH) + pair;
            const float2 bias = two[9 * (EACH / 2)];
            float2 tap[9], sum[STRIP + 2];
            UNROLL for (int k = 0; k < 9; k++) tap[k] = two[k * (EACH / 2)];
            UNROLL for (int px = 0; px < STRIP + 2; px++) {
                sum[px] = bias;
                UNROLL for (int ky = 0; ky < 3; ky++) {
                    const float2 v = floats_of(from[ky * (LINE * 4) + px * (LDE * 4)]);
                    UNROLL for (int kx = 0; kx < 3; kx++)
                        if (px - kx >= 0 && px - kx < STRIP) {
                            sum[px - kx].x = fma(v.x, tap[ky * 3 + kx].x, sum[px - kx].x);
                            sum[px - kx].y = fma(v.y, tap[ky * 3 + kx].y, sum[px - kx].y);
                        }
                }
                if (px >= 2)
                    to[(px - 2) * (LDE * 4)] = halves_of(quick_gelu(sum[px - 2].x), quick_gelu(sum[px - 2].y));
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLL for (int j = 0; j < 2; j++)
            MATRIX_LOAD(a[j], shared + (SPREAD + (min(warp, BLOCKS - 1) * 16 + lane % 16) * LDE) * 16 + j * 32 +
                                  lane / 16 * 16);
        UNROLL for (int c = 0; c < OUT / 8; c++) {
            SHARED_LOAD(b, shared + (record + FIRST + c * 32 + lane) * 16);
            MATRIX_MULTIPLY(o[c], a[0], b[0], b[1]);
            MATRIX_MULTIPLY(o[c], a[1], b[2], b[3]);
        }
    }

    /* Results by pixels, so that they are stored in pieces of eight channels. */
    barrier(CLK_LOCAL_MEM_FENCE);
    UNROLL for (int r = 0; r < 2; r++) {
        const int pixel = warp * 16 + g + 8 * r, py = pixel / SIDE, px = pixel % SIDE;
        if (pixel < PIXELS) {
            UNROLL for (int c = 0; c < OUT / 8; c++) {
                float2 v = (float2)(o[c][2 * r], o[c][2 * r + 1]);
#ifdef RESIDUAL
                v += floats_of(words[(((py + 1) * HALO + px + 1) * LDX + c) * 4 + t]);
#endif
#if ACT == ACT_GELU
                v = (float2)(quick_gelu(v.x), quick_gelu(v.y));
#endif
                words[(WIDE + pixel * LDY + c) * 4 + t] = halves_of(v.x, v.y);
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = id; i < PIXELS * (OUT / 8); i += THREADS) {
        const int pixel = i / (OUT / 8), piece = i % (OUT / 8), py = y0 + pixel / SIDE, px = x0 + pixel % SIDE;
        if (py < sizes.x && px < sizes.y)
            *(__global uint4 *)(y + ((size_t)(n * sizes.x + py) * sizes.y + px) * lds.z + lds.w + piece * 8) =
                memory[WIDE + pixel * LDY + piece];
    }
}
