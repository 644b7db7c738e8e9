/* Waiting at the wrong time: in a loop, in the middle, twice, by a flag, by asking. */
#include "common.h"

int main(void) {
    bench *s = open_bench();
    cl_command_queue q = s->queue;
    size_t global = N;
    measure(s);
    for (int pass = 0; pass < PASSES; pass++) {
        cl_event asked, done;
        cl_int status = CL_QUEUED;
        fill(s, pass);
        check(clEnqueueWriteBuffer(q, s->a, CL_TRUE, 0, sizeof s->host, s->host, 0, NULL, NULL), "w"); /* FAULT blocking_transfer */
        for (int k = 0; k < 3; k++) {
            run(s, s->add);
            check(clFinish(q), "finish"); /* FAULT wait_in_loop */
        }
        run(s, s->add);
        check(clFinish(q), "finish"); /* FAULT wait_mid_frame */
        for (int k = 1; k < MANY; k++) run(s, s->slow);
        check(clEnqueueNDRangeKernel(q, s->slow, 1, NULL, &global, NULL, 0, NULL, &asked), "slow");
        for (int k = 0; k < 3; k++) check(clFlush(q), "flush"); /* FAULT flush_in_loop */
        while (status > CL_COMPLETE)
            check(clGetEventInfo(asked, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL), "poll"); /* FAULT poll_loop */
        clReleaseEvent(asked);
        check(clEnqueueReadBuffer(q, s->b, CL_FALSE, 0, sizeof s->result, s->result, 0, NULL, &done), "read");
        check(clWaitForEvents(1, &done), "wait");
        clReleaseEvent(done);
        check(clFinish(q), "finish"); /* FAULT redundant_wait */
    }
    close_bench(s);
    return 0;
}
