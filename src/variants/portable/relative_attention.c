/* Attention with relative positions: a query per work-item (cl/portable/attention). */
#include "variants/relative_attention.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

enum { GROUP = 64 };

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_relative_attention *a = node;
    ist_relative_windows w = ist_relative_windows_of(a);
    const ist_relative_args by_value = ist_relative_args_of(a);
    ist_defines d = ist_defines_of(p, "-DD=%d -DWH=%d -DWW=%d", w.d, w.h, w.w);
    (void)v, (void)way;
    ist_launch l = ist_relative_launch(p, a, IST_ELEM_F32);
    l.op = "portable/attention";
    l.defines = d.text;
    l.global[0] = (size_t)(w.down * w.across) * (size_t)ist_div_up(w.h * w.w, GROUP) * GROUP;
    l.global[1] = (size_t)a->heads;
    l.global[2] = (size_t)a->qkv.n;
    l.local[0] = GROUP;
    l.args[l.arg_count++] = (ist_arg)IST_STRUCT(relative_args, &by_value);
    ist_plan_launch(p, &l);
}

const ist_family ist_portable_relative_attention = {.emit = emit};
