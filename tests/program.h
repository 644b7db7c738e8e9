/* Runs a program and catches what it prints. Header only. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "scratch.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/wait.h>

extern char **environ;

typedef struct spawned {
    int code;        /* exit code; 128 + signal when one ended it */
    char *out, *err; /* owned */
} spawned;

enum { SPAWN_MAX_ARGS = 40 };

/* Starts argv[0]; output goes to files in the folder, input comes from `input` (NULL: nothing). */
static inline pid_t spawn_start(const scratch *s, const char *input, const char *const *argv) {
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, input ? input : "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, scratch_path(s, "stdout.txt"), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_addopen(&actions, 2, scratch_path(s, "stderr.txt"), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    cr_assert_eq(posix_spawn(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ), 0, "%s", argv[0]);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static inline spawned spawn_finish(const scratch *s, pid_t pid) {
    int status = 0;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    spawned r = {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
    r.out = scratch_read(scratch_path(s, "stdout.txt"), NULL);
    r.err = scratch_read(scratch_path(s, "stderr.txt"), NULL);
    return r;
}

static inline spawned spawn_run(const scratch *s, const char *input, const char *const *argv) {
    return spawn_finish(s, spawn_start(s, input, argv));
}

static inline void spawn_free(spawned *r) {
    free(r->out);
    free(r->err);
    *r = (spawned){0};
}

#endif
