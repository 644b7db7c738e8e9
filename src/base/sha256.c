/* See sha256.h. */
#include "base/sha256.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

/* One round; eight of them, each with its letters moved on by one, leave every value in its place. */
#define ROUND(a, b, c, d, e, f, g, h, i)                                                                               \
    do {                                                                                                               \
        uint32_t one = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + constants[i] + w[i];      \
        d += one;                                                                                                      \
        h = one + (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));                            \
    } while (0)

static void mix_plain(uint32_t state[8], const uint8_t *block, size_t count) {
    for (; count; count--) {
        uint32_t w[64];
        for (int i = 0; i < 16; i++, block += 4)
            w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
        for (int i = 16; i < 64; i++) {
            uint32_t a = w[i - 15], b = w[i - 2];
            w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
        }
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
        for (int i = 0; i < 64; i += 8) {
            ROUND(a, b, c, d, e, f, g, h, i);
            ROUND(h, a, b, c, d, e, f, g, i + 1);
            ROUND(g, h, a, b, c, d, e, f, i + 2);
            ROUND(f, g, h, a, b, c, d, e, i + 3);
            ROUND(e, f, g, h, a, b, c, d, i + 4);
            ROUND(d, e, f, g, h, a, b, c, i + 5);
            ROUND(c, d, e, f, g, h, a, b, i + 6);
            ROUND(b, c, d, e, f, g, h, a, i + 7);
        }
        const uint32_t add[8] = {a, b, c, d, e, f, g, h};
        for (int i = 0; i < 8; i++) state[i] += add[i];
    }
}

#if defined(__x86_64__)
/* Four rounds with four words of the message; SCHEDULE makes of words w the four that come sixteen later, x, y and z
 * being those between. */
#define ROUNDS(i, w)                                                                                                   \
    do {                                                                                                               \
        __m128i k = _mm_add_epi32(w, _mm_loadu_si128((const __m128i *)(constants + (i))));                             \
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, k);                                                                   \
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(k, 0x0e));                                          \
    } while (0)
#define SCHEDULE(w, x, y, z)                                                                                           \
    (w = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(w, x), _mm_alignr_epi8(z, y, 4)), z))

/* With Intel's SHA extensions, which keep the state as ABEF and CDGH. */
__attribute__((target("sha,sse4.1"))) static void mix_sha(uint32_t state[8], const uint8_t *block, size_t count) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(badc, efgh, 8), cdgh = _mm_blend_epi16(efgh, badc, 0xf0);
    for (; count; count--, block += 64) {
        const __m128i *in = (const __m128i *)block;
        __m128i w = _mm_shuffle_epi8(_mm_loadu_si128(in), swap), x = _mm_shuffle_epi8(_mm_loadu_si128(in + 1), swap);
        __m128i y = _mm_shuffle_epi8(_mm_loadu_si128(in + 2), swap),
                z = _mm_shuffle_epi8(_mm_loadu_si128(in + 3), swap);
        __m128i abef_before = abef, cdgh_before = cdgh;
        for (int i = 0; i < 48; i += 16) {
            ROUNDS(i, w);
            SCHEDULE(w, x, y, z);
            ROUNDS(i + 4, x);
            SCHEDULE(x, y, z, w);
            ROUNDS(i + 8, y);
            SCHEDULE(y, z, w, x);
            ROUNDS(i + 12, z);
            SCHEDULE(z, w, x, y);
        }
        ROUNDS(48, w);
        ROUNDS(52, x);
        ROUNDS(56, y);
        ROUNDS(60, z);
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static bool has_sha(void) {
    unsigned a, b, c, d, sse4_1 = 1u << 19, ssse3 = 1u << 9, sha = 1u << 29;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & sse4_1) || !(c & ssse3)) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & sha;
}
#endif

void ist_sha256_start_plain(ist_sha256 *s) {
    *s = (ist_sha256){{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
                      0,
                      {0},
                      mix_plain};
}

void ist_sha256_start(ist_sha256 *s) {
    ist_sha256_start_plain(s);
#if defined(__x86_64__)
    if (has_sha()) s->mix = mix_sha;
#endif
}

void ist_sha256_add(ist_sha256 *s, const void *bytes, size_t size) {
    const uint8_t *from = bytes;
    while (size) {
        size_t held = (size_t)(s->bytes % 64), n = 64 - held < size ? 64 - held : size;
        if (!held && size >= 64) {
            n = size - size % 64;
            s->mix(s->state, from, n / 64);
        } else {
            memcpy(s->block + held, from, n);
            if (held + n == 64) s->mix(s->state, s->block, 1);
        }
        s->bytes += n;
        from += n;
        size -= n;
    }
}

void ist_sha256_end(ist_sha256 *s, char text[IST_SHA256_TEXT]) {
    static const uint8_t padding[64] = {0x80};
    uint64_t bits = s->bytes * 8;
    uint8_t length[8];
    ist_sha256_add(s, padding, 1 + (size_t)((119 - s->bytes % 64) % 64));
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    ist_sha256_add(s, length, 8);
    for (int i = 0; i < 8; i++) snprintf(text + 8 * i, 9, "%08x", (unsigned)s->state[i]);
}

ist_status ist_sha256_stream(FILE *file, char text[IST_SHA256_TEXT], ist_error *err) {
    enum { PART = 1 << 18 };
    uint8_t *part = malloc(PART);
    if (!part) return ist_fail(err, IST_E_MEMORY, "out of host memory");
    ist_sha256 sum;
    size_t n;
    ist_sha256_start(&sum);
    while ((n = fread(part, 1, PART, file)) > 0) ist_sha256_add(&sum, part, n);
    ist_status status = ferror(file) ? ist_fail(err, IST_E_IO, "%s", strerror(errno)) : IST_OK;
    ist_sha256_end(&sum, text);
    free(part);
    return status;
}

ist_status ist_sha256_file(const char *path, char text[IST_SHA256_TEXT], ist_error *err) {
    FILE *file = fopen(path, "rb");
    if (!file) return ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
    ist_status status = ist_sha256_stream(file, text, err);
    if (status) ist_fail_context(err, "%s", path);
    fclose(file);
    return status;
}
