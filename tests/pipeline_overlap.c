/* Detector and image encoder on two queues: the same bits as on one, the same crossings, and failures at any call of
 * the second queue's that leave a working engine and nothing behind. */
#include "support/engines.h"
#include "support/faults.h"

#include <criterion/criterion.h>
#include <string.h>

enum { BATCH = 3 };

static ist_error err;

static ist_config small_config(bool masks) {
    ist_config c = engines_config("n", masks);
    c.input_size = 256; /* the least that gives its 300 queries */
    c.conf = 0;
    c.max_objects = 3;
    c.overlap = IST_OVERLAP_ON;
    return c;
}

static ist_engine *open_in_turn(ist_config c) {
    c.overlap = IST_OVERLAP_OFF;
    return engines_open(&c);
}

static void make_images(ist_image *m) {
    static const int sizes[BATCH][2] = {{160, 120}, {90, 200}, {33, 31}};
    for (int i = 0; i < BATCH; i++) m[i] = engines_image(sizes[i][0], sizes[i][1], (uint64_t)(70 + i));
}

static void free_images(ist_image *m) {
    for (int i = 0; i < BATCH; i++) free((void *)m[i].pixels);
}

static uint64_t device_bytes(ist_engine *e) {
    ist_engine_info info;
    cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK, "%s", err.text);
    return info.device_bytes;
}

/* As many submissions in flight as the engine takes, against one after the other on one queue. */
static void same_as_in_turn(ist_config c, int rounds) {
    ist_image m[BATCH];
    make_images(m);
    ist_engine *beside = engines_open(&c), *alone = open_in_turn(c);
    const ist_result *want[BATCH];
    int count = c.batch, starts = BATCH - count + 1, submitted = 0;
    for (int i = 0; i < rounds; i++) {
        for (; submitted < rounds && submitted < i + c.frames_in_flight; submitted++)
            cr_assert_eq(ist_submit(beside, &m[submitted % starts], count, &err), IST_OK, "%s", err.text);
        const ist_result *got;
        cr_assert_eq(ist_receive(beside, &got, &err), IST_OK, "%s", err.text);
        want[0] = engines_run(alone, &m[i % starts], count);
        for (int k = 0; k < count; k++) {
            cr_assert_gt(want[0]->frames[k].object_count, 0);
            engines_same(&want[0]->frames[k], &got->frames[k]);
        }
        cr_expect_eq(got->transfers.writes, 1);
        cr_expect_eq(got->transfers.reads, 1);
        cr_expect_leq(got->transfers.waits, 1);
        ist_release(alone, &want[0]);
        ist_release(beside, &got);
    }
    ist_close(&beside);
    ist_close(&alone);
    free_images(m);
}

Test(pipeline_overlap, gives_the_same_bits) {
    ist_config c = small_config(true);
    c.precision = IST_PRECISION_FP32;
    same_as_in_turn(c, 6);
}

Test(pipeline_overlap, gives_the_same_bits_in_half_precision) {
    ist_config c = small_config(true);
    c.precision = IST_PRECISION_FP16;
    same_as_in_turn(c, 3);
}

Test(pipeline_overlap, gives_the_same_bits_in_batches_in_flight) {
    ist_config c = small_config(true);
    c.match = IST_MATCH_TRACKS;
    c.frames_in_flight = 3;
    c.batch = BATCH;
    same_as_in_turn(c, 4);
}

/* The networks no longer share the arena; without one of the two there is nothing to run beside anything. */
Test(pipeline_overlap, costs_memory_only_where_there_are_two_networks) {
    ist_config c = small_config(true);
    ist_engine *beside = engines_open(&c), *alone = open_in_turn(c);
    cr_expect_gt(device_bytes(beside), device_bytes(alone));
    ist_close(&beside);
    ist_close(&alone);
    for (int way = 0; way < 2; way++) {
        c = small_config(way);
        if (way) c.detector = NULL, c.prompts = IST_PROMPTS_TARGETS;
        ist_target target = {.box = {2, 3, 20, 25}, .label = -1};
        ist_image m = engines_image(60, 50, 5);
        m.targets = &target;
        m.target_count = 1;
        beside = engines_open(&c), alone = open_in_turn(c);
        const ist_result *want = engines_run(alone, &m, 1), *got = engines_run(beside, &m, 1);
        engines_same(&want->frames[0], &got->frames[0]);
        cr_expect_eq(device_bytes(beside), device_bytes(alone));
        ist_close(&beside);
        ist_close(&alone);
        free((void *)m.pixels);
    }
}

static int overlaps(ist_config c, ist_overlap asked) {
    ist_engine_info info;
    c.overlap = asked;
    ist_engine *e = engines_open(&c);
    cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK, "%s", err.text);
    ist_close(&e);
    if (asked != IST_OVERLAP_AUTO) return info.overlap;
    bool large = info.device.type == IST_DEVICE_GPU && info.device.compute_units >= 64;
    cr_expect_eq(info.overlap, large && c.segmenter && !c.cl_queue);
    return info.overlap;
}

Test(pipeline_overlap, is_for_large_gpus_unless_the_caller_says) {
    ist_config two = small_config(true), one = small_config(false);
    overlaps(two, IST_OVERLAP_AUTO);
    cr_expect_eq(overlaps(two, IST_OVERLAP_ON), 1);
    cr_expect_eq(overlaps(two, IST_OVERLAP_OFF), 0);
    cr_expect_eq(overlaps(one, IST_OVERLAP_AUTO), 0);
    cr_expect_eq(overlaps(one, IST_OVERLAP_ON), 0);
}

/* The second queue is made in the caller's context and goes with the engine. */
Test(pipeline_overlap, adopts_a_queue_and_makes_the_other) {
    ist_config c = small_config(true);
    ist_engine *own = engines_open(&c);
    ist_engine_info info;
    cl_platform_id platforms[16];
    cl_device_id devices[16];
    cr_assert_eq(ist_engine_describe(own, &info, &err), IST_OK);
    cr_assert_eq(clGetPlatformIDs(16, platforms, NULL), CL_SUCCESS);
    cr_assert_eq(clGetDeviceIDs(platforms[info.device.platform], CL_DEVICE_TYPE_ALL, 16, devices, NULL), CL_SUCCESS);
    c.cl_device = devices[info.device.device];
    c.cl_context = clCreateContext(NULL, 1, &devices[info.device.device], NULL, NULL, NULL);
    c.cl_queue = clCreateCommandQueue(c.cl_context, c.cl_device, 0, NULL);
    ist_image m = engines_image(123, 77, 21);
    const ist_result *want = engines_run(own, &m, 1);
    long objects = fault.objects;
    ist_engine *adopted = engines_open(&c);
    const ist_result *got = engines_run(adopted, &m, 1);
    engines_same(&want->frames[0], &got->frames[0]);
    ist_close(&adopted);
    cr_expect_eq(fault.objects, objects - 2, "the engine gives back its references to context and queue too");
    cr_expect_eq(overlaps(c, IST_OVERLAP_AUTO), 0, "a caller's queue carries everything unless the caller says");
    ist_close(&own);
    free((void *)m.pixels);
}

Test(pipeline_overlap, closes_with_batches_in_flight) {
    ist_config c = small_config(true);
    c.frames_in_flight = 3;
    ist_image m = engines_image(100, 80, 4);
    for (int flying = 1; flying <= 3; flying++) {
        ist_engine *e = engines_open(&c);
        for (int i = 0; i < flying; i++) cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK, "%s", err.text);
        ist_close(&e);
        cr_expect_eq(fault.objects, 0, "%ld objects left", fault.objects);
    }
    free((void *)m.pixels);
}

/* ---- failures ---- */

static bool orders_queues(const char *call) {
    return strstr(call, "Marker") || strstr(call, "Barrier") || !strcmp(call, "clFlush");
}

/* Submits with each call failing that orders the queues, and some of the others. */
Test(pipeline_overlap, a_failed_submit_can_be_repeated) {
    static const char *names[FAULT_NAMES];
    ist_config c = small_config(true);
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(120, 90, 8);
    const ist_result *want = engines_run(e, &m, 1), *r = engines_run(e, &m, 1);
    ist_release(e, &r); /* from here on the other slot's buffers stay bound */
    faults_arm(0, 0);
    cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK, "%s", err.text);
    long calls = fault.calls, objects = fault.objects - 1; /* less the event of the read */
    cr_assert_lt(calls, FAULT_NAMES);
    memcpy(names, fault.names, sizeof names);
    cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
    ist_release(e, &r);
    int ordering = 0, tried = 0;
    for (long at = 1; at <= calls; at++) {
        bool orders = orders_queues(names[at - 1]);
        ordering += orders;
        if (!orders && at % 61 != 3) continue;
        if (!strcmp(names[at - 1], "clReleaseEvent")) continue;
        ist_error failed = {0};
        faults_arm(at, CL_OUT_OF_RESOURCES);
        ist_status st = ist_submit(e, &m, 1, &failed);
        cr_assert_eq(st, failed.code, "call %ld, %s", at, names[at - 1]);
        cr_assert_neq(st, IST_OK, "call %ld, %s", at, names[at - 1]);
        cr_assert_not_null(strstr(failed.text, names[at - 1]), "%s: %s", names[at - 1], failed.text);
        faults_arm(0, 0);
        cr_assert_eq(fault.objects, objects, "call %ld, %s: %ld objects left", at, names[at - 1],
                     fault.objects - objects);
        r = engines_run(e, &m, 1);
        engines_same(&want->frames[0], &r->frames[0]);
        ist_release(e, &r);
        tried++;
    }
    cr_expect_eq(ordering, 2 + 2 + 3);
    cr_expect_gt(tried, ordering);
    ist_close(&e);
    cr_expect_eq(fault.objects, 0, "%ld objects left", fault.objects);
    free((void *)m.pixels);
}

/* Without a second queue the engine does not open, and says what failed. */
Test(pipeline_overlap, opening_without_a_second_queue_fails) {
    ist_config c = small_config(true);
    ist_engine *e = NULL;
    faults_arm_call("clCreateCommandQueue", 2, CL_OUT_OF_HOST_MEMORY);
    cr_expect_eq(ist_open(&c, &e, &err), IST_E_DEVICE_MEMORY);
    cr_expect_null(e);
    cr_expect_not_null(strstr(err.text, "second queue"), "%s", err.text);
    cr_expect_eq(fault.calls, 2);
    faults_arm(0, 0);
    cr_expect_eq(fault.objects, 0, "%ld objects left", fault.objects);
}
