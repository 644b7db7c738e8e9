/* `isthmus segment` over a double of the engine: prompts of files reach the engine, results the same files as
 * predict's; resume, partial failure and mistakes. What masks there are is pipeline_prompts.c. */
#include "predict_bench.h"

#define SEGMENT(b, ...)                                                                                                \
    spawn_run(&(b)->s, NULL, (const char *const[]){PROGRAM, "segment", (b)->in, "-o", (b)->out, __VA_ARGS__, NULL})

/* The path stays until the next call. */
static const char *put_prompts(const bench *b, const char *text) {
    static char path[200];
    snprintf(path, sizeof path, "%s", scratch_path(&b->s, "p.json"));
    scratch_put(path, text);
    return path;
}

/* A NumPy file of `count` floats that count from 0. */
static void put_logits(const char *path, const char *shape, int count) {
    char header[128];
    int n = snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }\n", shape);
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    fwrite("\x93NUMPY\x01", 1, 7, f);
    fputc(0, f), fputc(n & 255, f), fputc(n >> 8, f);
    fwrite(header, 1, (size_t)n, f);
    for (int i = 0; i < count; i++) {
        float v = (float)i;
        fwrite(&v, sizeof v, 1, f);
    }
    fclose(f);
}

static const json_t *object_at(const json_t *lines, size_t image, size_t object) {
    return json_array_get(json_object_get(json_array_get(lines, image), "objects"), object);
}

static double number(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    cr_assert(json_is_number(v), "no number '%s'", key);
    return json_number_value(v);
}

static void expect_box(const json_t *object, double x0, double y0, double x1, double y1) {
    const double want[4] = {x0, y0, x1, y1};
    const json_t *box = json_object_get(object, "box");
    for (size_t i = 0; i < 4; i++) cr_expect_eq(json_number_value(json_array_get(box, i)), want[i], "side %zu", i);
}

/* The overlay of the first image shows the last point of its prompts, which is out. */
static void expect_point_drawn(const bench *b) {
    static const uint8_t red[3] = {217, 45, 45};
    ist_bitmap overlay;
    cr_assert_eq(ist_bitmap_read(scratch_path(&b->s, "out/overlays/00-x.png"), 1 << 20, &overlay, NULL), IST_OK);
    cr_expect_arr_eq((const uint8_t *)overlay.pixels + 6 * overlay.stride + 3 * 6, red, 3);
    ist_bitmap_free(&overlay);
}

/* Prompts of each image by its name, a box where one is given, else that of the mask. */
Test(cli_segment, prompts_become_objects) {
    bench b = make_bench(3);
    const char *file =
        put_prompts(&b, "{\"00-x.png\": [{\"points\": [[3, 4, 1]]}, {\"box\": [1, 2, 30, 40],"
                        "\"points\": [[5, 5, 1], [6, 6, 0]]}], \"02-x.png\": [{\"box\": [7, 8, 9, 10]}]}");
    unlink(scratch_path(&b.s, "weights/dfine_n_demo.safetensors")); /* no detector is needed */
    for (int batch = 1; batch <= 2; batch++) {
        char size[4];
        snprintf(size, sizeof size, "%d", batch);
        expect(SEGMENT(&b, batch == 1 ? "--points" : "--boxes", file, "--batch", size, "--save",
                       "json,ndjson,masks,overlay,csv,yolo"),
               0, "3 images, 0 failed");
        json_t *lines = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
        json_t *results = json_load_file(scratch_path(&b.s, "out/results.json"), 0, NULL);
        cr_assert_eq(json_array_size(lines), 3);
        cr_assert_eq(json_array_size(results), 3);
        const json_t *first = object_at(lines, 0, 0), *second = object_at(lines, 0, 1), *last = object_at(lines, 2, 0);
        cr_expect_str_eq(json_string_value(json_object_get(first, "name")), "object");
        expect_box(first, 0, 0, 5, 40);
        expect_box(second, 1, 2, 30, 40);
        expect_box(last, 7, 8, 9, 10);
        cr_expect_eq(number(first, "score"), 0.5625);
        cr_expect_eq(number(first, "mask_score"), 0.5625);
        cr_expect_eq(number(second, "score"), 0.5);
        cr_expect_eq(number(first, "prompt"), 0);
        cr_expect_eq(number(second, "prompt"), 1);
        cr_expect_eq(number(first, "area"), 200);
        cr_expect_null(json_object_get(first, "mask_index"));
        cr_expect_null(json_object_get(first, "target"));
        cr_expect_eq(json_array_size(json_object_get(json_array_get(lines, 1), "objects")), 0);
        cr_expect_eq(number(json_array_get(results, 2), "image_id"), 3);
        cr_expect_eq(number(json_array_get(results, 2), "score"), 0.5);
        for (int i = 0; i < 3; i++) {
            cr_expect(scratch_exists(scratch_path(&b.s, "out/overlays/%02d-x.png", i)));
            cr_expect(scratch_exists(scratch_path(&b.s, "out/masks/%02d-x.png", i)));
            cr_expect(scratch_exists(scratch_path(&b.s, "out/labels/%02d-x.txt", i)));
        }
        expect_point_drawn(&b);
        expect_no_temporaries(&b);
        json_decref(lines);
        json_decref(results);
    }
    scratch_remove(&b.s);
}

Test(cli_segment, three_masks_of_each) {
    bench b = make_bench(1);
    const char *file = put_prompts(&b, "{\"00-x.png\": [{\"box\": [1, 2, 3, 4]}]}");
    expect(SEGMENT(&b, "--boxes", file, "--multimask"), 0, "1 image, 0 failed");
    json_t *lines = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    cr_assert_eq(json_array_size(json_object_get(json_array_get(lines, 0), "objects")), 3);
    for (size_t i = 0; i < 3; i++) {
        cr_expect_eq(number(object_at(lines, 0, i), "prompt"), 0);
        cr_expect_eq(number(object_at(lines, 0, i), "mask_index"), (double)i);
        cr_expect_eq(number(object_at(lines, 0, i), "score"), 0.5 + 0.125 * (double)i);
    }
    json_decref(lines);
    scratch_remove(&b.s);
}

Test(cli_segment, coco_annotations_are_prompts) {
    bench b = make_bench(2);
    const char *file = put_prompts(&b, "{\"images\": [{\"id\": 5, \"file_name\": \"01-x.png\"}], \"annotations\":"
                                       "[{\"image_id\": 5, \"bbox\": [10, 20, 5, 6], \"category_id\": 3}]}");
    expect(SEGMENT(&b, "--boxes", file), 0, "2 images, 0 failed");
    json_t *lines = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    expect_box(object_at(lines, 1, 0), 10, 20, 15, 26);
    json_decref(lines);
    scratch_remove(&b.s);
}

/* A mask that cannot be read, or does not fit, fails its image; the others are complete. */
Test(cli_segment, masks_of_files) {
    bench b = make_bench(4);
    mkdir(scratch_path(&b.s, "m"), 0777);
    put_logits(scratch_path(&b.s, "m/good.npy"), "(1, 2, 2)", 4);
    put_logits(scratch_path(&b.s, "m/large.npy"), "(2, 3)", 6);
    const char *file = put_prompts(&b, "{\"00-x.png\": [{\"mask\": \"m/good.npy\"}], \"01-x.png\": [{\"mask\":"
                                       "\"m/none.npy\"}], \"02-x.png\": [{\"mask\": \"m/large.npy\"}], \"03-x.png\":"
                                       "[{\"points\": [[1, 1, 1]], \"mask\": \"m/good.npy\"}]}");
    for (int batch = 1; batch <= 4; batch += 3) {
        char size[4];
        snprintf(size, sizeof size, "%d", batch);
        spawned r = SEGMENT(&b, "--points", file, "--batch", size);
        cr_expect_eq(r.code, 7, "%s", r.err);
        cr_expect_not_null(strstr(r.err, "m/none.npy"), "%s", r.err);
        cr_expect_not_null(strstr(r.err, "02-x.png: a mask of another size"), "%s", r.err);
        cr_expect_not_null(strstr(r.err, "2 images, 2 failed"), "%s", r.err);
        spawn_free(&r);
        expect_frames(&b, 2, (const char *[]){"00-x.png", "03-x.png"});
        json_t *failed = read_lines(scratch_path(&b.s, "out/failed.ndjson"));
        cr_expect_eq(json_array_size(failed), 2);
        json_decref(failed);
    }
    scratch_remove(&b.s);
}

Test(cli_segment, resume_needs_the_same_prompts) {
    bench b = make_bench(6);
    char file[200], other[200];
    snprintf(file, sizeof file, "%s", put_prompts(&b, "{\"00-x.png\": [{\"box\": [1, 2, 3, 4]}]}"));
    snprintf(other, sizeof other, "%s", scratch_path(&b.s, "q.json"));
    scratch_put(other, "{\"00-x.png\": [{\"box\": [1, 2, 3, 9]}]}");
    setenv("FAKE_ENGINE", "lost:3", 1);
    expect(SEGMENT(&b, "--boxes", file), 1, "lost");
    unsetenv("FAKE_ENGINE");
    expect(SEGMENT(&b, "--boxes", other, "--resume"), 2, "--resume needs the same options");
    expect(SEGMENT(&b, "--boxes", file, "--resume", "--multimask"), 2, "--multimask off, this run has --multimask on");
    expect(PREDICT(&b, "--resume"), 2, "--detector none, this run has --detector a file");
    expect(SEGMENT(&b, "--boxes", file, "--resume"), 0, "kept from an earlier run");
    expect(SEGMENT(&b, "--boxes", file, "--resume"), 0, "all 6 images are there already");
    expect_frames(&b, 6, (const char *[]){"00-x.png", "01-x.png", "02-x.png", "03-x.png", "04-x.png", "05-x.png"});
    scratch_remove(&b.s);
}

/* ---- --everything ---- */

#define EVERYTHING(b, ...) SEGMENT(b, "--everything", "--points-per-side", "2", __VA_ARGS__)

static void expect_numbers(const json_t *object, const char *key, size_t count) {
    const json_t *list = json_object_get(object, key);
    cr_assert_eq(json_array_size(list), count, "%s", key);
    for (size_t i = 0; i < count; i++) cr_expect(json_is_number(json_array_get(list, i)), "%s[%zu]", key, i);
}

/* results.json has the published record's keys beside COCO's; neither a prompt file nor a detector is needed. */
Test(cli_segment, everything_in_its_files) {
    bench b = make_bench(2);
    unlink(scratch_path(&b.s, "weights/dfine_n_demo.safetensors"));
    expect(EVERYTHING(&b, "--save", "json,ndjson,masks,overlay"), 0, "2 images, 0 failed");
    json_t *lines = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    json_t *results = json_load_file(scratch_path(&b.s, "out/results.json"), 0, NULL);
    cr_assert_eq(json_array_size(lines), 2);
    cr_assert_eq(json_array_size(results), 6); /* the double has three masks of everything */
    const json_t *object = object_at(lines, 0, 1), *record = json_array_get(results, 1);
    expect_numbers(object, "point", 2);
    expect_numbers(object, "crop_box", 4);
    cr_expect_null(json_object_get(object, "prompt"));
    cr_expect_eq(number(record, "predicted_iou"), number(object, "mask_score"));
    cr_expect_eq(number(record, "stability_score"), number(object, "stability"));
    cr_expect_eq(number(record, "area"), number(object, "area"));
    expect_numbers(record, "bbox", 4);
    expect_numbers(record, "crop_box", 4);
    cr_assert_eq(json_array_size(json_object_get(record, "point_coords")), 1);
    const json_t *segmentation = json_object_get(record, "segmentation");
    cr_expect_str_eq(json_string_value(json_object_get(segmentation, "counts")),
                     json_string_value(json_object_get(json_object_get(object, "rle"), "counts")));
    expect_numbers(segmentation, "size", 2);
    check_map(&b, 0);
    cr_expect(scratch_exists(scratch_path(&b.s, "out/overlays/01-x.png")));
    expect_no_temporaries(&b);
    json_decref(lines);
    json_decref(results);
    scratch_remove(&b.s);
}

/* How many points are asked at a time changes nothing that is asked for. */
Test(cli_segment, resume_needs_the_same_parameters_of_everything) {
    bench b = make_bench(6);
    setenv("FAKE_ENGINE", "lost:3", 1);
    expect(EVERYTHING(&b, "--crop-n-layers", "1"), 1, "lost");
    unsetenv("FAKE_ENGINE");
    expect(EVERYTHING(&b, "--resume"), 2, "--resume needs the same options");
    expect(EVERYTHING(&b, "--crop-n-layers", "1", "--pred-iou-thresh", "0.5", "--resume"), 2, "the same options");
    expect(SEGMENT(&b, "--points", put_prompts(&b, "{}"), "--resume"), 2, "the same options");
    expect(EVERYTHING(&b, "--crop-n-layers", "1", "--points-per-batch", "9", "--resume"), 0,
           "kept from an earlier run");
    expect_frames(&b, 6, (const char *[]){"00-x.png", "01-x.png", "02-x.png", "03-x.png", "04-x.png", "05-x.png"});
    scratch_remove(&b.s);
}

Test(cli_segment, everything_beside_a_damaged_image) {
    bench b = make_bench(2);
    scratch_put(scratch_path(&b.s, "in/00-x.png"), "no picture");
    expect(EVERYTHING(&b, "--save", "json,ndjson"), 7, "00-x.png");
    expect_frames(&b, 1, (const char *[]){"01-x.png"});
    scratch_remove(&b.s);
}

Test(cli_segment, parameters_of_everything_that_are_mistakes) {
    static const char *const alone[][3] = {
        {"--points-per-side", "0", "points-per-side"},
        {"--points-per-side", "129", "points-per-side"},
        {"--points-per-side", "2.5", "points-per-side"},
        {"--points-per-batch", "257", "points-per-batch"},
        {"--pred-iou-thresh", "much", "--pred-iou-thresh: 'much' is not a number"},
        {"--stability-score-thresh", "nan", "--stability-score-thresh: 'nan'"},
        {"--stability-score-offset", "-1", "--stability-score-offset: '-1'"},
        {"--box-nms-thresh", "1.5", "--box-nms-thresh: '1.5' is not a number from 0 to 1"},
        {"--crop-n-layers", "4", "crop-n-layers"},
        {"--crop-nms-thresh", "-0.5", "--crop-nms-thresh: '-0.5'"},
        {"--crop-overlap-ratio", "1", "--crop-overlap-ratio: '1'"},
        {"--crop-n-points-downscale-factor", "0", "crop-n-points-downscale-factor"},
        {"--min-mask-region-area", "-1", "min-mask-region-area"},
        {"--max-masks", "4097", "max-masks"},
    };
    bench b = make_bench(1);
    char file[200];
    snprintf(file, sizeof file, "%s", put_prompts(&b, "{}"));
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        expect(SEGMENT(&b, "--everything", alone[i][0], alone[i][1]), 2, alone[i][2]);
    expect(SEGMENT(&b, "--points", file, "--crop-n-layers", "1"), 2, "--crop-n-layers belongs to --everything");
    expect(EVERYTHING(&b, "--multimask"), 2, "without --multimask");
    expect(EVERYTHING(&b, "--batch", "2"), 2, "without --batch");
    expect(EVERYTHING(&b, "--points", file), 2, "give one of --boxes FILE, --points FILE and --everything");
    expect(EVERYTHING(&b, "--boxes", file), 2, "give one of");
    expect(SEGMENT(&b, "--quiet"), 2, "give one of");
    cr_expect(!scratch_exists(b.out), "a mistake must leave nothing behind");
    scratch_remove(&b.s);
}

Test(cli_segment, mistakes_are_said_before_any_work) {
    bench b = make_bench(1);
    char text[8000] = "{\"00-x.png\": [";
    expect(SEGMENT(&b, "--points", "no/such.json"), 1, "no/such.json");
    expect(SEGMENT(&b, "--points", put_prompts(&b, "{")), 1, "p.json: line 1");
    expect(SEGMENT(&b, "--points", put_prompts(&b, "{\"00-x.png\": [{\"points\": [[1, 2, 3]]}]}")), 1,
           "p.json: 00-x.png, prompt 0: label 3 of a point");
    expect(SEGMENT(&b, "--points", put_prompts(&b, "{\"00-x.png\": [{}]}")), 1, "prompt 0: neither points");
    for (int i = 0; i < 301; i++) strcat(text, i ? ",{\"box\": [0,0,1,1]}" : "{\"box\": [0,0,1,1]}");
    strcat(text, "]}");
    expect(SEGMENT(&b, "--boxes", put_prompts(&b, text)), 1, "00-x.png has 301 prompts, at most 300");
    cr_expect(!scratch_exists(b.out), "a mistake must leave nothing behind");
    expect(SEGMENT(&b, "--boxes", put_prompts(&b, "{\"y.png\": []}")), 0, "p.json: of 1 image it names none");
    unlink(scratch_path(&b.s, "weights/mobile_sam_demo.safetensors"));
    expect(SEGMENT(&b, "--boxes", put_prompts(&b, "{}")), 4, "name a checkpoint with --segmenter FILE");
    scratch_remove(&b.s);
}
