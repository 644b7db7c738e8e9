/* CSP blocks in one launch on the matrix instructions of warpgroups: a group computes its borders again
 * (cl/nvidia/csp_wgmma). */
#include "variants/fragments.h"
#include "variants/nvidia/csp.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>

/* The numbers of the kernel. */
enum { WIDE = 64, CHUNK_BYTES = 24 << 10, MOST_NECKS = 2, FRAGMENT = 8 };
enum { CHUNKS = 4, LARGE_BYTES = 202 << 10 }; /* of local memory (cl/probe/ptx_wgmma.cl) */

typedef struct tile {
    int h, w, across, count; /* tiles of a line of the map, in all; 0: no room for one */
} tile;

static tile tile_of(const ist_csp *b, int h, int w) {
    const int border = 2 * (b->necks + 1), width = w + border;
    const int rows = (int)ist_round_up((size_t)((h + border) * width), 8);
    const int steps = ist_div_up(b->x.c, WIDE), maps = rows * WIDE * 2 * (steps > 3 ? steps : 3);
    const bool room = maps + CHUNKS * CHUNK_BYTES + (b->necks + 3) * WIDE * 4 + 1024 <= LARGE_BYTES;
    tile t = {h, w, .across = ist_div_up(b->x.w, w)};
    t.count = room ? t.across * ist_div_up(b->x.h, h) : 0;
    return t;
}

/* The smallest of which each group has a compute unit to itself, as its memory asks; count 0: none. */
static tile smallest(const ist_plan *p, const ist_csp *b) {
    static const int sizes[][2] = {{4, 4}, {8, 4}, {8, 8}};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tile t = tile_of(b, sizes[i][0], sizes[i][1]);
        if (t.count && t.count * b->x.n <= ist_plan_units(p)) return t;
    }
    return (tile){0};
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_csp *b = node;
    ist_tensor x = b->x, y = b->y;
    (void)v;
    int c = b->last.out;
    if (x.elem != IST_ELEM_T || c > WIDE || c <= WIDE / 2 || b->necks > MOST_NECKS) return false;
    bool parts = (x.c | x.ld | x.c0) % FRAGMENT == 0, pairs = c % 2 == 0 && (y.ld | y.c0) % 2 == 0;
    return parts && pairs && smallest(p, b).count;
}

/* Outputs [out0, out0 + outs) of a layer as rows from `to` on of a tile: its 64 inputs from in0 on, for one tap. */
static void fill_tile(const ist_filter *f, int out0, int outs, int to, int in0, int tap, float *w) {
    int taps = f->kh * f->kw;
    for (int o = 0; o < outs; o++)
        for (int i = 0; i < WIDE && in0 + i < f->in; i++)
            w[ist_group_tile_at(to + o, i)] =
                f->w[((size_t)(out0 + o) * (size_t)f->in + (size_t)(in0 + i)) * (size_t)taps + (size_t)tap];
}

/* w and bias are zeros. */
static void pack(const ist_csp *b, float *w, float *bias) {
    const int c = b->last.out;
    for (int in0 = 0; in0 < b->first.in; in0 += WIDE, w += 2 * WIDE * WIDE) {
        fill_tile(&b->first, 0, c, 0, in0, 0, w);
        fill_tile(&b->first, c, c, WIDE, in0, 0, w);
    }
    for (int o = 0; o < c && b->first.b; o++) bias[o] = b->first.b[o], bias[WIDE + o] = b->first.b[c + o];
    for (int l = 0; l <= b->necks; l++) {
        const ist_filter *f = l < b->necks ? &b->neck[l] : &b->last;
        for (int tap = 0; tap < 9; tap++, w += WIDE * WIDE) fill_tile(f, 0, c, 0, 0, tap, w);
        for (int o = 0; o < c && f->b; o++) bias[(2 + l) * WIDE + o] = f->b[o];
    }
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_csp *b = node;
    const tile t = smallest(p, b);
    (void)way, (void)v;
    size_t steps = (size_t)ist_div_up(b->x.c, WIDE), layers = (size_t)b->necks + 1;
    size_t count = (2 * steps + 9 * layers) * WIDE * WIDE, biases = (layers + 2) * WIDE;
    float *w = calloc(count, sizeof *w), *bias = calloc(biases, sizeof *bias);
    if (w && bias) pack(b, w, bias);
    ist_defines d = ist_defines_of(p, "-DIN=%d -DNECKS=%d -DTILE_H=%d -DTILE_W=%d", b->x.c, b->necks, t.h, t.w);
    const ist_csp_kernel k = {"nvidia/csp_wgmma", "nvidia/ptx+nvidia/wgmma", d.text, t.across, t.count};
    ist_csp_launch(p, b, &k, w, count, bias, biases);
}

const ist_family ist_nvidia_csp_wgmma = {.takes = takes, .emit = emit};
