/* Convolution rows whose groups stay and walk over the tiles of many pixels, on the matrix instructions of warpgroups
 * with half storage (cl/nvidia/conv_persistent.cl). Weights are packed as for conv_wgmma.c. */
#include "variants/nvidia/conv.h"
#include "variants/divider.h"
#include "variants/nvidia/conv_args.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <math.h>

enum { BK = 64, BLOCK = 16, SIDE = 8, PIXELS = SIDE * SIDE, PATCH = (SIDE + 2) * (SIDE + 2) };

/* How a row does a problem. */
typedef struct layout {
    int taps, wide, high; /* squares of a line and of a column, of filters with taps */
    int local, copies;    /* local memory, and copies of a step, both in bytes */
    int tiles, col_tiles, groups, turns;
} layout;

static layout layout_of(int units, const ist_conv_tile *r, const ist_conv_problem *q) {
    enum { SPARE_BYTES = 1024 };
    int bm = r->mr, bn = r->nv * r->vl, strips = bm / PIXELS;
    layout l = {.taps = q->taps, .wide = ist_div_up(q->ow, SIDE), .high = ist_div_up(q->oh, SIDE)};
    int patches = strips * PATCH * BK * 2, table = strips * PATCH * 4;
    int steps = r->stages * (bn + (l.taps > 1 ? 0 : bm)) * BK * 2;
    l.local = steps + (l.taps > 1 ? 2 * (patches + table) : 0) + 2 * bn * 4 + SPARE_BYTES;
    l.copies = bn * BK * 2 + (l.taps > 1 ? patches / l.taps : bm * BK * 2);
    l.col_tiles = ist_div_up(q->f.out, bn);
    l.tiles = l.col_tiles *
              (l.taps > 1 ? ist_div_up(q->x.n * l.wide * l.high, strips) : ist_div_up(q->x.n * q->oh * q->ow, bm));
    l.groups = units < l.tiles ? units : l.tiles;
    l.turns = l.groups ? ist_div_up(l.tiles, l.groups) : 0;
    return l;
}

/* An addend for each pixel. */
static bool straight(ist_tensor addend, const ist_conv_problem *q) {
    return !ist_has(addend) || addend.n == q->y.n;
}

static bool can(const ist_conv_tile *r, const ist_conv_problem *q) {
    enum { LEAST_STEPS = 3, MOST_BYTES = 202 << 10 };
    bool keeps = ist_conv_keeps_extents(q);
    bool fills = ist_div_up(q->ow, SIDE) * ist_div_up(q->oh, SIDE) * PIXELS <= 1.1 * q->oh * q->ow;
    const ist_epilogue *e = &q->o->epi;
    bool one = !ist_has(e->add_before) || !ist_has(e->add_after);
    bool squares = keeps && fills && !e->up2 && straight(e->add_before, q) && straight(e->add_after, q);
    return ist_conv_wgmma_takes(q) && one && (ist_conv_is_point(q) || squares) &&
           ist_conv_wgmma_steps(q) >= LEAST_STEPS && layout_of(1, r, q).local <= MOST_BYTES;
}

/* Nanoseconds as those of conv_wgmma.c, a tenth below what was measured: of a step the slower of its copies or its
 * products, of a tile the results and addends; no less than memory takes. Not for groups that have one tile. */
static double time_of(const ist_plan *p, const ist_conv_tile *r, const ist_conv_problem *q) {
    static const double start = 2000, copy_bytes = 59.2, products = 3095, memory_bytes = 33.9;
    static const double store = 0.056, addend = 0.059, special = 0.037; /* as there */
    int units = ist_plan_units(p), bm = r->mr, bn = r->nv * r->vl;
    layout l = layout_of(units, r, q);
    if (l.turns < 2) return HUGE_VAL;
    int addends = ist_has(q->o->epi.add_before) + ist_has(q->o->epi.add_after);
    double step = fmax(l.copies / (copy_bytes * r->speed), (double)bm * bn * BK / products);
    double result = store + addends * addend + (q->o->epi.act >= IST_ACT_SILU ? special : 0);
    double bytes = 2.0 * q->x.n * q->oh * q->ow * (q->f.in + q->f.out * (1 + addends)) / units;
    return start + fmax(l.turns * (ist_conv_wgmma_steps(q) * step + bm * bn * result), bytes / memory_bytes);
}

static void record(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r) {
    int bn = r->nv * r->vl, blocks = ist_div_up(q->f.out, BLOCK);
    layout l = layout_of(ist_plan_units(p), r, q);
    ist_tensor weights = {0}, bias = {0};
    if (!ist_conv_wgmma_pack(p, q, blocks, &weights, &bias)) return;
    ist_defines defines =
        ist_defines_of(p, "-DBN=%d -DGROUPS=%d -DEACH=%d -DSTAGES=%d -DAHEAD=%d -DTAPS=%d -DACT=%d", bn, r->warps_m,
                       r->warps_n, r->stages, r->stages - 3, l.taps, (int)q->o->epi.act);
    ist_conv_wgmma_define(&defines, q);
    bool squares = l.taps > 1;
    const ist_conv_persistent_args by_value = {.shape = ist_conv_shape_of(q),
                                               .epi = ist_conv_epilogue_of(q),
                                               .col_tiles = l.col_tiles,
                                               .by_col_tiles = ist_divider_of(l.col_tiles),
                                               .by_w = ist_divider_of(squares ? l.wide : q->ow),
                                               .by_h = ist_divider_of(squares ? l.wide * l.high : q->oh),
                                               .blocks = blocks,
                                               .steps = ist_conv_wgmma_steps(q),
                                               .squares_x = l.wide,
                                               .squares = l.wide * l.high,
                                               .turns = l.turns};
    ist_conv_record(p, q, r,
                    &(ist_conv_launch){
                        .isa = "nvidia/ptx+nvidia/wgmma+nvidia/conv_parts",
                        .defines = defines.text,
                        .groups = l.groups,
                        .items = r->items,
                        .weights = weights,
                        .bias = bias,
                        .by_value = IST_STRUCT(conv_persistent_args, &by_value),
                    });
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)p;
    return can(v->config, &q);
}

static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)way;
    return time_of(p, v->config, &q);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)way;
    record(p, &q, v->config);
}

const ist_family ist_nvidia_conv_persistent = {.takes = takes, .cost = cost, .emit = emit, .rows = IST_REPEATS_POINTS};
