/* What `isthmus segment` adds to a run: the prompts of each image, and what becomes of them in the results. */
#include "serve.h"

#include "base/mem.h"
#include "io/npy.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PROMPTS = 300 }; /* of an image: what an engine takes */

static const char *file_of(const predict_options *o) {
    return o->boxes ? o->boxes : o->points;
}

const ist_prompt_list *predict_prompts_listed(const predict_job *job, const ist_source *source) {
    return ist_prompt_file_find(&job->prompts, source->path, source->name);
}

/* A misspelt name leaves an image without prompts, which can be meant; all of them without cannot. */
int predict_read_prompts(predict_job *job) {
    ist_error err;
    bool any = false;
    if (job->options->everything) return CLI_SUCCESS;
    if (ist_prompt_file_read(file_of(job->options), &job->prompts, &err)) return cli_fail(CLI_FAILED, "%s", err.text);
    for (size_t i = 0; i < job->sources.count; i++) {
        const ist_prompt_list *list = predict_prompts_listed(job, &job->sources.items[i]);
        any = any || list;
        if (list && list->count > MOST_PROMPTS)
            return cli_fail(CLI_FAILED, "%s: %s has %zu prompts, at most %d are possible", file_of(job->options),
                            job->sources.items[i].path, list->count, MOST_PROMPTS);
    }
    if (!any)
        cli_note("%s: of %zu %s it names none", file_of(job->options), job->sources.count,
                 ist_plural(job->sources.count, "image", "images"));
    return CLI_SUCCESS;
}

void predict_configure_prompts(const predict_job *job, ist_config *config) {
    size_t prompts = 1, points = 1;
    if (job->options->everything) {
        config->prompts = IST_PROMPTS_EVERYTHING;
        config->everything = &job->options->parameters;
        return;
    }
    config->prompts = IST_PROMPTS_GIVEN;
    config->multimask = job->options->multimask;
    if (job->options->serve) {
        config->multimask = 1;
        config->max_embeddings = SERVE_EMBEDDINGS;
        points = SERVE_POINTS;
    }
    for (size_t i = 0; i < job->sources.count; i++) {
        const ist_prompt_list *list = predict_prompts_listed(job, &job->sources.items[i]);
        if (list && list->count > prompts) prompts = list->count;
        for (size_t k = 0; list && k < list->count; k++) {
            if (list->items[k].point_count > points) points = list->items[k].point_count;
            if (list->items[k].mask) config->mask_prompts = 1;
        }
    }
    config->max_objects = (int)prompts;
    config->max_points = (int)points;
}

static ist_status read_mask(const char *path, ist_prompt *p, float **owned, ist_error *err) {
    ist_npy map;
    IST_TRY(ist_npy_read(path, &map, err));
    p->mask = *owned = map.values;
    p->mask_width = map.width;
    p->mask_height = map.height;
    return IST_OK;
}

ist_status predict_prompts_of(const predict_job *job, const ist_source *source, predict_prompts *prompts,
                              ist_error *err) {
    const ist_prompt_list *list = predict_prompts_listed(job, source);
    *prompts = (predict_prompts){0};
    if (!list || !list->count) return IST_OK;
    prompts->list = calloc(list->count, sizeof *prompts->list);
    prompts->masks = calloc(list->count, sizeof *prompts->masks);
    if (!prompts->list || !prompts->masks)
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory for %zu prompts", source->path, list->count);
    prompts->count = (int)list->count;
    for (size_t i = 0; i < list->count; i++) {
        const ist_prompt_entry *from = &list->items[i];
        ist_prompt *p = &prompts->list[i];
        *p = (ist_prompt){.points = from->points, .point_count = (int)from->point_count};
        if (from->boxed) p->box = from->box;
        if (from->mask) IST_TRY(read_mask(from->mask, p, &prompts->masks[i], err));
    }
    return IST_OK;
}

void predict_prompts_free(predict_prompts *prompts) {
    for (int i = 0; prompts->masks && i < prompts->count; i++) free(prompts->masks[i]);
    free(prompts->masks);
    free(prompts->list);
    *prompts = (predict_prompts){0};
}

void predict_settle_prompts(const predict_job *job, const ist_source *source, ist_object *objects, int count) {
    if (job->options->everything) return; /* the engine's objects have both */
    const ist_prompt_list *list = predict_prompts_listed(job, source);
    for (int i = 0; i < count; i++) {
        ist_object *o = &objects[i];
        o->score = o->mask_score;
        if (!list || o->match < 0 || (size_t)o->match >= list->count || list->items[o->match].boxed) continue;
        for (int k = 0; k < 4; k++) o->box[k] = (float)(o->mask_box[k] + (k > 1 && o->area > 0));
    }
}
