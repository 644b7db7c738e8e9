/* SAM's mask upscaling (graph/nodes.h) as two matrix products on register tiles, for GPUs of any vendor: a group takes
 * TOKENS image tokens through one phase (place in the 2x2) of the first transposed convolution, the norm, and both
 * lines of the second; what lies between stays in local memory. A work-item owns eight tokens and four channels.
 *
 * Layouts as in portable/upscale: w1 [phase][K][64], w2 [line][64][column * 32 + channel], norm {bias, gamma, beta}.
 * -D K: input channels, a multiple of STEP. x begins at multiples of four elements. Needs portable/tokens_seen. Group
 * (x, n): phase x % 4 of tokens [x / 4 * TOKENS, ..) of item n; lines of tokens that show no picture are left out. */
#define C1     64
#define C2     32
#define TOKENS 64
#define ITEMS  128
#define STEP   16
#define WIDTH  (TOKENS + 4) /* rows four apart lie in different banks */
#define ACROSS (C1 / 4)
#define ROWS   (ITEMS / (STEP / 4)) /* tokens fetched at a time */

/* Products of eight tokens, two quads of them, and four channels. */
#define MULTIPLY(v0, v1, b)                                                                                            \
    do {                                                                                                               \
        sum[0][0] = fma(v0, (float4)((b).x), sum[0][0]);                                                               \
        sum[1][0] = fma(v0, (float4)((b).y), sum[1][0]);                                                               \
        sum[2][0] = fma(v0, (float4)((b).z), sum[2][0]);                                                               \
        sum[3][0] = fma(v0, (float4)((b).w), sum[3][0]);                                                               \
        sum[0][1] = fma(v1, (float4)((b).x), sum[0][1]);                                                               \
        sum[1][1] = fma(v1, (float4)((b).y), sum[1][1]);                                                               \
        sum[2][1] = fma(v1, (float4)((b).z), sum[2][1]);                                                               \
        sum[3][1] = fma(v1, (float4)((b).w), sum[3][1]);                                                               \
    } while (0)
#define START(bias)                                                                                                    \
    do {                                                                                                               \
        const float4 first = *(__global const float4 *)(bias);                                                         \
        sum[0][0] = sum[0][1] = (float4)(first.x);                                                                     \
        sum[1][0] = sum[1][1] = (float4)(first.y);                                                                     \
        sum[2][0] = sum[2][1] = (float4)(first.z);                                                                     \
        sum[3][0] = sum[3][1] = (float4)(first.w);                                                                     \
    } while (0)
#define QUAD_AT(row, i) (*(__local float4 *)((row) + (i)))

/* gelu(LN(u)) of u [channel][token] in place: two work-items a token, 32 channels each. */
static inline void normalise(__local float *u, __local float *part, __global const float *norm, float eps, int id) {
    const int token = id % TOKENS, half_of = id / TOKENS, first = half_of * (C1 / 2);
    float total = 0.0f;
    for (int c = first; c < first + C1 / 2; c++) total += u[c * WIDTH + token];
    part[id] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    const float mean = (part[token] + part[TOKENS + token]) / C1;
    barrier(CLK_LOCAL_MEM_FENCE);
    total = 0.0f;
    for (int c = first; c < first + C1 / 2; c++) {
        const float v = u[c * WIDTH + token] - mean;
        total = fma(v, v, total);
    }
    part[id] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    const float scale = 1.0f / sqrt((part[token] + part[TOKENS + token]) / C1 + eps);
    for (int c = first; c < first + C1 / 2; c++) {
        const float v = (u[c * WIDTH + token] - mean) * scale;
        u[c * WIDTH + token] = activate_float(fma(v, norm[C1 + c], norm[2 * C1 + c]), ACT_GELU);
    }
}

__attribute__((reqd_work_group_size(ITEMS, 1, 1))) __kernel void
upscale(__global float *restrict y, __global const T *restrict x, __global const float *restrict w1,
        __global const float *restrict norm, __global const float *restrict w2, __global const float *restrict b2,
        __global const T *restrict vectors, __global const int *restrict limit, __global const int *restrict content,
        __global const int *restrict image_of, const upscale_args arg) {
    /* steps of tokens and of weights, twice; then a line of the second convolution's weights */
    __local float4 steps[2 * STEP * WIDTH / 4], weights[2 * STEP * C1 / 4];
    __local float4 lines[C1 * WIDTH / 4], parts[ACROSS * TOKENS / 4];
    __local float *u = (__local float *)lines, *part = (__local float *)parts;
    const int n = get_group_id(1), pixels = arg.h * arg.w, phase = get_group_id(0) % 4;
    const int first = get_group_id(0) / 4 * TOKENS, id = get_local_id(0), ty = id / ACROSS, tx = id % ACROSS;
    if (n >= *limit || first / arg.w >= tokens_seen(content, image_of, n, arg.seen, (int2)(arg.w, arg.h)).y) return;
    const int quad = id % (STEP / 4) * 4;
    __global const T *rows[TOKENS / ROWS];
    _Pragma("unroll") for (int f = 0; f < TOKENS / ROWS; f++) rows[f] =
        x + (n * pixels + min(first + id / (STEP / 4) + f * ROWS, pixels - 1)) * arg.x_ld + arg.x_c0 + quad;
    w1 += phase * K * C1;
    float4 sum[4][2], a[TOKENS / ROWS], b[STEP * C1 / 4 / ITEMS];
#define FETCH(k)                                                                                                       \
    do {                                                                                                               \
        _Pragma("unroll") for (int f = 0; f < TOKENS / ROWS; f++) a[f] = LOAD4_ALIGNED(rows[f], k);                    \
        _Pragma("unroll") for (int f = 0; f < STEP * C1 / 4 / ITEMS; f++)                                              \
            b[f] = *(__global const float4 *)(w1 + (k) * C1 + (id + f * ITEMS) * 4);                                   \
    } while (0)
#define KEEP(to)                                                                                                       \
    do {                                                                                                               \
        _Pragma("unroll") for (int f = 0; f < TOKENS / ROWS; f++) {                                                    \
            __local float *at = (__local float *)steps + ((to) * STEP + quad) * WIDTH + id / (STEP / 4) + f * ROWS;    \
            at[0] = a[f].x;                                                                                            \
            at[WIDTH] = a[f].y;                                                                                        \
            at[2 * WIDTH] = a[f].z;                                                                                    \
            at[3 * WIDTH] = a[f].w;                                                                                    \
        }                                                                                                              \
        _Pragma("unroll") for (int f = 0; f < STEP * C1 / 4 / ITEMS; f++)                                              \
            weights[(to) * (STEP * C1 / 4) + id + f * ITEMS] = b[f];                                                   \
    } while (0)
    START(norm + tx * 4);
    FETCH(0);
    KEEP(0);
    int now = 0;
    for (int k = 0; k < K; k += STEP) {
        barrier(CLK_LOCAL_MEM_FENCE);
        FETCH(min(k + STEP, K - STEP)); /* the last one once more: no load behind a condition */
        _Pragma("unroll") for (int i = 0; i < STEP; i++) {
            __local float *line = (__local float *)steps + (now * STEP + i) * WIDTH;
            MULTIPLY(QUAD_AT(line, ty * 4), QUAD_AT(line, TOKENS / 2 + ty * 4),
                     weights[(now * STEP + i) * (C1 / 4) + tx]);
        }
        now = 1 - now;
        KEEP(now);
    }
    _Pragma("unroll") for (int i = 0; i < 4; i++) {
        QUAD_AT(u + (tx * 4 + i) * WIDTH, ty * 4) = sum[i][0];
        QUAD_AT(u + (tx * 4 + i) * WIDTH, TOKENS / 2 + ty * 4) = sum[i][1];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    normalise(u, part, norm, arg.eps, id);

    const int c = tx * 4 % C2; /* channels of the second convolution */
    for (int fine = 0; fine < 2; fine++) {
        /* its weights: two steps' worth of the first one's at a time */
        START(b2 + c);
        for (int k = 0; k < C1; k += 2 * STEP) {
            _Pragma("unroll") for (int f = 0; f < 2 * STEP * C1 / 4 / ITEMS; f++)
                weights[id + f * ITEMS] =
                    *(__global const float4 *)(w2 + (fine * C1 + k) * C1 + (id + f * ITEMS) * 4);
            barrier(CLK_LOCAL_MEM_FENCE);
            _Pragma("unroll 16") for (int i = 0; i < 2 * STEP; i++)
                MULTIPLY(QUAD_AT(u + (k + i) * WIDTH, ty * 4), QUAD_AT(u + (k + i) * WIDTH, TOKENS / 2 + ty * 4),
                         weights[i * (C1 / 4) + tx]);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        _Pragma("unroll") for (int i = 0; i < 4; i++) {
            sum[i][0] = activate_float4(sum[i][0], ACT_GELU);
            sum[i][1] = activate_float4(sum[i][1], ACT_GELU);
        }
        for (int m = 0; m < arg.vectors; m++) {
            const float4 f = LOAD4(vectors, (n * arg.vectors + m) * arg.vectors_ld + arg.vectors_c0 + c);
            QUAD_AT(part + tx * TOKENS, ty * 4) = sum[0][0] * f.x + sum[1][0] * f.y + sum[2][0] * f.z + sum[3][0] * f.w;
            QUAD_AT(part + tx * TOKENS, TOKENS / 2 + ty * 4) =
                sum[0][1] * f.x + sum[1][1] * f.y + sum[2][1] * f.z + sum[3][1] * f.w;
            barrier(CLK_LOCAL_MEM_FENCE);
            const int p = first + id % TOKENS, column = id / TOKENS;
            float total = 0.0f;
            for (int i = 0; i < C2 / 4; i++) total += part[(column * (C2 / 4) + i) * TOKENS + id % TOKENS];
            const int row = p / arg.w * 4 + (phase >> 1) * 2 + fine, at = p % arg.w * 4 + (phase & 1) * 2 + column;
            if (p < pixels) y[(((size_t)n * arg.vectors + m) * arg.h * 4 + row) * arg.w * 4 + at] = total;
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
}
