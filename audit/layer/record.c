/* The recording: a file in mapped memory, the places and names that events refer to. */
#include "layer.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { KERNELS = 1 << 10, SITES = 1 << 13, LABELS = 1 << 12, STEP = 1 << 20, DEPTH = 16, OUTER = 3 };

typedef struct site_slot {
    void *address;
    uint32_t outer, id;
    bool used, in_loader; /* an address in the loader tells nothing: look further up */
} site_slot;

typedef struct label_slot {
    char *text;
    uint32_t id;
} label_slot;

typedef struct kernel_slot {
    cl_kernel kernel;
    uint32_t label;
} kernel_slot;

static struct recording {
    pthread_mutex_t lock;
    char *base; /* NULL: not recording */
    size_t used, size;
    int fd;
    bool full;
    uint32_t sites, labels, threads;
    site_slot site_slots[SITES];
    label_slot label_slots[LABELS];
    kernel_slot kernel_slots[KERNELS]; /* a newer kernel takes the place of an older */
} rec = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static _Thread_local uint32_t thread_id;                /* + 1 */
static _Thread_local ist_audit_wire_event *thread_poll; /* the thread's last record, when it is a poll */

uint64_t layer_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- the file ---- */

static bool open_file(void) {
    char path[4096];
    const char *folder = getenv(IST_AUDIT_WIRE_DIR);
    if (!folder || (size_t)snprintf(path, sizeof path, "%s/%ld.audit", folder, (long)getpid()) >= sizeof path)
        return false;
    rec.fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (rec.fd < 0) return false;
    void *base = MAP_FAILED;
    if (!posix_fallocate(rec.fd, 0, STEP))
        base = mmap(NULL, IST_AUDIT_WIRE_LIMIT, PROT_READ | PROT_WRITE, MAP_SHARED, rec.fd, 0);
    if (base == MAP_FAILED) {
        close(rec.fd);
        return false;
    }
    rec.base = base;
    rec.size = STEP;
    rec.used = IST_AUDIT_WIRE_HEADER;
    ist_audit_wire_header *header = base;
    header->pid = (uint64_t)getpid();
    header->start_ns = layer_now();
    header->magic = IST_AUDIT_WIRE_MAGIC;
    return true;
}

static void before_fork(void) {
    pthread_mutex_lock(&rec.lock);
}
static void after_fork(void) {
    pthread_mutex_unlock(&rec.lock);
}
/* A forked child records into a file of its own, from the start. */
static void in_child(void) {
    if (rec.base) munmap(rec.base, IST_AUDIT_WIRE_LIMIT);
    if (rec.fd >= 0) close(rec.fd);
    for (size_t k = 0; k < LABELS; k++) free(rec.label_slots[k].text);
    memset(rec.site_slots, 0, sizeof rec.site_slots);
    memset(rec.label_slots, 0, sizeof rec.label_slots);
    memset(rec.kernel_slots, 0, sizeof rec.kernel_slots);
    layer_forget_commands();
    layer_forget_arguments();
    rec.base = NULL;
    rec.full = false;
    rec.sites = rec.labels = rec.threads = 0;
    thread_id = 0;
    thread_poll = NULL;
    open_file();
    pthread_mutex_unlock(&rec.lock);
}

bool layer_open(void) {
    pthread_mutex_lock(&rec.lock);
    bool opened = rec.base || open_file();
    pthread_mutex_unlock(&rec.lock);
    if (opened) pthread_atfork(before_fork, after_fork, in_child);
    return opened;
}

/* Room for a record, zeroed; NULL when the file is full. With the lock held. */
static void *take_room(size_t size) {
    if (!rec.base) return NULL;
    while (!rec.full && rec.used + size + sizeof(ist_audit_wire_record) > rec.size)
        if (rec.size + STEP > IST_AUDIT_WIRE_LIMIT || posix_fallocate(rec.fd, (off_t)rec.size, STEP))
            rec.full = true;
        else
            rec.size += STEP;
    if (rec.full) {
        ((ist_audit_wire_header *)(void *)rec.base)->dropped++;
        return NULL;
    }
    void *room = rec.base + rec.used;
    rec.used += size;
    return room;
}

static void publish(ist_audit_wire_record *record, uint32_t type, size_t size) {
    record->size = (uint32_t)size;
    __atomic_store_n(&record->type, type, __ATOMIC_RELEASE);
}

/* ---- names and places, with the lock held ---- */

static uint32_t label_id(const char *text) {
    uint64_t hash = 14695981039346656037u;
    for (const char *p = text; *p; p++) hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    for (size_t k = 0; k < LABELS; k++) {
        label_slot *slot = &rec.label_slots[(hash + k) % LABELS];
        if (slot->text && !strcmp(slot->text, text)) return slot->id;
        if (slot->text) continue;
        size_t length = strlen(text) + 1, size = (sizeof(ist_audit_wire_label) + length + 7) & ~(size_t)7;
        char *copy = malloc(length);
        ist_audit_wire_label *label = copy ? take_room(size) : NULL;
        if (!label) {
            free(copy);
            return IST_AUDIT_NONE;
        }
        memcpy(copy, text, length);
        memcpy(label->text, text, length);
        publish(&label->head, IST_AUDIT_WIRE_LABEL, size);
        *slot = (label_slot){copy, rec.labels++};
        return slot->id;
    }
    return IST_AUDIT_NONE;
}

static kernel_slot *kernel_slot_of(cl_kernel kernel) {
    return &rec.kernel_slots[((uint64_t)(uintptr_t)kernel * 0x9E3779B97F4A7C15u >> 40) % KERNELS];
}

uint32_t layer_kernel_label(cl_kernel kernel) {
    char name[256] = "";
    size_t size = 0;
    pthread_mutex_lock(&rec.lock);
    kernel_slot slot = *kernel_slot_of(kernel);
    pthread_mutex_unlock(&rec.lock);
    if (slot.kernel == kernel) return slot.label;
    cl_int rc = layer_next->clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, 0, NULL, &size);
    char *text = rc == CL_SUCCESS && size ? calloc(1, size + 1) : NULL;
    if (text && layer_next->clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, size, text, NULL) == CL_SUCCESS)
        strncat(name, text, sizeof name - 1);
    free(text);
    pthread_mutex_lock(&rec.lock);
    slot = (kernel_slot){kernel, *name ? label_id(name) : IST_AUDIT_NONE};
    *kernel_slot_of(kernel) = slot;
    pthread_mutex_unlock(&rec.lock);
    return slot.label;
}

/* The handle may come again for another kernel. */
void layer_forget_kernel(cl_kernel kernel) {
    pthread_mutex_lock(&rec.lock);
    kernel_slot *slot = kernel_slot_of(kernel);
    if (slot->kernel == kernel) *slot = (kernel_slot){0};
    pthread_mutex_unlock(&rec.lock);
}

static bool is_loader(const Dl_info *info) {
    const char *name = info->dli_fname ? strrchr(info->dli_fname, '/') : NULL;
    name = name ? name + 1 : info->dli_fname;
    return name && !strncmp(name, "libOpenCL", 9);
}

/* The main program's file has no name that dladdr would know for sure. */
static void module_path(const Dl_info *info, char *path, size_t size) {
    ssize_t n = -1;
    if (info->dli_fname && *info->dli_fname == '/') {
        snprintf(path, size, "%s", info->dli_fname);
        return;
    }
    n = readlink("/proc/self/exe", path, size - 1);
    path[n > 0 ? n : 0] = '\0';
}

static void add_site(site_slot *slot, void *address, uint32_t outer) {
    Dl_info info = {0};
    char path[4096] = "";
    bool found = dladdr(address, &info) && info.dli_fbase;
    *slot = (site_slot){.address = address, .outer = outer, .id = IST_AUDIT_NONE, .used = true};
    slot->in_loader = found && is_loader(&info);
    if (slot->in_loader) return;
    if (found) module_path(&info, path, sizeof path);
    size_t length = strlen(path) + 1, size = (sizeof(ist_audit_wire_site) + length + 7) & ~(size_t)7;
    ist_audit_wire_site *site = take_room(size);
    if (!site) return;
    site->address = (uint64_t)(uintptr_t)address;
    site->outer = outer;
    if (found) site->offset = (uint64_t)((uintptr_t)address - (uintptr_t)info.dli_fbase);
    memcpy(site->module, path, length);
    publish(&site->head, IST_AUDIT_WIRE_SITE, size);
    slot->id = rec.sites++;
}

/* The slot of a place, added when it is new; NULL: no room. */
static site_slot *site_slot_of(void *address, uint32_t outer) {
    uint64_t hash = ((uint64_t)(uintptr_t)address ^ (uint64_t)outer << 48) * 0x9E3779B97F4A7C15u >> 40;
    for (size_t k = 0; k < SITES; k++) {
        site_slot *slot = &rec.site_slots[(hash + k) % SITES];
        if (slot->used && (slot->address != address || slot->outer != outer)) continue;
        if (!slot->used) add_site(slot, address, outer);
        return slot;
    }
    return NULL;
}

/* The program's call: `caller`, or what called the loader when it does not jump straight into the layer. With `outer`
 * the places that called that one's function come along: who is behind a language binding shows after the run. */
static uint32_t site_id(void *caller, bool outer) {
    void *stack[DEPTH];
    site_slot *slot = outer ? NULL : site_slot_of(caller, IST_AUDIT_NONE);
    if (slot && !slot->in_loader) return slot->id;
    int depth = backtrace(stack, DEPTH), at = 0;
    while (at < depth && stack[at] != caller) at++;
    while (at < depth && (slot = site_slot_of(stack[at], IST_AUDIT_NONE)) && slot->in_loader) at++;
    if (at >= depth) return (slot = site_slot_of(caller, IST_AUDIT_NONE)) ? slot->id : IST_AUDIT_NONE;
    uint32_t id = IST_AUDIT_NONE;
    for (int k = !outer ? at : at + OUTER < depth ? at + OUTER : depth - 1; k >= at; k--) {
        if (!(slot = site_slot_of(stack[k], id))) return IST_AUDIT_NONE;
        id = slot->id;
    }
    return id;
}

/* ---- events ---- */

layer_call layer_begin(ist_audit_op op, const char *entry, void *caller) {
    layer_call call = {.entry = entry, .caller = caller};
    call.e.op = (uint16_t)op;
    call.e.repeat = 1;
    call.e.label = IST_AUDIT_NONE;
    call.e.start_ns = layer_now();
    return call;
}

ist_audit_wire_event *layer_record(layer_call *call) {
    pthread_mutex_lock(&rec.lock);
    if (!thread_id) thread_id = ++rec.threads;
    call->e.thread = thread_id - 1;
    call->e.entry = label_id(call->entry);
    if (call->kernel) call->e.label = label_id(call->kernel);
    call->e.site = site_id(call->caller, call->e.op != IST_AUDIT_LAUNCH && call->e.op != IST_AUDIT_POLL);
    ist_audit_wire_event *room = take_room(sizeof *room);
    if (room) {
        *room = call->e;
        publish(&room->head, IST_AUDIT_WIRE_EVENT, sizeof *room);
    }
    thread_poll = NULL;
    pthread_mutex_unlock(&rec.lock);
    return room;
}

uint64_t layer_position(const ist_audit_wire_event *record) {
    return record ? (uint64_t)((const char *)record - rec.base) : 0;
}

void layer_record_poll(layer_call *call) {
    ist_audit_wire_event *last = thread_poll;
    if (last && last->object == call->e.object && last->queue == (uint64_t)(uintptr_t)call->caller) {
        last->repeat++;
        last->wait_ns = layer_now() - last->start_ns;
        return;
    }
    call->e.queue = (uint64_t)(uintptr_t)call->caller; /* a poll has no queue: the place, to compare the next with */
    call->e.wait_ns = layer_now() - call->e.start_ns;
    thread_poll = layer_record(call);
}
