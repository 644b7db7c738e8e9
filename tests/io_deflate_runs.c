/* Deflate by runs: whatever goes in comes out of zlib, in blocks of any size, and noise does not grow. */
#include "io/deflate_runs.h"
#include "io/flate.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef struct stream {
    uint8_t *bytes;
    size_t count, blocks;
} stream;

static stream encode(ist_runs *runs, const uint8_t *bytes, size_t count, size_t block) {
    stream s = {malloc((count / block + 1) * IST_RUNS_ROOM), 0, 0};
    cr_assert_not_null(s.bytes);
    for (size_t at = 0; at < count; at += block, s.blocks++) {
        size_t n = count - at < block ? count - at : block;
        s.count += ist_runs_put(runs, bytes + at, n, at + n == count, s.bytes + s.count);
    }
    return s;
}

/* Returns the size of the stream. */
static size_t check(ist_runs *runs, const uint8_t *bytes, size_t count, size_t block, const char *what) {
    stream s = encode(runs, bytes, count, block);
    uint8_t *back = malloc(count);
    uLongf size = count;
    cr_assert_eq(uncompress(back, &size, s.bytes, s.count), Z_OK, "%s, %zu bytes by %zu", what, count, block);
    cr_assert(size == count && !memcmp(back, bytes, count), "%s, %zu bytes by %zu", what, count, block);
    memset(back, 0, count);
    cr_assert(ist_inflate(s.bytes, s.count, back, count) && !memcmp(back, bytes, count));
    cr_assert_not(ist_inflate(s.bytes, s.count, back, count - 1));
    cr_assert_not(ist_inflate(s.bytes, s.count - 1, back, count));
    s.bytes[s.count - 1] ^= 1;
    cr_assert_not(ist_inflate(s.bytes, s.count, back, count), "a wrong checksum");
    free(back);
    free(s.bytes);
    return s.count;
}

enum { NOISE, ZEROS, RUNS, SKEWED, FIBONACCI, KINDS };

static void fill(uint8_t *bytes, size_t count, int kind) {
    uint32_t state = 7;
    size_t fibonacci[2] = {1, 1}, left = 1;
    uint8_t value = 0;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        uint32_t random = state >> 8;
        if (kind == NOISE) bytes[i] = (uint8_t)random;
        if (kind == ZEROS) bytes[i] = 0;
        if (kind == RUNS) bytes[i] = random % 40 || !i ? bytes[i ? i - 1 : 0] : (uint8_t)(random >> 8);
        if (kind == SKEWED) bytes[i] = (uint8_t)(__builtin_clz(random | 1) * 3);
        if (kind == FIBONACCI) { /* values twice as rare, one after the other: codes beyond the longest */
            bytes[i] = (uint8_t)(value + 128 * (i & 1));
            if (--left) continue;
            size_t next = fibonacci[0] + fibonacci[1];
            fibonacci[0] = fibonacci[1];
            fibonacci[1] = left = next;
            value++;
        }
    }
}

Test(io_deflate_runs, everything_comes_back) {
    static const char *const names[KINDS] = {"noise", "zeros", "runs", "skewed", "fibonacci"};
    static const size_t counts[] = {
        1, 2, 3, 4, 5, 257, 258, 259, 260, 1000, 65537, IST_RUNS_BLOCK, 3 * IST_RUNS_BLOCK + 5};
    uint8_t *bytes = malloc(4 * IST_RUNS_BLOCK);
    ist_runs *runs = ist_runs_open(); /* for one stream after the other */
    cr_assert(bytes && runs);
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            fill(bytes, counts[c], kind);
            size_t size = check(runs, bytes, counts[c], IST_RUNS_BLOCK, names[kind]);
            cr_expect_leq(size, counts[c] + counts[c] / 256 + 200, "%s: %zu of %zu", names[kind], size, counts[c]);
            if (kind == ZEROS) cr_expect_leq(size, counts[c] / 500 + 100);
            if (counts[c] <= 1000) check(runs, bytes, counts[c], 1, names[kind]);
            check(runs, bytes, counts[c], 5003, names[kind]);
        }
    ist_runs_close(&runs);
    cr_expect_null(runs);
    free(bytes);
}

Test(io_deflate_runs, search_finds_what_repeats_and_respects_its_room) {
    enum { COUNT = 100000 };
    uint8_t *bytes = malloc(COUNT), *to = malloc(2 * COUNT), *back = malloc(COUNT);
    fill(bytes, 1000, NOISE);
    for (size_t i = 1000; i < COUNT; i++) bytes[i] = bytes[i - 1000];
    size_t size = ist_deflate_search(bytes, COUNT, to, 2 * COUNT);
    cr_expect(size && size < 5000);
    cr_expect(ist_inflate(to, size, back, COUNT) && !memcmp(back, bytes, COUNT));
    fill(bytes, COUNT, NOISE);
    cr_expect_eq(ist_deflate_search(bytes, COUNT, to, COUNT / 2), 0);
    cr_expect_eq(ist_adler32(1, bytes, COUNT), adler32(1, bytes, COUNT));
    cr_expect_eq(ist_crc32(0, bytes, COUNT), crc32(0, bytes, COUNT));
    free(bytes);
    free(to);
    free(back);
}
