/* An engine as a Python object holds it: see held.h. */
#include "held.h"

#include "base/status.h"
#include "io/labels.h"
#include "io/rle.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_IN_FLIGHT = 8, LOGIT_PIXELS = 4 /* pixels of the segmenter's input to a low-resolution logit */ };

struct held_engine {
    pthread_mutex_t lock;
    pthread_cond_t left;
    pid_t process;
    bool inside, closed; /* under lock */
    ist_engine *engine;
    ist_labels labels;
    size_t low_res;                /* logits of one object, 0: none */
    uint64_t tags[MOST_IN_FLIGHT]; /* of the batches in flight, oldest first */
    atomic_int in_flight;
};

held_engine *held_new(void) {
    held_engine *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    h->process = getpid();
    if (pthread_mutex_init(&h->lock, NULL)) {
        free(h);
        return NULL;
    }
    if (pthread_cond_init(&h->left, NULL)) {
        pthread_mutex_destroy(&h->lock);
        free(h);
        return NULL;
    }
    return h;
}

/* The lock of a child may be held for ever by a thread that it does not have. */
static ist_status enter(held_engine *h, ist_error *err) {
    if (!h) return ist_fail(err, IST_E_ARGUMENT, "no engine given");
    if (getpid() != h->process)
        return ist_fail(err, IST_E_STATE,
                        "the engine was opened before fork(), in process %ld: open one in this process, which on many "
                        "drivers must be started anew (multiprocessing's spawn)",
                        (long)h->process);
    ist_status status = IST_OK;
    pthread_mutex_lock(&h->lock);
    if (h->closed)
        status = ist_fail(err, IST_E_STATE, "the engine is closed");
    else if (h->inside)
        status = ist_fail(err, IST_E_STATE, "another thread is in this engine: open one for each thread");
    else
        h->inside = true;
    pthread_mutex_unlock(&h->lock);
    return status;
}

static void leave(held_engine *h) {
    pthread_mutex_lock(&h->lock);
    h->inside = false;
    pthread_cond_broadcast(&h->left);
    pthread_mutex_unlock(&h->lock);
}

/* Enters an engine that is open. */
static ist_status enter_open(held_engine *h, ist_error *err) {
    IST_TRY(enter(h, err));
    if (h->engine) return IST_OK;
    leave(h);
    return ist_fail(err, IST_E_STATE, "the engine is not open");
}

/* ---- opening and closing ---- */

static ist_status find_labels(held_engine *h, int classes, ist_error *err) {
    const char **names = calloc(classes > 0 ? (size_t)classes : 1, sizeof *names);
    if (!names) return ist_fail(err, IST_E_MEMORY, "out of memory for %d class names", classes);
    for (int i = 0; i < classes; i++) names[i] = ist_class_name(h->engine, i);
    ist_status status = ist_labels_make(classes, names, &h->labels, err);
    free(names);
    return status;
}

static ist_status open_inside(held_engine *h, const ist_config *config, ist_error *err) {
    ist_engine_info info;
    if (h->engine) return ist_fail(err, IST_E_STATE, "the engine is open already");
    IST_TRY(ist_open(config, &h->engine, err));
    ist_status status = ist_engine_describe(h->engine, &info, err);
    if (!status) status = find_labels(h, info.classes, err);
    if (status) {
        ist_close(&h->engine);
        return status;
    }
    size_t side = (size_t)info.segmenter_size / LOGIT_PIXELS;
    h->low_res = config->low_res ? side * side : 0;
    return IST_OK;
}

ist_status held_open(held_engine *h, const ist_config *config, ist_error *err) {
    if (!config) return ist_fail(err, IST_E_ARGUMENT, "no config given");
    IST_TRY(enter(h, err));
    ist_status status = open_inside(h, config, err);
    leave(h);
    return status;
}

void held_close(held_engine *h) {
    if (!h) return;
    if (getpid() != h->process) {
        ist_close(&h->engine);
        return;
    }
    pthread_mutex_lock(&h->lock);
    h->closed = true;
    while (h->inside) pthread_cond_wait(&h->left, &h->lock);
    ist_engine *engine = h->engine;
    h->engine = NULL;
    h->in_flight = 0;
    pthread_mutex_unlock(&h->lock);
    ist_close(&engine);
}

void held_free(held_engine *h) {
    if (!h) return;
    held_close(h);
    if (getpid() == h->process) {
        pthread_cond_destroy(&h->left);
        pthread_mutex_destroy(&h->lock);
    }
    ist_labels_free(&h->labels);
    free(h);
}

int held_in_flight(const held_engine *h) {
    return h ? h->in_flight : 0;
}

/* ---- batches ---- */

/* Counts what a submit has sent, and leaves. */
static ist_status sent(held_engine *h, ist_status status, uint64_t tag) {
    int n = h->in_flight;
    if (!status && n < MOST_IN_FLIGHT) {
        h->tags[n] = tag;
        h->in_flight = n + 1;
    }
    leave(h);
    return status;
}

ist_status held_submit(held_engine *h, const ist_image *images, int count, ist_error *err) {
    if (!images || count < 1) return ist_fail(err, IST_E_ARGUMENT, "%d images", count);
    IST_TRY(enter_open(h, err));
    return sent(h, ist_submit(h->engine, images, count, err), images[0].tag);
}

ist_status held_submit_prompts(held_engine *h, const ist_embedding *embedding, const ist_prompt *prompts, int count,
                               uint64_t tag, ist_error *err) {
    IST_TRY(enter_open(h, err));
    return sent(h, ist_submit_prompts(h->engine, embedding, prompts, count, tag, err), tag);
}

static size_t mask_words(const ist_mask *m) {
    return (size_t)m->columns * (size_t)m->words;
}

/* Adds up what `result` holds, and makes room for it. */
static ist_status make_room(const ist_result *r, size_t low_res, held_batch *b, ist_error *err) {
    size_t objects = 0, trust = 0, words = 0;
    for (int f = 0; f < r->frame_count; f++) {
        const ist_frame *frame = &r->frames[f];
        for (int i = 0; i < frame->object_count; i++, objects++) words += mask_words(&frame->objects[i].mask);
        for (int i = 0; i < frame->trust_count; i++, trust++) {
            const ist_trust *t = &frame->trust[i];
            words += mask_words(&t->edge) + mask_words(&t->in) + mask_words(&t->out);
        }
    }
    b->frames = calloc((size_t)r->frame_count + 1, sizeof *b->frames);
    b->objects = calloc(objects + 1, sizeof *b->objects);
    b->trust = calloc(trust + 1, sizeof *b->trust);
    b->words = calloc(words + 1, sizeof *b->words);
    if (low_res) b->low_res = calloc(objects * low_res + 1, sizeof *b->low_res);
    if (b->frames && b->objects && b->trust && b->words && (b->low_res || !low_res)) {
        b->frame_count = r->frame_count, b->object_count = (int)objects, b->trust_count = (int)trust;
        b->word_count = words, b->low_res_count = objects * low_res;
        return IST_OK;
    }
    return ist_fail(err, IST_E_MEMORY, "out of memory for a result of %zu objects and %zu words of masks", objects,
                    words);
}

/* Where the next of each goes. */
typedef struct cursor {
    ist_object *object;
    ist_trust *trust;
    uint32_t *words;
    float *logits;
    size_t low_res; /* logits of an object */
} cursor;

/* The mask's bits move with it. */
static void copy_mask(ist_mask *mask, cursor *to) {
    size_t count = mask_words(mask);
    if (count) memcpy(to->words, mask->bits, count * sizeof *to->words);
    mask->bits = to->words;
    to->words += count;
}

static void copy_object(const ist_object *from, cursor *to) {
    ist_object *o = to->object++;
    *o = *from;
    copy_mask(&o->mask, to);
    o->low_res = NULL;
    if (!to->low_res) return;
    if (from->low_res) memcpy(to->logits, from->low_res, to->low_res * sizeof *to->logits);
    o->low_res = to->logits;
    to->logits += to->low_res;
}

static void copy_frame(const ist_frame *from, ist_frame *frame, cursor *to) {
    *frame = *from;
    frame->objects = to->object;
    frame->trust = to->trust;
    for (int i = 0; i < from->object_count; i++) copy_object(&from->objects[i], to);
    for (int i = 0; i < from->trust_count; i++) {
        ist_trust *t = to->trust++;
        *t = from->trust[i];
        copy_mask(&t->edge, to);
        copy_mask(&t->in, to);
        copy_mask(&t->out, to);
    }
}

static ist_status copy_result(const ist_result *r, size_t low_res, held_batch *b, ist_error *err) {
    IST_TRY(make_room(r, low_res, b, err));
    cursor to = {b->objects, b->trust, b->words, b->low_res, low_res};
    for (int f = 0; f < r->frame_count; f++) copy_frame(&r->frames[f], &b->frames[f], &to);
    b->transfers = r->transfers;
    b->submit_ms = r->submit_ms, b->wait_ms = r->wait_ms, b->total_ms = r->total_ms;
    return IST_OK;
}

/* A receive that fails ends the oldest batch too, but for one that had nothing to wait for. */
static ist_status receive_inside(held_engine *h, held_batch *batch, ist_error *err) {
    const ist_result *result = NULL;
    if (!h->in_flight) return ist_fail(err, IST_E_STATE, "nothing is in flight");
    ist_status status = ist_receive(h->engine, &result, err);
    if (!status) status = copy_result(result, h->low_res, batch, err);
    ist_release(h->engine, &result);
    if (status) held_batch_free(batch);
    batch->tag = h->tags[0];
    int left = h->in_flight - 1;
    memmove(h->tags, h->tags + 1, (size_t)left * sizeof *h->tags);
    h->in_flight = left;
    return status;
}

ist_status held_receive(held_engine *h, held_batch *batch, ist_error *err) {
    if (!batch) return ist_fail(err, IST_E_ARGUMENT, "no place for the batch given");
    *batch = (held_batch){0};
    IST_TRY(enter_open(h, err));
    ist_status status = receive_inside(h, batch, err);
    leave(h);
    return status;
}

void held_batch_free(held_batch *b) {
    if (!b) return;
    free(b->frames);
    free(b->objects);
    free(b->trust);
    free(b->words);
    free(b->low_res);
    *b = (held_batch){0};
}

/* ---- embeddings ---- */

ist_status held_encode(held_engine *h, const ist_image *image, ist_embedding **embedding, ist_error *err) {
    IST_TRY(enter_open(h, err));
    ist_status status = ist_encode(h->engine, image, embedding, err);
    leave(h);
    return status;
}

ist_status held_forget(held_engine *h, ist_embedding **embedding, ist_error *err) {
    IST_TRY(enter_open(h, err));
    ist_embedding_release(h->engine, embedding);
    leave(h);
    return IST_OK;
}

/* ---- the rest ---- */

ist_status held_describe(held_engine *h, ist_engine_info *info, ist_error *err) {
    IST_TRY(enter_open(h, err));
    ist_status status = ist_engine_describe(h->engine, info, err);
    leave(h);
    return status;
}

ist_status held_reset_tracks(held_engine *h, ist_error *err) {
    IST_TRY(enter_open(h, err));
    ist_status status = ist_reset_tracks(h->engine, err);
    leave(h);
    return status;
}

ist_status held_assign(held_engine *h, const float *cost, int rows, int cols, int ld, int *row_to_col, double *total,
                       ist_error *err) {
    IST_TRY(enter_open(h, err));
    ist_status status = ist_assign(h->engine, cost, rows, cols, ld, row_to_col, total, err);
    leave(h);
    return status;
}

ist_status held_label(held_engine *h, int label, char *name, size_t size, int64_t *category, ist_error *err) {
    char number[16];
    if (!name || !size || !category)
        return ist_fail(err, IST_E_ARGUMENT, "no place for the name and the category given");
    IST_TRY(enter_open(h, err));
    const char *found = ist_label_name(&h->labels, label, number);
    size_t length = strlen(found) < size ? strlen(found) : size - 1;
    memcpy(name, found, length);
    name[length] = '\0';
    *category = ist_label_category(&h->labels, label);
    leave(h);
    return IST_OK;
}

ist_status held_rle(const ist_mask *mask, int width, int height, char **text, ist_error *err) {
    if (!mask || !text) return ist_fail(err, IST_E_ARGUMENT, "no mask or no place for its text given");
    ist_rle rle = {0};
    ist_text out = {0};
    *text = NULL;
    ist_status status = ist_rle_encode(mask, width, height, &rle, err);
    if (!status) ist_rle_text(&rle, &out);
    if (!status) status = ist_text_status(&out, err);
    ist_rle_free(&rle);
    if (status)
        ist_text_free(&out);
    else
        *text = out.data;
    return status;
}

void held_text_free(char **text) {
    if (!text) return;
    free(*text);
    *text = NULL;
}
