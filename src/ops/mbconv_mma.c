/* Inverted bottlenecks on matrix instructions (cl/op/mbconv_mma.cl): packs weights as halves and records the launch. */
#include "ops/mbconv_rows.h"

#include "ops/fragments.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { ITEMS = 512, SIDE = 14, EACH = 32, CHANNELS_MAX = 64 };

bool ist_mbconv_mma_takes(const ist_plan *p, ist_tensor x, const ist_mbconv *b) {
    return !ist_cpu_row(p) && (ist_plan_caps(p) & IST_CAP_PTX_MMA) && ist_plan_half(p) && x.elem == IST_ELEM_T &&
           (x.ld | x.c0) % 8 == 0 && x.c % 32 == 0 && x.c <= CHANNELS_MAX && b->project.out % 32 == 0 &&
           b->project.out <= CHANNELS_MAX && b->expand.out % EACH == 0 && b->stride == 1 &&
           (b->act == IST_ACT_GELU || b->act == IST_ACT_NONE);
}

static ist_tensor pack_weights(ist_plan *p, const ist_mbconv *b, const char *label) {
    int in = b->expand.in, hidden = b->expand.out, out = b->project.out;
    size_t count = (size_t)hidden * (size_t)(in + out);
    float *packed = malloc(count * sizeof *packed), *to = packed;
    ist_tensor t = {0};
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    for (int h = 0; h < hidden; h += EACH) {
        for (int o = h; o < h + EACH; o += 8)
            for (int k = 0; k < in; k += 32) to = ist_fragments(b->expand.w + o * in + k, 1, 1, (size_t)in, false, to);
        for (int o = 0; o < out; o += 8)
            to = ist_fragments(b->project.w + o * hidden + h, 1, 1, (size_t)hidden, false, to);
    }
    t = ist_plan_const(p, packed, 1, 1, 1, (int)count, IST_ELEM_T, label);
    free(packed);
    return t;
}

/* {bias of the expansion, taps [9], bias} of each EACH hidden channels, then the projection's bias. */
static ist_tensor pack_numbers(ist_plan *p, const ist_mbconv *b, const char *label) {
    int hidden = b->expand.out, out = b->project.out;
    size_t count = 11 * (size_t)hidden + (size_t)out;
    float *all = calloc(count, sizeof *all);
    ist_tensor t = {0};
    if (!all) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %zu numbers", label, count);
        return t;
    }
    for (int h = 0; h < hidden; h++) {
        float *to = all + h / EACH * 11 * EACH + h % EACH;
        if (b->expand.b) to[0] = b->expand.b[h];
        for (int k = 0; k < 9; k++) to[(1 + k) * EACH] = b->spread.w[h * 9 + k];
        if (b->spread.b) to[10 * EACH] = b->spread.b[h];
    }
    if (b->project.b) memcpy(all + 11 * hidden, b->project.b, (size_t)out * sizeof *all);
    t = ist_plan_const(p, all, 1, 1, 1, (int)count, IST_ELEM_F32, label);
    free(all);
    return t;
}

ist_tensor ist_mbconv_mma(ist_plan *p, ist_tensor x, const ist_mbconv *b, const char *label) {
    int hidden = b->expand.out, out = b->project.out, across = ist_div_up(x.w, SIDE);
    ist_tensor y = ist_plan_tensor(p, x.n, x.h, x.w, out, IST_ELEM_T);
    ist_tensor weights = pack_weights(p, b, label), numbers = pack_numbers(p, b, label);
    ist_defines d = ist_defines_of(p, "-DC=%d -DOUT=%d -DHID=%d -DACT=%d%s", x.c, out, hidden,
                                   (int)b->act, b->residual ? " -DRESIDUAL" : "");
    double pixels = (double)ist_pixels(x);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/mbconv_mma",
                                     .isa = "isa/ptx",
                                     .defines = d.text,
                                     .kernel = "mbconv",
                                     .dims = 2,
                                     .global = {(size_t)(across * ist_div_up(x.h, SIDE)) * ITEMS, (size_t)x.n},
                                     .local = {ITEMS, 1},
                                     .args = {IST_OUT(y), IST_IN(x), IST_IN(weights), IST_IN(numbers),
                                              IST_IN(ist_plan_current_limit(p)), IST_INT4(x.h, x.w, across, 0),
                                              IST_INT4(x.ld, x.c0, y.ld, y.c0)},
                                     .arg_count = 7,
                                     .flops = 2.0 * pixels * hidden * (x.c + 9 + out),
                                     .bytes = 2.0 * pixels * (x.c + out)});
    return y;
}
