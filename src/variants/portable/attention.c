/* Multi-head attention between token sequences: a query per work-item with keys shared through local memory, several
 * work-items per query where such groups would be few, or, for few queries, a group per query with the keys spread
 * over its work-items (cl/portable/attention). */
#include "variants/attention.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

enum { GROUP = 64, SLICED = 256, LEAST_QUERIES = 16, LEAST_KEYS = GROUP, WIDEST = 32 };

static ist_defines defines_of(ist_plan *p, const ist_attention *a) {
    const int places = a->q.ld | a->q.c0 | a->k.ld | a->k.c0 | a->v.ld | a->v.c0;
    return ist_defines_of(p, "-DD=%d%s", ist_attention_dim(a), places % 4 ? "" : " -DALIGNED");
}

static void launch(ist_plan *p, const ist_attention *a, const char *kernel, const ist_defines *defines, int blocks,
                   int items) {
    const ist_attention_args by_value = ist_attention_args_of(a);
    ist_launch l = ist_attention_launch(p, a);
    l.op = "portable/attention";
    l.kernel = kernel;
    l.defines = defines->text;
    l.global[0] = (size_t)blocks * (size_t)items;
    l.local[0] = (size_t)items;
    l.args[l.arg_count++] = (ist_arg)IST_IN(a->k_count);
    l.args[l.arg_count++] = (ist_arg)IST_STRUCT(attention_args, &by_value);
    ist_plan_launch(p, &l);
}

/* ---- several work-items per query ---- */

/* Local memory: a block of keys and values, then the parts of the results; maxima and sums. */
static size_t slices_bytes(const ist_attention *a) {
    return SLICED * ((size_t)ist_attention_dim(a) + 2) * sizeof(float);
}

/* Of a group, 32, or 16 where units would be left without a group. */
static int queries_of(const ist_plan *p, const ist_attention *a) {
    return ist_div_up(a->q.h * a->q.w, 32) * a->heads * a->y.n < ist_plan_units(p) ? 16 : 32;
}

static bool takes_slices(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_attention *a = node;
    const int nq = a->q.h * a->q.w, nk = a->k.h * a->k.w;
    (void)v;
    return nq >= LEAST_QUERIES && nk >= LEAST_KEYS && ist_attention_dim(a) <= WIDEST &&
           slices_bytes(a) <= ist_device_local_bytes(ist_plan_device(p)) &&
           ist_div_up(nq, GROUP) * a->heads * a->y.n < 2 * ist_plan_units(p);
}

static void emit_slices(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_attention *a = node;
    const int queries = queries_of(p, a);
    ist_defines defines = defines_of(p, a);
    (void)v, (void)way;
    ist_defines_add(&defines, " -DQUERIES=%d", queries);
    launch(p, a, "attention_slices", &defines, ist_div_up(a->q.h * a->q.w, queries), SLICED);
}

const ist_family ist_portable_attention_slices = {.takes = takes_slices, .emit = emit_slices};

/* ---- any ---- */

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_attention *a = node;
    const int nq = a->q.h * a->q.w, nk = a->k.h * a->k.w;
    const bool rows = nq >= GROUP / 2 || nk < GROUP;
    const ist_defines defines = defines_of(p, a);
    (void)v, (void)way;
    if (rows)
        launch(p, a, "attention_rows", &defines, ist_div_up(nq, GROUP), GROUP);
    else
        launch(p, a, "attention_keys", &defines, nq, GROUP);
}

const ist_family ist_portable_attention = {.emit = emit};
