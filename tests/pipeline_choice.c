/* What is said about a frame's variants is what engines run, and a capability that is said to decide does: hidden or
 * claimed the way that users can, it changes those variants. */
#include "pipeline/choice.h"

#include "device/device.h"
#include "pipeline/engine.h"
#include "support/engines.h"
#include "support/sources.h"
#include "variants/variant.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ist_error err;

static ist_config tiny(bool masks) {
    ist_config c = engines_config("n", masks);
    c.input_size = 256;
    c.max_objects = 2;
    c.cache_dir = "off";
    return c;
}

static ist_choice choose(const ist_config *c) {
    ist_choice choice;
    cr_assert_eq(ist_choice_make(c, &choice, &err), IST_OK, "%s", err.text);
    return choice;
}

/* Launches of the program in a choice. */
static int launches_of(const ist_choice *c, const ist_variant_use *u) {
    for (int i = 0; i < c->count; i++) {
        const ist_variant_use *v = &c->uses[i];
        if (!strcmp(u->op, v->op) && !strcmp(u->node, v->node) && !strcmp(u->machine, v->machine) &&
            !strcmp(u->variant, v->variant) && !strcmp(u->isa, v->isa) && !strcmp(u->defines, v->defines))
            return v->launches;
    }
    return 0;
}

Test(pipeline_choice, what_is_said_is_what_runs) {
    ist_config config = tiny(false);
    ist_choice c = choose(&config);
    ist_engine *e = NULL;
    cr_assert_eq(ist_engine_open_as(&config, IST_OPEN_APART, NULL, &e, &err), IST_OK, "%s", err.text);
    int launches = ist_plan_describe(e->plan).launches, sum = 0;
    cr_expect_eq(c.launches, launches);
    cr_expect_eq(c.precision, e->config.precision);
    cr_expect_eq(c.caps, ist_device_caps(e->device));
    cr_expect_str_eq(c.detector, "dfine-n");
    cr_expect_str_eq(c.segmenter, "");
    for (int k = 0; k < c.count; k++) {
        const ist_variant_use *u = &c.uses[k];
        int found = 0;
        for (int i = 0; i < launches; i++) {
            const ist_launch *l = ist_plan_launch_at(e->plan, i);
            found += !strcmp(l->op, u->op) && !strcmp(l->defines, u->defines) &&
                     !strcmp(l->isa ? l->isa : "", u->isa) && !strcmp(l->from.variant, u->variant) &&
                     !strcmp(l->from.machine, u->machine) && !strcmp(l->from.node, u->node);
        }
        cr_expect_eq(found, u->launches, "%s %s %s: %d launches, %d said", u->op, u->variant, u->defines, found,
                     u->launches);
        cr_expect(!(u->found & ~c.caps) && !(u->missing & c.caps), "%s", u->op);
        sum += u->launches;
    }
    cr_expect_eq(sum, launches);
    ist_choice_free(&c);
    ist_close(&e);
}

/* Of one capability, by ISTHMUS_CAPS; returns how many programs it decides. */
static int check_cap(const ist_config *config, const ist_choice *c, int bit, const char *others) {
    char caps[200];
    int decided = 0;
    bool has = c->caps >> bit & 1;
    snprintf(caps, sizeof caps, "%s%s%c%s", others, *others ? "," : "", has ? '-' : '+', ist_cap_name(bit));
    setenv("ISTHMUS_CAPS", caps, 1);
    ist_choice other;
    ist_status status = ist_choice_make(config, &other, &err);
    setenv("ISTHMUS_CAPS", others, 1);
    cr_expect_eq(status != IST_OK, (c->needed >> bit & 1) != 0, "%s: %s", caps, status ? err.text : "runs");
    if (status) return 0;
    for (int i = 0; i < c->count; i++) {
        const ist_variant_use *u = &c->uses[i];
        bool said = (has ? u->found : u->missing) >> bit & 1, is = launches_of(&other, u) < u->launches;
        cr_expect_eq(said, is, "%s: %s %s %s has %d launches instead of %d", caps, u->op, u->variant, u->defines,
                     launches_of(&other, u), u->launches);
        decided += said;
    }
    ist_choice_free(&other);
    return decided;
}

/* Which of `caps` a variant of the table that is built asks for; of kind IST_KINDS: of any. */
static unsigned asked_for(ist_node_kind kind, unsigned caps) {
    unsigned asked = 0;
    for (int i = 0; i < ist_variant_count(); i++)
        if (kind == IST_KINDS || ist_variant_at(i)->kind == kind) asked |= ist_variant_at(i)->needs & caps;
    return asked;
}

Test(pipeline_choice, capabilities_decide) {
    ist_config config = tiny(true);
    ist_choice c = choose(&config);
    static const int bits[] = {IST_CAP_BIT_SIMD16, IST_CAP_BIT_VEC16, IST_CAP_BIT_ATOMICS, IST_CAP_BIT_PTX_MMA};
    int decided = 0;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) decided += check_cap(&config, &c, bits[i], "");
    if (c.caps & asked_for(IST_KINDS, IST_CAP_CPU)) cr_expect_geq(decided, 10);
    ist_choice_free(&c);
}

/* What is not a CPU, without matrix instructions: which would do better where variants for them are built, and there is
 * one variant that all depends on. */
Test(pipeline_choice, what_is_missing) {
    static const char others[] = "-CPU,-SIMD16,-PTX_MMA,-PTX_WGMMA,-AMD_MFMA,-AMD_WMMA,-INTEL_DPAS";
    setenv("ISTHMUS_CAPS", others, 1);
    ist_config config = tiny(true);
    config.precision = IST_PRECISION_FP16;
    ist_choice c = choose(&config);
    const unsigned any_matrix = IST_CAP_PTX_MMA | IST_CAP_AMD_MFMA | IST_CAP_AMD_WMMA | IST_CAP_INTEL_DPAS;
    const unsigned matrix = asked_for(IST_NODE_CONV, any_matrix); /* of machines that are built */
    int convolutions = 0;
    for (int i = 0; i < c.count; i++) {
        if (strcmp(c.uses[i].op, "portable/conv_any")) continue;
        convolutions++;
        cr_expect_eq(c.uses[i].missing & any_matrix, matrix, "%s: %#x", c.uses[i].variant, c.uses[i].missing);
        cr_expect_eq(strncmp(c.uses[i].variant, "any_", 4), 0, "%s", c.uses[i].variant);
    }
    cr_expect_geq(convolutions, 1);
    cr_expect_eq(c.needed, IST_CAP_LOCAL, "%#x", c.needed);
    cr_expect_geq(check_cap(&config, &c, IST_CAP_BIT_PTX_MMA, others), matrix & IST_CAP_PTX_MMA ? 10 : 0);
    cr_expect_geq(check_cap(&config, &c, IST_CAP_BIT_GROUP256, others), 1);
    check_cap(&config, &c, IST_CAP_BIT_LOCAL, others);
    ist_choice_free(&c);
}

Test(pipeline_choice, what_cannot_be_asked) {
    ist_choice c;
    ist_config config = tiny(false);
    config.detector = NULL;
    cr_expect_eq(ist_choice_make(&config, &c, &err), IST_E_STATE);
    config = tiny(false);
    config.detector = "/nonexistent";
    cr_expect_eq(ist_choice_make(&config, &c, &err), IST_E_IO, "%d", err.code);
    config = tiny(false);
    config.precision = IST_PRECISION_FP16;
    setenv("ISTHMUS_CAPS", "-HALF_STORAGE", 1);
    cr_expect_eq(ist_choice_make(&config, &c, &err), IST_E_UNSUPPORTED, "%d", err.code);
    cr_expect(c.count == 0 && !c.uses);
    ist_choice_free(&c);
}

/* ---- the sources that the table says ---- */

static ist_node_kind kind_named(const char *name) {
    for (int k = 0; k < IST_KINDS; k++)
        if (!strcmp(ist_kind_of((ist_node_kind)k)->name, name)) return (ist_node_kind)k;
    cr_assert_fail("no kind of node is called %s", name);
    return IST_KINDS;
}

/* Of a frame on a device with these capabilities; returns its number of programs. */
static int check_sources(const char *caps, ist_precision precision, ist_match_mode match) {
    setenv("ISTHMUS_CAPS", caps, 1);
    ist_config config = tiny(true);
    config.precision = precision;
    config.match = match;
    ist_choice c = choose(&config);
    for (int i = 0; i < c.count; i++) {
        const ist_variant_use *u = &c.uses[i];
        const ist_variant *v = ist_variant_named(kind_named(u->node), u->variant);
        cr_assert_not_null(v, "%s %s", u->node, u->variant);
        cr_expect_str_eq(ist_machine_name(v->machine), u->machine);
        cr_expect(source_is_among(u->op, v->sources), "%s %s/%s takes %s, the table says %s", u->node, u->machine, u->variant,
                  u->op, v->sources ? v->sources : "none");
    }
    int count = c.count;
    ist_choice_free(&c);
    return count;
}

/* Nothing is compiled: any machine can be claimed. */
Test(pipeline_choice, launches_are_of_the_sources_in_the_table) {
    static const char *const machines[] = {
        "-CPU,-SIMD16,-PTX_MMA,-GROUP256,-ATOMICS",
        "-CPU,-SIMD16,-PTX_MMA",
        "+CPU,-SIMD16,-X86_BF16,-X86_AMX",
        "+CPU,+SIMD16,-X86_BF16,-X86_AMX",
        "+CPU,+SIMD16,+X86_BF16,+X86_AMX",
        "-CPU,-SIMD16,+PTX_MMA,-PTX_WGMMA,-PTX_MEET",
        "-CPU,-SIMD16,+PTX_MMA,+PTX_WGMMA,-PTX_MEET",
        "-CPU,-SIMD16,+PTX_MMA,+PTX_WGMMA,+PTX_MEET",
        "-CPU,-SIMD16,-PTX_MMA,+AMD_MFMA",
        "-CPU,-SIMD16,-PTX_MMA,+INTEL_DPAS",
    };
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        cr_expect_gt(check_sources(machines[i], IST_PRECISION_FP32, IST_MATCH_TRACKS), 20);
        cr_expect_gt(check_sources(machines[i], IST_PRECISION_FP16, IST_MATCH_TARGETS_SET), 20);
    }
    cr_expect_gt(check_sources(machines[4], IST_PRECISION_BF16, IST_MATCH_TARGETS), 20);
}
