/* Winograd convolutions on CPUs: chooses the block, transforms the filters and records the launch. */
#include "variants/cpu/conv.h"
#include "variants/cpu/conv_args.h"
#include "variants/cpu/weights.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* Tiles by channels of the kernel's register tile; floats of scratch for each group; tiles of a block at most. */
enum { TILE = 384, ROOM = 128 << 10, MAX_BLOCK = 96 };
enum { FIRST_CACHE = 10 << 10 }; /* floats of it for one register tile's inputs and the filters */

typedef struct grid {
    int down, across, tiles, block, cols, rows; /* of the register tile */
} grid;

static int extent(int size, int near, int far) {
    return size + near + far - 2;
}

/* Tiles of 2x2 results, and how many of them make a block: what that holds, but sixteen blocks for every
 * compute unit when that leaves blocks of two register tiles; one register tile where inputs, which products then take
 * the place of, and filters stay in the first-level cache, with vectors of 16 floats (`wide`). Block 0: not even one register tile has room. */
static grid grid_of(const ist_plan *p, bool wide, ist_tensor x, int out, const ist_conv_opts *o) {
    grid g = {.down = ist_div_up(extent(x.h, o->top, o->bottom), 2),
              .across = ist_div_up(extent(x.w, o->left, o->right), 2),
              .cols = out % 32 ? 16 : 32};
    g.rows = TILE / g.cols;
    g.tiles = x.n * g.down * g.across;
    int fit = ROOM / (16 * (x.c + g.cols)) / g.rows, even = ist_div_up(g.tiles, 16 * ist_plan_units(p) * g.rows);
    if (even < 2) even = 2;
    bool small = wide && x.c >= g.cols && 16 * x.c * (g.rows + out) <= FIRST_CACHE;
    int most = small ? 1 : MAX_BLOCK / g.rows;
    if (fit > most) fit = most;
    g.block = (fit < even ? fit : even) * g.rows;
    return g;
}

/* Channels of both sides are multiples of 16. */
static bool fits(const ist_plan *p, const ist_conv *q) {
    const ist_filter *f = &q->filter;
    if (f->kh != 3 || f->kw != 3 || q->o.stride > 1 || q->norm_eps > 0 || f->in % 16 || f->out < 16 || f->out % 16)
        return false;
    return grid_of(p, true, q->x, f->out, &q->o).block > 0;
}

/* For a tile 16 products of two vectors a cycle, of which 65 % are reached, and the transforms. Enough tiles use a
 * block's transformed filters often. */
double ist_winograd_cycles(const ist_plan *p, const ist_conv *q) {
    enum { LEAST_TILES = 192 };
    double in = q->filter.in, out = q->filter.out;
    if (ist_plan_bf16(p) || ist_has(q->o.pool) || !fits(p, q) ||
        grid_of(p, true, q->x, q->filter.out, &q->o).tiles < LEAST_TILES)
        return HUGE_VAL;
    ist_tensor one = q->x;
    one.n = 1;
    return grid_of(p, true, one, q->filter.out, &q->o).tiles * (16 * in * out / (2 * 16 * 0.65) + 6.25 * (in + out));
}

/* ---- weights ---- */

/* G g G^T of one filter, G = [1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1]. */
static void transform(const float *g, double u[16]) {
    double t[4][3];
    for (int j = 0; j < 3; j++) {
        double a = g[j], b = g[3 + j], c = g[6 + j];
        t[0][j] = a;
        t[1][j] = (a + b + c) / 2;
        t[2][j] = (a - b + c) / 2;
        t[3][j] = c;
    }
    for (int i = 0; i < 4; i++) {
        u[4 * i] = t[i][0];
        u[4 * i + 1] = (t[i][0] + t[i][1] + t[i][2]) / 2;
        u[4 * i + 2] = (t[i][0] - t[i][1] + t[i][2]) / 2;
        u[4 * i + 3] = t[i][2];
    }
}

/* [column tile][16][in][cols] */
static void pack_filters(const ist_filter *f, int cols, float *dst) {
    size_t in = (size_t)f->in, width = (size_t)cols;
    for (int o = 0; o < f->out; o++)
        for (size_t i = 0; i < in; i++) {
            double u[16];
            transform(f->w + ((size_t)o * in + i) * 9, u);
            for (size_t k = 0; k < 16; k++)
                dst[((size_t)(o / cols) * 16 * in + k * in + i) * width + (size_t)(o % cols)] = (float)u[k];
        }
}

static bool pack(ist_plan *p, const ist_filter *f, int cols, const char *label, ist_tensor *weights, ist_tensor *bias) {
    size_t count = 16 * (size_t)f->out;
    float *u = NULL, *b = calloc((size_t)f->out, sizeof *b);
    if (ist_mul_size(count, (size_t)f->in, &count)) u = calloc(count, sizeof *u);
    if (u && b) {
        pack_filters(f, cols, u);
        for (int o = 0; o < f->out && f->b; o++) b[o] = f->b[o];
        *weights = ist_plan_const_bytes(p, u, count * sizeof *u, label);
        *bias = ist_plan_const_bytes(p, b, (size_t)f->out * sizeof *b, label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to transform %d x %d filters", label, f->out, f->in);
    }
    free(u);
    free(b);
    return !ist_plan_status(p);
}

/* ---- launch ---- */

static void record(ist_plan *p, const ist_conv_problem *q, grid g) {
    const ist_filter *f = &q->f;
    const ist_conv_opts *o = q->o;
    const char *label = q->label;
    ist_tensor x = q->x, y = q->y;
    ist_tensor weights, bias;
    if (!pack(p, f, g.cols, label, &weights, &bias)) return;
    bool half = ist_plan_half(p);
    double elem = half ? 2 : 4, products = (double)x.c * f->out;
    ist_defines defines =
        ist_defines_of(p, "-DVL=16 -DCOLS=%d -DROOM=%d%s%s", g.cols, (int)ROOM,
                       half && x.elem == IST_ELEM_F32 ? " -DX32" : "", half && y.elem == IST_ELEM_F32 ? " -DY32" : "");
    const ist_winograd_args by_value = {.shape = ist_conv_shape_of(q),
                                        .epi = ist_conv_epilogue_of(q),
                                        .item_tiles = g.block,
                                        .down = g.down,
                                        .across = g.across,
                                        .backwards = ist_plan_work_turn(p)};
    ist_launch l = {
        .label = label,
        .op = "cpu/winograd",
        .isa = "portable/vector",
        .defines = defines.text,
        .kernel = "winograd",
        .dims = 1,
        .global = {(size_t)ist_plan_units(p)},
        .local = {1},
        .args = {IST_IN(x), IST_IN(weights), IST_IN(bias),
                 IST_OUT(ist_plan_tensor(p, 1, 1, ist_plan_units(p), ROOM, IST_ELEM_F32)), IST_OUT(y),
                 IST_IN(o->epi.add_before), IST_IN(o->epi.add_after), IST_IN(ist_plan_current_limit(p)),
                 IST_STRUCT(winograd_args, &by_value), IST_INOUT(ist_plan_work_queue(p))},
        .arg_count = 10,
        .shares = true,
        .flops = 2 * 9 * products * ist_pixels(y), /* of the convolution, as for every row; 4/9 of them are done */
        .bytes = elem * ((double)ist_pixels(x) * x.c + (double)ist_pixels(y) * y.c) + 4 * 16 * products,
    };
    ist_plan_launch(p, &l);
}

/* ---- variants ---- */

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    double cycles = ist_winograd_cycles(p, node);
    (void)v;
    return cycles < HUGE_VAL && !(ist_conv_parts_cycles(p, node) < cycles);
}

static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    (void)v, (void)way;
    return ist_conv_below_panels(p, node, ist_winograd_cycles(p, node));
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)way;
    record(p, &q, grid_of(p, ist_panel_of(v) == 64, q.x, q.f.out, q.o));
}

const ist_family ist_cpu_winograd = {.takes = takes, .cost = cost, .emit = emit};
