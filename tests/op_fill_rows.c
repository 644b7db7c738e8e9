/* fill_rows: chosen pixels of every item become one vector, all others keep their values. */
#include "variants/ops.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <string.h>

static void fill(unsigned salt, bool slice, int limit) {
    optest t;
    optest_begin(&t, "fill_rows", salt);
    int n = optest_int(&t, 1, 3), h = optest_int(&t, 1, 5), w = optest_int(&t, 1, 9), c = optest_int(&t, 1, 40);
    int count = optest_int(&t, 1, h * w), items = limit >= 0 && limit < n ? limit : n;
    ref_map x = optest_random(&t, n, h, w, c), want = optest_zeros(&t, n, h, w, c);
    ref_map value = optest_random(&t, 1, 1, 1, c);
    int *rows = optest_alloc(&t, (size_t)count * sizeof *rows);
    memcpy(want.v, x.v, ref_size(x) * sizeof(float));
    for (int i = 0; i < count; i++) {
        rows[i] = (optest_int(&t, 0, h * w - 1) + i) % (h * w);
        for (int item = 0; item < items; item++)
            memcpy(ref_at(want, item, rows[i] / w, rows[i] % w), value.v, (size_t)c * sizeof(float));
    }
    ist_tensor dx = optest_in(&t, x, IST_ELEM_T, slice), dr = optest_ints(&t, rows, count);
    if (limit >= 0) ist_plan_limit(t.plan, optest_ints(&t, &limit, 1));
    ist_op_fill_rows(t.plan, dx, dr, value.v, "fill");
    optest_run(&t);
    optest_check(&t, "filled", dx, want, 0, 0, items);
    optest_end(&t);
}

Test(op_fill_rows, dense) {
    for (unsigned salt = 0; salt < 6; salt++) fill(salt, false, -1);
}
Test(op_fill_rows, slice) {
    for (unsigned salt = 6; salt < 12; salt++) fill(salt, true, -1);
}
Test(op_fill_rows, limited) {
    for (unsigned salt = 12; salt < 18; salt++) fill(salt, true, (int)salt % 3);
}
