/* The program's surface: help, version, mistakes on the command line, exit codes. A double of the engine is enough. */
#include "program.h"

#include <jansson.h>
#include <math.h>

#define PROGRAM     IST_BUILD_DIR "/tests/isthmus_fake"
#define RUN(s, ...) spawn_run(s, NULL, (const char *const[]){PROGRAM, __VA_ARGS__, NULL})

static void expect(spawned r, int code, const char *out_part, const char *err_part) {
    cr_expect_eq(r.code, code, "exit code %d, want %d; stderr: %s", r.code, code, r.err);
    if (out_part)
        cr_expect_not_null(strstr(r.out, out_part), "stdout lacks '%s': %s", out_part, r.out);
    else
        cr_expect_str_empty(r.out);
    if (err_part)
        cr_expect_not_null(strstr(r.err, err_part), "stderr lacks '%s': %s", err_part, r.err);
    else
        cr_expect_str_empty(r.err);
    spawn_free(&r);
}

Test(cli_program, help_and_version) {
    scratch s = scratch_make();
    expect(RUN(&s, "--version"), 0, "isthmus 0.1.0\n", NULL);
    expect(RUN(&s, "--version"), 0, "OpenIGTLink ", NULL);
    expect(RUN(&s, "--help"), 0, "  predict ", NULL);
    expect(RUN(&s, "--help"), 0, "SOURCE... -o DIR [options]     find objects", NULL);
    expect(RUN(&s, "--help"), 0, "--source DIR\n                                          what predict, a program",
           NULL);
    expect(RUN(&s, "-h"), 0, "exit codes", NULL);
    expect(RUN(&s, "predict", "--help"), 0, "--max-objects N", NULL);
    expect(RUN(&s, "segment", "--help"), 0, "--multimask", NULL);
    expect(RUN(&s, "segment", "--help"), 0, "--serve HOST:PORT", NULL);
    expect(RUN(&s, "live", "--help"), 0, "--deadline MS", NULL);
    expect(RUN(&s, "devices", "--help"), 0, "--json", NULL);
    expect(RUN(&s, "info", "-h"), 0, "usage: isthmus info [--graph [--device SPEC]] FILE", NULL);
    expect(RUN(&s, "convert", "--help"), 0, "--half", NULL);
    expect(RUN(&s, "predict", "--help"), 0, "all or all:SPEC", NULL);
    spawned verify = RUN(&s, "verify", "--help");
    cr_expect_null(strstr(verify.out, "all:SPEC"), "verify takes one device");
    spawn_free(&verify);
    expect(spawn_run(&s, NULL, (const char *const[]){PROGRAM, NULL}), 2, NULL, "usage: isthmus");
    scratch_remove(&s);
}

Test(cli_program, mistakes_are_usage_errors) {
    scratch s = scratch_make();
    expect(RUN(&s, "detect"), 2, NULL, "'detect' is not a subcommand");
    expect(RUN(&s, "segment"), 2, NULL, "at least one image");
    expect(RUN(&s, "segment", "x"), 2, NULL, "-o DIR is missing");
    expect(RUN(&s, "segment", "x", "-o", "y"), 2, NULL, "give one of --boxes FILE, --points FILE and --everything");
    expect(RUN(&s, "segment", "x", "-o", "y", "--boxes", "b", "--points", "p"), 2, NULL, "give one of --boxes");
    expect(RUN(&s, "segment", "x", "-o", "y", "--points", ""), 2, NULL, "--points: the name of the file is empty");
    expect(RUN(&s, "segment", "x", "-o", "y", "--points", "p", "--detector", "d"), 2, NULL, "'--detector'");
    expect(RUN(&s, "segment", "x", "-o", "y", "--points", "p", "--multimask=3"), 2, NULL, "takes no value");
    expect(RUN(&s, "predict", "x", "-o", "y", "--points", "p"), 2, NULL, "'--points'");
    expect(RUN(&s, "predict"), 2, NULL, "at least one image");
    expect(RUN(&s, "predict", "x"), 2, NULL, "-o DIR is missing");
    expect(RUN(&s, "predict", "x", "-o"), 2, NULL, "'-o' needs a value");
    expect(RUN(&s, "predict", "x", "-o", ""), 2, NULL, "empty");
    expect(RUN(&s, "predict", "--wrong", "x"), 2, NULL, "'--wrong'");
    expect(RUN(&s, "predict", "-z", "x"), 2, NULL, "'-z'");
    expect(RUN(&s, "predict", "--resume=yes", "x"), 2, NULL, "takes no value");
    expect(RUN(&s, "predict", "x", "-o", "y", "--conf", "1.5"), 2, NULL, "--conf: '1.5'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--conf", "nan"), 2, NULL, "--conf");
    expect(RUN(&s, "predict", "x", "-o", "y", "--conf", "0x1p-1"), 2, NULL, "--conf: '0x1p-1'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--conf", " 0.5"), 2, NULL, "--conf: ' 0.5'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--nms", "0"), 2, NULL, "--nms: '0' is not a number above 0, at most 1");
    expect(RUN(&s, "predict", "x", "-o", "y", "--nms", "1.01"), 2, NULL, "--nms: '1.01'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--nms", "nan"), 2, NULL, "--nms: 'nan'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--nms"), 2, NULL, "'--nms' needs a value");
    expect(RUN(&s, "predict", "x", "-o", "y", "--agnostic"), 2, NULL, "predict: --agnostic needs --nms IOU");
    expect(RUN(&s, "eval", "x", "--annotations", "y", "--agnostic"), 2, NULL, "eval: --agnostic needs --nms IOU");
    expect(RUN(&s, "predict", "x", "-o", "y", "--track", "--track-iou", "-1"), 2, NULL, "--track-iou: '-1'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--track", "--track-age", "1.5"), 2, NULL, "--track-age: '1.5'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--track-iou", "0.5"), 2, NULL, "predict: --track-iou needs --track");
    expect(RUN(&s, "predict", "x", "-o", "y", "--track-age", "3"), 2, NULL, "predict: --track-age needs --track");
    expect(RUN(&s, "predict", "x", "-o", "y", "--no-detector"), 2, NULL, "predict: --no-detector needs --targets FILE");
    expect(RUN(&s, "predict", "x", "-o", "y", "--no-detector", "--targets", "t", "--max-objects", "3"), 2, NULL,
           "predict: --no-detector and --max-objects exclude each other");
    expect(RUN(&s, "predict", "x", "-o", "y", "--no-detector", "--targets", "t", "--no-masks"), 2, NULL,
           "--no-detector and --no-masks exclude each other");
    expect(RUN(&s, "predict", "x", "-o", "y", "--max-objects", " 3"), 2, NULL, "--max-objects: ' 3'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--batch", "0"), 2, NULL, "--batch: '0'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--batch", "65"), 2, NULL, "from 1 to 64");
    expect(RUN(&s, "predict", "x", "-o", "y", "--max-objects", "301"), 2, NULL, "from 1 to 300");
    expect(RUN(&s, "predict", "x", "-o", "y", "--imgsz", "650"), 2, NULL, "--imgsz: '650' is not N or WxH");
    expect(RUN(&s, "predict", "x", "-o", "y", "--imgsz", "640x"), 2, NULL, "--imgsz: '640x'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--imgsz", "640x480x3"), 2, NULL, "--imgsz: '640x480x3'");
    expect(RUN(&s, "bench", "--imgsz", "32x640"), 2, NULL, "--imgsz: '32x640'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--window", "300:200"), 2, NULL,
           "--window: '300:200' is none of LOW:HIGH with LOW below HIGH, from -1000000 to 1000000, auto and dicom");
    expect(RUN(&s, "eval", "--window", "7:7"), 2, NULL, "--window: '7:7'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--window", "0:1000001"), 2, NULL, "--window: '0:1000001'");
    expect(RUN(&s, "segment", "x", "-o", "y", "--window", "4095"), 2, NULL, "--window: '4095'");
    expect(RUN(&s, "segment", "x", "--serve", "127.0.0.1:0", "--window", "auto"), 2, NULL, "--serve excludes -o");
    expect(RUN(&s, "predict", "x", "-o", "y", "--no-masks", "--tile", "640"), 2, NULL, "--tile: '640' is not WxH or WxH+OVERLAP");
    expect(RUN(&s, "predict", "x", "-o", "y", "--tile", "640x640+321"), 2, NULL, "--tile: '640x640+321'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--tile", "640x480+"), 2, NULL, "--tile: '640x480+'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--tile", "640x480+9x"), 2, NULL, "--tile: '640x480+9x'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--tile", "31x640"), 2, NULL, "--tile: '31x640'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--tile", "640x640", "--no-detector"), 2, NULL, "--no-detector exclude");
    expect(RUN(&s, "eval", "--resize-order", "pillow"), 2, NULL,
           "--resize-order: 'pillow' is none of auto, horizontal, vertical, pillow13");
    expect(RUN(&s, "predict", "x", "-o", "y", "--segmenter-size", "100"), 2, NULL,
           "--segmenter-size: '100' is not a multiple of 32");
    expect(RUN(&s, "predict", "x", "-o", "y", "--limit", "3x"), 2, NULL, "--limit");
    expect(RUN(&s, "predict", "x", "-o", "y", "--precision", "int8"), 2, NULL, "'int8'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--save", "json,video"), 2, NULL, "'video'");
    expect(RUN(&s, "predict", "x", "-o", "y", "--save", ""), 2, NULL, "''");
    expect(RUN(&s, "predict", "x", "-o", "y", "--no-masks", "--save", "masks"), 2, NULL, "exclude");
    expect(RUN(&s, "predict", "x", "-o", "y", "--track", "--targets", "t"), 2, NULL, "exclude");
    expect(RUN(&s, "predict", "x", "-o", "y", "--no-masks", "--segmenter", "t"), 2, NULL, "exclude");
    expect(RUN(&s, "predict", "x", "", "-o", "y"), 2, NULL, "image or folder 2 is empty");
    expect(RUN(&s, "predict", "x", "-o", "y", "--detector", ""), 2, NULL, "--detector: the name of the file is empty");
    expect(RUN(&s, "eval", "--annotations=", "x"), 2, NULL, "--annotations: the name of the file is empty");
    expect(RUN(&s, "devices", "extra"), 2, NULL, "'extra'");
    expect(RUN(&s, "info"), 2, NULL, "one file name");
    expect(RUN(&s, "info", "a", "b"), 2, NULL, "got 2");
    expect(RUN(&s, "convert", "a"), 2, NULL, "two file names");
    expect(RUN(&s, "convert", "a", "b.pth"), 2, NULL, ".safetensors");
    expect(RUN(&s, "convert", "a", "b.safetensors", "--set", "key"), 2, NULL, "--set: 'key' is not KEY=VALUE");
    expect(RUN(&s, "convert", "a", "b.safetensors", "--set", "=v"), 2, NULL, "--set: '=v'");
    cr_expect(!scratch_exists("y"), "a mistake must leave nothing behind");
    scratch_remove(&s);
}

Test(cli_program, double_dash_ends_options) {
    scratch s = scratch_make();
    expect(RUN(&s, "info", "--", "--help"), 4, NULL, "--help");
    scratch_remove(&s);
}

Test(cli_program, devices_as_json_and_table) {
    scratch s = scratch_make();
    spawned r = RUN(&s, "devices", "--json");
    json_t *list = json_loads(r.out, 0, NULL);
    cr_assert_eq(json_array_size(list), 1, "%s", r.out);
    const json_t *d = json_array_get(list, 0);
    cr_expect_str_eq(json_string_value(json_object_get(d, "name")), "Fake \"device\"");
    cr_expect_str_eq(json_string_value(json_object_get(d, "type")), "cpu");
    cr_expect(json_is_true(json_object_get(d, "default")));
    cr_expect_eq(json_integer_value(json_object_get(d, "global_bytes")), 1 << 30);
    cr_expect_eq(json_integer_value(json_object_get(d, "compute_units")), 2);
    json_decref(list);
    spawn_free(&r);
    setenv("ISTHMUS_WEIGHTS_DIR", IST_SOURCE_DIR "/weights", 1);
    expect(RUN(&s, "devices"), 0, "* 0     cpu      2   1.0 GiB  Fake", NULL);
    setenv("ISTHMUS_WEIGHTS_DIR", s.path, 1);
    expect(RUN(&s, "devices"), 0, "* 0     cpu      2   1.0 GiB  Fake", "without a checkpoint");
    scratch_remove(&s);
}

Test(cli_program, a_closed_output_is_an_error) {
    if (access("/dev/full", W_OK)) cr_skip_test("no /dev/full");
    int status = system(PROGRAM " --help > /dev/full 2> /dev/null");
    cr_expect_eq(WEXITSTATUS(status), 1);
}

Test(cli_program, bad_models_are_exit_4) {
    scratch s = scratch_make();
    expect(RUN(&s, "info", scratch_path(&s, "gone.pth")), 4, NULL, "gone.pth");
    scratch_put(scratch_path(&s, "bad.safetensors"), "not a checkpoint");
    expect(RUN(&s, "info", scratch_path(&s, "bad.safetensors")), 4, NULL, "bad.safetensors");
    expect(RUN(&s, "convert", scratch_path(&s, "bad.safetensors"), scratch_path(&s, "o.safetensors")), 4, NULL, "bad");
    cr_expect(!scratch_exists(scratch_path(&s, "o.safetensors")));
    expect(RUN(&s, "convert", scratch_path(&s, "bad.safetensors"), scratch_path(&s, "bad.safetensors")), 2, NULL,
           "both");
    scratch_remove(&s);
}

/* `float32 x[count]` of this value, as safetensors. */
static void put_floats(const char *path, float value, int count) {
    char text[96] = {0};
    int length = snprintf(text + 8, sizeof text - 8,
                          "{\"x\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", count, 4 * count);
    text[0] = (char)length;
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fwrite(text, 1, (size_t)length + 8, file), (size_t)length + 8);
    for (int i = 0; i < count; i++) cr_assert_eq(fwrite(&value, sizeof value, 1, file), 1);
    fclose(file);
}

static void put_checkpoint(const char *path, float value) {
    put_floats(path, value, 1);
}

/* Metadata follow the eight bytes of the header's length. */
Test(cli_program, convert_sets_metadata) {
    scratch s = scratch_make();
    put_checkpoint(scratch_path(&s, "in.safetensors"), 1);
    expect(RUN(&s, "convert", scratch_path(&s, "in.safetensors"), scratch_path(&s, "out.safetensors"), "--set",
               "image_size=512", "--set", "activation=silu", "--set", "image_size=256"),
           0, NULL, "1 tensor written");
    char *bytes = scratch_read(scratch_path(&s, "out.safetensors"), NULL);
    cr_expect_not_null(strstr(bytes + 8, "\"image_size\":\"256\""), "%s", bytes + 8);
    cr_expect_not_null(strstr(bytes + 8, "\"activation\":\"silu\""), "%s", bytes + 8);
    free(bytes);
    scratch_remove(&s);
}

Test(cli_program, convert_makes_the_folder_of_its_output) {
    scratch s = scratch_make();
    put_checkpoint(scratch_path(&s, "in.safetensors"), 1);
    expect(RUN(&s, "convert", scratch_path(&s, "in.safetensors"), scratch_path(&s, "a/b/out.safetensors")), 0, NULL,
           "a/b/out.safetensors: 1 tensor written");
    cr_expect(scratch_exists(scratch_path(&s, "a/b/out.safetensors")));
    scratch_put(scratch_path(&s, "bad.safetensors"), "not a checkpoint");
    expect(RUN(&s, "convert", scratch_path(&s, "bad.safetensors"), scratch_path(&s, "c/d/out.safetensors")), 4, NULL,
           "bad.safetensors");
    put_checkpoint(scratch_path(&s, "large.safetensors"), 1e9f);
    expect(RUN(&s, "convert", scratch_path(&s, "large.safetensors"), scratch_path(&s, "c/d/out.safetensors"), "--half"),
           4, NULL, "half precision ends at 65504");
    cr_expect(!scratch_exists(scratch_path(&s, "c")), "a failure must leave no folder behind");
    expect(RUN(&s, "convert", scratch_path(&s, "large.safetensors"), scratch_path(&s, "a/b/new.safetensors"), "--half"),
           4, NULL, "half precision ends at 65504");
    cr_expect(scratch_exists(scratch_path(&s, "a/b/out.safetensors")), "what was there stays");
    expect(RUN(&s, "convert", scratch_path(&s, "in.safetensors"), scratch_path(&s, "bad.safetensors/out.safetensors")),
           1, NULL, "Not a directory");
    scratch_remove(&s);
}

Test(cli_program, a_file_beyond_the_limit_is_a_failed_write) {
    scratch s = scratch_make();
    put_floats(scratch_path(&s, "in.safetensors"), 1, 10000);
    mkdir(scratch_path(&s, "out"), 0777);
    static const char limited[] = "ulimit -f 16; exec \"$0\" \"$@\"";
    const char *const argv[] = {"/bin/sh",
                                "-c",
                                limited,
                                PROGRAM,
                                "convert",
                                scratch_path(&s, "in.safetensors"),
                                scratch_path(&s, "out/out.safetensors"),
                                NULL};
    expect(spawn_run(&s, NULL, argv), 1, NULL, "File too large");
    cr_expect_eq(rmdir(scratch_path(&s, "out")), 0, "something is left behind");
    scratch_remove(&s);
}

Test(cli_program, convert_writes_names_as_long_as_they_can_be) {
    scratch s = scratch_make();
    char name[256];
    memset(name, 'x', 255);
    memcpy(name + 255 - strlen(".safetensors"), ".safetensors", sizeof ".safetensors");
    put_checkpoint(scratch_path(&s, "in.safetensors"), 1);
    expect(RUN(&s, "convert", scratch_path(&s, "in.safetensors"), scratch_path(&s, "%s", name)), 0, NULL, "1 tensor");
    cr_expect(scratch_exists(scratch_path(&s, "%s", name)));
    scratch_remove(&s);
}

/* ---- checkpoints with values that are no numbers ---- */

static uint64_t little_endian(const unsigned char *bytes) {
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | bytes[i];
    return n;
}

/* Overwrites element `index` of a float32 tensor in a safetensors file. */
static void overwrite(const char *path, const char *tensor, long index, float value) {
    FILE *f = fopen(path, "r+b");
    unsigned char length[8];
    cr_assert_not_null(f);
    cr_assert_eq(fread(length, 1, 8, f), 8);
    size_t n = (size_t)little_endian(length);
    char *text = malloc(n);
    cr_assert_eq(fread(text, 1, n, f), n);
    json_t *header = json_loadb(text, n, 0, NULL);
    json_t *offsets = json_object_get(json_object_get(header, tensor), "data_offsets");
    cr_assert_eq(json_array_size(offsets), 2, "%s", tensor);
    long at = 8 + (long)n + (long)json_integer_value(json_array_get(offsets, 0)) + 4 * index;
    cr_assert_eq(fseek(f, at, SEEK_SET), 0);
    cr_assert_eq(fwrite(&value, sizeof value, 1, f), 1);
    fclose(f);
    json_decref(header);
    free(text);
}

static void make_model(const scratch *s, const char *path) {
    spawned r =
        spawn_run(s, NULL, (const char *const[]){IST_BUILD_DIR "/tests/make_checkpoint", "n", "1", "80", path, NULL});
    cr_assert_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
}

Test(cli_program, values_that_are_no_numbers_are_exit_4) {
    scratch s = scratch_make();
    char model[256], out[256];
    snprintf(model, sizeof model, "%s", scratch_path(&s, "m.safetensors"));
    snprintf(out, sizeof out, "%s", scratch_path(&s, "o.safetensors"));
    make_model(&s, model);
    overwrite(model, "decoder.anchors", 5, NAN); /* is not needed */
    expect(RUN(&s, "info", model), 0, "dfine-n", NULL);
    expect(RUN(&s, "convert", model, out), 0, NULL, "written");
    remove(out);
    overwrite(model, "encoder.encoder.0.layers.0.norm1.weight", 3, NAN);
    overwrite(model, "encoder.encoder.0.layers.0.norm1.weight", 7, INFINITY);
    static const char sentence[] = "m.safetensors: encoder.encoder.0.layers.0.norm1.weight: element 3 of 128 is not a "
                                   "number as float32, and 1 more is not finite";
    expect(RUN(&s, "info", model), 4, "dfine-n", sentence);
    expect(RUN(&s, "convert", model, out), 4, NULL, sentence);
    cr_expect(!scratch_exists(out));
    scratch_remove(&s);
}

Test(cli_program, sums_are_printed_and_checked) {
    scratch s = scratch_make();
    char model[256], out[256], line[400];
    snprintf(model, sizeof model, "%s", scratch_path(&s, "m.safetensors"));
    snprintf(out, sizeof out, "%s", scratch_path(&s, "o.safetensors"));
    scratch_put(model, "abc");
    snprintf(line, sizeof line, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  %s\n", model);
    expect(RUN(&s, "info", "--sha256", model), 0, line, NULL);
    snprintf(line, sizeof line, "%064d  m.safetensors\n", 0);
    scratch_put(scratch_path(&s, "SHA256SUMS"), line);
    expect(RUN(&s, "info", "--sha256", model), 4, "ba7816bf", "SHA256SUMS beside it says 000");
    make_model(&s, model);
    expect(RUN(&s, "info", model), 4, NULL, "m.safetensors: its SHA-256 is ");
    expect(RUN(&s, "convert", model, out), 4, NULL, "SHA256SUMS beside it says 000");
    cr_expect(!scratch_exists(out));
    spawned sum = RUN(&s, "info", "--sha256", model);
    cr_assert_gt(strlen(sum.out), 64);
    snprintf(line, sizeof line, "%.64s  m.safetensors\n", sum.out);
    spawn_free(&sum);
    scratch_put(scratch_path(&s, "SHA256SUMS"), line);
    expect(RUN(&s, "info", model), 0, "as in SHA256SUMS", NULL);
    scratch_remove(&s);
}
