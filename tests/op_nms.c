/* Non-maximum suppression against torchvision's own results and against the scalar reference, which divides as
 * torchvision does: ties, NaN and infinities, boxes without an area or inside out, overlaps within a few units of the
 * threshold, groups, counts on the device. */
#include "variants/ops.h"
#include "support/golden.h"
#include "support/hidden_caps.h"
#include "support/optest.h"
#include "synth.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lists of boxes as the host has them; group and count may be NULL. */
typedef struct scene {
    int lists, boxes;
    ref_map box, score;
    int *group, *count;
    double iou;
} scene;

static scene scene_of(optest *t, int lists, int boxes, double iou) {
    return (scene){.lists = lists,
                   .boxes = boxes,
                   .box = optest_zeros(t, lists, 1, boxes, 4),
                   .score = optest_zeros(t, lists, 1, boxes, 1),
                   .iou = iou};
}

/* Runs the operator on `limit` lists and compares with `want`, the kept of list 0, or with the reference for all. */
static void check(optest *t, const scene *s, bool slice, int limit, const int *want, int wanted) {
    const int lists = s->lists, n = s->boxes;
    ist_tensor boxes = optest_in(t, s->box, IST_ELEM_F32, slice), scores = optest_in(t, s->score, IST_ELEM_F32, slice);
    ist_tensor group = {0}, count = {0}, kept;
    if (s->group) group = ist_view(optest_ints(t, s->group, lists * n), lists, 1, n);
    if (s->count) count = ist_view(optest_ints(t, s->count, lists), lists, 1, 1);
    if (limit < lists) ist_plan_limit(t->plan, optest_ints(t, &limit, 1));
    ist_tensor index = ist_op_nms(t->plan, boxes, scores, group, count, s->iou, &kept, "nms");
    optest_run(t);
    if (without) cr_assert_eq(ist_plan_describe(t->plan).launches, 3, "%s", t->name); /* of the variants by lanes */
    cr_assert_eq(ist_plan_replay(t->plan, &t->err), IST_OK, "%s", t->err.text);       /* nothing is left of the first */
    int *got = optest_alloc(t, (size_t)(lists * n) * sizeof *got), *stay = malloc(((size_t)n + 1) * sizeof *stay);
    int *found = optest_alloc(t, (size_t)lists * sizeof *found);
    cr_assert_eq(ist_plan_read_i32(t->plan, index, got, &t->err), IST_OK, "%s", t->err.text);
    cr_assert_eq(ist_plan_read_i32(t->plan, kept, found, &t->err), IST_OK, "%s", t->err.text);
    for (int i = 0; i < limit; i++) {
        const int *list = got + i * n;
        int some = s->count ? s->count[i] : n;
        some = some < 0 ? 0 : some > n ? n : some;
        const int stays =
            ref_nms(s->box.v + 4 * i * n, s->score.v + i * n, s->group ? s->group + i * n : NULL, some, s->iou, stay);
        for (int k = 0; k < stays && k < found[i]; k++)
            cr_assert_eq(list[k], stay[k], "%s, seed %llu, list %d of %d boxes: place %d has box %d, not %d", t->name,
                         (unsigned long long)t->seed, i, some, k, list[k], stay[k]);
        cr_assert_eq(found[i], stays, "%s, seed %llu, list %d: %d of %d boxes, not %d", t->name,
                     (unsigned long long)t->seed, i, found[i], some, stays);
        for (int k = stays; k < n; k++) cr_assert_eq(list[k], -1);
        if (!want) continue;
        cr_assert_eq(stays, wanted, "%s: torchvision keeps %d of %d boxes, not %d", t->name, wanted, n, stays);
        cr_assert_arr_eq(stay, want, (size_t)wanted * sizeof *want);
    }
    free(stay);
}

/* ---- torchvision's ---- */

enum { WHOLE, FLOATS, PAIRS };

/* Case `number` of tests/official/make_nms.py. */
static void fill_case(scene *s, int number, const int c[5]) {
    char name[3][24];
    snprintf(name[0], sizeof *name, "nms.%d", number);
    snprintf(name[1], sizeof *name, "nms.%d.score", number);
    snprintf(name[2], sizeof *name, "nms.%d.group", number);
    uint64_t base[] = {synth_base(name[0], 1), synth_base(name[1], 1), synth_base(name[2], 1)};
    for (int i = 0; i < s->boxes; i++) {
        const uint64_t even = (uint64_t)i / 2 * 2;
        int k[4], score = (int)synth_draw(base[1], (uint64_t)i), p = c[3];
        double v[4];
        for (uint64_t j = 0; j < 4; j++) k[j] = (int)synth_draw(base[0], 4 * (uint64_t)i + j);
        if (c[1] == PAIRS) {
            const int w = (int)(synth_draw(base[0], 4 * even + 2) >> 14) + 1;
            v[0] = i % 2 ? w * (100 - p) / (100 + p) + (k[0] >> 22) - 1 : 0;
            v[1] = 64.0 * (double)even;
            v[2] = w;
            v[3] = (int)(synth_draw(base[0], 4 * even + 3) >> 18) + 1;
        } else {
            for (int j = 0; j < 4; j++) v[j] = c[1] == WHOLE ? k[j] >> 20 : k[j] * 0x1p-16;
        }
        for (int j = 0; j < 4; j++) s->box.v[4 * i + j] = (float)(j < 2 ? v[j] : v[j - 2] + v[j]);
        s->score.v[i] = (float)((c[1] == WHOLE ? score >> 19 << 19 : score) * 0x1p-24);
        s->group[i] = (int)((uint64_t)synth_draw(base[2], (uint64_t)i) * (uint64_t)c[2] >> 24);
    }
}

static void as_torchvision(int most) {
    ist_weights *golden;
    ist_error err;
    cr_assert_eq(ist_weights_open(IST_GOLDEN_DIR "/nms.safetensors", &golden, &err), IST_OK, "%s", err.text);
    const size_t count = (size_t)ist_weights_find(golden, "cases")->dims[0];
    const size_t all = (size_t)ist_weights_find(golden, "kept")->dims[0];
    int *cases = golden_ints(golden, "cases", 5 * count), *kept = golden_ints(golden, "kept", all);
    cr_assert_geq(count, 15);
    for (size_t i = 0; i < count; i++) {
        const int *c = cases + 5 * i, end = i + 1 < count ? c[9] : (int)all;
        if (c[0] > most || (optest_small() && c[0] > 64)) continue;
        optest t;
        optest_begin(&t, "torchvision", (unsigned)i);
        scene s = scene_of(&t, 1, c[0], c[3] / 100.0);
        s.group = optest_alloc(&t, (size_t)c[0] * sizeof *s.group);
        fill_case(&s, (int)i, c);
        check(&t, &s, false, 1, kept + c[4], end - c[4]);
        optest_end(&t);
    }
    free(cases);
    free(kept);
    ist_weights_close(&golden);
}

/* ---- the reference ---- */

/* Two and two of one size, the second moved by so much that they overlap by the threshold but for a few units. */
static void fill_near(optest *t, scene *s) {
    for (int i = 0; i < s->lists * s->boxes; i++) {
        float *b = s->box.v + 4 * i;
        if (i % 2) {
            const float *a = b - 4, w = a[2] - a[0];
            float moved = (float)(w * (1 - s->iou) / (1 + s->iou)) * (1 + (float)optest_int(t, -2, 2) * 0x1p-24f);
            b[0] = a[0] + moved;
            b[1] = a[1];
            b[2] = a[2] + moved;
            b[3] = a[3];
        } else {
            b[1] = (float)i;
            b[2] = optest_uniform(t, 0.1f, 100);
            b[3] = (float)i + optest_uniform(t, 0.1f, 1);
        }
        s->score.v[i] = optest_uniform(t, 0, 1);
    }
}

enum { FREE, GRID, EQUAL, DAMAGED, INSIDE_OUT, APART, NEAR, KINDS };

static void fill(optest *t, scene *s, int kind) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0.0f, -0.0f, 1e-30f};
    if (kind == NEAR) {
        fill_near(t, s);
        return;
    }
    for (int i = 0; i < s->lists * s->boxes; i++) {
        float *b = s->box.v + 4 * i, *score = s->score.v + i;
        *score = optest_uniform(t, -1, 1);
        for (int j = 0; j < 4; j++) b[j] = optest_uniform(t, 0, 60) + (j < 2 ? 0 : b[j - 2]);
        if (kind == GRID) {
            *score = (float)optest_int(t, -2, 2) * (optest_int(t, 0, 1) ? 0.25f : -0.25f); /* zeros of both signs */
            for (int j = 0; j < 4; j++)
                b[j] = (float)(j < 2 ? optest_int(t, 0, 9) : (int)b[j - 2] + optest_int(t, 0, 6));
        } else if (kind == EQUAL) {
            *score = 0.5f;
            memcpy(b, (float[]){1, 2, 3, 4}, 16);
        } else if (kind == DAMAGED) {
            if (!optest_int(t, 0, 3)) *score = odd[optest_int(t, 0, 7)];
            if (!optest_int(t, 0, 2)) b[optest_int(t, 0, 3)] = odd[optest_int(t, 0, 7)];
        } else if (kind == INSIDE_OUT) {
            for (int j = 0; j < 4; j++) b[j] = (float)optest_int(t, -4, 4);
        } else if (kind == APART) {
            b[0] = b[1] = (float)(3 * i), b[2] = b[3] = b[0] + 2;
        }
    }
}

static void against_reference(int lists, int boxes, int kind, double iou, int variation) {
    optest t;
    optest_begin(&t, "nms", (unsigned)(boxes + 16 * kind + 8 * variation));
    scene s = scene_of(&t, lists, boxes, iou);
    fill(&t, &s, kind);
    if (variation & 1) {
        s.group = optest_alloc(&t, (size_t)(lists * boxes) * sizeof *s.group);
        for (int i = 0; i < lists * boxes; i++) s.group[i] = optest_int(&t, -1, 1) * 2147483647;
        if (kind == NEAR)
            for (int i = 1; i < lists * boxes; i += 2) s.group[i] = i % 8 == 1 ? 7 : s.group[i - 1];
    }
    if (variation & 2) {
        s.count = optest_alloc(&t, (size_t)lists * sizeof *s.count);
        for (int i = 0; i < lists; i++) s.count[i] = i ? optest_int(&t, 0, boxes) : boxes - boxes / 5;
        if (variation & 1) s.count[0] = kind % 2 ? -3 : boxes + 9;
    }
    check(&t, &s, variation % 2, variation & 4 && lists > 1 ? lists - 1 : lists, NULL, 0);
    optest_end(&t);
}

static void all_kinds(int most) {
    static const int shapes[][2] = {{1, 1}, {3, 7}, {2, 32}, {1, 33}, {1, 65}, {2, 300}, {1, 1000}};
    static const double ious[] = {0.5, 0.7, 0.1, 0, 1, 0.3, 0.88};
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            if (shapes[i][1] > most || (optest_small() && shapes[i][1] > 33)) continue;
            against_reference(shapes[i][0], shapes[i][1], kind, ious[(i + (unsigned)kind) % 7],
                              (int)(i + (unsigned)kind) % 8);
            if (kind == NEAR)
                for (int k = 0; k < 5; k++) against_reference(shapes[i][0], shapes[i][1], kind, 0.15 * (k + 1), 0);
        }
}

Test(op_nms, torchvision) {
    as_torchvision(IST_NMS_MAX);
}

Test(op_nms, reference) {
    all_kinds(IST_NMS_MAX);
}

/* What GPUs run. */
Test(op_nms, torchvision_by_lanes) {
    hide(IST_CAP_CPU);
    as_torchvision(300);
}

Test(op_nms, reference_by_lanes) {
    hide(IST_CAP_CPU);
    all_kinds(300);
}

Test(op_nms, reference_by_64_lanes) {
    hide(IST_CAP_CPU | IST_CAP_GROUP256);
    all_kinds(65);
}

Test(op_nms, all_that_is_possible) {
    if (optest_small()) return;
    against_reference(1, IST_NMS_MAX, FREE, 0.3, 0);
    against_reference(1, IST_NMS_MAX, APART, 0.3, 0);
    without = IST_CAP_CPU;
    against_reference(1, IST_NMS_MAX, FREE, 0.3, 2);
}
