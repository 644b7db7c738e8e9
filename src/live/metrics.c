/* See metrics.h. */
#include "live/metrics.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONNECTIONS = 8, IDLE_S = 5, MEMORY = 8192 /* of a connection: more of a request is refused */ };

struct ist_live_metrics {
    struct MHD_Daemon *daemon;
    ist_live_counts *counts;
};

/* MHD_NO closes the connection. */
static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *upload, size_t *upload_size, void **request) {
    const ist_live_metrics *m = context;
    static const char hint[] = "GET /metrics\n";
    bool found = !strcmp(url, "/metrics") && !strcmp(method, MHD_HTTP_METHOD_GET);
    ist_text body = {0};
    (void)version, (void)upload, (void)upload_size, (void)request;
    if (found)
        ist_live_counts_metrics(m->counts, &body);
    else
        ist_text_put(&body, hint);
    struct MHD_Response *response =
        body.failed ? NULL : MHD_create_response_from_buffer(body.length, body.data, MHD_RESPMEM_MUST_COPY);
    ist_text_free(&body);
    if (!response) return MHD_NO;
    enum MHD_Result queued = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                                     "text/plain; version=0.0.4; charset=utf-8");
    if (queued == MHD_YES)
        queued = MHD_queue_response(connection, found ? MHD_HTTP_OK : MHD_HTTP_NOT_FOUND, response);
    MHD_destroy_response(response);
    return queued;
}

ist_status ist_live_metrics_open(const ist_net_address *address, ist_live_counts *counts, ist_live_metrics **metrics,
                                 int *port, ist_error *err) {
    int listener;
    *metrics = NULL;
    IST_TRY(ist_net_listen(address, &listener, port, err));
    ist_live_metrics *m = calloc(1, sizeof *m);
    if (m) {
        m->counts = counts;
        m->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, answer, m, MHD_OPTION_LISTEN_SOCKET,
                                     listener, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
                                     MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
                                     MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY, MHD_OPTION_END);
    }
    if (m && m->daemon) {
        *metrics = m;
        return IST_OK;
    }
    close(listener);
    free(m);
    return ist_fail(err, IST_E_MEMORY, "metrics: no server to be had");
}

void ist_live_metrics_close(ist_live_metrics **metrics) {
    if (!metrics || !*metrics) return;
    MHD_stop_daemon((*metrics)->daemon); /* closes the socket, too */
    free(*metrics);
    *metrics = NULL;
}
