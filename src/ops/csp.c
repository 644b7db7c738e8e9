/* CSP blocks: the fused rows op/csp_cpu and, on matrix instructions, op/csp_mma; elsewhere a convolution for each
 * layer.
 */
#include "ops/csp.h"
#include "ops/fragments.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* The numbers of cl/op/csp_cpu.cl. */
enum { GROUP = 7, VEC = 16, VECTORS = 3, STEP = 48, LINES_MIN = 8, WIDTH_MIN = 8 };

static bool filter_is(const ist_filter *f, int out, int in, int k) {
    return f->out == out && f->in == in && f->kh == k && f->kw == k;
}

static bool check(ist_plan *p, ist_tensor x, const ist_csp *b, const char *label) {
    if (ist_plan_status(p)) return false;
    int c = b->last.out;
    bool right = filter_is(&b->first, 2 * c, x.c, 1) && filter_is(&b->last, c, c, 3) && b->necks >= 1 &&
                 b->necks <= IST_CSP_NECKS;
    for (int i = 0; right && i < b->necks; i++) right = filter_is(&b->neck[i], c, c, 3);
    if (!right)
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: CSP block of %d outputs, %d bottlenecks and %d channels on [%d,%d,%d,%d]",
                      label, b->first.out, b->necks, c, x.n, x.h, x.w, x.c);
    return right;
}

static bool fused(const ist_plan *p, ist_tensor x, const ist_csp *b) {
    int c = b->last.out;
    return ist_cpu_row(p) && (ist_plan_caps(p) & IST_CAP_SIMD16) && !ist_plan_half(p) && !ist_plan_bf16(p) &&
           x.elem == IST_ELEM_T && c > VEC && c < 2 * VEC && ist_div_up(2 * c, VEC) == VECTORS && x.w >= WIDTH_MIN;
}

/* ---- a launch for each layer ---- */

static ist_tensor in_steps(ist_plan *p, ist_tensor x, const ist_csp *b, ist_tensor into, const char *label) {
    int c = b->last.out;
    ist_conv_opts opts = {.epi.act = IST_ACT_SILU};
    ist_tensor both = ist_op_linear(p, x, b->first, &opts, label); /* [n,h,w,2c] */
    ist_tensor y = ist_slice(both, 0, c);
    opts.top = opts.left = opts.bottom = opts.right = 1;
    for (int i = 0; i < b->necks; i++) {
        if (i + 1 == b->necks) opts.epi.add_after = ist_slice(both, c, c);
        y = ist_op_conv(p, y, b->neck[i], &opts, label); /* [n,h,w,c] */
    }
    opts.epi.add_after = (ist_tensor){0};
    opts.into = into;
    return ist_op_conv(p, y, b->last, &opts, label); /* [n,h,w,c] */
}

/* ---- one launch ---- */

/* [in][out of whole vectors], then the bias. */
static float *pack_first(const ist_filter *f, float *dst) {
    int wide = (int)ist_round_up((size_t)f->out, VEC);
    for (int i = 0; i < f->in; i++)
        for (int o = 0; o < wide; o++) *dst++ = o < f->out ? f->w[(size_t)o * (size_t)f->in + (size_t)i] : 0.0f;
    for (int o = 0; o < wide; o++) *dst++ = f->b && o < f->out ? f->b[o] : 0.0f;
    return dst;
}

/* [group][in][tap][GROUP], then the bias. */
static float *pack_later(const ist_filter *f, float *dst) {
    int all = (int)ist_round_up((size_t)f->out, GROUP);
    for (int first = 0; first < all; first += GROUP)
        for (int i = 0; i < f->in; i++)
            for (int t = 0; t < 9; t++)
                for (int o = first; o < first + GROUP; o++)
                    *dst++ = o < f->out ? f->w[((size_t)o * (size_t)f->in + (size_t)i) * 9 + (size_t)t] : 0.0f;
    for (int o = 0; o < all; o++) *dst++ = f->b && o < f->out ? f->b[o] : 0.0f;
    return dst;
}

static ist_tensor packed(ist_plan *p, const ist_csp *b, const char *label) {
    size_t c = (size_t)b->last.out, wide = ist_round_up(2 * c, VEC), all = ist_round_up(c, GROUP);
    size_t count = ((size_t)b->first.in + 1) * wide + (size_t)(b->necks + 1) * all * (9 * c + 1);
    float *w = malloc(count * sizeof *w);
    ist_tensor t = {0};
    if (!w) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    float *dst = pack_first(&b->first, w);
    for (int i = 0; i < b->necks; i++) dst = pack_later(&b->neck[i], dst);
    pack_later(&b->last, dst);
    t = ist_plan_const_bytes(p, w, count * sizeof *w, label);
    free(w);
    return t;
}

/* Bands of an item: one for each compute unit, if there are lines enough that those made twice cost little. */
static int bands_of(ist_tensor x, int units) {
    int bands = ist_div_up(units, x.n), most = x.h / LINES_MIN;
    if (bands > most) bands = most;
    return bands > 1 ? bands : 1;
}

static ist_tensor in_one(ist_plan *p, ist_tensor x, const ist_csp *b, ist_tensor into, const char *label) {
    int units = ist_plan_units(p), c = b->last.out, wide = VECTORS * VEC;
    ist_tensor y = ist_plan_into(p, into, x.n, x.h, x.w, c, IST_ELEM_T, label);
    int bands = bands_of(x, units), lines = ist_div_up(x.h, bands) + 2 * b->necks + 2;
    /* an odd number of vectors, so that planes do not meet in the same sets of a cache */
    int size = ((lines * (x.w + 1) + 2 * STEP) / VEC | 1) * VEC;
    ist_tensor scratch = ist_plan_tensor(p, 1, units, wide + c, size, IST_ELEM_F32);
    ist_defines d = ist_defines_of(p, "-DC=%d", c);
    ist_launch l = {.label = label,
                    .op = "op/csp_cpu",
                    .isa = "isa/tile",
                    .defines = d.text,
                    .kernel = "csp",
                    .dims = 1,
                    .global = {(size_t)units},
                    .local = {1},
                    .args = {IST_OUT(y), IST_IN(x), IST_OUT(scratch), IST_IN(packed(p, b, label)),
                             IST_IN(ist_plan_current_limit(p)), IST_INT8(x.h, x.w, x.ld, x.c0, x.c, 0, 0, 0),
                             IST_INT8(x.n, y.ld, y.c0, b->necks, bands, ist_plan_work_turn(p), size, 0),
                             IST_INOUT(ist_plan_work_queue(p))},
                    .arg_count = 8,
                    .shares = true,
                    .flops = 2.0 * ist_pixels(x) * c * (2.0 * x.c + 9.0 * (b->necks + 1) * c),
                    .bytes = 4.0 * ist_pixels(x) * (x.c + c)};
    ist_plan_launch(p, &l);
    return ist_plan_status(p) ? (ist_tensor){0} : y;
}

/* ---- one launch on matrix instructions ---- */

/* The numbers of cl/op/csp_mma.cl. */
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

static matrix_plan matrix_plan_of(const ist_plan *p, ist_tensor x, const ist_csp *b) {
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
                 (ist_plan_caps(p) & IST_CAP_PTX_WGMMA || ist_device_local_bytes(ist_plan_device(p)) >= LARGE_BYTES);
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
static bool matrix_fused(const ist_plan *p, ist_tensor x, const ist_csp *b, ist_tensor into) {
    enum { MOST_CHANNELS = 64, GROUPS_OF_UNIT = 4 };
    int c = b->last.out, units = ist_plan_units(p);
    if (!(ist_plan_caps(p) & IST_CAP_PTX_MMA) || !ist_plan_half(p) || x.elem != IST_ELEM_T || c > MOST_CHANNELS ||
        b->necks > MMA_NECKS)
        return false;
    bool parts = (x.c | x.ld | x.c0) % FRAGMENT == 0;
    bool pairs = c % 2 == 0 && (!ist_has(into) || (into.elem == IST_ELEM_T && (into.ld | into.c0) % 2 == 0));
    matrix_plan m = matrix_plan_of(p, x, b);
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

static ist_tensor on_matrix(ist_plan *p, ist_tensor x, const ist_csp *b, ist_tensor into, const char *label) {
    matrix_plan m = matrix_plan_of(p, x, b);
    int c = b->last.out;
    size_t wide = (size_t)m.cp, layers = (size_t)b->necks + 1;
    size_t count = 2 * wide * (size_t)m.steps * CHUNK_INPUTS + layers * 9 * wide * wide, biases = (layers + 2) * wide;
    float *w = malloc(count * sizeof *w), *bias = calloc(biases, sizeof *bias);
    float *room = malloc(2 * wide * CHUNK_INPUTS * sizeof *room);
    ist_tensor none = {0}, weights = none, sums = none, y = ist_plan_into(p, into, x.n, x.h, x.w, c, IST_ELEM_T, label);
    if (w && bias && room) {
        pack_matrix(b, &m, room, w, bias);
        weights = ist_plan_const(p, w, 1, 1, 1, (int)count, IST_ELEM_T, label);
        sums = ist_plan_const(p, bias, 1, 1, 1, (int)biases, IST_ELEM_F32, label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
    }
    free(w);
    free(bias);
    free(room);
    ist_defines d =
        ist_defines_of(p, "-DIN=%d -DCP=%d -DNECKS=%d -DTILE_W=%d -DTAPS=%d -DDEPTH=%d -DCHUNKS=%d -DAHEAD=%d", x.c,
                       m.cp, b->necks, m.tile_w, m.taps, m.depth, m.chunks, m.chunks - 2);
    ist_launch l = {.label = label,
                    .op = "op/csp_mma",
                    .isa = "isa/ptx",
                    .defines = d.text,
                    .kernel = "csp",
                    .dims = 2,
                    .global = {(size_t)m.tiles * ITEMS, (size_t)x.n},
                    .local = {ITEMS, 1},
                    .args = {IST_OUT(y), IST_IN(x), IST_IN(weights), IST_IN(sums), IST_IN(ist_plan_current_limit(p)),
                             IST_INT8(x.h, x.w, x.ld, x.c0, m.across, 0, 0, 0), IST_INT4(y.n, y.ld, y.c0, c)},
                    .arg_count = 7,
                    .flops = 2.0 * ist_pixels(x) * c * (2.0 * x.c + 9.0 * (b->necks + 1) * c),
                    .bytes = 2.0 * ist_pixels(x) * (x.c + c)};
    if (!ist_plan_status(p)) ist_plan_launch(p, &l);
    return ist_plan_status(p) ? none : y;
}

ist_tensor ist_op_csp(ist_plan *p, ist_tensor x, const ist_csp *b, ist_tensor into, const char *label) {
    if (!check(p, x, b, label)) return (ist_tensor){0};
    if (matrix_fused(p, x, b, into)) return on_matrix(p, x, b, into, label);
    return fused(p, x, b) ? in_one(p, x, b, into, label) : in_steps(p, x, b, into, label);
}
