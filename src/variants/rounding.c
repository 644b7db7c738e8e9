/* See rounding.h. */
#include "variants/rounding.h"

#include <stdlib.h>
#include <string.h>

ist_conv_weights ist_weights_of(ist_plan *p, const ist_filter *f) {
    size_t count = (size_t)f->out * (size_t)f->in * (size_t)(f->kh * f->kw);
    ist_conv_weights w = {.out = f->out, .in = f->in, .kh = f->kh, .kw = f->kw, .lab_scale = 1};
    if (ist_plan_status(p)) return (ist_conv_weights){0};
    w.w = malloc(count * sizeof *w.w);
    w.b = calloc((size_t)f->out, sizeof *w.b);
    if (!w.w || !w.b) {
        ist_conv_weights_free(&w);
        ist_plan_fail(p, IST_E_MEMORY, "out of host memory for %zu weights", count);
        return w;
    }
    memcpy(w.w, f->w, count * sizeof *w.w);
    if (f->b) memcpy(w.b, f->b, (size_t)f->out * sizeof *w.b);
    return w;
}

void ist_round(const ist_plan *p, ist_conv_weights *w) {
    if (w->w && ist_plan_half(p) && ist_plan_has_values(p)) ist_conv_weights_halve(w);
}

ist_filter ist_rounded(ist_plan *p, const ist_filter *f, ist_conv_weights *room) {
    *room = (ist_conv_weights){0};
    if (!ist_plan_half(p)) return *f;
    *room = ist_weights_of(p, f);
    ist_round(p, room);
    return ist_filter_of(room);
}
