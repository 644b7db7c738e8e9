/* Forking the process that compiles with us: see ahead.h. */
#include "ahead.h"

#include "pipeline/ahead.h"

#include <fcntl.h>
#include <signal.h>
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
}

long ahead_start(const ist_config *config) {
    char path[1200];
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2 || !ist_ahead_path(config, path, sizeof path) || !access(path, F_OK))
        return 0;
    pid_t id = fork();
    if (id) return id > 0 ? (long)id : 0;
    ist_error err;
    be_silent();
    _exit(ist_ahead_compile(config, &err) ? 1 : 0);
}

void ahead_end(long *id) {
    if (*id > 0) waitpid((pid_t)*id, NULL, 0);
    *id = 0;
}
