/* Images that come while others are at work: see predict_stream.h. */
#include "predict_stream.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WAITING = 65536, LONGEST_NAME = 8191 };
#define MOST_BYTES ((size_t)256 << 20) /* of images in memory; one that is larger is taken alone */

/* ---- the reader ---- */

ssize_t predict_stream_read(predict_stream *s, void *buffer, size_t size, ist_error *err) {
    for (;;) {
        struct pollfd from[2] = {{.fd = s->input, .events = POLLIN}, {.fd = s->wake[0], .events = POLLIN}};
        int n = poll(from, 2, -1);
        *err = (ist_error){0};
        if (n < 0 && errno == EINTR) continue;
        if (n > 0 && from[1].revents) return -1;
        ssize_t got = n < 0 ? -1 : read(s->input, buffer, size);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got < 0) ist_fail(err, IST_E_IO, "%s: %s", s->name, strerror(errno));
        return got;
    }
}

bool predict_stream_put(predict_stream *s, predict_item *item) {
    pthread_mutex_lock(&s->lock);
    while (!s->stop && s->count && (s->count >= MOST_WAITING || s->bytes + item->size > MOST_BYTES))
        pthread_cond_wait(&s->taken, &s->lock);
    bool takes = !s->stop && ist_grow((void **)&s->items, &s->capacity, s->count + 1, sizeof *s->items);
    if (takes) {
        s->items[s->count++] = *item;
        s->bytes += item->bytes ? item->size : 0;
    } else {
        if (!s->stop) ist_fail(&s->failure, IST_E_MEMORY, "%s: out of memory", s->name);
        free(item->path);
        free(item->bytes);
    }
    *item = (predict_item){0};
    pthread_cond_signal(&s->came);
    pthread_mutex_unlock(&s->lock);
    return takes;
}

/* A line without its end; false when the reader must stop. */
static bool put_line(predict_stream *s, char *line, size_t length, bool first, ist_error *err) {
    static const char mark[] = "\xEF\xBB\xBF"; /* of UTF-8: some editors begin a list with it */
    if (length && line[length - 1] == '\r') length--;
    line[length] = '\0';
    if (strlen(line) != length) {
        ist_fail(err, IST_E_INPUT, "%s: a zero byte; file names are separated by line ends", s->name);
        return false;
    }
    const char *name = first && !strncmp(line, mark, 3) ? line + 3 : line;
    if (!*name) return true;
    predict_item item = {.path = ist_strdup(name)};
    if (item.path) return predict_stream_put(s, &item);
    ist_fail(err, IST_E_MEMORY, "%s: out of memory", s->name);
    return false;
}

static void read_names(predict_stream *s, ist_error *err) {
    char line[LONGEST_NAME + 1], buffer[4096];
    size_t length = 0;
    ssize_t n;
    bool first = true;
    while ((n = predict_stream_read(s, buffer, sizeof buffer, err)) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (buffer[i] != '\n' && length == LONGEST_NAME) {
                ist_fail(err, IST_E_INPUT, "%s: a file name of more than %d bytes", s->name, LONGEST_NAME);
                return;
            }
            if (buffer[i] != '\n') {
                line[length++] = buffer[i];
                continue;
            }
            if (!put_line(s, line, length, first, err)) return;
            length = 0;
            first = false;
        }
    if (n == 0 && length) put_line(s, line, length, first, err);
}

static void *read_ahead(void *context) {
    predict_stream *s = context;
    ist_error err = {0};
    if (s->tar)
        predict_tar_read(s, &err);
    else
        read_names(s, &err);
    pthread_mutex_lock(&s->lock);
    if (!s->failure.code) s->failure = err;
    s->ended = true;
    pthread_cond_signal(&s->came);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the run's side ---- */

ist_status predict_stream_open(const char *path, bool tar, predict_stream **stream, ist_error *err) {
    bool standard = !strcmp(path, "-");
    predict_stream *s = calloc(1, sizeof *s);
    *stream = s;
    if (!s) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", path);
    *s = (predict_stream){.input = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC),
                          .wake = {-1, -1},
                          .name = standard ? "standard input" : path,
                          .tar = tar,
                          .lock = PTHREAD_MUTEX_INITIALIZER,
                          .came = PTHREAD_COND_INITIALIZER,
                          .taken = PTHREAD_COND_INITIALIZER};
    if (s->input < 0) return ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
    if (pipe(s->wake)) return ist_fail(err, IST_E_IO, "cannot make a pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++) fcntl(s->wake[i], F_SETFD, FD_CLOEXEC);
    s->running = !pthread_create(&s->thread, NULL, read_ahead, s);
    return s->running ? IST_OK : ist_fail(err, IST_E_MEMORY, "no thread to read %s with", s->name);
}

/* Waits until something has come, all of it with `all`, or the stream has ended; false when the user interrupts. */
static bool wait_for_items(predict_stream *s, bool all, const volatile sig_atomic_t *interrupted) {
    while (!s->ended && (all || !s->count)) {
        struct timespec until;
        if (interrupted && *interrupted) return false;
        if (all && s->count) return true; /* room for more */
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
        pthread_cond_timedwait(&s->came, &s->lock, &until);
    }
    return true;
}

static ist_status add_item(predict_job *job, predict_item *item, ist_error *err) {
    const predict_options *o = job->options;
    if (!job->stream->tar) return ist_sources_add(&job->sources, item->path, o->recursive, o->output, err);
    IST_TRY(ist_sources_add_bytes(&job->sources, item->path, item->bytes, item->size, err));
    item->bytes = NULL;
    return IST_OK;
}

static ist_status add_items(predict_job *job, predict_item *items, size_t count, ist_error *err) {
    ist_status status = IST_OK;
    for (size_t i = 0; i < count; i++) {
        if (!status) status = add_item(job, &items[i], err);
        free(items[i].path);
        free(items[i].bytes);
    }
    free(items);
    return status ? status : ist_sources_extend(&job->sources, err);
}

ist_status predict_stream_take(predict_job *job, bool all, bool *more, ist_error *err) {
    predict_stream *s = job->stream;
    ist_status status = IST_OK;
    ist_sources_drop_bytes(&job->sources, job->begun);
    job->begun = job->sources.count;
    for (*more = true; *more && !status;) {
        pthread_mutex_lock(&s->lock);
        bool goes_on = wait_for_items(s, all, job->interrupted);
        predict_item *items = s->items;
        size_t count = s->count;
        s->items = NULL;
        s->count = s->capacity = s->bytes = 0;
        *more = !s->ended && goes_on;
        pthread_cond_signal(&s->taken);
        pthread_mutex_unlock(&s->lock);
        status = add_items(job, items, count, err);
        if (!all) break;
    }
    return status;
}

const ist_error *predict_stream_failure(const predict_stream *s) {
    return s->failure.code ? &s->failure : NULL; /* once it has ended nobody writes there */
}

void predict_stream_close(predict_stream **stream) {
    predict_stream *s = *stream;
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->taken);
    pthread_mutex_unlock(&s->lock);
    if (s->running && write(s->wake[1], "", 1) == 1) pthread_join(s->thread, NULL);
    for (int i = 0; i < 2; i++)
        if (s->wake[i] >= 0) close(s->wake[i]);
    if (s->input > STDIN_FILENO) close(s->input);
    for (size_t i = 0; i < s->count; i++) {
        free(s->items[i].path);
        free(s->items[i].bytes);
    }
    free(s->items);
    pthread_cond_destroy(&s->came);
    pthread_cond_destroy(&s->taken);
    pthread_mutex_destroy(&s->lock);
    free(s);
    *stream = NULL;
}
