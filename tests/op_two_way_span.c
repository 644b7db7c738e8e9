/* SAM's two-way transformer as a span: each of its variants against the scalar reference. */
#include "support/chosen_variant.h"
#include "support/claimed_matrix.h"
#include "support/hidden_caps.h"
#include "support/sam_span.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Whether a kernel with `part` in its name was. */
static bool launched(const optest *t, const char *part) {
    bool found = false;
    for (int i = 0; !found && i < ist_plan_describe(t->plan).launches; i++)
        found = strstr(ist_plan_launch_at(t->plan, i)->op, part);
    return found;
}

static void span_case(const sam_shape *shape, const char *variant, const char *kernel) {
    optest t;
    sam_span s;
    optest_begin(&t, variant, (unsigned)(shape->grid + 10 * shape->tokens + 100 * shape->prompts));
    chosen_variant = ist_variant_named(IST_SPAN_TWO_WAY, variant);
    if (!chosen_variant || !ist_variant_runs(t.plan, chosen_variant)) {
        optest_drop(&t);
        cr_skip_test("%s cannot run here", variant);
    }
    sam_begin(&t, &s, *shape, NULL);
    sam_add_two_way(&s);
    ist_graph_output(s.graph.graph, s.tokens_out);
    ist_graph_output(s.graph.graph, s.image_out);
    lowered_run(&s.graph, &t);
    ist_tensor tokens = lowered_place(&s.graph, s.tokens_out), image = lowered_place(&s.graph, s.image_out);
    optest_run(&t);
    if (kernel) {
        sam_made_by(&t, kernel, variant);
    } else {
        cr_expect(!launched(&t, "two_way") && !launched(&t, "token_"), "a variant took the span as one");
    }
    ref_map want_tokens, want_image, got_tokens = optest_read(&t, tokens), got_image = optest_read(&t, image);
    sam_reference(&t, &s, &want_tokens, &want_image);
    got_tokens.n = got_image.n = shape->count;
    for (int n = 0; n < shape->count; n++)
        for (int i = s.counts[n]; i < shape->tokens; i++)
            memset(ref_at(got_tokens, n, 0, i), 0, sizeof(float) * (size_t)shape->dim);
    optest_close(&t, "tokens", got_tokens, want_tokens, 0, t.half ? 4e-2 : 1e-4);
    optest_close(&t, "image", got_image, want_image, 0, t.half ? 4e-2 : 1e-4);
    lowered_end(&s.graph);
    optest_end(&t);
}

static void shapes(const char *variant, const char *kernel) {
    static const sam_shape all[] = {{1, 1, 1, 5, 7, 64, 32, 96, false},      {4, 3, 2, 6, 2, 64, 32, 64, true},
                                    {3, 3, 2, 9, 7, 64, 64, 128, false},     {2, 2, 2, 5, 2, 128, 32, 40, true},
                                    {4, 4, 2, 7, 11, 64, 32, 64, false},     {4, 3, 2, 5, 7, 64, 32, 64, false, true},
                                    {3, 3, 1, 6, 12, 64, 32, 40, true, true}};
    int count = optest_small() ? 1 : (int)(sizeof all / sizeof *all);
    for (int i = 0; i < count; i++) span_case(&all[i], variant, kernel);
}

Test(two_way_span, nodes) {
    shapes("nodes", NULL);
}

Test(two_way_span, absorbed_64) {
    hide(0);
    shapes("absorbed_64", "portable/two_way");
}

Test(two_way_span, absorbed_256) {
    hide(0);
    shapes("absorbed_256", "portable/two_way");
}

Test(two_way_span, absorbed_cpu) {
    shapes("absorbed_cpu", "cpu/two_way");
}

/* Matrix instructions take the network's own widths only. */
static void matrix_shapes(const char *variant, const char *kernel) {
    static const sam_shape all[] = {{1, 1, 1, 5, 7, 256, 128, 128, false},
                                    {4, 3, 2, 6, 2, 256, 128, 256, true},
                                    {3, 3, 2, 9, 7, 256, 128, 128, false},
                                    {3, 3, 2, 9, 8, 256, 128, 128, false, true},
                                    {4, 3, 2, 6, 7, 256, 128, 128, true, true}};
    for (int i = 0; i < 5; i++) span_case(&all[i], variant, kernel);
}

/* For devices that are no CPU: the image's keys are made in the launch of the tokens' attention. */
Test(two_way_span, mma) {
    without = IST_CAP_CPU | IST_CAP_VEC16;
    if (claim_matrix_warps()) matrix_shapes("mma", "nvidia/two_way_mma");
}

Test(two_way_span, wgmma) {
    without = IST_CAP_CPU | IST_CAP_VEC16;
    if (claim_matrix_groups()) matrix_shapes("wgmma", "nvidia/two_way_wgmma");
}

Test(two_way_span, mma_apart) {
    if (claim_matrix_warps()) matrix_shapes("mma_apart", "nvidia/two_way_mma");
}

Test(two_way_span, wgmma_apart) {
    if (claim_matrix_groups()) matrix_shapes("wgmma_apart", "nvidia/two_way_wgmma");
}
