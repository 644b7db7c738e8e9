/* See convtest.h. */
#include "support/convtest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

convtest_extras convtest_combination(int bits) {
    return (convtest_extras){.act = (ist_act)(bits % 5),
                             .lab = bits & 1,
                             .before = bits & 2,
                             .up2 = bits & 4,
                             .before_one = bits & 8,
                             .after = bits & 16,
                             .after_one = bits & 32,
                             .slices = bits & 64,
                             .no_bias = bits % 7 == 0};
}

static ref_map addend(optest *t, ref_map y, bool one, int shrink) {
    return optest_random(t, one ? 1 : y.n, y.h / shrink, y.w / shrink, y.c);
}

void convtest_epilogue(optest *t, const convtest_extras *x, ref_map y, ist_epilogue *e, ref_epilogue *r) {
    *e = (ist_epilogue){.act = x->act, .has_lab = x->lab, .up2 = x->up2};
    *r = (ref_epilogue){.act = x->act, .has_lab = x->lab, .up2 = x->up2};
    if (x->lab) {
        e->lab_scale = r->lab_scale = optest_uniform(t, -2, 2);
        e->lab_bias = r->lab_bias = optest_uniform(t, -1, 1);
    }
    if (x->before) {
        r->add_before = addend(t, y, x->before_one, x->up2 ? 2 : 1);
        e->add_before = optest_in(t, r->add_before, IST_ELEM_T, x->slices);
    }
    if (x->after) {
        r->add_after = addend(t, y, x->after_one, 1);
        e->add_after = optest_in(t, r->add_after, IST_ELEM_T, x->slices);
    }
}

const ist_variant *convtest_next(ist_node_kind kind, bool rounds, int *index) {
    int count;
    const ist_variant *all = ist_variants_of(kind, &count), *found = NULL;
    optest t;
    optest_begin(&t, "capabilities", 0);
    ist_plan_reduced(t.plan, rounds);
    while (!found && *index < count) {
        const ist_variant *v = &all[(*index)++];
        if (ist_variant_runs(t.plan, v)) found = v;
    }
    optest_drop(&t);
    return found;
}

void convtest_needs(ist_machine machine) {
    for (int i = 0; i < ist_variant_count(); i++)
        if (ist_variant_at(i)->machine == machine) return;
    cr_skip_test("built without %s", ist_machine_name(machine));
}

const ist_variant *convtest_variant(const char *name) {
    const ist_variant *v = ist_variant_named(IST_NODE_CONV, name);
    cr_assert_not_null(v, "no variant %s", name);
    return v;
}

void convtest_emit(optest *t, const ist_variant *v, int way, ist_conv *q) {
    cr_assert(ist_variant_runs(t->plan, v), "%s: %s does not run here", t->name, v->name);
    cr_assert_eq(ist_kind_of(v->kind)->infer(q, &t->err), IST_OK, "%s: %s", t->name, t->err.text);
    v->family->emit(t->plan, v, q, way);
}

void convtest_check(const ist_variant *v, const convtest_shape *s, int items, unsigned salt) {
    optest t;
    char name[128];
    snprintf(name, sizeof name, "%s %dx%dx%dx%d -> %d, %dx%d stride %d, case %u", v->name, s->n, s->h, s->w, s->cin,
             s->cout, s->k, s->k, s->stride, salt);
    optest_begin(&t, name, salt);
    int oh = (s->h + 2 * s->pad - s->k) / s->stride + 1, ow = (s->w + 2 * s->pad - s->k) / s->stride + 1;
    ref_map in = optest_random(&t, s->n, s->h, s->w, s->cin), want = optest_zeros(&t, s->n, oh, ow, s->cout);
    size_t count = (size_t)s->cout * (size_t)s->cin * (size_t)s->k * (size_t)s->k;
    float *w = optest_values(&t, count, -1, 1), *b = s->x.no_bias ? NULL : optest_values(&t, (size_t)s->cout, -1, 1);
    for (size_t i = 0; i < count; i++) w[i] = rintf(w[i] * 1024) / 1024; /* exact in half */
    ist_conv_opts o = {.stride = s->stride, .top = s->pad, .left = s->pad, .bottom = s->pad, .right = s->pad};
    ref_epilogue r;
    convtest_epilogue(&t, &s->x, want, &o.epi, &r);
    o.into = optest_out(&t, s->n, oh, ow, s->cout, s->x.y32 ? IST_ELEM_F32 : IST_ELEM_T, s->x.slices);
    ist_tensor xin = optest_in(&t, in, IST_ELEM_T, s->x.slices);
    if (items >= 0) ist_plan_limit(t.plan, optest_ints(&t, &items, 1));
    ist_conv q = {.label = "test",
                  .x = xin,
                  .y = o.into,
                  .filter = {.out = s->cout, .in = s->cin, .kh = s->k, .kw = s->k, .w = w, .b = b},
                  .o = o};
    ist_emit_by(t.plan, v, s->splits, &q);
    optest_run(&t);
    if (s->splits > 1) cr_assert_eq(ist_plan_replay(t.plan, &t.err), IST_OK, "%s", t.err.text); /* counters are back */
    ref_conv(in, w, b, (ref_window){s->k, s->k, s->stride, s->pad, s->pad}, &r, want);
    double tol = optest_tolerance(&t, s->cin * s->k * s->k);
    optest_check(&t, "result", q.y, want, tol, tol * 2, items);
    optest_end(&t);
}
