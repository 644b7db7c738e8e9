/* D-FINE's decoder (Peterande/D-FINE, src/zoo/dfine/dfine_decoder.py): query selection, then layers that move a box by
 * a distribution over 33 offsets per side.
 *
 * Only what the last layer's result needs is recorded: one score head, one quality head. From the gathering of the
 * queries on all but the keys and values of self-attention is work on one query: a sequence. */
#include "models/dfine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OPTS(...) (&(ist_conv_opts){__VA_ARGS__})
#define EXACT     .exact = true /* what positions, boxes and scores are made of: float also where activations are half */

enum { BINS = IST_DFINE_REG_MAX + 1, HEADS = IST_DFINE_HEADS, QUERIES = IST_DFINE_QUERIES };

static const float ln_eps = 1e-5f;

/* Layers first.. of an MLP: linear layers with `act` between them; `count` is the number of all its layers. */
static ist_tensor mlp(const ist_net *net, ist_act act, ist_tensor x, int first, int count, bool exact,
                      const char *name) {
    for (int i = first; i < count; i++) {
        bool last = i + 1 == count;
        ist_conv_opts opts = {.epi.act = last ? IST_ACT_NONE : act, .exact = last && exact};
        x = ist_net_dense(net, x, &opts, "%s.layers.%d", name, i);
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

/* Logits of all anchors; returns how many are invalid, and their tokens. */
static int compute_anchors(const ist_dfine_memory *memory, float *logits, int *invalid) {
    int count = 0, t = 0;
    for (int l = 0; l < memory->levels; l++)
        for (int cell = 0; cell < memory->level[l].h * memory->level[l].w; cell++, t++)
            if (!anchor_of(&memory->level[l], l, cell, logits + 4 * (size_t)t)) invalid[count++] = t;
    return count;
}

/* A constant of the file; NULL, the graph failed, where it is not there or is for another input size. */
static const ist_weight *stored(const ist_net *net, const char *name, int rank, const int64_t *dims) {
    const ist_weight *w = NULL;
    ist_error err = {0};
    ist_status status = ist_weights_need(net->weights, name, rank, dims, &w, &err);
    if (status) ist_graph_fail(net->graph, status, "stored constants: %s", err.text);
    return w;
}

/* The same from the file. */
static int read_anchors(const ist_net *net, int tokens, float *logits, int *invalid) {
    const ist_weight *a = stored(net, "decoder.anchors", 3, (int64_t[]){1, tokens, 4});
    const ist_weight *mask = stored(net, "decoder.valid_mask", 3, (int64_t[]){1, tokens, 1});
    int count = 0;
    if (!a || !mask) return 0;
    ist_weight_to_f32(mask, logits);
    for (int t = 0; t < tokens; t++)
        if (logits[t] == 0) invalid[count++] = t;
    ist_weight_to_f32(a, logits);
    for (int i = 0; i < 4 * tokens; i++)
        if (isnan(logits[i])) {
            ist_graph_fail(net->graph, IST_E_WEIGHTS, "stored constants: %s: element %d is not a number", a->name, i);
            return 0;
        }
    return count;
}

static anchors make_anchors(const ist_net *net, const ist_dfine_memory *memory) {
    anchors result = {0};
    int tokens = memory->tokens.w;
    if (ist_graph_failed(net->graph)) return result;
    float *logits = malloc((size_t)tokens * 4 * sizeof *logits);
    int *invalid = malloc((size_t)tokens * sizeof *invalid);
    if (logits && invalid) {
        int count = memory->stored ? read_anchors(net, tokens, logits, invalid)
                                   : compute_anchors(memory, logits, invalid);
        result.logits = ist_graph_const(net->graph, logits, 1, 1, tokens, 4, IST_ELEM_F32, "anchors");
        if (count)
            result.invalid = ist_graph_const(net->graph, invalid, 1, 1, count, 1, IST_ELEM_I32, "invalid anchors");
    } else {
        ist_graph_fail(net->graph, IST_E_MEMORY, "out of host memory for %d anchors", tokens);
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

/* The 300 tokens with the best class score: target [n,1,300,D], ref [n,1,300,4]. Begins the sequence. */
static void select_queries(const ist_net *net, const ist_dfine_memory *memory, ist_tensor force_index,
                           ist_tensor *target, ist_tensor *ref) {
    anchors anchor = make_anchors(net, memory);
    ist_filter proj = ist_take_dense(net, "decoder.enc_output.proj");
    ist_tensor e = ist_net_apply(net, memory->tokens, proj, NULL, "decoder.enc_output.proj"); /* [n,1,T,D] */
    const bool filled = ist_has(anchor.invalid);
    if (filled) ist_graph_begin(net->graph, IST_SPAN_FILLED_NORM, "decoder.enc_output");
    if (filled) /* these are zeroed before the projection: what is left of them is its bias */
        e = IST_NODE(net, FILL_ROWS, fill_rows, .label = "decoder.enc_output.mask", .x = e, .rows = anchor.invalid,
                     .filter = proj);
    e = ist_net_layer_norm(net, (ist_layer_norm){.x = e, .eps = ln_eps}, "decoder.enc_output.norm"); /* [n,1,T,D] */
    if (filled) ist_graph_end(net->graph);
    ist_net_name(net, e, "sel.memory");
    ist_tensor scores = ist_net_dense(net, e, NULL, "decoder.enc_score_head"); /* [n,1,T,classes] */
    ist_net_name(net, scores, "sel.logits");
    ist_tensor index = IST_NODE(net, TOP_ROWS, top_rows, .label = "decoder.top_queries", .x = scores, .k = QUERIES);
    ist_net_name(net, index, "sel.topk_index");
    if (ist_has(force_index)) index = force_index; /* [n,1,300,1] */
    ist_graph_begin(net->graph, IST_SPAN_SEQUENCE, "decoder");
    *target = IST_NODE(net, GATHER, gather, .label = "decoder.target", .x = e, .index = index); /* [n,1,300,D] */
    ist_net_name(net, *target, "dec.target");
    ist_tensor logit = IST_NODE(net, GATHER, gather, .label = "decoder.anchor", .x = anchor.logits, .index = index);
    ist_tensor delta = mlp(net, memory->act, *target, 0, 3, true, "decoder.enc_bbox_head");                /* [n,1,300,4] */
    *ref = IST_NODE(net, BOX_INIT, box, .label = "decoder.ref", .a = delta, .b = logit); /* [n,1,300,4] */
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
    float scale = (float)(1 / sqrt(width / HEADS));
    ist_name name = ist_name_of("decoder.decoder.layers.%d.self_attn", i);
    ist_name weight = ist_name_of("%s.in_proj_weight", name.text), bias = ist_name_of("%s.in_proj_bias", name.text);
    ist_filter in_proj = ist_take_linear(net, weight.text, bias.text);
    ist_filter w_qk = ist_take_outputs(net, in_proj, 0, 2 * width), w_v = ist_take_outputs(net, in_proj, 2 * width, width);
    ist_tensor xp = ist_net_add(net, x, pos, name.text);                                            /* [n,1,300,D] */
    ist_tensor qk = ist_net_apply(net, xp, w_qk, NULL, ist_name_of("%s.qk", name.text).text);       /* [n,1,300,2D] */
    ist_tensor v = ist_net_apply(net, x, w_v, NULL, ist_name_of("%s.v", name.text).text);           /* [n,1,300,D] */
    ist_tensor a = IST_NODE(net, ATTENTION, attention, .label = name.text, .q = ist_slice(qk, 0, width),
                            .k = ist_slice(qk, width, width), .v = v, .heads = HEADS, .scale = scale);
    a = ist_net_dense(net, a, NULL, "%s.out_proj", name.text); /* [n,1,300,D] */
    ist_net_name(net, a, "dec.l%d.self", i);
    return a;
}

/* What the file says each sampling point's offset is multiplied by; NULL where that is computed. */
static const float *point_scales(const ist_net *net, const ist_dfine_memory *memory, const char *attention) {
    ist_error err = {0};
    if (!memory->stored || ist_graph_failed(net->graph)) return NULL;
    const ist_weight *w =
        stored(net, ist_name_of("%s.num_points_scale", attention).text, 1, (int64_t[]){IST_DFINE_POINTS});
    float *scales = w ? ist_graph_room(net->graph, IST_DFINE_POINTS * sizeof *scales) : NULL;
    ist_status status = scales ? ist_weight_read_f32(w, scales, &err) : IST_OK;
    if (status) ist_graph_fail(net->graph, status, "stored constants: %s", err.text);
    return scales;
}

/* Samples the memory around `ref` for query x + pos; there is no value and no output projection. */
static ist_tensor cross_attention(const ist_net *net, int i, ist_tensor query, ist_tensor ref,
                                  const ist_dfine_memory *memory) {
    int points = HEADS * IST_DFINE_POINTS;
    ist_name name = ist_name_of("decoder.decoder.layers.%d.cross_attn", i);
    ist_filter offsets = ist_take_dense(net, "%s.sampling_offsets", name.text);
    ist_filter weights = ist_take_dense(net, "%s.attention_weights", name.text);
    ist_tensor both = ist_net_apply(net, query, ist_take_stack(net, offsets, weights), OPTS(EXACT), name.text);
    ist_deform node = {.label = name.text,
                       .offsets = ist_slice(both, 0, 2 * points), /* [n,1,300,192] */
                       .weights = ist_slice(both, 2 * points, points),
                       .ref = ref,
                       .memory = memory->tokens,
                       .levels = memory->levels,
                       .heads = HEADS,
                       .point_scale = point_scales(net, memory, name.text)};
    memcpy(node.level, memory->level, sizeof memory->level);
    ist_net_name(net, node.offsets, "dec.l%d.offsets", i);
    ist_tensor y = ist_net_node(net, IST_NODE_DEFORM, &node); /* [n,1,300,D] */
    ist_net_name(net, y, "dec.l%d.cross", i);
    return y;
}

static ist_tensor gateway(const ist_net *net, int i, ist_tensor x, ist_tensor y) {
    ist_name name = ist_name_of("decoder.decoder.layers.%d.gateway", i);
    ist_tensor both = IST_NODE(net, CONCAT, concat, .label = name.text, .x = {x, y}); /* [n,1,300,2D] */
    ist_tensor g = ist_net_dense(net, both, NULL, "%s.gate", name.text);              /* [n,1,300,2D] */
    ist_tensor z = IST_NODE(net, GATE, gate, .label = name.text, .g = g, .a = x, .b = y,
                            .norm = ist_take_norm(net, "%s.norm", name.text)); /* [n,1,300,D] */
    ist_net_name(net, z, "dec.l%d.gate", i);
    return z;
}

/* Self-attention, deformable attention, gate, feed-forward: the new x. */
static ist_tensor transform(const ist_net *net, int i, const state *s, const ist_dfine_memory *memory) {
    ist_name name = ist_name_of("decoder.decoder.layers.%d", i);
    ist_tensor pos = mlp(net, memory->act, s->ref, 0, 2, false, "decoder.query_pos_head"); /* [n,1,300,D] */
    ist_net_name(net, pos, "dec.pos%d", i);
    pos = IST_NODE(net, CLAMP, clamp, .label = "decoder.query_pos", .x = pos, .lo = -10, .hi = 10);
    ist_tensor a = self_attention(net, i, s->x, pos); /* [n,1,300,D] */
    ist_tensor x = ist_net_layer_norm(net, (ist_layer_norm){.x = a, .add = s->x, .eps = ln_eps}, "%s.norm1", name.text);
    ist_tensor query = ist_net_add(net, x, pos, name.text);            /* [n,1,300,D] */
    ist_tensor y = cross_attention(net, i, query, s->ref, memory);     /* [n,1,300,D] */
    x = gateway(net, i, x, y);                                         /* [n,1,300,D] */
    ist_tensor f = ist_net_dense(net, x, OPTS(.epi.act = memory->act), "%s.linear1", name.text); /* [n,1,300,ff] */
    f = ist_net_dense(net, f, NULL, "%s.linear2", name.text);                  /* [n,1,300,D] */
    ist_net_name(net, f, "dec.l%d.ffn", i);
    x = ist_net_layer_norm(net, (ist_layer_norm){.x = f, .add = x, .eps = ln_eps, .clamp = 65504}, "%s.norm3", name.text);
    ist_net_name(net, x, "dec.l%d.out", i);
    return x;
}

/* Layer 0 also makes the boxes that all layers refine; its two heads read the same x, their first layers are one. */
static ist_tensor first_heads(const ist_net *net, ist_act act, state *s) {
    int width = s->x.c;
    ist_filter w_pre = ist_take_dense(net, "decoder.pre_bbox_head.layers.0");
    ist_filter w_box = ist_take_dense(net, "decoder.dec_bbox_head.0.layers.0");
    ist_tensor h =
        ist_net_apply(net, s->x, ist_take_stack(net, w_pre, w_box), OPTS(.epi.act = act), "decoder.bbox_heads.layers.0");
    ist_tensor delta = mlp(net, act, ist_slice(h, 0, width), 1, 3, true, "decoder.pre_bbox_head"); /* [n,1,300,4] */
    ist_net_name(net, delta, "dec.pre_bbox");
    s->ref_init = IST_NODE(net, BOX_REFINE, box, .label = "decoder.pre_bbox_head", .a = delta, .b = s->ref);
    return mlp(net, act, ist_slice(h, width, width), 1, 3, true, "decoder.dec_bbox_head.0"); /* [n,1,300,132] */
}

static void layer(const ist_net *net, int i, const ist_dfine_memory *memory, const float *bins, float reg_scale,
                  state *s) {
    ist_name head = ist_name_of("decoder.dec_bbox_head.%d", i);
    ist_tensor increment;
    ist_net_name(net, s->ref, "dec.ref%d", i);
    s->x = transform(net, i, s, memory); /* [n,1,300,D] */
    if (i == 0)
        increment = first_heads(net, memory->act, s); /* [n,1,300,132] */
    else
        increment = mlp(net, memory->act, ist_net_add(net, s->x, s->previous, head.text), 0, 3, true, head.text);
    ist_net_name(net, increment, "dec.l%d.corners", i);
    ist_fdr node = {.label = head.text,
                    .increment = increment,
                    .previous = s->corners,
                    .ref = s->ref_init,
                    .reg_scale = reg_scale};
    memcpy(node.project, bins, sizeof node.project);
    s->ref = ist_net_node(net, IST_NODE_FDR, &node);
    s->corners = node.corners;
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
    ist_tensor logits = ist_net_dense(net, s.x, OPTS(EXACT), "decoder.dec_score_head.%d", last); /* [n,1,300,classes] */
    ist_net_name(net, logits, "dec.logits_before_lqe");
    ist_tensor shape = IST_NODE(net, LQE, lqe, .label = quality_head.text, .corners = s.corners); /* [n,1,300,20] */
    ist_tensor quality = mlp(net, memory->act, shape, 0, 2, true, quality_head.text);                          /* [n,1,300,1] */
    logits = IST_NODE(net, ADD_QUALITY, box, .label = quality_head.text, .a = logits, .b = quality);
    ist_graph_end(net->graph);
    ist_net_name(net, logits, "logits");
    ist_net_name(net, s.ref, "boxes");
    return (ist_dfine_result){.logits = logits, .boxes = s.ref};
}
