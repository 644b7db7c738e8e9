/* A device that repeats what another computed (repeated_device.h).
 *
 * Handles are objects of this file while it records or repeats. Each has a key that follows from what it was made of:
 * texts, options, sizes, and how many were made before. Commands are kept until the host waits for them. Then each is
 * mixed into the past of its context, with the bytes that it writes as they are by then, and a read is the question
 * what is there after that past: memory that a command still needs must be there until the host has waited.
 *
 * What a map shows is not repeated: the engine maps memory of the host only, to write and to be read into. */
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include "repeated_device.h"

#include <CL/cl.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In the program's own calls of these, some fail; here none does. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
int __real_open(const char *path, int flags, ...);
ssize_t __real_read(int fd, void *to, size_t n);
ssize_t __real_write(int fd, const void *from, size_t n);

enum { ARGUMENTS = 64, NAME = 64 };

typedef enum kind { NONE, WRITE, READ, OTHER } kind;

typedef struct command {
    kind kind;
    uint64_t key;
    void *host; /* what is written or read to, or memory that a buffer uses */
    size_t bytes;
} command;

typedef struct object {
    void *real; /* the driver's, NULL while repeating */
    uint64_t key;
    int references, parts; /* parts: objects that need this one */
    struct object *parent;
    /* a context */
    uint64_t past;
    long made; /* objects so far */
    command *commands;
    long first, count, room; /* commands first to count - 1 are not done */
    /* a buffer */
    size_t size;
    void *host; /* own or the program's */
    bool owns_host;
    void(CL_CALLBACK *at_end)(cl_mem, void *);
    void *with;
    struct object *next; /* of all buffers */
    /* a kernel */
    uint64_t arguments[ARGUMENTS];
    /* an event */
    long done; /* how many commands are done then */
} object;

/* What the driver said: `bytes` follow in data. */
typedef struct answer {
    uint64_t key;
    int32_t rc;
    uint32_t bytes;
    uint8_t *data;
} answer;

static enum { UNSET, PLAIN, RECORD, REPEAT } mode;
static const char *path_of_answers;
static pid_t owner;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static answer *answers; /* open addressing; key 0: none */
static size_t answers_room, answer_count;
static object *buffers;
static object the_platform = {.key = 1}, the_device = {.key = 2};

static void *must(void *p) {
    if (!p) abort();
    return p;
}

/* ---- keys ---- */

static uint64_t mix(uint64_t key, uint64_t value) {
    key = (key ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return key ^ key >> 29;
}

static uint64_t mix_bytes(uint64_t key, const void *from, size_t bytes) {
    const uint8_t *p = from;
    uint64_t word = 0, lanes[4] = {key, 1, 2, 3}, words[4]; /* lanes: weights are megabytes */
    key = mix(key, bytes);
    for (; bytes >= sizeof words; p += sizeof words, bytes -= sizeof words) {
        memcpy(words, p, sizeof words);
        for (int i = 0; i < 4; i++) lanes[i] = mix(lanes[i], words[i]);
    }
    for (int i = 0; i < 4; i++) key = mix(key, lanes[i]);
    for (; bytes >= sizeof word; p += sizeof word, bytes -= sizeof word) {
        memcpy(&word, p, sizeof word);
        key = mix(key, word);
    }
    word = 0;
    if (bytes) memcpy(&word, p, bytes);
    return mix(key, word);
}

static uint64_t key_of(const char *question) {
    return mix_bytes(3, question, strlen(question));
}

/* ---- answers ---- */

static answer *find_answer(uint64_t key) {
    size_t i = answers_room ? (size_t)key % answers_room : 0;
    while (answers_room && answers[i].key && answers[i].key != key) i = (i + 1) % answers_room;
    return answers_room ? &answers[i] : NULL;
}

static void keep(uint64_t key, cl_int rc, const void *data, size_t bytes) {
    if (2 * answer_count + 2 > answers_room) {
        answer *old = answers;
        size_t room = answers_room;
        answers_room = room ? 2 * room : 1 << 12;
        answers = must(__real_calloc(answers_room, sizeof *answers));
        for (size_t i = 0; i < room; i++)
            if (old[i].key) *find_answer(old[i].key) = old[i];
        free(old);
    }
    answer *a = find_answer(key);
    if (a->key) return; /* the first time */
    *a = (answer){.key = key, .rc = rc, .bytes = (uint32_t)bytes, .data = must(__real_malloc(bytes + 1))};
    if (bytes) memcpy(a->data, data, bytes);
    answer_count++;
}

static const answer *ask(uint64_t key, const char *question) {
    const answer *a = find_answer(key);
    if (a && a->key) return a;
    char line[NAME + 60];
    int n = snprintf(line, sizeof line, "repeated device: %.*s was not asked in the recording\n", NAME, question);
    if (__real_write(STDERR_FILENO, line, (size_t)n) < 0) abort();
    _exit(DEVICE_UNKNOWN);
}

/* A result code alone. */
static cl_int settle_code(uint64_t key, const char *question, cl_int rc) {
    if (mode == RECORD) keep(key, rc, NULL, 0);
    return mode == REPEAT ? ask(key, question)->rc : rc;
}

static void transfer(int fd, void *data, size_t bytes, bool out) {
    for (size_t done = 0; done < bytes;) {
        uint8_t *at = (uint8_t *)data + done;
        ssize_t n = out ? __real_write(fd, at, bytes - done) : __real_read(fd, at, bytes - done);
        if (n <= 0) abort();
        done += (size_t)n;
    }
}

static void begin(void) {
    const char *wish = getenv("FAULT_DEVICE");
    mode = !wish || !strchr(wish, ':') ? PLAIN : !strncmp(wish, "record", 6) ? RECORD : REPEAT;
    if (mode == PLAIN) return;
    path_of_answers = strchr(wish, ':') + 1;
    owner = getpid();
    if (mode == RECORD) return;
    int fd = __real_open(path_of_answers, O_RDONLY);
    uint64_t count = 0;
    if (fd < 0) abort();
    transfer(fd, &count, sizeof count, false);
    for (; count; count--) {
        answer a;
        transfer(fd, &a, sizeof a, false);
        void *data = must(__real_malloc(a.bytes + 1));
        transfer(fd, data, a.bytes, false);
        keep(a.key, a.rc, data, a.bytes);
        free(data);
    }
    close(fd);
}

/* True, with the lock held, where handles are objects of this file. */
static bool enter(void) {
    pthread_mutex_lock(&lock);
    if (mode == UNSET) begin();
    if (mode != PLAIN) return true;
    pthread_mutex_unlock(&lock);
    return false;
}
static void leave(void) {
    pthread_mutex_unlock(&lock);
}

__attribute__((destructor)) static void write_answers(void) {
    uint64_t count = answer_count;
    if (mode != RECORD || owner != getpid()) return;
    int fd = __real_open(path_of_answers, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) abort();
    transfer(fd, &count, sizeof count, true);
    for (size_t i = 0; i < answers_room; i++) {
        if (!answers[i].key) continue;
        transfer(fd, &answers[i], sizeof answers[i], true);
        transfer(fd, answers[i].data, answers[i].bytes, true);
    }
    if (close(fd)) abort();
}

/* ---- objects ---- */

static object *make(object *parent, uint64_t key, void *real) {
    object *o = must(__real_calloc(1, sizeof *o));
    *o = (object){.real = real, .key = key, .references = 1, .parent = parent};
    if (parent) parent->parts++;
    return o;
}

static object *context_of(object *o) {
    while (o->parent) o = o->parent;
    return o;
}

/* What the host has waited for has happened. */
static void settle(object *context, long until) {
    for (; context->first < until; context->first++) {
        const command *c = &context->commands[context->first];
        context->past = mix(context->past, c->key);
        if (c->kind == WRITE) context->past = mix_bytes(context->past, c->host, c->bytes);
        if (c->kind != READ) continue;
        uint64_t key = mix(context->past, 5);
        if (mode == RECORD) keep(key, CL_SUCCESS, c->host, c->bytes);
        if (mode == RECORD) continue;
        const answer *a = ask(key, "clEnqueueReadBuffer after these commands");
        if (a->bytes != c->bytes) abort();
        memcpy(c->host, a->data, c->bytes);
    }
}

static void settle_all(object *context) {
    settle(context, context->count);
}

static void add_command(object *context, command c) {
    if (context->count == context->room) {
        context->room = context->room ? 2 * context->room : 1 << 10;
        context->commands = must(__real_realloc(context->commands, (size_t)context->room * sizeof c));
    }
    context->commands[context->count++] = c;
}

static void add_event(object *context, cl_event *done, cl_event real) {
    if (!done) return;
    object *e = make(context, 0, real);
    e->done = context->count;
    *done = (cl_event)e;
}

static void end_if_unused(object *o) {
    if (!o || o->references > 0 || o->parts > 0) return;
    object *parent = o->parent;
    if (!parent) settle_all(o);
    for (object **at = &buffers; *at; at = &(*at)->next)
        if (*at == o) {
            settle_all(context_of(o)); /* commands keep what they use */
            *at = o->next;
            break;
        }
    if (o->at_end && mode == REPEAT) o->at_end((cl_mem)o, o->with); /* the driver calls it otherwise */
    if (o->owns_host) free(o->host);
    free(o->commands);
    free(o);
    if (!parent) return;
    parent->parts--;
    end_if_unused(parent);
}

/* ---- the calls ---- */

#define REAL(type, o)     ((type)((object *)(o))->real)
#define DRIVEN(name, ...) (mode == RECORD ? __real_##name(__VA_ARGS__) : CL_SUCCESS)
#define DECLARE(type, name, args)                                                                                      \
    type __real_##name args;                                                                                           \
    type device_##name args;                                                                                           \
    type device_##name args
#define WRAP(type, name, args)                                                                                         \
    type __real_##name args;                                                                                           \
    type __wrap_##name args;                                                                                           \
    type __wrap_##name args

/* The driver does what it was asked to while recording: what a failure of its own leads to is for other tests. */
static void must_be(cl_int rc) {
    if (rc != CL_SUCCESS) abort();
}

/* Answers a question about values, the driver's `said` of which `size` bytes are at `to` while recording. */
static cl_int settle_info(uint64_t key, const char *question, size_t n, void *to, size_t *size, size_t said,
                          cl_int rc) {
    key = mix(mix(key, n), to != NULL);
    if (mode == RECORD) {
        uint8_t data[1 << 14];
        size_t copied = rc == CL_SUCCESS && to ? said : 0;
        if (copied + sizeof said > sizeof data) abort();
        memcpy(data, &said, sizeof said);
        if (copied) memcpy(data + sizeof said, to, copied);
        keep(key, rc, data, sizeof said + copied);
    }
    const answer *a = ask(key, question);
    memcpy(&said, a->data, sizeof said);
    if (mode == REPEAT && a->bytes > sizeof said) memcpy(to, a->data + sizeof said, a->bytes - sizeof said);
    if (size) *size = said;
    return a->rc;
}

/* A value that is known here: a handle, a size. */
static cl_int tell(const void *value, size_t bytes, size_t n, void *to, size_t *size) {
    if (to && n < bytes) return CL_INVALID_VALUE;
    if (to) memcpy(to, value, bytes);
    if (size) *size = bytes;
    return CL_SUCCESS;
}

#define INFO(name, type)                                                                                               \
    size_t said = 0;                                                                                                   \
    cl_int rc = mode == RECORD ? __real_##name(REAL(type, of), what, n, to, &said) : CL_SUCCESS;                       \
    rc = settle_info(mix(mix(key_of(#name), ((object *)of)->key), what), #name, n, to, size, said, rc);                \
    leave();                                                                                                           \
    return rc

DECLARE(cl_int, clGetPlatformIDs, (cl_uint n, cl_platform_id *list, cl_uint *count)) {
    if (!enter()) return __real_clGetPlatformIDs(n, list, count);
    cl_uint found = 1;
    if (mode == RECORD) must_be(__real_clGetPlatformIDs(1, (cl_platform_id *)&the_platform.real, &found));
    if (found != 1) abort(); /* which one is meant would have to be chosen */
    if (count) *count = 1;
    if (list && n) *list = (cl_platform_id)&the_platform;
    leave();
    return CL_SUCCESS;
}

DECLARE(cl_int, clGetPlatformInfo, (cl_platform_id of, cl_platform_info what, size_t n, void *to, size_t *size)) {
    if (!enter()) return __real_clGetPlatformInfo(of, what, n, to, size);
    INFO(clGetPlatformInfo, cl_platform_id);
}

DECLARE(cl_int, clGetDeviceIDs,
        (cl_platform_id of, cl_device_type type, cl_uint n, cl_device_id *list, cl_uint *count)) {
    if (!enter()) return __real_clGetDeviceIDs(of, type, n, list, count);
    cl_uint found = 1;
    if (mode == RECORD)
        must_be(__real_clGetDeviceIDs(REAL(cl_platform_id, of), type, 1, (cl_device_id *)&the_device.real, &found));
    if (found != 1) abort();
    if (count) *count = 1;
    if (list && n) *list = (cl_device_id)&the_device;
    leave();
    return CL_SUCCESS;
}

DECLARE(cl_int, clGetDeviceInfo, (cl_device_id of, cl_device_info what, size_t n, void *to, size_t *size)) {
    if (!enter()) return __real_clGetDeviceInfo(of, what, n, to, size);
    if (what == CL_DEVICE_PLATFORM) {
        const object *platform = &the_platform;
        leave();
        return tell(&platform, sizeof platform, n, to, size);
    }
    INFO(clGetDeviceInfo, cl_device_id);
}

DECLARE(cl_context, clCreateContext,
        (const cl_context_properties *list, cl_uint n, const cl_device_id *devices,
         void(CL_CALLBACK *f)(const char *, const void *, size_t, void *), void *with, cl_int *rc)) {
    if (!enter()) return __real_clCreateContext(list, n, devices, f, with, rc);
    const cl_context_properties own[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)the_platform.real, 0};
    cl_context real =
        mode == RECORD ? __real_clCreateContext(own, 1, (cl_device_id *)&the_device.real, f, with, rc) : NULL;
    if (mode == RECORD) must_be(*rc);
    *rc = CL_SUCCESS;
    cl_context made = (cl_context)make(NULL, key_of("clCreateContext"), real);
    leave();
    return made;
}

DECLARE(cl_command_queue, clCreateCommandQueue,
        (cl_context c, cl_device_id d, cl_command_queue_properties properties, cl_int *rc)) {
    if (!enter()) return __real_clCreateCommandQueue(c, d, properties, rc);
    cl_command_queue real =
        mode == RECORD ? __real_clCreateCommandQueue(REAL(cl_context, c), REAL(cl_device_id, d), properties, rc) : NULL;
    *rc = settle_code(mix(key_of("clCreateCommandQueue"), properties), "clCreateCommandQueue", *rc);
    object *context = (object *)c, *made = NULL;
    if (*rc == CL_SUCCESS) made = make(context, mix(key_of("queue"), (uint64_t)context->made++), real);
    leave();
    return (cl_command_queue)made;
}

static cl_mem make_buffer(object *parent, uint64_t key, size_t bytes, void *host, cl_mem real) {
    object *context = context_of(parent), *b = make(parent, mix(mix(key, bytes), (uint64_t)context->made++), real);
    b->size = bytes;
    b->host = host;
    b->next = buffers;
    buffers = b;
    return (cl_mem)b;
}

DECLARE(cl_mem, clCreateBuffer, (cl_context c, cl_mem_flags flags, size_t bytes, void *host, cl_int *rc)) {
    if (!enter()) return __real_clCreateBuffer(c, flags, bytes, host, rc);
    cl_mem real = mode == RECORD ? __real_clCreateBuffer(REAL(cl_context, c), flags, bytes, host, rc) : NULL;
    if (mode == RECORD) must_be(*rc);
    *rc = CL_SUCCESS;
    object *made = (object *)make_buffer((object *)c, mix(key_of("clCreateBuffer"), flags), bytes, host, real);
    if (host) add_command((object *)c, (command){WRITE, made->key, host, bytes});
    leave();
    return (cl_mem)made;
}

DECLARE(cl_mem, clCreateSubBuffer,
        (cl_mem m, cl_mem_flags flags, cl_buffer_create_type type, const void *region, cl_int *rc)) {
    if (!enter()) return __real_clCreateSubBuffer(m, flags, type, region, rc);
    cl_mem real = mode == RECORD ? __real_clCreateSubBuffer(REAL(cl_mem, m), flags, type, region, rc) : NULL;
    if (mode == RECORD) must_be(*rc);
    *rc = CL_SUCCESS;
    const cl_buffer_region *part = region;
    cl_mem made = make_buffer((object *)m, mix(((object *)m)->key, part->origin), part->size, NULL, real);
    leave();
    return made;
}

DECLARE(cl_int, clGetMemObjectInfo, (cl_mem m, cl_mem_info what, size_t n, void *to, size_t *size)) {
    if (!enter()) return __real_clGetMemObjectInfo(m, what, n, to, size);
    object *b = (object *)m, *context = context_of(b), *whole = b->parent == context ? NULL : b->parent;
    leave();
    if (what == CL_MEM_SIZE) return tell(&b->size, sizeof b->size, n, to, size);
    if (what == CL_MEM_CONTEXT) return tell(&context, sizeof context, n, to, size);
    if (what == CL_MEM_ASSOCIATED_MEMOBJECT) return tell(&whole, sizeof whole, n, to, size);
    ask(0, "clGetMemObjectInfo");
    return CL_INVALID_VALUE;
}

DECLARE(cl_int, clSetMemObjectDestructorCallback, (cl_mem m, void(CL_CALLBACK *f)(cl_mem, void *), void *with)) {
    if (!enter()) return __real_clSetMemObjectDestructorCallback(m, f, with);
    object *b = (object *)m;
    b->at_end = f;
    b->with = with;
    must_be(DRIVEN(clSetMemObjectDestructorCallback, REAL(cl_mem, m), f, with));
    leave();
    return CL_SUCCESS;
}

DECLARE(cl_program, clCreateProgramWithSource,
        (cl_context c, cl_uint n, const char **texts, const size_t *sizes, cl_int *rc)) {
    if (!enter()) return __real_clCreateProgramWithSource(c, n, texts, sizes, rc);
    cl_program real =
        mode == RECORD ? __real_clCreateProgramWithSource(REAL(cl_context, c), n, texts, sizes, rc) : NULL;
    if (mode == RECORD) must_be(*rc);
    *rc = CL_SUCCESS;
    uint64_t key = key_of("clCreateProgramWithSource");
    for (cl_uint i = 0; i < n; i++) key = mix_bytes(key, texts[i], sizes && sizes[i] ? sizes[i] : strlen(texts[i]));
    cl_program made = (cl_program)make((object *)c, key, real);
    leave();
    return made;
}

DECLARE(cl_program, clCreateProgramWithBinary,
        (cl_context c, cl_uint n, const cl_device_id *list, const size_t *sizes, const unsigned char **binaries,
         cl_int *status, cl_int *rc)) {
    if (!enter()) return __real_clCreateProgramWithBinary(c, n, list, sizes, binaries, status, rc);
    cl_device_id device = (cl_device_id)the_device.real;
    cl_program real =
        mode == RECORD ? __real_clCreateProgramWithBinary(REAL(cl_context, c), 1, &device, sizes, binaries, status, rc)
                       : NULL;
    uint64_t key = mix_bytes(key_of("clCreateProgramWithBinary"), binaries[0], sizes[0]);
    *rc = settle_code(key, "clCreateProgramWithBinary", *rc);
    if (status) *status = *rc;
    cl_program made = *rc == CL_SUCCESS ? (cl_program)make((object *)c, key, real) : NULL;
    leave();
    return made;
}

DECLARE(cl_int, clBuildProgram,
        (cl_program p, cl_uint n, const cl_device_id *list, const char *options,
         void(CL_CALLBACK *f)(cl_program, void *), void *with)) {
    if (!enter()) return __real_clBuildProgram(p, n, list, options, f, with);
    cl_int rc = DRIVEN(clBuildProgram, REAL(cl_program, p), 0, NULL, options, NULL, NULL);
    object *o = (object *)p;
    o->key = mix(o->key, options ? key_of(options) : 0);
    rc = settle_code(mix(key_of("clBuildProgram"), o->key), "clBuildProgram", rc);
    leave();
    return rc;
}

DECLARE(cl_int, clGetProgramInfo, (cl_program of, cl_program_info what, size_t n, void *to, size_t *size)) {
    if (!enter()) return __real_clGetProgramInfo(of, what, n, to, size);
    if (what == CL_PROGRAM_DEVICES) {
        const object *device = &the_device;
        leave();
        return tell(&device, sizeof device, n, to, size);
    }
    if (what == CL_PROGRAM_BINARIES) ask(0, "clGetProgramInfo for binaries");
    INFO(clGetProgramInfo, cl_program);
}

WRAP(cl_int, clGetProgramBuildInfo,
     (cl_program of, cl_device_id d, cl_program_build_info what, size_t n, void *to, size_t *size)) {
    if (!enter()) return __real_clGetProgramBuildInfo(of, d, what, n, to, size);
    size_t said = 0;
    cl_int rc = DRIVEN(clGetProgramBuildInfo, REAL(cl_program, of), REAL(cl_device_id, d), what, n, to, &said);
    rc = settle_info(mix(mix(key_of("clGetProgramBuildInfo"), ((object *)of)->key), what), "clGetProgramBuildInfo", n,
                     to, size, said, rc);
    leave();
    return rc;
}

DECLARE(cl_kernel, clCreateKernel, (cl_program p, const char *name, cl_int *rc)) {
    if (!enter()) return __real_clCreateKernel(p, name, rc);
    cl_kernel real = mode == RECORD ? __real_clCreateKernel(REAL(cl_program, p), name, rc) : NULL;
    uint64_t key = mix(((object *)p)->key, key_of(name));
    *rc = settle_code(key, "clCreateKernel", *rc);
    cl_kernel made = *rc == CL_SUCCESS ? (cl_kernel)make((object *)p, key, real) : NULL;
    leave();
    return made;
}

WRAP(cl_int, clGetKernelInfo, (cl_kernel of, cl_kernel_info what, size_t n, void *to, size_t *size)) {
    if (!enter()) return __real_clGetKernelInfo(of, what, n, to, size);
    INFO(clGetKernelInfo, cl_kernel);
}

static object *find_buffer(const void *handle) {
    object *b = buffers;
    while (b && b != handle) b = b->next;
    return b;
}

DECLARE(cl_int, clSetKernelArg, (cl_kernel k, cl_uint index, size_t n, const void *value)) {
    if (!enter()) return __real_clSetKernelArg(k, index, n, value);
    object *kernel = (object *)k, *buffer = NULL;
    if (index >= ARGUMENTS) abort();
    if (value && n == sizeof buffer) {
        void *handle;
        memcpy(&handle, value, sizeof handle);
        buffer = find_buffer(handle);
    }
    kernel->arguments[index] = buffer ? buffer->key : value ? mix_bytes(4, value, n) : mix(6, n);
    must_be(DRIVEN(clSetKernelArg, REAL(cl_kernel, k), index, n, buffer ? (const void *)&buffer->real : value));
    leave();
    return CL_SUCCESS;
}

DECLARE(cl_int, clEnqueueNDRangeKernel,
        (cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *offset, const size_t *global, const size_t *local,
         cl_uint n, const cl_event *list, cl_event *done)) {
    if (!enter()) return __real_clEnqueueNDRangeKernel(q, k, dims, offset, global, local, n, list, done);
    object *kernel = (object *)k, *context = context_of((object *)q);
    cl_event real = NULL;
    if (n || offset) abort();
    must_be(DRIVEN(clEnqueueNDRangeKernel, REAL(cl_command_queue, q), REAL(cl_kernel, k), dims, NULL, global, local, 0,
                   NULL, done ? &real : NULL));
    uint64_t key = mix_bytes(kernel->key, kernel->arguments, sizeof kernel->arguments);
    key = mix_bytes(key, global, dims * sizeof *global);
    if (local) key = mix_bytes(key, local, dims * sizeof *local);
    add_command(context, (command){OTHER, key, NULL, 0});
    add_event(context, done, real);
    leave();
    return CL_SUCCESS;
}

DECLARE(cl_int, clEnqueueWriteBuffer,
        (cl_command_queue q, cl_mem m, cl_bool blocking, size_t at, size_t bytes, const void *from, cl_uint n,
         const cl_event *list, cl_event *done)) {
    if (!enter()) return __real_clEnqueueWriteBuffer(q, m, blocking, at, bytes, from, n, list, done);
    object *context = context_of((object *)q);
    cl_event real = NULL;
    if (n) abort();
    must_be(DRIVEN(clEnqueueWriteBuffer, REAL(cl_command_queue, q), REAL(cl_mem, m), blocking, at, bytes, from, 0, NULL,
                   done ? &real : NULL));
    add_command(context, (command){WRITE, mix(((object *)m)->key, at), (void *)(uintptr_t)from, bytes});
    add_event(context, done, real);
    if (blocking) settle_all(context);
    leave();
    return CL_SUCCESS;
}

DECLARE(cl_int, clEnqueueReadBuffer,
        (cl_command_queue q, cl_mem m, cl_bool blocking, size_t at, size_t bytes, void *to, cl_uint n,
         const cl_event *list, cl_event *done)) {
    if (!enter()) return __real_clEnqueueReadBuffer(q, m, blocking, at, bytes, to, n, list, done);
    object *context = context_of((object *)q);
    cl_event real = NULL;
    if (n) abort();
    must_be(DRIVEN(clEnqueueReadBuffer, REAL(cl_command_queue, q), REAL(cl_mem, m), blocking, at, bytes, to, 0, NULL,
                   done ? &real : NULL));
    add_command(context, (command){READ, mix(mix(((object *)m)->key, at), bytes), to, bytes});
    add_event(context, done, real);
    if (blocking) settle_all(context);
    leave();
    return CL_SUCCESS;
}

DECLARE(cl_int, clEnqueueCopyBuffer,
        (cl_command_queue q, cl_mem from, cl_mem to, size_t from_at, size_t to_at, size_t bytes, cl_uint n,
         const cl_event *list, cl_event *done)) {
    if (!enter()) return __real_clEnqueueCopyBuffer(q, from, to, from_at, to_at, bytes, n, list, done);
    const uint64_t all[] = {((object *)from)->key, ((object *)to)->key, from_at, to_at, bytes};
    if (n || done) abort();
    must_be(DRIVEN(clEnqueueCopyBuffer, REAL(cl_command_queue, q), REAL(cl_mem, from), REAL(cl_mem, to), from_at, to_at,
                   bytes, 0, NULL, NULL));
    add_command(context_of((object *)q), (command){OTHER, mix_bytes(7, all, sizeof all), NULL, 0});
    leave();
    return CL_SUCCESS;
}

DECLARE(void *, clEnqueueMapBuffer,
        (cl_command_queue q, cl_mem m, cl_bool blocking, cl_map_flags flags, size_t at, size_t bytes, cl_uint n,
         const cl_event *list, cl_event *done, cl_int *rc)) {
    if (!enter()) return __real_clEnqueueMapBuffer(q, m, blocking, flags, at, bytes, n, list, done, rc);
    object *b = (object *)m;
    void *mapped = NULL;
    if (n || done || !blocking) abort();
    settle_all(context_of(b));
    *rc = CL_SUCCESS;
    if (mode == RECORD)
        mapped = __real_clEnqueueMapBuffer(REAL(cl_command_queue, q), REAL(cl_mem, m), CL_TRUE, flags, at, bytes, 0,
                                           NULL, NULL, rc);
    must_be(*rc);
    if (mode == REPEAT && !b->host) {
        b->host = must(__real_calloc(1, b->size));
        b->owns_host = true;
    }
    if (mode == REPEAT) mapped = (uint8_t *)b->host + at;
    leave();
    return mapped;
}

DECLARE(cl_int, clEnqueueUnmapMemObject,
        (cl_command_queue q, cl_mem m, void *mapped, cl_uint n, const cl_event *list, cl_event *done)) {
    if (!enter()) return __real_clEnqueueUnmapMemObject(q, m, mapped, n, list, done);
    if (n || done) abort();
    must_be(DRIVEN(clEnqueueUnmapMemObject, REAL(cl_command_queue, q), REAL(cl_mem, m), mapped, 0, NULL, NULL));
    leave();
    return CL_SUCCESS;
}

/* Queues are one past here: a marker and a barrier order what is in order. */
#define ORDER(name)                                                                                                    \
    DECLARE(cl_int, name, (cl_command_queue q, cl_uint n, const cl_event *list, cl_event *done)) {                     \
        if (!enter()) return __real_##name(q, n, list, done);                                                          \
        cl_event real = NULL, first = n ? REAL(cl_event, list[0]) : NULL;                                              \
        if (n > 1) abort();                                                                                            \
        must_be(DRIVEN(name, REAL(cl_command_queue, q), n, n ? &first : NULL, done ? &real : NULL));                   \
        add_event(context_of((object *)q), done, real);                                                                \
        leave();                                                                                                       \
        return CL_SUCCESS;                                                                                             \
    }
ORDER(clEnqueueMarkerWithWaitList)
ORDER(clEnqueueBarrierWithWaitList)

DECLARE(cl_int, clFlush, (cl_command_queue q)) {
    if (!enter()) return __real_clFlush(q);
    must_be(DRIVEN(clFlush, REAL(cl_command_queue, q)));
    leave();
    return CL_SUCCESS;
}

DECLARE(cl_int, clFinish, (cl_command_queue q)) {
    if (!enter()) return __real_clFinish(q);
    must_be(DRIVEN(clFinish, REAL(cl_command_queue, q)));
    settle_all(context_of((object *)q));
    leave();
    return CL_SUCCESS;
}

DECLARE(cl_int, clWaitForEvents, (cl_uint n, const cl_event *list)) {
    if (!enter()) return __real_clWaitForEvents(n, list);
    for (cl_uint i = 0; i < n; i++) {
        object *e = (object *)list[i];
        cl_event real = (cl_event)e->real;
        must_be(DRIVEN(clWaitForEvents, 1, &real));
        settle(context_of(e), e->done);
    }
    leave();
    return CL_SUCCESS;
}

DECLARE(cl_int, clGetEventInfo, (cl_event e, cl_event_info what, size_t n, void *to, size_t *size)) {
    if (!enter()) return __real_clGetEventInfo(e, what, n, to, size);
    cl_int status = CL_COMPLETE;
    if (what != CL_EVENT_COMMAND_EXECUTION_STATUS) ask(0, "clGetEventInfo");
    must_be(DRIVEN(clGetEventInfo, REAL(cl_event, e), what, sizeof status, &status, NULL));
    if (status == CL_COMPLETE) settle(context_of((object *)e), ((object *)e)->done);
    leave();
    return tell(&status, sizeof status, n, to, size);
}

/* A microsecond for each command. */
WRAP(cl_int, clGetEventProfilingInfo, (cl_event e, cl_profiling_info what, size_t n, void *to, size_t *size)) {
    if (!enter()) return __real_clGetEventProfilingInfo(e, what, n, to, size);
    cl_ulong at = 1000 * ((cl_ulong)((object *)e)->done + (what == CL_PROFILING_COMMAND_END));
    leave();
    return tell(&at, sizeof at, n, to, size);
}

WRAP(cl_int, clGetCommandQueueInfo,
     (cl_command_queue q, cl_command_queue_info what, size_t n, void *to, size_t *size)) {
    if (!enter()) return __real_clGetCommandQueueInfo(q, what, n, to, size);
    ask(0, "clGetCommandQueueInfo");
    leave();
    return CL_INVALID_VALUE;
}

#define COUNTED(name, type, change)                                                                                    \
    WRAP(cl_int, name, (type handle)) {                                                                                \
        if (!enter()) return __real_##name(handle);                                                                    \
        object *o = (object *)handle;                                                                                  \
        must_be(DRIVEN(name, REAL(type, handle)));                                                                     \
        o->references += change;                                                                                       \
        end_if_unused(o);                                                                                              \
        leave();                                                                                                       \
        return CL_SUCCESS;                                                                                             \
    }
COUNTED(clRetainContext, cl_context, 1)
COUNTED(clRetainCommandQueue, cl_command_queue, 1)
COUNTED(clReleaseContext, cl_context, -1)
COUNTED(clReleaseCommandQueue, cl_command_queue, -1)
COUNTED(clReleaseMemObject, cl_mem, -1)
COUNTED(clReleaseProgram, cl_program, -1)
COUNTED(clReleaseKernel, cl_kernel, -1)
COUNTED(clReleaseEvent, cl_event, -1)
