/* Rows of a map that are alike (graph/nodes.h), for operators that copy them. */

/* Rows [x, y) of item n. */
static inline int2 alike_rows(__global const int *content, padding_reuse_args arg, int n) {
    if (!arg.content_ld) return (int2)(0);
    const int rows = content[n * arg.content_ld + arg.content_c0]; /* of the picture */
    return (int2)((rows + arg.step - 1) / arg.step + arg.above, arg.past);
}

/* First of `rows` rows of band `i` of `bands`, which are about the same work: a row that is copied costs a part of
 * others. */
static inline int alike_band(int i, int bands, int rows, int2 same) {
    enum { COPIES = 16 };
    const int first = min(same.x + 1, rows), copied = max(same.y - first, 0);
    const int work = i * (rows * COPIES - copied * (COPIES - 1)) / bands, rest = work - first * COPIES;
    return rest < 0 ? work / COPIES : first + (rest < copied ? rest : copied + (rest - copied) / COPIES);
}

/* `count` pixels, `ld` apart. */
NOINLINE void copy_pixels(__global T *to, __global const T *from, int count, int ld, int channels) {
    for (int i = 0; i < count; i++, to += ld, from += ld)
        for (int c = 0; c < channels; c += 16) STORE16(LOAD16(from, c), to, c);
}
