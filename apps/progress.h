/* The line that says how far a run is: a bar, counts, rate and what is left, as wide as the terminal. Header only, so
 * that tests see it. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { PROGRESS_BAR = 20, PROGRESS_MAX = 160 };

/* Columns of the terminal at `fd`; 80 where it does not say. */
static inline int progress_columns(int fd) {
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) || !size.ws_col ? 80 : size.ws_col;
}

/* "1:02:03", "2:03". */
static inline void progress_time(double seconds, char *out, size_t size) {
    long long s = seconds < 359999 ? (long long)(seconds + 0.5) : 359999;
    if (s >= 3600)
        snprintf(out, size, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, size, "%lld:%02lld", s / 60, s % 60);
}

/* `done` of `all` images are there, `seen` of them since the run began, `ms` ago. Never as wide as the terminal, which
 * would begin a new line. */
static inline void progress_line(char out[PROGRESS_MAX], int columns, size_t done, size_t all, size_t seen, double ms) {
    char text[PROGRESS_MAX], left[32], bar[PROGRESS_BAR + 1];
    const double each = seen ? ms / (double)seen : 0, rate = each > 0 ? 1e3 / each : 0;
    int n = snprintf(text, sizeof text, "%zu of %zu %s", done, all, all == 1 ? "image" : "images");
    if (rate > 0) {
        progress_time((double)(all - done) * each / 1e3, left, sizeof left);
        n += rate < 1 ? snprintf(text + n, sizeof text - (size_t)n, ", %.1f s per image, %s left", each / 1e3, left)
                      : snprintf(text + n, sizeof text - (size_t)n, ", %.*f images/s, %s left", rate < 10, rate, left);
    }
    const size_t full = all ? done * PROGRESS_BAR / all : PROGRESS_BAR;
    memset(bar, '.', PROGRESS_BAR);
    memset(bar, '#', full < PROGRESS_BAR ? full : PROGRESS_BAR);
    bar[PROGRESS_BAR] = '\0';
    if (columns > PROGRESS_MAX) columns = PROGRESS_MAX;
    if (n + PROGRESS_BAR + 3 < columns)
        snprintf(out, PROGRESS_MAX, "[%s] %s", bar, text);
    else
        snprintf(out, PROGRESS_MAX, "%.*s", columns > 1 ? columns - 1 : 0, text);
}

#endif
