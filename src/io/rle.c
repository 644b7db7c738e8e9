/* COCO run-length encoding straight from bit-packed columns: see rle.h.
 *
 * A run ends where a bit differs from the one before it, so word ^ (word << 1 | previous bit) marks every run end of 32
 * rows at once and empty or full words cost one comparison. */
#include "io/rle.h"

#include "base/mem.h"

#include <limits.h>
#include <stdlib.h>

typedef struct run_writer {
    ist_rle *rle;
    uint64_t last; /* position of the latest change */
    unsigned value;
    bool failed;
} run_writer;

static void change_at(run_writer *w, uint64_t position) {
    ist_rle *r = w->rle;
    if (r->count == r->capacity && !ist_grow((void **)&r->counts, &r->capacity, r->count + 1, sizeof *r->counts)) {
        w->failed = true;
        return;
    }
    r->counts[r->count++] = (uint32_t)(position - w->last);
    w->last = position;
    w->value ^= 1;
}

/* One column whose first row lies at position `base`. */
static void column_runs(run_writer *w, const uint32_t *bits, int words, int y0, int height, uint64_t base) {
    int y = y0;
    if (y0 > 0 && w->value) change_at(w, base);
    for (int i = 0; i < words && y < height; i++, y += 32) {
        int rows = height - y < 32 ? height - y : 32;
        uint32_t inside = rows < 32 ? (1u << rows) - 1 : UINT32_MAX;
        uint32_t changes = (bits[i] ^ (bits[i] << 1 | w->value)) & inside;
        for (; changes; changes &= changes - 1) change_at(w, base + (uint64_t)y + (uint64_t)__builtin_ctz(changes));
    }
    if (y < height && w->value) change_at(w, base + (uint64_t)y);
}

ist_status ist_rle_encode(const ist_mask *mask, int width, int height, ist_rle *rle, ist_error *err) {
    uint64_t pixels = (uint64_t)width * (uint64_t)height;
    if (width < 1 || height < 1 || pixels > UINT32_MAX)
        return ist_fail(err, IST_E_LIMIT, "run-length encoding: image of %d x %d pixels", width, height);
    if (mask->columns < 0 || mask->words < 0 || mask->x0 < 0 || mask->y0 < 0 ||
        (mask->columns && (mask->x0 > width - mask->columns || mask->y0 >= height)))
        return ist_fail(err, IST_E_ARGUMENT,
                        "run-length encoding: mask of %d columns from (%d, %d) in an image of %d x %d", mask->columns,
                        mask->x0, mask->y0, width, height);
    run_writer w = {.rle = rle};
    rle->count = 0;
    for (int c = 0; c < mask->columns; c++)
        column_runs(&w, mask->bits + (size_t)c * (size_t)mask->words, mask->words, mask->y0, height,
                    (uint64_t)(mask->x0 + c) * (uint64_t)height);
    if (w.value) {
        uint64_t end = (uint64_t)(mask->x0 + mask->columns) * (uint64_t)height;
        if (end < pixels) change_at(&w, end);
    }
    change_at(&w, pixels);
    if (w.failed) return ist_fail(err, IST_E_MEMORY, "run-length encoding: out of memory after %zu runs", rle->count);
    return IST_OK;
}

uint64_t ist_rle_area(const ist_rle *rle) {
    uint64_t area = 0;
    for (size_t i = 1; i < rle->count; i += 2) area += rle->counts[i];
    return area;
}

void ist_rle_text(const ist_rle *rle, ist_text *text) {
    for (size_t i = 0; i < rle->count; i++) {
        /* from the fourth run on, the difference to the run of the same kind before it; five bits per character, low
         * bits first, bit 5 says that more follow, and 48 is added to make it printable */
        int64_t x = rle->counts[i];
        bool more = true;
        if (i > 2) x -= rle->counts[i - 2];
        while (more) {
            int low = (int)(x & 31);
            x >>= 5;
            more = low & 16 ? x != -1 : x != 0;
            char c = (char)((more ? low | 32 : low) + 48);
            ist_text_add(text, &c, 1);
        }
    }
}

void ist_rle_free(ist_rle *rle) {
    free(rle->counts);
    *rle = (ist_rle){0};
}
