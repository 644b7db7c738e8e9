/* A layer behind attention of a prompt's tokens to each other (variants/nvidia/tokens.h) on matrix instructions with half
 * storage: hidden is softmax(q k^T / sqrt(32)) v in heads of 32 channels. Goes with nvidia/ptx, nvidia/token, for folds of
 * the result nvidia/token_folds, and with -D IMAGE nvidia/image_rows.
 *
 * Group (tile, slice) makes a slice of the tokens' projections; the last does attention and the layer. -D IN: channels
 * of x, a multiple of 32. -D SLICES of -D EACH times 64 projections, queries, keys and values [HID] first. -D IMAGE:
 * groups behind those of the tokens make keys and values of an image. -D COUNTED: prompts have some of the tokens. */
#define LD_IN        (IN / 8 + 1)                /* uint4 from row to row */
#define OUTS         (SLICES * 64 * EACH)        /* projections */
#define W1           (IN / 32 * (8 * EACH) * 32) /* uint4 of a slice */
#define INPUT        OWN                         /* x */
#define Q_AT         OWN                         /* then queries, keys and values */
#define K_AT         (OWN + 16 * LD_HID)
#define V_AT         (OWN + 32 * LD_HID)
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define ROOM_OF_BOTH LARGER(OWN + 48 * LD_HID, OWN + 16 * LD_IN)
#ifdef FOLDS
#define ROOM_OF_ALL LARGER(ROOM_OF_BOTH, FOLDING)
#define FOLDS_SIZE  (FOLDS * 8 * FOLD)
#else
#define ROOM_OF_ALL ROOM_OF_BOTH
#define FOLDS_SIZE  0
#define FOLD_PARAMETERS
#endif
#ifdef COUNTED /* prompt n has counts[n] of the tokens */
#define COUNT_PARAMETERS , __global const int *restrict counts
#define TOKENS_OF(n)     counts[min((n), arg.common.prompts - 1)]
#else
#define COUNT_PARAMETERS
#define TOKENS_OF(n) arg.common.tokens
#endif
#ifdef IMAGE
#define ROOM LARGER(ROOM_OF_ALL, 64 * LD_X)
#define IMAGE_PARAMETERS                                                                                               \
    , __global half *image_y, __global const half *restrict image_x, __global const half *restrict image_beside
#else
#define ROOM ROOM_OF_ALL
#define IMAGE_PARAMETERS
#endif

/* w: the warp's fragments of the slice's projections. With `beside`, whose row is ld wide or missing, to `all`. */
static inline void project(__global half *all, uint (*w)[IN / 32][4], __global const float *bias,
                           __global const half *beside, int ld, int tile, int slice, const token_args arg,
                           __local uint4 *memory MATRIX_SCRATCH_PARAMETER) {
    const int lane = get_local_id(0) & 31, warp = get_local_id(0) / 32, g = lane / 4, t = lane % 4;
    const int first = (slice * 8 + warp) * (EACH * 8) + 2 * t;
    const uint from = SHARED(memory) + (INPUT + lane % 16 * LD_IN + lane / 16) * 16;
    float u[EACH][4];
    UNROLL for (int c = 0; c < EACH; c++) {
        u[c][0] = u[c][2] = bias[first + c * 8];
        u[c][1] = u[c][3] = bias[first + c * 8 + 1];
    }
    UNROLL for (int k = 0; k < IN / 32; k++) {
        uint a[2][4];
        UNROLL for (int i = 0; i < 2; i++) MATRIX_LOAD(a[i], from + (2 * k + i) * 32);
        UNROLL for (int c = 0; c < EACH; c++) {
            MATRIX_MULTIPLY(u[c], a[0], w[c][k][0], w[c][k][1]);
            MATRIX_MULTIPLY(u[c], a[1], w[c][k][2], w[c][k][3]);
        }
    }
    for (int r = 0; r < 2; r++) {
        const size_t token = token_of(tile, g + 8 * r, arg);
        UNROLL for (int c = 0; c < EACH; c++) {
            float2 v = (float2)(u[c][2 * r], u[c][2 * r + 1]);
            if (ld) v += floats_of(*(__global const uint *)(beside + token * ld + first + c * 8));
            if (g < arg.tokens && tile * 2 + r < arg.prompts)
                *(__global uint *)(all + token * OUTS + first + c * 8) = halves_of(v.x, v.y);
        }
    }
}

/* Half of what row r's query of a head, at q, reads of `tokens` tokens, as 16 halves to `to`. */
static inline void attend(__local uint *to, __local const uint4 *q, __local const uint4 *k, __local const uint4 *v,
                          int tokens) {
    float s[8], most = -3.0e38f, sum = 0.0f, o[16];
    for (int j = 0; j < 8; j++) s[j] = 0.0f;
    for (int c = 0; c < 4; c++) {
        const uint4 a = q[c];
        const float2 a0 = floats_of(a.x), a1 = floats_of(a.y), a2 = floats_of(a.z), a3 = floats_of(a.w);
        for (int j = 0; j < 8; j++) {
            const uint4 b = k[j * LD_HID + c];
            const float2 b0 = floats_of(b.x), b1 = floats_of(b.y), b2 = floats_of(b.z), b3 = floats_of(b.w);
            s[j] = fma(a0.x, b0.x, fma(a0.y, b0.y, fma(a1.x, b1.x, fma(a1.y, b1.y, s[j]))));
            s[j] = fma(a2.x, b2.x, fma(a2.y, b2.y, fma(a3.x, b3.x, fma(a3.y, b3.y, s[j]))));
        }
    }
    for (int j = 0; j < 8; j++)
        if (j < tokens) most = fmax(most, s[j]);
    for (int j = 0; j < 8; j++) {
        s[j] = j < tokens ? quick_exp2((s[j] - most) * (0.17677669529663688f * 1.44269504f)) : 0.0f;
        sum += s[j];
    }
    for (int c = 0; c < 16; c++) o[c] = 0.0f;
    for (int j = 0; j < 8; j++)
        for (int c = 0; c < 2; c++) {
            const uint4 b = v[j * LD_HID + c];
            const float2 b0 = floats_of(b.x), b1 = floats_of(b.y), b2 = floats_of(b.z), b3 = floats_of(b.w);
            o[8 * c] = fma(s[j], b0.x, o[8 * c]);
            o[8 * c + 1] = fma(s[j], b0.y, o[8 * c + 1]);
            o[8 * c + 2] = fma(s[j], b1.x, o[8 * c + 2]);
            o[8 * c + 3] = fma(s[j], b1.y, o[8 * c + 3]);
            o[8 * c + 4] = fma(s[j], b2.x, o[8 * c + 4]);
            o[8 * c + 5] = fma(s[j], b2.y, o[8 * c + 5]);
            o[8 * c + 6] = fma(s[j], b3.x, o[8 * c + 6]);
            o[8 * c + 7] = fma(s[j], b3.y, o[8 * c + 7]);
        }
    sum = quick_reciprocal(sum);
    for (int c = 0; c < 8; c++) to[c] = halves_of(o[2 * c] * sum, o[2 * c + 1] * sum);
}

/* weights: fragments of the projections of all slices [SLICES EACH 8][IN / 32][lane][8 halves], then of the layer, of
 * folds and of the image's keys and values. table: the layer's, projections' biases, folds'. `all`: projections, with
 * `beside` added. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
token_attention(__global half *restrict y, __global const half *restrict x, __global const half *restrict add,
                __global const uint4 *restrict weights, __global const float *restrict table,
                __global const int *restrict limit, token_attention_args arg,
                __global const half *restrict beside, __global half *restrict all,
                __global int *restrict arrived FOLD_PARAMETERS IMAGE_PARAMETERS COUNT_PARAMETERS) {
    MATRIX_SCRATCH
    __local uint4 memory[ROOM];
    const int id = get_local_id(0), lane = id & 31, warp = id / 32, tile = get_group_id(0), slice = get_group_id(1);
    const int left = *limit - tile * 2; /* asked for together with the weights */
#ifdef IMAGE
    const int tiles = (arg.common.prompts + 1) / 2, block = (tile - tiles) * SLICES + slice;
    if (tile >= tiles) {
        if (block * 64 < arg.image.all_rows)
            image_rows(image_y, image_x, weights + SLICES * W1 + W2 + FOLDS_SIZE, image_beside, block, arg.image,
                       memory, SHARED(memory) MATRIX_SCRATCH_ARGUMENT);
        return;
    }
#endif
    uint w[EACH][IN / 32][4], second[NT][STEPS][4];
    UNROLL for (int c = 0; c < EACH; c++)
        UNROLL for (int k = 0; k < IN / 32; k++)
            FETCH16(w[c][k], weights + slice * W1 + ((warp * EACH + c) * (IN / 32) + k) * 32 + lane);
    if (left <= 0) return;
    copy_tokens(memory, INPUT, LD_IN, x + arg.x_c0, arg.x_ld, IN / 8, tile, arg.common);
    COPY_COMMIT();
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    project(all, w, table + 3 * OUT, beside + arg.beside_c0, arg.beside_ld, tile, slice, arg.common,
            memory MATRIX_SCRATCH_ARGUMENT);
    if (!last_to_arrive(SLICES, tile, arrived, memory)) return;

    fetch_layer(second, weights + SLICES * W1, 0);
    copy_tokens(memory, Q_AT, LD_HID, all, OUTS, HID / 8, tile, arg.common);
    copy_tokens(memory, K_AT, LD_HID, all + HID, OUTS, HID / 8, tile, arg.common);
    copy_tokens(memory, V_AT, LD_HID, all + 2 * HID, OUTS, HID / 8, tile, arg.common);
    COPY_COMMIT();
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = id; e < HID; e += THREADS) { /* a work-item has a query of a head and half of its result */
        const int part = e % 2, r = e / 2 % 8 + e / (HID / 2) * 8, h = e / 16 % (HID / 32), first = r / 8 * 8 * LD_HID;
        attend((__local uint *)(memory + HIDDEN + r * LD_HID + h * 4 + part * 2), memory + Q_AT + r * LD_HID + h * 4,
               memory + K_AT + first + h * 4, memory + V_AT + first + h * 4 + part * 2, TOKENS_OF(tile * 2 + r / 8));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum[NT][4];
    layer(sum, second, weights + SLICES * W1, memory MATRIX_SCRATCH_ARGUMENT);
    keep_sums(sum, memory);
    const int prompts = min(arg.common.prompts, *limit);
#ifdef FOLDS
    fold_rows(y, add, table, tile, prompts, arg.common, position + arg.position_c0, arg.position_ld,
              weights + SLICES * W1 + W2, table + 3 * OUT + OUTS, FOLD_TARGETS, memory MATRIX_SCRATCH_ARGUMENT);
#else
    finish_rows(y, add, table, tile, prompts, arg.common, memory MATRIX_SCRATCH_ARGUMENT);
#endif
}
