/* A piece of a chain as a tape: which tensors are in local memory when, and the small steps that the kernel runs
 * (cl/isa/tape.cl, which says what each number means). */
#include "ops/chain_piece.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <string.h>

static int bits_of(float f) {
    int i;
    memcpy(&i, &f, sizeof i);
    return i;
}

void ist_piece_emit(piece *p, const int *words) {
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
int ist_piece_channels(piece *p, ist_tensor t, bool read) {
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
    int in = ist_piece_channels(p, s->rows[0], true);
    int before = ist_has(s->rows[1]) ? ist_piece_channels(p, s->rows[1], true) : -1;
    int after = ist_has(s->rows[2]) ? ist_piece_channels(p, s->rows[2], true) : -1,
        out = ist_piece_channels(p, s->out[0], false);
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

/* On matrix instructions: where the next step adds something to what this one makes, at `out`, the kernel does so on
 * the way. Returns the bits of word 12 for it, 0 where it is not so; `operands` of c channels (gates 2 c) are all that
 * this step reads. */
static unsigned also(piece *p, const ist_chain_step *s, int out, const int *operands, int count) {
    const ist_chain_step *n = s + 1;
    if (!p->eager || n >= p->chain->steps + p->end || n->op != IST_CHAIN_SUM || n->ints[0]) return 0;
    int c = s->out[0].c, k = ist_piece_same(n->rows[0], s->out[0]) ? 1 : 0;
    if (!ist_piece_same(n->rows[1 - k], s->out[0]) || n->rows[k].c != c || ist_piece_same(n->rows[k], s->out[0]))
        return 0;
    int with = ist_piece_channels(p, n->rows[k], true), to = ist_piece_channels(p, n->out[0], false);
    bool free = (to | with | out | c) % 4 == 0 && !ist_piece_overlap(to, c, out, c);
    for (int i = 0; i < count; i++) free = free && !ist_piece_overlap(to, c, operands[i], i < 2 ? c : 2 * c);
    if (!free) return 0;
    p->joined = n;
    return (unsigned)to << 8 | (unsigned)with << 20;
}

static void sum(piece *p, const ist_chain_step *s) {
    bool two = ist_has(s->rows[1]);
    int a = ist_piece_channels(p, s->rows[0], true), b = two ? ist_piece_channels(p, s->rows[1], true) : 0,
        c = s->out[0].c;
    int mode = (two ? PRESENT : 0) | (two && s->rows[1].c == 1 && c > 1 ? ONE_COLUMN : 0) | (s->ints[0] ? CLAMPED : 0);
    int out = ist_piece_channels(p, s->out[0], false),
        fours = (c | a | b | out) % 4 || mode & ONE_COLUMN ? 0 : IN_FOURS;
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
    int a = ist_piece_channels(p, s->rows[0], true), b = two ? ist_piece_channels(p, s->rows[1], true) : 0;
    int out = ist_piece_channels(p, s->out[0], false), mode = (two ? PRESENT : 0) | (s->floats[1] > 0 ? CLAMPED : 0);
    EMIT(p, ELTWISE, out, s->out[0].c, a, b, mode, bits_of(-s->floats[1]), bits_of(s->floats[1]));
    normalise(p, s, out, s->floats[0], s->ints[0]);
}

/* What `norm` and `gate` are there: one step. */
static void matrix_norm(piece *p, const ist_chain_step *s, bool gates) {
    float most = gates ? 0 : s->floats[1];
    int a = ist_piece_channels(p, s->rows[0], true),
        b = ist_has(s->rows[1]) ? ist_piece_channels(p, s->rows[1], true) : 0;
    int g = gates ? ist_piece_channels(p, s->rows[2], true) : 0, out = ist_piece_channels(p, s->out[0], false);
    int mode = gates ? GATED : (ist_has(s->rows[1]) ? PRESENT : 0) | (most > 0 ? CLAMPED : 0);
    if ((a | b | g | out) % 4) {
        ist_plan_fail(p->plan, IST_E_ARGUMENT, "%s: channels from %d, %d, %d and %d on, not in fours", p->label, a, b,
                      g, out);
        return;
    }
    unsigned more = also(p, s, out, (const int[]){a, b, g}, gates ? 3 : mode & PRESENT ? 2 : 1);
    EMIT(p, MATRIX_NORM, out, s->out[0].c, a, b, mode | (more ? ALSO : 0), bits_of(-most), bits_of(most), g,
         ist_piece_constants(p, s->data_at[0], s->sizes[0]), ist_piece_constants(p, s->data_at[1], s->sizes[1]),
         bits_of(s->floats[0]), (int)more | (gates ? IST_ACT_NONE : s->ints[0]));
}

static void matrix_norm_step(piece *p, const ist_chain_step *s) {
    matrix_norm(p, s, false);
}

static void matrix_gate(piece *p, const ist_chain_step *s) {
    matrix_norm(p, s, true);
}

static void gate(piece *p, const ist_chain_step *s) {
    int x = ist_piece_channels(p, s->rows[0], true), y = ist_piece_channels(p, s->rows[1], true),
        g = ist_piece_channels(p, s->rows[2], true);
    int out = ist_piece_channels(p, s->out[0], false);
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
    int q = ist_piece_channels(p, s->rows[0], true), out = ist_piece_channels(p, s->out[0], false);
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
    int offsets = ist_piece_channels(p, s->rows[0], true), weights = ist_piece_channels(p, s->rows[1], true);
    int boxes = ist_piece_channels(p, s->rows[2], true), out = ist_piece_channels(p, s->out[0], false);
    int places = take_room(p, (p->chain->matrix ? 9 : 8) * heads * points), em = outside(p, memory, IST_ARG_IN);
    if (!in_quads(p, memory)) return;
    EMIT(p, SAMPLE_AT, offsets, weights, boxes, places, ist_piece_constants(p, s->data_at[0], s->sizes[0]), points,
         heads, (1 << 16) / points + 1);
    EMIT(p, SAMPLE_SUM, out, places, em, memory.ld, memory.c0,
         flags_of(p, memory) | ((memory.ld | memory.c0 | memory.c / heads) % 8 ? 0 : OCTS), heads, points,
         memory.c / heads, memory.h * memory.w);
}

static void gather(piece *p, const ist_chain_step *s) {
    ist_tensor x = s->whole[0];
    EMIT(p, LOAD_ROWS, ist_piece_channels(p, s->out[0], false), x.c, outside(p, x, IST_ARG_IN), x.ld, x.c0,
         flags_of(p, x) | quads_of(x.ld | x.c0 | x.c), 1, x.h * x.w, outside(p, s->whole[1], IST_ARG_IN));
}

static void box_sigmoid(piece *p, const ist_chain_step *s) {
    int a = ist_piece_channels(p, s->rows[0], true), b = ist_piece_channels(p, s->rows[1], true);
    EMIT(p, BOX_SIGMOID, ist_piece_channels(p, s->out[0], false), s->out[0].c, a, b, s->op == IST_CHAIN_BOX_REFINE);
}

static void fdr(piece *p, const ist_chain_step *s) {
    bool two = ist_has(s->rows[1]);
    int a = ist_piece_channels(p, s->rows[0], true), b = two ? ist_piece_channels(p, s->rows[1], true) : 0;
    int first = ist_piece_channels(p, s->rows[2], true), corners = ist_piece_channels(p, s->out[1], false);
    int boxes = ist_piece_channels(p, s->out[0], false), room = p->chain->matrix ? 0 : take_room(p, 4);
    if (p->chain->matrix) {
        EMIT(p, MATRIX_SIDES, boxes, corners, a, b, two ? PRESENT : 0, first, bits_of(s->floats[0]),
             ist_piece_constants(p, s->data_at[0], s->sizes[0]));
        return;
    }
    EMIT(p, ELTWISE, corners, 4 * BINS, a, b, two ? PRESENT : 0);
    EMIT(p, SIDES, room, corners, ist_piece_constants(p, s->data_at[0], s->sizes[0]));
    EMIT(p, SIDES_BOX, boxes, room, first, bits_of(s->floats[0]));
}

static void lower(piece *p, const ist_chain_step *s) {
    p->room_size = 0;
    if (s == p->joined) return;
    switch (s->op) {
    case IST_CHAIN_LINEAR:
        (p->chain->matrix ? ist_piece_linear : linear)(p, s);
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
        int corners = ist_piece_channels(p, s->rows[0], true);
        EMIT(p, SIDES_BEST, ist_piece_channels(p, s->out[0], false), corners);
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
                ist_piece_channels(p, t, true);
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

/* Of two groups with the same rows each stores half of the columns, where these can be divided, else the first all. */
static void store(piece *p, const ist_chain_step *s, ist_tensor t) {
    int c = t.c, from = 0, tensor = outside(p, t, IST_ARG_OUT), at = ist_piece_channels(p, t, false);
    bool floats = t.elem == IST_ELEM_F32;
    if (p->sides > 1 &&
        (s->op == IST_CHAIN_LINEAR && ist_piece_way(p, s) == OUTPUTS ? true : t.c % (floats ? 2 : 8) == 0))
        c /= p->sides, from = p->side * c;
    else if (p->side)
        return;
    EMIT(p, STORE_ROWS, at + from, c, tensor, t.ld, t.c0 + from,
         (floats ? FLOATS : 0) | quads_of(t.ld | (t.c0 + from) | c));
}

void ist_piece_lower(piece *p, bool eager) {
    const struct ist_chain *c = p->chain;
    p->count = p->data_count = 0;
    p->slot_count = p->outside_count = 0;
    p->flops = 0;
    p->joined = NULL;
    p->eager = eager;
    p->full = false;
    p->mail = 0;
    if (!p->side) memset(p->streamed, 0, sizeof p->streamed);
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
            store(p, s, t);
            linger(p, t.buffer, i);
        }
        for (int k = 0; k < p->slot_count; k++) {
            slot *own = &p->slots[k];
            if (own->lingers ? own->last + LINGERS <= i : own->last == i) own->placed = false;
        }
    }
}
