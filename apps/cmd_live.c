/* isthmus live: a stream of frames in, results out as they come, newest frame first. Its command line. */
#include "live.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEND_WORD(id, name, suffix) name ","

/* Option, letter (none), name, name of its value, help. */
#define LIVE_OPTIONS(X)                                                                                                \
    X(FROM, 0, "from", "SRC",                                                                                          \
      "igtl://HOST:PORT[/DEVICE], igtl-listen://[HOST]:PORT, raw:WxH:FORMAT\n"                                         \
      "(frames on standard input: gray8, rgb24, gray16le) or a folder")                                                \
    X(TO, 0, "to", "DST...",                                                                                           \
      "igtl-listen://[HOST]:PORT, ndjson:-, ndjson:FILE or a folder; may be given\n"                                   \
      "several times. Ports are opened on 127.0.0.1 unless HOST says otherwise")                                       \
    X(SEND, 0, "send", "LIST " LIVE_SENDS(SEND_WORD),                                                                  \
      "for OpenIGTLink: labels (IMAGE), string (JSON), boxes (POINT), contours\n"                                      \
      "(POLYDATA), overlay (IMAGE) (labels,string)")                                                                   \
    X(DEADLINE, 0, "deadline", "MS", "give up a frame that cannot be answered so soon after it arrived")               \
    X(QUEUE, 0, "queue", "N", "frames that may wait for the device; the oldest is dropped (1)")                        \
    X(NO_DROP, 0, "no-drop", NULL, "wait instead, lose nothing: for files")                                            \
    X(FPS, 0, "fps", "R", "rate of a folder's frames (as recorded, else 30)")                                          \
    PREDICT_WINDOW_OPTION(X)                                                                                           \
    X(RECORD, 0, "record", "DIR", "keep what comes in there, for live --from DIR")                                     \
    X(METRICS, 0, "metrics", "[HOST]:PORT", "counts for Prometheus over HTTP, on 127.0.0.1")                           \
    X(LIMIT, 0, "limit", "N", "end after N frames have come in")                                                       \
    X(CONF, 0, "conf", "P", "keep detections with a score above P (0.4)")                                              \
    X(MAX_OBJECTS, 0, "max-objects", "N", "most objects per frame, 1 to 300 (16)")                                     \
    X(CLASSES, 0, "classes", "LIST", "keep these classes only: ids or names, separated by commas")                     \
    X(NAMES, 0, "names", "FILE", "class names: one per line, a JSON array or a data.yaml")                             \
    X(QUIET, 0, "quiet", NULL, "no line a second, no summary; what goes wrong is still said")

enum {
    OPTION_FIRST = 255,
#define X(id, letter, name, value, help) LIVE_OPTION_##id,
    LIVE_OPTIONS(X)
#undef X
};

#define LIVE_ROW(id, letter, name, value, help)  {name, LIVE_OPTION_##id, value, help},
#define MODEL_ROW(id, letter, name, value, help) {name, OPTION_##id, value, help},
const cli_option cmd_live_options[] = {LIVE_OPTIONS(LIVE_ROW) PREDICT_MODEL_OPTIONS(MODEL_ROW) PREDICT_DEVICE_OPTION(
    MODEL_ROW, "") PREDICT_TRACK_OPTIONS(MODEL_ROW) PREDICT_TRUST_OPTIONS(MODEL_ROW){NULL, 0, NULL, NULL}};

static int parse_send(const char *list, unsigned *send) {
    static const char *const names[] = {
#define X(id, name, suffix) name,
        LIVE_SENDS(X)
#undef X
    };
    *send = 0;
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ","), i = 0;
        while (i < sizeof names / sizeof *names && (strlen(names[i]) != n || memcmp(names[i], p, n))) i++;
        if (i == sizeof names / sizeof *names)
            return cli_usage("live", "--send: '%.*s' is none of labels, string, boxes, contours, overlay", (int)n, p);
        *send |= 1u << i;
        p += n;
        if (!*p) return CLI_SUCCESS;
    }
}

/* A positive number of an option. */
static int parse_positive(const char *name, const char *text, double high, float *out) {
    if (cli_parse_float(text, 0, high, out) && *out > 0) return CLI_SUCCESS;
    return cli_usage("live", "--%s: '%s' is not a number above 0 and up to %g", name, text, high);
}

static int take_to(const char *value, live_options *o) {
    if (o->to_count == LIVE_MAX_SINKS) return cli_usage("live", "--to: at most %d of them", LIVE_MAX_SINKS);
    o->to[o->to_count++] = value;
    return CLI_SUCCESS;
}

/* 0 or the exit code. */
static int take_option(int id, const char *value, live_options *o) {
    predict_options *e = &o->engine;
    bool taken;
    ist_error err;
    int code = predict_take_model_option(id, value, e, &taken);
    if (!taken) code = predict_take_track_option(id, value, e, &taken);
    if (!taken) code = predict_take_trust_option(id, value, e, &taken);
    if (taken) return code;
    switch (id) {
    case LIVE_OPTION_FROM:
        if (ist_live_parse(value, &o->from, &err)) return cli_usage("live", "--from: %s", err.text);
        e->first_source = 1; /* it has been given */
        return CLI_SUCCESS;
    case LIVE_OPTION_TO:
        return take_to(value, o);
    case LIVE_OPTION_SEND:
        return parse_send(value, &o->send);
    case LIVE_OPTION_DEADLINE:
        return parse_positive("deadline", value, 1e6, &o->deadline_ms);
    case LIVE_OPTION_QUEUE:
        return predict_parse_number("live", "queue", value, 1, IST_LIVE_QUEUE_MAX, &o->queue);
    case LIVE_OPTION_NO_DROP:
        o->no_drop = true;
        return CLI_SUCCESS;
    case LIVE_OPTION_FPS:
        return parse_positive("fps", value, 1e5, &o->fps);
    case LIVE_OPTION_WINDOW:
        return predict_parse_window(value, e);
    case LIVE_OPTION_RECORD:
        o->record = value;
        return CLI_SUCCESS;
    case LIVE_OPTION_METRICS:
        o->metrics = value;
        return CLI_SUCCESS;
    case LIVE_OPTION_LIMIT:
        return predict_parse_number("live", "limit", value, 1, INT32_MAX, &o->limit);
    case LIVE_OPTION_CONF:
        if (cli_parse_float(value, 0, 1, &e->conf)) return CLI_SUCCESS;
        return cli_usage("live", "--conf: '%s' is not a number from 0 to 1", value);
    case LIVE_OPTION_MAX_OBJECTS:
        return predict_parse_number("live", "max-objects", value, 1, 300, &e->max_objects);
    case LIVE_OPTION_CLASSES:
        e->classes = value;
        return CLI_SUCCESS;
    case LIVE_OPTION_NAMES:
        e->names = value;
        return CLI_SUCCESS;
    default:
        e->quiet = true;
        return CLI_SUCCESS;
    }
}

static int check(const live_options *o, int argc, char **argv) {
    const predict_options *e = &o->engine;
    if (optind < argc) return cli_usage("live", "unexpected argument '%s'", argv[optind]);
    if (!e->first_source) return cli_usage("live", "--from SRC is missing");
    if (!o->to_count && !o->record) return cli_usage("live", "--to DST is missing");
    if (!e->masks && e->segmenter) return cli_usage("live", "--no-masks and --segmenter exclude each other");
    if (!e->masks && (o->send & (LIVE_SEND_LABELS | LIVE_SEND_CONTOURS)))
        return cli_usage("live", "--no-masks leaves nothing for --send labels and contours");
    if (e->window_of_file && o->from.kind != IST_LIVE_FOLDER)
        return cli_usage("live",
                         "--window dicom: only the frames of a folder can carry a window; give LOW:HIGH or auto");
    if (o->no_drop && o->deadline_ms > 0) return cli_usage("live", "--no-drop and --deadline exclude each other");
    int code = predict_check_track(e);
    if (!code) code = predict_check_trust(e);
    if (code) return code;
    if (o->fps > 0 && o->from.kind != IST_LIVE_FOLDER) return cli_usage("live", "--fps is for folders");
    return CLI_SUCCESS;
}

int cmd_live(int argc, char **argv) {
    ist_config defaults = ist_config_default();
    live_options o = {.queue = 1,
                      .engine = {.command = "live",
                                 .masks = true,
                                 .conf = defaults.conf,
                                 .max_objects = defaults.max_objects,
                                 .track_iou = defaults.track_iou,
                                 .track_age = defaults.track_age,
                                 .batch = 1}};
    const char *value;
    int id, code = CLI_SUCCESS;
    while (!code && (id = cli_next("live", cmd_live_options, argc, argv, &value, &code)) != CLI_END) {
        if (id == CLI_STOP) {
            predict_options_free(&o.engine);
            return code;
        }
        code = take_option(id, value, &o);
    }
    if (!code) code = check(&o, argc, argv);
    if (!o.send) o.send = o.engine.masks ? LIVE_SEND_LABELS | LIVE_SEND_STRING : LIVE_SEND_STRING;
    if (!code) code = live_run(&o);
    predict_options_free(&o.engine);
    return code;
}
