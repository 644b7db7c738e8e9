/* A layer on tokens with a first layer before it (variants/nvidia/tokens.h) on matrix instructions with half storage: hidden is
 * relu(W1 x + b1). Goes with nvidia/ptx, nvidia/token and, for folds of the result, nvidia/token_folds.
 *
 * Group (tile, slice) makes a slice of 128 hidden channels and what they add to the result; the last sums up, in their
 * order. -D IN: channels of x, a multiple of 32. -D SLICES. */
#define LD_IN     (IN / 8 + 1)               /* uint4 from row to row */
#define W1        (IN / 32 * (HID / 8) * 32) /* uint4 of a slice */
#define PAIRS     ((NT + 1) / 2)             /* of blocks of a warp's outputs */
#define SECOND(c) (2 * (c) + 1 < NT ? 2 * (c) + 1 : 2 * (c))
#define INPUT     OWN
#ifdef FOLDS
#define ROOM (INPUT + 16 * LD_IN > FOLDING ? INPUT + 16 * LD_IN : FOLDING)
#else
#define ROOM (INPUT + 16 * LD_IN)
#define FOLD_PARAMETERS
#endif

/* Hidden channels of the slice to local memory, from x there; first: the warp's fragments of W1. */
static inline void first_layer(uint (*first)[IN / 32][4], __global const float *b1,
                               __local uint4 *memory MATRIX_SCRATCH_PARAMETER) {
    const int lane = get_local_id(0) & 31, warp = get_local_id(0) / 32, g = lane / 4, t = lane % 4;
    const uint from = SHARED(memory) + (INPUT + lane % 16 * LD_IN + lane / 16) * 16;
    float u[2][4];
    UNROLL for (int c = 0; c < 2; c++) {
        const int at = (warp * 2 + c) * 8 + 2 * t;
        u[c][0] = u[c][2] = b1[at];
        u[c][1] = u[c][3] = b1[at + 1];
    }
    UNROLL for (int k = 0; k < IN / 32; k++) {
        uint a[2][4];
        UNROLL for (int i = 0; i < 2; i++) MATRIX_LOAD(a[i], from + (2 * k + i) * 32);
        UNROLL for (int c = 0; c < 2; c++) {
            MATRIX_MULTIPLY(u[c], a[0], first[c][k][0], first[c][k][1]);
            MATRIX_MULTIPLY(u[c], a[1], first[c][k][2], first[c][k][3]);
        }
    }
    UNROLL for (int c = 0; c < 2; c++)
        UNROLL for (int r = 0; r < 2; r++)
            ((__local uint *)(memory + HIDDEN + (g + 8 * r) * LD_HID))[(warp * 2 + c) * 4 + t] =
                halves_of(fmax(u[c][2 * r], 0.0f), fmax(u[c][2 * r + 1], 0.0f));
    barrier(CLK_LOCAL_MEM_FENCE);
}

#if SLICES > 1
/* What a slice adds to `halves` rows, g and g + 8, to `all` [2][SLICES][PAIRS][THREADS]: rows of the first prompt, then
 * of the second, if there is one. */
static inline void store_share(__global float4 *all, float (*sum)[4], int slice, int halves) {
    UNROLL for (int r = 0; r < 2; r++)
        UNROLL for (int c = 0; c < PAIRS; c++)
            if (r < halves)
                all[((r * SLICES + slice) * PAIRS + c) * THREADS] =
                    (float4)(sum[2 * c][2 * r], sum[2 * c][2 * r + 1], sum[SECOND(c)][2 * r],
                             sum[SECOND(c)][2 * r + 1]);
}

/* sum: those of all slices. */
static inline void add_shares(float (*sum)[4], __global const float4 *all, int halves) {
    UNROLL for (int c = 0; c < PAIRS; c++)
        UNROLL for (int r = 0; r < 2; r++) {
            float4 share[SLICES];
            UNROLL for (int s = 0; s < SLICES; s++)
                share[s] =
                    r < halves ? load_shared_result(all + ((r * SLICES + s) * PAIRS + c) * THREADS) : (float4)(0.0f);
            barrier(CLK_LOCAL_MEM_FENCE); /* all are under way */
            UNROLL for (int s = 1; s < SLICES; s++) share[0] += share[s];
            sum[2 * c][2 * r] = share[0].x;
            sum[2 * c][2 * r + 1] = share[0].y;
            if (SECOND(c) != 2 * c) {
                sum[SECOND(c)][2 * r] = share[0].z;
                sum[SECOND(c)][2 * r + 1] = share[0].w;
            }
        }
}
#endif

/* weights of a slice: fragments of the first layer [HID / 8][IN / 32][lane][8 halves], then of the second; behind those
 * of all slices folds'. table: the layer's, b1 [SLICES HID], folds'. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
token_layer(__global half *restrict y, __global const half *restrict x, __global const half *restrict add,
            __global const uint4 *restrict weights, __global const float *restrict table,
            __global const int *restrict limit, token_layer_args arg
#if SLICES > 1
            , __global float4 *restrict partial, __global int *restrict arrived
#endif
            FOLD_PARAMETERS) {
    MATRIX_SCRATCH
    __local uint4 memory[ROOM];
    const int lane = get_local_id(0) & 31, warp = get_local_id(0) / 32, tile = get_group_id(0), slice = get_group_id(1);
    const int left = *limit - tile * 2; /* asked for together with the weights */
    __global const uint4 *own = weights + (size_t)slice * (W1 + W2);
    uint first[2][IN / 32][4], second[NT][STEPS][4];
    UNROLL for (int c = 0; c < 2; c++)
        UNROLL for (int k = 0; k < IN / 32; k++)
            FETCH16(first[c][k], own + ((warp * 2 + c) * (IN / 32) + k) * 32 + lane);
    fetch_layer(second, own + W1, 0);
    if (left <= 0) return;
    copy_tokens(memory, INPUT, LD_IN, x + arg.x_c0, arg.x_ld, IN / 8, tile, arg.common);
    COPY_COMMIT();
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);

    float sum[NT][4];
    first_layer(first, table + 3 * OUT + slice * HID, memory MATRIX_SCRATCH_ARGUMENT);
    layer(sum, second, own + W1, memory MATRIX_SCRATCH_ARGUMENT);
#if SLICES > 1
    __global float4 *all = partial + (size_t)tile * (2 * SLICES * PAIRS * THREADS) + get_local_id(0);
    const int halves = left > 1 && tile * 2 + 1 < arg.common.prompts ? 2 : 1;
    store_share(all, sum, slice, halves);
    if (!last_to_arrive(SLICES, tile, arrived, memory)) return;
    add_shares(sum, all, halves);
#endif
    keep_sums(sum, memory);
    const int prompts = min(arg.common.prompts, *limit);
#ifdef FOLDS
    fold_rows(y, add, table, tile, prompts, arg.common, position + arg.position_c0, arg.position_ld,
              weights + SLICES * (W1 + W2), table + 3 * OUT + SLICES * HID, FOLD_TARGETS,
              memory MATRIX_SCRATCH_ARGUMENT);
#else
    finish_rows(y, add, table, tile, prompts, arg.common, memory MATRIX_SCRATCH_ARGUMENT);
#endif
}
