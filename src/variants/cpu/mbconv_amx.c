/* Inverted bottlenecks on AMX (cl/cpu/mbconv_amx). */
#include "variants/padding_reuse.h"
#include "variants/cpu/amx.h"
#include "variants/cpu/mbconv.h"
#include "variants/cpu/weights.h"
#include "variants/defines.h"

#include "base/mem.h"

enum { BLOCK = IST_AMX_BLOCK, MOST = 320, LINE_BYTES = 320 << 10, GROUPS_PER_UNIT = 4 };

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_mbconv *b = node;
    (void)p, (void)v;
    return b->x.elem == IST_ELEM_T && b->x.c % BLOCK == 0 && b->x.c <= MOST && b->expand.out % BLOCK == 0 &&
           b->expand.out <= MOST && b->project.out % BLOCK == 0;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_mbconv *b = node;
    const char *label = b->label;
    ist_tensor x = b->x, y = b->y;
    (void)v, (void)way;
    int hidden = b->expand.out, s = b->stride, h = y.h, w = y.w;
    int most = LINE_BYTES / (4 * hidden * s) / BLOCK * BLOCK; /* three lines and weights fit the second-level cache */
    int cols = w < most ? w : most, segments = ist_div_up(w, cols), length = (cols - 1) * s + 3;
    int bands = ist_cpu_bands(p, h, segments * x.n, GROUPS_PER_UNIT), units = ist_plan_units(p);
    b->reuse = ist_padding_reuse_behind(b->reuse, x.h, s);
    ist_tensor scratch = ist_plan_tensor(p, units, 3, length + (BLOCK - 1) * s, hidden, IST_ELEM_F32);
    ist_defines d = ist_defines_of(p, "-DMOST=%d -DPARTS=%d -DASM=%d", MOST, ist_amx_parts(p), ist_amx_instructions(p));
    double in = (double)ist_pixels(x), out = (double)ist_pixels(y);
    const ist_mbconv_amx_args by_value = {.common = ist_cpu_mbconv_args_of(p, b, cols, bands),
                                          .x_c = x.c,
                                          .hidden = hidden,
                                          .y_c = y.c,
                                          .stride = s,
                                          .act = (int)b->act};
    ist_launch l = {
        .label = label,
        .op = "cpu/mbconv_amx",
        .isa = "cpu/tile+cpu/repeated_rows+cpu/amx",
        .defines = d.text,
        .kernel = "mbconv",
        .dims = 1,
        .global = {(size_t)units},
        .local = {1},
        .args = {IST_OUT(y), IST_IN(x), IST_OUT(scratch), IST_IN(ist_amx_matrix(p, &b->expand, label)),
                 IST_IN(ist_cpu_values(p, b->expand.b, hidden, NULL, 0, label)), IST_IN(ist_cpu_taps(p, &b->spread, label)),
                 IST_IN(ist_cpu_values(p, b->spread.b, hidden, NULL, 0, label)), IST_IN(ist_amx_matrix(p, &b->project, label)),
                 IST_IN(ist_cpu_values(p, b->project.b, y.c, NULL, 0, label)), IST_IN(ist_plan_current_limit(p)),
                 IST_IN(b->reuse.content), IST_STRUCT(mbconv_amx_args, &by_value), IST_INOUT(ist_plan_work_queue(p))},
        .arg_count = 13,
        .flops = 2.0 * hidden * (in * x.c + out * 9 + out * y.c),
        .bytes = 4.0 * (in * x.c + out * y.c)};
    ist_plan_launch(p, &l);
}

const ist_family ist_cpu_mbconv_amx = {.takes = takes, .emit = emit, .rows = IST_REPEATS_MADE};
