/* See optest.h. */
#include "support/optest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr)                                                                                                       \
    do {                                                                                                               \
        if ((expr) != IST_OK) cr_assert_fail("%s, seed %llu: %s", t->name, (unsigned long long)t->seed, t->err.text);  \
    } while (0)

static bool flag(const char *name) {
    const char *v = getenv(name);
    return v && *v && strcmp(v, "0") != 0;
}

bool optest_small(void) {
    return flag("ISTHMUS_SMALL");
}

bool optest_quick(void) {
    return flag("ISTHMUS_QUICK");
}

bool optest_half(void) {
    return flag("ISTHMUS_HALF");
}

void optest_begin(optest *t, const char *name, unsigned salt) {
    const char *seed = getenv("ISTHMUS_SEED");
    memset(t, 0, sizeof *t);
    t->name = name;
    t->seed = seed && *seed ? strtoull(seed, NULL, 10) : 1;
    t->state = t->seed * 0x9e3779b97f4a7c15u + salt;
    t->half = optest_half();
    if (flag("ISTHMUS_VERBOSE")) fprintf(stderr, "%s, seed %llu\n", name, (unsigned long long)t->seed);
    static ist_device *shared; /* one per test process: opening probes the device each time */
    if (!shared) {
        ist_device_options device = {0};
        OK(ist_device_open(&device, &shared, &t->err));
    }
    t->device = shared;
    /* apart: operators say how many launches they make; series have a test of their own, op_series */
    ist_plan_options plan = {.guard_bytes = 256, .half = t->half, .bf16 = flag("ISTHMUS_BF16"), .apart = true};
    OK(ist_plan_begin(t->device, &plan, &t->plan, &t->err));
}

bool optest_little_local(void) {
    enum { LEAST = 48 << 10 };
    optest t;
    optest_begin(&t, "local memory", 1);
    bool little = ist_device_local_bytes(t.device) < LEAST;
    optest_drop(&t);
    return little;
}

void optest_drop(optest *t) {
    ist_plan_close(&t->plan);
    for (int i = 0; i < t->owned_count; i++) free(t->owned[i]);
    t->owned_count = 0;
}

int optest_units(void) {
    optest t;
    optest_begin(&t, "units", 0);
    const int units = ist_plan_units(t.plan);
    optest_drop(&t);
    return units;
}

void optest_end(optest *t) {
    OK(ist_plan_check_guards(t->plan, &t->err));
    optest_drop(t);
}

uint32_t optest_u32(optest *t) {
    uint64_t z = t->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

int optest_int(optest *t, int lo, int hi) {
    return lo + (int)(optest_u32(t) % (uint32_t)(hi - lo + 1));
}

float optest_uniform(optest *t, float lo, float hi) {
    return lo + (hi - lo) * ((float)(optest_u32(t) >> 8) / 16777215.0f);
}

void *optest_alloc(optest *t, size_t bytes) {
    cr_assert_lt(t->owned_count, (int)(sizeof t->owned / sizeof t->owned[0]), "%s: too many maps in one case", t->name);
    void *p = calloc(1, bytes ? bytes : 1);
    cr_assert_not_null(p, "out of memory: %zu bytes", bytes);
    t->owned[t->owned_count++] = p;
    return p;
}

ref_map optest_zeros(optest *t, int n, int h, int w, int c) {
    ref_map m = {n, h, w, c, NULL};
    m.v = optest_alloc(t, ref_size(m) * sizeof *m.v);
    return m;
}

/* Multiples of 1/1024 in [-1, 1] are exact in half. */
static float grid_value(optest *t) {
    return (float)optest_int(t, -1024, 1024) / 1024.0f;
}

ref_map optest_random(optest *t, int n, int h, int w, int c) {
    ref_map m = optest_zeros(t, n, h, w, c);
    for (size_t i = 0; i < ref_size(m); i++) m.v[i] = grid_value(t);
    return m;
}

float *optest_values(optest *t, size_t count, float lo, float hi) {
    float *v = optest_alloc(t, count * sizeof *v);
    for (size_t i = 0; i < count; i++) v[i] = optest_uniform(t, lo, hi);
    return v;
}

static optest_tensor *add_tensor(optest *t, int n, int h, int w, int c, ist_elem elem, bool slice) {
    cr_assert_lt(t->tensor_count, OPTEST_MAX_TENSORS, "%s: too many tensors in one case", t->name);
    optest_tensor *e = &t->tensors[t->tensor_count++];
    int c0 = slice ? 2 * optest_int(t, 0, 4) + 1 : 0, after = slice ? optest_int(t, 0, 5) : 0;
    e->whole = ist_plan_input(t->plan, n, h, w, c0 + c + after, elem);
    cr_assert_eq(ist_plan_status(t->plan), IST_OK, "%s: tensor [%d,%d,%d,%d] refused", t->name, n, h, w, c);
    e->view = ist_slice(e->whole, c0, c);
    e->start = optest_random(t, n, h, w, c0 + c + after).v;
    return e;
}

ist_tensor optest_in(optest *t, ref_map m, ist_elem elem, bool slice) {
    optest_tensor *e = add_tensor(t, m.n, m.h, m.w, m.c, elem, slice);
    for (int p = 0; p < m.n * m.h * m.w; p++)
        memcpy(e->start + (size_t)p * e->view.ld + e->view.c0, m.v + (size_t)p * m.c, (size_t)m.c * sizeof *m.v);
    return e->view;
}

ist_tensor optest_out(optest *t, int n, int h, int w, int c, ist_elem elem, bool slice) {
    return add_tensor(t, n, h, w, c, elem, slice)->view;
}

ist_tensor optest_ints(optest *t, const int *values, int count) {
    optest_tensor *e = add_tensor(t, 1, 1, count, 1, IST_ELEM_I32, false);
    memcpy(e->start, values, (size_t)count * sizeof *values);
    return e->view;
}

void optest_run(optest *t) {
    OK(ist_plan_finish(t->plan, &t->err));
    for (int i = 0; i < t->tensor_count; i++) {
        const optest_tensor *e = &t->tensors[i];
        if (e->whole.elem == IST_ELEM_I32)
            OK(ist_plan_write_i32(t->plan, e->whole, (const int *)(const void *)e->start, &t->err));
        else
            OK(ist_plan_write_f32(t->plan, e->whole, e->start, &t->err));
    }
    OK(ist_plan_replay(t->plan, &t->err));
}

void optest_takes(const optest *t, const char *op) {
    bool found = !op;
    for (int i = 0; !found && i < ist_plan_describe(t->plan).launches; i++)
        found = !strcmp(ist_plan_launch_at(t->plan, i)->op, op);
    cr_expect(found, "%s: no launch of %s", t->name, op);
}

ref_map optest_read(optest *t, ist_tensor view) {
    ref_map m = optest_zeros(t, view.n, view.h, view.w, view.c);
    OK(ist_plan_read_f32(t->plan, view, m.v, &t->err));
    return m;
}

static bool near(double got, double want, double rtol, double atol) {
    if (isinf(want)) return got == want;
    return fabs(got - want) <= atol + rtol * fabs(want);
}

void optest_close(optest *t, const char *what, ref_map got, ref_map want, double rtol, double atol) {
    cr_assert(got.n == want.n && got.h == want.h && got.w == want.w && got.c == want.c,
              "%s, %s: got [%d,%d,%d,%d], want [%d,%d,%d,%d]", t->name, what, got.n, got.h, got.w, got.c, want.n,
              want.h, want.w, want.c);
    size_t bad = 0, first = 0, size = ref_size(want);
    double worst = 0;
    for (size_t i = 0; i < size; i++) {
        if (near(got.v[i], want.v[i], rtol, atol)) continue;
        if (!bad++) first = i;
        double d = fabs((double)got.v[i] - want.v[i]);
        if (d > worst) worst = d;
    }
    if (!bad) return;
    int ch = (int)(first % want.c), x = (int)(first / want.c % want.w), y = (int)(first / want.c / want.w % want.h);
    cr_assert_fail("%s, %s [%d,%d,%d,%d], seed %llu: %zu of %zu wrong, worst by %g; first at n %d y %d x %d ch %d: "
                   "got %.9g, want %.9g (rtol %g, atol %g)",
                   t->name, what, want.n, want.h, want.w, want.c, (unsigned long long)t->seed, bad, size, worst,
                   (int)(first / want.c / want.w / want.h), y, x, ch, got.v[first], want.v[first], rtol, atol);
}

void optest_check(optest *t, const char *what, ist_tensor view, ref_map want, double rtol, double atol, int items) {
    optest_tensor *e = NULL;
    for (int i = 0; i < t->tensor_count; i++)
        if (t->tensors[i].whole.buffer == view.buffer) e = &t->tensors[i];
    int good = items < 0 || items > want.n ? want.n : items;
    ref_map got = optest_read(t, view), a = got, b = want;
    a.n = b.n = good;
    if (good) optest_close(t, what, a, b, rtol, atol);
    if (!e) return;
    ref_map whole = optest_read(t, e->whole);
    for (int p = 0; p < whole.n * whole.h * whole.w; p++)
        for (int c = 0; c < whole.c; c++) {
            bool written = c >= view.c0 && c < view.c0 + view.c && p < good * view.h * view.w;
            size_t i = (size_t)p * whole.c + c;
            if (!written && whole.v[i] != e->start[i])
                cr_assert_fail(
                    "%s, %s, seed %llu: pixel %d channel %d is outside the result [%d..%d) of %d items but was "
                    "changed from %g to %g",
                    t->name, what, (unsigned long long)t->seed, p, c, view.c0, view.c0 + view.c, good, e->start[i],
                    whole.v[i]);
        }
}

double optest_tolerance(const optest *t, int terms) {
    return t->half ? 2e-3 : 1e-6 + 5e-8 * terms;
}
