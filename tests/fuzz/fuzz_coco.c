/* libFuzzer: the first line as COCO annotations, the rest as results for them; then the evaluation. */
#include "io/coco_eval.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Runs must add up to the mask they belong to. */
static void check_masks(const ist_coco_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        const ist_coco_object *o = &list->items[i];
        uint64_t total = 0;
        for (size_t k = 0; k < o->mask.count; k++) total += o->mask.counts[k];
        if (total != (uint64_t)o->width * (uint64_t)o->height ||
            ist_rle_overlap(&o->mask, &o->mask) != ist_rle_area(&o->mask))
            abort();
    }
}

static void evaluate(const ist_coco *truth, const ist_coco_list *results, bool masks) {
    ist_coco_scores scores;
    if (ist_coco_evaluate(truth, results, masks, &scores, NULL)) return;
    for (int i = 0; i < IST_COCO_NUMBER_COUNT; i++)
        if (scores.numbers[i] != -1 && !(scores.numbers[i] >= 0 && scores.numbers[i] <= 1 + 1e-9)) abort();
    ist_coco_scores_free(&scores);
}

static void try_both(const char *text, size_t first, size_t size) {
    ist_coco truth;
    ist_coco_list results;
    if (ist_coco_parse(text, first, "fuzz", &truth, NULL)) {
        if (truth.images || truth.categories || truth.objects.items) abort();
        return;
    }
    check_masks(&truth.objects);
    if (!ist_coco_results_parse(text + first, size - first, "fuzz", &truth, &results, NULL)) {
        check_masks(&results);
        evaluate(&truth, &results, false);
        if (results.masks && truth.objects.masks) evaluate(&truth, &results, true);
        ist_coco_list_free(&results);
    }
    ist_coco_free(&truth);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    char *text = malloc(size ? size : 1); /* exactly as long as it claims */
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    try_both(text, end ? (size_t)(end - data) : size, size);
    free(text);
    return 0;
}
