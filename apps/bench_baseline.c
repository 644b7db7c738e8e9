/* bench --baseline: whether a run is slower than an earlier one, whose JSON object was kept, by more than is allowed.
 */
#include "bench.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((size_t)1 << 20)

static double number_of(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : 0;
}

/* A copy of a member that is a string; "" where it is null or missing. */
static void text_of(const json_t *o, const char *key, char *out, size_t size) {
    const char *text = json_string_value(json_object_get(o, key));
    snprintf(out, size, "%s", text ? text : "");
}

int bench_read_baseline(const char *path, bench_baseline *b) {
    char *bytes = NULL;
    size_t count = 0;
    ist_error err;
    json_error_t problem;
    if (ist_read_file(path, MOST_BYTES, &bytes, &count, &err)) return cli_fail(CLI_FAILED, "%s", err.text);
    json_t *o = json_loadb(bytes, count, JSON_REJECT_DUPLICATES, &problem);
    free(bytes);
    if (!o) return cli_fail(CLI_FAILED, "%s: line %d: %s", path, problem.line, problem.text);
    b->p50 = number_of(json_object_get(o, "latency_ms"), "p50");
    b->fps = number_of(o, "throughput_fps");
    b->batch = (int)json_integer_value(json_object_get(o, "batch"));
    text_of(o, "device", b->device, sizeof b->device);
    text_of(o, "precision", b->precision, sizeof b->precision);
    text_of(o, "detector", b->detector, sizeof b->detector);
    text_of(o, "segmenter", b->segmenter, sizeof b->segmenter);
    text_of(o, "scope", b->scope, sizeof b->scope);
    json_decref(o);
    if (b->p50 > 0 && b->fps > 0 && isfinite(b->p50) && isfinite(b->fps)) return CLI_SUCCESS;
    return cli_fail(CLI_FAILED, "%s: is not what bench --json prints", path);
}

static bool same(const char *path, const char *what, const char *before, const char *now, int *code) {
    if (!strcmp(before, now)) return true;
    *code = cli_fail(CLI_FAILED, "%s: its %s is '%s', this run's is '%s'; a baseline is of the same options", path,
                     what, before, now);
    return false;
}

int bench_check_baseline(const measure *m, const bench_baseline *b) {
    const ist_engine_info *e = &m->job.engine_info;
    char before[16], now[16];
    int code = CLI_SUCCESS;
    snprintf(before, sizeof before, "%d", b->batch);
    snprintf(now, sizeof now, "%d", m->options.batch);
    (void)(same(m->baseline, "device", b->device, e->device.name, &code) &&
           same(m->baseline, "precision", b->precision, measure_precision(m), &code) &&
           same(m->baseline, "detector", b->detector, e->detector, &code) &&
           same(m->baseline, "segmenter", b->segmenter, e->segmenter, &code) &&
           same(m->baseline, "batch", before, now, &code) &&
           same(m->baseline, "scope", b->scope, measure_scope_name(m->scope), &code));
    return code;
}

/* In percent; what prints as nothing is nothing. */
static double change(double before, double now) {
    double percent = 100 * (now / before - 1);
    return fabs(percent) < 0.05 ? 0 : percent;
}

int bench_compare(const measure *m, const bench_result *r, const bench_baseline *b) {
    const double slower = change(b->p50, r->p50), faster = change(b->fps, r->fps);
    if (!m->json)
        printf("baseline    p50 %.2f ms, now %+.1f %%; %.2f frames per second, now %+.1f %%\n", b->p50, slower, b->fps,
               faster);
    if (slower > m->max_regression)
        return cli_fail(CLI_FAILED,
                        "a batch takes %.4g ms (p50), %.1f %% more than the %.4g of %s; at most %g %% are allowed",
                        r->p50, slower, b->p50, m->baseline, m->max_regression);
    if (-faster > m->max_regression)
        return cli_fail(CLI_FAILED,
                        "%.4g frames per second, %.1f %% less than the %.4g of %s; at most %g %% are allowed", r->fps,
                        -faster, b->fps, m->baseline, m->max_regression);
    return CLI_SUCCESS;
}
