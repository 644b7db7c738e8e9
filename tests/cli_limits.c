/* What a process may not have, and what its driver finds damaged: the program goes on, or names the cause. On PoCL,
 * whose device is opened with probes that it compiles; elsewhere drivers have other needs. */
#include "program.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

/* The program over empty caches, which then has the probes compiled, after the shell command `first`. */
static spawned run(const scratch *s, const char *first, const char *arguments) {
    char command[900];
    setenv("ISTHMUS_DEVICE", "Portable", 1);
    snprintf(command, sizeof command,
             "cd '%s' && rm -rf probed && export ISTHMUS_CACHE_DIR=$PWD/probed && %s && exec \"$0\" %s", s->path, first,
             arguments);
    return spawn_run(s, NULL, (const char *const[]){"/bin/sh", "-c", command, IST_CLI, NULL});
}

static spawned devices(const scratch *s, const char *first) {
    return run(s, first, "devices --json");
}

static bool has_pocl(const spawned *r) {
    if (r->code == 0 && strstr(r->out, "Portable Computing Language")) return true;
    cr_log_warn("no PoCL here: left out");
    return false;
}

static int count(const scratch *s, const char *what) {
    char command[600];
    snprintf(command, sizeof command, "test -z \"$(find '%s' %s)\"", s->path, what);
    return system(command) != 0;
}

Test(cli_limits, a_damaged_cache_of_the_driver_is_compiled_again) {
    static const char *const damages[] = {"find cache -type f -exec truncate -s 0 {} +",
                                          "find cache -type f -exec truncate -s 900 {} +",
                                          "find cache -name '*.so' -exec sh -c 'head -c 9000 /dev/zero >$0' {} \\;"};
    scratch s = scratch_make();
    setenv("POCL_CACHE_DIR", scratch_path(&s, "cache"), 1);
    spawned sound = devices(&s, "true");
    for (int i = 0; i < 3 && has_pocl(&sound); i++) {
        cr_assert(count(&s, "-path '*cache*' -name '*.so'"), "PoCL keeps its kernels elsewhere");
        spawned r = devices(&s, damages[i]);
        cr_expect_eq(r.code, 0, "%s: exit code %d: %s", damages[i], r.code, r.err);
        cr_expect_str_eq(r.out, sound.out, "%s", damages[i]);
        spawn_free(&r);
    }
    spawn_free(&sound);
    scratch_remove(&s);
}

Test(cli_limits, a_cache_that_cannot_be_written_is_done_without) {
    scratch s = scratch_make();
    scratch_put(scratch_path(&s, "file"), "");
    setenv("POCL_CACHE_DIR", scratch_path(&s, "file/cache"), 1); /* root may write everywhere but here */
    setenv("TMPDIR", s.path, 1);
    spawned r = devices(&s, "true");
    if (has_pocl(&r)) {
        cr_expect_not_null(strstr(r.err, "cannot be written: Not a directory: kernels were compiled for this run only"),
                           "%s", r.err);
        cr_expect(!count(&s, "-name 'isthmus-kernels*'"), "the folder of the run is left");
    }
    spawn_free(&r);
    scratch_remove(&s);
}

/* The program ends with a sentence under `limit`, in a folder that PoCL's device has been opened in before. */
static void limit_is_named(const scratch *s, const char *limit, const char *sentence) {
    setenv("POCL_CACHE_DIR", scratch_path(s, "cache"), 1);
    spawned free_run = devices(s, "true");
    if (has_pocl(&free_run)) {
        spawned r = run(s, limit, "predict '" IST_SOURCE_DIR "/weights/demo' --limit 1 --no-masks -o out");
        cr_expect_eq(r.code, 3, "%s: exit code %d: %s", limit, r.code, r.err);
        cr_expect_not_null(strstr(r.err, sentence), "%s: %s", limit, r.err);
        const char *end = strchr(r.err, '\n');
        cr_expect(end && !end[1], "not one sentence: %s", r.err);
        spawn_free(&r);
    }
    spawn_free(&free_run);
}

Test(cli_limits, the_size_of_files_is_named) {
    scratch s = scratch_make();
    limit_is_named(&s, "ulimit -f 100", "this process may write files of");
    scratch_remove(&s);
}

#ifndef SANITIZED /* which takes terabytes of addresses */
Test(cli_limits, the_address_space_is_named) {
    enum { STEP = 25000, DRIVER = 50000, MOST = 4000000 }; /* KiB; a driver of PoCL's takes more */
    scratch s = scratch_make();
    char limit[40];
    int kib = 0, code = 1;
    for (; code && kib < MOST; kib += STEP) { /* what the program takes, whatever libraries it was built with */
        snprintf(limit, sizeof limit, "ulimit -v %d", kib + STEP);
        spawned r = run(&s, limit, "--version");
        code = r.code;
        spawn_free(&r);
    }
    cr_assert_eq(code, 0, "the program does not start in %d KiB", kib);
    snprintf(limit, sizeof limit, "ulimit -v %d", kib + DRIVER);
    limit_is_named(&s, limit, "no OpenCL device can be used: a driver does not load: ");
    scratch_remove(&s);
}
#endif
