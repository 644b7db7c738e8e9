/* D-FINE, all five sizes, layer by layer against the published network (golden seed 1): synthetic checkpoint and image
 * are rebuilt from the seed. The decoder is given the published order of the queries, so that rows correspond; the
 * selection itself is compared as a set, and end to end for size N. ISTHMUS_VERBOSE=1 prints every difference. */
#include "support/dfine_run.h"
#include "support/golden.h"
#include "synth.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 640, CLASSES = 80, QUERIES = IST_DFINE_QUERIES };

/* A replayed golden case. */
typedef struct run {
    dfine_run net;
    ist_weights *golden;
    int *order; /* the published 300 tokens, best first */
} run;

static void start(run *r, ist_model_kind kind, bool forced, bool half) {
    char file[32];
    snprintf(file, sizeof file, "dfine_%c", ist_model_name(kind)[6]);
    r->golden = golden_open(file);
    r->order = golden_ints(r->golden, "sel.topk_index", QUERIES);
    dfine_setup setup = {.kind = kind, .classes = CLASSES, .n = 1, .h = SIDE, .w = SIDE};
    setup.seed = synth_golden_seed(kind, 1);
    if (forced) setup.order = r->order;
    setup.half = half;
    dfine_start(&r->net, &setup);
}

static void stop(run *r) {
    free(r->order);
    ist_weights_close(&r->golden);
    dfine_stop(&r->net);
}

static int rising(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* The selection takes the published tokens, in any order: some of their scores differ by less than rounding. */
static void check_selection(const run *r) {
    int wanted[QUERIES], *natural = dfine_read_ints(&r->net, "sel.topk_index");
    for (int i = 0; i < QUERIES; i++) wanted[i] = r->order[i];
    qsort(natural, QUERIES, sizeof *natural, rising);
    qsort(wanted, QUERIES, sizeof *wanted, rising);
    for (int i = 0; i < QUERIES; i++)
        cr_assert_eq(natural[i], wanted[i], "selected token %d in rising order: %d, published %d", i, natural[i],
                     wanted[i]);
    free(natural);
}

static void check_map(const run *r, const char *fmt, int i) {
    char name[64];
    snprintf(name, sizeof name, fmt, i);
    golden_check(r->net.plan, r->golden, name, GOLDEN_MAP);
}

static void check_tokens(const run *r, const char *fmt, int i) {
    char name[64];
    snprintf(name, sizeof name, fmt, i);
    golden_check(r->net.plan, r->golden, name, GOLDEN_TOKENS);
}

static void check_encoder(const run *r, const ist_dfine_arch *arch) {
    golden_check(r->net.plan, r->golden, "stem", GOLDEN_MAP);
    for (int i = 0; i < 4; i++) { /* the first two may be one launch with what comes behind them */
        bool kept = i > 1 || ist_has(ist_plan_tapped(r->net.plan, i ? "stage1" : "stage0"));
        if (kept) check_map(r, "stage%d", i);
    }
    for (int i = 0; i < arch->levels; i++) { /* the others are merged into the layer that reads them */
        bool alone = i == arch->levels - 1 || arch->stages[4 - arch->levels + i].out > 2 * arch->hidden;
        if (alone) check_map(r, "enc.proj%d", i);
    }
    golden_check(r->net.plan, r->golden, "enc.aifi0", GOLDEN_TOKENS);
    for (int i = 0; i + 1 < arch->levels; i++) {
        check_map(r, "enc.lateral%d", i);
        check_map(r, "enc.fpn%d", i);
        check_map(r, "enc.down%d", i);
        check_map(r, "enc.pan%d", i);
    }
    golden_check(r->net.plan, r->golden, "dec.memory", GOLDEN_TOKENS);
}

static void check_decoder(const run *r, const ist_dfine_arch *arch) {
    static const char *const per_layer[] = {"dec.ref%d",     "dec.pos%d",    "dec.l%d.self", "dec.l%d.offsets",
                                            "dec.l%d.cross", "dec.l%d.gate", "dec.l%d.out",  "dec.l%d.corners"};
    golden_check(r->net.plan, r->golden, "dec.target", GOLDEN_TOKENS);
    for (int i = 0; i < arch->layers; i++) {
        for (size_t k = 0; k < sizeof per_layer / sizeof *per_layer; k++) check_tokens(r, per_layer[k], i);
        if (i == 0) golden_check(r->net.plan, r->golden, "dec.pre_bbox", GOLDEN_TOKENS);
    }
    golden_check(r->net.plan, r->golden, "dec.logits_before_lqe", GOLDEN_TOKENS);
    golden_check(r->net.plan, r->golden, "logits", GOLDEN_TOKENS);
    golden_check(r->net.plan, r->golden, "boxes", GOLDEN_TOKENS);
}

static void against_published(ist_model_kind kind, bool half) {
    run r = {0};
    start(&r, kind, true, half);
    check_encoder(&r, ist_dfine_arch_of(kind));
    golden_check(r.net.plan, r.golden, "sel.memory", GOLDEN_TOKENS);
    golden_check(r.net.plan, r.golden, "sel.logits", GOLDEN_TOKENS);
    if (!half) check_selection(&r); /* near rank 300 halves choose a little differently */
    check_decoder(&r, ist_dfine_arch_of(kind));
    stop(&r);
}

Test(model_dfine, n) {
    against_published(IST_MODEL_DFINE_N, false);
}
Test(model_dfine, s) {
    against_published(IST_MODEL_DFINE_S, false);
}
Test(model_dfine, m) {
    against_published(IST_MODEL_DFINE_M, false);
}
Test(model_dfine, l) {
    against_published(IST_MODEL_DFINE_L, false);
}
Test(model_dfine, x) {
    against_published(IST_MODEL_DFINE_X, false);
}

Test(model_dfine, n_stored_as_half) {
    against_published(IST_MODEL_DFINE_N, true);
}
Test(model_dfine, s_stored_as_half) {
    against_published(IST_MODEL_DFINE_S, true);
}

/* Rows of a result in the published order of the queries; natural: the tokens in the order of the result. */
static float *in_published_order(const run *r, const char *name, int columns, const int *natural) {
    float *rows = dfine_read(&r->net, name), *sorted = calloc((size_t)QUERIES * (size_t)columns, sizeof *sorted);
    cr_assert_not_null(sorted);
    for (int i = 0; i < QUERIES; i++)
        for (int k = 0; k < QUERIES; k++)
            if (natural[k] == r->order[i])
                memcpy(sorted + i * columns, rows + k * columns, (size_t)columns * sizeof *rows);
    free(rows);
    return sorted;
}

Test(model_dfine, n_with_its_own_ranking) {
    run r = {0};
    start(&r, IST_MODEL_DFINE_N, false, false);
    check_selection(&r);
    int *natural = dfine_read_ints(&r.net, "sel.topk_index");
    float *logits = in_published_order(&r, "logits", CLASSES, natural);
    float *boxes = in_published_order(&r, "boxes", 4, natural);
    golden_check_values(r.golden, "logits", GOLDEN_TOKENS, logits, QUERIES, CLASSES);
    golden_check_values(r.golden, "boxes", GOLDEN_TOKENS, boxes, QUERIES, 4);
    free(natural);
    free(logits);
    free(boxes);
    stop(&r);
}
