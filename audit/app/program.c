/* Another program under the audit layer: its environment, its life, what it left behind. */
#include "parts.h"

#include "audit/load.h"
#include "audit/wire.h"
#include "base/mem.h"
#include "io/atomic_file.h"
#include "own_folder.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define LAYER_FILE "isthmus-audit-layer.so"

/* Set while a program runs; a handler can reach nothing but a global. */
static volatile sig_atomic_t child;

static void pass_on(int number) {
    int saved = errno;
    if (child > 0) kill((pid_t)child, number);
    errno = saved;
}

/* Beside the program (a build), below the prefix that the program is in, else where it was to be installed. */
static bool find_layer(char *path, size_t size) {
    static const char *const near[] = {LAYER_FILE, "../" ISTHMUS_LIBDIR "/isthmus/" LAYER_FILE};
    char own[4096];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    own[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(own, '/');
    if (slash) slash[1] = '\0';
    for (size_t k = 0; slash && k < sizeof near / sizeof *near; k++)
        if ((size_t)snprintf(path, size, "%s%s", own, near[k]) < size && !access(path, R_OK)) return true;
    snprintf(path, size, "%s/isthmus/%s", ISTHMUS_FULL_LIBDIR, LAYER_FILE);
    return !access(path, R_OK);
}

/* As a shell says it: 127, there is no such program; 126, it is none that can be run. */
static int fail_start(const char *program, int code) {
    bool absent = code == ENOENT, unfit = code == EACCES || code == ENOEXEC || code == ENOTDIR || code == EISDIR;
    return cli_fail(absent  ? 127
                    : unfit ? 126
                            : CLI_FAILED,
                    "%s: %s", program, absent ? "there is no such program" : strerror(code));
}

/* The interrupt of the terminal reaches the program by itself; ours waits for its end. */
static int start_and_wait(char **argv, int *code) {
    posix_spawnattr_t attributes;
    sigset_t defaults, held, before;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, forward = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    struct sigaction old_int, old_quit, old_term, old_hup;
    pid_t pid;
    int status = 0;
    sigaction(SIGINT, &ignore, &old_int);
    sigaction(SIGQUIT, &ignore, &old_quit);
    sigaction(SIGTERM, &forward, &old_term);
    sigaction(SIGHUP, NULL, &old_hup);
    if (old_hup.sa_handler != SIG_IGN) sigaction(SIGHUP, &forward, NULL); /* else under nohup, as the program then is */
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGXFSZ);
    if (old_int.sa_handler != SIG_IGN) sigaddset(&defaults, SIGINT);
    if (old_quit.sa_handler != SIG_IGN) sigaddset(&defaults, SIGQUIT);
    sigemptyset(&held); /* a signal to pass on waits until it is known to whom */
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGHUP);
    sigprocmask(SIG_BLOCK, &held, &before);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setsigmask(&attributes, &before);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    int failed = posix_spawnp(&pid, argv[0], NULL, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    child = failed ? 0 : (sig_atomic_t)pid;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (!failed) {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
        child = 0;
        *code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    sigaction(SIGINT, &old_int, NULL);
    sigaction(SIGQUIT, &old_quit, NULL);
    sigaction(SIGTERM, &old_term, NULL);
    sigaction(SIGHUP, &old_hup, NULL);
    return failed ? fail_start(argv[0], failed) : CLI_SUCCESS;
}

static int set_environment(const char *layer, const char *folder) {
    const char *others = getenv("OPENCL_LAYERS");
    char layers[8192];
    int n =
        snprintf(layers, sizeof layers, "%s%s%s", others && *others ? others : "", others && *others ? ":" : "", layer);
    if (n < 0 || (size_t)n >= sizeof layers || setenv("OPENCL_LAYERS", layers, 1) ||
        setenv(IST_AUDIT_WIRE_DIR, folder, 1))
        return cli_fail(CLI_FAILED, "cannot set up the environment of the program");
    return CLI_SUCCESS;
}

/* Adds every recording in the folder to the log and counts them, removing them and the folder. */
static int collect(const char *folder, ist_audit_log *log, int *recordings) {
    DIR *d = opendir(folder);
    struct dirent *entry;
    int code = d ? CLI_SUCCESS : cli_fail(CLI_FAILED, "%s: %s", folder, strerror(errno));
    while (d && (entry = readdir(d))) {
        if (entry->d_name[0] == '.') continue;
        char *path = ist_path_join(folder, entry->d_name), *bytes = NULL;
        size_t count = 0;
        ist_error err;
        if (!code && !path)
            code = cli_fail(CLI_FAILED, "out of memory");
        else if (!code && ist_read_file(path, IST_AUDIT_WIRE_LIMIT + 1, &bytes, &count, &err))
            code = cli_fail(CLI_FAILED, "%s", err.text);
        else if (!code && ++*recordings && ist_audit_load(log, bytes, count, &err) == IST_E_MEMORY)
            code = cli_fail(CLI_FAILED, "%s", err.text);
        free(bytes);
        free(path);
        unlinkat(dirfd(d), entry->d_name, 0);
    }
    if (d) closedir(d);
    rmdir(folder);
    return code;
}

int audit_run_program(char **argv, ist_audit_log *log, int *code) {
    char layer[4096], folder[4096];
    if (!find_layer(layer, sizeof layer))
        return cli_fail(CLI_FAILED, "%s is missing: it is installed with %s", layer, cli_this.name);
    int own = own_folder_make("audit", folder, sizeof folder);
    if (own) return own;
    own = set_environment(layer, folder);
    if (!own) own = start_and_wait(argv, code);
    int recordings = 0, collected = collect(folder, log, &recordings);
    if (!own) own = collected;
    if (own) return own;
    ist_audit_sort(log);
    ist_audit_settle_copies(log);
    ist_error err;
    if (audit_resolve(log, &err)) return cli_fail(CLI_FAILED, "%s", err.text);
    log->program = ist_strdup(argv[0]);
    if (!log->program) return cli_fail(CLI_FAILED, "out of memory");
    if (*code >= 128) cli_note("%s ended with %d; the report is of what was seen until then", argv[0], *code);
    if (!log->event_count && recordings)
        cli_note("%s moved nothing, waited for nothing and made nothing with OpenCL", argv[0]);
    else if (!log->event_count)
        cli_note("%s made no OpenCL call, or its OpenCL loader knows no layers", argv[0]);
    return CLI_SUCCESS;
}
