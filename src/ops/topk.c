/* Selection: row maxima, exact top-k, gather. One work-item per problem on CPUs, elsewhere groups of 64 or, for top-k,
 * 256. */
#include "ops/ops.h"
#include "ops/chain.h"
#include "ops/lanes.h"

#include "base/mem.h"

enum { K_MAX = 512, RUN = 32 /* of tokens, where one work-item is a group */, TOTAL_MAX = 1 << 22, SPAN = 2048 };

/* op/top_rows: work-items of a group, rows of a group, most fours of values that a work-item keeps. */
enum { TOP_ITEMS = 1024, TOP_ROWS = 64, PER_MAX = 8 };

/* Where T is half: whether x is float all the same. */
static const char *x_define(const ist_plan *p, ist_tensor x) {
    return ist_plan_half(p) && x.elem == IST_ELEM_F32 ? " -DX_F32" : "";
}

/* The same for all kernels of a frame on a CPU: one program has them. */
static ist_defines defines_of(const ist_plan *p, int lanes, ist_tensor x) {
    return ist_defines_of(p, "-DLANES=%d -DK_MAX=%d%s", lanes, K_MAX, x_define(p, x));
}

ist_tensor ist_op_row_max(ist_plan *p, ist_tensor x, const char *label) {
    ist_tensor none = {0};
    if (ist_plan_status(p)) return none;
    bool cpu = ist_lanes(p) == 1;
    int tokens = x.h * x.w, run = cpu ? RUN : 1;
    ist_tensor y = ist_plan_tensor(p, x.n, 1, tokens, 1, IST_ELEM_F32);
    ist_defines defines = defines_of(p, ist_lanes(p), x);
    ist_plan_launch(
        p, &(ist_launch){
               .label = label,
               .op = "op/topk",
               .defines = defines.text,
               .kernel = "row_max",
               .dims = 2,
               .global = {ist_round_up((size_t)ist_div_up(tokens, run), cpu ? 1 : IST_GROUP_LANES), (size_t)x.n},
               .local = {cpu ? 1 : IST_GROUP_LANES, 1},
               .args = {IST_OUT(y), IST_IN(x), IST_IN(ist_plan_current_limit(p)), IST_INT4(tokens, x.c, x.ld, x.c0)},
               .arg_count = 4,
               .bytes = 4.0 * x.n * tokens * x.c});
    return y;
}

/* The k best of each of `parts` runs of `span` entries; entries are values of x, or what `list` names. */
static ist_tensor best_of(ist_plan *p, ist_tensor x, ist_tensor list, int entries, int k, int span, const char *label) {
    int parts = ist_div_up(entries, span);
    size_t lanes = (size_t)ist_lanes(p);
    if (lanes > 1 && ist_plan_caps(p) & IST_CAP_GROUP256) lanes = 256;
    ist_tensor y = ist_plan_tensor(p, x.n, 1, parts * k, 1, IST_ELEM_I32);
    ist_defines defines = defines_of(p, (int)lanes, (ist_tensor){0});
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "op/topk",
                         .defines = defines.text,
                         .kernel = "topk",
                         .dims = 2,
                         .global = {lanes * (size_t)parts, (size_t)x.n},
                         .local = {lanes, 1},
                         .args = {IST_OUT(y), IST_IN(x), IST_IN(list), IST_IN(ist_plan_current_limit(p)),
                                  IST_INT4(entries, k, x.ld, x.c0), IST_INT4(span, ist_has(list), x.h * x.w, 0)},
                         .arg_count = 6,
                         .bytes = 4.0 * x.n * entries});
    return y;
}

ist_tensor ist_op_topk(ist_plan *p, ist_tensor x, int k, const char *label) {
    ist_tensor none = {0};
    if (ist_plan_status(p)) return none;
    int total = x.h * x.w;
    if (x.c != 1 || x.elem != IST_ELEM_F32 || k < 1 || k > total || k > K_MAX || total > TOTAL_MAX) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: the %d largest of %d values (%d channels): at most %d of %d are possible",
                      label, k, total, x.c, K_MAX, TOTAL_MAX);
        return none;
    }
    /* groups share a long list, then one of them takes the best of their best */
    if (ist_lanes(p) == 1 || total <= 2 * SPAN || k > SPAN / 2) return best_of(p, x, none, total, k, total, label);
    ist_tensor some = best_of(p, x, none, total, k, SPAN, label);
    return best_of(p, x, some, some.w, k, some.w, label);
}

/* One launch where groups can tell which of them is the last (isa/ptx). */
static bool one_launch(const ist_plan *p, int total, int k) {
    return (ist_plan_caps(p) & IST_CAP_PTX_MMA) && !ist_cpu_row(p) && k <= K_MAX && total <= 4 * PER_MAX * TOP_ITEMS;
}

/* Runs of rows, one after the other, of a group: as many as leave each compute unit two groups of a batch. */
static int top_runs(const ist_plan *p, ist_tensor x, int groups) {
    int runs = groups * x.n / (2 * ist_plan_units(p));
    return runs > groups ? groups : runs > 1 ? runs : 1;
}

/* The values of every row of x (flat: of every element, as sigmoids) into `values` and the k best of them. */
static ist_tensor top_rows(ist_plan *p, ist_tensor x, bool flat, int k, ist_tensor *values, const char *label) {
    int tokens = x.h * x.w, total = flat ? tokens * x.c : tokens, room = ist_round_up((size_t)total, 4);
    *values = ist_plan_tensor(p, x.n, 1, 1, room, IST_ELEM_F32);
    ist_tensor y = ist_plan_tensor(p, x.n, 1, k, 1, IST_ELEM_I32);
    ist_tensor arrived = ist_plan_persistent(p, 1, 1, x.n, 1, IST_ELEM_I32);
    bool aligned = (x.ld | x.c0 | x.c) % 4 == 0;
    int groups = ist_div_up(total, flat ? TOP_ITEMS : TOP_ROWS), runs = top_runs(p, x, groups);
    ist_defines defines = ist_defines_of(p, "-DPER=%d %s%s%s", ist_div_up(total, 4 * TOP_ITEMS), x_define(p, x),
                                         flat ? " -DFLAT" : "", aligned ? " -DALIGNED" : "");
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "op/top_rows",
                         .isa = "isa/ptx",
                         .defines = defines.text,
                         .kernel = "top_rows",
                         .dims = 2,
                         .global = {(size_t)ist_div_up(groups, runs) * TOP_ITEMS, (size_t)x.n},
                         .local = {TOP_ITEMS, 1},
                         .args = {IST_OUT(y), IST_OUT(*values), IST_IN(x), IST_INOUT(arrived),
                                  IST_IN(ist_plan_current_limit(p)), IST_INT4(tokens, x.c, x.ld, x.c0),
                                  IST_INT4(k, total, room, runs)},
                         .arg_count = 7,
                         .bytes = (x.elem == IST_ELEM_F32 || !ist_plan_half(p) ? 4.0 : 2.0) * x.n * tokens * x.c});
    return y;
}

ist_tensor ist_op_top_rows(ist_plan *p, ist_tensor x, int k, const char *label) {
    ist_tensor values;
    if (!ist_plan_status(p) && k >= 1 && k <= x.h * x.w && one_launch(p, x.h * x.w, k))
        return top_rows(p, x, false, k, &values, label);
    return ist_op_topk(p, ist_op_row_max(p, x, label), k, label);
}

bool ist_op_top_scores(ist_plan *p, ist_tensor x, int k, ist_tensor *scores, ist_tensor *index, const char *label) {
    int total = x.h * x.w * x.c; /* a list of whole fours begins where a dense one does */
    if (ist_plan_status(p) || total % 4 || k < 1 || k > total || !one_launch(p, total, k)) return false;
    *index = top_rows(p, x, true, k, scores, label);
    return true;
}

ist_tensor ist_op_gather(ist_plan *p, ist_tensor x, ist_tensor index, const char *label) {
    ist_tensor none = {0};
    if (ist_plan_status(p)) return none;
    int k = index.h * index.w, tokens = x.h * x.w;
    if ((x.n != 1 && x.n != index.n) || index.elem != IST_ELEM_I32 || index.c != 1 || index.ld != 1 ||
        (x.elem != IST_ELEM_F32 && x.elem != IST_ELEM_T)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: gather of [%d,%d,%d] by [%d,%d,%d] is not possible", label, x.n, tokens,
                      x.c, index.n, k, index.c);
        return none;
    }
    bool cpu = ist_lanes(p) == 1;
    int run = cpu ? RUN : 1;
    ist_tensor y = ist_plan_tensor(p, index.n, 1, k, x.c, x.elem);
    if (ist_chain_take(p, &(ist_chain_step){.op = IST_CHAIN_GATHER, .out = {y}, .whole = {x, index}}, label)) return y;
    ist_defines defines = defines_of(p, ist_lanes(p), x);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/topk",
                                     .defines = defines.text,
                                     .kernel = "gather",
                                     .dims = 3,
                                     .global = {cpu ? 1 : IST_GROUP_LANES, (size_t)ist_div_up(k, run), (size_t)index.n},
                                     .local = {cpu ? 1 : IST_GROUP_LANES, 1, 1},
                                     .args = {IST_OUT(y), IST_IN(x), IST_IN(index), IST_IN(ist_plan_current_limit(p)),
                                              IST_INT4(tokens, k, x.c, x.n == 1), IST_INT4(x.ld, x.c0, 0, 0)},
                                     .arg_count = 6,
                                     .bytes = 8.0 * index.n * k * x.c});
    return y;
}
