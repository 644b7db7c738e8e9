/* Convolutions on the matrix unit of x86 CPUs (AMX): packs weights as parts in bfloat16 and records the launch of
 * cl/cpu/conv_amx. A tile's bk is the number of parts: 3 for products as exact as those of floats, 1 for bfloat16. */
#include "variants/cpu/amx.h"
#include "variants/cpu/conv.h"
#include "variants/cpu/conv_lines.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <math.h>

enum { BLOCK = IST_AMX_BLOCK, DEPTH = IST_AMX_DEPTH, SCRATCH_BYTES = 1024 << 10 };

static int steps_of(const ist_conv_problem *q) {
    return ist_div_up(q->f.in, DEPTH);
}

/* bfloat16: a step has four products of two tiles, of 16 cycles each, and a little; then rounding and storing 16
 * inputs; a block's sums through memory and epilogue. The clock is lower than elsewhere. */
static ist_conv_tiling tiling(const ist_conv_tile *r, const ist_conv_problem *q) {
    const double clock = 1.15, step = 4 * 18, rounding = 4;
    int blocks = ist_div_up(q->f.out, BLOCK), steps = steps_of(q);
    return (ist_conv_tiling){
        .tile = clock * (q->taps * (steps * step * 1.05 + 20) + 300),
        .pixel = clock * (steps * DEPTH / 16 * rounding + 6),
        .pairs = steps * r->bk * DEPTH / 2.0,
        .margin = BLOCK,
        .weight_bytes = 2.0 * q->taps * steps * DEPTH * BLOCK * blocks,
        .most_bytes = ist_conv_lines_of(q).linear ? SCRATCH_BYTES / 2 : SCRATCH_BYTES,
    };
}

/* Pixels of a part in scratch: parts lie an odd number of blocks apart, so that those of one tile are in other sets of
 * the first-level cache. */
static int room_of(double pixels) {
    return ((int)pixels + BLOCK - 1) / (2 * BLOCK) * 2 * BLOCK + BLOCK;
}

/* Blocks of an item of so many lines: they end with lines where that makes no more of them. */
static double blocks_of(const ist_conv_lines *l, int lines) {
    if (l->linear) return ist_div_up(lines, BLOCK);
    int run = ist_div_up((lines - 1) * l->pitch + l->width, BLOCK), by_line = lines * ist_div_up(l->width, BLOCK);
    return by_line < run ? by_line : run;
}

/* Floats of an item's sums that lie in scratch between slices. */
static double kept_of(const ist_conv_shares *c, int steps) {
    return c->depth < steps ? ist_round_up((size_t)c->lines, BLOCK) * (double)c->cols * BLOCK : 0;
}

/* Steps of a slice: all, or of a linear layer what scratch has room for. */
static int depth_of(const ist_conv_lines *l, int lines, int cols, int steps) {
    enum { LEAST = 8 };
    double each = 2.0 * lines * 6 * DEPTH, kept = 4.0 * lines * cols * BLOCK;
    if (!l->linear || each * steps <= SCRATCH_BYTES) return steps;
    int most = kept < SCRATCH_BYTES ? (int)((SCRATCH_BYTES - kept) / each) : 0;
    return most < LEAST ? steps : ist_div_up(steps, ist_div_up(steps, most));
}

/* Estimates one way of cutting, in cycles of the clock that vectors run at: a step has 24 products of two tiles, which
 * take longer where the pixels come from the second-level cache, not from the first as those of windows do; 16 inputs
 * are split in 9 cycles before products, in 5 to 8 beside them where the layer is linear. Weights that do not
 * fit the second-level cache beside the pixels come from beyond it with every item, at 8 bytes a cycle. */
static ist_conv_shares exact_shares(const ist_plan *p, const ist_conv_problem *q, const ist_conv_lines *l, int lines,
                                    int cols, bool by_columns) {
    enum { CACHE = 1500 << 10, BYTES = 8, PARTS = IST_AMX_PARTS };
    const double step_takes = l->linear ? 600 : 520, block_more = 250, slice_more = 200, item_more = 600,
                 launch_more = 20000;
    int s = q->o->stride ? q->o->stride : 1, chunks = ist_div_up(ist_div_up(q->f.out, BLOCK), cols);
    int steps = steps_of(q), units = ist_plan_units(p), step_bytes = PARTS * 2 * DEPTH * BLOCK;
    double seen = l->linear ? lines : (double)l->planes * ((lines + (q->f.kh - 1) / s) * l->pitch + q->f.kw - 1);
    int room = room_of(seen + (l->linear ? 0 : BLOCK)), depth = depth_of(l, lines, cols, steps);
    int slices = ist_div_up(steps, depth);
    ist_conv_shares c = {.lines = lines,
                         .cols = cols,
                         .by_columns = by_columns,
                         .depth = depth,
                         .pixels = l->linear ? 2.0 * room : room};
    double weights = (double)cols * q->taps * steps * step_bytes, coming = weights / BYTES;
    double more = block_more + slice_more * (slices - 1);
    double item = cols * blocks_of(l, lines) * (q->taps * steps * step_takes + more);
    double split = seen * steps * 2 * (l->linear ? 9 - (cols < 8 ? cols : 8) / 2 : 9);
    double beside = (l->linear ? 2.0 * lines : c.pixels) * depth * PARTS * 2 * DEPTH + 4 * kept_of(&c, steps);
    bool stay = weights * (by_columns ? 1 : chunks) + beside <= CACHE;
    c.streams = !stay && !(by_columns && weights + beside <= CACHE);
    if (!stay) item = (item < coming ? coming : item) + 0.7 * coming;
    item += split / (by_columns || slices > 1 ? 1 : chunks) + item_more; /* items of the same lines split them once */
    c.cycles = item * ((double)l->maps * ist_div_up(l->lines, lines) * chunks + units / 2.0) + launch_more;
    if (stay) c.cycles += coming * chunks * (by_columns ? 1 : units) / 2;
    c.fits = beside <= SCRATCH_BYTES;
    return c;
}

static ist_conv_shares exact_cut(const ist_plan *p, const ist_conv_problem *q) {
    ist_conv_lines l = ist_conv_lines_of(q);
    int all_cols = ist_div_up(q->f.out, BLOCK), unit = l.linear ? BLOCK : 1;
    ist_conv_shares best = {0};
    for (int lines = unit; lines < l.lines + unit && lines <= 32 * unit; lines += unit)
        for (int cols = all_cols;; cols = (cols + 1) / 2) {
            for (int by_columns = 0; by_columns < (cols < all_cols ? 2 : 1); by_columns++) {
                ist_conv_shares c = exact_shares(p, q, &l, lines < l.lines ? lines : l.lines, cols, by_columns);
                if (!best.lines || (c.fits && c.cycles < best.cycles)) best = c;
            }
            if (cols == 1) break;
        }
    return best;
}

static void pack(const ist_conv_problem *q, const ist_conv_tile *r, uint32_t *dst) {
    ist_amx_pack(&q->f, r->bk, dst);
}

static void record(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r) {
    ist_conv_tiling t = tiling(r, q);
    bool linear = ist_conv_lines_of(q).linear;
    ist_conv_shares shares = r->bk == 3 ? exact_cut(p, q) : ist_conv_lines_cut(p, r, q, &t);
    int room = (int)shares.pixels, steps = steps_of(q);
    if (r->bk == 3 && linear) room /= 2;
    if (r->bk == 1 && linear) shares.pixels *= 2;
    if (r->bk == 1) shares.depth = steps;
    t.pairs = shares.depth * r->bk * DEPTH / 2.0;
    ist_defines defines = ist_defines_of(p, "-DPARTS=%d -DNV=2 -DVL=16 -DASM=%d", r->bk, ist_amx_instructions(p));
    ist_conv_lines_launch l = {.isa = "portable/vector+cpu/amx+cpu/conv_lines",
                               .defines = defines.text,
                               .part_pixels = room,
                               .more = kept_of(&shares, steps),
                               .shares = true};
    if (ist_conv_lines_pack(p, q, r, ist_amx_pairs(&q->f, r->bk), pack, &l.weights, &l.bias))
        ist_conv_lines_record(p, q, r, &t, &shares, &l);
}

/* ---- variants ---- */

/* Cycles for one item: an item's result must not depend on those beside it, so that whether this kind of sum is taken
 * cannot either. */
static double cycles_of_one(const ist_plan *p, const ist_conv *q) {
    ist_conv_problem one = ist_conv_problem_of(q);
    one.x.n = one.y.n = 1;
    return exact_cut(p, &one).cycles;
}

static const ist_variant *parts_of(const ist_plan *p) {
    int count;
    const ist_variant *v = ist_variants_of(IST_NODE_CONV, &count);
    for (int i = 0; i < count; i++)
        if (v[i].family == &ist_cpu_conv_parts && ist_variant_runs(p, &v[i])) return &v[i];
    return NULL;
}

/* Fewer than of any register tile, or not many more: tiles for a layer or two are a kernel more for the first start to
 * compile. */
double ist_conv_parts_cycles(const ist_plan *p, const ist_conv *q) {
    const double more = 1.25;
    if (!parts_of(p) || q->norm_eps > 0) return HUGE_VAL;
    double cycles = cycles_of_one(p, q);
    return more * ist_conv_panels_cycles(p, q) > cycles ? cycles : HUGE_VAL;
}

static bool takes_parts(const ist_plan *p, const ist_variant *v, const void *node) {
    double cycles = ist_conv_parts_cycles(p, node);
    (void)v;
    return cycles < HUGE_VAL && cycles < ist_winograd_cycles(p, node);
}

static double cost_of_parts(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)v, (void)way;
    return ist_conv_below_panels(p, node, exact_cut(p, &q).cycles);
}

static bool takes_bf16(const ist_plan *p, const ist_variant *v, const void *node) {
    enum { LEAST_INPUTS = 16 }; /* as in conv_bf16.c */
    const ist_conv *q = node;
    (void)p, (void)v;
    return q->filter.in >= LEAST_INPUTS && q->norm_eps <= 0;
}

static double cost_of_bf16(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    ist_conv_problem q = ist_conv_problem_of(node);
    ist_conv_tiling t = tiling(v->config, &q);
    (void)way;
    return ist_conv_below_panels(p, node, ist_conv_lines_cut(p, v->config, &q, &t).cycles);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)way;
    record(p, &q, v->config);
}

const ist_family ist_cpu_conv_parts = {.takes = takes_parts, .cost = cost_of_parts, .emit = emit};
const ist_family ist_cpu_conv_amx = {.takes = takes_bf16, .cost = cost_of_bf16, .emit = emit};
