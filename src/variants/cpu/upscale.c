/* Mask upscaling on CPUs, with AMX and without (cl/cpu/upscale_amx, upscale). */
#include "variants/cpu/upscale.h"
#include "variants/cpu/amx.h"
#include "variants/cpu/upscale_args.h"
#include "variants/defines.h"
#include "variants/upscale.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { C1 = IST_UPSCALE_MIDDLE, C2 = IST_UPSCALE_OUT, IN_MAX = 256, PIXELS = 66 };
enum { AMX_PIXELS = 128, AMX_SHARED_PIXELS = 512 /* of a group, which packs what prompts add */ };

/* The configuration is whether it is of AMX (a bool). */

/* Panels of both convolutions as cl/cpu/upscale_amx takes them. */
static bool pack_panels(ist_plan *p, const ist_upscale *q, ist_upscale_packed *c) {
    int in = q->x.c;
    ist_filter one = {4 * C1, in, 1, 1, NULL, NULL, NULL}, two = {4 * C2, C1, 1, 1, NULL, NULL, NULL};
    size_t count = 4 * (size_t)in * C1 + 4 * C1 * C2, first = ist_amx_pairs(&one, IST_AMX_PARTS);
    size_t second = ist_amx_pairs(&two, IST_AMX_PARTS);
    float *all = malloc(count * sizeof *all), *v = all;
    uint32_t *pairs = malloc((first + second) * sizeof *pairs);
    if (all && pairs) {
        one.w = v;
        for (int i = 0; i < in; i++)
            for (int phase = 0; phase < 4; phase++) {
                float row[C1];
                ist_upscale_row(q->w1.v + (size_t)i * C1 * 4 + phase, 4, row);
                for (int o = 0; o < C1; o++) v[(size_t)(phase * C1 + o) * (size_t)in + (size_t)i] = row[o];
            }
        v += 4 * C1 * (size_t)in;
        two.w = v;
        for (int o = 0; o < 4 * C2; o++)
            for (int i = 0; i < C1; i++) *v++ = q->w2.v[((size_t)i * C2 + (size_t)(o % C2)) * 4 + (size_t)(o / C2)];
        ist_amx_pack(&one, IST_AMX_PARTS, pairs);
        ist_amx_pack(&two, IST_AMX_PARTS, pairs + first);
        c->w1 = ist_plan_const_bytes(p, pairs, first * sizeof *pairs, q->label);
        c->w2 = ist_plan_const_bytes(p, pairs + first, second * sizeof *pairs, q->label);
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, count);
    }
    free(all);
    free(pairs);
    ist_upscale_pack_norm(p, q, c);
    return !ist_plan_status(p);
}

static bool sharing_fits(const ist_upscale *q) {
    const ist_upscale_sharing *s = q->sharing;
    ist_tensor x = q->x;
    if (!s) return true;
    int columns = s->values[0].w;
    for (int i = 0; i < 2; i++)
        if (s->values[i].n != x.n || s->values[i].h != 4 || s->values[i].w != columns || s->values[i].c != C1)
            return false;
    return columns <= 8 * IST_TRACE_TOKENS && s->image.c >= 4 * C1 && s->image.w >= x.h * x.w && s->trace.n == x.n &&
           s->trace.h == 2 && s->trace.w == x.h * x.w && s->trace.c == IST_TRACE_FLOATS && s->ways.w == x.n &&
           ist_pixels(s->map) >= x.n;
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_upscale *q = node;
    (void)p;
    return (!*(const bool *)v->config || q->x.c % IST_AMX_DEPTH == 0) && sharing_fits(q) && ist_upscale_content_fits(q);
}

static void launch(ist_plan *p, const ist_upscale *q, bool amx) {
    static const ist_upscale_sharing nothing = {0};
    const ist_upscale_sharing *s = q->sharing ? q->sharing : &nothing;
    ist_tensor x = q->x, vectors = q->vectors, content = q->content, constants = {0};
    ist_upscale_packed c;
    if (!(amx ? pack_panels : ist_upscale_pack)(p, q, &c)) return;
    int noted = s->values[0].w - IST_TWO_WAY_HEADS;
    if (q->sharing) constants = ist_plan_const(p, s->constants, 1, 1, 4 * 3, C1, IST_ELEM_F32, q->label);
    int masks = vectors.h * vectors.w, pixels = x.h * x.w;
    int take = !amx ? PIXELS : q->sharing ? AMX_SHARED_PIXELS : AMX_PIXELS;
    size_t parts = (size_t)ist_div_up(pixels, take), items = (size_t)x.n;
    ist_defines defines =
        amx ? ist_defines_of(p, "-DK=%d -DPARTS=%d -DASM=%d", IN_MAX, IST_AMX_PARTS, ist_amx_instructions(p))
            : ist_defines_of(p, "-DK=%d", x.c);
    const ist_cpu_upscale_args by_value = {.common = ist_upscale_args_of(q),
                                           .group_pixels = take,
                                           .x_c = x.c,
                                           .sharing = {.value_columns = s->values[0].w,
                                                       .noted_columns = noted,
                                                       .image_length = s->image.w,
                                                       .image_ld = s->image.ld,
                                                       .image_c0 = s->image.c0}};
    ist_plan_launch(
        p, &(ist_launch){.label = q->label,
                         .op = amx ? "cpu/upscale_amx" : "cpu/upscale",
                         .isa = amx ? "cpu/tile+portable/tokens_seen+cpu/upscale_parts+cpu/amx"
                                    : "cpu/tile+portable/tokens_seen+cpu/upscale_parts",
                         .defines = defines.text,
                         .kernel = "upscale",
                         .dims = 2,
                         .global = {amx ? items : parts, amx ? parts : items},
                         .local = {1, 1},
                         .args = {IST_OUT(q->y), IST_IN(x), IST_IN(c.w1), IST_IN(c.norm), IST_IN(c.w2), IST_IN(c.b2),
                                  IST_IN(vectors), IST_IN(s->image), IST_IN(s->trace), IST_IN(s->values[0]),
                                  IST_IN(s->values[1]), IST_IN(constants), IST_IN(s->map), IST_IN(s->ways),
                                  IST_IN(ist_plan_current_limit(p)), IST_IN(content), IST_IN(q->image_of),
                                  IST_STRUCT(cpu_upscale_args, &by_value)},
                         .arg_count = 18,
                         .flops = ist_upscale_flops(q, q->sharing ? 2.0 * noted + 2 : x.c),
                         .bytes = 4.0 * x.n * pixels * (x.c + 16.0 * masks)});
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_upscale centred;
    float *room;
    (void)way;
    if (ist_upscale_centred(p, node, &centred, &room)) launch(p, &centred, *(const bool *)v->config);
    free(room);
}

const ist_family ist_cpu_upscale = {.takes = takes, .emit = emit};
