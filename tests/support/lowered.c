/* See lowered.h. */
#include "support/lowered.h"

#include <criterion/criterion.h>
#include <string.h>

void lowered_begin(lowered *l) {
    ist_error err = {0};
    *l = (lowered){0};
    cr_assert_eq(ist_graph_open(&l->graph, &err), IST_OK, "%s", err.text);
}

ist_tensor lowered_input(lowered *l, ist_tensor at) {
    cr_assert_lt(l->inputs, LOWERED_INPUTS);
    l->at[l->inputs++] = at;
    return ist_graph_input(l->graph, at.n, at.h, at.w, at.c, at.elem);
}

void lowered_add(lowered *l, ist_node_kind kind, void *node) {
    ist_graph_add(l->graph, kind, node);
    cr_assert_not(ist_graph_failed(l->graph), "%s", l->graph->error.text);
}

void lowered_run(lowered *l, optest *t) {
    ist_lower(t->plan, l->graph, l->at, &l->lowering);
    cr_assert_eq(ist_plan_status(t->plan), IST_OK, "%s", ist_plan_error(t->plan)->text);
}

ist_tensor lowered_place(const lowered *l, ist_tensor value) {
    ist_tensor at = ist_lowered(l->lowering, value);
    cr_assert(ist_has(at), "nothing made the value");
    return at;
}

void lowered_end(lowered *l) {
    ist_lowering_close(&l->lowering);
    ist_graph_close(&l->graph);
}

void lowered_put_channels(ref_map from, ref_map to, int c0) {
    for (int i = 0; i < from.n * from.h * from.w; i++)
        memcpy(to.v + (size_t)i * (size_t)to.c + c0, from.v + (size_t)i * (size_t)from.c,
               (size_t)from.c * sizeof(float));
}

void lowered_check_items(optest *t, const char *what, ist_tensor place, ref_map want, double rtol, double atol,
                         int items) {
    ref_map before = optest_random(t, want.n, want.h, want.w, want.c);
    cr_assert_eq(ist_plan_write_f32(t->plan, place, before.v, &t->err), IST_OK, "%s", t->err.text);
    cr_assert_eq(ist_plan_replay(t->plan, &t->err), IST_OK, "%s", t->err.text);
    ref_map got = optest_read(t, place);
    const size_t good = ref_size(want) / (size_t)want.n * (size_t)items;
    for (size_t i = good; i < ref_size(got); i++)
        cr_assert_eq(got.v[i], before.v[i], "%s: value %zu, of an item beyond the %d, is %g and was %g", what, i, items,
                     got.v[i], before.v[i]);
    got.n = want.n = items;
    if (items) optest_close(t, what, got, want, rtol, atol);
}
