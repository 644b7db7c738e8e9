/* Pixels written into memory of the engine's (ist_stage): the same results as of pixels that are copied, one write, and
 * every wrong use named before anything is lost. */
#include "support/engines.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 2 };

static ist_error err;

#define REFUSED(call, want, part)                                                                                      \
    do {                                                                                                               \
        err = (ist_error){0};                                                                                          \
        cr_assert_eq(call, want, "%s", err.text);                                                                      \
        cr_expect_not_null(strstr(err.text, part), "%s", err.text);                                                    \
    } while (0)

static size_t bytes_of(const ist_image *m) {
    return (size_t)m->width * (size_t)m->height * ((size_t)m->format & 15) * ((size_t)m->format >> 4);
}

/* `images` as they are submitted from the engine's memory, their pixels there. */
static void stage(ist_engine *e, const ist_image *images, int count, ist_image *staged) {
    void *pixels[MOST] = {NULL};
    cr_assert_eq(ist_stage(e, images, count, pixels, &err), IST_OK, "%s", err.text);
    for (int i = 0; i < count; i++) {
        cr_assert_eq((uintptr_t)pixels[i] % 64, 0);
        memcpy(pixels[i], images[i].pixels, bytes_of(&images[i]));
        staged[i] = images[i];
        staged[i].pixels = pixels[i];
    }
}

/* Both ways, and then both again with what the first left in the slots. */
static void check(const ist_config *config, const ist_image *images, int count) {
    ist_engine *e = engines_open(config);
    const ist_result *want = engines_run(e, images, count);
    int objects = 0;
    for (int round = 0; round < 2; round++) {
        ist_image staged[MOST];
        stage(e, images, count, staged);
        const ist_result *got = engines_run(e, staged, count);
        cr_assert_eq(got->frame_count, count);
        for (int i = 0; i < count; i++) {
            engines_same(&want->frames[i], &got->frames[i]);
            objects += got->frames[i].object_count;
        }
        cr_expect_eq(got->transfers.writes, 1);
        cr_expect_eq(got->transfers.reads, 1);
        cr_expect_eq(got->transfers.h2d_bytes, want->transfers.h2d_bytes);
        ist_release(e, &got);
    }
    cr_expect_gt(objects, 0);
    ist_release(e, &want);
    ist_close(&e);
}

static ist_config small_config(void) {
    ist_config c = engines_config("n", false);
    c.input_size = 256;
    c.conf = 0;
    c.max_objects = 4;
    c.batch = MOST;
    return c;
}

/* Sizes and formats that differ, rows that are no multiple of anything; targets come with the submission alone. */
Test(pipeline_stage, same_results) {
    static const ist_target targets[2] = {{{10, 20, 90, 80}, 0}, {{50, 5, 61, 60}, -1}};
    ist_config c = small_config();
    ist_image m[MOST] = {engines_image(101, 93, 4), engines_image(64, 130, 9)};
    c.match = IST_MATCH_TARGETS;
    m[1].format = IST_GRAY8;
    m[0].targets = targets, m[0].target_count = 2;
    check(&c, m, MOST);
    check(&c, m, 1);
    for (int i = 0; i < MOST; i++) free((void *)m[i].pixels);
}

Test(pipeline_stage, same_masks_of_prompts) {
    ist_config c = engines_config("n", true);
    c.detector = NULL;
    c.prompts = IST_PROMPTS_GIVEN;
    c.segmenter_size = 256;
    c.mask_prompts = 1;
    c.max_objects = 2;
    size_t side = (size_t)c.segmenter_size / 4;
    float *logits = calloc(side * side, sizeof *logits);
    cr_assert_not_null(logits);
    for (size_t i = 0; i < side * side; i++) logits[i] = (float)(i % 7) - 3;
    const ist_point points[2] = {{40, 30, 1}, {9, 8, 0}};
    const float box[4] = {10, 12, 80, 70};
    const ist_prompt prompts[2] = {
        {.points = points, .point_count = 2},
        {.box = box, .mask = logits, .mask_width = (int)side, .mask_height = (int)side}};
    ist_image m = engines_image(120, 90, 5);
    m.prompts = prompts, m.prompt_count = 2;
    check(&c, &m, 1);
    free(logits);
    free((void *)m.pixels);
}

Test(pipeline_stage, same_in_tiles) {
    const ist_tiles tiles = {sizeof tiles, .width = 96, .height = 96, .overlap = 16, .whole = 1, .batch = 1};
    ist_config c = small_config();
    c.batch = 1;
    c.tiles = &tiles;
    ist_image m = engines_image(200, 110, 6);
    check(&c, &m, 1);
    free((void *)m.pixels);
}

/* While it is submitted, nobody can write to the pages that it has to itself. */
Test(pipeline_stage, nothing_is_copied) {
    ist_config c = small_config();
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(320, 300, 3), staged;
    const ist_result *want = engines_run(e, &m, 1), *got;
    stage(e, &m, 1, &staged);
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)staged.pixels;
    const uintptr_t first = (at + page - 1) / page * page, last = (at + bytes_of(&m)) / page * page;
    cr_assert_gt(last, first);
    unsigned char *own = (unsigned char *)staged.pixels + (first - at);
    if (mprotect(own, last - first, PROT_READ)) cr_skip("the platform's memory cannot be protected");
    got = engines_run(e, &staged, 1);
    cr_assert_eq(mprotect(own, last - first, PROT_READ | PROT_WRITE), 0);
    engines_same(&want->frames[0], &got->frames[0]);
    ist_release(e, &want);
    ist_release(e, &got);
    ist_close(&e);
    free((void *)m.pixels);
}

/* Larger than the room that slots begin with, beside one that is being computed. */
Test(pipeline_stage, room_is_made) {
    ist_config c = small_config();
    c.batch = 1;
    ist_engine *e = engines_open(&c), *plain = engines_open(&c);
    ist_image small = engines_image(64, 48, 1), large = engines_image(2300, 1200, 2), staged;
    const ist_result *want = engines_run(plain, &large, 1), *r;
    cr_assert_eq(ist_submit(e, &small, 1, &err), IST_OK, "%s", err.text);
    stage(e, &large, 1, &staged);
    cr_assert_eq(ist_submit(e, &staged, 1, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
    cr_expect_eq(r->frames[0].width, 64);
    ist_release(e, &r);
    cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
    engines_same(&want->frames[0], &r->frames[0]);
    ist_release(e, &r);
    ist_release(plain, &want);
    ist_close(&e);
    ist_close(&plain);
    free((void *)small.pixels);
    free((void *)large.pixels);
}

Test(pipeline_stage, what_is_refused) {
    ist_config c = small_config();
    c.max_pixels = 1000000; /* less than slots have room for from the beginning, so that they have none */
    ist_engine *e = engines_open(&c);
    ist_image m[MOST] = {engines_image(101, 93, 4), engines_image(101, 93, 9)}, s[MOST], bad;
    void *pixels[MOST];
    const ist_result *want = engines_run(e, m, MOST), *got;
    REFUSED(ist_stage(NULL, m, 1, pixels, &err), IST_E_ARGUMENT, "ist_stage: no engine");
    REFUSED(ist_stage(e, NULL, 1, pixels, &err), IST_E_ARGUMENT, "ist_stage: no images");
    REFUSED(ist_stage(e, m, 1, NULL, &err), IST_E_ARGUMENT, "no place for the pointers");
    REFUSED(ist_stage(e, m, 3, pixels, &err), IST_E_ARGUMENT, "3 images, the engine was opened for 1..2");
    bad = m[0], bad.width = 0;
    REFUSED(ist_stage(e, &bad, 1, pixels, &err), IST_E_ARGUMENT, "0 x 93");
    bad.width = 60000;
    REFUSED(ist_stage(e, &bad, 1, pixels, &err), IST_E_LIMIT, "the limit is 1000000");
    bad = m[0], bad.format = (ist_pixel_format)7;
    REFUSED(ist_stage(e, &bad, 1, pixels, &err), IST_E_ARGUMENT, "format 0x7");
    stage(e, m, MOST, s);
    REFUSED(ist_submit(e, &s[1], 1, &err), IST_E_ARGUMENT, "image 0: its pixels lie in memory from ist_stage");
    bad = s[0], bad.stride = 400;
    REFUSED(ist_submit(e, &bad, 1, &err), IST_E_ARGUMENT, "image 0: its pixels lie");
    const ist_image swapped[MOST] = {s[1], s[0]};
    REFUSED(ist_submit(e, swapped, MOST, &err), IST_E_ARGUMENT, "image 0: its pixels lie");
    ist_image grown[MOST] = {s[0], m[1]}; /* beyond what there is room for, the first would move */
    grown[1].format = IST_RGBA16, grown[1].width = grown[1].height = 240;
    uint8_t *many = calloc(1, bytes_of(&grown[1]));
    cr_assert_not_null(many);
    grown[1].pixels = many;
    REFUSED(ist_submit(e, grown, MOST, &err), IST_E_ARGUMENT, "what ist_stage made room for");
    free(many);
    got = engines_run(e, s, MOST); /* nothing of this has touched what was staged */
    for (int i = 0; i < MOST; i++) engines_same(&want->frames[i], &got->frames[i]);
    ist_release(e, &got);
    stage(e, m, MOST, s); /* one of the engine's, one of the caller's */
    s[1].pixels = m[1].pixels;
    got = engines_run(e, s, MOST);
    for (int i = 0; i < MOST; i++) engines_same(&want->frames[i], &got->frames[i]);
    ist_release(e, &got);
    stage(e, m, MOST, s); /* all of the caller's */
    got = engines_run(e, m, MOST);
    for (int i = 0; i < MOST; i++) engines_same(&want->frames[i], &got->frames[i]);
    ist_release(e, &got);
    ist_release(e, &want);
    ist_close(&e);
    for (int i = 0; i < MOST; i++) free((void *)m[i].pixels);
}

/* All batches out: none is free to be written to, until one has been received or given up. */
Test(pipeline_stage, needs_a_free_batch) {
    const ist_config c = small_config(), none = ist_config_default();
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(64, 48, 1), staged;
    void *pixels[1];
    int cancelled;
    const ist_result *want = engines_run(e, &m, 1), *got;
    for (int i = 1; i < c.frames_in_flight; i++) cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK, "%s", err.text);
    REFUSED(ist_stage(e, &m, 1, pixels, &err), IST_E_STATE, "in flight");
    cr_assert_eq(ist_cancel(e, &cancelled, &err), IST_OK);
    cr_expect_eq(cancelled, c.frames_in_flight - 1);
    stage(e, &m, 1, &staged);
    got = engines_run(e, &staged, 1);
    engines_same(&want->frames[0], &got->frames[0]);
    ist_release(e, &want);
    ist_release(e, &got);
    ist_close(&e);
    cr_assert_eq(ist_open(&none, &e, &err), IST_OK, "%s", err.text);
    REFUSED(ist_stage(e, &m, 1, pixels, &err), IST_E_STATE, "without a model");
    ist_close(&e);
    free((void *)m.pixels);
}
