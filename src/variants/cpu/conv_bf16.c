/* Convolution rows that multiply bfloat16 pairs (AVX512_BF16) and sum in float: packs weights as pairs and records the
 * launch of cpu/conv_bf16. */
#include "variants/cpu/conv.h"
#include "variants/cpu/conv_lines.h"
#include "variants/defines.h"

#include "base/half.h"
#include "base/mem.h"

enum { VEC = 16, SCRATCH_BYTES = 512 << 10 };

/* Two products a cycle; loads, rounding and a store per 16 inputs of a pixel; the results' way through memory. */
static ist_conv_tiling tiling(const ist_conv_tile *r, const ist_conv_problem *q) {
    int pairs = (q->f.in + 1) / 2, in_scratch = (int)ist_round_up((size_t)q->f.in, VEC) / 2;
    return (ist_conv_tiling){
        .tile = q->taps * (8 + pairs * r->mr * r->nv / 2.0) + 8 * r->mr * r->nv + 20,
        .pixel = in_scratch / 8 * 4 + 6,
        .pairs = in_scratch,
        .margin = r->mr,
        .weight_bytes = 4.0 * q->taps * pairs * ist_div_up(q->f.out, r->nv * r->vl) * r->nv * r->vl,
        .most_bytes = SCRATCH_BYTES,
    };
}

/* [column tile][tap][pair][nr], the pair's first input in the lower half; zeros beyond the last channel and input. */
static void pack_pairs(const ist_conv_problem *q, const ist_conv_tile *r, uint32_t *dst) {
    int nr = r->nv * r->vl;
    for (int col = 0; col < q->f.out; col += nr)
        for (int t = 0; t < q->taps; t++)
            for (int i = 0; i < q->f.in; i += 2)
                for (int o = col; o < col + nr; o++) {
                    bool there = o < q->f.out;
                    uint32_t a = there ? ist_float_to_bf16(ist_conv_weight(q, o, i, t)) : 0;
                    uint32_t b = there && i + 1 < q->f.in ? ist_float_to_bf16(ist_conv_weight(q, o, i + 1, t)) : 0;
                    *dst++ = a | b << 16;
                }
}

static void record(ist_plan *p, const ist_conv_problem *q, const ist_conv_tile *r) {
    ist_conv_tiling t = tiling(r, q);
    ist_conv_shares shares = ist_conv_lines_cut(p, r, q, &t);
    size_t count = ist_round_up((size_t)q->f.out, (size_t)(r->nv * r->vl));
    if (!ist_mul_size(count, (size_t)q->taps, &count) || !ist_mul_size(count, ((size_t)q->f.in + 1) / 2, &count))
        count = 0;
    bool instructions = ist_device_probed(ist_plan_device(p)) & IST_CAP_X86_BF16;
    ist_defines defines = ist_defines_of(p, "-DMR=%d -DNV=%d -DVL=%d -DASM=%d", r->mr, r->nv, r->vl, instructions);
    ist_conv_lines_launch l = {
        .isa = "portable/vector+cpu/bf16+cpu/conv_lines", .defines = defines.text, .pixel_pairs = (int)t.pairs};
    if (ist_conv_lines_pack(p, q, r, count, pack_pairs, &l.weights, &l.bias))
        ist_conv_lines_record(p, q, r, &t, &shares, &l);
}

/* Not images: there is little to gain, and all rests on them. */
static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    enum { LEAST_INPUTS = 16 };
    const ist_conv *q = node;
    (void)p, (void)v;
    return q->filter.in >= LEAST_INPUTS && q->norm_eps <= 0;
}

static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
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

const ist_family ist_cpu_conv_bf16 = {.takes = takes, .cost = cost, .emit = emit};
