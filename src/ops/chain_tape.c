/* One piece of a chain as a launch: which tensors are in local memory when, and the tape of small steps that the kernel
 * runs (cl/op/chain.cl, which says what each number means). */
#include "ops/chain_internal.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* The numbers of cl/op/chain.cl. */
enum micro {
    LOAD_ROWS,
    STORE_ROWS,
    LINEAR_PART,
    LINEAR_SUM,
    ELTWISE,
    NORM_SUM,
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
    SIDES_BOX,
    SIDES_BEST
};
enum { PRESENT = 1, ONE_COLUMN = 2, GATED = 4, CLAMPED = 8 };
enum { FLOATS = 1, ONE_ITEM = 2, QUADS = 4 };
enum { ITEMS = 256, WORDS = 16, BINS = 33 };

/* Channels [lo, hi) of a buffer, in local memory from `at` on while steps first to last run. */
typedef struct slot {
    int buffer, lo, hi, at;
    size_t last;
    bool placed;
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
    ist_arg outside[IST_CHAIN_OUTSIDE];
    int outside_count;
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

/* The lowest free run of `size` float4. */
static int place(piece *p, int size) {
    int at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < p->slot_count; i++) {
            const slot *s = &p->slots[i];
            if (!s->placed || at + size <= s->at || at >= s->at + s->hi - s->lo) continue;
            at = s->at + s->hi - s->lo;
            moved = true;
        }
        if (at + size > p->room && at < p->room + p->room_size) {
            at = p->room + p->room_size;
            moved = true;
        }
    }
    if (at + size > IST_CHAIN_SLOTS)
        ist_plan_fail(p->plan, IST_E_LIMIT, "%s: a chain needs more than %d channels of local memory", p->label,
                      IST_CHAIN_SLOTS);
    return at;
}

/* Where the channels of t are; brings them in when nobody made them here. */
static int channels(piece *p, ist_tensor t, bool read) {
    for (int i = 0; i < p->slot_count; i++) {
        slot *s = &p->slots[i];
        if (s->buffer != t.buffer) continue;
        if (!s->placed) {
            s->at = place(p, s->hi - s->lo);
            s->placed = true;
            if (read)
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

static void sum(piece *p, const ist_chain_step *s) {
    bool two = ist_has(s->rows[1]);
    int a = channels(p, s->rows[0], true), b = two ? channels(p, s->rows[1], true) : 0, c = s->out[0].c;
    int mode = (two ? PRESENT : 0) | (two && s->rows[1].c == 1 && c > 1 ? ONE_COLUMN : 0) | (s->ints[0] ? CLAMPED : 0);
    EMIT(p, ELTWISE, channels(p, s->out[0], false), c, a, b, mode, bits_of(s->floats[0]), bits_of(s->floats[1]));
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
    int places = take_room(p, 8 * heads * points), em = outside(p, memory, IST_ARG_IN);
    if (!in_quads(p, memory)) return;
    EMIT(p, SAMPLE_AT, offsets, weights, boxes, places, (int)s->data_at[0], points, heads);
    EMIT(p, SAMPLE_SUM, out, places, em, memory.ld, memory.c0, flags_of(p, memory), heads, points, memory.c / heads,
         memory.h * memory.w);
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
    int boxes = channels(p, s->out[0], false), room = take_room(p, 4);
    EMIT(p, ELTWISE, corners, 4 * BINS, a, b, two ? PRESENT : 0);
    EMIT(p, SIDES, room, corners, (int)s->data_at[0]);
    EMIT(p, SIDES_BOX, boxes, room, first, bits_of(s->floats[0]));
}

static void lower(piece *p, const ist_chain_step *s) {
    p->room_size = 0;
    switch (s->op) {
    case IST_CHAIN_LINEAR:
        linear(p, s);
        break;
    case IST_CHAIN_SUM:
        sum(p, s);
        break;
    case IST_CHAIN_NORM:
        norm(p, s);
        break;
    case IST_CHAIN_GATE:
        gate(p, s);
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

static void lower_all(piece *p) {
    const struct ist_chain *c = p->chain;
    for (size_t i = p->first; i < p->end; i++) {
        for (int k = 0; k < 3; k++) widen(p, c->steps[i].rows[k], i);
        for (int k = 0; k < 2; k++) widen(p, c->steps[i].out[k], i);
    }
    for (size_t i = p->first; i < p->end && !ist_plan_status(p->plan); i++) {
        const ist_chain_step *s = &c->steps[i];
        lower(p, s);
        p->flops += s->flops;
        for (int k = 0; k < 2; k++) {
            ist_tensor t = s->out[k];
            if (ist_has(t) && ist_chain_shares(p->plan, c, 0, p->end, t.buffer))
                EMIT(p, STORE_ROWS, channels(p, t, false), t.c, outside(p, t, IST_ARG_OUT), t.ld, t.c0,
                     t.elem == IST_ELEM_F32 ? FLOATS : 0);
        }
        for (int k = 0; k < p->slot_count; k++)
            if (p->slots[k].placed && p->slots[k].last == i) p->slots[k].placed = false;
    }
}

void ist_chain_launch(ist_plan *plan, const struct ist_chain *chain, size_t first, size_t end, ist_tensor weights,
                      ist_tensor table, const char *label) {
    piece *p = calloc(1, sizeof *p);
    if (!p) {
        ist_plan_fail(plan, IST_E_MEMORY, "%s: out of host memory for a chain of operators", label);
        return;
    }
    *p = (piece){.plan = plan, .chain = chain, .first = first, .end = end, .label = label};
    lower_all(p);
    if (!ist_plan_status(plan)) {
        ist_tensor tape = ist_plan_const_bytes(plan, p->words, p->count * WORDS * sizeof *p->words, label);
        ist_defines defines = ist_defines_of(plan, "-DSLOTS=%d", IST_CHAIN_SLOTS);
        ist_launch l = {.label = label,
                        .op = "op/chain",
                        .isa = ist_plan_caps(plan) & IST_CAP_PTX_MMA ? "isa/ptx" : NULL,
                        .defines = defines.text,
                        .kernel = "chain",
                        .dims = 2,
                        .global = {(size_t)ist_div_up(chain->rows, IST_CHAIN_ROWS) * ITEMS, (size_t)chain->n},
                        .local = {ITEMS, 1},
                        .args = {IST_IN(tape), IST_IN(weights), IST_IN(table), IST_IN(ist_plan_current_limit(plan))},
                        .arg_count = 5 + IST_CHAIN_OUTSIDE,
                        .flops = p->flops};
        for (int i = 0; i < IST_CHAIN_OUTSIDE; i++)
            l.args[4 + i] = i < p->outside_count ? p->outside[i] : (ist_arg)IST_IN(table);
        l.args[4 + IST_CHAIN_OUTSIDE] = (ist_arg)IST_INT4(chain->rows, (int)p->count, 0, 0);
        ist_plan_launch(plan, &l);
    }
    free(p->words);
    free(p);
}
