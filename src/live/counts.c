/* See counts.h. */
#include "live/counts.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEAST_MS 1e-3
#define RATIO    1.02

bool ist_live_counts_open(ist_live_counts *c) {
    memset(c, 0, sizeof *c);
    c->opened_ms = c->line_ms = ist_clock_ms();
    return !pthread_mutex_init(&c->lock, NULL);
}

void ist_live_counts_close(ist_live_counts *c) {
    pthread_mutex_destroy(&c->lock);
}

static void add_time(ist_live_times *t, double ms) {
    double k = ms > LEAST_MS ? log(ms / LEAST_MS) / log(RATIO) : 0;
    size_t at = k < IST_LIVE_CLASSES - 1 ? (size_t)k : IST_LIVE_CLASSES - 1;
    t->count++;
    t->sum_ms += ms;
    t->classes[at]++;
}

void ist_live_counts_time(ist_live_counts *c, double ms) {
    pthread_mutex_lock(&c->lock);
    add_time(&c->all, ms);
    add_time(&c->lately, ms);
    pthread_mutex_unlock(&c->lock);
}

double ist_live_percentile(const ist_live_times *t, double p) {
    uint64_t rank = (uint64_t)ceil(p / 100 * (double)t->count), seen = 0;
    if (!t->count) return 0;
    if (!rank) rank = 1;
    for (size_t i = 0; i < IST_LIVE_CLASSES; i++)
        if ((seen += t->classes[i]) >= rank) return LEAST_MS * pow(RATIO, (double)i + 0.5);
    return LEAST_MS * pow(RATIO, IST_LIVE_CLASSES);
}

/* A frame's time counts when it ends, which may be more than there was since the last line. */
static double busy_percent(double busy_ms, double ms) {
    return ms > 0 ? fmin(100 * busy_ms / ms, 100) : 0;
}

void ist_live_counts_line(ist_live_counts *c, char *line, size_t size) {
    double now = ist_clock_ms();
    pthread_mutex_lock(&c->lock);
    snprintf(
        line, size,
        "%llu received, %llu processed, %llu dropped, %llu late, p50 %.2f, p99 %.2f ms from arrival to send, device "
        "busy %.0f %%",
        (unsigned long long)(c->received - c->line_received), (unsigned long long)(c->processed - c->line_processed),
        (unsigned long long)(c->dropped - c->line_dropped), (unsigned long long)(c->late - c->line_late),
        ist_live_percentile(&c->lately, 50), ist_live_percentile(&c->lately, 99),
        busy_percent(c->busy_ms - c->line_busy_ms, now - c->line_ms));
    c->line_received = c->received, c->line_processed = c->processed;
    c->line_dropped = c->dropped, c->line_late = c->late;
    c->line_ms = now, c->line_busy_ms = c->busy_ms;
    memset(&c->lately, 0, sizeof c->lately);
    pthread_mutex_unlock(&c->lock);
}

/* What went wrong, as far as it did: ", 2 messages with a wrong checksum". */
static size_t put_trouble(char *text, size_t size, size_t at, uint64_t count, const char *what) {
    if (!count || at >= size) return at;
    return at + (size_t)snprintf(text + at, size - at, ", %llu %s", (unsigned long long)count, what);
}

void ist_live_counts_summary(ist_live_counts *c, char *text, size_t size) {
    pthread_mutex_lock(&c->lock);
    double seconds = (ist_clock_ms() - c->opened_ms) / 1e3;
    size_t at = (size_t)snprintf(
        text, size,
        "%llu received, %llu processed, %llu dropped, %llu late in %.1f s; p50 %.2f, p99 %.2f ms from arrival to send, "
        "device busy %.0f %%",
        (unsigned long long)c->received, (unsigned long long)c->processed, (unsigned long long)c->dropped,
        (unsigned long long)c->late, seconds, ist_live_percentile(&c->all, 50), ist_live_percentile(&c->all, 99),
        busy_percent(c->busy_ms, 1e3 * seconds));
    at = put_trouble(text, size, at, c->overdue, "answered after the deadline");
    at = put_trouble(text, size, at, c->failed, "failed");
    at = put_trouble(text, size, at, c->unsent, "results dropped before sending");
    at = put_trouble(text, size, at, c->skipped, "results not sent to slow clients");
    at = put_trouble(text, size, at, c->unrecorded, "not recorded");
    at = put_trouble(text, size, at, c->unsupported, "unsupported images");
    at = put_trouble(text, size, at, c->bad_crc, "messages with a wrong checksum");
    put_trouble(text, size, at, c->broken, "broken connections");
    pthread_mutex_unlock(&c->lock);
}

static void put_metric(ist_text *out, const char *name, const char *type, const char *help) {
    ist_text_printf(out, "# HELP isthmus_%s %s\n# TYPE isthmus_%s %s\n", name, help, name, type);
}

void ist_live_counts_metrics(ist_live_counts *c, ist_text *out) {
    static const double quantiles[] = {0.5, 0.9, 0.99};
    pthread_mutex_lock(&c->lock);
#define X(member, name, help)                                                                                          \
    put_metric(out, name "_total", "counter", help);                                                                   \
    ist_text_printf(out, "isthmus_" name "_total %llu\n", (unsigned long long)c->member);
    IST_LIVE_COUNTS(X)
#undef X
    put_metric(out, "device_busy_seconds_total", "counter", "time with a frame on the device");
    ist_text_printf(out, "isthmus_device_busy_seconds_total %.6f\n", c->busy_ms / 1e3);
    put_metric(out, "latency_seconds", "summary", "from the last byte of a frame to the first byte of its result");
    for (size_t i = 0; i < sizeof quantiles / sizeof *quantiles; i++)
        ist_text_printf(out, "isthmus_latency_seconds{quantile=\"%g\"} %.6f\n", quantiles[i],
                        ist_live_percentile(&c->all, 100 * quantiles[i]) / 1e3);
    ist_text_printf(out, "isthmus_latency_seconds_sum %.6f\nisthmus_latency_seconds_count %llu\n", c->all.sum_ms / 1e3,
                    (unsigned long long)c->all.count);
    pthread_mutex_unlock(&c->lock);
}
