/* Failures at the n-th call of one kind, for the whole program: linked into it with --wrap of every call below, so that
 * the project's own calls are counted and those inside of libraries and drivers are not (cli_faults.c).
 *
 * FAULT=KIND:N       the N-th call (from 1) of the kind fails: memory, file, opencl; 0: none
 * FAULT=KIND:N@SITE  the N-th of those calls that come from one place
 * FAULT_LOG=PATH     a file that has, when the program ends, how many there were and the name of the one that failed
 * FAULT_SITES=PATH   a file that has then a line for each place: how many came from it, SITE and the name of the call
 *
 * A place is the call and its callers within this program, FAULT_DEPTH of them at most: beyond that it is the same code
 * with other data.
 *
 * A stream fails as on a bad disk: a write goes to a full device from then on, a read to one that cannot be read, so
 * that stdio itself finds out when it next leaves its buffer. stderr never fails: the sentence is read there. */
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define REAL(type, name, ...)                                                                                          \
    type __real_##name(__VA_ARGS__);                                                                                   \
    type __wrap_##name(__VA_ARGS__);

static atomic_long calls;
static const char *volatile failed = "none";

REAL(int, open, const char *, int, ...)
REAL(ssize_t, write, int, const void *, size_t)

/* ---- places ---- */

enum { MOST_FRAMES = 64, SITES = 1 << 14 };

typedef struct call_site {
    uint64_t hash; /* 0: none */
    const char *name;
    long calls;
} call_site;

static call_site sites[SITES];
static pthread_mutex_t sites_lock = PTHREAD_MUTEX_INITIALIZER;
extern const char __executable_start, etext; /* the linker's: the program begins at another address each time */

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

/* Of the calls on the stack that lie in this program, beginning with those of this file. */
static uint64_t find_site(const char *name) {
    void *frames[MOST_FRAMES];
    int count = backtrace(frames, MOST_FRAMES);
    long taken = 0;
    uint64_t hash = 1;
    const char *depth = getenv("FAULT_DEPTH");
    long most = depth ? strtol(depth, NULL, 10) : MOST_FRAMES;
    for (const char *c = name; *c; c++) hash = mix(hash, (unsigned char)*c);
    for (int i = 0; i < count && taken < most; i++) {
        uintptr_t at = (uintptr_t)frames[i], from = (uintptr_t)&__executable_start;
        if (at < from || at >= (uintptr_t)&etext) continue;
        hash = mix(hash, at - from);
        taken++;
    }
    return hash ? hash : 1;
}

/* How many calls have come from there, with this one. */
static long count_site(uint64_t hash, const char *name) {
    size_t i = (size_t)hash % SITES;
    pthread_mutex_lock(&sites_lock);
    for (size_t tried = 0; sites[i].hash && sites[i].hash != hash; i = (i + 1) % SITES)
        if (++tried == SITES) abort();
    sites[i].hash = hash;
    sites[i].name = name;
    long calls_now = ++sites[i].calls;
    pthread_mutex_unlock(&sites_lock);
    return calls_now;
}

static void write_sites(const char *path) {
    int fd = __real_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (size_t i = 0; i < SITES && fd >= 0; i++) {
        char text[120];
        if (!sites[i].hash) continue;
        int n = snprintf(text, sizeof text, "%ld %016" PRIx64 " %s\n", sites[i].calls, sites[i].hash, sites[i].name);
        if (__real_write(fd, text, (size_t)n) < n) abort();
    }
    if (fd < 0 || close(fd)) abort();
}

/* ---- which call fails ---- */

/* Of the process that was started, not of those that it forks. */
static pid_t owner;
__attribute__((constructor)) static void begin(void) {
    owner = getpid();
}
__attribute__((destructor)) static void end(void) {
    const char *path = getenv("FAULT_LOG"), *places = getenv("FAULT_SITES");
    char text[64];
    if (places && *places && owner == getpid()) write_sites(places);
    int fd = path && owner == getpid() ? __real_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    int n = snprintf(text, sizeof text, "%ld %s\n", atomic_load(&calls), failed);
    if (fd >= 0 && (__real_write(fd, text, (size_t)n) < n || close(fd))) abort();
}

static bool is_due(const char *kind, const char *name) {
    const char *wish = getenv("FAULT");
    size_t n = strlen(kind);
    if (!wish || strncmp(wish, kind, n) || wish[n] != ':' || owner != getpid()) return false;
    char *end;
    long number = strtol(wish + n + 1, &end, 10), call = atomic_fetch_add(&calls, 1) + 1;
    const char *places = getenv("FAULT_SITES");
    if (*end == '@' || (places && *places)) {
        uint64_t site = find_site(name);
        long from_there = count_site(site, name);
        if (*end == '@') call = site == strtoull(end + 1, NULL, 16) ? from_there : 0;
    }
    if (!call || call != number) return false;
    failed = name;
    return true;
}

/* ---- memory ---- */

#define MEMORY(name, args, ...)                                                                                        \
    void *__real_##name args;                                                                                          \
    void *__wrap_##name args;                                                                                          \
    void *__wrap_##name args {                                                                                         \
        if (!is_due("memory", #name)) return __real_##name(__VA_ARGS__);                                               \
        errno = ENOMEM;                                                                                                \
        return NULL;                                                                                                   \
    }

MEMORY(malloc, (size_t n), n)
MEMORY(calloc, (size_t n, size_t size), n, size)
MEMORY(realloc, (void *p, size_t n), p, n)
MEMORY(strdup, (const char *text), text)
MEMORY(fmemopen, (void *p, size_t n, const char *mode), p, n, mode)
MEMORY(open_memstream, (char **p, size_t *n), p, n)

/* A call of a kind that says by `value` that it failed, and by errno why. */
#define CALL(kind, name, type, value, code, args, ...)                                                                 \
    type __real_##name args;                                                                                           \
    type __wrap_##name args;                                                                                           \
    type __wrap_##name args {                                                                                          \
        if (!is_due(kind, #name)) return __real_##name(__VA_ARGS__);                                                   \
        errno = code;                                                                                                  \
        return value;                                                                                                  \
    }
#define MEMORY_CALL(name, ...) CALL("memory", name, __VA_ARGS__)
#define FILE_CALL(name, ...)   CALL("file", name, __VA_ARGS__)

/* Threads and processes need memory first of all. */
MEMORY_CALL(setenv, int, -1, ENOMEM, (const char *name, const char *value, int over), name, value, over)
MEMORY_CALL(fork, pid_t, -1, ENOMEM, (void), )
MEMORY_CALL(pthread_create, int, EAGAIN, EAGAIN,
            (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *with), thread, attr, run, with)
MEMORY_CALL(posix_spawn, int, ENOMEM, ENOMEM,
            (pid_t * pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
             char *const *argv, char *const *env),
            pid, path, actions, attr, argv, env)
MEMORY_CALL(posix_spawnp, int, ENOMEM, ENOMEM,
            (pid_t * pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
             char *const *argv, char *const *env),
            pid, file, actions, attr, argv, env)

/* ---- files ---- */

FILE_CALL(fopen, FILE *, NULL, EMFILE, (const char *path, const char *mode), path, mode)
FILE_CALL(fdopen, FILE *, NULL, ENOMEM, (int fd, const char *mode), fd, mode)
FILE_CALL(opendir, DIR *, NULL, EMFILE, (const char *path), path)
FILE_CALL(fdopendir, DIR *, NULL, ENOMEM, (int fd), fd)
FILE_CALL(pipe, int, -1, EMFILE, (int fds[2]), fds)
FILE_CALL(pipe2, int, -1, EMFILE, (int fds[2], int flags), fds, flags)
FILE_CALL(flock, int, -1, ENOLCK, (int fd, int operation), fd, operation)
FILE_CALL(statvfs, int, -1, EIO, (const char *path, struct statvfs *st), path, st)
FILE_CALL(readlink, ssize_t, -1, EIO, (const char *path, char *to, size_t n), path, to, n)
FILE_CALL(symlink, int, -1, EIO, (const char *to, const char *path), to, path)
FILE_CALL(rmdir, int, -1, EIO, (const char *path), path)
FILE_CALL(remove, int, -1, EIO, (const char *path), path)
FILE_CALL(mkdir, int, -1, EIO, (const char *path, mode_t mode), path, mode)
FILE_CALL(mkdirat, int, -1, ENOSPC, (int folder, const char *path, mode_t mode), folder, path, mode)
FILE_CALL(mkdtemp, char *, NULL, ENOSPC, (char *pattern), pattern)
FILE_CALL(mkstemp, int, -1, ENOSPC, (char *pattern), pattern)
FILE_CALL(rename, int, -1, EIO, (const char *from, const char *to), from, to)
FILE_CALL(renameat, int, -1, EIO, (int a, const char *from, int b, const char *to), a, from, b, to)
FILE_CALL(unlink, int, -1, EIO, (const char *path), path)
FILE_CALL(unlinkat, int, -1, EIO, (int folder, const char *path, int flags), folder, path, flags)
FILE_CALL(fsync, int, -1, EIO, (int fd), fd)
FILE_CALL(syncfs, int, -1, EIO, (int fd), fd)
FILE_CALL(ftruncate, int, -1, EIO, (int fd, off_t size), fd, size)
FILE_CALL(stat, int, -1, EIO, (const char *path, struct stat *st), path, st)
FILE_CALL(lstat, int, -1, EIO, (const char *path, struct stat *st), path, st)
FILE_CALL(fstat, int, -1, EIO, (int fd, struct stat *st), fd, st)
FILE_CALL(fstatat, int, -1, EIO, (int fd, const char *path, struct stat *st, int flags), fd, path, st, flags)
FILE_CALL(access, int, -1, EIO, (const char *path, int mode), path, mode)
FILE_CALL(read, ssize_t, -1, EIO, (int fd, void *to, size_t n), fd, to, n)
FILE_CALL(pread, ssize_t, -1, EIO, (int fd, void *to, size_t n, off_t at), fd, to, n, at)
FILE_CALL(write, ssize_t, -1, ENOSPC, (int fd, const void *from, size_t n), fd, from, n)
FILE_CALL(fseek, int, -1, EIO, (FILE * stream, long at, int whence), stream, at, whence)
FILE_CALL(fseeko, int, -1, EIO, (FILE * stream, off_t at, int whence), stream, at, whence)
FILE_CALL(mmap, void *, MAP_FAILED, ENOMEM, (void *p, size_t n, int prot, int flags, int fd, off_t at), p, n, prot,
          flags, fd, at)

int __wrap_open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? (mode_t)va_arg(args, int) : 0;
    va_end(args);
    if (!is_due("file", "open")) return __real_open(path, flags, mode);
    errno = flags & O_CREAT ? ENOSPC : EMFILE;
    return -1;
}

int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? (mode_t)va_arg(args, int) : 0;
    va_end(args);
    if (!is_due("file", "openat")) return __real_openat(folder, path, flags, mode);
    errno = flags & O_CREAT ? ENOSPC : EMFILE;
    return -1;
}

/* What the stream does next, it does on this device. */
static void spoil(FILE *stream, const char *device, int flags) {
    int fd = stream == stderr ? -1 : fileno(stream), bad = fd < 0 ? -1 : __real_open(device, flags);
    if (bad < 0) return; /* a stream in memory cannot fail */
    dup2(bad, fd);
    close(bad);
}

#define STREAM_CALL(name, type, device, flags, args, stream, ...)                                                      \
    type __real_##name args;                                                                                           \
    type __wrap_##name args;                                                                                           \
    type __wrap_##name args {                                                                                          \
        if (is_due("file", #name)) spoil(stream, device, flags);                                                       \
        return __real_##name(__VA_ARGS__);                                                                             \
    }

STREAM_CALL(fwrite, size_t, "/dev/full", O_WRONLY, (const void *p, size_t size, size_t n, FILE *f), f, p, size, n, f)
STREAM_CALL(fputs, int, "/dev/full", O_WRONLY, (const char *s, FILE *f), f, s, f)
STREAM_CALL(fputc, int, "/dev/full", O_WRONLY, (int c, FILE *f), f, c, f)
STREAM_CALL(fread, size_t, "/dev/null", O_WRONLY, (void *p, size_t size, size_t n, FILE *f), f, p, size, n, f)
STREAM_CALL(fgets, char *, "/dev/null", O_WRONLY, (char *s, int n, FILE *f), f, s, n, f)
STREAM_CALL(fgetc, int, "/dev/null", O_WRONLY, (FILE * f), f, f)
STREAM_CALL(getc, int, "/dev/null", O_WRONLY, (FILE * f), f, f)
STREAM_CALL(putc, int, "/dev/full", O_WRONLY, (int c, FILE *f), f, c, f)
STREAM_CALL(puts, int, "/dev/full", O_WRONLY, (const char *s), stdout, s)
STREAM_CALL(putchar, int, "/dev/full", O_WRONLY, (int c), stdout, c)

int __wrap_fprintf(FILE *stream, const char *format, ...);
int __wrap_fprintf(FILE *stream, const char *format, ...) {
    va_list args;
    if (is_due("file", "fprintf")) spoil(stream, "/dev/full", O_WRONLY);
    va_start(args, format);
    int n = vfprintf(stream, format, args);
    va_end(args);
    return n;
}

int __wrap_printf(const char *format, ...);
int __wrap_printf(const char *format, ...) {
    va_list args;
    if (is_due("file", "printf")) spoil(stdout, "/dev/full", O_WRONLY);
    va_start(args, format);
    int n = vprintf(format, args);
    va_end(args);
    return n;
}

/* Before they fail they do what they would: nothing is left open, nothing is written twice. */
#define ENDING_CALL(name)                                                                                              \
    int __real_##name(FILE *f);                                                                                        \
    int __wrap_##name(FILE *f);                                                                                        \
    int __wrap_##name(FILE *f) {                                                                                       \
        bool due = is_due("file", #name);                                                                              \
        int rc = __real_##name(f);                                                                                     \
        if (!due) return rc;                                                                                           \
        errno = ENOSPC;                                                                                                \
        return EOF;                                                                                                    \
    }

ENDING_CALL(fflush)
ENDING_CALL(fclose)

/* ---- OpenCL: of the driver, or of what repeats it (repeated_device.c) ---- */

#define CL_CODE(name, args, ...)                                                                                       \
    cl_int device_##name args;                                                                                         \
    cl_int __wrap_##name args;                                                                                         \
    cl_int __wrap_##name args {                                                                                        \
        return is_due("opencl", #name) ? CL_OUT_OF_RESOURCES : device_##name(__VA_ARGS__);                             \
    }
#define CL_OBJECT(name, type, args, ...)                                                                               \
    type device_##name args;                                                                                           \
    type __wrap_##name args;                                                                                           \
    type __wrap_##name args {                                                                                          \
        if (!is_due("opencl", #name)) return device_##name(__VA_ARGS__);                                               \
        if (rc) *rc = CL_OUT_OF_HOST_MEMORY;                                                                           \
        return NULL;                                                                                                   \
    }

CL_CODE(clGetPlatformIDs, (cl_uint n, cl_platform_id *p, cl_uint *count), n, p, count)
CL_CODE(clGetPlatformInfo, (cl_platform_id p, cl_platform_info w, size_t n, void *v, size_t *r), p, w, n, v, r)
CL_CODE(clGetDeviceIDs, (cl_platform_id p, cl_device_type t, cl_uint n, cl_device_id *d, cl_uint *count), p, t, n, d,
        count)
CL_CODE(clGetDeviceInfo, (cl_device_id d, cl_device_info w, size_t n, void *v, size_t *r), d, w, n, v, r)
CL_CODE(clGetProgramInfo, (cl_program p, cl_program_info w, size_t n, void *v, size_t *r), p, w, n, v, r)
CL_CODE(clGetMemObjectInfo, (cl_mem m, cl_mem_info w, size_t n, void *v, size_t *r), m, w, n, v, r)
CL_CODE(clGetEventInfo, (cl_event e, cl_event_info w, size_t n, void *v, size_t *r), e, w, n, v, r)
CL_CODE(clBuildProgram,
        (cl_program p, cl_uint n, const cl_device_id *d, const char *o, void(CL_CALLBACK *f)(cl_program, void *),
         void *u),
        p, n, d, o, f, u)
CL_CODE(clSetKernelArg, (cl_kernel k, cl_uint i, size_t n, const void *v), k, i, n, v)
CL_CODE(clSetMemObjectDestructorCallback, (cl_mem m, void(CL_CALLBACK *f)(cl_mem, void *), void *u), m, f, u)
CL_CODE(clFlush, (cl_command_queue q), q)
CL_CODE(clFinish, (cl_command_queue q), q)
CL_CODE(clWaitForEvents, (cl_uint n, const cl_event *e), n, e)
CL_CODE(clEnqueueNDRangeKernel,
        (cl_command_queue q, cl_kernel k, cl_uint n, const size_t *o, const size_t *g, const size_t *l, cl_uint w,
         const cl_event *list, cl_event *e),
        q, k, n, o, g, l, w, list, e)
CL_CODE(clEnqueueWriteBuffer,
        (cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t n, const void *p, cl_uint w, const cl_event *list,
         cl_event *e),
        q, m, b, o, n, p, w, list, e)
CL_CODE(clEnqueueReadBuffer,
        (cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t n, void *p, cl_uint w, const cl_event *list,
         cl_event *e),
        q, m, b, o, n, p, w, list, e)
CL_CODE(clEnqueueCopyBuffer,
        (cl_command_queue q, cl_mem s, cl_mem d, size_t so, size_t o, size_t n, cl_uint w, const cl_event *list,
         cl_event *e),
        q, s, d, so, o, n, w, list, e)
CL_CODE(clEnqueueUnmapMemObject, (cl_command_queue q, cl_mem m, void *p, cl_uint w, const cl_event *list, cl_event *e),
        q, m, p, w, list, e)
CL_CODE(clEnqueueMarkerWithWaitList, (cl_command_queue q, cl_uint w, const cl_event *list, cl_event *e), q, w, list, e)
CL_CODE(clEnqueueBarrierWithWaitList, (cl_command_queue q, cl_uint w, const cl_event *list, cl_event *e), q, w, list, e)
CL_OBJECT(clCreateContext, cl_context,
          (const cl_context_properties *p, cl_uint n, const cl_device_id *d,
           void(CL_CALLBACK *f)(const char *, const void *, size_t, void *), void *u, cl_int *rc),
          p, n, d, f, u, rc)
CL_OBJECT(clCreateCommandQueue, cl_command_queue,
          (cl_context c, cl_device_id d, cl_command_queue_properties p, cl_int *rc), c, d, p, rc)
CL_OBJECT(clCreateBuffer, cl_mem, (cl_context c, cl_mem_flags f, size_t n, void *p, cl_int *rc), c, f, n, p, rc)
CL_OBJECT(clCreateSubBuffer, cl_mem, (cl_mem m, cl_mem_flags f, cl_buffer_create_type t, const void *p, cl_int *rc), m,
          f, t, p, rc)
CL_OBJECT(clCreateProgramWithSource, cl_program, (cl_context c, cl_uint n, const char **s, const size_t *l, cl_int *rc),
          c, n, s, l, rc)
CL_OBJECT(clCreateProgramWithBinary, cl_program,
          (cl_context c, cl_uint n, const cl_device_id *d, const size_t *l, const unsigned char **b, cl_int *s,
           cl_int *rc),
          c, n, d, l, b, s, rc)
CL_OBJECT(clCreateKernel, cl_kernel, (cl_program p, const char *name, cl_int *rc), p, name, rc)
CL_OBJECT(clEnqueueMapBuffer, void *,
          (cl_command_queue q, cl_mem m, cl_bool b, cl_map_flags f, size_t o, size_t n, cl_uint w, const cl_event *list,
           cl_event *e, cl_int *rc),
          q, m, b, f, o, n, w, list, e, rc)
