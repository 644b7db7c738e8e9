/* The two-way transformer on matrix instructions: tokens of two prompts are the rows of a matrix, and each layer of
 * them makes on its way what the next step of the image takes (tokens.h). The first reading takes keys and values that
 * all prompts of an image share. */
#include "variants/two_way.h"
#include "variants/nvidia/tokens.h"
#include "variants/nvidia/two_way.h"
#include "variants/rounding.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = IST_TWO_WAY_LAYERS, HEADS = IST_TWO_WAY_HEADS, HEAD = 16, SELF_HEAD = 32, TOKENS_MAX = 8 };

const ist_two_way_config ist_two_way_wgmma = {true, true}, ist_two_way_mma = {false, true},
                         ist_two_way_wgmma_apart = {true, false}, ist_two_way_mma_apart = {false, false};

/* What layers have made already for the next step. */
typedef struct ready {
    ist_tensor queries, keys, values;
} ready;

typedef struct run {
    ist_plan *p;
    const ist_two_way_config *config;
    const ist_two_way *t;
    ist_tensor tokens; /* the first ones, which are added to all queries */
    ist_tensor counts; /* of how many tokens each prompt is, or empty */
    ist_image_side image;
    float *position;   /* of the image's tokens */
    bool direct;       /* the first reading is of shared keys */
    ist_tensor shared; /* these: [images,1,L,2 inner] */
    ist_tensor later;  /* what the first tokens add to the second layer's queries and keys, zeros for its values */
    int pending;       /* the layer whose update the next step carries out; -1: none */
    ready ready;
} run;

/* Loaded nodes of attention to and from the image; released together. */
static const ist_attention_layer *load(const run *r, int node, ist_loaded *loaded) {
    return ist_span_load(&r->t->span, node, loaded);
}

/* LN(add + out x) without a first layer. */
static ist_token_job job_of(const ist_attention_layer *l, ist_tensor add) {
    return (ist_token_job){.hidden = l->out.in,
                           .out = l->out.out,
                           .w = l->out.w,
                           .b = l->out.b,
                           .gamma = l->norm.gamma,
                           .beta = l->norm.beta,
                           .eps = l->eps,
                           .add = add};
}

/* ---- folds of a layer's result ---- */

typedef struct folds {
    ist_token_folds all;
    ist_fold_job jobs[IST_FOLDS];
    float *out;
} folds;

static void begin_folds(const run *r, folds *f) {
    *f = (folds){.all.jobs = f->jobs, .all.groups = r->config->wgmma};
}

/* Queries of a reading, as they are where it is of shared keys. */
static void fold_queries(const run *r, folds *f, const ist_attention_layer *read, bool direct) {
    ist_tensor none = {0};
    ist_prompt_way every = {0};
    f->jobs[f->all.count++] =
        ist_fold_of(none, r->tokens, &read->query, direct ? NULL : read->key.w, NULL, r->t->dim, true, every);
}

/* Keys and values of an update. */
static void fold_update(const run *r, folds *f, const ist_attention_layer *u) {
    ist_tensor none = {0};
    ist_prompt_way every = {0};
    f->out = ist_transposed(r->p, &u->out);
    if (!f->out) return;
    f->jobs[f->all.count++] = ist_fold_of(none, r->tokens, &u->key, u->query.w, u->query.b, r->t->dim, true, every);
    f->jobs[f->all.count++] = ist_fold_of(none, none, &u->value, f->out, NULL, r->t->dim, false, every);
}

/* ---- attention among tokens ---- */

/* Queries, keys and values are one product. In the second layer the first tokens are added to the tokens for queries
 * and keys; since the projection is linear, the first layer's product, which is of those tokens, makes that share as
 * well: `next` is that layer, or NULL. */
static ist_status stack(const run *r, const ist_attention_layer *l, const ist_attention_layer *next,
                        ist_conv_weights *all, ist_error *err) {
    ist_plan *p = r->p;
    ist_conv_weights more;
    size_t dim = (size_t)r->t->dim;
    IST_TRY(ist_stack(ist_weights_of(p, &l->query), ist_weights_of(p, &l->key), all, err));
    IST_TRY(ist_stack(*all, ist_weights_of(p, &l->value), all, err));
    if (!next) return IST_OK;
    ist_status status = ist_stack(ist_weights_of(p, &next->query), ist_weights_of(p, &next->key), &more, err);
    if (!status) status = ist_stack(more, ist_weights_of(p, &next->value), &more, err);
    if (status) {
        ist_conv_weights_free(all);
        return status;
    }
    memset(more.w + 2 * dim * dim, 0, sizeof *more.w * dim * dim);
    memset(more.b, 0, sizeof *more.b * 3 * dim);
    return ist_stack(*all, more, all, err);
}

static ist_tensor attend(run *r, const ist_attention_layer *l, const ist_conv_weights *all, ist_tensor q, bool first,
                         folds *f, ist_token_image *image) {
    int dim = r->t->dim;
    ist_token_job job = job_of(l, first ? (ist_tensor){0} : q);
    ist_token_projection projection = {all->in, all->out, all->w, all->b, first ? (ist_tensor){0} : r->later,
                                       image,   r->counts};
    ist_tensor projections;
    job.folds = f->all.count ? &f->all : NULL;
    ist_tensor y = ist_token_attention(r->p, q, &projection, &job, &projections, l->label);
    if (first) r->later = ist_slice(projections, 3 * dim, 3 * dim);
    return y;
}

/* The first layer's attention makes the keys and values of the reading behind it along with the tokens. */
static ist_tensor self_attention(run *r, int i, ist_tensor q) {
    ist_plan *p = r->p;
    ist_loaded own, behind, second = {0};
    folds f;
    ist_error err = {0};
    ist_conv_weights all = {0};
    ist_tensor y = {0};
    bool direct = i == 0 && r->direct;
    ist_span_enter(&r->t->span, r->t->self[i]);
    const ist_attention_layer *l = load(r, r->t->self[i], &own), *read = load(r, r->t->read[i], &behind), *next = NULL;
    if (i == 0) next = load(r, r->t->self[1], &second);
    begin_folds(r, &f);
    if (!ist_plan_status(p)) {
        ist_image_keys keys = {read->key.w, read->value.w, read->value.b, r->position};
        ist_token_image image = {.side = &r->image, .weights = &keys, .joins = r->config->joins};
        ist_status status = stack(r, l, next, &all, &err);
        if (status) ist_plan_fail(p, status, "%s: %s", l->label, err.text);
        fold_queries(r, &f, read, direct);
        if (!status) y = attend(r, l, &all, q, i == 0, &f, direct ? &image : NULL);
        r->shared = direct ? image.y : r->shared;
        r->ready.queries = f.all.y[0];
    }
    ist_conv_weights_free(&all);
    ist_span_release(&own);
    ist_span_release(&behind);
    ist_span_release(&second);
    return y;
}

/* ---- attention between tokens and image ---- */

/* A step of the image and what is behind it: the reading's last step and the layer on it in one. */
static ist_tensor read_image(run *r, int node, ist_tensor q) {
    ist_plan *p = r->p;
    ist_loaded own, pending = {0};
    ist_tensor y = {0}, updated = {0};
    ist_span_enter(&r->t->span, node);
    const ist_attention_layer *l = load(r, node, &own), *u = NULL;
    if (r->pending >= 0) u = load(r, r->t->update[r->pending], &pending);
    if (!ist_plan_status(p)) {
        ist_token_job job = job_of(l, q);
        if (!u && r->direct) {
            ist_token_reading reading = {.image = r->shared, .map = r->image.map, .queries = r->ready.queries};
            y = ist_token_read(p, q, &reading, &job, l->label);
        } else {
            ist_image_update update = {.keys = r->ready.keys, .values = r->ready.values};
            ist_token_merging merge = {r->t->dim, l->value.out / HEADS, l->value.w, l->value.b};
            if (u)
                update.bias = u->out.b, update.gamma = u->norm.gamma, update.beta = u->norm.beta, update.eps = u->eps;
            ist_tensor parts = ist_image_step_mma(p, r->config->wgmma, &r->image, u ? &update : NULL, r->ready.queries,
                                                  q.w, &updated, l->label);
            y = ist_token_merge(p, parts, q.w, &merge, &job, l->label);
        }
    }
    if (u) r->image = (ist_image_side){.x = updated, .position = r->image.position};
    r->pending = -1;
    r->ready = (ready){.queries = {0}};
    ist_span_release(&own);
    ist_span_release(&pending);
    return y;
}

/* ---- MLP ---- */

/* With what the layer's update takes of its result and, in the last layer, the last reading. */
static ist_tensor mlp(run *r, int i, ist_tensor q) {
    ist_plan *p = r->p;
    ist_loaded own, behind, last = {0};
    folds f;
    ist_tensor y = {0};
    ist_span_enter(&r->t->span, r->t->mlp[i]);
    const ist_mlp_layer *l = ist_span_load(&r->t->span, r->t->mlp[i], &own);
    const ist_attention_layer *u = load(r, r->t->update[i], &behind), *read = NULL;
    if (i == LAYERS - 1) read = load(r, r->t->last, &last);
    begin_folds(r, &f);
    if (!ist_plan_status(p)) {
        ist_token_job job = {.in = l->lin1.in,
                             .hidden = l->lin1.out,
                             .out = l->lin2.out,
                             .w1 = l->lin1.w,
                             .b1 = l->lin1.b,
                             .w = l->lin2.w,
                             .b = l->lin2.b,
                             .gamma = l->norm.gamma,
                             .beta = l->norm.beta,
                             .eps = l->eps,
                             .add = q,
                             .folds = &f.all};
        fold_update(r, &f, u);
        if (read) fold_queries(r, &f, read, false);
        if (!ist_plan_status(p)) y = ist_token_layer(p, q, &job, l->label);
        r->ready = (ready){.keys = f.all.y[0], .values = f.all.y[1]};
        if (ist_has(r->counts))
            ist_hide_tokens(p, "nvidia/hide_tokens", r->ready.keys, r->ready.keys.w - 2, r->counts, u->label);
        if (read) r->ready.queries = f.all.y[2];
        r->pending = i;
    }
    free(f.out);
    ist_span_release(&own);
    ist_span_release(&behind);
    ist_span_release(&last);
    return y;
}

/* ---- all of it ---- */

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    ist_two_way t;
    (void)p, (void)v;
    if (!ist_two_way_of(node, &t)) return false;
    bool hidden = true;
    for (int i = 0; i < LAYERS; i++)
        hidden = hidden && ((const ist_mlp_layer *)t.span.graph->nodes[t.mlp[i]].of)->lin1.out % 128 == 0;
    return hidden && t.tokens.w <= TOKENS_MAX && t.dim == HEADS * SELF_HEAD && t.inner == HEADS * HEAD &&
           ist_two_way_matrix(t.tokens.w, t.dim);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_two_way t;
    ist_loaded shift;
    (void)way;
    if (!ist_two_way_of(node, &t)) return;
    run r = {.p = p, .config = v->config, .t = &t, .pending = -1};
    ist_two_way_start(p, &t, &r.image, &shift);
    r.tokens = ist_span_tensor(&t.span, t.tokens);
    r.counts = ist_span_tensor(&t.span, t.counts);
    r.direct = t.shift >= 0 && ist_image_reads(t.tokens.w, t.dim, HEAD);
    r.position = r.direct ? ist_two_way_position(p, &t) : NULL;
    ist_tensor q = r.tokens;
    for (int i = 0; i < LAYERS && !ist_plan_status(p); i++) {
        q = self_attention(&r, i, q);
        q = read_image(&r, t.read[i], q);
        q = mlp(&r, i, q);
    }
    q = read_image(&r, t.last, q);
    free(r.position);
    ist_span_release(&shift);
    ist_span_made(&t.span, ist_two_way_attention(&t, t.last)->y, q);
    ist_span_made(&t.span, ist_two_way_attention(&t, t.update[LAYERS - 1])->y, r.image.x);
}

const ist_family ist_nvidia_two_way = {.takes = takes, .emit = emit};
