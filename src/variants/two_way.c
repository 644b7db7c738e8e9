/* The two-way transformer as a span, and its variant with absorbed projections: see two_way.h. */
#include "variants/two_way.h"

#include "base/mem.h"
#include "variants/grid_code.h"
#include "variants/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = IST_TWO_WAY_LAYERS, HEADS = IST_TWO_WAY_HEADS };
static const float LOG2_E = 1.44269504088896340736f;

/* ---- what a span is ---- */

/* Nodes of the transformer itself, in order; the others bring the image. */
enum { CORE = 4 * LAYERS + 1 };

static bool collect(const ist_spanned *s, int core[CORE]) {
    int count = 0;
    for (int i = s->region->first; i < s->region->end; i++) {
        ist_node_kind kind = s->graph->nodes[i].kind,
                      want = count % 4 == 2 ? IST_NODE_MLP_LAYER : IST_NODE_ATTENTION_LAYER;
        if (kind != IST_NODE_MLP_LAYER && kind != IST_NODE_ATTENTION_LAYER) continue;
        if (count == CORE || kind != want) return false;
        core[count++] = i;
    }
    return count == CORE;
}

/* The node of this kind that made t; -1: none. */
static int maker_of(const ist_graph *g, ist_tensor t, ist_node_kind kind) {
    int maker = ist_has(t) ? ist_graph_value(g, t)->maker : -1;
    return maker >= 0 && g->nodes[maker].kind == kind ? maker : -1;
}

/* image = embedding of the prompt's image + a vector, or dense prompts + embedding. */
static bool image_of(const ist_graph *g, ist_tensor image, ist_two_way *t) {
    int sum = maker_of(g, image, IST_NODE_ADD);
    if (sum < 0) return false;
    const ist_add *add = g->nodes[sum].of;
    ist_tensor source = add->a;
    t->shift = maker_of(g, add->b, IST_NODE_PARAMETER);
    if (t->shift < 0) {
        t->dense = add->a;
        source = add->b;
    }
    int expand = maker_of(g, source, IST_NODE_EXPAND);
    if (expand < 0) return false;
    t->embedding = ((const ist_expand *)g->nodes[expand].of)->x;
    t->image_of = ((const ist_expand *)g->nodes[expand].of)->map;
    return true;
}

static bool same(ist_tensor a, ist_tensor b) {
    return a.buffer == b.buffer && a.c0 == b.c0 && a.c == b.c;
}

/* Queries q with position q_pos, keys k with position k_pos, `count` of them, and the queries added (none: `add` is
 * empty). */
static bool attends(const ist_attention_layer *l, ist_tensor q, ist_tensor q_pos, ist_tensor k, ist_tensor k_pos,
                    ist_tensor count, ist_tensor add, int inner) {
    return same(l->q, q) && same(l->q_pos, q_pos) && same(l->k, k) && same(l->k_pos, k_pos) &&
           same(l->k_count, count) && same(l->add, add) && l->heads == HEADS && l->query.out == inner &&
           l->norm.n == q.c;
}

static bool layers_fit(const ist_two_way *t, ist_tensor image, ist_tensor pe) {
    const ist_tensor none = {0};
    ist_tensor q = t->tokens;
    for (int i = 0; i < LAYERS; i++) {
        const ist_attention_layer *self = ist_two_way_attention(t, t->self[i]);
        const ist_attention_layer *read = ist_two_way_attention(t, t->read[i]);
        const ist_attention_layer *update = ist_two_way_attention(t, t->update[i]);
        const ist_mlp_layer *mlp = t->span.graph->nodes[t->mlp[i]].of;
        ist_tensor pos = i ? t->tokens : none;
        if (!attends(self, q, pos, q, pos, t->counts, i ? q : none, t->dim) ||
            !attends(read, self->y, t->tokens, image, pe, none, self->y, t->inner) || !same(mlp->x, read->y) ||
            mlp->act != IST_ACT_RELU || !attends(update, image, pe, mlp->y, t->tokens, t->counts, image, t->inner))
            return false;
        q = mlp->y;
        image = update->y;
    }
    return attends(ist_two_way_attention(t, t->last), q, t->tokens, image, pe, none, q, t->inner);
}

/* Whether nobody reads what only the plain nodes would make. */
static bool keeps_to_itself(const ist_two_way *t) {
    const ist_graph *g = t->span.graph;
    const ist_graph_region *r = t->span.region;
    for (size_t v = 0; v < g->value_count; v++) {
        int maker = g->values[v].maker;
        bool made = maker == t->last || maker == t->update[LAYERS - 1] || maker == t->code;
        if (maker >= r->first && maker < r->end && !made && ist_graph_leaves(g, (int)v + 1, r->first, r->end))
            return false;
    }
    return true;
}

bool ist_two_way_of(const ist_spanned *span, ist_two_way *t) {
    int core[CORE];
    *t = (ist_two_way){.span = *span};
    if (!collect(span, core)) return false;
    for (int i = 0; i < LAYERS; i++) {
        t->self[i] = core[4 * i];
        t->read[i] = core[4 * i + 1];
        t->mlp[i] = core[4 * i + 2];
        t->update[i] = core[4 * i + 3];
    }
    t->last = core[CORE - 1];
    const ist_attention_layer *first = ist_two_way_attention(t, t->read[0]);
    ist_tensor image = first->k, pe = first->k_pos;
    t->tokens = ist_two_way_attention(t, t->self[0])->q;
    t->counts = ist_two_way_attention(t, t->self[0])->k_count;
    t->code = maker_of(span->graph, pe, IST_NODE_GRID_CODE);
    t->prompts = t->tokens.n;
    t->length = image.h * image.w;
    t->dim = t->tokens.c;
    t->inner = first->query.out;
    return t->code >= 0 && image.c == t->dim && image_of(span->graph, image, t) && layers_fit(t, image, pe) &&
           keeps_to_itself(t);
}

int ist_two_way_wanted(const ist_two_way *t) {
    const ist_graph *g = t->span.graph;
    ist_tensor y = ist_two_way_attention(t, t->last)->y;
    int reader = ist_graph_reader(g, y.buffer);
    if (reader < 0 || g->nodes[reader].kind != IST_NODE_TOKEN_MLPS) return y.w;
    const ist_token_mlps *m = g->nodes[reader].of;
    return m->first + m->count;
}

/* ---- beginning ---- */

float *ist_two_way_position(ist_plan *p, const ist_two_way *t) {
    ist_loaded loaded;
    const ist_grid_code *code = ist_span_load(&t->span, t->code, &loaded);
    float *values = code ? ist_grid_code_values(p, code) : NULL;
    ist_span_release(&loaded);
    return values;
}

void ist_two_way_start(ist_plan *p, const ist_two_way *t, ist_image_side *image, ist_loaded *loaded) {
    const ist_spanned *s = &t->span;
    ist_tensor e = ist_span_tensor(s, t->embedding), map = ist_span_tensor(s, t->image_of);
    *loaded = (ist_loaded){0};
    ist_span_enter(s, t->code);
    ist_span_lower(s, t->code);
    *image = (ist_image_side){.position = ist_span_tensor(s, ((const ist_grid_code *)s->graph->nodes[t->code].of)->y)};
    e = ist_view(e, e.n, 1, t->length);
    if (t->shift >= 0) {
        const ist_parameter *shift = ist_span_load(s, t->shift, loaded);
        image->x = e;
        image->map = map;
        image->shift = shift ? shift->rows[0].v : NULL;
        return;
    }
    ist_tensor dense = ist_span_tensor(s, t->dense);
    if (e.n > 1) {
        ist_expand each = {.label = "embedding", .x = e, .map = map};
        ist_emit(p, IST_NODE_EXPAND, &each);
        e = each.y;
    }
    ist_add sum = {.label = "embedding", .a = ist_view(dense, dense.n, 1, t->length), .b = e};
    ist_emit(p, IST_NODE_ADD, &sum);
    image->x = sum.y;
}

float *ist_transposed(ist_plan *p, const ist_filter *f) {
    if (ist_plan_status(p)) return NULL;
    float *t = malloc((size_t)f->out * (size_t)f->in * sizeof *t);
    if (!t) ist_plan_fail(p, IST_E_MEMORY, "out of host memory for %d x %d weights", f->out, f->in);
    for (int o = 0; t && o < f->out; o++)
        for (int i = 0; i < f->in; i++) t[i * f->out + o] = f->w[o * f->in + i];
    return t;
}

ist_fold_job ist_fold_of(ist_tensor x, ist_tensor add, const ist_filter *own, const float *other, const float *constant,
                         int k, bool columns, ist_prompt_way only) {
    int per_head = own->out / HEADS;
    return (ist_fold_job){.x = x,
                          .add = add,
                          .fold = {.d = per_head,
                                   .k = k,
                                   .w = own->w,
                                   .b = own->b,
                                   .m = other,
                                   .mb = constant,
                                   .scale = columns ? LOG2_E / sqrtf((float)per_head) : 1.0f,
                                   .columns = columns,
                                   .plain = !other,
                                   .only = only}};
}

/* ---- with absorbed projections ---- */

typedef struct run {
    ist_plan *p;
    const ist_absorbed_kernels *kernels;
    const ist_two_way *t;
    ist_two_way_sharing *sharing;
    ist_image_side image; /* before or after updates */
    int pending;          /* the layer whose update the next reading carries out; -1: none */
    ist_tensor by;        /* the tokens that it is by */
    ist_tensor tokens;    /* the first ones, which are added to all queries, or as many of them as are asked for */
    ist_tensor counts;    /* of how many tokens each prompt is, or empty */
} run;

static ist_tensor linear(ist_plan *p, ist_tensor x, ist_conv_weights w, const char *label) {
    ist_conv node = {.label = label, .x = x};
    ist_round(p, &w);
    node.filter = ist_filter_of(&w);
    if (!ist_plan_status(p)) ist_emit(p, IST_NODE_CONV, &node);
    ist_conv_weights_free(&w);
    return node.y;
}

/* LN(add + out x): what is behind an attention. */
static ist_tensor finish(ist_plan *p, const ist_attention_layer *l, ist_tensor x, ist_tensor add) {
    ist_tensor u = linear(p, x, ist_weights_of(p, &l->out), l->label);
    ist_layer_norm node = {.label = l->label, .x = u, .add = add, .norm = l->norm, .eps = l->eps};
    ist_emit(p, IST_NODE_LAYER_NORM, &node);
    return node.y;
}

/* Queries and keys are one product. */
static ist_tensor self_attention(const run *r, int node, ist_tensor q) {
    ist_plan *p = r->p;
    ist_loaded loaded;
    ist_span_enter(&r->t->span, node);
    const ist_attention_layer *l = ist_span_load(&r->t->span, node, &loaded);
    ist_tensor y = {0}, x = q;
    if (l) {
        ist_conv_weights both;
        ist_error err = {0};
        ist_status status = ist_stack(ist_weights_of(p, &l->query), ist_weights_of(p, &l->key), &both, &err);
        if (status) ist_plan_fail(p, status, "%s: %s", l->label, err.text);
        if (ist_has(l->q_pos)) {
            ist_add sum = {.label = l->label, .a = q, .b = l->q_pos};
            ist_emit(p, IST_NODE_ADD, &sum);
            x = sum.y;
        }
        ist_tensor qk = linear(p, x, both, l->label), v = linear(p, q, ist_weights_of(p, &l->value), l->label);
        int c = l->query.out;
        ist_attention a = {.label = l->label,
                           .q = ist_slice(qk, 0, c),
                           .k = ist_slice(qk, c, c),
                           .v = v,
                           .k_count = r->counts,
                           .heads = l->heads,
                           .count = q.n,
                           .scale = 1.0f / sqrtf((float)c / (float)l->heads)};
        ist_emit(p, IST_NODE_ATTENTION, &a);
        y = finish(p, l, a.y, ist_has(ist_two_way_attention(r->t, node)->add) ? q : (ist_tensor){0});
    }
    ist_span_release(&loaded);
    return y;
}

/* The MLP of a layer, on tokens that lie at q. */
static ist_tensor mlp(const run *r, int node, ist_tensor q) {
    ist_loaded loaded;
    ist_span_enter(&r->t->span, node);
    ist_span_load(&r->t->span, node, &loaded);
    ist_mlp_layer *l = loaded.node;
    ist_tensor y = {0};
    if (!ist_plan_status(r->p)) {
        l->x = q;
        ist_emit(r->p, IST_NODE_MLP_LAYER, l);
        y = l->y;
    }
    ist_span_release(&loaded);
    return y;
}

static ist_prompt_way apart(const run *r) {
    return r->sharing && r->sharing->shares ? r->sharing->apart : (ist_prompt_way){0};
}

/* Whether the last token is taken off the others, which all prompts have as many of then. */
static bool is_relative(const run *r) {
    return r->kernels->shares && !ist_has(r->counts);
}

/* What a reading's step takes of the tokens: queries and, of a pending update, keys and values. */
typedef struct folded {
    ist_tensor queries, keys, values;
} folded;

static folded fold_tokens(const run *r, ist_tensor q, const ist_attention_layer *read,
                          const ist_attention_layer *update) {
    ist_plan *p = r->p;
    ist_prompt_way only = apart(r);
    ist_tensor none = {0};
    int k = r->t->dim;
    folded f = {.queries = none};
    float *out = update ? ist_transposed(p, &update->out) : NULL;
    if (ist_plan_status(p)) {
        free(out);
        return f;
    }
    ist_fold_job query = ist_fold_of(q, r->tokens, &read->query, read->key.w, NULL, k, true, only), keys, values;
    f.queries = ist_fold_heads(p, r->kernels, &query, read->label);
    if (update) {
        ist_tensor all = ist_span_tensor(&r->t->span, r->t->tokens);
        keys = ist_fold_of(r->by, all, &update->key, update->query.w, update->query.b, k, true, only);
        values = ist_fold_of(r->by, none, &update->value, out, NULL, k, false, only);
        keys.fold.relative = values.fold.relative = is_relative(r);
        f.keys = ist_fold_heads(p, r->kernels, &keys, read->label);
        if (ist_has(r->counts)) ist_hide_tokens(p, "portable/prompt", f.keys, f.keys.c, r->counts, read->label);
        f.values = ist_fold_heads(p, r->kernels, &values, read->label);
    }
    if (r->sharing && r->sharing->shares)
        r->sharing->fold(p, r->sharing, &query, update ? &keys : NULL, update ? &values : NULL, r->pending,
                         read->label);
    free(out);
    return f;
}

/* LN(q + attention of the tokens q to the image after its pending update). */
static ist_tensor read_with(run *r, ist_tensor q, const ist_attention_layer *read, const ist_attention_layer *update) {
    ist_plan *p = r->p;
    folded f = fold_tokens(r, q, read, update);
    ist_tensor updated = {0};
    ist_image_update u = {.keys = f.keys, .values = f.values, .relative = is_relative(r)};
    if (update) {
        u.bias = update->out.b;
        u.gamma = update->norm.gamma;
        u.beta = update->norm.beta;
        u.eps = update->eps;
    }
    r->image.only = apart(r);
    ist_tensor y = ist_image_step(p, r->kernels, &r->image, update ? &u : NULL, f.queries, q.w, &updated, read->label);
    ist_merge_job merge = {y, q.w, r->t->dim, read->value.out / HEADS, read->value.w, read->value.b, apart(r)};
    y = ist_image_merge(p, r->kernels, &merge, read->label);
    if (r->sharing && r->sharing->shares && !ist_plan_status(p))
        r->sharing->read(p, r->sharing, r->pending + 1, y, read->label);
    if (update) r->image = (ist_image_side){.x = updated, .position = r->image.position};
    return finish(p, read, y, q);
}

static ist_tensor read_image(run *r, int node, ist_tensor q) {
    const ist_spanned *s = &r->t->span;
    ist_loaded loaded, pending = {0};
    ist_tensor y = {0};
    ist_span_enter(s, node);
    const ist_attention_layer *read = ist_span_load(s, node, &loaded), *update = NULL;
    if (r->pending >= 0) update = ist_span_load(s, r->t->update[r->pending], &pending);
    if (!ist_plan_status(r->p)) y = read_with(r, q, read, update);
    r->pending = -1;
    ist_span_release(&loaded);
    ist_span_release(&pending);
    return y;
}

/* The first `count` tokens of every prompt as tokens of their own. */
static ist_tensor first_tokens(ist_plan *p, ist_tensor q, int count, const char *label) {
    ist_copy node = {.label = label, .x = q};
    node.x.ld *= q.w;
    node.x.c *= count;
    node.x.w = 1;
    ist_emit(p, IST_NODE_COPY, &node);
    ist_tensor rows = node.y;
    rows.w = count;
    rows.c = rows.ld = q.c;
    return rows;
}

void ist_two_way_absorbed(ist_plan *p, const ist_absorbed_kernels *kernels, const ist_two_way *t,
                          ist_two_way_sharing *sharing) {
    ist_loaded shift;
    const ist_spanned *s = &t->span;
    const ist_attention_layer *last = ist_two_way_attention(t, t->last);
    run r = {.p = p, .kernels = kernels, .t = t, .sharing = sharing, .pending = -1};
    ist_two_way_start(p, t, &r.image, &shift);
    r.tokens = ist_span_tensor(s, t->tokens);
    r.counts = ist_span_tensor(s, t->counts);
    if (sharing && !ist_plan_status(p)) sharing->begin(p, sharing, t, &r.image);
    ist_tensor q = r.tokens;
    for (int i = 0; i < LAYERS && !ist_plan_status(p); i++) {
        q = self_attention(&r, t->self[i], q);
        q = read_image(&r, t->read[i], q);
        q = r.by = mlp(&r, t->mlp[i], q);
        r.pending = i;
    }
    if (!ist_plan_status(p) && kernels->shares && q.w <= IST_BLOCK_TOKENS) {
        q = first_tokens(p, q, ist_two_way_wanted(t), last->label); /* nothing asks for the others any more */
        r.tokens = first_tokens(p, r.tokens, ist_two_way_wanted(t), last->label);
    }
    q = read_image(&r, t->last, q);
    ist_span_release(&shift);
    ist_span_made(s, last->y, q);
    ist_span_made(s, ist_two_way_attention(t, t->update[LAYERS - 1])->y, r.image.x);
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    ist_two_way t;
    (void)p, (void)v;
    return ist_two_way_of(node, &t) && t.tokens.w <= IST_TWO_WAY_TOKENS && t.dim % IST_BLOCK_COLUMNS == 0 &&
           t.dim <= IST_IMAGE_CHANNELS && t.inner % (4 * HEADS) == 0 && t.inner <= HEADS * IST_HEAD_CHANNELS;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_two_way t;
    (void)way;
    if (ist_two_way_of(node, &t)) ist_two_way_absorbed(p, v->config, &t, NULL);
}

const ist_family ist_two_way_absorbed_family = {.takes = takes, .emit = emit};
