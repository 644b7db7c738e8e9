/* Data moved by rectangles, images and shared virtual memory: the same faults as with plain buffers. */
#include "common.h"

#include <string.h>

enum { W = 64, H = 32, BYTES = W * H * 16 };

static cl_mem make_image(bench *s, cl_mem_flags flags) {
    cl_image_format format = {CL_RGBA, CL_FLOAT};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = W, .image_height = H};
    cl_int code;
    cl_mem image = clCreateImage(s->context, flags, &format, &desc, NULL, &code);
    check(code, "clCreateImage");
    return image;
}

int main(void) {
    bench *s = open_bench();
    cl_command_queue q = s->queue;
    cl_int code;
    const size_t zero[3] = {0, 0, 0}, rect[3] = {W * 16, H, 1}, whole[3] = {W, H, 1}, half[3] = {W, H / 2, 1};
    float *table = malloc(BYTES), *down = malloc(BYTES), *copy = malloc(BYTES), colour[4] = {1, 2, 3, 4};
    cl_mem constant = clCreateBuffer(s->context, CL_MEM_READ_ONLY, BYTES, NULL, &code);
    cl_mem lookup = make_image(s, CL_MEM_READ_ONLY), image = make_image(s, CL_MEM_READ_WRITE);
    float *svm = clSVMAlloc(s->context, CL_MEM_READ_WRITE, BYTES, 0);
    if (!table || !down || !copy || !svm) return 1;
    for (int k = 0; k < BYTES / 4; k++) table[k] = (float)(k % 977);
    for (int pass = 0; pass < PASSES; pass++) {
        fill(s, pass);
        check(clEnqueueWriteBufferRect(q, constant, CL_FALSE, zero, zero, rect, 0, 0, 0, 0, table, 0, NULL, NULL), "w"); /* FAULT redundant_upload */
        check(clEnqueueWriteImage(q, lookup, CL_FALSE, zero, whole, 0, 0, table, 0, NULL, NULL), "w"); /* FAULT redundant_upload */
        check(clEnqueueWriteBuffer(q, s->a, CL_FALSE, 0, BYTES, s->host, 0, NULL, NULL), "w");
        run(s, s->add);
        check(clEnqueueCopyBufferToImage(q, s->b, image, 0, zero, half, 0, NULL, NULL), "copy");
        check(clEnqueueReadImage(q, image, CL_TRUE, zero, half, 0, 0, down, 0, NULL, NULL), "r"); /* FAULT read_write_chain */
        check(clEnqueueWriteImage(q, image, CL_FALSE, zero, half, 0, 0, down, 0, NULL, NULL), "w"); /* PARTNER */
        run(s, s->add);
        check(clEnqueueCopyImageToBuffer(q, image, s->a, zero, half, 0, 0, NULL, NULL), "copy");
        check(clEnqueueReadBufferRect(q, s->a, CL_TRUE, zero, zero, (const size_t[3]){W * 16, H / 4, 1}, 0, 0, 0, 0, copy, 0, NULL, NULL), "r"); /* FAULT read_write_chain */
        check(clEnqueueWriteBufferRect(q, s->b, CL_FALSE, zero, zero, (const size_t[3]){W * 16, H / 4, 1}, 0, 0, 0, 0, copy, 0, NULL, NULL), "w"); /* PARTNER */
        run(s, s->add);
        check(clEnqueueSVMMemcpy(q, CL_TRUE, svm, s->host + pass, BYTES / 2, 0, NULL, NULL), "up"); /* FAULT blocking_transfer */
        check(clEnqueueFillImage(q, image, colour, zero, whole, 0, NULL, NULL), "fill");
        check(clEnqueueFillBuffer(q, s->b, colour, 4, 0, 64, 0, NULL, NULL), "fill");
        check(clEnqueueMigrateMemObjects(q, 1, &image, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL), "down");
        check(clEnqueueMigrateMemObjects(q, 1, &image, 0, 0, NULL, NULL), "migrate");
        run(s, s->add);
        check(clEnqueueSVMMap(q, CL_TRUE, CL_MAP_READ, svm, BYTES / 8, 0, NULL, NULL), "map"); /* FAULT read_write_chain */
        memcpy(copy, svm, BYTES / 8);
        check(clEnqueueSVMUnmap(q, svm, 0, NULL, NULL), "unmap");
        check(clEnqueueWriteBuffer(q, s->a, CL_FALSE, 0, BYTES / 8, copy, 0, NULL, NULL), "w"); /* PARTNER */
        run(s, s->add);
        check(clEnqueueReadBuffer(q, s->b, CL_TRUE, 0, 4096, s->result, 0, NULL, NULL), "read");
    }
    printf("%g\n", (double)s->result[7]);
    clSVMFree(s->context, svm);
    clReleaseMemObject(constant);
    clReleaseMemObject(lookup);
    clReleaseMemObject(image);
    free(table);
    free(down);
    free(copy);
    close_bench(s);
    return 0;
}
