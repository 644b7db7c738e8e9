/* Values one by one, both ways; and data that is there already. */
#include "common.h"

int main(void) {
    bench *s = open_bench();
    cl_command_queue q = s->queue;
    cl_int code;
    float table[N];
    cl_mem constant = clCreateBuffer(s->context, CL_MEM_READ_ONLY, sizeof table, NULL, &code);
    cl_mem small = clCreateBuffer(s->context, CL_MEM_READ_WRITE, 64, NULL, &code);
    check(code, "clCreateBuffer");
    for (int k = 0; k < N; k++) table[k] = (float)k;
    for (int pass = 0; pass < PASSES; pass++) {
        fill(s, pass);
        check(clEnqueueWriteBuffer(q, constant, CL_FALSE, 0, sizeof table, table, 0, NULL, NULL), "w"); /* FAULT redundant_upload */
        for (int k = 0; k < 4; k++)
            check(clEnqueueWriteBuffer(q, small, CL_FALSE, 4 * (size_t)k, 4, &s->host[k + pass], 0, NULL, NULL), "w"); /* FAULT scalar_write */
        run(s, s->add);
        for (int k = 0; k < 10; k++)
            check(clEnqueueReadBuffer(q, s->b, CL_TRUE, 4 * (size_t)k, 4, &s->result[k], 0, NULL, NULL), "r"); /* FAULT scalar_read */
    }
    clReleaseMemObject(constant);
    clReleaseMemObject(small);
    close_bench(s);
    return 0;
}
