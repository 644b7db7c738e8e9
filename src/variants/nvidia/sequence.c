/* Sequences on matrix instructions: tapes whose steps do each other's stores and wait where they must, arguments, grid. */
#include "variants/nvidia/sequence.h"
#include "variants/nvidia/sequence_args.h"

#include "base/mem.h"
#include "variants/portable/sequence.h"
#include "variants/defines.h"

#include <stdlib.h>

enum { NORM_MOST = 256 /* channels that fit registers */, OUTPUTS_MAX = 1024 };

/* ---- steps ---- */

static void normalise(ist_tape *p, const ist_step *s, bool gates) {
    float most = gates ? 0 : s->floats[1];
    int a = ist_tape_channels(p, s->rows[0], true),
        b = ist_has(s->rows[1]) ? ist_tape_channels(p, s->rows[1], true) : 0;
    int g = gates ? ist_tape_channels(p, s->rows[2], true) : 0, out = ist_tape_channels(p, s->out[0], false);
    int mode = gates ? GATED : (ist_has(s->rows[1]) ? PRESENT : 0) | (most > 0 ? CLAMPED : 0);
    if ((a | b | g | out) % 4) {
        ist_plan_fail(p->plan, IST_E_ARGUMENT, "%s: channels from %d, %d, %d and %d on, not in fours", p->label, a, b,
                      g, out);
        return;
    }
    unsigned more = ist_tape_also(p, s, out, (const int[]){a, b, g}, gates ? 3 : mode & PRESENT ? 2 : 1);
    EMIT(p, MATRIX_NORM, out, s->out[0].c, a, b, mode | (more ? ALSO : 0), ist_tape_bits(-most), ist_tape_bits(most), g,
         ist_matrix_constants(p, s->data_at[0], s->sizes[0]), ist_matrix_constants(p, s->data_at[1], s->sizes[1]),
         ist_tape_bits(s->floats[0]), (int)more | (gates ? IST_ACT_NONE : s->ints[0]));
}

static void norm(ist_tape *p, const ist_step *s) {
    normalise(p, s, false);
}

static void gate(ist_tape *p, const ist_step *s) {
    normalise(p, s, true);
}

static void fdr(ist_tape *p, const ist_step *s) {
    bool two = ist_has(s->rows[1]);
    int a = ist_tape_channels(p, s->rows[0], true), b = two ? ist_tape_channels(p, s->rows[1], true) : 0;
    int first = ist_tape_channels(p, s->rows[2], true), corners = ist_tape_channels(p, s->out[1], false);
    int boxes = ist_tape_channels(p, s->out[0], false);
    EMIT(p, MATRIX_SIDES, boxes, corners, a, b, two ? PRESENT : 0, first, ist_tape_bits(s->floats[0]),
         ist_matrix_constants(p, s->data_at[0], s->sizes[0]));
}

/* Brings in the first rows that nobody makes here, since loads side by side wait once: up to
 * LOADS of halves, then those of floats, for which the kernel waits with the table. */
static void load_first(ist_tape *p) {
    const struct ist_sequence *c = p->sequence;
    int room = LOADS_ROOM, quads = 0;
    for (int floats = 0; floats <= p->eager; floats++) {
        size_t most = floats ? LOADS_ALL : LOADS;
        for (size_t i = p->first; i < p->end && p->count < most; i++)
            for (int k = 0; k < 3; k++) {
                ist_tensor t = c->steps[i].rows[k];
                const ist_tape_slot *s = p->slots;
                if (!ist_has(t) || ist_tape_made_here(p, i, t.buffer)) continue;
                while (s->buffer != t.buffer) s++;
                int columns = s->hi - s->lo;
                bool fits = columns <= room && columns <= 256 && (t.ld | s->lo | s->hi) % 4 == 0;
                if (s->placed || p->count >= most || !fits || (t.elem == IST_ELEM_F32) != floats) continue;
                ist_tape_channels(p, t, true);
                room -= columns;
            }
        if (!floats) quads = (int)p->count;
    }
    if (p->count && !ist_plan_status(p->plan)) p->words[TOGETHER] = quads | (int)p->count << 4;
}

static const ist_tape_form form = {
    MATRIX_SLOTS, 8, 9, ist_matrix_linear, norm, gate, fdr, ist_matrix_constants, load_first, ist_matrix_divided,
    ist_matrix_mail_heads};

/* ---- the tape as the kernel wants it ---- */

/* Whether the step writes any of the channels. */
static bool writes(const int *w, int at, int count) {
    switch (w[0] % GROUP_WAITS) {
    case STORE_ROWS:
        return false;
    case MATRIX_LINEAR:
        return ist_tape_overlap(at, count, w[3], w[4]);
    case ELTWISE:
    case MATRIX_NORM:
        return ist_tape_overlap(at, count, w[1], w[2]) ||
               (w[5] & ALSO && ist_tape_overlap(at, count, w[12] >> 8 & 0xfff, w[2]));
    case SAMPLE_AT:
        return ist_tape_overlap(at, count, w[4], 9 * w[6] * w[7]);
    case MATRIX_MEET:
        return ist_tape_overlap(at, count, w[1], w[2]) || ist_tape_overlap(at, count, w[6], w[7]);
    case SAMPLE_SUM:
        return ist_tape_overlap(at, count, w[1], w[7] * w[9]);
    case MATRIX_SIDES:
        return ist_tape_overlap(at, count, w[1], 4) || ist_tape_overlap(at, count, w[2], 4 * BINS);
    case SIDES_BEST:
        return ist_tape_overlap(at, count, w[1], 20);
    default: /* LOAD_ROWS, BOX_SIGMOID */
        return ist_tape_overlap(at, count, w[1], w[2]);
    }
}

/* Writes step `at`, a store, into a later one, which does it first; false where none can: a linear layer whose result
 * lies there, for its warps make it of all rows, whatever is behind a step that writes there, or what does not fit the
 * words. */
static bool put_store(ist_tape *p, size_t at) {
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
static void join_stores(ist_tape *p) {
    size_t count = 0;
    for (size_t i = 0; i < p->count; i++) {
        int *s = p->words + WORDS * i;
        if (s[0] == STORE_ROWS && put_store(p, i)) continue;
        memmove(p->words + WORDS * count++, s, WORDS * sizeof *s);
    }
    p->count = count;
}

/* On matrix instructions a warp has a row, and waits for the others only where linear layers begin and end, and for the
 * table after the first. Returns the turns of all steps. */
static int mark_waits(ist_tape *p) {
    int turns = 0;
    for (size_t i = 0; i < p->count; i++) {
        int *at = p->words + WORDS * i, own = at[0] / LINEAR_TURN;
        bool matrix = at[0] % GROUP_WAITS > SIDES_BEST || (i + 1 < p->count && at[WORDS] % GROUP_WAITS > SIDES_BEST);
        if (matrix || !i) at[0] |= GROUP_WAITS;
        turns += own ? own : 1;
    }
    return turns;
}

/* ---- launch ---- */

/* The words of both tapes, one after the other; what else lower_all left is the last side's. */
typedef struct tapes {
    int *words;
    size_t counts[SIDES_MOST], count;
} tapes;

static void launch(ist_matrix_tape *m, const tapes *all, ist_tensor weights, ist_tensor table, int pieces, int turns) {
    ist_tape *t = &m->tape;
    const struct ist_sequence *s = t->sequence;
    ist_plan *p = t->plan;
    ist_tensor tape = ist_plan_const_bytes(p, all->words, all->count * WORDS * sizeof *all->words, t->label);
    if (all->counts[0] > STEPS_MOST || all->counts[1] > STEPS_MOST) {
        ist_plan_fail(p, IST_E_LIMIT, "%s: more than %d steps in a piece of a sequence", t->label, STEPS_MOST);
        return;
    }
    size_t longest = all->counts[0] > all->counts[1] ? all->counts[0] : all->counts[1];
    const int steps = (int)ist_round_up(longest, STEPS_STEP);
    ist_defines defines = ist_defines_of(p, "-DSLOTS=%d -DTHREADS=%d -DDATA=%d -DHALVES=%d -DSTEPS=%d", MATRIX_SLOTS,
                                         ITEMS, ist_matrix_local_data(m, steps), ist_matrix_halves(m), steps);
    if (t->sides > 1) ist_defines_add(&defines, " -DSPLIT=%d -DMAIL=%d", t->sides, MAIL);
    size_t groups = (size_t)ist_div_up(s->rows, MATRIX_ROWS);
    ist_tensor mails = {0};
    if (t->sides > 1)
        mails = ist_plan_persistent(p, s->n, (int)groups, MATRIX_ROWS * t->sides, MAIL, IST_ELEM_I32);
    groups *= (size_t)t->sides;
    if ((size_t)ist_plan_units(p) >= s->n * groups + PREFETCHERS) groups += PREFETCHERS;
    const ist_nvidia_sequence_args by_value = {.rows = s->rows,
                                               .first_steps = (int)all->counts[0],
                                               .second_steps = (int)all->counts[1],
                                               .lane_pieces = pieces,
                                               .turns = turns};
    ist_arg more[2] = {IST_IN((ist_tensor){0}), IST_STRUCT(nvidia_sequence_args, &by_value)};
    if (t->sides > 1) more[0] = (ist_arg)IST_INOUT(mails);
    ist_launch l = {.op = "nvidia/sequence",
                    .isa = "nvidia/ptx+codes/tape+codes/sequence_nvidia+portable/distribution+nvidia/sequence_rows",
                    .defines = defines.text,
                    .global = {groups * ITEMS, (size_t)s->n}};
    ist_tape_launch(t, &l, tape, weights, table, more, 2);
}

/* Keeps this side's tape. */
static void keep(const ist_tape *t, tapes *all) {
    int *words = NULL;
    if (!ist_plan_status(t->plan)) words = realloc(all->words, (all->count + t->count) * WORDS * sizeof *words);
    if (!words) {
        ist_plan_fail(t->plan, IST_E_MEMORY, "%s: out of host memory for a sequence of operators", t->label);
        return;
    }
    all->words = words;
    memcpy(words + WORDS * all->count, t->words, t->count * WORDS * sizeof *words);
    all->counts[t->side] = t->count;
    all->count += t->count;
}

/* Lowers the piece for groups that have their rows alone, or for two with the same ones; false: no room for that. */
static bool tapes_of(ist_matrix_tape *m, bool eager, tapes *all, int *turns) {
    ist_tape *t = &m->tape;
    all->count = all->counts[1] = 0;
    memset(m->streamed, 0, sizeof m->streamed);
    for (t->side = 0; t->side < t->sides; t->side++) {
        m->data_count = 0;
        m->mail = 0;
        ist_tape_lower(t, eager);
        if (t->full || m->mail > MAIL) return false;
        join_stores(t);
        *turns = mark_waits(t);
        keep(t, all);
    }
    return true;
}

/* Groups with the same rows need that both run at once. */
static bool may_meet(const ist_tape *t) {
    const ist_matrix_sequence *config = t->sequence->form->config;
    size_t groups = t->sequence->n * (size_t)ist_div_up(t->sequence->rows, MATRIX_ROWS) * SIDES_MOST;
    return config->meets && groups <= (size_t)ist_plan_units(t->plan);
}

static void lower_and_launch(ist_matrix_tape *m) {
    tapes all = {0};
    int turns = 0;
    size_t pieces = 0;
    ist_tape *t = &m->tape;
    ist_tensor weights = {0}, table = {0};
    bool done = may_meet(t) && ist_matrix_divide(m) >= MEETS_LEAST && tapes_of(m, true, &all, &turns);
    if (!done) t->sides = 1;
    if (!done && !tapes_of(m, true, &all, &turns)) tapes_of(m, false, &all, &turns);
    if (!ist_plan_status(t->plan)) weights = ist_matrix_streams(m, &pieces);
    if (!ist_plan_status(t->plan)) table = ist_matrix_table(m);
    if (!ist_plan_status(t->plan)) launch(m, &all, weights, table, (int)pieces, turns);
    free(all.words);
}

static void launch_piece(ist_plan *plan, struct ist_sequence *s, size_t first, size_t end, ist_tensor weights,
                         ist_tensor table, const char *label) {
    ist_matrix_tape *m = calloc(1, sizeof *m);
    way *ways = calloc(end - first, sizeof *ways);
    (void)weights, (void)table;
    if (m && ways) {
        m->tape = (ist_tape){.form = &form,
                             .plan = plan,
                             .sequence = s,
                             .first = first,
                             .end = end,
                             .label = label,
                             .sides = SIDES_MOST};
        m->ways = ways;
        lower_and_launch(m);
        for (int w = 0; w < STREAMS; w++) free(m->stream[w]);
        free(m->tape.words);
        free(m->data);
    } else {
        ist_plan_fail(plan, IST_E_MEMORY, "%s: out of host memory for a sequence of operators", label);
    }
    free(ways);
    free(m);
}

/* ---- forms ---- */

/* From a multiple of how many channels on tensor k of a step must lie: the three rows, then what it makes. `halves`:
 * linear layers take these. */
static int begins(const ist_step *s, int k, bool halves) {
    switch (s->op) {
    case IST_STEP_LINEAR:
        return k ? 2 : s->rows[0].elem == IST_ELEM_T && halves ? 8 : 4;
    case IST_STEP_NORM:
    case IST_STEP_GATE:
        return 4;
    case IST_STEP_DEFORM:
        return k == 3 ? 4 : 1;
    default:
        return 1;
    }
}

enum { TENSORS = 5 }; /* of a step */
static const ist_tensor *tensor_of(const ist_step *s, int k) {
    return k < 3 ? &s->rows[k] : &s->out[k - 3];
}

/* Where all parts of a buffer that steps have lie so to each other: it lies in local memory from its first one on. */
static bool all_begin(const struct ist_sequence *s, const ist_tensor *part, int multiple) {
    for (size_t i = 0; i < s->count && multiple > 1; i++)
        for (int k = 0; k < TENSORS; k++) {
            const ist_tensor *t = tensor_of(&s->steps[i], k);
            if (ist_has(*t) && t->buffer == part->buffer && (t->c0 - part->c0) % multiple) return false;
        }
    return true;
}

static bool fits(const struct ist_sequence *s) {
    const ist_matrix_sequence *config = s->form->config;
    for (size_t i = 0; i < s->count; i++) {
        const ist_step *q = &s->steps[i];
        bool norms = q->op == IST_STEP_NORM || q->op == IST_STEP_GATE;
        if (norms && (q->out[0].c % 4 || q->out[0].c > NORM_MOST)) return false;
        for (int k = 0; k < TENSORS; k++) {
            const ist_tensor *t = tensor_of(q, k);
            if (ist_has(*t) && !all_begin(s, t, begins(q, k, config->large))) return false;
        }
    }
    return true;
}

/* The portable kernel, with loads that keep their place. */
const ist_sequence_form ist_tape_sequence_ptx =
    IST_TAPE_FORM("nvidia/ptx+nvidia/fetch+codes/tape+portable/distribution");

#define FORM(own)                                                                                                      \
    {.vector = 4, .outputs = OUTPUTS_MAX, .streams = true, .config = (own), .fits = fits,                              \
     .otherwise = &ist_tape_sequence_ptx, .pack = ist_tape_pack, .launch = launch_piece}
static const ist_matrix_sequence meeting_large = {true, true}, meeting = {true, false}, large = {false, true},
                                 plain = {false, false};
const ist_sequence_form ist_matrix_sequence_meeting_large = FORM(&meeting_large);
const ist_sequence_form ist_matrix_sequence_meeting = FORM(&meeting);
const ist_sequence_form ist_matrix_sequence_large = FORM(&large);
const ist_sequence_form ist_matrix_sequence_plain = FORM(&plain);

const ist_family ist_nvidia_sequence = {.takes = ist_tape_takes, .emit = ist_span_emit_sequence, .by_nodes = true};
