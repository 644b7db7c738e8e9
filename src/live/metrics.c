/* See metrics.h. */
#include "live/metrics.h"

#include "base/clock.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REQUEST_BYTES = 4096, REQUEST_MS = 1000 };

struct ist_live_metrics {
    pthread_t thread;
    atomic_bool stop;
    int listener;
    ist_live_counts *counts;
};

/* Reads to the empty line; false when there is none in time. */
static bool read_request(const ist_live_metrics *m, int fd, char *request) {
    double until = ist_clock_ms() + REQUEST_MS;
    size_t have = 0;
    ist_error err;
    while (have < REQUEST_BYTES && ist_clock_ms() < until && !atomic_load(&m->stop)) {
        if (!ist_net_readable(fd, IST_NET_STEP_MS)) continue;
        long n = ist_net_read(fd, request + have, REQUEST_BYTES - have, &err);
        if (n < 0) return false;
        have += (size_t)n;
        request[have] = '\0';
        if (strstr(request, "\r\n\r\n") || strstr(request, "\n\n")) return true;
    }
    return false;
}

static void write_all(const ist_live_metrics *m, int fd, const char *bytes, size_t count) {
    double until = ist_clock_ms() + REQUEST_MS;
    while (count && ist_clock_ms() < until && !atomic_load(&m->stop)) {
        long n = ist_net_write(fd, bytes, count);
        if (n < 0) return;
        if (n == 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        bytes += n, count -= (size_t)n;
    }
}

static void answer(ist_live_metrics *m, int fd) {
    char request[REQUEST_BYTES + 1] = "";
    ist_text body = {0}, out = {0};
    if (!read_request(m, fd, request)) return;
    bool found = !strncmp(request, "GET /metrics ", 13) || !strncmp(request, "GET /metrics?", 13);
    if (found)
        ist_live_counts_metrics(m->counts, &body);
    else
        ist_text_put(&body, "GET /metrics\n");
    ist_text_printf(&out,
                    "HTTP/1.0 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: %zu\r\n"
                    "Connection: close\r\n\r\n",
                    found ? "200 OK" : "404 Not Found", body.length);
    ist_text_add(&out, body.data, body.length);
    if (!body.failed && !out.failed) write_all(m, fd, out.data, out.length);
    ist_text_free(&body);
    ist_text_free(&out);
}

static void *run(void *context) {
    ist_live_metrics *m = context;
    while (!atomic_load(&m->stop)) {
        if (!ist_net_readable(m->listener, IST_NET_STEP_MS)) continue;
        int fd = ist_net_accept(m->listener);
        if (fd < 0) continue;
        answer(m, fd);
        close(fd);
    }
    return NULL;
}

ist_status ist_live_metrics_open(const ist_net_address *address, ist_live_counts *counts, ist_live_metrics **metrics,
                                 int *port, ist_error *err) {
    *metrics = NULL;
    ist_live_metrics *m = calloc(1, sizeof *m);
    if (!m) return ist_fail(err, IST_E_MEMORY, "metrics: out of memory");
    atomic_init(&m->stop, false);
    m->counts = counts;
    ist_status status = ist_net_listen(address, &m->listener, port, err);
    if (!status && pthread_create(&m->thread, NULL, run, m)) {
        close(m->listener);
        status = ist_fail(err, IST_E_MEMORY, "metrics: no thread");
    }
    if (status)
        free(m);
    else
        *metrics = m;
    return status;
}

void ist_live_metrics_close(ist_live_metrics **metrics) {
    if (!metrics || !*metrics) return;
    atomic_store(&(*metrics)->stop, true);
    pthread_join((*metrics)->thread, NULL);
    close((*metrics)->listener);
    free(*metrics);
    *metrics = NULL;
}
