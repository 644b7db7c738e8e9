/* A piece of a sequence as a tape: which tensors are in local memory when, and the small steps that a group runs one after
 * the other. The forms are portable/sequence.c's and
 * nvidia/sequence.c's, on matrix instructions. */
#ifndef IST_VARIANTS_TAPE_H
#define IST_VARIANTS_TAPE_H

#include "variants/sequence_steps.h"

#include <string.h>

/* What a step of the tape is; kernels get these numbers as codes/tape. LINEAR_PART to NORM_OUT: parts of an operator with
 * a barrier between. */
enum ist_micro {
    LOAD_ROWS,
    STORE_ROWS,
    LINEAR_PART,
    LINEAR_SUM,
    ELTWISE,
    NORM_PART,
    NORM_OUT,
    SAMPLE_AT,
    SAMPLE_SUM,
    BOX_SIGMOID,
    SIDES,
    SIDES_BOX,
    SIDES_BEST,
    MICRO_STEPS
};
/* Of an element: its second operand; IN_FOURS: columns and places are multiples of four; ALSO, on matrix instructions:
 * and the result with an addend, to another place. */
enum ist_element_flag { PRESENT = 1, ONE_COLUMN = 2, GATED = 4, CLAMPED = 8, IN_FOURS = 16, ALSO = 32 };
/* Of a tensor outside. FLOATS: its elements are float although T is half; QUADS: may be read, on matrix instructions also
 * written, by fours; OCTS: by eights. */
enum ist_outside_flag { FLOATS = 1, ONE_ITEM = 2, QUADS = 4, OCTS = 8 };
enum { ITEMS = 256, WORDS = 16, BINS = 33 };
enum { IST_TAPE_OUTSIDE = 22 /* tensors from outside */ };

/* Channels [lo, hi) of a buffer, in local memory from `at` on while steps first to last run. */
typedef struct ist_tape_slot {
    int buffer, lo, hi, at;
    size_t last;
    bool placed, lingers; /* used up, but about to be stored: left alone while there is room */
} ist_tape_slot;

struct ist_tape_form;
typedef struct ist_tape {
    const struct ist_tape_form *form;
    ist_plan *plan;
    struct ist_sequence *sequence;
    size_t first, end;
    const char *label;
    int *words;
    size_t count, capacity;
    ist_tape_slot slots[IST_SEQUENCE_BUFFERS];
    int slot_count;
    int room, room_size;    /* of the current step alone */
    const ist_step *joined; /* what the step before it does on the way (ist_tape_also) */
    bool eager, full;       /* saves steps at the cost of local memory; did not fit */
    ist_arg outside[IST_TAPE_OUTSIDE];
    int outside_count;
    int sides, side; /* groups with the same rows, and which of them the tape is for */
    double flops;
} ist_tape;

typedef struct ist_tape_form {
    int slots;  /* channels of local memory that a row has */
    int begin;  /* a tensor's first is a multiple of it */
    int sample; /* of these, what a point of deformable attention takes */
    void (*linear)(ist_tape *t, const ist_step *s);
    void (*norm)(ist_tape *t, const ist_step *s);
    void (*gate)(ist_tape *t, const ist_step *s);
    void (*fdr)(ist_tape *t, const ist_step *s);
    /* Where the kernel finds `count` floats that lie in the sequence's table from `at` on. */
    int (*constants)(ist_tape *t, size_t at, int count);
    void (*load_first)(ist_tape *t); /* at the beginning, or NULL */
    /* Whether each of two groups with the same rows has made half of the columns; NULL: there are no such groups. */
    bool (*divided)(const ist_tape *t, const ist_step *s);
    /* Where in the rows' mails each of two groups hands over what half of the heads have sampled; -1: each samples for
     * all, NULL: always. */
    int (*mail_heads)(ist_tape *t, const ist_step *s);
} ist_tape_form;

static inline bool ist_tape_same(ist_tensor a, ist_tensor b) {
    return a.buffer == b.buffer && a.c0 == b.c0 && a.c == b.c;
}

/* Of [a, a + count) and [b, b + other). */
static inline bool ist_tape_overlap(int a, int count, int b, int other) {
    return a < b + other && b < a + count;
}

static inline int ist_tape_bits(float f) {
    int i;
    memcpy(&i, &f, sizeof i);
    return i;
}

/* Writes the tape for t->side; t->full: local memory was too small, which a tape that is not `eager` reports. */
void ist_tape_lower(ist_tape *t, bool eager);
/* Records the launch: the tape's words, weights, table, limit, tensors from outside, then `more` up to `count`. */
void ist_tape_launch(ist_tape *t, ist_launch *l, ist_tensor tape, ist_tensor weights, ist_tensor table,
                     const ist_arg *more, int count);

/* ---- for forms ---- */

/* Appends a step to the tape. */
#define EMIT(t, ...) ist_tape_emit(t, (const int[WORDS]){__VA_ARGS__})
void ist_tape_emit(ist_tape *t, const int *words);
/* Where the channels of x are; brings them in when nobody made them here, or made but a part of what is read here. */
int ist_tape_channels(ist_tape *t, ist_tensor x, bool read);
/* Room of `size` channels for this step alone. */
int ist_tape_room(ist_tape *t, int size);
/* Where the next step adds something to what this one makes, at `out`, an eager tape does so on the way. Returns the
 * bits of word 12 for it, 0 where it is not so; `operands` of c channels (gates 2 c) are all that this step reads. */
unsigned ist_tape_also(ist_tape *t, const ist_step *s, int out, const int *operands, int count);
/* Whether a step of this piece before the i-th makes some of the buffer. */
bool ist_tape_made_here(const ist_tape *t, size_t i, int buffer);

#endif
