/* See frames.h. */
#include "io/frames.h"

#include "io/image_float.h"
#include "io/image_format.h"

#include "base/mem.h"

#include <stdlib.h>

struct ist_frames {
    ist_byte_source source;
    char *name;
    const ist_container *container;
    void *state;
    size_t count;
    ist_image_size largest;
    double values[2];
};

/* Takes the source over. */
static ist_status open_source(ist_byte_source *source, const char *name, size_t max_pixels, ist_frames **frames,
                              ist_error *err) {
    unsigned char head[IST_IMAGE_HEAD];
    size_t count = ist_byte_source_read(source, 0, head, sizeof head);
    const ist_container *container = ist_container_of(ist_image_format_of(head, count), head, count);
    if (!container) {
        ist_byte_source_close(source);
        return IST_OK;
    }
    ist_frames *f = calloc(1, sizeof *f);
    if (!f || !(f->name = ist_strdup(name))) {
        free(f);
        ist_byte_source_close(source);
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory", name);
    }
    f->source = *source;
    f->container = container;
    ist_status status = f->container->open(&f->source, f->name, max_pixels, &f->state, &f->count, &f->largest, err);
    if (!status && !f->count) status = ist_fail(err, IST_E_INPUT, "%s: there is no frame in it", name);
    if (!status && f->count > IST_MAX_FRAMES)
        status = ist_fail(err, IST_E_LIMIT, "%s: %zu frames, the limit is %d", name, f->count, IST_MAX_FRAMES);
    if (status)
        ist_frames_close(&f);
    else
        *frames = f;
    return status;
}

ist_status ist_frames_open(const char *path, size_t max_pixels, ist_frames **frames, ist_error *err) {
    ist_byte_source source;
    *frames = NULL;
    if (ist_byte_source_open(path, &source, NULL)) return IST_OK;
    return open_source(&source, path, max_pixels, frames, err);
}

ist_status ist_frames_open_bytes(const void *bytes, size_t size, const char *name, size_t max_pixels,
                                 ist_frames **frames, ist_error *err) {
    ist_byte_source source = ist_byte_source_of(bytes, size);
    *frames = NULL;
    return open_source(&source, name, max_pixels, frames, err);
}

size_t ist_frames_count(const ist_frames *frames) {
    return frames->count;
}

ist_image_size ist_frames_size(const ist_frames *frames) {
    ist_image_size size = frames->largest;
    if (frames->source.fd < 0) size.passing += (size_t)frames->source.size;
    return size;
}

void ist_frames_show(ist_frames *frames, const double values[2]) {
    frames->values[0] = values[0], frames->values[1] = values[1];
}

bool ist_frames_have_windows(const ist_frames *frames) {
    return frames->container->has_windows;
}

ist_status ist_frames_read(ist_frames *frames, size_t frame, ist_bitmap *out, ist_error *err) {
    *out = (ist_bitmap){0};
    if (frame >= frames->count)
        return ist_fail(err, IST_E_INPUT, "%s: has %zu frames now, number %zu is gone", frames->name, frames->count,
                        frame + 1);
    ist_status status = frames->container->read(frames->state, frame, out, err);
    if (!status) status = ist_bitmap_narrow(out, frames->values, frames->name, err);
    if (status) ist_bitmap_free(out);
    return status;
}

void ist_frames_close(ist_frames **frames) {
    ist_frames *f = *frames;
    if (!f) return;
    if (f->state) f->container->close(f->state);
    ist_byte_source_close(&f->source);
    free(f->name);
    free(f);
    *frames = NULL;
}
