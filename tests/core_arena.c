/* The arena placer: regions never share bytes, a region has one tenant at a time, the peak is what it says, the lower
 * bound is a bound. */
#include "core/arena.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

enum { MOST = 64 };

typedef struct placed {
    ist_region regions[MOST];
    int count;
    ist_arena_size size;
} placed;

/* Places n spans and checks what must hold for any input. */
static placed place(ist_span *s, int n, size_t align) {
    placed p = {.count = -1};
    ist_error err = {0};
    cr_assert_eq(ist_arena_place(s, n, align, p.regions, &p.count, &p.size, &err), IST_OK, "%s", err.text);
    size_t end = 0;
    for (int r = 0; r < p.count; r++) {
        cr_assert_eq(p.regions[r].offset % align, 0);
        cr_assert_geq(p.regions[r].offset, end, "region %d begins inside the one before", r);
        end = p.regions[r].offset + p.regions[r].bytes;
    }
    cr_assert_eq(p.size.peak, end);
    for (int i = 0; i < n; i++) {
        cr_assert(s[i].region >= 0 && s[i].region < p.count);
        cr_assert_leq(s[i].bytes, p.regions[s[i].region].bytes, "span %d is larger than its region", i);
        for (int j = 0; j < i; j++)
            cr_assert(s[i].region != s[j].region || s[i].first > s[j].last || s[j].first > s[i].last,
                      "spans %d and %d live together in one region", i, j);
    }
    return p;
}

Test(core_arena, empty) {
    placed p = place(NULL, 0, 128);
    cr_assert_eq(p.count, 0);
    cr_assert_eq(p.size.peak, 0);
    cr_assert_eq(p.size.lower_bound, 0);
}

Test(core_arena, a_chain_needs_two_regions) {
    ist_span s[10];
    for (int i = 0; i < 10; i++) s[i] = (ist_span){.bytes = 1000, .first = i, .last = i + 1};
    placed p = place(s, 10, 64);
    cr_assert_eq(p.count, 2);
    cr_assert_eq(p.size.peak, 2 * 1024);
    cr_assert_eq(p.size.lower_bound, 2 * 1024);
}

Test(core_arena, a_small_span_takes_the_smallest_free_region) {
    ist_span s[] = {{.bytes = 4096, .first = 0, .last = 1},
                    {.bytes = 512, .first = 0, .last = 1},
                    {.bytes = 100, .first = 2, .last = 3}};
    placed p = place(s, 3, 64);
    cr_assert_eq(p.count, 2);
    cr_assert_eq(s[2].region, s[1].region);
}

Test(core_arena, random_lives) {
    uint32_t r = 12345;
    for (int round = 0; round < 200; round++) {
        ist_span s[MOST];
        int n = 1 + (int)((r = r * 1664525u + 1013904223u) >> 8) % 60;
        size_t alive[41] = {0}, most = 0, sum = 0;
        for (int i = 0; i < n; i++) {
            r = r * 1664525u + 1013904223u;
            int first = (int)(r >> 10) % 30, length = (int)(r >> 20) % 11;
            r = r * 1664525u + 1013904223u;
            s[i] = (ist_span){.bytes = 1 + (r >> 8) % 100000, .first = first, .last = first + length};
            size_t bytes = (s[i].bytes + 255) / 256 * 256;
            sum += bytes;
            for (int t = first; t <= first + length; t++) alive[t] += bytes;
        }
        for (int t = 0; t < 41; t++) most = alive[t] > most ? alive[t] : most;
        placed p = place(s, n, 256);
        cr_assert_eq(p.size.lower_bound, most, "round %d", round);
        cr_assert_geq(p.size.peak, p.size.lower_bound);
        cr_assert_leq(p.size.peak, sum);
        cr_assert_leq(p.size.peak, 2 * most, "round %d: peak %zu, bound %zu", round, p.size.peak, most);
    }
}

/* Spans of stretches that run at the same time never share a region, whatever their steps are. */
Test(core_arena, sides_keep_apart) {
    ist_span s[] = {{.bytes = 1000, .first = 0, .last = 0},
                    {.bytes = 1000, .first = 1, .last = 2, .sides = 1},
                    {.bytes = 1000, .first = 3, .last = 4, .sides = 1},
                    {.bytes = 1000, .first = 5, .last = 6, .sides = 2},
                    {.bytes = 1000, .first = 7, .last = 8, .sides = 2},
                    {.bytes = 1000, .first = 9, .last = 9}};
    placed p = place(s, 6, 64);
    cr_assert_eq(p.count, 2);
    cr_assert_eq(s[1].region, s[2].region);
    cr_assert_eq(s[3].region, s[4].region);
    cr_assert_neq(s[1].region, s[3].region);
}

Test(core_arena, same_input_same_places) {
    ist_span a[8], b[8];
    for (int i = 0; i < 8; i++) a[i] = b[i] = (ist_span){.bytes = 500, .first = i / 2, .last = 4};
    place(a, 8, 64);
    place(b, 8, 64);
    for (int i = 0; i < 8; i++) cr_assert_eq(a[i].region, b[i].region);
}

Test(core_arena, overflow_is_a_sentence) {
    ist_span s[2] = {{.bytes = SIZE_MAX - 100, .first = 0, .last = 1}, {.bytes = 4096, .first = 0, .last = 1}};
    placed p;
    ist_error err = {0};
    cr_assert_eq(ist_arena_place(s, 2, 64, p.regions, &p.count, &p.size, &err), IST_E_LIMIT);
    cr_assert(strstr(err.text, "2 tensors"), "%s", err.text);
}
