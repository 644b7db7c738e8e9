/* Forking the processes that compile with us: see ahead.h. */
#include "ahead.h"

#include "base/cores.h"
#include "pipeline/ahead.h"

#include <fcntl.h>
#include <signal.h>
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

ahead_processes ahead_start(const ist_config *config) {
    ahead_processes helpers = {0};
    char path[1200];
    int most = sizeof helpers.ids / sizeof *helpers.ids;
    int others = ist_cores() - 1;
    if (others < 1 || !ist_ahead_path(config, path, sizeof path) || !access(path, F_OK)) return helpers;
    int parts = others < most ? others : most;
    const pid_t parent = getpid();
    for (int part = 0; part < parts; part++) {
        pid_t id = fork();
        if (!id) {
            ist_error err;
            end_with(parent);
            be_silent();
            _exit(ist_ahead_compile(config, part, parts, &err) ? 1 : 0);
        }
        if (id > 0) helpers.ids[helpers.count++] = (long)id;
    }
    return helpers;
}

void ahead_end(ahead_processes *helpers) {
    for (int i = 0; i < helpers->count; i++) waitpid((pid_t)helpers->ids[i], NULL, 0);
    helpers->count = 0;
}

bool ahead_stop(ahead_processes *helpers) {
    if (!helpers->count) return false;
    for (int i = 0; i < helpers->count; i++) kill((pid_t)helpers->ids[i], SIGKILL);
    ahead_end(helpers);
    return true;
}
