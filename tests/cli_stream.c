/* `isthmus predict` of images that come while others are at work: names on standard input, a tar stream. Over a double
 * of the engine; what is written must be what a run over the whole list writes. */
#include "gray_png.h"
#include "program.h"
#include "support/results.h"

#include <time.h>

#define PROGRAM IST_BUILD_DIR "/tests/isthmus_fake"

enum { IMAGES = 12 };

static scratch make_bench(void) {
    scratch s = scratch_make();
    mkdir(scratch_path(&s, "in"), 0777);
    scratch_put(scratch_path(&s, "dfine_n_demo.safetensors"), "");
    scratch_put(scratch_path(&s, "mobile_sam_demo.safetensors"), "");
    setenv("ISTHMUS_WEIGHTS_DIR", s.path, 1);
    for (int i = 0; i < IMAGES; i++) write_png(scratch_path(&s, "in/x%02d.png", i), 50 + i, 60);
    return s;
}

/* A shell's command in the folder of the images; PREDICT there stands for the program. */
static spawned run_shell(scratch *s, const char *command) {
    char line[2000];
    snprintf(line, sizeof line, "cd '%s/in' && PREDICT='%s predict --save json,ndjson,masks,csv' && %s", s->path,
             PROGRAM, command);
    return spawn_run(s, NULL, (const char *const[]){"/bin/sh", "-c", line, NULL});
}

static void expect(spawned r, int code, const char *err_part) {
    cr_expect_eq(r.code, code, "exit code %d, want %d; stderr: %s", r.code, code, r.err);
    cr_expect_not_null(strstr(r.err, err_part), "stderr lacks '%s': %s", err_part, r.err);
    spawn_free(&r);
}

static size_t count_lines(const char *path) {
    char *text = scratch_read(path, NULL);
    size_t lines = 0;
    for (const char *p = text; p && (p = strchr(p, '\n')); p++) lines++;
    free(text);
    return lines;
}

Test(cli_stream, names_are_taken_as_they_come) {
    scratch s = make_bench();
    const struct timespec pause = {.tv_nsec = 10000000};
    char *fifo = strdup(scratch_path(&s, "names"));
    char *out = strdup(scratch_path(&s, "came"));
    mkfifo(fifo, 0600);
    int names = open(fifo, O_RDWR | O_CLOEXEC); /* so that nobody waits for the other end */
    cr_assert(names >= 0);
    const char *const argv[] = {PROGRAM,   "predict", "-", "-o", out, "--save", "json,ndjson,masks,csv",
                                "--batch", "2",       NULL};
    pid_t pid = spawn_start(&s, fifo, argv);
    for (int i = 0; i < IMAGES; i++) {
        dprintf(names, "%s\n", scratch_path(&s, "in/x%02d.png", i));
        char *partial = strdup(scratch_path(&s, "came/frames.ndjson.partial"));
        for (int k = 0; k < 2000 && count_lines(partial) <= (size_t)i; k++) nanosleep(&pause, NULL);
        cr_assert_eq(count_lines(partial), (size_t)i + 1, "image %d is not done while the next is waited for", i);
        free(partial);
    }
    cr_expect(!scratch_exists(scratch_path(&s, "came/results.json")));
    close(names);
    spawned r = spawn_finish(&s, pid);
    expect(r, 0, "12 images, 0 failed");
    const char *const whole[] = {
        PROGRAM, "predict", scratch_path(&s, "in"), "-o", scratch_path(&s, "one"), "--save", "json,ndjson,masks,csv",
        NULL};
    expect(spawn_run(&s, NULL, whole), 0, "12 images, 0 failed");
    same_results(&s, "one", "came");
    free(fifo), free(out);
    scratch_remove(&s);
}

Test(cli_stream, a_limit_ends_a_list_without_end) {
    scratch s = make_bench();
    expect(run_shell(&s, "while echo x03.png; do :; done | $PREDICT - -o ../out --limit 5"), 0, "5 images, 0 failed");
    cr_expect_eq(count_lines(scratch_path(&s, "out/frames.ndjson")), 5);
    cr_expect(scratch_exists(scratch_path(&s, "out/masks/x03.png-5.png")) ||
              scratch_exists(scratch_path(&s, "out/masks/x03.png-4.png")));
    scratch_remove(&s);
}

Test(cli_stream, a_list_that_breaks_off_keeps_what_came) {
    scratch s = make_bench();
    expect(run_shell(&s, "printf 'x00.png\\nx\\0y\\n' | $PREDICT - -o ../out"), 7, "standard input: a zero byte");
    cr_expect_eq(count_lines(scratch_path(&s, "out/frames.ndjson")), 1);
    cr_expect_eq(count_lines(scratch_path(&s, "out/failed.ndjson")), 1);
    expect(run_shell(&s, "printf '\\0\\n' | $PREDICT - -o ../none"), 1, "standard input: a zero byte");
    expect(run_shell(&s, ": | $PREDICT - -o ../none"), 1, "standard input names no image");
    expect(run_shell(&s, "echo gone.png | $PREDICT - -o ../none"), 1, "gone.png: there is no such file");
    cr_expect(!scratch_exists(scratch_path(&s, "none")));
    expect(run_shell(&s, "(echo gone.png; echo x01.png) | $PREDICT - -o ../out"), 7, "1 image, 1 failed");
    scratch_remove(&s);
}

Test(cli_stream, a_tar_stream_gives_what_its_files_give) {
    scratch s = make_bench();
    const char *const how[] = {"tar cf - x*.png | $PREDICT --tar - -o ../came",
                               "tar czf ../a.tgz x*.png && $PREDICT --tar ../a.tgz -o ../came",
                               "tar cf ../a.tar --format=pax x*.png && $PREDICT --tar ../a.tar -o ../came --device all",
                               "(tar cf - x*.png; cat) </dev/null | $PREDICT --tar - --batch 4 -o ../came"};
    expect(run_shell(&s, "ls x*.png | $PREDICT - -o ../one"), 0, "12 images, 0 failed");
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        expect(run_shell(&s, how[i]), 0, "12 images, 0 failed");
        same_results(&s, "one", "came");
    }
    scratch_remove(&s);
}

Test(cli_stream, members_that_are_no_images_are_passed_over_and_bad_ones_named) {
    scratch s = make_bench();
    scratch_put(scratch_path(&s, "in/bad.jpg"), "no image");
    scratch_put(scratch_path(&s, "in/empty.png"), "");
    scratch_put(scratch_path(&s, "in/notes.txt"), "text");
    scratch_put(scratch_path(&s, "in/.hidden.png"), "text");
    mkdir(scratch_path(&s, "in/folder.png"), 0777);
    write_png(scratch_path(&s, "in/x90.png"), 60, 60);
    symlink("/etc/passwd", scratch_path(&s, "in/link.png"));
    expect(run_shell(&s, "tar cf - --transform 's,^./x90,../../x90,' -P . | $PREDICT --tar - -o ../out"), 7,
           "bad.jpg: ");
    cr_expect_eq(count_lines(scratch_path(&s, "out/frames.ndjson")), IMAGES + 1);
    cr_expect_eq(count_lines(scratch_path(&s, "out/failed.ndjson")), 2);
    cr_expect(scratch_exists(scratch_path(&s, "out/masks/image.png")), "a name that leads out of the folder");
    scratch_remove(&s);
}

Test(cli_stream, a_tar_stream_that_breaks_off_keeps_what_came) {
    scratch s = make_bench();
    expect(
        run_shell(
            &s,
            "tar cf ../a.tar x*.png && head -c $(($(stat -c %s ../a.tar) / 2)) ../a.tar | $PREDICT --tar - -o ../out"),
        7, "standard input is no whole tar stream");
    size_t came = count_lines(scratch_path(&s, "out/frames.ndjson"));
    cr_expect(came >= 1 && came < IMAGES, "%zu", came);
    cr_expect(scratch_exists(scratch_path(&s, "out/results.json")));
    expect(run_shell(&s, "$PREDICT --tar x00.png -o ../none"), 1, "x00.png is no whole tar stream");
    expect(run_shell(&s, "$PREDICT --tar gone.tar -o ../none"), 1, "gone.tar: No such file");
    expect(run_shell(&s, "tar cf - --files-from /dev/null | $PREDICT --tar - -o ../none"), 1,
           "there is no image in it");
    expect(run_shell(&s, "$PREDICT --tar - x00.png -o ../none"), 2, "--tar and images exclude each other");
    expect(run_shell(&s, "$PREDICT --tar - -o ../none --resume"), 2, "a stream comes once");
    expect(run_shell(&s, "$PREDICT --tar - -o ../none --trust"), 2, "a stream comes once");
    cr_expect(!scratch_exists(scratch_path(&s, "none")));
    scratch_remove(&s);
}
