/* The arena placer: no two live spans share bytes, the peak is what it says, the lower bound is a bound. */
#include "core/arena.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>

static void check_disjoint(const ist_span *s, int n, size_t align, ist_arena_size size) {
    for (int i = 0; i < n; i++) {
        cr_assert_eq(s[i].offset % align, 0, "span %d at %zu is not aligned to %zu", i, s[i].offset, align);
        cr_assert_leq(s[i].offset + s[i].bytes, size.peak, "span %d ends beyond the peak", i);
        for (int j = 0; j < i; j++) {
            if (s[i].first > s[j].last || s[j].first > s[i].last) continue;
            cr_assert(s[i].offset + s[i].bytes <= s[j].offset || s[j].offset + s[j].bytes <= s[i].offset,
                      "spans %d and %d live together and overlap", i, j);
        }
    }
}

Test(core_arena, empty) {
    ist_arena_size size;
    cr_assert_eq(ist_arena_place(NULL, 0, 128, &size, NULL), IST_OK);
    cr_assert_eq(size.peak, 0);
    cr_assert_eq(size.lower_bound, 0);
}

Test(core_arena, a_chain_needs_two_buffers) {
    ist_span s[10];
    for (int i = 0; i < 10; i++) s[i] = (ist_span){.bytes = 1000, .first = i, .last = i + 1};
    ist_arena_size size;
    cr_assert_eq(ist_arena_place(s, 10, 64, &size, NULL), IST_OK);
    check_disjoint(s, 10, 64, size);
    cr_assert_eq(size.peak, 2 * 1024);
    cr_assert_eq(size.lower_bound, 2 * 1024);
}

Test(core_arena, random_lives) {
    uint32_t r = 12345;
    for (int round = 0; round < 200; round++) {
        ist_span s[60];
        int n = 1 + (int)((r = r * 1664525u + 1013904223u) >> 8) % 60;
        size_t alive[41] = {0}, most = 0;
        for (int i = 0; i < n; i++) {
            r = r * 1664525u + 1013904223u;
            int first = (int)(r >> 10) % 30, length = (int)(r >> 20) % 11;
            r = r * 1664525u + 1013904223u;
            s[i] = (ist_span){.bytes = 1 + (r >> 8) % 100000, .first = first, .last = first + length};
            for (int t = first; t <= first + length; t++) alive[t] += (s[i].bytes + 255) / 256 * 256;
        }
        for (int t = 0; t < 41; t++) most = alive[t] > most ? alive[t] : most;
        ist_arena_size size;
        cr_assert_eq(ist_arena_place(s, n, 256, &size, NULL), IST_OK);
        check_disjoint(s, n, 256, size);
        cr_assert_eq(size.lower_bound, most, "round %d", round);
        cr_assert_geq(size.peak, size.lower_bound);
        cr_assert_leq(size.peak, 2 * size.lower_bound, "round %d: peak %zu, bound %zu", round, size.peak, most);
    }
}

Test(core_arena, same_input_same_places) {
    ist_span a[8], b[8];
    for (int i = 0; i < 8; i++) a[i] = b[i] = (ist_span){.bytes = 500, .first = i / 2, .last = 4};
    ist_arena_size size;
    cr_assert_eq(ist_arena_place(a, 8, 64, &size, NULL), IST_OK);
    cr_assert_eq(ist_arena_place(b, 8, 64, &size, NULL), IST_OK);
    for (int i = 0; i < 8; i++) cr_assert_eq(a[i].offset, b[i].offset);
}

Test(core_arena, overflow_is_a_sentence) {
    ist_span s[2] = {{.bytes = SIZE_MAX - 100, .first = 0, .last = 1}, {.bytes = 4096, .first = 0, .last = 1}};
    ist_arena_size size;
    ist_error err = {0};
    cr_assert_eq(ist_arena_place(s, 2, 64, &size, &err), IST_E_LIMIT);
    cr_assert(err.text[0]);
}
