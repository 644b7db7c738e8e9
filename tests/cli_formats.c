/* `isthmus predict` of files of several frames, over a double of the engine: names of what is written, resuming,
 * shards, tracks, tar streams, limits. */
#include "predict_bench.h"
#include "support/dicom_file.h"
#include "support/results.h"
#include "support/tiff_pages.h"

#include <math.h>
#include <turbojpeg.h>

enum { PAGES = 12 };

static bool has_format(const bench *b, const char *name) {
    spawned r = spawn_run((scratch *)(uintptr_t)&b->s, NULL, (const char *const[]){PROGRAM, "--version", NULL});
    char missing[40];
    snprintf(missing, sizeof missing, "%s no", name);
    bool has = !strstr(r.out, missing);
    cr_expect_not_null(strstr(r.out, "images: PNG, JPEG, "), "%s", r.out);
    cr_expect_not_null(strstr(r.out, name), "%s", r.out);
    spawn_free(&r);
    return has;
}

/* a.png, b.tif of twelve pages, c.png */
static bench make_pages(void) {
    bench b = make_bench(0);
    if (!has_format(&b, "TIFF")) {
        scratch_remove(&b.s);
        cr_skip_test("built without libtiff");
    }
    write_png(scratch_path(&b.s, "in/a.png"), 50, 60);
    write_tiff_pages(scratch_path(&b.s, "in/b.tif"), PAGES, 50, 60);
    write_png(scratch_path(&b.s, "in/c.png"), 51, 60);
    return b;
}

static void expect_pages(const bench *b) {
    expect_frames(b, PAGES + 2,
                  (const char *[]){"a.png", "b.tif#1", "b.tif#2", "b.tif#3", "b.tif#4", "b.tif#5", "b.tif#6", "b.tif#7",
                                   "b.tif#8", "b.tif#9", "b.tif#10", "b.tif#11", "b.tif#12", "c.png"});
    cr_expect(scratch_exists(scratch_path(&b->s, "out/masks/b.0012.png")));
    cr_expect(scratch_exists(scratch_path(&b->s, "out/overlays/b.0001.png")));
    cr_expect_not(scratch_exists(scratch_path(&b->s, "out/masks/b.png")));
    json_t *lines = read_lines(scratch_path(&b->s, "out/frames.ndjson"));
    for (int i = 0; i < PAGES; i++)
        cr_expect_eq(json_integer_value(json_object_get(json_array_get(lines, (size_t)i + 1), "width")), 50 + i);
    json_decref(lines);
    json_t *images = json_load_file(scratch_path(&b->s, "out/images.json"), 0, NULL);
    const json_t *third = json_array_get(images, 3);
    cr_expect_str_eq(json_string_value(json_object_get(third, "file_name")), "b.tif#3");
    cr_expect_eq(json_integer_value(json_object_get(third, "image_id")), 4);
    json_decref(images);
}

Test(cli_formats, pages_are_images) {
    bench b = make_pages();
    expect(PREDICT(&b, NULL), 0, "14 images, 0 failed");
    expect_pages(&b);
    expect(PREDICT(&b, "--resume", NULL), 0, "all 14 images are there already");
    cr_assert_eq(unlink(scratch_path(&b.s, "out/masks/b.0005.png")), 0); /* lost: that page alone is made again */
    expect(PREDICT(&b, "--resume", NULL), 0, "1 image, 0 failed, 13 kept");
    expect_pages(&b);
    expect_no_temporaries(&b);
    scratch_remove(&b.s);
}

Test(cli_formats, a_limit_counts_pages) {
    bench b = make_pages();
    expect(PREDICT(&b, "--limit", "4", "--memory", "1M", NULL), 0, "4 images, 0 failed");
    expect_frames(&b, 4, (const char *[]){"a.png", "b.tif#1", "b.tif#2", "b.tif#3"});
    scratch_remove(&b.s);
}

/* A file's pages stay together, and merge writes what one run does. */
Test(cli_formats, shards_are_of_files) {
    bench b = make_pages();
    int holders = 0;
    char folders[3][200];
    expect(PREDICT(&b, "--track", "--save", "json,ndjson,masks,csv,mot", NULL), 0, "14 images");
    cr_expect(scratch_exists(scratch_path(&b.s, "out/mot/b.txt")));
    for (int i = 0; i < 3; i++) {
        char shard[8];
        snprintf(shard, sizeof shard, "%d/3", i + 1);
        snprintf(folders[i], sizeof folders[i], "%s/part%d", b.s.path, i);
        spawned r = spawn_run(&b.s, NULL,
                              (const char *const[]){PROGRAM, "predict", b.in, "-o", folders[i], "--shard", shard,
                                                    "--track", "--save", "json,ndjson,masks,csv,mot", NULL});
        cr_assert(r.code == 0 || strstr(r.err, "no image"), "%s", r.err);
        spawn_free(&r);
        char *lines = scratch_read(scratch_path(&b.s, "part%d/frames.ndjson", i), NULL);
        bool first = lines && strstr(lines, "b.tif#1\""), last = lines && strstr(lines, "b.tif#12\"");
        cr_expect_eq(first, last, "pages of one file are in two shards");
        holders += first;
        free(lines);
    }
    cr_expect_eq(holders, 1);
    spawned r = spawn_run(&b.s, NULL,
                          (const char *const[]){PROGRAM, "merge", folders[0], folders[1], folders[2], "-o",
                                                scratch_path(&b.s, "merged"), NULL});
    cr_assert_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
    same_results(&b.s, "out", "merged");
    size_t n, m;
    char *one = scratch_read(scratch_path(&b.s, "out/mot/b.txt"), &n);
    char *merged = scratch_read(scratch_path(&b.s, "merged/mot/b.txt"), &m);
    cr_assert(one && merged && n == m && !memcmp(one, merged, n));
    free(one), free(merged);
    scratch_remove(&b.s);
}

Test(cli_formats, a_tar_stream_has_pages_too) {
    bench b = make_pages();
    char line[1200];
    snprintf(line, sizeof line, "cd '%s' && tar cf - a.png b.tif c.png | %s predict --tar - -o '%s/came'", b.in,
             PROGRAM, b.s.path);
    snprintf(line + strlen(line), sizeof line - strlen(line),
             " && cd '%s' && ls a.png b.tif c.png | %s predict - -o '%s'", b.in, PROGRAM, b.out);
    spawned r = spawn_run(&b.s, NULL, (const char *const[]){"/bin/sh", "-c", line, NULL});
    cr_assert_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
    same_results(&b.s, "out", "came");
    scratch_remove(&b.s);
}

/* A JPEG of 50 x 20 pixels that was taken sideways. */
static void write_turned_jpeg(const char *path) {
    static const unsigned char exif[] = "\xFF\xD8\xFF\xE1\0\x22"
                                        "Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0";
    unsigned char pixels[50 * 20] = {0}, *jpeg = NULL, file[4000];
    unsigned long size = 0;
    tjhandle handle = tjInitCompress();
    cr_assert_eq(tjCompress2(handle, pixels, 50, 0, 20, TJPF_GRAY, &jpeg, &size, TJSAMP_GRAY, 90, 0), 0);
    tjDestroy(handle);
    cr_assert_lt(size, sizeof file - sizeof exif);
    memcpy(file, exif, sizeof exif - 1);
    memcpy(file + sizeof exif - 1, jpeg + 2, size - 2);
    scratch_write(path, file, sizeof exif - 1 + size - 2);
    tjFree(jpeg);
}

Test(cli_formats, orientation_is_applied_where_it_is_asked_for) {
    bench b = make_bench(0);
    for (int turned = 0; turned < 2; turned++) {
        write_turned_jpeg(scratch_path(&b.s, "in/a.jpg"));
        expect(PREDICT(&b, turned ? "--exif-orientation" : "--quiet", NULL), 0, "");
        json_t *lines = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
        cr_expect_eq(json_integer_value(json_object_get(json_array_get(lines, 0), "width")), turned ? 20 : 50);
        cr_expect_eq(json_integer_value(json_object_get(json_array_get(lines, 0), "height")), turned ? 50 : 20);
        json_decref(lines);
        ist_bitmap map;
        cr_assert_eq(ist_bitmap_read(scratch_path(&b.s, "out/masks/a.png"), 10000, &map, NULL), IST_OK);
        cr_expect_eq(map.width, turned ? 20 : 50);
        ist_bitmap_free(&map);
    }
    expect(PREDICT(&b, "--resume", NULL), 2, "exif-orientation");
    scratch_remove(&b.s);
}

/* Of twelve bits: through its window, where nothing else is said. */
Test(cli_formats, dicom_goes_through_its_window) {
    static const uint16_t pixels[50 * 60] = {0};
    bench b = make_bench(1);
    dicom_file *f = calloc(1, sizeof *f);
    dicom_begin(f, "1");
    dicom_describe(f, 1, "MONOCHROME2", 1, 50, 60, 16, 12, 0, 0);
    dicom_pixels(f, pixels, sizeof pixels, 16);
    scratch_write(scratch_path(&b.s, "in/00-a.dcm"), f->bytes, f->count);
    free(f);
    if (!has_format(&b, "DICOM")) {
        expect(PREDICT(&b, NULL), 7, "00-a.dcm: is a DICOM file, which this isthmus was built without");
        scratch_remove(&b.s);
        return;
    }
    const char *const asked[] = {NULL, "--window=auto"}, *const want[] = {"dicom", "auto"};
    for (int i = 0; i < 2; i++) {
        expect(PREDICT(&b, asked[i], NULL), 0, "2 images, 0 failed");
        expect_frames(&b, 2, (const char *[]){"00-a.dcm", "00-x.png"});
        json_t *run = json_load_file(scratch_path(&b.s, "out/run.json"), 0, NULL);
        const json_t *options = json_object_get(run, "options");
        cr_expect_str_eq(json_string_value(json_object_get(options ? options : run, "window")), want[i]);
        json_decref(run);
    }
    scratch_remove(&b.s);
}

/* Floats mean nothing without a window; with one the first object's mask score is what it makes of the first of them
 * (the double of the engine has it so), and the picture of the report is seen through it. */
Test(cli_formats, floats_want_a_window) {
    static const struct {
        const char *window;
        int want;
    } cases[] = {{"--window=-0.5:1.5", 96}, {"--window=auto", 64}, {"--window=0.2:0.25", 255}};
    static float values[50 * 60];
    bench b = make_bench(1);
    if (!has_format(&b, "TIFF")) return;
    for (int i = 0; i < 50 * 60; i++) values[i] = (float)(i % 101) / 100;
    values[0] = 0.25f, values[1] = NAN;
    write_tiff_floats(scratch_path(&b.s, "in/00-a.tif"), 50, 60, values);
    expect(PREDICT(&b, NULL), 7, "00-a.tif: floating point samples want --window LOW:HIGH or auto");
    expect(PREDICT(&b, "--window=dicom", NULL), 7, "00-a.tif: floating point samples want --window LOW:HIGH or auto");
    for (int i = 0; i < 3; i++) {
        expect(PREDICT(&b, cases[i].window, "--save", "ndjson", NULL), 0, "2 images, 0 failed");
        json_t *lines = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
        const json_t *object = json_array_get(json_object_get(json_array_get(lines, 0), "objects"), 0);
        double score = 255 * json_number_value(json_object_get(object, "mask_score"));
        cr_expect(fabs(score - cases[i].want) < 0.6, "%s: %g, not %d", cases[i].window, score, cases[i].want);
        json_decref(lines);
    }
    scratch_remove(&b.s);
}

/* What cannot be read is named, page by page, and the rest is there. */
Test(cli_formats, damage_costs_its_page_alone) {
    bench b = make_pages();
    size_t count;
    char *bytes = scratch_read(scratch_path(&b.s, "in/b.tif"), &count);
    scratch_write(scratch_path(&b.s, "in/b.tif"), bytes, count - 100); /* the last page's pixels are not all there */
    expect(PREDICT(&b, NULL), 7, "b.tif#12: damaged TIFF: ");
    char *failed = scratch_read(scratch_path(&b.s, "out/failed.ndjson"), NULL);
    cr_expect(failed && strstr(failed, "b.tif#12\"") && !strstr(failed, "b.tif#11"), "%s", failed);
    scratch_write(scratch_path(&b.s, "in/b.tif"), bytes, 20); /* nor is any directory */
    expect(PREDICT(&b, NULL), 7, "b.tif: damaged TIFF: ");
    expect_frames(&b, 2, (const char *[]){"a.png", "c.png"});
    free(failed), free(bytes);
    scratch_remove(&b.s);
}

/* Formats of many libraries are modules beside the program, which are loaded when they are needed: a start takes none
 * of their libraries, a module that cannot be loaded costs its own files alone. */
Test(cli_formats, modules_are_loaded_when_they_are_needed) {
    static const char *const libraries[] = {"libtiff.so", "libdcmdata", "libavformat"};
    if (access(IST_BUILD_DIR "/tests/isthmus-format-tiff.so", R_OK)) cr_skip_test("built without modules");
    bench b = make_pages();
    char line[600];
    snprintf(line, sizeof line, "LD_TRACE_LOADED_OBJECTS=1 %s", PROGRAM);
    spawned r = spawn_run(&b.s, NULL, (const char *const[]){"/bin/sh", "-c", line, NULL});
    cr_expect_not_null(strstr(r.out, "libpng"), "%s", r.out);
    for (int i = 0; i < 3; i++) cr_expect_null(strstr(r.out, libraries[i]), "a start loads %s", libraries[i]);
    spawn_free(&r);
    snprintf(line, sizeof line, "cd '%s' && cp '%s' moved && echo no module >isthmus-format-tiff.so", b.s.path,
             PROGRAM);
    r = spawn_run(&b.s, NULL, (const char *const[]){"/bin/sh", "-c", line, NULL});
    cr_assert_eq(r.code, 0, "%s", r.err);
    spawn_free(&r);
    const char *program = scratch_path(&b.s, "moved");
    expect(spawn_run(&b.s, NULL, (const char *const[]){program, "predict", b.in, "-o", b.out, NULL}), 7,
           "b.tif: what reads it cannot be loaded: ");
    expect_frames(&b, 2, (const char *[]){"a.png", "c.png"});
    scratch_remove(&b.s);
}
