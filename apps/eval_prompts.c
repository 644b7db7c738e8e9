/* What the segmenter makes of the annotations' own boxes: see eval.h.
 *
 * One image at a time: read, its boxes in, its masks out, each compared with its annotation's. An annotation takes part
 * when it is no crowd and has a segmentation. */
#include "eval.h"

#include <stdlib.h>

/* The most boxes per image that an engine takes; of more, the first. */
enum { MAX_PROMPTS = 300 };

typedef struct prompting {
    predict_job *job;
    const ist_coco *truth;
    const ist_coco_place *places; /* by image */
    size_t place_count;
    ist_engine *engine;
    eval_prompted *sums;
    const ist_coco_object *annotations[MAX_PROMPTS]; /* the image's */
    ist_target boxes[MAX_PROMPTS];
    int count;
} prompting;

static bool takes_part(const ist_coco_object *o) {
    return !o->crowd && o->height;
}

/* First place of an image with this id or a larger one; images are sorted by id, and so are places. */
static size_t find_places(const prompting *p, int64_t id) {
    size_t low = 0, high = p->place_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->truth->images[p->places[middle].image].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The boxes of an image. */
static void take_boxes(prompting *p, int64_t id) {
    p->count = 0;
    for (size_t i = find_places(p, id); i < p->place_count && p->count < MAX_PROMPTS; i++) {
        const ist_coco_object *o = &p->truth->objects.items[p->places[i].index];
        if (p->truth->images[o->image].id != id) break;
        if (!takes_part(o)) continue;
        const double *b = o->box;
        p->annotations[p->count] = o;
        p->boxes[p->count++] =
            (ist_target){.box = {(float)b[0], (float)b[1], (float)(b[0] + b[2]), (float)(b[1] + b[3])}, .label = -1};
    }
}

/* The most boxes that an image has. */
static int most_boxes(prompting *p) {
    int most = 0;
    for (size_t i = 0; i < p->job->sources.count; i++) {
        take_boxes(p, p->job->sources.items[i].id);
        if (p->count > most) most = p->count;
    }
    return most;
}

static ist_status open_segmenter(prompting *p, int most, ist_error *err) {
    const predict_options *o = p->job->options;
    ist_config config = ist_config_default();
    config.segmenter = o->segmenter;
    config.device = o->device;
    config.precision = o->precision;
    predict_configure_inputs(o, &config);
    config.prompts = IST_PROMPTS_TARGETS;
    config.max_objects = config.max_targets = most;
    config.frames_in_flight = 1;
    config.max_pixels = IST_MAX_PIXELS;
    return ist_open(&config, &p->engine, err);
}

/* Objects come in the order of the boxes; `match` says so again. */
static ist_status add_frame(prompting *p, const ist_frame *frame, ist_error *err) {
    ist_coco_object found = {.width = frame->width, .height = frame->height};
    ist_status status = IST_OK;
    double sum = 0;
    if (frame->object_count != p->count)
        return ist_fail(err, IST_E_STATE, "%d masks came for %d boxes", frame->object_count, p->count);
    for (int i = 0; i < p->count && !status; i++) {
        const ist_object *o = &frame->objects[i];
        if (o->match != i) status = ist_fail(err, IST_E_STATE, "mask %d is that of box %d", i, o->match);
        if (!status) status = ist_rle_encode(&o->mask, frame->width, frame->height, &found.mask, err);
        if (!status) sum += ist_coco_iou(&found, p->annotations[i], true);
    }
    ist_rle_free(&found.mask);
    if (!status) p->sums->mask_iou += sum;
    return status;
}

static ist_status segment(prompting *p, const ist_bitmap *bitmap, const char *path, ist_error *err) {
    ist_image image = {.width = bitmap->width,
                             .height = bitmap->height,
                             .format = bitmap->format,
                             .stride = bitmap->stride,
                             .pixels = bitmap->pixels,
                             .targets = p->boxes,
                             .target_count = p->count};
    const ist_result *result = NULL;
    IST_TRY(predict_set_window(p->job->options, bitmap, path, &image, err));
    IST_TRY(ist_submit(p->engine, &image, 1, err));
    IST_TRY(ist_receive(p->engine, &result, err));
    ist_status status = add_frame(p, &result->frames[0], err);
    ist_release(p->engine, &result);
    return status;
}

static bool is_fatal(ist_status status) {
    return status == IST_E_DEVICE || status == IST_E_BUILD || status == IST_E_NO_DEVICE || status == IST_E_STATE;
}

/* An image that cannot be read, or that the engine refuses, fails alone: its boxes count with an IoU of 0. */
static ist_status prompt_image(prompting *p, const ist_source *source, ist_error *err) {
    ist_bitmap bitmap = {0};
    take_boxes(p, source->id);
    if (!p->count) return IST_OK;
    ist_status status = ist_source_read(source, IST_MAX_PIXELS, &bitmap, err);
    if (!status) status = segment(p, &bitmap, source->path, err);
    ist_bitmap_free(&bitmap);
    p->sums->objects += (size_t)p->count;
    if (!status || is_fatal(status)) return status;
    p->sums->failed++;
    cli_note("%s: no masks for its annotations' boxes: %s", source->name, err->text);
    return IST_OK;
}

static ist_status prompt_images(prompting *p, ist_error *err) {
    const predict_job *job = p->job;
    int most = most_boxes(p);
    if (!most) return IST_OK;
    IST_TRY(open_segmenter(p, most, err));
    for (size_t i = 0; i < job->sources.count && !*job->interrupted; i++)
        IST_TRY(prompt_image(p, &job->sources.items[i], err));
    return IST_OK;
}

ist_status eval_prompt(predict_job *job, const ist_coco *truth, eval_prompted *prompted, ist_error *err) {
    prompting *p = calloc(1, sizeof *p);
    ist_coco_place *places = NULL;
    if (!p) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu bytes", sizeof *p);
    *prompted = (eval_prompted){.measured = true};
    p->job = job;
    p->truth = truth;
    p->sums = prompted;
    ist_status status = ist_coco_places(truth, &truth->objects, false, &places, &p->place_count, err);
    p->places = places;
    if (!status) status = prompt_images(p, err);
    ist_close(&p->engine);
    free(places);
    free(p);
    return status;
}
