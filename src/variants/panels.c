/* Weights in panels of one column tile: see panels.h. */
#include "variants/panels.h"

#include "base/mem.h"

#include <stdlib.h>

/* [column tile][tap][in][nr], zeros beyond the last channel. */
static void pack_panels(const ist_conv_problem *q, int nr, float *dst) {
    int tiles = ist_div_up(q->f.out, nr);
    for (int tile = 0; tile < tiles; tile++)
        for (int t = 0; t < q->taps; t++)
            for (int i = 0; i < q->f.in; i++)
                for (int c = 0; c < nr; c++) {
                    int o = tile * nr + c;
                    *dst++ = o < q->f.out ? ist_conv_weight(q, o, i, t) : 0.0f;
                }
}

/* [column tile][nr] */
static void pack_bias(const ist_conv_problem *q, int nr, float *dst) {
    int width = ist_div_up(q->f.out, nr) * nr;
    for (int o = 0; o < width; o++) *dst++ = q->f.b && o < q->f.out ? q->f.b[o] : 0.0f;
}

/* Behind the biases: sums of each output's weights. */
static void pack_sums(const ist_conv_problem *q, int nr, float *dst) {
    int width = ist_div_up(q->f.out, nr) * nr;
    for (int o = 0; o < width; o++) {
        double sum = 0;
        for (int i = 0; o < q->f.out && i < q->f.in; i++) sum += ist_conv_weight(q, o, i, 0);
        dst[width + o] = (float)sum;
    }
}

bool ist_conv_panels_pack(ist_plan *p, const ist_conv_problem *q, int nr, ist_conv_panel *out) {
    size_t width = (size_t)ist_div_up(q->f.out, nr) * (size_t)nr, size = width;
    if (!ist_mul_size(size, (size_t)q->taps, &size) || !ist_mul_size(size, (size_t)q->f.in, &size) ||
        size > SIZE_MAX / sizeof(float)) {
        ist_plan_fail(p, IST_E_LIMIT, "%s: filter [%d,%d,%d,%d] is too large", q->label, q->f.out, q->f.in, q->f.kh,
                      q->f.kw);
        return false;
    }
    float *panels = malloc(size * sizeof *panels), *bias = calloc(2 * width, sizeof *bias);
    if (panels && bias) {
        const bool normed = q->norm_eps > 0;
        if (ist_plan_has_values(p)) pack_panels(q, nr, panels);
        pack_bias(q, nr, bias);
        if (normed && ist_plan_has_values(p)) pack_sums(q, nr, bias);
        out->weights = ist_plan_const_bytes(p, panels, size * sizeof *panels, q->label);
        out->bias = ist_plan_const_bytes(p, bias, (normed ? 2 : 1) * width * sizeof *bias, q->label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, size);
    }
    free(panels);
    free(bias);
    return !ist_plan_status(p);
}
