/* Filters as a plan holds them: half storage rounds their weights so that their sums stay (weights/halve.c). */
#ifndef IST_VARIANTS_ROUNDING_H
#define IST_VARIANTS_ROUNDING_H

#include "core/plan.h"
#include "graph/nodes.h"
#include "weights/matrix.h"

/* The filter, borrowed from w. */
static inline ist_filter ist_filter_of(const ist_conv_weights *w) {
    return (ist_filter){.out = w->out, .in = w->in, .kh = w->kh, .kw = w->kw, .w = w->w, .b = w->b};
}
/* A filter whose weights are its own: a copy, the caller's to free; empty, and the plan failed, without memory. */
ist_conv_weights ist_weights_of(ist_plan *p, const ist_filter *f);
/* Rounds w where the plan stores halves. */
void ist_round(const ist_plan *p, ist_conv_weights *w);

/* f as the plan holds it: itself, or a rounded copy in *room, which the caller frees. */
ist_filter ist_rounded(ist_plan *p, const ist_filter *f, ist_conv_weights *room);

#endif
