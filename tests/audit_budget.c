/* Budgets: their text, and the call that goes over. */
#include "support/made_up_log.h"

Test(budget, parses) {
    ist_audit_budget b;
    cr_assert_eq(ist_audit_parse_budget("reads=1,writes=2,waits=0,bytes=4M", &b, NULL), IST_OK);
    cr_expect_eq(b.reads, 1);
    cr_expect_eq(b.writes, 2);
    cr_expect_eq(b.waits, 0);
    cr_expect_eq(b.bytes, 4 << 20);
    cr_expect_eq(b.builds, UINT64_MAX);
    cr_assert_eq(ist_audit_parse_budget("bytes=3k", &b, NULL), IST_OK);
    cr_expect_eq(b.bytes, 3072);
    cr_expect_eq(b.reads, UINT64_MAX);
}

Test(budget, refuses) {
    static const char *const wrong[] = {"",         "reads",    "reads=",           "reads=x",
                                        "reads=-1", "reads=1,", "reads=1K2",        "bytes=4T",
                                        "read=1",   "=1",       "reads=1;writes=1", "bytes=99999999999999999999",
                                        "reads= 1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ist_audit_budget b;
        ist_error err;
        cr_expect_eq(ist_audit_parse_budget(wrong[i], &b, &err), IST_E_ARGUMENT, "'%s' was taken", wrong[i]);
    }
}

static ist_audit_breach check(ist_audit_log *log, const char *text) {
    ist_audit_report r = made_judge(log, NULL);
    ist_audit_budget b;
    ist_audit_breach breach;
    cr_assert_eq(ist_audit_parse_budget(text, &b, NULL), IST_OK);
    cr_assert_eq(ist_audit_check_budget(&r, &b, &breach, NULL), IST_OK);
    ist_audit_report_free(&r);
    return breach;
}

Test(budget, names_the_call_that_goes_over) {
    ist_audit_log log = made_log();
    for (uint32_t f = 0; f < 4; f++) {
        MADE_ADD(&log, WRITE, 1, .frame = f, .bytes = 1000);
        MADE_ADD(&log, READ, 2, .frame = f, .bytes = 100, .flags = IST_AUDIT_BLOCKING);
        if (f == 3) MADE_ADD(&log, READ, 3, .frame = f, .bytes = 50);
    }
    cr_expect_null(check(&log, "reads=2,writes=1,waits=1,bytes=2K").what);
    ist_audit_breach b = check(&log, "reads=1,writes=1,waits=1");
    cr_assert_not_null(b.what);
    cr_expect_str_eq(b.what, "reads");
    cr_expect_eq(b.frame, 3);
    cr_expect_eq(b.have, 2);
    cr_expect_eq(b.limit, 1);
    cr_expect_eq(log.events[b.event].site, 3);
    b = check(&log, "bytes=1K");
    cr_expect_str_eq(b.what, "bytes");
    cr_expect_eq(b.frame, 1);
    cr_expect_eq(b.have, 1100);
    cr_expect_eq(log.events[b.event].site, 2);
    b = check(&log, "waits=0");
    cr_expect_str_eq(b.what, "waits");
    ist_audit_log_free(&log);
}

Test(budget, set_up_is_free_and_a_run_without_frames_is_one) {
    ist_audit_log log = made_log();
    for (int k = 0; k < 3; k++) MADE_ADD(&log, WRITE, 1, .bytes = 8);
    ist_audit_breach b = check(&log, "writes=2");
    cr_assert_not_null(b.what);
    cr_expect_eq(b.frame, 0);
    MADE_ADD(&log, READ, 2, .frame = 1, .bytes = 8);
    cr_expect_null(check(&log, "writes=0,reads=1").what);
    ist_audit_log_free(&log);
}
