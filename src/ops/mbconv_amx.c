/* Inverted bottlenecks on AMX (op/mbconv_amx). */
#include "ops/amx.h"
#include "ops/mbconv_rows.h"
#include "ops/rows.h"

#include "base/mem.h"

enum { BLOCK = IST_AMX_BLOCK, MOST = 320, LINE_BYTES = 320 << 10, GROUPS_PER_UNIT = 4 };

bool ist_mbconv_takes_amx(const ist_plan *p, ist_tensor x, const ist_mbconv *b) {
    return ist_cpu_row(p) && ist_plan_caps(p) & IST_CAP_X86_AMX && !ist_plan_half(p) && x.elem == IST_ELEM_T &&
           x.c % BLOCK == 0 && x.c <= MOST && b->expand.out % BLOCK == 0 && b->expand.out <= MOST &&
           b->project.out % BLOCK == 0;
}

ist_tensor ist_mbconv_amx(ist_plan *p, ist_tensor x, const ist_mbconv *b, ist_alike *alike, const char *label) {
    int hidden = b->expand.out, s = b->stride, h = (x.h - 1) / s + 1, w = (x.w - 1) / s + 1;
    int most = LINE_BYTES / (4 * hidden * s) / BLOCK * BLOCK; /* three lines and weights fit the second-level cache */
    int cols = w < most ? w : most, segments = ist_div_up(w, cols), length = (cols - 1) * s + 3;
    int bands = ist_mbconv_bands(p, h, segments * x.n, GROUPS_PER_UNIT), units = ist_plan_units(p);
    ist_tensor y = ist_plan_tensor(p, x.n, h, w, b->project.out, IST_ELEM_T);
    *alike = ist_alike_behind(*alike, x.h, s);
    ist_tensor scratch = ist_plan_tensor(p, units, 3, length + (BLOCK - 1) * s, hidden, IST_ELEM_F32);
    ist_defines d = ist_defines_of(p, "-DMOST=%d -DPARTS=%d -DASM=%d", MOST, ist_amx_parts(p), ist_amx_instructions(p));
    double in = (double)ist_pixels(x), out = (double)ist_pixels(y);
    ist_launch l = {
        .label = label,
        .op = "op/mbconv_amx",
        .isa = "isa/tile+isa/alike+isa/amx",
        .defines = d.text,
        .kernel = "mbconv",
        .dims = 1,
        .global = {(size_t)units},
        .local = {1},
        .args = {IST_OUT(y), IST_IN(x), IST_OUT(scratch), IST_IN(ist_amx_matrix(p, &b->expand, label)),
                 IST_IN(ist_mbconv_bias(p, &b->expand, label)), IST_IN(ist_mbconv_pack(p, &b->spread, label)),
                 IST_IN(ist_mbconv_bias(p, &b->spread, label)), IST_IN(ist_amx_matrix(p, &b->project, label)),
                 IST_IN(ist_mbconv_bias(p, &b->project, label)), IST_IN(ist_plan_current_limit(p)),
                 IST_IN(alike->content), IST_INT8(x.c, hidden, y.c, s, (int)b->act, 0, 0, 0),
                 IST_INT8(x.h, x.w, x.ld, x.c0, length, cols, bands, segments),
                 IST_INT8(x.n, h, w, y.ld, y.c0, b->residual, segments * bands, ist_plan_work_turn(p)),
                 ist_alike_ints(*alike, h), IST_INOUT(ist_plan_work_queue(p))},
        .arg_count = 16,
        .flops = 2.0 * hidden * (in * x.c + out * 9 + out * y.c),
        .bytes = 4.0 * (in * x.c + out * y.c)};
    ist_plan_launch(p, &l);
    return ist_plan_status(p) ? (ist_tensor){0} : y;
}
