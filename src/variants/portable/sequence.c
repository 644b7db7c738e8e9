/* Sequences on GPUs: a group has a few rows in local memory and runs a tape of small steps on them (cl/portable/sequence). */
#include "variants/portable/sequence.h"
#include "variants/portable/sequence_args.h"

#include "base/mem.h"
#include "variants/defines.h"

#include <stdlib.h>

enum { SLOTS = IST_TAPE_SLOTS, ROWS = 4, READERS = 16 /* groups without rows */ };
/* Beyond this many rows kernels over all of them win. */
enum { ROWS_MAX = 1280, LINEAR_ROOM = 1024 };

/* ---- when ---- */

bool ist_tape_takes(const ist_plan *p, const ist_variant *v, const void *node) {
    ist_span_rows r = ist_span_rows_of(node);
    (void)v;
    return r.rows > 0 && r.n * r.rows <= ROWS_MAX &&
           ist_device_local_bytes(ist_plan_device(p)) >= IST_TAPE_LOCAL_BYTES &&
           r.most + 2 * r.width + LINEAR_ROOM <= SLOTS && r.most <= IST_TAPE_OUTPUTS;
}

/* ---- weights ---- */

/* W^T in one block of all outputs, rounded up to 4: [in][outputs]. */
bool ist_tape_pack(struct ist_sequence *s, ist_step *step) {
    const ist_filter *f = &step->filter;
    int all = (int)ist_round_up((size_t)f->out, 4);
    float *to = ist_sequence_weights(s, (size_t)f->in * (size_t)all, &step->weights_at);
    for (int i = 0; to && s->values && i < f->in; i++)
        for (int o = 0; o < all; o++) *to++ = o < f->out ? f->w[(size_t)o * (size_t)f->in + (size_t)i] : 0;
    return to;
}

/* ---- steps ---- */

static void linear(ist_tape *p, const ist_step *s) {
    const ist_filter *f = &s->filter;
    int in = ist_tape_channels(p, s->rows[0], true);
    int before = ist_has(s->rows[1]) ? ist_tape_channels(p, s->rows[1], true) : -1;
    int after = ist_has(s->rows[2]) ? ist_tape_channels(p, s->rows[2], true) : -1,
        out = ist_tape_channels(p, s->out[0], false);
    int blocks = ist_div_up(f->out, 4), parts = ITEMS / blocks, most = ist_div_up(f->in, 8);
    if (parts > most) parts = most;
    int each = ist_div_up(f->in, parts);
    if (each > 8) each = ist_div_up(each, 8) * 8;
    parts = ist_div_up(f->in, each);
    int room = ist_tape_room(p, parts * blocks * 4);
    EMIT(p, LINEAR_PART, in, f->in, room, blocks, parts, each, (int)s->weights_at);
    EMIT(p, LINEAR_SUM, out, f->out, room, blocks, parts, s->has_bias ? (int)s->data_at[0] : -1, s->ints[0], before,
         after);
}

static void normalise(ist_tape *p, const ist_step *s, int out, float eps, int act) {
    int room = ist_tape_room(p, 64);
    for (int kind = NORM_PART; kind <= NORM_OUT; kind++)
        EMIT(p, kind, out, s->out[0].c, room, (int)s->data_at[0], (int)s->data_at[1], ist_tape_bits(eps), act);
}

static void norm(ist_tape *p, const ist_step *s) {
    bool two = ist_has(s->rows[1]);
    int a = ist_tape_channels(p, s->rows[0], true), b = two ? ist_tape_channels(p, s->rows[1], true) : 0;
    int out = ist_tape_channels(p, s->out[0], false), mode = (two ? PRESENT : 0) | (s->floats[1] > 0 ? CLAMPED : 0);
    EMIT(p, ELTWISE, out, s->out[0].c, a, b, mode, ist_tape_bits(-s->floats[1]), ist_tape_bits(s->floats[1]));
    normalise(p, s, out, s->floats[0], s->ints[0]);
}

static void gate(ist_tape *p, const ist_step *s) {
    int x = ist_tape_channels(p, s->rows[0], true), y = ist_tape_channels(p, s->rows[1], true),
        g = ist_tape_channels(p, s->rows[2], true);
    int out = ist_tape_channels(p, s->out[0], false);
    EMIT(p, ELTWISE, out, s->out[0].c, x, y, GATED, 0, 0, g);
    normalise(p, s, out, s->floats[0], IST_ACT_NONE);
}

static void fdr(ist_tape *p, const ist_step *s) {
    bool two = ist_has(s->rows[1]);
    int a = ist_tape_channels(p, s->rows[0], true), b = two ? ist_tape_channels(p, s->rows[1], true) : 0;
    int first = ist_tape_channels(p, s->rows[2], true), corners = ist_tape_channels(p, s->out[1], false);
    int boxes = ist_tape_channels(p, s->out[0], false), room = ist_tape_room(p, ITEMS / 2);
    EMIT(p, ELTWISE, corners, 4 * BINS, a, b, two ? PRESENT : 0);
    EMIT(p, SIDES, room, corners, (int)s->data_at[0]);
    EMIT(p, SIDES_BOX, boxes, room, first, ist_tape_bits(s->floats[0]));
}

static int constants(ist_tape *p, size_t at, int count) {
    (void)p, (void)count;
    return (int)at;
}

static const ist_tape_form tape_form = {SLOTS, 4, 8, linear, norm, gate, fdr, constants, NULL, NULL, NULL};

/* ---- launch ---- */

/* Where the weights of the steps [first, end) lie: one after the other. */
static void weights_of(const struct ist_sequence *s, size_t first, size_t end, ist_sequence_args *args) {
    size_t from = 0, beyond = 0;
    for (size_t i = first; i < end; i++) {
        const ist_step *q = &s->steps[i];
        if (q->op != IST_STEP_LINEAR) continue;
        if (!beyond) from = q->weights_at;
        beyond = q->weights_at + (size_t)q->filter.in * ist_round_up((size_t)q->filter.out, 4);
    }
    args->weights_from = (int)from;
    args->weights_count = (int)(beyond - from);
}

void ist_tape_launch_sequence(ist_plan *plan, struct ist_sequence *s, size_t first, size_t end, ist_tensor weights,
                              ist_tensor table, const char *label) {
    ist_tape *t = calloc(1, sizeof *t);
    if (!t) {
        ist_plan_fail(plan, IST_E_MEMORY, "%s: out of host memory for a sequence of operators", label);
        return;
    }
    *t = (ist_tape){.form = &tape_form,
                    .plan = plan,
                    .sequence = s,
                    .first = first,
                    .end = end,
                    .label = label,
                    .sides = 1};
    ist_tape_lower(t, false);
    if (!ist_plan_status(plan)) {
        ist_tensor tape = ist_plan_const_bytes(plan, t->words, t->count * WORDS * sizeof *t->words, label);
        ist_defines defines = ist_defines_of(plan, "-DSLOTS=%d", SLOTS);
        size_t groups = (size_t)ist_div_up(s->rows, ROWS);
        ist_sequence_args by_value = {.rows = s->rows, .steps = (int)t->count, .table_count = (int)s->table_count};
        weights_of(s, first, end, &by_value);
        if ((size_t)ist_plan_units(plan) >= (size_t)s->n * (groups + READERS)) groups += READERS;
        const ist_arg more[] = {IST_STRUCT(sequence_args, &by_value)};
        ist_launch l = {.op = "portable/sequence",
                        .isa = s->form->config,
                        .defines = defines.text,
                        .global = {groups * ITEMS, (size_t)s->n}};
        ist_tape_launch(t, &l, tape, weights, table, more, 1);
    }
    free(t->words);
    free(t);
}

const ist_sequence_form ist_tape_sequence = IST_TAPE_FORM("codes/tape+portable/distribution");

const ist_family ist_portable_sequence = {.takes = ist_tape_takes, .emit = ist_span_emit_sequence, .by_nodes = true};

/* ---- spans that no machine takes as one ---- */

static void emit_nodes(ist_plan *p, const ist_variant *v, void *span, int way) {
    const ist_spanned *s = span;
    (void)p, (void)v, (void)way;
    ist_span_nodes(s, s->region->first, s->region->end);
}

const ist_family ist_portable_nodes = {.emit = emit_nodes, .by_nodes = true};
