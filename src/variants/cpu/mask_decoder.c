/* The mask decoder on CPUs where an image has more than a few prompts: they share all projections of the image and its
 * share of the upscaling's first convolution.
 *
 * Both updates of the image by a prompt's tokens are linear but for a factor per row, and the first transposed
 * convolution behind them is linear: convolved once, the image serves all of its prompts, and each adds the convolved
 * values of its own tokens (shared_prompts.h and upscale.h have the formulas). */
#include "variants/cpu/absorbed.h"
#include "variants/cpu/upscale.h"
#include "variants/two_way.h"
#include "variants/upscale.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = IST_TWO_WAY_LAYERS, READINGS = IST_SHARED_READINGS, C1 = IST_UPSCALE_MIDDLE, OUTS = 4 * C1 };

/* The configuration (an int): of an image, sharing its projections costs what so many prompts gain by it, with AMX and without. */

typedef struct decoder {
    ist_two_way_sharing base; /* first */
    int few;
    const ist_two_way *t;
    const ist_upscale *up;   /* centred */
    float *behind[LAYERS];   /* the convolution behind both norms of the image and behind the second, [dim][OUTS] */
    float *constants;        /* of ist_upscale_sharing */
    ist_shared_image image;
    ist_shared_tokens plain; /* what those take of the tokens; [P,1,17,64] each */
    ist_upscale_sharing upscale;
} decoder;

/* ---- the convolution as the image before its updates sees it ---- */

static const ist_attention_layer *of(const ist_loaded *l) {
    return l->node;
}

/* Takes the mean of `count` values, `step` apart, off each of them. */
static void centre(float *v, int count, int step) {
    double sum = 0;
    for (int o = 0; o < count; o++) sum += (double)v[o * step];
    for (int o = 0; o < count; o++) v[o * step] -= (float)(sum / count);
}

/* What is normed has no mean; outputs are (pixel of the 2x2 block, channel). */
static void convolve_norms(decoder *d, const ist_loaded update[LAYERS]) {
    int dim = d->t->dim;
    const float *w1 = d->up->w1.v, *gamma[] = {of(&update[0])->norm.gamma, of(&update[1])->norm.gamma};
    for (int o = 0; o < OUTS; o++) {
        for (int i = 0; i < dim; i++) d->behind[1][i * OUTS + o] = gamma[1][i] * w1[(i * C1 + o % C1) * 4 + o / C1];
        centre(d->behind[1] + o, dim, OUTS);
        for (int i = 0; i < dim; i++) d->behind[0][i * OUTS + o] = gamma[0][i] * d->behind[1][i * OUTS + o];
        centre(d->behind[0] + o, dim, OUTS);
    }
}

static void sum_constants(decoder *d, const ist_loaded update[LAYERS]) {
    enum { ROWS = 3 };
    const float *w1 = d->up->w1.v;
    const ist_attention_layer *first = of(&update[0]), *second = of(&update[1]);
    for (int o = 0; o < OUTS; o++) {
        double sum[ROWS] = {0, 0, (double)d->up->b1.v[o % C1]};
        for (int i = 0; i < d->t->dim; i++) {
            sum[0] += (double)first->out.b[i] * (double)d->behind[0][i * OUTS + o];
            sum[1] += ((double)first->norm.beta[i] + (double)second->out.b[i]) * (double)d->behind[1][i * OUTS + o];
            sum[2] += (double)second->norm.beta[i] * (double)w1[(i * C1 + o % C1) * 4 + o / C1];
        }
        for (int r = 0; r < ROWS; r++) d->constants[(o / C1 * ROWS + r) * C1 + o % C1] = (float)sum[r];
    }
}

static bool convolve(ist_plan *p, decoder *d, const ist_loaded update[LAYERS]) {
    size_t count = (size_t)d->t->dim * OUTS;
    for (int i = 0; i < LAYERS; i++) d->behind[i] = malloc(count * sizeof *d->behind[i]);
    d->constants = malloc(sizeof(float) * 3 * OUTS);
    if (!d->behind[0] || !d->behind[1] || !d->constants) {
        ist_plan_fail(p, IST_E_MEMORY, "shared upscaling: out of host memory");
        return false;
    }
    convolve_norms(d, update);
    sum_constants(d, update);
    return true;
}

/* ---- what prompts share ---- */

static void share(ist_plan *p, decoder *d, const ist_image_side *image, const ist_loaded reading[READINGS],
                  const ist_loaded update[LAYERS]) {
    ist_shared_weights w = {.d = d->t->inner / IST_TWO_WAY_HEADS, .outs = OUTS, .eps = of(&update[0])->eps};
    for (int i = 0; i < READINGS; i++) {
        const ist_attention_layer *l = of(&reading[i]);
        w.reading[i].keys = l->key.w, w.reading[i].values = l->value.w, w.reading[i].value_bias = l->value.b;
    }
    for (int i = 0; i < LAYERS; i++) {
        const ist_attention_layer *l = of(&update[i]);
        w.update[i].queries = l->query.w, w.update[i].query_bias = l->query.b;
        w.update[i].out = l->out.w, w.update[i].out_bias = l->out.b;
        w.update[i].gamma = l->norm.gamma, w.update[i].beta = l->norm.beta;
    }
    float *position = ist_two_way_position(p, d->t);
    if (position && convolve(p, d, update)) {
        w.position = position;
        w.map = d->behind[0];
        d->image = ist_share_image(p, image, &w, d->t->prompts, d->t->tokens.w, d->few, "shared projections");
        d->base.apart = (ist_prompt_way){d->image.ways, 0};
        d->upscale = (ist_upscale_sharing){.map = d->image.of,
                                           .ways = d->image.ways,
                                           .image = d->image.map,
                                           .trace = d->image.trace,
                                           .constants = d->constants};
    }
    free(position);
}

static void begin(ist_plan *p, ist_two_way_sharing *s, const ist_two_way *t, const ist_image_side *image) {
    decoder *d = (decoder *)s;
    ist_loaded reading[READINGS], update[LAYERS];
    for (int i = 0; i < READINGS; i++) ist_span_load(&t->span, i < LAYERS ? t->read[i] : t->last, &reading[i]);
    for (int i = 0; i < LAYERS; i++) ist_span_load(&t->span, t->update[i], &update[i]);
    if (!ist_plan_status(p)) share(p, d, image, reading, update);
    for (int i = 0; i < READINGS; i++) ist_span_release(&reading[i]);
    for (int i = 0; i < LAYERS; i++) ist_span_release(&update[i]);
}

/* The tokens of a job as they are, for prompts that share. */
static ist_tensor unfolded(ist_plan *p, const decoder *d, ist_fold_job job, bool relative, const char *label) {
    job.fold.m = job.fold.mb = NULL;
    job.fold.plain = true;
    job.fold.relative = relative;
    job.fold.only = (ist_prompt_way){d->image.ways, 1};
    return ist_fold_heads(p, &ist_cpu_absorbed, &job, label);
}

/* Values of the tokens of update `layer` as the convolution sees them. */
static ist_tensor convolved(ist_plan *p, const decoder *d, ist_fold_job values, int layer) {
    int inner = d->t->inner, dim = d->t->dim;
    const float *out = values.fold.m;
    float *m = calloc((size_t)inner * OUTS, sizeof *m);
    if (!m) {
        ist_plan_fail(p, IST_E_MEMORY, "shared upscaling: out of host memory");
        return (ist_tensor){0};
    }
    for (int i = 0; i < inner; i++)
        for (int k = 0; k < dim; k++)
            for (int o = 0; o < OUTS; o++) m[i * OUTS + o] += out[i * dim + k] * d->behind[layer][k * OUTS + o];
    values.fold.k = OUTS;
    values.fold.m = m;
    values.fold.relative = true;
    values.fold.only = (ist_prompt_way){d->image.ways, 1};
    ist_tensor y = ist_fold_heads(p, &ist_cpu_absorbed, &values, "shared upscaling");
    free(m);
    return y;
}

static void fold(ist_plan *p, ist_two_way_sharing *s, const ist_fold_job *query, const ist_fold_job *keys,
                 const ist_fold_job *values, int layer, const char *label) {
    decoder *d = (decoder *)s;
    if (ist_plan_status(p)) return;
    d->plain.queries = unfolded(p, d, *query, false, label);
    if (!keys) return;
    d->plain.keys = unfolded(p, d, *keys, true, label);
    d->plain.values[layer] = unfolded(p, d, *values, false, label);
    d->upscale.values[layer] = convolved(p, d, *values, layer);
}

static void read(ist_plan *p, ist_two_way_sharing *s, int updates, ist_tensor y, const char *label) {
    decoder *d = (decoder *)s;
    ist_shared_read(p, &d->image, updates, &d->plain, y, label);
}

/* ---- the span ---- */

/* The transformer, the MLPs of its tokens, the upscaling of its image, and nothing else. */
typedef struct parts {
    ist_graph_region inner;
    ist_two_way t;
    int mlps, upscale;
} parts;

static bool parts_of(const ist_spanned *s, parts *q) {
    const ist_graph *g = s->graph;
    const ist_graph_region *r = s->region, *inner = NULL;
    for (size_t i = 0; i < g->region_count && !inner; i++)
        if (g->regions[i].kind == IST_SPAN_TWO_WAY && g->regions[i].first == r->first && g->regions[i].end < r->end)
            inner = &g->regions[i];
    if (!inner || r->end - inner->end != 2) return false;
    q->inner = *inner;
    q->mlps = inner->end;
    q->upscale = inner->end + 1;
    const ist_upscale *up = ist_span_node(s, q->upscale, IST_NODE_UPSCALE);
    ist_spanned two_way = {s->lowering, g, &q->inner};
    return up && ist_span_node(s, q->mlps, IST_NODE_TOKEN_MLPS) && ist_two_way_of(&two_way, &q->t) &&
           up->x.buffer == ist_two_way_attention(&q->t, q->t.update[LAYERS - 1])->y.buffer;
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    parts q;
    (void)p;
    return parts_of(node, &q) && !ist_has(q.t.counts) && q.t.shift >= 0 && q.t.prompts > *(const int *)v->config &&
           q.t.tokens.w <= IST_TRACE_TOKENS && q.t.dim <= IST_IMAGE_CHANNELS && q.t.dim % IST_BLOCK_COLUMNS == 0 &&
           q.t.inner % (4 * IST_TWO_WAY_HEADS) == 0 && q.t.inner <= IST_TWO_WAY_HEADS * IST_HEAD_CHANNELS;
}

static void upscale(ist_plan *p, const ist_spanned *s, int node, const decoder *d) {
    ist_loaded loaded;
    const ist_upscale *graph = s->graph->nodes[node].of;
    ist_span_enter(s, node);
    if (ist_span_load(s, node, &loaded)) {
        ist_upscale *q = loaded.node;
        q->sharing = &d->upscale;
        ist_emit(p, IST_NODE_UPSCALE, q);
        ist_span_made(s, graph->y, q->y);
    }
    ist_span_release(&loaded);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_spanned *s = node;
    parts q;
    ist_upscale centred;
    ist_loaded up;
    float *room = NULL;
    (void)way;
    if (!parts_of(s, &q)) return;
    decoder d = {.base = {.shares = true, .begin = begin, .fold = fold, .read = read},
                 .few = *(const int *)v->config,
                 .t = &q.t,
                 .up = &centred};
    const ist_upscale *loaded = ist_span_load(s, q.upscale, &up);
    if (loaded) {
        centred = *loaded;
        centred.x = ((const ist_upscale *)s->graph->nodes[q.upscale].of)->x; /* which nothing has made yet: for its extents */
        if (ist_upscale_centred(p, &centred, &centred, &room)) {
            ist_two_way_absorbed(p, &ist_cpu_absorbed, &q.t, &d.base);
            ist_span_lower(s, q.mlps);
            upscale(p, s, q.upscale, &d);
        }
    }
    ist_span_release(&up);
    free(room);
    for (int i = 0; i < LAYERS; i++) free(d.behind[i]);
    free(d.constants);
}

const ist_family ist_cpu_mask_decoder = {.takes = takes, .emit = emit};
