/* Convolution rows on the matrix instructions behind matrix/matrix, half storage: packs weights in the order of the
 * instruction's fragments and records the launch.
 *
 * The product runs over chunks of eight inputs, tap by tap the channels, padded to a multiple of eight
 * (cl/matrix/conv.cl). No device with these instructions has been at hand: the rows stand behind probes, and their
 * index arithmetic is tested by emulation (tests/op_conv_matrix.c). */
#include "variants/conv.h"
#include "variants/divider.h"
#include "variants/matrix/conv_args.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <limits.h>
#include <stdlib.h>

enum { CHUNK = 8 };

/* The part of an instruction's fragment of b that one entry of the packed weights stands for. */
typedef struct instruction {
    int lanes; /* of a subgroup: tells them apart */
    const char *option;
    int depth, cols;                             /* of b */
    void (*place)(int number, int *k, int *col); /* where half `number` of a fragment comes from */
} instruction;

/* Lane by lane, 16 columns wide, eight or sixteen inputs each. */
static void place_mfma(int number, int *k, int *col) {
    *k = number / 8 / 16 * 8 + number % 8;
    *col = number / 8 % 16;
}
static void place_wmma(int number, int *k, int *col) {
    *k = number % 16;
    *col = number / 16;
}
/* Two inputs of all eight columns, then the next two. */
static void place_dpas(int number, int *k, int *col) {
    *k = number / 16 * 2 + number % 2;
    *col = number / 2 % 8;
}

static const instruction *instruction_of(const ist_conv_tile *r) {
    static const instruction all[] = {{64, "-DMATRIX_MFMA", 32, 16, place_mfma},
                                      {32, "-DMATRIX_WMMA", 16, 16, place_wmma},
                                      {8, "-DMATRIX_DPAS", 16, 8, place_dpas}};
    const instruction *found = all;
    while (r->warps_k != found->lanes) found++;
    return found;
}

/* How a row counts a problem's inputs and channels. */
typedef struct layout {
    int chunks;         /* of a tap */
    int steps;          /* of BK inputs */
    int depths, blocks; /* fragments along the inputs, whole steps; along the channels */
} layout;

static layout layout_of(const ist_conv_tile *r, const ist_conv_problem *q) {
    const instruction *m = instruction_of(r);
    layout l = {.chunks = ist_div_up(q->f.in, CHUNK)};
    l.steps = ist_div_up(q->taps * l.chunks * CHUNK, r->bk);
    l.depths = l.steps * (r->bk / m->depth);
    l.blocks = ist_div_up(q->f.out, m->cols);
    return l;
}

/* Nanoseconds: multiply-adds of whole tiles and what a step gathers and loads for them, by the busiest compute unit.
 * The weights of the two are arithmetic about such devices, not a measurement. */
static double time_of(const ist_plan *p, const ist_conv_tile *r, const ist_conv_problem *q) {
    const double load = 32, start = 8, unit = 1.0 / 64;
    int bm = r->mr, bn = r->nv * r->vl;
    double tiles = (double)ist_div_up(q->x.n * q->oh * q->ow, bm) * ist_div_up(q->f.out, bn);
    double busiest = ist_div_up((int)(tiles < INT_MAX ? tiles : INT_MAX), ist_plan_units(p));
    return unit * busiest * (layout_of(r, q).steps + start) * ((double)bm * bn + load * (bm + bn));
}

/* [depth][block][half of the fragment], zeros where there is no input or channel. */
static void pack_fragments(const ist_conv_problem *q, const layout *l, const instruction *m, float *dst) {
    for (int depth = 0; depth < l->depths; depth++)
        for (int block = 0; block < l->blocks; block++)
            for (int e = 0; e < m->depth * m->cols; e++) {
                int k, col;
                m->place(e, &k, &col);
                int input = depth * m->depth + k, tap = input / (l->chunks * CHUNK), in = input % (l->chunks * CHUNK);
                int o = block * m->cols + col;
                bool real = tap < q->taps && in < q->f.in && o < q->f.out;
                *dst++ = real ? ist_conv_weight(q, o, in, tap) : 0.0f;
            }
}

static bool pack(ist_plan *p, const ist_conv_problem *q, const layout *l, const instruction *m, ist_tensor *weights,
                 ist_tensor *bias) {
    int fragment = m->depth * m->cols, width = ist_div_up(q->f.out, CHUNK) * CHUNK;
    size_t size = (size_t)fragment;
    if (!ist_mul_size(size, (size_t)l->depths, &size) || !ist_mul_size(size, (size_t)l->blocks, &size) ||
        size > INT_MAX) {
        ist_plan_fail(p, IST_E_LIMIT, "%s: filter [%d,%d,%d,%d] is too large", q->label, q->f.out, q->f.in, q->f.kh,
                      q->f.kw);
        return false;
    }
    float *w = malloc(size * sizeof *w), *b = calloc((size_t)width, sizeof *b);
    if (w && b) {
        pack_fragments(q, l, m, w);
        for (int o = 0; q->f.b && o < q->f.out; o++) b[o] = q->f.b[o];
        *weights = ist_plan_const(p, w, 1, l->depths, l->blocks, fragment, IST_ELEM_T, q->label);
        *bias = ist_plan_const(p, b, 1, 1, 1, width, IST_ELEM_F32, q->label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, size);
    }
    free(w);
    free(b);
    return !ist_plan_status(p);
}

static bool aligned(ist_tensor t) {
    return !ist_has(t) || (t.ld % CHUNK == 0 && t.c0 % CHUNK == 0);
}

static void launch(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r, const layout *l, const instruction *m,
                   ist_tensor weights, ist_tensor bias) {
    const ist_conv_opts *o = q->o;
    bool y32 = q->y.elem == IST_ELEM_F32;
    bool whole = !y32 && aligned(q->x) && aligned(q->y) && aligned(o->epi.add_before) && aligned(o->epi.add_after);
    int bn = r->nv * r->vl, row_tiles = ist_div_up(q->x.n * q->oh * q->ow, r->mr);
    ist_defines defines =
        ist_defines_of(p, "%s -DVL=8 -DBM=%d -DBN=%d -DWM=%d -DWN=%d -DBK=%d -DACT=%d%s%s", m->option, r->mr, bn,
                       r->warps_m, r->warps_n, r->bk, (int)o->epi.act, whole ? " -DALIGNED" : "", y32 ? " -DY32" : "");
    const ist_conv_matrix_args by_value = {.shape = ist_conv_shape_of(q),
                                           .epi = ist_conv_epilogue_of(q),
                                           .tap_chunks = l->chunks,
                                           .blocks = l->blocks,
                                           .steps = l->steps,
                                           .by_w = ist_divider_of(q->ow),
                                           .by_h = ist_divider_of(q->oh),
                                           .by_tap_chunks = ist_divider_of(l->chunks),
                                           .by_kw = ist_divider_of(q->f.kw)};
    ist_launch launch = {
        .label = q->label,
        .op = r->op,
        .isa = "portable/vector+matrix/matrix",
        .defines = defines.text,
        .kernel = "conv",
        .dims = 3,
        .global = {(size_t)row_tiles * (size_t)r->items, (size_t)ist_div_up(q->f.out, bn), 1},
        .local = {(size_t)r->items, 1, 1},
        .args = {IST_IN(q->x), IST_IN(weights), IST_IN(bias), IST_OUT(q->y), IST_IN(o->epi.add_before),
                 IST_IN(o->epi.add_after), IST_IN(ist_plan_current_limit(p)), IST_STRUCT(conv_matrix_args, &by_value)},
        .arg_count = 8,
        .flops = 2.0 * q->x.n * q->oh * q->ow * q->taps * q->f.in * q->f.out,
        .bytes = ist_conv_bytes(p, q, 2),
    };
    ist_plan_launch(p, &launch);
}

static void record(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *row) {
    const instruction *m = instruction_of(row);
    layout l = layout_of(row, q);
    ist_tensor weights = {0}, bias = {0};
    if (pack(p, q, &l, m, &weights, &bias)) launch(p, q, row, &l, m, weights, bias);
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)p, (void)v;
    return q.x.elem == IST_ELEM_T && q.norm_eps <= 0;
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

const ist_family ist_matrix_conv = {.takes = takes, .cost = cost, .emit = emit, .rows = IST_REPEATS_POINTS};
