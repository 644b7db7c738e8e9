/* SAM's mask upscaling (graph/nodes.h) on the matrix instructions of warpgroups, with half storage; goes with
 * nvidia/ptx and nvidia/wgmma.
 *
 * Group (i, z): 64 image tokens, 16 a warp, and one of the four pixels that the first transposed convolution makes of
 * each, of prompts z, z + groups, ..: the weights lie in local memory, as nvidia/wgmma wants them, all else in registers.
 * As in nvidia/two_way_wgmma a token's channels come from memory as fragments: of 64, work-item t of four has eight in a
 * row and eight more 32 behind, and weights have that order of places (variants/fragments.h). The first product's sums,
 * normalised and packed, are the second one's fragments; that one makes two pixels of four at a time.
 *
 * -D K: input channels, a multiple of 64. */
#define THREADS 128
#define C1      64
#define C2      32
#define TILES   (K / 64)
#define TILE    8192 /* bytes */
#define SECOND  (TILES * TILE)      /* bytes in local memory: behind a phase of the first convolution */
#define NORM    (SECOND + 2 * TILE) /* floats: bias, gamma, beta [C1], bias of the second [C2] */
#define ALL     (NORM + (3 * C1 + C2) * 4)

/* u [8][4] += fragments A(k) of tiles [64 columns][16 k ..] at `from`. */
#define PRODUCT(u, count, A, from)                                                                                     \
    GROUP_HOLD(u);                                                                                                     \
    GROUP_BEGIN();                                                                                                     \
    UNROLL for (int k = 0; k < (count); k++)                                                                           \
        GROUP_MULTIPLY_A(64, u, A(k), MATRIX_AT(shared + (from)) + (uint)(k / 4 * (TILE / 16) + k % 4 * 2));           \
    GROUP_COMMIT();                                                                                                    \
    GROUP_WAIT(0);                                                                                                     \
    GROUP_HOLD(u);
#define TOKENS(k)  ((const uint[4]){a[0][(k) / 2][(k) % 2 * 2], a[1][(k) / 2][(k) % 2 * 2],                            \
                                    a[0][(k) / 2][(k) % 2 * 2 + 1], a[1][(k) / 2][(k) % 2 * 2 + 1]})
#define MIDDLE(k)  v[k]

/* weights: tiles of the first convolution [phase][K / 64][C1][64 places], then of the second [pixel][C2][C1], 16-byte
 * parts exchanged. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
upscale(__global float *restrict y, __global const half *restrict x, __global const uint4 *restrict weights,
        __global const uint4 *restrict norm, __global const half *restrict vectors, __global const int *restrict limit,
        nvidia_upscale_args arg) {
    MATRIX_SCRATCH
    __local uint4 memory[ALL / 16] __attribute__((aligned(1024)));
    const int id = get_local_id(0), lane = id & 31, g = lane / 4, t = lane % 4, phase = get_group_id(0) % 4;
    const int wide = arg.common.w, pixels = arg.common.h * wide, masks = arg.common.vectors;
    const int x_ld = arg.common.x_ld, x_c0 = arg.common.x_c0, vectors_ld = arg.common.vectors_ld;
    const int first = get_group_id(0) / 4 * 64 + id / 32 * 16, prompts = min(arg.prompts, *limit);
    const uint shared = SHARED(memory);
    __local const float *floats = (__local const float *)(memory + NORM / 16);
    int to[2]; /* of rows g and g + 8: the logit of the phase's pixel that work-item t makes */
    UNROLL for (int r = 0; r < 2; r++) {
        const int p = first + g + 8 * r, row = p / wide * 4 + (phase >> 1) * 2 + t / 2;
        to[r] = row * wide * 4 + p % wide * 4 + (phase & 1) * 2 + (t & 1);
    }
    for (int i = id; i < SECOND / 16; i += THREADS) COPY16(shared + i * 16, weights + phase * (SECOND / 16) + i, 16);
    for (int i = id; i < 2 * TILE / 16; i += THREADS)
        COPY16(shared + SECOND + i * 16, weights + 4 * (SECOND / 16) + i, 16);
    if (id < (ALL - NORM) / 16) COPY16(shared + NORM + id * 16, norm + id, 16);
    COPY_COMMIT();
    COPY_WAIT(0);
    if ((int)get_group_id(1) >= prompts) return;
    GROUP_PUBLISH();
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = get_group_id(1); n < prompts; n += get_num_groups(1)) {
        uint a[2][2 * TILES][4], v[4][4];
        UNROLL for (int r = 0; r < 2; r++)
            UNROLL for (int e = 0; e < 2 * TILES; e++) {
                const size_t row = (size_t)n * pixels + min(first + g + 8 * r, pixels - 1);
                FETCH16(a[r][e], x + row * x_ld + x_c0 + e * 32 + t * 8);
            }
        float u[C1 / 8][4];
        UNROLL for (int c = 0; c < C1 / 8; c++) {
            u[c][0] = u[c][2] = floats[c * 8 + 2 * t];
            u[c][1] = u[c][3] = floats[c * 8 + 2 * t + 1];
        }
        UNROLL for (int r = 0; r < 2; r++)
            UNROLL for (int e = 0; e < 2 * TILES; e++) GROUP_HOLD_WORDS(a[r][e]);
        PRODUCT(u, 4 * TILES, TOKENS, 0)

        float scale[2];
        CENTRE_ROWS(u, C1 / 8, arg.common.eps, scale);
        UNROLL for (int c = 0; c < C1 / 8; c++) {
            const float2 gamma = *(__local const float2 *)(floats + C1 + c * 8 + 2 * t);
            const float2 beta = *(__local const float2 *)(floats + 2 * C1 + c * 8 + 2 * t);
            UNROLL for (int r = 0; r < 2; r++)
                v[c / 2][c % 2 * 2 + r] = halves_of(quick_gelu(fma(u[c][2 * r] * scale[r], gamma.x, beta.x)),
                                                    quick_gelu(fma(u[c][2 * r + 1] * scale[r], gamma.y, beta.y)));
        }
        UNROLL for (int k = 0; k < 4; k++) GROUP_HOLD_WORDS(v[k]);

        /* Two pixels of a line; work-items with odd t keep the second. */
        __global const uint *of_mask = (__global const uint *)(vectors + (size_t)n * masks * vectors_ld + arg.common.vectors_c0) + t;
#pragma unroll 1
        for (int line = 0; line < 2; line++) {
            float w[2 * C2 / 8][4];
            UNROLL for (int c = 0; c < 2 * C2 / 8; c++) {
                const float2 bias = *(__local const float2 *)(floats + 3 * C1 + c % 4 * 8 + 2 * t);
                w[c][0] = w[c][2] = bias.x;
                w[c][1] = w[c][3] = bias.y;
            }
            PRODUCT(w, 4, MIDDLE, SECOND + line * TILE)
            UNROLL for (int c = 0; c < 2 * C2 / 8; c++)
                UNROLL for (int e = 0; e < 4; e++) w[c][e] = quick_gelu(w[c][e]);
            for (int m = 0; m < masks; m++) {
                uint vector[C2 / 8];
                UNROLL for (int c = 0; c < C2 / 8; c++) vector[c] = of_mask[m * vectors_ld / 2 + c * 4];
                UNROLL for (int r = 0; r < 2; r++) {
                    float sum[2] = {0.0f, 0.0f}, other;
                    UNROLL for (int c = 0; c < C2 / 8; c++) {
                        const float2 f = floats_of(vector[c]);
                        sum[0] = fma(w[c][2 * r], f.x, fma(w[c][2 * r + 1], f.y, sum[0]));
                        sum[1] = fma(w[C2 / 8 + c][2 * r], f.x, fma(w[C2 / 8 + c][2 * r + 1], f.y, sum[1]));
                    }
                    LANE_XOR(other, t & 1 ? sum[0] : sum[1], 1);
                    float mine = (t & 1 ? sum[1] : sum[0]) + other;
                    LANE_XOR(other, mine, 2);
                    mine += other;
                    if (t / 2 == line && first + g + 8 * r < pixels)
                        y[((size_t)n * masks + m) * pixels * 16 + to[r]] = mine;
                }
            }
        }
    }
}
