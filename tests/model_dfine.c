/* D-FINE, all five sizes, layer by layer against the published network (golden seed 1): synthetic checkpoint and image
 * are rebuilt from the seed. The decoder is given the published order of the queries, so that rows correspond; the
 * selection itself is compared as a set, and end to end for size N. ISTHMUS_VERBOSE=1 prints every difference. */
#include "models/dfine.h"
#include "support/golden.h"
#include "synth.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 640, CLASSES = 80, QUERIES = IST_DFINE_QUERIES };

static ist_error err;
#define OK(expr)                                                                                                       \
    do {                                                                                                               \
        if ((expr) != IST_OK) cr_assert_fail("%s", err.text);                                                          \
    } while (0)

/* A finished and replayed plan of one golden case. */
typedef struct run {
    ist_device *device;
    ist_plan *plan;
    ist_weights *golden;
    ist_dfine_result result;
    int *order; /* the published 300 tokens, best first */
} run;

static void write_image(ist_plan *plan, ist_tensor image, uint64_t seed) {
    size_t count = (size_t)SIDE * SIDE * 3;
    uint8_t *bytes = malloc(count);
    float *values = malloc(count * sizeof *values);
    cr_assert(bytes && values);
    synth_phantom(SIDE, SIDE, seed, bytes);
    for (size_t i = 0; i < count; i++) values[i] = (float)bytes[i] / 255.0f;
    OK(ist_plan_write_f32(plan, image, values, &err));
    free(bytes);
    free(values);
}

static void start(run *r, ist_model_kind kind, bool forced) {
    uint64_t seed = synth_golden_seed(kind, 1);
    char file[32];
    ist_weights *weights = NULL;
    ist_checkpoint_info info = {0};
    ist_device_options device = {0};
    ist_plan_options options = {.taps = true};
    snprintf(file, sizeof file, "dfine_%c", ist_model_name(kind)[6]);
    r->golden = golden_open(file);
    r->order = golden_ints(r->golden, "sel.topk_index", QUERIES);
    OK(synth_weights(kind, CLASSES, seed, &weights, &err));
    OK(ist_checkpoint_identify(weights, &info, &err));
    OK(ist_device_open(&device, &r->device, &err));
    OK(ist_plan_begin(r->device, &options, &r->plan, &err));
    ist_tensor image = ist_plan_input(r->plan, 1, SIDE, SIDE, 3, IST_ELEM_T), force = {0};
    if (forced) force = ist_plan_const(r->plan, r->order, 1, 1, QUERIES, 1, IST_ELEM_I32, "published order");
    r->result = ist_dfine_forced(r->plan, weights, &info, image, force);
    ist_checkpoint_info_free(&info);
    ist_weights_close(&weights);
    OK(ist_plan_finish(r->plan, &err));
    write_image(r->plan, image, seed);
    OK(ist_plan_replay(r->plan, &err));
}

static void stop(run *r) {
    free(r->order);
    ist_weights_close(&r->golden);
    ist_plan_close(&r->plan);
    ist_device_close(&r->device);
}

static int rising(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* The selection takes the published tokens, in any order: some of their scores differ by less than rounding. */
static void check_selection(const run *r) {
    int natural[QUERIES], wanted[QUERIES];
    OK(ist_plan_read_i32(r->plan, ist_plan_tapped(r->plan, "sel.topk_index"), natural, &err));
    for (int i = 0; i < QUERIES; i++) wanted[i] = r->order[i];
    qsort(natural, QUERIES, sizeof *natural, rising);
    qsort(wanted, QUERIES, sizeof *wanted, rising);
    for (int i = 0; i < QUERIES; i++)
        cr_assert_eq(natural[i], wanted[i], "selected token %d in rising order: %d, published %d", i, natural[i],
                     wanted[i]);
}

static void check_map(const run *r, const char *fmt, int i) {
    char name[64];
    snprintf(name, sizeof name, fmt, i);
    golden_check(r->plan, r->golden, name, GOLDEN_MAP);
}

static void check_tokens(const run *r, const char *fmt, int i) {
    char name[64];
    snprintf(name, sizeof name, fmt, i);
    golden_check(r->plan, r->golden, name, GOLDEN_TOKENS);
}

static void check_encoder(const run *r, const ist_dfine_arch *arch) {
    golden_check(r->plan, r->golden, "stem", GOLDEN_MAP);
    for (int i = 0; i < 4; i++) check_map(r, "stage%d", i);
    for (int i = 0; i < arch->levels; i++) check_map(r, "enc.proj%d", i);
    golden_check(r->plan, r->golden, "enc.aifi0", GOLDEN_TOKENS);
    for (int i = 0; i + 1 < arch->levels; i++) {
        check_map(r, "enc.lateral%d", i);
        check_map(r, "enc.fpn%d", i);
        check_map(r, "enc.down%d", i);
        check_map(r, "enc.pan%d", i);
    }
    golden_check(r->plan, r->golden, "dec.memory", GOLDEN_TOKENS);
}

static void check_decoder(const run *r, const ist_dfine_arch *arch) {
    static const char *const per_layer[] = {"dec.ref%d",     "dec.pos%d",    "dec.l%d.self", "dec.l%d.offsets",
                                            "dec.l%d.cross", "dec.l%d.gate", "dec.l%d.out",  "dec.l%d.corners"};
    golden_check(r->plan, r->golden, "dec.target", GOLDEN_TOKENS);
    for (int i = 0; i < arch->layers; i++) {
        for (size_t k = 0; k < sizeof per_layer / sizeof *per_layer; k++) check_tokens(r, per_layer[k], i);
        if (i == 0) golden_check(r->plan, r->golden, "dec.pre_bbox", GOLDEN_TOKENS);
    }
    golden_check(r->plan, r->golden, "dec.logits_before_lqe", GOLDEN_TOKENS);
    golden_check(r->plan, r->golden, "logits", GOLDEN_TOKENS);
    golden_check(r->plan, r->golden, "boxes", GOLDEN_TOKENS);
}

static void against_published(ist_model_kind kind) {
    run r = {0};
    start(&r, kind, true);
    check_encoder(&r, ist_dfine_arch_of(kind));
    golden_check(r.plan, r.golden, "sel.memory", GOLDEN_TOKENS);
    golden_check(r.plan, r.golden, "sel.logits", GOLDEN_TOKENS);
    check_selection(&r);
    check_decoder(&r, ist_dfine_arch_of(kind));
    stop(&r);
}

Test(model_dfine, n) {
    against_published(IST_MODEL_DFINE_N);
}
Test(model_dfine, s) {
    against_published(IST_MODEL_DFINE_S);
}
Test(model_dfine, m) {
    against_published(IST_MODEL_DFINE_M);
}
Test(model_dfine, l) {
    against_published(IST_MODEL_DFINE_L);
}
Test(model_dfine, x) {
    against_published(IST_MODEL_DFINE_X);
}

/* With its own ranking: row i of the result is the query of its i-th token. */
static void read_in_published_order(const run *r, ist_tensor t, const int *natural, float *out) {
    float *rows = malloc((size_t)QUERIES * (size_t)t.c * sizeof *rows);
    cr_assert_not_null(rows);
    OK(ist_plan_read_f32(r->plan, t, rows, &err));
    for (int i = 0; i < QUERIES; i++)
        for (int k = 0; k < QUERIES; k++)
            if (natural[k] == r->order[i])
                for (int c = 0; c < t.c; c++) out[i * t.c + c] = rows[k * t.c + c];
    free(rows);
}

Test(model_dfine, n_with_its_own_ranking) {
    run r = {0};
    int natural[QUERIES];
    static float logits[QUERIES * CLASSES], boxes[QUERIES * 4];
    start(&r, IST_MODEL_DFINE_N, false);
    check_selection(&r);
    OK(ist_plan_read_i32(r.plan, ist_plan_tapped(r.plan, "sel.topk_index"), natural, &err));
    read_in_published_order(&r, r.result.logits, natural, logits);
    read_in_published_order(&r, r.result.boxes, natural, boxes);
    golden_check_values(r.golden, "logits", GOLDEN_TOKENS, logits, QUERIES, CLASSES);
    golden_check_values(r.golden, "boxes", GOLDEN_TOKENS, boxes, QUERIES, 4);
    stop(&r);
}
