/* SHA-256 by the examples of FIPS 180 (NIST), in parts of every size, and the lists of sha256sum. */
#include "io/sha256.h"
#include "scratch.h"

static void expect_sum(const void *bytes, size_t size, size_t part, const char *want) {
    char text[IST_SHA256_TEXT];
    ist_sha256 s;
    ist_sha256_start(&s);
    for (size_t at = 0; at < size; at += part)
        ist_sha256_add(&s, (const char *)bytes + at, size - at < part ? size - at : part);
    ist_sha256_end(&s, text);
    cr_expect_str_eq(text, want, "%zu bytes in parts of %zu", size, part);
}

Test(io_sha256, examples_of_the_standard) {
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
    expect_sum(many, MILLION, 129, want);
    free(many);
}

#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static void expect_check(const scratch *s, const char *list, ist_status want, bool want_listed) {
    char path[256];
    bool listed = !want_listed;
    ist_error err = {0};
    snprintf(path, sizeof path, "%s", scratch_path(s, "m.pth"));
    scratch_put(scratch_path(s, "SHA256SUMS"), list);
    cr_expect_eq(ist_sha256_check(path, NULL, &listed, &err), want, "%s: %s", list, err.text);
    cr_expect_eq(listed, want_listed, "%s", list);
    if (want) cr_expect_not_null(strstr(err.text, "m.pth: its SHA-256 is " ABC ", SHA256SUMS beside it says 0"));
}

Test(io_sha256, lists) {
    scratch s = scratch_make();
    char path[256], zeros[160];
    bool listed = true;
    snprintf(path, sizeof path, "%s", scratch_path(&s, "m.pth"));
    scratch_put(path, "abc");
    cr_expect_eq(ist_sha256_check(path, NULL, &listed, NULL), IST_OK); /* no list */
    cr_expect(!listed);
    snprintf(zeros, sizeof zeros, "%064d  m.pth\n", 0);
    expect_check(&s, ABC "  m.pth\n", IST_OK, true);
    expect_check(&s, ABC " *./m.pth\r\n", IST_OK, true);
    expect_check(&s, "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD  m.pth", IST_OK, true);
    expect_check(&s, "# note\nshort\n" ABC "  n.pth\n", IST_OK, false);
    expect_check(&s, zeros, IST_E_WEIGHTS, true);
    scratch_remove(&s);
}
