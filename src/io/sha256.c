/* See sha256.h. */
#include "io/sha256.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

static void mix(uint32_t state[8], const uint8_t *block) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++, block += 4)
        w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]), most = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        uint32_t one = v[7] + (turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25)) + choice + constants[i] + w[i];
        uint32_t two = (turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22)) + most;
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

void ist_sha256_start(ist_sha256 *s) {
    *s = (ist_sha256){
        {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}, 0, {0}};
}

void ist_sha256_add(ist_sha256 *s, const void *bytes, size_t size) {
    const uint8_t *from = bytes;
    while (size) {
        size_t held = (size_t)(s->bytes % 64), n = 64 - held < size ? 64 - held : size;
        if (n < 64) memcpy(s->block + held, from, n);
        if (n == 64)
            mix(s->state, from);
        else if (held + n == 64)
            mix(s->state, s->block);
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

ist_status ist_sha256_file(const char *path, char text[IST_SHA256_TEXT], ist_error *err) {
    enum { PART = 1 << 16 };
    FILE *f = fopen(path, "rb");
    uint8_t *part = f ? malloc(PART) : NULL;
    ist_status status = IST_OK;
    ist_sha256 sum;
    size_t n;
    if (!f) return ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
    ist_sha256_start(&sum);
    if (!part) status = ist_fail(err, IST_E_MEMORY, "%s: out of host memory", path);
    while (part && (n = fread(part, 1, PART, f)) > 0) ist_sha256_add(&sum, part, n);
    if (!status && ferror(f)) status = ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
    ist_sha256_end(&sum, text);
    free(part);
    fclose(f);
    return status;
}

/* "DIGEST  NAME" or "DIGEST *NAME"; the name may begin with "./". False when the line names another file. */
static bool names(const char *line, const char *name) {
    for (int i = 0; i < 64; i++)
        if (!isxdigit((unsigned char)line[i])) return false; /* also at the end of a short line */
    if (line[64] != ' ' || (line[65] != ' ' && line[65] != '*')) return false;
    const char *at = line + 66;
    if (!strncmp(at, "./", 2)) at += 2;
    return !strcmp(at, name);
}

ist_status ist_sha256_check(const char *path, const char *text, bool *listed, ist_error *err) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char list[4096], line[1024], own[IST_SHA256_TEXT], want[IST_SHA256_TEXT] = "";
    *listed = false;
    int n = snprintf(list, sizeof list, "%.*sSHA256SUMS", slash ? (int)(slash - path) + 1 : 0, path);
    FILE *f = n > 0 && (size_t)n < sizeof list ? fopen(list, "r") : NULL;
    if (!f) return IST_OK;
    while (!*want && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (names(line, name)) snprintf(want, sizeof want, "%.64s", line);
    }
    fclose(f);
    if (!*want) return IST_OK;
    *listed = true;
    if (!text) IST_TRY(ist_sha256_file(path, own, err));
    if (!strcasecmp(want, text ? text : own)) return IST_OK;
    return ist_fail(err, IST_E_WEIGHTS, "%s: its SHA-256 is %s, SHA256SUMS beside it says %s", path, text ? text : own,
                    want);
}
