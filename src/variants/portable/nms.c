/* Non-maximum suppression (cl/portable/nms): one launch of a work-item per list on CPUs, elsewhere three. */
#include "variants/lanes.h"
#include "variants/portable/iou_threshold.h"
#include "variants/portable/nms_args.h"

#include <string.h>

enum { WORD = 32 /* boxes */, WORDS = IST_NMS_MAX / WORD, SORTERS = 8 /* lanes that count for one box */, WORK = 8 };

static ist_nms_args args_of(const ist_nms *q) {
    const ist_iou_threshold iou = ist_iou_threshold_of(q->iou);
    return (ist_nms_args){.boxes = q->boxes.w,
                          .room = (int)ist_round_up((size_t)q->boxes.w, WORD),
                          .boxes_ld = q->boxes.ld,
                          .boxes_c0 = q->boxes.c0,
                          .scores_ld = q->scores.ld,
                          .scores_c0 = q->scores.c0,
                          .group_ld = ist_has(q->group) ? q->group.ld : 0,
                          .group_c0 = q->group.c0,
                          .count_ld = ist_has(q->count) ? q->count.ld : 0,
                          .count_c0 = q->count.c0,
                          .threshold = iou.threshold,
                          .half_step = iou.half_step};
}

static void launch(ist_plan *p, const ist_nms *q, const char *kernel, ist_launch l, const ist_arg *args, int count) {
    l.label = q->label;
    l.op = "portable/nms";
    l.kernel = kernel;
    l.arg_count = count;
    memcpy(l.args, args, (size_t)count * sizeof *args);
    ist_plan_launch(p, &l);
}
#define LAUNCH(kernel, l, args) launch(p, q, kernel, l, args, (int)(sizeof(args) / sizeof *(args)))

static void serial(ist_plan *p, const ist_nms *q, const ist_nms_args *v, ist_tensor limit) {
    const ist_defines defines = ist_defines_of(p, "-DLANES=1");
    const ist_launch l = {.defines = defines.text, .dims = 1, .global = {(size_t)q->boxes.n}, .local = {1}};
    ist_tensor work = ist_plan_tensor(p, q->boxes.n, 1, WORK, v->room, IST_ELEM_I32);
    const ist_arg args[] = {IST_OUT(q->index), IST_OUT(q->kept),  IST_OUT(work),
                            IST_IN(q->boxes),  IST_IN(q->scores), IST_IN(q->group),
                            IST_IN(q->count),  IST_IN(limit),     IST_STRUCT(nms_args, v)};
    LAUNCH("nms", l, args);
}

static void by_lanes(ist_plan *p, const ist_nms *q, const ist_nms_args *v, ist_tensor limit, size_t lanes) {
    const ist_defines defines = ist_defines_of(p, "-DLANES=%d -DWORDS=%d", (int)lanes, WORDS);
    size_t lists = (size_t)q->boxes.n, words = (size_t)v->room / WORD, boxes = (size_t)q->boxes.w;
    ist_tensor order = ist_plan_tensor(p, q->boxes.n, 1, v->room, 1, IST_ELEM_I32);
    ist_tensor sides = ist_plan_tensor(p, q->boxes.n, 1, v->room, 4, IST_ELEM_F32);
    ist_tensor groups = ist_plan_tensor(p, q->boxes.n, 1, v->room, 1, IST_ELEM_I32);
    ist_tensor over = ist_plan_tensor(p, q->boxes.n, (int)words, v->room, 1, IST_ELEM_I32);
    const ist_arg sort[] = {IST_OUT(order),   IST_OUT(sides),    IST_OUT(groups),
                            IST_IN(q->boxes), IST_IN(q->scores), IST_IN(q->group),
                            IST_IN(q->count), IST_IN(limit),     IST_STRUCT(nms_args, v)};
    const ist_arg compare[] = {IST_OUT(over),    IST_IN(sides), IST_IN(groups),
                               IST_IN(q->count), IST_IN(limit), IST_STRUCT(nms_args, v)};
    const ist_arg keep[] = {IST_OUT(q->index), IST_OUT(q->kept), IST_IN(over),           IST_IN(order),
                            IST_IN(q->count),  IST_IN(limit),    IST_STRUCT(nms_args, v)};
    const size_t own = lanes / SORTERS;
    LAUNCH("nms_order",
           ((ist_launch){.defines = defines.text,
                         .dims = 2,
                         .global = {ist_round_up(boxes, own) / own * lanes, lists},
                         .local = {lanes, 1}}),
           sort);
    LAUNCH("nms_over",
           ((ist_launch){.defines = defines.text,
                         .dims = 3,
                         .global = {ist_round_up(boxes, lanes), words, lists},
                         .local = {lanes, 1, 1}}),
           compare);
    LAUNCH("nms_keep", ((ist_launch){.defines = defines.text, .dims = 1, .global = {lanes * lists}, .local = {lanes}}),
           keep);
}

static void emit_nms(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_nms *q = node;
    const ist_nms_args by_value = args_of(q);
    const int lanes = ist_lanes_of(v)->wide;
    ist_tensor limit = ist_plan_current_limit(p);
    (void)way;
    if (lanes == 1)
        serial(p, q, &by_value, limit);
    else
        by_lanes(p, q, &by_value, limit, (size_t)lanes);
}

const ist_family ist_portable_nms = {.emit = emit_nms};
