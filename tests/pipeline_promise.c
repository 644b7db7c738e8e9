/* The promise about crossings, in every mode that ships: one write, one read, at most one wait per submission, for a
 * thousand frames, in constant memory and without an allocation on the host.
 *
 * One frame in FULL is computed. In the others the launches of kernels are left out, so that a thousand frames of every
 * mode take seconds: which calls cross and wait does not depend on them, and the packet keeps the contents of the last
 * frame that was computed. (pipeline_frame computes a thousand.) */
#include "support/engines.h"

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES = 1000, FULL = 200, SIZES = 4, BATCH = 3, FLIGHT = 3 };

static bool leave_out;
static long launches, allocations;

cl_int __real_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *offset,
                                     const size_t *global, const size_t *local, cl_uint n, const cl_event *list,
                                     cl_event *event);
cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *offset,
                                     const size_t *global, const size_t *local, cl_uint n, const cl_event *list,
                                     cl_event *event);
cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *offset,
                                     const size_t *global, const size_t *local, cl_uint n, const cl_event *list,
                                     cl_event *event) {
    launches++;
    return leave_out ? CL_SUCCESS : __real_clEnqueueNDRangeKernel(q, k, dims, offset, global, local, n, list, event);
}

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n) {
    allocations++;
    return __real_malloc(n);
}
void *__real_calloc(size_t n, size_t m);
void *__wrap_calloc(size_t n, size_t m);
void *__wrap_calloc(size_t n, size_t m) {
    allocations++;
    return __real_calloc(n, m);
}
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n) {
    allocations++;
    return __real_realloc(p, n);
}

/* All precisions that the device has: half and bfloat16 are refused by name elsewhere. */
static ist_engine *open_with(ist_config c, ist_precision precision) {
    ist_engine *e = NULL;
    ist_error err = {0};
    c.precision = precision;
    ist_status st = ist_open(&c, &e, &err);
    if (st == IST_E_UNSUPPORTED && precision != IST_PRECISION_FP32) return NULL;
    cr_assert_eq(st, IST_OK, "%s", err.text);
    return e;
}

static void check(const ist_result *r, int frame) {
    cr_assert_eq(r->transfers.writes, 1, "frame %d: %d writes", frame, r->transfers.writes);
    cr_assert_eq(r->transfers.reads, 1, "frame %d: %d reads", frame, r->transfers.reads);
    cr_assert_leq(r->transfers.waits, 1, "frame %d: %d waits", frame, r->transfers.waits);
}

static uint64_t device_bytes(ist_engine *e) {
    ist_engine_info info;
    ist_error err;
    cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK, "%s", err.text);
    cr_assert_eq(info.device_bytes, info.device_peak_bytes);
    return info.device_bytes;
}

/* Batch number `done`: its answer, and that no memory of the device is taken any more, in *bytes after every size. */
static void receive_one(ist_engine *e, int done, uint64_t *bytes, int *objects) {
    const ist_result *r;
    ist_error err;
    cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
    check(r, done);
    *objects += r->frames[0].object_count;
    ist_release(e, &r);
    if (done == 2 * SIZES) *bytes = device_bytes(e), allocations = 0;
    if (done > 2 * SIZES) cr_assert_eq(device_bytes(e), *bytes, "frame %d", done);
}

static void end_of_thousand(int objects) {
    leave_out = false;
    cr_expect_eq(allocations, 0, "%ld allocations on the host", allocations);
    cr_expect_gt(launches, FRAMES * 10L);
    cr_expect_gt(objects, 0);
}

/* A thousand submissions of `count` images each, sizes in turn, as many in flight as the engine takes. */
static void thousand(ist_engine *e, const ist_image *images, int count, int flight) {
    ist_error err;
    uint64_t bytes = 0;
    int submitted = 0, objects = 0, full = engines_lack_cpu() ? FRAMES : FULL;
    launches = allocations = 0;
    for (int done = 0; done < FRAMES; done++) {
        for (; submitted < FRAMES && submitted < done + flight; submitted++) {
            leave_out = submitted >= SIZES && submitted % full; /* the first computes every size */
            cr_assert_eq(ist_submit(e, &images[submitted % SIZES], count, &err), IST_OK, "%s", err.text);
        }
        receive_one(e, done, &bytes, &objects);
    }
    end_of_thousand(objects);
}

/* A thousand batches of prompts against embeddings that stay alive, encoded anew now and then. */
static void thousand_prompts(ist_engine *e, const ist_image *images, const ist_prompt *prompts, int count, int flight) {
    ist_error err;
    uint64_t bytes = 0;
    ist_embedding *k[SIZES] = {NULL};
    int submitted = 0, objects = 0, full = engines_lack_cpu() ? FRAMES : FULL;
    launches = allocations = 0;
    for (int done = 0; done < FRAMES; done++) {
        for (; submitted < FRAMES && submitted < done + flight; submitted++) {
            int i = submitted % SIZES;
            leave_out = submitted >= SIZES && submitted % full;
            if (submitted < SIZES || submitted % full == 1) {
                ist_transfers moved;
                ist_embedding_release(e, &k[i]);
                cr_assert_eq(ist_encode(e, &images[i], &k[i], &err), IST_OK, "%s", err.text);
                cr_assert_eq(ist_embedding_transfers(k[i], &moved, &err), IST_OK);
                cr_assert(moved.writes == 1 && moved.reads == 0 && moved.waits <= 1);
                allocations -= 1; /* the handle */
            }
            cr_assert_eq(ist_submit_prompts(e, k[i], prompts, count, 0, &err), IST_OK, "%s", err.text);
        }
        receive_one(e, done, &bytes, &objects);
    }
    end_of_thousand(objects);
    for (int i = 0; i < SIZES; i++) ist_embedding_release(e, &k[i]);
}

/* SIZES + BATCH images, so that a batch may begin at each of the first; all share one set of targets. */
static void make_images(ist_image *m, ist_target *targets) {
    static const int sizes[SIZES][2] = {{160, 120}, {90, 200}, {320, 64}, {33, 31}};
    for (int i = 0; i < SIZES + BATCH; i++) {
        const int *size = sizes[i % SIZES];
        m[i] = engines_image(size[0], size[1], (uint64_t)(70 + i));
        m[i].targets = targets;
        m[i].target_count = 2;
    }
    targets[0] = (ist_target){.box = {2, 3, 20, 25}, .label = -1};
    targets[1] = (ist_target){.box = {5, 1, 30, 30}, .label = 3};
}

static void in_precisions(ist_config c, int count, ist_precision last) {
    ist_image m[SIZES + BATCH];
    ist_target targets[2];
    make_images(m, targets);
    c.input_size = 256; /* the least that gives its 300 queries */
    c.conf = 0;
    c.max_objects = 3;
    c.batch = count;
    for (ist_precision p = IST_PRECISION_FP32; p <= last; p++) {
        ist_engine *e = open_with(c, p);
        if (e) thousand(e, m, count, c.frames_in_flight);
        ist_close(&e);
    }
    for (int i = 0; i < SIZES + BATCH; i++) free((void *)m[i].pixels);
}

static void in_mode(ist_config c, int count) {
    in_precisions(c, count, IST_PRECISION_FP16);
}

Test(pipeline_promise, plain) {
    in_precisions(engines_config("n", false), 1, IST_PRECISION_BF16);
}

Test(pipeline_promise, masks) {
    in_mode(engines_config("n", true), 1);
}

Test(pipeline_promise, masks_on_two_queues) {
    ist_config c = engines_config("n", true);
    c.overlap = 1;
    in_mode(c, 1);
}

Test(pipeline_promise, tracks) {
    ist_config c = engines_config("n", false);
    c.match = IST_MATCH_TRACKS;
    in_mode(c, 1);
}

Test(pipeline_promise, targets) {
    ist_config c = engines_config("n", false);
    c.match = IST_MATCH_TARGETS;
    in_mode(c, 1);
}

Test(pipeline_promise, target_sets) {
    ist_config c = engines_config("n", false);
    c.match = IST_MATCH_TARGETS_SET;
    in_mode(c, 1);
}

Test(pipeline_promise, masks_for_given_boxes) {
    ist_config c = engines_config("n", true);
    c.detector = NULL;
    c.prompts = IST_PROMPTS_TARGETS;
    in_mode(c, 1);
}

/* Prompts of every kind, of images and of embeddings, with all that results can bring. */
static void given_prompts(ist_precision p) {
    enum { LOW = 64, PROMPTS = 3 };
    static float logits[LOW * LOW];
    static const ist_point dots[] = {{3, 4, 1}, {20, 25, 0}, {12, 9, 1}};
    static const float box[] = {2, 3, 20, 25};
    const ist_prompt prompts[PROMPTS] = {{.points = dots, .point_count = 3},
                                         {.points = dots, .point_count = 1, .box = box},
                                         {.mask = logits, .mask_width = LOW, .mask_height = LOW}};
    ist_image m[SIZES + BATCH]; /* of one size: masks that are left in a packet must fit the room of the next */
    for (int i = 0; i < SIZES + BATCH; i++) m[i] = engines_image(160, 120, (uint64_t)(70 + i));
    ist_config c = engines_config("n", true);
    c.detector = NULL;
    c.prompts = IST_PROMPTS_GIVEN;
    c.segmenter_size = 4 * LOW;
    c.max_objects = PROMPTS;
    c.max_points = 3;
    c.multimask = c.low_res = c.mask_prompts = 1;
    c.batch = BATCH;
    ist_engine *e = open_with(c, p);
    for (int i = 0; e && i < SIZES + BATCH; i++) m[i].prompts = prompts, m[i].prompt_count = PROMPTS;
    if (e) thousand(e, m, BATCH, c.frames_in_flight);
    if (e) thousand_prompts(e, m, prompts, PROMPTS, c.frames_in_flight);
    ist_close(&e);
    for (int i = 0; i < SIZES + BATCH; i++) free((void *)m[i].pixels);
}

Test(pipeline_promise, given_prompts) {
    given_prompts(IST_PRECISION_FP32);
}

Test(pipeline_promise, given_prompts_in_half) {
    given_prompts(IST_PRECISION_FP16);
}

Test(pipeline_promise, batches_in_flight_with_tracks) {
    ist_config c = engines_config("n", false);
    c.match = IST_MATCH_TRACKS;
    c.frames_in_flight = FLIGHT;
    in_mode(c, BATCH);
}
