/* Multi-head attention between token sequences: a query per work-item with keys shared through local memory, or, for few
 * queries, a group per query with the keys spread over its work-items (cl/portable/attention). */
#include "variants/attention.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

enum { GROUP = 64 };

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_attention *a = node;
    int nq = a->q.h * a->q.w, nk = a->k.h * a->k.w;
    bool rows = nq >= GROUP / 2 || nk < GROUP;
    const ist_attention_args by_value = ist_attention_args_of(a);
    ist_launch l = ist_attention_launch(p, a);
    ist_defines defines = ist_defines_of(p, "-DD=%d", ist_attention_dim(a));
    (void)v, (void)way;
    l.op = "portable/attention";
    l.kernel = rows ? "attention_rows" : "attention_keys";
    l.defines = defines.text;
    l.global[0] = (size_t)(rows ? ist_div_up(nq, GROUP) : nq) * GROUP;
    l.local[0] = GROUP;
    l.args[l.arg_count++] = (ist_arg)IST_IN(a->k_count);
    l.args[l.arg_count++] = (ist_arg)IST_STRUCT(attention_args, &by_value);
    ist_plan_launch(p, &l);
}

const ist_family ist_portable_attention = {.emit = emit};
