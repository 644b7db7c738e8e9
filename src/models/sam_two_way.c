/* The two-way transformer of SAM's mask decoder: see sam_two_way.h.
 *
 * The image is never projected to keys, values and queries: the projections have moved to the tokens (ops/two_way.h).
 * The image's update at the end of a layer and the next reading by the tokens are one step, since the tokens of the
 * next layer do not wait for the image. P prompts share the embedding of their image, reached through `image_of`, until
 * the first update. On CPUs, where an image has more than a few, they share all of its projections and its share of
 * the upscaling's first convolution (ops/two_way_shared.h); on matrix instructions the keys and values of the first
 * reading, however many they are. */
#include "models/sam_two_way.h"
#include "models/mobilesam.h"
#include "ops/prompt.h"
#include "ops/token.h"
#include "ops/two_way_shared.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HEADS = IST_TWO_WAY_HEADS };
enum { GRID = IST_SAM_GRID, DIM = IST_SAM_DIM, INNER = DIM / 2 };
/* Of an image: sharing its projections costs what so many prompts gain by it, with AMX and without. */
enum { FEW_PROMPTS = 2, FEW_PROMPTS_PLAIN = 4 };

static const float LOG2_E = 1.44269504088896340736f, NORM_EPS = 1e-5f;
static const char final[] = "final_attn_token_to_image";

/* The image before or after updates; `shift` is owned, and so are weights. An update by `tokens` that the next reading
 * will carry out is `pending`: their keys and values are folded together with that reading's queries. */
typedef struct image_side {
    ist_image_side now;
    float *shift;
    bool pending;
    int layer; /* of the pending update */
    ist_tensor tokens;
    ist_conv_weights k, v, q, out; /* of the update */
    ist_norm_weights norm;
} image_side;

/* What an image step takes of the tokens. */
typedef struct folded {
    ist_tensor queries;      /* [P,1,257,64] */
    ist_tensor keys, values; /* of a pending update; [P,1,257,64], [P,4,8 N,64] */
} folded;

typedef struct transformer {
    ist_net net;
    ist_tensor t;     /* initial tokens [P,1,N,256]: IoU, masks, prompt; added to every query */
    ist_tensor asked; /* the first of them, which the last reading is for: as many of its queries */
    ist_tensor pe;    /* dense position code [1,1,4096,256] */
    float *position;  /* the same, owned */
    ist_tensor image_of;
    int prompts;
    ist_tensor later; /* what t adds to the second layer's queries and keys, zeros for its values, or empty */
    bool shares;      /* prompts may share the projections of their image: */
    ist_shared_image shared;
    ist_shared_tokens plain; /* what those take of the tokens; [P,1,17,64] each */
    bool direct;             /* the first reading takes keys and values that all prompts of an image share: */
    ist_tensor keys;         /* [images,1,4096,256] */
    folded ready;            /* what layers on tokens have folded already for the next reading */
    ist_sam_upscale *up;     /* borrowed */
} transformer;

/* ---- constants ---- */

/* Position code of the grid, also as *values, the caller's: row i, column j at ((j + 0.5) / 64, (i + 0.5) / 64). */
static ist_tensor dense_position(const ist_net *net, float **values) {
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
    *values = code;
    return pe;
}

/* ---- layers on tokens ---- */

static ist_conv_weights take(const transformer *tr, const char *at, const char *which) {
    return ist_take_dense(&tr->net, "mask_decoder.transformer.%s.%s_proj", at, which);
}

/* The names of a layer on tokens with the norm behind it, `first` NULL without a hidden layer. */
typedef struct layer_names {
    const char *first, *last, *norm;
} layer_names;

/* Its weights, owned. */
typedef struct layer_weights {
    ist_conv_weights first, last;
    ist_norm_weights norm;
} layer_weights;

static ist_token_layer take_layer(const transformer *tr, layer_names names, ist_tensor add, layer_weights *all) {
    *all = (layer_weights){0};
    if (names.first) all->first = ist_take_dense(&tr->net, "mask_decoder.transformer.%s", names.first);
    all->last = ist_take_dense(&tr->net, "mask_decoder.transformer.%s", names.last);
    all->norm = ist_take_norm(&tr->net, "mask_decoder.transformer.%s", names.norm);
    const ist_conv_weights *first = &all->first, *last = &all->last;
    if (!ist_plan_status(tr->net.plan) && (all->norm.n != last->out || (names.first && first->out != last->in)))
        ist_plan_fail(tr->net.plan, IST_E_WEIGHTS, "%s: %d and %d inputs, norm of %d channels for %d", names.last,
                      names.first ? first->out : last->in, last->in, all->norm.n, last->out);
    return (ist_token_layer){first->in, last->in,    last->out,   first->w, first->b, last->w,
                             last->b,   all->norm.w, all->norm.b, 1e-5f,    add,      NULL};
}

static void free_layer(layer_weights *all) {
    ist_conv_weights_free(&all->first);
    ist_conv_weights_free(&all->last);
    ist_norm_weights_free(&all->norm);
}

/* LN(add + last(x)), or LN(add + last(relu(first(x)))). `folds`, or NULL, where layers are joined. */
static ist_tensor layer(const transformer *tr, ist_tensor x, ist_tensor add, layer_names names,
                        ist_token_folds *folds) {
    ist_plan *p = tr->net.plan;
    ist_conv_opts relu = {.epi.act = IST_ACT_RELU};
    if (ist_plan_status(p)) return (ist_tensor){0};
    if (ist_token_layers(p, x.w)) {
        layer_weights w;
        ist_token_layer l = take_layer(tr, names, add, &w);
        l.folds = folds;
        if (!ist_plan_status(p)) x = ist_op_token_layer(p, x, &l, names.last);
        free_layer(&w);
        return x;
    }
    if (names.first) x = ist_dense(&tr->net, x, &relu, "mask_decoder.transformer.%s", names.first);
    x = ist_dense(&tr->net, x, NULL, "mask_decoder.transformer.%s", names.last);
    return ist_layer_norm(&tr->net, x, 1e-5f, &(ist_norm_opts){.add = add}, "mask_decoder.transformer.%s", names.norm);
}

/* ---- attention among tokens ---- */

/* A projection of a cross attention, whose matrices are read without an operator's checks. */
static ist_conv_weights take_cross(const transformer *tr, const char *at, const char *which, int out, int in) {
    ist_conv_weights w = take(tr, at, which);
    if (!ist_plan_status(tr->net.plan) && (w.out != out || w.in != in))
        ist_plan_fail(tr->net.plan, IST_E_WEIGHTS, "%s.%s_proj: %d x %d weights, want %d x %d", at, which, w.out, w.in,
                      out, in);
    return w;
}

/* LN(add + attention) by ist_op_token_attention, which makes queries, keys and values [P,1,N,768], too. In the second
 * layer t is added to the tokens for queries and keys; since the projection is linear, the first layer's product, which
 * is of t, makes that share as well: tr->later. */
static ist_tensor joined_attention(transformer *tr, ist_tensor q, bool first, const char *at, layer_names names,
                                   ist_token_folds *folds, ist_token_image *image) {
    static const char second[] = "layers.1.self_attn";
    ist_plan *p = tr->net.plan;
    ist_conv_weights all =
        ist_stack(&tr->net, ist_stack(&tr->net, take(tr, at, "q"), take(tr, at, "k")), take(tr, at, "v"));
    ist_tensor y = {0}, projections;
    if (first) {
        ist_conv_weights next = ist_stack(&tr->net, take(tr, second, "q"), take(tr, second, "k"));
        next = ist_stack(&tr->net, next, take(tr, second, "v"));
        if (!ist_plan_status(p) && (all.out != 3 * DIM || next.out != 3 * DIM || next.in != DIM))
            ist_plan_fail(p, IST_E_WEIGHTS, "self-attention: %d and %d x %d weights, want %d x %d", all.out, next.out,
                          next.in, 3 * DIM, DIM);
        if (!ist_plan_status(p)) {
            memset(next.w + 2 * DIM * DIM, 0, sizeof *next.w * DIM * DIM);
            memset(next.b, 0, sizeof *next.b * 3 * DIM);
        }
        all = ist_stack(&tr->net, all, next); /* 1536 */
    }
    layer_weights w;
    ist_token_layer l = take_layer(tr, names, first ? (ist_tensor){0} : q, &w);
    l.folds = folds;
    ist_token_projection projection = {all.in, all.out, all.w, all.b, first ? (ist_tensor){0} : tr->later, image};
    if (!ist_plan_status(p)) {
        y = ist_op_token_attention(p, q, &projection, &l, &projections, at);
        if (first) tr->later = ist_slice(projections, 3 * DIM, 3 * DIM);
    }
    free_layer(&w);
    ist_conv_weights_free(&all);
    return y;
}

/* LN(add + attention): of q with the position of the initial tokens as queries and keys, except in the first layer,
 * where q is those tokens. */
static ist_tensor self_attention(transformer *tr, ist_tensor q, bool first, const char *at, const char *norm,
                                 ist_token_folds *folds, ist_token_image *image) {
    ist_plan *p = tr->net.plan;
    ist_tensor add = first ? (ist_tensor){0} : q, qk, v;
    ist_name out = ist_name_of("%s.out_proj", at);
    layer_names names = {NULL, out.text, norm};
    if (ist_plan_status(p)) return (ist_tensor){0};
    if (ist_token_layers(p, q.w)) return joined_attention(tr, q, first, at, names, folds, image);
    qk = first ? q : ist_op_add(p, q, tr->t, (ist_tensor){0}, at);
    qk = ist_apply(&tr->net, qk, ist_stack(&tr->net, take(tr, at, "q"), take(tr, at, "k")), NULL, at); /* [P,1,N,512] */
    v = ist_apply(&tr->net, q, take(tr, at, "v"), NULL, at);
    if (ist_plan_status(p)) return (ist_tensor){0};
    ist_tensor queries = ist_slice(qk, 0, DIM), keys = ist_slice(qk, DIM, DIM);
    ist_attention_opts opts = {.heads = HEADS, .scale = 1.0f / sqrtf((float)DIM / HEADS), .count = tr->prompts};
    return layer(tr, ist_op_attention(p, queries, keys, v, &opts, at), add, names, NULL);
}

/* ---- attention between tokens and image ---- */

/* Tokens x + add, projected by `own` and seen through the `other` side's projection (NULL: not). */
static ist_fold_job fold(ist_tensor x, ist_tensor add, const ist_conv_weights *own, const float *other,
                         const float *constant, bool columns, ist_prompt_way only) {
    int per_head = own->out / HEADS;
    return (ist_fold_job){.x = x,
                          .add = add,
                          .fold = {.d = per_head,
                                   .k = DIM,
                                   .w = own->w,
                                   .b = own->b,
                                   .m = other,
                                   .mb = constant,
                                   .scale = columns ? LOG2_E / sqrtf((float)per_head) : 1.0f,
                                   .columns = columns,
                                   .plain = !other,
                                   .only = only}};
}

static ist_tensor fold_now(ist_plan *p, ist_fold_job job, bool relative, const char *at) {
    job.fold.relative = relative;
    return ist_op_fold_heads(p, job.x, job.add, &job.fold, at);
}

/* The same for prompts that share the image: tokens as they are, of keys and queries scaled. */
static ist_tensor unfolded(const transformer *tr, ist_tensor x, ist_tensor add, const ist_conv_weights *own,
                           bool scaled, bool relative, const char *at) {
    if (ist_plan_status(tr->net.plan)) return (ist_tensor){0};
    ist_prompt_way sharing = {tr->shared.ways, 1};
    return fold_now(tr->net.plan, fold(x, add, own, NULL, NULL, scaled, sharing), relative, at);
}

/* out_proj [256,128] as [128][256]; the caller frees it. */
static float *transposed(const transformer *tr, const ist_conv_weights *w) {
    ist_plan *p = tr->net.plan;
    if (ist_plan_status(p)) return NULL;
    float *t = malloc((size_t)w->out * (size_t)w->in * sizeof *t);
    if (!t) ist_plan_fail(p, IST_E_MEMORY, "mask decoder: out of host memory");
    for (int o = 0; t && o < w->out; o++)
        for (int i = 0; i < w->in; i++) t[i * w->out + o] = w->w[o * w->in + i];
    return t;
}

/* The norm behind the update of layer i. */
static ist_norm_weights take_norm4(const transformer *tr, int i) {
    ist_norm_weights norm = ist_take_norm(&tr->net, "mask_decoder.transformer.layers.%d.norm4", i);
    if (!ist_plan_status(tr->net.plan) && norm.n != DIM)
        ist_plan_fail(tr->net.plan, IST_E_WEIGHTS, "layers.%d.norm4: norm of %d channels", i, norm.n);
    return norm;
}

static int few_prompts(const ist_plan *p) {
    return ist_plan_caps(p) & IST_CAP_X86_AMX && !ist_plan_half(p) ? FEW_PROMPTS : FEW_PROMPTS_PLAIN;
}

/* All projections of the image, for images that many prompts look at. */
static void share_image(transformer *tr, const image_side *s, int tokens) {
    static const char *const readings[] = {"layers.0.cross_attn_token_to_image", "layers.1.cross_attn_token_to_image",
                                           final};
    static const char *const updates[] = {"layers.0.cross_attn_image_to_token", "layers.1.cross_attn_image_to_token"};
    ist_plan *p = tr->net.plan;
    if (ist_plan_status(p) || !ist_tokens_share(p, tokens) || !ist_has(s->now.map) || tr->prompts <= few_prompts(p))
        return;
    ist_conv_weights k[IST_SHARED_READINGS], v[IST_SHARED_READINGS], q[LAYERS], out[LAYERS];
    ist_norm_weights norm[LAYERS];
    ist_shared_weights w = {
        .d = INNER / HEADS, .position = tr->position, .outs = IST_SAM_UPSCALE_OUTS, .eps = NORM_EPS};
    for (int i = 0; i < IST_SHARED_READINGS; i++) {
        k[i] = take_cross(tr, readings[i], "k", INNER, DIM), v[i] = take_cross(tr, readings[i], "v", INNER, DIM);
        w.reading[i].keys = k[i].w, w.reading[i].values = v[i].w, w.reading[i].value_bias = v[i].b;
    }
    for (int i = 0; i < LAYERS; i++) {
        q[i] = take_cross(tr, updates[i], "q", INNER, DIM), out[i] = take_cross(tr, updates[i], "out", DIM, INNER);
        norm[i] = take_norm4(tr, i);
        w.update[i].queries = q[i].w, w.update[i].query_bias = q[i].b;
        w.update[i].out = out[i].w, w.update[i].out_bias = out[i].b;
        w.update[i].gamma = norm[i].w, w.update[i].beta = norm[i].b;
    }
    w.map = ist_sam_upscale_map(tr->up);
    if (!ist_plan_status(p)) {
        tr->shared = ist_op_share_image(p, &s->now, &w, tr->prompts, tokens, few_prompts(p), "shared projections");
        tr->shares = true;
        ist_sam_upscale_share(tr->up, &tr->shared);
    }
    for (int i = 0; i < IST_SHARED_READINGS; i++) ist_conv_weights_free(&k[i]), ist_conv_weights_free(&v[i]);
    for (int i = 0; i < LAYERS; i++) {
        ist_conv_weights_free(&q[i]);
        ist_conv_weights_free(&out[i]);
        ist_norm_weights_free(&norm[i]);
    }
}

/* Notes the update k = LN(k + attention of the image to the tokens) for the next reading. */
static void update_image(const transformer *tr, image_side *s, int layer, const char *at) {
    s->k = take_cross(tr, at, "k", INNER, DIM), s->v = take_cross(tr, at, "v", INNER, DIM);
    s->q = take_cross(tr, at, "q", INNER, DIM), s->out = take_cross(tr, at, "out", DIM, INNER);
    s->norm = take_norm4(tr, layer);
    s->layer = layer;
    s->pending = true;
}

static void free_update(image_side *s) {
    ist_conv_weights_free(&s->k);
    ist_conv_weights_free(&s->v);
    ist_conv_weights_free(&s->q);
    ist_conv_weights_free(&s->out);
    ist_norm_weights_free(&s->norm);
}

/* query, k: of the reading. */
static folded fold_tokens(transformer *tr, const image_side *s, ist_tensor q, const ist_conv_weights *query,
                          const ist_conv_weights *k, const char *at) {
    ist_plan *p = tr->net.plan;
    folded f = tr->ready;
    tr->ready = (folded){0};
    if (ist_has(f.queries)) return f;
    float *out = s->pending ? transposed(tr, &s->out) : NULL;
    if (ist_plan_status(p)) {
        free(out);
        return f;
    }
    bool relative = ist_image_shares(p);
    ist_prompt_way only = s->now.only;
    ist_tensor none = {0}, add = q.w < tr->t.w ? tr->asked : tr->t;
    f.queries = fold_now(p, fold(q, add, query, k->w, NULL, true, only), false, at);
    if (s->pending) {
        f.keys = fold_now(p, fold(s->tokens, tr->t, &s->k, s->q.w, s->q.b, true, only), relative, at);
        f.values = fold_now(p, fold(s->tokens, none, &s->v, out, NULL, false, only), relative, at);
    }
    if (tr->shares) tr->plain.queries = unfolded(tr, q, add, query, true, false, at);
    if (tr->shares && s->pending) {
        tr->plain.keys = unfolded(tr, s->tokens, tr->t, &s->k, true, true, at);
        tr->plain.values[s->layer] = unfolded(tr, s->tokens, none, &s->v, false, false, at);
        ist_sam_upscale_values(tr->up, s->layer, s->tokens, &s->v, out);
    }
    free(out);
    return f;
}

/* Folds that a layer on tokens makes of its result, and the weights they are of, owned. */
typedef struct layer_folds {
    ist_token_folds all;
    ist_fold_job jobs[IST_FOLDS];
    ist_conv_weights query, k;
    float *out;
    bool updates;
} layer_folds;

/* Keys and values of the pending update, with `update`; queries of the reading `at`, if that is not NULL, as they are
 * where it is of keys. */
static void begin_folds(const transformer *tr, layer_folds *f, const image_side *update, const char *at, bool direct) {
    ist_plan *p = tr->net.plan;
    ist_tensor none = {0};
    ist_prompt_way every = {0};
    *f = (layer_folds){.all.jobs = f->jobs, .updates = update};
    if (update) f->out = transposed(tr, &update->out);
    if (at) f->query = take_cross(tr, at, "q", INNER, DIM), f->k = take_cross(tr, at, "k", INNER, DIM);
    if (ist_plan_status(p)) return;
    if (update) {
        f->jobs[f->all.count++] = fold(none, tr->t, &update->k, update->q.w, update->q.b, true, every);
        f->jobs[f->all.count++] = fold(none, none, &update->v, f->out, NULL, false, every);
    }
    if (at) f->jobs[f->all.count++] = fold(none, tr->t, &f->query, direct ? NULL : f->k.w, NULL, true, every);
}

/* Keeps them for the next reading. */
static void end_folds(transformer *tr, layer_folds *f) {
    int i = 0;
    if (f->updates) tr->ready.keys = f->all.y[i++], tr->ready.values = f->all.y[i++];
    if (i < f->all.count) tr->ready.queries = f->all.y[i];
    free(f->out);
    ist_conv_weights_free(&f->query);
    ist_conv_weights_free(&f->k);
}

/* LN(q + attention of the tokens q to the image, whose keys and values all of its prompts share). */
static ist_tensor read_keys(transformer *tr, const image_side *s, ist_tensor q, const char *at, const char *norm) {
    ist_plan *p = tr->net.plan;
    ist_name out = ist_name_of("%s.out_proj", at);
    layer_weights all;
    ist_token_layer l = take_layer(tr, (layer_names){NULL, out.text, norm}, q, &all);
    ist_tensor y = {0};
    if (!ist_plan_status(p)) {
        ist_token_reading r = {.image = tr->keys, .map = s->now.map, .queries = tr->ready.queries};
        y = ist_op_token_read(p, q, &r, &l, at); /* [P,1,N,256] */
    }
    tr->ready = (folded){0};
    free_layer(&all);
    return y;
}

/* LN(q + what tokens have read in `parts`), the reading's last step and the layer behind it in one. */
static ist_tensor merged_layer(const transformer *tr, ist_tensor parts, ist_tensor q, const ist_conv_weights *v,
                               const char *at, const char *norm) {
    ist_name out = ist_name_of("%s.out_proj", at);
    ist_token_merge merge = {DIM, INNER / HEADS, v->w, v->b};
    layer_weights all;
    ist_token_layer l = take_layer(tr, (layer_names){NULL, out.text, norm}, q, &all);
    ist_tensor y = {0};
    if (!ist_plan_status(tr->net.plan)) y = ist_op_token_merge(tr->net.plan, parts, q.w, &merge, &l, out.text);
    free_layer(&all);
    return y;
}

/* LN(q + attention of the tokens q to the image after its pending update). */
static ist_tensor read_image(transformer *tr, image_side *s, ist_tensor q, const char *at, const char *norm) {
    ist_plan *p = tr->net.plan;
    if (!s->pending && tr->direct) return read_keys(tr, s, q, at, norm);
    ist_conv_weights query = take_cross(tr, at, "q", INNER, DIM), k = take_cross(tr, at, "k", INNER, DIM);
    ist_conv_weights v = take_cross(tr, at, "v", INNER, DIM);
    bool joined = !ist_plan_status(p) && ist_token_layers(p, q.w);
    if (tr->shares) s->now.only = (ist_prompt_way){tr->shared.ways, 0};
    folded f = fold_tokens(tr, s, q, &query, &k, at);
    ist_image_update u = {.keys = f.keys,
                          .values = f.values,
                          .bias = s->out.b,
                          .gamma = s->norm.w,
                          .beta = s->norm.b,
                          .eps = NORM_EPS,
                          .relative = ist_image_shares(p)};
    ist_tensor updated = {0}, y = {0};
    if (!ist_plan_status(p)) {
        y = ist_op_image_step(p, &s->now, s->pending ? &u : NULL, f.queries, q.w, &updated, at);
        if (joined)
            y = merged_layer(tr, y, q, &v, at, norm);
        else
            y = ist_op_image_merge(p, y, q.w, DIM, v.out / HEADS, v.w, v.b, s->now.only, at); /* [P,1,N,128] */
    }
    if (tr->shares && !ist_plan_status(p))
        ist_op_shared_read(p, &tr->shared, s->pending ? s->layer + 1 : 0, &tr->plain, y, at);
    if (s->pending) s->now = (ist_image_side){.x = updated, .position = tr->pe};
    s->pending = false;
    free_update(s);
    ist_conv_weights_free(&query);
    ist_conv_weights_free(&k);
    ist_conv_weights_free(&v);
    ist_name out = ist_name_of("%s.out_proj", at);
    return joined ? y : layer(tr, y, q, (layer_names){NULL, out.text, norm}, NULL); /* [P,1,N,256] */
}

/* The first layer's attention, with the keys and values of the reading `at` behind it. */
static ist_tensor first_attention(transformer *tr, const image_side *s, ist_tensor q, const char *self,
                                  const char *norm, const char *at, ist_token_folds *folds) {
    ist_conv_weights k = take_cross(tr, at, "k", INNER, DIM), v = take_cross(tr, at, "v", INNER, DIM);
    ist_image_keys w = {k.w, v.w, v.b, tr->position};
    ist_token_image image = {.side = &s->now, .weights = &w};
    q = self_attention(tr, q, true, self, norm, folds, &image);
    tr->keys = image.y;
    ist_conv_weights_free(&k);
    ist_conv_weights_free(&v);
    return q;
}

static ist_tensor two_way_layer(transformer *tr, image_side *s, ist_tensor q, int i) {
    ist_name self = ist_name_of("layers.%d.self_attn", i), t2i = ist_name_of("layers.%d.cross_attn_token_to_image", i);
    ist_name i2t = ist_name_of("layers.%d.cross_attn_image_to_token", i);
    ist_name first = ist_name_of("layers.%d.mlp.lin1", i), last = ist_name_of("layers.%d.mlp.lin2", i);
    ist_name norm3 = ist_name_of("layers.%d.norm3", i);
    bool joined = !ist_plan_status(tr->net.plan) && ist_token_layers(tr->net.plan, q.w);
    layer_folds folds;
    begin_folds(tr, &folds, NULL, joined ? t2i.text : NULL, i == 0 && tr->direct);
    ist_name norm1 = ist_name_of("layers.%d.norm1", i);
    if (i == 0 && tr->direct)
        q = first_attention(tr, s, q, self.text, norm1.text, t2i.text, &folds.all);
    else
        q = self_attention(tr, q, i == 0, self.text, norm1.text, folds.all.count ? &folds.all : NULL, NULL);
    end_folds(tr, &folds);
    q = read_image(tr, s, q, t2i.text, ist_name_of("layers.%d.norm2", i).text);
    update_image(tr, s, i, i2t.text);
    begin_folds(tr, &folds, joined ? s : NULL, joined && i == LAYERS - 1 ? final : NULL, false);
    q = s->tokens = layer(tr, q, q, (layer_names){first.text, last.text, norm3.text}, joined ? &folds.all : NULL);
    end_folds(tr, &folds);
    return q;
}

/* ---- all of it ---- */

/* The first `count` tokens of every prompt as tokens of their own. */
static ist_tensor first_tokens(const transformer *tr, ist_tensor q, int count) {
    ist_plan *p = tr->net.plan;
    if (ist_plan_status(p)) return (ist_tensor){0};
    ist_tensor rows = q;
    rows.ld *= q.w;
    rows.c *= count;
    rows.w = 1;
    rows = ist_op_copy(p, rows, (ist_tensor){0}, final);
    rows.w = count;
    rows.c = rows.ld = q.c;
    return rows;
}

/* Embedding plus the dense prompt: per image without a mask prompt, else per prompt. */
static image_side start_image(const transformer *tr, ist_tensor embedding, ist_tensor dense) {
    ist_plan *p = tr->net.plan;
    ist_tensor e = ist_view(embedding, embedding.n, 1, GRID * GRID);
    image_side s = {.now = {.x = e, .map = tr->image_of, .position = tr->pe}};
    if (ist_has(dense)) {
        if (e.n > 1) e = ist_op_expand(p, e, tr->image_of, tr->prompts, "embedding");
        s.now.map = (ist_tensor){0};
        s.now.x = ist_op_add(p, ist_view(dense, dense.n, 1, GRID * GRID), e, (ist_tensor){0}, "embedding");
    } else {
        if (!ist_plan_status(p))
            ist_weights_f32(tr->net.weights, "prompt_encoder.no_mask_embed.weight", 2, (int64_t[]){1, DIM}, &s.shift,
                            ist_plan_error(p));
        s.now.shift = s.shift;
    }
    return s;
}

ist_tensor ist_sam_two_way(const ist_net *net, const ist_sam_prompted *in, int wanted, ist_sam_upscale *up,
                           ist_tensor *image, ist_tensor *pe) {
    transformer all = {.net = *net, .prompts = in->sparse.n, .up = up}, *tr = &all;
    ist_plan *p = net->plan;
    tr->image_of = in->image_of;
    tr->pe = dense_position(net, &tr->position);
    tr->t = in->sparse;
    image_side s = start_image(tr, in->embedding, in->dense);
    share_image(tr, &s, tr->t.w);
    tr->direct = !ist_plan_status(p) && ist_has(s.now.map) && ist_token_layers(p, tr->t.w) &&
                 ist_image_reads(p, tr->t.w, DIM, INNER / HEADS);
    ist_tensor q = tr->t;
    for (int i = 0; i < LAYERS; i++) q = two_way_layer(tr, &s, q, i);
    if (!ist_plan_status(p) && ist_image_shares(p) && q.w <= IST_BLOCK_TOKENS) {
        q = first_tokens(tr, q, wanted); /* nothing asks for the others any more */
        tr->asked = first_tokens(tr, tr->t, wanted);
    }
    q = read_image(tr, &s, q, final, "norm_final_attn");
    free(s.shift);
    free(tr->position);
    *image = s.now.x;
    *pe = tr->pe;
    return q;
}
