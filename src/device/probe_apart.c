/* Probes in a process of their own: isthmus-probe (src/isthmus_probe.c), which is installed with the library.
 *
 * It says the name of each probe before it runs it. When it ends before it has said the result, or says nothing for
 * too long, that probe counts as deadly, and a new process goes on behind it. Nothing is forked without exec: drivers
 * in the caller's process may have threads by now. */
#define _GNU_SOURCE /* dladdr, pipe2, secure_getenv */
#include "device/probe.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define PROGRAM    "isthmus-probe"
#define FOLDER     "isthmus/" ISTHMUS_ABI "/" /* below the library's; by SONAME, as the libraries are */
#define PATIENCE   60000 /* milliseconds for one line; the slowest seen takes 2 s */
#define NOT_BEGUN  (-2)  /* of `at` below: not even the first step */
#define JOINED     (-1)  /* all probes are built as one program; else the probe's number */
#define LINE_BYTES 64

ist_cache_key ist_probe_key(const ist_device *d) {
    char sources[40];
    const char *texts[IST_PROBE_MOST + 1] = {sources};
    ist_cache_key kernels = ist_hash_sources();
    snprintf(sources, sizeof sources, "%016llx%016llx", (unsigned long long)kernels.hash[0],
             (unsigned long long)kernels.hash[1]);
    for (int i = 0; i < ist_probe_count(); i++) texts[i + 1] = ist_probe_name(i);
    return ist_cache_make_key(d, "", texts, ist_probe_count() + 1);
}

/* ---- the program ---- */

/* In the folder of `file`, or where an installation has it from there. */
static bool find_near(const char *file, char *path, size_t size) {
    static const char *const near[] = {PROGRAM, FOLDER PROGRAM, "../" ISTHMUS_LIBDIR "/" FOLDER PROGRAM};
    const char *slash = strrchr(file, '/');
    for (size_t i = 0; slash && i < sizeof near / sizeof *near; i++)
        if (snprintf(path, size, "%.*s/%s", (int)(slash - file), file, near[i]) < (int)size && !access(path, X_OK))
            return true;
    return false;
}

/* ISTHMUS_PROBE names it, or is "off"; else it is beside the library or the program that this code is in, else where
 * it was to be installed. */
static bool find_program(char *path, size_t size) {
    const char *named = secure_getenv("ISTHMUS_PROBE");
    if (named && *named) return strcmp(named, "off") && snprintf(path, size, "%s", named) < (int)size;
    static const char anchor = 0; /* an address in the library or program that this code is in */
    Dl_info here;
    char own[4096];
    if (dladdr(&anchor, &here) && here.dli_fname && find_near(here.dli_fname, path, size)) return true;
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    own[n > 0 ? n : 0] = '\0';
    if (find_near(own, path, size)) return true;
    return snprintf(path, size, "%s/" FOLDER PROGRAM, ISTHMUS_FULL_LIBDIR) < (int)size && !access(path, X_OK);
}

/* Ours without the layers that an audit puts between a program and its platforms: what is probed is no part of it.
 * Only the array is the caller's to free. */
static char **environment(void) {
    static const char layers[] = "OPENCL_LAYERS=";
    size_t count = 0, kept = 0;
    while (environ && environ[count]) count++;
    char **copy = calloc(count + 1, sizeof *copy);
    for (size_t i = 0; copy && i < count; i++)
        if (strncmp(environ[i], layers, sizeof layers - 1)) copy[kept++] = environ[i];
    return copy;
}

/* ---- one process ---- */

typedef struct child {
    pid_t id;
    int from; /* what it says */
    char line[LINE_BYTES];
    size_t filled;
} child;

static bool spawn(child *c, char *const *argv, int says) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    char **env = environment();
    if (!env) return false;
    sigemptyset(&none);
    sigfillset(&all);
    bool made = !posix_spawn_file_actions_init(&files), also = made && !posix_spawnattr_init(&attributes);
    bool started = also && !posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0) &&
                   !posix_spawn_file_actions_adddup2(&files, says, STDOUT_FILENO) &&
                   !posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0) &&
                   !posix_spawnattr_setsigmask(&attributes, &none) &&
                   !posix_spawnattr_setsigdefault(&attributes, &all) &&
                   !posix_spawnattr_setpgroup(&attributes, 0) && /* a terminal's interrupt is no driver's doing */
                   !posix_spawnattr_setflags(&attributes,
                                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP) &&
                   !posix_spawn(&c->id, argv[0], &files, &attributes, argv, env);
    if (also) posix_spawnattr_destroy(&attributes);
    if (made) posix_spawn_file_actions_destroy(&files);
    free(env);
    return started;
}

static bool start(child *c, const char *program, const ist_device *d, const char *cache_dir, const char *first) {
    ist_cache_key key = ist_probe_key(d);
    char hash[40], index[16];
    int ends[2];
    snprintf(hash, sizeof hash, "%016llx%016llx", (unsigned long long)key.hash[0], (unsigned long long)key.hash[1]);
    snprintf(index, sizeof index, "%d", d->facts.index);
    char *argv[] = {(char *)program, hash, index, (char *)first, (char *)(cache_dir ? cache_dir : ""), NULL};
    if (pipe2(ends, O_CLOEXEC)) return false;
    *c = (child){.from = ends[0]};
    bool started = spawn(c, argv, ends[1]);
    close(ends[1]);
    if (!started) close(ends[0]);
    return started;
}

/* The next line without its end; false when there is none, or for too long. */
static bool next_line(child *c, char *line, bool *late) {
    char *end;
    while (!(end = memchr(c->line, '\n', c->filled))) {
        struct pollfd ready = {.fd = c->from, .events = POLLIN};
        int n = poll(&ready, 1, PATIENCE);
        if (n < 0 && errno == EINTR) continue;
        *late = n == 0;
        if (n <= 0 || c->filled == sizeof c->line) return false;
        ssize_t got = read(c->from, c->line + c->filled, sizeof c->line - c->filled);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        c->filled += (size_t)got;
    }
    size_t n = (size_t)(end - c->line);
    memcpy(line, c->line, n);
    line[n] = '\0';
    c->filled -= n + 1;
    memmove(c->line, end + 1, c->filled);
    return true;
}

/* What it says until it ends: the step that it was at, ist_probe_count() when it came to its end. */
static int listen_to(child *c, ist_probe_result *results, bool *late) {
    int at = NOT_BEGUN;
    char line[LINE_BYTES];
    *late = false;
    while (next_line(c, line, late)) {
        char *name = strchr(line, ' ');
        if (name) *name++ = '\0';
        int probe = name ? ist_probe_find(name) : -1;
        if (!strcmp(line, IST_PROBE_SAYS_END)) return ist_probe_count();
        if (!strcmp(line, IST_PROBE_SAYS_BEGIN)) at = probe < 0 ? JOINED : probe;
        if (probe < 0) continue;
        if (!strcmp(line, IST_PROBE_SAYS_HOLDS)) results[probe] = IST_PROBE_HOLDS;
        if (!strcmp(line, IST_PROBE_SAYS_FAILS)) results[probe] = IST_PROBE_FAILS;
    }
    return at;
}

/* Whether its end was its own, or its driver's, doing; a caller that waits for all of its children may have been told.
 */
static bool end(child *c, bool late) {
    int status = 0;
    if (late) kill(c->id, SIGKILL);
    close(c->from);
    while (waitpid(c->id, &status, 0) < 0)
        if (errno != EINTR) return true;
    if (late || !WIFSIGNALED(status)) return true;
    int by = WTERMSIG(status);
    return by != SIGKILL && by != SIGTERM && by != SIGINT && by != SIGHUP && by != SIGQUIT;
}

bool ist_probes_apart(const ist_device *d, const char *cache_dir, ist_probe_result *results) {
    char program[4096];
    const char *first = IST_PROBES_JOINED;
    bool own = true;
    if (!find_program(program, sizeof program)) return true;
    for (int at = JOINED; at < ist_probe_count();) {
        child c;
        bool late;
        if (!start(&c, program, d, cache_dir, first)) return own;
        int ended = listen_to(&c, results, &late);
        own &= end(&c, late);
        if (ended == ist_probe_count() || ended == NOT_BEGUN) return own;
        if (ended >= 0) results[ended] = results[ended] ? results[ended] : IST_PROBE_DIES;
        at = ended + 1;
        first = at < ist_probe_count() ? ist_probe_name(at) : "";
    }
    return own;
}
