/* Convolutions of maps whose rows repeat, by every variant of the table: what they make of maps without these rows, and
 * leave out, is what they make of whole ones. */
#include "support/alike_rows.h"
#include "support/claimed_matrix.h"
#include "support/each_variant.h"
#include "support/tiles.h"

#include <criterion/criterion.h>

typedef struct shape {
    int n, h, w, in, out, k, stride;
} shape;

/* What is added to the result of a map whose rows are those of `all`: alike from a row further above, with as many rows
 * beside as the result needs. */
static pictures with_rows_beside(const pictures *all) {
    pictures sum = *all;
    sum.reuse.above--, sum.reuse.below--;
    sum.reuse.kept.spare = 1;
    if (sum.reuse.period > 1) {
        sum.reuse.kept.spare += 2 * (sum.reuse.period - 1) + sum.reuse.after;
        sum.reuse.period = 1, sum.reuse.after = 0;
    }
    return sum;
}

/* bits of i: 1 an addend, 2 limit, 4 rows repeat after several, 8 the addend's begin elsewhere. */
static bool conv_case(each_way way, const void *what, unsigned i) {
    const shape *s = what;
    const bool depthwise = way.v->kind == IST_NODE_DWCONV;
    if (optest_quick() && is_another_tile(way.v, "tile_32x32") && i != (s->k == 1 ? 1 : 6)) return false;
    optest t;
    optest_begin(&t, "rows left out", i + 10u * (unsigned)(s->h + s->w + s->out));
    const int count = i & 2 ? s->n - 1 : s->n, pad = s->k / 2;
    ref_map x = optest_random(&t, s->n, s->h, s->w, s->in);
    pictures all = draw_pictures(&t, s->n, s->h, 2, 1, 2);
    if (i & 4) all.reuse.period = 3, all.reuse.after = 1;
    make_alike(x, &all, false);
    const int taps = s->k * s->k, weights = s->out * taps * (depthwise ? 1 : s->in);
    float *w = optest_values(&t, (size_t)weights, -0.2f, 0.2f), *b = optest_values(&t, (size_t)s->out, -1, 1);
    ist_conv whole = {
        .label = "whole",
        .filter = {s->out, depthwise ? 1 : s->in, s->k, s->k, w, b},
        .o = {.stride = s->stride, .top = pad, .left = pad, .bottom = pad, .right = pad, .epi.act = IST_ACT_GELU}};
    whole.x = optest_in(&t, x, IST_ELEM_T, false);
    ist_conv less = whole;
    less.label = "less";
    less.reuse = all.reuse;
    less.reuse.left_out = true;
    less.reuse.ahead.spare = s->k > 1 ? 2 : 0;
    less.x = optest_in(&t, without_rows(&t, x, &all, 0), IST_ELEM_T, false);
    if (i & 1 && s->k == 1) {
        const pictures added = i & 8 ? with_rows_beside(&all) : all;
        ref_map sum = optest_random(&t, s->n, s->h, s->w, s->out);
        make_alike(sum, &added, false);
        whole.o.epi.add_before = optest_in(&t, sum, IST_ELEM_T, false);
        less.o.epi.add_before = optest_in(&t, without_rows(&t, sum, &added, added.reuse.kept.spare), IST_ELEM_T, false);
        less.addend = added.reuse;
        less.addend.left_out = true;
    }
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    if (!each_emits(&t, way, &whole) || !each_emits(&t, way, &less)) {
        optest_drop(&t);
        return false;
    }
    const bool left_out = less.reuse.left_out;
    if (way.v->family->rows == IST_REPEATS_LEFT_OUT && s->k < 5 && (s->stride == 1 || !(i & 4)))
        cr_assert(left_out, "%s knows nothing of its rows", way.v->name);
    if (left_out && less.addend.content.n)
        cr_assert(less.addend.left_out, "%s has made rows of its addend", way.v->name);
    if (left_out) fill_rows(&t, less.y, &less.reuse);
    optest_run(&t);
    each_launched(&t, way);
    ref_map want = optest_read(&t, whole.y);
    check_alike(&all, less.reuse, optest_read(&t, less.y), want, count);
    optest_end(&t);
    return true;
}

static void by_each(ist_node_kind kind, const shape *s, int shapes) {
    static const shape tiny = {2, 12, 4, 16, 16, 1, 1}, tiny_depthwise = {2, 12, 4, 16, 16, 3, 1};
    if (optest_small()) s = kind == IST_NODE_CONV ? &tiny : &tiny_depthwise, shapes = 1;
    for (int k = 0; k < shapes; k++)
        for (unsigned i = 0; i < 16; i++)
            if (i < 8 || (i & 1 && !(i & 2) && s[k].k == 1)) each_variant(kind, 0, conv_case, &s[k], i, false);
}

Test(left_out, dense) {
    static const shape all[] = {{4, 32, 16, 64, 128, 1, 1},
                                {6, 35, 9, 24, 40, 1, 1},
                                {5, 41, 12, 32, 64, 3, 2},
                                {4, 29, 10, 16, 72, 3, 1},
                                {6, 5, 7, 64, 64, 1, 1}};
    by_each(IST_NODE_CONV, all, sizeof all / sizeof *all);
}

Test(left_out, depthwise) {
    static const shape all[] = {{4, 33, 16, 64, 64, 3, 1}, {6, 40, 9, 24, 24, 3, 2}, {5, 24, 10, 128, 128, 5, 1}};
    by_each(IST_NODE_DWCONV, all, sizeof all / sizeof *all);
}

/* Those on matrix instructions, emulated where there are none. */
Test(left_out, on_matrix_instructions) {
    static const shape some[] = {{3, 32, 16, 64, 64, 1, 1}, {2, 24, 16, 192, 64, 1, 1}};
    each_needs(IST_NODE_CONV, IST_CAP_PTX_MMA);
    if (!claim_matrix_groups()) return;
    for (unsigned k = 0; k < 2; k++)
        for (unsigned i = 2; i < 5; i += 2)
            if (!optest_quick() || i == 2 + 2 * k)
                each_variant(IST_NODE_CONV, IST_CAP_PTX_MMA, conv_case, &some[k], i + k, false);
}
