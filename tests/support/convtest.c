/* See convtest.h. */
#include "support/convtest.h"

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
