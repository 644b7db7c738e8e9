#include "support/engines.h"

#include "synth.h"
#include "variants/variant.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One copy of each path, reachable until the process ends: what leak checkers count as kept. */
static const char *keep(const char *path) {
    static char *kept[16];
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (!kept[i]) kept[i] = strdup(path);
        if (kept[i] && !strcmp(kept[i], path)) return kept[i];
    }
    cr_assert_fail("no room to keep %s", path);
    return NULL;
}

const char *engines_checkpoint(const char *model, int classes, uint64_t seed) {
    char path[1024];
    const char *folder = IST_BUILD_DIR "/checkpoints";
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/%s-%d-%llu.safetensors", folder, model, classes, (unsigned long long)seed);
    ist_error err = {0};
    /* The writer renames a complete file into place, so tests that run side by side cannot see half of one. */
    if (access(path, R_OK) && synth_checkpoint(synth_kind(model), classes, seed, path, &err))
        cr_assert_fail("%s", err.text);
    return keep(path);
}

bool engines_lack_cpu(void) {
    for (int i = 0; i < ist_variant_count(); i++)
        if (ist_variant_at(i)->machine == IST_MACHINE_CPU) return false;
    return true;
}

ist_config engines_config(const char *detector, bool masks) {
    ist_config c = ist_config_default();
    c.detector = engines_checkpoint(detector, 80, 7);
    if (masks) c.segmenter = engines_checkpoint("sam", 80, 3);
    if (masks && engines_lack_cpu()) c.segmenter_size = 256;
    return c;
}

ist_engine *engines_open(const ist_config *config) {
    ist_engine *e = NULL;
    ist_error err = {0};
    cr_assert_eq(ist_open(config, &e, &err), IST_OK, "%s", err.text);
    return e;
}

ist_image engines_image(int width, int height, uint64_t seed) {
    uint8_t *rgb = malloc((size_t)width * (size_t)height * 3);
    cr_assert_not_null(rgb);
    synth_phantom(height, width, seed, rgb);
    return (ist_image){.width = width, .height = height, .format = IST_RGB8, .pixels = rgb, .tag = seed};
}

const ist_result *engines_run(ist_engine *engine, const ist_image *images, int count) {
    ist_error err = {0};
    const ist_result *r = NULL;
    cr_assert_eq(ist_submit(engine, images, count, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_receive(engine, &r, &err), IST_OK, "%s", err.text);
    cr_assert_eq(r->frame_count, count);
    return r;
}

void engines_same(const ist_frame *a, const ist_frame *b) {
    cr_assert_eq(a->object_count, b->object_count, "%d and %d objects", a->object_count, b->object_count);
    for (int i = 0; i < a->object_count; i++) {
        ist_object x = a->objects[i], y = b->objects[i];
        size_t words = (size_t)x.mask.columns * (size_t)x.mask.words;
        cr_assert_eq(x.mask.columns, y.mask.columns, "object %d", i);
        cr_assert_eq(x.mask.words, y.mask.words, "object %d", i);
        if (words) cr_assert_arr_eq(x.mask.bits, y.mask.bits, words * sizeof(uint32_t), "mask of object %d", i);
        x.mask.bits = y.mask.bits = NULL;
        cr_assert_eq(x.label, y.label);
        cr_assert_eq(x.query, y.query);
        cr_assert_eq(x.area, y.area);
        cr_assert_arr_eq(&x.score, &y.score, sizeof x.score);
        cr_assert_arr_eq(x.box, y.box, sizeof x.box);
        cr_assert_arr_eq(x.mask_box, y.mask_box, sizeof x.mask_box);
        cr_assert_arr_eq(&x.mask_score, &y.mask_score, sizeof x.mask_score);
        cr_assert_arr_eq(&x.stability, &y.stability, sizeof x.stability);
    }
}
