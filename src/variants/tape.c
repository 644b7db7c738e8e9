/* A piece of a sequence as a tape: see tape.h. */
#include "variants/tape.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <string.h>

enum { LINGERS = 2 }; /* steps that a result may wait to be stored */

void ist_tape_emit(ist_tape *p, const int *words) {
    if (ist_plan_status(p->plan)) return;
    if (!ist_grow((void **)&p->words, &p->capacity, p->count + 1, WORDS * sizeof *words)) {
        ist_plan_fail(p->plan, IST_E_MEMORY, "%s: out of host memory for a sequence of operators", p->label);
        return;
    }
    memcpy(p->words + WORDS * p->count++, words, WORDS * sizeof *words);
}

/* ---- tensors outside ---- */

static int outside(ist_tape *p, ist_tensor t, ist_arg_kind use) {
    return ist_sequence_argument(p->plan, p->label, p->outside, &p->outside_count, IST_TAPE_OUTSIDE, t, use);
}

static int flags_of(const ist_tape *p, ist_tensor t) {
    return (t.elem == IST_ELEM_F32 ? FLOATS : 0) | (t.n == 1 && p->sequence->n > 1 ? ONE_ITEM : 0);
}

static int quads_of(int all) {
    return all % 4 ? 0 : QUADS;
}

/* ---- local memory ---- */

static void widen(ist_tape *p, ist_tensor t, size_t step) {
    ist_tape_slot *s = NULL;
    if (!ist_has(t)) return;
    for (int i = 0; i < p->slot_count && !s; i++)
        if (p->slots[i].buffer == t.buffer) s = &p->slots[i];
    if (!s && p->slot_count == IST_SEQUENCE_BUFFERS) {
        ist_plan_fail(p->plan, IST_E_LIMIT, "%s: a piece of a sequence has more than %d tensors", p->label,
                      IST_SEQUENCE_BUFFERS);
        return;
    }
    if (!s) {
        s = &p->slots[p->slot_count++];
        *s = (ist_tape_slot){.buffer = t.buffer, .lo = t.c0, .hi = t.c0 + t.c};
    }
    if (t.c0 < s->lo) s->lo = t.c0;
    if (t.c0 + t.c > s->hi) s->hi = t.c0 + t.c;
    s->last = step;
}

/* The lowest free run of `size` channels; it may end beyond the last one. */
static int lowest(const ist_tape *p, int size) {
    int at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < p->slot_count; i++) {
            const ist_tape_slot *s = &p->slots[i];
            if (!s->placed || at + size <= s->at || at >= s->at + s->hi - s->lo) continue;
            at = (int)ist_round_up((size_t)(s->at + s->hi - s->lo), (size_t)p->form->begin);
            moved = true;
        }
        if (at + size > p->room && at < p->room + p->room_size) {
            at = (int)ist_round_up((size_t)(p->room + p->room_size), (size_t)p->form->begin);
            moved = true;
        }
    }
    return at;
}

static int place(ist_tape *p, int size) {
    int at = lowest(p, size);
    if (at + size > p->form->slots) {
        for (int i = 0; i < p->slot_count; i++)
            if (p->slots[i].lingers) p->slots[i].placed = false;
        at = lowest(p, size);
    }
    if (at + size > p->form->slots && p->eager)
        p->full = true;
    else if (at + size > p->form->slots)
        ist_plan_fail(p->plan, IST_E_LIMIT, "%s: a sequence needs more than %d channels of local memory", p->label,
                      p->form->slots);
    return at;
}

/* Whether an earlier piece made channels of the buffer. */
static bool made_before(const ist_tape *p, int buffer) {
    for (size_t i = 0; i < p->first; i++)
        for (int k = 0; k < 2; k++)
            if (p->sequence->steps[i].out[k].buffer == buffer) return true;
    return false;
}

int ist_tape_channels(ist_tape *p, ist_tensor t, bool read) {
    for (int i = 0; i < p->slot_count; i++) {
        ist_tape_slot *s = &p->slots[i];
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

int ist_tape_room(ist_tape *p, int size) {
    p->room_size = 0;
    p->room = place(p, size);
    p->room_size = size;
    return p->room;
}

/* ---- steps ---- */

unsigned ist_tape_also(ist_tape *p, const ist_step *s, int out, const int *operands, int count) {
    const ist_step *n = s + 1;
    if (!p->eager || n >= p->sequence->steps + p->end || n->op != IST_STEP_SUM || n->ints[0]) return 0;
    int c = s->out[0].c, k = ist_tape_same(n->rows[0], s->out[0]) ? 1 : 0;
    if (!ist_tape_same(n->rows[1 - k], s->out[0]) || n->rows[k].c != c || ist_tape_same(n->rows[k], s->out[0]))
        return 0;
    int with = ist_tape_channels(p, n->rows[k], true), to = ist_tape_channels(p, n->out[0], false);
    bool free = (to | with | out | c) % 4 == 0 && !ist_tape_overlap(to, c, out, c);
    for (int i = 0; i < count; i++) free = free && !ist_tape_overlap(to, c, operands[i], i < 2 ? c : 2 * c);
    if (!free) return 0;
    p->joined = n;
    return (unsigned)to << 8 | (unsigned)with << 20;
}

static void sum(ist_tape *p, const ist_step *s) {
    bool two = ist_has(s->rows[1]);
    int a = ist_tape_channels(p, s->rows[0], true), b = two ? ist_tape_channels(p, s->rows[1], true) : 0,
        c = s->out[0].c;
    int mode = (two ? PRESENT : 0) | (two && s->rows[1].c == 1 && c > 1 ? ONE_COLUMN : 0) | (s->ints[0] ? CLAMPED : 0);
    int out = ist_tape_channels(p, s->out[0], false),
        fours = (c | a | b | out) % 4 || mode & ONE_COLUMN ? 0 : IN_FOURS;
    unsigned more = fours ? ist_tape_also(p, s, out, (const int[]){a, b}, two ? 2 : 1) : 0;
    EMIT(p, ELTWISE, out, c, a, b, mode | fours | (more ? ALSO : 0), ist_tape_bits(s->floats[0]), ist_tape_bits(s->floats[1]), 0, 0,
         0, 0, (int)more);
}

static bool in_quads(ist_tape *p, ist_tensor t) {
    if ((t.ld | t.c0) % 4 == 0 && (t.elem == IST_ELEM_T || !ist_plan_half(p->plan))) return true;
    ist_plan_fail(p->plan, IST_E_ARGUMENT, "%s: %d elements per row from %d on, or their type, cannot be read by fours",
                  p->label, t.ld, t.c0);
    return false;
}

static void deform(ist_tape *p, const ist_step *s) {
    ist_tensor memory = s->whole[0];
    int heads = s->ints[0], points = s->ints[1];
    int offsets = ist_tape_channels(p, s->rows[0], true), weights = ist_tape_channels(p, s->rows[1], true);
    int boxes = ist_tape_channels(p, s->rows[2], true), out = ist_tape_channels(p, s->out[0], false);
    int em = outside(p, memory, IST_ARG_IN), dim = memory.c / heads;
    int flags = flags_of(p, memory) | ((memory.ld | memory.c0 | dim) % 8 ? 0 : OCTS), from = 0;
    int mail = p->sides > 1 && p->form->mail_heads ? p->form->mail_heads(p, s) : -1;
    if (!in_quads(p, memory)) return;
    if (mail >= 0) heads /= p->sides, from = p->side * heads;
    int places = ist_tape_room(p, p->form->sample * heads * points);
    EMIT(p, SAMPLE_AT, offsets + 2 * from * points, weights + from * points, boxes, places,
         p->form->constants(p, s->data_at[0], s->sizes[0]), points, heads, (1 << 16) / points + 1);
    EMIT(p, SAMPLE_SUM, out + from * dim, places, em, memory.ld, memory.c0 + from * dim, flags, heads, points, dim,
         memory.h * memory.w, mail);
}

static void gather(ist_tape *p, const ist_step *s) {
    ist_tensor x = s->whole[0];
    EMIT(p, LOAD_ROWS, ist_tape_channels(p, s->out[0], false), x.c, outside(p, x, IST_ARG_IN), x.ld, x.c0,
         flags_of(p, x) | quads_of(x.ld | x.c0 | x.c), 1, x.h * x.w, outside(p, s->whole[1], IST_ARG_IN));
}

static void box_sigmoid(ist_tape *p, const ist_step *s) {
    int a = ist_tape_channels(p, s->rows[0], true), b = ist_tape_channels(p, s->rows[1], true);
    EMIT(p, BOX_SIGMOID, ist_tape_channels(p, s->out[0], false), s->out[0].c, a, b, s->op == IST_STEP_BOX_REFINE);
}

static void lower(ist_tape *p, const ist_step *s) {
    p->room_size = 0;
    if (s == p->joined) return;
    switch (s->op) {
    case IST_STEP_LINEAR:
        p->form->linear(p, s);
        break;
    case IST_STEP_SUM:
        sum(p, s);
        break;
    case IST_STEP_NORM:
        p->form->norm(p, s);
        break;
    case IST_STEP_GATE:
        p->form->gate(p, s);
        break;
    case IST_STEP_DEFORM:
        deform(p, s);
        break;
    case IST_STEP_GATHER:
        gather(p, s);
        break;
    case IST_STEP_BOX_INIT:
    case IST_STEP_BOX_REFINE:
        box_sigmoid(p, s);
        break;
    case IST_STEP_FDR:
        p->form->fdr(p, s);
        break;
    case IST_STEP_LQE: {
        int corners = ist_tape_channels(p, s->rows[0], true);
        EMIT(p, SIDES_BEST, ist_tape_channels(p, s->out[0], false), corners);
        break;
    }
    case IST_STEP_ATTENTION: /* a launch of its own */
    case IST_STEP_DEPTHWISE: /* maps are of CPUs */
        break;
    }
    p->room_size = 0;
}

bool ist_tape_made_here(const ist_tape *p, size_t i, int buffer) {
    for (size_t k = p->first; k < i; k++)
        for (int o = 0; o < 2; o++)
            if (p->sequence->steps[k].out[o].buffer == buffer) return true;
    return false;
}

/* Step i was the last to use the buffer: other steps are to store it on the way (join_stores), before something else
 * lies there. */
static void linger(ist_tape *p, int buffer, size_t i) {
    for (int k = 0; k < p->slot_count && p->eager; k++) {
        ist_tape_slot *s = &p->slots[k];
        if (s->buffer == buffer && s->last == i) s->lingers = true;
    }
}

/* Of two groups with the same rows each stores half of the columns, where these can be divided, else the first all. */
static void store(ist_tape *p, const ist_step *s, ist_tensor t) {
    int c = t.c, from = 0, tensor = outside(p, t, IST_ARG_OUT), at = ist_tape_channels(p, t, false);
    bool floats = t.elem == IST_ELEM_F32;
    if (p->sides > 1 && (p->form->divided(p, s) || t.c % (floats ? 2 : 8) == 0))
        c /= p->sides, from = p->side * c;
    else if (p->side)
        return;
    EMIT(p, STORE_ROWS, at + from, c, tensor, t.ld, t.c0 + from,
         (floats ? FLOATS : 0) | quads_of(t.ld | (t.c0 + from) | c));
}

void ist_tape_lower(ist_tape *p, bool eager) {
    const struct ist_sequence *c = p->sequence;
    p->count = 0;
    p->slot_count = p->outside_count = 0;
    p->flops = 0;
    p->joined = NULL;
    p->eager = eager;
    p->full = false;
    for (size_t i = p->first; i < p->end; i++) {
        for (int k = 0; k < 3; k++) widen(p, c->steps[i].rows[k], i);
        for (int k = 0; k < 2; k++) widen(p, c->steps[i].out[k], i);
    }
    if (p->form->load_first && !ist_plan_status(p->plan)) p->form->load_first(p);
    for (size_t i = p->first; i < p->end && !p->full && !ist_plan_status(p->plan); i++) {
        const ist_step *s = &c->steps[i];
        lower(p, s);
        p->flops += s->flops;
        for (int k = 0; k < 2; k++) {
            ist_tensor t = s->out[k];
            if (!ist_has(t) || !ist_sequence_shares(p->plan, c, 0, p->end, t.buffer)) continue;
            store(p, s, t);
            linger(p, t.buffer, i);
        }
        for (int k = 0; k < p->slot_count; k++) {
            ist_tape_slot *own = &p->slots[k];
            if (own->lingers ? own->last + LINGERS <= i : own->last == i) own->placed = false;
        }
    }
}

void ist_tape_launch(ist_tape *t, ist_launch *l, ist_tensor tape, ist_tensor weights, ist_tensor table,
                     const ist_arg *more, int count) {
    ist_plan *p = t->plan;
    l->label = t->label;
    l->kernel = "sequence";
    l->dims = 2;
    l->local[0] = ITEMS;
    l->local[1] = 1;
    l->args[0] = (ist_arg)IST_IN(tape);
    l->args[1] = (ist_arg)IST_IN(weights);
    l->args[2] = (ist_arg)IST_IN(table);
    l->args[3] = (ist_arg)IST_IN(ist_plan_current_limit(p));
    for (int i = 0; i < IST_TAPE_OUTSIDE; i++)
        l->args[4 + i] = i < t->outside_count ? t->outside[i] : (ist_arg)IST_IN((ist_tensor){0});
    for (int i = 0; i < count; i++) l->args[4 + IST_TAPE_OUTSIDE + i] = more[i];
    l->arg_count = 4 + IST_TAPE_OUTSIDE + count;
    l->flops = t->flops;
    ist_plan_launch(p, l);
}
