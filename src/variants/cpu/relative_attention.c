/* Attention with relative positions on CPUs: lanes are queries, of one window (cl/cpu/attention). */
#include "variants/relative_attention.h"
#include "variants/cpu/attention_args.h"
#include "variants/defines.h"
#include "variants/variant.h"

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_relative_attention *a = node;
    ist_relative_windows w = ist_relative_windows_of(a);
    const ist_cpu_relative_args by_value = {.common = ist_relative_args_of(a),
                                            .items = a->qkv.n,
                                            .heads = a->heads,
                                            .dim = w.d,
                                            .per_map = w.down * w.across,
                                            .backwards = ist_plan_work_turn(p)};
    int keys = ist_plan_caps(p) & IST_CAP_SIMD16 && w.w % 7 == 0 ? 7 : 8; /* of a tile: whole ones fill a line */
    ist_defines d = ist_defines_of(p, "-DRELATIVE -DD=%d -DKT=%d -DWH=%d -DWW=%d", w.d > 32 ? 64 : 32, keys, w.h, w.w);
    (void)v, (void)way;
    ist_launch l = ist_relative_launch(p, a, IST_ELEM_F32);
    l.op = "cpu/attention";
    l.isa = "cpu/tile+cpu/attention_parts";
    l.defines = d.text;
    l.dims = 1;
    l.global[0] = (size_t)ist_plan_units(p);
    l.args[l.arg_count++] = (ist_arg)IST_STRUCT(cpu_relative_args, &by_value);
    l.args[l.arg_count++] = (ist_arg)IST_INOUT(ist_plan_work_queue(p));
    l.shares = true;
    ist_plan_launch(p, &l);
}

const ist_family ist_cpu_relative_attention = {.emit = emit};
