/* Data that crosses by copies between device buffers and buffers in host memory, which are mapped once and for all. */
#include "common.h"

#include <string.h>

int main(void) {
    bench *s = open_bench();
    const cl_map_flags both = CL_MAP_READ | CL_MAP_WRITE;
    cl_int code;
    cl_mem up = clCreateBuffer(s->context, CL_MEM_ALLOC_HOST_PTR, sizeof s->host, NULL, &code);
    check(code, "up");
    cl_mem down = clCreateBuffer(s->context, CL_MEM_ALLOC_HOST_PTR, sizeof s->host, NULL, &code);
    check(code, "down");
    float *in = clEnqueueMapBuffer(s->queue, up, CL_TRUE, both, 0, sizeof s->host, 0, NULL, NULL, &code);
    check(code, "map");
    float *out = clEnqueueMapBuffer(s->queue, down, CL_TRUE, both, 0, sizeof s->host, 0, NULL, NULL, &code);
    check(code, "map");
    for (int pass = 0; pass < PASSES; pass++) {
        fill(s, pass);
        memcpy(in, s->host, sizeof s->host);
        check(clEnqueueCopyBuffer(s->queue, up, s->a, 0, 0, sizeof s->host, 0, NULL, NULL), "up");
        run(s, s->add);
        check(clEnqueueCopyBuffer(s->queue, s->b, down, 0, 0, sizeof s->host, 0, NULL, NULL), "down");
        check(clFinish(s->queue), "finish");
        memcpy(s->result, out, sizeof s->result);
    }
    check(clEnqueueUnmapMemObject(s->queue, up, in, 0, NULL, NULL), "unmap");
    check(clEnqueueUnmapMemObject(s->queue, down, out, 0, NULL, NULL), "unmap");
    check(clFinish(s->queue), "finish");
    printf("%g\n", (double)s->result[7]);
    clReleaseMemObject(up);
    clReleaseMemObject(down);
    close_bench(s);
    return 0;
}
