/* What the page asks and what it is answered: see serve.h. */
#include "serve.h"

#include <stdlib.h>
#include <string.h>

#define JSON "application/json"

/* The text becomes the body. */
static serve_answer answer(unsigned status, ist_text *text) {
    if (!text->failed) return (serve_answer){status, JSON, text->data, text->length, NULL};
    ist_text_free(text);
    return (serve_answer){.status = 500, .type = JSON}; /* out of memory for a sentence */
}

serve_answer serve_refuse(unsigned status, const char *fmt, ...) {
    ist_text text = {0};
    char sentence[600];
    va_list args;
    va_start(args, fmt);
    ist_print_ends_v(sentence, sizeof sentence, fmt, args);
    va_end(args);
    ist_text_put(&text, "{\"error\":");
    ist_text_json_string(&text, sentence);
    ist_text_put(&text, "}\n");
    return answer(status, &text);
}

/* Whose fault a failure is: the request's, or that of what it met here. */
static serve_answer refuse(const ist_error *err) {
    unsigned status = 500;
    if (err->code == IST_E_ARGUMENT || err->code == IST_E_INPUT || err->code == IST_E_LIMIT) status = 400;
    if (err->code == IST_E_MEMORY || err->code == IST_E_DEVICE_MEMORY) status = 503;
    return serve_refuse(status, "%s", err->text);
}

/* ---- routes ---- */

/* N of "/images/N" and what follows it; false when there is no such image. */
static bool read_image(const serve *s, const char *path, size_t *image, const char **rest) {
    size_t n = strspn(path, "0123456789");
    char digits[12];
    int value;
    if (!n || n >= sizeof digits || (*path == '0' && n > 1)) return false;
    memcpy(digits, path, n);
    digits[n] = '\0';
    if (!cli_parse_int(digits, 0, INT32_MAX, &value)) return false;
    *image = (size_t)value;
    *rest = path + n;
    return *image < s->job->sources.count;
}

serve_answer serve_find_route(const serve *s, const char *method, const char *path, serve_route *route) {
    static const struct {
        const char *path, *method;
    } known[] = {[SERVE_PAGE] = {"/", "GET"},
                 [SERVE_IMAGES] = {"/images", "GET"},
                 [SERVE_IMAGE] = {"", "GET"},
                 [SERVE_ENCODE] = {"/encode", "POST"},
                 [SERVE_MASK] = {"/mask", "POST"},
                 [SERVE_MASKS] = {"/masks", "POST"},
                 [SERVE_EVERYTHING] = {"/everything", "POST"}};
    static const char images[] = "/images/";
    const char *rest = path;
    bool within = !strncmp(path, images, sizeof images - 1);
    if (within && !read_image(s, path + sizeof images - 1, &route->image, &rest))
        return serve_refuse(404, "there is no such image: they have the numbers 0 to %zu", s->job->sources.count - 1);
    for (int i = within ? SERVE_IMAGE : SERVE_PAGE; i <= (within ? SERVE_EVERYTHING : SERVE_IMAGES); i++) {
        if (strcmp(rest, known[i].path)) continue;
        route->what = i;
        bool same = !strcmp(method, known[i].method), head = !strcmp(method, "HEAD") && !strcmp(known[i].method, "GET");
        if (same || head) return (serve_answer){0};
        serve_answer refused = serve_refuse(405, "%s takes %s alone", path, known[i].method);
        refused.allow = !strcmp(known[i].method, "GET") ? "GET, HEAD" : known[i].method;
        return refused;
    }
    return serve_refuse(404, "there is no %.200s", path);
}

/* ---- answers ---- */

static serve_answer give_page(void) {
    ist_text text = {0};
    ist_text_put(&text, serve_page());
    serve_answer a = answer(200, &text);
    if (a.body) a.type = "text/html; charset=utf-8";
    return a;
}

static serve_answer list_images(const serve *s) {
    const ist_engine_info *info = &s->job->engine_info;
    const ist_sources *sources = &s->job->sources;
    ist_text text = {0};
    ist_text_put(&text, "{\"segmenter\":");
    ist_text_json_string(&text, info->segmenter);
    ist_text_put(&text, ",\"device\":");
    ist_text_json_string(&text, info->device.name);
    ist_text_printf(&text, ",\"points\":%d,\"images\":[", SERVE_POINTS);
    for (size_t i = 0; i < sources->count; i++) {
        ist_text_printf(&text, "%s{\"id\":%lld,\"name\":", i ? "," : "", (long long)sources->items[i].id);
        ist_text_json_string(&text, sources->items[i].name);
        ist_text_put(&text, "}");
    }
    ist_text_put(&text, "]}\n");
    return answer(200, &text);
}

/* Not the file itself: browsers turn JPEGs by their EXIF orientation and colours by their profiles, networks do not. */
static ist_status png_of(const ist_source *source, char **bytes, size_t *size, ist_error *err) {
    ist_bitmap image, rgb;
    IST_TRY(ist_source_read(source, IST_MAX_PIXELS, &image, err));
    ist_status status = ist_bitmap_as_rgb(&image, image.window_low, image.window_high, &rgb, err);
    ist_bitmap_free(&image);
    if (status) return status;
    FILE *stream = open_memstream(bytes, size);
    status = stream ? ist_png_write_stream(stream, source->path, &rgb, err) : IST_E_MEMORY;
    if ((stream && fclose(stream) && !status) || !stream)
        status = ist_fail(err, IST_E_MEMORY, "%s: out of memory for its PNG", source->path);
    ist_bitmap_free(&rgb);
    if (status) free(*bytes);
    return status;
}

static serve_answer give_image(const serve *s, size_t image) {
    ist_error err;
    serve_answer a = {.status = 200, .type = "image/png"};
    if (png_of(&s->job->sources.items[image], &a.body, &a.size, &err)) return serve_refuse(500, "%s", err.text);
    return a;
}

static serve_answer encode(serve *s, size_t image) {
    ist_error err;
    ist_text text = {0};
    if (serve_encode(s, SERVE_THREE_MASKS, image, &err)) return refuse(&err);
    ist_text_put(&text, "{}\n");
    return answer(200, &text);
}

static ist_status put_mask(ist_text *text, const ist_object *o, const ist_frame *frame, ist_error *err) {
    ist_rle rle = {0};
    ist_text counts = {0};
    ist_status status = ist_rle_encode(&o->mask, frame->width, frame->height, &rle, err);
    ist_rle_text(&rle, &counts);
    if (!status) status = ist_text_status(&counts, err);
    ist_text_put(text, "{\"score\":");
    ist_text_json_float(text, o->mask_score);
    ist_text_put(text, ",\"stability\":");
    ist_text_json_float(text, o->stability);
    const int *b = o->mask_box, any = o->area > 0;
    ist_text_printf(text, ",\"area\":%d,\"bbox\":[%d,%d,%d,%d],\"segmentation\":{\"size\":[%d,%d],\"counts\":", o->area,
                    b[0], b[1], b[2] - b[0] + any, b[3] - b[1] + any, frame->height, frame->width);
    ist_text_json_string(text, counts.data ? counts.data : "");
    ist_text_put(text, "}}");
    ist_text_free(&counts);
    ist_rle_free(&rle);
    return status;
}

static serve_answer list_masks(const ist_frame *frame, double ms) {
    ist_error err;
    ist_text text = {0};
    ist_status status = IST_OK;
    ist_text_printf(&text, "{\"ms\":%.3f,\"masks\":[", ms);
    for (int i = 0; i < frame->object_count && !status; i++) {
        if (i) ist_text_put(&text, ",");
        status = put_mask(&text, &frame->objects[i], frame, &err);
    }
    ist_text_put(&text, "]}\n");
    if (!status) return answer(200, &text);
    ist_text_free(&text);
    return refuse(&err);
}

/* Of a prompt; NULL: of everything. */
static serve_answer give_masks(serve *s, serve_kind kind, size_t image, const ist_prompt *prompt) {
    const ist_result *result = NULL;
    ist_error err;
    double begin = predict_now_ms();
    if (prompt ? serve_ask(s, kind, image, prompt, &result, &err) : serve_everything(s, image, &result, &err))
        return refuse(&err);
    serve_answer a = list_masks(&result->frames[0], predict_now_ms() - begin);
    ist_release(s->engines[kind].engine, &result);
    return a;
}

static serve_answer read_and_give(serve *s, const serve_route *route, const char *body, size_t size) {
    ist_prompt_entry entry;
    ist_error err;
    if (ist_prompt_parse(body, size, "the prompt", &entry, &err)) return refuse(&err);
    const ist_prompt prompt = {
        .points = entry.points, .point_count = (int)entry.point_count, .box = entry.boxed ? entry.box : NULL};
    serve_answer a;
    if (entry.point_count > SERVE_POINTS)
        a = serve_refuse(400, "the prompt has %zu points, at most %d are taken", entry.point_count, SERVE_POINTS);
    else
        a = give_masks(s, route->what == SERVE_MASKS ? SERVE_THREE_MASKS : SERVE_ONE_MASK, route->image, &prompt);
    ist_prompt_entry_free(&entry);
    return a;
}

serve_answer serve_respond(serve *s, const serve_route *route, const char *body, size_t size) {
    switch (route->what) {
    case SERVE_PAGE:
        return give_page();
    case SERVE_IMAGES:
        return list_images(s);
    case SERVE_IMAGE:
        return give_image(s, route->image);
    case SERVE_ENCODE:
        return encode(s, route->image);
    case SERVE_EVERYTHING:
        return give_masks(s, SERVE_ALL_MASKS, route->image, NULL);
    default:
        return read_and_give(s, route, body, size);
    }
}
