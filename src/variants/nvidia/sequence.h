/* Sequences on matrix instructions (cl/nvidia/sequence.cl): a tape, streams of weights, and what two groups with the same
 * rows divide. */
#ifndef IST_VARIANTS_NVIDIA_SEQUENCE_H
#define IST_VARIANTS_NVIDIA_SEQUENCE_H

#include "variants/tape.h"

/* Steps of the tape beside those of tape.h, for kernels too (codes/sequence_nvidia). MATRIX_MEET: sums of two groups, each
 * of half of the inputs; MATRIX_NORM: all of a norm; MATRIX_SIDES: with the sum before and the boxes behind it. With the
 * number: GROUP_WAITS, the next step wants what other warps make; LINEAR_TURN times the turns of a linear layer. */
enum ist_matrix_step {
    MATRIX_NORM = NORM_PART,
    MATRIX_MEET = NORM_OUT,
    MATRIX_SIDES = SIDES,
    MATRIX_LINEAR = MICRO_STEPS,
    GROUP_WAITS = 1 << 8,
    LINEAR_TURN = 1 << 10,
    LINEAR_TURNS_END = 1 << 20 /* what there is room for */
};
/* Of a linear layer. WHOLE: its batches have no inputs beyond the last one; EXACT: its inputs count as floats, once
 * rounded to half and once what was lost; from half of the batches on its inputs are flags / JUMP channels further.
 * MAILED - i in place of its bias: the other group gets its sums, as words from i on. */
enum ist_matrix_linear_flag { WHOLE = 1, EXACT = 2, JUMP = 4, MAILED = -2 };
enum { STORED = 13 /* the first of three words: an earlier step's store */ };
/* Loads at the beginning: how many at most by registers, and with those of floats; where the first step says how many,
 * channels for all. */
enum { LOADS = 4, LOADS_ALL = 7, TOGETHER = 10, LOADS_ROOM = 1024 };
/* Rows of a group, channels of its local memory as floats and as halves, so that rows are in different banks; warps,
 * their pieces of weights in a batch, halves of a piece of all lanes, inputs and outputs of a piece; folds (below);
 * floats of the table of which local memory has a multiple. */
enum { MATRIX_ROWS = 8, MATRIX_SLOTS = 2888, MATRIX_HALVES = 2896 };
enum { SIDES_MOST = 2, WARPS = 8, PREFETCHERS = 16, BATCH = 16, PIECE = 256, BLOCK = 16, FOLD_MOST = 2 };
enum { SAVED_LEAST = 2 }; /* turns for which two groups hand each other their sums */
enum { MEETS_LEAST = 3 }; /* turns of a piece for which groups share their rows */
enum { MAIL = 2048 };     /* words of a row that they can */
/* Bytes of local memory beside rows, tape and table; what devices with instructions of warpgroups have. */
enum { DATA_STEP = 8192, MATRIX_REST = 2048, LARGE_ROOM = 202 << 10 };
enum { STEPS_STEP = 32, STEPS_MOST = 64 }; /* steps of a tape: local memory has a multiple of them; at most */

/* What a group makes of a linear layer when two have the same rows: all, half of the outputs, sums of half of the
 * inputs (cl/nvidia/sequence_rows.cl, meet). HEADS: of deformable attention half of the heads; of the linear layer that
 * takes these, behind as many other channels, sums of that half of either. */
typedef enum way { EACH, OUTPUTS, INPUTS, HEADS } way;
enum { STREAMS = SIDES_MOST * WARPS };

/* The configuration of a form. */
typedef struct ist_matrix_sequence {
    bool meets; /* work-groups of a launch see what others write while both run */
    bool large; /* LARGE_ROOM */
} ist_matrix_sequence;

extern const ist_sequence_form ist_matrix_sequence_meeting_large, ist_matrix_sequence_meeting, ist_matrix_sequence_large,
    ist_matrix_sequence_plain, ist_tape_sequence_ptx;

typedef struct ist_matrix_tape {
    ist_tape tape;                                      /* first */
    way *ways;                                          /* of steps first to end */
    int mail;                                           /* words of a row that a group hands over */
    int heads_mail;                                     /* of these, where HEADS are */
    float *stream[STREAMS];                             /* what each warp's lanes read, one piece after the other */
    size_t streamed[STREAMS], stream_capacity[STREAMS]; /* in pieces */
    float *data;                                        /* the table of this piece */
    size_t data_count, data_capacity;
} ist_matrix_tape;

/* A form's functions are given the tape that is the first member. */
static inline ist_matrix_tape *ist_matrix_of(ist_tape *t) {
    return (ist_matrix_tape *)t;
}
static inline const ist_matrix_tape *ist_matrix_of_const(const ist_tape *t) {
    return (const ist_matrix_tape *)t;
}

/* ---- sequence_weights.c ---- */

/* Where the kernel finds `count` floats that lie in the sequence's table from `at` on. */
int ist_matrix_constants(ist_tape *t, size_t at, int count);
/* The step of a linear layer, and its weights. */
void ist_matrix_linear(ist_tape *t, const ist_step *s);
/* A form's divided and mail_heads. */
bool ist_matrix_divided(const ist_tape *t, const ist_step *s);
int ist_matrix_mail_heads(ist_tape *t, const ist_step *s);
/* Decides what two groups with the same rows divide; returns the turns (of all warps, a batch each) that this saves. */
int ist_matrix_divide(ist_matrix_tape *m);
/* The weights: [1,sides,WARPS,pieces of a warp times PIECE]. */
ist_tensor ist_matrix_streams(ist_matrix_tape *m, size_t *pieces);
/* The table, whole steps of DATA_STEP floats, and how many of them local memory has room for beside a tape. */
ist_tensor ist_matrix_table(ist_matrix_tape *m);
int ist_matrix_local_data(const ist_matrix_tape *m, int steps);
/* Channels that a row has as halves, too: MATRIX_HALVES or 0. */
int ist_matrix_halves(const ist_matrix_tape *m);

#endif
