/* SAM's mask decoder (mobilesam.md 4; Kirillov et al., ICCV 2023): a two-way transformer between a few tokens and the
 * 64x64 image, upscaling, and one dot product per mask.
 *
 * P prompts share the embedding of their image. What does not depend on the prompt (without a mask prompt: keys, values
 * and queries of layer 0's image side) is computed once per image and reached through `image_of`. */
#include "models/bridge.h"
#include "models/mobilesam.h"
#include "ops/prompt.h"

#include <math.h>
#include <stdlib.h>

enum { MASK_TOKENS = 4, HEADS = 8, GRID = IST_SAM_GRID, DIM = IST_SAM_DIM };

/* The image side of the transformer: n is the number of images until prompts have changed it, then P. */
typedef struct image_side {
    ist_tensor k;   /* [n,1,4096,256] */
    ist_tensor kpe; /* k + position */
    ist_tensor map; /* item of k for each prompt, or empty: prompt i has item i */
} image_side;

typedef struct decoder {
    ist_net net;
    ist_tensor t;     /* initial tokens [P,1,N,256], added to every query */
    ist_tensor pe;    /* dense position code [1,1,4096,256] */
    ist_tensor limit; /* prompts */
    ist_tensor image_of;
    int prompts;
} decoder;

/* ---- constants ---- */

/* Position code of the grid: row i, column j at ((j + 0.5) / 64, (i + 0.5) / 64). */
static ist_tensor dense_position(const ist_net *net) {
    ist_tensor pe = {0};
    int64_t dims[2] = {2, DIM / 2};
    float *gauss = NULL, *code = malloc(sizeof *code * GRID * GRID * DIM);
    ist_plan *p = net->plan;
    if (!code) ist_plan_fail(p, IST_E_MEMORY, "mask decoder: out of host memory");
    if (!ist_plan_status(p))
        ist_weights_f32(net->weights, "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix", 2, dims, &gauss,
                        ist_plan_error(p));
    if (!ist_plan_status(p)) {
        for (int at = 0; at < GRID * GRID; at++)
            for (int f = 0; f < DIM / 2; f++) {
                double x = 2.0 * ((at % GRID + 0.5) / GRID) - 1.0, y = 2.0 * ((at / GRID + 0.5) / GRID) - 1.0;
                double z = 6.283185307179586 * (x * gauss[f] + y * gauss[DIM / 2 + f]);
                code[at * DIM + f] = (float)sin(z);
                code[at * DIM + DIM / 2 + f] = (float)cos(z);
            }
        pe = ist_plan_const(p, code, 1, 1, GRID * GRID, DIM, IST_ELEM_T, "dense position");
    }
    free(gauss);
    free(code);
    return pe;
}

/* A [rows,256] table of the checkpoint as tokens. */
static ist_tensor table(const ist_net *net, const char *name, int rows, ist_tensor below) {
    ist_tensor y = {0};
    int64_t dims[2] = {rows, DIM};
    float *values = NULL;
    if (ist_plan_status(net->plan)) return y;
    if (!ist_weights_f32(net->weights, name, 2, dims, &values, ist_plan_error(net->plan)))
        y = ist_plan_const(net->plan, values, 1, 1, rows, DIM, IST_ELEM_T, name);
    free(values);
    return ist_has(below) && ist_has(y) ? ist_op_join_tokens(net->plan, y, below, name) : y;
}

/* ---- attention ---- */

static ist_tensor project(const decoder *d, ist_tensor x, const char *at, const char *which) {
    return ist_dense(&d->net, x, NULL, "mask_decoder.transformer.%s.%s_proj", at, which);
}

/* Projected q, k, v -> attention -> out projection. */
static ist_tensor attend(const decoder *d, ist_tensor q, ist_tensor k, ist_tensor v, ist_tensor q_map,
                         ist_tensor kv_map, const char *at) {
    ist_attention_opts opts = {.heads = HEADS,
                               .scale = q.c ? 1.0f / sqrtf((float)q.c / HEADS) : 1.0f,
                               .q_map = q_map,
                               .kv_map = kv_map,
                               .count = d->prompts};
    ist_tensor y = ist_op_attention(d->net.plan, q, k, v, &opts, at);
    return ist_dense(&d->net, y, NULL, "mask_decoder.transformer.%s.out_proj", at);
}

/* Projections of the image side: while it is per image, they are done for all images whatever the prompt count is. */
static ist_tensor project_image(const decoder *d, const image_side *s, ist_tensor x, const char *at,
                                const char *which) {
    if (ist_has(s->map)) ist_plan_limit(d->net.plan, (ist_tensor){0});
    ist_tensor y = project(d, x, at, which);
    ist_plan_limit(d->net.plan, d->limit);
    return y;
}

static ist_tensor tokens_to_image(const decoder *d, const image_side *s, ist_tensor q_pe, const char *at) {
    ist_tensor k = project_image(d, s, s->kpe, at, "k"); /* [n,1,4096,128] */
    ist_tensor v = project_image(d, s, s->k, at, "v");
    return attend(d, project(d, q_pe, at, "q"), k, v, (ist_tensor){0}, s->map, at); /* [P,1,N,256] */
}

static ist_tensor image_to_tokens(const decoder *d, const image_side *s, ist_tensor q_pe, ist_tensor q,
                                  const char *at) {
    ist_tensor queries = project_image(d, s, s->kpe, at, "q"); /* [n,1,4096,128] */
    return attend(d, queries, project(d, q_pe, at, "k"), project(d, q, at, "v"), s->map, (ist_tensor){0}, at);
}

static ist_tensor self_attention(const decoder *d, ist_tensor q, bool first, const char *at) {
    ist_tensor qk = first ? q : ist_op_add(d->net.plan, q, d->t, (ist_tensor){0}, at);
    return attend(d, project(d, qk, at, "q"), project(d, qk, at, "k"), project(d, q, at, "v"), (ist_tensor){0},
                  (ist_tensor){0}, at);
}

/* LN(x + y). */
static ist_tensor add_norm(const decoder *d, ist_tensor x, ist_tensor y, const char *name) {
    return ist_layer_norm(&d->net, x, 1e-5f, &(ist_norm_opts){.add = y}, "mask_decoder.transformer.%s", name);
}

/* The image after an update: one item per prompt from here on. */
static image_side update_image(const decoder *d, const image_side *s, ist_tensor change, const char *norm) {
    ist_plan *p = d->net.plan;
    ist_tensor k = s->k;
    if (ist_has(s->map) && k.n > 1) k = ist_op_expand(p, k, s->map, d->prompts, norm);
    image_side out = {.k = add_norm(d, change, k, norm)}; /* an addend with n = 1 serves every prompt */
    out.kpe = ist_op_add(p, out.k, d->pe, (ist_tensor){0}, "image position");
    return out;
}

static ist_tensor two_way_layer(const decoder *d, image_side *s, ist_tensor q, int i) {
    ist_plan *p = d->net.plan;
    ist_name self = ist_name_of("layers.%d.self_attn", i), t2i = ist_name_of("layers.%d.cross_attn_token_to_image", i);
    ist_name i2t = ist_name_of("layers.%d.cross_attn_image_to_token", i);
    ist_conv_opts relu = {.epi.act = IST_ACT_RELU};
    ist_tensor y = self_attention(d, q, i == 0, self.text); /* [P,1,N,256] */
    q = add_norm(d, y, i == 0 ? (ist_tensor){0} : q, ist_name_of("layers.%d.norm1", i).text);
    y = ist_op_add(p, q, d->t, (ist_tensor){0}, t2i.text);
    q = add_norm(d, tokens_to_image(d, s, y, t2i.text), q, ist_name_of("layers.%d.norm2", i).text);
    y = ist_dense(&d->net, q, &relu, "mask_decoder.transformer.layers.%d.mlp.lin1", i); /* [P,1,N,2048] */
    y = ist_dense(&d->net, y, NULL, "mask_decoder.transformer.layers.%d.mlp.lin2", i);
    q = add_norm(d, y, q, ist_name_of("layers.%d.norm3", i).text);
    y = ist_op_add(p, q, d->t, (ist_tensor){0}, i2t.text);
    y = image_to_tokens(d, s, y, q, i2t.text); /* [P,1,4096,256] */
    *s = update_image(d, s, y, ist_name_of("layers.%d.norm4", i).text);
    return q;
}

/* ---- read-out ---- */

/* Token `index` of every prompt as [P,1,1,256]: a channel slice of the prompt's row of all tokens. */
static ist_tensor token_at(ist_tensor q, int index) {
    q.ld *= q.w;
    q.c0 += index * q.c;
    q.w = 1;
    return q;
}

static ist_tensor mlp3(const decoder *d, ist_tensor x, const ist_conv_opts *last, const char *at) {
    ist_conv_opts relu = {.epi.act = IST_ACT_RELU};
    x = ist_dense(&d->net, x, &relu, "mask_decoder.%s.layers.0", at);
    x = ist_dense(&d->net, x, &relu, "mask_decoder.%s.layers.1", at);
    return ist_dense(&d->net, x, last, "mask_decoder.%s.layers.2", at);
}

/* Transposed convolution 2x2 stride 2 with NAME.weight [in,out,2,2] and NAME.bias [out]. */
static ist_tensor deconv(const ist_net *net, ist_tensor x, int out, const ist_conv_opts *opts, const char *at) {
    ist_name w_name = ist_name_of("%s.weight", at), b_name = ist_name_of("%s.bias", at);
    int64_t w_dims[4] = {x.c, out, 2, 2}, b_dims[1] = {out};
    float *w = NULL, *b = NULL;
    ist_tensor y = {0};
    ist_error *err = ist_plan_error(net->plan);
    if (ist_plan_status(net->plan)) return y;
    if (!ist_weights_f32(net->weights, w_name.text, 4, w_dims, &w, err) &&
        !ist_weights_f32(net->weights, b_name.text, 1, b_dims, &b, err)) {
        ist_filter f = {.out = out, .in = x.c, .kh = 2, .kw = 2, .w = w, .b = b};
        y = ist_op_deconv2x2(net->plan, x, f, opts, at);
    }
    free(w);
    free(b);
    return y;
}

static ist_tensor upscale(const decoder *d, ist_tensor k) {
    const ist_net *net = &d->net;
    ist_tensor x = ist_view(k, d->prompts, GRID, GRID);                             /* [P,64,64,256] */
    x = deconv(net, x, 64, &(ist_conv_opts){0}, "mask_decoder.output_upscaling.0"); /* [P,128,128,64] */
    x = ist_layer_norm(net, x, 1e-6f, &(ist_norm_opts){.act = IST_ACT_GELU}, "mask_decoder.output_upscaling.1");
    return deconv(net, x, 32, &(ist_conv_opts){.epi.act = IST_ACT_GELU},
                  "mask_decoder.output_upscaling.3"); /* [P,256,256,32] */
}

static ist_sam_masks read_out(const decoder *d, ist_tensor q, ist_tensor k, bool multimask) {
    ist_plan *p = d->net.plan;
    int first = multimask ? 1 : 0, masks = multimask ? MASK_TOKENS - 1 : 1;
    ist_tensor up = upscale(d, k);
    ist_tensor hyper = ist_plan_tensor(p, d->prompts, 1, 1, masks * IST_SAM_DIM / 8, IST_ELEM_T); /* [P,1,1,masks*32] */
    for (int m = 0; m < masks; m++)
        mlp3(d, token_at(q, 1 + first + m), &(ist_conv_opts){.into = ist_slice(hyper, m * 32, 32)},
             ist_name_of("output_hypernetworks_mlps.%d", first + m).text);
    hyper.w = masks;
    hyper.c = hyper.ld = 32;
    ist_tensor iou = ist_plan_tensor(p, d->prompts, 1, 1, MASK_TOKENS, IST_ELEM_F32);
    mlp3(d, token_at(q, 0), &(ist_conv_opts){.into = iou}, "iou_prediction_head");
    ist_tap(&d->net, up, "upscaled");
    return (ist_sam_masks){
        .low_res = ist_op_mask_product(p, up, hyper, "masks"), .iou = ist_slice(iou, first, masks), .masks = masks};
}

/* Embedding plus the dense prompt: per image without a mask prompt, else per prompt. */
static image_side start_image(const decoder *d, ist_tensor embedding, ist_tensor dense) {
    ist_plan *p = d->net.plan;
    ist_tensor e = ist_view(embedding, embedding.n, 1, GRID * GRID);
    image_side s = {.map = d->image_of};
    if (ist_has(dense)) {
        if (e.n > 1) e = ist_op_expand(p, e, d->image_of, d->prompts, "embedding");
        s.map = (ist_tensor){0};
        s.k = ist_op_add(p, ist_view(dense, dense.n, 1, GRID * GRID), e, (ist_tensor){0}, "embedding");
    } else {
        ist_plan_limit(p, (ist_tensor){0});
        ist_tensor no_mask = table(&d->net, "prompt_encoder.no_mask_embed.weight", 1, (ist_tensor){0});
        s.k = ist_op_add(p, e, no_mask, (ist_tensor){0}, "embedding");
    }
    s.kpe = ist_op_add(p, s.k, d->pe, (ist_tensor){0}, "image position");
    ist_plan_limit(p, d->limit);
    return s;
}

ist_sam_masks ist_sam_decode(ist_plan *p, const ist_weights *weights, ist_tensor embedding, ist_tensor image_of,
                             ist_tensor sparse, ist_tensor dense, bool multimask) {
    decoder dec = {.net = {p, weights}, .limit = ist_plan_current_limit(p), .prompts = sparse.n}, *d = &dec;
    if (ist_plan_status(p)) return (ist_sam_masks){0};
    d->image_of = image_of;
    if (!ist_has(image_of)) { /* one image for all */
        int *zeros = calloc((size_t)sparse.n, sizeof *zeros);
        if (!zeros) ist_plan_fail(p, IST_E_MEMORY, "mask decoder: out of host memory");
        if (zeros) d->image_of = ist_plan_const(p, zeros, 1, 1, sparse.n, 1, IST_ELEM_I32, "image of prompt");
        free(zeros);
    }
    d->pe = dense_position(&d->net);
    d->t = table(&d->net, "mask_decoder.mask_tokens.weight", MASK_TOKENS, sparse);
    d->t = table(&d->net, "mask_decoder.iou_token.weight", 1, d->t); /* [P,1,5+T,256] */
    image_side s = start_image(d, embedding, dense);
    ist_tensor q = d->t;
    for (int i = 0; i < 2; i++) q = two_way_layer(d, &s, q, i);
    ist_tensor y = ist_op_add(p, q, d->t, (ist_tensor){0}, "final tokens");
    y = tokens_to_image(d, &s, y, "final_attn_token_to_image");
    q = add_norm(d, y, q, "norm_final_attn");
    ist_tap(&d->net, q, "tokens");
    ist_tap(&d->net, s.k, "keys");
    ist_sam_masks out = read_out(d, q, s.k, multimask);
    ist_plan_tap(p, "masks", out.low_res);
    ist_plan_tap(p, "iou", out.iou);
    ist_plan_tap(p, "dense_pe", d->pe);
    return out;
}
