/* See lowered.h. */
#include "support/lowered.h"

#include <criterion/criterion.h>

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
