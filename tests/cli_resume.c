/* Runs of `isthmus predict` over a double of the engine that end early, and those that go on after them; and who else
 * has the output folder or the device meanwhile. */
#include "predict_bench.h"

#include <sys/file.h>
#include <time.h>

/* Until the file is there, twenty seconds at most. */
static void wait_for(bench *b, const char *name) {
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int i = 0; i < 2000 && !scratch_exists(scratch_path(&b->s, "%s", name)); i++) nanosleep(&pause, NULL);
}

/* An image counts as done when its files are durable and the journal says so, which is later than they are seen. */
static void wait_for_line(bench *b) {
    const struct timespec pause = {.tv_nsec = 10000000};
    const char *journal = scratch_path(&b->s, "out/frames.ndjson.partial");
    struct stat s;
    for (int i = 0; i < 2000 && (stat(journal, &s) || !s.st_size); i++) nanosleep(&pause, NULL);
}

Test(cli_resume, a_lost_device_ends_the_run_and_resume_continues) {
    bench b = make_bench(12);
    setenv("FAKE_ENGINE", "lost:5", 1);
    expect(PREDICT(&b, NULL), 1, "the device is lost");
    cr_expect(!scratch_exists(scratch_path(&b.s, "out/frames.ndjson")));
    cr_expect(!scratch_exists(scratch_path(&b.s, "out/results.json")));
    cr_expect(scratch_exists(scratch_path(&b.s, "out/frames.ndjson.partial")));
    unsetenv("FAKE_ENGINE");
    expect(PREDICT(&b, "--resume"), 0, "kept from an earlier run");
    json_t *lines = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    cr_assert_eq(json_array_size(lines), 12);
    for (int i = 0; i < 12; i++) check_frame(json_array_get(lines, (size_t)i), i, b.in);
    json_decref(lines);
    scratch_remove(&b.s);
}

Test(cli_resume, what_is_in_no_folder_cannot_be_resumed) {
    bench b = make_bench(3);
    setenv("FAKE_ENGINE", "lost:0", 1);
    spawned r = spawn_run(&b.s, NULL, (const char *const[]){PROGRAM, "audit", b.in, NULL});
    cr_expect_eq(r.code, 1);
    cr_expect_not_null(strstr(r.err, "stopped after 0 of 3 images\n"), "%s", r.err);
    spawn_free(&r);
    scratch_remove(&b.s);
}

Test(cli_resume, a_full_disk_ends_the_run_and_resume_continues) {
    bench b = make_bench(5);
    setenv("FAKE_FULL", "02-x.png", 1);
    expect(PREDICT(&b, NULL), 1, "stopped after 2 of 5 images; --resume continues");
    cr_expect(!scratch_exists(scratch_path(&b.s, "out/failed.ndjson")));
    cr_expect(!scratch_exists(scratch_path(&b.s, "out/frames.ndjson")));
    expect(PREDICT(&b, NULL), 1, "out/masks/02-x.png: No space left on device");
    unsetenv("FAKE_FULL");
    expect(PREDICT(&b, "--resume"), 0, "3 images, 0 failed, 2 kept");
    expect_no_temporaries(&b);
    scratch_remove(&b.s);
}

Test(cli_resume, a_run_of_one_image_says_so_in_the_singular) {
    bench b = make_bench(1);
    expect(PREDICT(&b, NULL), 0, ": 1 image, 0 failed, ");
    expect(PREDICT(&b, "--resume"), 0, ": the image is there already, in ");
    scratch_remove(&b.s);
}

Test(cli_resume, resume_redoes_what_is_missing_and_nothing_else) {
    bench b = make_bench(4);
    expect(PREDICT(&b, NULL), 0, "4 images");
    json_t *before = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    expect(PREDICT(&b, "--resume"), 0, "all 4 images are there already");
    unlink(scratch_path(&b.s, "out/overlays/01-x.png"));
    write_png(scratch_path(&b.s, "in/00-a.png"), 33, 44);
    expect(PREDICT(&b, "--resume"), 0, "2 images, 0 failed, 3 kept from an earlier run");
    expect_frames(&b, 5, (const char *[]){"00-a.png", "00-x.png", "01-x.png", "02-x.png", "03-x.png"});
    json_t *after = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    cr_expect(json_equal(json_array_get(before, 3), json_array_get(after, 4)), "a kept line has changed");
    json_decref(before);
    json_decref(after);
    json_t *results = json_load_file(scratch_path(&b.s, "out/results.json"), 0, NULL);
    cr_expect_eq(json_array_size(results), 15);
    json_decref(results);
    unlink(scratch_path(&b.s, "out/results.json"));
    expect(PREDICT(&b, "--resume"), 0, "0 images, 0 failed, 5 kept");
    cr_expect(scratch_exists(scratch_path(&b.s, "out/results.json")));
    scratch_remove(&b.s);
}

/* Cuts a file to a share of its bytes, in percent. */
static void cut(const bench *b, const char *name, size_t percent) {
    size_t size = 0;
    const char *path = scratch_path(&b->s, "out/%s", name);
    char *bytes = scratch_read(path, &size);
    cr_assert_not_null(bytes, "%s", path);
    scratch_write(path, bytes, size * percent / 100);
    free(bytes);
}

Test(cli_resume, what_is_empty_or_cut_is_done_again) {
    static const char *const names[] = {"masks/01-x.png", "overlays/01-x.png", "labels/01-x.txt", "results.json",
                                        "images.json",    "results.csv",       "frames.ndjson"};
    static const char *const save = "json,ndjson,csv,masks,overlay,yolo";
    bench b = make_bench(3);
    expect(PREDICT(&b, "--save", save), 0, "3 images");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t percent = 0; percent < 100; percent += 49) { /* empty, cut, without its last bytes */
            char *before = NULL, *after = NULL;
            size_t size = 0, again = 0;
            before = scratch_read(scratch_path(&b.s, "out/%s", names[i]), &size);
            cut(&b, names[i], percent);
            spawned r = PREDICT(&b, "--save", save, "--resume");
            cr_expect_eq(r.code, 0, "%s", r.err);
            cr_expect_null(strstr(r.err, "there already"), "%s, %zu %%: %s", names[i], percent, r.err);
            cr_expect(i > 2 || strstr(r.err, "1 image, 0 failed, 2 kept"), "%s, %zu %%: %s", names[i], percent, r.err);
            spawn_free(&r);
            after = scratch_read(scratch_path(&b.s, "out/%s", names[i]), &again);
            cr_assert_not_null(after);
            if (i < 6) cr_expect(size == again && !memcmp(before, after, size), "%s, %zu %%", names[i], percent);
            free(before);
            free(after);
            expect_frames(&b, 3, (const char *[]){"00-x.png", "01-x.png", "02-x.png"});
            expect(PREDICT(&b, "--save", save, "--resume"), 0, "all 3 images are there already");
        }
    scratch_remove(&b.s);
}

/* A picture of another size is another image's. */
Test(cli_resume, pictures_have_their_image_s_size) {
    bench b = make_bench(2);
    expect(PREDICT(&b, NULL), 0, "2 images");
    write_png(scratch_path(&b.s, "out/masks/01-x.png"), 50, 60);
    expect(PREDICT(&b, "--resume"), 0, "1 image, 0 failed, 1 kept");
    check_map(&b, 1);
    scratch_remove(&b.s);
}

Test(cli_resume, other_options_are_refused) {
    bench b = make_bench(8);
    scratch_put(scratch_path(&b.s, "t.json"), "{\"01-x.png\": [{\"box\": [0, 0, 0.5, 9]}]}");
    scratch_put(scratch_path(&b.s, "other.pth"), "another checkpoint");
    scratch_put(scratch_path(&b.s, "same.pth"), "");
    setenv("FAKE_ENGINE", "lost:5", 1);
    expect(PREDICT(&b, "--conf", "0.5", "--save", "json,ndjson,masks"), 1, "lost");
    unsetenv("FAKE_ENGINE");
    char targets[160], other[160], same[160];
    snprintf(targets, sizeof targets, "%s", scratch_path(&b.s, "t.json"));
    snprintf(other, sizeof other, "%s", scratch_path(&b.s, "other.pth"));
    snprintf(same, sizeof same, "%s", scratch_path(&b.s, "same.pth"));
    const char *const cases[][3] = {{"--conf", "0.4", "holds results with --conf 0.5, this run has --conf 0.4;"},
                                    {"--max-objects", "2", "--max-objects 16, this run has --max-objects 2"},
                                    {"--precision", "fp32", "--precision auto, this run has --precision fp32"},
                                    {"--classes", "0,1", "--classes all, this run has --classes 0,1"},
                                    {"--targets", targets, "--targets none, this run has --targets a file of 39 bytes"},
                                    {"--detector", other, "--detector a file of 0 bytes"},
                                    {"--save", "json,masks,overlay", "--save masks, this run has --save masks,overlay"},
                                    {"--nms", "0.7", "--nms off, this run has --nms 0.7"},
                                    {"--track", "--quiet", "--track off, this run has --track on"}};
    char *before = scratch_read(scratch_path(&b.s, "out/frames.ndjson.partial"), NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(PREDICT(&b, "--resume", "--conf", "0.5", "--save", "json,ndjson,masks", cases[i][0], cases[i][1]), 2,
               cases[i][2]);
    char *after = scratch_read(scratch_path(&b.s, "out/frames.ndjson.partial"), NULL);
    cr_expect_str_eq(after, before);
    free(before);
    free(after);
    expect(PREDICT(&b, "--resume", "--conf", "0.50", "--batch", "2", "--save", "json,csv,ndjson", "--detector", same),
           0, "kept from an earlier run");
    scratch_put(scratch_path(&b.s, "out/run.json"), "{");
    expect(PREDICT(&b, "--resume", "--conf", "0.5", "--save", "json,ndjson"), 1, "run.json is damaged");
    expect(PREDICT(&b, "--conf", "0.3", "--save", "json,ndjson"), 0, "8 images, 0 failed"); /* begins again */
    expect(PREDICT(&b, "--conf", "0.3", "--save", "json,ndjson", "--resume"), 0, "all 8 images are there already");
    unlink(scratch_path(&b.s, "out/run.json")); /* as an earlier version left it */
    expect(PREDICT(&b, "--conf", "0.2", "--save", "json,ndjson", "--resume"), 0, "all 8 images are there already");
    scratch_remove(&b.s);
}

static void expect_images(const bench *b, size_t count, const char *const *names) {
    json_t *images = json_load_file(scratch_path(&b->s, "out/images.json"), 0, NULL);
    cr_assert_eq(json_array_size(images), count, "%zu images", json_array_size(images));
    for (size_t i = 0; i < count; i++) {
        const char *file = json_string_value(json_object_get(json_array_get(images, i), "file_name"));
        cr_expect_not_null(strstr(file, names[i]), "%s, want %s", file, names[i]);
    }
    json_decref(images);
}

Test(cli_resume, tables_follow_the_list_of_images) {
    bench b = make_bench(3);
    expect(PREDICT(&b, NULL), 0, "3 images");
    expect(PREDICT(&b, "--resume", "--limit", "2"), 0, "0 images, 0 failed, 2 kept");
    expect_frames(&b, 2, (const char *[]){"00-x.png", "01-x.png"});
    expect_images(&b, 2, (const char *[]){"00-x.png", "01-x.png"});
    expect(PREDICT(&b, "--resume", "--limit", "2"), 0, "all 2 images are there already");
    char first[200], second[200];
    snprintf(first, sizeof first, "%s", scratch_path(&b.s, "in/00-x.png"));
    snprintf(second, sizeof second, "%s", scratch_path(&b.s, "in/01-x.png"));
    const char *const argv[] = {PROGRAM, "predict", second, first, "-o", b.out, "--resume", NULL};
    expect(spawn_run(&b.s, NULL, argv), 0, "0 images, 0 failed, 2 kept");
    expect_frames(&b, 2, (const char *[]){"01-x.png", "00-x.png"});
    expect_images(&b, 2, (const char *[]){"01-x.png", "00-x.png"});
    expect(spawn_run(&b.s, NULL, argv), 0, "all 2 images are there already");
    scratch_remove(&b.s);
}

/* The names look alike in JSON; masks/ has them as they are. */
Test(cli_resume, resume_knows_names_that_are_no_utf8) {
    bench b = make_bench(1);
    static const char *const digits[] = {"fe", "ff"};
    write_png(scratch_path(&b.s, "in/a\xFE.png"), 33, 44);
    write_png(scratch_path(&b.s, "in/a\xFF.png"), 33, 45);
    scratch_put(scratch_path(&b.s, "in/b\xFF.png"), "no image");
    expect(PREDICT(&b, NULL), 7, "3 images, 1 failed");
    json_t *lines = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    cr_expect_null(json_object_get(json_array_get(lines, 0), "file_bytes"), "it is UTF-8");
    for (size_t i = 0; i < 2; i++) {
        const char *bytes = json_string_value(json_object_get(json_array_get(lines, i + 1), "file_bytes"));
        cr_assert_not_null(bytes);
        const char *end = bytes + strlen(bytes) - strlen("61fe2e706e67");
        cr_expect(!strncmp(end, "61", 2) && !strncmp(end + 2, digits[i], 2) && !strcmp(end + 4, "2e706e67"), "%s", end);
    }
    json_t *failed = read_lines(scratch_path(&b.s, "out/failed.ndjson"));
    cr_expect_not_null(json_object_get(json_array_get(failed, 0), "file_bytes"));
    json_decref(failed);
    json_decref(lines);
    unlink(scratch_path(&b.s, "in/b\xFF.png"));
    unlink(scratch_path(&b.s, "out/failed.ndjson"));
    expect(PREDICT(&b, "--resume"), 0, "all 3 images are there already");
    unlink(scratch_path(&b.s, "out/masks/a\xFF.png"));
    expect(PREDICT(&b, "--resume"), 0, "1 image, 0 failed, 2 kept");
    scratch_remove(&b.s);
}

Test(cli_resume, resume_knows_a_path_that_was_given_twice) {
    bench b = make_bench(2);
    const char *const masks[] = {"out/masks/01-x.png", "out/masks/01-x.png.png"};
    char twice[200];
    snprintf(twice, sizeof twice, "%s", scratch_path(&b.s, "in/01-x.png"));
    expect(PREDICT(&b, twice, twice), 0, "4 images, 0 failed");
    char *frames = scratch_read(scratch_path(&b.s, "out/frames.ndjson"), NULL);
    expect(PREDICT(&b, twice, twice, "--resume"), 0, "all 4 images are there already");
    char *after = scratch_read(scratch_path(&b.s, "out/frames.ndjson"), NULL);
    cr_expect_str_eq(after, frames);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(unlink(scratch_path(&b.s, "%s", masks[i])), 0, "%s", masks[i]);
        expect(PREDICT(&b, twice, twice, "--resume"), 0, "1 image, 0 failed, 3 kept from an earlier run");
        cr_expect(scratch_exists(scratch_path(&b.s, "%s", masks[i])));
    }
    expect_frames(&b, 4, (const char *[]){"00-x.png", "01-x.png", "01-x.png", "01-x.png"});
    free(frames);
    free(after);
    scratch_remove(&b.s);
}

Test(cli_resume, resume_tries_failed_images_again) {
    bench b = make_bench(2);
    scratch_put(scratch_path(&b.s, "in/bad.png"), "x");
    expect(PREDICT(&b, NULL), 7, "bad.png");
    expect(PREDICT(&b, "--resume"), 7, "bad.png");
    write_png(scratch_path(&b.s, "in/bad.png"), 8, 8);
    expect(PREDICT(&b, "--resume"), 0, "1 image, 0 failed, 2 kept");
    cr_expect(!scratch_exists(scratch_path(&b.s, "out/failed.ndjson")));
    expect_frames(&b, 3, (const char *[]){"00-x.png", "01-x.png", "bad.png"});
    scratch_remove(&b.s);
}

/* Lines that a run leaves which gets a signal once `file` is there. */
static size_t interrupted(bench *b, const char *engine, const char *file, int signal, const char *says) {
    setenv("FAKE_ENGINE", engine, 1);
    const char *const argv[] = {PROGRAM, "predict", b->in, "-o", b->out, "--save", "ndjson,masks", NULL};
    pid_t pid = spawn_start(&b->s, NULL, argv);
    wait_for(b, file);
    kill(pid, signal);
    expect(spawn_finish(&b->s, pid), 130, says);
    unsetenv("FAKE_ENGINE");
    expect_no_temporaries(b);
    json_t *lines = read_lines(scratch_path(&b->s, "out/frames.ndjson.partial"));
    size_t count = json_array_size(lines);
    json_decref(lines);
    return count;
}

Test(cli_resume, an_interrupt_finishes_what_has_begun) {
    bench b = make_bench(60);
    size_t done = interrupted(&b, "slow:30", "out/masks/02-x.png", SIGINT, "--resume continues");
    cr_expect(done >= 3 && done < 60, "%zu lines", done);
    cr_expect(!scratch_exists(scratch_path(&b.s, "out/frames.ndjson")));
    for (size_t i = 0; i < done; i++) cr_expect(scratch_exists(scratch_path(&b.s, "out/masks/%02zu-x.png", i)));
    expect(PREDICT(&b, "--resume", "--save", "ndjson,masks"), 0, "kept");
    json_t *lines = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    cr_assert_eq(json_array_size(lines), 60);
    for (int i = 0; i < 60; i++) check_frame(json_array_get(lines, (size_t)i), i, b.in);
    json_decref(lines);
    scratch_remove(&b.s);
}

/* A terminal that is closed ends its programs so; what is started with nohup goes on. */
Test(cli_resume, a_hangup_finishes_what_has_begun) {
    bench b = make_bench(20);
    size_t done = interrupted(&b, "slow:100", "out/masks/00-x.png", SIGHUP, "of 20 images; --resume continues");
    cr_expect(done >= 1 && done < 20, "%zu lines", done);
    setenv("FAKE_ENGINE", "slow:50", 1);
    signal(SIGHUP, SIG_IGN);
    const char *const argv[] = {PROGRAM, "predict", b.in, "-o", b.out, "--limit", "10", NULL};
    pid_t pid = spawn_start(&b.s, NULL, argv);
    wait_for(&b, "out/overlays/00-x.png");
    kill(pid, SIGHUP);
    expect(spawn_finish(&b.s, pid), 0, "10 images, 0 failed");
    signal(SIGHUP, SIG_DFL);
    scratch_remove(&b.s);
}

/* All are decoded long before the engine takes them. */
Test(cli_resume, an_interrupt_leaves_what_the_engine_does_not_have) {
    bench b = make_bench(20);
    size_t done = interrupted(&b, "slow:100", "out/masks/00-x.png", SIGTERM, "of 20 images; --resume continues");
    cr_expect(done >= 1 && done < 20, "%zu lines", done);
    expect(PREDICT(&b, "--resume", "--save", "ndjson,masks"), 0, "kept");
    expect_no_temporaries(&b);
    scratch_remove(&b.s);
}

Test(cli_resume, a_killed_run_resumes) {
    bench b = make_bench(40);
    setenv("FAKE_ENGINE", "slow:20", 1);
    const char *const argv[] = {PROGRAM, "predict", b.in, "-o", b.out, NULL};
    pid_t pid = spawn_start(&b.s, NULL, argv);
    wait_for_line(&b);
    kill(pid, SIGKILL);
    spawned r = spawn_finish(&b.s, pid);
    cr_expect_eq(r.code, 128 + SIGKILL);
    spawn_free(&r);
    cr_expect(!scratch_exists(scratch_path(&b.s, "out/frames.ndjson")));
    unsetenv("FAKE_ENGINE");
    mkdir(scratch_path(&b.s, "out/masks/deep"), 0777); /* what it may have been writing */
    scratch_put(scratch_path(&b.s, "out/masks/deep/.isthmus-%ld-0123456789abcdef.tmp", (long)pid), "half");
    scratch_put(scratch_path(&b.s, "out/.isthmus-%ld-fedcba9876543210.tmp", (long)pid), "half");
    const char *others = scratch_path(&b.s, "out/.isthmus-%ld-0000000000000000.tmp", (long)getpid());
    scratch_put(others, "of a process that lives");
    expect(PREDICT(&b, "--resume"), 0, "kept from an earlier run");
    cr_expect(scratch_exists(others));
    unlink(others);
    expect_no_temporaries(&b);
    json_t *lines = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    cr_assert_eq(json_array_size(lines), 40);
    for (int i = 0; i < 40; i++) {
        check_frame(json_array_get(lines, (size_t)i), i, b.in);
        check_map(&b, i);
    }
    json_decref(lines);
    scratch_remove(&b.s);
}

Test(cli_resume, two_runs_do_not_write_to_one_folder) {
    bench b = make_bench(20);
    setenv("FAKE_ENGINE", "slow:50", 1);
    const char *const argv[] = {PROGRAM, "predict", b.in, "-o", b.out, NULL};
    pid_t pid = spawn_start(&b.s, NULL, argv);
    wait_for(&b, "out/masks/00-x.png");
    scratch other = scratch_make();
    const char *const *forms[] = {argv, (const char *const[]){PROGRAM, "predict", b.in, "-o", b.out, "--resume", NULL}};
    for (int i = 0; i < 2; i++) expect(spawn_run(&other, NULL, forms[i]), 1, "another run is writing to this folder");
    expect(spawn_finish(&b.s, pid), 0, "20 images, 0 failed");
    json_t *lines = read_lines(scratch_path(&b.s, "out/frames.ndjson"));
    cr_assert_eq(json_array_size(lines), 20);
    for (int i = 0; i < 20; i++) check_frame(json_array_get(lines, (size_t)i), i, b.in);
    json_decref(lines);
    scratch_remove(&other);
    scratch_remove(&b.s);
}

Test(cli_resume, an_old_run_never_mixes_with_a_new_one) {
    bench b = make_bench(3);
    expect(PREDICT(&b, "--save", "json,ndjson,csv"), 0, "3 images");
    setenv("FAKE_ENGINE", "lost:1", 1);
    expect(PREDICT(&b, "--save", "json"), 1, "lost");
    static const char *const gone[] = {"results.json", "images.json", "results.csv", "frames.ndjson"};
    for (size_t i = 0; i < 4; i++) cr_expect(!scratch_exists(scratch_path(&b.s, "out/%s", gone[i])), "%s", gone[i]);
    scratch_remove(&b.s);
}

/* The program waits for nine of these, has one, and is ended. */
Test(cli_resume, processes_that_compile_ahead_end_with_the_program) {
    bench b = make_bench(1);
    const char *const argv[] = {PROGRAM, "predict", b.in, "-o", b.out, NULL};
    setenv("FAKE_CORES", "2", 1);
    setenv("FAKE_AHEAD", b.s.path, 1);
    setenv("FAKE_ENGINE", "held:9", 1);
    pid_t pid = spawn_start(&b.s, NULL, argv);
    wait_for(&b, "part 0");
    kill(pid, SIGKILL);
    spawned r = spawn_finish(&b.s, pid);
    spawn_free(&r);
    int lock = open(scratch_path(&b.s, "lock"), O_RDWR);
    cr_expect_eq(flock(lock, LOCK_EX), 0); /* theirs until they have ended */
    close(lock);
    scratch_remove(&b.s);
}

/* One process for each core but one compiles ahead; where the device takes no other beside them, they give way. */
Test(cli_resume, processes_that_compile_ahead_give_way) {
    bench b = make_bench(2);
    setenv("FAKE_CORES", "4", 1);
    setenv("FAKE_AHEAD", b.s.path, 1);
    setenv("FAKE_ENGINE", "held:3", 1);
    expect(PREDICT(&b, NULL), 0, "2 images, 0 failed");
    for (int part = 0; part < 3; part++) cr_expect(scratch_exists(scratch_path(&b.s, "part %d", part)));
    cr_expect_not(scratch_exists(scratch_path(&b.s, "part 3")));
    setenv("FAKE_CORES", "1", 1);
    setenv("FAKE_ENGINE", "closed:0", 1);
    expect(PREDICT(&b, NULL), 1, "does not open");
    scratch_remove(&b.s);
}
