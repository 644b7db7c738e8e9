/* Layers on a few tokens of several prompts (src/ops/token.h) on matrix instructions with half storage; goes with
 * isa/ptx: LN(add + W hidden + b), where hidden is x, relu(W1 x + b1), or attention of a prompt's tokens to each other.
 *
 * A group takes two prompts, eight rows each; with a first layer it makes a slice of the hidden channels, leaves what
 * they add to the result, and the last of the slices' groups to arrive adds them up in their order. The time is that of
 * reading the weights, so a work-item asks for all of its own at once, before anything else.
 *
 * -D MODE: 0 x, 1 first layer, 2 attention; 3 another kernel, with -D IN alone, a multiple of 64. -D HID: hidden
 * channels of a slice; MODE 1: 128, else a multiple of 32. -D IN: channels of x, a multiple of 32. -D OUT: a multiple
 * of 64. -D SLICES. */
#define THREADS 256

#if MODE < 3
#define LD_HID (HID / 8 + 1) /* uint4 from row to row */
#define LD_IN  (IN / 8 + 1)
#define LD_OUT (OUT + 4)     /* floats */
#define NT     (OUT / 64)    /* blocks of eight outputs of a warp */
#define HIDDEN 0             /* uint4 in local memory */
#define INPUT  (16 * LD_HID) /* x; or queries, keys and values */
#define SUMS   (INPUT + (MODE == 0 ? 0 : MODE == 1 ? 16 * LD_IN : 48 * LD_HID))
#define FLAG   (SUMS + 4 * LD_OUT)
#define W1     (MODE == 1 ? IN / 32 * (HID / 8) * 32 : 0) /* uint4 of a slice */
#define W2     (HID / 32 * (OUT / 8) * 32)

/* The tile's rows of `from` to local memory, `pieces` of 16 bytes each. */
#define COPY_TOKENS(to, ld_to, from, ld, c0, pieces)                                                                   \
    for (int i = id; i < 16 * (pieces); i += THREADS)                                                                  \
        COPY16(shared + ((to) + i / (pieces) * (ld_to) + i % (pieces)) * 16,                                           \
               (from) + (size_t)TOKEN(i / (pieces)) * (ld) + (c0) + i % (pieces) * 8, 16);
/* Where row r stands; rows that are not there repeat others. */
#define TOKEN(r) (min(tile * 2 + (r) / 8, sizes.y - 1) * sizes.x + min((r) % 8, sizes.x - 1))

/* weights of a slice: fragments of the first layer [HID / 8][IN / 32][lane][8 halves], of the second [OUT / 8][HID /
 * 32][lane][8]. table {b, gamma, beta} [OUT], then b1. sizes {tokens, prompts, 0, 0}; lds {x ld, c0, keys ld, c0,
 * values ld, c0, add ld or 0, c0}. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
tokens(__global half *restrict y, __global const half *restrict x, __global const half *restrict keys,
       __global const half *restrict values, __global const half *restrict add, __global const uint4 *restrict weights,
       __global const float *restrict table, __global float4 *restrict partial, __global int *restrict arrived,
       __global const int *restrict limit, int4 sizes, int8 lds, float eps, float scale) {
    MATRIX_SCRATCH
    __local uint4 memory[FLAG + 1];
    __local uint *words = (__local uint *)memory;
    __local float *sums = (__local float *)(memory + SUMS);
    const int id = get_local_id(0), lane = id & 31, warp = id / 32, g = lane / 4, t = lane % 4;
    const int tile = get_group_id(0), slice = get_group_id(1);
    const uint shared = SHARED(memory), row = (lane % 16) * 16, part = lane / 16 * 16;
    const int left = *limit - tile * 2; /* asked for together with the weights */
    weights += (size_t)slice * (W1 + W2) + lane;
    uint second[NT][HID / 32][4];
#if MODE == 1
    uint first[2][IN / 32][4];
    UNROLL for (int c = 0; c < 2; c++)
        UNROLL for (int k = 0; k < IN / 32; k++) FETCH16(first[c][k], weights + ((warp * 2 + c) * (IN / 32) + k) * 32);
#endif
    UNROLL for (int c = 0; c < NT; c++)
        UNROLL for (int k = 0; k < HID / 32; k++)
            FETCH16(second[c][k], weights + W1 + ((warp * NT + c) * (HID / 32) + k) * 32);
    if (left <= 0) return;
#if MODE == 0
    COPY_TOKENS(HIDDEN, LD_HID, x, lds.s0, lds.s1, HID / 8)
#elif MODE == 1
    COPY_TOKENS(INPUT, LD_IN, x, lds.s0, lds.s1, IN / 8)
#else
    COPY_TOKENS(INPUT, LD_HID, x, lds.s0, lds.s1, HID / 8)
    COPY_TOKENS(INPUT + 16 * LD_HID, LD_HID, keys, lds.s2, lds.s3, HID / 8)
    COPY_TOKENS(INPUT + 32 * LD_HID, LD_HID, values, lds.s4, lds.s5, HID / 8)
#endif
    COPY_COMMIT();
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);

#if MODE == 1
    float u[2][4];
    UNROLL for (int c = 0; c < 2; c++) {
        const int at = 3 * OUT + slice * HID + warp * 16 + c * 8 + 2 * t;
        u[c][0] = u[c][2] = table[at];
        u[c][1] = u[c][3] = table[at + 1];
    }
    UNROLL for (int k = 0; k < IN / 32; k++) {
        uint a[2][4];
        UNROLL for (int i = 0; i < 2; i++)
            MATRIX_LOAD(a[i], shared + INPUT * 16 + row * LD_IN + (2 * k + i) * 32 + part);
        UNROLL for (int c = 0; c < 2; c++) {
            MATRIX_MULTIPLY(u[c], a[0], first[c][k][0], first[c][k][1]);
            MATRIX_MULTIPLY(u[c], a[1], first[c][k][2], first[c][k][3]);
        }
    }
    UNROLL for (int c = 0; c < 2; c++)
        UNROLL for (int r = 0; r < 2; r++)
            words[(HIDDEN + (g + 8 * r) * LD_HID + warp * 2 + c) * 4 + t] =
                halves_of(fmax(u[c][2 * r], 0.0f), fmax(u[c][2 * r + 1], 0.0f));
    barrier(CLK_LOCAL_MEM_FENCE);
#elif MODE == 2
    /* Heads of 32 channels: a work-item takes a query of a head and half of its result. */
    for (int e = id; e < HID; e += THREADS) {
        const int part_of = e % 2, r = e / 2 % 8 + e / (HID / 2) * 8, h = e / 16 % (HID / 32);
        __local const uint4 *q = memory + INPUT + r * LD_HID + h * 4;
        __local const uint4 *k = memory + INPUT + (16 + r / 8 * 8) * LD_HID + h * 4;
        __local const uint4 *v = k + 16 * LD_HID + part_of * 2;
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
            if (j < sizes.x) most = fmax(most, s[j]);
        for (int j = 0; j < 8; j++) {
            s[j] = j < sizes.x ? quick_exp2((s[j] - most) * (scale * 1.44269504f)) : 0.0f;
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
        for (int c = 0; c < 8; c++)
            words[(HIDDEN + r * LD_HID + h * 4 + part_of * 2) * 4 + c] = halves_of(o[2 * c] * sum, o[2 * c + 1] * sum);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif

    float c2[NT][4];
    UNROLL for (int c = 0; c < NT; c++)
        UNROLL for (int e = 0; e < 4; e++) c2[c][e] = 0.0f;
    UNROLL for (int k = 0; k < HID / 32; k++) {
        uint a[2][4];
        UNROLL for (int i = 0; i < 2; i++)
            MATRIX_LOAD(a[i], shared + HIDDEN * 16 + row * LD_HID + (2 * k + i) * 32 + part);
        UNROLL for (int c = 0; c < NT; c++) {
            MATRIX_MULTIPLY(c2[c], a[0], second[c][k][0], second[c][k][1]);
            MATRIX_MULTIPLY(c2[c], a[1], second[c][k][2], second[c][k][3]);
        }
    }
#if SLICES > 1
    __local int *flag = (__local int *)(memory + FLAG);
    __global float4 *all = partial + (size_t)tile * (SLICES * NT * THREADS) + id;
    UNROLL for (int c = 0; c < NT; c++)
        all[(slice * NT + c) * THREADS] = (float4)(c2[c][0], c2[c][1], c2[c][2], c2[c][3]);
    DEVICE_FENCE();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (id == 0) {
        const int before_me = atomic_inc((volatile __global int *)arrived + tile);
        *flag = before_me == SLICES - 1;
        if (before_me == SLICES - 1) arrived[tile] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!*flag) return;
    DEVICE_FENCE();
    UNROLL for (int c = 0; c < NT; c++) {
        float4 sum[SLICES];
        UNROLL for (int s = 0; s < SLICES; s++) sum[s] = load_shared_result(all + (s * NT + c) * THREADS);
        barrier(CLK_LOCAL_MEM_FENCE); /* all are under way */
        UNROLL for (int s = 1; s < SLICES; s++) sum[0] += sum[s];
        c2[c][0] = sum[0].x;
        c2[c][1] = sum[0].y;
        c2[c][2] = sum[0].z;
        c2[c][3] = sum[0].w;
    }
#endif
    UNROLL for (int c = 0; c < NT; c++)
        UNROLL for (int r = 0; r < 2; r++)
            *(__local float2 *)(sums + (g + 8 * r) * LD_OUT + (warp * NT + c) * 8 + 2 * t) =
                (float2)(c2[c][2 * r], c2[c][2 * r + 1]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int r = warp * 2; r < warp * 2 + 2; r++) { /* a warp normalises two rows */
        const int n = tile * 2 + r / 8, token = TOKEN(r);
        float v[OUT / 32], total = 0.0f, square = 0.0f, other;
        for (int c = 0; c < OUT / 32; c++) {
            v[c] = sums[r * LD_OUT + c * 32 + lane] + table[c * 32 + lane];
            if (lds.s6) v[c] += LOAD(add, (size_t)token * lds.s6 + lds.s7 + c * 32 + lane);
            total += v[c];
        }
        for (int mask = 1; mask < 32; mask *= 2) {
            LANE_XOR(other, total, mask);
            total += other;
        }
        for (int c = 0; c < OUT / 32; c++) {
            v[c] -= total / OUT;
            square = fma(v[c], v[c], square);
        }
        for (int mask = 1; mask < 32; mask *= 2) {
            LANE_XOR(other, square, mask);
            square += other;
        }
        square = 1.0f / sqrt(square / OUT + eps);
        if (n < min(sizes.y, *limit) && r % 8 < sizes.x)
            for (int c = 0; c < OUT / 32; c++)
                STORE(fma(v[c] * square, table[OUT + c * 32 + lane], table[2 * OUT + c * 32 + lane]), y,
                      (size_t)token * OUT + c * 32 + lane);
    }
}

#else
#define LD  (IN / 8 + 1)             /* uint4 from row to row */
#define NT  (IN / 64)                /* blocks of eight outputs of a warp */
#define MLP (IN / 32 * (2 * IN / 8 + 4) * 32) /* uint4 of a perceptron's weights */

/* c = b, then += the rows at `from` times w, whose blocks are [COUNT][IN / 32]. */
#define LAYER(c, from, w, COUNT, bias)                                                                                 \
    UNROLL for (int j = 0; j < COUNT; j++) {                                                                           \
        (c)[j][0] = (c)[j][2] = (bias)[j * 8 + 2 * t];                                                                 \
        (c)[j][1] = (c)[j][3] = (bias)[j * 8 + 2 * t + 1];                                                             \
    }                                                                                                                  \
    UNROLL for (int k = 0; k < IN / 32; k++) {                                                                         \
        uint a[2][4];                                                                                                  \
        UNROLL for (int i = 0; i < 2; i++)                                                                             \
            MATRIX_LOAD(a[i], shared + (from) * 16 + lane % 16 * (LD * 16) + (2 * k + i) * 32 + lane / 16 * 16);       \
        UNROLL for (int j = 0; j < COUNT; j++) {                                                                       \
            MATRIX_MULTIPLY((c)[j], a[0], (w)[j][k][0], (w)[j][k][1]);                                                 \
            MATRIX_MULTIPLY((c)[j], a[1], (w)[j][k][2], (w)[j][k][3]);                                                 \
        }                                                                                                              \
    }
/* relu of c as halves to the rows at `to`. */
#define KEEP(c, to)                                                                                                    \
    UNROLL for (int j = 0; j < NT; j++)                                                                                \
        UNROLL for (int r = 0; r < 2; r++)                                                                             \
            words[((to) + (g + 8 * r) * LD + warp * NT + j) * 4 + t] =                                                 \
                halves_of(fmax((c)[j][2 * r], 0.0f), fmax((c)[j][2 * r + 1], 0.0f));

/* Group (i, j): perceptron j on one token each of prompts [16 i, ..): W3 relu(W2 relu(W1 x + b1) + b2) + b3. The first
 * is of token 0 and has `sizes.w` results, to `scores`; the others are of tokens sizes.z, .. and have 32, to `vectors`.
 * weights of a perceptron: fragments [outputs / 8][IN / 32][lane][8 halves] of the three layers, the last of 32; table
 * {b1, b2} [IN], b3 [32]. sizes {tokens, prompts, token, scores}; lds {x ld, c0}. */
__attribute__((reqd_work_group_size(THREADS, 1, 1))) __kernel void
perceptrons(__global half *restrict vectors, __global float *restrict scores, __global const half *restrict x,
            __global const uint4 *restrict weights, __global const float *restrict table,
            __global const int *restrict limit, int4 sizes, int4 lds) {
    MATRIX_SCRATCH
    __local uint4 memory[32 * LD];
    __local uint *words = (__local uint *)memory;
    const int id = get_local_id(0), lane = id & 31, warp = id / 32, g = lane / 4, t = lane % 4, which = get_group_id(1);
    const int n0 = get_group_id(0) * 16, token = which ? sizes.z + which - 1 : 0, count = min(sizes.y, *limit);
    const uint shared = SHARED(memory);
    weights += (size_t)which * MLP + lane;
    table += which * (2 * IN + 32);
    uint w[NT][IN / 32][4], last[1][IN / 32][4];
    UNROLL for (int j = 0; j < NT; j++)
        UNROLL for (int k = 0; k < IN / 32; k++) FETCH16(w[j][k], weights + ((warp * NT + j) * (IN / 32) + k) * 32);
    if (n0 >= count) return;
    for (int i = id; i < 16 * (IN / 8); i += THREADS) {
        const size_t from = (size_t)min(n0 + i / (IN / 8), count - 1) * sizes.x + token;
        COPY16(shared + (i / (IN / 8) * LD + i % (IN / 8)) * 16, x + from * lds.x + lds.y + i % (IN / 8) * 8, 16);
    }
    COPY_COMMIT();
    COPY_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    float c[NT][4], y[1][4];
    LAYER(c, 0, w, NT, table + warp * (NT * 8))
    KEEP(c, 16 * LD)
    weights += IN / 32 * (IN / 8) * 32;
    UNROLL for (int j = 0; j < NT; j++)
        UNROLL for (int k = 0; k < IN / 32; k++) FETCH16(w[j][k], weights + ((warp * NT + j) * (IN / 32) + k) * 32);
    weights += IN / 32 * (IN / 8) * 32;
    UNROLL for (int k = 0; k < IN / 32; k++) FETCH16(last[0][k], weights + (warp % 4 * (IN / 32) + k) * 32);
    barrier(CLK_LOCAL_MEM_FENCE);
    LAYER(c, 16 * LD, w, NT, table + IN + warp * (NT * 8))
    KEEP(c, 0)
    barrier(CLK_LOCAL_MEM_FENCE);
    LAYER(y, 0, last, 1, table + 2 * IN + warp % 4 * 8)
    for (int e = 0; e < 4 && warp < 4; e++) {
        const int n = n0 + g + e / 2 * 8, at = warp * 8 + 2 * t + e % 2, masks = get_num_groups(1) - 1;
        if (n < count && which) STORE(y[0][e], vectors, ((size_t)n * masks + which - 1) * 32 + at);
        if (n < count && !which && at < sizes.w) scores[(size_t)n * sizes.w + at] = y[0][e];
    }
}
#endif
