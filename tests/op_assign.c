/* Assignment: totals equal to SciPy's on 2000 stored problems, and equal to the scalar reference on random ones; ties,
 * rectangles, forbidden pairs, counts from device memory; D-FINE's cost matrices. */
#include "variants/assign.h"
#include "variants/ops.h"
#include "support/external.h"
#include "support/golden.h"
#include "synth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Every row and column at most once, `pairs` of them; their total in double. */
static double total_of(const char *name, const float *cost, int rows, int cols, int ld, const int *match, int pairs) {
    double sum = 0;
    int found = 0;
    char *used = calloc((size_t)cols + 1, 1);
    for (int r = 0; r < rows; r++) {
        if (match[r] < 0) continue;
        cr_assert(match[r] < cols && !used[match[r]], "%s: row %d has column %d of %d, or twice", name, r, match[r],
                  cols);
        used[match[r]] = 1;
        sum += cost[(size_t)r * ld + match[r]];
        found++;
    }
    cr_assert_eq(found, pairs, "%s: %d pairs, not %d", name, found, pairs);
    free(used);
    return sum;
}

/* ---- the operator: several problems at once, sizes read on the device ---- */

static float random_cost(optest *t, int kind) {
    switch (kind) {
    case 1:
        return (float)optest_int(t, 0, 3);
    case 2:
        return 0.75f;
    case 3:
        return optest_int(t, 0, 3) ? optest_uniform(t, -5, 5) : INFINITY;
    case 4:
        return optest_int(t, 0, 9) ? optest_uniform(t, -1, 1) : NAN; /* NaN counts as 1 */
    default:
        return optest_uniform(t, -9, 9);
    }
}

Test(op_assign, counts_on_the_device) {
    static const int shapes[][3] = {{1, 1, 1},   {3, 5, 9},     {4, 9, 5},   {2, 31, 33},
                                    {2, 70, 64}, {1, 100, 300}, {1, 300, 17}};
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < 5; kind++) {
            int n = shapes[i][0], rows = shapes[i][1], cols = shapes[i][2];
            if (optest_small() && rows * cols > 1100) continue;
            optest t;
            optest_begin(&t, "assign", 8 * i + (unsigned)kind);
            ref_map cost = optest_zeros(&t, n, rows, cols, 1);
            for (size_t k = 0; k < ref_size(cost); k++) cost.v[k] = random_cost(&t, kind);
            int dims[8];
            for (int k = 0; k < n; k++) {
                dims[2 * k] = k ? optest_int(&t, 0, rows) : rows;
                dims[2 * k + 1] = k ? optest_int(&t, 0, cols) : cols;
            }
            ist_tensor d = optest_ints(&t, dims, 2 * n), complete;
            d.n = n, d.w = 1, d.c = d.ld = 2;
            ist_tensor y = ist_op_assign(t.plan, optest_in(&t, cost, IST_ELEM_F32, false), d, 40, &complete, "assign");
            optest_run(&t);
            int *match = optest_alloc(&t, (size_t)(n * rows) * 4), whole[4], want[400];
            EXTERNAL_OK(&t, ist_plan_read_i32(t.plan, y, match, &t.err));
            EXTERNAL_OK(&t, ist_plan_read_i32(t.plan, complete, whole, &t.err));
            for (int k = 0; k < n; k++) {
                float *c = ref_at(cost, k, 0, 0);
                for (int j = 0; j < rows * cols; j++)
                    if (isnan(c[j])) c[j] = 1;
                int a = dims[2 * k], b = dims[2 * k + 1], pairs = a < b ? a : b;
                double best;
                bool ok = ref_assign(c, a, b, cols, want, &best);
                cr_assert_eq(whole[k], ok, "%s, kind %d: complete %d, not %d", t.name, kind, whole[k], ok);
                for (int r = a; r < rows; r++) cr_assert_eq(match[k * rows + r], -1);
                if (!ok) continue;
                double got = total_of(t.name, c, a, b, cols, match + k * rows, pairs);
                cr_assert_float_eq(got, best, 1e-9 * (pairs + 1), "%d x %d, kind %d, seed %llu: total %.12g, not %.12g",
                                   a, b, kind, (unsigned long long)t.seed, got, best);
                if (kind == 2)
                    for (int r = 0; r < a; r++) cr_assert_eq(match[k * rows + r], r < b ? r : -1);
            }
            optest_end(&t);
        }
}

/* ---- ist_assign ---- */

static ist_device *open_device(void) {
    ist_device *device = NULL;
    ist_error err;
    cr_assert_eq(ist_device_open(&(ist_device_options){0}, &device, &err), IST_OK, "%s", err.text);
    return device;
}

typedef struct recipe {
    char name[16];
    uint64_t base, row, col, shut, power, near;
} recipe;

static recipe recipe_of(int number) {
    recipe r;
    char name[40];
    const char *parts[] = {"row", "col", "shut", "power", "near"};
    uint64_t *places[] = {&r.row, &r.col, &r.shut, &r.power, &r.near};
    snprintf(r.name, sizeof r.name, "lap.%d", number);
    r.base = synth_base(r.name, 1);
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "%s.%s", r.name, parts[i]);
        *places[i] = synth_base(name, 1);
    }
    return r;
}

/* Entry (i, j) of a stored problem: tests/golden/README.md, section 3. */
static double entry(const recipe *r, int rows, int cols, int kind, int a, int b, int i, int j) {
    uint64_t at = (uint64_t)i * (uint64_t)cols + (uint64_t)j;
    double k = synth_draw(r->base, at);
    bool kept = rows <= cols ? j == (i + b) % cols : i == (j + b) % rows;
#define R(q) ((double)(synth_draw(r->row, (uint64_t)(q)) >> 2))
#define C(q) ((double)(synth_draw(r->col, (uint64_t)(q)) >> 2))
    switch (kind) {
    case 0:
        return ldexp(k, a);
    case 1:
        return ldexp(k - 8388608, a);
    case 2:
        return (double)((uint64_t)k * (uint64_t)a >> 24) + b;
    case 3:
        return a;
    case 4:
        return (R(i) + C(j) + (double)((uint64_t)k >> a)) * 0x1p-22;
    case 5:
        return synth_draw(r->base, (uint64_t)(i / a) * (uint64_t)cols + (uint64_t)j) * 0x1p-24;
    case 6:
        return synth_draw(r->base, (uint64_t)i * (uint64_t)cols + (uint64_t)(j / a)) * 0x1p-24;
    case 7:
        return (int)(synth_draw(r->shut, at) >> 16) < a && !kept ? INFINITY : k * 0x1p-24;
    case 8:
        return ldexp(k + 1, (int)(synth_draw(r->power, at) >> 19) - 40);
    case 9:
        return (int)(synth_draw(r->near, at) >> 16) < a ? k * 0x1p-24 : 1;
    case 10:
        return (fabs(R(2 * i) - C(2 * j)) + fabs(R(2 * i + 1) - C(2 * j + 1))) * 0x1p-22;
    case 11:
        return (double)(i + 1) * (j + 1);
    case 12:
        return -(double)(i + 1) * (j + 1);
    case 13:
        return kept ? 0 : 1;
    default:
        return (rows <= cols ? i == b : j == b) ? INFINITY : k * 0x1p-24;
    }
#undef R
#undef C
}

Test(op_assign, scipy_totals, .timeout = 600) {
    ist_weights *golden;
    ist_error err;
    cr_assert_eq(ist_weights_open(IST_GOLDEN_DIR "/matcher/lap.safetensors", &golden, &err), IST_OK, "%s", err.text);
    int *cases = golden_ints(golden, "cases", 10000);
    const ist_weight *totals = ist_weights_find(golden, "totals");
    ist_device *device = open_device();
    float *cost = malloc(300 * 300 * sizeof *cost);
    int step = optest_small() ? 97 : 1, match[300];
    for (int n = 0; n < 2000; n += step) {
        const int *c = cases + 5 * n;
        int rows = c[0], cols = c[1];
        if (optest_small() && rows * cols > 400) continue;
        recipe r = recipe_of(n);
        double most = 0, want, got;
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < cols; j++) {
                float v = (float)entry(&r, rows, cols, c[2], c[3], c[4], i, j);
                cost[i * cols + j] = v;
                if (isfinite(v)) most = fmax(most, fabs(v));
            }
        memcpy(&want, (const char *)totals->data + 8 * (size_t)n, 8);
        if (n == 0) cr_assert_eq(synth_fnv1a64(cost, 4u * (size_t)rows * (size_t)cols), 0x899ff97764be15f0u);
        ist_status st = ist_assign_solve(device, cost, rows, cols, cols, match, &got, &err);
        if (isinf(want)) {
            cr_assert_eq(st, IST_E_ARGUMENT, "case %d should be impossible", n);
            continue;
        }
        cr_assert_eq(st, IST_OK, "case %d: %s", n, err.text);
        int pairs = rows < cols ? rows : cols;
        /* costs are multiples of 2^-50 of the largest (2^-47 with forbidden pairs among many rows) */
        double slack = pairs * 0x1p-47 * most + 1e-15 * fabs(want);
        cr_assert_float_eq(got, want, slack, "case %d, %d x %d, kind %d: total %.17g, SciPy's is %.17g", n, rows, cols,
                           c[2], got, want);
        cr_assert_float_eq(total_of("case", cost, rows, cols, cols, match, pairs), got, 1e-12 * fabs(got));
    }
    free(cost);
    free(cases);
    ist_device_close(&device);
    ist_weights_close(&golden);
}

Test(op_assign, public_call) {
    ist_device *device = open_device();
    ist_error err;
    float cost[] = {3, 1, 99, 2, 2, 99, 99, 99}; /* 2 x 2 in rows of 3 */
    int match[4];
    double total = -1;
    cr_assert_eq(ist_assign_solve(device, cost, 2, 2, 3, match, &total, &err), IST_OK);
    cr_assert(match[0] == 1 && match[1] == 0 && total == 3);
    cr_assert_eq(ist_assign_solve(device, cost, 0, 5, 5, match, &total, &err), IST_OK);
    cr_assert_eq(total, 0);
    cr_assert_eq(ist_assign_solve(device, cost, 3, 0, 1, match, &total, &err), IST_OK);
    cr_assert(match[0] == -1 && match[2] == -1);
    float zeros[12] = {0}, tiny[4] = {1e-42f, 3e-42f, 2e-42f, 1e-42f}, huge[4] = {3e38f, -3e38f, -3e38f, 3e38f};
    cr_assert_eq(ist_assign_solve(device, zeros, 4, 3, 3, match, &total, &err), IST_OK);
    cr_assert(match[0] == 0 && match[1] == 1 && match[2] == 2 && match[3] == -1);
    cr_assert_eq(ist_assign_solve(device, tiny, 2, 2, 2, match, NULL, &err), IST_OK);
    cr_assert(match[0] == 0 && match[1] == 1);
    cr_assert_eq(ist_assign_solve(device, huge, 2, 2, 2, match, &total, &err), IST_OK);
    cr_assert(match[0] == 1 && match[1] == 0);
    cost[1] = NAN;
    cr_assert_eq(ist_assign_solve(device, cost, 2, 2, 3, match, &total, &err), IST_E_ARGUMENT);
    cr_assert_str_eq(err.text, "assign: the cost of row 0, column 1 is not a number");
    cost[1] = -INFINITY;
    cr_assert_eq(ist_assign_solve(device, cost, 2, 2, 3, match, &total, &err), IST_E_ARGUMENT);
    cost[0] = cost[1] = INFINITY;
    cr_assert_eq(ist_assign_solve(device, cost, 2, 2, 3, match, &total, &err), IST_E_ARGUMENT);
    cr_assert_str_eq(err.text, "assign: forbidden pairs leave no complete assignment of 2 x 2");
    cr_assert_eq(ist_assign_solve(device, cost, 1, 4097, 4097, match, &total, &err), IST_E_ARGUMENT);
    ist_device_close(&device);
}

/* Larger than anything a frame needs, checked by its dual: row and column noise with a known best. */
Test(op_assign, large) {
    if (optest_small()) return;
    enum { N = 700, M = 900 };
    ist_device *device = open_device();
    ist_error err;
    uint64_t base = synth_base("large", 1);
    float *cost = malloc(sizeof *cost * N * M);
    int *match = malloc(sizeof *match * N), *want = malloc(sizeof *want * N);
    for (int i = 0; i < N * M; i++) cost[i] = (float)synth_draw(base, (uint64_t)i) * 0x1p-24f;
    double total, best;
    cr_assert(ref_assign(cost, N, M, M, want, &best));
    cr_assert_eq(ist_assign_solve(device, cost, N, M, M, match, &total, &err), IST_OK, "%s", err.text);
    cr_assert_float_eq(total, best, 1e-9, "%.15g, not %.15g", total, best);
    total_of("large", cost, N, M, M, match, N);
    free(cost), free(match), free(want);
    ist_device_close(&device);
}
