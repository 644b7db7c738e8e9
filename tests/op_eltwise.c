/* Sum, copy, expansion and clamp against the scalar reference, on the device's own row and on the portable one. */
#include "variants/ops.h"
#include "variants/variant.h"
#include "support/hidden_caps.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <string.h>

typedef struct extents {
    int n, h, w, c;
} extents;

static extents random_extents(optest *t) {
    bool small = optest_small();
    return (extents){optest_int(t, 1, 4), optest_int(t, 1, small ? 2 : 9), optest_int(t, 1, small ? 3 : 40),
                     optest_int(t, 1, small ? 20 : 140)};
}

/* i chooses b's broadcasting, slices, the limit and the storage of the operands. */
static void add_case(unsigned i) {
    optest t;
    optest_begin(&t, "add", i);
    extents e = random_extents(&t);
    int bn = i & 1 ? 1 : e.n, bh = i & 2 ? 1 : e.h, bw = i & 2 ? 1 : e.w, count = i & 4 ? e.n / 2 : e.n;
    bool slice = i & 8;
    ref_map a = optest_random(&t, e.n, e.h, e.w, e.c), b = optest_random(&t, bn, bh, bw, e.c);
    ref_map want = optest_zeros(&t, e.n, e.h, e.w, e.c);
    ist_tensor at = optest_in(&t, a, i & 16 ? IST_ELEM_F32 : IST_ELEM_T, slice);
    ist_tensor bt = optest_in(&t, b, i & 16 ? IST_ELEM_T : IST_ELEM_F32, slice);
    ist_tensor yt = optest_out(&t, e.n, e.h, e.w, e.c, i & 32 ? IST_ELEM_F32 : IST_ELEM_T, slice);
    if (count < e.n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_tensor y = ist_op_add(t.plan, at, bt, yt, "add");
    optest_run(&t);
    ref_add(a, b, want);
    double tol = t.half && yt.elem == IST_ELEM_T ? 1e-3 : 0; /* one float addition: exact */
    optest_check(&t, "add", y, want, tol, 0, count);
    optest_end(&t);
}

static void copy_case(unsigned i) {
    optest t;
    optest_begin(&t, "copy", i);
    extents e = random_extents(&t);
    bool repeat = i & 8;
    ref_map x = optest_random(&t, repeat ? 1 : e.n, e.h, e.w, e.c), want = optest_zeros(&t, e.n, e.h, e.w, e.c);
    int count = i & 1 ? e.n - 1 : e.n, items[4] = {0, repeat ? 0 : 1, repeat ? 0 : 2, repeat ? 0 : 3};
    ist_tensor xt = optest_in(&t, x, i & 4 ? IST_ELEM_F32 : IST_ELEM_T, i & 2);
    ist_tensor yt = optest_out(&t, e.n, e.h, e.w, e.c, i & 4 ? IST_ELEM_T : IST_ELEM_F32, !(i & 2));
    if (count < e.n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_tensor y = ist_op_copy(t.plan, xt, yt, "copy");
    optest_run(&t);
    ref_expand(x, items, want);
    optest_check(&t, "copy", y, want, 0, 0, count);
    optest_end(&t);
}

/* Two maps of every item one behind the other in a sequence per item, as the detector's levels lie in its memory. */
static void rows_case(unsigned i) {
    optest t;
    optest_begin(&t, "copy rows", i);
    extents e = random_extents(&t);
    int h = optest_int(&t, 1, 5), first = e.h * e.w, rows = first + h * e.w;
    ref_map x[2] = {optest_random(&t, e.n, e.h, e.w, e.c), optest_random(&t, e.n, h, e.w, e.c)};
    ref_map want = optest_zeros(&t, e.n, 1, rows, e.c);
    ist_tensor y = optest_out(&t, e.n, 1, rows, e.c, IST_ELEM_T, i & 1);
    for (int k = 0; k < 2; k++)
        ist_op_copy_rows(t.plan, optest_in(&t, x[k], i & 2 ? IST_ELEM_F32 : IST_ELEM_T, i & 1), y, k ? first : 0,
                         "rows");
    optest_run(&t);
    for (int n = 0; n < e.n; n++)
        for (int r = 0; r < rows; r++) {
            const float *from = r < first ? x[0].v + ((size_t)n * first + r) * e.c
                                          : x[1].v + ((size_t)n * (rows - first) + (r - first)) * e.c;
            memcpy(want.v + ((size_t)n * rows + r) * e.c, from, (size_t)e.c * sizeof *from);
        }
    optest_check(&t, "copy rows", y, want, 0, 0, -1);
    optest_end(&t);
}

/* Items whose count is above a number take the places of others, several for a count; the rest stays as it is. */
static void put_case(unsigned i) {
    optest t;
    optest_begin(&t, "put items", i);
    extents e = random_extents(&t);
    int owners = optest_int(&t, 1, 4), each = optest_int(&t, 1, 3), above = optest_int(&t, 0, 4), counts[4];
    int limit = i & 1 ? owners / 2 : owners, items = owners * each;
    ref_map x = optest_random(&t, items, e.h, e.w, e.c), into = optest_random(&t, items, e.h, e.w, e.c);
    ref_map want = optest_zeros(&t, items, e.h, e.w, e.c);
    size_t values = (size_t)e.h * (size_t)e.w * (size_t)e.c;
    for (int k = 0; k < owners; k++) counts[k] = optest_int(&t, 0, 5);
    for (int k = 0; k < items; k++)
        memcpy(want.v + (size_t)k * values,
               (k / each < limit && counts[k / each] > above ? x : into).v + (size_t)k * values,
               values * sizeof(float));
    ist_tensor to = optest_in(&t, into, IST_ELEM_F32, i & 2);
    ist_put_items put = {.label = "put", .x = optest_in(&t, x, IST_ELEM_F32, i & 4), .into = to, .above = above};
    put.counts = optest_ints(&t, counts, owners);
    if (i & 1) ist_plan_limit(t.plan, optest_ints(&t, &limit, 1));
    ist_emit(t.plan, IST_NODE_PUT_ITEMS, &put);
    optest_run(&t);
    optest_check(&t, "put items", to, want, 0, 0, -1);
    optest_end(&t);
}

static void expand_case(unsigned i) {
    optest t;
    optest_begin(&t, "expand", i);
    extents e = random_extents(&t);
    int items = optest_int(&t, 1, 6), count = i & 1 ? items / 2 : items, map[6];
    for (int k = 0; k < 6; k++)
        map[k] = k < count ? optest_int(&t, 0, e.n - 1) : -1000000; /* unused beyond the count */
    ref_map x = optest_random(&t, e.n, e.h, e.w, e.c), want = optest_zeros(&t, items, e.h, e.w, e.c);
    ist_tensor xt = optest_in(&t, x, i & 4 ? IST_ELEM_F32 : IST_ELEM_T, i & 2), mt = optest_ints(&t, map, items);
    if (count < items) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_tensor y = ist_op_expand(t.plan, xt, mt, items, "expand");
    optest_run(&t);
    want.n = count;
    if (count) ref_expand(x, map, want);
    want.n = items;
    optest_check(&t, "expand", y, want, 0, 0, count);
    optest_end(&t);
}

static void expand_ints(void) {
    enum { N = 3, W = 7, ITEMS = 5 };
    static const int map[ITEMS] = {2, 0, 1, 2, 2};
    optest t;
    optest_begin(&t, "expand ints", 1);
    int x[N * W], got[ITEMS * W];
    for (int i = 0; i < N * W; i++) x[i] = (int)optest_u32(&t); /* every bit pattern, NaN and denormals among them */
    ist_tensor xt = ist_plan_const(t.plan, x, N, 1, W, 1, IST_ELEM_I32, "ints");
    ist_tensor y = ist_op_expand(t.plan, xt, optest_ints(&t, map, ITEMS), ITEMS, "expand");
    optest_run(&t);
    cr_assert_eq(ist_plan_read_i32(t.plan, y, got, &t.err), IST_OK, "%s", t.err.text);
    for (int i = 0; i < ITEMS * W; i++) cr_assert_eq(got[i], x[map[i / W] * W + i % W], "element %d", i);
    optest_end(&t);
}

static void clamp_case(unsigned i) {
    optest t;
    optest_begin(&t, "clamp", i);
    extents e = random_extents(&t);
    ref_map x = optest_random(&t, e.n, e.h, e.w, e.c), want = optest_zeros(&t, e.n, e.h, e.w, e.c);
    for (size_t k = 0; k < ref_size(x); k += 5) x.v[k] *= 4096;
    ist_tensor y = ist_op_clamp(t.plan, optest_in(&t, x, IST_ELEM_T, i & 1), -0.25f, 10.0f, "clamp");
    optest_run(&t);
    ref_clamp(x, -0.25f, 10.0f, want);
    optest_check(&t, "clamp", y, want, 0, 0, -1);
    optest_end(&t);
}

static void all_cases(void) {
    unsigned step = optest_small() ? 5 : 1;
    for (unsigned i = 0; i < 64; i += step) add_case(i);
    for (unsigned i = 0; i < 16; i += step) copy_case(i);
    for (unsigned i = 0; i < 4; i++) rows_case(i);
    for (unsigned i = 0; i < 8; i++) put_case(i);
    for (unsigned i = 0; i < 8; i += step) expand_case(i);
    for (unsigned i = 0; i < 2; i++) clamp_case(i);
    expand_ints();
}

Test(eltwise, own_row) {
    without = 0;
    all_cases();
}

Test(eltwise, portable) {
    without = IST_CAP_VEC16;
    all_cases();
}

Test(eltwise, refuses_bad_extents) {
    optest t;
    optest_begin(&t, "add refusal", 1);
    ist_tensor a = optest_in(&t, optest_random(&t, 2, 2, 2, 8), IST_ELEM_T, false);
    ist_tensor b = optest_in(&t, optest_random(&t, 2, 2, 1, 8), IST_ELEM_T, false);
    cr_assert_not(ist_has(ist_op_add(t.plan, a, b, (ist_tensor){0}, "sum")));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    optest_drop(&t);
    ist_device_close(&t.device);
}

Test(eltwise, refuses_rows_beyond_the_end) {
    optest t;
    optest_begin(&t, "rows refusal", 1);
    ist_tensor x = optest_in(&t, optest_random(&t, 2, 2, 2, 8), IST_ELEM_T, false);
    ist_op_copy_rows(t.plan, x, ist_plan_tensor(t.plan, 2, 1, 6, 8, IST_ELEM_T), 3, "rows");
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    optest_drop(&t);
    ist_device_close(&t.device);
}
