/* The convolution row for few channels on matrix instructions with half storage, whose filters and pixels are in
 * registers (cl/nvidia/conv_direct.cl): packs weights in the order of its fragments and records the launch. */
#include "variants/conv.h"
#include "variants/divider.h"
#include "variants/nvidia/conv_args.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

enum {
    PIXELS = 16,
    WARPS = 4,
    LANES = 32,
    EIGHT = 8,
    IMAGE = 3,
    WORDS = 5 /* of an image's line of a window */,
    MOST_BLOCKS = 8
};

static int steps_of(const ist_filter *f) {
    int taps = f->kh * f->kw;
    return f->in == IMAGE   ? ist_div_up(f->kh * WORDS, EIGHT)
           : f->in == EIGHT ? ist_div_up(taps, 2)
                            : taps * (f->in / 16);
}

static bool aligned(ist_tensor t) {
    return t.elem == IST_ELEM_T && t.ld % EIGHT == 0 && t.c0 % EIGHT == 0;
}

static bool can(const ist_conv_problem *q) {
    /* Registers: two words of each filter's fragment, four of each step's pixels. */
    enum { MOST_FRAGMENTS = 36, MOST_STEPS = 18 };
    const ist_conv_opts *o = q->o;
    bool image =
        q->f.in == IMAGE && q->x.ld == IMAGE && q->f.kw == 3 && o->stride == 2 && o->left == 1 && q->x.w % 2 == 0;
    bool few = (q->f.in == EIGHT || (q->f.in > 0 && q->f.in % 16 == 0)) && aligned(q->x);
    bool plain =
        q->norm_eps <= 0 && !ist_has(o->epi.add_before) && !ist_has(o->epi.add_after) && q->x.elem == IST_ELEM_T;
    int steps = steps_of(&q->f), blocks = q->f.out / EIGHT;
    return plain && (image || few) && q->f.out % EIGHT == 0 && aligned(q->y) && steps <= MOST_STEPS &&
           blocks <= MOST_BLOCKS && steps * blocks <= MOST_FRAGMENTS;
}

/* Whether the launch makes opts->pool as well. */
static bool pools(const ist_conv_problem *q) {
    const ist_conv_opts *o = q->o;
    bool windows =
        q->f.kh == 2 && q->f.kw == 2 && o->stride <= 1 && !o->top && !o->left && q->oh == q->x.h && q->ow == q->x.w;
    return ist_has(o->pool) && windows && q->f.in % 16 == 0 && aligned(o->pool);
}

/* Tiles that a warp makes, and groups: what a device holds at a time, by registers as compilers gave them out, and no
 * more than there are tiles. */
static void share(const ist_plan *p, const ist_conv_problem *q, int *turns, int *groups) {
    enum { REGISTERS = 65536, OTHERS = 24, MOST_PIXELS = 32, MOST = 12 };
    int steps = steps_of(&q->f), blocks = q->f.out / EIGHT;
    int pixels = 4 * steps < MOST_PIXELS ? 4 * steps : MOST_PIXELS,
        fragments = 6 * blocks + 2 * steps * blocks + pixels;
    int side = REGISTERS / (LANES * WARPS * (OTHERS + fragments)),
        tiles = ist_div_up(q->x.n * q->oh * q->ow, PIXELS * WARPS);
    if (side > MOST) side = MOST;
    if (side < 1) side = 1;
    *turns = ist_div_up(tiles, ist_plan_units(p) * side);
    *groups = ist_div_up(tiles, *turns);
}

/* Nanoseconds as those of conv_mma.c: the slower of memory's rate and the tiles' instructions, beside a start. */
static double time_of(const ist_plan *p, const ist_conv_problem *q) {
    static const double start = 3000, bytes = 22, turn = 700, product = 1.5, step = 4;
    int turns, groups, units = ist_plan_units(p), steps = steps_of(&q->f);
    share(p, q, &turns, &groups);
    double tiles = (double)ist_div_up(groups, units) * WARPS * turns;
    int stride = q->o->stride ? q->o->stride : 1;
    double pixel = 2.0 * (q->f.out + q->f.in * fmin(stride * stride, q->taps));
    double work = fmax(PIXELS * pixel / bytes, steps * (step + product * q->f.out / EIGHT));
    return start + fmax(tiles * work, turns * turn);
}

/* The weight of half `e` of word `h` of a lane's fragment of a step, t = lane % 4, of output o; 0 for padding. */
static float weight_of(const ist_conv_problem *q, int step, int t, int h, int e, int o) {
    const ist_filter *f = &q->f;
    if (f->in == IMAGE) { /* five words of a line, the first half of which is in front of the window */
        int word = t + 4 * (2 * step + h), ky = word / WORDS, at = word % WORDS * 2 + e - 1;
        if (ky >= f->kh || at < 0) return 0.0f;
        return ist_conv_weight(q, o, at % IMAGE, ky * f->kw + at / IMAGE);
    }
    int per_tap = f->in / 16, tap = f->in == EIGHT ? 2 * step + h : step / per_tap;
    int channel = f->in == EIGHT ? 2 * t + e : f->in / 4 * t + 4 * (step % per_tap) + 2 * h + e;
    return tap < q->taps ? ist_conv_weight(q, o, channel, tap) : 0.0f;
}

/* [step][block][lane][two words of two halves]: columns of a block are outputs in the order in which a lane stores its
 * results, two of each block. */
static void pack(const ist_conv_problem *q, float *dst) {
    int blocks = q->f.out / EIGHT, steps = steps_of(&q->f);
    for (int s = 0; s < steps; s++)
        for (int j = 0; j < blocks; j++)
            for (int lane = 0; lane < LANES; lane++)
                for (int k = 0; k < 4; k++) {
                    int g = lane / 4, o = g / 2 * (2 * blocks) + 2 * j + g % 2;
                    *dst++ = weight_of(q, s, lane % 4, k / 2, k % 2, o);
                }
}

static void record(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r) {
    int blocks = q->f.out / EIGHT, steps = steps_of(&q->f), turns, groups;
    size_t fragments = (size_t)steps * (size_t)blocks;
    float *w = malloc(fragments * LANES * 4 * sizeof *w), *b = calloc((size_t)q->f.out, sizeof *b);
    if (w && b) {
        pack(q, w);
        for (int o = 0; o < q->f.out && q->f.b; o++) b[o] = q->f.b[o];
        ist_tensor weights = ist_plan_const(p, w, 1, steps, blocks, LANES * 4, IST_ELEM_T, q->label);
        ist_tensor bias = ist_plan_const(p, b, 1, 1, 1, q->f.out, IST_ELEM_F32, q->label);
        ist_tensor pool = {0};
        if (pools(q))
            pool = ist_plan_into(p, q->o->pool, q->x.n, q->x.h, q->x.w, q->x.c, IST_ELEM_T, q->label);
        ist_defines defines =
            ist_defines_of(p, "-DCIN=%d -DKH=%d -DKW=%d -DSTRIDE=%d -DBLOCKS=%d -DACT=%d%s", q->f.in, q->f.kh, q->f.kw,
                           q->o->stride ? q->o->stride : 1, blocks, (int)q->o->epi.act, ist_has(pool) ? " -DPOOL" : "");
        share(p, q, &turns, &groups);
        const ist_conv_direct_args by_value = {.shape = ist_conv_shape_of(q),
                                               .epi = ist_conv_epilogue_of(q),
                                               .by_w = ist_divider_of(q->ow),
                                               .by_h = ist_divider_of(q->oh),
                                               .turns = turns,
                                               .warps = groups * WARPS,
                                               .pool_ld = pool.ld,
                                               .pool_c0 = pool.c0};
        ist_conv_record(p, q, r,
                        &(ist_conv_launch){
                            .isa = "nvidia/ptx+nvidia/conv_parts",
                            .defines = defines.text,
                            .groups = groups,
                            .items = r->items,
                            .weights = weights,
                            .bias = bias,
                            .partial = pool,
                            .by_value = IST_STRUCT(conv_direct_args, &by_value),
                        });
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu fragments", q->label, fragments);
    }
    free(w);
    free(b);
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)p, (void)v;
    return can(&q);
}

static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    ist_conv_problem q = ist_conv_problem_of(node);
    (void)v, (void)way;
    return time_of(p, &q);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_conv *own = node;
    ist_conv_problem q = ist_conv_problem_of(own);
    (void)way;
    record(p, &q, v->config);
    if (pools(&q)) own->o.pool = (ist_tensor){0}; /* it is made */
}

const ist_family ist_nvidia_conv_direct = {.takes = takes, .cost = cost, .emit = emit, .rows = IST_REPEATS_POINTS};
