/* Mask upscaling: packs both transposed convolutions by pixel of their 2x2 blocks and records one launch.
 *
 * Rows: op/upscale_amx and op/upscale_cpu (a work-item per group, with AMX and without), op/upscale_wgmma and
 * op/upscale_mma (matrix instructions of warpgroups and warps, half storage) and op/upscale (work-groups with local
 * memory). */
#include "ops/upscale.h"
#include "ops/amx.h"
#include "ops/fragments.h"
#include "ops/rows.h"
#include "ops/two_way_shared.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { C1 = IST_UPSCALE_MIDDLE, C2 = IST_UPSCALE_OUT, IN_MAX = 256, CPU_PIXELS = 66, ANY_PIXELS = 8 };
enum { AMX_PIXELS = 128, AMX_SHARED_PIXELS = 512 /* of a group, which packs what prompts add */ };

typedef struct packed {
    ist_tensor w1, w2, norm, b2;
} packed;

/* dst: C1 values, `step` apart, less their mean, which LN subtracts anyway. */
static void center(const float *src, int step, float *dst) {
    double mean = 0;
    for (int o = 0; o < C1; o++) mean += src[o * step] / (double)C1;
    for (int o = 0; o < C1; o++) dst[o] = (float)(src[o * step] - mean);
}

/* w1 [phase][in][C1], centred, and w2 [line][C1][column][C2] from PyTorch's [in][out][2][2]. */
static void pack_weights(const ist_upscale_weights *w, int in, float *w1, float *w2) {
    for (int phase = 0; phase < 4; phase++)
        for (int i = 0; i < in; i++, w1 += C1) center(w->w1 + (size_t)i * C1 * 4 + phase, 4, w1);
    for (int line = 0; line < 2; line++)
        for (int i = 0; i < C1; i++)
            for (int column = 0; column < 2; column++)
                for (int o = 0; o < C2; o++) *w2++ = w->w2[(i * C2 + o) * 4 + 2 * line + column];
}

static bool amx_row(const ist_plan *p, ist_tensor x) {
    return ist_cpu_row(p) && ist_plan_caps(p) & IST_CAP_X86_AMX && !ist_plan_half(p) && x.c % IST_AMX_DEPTH == 0;
}

/* Panels of both convolutions as op/upscale_amx takes them. */
static bool pack_panels(ist_plan *p, const ist_upscale_weights *w, int in, const char *label, packed *c) {
    ist_filter one = {4 * C1, in, 1, 1, NULL, NULL}, two = {4 * C2, C1, 1, 1, NULL, NULL};
    size_t count = 4 * (size_t)in * C1 + 4 * C1 * C2, first = ist_amx_pairs(&one, IST_AMX_PARTS);
    size_t second = ist_amx_pairs(&two, IST_AMX_PARTS);
    float *all = malloc(count * sizeof *all), *v = all;
    uint32_t *pairs = malloc((first + second) * sizeof *pairs);
    if (all && pairs) {
        one.w = v;
        for (int i = 0; i < in; i++)
            for (int phase = 0; phase < 4; phase++) {
                float row[C1];
                center(w->w1 + (size_t)i * C1 * 4 + phase, 4, row);
                for (int o = 0; o < C1; o++) v[(size_t)(phase * C1 + o) * (size_t)in + (size_t)i] = row[o];
            }
        v += 4 * C1 * (size_t)in;
        two.w = v;
        for (int o = 0; o < 4 * C2; o++)
            for (int i = 0; i < C1; i++) *v++ = w->w2[((size_t)i * C2 + (size_t)(o % C2)) * 4 + (size_t)(o / C2)];
        ist_amx_pack(&one, IST_AMX_PARTS, pairs);
        ist_amx_pack(&two, IST_AMX_PARTS, pairs + first);
        c->w1 = ist_plan_const_bytes(p, pairs, first * sizeof *pairs, label);
        c->w2 = ist_plan_const_bytes(p, pairs + first, second * sizeof *pairs, label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
    }
    free(all);
    free(pairs);
    return !ist_plan_status(p);
}

static bool pack_rows(ist_plan *p, const ist_upscale_weights *w, int in, const char *label, packed *out) {
    size_t first = 4 * (size_t)in * C1, second = 4 * C1 * C2;
    float *both = malloc((first + second) * sizeof *both);
    if (!both) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, first + second);
        return false;
    }
    pack_weights(w, in, both, both + first);
    out->w1 = ist_plan_const_bytes(p, both, first * sizeof *both, label);
    out->w2 = ist_plan_const_bytes(p, both + first, second * sizeof *both, label);
    free(both);
    return !ist_plan_status(p);
}

static bool pack(ist_plan *p, const ist_upscale_weights *w, ist_tensor x, const char *label, packed *out) {
    float norm[3 * C1];
    center(w->b1, 1, norm);
    memcpy(norm + C1, w->gamma, sizeof norm / 3);
    memcpy(norm + 2 * C1, w->beta, sizeof norm / 3);
    out->norm = ist_plan_const(p, norm, 1, 1, 3, C1, IST_ELEM_F32, label);
    out->b2 = ist_plan_const(p, w->b2, 1, 1, 1, C2, IST_ELEM_F32, label);
    return (amx_row(p, x) ? pack_panels : pack_rows)(p, w, x.c, label, out);
}

/* `depth`: of the first product. */
static double flops_of(ist_tensor x, int masks, double depth) {
    return 2.0 * ist_pixels(x) * (4.0 * depth * C1 + 16.0 * C1 * C2 + 16.0 * C2 * masks);
}

/* ---- matrix instructions ---- */

/* Pieces of 16 bytes are aligned, pairs of a vector too. */
static bool matrix_row(const ist_plan *p, ist_tensor x, ist_tensor vectors) {
    return (ist_plan_caps(p) & IST_CAP_PTX_MMA) && ist_plan_half(p) && x.c % 32 == 0 && (x.ld | x.c0) % 8 == 0 &&
           (vectors.ld | vectors.c0) % 2 == 0;
}

/* Whether it is of warpgroups. */
static bool by_groups(const ist_plan *p, ist_tensor x) {
    return (ist_plan_caps(p) & IST_CAP_PTX_WGMMA) && x.c % 64 == 0;
}

/* Fragments as op/upscale_mma takes them. */
static void pack_fragments(const ist_upscale_weights *w, int in, float *to) {
    for (int phase = 0; phase < 4; phase++)
        for (int k = 0; k < in; k += 32) to = ist_fragments(w->w1 + k * C1 * 4 + phase, C1 / 8, C1 * 4, 4, true, to);
    for (int pixel = 0; pixel < 4; pixel++)
        for (int k = 0; k < C1; k += 32) to = ist_fragments(w->w2 + k * C2 * 4 + pixel, C2 / 8, C2 * 4, 4, false, to);
}

/* Tiles as op/upscale_wgmma takes them. */
static void pack_tiles(const ist_upscale_weights *w, int in, float *to) {
    for (int phase = 0; phase < 4; phase++, to += in * C1)
        for (int i = 0; i < in; i++)
            for (int o = 0, k = ist_place_channel(i); o < C1; o++)
                to[k / 64 * 64 * C1 + ist_group_tile_at(o, k % 64)] = w->w1[(i * C1 + o) * 4 + phase];
    for (int pixel = 0; pixel < 4; pixel++, to += C1 * C2)
        for (int i = 0; i < C1; i++)
            for (int o = 0; o < C2; o++) to[ist_group_tile_at(o, i)] = w->w2[(i * C2 + o) * 4 + pixel];
}

/* What they multiply with, as constants. */
static bool pack_matrix(ist_plan *p, const ist_upscale_weights *w, int in, bool groups, const char *label,
                        packed *out) {
    size_t count = 4 * (size_t)in * C1 + 4 * C1 * C2;
    float *all = malloc(count * sizeof *all), norm[3 * C1 + C2];
    if (!all) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return false;
    }
    (groups ? pack_tiles : pack_fragments)(w, in, all);
    memcpy(norm, w->b1, C1 * sizeof *norm);
    memcpy(norm + C1, w->gamma, C1 * sizeof *norm);
    memcpy(norm + 2 * C1, w->beta, C1 * sizeof *norm);
    memcpy(norm + 3 * C1, w->b2, C2 * sizeof *norm);
    out->w1 = ist_plan_const(p, all, 1, 1, 1, (int)count, IST_ELEM_T, label);
    out->norm = ist_plan_const(p, norm, 1, 1, 1, 3 * C1 + C2, IST_ELEM_F32, label);
    free(all);
    return !ist_plan_status(p);
}

/* Groups along the prompts: enough that all are at work, few enough that each uses its weights for several prompts. */
static int prompt_groups(int blocks, int prompts) {
    enum { ENOUGH = 768 };
    int want = ENOUGH / (4 * blocks);
    return want < 1 ? 1 : want < prompts ? want : prompts;
}

static void launch_matrix(ist_plan *p, ist_tensor x, const ist_upscale_weights *w, ist_tensor vectors, ist_tensor y,
                          const char *label) {
    enum { ITEMS = 128, TAKE = 64 };
    packed c;
    bool groups = by_groups(p, x);
    if (!pack_matrix(p, w, x.c, groups, label, &c)) return;
    int masks = vectors.h * vectors.w, pixels = x.h * x.w, blocks = ist_div_up(pixels, TAKE);
    ist_defines defines = ist_defines_of(p, "-DK=%d", x.c);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = groups ? "op/upscale_wgmma" : "op/upscale_mma",
                                     .isa = groups ? "isa/ptx+isa/sums+isa/wgmma" : "isa/ptx+isa/sums",
                                     .defines = defines.text,
                                     .kernel = "upscale",
                                     .dims = 2,
                                     .global = {(size_t)blocks * 4 * ITEMS, (size_t)prompt_groups(blocks, x.n)},
                                     .local = {ITEMS, 1},
                                     .args = {IST_OUT(y), IST_IN(x), IST_IN(c.w1), IST_IN(c.norm), IST_IN(vectors),
                                              IST_IN(ist_plan_current_limit(p)), IST_INT4(x.h, x.w, x.n, masks),
                                              IST_INT4(x.ld, x.c0, vectors.ld, vectors.c0), IST_FLOAT(w->eps)},
                                     .arg_count = 9,
                                     .flops = flops_of(x, masks, x.c),
                                     .bytes = 2.0 * x.n * pixels * (x.c + 32.0 * masks)});
}

static bool sharing_fits(const ist_plan *p, ist_tensor x, const ist_upscale_sharing *s) {
    if (!s) return true;
    int columns = s->values[0].w;
    for (int i = 0; i < 2; i++)
        if (s->values[i].n != x.n || s->values[i].h != 4 || s->values[i].w != columns || s->values[i].c != C1)
            return false;
    return ist_image_shares(p) && columns <= 8 * IST_TRACE_TOKENS && s->image.c >= 4 * C1 && s->image.w >= x.h * x.w &&
           s->trace.n == x.n && s->trace.h == 2 && s->trace.w == x.h * x.w && s->trace.c == IST_TRACE_FLOATS &&
           s->ways.w == x.n && ist_pixels(s->map) >= x.n;
}

static bool seen_fits(ist_upscale_seen s, int prompts) {
    return !ist_has(s.content) ||
           (s.content.c == 2 && s.content.elem == IST_ELEM_I32 && ist_pixels(s.image_of) >= prompts);
}

static void launch_cpu(ist_plan *p, ist_tensor x, const ist_upscale_weights *w, const packed *c, ist_tensor vectors,
                       const ist_upscale_sharing *sharing, ist_upscale_seen seen, ist_tensor y, const char *label) {
    static const ist_upscale_sharing nothing = {0};
    const ist_upscale_sharing *s = sharing ? sharing : &nothing;
    ist_tensor constants = {0};
    int noted = s->values[0].w - IST_TWO_WAY_HEADS;
    if (sharing) constants = ist_plan_const(p, s->constants, 1, 1, 4 * 3, C1, IST_ELEM_F32, label);
    int masks = vectors.h * vectors.w, pixels = x.h * x.w;
    bool amx = amx_row(p, x);
    int take = !amx ? CPU_PIXELS : sharing ? AMX_SHARED_PIXELS : AMX_PIXELS;
    size_t parts = (size_t)ist_div_up(pixels, take), items = (size_t)x.n;
    ist_defines defines =
        amx ? ist_defines_of(p, "-DK=%d -DPARTS=%d -DASM=%d", IN_MAX, IST_AMX_PARTS, ist_amx_instructions(p))
            : ist_defines_of(p, "-DK=%d", x.c);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = amx ? "op/upscale_amx" : "op/upscale_cpu",
                                     .isa = amx ? "isa/tile+isa/upscale+isa/amx" : "isa/tile+isa/upscale",
                                     .defines = defines.text,
                                     .kernel = "upscale",
                                     .dims = 2,
                                     .global = {amx ? items : parts, amx ? parts : items},
                                     .local = {1, 1},
                                     .args = {IST_OUT(y),
                                              IST_IN(x),
                                              IST_IN(c->w1),
                                              IST_IN(c->norm),
                                              IST_IN(c->w2),
                                              IST_IN(c->b2),
                                              IST_IN(vectors),
                                              IST_IN(s->image),
                                              IST_IN(s->trace),
                                              IST_IN(s->values[0]),
                                              IST_IN(s->values[1]),
                                              IST_IN(constants),
                                              IST_IN(s->map),
                                              IST_IN(s->ways),
                                              IST_IN(ist_plan_current_limit(p)),
                                              IST_IN(seen.content),
                                              IST_IN(seen.image_of),
                                              IST_INT8(x.h, x.w, take, masks, x.c, s->image.c0),
                                              IST_INT4(x.ld, x.c0, vectors.ld, vectors.c0),
                                              IST_INT4(s->values[0].w, s->image.ld, s->image.w, noted),
                                              IST_INT4(seen.content.ld, seen.content.c0, IST_TOKEN_PIXELS),
                                              IST_FLOAT(w->eps)},
                                     .arg_count = 22,
                                     .flops = flops_of(x, masks, sharing ? 2.0 * noted + 2 : x.c),
                                     .bytes = 4.0 * x.n * pixels * (x.c + 16.0 * masks)});
}

ist_tensor ist_op_upscale(ist_plan *p, ist_tensor x, const ist_upscale_weights *w, ist_tensor vectors,
                          const ist_upscale_sharing *sharing, ist_upscale_seen seen, const char *label) {
    ist_tensor none = {0};
    packed c;
    if (ist_plan_status(p)) return none;
    if (x.c < 16 || x.c > IN_MAX || x.c % 16 || vectors.c != C2 || vectors.n != x.n || x.elem != IST_ELEM_T ||
        vectors.elem != IST_ELEM_T || !sharing_fits(p, x, sharing) || !seen_fits(seen, x.n)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: masks of [%d,%d,%d,%d] and [%d,%d,%d,%d]", label, x.n, x.h, x.w, x.c,
                      vectors.n, vectors.h, vectors.w, vectors.c);
        return none;
    }
    bool cpu = ist_cpu_row(p);
    int masks = vectors.h * vectors.w, pixels = x.h * x.w;
    ist_tensor y = ist_plan_tensor(p, x.n * masks, 4 * x.h, 4 * x.w, 1, IST_ELEM_F32);
    if (!cpu && matrix_row(p, x, vectors)) {
        launch_matrix(p, x, w, vectors, y, label);
        return y;
    }
    if (!pack(p, w, x, label, &c)) return none;
    if (cpu) {
        launch_cpu(p, x, w, &c, vectors, sharing, seen, y, label);
        return y;
    }
    int items = ist_plan_caps(p) & IST_CAP_GROUP256 ? 256 : 64, take = items == 256 ? ANY_PIXELS : ANY_PIXELS / 2;
    ist_defines defines = ist_defines_of(p, "-DK=%d -DGROUP=%d", x.c, items);
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "op/upscale",
                         .defines = defines.text,
                         .kernel = "upscale",
                         .dims = 2,
                         .global = {(size_t)ist_div_up(pixels, take) * (size_t)items, (size_t)x.n},
                         .local = {(size_t)items, 1},
                         .args = {IST_OUT(y), IST_IN(x), IST_IN(c.w1), IST_IN(c.norm), IST_IN(c.w2), IST_IN(c.b2),
                                  IST_IN(vectors), IST_IN(ist_plan_current_limit(p)), IST_INT4(x.h, x.w, take, masks),
                                  IST_INT4(x.ld, x.c0, vectors.ld, vectors.c0), IST_FLOAT(w->eps)},
                         .arg_count = 11,
                         .flops = flops_of(x, masks, x.c),
                         .bytes = 4.0 * x.n * pixels * (x.c + 16.0 * masks)});
    return y;
}
