/* The progress of a run: what the line says, and that only a terminal gets one. */
#define _XOPEN_SOURCE 700 /* posix_openpt */
#include "predict_bench.h"

#include "../apps/progress.h"

#include <termios.h>

static void expect_line(int columns, size_t done, size_t all, size_t seen, double ms, const char *want) {
    char line[PROGRESS_MAX];
    progress_line(line, columns, done, all, seen, ms);
    cr_expect_str_eq(line, want);
    cr_expect(strlen(line) < (size_t)columns || !*line);
}

Test(cli_progress, the_line) {
    expect_line(80, 0, 1, 0, 0, "[....................] 0 of 1 image");
    expect_line(80, 45, 100, 45, 4500, "[#########...........] 45 of 100 images, 10 images/s, 0:06 left");
    expect_line(80, 30, 100, 10, 4000, "[######..............] 30 of 100 images, 2.5 images/s, 0:28 left");
    expect_line(80, 1, 10001, 1, 720, "[....................] 1 of 10001 images, 1.4 images/s, 2:00:00 left");
    expect_line(80, 2, 4, 2, 3000, "[##########..........] 2 of 4 images, 1.5 s per image, 0:03 left");
    expect_line(80, 4, 4, 4, 3000, "[####################] 4 of 4 images, 1.3 images/s, 0:00 left");
    expect_line(40, 45, 100, 45, 4500, "45 of 100 images, 10 images/s, 0:06 lef");
    expect_line(10, 45, 100, 45, 4500, "45 of 100");
    expect_line(1, 45, 100, 45, 4500, "");
    expect_line(500, 1, 2, 1, 4e15, "[##########..........] 1 of 2 images, 4000000000000.0 s per image, 99:59:59 left");
}

/* predict with a terminal of `columns` as standard error; what came there. */
static char *on_a_terminal(const bench *b, int columns, const char *option) {
    const char *const argv[] = {PROGRAM, "predict", b->in, "-o", b->out, option, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status, master = posix_openpt(O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = 24};
    cr_assert(master >= 0 && !grantpt(master) && !unlockpt(master) && !ioctl(master, TIOCSWINSZ, &size));
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    cr_assert_geq(terminal, 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, terminal, 2);
    cr_assert_eq(posix_spawn(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && !WEXITSTATUS(status));
    enum { MOST = 16384 };
    char *text = calloc(1, MOST);
    ssize_t n = 1;
    cr_assert_eq(write(terminal, "END\n", 4), 4);
    for (size_t length = 0; n > 0 && !strstr(text, "END"); length += (size_t)n)
        n = read(master, text + length, MOST - 1 - length);
    cr_assert_gt(n, 0);
    close(terminal);
    close(master);
    return text;
}

Test(cli_progress, terminals_get_a_line_and_nobody_else) {
    bench b = make_bench(3);
    char *text = on_a_terminal(&b, 80, NULL);
    cr_expect_not_null(strstr(text, " of 3 images, "), "%s", text);
    cr_expect_not_null(strstr(text, "[######"), "%s", text);
    cr_expect_not_null(strstr(text, " left"), "%s", text);
    const char *end = strstr(text, "isthmus: 3 images, 0 failed");
    cr_assert_not_null(end, "%s", text);
    cr_expect_eq(end[-1], '\r', "the line is gone before the summary");
    free(text);
    text = on_a_terminal(&b, 30, NULL);
    cr_expect_not_null(strstr(text, " of 3 images, "), "%s", text);
    cr_expect_null(strstr(text, "###"), "%s", text);
    free(text);
    text = on_a_terminal(&b, 80, "--quiet");
    cr_expect_null(strstr(text, "images"), "%s", text);
    free(text);
    spawned r = PREDICT(&b, NULL);
    cr_expect_null(strchr(r.err, '\r'), "%s", r.err);
    spawn_free(&r);
    scratch_remove(&b.s);
}
