/* A folder of small images for `isthmus predict` over a double of the engine (tests/fake_engine.c), and what its files
 * must say. */
#ifndef PREDICT_BENCH_H
#define PREDICT_BENCH_H

#include "gray_png.h"
#include "program.h"

#include "io/image.h"

#include <jansson.h>

#define PROGRAM IST_BUILD_DIR "/tests/isthmus_fake"

typedef struct bench {
    scratch s;
    char in[160], out[160], weights[160];
} bench;

static inline bench make_bench(int images) {
    bench b = {.s = scratch_make()};
    snprintf(b.in, sizeof b.in, "%s/in", b.s.path);
    snprintf(b.out, sizeof b.out, "%s/out", b.s.path);
    snprintf(b.weights, sizeof b.weights, "%s/weights", b.s.path);
    mkdir(b.in, 0777);
    mkdir(b.weights, 0777);
    scratch_put(scratch_path(&b.s, "weights/dfine_n_demo.safetensors"), "");
    scratch_put(scratch_path(&b.s, "weights/mobile_sam_demo.safetensors"), "");
    setenv("ISTHMUS_WEIGHTS_DIR", b.weights, 1);
    for (int i = 0; i < images; i++) write_png(scratch_path(&b.s, "in/%02d-x.png", i), 50 + i, 60);
    return b;
}

#define PREDICT(b, ...)                                                                                                \
    spawn_run(&(b)->s, NULL, (const char *const[]){PROGRAM, "predict", (b)->in, "-o", (b)->out, __VA_ARGS__, NULL})

static inline void expect(spawned r, int code, const char *err_part) {
    cr_expect_eq(r.code, code, "exit code %d, want %d; stderr: %s", r.code, code, r.err);
    cr_expect_str_empty(r.out);
    cr_expect_not_null(strstr(r.err, err_part), "stderr lacks '%s': %s", err_part, r.err);
    spawn_free(&r);
}

/* Lines of an NDJSON file as an array; fails unless each is an object. */
static inline json_t *read_lines(const char *path) {
    char *text = scratch_read(path, NULL);
    cr_assert_not_null(text, "%s", path);
    json_t *lines = json_array();
    for (char *p = text, *end; *p; p = end + 1) {
        cr_assert_not_null(end = strchr(p, '\n'), "%s: the last line is cut off", path);
        *end = '\0';
        json_t *line = json_loads(p, JSON_REJECT_DUPLICATES, NULL);
        cr_assert(json_is_object(line), "%s", p);
        json_array_append_new(lines, line);
    }
    free(text);
    return lines;
}

/* frames.ndjson has exactly these images, by last part of their path, in this order. */
static inline void expect_frames(const bench *b, size_t count, const char *const *names) {
    json_t *lines = read_lines(scratch_path(&b->s, "out/frames.ndjson"));
    cr_assert_eq(json_array_size(lines), count, "%zu lines", json_array_size(lines));
    for (size_t i = 0; i < count; i++) {
        const char *file = json_string_value(json_object_get(json_array_get(lines, i), "file"));
        cr_expect_str_eq(strrchr(file, '/') + 1, names[i]);
    }
    json_decref(lines);
}

static inline void expect_no_temporaries(const bench *b) {
    char command[400];
    snprintf(command, sizeof command, "test -z \"$(find '%s' -name '*.tmp')\"", b->out);
    cr_expect_eq(system(command), 0, "temporary files are left");
}

static inline void check_frame(const json_t *line, int image, const char *in) {
    char file[256];
    snprintf(file, sizeof file, "%s/%02d-x.png", in, image);
    cr_expect_str_eq(json_string_value(json_object_get(line, "file")), file);
    cr_expect_eq(json_integer_value(json_object_get(line, "width")), 50 + image);
    const json_t *o = json_array_get(json_object_get(line, "objects"), 1);
    cr_expect_eq(json_integer_value(json_object_get(o, "label")), 11);
    cr_expect_str_eq(json_string_value(json_object_get(o, "name")), "stop sign");
    cr_expect_eq(json_number_value(json_object_get(o, "score")), 0.775);
    cr_expect_eq(json_number_value(json_array_get(json_object_get(o, "box"), 2)), 1 + (50 + image) / 2.0);
    cr_expect_eq(json_integer_value(json_object_get(o, "area")), 200);
    cr_expect_eq(json_integer_value(json_object_get(json_object_get(line, "transfers"), "reads")), 1);
    cr_expect_eq(json_number_value(json_object_get(json_object_get(line, "ms"), "wait")), 0.5);
}

static inline void check_map(const bench *b, int image) {
    ist_bitmap map;
    cr_assert_eq(ist_bitmap_read(scratch_path(&b->s, "out/masks/%02d-x.png", image), 1 << 20, &map, NULL), IST_OK);
    cr_assert_eq(map.format, IST_GRAY8);
    cr_assert_eq(map.width, 50 + image);
    const uint8_t *p = map.pixels; /* objects cover columns 0..4, 1..5, 2..6 of rows 0..39 */
    const uint8_t want[8] = {1, 1, 1, 1, 1, 2, 3, 0};
    cr_expect_arr_eq(p, want, 8);
    cr_expect_arr_eq(p + 39 * map.width, want, 8);
    cr_expect_eq(p[40 * map.width], 0);
    ist_bitmap_free(&map);
}

#endif
