/* Tuning: the record that it writes is one that engines open with; a record decides variants, and one that is damaged,
 * of another device or names what cannot be done decides nothing. */
#include "pipeline/tune.h"

#include "variants/tune.h"
#include "pipeline/choice.h"
#include "pipeline/engine.h"
#include "pipeline/tuning_record.h"
#include "support/engines.h"
#include "support/folder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ist_error err;

static ist_config tiny(const char *cache) {
    ist_config c = engines_config("n", false);
    c.input_size = 256;
    c.max_objects = 2;
    c.conf = 0;
    c.cache_dir = cache;
    return c;
}

static ist_engine *open_as(const ist_config *c, ist_open_mode mode) {
    ist_engine *e = NULL;
    cr_assert_eq(ist_engine_open_as(c, mode, NULL, &e, &err), IST_OK, "%s", err.text);
    return e;
}

/* A choice other than the heuristic's for the first problem that has one; false when the device has one variant. */
static bool other_choice(ist_engine *e, ist_tuned *choice) {
    ist_tune_way ways[64];
    const ist_tuning *notes = ist_plan_notes(e->plan);
    ist_plan_options options = {.half = ist_plan_half(e->plan)};
    ist_plan *p = NULL;
    bool found = false;
    cr_assert_eq(ist_plan_begin(e->device, &options, &p, &err), IST_OK, "%s", err.text);
    for (size_t i = 0; i < notes->count && !found; i++) {
        cr_assert(ist_tune_known(p, notes->items[i].family, notes->items[i].shape), "%s", notes->items[i].shape);
        int n = ist_tune_ways(p, notes->items[i].family, notes->items[i].shape, ways, 64);
        cr_assert_gt(n, 0);
        found = n > 1 && !strcmp(notes->items[i].family, "conv");
        *choice = notes->items[i];
        choice->param = 1;
        snprintf(choice->variant, sizeof choice->variant, "%s", ways[n - 1].variant); /* the portable one */
    }
    ist_plan_close(&p);
    return found;
}

static void keep(const ist_engine *e, const char *folder, const ist_tuned *choice, const char *key, int damage) {
    ist_tuning t = {0};
    char path[IST_TUNING_PATH], own[IST_TUNING_KEY], *text = NULL;
    ist_tuning_key(e->device, own);
    cr_assert_eq(ist_tuning_set(&t, choice, &err), IST_OK);
    cr_assert_eq(ist_tuning_write(&t, key ? key : own, &text, &err), IST_OK);
    if (damage >= 0) text[strlen(text) / 2] ^= (char)damage;
    cr_assert(ist_tuning_path(e->device, folder, path));
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
    free(text);
    ist_tuning_free(&t);
}

static size_t different_launches(const ist_engine *a, const ist_engine *b) {
    size_t different = 0;
    for (int i = 0; i < ist_plan_describe(a->plan).launches; i++) {
        const ist_launch *x = ist_plan_launch_at(a->plan, i), *y = ist_plan_launch_at(b->plan, i);
        different += strcmp(x->op, y->op) || strcmp(x->defines, y->defines);
    }
    return different;
}

/* Programs of which it is said that a record named their variant (pipeline/choice.h), all of this one unless it is
 * NULL. */
static int said_of(const ist_config *c, const char *variant) {
    ist_choice choice;
    int tuned = 0;
    cr_assert_eq(ist_choice_make(c, &choice, &err), IST_OK, "%s", err.text);
    for (int i = 0; i < choice.count; i++) {
        tuned += choice.uses[i].tuned;
        if (choice.uses[i].tuned && variant) cr_expect_str_eq(choice.uses[i].variant, variant);
    }
    ist_choice_free(&choice);
    return tuned;
}

/* What is no record of this device leaves what there was without it: a record that comes with the library, or none. */
Test(pipeline_tune, a_record_decides) {
    char folder[256];
    folder_make(folder, sizeof folder);
    ist_config c = tiny(folder);
    ist_engine *plain = open_as(&c, IST_OPEN_UNTUNED);
    ist_tuned choice;
    if (other_choice(plain, &choice)) {
        ist_image m = engines_image(90, 70, 3);
        const ist_result *r = engines_run(plain, &m, 1);
        const double tolerance = ist_plan_half(plain->plan) ? 0.02 : 1e-4;
        ist_engine *before = open_as(&c, IST_OPEN_FRAMES);
        int said_before = said_of(&c, NULL);
        keep(plain, folder, &choice, NULL, -1);
        ist_engine *tuned = open_as(&c, IST_OPEN_FRAMES);
        cr_expect_geq(different_launches(plain, tuned), 1, "%s %s", choice.shape, choice.variant);
        cr_expect_geq(said_of(&c, choice.variant), 1);
        const ist_result *s = engines_run(tuned, &m, 1);
        cr_assert_eq(r->frames[0].object_count, s->frames[0].object_count);
        for (int i = 0; i < r->frames[0].object_count; i++)
            cr_expect_float_eq(r->frames[0].objects[i].score, s->frames[0].objects[i].score, tolerance);
        ist_close(&tuned);

        keep(plain, folder, &choice, "device Another\n", -1);
        tuned = open_as(&c, IST_OPEN_FRAMES);
        cr_expect_eq(different_launches(before, tuned), 0, "another device's record");
        ist_close(&tuned);
        keep(plain, folder, &choice, NULL, 1);
        tuned = open_as(&c, IST_OPEN_FRAMES);
        cr_expect_eq(different_launches(before, tuned), 0, "a damaged record");
        cr_expect_eq(said_of(&c, NULL), said_before);
        ist_close(&tuned);
        static const ist_tuned impossible[] = {{"conv", "", "no_such_variant", 1}, {"conv", "", "", 99}};
        for (int i = 0; i < 2; i++) {
            ist_tuned bad = choice;
            if (i == 0) memcpy(bad.variant, impossible[i].variant, sizeof bad.variant);
            if (i == 1) bad.param = impossible[i].param;
            keep(plain, folder, &bad, NULL, -1);
            tuned = open_as(&c, IST_OPEN_FRAMES);
            cr_expect_eq(different_launches(plain, tuned), 0, "a choice that cannot be made: %d", i);
            ist_close(&tuned);
        }
        ist_close(&before);
        free((void *)m.pixels);
    }
    ist_close(&plain);
    folder_remove(folder);
}

static void count_report(void *arg, const ist_tune_result *r) {
    int *count = arg;
    cr_expect_eq(r->done, ++*count);
    cr_expect_leq(r->done, r->total);
    cr_expect_geq(r->candidates, 1);
    cr_expect_eq(r->wrong, 0, "%s: %d variants are wrong", r->shape, r->wrong);
    cr_expect(r->first_us > 0 && r->best_us > 0 && r->best_us <= r->first_us);
    cr_expect_gt(r->launches, 0);
}

Test(pipeline_tune, measures_every_problem) {
    char folder[256];
    folder_make(folder, sizeof folder);
    ist_config c = tiny(folder);
    ist_tune_summary s;
    char *text = NULL;
    int reports = 0;
    cr_assert_eq(ist_tune(&c, count_report, &reports, &s, &text, &err), IST_OK, "%s", err.text);
    cr_expect_gt(s.problems, 5, "D-FINE-N has more convolutions of different shapes, however many are fused");
    cr_expect_eq(s.problems, reports);
    cr_expect_gt(s.before_ms, 0);
    cr_expect_gt(s.after_ms, 0);
    cr_expect_eq(text != NULL, s.kept && s.changed > 0);
    cr_expect(!strncmp(s.path, folder, strlen(folder)), "%s", s.path);
    if (text) {
        ist_engine *e = open_as(&c, IST_OPEN_UNTUNED);
        ist_tuning t = {0};
        char key[IST_TUNING_KEY];
        ist_tuning_key(e->device, key);
        cr_expect_eq(ist_tuning_read(&t, text, key, &err), IST_OK, "%s", err.text);
        cr_expect_eq(t.count, (size_t)s.changed);
        for (size_t i = 0; i < t.count; i++)
            cr_expect_not_null(ist_tuning_find(ist_plan_notes(e->plan), t.items[i].family, t.items[i].shape));
        ist_tuning_free(&t);
        ist_close(&e);
    }
    free(text);
    folder_remove(folder);
}

Test(pipeline_tune, shapes_that_are_none) {
    static const char *const texts[] = {"",
                                        "n1",
                                        "n1h80w80c64o32k3x3s1p1,1,1,1a1x0y0u0f0 ",
                                        "n0h80w80c64o32k3x3s1p1,1,1,1a1x0y0u0f0",
                                        "n1h1w1c64o32k3x3s1p0,0,0,0a1x0y0u0f0",
                                        "n1h80w80c64o32k3x3s1p3,1,1,1a1x0y0u0f0",
                                        "n1h80w80c64o32k3x3s1p1,1,1,1a9x0y0u0f0",
                                        "n1h80w80c64o32k3x3s1p1,1,1,1a1x0y0u0f1"};
    ist_config c = tiny("off");
    c.detector = NULL;
    ist_engine *e = open_as(&c, IST_OPEN_UNTUNED);
    ist_plan_options options = {0};
    ist_plan *p = NULL;
    cr_assert_eq(ist_plan_begin(e->device, &options, &p, &err), IST_OK, "%s", err.text);
    cr_expect(ist_tune_known(p, "conv", "n1h80w80c64o32k3x3s1p1,1,1,1a1x0y0u0f0"));
    cr_expect_not(ist_tune_known(p, "attention", "n1h80w80c64o32k3x3s1p1,1,1,1a1x0y0u0f0"));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        cr_expect_not(ist_tune_known(p, "conv", texts[i]), "\"%s\"", texts[i]);
    ist_plan_close(&p);
    ist_close(&e);
}
