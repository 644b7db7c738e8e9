/* Lowering of graphs whose maps have rows that repeat others: what each value's rows are, and who needs those that were
 * left out. */
#include "variants/conv.h"
#include "variants/lowering.h"
#include "variants/padding_reuse.h"

/* ---- what comes behind a value ---- */

static bool reads(const ist_node *n, int value, const ist_tensor **operand) {
    for (const ist_field *f = ist_kind_of(n->kind)->fields; f->kind != IST_FIELD_END; f++)
        for (int e = 0; e < f->count && f->kind == IST_FIELD_IN; e++) {
            *operand = ist_field_of(n->of, f, e);
            if ((*operand)->buffer == value) return true;
        }
    return false;
}

/* Rows that the value needs beside those of its own layer, since it is added to what later layers make. */
static ist_rows_kept need_of(const ist_lowering *l, int value, int after) {
    ist_rows_kept all = {0};
    const ist_graph *g = l->graph;
    const ist_tensor *operand;
    for (int i = after + 1; i < (int)g->node_count; i++) {
        const ist_node *n = &g->nodes[i];
        ist_rows_kept need = {0};
        if (!reads(n, value, &operand)) continue;
        if (n->kind == IST_NODE_NORM_WINDOW) {
            need.windows = ((const ist_norm_window *)n->of)->ws;
        } else if (n->kind == IST_NODE_MBCONV && ((const ist_mbconv *)n->of)->residual) {
            need = need_of(l, ((const ist_mbconv *)n->of)->y.buffer, i);
            need.spare++;
        } else if (n->kind == IST_NODE_CONV && ist_conv_keeps_pixels(n->of)) {
            need = need_of(l, ((const ist_conv *)n->of)->y.buffer, i);
        }
        if (need.spare > all.spare) all.spare = need.spare;
        if (need.windows > all.windows) all.windows = need.windows;
    }
    return all;
}

/* ---- nodes ---- */

static void fill(ist_lowering *l, ist_value_plan *v, const char *label) {
    if (v->reuse.left_out && ist_has(v->place)) ist_padding_reuse_fill(l->plan, v->place, &v->reuse, label);
}

/* The node's own operand, whose rows it knows of; its result. */
static ist_padding_reuse *reuse_of(const ist_lowering *l, int i, void *node, ist_tensor *operand, ist_tensor *result) {
    const ist_node *n = &l->graph->nodes[i];
    ist_tensor *x;
    if (!ist_padding_reuse_of(n->kind, n->of, &x)) return NULL;
    *operand = *x;
    for (const ist_field *f = ist_kind_of(n->kind)->fields; f->kind != IST_FIELD_END; f++)
        if (f->kind == IST_FIELD_OUT && f->count == 1) *result = *(const ist_tensor *)ist_field_of(n->of, f, 0);
    return ist_padding_reuse_of(n->kind, node, &x);
}

static ist_padding_reuse begin(const ist_lowering *l, const ist_node *n, ist_tensor operand) {
    if (n->kind == IST_NODE_PATCH_EMBED) {
        ist_tensor content = ((const ist_patch_embed *)n->of)->content;
        if (!ist_has(content)) return (ist_padding_reuse){0};
        content = ist_slice(ist_layout_tensor((ist_lowering *)l, content), 1, 1);
        return (ist_padding_reuse){.content = content, .step = 1, .period = 1};
    }
    return ist_value_plan_of(l, operand)->reuse;
}

void ist_repeats_before(ist_lowering *l, int i, void *node) {
    const ist_node *n = &l->graph->nodes[i];
    const char *label = *(const char *const *)node;
    ist_tensor operand = {0}, result = {0};
    ist_padding_reuse *reuse = reuse_of(l, i, node, &operand, &result);
    ist_conv *conv = n->kind == IST_NODE_CONV ? node : NULL;
    if (reuse) {
        *reuse = begin(l, n, operand);
        if (ist_has(reuse->content)) reuse->ahead = need_of(l, result.buffer, i);
    }
    for (const ist_field *f = ist_kind_of(n->kind)->fields; f->kind != IST_FIELD_END; f++)
        for (int e = 0; e < f->count && f->kind == IST_FIELD_IN; e++) {
            const ist_tensor *t = ist_field_of(n->of, f, e);
            if (!ist_has(*t) || (reuse && t->buffer == operand.buffer)) continue;
            ist_value_plan *v = ist_value_plan_of(l, *t);
            if (conv && t->buffer == ((const ist_conv *)n->of)->o.epi.add_before.buffer && ist_conv_keeps_pixels(conv))
                conv->addend = v->reuse;
            else
                fill(l, v, label);
        }
}

void ist_repeats_behind(ist_lowering *l, int i, const void *node) {
    ist_tensor operand = {0}, result = {0};
    const ist_padding_reuse *reuse = reuse_of(l, i, (void *)node, &operand, &result);
    if (!reuse || !ist_has(result)) return;
    ist_value_plan *v = ist_value_plan_of(l, result);
    v->reuse = *reuse;
    const bool output = l->graph->values[result.buffer - 1].output;
    if (output || (ist_has(v->place) && ist_plan_keeps(l->plan, v->place.buffer))) fill(l, v, *(const char *const *)node);
}

void ist_repeats_all(ist_lowering *l, int first, int end) {
    for (int i = first; i < end; i++) {
        const ist_node *n = &l->graph->nodes[i];
        for (const ist_field *f = ist_kind_of(n->kind)->fields; f->kind != IST_FIELD_END; f++)
            for (int e = 0; e < f->count && f->kind == IST_FIELD_IN; e++) {
                const ist_tensor *t = ist_field_of(n->of, f, e);
                if (ist_has(*t)) fill(l, ist_value_plan_of(l, *t), *(const char *const *)n->of);
            }
    }
}
