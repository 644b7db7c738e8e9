/* What `isthmus eval` says: see eval.h. */
#include "eval.h"

#include "io/atomic_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Name and meaning of a number. */
static const struct {
    const char *name, *meaning;
} lines[IST_COCO_NUMBER_COUNT] = {
    [IST_COCO_AP] = {"AP", "IoU 0.50:0.95"},       [IST_COCO_AP50] = {"AP50", "IoU 0.50"},
    [IST_COCO_AP75] = {"AP75", "IoU 0.75"},        [IST_COCO_APS] = {"APs", "area < 32^2"},
    [IST_COCO_APM] = {"APm", "area 32^2..96^2"},   [IST_COCO_APL] = {"APl", "area > 96^2"},
    [IST_COCO_AR1] = {"AR1", "1 per image"},       [IST_COCO_AR10] = {"AR10", "10 per image"},
    [IST_COCO_AR100] = {"AR100", "100 per image"}, [IST_COCO_ARS] = {"ARs", "area < 32^2"},
    [IST_COCO_ARM] = {"ARm", "area 32^2..96^2"},   [IST_COCO_ARL] = {"ARl", "area > 96^2"},
};

/* "0.123", or "-" where nothing is defined. */
static const char *number(double value, char buffer[16]) {
    if (value < 0) return "-";
    snprintf(buffer, 16, "%.3f", value);
    return buffer;
}

/* Ends a line of the table with its one or two columns. */
static void put_columns(FILE *out, const eval_report *r, const char *boxes, const char *masks) {
    if (r->masks)
        fprintf(out, " %7s %7s\n", boxes, masks);
    else
        fprintf(out, " %7s\n", boxes);
}

static size_t images_used(const ist_coco *truth) {
    size_t used = 0;
    for (size_t i = 0; i < truth->image_count; i++) used += truth->images[i].used;
    return used;
}

/* Annotations of a category in images in use, crowds left out. */
static size_t category_objects(const ist_coco *truth, size_t category) {
    size_t count = 0;
    for (size_t i = 0; i < truth->objects.count; i++) {
        const ist_coco_object *o = &truth->objects.items[i];
        count += o->category == category && !o->crowd && truth->images[o->image].used;
    }
    return count;
}

static size_t all_objects(const ist_coco *truth) {
    size_t count = 0;
    for (size_t c = 0; c < truth->category_count; c++) count += category_objects(truth, c);
    return count;
}

static void print_classes(const eval_report *r, FILE *out) {
    fprintf(out, "\n%-24s %8s", "class", "objects");
    put_columns(out, r, "boxes", "masks");
    for (size_t c = 0; c < r->truth->category_count; c++) {
        const ist_coco_category *category = &r->truth->categories[c];
        size_t objects = category_objects(r->truth, c);
        char name[64], a[16], b[16];
        if (!objects) continue;
        if (*category->name)
            snprintf(name, sizeof name, "%s", category->name);
        else
            snprintf(name, sizeof name, "%lld", (long long)category->id);
        fprintf(out, "%-24s %8zu", cli_printable(name), objects);
        put_columns(out, r, number(r->box_scores.class_ap[c], a),
                    r->masks ? number(r->mask_scores.class_ap[c], b) : "");
    }
}

/* Mean of a sum over `count`, undefined over none. */
static double mean(double sum, size_t count) {
    return count ? sum / (double)count : -1;
}

static void print_overlap(const eval_report *r, FILE *out) {
    const eval_overlap *o = &r->overlap;
    char text[16];
    if (!o->measured) return;
    fprintf(out, "\n%zu of %zu %s matched (score above %g, box IoU from %g)\n", o->matched, o->objects,
            ist_plural(o->objects, "object", "objects"), EVAL_MATCH_SCORE, EVAL_MATCH_IOU);
    fprintf(out, "mean box IoU of the matched   %s\n", number(mean(o->box_iou, o->matched), text));
    if (!r->masks) return;
    fprintf(out, "mean mask IoU of the matched  %s\n", number(mean(o->mask_iou, o->matched), text));
    fprintf(out, "mean mask IoU of all objects  %s (0 for those not matched)\n",
            number(mean(o->mask_iou, o->objects), text));
}

static void print_prompted(const eval_report *r, FILE *out) {
    const eval_prompted *p = &r->prompted;
    char text[16];
    if (!p->measured) return;
    fprintf(out, "mean mask IoU from true boxes %s (the boxes of %zu %s as prompts)\n",
            number(mean(p->mask_iou, p->objects), text), p->objects,
            ist_plural(p->objects, "annotation", "annotations"));
}

void eval_print(const eval_report *r, FILE *out) {
    size_t images = images_used(r->truth), objects = all_objects(r->truth), found = r->results->count;
    fprintf(out, "%zu %s, %zu %s, %zu %s\n\n", images, ist_plural(images, "image", "images"), objects,
            ist_plural(objects, "object", "objects"), found, ist_plural(found, "detection", "detections"));
    fprintf(out, "%-24s", "");
    put_columns(out, r, "boxes", "masks");
    for (int i = 0; i < IST_COCO_NUMBER_COUNT; i++) {
        char a[16], b[16];
        fprintf(out, "%-6s %-17s", lines[i].name, lines[i].meaning);
        put_columns(out, r, number(r->box_scores.numbers[i], a), r->masks ? number(r->mask_scores.numbers[i], b) : "");
    }
    print_classes(r, out);
    print_overlap(r, out);
    print_prompted(r, out);
}

static void put_number(ist_text *out, const char *name, double value) {
    if (value < 0)
        ist_text_printf(out, "\"%s\":null", name);
    else
        ist_text_printf(out, "\"%s\":%.9g", name, value);
}

static void put_scores(ist_text *out, const char *name, const ist_coco_scores *scores) {
    ist_text_printf(out, ",\n\"%s\":", name);
    if (!scores->class_ap) {
        ist_text_put(out, "null");
        return;
    }
    for (int i = 0; i < IST_COCO_NUMBER_COUNT; i++) {
        ist_text_put(out, i ? "," : "{");
        put_number(out, lines[i].name, scores->numbers[i]);
    }
    ist_text_put(out, "}");
}

static void put_classes(ist_text *out, const eval_report *r) {
    ist_text_put(out, ",\n\"classes\":[");
    for (size_t c = 0; c < r->truth->category_count; c++) {
        const ist_coco_category *category = &r->truth->categories[c];
        ist_text_printf(out, "%s\n{\"category_id\":%lld,\"name\":", c ? "," : "", (long long)category->id);
        ist_text_json_string(out, category->name);
        ist_text_printf(out, ",\"objects\":%zu,", category_objects(r->truth, c));
        put_number(out, "box_AP", r->box_scores.class_ap[c]);
        ist_text_put(out, ",");
        put_number(out, "box_AP50", r->box_scores.class_ap50[c]);
        ist_text_put(out, ",");
        put_number(out, "mask_AP", r->masks ? r->mask_scores.class_ap[c] : -1);
        ist_text_put(out, ",");
        put_number(out, "mask_AP50", r->masks ? r->mask_scores.class_ap50[c] : -1);
        ist_text_put(out, "}");
    }
    ist_text_put(out, "]");
}

static void put_overlap(ist_text *out, const eval_report *r) {
    const eval_overlap *o = &r->overlap;
    ist_text_put(out, ",\n\"matched\":");
    if (!o->measured) {
        ist_text_put(out, "null");
        return;
    }
    ist_text_printf(out, "{\"objects\":%zu,\"matched\":%zu,", o->objects, o->matched);
    put_number(out, "box_iou", mean(o->box_iou, o->matched));
    ist_text_put(out, ",");
    put_number(out, "mask_iou", r->masks ? mean(o->mask_iou, o->matched) : -1);
    ist_text_put(out, ",");
    put_number(out, "mask_iou_of_all", r->masks ? mean(o->mask_iou, o->objects) : -1);
    ist_text_put(out, "}");
}

static void put_prompted(ist_text *out, const eval_report *r) {
    const eval_prompted *p = &r->prompted;
    ist_text_put(out, ",\n\"truth_prompts\":");
    if (!p->measured) {
        ist_text_put(out, "null");
        return;
    }
    ist_text_printf(out, "{\"objects\":%zu,", p->objects);
    put_number(out, "mask_iou", mean(p->mask_iou, p->objects));
    ist_text_put(out, "}");
}

ist_status eval_write(const eval_report *r, const char *path, ist_error *err) {
    ist_text out = {0};
    ist_text_printf(&out, "{\"schema\":1,\"images\":%zu,\"objects\":%zu,\"detections\":%zu", images_used(r->truth),
                    all_objects(r->truth), r->results->count);
    put_scores(&out, "boxes", &r->box_scores);
    put_scores(&out, "masks", &r->mask_scores);
    put_overlap(&out, r);
    put_prompted(&out, r);
    put_classes(&out, r);
    ist_text_put(&out, "}\n");
    ist_status status = ist_text_status(&out, err);
    if (!status && !strcmp(path, "-"))
        fwrite(out.data, 1, out.length, stdout); /* whether it has arrived is asked at the program's end */
    else if (!status)
        status = ist_atomic_write(path, out.data, out.length, err);
    ist_text_free(&out);
    return status;
}
