/* Recordings of the layer: whole, cut off anywhere, and hostile. */
#include "audit/load.h"
#include "audit/wire.h"

#include <criterion/criterion.h>
#include <string.h>

typedef union recording_bytes {
    char c[IST_AUDIT_WIRE_HEADER + 4096];
    uint64_t alignment;
} recording_bytes;

typedef struct recording {
    recording_bytes raw;
    char *bytes; /* raw.c; not copied with the rest */
    size_t size;
} recording;

/* `record` is the start of the record, the rest is the text. */
static void add(recording *r, uint32_t type, const void *record, size_t size, const char *text) {
    size_t room = text ? 16 : 0;
    ist_audit_wire_record head = {type, (uint32_t)(size + room)};
    char *to = r->raw.c + r->size;
    memcpy(to, record, size);
    memcpy(to, &head, sizeof head);
    if (text) strcpy(to + size, text);
    r->size += size + room;
}

static void make_recording(recording *r) {
    ist_audit_wire_header header = {IST_AUDIT_WIRE_MAGIC, 7, 1000, 3};
    ist_audit_wire_site site = {.address = 0x1010, .offset = 0x10};
    ist_audit_wire_label label = {.head = {0}};
    memset(r, 0, sizeof *r);
    r->bytes = r->raw.c;
    r->size = IST_AUDIT_WIRE_HEADER;
    memcpy(r->bytes, &header, sizeof header);
    add(r, IST_AUDIT_WIRE_SITE, &site, sizeof site, "/lib/x.so");
    add(r, IST_AUDIT_WIRE_LABEL, &label, sizeof label, "clFinish");
    for (uint32_t k = 0; k < 2; k++) {
        ist_audit_wire_event e = {.op = IST_AUDIT_WAIT,
                                  .thread = k,
                                  .label = IST_AUDIT_NONE,
                                  .repeat = 1,
                                  .queue = 0x5000,
                                  .start_ns = 9000000 - k * 1000000,
                                  .wait_ns = 2000000};
        add(r, IST_AUDIT_WIRE_EVENT, &e, sizeof e, NULL);
    }
}

Test(load, a_whole_recording) {
    recording r;
    make_recording(&r);
    ist_audit_log log = {0};
    cr_assert_eq(ist_audit_load(&log, r.bytes, r.size, NULL), IST_OK);
    cr_assert_eq(log.event_count, 2);
    cr_expect_eq(log.dropped, 3);
    ist_audit_sort(&log);
    cr_expect_float_eq(log.events[0].at_ms, 0, 1e-9);
    cr_expect_float_eq(log.events[1].at_ms, 1, 1e-9);
    cr_expect_eq(log.events[0].thread, 0);
    cr_expect_eq(log.events[1].thread, 1);
    cr_expect_float_eq(log.events[0].wait_ms, 2, 1e-9);
    cr_expect_str_eq(ist_audit_label(&log, log.events[0].entry), "clFinish");
    cr_expect_str_eq(log.sites[log.events[0].site].module, "/lib/x.so");
    ist_audit_log_free(&log);
}

/* A wait says where in the file the download is that it is for. */
Test(load, waits_know_their_results) {
    recording r;
    make_recording(&r);
    for (int k = 0; k < 2; k++) {
        ist_audit_wire_event read = {.op = IST_AUDIT_READ, .label = IST_AUDIT_NONE, .repeat = 1, .offset = 64};
        ist_audit_wire_event wait = {.op = IST_AUDIT_WAIT, .label = IST_AUDIT_NONE, .repeat = 1, .offset = r.size};
        add(&r, IST_AUDIT_WIRE_EVENT, &read, sizeof read, NULL);
        add(&r, IST_AUDIT_WIRE_EVENT, &wait, sizeof wait, NULL);
    }
    ist_audit_log log = {0};
    cr_assert_eq(ist_audit_load(&log, r.bytes, r.size, NULL), IST_OK);
    cr_assert_eq(log.event_count, 6);
    cr_expect_eq(log.events[0].result, 0); /* waits for no download */
    cr_expect_neq(log.events[2].result, 0);
    cr_expect_eq(log.events[2].offset, 64);
    cr_expect_eq(log.events[3].result, log.events[2].result);
    cr_expect_eq(log.events[3].offset, 0);
    cr_expect_eq(log.events[5].result, log.events[4].result);
    cr_expect_neq(log.events[4].result, log.events[2].result);
    ist_audit_log_free(&log);
}

Test(load, two_processes_share_no_handles) {
    recording a, b;
    make_recording(&a);
    make_recording(&b);
    ist_audit_log log = {0};
    b.bytes[8] = 8; /* pid */
    cr_assert_eq(ist_audit_load(&log, a.bytes, a.size, NULL), IST_OK);
    cr_assert_eq(ist_audit_load(&log, b.bytes, b.size, NULL), IST_OK);
    cr_assert_eq(log.event_count, 4);
    cr_expect_neq(log.events[0].queue, log.events[2].queue);
    ist_audit_sort(&log);
    uint32_t most = 0;
    for (size_t i = 0; i < 4; i++) most = log.events[i].thread > most ? log.events[i].thread : most;
    cr_expect_eq(most, 3);
    ist_audit_log_free(&log);
}

Test(load, cut_off_anywhere) {
    recording r;
    make_recording(&r);
    for (size_t n = 0; n <= r.size; n++) {
        ist_audit_log log = {0};
        ist_status status = ist_audit_load(&log, r.bytes, n, NULL);
        cr_expect_eq(status, n < IST_AUDIT_WIRE_HEADER ? IST_E_INPUT : IST_OK);
        size_t tail = r.size - n, want = tail == 0 ? 2 : tail <= sizeof(ist_audit_wire_event) ? 1 : 0;
        if (!status) cr_expect_eq(log.event_count, want, "%zu bytes give %zu events", n, log.event_count);
        ist_audit_log_free(&log);
    }
}

Test(load, damaged_bytes_do_no_harm) {
    uint32_t seed = 12345;
    for (int round = 0; round < 20000; round++) {
        recording r;
        make_recording(&r);
        ist_audit_log log = {0};
        for (int k = 0; k < 4; k++) {
            seed = seed * 1664525u + 1013904223u;
            size_t at = IST_AUDIT_WIRE_HEADER + (seed >> 8) % (r.size - IST_AUDIT_WIRE_HEADER);
            r.bytes[at] = (char)(seed >> 3);
        }
        cr_assert_eq(ist_audit_load(&log, r.bytes, r.size, NULL), IST_OK);
        ist_audit_sort(&log);
        ist_audit_frames frames;
        ist_audit_report report;
        cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
        cr_assert_eq(ist_audit_judge(&log, frames, &report, NULL), IST_OK);
        ist_audit_report_free(&report);
        ist_audit_log_free(&log);
    }
}

Test(load, refuses_other_files) {
    recording r;
    make_recording(&r);
    ist_audit_log log = {0};
    ist_error err;
    r.bytes[0] ^= 1;
    cr_expect_eq(ist_audit_load(&log, r.bytes, r.size, &err), IST_E_INPUT);
    cr_expect_eq(ist_audit_load(&log, r.bytes, 0, &err), IST_E_INPUT);
    cr_expect_eq(log.event_count, 0);
}

enum { STAGING = 0x77, DEVICE = 0x88 };

static void add_move(ist_audit_log *log, ist_audit_op op, uint16_t flags, uint64_t object) {
    ist_audit_event e = {.op = (uint16_t)op, .flags = flags, .object = object, .bytes = 64, .repeat = 1};
    if (op == IST_AUDIT_COPY) {
        e.host = STAGING;
        e.object = flags & IST_AUDIT_FROM_DEVICE ? STAGING : DEVICE;
    }
    cr_assert_eq(ist_audit_add_event(log, &e, NULL), IST_OK);
}

/* The copy into host memory that nobody maps is a crossing; where a map follows, the map is. */
Test(load, copies_into_host_memory) {
    ist_audit_log log = {0};
    add_move(&log, IST_AUDIT_COPY, IST_AUDIT_FROM_DEVICE, 0);
    add_move(&log, IST_AUDIT_COPY, IST_AUDIT_FROM_DEVICE, 0);
    add_move(&log, IST_AUDIT_MAP, IST_AUDIT_FROM_DEVICE, STAGING);
    add_move(&log, IST_AUDIT_UNMAP, 0, STAGING);
    add_move(&log, IST_AUDIT_COPY, IST_AUDIT_FROM_DEVICE, 0);
    add_move(&log, IST_AUDIT_MAP, IST_AUDIT_FROM_DEVICE, DEVICE);
    const bool down[] = {true, false, true, false, true, true};
    ist_audit_settle_copies(&log);
    for (size_t i = 0; i < log.event_count; i++) {
        cr_expect_eq(ist_audit_is_download(&log.events[i]), down[i], "event %zu", i);
        cr_expect(!ist_audit_is_upload(&log.events[i]) && !log.events[i].host, "event %zu", i);
    }
    ist_audit_log_free(&log);
}

Test(load, copies_out_of_host_memory) {
    ist_audit_log log = {0};
    add_move(&log, IST_AUDIT_CREATE, IST_AUDIT_TO_DEVICE, STAGING);
    add_move(&log, IST_AUDIT_COPY, IST_AUDIT_TO_DEVICE, 0);
    add_move(&log, IST_AUDIT_COPY, IST_AUDIT_TO_DEVICE, 0);
    add_move(&log, IST_AUDIT_UNMAP, IST_AUDIT_TO_DEVICE, STAGING);
    add_move(&log, IST_AUDIT_COPY, IST_AUDIT_TO_DEVICE, 0);
    add_move(&log, IST_AUDIT_WRITE, 0, DEVICE);
    add_move(&log, IST_AUDIT_COPY, IST_AUDIT_TO_DEVICE, 0);
    const bool up[] = {true, false, true, true, false, true, true};
    ist_audit_settle_copies(&log);
    for (size_t i = 0; i < log.event_count; i++) {
        cr_expect_eq(ist_audit_is_upload(&log.events[i]), up[i], "event %zu", i);
        cr_expect(!ist_audit_is_download(&log.events[i]), "event %zu", i);
    }
    ist_audit_log_free(&log);
}
