/* Buffers are counted, windows are not, and every OpenCL or allocation call that fails leaves a clean error and nothing
 * behind. */
#include "support/faults.h"
#include "support/one_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void close_and_count(void) {
    close_one();
    cr_expect_eq(fault.objects, 0, "%ld OpenCL objects leaked", fault.objects);
    cr_expect_eq(blocks, 0, "%ld allocations leaked", blocks);
}

TestSuite(device_memory, .init = open_one, .fini = close_and_count);

/* The probes' own peak is far below the sizes used here. */
static void expect_memory(uint64_t want_now, uint64_t want_peak) {
    uint64_t now, peak;
    ist_device_memory(d, &now, &peak);
    cr_expect_eq(now, want_now, "now %llu, want %llu", (unsigned long long)now, (unsigned long long)want_now);
    cr_expect_eq(peak, want_peak, "peak %llu", (unsigned long long)peak);
}

Test(device_memory, now_and_peak) {
    cl_mem a, b, c;
    cr_assert_eq(ist_buffer_create(d, 1 << 20, "a", &a, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_buffer_create(d, 2 << 20, "b", &b, &err), IST_OK, "%s", err.text);
    expect_memory(3 << 20, 3 << 20);
    ist_buffer_release(d, &a);
    cr_expect_null(a);
    expect_memory(2 << 20, 3 << 20);
    cr_assert_eq(ist_buffer_create(d, 1000000, "c", &c, &err), IST_OK, "%s", err.text);
    expect_memory((2 << 20) + 1000000, 3 << 20);
    ist_buffer_release(d, &b);
    ist_buffer_release(d, &c);
    ist_buffer_release(d, &c);
    ist_buffer_release(d, NULL);
    expect_memory(0, 3 << 20);
}

/* Below and from the size on that a CPU's large pages begin at. */
static const size_t either_kind[] = {1000, (3 << 20) + 8};

Test(device_memory, zeroed_buffers_hold_zeros_also_after_others) {
    for (int i = 0; i < 4; i++) {
        size_t bytes = either_kind[i / 2];
        unsigned char *all = malloc(bytes);
        cl_mem mem;
        memset(all, 0xa5, bytes);
        cr_assert_eq(ist_buffer_zeroed(d, bytes, "zeros", &mem, &err), IST_OK, "%s", err.text);
        cr_assert_eq(ist_read(d, (ist_frame_scope){0}, mem, 0, bytes, all, NULL, "r", &err), IST_OK, "%s", err.text);
        for (size_t k = 0; k < bytes; k++) cr_assert_eq(all[k], 0, "byte %zu of %zu", k, bytes);
        memset(all, 0xa5, bytes);
        cr_assert_eq(ist_write(d, (ist_frame_scope){0}, mem, 0, bytes, all, true, "w", &err), IST_OK, "%s", err.text);
        ist_buffer_release(d, &mem);
        free(all);
    }
    expect_memory(0, either_kind[1]);
}

/* Memory that the program had before, too: constants that a plan does not fill are read as zeros. */
Test(device_memory, pages_begin_as_zeros) {
    for (int i = 0; i < 2; i++) {
        size_t bytes = either_kind[i];
        unsigned char *used = malloc(bytes);
        cr_assert_not_null(used);
        memset(used, 0xa5, bytes);
        free(used);
        ist_pages *pages = ist_pages_open(d, bytes);
        cr_assert_not_null(pages);
        for (size_t k = 0; k < bytes; k++)
            cr_assert_eq(((unsigned char *)pages->data)[k], 0, "byte %zu of %zu", k, bytes);
        ist_pages_close(&pages);
        cr_expect_null(pages);
    }
}

Test(device_memory, filled_buffers_hold_what_the_pages_held) {
    for (int i = 0; i < 2; i++) {
        size_t bytes = either_kind[i], room = 2 * bytes;
        ist_pages *pages = ist_pages_open(d, room);
        unsigned char *all = malloc(bytes);
        cl_mem mem;
        cr_assert_not_null(pages);
        for (size_t k = 0; k < room; k++) ((unsigned char *)pages->data)[k] = (unsigned char)(k * 7 + k / 251);
        cr_assert_eq(ist_buffer_filled(d, bytes, "filled", &pages, &mem, &err), IST_OK, "%s", err.text);
        cr_expect_null(pages);
        cr_assert_eq(ist_read(d, (ist_frame_scope){0}, mem, 0, bytes, all, NULL, "r", &err), IST_OK, "%s", err.text);
        for (size_t k = 0; k < bytes; k++) cr_assert_eq(all[k], (unsigned char)(k * 7 + k / 251), "byte %zu", k);
        ist_buffer_release(d, &mem);
        ist_pages_close(&pages);
        free(all);
    }
    expect_memory(0, either_kind[1]);
}

Test(device_memory, windows_see_the_parent_and_are_not_counted) {
    size_t align = ist_device_alignment(d);
    cl_mem parent, window;
    unsigned char data[64], back[64];
    for (int i = 0; i < 64; i++) data[i] = (unsigned char)(200 - i);
    cr_assert_eq(ist_buffer_create(d, 8 * align + 64, "parent", &parent, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_buffer_sub(d, parent, 8 * align, 64, "window", &window, &err), IST_OK, "%s", err.text);
    uint64_t now;
    ist_device_memory(d, &now, NULL);
    cr_expect_eq(now, 8 * align + 64);
    cr_assert_eq(ist_write(d, (ist_frame_scope){0}, window, 0, 64, data, true, "w", &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_read(d, (ist_frame_scope){0}, parent, 8 * align, 64, back, NULL, "r", &err), IST_OK, "%s",
                 err.text);
    cr_expect_eq(memcmp(data, back, 64), 0);
    ist_buffer_release(d, &window);
    ist_device_memory(d, &now, NULL);
    cr_expect_eq(now, 8 * align + 64);

    cr_expect_eq(ist_buffer_sub(d, parent, 4, 64, "crooked", &window, &err), IST_E_ARGUMENT);
    cr_expect(strstr(err.text, "crooked: offset 4 is no multiple of"), "%s", err.text);
    cr_expect_eq(ist_buffer_sub(d, parent, 8 * align, 65, "too long", &window, &err), IST_E_ARGUMENT);
    cr_expect(strstr(err.text, "too long: 65 bytes at"), "%s", err.text);
    cr_expect_null(window);
    ist_buffer_release(d, &parent);
}

Test(device_memory, sizes_that_cannot_be) {
    cl_mem mem = (cl_mem)1;
    cr_expect_eq(ist_buffer_create(d, 0, "nothing", &mem, &err), IST_E_ARGUMENT);
    cr_expect_null(mem);
    cr_expect_eq(ist_buffer_create(d, SIZE_MAX, "everything", &mem, &err), IST_E_DEVICE_MEMORY);
    cr_expect(strstr(err.text, "everything: 18446744073709551615 bytes"), "%s", err.text);
    /* A device that is nearly full. */
    d->facts.global_bytes = 10000;
    cl_mem most;
    cr_assert_eq(ist_buffer_create(d, 8000, "most", &most, &err), IST_OK, "%s", err.text);
    cr_expect_eq(ist_buffer_create(d, 2001, "rest", &mem, &err), IST_E_DEVICE_MEMORY);
    cr_expect(strstr(err.text, "rest: 2001 bytes more than the 8000 in use"), "%s", err.text);
    cr_assert_eq(ist_buffer_create(d, 2000, "rest", &mem, &err), IST_OK, "%s", err.text);
    ist_buffer_release(d, &mem);
    ist_buffer_release(d, &most);
}

Test(device_memory, pinned_memory_crosses_like_any) {
    ist_pinned p;
    cl_mem mem;
    cr_assert_eq(ist_pinned_create(d, 5000, "ring", &p, &err), IST_OK, "%s", err.text);
    cr_assert_not_null(p.data);
    cr_expect_eq(p.bytes, 5000u);
    ist_ledger_entry e[2];
    cr_assert_eq(ist_ledger_recent(d, e, 2), 2);
    cr_expect_eq(e[0].kind, IST_CROSS_WAIT);
    cr_expect_eq(e[1].kind, IST_CROSS_MAP);
    cr_expect_eq(e[1].bytes, 5000u);
    cr_expect_eq(e[1].frame, 0u);
    unsigned char *bytes = p.data;
    for (int i = 0; i < 2500; i++) bytes[i] = (unsigned char)(i * 13);
    cr_assert_eq(ist_buffer_create(d, 2500, "buffer", &mem, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_write(d, (ist_frame_scope){0}, mem, 0, 2500, bytes, false, "w", &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_read(d, (ist_frame_scope){0}, mem, 0, 2500, bytes + 2500, NULL, "r", &err), IST_OK, "%s",
                 err.text);
    cr_expect_eq(memcmp(bytes, bytes + 2500, 2500), 0);
    ist_buffer_release(d, &mem);
    ist_pinned_release(d, &p);
    cr_expect_null(p.mem);
    ist_pinned_release(d, &p);
    ist_pinned_release(d, NULL);
    cr_expect_eq(ist_pinned_create(d, 0, "nothing", &p, &err), IST_E_ARGUMENT);
}

/* ---- every call fails once ---- */

typedef struct things {
    ist_device *device;
    cl_mem buffer, window;
    ist_pinned pinned;
    cl_kernel kernel;
} things;

/* Everything the layers above do with a device, in one pass. */
static ist_status use_device(things *t, ist_error *e) {
    static const ist_device_options options = {.cache_dir = "off"};
    static const ist_frame_scope scope = {0};
    size_t global = 64, local = 64;
    cl_event done = NULL;
    IST_TRY(ist_device_open(&options, &t->device, e));
    size_t align = ist_device_alignment(t->device);
    IST_TRY(ist_buffer_create(t->device, 4 * align + 4096, "buffer", &t->buffer, e));
    IST_TRY(ist_buffer_sub(t->device, t->buffer, align, 1024, "window", &t->window, e));
    IST_TRY(ist_pinned_create(t->device, 1024, "pinned", &t->pinned, e));
    IST_TRY(ist_kernel_create(t->device, "probe/int64", NULL, "-DTEST_FAULTS", "probe", &t->kernel, e));
    cl_int rc = clSetKernelArg(t->kernel, 0, sizeof t->buffer, &t->buffer);
    if (rc == CL_SUCCESS) rc = clSetKernelArg(t->kernel, 1, sizeof t->window, &t->window);
    if (rc != CL_SUCCESS) return ist_fail_cl(e, rc, "clSetKernelArg", "kernel probe");
    IST_TRY(ist_write(t->device, scope, t->buffer, 0, 1024, t->pinned.data, false, "in", e));
    IST_TRY(ist_copy(t->device, scope, t->buffer, 0, t->buffer, 2048, 1024, "copy", e));
    IST_TRY(ist_enqueue(t->device, t->kernel, 1, &global, &local, "probe", e));
    IST_TRY(ist_read(t->device, scope, t->buffer, 0, 1024, t->pinned.data, &done, "out", e));
    ist_status flushed = ist_flush(t->device, scope, e), waited;
    ist_error *second = flushed == IST_OK ? e : NULL; /* the first failure is the one to report */
    waited = ist_wait(t->device, scope, &done, "frame", second);
    if (flushed != IST_OK || waited != IST_OK) return flushed != IST_OK ? flushed : waited;
    return ist_finish(t->device, scope, "end", e);
}

static void drop(things *t) {
    if (!t->device) return;
    ist_kernel_release(&t->kernel);
    ist_pinned_release(t->device, &t->pinned);
    ist_buffer_release(t->device, &t->window);
    ist_buffer_release(t->device, &t->buffer);
    ist_device_close(&t->device);
}

/* Calls whose failure nobody may swallow. (A probe that fails is a missing capability and a device that does not answer
 * is left out of the list: no error.) */
static bool must_fail(const char *call) {
    static const char *const calls[] = {"clCreateContext",     "clCreateCommandQueue", "clCreateBuffer",
                                        "clCreateSubBuffer",   "clEnqueueMapBuffer",   "clEnqueueWriteBuffer",
                                        "clEnqueueReadBuffer", "clEnqueueCopyBuffer",  "clFlush",
                                        "clWaitForEvents",     "clGetPlatformIDs"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(calls[i], call)) return true;
    return false;
}

static long inject_everywhere(cl_int code) {
    static const char *names[FAULT_NAMES];
    long failures = 0, count;
    things whole = {0};
    faults_arm(0, CL_SUCCESS);
    cr_assert_eq(use_device(&whole, &err), IST_OK, "%s", err.text);
    count = fault.calls;
    cr_assert_lt(count, FAULT_NAMES);
    memcpy(names, fault.names, sizeof names);
    drop(&whole);
    for (long at = 1; at <= count; at++) {
        if (!fault_worth(names, count, at, 3)) continue;
        things t = {0};
        ist_error e = {0};
        long objects = fault.objects, before = blocks;
        faults_arm(at, code);
        ist_status status = use_device(&t, &e);
        const char *hit = fault.hit;
        faults_arm(0, CL_SUCCESS);
        drop(&t);
        cr_expect_eq(fault.objects, objects, "call %ld (%s): %ld OpenCL objects leaked", at, hit ? hit : "none",
                     fault.objects - objects);
        cr_expect_eq(blocks, before, "call %ld (%s): %ld allocations leaked", at, hit ? hit : "none", blocks - before);
        cr_assert_not_null(hit, "call %ld (%s) did not come again", at, names[at - 1]);
        if (must_fail(hit)) cr_expect_neq(status, IST_OK, "call %ld: a failing %s went unnoticed", at, hit);
        if (status == IST_OK) continue;
        failures++;
        cr_expect_eq(e.code, status, "call %ld (%s)", at, hit);
        cr_expect_gt(strlen(e.text), 10u, "call %ld (%s): \"%s\"", at, hit, e.text);
    }
    return failures;
}

Test(device_memory, every_call_fails_once) {
    cr_expect_gt(inject_everywhere(CL_OUT_OF_RESOURCES), 20);
}

/* A device that was opened before it had a context. */
static void use_early(const char *failing) {
    things t = {0};
    ist_error e = {0}, again = {0};
    cl_mem mem = NULL;
    const long objects = fault.objects, before = blocks;
    faults_arm_call(failing, 1, CL_OUT_OF_RESOURCES);
    ist_status status = ist_device_open(&(ist_device_options){.early = true}, &t.device, &e);
    if (!status) status = ist_lane_open(t.device, &e);
    if (!status && *failing) { /* the probes did not have to be run, which would have needed it */
        status = ist_buffer_create(t.device, 4096, "early", &mem, &e);
        cr_expect_null(mem);
        cr_expect_eq(ist_device_ready(t.device, &again), status);
        cr_expect_str_eq(again.text, e.text);
        cr_expect_eq(ist_finish(t.device, (ist_frame_scope){0}, "end", NULL), status);
    }
    cr_expect_eq(status, *failing ? IST_E_DEVICE_MEMORY : IST_OK, "%s: %s", failing, e.text);
    if (*failing) cr_expect(strstr(e.text, failing), "%s", e.text);
    faults_arm(0, CL_SUCCESS);
    drop(&t);
    cr_expect_eq(fault.objects, objects, "%s: %ld OpenCL objects leaked", failing, fault.objects - objects);
    cr_expect_eq(blocks, before, "%s: %ld allocations leaked", failing, blocks - before);
}

Test(device_memory, opened_early) {
    use_early("clCreateContext");
    use_early("clCreateCommandQueue");
    use_early(""); /* closed while or after the context is made */
    things t = {0};
    const size_t align = ist_device_alignment(d);
    cr_assert_eq(ist_device_open(&(ist_device_options){.early = true}, &t.device, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_buffer_create(t.device, 4 * align, "buffer", &t.buffer, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_buffer_sub(t.device, t.buffer, align, align, "window", &t.window, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_device_ready(t.device, &err), IST_OK);
    cr_expect_not_null(ist_device_context(t.device));
    drop(&t);
}

Test(device_memory, allocation_failures_have_their_own_status) {
    const cl_int codes[] = {CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        cl_mem mem;
        faults_arm(1, codes[i]);
        cr_expect_eq(ist_buffer_create(d, 4096, "arena", &mem, &err), IST_E_DEVICE_MEMORY);
        cr_expect_str_eq(fault.hit, "clCreateBuffer");
        cr_expect(strstr(err.text, "arena, 4096 bytes"), "%s", err.text);
    }
    cl_mem mem;
    faults_arm(1, CL_INVALID_CONTEXT);
    cr_expect_eq(ist_buffer_create(d, 4096, "arena", &mem, &err), IST_E_DEVICE);
    cr_expect(strstr(err.text, "clCreateBuffer failed: CL_INVALID_CONTEXT (-34): arena"), "%s", err.text);
}
