/* One piece of a chain as a launch on CPUs: where each tensor is, in a group's scratch or outside, and the tape of
 * steps that the kernel runs (cl/op/chain_cpu.cl, which says what each number means). */
#include "ops/amx.h"
#include "ops/chain_internal.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* The numbers of cl/op/chain_cpu.cl. */
enum { WORDS = 32, OUT = 4, A = 7, B = 10, C = 13, WHOLE = 16, NUMBERS = 20, OUTSIDE = 20, ONE_ITEM = 256, RING = 512 };
enum { LINEAR_PARTS = 12 };
enum { PRESENT = 1, ONE_COLUMN = 2, CLAMPED = 8 };
/* Tiles of six rows that a group takes at a time: few enough for its second-level cache, many enough that the weights,
 * which are read once for them, are not what it waits for. */
enum { TILE = 6, TILES_MAX = 13, PIECES_PER_UNIT = 2, VEC = 16, CHANNELS_MAX = 1024, POINTS_MAX = 64, LINES_MIN = 20 };
/* With AMX: rows that a group takes at a time, floats of 32 rows by 32 inputs in parts, and of those at a time. */
enum { ROWS_MAX = 208, SQUARE = IST_AMX_PARTS * IST_AMX_BLOCK * IST_AMX_DEPTH / 2, SQUARES_MAX = 112 };

/* Channels [lo, hi) of a buffer: in scratch at column `at` while steps first to last run, or a kernel argument. */
typedef struct home {
    int buffer, lo, hi, at, columns, ld;
    size_t first, last;
    bool made, outside;
    bool ring; /* four lines of a map instead of two, kept from line to line */
} home;

typedef struct piece {
    ist_plan *plan;
    const struct ist_chain *chain;
    size_t first, end;
    const char *label;
    home homes[IST_CHAIN_BUFFERS];
    int home_count, columns;
    int pieces, chunk; /* of the rows of an item, the rows of the largest */
    int squares;       /* room for rows in parts */
    ist_arg outside[OUTSIDE];
    int outside_count;
} piece;

static int bits_of(float f) {
    int i;
    memcpy(&i, &f, sizeof i);
    return i;
}

/* ---- where tensors are ---- */

static home *home_of(piece *p, int buffer) {
    for (int i = 0; i < p->home_count; i++)
        if (p->homes[i].buffer == buffer) return &p->homes[i];
    return NULL;
}

static void meet(piece *p, ist_tensor t, size_t step, bool made) {
    if (!ist_has(t)) return;
    home *h = home_of(p, t.buffer);
    if (!h && p->home_count == IST_CHAIN_BUFFERS) {
        ist_plan_fail(p->plan, IST_E_LIMIT, "%s: a piece of a chain has more than %d tensors", p->label,
                      IST_CHAIN_BUFFERS);
        return;
    }
    if (!h) {
        h = &p->homes[p->home_count++];
        *h = (home){.buffer = t.buffer, .lo = t.c0, .hi = t.c0 + t.c, .first = step};
    }
    if (t.c0 < h->lo) h->lo = t.c0;
    if (t.c0 + t.c > h->hi) h->hi = t.c0 + t.c;
    h->last = step;
    h->made = h->made || made;
}

/* The lowest columns free while h is alive, among the homes before it. Rows lie a vector apart from a power of two. */
static void place(piece *p, home *h) {
    h->ld = (int)ist_round_up((size_t)(h->hi - h->lo), VEC) + VEC;
    h->columns = h->ring ? 2 * h->ld : h->ld;
    for (bool moved = true; moved;) {
        moved = false;
        for (const home *o = p->homes; o < h; o++) {
            bool together = !o->outside && o->first <= h->last && h->first <= o->last;
            if (!together || h->at + h->columns <= o->at || h->at >= o->at + o->columns) continue;
            h->at = o->at + o->columns;
            moved = true;
        }
    }
    if (h->at + h->columns > p->columns) p->columns = h->at + h->columns;
}

static void place_all(piece *p) {
    for (size_t i = p->first; i < p->end; i++) {
        const ist_chain_step *s = &p->chain->steps[i];
        for (int k = 0; k < 3; k++) meet(p, s->rows[k], i, false);
        for (int k = 0; k < 2; k++) meet(p, s->whole[k], i, false);
        for (int k = 0; k < 2; k++) meet(p, s->out[k], i, true);
    }
    const ist_chain_step *last = &p->chain->steps[p->end - 1];
    for (int i = 0; i < p->home_count; i++) {
        home *h = &p->homes[i];
        h->ring = last->op == IST_CHAIN_DEPTHWISE && last->rows[0].buffer == h->buffer;
        if (h->ring) h->first = p->first, h->last = p->end;
        h->outside = !h->made || ist_chain_shares(p->plan, p->chain, p->first, p->end, h->buffer);
        if (!h->outside) place(p, h);
    }
}

static int outside(piece *p, ist_tensor t, ist_arg_kind use) {
    return ist_chain_argument(p->plan, p->label, p->outside, &p->outside_count, OUTSIDE, t, use);
}

/* The three numbers of a place. */
static void refer(piece *p, int *to, ist_tensor t, ist_arg_kind use) {
    const home *h = ist_has(t) ? home_of(p, t.buffer) : NULL;
    if (!h) {
        to[0] = -1;
    } else if (h->outside) {
        to[0] = (1 + outside(p, t, use)) | (t.n == 1 && p->chain->n > 1 ? ONE_ITEM : 0);
        to[1] = t.c0;
        to[2] = t.ld;
    } else {
        to[0] = h->ring ? RING : 0;
        to[1] = h->at * p->chunk + t.c0 - h->lo;
        to[2] = h->ld;
    }
}

/* ---- steps ---- */

static void numbers_of_deform(piece *p, const ist_chain_step *s, int *w) {
    ist_tensor memory = s->whole[0];
    int heads = s->ints[0], points = s->ints[1], d = memory.c / heads;
    if (d % VEC || points > POINTS_MAX)
        ist_plan_fail(p->plan, IST_E_ARGUMENT, "%s: heads of %d channels with %d points, in a chain on a CPU", p->label,
                      d, points);
    memcpy(w + NUMBERS, (int[]){(int)s->data_at[0], heads, points, d, memory.h * memory.w}, 5 * sizeof *w);
}

static void numbers_of_norm(piece *p, const ist_chain_step *s, int *w) {
    int c = s->out[0].c;
    if (c % VEC || c > CHANNELS_MAX)
        ist_plan_fail(p->plan, IST_E_ARGUMENT, "%s: normalisation of %d channels, in a chain on a CPU", p->label, c);
    w[2] = s->op == IST_CHAIN_NORM ? s->ints[0] : IST_ACT_NONE;
    memcpy(w + NUMBERS,
           (int[]){(int)s->data_at[0], (int)s->data_at[1], bits_of(s->floats[0]),
                   s->op == IST_CHAIN_NORM && s->floats[1] > 0 ? bits_of(s->floats[1]) : 0},
           4 * sizeof *w);
}

static void numbers_of_sum(const ist_chain_step *s, int *w) {
    bool two = ist_has(s->rows[1]);
    w[2] = (two ? PRESENT : 0) | (two && s->rows[1].c == 1 && s->out[0].c > 1 ? ONE_COLUMN : 0) |
           (s->ints[0] ? CLAMPED : 0);
    w[NUMBERS] = bits_of(s->floats[0]);
    w[NUMBERS + 1] = bits_of(s->floats[1]);
}

/* Tiles of rows that are split at a time: as many as leave the second-level cache room for all else. */
static int tiles_of(piece *p, const ist_chain_step *s) {
    int tiles = ist_div_up(p->chunk, IST_AMX_BLOCK), steps = ist_div_up(s->filter.in, IST_AMX_DEPTH);
    int most = SQUARES_MAX / steps ? SQUARES_MAX / steps : 1, together = ist_div_up(tiles, ist_div_up(tiles, most));
    if (p->squares < together * steps) p->squares = together * steps;
    return together;
}

static void lower(piece *p, const ist_chain_step *s, int *w) {
    ist_tensor second = ist_has(s->out[1]) ? s->out[1] : s->whole[0];
    bool gather = s->op == IST_CHAIN_GATHER;
    w[0] = (int)s->op;
    w[1] = s->out[0].c;
    refer(p, w + A, s->rows[0], IST_ARG_IN);
    refer(p, w + B, gather ? s->whole[1] : s->rows[1], IST_ARG_IN);
    refer(p, w + C, s->rows[2], IST_ARG_IN);
    refer(p, w + WHOLE, second, ist_has(s->out[1]) ? IST_ARG_OUT : IST_ARG_IN);
    refer(p, w + OUT, s->out[0], IST_ARG_OUT);
    switch (s->op) {
    case IST_CHAIN_LINEAR:
        w[2] = s->ints[0];
        memcpy(w + NUMBERS,
               (int[]){s->filter.in, (int)s->weights_at, s->has_bias ? (int)s->data_at[0] : -1, bits_of(s->floats[0]),
                       bits_of(s->floats[1])},
               5 * sizeof *w);
        if (s->parts) w[0] = LINEAR_PARTS, w[NUMBERS + 5] = tiles_of(p, s);
        break;
    case IST_CHAIN_SUM:
        numbers_of_sum(s, w);
        break;
    case IST_CHAIN_GATE:
    case IST_CHAIN_NORM:
        numbers_of_norm(p, s, w);
        break;
    case IST_CHAIN_DEFORM:
        numbers_of_deform(p, s, w);
        break;
    case IST_CHAIN_GATHER:
        w[NUMBERS] = s->whole[0].h * s->whole[0].w;
        break;
    case IST_CHAIN_FDR:
        w[NUMBERS] = (int)s->data_at[0];
        w[NUMBERS + 1] = bits_of(s->floats[0]);
        break;
    case IST_CHAIN_DEPTHWISE:
        w[2] = s->ints[0];
        w[NUMBERS] = (int)s->data_at[0];
        w[NUMBERS + 1] = s->has_bias ? (int)s->data_at[1] : -1;
        break;
    default:
        break;
    }
}

static void cut_rows(piece *p) {
    int tiles = ist_div_up(p->chain->rows, TILE), want = ist_plan_units(p->plan) * PIECES_PER_UNIT;
    int share = ist_div_up(tiles * p->chain->n, want);
    p->pieces = ist_div_up(tiles, share < TILES_MAX ? share : TILES_MAX);
    p->chunk = ist_div_up(tiles, p->pieces) * TILE;
    if (p->chain->parts) {
        share = ist_div_up(p->chain->rows * p->chain->n, ist_plan_units(p->plan));
        p->pieces = ist_div_up(p->chain->rows, share < ROWS_MAX ? share : ROWS_MAX);
        p->chunk = (int)ist_round_up((size_t)ist_div_up(p->chain->rows, p->pieces), TILE);
    }
    if (p->chain->width) { /* two lines at a time; a band makes the line above it once more */
        int lines = p->chain->rows / p->chain->width / 2, units = ist_plan_units(p->plan);
        p->pieces = lines / LINES_MIN / units * units;
        if (p->pieces < units) p->pieces = units;
        p->chunk = 2 * p->chain->width;
    }
}

static void launch(piece *p, const int *words, double flops, ist_tensor weights, ist_tensor table) {
    ist_plan *plan = p->plan;
    const struct ist_chain *chain = p->chain;
    int steps = (int)(p->end - p->first), units = ist_plan_units(plan);
    int columns = p->chunk * (p->columns ? p->columns : VEC), room = columns + p->squares * SQUARE;
    ist_tensor tape = ist_plan_const_bytes(plan, words, (size_t)steps * WORDS * sizeof *words, p->label);
    ist_tensor scratch = ist_plan_tensor(plan, 1, 1, units, room, IST_ELEM_F32);
    ist_defines defines = ist_defines_of(plan, "-DPANEL=%d", ist_panel_columns(plan));
    if (chain->parts) ist_defines_add(&defines, " -DPARTS=%d -DASM=%d", IST_AMX_PARTS, ist_amx_instructions(plan));
    ist_launch l = {.label = p->label,
                    .op = "op/chain_cpu",
                    .isa = chain->parts ? "isa/tile+isa/amx" : "isa/tile",
                    .defines = defines.text,
                    .kernel = "chain",
                    .dims = 1,
                    .global = {(size_t)units},
                    .local = {1},
                    .args = {IST_OUT(scratch), IST_IN(tape), IST_IN(weights), IST_IN(table),
                             IST_IN(ist_plan_current_limit(plan)), IST_INOUT(ist_plan_work_queue(plan))},
                    .arg_count = 8 + OUTSIDE,
                    .shares = true,
                    .flops = flops};
    for (int i = 0; i < OUTSIDE; i++) l.args[6 + i] = i < p->outside_count ? p->outside[i] : (ist_arg)IST_IN(table);
    l.args[6 + OUTSIDE] = (ist_arg)IST_INT4(chain->rows, steps, p->pieces, chain->n);
    l.args[7 + OUTSIDE] = (ist_arg)IST_INT4(room, ist_plan_work_turn(plan), chain->width, columns);
    ist_plan_launch(plan, &l);
}

void ist_chain_launch_cpu(ist_plan *plan, const struct ist_chain *chain, size_t first, size_t end, ist_tensor weights,
                          ist_tensor table, const char *label) {
    piece *p = calloc(1, sizeof *p);
    int *words = calloc(end - first, WORDS * sizeof *words);
    double flops = 0;
    if (p && words) {
        *p = (piece){.plan = plan, .chain = chain, .first = first, .end = end, .label = label};
        cut_rows(p);
        place_all(p);
        for (size_t i = first; i < end && !ist_plan_status(plan); i++) {
            lower(p, &chain->steps[i], words + (i - first) * WORDS);
            flops += chain->steps[i].flops;
        }
        if (!ist_plan_status(plan)) launch(p, words, flops, weights, table);
    } else {
        ist_plan_fail(plan, IST_E_MEMORY, "%s: out of host memory for a chain of operators", label);
    }
    free(words);
    free(p);
}
