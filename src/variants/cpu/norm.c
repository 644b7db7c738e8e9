/* Layer normalisation and D-FINE's gate on CPUs: a work-item per group takes rows of pixels (cl/portable/norm). */
#include "variants/norm.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

enum { GROUP_VALUES = 16384 };

/* Pixels that a group takes, of `values` values each. */
static int rows_of(ist_tensor x, int values) {
    int pixels = x.h * x.w, rows = GROUP_VALUES / values;
    return rows < pixels ? rows : pixels;
}

static void emit_norm(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_layer_norm *q = node;
    ist_tensor x = q->x, add = q->add, out = q->y;
    (void)v, (void)way;
    ist_tensor g = ist_plan_const(p, q->norm.gamma, 1, 1, 1, x.c, IST_ELEM_F32, q->label);
    ist_tensor b = ist_plan_const(p, q->norm.beta, 1, 1, 1, x.c, IST_ELEM_F32, q->label);
    const ist_layernorm_args by_value = ist_layernorm_args_of(q, rows_of(x, x.c));
    ist_defines defines = ist_defines_of(p, "-DWIDE");
    ist_plan_launch(
        p, &(ist_launch){.label = q->label,
                         .op = "portable/norm",
                         .defines = defines.text,
                         .kernel = "layernorm",
                         .dims = 1,
                         .global = {(size_t)ist_plan_units(p)},
                         .local = {1},
                         .args = {IST_OUT(out), IST_IN(x), IST_IN(add), IST_IN(g), IST_IN(b),
                                  IST_IN(ist_plan_current_limit(p)), IST_STRUCT(layernorm_args, &by_value),
                                  IST_INOUT(ist_plan_work_queue(p))},
                         .arg_count = 8,
                         .shares = true,
                         .bytes = (double)ist_pixels(x) * x.c * (by_value.adds ? 3 : 2) * (ist_plan_half(p) ? 2 : 4)});
}

const ist_family ist_cpu_norm = {.emit = emit_norm};

static void emit_gate(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_gate *q = node;
    int rows = rows_of(q->a, 4 * q->a.c);
    ist_defines defines = ist_defines_of(p, "-DWIDE");
    (void)v, (void)way;
    ist_gate_launch(p, q,
                    &(ist_launch){.defines = defines.text,
                                  .global = {(size_t)ist_div_up(q->a.h * q->a.w, rows), (size_t)q->a.n},
                                  .local = {1, 1}},
                    rows);
}

const ist_family ist_cpu_gate = {.emit = emit_gate};
