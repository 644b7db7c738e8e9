/* Objects made, programs built, frame after frame. */
#include "common.h"

int main(void) {
    bench *s = open_bench();
    static const char *const source =
        "__kernel void add(__global float *o, __global const float *i) { int k = get_global_id(0); o[k] = i[k] + 2; }";
    cl_int code;
    float *shared = aligned_alloc(4096, 4096);
    if (!shared) return 1;
    cl_mem over = clCreateBuffer(s->context, CL_MEM_USE_HOST_PTR, 4096, shared, &code); /* FAULT host_pointer */
    check(code, "over");
    for (int pass = 0; pass < PASSES; pass++) {
        fill(s, pass);
        cl_program program = clCreateProgramWithSource(s->context, 1, (const char **)(size_t)&source, NULL, &code);
        check(clBuildProgram(program, 1, &s->device, "", NULL, NULL), "build"); /* FAULT build_in_frame */
        cl_kernel add = clCreateKernel(program, "add", &code); /* FAULT creation_in_frame */
        check(code, "kernel");
        cl_mem made = clCreateBuffer(s->context, CL_MEM_READ_WRITE, sizeof s->host, NULL, &code); /* FAULT creation_in_frame */
        cl_mem in = clCreateBuffer(s->context, CL_MEM_COPY_HOST_PTR, sizeof s->host, s->host, &code); /* FAULT host_pointer */
        check(code, "buffers");
        check(clSetKernelArg(add, 0, sizeof made, &made), "arg");
        check(clSetKernelArg(add, 1, sizeof in, &in), "arg");
        run(s, add);
        check(clEnqueueReadBuffer(s->queue, made, CL_TRUE, 0, sizeof s->result, s->result, 0, NULL, NULL), "read");
        clReleaseKernel(add);
        clReleaseProgram(program);
        clReleaseMemObject(made);
        clReleaseMemObject(in);
    }
    clReleaseMemObject(over);
    free(shared);
    close_bench(s);
    return 0;
}
