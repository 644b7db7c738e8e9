/* Places of a log: which are one, and how they read. */
#include "support/made_up_log.h"

static uint32_t add_place(ist_audit_log *log, ist_audit_site site) {
    uint32_t index;
    cr_assert_eq(ist_audit_add_site(log, &site, &index, NULL), IST_OK);
    MADE_ADD(log, FLUSH, index);
    return index;
}

#define PLACE(...) add_place(&log, (ist_audit_site){__VA_ARGS__})

Test(places, those_that_read_the_same_are_merged) {
    ist_audit_log log = {0};
    uint32_t want[] = {
        PLACE(.file = "a.c", .function = "f", .line = 3, .address = 1),
        PLACE(.file = "a.c", .function = "f", .line = 4, .address = 1),
        PLACE(.file = "b.c", .function = "f", .line = 3, .address = 1),
        PLACE(.file = "a.c", .function = "g", .line = 3, .address = 1),
        PLACE(.module = "x.so", .offset = 16, .address = 32),
        PLACE(.module = "x.so", .offset = 17, .address = 32),
        PLACE(.module = "x.so", .offset = 16, .address = 33),
        PLACE(.module = "y.so", .offset = 16, .address = 32),
    };
    size_t distinct = log.event_count;
    PLACE(.module = "x.so", .offset = 16, .address = 32);
    PLACE(.file = "a.c", .function = "f", .line = 3, .address = 2, .module = "x.so"); /* inlined twice */
    cr_assert_eq(ist_audit_merge_sites(&log, NULL), IST_OK);
    for (size_t i = 0; i < distinct; i++) cr_expect_eq(log.events[i].site, want[i], "place %zu", i);
    cr_expect_eq(log.events[distinct].site, want[4]);
    cr_expect_eq(log.events[distinct + 1].site, want[0]);
    ist_audit_log_free(&log);
}

Test(places, text) {
    ist_audit_log log = {0};
    char text[64];
    static const char *const want[] = {"a.c:3 in f", "a.c:3", "a.c", "x.so+0x10 in f", "x.so+0x10", "0x20", "f"};
    PLACE(.file = "a.c", .function = "f", .line = 3, .module = "/lib/x.so");
    PLACE(.file = "a.c", .line = 3);
    PLACE(.file = "a.c");
    PLACE(.module = "/lib/x.so", .offset = 16, .function = "f", .address = 32);
    PLACE(.module = "x.so", .offset = 16);
    PLACE(.address = 32, .function = "f");
    PLACE(.function = "f");
    for (uint32_t i = 0; i < 7; i++) cr_expect_str_eq(ist_audit_site_text(&log, i, text, sizeof text), want[i]);
    cr_expect_str_eq(ist_audit_site_text(&log, 7, text, sizeof text), "unknown place");
    ist_audit_log_free(&log);
}
