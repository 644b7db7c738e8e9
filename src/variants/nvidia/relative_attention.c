/* Attention with relative positions on matrix instructions, half storage: keys in blocks through local memory
 * (cl/nvidia/relative_attention). */
#include "variants/relative_attention.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

enum { KEYS = 64 /* of a block, at most */, WARPS_MAX = 8 };

/* Pieces of 16 bytes are aligned, results in pairs. */
static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_relative_attention *a = node;
    int d = ist_relative_windows_of(a).d;
    (void)p, (void)v;
    return (d == 32 || d == 64) && a->qkv.elem == IST_ELEM_T && a->y.elem == IST_ELEM_T &&
           (a->qkv.ld | a->qkv.c0) % 8 == 0 && (a->y.ld | a->y.c0) % 2 == 0;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_relative_attention *a = node;
    ist_relative_windows w = ist_relative_windows_of(a);
    const ist_relative_args by_value = ist_relative_args_of(a);
    int line = ist_div_up(w.w, 16) * 16, lines = KEYS / line < w.h ? KEYS / line : w.h;
    int blocks = ist_div_up(w.h * w.w, 16), parts = ist_div_up(blocks, WARPS_MAX), warps = ist_div_up(blocks, parts);
    ist_defines d =
        ist_defines_of(p, "-DD=%d -DWH=%d -DWW=%d -DLINE=%d -DLINES=%d -DWARPS=%d", w.d, w.h, w.w, line, lines, warps);
    (void)v, (void)way;
    ist_launch l = ist_relative_launch(p, a, IST_ELEM_T);
    l.op = "nvidia/relative_attention";
    l.isa = "nvidia/ptx+nvidia/sums";
    l.defines = d.text;
    l.local[0] = (size_t)warps * 32;
    l.global[0] = (size_t)(w.down * w.across * ist_div_up(w.h * w.w, 16 * warps)) * l.local[0];
    l.global[1] = (size_t)a->heads;
    l.global[2] = (size_t)a->qkv.n;
    l.args[l.arg_count++] = (ist_arg)IST_STRUCT(relative_args, &by_value);
    ist_plan_launch(p, &l);
}

const ist_family ist_nvidia_relative_attention = {.takes = takes, .emit = emit};
