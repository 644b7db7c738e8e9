/* Frame recognition over logs made by hand. */
#include "support/made_up_log.h"

/* set-up | write, two kernels, blocking read, `passes` times | tear-down */
static ist_audit_log pipeline(int passes) {
    ist_audit_log log = made_log();
    MADE_ADD(&log, CREATE, 1, .bytes = 100);
    MADE_ADD(&log, BUILD, 2);
    MADE_ADD(&log, WRITE, 3, .bytes = 1000);
    for (int i = 0; i < passes; i++) {
        MADE_ADD(&log, WRITE, 10, .bytes = 100);
        MADE_LAUNCH(&log, 11, "first");
        MADE_LAUNCH(&log, 12, "second");
        MADE_ADD(&log, READ, 13, .bytes = 10, .flags = IST_AUDIT_BLOCKING);
    }
    MADE_ADD(&log, WAIT, 20);
    MADE_ADD(&log, RELEASE, 21);
    return log;
}

static void expect_frames(const ist_audit_log *log, const char *want) {
    for (size_t i = 0; i < log->event_count; i++)
        cr_expect_eq(log->events[i].frame, (uint32_t)(want[i] - '0'), "event %zu is in frame %u, want %c", i,
                     log->events[i].frame, want[i]);
    cr_expect_eq(strlen(want), log->event_count);
}

Test(pattern, repetition_makes_frames) {
    ist_audit_log log = pipeline(4);
    ist_audit_frames frames;
    cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
    cr_expect_eq(frames.source, IST_AUDIT_FRAMES_PATTERN);
    cr_expect_eq(frames.count, 4);
    expect_frames(&log, "000"
                        "1111222233334444"
                        "00");
    ist_audit_log_free(&log);
}

/* Another thread waits for each result while the next frame is under way; for the last, after all have been made. */
Test(pattern, a_wait_is_of_the_frame_of_its_result) {
    ist_audit_log log = made_log();
    ist_audit_frames frames;
    for (uint64_t i = 1; i <= 4; i++) {
        MADE_ADD(&log, WRITE, 10, .bytes = 100);
        MADE_LAUNCH(&log, 11, "only");
        if (i > 1) MADE_ADD(&log, WAIT, 14, .thread = 1, .bytes = 10, .result = i - 1);
        MADE_ADD(&log, READ, 13, .bytes = 10, .result = i);
    }
    MADE_ADD(&log, WAIT, 14, .thread = 1, .bytes = 10, .result = 4);
    MADE_ADD(&log, WAIT, 20);
    MADE_ADD(&log, WAIT, 21, .result = 5); /* of nothing that is here */
    cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
    cr_expect_eq(frames.count, 4);
    expect_frames(&log, "111"
                        "2212"
                        "3323"
                        "4434"
                        "400");
    ist_audit_log_free(&log);
    log = made_log();
    for (uint64_t i = 1; i <= 2; i++) { /* the same with marks */
        MADE_ADD(&log, FRAME, 1);
        if (i > 1) MADE_ADD(&log, WAIT, 14, .bytes = 10, .result = i - 1);
        MADE_ADD(&log, READ, 13, .bytes = 10, .result = i);
    }
    cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
    expect_frames(&log, "11212");
    ist_audit_log_free(&log);
}

/* A buffer is made behind the first frame, and not again. */
Test(pattern, first_frames_may_have_more_in_them) {
    ist_audit_log log = made_log();
    ist_audit_frames frames;
    MADE_ADD(&log, WRITE, 3, .bytes = 1000);
    for (int i = 0; i < 4; i++) {
        MADE_ADD(&log, WRITE, 10, .bytes = 100);
        MADE_LAUNCH(&log, 11, "only");
        MADE_ADD(&log, READ, 13, .bytes = 10);
        if (!i) MADE_ADD(&log, CREATE, 14, .bytes = 100);
    }
    cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
    cr_expect_eq(frames.count, 4);
    expect_frames(&log, "0"
                        "1111222333444");
    ist_audit_log_free(&log);
}

/* One thread makes a frame to warm up, in which kernels repeat; another makes the frames. */
Test(pattern, a_frame_of_another_thread) {
    for (int alike = 0; alike < 2; alike++) {
        ist_audit_log log = made_log();
        ist_audit_frames frames;
        MADE_ADD(&log, WRITE, 3, .thread = 1, .bytes = 1000);
        for (uint32_t i = 0; i < 4; i++) {
            MADE_ADD(&log, WRITE, 10, .thread = !i, .bytes = 100);
            for (int k = 0; k < 4; k++) {
                MADE_ADD(&log, LAUNCH, 11, .thread = !i, .kernel = "mix");
                MADE_ADD(&log, LAUNCH, 12, .thread = !i, .kernel = i || alike ? "add" : "other");
            }
            MADE_ADD(&log, READ, 13, .thread = !i, .bytes = 10);
        }
        cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
        cr_expect_eq(frames.count, alike ? 4 : 3 + 4);
        if (alike)
            expect_frames(&log, "04444444444"
                                "111111111122222222223333333333");
        ist_audit_log_free(&log);
    }
}

Test(pattern, two_passes_are_not_enough) {
    ist_audit_log log = pipeline(2);
    ist_audit_frames frames;
    cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
    cr_expect_eq(frames.source, IST_AUDIT_FRAMES_NONE);
    cr_expect_eq(frames.count, 0);
    ist_audit_log_free(&log);
}

Test(pattern, the_outer_loop_wins) {
    ist_audit_log log = made_log();
    ist_audit_frames frames;
    for (int i = 0; i < 3; i++) {
        MADE_ADD(&log, WRITE, 10, .bytes = 8);
        for (int k = 0; k < 5; k++) {
            MADE_LAUNCH(&log, 11, "step");
            MADE_ADD(&log, READ, 12, .bytes = 4);
        }
    }
    cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
    cr_expect_eq(frames.count, 3);
    expect_frames(&log, "111111111112222222222233333333333");
    ist_audit_log_free(&log);
}

Test(pattern, loops_of_one_call_may_differ_in_length) {
    ist_audit_log log = made_log();
    ist_audit_frames frames;
    for (int i = 1; i <= 4; i++) {
        MADE_LAUNCH(&log, 10, "a");
        for (int k = 0; k < i; k++) MADE_ADD(&log, READ, 11, .bytes = 4);
    }
    cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
    cr_expect_eq(frames.count, 4);
    expect_frames(&log, "11222333344444");
    ist_audit_log_free(&log);
}

Test(pattern, set_up_loops_without_kernels_are_no_frames) {
    ist_audit_log log = made_log();
    ist_audit_frames frames;
    for (int i = 0; i < 50; i++) {
        MADE_ADD(&log, CREATE, 1, .bytes = 8);
        MADE_ADD(&log, WRITE, 2, .bytes = 8);
    }
    MADE_LAUNCH(&log, 3, "only");
    cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
    cr_expect_eq(frames.count, 0);
    ist_audit_log_free(&log);
}

Test(pattern, other_threads_go_with_the_time) {
    ist_audit_log log = made_log();
    ist_audit_frames frames;
    for (int i = 0; i < 3; i++) {
        MADE_LAUNCH(&log, 10, "a");
        MADE_ADD(&log, POLL, 30, .thread = 7, .repeat = 2);
        MADE_ADD(&log, WAIT, 11, .queue = 1);
    }
    cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
    expect_frames(&log, "111222333");
    ist_audit_log_free(&log);
}

Test(pattern, threads_that_launch_have_frames_of_their_own) {
    ist_audit_log log = made_log();
    ist_audit_frames frames;
    for (int i = 0; i < 4; i++) {
        MADE_LAUNCH(&log, 10, "a");
        if (i < 3) MADE_ADD(&log, LAUNCH, 20, .thread = 1, .kernel = "b");
        MADE_ADD(&log, WAIT, 11, .queue = 1);
        if (i < 3) MADE_ADD(&log, WAIT, 21, .thread = 1, .queue = 2);
    }
    cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
    cr_expect_eq(frames.count, 7);
    expect_frames(&log, "15152626373744");
    ist_audit_log_free(&log);
}

Test(kernel, launches_of_a_name_with_what_leads_to_them) {
    ist_audit_log log = pipeline(3);
    ist_audit_frames frames;
    cr_assert_eq(ist_audit_find_frames(&log, "first", &frames, NULL), IST_OK);
    cr_expect_eq(frames.source, IST_AUDIT_FRAMES_KERNEL);
    cr_expect_eq(frames.count, 3);
    expect_frames(&log, "000"
                        "111122223333"
                        "33");
    ist_audit_log_free(&log);
}

Test(kernel, a_name_that_never_ran_is_an_error) {
    ist_audit_log log = pipeline(3);
    ist_audit_frames frames;
    ist_error err;
    cr_assert_eq(ist_audit_find_frames(&log, "third", &frames, &err), IST_E_INPUT);
    cr_expect_not_null(strstr(err.text, "third"));
    ist_audit_log_free(&log);
}

Test(marker, marks_win_over_patterns) {
    ist_audit_log log = made_log();
    ist_audit_frames frames;
    MADE_ADD(&log, WRITE, 1, .bytes = 4);
    for (int i = 0; i < 2; i++) {
        MADE_ADD(&log, FRAME, 2);
        MADE_LAUNCH(&log, 3, "a");
    }
    cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
    cr_expect_eq(frames.source, IST_AUDIT_FRAMES_MARKER);
    expect_frames(&log, "01122");
    ist_audit_log_free(&log);
}

Test(given, frame_numbers_are_kept) {
    ist_audit_log log = made_log();
    ist_audit_frames frames;
    MADE_ADD(&log, WRITE, 1, .frame = 1);
    MADE_ADD(&log, WRITE, 1, .frame = 2);
    MADE_ADD(&log, WAIT, 2, .frame = 1);
    cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
    cr_expect_eq(frames.source, IST_AUDIT_FRAMES_GIVEN);
    cr_expect_eq(frames.count, 2);
    expect_frames(&log, "121");
    ist_audit_log_free(&log);
}

Test(frames, an_empty_log_has_none) {
    ist_audit_log log = {0};
    ist_audit_frames frames;
    cr_assert_eq(ist_audit_find_frames(&log, NULL, &frames, NULL), IST_OK);
    cr_expect_eq(frames.count, 0);
}
