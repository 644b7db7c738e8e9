/* Top-down fusion as one product of both maps on the matrix instructions of warpgroups (cl/nvidia/conv_wgmma, TOP):
 * more multiply-adds than at the low resolution first, but a launch less and no addend. */
#include "variants/fuse.h"
#include "variants/nvidia/conv.h"
#include "variants/rounding.h"
#include "variants/variant.h"

#include <string.h>

enum { STEP = 64, CHUNK = 8 };

static bool eights(ist_tensor t) {
    return t.elem == IST_ELEM_T && (t.c | t.ld | t.c0) % CHUNK == 0;
}

/* The problem of a filter that reads both. */
static ist_conv_problem problem_of(const ist_fuse *q, ist_tensor side, const ist_conv_opts *o) {
    const ist_conv node = {.label = q->label,
                           .x = side,
                           .y = q->y,
                           .filter = {.out = q->filter.out, .in = q->top.c + side.c, .kh = 1, .kw = 1}};
    ist_conv_problem both = ist_conv_problem_of(&node);
    both.o = o;
    return both;
}

/* Few groups: with more, the low resolution's fewer multiply-adds are worth the launch. */
static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    enum { GROUPS_OF_UNIT = 3 };
    const ist_fuse *q = node;
    const ist_conv_opts silu = {.epi.act = IST_ACT_SILU};
    ist_tensor side = q->side;
    int groups = 0;
    (void)v;
    side.c = ist_fuse_side_channels(q);
    const ist_conv_problem both = problem_of(q, side, &silu);
    return eights(q->top) && eights(q->side) && eights(q->y) && q->top.c % STEP == 0 && side.c % CHUNK == 0 &&
           ist_conv_wgmma_best(p, &both, &groups) && groups <= GROUPS_OF_UNIT * ist_plan_units(p);
}

/* Both halves as one filter, the top's inputs first. */
static ist_status beside(const ist_conv_weights *top, const ist_conv_weights *side, ist_conv_weights *both,
                         ist_error *err) {
    ist_status status = ist_zero_filter(top->out, top->in + side->in, 1, 1, both, err);
    for (int o = 0; !status && o < top->out; o++) {
        float *to = both->w + (size_t)o * (size_t)both->in;
        memcpy(to, top->w + (size_t)o * (size_t)top->in, (size_t)top->in * sizeof *to);
        memcpy(to + top->in, side->w + (size_t)o * (size_t)side->in, (size_t)side->in * sizeof *to);
        both->b[o] = side->b ? side->b[o] : 0.0f;
    }
    return status;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_fuse *q = node;
    const ist_conv_opts silu = {.epi.act = IST_ACT_SILU};
    ist_conv_weights top_half = {0}, side_half = {0}, both = {0};
    ist_tensor side;
    ist_error err = {0};
    (void)v, (void)way;
    if (ist_fuse_halves(p, q, &top_half, &side_half, &side)) {
        ist_round(p, &top_half);
        ist_round(p, &side_half);
        ist_conv_problem problem = problem_of(q, side, &silu);
        if (beside(&top_half, &side_half, &both, &err)) {
            ist_plan_fail(p, err.code ? err.code : IST_E_MEMORY, "%s: %s", q->label, err.text);
        } else {
            problem.f = ist_filter_of(&both);
            ist_conv_wgmma_with_top(p, &problem, q->top);
        }
    }
    ist_conv_weights_free(&top_half);
    ist_conv_weights_free(&side_half);
    ist_conv_weights_free(&both);
}

const ist_family ist_nvidia_fuse = {.takes = takes, .emit = emit};
