/* Fault injection for one test executable: the n-th OpenCL or allocation call of the library fails, and objects that
 * are created but never released are counted.
 *
 * Included by exactly one source of a test: it defines __wrap_NAME functions, for which the build passes --wrap=NAME.
 * Only calls made from the project's own objects are seen, not those inside a driver, and only those of the
 * thread that armed: the order of what several threads do is another each time. */
#ifndef IST_SUPPORT_FAULTS_H
#define IST_SUPPORT_FAULTS_H

#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FAULT_NAMES 4096

typedef struct faults {
    long at;                        /* the call that fails, counted from 1; 0: none */
    long calls;                     /* calls seen since faults_arm */
    const char *hit;                /* the call that failed, or NULL */
    cl_int code;                    /* the OpenCL code it failed with */
    long objects;                   /* contexts, queues, buffers, programs, kernels, events created less released */
    const char *names[FAULT_NAMES]; /* of the first calls */
    const char *only;               /* call `at` of those of this name fails, in whatever thread; NULL: of all */
    pthread_t thread;
} faults;

static faults fault;

static inline void faults_arm(long at, cl_int code) {
    fault.thread = pthread_self();
    fault.at = at;
    fault.calls = 0;
    fault.hit = NULL;
    fault.only = NULL;
    fault.code = code;
}

/* The calls of one name must not come from two threads at a time. */
static inline void faults_arm_call(const char *call, long at, cl_int code) {
    faults_arm(at, code);
    fault.only = call;
}

static inline int fault_due(const char *call) {
    if (fault.only ? strcmp(fault.only, call) != 0 : !pthread_equal(fault.thread, pthread_self())) return 0;
    if (fault.calls < FAULT_NAMES) fault.names[fault.calls] = call;
    if (++fault.calls != fault.at) return 0;
    fault.hit = call;
    return 1;
}

/* Whether call `at` (from 1) of the recorded run is among the first or last `some` of its name: a loop that repeats the
 * same calls is tried at both ends only. Copy `names` before arming again. */
static inline int fault_worth(const char *const *names, long count, long at, int some) {
    int before = 0, after = 0;
    for (long i = 0; i < count; i++) {
        before += i < at - 1 && names[i] == names[at - 1];
        after += i > at - 1 && names[i] == names[at - 1];
    }
    return before < some || after < some;
}

/* A call that returns its code. */
#define FAULT_CODE(name, args, values, released)                                                                       \
    cl_int __real_##name args;                                                                                         \
    cl_int __wrap_##name args;                                                                                         \
    cl_int __wrap_##name args {                                                                                        \
        if (!(released) && fault_due(#name)) return fault.code;                                                        \
        cl_int rc = __real_##name values;                                                                              \
        if (rc == CL_SUCCESS) fault.objects -= (released);                                                             \
        return rc;                                                                                                     \
    }

/* A call that returns a new object, with its code in the last argument. */
#define FAULT_OBJECT(type, name, args, values)                                                                         \
    type __real_##name args;                                                                                           \
    type __wrap_##name args;                                                                                           \
    type __wrap_##name args {                                                                                          \
        if (fault_due(#name)) {                                                                                        \
            if (rc) *rc = fault.code;                                                                                  \
            return NULL;                                                                                               \
        }                                                                                                              \
        type object = __real_##name values;                                                                            \
        if (object) fault.objects++;                                                                                   \
        return object;                                                                                                 \
    }

/* A call that may return an event in its last argument. */
#define FAULT_EVENT(name, args, values)                                                                                \
    cl_int __real_##name args;                                                                                         \
    cl_int __wrap_##name args;                                                                                         \
    cl_int __wrap_##name args {                                                                                        \
        if (fault_due(#name)) return fault.code;                                                                       \
        cl_int rc = __real_##name values;                                                                              \
        if (rc == CL_SUCCESS && event) fault.objects++;                                                                \
        return rc;                                                                                                     \
    }

FAULT_OBJECT(cl_context, clCreateContext,
             (const cl_context_properties *p, cl_uint n, const cl_device_id *d,
              void(CL_CALLBACK *f)(const char *, const void *, size_t, void *), void *u, cl_int *rc),
             (p, n, d, f, u, rc))
FAULT_OBJECT(cl_command_queue, clCreateCommandQueue,
             (cl_context c, cl_device_id d, cl_command_queue_properties p, cl_int *rc), (c, d, p, rc))
FAULT_OBJECT(cl_mem, clCreateBuffer, (cl_context c, cl_mem_flags f, size_t n, void *h, cl_int *rc), (c, f, n, h, rc))
FAULT_OBJECT(cl_mem, clCreateSubBuffer, (cl_mem m, cl_mem_flags f, cl_buffer_create_type t, const void *r, cl_int *rc),
             (m, f, t, r, rc))
FAULT_OBJECT(cl_program, clCreateProgramWithSource,
             (cl_context c, cl_uint n, const char **s, const size_t *l, cl_int *rc), (c, n, s, l, rc))
FAULT_OBJECT(cl_program, clCreateProgramWithBinary,
             (cl_context c, cl_uint n, const cl_device_id *d, const size_t *l, const unsigned char **b, cl_int *s,
              cl_int *rc),
             (c, n, d, l, b, s, rc))
FAULT_OBJECT(cl_kernel, clCreateKernel, (cl_program p, const char *name, cl_int *rc), (p, name, rc))

FAULT_CODE(clGetPlatformIDs, (cl_uint n, cl_platform_id *p, cl_uint *count), (n, p, count), 0)
FAULT_CODE(clGetDeviceIDs, (cl_platform_id p, cl_device_type t, cl_uint n, cl_device_id *d, cl_uint *count),
           (p, t, n, d, count), 0)
FAULT_CODE(clGetDeviceInfo, (cl_device_id d, cl_device_info w, size_t n, void *v, size_t *r), (d, w, n, v, r), 0)
FAULT_CODE(clBuildProgram,
           (cl_program p, cl_uint n, const cl_device_id *d, const char *o, void(CL_CALLBACK *f)(cl_program, void *),
            void *u),
           (p, n, d, o, f, u), 0)
FAULT_CODE(clSetKernelArg, (cl_kernel k, cl_uint i, size_t n, const void *v), (k, i, n, v), 0)
FAULT_CODE(clFlush, (cl_command_queue q), (q), 0)
FAULT_CODE(clFinish, (cl_command_queue q), (q), 0)
FAULT_CODE(clWaitForEvents, (cl_uint n, const cl_event *e), (n, e), 0)
FAULT_CODE(clRetainContext, (cl_context c), (c), 0)
FAULT_CODE(clRetainCommandQueue, (cl_command_queue q), (q), 0)

FAULT_CODE(clReleaseContext, (cl_context c), (c), 1)
FAULT_CODE(clReleaseCommandQueue, (cl_command_queue q), (q), 1)
FAULT_CODE(clReleaseMemObject, (cl_mem m), (m), 1)
FAULT_CODE(clReleaseProgram, (cl_program p), (p), 1)
FAULT_CODE(clReleaseKernel, (cl_kernel k), (k), 1)
FAULT_CODE(clReleaseEvent, (cl_event e), (e), 1)

FAULT_EVENT(clEnqueueNDRangeKernel,
            (cl_command_queue q, cl_kernel k, cl_uint n, const size_t *o, const size_t *g, const size_t *l, cl_uint w,
             const cl_event *list, cl_event *event),
            (q, k, n, o, g, l, w, list, event))
FAULT_EVENT(clEnqueueWriteBuffer,
            (cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t n, const void *p, cl_uint w,
             const cl_event *list, cl_event *event),
            (q, m, b, o, n, p, w, list, event))
FAULT_EVENT(clEnqueueReadBuffer,
            (cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t n, void *p, cl_uint w, const cl_event *list,
             cl_event *event),
            (q, m, b, o, n, p, w, list, event))
FAULT_EVENT(clEnqueueMarkerWithWaitList, (cl_command_queue q, cl_uint w, const cl_event *list, cl_event *event),
            (q, w, list, event))
FAULT_EVENT(clEnqueueBarrierWithWaitList, (cl_command_queue q, cl_uint w, const cl_event *list, cl_event *event),
            (q, w, list, event))
FAULT_EVENT(clEnqueueCopyBuffer,
            (cl_command_queue q, cl_mem s, cl_mem d, size_t so, size_t o, size_t n, cl_uint w, const cl_event *list,
             cl_event *event),
            (q, s, d, so, o, n, w, list, event))

void *__real_clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool b, cl_map_flags f, size_t o, size_t n, cl_uint w,
                                const cl_event *list, cl_event *event, cl_int *rc);
void *__wrap_clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool b, cl_map_flags f, size_t o, size_t n, cl_uint w,
                                const cl_event *list, cl_event *event, cl_int *rc);
void *__wrap_clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool b, cl_map_flags f, size_t o, size_t n, cl_uint w,
                                const cl_event *list, cl_event *event, cl_int *rc) {
    if (!fault_due("clEnqueueMapBuffer")) return __real_clEnqueueMapBuffer(q, m, b, f, o, n, w, list, event, rc);
    *rc = fault.code;
    return NULL;
}

/* ---- host memory ---- */

#define HOST_MEMORY_FAILS(call) fault_due(call)
#include "host_memory.h"

#endif
