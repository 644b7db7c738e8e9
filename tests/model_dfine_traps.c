/* What the golden networks leave out: other input sizes and class counts, a map that is not square, weights that drive
 * the clamps, boxes turned inside out, invalid anchors, more than one image. Goldens:
 * tests/official/make_dfine_cases.py, which lists the same cases. */
#include "support/dfine_run.h"
#include "support/golden.h"
#include "synth.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 7, QUERIES = IST_DFINE_QUERIES };

static void scale(float *values, size_t count, float by) {
    for (size_t i = 0; i < count; i++) values[i] *= by;
}

/* The bin "one full width inwards" of the left and the right side. */
static void first_bins(float *values, size_t count, float to) {
    cr_assert_eq(count, 132);
    values[0] = values[66] = to;
}

static void large_positions(ist_weights *w) {
    dfine_edit(w, "decoder.query_pos_head.layers.1.weight", scale, 16);
}
static void large_feed_forward(ist_weights *w) {
    dfine_edit(w, "decoder.decoder.layers.1.linear2.weight", scale, 524288);
}
/* As above for halves, which end at 65504: weights that they hold, sums that they do not. */
static void overflowing_feed_forward(ist_weights *w) {
    dfine_edit(w, "decoder.decoder.layers.1.linear2.weight", scale, 65536);
}
static void inside_out(ist_weights *w) {
    dfine_edit(w, "decoder.dec_bbox_head.0.layers.2.bias", first_bins, 4);
    dfine_edit(w, "decoder.dec_bbox_head.1.layers.2.bias", first_bins, 4);
    dfine_edit(w, "decoder.dec_bbox_head.2.layers.2.bias", first_bins, 4);
}

/* Returns with the run still open, for further checks. */
static void published(dfine_run *r, const char *name, dfine_setup setup) {
    char logits[64], boxes[64], order[64];
    ist_weights *golden = golden_open("dfine_cases");
    snprintf(logits, sizeof logits, "%s.logits", name);
    snprintf(boxes, sizeof boxes, "%s.boxes", name);
    snprintf(order, sizeof order, "%s.order", name);
    int *tokens = golden_ints(golden, order, QUERIES);
    setup.n = 1;
    setup.seed = SEED;
    setup.order = tokens;
    dfine_start(r, &setup);
    float *got_logits = dfine_read(r, "logits"), *got_boxes = dfine_read(r, "boxes");
    golden_check_values(golden, logits, GOLDEN_TOKENS, got_logits, QUERIES, (size_t)setup.classes);
    golden_check_values(golden, boxes, GOLDEN_TOKENS, got_boxes, QUERIES, 4);
    free(got_logits);
    free(got_boxes);
    free(tokens);
    ist_weights_close(&golden);
}

/* setup: kind, classes, h, w, change */
#define CASE(name, ...)                                                                                                \
    Test(model_dfine_traps, name) {                                                                                    \
        dfine_run r;                                                                                                   \
        published(&r, #name, (dfine_setup){__VA_ARGS__});                                                              \
        dfine_stop(&r);                                                                                                \
    }

CASE(n_1class_256, .kind = IST_MODEL_DFINE_N, .classes = 1, .h = 256, .w = 256)
CASE(s_3classes_160, .kind = IST_MODEL_DFINE_S, .classes = 3, .h = 160, .w = 160)
CASE(m_1class_128, .kind = IST_MODEL_DFINE_M, .classes = 1, .h = 128, .w = 128)
CASE(l_2classes_128, .kind = IST_MODEL_DFINE_L, .classes = 2, .h = 128, .w = 128)
CASE(x_3classes_128, .kind = IST_MODEL_DFINE_X, .classes = 3, .h = 128, .w = 128)
CASE(s_192x128, .kind = IST_MODEL_DFINE_S, .classes = 3, .h = 192, .w = 128)
CASE(s_pos_clamp, .kind = IST_MODEL_DFINE_S, .classes = 1, .h = 128, .w = 128, .change = large_positions)
CASE(s_half_clamp, .kind = IST_MODEL_DFINE_S, .classes = 1, .h = 128, .w = 128, .change = large_feed_forward)

/* A sum beyond half becomes infinite where it is stored; the clamp before the normalisation brings it back, and what
 * follows agrees with floats, clamped at the same value. */
Test(model_dfine_traps, s_overflow_stored_as_half) {
    ist_weights *golden = golden_open("dfine_cases");
    int *order = golden_ints(golden, "s_half_clamp.order", QUERIES), beyond = 0;
    dfine_setup setup = {.kind = IST_MODEL_DFINE_S, .classes = 1, .n = 1, .h = 128, .w = 128, .seed = SEED};
    setup.order = order;
    setup.change = overflowing_feed_forward;
    dfine_run single, half;
    dfine_start(&single, &setup);
    setup.half = true;
    dfine_start(&half, &setup);
    float *got = dfine_read(&half, "boxes"), *want = dfine_read(&single, "boxes");
    float *sums = dfine_read(&half, "dec.l1.ffn");
    for (int i = 0; i < 4 * QUERIES; i++)
        cr_assert_float_eq(got[i], want[i], 0.01, "box value %d: %g, in floats %g", i, got[i], want[i]);
    for (int i = 0; i < 256 * QUERIES; i++) beyond += isinf(sums[i]);
    cr_assert_gt(beyond, QUERIES, "only %d sums are beyond half", beyond);
    free(got);
    free(want);
    free(sums);
    free(order);
    dfine_stop(&single);
    dfine_stop(&half);
    ist_weights_close(&golden);
}

/* Bit for bit. */
static void by_shadow(dfine_setup setup) {
    float *boxes[2], *logits[2];
    for (int k = 0; k < 2; k++) {
        dfine_run r;
        setup.by_shadow = k;
        dfine_start(&r, &setup);
        boxes[k] = dfine_read(&r, "boxes");
        logits[k] = dfine_read(&r, "logits");
        dfine_stop(&r);
    }
    cr_expect(!memcmp(boxes[0], boxes[1], sizeof(float) * 4 * QUERIES), "boxes, half %d", setup.half);
    cr_expect(!memcmp(logits[0], logits[1], sizeof(float) * (size_t)setup.classes * QUERIES), "logits, half %d",
              setup.half);
    for (int k = 0; k < 2; k++) {
        free(boxes[k]);
        free(logits[k]);
    }
}

Test(model_dfine_traps, n_with_values_of_another_plan) {
    by_shadow((dfine_setup){.kind = IST_MODEL_DFINE_N, .classes = 1, .n = 1, .h = 256, .w = 256, .seed = SEED});
    by_shadow(
        (dfine_setup){.kind = IST_MODEL_DFINE_N, .classes = 1, .n = 1, .h = 256, .w = 256, .seed = SEED, .half = true});
}

Test(model_dfine_traps, s_with_values_of_another_plan) {
    by_shadow((dfine_setup){.kind = IST_MODEL_DFINE_S, .classes = 3, .n = 1, .h = 160, .w = 160, .seed = SEED});
    by_shadow(
        (dfine_setup){.kind = IST_MODEL_DFINE_S, .classes = 3, .n = 1, .h = 160, .w = 160, .seed = SEED, .half = true});
}

Test(model_dfine_traps, s_inside_out) {
    dfine_run r;
    int negative = 0;
    published(&r, "s_inside_out",
              (dfine_setup){.kind = IST_MODEL_DFINE_S, .classes = 1, .h = 128, .w = 128, .change = inside_out});
    float *boxes = dfine_read(&r, "boxes");
    for (int i = 0; i < QUERIES; i++) negative += boxes[4 * i + 2] < 0;
    cr_assert_gt(negative, QUERIES / 2, "%d boxes of negative width", negative);
    free(boxes);
    dfine_stop(&r);
}

/* The outermost ring of the finest map, the only invalid anchors at side 416. */
static bool on_ring(int token, int side) {
    int y = token / side, x = token % side;
    return y < side && (!y || !x || y == side - 1 || x == side - 1);
}

/* Queries with invalid anchors start from (1,1,1,1). */
Test(model_dfine_traps, s_invalid) {
    dfine_run r;
    int invalid = 0;
    published(&r, "s_invalid", (dfine_setup){.kind = IST_MODEL_DFINE_S, .classes = 1, .h = 416, .w = 416});
    ist_weights *golden = golden_open("dfine_cases");
    int *order = golden_ints(golden, "s_invalid.order", QUERIES);
    float *ref = dfine_read(&r, "dec.ref0");
    for (int i = 0; i < QUERIES; i++) {
        const float *b = ref + 4 * i;
        bool ring = on_ring(order[i], 416 / 8), whole = b[0] == 1 && b[1] == 1 && b[2] == 1 && b[3] == 1;
        cr_assert_eq(ring, whole, "query %d, token %d: starts from %g %g %g %g", i, order[i], b[0], b[1], b[2], b[3]);
        invalid += ring;
    }
    cr_assert_geq(invalid, 40);
    free(ref);
    free(order);
    ist_weights_close(&golden);
    dfine_stop(&r);
}

/* A score head that points along LN(b_p), the feature of every invalid token, ranks those first, by rising index. */
static void prefer_invalid(ist_weights *w) {
    float bias[256], gamma[256], beta[256], toward[256];
    ist_error err = {0};
    double mean = 0, var = 0;
    cr_assert_eq(ist_weight_read_f32(ist_weights_find(w, "decoder.enc_output.proj.bias"), bias, &err), IST_OK);
    cr_assert_eq(ist_weight_read_f32(ist_weights_find(w, "decoder.enc_output.norm.weight"), gamma, &err), IST_OK);
    cr_assert_eq(ist_weight_read_f32(ist_weights_find(w, "decoder.enc_output.norm.bias"), beta, &err), IST_OK);
    for (int i = 0; i < 256; i++) mean += bias[i] / 256;
    for (int i = 0; i < 256; i++) var += (bias[i] - mean) * (bias[i] - mean) / 256;
    for (int i = 0; i < 256; i++) toward[i] = (float)((bias[i] - mean) / sqrt(var + 1e-5) * gamma[i] + beta[i]);
    const ist_weight *head = ist_weights_find(w, "decoder.enc_score_head.weight");
    cr_assert_eq(head->bytes, sizeof toward);
    memcpy((void *)head->data, toward, sizeof toward);
}

Test(model_dfine_traps, invalid_anchors_can_win) {
    dfine_run r;
    dfine_setup setup = {
        .kind = IST_MODEL_DFINE_S, .classes = 1, .n = 1, .h = 416, .w = 416, .seed = SEED, .change = prefer_invalid};
    int side = 416 / 8, ring = 0;
    dfine_start(&r, &setup);
    int *tokens = dfine_read_ints(&r, "sel.topk_index");
    for (int t = 0; t < side * side; t++) {
        if (!on_ring(t, side)) continue;
        cr_assert_eq(tokens[ring], t, "query %d is token %d, want %d", ring, tokens[ring], t);
        ring++;
    }
    cr_assert_eq(ring, 4 * (side - 1));
    free(tokens);
    dfine_stop(&r);
}

/* ---- more than one image ---- */

static void check_item(const dfine_run *batch, const dfine_run *single, int item, const char *name, int columns) {
    float *all = dfine_read(batch, name), *one = dfine_read(single, name);
    const float *got = all + (size_t)item * QUERIES * (size_t)columns;
    for (int i = 0; i < QUERIES * columns; i++)
        cr_assert(fabsf(got[i] - one[i]) <= 1e-4f, "%s of image %d, row %d column %d: %.9g in the batch, %.9g alone",
                  name, item, i / columns, i % columns, got[i], one[i]);
    free(all);
    free(one);
}

/* Levels, tables and selections are per image: nothing of one may reach the other. */
static void batch_equals_singles(ist_model_kind kind, int classes, int side) {
    dfine_setup setup = {.kind = kind, .classes = classes, .n = 2, .h = side, .w = side, .seed = SEED};
    dfine_run batch, single;
    dfine_start(&batch, &setup);
    int *both = dfine_read_ints(&batch, "sel.topk_index");
    for (int item = 0; item < 2; item++) {
        dfine_setup one = setup;
        one.n = 1;
        one.image_seed = SEED + (uint64_t)item;
        dfine_start(&single, &one);
        int *own = dfine_read_ints(&single, "sel.topk_index");
        for (int i = 0; i < QUERIES; i++) cr_assert_eq(both[item * QUERIES + i], own[i]);
        check_item(&batch, &single, item, "logits", classes);
        check_item(&batch, &single, item, "boxes", 4);
        free(own);
        dfine_stop(&single);
    }
    free(both);
    dfine_stop(&batch);
}

Test(model_dfine_traps, batch_n) {
    batch_equals_singles(IST_MODEL_DFINE_N, 5, 256);
}
Test(model_dfine_traps, batch_s) {
    batch_equals_singles(IST_MODEL_DFINE_S, 1, 128);
}
Test(model_dfine_traps, batch_x) {
    batch_equals_singles(IST_MODEL_DFINE_X, 3, 128);
}

/* ---- refusals ---- */

static void refused(int h, int w, ist_model_kind kind, const char *sentence) {
    ist_error err = {0};
    ist_weights *weights = NULL;
    ist_graph *g = NULL;
    ist_checkpoint_info info = {.kind = kind, .classes = 1};
    cr_assert_eq(ist_weights_create(&weights, &err), IST_OK);
    cr_assert_eq(ist_graph_open(&g, &err), IST_OK);
    ist_dfine_result r = ist_dfine(&(ist_net){g, weights}, &info, ist_graph_input(g, 1, h, w, 3, IST_ELEM_T));
    cr_assert(!ist_has(r.logits) && !ist_has(r.boxes));
    cr_assert(ist_graph_failed(g));
    cr_assert_not_null(strstr(g->error.text, sentence), "%s", g->error.text);
    ist_graph_close(&g);
    ist_weights_close(&weights);
}

/* What a graph says is what a plan made of it says. */
Test(model_dfine_traps, a_failed_graph_fails_its_plan) {
    ist_error err = {0};
    ist_device *device = NULL;
    ist_plan *plan = NULL;
    ist_lowering *lowering = NULL;
    ist_graph *g = NULL;
    cr_assert_eq(ist_device_open(&(ist_device_options){0}, &device, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_plan_begin(device, &(ist_plan_options){0}, &plan, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_graph_open(&g, &err), IST_OK);
    ist_graph_fail(g, IST_E_WEIGHTS, "layer %d has no weights", 7);
    ist_lower(plan, g, NULL, &lowering);
    cr_assert_null(lowering);
    cr_assert_eq(ist_plan_status(plan), IST_E_WEIGHTS);
    cr_assert_str_eq(ist_plan_error(plan)->text, "layer 7 has no weights");
    ist_graph_close(&g);
    ist_plan_close(&plan);
    ist_device_close(&device);
}

Test(model_dfine_traps, refusals) {
    refused(128, 100, IST_MODEL_DFINE_S, "divisible by 32, got [1,128,100,3]");
    refused(224, 224, IST_MODEL_DFINE_N, "245 tokens, fewer than its 300 queries");
    refused(640, 640, IST_MODEL_MOBILE_SAM, "mobilesam, not a D-FINE");
    refused(640, 640, IST_MODEL_DFINE_N, "backbone.stem.stem1.conv.weight");
}
