/* Multi-head attention between token sequences.
 *
 * Rows: attention_cpu (lanes are queries; any query and key count), attention_mma (matrix instructions, half storage),
 * and two portable ones: a query per work-item with keys shared through local memory, and, for few queries, a group per
 * query with the keys spread over its work-items. */
#include "ops/ops.h"
#include "ops/chain.h"
#include "ops/rows.h"

#include "base/mem.h"

enum { DIM_MAX = 64, GROUP = 64 };

typedef struct shape {
    int n, nq, nk, d, heads;
    float scale;
} shape;

static bool check(ist_plan *p, ist_tensor q, ist_tensor k, ist_tensor v, const ist_attention_opts *o,
                  const char *label) {
    int d = o->heads > 0 ? q.c / o->heads : 0;
    int nq = q.h * q.w, nk = k.h * k.w;
    bool items = (ist_has(o->q_map) || q.n >= (o->count ? o->count : q.n)) &&
                 (ist_has(o->kv_map) || k.n >= (o->count ? o->count : q.n));
    if (d * o->heads == q.c && d % 4 == 0 && d >= 4 && d <= DIM_MAX && k.c == q.c && v.c == q.c && v.n == k.n &&
        v.h * v.w == nk && items)
        return true;
    ist_plan_fail(p, IST_E_ARGUMENT,
                  "%s: attention of q [%d,%d,%d], k [%d,%d,%d], v [%d,%d,%d] with %d heads is not possible", label, q.n,
                  nq, q.c, k.n, nk, k.c, v.n, v.h * v.w, v.c, o->heads);
    return false;
}

/* Heads one group of the CPU row takes: enough that a group is worth some 10^5 multiply-adds. */
static int heads_per_group(const shape *s, int queries) {
    int per = 1;
    while (per < s->heads && 2L * per * queries * s->nk * s->d < 200000L) per *= 2;
    return per < s->heads ? per : s->heads;
}

static shape shape_of(ist_tensor q, ist_tensor k, const ist_attention_opts *opts) {
    return (shape){.n = opts->count ? opts->count : q.n,
                   .nq = q.h * q.w,
                   .nk = k.h * k.w,
                   .d = q.c / opts->heads,
                   .heads = opts->heads,
                   .scale = opts->scale};
}

/* op/attention_mma: warps of a group that share the keys, and eights of keys of each, an even number; 0: not for it. */
typedef struct shares {
    int warps, tiles;
} shares;

static bool fours(ist_tensor t) {
    return t.elem == IST_ELEM_T && (t.ld | t.c0) % 4 == 0;
}

static shares mma_shares(const ist_plan *p, const shape *s, ist_tensor out, ist_tensor q, ist_tensor k, ist_tensor v) {
    enum { TILES_MAX = 14, WORDS_MAX = TILES_MAX * 48, WARPS_MAX = 8 }; /* what fits registers */
    shares r = {.warps = 1};
    for (; r.warps <= WARPS_MAX; r.warps *= 2) {
        r.tiles = ist_div_up(ist_div_up(s->nk, 8), 2 * r.warps) * 2;
        if (r.tiles <= (r.warps < 4 ? 4 : TILES_MAX) && r.tiles * s->d <= WORDS_MAX) break;
    }
    bool fits = (ist_plan_caps(p) & IST_CAP_PTX_MMA) && !ist_cpu_row(p) && ist_plan_half(p) && s->d % 16 == 0 &&
                s->nq >= 16 && r.warps <= WARPS_MAX && fours(out) && fours(q) && fours(k) && fours(v);
    return fits ? r : (shares){0};
}

/* Tiles of queries that a group makes of the same keys: as many as leave each compute unit some groups. */
static int mma_turns(const ist_plan *p, const shape *s) {
    enum { GROUPS_OF_UNIT = 4 };
    int units = ist_plan_units(p), tiles = ist_div_up(s->nq, 16);
    double groups = (double)tiles * s->heads * s->n / (GROUPS_OF_UNIT * units);
    int parts = groups > 1 ? ist_div_up(tiles, groups < tiles ? (int)groups : tiles) : tiles;
    return ist_div_up(tiles, parts);
}

void ist_attention_launch(ist_plan *p, ist_tensor out, ist_tensor q, ist_tensor k, ist_tensor v,
                          const ist_attention_opts *opts, const char *label) {
    shape s = shape_of(q, k, opts);
    ist_launch launch = {.label = label,
                         .dims = 3,
                         .global = {1, (size_t)s.heads, (size_t)s.n},
                         .local = {1, 1, 1},
                         .args = {IST_OUT(out), IST_IN(q), IST_IN(k), IST_IN(v), IST_IN(opts->q_map),
                                  IST_IN(opts->kv_map), IST_IN(ist_plan_current_limit(p)),
                                  IST_INT4(q.ld, k.ld, v.ld, out.ld), IST_INT4(q.c0, k.c0, v.c0, out.c0),
                                  IST_INT4(s.nq, s.nk, s.d, s.heads),
                                  IST_INT4(ist_has(opts->q_map), ist_has(opts->kv_map), 0, 0), IST_FLOAT(s.scale)},
                         .arg_count = 12,
                         .flops = 4.0 * s.n * s.nq * s.nk * q.c};
    ist_defines defines;
    shares mma = mma_shares(p, &s, out, q, k, v);
    if (mma.warps) {
        defines = ist_defines_of(p, "-DD=%d -DTILES=%d -DWARPS=%d", s.d, mma.tiles, mma.warps);
        launch.op = "op/attention_mma";
        launch.isa = "isa/ptx+isa/sums";
        launch.kernel = "attention_mma";
        launch.local[0] = (size_t)mma.warps * 32;
        launch.args[10].v.i[2] = mma_turns(p, &s);
        launch.global[0] = (size_t)ist_div_up(s.nq, 16 * launch.args[10].v.i[2]) * launch.local[0];
    } else if (ist_cpu_row(p)) {
        enum { TILE = 32, TILES = 2, ITEMS_PER_UNIT = 8 }; /* keys are copied once for an item's tiles of queries */
        bool many = (double)ist_div_up(s.nq, TILE * TILES) * s.heads * s.n >= ITEMS_PER_UNIT * ist_plan_units(p);
        int queries = many ? TILE * TILES : TILE, per = heads_per_group(&s, queries);
        defines = ist_defines_of(p, "-DD=%d", s.d > 32 ? 64 : 32);
        launch.op = "op/attention_cpu";
        launch.isa = "isa/tile+isa/attend";
        launch.kernel = "attention";
        launch.dims = 1;
        launch.global[0] = (size_t)ist_plan_units(p);
        launch.args[10].v.i[2] = per;
        launch.args[10].v.i[3] = ist_plan_work_turn(p) ? -queries : queries;
        launch.args[12] = (ist_arg)IST_INT(s.n);
        launch.args[13] = (ist_arg)IST_INOUT(ist_plan_work_queue(p));
        launch.arg_count = 14;
        launch.shares = true;
    } else {
        bool rows = s.nq >= GROUP / 2 || s.nk < GROUP;
        defines = ist_defines_of(p, "-DD=%d", s.d);
        launch.op = "op/attention";
        launch.kernel = rows ? "attention_rows" : "attention_keys";
        launch.global[0] = (size_t)(rows ? ist_div_up(s.nq, GROUP) : s.nq) * GROUP;
        launch.local[0] = GROUP;
    }
    launch.defines = defines.text;
    ist_plan_launch(p, &launch);
}

ist_tensor ist_op_attention(ist_plan *p, ist_tensor q, ist_tensor k, ist_tensor v, const ist_attention_opts *opts,
                            const char *label) {
    ist_tensor none = {0};
    if (ist_plan_status(p) || !check(p, q, k, v, opts, label)) return none;
    shape s = shape_of(q, k, opts);
    ist_tensor out = ist_plan_tensor(p, s.n, 1, s.nq, q.c, IST_ELEM_T);
    if (!ist_has(opts->q_map) && !ist_has(opts->kv_map) && s.heads * s.d <= 1024 &&
        ist_chain_take(p,
                       &(ist_chain_step){.op = IST_CHAIN_ATTENTION,
                                         .out = {out},
                                         .rows = {q},
                                         .whole = {k, v},
                                         .ints = {s.heads},
                                         .floats = {s.scale},
                                         .flops = 4.0 * s.n * s.nq * s.nk * q.c},
                       label))
        return out;
    ist_attention_launch(p, out, q, k, v, opts, label);
    return ist_plan_status(p) ? none : out;
}
