/* Folders and links: see folders.h. */
#define _GNU_SOURCE /* O_PATH */
#include "io/folders.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *ist_path_join(const char *folder, const char *name) {
    size_t a = strlen(folder), b = strlen(name);
    bool slash = a && folder[a - 1] != '/';
    char *path = malloc(a + b + 2);
    if (!path) return NULL;
    memcpy(path, folder, a);
    if (slash) path[a] = '/';
    memcpy(path + a + slash, name, b + 1);
    return path;
}

const char *ist_last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int ist_sync(int fd) {
    int code;
    do code = fsync(fd) ? errno : 0;
    while (code == EINTR);
    return code == EINVAL || code == ENOTSUP || code == EROFS || code == EBADF ? 0 : code; /* EBADF: O_PATH */
}

ist_status ist_sync_folder(const char *path, ist_error *err) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code = fd < 0 ? 0 : ist_sync(fd); /* a folder that cannot be read: as it was before there was this */
    if (fd >= 0) close(fd);
    return code ? ist_fail(err, IST_E_IO, "cannot write the folder %s: %s", path, strerror(code)) : IST_OK;
}

/* Of a folder made just now: its name in the folder above. */
static void sync_parent(const char *path) {
    char *copy = ist_strdup(path), *slash = copy ? strrchr(copy, '/') : NULL;
    if (slash) slash[slash == copy] = '\0';
    if (copy) ist_sync_folder(slash ? copy : ".", NULL);
    free(copy);
}

ist_status ist_make_folders(const char *path, size_t *there, ist_error *err) {
    char *copy = ist_strdup(path);
    bool any = false; /* "out/" is there once "out" has been made */
    *there = 0;
    if (!copy) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", path);
    for (char *p = copy + 1; *copy; p++) {
        if (*p != '/' && *p != '\0') continue;
        char end = *p;
        *p = '\0';
        struct stat st;
        bool made = !mkdir(copy, 0777);
        if (!made && (errno != EEXIST || stat(copy, &st) || !S_ISDIR(st.st_mode))) {
            int code = errno == EEXIST ? ENOTDIR : errno;
            ist_status status = ist_fail(err, IST_E_IO, "cannot make the folder %s: %s", copy, strerror(code));
            ist_remove_empty_folders(path, *there);
            free(copy);
            return status;
        }
        if (made) sync_parent(copy);
        any |= made;
        if (!any) *there = (size_t)(p - copy);
        *p = end;
        if (!end) break;
    }
    free(copy);
    return IST_OK;
}

void ist_remove_empty_folders(const char *path, size_t there) {
    char *copy = ist_strdup(path);
    for (size_t n = copy ? strlen(copy) : 0; n > there; n--) {
        if (copy[n] != '\0' && copy[n] != '/') continue;
        copy[n] = '\0';
        rmdir(copy);
    }
    free(copy);
}

ist_status ist_fail_link(const char *path, ist_error *err) {
    return ist_fail(err, IST_E_IO, "cannot write %s: it is a symbolic link, and none is followed there", path);
}

ist_status ist_refuse_link(const char *folder, const char *name, ist_error *err) {
    struct stat st;
    char *path = ist_path_join(folder, name);
    if (!path) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", folder);
    ist_status status = !lstat(path, &st) && S_ISLNK(st.st_mode) ? ist_fail_link(path, err) : IST_OK;
    free(path);
    return status;
}

/* Files can be made in folders that cannot be read. */
static int open_folder_at(int at, const char *name, int more) {
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | more);
    return fd < 0 && errno == EACCES ? openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC | more) : fd;
}

/* The folder `path` itself, as the user means it. */
static ist_status open_own(const char *path, int *folder, ist_error *err) {
    size_t there;
    *folder = open_folder_at(AT_FDCWD, path, 0);
    if (*folder < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        IST_TRY(ist_make_folders(path, &there, err));
        *folder = open_folder_at(AT_FDCWD, path, 0);
    }
    return *folder < 0 ? ist_fail(err, IST_E_IO, "cannot open the folder %s: %s", path, strerror(errno)) : IST_OK;
}

/* From *folder, which is closed, to the folder `name` in it; `path` is both, for sentences. */
static ist_status enter(int *folder, const char *name, const char *path, ist_error *err) {
    struct stat st;
    int next = open_folder_at(*folder, name, O_NOFOLLOW), code = next < 0 ? errno : 0;
    if (code == ENOENT) {
        code = mkdirat(*folder, name, 0777) && errno != EEXIST ? errno : ist_sync(*folder);
        if (!code && (next = open_folder_at(*folder, name, O_NOFOLLOW)) < 0) code = errno;
    }
    bool link = code && !fstatat(*folder, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode);
    close(*folder);
    *folder = next;
    if (link) return ist_fail_link(path, err);
    return code ? ist_fail(err, IST_E_IO, "cannot make the folder %s: %s", path, strerror(code)) : IST_OK;
}

ist_status ist_open_folder_of(const char *path, size_t root, int *folder, ist_error *err) {
    char *copy = ist_strdup(path);
    *folder = -1;
    if (!copy) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", path);
    char *end = strrchr(copy, '/'), *from = copy + root;
    if (!root) {
        if (end) end[end == copy] = '\0';
        from = end;
    } else {
        *from = '\0';
    }
    ist_status status = open_own(from ? copy : ".", folder, err);
    for (char *p = root ? from + 1 : NULL; p && p < end && !status;) {
        char *slash = strchr(p, '/');
        copy[root] = '/';
        *slash = '\0';
        if (*p) status = enter(folder, p, copy, err);
        *slash = '/';
        p = slash + 1;
    }
    free(copy);
    return status;
}
