/* Depthwise convolutions of CPUs: a work-item keeps the lines that its windows see in a ring (cl/cpu/dwconv). */
#include "variants/dwconv.h"
#include "variants/cpu/dwconv_args.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

/* Vectors of 16 channels that a work-item keeps: 28 KiB, inside a first-level cache. */
enum { RING = 448, MAX_COLS = 64, MAX_BLOCKS = 4, VEC = 16 };

/* Largest multiple of 4 columns whose lines fit the ring for `blocks` of 16 channels; 0 when none does. */
static int ring_cols(int k, int stride, int blocks) {
    int cols = 0;
    while (cols + 4 <= MAX_COLS && blocks * k * ((cols + 3) * stride + k) <= RING) cols += 4;
    return cols;
}

/* Most blocks of 16 channels a work-item may take and still have 12 columns. */
static int ring_blocks(int k, int stride, int channels) {
    int blocks = ist_div_up(channels, 16);
    if (blocks > MAX_BLOCKS) blocks = MAX_BLOCKS;
    while (blocks > 1 && ring_cols(k, stride, blocks) < 12) blocks--;
    return blocks;
}

static int at_least_one(int v) {
    return v > 1 ? v : 1;
}

typedef struct pieces {
    int blocks, chunks, cols, segments, rows, bands;
} pieces;

/* Channel chunks, even column segments and row bands of a launch: some eight pieces for every compute unit as long
 * as a band keeps at least eight rows. */
static pieces cut(const ist_plan *p, const ist_conv *q) {
    int k = q->filter.kh, units = ist_plan_units(p);
    pieces c = {.blocks = ring_blocks(k, ist_dwconv_stride(q), q->x.c)};
    c.chunks = ist_div_up(ist_div_up(q->x.c, 16), c.blocks);
    c.segments = ist_div_up(q->y.w, ring_cols(k, ist_dwconv_stride(q), c.blocks));
    c.cols = (ist_div_up(q->y.w, c.segments) + 3) / 4 * 4;
    c.segments = ist_div_up(q->y.w, c.cols);
    c.bands = ist_div_up(8 * units, c.segments * c.chunks * q->x.n);
    if (c.bands > q->y.h / 8) c.bands = at_least_one(q->y.h / 8);
    c.rows = ist_div_up(q->y.h, c.bands);
    c.bands = ist_div_up(q->y.h, c.rows);
    return c;
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_conv *q = node;
    (void)p, (void)v;
    return ring_cols(q->filter.kh, ist_dwconv_stride(q), 1) > 0;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_conv *q = node;
    ist_tensor weights, bias;
    bool half = ist_plan_half(p);
    (void)v, (void)way;
    if (!ist_dwconv_pack(p, q, VEC, &weights, &bias)) return;
    pieces c = cut(p, q);
    ist_defines defines = ist_defines_of(p, "-DVL=16 -DRING=%d%s%s", RING,
                                         half && q->x.elem == IST_ELEM_F32 ? " -DX32" : "",
                                         half && q->y.elem == IST_ELEM_F32 ? " -DY32" : "");
    ist_launch l = {.op = "cpu/dwconv",
                    .isa = "portable/vector",
                    .defines = defines.text,
                    .dims = 1,
                    .global = {(size_t)ist_plan_units(p)},
                    .local = {1},
                    .shares = true};
    const ist_dwconv_ring_args by_value = {.shape = ist_dwconv_shape_of(q),
                                           .epi = ist_dwconv_epilogue_of(q),
                                           .cols = c.cols,
                                           .rows = c.rows,
                                           .blocks = c.blocks,
                                           .segments = c.segments,
                                           .backwards = ist_plan_work_turn(p)};
    ist_dwconv_launch(p, q, &l, weights, bias, (ist_arg)IST_STRUCT(dwconv_ring_args, &by_value),
                      &(ist_arg)IST_INOUT(ist_plan_work_queue(p)), 1);
}

const ist_family ist_cpu_dwconv = {.takes = takes, .emit = emit};
