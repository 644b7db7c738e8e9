/* Masks and the packet: launches of mask.cl and pack.cl. */
#include "ops/mask.h"

#include "base/mem.h"
#include "ops/lanes.h"

enum { LOW = 256 * 256, STATS = 8 };

/* Groups of mask.cl and pack.cl for all objects together, and how many of them one object gets at most: objects are
 * few or many, so that their number, which only the device knows, decides. CPUs have one work-item a group. */
typedef struct groups {
    int all, most;
} groups;

static groups groups_of(const ist_plan *p, int prompts) {
    enum { CPU_ALL = 2048, CPU_MOST = 32, ALL = 8192, MOST = 512 };
    bool cpu = ist_lanes(p) == 1;
    groups g = {cpu ? CPU_ALL : ALL, cpu ? CPU_MOST : MOST};
    if (g.all > prompts * g.most) g.all = prompts * g.most;
    if (g.all < prompts) g.all = prompts;
    return g;
}

ist_tensor ist_op_masks(ist_plan *p, ist_tensor logits, ist_tensor upload, const ist_detections *det, ist_tensor store,
                        const char *label) {
    ist_tensor none = {0};
    if (ist_plan_status(p)) return none;
    int prompts = det->batch * det->max_objects, pixels = logits.h * logits.w;
    if (logits.elem != IST_ELEM_F32 || logits.n != prompts || pixels * logits.c != LOW ||
        (logits.c > 1 ? pixels != 1 : logits.ld != 1)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: low-resolution logits [%d,%d,%d,%d] of %d prompts", label, logits.n,
                      logits.h, logits.w, logits.c, prompts);
        return none;
    }
    groups g = groups_of(p, prompts);
    size_t lanes = (size_t)ist_lanes(p);
    ist_tensor stats = ist_plan_tensor(p, 1, 1, g.all, STATS, IST_ELEM_I32);
    ist_defines defines = ist_defines_of(p, "-DLANES=%d", (int)lanes);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/mask",
                                     .isa = "op/frame",
                                     .defines = defines.text,
                                     .kernel = "masks",
                                     .dims = 1,
                                     .global = {lanes * (size_t)g.all},
                                     .local = {lanes},
                                     .args = {IST_OUT(store), IST_OUT(stats), IST_IN(logits), IST_IN(det->image_of),
                                              IST_IN(det->total), IST_IN(upload),
                                              IST_INT4(logits.ld * pixels, logits.c0, g.all, g.most)},
                                     .arg_count = 7});
    return stats;
}

static size_t spill_lanes(const ist_plan *p) {
    size_t lanes = (size_t)ist_lanes(p);
    return lanes > 1 && ist_plan_caps(p) & IST_CAP_GROUP256 ? 256 : lanes;
}

static void place_masks(ist_plan *p, const ist_pack_inputs *in, const char *defines, size_t lanes, const char *label) {
    const ist_detections *d = in->det;
    groups g = groups_of(p, d->batch * d->max_objects);
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "op/pack",
                         .isa = "op/frame",
                         .defines = defines,
                         .kernel = "windows",
                         .dims = 1,
                         .global = {lanes * (size_t)(1 + g.all)},
                         .local = {lanes},
                         .args = {IST_INOUT(in->packet), IST_IN(in->store), IST_IN(d->counts), IST_IN(d->total),
                                  IST_IN(in->upload), IST_INT4(d->batch, d->max_objects, g.all, g.most)},
                         .arg_count = 6});
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "op/pack",
                         .isa = "op/frame",
                         .defines = defines,
                         .kernel = "spill",
                         .dims = 1,
                         .global = {spill_lanes(p)},
                         .local = {spill_lanes(p)},
                         .args = {IST_INOUT(in->store), IST_IN(in->packet), IST_IN(in->upload), IST_INT(d->batch)},
                         .arg_count = 4});
}

void ist_op_pack(ist_plan *p, const ist_pack_inputs *in, const char *label) {
    const ist_detections *d = in->det;
    if (ist_plan_status(p)) return;
    bool masks = ist_has(in->stats);
    if (masks && (in->score.n != d->batch * d->max_objects || in->score.h * in->score.w != 1 || !ist_has(in->store))) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: %d mask scores for %d prompts", label, in->score.n,
                      d->batch * d->max_objects);
        return;
    }
    size_t lanes = (size_t)ist_lanes(p), prompts = (size_t)d->batch * (size_t)d->max_objects;
    groups g = groups_of(p, d->batch * d->max_objects);
    ist_defines defines = ist_defines_of(p, "-DLANES=%d -DSPILL_LANES=%d %s", (int)lanes, (int)spill_lanes(p),
                                         in->score.elem == IST_ELEM_F32 ? "-DSCORE_F32" : "");
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "op/pack",
                         .isa = "op/frame",
                         .defines = defines.text,
                         .kernel = "records",
                         .dims = 1,
                         .global = {lanes * prompts},
                         .local = {lanes},
                         .args = {IST_OUT(in->packet), IST_IN(d->objects), IST_IN(d->counts), IST_IN(d->image_of),
                                  IST_IN(d->total), IST_IN(in->match), IST_IN(in->stats), IST_IN(in->score),
                                  IST_INT4(d->batch, d->max_objects, ist_has(in->match), masks),
                                  IST_INT4(in->score.ld, in->score.c0, g.all, g.most)},
                         .arg_count = 10});
    if (masks) {
        place_masks(p, in, defines.text, lanes, label);
        return;
    }
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/pack",
                                     .isa = "op/frame",
                                     .defines = defines.text,
                                     .kernel = "places",
                                     .dims = 1,
                                     .global = {lanes},
                                     .local = {lanes},
                                     .args = {IST_INOUT(in->packet), IST_IN(d->counts), IST_IN(d->total),
                                              IST_IN(in->upload), IST_INT(d->batch)},
                                     .arg_count = 5});
}
