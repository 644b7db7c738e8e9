/* The image's side of two-way attention with absorbed projections (portable/two_way) as matrix products on register tiles,
 * for GPUs of any vendor: columns (token * 8 + head) in BLOCKS blocks of 64, that is 8 tokens, and 256 channels. Blocks are
 * read by groups of their own, and an update has up to 2 of them.
 *
 * A group of 256 work-items takes ROWS image rows at a time. Scores: a work-item sums 4 rows by 4 columns over every
 * other run of RUN channels. Then the softmax, over tokens or over rows, in powers of two, and the second product, of which a
 * work-item has 4 channels by 8 rows or by 16 columns. -D BLOCKS; -D ALIGNED: rows begin at multiples of four elements. */
#define K       256
#define HEADS   8
#define CP      64
#define ALL     (BLOCKS * CP)
#define GROUP   256
#define ROWS    32
#define QUADS   (K / 4)
#define CHUNK   64  /* channels in local memory */
#define RUN     (CHUNK / 2)
#define WIDTH   (ROWS + 4) /* quads of rows apart in the banks */
#define ACROSS  (CP + 4)
#define PARTS   (GROUP / CP)
#define LOWEST  (-3.0e38f)

#ifdef ALIGNED
#define LOAD_QUAD(p, i) LOAD4_ALIGNED(p, i)
#else
#define LOAD_QUAD(p, i) LOAD4(p, i)
#endif
#define QUAD_AT(row, i)   (*(__local float4 *)((row) + (i)))
#define GLOBAL_QUAD(p, i) (*(__global const float4 *)((p) + (i)))

/* 2^t for t <= 0, 2^-126 below. */
static inline float weight(float t) {
    return quick_exp2(fmax(t, -126.0f));
}

/* Scores of ROWS rows from r0 on (past `last` its last one repeats), this work-item's 4 x 4 in sum[column]: those of half 1
 * are to be added to those of half 0, which has the constant. x, position: of the item, first channel included. */
#define SCORES(sum)                                                                                                    \
    do {                                                                                                               \
        const int row = min(r0 + (lane >> 1) % ROWS, last - 1), pair = (lane >> 1) / ROWS * 2 + (lane & 1);            \
        float4 now[CHUNK / 32];                                                                                        \
        _Pragma("unroll") for (int j = 0; j < CHUNK / 32; j++) now[j] = ROW_QUAD(j * 32);                              \
        _Pragma("unroll") for (int c = 0; c < 4; c++) sum[c] = (float4)(0.0f);                                         \
        _Pragma("unroll 1") for (int k0 = 0; k0 < K; k0 += CHUNK) {                                                    \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                              \
            _Pragma("unroll") for (int j = 0; j < CHUNK / 32; j++) {                                                   \
                __local float *to = xp + (j * 32 + pair * 4) * WIDTH + (lane >> 1) % ROWS;                             \
                to[0] = now[j].x;                                                                                      \
                to[WIDTH] = now[j].y;                                                                                  \
                to[2 * WIDTH] = now[j].z;                                                                              \
                to[3 * WIDTH] = now[j].w;                                                                              \
            }                                                                                                          \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                              \
            if (k0 + CHUNK < K)                                                                                        \
                _Pragma("unroll") for (int j = 0; j < CHUNK / 32; j++) now[j] = ROW_QUAD(k0 + CHUNK + j * 32);         \
            _Pragma("unroll 8") for (int k = 0; k < RUN; k++) {                                                        \
                const float4 b = GLOBAL_QUAD(columns, (k0 + half_of * RUN + k) * ALL + cq * 4);                        \
                const float4 a = QUAD_AT(xp + (half_of * RUN + k) * WIDTH, rq * 4);                                    \
                sum[0] = fma(a, (float4)(b.x), sum[0]);                                                                \
                sum[1] = fma(a, (float4)(b.y), sum[1]);                                                                \
                sum[2] = fma(a, (float4)(b.z), sum[2]);                                                                \
                sum[3] = fma(a, (float4)(b.w), sum[3]);                                                                \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)
#define ROW_QUAD(k)                                                                                                    \
    (LOAD_QUAD(xn, row * image.x_ld + pair * 4 + (k)) + GLOBAL_QUAD(shift, pair * 4 + (k)) +                           \
     LOAD_QUAD(at, row * image.position_ld + pair * 4 + (k)))

/* The average over channels of `mine`, eight rows' sums over this work-item's channels: 64 work-items share a row. */
#define AVERAGES(mine)                                                                                                 \
    do {                                                                                                               \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        _Pragma("unroll") for (int r = 0; r < 8; r++) part[(r8 + r) * (QUADS + 1) + kq] = mine[r];                     \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        float sum = 0.0f;                                                                                              \
        _Pragma("unroll") for (int i = 0; i < 8; i++) sum += part[lane / 8 * (QUADS + 1) + lane % 8 * 8 + i];          \
        stat[lane] = sum;                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        _Pragma("unroll") for (int r = 0; r < 8; r++) {                                                                \
            float t = 0.0f;                                                                                            \
            _Pragma("unroll") for (int i = 0; i < 8; i++) t += stat[(r8 + r) * 8 + i];                                 \
            mine[r] = t / K;                                                                                           \
        }                                                                                                              \
    } while (0)

/* Scores of a block's columns to s: a loop over blocks became wrong with some compilers. */
#define UPDATE_SCORES(block)                                                                                           \
    do {                                                                                                               \
        __global const float *columns = keys + (size_t)n * (K + 1) * ALL + (block) * CP;                               \
        __local float *to = s + (block) * CP * WIDTH;                                                                  \
        float4 sum[4];                                                                                                 \
        SCORES(sum);                                                                                                   \
        if (half_of == 1)                                                                                              \
            _Pragma("unroll") for (int c = 0; c < 4; c++) QUAD_AT(to + (cq * 4 + c) * WIDTH, rq * 4) = sum[c];         \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        if (half_of == 0)                                                                                              \
            _Pragma("unroll") for (int c = 0; c < 4; c++) QUAD_AT(to + (cq * 4 + c) * WIDTH, rq * 4) +=                \
                sum[c] + (float4)(columns[K * ALL + cq * 4 + c]);                                                      \
    } while (0)

__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
image_update(__global T *x_out, __global const T *x, __global const T *position, __global const int *map,
             __global const float *shift, __global const float *keys, __global const float *values,
             __global const float *norm, __global const int *limit, image_update_args arg) {
    __local float4 xp_room[CHUNK * WIDTH / 4], s_room[ALL * WIDTH / 4];
    /* part is not in the room of xp: there one runtime mixed up the groups of its threads */
    __local float stat[GROUP], part[ROWS * (QUADS + 1)];
    __local float *xp = (__local float *)xp_room, *s = (__local float *)s_room;
    const int n = get_group_id(1), lane = get_local_id(0), tokens = arg.update_columns / HEADS;
    const int r0 = get_group_id(0) * ROWS;
    if (n >= *limit) return;
    const image_side_args image = arg.image;
    const int last = image.length, item = image.mapped ? map[n] : n;
    const int half_of = lane / 128, rq = lane % 8, cq = lane / 8 % 16;
    __global const T *xn = x + (size_t)item * image.length * image.x_ld + image.x_c0, *at = position + image.position_c0;
    UPDATE_SCORES(0);
#if BLOCKS > 1
    UPDATE_SCORES(1);
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    { /* a row and a head per work-item */
        __local float *v = s + lane / ROWS * WIDTH + lane % ROWS;
        float e[ALL / HEADS], m = LOWEST, total = 0.0f;
#pragma unroll
        for (int t = 0; t < ALL / HEADS; t++) e[t] = v[t * HEADS * WIDTH];
#pragma unroll
        for (int t = 0; t < ALL / HEADS; t++) m = fmax(m, e[t]);
#pragma unroll
        for (int t = 0; t < ALL / HEADS; t++) {
            e[t] = weight(e[t] - m);
            total += e[t];
        }
        total = 1.0f / total;
#pragma unroll
        for (int t = 0; t < ALL / HEADS; t++) v[t * HEADS * WIDTH] = e[t] * total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int kq = lane % QUADS, r8 = lane / QUADS * 8;
    __global const float *own = values + (size_t)n * tokens * HEADS * K + (kq / 16 * tokens * HEADS) * 64 + kq % 16 * 4;
    const float4 more = GLOBAL_QUAD(norm, kq * 4) + GLOBAL_QUAD(shift, kq * 4);
    float4 acc[8];
#pragma unroll
    for (int r = 0; r < 8; r++)
        acc[r] = LOAD_QUAD(xn, min(r0 + r8 + r, last - 1) * image.x_ld + kq * 4) + more;
    for (int t = 0; t < tokens; t++) {
        float4 v[HEADS];
#pragma unroll
        for (int h = 0; h < HEADS; h++) v[h] = GLOBAL_QUAD(own, (t * HEADS + h) * 64);
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            const float4 a = QUAD_AT(s + (t * HEADS + h) * WIDTH, r8), b = QUAD_AT(s + (t * HEADS + h) * WIDTH, r8 + 4);
            acc[0] = fma((float4)(a.x), v[h], acc[0]);
            acc[1] = fma((float4)(a.y), v[h], acc[1]);
            acc[2] = fma((float4)(a.z), v[h], acc[2]);
            acc[3] = fma((float4)(a.w), v[h], acc[3]);
            acc[4] = fma((float4)(b.x), v[h], acc[4]);
            acc[5] = fma((float4)(b.y), v[h], acc[5]);
            acc[6] = fma((float4)(b.z), v[h], acc[6]);
            acc[7] = fma((float4)(b.w), v[h], acc[7]);
        }
    }
    float mean[8], square[8];
#pragma unroll
    for (int r = 0; r < 8; r++) mean[r] = (acc[r].x + acc[r].y) + (acc[r].z + acc[r].w);
    AVERAGES(mean);
#pragma unroll
    for (int r = 0; r < 8; r++) {
        acc[r] -= (float4)(mean[r]);
        square[r] = dot(acc[r], acc[r]);
    }
    AVERAGES(square);
    const float4 gamma = GLOBAL_QUAD(norm, K + kq * 4), beta = GLOBAL_QUAD(norm, 2 * K + kq * 4);
#pragma unroll
    for (int r = 0; r < 8; r++) {
        const int row = r0 + r8 + r;
        const float4 v = acc[r] * (1.0f / sqrt(square[r] + arg.eps));
        if (row < last) STORE4_ALIGNED(fma(v, gamma, beta), x_out, ((size_t)n * image.length + row) * K + kq * 4);
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* else some compilers may leave the last values unstored */
}

__attribute__((reqd_work_group_size(GROUP, 1, 1))) __kernel void
image_read(__global float *part, __global const T *x, __global const T *position, __global const int *map,
           __global const float *shift, __global const float *queries, __global const int *limit,
           image_read_args arg) {
    __local float4 xp_room[CHUNK * WIDTH / 4], s_room[ROWS * ACROSS / 4], factor[CP / 4];
    __local float top[GROUP];
    __local float *xp = (__local float *)xp_room, *s = (__local float *)s_room;
    const int n = get_group_id(1), lane = get_local_id(0), first = get_group_id(0) * arg.group_rows;
    const int from = BLOCKS > 1 ? (int)get_group_id(2) * CP : 0; /* the first column of this group's block */
    if (n >= *limit) return;
    const image_side_args image = arg.image;
    const int last = min(image.length, first + arg.group_rows), item = image.mapped ? map[n] : n;
    const int half_of = lane / 128, rq = lane % 8, cq = lane / 8 % 16, kq = lane % QUADS, c16 = lane / QUADS * 16;
    __global const float *columns = queries + (size_t)n * (K + 1) * ALL + from;
    __global const T *xn = x + (size_t)item * image.length * image.x_ld + image.x_c0, *at = position + image.position_c0;
    const float4 more = GLOBAL_QUAD(shift, kq * 4);
    float most = LOWEST, total = 0.0f; /* of column lane % CP; of its rows in this work-item's part of them */
    float4 acc[16];
#pragma unroll
    for (int c = 0; c < 16; c++) acc[c] = (float4)(0.0f);
#pragma unroll 1
    for (int r0 = first; r0 < last; r0 += ROWS) {
        {
            float4 sum[4];
            SCORES(sum);
            const float4 rows[4] = {(float4)(sum[0].x, sum[1].x, sum[2].x, sum[3].x),
                                    (float4)(sum[0].y, sum[1].y, sum[2].y, sum[3].y),
                                    (float4)(sum[0].z, sum[1].z, sum[2].z, sum[3].z),
                                    (float4)(sum[0].w, sum[1].w, sum[2].w, sum[3].w)};
            if (half_of == 1)
#pragma unroll
                for (int r = 0; r < 4; r++) QUAD_AT(s + (rq * 4 + r) * ACROSS, cq * 4) = rows[r];
            barrier(CLK_LOCAL_MEM_FENCE);
            if (half_of == 0)
#pragma unroll
                for (int r = 0; r < 4; r++)
                    QUAD_AT(s + (rq * 4 + r) * ACROSS, cq * 4) += rows[r] + GLOBAL_QUAD(columns, K * ALL + cq * 4);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        {
            __local float *v = s + lane / CP * (ROWS / PARTS) * ACROSS + lane % CP;
            const int left = last - r0 - lane / CP * (ROWS / PARTS);
            float e[ROWS / PARTS], m = LOWEST;
#pragma unroll
            for (int r = 0; r < ROWS / PARTS; r++) {
                e[r] = r < left ? v[r * ACROSS] : LOWEST;
                m = fmax(m, e[r]);
            }
            top[lane] = m;
            barrier(CLK_LOCAL_MEM_FENCE);
            m = most;
#pragma unroll
            for (int i = 0; i < PARTS; i++) m = fmax(m, top[i * CP + lane % CP]);
            const float f = weight(most - m);
            most = m;
            total *= f;
#pragma unroll
            for (int r = 0; r < ROWS / PARTS; r++) {
                const float w = r < left ? weight(e[r] - m) : 0.0f;
                total += w;
                v[r * ACROSS] = w;
            }
            if (lane < CP) ((__local float *)factor)[lane] = f;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (int c = 0; c < 16; c++) acc[c] *= ((__local float *)factor)[c16 + c];
#pragma unroll 4
        for (int r = 0; r < ROWS; r++) {
            const float4 v = LOAD_QUAD(xn, min(r0 + r, last - 1) * image.x_ld + kq * 4) + more;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const float4 w = QUAD_AT(s + r * ACROSS, c16 + 4 * c);
                acc[4 * c] = fma((float4)(w.x), v, acc[4 * c]);
                acc[4 * c + 1] = fma((float4)(w.y), v, acc[4 * c + 1]);
                acc[4 * c + 2] = fma((float4)(w.z), v, acc[4 * c + 2]);
                acc[4 * c + 3] = fma((float4)(w.w), v, acc[4 * c + 3]);
            }
        }
    }
    __global float *to = part + ((size_t)n * arg.groups + get_group_id(0)) * ALL * (K + 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    top[lane] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < CP) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < PARTS; i++) sum += top[i * CP + lane];
        to[from + lane] = most;
        to[ALL + from + lane] = sum;
    }
#pragma unroll
    for (int c = 0; c < 16; c++)
        if (from + c16 + c < arg.read_columns)
            *(__global float4 *)(to + 2 * ALL + (from + c16 + c) * K + kq * 4) = acc[c];
    barrier(CLK_LOCAL_MEM_FENCE);
}
