/* Convolution rows on the matrix instructions of warpgroups with half storage: packs weights as the tiles that the
 * instruction reads and records the launch (cl/nvidia/conv_wgmma.cl). For 1x1 convolutions on the pixels themselves and
 * for windows of whole blocks of 64 channels. */
#include "variants/nvidia/conv.h"
#include "variants/divider.h"
#include "variants/padding_reuse.h"
#include "variants/nvidia/conv_args.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BK = 64, CHUNK = 8, PARTS = BK / CHUNK, BLOCK = 16, MASK_TAPS = 31 };

/* Pixels of halves that start on 16 bytes. */
static bool aligned(ist_tensor t) {
    return !ist_has(t) || (t.elem == IST_ELEM_T && t.ld % CHUNK == 0 && t.c0 % CHUNK == 0);
}

bool ist_conv_wgmma_takes(const ist_conv_problem *q) {
    bool windows = q->f.in % BK == 0 && q->taps <= MASK_TAPS;
    bool whole = q->f.out % CHUNK == 0 && aligned(q->x) && aligned(q->y) && aligned(q->o->epi.add_before) &&
                 aligned(q->o->epi.add_after);
    return q->norm_eps <= 0 && whole && (ist_conv_is_point(q) || windows);
}

/* Side of the squares of pixels of PATCHES, whose patches have PATCH_ROWS; local memory that the probe had. */
enum { SIDE = 8, PATCH_ROWS = 100, MOST_BYTES = 202 << 10, SPARE_BYTES = 2048 };

/* How a row does a problem. */
typedef struct layout {
    int patches;                          /* as in cl/nvidia/conv_wgmma.cl; 0: each tap's pixels are copied */
    bool kept;                            /* patches of all channels at a time */
    bool fills;                           /* a 3x3 layer whose map squares fill, but for a tenth */
    int wide, high;                       /* squares of a line and of a column of the map */
    int row_tiles, stages, local, copies; /* local memory, and copies of a step, both in bytes */
    int flight;                           /* steps whose products are under way beside another's */
} layout;

/* Of so many bytes of steps; two tiles of results and addends fit in any case. */
static int local_bytes(const ist_conv_tile *r, int steps) {
    int results = r->mr * r->nv * r->vl * 4;
    return (steps > results ? steps : results) + SPARE_BYTES;
}

static int side_by_side(int local) {
    enum { LOCAL_BYTES = 227 << 10 };
    return LOCAL_BYTES / local;
}

static layout layout_of(const ist_conv_tile *r, const ist_conv_problem *q) {
    enum { STAGES = 4 };
    int bm = r->mr, bn = r->nv * r->vl, step = (bm + bn) * BK * 2;
    layout l = {.wide = ist_div_up(q->ow, SIDE), .high = ist_div_up(q->oh, SIDE)};
    l.stages = r->stages, l.flight = r->warps_k;
    l.fills = ist_conv_keeps_extents(q) && l.wide * l.high * (SIDE * SIDE) <= 1.1 * q->oh * q->ow;
    if (l.fills && bm % (2 * SIDE * SIDE) == 0) {
        int patches = q->f.in > BK ? 2 : 1, pixels = bm / (SIDE * SIDE) * PATCH_ROWS * (BK * 2 + 4);
        int local = local_bytes(r, patches * pixels + r->stages * bn * BK * 2);
        int more = local_bytes(r, patches * pixels + STAGES * bn * BK * 2);
        if (more <= MOST_BYTES && side_by_side(more) == side_by_side(local)) local = more, l.stages = STAGES;
        if (local <= MOST_BYTES) {
            l.patches = patches, l.local = local, l.copies = pixels / q->taps + bn * BK * 2;
            l.row_tiles = ist_div_up(q->x.n * l.wide * l.high, bm / (SIDE * SIDE));
            return l;
        }
    }
    l.stages = r->stages, l.local = local_bytes(r, r->stages * step), l.copies = step;
    l.row_tiles = ist_div_up(q->x.n * q->oh * q->ow, bm);
    return l;
}

const ist_padding_reuse *ist_conv_leave_out(ist_conv *q) {
    if (!ist_conv_keeps_pixels(q)) q->reuse = (ist_padding_reuse){0}; /* all rows are there */
    q->reuse.left_out = ist_has(q->reuse.content);
    return &q->reuse;
}

void ist_conv_wgmma_define(ist_defines *d, const ist_conv_problem *q) {
    const ist_epilogue *e = &q->o->epi;
    if (ist_has(e->add_before)) ist_defines_add(d, " -DBEFORE");
    if (ist_has(e->add_after)) ist_defines_add(d, " -DAFTER");
    if (e->has_lab) ist_defines_add(d, " -DLAB");
}

int ist_conv_wgmma_steps(const ist_conv_problem *q) {
    return q->taps * ist_div_up(q->f.in, BK);
}

/* Nanoseconds of the device it was fitted on (perf/NOTES.md), as those of conv_mma.c: of a step the slower of its
 * copies or its products and its share of a latency, and of every round of groups its way to the first step, its
 * results and addends. */
static double time_of(const ist_plan *p, const ist_conv_tile *r, const ist_conv_problem *q) {
    static const double start = 237, copy_bytes = 59.9, latency = 114, round = 2301, store = 0.084, addend = 0.06;
    static const double special = 0.054; /* of an activation that is more than a maximum */
    /* Multiply-adds with two steps' products at a time and with one's; of 64 channels. */
    static const double products = 2850, products_alone = 2300, narrow = 0.8;
    enum { MOST_SIDE = 3, REGISTERS = 65536 };
    layout l = layout_of(r, q);
    int bm = r->mr, bn = r->nv * r->vl, side = side_by_side(l.local),
        by_registers = REGISTERS / (bm * bn + 64 * r->items);
    int units = ist_plan_units(p);
    double tiles = (double)l.row_tiles * ist_div_up(q->f.out, bn);
    double waves = ceil(tiles / units), end = store;
    if (side > MOST_SIDE) side = MOST_SIDE;
    if (side > by_registers) side = by_registers;
    if (side > waves) side = (int)waves;
    if (side < 1) side = 1;
    if (q->o->epi.act >= IST_ACT_SILU) end += special;
    end += addend * (ist_has(q->o->epi.add_before) + ist_has(q->o->epi.add_after));
    bool exposed = side == 1 && !l.patches && l.stages == r->warps_k + 2; /* copies begin when they are waited for */
    double rate = (r->warps_k ? products : products_alone) * (bn > 64 ? 1 : narrow);
    double copy = l.copies / (copy_bytes * r->speed), product = bm * bn * BK / rate;
    double step = fmax(exposed ? copy + product : fmax(copy, product), latency / side);
    return start + waves * (ist_conv_wgmma_steps(q) * step + (round + bm * bn * end) / side);
}

/* [step][channels, up to whole blocks of 16][64 halves], the 16-byte part i of channel o at i ^ (o & 7); a step
 * is 64 channels of a tap, taps before channels. */
static void pack_tiles(const ist_conv_problem *q, int rows, float *dst) {
    int steps = ist_conv_wgmma_steps(q);
    for (int step = 0; step < steps; step++)
        for (int o = 0; o < rows; o++, dst += BK)
            for (int k = 0; k < BK; k++) {
                int in = step / q->taps * BK + k, at = (k / CHUNK ^ (o & 7)) * CHUNK + k % CHUNK;
                bool real = o < q->f.out && in < q->f.in;
                dst[at] = real ? ist_conv_weight(q, o, in, step % q->taps) : 0.0f;
            }
}

bool ist_conv_wgmma_pack(ist_plan *p, const ist_conv_problem *q, int blocks, ist_tensor *weights, ist_tensor *bias) {
    size_t size = BK, width = (size_t)blocks * BLOCK;
    if (!ist_mul_size(size, (size_t)ist_conv_wgmma_steps(q), &size) || !ist_mul_size(size, width, &size) ||
        size > INT_MAX) {
        ist_plan_fail(p, IST_E_LIMIT, "%s: filter [%d,%d,%d,%d] is too large", q->label, q->f.out, q->f.in, q->f.kh,
                      q->f.kw);
        return false;
    }
    float *w = malloc(size * sizeof *w), *b = calloc(width, sizeof *b);
    if (w && b) {
        if (ist_plan_has_values(p)) pack_tiles(q, blocks * BLOCK, w);
        for (int o = 0; o < q->f.out && q->f.b; o++) b[o] = q->f.b[o];
        *weights = ist_plan_const(p, w, 1, ist_conv_wgmma_steps(q), blocks * BLOCK, BK, IST_ELEM_T, q->label);
        *bias = ist_plan_const(p, b, 1, 1, 1, (int)width, IST_ELEM_F32, q->label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, size);
    }
    free(w);
    free(b);
    return !ist_plan_status(p);
}

/* Steps in local memory: from how many on more than a row's own are worth it, and at most. They fill so many bytes and
 * no more: copies presumably need room in the first-level cache, which has what local memory leaves of a unit's 256 KiB
 * (perf/notes/gpu_convolutions). */
enum { LEAST_STEPS = 6, MOST_STEPS = 24, FILL_BYTES = 163 << 10 };

/* As many steps of `copies` bytes as find room with `rest` bytes beside them; false where they are too few. */
static bool fill(const ist_conv_tile *r, const ist_conv_problem *q, int copies, int rest, layout *l) {
    const int steps = ist_conv_wgmma_steps(q);
    int stages = (FILL_BYTES - SPARE_BYTES - rest) / copies;
    if (stages > MOST_STEPS) stages = MOST_STEPS;
    if (stages > steps) stages = steps;
    if (stages < LEAST_STEPS) return false;
    l->stages = stages, l->flight = 1, l->local = local_bytes(r, stages * copies + rest);
    return true;
}

/* Places for the patches of all blocks of channels, if steps of weights find room beside them. */
static bool keep(const ist_conv_tile *r, const ist_conv_problem *q, layout *l) {
    const int squares = r->mr / (SIDE * SIDE), blocks = q->f.in / BK, rows = squares * PATCH_ROWS;
    const int patch = (int)ist_round_up((size_t)rows * BK * 2, 1024);
    if (!l->fills || blocks > FILL_BYTES / patch) return false;
    if (!fill(r, q, r->nv * r->vl * BK * 2, blocks * patch + rows * (int)sizeof(int), l)) return false;
    l->patches = blocks, l->kept = true, l->row_tiles = ist_div_up(q->x.n * l->wide * l->high, squares);
    return true;
}

/* Where each group has a compute unit to itself more copies are under way, and two steps' products at a time: patches
 * are kept, else steps fill the room; of patches that take turns as many as leave two steps in which the next are
 * copied. */
static void deepen(const ist_plan *p, const ist_conv_tile *r, const ist_conv_problem *q, layout *l) {
    const int bn = r->nv * r->vl, weights = bn * BK * 2;
    if (l->row_tiles * ist_div_up(q->f.out, bn) > ist_plan_units(p) || keep(r, q, l)) return;
    if (!l->patches) {
        fill(r, q, l->copies, 0, l);
        return;
    }
    const int most = q->taps - 1 + l->flight, more = (FILL_BYTES - l->local) / weights;
    const int stages = l->stages + more < most ? l->stages + more : most;
    if (stages > l->stages) l->local += (stages - l->stages) * weights, l->stages = stages;
}

/* `reuse`: of a 1x1 convolution's rows. `top_steps`: of what comes from the addend, which is a source then. */
static void record(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, const ist_padding_reuse *reuse,
                   int top_steps) {
    int bn = r->nv * r->vl, blocks = ist_div_up(q->f.out, BLOCK), col_tiles = ist_div_up(q->f.out, bn);
    layout l = layout_of(r, q);
    deepen(p, r, q, &l);
    char patches[32] = "";
    if (l.patches) snprintf(patches, sizeof patches, " -DPATCHES=%d%s", l.patches, l.kept ? " -DKEPT" : "");
    ist_tensor weights = {0}, bias = {0};
    if (!ist_conv_wgmma_pack(p, q, blocks, &weights, &bias)) return;
    ist_defines defines =
        ist_defines_of(p, "-DBN=%d -DGROUPS=%d -DEACH=%d -DSTAGES=%d -DFLIGHT=%d -DAHEAD=%d -DACT=%d%s", bn, r->warps_m,
                       r->warps_n, l.stages, l.flight, l.stages - 2 - l.flight, (int)q->o->epi.act,
                       l.patches              ? patches
                       : ist_conv_is_point(q) ? " -DPOINT"
                                              : "");
    if (top_steps)
        ist_defines_add(&defines, " -DTOP=%d", top_steps);
    else
        ist_conv_wgmma_define(&defines, q);
    ist_padding_reuse_define(&defines, reuse);
    const ist_conv_wgmma_args by_value = {.shape = ist_conv_shape_of(q),
                                          .epi = ist_conv_epilogue_of(q),
                                          .col_tiles = col_tiles,
                                          .by_col_tiles = ist_divider_of(col_tiles),
                                          .by_w = ist_divider_of(q->ow),
                                          .by_h = ist_divider_of(q->oh),
                                          .by_taps = ist_divider_of(q->taps),
                                          .by_kw = ist_divider_of(q->f.kw),
                                          .blocks = blocks,
                                          .steps = ist_conv_wgmma_steps(q),
                                          .squares_x = l.wide,
                                          .squares = l.wide * l.high,
                                          .by_squares_x = ist_divider_of(l.wide),
                                          .by_squares = ist_divider_of(l.wide * l.high),
                                          .out = ist_padding_reuse_args_of(*reuse, q->oh)};
    ist_conv_record(p, q, r,
                    &(ist_conv_launch){
                        .isa = "nvidia/ptx+nvidia/wgmma+nvidia/conv_parts+portable/left_out",
                        .defines = defines.text,
                        .groups = l.row_tiles * col_tiles,
                        .items = r->items,
                        .weights = weights,
                        .bias = bias,
                        .content = reuse->content,
                        .by_value = IST_STRUCT(conv_wgmma_args, &by_value),
                    });
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)p, (void)v;
    return ist_conv_wgmma_takes(&q);
}

static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)way;
    return time_of(p, v->config, &q);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)way;
    record(p, &q, v->config, ist_conv_leave_out(node), 0);
}

const ist_family ist_nvidia_conv_wgmma = {.takes = takes, .cost = cost, .emit = emit, .rows = IST_REPEATS_POINTS};

/* ---- a source more ---- */

const ist_variant *ist_conv_wgmma_best(const ist_plan *p, const ist_conv_problem *q, int *groups) {
    int count;
    const ist_variant *v = ist_variants_of(IST_NODE_CONV, &count), *best = NULL;
    double least = 0;
    for (int i = 0; i < count; i++) {
        if (v[i].family != &ist_nvidia_conv_wgmma) continue;
        const double time = time_of(p, v[i].config, q);
        if (!best || time < least) best = &v[i], least = time;
    }
    if (best) {
        const ist_conv_tile *r = best->config;
        *groups = layout_of(r, q).row_tiles * ist_div_up(q->f.out, r->nv * r->vl);
    }
    return best;
}

void ist_conv_wgmma_with_top(ist_plan *p, const ist_conv_problem *q, ist_tensor top) {
    int groups;
    ist_conv_opts o = *q->o;
    ist_conv_problem both = *q;
    o.epi.add_before = top;
    o.epi.up2 = true;
    both.o = &o;
    const ist_variant *v = ist_conv_wgmma_best(p, q, &groups);
    const ist_padding_reuse none = {0};
    if (v) record(p, &both, v->config, &none, top.c / BK);
}
