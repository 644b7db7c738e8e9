/* Measuring kernel variants: see tune.h.
 *
 * Per problem: every way is checked against the portable variant on a shortened problem; the survivors run once or twice
 * each, and those near the best are then measured in turns, so that a slow moment of the machine meets them all. The
 * heuristic's choice stays unless another needs 3 % less time. */
#include "pipeline/tune.h"

#include "base/clock.h"
#include "variants/tune.h"
#include "pipeline/engine.h"
#include "pipeline/profile.h"
#include "pipeline/tuning_record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_WAYS = 192,
    FINALISTS = 4,
    TURNS = 5,
    FRAME_TURNS = 12,
    WIDTH = 1280, /* of the frame that the whole is measured on */
    HEIGHT = 720
};
#define CHECK_FLOPS 2e8    /* of the shortened problem */
#define ALL_FLOPS   1e300  /* the whole one */
#define RUN_US      2000.0 /* one timed run has as many launches as this takes */
#define WORTH       0.97   /* time that another way must stay below, of the heuristic's */

/* One way of one problem, as a plan with nothing else in it. */
typedef struct lane {
    ist_tune_way way;
    ist_plan *plan;
    int launches; /* of a timed run */
    double us;    /* least */
} lane;

typedef struct tuner {
    ist_device *device;
    bool half;
    const ist_tuned *problem;
    lane lanes[MOST_WAYS];
    int count;
} tuner;

/* ---- one way ---- */

static ist_status fill(ist_plan *p, ist_tensor x, ist_error *err) {
    size_t n = (size_t)ist_pixels(x) * (size_t)x.c;
    float *values = malloc(n * sizeof *values);
    if (!values) return ist_fail(err, IST_E_MEMORY, "tune: out of host memory for %zu values", n);
    unsigned state = 7;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(state >> 8) * (2.0f / 16777216.0f) - 1.0f;
    }
    ist_status status = ist_plan_write_f32(p, x, values, err);
    free(values);
    return status;
}

/* Records the way in *plan and fills its input; *y is its result. */
static ist_status open_way(const tuner *t, ist_tune_way way, double most_flops, ist_plan **plan, ist_tensor *y,
                           ist_error *err) {
    ist_plan_options options = {.half = t->half};
    ist_tensor x;
    IST_TRY(ist_plan_begin(t->device, &options, plan, err));
    ist_tune_record(*plan, t->problem->family, t->problem->shape, way, most_flops, &x, y);
    IST_TRY(ist_plan_finish(*plan, err));
    return fill(*plan, x, err);
}

/* The shortened problem's result (the caller's to free). */
static ist_status result_of(const tuner *t, ist_tune_way way, float **values, size_t *count, ist_error *err) {
    ist_plan *p = NULL;
    ist_tensor y = {0};
    ist_status status = open_way(t, way, CHECK_FLOPS, &p, &y, err);
    *count = (size_t)ist_pixels(y) * (size_t)y.c;
    *values = status ? NULL : malloc((*count + 1) * sizeof **values);
    if (!status && !*values) status = ist_fail(err, IST_E_MEMORY, "tune: out of host memory for %zu values", *count);
    if (!status) status = ist_plan_replay(p, err);
    if (!status) status = ist_plan_read_f32(p, y, *values, err);
    ist_plan_close(&p);
    if (status) free(*values), *values = NULL;
    return status;
}

/* Differences as float32 sums in another order make them, or as rounding to half does. */
static bool agree(const float *a, const float *b, size_t count, bool half) {
    float most = 0, worst = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i])) return false;
        most = fmaxf(most, fabsf(a[i]));
        worst = fmaxf(worst, fabsf(a[i] - b[i]));
    }
    return worst <= (half ? 4e-3f : 1e-5f) * fmaxf(most, 1e-3f);
}

/* Microseconds per launch of one run. */
static ist_status time_lane(const tuner *t, lane *l, ist_error *err) {
    double start = ist_clock_ms();
    for (int i = 0; i < l->launches; i++) IST_TRY(ist_plan_replay(l->plan, err));
    IST_TRY(ist_finish(t->device, (ist_frame_scope){0}, "tune", err));
    double us = 1e3 * (ist_clock_ms() - start) / l->launches;
    if (!(l->us > 0) || us < l->us) l->us = us;
    return IST_OK;
}

/* Opens a lane on the whole problem and finds how many launches make a run. */
static ist_status start_lane(const tuner *t, lane *l, ist_error *err) {
    ist_tensor y;
    IST_TRY(open_way(t, l->way, ALL_FLOPS, &l->plan, &y, err));
    l->launches = 1;
    IST_TRY(time_lane(t, l, err)); /* compiles and warms */
    l->us = 0;
    IST_TRY(time_lane(t, l, err));
    l->launches = l->us >= RUN_US ? 1 : (int)(RUN_US / fmax(l->us, 1)) + 1;
    l->us = 0;
    return time_lane(t, l, err);
}

/* ---- one problem ---- */

static void close_lanes(tuner *t, int from) {
    for (int i = from; i < t->count; i++) ist_plan_close(&t->lanes[i].plan);
    t->count = from < t->count ? from : t->count;
}

/* Keeps the lanes whose results agree with the last one's, the portable variant. */
static ist_status check(tuner *t, int *wrong, ist_error *err) {
    float *want = NULL, *got = NULL;
    size_t count = 0, n = 0;
    int kept = 0;
    IST_TRY(result_of(t, t->lanes[t->count - 1].way, &want, &count, err));
    for (int i = 0; i < t->count; i++) {
        bool portable = i == t->count - 1;
        bool good = portable ||
                    (!result_of(t, t->lanes[i].way, &got, &n, NULL) && n == count && agree(want, got, count, t->half));
        if (!portable) free(got), got = NULL;
        if (good)
            t->lanes[kept++] = t->lanes[i];
        else
            ++*wrong;
    }
    t->count = kept;
    free(want);
    return IST_OK;
}

static int fastest_first(const void *a, const void *b) {
    const lane *x = a, *y = b;
    return (x->us > y->us) - (x->us < y->us);
}

/* Times every lane alone, keeps the heuristic's (which comes first then) and the fastest, and times those in turns. */
static ist_status race(tuner *t, ist_tune_way first, ist_error *err) {
    double best = INFINITY;
    for (int i = 0; i < t->count; i++) {
        IST_TRY(start_lane(t, &t->lanes[i], err));
        best = fmin(best, t->lanes[i].us);
        bool heuristic = t->lanes[i].way.variant == first.variant && t->lanes[i].way.way == first.way;
        if (heuristic) t->lanes[i].us = 0; /* sorted to the front */
        if (!heuristic && t->lanes[i].us > 1.5 * best) ist_plan_close(&t->lanes[i].plan);
    }
    qsort(t->lanes, (size_t)t->count, sizeof t->lanes[0], fastest_first);
    int finalists = 0;
    while (finalists < t->count && finalists < FINALISTS && t->lanes[finalists].plan) finalists++;
    close_lanes(t, finalists);
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < t->count; i++) IST_TRY(time_lane(t, &t->lanes[i], err));
    return IST_OK;
}

/* The fastest lane that is worth preferring to the first; 0 when none is. */
static int winner(const tuner *t) {
    int best = 0;
    for (int i = 1; i < t->count; i++)
        if (t->lanes[i].us < WORTH * t->lanes[0].us && t->lanes[i].us < t->lanes[best].us) best = i;
    return best;
}

/* The winner, measured a second time beside the first. */
static ist_status confirm(tuner *t, int *best, ist_error *err) {
    *best = winner(t);
    if (!*best) return IST_OK;
    lane *pair[2] = {&t->lanes[0], &t->lanes[*best]};
    pair[0]->us = pair[1]->us = 0;
    for (int turn = 0; turn < 2 * TURNS; turn++)
        for (int i = 0; i < 2; i++) IST_TRY(time_lane(t, pair[i], err));
    if (pair[1]->us >= WORTH * pair[0]->us) *best = 0;
    return IST_OK;
}

static ist_status tune_problem(tuner *t, ist_tune_result *r, ist_error *err) {
    ist_tune_way ways[MOST_WAYS];
    ist_plan_options options = {.half = t->half};
    ist_plan *p = NULL;
    IST_TRY(ist_plan_begin(t->device, &options, &p, err));
    int count = ist_tune_ways(p, t->problem->family, t->problem->shape, ways, MOST_WAYS);
    ist_plan_close(&p);
    if (!count) return ist_fail(err, IST_E_UNSUPPORTED, "tune: no way to do %s", t->problem->shape);
    for (int i = 0; i < count; i++) t->lanes[i] = (lane){.way = ways[i]};
    t->count = count;
    r->candidates = count;
    r->first_variant = r->best_variant = ways[0].variant;
    r->first_way = r->best_way = ways[0].way;
    ist_status status = count > 1 ? check(t, &r->wrong, err) : IST_OK;
    bool gated = t->count && t->lanes[0].way.variant == ways[0].variant && t->lanes[0].way.way == ways[0].way;
    if (!status && !gated)
        status = ist_fail(err, IST_E_DEVICE, "tune: variant %s differs from the portable variant on %s", ways[0].variant,
                          t->problem->shape);
    int best = 0;
    if (!status) status = race(t, ways[0], err);
    if (!status) status = confirm(t, &best, err);
    if (!status) {
        r->first_us = t->lanes[0].us;
        r->best_us = t->lanes[best].us;
        r->best_variant = t->lanes[best].way.variant;
        r->best_way = t->lanes[best].way.way;
    }
    close_lanes(t, 0);
    return status;
}

/* ---- the frame ---- */

static ist_status tune_problems(ist_engine *e, ist_tuning *found, void (*report)(void *, const ist_tune_result *),
                                void *arg, ist_tune_summary *s, ist_error *err) {
    const ist_tuning *notes = ist_plan_notes(e->plan);
    tuner *t = calloc(1, sizeof *t);
    if (!t) return ist_fail(err, IST_E_MEMORY, "tune: out of host memory");
    t->device = e->device;
    t->half = ist_plan_half(e->plan);
    ist_status status = IST_OK;
    for (size_t i = 0; i < notes->count && !status; i++) {
        ist_tune_result r = {.family = notes->items[i].family,
                             .shape = notes->items[i].shape,
                             .launches = notes->items[i].param,
                             .done = (int)i + 1,
                             .total = (int)notes->count};
        t->problem = &notes->items[i];
        status = tune_problem(t, &r, err);
        if (status) break;
        s->problems++;
        s->candidates += r.candidates;
        s->wrong += r.wrong;
        bool other = r.best_variant != r.first_variant || r.best_way != r.first_way;
        s->changed += other;
        ist_tuned choice = *t->problem;
        memcpy(choice.variant, r.best_variant, strnlen(r.best_variant, sizeof choice.variant - 1) + 1);
        choice.param = r.best_way;
        if (other) status = ist_tuning_set(found, &choice, err);
        if (report) report(arg, &r);
    }
    free(t);
    return status;
}

static ist_status run_once(ist_engine *e, ist_error *err) {
    unsigned char *pixels = calloc((size_t)WIDTH * HEIGHT, 1);
    if (!pixels) return ist_fail(err, IST_E_MEMORY, "tune: out of host memory");
    for (size_t i = 0; i < (size_t)WIDTH * HEIGHT; i++) pixels[i] = (unsigned char)(i * 2654435761u >> 24);
    ist_image image = {.width = WIDTH, .height = HEIGHT, .format = IST_GRAY8, .stride = WIDTH, .pixels = pixels},
              images[IST_MAX_BATCH];
    for (int i = 0; i < e->config.batch; i++) images[i] = image;
    const ist_result *result = NULL;
    ist_status status = ist_engine_submit(e, images, e->config.batch, err);
    if (!status) status = ist_engine_receive(e, &result, err);
    if (!status) ist_engine_release(e, result);
    free(pixels);
    return status;
}

/* The kernels of both frames in turns; the least times decide. */
static ist_status compare_frames(ist_engine *before, ist_engine *after, ist_tune_summary *s, ist_error *err) {
    ist_engine *engines[2] = {before, after};
    double least[2] = {INFINITY, INFINITY};
    for (int i = 0; i < 2; i++) IST_TRY(run_once(engines[i], err));
    for (int turn = 0; turn < FRAME_TURNS; turn++)
        for (int i = 0; i < 2; i++) {
            double ms = 0;
            IST_TRY(ist_engine_replay(engines[i], &ms, err));
            least[i] = fmin(least[i], ms);
        }
    s->before_ms = least[0];
    s->after_ms = least[1];
    s->kept = least[1] < least[0];
    return IST_OK;
}

/* The record: what an earlier one says about other problems, and what was found about these. */
static ist_status make_record(const ist_engine *e, const char *cache_dir, const ist_tuning *found, char **text,
                              ist_error *err) {
    const ist_tuning *notes = ist_plan_notes(e->plan);
    ist_tuning old, merged = {0};
    char key[IST_TUNING_KEY];
    ist_tuning_key(e->device, key);
    ist_tuning_load(e->device, cache_dir, &old);
    ist_status status = IST_OK;
    for (size_t i = 0; i < old.count && !status; i++)
        if (!ist_tuning_find(notes, old.items[i].family, old.items[i].shape))
            status = ist_tuning_set(&merged, &old.items[i], err);
    for (size_t i = 0; i < found->count && !status; i++) status = ist_tuning_set(&merged, &found->items[i], err);
    if (!status) status = ist_tuning_write(&merged, key, text, err);
    ist_tuning_free(&old);
    ist_tuning_free(&merged);
    return status;
}

ist_status ist_tune(const ist_config *config, void (*report)(void *arg, const ist_tune_result *result), void *arg,
                    ist_tune_summary *summary, char **text, ist_error *err) {
    ist_engine *before = NULL, *after = NULL;
    ist_tuning found = {0};
    *summary = (ist_tune_summary){0};
    *text = NULL;
    IST_TRY(ist_engine_open_as(config, IST_OPEN_UNTUNED, NULL, &before, err));
    if (!ist_tuning_path(before->device, config->cache_dir, summary->path)) summary->path[0] = '\0';
    ist_status status = tune_problems(before, &found, report, arg, summary, err);
    if (!status) status = ist_engine_open_as(config, IST_OPEN_TUNED, &found, &after, err);
    if (!status) status = compare_frames(before, after, summary, err);
    if (!status && summary->kept && found.count) status = make_record(before, config->cache_dir, &found, text, err);
    if (*text && *summary->path) ist_cache_make_folder_of(summary->path);
    ist_engine_close(&after);
    ist_engine_close(&before);
    ist_tuning_free(&found);
    return status;
}
