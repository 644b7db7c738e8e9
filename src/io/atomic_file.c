/* Complete-or-absent files: see atomic_file.h. */
#include "io/atomic_file.h"

#include "base/hash.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Temporary names of one process differ because final names do; of two processes, because their ids do. */
static char *temporary_name(const char *path) {
    enum { SIZE = 64 };
    unsigned long long hash = ist_fnv(IST_FNV_OFFSET, path, strlen(path));
    char *name = malloc(SIZE);
    if (name) snprintf(name, SIZE, ".isthmus-%ld-%016llx.tmp", (long)getpid(), hash);
    return name;
}

long ist_temporary_owner(const char *name) {
    long id = 0;
    int end = 0;
    sscanf(name, ".isthmus-%ld-%*16[0-9a-f].tmp%n", &id, &end);
    return end && !name[end] ? id : 0;
}

/* A device or a pipe (/dev/null, /dev/stdout): written to as it is, never replaced by a file. */
static bool is_special(const char *path) {
    struct stat st;
    return !stat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

/* A file that nobody else has made. What is there is an earlier process's with our number, or put there by somebody:
 * its name goes, and what a link of that name points to stays as it is. */
static int open_new(int folder, const char *name) {
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(folder, name, flags, 0666);
    if (fd < 0 && errno == EEXIST && !unlinkat(folder, name, 0)) fd = openat(folder, name, flags, 0666);
    return fd;
}

static ist_status give_up(ist_atomic_file *file, ist_status status) {
    ist_atomic_abort(file);
    return status;
}

/* With path, root and, for files that are renamed, temporary set. */
static ist_status open_stream(ist_atomic_file *file, ist_error *err) {
    int fd = -1, code = 0;
    struct stat st;
    if (file->temporary) {
        ist_status status = ist_open_folder_of(file->path, file->root, &file->folder, err);
        if (status) return give_up(file, status);
        const char *name = ist_last_part(file->path);
        if (file->root && !fstatat(file->folder, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode))
            return give_up(file, ist_fail_link(file->path, err));
        fd = open_new(file->folder, file->temporary);
    } else {
        fd = open(file->path, O_WRONLY | O_CLOEXEC);
    }
    if (fd < 0)
        code = errno;
    else if (!(file->stream = fdopen(fd, "wb"))) {
        code = errno;
        close(fd);
        if (file->temporary) unlinkat(file->folder, file->temporary, 0);
    }
    if (!code) return IST_OK;
    ist_status status = ist_fail(err, IST_E_IO, "cannot write %s: %s", file->path, strerror(code));
    return give_up(file, status);
}

ist_status ist_atomic_begin(ist_atomic_file *file, const char *path, ist_error *err) {
    bool special = is_special(path);
    *file =
        (ist_atomic_file){.path = ist_strdup(path), .temporary = special ? NULL : temporary_name(path), .folder = -1};
    if (!file->path || (!file->temporary && !special))
        return give_up(file, ist_fail(err, IST_E_MEMORY, "%s: out of memory", path));
    return open_stream(file, err);
}

ist_status ist_atomic_begin_in(ist_atomic_file *file, const char *folder, const char *name, ist_error *err) {
    if (!strcmp(folder, "/")) folder = "/.";
    *file = (ist_atomic_file){.path = ist_path_join(folder, name), .root = strlen(folder), .folder = -1};
    if (file->path) file->temporary = temporary_name(file->path);
    if (!file->temporary) return give_up(file, ist_fail(err, IST_E_MEMORY, "%s: out of memory", folder));
    while (file->root > 1 && file->path[file->root] != '/') file->root--; /* a name that ends with a slash */
    return open_stream(file, err);
}

/* Why a stream has failed, 0 if it has not. stdio keeps no number of a failure that came while the buffer was filled,
 * so the file, which is lost anyway, is asked for one byte more: a full disk says so again. */
static int why_failed(FILE *stream) {
    bool before = ferror(stream);
    clearerr(stream);
    errno = 0;
    if (before) putc('\n', stream);
    if (fflush(stream) || ferror(stream)) return errno ? errno : EIO;
    return before ? EIO : 0;
}

ist_status ist_atomic_commit(ist_atomic_file *file, ist_error *err) {
    int code = why_failed(file->stream);
    if (!code && file->temporary && !file->lazy) code = ist_sync(fileno(file->stream));
    errno = 0;
    if (fclose(file->stream) && !code) code = errno ? errno : EIO;
    file->stream = NULL;
    if (!code && file->temporary && renameat(file->folder, file->temporary, file->folder, ist_last_part(file->path)))
        code = errno;
    else if (!code && file->temporary && !file->lazy)
        code = ist_sync(file->folder);
    ist_status status = IST_OK;
    if (code) {
        status = ist_fail(err, IST_E_IO, "cannot write %s: %s", file->path, strerror(code));
        if (file->temporary) unlinkat(file->folder, file->temporary, 0);
    }
    ist_atomic_abort(file);
    return status;
}

ist_status ist_atomic_end(ist_atomic_file *file, ist_error *err) {
    int code = why_failed(file->stream);
    errno = 0;
    if (fclose(file->stream) && !code) code = errno ? errno : EIO;
    file->stream = NULL;
    file->ended = true;
    close(file->folder);
    file->folder = -1;
    if (!code) return IST_OK;
    ist_status status = ist_fail(err, IST_E_IO, "cannot write %s: %s", file->path, strerror(code));
    return give_up(file, status);
}

void ist_atomic_abort(ist_atomic_file *file) {
    if (file->ended) ist_open_folder_of(file->path, file->root, &file->folder, NULL);
    if (file->stream || file->ended) {
        if (file->stream) fclose(file->stream);
        if (file->temporary && file->folder >= 0) unlinkat(file->folder, file->temporary, 0);
    }
    if (file->folder >= 0 && file->path) close(file->folder);
    free(file->path);
    free(file->temporary);
    *file = (ist_atomic_file){.folder = -1};
}

/* What a rename would find at `path`: 0 for a file or nothing, else an errno. */
static int why_not_file(const char *path) {
    struct stat st;
    const char *slash = strrchr(path, '/');
    if (!*path) return ENOENT;
    if (slash && !slash[1]) return EISDIR;
    if (strlen(slash ? slash + 1 : path) > NAME_MAX) return ENAMETOOLONG; /* also in a folder that is not there yet */
    if (stat(path, &st)) return errno == ENOENT ? 0 : errno;
    if (S_ISDIR(st.st_mode)) return EISDIR;
    return !S_ISREG(st.st_mode) && access(path, W_OK) ? errno : 0;
}

/* A pipe is not opened: its reader would take the end of that for the end of the file. */
ist_status ist_atomic_try(const char *path, ist_error *err) {
    int code = why_not_file(path);
    if (code) return ist_fail(err, IST_E_IO, "cannot write %s: %s", path, strerror(code));
    if (is_special(path)) return IST_OK;
    size_t there = 0;
    const char *slash = strrchr(path, '/');
    char *folder = slash && slash != path ? ist_strdup(path) : NULL;
    if (folder) {
        folder[slash - path] = '\0';
        ist_status status = ist_make_folders(folder, &there, err);
        if (status) {
            free(folder);
            return status;
        }
    }
    ist_atomic_file file;
    ist_status status = ist_atomic_begin(&file, path, err);
    if (!status) ist_atomic_abort(&file);
    if (folder) ist_remove_empty_folders(folder, there);
    free(folder);
    return status;
}

static bool ends_with(const char *text, const char *tail) {
    size_t m = strlen(text), n = strlen(tail);
    return m >= n && !strcmp(text + m - n, tail);
}

bool ist_disk_is_full(const ist_error *err) {
    return err->code == IST_E_IO && (ends_with(err->text, strerror(ENOSPC)) || ends_with(err->text, strerror(EDQUOT)));
}

static ist_status write_all(ist_atomic_file *file, const void *bytes, size_t count, ist_error *err) {
    if (count) fwrite(bytes, 1, count, file->stream); /* commit reports a failed write */
    return ist_atomic_commit(file, err);
}

ist_status ist_atomic_write(const char *path, const void *bytes, size_t count, ist_error *err) {
    ist_atomic_file file;
    IST_TRY(ist_atomic_begin(&file, path, err));
    return write_all(&file, bytes, count, err);
}

ist_status ist_atomic_write_in(const char *folder, const char *name, const void *bytes, size_t count, ist_error *err) {
    ist_atomic_file file;
    IST_TRY(ist_atomic_begin_in(&file, folder, name, err));
    return write_all(&file, bytes, count, err);
}

static ist_status read_open_file(int fd, const char *path, size_t limit, char **bytes, size_t *count, ist_error *err) {
    struct stat st;
    if (fstat(fd, &st)) return ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return ist_fail(err, IST_E_IO, "%s: is a folder, not a file", path);
    if (!S_ISREG(st.st_mode)) return ist_fail(err, IST_E_IO, "%s: is not a regular file", path);
    if ((uintmax_t)st.st_size > limit)
        return ist_fail(err, IST_E_LIMIT, "%s: %lld bytes are more than the limit of %zu", path, (long long)st.st_size,
                        limit);
    size_t size = (size_t)st.st_size, have = 0;
    char *data = malloc(size + 1);
    if (!data) return ist_fail(err, IST_E_MEMORY, "%s: out of memory for %zu bytes", path, size);
    while (have < size) {
        ssize_t n = read(fd, data + have, size - have);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            ist_status status = ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
            free(data);
            return status;
        }
        if (n == 0) break;
        have += (size_t)n;
    }
    data[have] = '\0';
    *bytes = data;
    *count = have;
    return IST_OK;
}

ist_status ist_read_file(const char *path, size_t limit, char **bytes, size_t *count, ist_error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hang the program */
    if (fd < 0) return ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
    ist_status status = read_open_file(fd, path, limit, bytes, count, err);
    close(fd);
    return status;
}

ist_status ist_open_file(const char *path, FILE **file, ist_error *err) {
    struct stat st;
    *file = NULL;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) return IST_OK;
    if (fd < 0 && errno == ELOOP) return ist_fail(err, IST_E_IO, "%s: is a symbolic link", path);
    if (fd < 0) return ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
    ist_status status = IST_OK;
    if (fstat(fd, &st))
        status = ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = ist_fail(err, IST_E_IO, "%s: is not a regular file", path);
    else if (!(*file = fdopen(fd, "rb")))
        status = ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
    if (status) close(fd);
    return status;
}
