/* What is written for one image: see record.h. */
#include "io/record.h"

#include "io/visibility.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Names that are no UTF-8 may look alike as JSON: their bytes stand beside them. */
static void put_file(ist_text *line, const char *file) {
    ist_text_put(line, "\"file\":");
    ist_text_json_string(line, file);
    if (ist_text_is_utf8(file)) return;
    ist_text_put(line, ",\"file_bytes\":\"");
    ist_text_hex(line, file);
    ist_text_put(line, "\"");
}

static bool all_finite(const float *values, int count) {
    for (int i = 0; i < count; i++)
        if (!isfinite(values[i])) return false;
    return true;
}

static void put_box(ist_text *line, const float box[4]) {
    ist_text_put(line, "[");
    for (int i = 0; i < 4; i++) {
        if (i) ist_text_put(line, ",");
        ist_text_json_float(line, box[i]);
    }
    ist_text_put(line, "]");
}

static void put_match(const ist_object *object, ist_match_mode match, ist_text *line) {
    if (match == IST_MATCH_NONE) return;
    ist_text_printf(line, ",\"%s\":%d", match == IST_MATCH_TRACKS ? "track" : "target", object->match);
    if (match == IST_MATCH_TRACKS) return;
    ist_text_put(line, ",\"match_iou\":");
    ist_text_json_float(line, object->match_iou);
}

static ist_status put_mask(const ist_object *object, const ist_frame *frame, ist_rle *rle, ist_text *line,
                           ist_error *err) {
    IST_TRY(ist_rle_encode(&object->mask, frame->width, frame->height, rle, err));
    ist_text_printf(line, ",\"rle\":{\"size\":[%d,%d],\"counts\":", frame->height, frame->width);
    ist_text counts = {0};
    ist_rle_text(rle, &counts);
    ist_status status = ist_text_status(&counts, err);
    if (!status) ist_text_json_string(line, counts.data ? counts.data : "");
    ist_text_put(line, "}");
    ist_text_free(&counts);
    return status;
}

/* What the generator knows of a mask. */
static void put_point(const ist_object *o, ist_text *line) {
    ist_text_put(line, ",\"stability\":");
    ist_text_json_float(line, o->stability);
    ist_text_printf(line, ",\"point\":[%.17g,%.17g],\"crop_box\":[%d,%d,%d,%d]", o->point[0], o->point[1],
                    o->crop_box[0], o->crop_box[1], o->crop_box[2], o->crop_box[3]);
}

static ist_status put_object(const ist_record *record, int index, ist_rle *rle, ist_text *line, ist_error *err) {
    const ist_object *o = &record->frame->objects[index];
    char number[16];
    const float values[3] = {o->score, record->masks ? o->mask_score : 0, o->match_iou};
    if (!all_finite(o->box, 4) || !all_finite(values, 3))
        return ist_fail(err, IST_E_DEVICE, "%s: object %d is not finite: score %g, box [%g, %g, %g, %g], mask score %g",
                        record->file, index, (double)o->score, (double)o->box[0], (double)o->box[1], (double)o->box[2],
                        (double)o->box[3], (double)o->mask_score);
    ist_text_printf(line, "%s{\"label\":%d,\"name\":", index ? "," : "", o->label);
    ist_text_json_string(line, ist_label_name(record->labels, o->label, number));
    ist_text_put(line, ",\"score\":");
    ist_text_json_float(line, o->score);
    ist_text_put(line, ",\"box\":");
    put_box(line, o->box);
    if (record->masks) {
        ist_text_put(line, ",\"mask_score\":");
        ist_text_json_float(line, o->mask_score);
        ist_text_printf(line, ",\"area\":%d", o->area);
    }
    put_match(o, record->match, line);
    const ist_trust *trust = ist_visibility_of(record->frame, index);
    if (trust) ist_visibility_put(line, trust);
    if (record->prompts) ist_text_printf(line, ",\"prompt\":%d", o->match);
    if (record->prompts && record->multimask) ist_text_printf(line, ",\"mask_index\":%d", o->query);
    if (record->everything) put_point(o, line);
    if (record->masks && !record->no_rle) IST_TRY(put_mask(o, record->frame, rle, line, err));
    ist_text_put(line, "}");
    return IST_OK;
}

ist_status ist_record_line(const ist_record *record, ist_text *line, ist_error *err) {
    const ist_frame *f = record->frame;
    const ist_record_times *ms = &record->ms;
    const ist_transfers *t = &record->transfers;
    ist_rle rle = {0};
    ist_status status = IST_OK;
    ist_text_put(line, "{\"schema\":1,");
    put_file(line, record->file);
    if (record->stream) ist_text_put(line, record->stream);
    ist_text_printf(line, ",\"width\":%d,\"height\":%d,\"objects\":[", f->width, f->height);
    for (int i = 0; i < f->object_count && !status; i++) status = put_object(record, i, &rle, line, err);
    ist_rle_free(&rle);
    IST_TRY(status);
    ist_text_put(line, "]");
    ist_visibility_put_unseen(line, f);
    if (f->dropped) ist_text_printf(line, ",\"dropped\":%d", f->dropped);
    if (record->stream) {
        ist_text_put(line, "}");
        return ist_text_status(line, err);
    }
    ist_text_printf(line,
                    ",\"ms\":{\"decode\":%.3f,\"submit\":%.3f,\"wait\":%.3f,\"total\":%.3f,\"encode\":%.3f},"
                    "\"transfers\":{\"writes\":%d,\"reads\":%d,\"waits\":%d,\"h2d_bytes\":%llu,\"d2h_bytes\":%llu}}",
                    ms->decode, ms->submit, ms->wait, ms->total, ms->encode, t->writes, t->reads, t->waits,
                    (unsigned long long)t->h2d_bytes, (unsigned long long)t->d2h_bytes);
    return ist_text_status(line, err);
}

static double clamp_unit(double x) {
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

ist_status ist_record_yolo(const ist_frame *frame, ist_text *out, ist_error *err) {
    for (int i = 0; i < frame->object_count; i++) {
        const ist_object *o = &frame->objects[i];
        double x0 = clamp_unit((double)o->box[0] / frame->width), x1 = clamp_unit((double)o->box[2] / frame->width);
        double y0 = clamp_unit((double)o->box[1] / frame->height), y1 = clamp_unit((double)o->box[3] / frame->height);
        ist_text_printf(out, "%d %.6f %.6f %.6f %.6f\n", o->label, (x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0);
    }
    return ist_text_status(out, err);
}

/* An instance map on its way: the pixels that have their object as bits, column by column like a mask's. */
typedef struct instance_map {
    const ist_bitmap *map;
    uint32_t *taken; /* [width, words] */
    int words;
} instance_map;

/* Rows y to y + 31 of column x that bits say become `value`. */
static void put_rows(const ist_bitmap *map, int x, int y, uint32_t bits, int value) {
    size_t width = (size_t)map->width, at = (size_t)y * width + (size_t)x;
    uint8_t *narrow = map->pixels;
    uint16_t *wide = map->pixels;
    for (; bits; bits &= bits - 1) {
        size_t pixel = at + (size_t)__builtin_ctz(bits) * width;
        if (map->format == IST_GRAY8)
            narrow[pixel] = (uint8_t)value;
        else
            wide[pixel] = (uint16_t)value;
    }
}

/* A pixel belongs to the first object that has it. Bands of 32 rows, so that their lines stay in the cache. */
static void put_instance(const instance_map *m, const ist_mask *mask, int value) {
    int columns = mask->columns < m->map->width - mask->x0 ? mask->columns : m->map->width - mask->x0;
    for (int w = 0; w < mask->words; w++) {
        int y = mask->y0 + 32 * w, rows = m->map->height - y;
        if (rows <= 0) return;
        uint32_t inside = rows < 32 ? (1u << rows) - 1 : UINT32_MAX;
        for (int c = 0; c < columns; c++) {
            uint32_t bits = mask->bits[(size_t)c * (size_t)mask->words + (size_t)w] & inside;
            uint32_t *taken = m->taken + (size_t)(mask->x0 + c) * (size_t)m->words + (size_t)(y / 32);
            if (bits & ~*taken) put_rows(m->map, mask->x0 + c, y, bits & ~*taken, value);
            *taken |= bits;
        }
    }
}

ist_status ist_record_instance_map(const ist_frame *frame, ist_bitmap *map, ist_error *err) {
    ist_pixel_format format = frame->object_count > 255 ? IST_GRAY16 : IST_GRAY8;
    IST_TRY(
        ist_bitmap_allocate("instance map", (size_t)frame->width, (size_t)frame->height, format, SIZE_MAX, map, err));
    instance_map m = {.map = map, .words = (frame->height + 31) / 32};
    m.taken = calloc((size_t)frame->width, (size_t)m.words * sizeof *m.taken);
    if (!m.taken) {
        ist_bitmap_free(map);
        return ist_fail(err, IST_E_MEMORY, "instance map: out of memory for %d x %d pixels", frame->width,
                        frame->height);
    }
    memset(map->pixels, 0, map->stride * (size_t)map->height);
    for (int i = 0; i < frame->object_count; i++) put_instance(&m, &frame->objects[i].mask, i + 1);
    free(m.taken);
    return IST_OK;
}

void ist_record_failure(ist_text *out, const char *file, const char *sentence) {
    ist_text_put(out, "{");
    put_file(out, file);
    ist_text_put(out, ",\"error\":");
    ist_text_json_string(out, sentence);
    ist_text_put(out, "}\n");
}
