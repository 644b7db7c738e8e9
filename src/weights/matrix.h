/* Filters merged, split and widened, on the host: exact rewrites of layers (rounding apart). Arguments named `taken` are
 * freed by the callee, also when it fails; results are the caller's and empty after a failure. Inputs that are empty
 * because something failed before give IST_E_STATE without a new sentence. */
#ifndef IST_WEIGHTS_MATRIX_H
#define IST_WEIGHTS_MATRIX_H

#include "weights/fold.h"

/* A layer of zeros, which take no memory before they are touched. */
ist_status ist_zero_filter(int out, int in, int kh, int kw, ist_conv_weights *w, ist_error *err);
/* Two 1x1 layers of one input as one: the outputs of `first`, then those of `second`. */
ist_status ist_stack(ist_conv_weights taken_first, ist_conv_weights taken_second, ist_conv_weights *out, ist_error *err);
/* Two 1x1 layers in a row, without activation between them, as one: outer(inner(x)). */
ist_status ist_compose(ist_conv_weights taken_outer, ist_conv_weights taken_inner, ist_conv_weights *out,
                       ist_error *err);
/* Outputs [out0, out0 + outs) and inputs [in0, in0 + ins) of a 1x1 layer; the bias is zero unless `bias`. */
ist_status ist_part(const ist_conv_weights *w, int out0, int outs, int in0, int ins, bool bias, ist_conv_weights *out,
                    ist_error *err);

/* How the channels of a wider map stand for those of a map: `first` channels as they are, then each run of `run` has
 * become one of `wide`, with zeros in what was added. {0}: nothing was. */
typedef struct ist_widening {
    int first, run, wide;
} ist_widening;
/* Channels of a map of c as it is widened. */
static inline int ist_widened(ist_widening w, int c) {
    return w.wide ? w.first + (c - w.first) / w.run * w.wide : c;
}
/* A layer of any kernel for wider maps of outputs and of inputs. */
ist_status ist_widen(ist_conv_weights taken, ist_widening outputs, ist_widening inputs, ist_conv_weights *out,
                     ist_error *err);

#endif
