/* The common part of `isthmus bench` and `isthmus profile`: see measure.h. */
#include "measure.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_SIDE = 65536, REGRESSION = 5 /* percent */ };

/* Option, letter (none), name, name of its value, help. */
#define FRAME_OPTIONS(X)                                                                                               \
    X(BOXES, 0, "boxes", "K", "objects per frame, 1 to 300 (1); each gets a mask")                                     \
    X(WARMUP, 0, "warmup", "N", "frames that run first and do not count (10)")                                         \
    X(SIZE, 0, "size", "WxH", "size of the generated frame in pixels (1280x720)")                                      \
    X(JSON, 0, "json", NULL, "print a JSON object instead of text")

#define ENGINE_OPTIONS(X) PREDICT_MODEL_OPTIONS(X) PREDICT_DEVICE_OPTION(X, "") PREDICT_BATCH_OPTION(X, "frames")

#define BENCH_OPTIONS(X)                                                                                               \
    X(FRAMES, 0, "frames", "N", "frames measured, for latency and again for throughput (100)")                         \
    X(SCOPE, 0, "scope", "S upload_to_packet|staged_to_packet|kernels|file_to_file",                                   \
      "upload_to_packet: from pixels in memory to results in memory (default);\n"                                      \
      "staged_to_packet: from pixels that were decoded or captured into memory\n"                                      \
      "of the engine's (ist_stage); kernels: the device's part alone;\n"                                               \
      "file_to_file: what predict does, from a PNG to result files")                                                   \
    X(BASELINE, 0, "baseline", "FILE", "compare with what --json printed for the same options; slower is exit code 1") \
    X(MAX_REGRESSION, 0, "max-regression", "P%", "with --baseline: how much slower it may be (5%)")

#define PROFILE_OPTIONS(X)                                                                                             \
    X(FRAMES, 0, "frames", "N", "frames profiled; the least time of each launch counts (10)")                          \
    X(TRACE, 0, "trace", "FILE", "also write a trace for chrome://tracing or Perfetto")

enum {
    OPTION_FIRST = 255,
#define X(id, letter, name, value, help) OPTION_##id,
    FRAME_OPTIONS(X) BENCH_OPTIONS(X)
#undef X
        OPTION_TRACE
};

#define X(id, letter, name, value, help) {name, OPTION_##id, value, help},
const cli_option cmd_bench_options[] = {BENCH_OPTIONS(X) ENGINE_OPTIONS(X) FRAME_OPTIONS(X){NULL, 0, NULL, NULL}};
const cli_option cmd_profile_options[] = {PROFILE_OPTIONS(X) ENGINE_OPTIONS(X) FRAME_OPTIONS(X){NULL, 0, NULL, NULL}};
#undef X

static const char *const scope_names[] = {[MEASURE_UPLOAD_TO_PACKET] = "upload_to_packet",
                                          [MEASURE_STAGED_TO_PACKET] = "staged_to_packet",
                                          [MEASURE_KERNELS] = "kernels",
                                          [MEASURE_FILE_TO_FILE] = "file_to_file"};

const char *measure_scope_name(measure_scope scope) {
    return scope_names[scope];
}

static int parse_scope(const char *text, measure_scope *scope) {
    for (size_t i = 0; i < sizeof scope_names / sizeof *scope_names; i++)
        if (!strcmp(text, scope_names[i])) {
            *scope = (measure_scope)i;
            return CLI_SUCCESS;
        }
    return cli_usage("bench", "--scope: '%s' is none of upload_to_packet, staged_to_packet, kernels, file_to_file",
                     text);
}

static int parse_size(const char *command, const char *text, int *width, int *height) {
    char copy[32];
    int n = snprintf(copy, sizeof copy, "%s", text);
    char *x = strchr(copy, 'x');
    if (x) *x = '\0';
    if (!x || n >= (int)sizeof copy || !cli_parse_int(copy, 1, MAX_SIDE, width) ||
        !cli_parse_int(x + 1, 1, MAX_SIDE, height))
        return cli_usage(command, "--size: '%s' is not WxH with both from 1 to %d", text, MAX_SIDE);
    if ((long long)*width * *height > IST_MAX_PIXELS)
        return cli_usage(command, "--size: %s is more than %d pixels", text, IST_MAX_PIXELS);
    return CLI_SUCCESS;
}

/* "5%" or "5". */
static int parse_percent(const char *text, double *percent) {
    char copy[32];
    size_t n = strlen(text);
    if (n && text[n - 1] == '%') n--;
    snprintf(copy, sizeof copy, "%.*s", (int)n, text);
    if (n < sizeof copy && cli_parse_number(copy, 0, 1000, percent)) return CLI_SUCCESS;
    return cli_usage("bench", "--max-regression: '%s' is not a number of percent from 0 to 1000", text);
}

/* 0 or the exit code. */
static int take_option(int id, const char *value, measure *m) {
    predict_options *o = &m->options;
    bool taken;
    int code = predict_take_model_option(id, value, o, &taken);
    if (taken) return code;
    switch (id) {
    case OPTION_BOXES:
        return predict_parse_number(m->command, "boxes", value, 1, 300, &o->max_objects);
    case OPTION_FRAMES:
        return predict_parse_number(m->command, "frames", value, 1, 1000000, &m->frames);
    case OPTION_WARMUP:
        return predict_parse_number(m->command, "warmup", value, 0, 1000000, &m->warmup);
    case OPTION_SIZE:
        return parse_size(m->command, value, &m->width, &m->height);
    case OPTION_SCOPE:
        return parse_scope(value, &m->scope);
    case OPTION_BASELINE:
        m->baseline = value;
        break;
    case OPTION_MAX_REGRESSION:
        return parse_percent(value, &m->max_regression);
    case OPTION_TRACE:
        m->trace = value;
        break;
    case OPTION_JSON:
        m->json = true;
        break;
    default:
        break;
    }
    return CLI_SUCCESS;
}

int measure_parse(int argc, char **argv, measure *m, bool *stop) {
    bool bench = !strcmp(argv[0], "bench");
    *m = (measure){.command = argv[0],
                   .frames = bench ? 100 : 10,
                   .warmup = 10,
                   .width = 1280,
                   .height = 720,
                   .max_regression = -1};
    m->options = (predict_options){.command = argv[0], .masks = true, .max_objects = 1, .batch = 1, .quiet = true};
    const char *value;
    int id, code = CLI_SUCCESS;
    const cli_option *list = bench ? cmd_bench_options : cmd_profile_options;
    while (!code && (id = cli_next(argv[0], list, argc, argv, &value, &code)) != CLI_END) {
        if (id == CLI_STOP) {
            *stop = true;
            return code;
        }
        code = take_option(id, value, m);
    }
    const predict_options *o = &m->options;
    if (!code && optind < argc) code = cli_usage(m->command, "unexpected argument '%s'", argv[optind]);
    if (!code && !o->masks && o->segmenter)
        code = cli_usage(m->command, "--no-masks and --segmenter exclude each other");
    if (!code && m->max_regression >= 0 && !m->baseline)
        code = cli_usage(m->command, "--max-regression needs --baseline FILE");
    if (m->max_regression < 0) m->max_regression = REGRESSION;
    *stop = code != CLI_SUCCESS;
    return code;
}

/* A gradient with noise on it: nothing in it can be skipped or compressed away. */
static ist_status make_frame(measure *m, ist_error *err) {
    IST_TRY(
        ist_bitmap_allocate("frame", (size_t)m->width, (size_t)m->height, IST_RGB8, IST_MAX_PIXELS, &m->frame, err));
    uint8_t *p = m->frame.pixels;
    uint32_t noise = 1;
    for (int y = 0; y < m->height; y++)
        for (int x = 0; x < m->width; x++)
            for (int c = 0; c < 3; c++) {
                noise = noise * 1664525u + 1013904223u; /* Numerical Recipes */
                long long ramp = c == 0 ? 192LL * x / m->width : c == 1 ? 192LL * y / m->height : 96;
                *p++ = (uint8_t)(ramp + (noise >> 28));
            }
    for (int i = 0; i < m->options.batch; i++)
        m->images[i] = (ist_image){.width = m->width,
                                   .height = m->height,
                                   .format = m->frame.format,
                                   .stride = m->frame.stride,
                                   .pixels = m->frame.pixels};
    return IST_OK;
}

int measure_open(measure *m) {
    ist_error err;
    m->job.options = &m->options;
    m->options.apart = !strcmp(m->command, "profile");
    int code = predict_find_checkpoints(&m->options);
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (!code) code = predict_open_engine(&m->job);
    clock_gettime(CLOCK_MONOTONIC, &end);
    m->open_ms = 1e3 * (double)(end.tv_sec - start.tv_sec) + 1e-6 * (double)(end.tv_nsec - start.tv_nsec);
    if (!code && make_frame(m, &err)) code = cli_fail(CLI_FAILED, "%s", err.text);
    return code;
}

void measure_close(measure *m) {
    predict_job_free(&m->job);
    predict_options_free(&m->options);
    ist_bitmap_free(&m->frame);
}

ist_status measure_submit(measure *m, ist_error *err) {
    ist_image images[sizeof m->images / sizeof *m->images];
    void *pixels[sizeof m->images / sizeof *m->images];
    int count = m->options.batch;
    if (m->scope != MEASURE_STAGED_TO_PACKET) return ist_submit(m->job.engine, m->images, count, err);
    IST_TRY(ist_stage(m->job.engine, m->images, count, pixels, err));
    for (int i = 0; i < count; i++) {
        memcpy(pixels[i], m->frame.pixels, m->frame.stride * (size_t)m->height);
        images[i] = m->images[i];
        images[i].pixels = pixels[i];
    }
    return ist_submit(m->job.engine, images, count, err);
}

ist_status measure_batch(measure *m, double *ms, ist_error *err) {
    const ist_result *result = NULL;
    IST_TRY(measure_submit(m, err));
    IST_TRY(ist_receive(m->job.engine, &result, err));
    *ms = result->total_ms;
    ist_release(m->job.engine, &result);
    return IST_OK;
}

/* ---- stages ---- */

ist_status measure_launches(measure *m, int repeats, ist_launch_time **times, int *count, ist_error *err) {
    *count = m->job.engine_info.kernels;
    *times = calloc((size_t)*count + 1, sizeof **times);
    if (!*times) return ist_fail(err, IST_E_MEMORY, "out of memory for the times of %d launches", *count);
    return ist_engine_profile(m->job.engine, repeats, *times, err);
}

int measure_stages(const ist_launch_time *times, int count, measure_sum *sums) {
    int n = 0;
    for (int i = 0; i < count; i++) {
        int k = 0;
        while (k < n && strcmp(sums[k].name, times[i].stage)) k++;
        if (k == n) sums[n++] = (measure_sum){.name = times[i].stage, .first = &times[i]};
        sums[k].ms += times[i].ms;
        sums[k].flops += times[i].flops;
        sums[k].bytes += times[i].bytes;
        sums[k].launches++;
    }
    return n;
}

void measure_put_name(ist_text *out, const char *key, const char *name) {
    ist_text_printf(out, "\"%s\":", key);
    if (*name)
        ist_text_json_string(out, name);
    else
        ist_text_put(out, "null");
}

void measure_put_number(ist_text *out, const char *key, double value) {
    ist_text_printf(out, "\"%s\":", key);
    ist_text_json_float(out, (float)value);
}

void measure_put_stages(ist_text *out, const measure_sum *stages, int count) {
    ist_text_put(out, "\"stages_ms\":{");
    for (int i = 0; i < count; i++) {
        if (i) ist_text_put(out, ",");
        measure_put_number(out, stages[i].name, stages[i].ms);
    }
    ist_text_put(out, "}");
}

const char *measure_precision(const measure *m) {
    return predict_precision_name(m->job.engine_info.precision);
}

void measure_print_heading(const measure *m) {
    const ist_engine_info *e = &m->job.engine_info;
    printf("device      %s, driver %s\n", e->device.name, e->device.driver);
    printf("detector    %s, %s, %d x %d pixels, batch %d%s\n", e->detector, measure_precision(m), m->width, m->height,
           m->options.batch, e->overlap ? ", overlap" : "");
    printf("segmenter   %s, %d %s per frame\n", *e->segmenter ? e->segmenter : "none", m->options.max_objects,
           ist_plural((size_t)m->options.max_objects, "object", "objects"));
}
