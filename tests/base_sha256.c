/* SHA-256 by the examples of FIPS 180 (NIST), in parts of every size, with the CPU's instructions for it and without.
 */
#include "base/sha256.h"
#include "scratch.h"

static void expect_sum(const void *bytes, size_t size, size_t part, const char *want) {
    for (int plain = 0; plain < 2; plain++) {
        char text[IST_SHA256_TEXT];
        ist_sha256 s;
        if (plain)
            ist_sha256_start_plain(&s);
        else
            ist_sha256_start(&s);
        for (size_t at = 0; at < size; at += part)
            ist_sha256_add(&s, (const char *)bytes + at, size - at < part ? size - at : part);
        ist_sha256_end(&s, text);
        cr_expect_str_eq(text, want, "%zu bytes in parts of %zu%s", size, part, plain ? ", plain" : "");
    }
}

Test(base_sha256, examples_of_the_standard) {
    expect_sum("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect_sum("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    for (size_t part = 1; part < sizeof two; part++)
        expect_sum(two, 56, part, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    enum { MILLION = 1000000 };
    char *many = malloc(MILLION);
    cr_assert_not_null(many);
    memset(many, 'a', MILLION);
    static const char want[] = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
    expect_sum(many, MILLION, MILLION, want);
    expect_sum(many, MILLION, 63, want);
    expect_sum(many, MILLION, 64, want);
    expect_sum(many, MILLION, 129, want);
    free(many);
}

Test(base_sha256, files) {
    scratch s = scratch_make();
    char text[IST_SHA256_TEXT];
    ist_error err;
    scratch_put(scratch_path(&s, "m"), "abc");
    cr_expect_eq(ist_sha256_file(scratch_path(&s, "m"), text, &err), IST_OK);
    cr_expect_str_eq(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    cr_expect_eq(ist_sha256_file(scratch_path(&s, "none"), text, &err), IST_E_IO);
    cr_expect_not_null(strstr(err.text, "none: No such file"), "%s", err.text);
    cr_expect_eq(ist_sha256_file(s.path, text, &err), IST_E_IO); /* a folder */
    cr_expect_not_null(strstr(err.text, ": Is a directory"), "%s", err.text);
    scratch_remove(&s);
}
