/* What a stream counts, and how long frames take from their arrival to where they go. One lock, memory that does not
 * grow: times are kept in classes whose borders are 2 % apart. */
#ifndef IST_LIVE_COUNTS_H
#define IST_LIVE_COUNTS_H

#include "io/text.h"

#include <pthread.h>
#include <stdint.h>

/* X(member, name in --metrics, what it counts) */
#define IST_LIVE_COUNTS(X)                                                                                             \
    X(received, "frames_received", "frames that arrived whole")                                                        \
    X(processed, "frames_processed", "frames that were answered")                                                      \
    X(dropped, "frames_dropped", "frames that a newer one replaced before they reached the device")                    \
    X(late, "frames_late", "frames given up before the device because of the deadline")                                \
    X(overdue, "frames_overdue", "frames answered after the deadline")                                                 \
    X(failed, "frames_failed", "frames that the engine or a file refused")                                             \
    X(unsent, "results_dropped", "results that a newer one replaced before they were sent or written")                 \
    X(unrecorded, "frames_unrecorded", "frames that --record had no time for")                                         \
    X(unsupported, "messages_unsupported", "images of a kind or size that is not supported")                           \
    X(ignored, "messages_ignored", "messages that are no images")                                                      \
    X(bad_crc, "messages_bad_crc", "messages with a wrong checksum")                                                   \
    X(broken, "connections_broken", "connections that ended within a message or said what is not OpenIGTLink")         \
    X(connects, "connections", "connections of sources")                                                               \
    X(clients, "clients", "connections of clients")                                                                    \
    X(skipped, "client_frames_dropped", "results that a slow client did not get")

enum { IST_LIVE_CLASSES = 1280 };

typedef struct ist_live_times {
    uint64_t count;
    double sum_ms;
    uint32_t classes[IST_LIVE_CLASSES];
} ist_live_times;

typedef struct ist_live_counts {
    pthread_mutex_t lock;
#define X(member, name, help) uint64_t member;
    IST_LIVE_COUNTS(X)
#undef X
    double busy_ms, opened_ms;                                       /* of the device; when counting began */
    ist_live_times all, lately;                                      /* since the start, since ist_live_counts_line */
    uint64_t line_received, line_processed, line_dropped, line_late; /* at the last line */
    double line_ms, line_busy_ms;
} ist_live_counts;

bool ist_live_counts_open(ist_live_counts *counts);
void ist_live_counts_close(ist_live_counts *counts);

/* ist_live_add(counts, received, 1) */
#define ist_live_add(counts, member, n)                                                                                \
    do {                                                                                                               \
        pthread_mutex_lock(&(counts)->lock);                                                                           \
        (counts)->member += (n);                                                                                       \
        pthread_mutex_unlock(&(counts)->lock);                                                                         \
    } while (0)

/* A frame that took so long from its last byte here to its first byte out. */
void ist_live_counts_time(ist_live_counts *counts, double ms);

/* The P-th percentile in ms, to 2 %; 0 without times. */
double ist_live_percentile(const ist_live_times *times, double p);

/* One line about what happened since the last one, or since the start. */
void ist_live_counts_line(ist_live_counts *counts, char *line, size_t size);

/* The whole run in a sentence or two. */
void ist_live_counts_summary(ist_live_counts *counts, char *text, size_t size);

/* Prometheus' text format. */
void ist_live_counts_metrics(ist_live_counts *counts, ist_text *out);

#endif
