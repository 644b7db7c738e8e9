/* Checked sizes, growing arrays, and the hash of keys and checksums. */
#include "base/hash.h"
#include "base/mem.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

Test(base_mem, products_and_sums_that_do_not_fit_are_refused) {
    size_t out = 7;
    cr_expect(!ist_mul_size(SIZE_MAX / 3 + 1, 3, &out) && !ist_add_size(SIZE_MAX - 4, 5, &out));
    cr_expect_eq(out, 7, "written in spite of the failure");
    cr_expect(ist_mul_size(SIZE_MAX / 3, 3, &out) && out == SIZE_MAX / 3 * 3);
    cr_expect(ist_mul_size(5, 0, &out) && out == 0);
    cr_expect(ist_add_size(SIZE_MAX - 5, 5, &out) && out == SIZE_MAX);
}

Test(base_mem, rounding_up) {
    cr_expect_eq(ist_align_up(0, 64), 0);
    cr_expect_eq(ist_align_up(1, 64), 64);
    cr_expect_eq(ist_align_up(64, 64), 64);
    cr_expect_eq(ist_align_up(65, 64), 128);
    cr_expect_eq(ist_div_up(0, 3), 0);
    cr_expect_eq(ist_div_up(6, 3), 2);
    cr_expect_eq(ist_div_up(7, 3), 3);
}

Test(base_mem, arrays_grow_by_doubling_and_new_room_is_zero) {
    int *items = NULL;
    size_t cap = 0;
    cr_assert(ist_grow((void **)&items, &cap, 3, sizeof *items));
    cr_assert_eq(cap, 8);
    for (size_t i = 0; i < cap; i++) {
        cr_assert_eq(items[i], 0);
        items[i] = (int)i + 1;
    }
    int *before = items;
    cr_assert(ist_grow((void **)&items, &cap, 8, sizeof *items));
    cr_assert(items == before && cap == 8, "grown without need");
    cr_assert(ist_grow((void **)&items, &cap, 17, sizeof *items));
    cr_assert_eq(cap, 32);
    for (size_t i = 0; i < cap; i++) cr_assert_eq(items[i], i < 8 ? (int)i + 1 : 0, "item %zu", i);
    before = items;
    cr_expect(!ist_grow((void **)&items, &cap, SIZE_MAX, sizeof *items), "no power of two");
    cr_expect(!ist_grow((void **)&items, &cap, SIZE_MAX / 4, sizeof *items), "its bytes do not fit");
    cr_expect(items == before && cap == 32, "changed in spite of the failure");
    free(items);
}

Test(base_mem, strings_are_copied) {
    char text[] = "abc", *copy = ist_strdup(text);
    text[0] = 'x';
    cr_expect_str_eq(copy, "abc");
    cr_expect_null(ist_strdup(NULL));
    free(copy);
}

/* The published values of "", "a" and "foobar"; in two steps as in one. */
Test(base_mem, hash) {
    cr_expect_eq(ist_fnv(IST_FNV_OFFSET, "", 0), 0xcbf29ce484222325u);
    cr_expect_eq(ist_fnv(IST_FNV_OFFSET, "a", 1), 0xaf63dc4c8601ec8cu);
    cr_expect_eq(ist_fnv(IST_FNV_OFFSET, "foobar", 6), 0x85944171f73967e8u);
    cr_expect_eq(ist_fnv(ist_fnv(IST_FNV_OFFSET, "foo", 3), "bar", 3), 0x85944171f73967e8u);
}
