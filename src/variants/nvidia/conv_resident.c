/* Convolution rows whose filters stay in local memory, on the matrix instructions of warpgroups with half storage
 * (cl/nvidia/conv_resident.cl): for many pixels and few inputs and channels. Weights are packed as for conv_wgmma.c. */
#include "variants/nvidia/conv.h"
#include "variants/divider.h"
#include "variants/padding_reuse.h"
#include "variants/nvidia/conv_args.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <math.h>

enum { BK = 64, BLOCK = 16, SIDE = 8, PIXELS = SIDE * SIDE, PATCH = (SIDE + 2) * (SIDE + 2) };

/* How a row does a problem; no warpgroups where it cannot. */
typedef struct layout {
    int taps, chunks, wide, high; /* squares of a line and of a column, of filters with taps */
    int warpgroups, slots, col_tiles, row_groups, turns;
} layout;

/* As many warpgroups as registers and local memory allow, then as many chunks of pixels under way. One alone would have
 * nobody who multiplies while it makes results. */
static void set_room(layout *l, const ist_conv_tile *r) {
    enum { MOST_BYTES = 202 << 10, SPARE_BYTES = 2048, REGISTERS = 65536 };
    enum { LEAST_GROUPS = 2, MOST_GROUPS = 4, MOST_SLOTS = 4 };
    int bn = r->nv * r->vl, rows = l->taps > 1 ? PATCH : PIXELS, least = l->taps > 1 ? 2 : 3;
    int room = MOST_BYTES - SPARE_BYTES - l->chunks * l->taps * bn * BK * 2 - bn * 4;
    int chunk = rows * BK * 2, results = PIXELS * bn * 2, by_registers = REGISTERS / (128 * (bn / 2 + 64));
    l->warpgroups = room > 0 ? room / (least * chunk + results) : 0;
    if (l->warpgroups > by_registers) l->warpgroups = by_registers;
    if (l->warpgroups > MOST_GROUPS) l->warpgroups = MOST_GROUPS;
    if (l->warpgroups < LEAST_GROUPS) l->warpgroups = 0;
    if (!l->warpgroups) return;
    l->slots = (room / l->warpgroups - results) / chunk;
    if (l->slots > MOST_SLOTS) l->slots = MOST_SLOTS;
}

static layout layout_of(const ist_plan *p, const ist_conv_tile *r, const ist_conv_problem *q) {
    const ist_conv_opts *o = q->o;
    layout l = {.taps = q->taps, .chunks = ist_div_up(q->f.in, BK)};
    bool keeps = ist_conv_keeps_extents(q);
    l.wide = ist_div_up(q->ow, SIDE), l.high = ist_div_up(q->oh, SIDE);
    bool fills = l.wide * l.high * PIXELS <= 1.1 * q->oh * q->ow;
    if (!(ist_conv_is_point(q) || (keeps && fills)) || ist_has(o->epi.add_before) || ist_has(o->epi.add_after))
        return l;
    set_room(&l, r);
    if (!l.warpgroups) return l;
    int tiles = keeps ? q->x.n * l.wide * l.high : ist_div_up(q->x.n * q->oh * q->ow, PIXELS);
    l.col_tiles = ist_div_up(q->f.out, r->nv * r->vl);
    l.row_groups = ist_plan_units(p) / l.col_tiles;
    if (l.row_groups > ist_div_up(tiles, l.warpgroups)) l.row_groups = ist_div_up(tiles, l.warpgroups);
    if (l.row_groups < 1) l.row_groups = 1;
    l.turns = ist_div_up(tiles, l.row_groups * l.warpgroups);
    return l;
}

static bool can(const ist_plan *p, const ist_conv_tile *r, const ist_conv_problem *q) {
    return ist_conv_wgmma_takes(q) && layout_of(p, r, q).warpgroups > 0;
}

/* Nanoseconds as those of conv_wgmma.c: filters are copied once; of a tile the slower of its way in and out, which few
 * warpgroups cannot hurry, of its products, and its share of a latency. All a fifth below what was measured, as that
 * function's are where steps are few. */
static double time_of(const ist_plan *p, const ist_conv_tile *r, const ist_conv_problem *q) {
    static const double start = 4000, weight_bytes = 59.9, copy_bytes = 31, copy_bytes_of_few = 25, products = 2300;
    static const double latency = 1200, below = 0.8;
    static const double special = 0.18; /* of an activation that is more than a maximum, shared too */
    enum { FEW = 2 };
    layout l = layout_of(p, r, q);
    int bn = r->nv * r->vl, weights = l.chunks * l.taps * bn * BK * 2;
    int pixels = l.chunks * (l.taps > 1 ? PATCH : PIXELS) * BK * 2 + PIXELS * bn * 2;
    double copy = pixels / (l.warpgroups > FEW ? copy_bytes : copy_bytes_of_few);
    double product = (double)PIXELS * bn * l.chunks * l.taps * BK / (products * r->speed);
    double tile = fmax(fmax(copy, product), (latency + product) / l.warpgroups);
    if (q->o->epi.act >= IST_ACT_SILU) tile += special * PIXELS * bn / l.warpgroups;
    return below * (start + weights / weight_bytes + l.turns * l.warpgroups * tile);
}

/* `reuse`: of a 1x1 convolution's rows. */
static void record(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, const ist_padding_reuse *reuse) {
    layout l = layout_of(p, r, q);
    int bn = r->nv * r->vl, blocks = ist_div_up(q->f.out, BLOCK), items = 128 * l.warpgroups;
    ist_tensor weights = {0}, bias = {0};
    if (!ist_conv_wgmma_pack(p, q, blocks, &weights, &bias)) return;
    const bool left_out = ist_has(reuse->content) && q->oh * q->ow % PIXELS == 0; /* no tile is of two items */
    ist_defines defines = ist_defines_of(p, "-DBN=%d -DGROUPS=%d -DSLOTS=%d -DAHEAD=%d -DTAPS=%d -DCHUNKS=%d -DACT=%d",
                                         bn, l.warpgroups, l.slots, l.slots - 2, l.taps, l.chunks, (int)q->o->epi.act);
    ist_conv_wgmma_define(&defines, q);
    if (left_out) ist_padding_reuse_define(&defines, reuse);
    const ist_conv_resident_args by_value = {.shape = ist_conv_shape_of(q),
                                             .epi = ist_conv_epilogue_of(q),
                                             .col_tiles = l.col_tiles,
                                             .by_col_tiles = ist_divider_of(l.col_tiles),
                                             .squares_x = l.wide,
                                             .squares = l.wide * l.high,
                                             .by_squares_x = ist_divider_of(l.wide),
                                             .by_squares = ist_divider_of(l.wide * l.high),
                                             .blocks = blocks,
                                             .turns = l.turns,
                                             .out = ist_padding_reuse_args_of(*reuse, q->oh)};
    ist_conv_record(p, q, r,
                    &(ist_conv_launch){
                        .isa = "nvidia/ptx+nvidia/wgmma+nvidia/conv_parts+portable/left_out",
                        .defines = defines.text,
                        .groups = l.row_groups * l.col_tiles,
                        .items = items,
                        .weights = weights,
                        .bias = bias,
                        .content = left_out ? reuse->content : (ist_tensor){0},
                        .by_value = IST_STRUCT(conv_resident_args, &by_value),
                    });
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    ist_conv_problem q = ist_conv_problem_of(node);
    return can(p, v->config, &q);
}

static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)way;
    return time_of(p, v->config, &q);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)way;
    record(p, &q, v->config, ist_conv_leave_out(node));
}

const ist_family ist_nvidia_conv_resident = {.takes = takes, .cost = cost, .emit = emit, .rows = IST_REPEATS_POINTS};
