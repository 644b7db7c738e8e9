/* What an encoded image costs to ask: bench_click SEGMENTER [--device SPEC] [--half] [--points N] [--max-points N]
 * [--multimask] [--prompts N] [--max-prompts N] [--rounds N]
 *
 * One 1280 x 960 image is encoded, then a batch of prompts (1) of N points (1) each is submitted and received at a
 * time, from ist_submit_prompts to the result, by an engine with room for --max-points (9, or as many as the prompt
 * has) and
 * --max-prompts (as many as are submitted). Prints milliseconds: encoding, first answer behind it; least, median, 99th
 * percentile of the batches, and the median of what submitting took of it. */
#include "base/clock.h"
#include "isthmus.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 1280, HEIGHT = 960, MOST_POINTS = 256, MOST_PROMPTS = 300 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Milliseconds of one batch of prompts, *submit of them until it was submitted; negative when it failed. */
static double click(ist_engine *e, const ist_embedding *k, const ist_prompt *prompts, int count, double *submit,
                    ist_error *err) {
    const ist_result *r;
    double begin = ist_clock_ms();
    if (ist_submit_prompts(e, k, prompts, count, 0, err) || ist_receive(e, &r, err)) return -1;
    double ms = ist_clock_ms() - begin;
    *submit = r->submit_ms;
    ist_release(e, &r);
    return ms;
}

static ist_status measure(ist_engine *e, const ist_prompt *prompts, int count, int rounds, ist_error *err) {
    unsigned char *pixels = malloc(WIDTH * HEIGHT * 3);
    double *ms = malloc(2 * (size_t)rounds * sizeof *ms), *submit = ms + rounds, once;
    ist_embedding *k = NULL;
    if (!pixels || !ms) return IST_E_MEMORY;
    for (int i = 0; i < WIDTH * HEIGHT * 3; i++) pixels[i] = (unsigned char)((i * 2654435761u) >> 24);
    const ist_image image = {.width = WIDTH, .height = HEIGHT, .format = IST_RGB8, .pixels = pixels};
    double encoding = 0, first = 0;
    ist_status status = IST_OK;
    for (int i = 0; i < 2 && !status; i++) { /* the first makes room */
        ist_embedding_release(e, &k);
        double begin = ist_clock_ms();
        status = ist_encode(e, &image, &k, err);
        first = status ? -1 : click(e, k, prompts, count, &once, err);
        encoding = ist_clock_ms() - begin;
        if (first < 0) status = err->code;
    }
    for (int i = 0; i < rounds && !status; i++)
        if ((ms[i] = click(e, k, prompts, count, submit + i, err)) < 0) status = err->code;
    if (!status) {
        qsort(ms, (size_t)rounds, sizeof *ms, by_value);
        qsort(submit, (size_t)rounds, sizeof *submit, by_value);
        printf("encode and first answer %.3f, click %.3f least, %.3f median, %.3f p99 of %d, submitted in %.3f\n",
               encoding, ms[0], ms[rounds / 2], ms[(rounds - 1) * 99 / 100], rounds, submit[rounds / 2]);
    }
    free(ms);
    free(pixels);
    return status;
}

int main(int argc, char **argv) {
    static ist_point points[MOST_PROMPTS][MOST_POINTS];
    static ist_prompt prompts[MOST_PROMPTS];
    ist_config c = ist_config_default();
    ist_engine *e = NULL;
    ist_error err = {0};
    int count = 1, batch = 1, rounds = 200, most = 0;
    if (argc < 2) return fprintf(stderr, "usage: %s SEGMENTER [options]\n", argv[0]), 2;
    c.segmenter = argv[1];
    c.prompts = IST_PROMPTS_GIVEN;
    c.precision = IST_PRECISION_FP32;
    for (int i = 2; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        int number = (int)strtol(value, NULL, 10);
        if (!strcmp(argv[i], "--half")) c.precision = IST_PRECISION_FP16;
        if (!strcmp(argv[i], "--multimask")) c.multimask = 1;
        if (!strcmp(argv[i], "--device")) c.device = value;
        if (!strcmp(argv[i], "--points")) count = number;
        if (!strcmp(argv[i], "--max-points")) c.max_points = number;
        if (!strcmp(argv[i], "--prompts")) batch = number;
        if (!strcmp(argv[i], "--max-prompts")) most = number;
        if (!strcmp(argv[i], "--rounds")) rounds = number;
    }
    if (count < 1 || count > MOST_POINTS || batch < 1 || batch > MOST_PROMPTS || rounds < 1)
        return fprintf(stderr, "1 to 256 points, 1 to 300 prompts, 1 round or more\n"), 2;
    for (int k = 0; k < batch; k++) {
        for (int i = 0; i < count; i++)
            points[k][i] = (ist_point){100.0f + 37 * (float)(i + k % 20), 500.0f - 3 * (float)(i + k), i % 3 != 1};
        prompts[k] = (ist_prompt){.points = points[k], .point_count = count};
    }
    if (c.max_points < count) c.max_points = count;
    c.max_objects = most > batch ? most : batch;
    ist_status status = ist_open(&c, &e, &err);
    if (!status) status = measure(e, prompts, batch, rounds, &err);
    if (status) fprintf(stderr, "%s\n", err.text);
    ist_close(&e);
    return status != IST_OK;
}
