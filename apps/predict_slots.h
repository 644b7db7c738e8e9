/* The window of images that are on their way through `isthmus predict`. Private to predict_run.c and predict_engine.c.
 *
 * Image k of the work list lives in slot k % window. Four counters move along the list in this order:
 * next_commit <= next_encode <= next_engine <= next_decode <= next_commit + window. A slot's fields belong to the
 * thread that moved it into its state; counters and states are guarded by `lock`. Workers decode and encode, whatever
 * is the more urgent; they wait for `work`, which is signalled once for whatever could be one's next task: who takes a
 * task wakes another if there is more, so that dozens of them do not wake up for every image. Engines wait for
 * `decoded`. The end of the run, or of the list, wakes all. */
#ifndef PREDICT_SLOTS_H
#define PREDICT_SLOTS_H

#include "predict.h"

#include <pthread.h>

typedef enum predict_state {
    SLOT_FREE,
    SLOT_MEASURING, /* a worker's, which reads its header */
    SLOT_MEASURED,  /* waits for memory; `need` is what it will take */
    SLOT_DECODING,  /* a worker's */
    SLOT_DECODED,   /* waits for the engine; `status` tells whether there is an image */
    SLOT_IN_FLIGHT,
    SLOT_READY,    /* waits for a worker; `status` tells whether there is a result */
    SLOT_ENCODING, /* a worker's */
    SLOT_WRITTEN   /* waits for its turn in the journal */
} predict_state;

typedef struct predict_slot {
    predict_state state;
    const ist_source *source;
    size_t index; /* in the sources */
    size_t need;  /* bytes that decoding it takes at most */
    size_t held;  /* bytes of the budget that it has */
    ist_bitmap image;
    ist_frame frame;
    void *storage; /* the frame's objects and mask words, copied out of the engine */
    ist_record_times ms;
    ist_transfers transfers;
    ist_text line;
    predict_files files;
    ist_status status;
    ist_error err;
} predict_slot;

typedef struct predict_flow {
    predict_job *job;
    predict_totals *totals;
    size_t *todo; /* work list: indices of sources */
    size_t limit; /* end of the work list; moves down when the user interrupts */
    predict_slot *slots;
    size_t window;
    size_t batch;
    size_t next_measure, next_decode, next_engine, next_encode, next_commit;
    int workers;            /* threads; */
    int decoders, encoders; /* at most so many of them decode, or encode, at a time */
    int decoding, encoding; /* and so many do now */
    size_t ahead;           /* images beyond next_engine that are enough for the engines to go on with */
    size_t memory, held;    /* budget for images in flight, and what of it all slots have */
    int engines, working;   /* engines, and those that have not been lost */
    size_t flying;          /* images in flight on any engine */
    size_t *returned;       /* [window] images that a lost engine had in flight, for the others; */
    size_t returned_count;
    bool failed; /* the run itself: threads leave */
    ist_error failure;
    struct predict_saved *saving; /* [PREDICT_AT_ONCE] images that the saver takes next, in input order */
    size_t saving_count;
    double saving_since_ms; /* when the first of them came */
    bool all_encoded;       /* no worker is left */
    bool progress;          /* a progress line is wanted */
    int shown_columns;      /* of the one that is there now */
    double shown_ms;
    pthread_mutex_t lock;
    pthread_cond_t work, decoded, save;
} predict_flow;

/* An image whose files and line are complete in memory and under temporary names, not yet on the disk. */
typedef struct predict_saved {
    size_t index; /* in the sources */
    ist_text line;
    predict_files files;
} predict_saved;

/* Images that wait for the disk together at most: so many that a folder run hardly notices, so few that little is done
 * twice after a power failure. */
enum { PREDICT_AT_ONCE = 64 };

static inline predict_slot *predict_slot_at(const predict_flow *f, size_t k) {
    return &f->slots[k % f->window];
}

/* With the lock held: images whose turn has come go to the saver, as far as it has room, or to the list of failures. */
void predict_commit_written(predict_flow *f);

/* With the lock held: wakes a worker when there is work. */
void predict_wake_another(predict_flow *f);

void predict_show_progress(predict_flow *f);
void predict_clear_progress(predict_flow *f);

/* The saver, a thread: what has gathered while it waited for the disk becomes durable together, files first, then
 * names, then lines. `context` is the flow; ends when all is saved and all_encoded is set. */
void *predict_saver(void *context);

/* With the lock held: everybody looks what has changed. */
void predict_wake_all(predict_flow *f);

/* With the lock held: an interrupt ends the work list at what the engines have; what is decoded beyond that is left. */
void predict_poll_interrupt(predict_flow *f);

/* With the lock held: the run has failed with `err`; the first failure counts. */
void predict_fail_flow(predict_flow *f, const ist_error *err);

/* With the lock held: whether the next image of the list cannot be decoded before others are done with: the window is
 * full, or its header says that it takes more memory than is left. One that takes more than there is at all is decoded
 * when no other is. */
bool predict_is_full(const predict_flow *f);

/* With the lock held: gives the pixels of a slot back; and, with `all`, what else it holds. */
void predict_drop_pixels(predict_flow *f, predict_slot *slot, bool all);

/* The engines' side: the first on the calling thread, the others on threads of their own, until the work list is
 * through or the run has failed. Each takes the next batch when it has room. */
void predict_engines_run(predict_flow *f);

#endif
