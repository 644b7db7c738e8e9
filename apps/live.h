/* The parts of `isthmus live`: options (cmd_live.c), frames through the engine (live_run.c), results to where they go
 * (live_publish.c).
 *
 *     source ─► queue, newest wins ─► submit ─► device ─► receive ─► queue ─► OpenIGTLink
 *                                                               └──► queue ─► files
 * Each arrow is another thread; a slow one loses frames or results in the queue before it, and stops nobody. */
#ifndef LIVE_H
#define LIVE_H

#include "predict.h"

#include "live/counts.h"
#include "live/frame.h"
#include "live/queue.h"
#include "live/server.h"
#include "live/source.h"

/* What --send can name: enumerator, name, end of the device name. */
#define LIVE_SENDS(X)                                                                                                  \
    X(LABELS, "labels", "_seg")                                                                                        \
    X(STRING, "string", "_objects")                                                                                    \
    X(BOXES, "boxes", "_boxes")                                                                                        \
    X(CONTOURS, "contours", "_contours")                                                                               \
    X(OVERLAY, "overlay", "_overlay")

enum {
#define X(id, name, suffix) LIVE_SEND_BIT_##id,
    LIVE_SENDS(X)
#undef X
#define X(id, name, suffix) LIVE_SEND_##id = 1 << LIVE_SEND_BIT_##id,
        LIVE_SENDS(X)
#undef X
            LIVE_MAX_SINKS = 8
};

/* The command line, checked. */
typedef struct live_options {
    predict_options engine; /* what every command that opens an engine has */
    ist_live_spec from;
    const char *to[LIVE_MAX_SINKS];
    int to_count;
    unsigned send;     /* LIVE_SEND_ bits; 0: labels and string */
    float deadline_ms; /* 0: none */
    float fps;         /* 0: as recorded, or 30 */
    int queue, limit;  /* limit 0: none */
    bool no_drop;
    const char *metrics, *record;
} live_options;

/* A frame with what was found in it; the objects lie behind it in the same memory. Several hold it. */
typedef struct live_result {
    atomic_int references;
    ist_live_frame *frame;
    ist_frame found;
    ist_transfers transfers;
} live_result;

void live_result_drop(void *result);

/* ---- live_publish.c ---- */

typedef struct live_publisher live_publisher;

/* Opens what --to names: ports, files, folders; 0 or the exit code. The labels are filled in later. */
int live_publisher_open(const live_options *options, const ist_labels *labels, ist_live_counts *counts,
                        live_publisher **publisher);

/* Takes a reference of the result to all sinks; waits with --no-drop only, and never for a client. */
void live_publish(live_publisher *publisher, live_result *result);

/* Tells clients that the source is there or gone. */
void live_publisher_tell(live_publisher *publisher, bool connected);

/* Why a file could not be written; false when all could. */
bool live_publisher_failed(live_publisher *publisher, ist_error *err);

/* Writes what waits, completes files, ends connections; 0 or the exit code. Accepts a pointer to NULL. */
int live_publisher_close(live_publisher **publisher);

/* ---- live_run.c ---- */

/* From opened ends to the summary; 0 or the exit code. */
int live_run(live_options *options);

#endif
