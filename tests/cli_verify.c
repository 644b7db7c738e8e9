/* `isthmus verify` over a double of the engine (tests/fake_engine.c): what passes, what each kind of fault is called.
 * The last tests are over the real device and the weights that ship, as they are and with a statistic that half cannot
 * take.
 */
#include "gray_png.h"
#include "program.h"

#include <jansson.h>

#define PROGRAM IST_BUILD_DIR "/tests/isthmus_fake"

static scratch make_bench(void) {
    scratch s = scratch_make();
    mkdir(scratch_path(&s, "demo"), 0777);
    scratch_put(scratch_path(&s, "dfine_n_demo.safetensors"), "");
    scratch_put(scratch_path(&s, "mobile_sam_demo.safetensors"), "");
    setenv("ISTHMUS_WEIGHTS_DIR", scratch_path(&s, "."), 1);
    for (int i = 0; i < 2; i++) write_png(scratch_path(&s, "demo/%02d.png", i), 50 + i, 60);
    return s;
}

#define FAKE(s, ...)                                                                                                   \
    spawn_run((s), NULL, (const char *const[]){PROGRAM, "verify", "--precision", "fp16", __VA_ARGS__, NULL})
static void expect(spawned r, int code, const char *out_part, const char *err_part) {
    cr_expect_eq(r.code, code, "exit code %d, want %d; stderr: %s", r.code, code, r.err);
    cr_expect_not_null(strstr(r.out, out_part), "stdout lacks '%s': %s", out_part, r.out);
    cr_expect_not_null(strstr(r.err, err_part), "stderr lacks '%s': %s", err_part, r.err);
    spawn_free(&r);
}

static double number(const json_t *o, const char *key) {
    cr_assert(json_is_number(json_object_get(o, key)), "%s", key);
    return json_number_value(json_object_get(o, key));
}

/* The double's queries come in another order in fp16, which is no difference. */
Test(cli_verify, equal_engines_pass_on_the_demo_frames) {
    scratch s = make_bench();
    expect(FAKE(&s, "--limit", "2"), 0, "6 and 6 objects, 6 the same; 16 of 16 queries chosen by both", "");
    spawned r = FAKE(&s, "--json", "--no-masks", scratch_path(&s, "demo/01.png"));
    cr_assert_eq(r.code, 0, "%s", r.err);
    json_t *all = json_loads(r.out, 0, NULL);
    cr_assert_not_null(all, "%s", r.out);
    cr_expect_eq(number(all, "images"), 1);
    cr_expect_eq(number(all, "f1"), 1);
    cr_expect_eq(number(all, "objects"), 3);
    cr_expect_null(json_object_get(all, "mask_iou"));
    const json_t *worst = json_object_get(all, "worst_image");
    cr_expect_str_eq(json_string_value(json_object_get(worst, "path")), scratch_path(&s, "demo/01.png"));
    cr_expect(number(worst, "f1") == 1 && number(worst, "boxes") == 0);
    cr_expect(number(worst, "queries") == 8 && number(worst, "common_queries") == 8);
    cr_expect(json_is_true(json_object_get(all, "passed")));
    cr_expect_eq(json_array_size(json_object_get(all, "stages")), 4);
    cr_expect_str_eq(json_string_value(json_object_get(json_object_get(all, "tested"), "precision")), "fp16");
    cr_expect_str_eq(json_string_value(json_object_get(json_object_get(all, "reference"), "precision")), "fp32");
    json_decref(all);
    spawn_free(&r);
    scratch_remove(&s);
}

/* The numbers follow from what the double does to the last of three objects: see spoil() there. */
Test(cli_verify, each_fault_is_named) {
    static const char *const faults[][3] = {
        {"wrong:0", "encoder             0.0759  <= ", "encoder: the relative error is 0.07594, more than "},
        {"wrong:1", "decoder boxes          inf  <= ", "decoder boxes: the relative error is inf, more than "},
        {"wrong:2", "detections           0.667  >= 0.98     FAILED", "detections: F1 is 0.6667, less than 0.98"},
        {"wrong:3", "scores                 0.1  <= ", "scores: the largest difference is 0.1, more than 0.02"},
        {"wrong:4", "masks                0.933  >= 0.99     FAILED", "masks: the mean IoU is 0.9333, less than 0.99"},
        {"wrong:5", "detections           0.667  >= 0.98     FAILED", "detections: F1 is 0.6667, less than 0.98"},
    };
    scratch s = make_bench();
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        setenv("FAKE_ENGINE", faults[i][0], 1);
        expect(FAKE(&s, "--limit", "1"), 6, faults[i][1], faults[i][2]);
        spawned r = FAKE(&s, "--limit", "1", "--json");
        json_t *all = json_loads(r.out, 0, NULL);
        cr_expect_eq(r.code, 6);
        cr_expect(json_is_false(json_object_get(all, "passed")));
        json_decref(all);
        spawn_free(&r);
    }
    setenv("FAKE_ENGINE", "wrong:2", 1);
    expect(FAKE(&s, "--limit", "2"), 6, "demo/00.png: F1 0.667, decoder boxes 0, 8 of 8 queries chosen by both", "");
    unsetenv("FAKE_ENGINE");
    scratch_remove(&s);
}

/* Only the map that no encoder of size N reads may be missing. */
Test(cli_verify, a_stage_inside_a_launch) {
    scratch s = make_bench();
    setenv("FAKE_ENGINE", "fused:1", 1);
    expect(FAKE(&s, "--limit", "1"), 0, "backbone", "");
    setenv("FAKE_ENGINE", "fused:2", 1);
    expect(FAKE(&s, "--limit", "1"), 1, "", "stage2: not kept");
    unsetenv("FAKE_ENGINE");
    scratch_remove(&s);
}

/* The others are compared, and what they show counts for more than what is missing. */
Test(cli_verify, an_image_that_cannot_be_read_is_left_out) {
    scratch s = make_bench();
    char empty[1024], one[1024];
    snprintf(empty, sizeof empty, "%s", scratch_path(&s, "demo/empty.png"));
    snprintf(one, sizeof one, "%s", scratch_path(&s, "demo/01.png"));
    scratch_put(empty, "");
    expect(FAKE(&s, empty, one), 7, "3 and 3 objects, 3 the same", "demo/empty.png: the file is empty");
    expect(FAKE(&s, empty, empty), 1, "", "nothing was compared");
    setenv("FAKE_ENGINE", "wrong:3", 1);
    expect(FAKE(&s, one, empty), 6, "largest difference", "demo/empty.png: the file is empty");
    unsetenv("FAKE_ENGINE");
    scratch_remove(&s);
}

Test(cli_verify, what_cannot_be_verified) {
    scratch s = make_bench();
    expect(FAKE(&s, "--track"), 2, "", "--track");
    expect(FAKE(&s, scratch_path(&s, "nothing.png")), 1, "", "nothing.png");
    setenv("FAKE_ENGINE", "lost:1", 1);
    expect(FAKE(&s, "--limit", "2"), 1, "", "the device is lost");
    unsetenv("FAKE_ENGINE");
    setenv("ISTHMUS_WEIGHTS_DIR", scratch_path(&s, "elsewhere"), 1);
    expect(FAKE(&s, "--quiet"), 1, "", "there are no demo frames in");
    scratch_remove(&s);
}
