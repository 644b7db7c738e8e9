/* The mask decoder's MLPs of single tokens in one launch (cl/nvidia/token_mlps). */
#include "variants/nvidia/token_args.h"
#include "variants/nvidia/tokens.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { ITEMS = 256, RESULTS = 32, PROMPTS = 16, TOKENS_MAX = 8, CHANNELS_MAX = 256 };

/* Hidden layers as wide as a token, vectors of 32. */
static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_token_mlps *q = node;
    int c = q->x.c;
    bool fits = q->x.w <= TOKENS_MAX && q->x.elem == IST_ELEM_T && (q->x.ld | q->x.c0) % 8 == 0 && c >= 64 &&
                c <= CHANNELS_MAX && c % 64 == 0;
    (void)p, (void)v;
    for (int i = 0; i < q->count && fits; i++) {
        const ist_filter *f = q->mlp[i];
        fits = f[0].out == c && f[1].out == c && (i ? f[2].out == RESULTS : f[2].out <= RESULTS);
    }
    return fits;
}

/* Layers as fragments; the last has RESULTS outputs, zeros where there are fewer. */
static bool pack(ist_plan *p, const ist_token_mlps *q, ist_tensor *weights, ist_tensor *table) {
    int c = q->x.c, count = q->count;
    size_t one = (size_t)c * (size_t)(2 * c + RESULTS), row = (size_t)(2 * c + RESULTS), last = (size_t)(RESULTS * c);
    float *room = calloc((size_t)count * (one + row) + last, sizeof *room);
    if (!room) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, (size_t)count * one);
        return false;
    }
    float *packed = room + last, *to = packed, *biases = packed + (size_t)count * one;
    for (int i = 0; i < count; i++) {
        const ist_filter *f = q->mlp[i];
        float *b = biases + (size_t)i * row;
        memset(room, 0, last * sizeof *room);
        memcpy(room, f[2].w, (size_t)(f[2].out * c) * sizeof *room);
        to = ist_matrix_part(f[0].w, c, 0, c, 0, c, to);
        to = ist_matrix_part(f[1].w, c, 0, c, 0, c, to);
        to = ist_matrix_part(room, c, 0, RESULTS, 0, c, to);
        memcpy(b, f[0].b, (size_t)c * sizeof *b);
        memcpy(b + c, f[1].b, (size_t)c * sizeof *b);
        memcpy(b + 2 * c, f[2].b, (size_t)f[2].out * sizeof *b);
    }
    *weights = ist_plan_const(p, packed, 1, 1, count, (int)one, IST_ELEM_T, q->label);
    *table = ist_plan_const(p, biases, 1, 1, count, (int)row, IST_ELEM_F32, q->label);
    free(room);
    return !ist_plan_status(p);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_token_mlps *q = node;
    ist_tensor x = q->x, weights, table;
    (void)v, (void)way;
    if (!pack(p, q, &weights, &table)) return;
    ist_defines defines = ist_defines_of(p, "-DIN=%d", x.c);
    const ist_perceptrons_args by_value = {
        .tokens = x.w, .prompts = x.n, .first_token = 1 + q->first, .scores_c = q->iou.c, .x_ld = x.ld, .x_c0 = x.c0};
    ist_plan_launch(
        p, &(ist_launch){.label = q->label,
                         .op = "nvidia/token_mlps",
                         .isa = "nvidia/ptx",
                         .defines = defines.text,
                         .kernel = "perceptrons",
                         .dims = 2,
                         .global = {(size_t)ist_div_up(x.n, PROMPTS) * ITEMS, (size_t)q->count},
                         .local = {ITEMS, 1},
                         .args = {IST_OUT(q->vectors), IST_OUT(q->iou), IST_IN(x), IST_IN(weights), IST_IN(table),
                                  IST_IN(ist_plan_current_limit(p)), IST_STRUCT(perceptrons_args, &by_value)},
                         .arg_count = 7,
                         .flops = 2.0 * x.n * q->count * x.c * (2.0 * x.c + RESULTS)});
}

const ist_family ist_nvidia_token_mlps = {.takes = takes, .emit = emit};
