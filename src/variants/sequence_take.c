/* Nodes as steps of a sequence. */
#include "variants/deform.h"
#include "variants/eltwise.h"
#include "variants/defines.h"
#include "variants/sequence_steps.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static void take_linear(ist_plan *p, const ist_conv *q) {
    const ist_filter *f = &q->filter;
    const ist_epilogue *e = &q->o.epi;
    int most = ist_plan_sequence(p)->form->outputs;
    bool point = f->kh == 1 && f->kw == 1 && q->o.stride <= 1 && !q->o.top && !q->o.left && !q->o.bottom && !q->o.right;
    if (!point || (most && (f->out > most || e->has_lab)) || e->up2) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: %dx%d, %d to %d channels%s, in a sequence", q->label, f->kh, f->kw, f->in,
                      f->out, e->has_lab || e->up2 ? " with a scale or an upsampled addend" : "");
        return;
    }
    ist_sequence_append(p,
                        &(ist_step){.op = IST_STEP_LINEAR,
                                    .out = {q->y},
                                    .rows = {q->x, e->add_before, e->add_after},
                                    .filter = *f,
                                    .ints = {(int)e->act},
                                    .floats = {e->has_lab ? e->lab_scale : 1, e->lab_bias},
                                    .flops = 2.0 * ist_pixels(q->x) * f->in * f->out},
                        q->label);
}

static void take_depthwise(ist_plan *p, const ist_conv *q) {
    const ist_filter *f = &q->filter;
    const ist_conv_opts *o = &q->o;
    bool pads = o->top == 1 && o->left == 1 && o->bottom == 1 && o->right == 1;
    bool plain = !o->epi.has_lab && !ist_has(o->epi.add_before) && !ist_has(o->epi.add_after);
    int c = q->x.c;
    if (q->x.w != ist_plan_sequence(p)->width || f->kh != 3 || o->stride != 2 || !pads || c % 16 || !plain) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: depthwise %dx%d on [%d,%d,%d,%d], not the 3x3 of stride 2 behind a map",
                      q->label, f->kh, f->kw, q->x.n, q->x.h, q->x.w, c);
        return;
    }
    float *w = malloc(9 * (size_t)c * sizeof *w);
    if (!w) ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %d weights", q->label, 9 * c);
    for (int i = 0; w && i < 9 * c; i++) w[i] = f->w[i % c * 9 + i / c];
    ist_step step = {.op = IST_STEP_DEPTHWISE,
                     .out = {q->y},
                     .rows = {q->x},
                     .data = {w, f->b},
                     .sizes = {9 * c, c},
                     .ints = {(int)o->epi.act},
                     .flops = 18.0 * ist_pixels(q->y) * c};
    step.has_bias = f->b != NULL;
    if (w) ist_sequence_append(p, &step, q->label);
    free(w);
}

static void take_eltwise(ist_plan *p, ist_node_kind kind, const void *node) {
    ist_eltwise e = ist_eltwise_of(kind, node);
    if (e.mode & (IST_ELTWISE_A_MAPPED | IST_ELTWISE_A_ONE_ITEM | IST_ELTWISE_B_ONE_PIXEL) || e.stride) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: rows of another item or place, in a sequence", e.label);
        return;
    }
    ist_sequence_append(p,
                        &(ist_step){.op = IST_STEP_SUM,
                                    .out = {e.y},
                                    .rows = {e.a, e.b},
                                    .ints = {e.mode & IST_ELTWISE_CLAMPED},
                                    .floats = {e.lo, e.hi}},
                        e.label);
}

static void take_attention(ist_plan *p, const ist_attention *a) {
    int nq = a->q.h * a->q.w, nk = a->k.h * a->k.w;
    if (ist_has(a->q_map) || ist_has(a->kv_map) || a->q.c > 1024) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: attention of %d channels or of other items, in a sequence", a->label,
                      a->q.c);
        return;
    }
    ist_sequence_append(p,
                        &(ist_step){.op = IST_STEP_ATTENTION,
                                    .out = {a->y},
                                    .rows = {a->q},
                                    .whole = {a->k, a->v},
                                    .ints = {a->heads},
                                    .floats = {a->scale},
                                    .flops = 4.0 * a->y.n * nq * nk * a->q.c},
                        a->label);
}

static void take_deform(ist_plan *p, const ist_deform *d) {
    float table[4 * IST_POINTS_MAX];
    int points = ist_deform_points(d), vector = ist_plan_sequence(p)->form->vector;
    int pad = vector > 4 ? (int)ist_round_up((size_t)points, (size_t)vector) : points;
    ist_deform_table(d, pad, table);
    ist_sequence_append(p,
                        &(ist_step){.op = IST_STEP_DEFORM,
                                    .out = {d->y},
                                    .rows = {d->offsets, d->weights, d->ref},
                                    .whole = {d->memory},
                                    .ints = {d->heads, points},
                                    .data = {table},
                                    .sizes = {4 * pad},
                                    .flops = 8.0 * d->offsets.n * d->offsets.h * d->offsets.w * points * d->memory.c},
                        d->label);
}

static void take_norm(ist_plan *p, const ist_layer_norm *q) {
    ist_sequence_append(p,
                        &(ist_step){.op = IST_STEP_NORM,
                                    .out = {q->y},
                                    .rows = {q->x, q->add},
                                    .data = {q->norm.gamma, q->norm.beta},
                                    .sizes = {q->x.c, q->x.c},
                                    .floats = {q->eps, q->clamp},
                                    .ints = {(int)q->act}},
                        q->label);
}

static void take_gate(ist_plan *p, const ist_gate *q) {
    ist_sequence_append(p,
                        &(ist_step){.op = IST_STEP_GATE,
                                    .out = {q->y},
                                    .rows = {q->a, q->b, q->g},
                                    .data = {q->norm.gamma, q->norm.beta},
                                    .sizes = {q->a.c, q->a.c},
                                    .floats = {1e-5f}},
                        q->label);
}

static void take_box(ist_plan *p, ist_step_op op, const ist_box *q) {
    ist_sequence_append(p, &(ist_step){.op = op, .out = {q->y}, .rows = {q->a, q->b}}, q->label);
}

static void take_fdr(ist_plan *p, const ist_fdr *q) {
    ist_sequence_append(p,
                        &(ist_step){.op = IST_STEP_FDR,
                                    .out = {q->boxes, q->corners},
                                    .rows = {q->increment, q->previous, q->ref},
                                    .data = {q->project},
                                    .sizes = {IST_FDR_BINS},
                                    .floats = {q->reg_scale}},
                        q->label);
}

/* The smaller nodes of which it consists: what the last variant of every kind records. */
static void take_apart(ist_plan *p, ist_node_kind kind, const void *node) {
    int count;
    const ist_variant *v = ist_variants_of(kind, &count);
    union {
        max_align_t align;
        unsigned char bytes[4096];
    } own;
    if (!count || ist_kind_of(kind)->size > sizeof own) return;
    memcpy(own.bytes, node, ist_kind_of(kind)->size);
    v[count - 1].family->emit(p, &v[count - 1], own.bytes, 1);
}

void ist_sequence_take(ist_plan *p, ist_node_kind kind, const void *node) {
    if (ist_plan_status(p)) return;
    switch (kind) {
    case IST_NODE_CONV:
        take_linear(p, node);
        break;
    case IST_NODE_DWCONV:
        take_depthwise(p, node);
        break;
    case IST_NODE_ADD:
    case IST_NODE_COPY:
    case IST_NODE_CLAMP:
        take_eltwise(p, kind, node);
        break;
    case IST_NODE_ATTENTION:
        take_attention(p, node);
        break;
    case IST_NODE_DEFORM:
        take_deform(p, node);
        break;
    case IST_NODE_LAYER_NORM:
        take_norm(p, node);
        break;
    case IST_NODE_GATE:
        take_gate(p, node);
        break;
    case IST_NODE_GATHER: {
        const ist_gather *q = node;
        ist_sequence_append(p, &(ist_step){.op = IST_STEP_GATHER, .out = {q->y}, .whole = {q->x, q->index}}, q->label);
        break;
    }
    case IST_NODE_BOX_INIT:
        take_box(p, IST_STEP_BOX_INIT, node);
        break;
    case IST_NODE_BOX_REFINE:
        take_box(p, IST_STEP_BOX_REFINE, node);
        break;
    case IST_NODE_ADD_QUALITY:
        take_box(p, IST_STEP_SUM, node);
        break;
    case IST_NODE_FDR:
        take_fdr(p, node);
        break;
    case IST_NODE_LQE: {
        const ist_lqe *q = node;
        ist_sequence_append(p, &(ist_step){.op = IST_STEP_LQE, .out = {q->y}, .rows = {q->corners}}, q->label);
        break;
    }
    default:
        take_apart(p, kind, node);
    }
}
