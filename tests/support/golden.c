/* See golden.h. */
#include "support/golden.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ist_weights *golden_open(const char *model) {
    char path[512];
    ist_error err = {0};
    ist_weights *file = NULL;
    snprintf(path, sizeof path, "%s/models/%s.safetensors", IST_GOLDEN_DIR, model);
    if (ist_weights_open(path, &file, &err)) cr_assert_fail("%s", err.text);
    return file;
}

static float *stored(const ist_weights *golden, const char *name, size_t *count, int *rank) {
    const ist_weight *w = ist_weights_find(golden, name);
    ist_error err = {0};
    cr_assert_not_null(w, "no golden tensor %s", name);
    float *v = malloc(w->count * sizeof *v);
    cr_assert_not_null(v);
    if (ist_weight_read_f32(w, v, &err)) cr_assert_fail("%s", err.text);
    *count = w->count;
    *rank = w->rank;
    return v;
}

/* Where element i of the golden order lies in pixels x channels. */
static size_t position(golden_layout layout, size_t i, size_t pixels, size_t channels) {
    return layout == GOLDEN_MAP ? i % pixels * channels + i / pixels : i;
}

/* Of every `rows` pixels got has the first `kept`, the others are not looked at. */
typedef struct part {
    size_t rows, kept;
} part;

static void compare(const ist_weights *golden, const char *name, golden_layout layout, const float *got, size_t pixels,
                    size_t channels, part of, bool half) {
    char stat_name[160];
    size_t count, stat_count, size = pixels * channels, worst = 0;
    int rank, stat_rank;
    snprintf(stat_name, sizeof stat_name, "%s.stat", name);
    float *want = stored(golden, name, &count, &rank), *stat = stored(golden, stat_name, &stat_count, &stat_rank);
    cr_assert_eq(stat_count, 9);
    bool complete = rank > 1; /* samples are a vector */
    cr_assert_eq(count, complete || size < 2048 ? size : 2048, "%s: golden has %zu values, tensor has %zu", name, count,
                 size);
    float value = 0;
    double most = -1, tolerance = half ? 2.0 * stat[7] : fmax(10.0 * stat[5], 2e-5 * stat[4]);
    for (size_t j = 0; j < count; j++) {
        size_t i = complete ? j : (size_t)((uint64_t)j * 2654435761u % size);
        size_t pixel = i / channels;
        if (of.kept < of.rows && pixel % of.rows >= of.kept) continue;
        size_t behind = of.kept < of.rows ? pixel / of.rows * (of.rows - of.kept) * channels : 0; /* left out before */
        double d = fabs((double)got[position(layout, i, pixels, channels) - behind] - want[j]);
        if (!(d <= most)) most = d, worst = j, value = got[position(layout, i, pixels, channels) - behind];
        if (!isfinite(d)) break;
    }
    size_t i = complete ? worst : (size_t)((uint64_t)worst * 2654435761u % size);
    if (getenv("ISTHMUS_VERBOSE"))
        fprintf(stderr, "%-24s difference %.2e, published network %.2e, allowed %.2e\n", name, most, stat[half ? 7 : 5],
                tolerance);
    cr_assert(most <= tolerance, "%s: element %zu is %.9g, golden %.9g: difference %.3g, allowed %.3g", name, i, value,
              want[worst], most, tolerance);
    free(want);
    free(stat);
}

void golden_check_values(const ist_weights *golden, const char *name, golden_layout layout, const float *got,
                         size_t pixels, size_t channels) {
    compare(golden, name, layout, got, pixels, channels, (part){0}, false);
}

void golden_check_first(const ist_weights *golden, const char *name, const float *got, size_t items, size_t rows,
                        size_t kept, size_t channels) {
    compare(golden, name, GOLDEN_TOKENS, got, items * rows, channels, (part){rows, kept}, false);
}

void golden_check(ist_plan *plan, const ist_weights *golden, const char *name, golden_layout layout) {
    ist_tensor t = ist_plan_tapped(plan, name);
    ist_error err = {0};
    cr_assert(ist_has(t), "no tapped tensor %s", name);
    cr_assert_eq(t.n, 1, "%s: %d items", name, t.n);
    float *got = malloc((size_t)ist_pixels(t) * (size_t)t.c * sizeof *got);
    cr_assert_not_null(got);
    if (ist_plan_read_f32(plan, t, got, &err)) cr_assert_fail("%s: %s", name, err.text);
    compare(golden, name, layout, got, (size_t)ist_pixels(t), (size_t)t.c, (part){0},
            ist_plan_half(plan));
    free(got);
}

int *golden_ints(const ist_weights *golden, const char *name, size_t count) {
    const ist_weight *w = ist_weights_find(golden, name);
    cr_assert_not_null(w, "no golden tensor %s", name);
    cr_assert(w->type == IST_WEIGHT_I32 && w->count == count, "%s: want %zu I32, have %zu", name, count, w->count);
    int *v = malloc(w->bytes);
    cr_assert_not_null(v);
    memcpy(v, w->data, w->bytes);
    return v;
}
