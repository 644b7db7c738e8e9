/* From raw detector output to objects and prompts: scores, top-k, threshold, flat list. */
#include "ops/detect.h"

#include "base/mem.h"
#include "ops/ops.h"
#include "ops/lanes.h"

#include <stdlib.h>
#include <string.h>

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

/* Sigmoids of all logits of an image as one list. */
static ist_tensor scores(ist_plan *p, ist_tensor logits, ist_tensor upload, const char *label) {
    int queries = logits.h * logits.w;
    size_t local = (size_t)ist_lanes(p);
    ist_tensor y = ist_plan_tensor(p, logits.n, 1, queries * logits.c, 1, IST_ELEM_F32);
    ist_defines defines = ist_defines_of(p, "-DLANES=%d", (int)local);
    ist_plan_launch(
        p, &(ist_launch){
               .label = label,
               .op = "op/detect",
               .isa = "op/frame",
               .defines = defines.text,
               .kernel = "scores",
               .dims = 2,
               .global = {ist_round_up((size_t)(local == 1 ? queries : queries * logits.c), local), (size_t)logits.n},
               .local = {local, 1},
               .args = {IST_OUT(y), IST_IN(logits), IST_IN(upload), IST_INT4(queries, logits.c, logits.ld, logits.c0)},
               .arg_count = 4});
    return y;
}

static bool check(ist_plan *p, ist_tensor logits, ist_tensor boxes, int max_objects, const char *label) {
    if (ist_plan_status(p)) return false;
    if (logits.elem != IST_ELEM_T && logits.elem != IST_ELEM_F32) max_objects = 0;
    if (boxes.c == 4 && boxes.n == logits.n && boxes.h * boxes.w == logits.h * logits.w && max_objects >= 1 &&
        max_objects <= CANDIDATES && logits.elem == IST_ELEM_F32 && boxes.elem == IST_ELEM_F32)
        return true;
    ist_plan_fail(p, IST_E_ARGUMENT, "%s: logits [%d,%d,%d], boxes [%d,%d,%d], at most %d objects: not possible", label,
                  logits.n, logits.h * logits.w, logits.c, boxes.n, boxes.h * boxes.w, boxes.c, max_objects);
    return false;
}

static void make_list(ist_plan *p, ist_detections *d) {
    int places = d->batch * d->max_objects;
    d->total = ist_plan_tensor(p, 1, 1, 1, 1, IST_ELEM_I32);
    d->image_of = ist_plan_tensor(p, 1, 1, places, 1, IST_ELEM_I32);
    d->boxes = ist_plan_tensor(p, places, 1, 1, 4, IST_ELEM_F32);
}

/* The flat list over the batch, from d->objects and d->counts. */
static void flatten(ist_plan *p, ist_detections *d, ist_tensor upload, const char *label) {
    size_t lanes = (size_t)ist_lanes(p);
    ist_defines defines = ist_defines_of(p, "-DLANES=%d", (int)lanes);
    make_list(p, d);
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "op/detect",
                         .isa = "op/frame",
                         .defines = defines.text,
                         .kernel = "flatten",
                         .dims = 1,
                         .global = {lanes},
                         .local = {lanes},
                         .args = {IST_INOUT(d->counts), IST_OUT(d->total), IST_OUT(d->image_of), IST_OUT(d->boxes),
                                  IST_IN(d->objects), IST_IN(upload), IST_INT(d->batch), IST_INT(d->max_objects)},
                         .arg_count = 8});
}

ist_detections ist_op_detect(ist_plan *p, ist_tensor logits, ist_tensor boxes, ist_tensor upload,
                             const ist_detect_opts *opts, const char *label) {
    ist_detections d = {.batch = logits.n, .max_objects = opts->max_objects};
    if (!check(p, logits, boxes, opts->max_objects, label)) return d;
    int batch = logits.n, most = opts->max_objects, queries = logits.h * logits.w, all = queries * logits.c;
    int k = all < CANDIDATES ? all : CANDIDATES;
    bool one = batch == 1 && !ist_cpu_row(p);
    size_t lanes = (size_t)ist_lanes(p);
    ist_defines defines = ist_defines_of(p, "-DLANES=%d%s", (int)lanes, one ? " -DONE" : "");
    ist_tensor score, best;
    ist_plan_limit(p, upload); /* word 0 is the number of images */
    if (!ist_op_top_scores(p, logits, k, &score, &best, label)) {
        score = scores(p, logits, upload, label);
        best = ist_op_topk(p, score, k, label);
    }
    ist_plan_limit(p, (ist_tensor){0});
    ist_tensor keep = keep_table(p, opts->keep, logits.c, label);
    d.objects = ist_plan_tensor(p, batch, 1, most, IST_DET_WORDS, IST_ELEM_I32);
    d.counts = ist_plan_tensor(p, batch, 1, 1, 4, IST_ELEM_I32);
    if (one) make_list(p, &d);
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "op/detect",
                         .isa = "op/frame",
                         .defines = defines.text,
                         .kernel = "pick",
                         .dims = 1,
                         .global = {lanes * (size_t)batch},
                         .local = {lanes},
                         .args = {IST_OUT(d.objects), IST_OUT(d.counts), IST_IN(score), IST_IN(best), IST_IN(boxes),
                                  IST_IN(keep), IST_IN(upload), IST_INT4(best.w, logits.c, queries, most),
                                  IST_INT4(boxes.ld, boxes.c0, 0, 0), IST_FLOAT(opts->conf), IST_OUT(d.total),
                                  IST_OUT(d.image_of), IST_OUT(d.boxes)},
                         .arg_count = one ? 13 : 10});
    if (!one) flatten(p, &d, upload, label);
    return d;
}

ist_detections ist_op_given_boxes(ist_plan *p, ist_tensor upload, int batch, int max_objects, ist_tensor *match,
                                  const char *label) {
    ist_detections d = {.batch = batch, .max_objects = max_objects};
    if (ist_plan_status(p)) return d;
    ist_defines defines = ist_defines_of(p, "-DLANES=%d", ist_lanes(p));
    d.objects = ist_plan_tensor(p, batch, 1, max_objects, IST_DET_WORDS, IST_ELEM_I32);
    d.counts = ist_plan_tensor(p, batch, 1, 1, 4, IST_ELEM_I32);
    *match = ist_plan_tensor(p, batch, 1, max_objects, 2, IST_ELEM_I32);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/detect",
                                     .isa = "op/frame",
                                     .defines = defines.text,
                                     .kernel = "given_boxes",
                                     .dims = 2,
                                     .global = {(size_t)max_objects, (size_t)batch},
                                     .local = {1, 1},
                                     .args = {IST_OUT(d.objects), IST_OUT(d.counts), IST_OUT(*match), IST_IN(upload)},
                                     .arg_count = 4});
    flatten(p, &d, upload, label);
    return d;
}
