/* Compiling for another process: see ahead.h. */
#include "pipeline/ahead.h"

#include "device/jobs.h"
#include "models/models.h"
#include "pipeline/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)IST_AHEAD_MOST == (int)IST_JOBS_WORKERS, "each of them is a worker");

static const char *or_empty(const char *s) {
    return s ? s : "";
}

/* Everything that decides which kernels a frame has, as far as it is known before a device is open. */
bool ist_ahead_path(const ist_config *c, char *path, size_t size) {
    char folder[1024], numbers[256], everything[256] = "";
    if (!ist_cache_folder(c->cache_dir, folder, sizeof folder)) return false;
    ist_cache_key sources = ist_hash_sources();
    snprintf(numbers, sizeof numbers, "%016llx %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d",
             (unsigned long long)sources.hash[0], (int)c->precision, c->input_size, c->batch, c->max_objects,
             (int)c->match, c->max_targets, (int)c->prompts, c->classes != NULL, c->segmenter_size, c->input_width,
             c->input_height, c->max_points, c->multimask, c->low_res, c->mask_prompts, (int)c->resize_order,
             c->stored_constants, c->nms_iou > 0, (int)c->window, c->tiles ? c->tiles->batch : 0);
    if (c->everything) {
        const ist_everything *v = c->everything;
        snprintf(everything, sizeof everything, "%d %d %g %g %g %g %d %g %d %d %d", v->points_per_side,
                 v->points_per_batch, v->pred_iou_thresh, v->stability_score_thresh, v->stability_score_offset,
                 v->box_nms_thresh, v->crop_n_layers, v->crop_nms_thresh, v->crop_n_points_downscale_factor,
                 v->min_mask_region_area, v->max_masks);
    }
    const char *texts[] = {numbers,
                           everything,
                           or_empty(c->detector),
                           or_empty(c->segmenter),
                           or_empty(c->device),
                           or_empty(getenv("ISTHMUS_DEVICE")),
                           or_empty(getenv("ISTHMUS_CAPS")),
                           or_empty(getenv("ISTHMUS_CPU_BUILD_OPTIONS")),
                           or_empty(getenv("OCL_ICD_VENDORS")),
                           or_empty(getenv("POCL_CACHE_DIR"))};
    ist_cache_key key = ist_hash_texts(texts, sizeof texts / sizeof *texts);
    int n = snprintf(path, size, "%s/%016llx%016llx.compiled", folder, (unsigned long long)key.hash[0],
                     (unsigned long long)key.hash[1]);
    return n > 0 && (size_t)n < size;
}

static ist_status zero(ist_engine *e, cl_mem buffer, size_t bytes, ist_error *err) {
    void *zeros = calloc(1, bytes);
    if (!zeros) return ist_fail(err, IST_E_MEMORY, "out of host memory for %zu bytes", bytes);
    ist_status status = ist_write(e->device, (ist_frame_scope){0}, buffer, 0, bytes, zeros, true, "zeros", err);
    free(zeros);
    return status;
}

/* Zeros everywhere: an upload of no images, and counts that are 0 before their kernel has run. */
static ist_status compile(ist_engine *e, ist_error *err) {
    enum { MASK_WORDS = 4096 }; /* per object; without images none is written */
    ist_slot *s = &e->slots[0];
    size_t objects = (size_t)e->config.batch * (size_t)e->objects;
    size_t candidates = (size_t)e->grids.points * IST_MULTIMASKS;
    size_t embeddings = e->embedding_bytes * (size_t)ist_engine_embeddings(e);
    ist_plan *plans[IST_PLANS_MAX];
    IST_TRY(ist_slot_reserve(e, s, s->upload_bytes, MASK_WORDS, err));
    const struct {
        int number;
        cl_mem buffer;
        size_t bytes;
    } all[] = {{IST_EXT_UPLOAD, s->upload, s->upload_bytes},
               {IST_EXT_PIXELS, s->upload, 0},
               {IST_EXT_PACKET, s->packet, s->packet_bytes},
               {IST_EXT_STORE, s->store, s->store_words * objects * sizeof(uint32_t)},
               {IST_EXT_EMBEDDING, e->embedding, embeddings},
               {IST_EXT_FOUND, e->found, ist_found_words(candidates) * sizeof(uint32_t)},
               {IST_EXT_REGIONS, e->found, 0}}; /* there are no cleaners */
    int count = ist_engine_plans(e, plans);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i].buffer) continue;
        if (all[i].bytes) IST_TRY(zero(e, all[i].buffer, all[i].bytes, err));
        for (int k = 0; k < count; k++) IST_TRY(ist_plan_bind(plans[k], all[i].number, all[i].buffer, err));
    }
    for (int k = count - 1; k >= 0; k--) IST_TRY(ist_plan_compile(plans[k], err)); /* the frame's end first */
    return IST_OK;
}

/* The device that opening would choose. */
static ist_status find_device(const char *spec, ist_device_info *info, ist_error *err) {
    ist_device_info *list = NULL;
    int count = 0, chosen = 0;
    if (!spec || !*spec) spec = getenv("ISTHMUS_DEVICE");
    IST_TRY(ist_device_list(&list, &count, err));
    ist_status status = ist_device_select(list, count, spec, &chosen, err);
    if (!status) *info = list[chosen];
    free(list);
    return status;
}

/* How many other processes are of use. A context of a GPU takes some hundred megabytes of its memory. */
static int useful(const ist_device_info *info) {
    const uint64_t bytes_each = UINT64_C(4) << 30;
    if (ist_device_sharing(info) != IST_SHARES_PROGRAMS) return 1;
    uint64_t room = info->global_bytes / bytes_each;
    return room < IST_AHEAD_MOST ? (room ? (int)room : 1) : IST_AHEAD_MOST;
}

/* The last kernels first. */
static ist_status compile_late(const ist_config *config, ist_error *err) {
    ist_engine *e = NULL;
    ist_plan *plans[IST_PLANS_MAX];
    IST_TRY(ist_engine_open_as(config, IST_OPEN_LATE, NULL, &e, err));
    ist_status status = ist_engine_plans(e, plans) ? compile(e, err) : IST_OK;
    ist_engine_close(&e);
    return status;
}

static ist_status work(const ist_config *config, ist_jobs *jobs, int part, ist_error *err) {
    ist_device *d = NULL;
    char number[16];
    int index = ist_jobs_device(jobs);
    snprintf(number, sizeof number, "%d", index);
    ist_device_options options = {.spec = number, .cache_dir = config->cache_dir, .probing = IST_PROBING_NONE};
    if (index >= 0) IST_TRY(ist_device_open(&options, &d, err));
    if (d) ist_device_work(d, jobs, part);
    ist_device_close(&d);
    return part || ist_jobs_good(jobs) ? IST_OK : ist_fail(err, IST_E_STATE, "the engine did not open");
}

/* The first processes load drivers without waiting until it is known that they are wanted. Contexts are made one after
 * the other, so that the others lose nothing by it; and on a CPU they never load any. */
static ist_status compile_part(const ist_config *config, ist_jobs *jobs, int part, ist_error *err) {
    enum { AT_ONCE = 7 };
    ist_device_info info;
    if (part >= AT_ONCE && ist_jobs_device(jobs) < 0) return IST_OK;
    IST_TRY(find_device(config->device, &info, err));
    if (part >= useful(&info)) return IST_OK;
    switch (ist_device_sharing(&info)) {
    case IST_SHARES_LAUNCHES:
        return compile_late(config, err);
    case IST_SHARES_PROGRAMS:
        return work(config, jobs, part, err);
    default:
        return IST_OK;
    }
}

size_t ist_ahead_bytes(void) {
    return ist_jobs_bytes();
}

void ist_ahead_begin(ist_jobs *jobs, int parts) {
    ist_jobs_begin(jobs, parts);
}

void ist_ahead_end(ist_jobs *jobs, bool opened) {
    ist_jobs_end(jobs, opened);
}

ist_status ist_ahead_compile(const ist_config *config, ist_jobs *jobs, int part, ist_error *err) {
    char path[1200];
    if (!ist_ahead_path(config, path, sizeof path)) return ist_fail(err, IST_E_STATE, "no folder for kernels");
    if (part < 0 || part >= IST_AHEAD_MOST || !ist_jobs_enter(jobs, part))
        return ist_fail(err, IST_E_STATE, "process %d cannot share memory with others", part);
    ist_status status = compile_part(config, jobs, part, err);
    ist_jobs_leave(jobs, part);
    if (status || part) return status;
    return ist_cache_make_mark(path) ? IST_OK : ist_fail(err, IST_E_IO, "cannot write %s", path);
}
