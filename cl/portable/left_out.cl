/* Rows of a letterboxed map that repeat others (graph/nodes.h) and are left out. -D LEFT_OUT: the period of the operand's, by
 * which nothing has to be divided where it is known to be one. */
typedef struct left_out_rows {
    int first;      /* each row from `first` on is that of `period` rows below it .. */
    int from, past; /* .. and of these, rows [from, past) are not there */
} left_out_rows;

static inline left_out_rows rows_left_out(__global const int *content, const padding_reuse_args arg, int n) {
    left_out_rows r = {0, INT_MAX, INT_MAX};
    if (arg.content_ld) {
        const int rows = (content[n * arg.content_ld + arg.content_c0] + arg.step - 1) / arg.step + arg.above;
        r.first = (rows + arg.period - 1) / arg.period * arg.period + arg.after;
        r.from = r.first + arg.beyond;
        r.past = arg.past;
    }
    return r;
}

#ifdef LEFT_OUT
/* Where row `row` of the operand is. */
static inline int row_of(int row, const left_out_rows r) {
    const int there = LEFT_OUT == 1 ? r.first : r.first + (row - r.first) % LEFT_OUT;
    return row >= r.from && row < r.past ? there : row;
}
#endif

/* Whether none of the rows [row, end) is made. */
static inline bool all_left_out(int row, int end, const left_out_rows r) {
    return row >= r.from && end <= r.past;
}

/* Whether none of the pixels [p, end) of a map of items of h rows of w pixels is made. */
static inline bool pixels_left_out(int p, int end, int h, int w, __global const int *content,
                                   const padding_reuse_args arg) {
    const int row = p / w, last = (end - 1) / w, n = row / h;
    return last < (n + 1) * h && all_left_out(row - n * h, last - n * h + 1, rows_left_out(content, arg, n));
}
