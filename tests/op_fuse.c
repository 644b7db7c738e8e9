/* Top-down fusion against the scalar definitions of its layers, by every variant of the table. */
#include "support/claimed_matrix.h"
#include "support/each_variant.h"

#include <criterion/criterion.h>
#include <math.h>

/* project: outputs of the side's own layer in front, 0: there is none. */
typedef struct shape {
    int n, h, w, top, side, project, out;
} shape;

static ist_filter filter(optest *t, int out, int in) {
    const float most = in > 4 ? 2.0f / sqrtf((float)in) : 1.0f;
    return (ist_filter){
        out, in, 1, 1, optest_values(t, (size_t)out * in, -most, most), optest_values(t, (size_t)out, -0.5f, 0.5f)};
}

static ref_map wanted(optest *t, ref_map top, ref_map side, const ist_fuse *q) {
    const ref_window point = {1, 1, 1, 0, 0};
    ref_map from = side, both, y = optest_zeros(t, side.n, side.h, side.w, q->filter.out);
    if (q->side_filter.out) {
        from = optest_zeros(t, side.n, side.h, side.w, q->side_filter.out);
        ref_conv(side, q->side_filter.w, q->side_filter.b, point, &(ref_epilogue){0}, from);
    }
    both = optest_zeros(t, side.n, side.h, side.w, top.c + from.c);
    for (int n = 0; n < side.n; n++)
        for (int i = 0; i < side.h * side.w; i++) {
            const int line = i / side.w, column = i % side.w;
            float *to = ref_at(both, n, line, column);
            memcpy(to, ref_at(top, n, line / 2, column / 2), (size_t)top.c * sizeof *to);
            memcpy(to + top.c, ref_at(from, n, line, column), (size_t)from.c * sizeof *to);
        }
    ref_conv(both, q->filter.w, q->filter.b, point, &(ref_epilogue){.act = (int)IST_ACT_SILU}, y);
    return y;
}

/* bits: 1 slices, 2 a limit of one item, of 4 the salt. */
static bool fuse_case(each_way way, const void *what, unsigned bits) {
    const shape s = *(const shape *)what;
    const int items = bits & 2 ? 1 : -1, from = s.project ? s.project : s.side;
    optest t;
    optest_begin(&t, "fuse", bits / 4);
    ref_map top = optest_random(&t, s.n, s.h / 2, s.w / 2, s.top), side = optest_random(&t, s.n, s.h, s.w, s.side);
    ist_fuse q = {.label = "fuse", .side_label = "project", .tap = "side", .filter = filter(&t, s.out, s.top + from)};
    if (s.project) q.side_filter = filter(&t, s.project, s.side);
    q.top = optest_in(&t, top, IST_ELEM_T, false);
    q.side = optest_in(&t, side, IST_ELEM_T, false);
    q.y = optest_out(&t, s.n, s.h, s.w, s.out, IST_ELEM_T, bits & 1);
    if (items >= 0) ist_plan_limit(t.plan, optest_ints(&t, &items, 1));
    if (!each_emits(&t, way, &q)) {
        optest_drop(&t);
        return false;
    }
    optest_run(&t);
    each_launched(&t, way);
    const double tol = optest_tolerance(&t, 2 * (s.top + s.side));
    optest_check(&t, way.v->name, q.y, wanted(&t, top, side, &q), tol, tol * 2, items);
    optest_end(&t);
    return true;
}

/* With the side as it is, with its layer in one with the filter (no more channels than outputs), and in front. */
Test(fuse, matches_its_layers) {
    static const shape all[] = {{1, 6, 10, 20, 12, 0, 24}, {2, 8, 4, 16, 24, 16, 32}, {1, 4, 6, 8, 40, 8, 16}};
    for (unsigned i = 0; i < (optest_small() ? 1 : 3); i++)
        each_variant(IST_NODE_FUSE, 0, fuse_case, &all[i], i * 4, true);
    each_had_its_case(IST_NODE_FUSE, 0);
}

/* By emulation where there are none (nvidia/ptx): one and several steps of either map, channels that are no whole
 * step, pixels beyond the last tile. */
Test(fuse, on_matrix_instructions) {
    static const shape all[] = {{2, 10, 14, 64, 72, 0, 40}, {1, 6, 6, 128, 64, 128, 128}, {3, 4, 6, 192, 136, 64, 72}};
    each_needs(IST_NODE_FUSE, IST_CAP_PTX_WGMMA);
    claim("-CPU,-SIMD16,+PTX_MMA,+PTX_WGMMA");
    for (unsigned i = 0; i < (optest_small() ? 0 : 3); i++)
        each_variant(IST_NODE_FUSE, IST_CAP_PTX_WGMMA, fuse_case, &all[i], i * 4 + (i == 0 ? 2 : 1), false);
    if (!optest_small()) each_had_its_case(IST_NODE_FUSE, IST_CAP_PTX_WGMMA);
}
