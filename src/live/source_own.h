/* What the kinds of sources share: source.c has the thread, source_*.c what it does. */
#ifndef IST_LIVE_SOURCE_OWN_H
#define IST_LIVE_SOURCE_OWN_H

#include "live/recording.h"
#include "live/source.h"

struct ist_live_source {
    ist_live_source_options o;
    pthread_t thread;
    bool started;
    atomic_bool stop;
    int listener;
    ist_live_folder *folder;
    uint64_t received;
};

/* Each runs until the source ends or is stopped; IST_OK when it ended as it should. */
ist_status ist_source_run_client(ist_live_source *source, ist_error *err);
ist_status ist_source_run_listener(ist_live_source *source, ist_error *err);
ist_status ist_source_run_raw(ist_live_source *source, ist_error *err);
ist_status ist_source_run_folder(ist_live_source *source, ist_error *err);

/* Numbers the frame and hands it over. */
void ist_source_give(ist_live_source *source, ist_live_frame *frame, double arrived_ms);

void ist_source_say(const ist_live_source *source, const char *fmt, ...) IST_PRINTF(2, 3);

/* Sleeps; false when the source was stopped meanwhile. */
bool ist_source_sleep(const ist_live_source *source, double ms);

#endif
