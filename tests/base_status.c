/* The error value: codes, sentences, contexts and their limits. */
#include "base/status.h"

#include <criterion/criterion.h>
#include <string.h>

Test(base_status, every_code_has_its_text) {
    cr_expect_str_eq(ist_status_text(IST_OK), "success");
    cr_expect_str_eq(ist_status_text(IST_E_UNSUPPORTED), "not supported on this device or by this model");
    for (int code = IST_OK; code <= IST_E_UNSUPPORTED; code++)
        cr_expect_str_neq(ist_status_text((ist_status)code), "unknown status", "%d", code);
    cr_expect_str_eq(ist_status_text((ist_status)(IST_E_UNSUPPORTED + 1)), "unknown status");
}

Test(base_status, failing_fills_and_returns_the_code) {
    ist_error err = {0};
    cr_expect_eq(ist_fail(&err, IST_E_LIMIT, "%d of %s", 3, "these"), IST_E_LIMIT);
    cr_expect_eq(err.code, IST_E_LIMIT);
    cr_expect_str_eq(err.text, "3 of these");
    cr_expect_eq(ist_fail(NULL, IST_E_IO, "nobody listens"), IST_E_IO);
}

Test(base_status, context_stands_in_front_and_long_sentences_are_cut) {
    ist_error err;
    char name[2 * sizeof err.text];
    ist_fail(&err, IST_E_IO, "does not open");
    cr_expect_eq(ist_fail_context(&err, "file %s", "a.png"), IST_E_IO);
    cr_expect_str_eq(err.text, "file a.png: does not open");
    cr_expect_eq(ist_fail_context(NULL, "nobody listens"), IST_OK);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    ist_fail_context(&err, "%s", name);
    cr_expect_eq(strlen(err.text), sizeof err.text - 1);
    cr_expect_eq(strspn(err.text, "n"), (sizeof err.text - 3) / 2);
    cr_expect_not_null(strstr(err.text, "n...n"));
    cr_expect_str_eq(err.text + sizeof err.text - 1 - strlen("n: file a.png: does not open"),
                     "n: file a.png: does not open");
    cr_expect_eq(err.code, IST_E_IO);
}

Test(base_status, what_does_not_fit_loses_its_middle) {
    char out[16];
    ist_print_ends(out, sizeof out, "%s", "0123456789abcde");
    cr_expect_str_eq(out, "0123456789abcde");
    ist_print_ends(out, sizeof out, "%s", "0123456789abcdef");
    cr_expect_str_eq(out, "012345...abcdef");
    ist_print_ends(out, sizeof out, "%s",
                   "0\xC3\xA4\xC3\xA4\xC3\xA4"
                   "6\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4");
    cr_expect_str_eq(out, "0\xC3\xA4\xC3\xA4...\xC3\xA4\xC3\xA4\xC3\xA4");
    ist_print_ends(out, sizeof out, "%020000d!", 7); /* as much as is looked at */
    cr_expect_str_eq(out, "000000...000000");
}

static int tried;
static ist_status try_it(ist_status status) {
    tried++;
    return status;
}
static ist_status forward(ist_status status) {
    IST_TRY(try_it(status));
    return IST_E_STATE;
}

Test(base_status, trying_forwards_failures_only_and_evaluates_once) {
    cr_expect_eq(forward(IST_E_INPUT), IST_E_INPUT);
    cr_expect_eq(forward(IST_OK), IST_E_STATE);
    cr_expect_eq(tried, 2);
}

Test(base_status, one_of_something_is_singular) {
    cr_expect_str_eq(ist_plural(0, "image", "images"), "images");
    cr_expect_str_eq(ist_plural(1, "image", "images"), "image");
    cr_expect_str_eq(ist_plural(2, "image", "images"), "images");
    cr_expect_str_eq(ist_plural(1ull << 32, "image", "images"), "images");
}
