/* One source file under audit: its names, functions, loops and calls, and the hits the analysers find in it.
 *
 * Private to audit/src. The analysers (source_c.c, source_python.c) go over a file several times: functions are
 * numbered in the order of the text, the same in every pass; loops, calls and hits are of the last pass. Running out
 * of memory is sticky (`failed`), reported once. Numbers of functions, loops and hits count from 1; 0 is none. */
#ifndef IST_AUDIT_SOURCE_UNIT_H
#define IST_AUDIT_SOURCE_UNIT_H

#include "audit/source.h"

typedef enum ist_src_op {
    IST_SRC_UP,       /* host to device */
    IST_SRC_DOWN,     /* device to host */
    IST_SRC_WAIT,     /* for the device */
    IST_SRC_POLL,     /* asks whether the device is done */
    IST_SRC_IMPLICIT, /* an expression that needs a value from the device */
    IST_SRC_DYNAMIC,  /* an operation that waits to know the size of its result */
    IST_SRC_BUILD,    /* of a program */
    IST_SRC_CREATE,   /* of memory, kernels, queues; an upload with IST_SRC_HOST_POINTER */
    IST_SRC_FLUSH,
    IST_SRC_COPY,  /* on the device */
    IST_SRC_LAUNCH /* work for the device; never a finding */
} ist_src_op;

enum {
    IST_SRC_BLOCKING = 1,
    IST_SRC_SCALAR = 2,       /* a single value */
    IST_SRC_CONSTANT = 4,     /* uploads: of values that the source spells out */
    IST_SRC_HOST_POINTER = 8, /* an object made from host memory */
    IST_SRC_MODEL = 16,       /* launches: a kernel or a model, not one operation of many */
    IST_SRC_TRAINING = 32,    /* in a branch for training */
    IST_SRC_FOLLOWED = 64,    /* work follows elsewhere: in the rest of a model */
    IST_SRC_DERIVED = 128     /* uploads of what was read: the host has worked on it */
};

enum { IST_SRC_LABEL = 80, IST_SRC_PARAMS = 12 };

typedef struct ist_src_hit {
    uint32_t line, function, loop;
    uint32_t from;   /* uploads: line of the download that the data comes from */
    uint32_t branch; /* number of the block it is in: other blocks may exclude this one */
    uint16_t op, flags, calls;
    char label[IST_SRC_LABEL];
} ist_src_hit;

/* What a name holds; the analysers give `kind` and `flags` their meaning. 0 is: not known. */
typedef struct ist_src_value {
    uint8_t kind, flags;
    uint32_t origin; /* line of the download that it comes from; 0: none */
    uint32_t hit;    /* the hit that gave it, while on the same line */
} ist_src_value;

typedef enum ist_src_role { IST_SRC_PLAIN, IST_SRC_FRAME, IST_SRC_SETUP, IST_SRC_DRIVER } ist_src_role;

typedef struct ist_src_function {
    uint32_t name, owner; /* owner: name of its class */
    uint8_t role;
    bool training;
    bool constructor;           /* or of another kind that calls do not make hot */
    bool evaluates;             /* its name says so: not training, wherever it is */
    bool over_frames;           /* its outermost loops go over frames */
    bool launches, drives, hot; /* from here on source_context.c's; drives: has a loop that launches */
    bool called, called_outside_training, called_outside_setup;
    uint32_t params[IST_SRC_PARAMS]; /* names */
    uint32_t param_count;
    ist_src_value given[IST_SRC_PARAMS]; /* what callers of this file pass */
    ist_src_value result;
} ist_src_function;

typedef struct ist_src_loop {
    uint32_t parent, function;
    bool launches; /* source_context.c's, both */
    bool once;     /* goes over frames: its body runs once per frame */
} ist_src_loop;

typedef struct ist_src_call {
    uint32_t caller, loop, callee;
} ist_src_call;

typedef struct ist_src_name {
    size_t text; /* in the unit's arena, zero-terminated */
    uint32_t hash, next, length;
    uint32_t function; /* the last one of this name */
    uint32_t binding;  /* the analyser's: innermost binding */
    uint32_t alias;    /* name of what an import calls this */
    ist_src_value value;
    bool wide, hint; /* the analyser's */
} ist_src_name;

typedef struct ist_src_unit {
    bool failed, training, host_data;
    uint64_t lines, dropped;
    char *arena;
    size_t arena_used, arena_cap;
    ist_src_name *names;
    uint32_t *buckets;
    size_t name_count, name_cap;
    ist_src_function *functions;
    size_t function_count, function_cap, functions_seen;
    ist_src_loop *loops;
    size_t loop_count, loop_cap;
    ist_src_call *calls;
    size_t call_count, call_cap;
    ist_src_hit *hits;
    size_t hit_count, hit_cap;
} ist_src_unit;

bool ist_src_unit_init(ist_src_unit *unit, const char *path);
void ist_src_unit_free(ist_src_unit *unit);
void ist_src_begin_pass(ist_src_unit *unit);

/* Number of a name; 0 (a name without text) when there are too many of them. */
uint32_t ist_src_intern(ist_src_unit *unit, const char *text, size_t length);
/* Whether this name is known and has a hint. */
bool ist_src_is_hinted(const ist_src_unit *unit, const char *text, size_t length);
/* "first.second" */
uint32_t ist_src_join(ist_src_unit *unit, uint32_t first, const char *second, size_t length);
static inline const char *ist_src_text(const ist_src_unit *unit, uint32_t name) {
    return unit->arena + unit->names[name].text;
}

/* The function that begins here; roles come from its name and that of its class. */
uint32_t ist_src_function_begin(ist_src_unit *unit, uint32_t name, uint32_t owner);
uint32_t ist_src_loop_begin(ist_src_unit *unit, uint32_t parent, uint32_t function);
void ist_src_add_call(ist_src_unit *unit, uint32_t caller, uint32_t loop, uint32_t callee);
/* 0 when it did not fit. */
uint32_t ist_src_add_hit(ist_src_unit *unit, const ist_src_hit *hit);

static inline ist_src_function *ist_src_function_at(ist_src_unit *unit, uint32_t number) {
    return number && number <= unit->function_count ? &unit->functions[number - 1] : NULL;
}

/* Whether `text` consists of words (camelCase, snake_case), one of which is in `list` (" word word "). */
bool ist_src_has_word(const char *text, size_t length, const char *list);

/* How often places run, from the launches, loops and calls of the last pass. */
void ist_src_find_contexts(ist_src_unit *unit);
/* *frame_loop: the loop over frames around the place, 0: none. */
ist_audit_context ist_src_context(const ist_src_unit *unit, uint32_t function, uint32_t loop, uint32_t *frame_loop);

/* The analysers: text is UTF-8 or Latin-1 with '\n' line ends and without zero bytes. */
void ist_src_read_c(ist_src_unit *unit, const char *text, size_t count);
void ist_src_read_python(ist_src_unit *unit, const char *text, size_t count);

/* Findings of the unit go into the source's log and report. */
ist_status ist_src_judge(ist_src_unit *unit, ist_audit_source *source, const char *path, bool python, ist_error *err);

/* *text: the bytes as one-byte-per-ASCII-character text with '\n' line ends, the caller's to free. *reason: why they
 * are no text, NULL when they are. False when out of memory. */
bool ist_src_decode(const char *bytes, size_t count, char **text, size_t *length, const char **reason);

#endif
