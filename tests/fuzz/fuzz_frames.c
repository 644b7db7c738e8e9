/* libFuzzer: any bytes as a file of several frames. Each frame that is read has every byte that it promises, takes no
 * more than was asked for beforehand, and comes out the same in another order. */
#include "io/frames.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 1 << 14, MOST = 6 };

static uint64_t sum_of(const ist_bitmap *b) {
    const uint8_t *p = b->pixels;
    uint64_t h = (uint64_t)b->width << 32 | (uint64_t)b->height;
    for (size_t i = 0; i < b->stride * (size_t)b->height; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* 0: it is not read, and says why. */
static uint64_t read_frame(ist_frames *f, size_t i) {
    ist_bitmap b;
    ist_error err = {0};
    if (ist_frames_read(f, i, &b, &err)) {
        if (b.pixels || !err.text[0]) abort();
        return 0;
    }
    ist_image_size size = ist_frames_size(f);
    if (size.pixels < (size_t)b.width * (size_t)b.height || size.decoded < b.stride * (size_t)b.height) abort();
    uint64_t sum = sum_of(&b);
    ist_bitmap_free(&b);
    return sum ? sum : 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ist_frames *f = NULL;
    ist_error err = {0};
    uint64_t sums[MOST];
    if (ist_frames_open_bytes(data, size, "fuzz", LIMIT, &f, &err)) {
        if (f || !err.text[0]) abort();
        return 0;
    }
    if (!f) return 0;
    size_t count = ist_frames_count(f) < MOST ? ist_frames_count(f) : MOST;
    for (size_t i = 0; i < count; i++) sums[i] = read_frame(f, i);
    for (size_t i = count; i-- > 0;)
        if (read_frame(f, i) != sums[i]) abort();
    ist_frames_close(&f);
    return 0;
}
