/* The verdict of `isthmus verify`, for people and as JSON. */
#include "verify.h"

#include <math.h>
#include <stdio.h>

typedef struct stage_facts {
    const char *name, *meaning;
    double half, single;
} stage_facts;

static const stage_facts facts[] = {
#define X(id, name, half, single, meaning) {name, meaning, half, single},
    VERIFY_STAGES(X)
#undef X
};

double verify_limit(verify_stage stage, ist_precision precision) {
    return precision == IST_PRECISION_FP32 ? facts[stage].single : facts[stage].half;
}

double verify_relative(const verify_error *e) {
    if (e->wild) return INFINITY;
    if (!(e->difference > 0)) return 0;
    return e->reference > 0 ? sqrt(e->difference / e->reference) : INFINITY;
}

double verify_f1(const verify_sums *s) {
    size_t all = s->objects + s->reference_objects - s->cut;
    return all ? 2.0 * (double)s->same_objects / (double)all : 1;
}

static double mean_mask_iou(const verify_sums *s) {
    return s->masks ? s->mask_iou / (double)s->masks : 1;
}

static double mean_box_iou(const verify_sums *s) {
    return s->same_objects ? s->box_iou / (double)s->same_objects : 1;
}

/* Keeps the first sentence. */
static void object(int *count, char *sentence, size_t size, const char *what, double value, const char *is,
                   double limit) {
    if (!(*count)++) snprintf(sentence, size, "%s is %.4g, %s %.4g", what, value, is, limit);
}

int verify_judge(const verify_sums *s, ist_precision precision, char *sentence, size_t size) {
    int count = 0;
    for (int i = 0; i < VERIFY_STAGE_COUNT; i++) {
        double error = verify_relative(&s->stages[i]), limit = verify_limit(i, precision);
        char what[64];
        snprintf(what, sizeof what, "%s: the relative error", facts[i].name);
        if (!(error <= limit)) object(&count, sentence, size, what, error, "more than", limit);
    }
    if (!(verify_f1(s) >= VERIFY_LEAST_F1))
        object(&count, sentence, size, "detections: F1", verify_f1(s), "less than", VERIFY_LEAST_F1);
    if (!(s->most_score <= VERIFY_MOST_SCORE))
        object(&count, sentence, size, "scores: the largest difference", s->most_score, "more than", VERIFY_MOST_SCORE);
    if (!(mean_mask_iou(s) >= VERIFY_MASK_IOU))
        object(&count, sentence, size, "masks: the mean IoU", mean_mask_iou(s), "less than", VERIFY_MASK_IOU);
    return count;
}

static const char *precision_name(const verify_side *side) {
    return predict_precision_name(side->info.precision);
}

static void print_side(const char *title, const verify_side *side) {
    printf("%-10s  %s, %s%s (driver %s)\n", title, side->info.device.name, precision_name(side),
           side->portable ? " with the portable rows" : "", side->info.device.driver);
}

static void print_check(const char *name, double value, const char *relation, double limit, bool holds,
                        const char *meaning) {
    printf("%-15s %10.3g  %s %-8.4g %-6s  %s\n", name, value, relation, limit, holds ? "ok" : "FAILED", meaning);
}

void verify_print(const verify_side *tested, const verify_side *reference, const verify_sums *s) {
    print_side("tested", tested);
    print_side("reference", reference);
    printf("models      %s%s%s, %zu %s\n\n", tested->info.detector, *tested->info.segmenter ? ", " : "",
           tested->info.segmenter, s->images, ist_plural(s->images, "image", "images"));
    for (int i = 0; i < VERIFY_STAGE_COUNT; i++) {
        double error = verify_relative(&s->stages[i]), limit = verify_limit(i, tested->info.precision);
        if (s->stages[i].values) print_check(facts[i].name, error, "<=", limit, error <= limit, facts[i].meaning);
    }
    print_check("detections", verify_f1(s), ">=", VERIFY_LEAST_F1, verify_f1(s) >= VERIFY_LEAST_F1,
                "F1 at box IoU 0.9");
    print_check("scores", s->most_score, "<=", VERIFY_MOST_SCORE, s->most_score <= VERIFY_MOST_SCORE,
                "largest difference");
    if (*tested->info.segmenter)
        print_check("masks", mean_mask_iou(s), ">=", VERIFY_MASK_IOU, mean_mask_iou(s) >= VERIFY_MASK_IOU, "mean IoU");
    printf("\n%zu and %zu %s, %zu the same; %zu of %zu queries chosen by both\n", s->objects, s->reference_objects,
           ist_plural(s->reference_objects, "object", "objects"), s->same_objects, s->common_queries, s->queries);
    if (s->cut)
        printf("%zu %s left out: at the threshold or the end of a full list, and on one side only\n", s->cut,
               ist_plural(s->cut, "object", "objects"));
    if (s->same_objects) printf("box IoU: mean %.5f, least %.5f\n", mean_box_iou(s), s->least_box_iou);
    if (s->images > 1)
        printf("worst image: %s: F1 %.3g, decoder boxes %.3g, %zu of %zu queries chosen by both\n", s->worst.path,
               s->worst.f1, s->worst.boxes, s->worst.common_queries, s->worst.queries);
    if (s->masks) printf("mask IoU: mean %.5f, least %.5f\n", mean_mask_iou(s), s->least_mask_iou);
}

/* ---- JSON ---- */

static void put_number(ist_text *out, const char *key, double value) {
    ist_text_printf(out, ",\"%s\":", key);
    ist_text_json_float(out, (float)value);
}

static void put_side(ist_text *out, const char *key, const verify_side *side) {
    ist_text_printf(out, "\"%s\":{\"device\":", key);
    ist_text_json_string(out, side->info.device.name);
    ist_text_put(out, ",\"driver\":");
    ist_text_json_string(out, side->info.device.driver);
    ist_text_printf(out, ",\"precision\":\"%s\",\"rows\":\"%s\"},", precision_name(side),
                    side->portable ? "portable" : "own");
}

ist_status verify_json(const verify_side *tested, const verify_side *reference, const verify_sums *s, ist_text *out,
                       ist_error *err) {
    char sentence[200];
    const char *comma = "";
    ist_text_put(out, "{");
    put_side(out, "tested", tested);
    put_side(out, "reference", reference);
    ist_text_printf(out, "\"detector\":\"%s\",\"segmenter\":\"%s\",\"images\":%zu,\"stages\":[", tested->info.detector,
                    tested->info.segmenter, s->images);
    for (int i = 0; i < VERIFY_STAGE_COUNT; i++) {
        if (!s->stages[i].values) continue;
        ist_text_printf(out, "%s{\"name\":\"%s\"", comma, facts[i].name);
        put_number(out, "relative_error", verify_relative(&s->stages[i]));
        put_number(out, "limit", verify_limit(i, tested->info.precision));
        ist_text_put(out, "}");
        comma = ",";
    }
    ist_text_printf(out, "],\"queries\":%zu,\"common_queries\":%zu,\"objects\":%zu,\"reference_objects\":%zu",
                    s->queries, s->common_queries, s->objects, s->reference_objects);
    ist_text_printf(out, ",\"same_objects\":%zu", s->same_objects);
    put_number(out, "f1", verify_f1(s));
    put_number(out, "f1_limit", VERIFY_LEAST_F1);
    put_number(out, "score_difference", s->most_score);
    put_number(out, "score_limit", VERIFY_MOST_SCORE);
    put_number(out, "box_iou", mean_box_iou(s));
    put_number(out, "least_box_iou", s->same_objects ? s->least_box_iou : 1);
    if (*tested->info.segmenter) {
        put_number(out, "mask_iou", mean_mask_iou(s));
        put_number(out, "mask_iou_limit", VERIFY_MASK_IOU);
        put_number(out, "least_mask_iou", s->masks ? s->least_mask_iou : 1);
    }
    if (s->worst.path) {
        ist_text_put(out, ",\"worst_image\":{\"path\":");
        ist_text_json_string(out, s->worst.path);
        put_number(out, "f1", s->worst.f1);
        put_number(out, "boxes", s->worst.boxes);
        ist_text_printf(out, ",\"queries\":%zu,\"common_queries\":%zu}", s->worst.queries, s->worst.common_queries);
    }
    bool passed = !verify_judge(s, tested->info.precision, sentence, sizeof sentence);
    ist_text_printf(out, ",\"passed\":%s}\n", passed ? "true" : "false");
    return ist_text_status(out, err);
}
