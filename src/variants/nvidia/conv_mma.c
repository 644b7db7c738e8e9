/* Convolutions on matrix instructions with half storage: packs weights in the order of the instruction's fragments
 * and records the launch.
 *
 * The product runs over "chunks" of eight inputs (cl/nvidia/conv_mma.cl): tap by tap the channels, padded to a multiple of
 * eight. Where pixels do not start on 16 bytes the row gathers single elements and channels are not padded. */
#include "variants/conv.h"
#include "variants/divider.h"
#include "variants/nvidia/conv_args.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { CHUNK = 8, PAIR = 16, BLOCK = 16, LANES = 32, FRAGMENT = 8 };

/* How a row counts a problem's inputs and channels. */
typedef struct layout {
    bool gather, point, blocked; /* single elements; one tap on the pixel itself; BK channels of all taps in turn */
    int halo;                    /* > 0: pixels copied once for all taps of BK channels */
    bool square;                 /* halo: tiles are lines of LINE pixels, .. */
    int wide, high;              /* .. so many on a line and on a column of the map */
    int per_tap;                 /* inputs of a tap, padding included */
    int steps, unit;             /* of BK inputs; a split's are a multiple of `unit` */
    int pairs, blocks;           /* of 16 inputs, whole steps; of 16 channels */
} layout;

enum { LINE = 16, MOST_BYTES = 98 << 10 }; /* see cl/nvidia/conv_mma.cl, cl/probe/ptx_mma.cl */

/* How a 3x3 convolution that keeps the extents copies the pixels of a tile of BM once for all taps, where two blocks of
 * them fit local memory beside the weights: `halo`, the number of pixels, 0 where it does not; `square`: the tile is
 * lines of LINE pixels, for maps that these cover without much waste. */
static void set_halo(layout *l, const ist_conv_tile *r, const ist_conv_problem *q) {
    enum { LEAST_ROWS = 64, MOST_WIDTH = 96 }; /* else more is copied than saved */
    const ist_conv_opts *o = q->o;
    if (!ist_conv_keeps_extents(q) || r->mr < LEAST_ROWS || r->bk / PAIR / r->warps_k % 2) return;
    int lines = r->mr / LINE, wide = ist_div_up(q->ow, LINE), high = ist_div_up(q->oh, lines);
    bool plain = !o->epi.up2 && (!ist_has(o->epi.add_before) || o->epi.add_before.n == q->y.n) &&
                 (!ist_has(o->epi.add_after) || o->epi.add_after.n == q->y.n);
    bool square = plain && wide * high * r->mr <= 1.06 * q->oh * q->ow;
    int halo = square ? (lines + 2) * (LINE + 2) : r->mr + 2 * q->x.w + 2, bn = r->nv * r->vl;
    int bytes = 2 * (halo + 1) * r->bk * 2 + r->stages * bn * r->bk * 2 + bn * 4 + 16;
    if (bytes > MOST_BYTES || (!square && q->x.w > MOST_WIDTH)) return;
    l->halo = halo, l->square = square, l->wide = wide, l->high = high;
}

static layout layout_of(const ist_conv_tile *r, const ist_conv_problem *q) {
    enum { MASK_TAPS = 31 };
    layout l = {.gather = q->x.ld % CHUNK || q->x.c0 % CHUNK || q->taps > MASK_TAPS};
    l.point = !l.gather && ist_conv_is_point(q);
    l.blocked = !l.gather && !l.point && q->f.in % r->bk == 0;
    if (l.blocked) set_halo(&l, r, q);
    l.unit = l.halo ? q->taps : 1;
    l.per_tap = l.gather ? q->f.in : ist_div_up(q->f.in, CHUNK) * CHUNK;
    l.steps = ist_div_up(q->taps * l.per_tap, r->bk);
    l.pairs = l.steps * (r->bk / PAIR);
    l.blocks = ist_div_up(q->f.out, BLOCK);
    return l;
}

static int row_tiles_of(const ist_conv_tile *r, const ist_conv_problem *q, const layout *l) {
    return l->square ? q->x.n * l->wide * l->high : ist_div_up(q->x.n * q->oh * q->ow, r->mr);
}

static int steps_of_split(const layout *l, int splits) {
    return ist_div_up(ist_div_up(l->steps, splits), l->unit) * l->unit;
}

/* Most groups that may share a tile's sum: each has at least one step. */
static int ways(const ist_plan *p, const ist_variant *v, const void *node) {
    enum { MOST = 8 };
    ist_conv_problem q = ist_conv_problem_of(node);
    layout l = layout_of(v->config, &q);
    (void)p;
    int parts = l.steps / l.unit;
    return parts < MOST ? parts : MOST;
}

/* Time of a launch in nanoseconds of the device it was fitted on (perf/NOTES.md); elsewhere the order is what counts.
 * A compute unit works off its groups' steps at the rate of its copies or of its multiply-adds, whichever is slower,
 * but no step is shorter than a latency that groups side by side share. */
static double time_of(const ist_plan *p, const ist_conv_tile *r, const ist_conv_problem *q, int splits) {
    static const double start = 2650, copy_bytes = 49.9, multiply_adds = 1294, latency = 279, store = 0.144;
    static const double gather = 0.103, share = 2442, share_sum = 0.122, addend = 0.113, addend_in_place = 0.052;
    enum { LOCAL_BYTES = 227 << 10, UNIT_WARPS = 64, UNIT_GROUPS = 8 };
    layout l = layout_of(r, q);
    int units = ist_plan_units(p), bm = r->mr, bn = r->nv * r->vl, warps = r->items / 32;
    int pixels = l.halo ? ist_div_up(l.halo, q->taps) : bm, bytes = (pixels + bn) * r->bk * 2; /* of a step */
    int local = (l.halo ? 2 * l.halo + r->stages * bn : r->stages * (bm + bn)) * r->bk * 2;
    double tiles = (double)row_tiles_of(r, q, &l) * ist_div_up(q->f.out, bn);
    double waves = ceil(tiles * splits / units);

    int side = LOCAL_BYTES / (local + 1024); /* groups side by side on a unit */
    if (side > UNIT_WARPS / warps) side = UNIT_WARPS / warps;
    if (side > UNIT_GROUPS) side = UNIT_GROUPS;
    if (side > waves) side = (int)waves;
    if (side < 1) side = 1;

    double copy = bytes / copy_bytes + (l.gather ? bm * r->bk * gather : 0);
    double step = fmax(fmax(copy, (double)bm * bn * r->bk / (multiply_adds * r->speed)), latency / side);
    bool in_place = r->items == 128 && r->warps_k == 1 && bm >= 64 && bn >= 64; /* as IN_PLACE in the kernel */
    int addends = ist_has(q->o->epi.add_before) + ist_has(q->o->epi.add_after);
    /* Few warps do not hide special functions, nor norms. */
    bool slow = bm * bn > 64 * r->items && (q->o->epi.act == IST_ACT_GELU || q->norm_eps > 0);
    double result = slow ? store * 1.15 : store;
    double end = bm * bn * (result + addends * (in_place ? addend_in_place : addend));
    double time = start + waves * (steps_of_split(&l, splits) * step + end);
    return splits > 1 ? time + share + bm * bn * splits * share_sum : time;
}

/* ---- weights ---- */

/* Tap and channel of input k of the product; false where there is none. */
static bool source_of(const ist_conv_problem *q, const layout *l, int bk, int k, int *tap, int *in) {
    int step = k / bk;
    *tap = l->blocked ? step % q->taps : k / l->per_tap;
    *in = l->blocked ? step / q->taps * bk + k % bk : k % l->per_tap;
    return *tap < q->taps && *in < q->f.in;
}

/* [pair][block][lane][8]: lane l holds column l / 4 of two blocks of eight, of each the inputs 2 (l % 4) + {0,
 * 1} and those 8 further (mma.m16n8k16, matrix B). */
static void pack_fragments(const ist_conv_problem *q, const layout *l, int bk, float *dst) {
    for (int pair = 0; pair < l->pairs; pair++) {
        int tap[PAIR], in[PAIR];
        bool real[PAIR];
        for (int k = 0; k < PAIR; k++) real[k] = source_of(q, l, bk, pair * PAIR + k, &tap[k], &in[k]);
        for (int block = 0; block < l->blocks; block++)
            for (int e = 0; e < LANES * FRAGMENT; e++) {
                int lane = e / FRAGMENT, i = e % FRAGMENT;
                int k = lane % 4 * 2 + i % 2 + i / 2 % 2 * 8, o = block * BLOCK + i / 4 * 8 + lane / 4;
                *dst++ = real[k] && o < q->f.out ? ist_conv_weight(q, o, in[k], tap[k]) : 0.0f;
            }
    }
}

/* What a half holds of f. */
static double as_half(float f) {
    int exponent;
    frexp(f, &exponent);
    if (exponent < -13) exponent = -13; /* subnormal: multiples of 2^-24 */
    return ldexp(rint(ldexp(f, 11 - exponent)), exponent - 11);
}

/* [width] biases and, with a norm, [width] sums of a channel's weights as the product has them. */
static void fill_bias(const ist_conv_problem *q, size_t width, float *b) {
    for (int o = 0; o < q->f.out; o++) {
        double sum = 0;
        if (q->f.b) b[o] = q->f.b[o];
        for (int i = 0; q->norm_eps > 0 && i < q->f.in; i++) sum += as_half(ist_conv_weight(q, o, i, 0));
        if (q->norm_eps > 0) b[width + (size_t)o] = (float)sum;
    }
}

static bool pack(ist_plan *p, const ist_conv_problem *q, const layout *l, int bk, ist_tensor *weights,
                 ist_tensor *bias) {
    int rows = l->pairs * l->blocks * LANES;
    size_t width = (size_t)l->blocks * BLOCK, size = FRAGMENT;
    if (!ist_mul_size(size, (size_t)l->pairs, &size) || !ist_mul_size(size, (size_t)l->blocks * LANES, &size) ||
        size > INT_MAX) {
        ist_plan_fail(p, IST_E_LIMIT, "%s: filter [%d,%d,%d,%d] is too large", q->label, q->f.out, q->f.in, q->f.kh,
                      q->f.kw);
        return false;
    }
    float *w = malloc(size * sizeof *w), *b = calloc(2 * width, sizeof *b);
    if (w && b) {
        if (ist_plan_has_values(p)) pack_fragments(q, l, bk, w);
        fill_bias(q, width, b);
        *weights = ist_plan_const(p, w, 1, 1, rows, FRAGMENT, IST_ELEM_T, q->label);
        *bias = ist_plan_const(p, b, 1, 1, q->norm_eps > 0 ? 2 : 1, (int)width, IST_ELEM_F32, q->label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, size);
    }
    free(w);
    free(b);
    return !ist_plan_status(p);
}

/* ---- launch ---- */

static ist_defines defines_of(const ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, const layout *l) {
    char special[48] = "";
    if (l->halo) snprintf(special, sizeof special, " -DHALO=%d%s", l->halo, l->square ? " -DSQUARE" : "");
    if (q->norm_eps > 0) snprintf(special, sizeof special, " -DNORM=%d", ist_div_up(q->f.in, 64) * 64);
    return ist_defines_of(p, "-DBM=%d -DBN=%d -DWM=%d -DWN=%d -DWK=%d -DBK=%d -DSTAGES=%d -DAHEAD=%d -DACT=%d%s%s%s",
                          r->mr, r->nv * r->vl, r->warps_m, r->warps_n, r->warps_k, r->bk, r->stages, r->stages - 2,
                          (int)q->o->epi.act,
                          l->gather                ? " -DGATHER"
                          : l->point               ? " -DPOINT"
                          : l->blocked && !l->halo ? " -DBLOCKED"
                                                   : "",
                          special, q->y.elem == IST_ELEM_F32 ? " -DY32" : "");
}

static void launch(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, int splits, const layout *l,
                   ist_tensor weights, ist_tensor bias) {
    int bn = r->nv * r->vl, row_tiles = row_tiles_of(r, q, l), col_tiles = ist_div_up(q->f.out, bn);
    ist_tensor partial = {0}, arrived = {0};
    if (splits > 1) {
        partial = ist_plan_tensor(p, row_tiles, col_tiles, splits, r->mr * bn * r->warps_k, IST_ELEM_F32);
        arrived = ist_plan_persistent(p, 1, row_tiles, col_tiles, 1, IST_ELEM_I32);
    }
    int inner = l->gather ? l->per_tap : l->blocked ? q->taps : l->per_tap / CHUNK;
    const ist_conv_mma_args by_value = {.shape = ist_conv_shape_of(q),
                                        .epi = ist_conv_epilogue_of(q),
                                        .norm_eps = q->norm_eps,
                                        .col_tiles = col_tiles,
                                        .by_col_tiles = ist_divider_of(col_tiles),
                                        .by_w = ist_divider_of(l->square ? l->wide : q->ow),
                                        .by_h = ist_divider_of(l->square ? l->high : q->oh),
                                        .by_inner = ist_divider_of(inner),
                                        .by_kw = ist_divider_of(q->f.kw),
                                        .tap_chunks = l->per_tap / CHUNK,
                                        .squares_x = l->wide,
                                        .squares_y = l->high,
                                        .blocks = l->blocks,
                                        .steps = l->steps,
                                        .splits = splits,
                                        .split_steps = steps_of_split(l, splits)};
    ist_defines defines = defines_of(p, q, r, l);
    ist_conv_record(p, q, r,
                    &(ist_conv_launch){
                        .isa = "nvidia/ptx+nvidia/conv_parts",
                        .defines = defines.text,
                        .groups = row_tiles * col_tiles,
                        .items = r->items,
                        .splits = splits,
                        .weights = weights,
                        .bias = bias,
                        .partial = partial,
                        .arrived = arrived,
                        .by_value = IST_STRUCT(conv_mma_args, &by_value),
                    });
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_conv *q = node;
    (void)p, (void)v;
    return q->x.elem == IST_ELEM_T;
}

static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    ist_conv_problem q = ist_conv_problem_of(node);
    return time_of(p, v->config, &q, way);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int splits) {
    const ist_conv_tile *r = v->config;
    ist_conv_problem q = ist_conv_problem_of(node);
    layout l = layout_of(r, &q);
    ist_tensor weights = {0}, bias = {0};
    if (splits > l.steps) splits = l.steps;
    splits = ist_div_up(l.steps, steps_of_split(&l, splits)); /* none without a step */
    if (pack(p, &q, &l, r->bk, &weights, &bias)) launch(p, &q, r, splits, &l, weights, bias);
}

const ist_family ist_nvidia_conv_mma = {.takes = takes, .ways = ways, .cost = cost, .emit = emit, .chunk = CHUNK, .rows = IST_REPEATS_POINTS};
