/* Where results go: see live.h. Clients of OpenIGTLink have one thread and files another, each with a queue of its own,
 * so that a disk that is slow holds up no client. */
#include "live.h"

#include "base/clock.h"
#include "io/outline.h"
#include "io/overlay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESULTS_WAITING = 2, FLUSH_MS = 2000, STATUS_OK = 1, STATUS_LOST = 7, MAX_STRING = 65535 };

typedef enum sink_kind { SINK_SERVER, SINK_LINES, SINK_FOLDER } sink_kind;

typedef struct sink {
    sink_kind kind;
    const char *name; /* as it was given */
    ist_live_server *server;
    FILE *stream;          /* lines: standard output or a file, which grows as they come */
    ist_atomic_file index; /* of a folder */
    const char *folder;
} sink;

/* A thread with the sinks that it serves. */
typedef struct outlet {
    live_publisher *publisher;
    ist_live_queue queue;
    pthread_t thread;
    bool started;
    sink sinks[LIVE_MAX_SINKS];
    int count;
} outlet;

struct live_publisher {
    const live_options *options;
    const ist_labels *labels;
    ist_live_counts *counts;
    outlet net, files;
    pthread_mutex_t lock;
    ist_error failure; /* of a file */
    /* room that is kept from frame to frame, of the net's thread */
    ist_outline outline;
    ist_text line;
};

/* ---- what is said of a frame ---- */

/* JSON members that follow "file". */
static void put_stream(const ist_live_frame *f, ist_text *out) {
    uint64_t nanoseconds = ((f->timestamp & UINT32_MAX) * UINT64_C(1000000000)) >> 32;
    ist_text_put(out, ",\"device\":");
    ist_text_json_string(out, f->device);
    ist_text_printf(out, ",\"number\":%llu,\"timestamp\":%llu.%09llu", (unsigned long long)f->number,
                    (unsigned long long)(f->timestamp >> 32), (unsigned long long)nanoseconds);
}

static ist_status put_line(const live_publisher *p, const live_result *r, const ist_frame *found, bool rle,
                           ist_text *line, ist_error *err) {
    ist_text stream = {0};
    put_stream(r->frame, &stream);
    IST_TRY(ist_text_status(&stream, err));
    const ist_record record = {.file = r->frame->file ? r->frame->file : r->frame->device,
                               .frame = found,
                               .labels = p->labels,
                               .match = p->options->engine.track ? IST_MATCH_TRACKS : IST_MATCH_NONE,
                               .masks = p->options->engine.masks,
                               .no_rle = !rle,
                               .stream = stream.data};
    ist_text_clear(line);
    ist_status status = ist_record_line(&record, line, err);
    ist_text_free(&stream);
    return status;
}

/* ---- OpenIGTLink ---- */

#ifdef ISTHMUS_OPENIGTLINK

static const char *const suffixes[] = {
#define X(id, name, suffix) suffix,
    LIVE_SENDS(X)
#undef X
};

/* A STRING has room for 64 KiB: where the objects need more, those of the lowest scores are left out and counted. */
static ist_status put_string(live_publisher *p, const live_result *r, ist_text *out, ist_error *err) {
    ist_frame found = r->found;
    IST_TRY(put_line(p, r, &found, false, &p->line, err));
    while (p->line.length > MAX_STRING && found.object_count) {
        int left_out = found.object_count - found.object_count / 2;
        found.object_count -= left_out;
        found.dropped += left_out;
        IST_TRY(put_line(p, r, &found, false, &p->line, err));
    }
    return ist_igtl_put_string(out, r->frame, suffixes[LIVE_SEND_BIT_STRING], p->line.data, p->line.length, err);
}

static ist_status put_labels(const live_result *r, ist_text *out, ist_error *err) {
    ist_bitmap map;
    IST_TRY(ist_record_instance_map(&r->found, &map, err));
    ist_status status = ist_igtl_put_image(out, r->frame, suffixes[LIVE_SEND_BIT_LABELS], &map, err);
    ist_bitmap_free(&map);
    return status;
}

static int color_key(const live_publisher *p, const ist_object *o) {
    return p->options->engine.track && o->match > 0 ? o->match : o->label;
}

/* Upper left and lower right corner of every box. */
static ist_status put_boxes(const live_publisher *p, const live_result *r, ist_text *out, ist_error *err) {
    size_t count = 2 * (size_t)r->found.object_count;
    ist_igtl_point *points = calloc(count ? count : 1, sizeof *points);
    if (!points) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu points", count);
    for (size_t i = 0; i < count; i++) {
        const ist_object *o = &r->found.objects[i / 2];
        char number[16];
        points[i].x = o->box[2 * (i % 2)];
        points[i].y = o->box[2 * (i % 2) + 1];
        ist_overlay_color(color_key(p, o), points[i].color);
        snprintf(points[i].name, sizeof points[i].name, "%zu %.40s %s", i / 2,
                 ist_label_name(p->labels, o->label, number), i % 2 ? "lower right" : "upper left");
    }
    ist_status status = ist_igtl_put_points(out, r->frame, suffixes[LIVE_SEND_BIT_BOXES], points, count, err);
    free(points);
    return status;
}

static ist_status put_contours(live_publisher *p, const live_result *r, ist_text *out, ist_error *err) {
    ist_outline *o = &p->outline;
    ist_outline_clear(o);
    for (int i = 0; i < r->found.object_count; i++) IST_TRY(ist_outline_add(o, &r->found.objects[i].mask, err));
    return ist_igtl_put_loops(out, r->frame, suffixes[LIVE_SEND_BIT_CONTOURS], (const float(*)[2])o->corners, o->counts,
                              o->count, err);
}

static ist_status put_overlay(const live_publisher *p, const live_result *r, ist_text *out, ist_error *err) {
    ist_bitmap drawn;
    const ist_overlay_view view = {.labels = p->labels,
                                   .match = p->options->engine.track ? IST_MATCH_TRACKS : IST_MATCH_NONE};
    IST_TRY(ist_overlay_draw(&r->frame->image, &r->found, &view, &drawn, err));
    ist_status status = ist_igtl_put_image(out, r->frame, suffixes[LIVE_SEND_BIT_OVERLAY], &drawn, err);
    ist_bitmap_free(&drawn);
    return status;
}

static ist_status put_part(live_publisher *p, const live_result *r, int part, ist_text *out, ist_error *err) {
    switch (part) {
    case LIVE_SEND_BIT_LABELS:
        return put_labels(r, out, err);
    case LIVE_SEND_BIT_STRING:
        return put_string(p, r, out, err);
    case LIVE_SEND_BIT_BOXES:
        return put_boxes(p, r, out, err);
    case LIVE_SEND_BIT_CONTOURS:
        return put_contours(p, r, out, err);
    default:
        return put_overlay(p, r, out, err);
    }
}

/* The same bytes to all servers; whether some client gets them. */
static bool send_all(live_publisher *p, const ist_text *bytes, uint64_t number, double arrived_ms) {
    bool any = false;
    for (int i = 0; i < p->net.count; i++) {
        ist_text copy = {0};
        ist_text_add(&copy, bytes->data, bytes->length);
        ist_live_blob *blob = copy.failed ? NULL : ist_live_blob_new(&copy, number, i ? 0 : arrived_ms);
        if (blob) any |= ist_live_server_send(p->net.sinks[i].server, blob);
    }
    return any;
}

/* Small parts first: what a client waits for is on its way while the image's checksum is computed. */
static void send_result(live_publisher *p, const live_result *r) {
    static const int order[] = {LIVE_SEND_BIT_STRING, LIVE_SEND_BIT_BOXES, LIVE_SEND_BIT_CONTOURS, LIVE_SEND_BIT_LABELS,
                                LIVE_SEND_BIT_OVERLAY};
    bool any = false, first = true;
    ist_error err;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        ist_text out = {0};
        if (!(p->options->send >> order[i] & 1)) continue;
        if (put_part(p, r, order[i], &out, &err))
            cli_note("live: frame %llu: %s", (unsigned long long)r->frame->number, err.text);
        else
            any |= send_all(p, &out, r->frame->number, first ? r->frame->arrived_ms : 0);
        ist_text_free(&out);
        first = false;
    }
    if (!any) ist_live_counts_time(p->counts, ist_clock_ms() - r->frame->arrived_ms);
}

void live_publisher_tell(live_publisher *p, bool connected) {
    ist_text out = {0};
    ist_error err;
    if (!ist_igtl_put_status(&out, "isthmus", connected ? STATUS_OK : STATUS_LOST,
                             connected ? "source connected" : "source lost", &err))
        send_all(p, &out, 0, 0);
    ist_text_free(&out);
}

static ist_status open_server(live_publisher *p, const char *address, sink *s, ist_error *err) {
    ist_net_address at;
    ist_text hello = {0};
    int port;
    IST_TRY(ist_net_parse(address, &at, err));
    IST_TRY(ist_igtl_put_status(&hello, "isthmus", STATUS_OK, "isthmus", err));
    ist_live_blob *greeting = ist_live_blob_new(&hello, 0, 0);
    if (!greeting) return ist_fail(err, IST_E_MEMORY, "out of memory");
    IST_TRY(ist_live_server_open(&at, p->options->no_drop, p->counts, greeting, &s->server, &port, err));
    cli_note("live: results are served on %s:%d", *at.host ? at.host : "127.0.0.1", port);
    return IST_OK;
}

#else

static void send_result(live_publisher *p, const live_result *r) {
    (void)p, (void)r;
}

void live_publisher_tell(live_publisher *p, bool connected) {
    (void)p, (void)connected;
}

static ist_status open_server(live_publisher *p, const char *address, sink *s, ist_error *err) {
    (void)p, (void)s;
    return ist_fail(err, IST_E_UNSUPPORTED, "%s: this isthmus was built without OpenIGTLink", address);
}

#endif

/* ---- files ---- */

static ist_status write_line(FILE *stream, const char *name, const ist_text *line, bool now, ist_error *err) {
    bool fine = fwrite(line->data, 1, line->length, stream) == line->length && putc('\n', stream) != EOF;
    if (fine && now) fine = !fflush(stream);
    return fine ? IST_OK : ist_fail(err, IST_E_IO, "%s: %s", name, strerror(errno));
}

static ist_status write_map(const live_publisher *p, const char *folder, const live_result *r, ist_error *err) {
    char name[48];
    ist_bitmap map;
    if (!p->options->engine.masks) return IST_OK;
    IST_TRY(ist_record_instance_map(&r->found, &map, err));
    snprintf(name, sizeof name, "masks/%08llu.png", (unsigned long long)r->frame->number);
    ist_atomic_file file;
    ist_status status = ist_atomic_begin_in(&file, folder, name, err);
    if (!status) {
        file.lazy = true;
        status = ist_png_write_stream(file.stream, name, &map, err);
        if (status)
            ist_atomic_abort(&file);
        else
            status = ist_atomic_commit(&file, err);
    }
    ist_bitmap_free(&map);
    return status;
}

static ist_status write_result(live_publisher *p, const live_result *r, ist_text *line, ist_error *err) {
    IST_TRY(put_line(p, r, &r->found, true, line, err));
    for (int i = 0; i < p->files.count; i++) {
        const sink *s = &p->files.sinks[i];
        bool folder = s->kind == SINK_FOLDER;
        IST_TRY(write_line(folder ? s->index.stream : s->stream, s->name, line, !folder, err));
        if (folder) IST_TRY(write_map(p, s->folder, r, err));
    }
    return IST_OK;
}

static ist_status open_file(const char *to, sink *s, ist_error *err) {
    static const char lines[] = "ndjson:";
    if (!strncmp(to, lines, strlen(lines))) {
        const char *path = to + strlen(lines);
        if (!*path) return ist_fail(err, IST_E_ARGUMENT, "'%s' names no file", to);
        s->kind = SINK_LINES;
        s->stream = strcmp(path, "-") ? fopen(path, "w") : stdout;
        return s->stream ? IST_OK : ist_fail(err, IST_E_IO, "%s: %s", path, strerror(errno));
    }
    if (strstr(to, "://"))
        return ist_fail(err, IST_E_ARGUMENT, "'%s' is none of igtl-listen://, ndjson: and a folder", to);
    s->kind = SINK_FOLDER;
    s->folder = to;
    return ist_atomic_begin_in(&s->index, to, "frames.ndjson", err);
}

/* ---- threads ---- */

static void fail(live_publisher *p, const ist_error *err) {
    pthread_mutex_lock(&p->lock);
    if (!p->failure.code) p->failure = *err;
    pthread_mutex_unlock(&p->lock);
    ist_live_queue_stop(&p->files.queue); /* so that nobody waits for it */
}

static void *serve_net(void *context) {
    outlet *o = context;
    for (live_result *r; (r = ist_live_queue_take(&o->queue, true)); live_result_drop(r)) send_result(o->publisher, r);
    return NULL;
}

static void *serve_files(void *context) {
    outlet *o = context;
    ist_text line = {0};
    ist_error err;
    bool alone = !o->publisher->net.count;
    for (live_result *r; (r = ist_live_queue_take(&o->queue, true)); live_result_drop(r)) {
        if (write_result(o->publisher, r, &line, &err)) fail(o->publisher, &err);
        if (alone) ist_live_counts_time(o->publisher->counts, ist_clock_ms() - r->frame->arrived_ms);
    }
    ist_text_free(&line);
    return NULL;
}

static void put(live_publisher *p, outlet *o, live_result *result) {
    if (!o->count) return;
    atomic_fetch_add_explicit(&result->references, 1, memory_order_relaxed);
    if (ist_live_queue_put(&o->queue, result)) ist_live_add(p->counts, unsent, 1);
}

void live_publish(live_publisher *p, live_result *result) {
    put(p, &p->net, result);
    put(p, &p->files, result);
}

bool live_publisher_failed(live_publisher *p, ist_error *err) {
    pthread_mutex_lock(&p->lock);
    *err = p->failure;
    pthread_mutex_unlock(&p->lock);
    return err->code != IST_OK;
}

static int open_sink(live_publisher *p, const char *to) {
    static const char server[] = "igtl-listen://";
    bool serves = !strncmp(to, server, strlen(server));
    outlet *o = serves ? &p->net : &p->files;
    sink *s = &o->sinks[o->count];
    ist_error err;
    *s = (sink){.name = to};
    ist_status status = serves ? open_server(p, to + strlen(server), s, &err) : open_file(to, s, &err);
    if (!status) o->count++;
    if (status == IST_E_ARGUMENT) return cli_usage("live", "--to: %s", err.text);
    return status ? cli_fail(CLI_FAILED, "live: --to: %s", err.text) : CLI_SUCCESS;
}

static bool start_outlet(live_publisher *p, outlet *o, void *(*serve)(void *)) {
    o->publisher = p;
    if (o->count) o->started = !pthread_create(&o->thread, NULL, serve, o);
    return o->started || !o->count;
}

int live_publisher_open(const live_options *options, const ist_labels *labels, ist_live_counts *counts,
                        live_publisher **publisher) {
    live_publisher *p = calloc(1, sizeof *p);
    if (!p || pthread_mutex_init(&p->lock, NULL) ||
        !ist_live_queue_open(&p->net.queue, RESULTS_WAITING, options->no_drop, live_result_drop) ||
        !ist_live_queue_open(&p->files.queue, RESULTS_WAITING, options->no_drop, live_result_drop))
        return cli_fail(CLI_FAILED, "live: out of memory");
    *publisher = p;
    p->options = options;
    p->labels = labels;
    p->counts = counts;
    int code = CLI_SUCCESS;
    for (int i = 0; i < options->to_count && !code; i++) code = open_sink(p, options->to[i]);
    if (!code && (!start_outlet(p, &p->net, serve_net) || !start_outlet(p, &p->files, serve_files)))
        code = cli_fail(CLI_FAILED, "live: no thread to be had");
    return code;
}

static void close_outlet(outlet *o) {
    ist_live_queue_end(&o->queue);
    if (o->started) pthread_join(o->thread, NULL);
    ist_live_queue_close(&o->queue);
}

static int close_sink(live_publisher *p, sink *s) {
    ist_error err;
    ist_status status = IST_OK;
    ist_live_server_close(&s->server, FLUSH_MS);
    if (s->stream && s->stream != stdout && fclose(s->stream))
        status = ist_fail(&err, IST_E_IO, "%s: %s", s->name, strerror(errno));
    if (s->kind == SINK_FOLDER && p->failure.code) ist_atomic_abort(&s->index);
    if (s->kind == SINK_FOLDER && !p->failure.code) status = ist_atomic_commit(&s->index, &err);
    return status ? cli_fail(CLI_FAILED, "live: %s", err.text) : CLI_SUCCESS;
}

int live_publisher_close(live_publisher **publisher) {
    if (!publisher || !*publisher) return CLI_SUCCESS;
    live_publisher *p = *publisher;
    int code = CLI_SUCCESS;
    close_outlet(&p->net);
    close_outlet(&p->files);
    for (int i = 0; i < p->net.count; i++) code |= close_sink(p, &p->net.sinks[i]);
    for (int i = 0; i < p->files.count; i++) code |= close_sink(p, &p->files.sinks[i]);
    if (p->failure.code && !code) code = cli_fail(CLI_FAILED, "live: %s", p->failure.text);
    ist_outline_free(&p->outline);
    ist_text_free(&p->line);
    pthread_mutex_destroy(&p->lock);
    free(p);
    *publisher = NULL;
    return code;
}
