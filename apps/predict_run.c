/* The run of `isthmus predict` over all images: workers that decode and encode, the engine's side, and the journal in
 * input order. See predict_slots.h for who owns what. */
#include "predict_slots.h"

#include "base/cores.h"
#include "base/ram.h"
#include "io/atomic_file.h"
#include "io/image_size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_MEMORY ((size_t)1 << 30) /* where nobody knows how much there is */

enum { MAX_WORKERS = 128 };

static double clock_ms(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

double predict_now_ms(void) {
    return clock_ms(CLOCK_MONOTONIC);
}

void predict_wake_all(predict_flow *f) {
    pthread_cond_broadcast(&f->work);
    pthread_cond_broadcast(&f->decoded);
}

void predict_poll_interrupt(predict_flow *f) {
    if (!*f->job->interrupted || f->limit <= f->next_engine) return;
    f->limit = f->next_engine;
    f->totals->interrupted = true;
    predict_wake_all(f);
}

void predict_fail_flow(predict_flow *f, const ist_error *err) {
    if (!f->failed) f->failure = *err;
    f->failed = true;
    predict_wake_all(f);
}

/* With the lock held: the slot holds so many bytes from now on. */
static void hold(predict_flow *f, predict_slot *slot, size_t bytes) {
    f->held = f->held - slot->held + bytes;
    slot->held = bytes;
    if (f->held > f->totals->load.most_bytes) f->totals->load.most_bytes = f->held;
}

void predict_drop_pixels(predict_flow *f, predict_slot *slot, bool all) {
    size_t pixels = slot->image.stride * (size_t)slot->image.height;
    hold(f, slot, all ? 0 : slot->held - pixels);
    ist_bitmap_free(&slot->image);
    pthread_cond_signal(&f->work);
}

/* Bytes of the pictures that will be made of an image. */
static size_t picture_bytes(const predict_flow *f, size_t pixels) {
    unsigned save = f->job->options->save;
    return (save & PREDICT_SAVE_OVERLAY ? 3 * pixels : 0) + (save & PREDICT_SAVE_MASKS ? pixels : 0);
}

static ist_status encode_image(const predict_job *job, predict_slot *slot, ist_error *err) {
    double begin = predict_now_ms();
    IST_TRY(predict_write_image(job, slot->source, &slot->image, &slot->frame, &slot->files, err));
    slot->ms.encode = predict_now_ms() - begin;
    ist_record record = {.file = slot->source->path,
                         .frame = &slot->frame,
                         .labels = &job->labels,
                         .match = job->options->no_detector ? IST_MATCH_TARGETS : job->match,
                         .masks = job->options->masks,
                         .prompts = job->options->segment && !job->options->everything,
                         .everything = job->options->everything,
                         .multimask = job->options->multimask,
                         .ms = slot->ms,
                         .transfers = slot->transfers};
    ist_status status = ist_record_line(&record, &slot->line, err);
    if (status) predict_drop_files(&slot->files);
    return status;
}

static bool fits(const predict_flow *f, const predict_slot *slot) {
    return !f->held || (f->held <= f->memory && slot->need <= f->memory - f->held);
}

bool predict_is_full(const predict_flow *f) {
    if (f->next_decode >= f->next_commit + f->window) return true;
    const predict_slot *next = predict_slot_at(f, f->next_decode);
    return next->state == SLOT_MEASURED && !fits(f, next);
}

/* With the lock held. As many headers are read ahead as there are decoders. */
static bool may_measure(const predict_flow *f) {
    return !f->failed && f->next_measure < f->limit && f->next_measure < f->next_commit + f->window &&
           f->next_measure < f->next_decode + (size_t)f->decoders;
}

/* With the lock held. Frames of one file are decoded one after the other. */
static bool may_decode(const predict_flow *f) {
    if (f->failed || f->decoding >= f->decoders || f->next_decode >= f->limit || f->next_decode >= f->next_measure)
        return false;
    const predict_slot *next = predict_slot_at(f, f->next_decode);
    return next->state == SLOT_MEASURED && !(next->source->file && next->source->file->busy) && !predict_is_full(f);
}

/* With the lock held. A run that has failed still writes what it has. */
static bool may_encode(const predict_flow *f) {
    return f->encoding < f->encoders && f->next_encode < f->next_engine &&
           predict_slot_at(f, f->next_encode)->state == SLOT_READY;
}

typedef enum predict_task { TASK_NONE, TASK_MEASURE, TASK_DECODE, TASK_ENCODE } predict_task;

/* With the lock held: what a worker does next. Engines come first while they may run out of images before those that
 * begin now are decoded; beyond that results do, which makes room in the window. */
static predict_task choose_task(const predict_flow *f) {
    bool decode = may_decode(f), encode = may_encode(f);
    if (may_measure(f)) return TASK_MEASURE; /* takes no time, and without it nothing can be decoded */
    if (decode && encode) encode = f->next_decode - f->next_engine >= f->ahead;
    return encode ? TASK_ENCODE : decode ? TASK_DECODE : TASK_NONE;
}

void predict_wake_another(predict_flow *f) {
    if (choose_task(f)) pthread_cond_signal(&f->work);
}

/* With the lock held; without it while the header is read. */
static void measure_next(predict_flow *f) {
    size_t k = f->next_measure++;
    predict_slot *slot = predict_slot_at(f, k);
    slot->state = SLOT_MEASURING;
    slot->index = f->todo[k];
    slot->source = &f->job->sources.items[slot->index];
    predict_wake_another(f);
    pthread_mutex_unlock(&f->lock);
    ist_image_size size = ist_source_measure(slot->source, IST_MAX_PIXELS);
    pthread_mutex_lock(&f->lock);
    slot->need = size.decoded + size.passing + picture_bytes(f, size.pixels);
    slot->state = SLOT_MEASURED;
    pthread_cond_signal(&f->work);
    if (predict_is_full(f)) pthread_cond_broadcast(&f->decoded); /* is_stuck */
}

/* With the lock held; without it while the file is read. */
static void decode_next(predict_flow *f) {
    size_t k = f->next_decode++;
    predict_slot *slot = predict_slot_at(f, k);
    const ist_source *next = k + 1 < f->limit ? &f->job->sources.items[f->todo[k + 1]] : NULL;
    ist_source_file *file = slot->source->file;
    slot->state = SLOT_DECODING;
    if (file) file->busy = true;
    hold(f, slot, slot->need);
    f->decoding++;
    predict_wake_another(f);
    pthread_mutex_unlock(&f->lock);
    double begin = predict_now_ms(), cpu = clock_ms(CLOCK_THREAD_CPUTIME_ID);
    slot->status = ist_source_read_next(slot->source, next, IST_MAX_PIXELS, &slot->image, &slot->err);
    slot->ms.decode = predict_now_ms() - begin;
    cpu = clock_ms(CLOCK_THREAD_CPUTIME_ID) - cpu;
    pthread_mutex_lock(&f->lock);
    if (file) file->busy = false;
    f->decoding--;
    f->totals->load.decode_ms += cpu;
    size_t pixels = (size_t)slot->image.width * (size_t)slot->image.height; /* 0 where there is no image */
    hold(f, slot, slot->image.stride * (size_t)slot->image.height + picture_bytes(f, pixels));
    slot->state = SLOT_DECODED;
    pthread_cond_signal(&f->work);
    pthread_cond_broadcast(&f->decoded);
}

/* With the lock held; without it while files are written. */
static void encode_next(predict_flow *f) {
    predict_slot *slot = predict_slot_at(f, f->next_encode++);
    slot->state = SLOT_ENCODING;
    f->encoding++;
    predict_wake_another(f);
    pthread_mutex_unlock(&f->lock);
    double cpu = clock_ms(CLOCK_THREAD_CPUTIME_ID);
    if (!slot->status) slot->status = encode_image(f->job, slot, &slot->err);
    free(slot->storage);
    slot->storage = NULL;
    cpu = clock_ms(CLOCK_THREAD_CPUTIME_ID) - cpu;
    pthread_mutex_lock(&f->lock);
    f->encoding--;
    f->totals->load.encode_ms += cpu;
    predict_drop_pixels(f, slot, true);
    slot->state = SLOT_WRITTEN;
    predict_commit_written(f);
}

static void *work(void *context) {
    predict_flow *f = context;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        predict_poll_interrupt(f);
        predict_task task = choose_task(f);
        if (task == TASK_MEASURE) {
            measure_next(f);
        } else if (task == TASK_DECODE) {
            decode_next(f);
        } else if (task == TASK_ENCODE) {
            encode_next(f);
        } else if (f->failed || f->next_encode >= f->limit) {
            break;
        } else {
            pthread_cond_wait(&f->work, &f->lock);
        }
    }
    pthread_cond_broadcast(&f->work);
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static int clamp(long value, int low, int high) {
    return value < low ? low : value > high ? high : (int)value;
}

/* How many threads work on files: a CPU that also computes keeps most of its cores for that. Beside other devices files
 * have all cores but those of the engines' threads, for whatever is the slower one, which depends on what is saved. */
static void share_out_cores(predict_flow *f) {
    int cores = ist_cores();
    ist_engine_info info;
    bool computes = ist_engine_describe(f->job->engine, &info, NULL) || info.device.type == IST_DEVICE_CPU;
    f->decoders = computes ? clamp(cores / 4, 1, 4) : clamp(cores - f->engines, 2, MAX_WORKERS);
    f->encoders = computes ? clamp(cores / 2, 1, 8) : f->decoders;
    f->workers = computes ? f->decoders + f->encoders : f->decoders;
    f->totals->load.cores = cores;
}

/* Starts workers, runs the engine's side, waits for the workers. */
static void run_threads(predict_flow *f) {
    int started = 0;
    pthread_t threads[MAX_WORKERS], saver;
    bool saves = !pthread_create(&saver, NULL, predict_saver, f);
    while (saves && started < f->workers && !pthread_create(&threads[started], NULL, work, f)) started++;
    if (saves && started == f->workers) {
        predict_engines_run(f);
    } else {
        ist_error err;
        ist_fail(&err, IST_E_MEMORY, "only %d of %d threads could be started", started + saves, f->workers + 1);
        pthread_mutex_lock(&f->lock);
        predict_fail_flow(f, &err);
        pthread_mutex_unlock(&f->lock);
    }
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    pthread_mutex_lock(&f->lock);
    f->all_encoded = true;
    pthread_cond_broadcast(&f->save);
    pthread_mutex_unlock(&f->lock);
    if (saves) pthread_join(saver, NULL);
}

static ist_status make_work_list(predict_flow *f, ist_error *err) {
    predict_job *job = f->job;
    size_t count = job->sources.count;
    f->batch = (size_t)job->options->batch;
    f->engines = f->working = 1 + job->other_count;
    share_out_cores(f);
    f->memory = job->options->memory ? job->options->memory : ist_ram() / 4;
    if (!f->memory) f->memory = DEFAULT_MEMORY;
    f->window = 4 * f->batch * (size_t)f->engines + 16 + 2 * (size_t)(f->decoders + f->encoders);
    f->ahead = 2 * f->batch * (size_t)f->engines + (size_t)f->decoders;
    f->todo = malloc((count ? count : 1) * sizeof *f->todo);
    f->slots = calloc(f->window, sizeof *f->slots);
    f->returned = calloc(f->window, sizeof *f->returned);
    f->saving = calloc(PREDICT_AT_ONCE, sizeof *f->saving);
    if (!f->todo || !f->slots || !f->returned || !f->saving)
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu images", count);
    for (size_t i = job->begun; i < count; i++) {
        if (ist_journal_has(job->journal, i))
            f->totals->skipped++;
        else
            f->todo[f->limit++] = i;
    }
    return IST_OK;
}

static void free_flow(predict_flow *f) {
    for (size_t i = 0; f->slots && i < f->window; i++) {
        ist_bitmap_free(&f->slots[i].image);
        ist_text_free(&f->slots[i].line);
        predict_drop_files(&f->slots[i].files);
        free(f->slots[i].storage);
    }
    /* What was encoded when there was no saver (any more) is not saved. */
    for (size_t i = 0; i < f->saving_count; i++) predict_drop_files(&f->saving[i].files);
    for (size_t i = 0; f->saving && i < PREDICT_AT_ONCE; i++) ist_text_free(&f->saving[i].line);
    free(f->saving);
    free(f->slots);
    free(f->returned);
    free(f->todo);
    pthread_cond_destroy(&f->work);
    pthread_cond_destroy(&f->decoded);
    pthread_cond_destroy(&f->save);
    pthread_mutex_destroy(&f->lock);
}

ist_status predict_run(predict_job *job, predict_totals *totals, ist_error *err) {
    predict_flow f = {.job = job,
                      .totals = totals,
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .work = PTHREAD_COND_INITIALIZER,
                      .decoded = PTHREAD_COND_INITIALIZER,
                      .save = PTHREAD_COND_INITIALIZER};
    double cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    *totals = (predict_totals){.begin_ms = predict_now_ms()};
    f.progress = !job->options->quiet && !job->stream && isatty(STDERR_FILENO); /* nobody knows how many will come */
    ist_status status = make_work_list(&f, err);
    if (!status) {
        run_threads(&f);
        predict_clear_progress(&f);
        totals->load.ms = predict_now_ms() - totals->begin_ms;
        totals->load.cpu_ms = clock_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        totals->load.devices = f.engines;
        if (f.failed) {
            status = f.failure.code;
            if (err) *err = f.failure;
        }
    }
    free_flow(&f);
    return status;
}
