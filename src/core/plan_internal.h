/* What record.c, finish.c, block.c and run.c share: the plan's own structures. Nobody else includes this. */
#ifndef IST_CORE_PLAN_INTERNAL_H
#define IST_CORE_PLAN_INTERNAL_H

#include "core/plan.h"

typedef enum ist_home { IST_HOME_ARENA, IST_HOME_PERSISTENT, IST_HOME_CONST, IST_HOME_EXTERNAL } ist_home;

/* One buffer; tensors refer to it by its position + 1. */
typedef struct ist_plan_buffer {
    ist_home home;
    size_t bytes;
    int first, last; /* launches that touch it; first = -1: none */
    int written;     /* the last that may write it; -1: none */
    unsigned sides;  /* branches that touch it: as ist_span.sides */
    bool keep;       /* tapped, or a limit: alive to the end */
    int ext;         /* IST_HOME_EXTERNAL */
    int page;        /* IST_HOME_CONST */
    size_t offset;   /* in the arena, the state or the page */
    cl_mem mem;      /* after finish: the block or of the arena, borrowed, of an external as bound, else owned */
    size_t at;       /* its first byte in `mem` */
} ist_plan_buffer;

/* Constants are gathered in pages on the host and uploaded once each. */
typedef struct ist_plan_page {
    ist_pages *host; /* until it is uploaded */
    size_t used, capacity;
    cl_mem mem; /* after finish, unless there is a block */
} ist_plan_page;

typedef struct ist_plan_node {
    ist_launch launch; /* label, op, isa, defines and kernel are owned copies */
    cl_kernel kernel;
    int unit;           /* 0: none */
    int section;        /* 0: none */
    const char *series; /* the program's text where it is a series, the plan's; else NULL */
} ist_plan_node;

typedef struct ist_plan_tap_entry {
    char *name;
    ist_tensor tensor;
} ist_plan_tap_entry;

/* What shadows share with their plan (shadow.c). */
typedef struct ist_plan_shared ist_plan_shared;

/* An argument that takes an external buffer. */
typedef struct ist_plan_slot {
    int ext, node, arg;
} ist_plan_slot;

#define IST_MAX_EXTERNALS 16

struct ist_plan {
    ist_device *device;
    ist_plan_options options;
    ist_error error;
    bool finished;
    bool values; /* constants that are recorded now get theirs */
    bool shadow;
    ist_plan_shared *shared; /* while there are shadows; the plan's that has them */
    ist_plan_buffer *buffers;
    size_t buffer_count, buffer_capacity;
    ist_plan_page *pages;
    size_t page_count, page_capacity;
    ist_plan_node *nodes;
    size_t node_count, node_capacity;
    ist_plan_tap_entry *taps;
    size_t tap_count, tap_capacity;
    ist_plan_slot *slots;
    size_t slot_count, slot_capacity;
    ist_tensor limit, no_limit, work_queue[2]; /* queues of the main and of the side branch */
    /* The first branch is launches fork..side - 1 and join..rest - 1, the second one side..join - 1; -1: not yet. */
    int fork, side, join, rest;
    bool work_turn, narrow;
    double share; /* of the device's units: ist_plan_share */
    struct ist_sequence *sequence; /* borrowed */
    ist_origin from;
    const char *stage;
    int unit, section;
    unsigned left_out; /* bit s: section s is, of replays */
    ist_tuning notes;
    int external[IST_MAX_EXTERNALS]; /* buffer number, 0: not used */
    cl_mem bound[IST_MAX_EXTERNALS];
    cl_mem arena, state; /* state: all that is IST_HOME_PERSISTENT */
    cl_mem block;        /* pages, state and arena as one buffer, where launches are given places in it */
    size_t arena_at;     /* its first byte in the block */
    ist_arena_size arena_size;
    cl_mem *regions; /* sub-buffers of the arena; tensors borrow them */
    int region_count;
    char **series; /* texts of programs */
    size_t series_count, series_capacity;
};

/* Kernel arguments of a series: the tape, then what its tensors lie in: arena, state, pages of constants, external
 * buffers. */
enum {
    IST_SERIES_PAGES = 6,
    IST_SERIES_EXTERNALS = 4,
    IST_SERIES_FIRST_EXTERNAL = 2 + IST_SERIES_PAGES,
    IST_SERIES_BASES = IST_SERIES_FIRST_EXTERNAL + IST_SERIES_EXTERNALS
};

/* Makes one launch of each run of launches that share out their work (series.c). For a plan whose arena is placed and
 * whose constants are not uploaded yet. */
ist_status ist_plan_join_series(ist_plan *plan, ist_error *err);
/* ist_plan_begin for a shadow, if `shared` is given. */
ist_status ist_plan_begin_in(ist_device *device, const ist_plan_options *options, ist_plan_shared *shared,
                             ist_plan **plan, ist_error *err);
/* The page behind the last; NULL: no memory. */
ist_pages *ist_plan_new_page(ist_plan *plan, size_t bytes);
/* Offsets of what is IST_HOME_PERSISTENT; returns the bytes of it all. */
size_t ist_plan_place_state(ist_plan *plan);
/* For a plan in a block whose arena is placed: makes it and fills it (block.c), all but the arena. */
ist_status ist_plan_create_block(ist_plan *plan, ist_error *err);
/* Sets the arguments around node n's own: the block, and what the launch brings into the device's cache. */
ist_status ist_plan_set_block(ist_plan *plan, size_t n, ist_error *err);
void ist_plan_free_launch(ist_launch *launch);

/* What identifies a launch's program; borrowed from it. */
static inline ist_program_part ist_plan_program(const ist_launch *l) {
    return (ist_program_part){l->op, l->isa, l->defines};
}
bool ist_plan_same_program(ist_program_part a, ist_program_part b);

/* Whether launches are given places in one block, which is argument 0 then, in front of the launch's own
 * (device/ptx.h). Not on CPUs, whatever is claimed of them: none has programs that are PTX. */
static inline bool ist_plan_in_block(const ist_plan *p) {
    return (ist_plan_caps(p) & (IST_CAP_PTX_BLOCK | IST_CAP_CPU)) == IST_CAP_PTX_BLOCK;
}

/* Whether there are branches that run at the same time. */
static inline bool ist_plan_branches(const ist_plan *p) {
    return p->options.overlap && p->fork < p->side && p->side < p->join;
}
/* The launch before which they meet. */
static inline int ist_plan_meet(const ist_plan *p) {
    return p->rest < 0 ? (int)p->node_count : p->rest;
}
/* Bytes of one element of `elem` in this plan. */
size_t ist_plan_elem_bytes(const ist_plan *plan, ist_elem elem);
static inline ist_plan_buffer *ist_plan_buffer_of(const ist_plan *plan, ist_tensor t) {
    return &plan->buffers[t.buffer - 1];
}

#endif
