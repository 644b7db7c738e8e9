/* What a process may take, where drivers do not say that this is why they fail: PoCL's compiler ends the process when a
 * file cannot be written, and its loader calls a driver that does not fit into memory no driver at all. */
#include "device/state.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Less than these and a compiler may fail: the largest file and the disk space of a program of ours, its kernels and
 * what PoCL needs meanwhile; descriptors it has open at once; address space for LLVM. */
enum { FILE_MB = 8, DISK_MB = 16, DESCRIPTORS = 6, MEMORY_MB = 64 };

static const double MB = 1024 * 1024;

/* The folder itself, or the nearest above it that is there: it may still have to be made. */
static bool existing_folder(const char *folder, char *path, size_t size) {
    if ((size_t)snprintf(path, size, "%s", folder) >= size) return false;
    while (access(path, F_OK)) {
        char *slash = strrchr(path, '/');
        if (errno != ENOENT || !slash || slash == path) return false;
        *slash = '\0';
    }
    return true;
}

static bool cannot_grow(const char *folder, char *text, size_t size) {
    char path[1200];
    struct statvfs st;
    if (!existing_folder(folder, path, sizeof path) || access(path, W_OK | X_OK)) {
        snprintf(text, size, "%.200s, where the driver keeps kernels, cannot be written: %s", folder, strerror(errno));
        return true;
    }
    if (statvfs(path, &st) || !st.f_blocks) return false; /* nobody knows */
    double space = (double)st.f_bavail * (double)st.f_frsize;
    if (space >= DISK_MB * MB) return false;
    snprintf(text, size, "the disk of %.200s, where the driver keeps kernels, has %.3g MB left of %d that it may need",
             folder, space / MB, DISK_MB);
    return true;
}

bool ist_limits_no_file(const char *folder, char *text, size_t size) {
    struct rlimit limit;
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY && (double)limit.rlim_cur < FILE_MB * MB) {
        snprintf(text, size, "this process may write files of %.3g MB (ulimit -f), the driver's compiler needs %d",
                 (double)limit.rlim_cur / MB, FILE_MB);
        return true;
    }
    return folder && cannot_grow(folder, text, size);
}

/* How many more files can be opened, up to `most`. */
static int free_descriptors(int most) {
    int fds[DESCRIPTORS], count = 0;
    while (count < most && (fds[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) count++;
    for (int i = 0; i < count; i++) close(fds[i]);
    return count;
}

/* Whether `bytes` more of address space can be had. */
static bool has_memory(double bytes) {
    void *block = malloc((size_t)bytes);
    free(block);
    return block != NULL;
}

bool ist_limits_explain(const char *folder, char *text, size_t size) {
    struct rlimit files = {0}, memory = {0};
    int more = free_descriptors(DESCRIPTORS);
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_AS, &memory);
    if (more < DESCRIPTORS) {
        snprintf(text, size, "this process can open %d more %s (ulimit -n is %llu)", more,
                 ist_plural((size_t)more, "file", "files"), (unsigned long long)files.rlim_cur);
        return true;
    }
    if (memory.rlim_cur != RLIM_INFINITY && !has_memory(MEMORY_MB * MB)) {
        snprintf(text, size, "of the %.0f MB that this process may use (ulimit -v) less than %d are left",
                 (double)memory.rlim_cur / MB, MEMORY_MB);
        return true;
    }
    return ist_limits_no_file(folder, text, size);
}

bool ist_limits_memory(char *text, size_t size) {
    struct rlimit memory = {0};
    if (getrlimit(RLIMIT_AS, &memory) || memory.rlim_cur == RLIM_INFINITY) return false;
    snprintf(text, size, "this process may use %.0f MB of memory (ulimit -v)", (double)memory.rlim_cur / MB);
    return true;
}

/* ---- drivers that do not load ---- */

/* The library that an .icd file names. */
static bool read_icd(const char *path, char *library, size_t size) {
    FILE *file = fopen(path, "re");
    bool read = file && fgets(library, (int)size, file);
    if (file) fclose(file);
    if (read) library[strcspn(library, "\r\n")] = '\0';
    return read && *library;
}

static bool does_not_load(const char *path, char *text, size_t size) {
    char library[512];
    if (!read_icd(path, library, sizeof library)) return false;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle) {
        dlclose(handle);
        return false;
    }
    const char *why = dlerror();
    snprintf(text, size, "%.160s", why ? why : library);
    return true;
}

bool ist_driver_problem(char *text, size_t size) {
    const char *own = getenv("OCL_ICD_VENDORS"), *vendors = own && *own ? own : "/etc/OpenCL/vendors";
    char path[1200];
    bool found = false;
    struct stat st;
    if (!stat(vendors, &st) && S_ISREG(st.st_mode)) return does_not_load(vendors, text, size);
    DIR *folder = opendir(vendors);
    for (struct dirent *e; folder && !found && (e = readdir(folder));) {
        size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 4, ".icd")) continue;
        snprintf(path, sizeof path, "%s/%s", vendors, e->d_name);
        found = does_not_load(path, text, size);
    }
    if (folder) closedir(folder);
    return found;
}
