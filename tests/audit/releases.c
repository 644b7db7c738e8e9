/* Releases a buffer while kernels are at work. Where the driver waits for them, that is to be found; releases of what
 * nothing uses any more are not. */
#include "common.h"

int main(void) {
    bench *s = open_bench();
    cl_command_queue q = s->queue;
    cl_int code;
    cl_mem spare[PASSES];
    measure(s);
    for (int pass = 0; pass < PASSES; pass++) {
        spare[pass] = clCreateBuffer(s->context, CL_MEM_READ_WRITE, sizeof s->host, NULL, &code);
        check(code, "spare");
    }
    for (int pass = 0; pass < PASSES; pass++) {
        fill(s, pass);
        check(clEnqueueWriteBuffer(q, s->a, CL_FALSE, 0, sizeof s->host, s->host, 0, NULL, NULL), "write");
        run(s, s->add);
        for (int k = 0; k < MANY; k++) run(s, s->slow);
        check(clFlush(q), "flush");
        clReleaseMemObject(spare[pass]); /* FAULT release_waits */
        check(clEnqueueReadBuffer(q, s->b, CL_TRUE, 0, sizeof s->result, s->result, 0, NULL, NULL), "read");
    }
    printf("%g\n", (double)s->result[7]);
    close_bench(s);
    return 0;
}
