/* The 2x2 maximum of HGNetv2's stem. */
#include "ops/ops.h"
#include "ops/rows.h"

#include "base/mem.h"

enum { GROUP = 64, RUN = 4 }; /* pixels of a work-item where lines are multiples of it */

ist_tensor ist_op_maxpool2x2(ist_plan *p, ist_tensor x, ist_tensor into, const char *label) {
    ist_tensor none = {0};
    if (ist_plan_status(p)) return none;
    ist_tensor y = ist_plan_into(p, into, x.n, x.h, x.w, x.c, IST_ELEM_T, label);
    if (ist_plan_status(p)) return none;
    if (x.elem != IST_ELEM_T) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: the input holds no activations", label);
        return none;
    }
    bool cpu = ist_cpu_row(p);
    int quads = ist_div_up(x.c, 4);
    int run = cpu ? x.w : x.w % RUN == 0 ? RUN : 1;
    bool aligned = (x.ld | x.c0 | y.ld | y.c0) % 4 == 0;
    ist_defines defines = ist_defines_of(p, "%s", !cpu && aligned ? " -DALIGNED" : "");
    if (!cpu && run > 1) ist_defines_add(&defines, " -DRUN=%d", RUN);
    ist_launch l = {
        .label = label,
        .op = "op/pool",
        .defines = defines.text,
        .kernel = cpu ? "maxpool2x2" : "maxpool2x2_group",
        .dims = 1,
        .global = {cpu ? (size_t)(ist_pixels(x) / run)
                       : ist_round_up((size_t)(ist_pixels(x) / run) * (size_t)quads, GROUP)},
        .local = {cpu ? 1 : GROUP},
        .args = {IST_IN(x), IST_OUT(y), IST_IN(ist_plan_current_limit(p)), IST_INT4(x.h, x.w, x.ld, x.c0),
                 IST_INT4(y.ld, y.c0, y.c, cpu ? run : quads), IST_INT(x.n)},
        .arg_count = cpu ? 5 : 6,
        .bytes = 2.0 * (ist_plan_half(p) ? 2 : 4) * ist_pixels(x) * x.c,
    };
    ist_plan_launch(p, &l);
    return y;
}
