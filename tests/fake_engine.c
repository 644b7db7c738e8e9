/* A double of the engine for tests of the command line program: the public API without a device.
 *
 * Every image gives min(max_objects, 3) objects whose values follow from the image alone (see fake_objects), so that
 * tests know what must be written; with IST_PROMPTS_TARGETS they are the targets, with IST_PROMPTS_GIVEN the prompts,
 * with the same masks; a mask prompt must have values that count from 0. It keeps the
 * contract that the program relies on: copies pixels, counts batches in flight, answers in order.
 *
 * Failures come from the environment:
 *     FAKE_DEVICES=N           there are N devices, all alike
 *     FAKE_CORES=N             the host has N cores, and the devices are no CPUs
 *     FAKE_ENGINE=lost:N       the N-th submitted batch (from 0) and everything after it fails with IST_E_DEVICE
 *     FAKE_ENGINE=lost_on:D    every device from number D on is lost when it should give its second result; those
 *                              before D give none until one is (or ten seconds have passed)
 *     FAKE_ENGINE=closed:D     device D does not open
 *     FAKE_ENGINE=ahead:1      processes that compile ahead are started, and are done at once
 *     FAKE_ENGINE=held:N       N processes that compile ahead hold the device until they are ended; each leaves a file
 *                              in the folder FAKE_AHEAD, "part PART"
 *     FAKE_ENGINE=refuse:W     an image W pixels wide is refused with IST_E_DEVICE_MEMORY
 *     FAKE_ENGINE=receive:N    receiving batch N fails with IST_E_MEMORY
 *     FAKE_ENGINE=nan:N        batch N's first box is not a number
 *     FAKE_ENGINE=slow:MS      every batch takes this long
 *     FAKE_ENGINE=takes:MS     every batch says that it took this long
 *     FAKE_ENGINE=fused:MAP    an fp16 engine does not keep the tensor stage<MAP>
 *     FAKE_ENGINE=wrong:K      an fp16 engine computes something else than an fp32 one: see spoil() */
#include "base/sample_window.h"
#include "pipeline/ahead.h"
#include "pipeline/choice.h"
#include "pipeline/crossings.h"
#include "pipeline/describe.h"
#include "pipeline/inspect.h"
#include "pipeline/profile.h"
#include "pipeline/tune.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { OBJECTS = 3, BATCH = 64, FLIGHT = 8, MASK_COLUMNS = 5, MASK_WORDS = 2 };

typedef struct fake_batch {
    ist_result result;
    ist_frame frames[BATCH];
    ist_object objects[BATCH][OBJECTS];
    uint32_t bits[BATCH][OBJECTS][MASK_COLUMNS * MASK_WORDS];
    ist_trust trust[OBJECTS];
    long number;
} fake_batch;

struct ist_engine {
    ist_config config;
    int device;       /* number */
    char *classes[2]; /* names */
    fake_batch *ring[FLIGHT];
    int head, submitted, held; /* held: received and not released */
    int embeddings;
    long batches, frames_since_reset;
    double busy_ms;
    void *staged; /* where ist_stage said, until a batch is submitted */
    pthread_mutex_t lock; /* submit on one thread, receive and release on another */
};

const char *ist_version(void) {
    return "0.1.0";
}

ist_status ist_devices(ist_device_info *list, int capacity, int *count, ist_error *err) {
    (void)err;
    const char *devices = getenv("FAKE_DEVICES");
    *count = devices ? (int)strtol(devices, NULL, 10) : 1;
    for (int i = 0; i < capacity && i < *count; i++)
        list[i] = (ist_device_info){.index = i,
                                    .device = i,
                                    .is_default = i == 0,
                                    .name = "Fake \"device\"",
                                    .driver = "1",
                                    .compute_units = 2,
                                    .global_bytes = 1u << 30,
                                    .max_alloc_bytes = 1u << 28};
    return IST_OK;
}

int __real_ist_cores(void);
int __wrap_ist_cores(void);
int __wrap_ist_cores(void) {
    const char *cores = getenv("FAKE_CORES");
    return cores ? (int)strtol(cores, NULL, 10) : __real_ist_cores();
}

static atomic_bool one_is_lost; /* shared by the devices of the process: FAKE_ENGINE=lost_on */

/* The number behind NAME: in FAKE_ENGINE, or -1. */
static long wish(const char *name) {
    const char *text = getenv("FAKE_ENGINE");
    size_t n = strlen(name);
    return text && !strncmp(text, name, n) && text[n] == ':' ? strtol(text + n + 1, NULL, 10) : -1;
}

/* FAKE_ENGINE=held: a lock that each process which compiles ahead shares. */
static int open_lock(void) {
    char path[400];
    snprintf(path, sizeof path, "%s/lock", getenv("FAKE_AHEAD"));
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
}

static bool is_held(long processes) {
    char path[400];
    for (long part = 0; part < processes; part++) {
        snprintf(path, sizeof path, "%s/part %ld", getenv("FAKE_AHEAD"), part);
        while (access(path, F_OK)) sched_yield();
    }
    int lock = open_lock();
    bool held = flock(lock, LOCK_EX | LOCK_NB) != 0;
    close(lock);
    return held;
}

ist_status ist_open(const ist_config *config, ist_engine **engine, ist_error *err) {
    if (wish("held") > 0 && is_held(wish("held")))
        return ist_fail(err, IST_E_DEVICE, "the device serves another process");
    ist_engine *e = calloc(1, sizeof *e);
    if (!e) return ist_fail(err, IST_E_MEMORY, "out of memory");
    e->config = *config;
    pthread_mutex_init(&e->lock, NULL);
    e->device = config->device ? (int)strtol(config->device, NULL, 10) : 0;
    if (wish("closed") == e->device) {
        free(e);
        return ist_fail(err, IST_E_DEVICE, "the device does not open");
    }
    for (int i = 0; i < FLIGHT; i++)
        if (!(e->ring[i] = calloc(1, sizeof **e->ring))) {
            ist_close(&e);
            return ist_fail(err, IST_E_MEMORY, "out of memory");
        }
    *engine = e;
    return IST_OK;
}

ist_status ist_ahead_open(const ist_config *config, struct ist_jobs *jobs, ist_engine **engine, ist_error *err) {
    (void)jobs;
    return ist_open(config, engine, err);
}

ist_status ist_engine_open_apart(const ist_config *config, struct ist_jobs *jobs, ist_engine **engine, ist_error *err) {
    return ist_ahead_open(config, jobs, engine, err);
}

void ist_close(ist_engine **engine) {
    if (!*engine) return;
    for (int i = 0; i < FLIGHT; i++) free((*engine)->ring[i]);
    free((*engine)->staged);
    free(*engine);
    *engine = NULL;
}

ist_status ist_engine_describe(const ist_engine *engine, ist_engine_info *info, ist_error *err) {
    (void)err;
    *info = (ist_engine_info){.device = {.index = engine->device,
                                         .type = getenv("FAKE_CORES") ? IST_DEVICE_GPU : IST_DEVICE_CPU,
                                         .name = "Fake \"device\"",
                                         .driver = "1"},
                              .precision = engine->config.precision ? engine->config.precision : IST_PRECISION_FP32,
                              .detector = "dfine-n",
                              .classes = 80,
                              .batch = engine->config.batch,
                              .kernels = 3,
                              .device_peak_bytes = UINT64_C(1) << (engine->config.overlap == IST_OVERLAP_ON ? 21 : 20),
                              .overlap = engine->config.overlap == IST_OVERLAP_ON};
    if (engine->config.segmenter) memcpy(info->segmenter, "mobilesam", sizeof "mobilesam");
    return IST_OK;
}

const char *ist_class_name(const ist_engine *engine, int label) {
    (void)engine;
    (void)label;
    return NULL;
}

ist_status ist_reset_tracks(ist_engine *engine, ist_error *err) {
    (void)err;
    engine->frames_since_reset = 0;
    return IST_OK;
}

enum { WRONG_MEMORY, WRONG_NAN, WRONG_BOX, WRONG_SCORE, WRONG_MASK, WRONG_LABEL };

/* What FAKE_ENGINE=wrong:K does to the last of an fp16 engine's objects. */
static void spoil(const ist_engine *e, ist_object *o) {
    if (e->config.precision != IST_PRECISION_FP16) return;
    long wrong = wish("wrong");
    if (wrong == WRONG_BOX) o->box[0] += 0.2f * (o->box[2] - o->box[0]);
    if (wrong == WRONG_SCORE) o->score += 0.1f;
    if (wrong == WRONG_MASK) o->mask.columns--;
    if (wrong == WRONG_LABEL) o->label++;
}

/* Object i of given prompts; the caller knows the rest. */
static void fake_prompted(const ist_engine *e, ist_object *o, const ist_image *image, int i) {
    int masks = e->config.multimask ? 3 : 1;
    const ist_prompt *p = &image->prompts[i / masks];
    o->label = 0;
    o->score = 1;
    o->match = i / masks;
    o->query = i % masks;
    memset(o->box, 0, sizeof o->box);
    if (p->box) memcpy(o->box, p->box, sizeof o->box);
    o->mask_score = 0.5f + 0.125f * (float)o->query;
    if (p->point_count) o->mask_score += 0.0625f * (float)p->points[p->point_count - 1].label;
}

/* Why an image's prompts are refused; NULL: they are not. */
static const char *refused_prompt(const ist_engine *e, const ist_image *image) {
    for (int i = 0; i < image->prompt_count; i++) {
        const ist_prompt *p = &image->prompts[i];
        if (p->point_count > e->config.max_points) return "more points than it was opened for";
        if (p->mask && (!e->config.mask_prompts || p->mask_width != 2 || p->mask_height != 2))
            return "a mask of another size";
        for (int k = 0; p->mask && k < 4; k++)
            if (p->mask[k] != (float)k) return "a mask of other values";
    }
    return image->prompt_count > e->config.max_objects ? "more prompts than it was opened for" : NULL;
}

static double overlap(const float a[4], const float b[4]) {
    double w = fmin(a[2], b[2]) - fmax(a[0], b[0]), h = fmin(a[3], b[3]) - fmax(a[1], b[1]);
    double both = fmax(w, 0) * fmax(h, 0);
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both);
}

/* Objects that stay after config.nms_iou; their masks are the first ones'. */
static int suppress(const ist_engine *e, ist_object *objects, int count) {
    int kept = 0;
    for (int i = 0; i < count; i++) {
        bool stays = true;
        for (int k = 0; k < kept; k++)
            if (objects[k].label == objects[i].label || e->config.nms_agnostic)
                stays = stays && overlap(objects[k].box, objects[i].box) <= e->config.nms_iou;
        if (stays) objects[kept++] = objects[i];
    }
    return kept;
}

/* The first object is visible, the second relocalizing, and a track 99 is lost; S1 is a seventh of all thresholds. */
static void fake_trust(const ist_engine *e, fake_batch *b) {
    const ist_trust_options *o = e->config.trust;
    float step = (o->tau_conf + o->theta_on + o->theta_off + o->theta_cont + (float)o->n_lost) / 7;
    int count = b->frames[0].object_count < 2 ? 1 : 2;
    for (int i = 0; i < count; i++)
        b->trust[i] = (ist_trust){.track = e->config.match == IST_MATCH_TRACKS ? b->objects[0][i].match : 1,
                                  .object = i,
                                  .state = i ? IST_RELOCALIZING : IST_VISIBLE,
                                  .sharpness = step,
                                  .depth = 7 * step,
                                  .s = 0.75f,
                                  .c = 0.5f};
    b->trust[count] = (ist_trust){.track = 99, .object = -1, .state = IST_LOST};
    b->frames[0].trust = b->trust;
    b->frames[0].trust_count = count + 1;
}

/* What 16-bit samples go through; an automatic window from the least sample to the greatest, as it is of fewer than
 * 200.
 */
static void fake_window(const ist_engine *e, const ist_image *image, int window[2]) {
    const uint16_t *p = image->pixels;
    window[0] = image->window_low, window[1] = image->window_high;
    if (window[0] || window[1]) return;
    window[1] = UINT16_MAX;
    if (e->config.window != IST_WINDOW_AUTO) return;
    window[0] = UINT16_MAX, window[1] = 0;
    for (int i = 0; i < image->width * image->height; i++) {
        if (p[i] < window[0]) window[0] = p[i];
        if (p[i] > window[1]) window[1] = p[i];
    }
    if (window[1] == window[0]) window[1]++;
}

/* Object i: label 11 i, score 0.9 - 0.125 i, box (i, i) to (i + w / 2, i + h / 2), track = frame of its sequence, mask:
 * columns i .. i+4, rows 0 .. min(40, h) - 1, whose score is 0.75, or what the first of 16-bit
 * samples becomes in the engine's window, of 255. */
static void fake_objects(ist_engine *e, fake_batch *b, int f, const ist_image *image) {
    int count = e->config.max_objects < OBJECTS ? e->config.max_objects : OBJECTS;
    if (e->config.prompts == IST_PROMPTS_TARGETS && image->target_count < count) count = image->target_count;
    if (e->config.prompts == IST_PROMPTS_EVERYTHING) count = OBJECTS;
    int asked = image->prompt_count * (e->config.multimask ? 3 : 1);
    if (e->config.prompts == IST_PROMPTS_GIVEN) count = asked < OBJECTS ? asked : OBJECTS;
    int columns = image->width < MASK_COLUMNS + OBJECTS ? 1 : MASK_COLUMNS;
    int rows = image->height < 40 ? image->height : 40;
    e->frames_since_reset++;
    for (int i = 0; i < count; i++) {
        ist_object *o = &b->objects[f][i];
        uint32_t *bits = b->bits[f][i];
        *o = (ist_object){
            .label = 11 * i,
            .score = 0.9f - 0.125f * (float)i,
            .match = -1,
            .mask_score = 0.75f,
            .box = {(float)i, (float)i, (float)i + (float)image->width / 2, (float)i + (float)image->height / 2}};
        if (e->config.match == IST_MATCH_TRACKS) o->match = (int)e->frames_since_reset;
        if (e->config.prompts == IST_PROMPTS_TARGETS) {
            o->match = i;
            o->match_iou = o->score = 1;
            o->label = image->targets[i].label;
            memcpy(o->box, image->targets[i].box, sizeof o->box);
        }
        if (e->config.prompts == IST_PROMPTS_GIVEN) fake_prompted(e, o, image, i);
        if (e->config.match == IST_MATCH_TARGETS && i < image->target_count) {
            o->match = i;
            o->match_iou = image->targets[i].box[2];
        }
        if (!e->config.segmenter) continue;
        o->mask =
            (ist_mask){.x0 = i < image->width ? i : 0, .columns = columns, .words = rows > 32 ? 2 : 1, .bits = bits};
        for (int c = 0; c < columns; c++) {
            bits[c * o->mask.words] = rows >= 32 ? UINT32_MAX : (1u << rows) - 1;
            if (rows > 32) bits[c * 2 + 1] = (1u << (rows - 32)) - 1;
        }
        o->area = columns * rows;
        o->mask_box[0] = o->mask.x0, o->mask_box[2] = o->mask.x0 + columns - 1, o->mask_box[3] = rows - 1;
    }
    if (e->config.nms_iou > 0) count = suppress(e, b->objects[f], count);
    if (count) spoil(e, &b->objects[f][count - 1]);
    if (wish("nan") == e->batches) b->objects[f][0].box[0] = NAN;
    int window[2] = {0, 0};
    if (e->config.window && image->format == IST_GRAY16) {
        fake_window(e, image, window);
        int first = *(const uint16_t *)image->pixels;
        b->objects[f][0].mask_score = (float)ist_through_window(first, window[0], window[1]) / 255;
    }
    b->frames[f] = (ist_frame){.tag = image->tag,
                               .width = image->width,
                               .height = image->height,
                               .object_count = count,
                               .objects = b->objects[f],
                               .window_low = window[0],
                               .window_high = window[1]};
    if (e->config.trust && count) fake_trust(e, b);
}

static ist_status submit(ist_engine *e, const ist_image *images, int count, ist_error *err) {
    if (e->submitted + e->held >= e->config.frames_in_flight)
        return ist_fail(err, IST_E_STATE, "%d batches are in flight", e->submitted);
    if (count < 1 || count > e->config.batch) return ist_fail(err, IST_E_ARGUMENT, "%d images in a batch", count);
    long lost = wish("lost");
    if (lost >= 0 && e->batches >= lost) return ist_fail(err, IST_E_DEVICE, "the device is lost");
    for (int i = 0; i < count; i++)
        if (images[i].width == wish("refuse"))
            return ist_fail(err, IST_E_DEVICE_MEMORY, "an image of %d pixels in width does not fit", images[i].width);
    for (int i = 0; i < count; i++)
        if (refused_prompt(e, &images[i])) return ist_fail(err, IST_E_ARGUMENT, "%s", refused_prompt(e, &images[i]));
    bool staged = e->staged && images[0].pixels == e->staged;
    if (e->staged && !staged) return ist_fail(err, IST_E_ARGUMENT, "pixels are not where ist_stage said");
    free(e->staged);
    e->staged = NULL;
    fake_batch *b = e->ring[(e->head + e->submitted) % FLIGHT];
    for (int i = 0; i < count; i++) fake_objects(e, b, i, &images[i]);
    b->number = e->batches++;
    b->result = (ist_result){.frame_count = count,
                             .frames = b->frames,
                             .transfers = {1, 1, 1, 1000, 100},
                             .submit_ms = 0.25,
                             .wait_ms = 0.5,
                             .total_ms = wish("takes") >= 0 ? (double)wish("takes") : staged ? 0.25 : 1};
    e->submitted++;
    return IST_OK;
}

ist_status ist_submit(ist_engine *e, const ist_image *images, int count, ist_error *err) {
    pthread_mutex_lock(&e->lock);
    ist_status status = submit(e, images, count, err);
    pthread_mutex_unlock(&e->lock);
    return status;
}

/* Without locks: no program of ours stages on one thread what another submits. */
ist_status ist_stage(ist_engine *e, const ist_image *images, int count, void **pixels, ist_error *err) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += 3 * (size_t)images[i].width * (size_t)images[i].height;
    free(e->staged);
    if (!(e->staged = malloc(bytes))) return ist_fail(err, IST_E_MEMORY, "out of memory");
    unsigned char *at = e->staged;
    for (int i = 0; i < count; i++, at += 3 * (size_t)images[i].width * (size_t)images[i].height) pixels[i] = at;
    return IST_OK;
}

/* The oldest batch, which is held from now on; NULL when there is none. */
static fake_batch *take_batch(ist_engine *e) {
    pthread_mutex_lock(&e->lock);
    fake_batch *b = e->submitted ? e->ring[e->head] : NULL;
    if (b) {
        e->head = (e->head + 1) % FLIGHT;
        e->submitted--;
        e->held++;
    }
    pthread_mutex_unlock(&e->lock);
    return b;
}

static void give_back(ist_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->held--;
    pthread_mutex_unlock(&e->lock);
}

static ist_status deliver(ist_engine *e, const fake_batch *b, ist_error *err) {
    long ms = wish("slow");
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    if (ms > 0) nanosleep(&pause, NULL);
    e->busy_ms += (double)(ms > 0 ? ms : 0);
    long lost_on = wish("lost_on");
    if (lost_on >= 0 && e->device >= lost_on && b->number > 0) {
        atomic_store(&one_is_lost, true);
        return ist_fail(err, IST_E_DEVICE, "the device is lost");
    }
    for (int i = 0; i < 10000 && e->device < lost_on && !atomic_load(&one_is_lost); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (wish("receive") == b->number) return ist_fail(err, IST_E_MEMORY, "no memory for masks");
    return IST_OK;
}

ist_status ist_receive(ist_engine *e, const ist_result **result, ist_error *err) {
    fake_batch *b = take_batch(e);
    if (!b) return ist_fail(err, IST_E_STATE, "nothing is in flight");
    ist_status status = deliver(e, b, err);
    if (status)
        give_back(e);
    else
        *result = &b->result;
    return status;
}

void ist_release(ist_engine *e, const ist_result **result) {
    if (!result || !*result) return;
    give_back(e);
    *result = NULL;
}

/* ---- prompts for an image that was encoded: of the double it is the image's size that stays ---- */

struct ist_embedding {
    ist_image image;
};

ist_status ist_encode(ist_engine *e, const ist_image *image, ist_embedding **embedding, ist_error *err) {
    if (e->config.prompts != IST_PROMPTS_GIVEN) return ist_fail(err, IST_E_STATE, "the engine takes no prompts");
    if (e->embeddings >= e->config.max_embeddings)
        return ist_fail(err, IST_E_LIMIT, "%d embeddings are alive", e->embeddings);
    if (image->width == wish("refuse"))
        return ist_fail(err, IST_E_DEVICE_MEMORY, "an image of %d pixels in width does not fit", image->width);
    ist_embedding *made = calloc(1, sizeof *made);
    if (!made) return ist_fail(err, IST_E_MEMORY, "out of memory");
    made->image = (ist_image){.width = image->width, .height = image->height};
    e->embeddings++;
    *embedding = made;
    return IST_OK;
}

ist_status ist_submit_prompts(ist_engine *e, const ist_embedding *embedding, const ist_prompt *prompts, int count,
                              uint64_t tag, ist_error *err) {
    ist_image image = embedding->image;
    image.prompts = prompts;
    image.prompt_count = count;
    image.tag = tag;
    return ist_submit(e, &image, 1, err);
}

void ist_embedding_release(ist_engine *e, ist_embedding **embedding) {
    if (!embedding || !*embedding) return;
    e->embeddings--;
    free(*embedding);
    *embedding = NULL;
}

/* The best of all assignments of rows from `row` on, by trying them: tests have few. */
static double try_columns(const float *cost, int rows, int cols, int row, int spare, unsigned taken, int *chosen) {
    double best = INFINITY;
    int best_chosen[16];
    if (row == rows) return 0;
    for (int c = spare > 0 ? -1 : 0; c < cols; c++) {
        int rest[16];
        if (c >= 0 && taken >> c & 1) continue;
        double sum = (c < 0 ? 0 : (double)cost[row * cols + c]) +
                     try_columns(cost, rows, cols, row + 1, spare - (c < 0), c < 0 ? taken : taken | 1u << c, rest);
        if (sum >= best) continue;
        best = sum;
        best_chosen[row] = c;
        memcpy(best_chosen + row + 1, rest + row + 1, (size_t)(rows - row - 1) * sizeof *rest);
    }
    if (best < INFINITY) memcpy(chosen + row, best_chosen + row, (size_t)(rows - row) * sizeof *chosen);
    return best;
}

ist_status ist_assign(ist_engine *engine, const float *cost, int rows, int cols, int ld, int *row_to_col, double *total,
                      ist_error *err) {
    if (engine->submitted) return ist_fail(err, IST_E_STATE, "batches are in flight");
    if (rows > 16 || cols > 16 || ld != cols) return ist_fail(err, IST_E_LIMIT, "%d x %d costs", rows, cols);
    double sum = try_columns(cost, rows, cols, 0, rows - cols, 0, row_to_col);
    if (total) *total = sum;
    return IST_OK;
}

/* ---- what bench and profile ask for: three launches in two stages ---- */

ist_status ist_engine_profile(ist_engine *engine, int repeats, ist_launch_time *times, ist_error *err) {
    (void)repeats;
    if (!engine->batches) return ist_fail(err, IST_E_STATE, "no batch yet");
    times[0] = (ist_launch_time){"preprocess", "resize", "portable/image", "resize", "", 0, 2e6, 0.5};
    times[1] = (ist_launch_time){"backbone", "conv \"a\"", "cpu/conv", "conv", "-D MR=4", 4e8, 1e6, 8};
    times[2] = (ist_launch_time){"backbone", "conv b", "cpu/conv", "conv", "-D MR=4", 1e8, 1e6, 1.5};
    return IST_OK;
}

double ist_engine_busy_ms(const ist_engine *engine) {
    return engine->busy_ms;
}

ist_status ist_engine_replay(ist_engine *engine, double *ms, ist_error *err) {
    if (!engine->batches) return ist_fail(err, IST_E_STATE, "no batch yet");
    *ms = 0.75;
    return IST_OK;
}

ist_status ist_engine_peak(ist_engine *engine, ist_device_peak *peak, ist_error *err) {
    (void)engine;
    (void)err;
    *peak = (ist_device_peak){100, 8};
    return IST_OK;
}

/* ---- what audit asks for: the crossings of two batches, the second with a read too many ---- */

int ist_engine_crossings(ist_engine *engine, uint64_t *cursor, uint64_t *missed, ist_ledger_entry *entries,
                         int capacity) {
    static const ist_ledger_entry all[] = {
        {IST_CROSS_WAIT, 0, 0, "upload", 1, 0.25, 0, {"fake.c", "make_room", 10}},
        {IST_CROSS_MAP, 0, 64, "upload", 1.5, 0, 0.5, {"fake.c", "make_room", 10}},
        {IST_CROSS_WRITE, 1, 100, "upload", 2, 0, 0.25, {"fake.c", "submit", 20}},
        {IST_CROSS_READ, 1, 50, "packet", 3, 0, 0.25, {"fake.c", "submit", 21}},
        {IST_CROSS_WRITE, 2, 100, "upload", 4, 0, 0.25, {"fake.c", "submit", 20}},
        {IST_CROSS_BUILD, 0, 500, "cpu/conv", 4.5, 0, 0.25, {"fake.c", "record", 40}},
        {IST_CROSS_READ, 2, 50, "packet", 5, 0, 0.25, {"fake.c", "submit", 21}},
        {IST_CROSS_FLUSH, 2, 0, "queue", 5.5, 0, 0.25, {"fake.c", "submit", 22}},
        {IST_CROSS_WAIT, 1, 0, "packet", 6, 2, 0, {"fake.c", "receive", 30}},
        {IST_CROSS_WAIT, 2, 0, "packet", 8, 2, 0, {"fake.c", "receive", 30}},
        {IST_CROSS_READ, 2, 7, "masks that did not fit", 10, 0, 1, {"fake.c", "overflow", 31}},
    };
    int stored = 0;
    (void)engine;
    (void)missed;
    while (*cursor < sizeof all / sizeof *all && stored < capacity) entries[stored++] = all[(*cursor)++];
    return stored;
}

/* ---- what verify asks for: tensors that count up; the queries of an fp16 engine are in another order ---- */

ist_status ist_engine_open_kept(const ist_config *config, ist_engine **engine, ist_error *err) {
    return ist_open(config, engine, err);
}

bool ist_engine_keeps(const ist_engine *engine, const char *name) {
    bool half = engine->config.precision == IST_PRECISION_FP16, stage = !strncmp(name, "stage", strlen("stage"));
    return !half || !stage || wish("fused") != strtol(name + strlen("stage"), NULL, 10);
}

ist_status ist_engine_read_kept(ist_engine *engine, const char *name, ist_kept *kept, ist_error *err) {
    bool half = engine->config.precision == IST_PRECISION_FP16, queries = !strcmp(name, "sel.topk_index");
    bool ranked = queries || !strcmp(name, "logits") || !strcmp(name, "boxes");
    if (!ist_engine_keeps(engine, name)) return ist_fail(err, IST_E_STATE, "%s: not kept", name);
    *kept = (ist_kept){.n = strcmp(name, "masks") ? 1 : 16, .h = 1, .w = 8, .c = queries ? 1 : 4};
    int count = kept->n * kept->w * kept->c;
    kept->values = malloc((size_t)count * sizeof *kept->values);
    if (!kept->values) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", name);
    for (int i = 0; i < count; i++) {
        int row = i / kept->c, from = half && ranked ? kept->w - 1 - row : row;
        kept->values[i] = (float)(from * kept->c + i % kept->c);
    }
    if (half && wish("wrong") == WRONG_MEMORY && !strcmp(name, "dec.memory")) kept->values[31] *= 1.25f;
    if (half && wish("wrong") == WRONG_NAN && !strcmp(name, "boxes")) kept->values[3] = NAN;
    return IST_OK;
}

size_t ist_ahead_bytes(void) {
    return 1;
}

void ist_ahead_begin(struct ist_jobs *jobs, int parts) {
    (void)jobs, (void)parts;
}

void ist_ahead_end(struct ist_jobs *jobs, bool opened) {
    (void)jobs, (void)opened;
}

bool ist_ahead_path(const ist_config *config, char *path, size_t size) {
    (void)config;
    bool starts = wish("held") > 0 || wish("ahead") > 0;
    if (starts) snprintf(path, size, "%s/compiled", getenv("FAKE_AHEAD"));
    return starts;
}

ist_status ist_ahead_compile(const ist_config *config, struct ist_jobs *jobs, int part, ist_error *err) {
    (void)config, (void)jobs;
    char path[400];
    if (wish("ahead") > 0) return IST_OK;
    int lock = open_lock();
    snprintf(path, sizeof path, "%s/part %d", getenv("FAKE_AHEAD"), part);
    if (flock(lock, LOCK_SH) || close(open(path, O_WRONLY | O_CREAT, 0666)))
        return ist_fail(err, IST_E_IO, "%s: cannot write it", path);
    for (;;) pause();
}

ist_status ist_tune(const ist_config *config, void (*report)(void *arg, const ist_tune_result *result), void *arg,
                    ist_tune_summary *summary, char **text, ist_error *err) {
    (void)config, (void)report, (void)arg, (void)summary, (void)text;
    return ist_fail(err, IST_E_STATE, "the double of the engine has no kernels");
}

ist_status ist_choice_make(const ist_config *config, ist_choice *choice, ist_error *err) {
    (void)config;
    *choice = (ist_choice){0};
    return ist_fail(err, IST_E_STATE, "the double of the engine has no kernels");
}

void ist_choice_free(ist_choice *choice) {
    *choice = (ist_choice){0};
}

ist_status ist_description_open(const char *path, ist_description **description, ist_error *err) {
    (void)path;
    *description = NULL;
    return ist_fail(err, IST_E_STATE, "the double of the engine has no kernels");
}

void ist_description_close(ist_description **description) {
    *description = NULL;
}

ist_status ist_description_lower(ist_description *d, const char *device, ist_precision *precision, ist_error *err) {
    (void)d, (void)device, (void)precision;
    return ist_fail(err, IST_E_STATE, "the double of the engine has no kernels");
}

const char *ist_description_model(const ist_description *d) {
    (void)d;
    return "";
}

const ist_graph *ist_description_graph(const ist_description *d) {
    (void)d;
    return NULL;
}

double ist_description_multiply_adds(const ist_description *d) {
    (void)d;
    return 0;
}

int ist_description_launches(const ist_description *d) {
    (void)d;
    return -1;
}

int ist_description_of(const ist_description *d, int node, int region, char *text, size_t size) {
    (void)d, (void)node, (void)region, (void)size;
    text[0] = 0;
    return -1;
}
