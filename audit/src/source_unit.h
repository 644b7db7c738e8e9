/* What is audited together, one C file or all Python files of a project: its names, functions, loops and calls, and the
 * hits the analysers find in it.
 *
 * Private to audit/src. The analysers (source_c.c, source_python.c) go over the text several times: functions are
 * numbered in the order of the text, the same in every pass; loops, calls, hits and chains are of the last pass.
 * Running out of memory is sticky (`failed`), reported once. Numbers of functions, loops, hits and hops count from 1; 0
 * is none. Files count from 0. */
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
    IST_SRC_COPY,   /* on the device */
    IST_SRC_PRINT,  /* a kernel's printf */
    IST_SRC_LAUNCH, /* work for the device; never a finding */
    IST_SRC_CALL    /* of the function `from`, which may launch; never a finding */
} ist_src_op;

enum {
    IST_SRC_BLOCKING = 1,
    IST_SRC_SCALAR = 2,       /* a single value */
    IST_SRC_CONSTANT = 4,     /* uploads: of values that the source spells out */
    IST_SRC_HOST_POINTER = 8, /* an object made from host memory */
    IST_SRC_MODEL = 16,       /* launches: a kernel or a model, not one operation of many */
    IST_SRC_TRAINING = 32,    /* in a branch for training */
    IST_SRC_FOLLOWED = 64,    /* work follows elsewhere: in the rest of a model */
    IST_SRC_DERIVED = 128,    /* uploads of what was read: the host has worked on it */
    IST_SRC_OPTIONAL = 256    /* the build may leave it out */
};

enum { IST_SRC_LABEL = 80, IST_SRC_PARAMS = 20, IST_SRC_PARTS = 6 };

typedef struct ist_src_hit {
    uint32_t file, line, function, loop;
    uint32_t from;   /* C, uploads: line of the download that the data comes from; calls: the function */
    uint32_t branch; /* number of the block it is in: other blocks may exclude this one */
    uint16_t op, flags, calls;
    char label[IST_SRC_LABEL];
} ist_src_hit;

/* What a name holds; the analysers give `kind` and `flags` their meaning. 0 is: not known. */
typedef struct ist_src_value {
    uint8_t kind, flags;
    uint32_t of;     /* Python: number of its class, or of the function that it is; 0: not known */
    uint32_t origin; /* where it comes from; 0: not known. Python: the last hop; C: the line of the download */
    uint32_t hit;    /* the hit that gave it, while on the same line */
} ist_src_value;

/* ---- hops: the way that data takes ---- */

typedef enum ist_src_hop_kind {
    IST_SRC_HOP_DOWN,   /* the first: a download */
    IST_SRC_HOP_PARAM,  /* the first: parameter `param` of `function`, whatever callers pass */
    IST_SRC_HOP_PASS,   /* an argument: parameter `param` of `function` */
    IST_SRC_HOP_RETURN, /* the result of `function` */
    IST_SRC_HOP_KEEP,   /* put into the attribute or field `name` */
    IST_SRC_HOP_UP,     /* the last: an upload */
    IST_SRC_HOP_CALL    /* the last: an argument of `name`, which nothing here defines */
} ist_src_hop_kind;

typedef struct ist_src_hop {
    uint32_t before, root; /* hops: the one before, the first */
    uint32_t file, line;
    uint32_t function, name;
    uint8_t param, kind, depth;
    bool derived; /* the host has changed the data on the way to here */
    uint32_t next;
} ist_src_hop;

/* A number of a hop has this bit when its way begins with a parameter. */
#define IST_SRC_HOP_OPEN 0x80000000u

enum { IST_SRC_HOPS = 20 }; /* of a way; further ones are left out */

typedef enum ist_src_role { IST_SRC_PLAIN, IST_SRC_FRAME, IST_SRC_SETUP, IST_SRC_DRIVER } ist_src_role;

typedef struct ist_src_function {
    uint32_t file;
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
    ist_src_value given[IST_SRC_PARAMS];  /* what callers pass */
    ist_src_value giving[IST_SRC_PARAMS]; /* Python: in this pass, where `given` is of the one before */
    ist_src_value result;
    ist_src_value parts[IST_SRC_PARTS]; /* of a result that is a tuple of part_count; 0: it is none, or not always */
    uint32_t part_count;
    uint32_t sinks[IST_SRC_PARAMS]; /* the way of a parameter to an upload, or to a call that is not known; a hop */
    bool property;                  /* read like an attribute */
    uint8_t bound;                  /* parameters that the call of a method does not give: self */
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
    uint32_t class_, module, suffix; /* Python's: source_py_project.c */
    uint32_t symbol, stamp;          /* what `symbol` means while the file of this stamp is read */
    bool wide, hint;                 /* the analyser's */
} ist_src_name;

/* Strings are borrowed. */
typedef struct ist_src_file {
    const char *path;  /* what reports show */
    const char *inner; /* the part of it that tells about the project */
    const char *text;
    size_t length;
    const uint32_t *cells; /* notebooks: cell and line of each line; else NULL */
    bool training, host_data;
    bool torch, numpy, cupy, opencl; /* what it imports */
    uint32_t module;                 /* Python: its number */
} ist_src_file;

typedef struct ist_src_unit {
    bool failed;
    bool host_data; /* of the file being read */
    uint32_t file;  /* the one being read */
    uint64_t lines, dropped, kernels;
    ist_src_file *files;
    size_t file_count, file_cap;
    char *arena;
    size_t arena_used, arena_cap;
    ist_src_name *names;
    uint32_t *buckets, bucket_count;
    size_t name_count, name_cap;
    ist_src_hop *hops;
    uint32_t *hop_buckets;
    size_t hop_count, hop_cap;
    uint32_t *chains; /* hops that are the last of a way from a download */
    size_t chain_count, chain_cap;
    ist_src_function *functions;
    size_t function_count, function_cap, functions_seen;
    ist_src_loop *loops;
    size_t loop_count, loop_cap;
    ist_src_call *calls;
    size_t call_count, call_cap;
    ist_src_hit *hits;
    size_t hit_count, hit_cap;
} ist_src_unit;

/* `length`: about how much text it will have. */
bool ist_src_unit_init(ist_src_unit *unit, size_t length);
bool ist_src_add_file(ist_src_unit *unit, const ist_src_file *file);
void ist_src_unit_free(ist_src_unit *unit);
void ist_src_begin_pass(ist_src_unit *unit);

/* Number of a name; 0 (a name without text) when there are too many of them. */
uint32_t ist_src_intern(ist_src_unit *unit, const char *text, size_t length);
/* 0 when nothing has this name yet. */
uint32_t ist_src_find_name(const ist_src_unit *unit, const char *text, size_t length);
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

/* The hop behind `hop->before`, with IST_SRC_HOP_OPEN as that has it. The same hop has the same number. Where the way
 * is too long already, `before`. */
uint32_t ist_src_hop_add(ist_src_unit *unit, ist_src_hop hop);
/* The way `head`, then that of `tail` behind its first hop. */
uint32_t ist_src_hop_join(ist_src_unit *unit, uint32_t head, uint32_t tail);
static inline const ist_src_hop *ist_src_hop_at(const ist_src_unit *unit, uint32_t hop) {
    return &unit->hops[(hop & ~IST_SRC_HOP_OPEN) - 1];
}
static inline const ist_src_hop *ist_src_hop_root(const ist_src_unit *unit, uint32_t hop) {
    return ist_src_hop_at(unit, ist_src_hop_at(unit, hop)->root);
}
/* A way from a download that ends with an upload or a call that is not known. */
void ist_src_add_chain(ist_src_unit *unit, uint32_t hop);

static inline ist_src_function *ist_src_function_at(ist_src_unit *unit, uint32_t number) {
    return number && number <= unit->function_count ? &unit->functions[number - 1] : NULL;
}

/* Whether `text` consists of words (camelCase, snake_case), one of which is in `list` (" word word "). */
bool ist_src_has_word(const char *text, size_t length, const char *list);

/* How often places run, from the launches, loops and calls of the last pass. */
void ist_src_find_contexts(ist_src_unit *unit);
/* *frame_loop: the loop over frames around the place, 0: none. */
ist_audit_context ist_src_context(const ist_src_unit *unit, uint32_t function, uint32_t loop, uint32_t *frame_loop);

/* The analysers: text is UTF-8 or Latin-1 with '\n' line ends and without zero bytes. C: the only file of the unit. */
void ist_src_read_c(ist_src_unit *unit);
void ist_src_read_python(ist_src_unit *unit);

void ist_src_read_cl(ist_src_unit *unit);

/* Findings of the unit go into the source's log and report. */
ist_status ist_src_judge(ist_src_unit *unit, ist_audit_source *source, bool python, ist_error *err);

/* *text: the Python of a notebook's cells, *cells: cell and line of each of its lines, both the caller's to free.
 * *reason: why it is none, NULL when it is. False when out of memory. */
bool ist_src_read_notebook(const char *bytes, size_t count, char **text, size_t *length, uint32_t **cells,
                           const char **reason);

/* *text: the bytes as one-byte-per-ASCII-character text with '\n' line ends, the caller's to free. *reason: why they
 * are no text, NULL when they are. False when out of memory. */
bool ist_src_decode(const char *bytes, size_t count, char **text, size_t *length, const char **reason);

#endif
