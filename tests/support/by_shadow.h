/* Lowering where all values of constants are a shadow's (core/plan.h), and the plan itself makes none: what threads share
 * out, at its extreme, and the same each time. */
#ifndef IST_TESTS_BY_SHADOW_H
#define IST_TESTS_BY_SHADOW_H

#include "variants/lower.h"

#include <criterion/criterion.h>

/* `inputs`: all tensors that the plan has so far, made by ist_plan_input. Has ended the shadow. */
static inline void lower_by_shadow(ist_plan *plan, const ist_graph *g, const ist_tensor *inputs, int count) {
    enum { MOST = 8 };
    ist_error err = {0};
    ist_plan *shadow = NULL;
    ist_lowering *lowering = NULL;
    ist_tensor own[MOST];
    cr_assert(count <= MOST);
    cr_assert_eq(ist_plan_shadow(plan, &shadow, &err), IST_OK, "%s", err.text);
    for (int i = 0; i < count; i++) {
        ist_tensor t = inputs[i];
        own[i] = ist_plan_input(shadow, t.n, t.h, t.w, t.c, t.elem);
        cr_assert_eq(own[i].buffer, t.buffer);
    }
    ist_lower(shadow, g, own, &lowering);
    ist_lowering_close(&lowering);
    cr_assert_eq(ist_plan_status(shadow), IST_OK, "%s", ist_plan_error(shadow)->text);
    ist_lower(plan, g, inputs, &lowering);
    cr_expect(!ist_plan_has_values(plan));
    ist_lowering_close(&lowering);
    ist_plan_shadow_end(plan, &shadow);
}

#endif
