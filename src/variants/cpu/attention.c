/* Attention on CPUs: lanes are queries; any number of queries and keys (cl/cpu/attention). */
#include "variants/attention.h"
#include "variants/cpu/attention_args.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

/* Heads that one group takes: enough that a group is worth some 10^5 multiply-adds. */
static int heads_per_group(const ist_attention *a, int queries) {
    int per = 1;
    while (per < a->heads && 2L * per * queries * a->k.h * a->k.w * ist_attention_dim(a) < 200000L) per *= 2;
    return per < a->heads ? per : a->heads;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    enum { TILE = 32, TILES = 2, ITEMS_PER_UNIT = 8 }; /* keys are copied once for an item's tiles of queries */
    const ist_attention *a = node;
    int nq = a->q.h * a->q.w, units = ist_plan_units(p);
    bool many = (double)ist_div_up(nq, TILE * TILES) * a->heads * a->y.n >= ITEMS_PER_UNIT * units;
    int queries = many ? TILE * TILES : TILE, per = heads_per_group(a, queries);
    ist_defines defines = ist_defines_of(p, "-DD=%d", ist_attention_dim(a) > 32 ? 64 : 32);
    (void)v, (void)way;
    const ist_cpu_attention_args by_value = {.common = ist_attention_args_of(a),
                                             .items = a->y.n,
                                             .heads = a->heads,
                                             .dim = ist_attention_dim(a),
                                             .tile_heads = per,
                                             .tile_queries = queries,
                                             .backwards = ist_plan_work_turn(p)};
    ist_launch l = ist_attention_launch(p, a);
    l.op = "cpu/attention";
    l.isa = "cpu/tile+cpu/attention_parts";
    l.kernel = "attention";
    l.defines = defines.text;
    l.dims = 1;
    l.global[0] = (size_t)units;
    l.args[l.arg_count++] = (ist_arg)IST_IN(a->k_count);
    l.args[l.arg_count++] = (ist_arg)IST_STRUCT(cpu_attention_args, &by_value);
    l.args[l.arg_count++] = (ist_arg)IST_INOUT(ist_plan_work_queue(p));
    l.shares = true;
    ist_plan_launch(p, &l);
}

const ist_family ist_cpu_attention = {.emit = emit};
