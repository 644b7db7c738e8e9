/* `isthmus live --window` over a double of the engine, whose first object's mask score is what the first sample of a
 * frame has become (tests/fake_engine.c): every source, live and from its recording. OpenIGTLink is cli_live.c's. */
#include "predict_bench.h"
#include "support/dicom_file.h"

#include <math.h>

#define LIVE(b, input, ...)                                                                                            \
    spawn_run(&(b)->s, input, (const char *const[]){PROGRAM, "live", "--no-drop", __VA_ARGS__, NULL})

/* The frames of DIR/frames.ndjson had these first samples, in 255ths. */
static void expect_first(const bench *b, const char *folder, size_t count, const int *want) {
    json_t *lines = read_lines(scratch_path(&b->s, "%s/frames.ndjson", folder));
    cr_assert_eq(json_array_size(lines), count, "%s: %zu lines", folder, json_array_size(lines));
    for (size_t i = 0; i < count; i++) {
        const json_t *object = json_array_get(json_object_get(json_array_get(lines, i), "objects"), 0);
        double score = json_number_value(json_object_get(object, "mask_score"));
        cr_expect_eq(lround(255 * score), want[i], "%s: frame %zu: %g", folder, i, 255 * score);
    }
    json_decref(lines);
}

static void expect_same(const bench *b, const char *first, const char *second) {
    char command[500];
    snprintf(command, sizeof command, "diff -r %s/%s %s/%s", b->s.path, first, b->s.path, second);
    cr_expect_eq(system(command), 0, "%s and %s differ", first, second);
}

/* Twelve bits on standard input: two frames of four samples. */
Test(cli_live_window, raw_frames, .timeout = 120) {
    static const uint16_t samples[2][4] = {{1100, 1000, 2000, 1500}, {3000, 1000, 4000, 1001}};
    static const struct {
        const char *window;
        int want[2];
    } cases[] = {{"1000:2000", {26, 255}}, {"auto", {26, 170}}, {NULL, {191, 191}}};
    bench b = make_bench(0);
    char raw[200], kept[200], first[200], second[200];
    unsigned char bytes[16];
    for (int i = 0; i < 8; i++)
        bytes[2 * i] = samples[i / 4][i % 4] & 255, bytes[2 * i + 1] = samples[i / 4][i % 4] >> 8;
    snprintf(raw, sizeof raw, "%s", scratch_path(&b.s, "raw"));
    scratch_write(raw, bytes, sizeof bytes);
    for (int i = 0; i < 3; i++) {
        const char *option = cases[i].window ? "--window" : NULL, *value = cases[i].window;
        snprintf(kept, sizeof kept, "%s", scratch_path(&b.s, "kept%d", i));
        snprintf(first, sizeof first, "%s", scratch_path(&b.s, "first%d", i));
        snprintf(second, sizeof second, "%s", scratch_path(&b.s, "second%d", i));
        expect(LIVE(&b, raw, "--from", "raw:2x2:gray16le", "--to", first, "--record", kept, option, value), 0,
               value ? "2 received, 2 processed"
                     : "the first frame of 16 bits has values from 1000 to 2000: --window auto or LOW:HIGH shows more");
        expect(LIVE(&b, NULL, "--from", kept, "--to", second, option, value), 0, "2 received, 2 processed");
        expect_first(&b, strrchr(first, '/') + 1, 2, cases[i].want);
        expect_same(&b, strrchr(first, '/') + 1, strrchr(second, '/') + 1);
    }
    scratch_remove(&b.s);
}

/* Colours of 16 bits, and what has an alpha channel: a recording keeps all that the window needs. */
Test(cli_live_window, colours_and_alpha_are_kept, .timeout = 120) {
    static const char *const header[2] = {
        "P7\nWIDTH 3\nHEIGHT 1\nDEPTH 4\nMAXVAL 65535\nTUPLTYPE RGB_ALPHA\nENDHDR\n",
        "P7\nWIDTH 6\nHEIGHT 1\nDEPTH 2\nMAXVAL 65535\nTUPLTYPE GRAYSCALE_ALPHA\nENDHDR\n"};
    static const ist_pixel_format formats[2] = {IST_RGB16, IST_GRAY16};
    bench b = make_bench(0);
    char kept[200], out[200], file[600];
    snprintf(kept, sizeof kept, "%s", scratch_path(&b.s, "kept"));
    snprintf(out, sizeof out, "%s", scratch_path(&b.s, "out"));
    for (int k = 0; k < 2; k++) {
        size_t n = strlen(header[k]);
        memcpy(file, header[k], n);
        for (int i = 0; i < 12; i++) file[n++] = (char)(16 + i), file[n++] = (char)(3 * i);
        scratch_write(scratch_path(&b.s, "in/%d.pam", k), file, n);
    }
    expect(LIVE(&b, NULL, "--from", b.in, "--to", out, "--record", kept, "--window", "auto"), 0, "2 processed");
    for (int k = 0; k < 2; k++) {
        ist_bitmap image;
        int channels = k ? 2 : 4;
        cr_assert_eq(ist_bitmap_read(scratch_path(&b.s, "kept/%08d.png", k + 1), 100, &image, NULL), IST_OK);
        cr_assert_eq(image.format, formats[k]);
        for (int i = 0, at = 0; i < 12; i++)
            if (i % channels != channels - 1)
                cr_expect_eq(((uint16_t *)image.pixels)[at++], (16 + i) << 8 | 3 * i, "picture %d, sample %d", k, i);
        ist_bitmap_free(&image);
    }
    scratch_remove(&b.s);
}

/* What a recording knows of its samples; without --window the windows that are there, and elsewhere all values. */
Test(cli_live_window, a_recording_tells_its_windows, .timeout = 120) {
    static const struct {
        const char *window;
        int want[3];
    } cases[] = {{NULL, {128, 255, 100}}, {"1500:2500", {128, 51, 255}}, {"auto", {0, 0, 0}}};
    bench b = make_bench(0);
    char kept[200], out[200];
    snprintf(kept, sizeof kept, "%s", scratch_path(&b.s, "kept"));
    mkdir(kept, 0777);
    uint16_t samples[3][2] = {{2000, 4000}, {1600, 4000}, {25700, 25701}};
    for (int i = 0; i < 3; i++) {
        const ist_bitmap image = {.width = 2, .height = 1, .format = IST_GRAY16, .stride = 4, .pixels = samples[i]};
        cr_assert_eq(ist_png_write(scratch_path(&b.s, "kept/%d.png", i), &image, NULL), IST_OK);
    }
    scratch_put(scratch_path(&b.s, "kept/stream.ndjson"),
                "{\"file\":\"0.png\",\"window\":[1000,3000]}\n"
                "{\"file\":\"1.png\",\"values\":[100,1],\"window\":[0,1600]}\n"
                "{\"file\":\"2.png\",\"window\":[5,1e9]}\n");
    for (int i = 0; i < 3; i++) {
        const char *option = cases[i].window ? "--window" : NULL;
        snprintf(out, sizeof out, "%s", scratch_path(&b.s, "out%d", i));
        expect(LIVE(&b, NULL, "--from", kept, "--to", out, option, cases[i].window), 0, "3 received, 3 processed");
        expect_first(&b, strrchr(out, '/') + 1, 3, cases[i].want);
    }
    expect(LIVE(&b, NULL, "--from", kept, "--to", out, "--window", "dicom"), 7,
           "carries no window for --window dicom; give LOW:HIGH or auto");
    expect_first(&b, strrchr(out, '/') + 1, 2, cases[0].want);
    scratch_remove(&b.s);
}

/* A folder with DICOM: its window unless another is asked for, kept for the recording. */
Test(cli_live_window, dicom, .timeout = 120) {
    static const uint16_t pixels[64] = {2000};
    bench b = make_bench(1);
    spawned version = spawn_run(&b.s, NULL, (const char *const[]){PROGRAM, "--version", NULL});
    bool there = !strstr(version.out, "DICOM no");
    spawn_free(&version);
    dicom_file *f = calloc(1, sizeof *f);
    dicom_begin(f, "1");
    dicom_describe(f, 1, "MONOCHROME2", 1, 8, 8, 16, 12, 0, 0);
    dicom_text(f, 0x00281050, "DS", "2000.5");
    dicom_text(f, 0x00281051, "DS", "2001");
    dicom_pixels(f, pixels, sizeof pixels, 16);
    scratch_write(scratch_path(&b.s, "in/00-a.dcm"), f->bytes, f->count);
    free(f);
    char first[200], second[200], kept[200];
    snprintf(kept, sizeof kept, "%s", scratch_path(&b.s, "kept"));
    snprintf(first, sizeof first, "%s", scratch_path(&b.s, "first"));
    snprintf(second, sizeof second, "%s", scratch_path(&b.s, "second"));
    expect(LIVE(&b, NULL, "--from", b.in, "--to", first, "--record", kept), there ? 0 : 7,
           there ? "2 processed" : "1 failed");
    if (there) {
        expect_first(&b, "first", 2, (const int[]){128, 191});
        expect(LIVE(&b, NULL, "--from", kept, "--to", second, "--window", "dicom"), 0, "2 received, 2 processed");
        expect_same(&b, "first", "second");
    }
    scratch_remove(&b.s);
}
