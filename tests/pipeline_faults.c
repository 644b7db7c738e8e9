/* Failures injected at every position: each OpenCL call that allocates or enqueues, and each host allocation. The
 * linker sends the library's calls through the wrappers below; the position that fails is counted down. */
#include "support/engines.h"

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static int countdown, host_countdown, host_calls; /* 0: never fail; the wrappers see one thread */

static bool fails(int *counter) {
    return *counter > 0 && --*counter == 0;
}

cl_mem __real_clCreateBuffer(cl_context c, cl_mem_flags f, size_t n, void *p, cl_int *rc);
cl_mem __wrap_clCreateBuffer(cl_context c, cl_mem_flags f, size_t n, void *p, cl_int *rc);
cl_mem __wrap_clCreateBuffer(cl_context c, cl_mem_flags f, size_t n, void *p, cl_int *rc) {
    if (!fails(&countdown)) return __real_clCreateBuffer(c, f, n, p, rc);
    *rc = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return NULL;
}

cl_mem __real_clCreateSubBuffer(cl_mem m, cl_mem_flags f, cl_buffer_create_type t, const void *r, cl_int *rc);
cl_mem __wrap_clCreateSubBuffer(cl_mem m, cl_mem_flags f, cl_buffer_create_type t, const void *r, cl_int *rc);
cl_mem __wrap_clCreateSubBuffer(cl_mem m, cl_mem_flags f, cl_buffer_create_type t, const void *r, cl_int *rc) {
    if (!fails(&countdown)) return __real_clCreateSubBuffer(m, f, t, r, rc);
    *rc = CL_OUT_OF_RESOURCES;
    return NULL;
}

cl_kernel __real_clCreateKernel(cl_program p, const char *name, cl_int *rc);
cl_kernel __wrap_clCreateKernel(cl_program p, const char *name, cl_int *rc);
cl_kernel __wrap_clCreateKernel(cl_program p, const char *name, cl_int *rc) {
    if (!fails(&countdown)) return __real_clCreateKernel(p, name, rc);
    *rc = CL_OUT_OF_HOST_MEMORY;
    return NULL;
}

cl_int __real_clSetKernelArg(cl_kernel k, cl_uint i, size_t n, const void *v);
cl_int __wrap_clSetKernelArg(cl_kernel k, cl_uint i, size_t n, const void *v);
cl_int __wrap_clSetKernelArg(cl_kernel k, cl_uint i, size_t n, const void *v) {
    return fails(&countdown) ? CL_OUT_OF_RESOURCES : __real_clSetKernelArg(k, i, n, v);
}

cl_int __real_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint d, const size_t *o, const size_t *g,
                                     const size_t *l, cl_uint n, const cl_event *w, cl_event *e);
cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint d, const size_t *o, const size_t *g,
                                     const size_t *l, cl_uint n, const cl_event *w, cl_event *e);
cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint d, const size_t *o, const size_t *g,
                                     const size_t *l, cl_uint n, const cl_event *w, cl_event *e) {
    if (fails(&countdown)) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return __real_clEnqueueNDRangeKernel(q, k, d, o, g, l, n, w, e);
}

cl_int __real_clEnqueueWriteBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, const void *p,
                                   cl_uint n, const cl_event *w, cl_event *e);
cl_int __wrap_clEnqueueWriteBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, const void *p,
                                   cl_uint n, const cl_event *w, cl_event *e);
cl_int __wrap_clEnqueueWriteBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, const void *p,
                                   cl_uint n, const cl_event *w, cl_event *e) {
    return fails(&countdown) ? CL_OUT_OF_RESOURCES : __real_clEnqueueWriteBuffer(q, m, b, o, s, p, n, w, e);
}

cl_int __real_clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, void *p, cl_uint n,
                                  const cl_event *w, cl_event *e);
cl_int __wrap_clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, void *p, cl_uint n,
                                  const cl_event *w, cl_event *e);
cl_int __wrap_clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, void *p, cl_uint n,
                                  const cl_event *w, cl_event *e) {
    return fails(&countdown) ? CL_OUT_OF_HOST_MEMORY : __real_clEnqueueReadBuffer(q, m, b, o, s, p, n, w, e);
}

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n) {
    host_calls++;
    return fails(&host_countdown) ? NULL : __real_malloc(n);
}

void *__real_calloc(size_t n, size_t m);
void *__wrap_calloc(size_t n, size_t m);
void *__wrap_calloc(size_t n, size_t m) {
    host_calls++;
    return fails(&host_countdown) ? NULL : __real_calloc(n, m);
}

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n) {
    host_calls++;
    return fails(&host_countdown) ? NULL : __real_realloc(p, n);
}

static ist_config small_config(void) {
    ist_config c = engines_config("n", false);
    c.input_size = 256;
    return c;
}

static void clean_sentence(const ist_error *err, ist_status st, int position) {
    cr_assert_eq(err->code, st, "position %d", position);
    cr_assert_gt(strlen(err->text), 10, "position %d: \"%s\"", position, err->text);
    cr_assert_null(strchr(err->text, '\n'), "position %d: more than one line", position);
}

/* Opens with failure number 1, 1 + step, .. until opening succeeds before the countdown ends. */
static int open_through_failures(int *counter, int step) {
    ist_config c = small_config();
    for (int position = 1;; position += step) {
        ist_engine *e = NULL;
        ist_error err = {0};
        *counter = position;
        ist_status st = ist_open(&c, &e, &err);
        bool reached = *counter == 0;
        *counter = 0;
        if (!reached) {
            cr_assert_eq(st, IST_OK, "%s", err.text);
            ist_close(&e);
            return position;
        }
        if (st == IST_OK) { /* a cache or a probe may do without what it was refused */
            ist_close(&e);
            continue;
        }
        cr_assert_null(e);
        clean_sentence(&err, st, position);
    }
}

Test(pipeline_faults, opening_fails_cleanly_at_any_opencl_call) {
    cr_assert_gt(open_through_failures(&countdown, 97), 500);
}

Test(pipeline_faults, opening_fails_cleanly_when_memory_runs_out) {
    cr_assert_gt(open_through_failures(&host_countdown, 211), 500);
}

/* A frame that fails half enqueued leaves the engine as it was: the next one gives the same objects. */
Test(pipeline_faults, a_failed_submit_can_be_repeated) {
    ist_config c = small_config();
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(120, 90, 8);
    const ist_result *want = engines_run(e, &m, 1);
    cr_assert_gt(want->frames[0].object_count, 0);
    int failures = 0;
    for (int position = 1;; position += 5) {
        ist_error err = {0};
        countdown = position;
        ist_status st = ist_submit(e, &m, 1, &err);
        bool reached = countdown == 0;
        countdown = 0;
        if (st) {
            failures++;
            clean_sentence(&err, st, position);
        } else {
            const ist_result *r = NULL;
            cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
            engines_same(&want->frames[0], &r->frames[0]);
            ist_release(e, &r);
        }
        if (!reached) break;
    }
    cr_assert_gt(failures, 20);
    ist_close(&e);
    free((void *)m.pixels);
}

Test(pipeline_faults, a_frame_allocates_nothing_on_the_host) {
    ist_config c = small_config();
    c.match = IST_MATCH_TRACKS;
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(120, 90, 8);
    const ist_result *r;
    for (int i = 0; i < 3; i++) {
        r = engines_run(e, &m, 1);
        ist_release(e, &r);
    }
    host_calls = 0;
    for (int i = 0; i < 10; i++) {
        ist_error err;
        ist_submit(e, &m, 1, &err);
        ist_receive(e, &r, &err);
        ist_release(e, &r);
    }
    cr_assert_eq(host_calls, 0, "%d allocations in 10 frames", host_calls);
    ist_close(&e);
    free((void *)m.pixels);
}
