/* Inverted bottlenecks on AMX (op/mbconv_amx). */
#include "ops/bf16.h"
#include "ops/mbconv_rows.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>

enum { BLOCK = IST_AMX_BLOCK, VEC = BLOCK / 2, HIDDEN_MAX = 320, LINE_BYTES = 320 << 10, GROUPS_PER_UNIT = 4 };

bool ist_mbconv_takes_amx(const ist_plan *p, ist_tensor x, const ist_mbconv *b) {
    return ist_cpu_row(p) && ist_plan_caps(p) & IST_CAP_X86_AMX && !ist_plan_half(p) && x.elem == IST_ELEM_T &&
           x.c % BLOCK == 0 && x.c <= HIDDEN_MAX && b->expand.out % BLOCK == 0 && b->expand.out <= HIDDEN_MAX &&
           b->project.out % BLOCK == 0;
}

/* Hidden channel that the kernel has at place i: of 32 the even ones come first. */
static int hidden_at(int i) {
    return i / BLOCK * BLOCK + i % VEC * 2 + i % BLOCK / VEC;
}

/* Input that becomes number i of isa/amx's pairs: i and i + 16 of 32 are one. */
static int input_at(int i) {
    return i / BLOCK * BLOCK + i % BLOCK / 2 + i % 2 * VEC;
}

/* Weights and biases in the order in which the kernel has channels. */
typedef struct ordered {
    float *expand, *expand_b, *spread, *spread_b; /* expand: what is to be freed */
} ordered;

static bool order(ist_plan *p, const ist_mbconv *b, ordered *to, const char *label) {
    int hidden = b->expand.out, in = b->expand.in;
    size_t count = (size_t)hidden * (size_t)(in + 11);
    float *w = calloc(count, sizeof *w);
    if (!w) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to order %zu weights", label, count);
        return false;
    }
    *to = (ordered){w, w + hidden * in, w + hidden * (in + 1), w + hidden * (in + 10)};
    for (int o = 0; o < hidden; o++) {
        int from = hidden_at(o);
        for (int i = 0; i < in; i++) to->expand[o * in + i] = b->expand.w[from * in + input_at(i)];
        for (int t = 0; t < 9; t++) to->spread[o * 9 + t] = b->spread.w[from * 9 + t];
        if (b->expand.b) to->expand_b[o] = b->expand.b[from];
        if (b->spread.b) to->spread_b[o] = b->spread.b[from];
    }
    return true;
}

ist_tensor ist_mbconv_amx(ist_plan *p, ist_tensor x, const ist_mbconv *b, const char *label) {
    int hidden = b->expand.out, s = b->stride, h = (x.h - 1) / s + 1, w = (x.w - 1) / s + 1;
    int most = LINE_BYTES / (4 * hidden * s) / BLOCK * BLOCK; /* three lines and weights fit the second-level cache */
    int cols = w < most ? w : most, segments = ist_div_up(w, cols), length = (cols - 1) * s + 3;
    int rows = ist_mbconv_band(p, h, segments * x.n, GROUPS_PER_UNIT), units = ist_plan_units(p);
    ordered v;
    if (!order(p, b, &v, label)) return (ist_tensor){0};
    ist_filter expand = {hidden, x.c, 1, 1, v.expand, v.expand_b}, spread = {hidden, 1, 3, 3, v.spread, v.spread_b};
    ist_tensor y = ist_plan_tensor(p, x.n, h, w, b->project.out, IST_ELEM_T);
    ist_tensor scratch = ist_plan_tensor(p, units, 3, length + (BLOCK - 1) * s, hidden, IST_ELEM_F32);
    ist_defines d = ist_defines_of(p, "-DCIN=%d -DHIDDEN=%d -DCOUT=%d -DSTRIDE=%d -DACT=%d -DPARTS=%d -DASM=%d", x.c,
                                   hidden, b->project.out, s, (int)b->act, ist_amx_parts(p), ist_amx_instructions(p));
    double in = (double)ist_pixels(x), out = (double)ist_pixels(y);
    ist_launch l = {
        .label = label,
        .op = "op/mbconv_amx",
        .isa = "isa/tile+isa/bf16+isa/amx",
        .defines = d.text,
        .kernel = "mbconv",
        .dims = 1,
        .global = {(size_t)units},
        .local = {1},
        .args = {IST_OUT(y), IST_IN(x), IST_OUT(scratch), IST_IN(ist_amx_matrix(p, &expand, IST_AMX_NEIGHBOURS, label)),
                 IST_IN(ist_mbconv_bias(p, &expand, label)), IST_IN(ist_mbconv_pack(p, &spread, label)),
                 IST_IN(ist_mbconv_bias(p, &spread, label)), IST_IN(ist_amx_matrix(p, &b->project, IST_AMX_NEIGHBOURS, label)),
                 IST_IN(ist_mbconv_bias(p, &b->project, label)), IST_IN(ist_plan_current_limit(p)),
                 IST_INT8(x.h, x.w, x.ld, x.c0, length, cols, rows, segments),
                 IST_INT8(x.n, h, w, y.ld, y.c0, b->residual, segments * ist_div_up(h, rows), ist_plan_work_turn(p)),
                 IST_INOUT(ist_plan_work_queue(p))},
        .arg_count = 13,
        .flops = 2.0 * hidden * (in * x.c + out * 9 + out * y.c),
        .bytes = 4.0 * (in * x.c + out * y.c)};
    free(v.expand);
    ist_plan_launch(p, &l);
    return ist_plan_status(p) ? (ist_tensor){0} : y;
}
