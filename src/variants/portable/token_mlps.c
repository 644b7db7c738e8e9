/* MLPs of single tokens in one launch (cl/portable/token_mlps), for GPUs. */
#include "variants/portable/token_mlps_args.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>

enum { ITEMS = 256, WIDEST = ITEMS };
enum { GROUPS_EACH = 4 /* of a unit: each reads all weights of its MLP, and more were not measured */ };

static int most_outputs(const ist_token_mlps *q) {
    int most = 0;
    for (int i = 0; i < q->count; i++)
        if (q->mlp[i][2].out > most) most = q->mlp[i][2].out;
    return most;
}

/* All MLPs as wide, but for their results. */
static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_token_mlps *q = node;
    const ist_filter *first = q->mlp[0];
    bool fits = q->x.elem == IST_ELEM_T && q->x.n * q->count <= GROUPS_EACH * ist_plan_units(p) && q->x.c <= WIDEST &&
                first[0].out <= WIDEST && first[1].out <= WIDEST && most_outputs(q) <= WIDEST;
    (void)v;
    for (int i = 1; i < q->count; i++)
        fits = fits && q->mlp[i][0].out == first[0].out && q->mlp[i][1].out == first[1].out;
    return fits;
}

/* W^T, [inputs][outputs]; what the layer does not have stays zero. */
static void pack_layer(const ist_filter *f, int outputs, float *weights, float *biases) {
    for (int o = 0; o < f->out; o++) {
        const float *row = f->w + (size_t)o * (size_t)f->in;
        for (int i = 0; i < f->in; i++) weights[(size_t)i * (size_t)outputs + (size_t)o] = row[i];
        biases[o] = f->b ? f->b[o] : 0;
    }
}

static bool pack(ist_plan *p, const ist_token_mlps *q, const ist_token_mlps_args *arg, ist_tensor *weights,
                 ist_tensor *table) {
    const size_t one = (size_t)arg->mlp_fours * 4, biases = (size_t)arg->mlp_biases, count = (size_t)q->count;
    float *packed = calloc(count * (one + biases), sizeof *packed), *b = packed + count * one;
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, count * one);
        return false;
    }
    for (int i = 0; i < q->count; i++, b += biases) {
        float *to = packed + (size_t)i * one;
        pack_layer(&q->mlp[i][0], arg->hidden0, to, b);
        to += (size_t)arg->inputs * (size_t)arg->hidden0;
        pack_layer(&q->mlp[i][1], arg->hidden1, to, b + arg->hidden0);
        to += (size_t)arg->hidden0 * (size_t)arg->hidden1;
        pack_layer(&q->mlp[i][2], arg->outputs, to, b + arg->hidden0 + arg->hidden1);
    }
    *weights = ist_plan_const(p, packed, 1, 1, q->count, (int)one, IST_ELEM_F32, q->label);
    *table = ist_plan_const(p, packed + count * one, 1, 1, q->count, (int)biases, IST_ELEM_F32, q->label);
    free(packed);
    return !ist_plan_status(p);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_token_mlps *q = node;
    const ist_tensor x = q->x, vectors = q->vectors, iou = q->iou;
    ist_token_mlps_args arg = {.tokens = x.w,
                               .first = 1 + q->first,
                               .inputs = x.c,
                               .hidden0 = (int)ist_round_up((size_t)q->mlp[0][0].out, 4),
                               .hidden1 = (int)ist_round_up((size_t)q->mlp[0][1].out, 4),
                               .outputs = (int)ist_round_up((size_t)most_outputs(q), 4),
                               .x_ld = x.ld,
                               .x_c0 = x.c0,
                               .vector_ld = vectors.ld,
                               .vector_c0 = vectors.c0,
                               .vector_c = vectors.c,
                               .score_ld = iou.ld,
                               .score_c0 = iou.c0,
                               .score_c = iou.c};
    arg.mlp_fours = (arg.inputs * arg.hidden0 + arg.hidden0 * arg.hidden1 + arg.hidden1 * arg.outputs) / 4;
    arg.mlp_biases = arg.hidden0 + arg.hidden1 + arg.outputs;
    ist_tensor weights, table;
    (void)v, (void)way;
    if (!pack(p, q, &arg, &weights, &table)) return;
    const ist_defines defines = ist_defines_of(p, "-DWIDEST=%d", WIDEST);
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "portable/token_mlps",
                                     .defines = defines.text,
                                     .kernel = "token_mlps",
                                     .dims = 2,
                                     .global = {(size_t)q->count * ITEMS, (size_t)x.n},
                                     .local = {ITEMS, 1},
                                     .args = {IST_OUT(vectors), IST_OUT(iou), IST_IN(x), IST_IN(weights), IST_IN(table),
                                              IST_IN(ist_plan_current_limit(p)), IST_STRUCT(token_mlps_args, &arg)},
                                     .arg_count = 7,
                                     .flops = 8.0 * x.n * q->count * arg.mlp_fours});
}

const ist_family ist_portable_token_mlps_group = {.takes = takes, .emit = emit};
