/* As it should be: one write, two kernels, one read, one wait per frame. Nothing is to be found. */
#include "common.h"

int main(void) {
    bench *s = open_bench();
    for (int pass = 0; pass < PASSES; pass++) {
        cl_event done;
        fill(s, pass);
        check(clEnqueueWriteBuffer(s->queue, s->a, CL_FALSE, 0, sizeof s->host, s->host, 0, NULL, NULL), "write");
        run(s, s->add);
        run(s, s->slow);
        check(clEnqueueReadBuffer(s->queue, s->b, CL_FALSE, 0, sizeof s->result, s->result, 0, NULL, &done), "read");
        check(clFlush(s->queue), "flush");
        check(clWaitForEvents(1, &done), "wait");
        clReleaseEvent(done);
    }
    printf("%g\n", (double)s->result[7]);
    close_bench(s);
    return 0;
}
