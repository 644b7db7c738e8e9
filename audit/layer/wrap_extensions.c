/* Functions that programs ask for by name, command buffers, callbacks, and the rare commands. */
#include "layer.h"

#include <stdlib.h>
#include <string.h>

/* ---- callbacks ---- */

typedef struct callback {
    void(CL_CALLBACK *notify)(cl_event, cl_int, void *);
    void *data;
    layer_command command;
} callback;

/* A program that learns of the end of a command in this way does not wait for it. */
static void CL_CALLBACK notice(cl_event event, cl_int status, void *data) {
    callback c = *(callback *)data;
    free(data);
    if (status == CL_COMPLETE) layer_command_done(&c.command, event);
    c.notify(event, status, c.data);
}

static cl_int CL_API_CALL wrap_clSetEventCallback(cl_event event, cl_int type,
                                                  void(CL_CALLBACK *notify)(cl_event, cl_int, void *), void *data) {
    callback *c = notify && type == CL_COMPLETE ? malloc(sizeof *c) : NULL;
    layer_look_at_uploads();
    if (!c) return layer_next->clSetEventCallback(event, type, notify, data);
    *c = (callback){notify, data, layer_find_command(event)};
    cl_int rc = layer_next->clSetEventCallback(event, type, notice, c);
    if (rc != CL_SUCCESS) free(c);
    return rc;
}

/* ---- rare commands ---- */

static cl_int noted(cl_command_queue queue, cl_int result, cl_event *event) {
    if (result == CL_SUCCESS) layer_note_command(queue, event ? *event : NULL);
    return result;
}

static cl_int CL_API_CALL wrap_clEnqueueMarker(cl_command_queue queue, cl_event *event) {
    return noted(queue, layer_next->clEnqueueMarker(queue, event), event);
}

static cl_int CL_API_CALL wrap_clEnqueueBarrier(cl_command_queue queue) {
    return noted(queue, layer_next->clEnqueueBarrier(queue), NULL);
}

static cl_int CL_API_CALL wrap_clEnqueueWaitForEvents(cl_command_queue queue, cl_uint n, const cl_event *list) {
    return noted(queue, layer_next->clEnqueueWaitForEvents(queue, n, list), NULL);
}

static cl_int CL_API_CALL wrap_clEnqueueNativeKernel(cl_command_queue queue, void(CL_CALLBACK *function)(void *),
                                                     void *args, size_t size, cl_uint count, const cl_mem *objects,
                                                     const void **places, cl_uint n, const cl_event *list,
                                                     cl_event *event) {
    layer_call c = LAYER_CALL(LAUNCH, "clEnqueueNativeKernel");
    cl_int rc = layer_next->clEnqueueNativeKernel(queue, function, args, size, count, objects, places, n, list, event);
    c.e.queue = (uint64_t)(uintptr_t)queue;
    c.kernel = "native kernel";
    return layer_after(&c, queue, rc, event);
}

static cl_int shared(layer_call *c, cl_command_queue queue, cl_uint count, const cl_mem *objects, cl_int result,
                     cl_event *event) {
    c->e.queue = (uint64_t)(uintptr_t)queue;
    c->e.object = count && objects ? (uint64_t)(uintptr_t)objects[0] : 0;
    return layer_after(c, queue, result, event);
}

static cl_int CL_API_CALL wrap_clEnqueueAcquireGLObjects(cl_command_queue queue, cl_uint count, const cl_mem *objects,
                                                         cl_uint n, const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(MIGRATE, "clEnqueueAcquireGLObjects");
    cl_int rc = layer_next->clEnqueueAcquireGLObjects(queue, count, objects, n, list, event);
    return shared(&c, queue, count, objects, rc, event);
}

static cl_int CL_API_CALL wrap_clEnqueueReleaseGLObjects(cl_command_queue queue, cl_uint count, const cl_mem *objects,
                                                         cl_uint n, const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(MIGRATE, "clEnqueueReleaseGLObjects");
    cl_int rc = layer_next->clEnqueueReleaseGLObjects(queue, count, objects, n, list, event);
    return shared(&c, queue, count, objects, rc, event);
}

static cl_int CL_API_CALL wrap_clEnqueueSVMFree(cl_command_queue queue, cl_uint count, void **pointers,
                                                void(CL_CALLBACK *release)(cl_command_queue, cl_uint, void **, void *),
                                                void *data, cl_uint n, const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(MIGRATE, "clEnqueueSVMFree");
    for (cl_uint k = 0; pointers && k < count; k++) layer_svm_forget(pointers[k]);
    cl_int rc = layer_next->clEnqueueSVMFree(queue, count, pointers, release, data, n, list, event);
    c.e.queue = (uint64_t)(uintptr_t)queue;
    return layer_after(&c, queue, rc, event);
}

/* ---- command buffers (cl_khr_command_buffer) ---- */

typedef void *CL_API_CALL create_buffer(cl_uint, const cl_command_queue *, const cl_ulong *, cl_int *);
typedef cl_int CL_API_CALL enqueue_buffer(cl_uint, cl_command_queue *, void *, cl_uint, const cl_event *, cl_event *);

enum { BUFFERS = 256 };

/* One platform's functions; a second platform's are not followed. The latest buffers and their first queues: which
 * queue a buffer goes to when none is named. */
static struct command_buffers {
    create_buffer *create;
    enqueue_buffer *enqueue;
    const void *buffers[BUFFERS];
    cl_command_queue queues[BUFFERS];
    size_t next;
} buffers;

static void *CL_API_CALL wrap_create(cl_uint count, const cl_command_queue *queues, const cl_ulong *properties,
                                     cl_int *error) {
    layer_call c = LAYER_CALL(KERNEL, "clCreateCommandBufferKHR");
    void *buffer = buffers.create(count, queues, properties, error);
    if (!buffer) return NULL;
    size_t at = __atomic_fetch_add(&buffers.next, 1, __ATOMIC_RELAXED) % BUFFERS;
    buffers.queues[at] = count && queues ? queues[0] : NULL;
    __atomic_store_n(&buffers.buffers[at], buffer, __ATOMIC_RELEASE);
    c.e.object = (uint64_t)(uintptr_t)buffer;
    c.e.move_ns = layer_now() - c.e.start_ns;
    layer_record(&c);
    return buffer;
}

static cl_command_queue queue_of(const void *buffer) {
    size_t next = __atomic_load_n(&buffers.next, __ATOMIC_RELAXED);
    for (size_t k = 1; k <= BUFFERS; k++) {
        size_t at = (next - k) % BUFFERS; /* the newest first: handles come again */
        if (__atomic_load_n(&buffers.buffers[at], __ATOMIC_ACQUIRE) == buffer) return buffers.queues[at];
    }
    return NULL;
}

static cl_int CL_API_CALL wrap_enqueue(cl_uint count, cl_command_queue *queues, void *buffer, cl_uint n,
                                       const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(LAUNCH, "clEnqueueCommandBufferKHR");
    cl_command_queue queue = count && queues ? queues[0] : queue_of(buffer);
    cl_int rc = buffers.enqueue(count, queues, buffer, n, list, event);
    c.e.queue = (uint64_t)(uintptr_t)queue;
    c.e.object = (uint64_t)(uintptr_t)buffer;
    c.kernel = "command buffer";
    return queue ? layer_after(&c, queue, rc, event) : rc;
}

/* ---- by name ---- */

/* A program begins a frame with clGetExtensionFunctionAddressForPlatform(platform, "isthmus_frame"), which does nothing
 * and gives NULL, with the layer or without. */
static const char FRAME_MARK[] = "isthmus_frame";

/* Our function in the place of `real`, where there is one: a driver may give core functions too. */
static void *replace(const char *name, void *real) {
    void *ours = layer_wrapper(name);
    if (ours) return ours;
    if (!strcmp(name, "clCreateCommandBufferKHR") && (!buffers.create || buffers.create == (create_buffer *)real)) {
        buffers.create = (create_buffer *)real;
        return (void *)wrap_create;
    }
    if (!strcmp(name, "clEnqueueCommandBufferKHR") && (!buffers.enqueue || buffers.enqueue == (enqueue_buffer *)real)) {
        buffers.enqueue = (enqueue_buffer *)real;
        return (void *)wrap_enqueue;
    }
    return real;
}

static void *CL_API_CALL wrap_clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *name) {
    layer_call c = LAYER_CALL(FRAME, "clGetExtensionFunctionAddressForPlatform");
    if (name && !strcmp(name, FRAME_MARK)) {
        layer_record(&c);
        return NULL;
    }
    void *real = layer_next->clGetExtensionFunctionAddressForPlatform(platform, name);
    return real ? replace(name, real) : NULL;
}

static void *CL_API_CALL wrap_clGetExtensionFunctionAddress(const char *name) {
    void *real = layer_next->clGetExtensionFunctionAddress(name);
    return real ? replace(name, real) : NULL;
}

void layer_wrap_extensions(layer_table *t) {
    LAYER_WRAP(t, clSetEventCallback);
    LAYER_WRAP(t, clEnqueueMarker);
    LAYER_WRAP(t, clEnqueueBarrier);
    LAYER_WRAP(t, clEnqueueWaitForEvents);
    LAYER_WRAP(t, clEnqueueNativeKernel);
    LAYER_WRAP(t, clEnqueueAcquireGLObjects);
    LAYER_WRAP(t, clEnqueueReleaseGLObjects);
    LAYER_WRAP(t, clEnqueueSVMFree);
    LAYER_WRAP(t, clGetExtensionFunctionAddressForPlatform);
    LAYER_WRAP(t, clGetExtensionFunctionAddress);
}
