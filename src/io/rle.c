/* COCO run-length encoding: see rle.h.
 *
 * Masks are encoded straight from bit-packed columns: a run ends where a bit differs from the one before it, so
 * word ^ (word << 1 | previous bit) marks every run end of 32 rows at once and empty or full words cost one
 * comparison. */
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

bool ist_rle_add(ist_rle *r, uint32_t run) {
    if (r->count == r->capacity && !ist_grow((void **)&r->counts, &r->capacity, r->count + 1, sizeof *r->counts))
        return false;
    r->counts[r->count++] = run;
    return true;
}

static void change_at(run_writer *w, uint64_t position) {
    if (!ist_rle_add(w->rle, (uint32_t)(position - w->last))) w->failed = true;
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

/* The next number of a `counts` string: five bits per character, low bits first, the last one's bit 4 is the sign.
 * False when the text ends inside of it, it is too long or a character is none of the 64. */
static bool next_number(const char *text, size_t length, size_t *at, int64_t *number) {
    int bits = 0, c;
    *number = 0;
    do {
        if (*at == length || bits > 30) return false;
        c = text[(*at)++] - 48;
        if (c < 0 || c > 63) return false;
        *number |= (int64_t)(c & 31) << bits;
        bits += 5;
    } while (c & 32);
    if (c & 16) *number -= (int64_t)1 << bits;
    return true;
}

ist_status ist_rle_parse(const char *text, size_t length, uint64_t pixels, ist_rle *rle, ist_error *err) {
    uint64_t total = 0;
    rle->count = 0;
    for (size_t at = 0; at < length;) {
        int64_t run;
        if (!next_number(text, length, &at, &run))
            return ist_fail(err, IST_E_INPUT, "run-length encoding: byte %zu of %zu is damaged", at, length);
        if (rle->count > 2) run += rle->counts[rle->count - 2];
        if (run < 0 || (uint64_t)run > pixels - total || run > UINT32_MAX)
            return ist_fail(err, IST_E_INPUT, "run-length encoding: run %zu of %lld %s in an image of %llu", rle->count,
                            (long long)run, ist_plural((unsigned long long)run, "pixel", "pixels"),
                            (unsigned long long)pixels);
        total += (uint64_t)run;
        if (!ist_rle_add(rle, (uint32_t)run))
            return ist_fail(err, IST_E_MEMORY, "run-length encoding: out of memory after %zu runs", rle->count);
    }
    if (total == pixels) return IST_OK;
    return ist_fail(err, IST_E_INPUT, "run-length encoding: %llu %s in an image of %llu", (unsigned long long)total,
                    ist_plural(total, "pixel", "pixels"), (unsigned long long)pixels);
}

/* A run of ones: pixels [begin, end). */
typedef struct ones {
    const ist_rle *rle;
    size_t next;
    uint64_t begin, end;
} ones;

/* Moves to the next run of ones that is not empty. */
static bool next_ones(ones *o) {
    while (o->next + 1 < o->rle->count) {
        o->begin = o->end + o->rle->counts[o->next];
        o->end = o->begin + o->rle->counts[o->next + 1];
        o->next += 2;
        if (o->end > o->begin) return true;
    }
    return false;
}

uint64_t ist_rle_overlap(const ist_rle *a, const ist_rle *b) {
    ones p = {.rle = a}, q = {.rle = b};
    uint64_t both = 0;
    bool more = next_ones(&p) && next_ones(&q);
    while (more) {
        uint64_t begin = p.begin > q.begin ? p.begin : q.begin, end = p.end < q.end ? p.end : q.end;
        if (begin < end) both += end - begin;
        more = next_ones(p.end < q.end ? &p : &q);
    }
    return both;
}

void ist_rle_box(const ist_rle *rle, int height, double box[4]) {
    uint64_t h = (uint64_t)height, x0 = UINT64_MAX, x1 = 0, y0 = UINT64_MAX, y1 = 0;
    for (ones o = {.rle = rle}; next_ones(&o);) {
        uint64_t left = o.begin / h, right = (o.end - 1) / h, top = o.begin % h, bottom = (o.end - 1) % h;
        if (left < right) top = 0, bottom = h - 1; /* goes over the foot of a column */
        x0 = left < x0 ? left : x0;
        y0 = top < y0 ? top : y0;
        x1 = right + 1 > x1 ? right + 1 : x1;
        y1 = bottom + 1 > y1 ? bottom + 1 : y1;
    }
    for (int i = 0; i < 4; i++) box[i] = 0;
    if (!x1) return;
    box[0] = (double)x0, box[1] = (double)y0;
    box[2] = (double)(x1 - x0), box[3] = (double)(y1 - y0);
}

void ist_rle_free(ist_rle *rle) {
    free(rle->counts);
    *rle = (ist_rle){0};
}
