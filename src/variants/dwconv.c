/* Depthwise convolutions: weights, alignment and the launch that all kernels have in common. */
#include "variants/dwconv.h"

#include "variants/conv.h"
#include "variants/epilogue.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

bool ist_dwconv_pack(ist_plan *p, const ist_conv *q, int width, ist_tensor *weights, ist_tensor *bias) {
    int c = q->filter.out, taps = q->filter.kh * q->filter.kw;
    if (!ist_plan_representable(p, q->filter.w, (size_t)c * (size_t)taps, q->label)) return false;
    int blocks = ist_div_up(c, width);
    size_t size = (size_t)blocks * (size_t)width;
    float *w = calloc(size * (size_t)taps, sizeof *w), *b = calloc(size, sizeof *b);
    if (w && b) {
        for (int o = 0; o < c; o++) {
            int block = o / width, lane = o % width;
            for (int t = 0; t < taps; t++) w[((size_t)block * taps + t) * width + lane] = q->filter.w[(size_t)o * taps + t];
            if (q->filter.b) b[o] = q->filter.b[o];
        }
        *weights = ist_plan_const_bytes(p, w, size * (size_t)taps * sizeof *w, q->label);
        *bias = ist_plan_const_bytes(p, b, size * sizeof *b, q->label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, size * (size_t)taps);
    }
    free(w);
    free(b);
    return !ist_plan_status(p);
}

static bool aligned(ist_tensor t, int width) {
    return !ist_has(t) || (t.elem == IST_ELEM_T && t.ld % width == 0 && t.c0 % width == 0);
}

bool ist_dwconv_aligned(const ist_conv *q, int width) {
    return aligned(q->x, width) && aligned(q->y, width) && aligned(q->o.epi.add_before, width) &&
           aligned(q->o.epi.add_after, width);
}

ist_conv_shape ist_dwconv_shape_of(const ist_conv *q) {
    ist_conv_problem problem = ist_conv_problem_of(q);
    return ist_conv_shape_of(&problem);
}

ist_epilogue_args ist_dwconv_epilogue_of(const ist_conv *q) {
    return ist_epilogue_args_of(&q->o.epi, q->y);
}

void ist_dwconv_launch(ist_plan *p, const ist_conv *q, ist_launch *l, ist_tensor weights, ist_tensor bias,
                       ist_arg by_value, const ist_arg *last, int count) {
    const ist_conv_opts *o = &q->o;
    const ist_arg args[] = {IST_IN(q->x),
                            IST_IN(weights),
                            IST_IN(bias),
                            IST_OUT(q->y),
                            IST_IN(o->epi.add_before),
                            IST_IN(o->epi.add_after),
                            IST_IN(ist_plan_current_limit(p)),
                            by_value};
    l->label = q->label;
    l->kernel = "dwconv";
    l->arg_count = (int)(sizeof args / sizeof args[0]);
    memcpy(l->args, args, sizeof args);
    for (int i = 0; i < count; i++) l->args[l->arg_count++] = last[i];
    double elem = ist_plan_half(p) ? 2 : 4, out = (double)ist_pixels(q->y) * q->y.c;
    l->flops = 2.0 * out * q->filter.kh * q->filter.kw;
    l->bytes = elem * ((double)ist_pixels(q->x) * q->x.c + out);
    ist_plan_launch(p, l);
}
