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
    cr_assert_eq(ist_write(d, scope, mem, 100, 300, src, false, "pixels", &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_read(d, scope, mem, 100, 300, dst, &done, "packet", &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_flush(d, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_wait(d, scope, &done, "frame", &err), IST_OK, "%s", err.text);
    cr_expect_null(done);
    cr_expect_eq(memcmp(src, dst, 300), 0);
    cr_expect_eq(counts.writes, 1);
    cr_expect_eq(counts.reads, 1);
    cr_expect_eq(counts.waits, 1);
    cr_expect_eq(counts.h2d_bytes, 300u);
    cr_expect_eq(counts.d2h_bytes, 300u);
    expect_since_open(1, 1, 1, 300, 300);

    ist_ledger_entry e[3];
    cr_assert_eq(ist_ledger_recent(d, e, 3), 3);
    const ist_crossing kinds[] = {IST_CROSS_WRITE, IST_CROSS_READ, IST_CROSS_WAIT};
    const char *const whats[] = {"pixels", "packet", "frame"};
    const size_t bytes[] = {300, 300, 0};
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(e[i].kind, kinds[i]);
        cr_expect_str_eq(e[i].what, whats[i]);
        cr_expect_eq(e[i].bytes, bytes[i]);
        cr_expect_eq(e[i].frame, 5u);
        cr_expect_geq(e[i].host_ms, 0.0);
        if (i) cr_expect_geq(e[i].at_ms, e[i - 1].at_ms);
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
    cr_assert_eq(ist_copy(d, mem, 0, mem, 2048, sizeof value, "c", &err), IST_OK, "%s", err.text);
    expect_since_open(1, 0, 1, 4, 0);
    cr_assert_eq(ist_read(d, setup, mem, 2048, sizeof back, &back, NULL, "r", &err), IST_OK);
    cr_expect_eq(back, 7);
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
    for (int i = 0; i < more; i++)
        ist_ledger_record(d, (ist_frame_scope){.frame = (uint64_t)i}, IST_CROSS_WRITE, 3, names[i % 2], ist_clock_ms());
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
    for (int i = 0; i < 20000; i++)
        ist_ledger_record(d, (ist_frame_scope){.counts = counts}, IST_CROSS_READ, 1, "thread", 0);
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
