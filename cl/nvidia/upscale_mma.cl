/* SAM's mask upscaling (graph/nodes.h) on matrix instructions, with half storage; goes with nvidia/ptx.
 *
 * Group (i, z): 64 image tokens, 16 a warp, and one of the four pixels that the first transposed convolution makes of
 * each, of prompts z, z + groups, ..: the weights are copied to local memory once. All else stays in registers: the
 * fragments of the first product are, normalised and packed, those that the second one multiplies. Which of its own
 * channels an image token's fragment holds is free as long as the weights agree: work-item t of four takes eight in a
 * row. Tokens are fetched two blocks of 32 channels ahead.
 *
 * -D K: input channels, a multiple of 32. */
#define THREADS 128
#define C1      64
#define C2      32
#define BLOCKS  (K / 32)
#define FIRST   (BLOCKS * C1 * 4) /* uint4 of a phase of the first convolution */
#define SECOND  (4 * C1 * C2 / 8) /* of the second */
#define NORM    (FIRST + SECOND)  /* then floats: bias, gamma, beta [C1], bias of the second [C2] */
#define ALL     (NORM + (3 * C1 + C2) / 4)

/* Block k of 32 channels of prompt m's tokens. */
#define FETCH_TOKENS(m, k)                                                                                             \
    if ((k) < BLOCKS) {                                                                                                \
        UNROLL for (int r = 0; r < 2; r++) {                                                                           \
            const size_t row = (size_t)(m)*pixels + min(first + g + 8 * r, pixels - 1);                                \
            FETCH16(a[(k) % 3][r], x + row * x_ld + x_c0 + (k)*32 + t * 8);                                          \
        }                                                                                                              \
    }

/* weights: fragments of the first convolution [phase][K / 32][C1 / 8][lane][8 halves], then of the second [pixel][C1 /
 * 32][C2 / 8][lane][8 halves]. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
upscale(__global float *restrict y, __global const half *restrict x, __global const uint4 *restrict weights,
        __global const uint4 *restrict norm, __global const half *restrict vectors, __global const int *restrict limit,
        nvidia_upscale_args arg) {
    MATRIX_SCRATCH
    __local uint4 memory[ALL];
    const int id = get_local_id(0), lane = id & 31, g = lane / 4, t = lane % 4, phase = get_group_id(0) % 4;
    const int h = arg.common.h, wide = arg.common.w, pixels = h * wide, masks = arg.common.vectors;
    const int x_ld = arg.common.x_ld, x_c0 = arg.common.x_c0, vectors_ld = arg.common.vectors_ld;
    const int first = get_group_id(0) / 4 * 64 + id / 32 * 16, prompts = min(arg.prompts, *limit);
    const uint shared = SHARED(memory), mine = shared + lane * 16;
    __local const float *floats = (__local const float *)(memory + NORM);
    if ((int)get_group_id(1) >= prompts) return;
    for (int i = id; i < FIRST; i += THREADS) COPY16(shared + i * 16, weights + phase * FIRST + i, 16);
    for (int i = id; i < SECOND; i += THREADS) COPY16(shared + (FIRST + i) * 16, weights + 4 * FIRST + i, 16);
    if (id < ALL - NORM) COPY16(shared + (NORM + id) * 16, norm + id, 16);
    COPY_COMMIT();
    uint a[3][2][4], vector[C2 / 8];
    FETCH_TOKENS((int)get_group_id(1), 0)
    FETCH_TOKENS((int)get_group_id(1), 1)
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = get_group_id(1); n < prompts; n += get_num_groups(1)) {
        __global const uint *of_mask = (__global const uint *)(vectors + (size_t)n * masks * vectors_ld + arg.common.vectors_c0);
        UNROLL for (int c = 0; c < C2 / 8; c++) vector[c] = of_mask[c * 4 + t];

        float u[C1 / 8][4];
        UNROLL for (int c = 0; c < C1 / 8; c++) {
            u[c][0] = u[c][2] = floats[c * 8 + 2 * t];
            u[c][1] = u[c][3] = floats[c * 8 + 2 * t + 1];
        }
        UNROLL for (int k = 0; k < BLOCKS; k++) {
            FETCH_TOKENS(n, k + 2)
            const uint low[4] = {a[k % 3][0][0], a[k % 3][1][0], a[k % 3][0][1], a[k % 3][1][1]};
            const uint high[4] = {a[k % 3][0][2], a[k % 3][1][2], a[k % 3][0][3], a[k % 3][1][3]};
            UNROLL for (int c = 0; c < C1 / 8; c++) {
                uint b[4];
                SHARED_LOAD(b, mine + (k * (C1 / 8) + c) * 512);
                MATRIX_MULTIPLY(u[c], low, b[0], b[1]);
                MATRIX_MULTIPLY(u[c], high, b[2], b[3]);
            }
        }
        const int next = n + (int)get_num_groups(1) < prompts ? n + (int)get_num_groups(1) : n;
        FETCH_TOKENS(next, 0)
        FETCH_TOKENS(next, 1)

        float scale[2];
        CENTRE_ROWS(u, C1 / 8, arg.common.eps, scale);
        uint v[C1 / 16][4];
        UNROLL for (int c = 0; c < C1 / 8; c++) {
            const float2 gamma = *(__local const float2 *)(floats + C1 + c * 8 + 2 * t);
            const float2 beta = *(__local const float2 *)(floats + 2 * C1 + c * 8 + 2 * t);
            UNROLL for (int r = 0; r < 2; r++)
                v[c / 2][c % 2 * 2 + r] = halves_of(quick_gelu(fma(u[c][2 * r] * scale[r], gamma.x, beta.x)),
                                                    quick_gelu(fma(u[c][2 * r + 1] * scale[r], gamma.y, beta.y)));
        }

#pragma unroll 1
        for (int pixel = 0; pixel < 4; pixel++) {
            float w[C2 / 8][4];
            UNROLL for (int c = 0; c < C2 / 8; c++) {
                const float2 bias = *(__local const float2 *)(floats + 3 * C1 + c * 8 + 2 * t);
                w[c][0] = w[c][2] = bias.x;
                w[c][1] = w[c][3] = bias.y;
            }
            UNROLL for (int k = 0; k < C1 / 32; k++)
                UNROLL for (int c = 0; c < C2 / 8; c++) {
                    uint b[4];
                    SHARED_LOAD(b, mine + (FIRST + ((pixel * (C1 / 32) + k) * (C2 / 8) + c) * 32) * 16);
                    MATRIX_MULTIPLY(w[c], v[2 * k], b[0], b[1]);
                    MATRIX_MULTIPLY(w[c], v[2 * k + 1], b[2], b[3]);
                }
            UNROLL for (int c = 0; c < C2 / 8; c++)
                UNROLL for (int e = 0; e < 4; e++) w[c][e] = quick_gelu(w[c][e]);
            for (int m = 0; m < masks; m++) {
                if (masks > 1) {
                    UNROLL for (int c = 0; c < C2 / 8; c++) vector[c] = of_mask[m * vectors_ld / 2 + c * 4 + t];
                }
                float sum[2] = {0.0f, 0.0f};
                UNROLL for (int c = 0; c < C2 / 8; c++) {
                    const float2 f = floats_of(vector[c]);
                    sum[0] = fma(w[c][0], f.x, fma(w[c][1], f.y, sum[0]));
                    sum[1] = fma(w[c][2], f.x, fma(w[c][3], f.y, sum[1]));
                }
                UNROLL for (int r = 0; r < 2; r++) {
                    QUAD_SUM(sum[r]);
                    const int p = first + g + 8 * r, row = p / wide * 4 + (phase >> 1) * 2 + (pixel >> 1);
                    const int column = p % wide * 4 + (phase & 1) * 2 + (pixel & 1);
                    if (t == pixel && p < pixels)
                        y[(((size_t)n * masks + m) * h * 4 + row) * wide * 4 + column] = sum[r];
                }
            }
        }
    }
}
