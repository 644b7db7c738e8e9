/* A variant of the test's choosing for one kind of node or span, in place of what a tuning record may say: so that a test
 * reaches those that the device would not choose. It must take the node, else the choice stays the plan's. A test that
 * includes this is linked with --wrap=ist_tuned_choice (cmake/tests.cmake). */
#ifndef IST_TESTS_CHOSEN_VARIANT_H
#define IST_TESTS_CHOSEN_VARIANT_H

#include "variants/tune.h"

static const ist_variant *chosen_variant; /* NULL: none */

ist_variant_choice __real_ist_tuned_choice(ist_plan *p, ist_node_kind kind, const void *node);
ist_variant_choice __wrap_ist_tuned_choice(ist_plan *p, ist_node_kind kind, const void *node);
ist_variant_choice __wrap_ist_tuned_choice(ist_plan *p, ist_node_kind kind, const void *node) {
    const ist_variant *v = chosen_variant;
    if (v && v->kind == kind && ist_variant_takes(p, v, node)) return (ist_variant_choice){v, 1};
    return __real_ist_tuned_choice(p, kind, node);
}

#endif
