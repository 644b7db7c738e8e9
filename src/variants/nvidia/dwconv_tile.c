/* Depthwise convolutions that copy tiles to local memory asynchronously (cl/nvidia/dwconv_tile). */
#include "variants/dwconv.h"
#include "variants/nvidia/dwconv_args.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

static int at_least_one(int v) {
    return v > 1 ? v : 1;
}

/* A group takes a strip of TILE_COLS columns for each of `across` warps, `steps` steps of TILE_ROWS
 * rows. */
typedef struct tile {
    int across, strips, steps, segments;
} tile;

enum { TILE_COLS = 4, TILE_ROWS = 5, TILE_CHANNELS = 64 };

/* Results for each compute unit from which it wins over strips, whose results cost 1.5 (portable/dwconv.c), by 5x5
 * filters (perf/NOTES.md): maps of smaller batches have too few groups. It never wins by smaller ones. */
enum { TILE_VALUES = 20000 };

/* The strips that compute the least outside the map, cut so that every compute unit has two groups. */
static tile tile_of(const ist_plan *p, const ist_conv *q) {
    static const int menu[] = {5, 4};
    tile t = {0};
    for (size_t i = 0; i < sizeof menu / sizeof menu[0]; i++) {
        int strips = ist_div_up(q->y.w, TILE_COLS * menu[i]);
        if (!t.across || strips * menu[i] < t.strips * t.across) t.across = menu[i], t.strips = strips;
    }
    int steps = ist_div_up(q->y.h, TILE_ROWS);
    int columns = t.strips * ist_div_up(q->x.c, TILE_CHANNELS) * q->x.n;
    t.segments = at_least_one((int)(2.0 * ist_plan_units(p) / columns));
    if (t.segments > steps) t.segments = steps;
    t.steps = ist_div_up(steps, t.segments);
    t.segments = ist_div_up(steps, t.steps);
    return t;
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_conv *q = node;
    const ist_epilogue *e = &q->o.epi;
    (void)p, (void)v;
    return q->filter.kh <= IST_DWCONV_K_MAX && ist_dwconv_stride(q) == 1 && q->x.c % 8 == 0 && ist_dwconv_aligned(q, 8) &&
           !ist_has(e->add_before) && !ist_has(e->add_after);
}

static double cost(const ist_plan *p, const ist_variant *v, const void *node, int way) {
    const ist_conv *q = node;
    double results = (double)ist_pixels(q->y) * q->y.c, least = 0.5 * TILE_VALUES * ist_plan_units(p);
    (void)v, (void)way;
    return q->filter.kh == 5 ? results + least : 5 * results;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_conv *q = node;
    ist_tensor weights, bias;
    (void)v, (void)way;
    if (!ist_dwconv_pack(p, q, q->x.c, &weights, &bias)) return; /* one block has all channels */
    tile t = tile_of(p, q);
    int blocks = ist_div_up(q->x.c, TILE_CHANNELS), items = 32 * t.across;
    ist_defines defines =
        ist_defines_of(p, "-DK=%d -DACROSS=%d -DACT=%d", q->filter.kh, t.across, (int)q->o.epi.act);
    ist_launch l = {.op = "nvidia/dwconv_tile",
                    .isa = "nvidia/ptx",
                    .defines = defines.text,
                    .dims = 2,
                    .global = {(size_t)(blocks * t.strips * t.segments * items), (size_t)q->x.n},
                    .local = {(size_t)items, 1}};
    const ist_dwconv_tile_args by_value = {.shape = ist_dwconv_shape_of(q),
                                           .epi = ist_dwconv_epilogue_of(q),
                                           .blocks = blocks,
                                           .strips = t.strips,
                                           .steps = t.steps};
    ist_dwconv_launch(p, q, &l, weights, bias, (ist_arg)IST_STRUCT(dwconv_tile_args, &by_value), NULL, 0);
}

const ist_family ist_nvidia_dwconv_tile = {.takes = takes, .cost = cost, .emit = emit};
