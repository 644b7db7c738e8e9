/* row_max, topk and gather against the scalar reference: odd shapes, ties, NaN and infinities, limits. */
#include "variants/ops.h"
#include "support/hidden_caps.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void expect_ints(optest *t, const char *what, ist_tensor y, const int *want, int count) {
    int *got = optest_alloc(t, (size_t)ist_pixels(y) * sizeof *got);
    cr_assert_eq(ist_plan_read_i32(t->plan, y, got, &t->err), IST_OK, "%s", t->err.text);
    for (int i = 0; i < count; i++)
        cr_assert_eq(got[i], want[i], "%s, %s, seed %llu: place %d has %d, not %d", t->name, what,
                     (unsigned long long)t->seed, i, got[i], want[i]);
}

Test(op_topk, row_max) {
    static const int shapes[][3] = {{1, 1, 1}, {2, 67, 3}, {1, 70, 16}, {3, 33, 17}, {2, 129, 80}, {1, 5, 31}};
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int f32 = 0; f32 < 2; f32++) {
            optest t;
            optest_begin(&t, "row_max", 2 * i + (unsigned)f32);
            ref_map x = optest_random(&t, shapes[i][0], 1, shapes[i][1], shapes[i][2]);
            ist_tensor in = optest_in(&t, x, f32 ? IST_ELEM_F32 : IST_ELEM_T, i % 2);
            ist_tensor y = ist_op_row_max(t.plan, in, "row_max");
            optest_run(&t);
            ref_map want = optest_zeros(&t, x.n, 1, x.w, 1);
            ref_row_max(x, want);
            optest_check(&t, "maximum", y, want, 0, 0, -1);
            optest_end(&t);
        }
}

/* Values with many ties, zeros of both signs are kept out (they are equal but have two bit patterns). */
static void fill(optest *t, ref_map x, int kind) {
    for (size_t i = 0; i < ref_size(x); i++) {
        float v = optest_uniform(t, -4, 4);
        if (kind == 1) v = (float)optest_int(t, 1, 3);
        if (kind == 2) v = 0.25f;
        if (kind == 3) v = optest_int(t, 0, 3) ? v : optest_int(t, 0, 1) ? NAN : -INFINITY;
        if (kind == 4) v = optest_int(t, 0, 9) ? v * 1e-38f : INFINITY;
        if (kind == 5) v = 1.0f + (float)optest_int(t, 0, 40) * 0x1p-23f; /* differ in the last digit only */
        x.v[i] = v;
    }
}

Test(op_topk, exact_order) {
    static const int shapes[][3] = {{1, 1, 1},     {2, 7, 7},      {1, 64, 3},    {3, 301, 300},
                                    {1, 400, 300}, {2, 2000, 300}, {1, 8400, 512}};
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < 6; kind++) {
            int n = shapes[i][0], total = shapes[i][1], k = shapes[i][2];
            if (optest_small() && total > 301) continue;
            optest t;
            optest_begin(&t, "topk", 10 * i + (unsigned)kind);
            ref_map x = optest_zeros(&t, n, 1, total, 1);
            fill(&t, x, kind);
            ist_tensor y = ist_op_topk(t.plan, optest_in(&t, x, IST_ELEM_F32, kind % 2), k, "topk");
            optest_run(&t);
            int *want = optest_alloc(&t, (size_t)(n * k) * sizeof *want);
            for (int m = 0; m < n; m++) ref_topk(x.v + (size_t)m * total, total, k, want + m * k);
            expect_ints(&t, "indices", y, want, n * k);
            optest_end(&t);
        }
}

static void top_rows(int n, int total, int c, int k, int kind, bool f32, int count) {
    optest t;
    optest_begin(&t, "top_rows", (unsigned)(total + 10 * kind + f32));
    ref_map x = optest_zeros(&t, n, 1, total, c), most = optest_zeros(&t, n, 1, total, 1);
    fill(&t, x, kind == 4 && t.half ? 3 : kind); /* halves below 1e-7 are zeros of both signs */
    ist_tensor in = optest_in(&t, x, f32 ? IST_ELEM_F32 : IST_ELEM_T, kind % 2);
    if (count < n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_tensor y = ist_op_top_rows(t.plan, in, k, "top_rows");
    optest_run(&t);
    cr_assert_eq(ist_plan_replay(t.plan, &t.err), IST_OK, "%s", t.err.text); /* counters are back */
    int *want = optest_alloc(&t, (size_t)(n * k) * sizeof *want);
    ref_row_max(optest_read(&t, in), most);
    for (int m = 0; m < n; m++) ref_topk(most.v + (size_t)m * total, total, k, want + m * k);
    expect_ints(&t, "indices", y, want, (count < n ? count : n) * k);
    optest_end(&t);
}

/* `groups` false: only what one group of the one launch makes. oclgrind takes what the last group reads from the others
 * for a race, since it knows no fence of the device. */
static void top_rows_all(bool groups) {
    static const int shapes[][4] = {{1, 1, 1, 1},      {2, 7, 3, 7},       {1, 64, 80, 3},   {3, 301, 5, 300},
                                    {1, 400, 16, 300}, {2, 2000, 12, 300}, {1, 8400, 4, 512}};
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < 6; kind++) {
            const int *s = shapes[i];
            if (optest_small() && s[1] > (groups ? 301 : 64)) continue;
            top_rows(s[0], s[1], s[2], s[3], kind, (i + (unsigned)kind) % 3 == 0, s[0] - kind % 2);
        }
}

Test(op_topk, top_rows) {
    top_rows_all(true);
}

/* The one launch of NVIDIA GPUs: the capability is claimed, nvidia/ptx then is plain OpenCL. */
Test(op_topk, top_rows_in_one_launch) {
    setenv("ISTHMUS_CAPS", "+PTX_MMA", 1);
    without = IST_CAP_CPU;
    top_rows_all(false);
}

Test(op_topk, refuses_more_than_there_are) {
    optest t;
    optest_begin(&t, "topk of too few", 0);
    ist_tensor x = optest_in(&t, optest_random(&t, 1, 1, 84, 1), IST_ELEM_F32, false);
    ist_tensor y = ist_op_topk(t.plan, x, 300, "query selection");
    cr_assert_not(ist_has(y));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    cr_assert(strstr(ist_plan_error(t.plan)->text, "query selection: the 300 largest of 84"), "%s",
              ist_plan_error(t.plan)->text);
    optest_drop(&t);
    ist_device_close(&t.device);
}

Test(op_topk, gather) {
    static const int shapes[][5] = {
        {1, 1, 1, 1, 1}, {2, 2, 50, 33, 40}, {1, 3, 17, 4, 65}, {2, 2, 90, 256, 31}, {1, 1, 9, 132, 9}};
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int f32 = 0; f32 < 2; f32++) {
            const int *s = shapes[i];
            optest t;
            optest_begin(&t, "gather", 2 * i + (unsigned)f32);
            ref_map x = optest_random(&t, s[0], 1, s[2], s[3]), want = optest_zeros(&t, s[1], 1, s[4], s[3]);
            int *index = optest_alloc(&t, (size_t)(s[1] * s[4]) * sizeof *index);
            for (int j = 0; j < s[1] * s[4]; j++) index[j] = optest_int(&t, 0, s[2] - 1);
            ist_tensor in = optest_in(&t, x, f32 ? IST_ELEM_F32 : IST_ELEM_T, i % 2);
            ist_tensor at = ist_view(optest_ints(&t, index, s[1] * s[4]), s[1], 1, s[4]);
            ist_tensor y = ist_op_gather(t.plan, in, at, "gather");
            optest_run(&t);
            for (int j = 0; j < s[1] * s[4]; j++)
                memcpy(want.v + (size_t)j * s[3], ref_at(x, s[0] == 1 ? 0 : j / s[4], 0, index[j]),
                       (size_t)s[3] * sizeof *want.v);
            optest_check(&t, "rows", y, want, 0, 0, -1);
            optest_end(&t);
        }
}

/* Items from the limit on keep what was there: the guard pattern, -1 as an int and NaN as a float. */
Test(op_topk, limit) {
    optest t;
    optest_begin(&t, "limits", 0);
    int one = 1;
    ist_tensor x = optest_in(&t, optest_random(&t, 3, 1, 20, 5), IST_ELEM_F32, false);
    ist_plan_limit(t.plan, optest_ints(&t, &one, 1));
    ist_tensor best = ist_op_row_max(t.plan, x, "row_max"), top = ist_op_topk(t.plan, best, 4, "topk");
    ist_tensor rows = ist_op_gather(t.plan, x, top, "gather");
    ist_plan_limit(t.plan, (ist_tensor){0});
    optest_run(&t);
    int got[12];
    cr_assert_eq(ist_plan_read_i32(t.plan, top, got, &t.err), IST_OK);
    cr_assert(got[0] >= 0 && got[3] >= 0 && got[4] == -1 && got[11] == -1);
    ref_map m = optest_read(&t, best), r = optest_read(&t, rows);
    cr_assert(!isnan(m.v[19]) && isnan(m.v[20]) && isnan(m.v[59]));
    cr_assert(!isnan(r.v[19]) && isnan(r.v[20]) && isnan(r.v[59]));
    optest_end(&t);
}
