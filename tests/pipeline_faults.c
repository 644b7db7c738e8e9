/* Failures injected at every position: each OpenCL call that allocates or enqueues, and each host allocation. The
 * linker sends the library's calls through the wrappers below; the position that fails is counted down. */
#include "support/engines.h"

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static int countdown, wait_countdown, host_countdown, host_calls,
    waits; /* 0: never fail; the wrappers see one thread */

static bool fails(int *counter) {
    return *counter > 0 && --*counter == 0;
}

cl_mem __real_clCreateBuffer(cl_context c, cl_mem_flags f, size_t n, void *p, cl_int *rc);
cl_mem __wrap_clCreateBuffer(cl_context c, cl_mem_flags f, size_t n, void *p, cl_int *rc);
cl_mem __wrap_clCreateBuffer(cl_context c, cl_mem_flags f, size_t n, void *p, cl_int *rc) {
    if ((f & CL_MEM_USE_HOST_PTR) && countdown > 0) { /* refused without counting: the platform's memory comes next */
        *rc = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
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
    waits += b == CL_TRUE;
    return fails(&countdown) ? CL_OUT_OF_RESOURCES : __real_clEnqueueWriteBuffer(q, m, b, o, s, p, n, w, e);
}

cl_int __real_clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, void *p, cl_uint n,
                                  const cl_event *w, cl_event *e);
cl_int __wrap_clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, void *p, cl_uint n,
                                  const cl_event *w, cl_event *e);
cl_int __wrap_clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, void *p, cl_uint n,
                                  const cl_event *w, cl_event *e) {
    waits += b == CL_TRUE;
    return fails(&countdown) ? CL_OUT_OF_HOST_MEMORY : __real_clEnqueueReadBuffer(q, m, b, o, s, p, n, w, e);
}

cl_int __real_clWaitForEvents(cl_uint n, const cl_event *e);
cl_int __wrap_clWaitForEvents(cl_uint n, const cl_event *e);
cl_int __wrap_clWaitForEvents(cl_uint n, const cl_event *e) {
    waits++;
    return fails(&wait_countdown) ? CL_INVALID_COMMAND_QUEUE : __real_clWaitForEvents(n, e);
}

cl_int __real_clFinish(cl_command_queue q);
cl_int __wrap_clFinish(cl_command_queue q);
cl_int __wrap_clFinish(cl_command_queue q) {
    waits++;
    return fails(&wait_countdown) ? CL_INVALID_COMMAND_QUEUE : __real_clFinish(q);
}

void *__real_clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool b, cl_map_flags f, size_t o, size_t s, cl_uint n,
                                const cl_event *w, cl_event *e, cl_int *rc);
void *__wrap_clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool b, cl_map_flags f, size_t o, size_t s, cl_uint n,
                                const cl_event *w, cl_event *e, cl_int *rc);
void *__wrap_clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool b, cl_map_flags f, size_t o, size_t s, cl_uint n,
                                const cl_event *w, cl_event *e, cl_int *rc) {
    waits += b == CL_TRUE;
    return __real_clEnqueueMapBuffer(q, m, b, f, o, s, n, w, e, rc);
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

static ist_config prompts_config(void) {
    ist_config c = engines_config("n", true);
    c.detector = NULL;
    c.prompts = IST_PROMPTS_GIVEN;
    c.segmenter_size = 256;
    c.max_objects = 2;
    c.max_points = 1;
    c.max_embeddings = 2;
    return c;
}

/* Four plans, five crops. The parameters live as long as the caller's `p`. */
static ist_config everything_config(ist_everything *p) {
    ist_config c = prompts_config();
    *p = ist_everything_default();
    p->points_per_side = p->points_per_batch = 2;
    p->pred_iou_thresh = p->stability_score_thresh = -1;
    p->box_nms_thresh = p->crop_nms_thresh = 1;
    p->crop_n_layers = 1;
    p->max_masks = 2;
    c.prompts = IST_PROMPTS_EVERYTHING;
    c.everything = p;
    return c;
}

/* Opens with failure number 1, 1 + step, .. until opening succeeds before the countdown ends. */
static int open_through_failures(ist_config c, int *counter, int step) {
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
    int calls = open_through_failures(small_config(), &countdown, 29);
    cr_assert_gt(calls, 200, "%d", calls);
    calls = open_through_failures(prompts_config(), &countdown, 41); /* two plans */
    cr_assert_gt(calls, 200, "%d", calls);
    ist_everything p;
    calls = open_through_failures(everything_config(&p), &countdown, 211);
    cr_assert_gt(calls, 200, "%d", calls);
}

Test(pipeline_faults, opening_fails_cleanly_when_memory_runs_out) {
    cr_assert_gt(open_through_failures(small_config(), &host_countdown, 211), 500);
}

/* A frame that fails half enqueued leaves the engine as it was: the next one gives the same objects. */
Test(pipeline_faults, a_failed_submit_can_be_repeated) {
    ist_config c = small_config();
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(120, 90, 8);
    const ist_result *want = engines_run(e, &m, 1);
    cr_assert_gt(want->frames[0].object_count, 0);
    int failures = 0;
    for (int position = 1;; position++) {
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
    cr_assert_gt(failures, 10, "%d", failures); /* a CPU has few launches a frame */
    ist_close(&e);
    free((void *)m.pixels);
}

/* The same of an embedding, which leaves nothing behind when it cannot be made, and of what is asked of one. */
Test(pipeline_faults, a_failed_click_can_be_repeated) {
    static const ist_point dot[] = {{30, 40, 1}};
    static const float box[] = {10, 10, 60, 70};
    const ist_prompt prompts[2] = {{.points = dot, .point_count = 1}, {.box = box}};
    ist_config c = prompts_config();
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(120, 90, 8);
    m.prompts = prompts;
    m.prompt_count = 2;
    const ist_result *want = engines_run(e, &m, 1), *r = NULL;
    ist_embedding *kept = NULL, *k = NULL;
    ist_error err = {0};
    int failures[2] = {0, 0};
    cr_assert_eq(ist_encode(e, &m, &kept, &err), IST_OK, "%s", err.text);
    for (int what = 0; what < 2; what++) /* encoding, asking */
        for (int position = 1;; position++) {
            countdown = position;
            ist_status st = what ? ist_submit_prompts(e, kept, prompts, 2, 0, &err) : ist_encode(e, &m, &k, &err);
            bool reached = countdown == 0;
            countdown = 0;
            failures[what] += st != IST_OK;
            if (st) clean_sentence(&err, st, position);
            if (!st && !what) cr_assert_eq(ist_submit_prompts(e, k, prompts, 2, 0, &err), IST_OK, "%s", err.text);
            if (!st) cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
            if (!st) engines_same(&want->frames[0], &r->frames[0]);
            ist_release(e, &r);
            ist_embedding_release(e, &k);
            if (!reached) break;
        }
    cr_assert_gt(failures[0], 10, "%d", failures[0]);
    cr_assert_gt(failures[1], 10, "%d", failures[1]);
    ist_release(e, &want);
    ist_close(&e);
    free((void *)m.pixels);
}

/* Many replays of few launches: the first failures, and then here and there. What was found until then is forgotten. */
Test(pipeline_faults, failed_masks_of_everything_can_be_repeated) {
    ist_everything p;
    ist_config c = everything_config(&p);
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(120, 90, 8);
    const ist_result *want = engines_run(e, &m, 1), *r = NULL;
    cr_assert_eq(want->frames[0].object_count, 2);
    int failures = 0;
    for (int position = 1;; position += position < 12 ? 1 : 61) {
        ist_error err = {0};
        countdown = position;
        ist_status st = ist_submit(e, &m, 1, &err);
        bool reached = countdown == 0;
        countdown = 0;
        failures += st != IST_OK;
        if (st) clean_sentence(&err, st, position);
        if (!st) cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
        if (st && failures % 8 == 1) r = engines_run(e, &m, 1);
        if (r) engines_same(&want->frames[0], &r->frames[0]);
        ist_release(e, &r);
        if (!reached) break;
    }
    cr_assert_gt(failures, 10, "%d", failures);
    ist_release(e, &want);
    ist_close(&e);
    free((void *)m.pixels);
}

/* The kernels enqueued before the failure have run; the tracks are nevertheless those of the batches that went through.
 */
Test(pipeline_faults, a_failed_submit_leaves_the_tracks_alone) {
    ist_config c = small_config();
    c.match = IST_MATCH_TRACKS;
    c.conf = 0;
    c.max_objects = 5;
    ist_engine *faulty = engines_open(&c), *sound = engines_open(&c);
    ist_image pictures[3] = {engines_image(120, 90, 8), engines_image(120, 90, 9), engines_image(80, 110, 10)};
    int failures = 0, round = 0;
    for (int position = 1;; position++, round++) {
        ist_error err = {0};
        countdown = position;
        ist_status st = ist_submit(faulty, &pictures[2], 1, &err);
        bool reached = countdown == 0;
        countdown = 0;
        if (!reached) {
            cr_assert_eq(st, IST_OK, "%s", err.text);
            break;
        }
        failures += st != IST_OK;
        const ist_result *got = engines_run(faulty, &pictures[round % 2], 1);
        const ist_result *want = engines_run(sound, &pictures[round % 2], 1);
        for (int i = 0; i < 5; i++)
            cr_assert_eq(got->frames[0].objects[i].match, want->frames[0].objects[i].match,
                         "failure %d, object %d: id %d, not %d", position, i, got->frames[0].objects[i].match,
                         want->frames[0].objects[i].match);
        ist_release(faulty, &got);
        ist_release(sound, &want);
    }
    cr_assert_gt(failures, 10, "%d", failures);
    ist_close(&faulty);
    ist_close(&sound);
    for (int i = 0; i < 3; i++) free((void *)pictures[i].pixels);
}

/* A larger image needs larger buffers; when they cannot be had the engine goes on with smaller images. */
Test(pipeline_faults, growth_that_fails_leaves_a_working_engine) {
    ist_config c = small_config();
    ist_engine *e = engines_open(&c);
    ist_image small = engines_image(60, 40, 8), large = engines_image(1700, 1500, 9);
    const ist_result *want = engines_run(e, &small, 1);
    int failures = 0;
    for (int position = 1;; position++) {
        ist_error err = {0};
        countdown = position;
        ist_status st = ist_submit(e, &large, 1, &err);
        bool reached = countdown == 0;
        countdown = 0;
        if (!reached || failures == 40) break;
        failures++;
        clean_sentence(&err, st, position);
        const ist_result *r = engines_run(e, &small, 1);
        engines_same(&want->frames[0], &r->frames[0]);
        ist_release(e, &r);
    }
    cr_assert_gt(failures, 10, "%d", failures);
    ist_close(&e);
    free((void *)small.pixels);
    free((void *)large.pixels);
}

static void every_call_fails(ist_engine *e, const ist_image *m, const ist_error *lost) {
    const ist_result *r = NULL;
    for (int i = 0; i < 3; i++) {
        ist_error err = {0};
        cr_assert_eq(ist_receive(e, &r, &err), lost->code);
        cr_assert_str_eq(err.text, lost->text);
        cr_assert_null(r);
        cr_assert_eq(ist_submit(e, m, 1, &err), lost->code);
        cr_assert_str_eq(err.text, lost->text);
        cr_assert_eq(ist_assign(e, (float[]){1}, 1, 1, 1, (int[]){0}, NULL, &err), lost->code);
    }
}

Test(pipeline_faults, a_lost_device_fails_every_later_call) {
    ist_config c = small_config();
    c.frames_in_flight = 3;
    ist_image m = engines_image(120, 90, 8);
    ist_error err = {0};
    const ist_result *r = NULL;
    ist_engine *e = engines_open(&c); /* lost while a batch is awaited, with another one in flight */
    for (int i = 0; i < 2; i++) cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK, "%s", err.text);
    wait_countdown = 1;
    cr_assert_eq(ist_receive(e, &r, &err), IST_E_DEVICE);
    cr_assert_not_null(strstr(err.text, "CL_INVALID_COMMAND_QUEUE"), "%s", err.text);
    every_call_fails(e, &m, &err);
    ist_close(&e);

    e = engines_open(&c); /* lost in the middle of a submit */
    cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK, "%s", err.text);
    countdown = 40;
    wait_countdown = 1;
    cr_assert_neq(ist_submit(e, &m, 1, &err), IST_OK);
    cr_assert_eq(countdown, 0);
    cr_assert_eq(ist_submit(e, &m, 1, &err), IST_E_DEVICE);
    cr_assert_not_null(strstr(err.text, "clFinish"), "%s", err.text);
    every_call_fails(e, &m, &err);
    ist_close(&e);
    free((void *)m.pixels);
}

/* Slots have room for 1080p from the start; only larger images make a submit wait for those in flight. */
Test(pipeline_faults, submit_does_not_wait) {
    static const int sizes[][2] = {{64, 48}, {1280, 720}, {1920, 1080}, {1080, 1920}, {300, 900}};
    ist_config c = small_config();
    ist_engine *e = engines_open(&c);
    for (int i = 0; i < 5; i++) {
        ist_image m = engines_image(sizes[i][0], sizes[i][1], 8);
        ist_error err = {0};
        const ist_result *r;
        waits = 0;
        cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK, "%s", err.text);
        cr_assert_eq(waits, 0, "image %d", i);
        if (i > 0) { /* one batch stays in flight */
            cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
            ist_release(e, &r);
        }
        cr_assert_eq(waits, i > 0);
        free((void *)m.pixels);
    }
    ist_close(&e);
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
