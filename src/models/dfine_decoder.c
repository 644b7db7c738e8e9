/* D-FINE's decoder (Peterande/D-FINE, src/zoo/dfine/dfine_decoder.py): query selection, then layers that move a box by
 * a distribution over 33 offsets per side.
 *
 * Only what the last layer's result needs is recorded: one score head, one quality head. From the gathering of the
 * queries on all but the keys and values of self-attention is work on one query: a chain (ops/chain.h) where that pays.
 */
#include "models/dfine.h"

#include "ops/chain.h"

#include <math.h>
#include <stdlib.h>

#define OPTS(...) (&(ist_conv_opts){__VA_ARGS__})
#define RELU      .epi.act = IST_ACT_RELU

enum { BINS = IST_DFINE_REG_MAX + 1, HEADS = IST_DFINE_HEADS, QUERIES = IST_DFINE_QUERIES };

static const float ln_eps = 1e-5f;

/* Room for what positions, boxes and scores are made of: float also where activations are half. */
static ist_tensor exact(const ist_net *net, ist_tensor queries, int c) {
    return ist_plan_tensor(net->plan, queries.n, 1, QUERIES, c, IST_ELEM_F32);
}

/* Layers first.. of an MLP: linear layers with ReLU between them; `count` is the number of all its layers. The last
 * writes to `into` where that is a tensor. */
static ist_tensor mlp(const ist_net *net, ist_tensor x, int first, int count, ist_tensor into, const char *name) {
    for (int i = first; i < count; i++) {
        bool last = i + 1 == count;
        ist_conv_opts opts = {.epi.act = last ? IST_ACT_NONE : IST_ACT_RELU, .into = last ? into : (ist_tensor){0}};
        x = ist_dense(net, x, &opts, "%s.layers.%d", name, i);
    }
    return x;
}

/* ---- constants of the input size ---- */

typedef struct anchors {
    ist_tensor logits;  /* [1,1,T,4] F32: ln(a / (1 - a)), +inf in all four where invalid */
    ist_tensor invalid; /* I32 [1,1,count,1]: their tokens; no tensor when there are none */
} anchors;

/* One anchor per token: the cell's centre and a square of 0.05 * 2^level. Invalid unless all of it lies in
 * (0.01, 0.99); the official code decides that in float32. */
static bool anchor_of(const ist_level *level, int l, int cell, float *logit) {
    double a[4] = {(cell % level->w + 0.5) / level->w, (cell / level->w + 0.5) / level->h, 0.05 * (1 << l),
                   0.05 * (1 << l)};
    bool valid = true;
    for (int i = 0; i < 4; i++) valid = valid && (float)a[i] > 0.01f && (float)a[i] < 0.99f;
    for (int i = 0; i < 4; i++) logit[i] = valid ? (float)log(a[i] / (1 - a[i])) : INFINITY;
    return valid;
}

static anchors make_anchors(const ist_net *net, const ist_dfine_memory *memory) {
    anchors result = {0};
    const ist_level *last = &memory->level[memory->levels - 1];
    int tokens = last->start + last->h * last->w, count = 0, t = 0;
    if (ist_plan_status(net->plan)) return result;
    float *logits = malloc((size_t)tokens * 4 * sizeof *logits);
    int *invalid = malloc((size_t)tokens * sizeof *invalid);
    if (logits && invalid) {
        for (int l = 0; l < memory->levels; l++)
            for (int cell = 0; cell < memory->level[l].h * memory->level[l].w; cell++, t++)
                if (!anchor_of(&memory->level[l], l, cell, logits + 4 * (size_t)t)) invalid[count++] = t;
        result.logits = ist_plan_const(net->plan, logits, 1, 1, tokens, 4, IST_ELEM_F32, "anchors");
        if (count) result.invalid = ist_plan_const(net->plan, invalid, 1, 1, count, 1, IST_ELEM_I32, "invalid anchors");
    } else {
        ist_plan_fail(net->plan, IST_E_MEMORY, "out of host memory for %d anchors", tokens);
    }
    free(logits);
    free(invalid);
    return result;
}

/* W(n), the offset that a bin stands for (D-FINE, equation 5). */
static void bin_offsets(double up, double reg_scale, float *w) {
    double a = fabs(up) * fabs(reg_scale), t = pow(a + 1, 2.0 / (IST_DFINE_REG_MAX - 2));
    int mid = IST_DFINE_REG_MAX / 2;
    for (int k = 1; k < IST_DFINE_REG_MAX; k++) {
        double distance = pow(t, abs(k - mid)) - 1;
        w[k] = (float)(k < mid ? -distance : distance);
    }
    w[0] = (float)(-2 * a);
    w[IST_DFINE_REG_MAX] = (float)(2 * a);
}

/* ---- query selection ---- */

/* The 300 tokens with the best class score: target [n,1,300,D], ref [n,1,300,4]. */
static void select_queries(const ist_net *net, const ist_dfine_memory *memory, ist_tensor force_index,
                           ist_tensor *target, ist_tensor *ref) {
    ist_plan *p = net->plan;
    anchors anchor = make_anchors(net, memory);
    ist_tensor e = ist_dense(net, memory->tokens, NULL, "decoder.enc_output.proj"); /* [n,1,T,D] */
    if (ist_has(anchor.invalid)) {
        /* Tokens of invalid anchors are zeroed before the projection: what is left of them is its bias. */
        ist_conv_weights proj = ist_take_dense(net, "decoder.enc_output.proj");
        ist_op_fill_rows(p, e, anchor.invalid, proj.b, "decoder.enc_output.mask"); /* [n,1,T,D] */
        ist_conv_weights_free(&proj);
    }
    e = ist_layer_norm(net, e, ln_eps, NULL, "decoder.enc_output.norm"); /* [n,1,T,D] */
    ist_tap(net, e, "sel.memory");
    ist_tensor scores = ist_dense(net, e, NULL, "decoder.enc_score_head"); /* [n,1,T,classes] */
    ist_tap(net, scores, "sel.logits");
    ist_tensor index = ist_op_top_rows(p, scores, QUERIES, "decoder.top_queries"); /* [n,1,300,1] */
    ist_tap(net, index, "sel.topk_index");
    if (ist_has(force_index)) index = force_index;
    ist_chain_begin(p, e.n, QUERIES, e.c, 4 * e.c);
    *target = ist_op_gather(p, e, index, "decoder.target"); /* [n,1,300,D] */
    ist_tap(net, *target, "dec.target");
    ist_tensor logit = ist_op_gather(p, anchor.logits, index, "decoder.anchor");                 /* [n,1,300,4] */
    ist_tensor delta = mlp(net, *target, 0, 3, exact(net, *target, 4), "decoder.enc_bbox_head"); /* [n,1,300,4] */
    *ref = ist_op_box_init(p, delta, logit, "decoder.ref");                                      /* [n,1,300,4] */
}

/* ---- decoder layers ---- */

/* What one layer hands to the next. */
typedef struct state {
    ist_tensor x;        /* [n,1,300,D] queries */
    ist_tensor previous; /* x of the layer before; none in layer 0 */
    ist_tensor ref;      /* [n,1,300,4] boxes */
    ist_tensor ref_init; /* boxes that all distributions refine; from layer 0 on */
    ist_tensor corners;  /* [n,1,300,132] running sum of corner logits; none in layer 0 */
} state;

static ist_tensor self_attention(const ist_net *net, int i, ist_tensor x, ist_tensor pos) {
    int width = x.c;
    ist_name name = ist_name_of("decoder.decoder.layers.%d.self_attn", i);
    ist_name weight = ist_name_of("%s.in_proj_weight", name.text), bias = ist_name_of("%s.in_proj_bias", name.text);
    ist_name label_qk = ist_name_of("%s.qk", name.text), label_v = ist_name_of("%s.v", name.text);
    ist_attention_opts heads = {.heads = HEADS, .scale = (float)(1 / sqrt(width / HEADS))};
    ist_conv_weights in_proj = ist_take_linear(net, weight.text, bias.text);
    ist_conv_weights w_qk = ist_part(net, &in_proj, 0, 2 * width, 0, width, true);
    ist_conv_weights w_v = ist_part(net, &in_proj, 2 * width, width, 0, width, true);
    ist_conv_weights_free(&in_proj);

    ist_tensor xp = ist_op_add(net->plan, x, pos, (ist_tensor){0}, name.text); /* [n,1,300,D] */
    ist_tensor qk = ist_apply(net, xp, w_qk, NULL, label_qk.text);             /* [n,1,300,2D] */
    ist_tensor v = ist_apply(net, x, w_v, NULL, label_v.text);                 /* [n,1,300,D] */
    ist_tensor q = ist_slice(qk, 0, width), k = ist_slice(qk, width, width);
    ist_tensor a = ist_op_attention(net->plan, q, k, v, &heads, name.text); /* [n,1,300,D] */
    a = ist_dense(net, a, NULL, "%s.out_proj", name.text);                  /* [n,1,300,D] */
    ist_tap(net, a, "dec.l%d.self", i);
    return a;
}

/* Samples the memory around `ref` for query x + pos; there is no value and no output projection. */
static ist_tensor cross_attention(const ist_net *net, int i, ist_tensor query, ist_tensor ref,
                                  const ist_dfine_memory *memory, ist_tensor into) {
    int points = HEADS * IST_DFINE_POINTS;
    ist_name name = ist_name_of("decoder.decoder.layers.%d.cross_attn", i);
    ist_conv_weights w_offsets = ist_take_dense(net, "%s.sampling_offsets", name.text);
    ist_conv_weights w_weights = ist_take_dense(net, "%s.attention_weights", name.text);
    ist_tensor both = exact(net, query, 3 * points);
    ist_apply(net, query, ist_stack(net, w_offsets, w_weights), OPTS(.into = both), name.text); /* [n,1,300,288] */
    ist_tensor offsets = ist_slice(both, 0, 2 * points), weights = ist_slice(both, 2 * points, points);
    ist_tap(net, offsets, "dec.l%d.offsets", i);
    ist_tensor y = ist_op_deform_attention(net->plan, offsets, weights, ref, memory->tokens, memory->level,
                                           memory->levels, HEADS, into, name.text); /* [n,1,300,D] */
    ist_tap(net, y, "dec.l%d.cross", i);
    return y;
}

static ist_tensor gateway(const ist_net *net, int i, ist_tensor both, ist_tensor x, ist_tensor y) {
    ist_name name = ist_name_of("decoder.decoder.layers.%d.gateway", i);
    ist_norm_weights norm = ist_take_norm(net, "%s.norm", name.text);
    ist_tensor g = ist_dense(net, both, NULL, "%s.gate", name.text);           /* [n,1,300,2D] */
    ist_tensor z = ist_op_gate(net->plan, g, x, y, norm.w, norm.b, name.text); /* [n,1,300,D] */
    ist_tap(net, z, "dec.l%d.gate", i);
    ist_norm_weights_free(&norm);
    return z;
}

/* Self-attention, deformable attention, gate, feed-forward: the new x. */
static ist_tensor transform(const ist_net *net, int i, const state *s, const ist_dfine_memory *memory) {
    ist_plan *p = net->plan;
    int width = s->x.c;
    ist_name name = ist_name_of("decoder.decoder.layers.%d", i);
    ist_tensor both = ist_plan_tensor(p, s->x.n, 1, QUERIES, 2 * width, IST_ELEM_T); /* [n,1,300,2D] */
    ist_norm_opts add_x = {.add = s->x, .into = ist_slice(both, 0, width)};

    ist_tensor pos = mlp(net, s->ref, 0, 2, (ist_tensor){0}, "decoder.query_pos_head"); /* [n,1,300,D] */
    ist_tap(net, pos, "dec.pos%d", i);
    pos = ist_op_clamp(p, pos, -10, 10, "decoder.query_pos");                                     /* [n,1,300,D] */
    ist_tensor a = self_attention(net, i, s->x, pos);                                             /* [n,1,300,D] */
    ist_tensor x = ist_layer_norm(net, a, ln_eps, &add_x, "%s.norm1", name.text);                 /* [n,1,300,D] */
    ist_tensor query = ist_op_add(p, x, pos, (ist_tensor){0}, name.text);                         /* [n,1,300,D] */
    ist_tensor y = cross_attention(net, i, query, s->ref, memory, ist_slice(both, width, width)); /* [n,1,300,D] */
    x = gateway(net, i, both, x, y);                                                              /* [n,1,300,D] */
    ist_tensor f = ist_dense(net, x, OPTS(RELU), "%s.linear1", name.text);                        /* [n,1,300,ff] */
    f = ist_dense(net, f, NULL, "%s.linear2", name.text);                                         /* [n,1,300,D] */
    ist_tap(net, f, "dec.l%d.ffn", i);
    x = ist_layer_norm(net, f, ln_eps, &(ist_norm_opts){.add = x, .clamp = 65504}, "%s.norm3", name.text);
    ist_tap(net, x, "dec.l%d.out", i);
    return x;
}

/* Layer 0 also makes the boxes that all layers refine; its two heads read the same x, their first layers are one. */
static ist_tensor first_heads(const ist_net *net, state *s) {
    int width = s->x.c;
    ist_conv_weights w_pre = ist_take_dense(net, "decoder.pre_bbox_head.layers.0");
    ist_conv_weights w_box = ist_take_dense(net, "decoder.dec_bbox_head.0.layers.0");
    ist_tensor h = ist_apply(net, s->x, ist_stack(net, w_pre, w_box), OPTS(RELU), "decoder.bbox_heads.layers.0");
    ist_tensor delta =
        mlp(net, ist_slice(h, 0, width), 1, 3, exact(net, h, 4), "decoder.pre_bbox_head"); /* [n,1,300,4] */
    ist_tap(net, delta, "dec.pre_bbox");
    s->ref_init = ist_op_box_refine(net->plan, delta, s->ref, "decoder.pre_bbox_head"); /* [n,1,300,4] */
    return mlp(net, ist_slice(h, width, width), 1, 3, exact(net, h, 4 * BINS),
               "decoder.dec_bbox_head.0"); /* [n,1,300,132] */
}

static void layer(const ist_net *net, int i, const ist_dfine_memory *memory, const float *bins, float reg_scale,
                  state *s) {
    ist_name head = ist_name_of("decoder.dec_bbox_head.%d", i);
    ist_tensor corners = {0}, increment;
    ist_tap(net, s->ref, "dec.ref%d", i);
    s->x = transform(net, i, s, memory); /* [n,1,300,D] */
    if (i == 0) {
        increment = first_heads(net, s); /* [n,1,300,132] */
    } else {
        ist_tensor sum = ist_op_add(net->plan, s->x, s->previous, (ist_tensor){0}, head.text); /* [n,1,300,D] */
        increment = mlp(net, sum, 0, 3, exact(net, sum, 4 * BINS), head.text);                 /* [n,1,300,132] */
    }
    ist_tap(net, increment, "dec.l%d.corners", i);
    s->ref = ist_op_fdr(net->plan, increment, s->corners, s->ref_init, bins, reg_scale, &corners, head.text);
    s->corners = corners; /* [n,1,300,132] */
    s->previous = s->x;
}

ist_dfine_result ist_dfine_decoder(const ist_net *net, const ist_dfine_arch *arch, const ist_dfine_memory *memory,
                                   ist_tensor force_index) {
    int last = arch->layers - 1;
    float up = ist_take_scalar(net, "decoder.up"), reg_scale = fabsf(ist_take_scalar(net, "decoder.reg_scale"));
    float bins[BINS];
    state s = {.corners = {0}};
    bin_offsets(up, reg_scale, bins);
    select_queries(net, memory, force_index, &s.x, &s.ref);
    for (int i = 0; i <= last; i++) layer(net, i, memory, bins, reg_scale, &s);

    ist_name quality_head = ist_name_of("decoder.decoder.lqe_layers.%d.reg_conf", last);
    ist_name score_head = ist_name_of("decoder.dec_score_head.%d", last);
    ist_conv_weights w = ist_take_dense(net, "%s", score_head.text);
    ist_tensor logits = ist_apply(net, s.x, w, OPTS(.into = exact(net, s.x, w.out)), score_head.text);
    ist_tap(net, logits, "dec.logits_before_lqe");
    ist_tensor shape = ist_op_lqe(net->plan, s.corners, quality_head.text);              /* [n,1,300,20] */
    ist_tensor quality = mlp(net, shape, 0, 2, exact(net, shape, 1), quality_head.text); /* [n,1,300,1] */
    logits = ist_op_add_quality(net->plan, logits, quality, quality_head.text);          /* [n,1,300,classes] */
    ist_tap(net, logits, "logits");
    ist_tap(net, s.ref, "boxes");
    ist_chain_end(net->plan, (ist_tensor[]){logits, s.ref}, 2, "decoder");
    return (ist_dfine_result){.logits = logits, .boxes = s.ref};
}
