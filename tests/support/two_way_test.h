/* What the tests of attention between tokens and an image share: the kernels that the table has for it on the plan's
 * device, and references. */
#ifndef IST_TESTS_TWO_WAY_TEST_H
#define IST_TESTS_TWO_WAY_TEST_H

#include "variants/nvidia/tokens.h"
#include "variants/variant.h"
#include "support/optest.h"

/* Kernels of the first variant with absorbed projections that the device runs. */
const ist_absorbed_kernels *absorbed_kernels(const ist_plan *p);
/* Whether the device runs the variant of that name of SAM's two-way transformer. */
bool two_way_runs(const ist_plan *p, const char *variant);
/* On matrix instructions, rows of channels in half take the place of columns and panels; on those of warpgroups channels
 * lie in another order. */
static inline bool two_way_halves(const ist_plan *p, int tokens, int k) {
    return two_way_runs(p, "mma_apart") && ist_two_way_matrix(tokens, k);
}
static inline bool two_way_groups(const ist_plan *p, int k) {
    return ist_two_way_groups(two_way_runs(p, "wgmma_apart"), k);
}

/* Items of x by map or, without, their own, plus shift [channels] or NULL: what the reference sees of n prompts. */
ref_map picked_items(optest *t, ref_map x, const int *map, const float *shift, int n);

/* A layer on tokens that passes `hidden` channels on and normalises them with zeros behind; what it makes of x. */
ist_token_job passing_layer(optest *t, int hidden);
ref_map passed_layer(optest *t, ref_map x, const ist_token_job *l);

#endif
