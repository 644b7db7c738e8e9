/* Times of kernels by the device's own clock: a second in-order queue with profiling, used while nothing else runs. */
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS /* clCreateCommandQueue, as in open.c */
#include "device/state.h"
#include "device/timing.h"

#include "base/clock.h"

#include <stdlib.h>

/* Enqueues all of `list` on `queue` with an event each, and waits once. */
static ist_status run_timed(ist_device *device, cl_command_queue queue, const ist_timed_kernel *list, int count,
                            cl_event *events, ist_error *err) {
    for (int i = 0; i < count; i++) {
        const ist_timed_kernel *k = &list[i];
        cl_int rc =
            clEnqueueNDRangeKernel(queue, k->kernel, (cl_uint)k->dims, NULL, k->global, k->local, 0, NULL, &events[i]);
        if (rc != CL_SUCCESS) {
            events[i] = NULL;
            clFinish(queue);
            return ist_fail_cl(err, rc, "clEnqueueNDRangeKernel", "%s, to be timed", k->label);
        }
    }
    ist_ledger_entry wait = ist_ledger_begin(IST_HERE, IST_CROSS_WAIT, 0, "kernel times");
    cl_int rc = clFinish(queue);
    wait.wait_ms = ist_clock_ms() - wait.at_ms;
    ist_ledger_record(device, (ist_frame_scope){0}, &wait);
    return rc == CL_SUCCESS ? IST_OK : ist_fail_cl(err, rc, "clFinish", "%d kernels to be timed", count);
}

static ist_status read_times(const ist_timed_kernel *list, int count, const cl_event *events, double *ms,
                             ist_error *err) {
    for (int i = 0; i < count; i++) {
        cl_ulong start = 0, end = 0;
        cl_int rc = clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_START, sizeof start, &start, NULL);
        if (rc == CL_SUCCESS) rc = clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_END, sizeof end, &end, NULL);
        if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clGetEventProfilingInfo", "%s", list[i].label);
        ms[i] = 1e-6 * (double)(end - start);
    }
    return IST_OK;
}

ist_status ist_time_kernels(ist_device *device, const ist_timed_kernel *list, int count, double *ms, ist_error *err) {
    cl_int rc;
    IST_TRY(ist_finish(device, (ist_frame_scope){0}, "kernel times", err));
    cl_event *events = calloc((size_t)count + 1, sizeof *events);
    if (!events) return ist_fail(err, IST_E_MEMORY, "no memory for the events of %d kernels", count);
    cl_command_queue queue = clCreateCommandQueue(device->context, device->id, CL_QUEUE_PROFILING_ENABLE, &rc);
    ist_status status = rc == CL_SUCCESS ? IST_OK
                                         : ist_fail_cl(err, rc, "clCreateCommandQueue", "to time kernels, device %s",
                                                       device->facts.name);
    if (!status) {
        status = run_timed(device, queue, list, count, events, err);
        if (!status) status = read_times(list, count, events, ms, err);
        clReleaseCommandQueue(queue);
    }
    for (int i = 0; i < count; i++)
        if (events[i]) clReleaseEvent(events[i]);
    free(events);
    return status;
}
