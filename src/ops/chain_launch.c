/* A piece of a chain as a launch: tapes whose steps do each other's stores and wait where they must, arguments, grid.
 */
#include "ops/chain_piece.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Whether the step writes any of the channels. */
static bool writes(const int *w, int at, int count) {
    switch (w[0] % GROUP_WAITS) {
    case STORE_ROWS:
        return false;
    case MATRIX_LINEAR:
        return ist_piece_overlap(at, count, w[3], w[4]);
    case ELTWISE:
    case MATRIX_NORM:
        return ist_piece_overlap(at, count, w[1], w[2]) ||
               (w[5] & ALSO && ist_piece_overlap(at, count, w[12] >> 8 & 0xfff, w[2]));
    case SAMPLE_AT:
        return ist_piece_overlap(at, count, w[4], 9 * w[6] * w[7]);
    case SAMPLE_SUM:
        return ist_piece_overlap(at, count, w[1], w[7] * w[9]);
    case MATRIX_SIDES:
        return ist_piece_overlap(at, count, w[1], 4) || ist_piece_overlap(at, count, w[2], 4 * BINS);
    case SIDES_BEST:
        return ist_piece_overlap(at, count, w[1], 20);
    default: /* LOAD_ROWS, BOX_SIGMOID */
        return ist_piece_overlap(at, count, w[1], w[2]);
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

/* The words of both tapes, one after the other; what lower_all left is the last side's. */
typedef struct tapes {
    int *words;
    size_t counts[SIDES_MOST], count;
} tapes;

static void launch(piece *p, const tapes *all, ist_tensor weights, ist_tensor table, int pieces, int turns) {
    const struct ist_chain *chain = p->chain;
    bool matrix = chain->matrix;
    ist_tensor tape = ist_plan_const_bytes(p->plan, all->words, all->count * WORDS * sizeof *all->words, p->label);
    ist_defines defines = !matrix ? ist_defines_of(p->plan, "-DSLOTS=%d", IST_CHAIN_SLOTS)
                          : p->sides > 1
                              ? ist_defines_of(p->plan, "-DSLOTS=%d -DTHREADS=%d -DDATA=%d -DSPLIT=%d -DMAIL=%d",
                                               MATRIX_SLOTS, ITEMS, ist_piece_local_data(p), p->sides, MAIL)
                              : ist_defines_of(p->plan, "-DSLOTS=%d -DTHREADS=%d -DDATA=%d", MATRIX_SLOTS, ITEMS,
                                               ist_piece_local_data(p));
    size_t groups = (size_t)ist_div_up(chain->rows, matrix ? MATRIX_ROWS : ROWS);
    ist_tensor mails = {0};
    if (p->sides > 1)
        mails = ist_plan_persistent(p->plan, chain->n, (int)groups, MATRIX_ROWS * p->sides, MAIL, IST_ELEM_I32);
    groups *= (size_t)p->sides;
    int units = ist_plan_units(p->plan);
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
                    .arg_count = 5 + IST_CHAIN_OUTSIDE + (matrix ? 1 : 0),
                    .flops = p->flops};
    for (int i = 0; i < IST_CHAIN_OUTSIDE; i++)
        l.args[4 + i] = i < p->outside_count ? p->outside[i] : (ist_arg)IST_IN((ist_tensor){0});
    if (matrix)
        l.args[4 + IST_CHAIN_OUTSIDE] = p->sides > 1 ? (ist_arg)IST_INOUT(mails) : (ist_arg)IST_IN((ist_tensor){0});
    int steps = (int)(all->counts[0] | all->counts[1] << 16);
    l.args[l.arg_count - 1] = (ist_arg)IST_INT4(chain->rows, steps, pieces, turns);
    ist_plan_launch(p->plan, &l);
}

/* Keeps this side's tape. */
static void keep(piece *p, tapes *all) {
    int *words = ist_plan_status(p->plan) ? NULL : realloc(all->words, (all->count + p->count) * WORDS * sizeof *words);
    if (!words) {
        ist_plan_fail(p->plan, IST_E_MEMORY, "%s: out of host memory for a chain of operators", p->label);
        return;
    }
    all->words = words;
    memcpy(words + WORDS * all->count, p->words, p->count * WORDS * sizeof *words);
    all->counts[p->side] = p->count;
    all->count += p->count;
}

/* Lowers the piece for groups that have their rows alone, or for two with the same ones; false: no room for that. */
static bool tapes_of(piece *p, bool eager, tapes *all, int *turns) {
    all->count = all->counts[1] = 0;
    for (p->side = 0; p->side < p->sides; p->side++) {
        ist_piece_lower(p, eager);
        if (p->full || p->mail > MAIL) return false;
        if (p->chain->matrix) join_stores(p);
        *turns = p->chain->matrix ? mark_waits(p) : 0;
        keep(p, all);
    }
    return true;
}

/* Groups with the same rows need that both run at once. */
static bool may_meet(const piece *p) {
    size_t groups = p->chain->n * (size_t)ist_div_up(p->chain->rows, MATRIX_ROWS) * SIDES_MOST;
    int units = ist_plan_units(p->plan);
    return p->chain->matrix && ist_plan_caps(p->plan) & IST_CAP_PTX_MEET && groups <= (size_t)units;
}

void ist_chain_launch(ist_plan *plan, struct ist_chain *chain, size_t first, size_t end, ist_tensor weights,
                      ist_tensor table, const char *label) {
    piece *p = calloc(1, sizeof *p);
    way *ways = calloc(end - first, sizeof *ways);
    tapes all = {0};
    int turns = 0;
    if (!p || !ways) {
        ist_plan_fail(plan, IST_E_MEMORY, "%s: out of host memory for a chain of operators", label);
        free(p);
        free(ways);
        return;
    }
    *p = (piece){.plan = plan, .chain = chain, .first = first, .end = end, .label = label, .sides = SIDES_MOST};
    p->ways = ways;
    size_t pieces = 0;
    bool done = may_meet(p) && ist_piece_divide(p) >= MEETS_LEAST && tapes_of(p, true, &all, &turns);
    if (!done) p->sides = 1;
    done = done || (chain->matrix && tapes_of(p, true, &all, &turns));
    if (!done) tapes_of(p, false, &all, &turns);
    if (chain->matrix && !ist_plan_status(plan)) weights = ist_piece_streams(p, &pieces);
    if (chain->matrix && !ist_plan_status(plan)) table = ist_piece_table(p);
    if (!ist_plan_status(plan)) launch(p, &all, weights, table, (int)pieces, turns);
    for (int w = 0; w < STREAMS; w++) free(p->stream[w]);
    free(p->ways);
    free(p->words);
    free(p->data);
    free(all.words);
    free(p);
}
