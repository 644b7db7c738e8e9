/* Objects made, programs built, objects released. */
#include "layer.h"

/* A release is worth a record when it takes longer than this. */
static const uint64_t RELEASE_NS = 500000;

static void created(layer_call *c, const void *object) {
    if (!object) return;
    c->e.object = (uint64_t)(uintptr_t)object;
    c->e.move_ns = layer_now() - c->e.start_ns;
    layer_record(c);
}

static void set_memory(layer_call *c, cl_mem_flags flags, size_t bytes, const void *host) {
    c->e.bytes = bytes;
    c->e.host = (uint64_t)(uintptr_t)host;
    if (flags & CL_MEM_READ_ONLY) c->e.flags |= IST_AUDIT_CONSTANT;
    if (flags & CL_MEM_USE_HOST_PTR) c->e.flags |= IST_AUDIT_USE_HOST;
    if (!(flags & CL_MEM_COPY_HOST_PTR) || !host) return;
    c->e.flags |= IST_AUDIT_TO_DEVICE;
    c->e.hash = layer_hash(host, bytes, true);
}

static cl_mem CL_API_CALL wrap_clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host,
                                              cl_int *error) {
    layer_call c = LAYER_CALL(CREATE, "clCreateBuffer");
    cl_mem object = layer_next->clCreateBuffer(context, flags, size, host, error);
    if (object) set_memory(&c, flags, size, host);
    created(&c, object);
    return object;
}

static cl_mem CL_API_CALL wrap_clCreateBufferWithProperties(cl_context context, const cl_mem_properties *properties,
                                                            cl_mem_flags flags, size_t size, void *host,
                                                            cl_int *error) {
    layer_call c = LAYER_CALL(CREATE, "clCreateBufferWithProperties");
    cl_mem object = layer_next->clCreateBufferWithProperties(context, properties, flags, size, host, error);
    if (object) set_memory(&c, flags, size, host);
    created(&c, object);
    return object;
}

static cl_mem CL_API_CALL wrap_clCreateSubBuffer(cl_mem buffer, cl_mem_flags flags, cl_buffer_create_type type,
                                                 const void *info, cl_int *error) {
    cl_mem object = layer_next->clCreateSubBuffer(buffer, flags, type, info, error);
    if (object) layer_note_part(object, buffer);
    return object;
}

/* Bytes on the device; with rows of its own, the host's image is not looked at. */
static void image_created(layer_call *c, cl_mem image, cl_mem_flags flags, const void *host, bool one_piece) {
    size_t bytes = 0, ignored = 0;
    if (!image) return;
    cl_mem whole = layer_whole(image, &ignored);
    if (whole != image) layer_note_part(image, whole);
    layer_next->clGetMemObjectInfo(image, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    set_memory(c, flags, bytes, one_piece ? host : NULL);
    c->e.shape = IST_AUDIT_NO_SHAPE;
    if (host && (flags & CL_MEM_COPY_HOST_PTR)) c->e.flags |= IST_AUDIT_TO_DEVICE;
    created(c, image);
}

static cl_mem CL_API_CALL wrap_clCreateImage(cl_context context, cl_mem_flags flags, const cl_image_format *format,
                                             const cl_image_desc *desc, void *host, cl_int *error) {
    layer_call c = LAYER_CALL(CREATE, "clCreateImage");
    cl_mem image = layer_next->clCreateImage(context, flags, format, desc, host, error);
    image_created(&c, image, flags, host, desc && !desc->image_row_pitch);
    return image;
}

static cl_mem CL_API_CALL wrap_clCreateImageWithProperties(cl_context context, const cl_mem_properties *properties,
                                                           cl_mem_flags flags, const cl_image_format *format,
                                                           const cl_image_desc *desc, void *host, cl_int *error) {
    layer_call c = LAYER_CALL(CREATE, "clCreateImageWithProperties");
    cl_mem image = layer_next->clCreateImageWithProperties(context, properties, flags, format, desc, host, error);
    image_created(&c, image, flags, host, desc && !desc->image_row_pitch);
    return image;
}

static cl_mem CL_API_CALL wrap_clCreateImage2D(cl_context context, cl_mem_flags flags, const cl_image_format *format,
                                               size_t width, size_t height, size_t row, void *host, cl_int *error) {
    layer_call c = LAYER_CALL(CREATE, "clCreateImage2D");
    cl_mem image = layer_next->clCreateImage2D(context, flags, format, width, height, row, host, error);
    image_created(&c, image, flags, host, !row);
    return image;
}

static cl_mem CL_API_CALL wrap_clCreateImage3D(cl_context context, cl_mem_flags flags, const cl_image_format *format,
                                               size_t width, size_t height, size_t depth, size_t row, size_t slice,
                                               void *host, cl_int *error) {
    layer_call c = LAYER_CALL(CREATE, "clCreateImage3D");
    cl_mem image = layer_next->clCreateImage3D(context, flags, format, width, height, depth, row, slice, host, error);
    image_created(&c, image, flags, host, !row && !slice);
    return image;
}

static void *CL_API_CALL wrap_clSVMAlloc(cl_context context, cl_svm_mem_flags flags, size_t size, cl_uint alignment) {
    layer_call c = LAYER_CALL(CREATE, "clSVMAlloc");
    void *svm = layer_next->clSVMAlloc(context, flags, size, alignment);
    if (svm) layer_svm_note(svm, size);
    c.e.bytes = size;
    created(&c, svm);
    return svm;
}

static cl_kernel CL_API_CALL wrap_clCreateKernel(cl_program program, const char *name, cl_int *error) {
    layer_call c = LAYER_CALL(KERNEL, "clCreateKernel");
    cl_kernel kernel = layer_next->clCreateKernel(program, name, error);
    if (kernel) layer_kernel_made(kernel);
    created(&c, kernel);
    return kernel;
}

static cl_context CL_API_CALL
wrap_clCreateContext(const cl_context_properties *properties, cl_uint count, const cl_device_id *devices,
                     void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data, cl_int *error) {
    layer_call c = LAYER_CALL(CONTEXT, "clCreateContext");
    cl_context context = layer_next->clCreateContext(properties, count, devices, notify, data, error);
    created(&c, context);
    return context;
}

static cl_context CL_API_CALL wrap_clCreateContextFromType(const cl_context_properties *properties, cl_device_type type,
                                                           void(CL_CALLBACK *notify)(const char *, const void *, size_t,
                                                                                     void *),
                                                           void *data, cl_int *error) {
    layer_call c = LAYER_CALL(CONTEXT, "clCreateContextFromType");
    cl_context context = layer_next->clCreateContextFromType(properties, type, notify, data, error);
    created(&c, context);
    return context;
}

static cl_command_queue CL_API_CALL wrap_clCreateCommandQueue(cl_context context, cl_device_id device,
                                                              cl_command_queue_properties properties, cl_int *error) {
    layer_call c = LAYER_CALL(CONTEXT, "clCreateCommandQueue");
    cl_command_queue queue = layer_next->clCreateCommandQueue(context, device, properties, error);
    created(&c, queue);
    return queue;
}

static cl_command_queue CL_API_CALL wrap_clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                                            const cl_queue_properties *properties,
                                                                            cl_int *error) {
    layer_call c = LAYER_CALL(CONTEXT, "clCreateCommandQueueWithProperties");
    cl_command_queue queue = layer_next->clCreateCommandQueueWithProperties(context, device, properties, error);
    created(&c, queue);
    return queue;
}

/* ---- builds ---- */

static void built(layer_call *c, const void *program) {
    c->e.object = (uint64_t)(uintptr_t)program;
    c->e.wait_ns = layer_now() - c->e.start_ns;
    layer_record(c);
}

static cl_int CL_API_CALL wrap_clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                                              const char *options, void(CL_CALLBACK *notify)(cl_program, void *),
                                              void *data) {
    layer_call c = LAYER_CALL(BUILD, "clBuildProgram");
    cl_int rc = layer_next->clBuildProgram(program, count, devices, options, notify, data);
    built(&c, program);
    return rc;
}

static cl_int CL_API_CALL wrap_clCompileProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                                                const char *options, cl_uint headers, const cl_program *header_programs,
                                                const char **header_names,
                                                void(CL_CALLBACK *notify)(cl_program, void *), void *data) {
    layer_call c = LAYER_CALL(BUILD, "clCompileProgram");
    cl_int rc = layer_next->clCompileProgram(program, count, devices, options, headers, header_programs, header_names,
                                             notify, data);
    built(&c, program);
    return rc;
}

static cl_program CL_API_CALL wrap_clLinkProgram(cl_context context, cl_uint count, const cl_device_id *devices,
                                                 const char *options, cl_uint programs, const cl_program *inputs,
                                                 void(CL_CALLBACK *notify)(cl_program, void *), void *data,
                                                 cl_int *error) {
    layer_call c = LAYER_CALL(BUILD, "clLinkProgram");
    cl_program program =
        layer_next->clLinkProgram(context, count, devices, options, programs, inputs, notify, data, error);
    built(&c, program);
    return program;
}

/* ---- releases ---- */

static cl_int released(layer_call *c, const void *object, cl_int result) {
    c->e.object = (uint64_t)(uintptr_t)object;
    c->e.wait_ns = layer_now() - c->e.start_ns;
    if (result == CL_SUCCESS && c->e.wait_ns >= RELEASE_NS) layer_record(c);
    return result;
}

static cl_int CL_API_CALL wrap_clReleaseMemObject(cl_mem object) {
    layer_call c = LAYER_CALL(RELEASE, "clReleaseMemObject");
    return released(&c, object, layer_next->clReleaseMemObject(object));
}

static cl_int CL_API_CALL wrap_clReleaseCommandQueue(cl_command_queue queue) {
    layer_call c = LAYER_CALL(RELEASE, "clReleaseCommandQueue");
    return released(&c, queue, layer_next->clReleaseCommandQueue(queue));
}

static cl_int CL_API_CALL wrap_clReleaseContext(cl_context context) {
    layer_call c = LAYER_CALL(RELEASE, "clReleaseContext");
    return released(&c, context, layer_next->clReleaseContext(context));
}

static void CL_API_CALL wrap_clSVMFree(cl_context context, void *svm) {
    layer_call c = LAYER_CALL(RELEASE, "clSVMFree");
    layer_svm_forget(svm);
    layer_next->clSVMFree(context, svm);
    released(&c, svm, CL_SUCCESS);
}

static cl_int CL_API_CALL wrap_clReleaseKernel(cl_kernel kernel) {
    cl_uint references = 0;
    layer_next->clGetKernelInfo(kernel, CL_KERNEL_REFERENCE_COUNT, sizeof references, &references, NULL);
    if (references <= 1) layer_kernel_takes_all(kernel); /* until the handle comes again */
    layer_forget_kernel(kernel);
    return layer_next->clReleaseKernel(kernel);
}

static cl_int CL_API_CALL wrap_clReleaseEvent(cl_event event) {
    cl_uint references = 0;
    layer_next->clGetEventInfo(event, CL_EVENT_REFERENCE_COUNT, sizeof references, &references, NULL);
    if (references == 1) layer_event_released(event);
    return layer_next->clReleaseEvent(event);
}

void layer_wrap_objects(layer_table *t) {
    LAYER_WRAP(t, clCreateBuffer);
    LAYER_WRAP(t, clCreateBufferWithProperties);
    LAYER_WRAP(t, clCreateSubBuffer);
    LAYER_WRAP(t, clCreateImage);
    LAYER_WRAP(t, clCreateImageWithProperties);
    LAYER_WRAP(t, clCreateImage2D);
    LAYER_WRAP(t, clCreateImage3D);
    LAYER_WRAP(t, clSVMAlloc);
    LAYER_WRAP(t, clCreateKernel);
    LAYER_WRAP(t, clCreateContext);
    LAYER_WRAP(t, clCreateContextFromType);
    LAYER_WRAP(t, clCreateCommandQueue);
    LAYER_WRAP(t, clCreateCommandQueueWithProperties);
    LAYER_WRAP(t, clBuildProgram);
    LAYER_WRAP(t, clCompileProgram);
    LAYER_WRAP(t, clLinkProgram);
    LAYER_WRAP(t, clReleaseMemObject);
    LAYER_WRAP(t, clReleaseCommandQueue);
    LAYER_WRAP(t, clReleaseContext);
    LAYER_WRAP(t, clSVMFree);
    LAYER_WRAP(t, clReleaseKernel);
    LAYER_WRAP(t, clReleaseEvent);
}
