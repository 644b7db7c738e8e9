/* Chains on matrix instructions: weights as a stream for each lane, the table that goes with them, and what two groups
 * with the same rows divide (cl/op/chain_mma.cl). */
#include "ops/chain_piece.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Where the kernel finds `count` floats that lie in the chain's table from `at` on. */
int ist_piece_constants(piece *p, size_t at, int count) {
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

/* The inputs and outputs of a layer that a group takes. */
typedef struct share {
    int in, ins, out, outs;
} share;

static share share_of(const piece *p, const ist_chain_step *s, way w, int side) {
    const ist_filter *f = &s->filter;
    share all = {0, f->in, 0, f->out};
    if (w == OUTPUTS) all.outs /= p->sides, all.out = side * all.outs;
    if (w == INPUTS) all.ins /= p->sides, all.in = side * all.ins;
    return all;
}

/* Appends to the warp's stream the weights of a unit, 16 << fold outputs, for all inputs of the share: pieces of 16
 * bytes for each lane, the blocks of 16 outputs for 16 inputs, then for the next. Lane l holds outputs l / 4 and that 8
 * further, of each the inputs 4 (l % 4) + {0, 1}, then of each {2, 3} (mma.m16n8k16, matrix A; the inputs in the order
 * that suits the rows). */
static void stream_unit(piece *p, int warp, const ist_chain_step *s, share own, int unit, int fold, int batches) {
    size_t ld = ist_round_up((size_t)s->filter.out, 4), count = p->streamed[warp] + (size_t)batches * BATCH;
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
        bool there = o < own.outs && i < own.ins;
        to[e] = there ? w[(size_t)(own.in + i) * ld + (size_t)(own.out + o)] : 0;
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

static layout layout_of(share own, bool exact) {
    layout best = {0};
    for (int fold = 0; fold <= FOLD_MOST; fold++) {
        layout l = {.fold = fold,
                    .units = ist_div_up(own.outs, BLOCK << fold),
                    .batches = ist_div_up(own.ins, BLOCK * BATCH >> fold)};
        l.rounds = ist_div_up(l.units, WARPS);
        l.whole = own.ins == l.batches * (BLOCK * BATCH >> fold);
        if ((exact || !l.whole) && fold < FOLD_MOST) continue;
        if (!best.units || l.rounds * l.batches <= best.rounds * best.batches) best = l;
    }
    return best;
}

static int turns_of(share own, bool exact) {
    layout l = layout_of(own, exact);
    return l.rounds * l.batches * (exact ? 2 : 1);
}

way ist_piece_way(const piece *p, const ist_chain_step *s) {
    return p->sides > 1 ? p->ways[s - p->chain->steps - p->first] : EACH;
}

void ist_piece_linear(piece *p, const ist_chain_step *s) {
    way w = ist_piece_way(p, s);
    share own = share_of(p, s, w, p->side);
    int in = ist_piece_channels(p, s->rows[0], true);
    int before = ist_has(s->rows[1]) ? ist_piece_channels(p, s->rows[1], true) : -1;
    int after = ist_has(s->rows[2]) ? ist_piece_channels(p, s->rows[2], true) : -1,
        out = ist_piece_channels(p, s->out[0], false);
    int bias = s->has_bias ? ist_piece_constants(p, s->data_at[0], s->filter.out) : -1;
    bool exact = s->rows[0].elem == IST_ELEM_F32;
    layout l = layout_of(own, exact);
    int flags = (exact ? EXACT : 0) | (l.whole ? WHOLE : 0), turns = turns_of(own, exact);
    for (int unit = 0; unit < l.units; unit++)
        stream_unit(p, p->side * WARPS + unit % WARPS, s, own, unit, l.fold, l.batches);
    if (turns >= LINEAR_TURNS_END || in % 4) {
        ist_plan_fail(p->plan, IST_E_LIMIT, "%s: %d inputs from %d on and %d outputs, in a chain", p->label,
                      s->filter.in, in, s->filter.out);
        return;
    }
    bool meets = w == INPUTS;
    EMIT(p, MATRIX_LINEAR + turns * LINEAR_TURNS, in + own.in, own.ins, out + own.out, own.outs, l.units, l.batches,
         flags, meets || bias < 0 ? -1 : bias + own.out, meets ? IST_ACT_NONE : s->ints[0],
         before < 0 ? -1 : before + own.out, after < 0 ? -1 : after + own.out, l.fold);
    if (!meets) return;
    EMIT(p, MATRIX_MEET, out, own.outs, bias, s->ints[0], p->mail);
    p->mail += own.outs;
}

/* ---- two groups with the same rows ---- */

static bool plain(const ist_chain_step *s) {
    return s->op == IST_CHAIN_LINEAR && !ist_has(s->rows[1]) && !ist_has(s->rows[2]);
}

/* The only step of the piece beside s that has to do with what s makes, if nobody else has either; `count`: how many
 * such steps there are. */
static const ist_chain_step *user_of(const piece *p, const ist_chain_step *s, int *count) {
    const ist_chain_step *found = NULL;
    *count = 0;
    for (size_t i = p->first; i < p->end; i++) {
        const ist_chain_step *o = &p->chain->steps[i];
        bool uses = false;
        for (int k = 0; k < 3 && o != s; k++) uses = uses || o->rows[k].buffer == s->out[0].buffer;
        for (int k = 0; k < 2 && o != s; k++)
            uses = uses || o->out[k].buffer == s->out[0].buffer || o->whole[k].buffer == s->out[0].buffer;
        if (uses) found = o, ++*count;
    }
    return found;
}

static int turns_by(const piece *p, const ist_chain_step *s, way w) {
    return turns_of(share_of(p, s, w, 0), s->rows[0].elem == IST_ELEM_F32);
}

/* What is worth dividing: a step to hand over sums costs some thousand cycles, as a turn of all warps does. Returns the
 * turns that are saved. */
int ist_piece_divide(piece *p) {
    int saved = 0;
    p->mail = 0;
    for (size_t i = p->first; i < p->end; i++) p->ways[i - p->first] = EACH;
    for (size_t i = p->first; i < p->end; i++) {
        const ist_chain_step *s = &p->chain->steps[i];
        way *own = &p->ways[i - p->first];
        if (s->op != IST_CHAIN_LINEAR || *own != EACH) continue;
        int users, now = turns_by(p, s, EACH);
        const ist_chain_step *n = user_of(p, s, &users);
        bool shared = ist_chain_shares(p->plan, p->chain, 0, p->end, s->out[0].buffer);
        bool half_out = s->filter.out % (2 * BLOCK) == 0, half_in = s->filter.in % (2 * BLOCK) == 0;
        bool behind = users == 1 && !shared && n > s && plain(n) && ist_piece_same(n->rows[0], s->out[0]) &&
                      n->rows[0].elem == IST_ELEM_T && n->filter.out % 4 == 0 && n->ints[0] <= IST_ACT_RELU;
        if (half_out && shared && !users) {
            if (turns_by(p, s, OUTPUTS) < now) *own = OUTPUTS, saved += now - turns_by(p, s, OUTPUTS);
        } else if (!plain(s)) {
            continue;
        } else if (half_out && behind) {
            int both = now + turns_by(p, n, EACH), less = turns_by(p, s, OUTPUTS) + turns_by(p, n, INPUTS);
            if (both - less < SAVED_LEAST) continue;
            *own = OUTPUTS;
            p->ways[n - p->chain->steps - p->first] = INPUTS;
            saved += both - less - 1;
        } else if (half_in && s->rows[0].elem == IST_ELEM_T && s->filter.out % 4 == 0 && s->ints[0] <= IST_ACT_RELU) {
            int less = turns_by(p, s, INPUTS);
            if (now - less <= SAVED_LEAST) continue;
            *own = INPUTS;
            saved += now - less - 1;
        }
    }
    return saved;
}

/* [1,sides,WARPS,pieces of a warp times PIECE]: the streams, each with the zeros that its lanes ask for at the end. */
ist_tensor ist_piece_streams(piece *p, size_t *pieces) {
    size_t most = 0, count;
    int warps = p->sides * WARPS;
    for (int w = 0; w < warps; w++) most = p->streamed[w] > most ? p->streamed[w] : most;
    *pieces = most + BATCH;
    if (!ist_mul_size(*pieces, PIECE, &count) || count > INT_MAX / STREAMS) {
        ist_plan_fail(p->plan, IST_E_LIMIT, "%s: %zu pieces of weights", p->label, *pieces);
        return (ist_tensor){0};
    }
    float *all = calloc((size_t)warps * count, sizeof *all);
    if (!all) {
        ist_plan_fail(p->plan, IST_E_MEMORY, "%s: out of host memory for a chain of operators", p->label);
        return (ist_tensor){0};
    }
    for (int w = 0; w < warps; w++)
        if (p->streamed[w]) memcpy(all + (size_t)w * count, p->stream[w], p->streamed[w] * PIECE * sizeof *all);
    ist_tensor t = ist_plan_const(p->plan, all, 1, p->sides, WARPS, (int)count, IST_ELEM_T, p->label);
    free(all);
    return t;
}

/* The table of this piece, whole steps of DATA_STEP floats. */
ist_tensor ist_piece_table(piece *p) {
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
int ist_piece_local_data(const piece *p) {
    size_t need = (MATRIX_SLOTS * MATRIX_ROWS + p->data_count) * sizeof *p->data + MATRIX_REST;
    size_t room = ist_device_local_bytes(ist_plan_device(p->plan));
    bool large = need <= LARGE_ROOM && ist_plan_caps(p->plan) & IST_CAP_PTX_WGMMA;
    return need <= room || large ? (int)p->data_count : 0;
}
