/* One picture of a report: the image, small, with outlines of masks and boxes above it that can be switched off. Where
 * the image is not what the run read any more, its overlay, which has them drawn in. */
#include "page.h"
#include "report.h"

#include "base/sample_window.h"
#include "io/outline.h"
#include "io/overlay.h"
#include "io/rle.h"
#include "io/sources.h"
#include "io/thumbnail.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { QUALITY = 85 };

/* ---- masks ---- */

/* Where samples of a side of `small` points lie in one of `large` pixels. */
static int sample(int i, int large, int small) {
    return (int)((2LL * i + 1) * large / (2LL * small));
}

/* The first sample at `from` or later. */
static int first_sample(int from, int large, int small) {
    int i = (int)((long long)from * small / large);
    while (i > 0 && sample(i - 1, large, small) >= from) i--;
    while (i < small && sample(i, large, small) < from) i++;
    return i;
}

/* Sets what rows [y0, y1) of column x hold. */
static void set_rows(uint32_t *bits, const ist_mask *mask, int x, int y0, int y1, int height, int small_height) {
    int end = first_sample(y1, height, small_height);
    for (int y = first_sample(y0, height, small_height); y < end; y++)
        bits[(size_t)x * (size_t)mask->words + (size_t)(y / 32)] |= 1u << (y % 32);
}

/* The mask of run lengths in a picture of width x height, at the thumbnail's size. */
static void shrink(const ist_rle *rle, int width, int height, const ist_thumbnail *t, uint32_t *bits, ist_mask *mask) {
    uint64_t at = 0;
    for (size_t i = 0; i < rle->count; at += rle->counts[i++]) {
        uint64_t end = at + rle->counts[i];
        if (i % 2 == 0 || at == end) continue;
        int last = (int)((end - 1) / (uint64_t)height);
        for (int sx = first_sample((int)(at / (uint64_t)height), width, t->width); sx < t->width; sx++) {
            int x = sample(sx, width, t->width);
            if (x > last) break;
            uint64_t column = (uint64_t)x * (uint64_t)height;
            int y0 = at > column ? (int)(at - column) : 0;
            int y1 = end < column + (uint64_t)height ? (int)(end - column) : height;
            set_rows(bits, mask, sx, y0, y1, height, t->height);
        }
    }
}

/* Loops as an SVG path; corners lie at halves. */
static void put_path(ist_text *out, const ist_outline *o) {
    const float(*corner)[2] = (const float(*)[2])o->corners;
    for (size_t i = 0; i < o->count; i++) {
        for (uint32_t k = 0; k < o->counts[i]; k++, corner++) {
            int x = (int)((*corner)[0] + 0.5f), y = (int)((*corner)[1] + 0.5f);
            if (!k)
                ist_text_printf(out, "M%d %d", x, y);
            else if ((*corner)[0] != corner[-1][0])
                ist_text_printf(out, "H%d", x);
            else
                ist_text_printf(out, "V%d", y);
        }
        ist_text_put(out, "Z");
    }
}

/* The path of an object's mask; nothing where it has none, or none that fits the picture. */
static ist_status put_mask(ist_text *out, const json_t *object, int width, int height, const ist_thumbnail *t,
                           ist_error *err) {
    const json_t *counts = json_object_get(json_object_get(object, "rle"), "counts");
    ist_rle rle = {0};
    ist_outline outline = {0};
    if (!json_is_string(counts)) return IST_OK;
    ist_status status = ist_rle_parse(json_string_value(counts), json_string_length(counts),
                                      (uint64_t)width * (uint64_t)height, &rle, err);
    if (status) {
        ist_rle_free(&rle);
        return status == IST_E_MEMORY ? status : IST_OK;
    }
    ist_mask mask = {.columns = t->width, .words = (t->height + 31) / 32};
    uint32_t *bits = calloc((size_t)mask.columns * (size_t)mask.words, sizeof *bits);
    if (!bits) status = ist_fail(err, IST_E_MEMORY, "out of memory for a mask");
    if (!status) {
        shrink(&rle, width, height, t, bits, &mask);
        mask.bits = bits;
        status = ist_outline_add(&outline, &mask, err);
    }
    if (!status) put_path(out, &outline);
    ist_outline_free(&outline);
    ist_rle_free(&rle);
    free(bits);
    return status;
}

/* ---- objects ---- */

static void put_color(ist_text *out, const json_t *object) {
    const json_t *track = json_object_get(object, "track");
    json_int_t key = json_integer_value(
        json_is_integer(track) && json_integer_value(track) >= 0 ? track : json_object_get(object, "label"));
    uint8_t rgb[3];
    ist_overlay_color(key < 0 || key > INT32_MAX ? 0 : (int)key, rgb);
    ist_text_printf(out, "#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
}

/* What the filter looks at. */
static void put_data(ist_text *out, const report *r, const json_t *object) {
    ist_text_printf(out, " data-c=\"%zu\" data-s=\"%.4f\"", report_class_of(r, object),
                    json_number_value(json_object_get(object, "score")));
}

static double clamp(double value, double high) {
    return value > 0 ? value < high ? value : high : 0;
}

static ist_status put_layer(ist_text *out, const report *r, const json_t *object, int width, int height,
                            const ist_thumbnail *t, ist_error *err) {
    const json_t *box = json_object_get(object, "box");
    double sx = (double)t->width / width, sy = (double)t->height / height, at[4];
    for (size_t i = 0; i < 4; i++) {
        double side = i % 2 ? t->height : t->width;
        at[i] = clamp(json_number_value(json_array_get(box, i)) * (i % 2 ? sy : sx), side);
    }
    ist_text_put(out, "<g class=\"o\"");
    put_data(out, r, object);
    ist_text_put(out, "><path class=\"m\" fill=\"");
    put_color(out, object);
    ist_text_put(out, "\" d=\"");
    IST_TRY(put_mask(out, object, width, height, t, err));
    ist_text_put(out, "\"/><rect class=\"b\" stroke=\"");
    put_color(out, object);
    ist_text_printf(out,
                    "\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/><text class=\"n\" x=\"%.1f\" y=\"%.1f\">",
                    at[0], at[1], clamp(at[2] - at[0], t->width), clamp(at[3] - at[1], t->height), at[0] + 2,
                    at[1] > 16 ? at[1] - 4 : at[1] + 14);
    report_put_text(out, json_string_value(json_object_get(object, "name")));
    ist_text_printf(out, " %.2f</text></g>\n", json_number_value(json_object_get(object, "score")));
    return IST_OK;
}

static void put_item(ist_text *out, const report *r, const json_t *object) {
    static const char *const places[] = {"track", "target", "prompt"};
    const json_t *score = json_object_get(object, "mask_score"), *area = json_object_get(object, "area");
    ist_text_put(out, "<li");
    put_data(out, r, object);
    ist_text_put(out, "><svg class=\"key\" viewBox=\"0 0 1 1\"><rect width=\"1\" height=\"1\" fill=\"");
    put_color(out, object);
    ist_text_put(out, "\"/></svg> <bdi>");
    report_put_text(out, json_string_value(json_object_get(object, "name")));
    ist_text_printf(out, "</bdi> %.3f", json_number_value(json_object_get(object, "score")));
    if (json_is_number(score)) ist_text_printf(out, ", mask %.3f", json_number_value(score));
    if (json_is_integer(area)) ist_text_printf(out, ", %lld pixels", (long long)json_integer_value(area));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const json_t *place = json_object_get(object, places[i]);
        if (json_is_integer(place)) ist_text_printf(out, ", %s %lld", places[i], (long long)json_integer_value(place));
    }
    ist_text_put(out, "</li>\n");
}

/* ---- the image ---- */

/* What an option of the run was; "" where run.json does not say. */
static const char *option_of(const report *r, const char *name) {
    const char *value = json_string_value(json_object_get(r->options, name));
    return value ? value : "";
}

/* The window of --window auto, near enough to look at: 0.5 % of the samples are below it, and above. */
static ist_status find_window(const ist_bitmap *image, int window[2], ist_error *err) {
    size_t samples = image->stride / 2 * (size_t)image->height, cut = samples / 200, below = 0;
    size_t *counts = calloc(UINT16_MAX + 1, sizeof *counts);
    const uint16_t *p = image->pixels;
    if (!counts) return ist_fail(err, IST_E_MEMORY, "out of memory for a window");
    for (size_t i = 0; i < samples; i++) counts[p[i]]++;
    for (window[0] = 0; below + counts[window[0]] <= cut && window[0] < UINT16_MAX;) below += counts[window[0]++];
    below = 0;
    for (window[1] = UINT16_MAX; below + counts[window[1]] <= cut && window[1] > 0;) below += counts[window[1]--];
    if (window[1] <= window[0]) window[1] = window[0] + 1;
    free(counts);
    return IST_OK;
}

/* The run's --window LOW:HIGH; zeros: there was none. */
static void given_values(const report *r, double values[2]) {
    double low, high;
    values[0] = values[1] = 0;
    if (sscanf(option_of(r, "window"), "%30lf:%30lf", &low, &high) != 2) return;
    if (low < high && low >= -IST_WINDOW_MAX && high <= IST_WINDOW_MAX) values[0] = low, values[1] = high;
}

/* What the run's --window made of an image. */
static ist_status choose_window(const report *r, const ist_bitmap *image, int window[2], ist_error *err) {
    const char *text = option_of(r, "window");
    window[0] = window[1] = 0;
    if (ist_format_bytes(image->format) < 2) return IST_OK;
    if (!strcmp(text, "dicom")) window[0] = image->window_low, window[1] = image->window_high;
    if (!strcmp(text, "auto")) return find_window(image, window, err);
    double values[2];
    given_values(r, values);
    if (values[0] < values[1]) ist_bitmap_window(image, values[0], values[1], window);
    return IST_OK;
}

/* A picture, small, if it has the size that the run saw. */
static ist_status take(const report *r, const ist_bitmap *image, int width, int height, ist_thumbnail *t,
                       ist_error *err) {
    int window[2];
    if (image->width != width || image->height != height) return IST_OK;
    IST_TRY(choose_window(r, image, window, err));
    return ist_thumbnail_make(image, window, REPORT_SIDE, QUALITY, t, err);
}

/* Whether there is such a file; pipes and devices are none. */
static ist_status find_file(const char *path, bool *there, ist_error *err) {
    struct stat st;
    *there = !stat(path, &st);
    if (!*there && errno != ENOENT && errno != ENOTDIR) return ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
    *there = *there && S_ISREG(st.st_mode);
    return IST_OK;
}

/* The image of `file` that is called `path`. */
static ist_status read_frame(const report *r, const char *file, const char *path, int width, int height,
                             ist_thumbnail *t, ist_error *err) {
    ist_sources sources = {.turned = !strcmp(option_of(r, "exif-orientation"), "on")};
    ist_bitmap image = {0};
    given_values(r, sources.values);
    ist_status status = ist_sources_add(&sources, file, false, NULL, err);
    for (size_t i = 0; i < sources.count && !status && !t->bytes; i++) {
        const ist_source *s = &sources.items[i];
        if (strcmp(s->path, path) != 0) continue;
        status = ist_source_read(s, IST_MAX_PIXELS, &image, err);
        if (!status) status = take(r, &image, width, height, t, err);
        ist_bitmap_free(&image);
    }
    ist_sources_free(&sources);
    return status;
}

/* The image that a line names, read as the run has read it: "scan.tif#3" is one of several in a file. Nothing in *t
 * where it is not there any more. */
static ist_status read_image(const report *r, const char *path, int width, int height, ist_thumbnail *t,
                             ist_error *err) {
    bool there;
    IST_TRY(find_file(path, &there, err));
    if (there) return read_frame(r, path, path, width, height, t, err);
    const char *mark = strrchr(path, '#');
    char *file = mark ? strndup(path, (size_t)(mark - path)) : NULL;
    if (!mark) return IST_OK;
    ist_status status = file ? find_file(file, &there, err) : ist_fail(err, IST_E_MEMORY, "%s: out of memory", path);
    if (!status && there) status = read_frame(r, file, path, width, height, t, err);
    free(file);
    return status;
}

static ist_status read_picture(const report *r, const char *path, int width, int height, ist_thumbnail *t,
                               ist_error *err) {
    ist_bitmap image = {0};
    bool there;
    IST_TRY(find_file(path, &there, err));
    ist_status status = there ? ist_bitmap_read(path, IST_MAX_PIXELS, &image, err) : IST_OK;
    if (!status && there) status = take(r, &image, width, height, t, err);
    ist_bitmap_free(&image);
    return status;
}

/* overlays/STEM.png of the file: STEM is the end of its path that the run was given, with its extension or without. */
static ist_status read_overlay(const report *r, const char *file, int width, int height, ist_thumbnail *t,
                               ist_error *err) {
    const char *dot = strrchr(file, '.'), *slash = strrchr(file, '/');
    size_t length = strlen(file), bare = dot && (!slash || dot > slash + 1) ? (size_t)(dot - file) : length;
    ist_status status = IST_OK;
    for (const char *end = file; end && !status && !t->bytes; end = strchr(end, '/')) {
        while (*end == '/') end++;
        if (!strncmp(end, "../", 3) || strstr(end, "/../")) continue; /* no stem leaves the folder */
        for (int k = 0; k < 2 && !status && !t->bytes; k++) {
            ist_text path = {0};
            ist_text_printf(&path, "%s/overlays/", r->folder);
            ist_text_add(&path, end, (k ? bare : length) - (size_t)(end - file));
            ist_text_put(&path, ".png");
            status = ist_text_status(&path, err);
            if (!status) status = read_picture(r, path.data, width, height, t, err);
            ist_text_free(&path);
        }
    }
    return status;
}

/* The path in the file system: of one that is no UTF-8 the line says the bytes. */
static char *path_of(const json_t *frame) {
    const char *hex = json_string_value(json_object_get(frame, "file_bytes"));
    return hex ? ist_text_from_hex(hex) : strdup(json_string_value(json_object_get(frame, "file")));
}

/* The picture of a line, or where that is not to be had its overlay; says in the page what is missing, and why. */
static ist_status find_picture(ist_text *out, const report *r, const char *path, int width, int height,
                               ist_thumbnail *t, bool *plain, ist_error *err) {
    ist_error why = {.code = IST_OK}, other;
    ist_status status = read_image(r, path, width, height, t, &why);
    *plain = t->bytes != NULL;
    if (!status && *plain) return IST_OK;
    if (status != IST_E_MEMORY) status = read_overlay(r, path, width, height, t, &other);
    if (status == IST_E_MEMORY) return ist_fail(err, status, "%s: out of memory for its picture", path);
    ist_text_put(out, "<p>");
    if (why.code) {
        ist_text_put(out, "The image cannot be read: <bdi>");
        report_put_text(out, why.text);
        ist_text_put(out, "</bdi>");
    } else {
        ist_text_put(out, "The image is not where the run read it");
    }
    ist_text_put(out, t->bytes ? ": this is its overlay.</p>\n" : ".</p>\n");
    return IST_OK;
}

static ist_status put_image(ist_text *out, const report *r, const json_t *frame, int width, int height,
                            ist_error *err) {
    const json_t *objects = json_object_get(frame, "objects");
    ist_thumbnail t = {0};
    bool plain = false;
    char *path = path_of(frame);
    ist_status status = path ? find_picture(out, r, path, width, height, &t, &plain, err) : IST_OK;
    if (!path && !json_object_get(frame, "file_bytes"))
        status = ist_fail(err, IST_E_MEMORY, "%s: out of memory", r->folder);
    if (!path && !status) ist_text_put(out, "<p>The image has no name.</p>\n"); /* its bytes are no digits */
    free(path);
    if (status) return status;
    if (!t.bytes) /* outlines can be shown without it */
        ist_thumbnail_size(width, height, REPORT_SIDE, &t.width, &t.height);
    ist_text_put(out, "<div class=\"picture\">");
    if (t.bytes) {
        ist_text_printf(out, "<img width=\"%d\" height=\"%d\" alt=\"\" src=\"data:image/jpeg;base64,", t.width,
                        t.height);
        page_put_base64(out, t.bytes, t.count);
        ist_text_put(out, "\">");
    }
    if (plain || !t.bytes) {
        ist_text_printf(out, "<svg width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", t.width, t.height, t.width,
                        t.height);
        for (size_t i = json_array_size(objects); !status && i-- > 0;) /* the best above the others */
            status = put_layer(out, r, json_array_get(objects, i), width, height, &t, err);
        ist_text_put(out, "</svg>");
    }
    ist_text_put(out, "</div>\n");
    ist_thumbnail_free(&t);
    return status;
}

ist_status report_put_picture(ist_text *out, const report *r, const json_t *frame, ist_error *err) {
    const json_t *objects = json_object_get(frame, "objects");
    const size_t count = json_array_size(objects);
    int width = (int)json_integer_value(json_object_get(frame, "width"));
    int height = (int)json_integer_value(json_object_get(frame, "height"));
    ist_text_put(out, "<figure>\n");
    IST_TRY(put_image(out, r, frame, width, height, err));
    ist_text_put(out, "<figcaption><bdi>");
    report_put_text(out, json_string_value(json_object_get(frame, "file")));
    ist_text_printf(out, "</bdi><br>%d &times; %d pixels</figcaption>\n", width, height);
    if (!count) {
        ist_text_put(out, "<p>No objects.</p>\n</figure>\n");
        return IST_OK;
    }
    ist_text_printf(out, "<details><summary>%zu %s</summary><ol>\n", count, ist_plural(count, "object", "objects"));
    for (size_t i = 0; i < count; i++) put_item(out, r, json_array_get(objects, i));
    ist_text_put(out, "</ol></details>\n</figure>\n");
    return IST_OK;
}
