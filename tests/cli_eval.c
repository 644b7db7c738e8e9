/* `isthmus eval` over a double of the engine (tests/fake_engine.c): which images are evaluated, what is said, failures.
 * The last test is over the real engine and the checkpoints that ship.
 *
 * The double finds a person, a stop sign and a zebra in each image; the truth here has the person with its very mask,
 * the stop sign with a mask twice as long, and the zebra elsewhere. */
#include "gray_png.h"
#include "program.h"

#include <jansson.h>

#define PROGRAM IST_BUILD_DIR "/tests/isthmus_fake"
#define DEMO    IST_SOURCE_DIR "/weights/demo"

typedef struct bench {
    scratch s;
    char in[160], out[160], truth[160], json[160];
} bench;

static void write_truth(const bench *b, int images) {
    FILE *f = fopen(b->truth, "w");
    cr_assert_not_null(f);
    fprintf(f, "{\"categories\":[{\"id\":1,\"name\":\"person\"},{\"id\":2,\"name\":\"stop sign\"},"
               "{\"id\":3,\"name\":\"zebra\"}],\"images\":[");
    for (int i = 0; i < images; i++)
        fprintf(f, "%s{\"id\":%d,\"file_name\":\"%02d-x.png\",\"width\":%d,\"height\":60}", i ? "," : "", 100 + i, i,
                50 + i);
    fprintf(f, "],\"annotations\":[");
    for (int i = 0; i < images; i++) {
        double half = (50 + i) / 2.0;
        fprintf(f,
                "%s{\"id\":%d,\"image_id\":%d,\"category_id\":1,\"bbox\":[0,0,%g,30],\"area\":700,\"iscrowd\":0,"
                "\"segmentation\":[[0,0,0,40,5,40,5,0]]},"
                "{\"id\":%d,\"image_id\":%d,\"category_id\":2,\"bbox\":[1,1,%g,30],\"area\":700,\"iscrowd\":0,"
                "\"segmentation\":[[1,0,1,40,11,40,11,0]]},"
                "{\"id\":%d,\"image_id\":%d,\"category_id\":3,\"bbox\":[40,50,9,9],\"area\":81,\"iscrowd\":0,"
                "\"segmentation\":[[40,50,40,59,49,59,49,50]]}",
                i ? "," : "", 3 * i + 1, 100 + i, half, 3 * i + 2, 100 + i, half, 3 * i + 3, 100 + i);
    }
    fprintf(f, "]}\n");
    cr_assert_eq(fclose(f), 0);
}

static bench make_bench(int images) {
    bench b = {.s = scratch_make()};
    snprintf(b.in, sizeof b.in, "%s/in", b.s.path);
    snprintf(b.out, sizeof b.out, "%s/out", b.s.path);
    snprintf(b.truth, sizeof b.truth, "%s/truth.json", b.s.path);
    snprintf(b.json, sizeof b.json, "%s/numbers.json", b.s.path);
    mkdir(b.in, 0777);
    mkdir(scratch_path(&b.s, "weights"), 0777);
    mkdir(scratch_path(&b.s, "temporary"), 0777);
    scratch_put(scratch_path(&b.s, "weights/dfine_n_demo.safetensors"), "");
    scratch_put(scratch_path(&b.s, "weights/mobile_sam_demo.safetensors"), "");
    setenv("ISTHMUS_WEIGHTS_DIR", scratch_path(&b.s, "weights"), 1);
    setenv("TMPDIR", scratch_path(&b.s, "temporary"), 1);
    for (int i = 0; i < images; i++) write_png(scratch_path(&b.s, "in/%02d-x.png", i), 50 + i, 60);
    write_truth(&b, images);
    return b;
}

/* Results in a folder of the program's own leave nothing behind. */
static void end_bench(bench *b) {
    cr_expect_eq(rmdir(scratch_path(&b->s, "temporary")), 0, "something is left in TMPDIR");
    unsetenv("TMPDIR");
    scratch_remove(&b->s);
}

#define EVAL(b, ...)                                                                                                   \
    spawn_run(                                                                                                         \
        &(b)->s, NULL,                                                                                                 \
        (const char *const[]){PROGRAM, "eval", "--annotations", (b)->truth, "--json", (b)->json, __VA_ARGS__, NULL})

static void expect(spawned r, int code, const char *out_part, const char *err_part) {
    cr_expect_eq(r.code, code, "exit code %d, want %d; stderr: %s", r.code, code, r.err);
    cr_expect_not_null(strstr(r.out, out_part), "stdout lacks '%s': %s", out_part, r.out);
    cr_expect_not_null(strstr(r.err, err_part), "stderr lacks '%s': %s", err_part, r.err);
    if (code && code != 7) {
        cr_expect_str_empty(r.out);
        cr_expect_eq(strchr(r.err, '\n'), strrchr(r.err, '\n'), "one sentence: %s", r.err);
    }
    spawn_free(&r);
}

static json_t *numbers(const bench *b) {
    json_t *root = json_load_file(b->json, JSON_REJECT_DUPLICATES, NULL);
    cr_assert(json_is_object(root));
    return root;
}

static double number(const json_t *root, const char *group, const char *name) {
    return json_number_value(json_object_get(json_object_get(root, group), name));
}

static double of_class(const json_t *root, size_t index, const char *name) {
    return json_number_value(json_object_get(json_array_get(json_object_get(root, "classes"), index), name));
}

Test(cli_eval, a_folder_against_its_truth) {
    bench b = make_bench(4);
    expect(EVAL(&b, b.in), 0, "4 images, 12 objects, 12 detections", "4 images, 0 failed");
    json_t *n = numbers(&b);
    cr_expect_eq(json_integer_value(json_object_get(n, "images")), 4);
    cr_expect_float_eq(number(n, "boxes", "AP"), 2.0 / 3, 1e-6);
    cr_expect_float_eq(number(n, "boxes", "AR1"), 2.0 / 3, 1e-6);
    cr_expect_float_eq(number(n, "masks", "AP50"), 2.0 / 3, 1e-6); /* an overlap of exactly a half is one */
    cr_expect_float_eq(number(n, "masks", "AP75"), 1.0 / 3, 1e-6);
    cr_expect(json_is_null(json_object_get(json_object_get(n, "boxes"), "APl")));
    cr_expect_eq(of_class(n, 0, "box_AP"), 1);
    cr_expect_eq(of_class(n, 0, "mask_AP"), 1);
    cr_expect_float_eq(of_class(n, 1, "mask_AP"), 0.1, 1e-6);
    cr_expect_eq(of_class(n, 2, "box_AP"), 0);
    cr_expect_eq(number(n, "matched", "matched"), 8);
    cr_expect_eq(number(n, "matched", "objects"), 12);
    cr_expect_float_eq(number(n, "matched", "box_iou"), 1, 1e-6);
    cr_expect_float_eq(number(n, "matched", "mask_iou"), 0.75, 1e-6);
    cr_expect_float_eq(number(n, "matched", "mask_iou_of_all"), 0.5, 1e-6);
    cr_expect_eq(number(n, "truth_prompts", "objects"), 12);
    cr_expect_float_eq(number(n, "truth_prompts", "mask_iou"), 0.5, 1e-6);
    json_decref(n);
    end_bench(&b);
}

Test(cli_eval, the_table) {
    bench b = make_bench(1);
    spawned r = EVAL(&b, b.in, "--quiet");
    cr_expect_str_eq(r.out, "1 image, 3 objects, 3 detections\n\n"
                            "                           boxes   masks\n"
                            "AP     IoU 0.50:0.95       0.667   0.367\n"
                            "AP50   IoU 0.50            0.667   0.667\n"
                            "AP75   IoU 0.75            0.667   0.333\n"
                            "APs    area < 32^2         0.667   0.367\n"
                            "APm    area 32^2..96^2         -       -\n"
                            "APl    area > 96^2             -       -\n"
                            "AR1    1 per image         0.667   0.367\n"
                            "AR10   10 per image        0.667   0.367\n"
                            "AR100  100 per image       0.667   0.367\n"
                            "ARs    area < 32^2         0.667   0.367\n"
                            "ARm    area 32^2..96^2         -       -\n"
                            "ARl    area > 96^2             -       -\n\n"
                            "class                     objects   boxes   masks\n"
                            "person                          1   1.000   1.000\n"
                            "stop sign                       1   1.000   0.100\n"
                            "zebra                           1   0.000   0.000\n\n"
                            "2 of 3 objects matched (score above 0.4, box IoU from 0.5)\n"
                            "mean box IoU of the matched   1.000\n"
                            "mean mask IoU of the matched  0.750\n"
                            "mean mask IoU of all objects  0.500 (0 for those not matched)\n"
                            "mean mask IoU from true boxes 0.500 (the boxes of 3 annotations as prompts)\n");
    cr_expect_str_empty(r.err);
    spawn_free(&r);
    end_bench(&b);
}

Test(cli_eval, results_that_were_kept_say_the_same) {
    bench b = make_bench(3);
    expect(EVAL(&b, b.in, "-o", b.out), 0, "3 images", "results in");
    json_t *first = numbers(&b), *results = json_load_file(scratch_path(&b.s, "out/results.json"), 0, NULL);
    cr_assert_eq(json_array_size(results), 9);
    cr_expect_eq(json_integer_value(json_object_get(json_array_get(results, 4), "image_id")), 101);
    cr_expect_eq(json_integer_value(json_object_get(json_array_get(results, 4), "category_id")), 2);
    cr_expect(scratch_exists(scratch_path(&b.s, "out/frames.ndjson")));
    expect(EVAL(&b, "--results", scratch_path(&b.s, "out/results.json"), "--device", "0"), 0, "3 images", "");
    json_t *second = numbers(&b);
    cr_expect(json_is_null(json_object_get(second, "truth_prompts")), "no image is named");
    json_object_set(second, "truth_prompts", json_object_get(first, "truth_prompts"));
    cr_expect(json_equal(first, second));
    expect(EVAL(&b, "--results", scratch_path(&b.s, "out/results.json")), 0, "3 images", "");
    json_t *third = numbers(&b);
    cr_expect(json_is_null(json_object_get(third, "matched")));
    cr_expect(json_equal(json_object_get(first, "masks"), json_object_get(third, "masks")));
    expect(EVAL(&b, b.in, "-o", b.out, "--resume"), 0, "3 images", "all 3 images are there already");
    json_t *fourth = numbers(&b);
    cr_expect(json_equal(first, fourth));
    json_decref(first);
    json_decref(second);
    json_decref(third);
    json_decref(fourth);
    json_decref(results);
    end_bench(&b);
}

/* Aerial images have thousands of objects: too many for the matcher, not for AP. */
Test(cli_eval, more_annotations_than_the_matcher_takes) {
    bench b = make_bench(0);
    FILE *f = fopen(b.truth, "w"), *results = fopen(scratch_path(&b.s, "results.json"), "w");
    cr_assert(f && results);
    fprintf(f, "{\"images\":[{\"id\":1,\"file_name\":\"a.png\"},{\"id\":2,\"file_name\":\"b.png\"}],\"annotations\":[");
    for (int i = 0; i <= 301; i++)
        fprintf(f, "%s{\"id\":%d,\"image_id\":%d,\"category_id\":1,\"bbox\":[%d,0,8,8]}", i ? "," : "", i + 1, 1 + !i,
                10 * i);
    fprintf(f, "]}\n");
    fprintf(results, "[{\"image_id\":1,\"category_id\":1,\"bbox\":[10,0,8,8],\"score\":0.9},"
                     "{\"image_id\":2,\"category_id\":1,\"bbox\":[0,0,8,8],\"score\":0.9}]");
    fclose(f);
    fclose(results);
    expect(EVAL(&b, "--results", scratch_path(&b.s, "results.json"), "--device", "0"), 0, "302 objects",
           "1 image has more than 300 annotations or results");
    json_t *root = numbers(&b);
    cr_expect_gt(number(root, "boxes", "AP"), 0);
    cr_expect_eq(number(root, "matched", "objects"), 1);
    cr_expect_eq(number(root, "matched", "matched"), 1);
    json_decref(root);
    end_bench(&b);
}

/* For a pipe: the table gives way. */
Test(cli_eval, json_has_standard_output_to_itself) {
    bench b = make_bench(2);
    const char *const argv[] = {PROGRAM, "eval", b.in, "--annotations", b.truth, "--json", "-", NULL};
    spawned r = spawn_run(&b.s, NULL, argv);
    json_t *root = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL);
    cr_expect_eq(r.code, 0);
    cr_expect_not_null(root, "no JSON: %s", r.out);
    cr_expect_eq(json_integer_value(json_object_get(root, "images")), 2);
    cr_expect_not_null(strstr(r.err, "AP     IoU 0.50:0.95"), "%s", r.err);
    cr_expect(access("-", F_OK));
    json_decref(root);
    spawn_free(&r);
    end_bench(&b);
}

Test(cli_eval, images_on_one_side_only_are_left_out_and_named) {
    bench b = make_bench(4);
    unlink(scratch_path(&b.s, "in/02-x.png"));
    write_png(scratch_path(&b.s, "in/new.png"), 50, 60);
    spawned r = EVAL(&b, b.in);
    cr_expect_eq(r.code, 0);
    cr_expect_not_null(strstr(r.err, "1 image is not in it and left out"), "%s", r.err);
    cr_expect_not_null(strstr(r.err, "3 of its 4 images are evaluated"), "%s", r.err);
    cr_expect_not_null(strstr(r.out, "3 images, 9 objects, 9 detections"), "%s", r.out);
    spawn_free(&r);
    expect(EVAL(&b, scratch_path(&b.s, "in/new.png")), 1, "", "of 1 image none is among its 4");
    expect(EVAL(&b, b.in, scratch_path(&b.s, "in/../in/00-x.png")), 1, "", "1 image is given more than once");
    end_bench(&b);
}

Test(cli_eval, an_image_that_cannot_be_read_has_no_detections) {
    bench b = make_bench(4);
    scratch_put(scratch_path(&b.s, "in/01-x.png"), "no image");
    expect(EVAL(&b, b.in), 7, "4 images, 12 objects, 9 detections", "01-x.png");
    json_t *n = numbers(&b);
    cr_expect_float_eq(of_class(n, 0, "box_AP"), 76.0 / 101, 1e-6);
    cr_expect_eq(number(n, "matched", "matched"), 6);
    cr_expect_eq(number(n, "truth_prompts", "objects"), 12);
    cr_expect_float_eq(number(n, "truth_prompts", "mask_iou"), 0.375, 1e-6);
    json_decref(n);
    end_bench(&b);
}

Test(cli_eval, boxes_alone) {
    bench b = make_bench(1);
    unlink(scratch_path(&b.s, "weights/mobile_sam_demo.safetensors"));
    expect(EVAL(&b, b.in, "--no-masks"), 0, "mean box IoU of the matched   1.000", "1 image");
    json_t *n = numbers(&b);
    cr_expect(json_is_null(json_object_get(n, "masks")));
    cr_expect(json_is_null(json_object_get(json_object_get(n, "matched"), "mask_iou")));
    cr_expect(json_is_null(json_object_get(n, "truth_prompts")));
    json_decref(n);
    end_bench(&b);
}

/* The second image's annotations: a crowd, one without a segmentation, and one that the mask found for the first box
 * covers to the half. The first image has none. */
Test(cli_eval, prompts_are_annotations_with_masks_and_no_crowds) {
    bench b = make_bench(2);
    const char *common = "\"image_id\":101,\"category_id\":1,\"bbox\":[1,1,9,9]";
    FILE *f = fopen(b.truth, "w");
    cr_assert_not_null(f);
    fprintf(f,
            "{\"categories\":[{\"id\":1,\"name\":\"person\"}],\"images\":["
            "{\"id\":101,\"file_name\":\"01-x.png\",\"width\":51,\"height\":60},"
            "{\"id\":100,\"file_name\":\"00-x.png\",\"width\":50,\"height\":60}],\"annotations\":["
            "{\"id\":1,%s,\"iscrowd\":1,\"segmentation\":{\"size\":[60,51],\"counts\":[0,3060]}},{\"id\":2,%s},"
            "{\"id\":3,%s,\"segmentation\":[[0,0,0,40,10,40,10,0]]}]}",
            common, common, common);
    cr_assert_eq(fclose(f), 0);
    expect(EVAL(&b, b.in), 0, "mean mask IoU from true boxes 0.500 (the boxes of 1 annotation as prompts)", "2 images");
    expect(EVAL(&b, b.in, "--no-truth-prompts"), 0, "2 images", "2 images");
    json_t *n = numbers(&b);
    cr_expect(json_is_null(json_object_get(n, "truth_prompts")));
    json_decref(n);
    end_bench(&b);
}

Test(cli_eval, an_image_that_the_engine_refuses_counts_as_nothing) {
    bench b = make_bench(2);
    setenv("FAKE_ENGINE", "refuse:51", 1);
    expect(EVAL(&b, b.in), 7, "mean mask IoU from true boxes 0.250 (the boxes of 6 annotations as prompts)",
           "01-x.png: no masks for its annotations' boxes: an image of 51 pixels in width does not fit");
    unsetenv("FAKE_ENGINE");
    end_bench(&b);
}

/* The double makes three masks at most; the sums must not go on with fewer masks than boxes. */
Test(cli_eval, a_mask_is_missing) {
    bench b = make_bench(1);
    const char *one = "\"image_id\":100,\"category_id\":1,\"bbox\":[0,0,5,40],\"segmentation\":[[0,0,0,40,5,40,5,0]]";
    FILE *f = fopen(b.truth, "w");
    cr_assert_not_null(f);
    fprintf(f,
            "{\"categories\":[{\"id\":1,\"name\":\"person\"}],\"images\":[{\"id\":100,\"file_name\":\"00-x.png\","
            "\"width\":50,\"height\":60}],\"annotations\":[{\"id\":1,%s},{\"id\":2,%s},{\"id\":3,%s},{\"id\":4,%s}]}",
            one, one, one, one);
    cr_assert_eq(fclose(f), 0);
    expect(EVAL(&b, b.in, "--quiet"), 1, "", "3 masks came for 4 boxes");
    end_bench(&b);
}

Test(cli_eval, categories_that_the_detector_lacks) {
    bench b = make_bench(1);
    scratch_put(b.truth, "{\"categories\":[{\"id\":1,\"name\":\"person\"},{\"id\":2,\"name\":\"bone\"}],\"images\":"
                         "[{\"id\":5,\"file_name\":\"00-x.png\"}],\"annotations\":[]}");
    expect(EVAL(&b, b.in), 0, "0 objects, 1 detection", "1 of its 2 categories is no class of the detector");
    scratch_put(b.truth, "{\"categories\":[{\"id\":91,\"name\":\"bone\"}],\"images\":"
                         "[{\"id\":5,\"file_name\":\"00-x.png\"}],\"annotations\":[]}");
    expect(EVAL(&b, b.in), 1, "", "of its 1 category none is a class of the detector");
    end_bench(&b);
}

Test(cli_eval, mistakes_on_the_command_line) {
    bench b = make_bench(1);
    const char *const none[] = {PROGRAM, "eval", b.in, NULL};
    expect(spawn_run(&b.s, NULL, none), 2, "", "--annotations FILE is missing");
    expect(EVAL(&b, NULL), 2, "", "name at least one image");
    expect(EVAL(&b, b.in, "--results", "r.json"), 2, "", "--results and images exclude each other");
    expect(EVAL(&b, "--results", "r.json", "-o", b.out), 2, "", "--results excludes -o and --resume");
    expect(EVAL(&b, b.in, "--resume"), 2, "", "--save and --resume need -o DIR");
    expect(EVAL(&b, b.in, "-o", ""), 2, "", "the name of the folder is empty");
    expect(EVAL(&b, b.in, "--track"), 2, "", "eval: unknown or ambiguous option '--track'");
    expect(EVAL(&b, b.in, "--conf", "2"), 2, "", "eval: --conf");
    end_bench(&b);
}

Test(cli_eval, bad_files) {
    bench b = make_bench(1);
    const char *results = scratch_path(&b.s, "results.json");
    scratch_put(results, "[{\"image_id\":100,\"category_id\":1,\"bbox\":[0,0,1,1]}]");
    expect(EVAL(&b, "--results", results), 1, "", "result 0: score is missing");
    scratch_put(results, "[{\"image_id\":1,\"category_id\":1,\"bbox\":[0,0,1,1],\"score\":1}]");
    expect(EVAL(&b, "--results", results), 1, "", "no image with the image_id 1");
    expect(EVAL(&b, "--results", scratch_path(&b.s, "nowhere.json")), 1, "", "nowhere.json: No such file");
    expect(EVAL(&b, scratch_path(&b.s, "nowhere.png")), 1, "", "there is no such file or folder");
    cr_assert_eq(symlink("loop.png", scratch_path(&b.s, "loop.png")), 0);
    expect(EVAL(&b, scratch_path(&b.s, "loop.png")), 1, "", "loop.png: Too many levels of symbolic links");
    scratch_put(b.truth, "{\"images\":[{\"id\":1}],\"annotations\":[]}");
    expect(EVAL(&b, b.in), 1, "", "image 1 has no file_name");
    scratch_put(b.truth, "{\"images\":[{\"id\":1,\"file_name\":\"a\"},{\"id\":2,\"file_name\":\"a\"}],"
                         "\"annotations\":[]}");
    expect(EVAL(&b, b.in), 1, "", "two images are called a");
    scratch_put(b.truth, "{\"images\":");
    expect(EVAL(&b, b.in), 1, "", "truth.json: line 1");
    end_bench(&b);
}

Test(cli_eval, missing_weights_and_a_lost_device) {
    bench b = make_bench(2);
    setenv("FAKE_ENGINE", "lost:1", 1);
    expect(EVAL(&b, b.in, "--json", scratch_path(&b.s, "truth.json/x")), 1, "", ": Not a directory");
    spawned r = EVAL(&b, b.in);
    unsetenv("FAKE_ENGINE");
    cr_expect_eq(r.code, 1);
    cr_expect_not_null(strstr(r.err, "the device is lost"), "%s", r.err);
    cr_expect_null(strstr(r.err, "--resume"), "%s", r.err);
    cr_expect_str_empty(r.out);
    spawn_free(&r);
    unlink(scratch_path(&b.s, "weights/dfine_n_demo.safetensors"));
    expect(EVAL(&b, b.in), 4, "", "there is no dfine_n_demo.safetensors");
    end_bench(&b);
}

/* The number over two frames follows from those over each, which have 2 objects and 1; what the detector keeps has no
 * part in it. */
Test(cli_eval, shipped_checkpoints_on_frames_of_the_demo) {
    static const char *const frames[] = {DEMO "/frame-001.png", DEMO "/frame-002.png"};
    static const double objects[] = {2, 1, 3};
    bench b = make_bench(0);
    double iou[3];
    setenv("ISTHMUS_WEIGHTS_DIR", IST_SOURCE_DIR "/weights", 1);
    for (int i = 0; i < 3; i++) {
        const char *conf = i < 2 ? "0.9" : "0.001";
        const char *const argv[] = {
            IST_CLI,  "eval", "--annotations", DEMO "/annotations.json", "--json", b.json, "--max-objects", "3",
            "--conf", conf,   frames[i == 1],  i < 2 ? NULL : frames[1], NULL};
        spawned r = spawn_run(&b.s, NULL, argv);
        cr_assert_eq(r.code, 0, "exit code %d: %s", r.code, r.err);
        cr_expect_not_null(strstr(r.out, "mean mask IoU from true boxes 0."), "%s", r.out);
        spawn_free(&r);
        json_t *n = numbers(&b);
        cr_expect_eq(number(n, "truth_prompts", "objects"), objects[i]);
        iou[i] = number(n, "truth_prompts", "mask_iou");
        cr_expect(iou[i] > 0.5 && iou[i] < 1, "run %d: %g", i, iou[i]);
        json_decref(n);
    }
    cr_expect_float_eq(iou[2], (2 * iou[0] + iou[1]) / 3, 1e-4);
    end_bench(&b);
}
