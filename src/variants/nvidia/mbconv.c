/* Inverted bottlenecks: the expansion, then depthwise convolution and projection on the matrix instructions of
 * warpgroups (cl/nvidia/mbconv). */
#include "variants/fragments.h"
#include "variants/nvidia/mbconv_args.h"
#include "variants/nvidia/weights.h"
#include "variants/defines.h"
#include "variants/padding_reuse.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>

enum { ITEMS = 256, HIGH = 8, BK = 64, CHUNK = 8 };
enum { WIDE_WAVES = 3 }; /* groups of 8 by 16 pixels for each compute unit: from then on they are faster, with stride 1 */

static bool aligned(ist_tensor t) {
    return t.elem == IST_ELEM_T && (t.ld | t.c0) % CHUNK == 0;
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_mbconv *b = node;
    int hidden = b->spread.out, out = b->project.out;
    (void)p, (void)v;
    return (!b->residual || aligned(b->x)) && (hidden == 64 || hidden == 128 || hidden == 256) &&
           (out == 64 || out == 128) && (b->act == IST_ACT_NONE || b->act == IST_ACT_GELU);
}

/* [hidden / 64][out][64], 16-byte parts of a row exchanged; rows in the order in which a work-item has eight channels.
 */
static ist_tensor pack_project(ist_plan *p, const ist_filter *f, const char *label) {
    size_t count = (size_t)f->out * (size_t)f->in;
    float *packed = malloc(count * sizeof *packed), *to = packed;
    ist_tensor t = {0};
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    for (int tile = 0; tile < f->in; tile += BK)
        for (int o = 0; o < f->out; o++, to += BK)
            for (int k = 0; k < BK; k++)
                to[(k / CHUNK ^ (o & 7)) * CHUNK + k % CHUNK] = f->w[ist_place_channel(o) * f->in + tile + k];
    t = ist_plan_const(p, packed, 1, 1, 1, (int)count, IST_ELEM_T, label);
    free(packed);
    return t;
}

/* Biases, or zeros. */
static ist_tensor pack_bias(ist_plan *p, const ist_filter *f, const char *label) {
    float zeros[256] = {0};
    return ist_plan_const(p, f->b ? f->b : zeros, 1, 1, 1, f->out, IST_ELEM_F32, label);
}

/* The depthwise convolution and the projection of u, the expansion of x. */
static void record(ist_plan *p, ist_mbconv *b, ist_tensor u) {
    const char *label = b->label;
    ist_tensor x = b->x, y = b->y;
    int s = b->stride, h = y.h, w = y.w;
    int64_t wide_groups = (int64_t)ist_div_up(w, 16) * ist_div_up(h, HIGH) * y.n;
    int wide = s == 1 && wide_groups >= WIDE_WAVES * (int64_t)ist_plan_units(p) ? 16 : 8, across = ist_div_up(w, wide);
    ist_tensor taps = ist_pack_taps(p, &b->spread, label), weights = pack_project(p, &b->project, label);
    ist_tensor bias = pack_bias(p, &b->project, label), none = {0};
    ist_defines d = ist_defines_of(p, "-DHID=%d -DCOUT=%d -DSTRIDE=%d -DWIDE=%d -DACT=%d%s", u.c, y.c, s, wide,
                                   (int)b->act, b->residual ? " -DRESIDUAL" : "");
    ist_padding_reuse_define(&d, &b->reuse);
    const ist_tensor content = b->reuse.content;
    const ist_padding_reuse_args read = ist_padding_reuse_read(b->reuse, u.h);
    const ist_padding_reuse_args made =
        ist_padding_reuse_leave_out(&b->reuse, ist_padding_reuse_behind(b->reuse, u.h, s), h);
    const ist_mbconv_wgmma_args by_value = {.u_h = u.h,
                                            .u_w = u.w,
                                            .u_ld = u.ld,
                                            .u_c0 = u.c0,
                                            .x_ld = x.ld,
                                            .x_c0 = x.c0,
                                            .y_h = h,
                                            .y_w = w,
                                            .y_ld = y.ld,
                                            .y_c0 = y.c0,
                                            .across = across,
                                            .in = read,
                                            .out = made};
    double in = (double)ist_pixels(u), out = (double)ist_pixels(y);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "nvidia/mbconv",
                                     .isa = "nvidia/ptx+portable/fetch+nvidia/wgmma+portable/left_out",
                                     .defines = d.text,
                                     .kernel = "mbconv",
                                     .dims = 2,
                                     .global = {(size_t)(across * ist_div_up(h, HIGH)) * ITEMS, (size_t)u.n},
                                     .local = {ITEMS, 1},
                                     .args = {IST_OUT(y), IST_IN(u), IST_IN(b->residual ? x : none), IST_IN(taps),
                                              IST_IN(weights), IST_IN(bias), IST_IN(ist_plan_current_limit(p)),
                                              IST_IN(content), IST_STRUCT(mbconv_wgmma_args, &by_value)},
                                     .arg_count = 9,
                                     .flops = 2.0 * out * u.c * (9 + y.c),
                                     .bytes = 2.0 * (in * u.c + out * y.c * (b->residual ? 2 : 1))});
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_mbconv *b = node;
    ist_conv expand = {
        .label = b->label, .x = b->x, .filter = b->expand, .o = {.epi.act = IST_ACT_GELU}, .reuse = b->reuse};
    (void)v, (void)way;
    ist_emit(p, IST_NODE_CONV, &expand);
    b->reuse = expand.reuse;
    if (!ist_plan_status(p)) record(p, b, expand.y);
}

const ist_family ist_nvidia_mbconv = {.takes = takes, .emit = emit, .rows = IST_REPEATS_LEFT_OUT};
