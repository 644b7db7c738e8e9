/* frames.ndjson while it grows: order, crashes, resuming. */
#include "io/journal.h"

#include "scratch.h"

typedef struct bench {
    scratch s;
    ist_sources sources;
} bench;

static bench make_bench(int count) {
    bench b = {.s = scratch_make()};
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%c.png", 'a' + i);
        cr_assert_eq(ist_sources_add(&b.sources, name, false, NULL, NULL), IST_OK);
    }
    cr_assert_eq(ist_sources_finish(&b.sources, NULL), IST_OK);
    return b;
}

static void free_bench(bench *b) {
    ist_sources_free(&b->sources);
    scratch_remove(&b->s);
}

/* Keeps all images but the one whose path is the context. */
static bool keep_but(void *context, const ist_source *source, const ist_journal_frame *frame) {
    (void)frame;
    return !context || strcmp(context, source->path) != 0;
}

static ist_journal *open_journal(bench *b, bool resume, const char *but) {
    ist_journal *j;
    ist_error err;
    const ist_journal_setup setup = {.resume = resume, .check = keep_but, .context = (void *)(uintptr_t)but};
    cr_assert_eq(ist_journal_open(b->s.path, &b->sources, &setup, &j, &err), IST_OK, "%s", err.text);
    return j;
}

static void append(ist_journal *j, size_t index, int version) {
    ist_text line = {0};
    ist_error err;
    ist_text_printf(&line, "{\"schema\":1,\"file\":\"%c.png\",\"v\":%d}", (char)('a' + index), version);
    cr_assert_eq(ist_journal_append(j, index, &line, &err), IST_OK, "%s", err.text);
    ist_text_free(&line);
}

static void expect_file(const bench *b, const char *name, const char *want) {
    char *text = scratch_read(scratch_path(&b->s, "%s", name), NULL);
    if (!want)
        cr_expect_null(text, "%s is there", name);
    else
        cr_expect_str_eq(text, want);
    free(text);
}

#define LINE(file, v) "{\"schema\":1,\"file\":\"" file "\",\"v\":" v "}\n"

Test(io_journal, appears_complete_or_not_at_all) {
    bench b = make_bench(2);
    ist_journal *j = open_journal(&b, false, NULL);
    append(j, 0, 1);
    cr_expect(ist_journal_has(j, 0));
    cr_expect(!ist_journal_has(j, 1));
    expect_file(&b, IST_JOURNAL_NAME, NULL);
    expect_file(&b, IST_JOURNAL_PARTIAL, LINE("a.png", "1"));
    append(j, 1, 1);
    cr_assert_eq(ist_journal_commit(j, NULL), IST_OK);
    expect_file(&b, IST_JOURNAL_PARTIAL, NULL);
    expect_file(&b, IST_JOURNAL_NAME, LINE("a.png", "1") LINE("b.png", "1"));
    ist_journal_close(&j);
    free_bench(&b);
}

Test(io_journal, a_second_line_is_refused) {
    bench b = make_bench(1);
    ist_journal *j = open_journal(&b, false, NULL);
    ist_text line = {0};
    append(j, 0, 1);
    ist_text_put(&line, "{}");
    cr_expect_eq(ist_journal_append(j, 0, &line, NULL), IST_E_STATE);
    ist_text_free(&line);
    ist_journal_close(&j);
    free_bench(&b);
}

Test(io_journal, a_fresh_run_forgets_the_old_one) {
    bench b = make_bench(2);
    scratch_put(scratch_path(&b.s, IST_JOURNAL_NAME), LINE("a.png", "1") LINE("b.png", "1"));
    scratch_put(scratch_path(&b.s, IST_JOURNAL_PARTIAL), LINE("a.png", "1"));
    ist_journal *j = open_journal(&b, false, NULL);
    cr_expect(!ist_journal_has(j, 0));
    expect_file(&b, IST_JOURNAL_NAME, NULL);
    expect_file(&b, IST_JOURNAL_PARTIAL, "");
    ist_journal_close(&j);
    free_bench(&b);
}

/* A link would let whoever put it there choose what is overwritten. */
Test(io_journal, links_are_refused) {
    static const char *const names[] = {IST_JOURNAL_NAME, IST_JOURNAL_PARTIAL};
    for (int i = 0; i < 4; i++) {
        bench b = make_bench(2);
        ist_journal *j;
        ist_error err;
        scratch other = scratch_make();
        scratch_put(scratch_path(&other, "victim"), LINE("a.png", "1"));
        cr_assert_eq(symlink(scratch_path(&other, "victim"), scratch_path(&b.s, "%s", names[i % 2])), 0);
        const ist_journal_setup setup = {.resume = i > 1, .check = keep_but};
        cr_expect_eq(ist_journal_open(b.s.path, &b.sources, &setup, &j, &err), IST_E_IO);
        cr_expect(strstr(err.text, names[i % 2]) && strstr(err.text, "symbolic link"), "%s", err.text);
        cr_expect_null(j);
        char *text = scratch_read(scratch_path(&other, "victim"), NULL);
        cr_expect_str_eq(text, LINE("a.png", "1"));
        free(text);
        scratch_remove(&other);
        free_bench(&b);
    }
}

/* Nor is a file written through that has a second name elsewhere. */
Test(io_journal, a_fresh_run_has_a_file_of_its_own) {
    bench b = make_bench(1);
    scratch_put(scratch_path(&b.s, "victim"), "precious");
    cr_assert_eq(link(scratch_path(&b.s, "victim"), scratch_path(&b.s, IST_JOURNAL_PARTIAL)), 0);
    ist_journal *j = open_journal(&b, false, NULL);
    append(j, 0, 1);
    expect_file(&b, "victim", "precious");
    expect_file(&b, IST_JOURNAL_PARTIAL, LINE("a.png", "1"));
    ist_journal_close(&j);
    free_bench(&b);
}

Test(io_journal, resumes_after_a_crash_in_the_middle_of_a_line) {
    bench b = make_bench(3);
    scratch_put(scratch_path(&b.s, IST_JOURNAL_PARTIAL), LINE("a.png", "1") "{\"schema\":1,\"file\":\"b.p");
    ist_journal *j = open_journal(&b, true, NULL);
    cr_expect(ist_journal_has(j, 0));
    cr_expect(!ist_journal_has(j, 1));
    append(j, 1, 2);
    append(j, 2, 2);
    cr_assert_eq(ist_journal_commit(j, NULL), IST_OK);
    expect_file(&b, IST_JOURNAL_NAME, LINE("a.png", "1") LINE("b.png", "2") LINE("c.png", "2"));
    ist_journal_close(&j);
    free_bench(&b);
}

Test(io_journal, lines_end_in_input_order_and_old_ones_survive_another_crash) {
    bench b = make_bench(4);
    scratch_put(scratch_path(&b.s, IST_JOURNAL_NAME), LINE("d.png", "1") LINE("b.png", "1"));
    ist_journal *j = open_journal(&b, true, NULL);
    append(j, 0, 2);
    ist_journal_close(&j); /* as a crash would */
    expect_file(&b, IST_JOURNAL_PARTIAL, LINE("b.png", "1") LINE("d.png", "1") LINE("a.png", "2"));
    j = open_journal(&b, true, NULL);
    for (size_t i = 0; i < 4; i++) cr_expect_eq(ist_journal_has(j, i), i != 2, "image %zu", i);
    append(j, 2, 3);
    ist_text line = {0};
    cr_assert_eq(ist_journal_line(j, 3, &line, NULL), IST_OK);
    cr_expect_str_eq(line.data, "{\"schema\":1,\"file\":\"d.png\",\"v\":1}");
    ist_text_free(&line);
    cr_assert_eq(ist_journal_commit(j, NULL), IST_OK);
    expect_file(&b, IST_JOURNAL_NAME, LINE("a.png", "2") LINE("b.png", "1") LINE("c.png", "3") LINE("d.png", "1"));
    expect_file(&b, IST_JOURNAL_PARTIAL, NULL);
    ist_journal_close(&j);
    free_bench(&b);
}

/* Two names that differ in bytes that are no UTF-8: "file_bytes" tells whose line it is. */
Test(io_journal, lines_of_names_that_look_alike_are_told_apart) {
    bench b = {.s = scratch_make()};
    const char *const names[] = {"a\xFF.png", "a\xFE.png", "b.png", "b.png"};
    for (int i = 0; i < 4; i++) cr_assert_eq(ist_sources_add(&b.sources, names[i], false, NULL, NULL), IST_OK);
    cr_assert_eq(ist_sources_finish(&b.sources, NULL), IST_OK);
    scratch_put(scratch_path(&b.s, IST_JOURNAL_NAME),
                LINE("a\xEF\xBF\xBD.png", "1") LINE("a\xEF\xBF\xBD.png\",\"file_bytes\":\"61fe2e706e67", "2")
                    LINE("b.png", "1"));
    ist_journal *j = open_journal(&b, true, NULL);
    cr_expect(!ist_journal_has(j, 0));
    cr_expect(ist_journal_has(j, 1));
    cr_expect(ist_journal_has(j, 2));
    expect_file(&b, IST_JOURNAL_PARTIAL,
                LINE("a\xEF\xBF\xBD.png\",\"file_bytes\":\"61fe2e706e67", "2") LINE("b.png", "1"));
    ist_journal_close(&j);
    free_bench(&b);
}

static bool keep_but_stem(void *context, const ist_source *source, const ist_journal_frame *frame) {
    (void)frame;
    return !context || strcmp(context, source->stem) != 0;
}

/* A path that is named several times has a line for each; the n-th of a file is the n-th's. */
Test(io_journal, a_path_named_twice_has_two_lines) {
    bench b = {.s = scratch_make()};
    const char *const names[] = {"a.png", "b.png", "a.png", "a.png"};
    for (int i = 0; i < 4; i++) cr_assert_eq(ist_sources_add(&b.sources, names[i], false, NULL, NULL), IST_OK);
    cr_assert_eq(ist_sources_finish(&b.sources, NULL), IST_OK);
    const char *all = LINE("a.png", "1") LINE("b.png", "2") LINE("a.png", "3") LINE("a.png", "4");
    scratch_put(scratch_path(&b.s, IST_JOURNAL_NAME), all);
    ist_journal *j = open_journal(&b, true, NULL);
    for (size_t i = 0; i < 4; i++) cr_expect(ist_journal_has(j, i), "image %zu", i);
    expect_file(&b, IST_JOURNAL_PARTIAL, all);
    ist_journal_close(&j);
    scratch_put(scratch_path(&b.s, IST_JOURNAL_PARTIAL), LINE("a.png", "5") LINE("b.png", "6") LINE("a.png", "7"));
    j = open_journal(&b, true, NULL); /* of the newer file as far as that goes */
    expect_file(&b, IST_JOURNAL_PARTIAL, LINE("a.png", "5") LINE("b.png", "6") LINE("a.png", "7") LINE("a.png", "4"));
    ist_journal_close(&j);
    unlink(scratch_path(&b.s, IST_JOURNAL_PARTIAL));
    cr_assert_str_eq(b.sources.items[2].stem, "a.png");
    const ist_journal_setup setup = {.resume = true, .check = keep_but_stem, .context = b.sources.items[2].stem};
    cr_assert_eq(ist_journal_open(b.s.path, &b.sources, &setup, &j, NULL), IST_OK);
    for (size_t i = 0; i < 4; i++) cr_expect_eq(ist_journal_has(j, i), i != 2, "image %zu", i);
    expect_file(&b, IST_JOURNAL_PARTIAL, LINE("a.png", "1") LINE("b.png", "2") LINE("a.png", "4"));
    ist_journal_close(&j);
    free_bench(&b);
}

Test(io_journal, missing_outputs_foreign_lines_and_repeats) {
    bench b = make_bench(3);
    scratch_put(scratch_path(&b.s, IST_JOURNAL_NAME),
                LINE("a.png", "1") LINE("z.png", "1") "not json\n{\"file\":\"b.png\"}\n" LINE("c.png", "1"));
    scratch_put(scratch_path(&b.s, IST_JOURNAL_PARTIAL), LINE("c.png", "2") LINE("c.png", "3"));
    ist_journal *j = open_journal(&b, true, "a.png");
    cr_expect(!ist_journal_has(j, 0), "its outputs are gone");
    cr_expect(!ist_journal_has(j, 1), "its line has no schema");
    cr_expect(ist_journal_has(j, 2));
    expect_file(&b, IST_JOURNAL_PARTIAL, LINE("c.png", "3"));
    ist_journal_close(&j);
    free_bench(&b);
}

Test(io_journal, nothing_to_resume_is_no_error) {
    bench b = make_bench(1);
    ist_journal *j = open_journal(&b, true, NULL);
    append(j, 0, 1);
    cr_assert_eq(ist_journal_commit(j, NULL), IST_OK);
    expect_file(&b, IST_JOURNAL_NAME, LINE("a.png", "1"));
    ist_journal_close(&j);
    free_bench(&b);
}

Test(io_journal, long_lines_come_back_whole) {
    bench b = make_bench(1);
    ist_journal *j = open_journal(&b, false, NULL);
    ist_text line = {0}, back = {0};
    ist_text_put(&line, "{\"schema\":1,\"file\":\"a.png\",\"x\":\"");
    for (int i = 0; i < 5000; i++) ist_text_put(&line, "0123456789");
    ist_text_put(&line, "\"}");
    cr_assert_eq(ist_journal_append(j, 0, &line, NULL), IST_OK);
    ist_journal_close(&j);
    j = open_journal(&b, true, NULL);
    cr_assert(ist_journal_has(j, 0));
    cr_assert_eq(ist_journal_line(j, 0, &back, NULL), IST_OK);
    cr_expect_str_eq(back.data, line.data);
    ist_text_free(&line);
    ist_text_free(&back);
    ist_journal_close(&j);
    free_bench(&b);
}
