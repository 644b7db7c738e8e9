/* From a checkpoint to operators: loads and folds weights by name, hands them to an operator, frees the host arrays.
 *
 * A model function takes an `ist_net` and reads like its paper: one layer per line. Failures are sticky in the plan:
 * once it has failed, everything here is a no-op that returns something empty. Names are printf formats, so that the
 * numbers of a layer stand where the checkpoint has them. `ist_conv_weights` arguments named `taken` are freed by the
 * callee. Knows no model. */
#ifndef IST_MODELS_BRIDGE_H
#define IST_MODELS_BRIDGE_H

#include "ops/ops.h"
#include "weights/fold.h"

/* A model being recorded; both are borrowed. */
typedef struct ist_net {
    ist_plan *plan;
    const ist_weights *weights;
} ist_net;

/* The full official name of a tensor or layer (the longest has 78 characters), for lines that need one twice. */
typedef struct ist_name {
    char text[128];
} ist_name;
ist_name ist_name_of(const char *fmt, ...) IST_PRINTF(1, 2);

/* Zero padding of k on all sides; of one row and column at the far sides. For ist_conv_opts initialisers. */
#define IST_PAD(k)  .top = (k), .left = (k), .bottom = (k), .right = (k)
#define IST_PAD_FAR .bottom = 1, .right = 1

/* ist_plan_tap with a formatted name. */
void ist_tap(const ist_net *net, ist_tensor t, const char *fmt, ...) IST_PRINTF(3, 4);

/* ---- layers by name ----
 * The kind of convolution follows from the shapes: 1x1 with stride 1 is a linear layer, one channel per group with as
 * many outputs as x has channels is depthwise. `opts` may be NULL. */

/* NAME.conv.weight, batch norm NAME.norm. */
ist_tensor ist_conv_norm(const ist_net *net, ist_tensor x, const ist_conv_opts *opts, const char *fmt, ...)
    IST_PRINTF(4, 5);
/* NAME.weight, NAME.bias where the checkpoint has it: a convolution of any kind or a matrix [out,in]. */
ist_tensor ist_dense(const ist_net *net, ist_tensor x, const ist_conv_opts *opts, const char *fmt, ...)
    IST_PRINTF(4, 5);
/* Layer norm with NAME.weight, NAME.bias. */
ist_tensor ist_layer_norm(const ist_net *net, ist_tensor x, float eps, const ist_norm_opts *opts, const char *fmt, ...)
    IST_PRINTF(5, 6);

/* ---- the same in two steps, for layers that are merged or split ---- */

/* Weights of a layer with its norm folded in, see weights/fold.h; the caller's to free or to hand on as `taken`. Empty,
 * and the plan failed, when a tensor is missing or misshapen. */
ist_conv_weights ist_take_conv(const ist_net *net, const char *conv, const char *bn, const char *lab);
/* NAME.conv.weight, batch norm NAME.bn, and NAME.lab where the checkpoint has it. */
ist_conv_weights ist_take_conv_bn(const ist_net *net, const char *fmt, ...) IST_PRINTF(2, 3);
/* As ist_conv_norm and ist_dense read them. */
ist_conv_weights ist_take_conv_norm(const ist_net *net, const char *fmt, ...) IST_PRINTF(2, 3);
ist_conv_weights ist_take_dense(const ist_net *net, const char *fmt, ...) IST_PRINTF(2, 3);
ist_conv_weights ist_take_repvgg(const ist_net *net, const char *fmt, ...) IST_PRINTF(2, 3);
ist_conv_weights ist_take_linear(const ist_net *net, const char *weight, const char *bias);
ist_norm_weights ist_take_norm(const ist_net *net, const char *fmt, ...) IST_PRINTF(2, 3);
/* One scalar of the checkpoint. */
float ist_take_scalar(const ist_net *net, const char *name);

/* The layer's filter, borrowed. */
static inline ist_filter ist_filter_of(const ist_conv_weights *w) {
    return (ist_filter){.out = w->out, .in = w->in, .kh = w->kh, .kw = w->kw, .w = w->w, .b = w->b};
}

/* To be called when the weights are as the plan will hold them: those for half storage are rounded to it. */
void ist_settle(const ist_net *net, ist_conv_weights *w);
/* The same where the means of the layer's inputs are about known (ist_conv_weights_halve_about). The means of its
 * outputs, after ReLU if it has one and LAB, go to `out`. Nothing happens, and `out` stays, where weights are not
 * rounded. */
void ist_settle_about(const ist_net *net, ist_conv_weights *w, const float *mean, bool relu, float *out);

/* Two 1x1 layers of one input as one: the outputs of `first`, then those of `second`. */
ist_conv_weights ist_stack(const ist_net *net, ist_conv_weights taken_first, ist_conv_weights taken_second);
/* Two 1x1 layers in a row, without activation between them, as one: outer(inner(x)). */
ist_conv_weights ist_compose(const ist_net *net, ist_conv_weights taken_outer, ist_conv_weights taken_inner);
/* Outputs [out0, out0 + outs) and inputs [in0, in0 + ins) of a 1x1 layer; the bias is zero unless `bias`. */
ist_conv_weights ist_part(const ist_net *net, const ist_conv_weights *w, int out0, int outs, int in0, int ins,
                          bool bias);

/* A layer of any kernel for wider maps: from output `out0` and from input `in0` on, each run of `run` channels becomes
 * one of `wide`, with zeros in what is added. out0 = taken.out widens inputs only, in0 = taken.in outputs only. */
ist_conv_weights ist_widen(const ist_net *net, ist_conv_weights taken, int out0, int in0, int run, int wide);

/* Records the layer and frees the weights. */
ist_tensor ist_apply(const ist_net *net, ist_tensor x, ist_conv_weights taken, const ist_conv_opts *opts,
                     const char *label);
/* A 1x1 layer without activation and the depthwise layer behind it (ops/separable.h); `opts` are the latter's. */
ist_tensor ist_apply_separable(const ist_net *net, ist_tensor x, ist_conv_weights taken_point,
                               ist_conv_weights taken_depth, const ist_conv_opts *opts, const char *label);

#endif
