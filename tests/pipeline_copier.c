/* Copying with helpers: every byte arrives, none beside it changes, in any number of jobs. */
#include "pipeline/copier.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 3 << 20, GUARD = 64 };

static void check(ist_copier *c, size_t bytes, size_t from_at, size_t to_at, unsigned seed, bool hurry) {
    unsigned char *from = malloc(bytes + GUARD), *to = malloc(bytes + 2 * GUARD);
    cr_assert(from && to);
    for (size_t i = 0; i < bytes + GUARD; i++) from[i] = (unsigned char)((i * 2654435761u + seed) >> 13);
    memset(to, 0x5a, bytes + 2 * GUARD);
    ist_copier_copy(c, to + to_at, from + from_at, bytes, hurry);
    cr_assert(!memcmp(to + to_at, from + from_at, bytes), "%zu bytes from %zu to %zu", bytes, from_at, to_at);
    for (size_t i = 0; i < to_at; i++) cr_assert_eq(to[i], 0x5a);
    for (size_t i = to_at + bytes; i < bytes + 2 * GUARD; i++) cr_assert_eq(to[i], 0x5a);
    free(from);
    free(to);
}

Test(pipeline_copier, every_byte_arrives) {
    static const size_t sizes[] = {0, 1, 15, 16, 17, 63, 64, 65, 1000, 131071, 1 << 20, (1 << 20) + 1, MOST - 7};
    ist_copier *c = ist_copier_open(3);
    cr_assert_not_null(c);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t at = 0; at < 4; at++) {
            check(c, sizes[s], at * 5 % 17, at * 7 % 16, (unsigned)s, true);
            check(c, sizes[s], 0, at, (unsigned)s, false);
        }
    ist_copier_close(&c);
    cr_expect_null(c);
    ist_copier_close(&c);
}

Test(pipeline_copier, nobody_helps) {
    ist_copier *c = ist_copier_open(0);
    cr_assert_not_null(c);
    check(c, 2 << 20, 3, 5, 1, true);
    ist_copier_close(&c);
    cr_expect(ist_copier_helpers() >= 0 && ist_copier_helpers() <= 3);
}

Test(pipeline_copier, one_job_after_the_other) {
    ist_copier *c = ist_copier_open(2);
    cr_assert_not_null(c);
    for (unsigned i = 0; i < 100; i++) check(c, (1 << 20) + i * 1000, i % 16, i % 7, i, true);
    ist_copier_close(&c);
}
