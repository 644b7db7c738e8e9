/* A node's operands and numbers as a plan has them: filters read by their recipes, widened for wider maps, rounded where
 * activations are half. */
#include "variants/lowering.h"
#include "variants/rounding.h"
#include "weights/recipe.h"

#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

static float *own(ist_loaded *loaded, float *array) {
    if (array) loaded->arrays[loaded->count++] = array;
    return array;
}

static void fail(ist_lowering *l, ist_status status, const ist_error *err) {
    if (status) ist_plan_fail(l->plan, status, "%s", err->text);
}

/* Widening of a filter's outputs and inputs: those of CSP blocks, and inputs of convolutions. */
static void widenings_of(const ist_lowering *l, const ist_node *n, const void *field, ist_widening *outputs,
                         ist_widening *inputs) {
    *outputs = *inputs = (ist_widening){0};
    if (n->kind == IST_NODE_CONV) *inputs = ist_layout_widening(l, ((const ist_conv *)n->of)->x);
    if (n->kind != IST_NODE_CSP) return;
    const ist_csp *q = n->of;
    *outputs = ist_value_plan_of(l, q->y)->wide;
    *inputs = field == &q->first ? ist_layout_widening(l, q->x) : *outputs;
}

/* Zeros, for who makes no values. A LAB's numbers are arguments of kernels: all is read. */
static ist_status shape_only(const ist_recipe *recipe, ist_conv_weights *w, ist_error *err) {
    ist_recipe_shape s;
    IST_TRY(ist_recipe_describe(recipe, &s, err));
    if (s.lab) return ist_recipe_load(recipe, w, err);
    return ist_zero_filter(s.out, s.in, s.kh, s.kw, w, err);
}

static void load_filter(ist_lowering *l, const ist_node *n, const ist_filter *from, ist_filter *to,
                        ist_loaded *loaded, ist_conv_weights *lab) {
    ist_conv_weights w;
    ist_widening outputs, inputs;
    ist_error err = {0};
    const bool read = ist_plan_has_values(l->plan) || n->place.uniform; /* means go from node to node */
    ist_status status = read ? ist_recipe_load(from->recipe, &w, &err) : shape_only(from->recipe, &w, &err);
    widenings_of(l, n, from, &outputs, &inputs);
    if (!status && (outputs.wide || inputs.wide)) status = ist_widen(w, outputs, inputs, &w, &err);
    fail(l, status, &err);
    if (status) return;
    *to = (ist_filter){w.out, w.in, w.kh, w.kw, own(loaded, w.w), own(loaded, w.b), NULL};
    if (w.has_lab) *lab = w;
}

static void load_norm(ist_lowering *l, ist_affine *a, ist_loaded *loaded) {
    ist_norm_weights w = {0};
    ist_error err = {0};
    fail(l, ist_recipe_load_norm(a->recipe, &w, &err), &err);
    if (ist_plan_status(l->plan)) return;
    *a = (ist_affine){own(loaded, w.w), own(loaded, w.b), w.n, NULL};
}

static void load_array(ist_lowering *l, ist_array *a, ist_loaded *loaded) {
    float *v = NULL;
    ist_error err = {0};
    fail(l, ist_recipe_load_array(a->recipe, a->count, &v, &err), &err);
    if (ist_plan_status(l->plan)) return;
    *a = (ist_array){own(loaded, v), a->count, NULL};
}

/* The scale and shift behind the activation, which lie with the filter. */
static void set_lab(ist_node_kind kind, void *node, const ist_field *f, int i, const ist_conv_weights *lab) {
    ist_epilogue *e = kind == IST_NODE_SEPARABLE ? &((ist_separable *)node)->o.epi : &((ist_conv *)node)->o.epi;
    if (kind == IST_NODE_STEM) {
        ist_stem_layer *layer = &((ist_stem *)node)->layers[i];
        layer->lab_scale = lab->lab_scale;
        layer->lab_bias = lab->lab_bias;
    } else if (kind == IST_NODE_CONV || kind == IST_NODE_DWCONV ||
               (kind == IST_NODE_SEPARABLE && f->offset == offsetof(ist_separable, depth))) {
        e->has_lab = true;
        e->lab_scale = lab->lab_scale;
        e->lab_bias = lab->lab_bias;
    }
}

/* ---- means ---- */

/* Means of a view's channels, NULL where they are not known. */
static const float *means_of(const ist_lowering *l, ist_tensor t) {
    const float *means = ist_has(t) ? ist_value_plan_of(l, t)->means : NULL;
    return means ? means + t.c0 % t.ld : NULL;
}

static float *new_means(ist_lowering *l, ist_tensor y) {
    float *means = calloc((size_t)y.c, sizeof *means);
    if (!means) ist_plan_fail(l->plan, IST_E_MEMORY, "out of host memory for %d means", y.c);
    free(ist_value_plan_of(l, y)->means);
    return ist_value_plan_of(l, y)->means = means;
}

/* Rounds for inputs of these means; `result` gets those of what is behind relu, if there is one, and LAB. */
static void round_about(const ist_filter *f, const float *mean, bool relu, bool has_lab, float scale, float shift,
                        float *result) {
    ist_conv_weights w = {.out = f->out, .in = f->in, .kh = f->kh, .kw = f->kw};
    w.w = (float *)f->w; /* ours, as load_filter has made them */
    w.b = (float *)f->b;
    ist_conv_weights_halve_about(&w, mean, result);
    for (int o = 0; o < w.out; o++) {
        if (relu && !(result[o] > 0)) result[o] = 0;
        if (has_lab) result[o] = scale * result[o] + shift;
    }
}

static void round_epilogue(const ist_filter *f, const float *mean, const ist_epilogue *e, float *result) {
    round_about(f, mean, e->act == IST_ACT_RELU, e->has_lab, e->lab_scale, e->lab_bias, result);
}

static bool conv_about(ist_lowering *l, const ist_conv *graph, ist_conv *q) {
    const float *mean = means_of(l, graph->x), *after = means_of(l, graph->o.epi.add_after);
    if (!mean || (ist_has(graph->o.epi.add_after) && !after) || ist_has(graph->o.epi.add_before)) return false;
    float *result = new_means(l, graph->y);
    if (!result) return true;
    round_epilogue(&q->filter, mean, &q->o.epi, result);
    for (int o = 0; o < q->filter.out && after; o++) result[o] += after[o];
    return true;
}

static bool separable_about(ist_lowering *l, const ist_separable *graph, ist_separable *q) {
    const float *mean = means_of(l, graph->x);
    if (!mean) return false;
    float *result = new_means(l, graph->y), *between = calloc((size_t)q->point.out, sizeof *between);
    if (!between) ist_plan_fail(l->plan, IST_E_MEMORY, "out of host memory for %d means", q->point.out);
    if (between && result) {
        round_about(&q->point, mean, false, false, 1, 0, between);
        round_epilogue(&q->depth, between, &q->o.epi, result);
    }
    free(between);
    return true;
}

static void stem_layer_about(const ist_stem_layer *s, const float *mean, float *result) {
    round_about(&s->f, mean, true, true, s->lab_scale, s->lab_bias, result);
}

/* A uniform image of a third of white; the largest of four like values is that value. */
static bool stem_about(ist_lowering *l, const ist_stem *graph, ist_stem *q) {
    int m = q->layers[0].f.out, channels = q->image.c;
    float *result = new_means(l, graph->y), *room = calloc((size_t)(3 * m + channels), sizeof *room);
    if (!room) ist_plan_fail(l->plan, IST_E_MEMORY, "out of host memory for %d means", 3 * m);
    if (room && result) {
        float *image = room + 3 * m, *cat = room, *y = room + 2 * m;
        for (int c = 0; c < channels; c++) image[c] = 1 / 3.0f;
        stem_layer_about(&q->layers[0], image, cat);
        stem_layer_about(&q->layers[1], cat, y);
        stem_layer_about(&q->layers[2], y, cat + m);
        stem_layer_about(&q->layers[3], cat, y);
        stem_layer_about(&q->layers[4], y, result);
    }
    free(room);
    return true;
}

/* Means of a concatenation, if those of all parts are known. */
static void join_means(ist_lowering *l, const ist_concat *q) {
    for (int i = 0; i < IST_CONCAT_MAX && ist_has(q->x[i]); i++)
        if (!means_of(l, q->x[i])) return;
    float *to = new_means(l, q->y);
    for (int i = 0; i < IST_CONCAT_MAX && ist_has(q->x[i]) && to; i++) {
        memcpy(to, means_of(l, q->x[i]), (size_t)q->x[i].c * sizeof *to);
        to += q->x[i].c;
    }
}

/* ---- rounding ---- */

static bool rounded_about(ist_lowering *l, const ist_node *n, void *node) {
    if (!n->place.uniform) return false;
    switch (n->kind) {
    case IST_NODE_CONV:
    case IST_NODE_DWCONV:
        return conv_about(l, n->of, node);
    case IST_NODE_SEPARABLE:
        return separable_about(l, n->of, node);
    case IST_NODE_STEM:
        return stem_about(l, n->of, node);
    case IST_NODE_CONCAT:
        join_means(l, n->of);
        return true;
    default:
        return false;
    }
}

static void round_all(ist_lowering *l, const ist_node *n, void *node) {
    if (ist_plan_status(l->plan) || !ist_plan_half(l->plan) || rounded_about(l, n, node)) return;
    if (!ist_plan_has_values(l->plan)) return;
    for (const ist_field *f = ist_kind_of(n->kind)->fields; f->kind != IST_FIELD_END; f++)
        for (int i = 0; i < f->count && f->kind == IST_FIELD_FILTER; i++) {
            const ist_filter *q = ist_field_of(node, f, i);
            ist_conv_weights w = {.out = q->out, .in = q->in, .kh = q->kh, .kw = q->kw};
            w.w = (float *)q->w;
            if (w.w) ist_conv_weights_halve(&w);
        }
}

/* ---- a node ---- */

static void load_field(ist_lowering *l, const ist_node *n, void *node, const ist_field *f, int i, ist_loaded *loaded) {
    void *at = ist_field_at(node, f, i);
    ist_conv_weights lab = {.lab_scale = 0};
    switch (f->kind) {
    case IST_FIELD_IN:
        *(ist_tensor *)at = ist_layout_tensor(l, *(ist_tensor *)at);
        break;
    case IST_FIELD_OUT:
        *(ist_tensor *)at = (ist_tensor){0};
        break;
    case IST_FIELD_MADE:
        ((ist_tensor *)at)->buffer = ((ist_tensor *)at)->ld = 0;
        break;
    case IST_FIELD_FILTER:
    case IST_FIELD_RAW:
        if (((ist_filter *)at)->recipe) load_filter(l, n, ist_field_of(n->of, f, i), at, loaded, &lab);
        if (lab.has_lab) set_lab(n->kind, node, f, i, &lab);
        break;
    case IST_FIELD_AFFINE:
        if (((ist_affine *)at)->recipe) load_norm(l, at, loaded);
        break;
    case IST_FIELD_ARRAY:
        if (((ist_array *)at)->recipe) load_array(l, at, loaded);
        break;
    default:
        break;
    }
}

const void *ist_load(ist_lowering *l, int i, ist_loaded *loaded) {
    const ist_node *n = &l->graph->nodes[i];
    const ist_kind *k = ist_kind_of(n->kind);
    *loaded = (ist_loaded){0};
    if (ist_plan_status(l->plan)) return NULL;
    loaded->node = malloc(k->size);
    if (!loaded->node) {
        ist_plan_fail(l->plan, IST_E_MEMORY, "out of host memory for a node");
        return NULL;
    }
    memcpy(loaded->node, n->of, k->size);
    for (const ist_field *f = k->fields; f->kind != IST_FIELD_END; f++)
        for (int e = 0; e < f->count && !ist_plan_status(l->plan); e++) load_field(l, n, loaded->node, f, e, loaded);
    round_all(l, n, loaded->node);
    return ist_plan_status(l->plan) ? NULL : loaded->node;
}

void ist_span_release(ist_loaded *loaded) {
    for (int i = 0; i < loaded->count; i++) free(loaded->arrays[i]);
    free(loaded->node);
    *loaded = (ist_loaded){0};
}
