/* Copying with helpers: see copier.h.
 *
 * A job is a range cut into pieces that everybody takes from one counter, the caller too, so that helpers that wake up
 * late do no harm. Only those that came before the caller closed the job are waited for. */
#include "pipeline/copier.h"

#include "base/cores.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { HELPERS = 3, CORES_FOR_EACH = 4, PIECE = 128 << 10, WORTH = 8 * PIECE };

struct ist_copier {
    pthread_t threads[HELPERS];
    int count;
    pthread_mutex_t lock; /* guards the five below */
    pthread_cond_t changed;
    bool open, leave;
    unsigned jobs; /* so far */
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
    atomic_size_t next; /* first byte that nobody has taken */
    atomic_int busy;    /* helpers in the job */
};

/* Stores that leave nothing in the caches: a device that reads the memory would ask them first. */
static void copy_past_caches(unsigned char *to, const unsigned char *from, size_t bytes) {
#ifdef __SSE2__
    size_t head = (size_t)(-(uintptr_t)to & 15);
    if (head > bytes) head = bytes;
    memcpy(to, from, head);
    to += head, from += head, bytes -= head;
    for (; bytes >= 64; to += 64, from += 64, bytes -= 64) {
        __m128i v[4];
        for (int i = 0; i < 4; i++) v[i] = _mm_loadu_si128((const __m128i *)(const void *)from + i);
        for (int i = 0; i < 4; i++) _mm_stream_si128((__m128i *)(void *)to + i, v[i]);
    }
    memcpy(to, from, bytes);
    _mm_sfence();
#else
    memcpy(to, from, bytes);
#endif
}

static void take_pieces(ist_copier *c, unsigned char *to, const unsigned char *from, size_t bytes) {
    size_t at;
    while ((at = atomic_fetch_add(&c->next, PIECE)) < bytes)
        copy_past_caches(to + at, from + at, bytes - at < PIECE ? bytes - at : PIECE);
}

static void *help(void *context) {
    ist_copier *c = context;
    unsigned seen = 0;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->leave && (c->jobs == seen || !c->open)) pthread_cond_wait(&c->changed, &c->lock);
        if (c->leave) break;
        seen = c->jobs;
        unsigned char *to = c->to;
        const unsigned char *from = c->from;
        size_t bytes = c->bytes;
        atomic_fetch_add(&c->busy, 1);
        pthread_mutex_unlock(&c->lock);
        take_pieces(c, to, from, bytes);
        atomic_fetch_sub(&c->busy, 1);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

int ist_copier_helpers(void) {
    int helpers = ist_cores() / CORES_FOR_EACH;
    return helpers < HELPERS ? helpers : HELPERS;
}

ist_copier *ist_copier_open(int helpers) {
    ist_copier *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    if (pthread_mutex_init(&c->lock, NULL)) {
        free(c);
        return NULL;
    }
    if (pthread_cond_init(&c->changed, NULL)) {
        pthread_mutex_destroy(&c->lock);
        free(c);
        return NULL;
    }
    while (c->count < HELPERS && c->count < helpers && !pthread_create(&c->threads[c->count], NULL, help, c))
        c->count++;
    return c;
}

static void set_open(ist_copier *c, bool open) {
    pthread_mutex_lock(&c->lock);
    c->open = open;
    c->jobs += open;
    if (open) pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

void ist_copier_copy(ist_copier *c, void *to, const void *from, size_t bytes, bool hurry) {
    if (!c->count || !hurry || bytes < WORTH) {
        copy_past_caches(to, from, bytes);
        return;
    }
    c->to = to; /* nobody looks while the job is closed */
    c->from = from;
    c->bytes = bytes;
    atomic_store(&c->next, 0);
    set_open(c, true);
    take_pieces(c, to, from, bytes);
    set_open(c, false);
    while (atomic_load(&c->busy)) sched_yield();
}

void ist_copier_close(ist_copier **copier) {
    ist_copier *c = *copier;
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->leave = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->count; i++) pthread_join(c->threads[i], NULL);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
    *copier = NULL;
}
