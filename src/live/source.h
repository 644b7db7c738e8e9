/* Where frames come from: a thread that hands each over as it arrives, and goes on after what can go on: a connection
 * that breaks is made again, a message that is damaged is counted.
 *
 * SRC is igtl://HOST:PORT[/DEVICE] (a client), igtl-listen://[HOST]:PORT (a server on loopback unless HOST says
 * otherwise, for several senders), raw:WxH:FORMAT (frames on a file descriptor) or a folder. */
#ifndef IST_LIVE_SOURCE_H
#define IST_LIVE_SOURCE_H

#include "live/counts.h"
#include "live/frame.h"
#include "live/igtl.h"
#include "live/net.h"

typedef enum ist_live_kind { IST_LIVE_CLIENT, IST_LIVE_LISTENER, IST_LIVE_RAW, IST_LIVE_FOLDER } ist_live_kind;

/* What SRC says. */
typedef struct ist_live_spec {
    ist_live_kind kind;
    ist_net_address address; /* of a client or a listener; its device: only that one's images */
    int width, height;       /* of raw frames */
    ist_pixel_format format;
    const char *folder;
} ist_live_spec;

ist_status ist_live_parse(const char *text, ist_live_spec *spec, ist_error *err);

typedef struct ist_live_source_options {
    ist_live_spec spec;
    double fps;   /* of a folder; 0: as recorded, else 30 */
    bool at_once; /* a folder's frames one after the other, as fast as they are taken */
    int fd;       /* of raw frames */
    ist_live_counts *counts;
    void (*frame)(void *arg, ist_live_frame *frame);    /* hands over: from the thread, in order */
    void (*say)(void *arg, const char *sentence);       /* something happened that a person may want to know */
    void (*connected)(void *arg, bool yes);             /* a client's connection came or went */
    void (*ended)(void *arg, const ist_error *failure); /* nothing more comes; NULL: as it should be */
    void *arg;
} ist_live_source_options;

typedef struct ist_live_source ist_live_source;

/* Opens what can be wrong at once: a port in use, a folder without images. `port` (may be NULL) becomes a listener's.
 */
ist_status ist_live_source_open(const ist_live_source_options *options, ist_live_source **source, int *port,
                                ist_error *err);
/* Whether some of its frames may tell the window that they are to be seen through. */
bool ist_live_source_has_windows(const ist_live_source *source);
/* Starts the thread. */
ist_status ist_live_source_start(ist_live_source *source, ist_error *err);
/* Stops it, within IST_NET_STEP_MS. Accepts a pointer to NULL. */
void ist_live_source_close(ist_live_source **source);

#endif
