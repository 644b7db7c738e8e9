/* See epilogue.h. */
#include "variants/epilogue.h"

static bool addend_fits(const ist_plan *p, ist_tensor a, ist_tensor y, int shrink) {
    if (!ist_has(a)) return true;
    bool elem = a.elem == IST_ELEM_T || (a.elem == IST_ELEM_F32 && !ist_plan_half(p));
    return elem && (a.n == 1 || a.n == y.n) && a.h * shrink == y.h && a.w * shrink == y.w && a.c == y.c;
}

bool ist_epilogue_check(ist_plan *p, const ist_epilogue *e, ist_tensor y, const char *label) {
    if (addend_fits(p, e->add_before, y, e->up2 ? 2 : 1) && addend_fits(p, e->add_after, y, 1)) return true;
    ist_tensor a = addend_fits(p, e->add_after, y, 1) ? e->add_before : e->add_after;
    ist_plan_fail(p, IST_E_ARGUMENT, "%s: addend [%d,%d,%d,%d] (element type %d%s) to a result [%d,%d,%d,%d]", label,
                  a.n, a.h, a.w, a.c, a.elem, e->up2 ? ", upsampled" : "", y.n, y.h, y.w, y.c);
    return false;
}

static int addend_flags(ist_tensor a, ist_tensor y, int present, int one) {
    if (!ist_has(a)) return 0;
    return present | (a.n == 1 && y.n > 1 ? one : 0);
}

ist_epilogue_args ist_epilogue_args_of(const ist_epilogue *e, ist_tensor y) {
    int flags = addend_flags(e->add_before, y, IST_EPI_BEFORE, IST_EPI_BEFORE_ONE) |
                addend_flags(e->add_after, y, IST_EPI_AFTER, IST_EPI_AFTER_ONE);
    if (ist_has(e->add_before) && e->up2) flags |= IST_EPI_BEFORE_UP2;
    if (e->has_lab) flags |= IST_EPI_LAB;
    return (ist_epilogue_args){.act = (int)e->act,
                               .flags = flags,
                               .before_ld = e->add_before.ld,
                               .before_c0 = e->add_before.c0,
                               .after_ld = e->add_after.ld,
                               .after_c0 = e->add_after.c0,
                               .lab_scale = e->lab_scale,
                               .lab_bias = e->lab_bias};
}
