/* Convolution rows that multiply bfloat16 pairs (AVX512_BF16) and sum in float: packs weights as pairs, cuts the work
 * and records the launch of op/conv_bf16. */
#include "ops/bf16.h"
#include "ops/conv_rows.h"
#include "ops/epilogue.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>

enum { VEC = 16, SCRATCH_BYTES = 512 << 10, WEIGHT_BYTES = 1 << 20, MOST_TILES = 256 };

/* ---- what the kernel makes of a problem ---- */

/* maps of `lines` lines of `width` results, whose inputs lie in scratch as pixels of `pairs` and lines of `pitch`. */
typedef struct layout {
    bool linear;
    int maps, lines, width, pitch, pairs, planes;
} layout;

/* How a launch is cut into items: lines and column tiles of one; pairs of scratch that it needs. */
typedef struct shares {
    int lines, cols;
    bool by_columns;
    double pairs, cycles; /* cycles of one core, for all items and what waits for the last of them */
} shares;

static int stride_of(const ist_conv_problem *q) {
    return q->o->stride ? q->o->stride : 1;
}

static int smaller(int a, int b) {
    return a < b ? a : b;
}

static layout layout_of(const ist_conv_problem *q) {
    const ist_conv_opts *o = q->o;
    int s = stride_of(q), kw = q->f.kw;
    layout l = {.maps = q->x.n, .lines = q->oh, .width = q->ow, .pairs = (int)ist_round_up((size_t)q->f.in, VEC) / 2};
    l.linear = q->taps == 1 && s == 1 && !(o->top | o->left | o->bottom | o->right);
    l.planes = smaller(s, q->f.kh) * smaller(s, kw);
    /* Neighbouring lines of stride 1 share their padding. */
    l.pitch = q->ow + (s == 1 ? kw - 1 - smaller(kw - 1, smaller(o->left, o->right)) : (kw - 1) / s);
    if (l.linear) l = (layout){true, 1, q->x.n * q->oh * q->ow, 1, 1, l.pairs, 1};
    return l;
}

static double panel_bytes(const ist_conv_row *r, const ist_conv_problem *q) {
    return 4.0 * q->taps * ((q->f.in + 1) / 2) * r->nv * r->vl;
}

/* Estimates one way of cutting: two products a cycle; loads, rounding and a store per 16 inputs of what windows see;
 * the results' way through memory; weights that do not fit the second-level cache at 16 bytes a cycle. */
static shares shares_of(const ist_plan *p, const ist_conv_row *r, const ist_conv_problem *q, const layout *l, int lines,
                        int cols, bool by_columns) {
    int s = stride_of(q), all_cols = ist_div_up(q->f.out, r->nv * r->vl), chunks = ist_div_up(all_cols, cols);
    double seen = l->linear ? lines : (double)l->planes * ((lines + (q->f.kh - 1) / s) * l->pitch + q->f.kw - 1);
    double items = (double)l->maps * l->lines / lines * chunks, tiles = (double)lines * l->width;
    if (!l->linear) tiles = (double)(lines - 1) * l->pitch + l->width;
    tiles = (int)((tiles + r->mr - 1) / r->mr) * (double)all_cols / chunks;
    double tile = q->taps * (8 + (q->f.in + 1) / 2 * r->mr * r->nv / 2.0) + 8 * r->mr * r->nv + 20;
    double item = tile * tiles / r->speed, weights = panel_bytes(r, q) * all_cols;
    double each = by_columns || chunks == 1 ? 1 : 1.0 / chunks; /* items of the same lines round them once */
    item += each * seen * (l->pairs / 8 * 4 + 6) + 200;
    if (weights > WEIGHT_BYTES && !by_columns) item += weights / chunks / 16;
    shares c = {lines, cols, by_columns, seen * l->pairs + (double)r->mr * l->pairs, 0};
    c.cycles = item * (items + ist_conv_units(p) / 2.0) + (weights > WEIGHT_BYTES && by_columns ? weights / 16 : 0);
    return c;
}

/* The cheapest way among those whose lines leave room for weights in the second-level cache. */
static shares cut(const ist_plan *p, const ist_conv_row *r, const ist_conv_problem *q) {
    layout l = layout_of(q);
    int all_cols = ist_div_up(q->f.out, r->nv * r->vl), step = l.linear ? r->mr : 1;
    shares best = {0};
    for (int lines = step; lines < l.lines + step && lines <= step * MOST_TILES; lines += step) {
        bool room = true;
        for (int cols = all_cols;; cols = (cols + 1) / 2) {
            for (int by_columns = 0; by_columns < (cols < all_cols ? 2 : 1); by_columns++) {
                shares c = shares_of(p, r, q, &l, smaller(lines, l.lines), cols, by_columns);
                room = c.pairs * 4 <= SCRATCH_BYTES;
                if (!best.lines || (room && c.cycles < best.cycles)) best = c;
            }
            if (cols == 1) break;
        }
        if (!room) break;
    }
    return best;
}

bool ist_conv_bf16_takes(const ist_plan *p, const ist_conv_problem *q) {
    return ist_plan_bf16(p) && !ist_plan_half(p) && q->kind == IST_CONV_DENSE;
}

double ist_conv_bf16_cost(const ist_plan *p, const ist_conv_row *r, const ist_conv_problem *q) {
    return cut(p, r, q).cycles;
}

/* ---- weights ---- */

/* [column tile][tap][pair][nr], the pair's first input in the lower half; zeros beyond the last channel and input. */
static void pack_pairs(const ist_conv_problem *q, int nr, uint32_t *dst) {
    for (int col = 0; col < q->f.out; col += nr)
        for (int t = 0; t < q->taps; t++)
            for (int i = 0; i < q->f.in; i += 2)
                for (int o = col; o < col + nr; o++) {
                    bool there = o < q->f.out;
                    uint32_t a = there ? ist_bf16_of(ist_conv_weight(q, 0, o, i, t)) : 0;
                    uint32_t b = there && i + 1 < q->f.in ? ist_bf16_of(ist_conv_weight(q, 0, o, i + 1, t)) : 0;
                    *dst++ = a | b << 16;
                }
}

static bool pack(ist_plan *p, const ist_conv_problem *q, int nr, ist_tensor *weights, ist_tensor *bias) {
    size_t width = (size_t)ist_div_up(q->f.out, nr) * (size_t)nr, size = width;
    if (!ist_mul_size(size, (size_t)q->taps, &size) || !ist_mul_size(size, ((size_t)q->f.in + 1) / 2, &size) ||
        size > SIZE_MAX / sizeof(uint32_t)) {
        ist_plan_fail(p, IST_E_LIMIT, "%s: filter [%d,%d,%d,%d] is too large", q->label, q->f.out, q->f.in, q->f.kh,
                      q->f.kw);
        return false;
    }
    uint32_t *pairs = malloc(size * sizeof *pairs);
    float *b = calloc(width, sizeof *b);
    if (pairs && b) {
        pack_pairs(q, nr, pairs);
        for (int o = 0; o < q->f.out && q->f.b; o++) b[o] = q->f.b[o];
        *weights = ist_plan_const_bytes(p, pairs, size * sizeof *pairs, q->label);
        *bias = ist_plan_const_bytes(p, b, width * sizeof *b, q->label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, 2 * size);
    }
    free(pairs);
    free(b);
    return !ist_plan_status(p);
}

/* ---- launch ---- */

void ist_conv_bf16(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *r) {
    const ist_conv_opts *o = q->o;
    layout l = layout_of(q);
    shares c = cut(p, r, q);
    int units = ist_conv_units(p);
    ist_tensor weights = {0}, bias = {0};
    if (c.pairs > INT_MAX / units) {
        ist_plan_fail(p, IST_E_LIMIT, "%s: one line of results sees %.0f inputs", q->label, 2 * c.pairs);
        return;
    }
    if (!pack(p, q, r->nv * r->vl, &weights, &bias)) return;
    int scratch = (int)ist_round_up((size_t)c.pairs, VEC),
        order = (c.by_columns ? 1 : 0) | (ist_plan_work_turn(p) ? 2 : 0);
    bool instructions = ist_device_probed(ist_plan_device(p)) & IST_CAP_X86_BF16;
    ist_defines defines = ist_defines_of(p, "-DMR=%d -DNV=%d -DVL=%d -DASM=%d", r->mr, r->nv, r->vl, instructions);
    ist_launch launch = {
        .label = q->label,
        .op = r->op,
        .isa = "isa/vector+isa/bf16",
        .defines = defines.text,
        .kernel = "conv",
        .dims = 1,
        .global = {(size_t)units},
        .local = {1},
        .args = {IST_IN(q->x), IST_IN(weights), IST_IN(bias),
                 IST_OUT(ist_plan_tensor(p, 1, 1, units, scratch, IST_ELEM_F32)), IST_OUT(q->y),
                 IST_IN(o->epi.add_before), IST_IN(o->epi.add_after), IST_IN(ist_plan_current_limit(p)),
                 IST_INT8(q->x.h, q->x.w, q->x.ld, q->x.c0, q->x.c, l.pairs, 0, 0),
                 IST_INT8(q->f.kh, q->f.kw, stride_of(q), o->top, o->left, l.linear, 0, 0),
                 IST_INT8(q->y.n, q->oh, q->ow, q->y.ld, q->y.c0, q->y.c, l.pitch, 0), ist_epilogue_ints(&o->epi, q->y),
                 ist_epilogue_lab(&o->epi), IST_INT4(c.lines, c.cols, order, scratch),
                 IST_INOUT(ist_plan_work_queue(p))},
        .arg_count = 15,
        .flops = 2.0 * q->x.n * q->oh * q->ow * q->taps * q->f.in * q->f.out,
        .bytes = ist_conv_bytes(p, q, 2),
    };
    ist_plan_launch(p, &launch);
}
