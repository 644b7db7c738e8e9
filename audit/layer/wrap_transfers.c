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
    bool hashed = call->e.hash == 1; /* asked for by the wrapper: contents lie in one piece */
    if (call->e.op != IST_AUDIT_LAUNCH) call->e.move_ns = layer_now() - call->e.start_ns - call->e.wait_ns;
    call->e.hash = 0;
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

/* ---- buffers ---- */

/* A part of a buffer is a range of the whole. */
static void set_buffer(layer_call *call, cl_mem buffer, size_t offset, size_t bytes, const void *host, bool one_piece) {
    cl_mem whole = NULL;
    size_t origin = 0;
    set_object(call, buffer, offset, bytes, host, one_piece);
    layer_next->clGetMemObjectInfo(buffer, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof whole, &whole, NULL);
    if (!whole) return;
    layer_next->clGetMemObjectInfo(buffer, CL_MEM_OFFSET, sizeof origin, &origin, NULL);
    call->e.object = (uint64_t)(uintptr_t)whole;
    call->e.offset += origin;
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

/* First byte of the host's rectangle, and whether it lies in one piece. */
static const void *rect_start(const void *ptr, const size_t *origin, const size_t *region, size_t row, size_t slice,
                              bool *one_piece) {
    if (!row) row = region[0];
    if (!slice) slice = row * region[1];
    *one_piece = (row == region[0] || region[1] * region[2] == 1) && (slice == row * region[1] || region[2] == 1);
    return (const char *)ptr + origin[0] + origin[1] * row + origin[2] * slice;
}

static cl_int CL_API_CALL wrap_clEnqueueReadBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                                       const size_t *origin, const size_t *host_origin,
                                                       const size_t *region, size_t row, size_t slice, size_t host_row,
                                                       size_t host_slice, void *ptr, cl_uint n, const cl_event *list,
                                                       cl_event *event) {
    layer_call c = LAYER_CALL(READ, "clEnqueueReadBufferRect");
    bool known = origin && host_origin && region && ptr, one = false;
    const void *host = known ? rect_start(ptr, host_origin, region, host_row, host_slice, &one) : NULL;
    if (known) set_buffer(&c, buffer, origin[0], region[0] * region[1] * region[2], host, one);
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
    bool known = origin && host_origin && region && ptr, one = false;
    const void *host = known ? rect_start(ptr, host_origin, region, host_row, host_slice, &one) : NULL;
    if (known) set_buffer(&c, buffer, origin[0], region[0] * region[1] * region[2], host, one);
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
    set_device_command(c, queue, dst, bytes);
    if (from == to) return;
    c->e.flags |= to ? IST_AUDIT_FROM_DEVICE : IST_AUDIT_TO_DEVICE;
    c->e.host = (uint64_t)(uintptr_t)(to ? dst : src);
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
    set_device_command(&c, queue, buffer, size);
    cl_int rc = layer_next->clEnqueueFillBuffer(queue, buffer, pattern, pattern_size, offset, size, n, list, event);
    return layer_after(&c, queue, rc, event);
}

/* ---- images ---- */

static size_t pixel_bytes(cl_mem image) {
    size_t bytes = 0;
    layer_next->clGetImageInfo(image, CL_IMAGE_ELEMENT_SIZE, sizeof bytes, &bytes, NULL);
    return bytes;
}

/* The rectangle in host memory; one piece when rows follow each other. */
static void set_image(layer_call *c, cl_mem image, const size_t *region, size_t row, size_t slice, const void *ptr) {
    if (!region) return;
    size_t pixel = pixel_bytes(image), width = region[0] * pixel;
    bool one = (!row || row == width) && (!slice || slice == width * region[1] || region[2] == 1);
    set_object(c, image, 0, volume(region) * pixel, ptr, one);
}

static cl_int CL_API_CALL wrap_clEnqueueReadImage(cl_command_queue queue, cl_mem image, cl_bool blocking,
                                                  const size_t *origin, const size_t *region, size_t row, size_t slice,
                                                  void *ptr, cl_uint n, const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(READ, "clEnqueueReadImage");
    set_image(&c, image, region, row, slice, ptr);
    layer_before(&c, queue, BLOCKING(blocking), n, list);
    cl_int rc = layer_next->clEnqueueReadImage(queue, image, blocking, origin, region, row, slice, ptr, n, list, event);
    return layer_after(&c, queue, rc, event);
}

static cl_int CL_API_CALL wrap_clEnqueueWriteImage(cl_command_queue queue, cl_mem image, cl_bool blocking,
                                                   const size_t *origin, const size_t *region, size_t row, size_t slice,
                                                   const void *ptr, cl_uint n, const cl_event *list, cl_event *event) {
    layer_call c = LAYER_CALL(WRITE, "clEnqueueWriteImage");
    set_image(&c, image, region, row, slice, ptr);
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
    set_device_command(&c, queue, image, volume(region) * pixel_bytes(image));
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
    if (rc == CL_SUCCESS) c.e.label = layer_kernel_label(kernel);
    return layer_after(&c, queue, rc, event);
}

static cl_int CL_API_CALL wrap_clEnqueueTask(cl_command_queue queue, cl_kernel kernel, cl_uint n, const cl_event *list,
                                             cl_event *event) {
    layer_call c = LAYER_CALL(LAUNCH, "clEnqueueTask");
    set_device_command(&c, queue, kernel, 0);
    cl_int rc = layer_next->clEnqueueTask(queue, kernel, n, list, event);
    if (rc == CL_SUCCESS) c.e.label = layer_kernel_label(kernel);
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
