/* Attention between a few tokens and an image whose projections have moved to the tokens (src/ops/two_way.h), portable.
 * Column t * 8 + h belongs to token t and head h. Layouts of columns and parts as in two_way_cpu.cl.
 *
 * -D K: channels of the image. -D BLOCKS: of 64 columns. -D GROUP: work-items that share image rows; a work-item owns
 * the channels lane, lane + GROUP, .. of them. -D ROWS: image rows in local memory, a multiple of 4. Work-items that
 * have nothing to do repeat another's work rather than stand aside: some compilers cannot follow branches between
 * barriers. */
#define HEADS  8
#define CP     (BLOCKS * 64)
#define LANES  64
#define OWN    ((K + GROUP - 1) / GROUP)
#define CHANNEL(j) min(lane + (j) * GROUP, K - 1) /* work-items without one repeat the last */
#define COLUMNS   ((CP + GROUP - 1) / GROUP)
#define COLUMN(j) ((lane + (j) * GROUP) % CP) /* likewise several for one, or one for several */
#define STATS  (GROUP / ROWS) /* work-items that sum a row */
#define LOWEST (-3.0e38f)

/* 2^t for t <= 0, 2^-126 below: some built-ins fail at -3e38. */
static inline float weight(float t) {
    return exp2(fmax(t, -126.0f));
}

/* Group (c, n): token t = c / 8 of prompt n, head h = c % 8; columns have groups for absent tokens too. w
 * [head][channel of x][d16], d16 = d padded to 16s; b [head][d16], m [head][d][K], mb [head][d16]. sizes {tokens,
 * channels of x, d, columns?}; lds {x ld, c0, add ld, c0}; modes {add?, add has one item}. */
__attribute__((reqd_work_group_size(LANES, 1, 1))) __kernel void
fold_heads(__global float *y, __global const T *x, __global const T *add, __global const float *w,
           __global const float *b, __global const float *m, __global const float *mb, __global const int *limit,
           int4 sizes, int4 lds, int4 modes, float scale) {
    __local float q[32], work[LANES];
    const int c = get_group_id(1), n = get_group_id(2), lane = get_local_id(0), tokens = sizes.x, c_in = sizes.y;
    const int h = c % HEADS, t = c / HEADS, d = sizes.z, d16 = (d + 15) / 16 * 16, parts = LANES / d16;
    if (n >= *limit) return;
    const int own = lane % d16, token = min(t, tokens - 1);
    const int xi = (n * tokens + token) * lds.x + lds.y, ai = ((modes.y ? 0 : n) * tokens + token) * lds.z + lds.w;
    __global const float *wh = w + h * c_in * d16, *mh = m + h * d * K;
    __global float *yn = y + (size_t)n * (sizes.w ? (K + 1) * CP : tokens * HEADS * K);
    float s = 0.0f, total = b[h * d16 + own];
    for (int k = lane / d16; k < c_in; k += parts) {
        const float v = LOAD(x, xi + k) + (modes.x ? LOAD(add, ai + k) : 0.0f);
        s = fma(v, wh[k * d16 + own], s);
    }
    work[lane] = s;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = 0; j < parts; j++) total += work[j * d16 + own];
    q[own] = total * scale;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int rows = sizes.w ? K + 1 : K, count = t < tokens ? d : 0;
    for (int k = lane; k < rows; k += LANES) {
        float sum = k < K || t < tokens ? 0.0f : LOWEST;
        for (int i = 0; i < count; i++) sum = fma(q[i], k < K ? mh[i * K + k] : mb[h * d16 + i], sum);
        yn[sizes.w ? k * CP + c : (k / 64 * tokens * HEADS + c) * 64 + k % 64] = sum;
    }
}

/* s[r][c] = xp[r] . columns[c] + bias. */
static inline void scores(__local float *s, __local const float *xp, __global const float *columns, int lane) {
    for (int e = lane; e < CP * (ROWS / 4); e += GROUP) {
        const int c = e % CP, r = e / CP * 4;
        float4 sum = (float4)(columns[K * CP + c]);
        for (int k = 0; k < K; k += 4) {
            const float4 u = (float4)(columns[k * CP + c], columns[(k + 1) * CP + c], columns[(k + 2) * CP + c],
                                      columns[(k + 3) * CP + c]);
            sum.x += dot(u, vload4(0, xp + r * K + k));
            sum.y += dot(u, vload4(0, xp + (r + 1) * K + k));
            sum.z += dot(u, vload4(0, xp + (r + 2) * K + k));
            sum.w += dot(u, vload4(0, xp + (r + 3) * K + k));
        }
        s[r * CP + c] = sum.x;
        s[(r + 1) * CP + c] = sum.y;
        s[(r + 2) * CP + c] = sum.z;
        s[(r + 3) * CP + c] = sum.w;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* s becomes the softmax over tokens, per row and head; top and sum hold ROWS * HEADS values. */
static inline void softmax_tokens(__local float *s, __local float *top, __local float *sum, int lane) {
    const int own = lane % (ROWS * HEADS);
    __local const float *v = s + own / HEADS * CP + own % HEADS;
    float m = v[0], total = 0.0f;
    for (int t = 1; t < CP / HEADS; t++) m = fmax(m, v[t * HEADS]);
    for (int t = 0; t < CP / HEADS; t++) total += weight(v[t * HEADS] - m);
    top[own] = m;
    sum[own] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = lane; e < ROWS * CP; e += GROUP) {
        const int at = e / CP * HEADS + e % HEADS;
        s[e] = weight(s[e] - top[at]) / sum[at];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* stat[r] = average over channels of v, or of (v - stat[r])^2 with `square` into stat[ROWS + r]. */
static inline void row_average(__local float *stat, __local float *part, __local const float *v, int square, int lane) {
    const int r = lane / STATS;
    const float away = square ? stat[r] : 0.0f;
    float total = 0.0f;
    for (int k = lane % STATS; k < K; k += STATS) {
        const float d = v[r * K + k] - away;
        total += square ? d * d : d;
    }
    part[lane] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int own = lane % ROWS;
    float sum = 0.0f;
    for (int i = 0; i < STATS; i++) sum += part[own * STATS + i];
    stat[(square ? ROWS : 0) + own] = sum / K;
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* This work-item's channels of ROWS image rows to `own`, with the position added to xp. Past the end the last row
 * repeats. */
#define LOAD_ROWS(r0)                                                                                                  \
    for (int j = 0; j < OWN; j++)                                                                                      \
        for (int r = 0; r < ROWS; r++) {                                                                               \
            const int k = CHANNEL(j), row = min(r0 + r, last - 1);                                                     \
            own[j][r] = LOAD(x, ((size_t)item * sizes.x + row) * lds.x + lds.y + k) + shift[k];                        \
            xp[r * K + k] = own[j][r] + LOAD(position, (size_t)row * lds.z + lds.w + k);                               \
        }                                                                                                              \
    barrier(CLK_LOCAL_MEM_FENCE);

/* Group (i, n): rows [i * ROWS, ..) of prompt n. x [items][rows][K] (item map[n], or n), plus `shift` [K], becomes
 * LN(x + softmax over tokens((x + p) keys) values + bias); norm {bias, gamma, beta} [3][K]. sizes {rows, 0, 0,
 * columns = 8 tokens}; lds {x ld, c0, p ld, c0}; modes {mapped}. */
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
image_update(__global T *x_out, __global const T *x, __global const T *position, __global const int *map,
             __global const float *shift, __global const float *keys, __global const float *values,
             __global const float *norm, __global const int *limit, int4 sizes, int4 lds, int4 modes, float eps) {
    __local float xp[ROWS * K], s[ROWS * CP], top[CP], stat[2 * ROWS], work[GROUP];
    const int n = get_group_id(1), lane = get_local_id(0), columns = sizes.w, r0 = get_group_id(0) * ROWS;
    if (n >= *limit) return;
    const int last = sizes.x, item = modes.x ? map[n] : n;
    __global const float *own_values = values + (size_t)n * columns * K;
    float own[OWN][ROWS];
    LOAD_ROWS(r0)
    scores(s, xp, keys + (size_t)n * (K + 1) * CP, lane);
    softmax_tokens(s, top, work, lane);
    for (int j = 0; j < OWN; j++) {
        const int k = CHANNEL(j);
        for (int r = 0; r < ROWS; r++) own[j][r] += norm[k];
        for (int c = 0; c < columns; c++) {
            const float v = own_values[(k / 64 * columns + c) * 64 + k % 64];
            for (int r = 0; r < ROWS; r++) own[j][r] = fma(s[r * CP + c], v, own[j][r]);
        }
        for (int r = 0; r < ROWS; r++) xp[r * K + k] = own[j][r];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    row_average(stat, work, xp, 0, lane);
    row_average(stat, work, xp, 1, lane);
    for (int j = 0; j < OWN; j++)
        for (int r = 0; r < ROWS; r++) {
            const int k = CHANNEL(j);
            const float v = (own[j][r] - stat[r]) * (1.0f / sqrt(stat[ROWS + r] + eps));
            const size_t at = ((size_t)n * sizes.x + r0 + r) * K + k;
            if (r0 + r < last) STORE(fma(v, norm[K + k], norm[2 * K + k]), x_out, at);
        }
}

/* Group (i, n): image rows [i * sizes.z, ..) of prompt n, as in image_update: partial softmax over them of (x + p)
 * queries, and x weighted by it, to part [n][group]{m [CP], sum [CP], sums [columns][K]}. sizes {rows, groups, rows
 * per group, columns}. */
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
image_read(__global float *part, __global const T *x, __global const T *position, __global const int *map,
           __global const float *shift, __global const float *queries, __global const int *limit, int4 sizes, int4 lds,
           int4 modes) {
    __local float xp[ROWS * K], s[ROWS * CP], top[CP], factor[CP];
    const int n = get_group_id(1), lane = get_local_id(0), columns = sizes.w, first = get_group_id(0) * sizes.z;
    if (n >= *limit) return;
    const int last = min(sizes.x, first + sizes.z), item = modes.x ? map[n] : n;
    float own[OWN][ROWS], acc[OWN][CP], highest[COLUMNS], sum[COLUMNS];
    for (int j = 0; j < OWN; j++)
        for (int c = 0; c < CP; c++) acc[j][c] = 0.0f;
    for (int j = 0; j < COLUMNS; j++) {
        highest[j] = LOWEST;
        sum[j] = 0.0f;
    }
    for (int r0 = first; r0 < last; r0 += ROWS) {
        barrier(CLK_LOCAL_MEM_FENCE);
        LOAD_ROWS(r0)
        scores(s, xp, queries + (size_t)n * (K + 1) * CP, lane);
        for (int j = 0; j < COLUMNS; j++) {
            const int c = COLUMN(j);
            float m = highest[j];
            for (int r = 0; r < ROWS; r++) m = fmax(m, r0 + r < last ? s[r * CP + c] : m);
            top[c] = m;
            factor[c] = weight(highest[j] - m);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = lane; e < ROWS * CP; e += GROUP)
            s[e] = r0 + e / CP < last ? weight(s[e] - top[e % CP]) : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int j = 0; j < COLUMNS; j++) {
            const int c = COLUMN(j);
            highest[j] = top[c];
            sum[j] *= factor[c];
            for (int r = 0; r < ROWS; r++) sum[j] += s[r * CP + c];
        }
        for (int j = 0; j < OWN; j++)
            for (int c = 0; c < CP; c++) {
                float a = acc[j][c] * factor[c];
                for (int r = 0; r < ROWS; r++) a = fma(s[r * CP + c], own[j][r], a);
                acc[j][c] = a;
            }
    }
    __global float *to = part + ((size_t)n * sizes.y + get_group_id(0)) * CP * (K + 2);
    for (int j = 0; j < COLUMNS; j++) {
        to[COLUMN(j)] = highest[j];
        to[CP + COLUMN(j)] = sum[j];
    }
    for (int j = 0; j < OWN; j++)
        for (int c = 0; c < CP; c++) {
            const int k = CHANNEL(j);
            if (c < columns) to[2 * CP + c * K + k] = acc[j][c];
        }
}

/* Group (c, n): column c = t * 8 + h: y[t][h d ..] = w_h (average of x under the whole softmax) + b. w [head][K][d16],
 * b [head][d16]. sizes {tokens, groups of image_step, d, ld of y}. */
__attribute__((reqd_work_group_size(LANES, 1, 1))) __kernel void
image_merge(__global T *y, __global const float *part, __global const float *w, __global const float *b,
            __global const int *limit, int4 sizes) {
    __local float average[K], factor[LANES], work[LANES];
    const int c = get_group_id(1), n = get_group_id(2), lane = get_local_id(0), d16 = (sizes.z + 15) / 16 * 16;
    const int h = c % HEADS, parts = LANES / d16, i = lane % d16, groups = sizes.y;
    if (n >= *limit) return;
    __global const float *first = part + (size_t)n * groups * CP * (K + 2);
    float m = LOWEST, sum = 0.0f, s = 0.0f, o[K / LANES];
    for (int k = 0; k < K / LANES; k++) o[k] = 0.0f;
    for (int g = lane; g < groups; g += LANES) m = fmax(m, first[(size_t)g * CP * (K + 2) + c]);
    work[lane] = m;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = 0; j < LANES; j++) m = fmax(m, work[j]);
    for (int g0 = 0; g0 < groups; g0 += LANES) {
        __global const float *p = first + (size_t)min(g0 + lane, groups - 1) * CP * (K + 2) + c;
        const float f = g0 + lane < groups ? weight(p[0] - m) : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        factor[lane] = f;
        sum = fma(p[CP], f, sum);
        barrier(CLK_LOCAL_MEM_FENCE);
        __global const float *v = first + (size_t)g0 * CP * (K + 2) + 2 * CP + c * K + lane;
        for (int g = 0; g < min(LANES, groups - g0); g++)
            for (int k = 0; k < K / LANES; k++)
                o[k] = fma(v[(size_t)g * CP * (K + 2) + k * LANES], factor[g], o[k]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    work[lane] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    sum = 0.0f;
    for (int j = 0; j < LANES; j++) sum += work[j];
    for (int k = 0; k < K / LANES; k++) average[k * LANES + lane] = o[k] / sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = lane / d16; k < K; k += parts) s = fma(average[k], w[(h * K + k) * d16 + i], s);
    work[lane] = s;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < sizes.z) {
        float total = b[h * d16 + lane];
        for (int j = 0; j < parts; j++) total += work[j * d16 + lane];
        STORE(total, y, (n * sizes.x + c / HEADS) * sizes.w + h * sizes.z + lane);
    }
}
