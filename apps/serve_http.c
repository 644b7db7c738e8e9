/* Connections of the page (libmicrohttpd), on the caller's thread: see serve.h.
 *
 * A page of another site cannot reach this one: by DNS rebinding its requests come with a name in Host, which must be
 * an address, localhost or the host that --serve names; by forms or scripts with an Origin, which must be this one. */
#include "serve.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct serve_server {
    serve *serve;
    struct MHD_Daemon *daemon;
    char policy[512];
};

/* What is known of a request between the calls for it. */
typedef struct request {
    serve_route route;
    char *body;
    size_t size;
    bool too_large;
} request;

static const char *header(struct MHD_Connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* The host of "HOST:PORT", without brackets; false when there is none. */
static bool host_of(const char *value, char *host, size_t size) {
    bool bracket = value && *value == '[';
    const char *from = value ? value + bracket : "";
    size_t n = strcspn(from, bracket ? "]" : ":");
    if (!n || n >= size) return false;
    memcpy(host, from, n);
    host[n] = '\0';
    return true;
}

static bool knows_host(const serve_address *a, const char *value) {
    unsigned char address[16];
    char host[256];
    if (!host_of(value, host, sizeof host)) return false;
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1 ||
           !strcasecmp(host, "localhost") || !strcasecmp(host, a->host);
}

/* The origin is the page's own, or that of no page. */
static bool is_own_origin(const char *origin, const char *host) {
    static const char scheme[] = "http://";
    if (!origin) return true;
    return !strncasecmp(origin, scheme, sizeof scheme - 1) && !strcasecmp(origin + sizeof scheme - 1, host);
}

static enum MHD_Result add_headers(const serve_server *server, struct MHD_Response *response, const serve_answer *a) {
    const struct {
        const char *name, *value;
    } list[] = {{MHD_HTTP_HEADER_CONTENT_TYPE, a->type},     {"Content-Security-Policy", server->policy},
                {"X-Content-Type-Options", "nosniff"},       {"X-Frame-Options", "DENY"},
                {"Referrer-Policy", "no-referrer"},          {"Cross-Origin-Resource-Policy", "same-origin"},
                {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"}, {MHD_HTTP_HEADER_ALLOW, a->allow}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].value && MHD_add_response_header(response, list[i].name, list[i].value) != MHD_YES) return MHD_NO;
    return MHD_YES;
}

/* MHD_NO closes the connection. */
static enum MHD_Result respond(const serve_server *server, struct MHD_Connection *connection, serve_answer a) {
    if (!a.status || !a.body) return MHD_NO; /* out of memory */
    struct MHD_Response *response = MHD_create_response_from_buffer(a.size, a.body, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(a.body);
        return MHD_NO;
    }
    enum MHD_Result queued = add_headers(server, response, &a);
    if (queued == MHD_YES) queued = MHD_queue_response(connection, a.status, response);
    MHD_destroy_response(response);
    return queued;
}

/* What can be refused before the body has come; status 0 when nothing is. */
static serve_answer check(const serve *s, struct MHD_Connection *connection, const char *method, const char *url,
                          request *r) {
    const char *host = header(connection, MHD_HTTP_HEADER_HOST);
    const char *length = header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (!knows_host(&s->address, host))
        return serve_refuse(403, "the name in Host is not that of this server; open http://%s:%d/", s->address.shown,
                            s->address.port);
    if (!is_own_origin(header(connection, MHD_HTTP_HEADER_ORIGIN), host))
        return serve_refuse(403, "pages of other sites are not answered");
    if (length && strtoull(length, NULL, 10) > SERVE_BODY)
        return serve_refuse(413, "a request of more than %d bytes", SERVE_BODY);
    return serve_find_route(s, method, url, &r->route);
}

/* Keeps more of the body; what exceeds the limit is dropped, for a while. */
static enum MHD_Result take(request *r, const char *bytes, size_t count) {
    r->too_large = r->too_large || count > SERVE_BODY - r->size;
    if (r->too_large) {
        r->size += count; /* of what came: nobody sends for ever */
        return r->size > 4 * (size_t)SERVE_BODY ? MHD_NO : MHD_YES;
    }
    char *body = realloc(r->body, r->size + count);
    if (!body) return MHD_NO;
    memcpy(body + r->size, bytes, count);
    r->body = body;
    r->size += count;
    return MHD_YES;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *bytes, size_t *count, void **state) {
    const serve_server *server = context;
    request *r = *state;
    (void)version;
    if (!r) {
        if (!(r = *state = calloc(1, sizeof *r))) return MHD_NO;
        serve_answer refused = check(server->serve, connection, method, url, r);
        return refused.status ? respond(server, connection, refused) : MHD_YES;
    }
    if (*count) {
        size_t n = *count;
        *count = 0;
        return take(r, bytes, n);
    }
    if (r->too_large)
        return respond(server, connection, serve_refuse(413, "a request of more than %d bytes", SERVE_BODY));
    return respond(server, connection, serve_respond(server->serve, &r->route, r->body ? r->body : "", r->size));
}

static void forget(void *context, struct MHD_Connection *connection, void **state,
                   enum MHD_RequestTerminationCode why) {
    request *r = *state;
    (void)context, (void)connection, (void)why;
    if (r) free(r->body);
    free(r);
    *state = NULL;
}

ist_status serve_start(serve *s, serve_server **out, ist_error *err) {
    serve_server *server = calloc(1, sizeof *server);
    if (!server) return ist_fail(err, IST_E_MEMORY, "out of memory for the server");
    ist_status status = serve_page_policy(server->policy, sizeof server->policy, err);
    server->serve = s;
    if (!status) {
        server->daemon =
            MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, handle, server, MHD_OPTION_LISTEN_SOCKET, s->address.socket,
                             MHD_OPTION_CONNECTION_LIMIT, (unsigned)SERVE_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                             (unsigned)SERVE_IDLE, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)32 * 1024,
                             MHD_OPTION_NOTIFY_COMPLETED, forget, NULL, MHD_OPTION_END);
        if (!server->daemon) status = ist_fail(err, IST_E_IO, "the server does not start on port %d", s->address.port);
    }
    if (status) {
        free(server);
        return status;
    }
    s->address.socket = -1; /* the daemon's now */
    *out = server;
    return IST_OK;
}

ist_status serve_wait(serve_server *server, ist_error *err) {
    enum { MS = 500 };
    if (MHD_run_wait(server->daemon, MS) != MHD_YES) return ist_fail(err, IST_E_IO, "waiting for requests has failed");
    return IST_OK;
}

void serve_stop(serve_server **server) {
    if (!*server) return;
    MHD_stop_daemon((*server)->daemon);
    free(*server);
    *server = NULL;
}
