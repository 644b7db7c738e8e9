/* One piece of a chain as a launch: which tensors are in local memory when, and the tape of small steps that the kernel
 * runs (cl/op/chain.cl, which says what each number means). */
#include "ops/chain_internal.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

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
enum { WARPS = 8, PREFETCHERS = 16, BATCH = 16, PIECE = 256, BLOCK = 16, FOLD_MOST = 2 };
enum { LINGERS = 2 }; /* steps that a result may wait to be stored */
/* Bytes of local memory beside rows and table; what devices with instructions of warpgroups have. */
enum { DATA_STEP = 4096, MATRIX_REST = 4096, LARGE_ROOM = 202 << 10 };

/* Channels [lo, hi) of a buffer, in local memory from `at` on while steps first to last run. */
typedef struct slot {
    int buffer, lo, hi, at;
    size_t last;
    bool placed, lingers; /* used up, but about to be stored: left alone while there is room */
} slot;

typedef struct piece {
    ist_plan *plan;
    const struct ist_chain *chain;
    size_t first, end;
    const char *label;
    int *words;
    size_t count, capacity;
    slot slots[IST_CHAIN_BUFFERS];
    int slot_count;
    int room, room_size; /* of the current step alone */
    const ist_chain_step *joined; /* what the step before it does on the way (`also`) */
    bool eager, full;             /* saves steps at the cost of local memory; did not fit */
    ist_arg outside[IST_CHAIN_OUTSIDE];
    int outside_count;
    float *stream[WARPS]; /* on matrix instructions: what each warp's lanes read, one piece after the other */
    size_t streamed[WARPS], stream_capacity[WARPS]; /* in pieces */
    float *data;                                    /* there: the table of this piece */
    size_t data_count, data_capacity;
    double flops;
} piece;

static int bits_of(float f) {
    int i;
    memcpy(&i, &f, sizeof i);
    return i;
}

#define EMIT(p, ...) emit(p, (const int[WORDS]){__VA_ARGS__})
static void emit(piece *p, const int *words) {
    if (ist_plan_status(p->plan)) return;
    if (!ist_grow((void **)&p->words, &p->capacity, p->count + 1, WORDS * sizeof *words)) {
        ist_plan_fail(p->plan, IST_E_MEMORY, "%s: out of host memory for a chain of operators", p->label);
        return;
    }
    memcpy(p->words + WORDS * p->count++, words, WORDS * sizeof *words);
}

/* ---- tensors outside ---- */

static int outside(piece *p, ist_tensor t, ist_arg_kind use) {
    return ist_chain_argument(p->plan, p->label, p->outside, &p->outside_count, IST_CHAIN_OUTSIDE, t, use);
}

static int flags_of(const piece *p, ist_tensor t) {
    return (t.elem == IST_ELEM_F32 ? FLOATS : 0) | (t.n == 1 && p->chain->n > 1 ? ONE_ITEM : 0);
}

static int quads_of(int all) {
    return all % 4 ? 0 : QUADS;
}

/* ---- local memory ---- */

static void widen(piece *p, ist_tensor t, size_t step) {
    slot *s = NULL;
    if (!ist_has(t)) return;
    for (int i = 0; i < p->slot_count && !s; i++)
        if (p->slots[i].buffer == t.buffer) s = &p->slots[i];
    if (!s && p->slot_count == IST_CHAIN_BUFFERS) {
        ist_plan_fail(p->plan, IST_E_LIMIT, "%s: a piece of a chain has more than %d tensors", p->label,
                      IST_CHAIN_BUFFERS);
        return;
    }
    if (!s) {
        s = &p->slots[p->slot_count++];
        *s = (slot){.buffer = t.buffer, .lo = t.c0, .hi = t.c0 + t.c};
    }
    if (t.c0 < s->lo) s->lo = t.c0;
    if (t.c0 + t.c > s->hi) s->hi = t.c0 + t.c;
    s->last = step;
}

static int slots_of(const piece *p) {
    return p->chain->matrix ? MATRIX_SLOTS : IST_CHAIN_SLOTS;
}

/* The lowest free run of `size` channels, from a multiple of four on; it may end beyond the last one. */
static int lowest(const piece *p, int size) {
    int at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < p->slot_count; i++) {
            const slot *s = &p->slots[i];
            if (!s->placed || at + size <= s->at || at >= s->at + s->hi - s->lo) continue;
            at = (int)ist_round_up((size_t)(s->at + s->hi - s->lo), 4);
            moved = true;
        }
        if (at + size > p->room && at < p->room + p->room_size) {
            at = (int)ist_round_up((size_t)(p->room + p->room_size), 4);
            moved = true;
        }
    }
    return at;
}

static int place(piece *p, int size) {
    int at = lowest(p, size);
    if (at + size > slots_of(p)) {
        for (int i = 0; i < p->slot_count; i++)
            if (p->slots[i].lingers) p->slots[i].placed = false;
        at = lowest(p, size);
    }
    if (at + size > slots_of(p) && p->eager)
        p->full = true;
    else if (at + size > slots_of(p))
        ist_plan_fail(p->plan, IST_E_LIMIT, "%s: a chain needs more than %d channels of local memory", p->label,
                      slots_of(p));
    return at;
}

/* Whether an earlier piece made channels of the buffer. */
static bool made_before(const piece *p, int buffer) {
    for (size_t i = 0; i < p->first; i++)
        for (int k = 0; k < 2; k++)
            if (p->chain->steps[i].out[k].buffer == buffer) return true;
    return false;
}

/* Where the channels of t are; brings them in when nobody made them here, or made but a part of what is read here. */
static int channels(piece *p, ist_tensor t, bool read) {
    for (int i = 0; i < p->slot_count; i++) {
        slot *s = &p->slots[i];
        if (s->buffer != t.buffer) continue;
        if (!s->placed) {
            s->at = place(p, s->hi - s->lo);
            s->placed = true;
            if (read || (s->hi - s->lo > t.c && made_before(p, t.buffer)))
                EMIT(p, LOAD_ROWS, s->at, s->hi - s->lo, outside(p, t, IST_ARG_IN), t.ld, s->lo,
                     flags_of(p, t) | quads_of(t.ld | s->lo | s->hi));
        }
        return s->at + t.c0 - s->lo;
    }
    return 0;
}

/* Room for this step alone. */
static int take_room(piece *p, int size) {
    p->room_size = 0;
    p->room = place(p, size);
    p->room_size = size;
    return p->room;
}

/* ---- steps ---- */

static void linear(piece *p, const ist_chain_step *s) {
    const ist_filter *f = &s->filter;
    int in = channels(p, s->rows[0], true);
    int before = ist_has(s->rows[1]) ? channels(p, s->rows[1], true) : -1;
    int after = ist_has(s->rows[2]) ? channels(p, s->rows[2], true) : -1, out = channels(p, s->out[0], false);
    int blocks = ist_div_up(f->out, 4), parts = ITEMS / blocks, most = ist_div_up(f->in, 8);
    if (parts > most) parts = most;
    int each = ist_div_up(f->in, parts);
    if (each > 8) each = ist_div_up(each, 8) * 8;
    parts = ist_div_up(f->in, each);
    int room = take_room(p, parts * blocks * 4);
    EMIT(p, LINEAR_PART, in, f->in, room, blocks, parts, each, (int)s->weights_at);
    EMIT(p, LINEAR_SUM, out, f->out, room, blocks, parts, s->has_bias ? (int)s->data_at[0] : -1, s->ints[0], before,
         after);
}

/* Where the kernel finds `count` floats that lie in the chain's table from `at` on. */
static int constants(piece *p, size_t at, int count) {
    size_t first = p->data_count, room = ist_round_up((size_t)count, 4);
    if (!p->chain->matrix || ist_plan_status(p->plan)) return (int)at;
    if (!ist_grow((void **)&p->data, &p->data_capacity, first + room, sizeof *p->data)) {
        ist_plan_fail(p->plan, IST_E_MEMORY, "%s: out of host memory for a chain of operators", p->label);
        return 0;
    }
    memcpy(p->data + first, p->chain->table + at, room * sizeof *p->data);
    p->data_count += room;
    return (int)first;
}

/* Appends to the warp's stream the weights of a unit, 16 << fold outputs, for all inputs: pieces of 16 bytes for each
 * lane, the blocks of 16 outputs for 16 inputs, then for the next. Lane l holds outputs l / 4 and that 8 further, of
 * each the inputs 4 (l % 4) + {0, 1}, then of each {2, 3} (mma.m16n8k16, matrix A; the inputs in the order that suits
 * the rows). */
static void stream_unit(piece *p, int warp, const ist_chain_step *s, int unit, int fold, int batches) {
    const ist_filter *f = &s->filter;
    size_t ld = ist_round_up((size_t)f->out, 4), count = p->streamed[warp] + (size_t)batches * BATCH;
    const float *w = p->chain->weights + s->weights_at;
    if (ist_plan_status(p->plan)) return;
    if (!ist_grow((void **)&p->stream[warp], &p->stream_capacity[warp], count, PIECE * sizeof(float))) {
        ist_plan_fail(p->plan, IST_E_MEMORY, "%s: out of host memory for a chain of operators", p->label);
        return;
    }
    float *to = p->stream[warp] + PIECE * p->streamed[warp];
    for (int e = 0; e < batches * BATCH * PIECE; e++) {
        int h = e % 8, lane = e / 8 % 32, at = e / PIECE;
        int o = ((unit << fold) + (at & ((1 << fold) - 1))) * BLOCK + h / 2 % 2 * 8 + lane / 4;
        int i = (at >> fold) * BLOCK + lane % 4 * 4 + h / 4 * 2 + h % 2;
        to[e] = o < f->out && i < f->in ? w[(size_t)i * ld + (size_t)o] : 0;
    }
    p->streamed[warp] = count;
}

/* How the pieces of a batch lie: 16 << fold outputs of 256 >> fold inputs, so that the warps have least to do and,
 * among equals, read inputs least often. What the kernel does only with the highest fold: inputs that count as floats,
 * batches that are not whole. */
typedef struct layout {
    int fold, units, batches, rounds;
    bool whole; /* batches */
} layout;

static layout layout_of(const ist_filter *f, bool exact) {
    layout best = {0};
    for (int fold = 0; fold <= FOLD_MOST; fold++) {
        layout l = {.fold = fold,
                    .units = ist_div_up(f->out, BLOCK << fold),
                    .batches = ist_div_up(f->in, BLOCK * BATCH >> fold)};
        l.rounds = ist_div_up(l.units, WARPS);
        l.whole = f->in == l.batches * (BLOCK * BATCH >> fold);
        if ((exact || !l.whole) && fold < FOLD_MOST) continue;
        if (!best.units || l.rounds * l.batches <= best.rounds * best.batches) best = l;
    }
    return best;
}

static void matrix_linear(piece *p, const ist_chain_step *s) {
    const ist_filter *f = &s->filter;
    int in = channels(p, s->rows[0], true);
    int before = ist_has(s->rows[1]) ? channels(p, s->rows[1], true) : -1;
    int after = ist_has(s->rows[2]) ? channels(p, s->rows[2], true) : -1, out = channels(p, s->out[0], false);
    int bias = s->has_bias ? constants(p, s->data_at[0], f->out) : -1;
    bool exact = s->rows[0].elem == IST_ELEM_F32;
    layout l = layout_of(f, exact);
    int flags = (exact ? EXACT : 0) | (l.whole ? WHOLE : 0);
    for (int unit = 0; unit < l.units; unit++) stream_unit(p, unit % WARPS, s, unit, l.fold, l.batches);
    int turns = l.rounds * l.batches * (flags & EXACT ? 2 : 1);
    if (turns >= LINEAR_TURNS_END || in % 4) {
        ist_plan_fail(p->plan, IST_E_LIMIT, "%s: %d inputs from %d on and %d outputs, in a chain", p->label, f->in, in,
                      f->out);
        return;
    }
    EMIT(p, MATRIX_LINEAR + turns * LINEAR_TURNS, in, f->in, out, f->out, l.units, l.batches, flags, bias, s->ints[0],
         before, after, l.fold);
}

static bool same_channels(ist_tensor a, ist_tensor b) {
    return a.buffer == b.buffer && a.c0 == b.c0 && a.c == b.c;
}

static bool overlap(int a, int count, int b, int other) {
    return a < b + other && b < a + count;
}

/* On matrix instructions: where the next step adds something to what this one makes, at `out`, the kernel does so on
 * the way. Returns the bits of word 12 for it, 0 where it is not so; `operands` of c channels (gates 2 c) are all that
 * this step reads. */
static unsigned also(piece *p, const ist_chain_step *s, int out, const int *operands, int count) {
    const ist_chain_step *n = s + 1;
    if (!p->eager || n >= p->chain->steps + p->end || n->op != IST_CHAIN_SUM || n->ints[0]) return 0;
    int c = s->out[0].c, k = same_channels(n->rows[0], s->out[0]) ? 1 : 0;
    if (!same_channels(n->rows[1 - k], s->out[0]) || n->rows[k].c != c || same_channels(n->rows[k], s->out[0]))
        return 0;
    int with = channels(p, n->rows[k], true), to = channels(p, n->out[0], false);
    bool free = (to | with | out | c) % 4 == 0 && !overlap(to, c, out, c);
    for (int i = 0; i < count; i++) free = free && !overlap(to, c, operands[i], i < 2 ? c : 2 * c);
    if (!free) return 0;
    p->joined = n;
    return (unsigned)to << 8 | (unsigned)with << 20;
}

static void sum(piece *p, const ist_chain_step *s) {
    bool two = ist_has(s->rows[1]);
    int a = channels(p, s->rows[0], true), b = two ? channels(p, s->rows[1], true) : 0, c = s->out[0].c;
    int mode = (two ? PRESENT : 0) | (two && s->rows[1].c == 1 && c > 1 ? ONE_COLUMN : 0) | (s->ints[0] ? CLAMPED : 0);
    int out = channels(p, s->out[0], false), fours = (c | a | b | out) % 4 || mode & ONE_COLUMN ? 0 : IN_FOURS;
    unsigned more = fours ? also(p, s, out, (const int[]){a, b}, two ? 2 : 1) : 0;
    EMIT(p, ELTWISE, out, c, a, b, mode | fours | (more ? ALSO : 0), bits_of(s->floats[0]), bits_of(s->floats[1]), 0, 0,
         0, 0, (int)more);
}

static void normalise(piece *p, const ist_chain_step *s, int out, float eps, int act) {
    int room = take_room(p, 64);
    for (int kind = NORM_SUM; kind <= NORM_OUT; kind++)
        EMIT(p, kind, out, s->out[0].c, room, (int)s->data_at[0], (int)s->data_at[1], bits_of(eps), act);
}

static void norm(piece *p, const ist_chain_step *s) {
    bool two = ist_has(s->rows[1]);
    int a = channels(p, s->rows[0], true), b = two ? channels(p, s->rows[1], true) : 0;
    int out = channels(p, s->out[0], false), mode = (two ? PRESENT : 0) | (s->floats[1] > 0 ? CLAMPED : 0);
    EMIT(p, ELTWISE, out, s->out[0].c, a, b, mode, bits_of(-s->floats[1]), bits_of(s->floats[1]));
    normalise(p, s, out, s->floats[0], s->ints[0]);
}

/* What `norm` and `gate` are there: one step. */
static void matrix_norm(piece *p, const ist_chain_step *s, bool gates) {
    float most = gates ? 0 : s->floats[1];
    int a = channels(p, s->rows[0], true), b = ist_has(s->rows[1]) ? channels(p, s->rows[1], true) : 0;
    int g = gates ? channels(p, s->rows[2], true) : 0, out = channels(p, s->out[0], false);
    int mode = gates ? GATED : (ist_has(s->rows[1]) ? PRESENT : 0) | (most > 0 ? CLAMPED : 0);
    if ((a | b | g | out) % 4) {
        ist_plan_fail(p->plan, IST_E_ARGUMENT, "%s: channels from %d, %d, %d and %d on, not in fours", p->label, a, b,
                      g, out);
        return;
    }
    unsigned more = also(p, s, out, (const int[]){a, b, g}, gates ? 3 : mode & PRESENT ? 2 : 1);
    EMIT(p, MATRIX_NORM, out, s->out[0].c, a, b, mode | (more ? ALSO : 0), bits_of(-most), bits_of(most), g,
         constants(p, s->data_at[0], s->sizes[0]), constants(p, s->data_at[1], s->sizes[1]), bits_of(s->floats[0]),
         (int)more | (gates ? IST_ACT_NONE : s->ints[0]));
}

static void matrix_norm_step(piece *p, const ist_chain_step *s) {
    matrix_norm(p, s, false);
}

static void matrix_gate(piece *p, const ist_chain_step *s) {
    matrix_norm(p, s, true);
}

static void gate(piece *p, const ist_chain_step *s) {
    int x = channels(p, s->rows[0], true), y = channels(p, s->rows[1], true), g = channels(p, s->rows[2], true);
    int out = channels(p, s->out[0], false);
    EMIT(p, ELTWISE, out, s->out[0].c, x, y, GATED, 0, 0, g);
    normalise(p, s, out, s->floats[0], IST_ACT_NONE);
}

static bool in_quads(piece *p, ist_tensor t) {
    if ((t.ld | t.c0) % 4 == 0 && (t.elem == IST_ELEM_T || !ist_plan_half(p->plan))) return true;
    ist_plan_fail(p->plan, IST_E_ARGUMENT, "%s: %d elements per row from %d on, or their type, cannot be read by fours",
                  p->label, t.ld, t.c0);
    return false;
}

static void attention(piece *p, const ist_chain_step *s) {
    ist_tensor k = s->whole[0], v = s->whole[1];
    int heads = s->ints[0], d = k.c / heads, keys = k.h * k.w, parts = ITEMS / (d / 2);
    int q = channels(p, s->rows[0], true), out = channels(p, s->out[0], false);
    int scores = take_room(p, 2 * keys + ITEMS + 32 + parts * 2 * (d + 1)), most = scores + 2 * keys;
    int part = most + ITEMS + 32, ek = outside(p, k, IST_ARG_IN), ev = outside(p, v, IST_ARG_IN);
    if (!in_quads(p, k) || !in_quads(p, v)) return;
    for (int h = 0; h < heads; h += 2) {
        EMIT(p, KEYS_SCORE, q, scores, most, k.ld, k.c0, flags_of(p, k), ek, keys, d, h, heads, bits_of(s->floats[0]));
        EMIT(p, KEYS_MOST, 0, 0, most);
        EMIT(p, KEYS_EXP, 0, scores, most, 0, 0, 0, 0, keys, d, h, heads);
        EMIT(p, KEYS_PART, 0, scores, part, v.ld, v.c0, flags_of(p, v), ev, keys, d, h, heads);
        EMIT(p, KEYS_SUM, out, 0, part, 0, 0, 0, 0, keys, d, h, heads);
    }
}

static void deform(piece *p, const ist_chain_step *s) {
    ist_tensor memory = s->whole[0];
    int heads = s->ints[0], points = s->ints[1];
    int offsets = channels(p, s->rows[0], true), weights = channels(p, s->rows[1], true);
    int boxes = channels(p, s->rows[2], true), out = channels(p, s->out[0], false);
    int places = take_room(p, (p->chain->matrix ? 9 : 8) * heads * points), em = outside(p, memory, IST_ARG_IN);
    if (!in_quads(p, memory)) return;
    EMIT(p, SAMPLE_AT, offsets, weights, boxes, places, constants(p, s->data_at[0], s->sizes[0]), points, heads,
         (1 << 16) / points + 1);
    EMIT(p, SAMPLE_SUM, out, places, em, memory.ld, memory.c0,
         flags_of(p, memory) | ((memory.ld | memory.c0 | memory.c / heads) % 8 ? 0 : OCTS), heads, points,
         memory.c / heads, memory.h * memory.w);
}

static void gather(piece *p, const ist_chain_step *s) {
    ist_tensor x = s->whole[0];
    EMIT(p, LOAD_ROWS, channels(p, s->out[0], false), x.c, outside(p, x, IST_ARG_IN), x.ld, x.c0,
         flags_of(p, x) | quads_of(x.ld | x.c0 | x.c), 1, x.h * x.w, outside(p, s->whole[1], IST_ARG_IN));
}

static void box_sigmoid(piece *p, const ist_chain_step *s) {
    int a = channels(p, s->rows[0], true), b = channels(p, s->rows[1], true);
    EMIT(p, BOX_SIGMOID, channels(p, s->out[0], false), s->out[0].c, a, b, s->op == IST_CHAIN_BOX_REFINE);
}

static void fdr(piece *p, const ist_chain_step *s) {
    bool two = ist_has(s->rows[1]);
    int a = channels(p, s->rows[0], true), b = two ? channels(p, s->rows[1], true) : 0;
    int first = channels(p, s->rows[2], true), corners = channels(p, s->out[1], false);
    int boxes = channels(p, s->out[0], false), room = p->chain->matrix ? 0 : take_room(p, 4);
    if (p->chain->matrix) {
        EMIT(p, MATRIX_SIDES, boxes, corners, a, b, two ? PRESENT : 0, first, bits_of(s->floats[0]),
             constants(p, s->data_at[0], s->sizes[0]));
        return;
    }
    EMIT(p, ELTWISE, corners, 4 * BINS, a, b, two ? PRESENT : 0);
    EMIT(p, SIDES, room, corners, constants(p, s->data_at[0], s->sizes[0]));
    EMIT(p, SIDES_BOX, boxes, room, first, bits_of(s->floats[0]));
}

static void lower(piece *p, const ist_chain_step *s) {
    p->room_size = 0;
    if (s == p->joined) return;
    switch (s->op) {
    case IST_CHAIN_LINEAR:
        (p->chain->matrix ? matrix_linear : linear)(p, s);
        break;
    case IST_CHAIN_SUM:
        sum(p, s);
        break;
    case IST_CHAIN_NORM:
        (p->chain->matrix ? matrix_norm_step : norm)(p, s);
        break;
    case IST_CHAIN_GATE:
        (p->chain->matrix ? matrix_gate : gate)(p, s);
        break;
    case IST_CHAIN_ATTENTION:
        attention(p, s);
        break;
    case IST_CHAIN_DEFORM:
        deform(p, s);
        break;
    case IST_CHAIN_GATHER:
        gather(p, s);
        break;
    case IST_CHAIN_BOX_INIT:
    case IST_CHAIN_BOX_REFINE:
        box_sigmoid(p, s);
        break;
    case IST_CHAIN_FDR:
        fdr(p, s);
        break;
    case IST_CHAIN_LQE: {
        int corners = channels(p, s->rows[0], true);
        EMIT(p, SIDES_BEST, channels(p, s->out[0], false), corners);
        break;
    }
    case IST_CHAIN_DEPTHWISE: /* maps are chains on CPUs only */
        break;
    }
    p->room_size = 0;
}

/* Whether a step of this piece before the i-th makes some of the buffer. */
static bool made_here(const piece *p, size_t i, int buffer) {
    for (size_t k = p->first; k < i; k++)
        for (int o = 0; o < 2; o++)
            if (p->chain->steps[k].out[o].buffer == buffer) return true;
    return false;
}

/* On matrix instructions: brings in the first rows that nobody makes here, since loads side by side wait once: up to
 * LOADS of halves, then those of floats, for which the kernel waits with the table. */
static void load_first(piece *p) {
    const struct ist_chain *c = p->chain;
    int room = LOADS_ROOM, quads = 0;
    for (int floats = 0; floats <= p->eager; floats++) {
        size_t most = floats ? LOADS_ALL : LOADS;
        for (size_t i = p->first; i < p->end && p->count < most; i++)
            for (int k = 0; k < 3; k++) {
                ist_tensor t = c->steps[i].rows[k];
                const slot *s = p->slots;
                if (!ist_has(t) || made_here(p, i, t.buffer)) continue;
                while (s->buffer != t.buffer) s++;
                int columns = s->hi - s->lo;
                bool fits = columns <= room && columns <= 256 && (t.ld | s->lo | s->hi) % 4 == 0;
                if (s->placed || p->count >= most || !fits || (t.elem == IST_ELEM_F32) != floats) continue;
                channels(p, t, true);
                room -= columns;
            }
        if (!floats) quads = (int)p->count;
    }
    if (p->count && !ist_plan_status(p->plan)) p->words[TOGETHER] = quads | (int)p->count << 4;
}

/* Step i was the last to use the buffer: other steps are to store it on the way (join_stores), before something else
 * lies there. */
static void linger(piece *p, int buffer, size_t i) {
    for (int k = 0; k < p->slot_count && p->eager; k++) {
        slot *s = &p->slots[k];
        if (s->buffer == buffer && s->last == i) s->lingers = true;
    }
}

static void lower_all(piece *p, bool eager) {
    const struct ist_chain *c = p->chain;
    p->count = p->data_count = 0;
    p->slot_count = p->outside_count = 0;
    p->flops = 0;
    p->joined = NULL;
    p->eager = eager;
    p->full = false;
    memset(p->streamed, 0, sizeof p->streamed);
    for (size_t i = p->first; i < p->end; i++) {
        for (int k = 0; k < 3; k++) widen(p, c->steps[i].rows[k], i);
        for (int k = 0; k < 2; k++) widen(p, c->steps[i].out[k], i);
    }
    if (c->matrix && !ist_plan_status(p->plan)) load_first(p);
    for (size_t i = p->first; i < p->end && !p->full && !ist_plan_status(p->plan); i++) {
        const ist_chain_step *s = &c->steps[i];
        lower(p, s);
        p->flops += s->flops;
        for (int k = 0; k < 2; k++) {
            ist_tensor t = s->out[k];
            if (!ist_has(t) || !ist_chain_shares(p->plan, c, 0, p->end, t.buffer)) continue;
            EMIT(p, STORE_ROWS, channels(p, t, false), t.c, outside(p, t, IST_ARG_OUT), t.ld, t.c0,
                 (t.elem == IST_ELEM_F32 ? FLOATS : 0) | quads_of(t.ld | t.c0 | t.c));
            linger(p, t.buffer, i);
        }
        for (int k = 0; k < p->slot_count; k++) {
            slot *own = &p->slots[k];
            if (own->lingers ? own->last + LINGERS <= i : own->last == i) own->placed = false;
        }
    }
}

/* [1,1,WARPS,pieces of a warp times PIECE]: the streams, each with the zeros that its lanes ask for at the end. */
static ist_tensor streams(piece *p, size_t *pieces) {
    size_t most = 0, count;
    for (int w = 0; w < WARPS; w++) most = p->streamed[w] > most ? p->streamed[w] : most;
    *pieces = most + BATCH;
    if (!ist_mul_size(*pieces, PIECE, &count) || count > INT_MAX / WARPS) {
        ist_plan_fail(p->plan, IST_E_LIMIT, "%s: %zu pieces of weights", p->label, *pieces);
        return (ist_tensor){0};
    }
    float *all = calloc(WARPS * count, sizeof *all);
    if (!all) {
        ist_plan_fail(p->plan, IST_E_MEMORY, "%s: out of host memory for a chain of operators", p->label);
        return (ist_tensor){0};
    }
    for (int w = 0; w < WARPS; w++)
        if (p->streamed[w]) memcpy(all + (size_t)w * count, p->stream[w], p->streamed[w] * PIECE * sizeof *all);
    ist_tensor t = ist_plan_const(p->plan, all, 1, 1, WARPS, (int)count, IST_ELEM_T, p->label);
    free(all);
    return t;
}

/* Whether the step writes any of the channels. */
static bool writes(const int *w, int at, int count) {
    switch (w[0] % GROUP_WAITS) {
    case STORE_ROWS:
        return false;
    case MATRIX_LINEAR:
        return overlap(at, count, w[3], w[4]);
    case ELTWISE:
    case MATRIX_NORM:
        return overlap(at, count, w[1], w[2]) || (w[5] & ALSO && overlap(at, count, w[12] >> 8 & 0xfff, w[2]));
    case SAMPLE_AT:
        return overlap(at, count, w[4], 9 * w[6] * w[7]);
    case SAMPLE_SUM:
        return overlap(at, count, w[1], w[7] * w[9]);
    case MATRIX_SIDES:
        return overlap(at, count, w[1], 4) || overlap(at, count, w[2], 4 * BINS);
    case SIDES_BEST:
        return overlap(at, count, w[1], 20);
    default: /* LOAD_ROWS, BOX_SIGMOID */
        return overlap(at, count, w[1], w[2]);
    }
}

/* Writes step `at`, a store, into a later one, which does it first; false where none can: a linear layer whose result
 * lies there, for its warps make it of all rows, whatever is behind a step that writes there, or what does not fit the
 * words. */
static bool put_store(piece *p, size_t at) {
    const int *s = p->words + WORDS * at;
    if (s[1] >= 1 << 16 || s[2] >= 1 << 15 || s[3] >= 1 << 8 || s[4] >= 1 << 16 || s[5] >= 1 << 15) return false;
    for (size_t i = at + 1; i < p->count; i++) {
        int *w = p->words + WORDS * i, op = w[0] % GROUP_WAITS;
        bool over = writes(w, s[1], s[2]);
        if (op != STORE_ROWS && !w[STORED] && !(op == MATRIX_LINEAR && over)) {
            w[STORED] = s[1] | s[2] << 16;
            w[STORED + 1] = s[3] | s[6] << 8;
            w[STORED + 2] = s[4] | s[5] << 16;
            return true;
        }
        if (over) return false;
    }
    return false;
}

/* A step costs more than most stores, so that other steps do them on the way. */
static void join_stores(piece *p) {
    size_t count = 0;
    for (size_t i = 0; i < p->count; i++) {
        int *s = p->words + WORDS * i;
        if (s[0] == STORE_ROWS && put_store(p, i)) continue;
        memmove(p->words + WORDS * count++, s, WORDS * sizeof *s);
    }
    p->count = count;
}

/* On matrix instructions a warp has a row, and waits for the others only where linear layers begin and end, when
 * the tape is to be read on, as the kernel does every eight steps, and for the table after the first. Returns the turns
 * of all steps. */
static int mark_waits(piece *p) {
    int turns = 0;
    for (size_t i = 0; i < p->count; i++) {
        int *at = p->words + WORDS * i, own = at[0] / LINEAR_TURNS;
        if (i % 8 == 0) at[0] |= READS_ON;
        bool matrix = at[0] % GROUP_WAITS > SIDES_BEST || (i + 1 < p->count && at[WORDS] % GROUP_WAITS > SIDES_BEST);
        if (matrix || i % 8 == 7 || !i) at[0] |= GROUP_WAITS;
        turns += own ? own : 1;
    }
    return turns;
}

/* The table of this piece, whole steps of DATA_STEP floats. */
static ist_tensor piece_table(piece *p) {
    static const float zero[DATA_STEP] = {0};
    size_t count = ist_round_up(p->data_count ? p->data_count : 1, DATA_STEP), more = count - p->data_count;
    if (!ist_grow((void **)&p->data, &p->data_capacity, count, sizeof *p->data)) {
        ist_plan_fail(p->plan, IST_E_MEMORY, "%s: out of host memory for a chain of operators", p->label);
        return (ist_tensor){0};
    }
    memcpy(p->data + p->data_count, zero, more * sizeof *p->data);
    p->data_count = count;
    return ist_plan_const(p->plan, p->data, 1, 1, 1, (int)count, IST_ELEM_F32, p->label);
}

/* Its floats in local memory, where there is room for them beside the rows: what the device says or a probe has shown.
 */
static int local_data(const piece *p) {
    size_t need = (MATRIX_SLOTS * MATRIX_ROWS + p->data_count) * sizeof *p->data + MATRIX_REST;
    size_t room = ist_device_local_bytes(ist_plan_device(p->plan));
    bool large = need <= LARGE_ROOM && ist_plan_caps(p->plan) & IST_CAP_PTX_WGMMA;
    return need <= room || large ? (int)p->data_count : 0;
}

static void launch(piece *p, ist_tensor weights, ist_tensor table, int pieces) {
    const struct ist_chain *chain = p->chain;
    bool matrix = chain->matrix;
    if (matrix) join_stores(p);
    int turns = matrix ? mark_waits(p) : 0;
    ist_tensor tape = ist_plan_const_bytes(p->plan, p->words, p->count * WORDS * sizeof *p->words, p->label);
    ist_defines defines =
        matrix ? ist_defines_of(p->plan, "-DSLOTS=%d -DTHREADS=%d -DDATA=%d", MATRIX_SLOTS, ITEMS, local_data(p))
               : ist_defines_of(p->plan, "-DSLOTS=%d", IST_CHAIN_SLOTS);
    size_t groups = (size_t)ist_div_up(chain->rows, matrix ? MATRIX_ROWS : ROWS);
    int units = ist_device_facts(ist_plan_device(p->plan))->compute_units;
    if (matrix && (size_t)units >= chain->n * groups + PREFETCHERS) groups += PREFETCHERS;
    ist_launch l = {.label = p->label,
                    .op = matrix ? "op/chain_mma" : "op/chain",
                    .isa = matrix                                     ? "isa/ptx+isa/tape+isa/chain_rows"
                           : ist_plan_caps(p->plan) & IST_CAP_PTX_MMA ? "isa/ptx+isa/tape"
                                                                      : "isa/tape",
                    .defines = defines.text,
                    .kernel = "chain",
                    .dims = 2,
                    .global = {groups * ITEMS, (size_t)chain->n},
                    .local = {ITEMS, 1},
                    .args = {IST_IN(tape), IST_IN(weights), IST_IN(table), IST_IN(ist_plan_current_limit(p->plan))},
                    .arg_count = 5 + IST_CHAIN_OUTSIDE,
                    .flops = p->flops};
    for (int i = 0; i < IST_CHAIN_OUTSIDE; i++)
        l.args[4 + i] = i < p->outside_count ? p->outside[i] : (ist_arg)IST_IN((ist_tensor){0});
    l.args[4 + IST_CHAIN_OUTSIDE] = (ist_arg)IST_INT4(chain->rows, (int)p->count, pieces, turns);
    ist_plan_launch(p->plan, &l);
}

void ist_chain_launch(ist_plan *plan, const struct ist_chain *chain, size_t first, size_t end, ist_tensor weights,
                      ist_tensor table, const char *label) {
    piece *p = calloc(1, sizeof *p);
    if (!p) {
        ist_plan_fail(plan, IST_E_MEMORY, "%s: out of host memory for a chain of operators", label);
        return;
    }
    *p = (piece){.plan = plan, .chain = chain, .first = first, .end = end, .label = label};
    size_t pieces = 0;
    lower_all(p, chain->matrix);
    if (p->full) lower_all(p, false);
    if (chain->matrix && !ist_plan_status(plan)) weights = streams(p, &pieces);
    if (chain->matrix && !ist_plan_status(plan)) table = piece_table(p);
    if (!ist_plan_status(plan)) launch(p, weights, table, (int)pieces);
    for (int w = 0; w < WARPS; w++) free(p->stream[w]);
    free(p->words);
    free(p->data);
    free(p);
}
