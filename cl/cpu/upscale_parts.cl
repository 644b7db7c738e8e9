/* What the CPU's rows of SAM's mask upscaling share (cpu/upscale, cpu/upscale_amx): needs cpu/tile and
 * portable/tokens_seen. */
#define C1 64
#define C2 32
#define TRACE  64 /* floats of a noted update: weights, factor in the last */
#define UNROLL __attribute__((opencl_unroll_hint))

/* Each of the four vectors' lanes in sums of four, {a, b, c, d}. */
static inline float16 sums_of_four(float16 a, float16 b, float16 c, float16 d) {
    const float16 ab = LANES(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                       LANES(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    const float16 cd = LANES(c, d, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                       LANES(c, d, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    return LANES(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
           LANES(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

/* Two logits of each of `count` rows, at least one and at most two: v . {v0, v1}, v two pixels of C2 channels. Row r's
 * are at y + at[r]. */
static inline void dot_rows(__global float *y, const int *at, int count, const float16 *v, float16 v0, float16 v1) {
    float16 all = sums_of_four(fma(v[0], v0, v[1] * v1), fma(v[2], v0, v[3] * v1), fma(v[4], v0, v[5] * v1),
                               fma(v[6], v0, v[7] * v1));
    all += LANES(all, all, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    all += LANES(all, all, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    vstore2((float2)(all.s0, all.s4), 0, y + at[0]);
    if (count > 1) vstore2((float2)(all.s8, all.sc), 0, y + at[1]);
}

/* Which pixels of a map of `width` are those from `first` on of the first `columns` of each line, and where the first
 * of their four by four logits lie. The one at `last` stands for all behind it. */
NOINLINE void place_tokens(int *pixel, int *at, int count, int first, int last, int columns, int width) {
    for (int r = 0; r < count; r++) {
        const int i = min(first + r, last), line = i / columns, column = i - line * columns;
        pixel[r] = line * width + column;
        at[r] = (line * width * 4 + column) * 4;
    }
}

/* Which part of `all` group x takes: from both ends by turns. The last parts may be unseen and cost nothing, and a core
 * gets many groups in a row. */
static inline int group_by_turns(int x, int all) {
    return x & 1 ? all - 1 - x / 2 : x / 2;
}

/* Factors' rows of the four phases [2][C1], with the values of columns [depth, columns), whose weight is one. */
static inline void sum_constants(float16 *to, __global const float *constants, __global const float *values1,
                                 __global const float *values2, int depth, int columns) {
    for (int phase = 0; phase < 4; phase++, to += 8, constants += 3 * C1) {
        for (int i = 0; i < 8; i++) to[i] = vload16(i, constants);
        for (int c = depth; c < columns; c++)
            for (int j = 0; j < 4; j++) {
                to[j] += vload16(j, values1 + (phase * columns + c) * C1);
                to[4 + j] += vload16(j, values2 + (phase * columns + c) * C1);
            }
    }
}
