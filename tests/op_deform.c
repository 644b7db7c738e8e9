/* Deformable attention against the scalar reference, on the device's own row and on the portable one. */
#include "variants/ops.h"
#include "variants/variant.h"
#include "support/hidden_caps.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

typedef struct shape {
    int n, q, heads, d, level_count;
    ist_level levels[3];
    float reach; /* of offsets, a power of two; large values leave the map */
} shape;

/* A position in pixels is wrong by a few extent * 2^-24, a sample changes by up to 2 per pixel. */
static double tolerance(const optest *t, const shape *s) {
    int extent = 1;
    for (int i = 0; i < s->level_count; i++) {
        if (s->levels[i].h > extent) extent = s->levels[i].h;
        if (s->levels[i].w > extent) extent = s->levels[i].w;
    }
    return optest_tolerance(t, 48) + 12 * extent * 6e-8 * (1 + s->reach);
}

/* The offsets that scales of these sizes stand for where each point's is 1 / points of its level. */
static ref_map rescaled(optest *t, ref_map o, const shape *s, int points, const float *scale) {
    ref_map r = optest_zeros(t, o.n, o.h, o.w, o.c);
    for (size_t i = 0; i < ref_size(o); i++) {
        int k = (int)(i / 2) % points, l = 0, left = k;
        while (left >= s->levels[l].points) left -= s->levels[l++].points;
        r.v[i] = o.v[i] * scale[k] * (float)s->levels[l].points;
    }
    return r;
}

/* bits of i: 1 slices, 2 limit, 4 one memory for all items, 8 a scale for each point. */
static void deform_case(const shape *s, unsigned i) {
    optest t;
    optest_begin(&t, "deformable attention", i + 20u * (unsigned)s->q);
    int points = 0, tokens = 3, count = i & 2 ? s->n / 2 : s->n; /* three tokens belong to no level */
    ref_level levels[3];
    ist_level given[3];
    for (int l = 0; l < s->level_count; l++) {
        given[l] = s->levels[l];
        given[l].start = tokens;
        levels[l] = (ref_level){given[l].h, given[l].w, tokens, given[l].points};
        tokens += given[l].h * given[l].w;
        points += given[l].points;
    }
    ref_map o = optest_random(&t, s->n, 1, s->q, s->heads * points * 2);
    ref_map w = optest_random(&t, s->n, 1, s->q, s->heads * points), box = optest_random(&t, s->n, 1, s->q, 4);
    ref_map m = optest_random(&t, i & 4 ? 1 : s->n, 1, tokens, s->heads * s->d);
    ref_map want = optest_zeros(&t, s->n, 1, s->q, m.c);
    for (size_t e = 0; e < ref_size(o); e++) o.v[e] *= s->reach;
    for (size_t e = 0; e < ref_size(w); e++) w.v[e] *= 4;
    for (int e = 0; e < s->n * s->q;
         e++) { /* mostly boxes inside the image, every fifth anywhere, sizes of both signs */
        if (e % 5) box.v[4 * e] = 0.5f + 0.5f * box.v[4 * e];
        if (e % 5) box.v[4 * e + 1] = 0.5f + 0.5f * box.v[4 * e + 1];
    }
    ist_elem where = (i >> 1 ^ i >> 2) & 1 ? IST_ELEM_T : IST_ELEM_F32;
    ist_tensor ot = optest_in(&t, o, where, i & 1), wt = optest_in(&t, w, where, i & 1);
    ist_tensor bt = optest_in(&t, box, IST_ELEM_F32, i & 1), mt = optest_in(&t, m, IST_ELEM_T, i & 1);
    ist_tensor out = optest_out(&t, s->n, 1, s->q, m.c, IST_ELEM_T, i & 1);
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    float scale[64];
    for (int k = 0; k < points; k++) scale[k] = 0.05f + 0.01f * (float)k;
    ist_deform node = {.label = "deform", .offsets = ot, .weights = wt, .ref = bt, .memory = mt, .y = out};
    node.levels = s->level_count;
    node.heads = s->heads;
    memcpy(node.level, given, (size_t)s->level_count * sizeof *given);
    node.point_scale = i & 8 ? scale : NULL;
    ist_emit(t.plan, IST_NODE_DEFORM, &node);
    ist_tensor y = node.y;
    optest_run(&t);
    if (i & 8) o = rescaled(&t, o, s, points, scale);
    ref_deform_attention(o, w, box, m, levels, s->level_count, s->heads, want);
    optest_check(&t, "deform", y, want, 0, tolerance(&t, s), count);
    optest_end(&t);
}

static void shapes(void) {
    static const shape tiny[] = {{2, 3, 1, 8, 2, {{3, 2, 0, 2}, {1, 1, 0, 1}}, 1}};
    static const shape all[] = {
        {1, 30, 8, 32, 3, {{20, 30, 0, 4}, {10, 15, 0, 4}, {5, 7, 0, 4}}, 4},
        {2, 17, 8, 16, 2, {{13, 9, 0, 6}, {7, 5, 0, 6}}, 2},
        {3, 5, 3, 20, 3, {{6, 4, 0, 3}, {3, 2, 0, 6}, {1, 1, 0, 3}}, 32},
        {2, 9, 4, 4, 1, {{40, 41, 0, 5}}, 1024},
        {2, 3, 2, 48, 2, {{80, 80, 0, 20}, {2, 3, 0, 30}}, 4},
    };
    const shape *list = optest_small() ? tiny : all;
    int count = optest_small() ? 1 : (int)(sizeof all / sizeof *all);
    for (int k = 0; k < count; k++)
        for (unsigned i = 0; i < 16; i++) deform_case(&list[k], i);
}

Test(deform, own_row) {
    without = 0;
    shapes();
}

Test(deform, portable) {
    without = IST_CAP_VEC16;
    shapes();
}

/* Positions that are no numbers or beyond any int must read nothing outside the memory; the result of a far away
 * position is zero. */
static void wild_positions(void) {
    enum { Q = 4, D = 16 };
    static const float wild[Q] = {1e30f, -1e30f, INFINITY, NAN};
    optest t;
    optest_begin(&t, "deformable attention, wild positions", 1);
    ist_level level = {3, 5, 0, 2};
    ref_map o = optest_zeros(&t, 1, 1, Q, 4), w = optest_random(&t, 1, 1, Q, 2), box = optest_random(&t, 1, 1, Q, 4);
    ref_map m = optest_random(&t, 1, 1, 15, D);
    for (int q = 0; q < Q; q++) ref_at(box, 0, 0, q)[0] = ref_at(box, 0, 0, q)[1] = wild[q];
    ist_tensor y =
        ist_op_deform_attention(t.plan, optest_in(&t, o, IST_ELEM_T, false), optest_in(&t, w, IST_ELEM_T, false),
                                optest_in(&t, box, IST_ELEM_F32, false), optest_in(&t, m, IST_ELEM_T, false), &level, 1,
                                1, (ist_tensor){0}, "deform");
    optest_run(&t);
    ref_map got = optest_read(&t, y);
    for (int q = 0; q < 3; q++)
        for (int c = 0; c < D; c++) cr_assert_eq(ref_at(got, 0, 0, q)[c], 0, "query %d", q);
    optest_end(&t);
}

Test(deform, wild_positions) {
    without = 0;
    wild_positions();
    without = IST_CAP_VEC16;
    wild_positions();
}

Test(deform, refuses_levels_beyond_memory) {
    without = 0;
    optest t;
    optest_begin(&t, "deform refusal", 1);
    ist_level level = {3, 5, 1, 2};
    ist_tensor o = optest_in(&t, optest_random(&t, 1, 1, 2, 4), IST_ELEM_T, false);
    ist_tensor w = optest_in(&t, optest_random(&t, 1, 1, 2, 2), IST_ELEM_T, false);
    ist_tensor b = optest_in(&t, optest_random(&t, 1, 1, 2, 4), IST_ELEM_F32, false);
    ist_tensor m = optest_in(&t, optest_random(&t, 1, 1, 15, 8), IST_ELEM_T, false);
    cr_assert_not(ist_has(ist_op_deform_attention(t.plan, o, w, b, m, &level, 1, 1, (ist_tensor){0}, "deform")));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    optest_drop(&t);
    ist_device_close(&t.device);
}
