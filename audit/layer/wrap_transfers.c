/* Commands that move data: buffers, rectangles, images, shared virtual memory, migration; and kernels. */
#include "layer.h"

#define BLOCKING(flag) ((flag) != CL_FALSE)

void layer_before(layer_call *call, cl_command_queue queue, bool blocking, cl_uint waits, const cl_event *list) {
    call->e.queue = (uint64_t)(uintptr_t)queue;
    if (!blocking) return;
    layer_look_at_uploads();
    call->e.start_ns = layer_now();
    call->e.flags |= IST_AUDIT_BLOCKING;
    bool in_order = layer_is_in_order(queue);
    cl_event marker = NULL;
    if (in_order) call->e.flags |= IST_AUDIT_WHOLE_QUEUE;
    if (in_order && layer_next->clEnqueueMarkerWithWaitList &&
        layer_next->clEnqueueMarkerWithWaitList(queue, waits, list, &marker) == CL_SUCCESS) {
        layer_next->clWaitForEvents(1, &marker);
        layer_next->clReleaseEvent(marker);
    } else if (!in_order && waits && list) {
        layer_next->clWaitForEvents(waits, list);
    }
    call->e.wait_ns = layer_now() - call->e.start_ns;
}

static bool is_download(const layer_call *call) {
    return call->e.op == IST_AUDIT_READ || (call->e.flags & IST_AUDIT_FROM_DEVICE);
}

cl_int layer_after(layer_call *call, cl_command_queue queue, cl_int result, cl_event *event) {
    if (result != CL_SUCCESS) return result;
    const void *host = (const void *)(uintptr_t)call->e.host;
    bool launch = call->e.op == IST_AUDIT_LAUNCH;
    bool hashed = !launch && call->e.hash == 1; /* asked for by the wrapper: contents lie in one piece */
    if (!launch) {
        call->e.move_ns = layer_now() - call->e.start_ns - call->e.wait_ns;
        call->e.hash = 0;
    }
    layer_command command = layer_note_command(queue, event ? *event : NULL);
    bool blocking = call->e.flags & IST_AUDIT_BLOCKING, down = is_download(call);
    bool later = !blocking && (down || (hashed && call->e.op == IST_AUDIT_WRITE));
    if (hashed && !later) call->e.hash = layer_hash(host, call->e.bytes, false);
    if (call->e.flags & IST_AUDIT_WHOLE_QUEUE) layer_queue_done(queue);
    ist_audit_wire_event *record = layer_record(call);
    if (later) layer_note_pending(command, event ? *event : NULL, hashed ? host : NULL, call->e.bytes, !down, record);
    return result;
}

/* With hash = 1 the contents are looked at: they lie in one piece. */
static void set_object(layer_call *call, cl_mem object, size_t offset, size_t bytes, const void *host, bool one_piece) {
    cl_mem_flags flags = 0;
    layer_next->clGetMemObjectInfo(object, CL_MEM_FLAGS, sizeof flags, &flags, NULL);
    if (flags & CL_MEM_READ_ONLY) call->e.flags |= IST_AUDIT_CONSTANT;
    call->e.object = (uint64_t)(uintptr_t)object;
    call->e.offset = offset;
    call->e.bytes = bytes;
    call->e.host = (uint64_t)(uintptr_t)host;
    call->e.hash = one_piece && host;
}

cl_mem layer_whole(cl_mem object, size_t *offset) {
    cl_mem whole = NULL;
    size_t origin = 0;
    layer_next->clGetMemObjectInfo(object, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof whole, &whole, NULL);
    if (!whole) return object;
    layer_next->clGetMemObjectInfo(object, CL_MEM_OFFSET, sizeof origin, &origin, NULL);
    *offset += origin;
    return whole;
}

uint32_t layer_shape(const size_t *origin, const size_t *region, size_t row, size_t slice) {
    const size_t numbers[] = {origin[0], origin[1], origin[2], region[0], region[1], region[2], row, slice};
    uint64_t hash = 14695981039346656037u;
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        hash = (hash ^ numbers[k]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return (uint32_t)(hash % (IST_AUDIT_NO_SHAPE - 1)) + 1;
}

/* ---- buffers ---- */

/* A part of a buffer is a range of the whole. */
static void set_buffer(layer_call *call, cl_mem buffer, size_t offset, size_t bytes, const void *host, bool one_piece) {
    set_object(call, buffer, offset, bytes, host, one_piece);
    call->e.object = (uint64_t)(uintptr_t)layer_whole(buffer, &offset);
    call->e.offset = offset;
}

static cl_int CL_API_CALL wrap_clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                                   size_t offset, size_t size, void *ptr, cl_uint n,
                                                   const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(READ, "clEnqueueReadBuffer");
    set_buffer(&c, buffer, offset, size, ptr, true);
    layer_before(&c, queue, BLOCKING(blocking), n, list);
    cl_int rc = layer_next->clEnqueueReadBuffer(queue, buffer, blocking, offset, size, ptr, n, list, event);
    return layer_after(&c, queue, rc, event);
}

static cl_int CL_API_CALL wrap_clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                                    size_t offset, size_t size, const void *ptr, cl_uint n,
                                                    const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(WRITE, "clEnqueueWriteBuffer");
    set_buffer(&c, buffer, offset, size, ptr, true);
    layer_before(&c, queue, BLOCKING(blocking), n, list);
    cl_int rc = layer_next->clEnqueueWriteBuffer(queue, buffer, blocking, offset, size, ptr, n, list, event);
    return layer_after(&c, queue, rc, event);
}

/* First byte of a rectangle, and its shape: 0 when it lies in one piece. */
static size_t rect_start(const size_t *origin, const size_t *region, size_t row, size_t slice, uint32_t *shape) {
    if (!row) row = region[0];
    if (!slice) slice = row * region[1];
    bool one = (row == region[0] || region[1] * region[2] == 1) && (slice == row * region[1] || region[2] == 1);
    *shape = one ? 0 : layer_shape(origin, region, row, slice);
    return origin[0] + origin[1] * row + origin[2] * slice;
}

/* Where a rectangle lies in a buffer, or in the host's memory. */
typedef struct rect_place {
    const size_t *origin;
    size_t row, slice;
} rect_place;

static void set_rect(layer_call *call, cl_mem buffer, rect_place at, const size_t *region, rect_place host,
                     const void *ptr) {
    uint32_t shape = 0, host_shape = 0;
    if (!at.origin || !host.origin || !region || !ptr) return;
    size_t offset = rect_start(at.origin, region, at.row, at.slice, &shape);
    const char *from = (const char *)ptr + rect_start(host.origin, region, host.row, host.slice, &host_shape);
    set_buffer(call, buffer, offset, region[0] * region[1] * region[2], from, !host_shape);
    call->e.shape = shape;
}

static cl_int CL_API_CALL wrap_clEnqueueReadBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                                       const size_t *origin, const size_t *host_origin,
                                                       const size_t *region, size_t row, size_t slice, size_t host_row,
                                                       size_t host_slice, void *ptr, cl_uint n, const cl_event *list,
                                                       cl_event *event) {
    layer_call c = LAYER_CALL(READ, "clEnqueueReadBufferRect");
    set_rect(&c, buffer, (rect_place){origin, row, slice}, region, (rect_place){host_origin, host_row, host_slice},
             ptr);
    layer_before(&c, queue, BLOCKING(blocking), n, list);
    cl_int rc = layer_next->clEnqueueReadBufferRect(queue, buffer, blocking, origin, host_origin, region, row, slice,
                                                    host_row, host_slice, ptr, n, list, event);
    return layer_after(&c, queue, rc, event);
}

static cl_int CL_API_CALL wrap_clEnqueueWriteBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                                        const size_t *origin, const size_t *host_origin,
                                                        const size_t *region, size_t row, size_t slice, size_t host_row,
                                                        size_t host_slice, const void *ptr, cl_uint n,
                                                        const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(WRITE, "clEnqueueWriteBufferRect");
    set_rect(&c, buffer, (rect_place){origin, row, slice}, region, (rect_place){host_origin, host_row, host_slice},
             ptr);
    layer_before(&c, queue, BLOCKING(blocking), n, list);
    cl_int rc = layer_next->clEnqueueWriteBufferRect(queue, buffer, blocking, origin, host_origin, region, row, slice,
                                                     host_row, host_slice, ptr, n, list, event);
    return layer_after(&c, queue, rc, event);
}

/* Commands on the device: the object is what is written to. */
static void set_device_command(layer_call *c, cl_command_queue queue, const void *object, size_t bytes) {
    c->e.queue = (uint64_t)(uintptr_t)queue;
    c->e.object = (uint64_t)(uintptr_t)object;
    c->e.bytes = bytes;
}

static bool lies_with_host(cl_mem object) {
    cl_mem_flags flags = 0;
    layer_next->clGetMemObjectInfo(object, CL_MEM_FLAGS, sizeof flags, &flags, NULL);
    return flags & (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR);
}

/* A copy between the host's memory and the device's crosses; what the program has besides to reach that memory is
 * for ist_audit_settle_copies to see. */
static void set_copy(layer_call *c, cl_command_queue queue, cl_mem src, cl_mem dst, size_t bytes) {
    bool from = lies_with_host(src), to = lies_with_host(dst);
    size_t ignored = 0;
    set_device_command(c, queue, layer_whole(dst, &ignored), bytes);
    if (from == to) return;
    c->e.flags |= to ? IST_AUDIT_FROM_DEVICE : IST_AUDIT_TO_DEVICE;
    c->e.host = (uint64_t)(uintptr_t)layer_whole(to ? dst : src, &ignored);
}

static size_t volume(const size_t *region) {
    return region ? region[0] * region[1] * region[2] : 0;
}

static cl_int CL_API_CALL wrap_clEnqueueCopyBuffer(cl_command_queue queue, cl_mem src, cl_mem dst, size_t src_offset,
                                                   size_t dst_offset, size_t size, cl_uint n, const cl_event *list,
                                                   cl_event *event) {
    layer_call c = LAYER_CALL(COPY, "clEnqueueCopyBuffer");
    set_copy(&c, queue, src, dst, size);
    return layer_after(&c, queue,
                       layer_next->clEnqueueCopyBuffer(queue, src, dst, src_offset, dst_offset, size, n, list, event),
                       event);
}

static cl_int CL_API_CALL wrap_clEnqueueCopyBufferRect(cl_command_queue queue, cl_mem src, cl_mem dst,
                                                       const size_t *src_origin, const size_t *dst_origin,
                                                       const size_t *region, size_t src_row, size_t src_slice,
                                                       size_t dst_row, size_t dst_slice, cl_uint n,
                                                       const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(COPY, "clEnqueueCopyBufferRect");
    set_copy(&c, queue, src, dst, volume(region));
    cl_int rc = layer_next->clEnqueueCopyBufferRect(queue, src, dst, src_origin, dst_origin, region, src_row, src_slice,
                                                    dst_row, dst_slice, n, list, event);
    return layer_after(&c, queue, rc, event);
}

static cl_int CL_API_CALL wrap_clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void *pattern,
                                                   size_t pattern_size, size_t offset, size_t size, cl_uint n,
                                                   const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(FILL, "clEnqueueFillBuffer");
    size_t at = offset;
    set_device_command(&c, queue, layer_whole(buffer, &at), size);
    c.e.offset = at;
    cl_int rc = layer_next->clEnqueueFillBuffer(queue, buffer, pattern, pattern_size, offset, size, n, list, event);
    return layer_after(&c, queue, rc, event);
}

/* ---- images ---- */

static size_t pixel_bytes(cl_mem image) {
    size_t bytes = 0;
    layer_next->clGetImageInfo(image, CL_IMAGE_ELEMENT_SIZE, sizeof bytes, &bytes, NULL);
    return bytes;
}

void layer_set_box(layer_call *c, cl_mem image, const size_t *origin, const size_t *region) {
    size_t offset = 0;
    cl_mem whole = layer_whole(image, &offset);
    c->e.object = (uint64_t)(uintptr_t)whole;
    c->e.bytes = volume(region) * pixel_bytes(image);
    c->e.shape = whole == image && origin && region ? layer_shape(origin, region, 0, 0) : IST_AUDIT_NO_SHAPE;
}

/* The rectangle in host memory; one piece when rows follow each other. */
static void set_image(layer_call *c, cl_mem image, const size_t *origin, const size_t *region, size_t row, size_t slice,
                      const void *ptr) {
    if (!region) return;
    size_t width = region[0] * pixel_bytes(image);
    bool one = (!row || row == width) && (!slice || slice == width * region[1] || region[2] == 1);
    set_object(c, image, 0, 0, ptr, one);
    layer_set_box(c, image, origin, region);
}

static cl_int CL_API_CALL wrap_clEnqueueReadImage(cl_command_queue queue, cl_mem image, cl_bool blocking,
                                                  const size_t *origin, const size_t *region, size_t row, size_t slice,
                                                  void *ptr, cl_uint n, const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(READ, "clEnqueueReadImage");
    set_image(&c, image, origin, region, row, slice, ptr);
    layer_before(&c, queue, BLOCKING(blocking), n, list);
    cl_int rc = layer_next->clEnqueueReadImage(queue, image, blocking, origin, region, row, slice, ptr, n, list, event);
    return layer_after(&c, queue, rc, event);
}

static cl_int CL_API_CALL wrap_clEnqueueWriteImage(cl_command_queue queue, cl_mem image, cl_bool blocking,
                                                   const size_t *origin, const size_t *region, size_t row, size_t slice,
                                                   const void *ptr, cl_uint n, const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(WRITE, "clEnqueueWriteImage");
    set_image(&c, image, origin, region, row, slice, ptr);
    layer_before(&c, queue, BLOCKING(blocking), n, list);
    cl_int rc =
        layer_next->clEnqueueWriteImage(queue, image, blocking, origin, region, row, slice, ptr, n, list, event);
    return layer_after(&c, queue, rc, event);
}

static cl_int CL_API_CALL wrap_clEnqueueCopyImage(cl_command_queue queue, cl_mem src, cl_mem dst, const size_t *from,
                                                  const size_t *to, const size_t *region, cl_uint n,
                                                  const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(COPY, "clEnqueueCopyImage");
    set_copy(&c, queue, src, dst, volume(region) * pixel_bytes(dst));
    return layer_after(&c, queue, layer_next->clEnqueueCopyImage(queue, src, dst, from, to, region, n, list, event),
                       event);
}

static cl_int CL_API_CALL wrap_clEnqueueCopyImageToBuffer(cl_command_queue queue, cl_mem src, cl_mem dst,
                                                          const size_t *from, const size_t *region, size_t offset,
                                                          cl_uint n, const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(COPY, "clEnqueueCopyImageToBuffer");
    set_copy(&c, queue, src, dst, volume(region) * pixel_bytes(src));
    return layer_after(&c, queue,
                       layer_next->clEnqueueCopyImageToBuffer(queue, src, dst, from, region, offset, n, list, event),
                       event);
}

static cl_int CL_API_CALL wrap_clEnqueueCopyBufferToImage(cl_command_queue queue, cl_mem src, cl_mem dst, size_t offset,
                                                          const size_t *to, const size_t *region, cl_uint n,
                                                          const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(COPY, "clEnqueueCopyBufferToImage");
    set_copy(&c, queue, src, dst, volume(region) * pixel_bytes(dst));
    return layer_after(
        &c, queue, layer_next->clEnqueueCopyBufferToImage(queue, src, dst, offset, to, region, n, list, event), event);
}

static cl_int CL_API_CALL wrap_clEnqueueFillImage(cl_command_queue queue, cl_mem image, const void *colour,
                                                  const size_t *origin, const size_t *region, cl_uint n,
                                                  const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(FILL, "clEnqueueFillImage");
    c.e.queue = (uint64_t)(uintptr_t)queue;
    layer_set_box(&c, image, origin, region);
    return layer_after(&c, queue, layer_next->clEnqueueFillImage(queue, image, colour, origin, region, n, list, event),
                       event);
}

/* ---- shared virtual memory, migration ---- */

static cl_int CL_API_CALL wrap_clEnqueueSVMMemcpy(cl_command_queue queue, cl_bool blocking, void *dst, const void *src,
                                                  size_t size, cl_uint n, const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(COPY, "clEnqueueSVMMemcpy");
    bool up = layer_svm_has(dst) && !layer_svm_has(src), down = !layer_svm_has(dst) && layer_svm_has(src);
    set_device_command(&c, queue, down ? src : dst, size);
    if (up || down) {
        c.e.op = up ? IST_AUDIT_WRITE : IST_AUDIT_READ;
        c.e.host = (uint64_t)(uintptr_t)(up ? src : dst);
        c.e.hash = 1;
        c.e.shape = IST_AUDIT_NO_SHAPE; /* the host may look into it without a call */
    }
    layer_before(&c, queue, BLOCKING(blocking), n, list);
    return layer_after(&c, queue, layer_next->clEnqueueSVMMemcpy(queue, blocking, dst, src, size, n, list, event),
                       event);
}

static cl_int CL_API_CALL wrap_clEnqueueSVMMemFill(cl_command_queue queue, void *svm, const void *pattern,
                                                   size_t pattern_size, size_t size, cl_uint n, const cl_event *list,
                                                   cl_event *event) {
    layer_call c = LAYER_CALL(FILL, "clEnqueueSVMMemFill");
    set_device_command(&c, queue, svm, size);
    return layer_after(&c, queue,
                       layer_next->clEnqueueSVMMemFill(queue, svm, pattern, pattern_size, size, n, list, event), event);
}

/* To the host: contents come down. Where memory goes that migrates to a device is not known. */
static uint16_t migrates_down(cl_mem_migration_flags flags) {
    bool down = (flags & CL_MIGRATE_MEM_OBJECT_HOST) && !(flags & CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED);
    return down ? IST_AUDIT_FROM_DEVICE : 0;
}

static cl_int CL_API_CALL wrap_clEnqueueSVMMigrateMem(cl_command_queue queue, cl_uint count, const void **pointers,
                                                      const size_t *sizes, cl_mem_migration_flags flags, cl_uint n,
                                                      const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(MIGRATE, "clEnqueueSVMMigrateMem");
    set_device_command(&c, queue, count && pointers ? pointers[0] : NULL, 0);
    for (cl_uint k = 0; sizes && k < count; k++) c.e.bytes += sizes[k];
    c.e.flags |= migrates_down(flags);
    cl_int rc = layer_next->clEnqueueSVMMigrateMem(queue, count, pointers, sizes, flags, n, list, event);
    return layer_after(&c, queue, rc, event);
}

static cl_int CL_API_CALL wrap_clEnqueueMigrateMemObjects(cl_command_queue queue, cl_uint count, const cl_mem *objects,
                                                          cl_mem_migration_flags flags, cl_uint n, const cl_event *list,
                                                          cl_event *event) {
    layer_call c = LAYER_CALL(MIGRATE, "clEnqueueMigrateMemObjects");
    set_device_command(&c, queue, count && objects ? objects[0] : NULL, 0);
    for (cl_uint k = 0; objects && k < count; k++) {
        size_t bytes = 0;
        layer_next->clGetMemObjectInfo(objects[k], CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
        c.e.bytes += bytes;
    }
    c.e.flags |= migrates_down(flags);
    return layer_after(&c, queue, layer_next->clEnqueueMigrateMemObjects(queue, count, objects, flags, n, list, event),
                       event);
}

/* ---- kernels ---- */

static cl_int CL_API_CALL wrap_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims,
                                                      const size_t *offset, const size_t *global, const size_t *local,
                                                      cl_uint n, const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(LAUNCH, "clEnqueueNDRangeKernel");
    set_device_command(&c, queue, kernel, 0);
    cl_int rc = layer_next->clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, n, list, event);
    if (rc == CL_SUCCESS) {
        c.e.label = layer_kernel_label(kernel);
        layer_set_untaken(&c, kernel);
    }
    return layer_after(&c, queue, rc, event);
}

static cl_int CL_API_CALL wrap_clEnqueueTask(cl_command_queue queue, cl_kernel kernel, cl_uint n, const cl_event *list,
                                             cl_event *event) {
    layer_call c = LAYER_CALL(LAUNCH, "clEnqueueTask");
    set_device_command(&c, queue, kernel, 0);
    cl_int rc = layer_next->clEnqueueTask(queue, kernel, n, list, event);
    if (rc == CL_SUCCESS) {
        c.e.label = layer_kernel_label(kernel);
        layer_set_untaken(&c, kernel);
    }
    return layer_after(&c, queue, rc, event);
}

void layer_wrap_transfers(layer_table *t) {
    LAYER_WRAP(t, clEnqueueReadBuffer);
    LAYER_WRAP(t, clEnqueueWriteBuffer);
    LAYER_WRAP(t, clEnqueueReadBufferRect);
    LAYER_WRAP(t, clEnqueueWriteBufferRect);
    LAYER_WRAP(t, clEnqueueCopyBuffer);
    LAYER_WRAP(t, clEnqueueCopyBufferRect);
    LAYER_WRAP(t, clEnqueueFillBuffer);
    LAYER_WRAP(t, clEnqueueReadImage);
    LAYER_WRAP(t, clEnqueueWriteImage);
    LAYER_WRAP(t, clEnqueueCopyImage);
    LAYER_WRAP(t, clEnqueueCopyImageToBuffer);
    LAYER_WRAP(t, clEnqueueCopyBufferToImage);
    LAYER_WRAP(t, clEnqueueFillImage);
    LAYER_WRAP(t, clEnqueueSVMMemcpy);
    LAYER_WRAP(t, clEnqueueSVMMemFill);
    LAYER_WRAP(t, clEnqueueSVMMigrateMem);
    LAYER_WRAP(t, clEnqueueMigrateMemObjects);
    LAYER_WRAP(t, clEnqueueNDRangeKernel);
    LAYER_WRAP(t, clEnqueueTask);
}
