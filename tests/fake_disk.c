/* A recording of what a program does to files, for tests of power failures (cli_crash.c).
 *
 * With FAKE_DISK=FOLDER every new file, sync, rename, removal and new folder becomes a line of FOLDER/log, in the order
 * in which they happen; the bytes that a file has when it is synced are kept as FOLDER/NUMBER. create PATH | sync PATH
 * NUMBER | folder PATH (it is synced) | rename OLD<tab>NEW | remove PATH | mkdir PATH FAKE_FULL=NAME: the disk is full
 * when a file is to get this name. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRAP(type, name, ...)                                                                                          \
    type __real_##name(__VA_ARGS__);                                                                                   \
    type __wrap_##name(__VA_ARGS__);                                                                                   \
    type __wrap_##name(__VA_ARGS__)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int synced;

static void note(const char *what, const char *from, const char *more) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/log", getenv("FAKE_DISK"));
    FILE *log = fopen(path, "a");
    if (!log) return;
    fprintf(log, "%s %s%s\n", what, from, more);
    fclose(log);
}

static const char *path_of(int fd, char path[PATH_MAX]) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
    return path;
}

/* The path of `name` in a folder that is open. */
static const char *path_at(int folder, const char *name, char path[PATH_MAX]) {
    if (folder == AT_FDCWD || *name == '/') {
        snprintf(path, PATH_MAX, "%s", name);
        return path;
    }
    path_of(folder, path);
    size_t n = strlen(path);
    snprintf(path + n, PATH_MAX - n, "/%s", name);
    return path;
}

static void begin(void) {
    pthread_mutex_lock(&lock);
}

static void end(const char *what, const char *path, const char *more, int failed) {
    if (!failed && getenv("FAKE_DISK")) {
        int code = errno;
        note(what, path, more);
        errno = code;
    }
    pthread_mutex_unlock(&lock);
}

static void keep(int fd) {
    char path[PATH_MAX], bytes[4096];
    snprintf(path, sizeof path, "%s/%d", getenv("FAKE_DISK"), ++synced);
    FILE *copy = fopen(path, "wb");
    off_t at = 0;
    for (ssize_t n; copy && (n = pread(fd, bytes, sizeof bytes, at)) > 0; at += n) fwrite(bytes, 1, (size_t)n, copy);
    if (copy) fclose(copy);
}

int __real_open(const char *name, int flags, ...);

WRAP(int, fsync, int fd) {
    char path[PATH_MAX], name[64], more[16] = "";
    struct stat st;
    begin();
    int failed = fstat(fd, &st) || __real_fsync(fd);
    if (!failed && S_ISREG(st.st_mode) && getenv("FAKE_DISK")) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd); /* it may be open for writing only */
        int again = __real_open(name, O_RDONLY | O_CLOEXEC);
        keep(again);
        close(again);
        snprintf(more, sizeof more, " %d", synced);
    }
    end(*more ? "sync" : "folder", path_of(fd, path), more, failed);
    return failed ? -1 : 0;
}

int __real_openat(int folder, const char *name, int flags, ...);
int __wrap_openat(int folder, const char *name, int flags, ...);
int __wrap_openat(int folder, const char *name, int flags, ...) {
    char path[PATH_MAX];
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? (mode_t)va_arg(args, int) : 0;
    va_end(args);
    begin();
    int fd = __real_openat(folder, name, flags, mode);
    end("create", path_at(folder, name, path), "", fd < 0 || !(flags & O_CREAT));
    return fd;
}

int __wrap_open(const char *name, int flags, ...);
int __wrap_open(const char *name, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? (mode_t)va_arg(args, int) : 0;
    va_end(args);
    begin();
    int fd = __real_open(name, flags, mode);
    end("create", name, "", fd < 0 || !(flags & O_CREAT));
    return fd;
}

WRAP(int, renameat, int from, const char *old, int to, const char *name) {
    char path[PATH_MAX], more[PATH_MAX];
    const char *full = getenv("FAKE_FULL");
    if (full && !strcmp(full, name)) {
        errno = ENOSPC;
        return -1;
    }
    begin();
    more[0] = '\t';
    path_at(to, name, path);
    snprintf(more + 1, sizeof more - 1, "%.*s", (int)sizeof more - 2, path);
    int failed = __real_renameat(from, old, to, name);
    end("rename", path_at(from, old, path), more, failed);
    return failed;
}

WRAP(int, rename, const char *old, const char *name) {
    char more[PATH_MAX];
    snprintf(more, sizeof more, "\t%s", name);
    begin();
    int failed = __real_rename(old, name);
    end("rename", old, more, failed);
    return failed;
}

WRAP(int, unlink, const char *path) {
    begin();
    int failed = __real_unlink(path);
    end("remove", path, "", failed);
    return failed;
}

WRAP(int, unlinkat, int folder, const char *name, int flags) {
    char path[PATH_MAX];
    begin();
    int failed = __real_unlinkat(folder, name, flags);
    end("remove", path_at(folder, name, path), "", failed);
    return failed;
}

WRAP(int, mkdir, const char *path, mode_t mode) {
    begin();
    int failed = __real_mkdir(path, mode);
    end("mkdir", path, "", failed);
    return failed;
}

WRAP(int, mkdirat, int folder, const char *name, mode_t mode) {
    char path[PATH_MAX];
    begin();
    int failed = __real_mkdirat(folder, name, mode);
    end("mkdir", path_at(folder, name, path), "", failed);
    return failed;
}
