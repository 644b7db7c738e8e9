/* COCO's evaluation against pycocotools on stored cases (tests/golden/eval), and the rules one by one. */
#include "io/coco_eval.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct loaded {
    ist_coco truth;
    ist_coco_list results;
} loaded;

static loaded load(const json_t *truth, const json_t *results) {
    loaded l;
    ist_error err;
    char *a = json_dumps(truth, 0), *b = json_dumps(results, 0);
    cr_assert_eq(ist_coco_parse(a, strlen(a), "truth", &l.truth, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_coco_results_parse(b, strlen(b), "results", &l.truth, &l.results, &err), IST_OK, "%s", err.text);
    free(a);
    free(b);
    return l;
}

static void unload(loaded *l) {
    ist_coco_list_free(&l->results);
    ist_coco_free(&l->truth);
}

static void check(const loaded *l, const json_t *expected, const char *name, const char *key, bool masks) {
    const json_t *numbers = json_object_get(expected, key);
    char classes_key[32];
    snprintf(classes_key, sizeof classes_key, "%s classes", key);
    const json_t *classes = json_object_get(expected, classes_key);
    if (json_is_null(numbers)) {
        cr_expect(!masks || !l->results.masks, "%s", name);
        return;
    }
    ist_coco_scores scores;
    cr_assert_eq(ist_coco_evaluate(&l->truth, &l->results, masks, &scores, NULL), IST_OK);
    cr_assert_eq(json_array_size(numbers), IST_COCO_NUMBER_COUNT);
    cr_assert_eq(json_array_size(classes), l->truth.category_count);
    for (size_t i = 0; i < IST_COCO_NUMBER_COUNT; i++) {
        double want = json_number_value(json_array_get(numbers, i));
        cr_expect_float_eq(scores.numbers[i], want, 1e-12, "%s %s number %zu: %.12g, want %.12g", name, key, i,
                           scores.numbers[i], want);
    }
    for (size_t c = 0; c < l->truth.category_count; c++) {
        double want = json_number_value(json_array_get(classes, c));
        cr_expect_float_eq(scores.class_ap[c], want, 1e-12, "%s %s class %zu: %.12g, want %.12g", name, key, c,
                           scores.class_ap[c], want);
    }
    ist_coco_scores_free(&scores);
}

Test(io_coco_eval, equals_pycocotools) {
    static const char *const names[] = {"both", "ties", "boxes", "masks", "mixed"};
    for (size_t i = 0; i < 5; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/eval/%s.json", IST_GOLDEN_DIR, names[i]);
        json_t *c = json_load_file(path, 0, NULL);
        cr_assert_not_null(c, "%s", path);
        loaded l = load(json_object_get(c, "truth"), json_object_get(c, "results"));
        check(&l, json_object_get(c, "expected"), names[i], "boxes", false);
        check(&l, json_object_get(c, "expected"), names[i], "masks", true);
        unload(&l);
        json_decref(c);
    }
}

/* A truth of two images of 100 x 100 with these annotations, and these results. */
static loaded small(const char *annotations, const char *results) {
    char text[2048];
    snprintf(text, sizeof text,
             "{\"images\":[{\"id\":1,\"width\":100,\"height\":100},{\"id\":2,\"width\":100,\"height\":100}],"
             "\"categories\":[{\"id\":3}],\"annotations\":[%s]}",
             annotations);
    json_t *a = json_loads(text, 0, NULL), *b = json_loads(results, 0, NULL);
    cr_assert(a && b);
    loaded l = load(a, b);
    json_decref(a);
    json_decref(b);
    return l;
}

static ist_coco_scores boxes(const loaded *l) {
    ist_coco_scores scores;
    cr_assert_eq(ist_coco_evaluate(&l->truth, &l->results, false, &scores, NULL), IST_OK);
    return scores;
}

#define AT(image, x) "{\"image_id\":" #image ",\"category_id\":3,\"bbox\":[" #x ",0,10,10]"

Test(io_coco_eval, nothing_found_is_zero_and_nothing_to_find_is_undefined) {
    loaded l = small(AT(1, 0) "}", "[]");
    ist_coco_scores s = boxes(&l);
    cr_expect_eq(s.numbers[IST_COCO_AP], 0);
    cr_expect_eq(s.numbers[IST_COCO_AR1], 0);
    cr_expect_eq(s.numbers[IST_COCO_APS], 0);
    cr_expect_eq(s.numbers[IST_COCO_APL], -1);
    ist_coco_scores_free(&s);
    unload(&l);
    l = small("", "[" AT(1, 0) ",\"score\":1}]");
    s = boxes(&l);
    cr_expect_eq(s.numbers[IST_COCO_AP], -1);
    ist_coco_scores_free(&s);
    unload(&l);
}

Test(io_coco_eval, images_out_of_use_do_not_count) {
    loaded l = small(AT(1, 0) "}," AT(2, 0) "}", "[" AT(1, 0) ",\"score\":0.5}," AT(2, 50) ",\"score\":0.9}]");
    ist_coco_scores s = boxes(&l);
    cr_expect_float_eq(s.numbers[IST_COCO_AP50], 0.5 * 51 / 101, 1e-12); /* half of the truth, after one mistake */
    ist_coco_scores_free(&s);
    l.truth.images[1].used = false;
    s = boxes(&l);
    cr_expect_float_eq(s.numbers[IST_COCO_AP50], 1, 1e-12);
    ist_coco_scores_free(&s);
    unload(&l);
}

Test(io_coco_eval, a_crowd_swallows_detections_and_counts_for_none) {
    loaded l = small(AT(1, 0) "},{\"image_id\":1,\"category_id\":3,\"bbox\":[20,0,60,60],\"iscrowd\":1}",
                     "[" AT(1, 0) ",\"score\":0.5}," AT(1, 30) ",\"score\":0.9}," AT(1, 50) ",\"score\":0.8}]");
    ist_coco_scores s = boxes(&l);
    cr_expect_float_eq(s.numbers[IST_COCO_AP], 1, 1e-12);
    ist_coco_scores_free(&s);
    l.truth.objects.items[1].crowd = false;
    s = boxes(&l);
    cr_expect_lt(s.numbers[IST_COCO_AP], 0.2);
    ist_coco_scores_free(&s);
    unload(&l);
}

Test(io_coco_eval, masks_of_another_size_have_no_overlap) {
    ist_coco_object a = {.width = 2, .height = 2}, b = {.width = 2, .height = 2};
    cr_assert(ist_rle_add(&a.mask, 1) && ist_rle_add(&a.mask, 3));
    cr_assert(ist_rle_add(&b.mask, 0) && ist_rle_add(&b.mask, 3) && ist_rle_add(&b.mask, 1));
    cr_expect_eq(ist_coco_iou(&a, &b, true), 0.5);
    b.crowd = true;
    cr_expect_float_eq(ist_coco_iou(&a, &b, true), 2.0 / 3, 1e-15);
    b.width = 4;
    cr_expect_eq(ist_coco_iou(&a, &b, true), 0);
    ist_rle_free(&a.mask);
    ist_rle_free(&b.mask);
}
