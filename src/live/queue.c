/* See queue.h. */
#include "live/queue.h"

#include <string.h>

bool ist_live_queue_open(ist_live_queue *q, int capacity, bool waits, void (*drop)(void *item)) {
    memset(q, 0, sizeof *q);
    if (pthread_mutex_init(&q->lock, NULL)) return false;
    if (pthread_cond_init(&q->changed, NULL)) {
        pthread_mutex_destroy(&q->lock);
        return false;
    }
    q->capacity = capacity;
    q->waits = waits;
    q->drop = drop;
    return true;
}

static void *take_head(ist_live_queue *q) {
    void *item = q->items[q->head];
    q->head = (q->head + 1) % IST_LIVE_QUEUE_MAX;
    q->count--;
    return item;
}

int ist_live_queue_put(ist_live_queue *q, void *item) {
    void *dropped = NULL;
    pthread_mutex_lock(&q->lock);
    while (q->waits && q->count == q->capacity && !q->ended) pthread_cond_wait(&q->changed, &q->lock);
    if (q->ended) {
        dropped = item;
    } else {
        if (q->count == q->capacity) dropped = take_head(q);
        q->items[(q->head + q->count++) % IST_LIVE_QUEUE_MAX] = item;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    if (dropped) q->drop(dropped);
    return dropped != NULL;
}

void *ist_live_queue_take(ist_live_queue *q, bool wait) {
    void *item = NULL;
    pthread_mutex_lock(&q->lock);
    while (wait && !q->count && !q->ended) pthread_cond_wait(&q->changed, &q->lock);
    if (q->count) {
        item = take_head(q);
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return item;
}

void ist_live_queue_end(ist_live_queue *q) {
    pthread_mutex_lock(&q->lock);
    q->ended = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

int ist_live_queue_stop(ist_live_queue *q) {
    int dropped = 0;
    ist_live_queue_end(q);
    for (void *item; (item = ist_live_queue_take(q, false)); dropped++) q->drop(item);
    return dropped;
}

void ist_live_queue_close(ist_live_queue *q) {
    ist_live_queue_stop(q);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
}
