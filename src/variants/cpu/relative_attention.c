/* Attention with relative positions on CPUs: lanes are queries, of one window (cl/cpu/attention). */
#include "variants/relative_attention.h"
#include "variants/defines.h"
#include "variants/variant.h"

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_relative_attention *a = node;
    ist_relative_windows w = ist_relative_windows_of(a);
    ist_tensor qkv = a->qkv, y = a->y;
    int keys = ist_plan_caps(p) & IST_CAP_SIMD16 && w.w % 7 == 0 ? 7 : 8; /* of a tile: whole ones fill a line */
    ist_defines d = ist_defines_of(p, "-DRELATIVE -DD=%d -DKT=%d -DWH=%d -DWW=%d", w.d > 32 ? 64 : 32, keys, w.h, w.w);
    (void)v, (void)way;
    ist_launch l = ist_relative_launch(p, a, IST_ELEM_F32);
    l.op = "cpu/attention";
    l.isa = "cpu/tile+cpu/attention_parts";
    l.defines = d.text;
    l.dims = 1;
    l.global[0] = (size_t)ist_plan_units(p);
    l.args[6] = (ist_arg)IST_INT4(qkv.h, qkv.w, w.down * w.across, y.c);
    l.args[7] = (ist_arg)IST_INT4(qkv.ld, qkv.c0, y.ld, y.c0);
    l.args[8] = (ist_arg)IST_INT4(w.across, a->heads, w.d, ist_plan_work_turn(p));
    l.args[9] = (ist_arg)IST_FLOAT(w.scale);
    l.args[10] = (ist_arg)IST_INT(qkv.n);
    l.args[11] = (ist_arg)IST_INOUT(ist_plan_work_queue(p));
    l.arg_count = 12;
    l.shares = true;
    ist_plan_launch(p, &l);
}

const ist_family ist_cpu_relative_attention = {.emit = emit};
