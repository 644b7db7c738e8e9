/* Maps and unmaps of buffers, images and shared virtual memory. An unmap needs what its map said. */
#include "layer.h"

#include <pthread.h>
#include <string.h>

enum { MAPPINGS = 256 };

typedef struct mapping {
    const void *pointer; /* NULL: free */
    uint64_t object;
    size_t offset, bytes;
    uint32_t shape;
    bool writes, one_piece;
} mapping;

/* The oldest makes room: an unmap that is not found is recorded without bytes. */
static struct mappings {
    pthread_mutex_t lock;
    mapping items[MAPPINGS];
    size_t next;
} maps = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void remember(const mapping *m) {
    pthread_mutex_lock(&maps.lock);
    size_t at = maps.next;
    for (size_t k = 0; k < MAPPINGS; k++)
        if (!maps.items[(maps.next + k) % MAPPINGS].pointer) {
            at = (maps.next + k) % MAPPINGS;
            break;
        }
    maps.items[at] = *m;
    maps.next = (at + 1) % MAPPINGS;
    pthread_mutex_unlock(&maps.lock);
}

static mapping forget(const void *pointer) {
    mapping found = {0};
    pthread_mutex_lock(&maps.lock);
    for (size_t k = 0; k < MAPPINGS && !found.pointer; k++)
        if (maps.items[k].pointer == pointer && pointer) {
            found = maps.items[k];
            maps.items[k].pointer = NULL;
        }
    pthread_mutex_unlock(&maps.lock);
    return found;
}

static void set_map(layer_call *c, const void *object, cl_map_flags flags, size_t offset, size_t bytes) {
    if (flags & CL_MAP_READ) c->e.flags |= IST_AUDIT_FROM_DEVICE;
    c->e.object = (uint64_t)(uintptr_t)object;
    c->e.offset = offset;
    c->e.bytes = bytes;
}

static void mapped(layer_call *c, const void *pointer, cl_map_flags flags, bool one_piece) {
    bool writes = flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION);
    c->e.host = (uint64_t)(uintptr_t)pointer;
    c->e.hash = (flags & CL_MAP_READ) && one_piece;
    if (pointer) remember(&(mapping){pointer, c->e.object, c->e.offset, c->e.bytes, c->e.shape, writes, one_piece});
}

static void *CL_API_CALL wrap_clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                                 cl_map_flags flags, size_t offset, size_t size, cl_uint n,
                                                 const cl_event *list, cl_event *event, cl_int *error) {
    layer_call c = LAYER_CALL(MAP, "clEnqueueMapBuffer");
    cl_int rc = CL_SUCCESS;
    size_t at = offset;
    const void *whole = layer_whole(buffer, &at);
    set_map(&c, whole, flags, at, size);
    layer_before(&c, queue, blocking != CL_FALSE, n, list);
    void *pointer = layer_next->clEnqueueMapBuffer(queue, buffer, blocking, flags, offset, size, n, list, event, &rc);
    if (error) *error = rc;
    mapped(&c, pointer, flags, true);
    layer_after(&c, queue, pointer ? rc : CL_MAP_FAILURE, event);
    return pointer;
}

static void *CL_API_CALL wrap_clEnqueueMapImage(cl_command_queue queue, cl_mem image, cl_bool blocking,
                                                cl_map_flags flags, const size_t *origin, const size_t *region,
                                                size_t *row, size_t *slice, cl_uint n, const cl_event *list,
                                                cl_event *event, cl_int *error) {
    layer_call c = LAYER_CALL(MAP, "clEnqueueMapImage");
    cl_int rc = CL_SUCCESS;
    size_t pixel = 0;
    layer_next->clGetImageInfo(image, CL_IMAGE_ELEMENT_SIZE, sizeof pixel, &pixel, NULL);
    set_map(&c, image, flags, 0, 0);
    layer_set_box(&c, image, origin, region);
    layer_before(&c, queue, blocking != CL_FALSE, n, list);
    void *pointer =
        layer_next->clEnqueueMapImage(queue, image, blocking, flags, origin, region, row, slice, n, list, event, &rc);
    if (error) *error = rc;
    mapped(&c, pointer, flags, pointer && row && *row == region[0] * pixel && region[2] == 1);
    layer_after(&c, queue, pointer ? rc : CL_MAP_FAILURE, event);
    return pointer;
}

/* The contents are looked at before the memory goes. */
static void set_unmap(layer_call *c, cl_command_queue queue, const void *object, const void *pointer) {
    mapping m = forget(pointer);
    c->e.queue = (uint64_t)(uintptr_t)queue;
    c->e.object = m.pointer ? m.object : (uint64_t)(uintptr_t)object;
    c->e.host = (uint64_t)(uintptr_t)pointer;
    c->e.offset = m.offset;
    c->e.bytes = m.bytes;
    c->e.shape = m.shape;
    if (!m.writes) return;
    c->e.flags |= IST_AUDIT_TO_DEVICE;
    if (m.one_piece) c->e.hash = layer_hash(pointer, m.bytes, true);
}

static cl_int unmapped(layer_call *c, cl_command_queue queue, cl_int result, cl_event *event) {
    if (result != CL_SUCCESS) return result;
    c->e.move_ns = layer_now() - c->e.start_ns;
    layer_note_command(queue, event ? *event : NULL);
    layer_record(c);
    return result;
}

static cl_int CL_API_CALL wrap_clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem object, void *pointer, cl_uint n,
                                                       const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(UNMAP, "clEnqueueUnmapMemObject");
    set_unmap(&c, queue, object, pointer);
    return unmapped(&c, queue, layer_next->clEnqueueUnmapMemObject(queue, object, pointer, n, list, event), event);
}

static cl_int CL_API_CALL wrap_clEnqueueSVMMap(cl_command_queue queue, cl_bool blocking, cl_map_flags flags, void *svm,
                                               size_t size, cl_uint n, const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(MAP, "clEnqueueSVMMap");
    set_map(&c, svm, flags, 0, size);
    layer_before(&c, queue, blocking != CL_FALSE, n, list);
    cl_int rc = layer_next->clEnqueueSVMMap(queue, blocking, flags, svm, size, n, list, event);
    if (rc == CL_SUCCESS) mapped(&c, svm, flags, true);
    return layer_after(&c, queue, rc, event);
}

static cl_int CL_API_CALL wrap_clEnqueueSVMUnmap(cl_command_queue queue, void *svm, cl_uint n, const cl_event *list,
                                                 cl_event *event) {
    layer_call c = LAYER_CALL(UNMAP, "clEnqueueSVMUnmap");
    set_unmap(&c, queue, svm, svm);
    return unmapped(&c, queue, layer_next->clEnqueueSVMUnmap(queue, svm, n, list, event), event);
}

void layer_wrap_maps(layer_table *t) {
    LAYER_WRAP(t, clEnqueueMapBuffer);
    LAYER_WRAP(t, clEnqueueMapImage);
    LAYER_WRAP(t, clEnqueueUnmapMemObject);
    LAYER_WRAP(t, clEnqueueSVMMap);
    LAYER_WRAP(t, clEnqueueSVMUnmap);
}
