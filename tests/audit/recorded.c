/* Kernels in a command buffer, whose functions come by name; where the platform has none, one by one. The host waits
 * between two of them. */
#include "common.h"

typedef void *CL_API_CALL create_function(cl_uint, const cl_command_queue *, const cl_ulong *, cl_int *);
typedef cl_int CL_API_CALL kernel_function(void *, cl_command_queue, const cl_ulong *, cl_kernel, cl_uint, const size_t *,
                                           const size_t *, const size_t *, cl_uint, const cl_uint *, cl_uint *, void **);
typedef cl_int CL_API_CALL buffer_function(void *);
typedef cl_int CL_API_CALL enqueue_function(cl_uint, cl_command_queue *, void *, cl_uint, const cl_event *, cl_event *);

static void *by_name(bench *s, const char *name) {
    return clGetExtensionFunctionAddressForPlatform(s->platform, name);
}

int main(void) {
    bench *s = open_bench();
    cl_command_queue q = s->queue;
    cl_int code;
    size_t global = N;
    create_function *create = (create_function *)by_name(s, "clCreateCommandBufferKHR");
    kernel_function *add = (kernel_function *)by_name(s, "clCommandNDRangeKernelKHR");
    buffer_function *finalize = (buffer_function *)by_name(s, "clFinalizeCommandBufferKHR");
    buffer_function *release = (buffer_function *)by_name(s, "clReleaseCommandBufferKHR");
    enqueue_function *enqueue = (enqueue_function *)by_name(s, "clEnqueueCommandBufferKHR");
    void *list = create && add && finalize && release && enqueue ? create(1, &q, NULL, &code) : NULL;
    if (list) {
        for (int k = 0; k < 2; k++)
            check(add(list, NULL, NULL, s->add, 1, NULL, &global, NULL, 0, NULL, NULL, NULL), "command");
        check(finalize(list), "finalize");
    }
    for (int pass = 0; pass < PASSES; pass++) {
        fill(s, pass);
        check(clEnqueueWriteBuffer(q, s->a, CL_FALSE, 0, sizeof s->host, s->host, 0, NULL, NULL), "write");
        if (list)
            check(enqueue(0, NULL, list, 0, NULL, NULL), "enqueue");
        else
            run(s, s->add);
        check(clFinish(q), "finish"); /* FAULT wait_mid_frame */
        if (list)
            check(enqueue(0, NULL, list, 0, NULL, NULL), "enqueue");
        else
            run(s, s->add);
        check(clEnqueueReadBuffer(q, s->b, CL_TRUE, 0, sizeof s->result, s->result, 0, NULL, NULL), "read");
    }
    printf("%g\n", (double)s->result[7]);
    if (list) check(release(list), "release");
    close_bench(s);
    return 0;
}
