/* Calls that wait or ask, and markers. */
#include "layer.h"

static void waited(layer_call *c, layer_done done) {
    c->e.bytes = done.bytes;
    c->e.offset = layer_position(done.result);
    c->e.wait_ns = layer_now() - c->e.start_ns;
    layer_record(c);
}

static cl_int CL_API_CALL wrap_clFinish(cl_command_queue queue) {
    layer_look_at_uploads();
    layer_call c = LAYER_CALL(WAIT, "clFinish");
    cl_int rc = layer_next->clFinish(queue);
    c.e.queue = (uint64_t)(uintptr_t)queue;
    c.e.flags = IST_AUDIT_WHOLE_QUEUE;
    if (rc == CL_SUCCESS) waited(&c, layer_queue_done(queue));
    return rc;
}

static cl_int CL_API_CALL wrap_clFlush(cl_command_queue queue) {
    layer_call c = LAYER_CALL(FLUSH, "clFlush");
    cl_int rc = layer_next->clFlush(queue);
    c.e.queue = (uint64_t)(uintptr_t)queue;
    if (rc == CL_SUCCESS) layer_record(&c);
    return rc;
}

static cl_int CL_API_CALL wrap_clWaitForEvents(cl_uint count, const cl_event *list) {
    layer_look_at_uploads();
    layer_call c = LAYER_CALL(WAIT, "clWaitForEvents");
    cl_int rc = layer_next->clWaitForEvents(count, list);
    layer_done all = {0};
    for (cl_uint k = 0; rc == CL_SUCCESS && k < count; k++) {
        cl_command_queue queue;
        bool whole;
        layer_done done = layer_event_done(list[k], &queue, &whole);
        done.bytes += all.bytes;
        if (done.number >= all.number)
            all = done;
        else
            all.bytes = done.bytes;
        if (queue) c.e.queue = (uint64_t)(uintptr_t)queue;
        if (whole) c.e.flags = IST_AUDIT_WHOLE_QUEUE;
    }
    c.e.object = count && list ? (uint64_t)(uintptr_t)list[0] : 0;
    if (rc == CL_SUCCESS) waited(&c, all);
    return rc;
}

static cl_int CL_API_CALL wrap_clGetEventInfo(cl_event event, cl_event_info name, size_t size, void *value,
                                              size_t *size_ret) {
    cl_int rc;
    if (name != CL_EVENT_COMMAND_EXECUTION_STATUS || !value)
        return layer_next->clGetEventInfo(event, name, size, value, size_ret);
    layer_look_at_uploads();
    layer_call c = LAYER_CALL(POLL, "clGetEventInfo");
    rc = layer_next->clGetEventInfo(event, name, size, value, size_ret);
    if (rc != CL_SUCCESS) return rc;
    c.e.object = (uint64_t)(uintptr_t)event;
    layer_record_poll(&c);
    if (*(const cl_int *)value == CL_COMPLETE) {
        cl_command_queue queue;
        bool whole;
        layer_event_done(event, &queue, &whole);
    }
    return rc;
}

static cl_int CL_API_CALL wrap_clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint n, const cl_event *list,
                                                           cl_event *event) {
    cl_int rc = layer_next->clEnqueueMarkerWithWaitList(queue, n, list, event);
    if (rc == CL_SUCCESS) layer_note_command(queue, event ? *event : NULL);
    return rc;
}

static cl_int CL_API_CALL wrap_clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint n, const cl_event *list,
                                                            cl_event *event) {
    cl_int rc = layer_next->clEnqueueBarrierWithWaitList(queue, n, list, event);
    if (rc == CL_SUCCESS) layer_note_command(queue, event ? *event : NULL);
    return rc;
}

void layer_wrap_waits(layer_table *t) {
    LAYER_WRAP(t, clFinish);
    LAYER_WRAP(t, clFlush);
    LAYER_WRAP(t, clWaitForEvents);
    LAYER_WRAP(t, clGetEventInfo);
    LAYER_WRAP(t, clEnqueueMarkerWithWaitList);
    LAYER_WRAP(t, clEnqueueBarrierWithWaitList);
}
