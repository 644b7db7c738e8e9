/* Two threads, each with a context and a queue of its own, the second out of order. Nothing is to be found. */
#include "common.h"

#include <pthread.h>

static pthread_barrier_t done;

static void *work(void *out_of_order) {
    bench *s = open_bench();
    cl_int code;
    if (out_of_order) {
        clReleaseCommandQueue(s->queue);
        s->queue = clCreateCommandQueue(s->context, s->device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
        if (code != CL_SUCCESS) s->queue = clCreateCommandQueue(s->context, s->device, 0, &code);
        check(code, "queue");
    }
    for (int pass = 0; pass < 4 * PASSES; pass++) {
        cl_event up, ran, down;
        size_t global = N;
        fill(s, pass + (out_of_order ? 1000 : 0));
        check(clEnqueueWriteBuffer(s->queue, s->a, CL_FALSE, 0, sizeof s->host, s->host, 0, NULL, &up), "write");
        check(clEnqueueNDRangeKernel(s->queue, s->add, 1, NULL, &global, NULL, 1, &up, &ran), "add");
        check(clEnqueueReadBuffer(s->queue, s->b, CL_FALSE, 0, sizeof s->result, s->result, 1, &ran, &down), "read");
        check(clWaitForEvents(1, &down), "wait");
        clReleaseEvent(up);
        clReleaseEvent(ran);
        clReleaseEvent(down);
    }
    pthread_barrier_wait(&done); /* some drivers' releases wait for the whole device */
    close_bench(s);
    return NULL;
}

int main(void) {
    pthread_t other;
    int out_of_order = 1;
    bench first = {0};
    choose_device(&first); /* PoCL 3.1 makes its devices at the first question and lets a second thread see half of them */
    if (pthread_barrier_init(&done, NULL, 2)) return 1;
    if (pthread_create(&other, NULL, work, &out_of_order)) return 1;
    work(NULL);
    pthread_join(other, NULL);
    return 0;
}
