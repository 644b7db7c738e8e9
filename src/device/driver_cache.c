/* PoCL's folder of compiled kernels. PoCL believes what it finds there: an empty or cut file (a full disk, a power
 * failure) aborts the process inside of it. So files that are not whole are removed before it meets them, and it
 * compiles those kernels again. It writes them under another name and renames them, so that none is on its way.
 *
 * Whole is what ends where its own headers say. Bytes that have changed without moving an end are not found, and what
 * has another format is taken for whole. */
#include "device/state.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH = 6, MOST_FILES = 1 << 18, MOST_BLOCKS = 64 }; /* looked at */

bool ist_driver_cache_folder(char *path, size_t size) {
    const char *own = getenv("POCL_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = own && *own     ? snprintf(path, size, "%s", own)
            : xdg && *xdg   ? snprintf(path, size, "%s/pocl/kcache", xdg)
            : home && *home ? snprintf(path, size, "%s/.cache/pocl/kcache", home)
                            : snprintf(path, size, "/tmp/pocl/kcache");
    return n > 0 && (size_t)n < size;
}

/* What power failures leave: no bytes, or bytes of zero. */
static bool is_blank(const unsigned char magic[4]) {
    return !magic[0] && !magic[1] && !magic[2] && !magic[3];
}

static bool read_at(int fd, off_t at, void *to, size_t count) {
    return pread(fd, to, count, at) == (ssize_t)count;
}

/* A shared object whose table of sections, which linkers put at the end, is inside of the file. */
static bool is_whole_object(int fd, off_t size) {
    union {
        unsigned char ident[EI_NIDENT];
        Elf32_Ehdr narrow;
        Elf64_Ehdr wide;
    } head = {{0}};
    uint64_t at, entries;
    if (size < (off_t)sizeof head || !read_at(fd, 0, &head, sizeof head)) return false;
    if (memcmp(head.ident, ELFMAG, SELFMAG)) return !is_blank(head.ident);
    if (head.ident[EI_CLASS] == ELFCLASS64) {
        at = head.wide.e_shoff;
        entries = (uint64_t)head.wide.e_shnum * head.wide.e_shentsize;
    } else {
        at = head.narrow.e_shoff;
        entries = (uint64_t)head.narrow.e_shnum * head.narrow.e_shentsize;
    }
    return at > 0 && at <= (uint64_t)size && entries <= (uint64_t)size - at;
}

/* LLVM's bitstream: blocks on words of 32 bits. Each begins with the number 1 in 2 bits, its kind in groups of 8 bits
 * of which the highest says that more follow, a width in groups of 4, and its length as the next whole word. */
static bool is_whole_bitcode(int fd, off_t size) {
    unsigned char head[16];
    off_t at = 4;
    if (!read_at(fd, 0, head, 4)) return false;
    if (memcmp(head, "BC\xC0\xDE", 4)) return !is_blank(head);
    for (int block = 0; at < size && block < MOST_BLOCKS; block++) {
        uint64_t bits = 0;
        uint32_t words;
        int used = 2;
        if (!read_at(fd, at, head, 8)) return false;
        for (int i = 0; i < 8; i++) bits |= (uint64_t)head[i] << 8 * i;
        if ((bits & 3) != 1) return false;
        for (int group = 8; group >= 4; group -= 4) {
            while (used < 56 && bits >> (used + group - 1) & 1) used += group;
            used += group;
        }
        at += (used + 31) / 32 * 4;
        if (!read_at(fd, at, head, 4)) return false;
        words = head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 24;
        at += 4 + (off_t)words * 4;
    }
    return at == size && size > 4;
}

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n > m && !strcmp(name + n - m, end);
}

/* False for a file that PoCL would believe and is not whole. */
static bool is_sound(int folder, const char *name) {
    bool object = ends_with(name, ".so"), sound = true;
    struct stat st;
    if (!object && strcmp(name, "program.bc")) return true;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return true;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode))
        sound = object ? is_whole_object(fd, st.st_size) : is_whole_bitcode(fd, st.st_size);
    close(fd);
    return sound;
}

/* Takes `fd`. Files under PoCL's temporary names are other processes' and stay. */
static int mend(int fd, int depth, int *files) {
    DIR *folder = fdopendir(fd);
    int removed = 0;
    if (!folder) {
        close(fd);
        return 0;
    }
    for (struct dirent *e; *files < MOST_FILES && (e = readdir(folder));) {
        if (e->d_name[0] == '.' || !strncmp(e->d_name, "tempfile", 8)) continue;
        ++*files;
        int inner = depth > 1 && !strchr(e->d_name, '.')
                        ? openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                        : -1;
        if (inner >= 0)
            removed += mend(inner, depth - 1, files);
        else if (!is_sound(fd, e->d_name) && !unlinkat(fd, e->d_name, 0))
            removed++;
    }
    closedir(folder);
    return removed;
}

int ist_driver_cache_mend(const char *folder) {
    int files = 0, fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? 0 : mend(fd, DEPTH, &files);
}
