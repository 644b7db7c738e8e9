/* Sequences on matrix instructions: weights as a stream for each lane, the table that goes with them, and what two groups
 * with the same rows divide. */
#include "variants/nvidia/sequence.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

int ist_matrix_constants(ist_tape *t, size_t at, int count) {
    ist_matrix_tape *m = ist_matrix_of(t);
    size_t first = m->data_count, room = ist_round_up((size_t)count, 4);
    if (ist_plan_status(t->plan)) return (int)at;
    if (!ist_grow((void **)&m->data, &m->data_capacity, first + room, sizeof *m->data)) {
        ist_plan_fail(t->plan, IST_E_MEMORY, "%s: out of host memory for a sequence of operators", t->label);
        return 0;
    }
    memcpy(m->data + first, t->sequence->table + at, room * sizeof *m->data);
    m->data_count += room;
    return (int)first;
}

/* The inputs and outputs of a layer that a group takes; its second half of the inputs is `jump` further. */
typedef struct share {
    int in, ins, out, outs, jump;
} share;

static share share_of(const ist_matrix_tape *m, const ist_step *s, way w, int side) {
    const ist_filter *f = &s->filter;
    share all = {0, f->in, 0, f->out, 0};
    if (w == OUTPUTS) all.outs /= m->tape.sides, all.out = side * all.outs;
    if (w == INPUTS || w == HEADS) all.ins /= m->tape.sides, all.in = side * all.ins;
    if (w == HEADS) all.in /= 2, all.jump = all.ins / 2;
    return all;
}

/* Appends to the warp's stream the weights of a unit, 16 << fold outputs, for all inputs of the share: pieces of 16
 * bytes for each lane, the blocks of 16 outputs for 16 inputs, then for the next. Lane l holds outputs 2 (l / 4) and
 * the next, so that it has results side by side, of each two inputs, then of each the two behind them (mma.m16n8k16,
 * matrix A). Which four inputs suits how it reads rows: the fourth l % 4 of 16, as halves half of the eighth of 32. */
static void stream_unit(ist_matrix_tape *m, int warp, const ist_step *s, share own, int unit, int fold, int batches) {
    size_t ld = ist_round_up((size_t)s->filter.out, 4), count = m->streamed[warp] + (size_t)batches * BATCH;
    const float *w = m->tape.sequence->weights + s->weights_at;
    if (ist_plan_status(m->tape.plan)) return;
    if (!ist_grow((void **)&m->stream[warp], &m->stream_capacity[warp], count, PIECE * sizeof(float))) {
        ist_plan_fail(m->tape.plan, IST_E_MEMORY, "%s: out of host memory for a sequence of operators", m->tape.label);
        return;
    }
    float *to = m->stream[warp] + PIECE * m->streamed[warp];
    const bool halves = ist_matrix_halves(m);
    const int all = ist_plan_has_values(m->tape.plan) ? batches * BATCH * PIECE : 0;
    for (int e = 0; e < all; e++) {
        int h = e % 8, lane = e / 8 % 32, at = e / PIECE;
        int o = ((unit << fold) + (at & ((1 << fold) - 1))) * BLOCK + lane / 4 * 2 + h / 2 % 2;
        int k = at >> fold, four = lane % 4;
        int first = halves ? k / 2 * 2 * BLOCK + four * 8 + k % 2 * 4 : k * BLOCK + four * 4;
        int i = first + h / 4 * 2 + h % 2;
        bool there = o < own.outs && i < own.ins;
        if (i >= own.ins / 2) i += own.jump;
        to[e] = there ? w[(size_t)(own.in + i) * ld + (size_t)(own.out + o)] : 0;
    }
    m->streamed[warp] = count;
}

/* How the pieces of a batch lie: 16 << fold outputs of 256 >> fold inputs, so that the warps have least to do and,
 * among equals, read inputs least often. What the kernel does only with the highest fold: inputs that count as floats,
 * batches that are not whole. */
typedef struct layout {
    int fold, units, batches, rounds;
    bool whole; /* batches */
} layout;

static layout layout_of(share own, bool exact) {
    layout best = {0};
    for (int fold = 0; fold <= FOLD_MOST; fold++) {
        layout l = {.fold = fold,
                    .units = ist_div_up(own.outs, BLOCK << fold),
                    .batches = ist_div_up(own.ins, BLOCK * BATCH >> fold)};
        l.rounds = ist_div_up(l.units, WARPS);
        l.whole = own.ins == l.batches * (BLOCK * BATCH >> fold);
        if ((exact || !l.whole || (own.jump && l.batches % 2)) && fold < FOLD_MOST) continue;
        if (!best.units || l.rounds * l.batches <= best.rounds * best.batches) best = l;
    }
    return best;
}

static int turns_of(share own, bool exact) {
    layout l = layout_of(own, exact);
    return l.rounds * l.batches * (exact ? 2 : 1);
}

static way way_of(const ist_matrix_tape *m, const ist_step *s) {
    return m->tape.sides > 1 ? m->ways[s - m->tape.sequence->steps - m->tape.first] : EACH;
}

void ist_matrix_linear(ist_tape *t, const ist_step *s) {
    ist_matrix_tape *m = ist_matrix_of(t);
    way w = way_of(m, s);
    share own = share_of(m, s, w, t->side);
    int in = ist_tape_channels(t, s->rows[0], true);
    int before = ist_has(s->rows[1]) ? ist_tape_channels(t, s->rows[1], true) : -1;
    int after = ist_has(s->rows[2]) ? ist_tape_channels(t, s->rows[2], true) : -1,
        out = ist_tape_channels(t, s->out[0], false);
    int bias = s->has_bias ? ist_matrix_constants(t, s->data_at[0], s->filter.out) : -1;
    bool exact = s->rows[0].elem == IST_ELEM_F32;
    layout l = layout_of(own, exact);
    int flags = (exact ? EXACT : 0) | (l.whole ? WHOLE : 0) | own.jump * JUMP, turns = turns_of(own, exact);
    for (int unit = 0; unit < l.units; unit++)
        stream_unit(m, t->side * WARPS + unit % WARPS, s, own, unit, l.fold, l.batches);
    if (turns >= LINEAR_TURNS_END || in % 4) {
        ist_plan_fail(t->plan, IST_E_LIMIT, "%s: %d inputs from %d on and %d outputs, in a sequence", t->label,
                      s->filter.in, in, s->filter.out);
        return;
    }
    bool meets = w == INPUTS || w == HEADS;
    EMIT(t, MATRIX_LINEAR + turns * LINEAR_TURN, in + own.in, own.ins, out + own.out, own.outs, l.units, l.batches,
         flags, meets ? MAILED - m->mail : bias < 0 ? -1 : bias + own.out, meets ? IST_ACT_NONE : s->ints[0],
         before < 0 ? -1 : before + own.out, after < 0 ? -1 : after + own.out, l.fold);
    if (!meets) return;
    int half = own.jump, other = w == HEADS ? in + own.in + 2 * half + (t->side ? -half : half) : 0;
    EMIT(t, MATRIX_MEET, out, own.outs, bias, s->ints[0], m->mail, other, half, m->heads_mail);
    m->mail += own.outs;
}

/* ---- two groups with the same rows ---- */

bool ist_matrix_divided(const ist_tape *t, const ist_step *s) {
    return s->op == IST_STEP_LINEAR && way_of(ist_matrix_of_const(t), s) == OUTPUTS;
}

int ist_matrix_mail_heads(ist_tape *t, const ist_step *s) {
    ist_matrix_tape *m = ist_matrix_of(t);
    if (way_of(m, s) != HEADS) return -1;
    m->heads_mail = m->mail;
    m->mail += s->out[0].c / t->sides;
    return m->heads_mail;
}

static bool plain(const ist_step *s) {
    return s->op == IST_STEP_LINEAR && !ist_has(s->rows[1]) && !ist_has(s->rows[2]);
}

/* The only step of the piece beside s that has to do with what s makes, if nobody else has either; `count`: how many
 * such steps there are. */
static const ist_step *user_of(const ist_matrix_tape *m, const ist_step *s, int *count) {
    const ist_step *found = NULL;
    *count = 0;
    for (size_t i = m->tape.first; i < m->tape.end; i++) {
        const ist_step *o = &m->tape.sequence->steps[i];
        bool uses = false;
        for (int k = 0; k < 3 && o != s; k++) uses = uses || o->rows[k].buffer == s->out[0].buffer;
        for (int k = 0; k < 2 && o != s; k++)
            uses = uses || o->out[k].buffer == s->out[0].buffer || o->whole[k].buffer == s->out[0].buffer;
        if (uses) found = o, ++*count;
    }
    return found;
}

static int turns_by(const ist_matrix_tape *m, const ist_step *s, way w) {
    return turns_of(share_of(m, s, w, 0), s->rows[0].elem == IST_ELEM_F32);
}

/* Deformable attention by heads: where nobody wants its result before the linear layer of which it is the second half
 * of the inputs, and that one's groups hand over sums. */
static void divide_heads(ist_matrix_tape *m, size_t at) {
    const ist_step *steps = m->tape.sequence->steps, *s = &steps[at];
    const ist_tensor d = s->out[0];
    size_t i = at + 1;
    for (; i < m->tape.end; i++) {
        const ist_step *o = &steps[i];
        bool uses = false;
        for (int k = 0; k < 3; k++) uses = uses || o->rows[k].buffer == d.buffer;
        for (int k = 0; k < 2; k++) uses = uses || o->out[k].buffer == d.buffer || o->whole[k].buffer == d.buffer;
        if (uses) break;
    }
    if (i == m->tape.end || m->ways[i - m->tape.first] != INPUTS) return;
    const ist_tensor x = steps[i].rows[0];
    bool second = x.buffer == d.buffer && d.c0 == x.c0 + d.c && x.c == 2 * d.c && d.elem == IST_ELEM_T;
    bool shared = ist_sequence_shares(m->tape.plan, m->tape.sequence, 0, m->tape.end, d.buffer);
    if (!second || shared || s->ints[0] % SIDES_MOST || d.c % (2 * BLOCK * BATCH >> FOLD_MOST)) return;
    m->ways[at - m->tape.first] = m->ways[i - m->tape.first] = HEADS;
}

/* What is worth dividing: a step to hand over sums costs some thousand cycles, as a turn of all warps does. Returns the
 * turns that are saved. */
int ist_matrix_divide(ist_matrix_tape *m) {
    int saved = 0;
    m->mail = 0;
    for (size_t i = m->tape.first; i < m->tape.end; i++) m->ways[i - m->tape.first] = EACH;
    for (size_t i = m->tape.first; i < m->tape.end; i++) {
        const ist_step *s = &m->tape.sequence->steps[i];
        way *own = &m->ways[i - m->tape.first];
        if (s->op != IST_STEP_LINEAR || *own != EACH) continue;
        int users, now = turns_by(m, s, EACH);
        const ist_step *n = user_of(m, s, &users);
        bool shared = ist_sequence_shares(m->tape.plan, m->tape.sequence, 0, m->tape.end, s->out[0].buffer);
        bool half_out = s->filter.out % (2 * BLOCK) == 0, half_in = s->filter.in % (2 * BLOCK) == 0;
        bool behind = users == 1 && !shared && n > s && plain(n) && ist_tape_same(n->rows[0], s->out[0]) &&
                      n->rows[0].elem == IST_ELEM_T && n->filter.out % 4 == 0 && n->ints[0] <= IST_ACT_RELU;
        if (half_out && shared && !users) {
            if (turns_by(m, s, OUTPUTS) < now) *own = OUTPUTS, saved += now - turns_by(m, s, OUTPUTS);
        } else if (!plain(s)) {
            continue;
        } else if (half_out && behind) {
            int both = now + turns_by(m, n, EACH), less = turns_by(m, s, OUTPUTS) + turns_by(m, n, INPUTS);
            if (both - less < SAVED_LEAST) continue;
            *own = OUTPUTS;
            m->ways[n - m->tape.sequence->steps - m->tape.first] = INPUTS;
            saved += both - less - 1;
        } else if (half_in && s->rows[0].elem == IST_ELEM_T && s->filter.out % 4 == 0 && s->ints[0] <= IST_ACT_RELU) {
            int less = turns_by(m, s, INPUTS);
            if (now - less <= SAVED_LEAST) continue;
            *own = INPUTS;
            saved += now - less - 1;
        }
    }
    for (size_t i = m->tape.first; i < m->tape.end; i++)
        if (m->tape.sequence->steps[i].op == IST_STEP_DEFORM) divide_heads(m, i);
    return saved;
}

/* [1,sides,WARPS,pieces of a warp times PIECE]: the streams, each with the zeros that its lanes ask for at the end. */
ist_tensor ist_matrix_streams(ist_matrix_tape *m, size_t *pieces) {
    size_t most = 0, count;
    int warps = m->tape.sides * WARPS;
    for (int w = 0; w < warps; w++) most = m->streamed[w] > most ? m->streamed[w] : most;
    *pieces = most + BATCH;
    if (!ist_mul_size(*pieces, PIECE, &count) || count > INT_MAX / STREAMS) {
        ist_plan_fail(m->tape.plan, IST_E_LIMIT, "%s: %zu pieces of weights", m->tape.label, *pieces);
        return (ist_tensor){0};
    }
    float *all = calloc((size_t)warps * count, sizeof *all);
    if (!all) {
        ist_plan_fail(m->tape.plan, IST_E_MEMORY, "%s: out of host memory for a sequence of operators", m->tape.label);
        return (ist_tensor){0};
    }
    for (int w = 0; w < warps; w++)
        if (m->streamed[w]) memcpy(all + (size_t)w * count, m->stream[w], m->streamed[w] * PIECE * sizeof *all);
    ist_tensor t = ist_plan_const(m->tape.plan, all, 1, m->tape.sides, WARPS, (int)count, IST_ELEM_T, m->tape.label);
    free(all);
    return t;
}

ist_tensor ist_matrix_table(ist_matrix_tape *m) {
    static const float zero[DATA_STEP] = {0};
    size_t count = ist_round_up(m->data_count ? m->data_count : 1, DATA_STEP), more = count - m->data_count;
    if (!ist_grow((void **)&m->data, &m->data_capacity, count, sizeof *m->data)) {
        ist_plan_fail(m->tape.plan, IST_E_MEMORY, "%s: out of host memory for a sequence of operators", m->tape.label);
        return (ist_tensor){0};
    }
    memcpy(m->data + m->data_count, zero, more * sizeof *m->data);
    m->data_count = count;
    return ist_plan_const(m->tape.plan, m->data, 1, 1, 1, (int)count, IST_ELEM_F32, m->tape.label);
}

int ist_matrix_halves(const ist_matrix_tape *m) {
    const ist_matrix_sequence *config = m->tape.sequence->form->config;
    return config->large ? MATRIX_HALVES : 0;
}

/* Where there is room for them beside the rows: what the device says or a probe has shown. */
int ist_matrix_local_data(const ist_matrix_tape *m, int steps) {
    const ist_matrix_sequence *config = m->tape.sequence->form->config;
    size_t need = (MATRIX_SLOTS * MATRIX_ROWS + m->data_count) * sizeof *m->data + MATRIX_REST +
                  (size_t)ist_matrix_halves(m) * MATRIX_ROWS * 2 + (size_t)steps * WORDS * sizeof(int);
    size_t room = ist_device_local_bytes(ist_plan_device(m->tape.plan));
    return need <= room || (need <= LARGE_ROOM && config->large) ? (int)m->data_count : 0;
}
