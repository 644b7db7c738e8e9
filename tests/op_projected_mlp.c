/* A linear layer with a residual, and the convolution, norm and MLP behind it, as one launch, against the scalar
 * definitions; by emulation where there are no matrix instructions (nvidia/ptx). */
#include "support/claimed_matrix.h"
#include "support/lowered.h"

#include <criterion/criterion.h>
#include <string.h>

/* What makes it one that no kernel takes: lines of other than 64 pixels, an activation, no residual, something else
 * that reads what the linear layer makes. */
typedef enum twist { NO_TWIST, OTHER_LINES, ACTIVATION, NO_RESIDUAL, INNER_RESULT, TWISTS } twist;

typedef struct shape {
    int n, h, c, hidden;
    bool bias, sliced;
    int items; /* -1: all */
    twist odd;
} shape;

static ist_filter filter(optest *t, int out, int in, int k, float most, bool bias) {
    return (ist_filter){out,
                        in,
                        k,
                        k,
                        optest_values(t, (size_t)(out * in * k * k), -most, most),
                        bias ? optest_values(t, (size_t)out, -0.5f, 0.5f) : NULL};
}

/* The layers; filters are rounded where lowering rounds them. */
typedef struct layers {
    ist_filter project, spread, fc1, fc2;
    ist_affine norm;
} layers;

static layers layers_of(optest *t, const shape *s) {
    const int c = s->c;
    float *norm = optest_values(t, (size_t)(2 * c), 0.5f, 1.5f);
    return (layers){.project = filter(t, c, c, 1, 0.15f, s->bias),
                    .spread = filter(t, c, 1, 3, 0.4f, s->bias),
                    .fc1 = filter(t, s->hidden, c, 1, 0.15f, s->bias),
                    .fc2 = filter(t, c, s->hidden, 1, 0.1f, s->bias),
                    .norm = {norm, norm + c, c, NULL}};
}

static ref_map wanted(optest *t, const shape *s, ref_map x, ref_map residual, const layers *l) {
    const ref_window point = {1, 1, 1, 0, 0};
    ref_map made = optest_zeros(t, x.n, x.h, x.w, s->c), z = optest_zeros(t, x.n, x.h, x.w, s->c), none = {0};
    ref_map u = optest_zeros(t, x.n, x.h, x.w, s->c), h = optest_zeros(t, x.n, x.h, x.w, s->hidden);
    ref_map y = optest_zeros(t, x.n, x.h, x.w, s->c);
    ref_epilogue front = {.act = s->odd == ACTIVATION ? (int)IST_ACT_RELU : 0}, gelu = {.act = (int)IST_ACT_GELU};
    if (s->odd != NO_RESIDUAL) front.add_before = residual;
    ref_conv(x, l->project.w, l->project.b, point, &front, made);
    ref_dwconv(made, l->spread.w, l->spread.b, (ref_window){3, 3, 1, 1, 1}, &(ref_epilogue){0}, z);
    ref_layernorm(z, none, 0, l->norm.gamma, l->norm.beta, 1e-5f, 0, u);
    ref_conv(u, l->fc1.w, l->fc1.b, point, &gelu, h);
    ref_conv(h, l->fc2.w, l->fc2.b, point, &(ref_epilogue){.add_before = z}, y);
    return y;
}

static ist_tensor add_span(lowered *g, const shape *s, ist_tensor x, ist_tensor residual, const layers *l) {
    ist_graph_begin(g->graph, IST_SPAN_PROJECTED_MLP, "block");
    ist_conv project = {.label = "project", .x = x, .filter = l->project};
    if (s->odd != NO_RESIDUAL) project.o.epi.add_before = residual;
    if (s->odd == ACTIVATION) project.o.epi.act = IST_ACT_RELU;
    lowered_add(g, IST_NODE_CONV, &project);
    ist_norm_mlp mlp = {.label = "mlp",
                        .x = project.y,
                        .spread = l->spread,
                        .norm = l->norm,
                        .eps = 1e-5f,
                        .fc1 = l->fc1,
                        .fc2 = l->fc2,
                        .act = IST_ACT_GELU};
    lowered_add(g, IST_NODE_NORM_MLP, &mlp);
    ist_graph_end(g->graph);
    if (s->odd == INNER_RESULT) ist_graph_output(g->graph, project.y);
    ist_graph_output(g->graph, mlp.y);
    return mlp.y;
}

static void check(shape s, unsigned salt) {
    optest t;
    lowered g;
    optest_begin(&t, "projected mlp", salt);
    lowered_begin(&g);
    const int w = s.odd == OTHER_LINES ? 32 : 64;
    ref_map x = optest_random(&t, s.n, s.h, w, s.c), residual = optest_random(&t, s.n, s.h, w, s.c);
    layers l = layers_of(&t, &s);
    ist_tensor from = optest_in(&t, x, IST_ELEM_T, false), add = optest_in(&t, residual, IST_ELEM_T, false);
    if (s.sliced) { /* both in one wider map */
        ref_map room = optest_random(&t, s.n, s.h, w, 2 * s.c + 16);
        lowered_put_channels(x, room, 8);
        lowered_put_channels(residual, room, 16 + s.c);
        const ist_tensor both = optest_in(&t, room, IST_ELEM_T, false);
        from = ist_slice(both, 8, s.c), add = ist_slice(both, 16 + s.c, s.c);
    }
    if (s.items >= 0) ist_graph_limit(g.graph, lowered_input(&g, optest_ints(&t, &s.items, 1)));
    ist_tensor y = add_span(&g, &s, lowered_input(&g, from), lowered_input(&g, add), &l);
    lowered_run(&g, &t);
    const ist_tensor got = lowered_place(&g, y);
    lowered_end(&g);
    optest_run(&t);
    const int launches = ist_plan_describe(t.plan).launches;
    if (s.odd == NO_TWIST) {
        cr_assert_eq(launches, 1);
        cr_assert_str_eq(ist_plan_launch_at(t.plan, 0)->op, "nvidia/norm_mlp_wgmma");
    } else {
        cr_assert_geq(launches, 2);
    }
    lowered_check_items(&t, "result", got, wanted(&t, &s, x, residual, &l), 4e-3, 2e-2, s.items >= 0 ? s.items : s.n);
    optest_end(&t);
}

/* Lines that the device has units for, `most` at the most: a launch is for maps that leave units idle. */
static int lines(int most) {
    const int units = optest_units();
    return units < most ? units : most;
}

static void claim_all(void) {
    if (!ist_variant_named(IST_SPAN_PROJECTED_MLP, "wgmma"))
        cr_skip_test("built without the variant that takes it whole");
    claim("-CPU,-SIMD16,+PTX_MMA,+PTX_WGMMA");
}
TestSuite(projected_mlp, .init = claim_all);

Test(projected_mlp, matches_its_layers) {
    check((shape){1, 1, 64, 128, true, false, -1, NO_TWIST}, 1);
    if (optest_small()) return;
    check((shape){1, lines(5), 160, 256, true, false, -1, NO_TWIST}, 2);
    check((shape){1, lines(3), 128, 128, false, true, -1, NO_TWIST}, 3);
    if (lines(12) == 12) check((shape){3, 4, 160, 640, true, true, -1, NO_TWIST}, 4);
}

/* A line of one item is not beside a line of the next. */
Test(projected_mlp, items_beyond_the_count_are_untouched) {
    if (optest_small() || lines(2) < 2) return;
    for (int items = 0; items < 2; items++)
        check((shape){2, 1, 160, 128, true, false, items, NO_TWIST}, 10 + (unsigned)items);
    check((shape){2, 1, 64, 128, false, true, -1, NO_TWIST}, 12);
}

Test(projected_mlp, others_are_several_launches) {
    if (optest_small()) return;
    for (twist odd = NO_TWIST + 1; odd < TWISTS; odd++)
        check((shape){1, odd == OTHER_LINES ? 2 : 1, 64, 128, true, false, -1, odd}, 20 + (unsigned)odd);
}
