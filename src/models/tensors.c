/* See tensors.h. */
#include "models/tensors.h"

#include <stdarg.h>
#include <stdio.h>

size_t ist_walk_enter(ist_walk *w, const char *fmt, ...) {
    size_t old = w->length;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(w->name + old, sizeof w->name - old, fmt, ap);
    va_end(ap);
    w->length = old + (size_t)n;
    return old;
}

void ist_walk_leave(ist_walk *w, size_t length) {
    w->length = length;
    w->name[length] = '\0';
}

void ist_walk_emit(ist_walk *w, const char *suffix, ist_weight_type type, int rank, const int *dims) {
    if (w->status) return;
    size_t old = ist_walk_enter(w, "%s", suffix);
    ist_arch_entry e = {.name = w->name, .type = type, .rank = rank, .needed = w->needed};
    for (int i = 0; i < rank; i++) e.dims[i] = dims[i];
    w->status = w->visit(w->user, &e);
    ist_walk_leave(w, old);
}

void ist_walk_emit_unneeded(ist_walk *w, const char *suffix, ist_weight_type type, int rank, const int *dims) {
    bool old = w->needed;
    w->needed = false;
    ist_walk_emit(w, suffix, type, rank, dims);
    w->needed = old;
}

void ist_walk_batch_norm(ist_walk *w, const char *prefix, int channels) {
    size_t p = ist_walk_enter(w, "%s", prefix);
    IST_EMIT(w, "weight", channels);
    IST_EMIT(w, "bias", channels);
    IST_EMIT(w, "running_mean", channels);
    IST_EMIT(w, "running_var", channels);
    if (w->tracked) ist_walk_emit_unneeded(w, "num_batches_tracked", IST_WEIGHT_I64, 0, NULL);
    ist_walk_leave(w, p);
}

void ist_walk_linear(ist_walk *w, const char *prefix, int out, int in) {
    size_t p = ist_walk_enter(w, "%s", prefix);
    IST_EMIT(w, "weight", out, in);
    IST_EMIT(w, "bias", out);
    ist_walk_leave(w, p);
}

void ist_walk_norm(ist_walk *w, const char *prefix, int n) {
    size_t p = ist_walk_enter(w, "%s", prefix);
    IST_EMIT(w, "weight", n);
    IST_EMIT(w, "bias", n);
    ist_walk_leave(w, p);
}

void ist_walk_mlp(ist_walk *w, const char *prefix, int in, int hidden, int out, int layers) {
    size_t p = ist_walk_enter(w, "%s", prefix);
    for (int i = 0; i < layers; i++) {
        size_t q = ist_walk_enter(w, "layers.%d.", i);
        ist_walk_linear(w, "", i == layers - 1 ? out : hidden, i ? hidden : in);
        ist_walk_leave(w, q);
    }
    ist_walk_leave(w, p);
}

void ist_walk_conv_bias(ist_walk *w, const char *prefix, int d0, int d1, int k, int bias) {
    size_t p = ist_walk_enter(w, "%s", prefix);
    IST_EMIT(w, "weight", d0, d1, k, k);
    IST_EMIT(w, "bias", bias);
    ist_walk_leave(w, p);
}
