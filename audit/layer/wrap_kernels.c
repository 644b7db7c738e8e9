/* What kernels take: memory objects among their arguments, so that a launch tells which objects it leaves alone.
 * Whatever is not certain makes a kernel one that may take all. */
#include "layer.h"

#include <pthread.h>
#include <string.h>

enum { KERNELS = 1 << 10, ARGUMENTS = 64, PARTS = 256, UNSET = 0xFF, NO_OBJECT = 0xFE };

/* Bits of ist_audit_object_bit: of the object, and of what it is a part of. */
typedef struct argument {
    uint8_t object, whole;
} argument;

/* A kernel since it was made; a newer one takes the place of an older, which then may take all. */
typedef struct kernel_arguments {
    cl_kernel kernel; /* NULL: free */
    cl_uint count;
    argument list[ARGUMENTS];
} kernel_arguments;

typedef struct part {
    cl_mem object, whole;
} part;

static struct kernels {
    pthread_mutex_t lock;
    kernel_arguments items[KERNELS];
    part parts[PARTS];
    size_t part_count;
    bool lost; /* there were more parts: what an argument is a part of is no longer known */
} kernels = {.lock = PTHREAD_MUTEX_INITIALIZER};

static kernel_arguments *slot_of(cl_kernel kernel) {
    return &kernels.items[((uint64_t)(uintptr_t)kernel * 0x9E3779B97F4A7C15u >> 40) % KERNELS];
}

void layer_kernel_made(cl_kernel kernel) {
    cl_uint count = 0;
    cl_int rc = layer_next->clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL);
    if (rc != CL_SUCCESS || count > ARGUMENTS) return;
    pthread_mutex_lock(&kernels.lock);
    kernel_arguments *k = slot_of(kernel);
    k->kernel = kernel;
    k->count = count;
    memset(k->list, UNSET, sizeof k->list);
    pthread_mutex_unlock(&kernels.lock);
}

void layer_kernel_takes_all(cl_kernel kernel) {
    pthread_mutex_lock(&kernels.lock);
    kernel_arguments *k = slot_of(kernel);
    if (k->kernel == kernel) k->kernel = NULL;
    pthread_mutex_unlock(&kernels.lock);
}

void layer_forget_arguments(void) {
    pthread_mutex_init(&kernels.lock, NULL); /* another thread may have held it when the process was forked */
    memset(kernels.items, 0, sizeof kernels.items);
}

void layer_note_part(cl_mem object, cl_mem whole) {
    pthread_mutex_lock(&kernels.lock);
    size_t k = 0;
    while (k < kernels.part_count && kernels.parts[k].object != object) k++;
    if (k < PARTS)
        kernels.parts[k] = (part){object, whole};
    else
        kernels.lost = true;
    if (k == kernels.part_count && k < PARTS) kernels.part_count++;
    pthread_mutex_unlock(&kernels.lock);
}

/* With the lock held. A number that is no object gets a bit like one: the kernel then seems to take more than it does.
 */
static argument argument_of(size_t size, const void *value) {
    cl_mem object, whole;
    if (size != sizeof object || !value) return (argument){NO_OBJECT, NO_OBJECT};
    memcpy(&object, value, sizeof object);
    whole = object;
    for (size_t k = 0; k < kernels.part_count; k++)
        if (kernels.parts[k].object == object) whole = kernels.parts[k].whole;
    return (argument){(uint8_t)ist_audit_object_bit((uint64_t)(uintptr_t)object),
                      (uint8_t)ist_audit_object_bit((uint64_t)(uintptr_t)whole)};
}

static void take(uint64_t taken[2], uint8_t bit) {
    if (bit != NO_OBJECT) taken[bit / 64] |= UINT64_C(1) << bit % 64;
}

void layer_set_untaken(layer_call *call, cl_kernel kernel) {
    uint64_t taken[2] = {0};
    pthread_mutex_lock(&kernels.lock);
    const kernel_arguments *k = slot_of(kernel);
    bool known = k->kernel == kernel && !kernels.lost;
    for (cl_uint i = 0; known && i < k->count; i++) {
        known = k->list[i].object != UNSET; /* set in a way that is not seen */
        if (!known) break;
        take(taken, k->list[i].object);
        take(taken, k->list[i].whole);
    }
    pthread_mutex_unlock(&kernels.lock);
    if (!known) return;
    call->e.hash = ~taken[0];
    call->e.offset = ~taken[1];
}

static cl_int CL_API_CALL wrap_clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void *value) {
    cl_int rc = layer_next->clSetKernelArg(kernel, index, size, value);
    if (rc != CL_SUCCESS) return rc;
    pthread_mutex_lock(&kernels.lock);
    kernel_arguments *k = slot_of(kernel);
    if (k->kernel == kernel && index < k->count) k->list[index] = argument_of(size, value);
    pthread_mutex_unlock(&kernels.lock);
    return rc;
}

static cl_int CL_API_CALL wrap_clSetKernelArgSVMPointer(cl_kernel kernel, cl_uint index, const void *value) {
    layer_kernel_takes_all(kernel);
    return layer_next->clSetKernelArgSVMPointer(kernel, index, value);
}

static cl_int CL_API_CALL wrap_clSetKernelExecInfo(cl_kernel kernel, cl_kernel_exec_info name, size_t size,
                                                   const void *value) {
    layer_kernel_takes_all(kernel);
    return layer_next->clSetKernelExecInfo(kernel, name, size, value);
}

void layer_wrap_kernels(layer_table *t) {
    LAYER_WRAP(t, clSetKernelArg);
    LAYER_WRAP(t, clSetKernelArgSVMPointer);
    LAYER_WRAP(t, clSetKernelExecInfo);
}
