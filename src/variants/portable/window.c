/* Window attention: a query per work-item (cl/portable/attention). */
#include "variants/defines.h"
#include "variants/variant.h"
#include "variants/window.h"

#include "base/mem.h"

enum { GROUP = 64 };

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_window_attention *a = node;
    int tokens = a->ws * a->ws;
    ist_tensor pad = ist_plan_const(p, a->pad, 1, 1, 1, a->qkv.c, IST_ELEM_F32, a->label);
    ist_tensor table = ist_plan_const(p, a->bias, 1, 1, a->heads, tokens, IST_ELEM_F32, a->label);
    ist_defines d = ist_defines_of(p, "-DWS=%d", a->ws);
    (void)v, (void)way;
    const ist_window_args by_value = ist_window_args_of(a);
    ist_launch l = ist_window_launch(p, a, pad, table);
    l.op = "portable/attention";
    l.defines = d.text;
    l.dims = 3;
    l.global[0] = (size_t)ist_windows(a) * (size_t)ist_div_up(tokens, GROUP) * GROUP;
    l.global[1] = (size_t)a->heads;
    l.global[2] = (size_t)a->qkv.n;
    l.local[0] = GROUP, l.local[1] = l.local[2] = 1;
    l.args[l.arg_count++] = (ist_arg)IST_STRUCT(window_args, &by_value);
    ist_plan_launch(p, &l);
}

const ist_family ist_portable_window = {.emit = emit};
