/* See ops.h. */
#include "variants/ops.h"

#include <string.h>

/* Results of a plan that has failed are empty. */
static ist_tensor emitted(ist_plan *p, ist_node_kind kind, void *node, const ist_tensor *y) {
    ist_emit(p, kind, node);
    return ist_plan_status(p) ? (ist_tensor){0} : *y;
}

static ist_conv conv_of(ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label) {
    ist_conv q = {.label = label, .x = x, .filter = f};
    if (opts) q.o = *opts;
    q.y = q.o.into;
    return q;
}

ist_tensor ist_op_conv(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label) {
    ist_conv q = conv_of(x, f, opts, label);
    ist_emit(p, IST_NODE_CONV, &q);
    if (ist_has(q.o.pool)) ist_op_maxpool2x2(p, x, q.o.pool, label);
    return ist_plan_status(p) ? (ist_tensor){0} : q.y;
}

ist_tensor ist_op_linear(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label) {
    if (f.kh != 1 || f.kw != 1)
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: a linear layer with a %dx%d filter", label, f.kh, f.kw);
    return ist_op_conv(p, x, f, opts, label);
}

ist_tensor ist_op_dwconv(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label) {
    ist_conv q = conv_of(x, f, opts, label);
    return emitted(p, IST_NODE_DWCONV, &q, &q.y);
}

ist_tensor ist_op_maxpool2x2(ist_plan *p, ist_tensor x, ist_tensor into, const char *label) {
    ist_maxpool q = {.label = label, .x = x, .y = into};
    return emitted(p, IST_NODE_MAXPOOL, &q, &q.y);
}

ist_tensor ist_op_layernorm(ist_plan *p, ist_tensor x, const float *gamma, const float *beta, float eps,
                            const ist_norm_opts *opts, const char *label) {
    ist_layer_norm q = {.label = label, .x = x, .norm = {gamma, beta, x.c, NULL}, .eps = eps};
    if (opts) q.add = opts->add, q.clamp = opts->clamp, q.act = opts->act, q.y = opts->into;
    return emitted(p, IST_NODE_LAYER_NORM, &q, &q.y);
}

ist_tensor ist_op_add(ist_plan *p, ist_tensor a, ist_tensor b, ist_tensor into, const char *label) {
    ist_add q = {.label = label, .a = a, .b = b, .y = into};
    return emitted(p, IST_NODE_ADD, &q, &q.y);
}

ist_tensor ist_op_copy(ist_plan *p, ist_tensor x, ist_tensor into, const char *label) {
    ist_copy q = {.label = label, .x = x, .y = into};
    return emitted(p, IST_NODE_COPY, &q, &q.y);
}

void ist_op_copy_rows(ist_plan *p, ist_tensor x, ist_tensor into, int first, const char *label) {
    ist_emit(p, IST_NODE_COPY_ROWS, &(ist_copy_rows){.label = label, .x = x, .into = into, .first = first});
}

ist_tensor ist_op_expand(ist_plan *p, ist_tensor x, ist_tensor map, int count, const char *label) {
    ist_expand q = {.label = label, .x = x, .map = map};
    if (ist_pixels(map) != count)
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: expansion to %d items with a map of %d", label, count, ist_pixels(map));
    return emitted(p, IST_NODE_EXPAND, &q, &q.y);
}

ist_tensor ist_op_clamp(ist_plan *p, ist_tensor x, float lo, float hi, const char *label) {
    ist_clamp q = {.label = label, .x = x, .lo = lo, .hi = hi};
    return emitted(p, IST_NODE_CLAMP, &q, &q.y);
}

void ist_op_fill_rows(ist_plan *p, ist_tensor x, ist_tensor rows, const float *value, const char *label) {
    ist_emit(p, IST_NODE_FILL_ROWS,
             &(ist_fill_rows){.label = label, .x = x, .rows = rows, .filter = {.out = x.c, .b = value}});
}

ist_tensor ist_op_gate(ist_plan *p, ist_tensor g, ist_tensor x, ist_tensor y, const float *gamma, const float *beta,
                       const char *label) {
    ist_gate q = {.label = label, .g = g, .a = x, .b = y, .norm = {gamma, beta, x.c, NULL}};
    return emitted(p, IST_NODE_GATE, &q, &q.y);
}

ist_tensor ist_op_attention(ist_plan *p, ist_tensor q, ist_tensor k, ist_tensor v, const ist_attention_opts *opts,
                            const char *label) {
    ist_attention a = {.label = label,
                       .q = q,
                       .k = k,
                       .v = v,
                       .q_map = opts->q_map,
                       .kv_map = opts->kv_map,
                       .k_count = opts->k_count,
                       .heads = opts->heads,
                       .count = opts->count,
                       .scale = opts->scale};
    return emitted(p, IST_NODE_ATTENTION, &a, &a.y);
}

ist_tensor ist_op_window_attention(ist_plan *p, ist_tensor qkv, const float *pad_qkv, const float *bias, int heads,
                                   int ws, const char *label) {
    ist_window_attention q = {.label = label, .qkv = qkv, .pad = pad_qkv, .bias = bias, .heads = heads, .ws = ws};
    return emitted(p, IST_NODE_WINDOW_ATTENTION, &q, &q.y);
}

ist_tensor ist_op_relative_attention(ist_plan *p, ist_tensor qkv, const float *rel_h, int wh, const float *rel_w, int ww,
                                     const float *pad, int heads, const char *label) {
    size_t d = heads > 0 ? (size_t)(qkv.c / 3 / heads) : 0;
    ist_relative_attention q = {.label = label,
                                .qkv = qkv,
                                .rel_h = {rel_h, (2 * (size_t)wh - 1) * d, NULL},
                                .rel_w = {rel_w, (2 * (size_t)ww - 1) * d, NULL},
                                .pad = {pad, (size_t)qkv.c, NULL},
                                .heads = heads};
    return emitted(p, IST_NODE_RELATIVE_ATTENTION, &q, &q.y);
}

ist_tensor ist_op_deform_attention(ist_plan *p, ist_tensor offsets, ist_tensor weights, ist_tensor ref,
                                   ist_tensor memory, const ist_level *levels, int level_count, int heads,
                                   ist_tensor into, const char *label) {
    ist_deform q = {.label = label,
                    .offsets = offsets,
                    .weights = weights,
                    .ref = ref,
                    .memory = memory,
                    .y = into,
                    .levels = level_count,
                    .heads = heads};
    for (int i = 0; i < level_count && i < IST_LEVELS_MAX; i++) q.level[i] = levels[i];
    return emitted(p, IST_NODE_DEFORM, &q, &q.y);
}

ist_tensor ist_op_row_max(ist_plan *p, ist_tensor x, const char *label) {
    ist_row_max q = {.label = label, .x = x};
    return emitted(p, IST_NODE_ROW_MAX, &q, &q.y);
}

ist_tensor ist_op_topk(ist_plan *p, ist_tensor x, int k, const char *label) {
    ist_top_rows q = {.label = label, .x = x, .k = k};
    return emitted(p, IST_NODE_TOPK, &q, &q.y);
}

ist_tensor ist_op_top_rows(ist_plan *p, ist_tensor x, int k, const char *label) {
    ist_top_rows q = {.label = label, .x = x, .k = k};
    return emitted(p, IST_NODE_TOP_ROWS, &q, &q.y);
}

ist_tensor ist_op_nms(ist_plan *p, ist_tensor boxes, ist_tensor scores, ist_tensor group, ist_tensor count, double iou,
                      ist_tensor *kept, const char *label) {
    ist_nms q = {.label = label, .boxes = boxes, .scores = scores, .group = group, .count = count, .iou = iou};
    ist_tensor index = emitted(p, IST_NODE_NMS, &q, &q.index);
    *kept = ist_plan_status(p) ? (ist_tensor){0} : q.kept;
    return index;
}

ist_tensor ist_op_gather(ist_plan *p, ist_tensor x, ist_tensor index, const char *label) {
    ist_gather q = {.label = label, .x = x, .index = index};
    return emitted(p, IST_NODE_GATHER, &q, &q.y);
}

static ist_tensor box(ist_plan *p, ist_node_kind kind, ist_tensor a, ist_tensor b, const char *label) {
    ist_box q = {.label = label, .a = a, .b = b};
    return emitted(p, kind, &q, &q.y);
}

ist_tensor ist_op_box_init(ist_plan *p, ist_tensor delta, ist_tensor anchor_logit, const char *label) {
    return box(p, IST_NODE_BOX_INIT, delta, anchor_logit, label);
}

ist_tensor ist_op_box_refine(ist_plan *p, ist_tensor delta, ist_tensor ref, const char *label) {
    return box(p, IST_NODE_BOX_REFINE, delta, ref, label);
}

ist_tensor ist_op_add_quality(ist_plan *p, ist_tensor logits, ist_tensor quality, const char *label) {
    return box(p, IST_NODE_ADD_QUALITY, logits, quality, label);
}

ist_tensor ist_op_fdr(ist_plan *p, ist_tensor increment, ist_tensor previous, ist_tensor ref_init, const float *project,
                      float reg_scale, ist_tensor *corners_out, const char *label) {
    ist_fdr q = {.label = label, .increment = increment, .previous = previous, .ref = ref_init, .reg_scale = reg_scale};
    memcpy(q.project, project, sizeof q.project);
    ist_emit(p, IST_NODE_FDR, &q);
    if (corners_out) *corners_out = ist_plan_status(p) ? (ist_tensor){0} : q.corners;
    return ist_plan_status(p) ? (ist_tensor){0} : q.boxes;
}

ist_tensor ist_op_lqe(ist_plan *p, ist_tensor corners, const char *label) {
    ist_lqe q = {.label = label, .corners = corners};
    return emitted(p, IST_NODE_LQE, &q, &q.y);
}

ist_tensor ist_op_assign(ist_plan *p, ist_tensor cost, ist_tensor dims, int bits, ist_tensor *complete,
                         const char *label) {
    ist_assignment q = {.label = label, .cost = cost, .dims = dims, .bits = bits};
    ist_tensor match = emitted(p, IST_NODE_ASSIGN, &q, &q.match);
    if (complete) *complete = ist_plan_status(p) ? (ist_tensor){0} : q.complete;
    return match;
}
