/* Kernel binaries on disk, one file per program; and what the probes found (probe.c), one file per device.
 *
 * File: a 48-byte header {magic, key, length, checksum} and the content; written under a temporary name and renamed, so
 * that a reader sees a whole file or none (after a power failure the checksum tells). No link is followed. Nothing here
 * can fail an engine: what cannot be read, does not fit its key or is refused by the driver is compiled again and
 * replaced. */
#include "device/state.h"

#include "base/hash.h"
#include "base/mem.h"
#include "device/sources.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CACHE_FORMAT "isthmus kernel 2"          /* 16 bytes; changes with the layout below */
#define BINARY_LIMIT ((size_t)256 * 1024 * 1024) /* no kernel comes near; a damaged length might */

typedef struct cache_header {
    char magic[16];
    uint64_t key[2];
    uint64_t bytes;
    uint64_t checksum;
} cache_header;

/* ---- folder ---- */

/* Platforms that keep compiled kernels on disk themselves, where ours would be a second copy of the same bytes. */
static const struct {
    const char *platform, *why;
} self_caching[] = {
    {IST_POCL, "PoCL stores the code of each kernel and work-group size below POCL_CACHE_DIR"},
    {"rusticl", "Mesa has its shader cache; and rusticl 22.3 ends the process on a binary it does not know"},
};

static bool caches_itself(const ist_device_info *info) {
    for (size_t i = 0; i < sizeof self_caching / sizeof *self_caching; i++)
        if (!strcmp(info->platform_name, self_caching[i].platform)) return true;
    return false;
}

ist_sharing ist_device_sharing(const ist_device_info *info) {
    if (!strcmp(info->platform_name, IST_POCL))
        return info->type == IST_DEVICE_CPU ? IST_SHARES_LAUNCHES : IST_SHARES_NOTHING;
    return caches_itself(info) ? IST_SHARES_NOTHING : IST_SHARES_PROGRAMS;
}

/* mkdir -p; what fails here shows when a file is written. */
static void make_folders(char *path) {
    for (char *p = path + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            mkdir(path, 0755);
            *p = '/';
        }
    mkdir(path, 0755);
}

void ist_cache_make_folder_of(const char *path) {
    char folder[1200];
    const char *end = strrchr(path, '/');
    if (!end || end == path || (size_t)(end - path) >= sizeof folder) return;
    snprintf(folder, sizeof folder, "%.*s", (int)(end - path), path);
    make_folders(folder);
}

ist_status ist_cache_use(ist_device *device, const char *dir, ist_error *err) {
    free(device->cache_dir);
    device->cache_dir = NULL;
    if (!dir) return IST_OK;
    device->cache_dir = ist_strdup(dir);
    if (!device->cache_dir) return ist_fail(err, IST_E_MEMORY, "no memory for the cache folder's name");
    make_folders(device->cache_dir);
    return IST_OK;
}

bool ist_cache_folder(const char *cache_dir, char *path, size_t size) {
    if (!cache_dir || !*cache_dir) cache_dir = getenv("ISTHMUS_CACHE_DIR");
    if (cache_dir && !strcmp(cache_dir, "off")) return false;
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = cache_dir && *cache_dir ? snprintf(path, size, "%s", cache_dir)
            : xdg && *xdg           ? snprintf(path, size, "%s/isthmus", xdg)
            : home && *home         ? snprintf(path, size, "%s/.cache/isthmus", home)
                                    : -1;
    return n >= 0 && (size_t)n < size;
}

ist_status ist_cache_open(ist_device *device, const char *cache_dir, ist_error *err) {
    char path[1024];
    if (!ist_cache_folder(cache_dir, path, sizeof path) || caches_itself(&device->facts)) return IST_OK;
    return ist_cache_use(device, path, err);
}

/* ---- key ---- */

/* Two lanes make 128 bits; each text enters with its final 0, so that moving a border changes the key. */
static ist_cache_key extend(ist_cache_key key, const char *const *texts, int count) {
    uint64_t a = key.hash[0], b = key.hash[1]; /* at the same time: a step waits for the one before */
    for (int i = 0; i < count; i++)
        for (const char *at = texts[i], *end = at + strlen(at) + 1; at < end; at++)
            a = ist_fnv(a, at, 1), b = ist_fnv(b, at, 1);
    return (ist_cache_key){{a, b}};
}

static const ist_cache_key empty_key = {{IST_FNV_OFFSET, ~IST_FNV_OFFSET}};

ist_cache_key ist_hash_texts(const char *const *texts, int count) {
    return extend(empty_key, texts, count);
}

ist_cache_key ist_hash_sources(void) {
    ist_cache_key key = empty_key;
    for (const ist_source *s = ist_sources; s->name; s++) key = extend(key, &s->text, 1);
    return key;
}

ist_cache_key ist_cache_make_key(const ist_device *device, const char *options, const char *const *texts, int count) {
    const ist_device_info *f = &device->facts;
    const char *facts[] = {CACHE_FORMAT, f->name, f->vendor, f->platform_name, f->driver, f->version, options};
    return extend(ist_hash_texts(facts, sizeof facts / sizeof *facts), texts, count);
}

static bool entry_path(const char *folder, ist_cache_key key, const char *suffix, char *out, size_t size) {
    int n = snprintf(out, size, "%s/%016llx%016llx%s", folder, (unsigned long long)key.hash[0],
                     (unsigned long long)key.hash[1], suffix);
    return n > 0 && (size_t)n < size;
}

/* ---- load ---- */

unsigned char *ist_cache_read_stream(FILE *file, ist_cache_key key, size_t *bytes) {
    cache_header h;
    if (fread(&h, sizeof h, 1, file) != 1 || memcmp(h.magic, CACHE_FORMAT, sizeof h.magic)) return NULL;
    if (h.key[0] != key.hash[0] || h.key[1] != key.hash[1] || h.bytes == 0 || h.bytes > BINARY_LIMIT) return NULL;
    unsigned char *data = malloc((size_t)h.bytes);
    if (!data) return NULL;
    if (fread(data, 1, (size_t)h.bytes, file) != h.bytes || fgetc(file) != EOF ||
        ist_fnv(IST_FNV_OFFSET, data, (size_t)h.bytes) != h.checksum) {
        free(data);
        return NULL;
    }
    *bytes = (size_t)h.bytes;
    return data;
}

FILE *ist_cache_open_file(const char *path) {
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");
    if (fd >= 0 && !file) close(fd);
    return file;
}

bool ist_cache_make_mark(const char *path) {
    ist_cache_make_folder_of(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    return fd >= 0 && !close(fd);
}

unsigned char *ist_cache_read(const char *folder, ist_cache_key key, const char *suffix, size_t *bytes, bool *found) {
    char path[1200];
    FILE *file = entry_path(folder, key, suffix, path, sizeof path) ? ist_cache_open_file(path) : NULL;
    *found = file != NULL;
    if (!file) return NULL;
    unsigned char *data = ist_cache_read_stream(file, key, bytes);
    fclose(file);
    return data;
}

cl_program ist_cache_build(ist_device *d, const unsigned char *data, size_t bytes, const char *options) {
    cl_int rc, status = CL_SUCCESS;
    cl_program program = clCreateProgramWithBinary(d->context, 1, &d->id, &bytes, &data, &status, &rc);
    if (rc != CL_SUCCESS) return NULL;
    if (status == CL_SUCCESS && clBuildProgram(program, 1, &d->id, options, NULL, NULL) == CL_SUCCESS) return program;
    clReleaseProgram(program);
    return NULL;
}

cl_program ist_cache_load(ist_device *device, ist_cache_key key, const char *options) {
    size_t bytes = 0;
    bool found = false;
    unsigned char *data = device->cache_dir ? ist_cache_read(device->cache_dir, key, ".bin", &bytes, &found) : NULL;
    if (!found) return NULL;
    cl_program program = data ? ist_cache_build(device, data, bytes, options) : NULL;
    free(data);
    if (program)
        device->builds.from_cache++;
    else
        device->builds.rejected++;
    return program;
}

/* ---- store ---- */

static bool write_entry(int fd, ist_cache_key key, const unsigned char *data, size_t bytes) {
    FILE *file = fdopen(fd, "wb");
    if (!file) {
        close(fd);
        return false;
    }
    cache_header h = {
        .key = {key.hash[0], key.hash[1]}, .bytes = bytes, .checksum = ist_fnv(IST_FNV_OFFSET, data, bytes)};
    memcpy(h.magic, CACHE_FORMAT, sizeof h.magic);
    bool good = fwrite(&h, sizeof h, 1, file) == 1 && fwrite(data, 1, bytes, file) == bytes;
    return !fclose(file) && good;
}

void ist_cache_write(const char *folder, ist_cache_key key, const char *suffix, const unsigned char *data,
                     size_t bytes) {
    char path[1200], temporary[1200];
    if (!entry_path(folder, key, suffix, path, sizeof path) ||
        !entry_path(folder, key, ".XXXXXX", temporary, sizeof temporary))
        return;
    ist_cache_make_folder_of(path);
    int fd = mkstemp(temporary);
    if (fd >= 0 && (!write_entry(fd, key, data, bytes) || rename(temporary, path))) unlink(temporary);
}

/* An adopted context may hold several devices; the query then gives one binary for each. */
unsigned char *ist_cache_binary(const ist_device *d, cl_program program, size_t *bytes) {
    enum { MOST = 16 };
    cl_uint n = 0;
    cl_device_id ids[MOST];
    size_t sizes[MOST] = {0};
    unsigned char *data[MOST] = {0}, *ours = NULL;
    if (clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof n, &n, NULL) != CL_SUCCESS || n == 0 || n > MOST ||
        clGetProgramInfo(program, CL_PROGRAM_DEVICES, n * sizeof *ids, ids, NULL) != CL_SUCCESS ||
        clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, n * sizeof *sizes, sizes, NULL) != CL_SUCCESS)
        return NULL;
    for (cl_uint i = 0; i < n; i++)
        if (ids[i] == d->id && sizes[i] > 0 && sizes[i] <= BINARY_LIMIT) {
            data[i] = ours = malloc(sizes[i]);
            *bytes = sizes[i];
        }
    if (ours && clGetProgramInfo(program, CL_PROGRAM_BINARIES, n * sizeof *data, data, NULL) != CL_SUCCESS) {
        free(ours);
        return NULL;
    }
    return ours;
}

void ist_cache_store(const ist_device *device, ist_cache_key key, cl_program program) {
    size_t bytes = 0;
    unsigned char *data = device->cache_dir ? ist_cache_binary(device, program, &bytes) : NULL;
    if (data) ist_cache_write(device->cache_dir, key, ".bin", data, bytes);
    free(data);
}
