/* Rows of a letterboxed map that repeat others (graph/nodes.h) and are left out. -D LEFT_OUT: something is known of the
 * operand's, whose period it is: by one, where that is known, nothing has to be divided. Without it all rows are there. */
typedef struct left_out_rows {
    int first;      /* each row from `first` on is that of `period` rows below it .. */
    int from, past; /* .. and of these, rows [from, past) are not there */
} left_out_rows;

static inline left_out_rows rows_left_out(__global const int *content, const padding_reuse_args arg, int n) {
    left_out_rows r = {0, INT_MAX, INT_MAX};
#ifndef LEFT_OUT
    if (!arg.content_ld) return r;
#endif
    /* With LEFT_OUT `content` is there, also where nothing is known of this map: then the first picture is read, and no
     * row is beyond arg.beyond. Some compilers end the process over a condition here in conv_tile's loop. */
    const int rows = (content[n * arg.content_ld + arg.content_c0] + arg.step - 1) / arg.step + arg.above;
    r.first = (rows + arg.period - 1) / arg.period * arg.period + arg.after;
    r.from = r.first + arg.beyond;
    r.past = arg.past;
    return r;
}

/* Where row `row` of the operand is, of whose rows `there` says what is left out. */
#ifdef LEFT_OUT
static inline int row_of(int row, const left_out_rows r) {
    const int there = LEFT_OUT == 1 ? r.first : r.first + (row - r.first) % LEFT_OUT;
    return row >= r.from && row < r.past ? there : row;
}
#define ROW_OF(row, there) row_of(row, there)
#else
#define ROW_OF(row, there) (row)
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
