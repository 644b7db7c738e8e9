/* What the files that write a chain's launch share: a piece of a chain, which becomes one launch (chain_launch.c) of a
 * tape of small steps (chain_tape.c) and, on matrix instructions, of streams of weights (chain_matrix.c). */
#ifndef IST_OPS_CHAIN_PIECE_H
#define IST_OPS_CHAIN_PIECE_H

#include "ops/chain_internal.h"

/* The numbers of cl/isa/tape.cl. */
enum micro {
    LOAD_ROWS,
    STORE_ROWS,
    LINEAR_PART,
    LINEAR_SUM,
    ELTWISE,
    NORM_SUM,
    MATRIX_NORM = NORM_SUM, /* all of it */
    NORM_SQUARE,
    NORM_OUT,
    KEYS_SCORE,
    MATRIX_MEET = KEYS_SCORE, /* sums of two groups, each of half of the inputs */
    KEYS_MOST,
    KEYS_EXP,
    KEYS_PART,
    KEYS_SUM,
    SAMPLE_AT,
    SAMPLE_SUM,
    BOX_SIGMOID,
    SIDES,
    MATRIX_SIDES = SIDES, /* with the sum before and the boxes behind it */
    SIDES_BOX,
    SIDES_BEST,
    MATRIX_LINEAR,
    GROUP_WAITS = 1 << 8,
    READS_ON = 1 << 9,
    LINEAR_TURNS = 1 << 10,
    LINEAR_TURNS_END = 1 << 20, /* what there is room for */
};
enum { PRESENT = 1, ONE_COLUMN = 2, GATED = 4, CLAMPED = 8, IN_FOURS = 16, ALSO = 32 };
enum { FLOATS = 1, ONE_ITEM = 2, QUADS = 4, OCTS = 8 };
enum { WHOLE = 1, EXACT = 2 };
enum { ITEMS = 256, WORDS = 16, BINS = 33, STORED = 13 /* the first of three words: an earlier step's store */ };
/* Loads at the beginning: how many at most by registers, and with those of floats; where the first step says how many,
 * channels for all. */
enum { LOADS = 4, LOADS_ALL = 7, TOGETHER = 10, LOADS_ROOM = 1024 };
/* On matrix instructions (cl/op/chain_mma.cl): rows of a group and channels of its local memory; warps, their pieces of
 * weights in a batch, halves of a piece of all lanes, inputs and outputs of a piece; folds (below); floats of the table
 * of which local memory has a multiple. */
enum { ROWS = 4, MATRIX_ROWS = 8, MATRIX_SLOTS = 2896 };
enum { SIDES_MOST = 2, WARPS = 8, PREFETCHERS = 16, BATCH = 16, PIECE = 256, BLOCK = 16, FOLD_MOST = 2 };
enum { SAVED_LEAST = 2 }; /* turns for which two groups hand each other their sums */
enum { MEETS_LEAST = 3 }; /* turns of a piece for which groups share their rows */
enum { MAIL = 1536 };     /* words of a row that they can */
enum { LINGERS = 2 };     /* steps that a result may wait to be stored */
/* Bytes of local memory beside rows and table; what devices with instructions of warpgroups have. */
enum { DATA_STEP = 4096, MATRIX_REST = 4096, LARGE_ROOM = 202 << 10 };

/* Channels [lo, hi) of a buffer, in local memory from `at` on while steps first to last run. */
typedef struct slot {
    int buffer, lo, hi, at;
    size_t last;
    bool placed, lingers; /* used up, but about to be stored: left alone while there is room */
} slot;

/* What a group makes of a linear layer when two have the same rows: all, half of the outputs, sums of half of the
 * inputs (cl/isa/chain_rows.cl, meet). */
typedef enum way { EACH, OUTPUTS, INPUTS } way;
enum { STREAMS = SIDES_MOST * WARPS };

typedef struct piece {
    ist_plan *plan;
    struct ist_chain *chain;
    size_t first, end;
    const char *label;
    int *words;
    size_t count, capacity;
    slot slots[IST_CHAIN_BUFFERS];
    int slot_count;
    int room, room_size;          /* of the current step alone */
    const ist_chain_step *joined; /* what the step before it does on the way (`also`) */
    bool eager, full;             /* saves steps at the cost of local memory; did not fit */
    ist_arg outside[IST_CHAIN_OUTSIDE];
    int outside_count;
    int sides, side;        /* groups with the same rows, and which of them the tape is for */
    way *ways;              /* of steps first to end */
    int mail;               /* words of a row that a group hands over */
    float *stream[STREAMS]; /* on matrix instructions: what each warp's lanes read, one piece after the other */
    size_t streamed[STREAMS], stream_capacity[STREAMS]; /* in pieces */
    float *data;                                        /* there: the table of this piece */
    size_t data_count, data_capacity;
    double flops;
} piece;

static inline bool ist_piece_same(ist_tensor a, ist_tensor b) {
    return a.buffer == b.buffer && a.c0 == b.c0 && a.c == b.c;
}

/* Of [a, a + count) and [b, b + other). */
static inline bool ist_piece_overlap(int a, int count, int b, int other) {
    return a < b + other && b < a + count;
}

/* ---- chain_tape.c ---- */

/* Appends a step to the tape. */
#define EMIT(p, ...) ist_piece_emit(p, (const int[WORDS]){__VA_ARGS__})
void ist_piece_emit(piece *p, const int *words);
/* Where the channels of t are; brings them in when nobody made them here, or made but a part of what is read here. */
int ist_piece_channels(piece *p, ist_tensor t, bool read);
/* Writes the piece's tape for p->side; p->full: local memory was too small, which a piece that is not `eager` reports.
 */
void ist_piece_lower(piece *p, bool eager);

/* ---- chain_matrix.c ---- */

/* Where the kernel finds `count` floats that lie in the chain's table from `at` on. */
int ist_piece_constants(piece *p, size_t at, int count);
/* The step of a linear layer, and its weights. */
void ist_piece_linear(piece *p, const ist_chain_step *s);
way ist_piece_way(const piece *p, const ist_chain_step *s);
/* Decides what two groups with the same rows divide; returns the turns (of all warps, a batch each) that this saves. */
int ist_piece_divide(piece *p);
/* The weights: [1,sides,WARPS,pieces of a warp times PIECE]. */
ist_tensor ist_piece_streams(piece *p, size_t *pieces);
/* The table, whole steps of DATA_STEP floats, and how many of them local memory has room for. */
ist_tensor ist_piece_table(piece *p);
int ist_piece_local_data(const piece *p);

#endif
