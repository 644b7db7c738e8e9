/* The constants in the checkpoint in place of computed ones, as the published code reads them: anchors, their mask,
 * scales of sampling points. Each against what it is added to or multiplied with, in scalar code. */
#include "base/half.h"
#include "synth.h"
#include "support/dfine_run.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 640, QUERIES = 300, TOKENS = 40 * 40 + 20 * 20, POINTS = 12 };

static const char scale_name[] = "decoder.decoder.layers.0.cross_attn.num_points_scale";

static void to_bf16(float *values, size_t count, float unused) {
    (void)unused;
    for (size_t i = 0; i < count; i++) values[i] = ist_bf16_to_float(ist_float_to_bf16(values[i]));
}

/* What a file of bfloat16 has made of them. */
static void round_anchors(ist_weights *w) {
    dfine_edit(w, "decoder.anchors", to_bf16, 0);
}

static const dfine_setup plain = {.kind = IST_MODEL_DFINE_N, .classes = 3, .n = 1, .h = SIDE, .w = SIDE, .seed = 5};

static dfine_run start(void (*change)(ist_weights *), bool stored) {
    dfine_run r;
    dfine_setup setup = plain;
    setup.change = change;
    setup.stored = stored;
    dfine_start(&r, &setup);
    return r;
}

static float *file_values(const char *name, void (*change)(ist_weights *), size_t count) {
    ist_error err;
    ist_weights *w = NULL;
    float *v = malloc(count * sizeof *v);
    cr_assert_not_null(v);
    cr_assert_eq(synth_weights(plain.kind, plain.classes, plain.seed, &w, &err), IST_OK);
    if (change) change(w);
    const ist_weight *t = ist_weights_find(w, name);
    cr_assert(t && t->count == count, "%s", name);
    ist_weight_to_f32(t, v);
    ist_weights_close(&w);
    return v;
}

static double logit(double p) {
    return log(p / (1 - p));
}

/* Boxes begin at sigmoid(head + anchor), and the head does not know of the anchors: what lies between two logits is
 * what lies between two anchors. */
Test(model_dfine_stored, boxes_begin_at_the_files_anchors) {
    dfine_run computed = start(round_anchors, false), stored = start(round_anchors, true);
    float *exact = file_values("decoder.anchors", NULL, 4 * TOKENS);
    float *rounded = file_values("decoder.anchors", round_anchors, 4 * TOKENS);
    int *index = dfine_read_ints(&computed, "sel.topk_index"), *same = dfine_read_ints(&stored, "sel.topk_index");
    float *a = dfine_read(&computed, "dec.ref0"), *b = dfine_read(&stored, "dec.ref0");
    int moved = 0;
    cr_assert_arr_eq(index, same, QUERIES * sizeof *index);
    for (int i = 0; i < 4 * QUERIES; i++) {
        size_t at = 4 * (size_t)index[i / 4] + (size_t)i % 4;
        if (isinf(exact[at])) {
            cr_assert(isinf(rounded[at]) && a[i] == 1 && b[i] == 1);
            continue;
        }
        double want = (double)rounded[at] - (double)exact[at], got = logit(b[i]) - logit(a[i]);
        double error = 1e-6 + 4e-7 / (a[i] * (1 - a[i])); /* of the boxes' own rounding */
        cr_assert_float_eq(got, want, error, "box value %d: the logit moved by %g, the anchor by %g", i, got, want);
        moved += fabs(want) > 10 * error;
    }
    cr_expect_gt(moved, 2 * QUERIES, "%d of %d anchors differ", moved, 4 * QUERIES);
    free(exact), free(rounded), free(index), free(same), free(a), free(b);
    dfine_stop(&computed);
    dfine_stop(&stored);
}

/* In files of float32 both ways are the same. */
Test(model_dfine_stored, unrounded_constants_change_nothing) {
    dfine_run computed = start(NULL, false), stored = start(NULL, true);
    float *a = dfine_read(&computed, "boxes"), *b = dfine_read(&stored, "boxes");
    float *c = dfine_read(&computed, "logits"), *d = dfine_read(&stored, "logits");
    cr_expect_arr_eq(a, b, 4 * QUERIES * sizeof *a);
    cr_expect_arr_eq(c, d, 3 * QUERIES * sizeof *c);
    free(a), free(b), free(c), free(d);
    dfine_stop(&computed);
    dfine_stop(&stored);
}

static void zeros(float *values, size_t count, float unused) {
    (void)unused;
    memset(values, 0, count * sizeof *values);
}
/* All points of a query lie in its centre: offsets are of no account. */
static void no_reach(ist_weights *w) {
    dfine_edit(w, scale_name, zeros, 0);
}
static void no_reach_no_offsets(ist_weights *w) {
    no_reach(w);
    dfine_edit(w, "decoder.decoder.layers.0.cross_attn.sampling_offsets.weight", zeros, 0);
    dfine_edit(w, "decoder.decoder.layers.0.cross_attn.sampling_offsets.bias", zeros, 0);
}

Test(model_dfine_stored, scales_of_points) {
    dfine_run computed = start(no_reach, false), stored = start(no_reach, true),
              centre = start(no_reach_no_offsets, false);
    float *a = dfine_read(&computed, "dec.l0.cross"), *b = dfine_read(&stored, "dec.l0.cross");
    float *c = dfine_read(&centre, "dec.l0.cross");
    double most = 0;
    for (int i = 0; i < QUERIES * 128; i++) {
        cr_assert_float_eq(b[i], c[i], 1e-5, "value %d: %g, without offsets %g", i, b[i], c[i]);
        if (fabs((double)a[i] - (double)b[i]) > most) most = fabs((double)a[i] - (double)b[i]);
    }
    cr_expect_gt(most, 0.01);
    free(a), free(b), free(c);
    dfine_stop(&computed);
    dfine_stop(&stored);
    dfine_stop(&centre);
}

/* Tokens that the file's mask leaves out are zeros before their projection, whose bias is what is left of all of them.
 */
static void mask_all_but_one(ist_weights *w) {
    const ist_weight *mask = ist_weights_find(w, "decoder.valid_mask");
    memset((void *)mask->data, 0, mask->bytes);
    ((uint8_t *)mask->data)[700] = 1;
}

Test(model_dfine_stored, the_files_mask) {
    dfine_run computed = start(mask_all_but_one, false), stored = start(mask_all_but_one, true);
    float *a = dfine_read(&computed, "sel.memory"), *b = dfine_read(&stored, "sel.memory");
    enum { DIM = 128 };
    for (int t = 0; t < TOKENS; t++) {
        bool first = !memcmp(b + t * DIM, b, DIM * sizeof *b);
        cr_assert_eq(first, t != 700, "token %d", t);
    }
    cr_expect_arr_eq(a + 700 * DIM, b + 700 * DIM, DIM * sizeof *a);
    cr_expect(memcmp(a + 701 * DIM, b + 701 * DIM, DIM * sizeof *a));
    free(a), free(b);
    dfine_stop(&computed);
    dfine_stop(&stored);
}

/* ---- what is refused ---- */

static void expect_refused(void (*change)(ist_weights *), int side, const char *sentence) {
    ist_error err;
    ist_weights *w = NULL;
    ist_checkpoint_info info;
    ist_graph *g = NULL;
    cr_assert_eq(synth_weights(plain.kind, plain.classes, plain.seed, &w, &err), IST_OK);
    if (change) change(w);
    cr_assert_eq(ist_checkpoint_identify(w, &info, &err), IST_OK);
    info.stored_constants = true;
    cr_assert_eq(ist_graph_open(&g, &err), IST_OK);
    ist_dfine(&(ist_net){g, w}, &info, ist_graph_input(g, 1, side, side, 3, IST_ELEM_T));
    cr_expect_eq(g->error.code, IST_E_WEIGHTS);
    cr_expect_not_null(strstr(g->error.text, sentence), "%s", g->error.text);
    ist_graph_close(&g);
    ist_checkpoint_info_free(&info);
    ist_weights_close(&w);
}

static void not_a_number(ist_weights *w) {
    ((float *)ist_weights_find(w, "decoder.anchors")->data)[7] = NAN;
}
static void infinite_scale(ist_weights *w) {
    ((float *)ist_weights_find(w, scale_name)->data)[2] = INFINITY;
}

Test(model_dfine_stored, refusals) {
    expect_refused(NULL, 512, "stored constants: decoder.anchors: want [1,1280,4], file has [1,2000,4]");
    expect_refused(not_a_number, SIDE, "stored constants: decoder.anchors: element 7 is not a number");
    expect_refused(infinite_scale, SIDE, "cross_attn.num_points_scale: element 2 of 12 is infinite");
}
