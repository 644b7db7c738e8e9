/* Attention on CPUs: lanes are queries; any number of queries and keys (cl/cpu/attention). */
#include "variants/attention.h"
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
    ist_launch l = ist_attention_launch(p, a, (const int[]){per, ist_plan_work_turn(p) ? -queries : queries});
    l.op = "cpu/attention";
    l.isa = "cpu/tile+cpu/attention_parts";
    l.kernel = "attention";
    l.defines = defines.text;
    l.dims = 1;
    l.global[0] = (size_t)units;
    l.args[12] = (ist_arg)IST_INT(a->y.n);
    l.args[13] = (ist_arg)IST_INOUT(ist_plan_work_queue(p));
    l.arg_count = 14;
    l.shares = true;
    ist_plan_launch(p, &l);
}

const ist_family ist_cpu_attention = {.emit = emit};
