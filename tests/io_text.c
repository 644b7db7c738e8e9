/* Growing text and JSON scalars. */
#include "io/text.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void expect_float(float value, const char *want) {
    ist_text t = {0};
    ist_text_json_float(&t, value);
    cr_expect_str_eq(t.data, want);
    ist_text_free(&t);
}

Test(io_text, floats_are_shortest) {
    expect_float(0.91f, "0.91");
    expect_float(0, "0");
    expect_float(-1.5f, "-1.5");
    expect_float(100, "100");
    expect_float(640, "640");
    expect_float(16777216, "16777216");
    expect_float(0.1f + 0.2f, "0.3");
    expect_float(0.333333343f, "0.33333334");
    expect_float(1e-6f, "1e-06");
    expect_float(3e30f, "3e+30");
    expect_float(NAN, "null");
    expect_float(INFINITY, "null");
    expect_float(-INFINITY, "null");
}

Test(io_text, floats_read_back_exactly) {
    uint32_t x = 12345;
    for (int i = 0; i < 20000; i++) {
        x = x * 1664525u + 1013904223u;
        float value;
        memcpy(&value, &x, sizeof value);
        if (!isfinite(value)) continue;
        ist_text t = {0};
        ist_text_json_float(&t, value);
        json_t *number = json_loads(t.data, JSON_DECODE_ANY, NULL);
        cr_assert_not_null(number, "%s", t.data);
        cr_assert_eq(strtof(t.data, NULL), value, "%a became %s", (double)value, t.data);
        json_decref(number);
        ist_text_free(&t);
    }
}

static void expect_string(const char *in, const char *want) {
    ist_text t = {0};
    ist_text_json_string(&t, in);
    cr_expect_str_eq(t.data, want);
    json_t *value = json_loads(t.data, JSON_DECODE_ANY, NULL);
    cr_expect_not_null(value, "not JSON: %s", t.data);
    json_decref(value);
    ist_text_free(&t);
}

Test(io_text, strings_are_escaped_and_valid) {
    expect_string("plain", "\"plain\"");
    expect_string("a\"b\\c\n\t\x01", "\"a\\\"b\\\\c\\n\\t\\u0001\"");
    expect_string("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"");
    expect_string("\xFFz", "\"\xEF\xBF\xBDz\"");
    expect_string("\xC3", "\"\xEF\xBF\xBD\"");
    expect_string("\xE2\x82z", "\"\xEF\xBF\xBD\xEF\xBF\xBDz\"");
    expect_string("\xC0\xAF", "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");                 /* overlong */
    expect_string("\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""); /* surrogate */
    expect_string("\xF4\x8F\xBF\xBF", "\"\xF4\x8F\xBF\xBF\"");                 /* U+10FFFF, the last */
    expect_string("\xF4\x90\x80\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    expect_string("", "\"\"");
}

Test(io_text, long_formats_grow) {
    ist_text t = {0};
    char word[1000];
    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    ist_text_printf(&t, "<%s>", word);
    ist_text_printf(&t, "%d", 7);
    cr_assert_eq(t.length, 1002);
    cr_expect_eq(t.data[0], '<');
    cr_expect_str_eq(t.data + 1000, ">7");
    ist_text_clear(&t);
    cr_expect_eq(t.length, 0);
    cr_expect_str_eq(t.data, "");
    ist_text_free(&t);
}

static void expect_hex(const char *string, const char *hex) {
    ist_text t = {0};
    ist_text_hex(&t, string);
    cr_expect_str_eq(t.data, hex);
    char *back = ist_text_from_hex(hex);
    cr_assert_not_null(back, "%s", hex);
    cr_expect_str_eq(back, string);
    free(back);
    ist_text_free(&t);
}

Test(io_text, bytes_as_digits_and_back) {
    expect_hex("a\xFF.png", "61ff2e706e67");
    expect_hex("\x01\x10\x80\x7F", "0110807f");
    cr_expect_null(ist_text_from_hex("6"));
    cr_expect_null(ist_text_from_hex("6g"));
    cr_expect_null(ist_text_from_hex("6A"));
    cr_expect_null(ist_text_from_hex(" 61 "));
}

Test(io_text, what_is_utf8) {
    static const char *const good[] = {"", "plain", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xEF\xBF\xBD"};
    static const char *const bad[] = {"\xFFz", "z\xC3", "\xE2\x82z", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) cr_expect(ist_text_is_utf8(good[i]), "%zu", i);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) cr_expect(!ist_text_is_utf8(bad[i]), "%zu", i);
}
