/* `isthmus bench` and `isthmus profile`: percentiles, options, what is printed. Over a double of the engine
 * (tests/fake_engine.c), whose times are known: every batch takes 1 ms, a replay 0.75 ms, its three launches 0.5, 8 and
 * 1.5 ms, its peak is 100 GFLOP/s and 8 GB/s. And once on a real device. */
#include "program.h"

#include "../apps/percentile.h"

#include <jansson.h>
#include <math.h>

#define FAKE IST_BUILD_DIR "/tests/isthmus_fake"

typedef struct bench {
    scratch s;
    char weights[160], trace[160];
} bench;

/* A folder with default checkpoints (the double does not read them) and one for temporary files. */
static bench make_bench(void) {
    bench b = {.s = scratch_make()};
    snprintf(b.weights, sizeof b.weights, "%s/weights", b.s.path);
    snprintf(b.trace, sizeof b.trace, "%s/trace.json", b.s.path);
    mkdir(b.weights, 0777);
    mkdir(scratch_path(&b.s, "temporary"), 0777);
    scratch_put(scratch_path(&b.s, "weights/dfine_n_demo.safetensors"), "");
    scratch_put(scratch_path(&b.s, "weights/mobile_sam_demo.safetensors"), "");
    setenv("ISTHMUS_WEIGHTS_DIR", b.weights, 1);
    setenv("TMPDIR", scratch_path(&b.s, "temporary"), 1);
    return b;
}

static void end_bench(bench *b) {
    cr_expect_eq(rmdir(scratch_path(&b->s, "temporary")), 0, "something is left in TMPDIR");
    unsetenv("TMPDIR");
    scratch_remove(&b->s);
}

#define RUN(b, program, ...) spawn_run(&(b)->s, NULL, (const char *const[]){program, __VA_ARGS__, NULL})

static void expect(spawned r, int code, const char *out_part, const char *err_part) {
    cr_expect_eq(r.code, code, "exit code %d, want %d; stderr: %s", r.code, code, r.err);
    cr_expect_not_null(strstr(r.out, out_part), "stdout lacks '%s': %s", out_part, r.out);
    cr_expect_not_null(strstr(r.err, err_part), "stderr lacks '%s': %s", err_part, r.err);
    if (code) cr_expect_str_empty(r.out);
    if (code) cr_expect_eq(strchr(r.err, '\n'), strrchr(r.err, '\n'), "one sentence: %s", r.err);
    spawn_free(&r);
}

static json_t *json_of(spawned r) {
    json_error_t problem;
    cr_assert_eq(r.code, 0, "%s", r.err);
    cr_expect_str_empty(r.err);
    json_t *o = json_loads(r.out, 0, &problem);
    cr_assert_not_null(o, "%s: %s", problem.text, r.out);
    spawn_free(&r);
    return o;
}

static double number(const json_t *o, const char *key) {
    cr_assert(json_is_number(json_object_get(o, key)), "%s", key);
    return json_number_value(json_object_get(o, key));
}

static void near(double got, double want) {
    cr_expect(fabs(got - want) <= 1e-6 * fabs(want), "%g, want %g", got, want);
}

/* The object has these members in this order, and no others. */
static void has_keys(const json_t *o, const char *const *keys) {
    const char *key;
    json_t *value;
    size_t n = 0;
    json_object_foreach((json_t *)o, key, value) {
        cr_assert_not_null(keys[n], "%s is too many", key);
        cr_expect_str_eq(key, keys[n]);
        n++;
    }
    cr_expect_null(keys[n], "%s is missing", keys[n]);
}

Test(cli_bench, percentiles_are_nearest_ranks) {
    double hundred[100], five[5] = {50, 15, 40, 20, 35}, one[1] = {7};
    for (int i = 0; i < 100; i++) hundred[i] = (i * 37) % 100 + 1; /* 1..100, shuffled */
    percentile_sort(hundred, 100);
    cr_expect_eq(percentile(hundred, 100, 50), 50);
    cr_expect_eq(percentile(hundred, 100, 90), 90);
    cr_expect_eq(percentile(hundred, 100, 99), 99);
    cr_expect_eq(percentile(hundred, 100, 100), 100);
    cr_expect_eq(percentile(hundred, 100, 0), 1);
    percentile_sort(five, 5);
    cr_expect_eq(percentile(five, 5, 5), 15); /* the textbook's example */
    cr_expect_eq(percentile(five, 5, 30), 20);
    cr_expect_eq(percentile(five, 5, 40), 20);
    cr_expect_eq(percentile(five, 5, 50), 35);
    cr_expect_eq(percentile(five, 5, 100), 50);
    percentile_sort(one, 1);
    cr_expect_eq(percentile(one, 1, 50), 7);
    cr_expect_eq(percentile(one, 1, 99), 7);
    percentile_sort(one, 0);
    cr_expect_eq(percentile(one, 0, 50), 0);
}

static const char *const bench_keys[] = {
    "device",     "driver",         "precision", "detector",  "segmenter",         "batch", "scope", "frames",
    "latency_ms", "throughput_fps", "start_ms",  "stages_ms", "peak_device_bytes", NULL};

Test(cli_bench, json_has_the_documented_members) {
    bench b = make_bench();
    json_t *o = json_of(RUN(&b, FAKE, "bench", "--json", "--frames", "7", "--batch", "2", "--size", "64x48"));
    const json_t *ms = json_object_get(o, "latency_ms"), *stages = json_object_get(o, "stages_ms");
    has_keys(o, bench_keys);
    const json_t *start = json_object_get(o, "start_ms");
    has_keys(start, (const char *const[]){"open", "first_batch", NULL});
    cr_expect(number(start, "open") >= 0 && number(start, "first_batch") > 0);
    has_keys(ms, (const char *const[]){"p50", "p90", "p99", "min", NULL});
    has_keys(stages, (const char *const[]){"preprocess", "backbone", NULL});
    cr_expect_str_eq(json_string_value(json_object_get(o, "device")), "Fake \"device\"");
    cr_expect_str_eq(json_string_value(json_object_get(o, "driver")), "1");
    cr_expect_str_eq(json_string_value(json_object_get(o, "precision")), "fp32");
    cr_expect_str_eq(json_string_value(json_object_get(o, "detector")), "dfine-n");
    cr_expect_str_eq(json_string_value(json_object_get(o, "segmenter")), "mobilesam");
    cr_expect_str_eq(json_string_value(json_object_get(o, "scope")), "upload_to_packet");
    cr_expect_eq(number(o, "batch"), 2);
    cr_expect_eq(number(o, "frames"), 8, "whole batches");
    cr_expect_eq(number(ms, "p50"), 1);
    cr_expect_eq(number(ms, "p90"), 1);
    cr_expect_eq(number(ms, "p99"), 1);
    cr_expect_eq(number(ms, "min"), 1);
    cr_expect_gt(number(o, "throughput_fps"), 0);
    cr_expect_eq(number(stages, "preprocess"), 0.5);
    cr_expect_eq(number(stages, "backbone"), 9.5);
    cr_expect_eq(number(o, "peak_device_bytes"), 1 << 20);
    json_decref(o);
    end_bench(&b);
}

Test(cli_bench, scopes) {
    bench b = make_bench();
    json_t *o = json_of(RUN(&b, FAKE, "bench", "--json", "--scope", "kernels", "--frames", "4", "--warmup", "0"));
    has_keys(o, bench_keys);
    cr_expect_str_eq(json_string_value(json_object_get(o, "scope")), "kernels");
    cr_expect_eq(number(json_object_get(o, "latency_ms"), "p50"), 0.75);
    near(number(o, "throughput_fps"), 1000 / 0.75);
    json_decref(o);
    o = json_of(RUN(&b, FAKE, "bench", "--json", "--scope", "staged_to_packet", "--frames", "4", "--batch", "2", "--size",
                    "64x48"));
    has_keys(o, bench_keys);
    cr_expect_str_eq(json_string_value(json_object_get(o, "scope")), "staged_to_packet");
    cr_expect_eq(number(json_object_get(o, "latency_ms"), "p50"), 0.25, "the engine found the pixels where it said");
    json_decref(o);
    o = json_of(RUN(&b, FAKE, "bench", "--json", "--scope", "file_to_file", "--frames", "5", "--warmup", "2", "--batch",
                    "2", "--size", "64x48", "--no-masks"));
    has_keys(o, bench_keys);
    cr_expect_str_eq(json_string_value(json_object_get(o, "scope")), "file_to_file");
    cr_expect(json_is_null(json_object_get(o, "segmenter")));
    cr_expect_eq(number(o, "frames"), 6);
    cr_expect_gt(number(json_object_get(o, "latency_ms"), "min"), 0);
    cr_expect_gt(number(o, "throughput_fps"), 0);
    json_decref(o);
    cr_assert_eq(chdir(b.s.path), 0);
    setenv("TMPDIR", "temporary", 1); /* no absolute path */
    json_decref(json_of(
        RUN(&b, FAKE, "bench", "--json", "--scope", "file_to_file", "--frames", "3", "--warmup", "0", "--no-masks")));
    end_bench(&b); /* nothing is left in TMPDIR */
}

Test(cli_bench, text_says_what_was_measured) {
    bench b = make_bench();
    expect(RUN(&b, FAKE, "bench", "--frames", "5", "--warmup", "3", "--boxes", "4"), 0,
           "segmenter   mobilesam, 4 objects per frame\n"
           "scope       upload_to_packet, 5 frames after 3 of warm-up\n"
           "latency     p50 1.00, p90 1.00, p99 1.00, least 1.00 ms per batch\n",
           "");
    expect(RUN(&b, FAKE, "bench", "--frames", "1"), 0, "detector    dfine-n, fp32, 1280 x 720 pixels, batch 1\n", "");
    expect(RUN(&b, FAKE, "bench", "--frames", "1", "--overlap"), 0, "pixels, batch 1, overlap\n", "");
    expect(RUN(&b, FAKE, "bench", "--frames", "1", "--overlap"), 0, "memory      2.0 MiB", "");
    expect(RUN(&b, FAKE, "bench", "--frames", "1", "--overlap", "--no-overlap"), 0, "pixels, batch 1\n", "");
    expect(RUN(&b, FAKE, "bench", "--frames", "1"), 0, "memory      1.0 MiB", "");
    expect(RUN(&b, FAKE, "bench", "--frames", "1"), 0, "  backbone               9.500 ms  95.0 %\n", "");
    end_bench(&b);
}

Test(cli_bench, mistakes_are_named) {
    bench b = make_bench();
    expect(RUN(&b, FAKE, "bench", "--size", "64"), 2, "", "--size: '64' is not WxH");
    expect(RUN(&b, FAKE, "bench", "--size", "0x48"), 2, "", "--size: '0x48'");
    expect(RUN(&b, FAKE, "bench", "--size", "64x48x3"), 2, "", "--size: '64x48x3'");
    expect(RUN(&b, FAKE, "profile", "--size", "60000x60000"), 2, "", "profile: --size: 60000x60000 is more than");
    expect(RUN(&b, FAKE, "bench", "--boxes", "301"), 2, "", "--boxes: '301' is not a whole number from 1 to 300");
    expect(RUN(&b, FAKE, "bench", "--frames", "0"), 2, "", "--frames: '0'");
    expect(RUN(&b, FAKE, "bench", "--batch", "65"), 2, "", "--batch: '65'");
    expect(RUN(&b, FAKE, "bench", "--scope", "all"), 2, "", "--scope: 'all' is none of");
    expect(RUN(&b, FAKE, "profile", "--scope", "kernels"), 2, "", "unknown or ambiguous option '--scope'");
    expect(RUN(&b, FAKE, "bench", "--trace", "x"), 2, "", "unknown or ambiguous option '--trace'");
    expect(RUN(&b, FAKE, "bench", "--precision", "int8"), 2, "", "--precision: 'int8'");
    expect(RUN(&b, FAKE, "bench", "image.png"), 2, "", "unexpected argument 'image.png'");
    expect(RUN(&b, FAKE, "bench", "--no-masks", "--segmenter", "x"), 2, "", "exclude each other");
    expect(RUN(&b, FAKE, "profile", "--detector", "/nonexistent.pth"), 4, "", "/nonexistent.pth: No such file");
    scratch_put(b.trace, "");
    expect(RUN(&b, FAKE, "profile", "--trace", scratch_path(&b.s, "trace.json/x")), 1, "", "trace.json");
    setenv("FAKE_ENGINE", "lost:0", 1); /* said before anything is measured */
    expect(RUN(&b, FAKE, "profile", "--trace", scratch_path(&b.s, "trace.json/x")), 1, "", ": Not a directory");
    expect(RUN(&b, FAKE, "profile", "--trace", b.s.path), 1, "", "Is a directory");
    setenv("FAKE_ENGINE", "lost:3", 1);
    expect(RUN(&b, FAKE, "bench", "--frames", "5"), 1, "", "the device is lost");
    spawned r = RUN(&b, FAKE, "bench", "--frames", "5", "--warmup", "0", "--scope", "file_to_file");
    cr_expect_eq(r.code, 1);
    cr_expect_str_empty(r.out);
    cr_expect_not_null(strstr(r.err, "the device is lost\n"), "%s", r.err);
    spawn_free(&r);
    unsetenv("FAKE_ENGINE");
    expect(RUN(&b, FAKE, "bench", "--help"), 0, "--boxes K", "");
    expect(RUN(&b, FAKE, "profile", "--help"), 0, "--trace FILE", "");
    end_bench(&b);
}

#define KERNELS(b, ...)                                                                                                \
    RUN(b, FAKE, "bench", "--scope", "kernels", "--frames", "2", "--warmup", "0", "--baseline", path, __VA_ARGS__)

static void expect_slower(spawned r, const char *out_part, const char *sentence) {
    cr_expect_eq(r.code, 1, "%s", r.err);
    cr_expect_not_null(strstr(r.out, out_part), "%s", r.out);
    cr_expect_not_null(strstr(r.err, sentence), "%s", r.err);
    spawn_free(&r);
}

/* A batch takes 0.75 ms in this scope. */
Test(cli_bench, a_baseline_is_a_gate) {
    bench b = make_bench();
    char path[200], text[600];
    snprintf(path, sizeof path, "%s", scratch_path(&b.s, "baseline.json"));
    spawned r = RUN(&b, FAKE, "bench", "--scope", "kernels", "--frames", "2", "--warmup", "0", "--json");
    cr_assert_eq(r.code, 0, "%s", r.err);
    scratch_put(path, r.out);
    spawn_free(&r);
    expect(KERNELS(&b, NULL), 0, "baseline    p50 0.75 ms, now +0.0 %; 1333.33 frames per second, now +0.0 %\n", "");
    static const char form[] =
        "{\"device\":\"Fake \\\"device\\\"\",\"driver\":\"0\",\"precision\":\"fp32\",\"detector\":"
        "\"dfine-n\",\"segmenter\":\"mobilesam\",\"batch\":%d,\"scope\":\"kernels\",\"latency_ms\":"
        "{\"p50\":%g},\"throughput_fps\":%g}";
    snprintf(text, sizeof text, form, 1, 0.6, 1000.0);
    scratch_put(path, text);
    expect_slower(KERNELS(&b, "--max-regression", "10%"), "p50 0.60 ms, now +25.0 %",
                  "a batch takes 0.75 ms (p50), 25.0 % more than the 0.6 of ");
    expect_slower(KERNELS(&b, "--json"), "\"p50\":0.75", "at most 5 % are allowed\n");
    expect(KERNELS(&b, "--max-regression", "26"), 0, "now +33.3 %\n", "");
    snprintf(text, sizeof text, form, 1, 0.75, 2000.0);
    scratch_put(path, text);
    expect_slower(KERNELS(&b, NULL), "now -33.3 %", "1333 frames per second, 33.3 % less than the 2000 of ");
    snprintf(text, sizeof text, form, 2, 0.75, 2000.0);
    scratch_put(path, text);
    expect(KERNELS(&b, NULL), 1, "", "baseline.json: its batch is '2', this run's is '1'");
    snprintf(text, sizeof text, form, 1, 0.0, 2000.0);
    scratch_put(path, text);
    expect(KERNELS(&b, NULL), 1, "", "baseline.json: is not what bench --json prints");
    scratch_put(path, "[");
    expect(KERNELS(&b, NULL), 1, "", "baseline.json: line 1");
    unlink(path);
    expect(KERNELS(&b, NULL), 1, "", "baseline.json: No such file");
    expect(KERNELS(&b, "--max-regression", "5%%"), 2, "", "--max-regression: '5%%' is not a number of percent");
    expect(KERNELS(&b, "--max-regression", "-1"), 2, "", "--max-regression: '-1'");
    expect(RUN(&b, FAKE, "bench", "--max-regression", "5"), 2, "", "--max-regression needs --baseline FILE");
    end_bench(&b);
}

/* The record's place is looked at before minutes of measuring, which the double of the engine refuses. */
Test(cli_bench, tune_knows_early_where_its_record_goes) {
    bench b = make_bench();
    scratch_put(scratch_path(&b.s, "file"), "");
    setenv("ISTHMUS_CACHE_DIR", scratch_path(&b.s, "file/cache"), 1);
    expect(RUN(&b, FAKE, "tune"), 1, "", ": Not a directory");
    setenv("ISTHMUS_CACHE_DIR", scratch_path(&b.s, "new/cache"), 1);
    expect(RUN(&b, FAKE, "tune"), 1, "", "has no kernels");
    cr_expect(!scratch_exists(scratch_path(&b.s, "new")));
    setenv("ISTHMUS_CACHE_DIR", "off", 1);
    spawned r = RUN(&b, FAKE, "tune");
    cr_expect_eq(r.code, 1);
    cr_expect_not_null(strstr(r.err, "the record will be lost\n"), "%s", r.err);
    spawn_free(&r);
    end_bench(&b);
}

Test(cli_bench, profile_sums_by_stage_and_kernel) {
    bench b = make_bench();
    json_t *o = json_of(RUN(&b, FAKE, "profile", "--json", "--frames", "2"));
    const json_t *kernels = json_object_get(o, "kernels"), *launches = json_object_get(o, "launches");
    const json_t *conv = json_array_get(kernels, 0), *resize = json_array_get(kernels, 1);
    has_keys(o, (const char *const[]){"device", "driver", "precision", "detector", "segmenter", "batch", "frames",
                                      "peak", "frame_ms", "stages_ms", "kernels", "launches", NULL});
    cr_expect_eq(number(o, "frame_ms"), 0.75);
    cr_expect_eq(number(json_object_get(o, "peak"), "gflops"), 100);
    cr_expect_eq(json_array_size(kernels), 2);
    cr_expect_str_eq(json_string_value(json_object_get(conv, "kernel")), "cpu/conv conv -D MR=4");
    cr_expect_eq(number(conv, "launches"), 2);
    cr_expect_eq(number(conv, "ms"), 9.5);
    near(number(conv, "gflops"), 0.5 / 9.5e-3);
    near(number(conv, "peak_share"), 5 / 9.5); /* 5 ms at the peak */
    near(number(resize, "gbytes_per_s"), 4);
    near(number(resize, "peak_share"), 0.5);
    cr_expect_eq(json_array_size(launches), 3);
    cr_expect_str_eq(json_string_value(json_object_get(json_array_get(launches, 1), "label")), "conv \"a\"");
    cr_expect_str_eq(json_string_value(json_object_get(json_array_get(launches, 1), "stage")), "backbone");
    json_decref(o);
    end_bench(&b);
}

Test(cli_bench, profile_draws_tables_and_a_flame) {
    bench b = make_bench();
    spawned r = RUN(&b, FAKE, "profile");
    cr_assert_eq(r.code, 0, "%s", r.err);
    /* 56 columns for 10 ms: 0.5 ms are two, 9.5 ms the other 54 */
    cr_expect_not_null(strstr(r.out, "preprocess                           0.500 ms   5.0 % |##   "), "%s", r.out);
    cr_expect_not_null(strstr(r.out, "backbone                             9.500 ms  95.0 % |  ####"), "%s", r.out);
    cr_expect_not_null(strstr(r.out, "  cpu/conv conv                      9.500 ms  95.0 % |  ----"), "%s", r.out);
    cr_expect_not_null(strstr(r.out, "    9.500   95.0      52.6       0.2    52.6       2  cpu/conv conv -D MR=4\n"),
                       "%s", r.out);
    cr_expect_not_null(strstr(r.out, "    0.500    5.0         -       4.0    50.0  preprocess: resize\n"), "%s",
                       r.out);
    spawn_free(&r);
    end_bench(&b);
}

Test(cli_bench, a_trace_has_every_launch_and_stage) {
    bench b = make_bench();
    expect(RUN(&b, FAKE, "profile", "--trace", b.trace), 0, "cpu/conv", "");
    json_t *o = json_load_file(b.trace, 0, NULL);
    const json_t *events = json_object_get(o, "traceEvents");
    double end[3] = {0}; /* by row, microseconds */
    int spans[3] = {0};
    size_t i;
    json_t *e;
    cr_assert_not_null(o);
    json_array_foreach(events, i, e) {
        if (strcmp(json_string_value(json_object_get(e, "ph")), "X")) continue;
        int row = (int)number(e, "tid");
        cr_assert(row == 1 || row == 2);
        near(number(e, "ts") + 1, end[row] + 1); /* spans of a row follow each other */
        end[row] += number(e, "dur");
        spans[row]++;
    }
    cr_expect_eq(spans[1], 2);
    cr_expect_eq(spans[2], 3);
    near(end[1], 1e4);
    near(end[2], 1e4);
    json_decref(o);
    end_bench(&b);
}

/* A real engine: what is measured is there, and K boxes are K objects' work whatever the checkpoint sees. */
Test(cli_bench, on_a_device) {
    bench b = make_bench();
    char n[160];
    snprintf(n, sizeof n, "%s/n.safetensors", b.s.path);
    spawned made = RUN(&b, IST_BUILD_DIR "/tests/make_checkpoint", "n", "g:1", "80", n);
    cr_assert_eq(made.code, 0, "%s", made.err);
    spawn_free(&made);
    json_t *o = json_of(RUN(&b, IST_CLI, "bench", "--detector", n, "--no-masks", "--json", "--frames", "3", "--warmup",
                            "1", "--size", "320x200", "--boxes", "5"));
    const json_t *ms = json_object_get(o, "latency_ms"), *stages = json_object_get(o, "stages_ms");
    has_keys(o, bench_keys);
    has_keys(stages, (const char *const[]){"preprocess", "detector_backbone", "detector_encoder", "detector_decoder",
                                           "detections", "pack", NULL});
    cr_expect_eq(number(o, "frames"), 3);
    cr_expect(0 < number(ms, "min") && number(ms, "min") <= number(ms, "p50"));
    cr_expect(number(ms, "p50") <= number(ms, "p90") && number(ms, "p90") <= number(ms, "p99"));
    cr_expect_gt(number(o, "peak_device_bytes"), 1 << 20);
    json_decref(o);
    o = json_of(RUN(&b, IST_CLI, "profile", "--detector", n, "--no-masks", "--json", "--frames", "1", "--warmup", "0",
                    "--size", "320x200"));
    cr_expect_gt(number(json_object_get(o, "peak"), "gflops"), 0);
    cr_expect_gt(number(json_object_get(o, "peak"), "gbytes_per_s"), 0);
    cr_expect_gt(json_array_size(json_object_get(o, "launches")), 50);
    json_decref(o);
    expect(RUN(&b, IST_CLI, "bench", "--detector", n, "--no-masks", "--device", "no such"), 3, "", "no such");
    expect(RUN(&b, IST_CLI, "bench", "--detector", b.trace, "--no-masks"), 4, "", "trace.json");
    end_bench(&b);
}
