/* Each rule on a log that breaks it and on one that nearly does. */
#include "support/made_up_log.h"

enum { PASSES = 5, BLOCK = IST_AUDIT_BLOCKING, WHOLE = IST_AUDIT_WHOLE_QUEUE };

typedef void body(ist_audit_log *log, int pass);

static ist_audit_report judge_loop(ist_audit_log *log, body *pass) {
    *log = made_log();
    for (int i = 0; i < PASSES; i++) pass(log, i);
    return made_judge(log, NULL);
}

/* Exactly this finding above 'necessary', or none when `severity` is NECESSARY. */
static void expect_only(body *pass, ist_audit_category category, ist_audit_severity severity, uint32_t place,
                        uint64_t count) {
    ist_audit_log log;
    ist_audit_report r = judge_loop(&log, pass);
    const ist_audit_finding *f = made_find(&r, category, place);
    cr_expect_eq(r.frames.count, PASSES, "%u frames", r.frames.count);
    for (size_t k = 0; k < made_above(&r); k++)
        cr_expect(&r.findings[k] == f, "%s at line %u was not planted", ist_audit_category_name(r.findings[k].category),
                  r.findings[k].site);
    if (severity != IST_AUDIT_NECESSARY) {
        cr_assert_not_null(f, "%s at line %u was not found", ist_audit_category_name(category), place);
        cr_expect_eq(f->severity, severity, "%s is %s", ist_audit_category_name(category),
                     ist_audit_severity_name(f->severity));
        cr_expect_eq(f->count, count, "counted %llu times, want %llu", (unsigned long long)f->count,
                     (unsigned long long)count);
    }
    ist_audit_report_free(&r);
    ist_audit_log_free(&log);
}

#define EXPECT_NOTHING(pass) expect_only(pass, IST_AUDIT_CAT_UPLOAD, IST_AUDIT_NECESSARY, 0, 0)

/* ---- what is right ---- */

static void clean(ist_audit_log *log, int pass) {
    MADE_ADD(log, WRITE, 10, .bytes = 4096, .queue = 1, .object = 1, .host = 0x1000, .hash = 100 + (uint64_t)pass);
    MADE_LAUNCH(log, 11, "a");
    MADE_ADD(log, READ, 12, .bytes = 64, .queue = 1, .object = 2, .host = 0x9000, .hash = 900 + (uint64_t)pass);
    MADE_ADD(log, WAIT, 13, .bytes = 64, .queue = 1, .flags = WHOLE);
}

Test(rules, a_clean_loop_has_no_finding) {
    EXPECT_NOTHING(clean);
}

static void reused_staging(ist_audit_log *log, int pass) {
    MADE_ADD(log, WRITE, 10, .bytes = 4096, .object = 1, .host = 0x1000, .hash = 100 + (uint64_t)pass);
    MADE_LAUNCH(log, 11, "a");
    MADE_ADD(log, READ, 12, .bytes = 4096, .object = 2, .host = 0x1000, .hash = 900 + (uint64_t)pass, .flags = BLOCK);
}

Test(rules, one_host_buffer_for_both_ways_is_no_chain) {
    EXPECT_NOTHING(reused_staging);
}

static void echo(ist_audit_log *log, int pass) {
    MADE_ADD(log, WRITE, 10, .bytes = 4096, .object = 1, .hash = 100 + (uint64_t)pass);
    MADE_ADD(log, COPY, 11, .object = 2);
    MADE_LAUNCH(log, 12, "a");
    MADE_ADD(log, READ, 13, .bytes = 4096, .object = 2, .hash = 100 + (uint64_t)pass, .flags = BLOCK);
}

Test(rules, reading_back_what_was_written_is_no_chain) {
    EXPECT_NOTHING(echo);
}

/* ---- chains and round trips ---- */

static void chain(ist_audit_log *log, int pass) {
    clean(log, pass);
    MADE_LAUNCH(log, 14, "b");
    MADE_ADD(log, READ, 15, .bytes = 512, .object = 3, .host = 0x100, .hash = 500 + (uint64_t)pass, .flags = BLOCK);
    MADE_ADD(log, WRITE, 16, .bytes = 512, .object = 4, .host = 0x800, .hash = 500 + (uint64_t)pass);
}

Test(rules, same_content_down_and_up_is_a_chain) {
    ist_audit_log log;
    ist_audit_report r = judge_loop(&log, chain);
    const ist_audit_finding *f = made_find(&r, IST_AUDIT_CAT_CHAIN, 15);
    cr_assert_not_null(f);
    cr_expect_eq(f->severity, IST_AUDIT_CRITICAL);
    cr_expect_eq(f->partner_site, 16);
    cr_expect_eq(f->bytes, PASSES * 2 * 512);
    cr_expect_eq(f->frames, PASSES);
    cr_expect_null(made_find(&r, IST_AUDIT_CAT_CHAIN, 16));
    cr_expect_null(made_find(&r, IST_AUDIT_CAT_UPLOAD, 16));
    cr_expect_null(made_find(&r, IST_AUDIT_CAT_DOWNLOAD, 15));
    ist_audit_report_free(&r);
    ist_audit_log_free(&log);
}

static void round_trip(ist_audit_log *log, int pass) {
    MADE_ADD(log, WRITE, 10, .bytes = 64, .object = 1, .hash = 10 + (uint64_t)pass);
    MADE_LAUNCH(log, 11, "a");
    MADE_ADD(log, READ, 12, .bytes = 512, .object = 3, .host = 0x100, .hash = 500 + (uint64_t)pass, .flags = BLOCK);
    MADE_ADD(log, WRITE, 13, .bytes = 512, .object = 4, .host = 0x8000, .hash = 700 + (uint64_t)pass);
    MADE_LAUNCH(log, 14, "b");
    MADE_ADD(log, READ, 15, .bytes = 64, .object = 5, .hash = 800 + (uint64_t)pass, .flags = BLOCK);
}

Test(rules, work_of_the_host_between_kernels_is_a_round_trip) {
    expect_only(round_trip, IST_AUDIT_CAT_ROUND_TRIP, IST_AUDIT_CRITICAL, 12, PASSES);
}

static void independent(ist_audit_log *log, int pass) {
    MADE_LAUNCH(log, 11, "a");
    MADE_ADD(log, READ, 12, .bytes = 512, .object = 3, .hash = 500 + (uint64_t)pass);
    MADE_ADD(log, WRITE, 13, .bytes = 512, .object = 4, .hash = 700 + (uint64_t)pass);
    MADE_LAUNCH(log, 14, "b");
    MADE_ADD(log, WAIT, 15, .bytes = 512);
}

Test(rules, a_read_nobody_waited_for_is_no_round_trip) {
    EXPECT_NOTHING(independent);
}

Test(rules, a_single_chain_without_frames_is_medium) {
    ist_audit_log log = made_log();
    MADE_LAUNCH(&log, 1, "a");
    MADE_ADD(&log, READ, 2, .bytes = 64, .hash = 5, .flags = BLOCK);
    MADE_ADD(&log, WRITE, 3, .bytes = 64, .hash = 5);
    MADE_LAUNCH(&log, 4, "b");
    ist_audit_report r = made_judge(&log, NULL);
    const ist_audit_finding *f = made_find(&r, IST_AUDIT_CAT_CHAIN, 2);
    cr_assert_not_null(f);
    cr_expect_eq(f->severity, IST_AUDIT_MEDIUM);
    cr_expect_eq(made_above(&r), 1);
    ist_audit_report_free(&r);
    ist_audit_log_free(&log);
}

Test(rules, host_memory_used_again_in_set_up_is_no_round_trip) {
    ist_audit_log log = made_log();
    for (uint64_t k = 0; k < 2; k++) {
        MADE_ADD(&log, WRITE, 1, .bytes = 64, .host = 0x100, .hash = 20 + k);
        MADE_LAUNCH(&log, 2, "probe");
        MADE_ADD(&log, READ, 3, .bytes = 64, .host = 0x100, .hash = 10 + k, .flags = BLOCK);
    }
    ist_audit_report r = made_judge(&log, NULL);
    cr_expect_eq(r.frames.count, 0);
    cr_expect_eq(made_above(&r), 0);
    ist_audit_report_free(&r);
    ist_audit_log_free(&log);
}

static void edited_in_place(ist_audit_log *log, int pass) {
    MADE_LAUNCH(log, 11, "a");
    MADE_ADD(log, READ, 12, .bytes = 64, .object = 1, .host = 0x100, .hash = 10 + (uint64_t)pass, .flags = BLOCK);
    MADE_ADD(log, WRITE, 13, .bytes = 64, .object = 2, .host = 0x100, .hash = 50 + (uint64_t)pass);
    MADE_LAUNCH(log, 14, "b");
}

Test(rules, host_memory_edited_between_kernels_is_a_round_trip) {
    expect_only(edited_in_place, IST_AUDIT_CAT_ROUND_TRIP, IST_AUDIT_CRITICAL, 12, PASSES);
}

/* The pair is of one host range; the download in between belongs to nothing. */
static void edited_beside_another(ist_audit_log *log, int pass) {
    MADE_LAUNCH(log, 11, "a");
    MADE_ADD(log, READ, 12, .bytes = 64, .object = 1, .host = 0x100, .hash = 10 + (uint64_t)pass, .flags = BLOCK);
    MADE_ADD(log, READ, 13, .bytes = 64, .object = 3, .host = 0x900, .hash = 70 + (uint64_t)pass);
    MADE_ADD(log, WRITE, 14, .bytes = 64, .object = 2, .host = 0x120, .hash = 50 + (uint64_t)pass);
    MADE_LAUNCH(log, 15, "b");
}

Test(rules, a_round_trip_is_found_by_its_host_memory) {
    expect_only(edited_beside_another, IST_AUDIT_CAT_ROUND_TRIP, IST_AUDIT_CRITICAL, 12, PASSES);
}

Test(rules, equal_bytes_of_different_size_are_no_chain) {
    ist_audit_log log = made_log();
    MADE_ADD(&log, READ, 2, .bytes = 64, .hash = 5, .flags = BLOCK);
    MADE_ADD(&log, WRITE, 3, .bytes = 32, .hash = 5);
    MADE_ADD(&log, READ, 4, .bytes = 8, .hash = 6, .flags = BLOCK);
    MADE_ADD(&log, WRITE, 5, .bytes = 8, .hash = 6);
    ist_audit_report r = made_judge(&log, NULL);
    cr_expect_eq(made_above(&r), 0);
    ist_audit_report_free(&r);
    ist_audit_log_free(&log);
}

/* ---- one by one ---- */

static void scalar_reads(ist_audit_log *log, int pass) {
    (void)pass;
    MADE_LAUNCH(log, 11, "a");
    for (int k = 0; k < 3; k++) MADE_ADD(log, READ, 12, .bytes = 4, .flags = BLOCK);
}

Test(rules, three_scalars_per_frame) {
    expect_only(scalar_reads, IST_AUDIT_CAT_SCALAR_READ, IST_AUDIT_CRITICAL, 12, 3 * PASSES);
}

static void one_scalar(ist_audit_log *log, int pass) {
    (void)pass;
    MADE_LAUNCH(log, 11, "a");
    MADE_ADD(log, READ, 12, .bytes = 4, .flags = BLOCK);
}

Test(rules, one_scalar_per_frame_is_a_result) {
    EXPECT_NOTHING(one_scalar);
}

static void scalar_writes(ist_audit_log *log, int pass) {
    for (int k = 0; k < 4; k++)
        MADE_ADD(log, WRITE, 9, .bytes = 16, .object = 1, .offset = 16 * (uint64_t)k,
                 .hash = 10 + (uint64_t)(pass * 4 + k));
    one_scalar(log, pass);
}

Test(rules, scalars_written_one_by_one) {
    expect_only(scalar_writes, IST_AUDIT_CAT_SCALAR_WRITE, IST_AUDIT_MEDIUM, 9, 4 * PASSES);
}

Test(rules, a_run_of_scalars_without_frames) {
    ist_audit_log log = made_log();
    MADE_LAUNCH(&log, 1, "a");
    for (int k = 0; k < 10; k++) MADE_ADD(&log, READ, 2, .bytes = 4, .flags = BLOCK);
    for (int k = 0; k < 3; k++) MADE_ADD(&log, READ, 3, .bytes = 4, .flags = BLOCK);
    ist_audit_report r = made_judge(&log, NULL);
    const ist_audit_finding *f = made_find(&r, IST_AUDIT_CAT_SCALAR_READ, 2);
    cr_assert_not_null(f);
    cr_expect_eq(f->count, 10);
    cr_expect_eq(made_above(&r), 1);
    ist_audit_report_free(&r);
    ist_audit_log_free(&log);
}

/* ---- uploads of what is there ---- */

static void upload_again(ist_audit_log *log, int pass, uint64_t bytes, uint16_t flags) {
    MADE_ADD(log, WRITE, 8, .bytes = bytes, .object = 7, .hash = 77, .flags = flags);
    clean(log, pass);
}
static void large_constant_again(ist_audit_log *log, int pass) {
    upload_again(log, pass, 1 << 20, IST_AUDIT_CONSTANT);
}
static void small_constant_again(ist_audit_log *log, int pass) {
    upload_again(log, pass, 256, IST_AUDIT_CONSTANT);
}
static void perhaps_changed(ist_audit_log *log, int pass) {
    upload_again(log, pass, 1 << 20, 0);
}
static void refilled(ist_audit_log *log, int pass) {
    upload_again(log, pass, 1 << 20, 0);
    MADE_ADD(log, FILL, 20, .object = 7);
}
static void read_back_too(ist_audit_log *log, int pass) {
    upload_again(log, pass, 1 << 20, 0);
    MADE_ADD(log, READ, 20, .object = 7, .bytes = 64, .hash = 3000 + (uint64_t)pass);
    MADE_ADD(log, WAIT, 21, .bytes = 64);
}

Test(rules, unchanged_uploads) {
    expect_only(large_constant_again, IST_AUDIT_CAT_REDUNDANT_UPLOAD, IST_AUDIT_CRITICAL, 8, PASSES - 1);
    expect_only(small_constant_again, IST_AUDIT_CAT_REDUNDANT_UPLOAD, IST_AUDIT_MEDIUM, 8, PASSES - 1);
    expect_only(perhaps_changed, IST_AUDIT_CAT_REDUNDANT_UPLOAD, IST_AUDIT_MINOR, 8, PASSES - 1);
    EXPECT_NOTHING(refilled);
    EXPECT_NOTHING(read_back_too);
}

/* ---- uploads for nothing ---- */

/* The finding above 'necessary' at place 1 of a log without frames: its category, or -1. */
static int category_at_first(ist_audit_log *log) {
    ist_audit_report r = made_judge(log, NULL);
    cr_expect_leq(made_above(&r), 1);
    int found = -1;
    for (size_t k = 0; k < r.finding_count; k++) {
        const ist_audit_finding *f = &r.findings[k];
        if (f->severity == IST_AUDIT_NECESSARY) continue;
        cr_expect_eq(f->severity, IST_AUDIT_MINOR);
        if (f->site == 1) found = (int)f->category;
    }
    ist_audit_report_free(&r);
    ist_audit_log_free(log);
    return found;
}

typedef struct made_call {
    const char *what;
    ist_audit_op op;
    made_event e;
    bool decides;
} made_call;

enum { UP = IST_AUDIT_TO_DEVICE, DOWN = IST_AUDIT_FROM_DEVICE };

/* A word of a launch that leaves `object` alone and no other. */
static uint64_t leaves(uint64_t object, unsigned word) {
    unsigned bit = ist_audit_object_bit(object);
    return bit / 64 == word ? UINT64_C(1) << bit % 64 : 0;
}

Test(rules, what_uses_an_upload) {
    cr_assert_neq(ist_audit_object_bit(7), ist_audit_object_bit(9));
    const made_call between[] = {
        {"a kernel", IST_AUDIT_LAUNCH, {.queue = 1, .kernel = "a"}, true},
        {"a copy, from who knows where", IST_AUDIT_COPY, {.object = 9, .bytes = 8}, true},
        {"migration", IST_AUDIT_MIGRATE, {.object = 9}, true},
        {"a read", IST_AUDIT_READ, {.object = 7, .offset = 299, .bytes = 1}, true},
        {"a read of a box", IST_AUDIT_READ, {.object = 7, .offset = 0, .bytes = 8, .shape = 5}, true},
        {"a map to read", IST_AUDIT_MAP, {.flags = DOWN, .object = 7, .offset = 0, .bytes = 101}, true},
        {"another object of the same handle", IST_AUDIT_CREATE, {.object = 7, .bytes = 300}, true},
        {"a kernel that may take it",
         IST_AUDIT_LAUNCH,
         {.kernel = "a", .hash = leaves(9, 0), .offset = leaves(9, 1)},
         true},
        {"a kernel that does not",
         IST_AUDIT_LAUNCH,
         {.kernel = "a", .hash = leaves(7, 0), .offset = leaves(7, 1)},
         false},
        {"a read beside it", IST_AUDIT_READ, {.object = 7, .offset = 300, .bytes = 8}, false},
        {"a read of another object", IST_AUDIT_READ, {.object = 9, .offset = 100, .bytes = 8}, false},
        {"a map to write", IST_AUDIT_MAP, {.object = 7, .offset = 100, .bytes = 200}, false},
        {"a write of another object", IST_AUDIT_WRITE, {.object = 9, .offset = 100, .bytes = 200}, false},
        {"a wait", IST_AUDIT_WAIT, {.queue = 1, .flags = WHOLE}, false},
        {"a flush", IST_AUDIT_FLUSH, {.queue = 1}, false},
    };
    for (size_t i = 0; i < sizeof between / sizeof *between; i++) {
        ist_audit_log log = made_log();
        MADE_ADD(&log, WRITE, 1, .object = 7, .offset = 100, .bytes = 200, .hash = 1);
        made_add_(&log, between[i].op, 2, between[i].e);
        MADE_ADD(&log, WRITE, 3, .object = 7, .offset = 100, .bytes = 200, .hash = 2);
        cr_expect_eq(category_at_first(&log), between[i].decides ? -1 : IST_AUDIT_CAT_OVERWRITTEN, "%s",
                     between[i].what);
    }
}

Test(rules, what_overwrites_an_upload) {
    static const made_call first = {"",
                                    IST_AUDIT_UNMAP,
                                    {.flags = UP, .object = 7, .offset = 100, .bytes = 200},
                                    false},
                           box = {"", IST_AUDIT_UNMAP, {.flags = UP, .object = 7, .bytes = 200, .shape = 5}, false};
    static const made_call after[] = {
        {"an unmap", IST_AUDIT_UNMAP, {.flags = UP, .object = 7, .offset = 100, .bytes = 200}, true},
        {"a larger write", IST_AUDIT_WRITE, {.object = 7, .offset = 0, .bytes = 1000}, true},
        {"a fill", IST_AUDIT_FILL, {.object = 7, .offset = 100, .bytes = 300}, true},
        {"a smaller write", IST_AUDIT_WRITE, {.object = 7, .offset = 100, .bytes = 199}, false},
        {"a write behind it", IST_AUDIT_WRITE, {.object = 7, .offset = 101, .bytes = 1000}, false},
        {"a smaller fill", IST_AUDIT_FILL, {.object = 7, .offset = 101, .bytes = 199}, false},
        {"an unmap of nothing written", IST_AUDIT_UNMAP, {.object = 7, .offset = 100, .bytes = 200}, false},
        {"a box", IST_AUDIT_WRITE, {.object = 7, .offset = 100, .bytes = 200, .shape = 5}, false},
        {"nobody knows where", IST_AUDIT_WRITE, {.object = 7, .bytes = 999, .shape = IST_AUDIT_NO_SHAPE}, false},
    };
    static const made_call boxes[] = {
        {"the box", IST_AUDIT_WRITE, {.object = 7, .bytes = 200, .shape = 5}, true},
        {"the box, filled", IST_AUDIT_FILL, {.object = 7, .bytes = 200, .shape = 5}, true},
        {"another box", IST_AUDIT_WRITE, {.object = 7, .bytes = 200, .shape = 6}, false},
        {"a range", IST_AUDIT_WRITE, {.object = 7, .bytes = 200}, false},
    };
    for (size_t i = 0; i < sizeof after / sizeof *after + sizeof boxes / sizeof *boxes; i++) {
        bool range = i < sizeof after / sizeof *after;
        const made_call *over = range ? &after[i] : &boxes[i - sizeof after / sizeof *after],
                        *under = range ? &first : &box;
        ist_audit_log log = made_log();
        made_add_(&log, under->op, 1, under->e);
        made_add_(&log, over->op, 2, over->e);
        MADE_LAUNCH(&log, 3, "a");
        cr_expect_eq(category_at_first(&log), over->decides ? IST_AUDIT_CAT_OVERWRITTEN : -1, "%s", over->what);
    }
}

static void large_for_nothing(ist_audit_log *log, int pass) {
    MADE_ADD(log, WRITE, 32, .object = 7, .bytes = 1 << 20, .hash = 2000 + (uint64_t)pass);
    MADE_ADD(log, WRITE, 33, .object = 7, .bytes = 1 << 20, .hash = 4000 + (uint64_t)pass);
    clean(log, pass);
}
static void small_for_nothing(ist_audit_log *log, int pass) {
    MADE_ADD(log, WRITE, 32, .object = 7, .bytes = 256, .hash = 2000 + (uint64_t)pass);
    MADE_ADD(log, WRITE, 33, .object = 7, .bytes = 256, .hash = 4000 + (uint64_t)pass);
    clean(log, pass);
}
static void halves_for_nothing(ist_audit_log *log, int pass) {
    for (uint64_t k = 0; k < 2; k++)
        MADE_ADD(log, WRITE, 32, .object = 7, .offset = 256 * k, .bytes = 256, .hash = 2000 + 2 * (uint64_t)pass + k);
    MADE_ADD(log, WRITE, 33, .object = 7, .bytes = 512, .hash = 4000 + (uint64_t)pass);
    clean(log, pass);
}
static void same_for_nothing(ist_audit_log *log, int pass) {
    MADE_ADD(log, WRITE, 32, .object = 7, .bytes = 256, .hash = 2000 + (uint64_t)pass);
    MADE_ADD(log, WRITE, 33, .object = 7, .bytes = 256, .hash = 2000 + (uint64_t)pass);
    clean(log, pass);
}

Test(rules, uploads_for_nothing) {
    expect_only(large_for_nothing, IST_AUDIT_CAT_OVERWRITTEN, IST_AUDIT_CRITICAL, 32, PASSES);
    expect_only(small_for_nothing, IST_AUDIT_CAT_OVERWRITTEN, IST_AUDIT_MEDIUM, 32, PASSES);
    expect_only(halves_for_nothing, IST_AUDIT_CAT_OVERWRITTEN, IST_AUDIT_MEDIUM, 32, 2 * PASSES);
    expect_only(same_for_nothing, IST_AUDIT_CAT_REDUNDANT_UPLOAD, IST_AUDIT_MINOR, 33, PASSES);
}

/* ---- waits ---- */

static void wait_each(ist_audit_log *log, int pass) {
    for (int k = 0; k < 3; k++) {
        MADE_LAUNCH(log, 20, "s");
        MADE_ADD(log, WAIT, 21, .queue = 1, .flags = WHOLE);
    }
    clean(log, pass);
}
static void wait_for_nothing(ist_audit_log *log, int pass) {
    (void)pass;
    MADE_LAUNCH(log, 20, "s");
    MADE_ADD(log, WAIT, 21, .queue = 1, .flags = WHOLE);
}
static void wait_between(ist_audit_log *log, int pass) {
    MADE_LAUNCH(log, 20, "s");
    MADE_ADD(log, WAIT, 21, .queue = 1, .flags = WHOLE);
    clean(log, pass);
}
static void wait_twice(ist_audit_log *log, int pass) {
    clean(log, pass);
    MADE_ADD(log, WAIT, 22, .queue = 1, .flags = WHOLE);
}
static void wait_other_queue(ist_audit_log *log, int pass) {
    MADE_ADD(log, COPY, 9, .queue = 2, .object = 5);
    clean(log, pass);
    MADE_ADD(log, WAIT, 22, .queue = 2, .flags = WHOLE);
}

Test(rules, waits) {
    expect_only(wait_each, IST_AUDIT_CAT_WAIT_LOOP, IST_AUDIT_CRITICAL, 21, 3 * PASSES);
    expect_only(wait_for_nothing, IST_AUDIT_CAT_WAIT_LOOP, IST_AUDIT_MEDIUM, 21, PASSES);
    expect_only(wait_between, IST_AUDIT_CAT_WAIT_MID_FRAME, IST_AUDIT_MEDIUM, 21, PASSES);
    expect_only(wait_twice, IST_AUDIT_CAT_REDUNDANT_WAIT, IST_AUDIT_MINOR, 22, PASSES);
    EXPECT_NOTHING(wait_other_queue);
}

static void blocking_write(ist_audit_log *log, int pass) {
    MADE_ADD(log, WRITE, 9, .bytes = 100, .object = 9, .hash = 5000 + (uint64_t)pass, .flags = BLOCK);
    clean(log, pass);
}
static void two_blocking_reads(ist_audit_log *log, int pass) {
    clean(log, pass);
    MADE_ADD(log, READ, 20, .bytes = 100, .object = 9, .flags = BLOCK);
    MADE_ADD(log, READ, 21, .bytes = 100, .object = 9, .flags = BLOCK);
}

Test(rules, blocking_flags) {
    expect_only(blocking_write, IST_AUDIT_CAT_BLOCKING, IST_AUDIT_MEDIUM, 9, PASSES);
    expect_only(two_blocking_reads, IST_AUDIT_CAT_BLOCKING, IST_AUDIT_MINOR, 20, PASSES);
}

static void polls(ist_audit_log *log, int pass) {
    clean(log, pass);
    MADE_ADD(log, POLL, 30, .repeat = 40);
}
static void one_poll(ist_audit_log *log, int pass) {
    clean(log, pass);
    MADE_ADD(log, POLL, 30, .repeat = 1);
}
static void flushes(ist_audit_log *log, int pass) {
    MADE_LAUNCH(log, 30, "s");
    for (int k = 0; k < 3; k++) MADE_ADD(log, FLUSH, 31, .queue = 1);
    clean(log, pass);
}
static void flushes_of_two_queues(ist_audit_log *log, int pass) {
    MADE_LAUNCH(log, 30, "s");
    for (int k = 0; k < 4; k++) MADE_ADD(log, FLUSH, 31, .queue = 1 + (uint64_t)k % 2);
    clean(log, pass);
}

Test(rules, polls_and_flushes) {
    expect_only(polls, IST_AUDIT_CAT_POLL, IST_AUDIT_MEDIUM, 30, 40 * PASSES);
    EXPECT_NOTHING(one_poll);
    expect_only(flushes, IST_AUDIT_CAT_FLUSH, IST_AUDIT_MINOR, 31, 3 * PASSES);
    EXPECT_NOTHING(flushes_of_two_queues);
}

/* ---- objects ---- */

static void build(ist_audit_log *log, int pass) {
    clean(log, pass);
    MADE_ADD(log, BUILD, 40);
}
static void create(ist_audit_log *log, int pass) {
    clean(log, pass);
    MADE_ADD(log, CREATE, 41, .bytes = 100);
}
static void create_filled(ist_audit_log *log, int pass) {
    clean(log, pass);
    MADE_ADD(log, CREATE, 42, .bytes = 100, .flags = IST_AUDIT_TO_DEVICE);
}
static void create_kernel(ist_audit_log *log, int pass) {
    MADE_LAUNCH(log, 42, "s");
    MADE_ADD(log, KERNEL, 43);
    clean(log, pass);
}
static void create_queue(ist_audit_log *log, int pass) {
    MADE_LAUNCH(log, 42, "s");
    MADE_ADD(log, CONTEXT, 44);
    clean(log, pass);
}
static void slow_release(ist_audit_log *log, int pass) {
    MADE_LAUNCH(log, 44, "s");
    MADE_ADD(log, RELEASE, 45, .wait_ms = 3);
    clean(log, pass);
}
static void quick_release(ist_audit_log *log, int pass) {
    MADE_LAUNCH(log, 44, "s");
    MADE_ADD(log, RELEASE, 45, .wait_ms = 0.1);
    clean(log, pass);
}
static void idle_release(ist_audit_log *log, int pass) {
    clean(log, pass);
    MADE_ADD(log, RELEASE, 45, .wait_ms = 30);
}

/* Outside of frames: at the end of a program nobody is kept waiting. */
Test(rules, releases_that_wait_for_the_last_work) {
    for (int more = 0; more < 2; more++) {
        ist_audit_log log = made_log();
        MADE_LAUNCH(&log, 1, "s");
        MADE_ADD(&log, RELEASE, 2, .wait_ms = 30);
        if (more) MADE_LAUNCH(&log, 3, "s");
        ist_audit_report r = made_judge(&log, NULL);
        const ist_audit_finding *f = made_find(&r, IST_AUDIT_CAT_RELEASE, 2);
        cr_expect_eq(f != NULL, more);
        if (f) cr_expect_eq(f->severity, IST_AUDIT_MINOR);
        ist_audit_report_free(&r);
        ist_audit_log_free(&log);
    }
}

Test(rules, objects_made_in_frames) {
    expect_only(build, IST_AUDIT_CAT_BUILD, IST_AUDIT_CRITICAL, 40, PASSES);
    expect_only(create, IST_AUDIT_CAT_CREATE, IST_AUDIT_MEDIUM, 41, PASSES);
    expect_only(create_filled, IST_AUDIT_CAT_HOST_POINTER, IST_AUDIT_MEDIUM, 42, PASSES);
    expect_only(create_kernel, IST_AUDIT_CAT_CREATE, IST_AUDIT_MINOR, 43, PASSES);
    expect_only(create_queue, IST_AUDIT_CAT_CREATE, IST_AUDIT_CRITICAL, 44, PASSES);
    expect_only(slow_release, IST_AUDIT_CAT_RELEASE, IST_AUDIT_MEDIUM, 45, PASSES);
    EXPECT_NOTHING(quick_release);
    EXPECT_NOTHING(idle_release);
}

static void lazy_build(ist_audit_log *log, int pass) {
    clean(log, pass);
    if (pass == 2) MADE_ADD(log, BUILD, 40);
}

Test(rules, one_late_build_is_medium) {
    expect_only(lazy_build, IST_AUDIT_CAT_BUILD, IST_AUDIT_MEDIUM, 40, 1);
}

Test(rules, host_memory_under_a_buffer_is_minor_in_set_up) {
    ist_audit_log log = made_log();
    MADE_ADD(&log, CREATE, 1, .bytes = 64, .flags = IST_AUDIT_USE_HOST);
    MADE_ADD(&log, CREATE, 2, .bytes = 64, .flags = IST_AUDIT_TO_DEVICE);
    MADE_ADD(&log, CREATE, 3, .bytes = 64);
    MADE_ADD(&log, BUILD, 4);
    ist_audit_report r = made_judge(&log, NULL);
    const ist_audit_finding *f = made_find(&r, IST_AUDIT_CAT_HOST_POINTER, 1);
    cr_assert_not_null(f);
    cr_expect_eq(f->severity, IST_AUDIT_MINOR);
    cr_expect_eq(made_above(&r), 1);
    cr_expect_not_null(made_find(&r, IST_AUDIT_CAT_UPLOAD, 2));
    ist_audit_report_free(&r);
    ist_audit_log_free(&log);
}

Test(rules, frames_that_overlap_in_time) {
    ist_audit_log log = made_log();
    for (uint32_t f = 1; f <= 20; f++) {
        MADE_ADD(&log, WRITE, 1, .frame = f, .bytes = 100);
        MADE_ADD(&log, READ, 2, .frame = f, .bytes = 10);
        if (f > 1) MADE_ADD(&log, WAIT, 3, .frame = f - 1, .bytes = 10, .wait_ms = 2);
    }
    ist_audit_report r = made_judge(&log, NULL);
    cr_expect_eq(made_above(&r), 0);
    cr_expect_eq(r.most.writes, 1);
    cr_expect_eq(r.most.reads, 1);
    cr_expect_eq(r.most.waits, 1);
    cr_expect_eq(r.most.h2d_bytes, 100);
    cr_expect_eq(r.total.waits, 19);
    cr_expect_float_eq(r.wait_ms, 38, 1e-9);
    ist_audit_report_free(&r);
    ist_audit_log_free(&log);
}
