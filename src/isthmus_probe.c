/* isthmus-probe: runs the capability probes of one device for a process that must survive them (device/probe.h).
 *
 *     isthmus-probe KEY INDEX FIRST CACHE_DIR
 * KEY is ist_probe_key of the device, INDEX its place in the list (-1: unknown), FIRST the probe to begin with or
 * "joined", CACHE_DIR as in ist_device_options or "". Lines on standard output say how it goes. */
#define _GNU_SOURCE
#include "device/probe.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/resource.h>
#include <unistd.h>

enum { FAILED = 1, USAGE = 2, NO_DEVICE = 3 };

/* Whatever a driver writes goes nowhere, and what it starts does not hold the pipe. Descriptors that the caller left
 * open are not for us; a core file of a driver's assertion is for nobody. */
static FILE *withdraw(void) {
    enum { FILES = 1024 };
    int says = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (says < 0 || null < 0) return NULL;
    dup2(null, STDOUT_FILENO);
    for (int fd = 3; fd < FILES; fd++)
        if (fd != says) close(fd);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    return fdopen(says, "w");
}

static bool is_device(const ist_device *d, const char *key) {
    char own[40];
    ist_cache_key k = ist_probe_key(d);
    snprintf(own, sizeof own, "%016llx%016llx", (unsigned long long)k.hash[0], (unsigned long long)k.hash[1]);
    return !strcmp(own, key);
}

static ist_device *open_one(int index, const char *key, const char *cache_dir) {
    char spec[16];
    ist_device *d = NULL;
    snprintf(spec, sizeof spec, "%d", index);
    ist_device_options options = {
        .spec = spec, .cache_dir = *cache_dir ? cache_dir : NULL, .probing = IST_PROBING_NONE};
    if (ist_device_open(&options, &d, NULL) == IST_OK && !is_device(d, key)) ist_device_close(&d);
    return d;
}

/* At `index`, else the first that is like it: one in a caller's context need not be in the list. */
static ist_device *find_device(int index, const char *key, const char *cache_dir) {
    ist_device_info *list = NULL;
    int count = 0;
    ist_device *d = index >= 0 ? open_one(index, key, cache_dir) : NULL;
    if (!d && ist_device_list(&list, &count, NULL) == IST_OK)
        for (int i = 0; i < count && !d; i++) d = open_one(i, key, cache_dir);
    free(list);
    return d;
}

static void begins(void *user, const char *name) {
    fprintf(user, IST_PROBE_SAYS_BEGIN " %s\n", name);
    fflush(user);
}

static void ended(void *user, const char *name, bool holds) {
    fprintf(user, "%s %s\n", holds ? IST_PROBE_SAYS_HOLDS : IST_PROBE_SAYS_FAILS, name);
    fflush(user);
}

/* _exit: what a driver does at exit is of no interest any more. */
int main(int argc, char **argv) {
    if (argc != 5) return USAGE;
    FILE *says = withdraw();
    if (!says) return FAILED;
    int first = ist_probe_find(argv[3]);
    ist_probe_result results[IST_PROBE_MOST] = {IST_PROBE_UNKNOWN};
    ist_device *d = find_device(atoi(argv[2]), argv[1], argv[4]);
    if (!d) _exit(NO_DEVICE);
    ist_error why = {0};
    ist_probe_course course = {.alone = first >= 0, .user = says, .begins = begins, .ended = ended};
    for (int i = 0; i < first; i++) results[i] = IST_PROBE_FAILS; /* whoever asks knows of them */
    if (ist_probes_run(d, &course, results, &why, NULL)) _exit(FAILED);
    fputs(IST_PROBE_SAYS_END "\n", says);
    fflush(says);
    _exit(0);
}
