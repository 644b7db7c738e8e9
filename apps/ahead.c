/* Forking the processes that compile with us: see ahead.h. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "ahead.h"

#include "base/cores.h"
#include "pipeline/ahead.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child says is of no interest to anyone: where it fails, the parent does all of the work and says why. Nor
 * does it hold the parent's files: a folder stays claimed (io/claim.h) no longer than the parent lives. */
static void be_silent(void) {
    enum { FILES = 256 }; /* those that a program has open at its start, and more */
    for (int fd = 3; fd < FILES; fd++) close(fd);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2 && null >= 0; fd++) dup2(null, fd);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
}

/* Whoever ends the parent alone (a script, a time limit) means all of it. */
static void end_with(pid_t parent) {
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent) _exit(1); /* it has ended meanwhile */
}

/* NVIDIA's contexts have eight connections to the device; eight of them made at once take 1.0 s, with one connection
 * each 0.3, and nothing here uses a second. */
static void prepare_driver(void) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 0);
}

static pid_t start(const ist_config *config, struct ist_jobs *jobs, int part, pid_t parent) {
    ist_error err;
    pid_t id = fork();
    if (id) return id;
    end_with(parent);
    be_silent();
    prepare_driver();
    _exit(ist_ahead_compile(config, jobs, part, &err) ? 1 : 0);
}

ahead_processes ahead_start(const ist_config *config) {
    ahead_processes helpers = {0};
    char path[1200];
    int others = ist_cores() - 1;
    if (others < 1 || !ist_ahead_path(config, path, sizeof path) || !access(path, F_OK)) return helpers;
    int parts = others < IST_AHEAD_MOST ? others : IST_AHEAD_MOST;
    void *shared = mmap(NULL, ist_ahead_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return helpers;
    helpers.jobs = shared;
    const pid_t parent = getpid();
    for (int part = 0; part < parts; part++) {
        pid_t id = start(config, helpers.jobs, part, parent);
        if (id < 0) break;
        helpers.ids[helpers.count++] = (long)id;
    }
    ist_ahead_begin(helpers.jobs, helpers.count);
    return helpers;
}

static void reap(ahead_processes *helpers) {
    for (int i = 0; i < helpers->count; i++) waitpid((pid_t)helpers->ids[i], NULL, 0);
    if (helpers->jobs) munmap(helpers->jobs, ist_ahead_bytes());
    *helpers = (ahead_processes){0};
}

void ahead_opened(ahead_processes *helpers) {
    if (helpers->jobs) ist_ahead_end(helpers->jobs, true);
}

void ahead_end(ahead_processes *helpers) {
    if (helpers->jobs) ist_ahead_end(helpers->jobs, false);
    reap(helpers);
}

bool ahead_stop(ahead_processes *helpers) {
    if (!helpers->count) return false;
    for (int i = 0; i < helpers->count; i++) kill((pid_t)helpers->ids[i], SIGKILL);
    reap(helpers);
    return true;
}
