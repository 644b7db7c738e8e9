/* Convolution rows on the matrix unit of x86 CPUs (AMX), of bfloat16 with sums in float: packs weights and records the
 * launch of op/conv_amx. */
#include "ops/bf16.h"
#include "ops/conv_lines.h"
#include "ops/rows.h"

#include "base/mem.h"

enum { BLOCK = IST_AMX_BLOCK, DEPTH = IST_AMX_DEPTH, SCRATCH_BYTES = 768 << 10 };

/* A step has four products of two tiles, of 16 cycles each, and a little; then rounding and storing 16 inputs; a
 * block's sums through memory and epilogue. The clock is lower than elsewhere. */
static ist_conv_tiling tiling(const ist_conv_problem *q) {
    const double clock = 1.15, step = 4 * 18, rounding = 4;
    int blocks = ist_div_up(q->f.out, BLOCK), steps = ist_div_up(q->f.in, DEPTH);
    return (ist_conv_tiling){
        .tile = clock * (q->taps * (steps * step * 1.05 + 20) + 300),
        .pixel = clock * (steps * DEPTH / 16 * rounding + 6),
        .pairs = steps * DEPTH / 2.0,
        .margin = BLOCK,
        .weight_bytes = 2.0 * q->taps * steps * DEPTH * BLOCK * blocks,
        .most_bytes = SCRATCH_BYTES,
    };
}

double ist_conv_amx_cost(const ist_plan *p, const ist_conv_row *r, const ist_conv_problem *q) {
    ist_conv_tiling t = tiling(q);
    return ist_conv_lines_cut(p, r, q, &t).cycles;
}

static void pack(const ist_conv_problem *q, const ist_conv_row *r, uint32_t *dst) {
    (void)r;
    ist_amx_pack(&q->f, 1, IST_AMX_NEIGHBOURS, dst);
}

void ist_conv_amx(ist_plan *p, const ist_conv_problem *q, const ist_conv_row *r) {
    ist_conv_tiling t = tiling(q);
    ist_conv_shares shares = ist_conv_lines_cut(p, r, q, &t);
    ist_defines defines = ist_defines_of(p, "-DPARTS=1 -DNV=2 -DVL=16 -DASM=%d", ist_amx_instructions(p));
    ist_conv_lines_launch l = {
        .isa = "isa/vector+isa/bf16+isa/amx+isa/conv_lines", .defines = defines.text, .in5 = (int)shares.pixels};
    if (ist_conv_lines_pack(p, q, r, ist_amx_pairs(&q->f, 1), pack, &l.weights, &l.bias))
        ist_conv_lines_record(p, q, r, &t, &shares, &l);
}
