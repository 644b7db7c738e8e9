/* See server.h. */
#include "live/server.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PARTS = 256 /* of frames that wait for a client, where none is to be lost */, POLL_MS = 200 };

struct ist_live_blob {
    ist_text text;
    uint64_t number;
    double arrived_ms;
    int references; /* with the server's lock held */
    bool timed;
};

typedef struct client {
    int fd;
    ist_live_blob *parts[PARTS];
    int count;
    size_t sent;    /* of the first */
    uint64_t begun; /* number of the frame of which something has been sent */
} client;

struct ist_live_server {
    pthread_t thread;
    pthread_mutex_t lock;
    int listener, wake[2];
    ist_live_counts *counts;
    ist_live_blob *greeting;
    client clients[IST_LIVE_CLIENTS];
    int count;
    bool keeps, stop;
};

ist_live_blob *ist_live_blob_new(ist_text *text, uint64_t number, double arrived_ms) {
    ist_live_blob *b = calloc(1, sizeof *b);
    if (!b) {
        ist_text_free(text);
        return NULL;
    }
    *b = (ist_live_blob){.text = *text, .number = number, .arrived_ms = arrived_ms, .references = 1};
    *text = (ist_text){0};
    return b;
}

static void drop_blob(ist_live_blob *b) {
    if (!b || --b->references) return;
    ist_text_free(&b->text);
    free(b);
}

/* ---- clients, with the lock held ---- */

static void drop_parts(client *c, int first, int count) {
    for (int i = 0; i < count; i++) drop_blob(c->parts[first + i]);
    memmove(c->parts + first, c->parts + first + count, (size_t)(c->count - first - count) * sizeof *c->parts);
    c->count -= count;
}

/* Drops what waits, but for parts of no frame (number 0), of what has been begun and of frame `keep`: all of it, or the
 * oldest frame. False when there is none. */
static bool drop_waiting(ist_live_server *s, client *c, uint64_t keep, bool all) {
    uint64_t oldest = 0;
    for (int i = 0; i < c->count; i++) {
        uint64_t number = c->parts[i]->number;
        if (!number || number == c->begun || number == keep || (oldest && !all && number != oldest)) continue;
        if (number != oldest) ist_live_add(s->counts, skipped, 1);
        oldest = number;
        drop_parts(c, i--, 1);
    }
    return oldest != 0;
}

static void add_part(ist_live_server *s, client *c, ist_live_blob *b) {
    if (!s->keeps) drop_waiting(s, c, b->number, true);
    if (c->count == PARTS && !drop_waiting(s, c, b->number, false)) return;
    b->references++;
    c->parts[c->count++] = b;
}

static void drop_client(ist_live_server *s, int i) {
    client *c = &s->clients[i];
    drop_parts(c, 0, c->count);
    close(c->fd);
    *c = s->clients[--s->count];
}

static void accept_client(ist_live_server *s) {
    int fd = ist_net_accept(s->listener);
    if (fd < 0) return;
    if (s->count == IST_LIVE_CLIENTS) {
        close(fd);
        return;
    }
    client *c = &s->clients[s->count++];
    *c = (client){.fd = fd};
    ist_live_add(s->counts, clients, 1);
    if (s->greeting) add_part(s, c, s->greeting);
}

/* False when the connection has ended. */
static bool write_some(ist_live_server *s, client *c) {
    while (c->count) {
        ist_live_blob *b = c->parts[0];
        long n = ist_net_write(c->fd, b->text.data + c->sent, b->text.length - c->sent);
        if (n < 0) return false;
        if (n == 0) return true;
        if (!b->timed && b->number && b->arrived_ms > 0)
            ist_live_counts_time(s->counts, ist_clock_ms() - b->arrived_ms);
        b->timed = true;
        c->begun = b->number;
        c->sent += (size_t)n;
        if (c->sent < b->text.length) return true;
        c->sent = 0;
        drop_parts(c, 0, 1);
    }
    return true;
}

static bool read_away(const client *c) {
    char bytes[4096];
    ist_error err;
    return ist_net_read(c->fd, bytes, sizeof bytes, &err) >= 0;
}

/* Everything that can be done without waiting, by what poll has said. */
static void serve(ist_live_server *s, const struct pollfd *polled, int clients) {
    for (int i = clients - 1; i >= 0; i--) { /* backwards: the last one takes the place of one that goes */
        short events = polled[2 + i].revents;
        bool alive = !(events & (POLLIN | POLLHUP | POLLERR)) || read_away(&s->clients[i]);
        if (alive) alive = write_some(s, &s->clients[i]);
        if (!alive) drop_client(s, i);
    }
    if (polled[1].revents) accept_client(s);
}

static void *run(void *context) {
    ist_live_server *s = context;
    struct pollfd polled[2 + IST_LIVE_CLIENTS];
    char byte[64];
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        int clients = s->count;
        polled[0] = (struct pollfd){.fd = s->wake[0], .events = POLLIN};
        polled[1] = (struct pollfd){.fd = s->listener, .events = POLLIN};
        for (int i = 0; i < clients; i++)
            polled[2 + i] = (struct pollfd){.fd = s->clients[i].fd,
                                            .events = (short)(s->clients[i].count ? POLLIN | POLLOUT : POLLIN)};
        pthread_mutex_unlock(&s->lock);
        int rc = poll(polled, (nfds_t)(2 + clients), POLL_MS);
        pthread_mutex_lock(&s->lock);
        if (rc <= 0) continue;
        while (read(s->wake[0], byte, sizeof byte) == (ssize_t)sizeof byte) {
        } /* more than one wake at a time */
        serve(s, polled, clients);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the server ---- */

static ist_status make_wake(ist_live_server *s, ist_error *err) {
    if (pipe(s->wake)) return ist_fail(err, IST_E_IO, "pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++)
        if (fcntl(s->wake[i], F_SETFD, FD_CLOEXEC) < 0 || fcntl(s->wake[i], F_SETFL, O_NONBLOCK) < 0)
            return ist_fail(err, IST_E_IO, "pipe: %s", strerror(errno));
    return IST_OK;
}

static void free_server(ist_live_server *s) {
    while (s->count) drop_client(s, s->count - 1);
    drop_blob(s->greeting);
    if (s->listener >= 0) close(s->listener);
    for (int i = 0; i < 2; i++)
        if (s->wake[i] >= 0) close(s->wake[i]);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

ist_status ist_live_server_open(const ist_net_address *address, bool keeps, ist_live_counts *counts,
                                ist_live_blob *greeting, ist_live_server **server, int *port, ist_error *err) {
    *server = NULL;
    ist_live_server *s = calloc(1, sizeof *s);
    if (!s || pthread_mutex_init(&s->lock, NULL)) {
        free(s);
        drop_blob(greeting);
        return ist_fail(err, IST_E_MEMORY, "server: out of memory");
    }
    s->listener = s->wake[0] = s->wake[1] = -1;
    s->counts = counts;
    s->keeps = keeps;
    s->greeting = greeting;
    ist_status status = ist_net_listen(address, &s->listener, port, err);
    if (!status) status = make_wake(s, err);
    if (!status && pthread_create(&s->thread, NULL, run, s)) status = ist_fail(err, IST_E_MEMORY, "server: no thread");
    if (status) {
        free_server(s);
        return status;
    }
    *server = s;
    return IST_OK;
}

static void wake(ist_live_server *s) {
    (void)!write(s->wake[1], "", 1); /* full: it wakes anyway */
}

bool ist_live_server_send(ist_live_server *s, ist_live_blob *blob) {
    pthread_mutex_lock(&s->lock);
    bool any = s->count > 0;
    for (int i = 0; i < s->count; i++) add_part(s, &s->clients[i], blob);
    drop_blob(blob);
    pthread_mutex_unlock(&s->lock);
    if (any) wake(s);
    return any;
}

/* Whether some client has something coming. */
static bool has_more(ist_live_server *s) {
    bool more = false;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->count; i++) more |= s->clients[i].count > 0;
    pthread_mutex_unlock(&s->lock);
    return more;
}

void ist_live_server_close(ist_live_server **server, int ms) {
    if (!server || !*server) return;
    ist_live_server *s = *server;
    double until = ist_clock_ms() + ms;
    while (has_more(s) && ist_clock_ms() < until) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_mutex_unlock(&s->lock);
    wake(s);
    pthread_join(s->thread, NULL);
    free_server(s);
    *server = NULL;
}
