/* A node by every variant that the table has for its kind: a test hands in its cases, the table says by what they are
 * computed. A case runs by a variant where the device has, or the test claims, what the variant needs and it takes the
 * node; while it runs, capabilities are hidden that the variant must be without or that would bring in better ones.
 * A test that includes this is linked as with support/hidden_caps.h (cmake/tests.cmake). */
#ifndef IST_TESTS_EACH_VARIANT_H
#define IST_TESTS_EACH_VARIANT_H

#include "support/hidden_caps.h"
#include "support/optest.h"
#include "variants/variant.h"

#include <criterion/criterion.h>
#include <string.h>

/* Capabilities of one machine, which its variants ask for. */
enum {
    EACH_CPU = IST_CAP_CPU | IST_CAP_SIMD16 | IST_CAP_VEC16 | IST_CAP_X86_BF16 | IST_CAP_X86_AMX,
    EACH_PTX = IST_CAP_PTX_MMA | IST_CAP_PTX_MEET | IST_CAP_PTX_WGMMA,
    EACH_MATRIX = IST_CAP_AMD_MFMA | IST_CAP_AMD_WMMA | IST_CAP_INTEL_DPAS,
    EACH_COUNT = 128
};

/* How a case is run. */
typedef struct each_way {
    const ist_variant *v;
    bool hides; /* what the nodes of a composite are computed by is the best that v's own needs leave */
} each_way;

static int each_done[EACH_COUNT]; /* cases by each variant of the kind that is tested */

/* Fewest launches of a variant that records other nodes, smaller ones or what is left of its own, whose variants its
 * launches then are; 0: it has a kernel. */
static inline int each_nodes_of(const ist_variant *v) {
    if (!strcmp(v->name, "norm_linear") || !strncmp(v->name, "norm_tile", strlen("norm_tile")))
        return 1; /* a convolution that has norm's numbers in its filter */
    return !strcmp(v->name, "steps") || !strcmp(v->name, "amx_spread") ? 2 : 0;
}

static inline unsigned each_hidden(each_way way) {
    unsigned hidden = way.v->without;
    int count;
    const ist_variant *first = ist_variants_of(way.v->kind, &count);
    if (!way.hides) return hidden;
    if (way.v->machine == IST_MACHINE_PORTABLE) return hidden | EACH_CPU | EACH_PTX | EACH_MATRIX;
    for (const ist_variant *better = first; better < way.v; better++) hidden |= better->needs;
    return hidden & ~way.v->needs;
}

/* Records the node by the way's variant; false where that does not take it. */
static inline bool each_emits(optest *t, each_way way, void *node) {
    cr_assert_eq(ist_kind_of(way.v->kind)->infer(node, &t->err), IST_OK, "%s: %s", t->name, t->err.text);
    if (!ist_variant_takes(t->plan, way.v, node)) return false;
    ist_emit_by(t->plan, way.v, 0, node);
    cr_assert_eq(ist_plan_status(t->plan), IST_OK, "%s by %s: %s", t->name, way.v->name, ist_plan_error(t->plan)->text);
    return true;
}

/* After optest_run: the launches are those of the way's variant. */
static inline void each_launched(const optest *t, each_way way) {
    const ist_variant *v = way.v;
    int all = ist_plan_describe(t->plan).launches, own = 0, machine = 0, others = 0;
    size_t folder = strlen(ist_machine_name(v->machine));
    for (int i = 0; i < all; i++) {
        const ist_launch *l = ist_plan_launch_at(t->plan, i);
        bool at_home = !strncmp(l->op, ist_machine_name(v->machine), folder) && l->op[folder] == '/';
        machine += at_home || !strcmp(l->op, "portable/repeat_rows"); /* which what was left out may need anywhere */
        if (!l->from.variant) continue;
        own += at_home && !strcmp(l->from.variant, v->name);
        others += strcmp(l->from.variant, v->name) && ist_variant_named(v->kind, l->from.variant);
    }
    const int least = each_nodes_of(v);
    if (!least) {
        cr_assert_gt(own, 0, "%s: none of %d launches is of %s", t->name, all, v->name);
        cr_assert_eq(others, 0, "%s: %d of %d launches are not of %s", t->name, others, all, v->name);
        return;
    }
    cr_assert_geq(all, least, "%s by %s is %d launches", t->name, v->name, all);
    /* of the machine where its nodes can only be its own */
    if (way.hides && (v->machine == IST_MACHINE_PORTABLE || least == 1))
        cr_assert_eq(machine, all, "%s: %d of %d launches are %s", t->name, machine, all, ist_machine_name(v->machine));
}

/* A case: false where the variant does not take it, which ends it with optest_drop. */
typedef bool (*each_case)(each_way way, const void *shape, unsigned bits);

/* Whether this device runs it; needs: something that it must need, 0: anything. */
static inline bool each_runs(each_way way, unsigned needs) {
    optest t;
    if (needs && !(way.v->needs & needs)) return false;
    without = each_hidden(way);
    optest_begin(&t, "capabilities", 0);
    bool runs = ist_variant_runs(t.plan, way.v);
    optest_drop(&t);
    return runs;
}

/* The case by all variants of the kind that run and that need something of `needs` (0: by all). Where a variant is
 * smaller nodes, also `whole`: on what the device has for these. */
static inline void each_variant(ist_node_kind kind, unsigned needs, each_case run, const void *shape, unsigned bits,
                                bool whole) {
    int count;
    const ist_variant *v = ist_variants_of(kind, &count);
    cr_assert_leq(count, EACH_COUNT);
    for (int i = 0; i < count; i++) {
        if (!each_runs((each_way){&v[i], true}, needs)) continue;
        each_done[i] += run((each_way){&v[i], true}, shape, bits);
        without = v[i].without;
        if (whole && each_nodes_of(&v[i])) run((each_way){&v[i], false}, shape, bits);
    }
    without = 0;
}

/* Every variant that runs has had a case. */
static inline void each_had_its_case(ist_node_kind kind, unsigned needs) {
    int count, had = 0;
    const ist_variant *v = ist_variants_of(kind, &count);
    for (int i = 0; i < count; i++) {
        if (!each_runs((each_way){&v[i], true}, needs)) continue;
        cr_expect_gt(each_done[i], 0, "%s %s took none of the cases", ist_kind_of(kind)->name, v[i].name);
        had += each_done[i] > 0;
    }
    without = 0;
    if (!needs) cr_expect_gt(had, 0);
}

/* Skips the test where no variant of the kind needs any of these: built without their machine. */
static inline void each_needs(ist_node_kind kind, unsigned needs) {
    int count, found = 0;
    const ist_variant *v = ist_variants_of(kind, &count);
    for (int i = 0; i < count; i++) found += (v[i].needs & needs) != 0;
    if (!found) cr_skip_test("built without such variants of %s", ist_kind_of(kind)->name);
}

#endif
