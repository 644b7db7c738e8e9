/* Frames from OpenIGTLink: connections out, with back-off, or connections in, several at a time. */
#include "live/source_own.h"

#include "base/clock.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SENDERS = 8, BACKOFF_MS = 100, MAX_BACKOFF_MS = 5000 };

#ifdef ISTHMUS_OPENIGTLINK

/* One connection that messages come from. */
typedef struct sender {
    int fd;
    ist_igtl_reader reader;
    ist_igtl_canvas canvas;
    bool told_unsupported, told_crc; /* each is said once */
} sender;

static void close_sender(sender *c) {
    if (c->fd >= 0) close(c->fd);
    ist_igtl_reader_free(&c->reader);
    ist_bitmap_free(&c->canvas.image);
    *c = (sender){.fd = -1};
}

static void take_image(ist_live_source *s, sender *c, double arrived_ms) {
    ist_live_frame *frame;
    ist_error err;
    const char *device = s->o.spec.address.device;
    if (*device && strcmp(device, c->reader.device)) {
        ist_live_add(s->o.counts, ignored, 1);
        return;
    }
    if (!ist_igtl_image(&c->reader, &c->canvas, &frame, &err)) {
        ist_source_give(s, frame, arrived_ms);
        return;
    }
    ist_live_add(s->o.counts, unsupported, 1);
    if (!c->told_unsupported) ist_source_say(s, "device '%s': %s; left out", c->reader.device, err.text);
    c->told_unsupported = true;
}

/* Reads what is there, at most to the end of a message; false when the connection is of no more use, with the reason.
 */
static bool read_some(ist_live_source *s, sender *c, ist_error *err) {
    for (ist_igtl_event event = IST_IGTL_MORE; event == IST_IGTL_MORE && !atomic_load(&s->stop);) {
        size_t count;
        void *at = ist_igtl_room(&c->reader, &count);
        if (!at) {
            ist_fail(err, IST_E_MEMORY, "out of memory for a message of %llu bytes",
                     (unsigned long long)c->reader.body_size);
            return false;
        }
        long n = ist_net_read(c->fd, at, count, err);
        if (n == 0) return true;
        if (n < 0) {
            if (c->reader.have || c->reader.in_body) {
                ist_live_add(s->o.counts, broken, 1);
                ist_fail_context(err, "in the middle of a message");
            }
            return false;
        }
        double now = ist_clock_ms();
        event = ist_igtl_filled(&c->reader, (size_t)n, err);
        switch (event) {
        case IST_IGTL_IMAGE:
            take_image(s, c, now);
            break;
        case IST_IGTL_OTHER:
            ist_live_add(s->o.counts, ignored, 1);
            break;
        case IST_IGTL_BAD_CRC:
            ist_live_add(s->o.counts, bad_crc, 1);
            if (!c->told_crc)
                ist_source_say(s, "device '%s': a message of type %s has a wrong checksum; left out", c->reader.device,
                               c->reader.type);
            c->told_crc = true;
            break;
        case IST_IGTL_BROKEN:
            ist_live_add(s->o.counts, broken, 1);
            return false;
        default:
            break;
        }
    }
    return true;
}

/* ---- a client ---- */

static void follow(ist_live_source *s, sender *c, ist_error *err) {
    while (!atomic_load(&s->stop))
        if (ist_net_readable(c->fd, IST_NET_STEP_MS) && !read_some(s, c, err)) return;
}

ist_status ist_source_run_client(ist_live_source *s, ist_error *err) {
    const ist_net_address *a = &s->o.spec.address;
    double backoff = BACKOFF_MS;
    char last[sizeof err->text] = "";
    while (!atomic_load(&s->stop)) {
        sender c = {.fd = -1};
        ist_status status = ist_net_connect(a, &s->stop, &c.fd, err);
        if (!status) {
            uint64_t before = s->received;
            ist_live_add(s->o.counts, connects, 1);
            s->o.connected(s->o.arg, true);
            ist_source_say(s, "connected to %s:%d", *a->host ? a->host : "127.0.0.1", a->port);
            follow(s, &c, err);
            s->o.connected(s->o.arg, false);
            if (s->received > before) backoff = BACKOFF_MS; /* a side that talks nonsense is not asked in a hurry */
            *last = '\0';
        }
        close_sender(&c);
        if (atomic_load(&s->stop)) break;
        if (strcmp(last, err->text)) ist_source_say(s, "%s; trying again", err->text);
        memcpy(last, err->text, sizeof last);
        if (!ist_source_sleep(s, backoff)) break;
        backoff = 2 * backoff < MAX_BACKOFF_MS ? 2 * backoff : MAX_BACKOFF_MS;
    }
    return IST_OK;
}

/* ---- a listener ---- */

static void accept_sender(ist_live_source *s, sender *senders, int *count) {
    int fd = ist_net_accept(s->listener);
    if (fd < 0) return;
    if (*count == SENDERS) {
        close(fd);
        ist_source_say(s, "%d senders are connected, another one was turned away", SENDERS);
        return;
    }
    senders[(*count)++] = (sender){.fd = fd};
    ist_live_add(s->o.counts, connects, 1);
    s->o.connected(s->o.arg, true);
}

ist_status ist_source_run_listener(ist_live_source *s, ist_error *err) {
    sender senders[SENDERS];
    struct pollfd polled[SENDERS + 1];
    int count = 0;
    while (!atomic_load(&s->stop)) {
        polled[0] = (struct pollfd){.fd = s->listener, .events = POLLIN};
        for (int i = 0; i < count; i++) polled[1 + i] = (struct pollfd){.fd = senders[i].fd, .events = POLLIN};
        if (poll(polled, (nfds_t)(1 + count), IST_NET_STEP_MS) <= 0) continue;
        for (int i = count - 1; i >= 0; i--) {
            if (!polled[1 + i].revents || read_some(s, &senders[i], err)) continue;
            ist_source_say(s, "a sender is gone: %s", err->text);
            close_sender(&senders[i]);
            senders[i] = senders[--count];
            s->o.connected(s->o.arg, false);
        }
        if (polled[0].revents) accept_sender(s, senders, &count);
    }
    while (count) close_sender(&senders[--count]);
    return IST_OK;
}

#else

ist_status ist_source_run_client(ist_live_source *s, ist_error *err) {
    (void)s;
    return ist_fail(err, IST_E_UNSUPPORTED, "built without OpenIGTLink");
}

ist_status ist_source_run_listener(ist_live_source *s, ist_error *err) {
    (void)s;
    return ist_fail(err, IST_E_UNSUPPORTED, "built without OpenIGTLink");
}

#endif
