/* The table of kernel variants (variants/table.inc): what a reader and the lowering count on, and how one is chosen.
 *
 * Nothing runs here: plans are recorded for devices that have whichever capabilities a test wants. */
#include "device/sources.h"
#include "support/optest.h"
#include "support/sources.h"
#include "variants/ops.h"
#include "variants/tune.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALL_CAPS = (1 << IST_CAP_COUNT) - 1 };

/* ---- the lines ---- */

static const char *name_of(const ist_variant *v) {
    static char text[80];
    snprintf(text, sizeof text, "%s %s", ist_kind_of(v->kind)->name, v->name);
    return text;
}

Test(table, variants_of_a_kind_follow_each_other) {
    int seen = 0;
    cr_assert_gt(ist_variant_count(), 0);
    for (int kind = 0; kind < IST_KINDS; kind++) {
        int count, all = 0;
        const ist_variant *v = ist_variants_of((ist_node_kind)kind, &count);
        for (int i = 0; i < ist_variant_count(); i++) all += ist_variant_at(i)->kind == (ist_node_kind)kind;
        cr_expect_eq(count, all, "kind %d: %d in a row, %d in all", kind, count, all);
        for (int i = 0; i < count; i++) cr_expect_eq(v[i].kind, (ist_node_kind)kind);
        seen += count;
    }
    cr_expect_eq(seen, ist_variant_count());
}

/* Concatenations are places in a wider tensor, which the layout decides; what is left of them are copies. */
static bool needs_no_variant(ist_node_kind kind) {
    return kind == IST_NODE_CONCAT || kind == IST_NODE_CONCAT_ROWS;
}

/* What the last variant of a kind may need of a device: there is no other way to compute the kind. */
static unsigned least_needs(ist_node_kind kind) {
    switch (kind) {
    case IST_NODE_CONV:
    case IST_NODE_ATTENTION:
    case IST_NODE_WINDOW_ATTENTION:
    case IST_NODE_RELATIVE_ATTENTION:
    case IST_NODE_UPSCALE:
        return IST_CAP_LOCAL;
    case IST_NODE_ASSIGN:
    case IST_NODE_MATCH:
        return IST_CAP_INT64;
    default:
        return 0;
    }
}

Test(table, the_last_variant_of_a_kind_is_portable) {
    for (int k = 0; k < IST_KINDS; k++) {
        ist_node_kind kind = (ist_node_kind)k;
        int count;
        const ist_variant *v = ist_variants_of(kind, &count);
        if (needs_no_variant(kind)) {
            cr_expect_eq(count, 0, "kind %d", k);
            continue;
        }
        cr_assert_gt(count, 0, "%s has no variant", ist_kind_of(kind)->name);
        const ist_variant *last = &v[count - 1];
        cr_expect_eq(last->machine, IST_MACHINE_PORTABLE, "%s", name_of(last));
        cr_expect_eq(last->needs, least_needs(kind), "%s needs %#x", name_of(last), last->needs);
        cr_expect_eq(last->without, 0, "%s", name_of(last));
        cr_expect_eq(last->storage, IST_STORAGE_ANY, "%s", name_of(last));
        if (kind != IST_NODE_CONV) /* which a variant with a limit shares functions with: below */
            cr_expect_null(last->family->takes, "%s does not take every node", name_of(last));
    }
}

Test(table, names_are_unique_within_a_kind_and_found) {
    for (int i = 0; i < ist_variant_count(); i++) {
        const ist_variant *v = ist_variant_at(i);
        cr_expect_eq(ist_variant_named(v->kind, v->name), v, "%s: another one is found", name_of(v));
        cr_expect(*v->name && !strpbrk(v->name, " \t\n"), "\"%s\" is no word", v->name);
        cr_expect_lt(strlen(v->name), sizeof((ist_tuned *)0)->variant, "%s does not fit a tuning record", v->name);
    }
    cr_expect_null(ist_variant_named(IST_NODE_CONV, "no_such_variant"));
    cr_expect_null(ist_variant_named(IST_NODE_CONV, ""));
    cr_expect_null(ist_variant_named(IST_NODE_CONCAT, "any"));
}

/* A machine's variants ask for what makes it that machine; portable ones for nothing of any. */
Test(table, needs_are_those_of_the_machine) {
    const unsigned matrix = IST_CAP_AMD_MFMA | IST_CAP_AMD_WMMA | IST_CAP_INTEL_DPAS, ptx = IST_CAP_PTX_MMA;
    const unsigned any = IST_CAP_LOCAL | IST_CAP_GROUP256 | IST_CAP_ATOMICS | IST_CAP_INT64 | IST_CAP_FP64;
    for (int i = 0; i < ist_variant_count(); i++) {
        const ist_variant *v = ist_variant_at(i);
        cr_assert_lt(v->machine, IST_MACHINES, "%s", name_of(v));
        cr_expect_not(v->needs & v->without, "%s needs what it is not for", name_of(v));
        cr_assert_not_null(v->family->emit, "%s", name_of(v));
        if (v->machine == IST_MACHINE_PORTABLE) cr_expect_not(v->needs & ~any, "%s needs %#x", name_of(v), v->needs);
        if (v->machine == IST_MACHINE_CPU) cr_expect(v->needs & IST_CAP_CPU, "%s", name_of(v));
        if (v->machine == IST_MACHINE_NVIDIA) cr_expect(v->needs & ptx, "%s", name_of(v));
        if (v->machine == IST_MACHINE_MATRIX) cr_expect(v->needs & matrix, "%s", name_of(v));
    }
    cr_expect_str_eq(ist_machine_name(IST_MACHINE_PORTABLE), "portable");
    cr_expect_str_eq(ist_machine_name(IST_MACHINES), "?");
}

/* ---- devices ---- */

typedef struct world {
    unsigned caps;
    bool half, bf16;
} world;

/* A plan, with what optest keeps beside one, for a device with exactly these capabilities. */
static ist_plan *begin_with(optest *t, world w, ist_plan_options o) {
    ist_plan *p = NULL;
    optest_begin(t, "table", 0);
    o.half = w.half, o.bf16 = w.bf16, o.apart = true, o.flip = ist_device_caps(t->device) ^ w.caps;
    cr_assert_eq(ist_plan_begin(t->device, &o, &p, &t->err), IST_OK, "%s", t->err.text);
    ist_plan_reduced(p, w.bf16);
    cr_assert_eq(ist_plan_caps(p), w.caps);
    return p;
}
static ist_plan *begin(optest *t, world w) {
    return begin_with(t, w, (ist_plan_options){0});
}
static void end(optest *t, ist_plan *p) {
    ist_plan_close(&p);
    optest_drop(t);
}

/* The machines of the table; capabilities that no real one has together, too. */
static const unsigned devices[] = {
    IST_CAP_LOCAL,
    IST_CAP_LOCAL | IST_CAP_GROUP256 | IST_CAP_ATOMICS,
    IST_CAP_CPU | IST_CAP_VEC16 | IST_CAP_LOCAL,
    IST_CAP_CPU | IST_CAP_VEC16 | IST_CAP_SIMD16 | IST_CAP_LOCAL | IST_CAP_GROUP256,
    IST_CAP_CPU | IST_CAP_VEC16 | IST_CAP_SIMD16 | IST_CAP_X86_BF16 | IST_CAP_LOCAL,
    IST_CAP_CPU | IST_CAP_VEC16 | IST_CAP_SIMD16 | IST_CAP_X86_BF16 | IST_CAP_X86_AMX | IST_CAP_LOCAL,
    IST_CAP_LOCAL | IST_CAP_GROUP256 | IST_CAP_ATOMICS | IST_CAP_PTX_MMA,
    IST_CAP_LOCAL | IST_CAP_GROUP256 | IST_CAP_ATOMICS | IST_CAP_PTX_MMA | IST_CAP_PTX_WGMMA,
    IST_CAP_LOCAL | IST_CAP_GROUP256 | IST_CAP_AMD_MFMA,
    IST_CAP_LOCAL | IST_CAP_GROUP256 | IST_CAP_AMD_WMMA,
    IST_CAP_LOCAL | IST_CAP_GROUP256 | IST_CAP_INTEL_DPAS,
    ALL_CAPS,
};
enum { DEVICES = sizeof devices / sizeof *devices };

/* Device i with float storage, half, and products that may round. */
static world world_of(int i) {
    return (world){devices[i / 3], i % 3 == 1, i % 3 == 2};
}

/* ---- what runs ---- */

static const ist_family nothing = {0};

static bool runs(world w, ist_variant v) {
    optest t;
    v.family = &nothing;
    ist_plan *p = begin(&t, w);
    bool yes = ist_variant_runs(p, &v);
    cr_expect_eq(ist_variant_takes(p, &v, NULL), yes, "without a function every node is taken");
    cr_expect_eq(ist_variant_ways(p, &v, NULL), 1);
    cr_expect_eq(ist_variant_cost(p, &v, NULL, 1), 0);
    end(&t, p);
    return yes;
}

Test(table, needs_and_without_are_honoured) {
    const unsigned two = IST_CAP_LOCAL | IST_CAP_ATOMICS;
    const world both = {.caps = two}, one = {.caps = IST_CAP_LOCAL}, cpu = {.caps = two | IST_CAP_CPU};
    const ist_variant plain = {.needs = two}, not_cpu = {.needs = two, .without = IST_CAP_CPU | IST_CAP_SIMD16};
    cr_expect(runs(both, plain));
    cr_expect(runs(cpu, plain));
    cr_expect_not(runs(one, plain));
    cr_expect(runs(both, not_cpu));
    cr_expect_not(runs(cpu, not_cpu));
    cr_expect_not(runs(one, not_cpu));
}

Test(table, storage_is_honoured) {
    static const struct {
        ist_storage storage;
        bool in_float, in_half, rounding;
    } rules[] = {{IST_STORAGE_ANY, true, true, true},
                 {IST_STORAGE_HALF, false, true, false},
                 {IST_STORAGE_FLOAT, true, false, true},
                 {IST_STORAGE_EXACT, true, false, false},
                 {IST_STORAGE_BF16, false, false, true}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const ist_variant v = {.storage = rules[i].storage};
        cr_expect_eq(runs((world){0}, v), rules[i].in_float, "storage %d in float", (int)v.storage);
        cr_expect_eq(runs((world){.half = true}, v), rules[i].in_half, "storage %d in half", (int)v.storage);
        cr_expect_eq(runs((world){.bf16 = true}, v), rules[i].rounding, "storage %d, rounded", (int)v.storage);
    }
}

/* Every line of the table runs on the device that it asks for and on none that lacks something or is excluded. */
Test(table, every_variant_has_a_device) {
    for (int i = 0; i < ist_variant_count(); i++) {
        const ist_variant *v = ist_variant_at(i);
        world w = {v->needs, v->storage == IST_STORAGE_HALF, v->storage == IST_STORAGE_BF16};
        cr_expect(runs(w, *v), "%s", name_of(v));
        for (int bit = 0; bit < IST_CAP_COUNT; bit++) {
            world other = w;
            other.caps ^= 1u << bit;
            bool want = !(v->needs >> bit & 1) && !(v->without >> bit & 1);
            cr_expect_eq(runs(other, *v), want, "%s with %s the other way", name_of(v), ist_cap_name(bit));
        }
    }
}

/* ---- problems ---- */

typedef struct problem {
    int n, size, in, out, k, stride;
} problem;

/* Linear layers on few pixels and on many, of few inputs, windows of all kinds. */
static const problem dense[] = {
    {1, 7, 256, 512, 1, 1}, {1, 80, 64, 64, 1, 1},   {1, 9, 3, 24, 1, 1},    {1, 40, 64, 64, 3, 1},
    {1, 56, 16, 16, 3, 1},  {2, 80, 3, 32, 3, 2},    {1, 20, 128, 96, 3, 2}, {1, 5, 21, 35, 5, 1},
    {3, 24, 64, 128, 3, 1}, {1, 64, 136, 200, 1, 1}, {1, 16, 32, 16, 2, 1},  {1, 20, 512, 40, 1, 1},
};
static const problem depthwise[] = {{1, 40, 64, 64, 3, 1}, {1, 20, 24, 24, 5, 2}, {2, 9, 5, 5, 7, 1},
                                    {1, 33, 72, 72, 5, 1}, {1, 1, 3, 3, 3, 1},    {1, 12, 6, 6, 9, 1}};
enum { DENSE = sizeof dense / sizeof *dense, DEPTHWISE = sizeof depthwise / sizeof *depthwise };

/* Problem i of all; weights as many as the largest has. */
static ist_node_kind kind_of(int i) {
    return i < DENSE ? IST_NODE_CONV : IST_NODE_DWCONV;
}
static ist_conv node_of(optest *t, int i, const float *weights) {
    const problem *a = i < DENSE ? &dense[i] : &depthwise[i - DENSE];
    int pad = a->k / 2;
    ist_conv q = {.label = "layer",
                  .x = {.buffer = 1, .n = a->n, .h = a->size, .w = a->size, .c = a->in, .ld = a->in},
                  .filter = {.out = a->out, .in = i < DENSE ? a->in : 1, .kh = a->k, .kw = a->k, .w = weights},
                  .o = {.stride = a->stride, .top = pad, .left = pad, .bottom = pad, .right = pad}};
    cr_assert_eq(ist_kind_of(kind_of(i))->infer(&q, &t->err), IST_OK, "%s", t->err.text);
    q.y.buffer = 2;
    return q;
}

static int index_of(const ist_variant *v) {
    return (int)(v - ist_variant_at(0));
}

/* ---- choosing ---- */

/* No other variant and no other way is cheaper; of those that cost the same it is the first. */
static void check_choice(const ist_plan *p, ist_variant_choice c, ist_node_kind kind, const ist_conv *q) {
    int count;
    const ist_variant *v = ist_variants_of(kind, &count);
    cr_assert_not_null(c.variant);
    cr_assert(ist_variant_takes(p, c.variant, q), "%s", name_of(c.variant));
    cr_assert(c.way >= 1 && c.way <= ist_variant_ways(p, c.variant, q), "%s, way %d", name_of(c.variant), c.way);
    double least = ist_variant_cost(p, c.variant, q, c.way);
    cr_expect(isfinite(least) && least >= 0, "%s costs %g", name_of(c.variant), least);
    for (int i = 0; i < count; i++)
        for (int way = 1; ist_variant_takes(p, &v[i], q) && way <= ist_variant_ways(p, &v[i], q); way++) {
            double cost = ist_variant_cost(p, &v[i], q, way);
            bool earlier = &v[i] < c.variant || (&v[i] == c.variant && way < c.way);
            cr_expect(earlier ? cost > least : cost >= least, "%s, way %d costs %g, chosen is %d of the table with %g",
                      name_of(&v[i]), way, cost, index_of(c.variant), least);
        }
}

Test(table, the_cheapest_is_chosen) {
    int different = 0;
    const ist_variant *before = NULL;
    for (int d = 0; d < 3 * DEVICES; d++)
        for (int i = 0; i < DENSE + DEPTHWISE; i++) {
            optest t;
            ist_plan *p = begin(&t, world_of(d));
            ist_conv q = node_of(&t, i, NULL);
            ist_variant_choice c = ist_variant_choose(p, kind_of(i), &q);
            check_choice(p, c, kind_of(i), &q);
            different += c.variant != before;
            before = c.variant;
            end(&t, p);
        }
    cr_expect_gt(different, DENSE + DEPTHWISE, "devices and problems decide");
}

/* The last variant takes every problem on the least device, and is all that there is. */
Test(table, the_last_variant_takes_everything) {
    for (int i = 0; i < DENSE + DEPTHWISE; i++) {
        optest t;
        int count;
        const ist_variant *v = ist_variants_of(kind_of(i), &count);
        ist_plan *p = begin(&t, (world){.caps = least_needs(kind_of(i))});
        ist_conv q = node_of(&t, i, NULL);
        cr_expect(ist_variant_takes(p, &v[count - 1], &q), "%s, problem %d", name_of(&v[count - 1]), i);
        end(&t, p);
    }
}

Test(table, without_a_variant_it_is_said_what_is_missing) {
    optest t;
    float w[9] = {0};
    ist_plan *p = begin(&t, (world){0});
    ist_tensor x = ist_plan_input(p, 1, 4, 4, 1, IST_ELEM_T);
    cr_expect_not(
        ist_has(ist_op_conv(p, x, (ist_filter){.out = 1, .in = 1, .kh = 3, .kw = 3, .w = w}, NULL, "layer.a")));
    cr_expect_eq(ist_plan_status(p), IST_E_UNSUPPORTED);
    cr_expect(strstr(ist_plan_error(p)->text, "layer.a: conv needs barriers and 8 KiB of local memory"), "%s",
              ist_plan_error(p)->text);
    end(&t, p);
}

/* Maps between convolutions have whole vectors where kernels of matrix instructions read them. */
Test(table, channels_fill_what_kernels_read) {
    const unsigned gpu = IST_CAP_LOCAL | IST_CAP_GROUP256;
    bool nvidia = ist_variant_named(IST_NODE_CONV, "mma_64x64"),
         matrix = ist_variant_named(IST_NODE_CONV, "mfma_64x64");
    const struct {
        world w;
        int channels, want;
    } cases[] = {{{gpu, true, false}, 21, 21},
                 {{gpu | IST_CAP_PTX_MMA, false, false}, 21, 21},
                 {{gpu | IST_CAP_PTX_MMA, true, false}, 21, nvidia ? 24 : 21},
                 {{gpu | IST_CAP_PTX_MMA, true, false}, 24, 24},
                 {{gpu | IST_CAP_AMD_MFMA, true, false}, 1, matrix ? 0 : 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        optest t;
        ist_plan *p = begin(&t, cases[i].w);
        int got = ist_variant_channels(p, IST_NODE_CONV, cases[i].channels);
        cr_expect_geq(got, cases[i].channels);
        if (cases[i].want) cr_expect_eq(got, cases[i].want, "case %zu: %d", i, got);
        end(&t, p);
    }
}

/* ---- tuning records ---- */

/* The name of the problem in records. */
static ist_tuned noted(world w, int i) {
    optest t;
    ist_plan *p = begin_with(&t, w, (ist_plan_options){.notes = true});
    ist_conv q = node_of(&t, i, NULL);
    ist_variant_choose(p, kind_of(i), &q);
    cr_assert_eq(ist_plan_notes(p)->count, 1);
    ist_tuned note = ist_plan_notes(p)->items[0];
    cr_expect_eq(note.param, 1, "one launch");
    cr_expect_str_eq(note.family, ist_kind_of(kind_of(i))->name);
    cr_expect(ist_tune_known(p, note.family, note.shape), "%s", note.shape);
    end(&t, p);
    return note;
}

static ist_variant_choice chosen_with(world w, int i, ist_tuned choice, const char *variant, int way) {
    optest t;
    ist_tuning record = {0};
    snprintf(choice.variant, sizeof choice.variant, "%s", variant);
    choice.param = way;
    cr_assert_eq(ist_tuning_set(&record, &choice, &t.err), IST_OK);
    ist_plan *p = begin_with(&t, w, (ist_plan_options){.tuning = &record});
    ist_conv q = node_of(&t, i, NULL);
    ist_variant_choice c = ist_variant_choose(p, kind_of(i), &q);
    end(&t, p);
    ist_tuning_free(&record);
    return c;
}

static ist_variant_choice cheapest(world w, int i) {
    optest t;
    ist_plan *p = begin(&t, w);
    ist_conv q = node_of(&t, i, NULL);
    ist_variant_choice c = ist_variant_cheapest(p, kind_of(i), &q);
    end(&t, p);
    return c;
}

static bool same(ist_variant_choice a, ist_variant_choice b) {
    return a.variant == b.variant && a.way == b.way;
}

/* What a record names is taken where it can be done, by every variant and way; else it decides nothing. */
Test(table, a_tuning_record_decides) {
    int followed = 0, splits = 0;
    for (int d = 0; d < 3 * DEVICES; d++)
        for (int i = 0; i < DENSE + DEPTHWISE; i += optest_small() ? 5 : 1) {
            world w = world_of(d);
            if (w.bf16) continue;
            ist_tuned note = noted(w, i);
            ist_variant_choice plain = cheapest(w, i);
            optest t;
            ist_conv q = node_of(&t, i, NULL);
            int count;
            const ist_variant *v = ist_variants_of(kind_of(i), &count);
            for (int k = 0; k<count; k += count> 9 ? 3 : 1) {
                ist_plan *p = begin(&t, w);
                bool takes = ist_variant_takes(p, &v[k], &q);
                int ways = takes ? ist_variant_ways(p, &v[k], &q) : 1;
                end(&t, p);
                ist_variant_choice want = {&v[k], ways}, got = chosen_with(w, i, note, v[k].name, ways);
                cr_expect(same(got, takes ? want : plain), "%s", name_of(&v[k]));
                got = chosen_with(w, i, note, v[k].name, ways + 1);
                cr_expect(same(got, plain), "%s has no way %d", name_of(&v[k]), ways + 1);
                followed += takes && !same(want, plain);
                splits += takes && ways > 1;
            }
            cr_expect(same(chosen_with(w, i, note, "no_such_variant", 1), plain));
            cr_expect(same(chosen_with(w, i, note, plain.variant->name, 0), plain));
        }
    cr_expect_gt(followed, DENSE + DEPTHWISE);
    if (ist_variant_named(IST_NODE_CONV, "mma_64x64")) cr_expect_gt(splits, 0);
}

/* What was measured are variants in fp32: no record is asked where products may round. */
Test(table, no_record_decides_where_products_round) {
    const unsigned cpu =
        IST_CAP_CPU | IST_CAP_VEC16 | IST_CAP_SIMD16 | IST_CAP_X86_BF16 | IST_CAP_LOCAL | IST_CAP_GROUP256;
    const world rounding = {cpu, false, true}, plain = {cpu, false, false};
    ist_tuned note = noted(plain, 3);
    ist_variant_choice c = chosen_with(plain, 3, note, "any_32x32", 1);
    cr_expect_str_eq(c.variant->name, "any_32x32");
    c = chosen_with(rounding, 3, note, "any_32x32", 1);
    cr_expect(same(c, cheapest(rounding, 3))); /* also where that is what the record names */
}

/* ---- sources ---- */

/* All of `names`, which plus signs or blanks separate, are kernel sources of the machine or portable ones. */
static void check_sources(const ist_variant *v, const char *names) {
    static const char between[] = "+ ";
    const char *machine = ist_machine_name(v->machine), *portable = ist_machine_name(IST_MACHINE_PORTABLE);
    for (const char *at = names; at && *at; at += strcspn(at, between), at += strspn(at, between)) {
        size_t n = strcspn(at, between), folder = strcspn(at, "/");
        bool found = false;
        for (const ist_source *s = ist_sources; s->name && !found; s++)
            found = strlen(s->name) == n && !strncmp(s->name, at, n);
        cr_expect(found, "%s: there is no source %.*s", name_of(v), (int)n, at);
        bool own = (strlen(machine) == folder && !strncmp(at, machine, folder)) ||
                   (strlen(portable) == folder && !strncmp(at, portable, folder));
        cr_expect(own, "%s, for %s: %.*s", name_of(v), machine, (int)n, at);
    }
}

Test(table, sources_are_those_of_the_machine) {
    int with = 0;
    for (int i = 0; i < ist_variant_count(); i++) {
        const ist_variant *v = ist_variant_at(i);
        check_sources(v, v->sources);
        with += v->sources != NULL;
        if (v->kind == IST_NODE_CONV || v->kind == IST_NODE_DWCONV) cr_expect(v->sources, "%s", name_of(v));
        if (v->machine == IST_MACHINE_MATRIX) cr_expect(v->sources, "%s", name_of(v));
    }
    cr_expect_gt(with, ist_variant_count() / 2);
}

/* Records the first problem that the variant takes; false when it takes none of its kind's. */
static bool check_launches(const ist_variant *v, const float *weights) {
    bool taken = false;
    for (int i = 0; i < DENSE + DEPTHWISE && !taken; i++) {
        optest t;
        if (kind_of(i) != v->kind) continue;
        world w = {v->needs, v->storage == IST_STORAGE_HALF, v->storage == IST_STORAGE_BF16};
        ist_plan *p = begin(&t, w);
        ist_conv q = node_of(&t, i, weights);
        q.x = ist_plan_input(p, q.x.n, q.x.h, q.x.w, q.x.c, IST_ELEM_T);
        q.y.buffer = 0;
        taken = ist_variant_takes(p, v, &q);
        if (taken) {
            ist_emit_by(p, v, 0, &q);
            cr_assert_eq(ist_plan_status(p), IST_OK, "%s: %s", name_of(v), ist_plan_error(p)->text);
            int launches = ist_plan_describe(p).launches;
            cr_expect_gt(launches, 0, "%s", name_of(v));
            for (int k = 0; k < launches; k++) {
                const ist_launch *l = ist_plan_launch_at(p, k);
                cr_expect(source_is_among(l->op, v->sources), "%s launches %s, not %s", name_of(v), l->op, v->sources);
                check_sources(v, l->isa);
                cr_expect_str_eq(l->from.variant, v->name, "launch %d says whose it is", k);
            }
        }
        end(&t, p);
    }
    return taken;
}

/* Of the kinds whose nodes stand alone: kernels that exist, in the folder of the machine. */
Test(table, convolutions_name_sources_that_exist) {
    float *weights = calloc(1 << 18, sizeof *weights);
    cr_assert_not_null(weights);
    for (int i = 0; i < ist_variant_count(); i++) {
        const ist_variant *v = ist_variant_at(i);
        if (v->kind == IST_NODE_CONV || v->kind == IST_NODE_DWCONV)
            cr_expect(check_launches(v, weights) || optest_little_local(), "%s takes none of the problems", name_of(v));
    }
    free(weights);
}
