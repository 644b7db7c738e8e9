/* --window: how 16-bit samples become 8 bits. */
#include "predict.h"

#include "base/sample_window.h"

#include <stdio.h>
#include <string.h>

static bool parse_bounds(const char *text, predict_options *o) {
    const char *colon = strchr(text, ':');
    char low[32];
    if (!colon || (size_t)(colon - text) >= sizeof low) return false;
    snprintf(low, sizeof low, "%.*s", (int)(colon - text), text);
    return cli_parse_number(low, -IST_WINDOW_MAX, IST_WINDOW_MAX, &o->window_low) &&
           cli_parse_number(colon + 1, -IST_WINDOW_MAX, IST_WINDOW_MAX, &o->window_high) &&
           o->window_low < o->window_high;
}

int predict_parse_window(const char *text, predict_options *o) {
    o->window_low = o->window_high = 0;
    o->window_of_file = !strcmp(text, "dicom");
    o->window = strcmp(text, "auto") ? IST_WINDOW_GIVEN : IST_WINDOW_AUTO;
    if (o->window_of_file || o->window == IST_WINDOW_AUTO || parse_bounds(text, o)) return CLI_SUCCESS;
    return cli_usage(o->command,
                     "--window: '%s' is none of LOW:HIGH with LOW below HIGH, from %d to %d, auto and dicom", text,
                     -IST_WINDOW_MAX, IST_WINDOW_MAX);
}

void predict_use_file_windows(predict_options *o) {
    if (o->window) return;
    o->window = IST_WINDOW_GIVEN;
    o->window_of_file = o->window_if_there = true;
}

void predict_choose_window(predict_job *job) {
    predict_options *o = job->options;
    for (size_t i = 0; i < job->sources.count && !o->window; i++) {
        const ist_source_file *file = job->sources.items[i].file;
        if (file && file->has_windows) predict_use_file_windows(o);
    }
}

void predict_show_values(const predict_options *o, ist_sources *sources) {
    const bool given = o->window == IST_WINDOW_GIVEN && !o->window_of_file;
    sources->values[0] = given ? o->window_low : 0;
    sources->values[1] = given ? o->window_high : 0;
}

void predict_print_window(const predict_options *o, char *text, size_t size) {
    if (o->window == IST_WINDOW_GIVEN && !o->window_of_file)
        snprintf(text, size, "%.9g:%.9g", o->window_low, o->window_high);
    else
        snprintf(text, size, "%s", o->window_of_file ? "dicom" : o->window == IST_WINDOW_AUTO ? "auto" : "off");
}

ist_status predict_set_window(const predict_options *o, const ist_bitmap *bitmap, const char *path, ist_image *image,
                              ist_error *err) {
    if (ist_format_bytes(bitmap->format) != 2) return IST_OK;
    if (o->window_of_file) {
        image->window_low = bitmap->window_low, image->window_high = bitmap->window_high;
    } else if (o->window == IST_WINDOW_GIVEN) {
        int window[2];
        ist_bitmap_window(bitmap, o->window_low, o->window_high, window);
        image->window_low = window[0], image->window_high = window[1];
    }
    if (image->window_low < image->window_high || o->window == IST_WINDOW_AUTO) return IST_OK;
    if (bitmap->needs_window)
        return ist_fail(err, IST_E_INPUT, "%s: floating point samples want --window LOW:HIGH or auto", path);
    if (!o->window_of_file || o->window_if_there) return IST_OK;
    return ist_fail(err, IST_E_INPUT, "%s: carries no window for --window dicom; give LOW:HIGH or auto", path);
}
