/* Overwrites chosen pixels with one vector. */
#include "ops/ops.h"
#include "ops/rows.h"

void ist_op_fill_rows(ist_plan *p, ist_tensor x, ist_tensor rows, const float *value, const char *label) {
    if (ist_plan_status(p)) return;
    if (x.elem != IST_ELEM_T || rows.elem != IST_ELEM_I32 || rows.n != 1 || rows.ld != 1) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: fill_rows wants activations and one dense list of rows", label);
        return;
    }
    ist_tensor constant = ist_plan_const(p, value, 1, 1, 1, x.c, IST_ELEM_F32, label);
    size_t lanes = ist_cpu_row(p) ? 1 : 64;
    ist_defines defines = ist_defines_of(p, "-DLANES=%d", (int)lanes);
    ist_launch launch = {
        .label = label,
        .op = "op/fill_rows",
        .defines = defines.text,
        .kernel = "fill_rows",
        .dims = 2,
        .global = {(size_t)ist_pixels(rows) * lanes, (size_t)x.n},
        .local = {lanes, 1},
        .args = {IST_INOUT(x), IST_IN(rows), IST_IN(constant), IST_IN(ist_plan_current_limit(p)),
                 IST_INT4(x.ld, x.c0, x.c, x.h * x.w)},
        .arg_count = 5,
        .bytes = 4.0 * x.n * ist_pixels(rows) * x.c,
    };
    ist_plan_launch(p, &launch);
}
