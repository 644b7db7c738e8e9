/* Uploads that are overwritten before a kernel or anybody else takes them: unmaps, writes, boxes of images; and others
 * that look like them. */
#include "common.h"

#include <string.h>

enum { BYTES = sizeof(float) * N, HALF = BYTES / 2, W = 64, H = 32 };

static void *map(bench *s, cl_mem buffer, cl_map_flags flags) {
    cl_int code;
    void *p = clEnqueueMapBuffer(s->queue, buffer, CL_TRUE, flags, 0, BYTES, 0, NULL, NULL, &code); /* FAULT blocking_transfer */
    check(code, "map");
    return p;
}

static void *map_box(bench *s, cl_mem image, const size_t *origin, const size_t *region) {
    cl_int code;
    size_t row;
    void *p = clEnqueueMapImage(s->queue, image, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, origin, region, &row, NULL, 0, NULL, NULL, &code); /* FAULT blocking_transfer */
    check(code, "map");
    memset(p, 1, row);
    return p;
}

static void run_half(bench *s, cl_kernel kernel) {
    size_t global = N / 2;
    check(clEnqueueNDRangeKernel(s->queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL), "launch");
}

int main(void) {
    bench *s = open_bench();
    cl_command_queue q = s->queue;
    cl_int code;
    const cl_image_format format = {CL_RGBA, CL_FLOAT};
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = W, .image_height = H};
    const size_t zero[3] = {0}, below[3] = {0, H / 2, 0}, half[3] = {W, H / 2, 1};
    const size_t column[3] = {W, H, 1}, beside[3] = {W, 0, 0};
    const cl_buffer_region part = {HALF, HALF};
    cl_mem image = clCreateImage(s->context, CL_MEM_READ_WRITE, &format, &desc, NULL, &code);
    check(code, "image");
    cl_mem idle = clCreateBuffer(s->context, CL_MEM_READ_ONLY, BYTES, NULL, &code);
    check(code, "idle");
    cl_mem behind = clCreateSubBuffer(s->a, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &part, &code);
    check(code, "part");
    cl_kernel add_behind = make_kernel(s, "add", s->b, behind);
    for (int pass = 0; pass < PASSES; pass++) {
        clGetExtensionFunctionAddressForPlatform(s->platform, "isthmus_frame");
        fill(s, pass);
        float *p = map(s, s->a, CL_MAP_WRITE);
        memcpy(p, s->host, BYTES);
        check(clEnqueueUnmapMemObject(q, s->a, p, 0, NULL, NULL), "unmap"); /* FAULT overwritten_upload */
        p = map(s, s->a, CL_MAP_WRITE_INVALIDATE_REGION);
        memcpy(p, s->host + 1, BYTES - sizeof *p);
        check(clEnqueueUnmapMemObject(q, s->a, p, 0, NULL, NULL), "unmap"); /* a kernel takes it */
        run(s, s->add);
        check(clEnqueueWriteBuffer(q, behind, CL_FALSE, 0, HALF, s->host, 0, NULL, NULL), "write"); /* FAULT overwritten_upload */
        check(clEnqueueWriteBuffer(q, s->a, CL_FALSE, 4, BYTES - 4, s->host + 1, 0, NULL, NULL), "write"); /* all but one */
        check(clEnqueueWriteBuffer(q, s->a, CL_FALSE, 0, HALF, s->host + 2, 0, NULL, NULL), "write"); /* half of it */
        run(s, s->add);
        check(clEnqueueWriteBuffer(q, behind, CL_FALSE, 0, HALF, s->host + 3, 0, NULL, NULL), "write"); /* taken as itself */
        run_half(s, add_behind);
        check(clEnqueueWriteBuffer(q, s->a, CL_FALSE, 0, BYTES, s->host, 0, NULL, NULL), "write"); /* and as a part */
        run_half(s, add_behind);
        check(clEnqueueWriteBuffer(q, s->a, CL_FALSE, 0, BYTES - 4, s->host + 1, 0, NULL, NULL), "write");
        check(clEnqueueWriteBuffer(q, idle, CL_FALSE, 0, HALF, s->host + 4, 0, NULL, NULL), "write"); /* FAULT overwritten_upload */
        run(s, s->add);
        check(clEnqueueWriteBuffer(q, idle, CL_FALSE, 0, HALF, s->host + 5, 0, NULL, NULL), "write"); /* a copy may take it */
        run(s, s->add);
        p = map_box(s, image, zero, half);
        check(clEnqueueUnmapMemObject(q, image, p, 0, NULL, NULL), "unmap"); /* FAULT overwritten_upload */
        p = map_box(s, image, below, half);
        check(clEnqueueUnmapMemObject(q, image, p, 0, NULL, NULL), "unmap"); /* the other half */
        check(clEnqueueWriteImage(q, image, CL_FALSE, zero, half, 0, 0, s->host + 3, 0, NULL, NULL), "write");
        check(clEnqueueCopyImageToBuffer(q, image, s->b, zero, half, 0, 0, NULL, NULL), "copy");
        run(s, s->add);
        check(clEnqueueWriteBufferRect(q, s->a, CL_FALSE, zero, zero, column, 2 * W, 0, 0, 0, s->host + 4, 0, NULL, NULL), "w"); /* FAULT overwritten_upload */
        check(clEnqueueWriteBufferRect(q, s->a, CL_FALSE, beside, zero, column, 2 * W, 0, 0, 0, s->host + 5, 0, NULL, NULL), "w");
        check(clEnqueueWriteBufferRect(q, s->a, CL_FALSE, zero, zero, column, 2 * W, 0, 0, 0, s->host + 6, 0, NULL, NULL), "w");
        run(s, s->add);
        check(clEnqueueReadBuffer(q, s->b, CL_TRUE, 0, 4096, s->result, 0, NULL, NULL), "read");
    }
    printf("%g\n", (double)s->result[7]);
    clReleaseKernel(add_behind);
    clReleaseMemObject(idle);
    clReleaseMemObject(image);
    clReleaseMemObject(behind);
    close_bench(s);
    return 0;
}
