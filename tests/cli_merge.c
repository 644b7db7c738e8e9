/* `isthmus predict --shard` and `isthmus merge` over a double of the engine: what is merged must be what one run
 * writes, byte for byte, times apart. */
#include "gray_png.h"
#include "program.h"
#include "support/results.h"

#include "io/shard.h"

#define PROGRAM IST_BUILD_DIR "/tests/isthmus_fake"

enum { IMAGES = 40, SHARDS = 3 };

static scratch make_bench(void) {
    scratch s = scratch_make();
    mkdir(scratch_path(&s, "in"), 0777);
    mkdir(scratch_path(&s, "in/a"), 0777);
    scratch_put(scratch_path(&s, "dfine_n_demo.safetensors"), "");
    scratch_put(scratch_path(&s, "mobile_sam_demo.safetensors"), "");
    setenv("ISTHMUS_WEIGHTS_DIR", s.path, 1);
    for (int i = 0; i < IMAGES; i++)
        write_png(scratch_path(&s, i % 4 ? "in/x%02d.png" : "in/a/x%02d.png", i), 50 + i, 60);
    write_png(scratch_path(&s, "in/a/x01.png"), 50, 60); /* a stem that is taken */
    return s;
}

#define PREDICT(s, out, ...)                                                                                           \
    spawn_run((s), NULL,                                                                                               \
              (const char *const[]){PROGRAM, "predict", scratch_path((s), "in"), "-r", "-o", scratch_path((s), out),   \
                                    "--save", "json,ndjson,masks,overlay,yolo,csv", __VA_ARGS__, NULL})
#define MERGE(s, ...) spawn_run((s), NULL, (const char *const[]){PROGRAM, "merge", __VA_ARGS__, NULL})
#define MERGE_ALL(s)                                                                                                   \
    MERGE((s), "-o", scratch_path((s), "all"), scratch_path((s), "part3"), scratch_path((s), "part1"),                 \
          scratch_path((s), "part2"))

static void expect(spawned r, int code, const char *err_part) {
    cr_expect_eq(r.code, code, "exit code %d, want %d; stderr: %s", r.code, code, r.err);
    cr_expect_not_null(strstr(r.err, err_part), "stderr lacks '%s': %s", err_part, r.err);
    spawn_free(&r);
}

static void run_shard(scratch *s, int shard, int code, const char *more) {
    char out[16], value[16];
    snprintf(out, sizeof out, "part%d", shard);
    snprintf(value, sizeof value, "%d/%d", shard, SHARDS);
    expect(PREDICT(s, out, "--shard", value, more), code, "");
}

static void run_shards(scratch *s, const char *more) {
    for (int i = 1; i <= SHARDS; i++) run_shard(s, i, 0, more);
}

static size_t count_own(const scratch *s, const char *folder) {
    ist_shard_part part;
    ist_sources own;
    ist_error err;
    cr_assert_eq(ist_shard_read(scratch_path(s, "%s", folder), &part, &own, &err), IST_OK, "%s", err.text);
    size_t count = own.count;
    cr_expect_eq(part.total, IMAGES + 1);
    ist_shard_part_free(&part);
    ist_sources_free(&own);
    return count;
}

Test(cli_merge, shards_become_what_one_run_writes) {
    scratch s = make_bench();
    expect(PREDICT(&s, "one", "--batch", "2"), 0, "41 images, 0 failed");
    run_shards(&s, "--quiet");
    for (int i = 1; i <= SHARDS; i++) {
        char name[16];
        snprintf(name, sizeof name, "part%d", i);
        size_t own = count_own(&s, name);
        cr_expect(own > 5 && own < 25, "%zu images of 41 in shard %d", own, i);
    }
    expect(MERGE_ALL(&s), 0, "41 images of 3 shards, 0 failed");
    same_results(&s, "one", "all");
    expect(MERGE_ALL(&s), 0, "41 images of 3 shards"); /* once more, over what is there */
    same_results(&s, "one", "all");
    scratch_remove(&s);
}

Test(cli_merge, failed_images_are_those_of_one_run) {
    scratch s = make_bench();
    scratch_put(scratch_path(&s, "in/x07.png"), "no image");
    scratch_put(scratch_path(&s, "in/a/x20.png"), "no image");
    expect(PREDICT(&s, "one", "--quiet"), 7, "x07.png");
    for (int i = 1; i <= SHARDS; i++) {
        char out[16], value[16];
        snprintf(out, sizeof out, "part%d", i);
        snprintf(value, sizeof value, "%d/%d", i, SHARDS);
        spawned r = PREDICT(&s, out, "--shard", value);
        cr_expect(r.code == 0 || r.code == 7, "%s", r.err);
        spawn_free(&r);
    }
    expect(MERGE_ALL(&s), 7, "39 images of 3 shards, 2 failed");
    same_results(&s, "one", "all");
    scratch_remove(&s);
}

/* Category ids of the annotations go with the shards. */
Test(cli_merge, given_boxes_keep_their_categories) {
    scratch s = make_bench();
    scratch_put(scratch_path(&s, "t.json"),
                "{\"images\":[{\"id\":1,\"file_name\":\"x01.png\"},{\"id\":2,\"file_name\":\"a/x20.png\"}],"
                "\"categories\":[{\"id\":90,\"name\":\"needle\"},{\"id\":7,\"name\":\"bone\"}],\"annotations\":["
                "{\"image_id\":1,\"category_id\":90,\"bbox\":[1,1,20,30]},"
                "{\"image_id\":2,\"category_id\":7,\"bbox\":[2,2,20,30]}]}");
    char file[300], *results;
    snprintf(file, sizeof file, "--targets=%s", scratch_path(&s, "t.json"));
    expect(PREDICT(&s, "one", "--no-detector", file), 0, "41 images, 0 failed");
    for (int i = 1; i <= SHARDS; i++) {
        char out[16], value[16];
        snprintf(out, sizeof out, "part%d", i);
        snprintf(value, sizeof value, "%d/%d", i, SHARDS);
        expect(PREDICT(&s, out, "--shard", value, "--no-detector", file), 0, "");
    }
    expect(MERGE_ALL(&s), 0, "41 images of 3 shards, 0 failed");
    same_results(&s, "one", "all");
    results = scratch_read(scratch_path(&s, "all/results.json"), NULL);
    cr_expect_not_null(strstr(results, "\"category_id\":90"), "%s", results);
    free(results);
    scratch_remove(&s);
}

#define SEGMENT(s, out, ...)                                                                                           \
    spawn_run((s), NULL,                                                                                               \
              (const char *const[]){PROGRAM, "segment", scratch_path((s), "in"), "-r", "-o", scratch_path((s), out),   \
                                    "--save", "json,ndjson,masks,overlay,yolo,csv", "--multimask", __VA_ARGS__, NULL})

Test(cli_merge, segment_has_shards_too) {
    scratch s = make_bench();
    char file[300];
    scratch_put(scratch_path(&s, "p.json"),
                "{\"x01.png\":[{\"points\":[[3,4,1]]},{\"box\":[1,2,30,40]}],\"a/x20.png\":[{\"box\":[1,2,9,9]}]}");
    snprintf(file, sizeof file, "--points=%s", scratch_path(&s, "p.json"));
    expect(SEGMENT(&s, "one", file), 0, "41 images, 0 failed");
    for (int i = 1; i <= SHARDS; i++) {
        char out[16], value[16];
        snprintf(out, sizeof out, "part%d", i);
        snprintf(value, sizeof value, "%d/%d", i, SHARDS);
        expect(SEGMENT(&s, out, "--shard", value, file), 0, "");
    }
    expect(MERGE_ALL(&s), 0, "41 images of 3 shards, 0 failed");
    same_results(&s, "one", "all");
    expect(SEGMENT(&s, "part1", file, "--shard", "2/3", "--resume"), 2, "segment: ");
    expect(SEGMENT(&s, "part4", file, "--shard", "4/3"), 2, "segment: --shard: '4/3' is not I/N");
    expect(SEGMENT(&s, "part4", file, "--shard", "1/3", "--save", "json"), 2, "segment: --shard needs ndjson");
    scratch_remove(&s);
}

Test(cli_merge, tracks_stay_in_one_shard) {
    scratch s = make_bench();
    expect(PREDICT(&s, "one", "--track"), 0, "41 images");
    run_shards(&s, "--track");
    expect(MERGE_ALL(&s), 0, "41 images of 3 shards");
    same_results(&s, "one", "all");
    cr_expect_eq(count_own(&s, "part1") + count_own(&s, "part2") + count_own(&s, "part3"), IMAGES + 1);
    size_t alone = count_own(&s, "part1");
    expect(PREDICT(&s, "part1", "--shard", "1/3", "--trust"), 0, "");
    cr_expect_eq(count_own(&s, "part1"), alone, "trust goes from image to image, too");
    scratch_remove(&s);
}

Test(cli_merge, a_shard_resumes_and_others_keep_theirs_when_images_are_added) {
    scratch s = make_bench();
    run_shards(&s, "--quiet");
    expect(PREDICT(&s, "part2", "--shard", "2/3", "--resume"), 0, "are there already");
    expect(PREDICT(&s, "part2", "--shard", "1/3", "--resume"), 2, "part2 holds shard 2 of 3");
    write_png(scratch_path(&s, "in/added.png"), 70, 60);
    for (int i = 1; i <= SHARDS; i++) run_shard(&s, i, 0, "--resume");
    expect(PREDICT(&s, "one", "--quiet"), 0, "");
    expect(MERGE_ALL(&s), 0, "42 images");
    same_results(&s, "one", "all");
    scratch_remove(&s);
}

Test(cli_merge, more_shards_than_images) {
    scratch s = make_bench();
    expect(PREDICT(&s, "one", "--limit", "1", "--quiet"), 0, "");
    int empty = 0;
    for (int i = 1; i <= SHARDS; i++) {
        char out[16], value[16];
        snprintf(out, sizeof out, "part%d", i);
        snprintf(value, sizeof value, "%d/%d", i, SHARDS);
        spawned r = PREDICT(&s, out, "--shard", value, "--limit", "1");
        cr_expect_eq(r.code, 0, "%s", r.err);
        empty += strstr(r.err, "of 1 image none falls to shard") != NULL;
        spawn_free(&r);
    }
    cr_expect_eq(empty, SHARDS - 1);
    expect(MERGE_ALL(&s), 0, "1 image of 3 shards");
    same_results(&s, "one", "all");
    scratch_remove(&s);
}

Test(cli_merge, auto_is_the_task_of_slurms_array) {
    scratch s = make_bench();
    expect(PREDICT(&s, "none", "--shard", "auto"), 2, "SLURM_ARRAY_TASK_ID");
    setenv("SLURM_ARRAY_TASK_COUNT", "3", 1);
    setenv("SLURM_ARRAY_TASK_MIN", "10", 1);
    setenv("SLURM_ARRAY_TASK_STEP", "5", 1);
    const char *const tasks[] = {"10", "15", "20"};
    for (int i = 0; i < SHARDS; i++) {
        char out[16];
        snprintf(out, sizeof out, "part%d", i + 1);
        setenv("SLURM_ARRAY_TASK_ID", tasks[i], 1);
        expect(PREDICT(&s, out, "--shard", "auto"), 0, "0 failed");
    }
    setenv("SLURM_ARRAY_TASK_ID", "12", 1);
    expect(PREDICT(&s, "none", "--shard", "auto"), 2, "task 12 is none of 3 tasks from 10 by steps of 5");
    cr_expect_eq(count_own(&s, "part1") + count_own(&s, "part2") + count_own(&s, "part3"), IMAGES + 1);
    expect(PREDICT(&s, "one", "--quiet"), 0, "");
    expect(MERGE_ALL(&s), 0, "41 images of 3 shards");
    same_results(&s, "one", "all");
    scratch_remove(&s);
}

Test(cli_merge, what_does_not_belong_together_is_not_merged) {
    scratch s = make_bench();
    const char *const wrong[] = {"0/3", "4/3", "1", "1/", "/3", "1/0", "a/b", "1/3/5"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect(PREDICT(&s, "none", "--shard", wrong[i]), 2, "is not I/N");
    expect(PREDICT(&s, "none", "--shard", "1/2", "--save", "json"), 2, "--shard needs ndjson");
    run_shards(&s, "--quiet");
    char *one = strdup(scratch_path(&s, "part1")), *two = strdup(scratch_path(&s, "part2"));
    char *three = strdup(scratch_path(&s, "part3")), *all = strdup(scratch_path(&s, "all"));
    expect(MERGE(&s, one, two, three), 2, "-o DIR is missing");
    expect(MERGE(&s, "-o", all), 2, "name the folders");
    expect(MERGE(&s, one, two, "-o", all), 2, "shard 3 of 3 is missing");
    expect(MERGE(&s, one, three, "-o", all), 2, "shard 2 of 3 is missing");
    expect(MERGE(&s, one, two, one, "-o", all), 2, "are both shard 1 of 3");
    expect(MERGE(&s, one, two, three, "-o", two), 2, "is one of the folders to merge");
    expect(MERGE(&s, one, two, scratch_path(&s, "in"), "-o", all), 1, "is no folder of predict --shard");
    cr_expect(!scratch_exists(all));
    expect(PREDICT(&s, "part3", "--shard", "3/3", "--conf", "0.7"), 0, "");
    expect(MERGE_ALL(&s), 2, "were made with different options");
    cr_expect(!scratch_exists(all));
    run_shard(&s, 3, 0, "--quiet");
    expect(PREDICT(&s, "part3", "--shard", "3/4"), 0, "");
    expect(MERGE_ALL(&s), 2, "is a shard of");
    expect(PREDICT(&s, "part3", "--shard", "3/3", "--limit", "9"), 0, "");
    expect(MERGE_ALL(&s), 2, "shards of different lists of images");
    run_shard(&s, 3, 0, "--quiet");
    rename(scratch_path(&s, "part3/frames.ndjson"), scratch_path(&s, "part3/frames.ndjson.partial"));
    expect(MERGE_ALL(&s), 1, "is not complete; predict --resume continues it");
    run_shard(&s, 3, 0, "--resume");
    cr_expect(!scratch_exists(all));
    expect(MERGE_ALL(&s), 0, "41 images");
    free(one), free(two), free(three), free(all);
    scratch_remove(&s);
}

/* A folder that someone else has written must not make files elsewhere, nor take the program down. */
/* Folders from somebody else: a pipe is not waited for, and nothing that a link leads to is copied. */
Test(cli_merge, pipes_and_links_are_no_results, .timeout = 120) {
    static const char *const names[] = {"frames.ndjson", "failed.ndjson"};
    scratch s = make_bench();
    run_shards(&s, "--quiet");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[300], kept[300];
        snprintf(path, sizeof path, "%s/part1/%s", s.path, names[i]);
        snprintf(kept, sizeof kept, "%s/kept", s.path);
        cr_assert(!rename(path, kept) || i == 1);
        cr_assert_eq(mkfifo(path, 0600), 0);
        expect(MERGE_ALL(&s), 1, "ndjson: is not a regular file");
        unlink(path);
        cr_assert(i == 1 || !rename(kept, path));
    }
    char command[700];
    snprintf(command, sizeof command,
             "cd '%s/part1' && m=$(find masks -name '*.png' | head -n 1) && mv \"$m\" ../secret.png && ln -s "
             "\"$PWD/../secret.png\" \"$m\"",
             s.path);
    cr_assert_eq(system(command), 0);
    expect(MERGE_ALL(&s), 1, ".png: is a symbolic link");
    scratch_remove(&s);
}

Test(cli_merge, damaged_folders_are_refused) {
    scratch s = make_bench();
    run_shards(&s, "--quiet");
    const char *const damaged[] = {
        "",
        "{}",
        "[1]",
        "{\"schema\":1,\"shard\":1,\"of\":3,\"images\":0,\"list\":\"0\",\"coco\":false,\"save\":\"ndjson\","
        "\"categories\":"
        "[1,\"2\"],\"own\":[]}",
        "{\"schema\":1,\"shard\":1,\"of\":0,\"images\":0,\"list\":\"0\",\"coco\":false,\"save\":\"ndjson\",\"own\":[]}",
        "{\"schema\":1,\"shard\":1,\"of\":3,\"images\":1,\"list\":\"0\",\"coco\":false,\"save\":\"ndjson\",\"own\":["
        "{\"position\":0,\"id\":1,\"path\":\"a\",\"name\":\"a\",\"stem\":\"../a\"}]}",
        "{\"schema\":1,\"shard\":1,\"of\":3,\"images\":1,\"list\":\"0\",\"coco\":false,\"save\":\"ndjson\",\"own\":["
        "{\"position\":1,\"id\":1,\"path\":\"a\",\"name\":\"a\",\"stem\":\"a\"}]}",
        "{\"schema\":1,\"shard\":1,\"of\":3,\"images\":9,\"list\":\"0\",\"coco\":false,\"save\":\"ndjson\",\"own\":["
        "{\"position\":3,\"id\":1,\"path\":\"a\",\"name\":\"a\",\"stem\":\"a\"},"
        "{\"position\":3,\"id\":2,\"path\":\"b\",\"name\":\"b\",\"stem\":\"b\"}]}",
    };
    size_t size;
    char *good = scratch_read(scratch_path(&s, "part1/shard.json"), &size);
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        scratch_put(scratch_path(&s, "part1/shard.json"), damaged[i]);
        expect(MERGE_ALL(&s), 1, "part1/shard.json is damaged");
    }
    scratch_put(scratch_path(&s, "part1/shard.json"), good);
    free(good);
    char *lines = scratch_read(scratch_path(&s, "part1/frames.ndjson"), &size);
    lines[size - 1] = '\0'; /* cut off */
    scratch_put(scratch_path(&s, "part1/frames.ndjson"), lines);
    expect(MERGE_ALL(&s), 1, "a line is damaged");
    strrchr(lines, '\n')[1] = '\0'; /* one is missing */
    scratch_put(scratch_path(&s, "part1/frames.ndjson"), lines);
    expect(MERGE_ALL(&s), 1, "has neither result nor failure of");
    cr_expect(!scratch_exists(scratch_path(&s, "all/frames.ndjson")));
    free(lines);
    scratch_remove(&s);
}
