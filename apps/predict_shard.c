/* `isthmus predict --shard` and `segment --shard`: one of several runs that share out the images (io/shard.h), which
 * isthmus merge joins. */
#include "predict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool environment_number(const char *name, int *out) {
    const char *text = getenv(name);
    return text && cli_parse_int(text, 0, INT32_MAX, out);
}

/* The task of a Slurm array job: its place among the array's indices, which begin where they like. */
static int from_slurm(const char *command, ist_shard *shard) {
    int id, first = 0, step = 1, count = 0;
    if (!environment_number("SLURM_ARRAY_TASK_ID", &id) || !environment_number("SLURM_ARRAY_TASK_COUNT", &count))
        return cli_usage(command, "--shard auto: SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT do not say a task");
    environment_number("SLURM_ARRAY_TASK_MIN", &first);
    environment_number("SLURM_ARRAY_TASK_STEP", &step);
    if (step < 1) step = 1;
    *shard = (ist_shard){(id - first) / step + 1, count};
    if (id >= first && (id - first) % step == 0 && shard->index <= count && count <= IST_SHARD_MOST) return CLI_SUCCESS;
    return cli_usage(command,
                     "--shard auto: task %d is none of %d tasks from %d by steps of %d; name it with --shard I/N", id,
                     count, first, step);
}

int predict_parse_shard(const char *command, const char *text, ist_shard *shard) {
    char index[16];
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : 0;
    if (!strcmp(text, "auto")) return from_slurm(command, shard);
    snprintf(index, sizeof index, "%.*s", (int)n, text);
    if (n && n < sizeof index && cli_parse_int(slash + 1, 1, IST_SHARD_MOST, &shard->count) &&
        cli_parse_int(index, 1, shard->count, &shard->index))
        return CLI_SUCCESS;
    return cli_usage(command, "--shard: '%s' is not I/N with I from 1 to N, or auto", text);
}

int predict_take_shard(predict_job *job) {
    const predict_options *o = job->options;
    ist_error err;
    if (!o->shard.count) return CLI_SUCCESS;
    if (ist_shard_take(o->shard, o->track || o->judges, &job->sources, &job->part, &err))
        return cli_fail(CLI_FAILED, "%s", err.text);
    predict_print_save(o->save, job->part.save, sizeof job->part.save);
    if (!job->sources.count && !o->quiet)
        cli_note("of %zu %s none falls to shard %d of %d", job->part.total,
                 ist_plural(job->part.total, "image", "images"), o->shard.index, o->shard.count);
    return CLI_SUCCESS;
}

int predict_check_shard(const predict_job *job, bool *there) {
    const ist_shard *own = &job->options->shard;
    ist_shard_part part;
    ist_sources sources;
    ist_error err;
    ist_status status = ist_shard_read(job->options->output, &part, &sources, &err);
    *there = !status;
    bool other = *there && (part.shard.index != own->index || part.shard.count != own->count);
    *there = *there && part.list == job->part.list && !strcmp(part.save, job->part.save);
    int index = part.shard.index, count = part.shard.count;
    ist_shard_part_free(&part);
    ist_sources_free(&sources);
    if (!other) return CLI_SUCCESS;
    return cli_usage(job->options->command, "%s holds shard %d of %d; --resume needs the same --shard",
                     job->options->output, index, count);
}

int predict_write_shard(predict_job *job) {
    ist_error err;
    const ist_labels *l = &job->labels;
    job->part.is_coco = l->is_coco;
    if (l->categories && l->count && !job->part.categories) {
        job->part.categories = malloc((size_t)l->count * sizeof *l->categories);
        if (!job->part.categories) return cli_fail(CLI_FAILED, "out of memory for %d categories", l->count);
        memcpy(job->part.categories, l->categories, (size_t)l->count * sizeof *l->categories);
        job->part.category_count = l->count;
    }
    if (!ist_shard_write(job->options->output, &job->part, &job->sources, job->temporary, &err)) return CLI_SUCCESS;
    return cli_fail(CLI_FAILED, "%s", err.text);
}

void predict_remove_shard(const predict_options *options) {
    char *path = ist_path_join(options->output, IST_SHARD_NAME);
    if (path) unlink(path);
    free(path);
}
