/* The second in-order queue, for kernels that need nothing of those which the first one runs meanwhile: drivers that
 * run the kernels of one queue one after the other, NVIDIA's for one also those of an out-of-order queue, run those of
 * two side by side. Order between the two comes from events alone, which live for the length of a call. */
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS /* clCreateCommandQueue, as in open.c */
#include "device/state.h"

ist_status ist_lane_open(ist_device *d, ist_error *err) {
    cl_int rc;
    if (d->opening.under_way) {
        d->opening.side = true;
        return IST_OK;
    }
    d->side = clCreateCommandQueue(d->context, d->id, 0, &rc);
    if (rc == CL_SUCCESS) return IST_OK;
    d->side = NULL;
    return ist_fail_cl(err, rc, "clCreateCommandQueue", "second queue of device %s", d->facts.name);
}

void ist_lane_close(ist_device *d) {
    if (d->side) clReleaseCommandQueue(d->side);
    d->side = NULL;
}

ist_status ist_lane_follow_at(ist_site site, ist_device *d, ist_frame_scope scope, ist_lane lane, ist_lane other,
                              ist_error *err) {
    cl_event reached = NULL;
    cl_int rc = clEnqueueMarkerWithWaitList(ist_lane_queue(d, other), 0, NULL, &reached);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clEnqueueMarkerWithWaitList", "device %s", d->facts.name);
    ist_status st = ist_flush_lane(site, d, scope, other, err); /* else `lane` may wait for what never starts */
    if (!st) {
        rc = clEnqueueBarrierWithWaitList(ist_lane_queue(d, lane), 1, &reached, NULL);
        if (rc != CL_SUCCESS) st = ist_fail_cl(err, rc, "clEnqueueBarrierWithWaitList", "device %s", d->facts.name);
    }
    clReleaseEvent(reached);
    return st;
}
