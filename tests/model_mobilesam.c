/* MobileSAM against the published network (golden seed 1): synthetic checkpoint and image are rebuilt from the seed. */
#include "models/sam.h"
#include "support/by_shadow.h"
#include "support/golden.h"
#include "synth.h"
#include "variants/lower.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr)                                                                                                       \
    do {                                                                                                               \
        if ((expr) != IST_OK) cr_assert_fail("%s", err.text);                                                          \
    } while (0)

enum { SIDE = 1024, ROWS = 768, COLUMNS = 1024 }; /* the picture; the rest of the input is padding */

static ist_weights *checkpoint(void) {
    ist_error err = {0};
    ist_weights *w = NULL;
    OK(synth_weights(IST_MODEL_MOBILE_SAM, 1, synth_golden_seed(IST_MODEL_MOBILE_SAM, 1), &w, &err));
    return w;
}

/* The normalised picture in a zero square. */
static float *picture(void) {
    static const float mean[3] = {123.675f, 116.28f, 103.53f}, std[3] = {58.395f, 57.12f, 57.375f};
    uint8_t *rgb = malloc((size_t)ROWS * COLUMNS * 3);
    float *x = calloc((size_t)SIDE * SIDE * 3, sizeof *x);
    cr_assert(rgb && x);
    synth_phantom(ROWS, COLUMNS, synth_golden_seed(IST_MODEL_MOBILE_SAM, 1), rgb);
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS * 3; i++) x[i] = ((float)rgb[i] - mean[i % 3]) / std[i % 3];
    free(rgb);
    return x;
}

static const char *const encoder_maps[] = {"patch_embed", "layer0.block0", "layer0.block1"};
static const char *const encoder_tokens[] = {
    "layer0.down",   "layer1.block0", "layer1.block1", "layer1.down", "layer2.block0", "layer2.block1", "layer2.block2",
    "layer2.block3", "layer2.block4", "layer2.block5", "layer2.down", "layer3.block0", "layer3.block1",
};

static bool by_shadow; /* another plan makes the values of constants; a test is a process */

/* Lowers the graph, which is closed. */
static void lower(ist_plan *plan, ist_graph **g, const ist_tensor *input) {
    ist_lowering *lowering = NULL;
    if (by_shadow) {
        lower_by_shadow(plan, *g, input, 1);
    } else {
        ist_lower(plan, *g, input, &lowering);
        ist_lowering_close(&lowering);
    }
    ist_graph_close(g);
}

/* ---- encoder ---- */

/* Replays TinyViT on the picture, `boxed`: of which it knows the size; the caller closes plan and device. */
static void encode(ist_device **device, ist_plan **plan, const ist_weights *weights, bool half, bool boxed) {
    ist_error err = {0};
    float *x = picture();
    OK(ist_device_open(&(ist_device_options){0}, device, &err));
    OK(ist_plan_begin(*device, &(ist_plan_options){.taps = true, .half = half}, plan, &err));
    static const int size[2] = {COLUMNS, ROWS};
    ist_graph *g = NULL;
    ist_tensor image = ist_plan_input(*plan, 1, SIDE, SIDE, 3, IST_ELEM_T), content = {0};
    OK(ist_graph_open(&g, &err));
    if (boxed) content = ist_graph_const(g, size, 1, 1, 1, 2, IST_ELEM_I32, "content");
    ist_tinyvit(&(ist_net){g, weights}, ist_graph_input(g, 1, SIDE, SIDE, 3, IST_ELEM_T), content);
    lower(*plan, &g, &image);
    OK(ist_plan_finish(*plan, &err));
    OK(ist_plan_write_f32(*plan, image, x, &err));
    OK(ist_plan_replay(*plan, &err));
    free(x);
}

static void encoder(bool half) {
    ist_device *device = NULL;
    ist_plan *plan = NULL;
    ist_weights *weights = checkpoint(), *golden = golden_open("mobilesam");
    encode(&device, &plan, weights, half, false);
    for (size_t i = 0; i < sizeof encoder_maps / sizeof *encoder_maps; i++)
        golden_check(plan, golden, encoder_maps[i], GOLDEN_MAP);
    for (size_t i = 0; i < sizeof encoder_tokens / sizeof *encoder_tokens; i++)
        golden_check(plan, golden, encoder_tokens[i], GOLDEN_TOKENS);
    golden_check(plan, golden, "embedding", GOLDEN_MAP);
    ist_plan_close(&plan);
    ist_device_close(&device);
    ist_weights_close(&weights);
    ist_weights_close(&golden);
}

Test(model_mobilesam, encoder) {
    encoder(false);
}

Test(model_mobilesam, encoder_stored_as_half) {
    encoder(true);
}

Test(model_mobilesam, encoder_with_values_of_another_plan) {
    by_shadow = true;
    encoder(false);
    encoder(true);
}

/* ---- prompts ---- */

enum { GRID = SIDE / IST_SAM_PATCH, DIM = IST_SAM_DIM, LOW = 4 * GRID, EMBEDDING = GRID * GRID * DIM };

/* One decoder run. `images` embeddings; prompt i looks at image image_of[i]. Absent parts are NULL or 0. */
typedef struct prompt_case {
    int images, prompts, count; /* count < prompts: the device's prompt count */
    int image_of[8];
    const float *embeddings;
    const float *boxes;  /* [prompts][4] */
    const float *points; /* [prompts][points_each][2] */
    const int *labels;   /* [prompts][points_each] */
    int points_each;
    const float *masks; /* [prompts][256*256] */
    bool multimask, half;
} prompt_case;

typedef struct prompt_run {
    ist_device *device;
    ist_plan *plan;
    ist_weights *weights;
    int prompts;
} prompt_run;

static ist_tensor sparse_of(const ist_net *net, const prompt_case *c, ist_tensor boxes) {
    if (!c->points) return ist_sam_box_tokens(net, boxes, SIDE, true);
    ist_graph *g = net->graph;
    ist_tensor points = ist_graph_const(g, c->points, c->prompts, 1, c->points_each, 2, IST_ELEM_F32, "points");
    ist_tensor labels = ist_graph_const(g, c->labels, c->prompts, 1, c->points_each, 1, IST_ELEM_I32, "labels");
    ist_tensor dots = ist_sam_point_tokens(net, points, labels, SIDE, !c->boxes);
    return c->boxes ? ist_sam_join_tokens(net, dots, ist_sam_box_tokens(net, boxes, SIDE, false)) : dots;
}

static void record_prompts(const ist_net *net, const prompt_case *c) {
    ist_graph *g = net->graph;
    ist_tensor boxes = {0}, masks = {0};
    ist_sam_prompted in = {.embedding = ist_graph_input(g, c->images, GRID, GRID, DIM, IST_ELEM_T)};
    in.image_of = ist_graph_const(g, c->image_of, 1, 1, c->prompts, 1, IST_ELEM_I32, "images");
    if (c->boxes) boxes = ist_graph_const(g, c->boxes, c->prompts, 1, 2, 2, IST_ELEM_F32, "boxes");
    if (c->masks) masks = ist_graph_const(g, c->masks, c->prompts, LOW, LOW, 1, IST_ELEM_F32, "masks");
    if (c->count) ist_graph_limit(g, ist_graph_const(g, &c->count, 1, 1, 1, 1, IST_ELEM_I32, "count"));
    in.sparse = sparse_of(net, c, boxes);
    ist_net_name(net, in.sparse, "sparse");
    if (c->masks) in.dense = ist_sam_mask_prompt(net, masks);
    ist_sam_masks out = ist_sam_decode(net, &in, c->multimask);
    cr_assert(ist_graph_failed(g) || (out.masks == (c->multimask ? 3 : 1) && out.iou.n == c->prompts));
}

static void decode(prompt_run *r, const prompt_case *c) {
    ist_error err = {0};
    ist_graph *g = NULL;
    *r = (prompt_run){.weights = checkpoint(), .prompts = c->prompts};
    OK(ist_device_open(&(ist_device_options){0}, &r->device, &err));
    OK(ist_plan_begin(r->device, &(ist_plan_options){.taps = true, .half = c->half}, &r->plan, &err));
    ist_tensor embedding = ist_plan_input(r->plan, c->images, GRID, GRID, DIM, IST_ELEM_T);
    OK(ist_graph_open(&g, &err));
    record_prompts(&(ist_net){g, r->weights}, c);
    lower(r->plan, &g, &embedding);
    OK(ist_plan_finish(r->plan, &err));
    OK(ist_plan_write_f32(r->plan, embedding, c->embeddings, &err));
    OK(ist_plan_replay(r->plan, &err));
}

static void close_run(prompt_run *r) {
    ist_plan_close(&r->plan);
    ist_device_close(&r->device);
    ist_weights_close(&r->weights);
}

static float *read_tap(const prompt_run *r, const char *name, size_t *count) {
    ist_error err = {0};
    ist_tensor t = ist_plan_tapped(r->plan, name);
    cr_assert(ist_has(t), "no tapped tensor %s", name);
    *count = (size_t)ist_pixels(t) * (size_t)t.c;
    float *values = malloc(*count * sizeof *values);
    cr_assert_not_null(values);
    OK(ist_plan_read_f32(r->plan, t, values, &err));
    return values;
}

/* Leaves the tokens behind the decoder's own, which golden files do not have; returns the new count. */
static size_t drop_own_tokens(float *v, size_t count, int prompts) {
    size_t own = IST_SAM_OWN_TOKENS * IST_SAM_DIM, each = count / (size_t)prompts;
    for (size_t i = 0; i < (size_t)prompts; i++)
        memmove(v + i * (each - own), v + i * each + own, (each - own) * sizeof *v);
    return count - (size_t)prompts * own;
}

/* Every tensor of the run named PREFIX.* in the golden file; several prompts may share their image to the end, and then
 * have no keys of their own, and where only some tokens are asked for in the end, there are no others. */
static void check_prompt(const prompt_run *r, const ist_weights *golden, const char *prefix) {
    static const char *const names[] = {"sparse", "tokens", "keys", "masks", "iou"};
    char name[64];
    size_t count;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (r->prompts > 1 && !strcmp(names[i], "keys")) continue;
        float *got = read_tap(r, names[i], &count);
        if (!strcmp(names[i], "sparse")) count = drop_own_tokens(got, count, r->prompts);
        snprintf(name, sizeof name, "%s.%s", prefix, names[i]);
        ist_tensor t = ist_plan_tapped(r->plan, names[i]), all = ist_plan_tapped(r->plan, "sparse");
        if (!strcmp(names[i], "tokens"))
            golden_check_first(golden, name, got, (size_t)t.n, (size_t)all.w, (size_t)t.w, (size_t)t.c);
        else
            golden_check_values(golden, name, GOLDEN_TOKENS, got, count, 1);
        free(got);
    }
}

/* What knows of the padding below the picture makes the same bits. */
static void boxed_encoder(bool half) {
    static const char *const names[] = {"patch_embed",   "layer0.block0", "layer0.block1", "layer0.down",
                                        "layer1.block0", "layer1.block1", "layer1.down",   "embedding"};
    ist_error err = {0};
    ist_device *device[2] = {NULL, NULL};
    ist_plan *plan[2] = {NULL, NULL};
    ist_weights *weights = checkpoint();
    for (int k = 0; k < 2; k++) encode(&device[k], &plan[k], weights, half, k);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        float *v[2];
        size_t count = 0;
        for (int k = 0; k < 2; k++) {
            ist_tensor t = ist_plan_tapped(plan[k], names[i]);
            count = (size_t)ist_pixels(t) * (size_t)t.c;
            v[k] = malloc(count * sizeof *v[k]);
            cr_assert(ist_has(t) && v[k]);
            OK(ist_plan_read_f32(plan[k], t, v[k], &err));
        }
        cr_expect(!memcmp(v[0], v[1], count * sizeof *v[0]), "%s", names[i]);
        free(v[0]);
        free(v[1]);
    }
    for (int k = 0; k < 2; k++) {
        ist_plan_close(&plan[k]);
        ist_device_close(&device[k]);
    }
    ist_weights_close(&weights);
}

Test(model_mobilesam, letterboxed) {
    boxed_encoder(false);
}

Test(model_mobilesam, letterboxed_in_half) {
    boxed_encoder(true);
}

static float *golden_floats(const ist_weights *golden, const char *name) {
    const ist_weight *w = ist_weights_find(golden, name);
    ist_error err = {0};
    cr_assert_not_null(w, "no golden tensor %s", name);
    float *v = malloc(w->count * sizeof *v);
    cr_assert_not_null(v);
    OK(ist_weight_read_f32(w, v, &err));
    return v;
}

/* The picture's embedding from our own encoder; one test checks it, the others rely on it. */
static float *own_embedding(void) {
    ist_error err = {0};
    ist_device *device = NULL;
    ist_plan *plan = NULL;
    ist_weights *weights = checkpoint();
    float *v = malloc((size_t)EMBEDDING * sizeof *v);
    cr_assert_not_null(v);
    encode(&device, &plan, weights, false, false);
    OK(ist_plan_read_f32(plan, ist_plan_tapped(plan, "embedding"), v, &err));
    ist_plan_close(&plan);
    ist_device_close(&device);
    ist_weights_close(&weights);
    return v;
}

Test(model_mobilesam, prompts) {
    static const int labels[2] = {1, 0};
    ist_weights *golden = golden_open("mobilesam");
    float *embedding = own_embedding(), *boxes = golden_floats(golden, "prompt.boxes");
    float *points = golden_floats(golden, "prompt.points"), *masks = golden_floats(golden, "box.masks");
    prompt_run r;
    decode(&r, &(prompt_case){.images = 1, .prompts = 3, .embeddings = embedding, .boxes = boxes});
    check_prompt(&r, golden, "box");
    golden_check(r.plan, golden, "dense_pe", GOLDEN_MAP);
    close_run(&r);
    decode(&r, &(prompt_case){.images = 1,
                              .prompts = 1,
                              .embeddings = embedding,
                              .points = points,
                              .labels = labels,
                              .points_each = 2,
                              .multimask = true});
    check_prompt(&r, golden, "points");
    close_run(&r);
    decode(&r, &(prompt_case){.images = 1,
                              .prompts = 1,
                              .embeddings = embedding,
                              .points = points,
                              .labels = labels,
                              .points_each = 1,
                              .boxes = boxes,
                              .masks = masks,
                              .multimask = true});
    check_prompt(&r, golden, "mixed");
    close_run(&r);
    free(embedding);
    free(boxes);
    free(points);
    free(masks);
    ist_weights_close(&golden);
}

/* Halves move the logits by at most twice what they did in the published network with emulated halves. */
Test(model_mobilesam, prompts_stored_as_half) {
    enum { HALF_MAX = 7 }; /* of the stored statistics */
    ist_weights *golden = golden_open("mobilesam");
    float *embedding = own_embedding(), *boxes = golden_floats(golden, "prompt.boxes");
    float *want = golden_floats(golden, "box.masks"), *stat = golden_floats(golden, "box.masks.stat");
    size_t count;
    prompt_run r;
    decode(&r, &(prompt_case){.images = 1, .prompts = 3, .embeddings = embedding, .boxes = boxes, .half = true});
    float *got = read_tap(&r, "masks", &count);
    cr_assert_eq(count, (size_t)3 * LOW * LOW);
    for (size_t i = 0; i < count; i++)
        cr_assert(fabsf(got[i] - want[i]) <= 2 * stat[HALF_MAX], "logit %zu is %g, golden %g, allowed difference %g", i,
                  got[i], want[i], 2 * stat[HALF_MAX]);
    close_run(&r);
    free(embedding);
    free(boxes);
    free(want);
    free(stat);
    free(got);
    ist_weights_close(&golden);
}

/* Bit for bit. */
Test(model_mobilesam, prompts_with_values_of_another_plan) {
    ist_weights *golden = golden_open("mobilesam");
    float *embedding = own_embedding(), *boxes = golden_floats(golden, "prompt.boxes");
    for (int half = 0; half < 2; half++) {
        size_t count;
        float *masks[2];
        for (int k = 0; k < 2; k++) {
            prompt_run r;
            by_shadow = k;
            decode(&r, &(prompt_case){.images = 1, .prompts = 2, .embeddings = embedding, .boxes = boxes, .half = half});
            masks[k] = read_tap(&r, "masks", &count);
            close_run(&r);
        }
        cr_expect(!memcmp(masks[0], masks[1], count * sizeof(float)), "%s", half ? "half" : "float");
        free(masks[0]);
        free(masks[1]);
    }
    free(embedding);
    free(boxes);
    ist_weights_close(&golden);
}

/* Four places for prompts of which the device uses three, on two images: each prompt's answer is that of its own image,
 * whatever stands beside it, bit for bit. As many places for one alone, since their number may choose other variants. */
Test(model_mobilesam, prompts_of_two_images_with_a_count) {
    ist_weights *golden = golden_open("mobilesam");
    float *boxes = golden_floats(golden, "prompt.boxes"), four[16],
          *pair = malloc(2 * (size_t)EMBEDDING * sizeof *pair);
    cr_assert_not_null(pair);
    for (size_t i = 0; i < 2 * (size_t)EMBEDDING; i++) /* any two embeddings do */
        pair[i] = (float)synth_draw(synth_base("embedding", 1), i) / 8388608.0f - 1.0f;
    memcpy(four, boxes, 12 * sizeof *four);
    four[12] = four[13] = four[14] = four[15] = NAN;
    prompt_run all, one;
    size_t count, single;
    decode(
        &all,
        &(prompt_case){
            .images = 2, .prompts = 4, .count = 3, .image_of = {1, 0, 1, 1 << 20}, .embeddings = pair, .boxes = four});
    float *masks = read_tap(&all, "masks", &count), *iou = read_tap(&all, "iou", &single);
    for (int i = 0; i < 3; i++) {
        const float *own = pair + (i == 1 ? 0 : EMBEDDING);
        memcpy(four, boxes + 4 * i, 4 * sizeof *four);
        decode(&one, &(prompt_case){.images = 1, .prompts = 4, .count = 1, .embeddings = own, .boxes = four});
        float *mask = read_tap(&one, "masks", &count), *quality = read_tap(&one, "iou", &single);
        cr_assert_eq(memcmp(mask, masks + (size_t)i * LOW * LOW, (size_t)LOW * LOW * sizeof *mask), 0, "prompt %d", i);
        cr_assert_eq(*quality, iou[i], "prompt %d", i);
        free(mask);
        free(quality);
        close_run(&one);
    }
    free(masks);
    free(iou);
    close_run(&all);
    free(boxes);
    free(pair);
    ist_weights_close(&golden);
}

/* Squares of multiples of 32 only. */
static void refused(int h, int w, int c) {
    ist_error err = {0};
    ist_graph *g = NULL;
    ist_weights *weights = checkpoint();
    char sentence[96];
    snprintf(sentence, sizeof sentence, "image [1,%d,%d,%d], it takes squares of multiples of 32, RGB", h, w, c);
    OK(ist_graph_open(&g, &err));
    ist_tensor y = ist_tinyvit(&(ist_net){g, weights}, ist_graph_input(g, 1, h, w, c, IST_ELEM_T), (ist_tensor){0});
    cr_assert_not(ist_has(y));
    cr_assert_eq(g->error.code, IST_E_ARGUMENT);
    cr_assert_not_null(strstr(g->error.text, sentence), "%s", g->error.text);
    ist_graph_close(&g);
    ist_weights_close(&weights);
}

Test(model_mobilesam, refuses_another_image_size) {
    refused(512, 1024, 3);
    refused(1000, 1000, 3);
    refused(16, 16, 3);
    refused(1024, 1024, 4);
}

/* A side other than the published one makes an embedding of its own grid. */
Test(model_mobilesam, embedding_of_a_smaller_side) {
    ist_error err = {0};
    ist_graph *g = NULL;
    ist_weights *weights = checkpoint();
    OK(ist_graph_open(&g, &err));
    ist_tensor y = ist_tinyvit(&(ist_net){g, weights}, ist_graph_input(g, 2, 256, 256, 3, IST_ELEM_T), (ist_tensor){0});
    cr_assert(y.n == 2 && y.h == 16 && y.w == 16 && y.c == DIM, "%s", g->error.text);
    ist_graph_close(&g);
    ist_weights_close(&weights);
}
