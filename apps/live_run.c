/* Frames of a stream through the engine: see live.h.
 *
 * Submitting and receiving are threads of their own, so that a frame goes to the device while the one before is
 * computed and results leave the moment they are there. A frame is taken from the queue when there is room on the
 * device and not before: what waits is the newest. */
#include "frame_copy.h"
#include "live.h"

#include "base/clock.h"
#include "base/mem.h"
#include "live/metrics.h"
#include "live/recording.h"
#include "pipeline/profile.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_IN_FLIGHT = 8, LINE_MS = 1000, STEP_MS = 10 };

typedef struct session {
    const live_options *options;
    predict_job job;
    ist_live_counts counts;
    ist_live_queue input;
    ist_live_source *source;
    ist_live_recording *recording;
    ist_live_metrics *metrics;
    live_publisher *publisher;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ist_live_frame *ring[MAX_IN_FLIGHT]; /* on the device, the oldest at `head` */
    int head, in_flight, most;
    bool all_submitted, all_received;
    double frame_ms; /* what a frame takes from submit to receive, lately */
    bool hinted;     /* at --window; of the submitting thread */
    ist_error failure;
} session;

void live_result_drop(void *result) {
    live_result *r = result;
    if (!r || atomic_fetch_sub_explicit(&r->references, 1, memory_order_acq_rel) > 1) return;
    ist_live_frame_drop(r->frame);
    free(r);
}

/* ---- what the source says, on its thread ---- */

static void on_frame(void *arg, ist_live_frame *frame) {
    session *s = arg;
    if (s->options->limit && frame->number > (uint64_t)s->options->limit) {
        ist_live_frame_drop(frame);
        return;
    }
    ist_live_add(&s->counts, received, 1);
    bool last = s->options->limit && frame->number == (uint64_t)s->options->limit;
    if (s->recording) ist_live_recording_put(s->recording, frame);
    int dropped = ist_live_queue_put(&s->input, frame);
    if (dropped) ist_live_add(&s->counts, dropped, 1);
    if (last) ist_live_queue_end(&s->input);
}

static void on_words(void *arg, const char *sentence) {
    (void)arg;
    cli_note("live: %s", sentence);
}

static void on_connection(void *arg, bool yes) {
    live_publisher_tell(((session *)arg)->publisher, yes);
}

/* The first failure counts; the run then ends. */
static void fail(session *s, const ist_error *err) {
    pthread_mutex_lock(&s->lock);
    if (!s->failure.code) s->failure = *err;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    ist_live_queue_stop(&s->input);
}

static void on_end(void *arg, const ist_error *failure) {
    session *s = arg;
    if (failure) fail(s, failure);
    ist_live_queue_end(&s->input);
}

/* ---- submitting ---- */

/* Waits until the device has room; false when the run has failed. */
static bool wait_for_room(session *s) {
    pthread_mutex_lock(&s->lock);
    while (s->in_flight == s->most && !s->failure.code) pthread_cond_wait(&s->changed, &s->lock);
    bool fine = !s->failure.code;
    pthread_mutex_unlock(&s->lock);
    return fine;
}

/* Whether the answer would come too late: those before it, and it, take what frames have taken lately. */
static bool is_late(session *s, const ist_live_frame *frame) {
    double deadline = (double)s->options->deadline_ms;
    pthread_mutex_lock(&s->lock);
    bool late = deadline > 0 && ist_clock_ms() - frame->arrived_ms + s->frame_ms > deadline;
    pthread_mutex_unlock(&s->lock);
    return late;
}

static bool is_fatal(ist_status status) {
    return status == IST_E_DEVICE || status == IST_E_BUILD || status == IST_E_NO_DEVICE || status == IST_E_STATE;
}

/* Of the first frame of 16 bits that goes through no window: what it has of 65536 values, where that is little. */
static void hint_at_window(session *s, const ist_bitmap *image) {
    enum { FEW = 8192 }; /* 32 of 256 grays */
    if (s->hinted || s->options->engine.window || ist_format_bytes(image->format) != 2) return;
    s->hinted = true;
    const uint16_t *p = image->pixels;
    const size_t count = (size_t)image->width * (size_t)image->height * (size_t)ist_format_channels(image->format);
    uint16_t low = UINT16_MAX, high = 0;
    for (size_t i = 0; i < count; i++) {
        if (p[i] < low) low = p[i];
        if (p[i] > high) high = p[i];
    }
    const double step = image->value_step != 0 ? image->value_step : 1,
                 zero = image->value_step != 0 ? image->value_zero : 0;
    if (high - low < FEW)
        cli_note("live: the first frame of 16 bits has values from %.9g to %.9g: --window auto or LOW:HIGH shows more "
                 "of them",
                 zero + step * low, zero + step * high);
}

static void submit(session *s, ist_live_frame *frame) {
    ist_image image = {.width = frame->image.width,
                       .height = frame->image.height,
                       .format = frame->image.format,
                       .stride = frame->image.stride,
                       .pixels = frame->image.pixels,
                       .tag = frame->number,
                       .timestamp = frame->timestamp};
    ist_error err;
    ist_status status =
        predict_set_window(&s->options->engine, &frame->image, frame->file ? frame->file : frame->device, &image, &err);
    hint_at_window(s, &frame->image);
    if (!status) status = ist_submit(s->job.engine, &image, 1, &err);
    if (status) {
        ist_live_add(&s->counts, failed, 1);
        if (is_fatal(status))
            fail(s, &err);
        else
            cli_note("live: frame %llu: %s", (unsigned long long)frame->number, err.text);
        ist_live_frame_drop(frame);
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->ring[(s->head + s->in_flight++) % MAX_IN_FLIGHT] = frame;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void *submit_all(void *context) {
    session *s = context;
    while (wait_for_room(s)) {
        ist_live_frame *frame = ist_live_queue_take(&s->input, true);
        if (!frame) break;
        if (!is_late(s, frame)) {
            submit(s, frame);
            continue;
        }
        ist_live_add(&s->counts, late, 1);
        ist_live_frame_drop(frame);
    }
    pthread_mutex_lock(&s->lock);
    s->all_submitted = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- receiving ---- */

/* With the frame in one block behind the result. */
static live_result *copy_result(const ist_result *result, ist_live_frame *frame) {
    const ist_frame *found = &result->frames[0];
    live_result *r = malloc(sizeof *r + frame_copy_bytes(found));
    if (!r) return NULL;
    atomic_init(&r->references, 1);
    r->frame = frame;
    frame_copy(found, r + 1, &r->found);
    r->transfers = result->transfers;
    return r;
}

/* The oldest frame on the device; NULL when none will come any more. */
static ist_live_frame *wait_for_frame(session *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->in_flight && !s->all_submitted) pthread_cond_wait(&s->changed, &s->lock);
    ist_live_frame *frame = s->in_flight ? s->ring[s->head] : NULL;
    pthread_mutex_unlock(&s->lock);
    return frame;
}

static void free_place(session *s, double frame_ms) {
    pthread_mutex_lock(&s->lock);
    s->head = (s->head + 1) % MAX_IN_FLIGHT;
    s->in_flight--;
    if (frame_ms > 0) s->frame_ms = s->frame_ms > 0 ? 0.75 * s->frame_ms + 0.25 * frame_ms : frame_ms;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void receive(session *s, ist_live_frame *frame, double busy_before) {
    const ist_result *result = NULL;
    live_result *copy = NULL;
    ist_error err;
    ist_status status = ist_receive(s->job.engine, &result, &err);
    double took = status ? 0 : result->total_ms;
    if (!status && !(copy = copy_result(result, frame)))
        status = ist_fail(&err, IST_E_MEMORY, "frame %llu: out of memory", (unsigned long long)frame->number);
    ist_release(s->job.engine, &result);
    free_place(s, took);
    pthread_mutex_lock(&s->counts.lock);
    s->counts.busy_ms = ist_engine_busy_ms(s->job.engine) - busy_before;
    if (!status)
        s->counts.processed++;
    else
        s->counts.failed++;
    if (!status && s->options->deadline_ms > 0 && ist_clock_ms() - frame->arrived_ms > (double)s->options->deadline_ms)
        s->counts.overdue++;
    pthread_mutex_unlock(&s->counts.lock);
    if (copy) {
        live_publish(s->publisher, copy);
        live_result_drop(copy);
    } else {
        if (is_fatal(status))
            fail(s, &err);
        else
            cli_note("live: %s", err.text);
        ist_live_frame_drop(frame);
    }
}

static void *receive_all(void *context) {
    session *s = context;
    double busy = ist_engine_busy_ms(s->job.engine);
    for (ist_live_frame *frame; (frame = wait_for_frame(s));) receive(s, frame, busy);
    pthread_mutex_lock(&s->lock);
    s->all_received = true;
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the run ---- */

static bool is_over(session *s) {
    pthread_mutex_lock(&s->lock);
    bool over = s->all_received;
    pthread_mutex_unlock(&s->lock);
    return over;
}

/* Lines until all has been received; an interrupt ends the source, and what waits for the device is dropped. */
static void watch(session *s) {
    char line[400];
    double next = ist_clock_ms() + LINE_MS;
    bool stopped = false;
    ist_error err;
    while (!is_over(s)) {
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
        if (!stopped && (*s->job.interrupted || live_publisher_failed(s->publisher, &err))) {
            if (!*s->job.interrupted) fail(s, &err);
            int dropped = ist_live_queue_stop(&s->input);
            ist_live_add(&s->counts, dropped, (uint64_t)dropped);
            stopped = true;
        }
        if (ist_clock_ms() < next) continue;
        next += LINE_MS;
        ist_live_counts_line(&s->counts, line, sizeof line);
        if (!s->options->engine.quiet) cli_note("live: %s", line);
    }
}

static int start_threads(session *s) {
    pthread_t submitter, receiver;
    ist_error err;
    if (pthread_create(&receiver, NULL, receive_all, s)) return cli_fail(CLI_FAILED, "live: no thread to be had");
    bool submits = !pthread_create(&submitter, NULL, submit_all, s);
    if (!submits || ist_live_source_start(s->source, &err)) {
        if (!submits) ist_fail(&err, IST_E_MEMORY, "no thread to be had");
        fail(s, &err);
    }
    if (!submits) {
        pthread_mutex_lock(&s->lock);
        s->all_submitted = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    watch(s);
    ist_live_queue_end(&s->input);
    ist_live_source_close(&s->source);
    if (submits) pthread_join(submitter, NULL);
    pthread_join(receiver, NULL);
    return CLI_SUCCESS;
}

/* On CPUs the kernels of a second frame would only make the first one wait. */
static int most_in_flight(const session *s) {
    int most = ist_config_default().frames_in_flight;
    if (s->job.engine_info.device.type == IST_DEVICE_CPU && !s->options->no_drop) most = 1;
    return most < MAX_IN_FLIGHT ? most : MAX_IN_FLIGHT;
}

static int open_metrics(session *s) {
    ist_net_address address;
    ist_error err;
    int port;
    if (!s->options->metrics) return CLI_SUCCESS;
    if (ist_net_parse(s->options->metrics, &address, &err)) return cli_usage("live", "--metrics: %s", err.text);
    if (ist_live_metrics_open(&address, &s->counts, &s->metrics, &port, &err))
        return cli_fail(CLI_FAILED, "live: --metrics: %s", err.text);
    cli_note("live: metrics on http://%s:%d/metrics", *address.host ? address.host : "127.0.0.1", port);
    return CLI_SUCCESS;
}

static int open_source(session *s) {
    const live_options *o = s->options;
    ist_error err;
    int port = 0;
    const ist_live_source_options options = {.spec = o->from,
                                             .fps = (double)o->fps,
                                             .at_once = o->no_drop && o->fps <= 0,
                                             .fd = STDIN_FILENO,
                                             .counts = &s->counts,
                                             .frame = on_frame,
                                             .say = on_words,
                                             .connected = on_connection,
                                             .ended = on_end,
                                             .arg = s};
    if (ist_live_source_open(&options, &s->source, &port, &err)) return cli_fail(CLI_FAILED, "live: %s", err.text);
    if (ist_live_source_has_windows(s->source)) predict_use_file_windows(s->job.options);
    const char *host = *o->from.address.host ? o->from.address.host : "127.0.0.1";
    if (o->from.kind == IST_LIVE_LISTENER) cli_note("live: frames are expected on %s:%d", host, port);
    return CLI_SUCCESS;
}

/* A black frame, so that no frame of the stream pays for what drivers leave to the first one. */
static int warm_up(session *s) {
    enum { W = 640, H = 480 };
    const ist_result *result = NULL;
    ist_error err;
    unsigned char *black = calloc(W, H);
    if (!black) return cli_fail(CLI_FAILED, "live: out of memory");
    const ist_image image = {.width = W, .height = H, .format = IST_GRAY8, .pixels = black};
    ist_status status = ist_submit(s->job.engine, &image, 1, &err);
    if (!status) status = ist_receive(s->job.engine, &result, &err);
    ist_release(s->job.engine, &result);
    ahead_end(&s->job.helpers); /* not ended processes beside this one for as long as it runs */
    bool linked = s->options->engine.track || s->options->engine.judges;
    if (!status && linked) status = ist_reset_tracks(s->job.engine, &err);
    free(black);
    return status ? cli_fail(cli_exit_code(status), "live: %s", err.text) : CLI_SUCCESS;
}

/* Ports and folders first, since they fail at once; then the device. */
static int open_ends(session *s) {
    const live_options *o = s->options;
    ist_error err;
    int code = live_publisher_open(o, &s->job.labels, &s->counts, &s->publisher);
    if (!code) code = open_source(s);
    if (!code) code = open_metrics(s);
    if (!code && o->record && ist_live_recording_open(o->record, o->no_drop, &s->counts, &s->recording, &err))
        code = cli_fail(CLI_FAILED, "live: --record: %s", err.text);
    if (!code) code = predict_open_stream(&s->job);
    return code ? code : warm_up(s);
}

static int close_ends(session *s) {
    ist_error err;
    ist_live_source_close(&s->source);
    int code = live_publisher_close(&s->publisher);
    if (ist_live_recording_close(&s->recording, &err)) code = cli_fail(CLI_FAILED, "live: --record: %s", err.text);
    ist_live_metrics_close(&s->metrics);
    return code;
}

/* Whether each frame that arrived and was not dropped for its age has been answered. */
static bool is_complete(session *s) {
    pthread_mutex_lock(&s->counts.lock);
    bool complete = !s->counts.failed;
    pthread_mutex_unlock(&s->counts.lock);
    return complete;
}

static int run(session *s) {
    char text[600];
    int code = open_ends(s);
    bool ran = !code;
    if (ran) {
        s->most = most_in_flight(s);
        pthread_mutex_lock(&s->counts.lock);
        s->counts.opened_ms = s->counts.line_ms = ist_clock_ms(); /* without the start of the device */
        pthread_mutex_unlock(&s->counts.lock);
        cli_note("live: ready on %s", s->job.engine_info.device.name);
        code = start_threads(s);
    }
    int closed = close_ends(s);
    if (!code) code = closed;
    if (s->failure.code) code = cli_fail(cli_exit_code(s->failure.code), "live: %s", s->failure.text);
    if (!code && !is_complete(s)) code = CLI_PARTIAL; /* each has been named */
    ist_live_counts_summary(&s->counts, text, sizeof text);
    if (ran && !s->options->engine.quiet) cli_note("live: %s", text);
    return code;
}

int live_run(live_options *options) {
    session s = {.options = options};
    s.job.options = &options->engine;
    signal(SIGPIPE, SIG_IGN); /* a reader that is gone is a failed write */
    predict_catch_interrupts(&s.job);
    if (!ist_live_counts_open(&s.counts) || pthread_mutex_init(&s.lock, NULL) || pthread_cond_init(&s.changed, NULL) ||
        !ist_live_queue_open(&s.input, options->queue, options->no_drop, ist_live_frame_drop))
        return cli_fail(CLI_FAILED, "live: out of memory");
    int code = run(&s);
    predict_job_free(&s.job);
    ist_live_queue_close(&s.input);
    pthread_cond_destroy(&s.changed);
    pthread_mutex_destroy(&s.lock);
    ist_live_counts_close(&s.counts);
    return code;
}
