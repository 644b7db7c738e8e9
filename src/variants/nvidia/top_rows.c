/* Selection in one launch: groups can tell which of them is the last, and that one takes the best of all (cl/nvidia
 * top_rows). */
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

/* Work-items of a group, rows of a group, most fours of values that a work-item keeps. */
enum { ITEMS = 1024, ROWS = 64, PER_MAX = 8, VALUES_MAX = 4 * PER_MAX * ITEMS };

/* Runs of rows, one after the other, of a group: as many as leave each compute unit two groups of a batch. */
static int runs_of(const ist_plan *p, ist_tensor x, int groups) {
    int runs = groups * x.n / (2 * ist_plan_units(p));
    return runs > groups ? groups : runs > 1 ? runs : 1;
}

/* The values of every row of x (flat: of every element, as sigmoids) into `values` and the k best of them to y. */
static void launch(ist_plan *p, ist_tensor x, bool flat, int k, ist_tensor *values, ist_tensor y, const char *label) {
    int tokens = x.h * x.w, total = flat ? tokens * x.c : tokens, room = (int)ist_round_up((size_t)total, 4);
    bool floats = x.elem == IST_ELEM_F32, aligned = (x.ld | x.c0 | x.c) % 4 == 0;
    *values = ist_plan_tensor(p, x.n, 1, 1, room, IST_ELEM_F32);
    ist_tensor arrived = ist_plan_persistent(p, 1, 1, x.n, 1, IST_ELEM_I32);
    int groups = ist_div_up(total, flat ? ITEMS : ROWS), runs = runs_of(p, x, groups);
    ist_defines defines =
        ist_defines_of(p, "-DPER=%d %s%s%s", ist_div_up(total, 4 * ITEMS), ist_plan_half(p) && floats ? " -DX_F32" : "",
                       flat ? " -DFLAT" : "", aligned ? " -DALIGNED" : "");
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "nvidia/top_rows",
                         .isa = "nvidia/ptx",
                         .defines = defines.text,
                         .kernel = "top_rows",
                         .dims = 2,
                         .global = {(size_t)ist_div_up(groups, runs) * ITEMS, (size_t)x.n},
                         .local = {ITEMS, 1},
                         .args = {IST_OUT(y), IST_OUT(*values), IST_IN(x), IST_INOUT(arrived),
                                  IST_IN(ist_plan_current_limit(p)), IST_INT4(tokens, x.c, x.ld, x.c0),
                                  IST_INT4(k, total, room, runs)},
                         .arg_count = 7,
                         .bytes = (floats || !ist_plan_half(p) ? 4.0 : 2.0) * x.n * tokens * x.c});
}

static bool takes_rows(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_top_rows *q = node;
    (void)p, (void)v;
    return q->x.h * q->x.w <= VALUES_MAX;
}

static void emit_rows(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_top_rows *q = node;
    ist_tensor values;
    (void)v, (void)way;
    launch(p, q->x, false, q->k, &values, q->y, q->label);
}

const ist_family ist_nvidia_top_rows = {.takes = takes_rows, .emit = emit_rows};

/* A list of whole fours begins where a dense one does. */
static bool takes_scores(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_top_scores *q = node;
    int total = q->x.h * q->x.w * q->x.c;
    (void)p, (void)v;
    return total % 4 == 0 && total <= VALUES_MAX;
}

static void emit_scores(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_top_scores *q = node;
    (void)v, (void)way;
    q->index = ist_plan_tensor(p, q->x.n, 1, q->k, 1, IST_ELEM_I32);
    launch(p, q->x, true, q->k, &q->scores, q->index, q->label);
}

const ist_family ist_nvidia_top_scores = {.takes = takes_scores, .emit = emit_scores};
