/* Depthwise convolutions: checks shapes, chooses a row, packs weights and records the launch. */
#include "ops/dwconv.h"
#include "ops/chain.h"
#include "ops/epilogue.h"
#include "ops/rows.h"
#include "ops/tune.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Of the group and strip rows: work-items of a group; larger filters are not unrolled. */
enum { ITEMS = 128, GROUP_K_MAX = 5 };

/* Vectors of 16 channels that a work-item of the CPU row keeps: 28 KiB, inside a first-level cache. */
enum { RING = 448, MAX_COLS = 64, MAX_BLOCKS = 4 };

typedef struct dwconv_row {
    const char *name, *op;
    unsigned needs;
} dwconv_row;

static const dwconv_row rows[] = {
#define ROW(name, op, needs) {#name, op, needs},
#include "ops/rows/dwconv.inc"
#undef ROW
};

const char *ist_dwconv_row_name(ist_dwconv_row r) {
    return rows[r].name;
}

bool ist_dwconv_row_runs(const ist_plan *p, ist_dwconv_row r) {
    return (ist_plan_caps(p) & rows[r].needs) == rows[r].needs;
}

/* Largest multiple of 4 columns whose lines fit the ring for `blocks` of 16 channels; 0 when none does. */
static int ring_cols(int k, int stride, int blocks) {
    int cols = 0;
    while (cols + 4 <= MAX_COLS && blocks * k * ((cols + 3) * stride + k) <= RING) cols += 4;
    return cols;
}

/* Most blocks of 16 channels a work-item may take and still have 12 columns. */
static int ring_blocks(int k, int stride, int channels) {
    int blocks = ist_div_up(channels, 16);
    if (blocks > MAX_BLOCKS) blocks = MAX_BLOCKS;
    while (blocks > 1 && ring_cols(k, stride, blocks) < 12) blocks--;
    return blocks;
}

typedef struct problem {
    ist_tensor x, y;
    ist_filter f;
    const ist_conv_opts *o;
    const char *label;
    int stride;
} problem;

static bool setup(ist_plan *p, problem *q) {
    const ist_conv_opts *o = q->o;
    const ist_filter *f = &q->f;
    int h = q->x.h + o->top + o->bottom, w = q->x.w + o->left + o->right;
    q->stride = o->stride ? o->stride : 1;
    if (f->out != q->x.c || f->in != 1 || f->kh != f->kw || f->kh % 2 == 0 || q->stride < 1 || h < f->kh || w < f->kw ||
        (q->x.elem != IST_ELEM_T && q->x.elem != IST_ELEM_F32)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: depthwise filter [%d,%d,%d,%d] with stride %d on [%d,%d,%d,%d]", q->label,
                      f->out, f->in, f->kh, f->kw, q->stride, q->x.n, q->x.h, q->x.w, q->x.c);
        return false;
    }
    ist_elem elem = ist_has(o->into) ? o->into.elem : IST_ELEM_T;
    q->y = ist_plan_into(p, o->into, q->x.n, (h - f->kh) / q->stride + 1, (w - f->kw) / q->stride + 1, f->out, elem,
                         q->label);
    if (ist_plan_status(p)) return false;
    if (q->y.elem != IST_ELEM_T && q->y.elem != IST_ELEM_F32) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: the place for the result holds no activations", q->label);
        return false;
    }
    return ist_epilogue_check(p, &o->epi, q->y, q->label);
}

/* Weights [block][tap][width] and bias [block][width], zeros beyond the last channel; the strip row's one block has all
 * channels. */
static bool pack(ist_plan *p, const problem *q, int width, ist_tensor *weights, ist_tensor *bias) {
    int c = q->f.out, taps = q->f.kh * q->f.kw, blocks = ist_div_up(c, width);
    size_t size = (size_t)blocks * (size_t)width;
    float *w = calloc(size * (size_t)taps, sizeof *w), *b = calloc(size, sizeof *b);
    if (w && b) {
        for (int o = 0; o < c; o++) {
            int block = o / width, lane = o % width;
            for (int t = 0; t < taps; t++) w[((size_t)block * taps + t) * width + lane] = q->f.w[(size_t)o * taps + t];
            if (q->f.b) b[o] = q->f.b[o];
        }
        *weights = ist_plan_const_bytes(p, w, size * (size_t)taps * sizeof *w, q->label);
        *bias = ist_plan_const_bytes(p, b, size * sizeof *b, q->label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, size * (size_t)taps);
    }
    free(w);
    free(b);
    return !ist_plan_status(p);
}

static int at_least_one(int v) {
    return v > 1 ? v : 1;
}

typedef struct pieces {
    int blocks, chunks, cols, segments, rows, bands;
} pieces;

/* Channel chunks, even column segments and row bands of the CPU row: some eight pieces for every compute unit as long
 * as a band keeps at least eight rows. */
static pieces cut(const ist_plan *p, const problem *q) {
    int k = q->f.kh, units = ist_plan_units(p);
    pieces c = {.blocks = ring_blocks(k, q->stride, q->x.c)};
    c.chunks = ist_div_up(ist_div_up(q->x.c, 16), c.blocks);
    c.segments = ist_div_up(q->y.w, ring_cols(k, q->stride, c.blocks));
    c.cols = (ist_div_up(q->y.w, c.segments) + 3) / 4 * 4;
    c.segments = ist_div_up(q->y.w, c.cols);
    c.bands = ist_div_up(8 * units, c.segments * c.chunks * q->x.n);
    if (c.bands > q->y.h / 8) c.bands = at_least_one(q->y.h / 8);
    c.rows = ist_div_up(q->y.h, c.bands);
    c.bands = ist_div_up(q->y.h, c.rows);
    return c;
}

/* Tensors of T whose vectors of `width` channels all lie at multiples of their size. */
static bool aligned(ist_tensor t, int width) {
    return !ist_has(t) || (t.elem == IST_ELEM_T && t.ld % width == 0 && t.c0 % width == 0);
}

static bool all_aligned(const problem *q, int width) {
    return aligned(q->x, width) && aligned(q->y, width) && aligned(q->o->epi.add_before, width) &&
           aligned(q->o->epi.add_after, width);
}

/* Channels per work-item and output columns per work-item of the group row: 16-byte vectors and four columns as long as
 * every compute unit gets two thousand work-items. */
static int group_width(const ist_plan *p, const problem *q) {
    double outputs = (double)ist_pixels(q->y) * q->y.c;
    return ist_plan_half(p) && all_aligned(q, 8) && outputs >= 4e6 ? 8 : 4;
}

static int group_cols(const problem *q, int width) {
    double items = (double)ist_pixels(q->y) * ist_div_up(q->y.c, width);
    return items >= 1e6 && q->stride == 1 ? 4 : items >= 2e5 ? 2 : 1;
}

/* Of the strip row: channels of a work-item and its block of output pixels. What a work-item loads must fit registers
 * beside the weights, and small maps need every work-item they can have. */
typedef struct block {
    int width, cols, rows;
} block;

static block block_of(const ist_plan *p, const problem *q) {
    bool large = (double)ist_pixels(q->y) * q->y.c >= 2e6;
    if (ist_plan_half(p) && large && q->f.kh == 5 && q->stride == 1)
        return (block){2, 2, 4}; /* weights are most loads */
    if (!ist_plan_half(p) || q->f.kh > 3 || q->x.c % 4 || !all_aligned(q, 4)) return (block){2, 2, 2};
    if (large && q->stride == 1) return (block){4, 4, 2};
    return (block){4, 2, 1};
}

/* Whole vectors at multiples of their size, a filter that is unrolled; maps of floats so large that they fill every
 * compute unit with the group row's longer strips are faster there. */
static bool strip_takes(const ist_plan *p, const problem *q) {
    bool huge = !ist_plan_half(p) && (double)ist_pixels(q->y) * q->y.c >= 8e6;
    return q->f.kh <= GROUP_K_MAX && q->stride <= 2 && q->x.c % 2 == 0 && all_aligned(q, 2) && !huge;
}

/* Of the tile row: a group takes a strip of TILE_COLS columns for each of `across` warps, `steps` steps of TILE_ROWS
 * rows. */
typedef struct tile {
    int across, strips, steps, segments;
} tile;

enum { TILE_COLS = 4, TILE_ROWS = 5, TILE_CHANNELS = 64 };

/* Results for each compute unit from which the row wins (perf/NOTES.md): 5x5 on maps of smaller batches has too few
 * groups. */
enum { TILE_VALUES = 20000 };

/* The strips that compute the least outside the map, cut so that every compute unit has two groups. */
static tile tile_of(const ist_plan *p, const problem *q) {
    static const int menu[] = {5, 4};
    tile t = {0};
    for (size_t i = 0; i < sizeof menu / sizeof menu[0]; i++) {
        int strips = ist_div_up(q->y.w, TILE_COLS * menu[i]);
        if (!t.across || strips * menu[i] < t.strips * t.across) t.across = menu[i], t.strips = strips;
    }
    int steps = ist_div_up(q->y.h, TILE_ROWS);
    int columns = t.strips * ist_div_up(q->x.c, TILE_CHANNELS) * q->x.n;
    t.segments = at_least_one((int)(2.0 * ist_plan_units(p) / columns));
    if (t.segments > steps) t.segments = steps;
    t.steps = ist_div_up(steps, t.segments);
    t.segments = ist_div_up(steps, t.steps);
    return t;
}

static bool tile_takes(const ist_plan *p, const problem *q) {
    const ist_epilogue *e = &q->o->epi;
    return ist_plan_half(p) && q->f.kh <= GROUP_K_MAX && q->stride == 1 && q->x.c % 8 == 0 && all_aligned(q, 8) &&
           !ist_has(e->add_before) && !ist_has(e->add_after);
}

static int width_of(const ist_plan *p, const problem *q, ist_dwconv_row r) {
    return r == IST_DWCONV_cpu     ? 16
           : r == IST_DWCONV_group ? group_width(p, q)
           : r == IST_DWCONV_strip ? block_of(p, q).width
           : r == IST_DWCONV_tile  ? TILE_CHANNELS
                                   : 4;
}

static pieces blocks_of(const ist_plan *p, const problem *q, ist_dwconv_row r) {
    if (r == IST_DWCONV_tile) {
        tile t = tile_of(p, q);
        return (pieces){.segments = t.strips, .bands = t.steps};
    }
    block s = block_of(p, q);
    return (pieces){
        .cols = s.cols, .rows = s.rows, .segments = ist_div_up(q->y.w, s.cols), .bands = ist_div_up(q->y.h, s.rows)};
}

static void set_grid(const ist_plan *p, const problem *q, ist_dwconv_row r, const pieces *c, ist_launch *l) {
    int blocks = ist_div_up(q->x.c, width_of(p, q, r));
    l->local[0] = l->local[1] = l->local[2] = 1;
    l->global[2] = (size_t)q->x.n;
    if (r == IST_DWCONV_cpu) {
        l->dims = 1;
        l->global[0] = (size_t)ist_plan_units(p);
    } else if (r == IST_DWCONV_strip) {
        l->dims = 2;
        l->local[0] = ITEMS;
        l->global[0] = ist_round_up((size_t)blocks * (size_t)c->segments * (size_t)c->bands, ITEMS);
        l->global[1] = (size_t)q->x.n;
    } else if (r == IST_DWCONV_tile) {
        tile t = tile_of(p, q);
        l->dims = 2;
        l->local[0] = (size_t)(32 * t.across);
        l->global[0] = (size_t)blocks * (size_t)t.strips * (size_t)t.segments * l->local[0];
        l->global[1] = (size_t)q->x.n;
    } else if (r == IST_DWCONV_group) {
        l->dims = 2;
        l->local[0] = ITEMS;
        l->global[0] = ist_round_up((size_t)blocks * (size_t)ist_div_up(q->y.w, c->cols) * (size_t)q->y.h, ITEMS);
        l->global[1] = (size_t)q->x.n;
    } else {
        l->local[0] = 16;
        l->local[1] = 4;
        l->global[0] = ist_round_up((size_t)blocks, l->local[0]);
        l->global[1] = ist_round_up((size_t)q->y.h * (size_t)q->y.w, l->local[1]);
    }
}

static ist_defines defines_of(const ist_plan *p, const problem *q, ist_dwconv_row r, const pieces *c) {
    int width = width_of(p, q, r);
    bool half = ist_plan_half(p);
    const char *x32 = half && q->x.elem == IST_ELEM_F32 ? " -DX32" : "";
    const char *y32 = half && q->y.elem == IST_ELEM_F32 ? " -DY32" : "";
    if (r == IST_DWCONV_cpu) return ist_defines_of(p, "-DVL=16 -DRING=%d%s%s", RING, x32, y32);
    if (r == IST_DWCONV_strip)
        return ist_defines_of(p, "-DVL=%d -DK=%d -DSTRIDE=%d -DCOLS=%d -DROWS=%d -DACT=%d", width, q->f.kh, q->stride,
                              c->cols, c->rows, (int)q->o->epi.act);
    if (r == IST_DWCONV_tile)
        return ist_defines_of(p, "-DK=%d -DACROSS=%d -DACT=%d", q->f.kh, tile_of(p, q).across, (int)q->o->epi.act);
    if (r == IST_DWCONV_any) return ist_defines_of(p, "-DVL=4%s%s", x32, y32);
    return ist_defines_of(p, "-DVL=%d -DK=%d -DSTRIDE=%d -DCOLS=%d%s%s%s%s", width, q->f.kh, q->stride, c->cols,
                          q->x.c % width ? "" : " -DWHOLE", all_aligned(q, width) ? " -DALIGNED" : "", x32, y32);
}

static void record(ist_plan *p, const problem *q, ist_dwconv_row r, ist_tensor weights, ist_tensor bias) {
    const ist_conv_opts *o = q->o;
    bool half = ist_plan_half(p), cpu = r == IST_DWCONV_cpu, tiles = r == IST_DWCONV_tile;
    bool strip = r == IST_DWCONV_strip || tiles; /* weights [tap][channel], pieces of maps */
    pieces c = cpu ? cut(p, q) : strip ? blocks_of(p, q, r) : (pieces){.cols = group_cols(q, width_of(p, q, r))};
    ist_defines defines = defines_of(p, q, r, &c);
    ist_launch l = {.label = q->label,
                    .op = rows[r].op,
                    .row = rows[r].name,
                    .isa = tiles   ? "isa/ptx"
                           : strip ? "isa/fetch"
                                   : "isa/vector",
                    .defines = defines.text,
                    .kernel = "dwconv",
                    .dims = 3,
                    .shares = cpu};
    set_grid(p, q, r, &c, &l);
    int first = strip || r == IST_DWCONV_group ? ist_div_up(q->x.c, width_of(p, q, r)) : c.cols;
    int second = strip ? c.segments : c.rows, third = strip ? c.bands : c.segments;
    const ist_arg args[] = {IST_IN(q->x),
                            IST_IN(weights),
                            IST_IN(bias),
                            IST_OUT(q->y),
                            IST_IN(o->epi.add_before),
                            IST_IN(o->epi.add_after),
                            IST_IN(ist_plan_current_limit(p)),
                            IST_INT8(q->x.h, q->x.w, q->x.ld, q->x.c0, q->x.c, 0, 0, 0),
                            IST_INT8(q->f.kh, q->stride, o->top, o->left, first, second, third, c.blocks),
                            IST_INT8(q->y.n, q->y.h, q->y.w, q->y.ld, q->y.c0, cpu && ist_plan_work_turn(p), 0, 0),
                            ist_epilogue_ints(&o->epi, q->y),
                            ist_epilogue_lab(&o->epi),
                            cpu ? (ist_arg)IST_INOUT(ist_plan_work_queue(p)) : (ist_arg){0}};
    l.arg_count = (int)(sizeof args / sizeof args[0]) - !cpu; /* the queue */
    for (int i = 0; i < l.arg_count; i++) l.args[i] = args[i];
    double elem = half ? 2 : 4, out = (double)ist_pixels(q->y) * q->y.c;
    l.flops = 2.0 * out * q->f.kh * q->f.kw;
    l.bytes = elem * ((double)ist_pixels(q->x) * q->x.c + out);
    ist_plan_launch(p, &l);
}

ist_tensor ist_op_dwconv_row(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, ist_dwconv_row row,
                             const char *label) {
    ist_tensor none = {0}, weights, bias;
    ist_conv_opts plain = {0};
    problem q = {.x = x, .f = f, .o = opts ? opts : &plain, .label = label};
    if (ist_plan_status(p) || !setup(p, &q)) return none;
    if (!ist_plan_representable(p, f.w, (size_t)f.out * (size_t)f.kh * (size_t)f.kw, label)) return none;
    if (row == IST_DWCONV_tile && !tile_takes(p, &q)) row = IST_DWCONV_strip;
    if (row == IST_DWCONV_strip && !strip_takes(p, &q)) row = IST_DWCONV_group;
    if (row == IST_DWCONV_group && f.kh > GROUP_K_MAX) row = IST_DWCONV_any;
    int width = width_of(p, &q, row);
    if (!pack(p, &q, row == IST_DWCONV_strip || row == IST_DWCONV_tile ? x.c : width, &weights, &bias)) return none;
    record(p, &q, row, weights, bias);
    return ist_plan_status(p) ? none : q.y;
}

/* The row that a tuning record names, else `row`. */
static ist_dwconv_row tuned(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, ist_dwconv_row row) {
    ist_conv_opts plain = {0};
    const ist_conv_opts *o = opts ? opts : &plain;
    ist_tune_shape shape = ist_tune_shape_of(p, x, o->into, f, o);
    const ist_tuned *t = ist_plan_tuned(p, IST_TUNE_DWCONV, shape.text);
    for (int i = 0; t && i < IST_DWCONV_ROWS; i++)
        if (!strcmp(rows[i].name, t->row) && ist_dwconv_row_runs(p, (ist_dwconv_row)i)) return (ist_dwconv_row)i;
    return row;
}

ist_tensor ist_op_dwconv(ist_plan *p, ist_tensor x, ist_filter f, const ist_conv_opts *opts, const char *label) {
    int stride = opts && opts->stride ? opts->stride : 1;
    if (ist_plan_chain(p) && opts) return ist_chain_dwconv(p, x, f, opts, label);
    bool cpu = ist_dwconv_row_runs(p, IST_DWCONV_cpu) && stride > 0 && f.kh > 0 && ring_cols(f.kh, stride, 1) > 0;
    bool group = ist_dwconv_row_runs(p, IST_DWCONV_group) && !ist_cpu_row(p);
    bool tiles = ist_dwconv_row_runs(p, IST_DWCONV_tile) && ist_plan_half(p) && f.kh == 5 && stride == 1 &&
                 (double)ist_pixels(x) * x.c >= (double)TILE_VALUES * ist_plan_units(p);
    ist_dwconv_row row = cpu ? IST_DWCONV_cpu : tiles ? IST_DWCONV_tile : group ? IST_DWCONV_strip : IST_DWCONV_any;
    return ist_op_dwconv_row(p, x, f, opts, tuned(p, x, f, opts, row), label);
}
