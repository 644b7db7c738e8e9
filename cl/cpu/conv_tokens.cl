/* Linear layers on few pixels (1x1 convolutions), for CPUs: their time is that of the weights' way from memory, so that
 * these pass once, whatever the number of pixels, and the next ones come while these are multiplied.
 *
 * Rows of the product are pixels, columns output channels. A step is DEPTH inputs of a panel of NR columns, which stays
 * in the first-level cache for ROWS_MAX rows, MR at a time; their sums wait in private memory. More rows find the panel
 * in the second-level cache. A result is one sum, inputs in order from the bias on, as in cpu/conv: both have the same
 * bits.
 *
 * Weights come in panels [column tile][cin][NR], padded with zeros to whole tiles; the bias likewise. Float storage, no
 * addends, act none or relu.
 * Grid: x = compute units, which share out column tiles by `queue` (see prelude). */
#define MR     8
#define NR     32
#define DEPTH  128
#define UNROLL 2

#define EACH_ROW(F)   F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
#define ROW_AT(r)     __global const float *a##r = a + (r < rows ? r : rows - 1) * ld;
#define ROW_OPEN(r)   float16 p##r = acc[2 * r], q##r = acc[2 * r + 1];
#define ROW_CLOSE(r)  acc[2 * r] = p##r, acc[2 * r + 1] = q##r;
#define ROW_MAC(r, u)                                                                                                  \
    {                                                                                                                  \
        const float16 v = (float16)(a##r[i + u]);                                                                      \
        p##r = fma(v, b0, p##r);                                                                                       \
        q##r = fma(v, b1, q##r);                                                                                       \
    }
#define ROW_MAC_0(r)  ROW_MAC(r, 0)
#define ROW_MAC_1(r)  ROW_MAC(r, 1)
#define STEP(u)                                                                                                        \
    {                                                                                                                  \
        const float16 b0 = vload16(0, w + u * NR), b1 = vload16(1, w + u * NR);                                        \
        EACH_ROW(ROW_MAC_##u)                                                                                          \
    }

/* Adds the products of `count` inputs of `rows` rows, `ld` apart, of which there may be less than MR, with a panel.
 * With every turn asks for the lines at four addresses `pace` floats apart from `next` on. */
NOINLINE void products(float16 *acc, __global const float *a, long ld, int rows, __global const float *w, long count,
                       __global const float *next, long pace) {
    EACH_ROW(ROW_AT)
    EACH_ROW(ROW_OPEN)
    long i = 0;
    for (; i + UNROLL <= count; i += UNROLL, w += UNROLL * NR, next += 4 * pace) {
        STEP(0)
        STEP(1)
        PREFETCH_L2(next);
        PREFETCH_L2(next + pace);
        PREFETCH_L2(next + 2 * pace);
        PREFETCH_L2(next + 3 * pace);
    }
    if (i < count) { STEP(0) }
    EACH_ROW(ROW_CLOSE)
}

NOINLINE void store_row(__global float *y, const float16 *v, int count, float low) {
    for (int j = 0; j < NR && j < count; j += 16) {
        const float16 t = max(v[j / 16], (float16)(low));
        if (j + 16 <= count)
            vstore16(t, 0, y + j);
        else
            for (int i = j; i < count; i++) y[i] = ((const float *)&t)[i - j];
    }
}

/* The panel's columns of `rows` rows of x. */
NOINLINE void column_tile(__global float *y, __global const float *x, int rows, const conv_tokens_args arg, float low,
                          int col, __global const float *panel, __global const float *bias) {
    const int cin = arg.x_c, tiles = (rows + MR - 1) / MR;
    /* A step's lines are asked for a step ahead, by as many of its row tiles as that takes. */
    const long pace = tiles == 1 ? 16 : tiles < 4 ? 8 : 4;
    float16 acc[ROWS_MAX * NR / 16];
    for (int i = 0; i < 2 * tiles * MR; i++) acc[i] = vload16(i & 1, bias + col);
    for (int k = 0; k < cin; k += DEPTH, panel += DEPTH * NR) {
        const int count = min(DEPTH, cin - k);
        for (int r = 0; r < rows; r++)
            for (int i = DEPTH; i < 2 * DEPTH; i += 16) PREFETCH(x + (size_t)r * arg.x_ld + k + i);
        for (int t = 0; t < tiles; t++)
            products(acc + 2 * t * MR, x + (size_t)t * MR * arg.x_ld + k, arg.x_ld, min(MR, rows - t * MR), panel,
                     count, panel + (count + t * DEPTH * (int)pace / 16) * NR, pace);
    }
    for (int r = 0; r < rows; r++) store_row(y + (size_t)r * arg.y_ld + col, acc + 2 * r, arg.y_c - col, low);
}

NOINLINE void conv_group(__global const float *restrict x, __global const float *restrict w,
                         __global const float *restrict bias, __global float *restrict y,
                         __global const int *restrict limit, const conv_tokens_args arg, __global int *queue,
                         const int4 group) {
    const int rows = min(arg.items, *limit) * arg.pixels;
    const float low = arg.act == ACT_RELU ? 0.0f : -INFINITY;
    work_t work = work_begin(group.w, rows ? (arg.y_c + NR - 1) / NR : 0, false);
    for (int item; (item = work_next(&work, queue)) >= 0;)
        for (int r = 0; r < rows; r += ROWS_MAX)
            column_tile(y + (size_t)r * arg.y_ld + arg.y_c0, x + (size_t)r * arg.x_ld + arg.x_c0,
                        min(ROWS_MAX, rows - r), arg, low, item * NR, w + (size_t)item * arg.x_c * NR, bias);
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
conv(__global const float *restrict x, __global const float *restrict w, __global const float *restrict bias,
     __global float *restrict y, __global const int *restrict limit, conv_tokens_args arg, __global int *queue) {
    conv_group(x, w, bias, y, limit, arg, queue, THIS_GROUP);
}
