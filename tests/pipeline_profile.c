/* Profiles of an engine: one time per launch in frame order, stages named, results untouched; rates of the device. */
#include "support/engines.h"
#include "support/folder.h"

#include "base/clock.h"
#include "pipeline/ahead.h"
#include "pipeline/engine.h"
#include "pipeline/profile.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ist_error err;

static ist_config small_config(bool masks) {
    ist_config c = engines_config("n", masks);
    c.input_size = 256;
    c.max_objects = 2;
    c.conf = 0;
    return c;
}

static int kernels_of(const ist_engine *e) {
    ist_engine_info info;
    cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK);
    return info.kernels;
}

Test(pipeline_profile, launches_come_in_order_with_their_stages) {
    static const char *const order[] = {"preprocess",
                                        "detector_backbone",
                                        "detector_encoder",
                                        "detector_decoder",
                                        "detections",
                                        "preprocess",
                                        "segmenter_encoder",
                                        "segmenter_decoder",
                                        "masks",
                                        "pack"};
    ist_config c = small_config(true);
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(320, 200, 5);
    const ist_result *r = engines_run(e, &m, 1);
    ist_release(e, &r);
    ist_engine_info info;
    cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK);
    int count = info.kernels;
    ist_launch_time *times = calloc((size_t)count, sizeof *times);
    cr_assert_not_null(times);
    cr_assert_eq(ist_engine_profile(e, 2, times, &err), IST_OK, "%s", err.text);
    size_t stage = 0;
    double flops = 0;
    for (int i = 0; i < count; i++) {
        cr_assert(isfinite(times[i].ms) && times[i].ms > 0, "launch %d", i);
        cr_assert(*times[i].label && *times[i].op && *times[i].kernel, "launch %d", i);
        if (strcmp(times[i].stage, order[stage])) stage++;
        cr_assert_lt(stage, sizeof order / sizeof *order);
        cr_assert_str_eq(times[i].stage, order[stage], "launch %d, %s", i, times[i].label);
        flops += times[i].flops;
    }
    cr_expect_eq(stage, sizeof order / sizeof *order - 1, "every stage has launches");
    double side = info.segmenter_size / 1024.0;
    cr_expect_gt(flops, 20e9 * side * side, "TinyViT alone counts more");
    free(times);
    ist_close(&e);
    free((void *)m.pixels);
}

Test(pipeline_profile, tracks_have_a_stage_and_results_stay) {
    ist_config c = small_config(false);
    c.match = IST_MATCH_TRACKS;
    c.frames_in_flight = 3;
    ist_engine *e = engines_open(&c), *plain = engines_open(&c);
    ist_image m = engines_image(320, 200, 5);
    int count = kernels_of(e), matches = 0;
    double ms = -1;
    ist_launch_time *times = calloc((size_t)count, sizeof *times);
    cr_assert_not_null(times);
    const ist_result *a = engines_run(e, &m, 1), *b = engines_run(plain, &m, 1);
    cr_assert_eq(ist_engine_profile(e, 1, times, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_engine_replay(e, &ms, &err), IST_OK, "%s", err.text);
    cr_expect_gt(ms, 0.0);
    for (int i = 0; i < count; i++) matches += !strcmp(times[i].stage, "match");
    cr_expect_gt(matches, 0);
    engines_same(&a->frames[0], &b->frames[0]);
    const ist_result *next = engines_run(e, &m, 1), *plain_next = engines_run(plain, &m, 1);
    engines_same(&next->frames[0], &plain_next->frames[0]); /* the tracks have not seen the frames in between */
    free(times);
    ist_close(&e);
    ist_close(&plain);
    free((void *)m.pixels);
}

/* Each moment counts once: batches in flight together are busy for no less than they were waited for, and no longer
 * than from the first submit to the last receive. */
Test(pipeline_profile, busy_time) {
    ist_config c = small_config(false);
    c.frames_in_flight = 2;
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(320, 200, 5);
    const ist_result *r;
    cr_expect_eq(ist_engine_busy_ms(e), 0);
    for (int i = 0; i < 3; i++) {
        double busy = ist_engine_busy_ms(e), waited = 0, begin = ist_clock_ms();
        for (int k = 0; k < 2; k++) cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK, "%s", err.text);
        for (int k = 0; k < 2; k++) {
            cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
            waited += r->wait_ms;
            ist_release(e, &r);
        }
        double elapsed = ist_clock_ms() - begin;
        busy = ist_engine_busy_ms(e) - busy;
        cr_expect(busy >= waited && busy <= elapsed, "busy %g ms, waited for %g, in all %g", busy, waited, elapsed);
    }
    ist_close(&e);
    free((void *)m.pixels);
}

Test(pipeline_profile, order_of_calls) {
    ist_config c = small_config(false);
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(64, 64, 1);
    ist_launch_time *times = calloc((size_t)kernels_of(e), sizeof *times);
    double ms = -1;
    cr_assert_not_null(times);
    cr_expect_eq(ist_engine_profile(e, 1, times, &err), IST_E_STATE);
    cr_expect_not_null(strstr(err.text, "no batch has been submitted"), "%s", err.text);
    cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK, "%s", err.text);
    cr_expect_eq(ist_engine_replay(e, &ms, &err), IST_E_STATE);
    cr_expect_not_null(strstr(err.text, "in flight"), "%s", err.text);
    const ist_result *r;
    cr_assert_eq(ist_receive(e, &r, &err), IST_OK);
    cr_expect_eq(ist_engine_profile(e, 1, times, &err), IST_OK, "%s", err.text);
    free(times);
    ist_close(&e);
    ist_config none = ist_config_default();
    e = engines_open(&none);
    cr_expect_eq(ist_engine_replay(e, &ms, &err), IST_E_STATE);
    cr_expect_not_null(strstr(err.text, "without a detector"), "%s", err.text);
    ist_close(&e);
    free((void *)m.pixels);
}

Test(pipeline_profile, the_device_has_a_peak) {
    ist_config none = ist_config_default();
    ist_engine *e = engines_open(&none);
    ist_engine_info before, after;
    ist_device_peak peak;
    cr_assert_eq(ist_engine_describe(e, &before, &err), IST_OK);
    cr_assert_eq(ist_engine_peak(e, &peak, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_engine_describe(e, &after, &err), IST_OK);
    cr_expect(isfinite(peak.gflops) && peak.gflops > 0);
    cr_expect(isfinite(peak.gbytes_per_second) && peak.gbytes_per_second > 0);
    cr_expect_eq(after.device_bytes, before.device_bytes, "nothing stays on the device");
    ist_close(&e);
}

/* The programs of a frame are few where a program costs much at the start: none of the units fell back to programs
 * built one by one. */
Test(pipeline_profile, a_cpu_builds_few_programs) {
    ist_config c = small_config(true);
    c.match = IST_MATCH_TRACKS;
    ist_engine *e = engines_open(&c);
    unsigned needs = IST_CAP_CPU | IST_CAP_VEC16;
    ist_build_stats builds = ist_device_builds(e->device);
    if ((ist_device_caps(e->device) & needs) == needs)
        cr_expect_leq(builds.built + builds.from_cache, 7, "probes and five units: %d", builds.built);
    else
        cr_expect_gt(builds.built + builds.from_cache, 7);
    ist_close(&e);
}

/* Where launches in a row become one, an engine for profiles has them apart. Both find the same, frame after frame,
 * whichever group comes late to a launch. */
Test(pipeline_profile, kernels_apart) {
    const int repeats = engines_lack_cpu() ? 10 : 100;
    ist_config c = small_config(false);
    ist_engine *frames = engines_open(&c), *apart = NULL;
    cr_assert_eq(ist_engine_open_apart(&c, NULL, &apart, &err), IST_OK, "%s", err.text);
    const unsigned need = IST_CAP_CPU | IST_CAP_VEC16 | IST_CAP_ATOMICS;
    if ((ist_device_caps(frames->device) & need) == need && !engines_lack_cpu())
        cr_expect_gt(kernels_of(apart), 2 * kernels_of(frames), "%d and %d", kernels_of(apart), kernels_of(frames));
    else
        cr_expect_eq(kernels_of(apart), kernels_of(frames));
    ist_image m = engines_image(320, 200, 5);
    const ist_result *want = engines_run(apart, &m, 1);
    cr_expect_gt(want->frames[0].object_count, 0);
    for (int i = 0; i < repeats; i++) {
        const ist_result *r = engines_run(frames, &m, 1);
        engines_same(&want->frames[0], &r->frames[0]);
        ist_release(frames, &r);
    }
    ist_close(&frames);
    ist_close(&apart);
    free((void *)m.pixels);
}

/* The first of the other processes leaves the file that says that they were there; one that has nothing to do ends.
 * device_jobs is about what they do on a GPU. */
Test(pipeline_profile, compiled_ahead) {
    char folder[512], path[1200], second[1200];
    folder_make(folder, sizeof folder);
    ist_config c = small_config(true);
    c.cache_dir = folder;
    cr_assert(ist_ahead_path(&c, path, sizeof path));
    struct ist_jobs *jobs = calloc(1, ist_ahead_bytes());
    cr_assert_not_null(jobs);
    ist_ahead_begin(jobs, 2);
    ist_ahead_end(jobs, true);
    cr_assert_eq(ist_ahead_compile(&c, jobs, 1, &err), IST_OK, "%s", err.text);
    cr_expect_neq(access(path, F_OK), 0);
    cr_assert_eq(ist_ahead_compile(&c, jobs, 0, &err), IST_OK, "%s", err.text);
    cr_expect_eq(access(path, F_OK), 0, "%s", path);
    ist_config other = c;
    other.batch = 2;
    cr_assert(ist_ahead_path(&other, second, sizeof second));
    cr_expect_str_neq(path, second);
    other.cache_dir = "off";
    cr_expect_not(ist_ahead_path(&other, second, sizeof second));
    cr_expect_eq(ist_ahead_compile(&other, jobs, 0, &err), IST_E_STATE);
    c.device = "no such device";
    cr_expect_eq(ist_ahead_compile(&c, jobs, 0, &err), IST_E_NO_DEVICE);
    c.device = NULL;
    c.segmenter = "/no/such/file.safetensors";
    ist_status missing = ist_ahead_compile(&c, jobs, 0, &err);
    cr_expect(missing == IST_OK || missing == IST_E_IO || missing == IST_E_WEIGHTS, "%d: %s", (int)missing, err.text);
    cr_expect_eq(ist_ahead_compile(&c, jobs, IST_AHEAD_MOST, &err), IST_E_STATE);
    free(jobs);
    folder_remove(folder);
}
