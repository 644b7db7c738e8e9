/* Maps of which some rows are alike (graph/nodes.h), and what operators that copy such rows must hold to. */
#ifndef IST_TESTS_ALIKE_ROWS_H
#define IST_TESTS_ALIKE_ROWS_H

#include "variants/padding_reuse.h"
#include "support/optest.h"

#include <criterion/criterion.h>
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
    all.reuse = (ist_padding_reuse){ist_slice(content, 1, 1), step, above, below};
    return all;
}

/* First row of item i of those that are alike, and the one behind the last. */
static inline int first_alike(const pictures *all, ist_padding_reuse a, int i) {
    return (all->rows[i] + a.step - 1) / a.step + a.above;
}

/* The rows of x that are alike become so; zeros on demand. */
static inline void make_alike(ref_map x, const pictures *all, bool zeros) {
    size_t row = (size_t)x.w * (size_t)x.c * sizeof(float);
    for (int i = 0; i < x.n; i++)
        for (int first = first_alike(all, all->reuse, i), y = first; y < x.h - all->reuse.below; y++)
            if (zeros)
                memset(ref_at(x, i, y, 0), 0, row);
            else
                memcpy(ref_at(x, i, y, 0), ref_at(x, i, first, 0), row);
}

/* The same bits from an operator that knows of the rows, and the rows that it says are alike are. */
static inline void check_alike(const pictures *all, ist_padding_reuse after, ref_map got, ref_map want, int items) {
    size_t row = (size_t)got.w * (size_t)got.c * sizeof(float);
    for (int i = 0; i < items; i++)
        for (int y = 0; y < got.h; y++) {
            cr_assert(!memcmp(ref_at(got, i, y, 0), ref_at(want, i, y, 0), row), "item %d, row %d: %d of the picture",
                      i, y, all->rows[i]);
            if (ist_has(after.content) && y > first_alike(all, after, i) && y < got.h - after.below)
                cr_assert(!memcmp(ref_at(want, i, y, 0), ref_at(want, i, y - 1, 0), row),
                          "item %d: row %d is unlike the one before", i, y);
        }
}

#endif
