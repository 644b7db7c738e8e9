/* Attention with relative positions: a query per work-item (cl/portable/attention). */
#include "variants/relative_attention.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

enum { GROUP = 64 };

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_relative_attention *a = node;
    ist_relative_windows w = ist_relative_windows_of(a);
    ist_tensor qkv = a->qkv, y = a->y;
    ist_defines d = ist_defines_of(p, "-DD=%d -DWH=%d -DWW=%d", w.d, w.h, w.w);
    (void)v, (void)way;
    ist_launch l = ist_relative_launch(p, a, IST_ELEM_F32);
    l.op = "portable/attention";
    l.defines = d.text;
    l.global[0] = (size_t)(w.down * w.across) * (size_t)ist_div_up(w.h * w.w, GROUP) * GROUP;
    l.global[1] = (size_t)a->heads;
    l.global[2] = (size_t)qkv.n;
    l.local[0] = GROUP;
    l.args[6] = (ist_arg)IST_INT4(qkv.h, qkv.w, w.across, y.c);
    l.args[7] = (ist_arg)IST_INT4(qkv.ld, qkv.c0, y.ld, y.c0);
    l.args[8] = (ist_arg)IST_FLOAT(w.scale);
    l.arg_count = 9;
    ist_plan_launch(p, &l);
}

const ist_family ist_portable_relative_attention = {.emit = emit};
