/* Segmentations of COCO files: polygons, run lengths as numbers, run lengths as text. See coco.h.
 *
 * As COCO's reader takes it, a list whose first part has four numbers is a list of boxes x, y, width, height. */
#include "io/coco_reader.h"

#include "base/mem.h"

#include <stdlib.h>

/* Puts the name of the file and the entry in front of a sentence of rle.c or polygon.c. */
static ist_status in_place(const coco_reader *r, ist_status status) {
    if (status) ist_fail_context(r->err, "%s: %s %zu", r->source, r->what, r->index);
    return status;
}

static ist_status begin_drawing(coco_reader *r, ist_coco_object *o) {
    const ist_coco_image *image = &r->coco->images[o->image];
    if (!image->height) return coco_bad(r, "its mask needs the width and height of image %lld", (long long)image->id);
    o->width = r->raster.width = image->width;
    o->height = r->raster.height = image->height;
    return IST_OK;
}

static ist_status draw_box(coco_reader *r, const double box[4]) {
    double x0 = box[0], y0 = box[1], x1 = x0 + box[2], y1 = y0 + box[3];
    const double corners[8] = {x0, y0, x0, y1, x1, y1, x1, y0};
    return in_place(r, ist_raster_add(&r->raster, corners, 4, r->err));
}

static ist_status read_points(coco_reader *r, const json_t *part, size_t *count) {
    *count = json_array_size(part);
    if (!json_is_array(part) || *count < 4 || *count % 2)
        return coco_bad(r, "a polygon of %zu %s instead of an even count from 6", *count,
                        ist_plural(*count, "number", "numbers"));
    if (!ist_grow((void **)&r->points, &r->point_capacity, *count, sizeof *r->points))
        return ist_fail(r->err, IST_E_MEMORY, "%s: out of memory for a polygon of %zu numbers", r->source, *count);
    for (size_t i = 0; i < *count; i++) {
        const json_t *number = json_array_get(part, i);
        if (!json_is_number(number)) return coco_bad(r, "a polygon's coordinate is no number");
        r->points[i] = json_number_value(number);
    }
    return IST_OK;
}

static ist_status draw_parts(coco_reader *r, const json_t *parts, ist_coco_object *o) {
    bool boxes = json_array_size(json_array_get(parts, 0)) == 4;
    size_t i, count;
    json_t *part;
    IST_TRY(begin_drawing(r, o));
    json_array_foreach(parts, i, part) {
        IST_TRY(read_points(r, part, &count));
        if (boxes && count != 4) return coco_bad(r, "boxes and polygons are mixed");
        if (boxes)
            IST_TRY(draw_box(r, r->points));
        else
            IST_TRY(in_place(r, ist_raster_add(&r->raster, r->points, count / 2, r->err)));
    }
    return in_place(r, ist_raster_finish(&r->raster, &o->mask, r->err));
}

static ist_status read_runs(coco_reader *r, const json_t *counts, ist_coco_object *o) {
    uint64_t pixels = (uint64_t)o->width * (uint64_t)o->height, total = 0;
    size_t i;
    json_t *count;
    json_array_foreach(counts, i, count) {
        json_int_t run = json_integer_value(count);
        if (!json_is_integer(count) || run < 0 || (uint64_t)run > pixels - total)
            return coco_bad(r, "run %zu of its mask is no number of pixels within %d x %d", i, o->width, o->height);
        total += (uint64_t)run;
        if (!ist_rle_add(&o->mask, (uint32_t)run))
            return ist_fail(r->err, IST_E_MEMORY, "%s: out of memory for a mask of %zu runs", r->source, i);
    }
    if (total == pixels) return IST_OK;
    return coco_bad(r, "its mask's runs are %llu %s, not %d x %d", (unsigned long long)total,
                    ist_plural(total, "pixel", "pixels"), o->width, o->height);
}

ist_status coco_read_mask(coco_reader *r, const json_t *segmentation, ist_coco_object *o) {
    const json_t *counts = json_object_get(segmentation, "counts"), *size = json_object_get(segmentation, "size");
    const json_t *h = json_array_get(size, 0), *w = json_array_get(size, 1);
    if (!segmentation || json_is_null(segmentation)) return IST_OK;
    if (json_is_array(segmentation)) return json_array_size(segmentation) ? draw_parts(r, segmentation, o) : IST_OK;
    if (json_array_size(size) != 2 || !json_is_integer(h) || !json_is_integer(w))
        return coco_bad(r, "its segmentation is neither a list of polygons nor runs with a size [height, width]");
    IST_TRY(coco_size(r, json_integer_value(w), json_integer_value(h), &o->width, &o->height));
    if (json_is_array(counts)) return read_runs(r, counts, o);
    if (!json_is_string(counts)) return coco_bad(r, "the counts of its segmentation are neither numbers nor text");
    uint64_t pixels = (uint64_t)o->width * (uint64_t)o->height;
    return in_place(r, ist_rle_parse(json_string_value(counts), json_string_length(counts), pixels, &o->mask, r->err));
}

ist_status coco_box_mask(coco_reader *r, ist_coco_object *o) {
    IST_TRY(begin_drawing(r, o));
    IST_TRY(draw_box(r, o->box));
    return in_place(r, ist_raster_finish(&r->raster, &o->mask, r->err));
}
