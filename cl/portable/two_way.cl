/* Attention between a few tokens and an image whose projections have moved to the tokens (variants/absorbed.h), portable.
 * Column t * 8 + h belongs to token t and head h. Layouts of columns and parts as in cpu/two_way.cl.
 *
 * -D K: channels of the image. -D BLOCKS: of 64 columns. -D GROUP: work-items that share image rows; a work-item owns
 * the channels lane, lane + GROUP, .. of them. -D ROWS: image rows in local memory, a multiple of 4. Work-items that
 * have nothing to do repeat another's work rather than stand aside: some compilers cannot follow branches between
 * barriers. */
#define HEADS  8
#define CP     (BLOCKS * 64)
#define LANES  (K % GROUP ? 64 : GROUP) /* of image_merge */
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

#define BATCH 16
#define D_MAX 32

/* Group (h, n): head h of prompt n. w [head][channel of x][d16], d16 = d padded to 16s; b [head][d16], m [head][d][K],
 * mb [head][d16]. The result has arg.form FOLD_PANELS or FOLD_COLUMNS. */
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
fold_heads(__global float *y, __global const T *x, __global const T *add, __global const float *w,
           __global const float *b, __global const float *m, __global const float *mb, __global const int *limit,
           fold_args arg) {
    __local float q[BLOCKS * 8 * D_MAX], xs[8 * GROUP], shift[D_MAX];
    const int h = get_group_id(1), n = get_group_id(2), lane = get_local_id(0), tokens = arg.tokens, c_in = arg.x_c;
    const int d = arg.d, d16 = (d + 15) / 16 * 16, slices = GROUP / d16, slice = lane / d16, i = lane % d16;
    const int to_columns = arg.form == FOLD_COLUMNS;
    if (n >= *limit) return;
    __global const float *wh = w + h * c_in * d16, *mh = m + h * d * K;
    __global float *yn = y + (size_t)n * (to_columns ? (K + 1) * CP : tokens * HEADS * K);
    /* What the second product needs is on its way while the first is made. */
    float f[D_MAX];
#define FACTORS(k0)                                                                                                    \
    _Pragma("unroll") for (int j = 0; j < D_MAX; j++) f[j] = mh[min((k0) + lane, K - 1) + min(j, d - 1) * K]
    FACTORS(0);
    if (lane < d) shift[lane] = mb[h * d16 + lane];
    for (int t0 = 0; t0 < tokens; t0 += 8) { /* q = (x + add) w, eight tokens at a time */
        float sum[8];
        for (int u = 0; u < 8; u++) sum[u] = 0.0f;
        for (int k0 = 0; k0 < c_in; k0 += GROUP) {
            float v[8];
#pragma unroll
            for (int u = 0; u < 8; u++) {
                const int t = min(t0 + u, tokens - 1), k = min(k0 + lane, c_in - 1);
                v[u] = LOAD(x, (n * tokens + t) * arg.x_ld + arg.x_c0 + k);
                if (arg.added) v[u] += LOAD(add, ((arg.add_once ? 0 : n) * tokens + t) * arg.add_ld + arg.add_c0 + k);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
            for (int u = 0; u < 8; u++) xs[u * GROUP + lane] = v[u];
            for (int j0 = 0; j0 < d16; j0 += BATCH) { /* GROUP / slices = d16 channels for each slice */
                float of[BATCH];
#pragma unroll
                for (int j = 0; j < BATCH; j++) of[j] = wh[min(k0 + slice + (j0 + j) * slices, c_in - 1) * d16 + i];
                barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
                for (int j = 0; j < BATCH; j++) {
                    const int k = slice + (j0 + j) * slices;
                    const float factor = k0 + k < c_in ? of[j] : 0.0f;
#pragma unroll
                    for (int u = 0; u < 8; u++) sum[u] = fma(xs[u * GROUP + k], factor, sum[u]);
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int u = 0; u < 8; u++) xs[u * GROUP + lane] = sum[u]; /* the slices' sums */
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = lane; e < min(8, tokens - t0) * d; e += GROUP) {
            const int u = e / d, own = e % d;
            float s = b[h * d16 + own];
            for (int j = 0; j < slices; j++) s += xs[u * GROUP + j * d16 + own];
            q[(t0 + u) * d + own] = s * arg.scale;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const int all = to_columns ? CP / HEADS : tokens;
    for (int t = lane; t < all && to_columns; t += GROUP) { /* the row of biases */
        float s = t < tokens ? 0.0f : LOWEST;
        for (int j = 0; t < tokens && j < d; j++) s = fma(q[t * d + j], shift[j], s);
        yn[K * CP + t * HEADS + h] = s;
    }
    for (int k0 = 0; k0 < K; k0 += GROUP) {
        const int k = min(k0 + lane, K - 1);
        for (int t = 0; t < all; t++) {
            const int count = t < tokens ? d : 0;
            float s = 0.0f;
#pragma unroll
            for (int j = 0; j < D_MAX; j++)
                if (j < count) s = fma(q[t * d + j], f[j], s);
            yn[to_columns ? k * CP + t * HEADS + h : ((k / 64 * tokens + t) * HEADS + h) * 64 + k % 64] = s;
        }
        if (k0 + GROUP < K) FACTORS(k0 + GROUP);
    }
}

/* s[r][c] = xp[r] . columns[c] + bias. A work-item takes a column of each block and a slice of the channels; part has
 * room for ROWS * GROUP. */
static inline void scores(__local float *s, __local float *part, __local const float *xp, __global const float *columns,
                          int lane) {
    for (int first = 0; first < CP; first += 64) {
        const int c = first + lane % 64, from = lane / 64 * (K / (GROUP / 64));
        float sum[ROWS];
        for (int r = 0; r < ROWS; r++) sum[r] = 0.0f;
        for (int k0 = from; k0 < from + K / (GROUP / 64); k0 += BATCH) {
            float u[BATCH];
#pragma unroll
            for (int j = 0; j < BATCH; j++) u[j] = columns[(k0 + j) * CP + c];
            barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
            for (int j = 0; j < BATCH; j += 4)
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const float4 v = vload4(0, xp + r * K + k0 + j);
                    sum[r] = fma(u[j], v.x, sum[r]);
                    sum[r] = fma(u[j + 1], v.y, sum[r]);
                    sum[r] = fma(u[j + 2], v.z, sum[r]);
                    sum[r] = fma(u[j + 3], v.w, sum[r]);
                }
        }
        for (int r = 0; r < ROWS; r++) part[r * GROUP + lane] = sum[r];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = lane; e < ROWS * 64; e += GROUP) {
            float total = columns[K * CP + first + e % 64];
            for (int j = 0; j < GROUP / 64; j++) total += part[e / 64 * GROUP + j * 64 + e % 64];
            s[e / 64 * CP + first + e % 64] = total;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
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
    for (int j = 0; j < OWN; j++) {                                                                                    \
        float at[ROWS];                                                                                                \
        const int k = CHANNEL(j);                                                                                      \
        for (int r = 0; r < ROWS; r++) {                                                                               \
            const int row = min(r0 + r, last - 1);                                                                     \
            own[j][r] = LOAD(x, ((size_t)item * image.length + row) * image.x_ld + image.x_c0 + k);                    \
            at[r] = LOAD(position, (size_t)row * image.position_ld + image.position_c0 + k);                           \
        }                                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        for (int r = 0; r < ROWS; r++) {                                                                               \
            own[j][r] += shift[k];                                                                                     \
            xp[r * K + k] = own[j][r] + at[r];                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    barrier(CLK_LOCAL_MEM_FENCE);

/* Group (i, n): rows [i * ROWS, ..) of prompt n. x [items][rows][K] (item map[n], or n), plus `shift` [K], becomes
 * LN(x + softmax over tokens((x + p) keys) values + bias); norm {bias, gamma, beta} [3][K]. */
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
image_update(__global T *x_out, __global const T *x, __global const T *position, __global const int *map,
             __global const float *shift, __global const float *keys, __global const float *values,
             __global const float *norm, __global const int *limit, image_update_args arg) {
    __local float xp[ROWS * K], s[ROWS * CP], part[ROWS * GROUP], top[CP], stat[2 * ROWS], work[GROUP];
    const int n = get_group_id(1), lane = get_local_id(0), columns = arg.update_columns;
    const int r0 = get_group_id(0) * ROWS;
    if (n >= *limit) return;
    const image_side_args image = arg.image;
    const int last = image.length, item = image.mapped ? map[n] : n;
    __global const float *own_values = values + (size_t)n * columns * K;
    float own[OWN][ROWS];
    LOAD_ROWS(r0)
    scores(s, part, xp, keys + (size_t)n * (K + 1) * CP, lane);
    softmax_tokens(s, top, work, lane);
    for (int j = 0; j < OWN; j++) {
        const int k = CHANNEL(j);
        for (int r = 0; r < ROWS; r++) own[j][r] += norm[k];
        for (int c0 = 0; c0 < columns; c0 += 8) {
            float v[8];
#pragma unroll
            for (int c = 0; c < 8; c++) v[c] = own_values[(k / 64 * columns + c0 + c) * 64 + k % 64];
            barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
            for (int c = 0; c < 8; c++)
                for (int r = 0; r < ROWS; r++) own[j][r] = fma(s[r * CP + c0 + c], v[c], own[j][r]);
        }
        for (int r = 0; r < ROWS; r++) xp[r * K + k] = own[j][r];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    row_average(stat, work, xp, 0, lane);
    row_average(stat, work, xp, 1, lane);
    for (int j = 0; j < OWN; j++)
        for (int r = 0; r < ROWS; r++) {
            const int k = CHANNEL(j);
            const float v = (own[j][r] - stat[r]) * (1.0f / sqrt(stat[ROWS + r] + arg.eps));
            const size_t at = ((size_t)n * image.length + r0 + r) * K + k;
            if (r0 + r < last) STORE(fma(v, norm[K + k], norm[2 * K + k]), x_out, at);
        }
}

/* Group (i, n): image rows [i * group_rows, ..) of prompt n, as in image_update: partial softmax over them of (x + p)
 * queries, and x weighted by it, to part [n][group]{m [CP], sum [CP], sums [read_columns][K]}. */
__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
image_read(__global float *part, __global const T *x, __global const T *position, __global const int *map,
           __global const float *shift, __global const float *queries, __global const int *limit,
           image_read_args arg) {
    __local float xp[ROWS * K], s[ROWS * CP], rest[ROWS * GROUP], top[CP], factor[CP];
    const int n = get_group_id(1), lane = get_local_id(0), columns = arg.read_columns;
    const int first = get_group_id(0) * arg.group_rows;
    if (n >= *limit) return;
    const image_side_args image = arg.image;
    const int last = min(image.length, first + arg.group_rows), item = image.mapped ? map[n] : n;
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
        scores(s, rest, xp, queries + (size_t)n * (K + 1) * CP, lane);
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
            for (int c = 0; c < CP; c += 4) {
                float4 a = (float4)(acc[j][c], acc[j][c + 1], acc[j][c + 2], acc[j][c + 3]) * vload4(0, factor + c);
                for (int r = 0; r < ROWS; r++) a = fma(vload4(0, s + r * CP + c), (float4)(own[j][r]), a);
                acc[j][c] = a.x;
                acc[j][c + 1] = a.y;
                acc[j][c + 2] = a.z;
                acc[j][c + 3] = a.w;
            }
    }
    __global float *to = part + ((size_t)n * arg.groups + get_group_id(0)) * CP * (K + 2);
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
 * b [head][d16]. */
__attribute__((reqd_work_group_size(LANES, 1, 1))) __kernel void
image_merge(__global T *y, __global const float *part, __global const float *w, __global const float *b,
            __global const int *limit, image_merge_args arg) {
    __local float average[K], work[LANES], factor[LANES];
    const int c = get_group_id(1), n = get_group_id(2), lane = get_local_id(0), d16 = (arg.d + 15) / 16 * 16;
    const int h = c % HEADS, parts = LANES / d16, i = lane % d16, groups = arg.groups;
    if (n >= *limit) return;
    __global const float *first = part + (size_t)n * groups * CP * (K + 2);
    float m = LOWEST, sum = 0.0f, s = 0.0f, o[K / LANES];
    for (int g = lane; g < groups; g += LANES) m = fmax(m, first[(size_t)g * CP * (K + 2) + c]);
    work[lane] = m;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int l = 0; l < min(LANES, groups); l++) m = fmax(m, work[l]);
    for (int j = 0; j < K / LANES; j++) o[j] = 0.0f;
    for (int g0 = 0; g0 < groups; g0 += LANES) {
        __global const float *p = first + (size_t)min(g0 + lane, groups - 1) * CP * (K + 2);
        const float f = g0 + lane < groups ? weight(p[c] - m) : 0.0f, own = p[CP + c] * f;
        barrier(CLK_LOCAL_MEM_FENCE);
        factor[lane] = f;
        work[lane] = own;
        barrier(CLK_LOCAL_MEM_FENCE);
        const int count = min(LANES, groups - g0);
        for (int l = 0; l < count; l++) sum += work[l];
        for (int j = 0; j < K / LANES; j++)
            for (int l0 = 0; l0 < count; l0 += BATCH) {
                float v[BATCH];
#pragma unroll
                for (int l = 0; l < BATCH; l++) {
                    const size_t group = (size_t)min(g0 + l0 + l, groups - 1) * CP * (K + 2);
                    v[l] = first[group + 2 * CP + c * K + j * LANES + lane];
                }
                barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
                for (int l = 0; l < BATCH; l++) o[j] = fma(v[l], factor[l0 + l], o[j]);
            }
    }
    for (int j = 0; j < K / LANES; j++) average[j * LANES + lane] = o[j] / sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k0 = lane / d16; k0 < K; k0 += BATCH * parts) { /* as often for every lane: K is a multiple of 64 */
        float v[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++) v[j] = w[(h * K + min(k0 + j * parts, K - 1)) * d16 + i];
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            if (k0 + j * parts < K) s = fma(average[k0 + j * parts], v[j], s);
    }
    work[lane] = s;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < arg.d) {
        float total = b[h * d16 + lane];
        for (int j = 0; j < parts; j++) total += work[j * d16 + lane];
        STORE(total, y, (n * arg.tokens + c / HEADS) * arg.y_ld + h * arg.d + lane);
    }
}
