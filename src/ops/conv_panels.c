/* Convolution rows in fp32 on register tiles or local memory: packs weights in the row's panels and records the launch.
 */
#include "ops/conv_rows.h"
#include "ops/epilogue.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

/* On CPUs with vectors of 16 floats, where four tiles and two of shorter vectors can be had, 64 and 32 channels serve
 * nearly every layer. */
static bool common(const ist_plan *p, const ist_conv_row *r) {
    bool choice = r->items == 1 && ist_plan_caps(p) & IST_CAP_SIMD16;
    return !choice || (r->vl == 16 && (r->nv == 2 || r->nv == 4));
}

bool ist_conv_panels_takes(const ist_conv_row *r, const ist_conv_problem *q) {
    const ist_epilogue *e = &q->o->epi;
    if (!r->bk) return true;
    bool same = !e->up2 && (!ist_has(e->add_before) || e->add_before.n == q->y.n) &&
                (!ist_has(e->add_after) || e->add_after.n == q->y.n);
    return ist_conv_is_point(q) && q->f.in <= r->bk && same;
}

/* Halves that a work-item stores at a time begin at a multiple of their size. */
static bool aligned(const ist_plan *p, const ist_conv_problem *q, const ist_conv_row *r) {
    const ist_epilogue *e = &q->o->epi;
    return r->bk && ist_plan_half(p) && q->x.elem == IST_ELEM_F32 && q->y.elem == IST_ELEM_T && q->y.ld % r->vl == 0 &&
           q->y.c0 % r->vl == 0 && !ist_has(e->add_before) && !ist_has(e->add_after);
}

/* Multiply-adds per input that the row really does (whole tiles of pixels and channels), weighted by its speed and by
 * the compute units that find no tile. Every further tile makes the first start half a second longer, so that it must
 * save multiply-adds worth a tenth of a millisecond. */
double ist_conv_panels_cost(const ist_plan *p, const ist_conv_row *r, const ist_conv_problem *q) {
    const double first_start = 20e6;
    int units = ist_plan_units(p);
    double tiles = (double)ist_div_up(q->x.n * q->oh * q->ow, r->mr) * ist_div_up(q->f.out, r->nv * r->vl);
    return tiles * r->mr * r->nv * r->vl / r->speed * (tiles < units ? units / tiles : 1) +
           (common(p, r) ? 0 : first_start / ((double)q->f.in * q->taps));
}

/* ---- weights ---- */

/* [column tile][tap][in][nr], zeros beyond the last channel. */
static void pack_panels(const ist_conv_problem *q, int nr, float *dst) {
    int tiles = ist_div_up(q->f.out, nr);
    for (int tile = 0; tile < tiles; tile++)
        for (int t = 0; t < q->taps; t++)
            for (int i = 0; i < q->f.in; i++)
                for (int c = 0; c < nr; c++) {
                    int o = tile * nr + c;
                    *dst++ = o < q->f.out ? ist_conv_weight(q, o, i, t) : 0.0f;
                }
}

/* [column tile][nr] */
static void pack_bias(const ist_conv_problem *q, int nr, float *dst) {
    int width = ist_div_up(q->f.out, nr) * nr;
    for (int o = 0; o < width; o++) *dst++ = q->f.b && o < q->f.out ? q->f.b[o] : 0.0f;
}

bool ist_conv_panels_pack(ist_plan *p, const ist_conv_problem *q, int nr, ist_conv_panel *out) {
    size_t width = (size_t)ist_div_up(q->f.out, nr) * (size_t)nr, size = width;
    if (!ist_mul_size(size, (size_t)q->taps, &size) || !ist_mul_size(size, (size_t)q->f.in, &size) ||
        size > SIZE_MAX / sizeof(float)) {
        ist_plan_fail(p, IST_E_LIMIT, "%s: filter [%d,%d,%d,%d] is too large", q->label, q->f.out, q->f.in, q->f.kh,
                      q->f.kw);
        return false;
    }
    float *panels = malloc(size * sizeof *panels), *bias = malloc(width * sizeof *bias);
    if (panels && bias) {
        pack_panels(q, nr, panels);
        pack_bias(q, nr, bias);
        out->weights = ist_plan_const_bytes(p, panels, size * sizeof *panels, q->label);
        out->bias = ist_plan_const_bytes(p, bias, width * sizeof *bias, q->label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, size);
    }
    free(panels);
    free(bias);
    return !ist_plan_status(p);
}

/* ---- launch ---- */

/* An item of a CPU row's work: row and column tiles, and whether items of the same columns follow each other. */
typedef struct pieces {
    int rows, cols;
    bool by_columns;
} pieces;

/* Each unit reads either all weights and its share of the pixels, or its share of the weights and all pixels: whichever
 * is less, since both come from beyond its own cache. Then some sixteen items for every unit: by pixels, rows whose
 * pixels fill a part of the second-level cache and all columns, then smaller pieces; by columns, few columns, whose
 * weights stay in that cache, and all rows, then smaller pieces. */
static pieces cut(const ist_plan *p, const ist_conv_problem *q, const ist_conv_row *r) {
    enum { CHUNK_BYTES = 192 << 10, ITEMS_PER_UNIT = 16 };
    int all_rows = ist_div_up(q->x.n * q->oh * q->ow, r->mr), all_cols = ist_div_up(q->f.out, r->nv * r->vl);
    int units = ist_plan_units(p), want = ITEMS_PER_UNIT * units;
    double weights = (double)q->f.out * q->f.in * q->taps, pixels = (double)ist_pixels(q->x) * q->x.c;
    if (weights > pixels && all_cols >= 2 * units) {
        int cols = ist_div_up(all_cols, want), groups = ist_div_up(all_cols, cols);
        return (pieces){ist_div_up(all_rows, ist_div_up(want, groups)), cols, true};
    }
    double tile_bytes = 4.0 * r->mr * q->f.in;
    int fit = (int)(CHUNK_BYTES / tile_bytes), most = ist_div_up(all_rows, want);
    int rows = fit < 1 ? 1 : fit > all_rows ? all_rows : fit;
    if (rows > most) rows = most < 4 ? 4 : most;
    int groups = ist_div_up(all_rows, rows), split = ist_div_up(want, groups);
    int cols = ist_div_up(all_cols, split > all_cols ? all_cols : split);
    groups *= ist_div_up(all_cols, cols);
    if (groups < want && rows > 1) rows = (int)((long)rows * groups / want);
    return (pieces){rows > 1 ? rows : 1, cols, false};
}

/* A CPU row's scratch: floats per row of a tile, for pixels that have to be gathered. */
enum { SCRATCH_FLOATS = 64 };

static void launch(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *r, const ist_conv_panel *w) {
    const ist_conv_opts *o = q->o;
    bool half = ist_plan_half(p), cpu = r->items == 1;
    int units = ist_plan_units(p), row_tiles = ist_div_up(q->x.n * q->oh * q->ow, r->mr);
    size_t items = (size_t)r->items;
    ist_arg scratch = IST_IN((ist_tensor){0}), queue = scratch;
    pieces c = cut(p, q, r);
    if (cpu) {
        scratch = (ist_arg)IST_OUT(ist_plan_tensor(p, 1, 1, units * r->mr, SCRATCH_FLOATS, IST_ELEM_F32));
        queue = (ist_arg)IST_INOUT(ist_plan_work_queue(p));
    }
    char most[16] = "";
    if (r->bk) snprintf(most, sizeof most, " -DMOST=%d", r->bk);
    ist_defines defines =
        ist_defines_of(p, "-DMR=%d -DNV=%d -DVL=%d -DCHUNK=%d%s%s%s%s", r->mr, r->nv, r->vl, SCRATCH_FLOATS,
                       half && q->x.elem == IST_ELEM_F32 ? " -DX32" : "",
                       half && q->y.elem == IST_ELEM_F32 ? " -DY32" : "", most, aligned(p, q, r) ? " -DALIGNED" : "");
    ist_launch l = {
        .label = q->label,
        .op = r->op,
        .row = r->name,
        .isa = "isa/vector",
        .defines = defines.text,
        .kernel = "conv",
        .dims = 3,
        .global = {cpu ? (size_t)units : (size_t)row_tiles * items,
                   cpu ? 1 : (size_t)ist_div_up(q->f.out, r->nv * r->vl), 1},
        .local = {items, 1, 1},
        .args = {IST_IN(q->x), IST_IN(w->weights), IST_IN(w->bias), scratch, IST_OUT(q->y), IST_IN(o->epi.add_before),
                 IST_IN(o->epi.add_after), IST_IN(ist_plan_current_limit(p)),
                 IST_INT8(q->x.h, q->x.w, q->x.ld, q->x.c0, q->x.c, 0, 0, 0),
                 IST_INT8(q->f.kh, q->f.kw, o->stride ? o->stride : 1, o->top, o->left, 0, 0, 0),
                 IST_INT8(q->y.n, q->oh, q->ow, q->y.ld, q->y.c0, q->y.c, 0, 0), ist_epilogue_ints(&o->epi, q->y),
                 ist_epilogue_lab(&o->epi),
                 IST_INT4(c.rows, c.cols, 0, (c.by_columns ? 1 : 0) | (cpu && ist_plan_work_turn(p) ? 2 : 0)), queue},
        .arg_count = cpu ? 15 : 14,
        .shares = cpu,
        .flops = 2.0 * q->x.n * q->oh * q->ow * q->taps * q->f.in * q->f.out,
        .bytes = ist_conv_bytes(p, q, sizeof(float)),
    };
    ist_plan_launch(p, &l);
}

void ist_conv_panels(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *row) {
    ist_conv_panel w;
    if (ist_conv_panels_pack(p, q, row->nv * row->vl, &w)) launch(p, q, row, &w);
}
