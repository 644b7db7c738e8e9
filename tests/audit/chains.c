/* Data goes down and up again: unchanged, changed by the host between two kernels, and through maps. */
#include "common.h"

enum { BYTES = sizeof(float) * N };

int main(void) {
    bench *s = open_bench();
    cl_command_queue q = s->queue;
    cl_int code;
    for (int pass = 0; pass < PASSES; pass++) {
        fill(s, pass);
        check(clEnqueueWriteBuffer(q, s->a, CL_FALSE, 0, BYTES, s->host, 0, NULL, NULL), "write");
        run(s, s->add);
        check(clEnqueueReadBuffer(q, s->b, CL_TRUE, 0, BYTES, s->result, 0, NULL, NULL), "r"); /* FAULT read_write_chain */
        check(clEnqueueWriteBuffer(q, s->a, CL_FALSE, 0, BYTES, s->result, 0, NULL, NULL), "w"); /* PARTNER */
        run(s, s->add);
        check(clEnqueueReadBuffer(q, s->b, CL_TRUE, 0, BYTES / 2, s->result, 0, NULL, NULL), "r"); /* FAULT host_round_trip */
        for (int k = 0; k < N / 2; k++) s->host[k] = s->result[k] * 2;
        check(clEnqueueWriteBuffer(q, s->a, CL_FALSE, 0, BYTES / 2, s->host, 0, NULL, NULL), "w"); /* PARTNER */
        run(s, s->add);
        float *p = clEnqueueMapBuffer(q, s->b, CL_TRUE, CL_MAP_READ, 0, BYTES / 4, 0, NULL, NULL, &code); /* FAULT read_write_chain */
        check(code, "map");
        float copy[N / 4];
        for (int k = 0; k < N / 4; k++) copy[k] = p[k];
        check(clEnqueueUnmapMemObject(q, s->b, p, 0, NULL, NULL), "unmap");
        check(clEnqueueWriteBuffer(q, s->a, CL_TRUE, 0, BYTES / 4, copy, 0, NULL, NULL), "write"); /* PARTNER */
        run(s, s->add);
        check(clEnqueueReadBuffer(q, s->b, CL_TRUE, 0, BYTES / 8, s->result, 0, NULL, NULL), "read");
    }
    printf("%g\n", (double)s->result[7]);
    close_bench(s);
    return 0;
}
