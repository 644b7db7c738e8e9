/* Images that come while others are at work: a list of names on standard input, or a tar stream.
 *
 * A thread reads ahead, as far as its room goes. The run takes what has come, round by round: a round is a run over the
 * images that are new (predict_run.c), so that the longer one takes, the more images the next one has. Names, ids and
 * tables are those of a list that was complete from the beginning. */
#ifndef PREDICT_STREAM_H
#define PREDICT_STREAM_H

#include "predict.h"

#include <pthread.h>

/* One that has come: the name of a file or folder, or, of a tar stream, an image. */
typedef struct predict_item {
    char *path;
    void *bytes; /* the image's file; NULL with a size: it is larger than the limit */
    size_t size;
} predict_item;

struct predict_stream {
    int input;        /* what is read; -1: none */
    int wake[2];      /* a pipe that ends waiting for more input */
    const char *name; /* of the input, for sentences */
    bool tar;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t came, taken;
    predict_item *items;
    size_t count, capacity, bytes;
    bool ended, stop;
    ist_error failure; /* of the stream itself; code IST_OK: none */
};

/* Gives an item to whoever waits, and waits for room; false when the reader must stop. The item is taken over. */
bool predict_stream_put(predict_stream *s, predict_item *item);

/* read(2) that stops with the stream: the number of bytes, 0 at the end, -1 with `err` filled when it failed, and with
 * code IST_OK when the stream was stopped. */
ssize_t predict_stream_read(predict_stream *s, void *buffer, size_t size, ist_error *err);

/* Reads the members of a tar stream to its end (predict_tar.c). */
ist_status predict_tar_read(predict_stream *s, ist_error *err);

#endif
