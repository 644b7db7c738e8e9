/* Top-down fusion. Nearest upsampling commutes with 1x1 convolutions, so the half of the filter that reads the upsampled
 * map runs at the low resolution; its other half and the projection before it are one matrix where that is not more
 * work. */
#include "variants/fuse.h"
#include "variants/rounding.h"
#include "variants/variant.h"

#include <stdio.h>

/* Fails the plan with what a rewrite of filters says. */
static bool rewritten(ist_plan *p, const ist_fuse *q, ist_status status, const ist_error *err) {
    if (status && !ist_plan_status(p)) ist_plan_fail(p, status, "%s: %s", q->label, err->text);
    return !ist_plan_status(p);
}

static ist_tensor linear(ist_plan *p, ist_tensor x, ist_conv_weights *w, ist_tensor y, const ist_epilogue *epi,
                         const char *label) {
    ist_round(p, w);
    ist_conv node = {.label = label, .x = x, .y = y, .filter = ist_filter_of(w)};
    if (epi) node.o.epi = *epi;
    ist_emit(p, IST_NODE_CONV, &node);
    return node.y;
}

/* The product, zeros of its shape where nobody reads values. Takes both. */
static ist_status composed(const ist_plan *p, ist_conv_weights outer, ist_conv_weights inner, ist_conv_weights *out,
                           ist_error *err) {
    if (ist_plan_has_values(p)) return ist_compose(outer, inner, out, err);
    ist_status status = ist_zero_filter(outer.out, inner.in, 1, 1, out, err);
    ist_conv_weights_free(&outer);
    ist_conv_weights_free(&inner);
    return status;
}

/* The filter of the side, and what it reads: directly what is to be projected when projecting it first is not less work
 * (in * C + C * out against in * out multiply-adds per pixel). */
static bool side_of(ist_plan *p, const ist_fuse *q, ist_conv_weights *w, ist_tensor *side) {
    ist_error err = {0};
    if (!q->side_filter.out) return true;
    ist_conv_weights project = ist_weights_of(p, &q->side_filter);
    if (ist_plan_status(p)) return false;
    if (ist_fuse_side_channels(q) == side->c) {
        ist_conv_weights outer = *w;
        return rewritten(p, q, composed(p, outer, project, w, &err), &err);
    }
    *side = linear(p, *side, &project, (ist_tensor){0}, NULL, q->side_label);
    ist_plan_tap(p, q->tap, *side);
    ist_conv_weights_free(&project);
    return !ist_plan_status(p);
}

int ist_fuse_side_channels(const ist_fuse *q) {
    return q->side_filter.out && q->side.c > q->filter.out ? q->side_filter.out : q->side.c;
}

bool ist_fuse_halves(ist_plan *p, const ist_fuse *q, ist_conv_weights *top_half, ist_conv_weights *side_half,
                     ist_tensor *side) {
    const int out = q->filter.out, top = q->top.c;
    ist_error err = {0};
    ist_conv_weights all = ist_weights_of(p, &q->filter);
    *side = q->side;
    bool made = rewritten(p, q, all.w ? ist_part(&all, 0, out, 0, top, false, top_half, &err) : IST_E_MEMORY, &err) &&
                rewritten(p, q, ist_part(&all, 0, out, top, q->filter.in - top, true, side_half, &err), &err) &&
                side_of(p, q, side_half, side);
    ist_conv_weights_free(&all);
    return made;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_fuse *q = node;
    char low[160];
    ist_conv_weights w_top = {0}, w_side = {0};
    ist_tensor side;
    (void)v, (void)way;
    snprintf(low, sizeof low, "%s (low)", q->label);
    if (ist_fuse_halves(p, q, &w_top, &w_side, &side)) {
        ist_epilogue epi = {.act = IST_ACT_SILU, .up2 = true};
        epi.add_before = linear(p, q->top, &w_top, (ist_tensor){0}, NULL, low);
        linear(p, side, &w_side, q->y, &epi, q->label);
    }
    ist_conv_weights_free(&w_top);
    ist_conv_weights_free(&w_side);
}

const ist_family ist_portable_fuse = {.emit = emit};
