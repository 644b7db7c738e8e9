/* isthmus eval: how well detections and masks agree with COCO annotations.
 *
 * With images: predict's own run over those that are annotated, then its results.json is evaluated, so that the numbers
 * are those of the file that predict writes. With --results: that file, and no device. */
#include "eval.h"

#include "own_folder.h"

#include "io/atomic_file.h"
#include "io/name_map.h"

#include <stdlib.h>
#include <string.h>

/* Which images of the command line are annotated. */
typedef struct lookup {
    ist_coco *truth;
    ist_name_map files; /* file_name -> place in truth->images */
    size_t unknown, twice;
} lookup;

static bool is_annotated(void *context, ist_source *source) {
    lookup *l = context;
    const char *slash = strrchr(source->path, '/');
    const char *keys[3] = {source->path, source->name, slash ? slash + 1 : source->path};
    for (int i = 0; i < 3; i++) {
        const size_t *place = ist_name_map_find(&l->files, keys[i]);
        if (!place) continue;
        ist_coco_image *image = &l->truth->images[*place];
        if (image->used) l->twice++;
        if (image->used) return false;
        image->used = true;
        source->id = image->id;
        return true;
    }
    l->unknown++;
    return false;
}

static ist_status map_files(lookup *l, const char *path, ist_error *err) {
    for (size_t i = 0; i < l->truth->image_count; i++) {
        ist_coco_image *image = &l->truth->images[i];
        bool inserted = true;
        image->used = false;
        if (!image->file)
            return ist_fail(err, IST_E_INPUT, "%s: image %lld has no file_name", path, (long long)image->id);
        if (!ist_name_map_insert(&l->files, image->file, i, &inserted))
            return ist_fail(err, IST_E_MEMORY, "%s: out of memory for %zu images", path, l->truth->image_count);
        if (!inserted) return ist_fail(err, IST_E_INPUT, "%s: two images are called %s", path, image->file);
    }
    return IST_OK;
}

/* Keeps the annotated images, which take their ids, and leaves the others out on both sides. 0 or the exit code. */
static int pair_images(predict_job *job, ist_coco *truth) {
    const char *path = job->options->annotations;
    lookup l = {.truth = truth};
    ist_error err;
    ist_status status = map_files(&l, path, &err);
    if (!status) ist_sources_filter(&job->sources, is_annotated, &l);
    ist_name_map_free(&l.files);
    if (status) return cli_fail(CLI_FAILED, "%s", err.text);
    if (l.twice)
        return cli_fail(CLI_FAILED, "%s: %zu %s given more than once", path, l.twice,
                        ist_plural(l.twice, "image is", "images are"));
    if (!job->sources.count)
        return cli_fail(CLI_FAILED, "%s: of %zu %s none is among its %zu", path, l.unknown,
                        ist_plural(l.unknown, "image", "images"), truth->image_count);
    if (l.unknown)
        cli_note("%s: %zu %s not in it and left out", path, l.unknown, ist_plural(l.unknown, "image is", "images are"));
    if (job->sources.count < truth->image_count)
        cli_note("%s: %zu of its %zu images %s evaluated", path, job->sources.count, truth->image_count,
                 ist_plural(job->sources.count, "is", "are"));
    return CLI_SUCCESS;
}

/* Runs over the images and reads back what was written. 0, CLI_PARTIAL, or another exit code. */
static int detect(predict_job *job, ist_coco *truth, int argc, char **argv, ist_coco_list *results) {
    predict_options *o = job->options;
    char folder[512] = "";
    ist_error err;
    predict_catch_interrupts(job);
    int code = predict_list_sources(job, argc, argv);
    if (!code) code = pair_images(job, truth);
    if (!code && !o->output) {
        code = own_folder_make("eval", folder, sizeof folder);
        o->output = folder;
        job->temporary = true;
    }
    job->truth = truth;
    if (!code) code = predict_execute(job);
    if (!code || code == CLI_PARTIAL) {
        char *path = ist_path_join(o->output, "results.json");
        ist_status status = path ? ist_coco_results_read(path, truth, results, &err)
                                 : ist_fail(&err, IST_E_MEMORY, "%s: out of memory", o->output);
        free(path);
        if (status) code = cli_fail(CLI_FAILED, "%s", err.text);
    }
    own_folder_remove(folder, 0); /* only tables are in it */
    return code;
}

/* An engine for the matcher alone; the run's own when there was one. 0 or the exit code. */
static int open_matcher(predict_job *job) {
    if (job->engine) return CLI_SUCCESS;
    ist_config config = ist_config_default();
    ist_error err;
    config.device = job->options->device;
    if (ist_open(&config, &job->engine, &err)) return cli_fail(cli_exit_code(err.code), "%s", err.text);
    return CLI_SUCCESS;
}

/* Whether masks are compared, and a word about it when one side has them and the other has not. */
static bool compare_masks(const predict_options *o, const ist_coco *truth, const ist_coco_list *results) {
    bool found = results->masks || (!results->count && o->masks);
    if (found && !truth->objects.masks)
        cli_note("%s: an annotation has no segmentation, so masks are not compared", o->annotations);
    return found && truth->objects.masks;
}

static void note_oddities(const predict_options *o, const ist_coco *truth, const ist_coco_list *results, bool masks) {
    size_t no_id = 0, sizes = 0;
    for (size_t i = 0; i < truth->objects.count; i++) no_id += truth->objects.items[i].no_id;
    for (size_t i = 0; i < results->count && masks; i++) {
        const ist_coco_object *r = &results->items[i];
        const ist_coco_image *image = &truth->images[r->image];
        sizes += image->height && (r->width != image->width || r->height != image->height);
    }
    if (no_id) cli_note("%s: COCO's evaluation takes the annotation id 0 for no match; count from 1", o->annotations);
    if (sizes)
        cli_note("%zu %s another size than in %s, which matches nothing", sizes,
                 ist_plural(sizes, "mask has", "masks have"), o->annotations);
    if (results->skipped)
        cli_note("%s: %zu %s left out, for %s lacks the category", o->results ? o->results : "results.json",
                 results->skipped, ist_plural(results->skipped, "result is", "results are"), o->annotations);
}

/* The run with the annotations' boxes, in place of the run's own engine: two at once might not fit on the device. 0,
 * CLI_PARTIAL, or another exit code. */
static int prompt(predict_job *job, const ist_coco *truth, eval_report *report) {
    ist_error err;
    if (job->options->results || !job->options->masks || job->options->no_truth_prompts) return CLI_SUCCESS;
    ist_close(&job->engine);
    while (job->other_count) ist_close(&job->others[--job->other_count]);
    if (eval_prompt(job, truth, &report->prompted, &err))
        return cli_fail(cli_model_exit_code(err.code), "%s", err.text);
    if (*job->interrupted) return cli_fail(CLI_INTERRUPTED, "interrupted while the annotations' boxes were prompts");
    return report->prompted.failed ? CLI_PARTIAL : CLI_SUCCESS;
}

static int evaluate(predict_job *job, const ist_coco *truth, const ist_coco_list *results) {
    const predict_options *o = job->options;
    eval_report report = {.truth = truth, .results = results, .masks = compare_masks(o, truth, results)};
    ist_error err;
    int code = CLI_SUCCESS;
    note_oddities(o, truth, results, report.masks);
    ist_status status = ist_coco_evaluate(truth, results, false, &report.box_scores, &err);
    if (!status && report.masks) status = ist_coco_evaluate(truth, results, true, &report.mask_scores, &err);
    bool match = !o->results || o->device;
    if (!status && match) code = open_matcher(job);
    if (!status && !code && match)
        status = eval_match(job->engine, truth, results, report.masks, &report.overlap, &err);
    if (report.overlap.crowded)
        cli_note("%zu %s more than %d annotations or results: no part of what is matched", report.overlap.crowded,
                 ist_plural(report.overlap.crowded, "image has", "images have"), EVAL_MATCH_MOST);
    if (!status && !code) code = prompt(job, truth, &report);
    bool complete = !status && (!code || code == CLI_PARTIAL);
    if (complete) eval_print(&report, o->json && !strcmp(o->json, "-") ? stderr : stdout);
    if (complete && o->json) status = eval_write(&report, o->json, &err);
    ist_coco_scores_free(&report.box_scores);
    ist_coco_scores_free(&report.mask_scores);
    return status ? cli_fail(cli_exit_code(status), "%s", err.text) : code;
}

int cmd_eval(int argc, char **argv) {
    predict_options options;
    predict_job job = {.options = &options};
    ist_coco truth = {0};
    ist_coco_list results = {0};
    ist_error err;
    bool stop = false;
    int code = predict_parse(argc, argv, &options, &stop);
    if (!stop) {
        bool file = options.json && strcmp(options.json, "-") != 0;
        ist_status status = file ? ist_atomic_try(options.json, &err) : IST_OK;
        if (!status) status = ist_coco_read(options.annotations, &truth, &err);
        if (!status && options.results) status = ist_coco_results_read(options.results, &truth, &results, &err);
        if (status) code = cli_fail(CLI_FAILED, "%s", err.text);
        if (!code && !options.results) code = detect(&job, &truth, argc, argv, &results);
        if (!code || code == CLI_PARTIAL) {
            int evaluated = evaluate(&job, &truth, &results);
            code = evaluated ? evaluated : code;
        }
    }
    predict_job_free(&job);
    predict_options_free(&options);
    ist_coco_list_free(&results);
    ist_coco_free(&truth);
    return code;
}
