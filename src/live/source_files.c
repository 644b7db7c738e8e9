/* Frames from a file descriptor, one after the other without anything between them, and from folders at a rate. */
#include "live/source_own.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_FPS 30.0

/* ---- raw frames ---- */

/* Fills `bytes`; *have less than `count` at the end of the input or when stopped. */
static ist_status read_frame(const ist_live_source *s, unsigned char *bytes, size_t count, size_t *have,
                             ist_error *err) {
    for (*have = 0; *have < count;) {
        struct pollfd p = {.fd = s->o.fd, .events = POLLIN};
        if (atomic_load(&s->stop)) return IST_OK;
        if (poll(&p, 1, IST_NET_STEP_MS) <= 0) continue;
        ssize_t n = read(s->o.fd, bytes + *have, count - *have);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return ist_fail(err, IST_E_IO, "standard input: %s", strerror(errno));
        if (n == 0) return IST_OK;
        if (n > 0) *have += (size_t)n;
    }
    return IST_OK;
}

/* 16-bit samples of the input, which are little-endian, in the host's order. */
static void order_bytes(ist_bitmap *image) {
    size_t n = (size_t)image->width * (size_t)image->height;
    const unsigned char *from = image->pixels;
    uint16_t *wide = image->pixels;
    if (image->format != IST_GRAY16) return;
    for (size_t i = 0; i < n; i++) wide[i] = (uint16_t)(from[2 * i] | from[2 * i + 1] << 8);
}

static ist_status next_raw(ist_live_source *s, bool *end, ist_error *err) {
    const ist_live_spec *spec = &s->o.spec;
    size_t have = 0;
    ist_live_frame *f = ist_live_frame_new("isthmus");
    ist_status status = f ? ist_bitmap_allocate("raw frame", (size_t)spec->width, (size_t)spec->height, spec->format,
                                                IST_MAX_PIXELS, &f->image, err)
                          : ist_fail(err, IST_E_MEMORY, "raw frame: out of memory");
    size_t bytes = status ? 0 : f->image.stride * (size_t)f->image.height;
    if (!status) status = read_frame(s, f->image.pixels, bytes, &have, err);
    double now = ist_clock_ms();
    *end = have < bytes;
    if (!status && have && *end && !atomic_load(&s->stop)) {
        ist_source_say(s, "standard input ends within a frame: %zu of %zu bytes", have, bytes);
        ist_live_add(s->o.counts, broken, 1);
    }
    if (status || *end) {
        ist_live_frame_drop(f);
        return status;
    }
    order_bytes(&f->image);
    ist_live_frame_place(f);
    f->timestamp = ist_live_now();
    ist_source_give(s, f, now);
    return IST_OK;
}

ist_status ist_source_run_raw(ist_live_source *s, ist_error *err) {
    for (bool end = false; !end && !atomic_load(&s->stop);) IST_TRY(next_raw(s, &end, err));
    return IST_OK;
}

/* ---- folders ---- */

/* When frame i is due, in ms since the first. */
static double due(const ist_live_source *s, size_t i) {
    double recorded = ist_live_folder_time(s->folder, i);
    if (s->o.at_once) return 0;
    if (s->o.fps > 0) return 1e3 * (double)i / s->o.fps;
    return recorded >= 0 ? recorded : 1e3 * (double)i / DEFAULT_FPS;
}

/* Read before it is due, so that it arrives in time. A file that cannot be read is counted and left out. */
ist_status ist_source_run_folder(ist_live_source *s, ist_error *err) {
    double start = -1;
    for (size_t i = 0; i < ist_live_folder_count(s->folder) && !atomic_load(&s->stop); i++) {
        ist_live_frame *f;
        if (ist_live_folder_read(s->folder, i, &f, err)) {
            ist_live_add(s->o.counts, failed, 1);
            ist_source_say(s, "%s", err->text);
            continue;
        }
        if (start < 0) start = ist_clock_ms() - due(s, i);
        double wait = start + due(s, i) - ist_clock_ms();
        if (wait > 0 && !ist_source_sleep(s, wait)) {
            ist_live_frame_drop(f);
            break;
        }
        ist_source_give(s, f, ist_clock_ms());
    }
    return IST_OK;
}
