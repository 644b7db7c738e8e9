/* Masks: low-resolution logits -> bits at the image's size, and the packet that carries everything home
 * (cl/portable/mask, pack).
 *
 * The mask store is an external buffer of capacity P * IST_UP_STORE_WORDS words (P = batch * max_objects): object k
 * owns words from k * store_words, column x of its image ceil(H / 32) words, bit r of word j is row 32 j + r. It also
 * receives the masks that do not fit the packet, so it must stay untouched until the host has seen the packet: one per
 * frame in flight. */
#include "variants/portable/launch_with.h"
#include "variants/portable/mask_args.h"
#include "variants/portable/mask_groups.h"
#include "variants/portable/pack_args.h"

static void emit_masks(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_masks *q = node;
    ist_tensor logits = q->logits;
    const ist_detections *d = &q->det;
    int pixels = logits.h * logits.w;
    ist_mask_groups g = ist_mask_groups_of(ist_lanes_of(v), d->batch * d->max_objects);
    size_t lanes = (size_t)ist_lanes_of(v)->lanes;
    ist_defines defines = ist_defines_of(p, "-DLANES=%d -DLOW=%d%s", (int)lanes, q->side / IST_LOGIT_PIXELS,
                                         ist_has(q->picks) ? " -DPICKS" : "");
    (void)way;
    const ist_mask_args by_value = {.object_floats = logits.ld * pixels,
                                    .logits_c0 = logits.c0,
                                    .all_groups = g.all,
                                    .object_groups = g.most,
                                    .offset = q->offset};
    q->stats = ist_plan_tensor(p, 1, 1, g.all, IST_MASK_STATS, IST_ELEM_I32);
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "portable/mask",
                                     .isa = "codes/frame+portable/frame+portable/mask_sums",
                                     .defines = defines.text,
                                     .kernel = "masks",
                                     .dims = 1,
                                     .global = {lanes * (size_t)g.all},
                                     .local = {lanes},
                                     .args = {IST_OUT(q->store), IST_OUT(q->stats), IST_IN(logits), IST_IN(d->image_of),
                                              IST_IN(d->total), IST_IN(q->picks), IST_IN(q->upload),
                                              IST_STRUCT(mask_args, &by_value)},
                                     .arg_count = 8});
}

const ist_family ist_portable_masks = {.emit = emit_masks};

/* ---- the packet ---- */

static ist_launch launch_of(const ist_pack *q, const char *defines, const char *kernel, size_t count, size_t lanes) {
    return (ist_launch){.label = q->label,
                        .op = "portable/pack",
                        .isa = "codes/frame+portable/frame+portable/mask_sums",
                        .defines = defines,
                        .kernel = kernel,
                        .dims = 1,
                        .global = {lanes * count},
                        .local = {lanes}};
}

/* Where each mask lies in the packet or the store, and the masks. */
static void place_masks(ist_plan *p, const ist_pack *q, const char *defines, const ist_lanes *l, ist_mask_groups g) {
    const ist_detections *d = &q->det;
    const ist_windows_args by_value = {
        .batch = d->batch, .max_objects = d->max_objects, .all_groups = g.all, .object_groups = g.most};
    ist_launch windows = launch_of(q, defines, "windows", (size_t)(1 + g.all), (size_t)l->lanes);
    ist_launch spill = launch_of(q, defines, "spill", 1, (size_t)l->wide);
    LAUNCH_WITH(p, windows, IST_INOUT(q->packet), IST_IN(q->store), IST_IN(d->counts), IST_IN(d->total),
                IST_IN(q->upload), IST_STRUCT(windows_args, &by_value));
    LAUNCH_WITH(p, spill, IST_INOUT(q->store), IST_IN(q->packet), IST_IN(q->upload), IST_INT(d->batch));
}

static void place_logits(ist_plan *p, const ist_pack *q, const char *defines) {
    enum { GROUP = 64 };
    const ist_detections *d = &q->det;
    ist_tensor x = q->logits;
    int pixels = x.h * x.w * x.c;
    const ist_logits_args by_value = {.pixels = pixels,
                                      .logits_ld = x.h * x.w * x.ld,
                                      .logits_c0 = x.c0,
                                      .first = (int)ist_packet_masks_at(d->batch, d->max_objects)};
    ist_launch logits = launch_of(q, defines, "logits", 1, 1);
    logits.dims = 2;
    logits.global[0] = ist_round_up((size_t)pixels, GROUP), logits.global[1] = (size_t)(d->batch * d->max_objects);
    logits.local[0] = GROUP, logits.local[1] = 1;
    LAUNCH_WITH(p, logits, IST_INOUT(q->packet), IST_IN(x), IST_IN(d->total), IST_IN(q->upload),
                IST_STRUCT(logits_args, &by_value));
}

static void emit_pack(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_pack *q = node;
    const ist_lanes *l = ist_lanes_of(v);
    const ist_detections *d = &q->det;
    int prompts = d->batch * d->max_objects;
    bool masks = ist_has(q->stats);
    ist_mask_groups g = ist_mask_groups_of(l, prompts);
    ist_defines defines = ist_defines_of(p, "-DLANES=%d -DSPILL_LANES=%d %s", l->lanes, l->wide,
                                         q->score.elem == IST_ELEM_F32 ? "-DSCORE_F32" : "");
    (void)way;
    const ist_records_args by_value = {.batch = d->batch,
                                       .max_objects = d->max_objects,
                                       .matched = ist_has(q->match),
                                       .masked = masks,
                                       .score_ld = q->score.ld,
                                       .score_c0 = q->score.c0,
                                       .scores_each = masks ? q->score.c : 1,
                                       .all_groups = q->summed ? 1 : g.all, /* one an object */
                                       .object_groups = q->summed ? 1 : g.most};
    ist_launch records = launch_of(q, defines.text, "records", (size_t)prompts, (size_t)l->lanes);
    ist_launch places = launch_of(q, defines.text, "places", 1, (size_t)l->lanes);
    LAUNCH_WITH(p, records, IST_OUT(q->packet), IST_IN(d->objects), IST_IN(d->counts), IST_IN(d->image_of),
                IST_IN(d->total), IST_IN(q->match), IST_IN(q->stats), IST_IN(q->score),
                IST_STRUCT(records_args, &by_value));
    if (masks)
        place_masks(p, q, defines.text, l, g);
    else
        LAUNCH_WITH(p, places, IST_INOUT(q->packet), IST_IN(d->counts), IST_IN(d->total), IST_IN(q->upload),
                    IST_INT(d->batch));
    if (ist_has(q->logits)) place_logits(p, q, defines.text);
}

const ist_family ist_portable_pack = {.emit = emit_pack};
