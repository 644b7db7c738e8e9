/* See relative_attention.h. */
#include "variants/relative_attention.h"

#include "base/mem.h"
#include "graph/kinds.h"

#include <math.h>

ist_relative_windows ist_relative_windows_of(const ist_relative_attention *a) {
    int d = a->y.c / a->heads;
    int h = (int)(a->rel_h.count / (size_t)d + 1) / 2, w = (int)(a->rel_w.count / (size_t)d + 1) / 2;
    return (ist_relative_windows){.d = d,
                                  .h = h,
                                  .w = w,
                                  .down = ist_div_up(a->qkv.h, h),
                                  .across = ist_div_up(a->qkv.w, w),
                                  .scale = 1.0f / sqrtf((float)d)};
}

ist_relative_args ist_relative_args_of(const ist_relative_attention *a) {
    ist_relative_windows w = ist_relative_windows_of(a);
    ist_tensor qkv = a->qkv, y = a->y;
    return (ist_relative_args){.h = qkv.h,
                               .w = qkv.w,
                               .across = w.across,
                               .c = y.c,
                               .qkv_ld = qkv.ld,
                               .qkv_c0 = qkv.c0,
                               .out_ld = y.ld,
                               .out_c0 = y.c0,
                               .scale = w.scale};
}

ist_launch ist_relative_launch(ist_plan *p, const ist_relative_attention *a, ist_elem positions) {
    ist_relative_windows w = ist_relative_windows_of(a);
    ist_tensor rel_h = ist_plan_const(p, a->rel_h.v, 1, 1, 2 * w.h - 1, w.d, positions, a->label);
    ist_tensor rel_w = ist_plan_const(p, a->rel_w.v, 1, 1, 2 * w.w - 1, w.d, positions, a->label);
    ist_tensor pad = ist_plan_const(p, a->pad.v, 1, 1, 1, a->qkv.c, IST_ELEM_T, a->label);
    return (ist_launch){.label = a->label,
                        .kernel = "relative",
                        .dims = 3,
                        .global = {1, 1, 1},
                        .local = {1, 1, 1},
                        .args = {IST_OUT(a->y), IST_IN(a->qkv), IST_IN(rel_h), IST_IN(rel_w), IST_IN(pad),
                                 IST_IN(ist_plan_current_limit(p))},
                        .arg_count = 6,
                        .flops = 2.0 * ist_multiply_adds(IST_NODE_RELATIVE_ATTENTION, a)};
}
