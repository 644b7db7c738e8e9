/* From the detector's raw output to objects and prompts (Peterande/D-FINE, src/zoo/dfine/postprocessor.py), with every
 * count staying on the device: scores, top-k, threshold, flat list (cl/portable/detect). */
#include "variants/lanes.h"
#include "variants/portable/detect_args.h"

#include <stdlib.h>

enum { CANDIDATES = 300 };

static ist_tensor keep_table(ist_plan *p, const unsigned char *keep, int classes, const char *label) {
    unsigned char *all = malloc((size_t)classes);
    if (!all) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory", label);
        return (ist_tensor){0};
    }
    for (int i = 0; i < classes; i++) all[i] = !keep || keep[i];
    ist_tensor t = ist_plan_const_bytes(p, all, (size_t)classes, label);
    free(all);
    return t;
}

static void make_objects(ist_plan *p, ist_detections *d) {
    d->objects = ist_plan_tensor(p, d->batch, 1, d->max_objects, IST_DET_WORDS, IST_ELEM_I32);
    d->counts = ist_plan_tensor(p, d->batch, 1, 1, 4, IST_ELEM_I32);
}

static void make_list(ist_plan *p, ist_detections *d) {
    int places = d->batch * d->max_objects;
    d->total = ist_plan_tensor(p, 1, 1, 1, 1, IST_ELEM_I32);
    d->image_of = ist_plan_tensor(p, 1, 1, places, 1, IST_ELEM_I32);
    d->boxes = ist_plan_tensor(p, places, 1, 1, 4, IST_ELEM_F32);
}

/* The flat list over the batch, from d->objects and d->counts. */
static void flatten(ist_plan *p, size_t lanes, ist_detections *d, ist_tensor upload, const char *label) {
    ist_defines defines = ist_defines_of(p, "-DLANES=%d", (int)lanes);
    make_list(p, d);
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "portable/detect",
                         .isa = "codes/frame+portable/frame",
                         .defines = defines.text,
                         .kernel = "flatten",
                         .dims = 1,
                         .global = {lanes},
                         .local = {lanes},
                         .args = {IST_INOUT(d->counts), IST_OUT(d->total), IST_OUT(d->image_of), IST_OUT(d->boxes),
                                  IST_IN(d->objects), IST_IN(upload), IST_INT(d->batch), IST_INT(d->max_objects)},
                         .arg_count = 8});
}

/* Whether the launch that makes the objects of an image makes the list too: of one image alone, where work-items share
 * it. */
static bool makes_list(const ist_detections *d, size_t lanes) {
    return d->batch == 1 && lanes > 1;
}

/* What is above the threshold, to d; with `last` these are the objects. */
static void pick(ist_plan *p, size_t lanes, const ist_detect *q, const ist_top_scores *top, ist_detections *d,
                 bool last) {
    ist_tensor logits = q->logits, boxes = q->boxes;
    const ist_pick_args by_value = {.candidates = top->index.w,
                                    .classes = logits.c,
                                    .queries = logits.h * logits.w,
                                    .max_objects = d->max_objects,
                                    .boxes_ld = boxes.ld,
                                    .boxes_c0 = boxes.c0,
                                    .threshold = q->conf};
    bool one = last && makes_list(d, lanes);
    ist_defines defines = ist_defines_of(p, "-DLANES=%d%s", (int)lanes, one ? " -DONE" : "");
    ist_tensor keep = keep_table(p, q->keep, logits.c, q->label);
    make_objects(p, d);
    if (one) make_list(p, d);
    ist_plan_launch(
        p, &(ist_launch){.label = q->label,
                         .op = "portable/detect",
                         .isa = "codes/frame+portable/frame",
                         .defines = defines.text,
                         .kernel = "pick",
                         .dims = 1,
                         .global = {lanes * (size_t)d->batch},
                         .local = {lanes},
                         .args = {IST_OUT(d->objects), IST_OUT(d->counts), IST_IN(top->scores), IST_IN(top->index),
                                  IST_IN(boxes), IST_IN(keep), IST_IN(q->upload), IST_STRUCT(pick_args, &by_value),
                                  IST_OUT(d->total), IST_OUT(d->image_of), IST_OUT(d->boxes)},
                         .arg_count = one ? 11 : 8});
    if (last && !one) flatten(p, lanes, d, q->upload, q->label);
}

/* Objects: of what was found that which no better one suppresses. */
static void suppress(ist_plan *p, size_t lanes, ist_detect *q, const ist_detections *found) {
    ist_detections *d = &q->det;
    const int candidates = found->max_objects;
    ist_tensor rows = ist_view(found->objects, d->batch, 1, candidates);
    ist_nms nms = {.label = q->label,
                   .boxes = ist_slice(rows, IST_DET_BOX, 4),
                   .scores = ist_slice(rows, IST_DET_SCORE, 1),
                   .count = ist_slice(found->counts, 0, 1),
                   .iou = q->nms_iou};
    nms.boxes.elem = nms.scores.elem = IST_ELEM_F32; /* floats among ints */
    if (!q->agnostic) nms.group = ist_slice(rows, IST_DET_LABEL, 1);
    ist_emit(p, IST_NODE_NMS, &nms);
    bool one = makes_list(d, lanes);
    ist_defines defines = ist_defines_of(p, "-DLANES=%d%s", (int)lanes, one ? " -DONE" : "");
    make_objects(p, d);
    if (one) make_list(p, d);
    ist_plan_launch(
        p, &(ist_launch){.label = q->label,
                         .op = "portable/detect",
                         .isa = "codes/frame+portable/frame",
                         .defines = defines.text,
                         .kernel = "stay",
                         .dims = 1,
                         .global = {lanes * (size_t)d->batch},
                         .local = {lanes},
                         .args = {IST_OUT(d->objects), IST_OUT(d->counts), IST_IN(found->objects), IST_IN(nms.index),
                                  IST_IN(nms.kept), IST_IN(q->upload), IST_INT(candidates), IST_INT(d->max_objects),
                                  IST_OUT(d->total), IST_OUT(d->image_of), IST_OUT(d->boxes)},
                         .arg_count = one ? 11 : 8});
    if (!one) flatten(p, lanes, d, q->upload, q->label);
}

static void emit_detect(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_detect *q = node;
    int all = q->logits.h * q->logits.w * q->logits.c;
    ist_top_scores top = {.label = q->label, .x = q->logits, .k = all < CANDIDATES ? all : CANDIDATES};
    (void)way;
    ist_plan_limit(p, q->upload); /* word 0 is the number of images */
    ist_emit(p, IST_NODE_TOP_SCORES, &top);
    ist_plan_limit(p, (ist_tensor){0});
    if (ist_plan_status(p)) return;
    const size_t lanes = (size_t)ist_lanes_of(v)->lanes;
    if (q->nms_iou > 0) {
        ist_detections found = {.batch = q->det.batch, .max_objects = top.k};
        pick(p, lanes, q, &top, &found, false);
        suppress(p, lanes, q, &found);
    } else {
        pick(p, lanes, q, &top, &q->det, true);
    }
}

const ist_family ist_portable_detect = {.emit = emit_detect};

static void emit_given(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_given_boxes *q = node;
    ist_detections *d = &q->det;
    size_t lanes = (size_t)ist_lanes_of(v)->lanes;
    ist_defines defines = ist_defines_of(p, "-DLANES=%d", (int)lanes);
    (void)way;
    make_objects(p, d);
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = "portable/detect",
                                     .isa = "codes/frame+portable/frame",
                                     .defines = defines.text,
                                     .kernel = "given_boxes",
                                     .dims = 2,
                                     .global = {(size_t)d->max_objects, (size_t)d->batch},
                                     .local = {1, 1},
                                     .args = {IST_OUT(d->objects), IST_OUT(d->counts), IST_OUT(q->match),
                                              IST_IN(q->upload)},
                                     .arg_count = 4});
    flatten(p, lanes, d, q->upload, q->label);
}

const ist_family ist_portable_given_boxes = {.emit = emit_given};
