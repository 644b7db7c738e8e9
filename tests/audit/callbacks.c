/* Learns of the end of a download by a callback, in an out-of-order queue where there is one; what came down goes up
 * again. No call waits. */
#include "common.h"

#include <pthread.h>

enum { BYTES = sizeof(float) * N };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int arrived;

static void CL_CALLBACK note(cl_event event, cl_int status, void *data) {
    (void)event;
    (void)data;
    if (status != CL_COMPLETE) exit(1);
    pthread_mutex_lock(&lock);
    arrived++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

/* Returns when the command of `event`, the `n`th, is done. */
static void sleep_until(cl_event event, int n) {
    check(clSetEventCallback(event, CL_COMPLETE, note, NULL), "callback");
    clReleaseEvent(event);
    pthread_mutex_lock(&lock);
    while (arrived < n) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

int main(void) {
    bench *s = open_bench();
    size_t global = N;
    cl_int code;
    cl_command_queue q = clCreateCommandQueue(s->context, s->device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
    if (code != CL_SUCCESS) q = clCreateCommandQueue(s->context, s->device, 0, &code);
    check(code, "queue");
    for (int pass = 0; pass < PASSES; pass++) {
        cl_event up, ran, down, up_again, ran_again, last;
        fill(s, pass);
        check(clEnqueueWriteBuffer(q, s->a, CL_FALSE, 0, BYTES, s->host, 0, NULL, &up), "write");
        check(clEnqueueNDRangeKernel(q, s->add, 1, NULL, &global, NULL, 1, &up, &ran), "add");
        check(clEnqueueReadBuffer(q, s->b, CL_FALSE, 0, BYTES, s->result, 1, &ran, &down), "read"); /* FAULT read_write_chain */
        check(clFlush(q), "flush");
        sleep_until(down, 2 * pass + 1);
        check(clEnqueueWriteBuffer(q, s->a, CL_FALSE, 0, BYTES, s->result, 0, NULL, &up_again), "w"); /* PARTNER */
        check(clEnqueueNDRangeKernel(q, s->add, 1, NULL, &global, NULL, 1, &up_again, &ran_again), "add");
        check(clEnqueueReadBuffer(q, s->b, CL_FALSE, 0, BYTES / 2, s->host, 1, &ran_again, &last), "read");
        check(clFlush(q), "flush");
        sleep_until(last, 2 * pass + 2);
        clReleaseEvent(up);
        clReleaseEvent(ran);
        clReleaseEvent(up_again);
        clReleaseEvent(ran_again);
    }
    printf("%g\n", (double)s->host[7]);
    clReleaseCommandQueue(q);
    close_bench(s);
    return 0;
}
