/* Sequences on CPUs: where each tensor is, in a group's scratch or outside, and the tape of steps that the kernel runs
 * (cl/cpu/sequence.cl). */
#include "variants/cpu/sequence.h"
#include "variants/cpu/sequence_args.h"
#include "variants/cpu/sequence_tape.h"
#include "variants/cpu/amx.h"
#include "variants/defines.h"
#include "variants/sequence_steps.h"
#include "variants/span.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Tiles of six rows that a group takes at a time: few enough for its second-level cache, many enough that the weights,
 * which are read once for them, are not what it waits for. */
enum { TILE = 6, TILES_MAX = 13, PIECES_PER_UNIT = 2, VEC = 16, CHANNELS_MAX = 1024, POINTS_MAX = 64, LINES_MIN = 20 };
/* With AMX: rows that a group takes at a time, floats of 32 rows by 32 inputs in parts, and of those at a time. */
enum { LINES_PER_UNIT = 16 /* of a depthwise convolution's result */ };
enum { ROWS_MAX = 208, SQUARE = IST_AMX_PARTS * IST_AMX_BLOCK * IST_AMX_DEPTH / 2, SQUARES_MAX = 112 };

/* Channels [lo, hi) of a buffer: in scratch at column `at` while steps first to last run, or a kernel argument. */
typedef struct home {
    int buffer, lo, hi, at, columns, ld;
    size_t first, last;
    bool made, outside;
    bool ring; /* four lines of a map instead of two, kept from line to line */
} home;

/* The configuration of a form. */
typedef struct config {
    int panel;  /* columns of a panel of weights */
    bool parts; /* AMX: large linear layers in three parts of bfloat16 */
} config;

static const config *config_of(const struct ist_sequence *s) {
    return s->form->config;
}

typedef struct piece {
    ist_plan *plan;
    const struct ist_sequence *sequence;
    size_t first, end;
    const char *label;
    home homes[IST_SEQUENCE_BUFFERS];
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
    if (!h && p->home_count == IST_SEQUENCE_BUFFERS) {
        ist_plan_fail(p->plan, IST_E_LIMIT, "%s: a piece of a sequence has more than %d tensors", p->label,
                      IST_SEQUENCE_BUFFERS);
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
        const ist_step *s = &p->sequence->steps[i];
        for (int k = 0; k < 3; k++) meet(p, s->rows[k], i, false);
        for (int k = 0; k < 2; k++) meet(p, s->whole[k], i, false);
        for (int k = 0; k < 2; k++) meet(p, s->out[k], i, true);
    }
    const ist_step *last = &p->sequence->steps[p->end - 1];
    for (int i = 0; i < p->home_count; i++) {
        home *h = &p->homes[i];
        h->ring = last->op == IST_STEP_DEPTHWISE && last->rows[0].buffer == h->buffer;
        if (h->ring) h->first = p->first, h->last = p->end;
        h->outside = !h->made || ist_sequence_shares(p->plan, p->sequence, p->first, p->end, h->buffer);
        if (!h->outside) place(p, h);
    }
}

static int outside(piece *p, ist_tensor t, ist_arg_kind use) {
    return ist_sequence_argument(p->plan, p->label, p->outside, &p->outside_count, OUTSIDE, t, use);
}

/* The three numbers of a place. */
static void refer(piece *p, int *to, ist_tensor t, ist_arg_kind use) {
    const home *h = ist_has(t) ? home_of(p, t.buffer) : NULL;
    if (!h) {
        to[0] = -1;
    } else if (h->outside) {
        to[0] = (1 + outside(p, t, use)) | (t.n == 1 && p->sequence->n > 1 ? ONE_ITEM : 0);
        to[1] = t.c0;
        to[2] = t.ld;
    } else {
        to[0] = h->ring ? RING : 0;
        to[1] = h->at * p->chunk + t.c0 - h->lo;
        to[2] = h->ld;
    }
}

/* ---- steps ---- */

static void numbers_of_deform(piece *p, const ist_step *s, int *w) {
    ist_tensor memory = s->whole[0];
    int heads = s->ints[0], points = s->ints[1], d = memory.c / heads;
    if (d % VEC || points > POINTS_MAX)
        ist_plan_fail(p->plan, IST_E_ARGUMENT, "%s: heads of %d channels with %d points, in a sequence on a CPU", p->label,
                      d, points);
    memcpy(w + NUMBERS, (int[]){(int)s->data_at[0], heads, points, d, memory.h * memory.w}, 5 * sizeof *w);
}

static void numbers_of_norm(piece *p, const ist_step *s, int *w) {
    int c = s->out[0].c;
    if (c % VEC || c > CHANNELS_MAX)
        ist_plan_fail(p->plan, IST_E_ARGUMENT, "%s: normalisation of %d channels, in a sequence on a CPU", p->label, c);
    w[2] = s->op == IST_STEP_NORM ? s->ints[0] : IST_ACT_NONE;
    memcpy(w + NUMBERS,
           (int[]){(int)s->data_at[0], (int)s->data_at[1], bits_of(s->floats[0]),
                   s->op == IST_STEP_NORM && s->floats[1] > 0 ? bits_of(s->floats[1]) : 0},
           4 * sizeof *w);
}

static void numbers_of_sum(const ist_step *s, int *w) {
    bool two = ist_has(s->rows[1]);
    w[2] = (two ? PRESENT : 0) | (two && s->rows[1].c == 1 && s->out[0].c > 1 ? ONE_COLUMN : 0) |
           (s->ints[0] ? CLAMPED : 0);
    w[NUMBERS] = bits_of(s->floats[0]);
    w[NUMBERS + 1] = bits_of(s->floats[1]);
}

/* Tiles of rows that are split at a time: as many as leave the second-level cache room for all else. */
static int tiles_of(piece *p, const ist_step *s) {
    int tiles = ist_div_up(p->chunk, IST_AMX_BLOCK), steps = ist_div_up(s->filter.in, IST_AMX_DEPTH);
    int most = SQUARES_MAX / steps ? SQUARES_MAX / steps : 1, together = ist_div_up(tiles, ist_div_up(tiles, most));
    if (p->squares < together * steps) p->squares = together * steps;
    return together;
}

static void lower(piece *p, const ist_step *s, int *w) {
    ist_tensor second = ist_has(s->out[1]) ? s->out[1] : s->whole[0];
    bool gather = s->op == IST_STEP_GATHER;
    w[0] = (int)s->op;
    w[1] = s->out[0].c;
    refer(p, w + A, s->rows[0], IST_ARG_IN);
    refer(p, w + B, gather ? s->whole[1] : s->rows[1], IST_ARG_IN);
    refer(p, w + C, s->rows[2], IST_ARG_IN);
    refer(p, w + WHOLE, second, ist_has(s->out[1]) ? IST_ARG_OUT : IST_ARG_IN);
    refer(p, w + OUT, s->out[0], IST_ARG_OUT);
    switch (s->op) {
    case IST_STEP_LINEAR:
        w[2] = s->ints[0];
        memcpy(w + NUMBERS,
               (int[]){s->filter.in, (int)s->weights_at, s->has_bias ? (int)s->data_at[0] : -1, bits_of(s->floats[0]),
                       bits_of(s->floats[1])},
               5 * sizeof *w);
        if (s->parts) w[0] = LINEAR_PARTS, w[NUMBERS + 5] = tiles_of(p, s);
        break;
    case IST_STEP_SUM:
        numbers_of_sum(s, w);
        break;
    case IST_STEP_GATE:
    case IST_STEP_NORM:
        numbers_of_norm(p, s, w);
        break;
    case IST_STEP_DEFORM:
        numbers_of_deform(p, s, w);
        break;
    case IST_STEP_GATHER:
        w[NUMBERS] = s->whole[0].h * s->whole[0].w;
        break;
    case IST_STEP_FDR:
        w[NUMBERS] = (int)s->data_at[0];
        w[NUMBERS + 1] = bits_of(s->floats[0]);
        break;
    case IST_STEP_DEPTHWISE:
        w[2] = s->ints[0];
        w[NUMBERS] = (int)s->data_at[0];
        w[NUMBERS + 1] = s->has_bias ? (int)s->data_at[1] : -1;
        break;
    default:
        break;
    }
}

static void cut_rows(piece *p) {
    int tiles = ist_div_up(p->sequence->rows, TILE), want = ist_plan_units(p->plan) * PIECES_PER_UNIT;
    int share = ist_div_up(tiles * p->sequence->n, want);
    p->pieces = ist_div_up(tiles, share < TILES_MAX ? share : TILES_MAX);
    p->chunk = ist_div_up(tiles, p->pieces) * TILE;
    if (config_of(p->sequence)->parts) {
        share = ist_div_up(p->sequence->rows * p->sequence->n, ist_plan_units(p->plan));
        p->pieces = ist_div_up(p->sequence->rows, share < ROWS_MAX ? share : ROWS_MAX);
        p->chunk = (int)ist_round_up((size_t)ist_div_up(p->sequence->rows, p->pieces), TILE);
    }
    if (p->sequence->width) { /* two lines at a time; a band makes the line above it once more */
        int lines = p->sequence->rows / p->sequence->width / 2, units = ist_plan_units(p->plan);
        p->pieces = lines / LINES_MIN / units * units;
        if (p->pieces < units) p->pieces = units;
        p->chunk = 2 * p->sequence->width;
    }
}

static void launch(piece *p, const int *words, double flops, ist_tensor weights, ist_tensor table) {
    ist_plan *plan = p->plan;
    const struct ist_sequence *sequence = p->sequence;
    int steps = (int)(p->end - p->first), units = ist_plan_units(plan);
    int columns = p->chunk * (p->columns ? p->columns : VEC), room = columns + p->squares * SQUARE;
    ist_tensor tape = ist_plan_const_bytes(plan, words, (size_t)steps * WORDS * sizeof *words, p->label);
    ist_tensor scratch = ist_plan_tensor(plan, 1, 1, units, room, IST_ELEM_F32);
    ist_defines defines = ist_defines_of(plan, "-DPANEL=%d", config_of(sequence)->panel);
    if (config_of(sequence)->parts) ist_defines_add(&defines, " -DPARTS=%d -DASM=%d", IST_AMX_PARTS, ist_amx_instructions(plan));
    ist_launch l = {.label = p->label,
                    .op = "cpu/sequence",
                    .isa = config_of(sequence)->parts ? "codes/step+codes/sequence_cpu+portable/distribution+cpu/tile+cpu/amx"
                                                           : "codes/step+codes/sequence_cpu+portable/distribution+cpu/tile",
                    .defines = defines.text,
                    .kernel = "sequence",
                    .dims = 1,
                    .global = {(size_t)units},
                    .local = {1},
                    .args = {IST_OUT(scratch), IST_IN(tape), IST_IN(weights), IST_IN(table),
                             IST_IN(ist_plan_current_limit(plan)), IST_INOUT(ist_plan_work_queue(plan))},
                    .arg_count = 7 + OUTSIDE,
                    .shares = true,
                    .flops = flops};
    for (int i = 0; i < OUTSIDE; i++) l.args[6 + i] = i < p->outside_count ? p->outside[i] : (ist_arg)IST_IN(table);
    const ist_cpu_sequence_args by_value = {.rows = sequence->rows,
                                            .items = sequence->n,
                                            .steps = steps,
                                            .pieces = p->pieces,
                                            .scratch_floats = room,
                                            .squares_at = columns,
                                            .backwards = ist_plan_work_turn(plan),
                                            .map_width = sequence->width};
    l.args[6 + OUTSIDE] = (ist_arg)IST_STRUCT(cpu_sequence_args, &by_value);
    ist_plan_launch(plan, &l);
}

static void launch_piece(ist_plan *plan, struct ist_sequence *sequence, size_t first, size_t end, ist_tensor weights,
                         ist_tensor table, const char *label) {
    piece *p = calloc(1, sizeof *p);
    int *words = calloc(end - first, WORDS * sizeof *words);
    double flops = 0;
    if (p && words) {
        *p = (piece){.plan = plan, .sequence = sequence, .first = first, .end = end, .label = label};
        cut_rows(p);
        place_all(p);
        for (size_t i = first; i < end && !ist_plan_status(plan); i++) {
            lower(p, &sequence->steps[i], words + (i - first) * WORDS);
            flops += sequence->steps[i].flops;
        }
        if (!ist_plan_status(plan)) launch(p, words, flops, weights, table);
    } else {
        ist_plan_fail(plan, IST_E_MEMORY, "%s: out of host memory for a sequence of operators", label);
    }
    free(words);
    free(p);
}

/* ---- weights ---- */

/* W^T in blocks of outputs, [block][in][outputs of the block]: rounded up to 16, in blocks of a panel's columns, then of
 * half as many, down to 16. */
static bool pack_panels(struct ist_sequence *s, ist_step *step) {
    const ist_filter *f = &step->filter;
    int all = (int)ist_round_up((size_t)f->out, VEC), block = config_of(s)->panel;
    float *to = ist_sequence_weights(s, (size_t)f->in * (size_t)all, &step->weights_at);
    for (int first = 0; to && first < all; first += block) {
        while (first + block > all) block /= 2;
        for (int i = 0; i < f->in; i++)
            for (int o = first; o < first + block; o++)
                *to++ = o < f->out ? f->w[(size_t)o * (size_t)f->in + (size_t)i] : 0;
    }
    return to;
}

static bool pack_parts(struct ist_sequence *s, ist_step *step) {
    float *to = ist_sequence_weights(s, ist_amx_pairs(&step->filter, IST_AMX_PARTS), &step->weights_at);
    if (to) ist_amx_pack(&step->filter, IST_AMX_PARTS, (uint32_t *)to);
    return to;
}

/* Whether a layer takes fewer cycles on the matrix unit: a step of 32 rows, 600 for their products and 18 a row for
 * their parts, and a block's way through memory, against multiplications and additions at 85 % of their peak. */
static bool parts_pay(const ist_filter *f) {
    double steps = ist_div_up(f->in, IST_AMX_DEPTH), blocks = ist_div_up(f->out, IST_AMX_BLOCK);
    double unit = steps * (blocks * 600 / 32 + 18) + 8 * blocks;
    return unit * 1.1 < f->in * (double)ist_round_up((size_t)f->out, VEC) / (32 * 0.85);
}

static bool pack(struct ist_sequence *s, ist_step *step) {
    step->parts = config_of(s)->parts && parts_pay(&step->filter);
    return (step->parts ? pack_parts : pack_panels)(s, step);
}

/* ---- forms ---- */

#define FORM(own) {.vector = VEC, .config = (own), .pack = pack, .launch = launch_piece}
static const config panel_16 = {16, false}, panel_64 = {64, false}, amx = {64, true};
const ist_sequence_form ist_cpu_sequence_16 = FORM(&panel_16);
const ist_sequence_form ist_cpu_sequence_64 = FORM(&panel_64);
const ist_sequence_form ist_cpu_sequence_amx = FORM(&amx);

/* Vectors of sixteen floats; any number of rows, for they are taken a cache's worth at a time. */
static bool takes_rows(const ist_plan *p, const ist_variant *v, const void *span) {
    ist_span_rows r = ist_span_rows_of(span);
    (void)p, (void)v;
    return r.rows > 0 && r.width % VEC == 0 && r.widest % VEC == 0;
}

const ist_family ist_cpu_sequence = {.takes = takes_rows, .emit = ist_span_emit_sequence, .by_nodes = true};

/* With few enough compute units that each has a band of the map worth its upper edge. */
static bool takes_map(const ist_plan *p, const ist_variant *v, const void *span) {
    ist_tensor x = ist_span_map_of(span);
    (void)v;
    return x.c % VEC == 0 && x.h % 2 == 0 && x.w % 2 == 0 && x.h >= 2 * LINES_PER_UNIT * ist_plan_units(p);
}

const ist_family ist_cpu_transition = {.takes = takes_map, .emit = ist_span_emit_map, .by_nodes = true};
