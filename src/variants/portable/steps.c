/* Composite nodes as smaller ones: the definition of each, for machines that have no kernel for the whole. */
#include "variants/portable/conv_tile.h"
#include "variants/portable/dwconv.h"
#include "variants/rounding.h"
#include "variants/variant.h"
#include "variants/window.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PAD_1   .top = 1, .left = 1, .bottom = 1, .right = 1
#define PAD_FAR .bottom = 1, .right = 1 /* one row and column at the far sides */

static const ist_tensor none = {0};

/* `reuse`: of the rows of x, then of those of the result; NULL: nothing is known. */
static ist_tensor conv_rows(ist_plan *p, ist_tensor x, const ist_filter *f, ist_conv_opts o, ist_tensor y,
                            const char *label, ist_padding_reuse *reuse, ist_padding_reuse addend) {
    ist_conv node = {.label = label, .x = x, .y = y, .filter = *f, .o = o, .addend = addend};
    if (reuse) node.reuse = *reuse;
    ist_emit(p, IST_NODE_CONV, &node);
    if (reuse) *reuse = node.reuse;
    if (ist_has(node.o.pool) && !ist_plan_status(p))
        ist_emit(p, IST_NODE_MAXPOOL, &(ist_maxpool){.label = label, .x = x, .y = node.o.pool});
    return node.y;
}

static ist_tensor conv(ist_plan *p, ist_tensor x, const ist_filter *f, ist_conv_opts o, ist_tensor y,
                       const char *label) {
    return conv_rows(p, x, f, o, y, label, NULL, (ist_padding_reuse){0});
}

static ist_tensor dwconv(ist_plan *p, ist_tensor x, const ist_filter *f, ist_conv_opts o, ist_tensor y,
                         const char *label, ist_padding_reuse *reuse) {
    ist_conv node = {.label = label, .x = x, .y = y, .filter = *f, .o = o};
    if (reuse) node.reuse = *reuse;
    ist_emit(p, IST_NODE_DWCONV, &node);
    if (reuse) *reuse = node.reuse;
    return node.y;
}

static ist_tensor norm(ist_plan *p, ist_tensor x, ist_tensor add, ist_affine affine, float eps, ist_tensor y,
                       const char *label, ist_padding_reuse *reuse) {
    ist_layer_norm node = {.label = label, .x = x, .add = add, .y = y, .norm = affine, .eps = eps};
    if (reuse) node.reuse = *reuse;
    ist_emit(p, IST_NODE_LAYER_NORM, &node);
    if (reuse) *reuse = node.reuse;
    return node.y;
}

/* A linear layer as the plan holds it. */
static ist_tensor linear(ist_plan *p, ist_tensor x, const ist_filter *f, ist_conv_opts o, ist_tensor y,
                         const char *label) {
    ist_conv_weights room;
    ist_filter held = ist_rounded(p, f, &room);
    y = conv(p, x, &held, o, y, label);
    ist_conv_weights_free(&room);
    return y;
}

/* ---- the detector ---- */

/* The layer's LAB, unless it changes nothing. */
static ist_conv_opts stem_opts(ist_conv_opts o, const ist_stem_layer *l) {
    o.epi.act = IST_ACT_RELU;
    if (l->lab_scale == 1 && l->lab_bias == 0) return o;
    o.epi.has_lab = true;
    o.epi.lab_scale = l->lab_scale;
    o.epi.lab_bias = l->lab_bias;
    return o;
}

static void emit_stem(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_stem *q = node;
    const ist_stem_layer *l = q->layers;
    int m = l[0].f.out, n = q->image.n, h = (q->image.h - 1) / 2 + 1, w = (q->image.w - 1) / 2 + 1;
    ist_tensor cat = ist_plan_tensor(p, n, h, w, 2 * m, IST_ELEM_T); /* the maximum, what stem2b makes */
    ist_conv_opts half = {.stride = 2, PAD_1}, far = {PAD_FAR}, plain = {0};
    (void)v, (void)way;
    ist_tensor y = conv(p, q->image, &l[0].f, stem_opts(half, &l[0]), none, q->names[0]); /* [n,h,w,m] */
    far.pool = ist_slice(cat, 0, m);
    ist_tensor z = conv(p, y, &l[1].f, stem_opts(far, &l[1]), none, q->names[1]); /* [n,h,w,m/2] */
    far.pool = none;
    conv(p, z, &l[2].f, stem_opts(far, &l[2]), ist_slice(cat, m, m), q->names[2]); /* [n,h,w,m] */
    z = conv(p, cat, &l[3].f, stem_opts(half, &l[3]), none, q->names[3]);          /* [n,h/2,w/2,m] */
    conv(p, z, &l[4].f, stem_opts(plain, &l[4]), q->y, q->names[4]);               /* [n,h/2,w/2,out] */
}

const ist_family ist_portable_stem = {.emit = emit_stem};

static void emit_separable(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_separable *q = node;
    (void)v, (void)way;
    ist_tensor u = conv(p, q->x, &q->point, (ist_conv_opts){0}, none, q->label);
    dwconv(p, u, &q->depth, q->o, q->y, q->label, NULL);
}

const ist_family ist_portable_separable = {.emit = emit_separable};

static void emit_csp(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_csp *b = node;
    int c = b->last.out;
    ist_conv_opts o = {.epi.act = IST_ACT_SILU};
    (void)v, (void)way;
    ist_tensor both = conv(p, b->x, &b->first, o, none, b->label); /* [n,h,w,2c] */
    ist_tensor y = ist_slice(both, 0, c);
    o.top = o.left = o.bottom = o.right = 1;
    for (int i = 0; i < b->necks; i++) {
        if (i + 1 == b->necks) o.epi.add_after = ist_slice(both, c, c);
        y = conv(p, y, &b->neck[i], o, none, b->label); /* [n,h,w,c] */
    }
    o.epi.add_after = none;
    conv(p, y, &b->last, o, b->y, b->label); /* [n,h,w,c] */
}

const ist_family ist_portable_csp = {.emit = emit_csp};

/* ---- TinyViT ---- */

static void emit_patch(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_patch_embed *q = node;
    (void)v, (void)way;
    const ist_padding_reuse nothing = {0};
    ist_tensor u = conv_rows(p, q->image, &q->first, (ist_conv_opts){.stride = 2, PAD_1, .epi.act = IST_ACT_GELU}, none,
                             q->label, &q->reuse, nothing);
    conv_rows(p, u, &q->second, (ist_conv_opts){.stride = 2, PAD_1}, q->y, q->label, &q->reuse, nothing);
}

const ist_family ist_portable_patch = {.emit = emit_patch, .rows = IST_REPEATS_LEFT_OUT};

static void emit_mbconv(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_mbconv *b = node;
    ist_conv_opts project = {.epi.act = b->act};
    (void)v, (void)way;
    const ist_padding_reuse nothing = {0}, addend = b->residual ? b->reuse : nothing;
    if (b->residual) project.epi.add_before = b->x;
    ist_tensor u =
        conv_rows(p, b->x, &b->expand, (ist_conv_opts){.epi.act = IST_ACT_GELU}, none, b->label, &b->reuse, nothing);
    u = dwconv(p, u, &b->spread, (ist_conv_opts){.stride = b->stride, PAD_1, .epi.act = IST_ACT_GELU}, none, b->label,
               &b->reuse);
    conv_rows(p, u, &b->project, project, b->y, b->label, &b->reuse, addend);
}

const ist_family ist_portable_mbconv = {.emit = emit_mbconv, .rows = IST_REPEATS_LEFT_OUT};

static void emit_norm_window(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_norm_window *a = node;
    char name[160];
    float *pad = malloc((size_t)a->qkv.out * sizeof *pad);
    (void)v, (void)way;
    if (!pad) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %d biases", a->label, a->qkv.out);
        return;
    }
    for (int o = 0; o < a->qkv.out; o++) pad[o] = ist_window_shift(a, o);
    snprintf(name, sizeof name, "%s.qkv", a->label);
    ist_norm_mlp project = {.label = name, .x = a->x, .norm = a->norm, .eps = a->eps, .fc1 = a->qkv, .reuse = a->reuse};
    ist_emit(p, IST_NODE_NORM_MLP, &project); /* [n,h,w,3c] */
    ist_window_attention windows = {.label = a->label,
                                    .qkv = project.y,
                                    .y = a->y,
                                    .pad = pad,
                                    .bias = a->bias.v,
                                    .heads = a->heads,
                                    .ws = a->ws,
                                    .reuse = project.reuse};
    ist_emit(p, IST_NODE_WINDOW_ATTENTION, &windows);
    a->reuse = windows.reuse;
    free(pad);
}

const ist_family ist_portable_norm_window = {.emit = emit_norm_window, .rows = IST_REPEATS_LEFT_OUT};

void ist_emit_spread_first(ist_plan *p, ist_norm_mlp *l) {
    ist_norm_mlp rest = *l;
    rest.spread = (ist_filter){0};
    rest.x = dwconv(p, l->x, &l->spread, (ist_conv_opts){PAD_1}, none, l->label, &rest.reuse);
    ist_emit(p, IST_NODE_NORM_MLP, &rest);
    l->reuse = rest.reuse;
}

/* The depthwise convolution, then norm and first layer, then the second: what is left of it at each step may be one
 * launch. */
static void emit_norm_mlp(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_norm_mlp *l = node;
    const ist_padding_reuse nothing = {0}, addend = l->reuse;
    (void)v, (void)way;
    if (l->spread.out) {
        ist_emit_spread_first(p, l);
    } else if (l->fc2.out) {
        ist_norm_mlp first = *l;
        first.fc2 = (ist_filter){0};
        first.y = none;
        ist_emit(p, IST_NODE_NORM_MLP, &first);
        l->reuse = first.reuse;
        conv_rows(p, first.y, &l->fc2, (ist_conv_opts){.epi.add_before = l->x}, l->y, l->label, &l->reuse, addend);
    } else {
        ist_tensor u = norm(p, l->x, none, l->norm, l->eps, none, l->label, &l->reuse);
        conv_rows(p, u, &l->fc1, (ist_conv_opts){.epi.act = l->act}, l->y, l->label, &l->reuse, nothing);
    }
}

/* Its layer; the norm's scale and shift are not in the filter, since only extents matter for choosing. */
static ist_conv layer_of(const ist_norm_mlp *l, float norm_eps) {
    return (ist_conv){.label = l->label,
                      .x = l->x,
                      .y = l->y,
                      .filter = l->fc1,
                      .o = {.epi.act = l->act},
                      .norm_eps = norm_eps,
                      .reuse = l->reuse};
}

static bool is_single_layer(const ist_norm_mlp *l) {
    return !l->spread.out && !l->fc2.out;
}

/* 0 where nothing computes it, which recording it then says. */
static double cost_of(const ist_plan *p, const ist_conv *q) {
    const ist_variant_choice c = ist_variant_cheapest(p, IST_NODE_CONV, q);
    return c.variant ? ist_variant_cost(p, c.variant, q, c.way) : 0;
}

/* Of a single layer: a launch of norm more than the convolution (fitted on one GPU: perf/notes/portable_gpu.md). */
static double cost_norm_mlp(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    const double value = 0.0011;
    const ist_norm_mlp *l = node;
    (void)v, (void)way;
    if (!is_single_layer(l)) return 0;
    const ist_conv q = layer_of(l, 0);
    return cost_of(p, &q) + IST_CONV_TILE_NEXT + value * ist_pixels(l->x) * l->x.c;
}

const ist_family ist_portable_norm_mlp = {.emit = emit_norm_mlp, .cost = cost_norm_mlp, .rows = IST_REPEATS_LEFT_OUT};

void ist_emit_norm_linear(ist_plan *p, ist_norm_mlp *l) {
    ist_conv q = layer_of(l, l->eps);
    const size_t in = (size_t)l->fc1.in, out = (size_t)l->fc1.out;
    float *w = malloc(in * out * sizeof *w), *b = malloc(out * sizeof *b);
    for (size_t o = 0; w && b && o < out; o++) {
        double sum = l->fc1.b ? l->fc1.b[o] : 0;
        for (size_t i = 0; i < in; i++) {
            sum += (double)l->norm.beta[i] * l->fc1.w[o * in + i];
            w[o * in + i] = l->norm.gamma[i] * l->fc1.w[o * in + i];
        }
        b[o] = (float)sum;
    }
    q.filter.w = w;
    q.filter.b = b;
    if (w && b)
        ist_emit(p, IST_NODE_CONV, &q);
    else
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %zu x %zu weights", l->label, out, in);
    l->reuse = q.reuse;
    free(w);
    free(b);
}

/* Not with an activation: such layers were no faster (perf/notes/portable_gpu.md). */
static bool takes_norm_tile(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_norm_mlp *l = node;
    const ist_conv q = layer_of(l, l->eps);
    (void)v;
    return is_single_layer(l) && !l->act && ist_variant_cheapest(p, IST_NODE_CONV, &q).variant;
}

static double cost_norm_tile(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    const ist_norm_mlp *l = node;
    const ist_conv q = layer_of(l, l->eps);
    (void)v, (void)way;
    return cost_of(p, &q);
}

static void emit_norm_tile(ist_plan *p, const ist_variant *v, void *node, int way) {
    (void)v, (void)way;
    ist_emit_norm_linear(p, node);
}

/* One layer on register tiles, which count its pixels' means and deviations while they read them. */
const ist_family ist_portable_norm_tile = {
    .takes = takes_norm_tile, .cost = cost_norm_tile, .emit = emit_norm_tile, .rows = IST_REPEATS_LEFT_OUT};

static ist_conv spread_of(const ist_norm_mlp *l) {
    return (ist_conv){.label = l->label, .x = l->x, .y = l->x, .filter = l->spread, .o = {PAD_1}, .reuse = l->reuse};
}

/* The configuration: NULL, or pixels beyond which the two are faster apart. */
static bool takes_norm_spread(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_norm_mlp *l = node;
    const ist_conv q = spread_of(l);
    const int *most = v->config;
    return l->spread.out && l->fc2.out && (!most || ist_pixels(l->x) <= *most) && ist_dwconv_norm_takes(p, &q);
}

static void emit_norm_spread(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_norm_mlp *l = node;
    ist_conv q = spread_of(l);
    (void)v, (void)way;
    q.y = ist_plan_tensor(p, l->x.n, l->x.h, l->x.w, l->x.c, IST_ELEM_T);
    const ist_tensor normed = ist_plan_tensor(p, l->x.n, l->x.h, l->x.w, l->x.c, IST_ELEM_T);
    ist_dwconv_norm_emit(p, &q, &l->norm, l->eps, normed);
    const ist_padding_reuse nothing = {0}, addend = q.reuse;
    l->reuse = q.reuse;
    ist_tensor u =
        conv_rows(p, normed, &l->fc1, (ist_conv_opts){.epi.act = l->act}, none, l->label, &l->reuse, nothing);
    conv_rows(p, u, &l->fc2, (ist_conv_opts){.epi.add_before = q.y}, l->y, l->label, &l->reuse, addend);
}

/* The norm is made by the depthwise convolution in front of it, whose groups have all channels of their pixels. */
const ist_family ist_portable_norm_spread = {
    .takes = takes_norm_spread, .emit = emit_norm_spread, .rows = IST_REPEATS_LEFT_OUT};

/* ---- SAM's mask decoder ---- */

/* x + position, or x. */
static ist_tensor placed(ist_plan *p, ist_tensor x, ist_tensor position, const char *label) {
    ist_add node = {.label = label, .a = x, .b = position};
    if (!ist_has(position)) return x;
    ist_emit(p, IST_NODE_ADD, &node);
    return node.y;
}

static void emit_attention_layer(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_attention_layer *l = node;
    const ist_conv_opts plain = {0};
    float scale = 1.0f / sqrtf((float)l->query.out / (float)l->heads);
    (void)v, (void)way;
    ist_attention a = {.label = l->label, .k_count = l->k_count, .heads = l->heads, .scale = scale};
    a.q = linear(p, placed(p, l->q, l->q_pos, l->label), &l->query, plain, none, l->label);
    a.k = linear(p, placed(p, l->k, l->k_pos, l->label), &l->key, plain, none, l->label);
    a.v = linear(p, l->k, &l->value, plain, none, l->label);
    ist_emit(p, IST_NODE_ATTENTION, &a);
    ist_tensor u = linear(p, a.y, &l->out, plain, none, l->label);
    norm(p, u, l->add, l->norm, l->eps, l->y, l->label, NULL);
}

const ist_family ist_portable_attention_layer = {.emit = emit_attention_layer};

static void emit_mlp_layer(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_mlp_layer *l = node;
    (void)v, (void)way;
    ist_tensor u = linear(p, l->x, &l->lin1, (ist_conv_opts){.epi.act = l->act}, none, l->label);
    u = linear(p, u, &l->lin2, (ist_conv_opts){0}, none, l->label);
    norm(p, u, l->x, l->norm, l->eps, l->y, l->label, NULL);
}

const ist_family ist_portable_mlp_layer = {.emit = emit_mlp_layer};

/* Token `index` of every prompt as [P,1,1,c]: a channel slice of the prompt's row of all tokens. */
static ist_tensor token_at(ist_tensor x, int index) {
    x.ld *= x.w;
    x.c0 += index * x.c;
    x.w = 1;
    return x;
}

static void mlp(ist_plan *p, const ist_token_mlps *q, int i, ist_tensor x, ist_tensor y) {
    char label[160];
    for (int l = 0; l < 3; l++) {
        ist_conv_opts o = {.epi.act = l < 2 ? IST_ACT_RELU : IST_ACT_NONE};
        snprintf(label, sizeof label, "%s.layers.%d", q->names[i], l);
        x = linear(p, x, &q->mlp[i][l], o, l < 2 ? none : y, label);
    }
}

static void emit_token_mlps(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_token_mlps *q = node;
    ist_tensor vectors = q->vectors; /* as one pixel of all of them */
    int each = vectors.c;
    (void)v, (void)way;
    vectors.c = vectors.ld = each * vectors.w;
    vectors.w = 1;
    for (int i = 1; i < q->count; i++)
        mlp(p, q, i, token_at(q->x, q->first + i), ist_slice(vectors, (i - 1) * each, each));
    mlp(p, q, 0, token_at(q->x, 0), q->iou);
}

const ist_family ist_portable_token_mlps = {.emit = emit_token_mlps};
