/* The parts of `isthmus report`: a folder that predict, segment or eval has written, read again and shown as one page.
 * Used by report_*.c and cmd_report.c. */
#ifndef REPORT_H
#define REPORT_H

#include "io/text.h"

#include <jansson.h>

enum {
    REPORT_BINS = 20,      /* of the histogram of scores */
    REPORT_CLASSES = 1000, /* further ones are told together */
    REPORT_FAILURES = 200, /* listed; all are counted */
    REPORT_SIDE = 720      /* longer side of a picture in the page, pixels */
};

/* What each line has a number of. */
#define REPORT_TIMES(X)                                                                                                \
    X(DECODE, "decode")                                                                                                \
    X(SUBMIT, "submit")                                                                                                \
    X(WAIT, "wait")                                                                                                    \
    X(TOTAL, "total")                                                                                                  \
    X(ENCODE, "encode")
#define REPORT_TRANSFERS(X)                                                                                            \
    X(WRITES, "writes")                                                                                                \
    X(READS, "reads")                                                                                                  \
    X(WAITS, "waits")                                                                                                  \
    X(H2D, "h2d_bytes")                                                                                                \
    X(D2H, "d2h_bytes")
enum {
#define X(id, name) REPORT_##id,
    REPORT_TIMES(X) REPORT_TRANSFERS(X)
#undef X
        REPORT_NUMBERS,
    REPORT_FIRST_TRANSFER = REPORT_WRITES
};

typedef struct report_class {
    char *name;
    size_t count;
    double sum, best; /* of scores */
} report_class;

typedef struct report_values {
    double *list; /* sorted once all lines are read */
    size_t count, room;
} report_values;

typedef struct report {
    const char *folder;
    size_t images, objects, dropped, masks;
    size_t bins[REPORT_BINS];
    report_class *classes; /* in the order in which they come */
    size_t class_count, class_room;
    report_values numbers[REPORT_NUMBERS];
    json_t *options;  /* run.json's, or NULL */
    json_t *failures; /* array of the first REPORT_FAILURES lines of failed.ndjson */
    size_t failed;
    size_t pictures; /* most that are shown */
} report;

/* Name of a number, as the lines have it. */
const char *report_number_name(int number);

/* Reads all of `folder` but its pictures. IST_E_INPUT with "FILE:LINE: " for a line that predict did not write. */
ist_status report_read(report *r, ist_error *err);
void report_free(report *r);

/* Calls `visit` with each line of frames.ndjson, checked. */
typedef ist_status report_visit(void *arg, size_t index, const json_t *frame, ist_error *err);
ist_status report_each_frame(const report *r, report_visit *visit, void *arg, ist_error *err);

/* The place of an object's class in r->classes; class_count when it is not among the first REPORT_CLASSES. */
size_t report_class_of(const report *r, const json_t *object);

/* Whether frame `index` is among those that are shown: so many as are asked for, evenly over the run. */
bool report_shows(const report *r, size_t index);

/* Text in HTML: nothing in it is markup, no character of it is invisible or turns the direction of writing. */
void report_put_text(ist_text *out, const char *text);

/* The picture of a frame, its masks and boxes as layers above it, its objects as a list. */
ist_status report_put_picture(ist_text *out, const report *r, const json_t *frame, ist_error *err);

/* Everything above the pictures. */
void report_put_summary(ist_text *out, const report *r);

#endif
