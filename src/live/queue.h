/* A short queue between two threads. Latest wins: what is put into a full one drops the oldest; or, where nothing may
 * be lost, waits. */
#ifndef IST_LIVE_QUEUE_H
#define IST_LIVE_QUEUE_H

#include <pthread.h>
#include <stdbool.h>

enum { IST_LIVE_QUEUE_MAX = 256 };

typedef struct ist_live_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void *items[IST_LIVE_QUEUE_MAX];
    int head, count, capacity;
    bool waits; /* for room, instead of dropping */
    bool ended;
    void (*drop)(void *item);
} ist_live_queue;

/* `capacity` 1..IST_LIVE_QUEUE_MAX; `drop` frees an item that nobody takes. False when there is no mutex to be had. */
bool ist_live_queue_open(ist_live_queue *queue, int capacity, bool waits, void (*drop)(void *item));

/* The queue owns `item` from now on. How many were dropped for it: 0 or 1; the item itself when the queue has ended. */
int ist_live_queue_put(ist_live_queue *queue, void *item);

/* The oldest, the caller's then. NULL when there is none and the queue has ended (or, without `wait`, none now). */
void *ist_live_queue_take(ist_live_queue *queue, bool wait);

/* Nothing more comes; what is there can still be taken. */
void ist_live_queue_end(ist_live_queue *queue);

/* Ends it and drops what is there. How many. */
int ist_live_queue_stop(ist_live_queue *queue);

void ist_live_queue_close(ist_live_queue *queue);

#endif
