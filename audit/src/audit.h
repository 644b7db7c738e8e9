/* The audit: a log of what an OpenCL program did becomes frames, findings and a verdict against a budget.
 *
 * Pure C over recorded values; nothing here talks to OpenCL. A log comes from the engine's transfer ledger or from the
 * layer that records any program (wire.h, load.c). The order of work: fill a log, ist_audit_find_frames,
 * ist_audit_judge, then ist_audit_check_budget and the writers of report.h.
 *
 * What must hold: each event is claimed by at most one finding; a log that was cut off anywhere is judged as far as it
 * goes; the same log gives the same report. */
#ifndef IST_AUDIT_AUDIT_H
#define IST_AUDIT_AUDIT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- events ---- */

/* Kind of call, its name in reports. */
#define IST_AUDIT_OPS(X)                                                                                               \
    X(WRITE, "write") /* host to device */                                                                             \
    X(READ, "read")   /* device to host */                                                                             \
    X(MAP, "map")     /* a read when FROM_DEVICE */                                                                    \
    X(UNMAP, "unmap") /* a write when TO_DEVICE */                                                                     \
    X(COPY, "copy")   /* on the device; a write or read when TO_ or FROM_DEVICE */                                     \
    X(FILL, "fill")                                                                                                    \
    X(MIGRATE, "migrate") /* a read when FROM_DEVICE */                                                                \
    X(WAIT, "wait")       /* clFinish, clWaitForEvents */                                                              \
    X(FLUSH, "flush")                                                                                                  \
    X(POLL, "poll") /* clGetEventInfo for the status; repeats of one place are one event */                            \
    X(LAUNCH, "launch")                                                                                                \
    X(BUILD, "build")                                                                                                  \
    X(CREATE, "create")   /* memory; a write when TO_DEVICE */                                                         \
    X(KERNEL, "kernel")   /* creation of a kernel object */                                                            \
    X(CONTEXT, "context") /* creation of a context or queue */                                                         \
    X(RELEASE, "release")                                                                                              \
    X(FRAME, "frame") /* the program marks the start of a frame */

typedef enum ist_audit_op {
#define X(id, name) IST_AUDIT_##id,
    IST_AUDIT_OPS(X)
#undef X
        IST_AUDIT_OP_COUNT
} ist_audit_op;

enum {
    IST_AUDIT_BLOCKING = 1,    /* the call returns when the transfer is done */
    IST_AUDIT_TO_DEVICE = 2,   /* unmaps, creations, copies: contents go to the device */
    IST_AUDIT_FROM_DEVICE = 4, /* maps, migrations, copies: contents come to the host */
    IST_AUDIT_USE_HOST = 8,    /* creation over the caller's memory */
    IST_AUDIT_CONSTANT = 16,   /* no kernel can write the object (CL_MEM_READ_ONLY) */
    IST_AUDIT_WHOLE_QUEUE = 32 /* a wait for everything in the queue */
};

#define IST_AUDIT_NONE     UINT32_MAX /* no site, no label */
#define IST_AUDIT_NO_SHAPE UINT32_MAX

/* One call. Handles are compared, never followed. */
typedef struct ist_audit_event {
    uint16_t op, flags; /* ist_audit_op, IST_AUDIT_ flags */
    uint32_t thread;
    uint32_t entry;  /* label: name of the entry point */
    uint32_t site;   /* index into the log's sites */
    uint32_t label;  /* kernel launched, or what is moved; IST_AUDIT_NONE: not known */
    uint32_t frame;  /* from 1; 0: outside of frames. Set by ist_audit_find_frames */
    uint32_t shape;  /* 0: offset and bytes are a range of the object; IST_AUDIT_NO_SHAPE: where is not known; else a
                      * rectangle or box, to be compared with others */
    uint64_t repeat; /* polls: how many; else 1 */
    uint64_t queue, object;
    uint64_t offset, bytes; /* in the object; waits: bytes of the downloads they complete */
    uint64_t result;        /* downloads: a number of their own; waits for one, and nothing after it: that; 0: none */
    uint64_t host;          /* host address, 0: none */
    uint64_t hash;          /* of the contents; 0: not known or all bytes are the same. Launches: see below */
    double at_ms;           /* since the start of the log */
    double wait_ms;         /* host time waiting for earlier work */
    double move_ms;         /* host time in the transfer itself */
} ist_audit_event;

/* Of a launch, `hash` and `offset` are 64 bits each for objects that the kernel certainly does not take; objects share
 * bits. The first or second word's bit is this, from 0 to 127; handles of one process only are told apart. */
static inline unsigned ist_audit_object_bit(uint64_t object) {
    return (unsigned)((object << 16) * UINT64_C(0x9E3779B97F4A7C15) >> 57);
}

/* A place in a program. Strings are owned by the log; any of them may be NULL. */
typedef struct ist_audit_site {
    uint64_t address; /* 0: not a machine address */
    char *module;     /* file it was loaded from */
    uint64_t offset;  /* of the address in the module */
    char *file;       /* source, when debug information says */
    char *function;
    int line;
    int cell;       /* of a notebook, which `line` is in, both from 1; 0: no notebook */
    uint32_t outer; /* the place that called this one's function, an earlier site; IST_AUDIT_NONE: not known */
} ist_audit_site;

/* Step of the way of data that source code reads back, its name in reports, what it says before the call. */
#define IST_AUDIT_STEPS(X)                                                                                             \
    X(DOWN, "download", "comes down with")                                                                             \
    X(PASS, "argument", "is passed to")                                                                                \
    X(RETURN, "result", "is returned by")                                                                              \
    X(KEEP, "kept", "is kept as")                                                                                      \
    X(UP, "upload", "goes up again with")                                                                              \
    X(CALL, "unknown_call", "goes to a call that nothing here defines:")

typedef enum ist_audit_step {
#define X(id, name, text) IST_AUDIT_STEP_##id,
    IST_AUDIT_STEPS(X)
#undef X
} ist_audit_step;

typedef struct ist_audit_hop {
    ist_audit_step step;
    uint32_t site, entry; /* entry: label of the call or name */
} ist_audit_hop;

typedef struct ist_audit_log {
    ist_audit_event *events;
    size_t event_count, event_cap;
    ist_audit_site *sites;
    size_t site_count, site_cap;
    char **labels;
    size_t label_count, label_cap;
    ist_audit_hop *hops; /* of findings: each has some that follow each other */
    size_t hop_count, hop_cap;
    uint64_t dropped; /* events that happened and are not here */
    char *program;    /* what was audited, for headings */
} ist_audit_log;

/* Each copies its strings. Indices go out through the pointers. */
ist_status ist_audit_add_event(ist_audit_log *log, const ist_audit_event *event, ist_error *err);
ist_status ist_audit_add_site(ist_audit_log *log, const ist_audit_site *site, uint32_t *index, ist_error *err);
ist_status ist_audit_add_label(ist_audit_log *log, const char *text, uint32_t *index, ist_error *err);
const char *ist_audit_label(const ist_audit_log *log, uint32_t label);                     /* "" when there is none */
void ist_audit_count_calls(const ist_audit_log *log, uint64_t counts[IST_AUDIT_OP_COUNT]); /* of each kind */
void ist_audit_log_free(ist_audit_log *log);

/* Events at places that read the same (source line and function, else module and offset) share one site from now on. */
ist_status ist_audit_merge_sites(ist_audit_log *log, ist_error *err);

/* "src/run.c:120 in step", "libfoo.so+0x1234" or "unknown place", into `text`; returns it. */
char *ist_audit_site_text(const ist_audit_log *log, uint32_t site, char *text, size_t size);

static inline bool ist_audit_is_download(const ist_audit_event *e) {
    bool may = e->op == IST_AUDIT_MAP || e->op == IST_AUDIT_MIGRATE || e->op == IST_AUDIT_COPY;
    return e->op == IST_AUDIT_READ || (may && (e->flags & IST_AUDIT_FROM_DEVICE));
}
static inline bool ist_audit_is_upload(const ist_audit_event *e) {
    bool may = e->op == IST_AUDIT_UNMAP || e->op == IST_AUDIT_CREATE || e->op == IST_AUDIT_COPY;
    return e->op == IST_AUDIT_WRITE || (may && (e->flags & IST_AUDIT_TO_DEVICE));
}
static inline bool ist_audit_is_wait(const ist_audit_event *e) {
    return e->op == IST_AUDIT_WAIT || (e->flags & IST_AUDIT_BLOCKING);
}

/* ---- frames ---- */

typedef enum ist_audit_frame_source {
    IST_AUDIT_FRAMES_NONE,
    IST_AUDIT_FRAMES_GIVEN,  /* the log came with frame numbers */
    IST_AUDIT_FRAMES_MARKER, /* FRAME events */
    IST_AUDIT_FRAMES_KERNEL, /* launches of a named kernel */
    IST_AUDIT_FRAMES_PATTERN /* the program repeats itself */
} ist_audit_frame_source;

typedef struct ist_audit_frames {
    ist_audit_frame_source source;
    uint32_t count;
} ist_audit_frames;

/* Numbers the frames. In this order: frame numbers already there; FRAME events; launches of `kernel` (NULL: none),
 * which should be the first kernel of a frame; a sequence of calls that repeats at least three times and makes up at
 * least half of its thread; each thread that launches kernels has frames of its own. Unless numbers are there already,
 * a wait for a result goes to the frame of that result, whenever it is made: frames may overlap. IST_E_INPUT when
 * `kernel` was never launched. */
ist_status ist_audit_find_frames(ist_audit_log *log, const char *kernel, ist_audit_frames *frames, ist_error *err);

/* ---- findings ---- */

typedef enum ist_audit_severity {
    IST_AUDIT_CRITICAL,
    IST_AUDIT_MEDIUM,
    IST_AUDIT_MINOR,
    IST_AUDIT_NECESSARY,
    IST_AUDIT_SEVERITY_COUNT
} ist_audit_severity;

/* Category, its name in reports, what it is, what to do. Names are stable. The order is the order of the rules. */
#define IST_AUDIT_CATEGORIES(X)                                                                                        \
    X(CHAIN, "read_write_chain", "data is read back and written to the device again",                                  \
      "keep it on the device: pass the buffer to the next kernel, or copy it there with clEnqueueCopyBuffer")          \
    X(BUILD, "build_in_frame", "a program is built inside a frame", "build during set-up and keep the program")        \
    X(SCALAR_READ, "scalar_read", "values are read one by one", "read them all with one call")                         \
    X(SCALAR_WRITE, "scalar_write", "values are written one by one",                                                   \
      "write them all with one call, or pass them as kernel arguments")                                                \
    X(TRANSFER_LOOP, "transfer_in_loop", "data is transferred piece by piece in a loop",                               \
      "gather it on one side and transfer it once, outside the loop")                                                  \
    X(ROUND_TRIP, "host_round_trip", "the host works on data between two kernels",                                     \
      "do the step in a kernel, so that the device goes on without the host")                                          \
    X(REDUNDANT_UPLOAD, "redundant_upload", "unchanged data is written again", "write it once, during set-up")         \
    X(OVERWRITTEN, "overwritten_upload", "data is written and overwritten before anything uses it",                    \
      "leave the first transfer out, or gather on the host and transfer once")                                         \
    X(HANDED_ON, "handed_on", "data comes to the host in a frame, for a call that is not defined here",                \
      "see whether that call takes the buffer itself; if it uploads the data again, this is a chain")                  \
    X(POLL, "poll_loop", "the status of an event is asked for in a loop",                                              \
      "use clWaitForEvents or a callback (clSetEventCallback)")                                                        \
    X(REDUNDANT_WAIT, "redundant_wait", "nothing was enqueued since the last wait", "remove this wait")                \
    X(WAIT_LOOP, "wait_in_loop", "the host waits again and again without taking a result",                             \
      "wait once, at the end; an in-order queue keeps the order of the commands")                                      \
    X(WAIT_MID_FRAME, "wait_mid_frame", "the host waits in the middle of a frame",                                     \
      "leave the order to the queue or to event wait lists")                                                           \
    X(IMPLICIT_WAIT, "implicit_wait", "an expression needs a value that is still being computed",                      \
      "keep the decision on the device (a mask, torch.where), or read the value once, with the results")               \
    X(DYNAMIC_SHAPE, "data_dependent_shape", "the size of a result depends on data, so the host waits for it",         \
      "keep the size fixed: a mask, torch.where with three arguments, topk")                                           \
    X(HOST_POINTER, "host_pointer", "an object is made over, or filled from, host memory",                             \
      "make it once, fill it with a non-blocking write")                                                               \
    X(CREATE, "creation_in_frame", "objects are made inside a frame", "make them during set-up and keep them")         \
    X(BLOCKING, "blocking_transfer", "a transfer blocks although work follows",                                        \
      "make it non-blocking and wait once, where the data is used")                                                    \
    X(SPLIT_TRANSFER, "split_transfer", "one frame is transferred in several calls", "pack it and transfer it once")   \
    X(KERNEL_PRINTS, "kernel_prints", "a kernel prints: its text comes to the host, which waits for it",               \
      "leave it out of the build that counts, with #ifdef")                                                            \
    X(RELEASE, "release_waits", "releasing an object waits for the device", "wait once, then release")                 \
    X(FLUSH, "flush_in_loop", "the queue is flushed several times per frame", "flush once, at the end of the frame")   \
    X(UPLOAD, "upload", "data goes to the device", "")                                                                 \
    X(DOWNLOAD, "download", "data comes to the host", "")                                                              \
    X(WAIT, "wait", "the host waits for a result", "")                                                                 \
    X(DEVICE_COPY, "device_copy", "data is copied or filled on the device", "")

typedef enum ist_audit_category {
#define X(id, name, text, advice) IST_AUDIT_CAT_##id,
    IST_AUDIT_CATEGORIES(X)
#undef X
        IST_AUDIT_CATEGORY_COUNT
} ist_audit_category;

const char *ist_audit_op_name(int op);
const char *ist_audit_severity_name(int severity);
const char *ist_audit_category_name(int category);
const char *ist_audit_category_text(int category);
const char *ist_audit_category_advice(int category); /* "" for what is necessary */

/* How often source code runs (source.h). */
#define IST_AUDIT_CONTEXTS(X)                                                                                          \
    X(RUN, "run")           /* not source code: something that ran */                                                  \
    X(LOOP, "loop")         /* many times in a frame */                                                                \
    X(FRAME, "frame")       /* once or a few times in a frame */                                                       \
    X(REPEATED, "repeated") /* in a loop of code that is not known to be part of a frame */                            \
    X(ONCE, "once")                                                                                                    \
    X(SETUP, "setup")

typedef enum ist_audit_context {
#define X(id, name) IST_AUDIT_CONTEXT_##id,
    IST_AUDIT_CONTEXTS(X)
#undef X
} ist_audit_context;

const char *ist_audit_context_name(int context);
const char *ist_audit_step_name(int step);
const char *ist_audit_step_text(int step);

/* All events of one category at one place; of source code, all calls of one line (count: how many calls). */
typedef struct ist_audit_finding {
    ist_audit_severity severity;
    ist_audit_category category;
    ist_audit_context context;
    bool training; /* source code that only training runs */
    bool python;   /* source code in Python: other advice */
    uint32_t site, entry;
    uint32_t partner_site,
        partner_entry; /* chains and round trips: where the data goes up again; else IST_AUDIT_NONE */
    size_t first_hop;  /* source code: the way of the data from here on */
    uint32_t hop_count;
    uint32_t thread; /* of the first */
    uint32_t frames; /* in how many frames */
    uint64_t most_per_frame;
    uint64_t count, bytes; /* of all; the partner's bytes too */
    double wait_ms, move_ms;
    size_t first; /* event */
} ist_audit_finding;

/* ist_audit_category_advice in the words of the finding's language. */
const char *ist_audit_finding_advice(const ist_audit_finding *finding);

/* Calls of a frame, or of the whole run. A blocking transfer is a transfer and a wait. */
typedef struct ist_audit_counts {
    uint64_t writes, reads, waits, builds, launches, h2d_bytes, d2h_bytes;
} ist_audit_counts;

void ist_audit_count(ist_audit_counts *counts, const ist_audit_event *event);

typedef struct ist_audit_report {
    const ist_audit_log *log; /* borrowed */
    ist_audit_frames frames;
    ist_audit_finding *findings; /* worst first */
    size_t finding_count;
    uint64_t severities[IST_AUDIT_SEVERITY_COUNT]; /* findings of each */
    ist_audit_counts total, most;                  /* whole run; largest of each over the frames */
    double wait_ms, move_ms;
} ist_audit_report;

ist_status ist_audit_judge(const ist_audit_log *log, ist_audit_frames frames, ist_audit_report *report, ist_error *err);
void ist_audit_report_free(ist_audit_report *report);

/* ---- budget ---- */

/* Per frame; UINT64_MAX: no limit. */
typedef struct ist_audit_budget {
    uint64_t reads, writes, waits, bytes, builds;
} ist_audit_budget;

/* "reads=1,writes=1,waits=1,bytes=4M"; also builds=0. Numbers may end in K, M or G (powers of 1024). IST_E_ARGUMENT. */
ist_status ist_audit_parse_budget(const char *text, ist_audit_budget *budget, ist_error *err);

typedef struct ist_audit_breach {
    const char *what; /* "reads"; NULL: the budget holds */
    uint64_t limit, have;
    uint32_t frame;
    size_t event; /* the call that went over */
} ist_audit_breach;

/* Finds the first call that goes over the budget. Without frames the whole run counts as one. */
ist_status ist_audit_check_budget(const ist_audit_report *report, const ist_audit_budget *budget,
                                  ist_audit_breach *breach, ist_error *err);

#endif
