/* A walk over the tensors of a network in progress: what a model file writes its list with.
 *
 * A prefix is extended by enter() and cut by leave(); entries put their suffix behind it. Failure is sticky. */
#ifndef IST_MODELS_TENSORS_H
#define IST_MODELS_TENSORS_H

#include "models/arch.h"

typedef struct ist_walk {
    const ist_arch_form *form;
    ist_arch_visit visit;
    void *user;
    ist_status status;
    bool needed;    /* of the entries emitted now */
    bool tracked;   /* batch norms have num_batches_tracked */
    char name[160]; /* the longest official key has 78 characters */
    size_t length;
} ist_walk;

/* Extends the prefix; returns its old length for ist_walk_leave. */
size_t ist_walk_enter(ist_walk *w, const char *fmt, ...) IST_PRINTF(2, 3);
void ist_walk_leave(ist_walk *w, size_t length);

void ist_walk_emit(ist_walk *w, const char *suffix, ist_weight_type type, int rank, const int *dims);
/* The same for entries that inference does not read. */
void ist_walk_emit_unneeded(ist_walk *w, const char *suffix, ist_weight_type type, int rank, const int *dims);

/* One tensor of floats: its suffix, its dims. */
#define IST_EMIT(w, suffix, ...)                                                                                       \
    ist_walk_emit(w, suffix, IST_WEIGHT_F32, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})

void ist_walk_batch_norm(ist_walk *w, const char *prefix, int channels);
/* weight [out,in] and bias [out] */
void ist_walk_linear(ist_walk *w, const char *prefix, int out, int in);
/* weight [n] and bias [n] of a layer norm */
void ist_walk_norm(ist_walk *w, const char *prefix, int n);
/* Linear layers layers.0, layers.1, .. */
void ist_walk_mlp(ist_walk *w, const char *prefix, int in, int hidden, int out, int layers);
/* A convolution with bias, kernel k x k: weight [d0,d1,k,k], bias [bias] */
void ist_walk_conv_bias(ist_walk *w, const char *prefix, int d0, int d1, int k, int bias);

#endif
