/* Opening an engine: checkpoints are read, the frame is recorded from them, slots are made. */
#include "pipeline/inspect.h"

#include "pipeline/trust.h"

#include "base/mem.h"
#include "device/jobs.h"
#include "pipeline/record.h"
#include "pipeline/tuning_record.h"
#include "variants/precision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ist_status take_detector(ist_engine *e, ist_checkpoints *c, ist_error *err) {
    c->detector_info.stored_constants = e->config.stored_constants;
    e->classes = c->detector_info.classes;
    snprintf(e->detector, sizeof e->detector, "%s", ist_model_name(c->detector_info.kind));
    if (ist_weights_class_count(c->detector) != e->classes) return IST_OK; /* no names, or not for these classes */
    if (e->class_names) return IST_OK;                                     /* recorded before */
    e->class_names = calloc((size_t)e->classes, sizeof *e->class_names);
    if (!e->class_names) return ist_fail(err, IST_E_MEMORY, "engine: out of host memory");
    for (int i = 0; i < e->classes; i++) {
        e->class_names[i] = ist_strdup(ist_weights_class_name(c->detector, i));
        if (!e->class_names[i]) return ist_fail(err, IST_E_MEMORY, "engine: out of host memory");
    }
    return IST_OK;
}

/* What the checkpoints say about the engine. */
static ist_status take_checkpoints(ist_engine *e, const ist_config *config, ist_checkpoints **read, ist_error *err) {
    if (!e->reading) e->reading = ist_reading_begin(config);
    if (!e->reading) return ist_fail(err, IST_E_MEMORY, "engine: out of host memory");
    IST_TRY(ist_reading_wait(e->reading, read, err));
    ist_checkpoints *c = *read;
    if (config->prompts == IST_PROMPTS_DETECTIONS) IST_TRY(take_detector(e, c, err));
    if (!config->segmenter) return IST_OK;
    IST_TRY(ist_segmenter_side(&c->segmenter_info, e->config.segmenter_size, &e->config.segmenter_size, err));
    e->has_masks = true;
    snprintf(e->segmenter, sizeof e->segmenter, "%s", ist_model_name(c->segmenter_info.kind));
    const ist_segmenter_model *model = ist_segmenter_of(c->segmenter_info.kind);
    size_t grid = (size_t)(e->config.segmenter_size / model->patch);
    e->embedding_bytes = grid * grid * (size_t)model->channels * (e->config.precision == IST_PRECISION_FP16 ? 2 : 4);
    return IST_OK;
}

/* The labels to keep as one byte per class; *keep stays NULL when all are wanted. */
static ist_status class_filter(const ist_engine *e, const ist_config *config, unsigned char **keep, ist_error *err) {
    *keep = NULL;
    if (!config->classes) return IST_OK;
    unsigned char *k = calloc((size_t)e->classes, 1);
    if (!k) return ist_fail(err, IST_E_MEMORY, "engine: out of host memory");
    for (int i = 0; i < config->class_count; i++) {
        if (config->classes[i] < 0 || config->classes[i] >= e->classes) {
            free(k);
            return ist_fail(err, IST_E_ARGUMENT, "class %d: the detector has classes 0..%d", config->classes[i],
                            e->classes - 1);
        }
        k[config->classes[i]] = 1;
    }
    *keep = k;
    return IST_OK;
}

/* Whether the plan is not finished. */
static bool only_recorded(ist_open_mode mode) {
    return mode == IST_OPEN_RECORDED;
}

/* What the frame of an engine consists of. */
typedef struct frame_parts {
    int count;
    ist_frame_part part[IST_PLANS_MAX];
} frame_parts;

static const frame_parts parts_of[] = {
    [IST_PROMPTS_DETECTIONS] = {1, {IST_FRAME_WHOLE}},
    [IST_PROMPTS_TARGETS] = {1, {IST_FRAME_WHOLE}},
    [IST_PROMPTS_GIVEN] = {2, {IST_FRAME_DECODER, IST_FRAME_ENCODER}},
    [IST_PROMPTS_EVERYTHING] = {
        5, {IST_FRAME_POINTS, IST_FRAME_ENCODER, IST_FRAME_SELECTION, IST_FRAME_PACKING, IST_FRAME_CLEANING}}};

static const frame_parts tiled_parts = {
    5, {IST_FRAME_TILED, IST_FRAME_WINDOWS, IST_FRAME_TILE, IST_FRAME_MERGING, IST_FRAME_ENCODER}};

/* Whether this engine has a part that is not always there. */
static bool has_part(const ist_engine *e, ist_frame_part part) {
    switch (part) {
    case IST_FRAME_CLEANING:
        return e->everything.min_mask_region_area > 0;
    case IST_FRAME_ENCODER:
        return e->has_masks;
    case IST_FRAME_WINDOWS:
        return e->config.window == IST_WINDOW_AUTO;
    default:
        return true;
    }
}

static ist_plan **plan_of(ist_engine *e, ist_frame_part part) {
    switch (part) {
    case IST_FRAME_ENCODER:
        return &e->encoder;
    case IST_FRAME_SELECTION:
        return &e->selection;
    case IST_FRAME_CLEANING:
        return &e->cleaning;
    case IST_FRAME_PACKING:
        return &e->packing;
    case IST_FRAME_WINDOWS:
        return &e->windows;
    case IST_FRAME_TILE:
        return &e->detection;
    case IST_FRAME_MERGING:
        return &e->merging;
    default:
        return &e->plan;
    }
}

int ist_engine_plans(const ist_engine *e, ist_plan *plans[IST_PLANS_MAX]) {
    ist_plan *const all[IST_PLANS_MAX] = {e->encoder, e->windows,   e->detection, e->merging,
                                          e->plan,    e->selection, e->cleaning,  e->packing};
    int count = 0;
    for (int i = 0; i < IST_PLANS_MAX; i++)
        if (all[i]) plans[count++] = all[i];
    return count;
}

static ist_status record(ist_engine *e, const ist_config *config, ist_open_mode mode, const ist_tuning *tuning,
                         unsigned flip, ist_error *err) {
    ist_checkpoints *read = NULL;
    unsigned char *keep = NULL;
    ist_plan_options options = {.half = e->config.precision == IST_PRECISION_FP16,
                                .bf16 = e->config.precision == IST_PRECISION_BF16,
                                .taps = mode == IST_OPEN_KEPT,
                                .overlap = e->config.overlap == IST_OVERLAP_ON,
                                .late = mode == IST_OPEN_LATE || only_recorded(mode),
                                .apart = mode == IST_OPEN_APART,
                                .notes = mode == IST_OPEN_UNTUNED,
                                .tuning = tuning,
                                .flip = flip};
    ist_status st = take_checkpoints(e, config, &read, err);
    if (!st) st = class_filter(e, config, &keep, err);
    const frame_parts *parts = config->tiles ? &tiled_parts : &parts_of[config->prompts];
    for (int i = 0; i < parts->count && !st; i++) {
        if (!has_part(e, parts->part[i])) continue;
        ist_plan **plan = plan_of(e, parts->part[i]);
        st = ist_plan_begin(e->device, &options, plan, err);
        if (!st) st = ist_frame_record(e, *plan, parts->part[i], read, keep, options.taps, err);
    }
    if (!only_recorded(mode)) ist_reading_close(&e->reading);
    free(keep);
    ist_plan *plans[IST_PLANS_MAX];
    int count = ist_engine_plans(e, plans);
    for (int i = 0; i < count && !st && !only_recorded(mode); i++) st = ist_plan_finish(plans[i], err);
    return st;
}

int ist_engine_embeddings(const ist_engine *e) {
    return e->config.prompts == IST_PROMPTS_EVERYTHING ? e->grids.crops : e->config.batch;
}

/* What lies between the plans of a frame. */
static ist_status create_between(ist_engine *e, ist_error *err) {
    if (e->detection)
        return ist_buffer_create(e->device, IST_TILED_WORDS * sizeof(uint32_t), "detections of tiles", &e->found, err);
    if (!e->encoder) return IST_OK;
    if (e->config.prompts == IST_PROMPTS_GIVEN) IST_TRY(ist_slot_create(e, &e->encoding, err));
    IST_TRY(ist_buffer_create(e->device, e->embedding_bytes * (size_t)ist_engine_embeddings(e), "embeddings",
                              &e->embedding, err));
    if (!e->selection) return IST_OK;
    size_t words = ist_found_words((size_t)e->grids.points * IST_MULTIMASKS);
    return ist_buffer_create(e->device, words * sizeof(uint32_t), "candidates", &e->found, err);
}

static ist_status create_slots(ist_engine *e, ist_error *err) {
    if (ist_device_facts(e->device)->type != IST_DEVICE_CPU && !(e->copier = ist_copier_open(ist_copier_helpers())))
        return ist_fail(err, IST_E_MEMORY, "engine: out of host memory");
    for (int i = 0; i < e->config.frames_in_flight; i++) IST_TRY(ist_slot_create(e, &e->slots[i], err));
    return create_between(e, err);
}

/* Replaces AUTO by what it becomes: half halves what moves through memory, which is what a GPU's time goes to, while a
 * CPU pays for each conversion. Of bfloat16's eight bits only the caller can say whether they are enough. */
ist_status ist_precision_choose(const ist_device *device, ist_precision *precision, ist_error *err) {
    const ist_device_info *facts = ist_device_facts(device);
    bool stores = ist_device_stores_half(device);
    if (*precision == IST_PRECISION_FP16 && !stores)
        return ist_fail(
            err, IST_E_UNSUPPORTED,
            "half precision: %s does not round, or does not build, the half_storage probe; use fp32 or auto",
            facts->name);
    if (*precision == IST_PRECISION_BF16 && !ist_device_multiplies_bf16(device))
        return ist_fail(err, IST_E_UNSUPPORTED,
                        "bfloat16: %s has no AVX512_BF16, or does not build the x86_bf16 probe; use fp32 or auto",
                        facts->name);
    if (*precision == IST_PRECISION_AUTO)
        *precision = stores && facts->type == IST_DEVICE_GPU ? IST_PRECISION_FP16 : IST_PRECISION_FP32;
    return IST_OK;
}

/* Replaces AUTO by what it becomes, and opens the second queue. One image of 640 x 640 is too little work for a large
 * GPU (perf/NOTES.md, "two networks on two queues"); a small one would only change between the two. */
static ist_status choose_overlap(ist_engine *e, const ist_config *config, ist_error *err) {
    enum { UNITS = 64 };
    const ist_device_info *facts = ist_device_facts(e->device);
    bool two = config->detector && config->segmenter && config->prompts == IST_PROMPTS_DETECTIONS && !config->tiles;
    bool large = facts->type == IST_DEVICE_GPU && facts->compute_units >= UNITS;
    bool on =
        e->config.overlap == IST_OVERLAP_ON || (e->config.overlap == IST_OVERLAP_AUTO && large && !config->cl_queue);
    e->config.overlap = two && on ? IST_OVERLAP_ON : IST_OVERLAP_OFF;
    return two && on ? ist_lane_open(e->device, err) : IST_OK;
}

/* By the record on disk, or as given; what cannot be used is not there. */
static ist_status record_tuned(ist_engine *e, const ist_config *config, ist_open_mode mode, const ist_tuning *given,
                               ist_error *err) {
    ist_tuning kept = {0};
    if (mode != IST_OPEN_UNTUNED && mode != IST_OPEN_TUNED) ist_tuning_load(e->device, config->cache_dir, &kept);
    ist_status status = record(e, config, mode, mode == IST_OPEN_TUNED ? given : &kept, 0, err);
    ist_tuning_free(&kept);
    return status;
}

ist_status ist_engine_record_if(ist_engine *e, const ist_config *config, unsigned flip, bool tuned, ist_error *err) {
    ist_tuning kept = {0};
    ist_plan_close(&e->plan);
    if (tuned) ist_tuning_load(e->device, config->cache_dir, &kept);
    ist_status status = record(e, config, IST_OPEN_RECORDED, &kept, flip, err);
    if (!status && ist_plan_status(e->plan)) {
        *err = *ist_plan_error(e->plan);
        status = err->code;
    }
    ist_tuning_free(&kept); /* the plan is not finished, and asks no more */
    return status;
}

static ist_status open_with(const ist_config *config, ist_open_mode mode, const ist_tuning *tuning, ist_jobs *jobs,
                            ist_engine **engine, ist_error *err) {
    *engine = NULL;
    ist_engine *e = calloc(1, sizeof *e);
    if (!e) return ist_fail(err, IST_E_MEMORY, "engine: out of host memory");
    if (pthread_mutex_init(&e->lock, NULL)) {
        free(e);
        return ist_fail(err, IST_E_MEMORY, "engine: no mutex to be had");
    }
    e->process = getpid();
    e->config = *config;
    e->config.detector = e->config.segmenter = e->config.device = e->config.cache_dir = NULL;
    e->config.cl_context = e->config.cl_device = e->config.cl_queue = NULL;
    e->config.classes = NULL;
    e->config.everything = NULL;
    if (config->prompts == IST_PROMPTS_EVERYTHING) {
        e->everything = *config->everything;
        ist_grids_of(&e->everything, &e->grids);
    }
    e->config.trust = NULL;
    e->config.tiles = NULL;
    if (config->tiles) e->tiles = *config->tiles;
    e->objects = config->max_objects * (config->multimask ? IST_MULTIMASKS : 1);
    if (!config->input_width || !config->input_height)
        e->config.input_width = e->config.input_height = config->input_size;
    ist_device_options options = {.spec = config->device,
                                  .cl_context = config->cl_context,
                                  .cl_device = config->cl_device,
                                  .cl_queue = config->cl_queue,
                                  .cache_dir = config->cache_dir,
                                  .probing = mode == IST_OPEN_LATE ? IST_PROBING_HERE : IST_PROBING_APART,
                                  .jobs = jobs,
                                  .early = true};
    bool frames = config->prompts == IST_PROMPTS_DETECTIONS ? config->detector != NULL : config->segmenter != NULL;
    if (frames && mode != IST_OPEN_LATE) e->reading = ist_reading_begin(config);
    ist_status st = ist_device_open(&options, &e->device, err);
    if (!st) st = ist_precision_choose(e->device, &e->config.precision, err);
    if (!st) st = choose_overlap(e, config, err);
    if (!st && mode == IST_OPEN_LATE) frames = frames && ist_device_is_cpu(e->device);
    if (!st && frames) st = record_tuned(e, config, mode, tuning, err);
    if (!st && config->trust && frames && !only_recorded(mode)) st = ist_trust_open(e, config->trust, &e->trust, err);
    if (!st && frames && !only_recorded(mode)) st = create_slots(e, err);
    if (!st) st = ist_device_ready(e->device, err);
    int batch = config->tiles ? config->tiles->batch : config->batch;
    if ((st == IST_E_DEVICE_MEMORY || st == IST_E_LIMIT) && frames && batch * config->max_objects > 1)
        ist_fail_context(err, "a batch of %d with up to %d %s each is too much at once, %s might do", batch,
                         config->max_objects, ist_plural((size_t)config->max_objects, "object", "objects"),
                         batch == 1                 ? "fewer objects"
                         : config->max_objects == 1 ? "a smaller batch"
                                                    : "a smaller batch or fewer objects");
    char limit[80];
    if ((st == IST_E_MEMORY || st == IST_E_DEVICE_MEMORY) && ist_limits_memory(limit, sizeof limit))
        ist_fail_context(err, "%s", limit);
    if (st) {
        ist_engine_close(&e);
        return st;
    }
    *engine = e;
    return IST_OK;
}

ist_status ist_engine_open_as(const ist_config *config, ist_open_mode mode, const ist_tuning *tuning,
                              ist_engine **engine, ist_error *err) {
    return open_with(config, mode, tuning, NULL, engine, err);
}

ist_status ist_engine_open(const ist_config *config, ist_jobs *jobs, ist_engine **engine, ist_error *err) {
    return open_with(config, IST_OPEN_FRAMES, NULL, jobs, engine, err);
}

ist_status ist_engine_open_kept(const ist_config *config, ist_engine **engine, ist_error *err) {
    return open_with(config, IST_OPEN_KEPT, NULL, NULL, engine, err);
}

ist_status ist_engine_open_apart(const ist_config *config, ist_jobs *jobs, ist_engine **engine, ist_error *err) {
    return open_with(config, IST_OPEN_APART, NULL, jobs, engine, err);
}

void ist_engine_close(ist_engine **engine) {
    if (!engine || !*engine) return;
    ist_engine *e = *engine;
    ist_reading_close(&e->reading);
    if (e->device) ist_finish(e->device, (ist_frame_scope){0}, "close", NULL);
    ist_copier_close(&e->copier);
    for (int i = 0; i < IST_MAX_SLOTS; i++) ist_slot_destroy(e, &e->slots[i]);
    ist_slot_destroy(e, &e->encoding);
    while (e->embeddings) ist_engine_forget(e, e->embeddings);
    if (e->device) ist_buffer_release(e->device, &e->embedding);
    if (e->device) ist_buffer_release(e->device, &e->found);
    if (e->device) ist_buffer_release(e->device, &e->regions);
    ist_trust_close(e, &e->trust);
    ist_plan_close(&e->plan);
    ist_plan_close(&e->encoder);
    ist_plan_close(&e->selection);
    ist_plan_close(&e->cleaning);
    ist_plan_close(&e->packing);
    ist_plan_close(&e->windows);
    ist_plan_close(&e->detection);
    ist_plan_close(&e->merging);
    ist_device_close(&e->device);
    for (int i = 0; e->class_names && i < e->classes; i++) free(e->class_names[i]);
    free(e->class_names);
    pthread_mutex_destroy(&e->lock);
    free(e);
    *engine = NULL;
}
