/* The program on a real device: synthetic checkpoints, the frames of the demo, what comes out and what is refused. */
#include "program.h"

#include "io/image.h"
#include "variants/variant.h"

#include <jansson.h>
#include <math.h>

#define FRAMES IST_SOURCE_DIR "/apps/frames"

typedef struct bench {
    scratch s;
    char detector[160], segmenter[160], out[160];
} bench;

static void make_checkpoint(const scratch *s, const char *model, const char *path) {
    spawned r = spawn_run(
        s, NULL, (const char *const[]){IST_BUILD_DIR "/tests/make_checkpoint", model, "g:1", "80", path, NULL});
    cr_assert_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
}

static bench make_bench(void) {
    bench b = {.s = scratch_make()};
    snprintf(b.detector, sizeof b.detector, "%s/n.safetensors", b.s.path);
    snprintf(b.segmenter, sizeof b.segmenter, "%s/sam.safetensors", b.s.path);
    snprintf(b.out, sizeof b.out, "%s/out", b.s.path);
    make_checkpoint(&b.s, "n", b.detector);
    make_checkpoint(&b.s, "sam", b.segmenter);
    return b;
}

static void expect(spawned r, int code, const char *err_part) {
    cr_expect_eq(r.code, code, "exit code %d, want %d; stderr: %s", r.code, code, r.err);
    cr_expect_not_null(strstr(r.err, err_part), "stderr lacks '%s': %s", err_part, r.err);
    spawn_free(&r);
}

#define RUN(b, ...) spawn_run(&(b)->s, NULL, (const char *const[]){IST_CLI, __VA_ARGS__, NULL})

static json_t *read_lines(const char *path) {
    char *text = scratch_read(path, NULL);
    cr_assert_not_null(text, "%s", path);
    json_t *lines = json_array();
    for (char *p = strtok(text, "\n"); p; p = strtok(NULL, "\n")) json_array_append_new(lines, json_loads(p, 0, NULL));
    free(text);
    return lines;
}

static double number(const json_t *o, const char *key) {
    cr_assert(json_is_number(json_object_get(o, key)), "%s", key);
    return json_number_value(json_object_get(o, key));
}

/* Scores fall, boxes are where they can be, the best object's pixels in the map are its area. */
static void check_line(const json_t *line, const bench *b) {
    const json_t *objects = json_object_get(line, "objects"), *transfers = json_object_get(line, "transfers");
    const char *slash = strrchr(json_string_value(json_object_get(line, "file")), '/');
    int width = (int)number(line, "width"), height = (int)number(line, "height");
    size_t i;
    json_t *o;
    cr_expect_eq(number(transfers, "writes"), 1);
    cr_expect_eq(number(transfers, "reads"), 1);
    cr_expect_leq(number(transfers, "waits"), 1);
    cr_assert_eq(json_array_size(objects), 3, "the synthetic detector sees something everywhere");
    double score = 1;
    json_array_foreach(objects, i, o) {
        const json_t *box = json_object_get(o, "box");
        double x0 = json_number_value(json_array_get(box, 0)), x1 = json_number_value(json_array_get(box, 2));
        cr_expect(number(o, "score") > 0.4 && number(o, "score") <= score);
        score = number(o, "score");
        cr_expect(x1 > x0 && x1 > 0 && x0 < width, "box %g..%g", x0, x1);
    }
    char stem[64];
    ist_bitmap map, overlay;
    long set = 0;
    snprintf(stem, sizeof stem, "%.*s", (int)strcspn(slash + 1, "."), slash + 1);
    cr_assert_eq(ist_bitmap_read(scratch_path(&b->s, "out/masks/%s.png", stem), 1 << 20, &map, NULL), IST_OK);
    cr_assert_eq(ist_bitmap_read(scratch_path(&b->s, "out/overlays/%s.png", stem), 1 << 20, &overlay, NULL), IST_OK);
    cr_assert(map.width == width && map.height == height && overlay.width == width && overlay.height == height);
    for (int k = 0; k < width * height; k++) set += ((const uint8_t *)map.pixels)[k] == 1;
    cr_expect_eq(set, (long)number(json_array_get(objects, 0), "area"), "%s", stem);
    ist_bitmap_free(&map);
    ist_bitmap_free(&overlay);
}

/* Inputs of the usual size take PoCL minutes where CPUs have no kernels of their own. */
Test(cli_device, demo_frames_give_boxes_and_masks) {
    bench b = make_bench();
    bool own = ist_variant_named(IST_NODE_CONV, "cpu_6x16");
    const char *size = own ? "640" : "256", *segmenter_size = own ? "1024" : "256";
    expect(RUN(&b, "predict", FRAMES, "-o", b.out, "--detector", b.detector, "--segmenter", b.segmenter,
               "--max-objects", "3", "--batch", "2", "--imgsz", size, "--segmenter-size", segmenter_size),
           0, "5 images, 0 failed");
    json_t *lines = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    cr_assert_eq(json_array_size(lines), 5);
    for (size_t i = 0; i < 5; i++) check_line(json_array_get(lines, i), &b);
    json_decref(lines);
    scratch_remove(&b.s);
}

Test(cli_device, tracks_classes_and_targets) {
    bench b = make_bench();
    expect(RUN(&b, "predict", FRAMES "/bone-1.png", FRAMES "/bone-1.png", "-o", b.out, "--detector", b.detector,
               "--no-masks", "--max-objects", "4", "--track"),
           0, "2 images, 0 failed");
    json_t *lines = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    const json_t *first = json_object_get(json_array_get(lines, 0), "objects");
    const json_t *second = json_object_get(json_array_get(lines, 1), "objects");
    cr_assert_eq(json_array_size(first), 4);
    for (size_t i = 0; i < 4; i++) {
        cr_expect_geq(number(json_array_get(first, i), "track"), 1);
        cr_expect_eq(number(json_array_get(first, i), "track"), number(json_array_get(second, i), "track"),
                     "the same image again continues every track");
    }
    /* the second detection as a target is matched by the second detection */
    const json_t *wanted = json_array_get(first, 1), *box = json_object_get(wanted, "box");
    char text[256];
    snprintf(text, sizeof text, "{\"bone-1.png\":[{\"box\":[%.9g,%.9g,%.9g,%.9g]}]}",
             json_number_value(json_array_get(box, 0)), json_number_value(json_array_get(box, 1)),
             json_number_value(json_array_get(box, 2)), json_number_value(json_array_get(box, 3)));
    scratch_put(scratch_path(&b.s, "targets.json"), text);
    expect(RUN(&b, "predict", FRAMES "/bone-1.png", "-o", b.out, "--detector", b.detector, "--no-masks",
               "--max-objects", "4", "--targets", scratch_path(&b.s, "targets.json")),
           0, "1 image");
    json_t *matched = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    const json_t *o = json_object_get(json_array_get(matched, 0), "objects");
    for (size_t i = 0; i < 4; i++)
        cr_expect_eq(number(json_array_get(o, i), "target"), i == 1 ? 0 : -1, "object %zu", i);
    cr_expect_gt(number(json_array_get(o, 1), "match_iou"), 0.999);
    /* only the class of the first detection */
    const char *name = json_string_value(json_object_get(json_array_get(first, 0), "name"));
    snprintf(text, sizeof text, " %s , %s", name, name);
    expect(RUN(&b, "predict", FRAMES "/bone-1.png", "-o", b.out, "--detector", b.detector, "--no-masks", "--classes",
               text),
           0, "1 image");
    json_t *chosen = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    const json_t *kept = json_object_get(json_array_get(chosen, 0), "objects");
    cr_expect_geq(json_array_size(kept), 1);
    for (size_t i = 0; i < json_array_size(kept); i++)
        cr_expect_str_eq(json_string_value(json_object_get(json_array_get(kept, i), "name")), name);
    json_decref(lines);
    json_decref(matched);
    json_decref(chosen);
    scratch_remove(&b.s);
}

Test(cli_device, wrong_checkpoints_are_exit_4) {
    bench b = make_bench();
    expect(RUN(&b, "predict", FRAMES, "-o", b.out, "--detector", b.segmenter, "--no-masks"), 4, "sam.safetensors");
    expect(RUN(&b, "predict", FRAMES, "-o", b.out, "--detector", b.detector, "--segmenter", b.detector), 4,
           "n.safetensors");
    size_t size = 0;
    char *bytes = scratch_read(b.detector, &size);
    scratch_write(b.detector, bytes, size / 2);
    free(bytes);
    expect(RUN(&b, "predict", FRAMES, "-o", b.out, "--detector", b.detector, "--no-masks"), 4, "n.safetensors");
    cr_expect(!scratch_exists(scratch_path(&b.s, "out/frames.ndjson")));
    scratch_remove(&b.s);
}

Test(cli_device, no_device_is_exit_3) {
    bench b = make_bench();
    expect(RUN(&b, "predict", FRAMES, "-o", b.out, "--detector", b.detector, "--no-masks", "--device", "no such"), 3,
           "no such");
    setenv("OCL_ICD_VENDORS", "/nonexistent", 1);
    expect(RUN(&b, "devices"), 3, "pocl-opencl-icd");
    expect(RUN(&b, "predict", FRAMES, "-o", b.out, "--detector", b.detector, "--no-masks"), 3, "isthmus: ");
    spawned r = RUN(&b, "devices", "--json");
    cr_expect_eq(r.code, 3);
    cr_expect_str_eq(r.out, "[]\n");
    spawn_free(&r);
    scratch_remove(&b.s);
}

Test(cli_device, devices_are_listed) {
    bench b = {.s = scratch_make()};
    spawned r = RUN(&b, "devices", "--json");
    json_t *list = json_loads(r.out, 0, NULL);
    int defaults = 0;
    cr_assert_eq(r.code, 0, "%s", r.err);
    cr_assert_geq(json_array_size(list), 1);
    for (size_t i = 0; i < json_array_size(list); i++) {
        cr_expect_eq(number(json_array_get(list, i), "index"), (double)i);
        cr_expect_gt(number(json_array_get(list, i), "global_bytes"), 0);
        cr_expect_geq(json_array_size(json_object_get(json_array_get(list, i), "capabilities")), 1);
        defaults += json_is_true(json_object_get(json_array_get(list, i), "default"));
    }
    cr_expect_eq(defaults, 1);
    json_decref(list);
    spawn_free(&r);
    scratch_remove(&b.s);
}

/* Launches of a source of kernels on PoCL, -1 where there is none; `why` has the capabilities that their variants have
 * in `key`, each behind a blank. */
static int launches_of(bench *b, const char *op, const char *key, char why[400]) {
    spawned r = RUN(b, "devices", "--json", "--detector", b->detector, "--segmenter", b->segmenter);
    cr_assert_eq(r.code, 0, "%s", r.err);
    json_t *list = json_loads(r.out, 0, NULL), *variants = NULL, *v, *cap;
    size_t i, k;
    int launches = 0, all = 0;
    *why = '\0';
    for (i = 0; i < json_array_size(list) && !variants; i++) {
        json_t *d = json_array_get(list, i);
        const char *platform = json_string_value(json_object_get(d, "platform_name"));
        if (!strstr(platform, "Portable")) continue;
        variants = json_object_get(d, "rows");
        cr_assert_not_null(variants, "%s", r.out);
        cr_expect_str_eq(json_string_value(json_object_get(d, "detector")), "dfine-n");
        cr_expect_str_eq(json_string_value(json_object_get(d, "segmenter")), "mobilesam");
        cr_expect_str_eq(json_string_value(json_object_get(d, "precision")), "fp32");
        all = (int)number(d, "launches");
    }
    json_array_foreach(variants, i, v) {
        const char *machine = json_string_value(json_object_get(v, "machine"));
        all -= (int)number(v, "launches");
        if (strcmp(json_string_value(json_object_get(v, "op")), op)) continue;
        cr_expect_eq(strncmp(op, machine, strcspn(op, "/")), 0, "%s of %s", op, machine);
        cr_expect_str_eq(json_string_value(json_object_get(v, "node")), "conv");
        launches += (int)number(v, "launches");
        json_array_foreach(json_object_get(v, key), k, cap) {
            size_t n = strlen(why);
            snprintf(why + n, 400 - n, " %s", json_string_value(cap));
        }
    }
    cr_expect_eq(all, 0, "every launch has a variant");
    if (!variants) launches = -1;
    json_decref(list);
    spawn_free(&r);
    return launches;
}

/* Portable variants are what is left where those of CPUs are hidden, or not built. */
static void check_portable_variants(bench *b) {
    char why[400];
    cr_expect_eq(launches_of(b, "cpu/conv", "because", why), 0);
    cr_expect_gt(launches_of(b, "portable/conv_any", "because", why), 20);
    cr_expect_not_null(strstr(why, " GROUP256"), "%s", why);
}

Test(cli_device, devices_say_which_variants_and_why) {
    bench b = make_bench();
    char why[400];
    setenv("ISTHMUS_CAPS", "-X86_BF16,-X86_AMX", 1);
    int launches = launches_of(&b, "cpu/conv", "because", why);
    if (launches >= 0 && !ist_variant_named(IST_NODE_CONV, "cpu_6x16")) {
        check_portable_variants(&b);
    } else if (launches >= 0) {
        cr_expect_gt(launches, 20);
        cr_expect_not_null(strstr(why, " CPU"), "%s", why);
        cr_expect_not_null(strstr(why, " VEC16"), "%s", why);
        setenv("ISTHMUS_CAPS", "-X86_BF16,-X86_AMX,-SIMD16", 1);
        cr_expect_gt(launches_of(&b, "cpu/conv", "missing", why), 20);
        cr_expect_not_null(strstr(why, " SIMD16"), "%s", why);
        spawned r = RUN(&b, "devices", "--detector", b.detector, "--no-masks");
        cr_expect_eq(r.code, 0, "%s", r.err);
        cr_expect_not_null(strstr(r.out, "dfine-n in fp32, "), "%s", r.out);
        const char *line = strstr(r.out, "  conv cpu/cpu_6x16 ");
        cr_assert_not_null(line, "%s", r.out);
        cr_expect_str_eq(strtok((char *)line, "\n"),
                         "  conv cpu/cpu_6x16                     cpu/conv               CPU VEC16 no:SIMD16");
        spawn_free(&r);
        setenv("ISTHMUS_CAPS", "-CPU,-SIMD16", 1);
        check_portable_variants(&b);
    }
    scratch_remove(&b.s);
}

/* A list of devices needs no checkpoint; one that was named has to be one. */
Test(cli_device, devices_without_a_frame) {
    bench b = make_bench();
    setenv("ISTHMUS_WEIGHTS_DIR", b.s.path, 1);
    spawned r = RUN(&b, "devices");
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect_not_null(strstr(r.out, "* is used when"), "%s", r.out);
    cr_expect_null(strstr(r.out, "LAUNCHES"), "%s", r.out);
    cr_expect_not_null(strstr(r.err, "dfine_n_demo.safetensors"), "%s", r.err);
    spawn_free(&r);
    expect(RUN(&b, "devices", "--detector", "/nonexistent"), 4, "/nonexistent");
    expect(RUN(&b, "devices", "--detector", b.segmenter, "--no-masks"), 4, "sam.safetensors");
    scratch_put(scratch_path(&b.s, "dfine_n_demo.safetensors"), "damaged");
    r = RUN(&b, "devices", "--no-masks");
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect_not_null(strstr(r.out, "no variants: "), "%s", r.out);
    spawn_free(&r);
    r = RUN(&b, "devices", "--no-masks", "--json");
    json_t *list = json_loads(r.out, 0, NULL);
    cr_assert_geq(json_array_size(list), 1, "%s", r.out);
    cr_expect_not_null(json_object_get(json_array_get(list, 0), "rows_problem"), "%s", r.out);
    json_decref(list);
    spawn_free(&r);
    scratch_remove(&b.s);
}

Test(cli_device, a_device_that_computes_wrongly_is_said_and_refused) {
    bench b = {.s = scratch_make()};
    setenv("ISTHMUS_CAPS", "-LONG_LOOPS", 1);
    spawned r = RUN(&b, "devices", "--no-masks");
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect_not_null(strstr(r.out, " unusable: "), "%s", r.out);
    cr_expect_not_null(strstr(r.out, " computes wrong results: it leaves long loops early"), "%s", r.out);
    spawn_free(&r);
    expect(RUN(&b, "predict", FRAMES, "-o", scratch_path(&b.s, "out")), 3, " computes wrong results: ");
    cr_expect(!scratch_exists(scratch_path(&b.s, "out/results.json")));
    scratch_remove(&b.s);
}

/* What a driver does not survive is said, and costs the variants that need it. */
Test(cli_device, a_deadly_probe_is_named_and_a_frame_does_without) {
    bench b = {.s = scratch_make()};
    setenv("ISTHMUS_PROBE", IST_BUILD_DIR "/tests/isthmus-probe-deadly", 1);
    setenv("ISTHMUS_CACHE_DIR", b.s.path, 1);
    setenv("DEADLY", "vec16=abort", 1);
    spawned r = RUN(&b, "devices", "--no-masks");
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect_str_empty(r.err);
    cr_expect_not_null(strstr(r.out, " deadly:VEC16\n"), "%s", r.out);
    cr_expect_not_null(strstr(r.out, "deadly: the driver did not survive"), "%s", r.out);
    cr_expect_null(strstr(r.out, "conv cpu/"), "variants of CPUs need it: %s", r.out);
    spawn_free(&r);
    r = RUN(&b, "devices", "--no-masks", "--json");
    json_t *list = json_loads(r.out, 0, NULL);
    cr_assert_geq(json_array_size(list), 1, "%s", r.out);
    const json_t *deadly = json_object_get(json_array_get(list, 0), "deadly");
    cr_assert_eq(json_array_size(deadly), 1, "%s", r.out);
    cr_expect_str_eq(json_string_value(json_array_get(deadly, 0)), "VEC16");
    json_decref(list);
    spawn_free(&r);
    scratch_remove(&b.s);
}

Test(cli_device, info_and_convert) {
    bench b = make_bench();
    spawned r = RUN(&b, "info", b.detector);
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect_not_null(strstr(r.out, "model        dfine-n\nclasses      80\ntensors      674\n"), "%s", r.out);
    cr_expect_not_null(strstr(r.out, "missing      0\n"), "%s", r.out);
    spawn_free(&r);
    expect(RUN(&b, "convert", b.detector, scratch_path(&b.s, "half.safetensors"), "--half"), 0, "674 tensors written");
    r = RUN(&b, "info", scratch_path(&b.s, "half.safetensors"));
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect_not_null(strstr(r.out, "types        F16 592, "), "%s", r.out);
    spawn_free(&r);
    scratch_remove(&b.s);
}

Test(cli_device, the_example_of_the_readme_works) {
    bench b = make_bench();
    spawned r = spawn_run(&b.s, NULL,
                          (const char *const[]){IST_BUILD_DIR "/apps/isthmus_example", b.detector, b.segmenter,
                                                FRAMES "/phantom.png", NULL});
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect_eq(strncmp(r.out, "label ", 6), 0, "%s", r.out);
    spawn_free(&r);
    scratch_remove(&b.s);
}
