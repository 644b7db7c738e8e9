/* Convolution rows on the matrix unit of x86 CPUs (AMX): packs weights as parts in bfloat16 and records the launch of
 * op/conv_amx. A row's bk is the number of parts: 3 for products as exact as those of floats, 1 for bfloat16. */
#include "ops/bf16.h"
#include "ops/conv_lines.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <string.h>

enum { BLOCK = 32, DEPTH = 32, HALF_BLOCK = 16, SCRATCH_BYTES = 768 << 10 };

static int steps_of(const ist_conv_problem *q) {
    return ist_div_up(q->f.in, DEPTH);
}

bool ist_conv_amx_takes(const ist_conv_problem *q) {
    return q->kind == IST_CONV_DENSE;
}

/* 16 cycles for a product of two tiles, of which a step has four and as many times that as parts are multiplied;
 * splitting and storing 16 inputs; a block's sums through memory and epilogue. The clock is lower than elsewhere. */
static ist_conv_tiling tiling(const ist_conv_row *r, const ist_conv_problem *q) {
    const double clock = 1.15;
    double step = r->bk == 3 ? 24 * 16 : 4 * 18, split = r->bk == 3 ? 7 : 4;
    int blocks = ist_div_up(q->f.out, BLOCK);
    return (ist_conv_tiling){
        .tile = clock * (q->taps * (steps_of(q) * step * 1.05 + 20) + 300),
        .pixel = clock * (steps_of(q) * DEPTH / 16 * split + 6),
        .pairs = steps_of(q) * r->bk * DEPTH / 2.0,
        .margin = BLOCK,
        .weight_bytes = 2.0 * q->taps * steps_of(q) * r->bk * DEPTH * BLOCK * blocks,
        .most_bytes = SCRATCH_BYTES,
    };
}

double ist_conv_amx_cost(const ist_plan *p, const ist_conv_row *r, const ist_conv_problem *q) {
    ist_conv_tiling t = tiling(r, q);
    return ist_conv_lines_cut(p, r, q, &t).cycles;
}

/* ---- weights ---- */

/* Part `part` of input i: each part is the rounded rest of those before. */
static uint32_t part_of(const ist_conv_problem *q, int o, int i, int tap, int part) {
    if (o >= q->f.out || i >= q->f.in) return 0;
    float rest = ist_conv_weight(q, 0, o, i, tap);
    for (;; part--) {
        uint32_t bits = ist_bf16_of(rest), upper = bits << 16;
        float rounded;
        memcpy(&rounded, &upper, sizeof rounded);
        if (part == 0) return bits;
        rest -= rounded;
    }
}

/* [column tile][tap][step][part][column / 16][pair][16], the pair's first input in the lower half. */
static void pack_parts(const ist_conv_problem *q, const ist_conv_row *r, uint32_t *dst) {
    for (int col = 0; col < q->f.out; col += BLOCK)
        for (int t = 0; t < q->taps; t++)
            for (int in = 0; in < q->f.in; in += DEPTH)
                for (int part = 0; part < r->bk; part++)
                    for (int half = col; half < col + BLOCK; half += HALF_BLOCK)
                        for (int i = in; i < in + DEPTH; i += 2)
                            for (int o = half; o < half + HALF_BLOCK; o++)
                                *dst++ = part_of(q, o, i, t, part) | part_of(q, o, i + 1, t, part) << 16;
}

/* ---- launch ---- */

void ist_conv_amx(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *r) {
    const unsigned need = IST_CAP_X86_BF16 | IST_CAP_X86_AMX;
    ist_conv_tiling t = tiling(r, q);
    ist_conv_shares shares = ist_conv_lines_cut(p, r, q, &t);
    size_t count = ist_round_up((size_t)q->f.out, BLOCK), in = (size_t)r->bk * (size_t)steps_of(q) * DEPTH / 2;
    if (!ist_mul_size(count, (size_t)q->taps, &count) || !ist_mul_size(count, in, &count)) count = 0;
    bool instructions = (ist_device_probed(ist_plan_device(p)) & need) == need;
    ist_defines defines = ist_defines_of(p, "-DPARTS=%d -DNV=2 -DVL=16 -DASM=%d", r->bk, instructions);
    ist_conv_lines_launch l = {
        .isa = "isa/vector+isa/bf16+isa/amx+isa/conv_lines", .defines = defines.text, .in5 = (int)shares.pixels};
    if (ist_conv_lines_pack(p, q, r, count, pack_parts, &l.weights, &l.bias))
        ist_conv_lines_record(p, q, r, &t, &shares, &l);
}
