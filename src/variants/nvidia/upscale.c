/* Mask upscaling on matrix instructions (cl/nvidia/upscale_mma, by warpgroups upscale_wgmma). */
#include "variants/upscale.h"
#include "variants/nvidia/upscale_args.h"
#include "variants/fragments.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { C1 = IST_UPSCALE_MIDDLE, C2 = IST_UPSCALE_OUT, ITEMS = 128, TAKE = 64 };

/* The configuration is whether it is of warpgroups (a bool). */

/* Pieces of 16 bytes are aligned, pairs of a vector too. */
static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_upscale *q = node;
    bool groups = *(const bool *)v->config;
    (void)p;
    return q->x.c % (groups ? 64 : 32) == 0 && (q->x.ld | q->x.c0) % 8 == 0 && (q->vectors.ld | q->vectors.c0) % 2 == 0;
}

/* Fragments as cl/nvidia/upscale_mma takes them. */
static void pack_fragments(const ist_upscale *q, int in, float *to) {
    for (int phase = 0; phase < 4; phase++)
        for (int k = 0; k < in; k += 32) to = ist_fragments(q->w1.v + k * C1 * 4 + phase, C1 / 8, C1 * 4, 4, true, to);
    for (int pixel = 0; pixel < 4; pixel++)
        for (int k = 0; k < C1; k += 32) to = ist_fragments(q->w2.v + k * C2 * 4 + pixel, C2 / 8, C2 * 4, 4, false, to);
}

/* Tiles as cl/nvidia/upscale_wgmma takes them. */
static void pack_tiles(const ist_upscale *q, int in, float *to) {
    for (int phase = 0; phase < 4; phase++, to += in * C1)
        for (int i = 0; i < in; i++)
            for (int o = 0, k = ist_place_channel(i); o < C1; o++)
                to[k / 64 * 64 * C1 + ist_group_tile_at(o, k % 64)] = q->w1.v[(i * C1 + o) * 4 + phase];
    for (int pixel = 0; pixel < 4; pixel++, to += C1 * C2)
        for (int i = 0; i < C1; i++)
            for (int o = 0; o < C2; o++) to[ist_group_tile_at(o, i)] = q->w2.v[(i * C2 + o) * 4 + pixel];
}

/* {weights, {b1, gamma, beta, b2}} */
static bool pack(ist_plan *p, const ist_upscale *q, bool groups, ist_tensor *weights, ist_tensor *norm) {
    size_t count = 4 * (size_t)q->x.c * C1 + 4 * C1 * C2;
    float *all = malloc(count * sizeof *all), table[3 * C1 + C2];
    if (!all) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, count);
        return false;
    }
    (groups ? pack_tiles : pack_fragments)(q, q->x.c, all);
    memcpy(table, q->b1.v, C1 * sizeof *table);
    memcpy(table + C1, q->norm.gamma, C1 * sizeof *table);
    memcpy(table + 2 * C1, q->norm.beta, C1 * sizeof *table);
    memcpy(table + 3 * C1, q->b2.v, C2 * sizeof *table);
    *weights = ist_plan_const(p, all, 1, 1, 1, (int)count, IST_ELEM_T, q->label);
    *norm = ist_plan_const(p, table, 1, 1, 1, 3 * C1 + C2, IST_ELEM_F32, q->label);
    free(all);
    return !ist_plan_status(p);
}

/* Groups along the prompts: enough that all are at work, few enough that each uses its weights for several prompts. */
static int prompt_groups(int blocks, int prompts) {
    enum { ENOUGH = 768 };
    int want = ENOUGH / (4 * blocks);
    return want < 1 ? 1 : want < prompts ? want : prompts;
}

static void launch(ist_plan *p, const ist_upscale *q, bool groups) {
    ist_tensor x = q->x, vectors = q->vectors, weights, norm;
    if (!pack(p, q, groups, &weights, &norm)) return;
    int masks = vectors.h * vectors.w, pixels = x.h * x.w, blocks = ist_div_up(pixels, TAKE);
    ist_defines defines = ist_defines_of(p, "-DK=%d", x.c);
    const ist_nvidia_upscale_args by_value = {.common = ist_upscale_args_of(q), .prompts = x.n};
    ist_plan_launch(
        p, &(ist_launch){.label = q->label,
                         .op = groups ? "nvidia/upscale_wgmma" : "nvidia/upscale_mma",
                         .isa = groups ? "nvidia/ptx+nvidia/sums+nvidia/wgmma" : "nvidia/ptx+nvidia/sums",
                         .defines = defines.text,
                         .kernel = "upscale",
                         .dims = 2,
                         .global = {(size_t)blocks * 4 * ITEMS, (size_t)prompt_groups(blocks, x.n)},
                         .local = {ITEMS, 1},
                         .args = {IST_OUT(q->y), IST_IN(x), IST_IN(weights), IST_IN(norm), IST_IN(vectors),
                                  IST_IN(ist_plan_current_limit(p)), IST_STRUCT(nvidia_upscale_args, &by_value)},
                         .arg_count = 7,
                         .flops = ist_upscale_flops(q, x.c),
                         .bytes = 2.0 * x.n * pixels * (x.c + 32.0 * masks)});
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_upscale centred;
    float *room;
    (void)way;
    if (ist_upscale_centred(p, node, &centred, &room)) launch(p, &centred, *(const bool *)v->config);
    free(room);
}

const ist_family ist_nvidia_upscale = {.takes = takes, .emit = emit};
