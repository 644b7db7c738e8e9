/* CSP blocks in one launch on matrix instructions: a group computes its borders again (cl/nvidia/csp). */
#include "variants/fragments.h"
#include "variants/nvidia/csp.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* The numbers of the kernel. */
enum { ITEMS = 256, TILE_H = 4, ROWS_STEP = 32, CHUNK_INPUTS = 32, FRAGMENT = 8, MMA_NECKS = 2 };
enum { CHUNKS = 3 };                                     /* of the ring */
enum { MOST_BYTES = 97 << 10, LARGE_BYTES = 202 << 10 }; /* of local memory (cl/probe/ptx_mma.cl, ptx_wgmma.cl) */

typedef struct matrix_plan {
    int cp, steps;     /* channels of a half, rounded up; of 32 inputs of the first layer */
    int taps, depth;   /* of a chunk: taps of the 3x3 layers, steps of the first layer */
    int chunks, bytes; /* of local memory */
    int tile_w, across, tiles;
} matrix_plan;

/* Bytes of a chunk of `taps` taps, and as many steps of the first layer as fit it. */
static int chunk_of(matrix_plan *m, int taps) {
    int chunk = taps * m->cp * m->cp * 2, first = m->cp * 128;
    m->taps = taps;
    for (m->depth = 4; m->depth > 1 && (m->steps % m->depth || m->depth * first > chunk);) m->depth /= 2;
    return chunk > first ? chunk : first;
}

/* `more`: of local memory, as the variant says. */
static matrix_plan matrix_plan_of(const ist_plan *p, bool more, const ist_csp *b) {
    ist_tensor x = b->x;
    matrix_plan m = {.cp = ist_div_up(b->last.out, CHUNK_INPUTS) * CHUNK_INPUTS,
                     .steps = ist_div_up(x.c, CHUNK_INPUTS),
                     .tile_w = 4};
    int units = ist_plan_units(p), down = ist_div_up(x.h, TILE_H);
    /* Small tiles while each group has a compute unit to itself. */
    if (ist_div_up(x.w, m.tile_w) * down * x.n > units) m.tile_w = 8;
    m.across = ist_div_up(x.w, m.tile_w);
    m.tiles = m.across * down;
    int border = 2 * (b->necks + 1),
        rows = (int)ist_round_up((size_t)(TILE_H + border) * (size_t)(m.tile_w + border), ROWS_STEP);
    int maps = 3 * rows * (m.cp * 2 + 16), biases = (b->necks + 3) * m.cp * 4;
    /* A group that has its compute unit to itself may take more of its memory, for fewer and larger chunks. */
    bool large = m.tiles * x.n <= units &&
                 (more || ist_device_local_bytes(ist_plan_device(p)) >= LARGE_BYTES);
    int room = large ? LARGE_BYTES : MOST_BYTES;
    if (maps < rows * (m.steps * 64 + 16)) maps = rows * (m.steps * 64 + 16);
    int most = (large ? 9 : 3) / (m.cp > CHUNK_INPUTS ? 3 : 1);
    for (int taps = most; taps && m.chunks < CHUNKS; taps /= 3) {
        int chunk = chunk_of(&m, taps);
        m.chunks = (room - maps - biases) / chunk;
        if (m.chunks > CHUNKS) m.chunks = CHUNKS; /* more hold up the first one */
        m.bytes = maps + biases + m.chunks * chunk;
    }
    return m;
}

/* Few pixels, since groups compute their borders twice; few channels, since a group makes all of them. */
static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    enum { MOST_CHANNELS = 64, GROUPS_OF_UNIT = 4 };
    const ist_csp *b = node;
    ist_tensor x = b->x, y = b->y;
    int c = b->last.out, units = ist_plan_units(p);
    if (x.elem != IST_ELEM_T || c > MOST_CHANNELS || b->necks > MMA_NECKS) return false;
    bool parts = (x.c | x.ld | x.c0) % FRAGMENT == 0, pairs = c % 2 == 0 && (y.ld | y.c0) % 2 == 0;
    matrix_plan m = matrix_plan_of(p, *(const bool *)v->config, b);
    return parts && pairs && m.chunks >= CHUNKS && m.tiles * x.n <= GROUPS_OF_UNIT * units;
}

/* The fragments of outputs [out0, out0 + outs) of a layer, from column `to` of `columns` on, of its 32 inputs from in0
 * on, for one tap; `room` is [columns][32]. */
static void fill_columns(const ist_filter *f, int out0, int outs, int to, int in0, int tap, float *room) {
    int taps = f->kh * f->kw;
    for (int o = 0; o < outs; o++)
        for (int i = 0; i < CHUNK_INPUTS && in0 + i < f->in; i++)
            room[(to + o) * CHUNK_INPUTS + i] =
                f->w[((size_t)(out0 + o) * (size_t)f->in + (size_t)(in0 + i)) * (size_t)taps + (size_t)tap];
}

static void pack_matrix(const ist_csp *b, const matrix_plan *m, float *room, float *w, float *bias) {
    int c = b->last.out, wide = 2 * m->cp;
    size_t size = (size_t)wide * CHUNK_INPUTS * sizeof *room;
    for (int k = 0; k < m->steps; k++) {
        memset(room, 0, size);
        fill_columns(&b->first, 0, c, 0, k * CHUNK_INPUTS, 0, room);
        fill_columns(&b->first, c, c, m->cp, k * CHUNK_INPUTS, 0, room);
        w = ist_fragments(room, wide / FRAGMENT, 1, CHUNK_INPUTS, false, w);
    }
    for (int l = 0; l <= b->necks; l++)
        for (int tap = 0; tap < 9; tap++)
            for (int k = 0; k < m->cp; k += CHUNK_INPUTS) {
                memset(room, 0, size);
                fill_columns(l < b->necks ? &b->neck[l] : &b->last, 0, c, 0, k, tap, room);
                w = ist_fragments(room, m->cp / FRAGMENT, 1, CHUNK_INPUTS, false, w);
            }
    for (int o = 0; o < c; o++) {
        if (b->first.b) bias[o] = b->first.b[o], bias[m->cp + o] = b->first.b[c + o];
        for (int l = 0; l <= b->necks; l++) {
            const ist_filter *f = l < b->necks ? &b->neck[l] : &b->last;
            if (f->b) bias[wide + l * m->cp + o] = f->b[o];
        }
    }
}

void ist_csp_launch(ist_plan *p, const ist_csp *b, const ist_csp_kernel *k, float *w, size_t count, float *bias,
                    size_t biases) {
    const char *label = b->label;
    ist_tensor x = b->x, y = b->y, weights = {0}, sums = {0};
    const int c = b->last.out;
    if (w && bias) {
        weights = ist_plan_const(p, w, 1, 1, 1, (int)count, IST_ELEM_T, label);
        sums = ist_plan_const(p, bias, 1, 1, 1, (int)biases, IST_ELEM_F32, label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
    }
    free(w);
    free(bias);
    ist_launch l = {.label = label,
                    .op = k->op,
                    .isa = k->isa,
                    .defines = k->defines,
                    .kernel = "csp",
                    .dims = 2,
                    .global = {(size_t)k->tiles * ITEMS, (size_t)x.n},
                    .local = {ITEMS, 1},
                    .args = {IST_OUT(y), IST_IN(x), IST_IN(weights), IST_IN(sums), IST_IN(ist_plan_current_limit(p)),
                             IST_INT8(x.h, x.w, x.ld, x.c0, k->across, 0, 0, 0), IST_INT4(y.n, y.ld, y.c0, c)},
                    .arg_count = 7,
                    .flops = 2.0 * ist_pixels(x) * c * (2.0 * x.c + 9.0 * (b->necks + 1) * c),
                    .bytes = 2.0 * ist_pixels(x) * (x.c + c)};
    if (!ist_plan_status(p)) ist_plan_launch(p, &l);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_csp *b = node;
    matrix_plan m = matrix_plan_of(p, *(const bool *)v->config, b);
    (void)way;
    size_t wide = (size_t)m.cp, layers = (size_t)b->necks + 1;
    size_t count = 2 * wide * (size_t)m.steps * CHUNK_INPUTS + layers * 9 * wide * wide, biases = (layers + 2) * wide;
    float *w = malloc(count * sizeof *w), *bias = calloc(biases, sizeof *bias);
    float *room = malloc(2 * wide * CHUNK_INPUTS * sizeof *room);
    if (w && bias && room) {
        pack_matrix(b, &m, room, w, bias);
    } else {
        free(w);
        w = NULL;
    }
    free(room);
    ist_defines d =
        ist_defines_of(p, "-DIN=%d -DCP=%d -DNECKS=%d -DTILE_W=%d -DTAPS=%d -DDEPTH=%d -DCHUNKS=%d -DAHEAD=%d", b->x.c,
                       m.cp, b->necks, m.tile_w, m.taps, m.depth, m.chunks, m.chunks - 2);
    const ist_csp_kernel k = {"nvidia/csp", "nvidia/ptx", d.text, m.across, m.tiles};
    ist_csp_launch(p, b, &k, w, count, bias, biases);
}

const ist_family ist_nvidia_csp = {.takes = takes, .emit = emit};
