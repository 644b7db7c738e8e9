/* SAM's ViT encoder against the published classes (tests/golden/models/sam_vit.safetensors,
 * tests/official/make_sam_vit.py): three blocks of 192 channels on a grid of 20 x 20 tokens, which windows of 14 x 14
 * do not divide; the second block sees the whole map. Checkpoint and image are rebuilt from the seed. */
#include "models/sam.h"
#include "support/golden.h"
#include "synth.h"
#include "variants/lower.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr)                                                                                                       \
    do {                                                                                                               \
        if ((expr) != IST_OK) cr_assert_fail("%s", err.text);                                                          \
    } while (0)

enum { SEED = 1, SIDE = 320, ROWS = 240, COLUMNS = 320, PROMPTS = 2 };
static const ist_arch_form small = {
    .kind = IST_MODEL_SAM_VIT, .channels = 3, .side = SIDE, .blocks = 3, .width = 192, .whole_map = 1 << 1};
static const float boxes[PROMPTS][4] = {{40, 30.5f, 200, 180.25f}, {101, 60, 310, 235}};

static ist_weights *checkpoint(void) {
    ist_error err = {0};
    ist_weights *w = NULL;
    OK(synth_weights_of(&small, SEED, &w, &err));
    return w;
}

/* The normalised picture in a zero square. */
static float *picture(void) {
    const ist_segmenter_model *m = ist_segmenter_of(IST_MODEL_SAM_VIT);
    uint8_t *rgb = malloc((size_t)ROWS * COLUMNS * 3);
    float *x = calloc((size_t)SIDE * SIDE * 3, sizeof *x);
    cr_assert(rgb && x);
    synth_phantom(ROWS, COLUMNS, SEED, rgb);
    for (int y = 0; y < ROWS; y++)
        for (int i = 0; i < COLUMNS * 3; i++)
            x[y * SIDE * 3 + i] = ((float)rgb[y * COLUMNS * 3 + i] - m->mean[i % 3]) / m->std[i % 3];
    free(rgb);
    return x;
}

/* ---- the network ---- */

typedef struct run {
    ist_device *device;
    ist_plan *plan;
    ist_graph *graph;
    ist_lowering *lowering;
    ist_weights *weights;
} run;

static void close_run(run *r) {
    ist_lowering_close(&r->lowering);
    ist_graph_close(&r->graph);
    ist_plan_close(&r->plan);
    ist_device_close(&r->device);
    ist_weights_close(&r->weights);
}

/* Encoder and decoder as the pipeline records them, replayed on the picture. */
static void replay(run *r, bool half) {
    ist_error err = {0};
    const ist_segmenter_model *m = ist_segmenter_of(IST_MODEL_SAM_VIT);
    float *x = picture();
    r->weights = checkpoint();
    OK(ist_device_open(&(ist_device_options){0}, &r->device, &err));
    OK(ist_plan_begin(r->device, &(ist_plan_options){.taps = true, .half = half}, &r->plan, &err));
    OK(ist_graph_open(&r->graph, &err));
    const ist_net net = {r->graph, r->weights};
    ist_tensor image = ist_graph_input(r->graph, 1, SIDE, SIDE, 3, IST_ELEM_T);
    ist_tensor corners = ist_graph_const(r->graph, boxes, PROMPTS, 1, 2, 2, IST_ELEM_F32, "boxes");
    ist_prompted in = {.embedding = m->encode(&net, image, (ist_tensor){0})};
    in.sparse = m->boxes(&net, corners, SIDE, true);
    ist_prompt_masks out = m->decode(&net, &in, false);
    cr_assert_not(ist_graph_failed(r->graph), "%s", r->graph->error.text);
    ist_graph_output(r->graph, out.low_res);
    ist_graph_output(r->graph, out.iou);
    ist_tensor at = ist_plan_input(r->plan, 1, SIDE, SIDE, 3, IST_ELEM_T);
    ist_lower(r->plan, r->graph, &at, &r->lowering);
    OK(ist_plan_finish(r->plan, &err));
    OK(ist_plan_write_f32(r->plan, at, x, &err));
    OK(ist_plan_replay(r->plan, &err));
    free(x);
}

/* Of both prompts. */
static void check_answer(const run *r, const ist_weights *golden, const char *tap, const char *name) {
    ist_error err = {0};
    ist_tensor t = ist_plan_tapped(r->plan, tap);
    cr_assert(ist_has(t), "no tapped tensor %s", tap);
    size_t count = (size_t)ist_pixels(t) * (size_t)t.c;
    float *values = malloc(count * sizeof *values);
    cr_assert_not_null(values);
    OK(ist_plan_read_f32(r->plan, t, values, &err));
    golden_check_values(golden, name, GOLDEN_TOKENS, values, count, 1);
    free(values);
}

static void whole(bool half) {
    static const char *const maps[] = {"patch_embed", "block0", "block1", "block2", "embedding"};
    run r = {0};
    ist_weights *golden = golden_open("sam_vit");
    replay(&r, half);
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) golden_check(r.plan, golden, maps[i], GOLDEN_MAP);
    if (!half) {
        check_answer(&r, golden, "masks", "box.masks");
        check_answer(&r, golden, "iou", "box.iou");
    }
    close_run(&r);
    ist_weights_close(&golden);
}

Test(model_sam_vit, embedding_and_masks) {
    whole(false);
}

Test(model_sam_vit, stored_as_half) {
    whole(true);
}

/* Blocks without whole-map attention, and an image of another side, are other networks: the graph says so. */
Test(model_sam_vit, refuses_another_side) {
    ist_error err = {0};
    ist_graph *g = NULL;
    ist_weights *w = checkpoint();
    OK(ist_graph_open(&g, &err));
    ist_tensor y = ist_sam_vit(&(ist_net){g, w}, ist_graph_input(g, 1, 256, 256, 3, IST_ELEM_T), (ist_tensor){0});
    cr_expect_not(ist_has(y));
    cr_expect_eq(g->error.code, IST_E_ARGUMENT);
    cr_expect_not_null(strstr(g->error.text, "image [1,256,256,3], this checkpoint is for 320 x 320"), "%s",
                       g->error.text);
    ist_graph_close(&g);
    ist_weights_close(&w);
}

/* ---- the checkpoint ---- */

static void identify(const ist_weights *w, ist_checkpoint_info *info) {
    ist_error err = {0};
    OK(ist_checkpoint_identify(w, info, &err));
    cr_assert_eq(info->kind, IST_MODEL_SAM_VIT);
}

Test(model_sam_vit, recognised_with_its_side) {
    ist_error err = {0};
    ist_checkpoint_info info;
    ist_weights *w = checkpoint();
    int side = 0;
    identify(w, &info);
    OK(ist_checkpoint_check(&info, &err));
    cr_expect_eq(info.side, SIDE);
    cr_expect_eq(info.classes, 0);
    cr_expect_eq(info.unused.count, 0);
    OK(ist_segmenter_side(&info, 0, &side, &err));
    cr_expect_eq(side, SIDE);
    OK(ist_segmenter_side(&info, SIDE, &side, &err));
    cr_expect_eq(ist_segmenter_side(&info, 1024, &side, &err), IST_E_ARGUMENT);
    cr_expect_str_eq(err.text, "segmenter size 1024: this sam-vit checkpoint is for 320");
    ist_checkpoint_info_free(&info);
    ist_weights_close(&w);
}

/* The same tensors but for one, which is left out or has other dims. */
typedef struct change {
    const char *name;
    int rank;
    int64_t dims[4];
} change;

static void changed(const change *c, const char *sentence) {
    ist_error err = {0};
    ist_checkpoint_info info;
    ist_weights *all = checkpoint(), *w = NULL;
    OK(ist_weights_create(&w, &err));
    for (size_t i = 0; i < ist_weights_count(all); i++) {
        const ist_weight *t = ist_weights_at(all, i);
        bool this = !strcmp(t->name, c->name);
        if (this && !c->rank) continue;
        OK(ist_weights_add(w, t->name, t->type, this ? c->rank : t->rank, this ? c->dims : t->dims, t->data, &err));
    }
    identify(w, &info);
    cr_expect_eq(ist_checkpoint_check(&info, &err), IST_E_WEIGHTS);
    cr_expect_str_eq(err.text, sentence);
    ist_checkpoint_info_free(&info);
    ist_weights_close(&all);
    ist_weights_close(&w);
}

Test(model_sam_vit, names_what_does_not_fit) {
    static const struct {
        change c;
        const char *sentence;
    } cases[] = {
        {{"image_encoder.blocks.1.attn.rel_pos_h", 2, {31, 64}},
         "image_encoder.blocks.1.attn.rel_pos_h: want [27,64], file has [31,64] (and 1 more problem)"},
        {{"image_encoder.blocks.1.attn.rel_pos_w", 2, {27, 64}},
         "image_encoder.blocks.1.attn.rel_pos_w: want [39,64], file has [27,64]"},
        {{"image_encoder.blocks.2.attn.qkv.weight", 2, {576, 96}},
         "image_encoder.blocks.2.attn.qkv.weight: want [576,192], file has [576,96]"},
        {{"image_encoder.pos_embed", 4, {1, 20, 10, 192}},
         "image_encoder.pos_embed: want [1,20,20,192], file has [1,20,10,192]"},
        {{"image_encoder.blocks.0.mlp.lin2.bias", 0, {0}},
         "image_encoder.blocks.0.mlp.lin2.bias: missing from this sam-vit checkpoint"},
        {{"image_encoder.neck.2.weight", 0, {0}}, "image_encoder.neck.2.weight: missing from this sam-vit checkpoint"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) changed(&cases[i].c, cases[i].sentence);
}
