/* The public functions of isthmus.h: check every argument at the door, translate, forward. */
#include "isthmus.h"

#include "base/sample_window.h"
#include "graph/nodes.h"
#include "variants/assign.h"
#include "pipeline/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

const char *ist_version(void) {
    return TEXT(IST_VERSION_MAJOR) "." TEXT(IST_VERSION_MINOR) "." TEXT(IST_VERSION_PATCH);
}

ist_status ist_devices(ist_device_info *list, int capacity, int *count, ist_error *err) {
    if (!count || capacity < 0 || (capacity && !list))
        return ist_fail(err, IST_E_ARGUMENT, "ist_devices: capacity %d without a place for the list or the count",
                        capacity);
    ist_device_info *found = NULL;
    *count = 0;
    IST_TRY(ist_device_list(&found, count, err));
    int n = *count < capacity ? *count : capacity;
    if (n) memcpy(list, found, (size_t)n * sizeof *list);
    free(found);
    return IST_OK;
}

/* One numeric field of the configuration and its range. */
static ist_status in_range(ist_error *err, const char *name, double value, double low, double high) {
    if (value >= low && value <= high) return IST_OK; /* false for NaN */
    return ist_fail(err, IST_E_ARGUMENT, "config.%s is %g, want %g..%g", name, value, low, high);
}

static ist_status check_sides(const ist_config *c, ist_error *err) {
    if (!c->input_width && !c->input_height) return IST_OK;
    IST_TRY(in_range(err, "input_width", c->input_width, 64, 2048));
    IST_TRY(in_range(err, "input_height", c->input_height, 64, 2048));
    if (c->input_width % 32 == 0 && c->input_height % 32 == 0) return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT, "config.input_width and input_height are %d and %d, want multiples of 32",
                    c->input_width, c->input_height);
}

static ist_status check_prompts(const ist_config *c, ist_error *err) {
    IST_TRY(in_range(err, "prompts", c->prompts, IST_PROMPTS_DETECTIONS, IST_PROMPTS_EVERYTHING));
    IST_TRY(in_range(err, "max_points", c->max_points, 1, IST_MAX_POINTS));
    IST_TRY(in_range(err, "multimask", c->multimask, 0, 1));
    IST_TRY(in_range(err, "low_res", c->low_res, 0, 1));
    IST_TRY(in_range(err, "mask_prompts", c->mask_prompts, 0, 1));
    IST_TRY(in_range(err, "max_embeddings", c->max_embeddings, 1, IST_MAX_EMBEDDINGS));
    if (c->prompts != IST_PROMPTS_GIVEN && (c->multimask || c->low_res || c->mask_prompts))
        return ist_fail(err, IST_E_ARGUMENT, "config.%s needs config.prompts to be given ones",
                        c->multimask ? "multimask"
                        : c->low_res ? "low_res"
                                     : "mask_prompts");
    if (c->prompts == IST_PROMPTS_DETECTIONS) return IST_OK;
    if (c->match == IST_MATCH_NONE && !c->classes && c->segmenter) return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT, "config.prompts are %s: give a segmenter, and neither match nor classes",
                    c->prompts == IST_PROMPTS_TARGETS ? "targets"
                    : c->prompts == IST_PROMPTS_GIVEN ? "given"
                                                      : "everything");
}

/* Parameters of everything in full, and what they mean for the configuration. */
static ist_status complete_everything(ist_config *c, ist_everything *full, ist_error *err) {
    const ist_everything *given = c->everything;
    *full = ist_everything_default();
    if (c->prompts != IST_PROMPTS_EVERYTHING) {
        if (!given) return IST_OK;
        return ist_fail(err, IST_E_ARGUMENT, "config.everything needs config.prompts to be IST_PROMPTS_EVERYTHING");
    }
    if (given && (given->struct_size < sizeof given->struct_size || given->struct_size > sizeof *given))
        return ist_fail(err, IST_E_ARGUMENT, "ist_open: start config.everything from ist_everything_default()");
    if (given) memcpy(full, given, given->struct_size);
    full->struct_size = sizeof *full;
    c->everything = full;
    c->max_objects = full->max_masks;
    if (c->batch != 1)
        return ist_fail(err, IST_E_ARGUMENT, "config.batch is %d, masks of everything are of one image at a time",
                        c->batch);
    return ist_everything_check(full, err);
}

static ist_status check_suppression(const ist_config *c, ist_error *err) {
    IST_TRY(in_range(err, "nms_iou", c->nms_iou, 0, 1));
    IST_TRY(in_range(err, "nms_agnostic", c->nms_agnostic, 0, 1));
    if (c->nms_iou > 0 ? c->prompts == IST_PROMPTS_DETECTIONS : !c->nms_agnostic) return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT,
                    c->nms_iou > 0 ? "config.nms_iou is for detections, config.prompts are others"
                                   : "config.nms_agnostic needs config.nms_iou");
}

static ist_status check_trust(const ist_config *c, ist_trust_options *t, ist_error *err) {
    if (!c->trust) return IST_OK;
    if (c->trust->struct_size < sizeof t->struct_size || c->trust->struct_size > sizeof *t)
        return ist_fail(err, IST_E_ARGUMENT, "config.trust: start from ist_trust_default()");
    *t = ist_trust_default();
    memcpy(t, c->trust, c->trust->struct_size);
    IST_TRY(in_range(err, "trust.tau_conf", t->tau_conf, 0, 1));
    IST_TRY(in_range(err, "trust.theta_on", t->theta_on, 0, 1));
    IST_TRY(in_range(err, "trust.theta_off", t->theta_off, 0, t->theta_on));
    IST_TRY(in_range(err, "trust.theta_cont", t->theta_cont, 0, 1));
    IST_TRY(in_range(err, "trust.n_lost", t->n_lost, 1, 1000000));
    IST_TRY(in_range(err, "trust.weights", t->weights, 0, 1));
    if (c->detector && c->segmenter && c->batch == 1 && c->prompts == IST_PROMPTS_DETECTIONS) return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT, "config.trust needs a detector, a segmenter and a batch of 1");
}

/* Tiles in full, and what they mean for the configuration. */
static ist_status complete_tiles(ist_config *c, ist_tiles *full, ist_error *err) {
    const ist_tiles *given = c->tiles;
    if (!given) return IST_OK;
    if (given->struct_size < sizeof given->struct_size || given->struct_size > sizeof *full)
        return ist_fail(err, IST_E_ARGUMENT, "config.tiles: start from ist_tiles_default()");
    *full = ist_tiles_default();
    memcpy(full, given, given->struct_size);
    c->tiles = full;
    IST_TRY(ist_tiles_check(full, err));
    IST_TRY(in_range(err, "tiles.batch", full->batch, 1, IST_MAX_BATCH));
    if (c->detector && c->batch == 1 && c->prompts == IST_PROMPTS_DETECTIONS && !c->trust &&
        c->match != IST_MATCH_TARGETS_SET)
        return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT,
                    "config.tiles need a detector, a batch of 1, and neither trust nor IST_MATCH_TARGETS_SET");
}

static ist_status check_config(const ist_config *c, ist_error *err) {
    IST_TRY(in_range(err, "input_size", c->input_size, 64, 2048));
    if (c->input_size % 32)
        return ist_fail(err, IST_E_ARGUMENT, "config.input_size is %d, want a multiple of 32", c->input_size);
    IST_TRY(check_sides(c, err));
    IST_TRY(in_range(err, "batch", c->batch, 1, IST_MAX_BATCH));
    IST_TRY(in_range(err, "max_objects", c->max_objects, 1, IST_MAX_OBJECTS));
    IST_TRY(in_range(err, "conf", c->conf, 0, 1));
    IST_TRY(in_range(err, "frames_in_flight", c->frames_in_flight, 1, IST_MAX_SLOTS));
    IST_TRY(in_range(err, "max_targets", c->max_targets, 0, 300));
    IST_TRY(in_range(err, "max_pixels", c->max_pixels, 1, 1 << 30));
    IST_TRY(in_range(err, "track_iou", c->track_iou, 0, 1));
    IST_TRY(in_range(err, "track_motion", c->track_motion, 0, 1));
    IST_TRY(in_range(err, "track_high", c->track_high, 0, 1));
    IST_TRY(in_range(err, "track_age", c->track_age, 0, 1 << 20));
    IST_TRY(in_range(err, "match", c->match, IST_MATCH_NONE, IST_MATCH_TARGETS_SET));
    IST_TRY(in_range(err, "precision", c->precision, IST_PRECISION_AUTO, IST_PRECISION_BF16));
    if (c->class_count < 0 || (c->class_count && !c->classes))
        return ist_fail(err, IST_E_ARGUMENT, "config.class_count is %d without a list", c->class_count);
    IST_TRY(check_prompts(c, err));
    if (c->segmenter && !c->detector && c->prompts == IST_PROMPTS_DETECTIONS)
        return ist_fail(err, IST_E_ARGUMENT, "config.segmenter without config.detector: masks need boxes");
    IST_TRY(in_range(err, "overlap", c->overlap, IST_OVERLAP_AUTO, IST_OVERLAP_OFF));
    IST_TRY(in_range(err, "resize_order", c->resize_order, IST_RESIZE_ORDER_AUTO, IST_RESIZE_ORDER_PILLOW_13));
    IST_TRY(in_range(err, "window", c->window, IST_WINDOW_NONE, IST_WINDOW_AUTO));
    IST_TRY(in_range(err, "readback", c->readback, IST_READBACK_PACKET, IST_READBACK_NONE));
    IST_TRY(in_range(err, "stored_constants", c->stored_constants, 0, 1));
    IST_TRY(in_range(err, "segmenter_size", c->segmenter_size, 0, 4096));
    IST_TRY(check_suppression(c, err));
    int adopted = !!c->cl_context + !!c->cl_device + !!c->cl_queue;
    if (adopted && adopted != 3)
        return ist_fail(err, IST_E_ARGUMENT, "config: give cl_context, cl_device and cl_queue together, or none");
    return IST_OK;
}

ist_status ist_ahead_open(const ist_config *config, struct ist_jobs *jobs, ist_engine **engine, ist_error *err) {
    if (!engine) return ist_fail(err, IST_E_ARGUMENT, "ist_open: no place for the engine");
    *engine = NULL;
    if (!config || config->struct_size < sizeof config->struct_size || config->struct_size > sizeof *config)
        return ist_fail(err, IST_E_ARGUMENT, "ist_open: start from ist_config_default()");
    ist_config full = ist_config_default(); /* fields that an older caller does not know keep their defaults */
    memcpy(&full, config, config->struct_size);
    full.struct_size = sizeof full;
    IST_TRY(check_config(&full, err));
    ist_everything everything;
    IST_TRY(complete_everything(&full, &everything, err));
    ist_tiles tiles;
    IST_TRY(complete_tiles(&full, &tiles, err));
    ist_trust_options trust;
    IST_TRY(check_trust(&full, &trust, err));
    if (full.trust) full.trust = &trust;
    return ist_engine_open(&full, jobs, engine, err);
}

ist_status ist_open(const ist_config *config, ist_engine **engine, ist_error *err) {
    return ist_ahead_open(config, NULL, engine, err);
}

/* ---- who may come in ---- */

/* A child of fork() has the engine's memory, but neither its threads nor the driver's: whatever waits would wait
 * forever. */
static bool is_ours(const ist_engine *e) {
    return e->process == getpid();
}

/* Marks the thread as being inside; `leave` ends it. */
static ist_status enter(const ist_engine *e, atomic_bool *inside, const char *call, const char *other, ist_error *err) {
    if (!is_ours(e))
        return ist_fail(err, IST_E_STATE, "%s: the engine was opened before fork(), a child process opens its own",
                        call);
    if (!atomic_exchange_explicit(inside, true, memory_order_acquire)) return IST_OK;
    return ist_fail(err, IST_E_STATE, "%s: another thread is in %s of this engine", call, other);
}

static void leave(atomic_bool *inside) {
    atomic_store_explicit(inside, false, memory_order_release);
}

/* In a child the engine stays the parent's: nothing of the device is touched, the copy of its memory is left. */
void ist_close(ist_engine **engine) {
    if (engine && *engine && !is_ours(*engine))
        *engine = NULL;
    else
        ist_engine_close(engine);
}

/* ---- frames ---- */

static bool known_format(ist_pixel_format f) {
    int channels = (int)f & 15, sample = (int)f >> 4;
    return channels >= 1 && channels <= 4 && (sample == 1 || sample == 2);
}

static ist_status check_targets(const ist_engine *e, const ist_image *m, int i, ist_error *err) {
    if (m->target_count > 0 && !m->targets)
        return ist_fail(err, IST_E_ARGUMENT, "image %d: %d targets, but no pointer to them", i, m->target_count);
    if (m->target_count < 0 || m->target_count > e->config.max_targets)
        return ist_fail(err, IST_E_ARGUMENT, "image %d: %d targets, the engine was opened for at most %d", i,
                        m->target_count, e->config.max_targets);
    for (int t = 0; t < m->target_count; t++)
        for (int k = 0; k < 4; k++)
            if (!isfinite(m->targets[t].box[k]))
                return ist_fail(err, IST_E_ARGUMENT, "image %d: target %d has a coordinate that is not a number", i, t);
    return IST_OK;
}

static bool all_finite(const float *v, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!isfinite(v[i])) return false;
    return true;
}

static ist_status check_points(const ist_engine *e, const ist_prompt *p, int i, int k, ist_error *err) {
    if (p->point_count < 0 || (p->point_count > 0 && !p->points))
        return ist_fail(err, IST_E_ARGUMENT, "image %d, prompt %d: %d points, but no pointer to them", i, k,
                        p->point_count);
    if (p->point_count > e->config.max_points)
        return ist_fail(err, IST_E_LIMIT, "image %d, prompt %d: %d points, the engine was opened for at most %d", i, k,
                        p->point_count, e->config.max_points);
    for (int j = 0; j < p->point_count; j++) {
        const ist_point *at = &p->points[j];
        if (!isfinite(at->x) || !isfinite(at->y))
            return ist_fail(err, IST_E_ARGUMENT, "image %d, prompt %d: point %d has a coordinate that is not a number",
                            i, k, j);
        if (at->label != 0 && at->label != 1)
            return ist_fail(err, IST_E_ARGUMENT, "image %d, prompt %d: point %d has label %d, want 1 (in) or 0 (out)",
                            i, k, j, at->label);
    }
    return IST_OK;
}

static ist_status check_mask(const ist_engine *e, const ist_prompt *p, int i, int k, ist_error *err) {
    int side = e->config.segmenter_size / IST_LOGIT_PIXELS;
    if (!p->mask) return IST_OK;
    if (!e->config.mask_prompts)
        return ist_fail(err, IST_E_ARGUMENT, "image %d, prompt %d: a mask, the engine was opened without mask_prompts",
                        i, k);
    if (p->mask_width != side || p->mask_height != side)
        return ist_fail(err, IST_E_ARGUMENT, "image %d, prompt %d: a mask of %d x %d, want logits of %d x %d", i, k,
                        p->mask_width, p->mask_height, side, side);
    if (all_finite(p->mask, (size_t)side * (size_t)side)) return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT, "image %d, prompt %d: the mask has a value that is not a number", i, k);
}

/* Prompts of image i. */
static ist_status check_given(const ist_engine *e, const ist_prompt *prompts, int count, int i, ist_error *err) {
    if (count && e->config.prompts != IST_PROMPTS_GIVEN)
        return ist_fail(err, IST_E_ARGUMENT, "image %d: %d prompts, the engine was opened for prompts of another kind",
                        i, count);
    if (count < 0 || (count > 0 && !prompts))
        return ist_fail(err, IST_E_ARGUMENT, "image %d: %d prompts, but no pointer to them", i, count);
    if (count > e->config.max_objects)
        return ist_fail(err, IST_E_LIMIT, "image %d: %d prompts, the engine was opened for at most %d", i, count,
                        e->config.max_objects);
    for (int k = 0; k < count; k++) {
        const ist_prompt *p = &prompts[k];
        IST_TRY(check_points(e, p, i, k, err));
        if (p->box && !all_finite(p->box, 4))
            return ist_fail(err, IST_E_ARGUMENT, "image %d, prompt %d: the box has a coordinate that is not a number",
                            i, k);
        IST_TRY(check_mask(e, p, i, k, err));
        if (!p->point_count && !p->box && !p->mask)
            return ist_fail(err, IST_E_ARGUMENT, "image %d, prompt %d: neither points nor box nor mask", i, k);
    }
    return IST_OK;
}

/* The image lies inside the caller's buffer, and the buffer in the engine's context. */
static ist_status check_buffer(const ist_engine *e, const ist_image *m, size_t row, int i, ist_error *err) {
    cl_context context = NULL;
    size_t size = 0, stride = m->stride ? m->stride : row, need = stride * (size_t)(m->height - 1) + row;
    cl_int rc = clGetMemObjectInfo(m->cl_buffer, CL_MEM_CONTEXT, sizeof context, &context, NULL);
    if (rc == CL_SUCCESS) rc = clGetMemObjectInfo(m->cl_buffer, CL_MEM_SIZE, sizeof size, &size, NULL);
    if (rc != CL_SUCCESS || context != ist_device_context(e->device))
        return ist_fail(err, IST_E_ARGUMENT, "image %d: cl_buffer is not a buffer of the engine's context", i);
    if (m->cl_offset > size || need > size - m->cl_offset)
        return ist_fail(err, IST_E_ARGUMENT, "image %d: %zu bytes from byte %zu on, but cl_buffer has %zu", i, need,
                        m->cl_offset, size);
    return IST_OK;
}

static ist_status check_window(const ist_engine *e, const ist_image *m, int i, ist_error *err) {
    int low = m->window_low, high = m->window_high;
    bool given = low || high;
    if (given && e->config.window == IST_WINDOW_NONE)
        return ist_fail(err, IST_E_ARGUMENT, "image %d: a window, the engine was opened without config.window", i);
    if (given && (low >= high || low < -IST_WINDOW_MAX || high > IST_WINDOW_MAX))
        return ist_fail(err, IST_E_ARGUMENT, "image %d: a window of %d to %d, want low below high, both within %d of 0",
                        i, low, high, IST_WINDOW_MAX);
    if (!given && e->config.window == IST_WINDOW_AUTO && (int64_t)m->width * m->height > IST_WINDOW_PIXELS_MAX)
        return ist_fail(err, IST_E_LIMIT, "image %d: an automatic window of %d x %d pixels, at most %d", i, m->width,
                        m->height, IST_WINDOW_PIXELS_MAX);
    return IST_OK;
}

/* What an image is, apart from where its pixels are and what is to be found in it. */
static ist_status check_shape(const ist_engine *e, const ist_image *m, int i, ist_error *err) {
    if (m->width < 1 || m->height < 1)
        return ist_fail(err, IST_E_ARGUMENT, "image %d: %d x %d pixels", i, m->width, m->height);
    if ((int64_t)m->width * m->height > e->config.max_pixels || m->width > 65536 || m->height > 65536)
        return ist_fail(err, IST_E_LIMIT, "image %d: %d x %d pixels, the limit is %d and 65536 on a side", i, m->width,
                        m->height, e->config.max_pixels);
    if (!known_format(m->format))
        return ist_fail(err, IST_E_ARGUMENT, "image %d: unknown pixel format 0x%x", i, m->format);
    ist_tile_layout tiles;
    return e->detection ? ist_tiles_of(&e->tiles, m->width, m->height, &tiles, err) : IST_OK;
}

static ist_status check_image(const ist_engine *e, const ist_image *images, int i, ist_error *err) {
    const ist_image *m = &images[i];
    IST_TRY(check_shape(e, m, i, err));
    size_t row = (size_t)m->width * (size_t)(((int)m->format & 15) * ((int)m->format >> 4));
    if (m->stride && (m->stride < row || m->stride > INT32_MAX))
        return ist_fail(err, IST_E_ARGUMENT, "image %d: stride %zu for rows of %zu bytes", i, m->stride, row);
    if (!m->pixels == !m->cl_buffer)
        return ist_fail(err, IST_E_ARGUMENT, "image %d: give either pixels or cl_buffer", i);
    if (m->cl_buffer != images[0].cl_buffer)
        return ist_fail(err, IST_E_ARGUMENT, "image %d: all images of a batch lie in one cl_buffer, or none", i);
    if (m->cl_buffer) IST_TRY(check_buffer(e, m, row, i, err));
    IST_TRY(check_window(e, m, i, err));
    IST_TRY(check_targets(e, m, i, err));
    return check_given(e, m->prompts, m->prompt_count, i, err);
}

/* What ist_submit and ist_stage ask of a batch before they look at its images. */
static ist_status check_batch(const ist_engine *engine, const ist_image *images, int count, const char *call,
                              ist_error *err) {
    if (!engine || !images)
        return ist_fail(err, IST_E_ARGUMENT, "%s: no %s given", call, engine ? "images" : "engine");
    if (!engine->plan) return ist_fail(err, IST_E_STATE, "%s: the engine was opened without a model", call);
    if (count < 1 || count > engine->config.batch)
        return ist_fail(err, IST_E_ARGUMENT, "%s: %d images, the engine was opened for 1..%d", call, count,
                        engine->config.batch);
    return IST_OK;
}

ist_status ist_submit(ist_engine *engine, const ist_image *images, int count, ist_error *err) {
    IST_TRY(check_batch(engine, images, count, "ist_submit", err));
    for (int i = 0; i < count; i++) IST_TRY(check_image(engine, images, i, err));
    IST_TRY(enter(engine, &engine->submitting, "ist_submit", "ist_submit or ist_assign", err));
    ist_status status = ist_engine_submit(engine, images, count, err);
    leave(&engine->submitting);
    return status;
}

ist_status ist_stage(ist_engine *engine, const ist_image *images, int count, void **pixels, ist_error *err) {
    IST_TRY(check_batch(engine, images, count, "ist_stage", err));
    if (!pixels) return ist_fail(err, IST_E_ARGUMENT, "ist_stage: no place for the pointers given");
    for (int i = 0; i < count; i++) IST_TRY(check_shape(engine, &images[i], i, err));
    IST_TRY(enter(engine, &engine->submitting, "ist_stage", "ist_submit or ist_assign", err));
    ist_status status = ist_engine_stage(engine, images, count, pixels, err);
    leave(&engine->submitting);
    return status;
}

ist_status ist_receive(ist_engine *engine, const ist_result **result, ist_error *err) {
    if (!engine || !result)
        return ist_fail(err, IST_E_ARGUMENT, "ist_receive: no %s given", engine ? "place for the result" : "engine");
    *result = NULL;
    IST_TRY(enter(engine, &engine->receiving, "ist_receive", "ist_receive or ist_assign", err));
    ist_status status = ist_engine_receive(engine, result, err);
    leave(&engine->receiving);
    return status;
}

ist_status ist_receive_for(ist_engine *engine, double timeout_ms, const ist_result **result, ist_error *err) {
    if (!engine || !result)
        return ist_fail(err, IST_E_ARGUMENT, "ist_receive_for: no %s given",
                        engine ? "place for the result" : "engine");
    *result = NULL;
    if (!(timeout_ms >= 0 && timeout_ms <= 86400000)) /* NaN too */
        return ist_fail(err, IST_E_ARGUMENT, "ist_receive_for: timeout_ms is %g, want 0..86400000", timeout_ms);
    IST_TRY(enter(engine, &engine->receiving, "ist_receive_for", "ist_receive or ist_assign", err));
    ist_status status = ist_engine_receive_for(engine, timeout_ms, result, err);
    leave(&engine->receiving);
    return status;
}

ist_status ist_try_receive(ist_engine *engine, const ist_result **result, ist_error *err) {
    return ist_receive_for(engine, 0, result, err);
}

ist_status ist_cancel(ist_engine *engine, int *cancelled, ist_error *err) {
    if (cancelled) *cancelled = 0;
    if (!engine) return ist_fail(err, IST_E_ARGUMENT, "ist_cancel: no engine given");
    IST_TRY(enter(engine, &engine->receiving, "ist_cancel", "ist_receive or ist_assign", err));
    ist_status status = ist_engine_cancel(engine, cancelled, err);
    leave(&engine->receiving);
    return status;
}

ist_status ist_submitted(ist_engine *engine, ist_device_packet *device, ist_error *err) {
    if (!engine || !device)
        return ist_fail(err, IST_E_ARGUMENT, "ist_submitted: no %s given", engine ? "place for the packet" : "engine");
    *device = (ist_device_packet){0};
    IST_TRY(enter(engine, &engine->submitting, "ist_submitted", "ist_submit or ist_assign", err));
    ist_status status = ist_engine_submitted(engine, device, err);
    leave(&engine->submitting);
    return status;
}

void ist_release(ist_engine *engine, const ist_result **result) {
    if (!engine || !result || !*result) return;
    if (is_ours(engine)) ist_engine_release(engine, *result); /* a child's copy of the lock may be held for ever */
    *result = NULL;
}

/* ---- embeddings ---- */

ist_status ist_encode(ist_engine *engine, const ist_image *image, ist_embedding **embedding, ist_error *err) {
    if (!engine || !image || !embedding)
        return ist_fail(err, IST_E_ARGUMENT, "ist_encode: no %s given",
                        !engine  ? "engine"
                        : !image ? "image"
                                 : "place for the embedding");
    *embedding = NULL;
    if (engine->config.prompts != IST_PROMPTS_GIVEN)
        return ist_fail(err, IST_E_STATE, "ist_encode: the engine was opened for other prompts than given ones");
    ist_image bare = *image;
    bare.targets = NULL, bare.prompts = NULL;
    bare.target_count = bare.prompt_count = 0;
    IST_TRY(check_image(engine, &bare, 0, err));
    IST_TRY(enter(engine, &engine->submitting, "ist_encode", "ist_submit, ist_encode or ist_assign", err));
    ist_status status = ist_engine_encode(engine, &bare, embedding, err);
    leave(&engine->submitting);
    return status;
}

/* Whether it is one of the engine's that are alive. */
static bool is_alive(const ist_engine *e, const ist_embedding *embedding) {
    for (const ist_embedding *k = e->embeddings; k; k = k->next)
        if (k == embedding) return true;
    return false;
}

ist_status ist_submit_prompts(ist_engine *engine, const ist_embedding *embedding, const ist_prompt *prompts, int count,
                              uint64_t tag, ist_error *err) {
    if (!engine || !embedding)
        return ist_fail(err, IST_E_ARGUMENT, "ist_submit_prompts: no %s given", engine ? "embedding" : "engine");
    if (!is_alive(engine, embedding))
        return ist_fail(err, IST_E_ARGUMENT, "ist_submit_prompts: the embedding is none of this engine's");
    IST_TRY(check_given(engine, prompts, count, 0, err));
    IST_TRY(enter(engine, &engine->submitting, "ist_submit_prompts", "ist_submit, ist_encode or ist_assign", err));
    ist_status status = ist_engine_submit_prompts(engine, embedding, prompts, count, tag, err);
    leave(&engine->submitting);
    return status;
}

ist_status ist_embedding_transfers(const ist_embedding *embedding, ist_transfers *transfers, ist_error *err) {
    if (!embedding || !transfers)
        return ist_fail(err, IST_E_ARGUMENT, "ist_embedding_transfers: no %s given",
                        embedding ? "place for the transfers" : "embedding");
    *transfers = embedding->counts;
    return IST_OK;
}

void ist_embedding_release(ist_engine *engine, ist_embedding **embedding) {
    if (!engine || !embedding || !*embedding) return;
    if (is_ours(engine)) ist_engine_forget(engine, *embedding);
    *embedding = NULL;
}

/* ---- facts ---- */

ist_status ist_engine_describe(const ist_engine *e, ist_engine_info *info, ist_error *err) {
    if (!e || !info) return ist_fail(err, IST_E_ARGUMENT, "ist_engine_describe: no %s given", e ? "info" : "engine");
    *info = (ist_engine_info){.device = *ist_device_facts(e->device),
                              .precision = e->config.precision,
                              .classes = e->classes,
                              .input_size = e->config.input_size,
                              .input_width = e->config.input_width,
                              .input_height = e->config.input_height,
                              .segmenter_size = e->has_masks ? e->config.segmenter_size : 0,
                              .batch = e->config.batch,
                              .max_objects = e->config.max_objects,
                              .overlap = e->config.overlap == IST_OVERLAP_ON};
    memcpy(info->detector, e->detector, sizeof info->detector);
    memcpy(info->segmenter, e->segmenter, sizeof info->segmenter);
    ist_device_memory(e->device, &info->device_bytes, &info->device_peak_bytes);
    ist_plan *plans[IST_PLANS_MAX];
    int count = ist_engine_plans(e, plans);
    for (int i = 0; i < count; i++) {
        ist_plan_facts f = ist_plan_describe(plans[i]);
        info->arena_bytes += f.arena_bytes;
        info->arena_lower_bound += f.arena_lower_bound;
        info->weight_bytes += f.const_bytes;
        info->kernels += f.launches;
    }
    return IST_OK;
}

const char *ist_class_name(const ist_engine *e, int label) {
    return e && e->class_names && label >= 0 && label < e->classes ? e->class_names[label] : NULL;
}

ist_status ist_reset_tracks(ist_engine *e, ist_error *err) {
    if (!e) return ist_fail(err, IST_E_ARGUMENT, "ist_reset_tracks: no engine given");
    if (e->config.match != IST_MATCH_TRACKS && !e->trust)
        return ist_fail(err, IST_E_STATE, "ist_reset_tracks: the engine was opened without tracks");
    if (!is_ours(e)) return ist_fail(err, IST_E_STATE, "ist_reset_tracks: the engine was opened before fork()");
    pthread_mutex_lock(&e->lock);
    e->reset_tracks = true;
    pthread_mutex_unlock(&e->lock);
    return IST_OK;
}

ist_status ist_assign(ist_engine *e, const float *cost, int rows, int cols, int ld, int *row_to_col, double *total,
                      ist_error *err) {
    if (!e || rows < 0 || cols < 0 || ld < cols || (rows && cols && !cost) || (rows && !row_to_col))
        return ist_fail(err, IST_E_ARGUMENT, "ist_assign: %d x %d costs, %d apart, or a missing pointer", rows, cols,
                        ld);
    if (rows > IST_ASSIGN_MAX || cols > IST_ASSIGN_MAX)
        return ist_fail(err, IST_E_LIMIT, "ist_assign: %d x %d costs, at most %d on a side", rows, cols,
                        IST_ASSIGN_MAX);
    IST_TRY(enter(e, &e->submitting, "ist_assign", "ist_submit or ist_assign", err));
    ist_status status = enter(e, &e->receiving, "ist_assign", "ist_receive", err);
    if (!status) {
        status = ist_engine_idle(e, err);
        if (!status) status = ist_assign_solve(e->device, cost, rows, cols, ld, row_to_col, total, err);
        leave(&e->receiving);
    }
    leave(&e->submitting);
    return status;
}
