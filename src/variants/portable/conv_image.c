/* Convolutions of an image's few channels (cl/portable/conv_image), for GPUs: a network's first layer. */
#include "variants/padding_reuse.h"
#include "variants/panels.h"
#include "variants/portable/conv_image_args.h"
#include "variants/portable/conv_tile.h"

enum { MOST_INPUTS = 4, MOST_SIDE = 3, MOST_STRIDE = 2, MOST_CHANNELS = 64, ROWS = 2, GROUP = 128, QUADS_MAX = 32 };
enum { WARP = 32 };

/* Eights of channels, quads of pixels of a row, work-items. */
typedef struct tiles {
    int channels, quads, items;
} tiles;

static tiles tiles_of(const ist_conv_problem *q) {
    tiles t = {.channels = ist_div_up(q->f.out, 8)};
    t.quads = GROUP / t.channels < QUADS_MAX ? GROUP / t.channels : QUADS_MAX;
    t.items = ist_div_up(t.channels * t.quads, WARP) * WARP;
    return t;
}

static int stride_of(const ist_conv_problem *q) {
    return q->o->stride > 1 ? q->o->stride : 1;
}

/* Bytes of local memory of the kernel. */
static size_t bytes_of(const ist_conv_problem *q) {
    const tiles t = tiles_of(q);
    const int stride = stride_of(q), span = ist_div_up((3 * stride + q->f.kw) * q->f.in, 4);
    const int line = stride * q->f.in * (t.quads - 1) + span, lines = (ROWS - 1) * stride + q->f.kh;
    return 4 * sizeof(float) * (size_t)(lines * line + q->taps * q->f.in * t.channels * 2);
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_conv *of = node;
    const ist_conv_problem q = ist_conv_problem_of(of);
    (void)v;
    return !(of->norm_eps > 0) && q.f.in <= MOST_INPUTS && q.taps > 1 && q.f.kh <= MOST_SIDE && q.f.kw <= MOST_SIDE &&
           stride_of(&q) <= MOST_STRIDE && q.f.out <= MOST_CHANNELS &&
           bytes_of(&q) <= ist_device_local_bytes(ist_plan_device(p));
}

/* As portable/conv_tile: nanoseconds, fitted on the first layers of TinyViT and D-FINE on one GPU. */
static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    const double rate = 84, cycle = 27.2;
    const ist_conv_problem q = ist_conv_problem_of(node);
    const tiles t = tiles_of(&q);
    const double groups = (double)q.x.n * ist_div_up(q.oh, ROWS) * ist_div_up(q.ow, 4 * t.quads);
    const double outputs = groups * ROWS * 4 * t.quads * 8 * t.channels, work = outputs * q.taps * q.f.in;
    const int units = ist_plan_units(p);
    (void)v, (void)way;
    if (ist_device_facts(ist_plan_device(p))->type == IST_DEVICE_CPU) return 100 * work / cycle;
    return IST_CONV_TILE_START +
           (work / rate + outputs * ist_conv_tile_activation(q.o->epi.act)) / (groups < units ? groups : units);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_conv *of = node;
    const ist_conv_problem q = ist_conv_problem_of(of);
    const ist_epilogue *e = &q.o->epi;
    const tiles t = tiles_of(&q);
    const ist_padding_reuse operand = of->reuse;
    ist_conv_image_args arg = {.shape = ist_conv_shape_of(&q),
                               .epi = ist_conv_epilogue_of(&q),
                               .in = ist_padding_reuse_read(operand, of->x.h)};
    ist_conv_panel w;
    (void)v, (void)way;
    arg.out = ist_padding_reuse_leave_out(&of->reuse, ist_padding_reuse_conv(operand, of), of->y.h);
    if (!ist_conv_panels_pack(p, &q, 8 * t.channels, &w)) return;
    ist_defines defines = ist_conv_tile_storage(p, &q);
    ist_defines_add(&defines,
                    " -DKH=%d -DKW=%d -DSTRIDE=%d -DCIN=%d -DTILES=%d -DQUADS=%d -DROWS=%d -DITEMS=%d -DACT=%d", q.f.kh,
                    q.f.kw, stride_of(&q), q.f.in, t.channels, t.quads, ROWS, t.items, (int)e->act);
    ist_padding_reuse_define(&defines, &operand);
    ist_plan_launch(p, &(ist_launch){
                           .label = q.label,
                           .op = "portable/conv_image",
                           .isa = "portable/vector+portable/left_out",
                           .defines = defines.text,
                           .kernel = "conv",
                           .dims = 3,
                           .global = {(size_t)ist_div_up(q.ow, 4 * t.quads) * (size_t)t.items,
                                      (size_t)ist_div_up(q.oh, ROWS), (size_t)q.x.n},
                           .local = {(size_t)t.items, 1, 1},
                           .args = {IST_IN(q.x), IST_IN(w.weights), IST_IN(w.bias), IST_OUT(q.y), IST_IN(e->add_before),
                                    IST_IN(e->add_after), IST_IN(ist_plan_current_limit(p)), IST_IN(operand.content),
                                    IST_STRUCT(conv_image_args, &arg)},
                           .arg_count = 9,
                           .flops = 2.0 * q.x.n * q.oh * q.ow * q.taps * q.f.in * q.f.out,
                           .bytes = ist_conv_bytes(p, &q, sizeof(float)),
                       });
}

const ist_family ist_portable_conv_image = {.takes = takes, .cost = cost, .emit = emit, .rows = IST_REPEATS_LEFT_OUT};
