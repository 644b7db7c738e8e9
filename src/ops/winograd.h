/* 3x3 convolutions with stride 1 by Winograd's F(2x2, 3x3) on CPUs (cl/op/winograd.cl). */
#ifndef IST_OPS_WINOGRAD_H
#define IST_OPS_WINOGRAD_H

#include "ops/ops.h"

/* Whether the device can run it and the kernel takes the shapes: channels of both sides multiples of 16. */
bool ist_winograd_fits(const ist_plan *p, ist_tensor x, const ist_filter *f, const ist_conv_opts *o);
/* Whether it fits and is faster than the direct kernels: enough tiles to use a block's transformed filters often. */
bool ist_winograd_wins(const ist_plan *p, ist_tensor x, const ist_filter *f, const ist_conv_opts *o);
/* A core's cycles for all of it, with vectors of 16 floats. */
double ist_winograd_cycles(const ist_plan *p, ist_tensor x, const ist_filter *f, const ist_conv_opts *o);
/* As ist_op_conv; fails where it does not fit. */
ist_tensor ist_op_winograd(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label);

#endif
