/* Dense convolutions, linear layers and 2x2 transposed convolutions: checks shapes, chooses a row, packs weights in the
 * row's panels and records the launch.
 *
 * A transposed 2x2 convolution with stride 2 has no overlap: it is four 1x1 convolutions ("phases"), one per pixel of
 * the 2x2 block, that the kernel runs as one grid. */
#include "ops/conv_rows.h"
#include "ops/epilogue.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>

static const ist_conv_row conv_rows[] = {
#define ROW(name, op, needs, mr, nv, vl, items, speed) {#name, op, needs, mr, nv, vl, items, speed},
#include "ops/rows/conv.inc"
#undef ROW
};

int ist_conv_row_count(void) {
    return (int)(sizeof conv_rows / sizeof conv_rows[0]);
}

const ist_conv_row *ist_conv_row_at(int index) {
    return &conv_rows[index];
}

/* Everything the packing and the launch need. */
typedef struct problem {
    ist_conv_kind kind;
    ist_tensor x, y;
    ist_filter f;
    const ist_conv_opts *o;
    const char *label;
    int phases, taps, oh, ow; /* oh, ow: extents of the product (those of x for a transposed convolution) */
} problem;

/* Compute units of the device, at least 1. */
static int compute_units(const ist_plan *p) {
    int units = ist_device_facts(ist_plan_device((ist_plan *)p))->compute_units;
    return units > 0 ? units : 1;
}

/* Multiply-adds per input that the row really does (whole tiles of pixels and channels), weighted by its speed and by
 * the compute units that find no tile. */
static double row_cost(const ist_conv_row *r, int pixels, int channels, int units) {
    double tiles = (double)ist_div_up(pixels, r->mr) * ist_div_up(channels, r->nv * r->vl);
    return tiles * r->mr * r->nv * r->vl / r->speed * (tiles < units ? units / tiles : 1);
}

const ist_conv_row *ist_conv_choose(const ist_plan *p, int pixels, int channels) {
    const ist_conv_row *best = NULL;
    int units = compute_units(p);
    for (int i = 0; i < ist_conv_row_count(); i++) {
        const ist_conv_row *r = &conv_rows[i];
        if ((ist_plan_caps(p) & r->needs) != r->needs) continue;
        if (!best || row_cost(r, pixels, channels, units) < row_cost(best, pixels, channels, units)) best = r;
    }
    return best;
}

/* ---- checks ---- */

static bool storage_elem(ist_elem e) {
    return e == IST_ELEM_T || e == IST_ELEM_F32;
}

static bool setup(ist_plan *p, problem *q) {
    const ist_filter *f = &q->f;
    const ist_conv_opts *o = q->o;
    bool deconv = q->kind == IST_CONV_DECONV2X2;
    int stride = o->stride ? o->stride : 1, h = q->x.h + o->top + o->bottom, w = q->x.w + o->left + o->right;
    if (f->in != q->x.c || f->out < 1 || f->kh < 1 || f->kw < 1 || stride < 1 || h < f->kh || w < f->kw ||
        !storage_elem(q->x.elem) || (deconv && (f->kh != 2 || f->kw != 2))) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: filter [%d,%d,%d,%d] with stride %d on [%d,%d,%d,%d]", q->label, f->out,
                      f->in, f->kh, f->kw, stride, q->x.n, q->x.h, q->x.w, q->x.c);
        return false;
    }
    q->phases = deconv ? 4 : 1;
    q->taps = deconv ? 1 : f->kh * f->kw;
    q->oh = deconv ? q->x.h : (h - f->kh) / stride + 1;
    q->ow = deconv ? q->x.w : (w - f->kw) / stride + 1;
    int up = deconv ? 2 : 1;
    ist_elem elem = ist_has(o->into) ? o->into.elem : IST_ELEM_T;
    q->y = ist_plan_into(p, o->into, q->x.n, q->oh * up, q->ow * up, f->out, elem, q->label);
    if (ist_plan_status(p)) return false;
    if (!storage_elem(q->y.elem)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: the place for the result holds no activations", q->label);
        return false;
    }
    return ist_epilogue_check(p, &o->epi, q->y, q->label);
}

/* ---- weights ---- */

/* Weight of output o, input i, tap t of a phase, in PyTorch's orders. */
static float weight_at(const problem *q, int phase, int o, int i, int t) {
    if (q->kind == IST_CONV_DECONV2X2) return q->f.w[((size_t)i * q->f.out + o) * 4 + phase];
    return q->f.w[((size_t)o * q->f.in + i) * q->taps + t];
}

/* [phase][column tile][tap][in][nr], zeros beyond the last channel. */
static void pack_panels(const problem *q, int nr, float *dst) {
    int tiles = ist_div_up(q->f.out, nr);
    for (int phase = 0; phase < q->phases; phase++)
        for (int tile = 0; tile < tiles; tile++)
            for (int t = 0; t < q->taps; t++)
                for (int i = 0; i < q->f.in; i++)
                    for (int c = 0; c < nr; c++) {
                        int o = tile * nr + c;
                        *dst++ = o < q->f.out ? weight_at(q, phase, o, i, t) : 0.0f;
                    }
}

/* [phase][column tile][nr] */
static void pack_bias(const problem *q, int nr, float *dst) {
    int width = ist_div_up(q->f.out, nr) * nr;
    for (int phase = 0; phase < q->phases; phase++)
        for (int o = 0; o < width; o++) *dst++ = q->f.b && o < q->f.out ? q->f.b[o] : 0.0f;
}

typedef struct packed {
    ist_tensor weights, bias;
} packed;

static bool pack(ist_plan *p, const problem *q, int nr, packed *out) {
    size_t width = (size_t)ist_div_up(q->f.out, nr) * (size_t)nr * (size_t)q->phases, size = width;
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

/* How many row and column tiles a work-item of a CPU row takes: rows whose pixels fill a part of the second-level cache
 * and all columns, then smaller pieces until every compute unit has eight or a piece is one tile. */
static void cut(const ist_plan *p, const problem *q, const ist_conv_row *r, int *row_tiles, int *col_tiles) {
    enum { CHUNK_BYTES = 192 << 10, GROUPS_PER_UNIT = 8 };
    int all_rows = ist_div_up(q->x.n * q->oh * q->ow, r->mr), all_cols = ist_div_up(q->f.out, r->nv * r->vl);
    double tile_bytes = 4.0 * r->mr * q->f.in;
    int want = GROUPS_PER_UNIT * compute_units(p), fit = (int)(CHUNK_BYTES / tile_bytes);
    int rows = fit < 1 ? 1 : fit > all_rows ? all_rows : fit, most = ist_div_up(all_rows * q->phases, want);
    if (rows > most) rows = most < 4 ? 4 : most;
    int groups = ist_div_up(all_rows, rows) * q->phases, pieces = ist_div_up(want, groups);
    if (pieces > all_cols) pieces = all_cols;
    *col_tiles = ist_div_up(all_cols, pieces);
    groups *= ist_div_up(all_cols, *col_tiles);
    if (groups < want && rows > 1) rows = (int)((long)rows * groups / want);
    *row_tiles = rows > 1 ? rows : 1;
}

static double bytes_moved(const ist_plan *p, const problem *q) {
    double elem = ist_plan_half(p) ? 2 : 4;
    return elem * ((double)ist_pixels(q->x) * q->x.c + (double)ist_pixels(q->y) * q->y.c) +
           4.0 * q->phases * q->taps * q->f.in * q->f.out;
}

/* A CPU row's scratch: floats per row of a tile, for pixels that have to be gathered. */
enum { SCRATCH_FLOATS = 64 };

static void launch(ist_plan *p, const problem *q, const ist_conv_row *r, const packed *w) {
    const ist_conv_opts *o = q->o;
    bool deconv = q->kind == IST_CONV_DECONV2X2, half = ist_plan_half(p);
    int nr = r->nv * r->vl, rows = 1, cols = 1;
    if (r->items == 1) cut(p, q, r, &rows, &cols);
    size_t items = (size_t)r->items;
    int row_groups = ist_div_up(q->x.n * q->oh * q->ow, r->mr * rows), col_groups = ist_div_up(q->f.out, nr * cols);
    ist_arg scratch = IST_IN((ist_tensor){0});
    if (r->items == 1)
        scratch = (ist_arg)IST_OUT(
            ist_plan_tensor(p, row_groups, col_groups, q->phases * r->mr, SCRATCH_FLOATS, IST_ELEM_F32));
    ist_defines defines = ist_defines_of(p, "-DMR=%d -DNV=%d -DVL=%d -DCHUNK=%d%s%s", r->mr, r->nv, r->vl,
                                         SCRATCH_FLOATS, half && q->x.elem == IST_ELEM_F32 ? " -DX32" : "",
                                         half && q->y.elem == IST_ELEM_F32 ? " -DY32" : "");
    ist_launch l = {
        .label = q->label,
        .op = r->op,
        .isa = "isa/vector",
        .defines = defines.text,
        .kernel = "conv",
        .dims = 3,
        .global = {(size_t)row_groups * items, (size_t)col_groups, (size_t)q->phases},
        .local = {items, 1, 1},
        .args = {IST_IN(q->x), IST_IN(w->weights), IST_IN(w->bias), scratch, IST_OUT(q->y), IST_IN(o->epi.add_before),
                 IST_IN(o->epi.add_after), IST_IN(ist_plan_current_limit(p)),
                 IST_INT8(q->x.h, q->x.w, q->x.ld, q->x.c0, q->x.c, 0, 0, 0),
                 IST_INT8(deconv ? 1 : q->f.kh, deconv ? 1 : q->f.kw, o->stride ? o->stride : 1, o->top, o->left, 0, 0,
                          0),
                 IST_INT8(q->y.n, q->oh, q->ow, q->y.ld, q->y.c0, q->y.c, deconv ? 2 : 1, 0),
                 ist_epilogue_ints(&o->epi, q->y), ist_epilogue_lab(&o->epi), IST_INT4(rows, cols, 0, 0)},
        .arg_count = 14,
        .flops = 2.0 * q->x.n * q->oh * q->ow * q->phases * q->taps * q->f.in * q->f.out,
        .bytes = bytes_moved(p, q),
    };
    ist_plan_launch(p, &l);
}

ist_tensor ist_op_conv_row(ist_plan *p, ist_conv_kind kind, ist_tensor x, ist_filter f, const ist_conv_opts *opts,
                           const ist_conv_row *row, const char *label) {
    ist_tensor none = {0};
    ist_conv_opts plain = {0};
    problem q = {.kind = kind, .x = x, .f = f, .o = opts ? opts : &plain, .label = label};
    if (ist_plan_status(p) || !setup(p, &q)) return none;
    if (!row) row = ist_conv_choose(p, x.n * q.oh * q.ow, f.out);
    if (!row) {
        ist_plan_fail(p, IST_E_UNSUPPORTED, "%s: this device can run no kernel for dense convolutions", label);
        return none;
    }
    packed w;
    if (!pack(p, &q, row->nv * row->vl, &w)) return none;
    launch(p, &q, row, &w);
    return ist_plan_status(p) ? none : q.y;
}

ist_tensor ist_op_conv(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label) {
    return ist_op_conv_row(p, IST_CONV_DENSE, x, f, opts, NULL, label);
}

ist_tensor ist_op_linear(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label) {
    if (!ist_plan_status(p) && (f.kh != 1 || f.kw != 1)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: a linear layer with a %dx%d kernel", label, f.kh, f.kw);
        return (ist_tensor){0};
    }
    return ist_op_conv_row(p, IST_CONV_DENSE, x, f, opts, NULL, label);
}

ist_tensor ist_op_deconv2x2(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label) {
    return ist_op_conv_row(p, IST_CONV_DECONV2X2, x, f, opts, NULL, label);
}
