/* `isthmus verify` and `predict --device all` on a real device, with the weights that ship: as they are, and with
 * statistics that half cannot take. */
#include "io/image.h"
#include "program.h"
#include "support/results.h"
#include "variants/variant.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>

#define WEIGHTS IST_SOURCE_DIR "/weights"

#define VERIFY(s, precision, ...)                                                                                      \
    spawn_run((s), NULL, (const char *const[]){IST_CLI, "verify", "--precision", precision, __VA_ARGS__, NULL})
#define REAL(s, ...) VERIFY(s, "fp16", __VA_ARGS__)

static void expect(spawned r, int code, const char *out_part, const char *err_part) {
    cr_expect_eq(r.code, code, "exit code %d, want %d; stderr: %s", r.code, code, r.err);
    cr_expect_not_null(strstr(r.out, out_part), "stdout lacks '%s': %s", out_part, r.out);
    cr_expect_not_null(strstr(r.err, err_part), "stderr lacks '%s': %s", err_part, r.err);
    spawn_free(&r);
}

/* The demo detector with all of an F32 tensor's values replaced. */
static void change_weights(const char *path, const char *name, float value) {
    size_t size = 0;
    char *file = scratch_read(WEIGHTS "/dfine_n_demo.safetensors", &size);
    uint64_t header = 0;
    cr_assert_not_null(file);
    memcpy(&header, file, sizeof header);
    json_t *tensors = json_loadb(file + 8, (size_t)header, 0, NULL), *tensor = json_object_get(tensors, name);
    cr_assert_not_null(tensor, "no tensor %s", name);
    cr_assert_str_eq(json_string_value(json_object_get(tensor, "dtype")), "F32");
    const json_t *place = json_object_get(tensor, "data_offsets");
    for (size_t at = (size_t)json_integer_value(json_array_get(place, 0));
         at < (size_t)json_integer_value(json_array_get(place, 1)); at += sizeof value)
        memcpy(file + 8 + header + at, &value, sizeof value);
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(file, 1, size, f) == size && !fclose(f));
    json_decref(tensors);
    free(file);
}

Test(cli_real, half_on_this_device) {
    scratch s = scratch_make();
    setenv("ISTHMUS_WEIGHTS_DIR", WEIGHTS, 1);
    expect(REAL(&s, "--limit", "1"), 0, "F1 at box IoU 0.9", "");
    scratch_remove(&s);
}

/* A demo frame in the 12-bit range 300..3615: through that window results and overlay are those of the frame itself; a
 * PNG says no window. */
Test(cli_real, windows) {
    scratch s = scratch_make();
    ist_error err;
    ist_bitmap frame, deep;
    char file[200], plain[200], through[200], path[300];
    size_t n[2];
    setenv("ISTHMUS_WEIGHTS_DIR", WEIGHTS, 1);
    cr_assert_eq(ist_bitmap_read(WEIGHTS "/demo/frame-001.png", IST_MAX_PIXELS, &frame, &err), IST_OK, "%s", err.text);
    cr_assert_eq(frame.format, IST_GRAY8);
    cr_assert_eq(
        ist_bitmap_allocate("deep", (size_t)frame.width, (size_t)frame.height, IST_GRAY16, IST_MAX_PIXELS, &deep, &err),
        IST_OK);
    for (int i = 0; i < frame.width * frame.height; i++)
        ((uint16_t *)deep.pixels)[i] = (uint16_t)(300 + 13 * ((const uint8_t *)frame.pixels)[i]);
    snprintf(file, sizeof file, "%s", scratch_path(&s, "frame-001.png"));
    snprintf(plain, sizeof plain, "%s", scratch_path(&s, "plain"));
    snprintf(through, sizeof through, "%s", scratch_path(&s, "through"));
    cr_assert_eq(ist_png_write(file, &deep, &err), IST_OK, "%s", err.text);
#define WINDOW(source, out, ...)                                                                                       \
    spawn_run(&s, NULL,                                                                                                \
              (const char *const[]){IST_CLI, "predict", source, "-o", out, "--no-masks", "--save", "json,overlay",     \
                                    "--quiet", __VA_ARGS__, NULL})
    expect(WINDOW(WEIGHTS "/demo/frame-001.png", plain, "--window", "dicom"), 0, "", ""); /* of 8 bits: as it is */
    expect(WINDOW(file, through, "--window", "300:3615"), 0, "", "");
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "overlays/frame-001.png" : "results.json";
        snprintf(path, sizeof path, "%s/%s", plain, name);
        char *want = scratch_read(path, &n[0]);
        snprintf(path, sizeof path, "%s/%s", through, name);
        char *got = scratch_read(path, &n[1]);
        cr_assert(want && got && n[0] == n[1] && !memcmp(want, got, n[0]), "%s", name);
        cr_assert_gt(n[0], 20);
        free(want), free(got);
    }
    expect(WINDOW(file, through, "--window", "auto"), 0, "", "");
    expect(WINDOW(file, through, "--window", "dicom"), 1, "",
           "carries no window for --window dicom; give LOW:HIGH or auto");
#undef WINDOW
    ist_bitmap_free(&frame);
    ist_bitmap_free(&deep);
    scratch_remove(&s);
}

/* Two frames side by side, in tiles that are the frames and as a whole: objects of both, in one write and one read. */
Test(cli_real, tiles) {
    enum { SIDE = 400 };
    scratch s = scratch_make();
    ist_error err;
    ist_bitmap both;
    char file[200], out[200], path[300];
    setenv("ISTHMUS_WEIGHTS_DIR", WEIGHTS, 1);
    cr_assert_eq(ist_bitmap_allocate("both", 2 * SIDE, SIDE, IST_RGB8, IST_MAX_PIXELS, &both, &err), IST_OK);
    for (int k = 0; k < 2; k++) {
        ist_bitmap frame, rgb;
        snprintf(path, sizeof path, WEIGHTS "/demo/frame-%03d.png", 9 + 2 * k);
        cr_assert_eq(ist_bitmap_read(path, IST_MAX_PIXELS, &frame, &err), IST_OK, "%s", err.text);
        cr_assert_eq(ist_bitmap_as_rgb(&frame, 0, 0, &rgb, &err), IST_OK, "%s", err.text);
        for (int y = 0; y < SIDE; y++)
            memcpy((char *)both.pixels + (size_t)y * both.stride + (size_t)(3 * SIDE * k),
                   (char *)rgb.pixels + (size_t)y * rgb.stride, 3 * SIDE);
        ist_bitmap_free(&frame), ist_bitmap_free(&rgb);
    }
    snprintf(file, sizeof file, "%s", scratch_path(&s, "both.png"));
    snprintf(out, sizeof out, "%s", scratch_path(&s, "out"));
    cr_assert_eq(ist_png_write(file, &both, &err), IST_OK, "%s", err.text);
    expect(spawn_run(&s, NULL,
                     (const char *const[]){IST_CLI, "predict", file, "-o", out, "--no-masks", "--tile", "400x400+0",
                                           "--save", "ndjson", "--quiet", NULL}),
           0, "", "");
    snprintf(path, sizeof path, "%s/frames.ndjson", out);
    json_t *line = json_load_file(path, JSON_DISABLE_EOF_CHECK, NULL), *objects = json_object_get(line, "objects"), *o;
    json_t *transfers = json_object_get(line, "transfers");
    size_t i, halves[2] = {0};
    json_array_foreach(objects, i, o) {
        const json_t *box = json_object_get(o, "box");
        double x = json_number_value(json_array_get(box, 0)) + json_number_value(json_array_get(box, 2));
        halves[x / 2 > SIDE]++;
    }
    cr_expect(halves[0] && halves[1], "%zu and %zu objects", halves[0], halves[1]);
    cr_expect_eq(json_integer_value(json_object_get(transfers, "writes")), 1);
    cr_expect_eq(json_integer_value(json_object_get(transfers, "reads")), 1);
    json_decref(line);
    ist_bitmap_free(&both);
    scratch_remove(&s);
}

/* Refused where the processor does not have it; elsewhere results differ from fp32's, but not by much. */
Test(cli_real, bfloat16_on_this_device) {
    scratch s = scratch_make();
    setenv("ISTHMUS_WEIGHTS_DIR", WEIGHTS, 1);
    spawned r = VERIFY(&s, "bf16", "--limit", "1", "--no-masks", "--json");
    if (r.code != 1 || !strstr(r.err, "has no AVX512_BF16")) {
        json_t *all = json_loads(r.out, 0, NULL), *stages = json_object_get(all, "stages");
        cr_assert_eq(r.code, 0, "exit code %d: %s", r.code, r.err);
        cr_expect_str_eq(json_string_value(json_object_get(json_object_get(all, "tested"), "precision")), "bf16");
        double error = json_number_value(json_object_get(json_array_get(stages, 0), "relative_error"));
        if (ist_variant_named(IST_NODE_CONV, "bf16_6x64"))
            cr_expect(error > 5e-4 && error < 5e-3, "backbone: %g", error); /* fp16: 2e-4, fp32: 1e-6 */
        else
            cr_expect_lt(error, 1e-5, "backbone: %g, of variants none of which rounds to bfloat16", error);
        json_decref(all);
    }
    spawn_free(&r);
    setenv("ISTHMUS_CAPS", "-X86_BF16", 1);
    expect(VERIFY(&s, "bf16", "--limit", "1", "--no-masks"), 1, "", "isthmus: bfloat16: ");
    unsetenv("ISTHMUS_CAPS");
    scratch_remove(&s);
}

/* The weights that ship, asked by a box and by a point in it. */
Test(cli_real, segment_on_this_device) {
    scratch s = scratch_make();
    char out[200], prompts[200];
    setenv("ISTHMUS_WEIGHTS_DIR", WEIGHTS, 1);
    snprintf(out, sizeof out, "%s", scratch_path(&s, "out"));
    snprintf(prompts, sizeof prompts, "%s", scratch_path(&s, "p.json"));
    scratch_put(prompts, "{\"frame-001.png\": [{\"box\": [40, 60, 240, 200]}, {\"points\": [[141, 130, 1]], \"box\":"
                         "[40, 60, 240, 200]}]}");
    expect(spawn_run(&s, NULL,
                     (const char *const[]){IST_CLI, "segment", WEIGHTS "/demo/frame-001.png", "-o", out, "--boxes",
                                           prompts, "--save", "ndjson", NULL}),
           0, "", "1 image, 0 failed");
    json_t *line = json_load_file(scratch_path(&s, "out/frames.ndjson"), 0, NULL);
    const json_t *objects = json_object_get(line, "objects"), *moved = json_object_get(line, "transfers");
    cr_assert_eq(json_array_size(objects), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *o = json_array_get(objects, i);
        cr_expect_gt(json_integer_value(json_object_get(o, "area")), 100);
        cr_expect(json_number_value(json_object_get(o, "score")) > 0.1);
    }
    cr_expect_eq(json_integer_value(json_object_get(moved, "writes")), 1);
    cr_expect_eq(json_integer_value(json_object_get(moved, "reads")), 1);
    cr_expect_leq(json_integer_value(json_object_get(moved, "waits")), 1);
    json_decref(line);
    scratch_remove(&s);
}

/* All masks of four points, of a small network's input; and what the real engine refuses in the options. */
Test(cli_real, everything_on_this_device) {
    scratch s = scratch_make();
    char out[200];
    setenv("ISTHMUS_WEIGHTS_DIR", WEIGHTS, 1);
    snprintf(out, sizeof out, "%s", scratch_path(&s, "out"));
#define EVERYTHING(...)                                                                                                \
    spawn_run(&s, NULL,                                                                                                \
              (const char *const[]){IST_CLI, "segment", WEIGHTS "/demo/frame-001.png", "-o", out, "--everything",      \
                                    "--segmenter-size", "256", __VA_ARGS__, NULL})
    expect(EVERYTHING("--points-per-side", "128", "--crop-n-layers", "3"), 2, "", "points in 85 crops");
    expect(EVERYTHING("--points-per-side", "2", "--pred-iou-thresh", "-1", "--stability-score-thresh", "-1",
                      "--box-nms-thresh", "1", "--save", "json,ndjson,masks,overlay"),
           0, "", "1 image, 0 failed");
    json_t *line = json_load_file(scratch_path(&s, "out/frames.ndjson"), 0, NULL);
    json_t *results = json_load_file(scratch_path(&s, "out/results.json"), 0, NULL);
    const json_t *objects = json_object_get(line, "objects"), *moved = json_object_get(line, "transfers");
    const double width = json_number_value(json_object_get(line, "width"));
    cr_assert_eq(json_array_size(objects), 12);
    cr_assert_eq(json_array_size(results), 12);
    for (size_t i = 0; i < 12; i++) {
        const json_t *o = json_array_get(objects, i), *r = json_array_get(results, i);
        const double x = json_number_value(json_array_get(json_object_get(o, "point"), 0));
        cr_expect(x == width / 4 || x == width * 3 / 4, "point at %g", x);
        cr_expect_eq(json_number_value(json_array_get(json_object_get(o, "crop_box"), 2)), width);
        cr_expect_eq(json_number_value(json_object_get(r, "predicted_iou")),
                     json_number_value(json_object_get(o, "mask_score")));
        cr_expect_eq(json_number_value(json_array_get(json_array_get(json_object_get(r, "point_coords"), 0), 0)), x);
        cr_expect(json_object_get(r, "segmentation") && json_object_get(r, "stability_score"));
    }
    cr_expect_eq(json_integer_value(json_object_get(moved, "writes")), 1);
    cr_expect_eq(json_integer_value(json_object_get(moved, "reads")), 1);
    cr_expect_leq(json_integer_value(json_object_get(moved, "waits")), 1);
    cr_expect(scratch_exists(scratch_path(&s, "out/overlays/frame-001.png")));
    cr_expect(scratch_exists(scratch_path(&s, "out/masks/frame-001.png")));
    json_decref(line);
    json_decref(results);
    scratch_remove(&s);
}

/* A bias of a million after the first convolution: floats carry it, halves end at 65504. */
Test(cli_real, activations_beyond_half_are_found) {
    scratch s = scratch_make();
    setenv("ISTHMUS_WEIGHTS_DIR", WEIGHTS, 1);
    change_weights(scratch_path(&s, "wrong.safetensors"), "backbone.stem.stem1.bn.running_mean", -1e6f);
    expect(REAL(&s, "--limit", "1", "--no-masks", "--detector", scratch_path(&s, "wrong.safetensors")), 6, "FAILED",
           "verify: backbone: the relative error is");
    scratch_remove(&s);
}

/* Variances of minus epsilon leave next to nothing to divide by: the folded filter is beyond half, and fp16 says whose
 * it is. */
Test(cli_real, weights_beyond_half_are_named) {
    scratch s = scratch_make();
    setenv("ISTHMUS_WEIGHTS_DIR", WEIGHTS, 1);
    change_weights(scratch_path(&s, "wrong.safetensors"), "backbone.stem.stem1.bn.running_var", -1e-5f);
    expect(REAL(&s, "--limit", "1", "--no-masks", "--detector", scratch_path(&s, "wrong.safetensors")), 4, "",
           "backbone.stem.stem1");
    scratch_remove(&s);
}

/* ---- several devices ---- */

/* PoCL makes as many devices as it is told to. */
Test(cli_real, two_real_devices) {
    scratch s = scratch_make();
    setenv("ISTHMUS_WEIGHTS_DIR", WEIGHTS, 1);
    setenv("POCL_DEVICES", "pthread pthread", 1);
    static const char *const devices[] = {"Portable", "all:Portable"};
    for (int i = 0; i < 2; i++)
        expect(spawn_run(&s, NULL,
                         (const char *const[]){IST_CLI, "predict", WEIGHTS "/demo", "--limit", "3", "--device",
                                               devices[i], "-o", scratch_path(&s, "out%d", i), NULL}),
               0, "", "3 images, 0 failed");
    same_results(&s, "out0", "out1");
    scratch_remove(&s);
}

/* Every command that opens a checkpoint ends with exit code 4 and the sentence. */
static void expect_every_command(const scratch *s, const char *model, const char *sentence) {
    static const char frame[] = WEIGHTS "/demo/frame-001.png";
    char out[256], converted[256];
    snprintf(out, sizeof out, "%s", scratch_path(s, "out"));
    snprintf(converted, sizeof converted, "%s", scratch_path(s, "o.safetensors"));
    setenv("ISTHMUS_WEIGHTS_DIR", WEIGHTS, 1);
    const char *const commands[][8] = {
        {"predict", frame, "-o", out, "--no-masks", "--detector", model},
        {"eval", frame, "--annotations", WEIGHTS "/demo/annotations.json", "--detector", model},
        {"audit", frame, "--no-masks", "--detector", model},
        {"bench", "--no-masks", "--detector", model},
        {"profile", "--no-masks", "--detector", model},
        {"tune", "--no-masks", "--detector", model},
        {"verify", "--no-masks", "--detector", model},
        {"info", model},
        {"info", "--graph", model},
        {"convert", model, converted},
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const char *argv[10] = {IST_CLI};
        for (int k = 0; k < 8 && commands[i][k]; k++) argv[1 + k] = commands[i][k];
        expect(spawn_run(s, NULL, argv), 4, "", sentence);
    }
    cr_expect(!scratch_exists(converted));
}

Test(cli_real, values_that_are_no_numbers_are_named_by_every_command) {
    scratch s = scratch_make();
    char model[256];
    snprintf(model, sizeof model, "%s", scratch_path(&s, "m.safetensors"));
    change_weights(model, "backbone.stem.stem3.bn.running_mean", NAN);
    expect_every_command(
        &s, model, "backbone.stem.stem3.bn.running_mean: element 0 of 16 is not a number as float32, and 15 more");
    scratch_remove(&s);
}

/* A list beside the checkpoint that says something else: no command goes on. */
Test(cli_real, sums_are_checked_by_every_command) {
    static const char says[] =
        "m.safetensors: its SHA-256 is 071e095797e7d92907ffbf49be892dcf950d2f2d32712a0f1a268309c797"
        "3a96, SHA256SUMS beside it says 0000";
    scratch s = scratch_make();
    char model[256], line[100];
    size_t size = 0;
    char *file = scratch_read(WEIGHTS "/dfine_n_demo.safetensors", &size);
    cr_assert_not_null(file);
    snprintf(model, sizeof model, "%s", scratch_path(&s, "m.safetensors"));
    snprintf(line, sizeof line, "%064d  m.safetensors\n", 0);
    scratch_write(model, file, size);
    free(file);
    scratch_put(scratch_path(&s, "SHA256SUMS"), line);
    expect_every_command(&s, model, says);
    expect(spawn_run(&s, NULL,
                     (const char *const[]){IST_CLI, "predict", WEIGHTS "/demo/frame-001.png", "-o",
                                           scratch_path(&s, "out"), "--segmenter", model, NULL}),
           4, "", says);
    snprintf(line, sizeof line, "%064d  other.safetensors\n", 0);
    scratch_put(scratch_path(&s, "SHA256SUMS"), line);
    expect(spawn_run(&s, NULL, (const char *const[]){IST_CLI, "info", model, NULL}), 0, "dfine-n", "");
    remove(scratch_path(&s, "SHA256SUMS"));
    mkdir(scratch_path(&s, "SHA256SUMS"), 0777);
    expect(spawn_run(&s, NULL, (const char *const[]){IST_CLI, "bench", "--no-masks", "--detector", model, NULL}), 4, "",
           "SHA256SUMS: is not a regular file");
    scratch_remove(&s);
}

/* The demo detector keeps its anchors as floats: with them it finds the same but for last bits; at another size they do
 * not fit. */
Test(cli_real, stored_constants) {
    static const char frame[] = WEIGHTS "/demo/frame-001.png";
    scratch s = scratch_make();
    setenv("ISTHMUS_WEIGHTS_DIR", WEIGHTS, 1);
    json_t *written[2], *one;
    for (int i = 0; i < 2; i++) {
        char out[256];
        snprintf(out, sizeof out, "%s", scratch_path(&s, "out%d", i));
        expect(spawn_run(&s, NULL,
                         (const char *const[]){IST_CLI, "predict", frame, "-o", out, "--no-masks", "--save", "json",
                                               "--quiet", i ? "--stored-constants" : NULL, NULL}),
               0, "", "");
        written[i] = json_load_file(scratch_path(&s, "out%d/results.json", i), 0, NULL);
        cr_assert_eq(json_array_size(written[i]), 2);
    }
    size_t k;
    json_array_foreach(written[0], k, one) {
        const json_t *other = json_array_get(written[1], k);
        for (size_t c = 0; c < 4; c++)
            cr_expect_float_eq(json_number_value(json_array_get(json_object_get(one, "bbox"), c)),
                               json_number_value(json_array_get(json_object_get(other, "bbox"), c)), 1e-3);
    }
    json_decref(written[0]);
    json_decref(written[1]);
    static const char sentence[] = "stored constants: decoder.anchors: want [1,1280,4], file has [1,2000,4]";
    expect(
        spawn_run(&s, NULL,
                  (const char *const[]){IST_CLI, "bench", "--no-masks", "--stored-constants", "--imgsz", "512", NULL}),
        4, "", sentence);
    expect(
        spawn_run(&s, NULL,
                  (const char *const[]){IST_CLI, "verify", "--no-masks", "--stored-constants", "--imgsz", "512", NULL}),
        4, "", sentence);
    scratch_remove(&s);
}
