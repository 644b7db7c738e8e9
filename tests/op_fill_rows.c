/* fill_rows: chosen pixels of every item become one vector, all others keep their values; and a norm behind it. */
#include "variants/ops.h"
#include "variants/variant.h"
#include "support/lowered.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
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

/* The span of both: one launch where pixels and channels come in fours, else two. */
static void filled_norm(unsigned salt, int c, bool sliced, int items) {
    enum { N = 2, H = 3, W = 37, COUNT = 11 };
    optest t;
    lowered g;
    optest_begin(&t, "filled norm", salt);
    lowered_begin(&g);
    ref_map x = optest_random(&t, N, H, W, c), y = optest_zeros(&t, N, H, W, c), none = {0};
    float *value = optest_values(&t, (size_t)c, -1, 1), *norm = optest_values(&t, (size_t)(2 * c), 0.5f, 1.5f);
    for (int i = 0; i < c; i++) value[i] = rintf(value[i] * 256) / 256; /* exact in half */
    ist_tensor from = optest_in(&t, x, IST_ELEM_T, sliced);
    int rows[COUNT];
    for (int i = 0; i < COUNT; i++) {
        rows[i] = i == 0 ? H * W - 1 : (i - 1) * 10;
        for (int n = 0; n < N; n++) memcpy(ref_at(x, n, rows[i] / W, rows[i] % W), value, (size_t)c * sizeof(float));
    }
    if (items >= 0) ist_graph_limit(g.graph, lowered_input(&g, optest_ints(&t, &items, 1)));
    ist_tensor in = lowered_input(&g, from);
    ist_tensor list = ist_graph_const(g.graph, rows, 1, 1, COUNT, 1, IST_ELEM_I32, "rows");
    ist_graph_begin(g.graph, IST_SPAN_FILLED_NORM, "both");
    ist_fill_rows fill = {.label = "fill", .x = in, .rows = list, .filter = {.out = c, .b = value}};
    lowered_add(&g, IST_NODE_FILL_ROWS, &fill);
    ist_layer_norm layer = {.label = "norm", .x = fill.y, .norm = {norm, norm + c, c, NULL}, .eps = 1e-5f};
    lowered_add(&g, IST_NODE_LAYER_NORM, &layer);
    ist_graph_end(g.graph);
    ist_graph_output(g.graph, layer.y);
    lowered_run(&g, &t);
    const ist_tensor got = lowered_place(&g, layer.y);
    lowered_end(&g);
    optest_run(&t);
    cr_assert_eq(ist_plan_describe(t.plan).launches, (c | from.ld | from.c0) % 4 ? 2 : 1);
    ref_layernorm(x, none, 0, norm, norm + c, 1e-5f, 0, y);
    lowered_check_items(&t, "result", got, y, 4e-3, 4e-3, items >= 0 ? items : N);
    optest_end(&t);
}

static void without_cpu(void) {
    setenv("ISTHMUS_CAPS", "-CPU,-SIMD16", 1);
}

Test(op_fill_rows, in_the_norm_behind, .init = without_cpu) {
    filled_norm(20, 64, false, -1);
    filled_norm(21, 260, true, -1);
    filled_norm(22, 36, false, 1);
    filled_norm(23, 21, false, -1);
    filled_norm(24, 128, false, 0);
}
