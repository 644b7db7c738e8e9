/* A run from its images to its tables: see predict.h.
 *
 * Order of things, so that the cheapest check speaks first and nothing is touched before the last: list of images,
 * output folder, class names and targets, checkpoints, device. Only then are the tables of an earlier run removed and
 * images read. */
#include "predict.h"

#include "device/device.h"
#include "io/atomic_file.h"
#include "io/claim.h"
#include "pipeline/profile.h"
#include "models/checkpoint.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Set by the signal handler and nowhere else; a handler can reach nothing but a global. */
static volatile sig_atomic_t interrupted;

static void on_signal(int number) {
    (void)number;
    interrupted = 1;
}

void predict_catch_interrupts(predict_job *job) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, NULL, &before);
    if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, NULL); /* else under nohup: the run goes on */
    job->interrupted = &interrupted;
}

/* Whether a run can begin with a part of its list: nothing needs the whole of it before. */
static bool can_stream(const predict_options *o, int sources) {
    struct stat st;
    bool whole = o->resume || o->track || o->judges || o->targets || o->shard.count || sources > 1;
    if (!fstat(STDIN_FILENO, &st) && S_ISREG(st.st_mode)) return false; /* all of it is there */
    return !strcmp(o->command, "predict") && !whole;
}

/* A list of one image that is not there is a mistake; among others it is an image that fails. */
static bool is_missing(const ist_sources *sources) {
    struct stat st;
    return sources->count == 1 && !sources->items[0].streamed && stat(sources->items[0].path, &st);
}

/* Adds what the stream brings before the run begins: all of it, or what comes first. It stays open for the rest, and
 * for the failure that ended it behind images. */
static ist_status begin_stream(predict_job *job, const char *path, bool rest, ist_error *err) {
    bool more = false;
    IST_TRY(predict_stream_open(path, job->options->tar != NULL, &job->stream, err));
    IST_TRY(predict_stream_take(job, !rest, &more, err));
    while (more && is_missing(&job->sources)) IST_TRY(predict_stream_take(job, false, &more, err));
    const ist_error *failure = more ? NULL : predict_stream_failure(job->stream);
    if (failure && (!rest || !job->sources.count)) {
        *err = *failure;
        return failure->code;
    }
    job->begun = 0;
    if (!more && !failure && !job->options->tar) predict_stream_close(&job->stream);
    return IST_OK;
}

static ist_status add_sources(predict_job *job, int argc, char **argv, ist_error *err) {
    const predict_options *o = job->options;
    if (o->tar) return begin_stream(job, o->tar, true, err);
    for (int i = o->first_source; i < argc; i++) {
        if (strcmp(argv[i], "-"))
            IST_TRY(ist_sources_add(&job->sources, argv[i], o->recursive, o->output, err));
        else
            IST_TRY(begin_stream(job, argv[i], can_stream(o, argc - o->first_source), err));
    }
    return IST_OK;
}

/* Of a list that has no image. */
static int fail_empty(const predict_options *o, const char *source) {
    if (interrupted) return cli_fail(CLI_INTERRUPTED, "interrupted before the first image");
    if (o->tar)
        return cli_fail(CLI_FAILED, "%s: there is no image in it (looked for %s)", source, IST_IMAGE_EXTENSIONS);
    if (!strcmp(source, "-")) return cli_fail(CLI_FAILED, "standard input names no image");
    return cli_fail(CLI_FAILED, "%s: there is no image in it (looked for %s%s)", source, IST_IMAGE_EXTENSIONS,
                    o->recursive ? "" : "; -r looks into folders inside");
}

int predict_list_sources(predict_job *job, int argc, char **argv) {
    const predict_options *o = job->options;
    ist_error err;
    for (int i = o->first_source; i < argc; i++)
        if (!*argv[i]) return cli_usage(o->command, "the name of image or folder %d is empty", i - o->first_source + 1);
    job->sources.turned = o->exif_orientation;
    predict_show_values(o, &job->sources);
    ist_status status = add_sources(job, argc, argv, &err);
    if (!status)
        status = job->stream ? ist_sources_extend(&job->sources, &err) : ist_sources_finish(&job->sources, &err);
    if (status) return cli_fail(CLI_FAILED, "%s", err.text);
    if (!job->sources.count) return fail_empty(o, o->tar ? o->tar : argv[o->first_source]);
    if (is_missing(&job->sources))
        return cli_fail(CLI_FAILED, "%s: %s", job->sources.items[0].path,
                        errno == ENOENT ? "there is no such file or folder" : strerror(errno));
    predict_choose_window(job); /* from all of the list: shards do the same */
    if (o->limit) ist_sources_truncate(&job->sources, (size_t)o->limit);
    return predict_take_shard(job);
}

/* Class count and names of the detector's file, for --classes with names. */
static ist_status labels_of_file(const predict_job *job, ist_labels *labels, ist_error *err) {
    ist_weights *weights = NULL;
    ist_checkpoint_info info;
    IST_TRY(ist_checkpoint_open(job->options->detector, IST_SLOT_DETECTOR, &weights, &info, err));
    int count = info.classes;
    const char **names = calloc(count > 0 ? (size_t)count : 1, sizeof *names);
    ist_status status = names ? IST_OK : ist_fail(err, IST_E_MEMORY, "out of memory for %d names", count);
    for (int i = 0; names && i < count; i++) {
        if (job->name_count)
            names[i] = (size_t)i < job->name_count ? job->names[i] : NULL;
        else
            names[i] = ist_weights_class_name(weights, i);
    }
    if (!status) status = ist_labels_make(count, names, labels, err);
    free(names);
    ist_checkpoint_info_free(&info);
    ist_weights_close(&weights);
    return status;
}

static bool all_numbers(const char *list) {
    return list[strspn(list, "0123456789, ")] == '\0';
}

/* The ids of --classes; *ids is malloc'd. 0 or the exit code. */
static int parse_classes(const predict_job *job, int **ids, int *count) {
    const predict_options *o = job->options;
    ist_labels labels = {0};
    ist_error err;
    int code = CLI_SUCCESS;
    if (!all_numbers(o->classes) && labels_of_file(job, &labels, &err))
        return cli_fail(cli_model_exit_code(err.code), "%s", err.text);
    *ids = malloc((strlen(o->classes) + 1) * sizeof **ids);
    if (!*ids) code = cli_fail(CLI_FAILED, "out of memory");
    for (const char *p = o->classes; !code;) {
        char name[256];
        p += strspn(p, " ");
        size_t n = strcspn(p, ","), length = n;
        while (length && p[length - 1] == ' ') length--;
        snprintf(name, sizeof name, "%.*s", (int)length, p);
        int id = ist_label_find(&labels, name);
        if (id < 0 && !cli_parse_int(name, 0, 65535, &id))
            code = cli_usage(o->command, "--classes: '%s' is no class of %s", name, o->names ? o->names : o->detector);
        else
            (*ids)[(*count)++] = id;
        if (!p[n]) break;
        p += n + 1;
    }
    ist_labels_free(&labels);
    return code;
}

/* Of an image on the list, the most; `path` (may be NULL) becomes that image's. */
static size_t most_targets(const predict_job *job, const char **path) {
    size_t most = 0;
    for (size_t i = 0; i < job->sources.count; i++) {
        const ist_source *source = &job->sources.items[i];
        const ist_target_list *list = ist_targets_find(&job->targets, source->path, source->name);
        if (!list || list->count <= most) continue;
        most = list->count;
        if (path) *path = source->path;
    }
    return most;
}

int predict_configure(const predict_job *job, ist_config *config, int **classes) {
    const predict_options *o = job->options;
    int code = CLI_SUCCESS;
    *config = ist_config_default();
    *classes = NULL;
    if (o->classes) code = parse_classes(job, classes, &config->class_count);
    config->detector = predict_detects(o) ? o->detector : NULL;
    config->segmenter = o->masks ? o->segmenter : NULL;
    config->device = o->device;
    config->precision = o->precision;
    config->overlap = o->overlap;
    predict_configure_inputs(o, config);
    config->match = job->match;
    config->batch = o->batch;
    config->tiles = o->tiled ? &o->tiles : NULL;
    config->max_objects = o->max_objects;
    config->conf = o->conf;
    config->nms_iou = o->nms_iou;
    config->nms_agnostic = o->nms_agnostic;
    if (o->track) {
        config->track_iou = o->track_iou;
        config->track_age = o->track_age;
        config->track_motion = o->track_motion;
        config->track_high = o->track_high;
    }
    if (o->judges) config->trust = &o->trust;
    config->classes = *classes;
    config->max_pixels = IST_MAX_PIXELS;
    if (o->targets) config->max_targets = (int)most_targets(job, NULL);
    if (o->segment) predict_configure_prompts(job, config);
    if (o->no_detector) {
        config->prompts = IST_PROMPTS_TARGETS;
        config->max_objects = config->max_targets ? config->max_targets : 1;
    }
    return code;
}

/* ---- engines ---- */

/* What follows "all" in --device: "" for the default's kind, or ":SPEC"; NULL when it is another SPEC. */
static const char *all_of(const predict_options *o) {
    const char *spec = o->device && !strncmp(o->device, "all", 3) ? o->device + 3 : NULL;
    return spec && (!*spec || *spec == ':') ? spec : NULL;
}

/* Flat indices of the devices that share platform and type with the one that `spec` selects, which comes first. */
static ist_status list_devices(const char *spec, int *indices, int *count, ist_error *err) {
    ist_device_info list[PREDICT_MAX_DEVICES];
    int found = 0, first = 0;
    *count = 0;
    IST_TRY(ist_devices(list, PREDICT_MAX_DEVICES, &found, err));
    if (found > PREDICT_MAX_DEVICES) found = PREDICT_MAX_DEVICES;
    while (!*spec && first < found && !list[first].is_default) first++;
    if (*spec || first == found) IST_TRY(ist_device_select(list, found, *spec ? spec + 1 : NULL, &first, err));
    indices[(*count)++] = list[first].index;
    for (int i = 0; i < found; i++)
        if (i != first && list[i].platform == list[first].platform && list[i].type == list[first].type)
            indices[(*count)++] = list[i].index;
    return IST_OK;
}

/* An engine on a further device, opened beside the first on a thread of its own. */
typedef struct opening {
    ist_config config;
    char spec[16];
    ist_engine *engine;
    ist_error err;
    pthread_t thread;
    bool started;
} opening;

static void *open_engine(void *context) {
    opening *o = context;
    if (ist_open(&o->config, &o->engine, &o->err)) o->engine = NULL;
    return NULL;
}

static void start_opening(opening *o, const ist_config *config, int index) {
    *o = (opening){.config = *config};
    snprintf(o->spec, sizeof o->spec, "%d", index);
    o->config.device = o->spec;
    o->started = !pthread_create(&o->thread, NULL, open_engine, o);
}

/* Waits for the engine. All compute in the first one's precision, which --precision auto may have left to each. */
static void finish_opening(predict_job *job, opening *o, bool wanted) {
    ist_engine_info info;
    if (o->started)
        pthread_join(o->thread, NULL);
    else if (wanted)
        open_engine(o);
    if (wanted && o->engine && !ist_engine_describe(o->engine, &info, NULL) &&
        info.precision != job->engine_info.precision) {
        ist_close(&o->engine);
        o->config.precision = job->engine_info.precision;
        open_engine(o);
    }
    if (!wanted)
        ist_close(&o->engine);
    else if (o->engine)
        job->others[job->other_count++] = o->engine;
    else
        cli_note("device %s is left out: %s", o->spec, o->err.text);
}

/* On a device that serves one process at a time, or has no memory left, those that compile ahead are in the way. */
static ist_status open_first(predict_job *job, const ist_config *config, ist_error *err) {
    ist_status (*open)(const ist_config *, struct ist_jobs *, ist_engine **, ist_error *) =
        job->options->apart ? ist_engine_open_apart : ist_ahead_open;
    ist_status status = open(config, job->helpers.jobs, &job->engine, err);
    bool refused = status == IST_E_NO_DEVICE || status == IST_E_DEVICE || status == IST_E_DEVICE_MEMORY;
    if (refused && ahead_stop(&job->helpers)) status = open(config, NULL, &job->engine, err);
    if (!status) ahead_opened(&job->helpers);
    return status;
}

int predict_open_engine(predict_job *job) {
    ist_config config;
    int indices[PREDICT_MAX_DEVICES], count = 0, *classes = NULL;
    opening *others = NULL;
    ist_error err;
    const char *all = all_of(job->options);
    if (all && job->received) return cli_usage(job->options->command, "--device all: an audit follows one device");
    int code = predict_configure(job, &config, &classes);
    if (all) config.device = *all ? all + 1 : NULL;
    if (!code) job->helpers = ahead_start(&config);
    if (!code && all && list_devices(all, indices, &count, &err))
        code = cli_fail(cli_exit_code(err.code), "%s", err.text);
    if (!code && all) {
        snprintf(job->first_device, sizeof job->first_device, "%d", indices[0]);
        config.device = job->options->device = job->first_device;
    }
    if (!code && count > 1 && !(others = calloc((size_t)count - 1, sizeof *others)))
        code = cli_fail(CLI_FAILED, "out of memory for %d devices", count);
    for (int i = 1; i < count && !code; i++) start_opening(&others[i - 1], &config, indices[i]);
    if (!code && open_first(job, &config, &err)) code = cli_fail(cli_model_exit_code(err.code), "%s", err.text);
    if (!code && ist_engine_describe(job->engine, &job->engine_info, &err)) code = cli_fail(CLI_FAILED, "%s", err.text);
    for (int i = 1; i < count && others; i++) finish_opening(job, &others[i - 1], !code);
    free(others);
    free(classes);
    return code;
}

/* Category ids of the annotations for the labels. */
static ist_status take_categories(predict_job *job, ist_error *err) {
    size_t missing;
    IST_TRY(ist_coco_relabel(job->truth, &job->labels, &missing, err));
    if (missing && missing == job->truth->category_count)
        return ist_fail(err, IST_E_INPUT, "%s: of its %zu %s none is a class of the detector",
                        job->options->annotations, missing, ist_plural(missing, "category", "categories"));
    if (missing)
        cli_note("%s: %zu of its %zu categories %s no class of the detector", job->options->annotations, missing,
                 job->truth->category_count, ist_plural(missing, "is", "are"));
    return IST_OK;
}

/* Names of what the targets are: the user's, else their own. */
static int name_targets(predict_job *job) {
    ist_error err;
    if (!ist_targets_own_labels(&job->targets, (const char *const *)job->names, job->name_count, &job->labels, &err))
        return CLI_SUCCESS;
    ist_fail_context(&err, "%s", job->options->targets);
    return cli_fail(CLI_FAILED, "%s", err.text);
}

/* Names of the engine's labels: the user's, else the checkpoint's. */
static int name_labels(predict_job *job) {
    int classes = job->options->segment ? 1 : job->engine_info.classes;
    ist_error err;
    if (job->options->no_detector) return name_targets(job);
    if (job->name_count && job->name_count != (size_t)classes)
        return cli_fail(CLI_USAGE, "%s has %zu %s, the detector has %d %s", job->options->names, job->name_count,
                        ist_plural(job->name_count, "name", "names"), classes,
                        ist_plural((size_t)classes, "class", "classes"));
    const char **names = calloc(classes > 0 ? (size_t)classes : 1, sizeof *names);
    if (!names) return cli_fail(CLI_FAILED, "out of memory for %d names", classes);
    for (int i = 0; i < classes; i++) names[i] = job->name_count ? job->names[i] : ist_class_name(job->engine, i);
    if (job->options->segment) names[0] = "object";
    ist_status status = ist_labels_make(classes, names, &job->labels, &err);
    free(names);
    if (!status && (status = ist_targets_relabel(&job->targets, &job->labels, &err)))
        ist_fail_context(&err, "%s", job->options->targets);
    if (!status && job->truth) status = take_categories(job, &err);
    return status ? cli_fail(CLI_FAILED, "%s", err.text) : CLI_SUCCESS;
}

/* A misspelt name leaves an image without targets, which can be meant; all of them without cannot. */
static void check_targets(const predict_job *job) {
    for (size_t i = 0; i < job->sources.count; i++)
        if (ist_targets_find(&job->targets, job->sources.items[i].path, job->sources.items[i].name)) return;
    cli_note("%s: of %zu %s it names none", job->options->targets, job->sources.count,
             ist_plural(job->sources.count, "image", "images"));
}

static int read_inputs(predict_job *job) {
    const predict_options *o = job->options;
    ist_error err;
    if (o->names && ist_names_read(o->names, &job->names, &job->name_count, &err))
        return cli_fail(CLI_FAILED, "%s", err.text);
    if (o->targets && ist_targets_read(o->targets, &job->targets, &err)) return cli_fail(CLI_FAILED, "%s", err.text);
    const char *path = NULL;
    size_t most = most_targets(job, &path);
    if (most > 300)
        return cli_fail(CLI_FAILED, "%s: %s has %zu targets, at most 300 can be matched", o->targets, path, most);
    if (o->targets) check_targets(job);
    if (o->segment) return predict_read_prompts(job);
    if (o->no_detector) return CLI_SUCCESS;
    job->match = o->targets ? IST_MATCH_TARGETS : o->track ? IST_MATCH_TRACKS : IST_MATCH_NONE;
    return CLI_SUCCESS;
}

int predict_open_stream(predict_job *job) {
    int code = read_inputs(job);
    if (!code) code = predict_find_checkpoints(job->options);
    if (!code) code = predict_open_engine(job);
    return code ? code : name_labels(job);
}

static int open_journal(predict_job *job, bool resume) {
    ist_error err;
    predict_options *o = job->options;
    ist_run_option list[PREDICT_RUN_OPTIONS_MAX];
    size_t count;
    if (predict_run_options(o, list, &count, &err)) return cli_fail(CLI_FAILED, "%s", err.text);
    const ist_journal_setup setup = {.resume = resume,
                                     .lazy = job->temporary,
                                     .check = predict_image_exists,
                                     .context = o,
                                     .options = list,
                                     .option_count = count};
    ist_status status = ist_journal_open(o->output, &job->sources, &setup, &job->journal, &err);
    return status ? cli_fail(status == IST_E_ARGUMENT ? CLI_USAGE : CLI_FAILED, "%s", err.text) : CLI_SUCCESS;
}

static bool all_done(const predict_job *job) {
    for (size_t i = 0; i < job->sources.count; i++)
        if (!ist_journal_has(job->journal, i)) return false;
    return true;
}

/* Shares of a run, in percent: of the devices' time, and of all cores'. */
static void say_load(const predict_load *l) {
    double devices = l->ms * l->devices / 100, cores = l->ms * l->cores / 100;
    if (l->ms <= 0) return;
    cli_note(
        "%s busy %.0f %% of the time; %d %s %.0f %%, with decoding %.0f %%, with encoding %.0f %%; images took %.1f MB",
        ist_plural((size_t)l->devices, "device", "devices"), l->device_ms / devices, l->cores,
        ist_plural((size_t)l->cores, "core", "cores"), l->cpu_ms / cores, l->decode_ms / cores, l->encode_ms / cores,
        (double)l->most_bytes / 1e6);
}

/* From the first image to the last table. */
static void summarise(const predict_job *job, const predict_totals *t) {
    size_t seen = t->done + t->failed;
    if (job->options->quiet) return;
    char kept[64] = "";
    if (t->skipped) snprintf(kept, sizeof kept, ", %zu kept from an earlier run", t->skipped);
    cli_note("%zu %s, %zu failed%s, %.1f ms per image%s%s", t->done, ist_plural(t->done, "image", "images"), t->failed,
             kept, seen ? (predict_now_ms() - t->begin_ms) / (double)seen : 0.0, job->temporary ? "" : ", results in ",
             job->temporary ? "" : job->options->output);
    say_load(&t->load);
}

static const char *resume_hint(const predict_job *job) {
    return job->temporary ? "" : "; --resume continues";
}

static int conclude(predict_job *job, const predict_totals *t) {
    ist_error err;
    if (t->interrupted)
        return cli_fail(CLI_INTERRUPTED, "interrupted after %zu of %zu %s%s", t->done + t->skipped, job->sources.count,
                        ist_plural(job->sources.count, "image", "images"), resume_hint(job));
    if (predict_write_tables(job, &t->failures, &err)) return cli_fail(CLI_FAILED, "%s", err.text);
    summarise(job, t);
    if (!t->failed) return CLI_SUCCESS;
    return t->done + t->skipped ? CLI_PARTIAL : CLI_FAILED;
}

/* Everything before the first image; *done when an earlier run has left nothing to do. 0 or the exit code. */
static int prepare(predict_job *job, bool *done) {
    predict_options *o = job->options;
    ist_error err;
    int code = read_inputs(job);
    if (!code) code = predict_find_checkpoints(o);
    bool same_shard = true;
    if (!code && o->resume && o->shard.count) code = predict_check_shard(job, &same_shard);
    if (!code && o->resume) code = open_journal(job, true);
    if (code) return code;
    if (o->resume && all_done(job) && ist_journal_is_unchanged(job->journal) && predict_tables_exist(o) && same_shard) {
        *done = true;
        if (ist_journal_commit(job->journal, &err)) return cli_fail(CLI_FAILED, "%s", err.text);
        size_t count = job->sources.count;
        if (!o->quiet && count == 1) cli_note("the image is there already, in %s", o->output);
        if (!o->quiet && count > 1) cli_note("all %zu images are there already, in %s", count, o->output);
        return CLI_SUCCESS;
    }
    if (o->resume && (o->track || o->judges) && !all_done(job)) {
        cli_note("tracks go from image to image, so --resume with --track begins again");
        ist_journal_close(&job->journal);
    }
    if (!job->engine) code = predict_open_engine(job);
    if (!code) code = name_labels(job);
    if (!code && !job->journal) {
        predict_remove_tables(o);
        code = open_journal(job, false);
    }
    if (!code && o->shard.count) return predict_write_shard(job);
    if (!code) predict_remove_shard(o);
    return code;
}

/* What a round came to, added to what the rounds before did. */
static void add_totals(predict_totals *all, predict_totals *round) {
    predict_load *a = &all->load;
    const predict_load *r = &round->load;
    all->done += round->done, all->failed += round->failed, all->skipped += round->skipped;
    if (!all->begin_ms) all->begin_ms = round->begin_ms;
    all->interrupted = all->interrupted || round->interrupted;
    a->ms += r->ms, a->device_ms += r->device_ms;
    a->cpu_ms += r->cpu_ms, a->decode_ms += r->decode_ms, a->encode_ms += r->encode_ms;
    a->devices = r->devices, a->cores = r->cores;
    if (r->most_bytes > a->most_bytes) a->most_bytes = r->most_bytes;
    if (round->failures.length) ist_text_add(&all->failures, round->failures.data, round->failures.length);
    ist_text_free(&round->failures);
}

/* A stream that ended in the middle is a failed input like an image that does. */
static void fail_stream(const predict_job *job, predict_totals *totals) {
    const ist_error *failure = job->stream ? predict_stream_failure(job->stream) : NULL;
    if (!failure || totals->interrupted) return;
    cli_note("%s", failure->text);
    ist_record_failure(&totals->failures, job->options->tar ? job->options->tar : "-", failure->text);
    totals->failed++;
}

/* One run over the list; of a stream, one over what has come, until it has ended. */
static ist_status run_rounds(predict_job *job, predict_totals *totals, ist_error *err) {
    size_t limit = (size_t)job->options->limit;
    for (bool more = job->stream != NULL;;) {
        predict_totals round = {0};
        ist_status status = ist_journal_extend(job->journal, err);
        if (!status) status = predict_run(job, &round, err);
        add_totals(totals, &round);
        IST_TRY(status);
        bool full = limit && job->sources.count >= limit;
        if (!more || full || totals->interrupted) break;
        IST_TRY(predict_stream_take(job, false, &more, err));
        if (limit) ist_sources_truncate(&job->sources, limit);
        if (!more && job->begun == job->sources.count) break;
    }
    fail_stream(job, totals);
    return job->stream ? ist_sources_finish(&job->sources, err) : IST_OK;
}

/* The run in its folder, which is claimed and was there up to `there`. */
static int execute_in(predict_job *job, size_t there) {
    bool done = false;
    ist_error err;
    int code = prepare(job, &done);
    if (code) ist_remove_empty_folders(job->options->output, there);
    if (code || done) return code;
    predict_totals totals = {0};
    ist_status status = run_rounds(job, &totals, &err);
    if (status) {
        cli_note("stopped after %zu of %zu %s%s", totals.done + totals.skipped, job->sources.count,
                 ist_plural(job->sources.count, "image", "images"), resume_hint(job));
        code = cli_fail(cli_exit_code(err.code), "%s", err.text);
    } else {
        code = conclude(job, &totals);
    }
    ist_text_free(&totals.failures);
    return code;
}

int predict_execute(predict_job *job) {
    const char *folder = job->options->output;
    size_t there;
    int claim = -1;
    ist_error err;
    if (predict_prepare_folder(folder, &there, &err) || predict_claim_folder(folder, &claim, &err))
        return cli_fail(CLI_FAILED, "%s", err.text);
    int code = execute_in(job, there);
    ist_claim_end(&claim);
    return code;
}

void predict_job_free(predict_job *job) {
    predict_stream_close(&job->stream);
    ist_journal_close(&job->journal);
    ist_close(&job->engine);
    for (int i = 0; i < job->other_count; i++) ist_close(&job->others[i]);
    ahead_end(&job->helpers);
    if (job->names) ist_names_free(&job->names, job->name_count);
    ist_targets_free(&job->targets);
    ist_prompt_file_free(&job->prompts);
    ist_labels_free(&job->labels);
    ist_shard_part_free(&job->part);
    ist_sources_free(&job->sources);
}
