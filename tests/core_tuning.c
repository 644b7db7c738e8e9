/* Tuning records: what is written is read back; what is damaged, or another device's, is refused as a whole. */
#include "core/tuning.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const char key[] = "device A, B\ndriver 1\nsources 00\n";
static const ist_tuned choices[] = {{"conv", "n1h80w80c64", "cpu_6x64", 1}, {"dwconv", "n1h2", "any", 4}};

static ist_tuning two(void) {
    ist_tuning t = {0};
    ist_error err;
    for (int i = 0; i < 2; i++) cr_assert_eq(ist_tuning_set(&t, &choices[i], &err), IST_OK);
    return t;
}

static char *written(const ist_tuning *t) {
    ist_error err;
    char *text = NULL;
    cr_assert_eq(ist_tuning_write(t, key, &text, &err), IST_OK);
    return text;
}

Test(core_tuning, written_and_read) {
    ist_tuning t = two(), back = {0};
    ist_error err;
    char *text = written(&t);
    cr_assert_eq(ist_tuning_read(&back, text, key, &err), IST_OK, "%s", err.text);
    cr_assert_eq(back.count, 2);
    const ist_tuned *c = ist_tuning_find(&back, "dwconv", "n1h2");
    cr_assert_not_null(c);
    cr_expect_str_eq(c->variant, "any");
    cr_expect_eq(c->param, 4);
    cr_expect_null(ist_tuning_find(&back, "conv", "n1h2"));
    cr_expect_null(ist_tuning_find(NULL, "conv", "n1h2"));
    free(text);
    ist_tuning_free(&t);
    ist_tuning_free(&back);
}

Test(core_tuning, a_choice_takes_the_place_of_an_older_one) {
    ist_tuning t = two();
    ist_error err;
    ist_tuned other = {"conv", "n1h80w80c64", "cpu_8x48", 2};
    cr_assert_eq(ist_tuning_set(&t, &other, &err), IST_OK);
    cr_expect_eq(t.count, 2);
    cr_expect_str_eq(ist_tuning_find(&t, "conv", "n1h80w80c64")->variant, "cpu_8x48");
    ist_tuning_free(&t);
}

Test(core_tuning, an_empty_record_is_one) {
    ist_tuning t = {0}, back = {0};
    ist_error err;
    char *text = written(&t);
    cr_expect_eq(ist_tuning_read(&back, text, key, &err), IST_OK, "%s", err.text);
    cr_expect_eq(back.count, 0);
    free(text);
}

Test(core_tuning, of_another_key) {
    ist_tuning t = two(), back = {0};
    ist_error err;
    char *text = written(&t);
    cr_expect_eq(ist_tuning_read(&back, text, "device A, B\ndriver 2\nsources 00\n", &err), IST_E_INPUT);
    cr_expect(strstr(err.text, "another device"), "%s", err.text);
    cr_expect_eq(back.count, 0);
    free(text);
    ist_tuning_free(&t);
}

/* Cut at every byte, and every byte changed. */
Test(core_tuning, damaged) {
    ist_tuning t = two(), back = {0};
    ist_error err;
    char *text = written(&t);
    size_t n = strlen(text);
    for (size_t at = 0; at < n; at++) {
        char old = text[at];
        text[at] = '\0';
        cr_expect_eq(ist_tuning_read(&back, text, key, &err), IST_E_INPUT, "cut at %zu", at);
        text[at] = (char)(old ^ 1);
        cr_expect_eq(ist_tuning_read(&back, text, key, &err), IST_E_INPUT, "byte %zu", at);
        cr_assert_eq(back.count, 0);
        cr_assert_null(back.items);
        text[at] = old;
    }
    cr_expect_eq(ist_tuning_read(&back, text, key, &err), IST_OK);
    ist_tuning_free(&back);
    ist_tuning_free(&t);
    free(text);
}

/* Lines that no record of ours has, with a right checksum. */
Test(core_tuning, strange_lines) {
    static const char *const keys[] = {"device A\nconv n1 variant\n", "device A\nconv n1 variant 1 2\n", "device A\nconv\n",
                                       "device A\nsum 0000000000000000\n"};
    ist_tuning none = {0}, back = {0};
    ist_error err;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char *text = NULL;
        cr_assert_eq(ist_tuning_write(&none, keys[i], &text, &err), IST_OK);
        cr_expect_eq(ist_tuning_read(&back, text, "device A\n", &err), IST_E_INPUT, "%s", keys[i]);
        cr_expect_null(back.items);
        free(text);
    }
}
