/* Portable depthwise convolutions: a work-item makes a block of results of a few channels. Costs are relative: what was
 * measured of one to the other on one GPU. */
#include "variants/portable/dwconv.h"
#include "variants/dwconv.h"
#include "variants/dwconv_args.h"
#include "variants/padding_reuse.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

enum { ITEMS = 128, NORM_ITEMS_MAX = 256, ANY_WIDTH = 4, ANY_ITEMS = 16, ANY_PIXELS = 4 };

static double results(const ist_conv *q) {
    return (double)ist_pixels(q->y) * q->y.c;
}

/* The layer norm of what a convolution makes, beside it. */
typedef struct norm_beside {
    const ist_affine *norm;
    float eps;
    ist_tensor y;
} norm_beside;

/* Rows of the result that repeat others are left out, what is known of the operand's goes to the kernel. */
static void launch_by_rows(ist_plan *p, ist_conv *q, ist_launch *l, ist_tensor weights, ist_tensor bias,
                           ist_dwconv_args *arg, const norm_beside *beside) {
    ist_arg last[4] = {IST_IN(q->reuse.content)};
    int count = 1;
    if (beside) {
        const ist_tensor gamma = ist_plan_const(p, beside->norm->gamma, 1, 1, 1, q->y.c, IST_ELEM_F32, q->label);
        const ist_tensor beta = ist_plan_const(p, beside->norm->beta, 1, 1, 1, q->y.c, IST_ELEM_F32, q->label);
        last[count++] = (ist_arg)IST_OUT(beside->y);
        last[count++] = (ist_arg)IST_IN(gamma);
        last[count++] = (ist_arg)IST_IN(beta);
        arg->norm_eps = beside->eps;
    }
    arg->shape = ist_dwconv_shape_of(q);
    arg->epi = ist_dwconv_epilogue_of(q);
    arg->in = ist_padding_reuse_read(q->reuse, q->x.h);
    arg->out = ist_padding_reuse_leave_out(&q->reuse, ist_padding_reuse_conv(q->reuse, q), q->y.h);
    ist_dwconv_launch(p, q, l, weights, bias, (ist_arg)IST_STRUCT(dwconv_args, arg), last, count);
}

static const char *floats(const ist_plan *p, ist_tensor t, const char *option) {
    return ist_plan_half(p) && t.elem == IST_ELEM_F32 ? option : "";
}

/* ---- cl/portable/dwconv_strip: blocks of pixels, fetched before they are used ---- */

/* Channels of a work-item and its block of output pixels. What a work-item loads must fit registers
 * beside the weights, and small maps need every work-item they can have. */
typedef struct block {
    int width, cols, rows;
} block;

static block block_of(const ist_plan *p, const ist_conv *q) {
    const bool large = results(q) >= 2e6 && ist_dwconv_stride(q) == 1, small_filter = q->filter.kh <= 3;
    if (!ist_plan_half(p) && large && small_filter) return results(q) >= 8e6 ? (block){2, 4, 4} : (block){2, 2, 4};
    if (ist_plan_half(p) && large && q->filter.kh == 5) return (block){2, 2, 4}; /* weights are most loads */
    if (!ist_plan_half(p) || !small_filter || q->x.c % 4 || !ist_dwconv_aligned(q, 4)) return (block){2, 2, 2};
    if (large) return (block){4, 4, 2};
    return results(q) >= 1e6 ? (block){4, 2, 2} : (block){4, 2, 1};
}

/* With the norm beside: many channels a work-item, since sums over a group take their time. */
static block block_with_norm(const ist_conv *q) {
    return q->x.c % 4 == 0 && ist_dwconv_aligned(q, 4) ? (block){4, 2, 2} : (block){2, 2, 2};
}

/* Whole vectors at multiples of their size, a filter that is unrolled. */
static bool takes_strip(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_conv *q = node;
    (void)p, (void)v;
    return q->filter.kh <= IST_DWCONV_K_MAX && ist_dwconv_stride(q) <= 2 && q->x.c % 2 == 0 && ist_dwconv_aligned(q, 2);
}

static double cost_of_strip(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    (void)p, (void)v, (void)way;
    return 1.5 * results(node);
}

static void launch_strip(ist_plan *p, ist_conv *q, const norm_beside *beside) {
    ist_tensor weights, bias;
    if (!ist_dwconv_pack(p, q, q->x.c, &weights, &bias)) return; /* one block has all channels */
    block b = beside ? block_with_norm(q) : block_of(p, q);
    int blocks = ist_div_up(q->x.c, b.width), across = ist_div_up(q->y.w, b.cols), down = ist_div_up(q->y.h, b.rows);
    ist_defines defines = ist_defines_of(p, "-DVL=%d -DK=%d -DSTRIDE=%d -DCOLS=%d -DROWS=%d -DACT=%d", b.width,
                                         q->filter.kh, ist_dwconv_stride(q), b.cols, b.rows, (int)q->o.epi.act);
    ist_padding_reuse_define(&defines, &q->reuse);
    if (beside) ist_defines_add(&defines, " -DNORM_LANES=%d", blocks);
    const size_t items = beside ? (size_t)blocks : ITEMS;
    ist_launch l = {.op = "portable/dwconv_strip",
                    .isa = "portable/fetch+portable/left_out",
                    .defines = defines.text,
                    .dims = 2,
                    .global = {ist_round_up((size_t)blocks * (size_t)across * (size_t)down, items), (size_t)q->x.n},
                    .local = {items, 1}};
    launch_by_rows(p, q, &l, weights, bias, &(ist_dwconv_args){.blocks = blocks, .strips = across, .bands = down},
                   beside);
}

static void emit_strip(ist_plan *p, const ist_variant *v, void *node, int way) {
    (void)v, (void)way;
    launch_strip(p, node, NULL);
}

const ist_family ist_portable_dwconv_strip = {
    .takes = takes_strip, .cost = cost_of_strip, .emit = emit_strip, .rows = IST_REPEATS_LEFT_OUT};

bool ist_dwconv_norm_takes(const ist_plan *p, const ist_conv *q) {
    return takes_strip(p, NULL, q) && q->x.c / block_with_norm(q).width <= NORM_ITEMS_MAX;
}

void ist_dwconv_norm_emit(ist_plan *p, ist_conv *q, const ist_affine *norm, float eps, ist_tensor normed) {
    launch_strip(p, q, &(norm_beside){norm, eps, normed});
}

/* ---- cl/portable/dwconv_group: several columns of one line ---- */

/* Channels per work-item and output columns per work-item of a work-item: 16-byte vectors and four columns as long as
 * every compute unit gets two thousand work-items. */
static int group_width(const ist_plan *p, const ist_conv *q) {
    double outputs = (double)ist_pixels(q->y) * q->y.c;
    return ist_plan_half(p) && ist_dwconv_aligned(q, 8) && outputs >= 4e6 ? 8 : 4;
}

static int group_cols(const ist_conv *q, int width) {
    double items = (double)ist_pixels(q->y) * ist_div_up(q->y.c, width);
    return items >= 1e6 && ist_dwconv_stride(q) == 1 ? 4 : items >= 2e5 ? 2 : 1;
}

static bool takes_group(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_conv *q = node;
    (void)p, (void)v;
    return q->filter.kh <= IST_DWCONV_K_MAX;
}

static double cost_of_group(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    (void)p, (void)v, (void)way;
    return 2 * results(node);
}

static void emit_group(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_conv *q = node;
    ist_tensor weights, bias;
    int width = group_width(p, q), cols = group_cols(q, width), blocks = ist_div_up(q->x.c, width);
    (void)v, (void)way;
    if (!ist_dwconv_pack(p, q, width, &weights, &bias)) return;
    ist_defines defines =
        ist_defines_of(p, "-DVL=%d -DK=%d -DSTRIDE=%d -DCOLS=%d%s%s%s%s", width, q->filter.kh, ist_dwconv_stride(q),
                       cols, q->x.c % width ? "" : " -DWHOLE", ist_dwconv_aligned(q, width) ? " -DALIGNED" : "",
                       floats(p, q->x, " -DX32"), floats(p, q->y, " -DY32"));
    ist_padding_reuse_define(&defines, &q->reuse);
    size_t strips = (size_t)blocks * (size_t)ist_div_up(q->y.w, cols) * (size_t)q->y.h;
    ist_launch l = {.op = "portable/dwconv_group",
                    .isa = "portable/vector+portable/left_out",
                    .defines = defines.text,
                    .dims = 2,
                    .global = {ist_round_up(strips, ITEMS), (size_t)q->x.n},
                    .local = {ITEMS, 1}};
    launch_by_rows(p, q, &l, weights, bias, &(ist_dwconv_args){.blocks = blocks}, NULL);
}

const ist_family ist_portable_dwconv_group = {
    .takes = takes_group, .cost = cost_of_group, .emit = emit_group, .rows = IST_REPEATS_LEFT_OUT};

/* ---- cl/portable/dwconv_any ---- */

static double cost_of_any(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    (void)p, (void)v, (void)way;
    return 4 * results(node);
}

static void emit_any(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_conv *q = node;
    ist_tensor weights, bias;
    (void)v, (void)way;
    if (!ist_dwconv_pack(p, q, ANY_WIDTH, &weights, &bias)) return;
    ist_defines defines =
        ist_defines_of(p, "-DVL=%d%s%s", ANY_WIDTH, floats(p, q->x, " -DX32"), floats(p, q->y, " -DY32"));
    ist_launch l = {.op = "portable/dwconv_any",
                    .isa = "portable/vector",
                    .defines = defines.text,
                    .dims = 3,
                    .global = {ist_round_up((size_t)ist_div_up(q->x.c, ANY_WIDTH), ANY_ITEMS),
                               ist_round_up((size_t)q->y.h * (size_t)q->y.w, ANY_PIXELS), (size_t)q->x.n},
                    .local = {ANY_ITEMS, ANY_PIXELS, 1}};
    const ist_conv_args by_value = {ist_dwconv_shape_of(q), ist_dwconv_epilogue_of(q)};
    ist_dwconv_launch(p, q, &l, weights, bias, (ist_arg)IST_STRUCT(conv_args, &by_value), NULL, 0);
}

const ist_family ist_portable_dwconv = {.cost = cost_of_any, .emit = emit_any};
