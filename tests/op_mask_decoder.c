/* SAM's mask decoder as a span: the transformer, the MLPs of its tokens and the upscaling of its image, by each of its
 * variants against the scalar reference. */
#include "support/chosen_variant.h"
#include "support/claimed_amx.h"
#include "support/sam_span.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { C1 = IST_UPSCALE_MIDDLE, C2 = IST_UPSCALE_OUT, IOUS = 4 };

/* What follows the transformer. */
typedef struct heads {
    int masks, first; /* of the mask tokens: how many, and how many before them are left out */
    ref_linear mlp[IST_TOKEN_MLPS_MAX][3];
    float *w1, *b1, *w2, *b2, *gamma, *beta;
    ist_tensor iou, logits;
} heads;

static heads add_heads(optest *t, sam_span *s, int masks, int first) {
    int dim = s->shape.dim, grid = s->shape.grid;
    heads h = {.masks = masks, .first = first};
    ist_token_mlps mlps = {.label = "MLPs", .x = s->tokens_out, .count = 1 + masks, .first = first};
    for (int i = 0; i <= masks; i++) {
        mlps.names[i] = "MLP";
        for (int l = 0; l < 3; l++) {
            h.mlp[i][l] = sam_linear(t, s, l < 2 ? dim : i ? C2 : IOUS, dim);
            mlps.mlp[i][l] = sam_filter(h.mlp[i][l]);
        }
    }
    lowered_add(&s->graph, IST_NODE_TOKEN_MLPS, &mlps);
    h.w1 = sam_numbers(t, s, dim * C1 * 4, -0.1f, 0.1f), h.b1 = sam_numbers(t, s, C1, -0.5f, 0.5f);
    h.w2 = sam_numbers(t, s, C1 * C2 * 4, -0.1f, 0.1f), h.b2 = sam_numbers(t, s, C2, -0.5f, 0.5f);
    h.gamma = sam_numbers(t, s, C1, 0.5f, 1.5f), h.beta = sam_numbers(t, s, C1, -0.5f, 0.5f);
    ist_upscale up = {.label = "upscale",
                      .x = ist_view(s->image_out, s->image_out.n, grid, grid),
                      .vectors = mlps.vectors,
                      .w1 = {h.w1, (size_t)dim * C1 * 4, NULL},
                      .b1 = {h.b1, C1, NULL},
                      .w2 = {h.w2, C1 * C2 * 4, NULL},
                      .b2 = {h.b2, C2, NULL},
                      .norm = {h.gamma, h.beta, C1, NULL},
                      .eps = 1e-6f};
    lowered_add(&s->graph, IST_NODE_UPSCALE, &up);
    h.iou = mlps.iou;
    h.logits = up.y;
    return h;
}

static void check(optest *t, const sam_span *s, const heads *h, ref_map iou, ref_map logits) {
    int count = s->shape.count, grid = s->shape.grid, dim = s->shape.dim;
    ref_map tokens, image, vectors = optest_zeros(t, count, 1, h->masks, C2);
    ref_map want_iou = optest_zeros(t, count, 1, 1, IOUS);
    ref_map want = optest_zeros(t, count * h->masks, 4 * grid, 4 * grid, 1);
    sam_reference(t, s, &tokens, &image);
    for (int n = 0; n < count; n++)
        for (int i = 0; i <= h->masks; i++)
            ref_token_mlp(ref_at(tokens, n, 0, i ? h->first + i : 0), h->mlp[i],
                          i ? ref_at(vectors, n, 0, i - 1) : ref_at(want_iou, n, 0, 0));
    image = (ref_map){count, grid, grid, dim, image.v};
    ref_upscale(image, h->w1, h->b1, h->gamma, h->beta, 1e-6, h->w2, h->b2, vectors, want);
    iou.n = count;
    logits.n = count * h->masks;
    optest_close(t, "IoU", iou, want_iou, 0, t->half ? 4e-2 : 1e-4);
    optest_close(t, "logits", logits, want, 0, t->half ? 1e-1 : 2e-4);
}

/* By the variant: where that takes no decoder of few prompts, another may share them. */
static bool launched(const optest *t, const char *op, const char *variant) {
    bool found = false;
    for (int i = 0; !found && i < ist_plan_describe(t->plan).launches; i++) {
        const ist_launch *l = ist_plan_launch_at(t->plan, i);
        found = !strcmp(l->op, op) && !strcmp(l->from.variant, variant);
    }
    return found;
}

/* map: the image of each prompt. shared: whether prompts must have shared what is their image's. */
static void decoder_case(sam_shape shape, const int *map, int masks, int first, const char *variant, bool shared) {
    optest t;
    sam_span s;
    optest_begin(&t, variant, (unsigned)(shape.grid + 10 * shape.tokens + 100 * shape.prompts));
    chosen_variant = ist_variant_named(IST_SPAN_MASK_DECODER, variant);
    if (!chosen_variant || !ist_variant_runs(t.plan, chosen_variant)) {
        optest_drop(&t);
        cr_skip_test("%s cannot run here", variant);
    }
    sam_begin(&t, &s, shape, map);
    ist_graph_begin(s.graph.graph, IST_SPAN_MASK_DECODER, "decoder");
    sam_add_two_way(&s);
    heads h = add_heads(&t, &s, masks, first);
    ist_graph_end(s.graph.graph);
    ist_graph_output(s.graph.graph, h.iou);
    ist_graph_output(s.graph.graph, h.logits);
    lowered_run(&s.graph, &t);
    ist_tensor iou = lowered_place(&s.graph, h.iou), logits = lowered_place(&s.graph, h.logits);
    optest_run(&t);
    cr_expect_eq(launched(&t, "cpu/two_way_shared", variant), shared, "%s of %d prompts", variant, shape.prompts);
    if (shared) sam_made_by(&t, "cpu/two_way_shared", variant);
    check(&t, &s, &h, optest_read(&t, iou), optest_read(&t, logits));
    lowered_end(&s.graph);
    optest_end(&t);
}

/* few: prompts of an image up to which sharing does not pay, as the table has it. */
static void shapes(const char *variant, int few) {
    static const int one[SAM_PROMPTS] = {0}, most[SAM_PROMPTS] = {1, 0, 1, 1, 1, 1, 0, 1}, turns[] = {0, 1, 0, 1, 0, 1};
    bool shares = few > 0;
    sam_shape shape = {few + 1, few + 1, 1, 5, 7, 64, 32, 64, false};
    decoder_case(shape, one, 1, 0, variant, shares);
    if (optest_small()) return;
    shape = (sam_shape){8, 8, 2, 6, 7, 64, 32, 64, false}; /* six of one image, two of the other */
    decoder_case(shape, most, 3, 1, variant, shares);
    shape.tokens = 5, shape.grid = 9, shape.count = 6; /* the device's count leaves some out */
    decoder_case(shape, most, 1, 0, variant, shares);
    shape = (sam_shape){6, 6, 2, 5, 8, 128, 64, 64, false}; /* no image has more than a few where those are four */
    decoder_case(shape, turns, 2, 0, variant, shares);
    shape.prompts = shape.count = few; /* too few to share */
    if (few) decoder_case(shape, one, 1, 1, variant, false);
    shape = (sam_shape){6, 6, 2, 5, 7, 64, 32, 64, true}; /* a dense prompt: images differ from prompt to prompt */
    decoder_case(shape, one, 1, 0, variant, false);
}

/* The number that the table has for the variant. */
static int few_of(const char *variant) {
    const ist_variant *v = ist_variant_named(IST_SPAN_MASK_DECODER, variant);
    return v ? *(const int *)v->config : 1;
}

Test(mask_decoder, nodes) {
    shapes("nodes", 0);
}

Test(mask_decoder, shared) {
    shapes("shared", few_of("shared"));
}

Test(mask_decoder, shared_amx) {
    if (getenv("ISTHMUS_HALF")) return; /* of float storage only */
    claim_amx();
    shapes("shared_amx", few_of("shared_amx"));
}
