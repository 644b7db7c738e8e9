/* Masks of everything: points, filters, selection (cl/portable/everything). */
#include "base/mem.h"
#include "graph/found.h"
#include "variants/lanes.h"
#include "variants/portable/everything_args.h"
#include "variants/portable/iou_threshold.h"
#include "variants/portable/launch_with.h"
#include "variants/portable/mask_groups.h"

enum { GROUP = 64 };

/* `alive` words of local memory are for suppression alone; one program has all kernels of a plan. */
static ist_defines defines_of(const ist_plan *p, int lanes, int capacity) {
    return ist_defines_of(p, "-DLANES=%d -DALIVE_WORDS=%d", lanes, ist_div_up(capacity, 32));
}

static ist_launch launch_of(const char *label, const char *defines, const char *kernel, size_t groups, size_t lanes) {
    return (ist_launch){.label = label,
                        .op = "portable/everything",
                        .isa = "codes/frame+codes/found+portable/frame+portable/mask_sums",
                        .defines = defines,
                        .kernel = kernel,
                        .dims = 1,
                        .global = {groups * lanes},
                        .local = {lanes}};
}

/* Work-items of their own. */
static ist_launch items_of(const char *label, const char *defines, const char *kernel, int items, int lanes) {
    size_t group = lanes == 1 ? 1 : GROUP;
    return launch_of(label, defines, kernel, ist_round_up((size_t)items, group) / group, group);
}

static void emit_none(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_found_none *q = node;
    ist_defines defines = defines_of(p, 1, 1);
    ist_launch none = launch_of(q->label, defines.text, "found_none", IST_FD_HEADER, 1);
    (void)v, (void)way;
    LAUNCH_WITH(p, none, IST_INOUT(q->found));
}

const ist_family ist_portable_found_none = {.emit = emit_none};

static void emit_points(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_grid_points *q = node;
    const ist_grid_points_args by_value = {.prompts = q->prompts, .crops = q->crops, .capacity = q->capacity};
    ist_defines defines = defines_of(p, 1, 1);
    int items = q->prompts > q->crops ? q->prompts : q->crops;
    ist_launch points = items_of(q->label, defines.text, "grid_points", items, 1);
    (void)v, (void)way;
    LAUNCH_WITH(p, points, IST_OUT(q->points), IST_OUT(q->labels), IST_OUT(q->image_of), IST_OUT(q->total),
                IST_OUT(q->content), IST_IN(q->found), IST_IN(q->upload), IST_STRUCT(grid_points_args, &by_value));
}

const ist_family ist_portable_grid_points = {.emit = emit_points};

static ist_grid_filter_args filter_of(ist_tensor iou, int capacity, float threshold) {
    return (ist_grid_filter_args){.capacity = capacity,
                                  .each = iou.c,
                                  .iou_ld = iou.ld,
                                  .iou_c0 = iou.c0,
                                  .filtered = threshold > 0,
                                  .threshold = threshold};
}

static void emit_picks(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_grid_picks *q = node;
    const ist_grid_filter_args by_value = filter_of(q->iou, q->capacity, q->iou_thresh);
    ist_defines defines = defines_of(p, ist_lanes_of(v)->lanes, 1);
    ist_launch picks = launch_of(q->label, defines.text, "grid_picks", 1, (size_t)ist_lanes_of(v)->lanes);
    (void)way;
    LAUNCH_WITH(p, picks, IST_OUT(q->picks), IST_OUT(q->det.image_of), IST_OUT(q->det.total), IST_IN(q->found),
                IST_IN(q->iou), IST_IN(q->image_of), IST_IN(q->total), IST_STRUCT(grid_filter_args, &by_value));
}

const ist_family ist_portable_grid_picks = {.emit = emit_picks};

static void emit_sums(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_mask_sums *q = node;
    int objects = q->det.batch * q->det.max_objects;
    ist_mask_groups g = ist_mask_groups_of(ist_lanes_of(v), objects);
    ist_defines defines = defines_of(p, ist_lanes_of(v)->lanes, 1);
    ist_launch sums = launch_of(q->label, defines.text, "mask_sums", (size_t)objects, (size_t)ist_lanes_of(v)->lanes);
    (void)way;
    LAUNCH_WITH(p, sums, IST_OUT(q->y), IST_IN(q->stats), IST_IN(q->det.total), IST_INT(g.all), IST_INT(g.most));
}

const ist_family ist_portable_mask_sums = {.emit = emit_sums};

static void emit_keep(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_grid_keep *q = node;
    const ist_grid_filter_args by_value = filter_of(q->iou, q->capacity, q->stability_thresh);
    ist_defines defines = defines_of(p, ist_lanes_of(v)->lanes, 1);
    ist_launch keep = launch_of(q->label, defines.text, "grid_keep", 1, (size_t)ist_lanes_of(v)->lanes);
    (void)way;
    LAUNCH_WITH(p, keep, IST_INOUT(q->found), IST_IN(q->picks), IST_IN(q->det.image_of), IST_IN(q->det.total),
                IST_IN(q->stats), IST_IN(q->iou), IST_IN(q->total), IST_IN(q->upload),
                IST_STRUCT(grid_filter_args, &by_value));
}

const ist_family ist_portable_grid_keep = {.emit = emit_keep};

/* What everything.cl knows by number. */
enum { WITHIN, ACROSS, CLEANED };

typedef struct suppression {
    ist_tensor found, upload;
    const char *label;
    int stage, last, most, capacity, groups;
    double threshold;
} suppression;

static void suppress(ist_plan *p, const ist_variant *v, const suppression *q) {
    const ist_lanes *l = ist_lanes_of(v);
    const ist_iou_threshold iou = ist_iou_threshold_of(q->threshold);
    ist_defines one = defines_of(p, 1, 1), some = defines_of(p, l->wide, q->capacity);
    ist_launch rank = items_of(q->label, one.text, "grid_rank", q->stage == CLEANED ? q->most : q->capacity, l->lanes);
    ist_launch alone = launch_of(q->label, some.text, "grid_suppress", (size_t)q->groups, (size_t)l->wide);
    ist_launch compact = launch_of(q->label, some.text, "grid_compact", 1, (size_t)l->wide);
    LAUNCH_WITH(p, rank, IST_INOUT(q->found), IST_IN(q->upload), IST_INT(q->capacity), IST_INT(q->stage));
    LAUNCH_WITH(p, alone, IST_INOUT(q->found), IST_INT(q->capacity), IST_INT(q->stage), IST_FLOAT(iou.threshold),
                IST_FLOAT(iou.half_step));
    LAUNCH_WITH(p, compact, IST_INOUT(q->found), IST_INT(q->capacity), IST_INT(q->stage), IST_INT(q->last),
                IST_INT(q->most));
}

static void emit_select(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_grid_select *q = node;
    suppression s = {.found = q->found,
                     .upload = q->upload,
                     .label = q->label,
                     .stage = WITHIN,
                     .last = q->crops == 1,
                     .most = q->most,
                     .capacity = q->capacity,
                     .groups = q->crops,
                     .threshold = q->crop_thresh};
    (void)way;
    suppress(p, v, &s);
    s.stage = ACROSS, s.last = 1, s.groups = 1, s.threshold = q->across_thresh;
    if (q->crops > 1) suppress(p, v, &s);
}

const ist_family ist_portable_grid_select = {.emit = emit_select};

static void emit_clean(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_grid_clean *q = node;
    const size_t lanes = (size_t)ist_lanes_of(v)->wide;
    ist_defines defines = ist_defines_of(p, "-DLANES=%d", (int)lanes);
    ist_launch clean = launch_of(q->label, defines.text, "clean", IST_CLEANERS_MAX, lanes);
    const suppression s = {.found = q->found,
                           .upload = q->upload,
                           .label = q->label,
                           .stage = CLEANED,
                           .last = 1,
                           .most = q->most,
                           .capacity = q->capacity,
                           .groups = 1,
                           .threshold = q->thresh};
    (void)way;
    clean.op = "portable/regions";
    LAUNCH_WITH(p, clean, IST_INOUT(q->store), IST_INOUT(q->found), IST_INOUT(q->regions), IST_IN(q->upload),
                IST_INT(q->capacity), IST_INT(q->least));
    suppress(p, v, &s);
}

const ist_family ist_portable_grid_clean = {.emit = emit_clean};

static void emit_objects(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_grid_objects *q = node;
    const ist_detections *d = &q->det;
    ist_defines defines = defines_of(p, 1, 1);
    ist_launch objects = launch_of(q->label, defines.text, "grid_objects", (size_t)d->max_objects, 1);
    (void)v, (void)way;
    LAUNCH_WITH(p, objects, IST_OUT(d->objects), IST_OUT(d->counts), IST_OUT(d->total), IST_OUT(d->image_of),
                IST_OUT(q->match), IST_OUT(q->stats), IST_OUT(q->score), IST_IN(q->found), IST_INT(q->capacity));
}

const ist_family ist_portable_grid_objects = {.emit = emit_objects};
