/* Mask upscaling by work-groups with local memory (cl/portable/upscale), or on register tiles
 * (cl/portable/upscale_tile). */
#include "variants/upscale.h"
#include "variants/defines.h"
#include "variants/variant.h"

#include "base/mem.h"

#include <stdlib.h>

/* Image tokens of a group of 256 work-items; on register tiles: of a group, work-items, bytes of local memory. */
enum { PIXELS = 8, TILE_TOKENS = 64, TILE_ITEMS = 128, TILE_BYTES = 38400 };

/* The configuration is the number of work-items of a group (an int); on register tiles there is none. */

static void launch(ist_plan *p, const ist_upscale *q, const int *group) {
    const ist_tensor x = q->x, vectors = q->vectors;
    ist_upscale_packed c;
    if (!ist_upscale_pack(p, q, &c)) return;
    const int masks = vectors.h * vectors.w, pixels = x.h * x.w, items = group ? *group : TILE_ITEMS;
    const int groups =
        group ? ist_div_up(pixels, items == 256 ? PIXELS : PIXELS / 2) : 4 * ist_div_up(pixels, TILE_TOKENS);
    const ist_upscale_args by_value = ist_upscale_args_of(q);
    ist_defines defines = ist_defines_of(p, "-DK=%d", x.c);
    ist_launch l = {.label = q->label,
                    .op = "portable/upscale",
                    .kernel = "upscale",
                    .dims = 2,
                    .global = {(size_t)groups * (size_t)items, (size_t)x.n},
                    .local = {(size_t)items, 1},
                    .args = {IST_OUT(q->y), IST_IN(x), IST_IN(c.w1), IST_IN(c.norm), IST_IN(c.w2), IST_IN(c.b2),
                             IST_IN(vectors), IST_IN(ist_plan_current_limit(p))},
                    .arg_count = 8,
                    .flops = ist_upscale_flops(q, x.c),
                    .bytes = 4.0 * x.n * pixels * (x.c + 16.0 * masks)};
    if (group) {
        ist_defines_add(&defines, " -DGROUP=%d", items);
    } else {
        l.op = "portable/upscale_tile";
        l.isa = "portable/tokens_seen";
        l.args[l.arg_count++] = (ist_arg)IST_IN(q->content);
        l.args[l.arg_count++] = (ist_arg)IST_IN(q->image_of);
    }
    l.args[l.arg_count++] = (ist_arg)IST_STRUCT(upscale_args, &by_value);
    l.defines = defines.text;
    ist_plan_launch(p, &l);
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_upscale centred;
    float *room;
    (void)way;
    if (ist_upscale_centred(p, node, &centred, &room)) launch(p, &centred, v->config);
    free(room);
}

const ist_family ist_portable_upscale = {.emit = emit};

static bool takes_tile(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_upscale *q = node;
    (void)v;
    return q->x.ld % 4 == 0 && q->x.c0 % 4 == 0 && ist_upscale_content_fits(q) &&
           ist_device_local_bytes(ist_plan_device(p)) >= TILE_BYTES;
}

const ist_family ist_portable_upscale_tile = {.takes = takes_tile, .emit = emit};
