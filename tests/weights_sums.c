/* SHA256SUMS beside a checkpoint: every form of a line, and what opening makes of it. */
#include "scratch.h"
#include "weights/sums.h"
#include "weights/weights.h"

#include <fcntl.h>

#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static void expect_digest(const scratch *s, const char *list, const char *want) {
    char path[256], found[IST_SHA256_TEXT] = "?";
    ist_error err = {0};
    snprintf(path, sizeof path, "%s", scratch_path(s, "m.pth"));
    scratch_put(scratch_path(s, "SHA256SUMS"), list);
    cr_expect_eq(ist_sums_find(path, found, &err), IST_OK, "%s: %s", list, err.text);
    cr_expect_str_eq(found, want, "%s", list);
}

Test(weights_sums, lines) {
    scratch s = scratch_make();
    char found[IST_SHA256_TEXT] = "?", many[4096];
    cr_expect_eq(ist_sums_find(scratch_path(&s, "m.pth"), found, NULL), IST_OK); /* no list */
    cr_expect_str_eq(found, "");
    cr_expect_eq(ist_sums_find(scratch_path(&s, "no folder/m.pth"), found, NULL), IST_OK);
    expect_digest(&s, ABC "  m.pth\n", ABC);
    expect_digest(&s, ABC " *./m.pth\r\n", ABC);
    expect_digest(&s, ABC "  m.pth", ABC);
    expect_digest(&s, "SHA256 (m.pth) = " ABC "\n", ABC);
    expect_digest(&s, "SHA256 (./m.pth) = " ABC, ABC);
    expect_digest(&s, "", "");
    expect_digest(&s, "# note\nshort\n" ABC "  n.pth\n" ABC "  m.pth2\n", "");
    expect_digest(
        &s, ABC "m.pth\n" ABC " m.pth\nSHA256 (m.pth) = ba78\nSHA256 (m.pth) = " ABC "00\nSHA512 (m.pth) = " ABC, "");
    snprintf(many, sizeof many, "%03000d\n" ABC "  m.pth\n", 0);
    expect_digest(&s, many, ABC); /* behind a line that is too long */
    scratch_remove(&s);
}

Test(weights_sums, digests_are_compared_without_case) {
    ist_error err;
    cr_expect_eq(ist_sums_compare("", ABC, &err), IST_OK);
    cr_expect_eq(ist_sums_compare("BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD", ABC, &err),
                 IST_OK);
    cr_expect_eq(ist_sums_compare("00", ABC, &err), IST_E_WEIGHTS);
    cr_expect_str_eq(err.text, "its SHA-256 is " ABC ", SHA256SUMS beside it says 00");
}

static void copy(const char *from, const char *to) {
    size_t size;
    char *bytes = scratch_read(from, &size);
    cr_assert_not_null(bytes);
    scratch_write(to, bytes, size);
    free(bytes);
}

static void expect_open(const char *path, ist_status want, const char *part, bool listed) {
    ist_weights *w = NULL;
    ist_error err = {0};
    cr_expect_eq(ist_weights_open(path, &w, &err), want, "%s", err.text);
    cr_expect_not_null(strstr(err.text, part), "%s", err.text);
    cr_expect_eq(w != NULL, !want);
    if (w) cr_expect_eq(ist_weights_listed(w), listed);
    ist_weights_close(&w);
}

/* All commands and the library open a checkpoint so. */
Test(weights_sums, opening_a_checkpoint) {
    scratch s = scratch_make();
    char path[256], list[256], line[200], sum[IST_SHA256_TEXT];
    snprintf(path, sizeof path, "%s", scratch_path(&s, "m.pth"));
    snprintf(list, sizeof list, "%s", scratch_path(&s, "SHA256SUMS"));
    copy(IST_GOLDEN_DIR "/weights/plain.pth", path);
    expect_open(path, IST_OK, "", false);
    cr_assert_eq(ist_sha256_file(path, sum, NULL), IST_OK);
    snprintf(line, sizeof line, "%s  m.pth\n", sum);
    scratch_put(list, line);
    expect_open(path, IST_OK, "", true);
    copy(IST_GOLDEN_DIR "/weights/views.pth", path); /* another good file */
    expect_open(path, IST_E_WEIGHTS, "m.pth: its SHA-256 is ", false);
    expect_open(path, IST_E_WEIGHTS, sum, false);
    scratch_put(path, "no checkpoint at all"); /* the digest comes first */
    expect_open(path, IST_E_WEIGHTS, "SHA256SUMS beside it says", false);
    remove(list);
    cr_assert_eq(mkdir(list, 0777), 0);
    expect_open(path, IST_E_IO, "SHA256SUMS: is not a regular file", false);
    cr_assert_eq(rmdir(list), 0);
    cr_assert_eq(mkfifo(list, 0666), 0); /* nobody writes to it */
    expect_open(path, IST_E_IO, "SHA256SUMS: is not a regular file", false);
    remove(list);
    cr_assert_eq(symlink("SHA256SUMS", list), 0);
    expect_open(path, IST_E_IO, "SHA256SUMS: Too many levels", false);
    scratch_remove(&s);
}
