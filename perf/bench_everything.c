/* What masks of everything cost: bench_everything SEGMENTER IMAGE [--device SPEC] [--half] [--side N] [--batch N]
 * [--crops N] [--iou P] [--stability P] [--rounds N]
 *
 * One image (PNG or JPEG), the default grid of 32 x 32 points unless told otherwise (--side, --batch: points_per_side,
 * points_per_batch; --crops: crop_n_layers; --iou, --stability: what is filtered, which decides how many masks there
 * are), one image in flight. Prints milliseconds from ist_submit to the result, least, median and most, of which
 * submitting; masks kept; device memory. */
#include "base/clock.h"
#include "io/image.h"
#include "isthmus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 1000 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static ist_status measure(ist_engine *e, const ist_image *image, int rounds, ist_error *err) {
    static double ms[MOST_ROUNDS], submit[MOST_ROUNDS];
    ist_engine_info info;
    int kept = 0, dropped = 0;
    for (int i = -2; i < rounds; i++) { /* the first ones make room */
        const ist_result *r = NULL;
        double begin = ist_clock_ms();
        ist_status status = ist_submit(e, image, 1, err);
        if (!status) status = ist_receive(e, &r, err);
        if (status) return status;
        if (i >= 0) ms[i] = ist_clock_ms() - begin, submit[i] = r->submit_ms;
        kept = r->frames[0].object_count, dropped = r->frames[0].dropped;
        ist_release(e, &r);
    }
    ist_status status = ist_engine_describe(e, &info, err);
    if (status) return status;
    qsort(ms, (size_t)rounds, sizeof *ms, by_value);
    qsort(submit, (size_t)rounds, sizeof *submit, by_value);
    printf("%.3f least, %.3f median, %.3f most of %d, submitted in %.3f; %d masks, %d dropped; %.0f MiB on %s\n", ms[0],
           ms[rounds / 2], ms[rounds - 1], rounds, submit[rounds / 2], kept, dropped,
           (double)info.device_peak_bytes / (1 << 20), info.device.name);
    return IST_OK;
}

int main(int argc, char **argv) {
    ist_config c = ist_config_default();
    ist_everything everything = ist_everything_default();
    ist_engine *e = NULL;
    ist_bitmap picture;
    ist_error err = {0};
    int rounds = 20;
    if (argc < 3) return fprintf(stderr, "usage: %s SEGMENTER IMAGE [options]\n", argv[0]), 2;
    c.segmenter = argv[1];
    c.prompts = IST_PROMPTS_EVERYTHING;
    c.everything = &everything;
    c.precision = IST_PRECISION_FP32;
    for (int i = 3; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        int number = (int)strtol(value, NULL, 10);
        if (!strcmp(argv[i], "--half")) c.precision = IST_PRECISION_FP16;
        if (!strcmp(argv[i], "--device")) c.device = value;
        if (!strcmp(argv[i], "--side")) everything.points_per_side = number;
        if (!strcmp(argv[i], "--batch")) everything.points_per_batch = number;
        if (!strcmp(argv[i], "--crops")) everything.crop_n_layers = number;
        if (!strcmp(argv[i], "--iou")) everything.pred_iou_thresh = strtod(value, NULL);
        if (!strcmp(argv[i], "--stability")) everything.stability_score_thresh = strtod(value, NULL);
        if (!strcmp(argv[i], "--rounds")) rounds = number;
    }
    if (rounds < 1 || rounds > MOST_ROUNDS) return fprintf(stderr, "1 to %d rounds\n", MOST_ROUNDS), 2;
    ist_status status = ist_bitmap_read(argv[2], IST_MAX_PIXELS, &picture, &err);
    if (!status) {
        const ist_image image = {.width = picture.width,
                                 .height = picture.height,
                                 .format = picture.format,
                                 .stride = picture.stride,
                                 .pixels = picture.pixels};
        status = ist_open(&c, &e, &err);
        if (!status) status = measure(e, &image, rounds, &err);
        ist_bitmap_free(&picture);
    }
    if (status) fprintf(stderr, "%s\n", err.text);
    ist_close(&e);
    return status != IST_OK;
}
