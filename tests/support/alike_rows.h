/* Maps of which some rows repeat others (graph/nodes.h), and what operators that copy such rows or leave them out must
 * hold to. */
#ifndef IST_TESTS_ALIKE_ROWS_H
#define IST_TESTS_ALIKE_ROWS_H

#include "variants/padding_reuse.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { ALIKE_ITEMS = 6 };

/* Pictures of no rows, one, all, more than the map needs, and others. */
typedef struct pictures {
    int rows[ALIKE_ITEMS];
    ist_padding_reuse reuse; /* of a map that was made with `step`, `above` and `below` */
} pictures;

static inline pictures draw_pictures(optest *t, int n, int h, int step, int above, int below) {
    pictures all;
    int words[2 * ALIKE_ITEMS];
    for (int i = 0; i < n; i++) {
        int kind = optest_int(t, 0, 6);
        all.rows[i] = kind < 2 ? kind : kind == 2 ? h * step : optest_int(t, 1, h * step / 2);
        words[2 * i] = optest_int(t, 0, 1000);
        words[2 * i + 1] = all.rows[i];
    }
    ist_tensor content = ist_view(optest_ints(t, words, 2 * n), 1, 1, n);
    content.ld = 2;
    all.reuse = (ist_padding_reuse){
        .content = ist_slice(content, 1, 1), .step = step, .above = above, .below = below, .period = 1};
    return all;
}

/* First row of item i of those that repeat. */
static inline int first_alike(const pictures *all, ist_padding_reuse a, int i) {
    int first = (all->rows[i] + a.step - 1) / a.step + a.above;
    return (first + a.period - 1) / a.period * a.period + a.after;
}

/* The rows of x that are alike become so; zeros on demand. */
static inline void make_alike(ref_map x, const pictures *all, bool zeros) {
    size_t row = (size_t)x.w * (size_t)x.c * sizeof(float);
    for (int i = 0; i < x.n; i++)
        for (int first = first_alike(all, all->reuse, i), y = first; y < x.h - all->reuse.below; y++)
            if (zeros)
                memset(ref_at(x, i, y, 0), 0, row);
            else
                memcpy(ref_at(x, i, y, 0), ref_at(x, i, first + (y - first) % all->reuse.period, 0), row);
}

/* A copy of x without the rows that an operator may not need, but `spare` of them: they are no numbers. */
static inline ref_map without_rows(optest *t, ref_map x, const pictures *all, int spare) {
    ref_map y = optest_zeros(t, x.n, x.h, x.w, x.c);
    memcpy(y.v, x.v, ref_size(x) * sizeof *x.v);
    for (int i = 0; i < x.n; i++)
        for (int row = first_alike(all, all->reuse, i) + all->reuse.period + spare; row < x.h - all->reuse.below - spare; row++)
            for (int e = 0; e < x.w * x.c; e++) ref_at(y, i, row, 0)[e] = NAN;
    return y;
}

/* After an operator was recorded: makes what it has left out. */
static inline void fill_rows(optest *t, ist_tensor y, ist_padding_reuse *after) {
    ist_padding_reuse_fill(t->plan, y, after, "rows");
}

/* The same bits from an operator that knows of the rows, and the rows that it says are alike are. */
static inline void check_alike(const pictures *all, ist_padding_reuse after, ref_map got, ref_map want, int items) {
    size_t row = (size_t)got.w * (size_t)got.c * sizeof(float);
    for (int i = 0; i < items; i++)
        for (int y = 0; y < got.h; y++) {
            cr_assert(!memcmp(ref_at(got, i, y, 0), ref_at(want, i, y, 0), row), "item %d, row %d: %d of the picture, %g for %g",
                      i, y, all->rows[i], ref_at(got, i, y, 0)[0], ref_at(want, i, y, 0)[0]);
            if (ist_has(after.content) && y >= first_alike(all, after, i) + after.period && y < got.h - after.below)
                cr_assert(!memcmp(ref_at(want, i, y, 0), ref_at(want, i, y - after.period, 0), row),
                          "item %d: row %d is unlike that of %d rows before", i, y, after.period);
        }
}

#endif
