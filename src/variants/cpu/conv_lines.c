/* What cpu/conv_bf16 and cpu/conv_amx share on the host: see conv_lines.h. */
#include "variants/cpu/conv_lines.h"
#include "variants/cpu/conv_args.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <limits.h>
#include <stdlib.h>

enum { VEC = 16, WEIGHT_BYTES = 1 << 20, MOST_TILES = 256 };

static int stride_of(const ist_conv_problem *q) {
    return q->o->stride ? q->o->stride : 1;
}

static int smaller(int a, int b) {
    return a < b ? a : b;
}

ist_conv_lines ist_conv_lines_of(const ist_conv_problem *q) {
    const ist_conv_opts *o = q->o;
    int s = stride_of(q), kw = q->f.kw;
    if (q->taps == 1 && s == 1 && !(o->top | o->left | o->bottom | o->right))
        return (ist_conv_lines){true, 1, q->x.n * q->oh * q->ow, 1, 1, 1};
    ist_conv_lines l = {.maps = q->x.n, .lines = q->oh, .width = q->ow};
    l.planes = smaller(s, q->f.kh) * smaller(s, kw);
    /* Neighbouring lines of stride 1 share their padding. */
    l.pitch = q->ow + (s == 1 ? kw - 1 - smaller(kw - 1, smaller(o->left, o->right)) : (kw - 1) / s);
    return l;
}

/* ---- how work is cut ---- */

/* Estimates one way of cutting: tiles; what windows see is laid out; weights that do not fit the second-level cache
 * come at 16 bytes a cycle. */
static ist_conv_shares shares_of(const ist_plan *p, const ist_conv_tile *r, const ist_conv_problem *q,
                                 const ist_conv_tiling *t, const ist_conv_lines *l, int lines, int cols,
                                 bool by_columns) {
    int s = stride_of(q), all_cols = ist_div_up(q->f.out, r->nv * r->vl), chunks = ist_div_up(all_cols, cols);
    double seen = l->linear ? lines : (double)l->planes * ((lines + (q->f.kh - 1) / s) * l->pitch + q->f.kw - 1);
    double items = (double)l->maps * l->lines / lines * chunks, tiles = (double)lines * l->width;
    if (!l->linear) tiles = (double)(lines - 1) * l->pitch + l->width;
    tiles = (int)((tiles + r->mr - 1) / r->mr) * (double)all_cols / chunks;
    double each = by_columns || chunks == 1 ? 1 : 1.0 / chunks; /* items of the same lines lay them out once */
    double item = t->tile * tiles / r->speed + each * seen * t->pixel + 200;
    bool large = t->weight_bytes > WEIGHT_BYTES;
    if (large && !by_columns) item += t->weight_bytes / chunks / 16;
    ist_conv_shares c = {.lines = lines, .cols = cols, .by_columns = by_columns, .pixels = seen + t->margin};
    c.cycles = item * (items + ist_plan_units(p) / 2.0) + (large && by_columns ? t->weight_bytes / 16 : 0);
    return c;
}

ist_conv_shares ist_conv_lines_cut(const ist_plan *p, const ist_conv_tile *r, const ist_conv_problem *q,
                                   const ist_conv_tiling *t) {
    ist_conv_lines l = ist_conv_lines_of(q);
    int all_cols = ist_div_up(q->f.out, r->nv * r->vl), step = l.linear ? r->mr : 1;
    ist_conv_shares best = {0};
    for (int lines = step; lines < l.lines + step && lines <= step * MOST_TILES; lines += step) {
        bool room = true;
        for (int cols = all_cols;; cols = (cols + 1) / 2) {
            for (int by_columns = 0; by_columns < (cols < all_cols ? 2 : 1); by_columns++) {
                ist_conv_shares c = shares_of(p, r, q, t, &l, smaller(lines, l.lines), cols, by_columns);
                room = c.pixels * t->pairs * 4 <= t->most_bytes;
                if (!best.lines || (room && c.cycles < best.cycles)) best = c;
            }
            if (cols == 1) break;
        }
        if (!room) break;
    }
    return best;
}

/* ---- weights ---- */

bool ist_conv_lines_pack(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, size_t count,
                         void (*fill)(const ist_conv_problem *q, const ist_conv_tile *r, uint32_t *to),
                         ist_tensor *weights, ist_tensor *bias) {
    size_t width = ist_round_up((size_t)q->f.out, (size_t)(r->nv * r->vl));
    if (!count || count > SIZE_MAX / sizeof(uint32_t)) {
        ist_plan_fail(p, IST_E_LIMIT, "%s: filter [%d,%d,%d,%d] is too large", q->label, q->f.out, q->f.in, q->f.kh,
                      q->f.kw);
        return false;
    }
    uint32_t *pairs = malloc(count * sizeof *pairs);
    float *b = calloc(width, sizeof *b);
    if (pairs && b) {
        fill(q, r, pairs);
        for (int o = 0; o < q->f.out && q->f.b; o++) b[o] = q->f.b[o];
        *weights = ist_plan_const_bytes(p, pairs, count * sizeof *pairs, q->label);
        *bias = ist_plan_const_bytes(p, b, width * sizeof *b, q->label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, 2 * count);
    }
    free(pairs);
    free(b);
    return !ist_plan_status(p);
}

/* ---- launch ---- */

void ist_conv_lines_record(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, const ist_conv_tiling *t,
                           const ist_conv_shares *shares, const ist_conv_lines_launch *l) {
    const ist_conv_opts *o = q->o;
    ist_conv_lines layout = ist_conv_lines_of(q);
    int units = ist_plan_units(p);
    bool backwards = ist_plan_work_turn(p);
    double room = shares->pixels * t->pairs + l->more;
    if (room + VEC > INT_MAX / units) {
        ist_plan_fail(p, IST_E_LIMIT, "%s: one line of results sees %.0f inputs", q->label, 2 * room);
        return;
    }
    int scratch = (int)ist_round_up((size_t)room, VEC);
    const ist_conv_lines_args by_value = {.shape = ist_conv_shape_of(q),
                                          .epi = ist_conv_epilogue_of(q),
                                          .is_linear = layout.linear,
                                          .pitch = layout.pitch,
                                          .pixel_pairs = l->pixel_pairs,
                                          .part_pixels = l->part_pixels,
                                          .depth = shares->depth,
                                          .lines = shares->lines,
                                          .col_tiles = shares->cols,
                                          .by_columns = shares->by_columns,
                                          .backwards = backwards,
                                          .streams = shares->streams,
                                          .scratch_pairs = scratch};
    ist_launch launch = {
        .label = q->label,
        .op = r->op,
        .isa = l->isa,
        .defines = l->defines,
        .kernel = "conv",
        .dims = 1,
        .global = {(size_t)units},
        .local = {1},
        .args = {IST_IN(q->x), IST_IN(l->weights), IST_IN(l->bias),
                 IST_OUT(ist_plan_tensor(p, 1, 1, units, scratch, IST_ELEM_F32)), IST_OUT(q->y),
                 IST_IN(o->epi.add_before), IST_IN(o->epi.add_after), IST_IN(ist_plan_current_limit(p)),
                 IST_STRUCT(conv_lines_args, &by_value), IST_INOUT(ist_plan_work_queue(p))},
        .arg_count = 10,
        .shares = l->shares,
        .flops = 2.0 * q->x.n * q->oh * q->ow * q->taps * q->f.in * q->f.out,
        .bytes = ist_conv_bytes(p, q, 2),
    };
    ist_plan_launch(p, &launch);
}
