/* What the MBConv kernels of CPUs share: the pieces that compute units take. */
#ifndef IST_VARIANTS_CPU_MBCONV_H
#define IST_VARIANTS_CPU_MBCONV_H

#include "base/mem.h"
#include "core/plan.h"
#include "graph/nodes.h"
#include "variants/cpu/mbconv_args.h"
#include "variants/padding_reuse.h"

/* Pieces of `cols` columns and of a band of the result's rows; b->reuse is the result's by now. */
static inline ist_cpu_mbconv_args ist_cpu_mbconv_args_of(ist_plan *p, const ist_mbconv *b, int cols, int bands) {
    const int segments = ist_div_up(b->y.w, cols);
    return (ist_cpu_mbconv_args){.x_h = b->x.h,
                                 .x_w = b->x.w,
                                 .x_ld = b->x.ld,
                                 .x_c0 = b->x.c0,
                                 .items = b->x.n,
                                 .y_h = b->y.h,
                                 .y_w = b->y.w,
                                 .y_ld = b->y.ld,
                                 .y_c0 = b->y.c0,
                                 .residual = b->residual,
                                 .line_pixels = (cols - 1) * b->stride + 3,
                                 .segment_w = cols,
                                 .segments = segments,
                                 .bands = bands,
                                 .pieces = segments * bands,
                                 .backwards = ist_plan_work_turn(p),
                                 .same = ist_padding_reuse_args_of(b->reuse, b->y.h)};
}

#endif
