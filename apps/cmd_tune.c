/* isthmus tune: which kernel variants are fastest on this device for a frame's problems, kept for engines to come. */
#include "predict.h"

#include "device/device.h"
#include "io/atomic_file.h"
#include "pipeline/tune.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TUNE_OPTIONS(X)                                                                                                \
    X(BOXES, 0, "boxes", "K", "most objects per frame, 1 to 300 (16, as in predict)")                                  \
    X(QUIET, 0, "quiet", NULL, "only the summary")

enum {
    OPTION_FIRST = 255,
#define X(id, letter, name, value, help) OPTION_##id,
    TUNE_OPTIONS(X)
#undef X
};

#define X(id, letter, name, value, help) {name, OPTION_##id, value, help},
const cli_option cmd_tune_options[] = {PREDICT_MODEL_OPTIONS(X) PREDICT_DEVICE_OPTION(X, "")
                                           PREDICT_BATCH_OPTION(X, "frames") TUNE_OPTIONS(X){NULL, 0, NULL, NULL}};
#undef X

static int parse(int argc, char **argv, predict_options *o, bool *stop) {
    const char *value;
    int id, code = CLI_SUCCESS;
    *o = (predict_options){.command = "tune", .masks = true, .max_objects = 16, .batch = 1};
    while (!code && (id = cli_next("tune", cmd_tune_options, argc, argv, &value, &code)) != CLI_END) {
        bool taken;
        *stop = id == CLI_STOP;
        if (*stop) return code;
        code = predict_take_model_option(id, value, o, &taken);
        if (!taken && id == OPTION_BOXES) code = predict_parse_number("tune", "boxes", value, 1, 300, &o->max_objects);
        if (!taken && id == OPTION_QUIET) o->quiet = true;
    }
    if (!code && optind < argc) code = cli_usage("tune", "unexpected argument '%s'", argv[optind]);
    if (!code && !o->masks && o->segmenter) code = cli_usage("tune", "--no-masks and --segmenter exclude each other");
    *stop = code != CLI_SUCCESS;
    return code;
}

static void way(char *out, size_t size, const char *row, int param) {
    if (param > 1)
        snprintf(out, size, "%s/%d", row, param);
    else
        snprintf(out, size, "%s", row);
}

static void report(void *arg, const ist_tune_result *r) {
    const predict_options *o = arg;
    char first[40], best[40];
    if (o->quiet) return;
    way(first, sizeof first, r->first_variant, r->first_way);
    way(best, sizeof best, r->best_variant, r->best_way);
    printf("%3d/%d %-6s %-58s %2d x %9.1f us %s", r->done, r->total, r->family, r->shape, r->launches, r->first_us,
           first);
    if (strcmp(first, best)) printf(" -> %.1f us %s", r->best_us, best);
    if (r->wrong)
        printf(" (%d of %d ways %s wrong here)", r->wrong, r->candidates, ist_plural((size_t)r->wrong, "is", "are"));
    putchar('\n');
    fflush(stdout);
}

/* Before minutes of measuring: whether there will be a place for the record. 0 or the exit code. */
static int check_folder(const ist_config *config) {
    char folder[1024], path[1100];
    ist_error err;
    if (!ist_cache_folder(config->cache_dir, folder, sizeof folder)) {
        cli_note("no folder keeps things (ISTHMUS_CACHE_DIR=off): the record will be lost");
        return CLI_SUCCESS;
    }
    snprintf(path, sizeof path, "%s/device.tuning", folder);
    return ist_atomic_try(path, &err) ? cli_fail(CLI_FAILED, "%s", err.text) : CLI_SUCCESS;
}

static int store(const ist_tune_summary *s, const char *text) {
    ist_error err;
    if (!*s->path) return CLI_SUCCESS;
    char folder[sizeof s->path];
    const char *name = ist_last_part(s->path);
    snprintf(folder, sizeof folder, "%.*s", (int)(name - s->path), s->path);
    if (ist_atomic_write_in(folder, name, text, strlen(text), &err)) return cli_fail(CLI_FAILED, "%s", err.text);
    printf("kept in %s\n", s->path);
    return CLI_SUCCESS;
}

static int conclude(const ist_tune_summary *s, const char *text) {
    printf("%d %s, %d %s measured; %d %s a faster row than the heuristic's\n", s->problems,
           ist_plural((size_t)s->problems, "problem", "problems"), s->candidates,
           ist_plural((size_t)s->candidates, "way", "ways"), s->changed,
           ist_plural((size_t)s->changed, "problem has", "problems have"));
    printf("whole frame, kernels only: %.3f ms, tuned %.3f ms\n", s->before_ms, s->after_ms);
    if (text) return store(s, text);
    puts(s->changed ? "nothing kept: the whole frame is not faster" : "nothing to keep");
    return CLI_SUCCESS;
}

int cmd_tune(int argc, char **argv) {
    predict_options options;
    predict_job job = {.options = &options};
    bool stop = false;
    int *classes = NULL, code = parse(argc, argv, &options, &stop);
    if (!stop) {
        ist_config config;
        ist_tune_summary summary;
        ist_error err;
        char *text = NULL;
        code = predict_find_checkpoints(&options);
        if (!code) code = predict_configure(&job, &config, &classes);
        if (!code) code = check_folder(&config);
        if (!code && ist_tune(&config, report, &options, &summary, &text, &err))
            code = cli_fail(cli_model_exit_code(err.code), "%s", err.text);
        else if (!code)
            code = conclude(&summary, text);
        free(text);
    }
    free(classes);
    predict_options_free(&options);
    return code;
}
