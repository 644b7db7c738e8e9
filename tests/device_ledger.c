/* The ledger counts every crossing and every wait, per frame and in total, and keeps the latest entries. */
#include "device/state.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static ist_device *d;
static ist_error err;
static cl_mem mem;
static ist_transfers before; /* opening the device crosses too (probes) */

static void open_one(void) {
    cr_assert_eq(ist_device_open(NULL, &d, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_buffer_create(d, 4096, "test", &mem, &err), IST_OK, "%s", err.text);
    ist_ledger_totals(d, &before);
}

static void close_one(void) {
    ist_buffer_release(d, &mem);
    ist_device_close(&d);
}

TestSuite(device_ledger, .init = open_one, .fini = close_one);

static void expect_since_open(int writes, int reads, int waits, uint64_t up, uint64_t down) {
    ist_transfers t;
    ist_ledger_totals(d, &t);
    cr_expect_eq(t.writes - before.writes, writes);
    cr_expect_eq(t.reads - before.reads, reads);
    cr_expect_eq(t.waits - before.waits, waits);
    cr_expect_eq(t.h2d_bytes - before.h2d_bytes, up);
    cr_expect_eq(t.d2h_bytes - before.d2h_bytes, down);
}

Test(device_ledger, one_frame) {
    unsigned char src[300], dst[300];
    for (int i = 0; i < 300; i++) src[i] = (unsigned char)(i * 7);
    ist_transfers counts = {0};
    ist_frame_scope scope = {.frame = 5, .counts = &counts};
    cl_event done;
    int first_line = __LINE__ + 1;
    cr_assert_eq(ist_write(d, scope, mem, 100, 300, src, false, "pixels", &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_read(d, scope, mem, 100, 300, dst, &done, "packet", &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_flush(d, scope, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_wait(d, scope, &done, "frame", &err), IST_OK, "%s", err.text);
    cr_expect_null(done);
    cr_expect_eq(memcmp(src, dst, 300), 0);
    cr_expect_eq(counts.writes, 1);
    cr_expect_eq(counts.reads, 1);
    cr_expect_eq(counts.waits, 1);
    cr_expect_eq(counts.h2d_bytes, 300u);
    cr_expect_eq(counts.d2h_bytes, 300u);
    expect_since_open(1, 1, 1, 300, 300);

    ist_ledger_entry e[4];
    cr_assert_eq(ist_ledger_recent(d, e, 4), 4);
    const ist_crossing kinds[] = {IST_CROSS_WRITE, IST_CROSS_READ, IST_CROSS_FLUSH, IST_CROSS_WAIT};
    const char *const whats[] = {"pixels", "packet", "queue", "frame"};
    const size_t bytes[] = {300, 300, 0, 0};
    for (int i = 0; i < 4; i++) {
        cr_expect_eq(e[i].kind, kinds[i]);
        cr_expect_str_eq(e[i].what, whats[i]);
        cr_expect_eq(e[i].bytes, bytes[i]);
        cr_expect_eq(e[i].frame, 5u);
        cr_expect(e[i].kind == IST_CROSS_WAIT ? e[i].wait_ms > 0 && e[i].move_ms == 0 : e[i].wait_ms == 0);
        cr_expect_geq(e[i].move_ms, 0.0);
        if (i) cr_expect_geq(e[i].at_ms, e[i - 1].at_ms);
        cr_expect(strstr(e[i].site.file, "tests/device_ledger.c"), "%s", e[i].site.file);
        cr_expect_eq(e[i].site.line, first_line + i);
    }
}

Test(device_ledger, blocking_is_a_crossing_and_a_wait) {
    int value = 42, back = 0;
    ist_frame_scope setup = {0};
    cr_assert_eq(ist_write(d, setup, mem, 0, sizeof value, &value, true, "w", &err), IST_OK, "%s", err.text);
    expect_since_open(1, 0, 1, 4, 0);
    cr_assert_eq(ist_read(d, setup, mem, 0, sizeof back, &back, NULL, "r", &err), IST_OK, "%s", err.text);
    expect_since_open(1, 1, 2, 4, 4);
    cr_expect_eq(back, 42);
    cr_assert_eq(ist_finish(d, setup, "f", &err), IST_OK, "%s", err.text);
    expect_since_open(1, 1, 3, 4, 4);
}

Test(device_ledger, device_side_copies_do_not_cross) {
    int value = 7, back = 0;
    ist_frame_scope setup = {0};
    cr_assert_eq(ist_write(d, setup, mem, 0, sizeof value, &value, true, "w", &err), IST_OK);
    cr_assert_eq(ist_copy(d, setup, mem, 0, mem, 2048, sizeof value, "c", &err), IST_OK, "%s", err.text);
    expect_since_open(1, 0, 1, 4, 0);
    cr_assert_eq(ist_read(d, setup, mem, 2048, sizeof back, &back, NULL, "r", &err), IST_OK);
    cr_expect_eq(back, 7);
}

/* Each kind, with what it moves and where it was called. */
Test(device_ledger, set_up_leaves_records_too) {
    static const ist_crossing want[] = {IST_CROSS_BUILD, IST_CROSS_WAIT,  IST_CROSS_MAP,
                                        IST_CROSS_WAIT,  IST_CROSS_WRITE, IST_CROSS_COPY,
                                        IST_CROSS_WAIT,  IST_CROSS_UNMAP, IST_CROSS_WAIT};
    static const char *const whats[] = {"probe/int64", "ring", "ring",        "w",          "w",
                                        "c",           "end",  "host memory", "host memory"};
    static const size_t bytes[] = {0, 0, 64, 0, 64, 32, 0, 64, 0};
    enum { COUNT = sizeof want / sizeof *want };
    const ist_frame_scope frame = {.frame = 3};
    ist_pinned p;
    cl_kernel k;
    int here[COUNT], at = 0;
    here[at++] = __LINE__ + 1;
    cr_assert_eq(ist_kernel_create(d, "probe/int64", NULL, "-DLEDGER", "probe", &k, &err), IST_OK, "%s", err.text);
    ist_kernel_release(&k);
    here[at] = here[at + 1] = __LINE__ + 1;
    cr_assert_eq(ist_pinned_create(d, 64, "ring", &p, &err), IST_OK, "%s", err.text);
    memset(p.data, 5, 64);
    here[at + 2] = here[at + 3] = __LINE__ + 1;
    cr_assert_eq(ist_write(d, frame, mem, 0, 64, p.data, true, "w", &err), IST_OK, "%s", err.text);
    here[at + 4] = __LINE__ + 1;
    cr_assert_eq(ist_copy(d, frame, mem, 0, mem, 1024, 32, "c", &err), IST_OK, "%s", err.text);
    here[at + 5] = __LINE__ + 1;
    cr_assert_eq(ist_finish(d, frame, "end", &err), IST_OK, "%s", err.text);
    here[at + 6] = here[at + 7] = __LINE__ + 1;
    ist_pinned_release(d, &p);
    ist_ledger_entry e[COUNT];
    cr_assert_eq(ist_ledger_recent(d, e, COUNT), COUNT);
    for (int i = 0; i < COUNT; i++) {
        cr_expect_eq(e[i].kind, want[i], "entry %d is of kind %d", i, (int)e[i].kind);
        cr_expect_str_eq(e[i].what, whats[i]);
        cr_expect(want[i] == IST_CROSS_BUILD ? e[i].bytes > 100 : e[i].bytes == bytes[i], "entry %d", i);
        cr_expect_eq(e[i].frame, i >= 3 && i <= 6 ? 3u : 0u);
        cr_expect_eq(e[i].site.line, here[i], "entry %d is of line %d", i, e[i].site.line);
        cr_expect_str_eq(e[i].site.function + strlen(e[i].site.function) - 4, "impl");
        cr_expect(want[i] == IST_CROSS_WAIT ? e[i].move_ms == 0 : e[i].wait_ms == 0);
    }
}

Test(device_ledger, failed_calls_name_themselves_and_do_not_count) {
    char byte = 0;
    cl_event done = (cl_event)1;
    cr_expect_eq(ist_write(d, (ist_frame_scope){0}, mem, 4096, 1, &byte, true, "past the end", &err), IST_E_DEVICE);
    cr_expect(strstr(err.text, "clEnqueueWriteBuffer failed: CL_INVALID_VALUE (-30): past the end, 1 bytes"), "%s",
              err.text);
    cr_expect_eq(ist_read(d, (ist_frame_scope){0}, mem, 4000, 97, &byte, &done, "packet", &err), IST_E_DEVICE);
    cr_expect(strstr(err.text, "packet, 97 bytes"), "%s", err.text);
    cr_expect_null(done);
    expect_since_open(0, 0, 0, 0, 0);
}

Test(device_ledger, ring_keeps_the_latest_and_totals_stay_exact) {
    static const char *const names[2] = {"even", "odd"};
    const int more = IST_LEDGER_RING + 10;
    for (int i = 0; i < more; i++) {
        ist_ledger_entry write = ist_ledger_begin(IST_HERE, IST_CROSS_WRITE, 3, names[i % 2]);
        ist_ledger_moved(d, (ist_frame_scope){.frame = (uint64_t)i}, &write);
    }
    expect_since_open(more, 0, 0, (uint64_t)more * 3, 0);
    ist_ledger_entry *e = calloc(IST_LEDGER_RING + 5, sizeof *e);
    cr_assert_eq(ist_ledger_recent(d, e, IST_LEDGER_RING + 5), IST_LEDGER_RING);
    for (int i = 0; i < IST_LEDGER_RING; i++) {
        cr_assert_eq(e[i].frame, (uint64_t)(i + 10));
        cr_assert_str_eq(e[i].what, names[i % 2]);
    }
    cr_assert_eq(ist_ledger_recent(d, e, 2), 2);
    cr_expect_eq(e[1].frame, (uint64_t)more - 1);
    cr_expect_eq(ist_ledger_recent(d, e, 0), 0);
    cr_expect_eq(ist_ledger_recent(d, NULL, -1), 0);
    uint64_t cursor = 0, missed = 0;
    cr_assert_eq(ist_ledger_since(d, &cursor, &missed, e, 5), 5);
    cr_expect_eq(cursor, missed + 5); /* what opening the device recorded is missed too */
    cr_expect_eq(e[0].frame, 10);
    cr_assert_eq(ist_ledger_since(d, &cursor, &missed, e, IST_LEDGER_RING), IST_LEDGER_RING - 5);
    cr_expect_eq(e[0].frame, 15);
    cr_expect_eq(cursor, missed + IST_LEDGER_RING);
    cr_expect_geq(missed, 10);
    cr_expect_eq(ist_ledger_since(d, &cursor, &missed, e, 5), 0);
    cr_expect_eq(cursor, missed + IST_LEDGER_RING);
    free(e);
}

/* One thread enqueues while another waits: no count may get lost. */
static void *record_many(void *counts) {
    ist_ledger_entry read = ist_ledger_begin(IST_HERE, IST_CROSS_READ, 1, "thread");
    for (int i = 0; i < 20000; i++) ist_ledger_record(d, (ist_frame_scope){.counts = counts}, &read);
    return NULL;
}

Test(device_ledger, two_threads) {
    ist_transfers counts = {0};
    pthread_t other;
    cr_assert_eq(pthread_create(&other, NULL, record_many, &counts), 0);
    record_many(&counts);
    pthread_join(other, NULL);
    cr_expect_eq(counts.reads, 40000);
    expect_since_open(0, 40000, 0, 0, 40000);
}
