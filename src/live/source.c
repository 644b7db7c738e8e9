/* See source.h. */
#include "live/source_own.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    ist_pixel_format format;
} raw_formats[] = {{"gray8", IST_GRAY8}, {"rgb24", IST_RGB8}, {"gray16le", IST_GRAY16}};

static ist_status parse_raw(const char *text, ist_live_spec *spec, ist_error *err) {
    char *end;
    long width = strtol(text, &end, 10), height = *end == 'x' ? strtol(end + 1, &end, 10) : 0;
    for (size_t i = 0; i < sizeof raw_formats / sizeof *raw_formats; i++)
        if (*end == ':' && !strcmp(end + 1, raw_formats[i].name)) spec->format = raw_formats[i].format;
    if (!spec->format || *text < '0' || *text > '9' || width < 1 || height < 1 || width > UINT16_MAX ||
        height > UINT16_MAX || (int64_t)width * height > IST_MAX_PIXELS)
        return ist_fail(err, IST_E_ARGUMENT, "'raw:%s' is not raw:WxH:FORMAT with gray8, rgb24 or gray16le", text);
    spec->kind = IST_LIVE_RAW;
    spec->width = (int)width, spec->height = (int)height;
    return IST_OK;
}

ist_status ist_live_parse(const char *text, ist_live_spec *spec, ist_error *err) {
    static const char client[] = "igtl://", listener[] = "igtl-listen://";
    *spec = (ist_live_spec){0};
    if (!strncmp(text, "raw:", 4)) return parse_raw(text + 4, spec, err);
    bool connects = !strncmp(text, client, strlen(client)), listens = !strncmp(text, listener, strlen(listener));
    if (connects || listens) {
        if (!ist_igtl_available())
            return ist_fail(err, IST_E_UNSUPPORTED, "'%s': this isthmus was built without OpenIGTLink", text);
        spec->kind = connects ? IST_LIVE_CLIENT : IST_LIVE_LISTENER;
        return ist_net_parse(strchr(text, ':') + 3, &spec->address, err);
    }
    struct stat st;
    if (stat(text, &st) || !S_ISDIR(st.st_mode))
        return ist_fail(err, IST_E_ARGUMENT,
                        "'%s' is none of igtl://HOST:PORT, igtl-listen://:PORT, raw:WxH:FORMAT and the folders here",
                        text);
    spec->kind = IST_LIVE_FOLDER;
    spec->folder = text;
    return IST_OK;
}

void ist_source_give(ist_live_source *s, ist_live_frame *frame, double arrived_ms) {
    frame->number = ++s->received;
    frame->arrived_ms = arrived_ms;
    s->o.frame(s->o.arg, frame);
}

void ist_source_say(const ist_live_source *s, const char *fmt, ...) {
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    s->o.say(s->o.arg, text);
}

bool ist_source_sleep(const ist_live_source *s, double ms) {
    double until = ist_clock_ms() + ms;
    for (;;) {
        double left = until - ist_clock_ms();
        if (atomic_load(&s->stop)) return false;
        if (left <= 0) return true;
        if (left > IST_NET_STEP_MS) left = IST_NET_STEP_MS;
        nanosleep(&(struct timespec){.tv_nsec = (long)(left * 1e6)}, NULL);
    }
}

static void *run(void *context) {
    ist_live_source *s = context;
    ist_status (*const kinds[])(ist_live_source *, ist_error *) = {[IST_LIVE_CLIENT] = ist_source_run_client,
                                                                   [IST_LIVE_LISTENER] = ist_source_run_listener,
                                                                   [IST_LIVE_RAW] = ist_source_run_raw,
                                                                   [IST_LIVE_FOLDER] = ist_source_run_folder};
    ist_error err;
    ist_status status = kinds[s->o.spec.kind](s, &err);
    s->o.ended(s->o.arg, status ? &err : NULL);
    return NULL;
}

ist_status ist_live_source_open(const ist_live_source_options *options, ist_live_source **source, int *port,
                                ist_error *err) {
    *source = NULL;
    ist_live_source *s = calloc(1, sizeof *s);
    if (!s) return ist_fail(err, IST_E_MEMORY, "source: out of memory");
    s->o = *options;
    s->listener = -1;
    atomic_init(&s->stop, false);
    int own_port;
    ist_status status = IST_OK;
    if (s->o.spec.kind == IST_LIVE_LISTENER)
        status = ist_net_listen(&s->o.spec.address, &s->listener, port ? port : &own_port, err);
    if (s->o.spec.kind == IST_LIVE_FOLDER) status = ist_live_folder_open(s->o.spec.folder, &s->folder, err);
    if (status)
        ist_live_source_close(&s);
    else
        *source = s;
    return status;
}

bool ist_live_source_has_windows(const ist_live_source *s) {
    return s->folder && ist_live_folder_has_windows(s->folder);
}

ist_status ist_live_source_start(ist_live_source *s, ist_error *err) {
    s->started = !pthread_create(&s->thread, NULL, run, s);
    return s->started ? IST_OK : ist_fail(err, IST_E_MEMORY, "source: no thread");
}

void ist_live_source_close(ist_live_source **source) {
    if (!source || !*source) return;
    ist_live_source *s = *source;
    atomic_store(&s->stop, true);
    if (s->started) pthread_join(s->thread, NULL);
    if (s->listener >= 0) close(s->listener);
    ist_live_folder_close(&s->folder);
    free(s);
    *source = NULL;
}
