/* See recording.h. */
#include "live/recording.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/sample_window.h"
#include "io/atomic_file.h"
#include "io/sources.h"
#include "live/queue.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAITING = 64, MAX_INDEX = 1 << 30 };

/* ---- out ---- */

struct ist_live_recording {
    pthread_t thread;
    ist_live_queue queue;
    ist_live_counts *counts;
    char *folder;
    ist_atomic_file index;
    double first_ms;
    uint64_t written;
    ist_error failure; /* of the thread */
};

static void put_index(ist_text *line, const ist_live_frame *f, const char *name, double ms) {
    const ist_live_geometry *g = &f->geometry;
    ist_text_printf(line, "{\"file\":\"%s\",\"ms\":%.3f,\"timestamp\":\"%016llx\",\"device\":", name, ms,
                    (unsigned long long)f->timestamp);
    ist_text_json_string(line, f->device);
    ist_text_printf(line, ",\"size\":[%d,%d,%d],\"coord\":%d,\"matrix\":[", g->size[0], g->size[1], g->size[2],
                    g->coord);
    for (int i = 0; i < 12; i++) {
        if (i) ist_text_put(line, ",");
        ist_text_json_float(line, g->matrix[i]);
    }
    ist_text_put(line, "]");
    const ist_bitmap *image = &f->image;
    if (image->value_step != 0)
        ist_text_printf(line, ",\"values\":[%.17g,%.17g]", image->value_zero, image->value_step);
    if (image->window_low || image->window_high)
        ist_text_printf(line, ",\"window\":[%d,%d]", image->window_low, image->window_high);
    if (f->file) {
        ist_text_put(line, ",\"source\":");
        ist_text_json_string(line, f->file);
    }
    ist_text_put(line, "}\n");
}

/* PNG has no alpha of ours: it is nothing that the engine looks at. */
static ist_status without_alpha(const ist_bitmap *image, ist_bitmap *out, ist_error *err) {
    size_t sample = (size_t)ist_format_bytes(image->format), channels = (size_t)ist_format_channels(image->format);
    size_t from_step = channels * sample, to_step = from_step - sample;
    IST_TRY(ist_bitmap_allocate("recording", (size_t)image->width, (size_t)image->height,
                                (ist_pixel_format)((int)image->format - 1), IST_MAX_PIXELS, out, err));
    const uint8_t *from = image->pixels;
    uint8_t *to = out->pixels;
    for (size_t n = (size_t)image->width * (size_t)image->height; n; n--, from += from_step, to += to_step)
        memcpy(to, from, to_step);
    return IST_OK;
}

static ist_status write_frame(ist_live_recording *r, const ist_live_frame *f, ist_error *err) {
    char name[32];
    ist_text line = {0};
    ist_bitmap plain = {0};
    snprintf(name, sizeof name, "%08llu.png", (unsigned long long)++r->written);
    char *path = ist_path_join(r->folder, name);
    if (!path) return ist_fail(err, IST_E_MEMORY, "recording: out of memory");
    ist_status status = IST_OK;
    if (ist_format_channels(f->image.format) % 2 == 0) status = without_alpha(&f->image, &plain, err);
    if (!status) status = ist_png_write(path, plain.pixels ? &plain : &f->image, err);
    if (r->written == 1) r->first_ms = f->arrived_ms;
    put_index(&line, f, name, f->arrived_ms - r->first_ms);
    if (!status) status = ist_text_status(&line, err);
    if (!status && fwrite(line.data, 1, line.length, r->index.stream) != line.length)
        status = ist_fail(err, IST_E_IO, "%s: cannot write the index", r->folder);
    ist_text_free(&line);
    ist_bitmap_free(&plain);
    free(path);
    return status;
}

static void *record(void *context) {
    ist_live_recording *r = context;
    for (ist_live_frame *f; (f = ist_live_queue_take(&r->queue, true)); ist_live_frame_drop(f)) {
        if (!r->failure.code && write_frame(r, f, &r->failure)) ist_live_queue_end(&r->queue);
    }
    return NULL;
}

ist_status ist_live_recording_open(const char *folder, bool waits, ist_live_counts *counts,
                                   ist_live_recording **recording, ist_error *err) {
    *recording = NULL;
    char *index = ist_path_join(folder, IST_LIVE_STREAM);
    bool there = index && !access(index, F_OK);
    free(index);
    if (there) return ist_fail(err, IST_E_STATE, "%s has a recording already", folder);
    ist_live_recording *r = calloc(1, sizeof *r);
    if (!r || !(r->folder = ist_strdup(folder)) ||
        !ist_live_queue_open(&r->queue, WAITING, waits, ist_live_frame_drop)) {
        if (r) free(r->folder);
        free(r);
        return ist_fail(err, IST_E_MEMORY, "recording: out of memory");
    }
    r->counts = counts;
    ist_status status = ist_atomic_begin_in(&r->index, folder, IST_LIVE_STREAM, err);
    if (!status && pthread_create(&r->thread, NULL, record, r)) {
        ist_atomic_abort(&r->index);
        status = ist_fail(err, IST_E_MEMORY, "recording: no thread");
    }
    if (status) {
        ist_live_queue_close(&r->queue);
        free(r->folder);
        free(r);
        return status;
    }
    *recording = r;
    return IST_OK;
}

void ist_live_recording_put(ist_live_recording *r, ist_live_frame *frame) {
    int lost = ist_live_queue_put(&r->queue, ist_live_frame_hold(frame));
    if (lost) ist_live_add(r->counts, unrecorded, (uint64_t)lost);
}

ist_status ist_live_recording_close(ist_live_recording **recording, ist_error *err) {
    if (!recording || !*recording) return IST_OK;
    ist_live_recording *r = *recording;
    ist_live_queue_end(&r->queue);
    pthread_join(r->thread, NULL);
    ist_status status = r->failure.code;
    ist_error own = r->failure;
    ist_status committed = ist_atomic_commit(&r->index, status ? NULL : &own); /* what is there can be replayed */
    if (!status) status = committed;
    if (status && err) *err = own;
    ist_live_queue_close(&r->queue);
    free(r->folder);
    free(r);
    *recording = NULL;
    return status;
}

/* ---- back ---- */

struct ist_live_folder {
    char *path;
    json_t *index; /* NULL: no recording */
    ist_sources sources;
};

static json_t *read_index(const char *folder, ist_error *err) {
    char *path = ist_path_join(folder, IST_LIVE_STREAM), *bytes = NULL, *end;
    size_t count = 0, line = 0;
    json_t *index = json_array();
    ist_status status = path && index ? ist_read_file(path, MAX_INDEX, &bytes, &count, err)
                                      : ist_fail(err, IST_E_MEMORY, "%s: out of memory", folder);
    for (char *p = bytes; !status && p < bytes + count; p = end + 1) {
        end = strchr(p, '\n');
        if (!end) end = p + strlen(p);
        json_error_t why;
        json_t *entry = json_loadb(p, (size_t)(end - p), JSON_REJECT_DUPLICATES, &why);
        const char *file = json_string_value(json_object_get(entry, "file"));
        line++;
        if (!file || strchr(file, '/') || !*file || *file == '.')
            status = ist_fail(err, IST_E_INPUT, "%s: line %zu names no file of the recording", path, line);
        if (json_array_append_new(index, entry) && !status)
            status = ist_fail(err, IST_E_INPUT, "%s: line %zu: %s", path, line, why.text);
    }
    free(bytes);
    free(path);
    if (!status) return index;
    json_decref(index);
    return NULL;
}

static bool is_recording(const char *folder) {
    char *path = ist_path_join(folder, IST_LIVE_STREAM);
    bool there = path && !access(path, F_OK);
    free(path);
    return there;
}

ist_status ist_live_folder_open(const char *folder, ist_live_folder **opened, ist_error *err) {
    *opened = NULL;
    ist_live_folder *f = calloc(1, sizeof *f);
    if (!f || !(f->path = ist_strdup(folder))) {
        free(f);
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory", folder);
    }
    ist_status status = IST_OK;
    if (is_recording(folder)) {
        f->index = read_index(folder, err);
        status = f->index ? IST_OK : err->code;
    } else {
        status = ist_sources_add(&f->sources, folder, false, NULL, err);
        if (!status) status = ist_sources_finish(&f->sources, err);
        if (!status && !f->sources.count)
            status =
                ist_fail(err, IST_E_INPUT, "%s: there is no image in it (looked for %s)", folder, IST_IMAGE_EXTENSIONS);
    }
    if (status)
        ist_live_folder_close(&f);
    else
        *opened = f;
    return status;
}

size_t ist_live_folder_count(const ist_live_folder *f) {
    return f->index ? json_array_size(f->index) : f->sources.count;
}

double ist_live_folder_time(const ist_live_folder *f, size_t i) {
    return f->index ? json_number_value(json_object_get(json_array_get(f->index, i), "ms")) : -1;
}

const char *ist_live_folder_file(const ist_live_folder *f, size_t i) {
    return f->index ? json_string_value(json_object_get(json_array_get(f->index, i), "file"))
                    : f->sources.items[i].path;
}

bool ist_live_folder_has_windows(const ist_live_folder *f) {
    for (size_t i = 0; i < ist_live_folder_count(f); i++) {
        const ist_source_file *file = f->index ? NULL : f->sources.items[i].file;
        if (f->index ? json_object_get(json_array_get(f->index, i), "window") != NULL : file && file->has_windows)
            return true;
    }
    return false;
}

static double number_at(const json_t *entry, const char *key, size_t i) {
    return json_number_value(json_array_get(json_object_get(entry, key), i));
}

/* What its samples stand for, and the window; what cannot be is not believed. */
static void recall_values(const json_t *entry, ist_bitmap *image) {
    double zero = number_at(entry, "values", 0), step = number_at(entry, "values", 1);
    double low = number_at(entry, "window", 0), high = number_at(entry, "window", 1);
    if (isfinite(zero) && isfinite(step)) image->value_zero = zero, image->value_step = step;
    if (low < high && low >= -IST_WINDOW_MAX && high <= IST_WINDOW_MAX)
        image->window_low = (int)low, image->window_high = (int)high;
}

/* What the index knows of a frame; sizes that are not those of its picture are not believed. */
static ist_status recall(const json_t *entry, ist_live_frame *f, ist_error *err) {
    const char *source = json_string_value(json_object_get(entry, "source"));
    if (source && !(f->file = ist_strdup(source))) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", source);
    const char *device = json_string_value(json_object_get(entry, "device"));
    const char *timestamp = json_string_value(json_object_get(entry, "timestamp"));
    ist_live_geometry *g = &f->geometry;
    if (device) snprintf(f->device, sizeof f->device, "%s", device);
    if (timestamp) f->timestamp = strtoull(timestamp, NULL, 16);
    uint64_t pixels = 1;
    for (size_t i = 0; i < 3; i++) {
        double side = number_at(entry, "size", i);
        g->size[i] = side >= 1 && side <= UINT16_MAX ? (uint16_t)side : 0;
        pixels *= g->size[i];
    }
    bool slice = g->size[0] == 1 || g->size[1] == 1 || g->size[2] == 1;
    if (!slice || pixels != (uint64_t)f->image.width * (uint64_t)f->image.height) ist_live_frame_place(f);
    recall_values(entry, &f->image);
    g->coord = (uint8_t)json_integer_value(json_object_get(entry, "coord"));
    for (size_t i = 0; i < 12; i++) g->matrix[i] = (float)number_at(entry, "matrix", i);
    return IST_OK;
}

ist_status ist_live_folder_read(const ist_live_folder *folder, size_t i, ist_live_frame **frame, ist_error *err) {
    *frame = NULL;
    ist_live_frame *f = ist_live_frame_new("isthmus");
    const char *file = ist_live_folder_file(folder, i);
    char *path = folder->index ? ist_path_join(folder->path, file) : ist_strdup(file);
    if (!f || !path) {
        free(path);
        ist_live_frame_drop(f);
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory", file);
    }
    ist_status status = folder->index ? ist_bitmap_read(path, IST_MAX_PIXELS, &f->image, err)
                                      : ist_source_read(&folder->sources.items[i], IST_MAX_PIXELS, &f->image, err);
    if (!status && (f->image.width > UINT16_MAX || f->image.height > UINT16_MAX))
        status = ist_fail(err, IST_E_LIMIT, "%s: %d x %d pixels, a stream has at most %d on a side", path,
                          f->image.width, f->image.height, UINT16_MAX);
    if (!status) {
        ist_live_frame_place(f);
        f->timestamp = ist_live_now();
        if (folder->index)
            status = recall(json_array_get(folder->index, i), f, err);
        else
            f->file = path, path = NULL;
    }
    free(path);
    if (status)
        ist_live_frame_drop(f);
    else
        *frame = f;
    return status;
}

void ist_live_folder_close(ist_live_folder **folder) {
    if (!folder || !*folder) return;
    free((*folder)->path);
    json_decref((*folder)->index);
    ist_sources_free(&(*folder)->sources);
    free(*folder);
    *folder = NULL;
}
