/* Detections of tiles become an image's (cl/portable/tiles). */
#include "graph/frame.h"
#include "graph/tiled.h"
#include "variants/lanes.h"
#include "variants/portable/launch_with.h"

static ist_launch launch_of(const char *label, const char *defines, const char *kernel, size_t lanes) {
    return (ist_launch){.label = label,
                        .op = "portable/tiles",
                        .isa = "codes/frame+codes/tiled+portable/frame",
                        .defines = defines,
                        .kernel = kernel,
                        .dims = 1,
                        .global = {lanes},
                        .local = {lanes}};
}

static void emit_keep(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_tile_keep *q = node;
    const size_t lanes = (size_t)ist_lanes_of(v)->lanes;
    const ist_defines defines = ist_defines_of(p, "-DLANES=%d", (int)lanes);
    ist_launch keep = launch_of(q->label, defines.text, "tile_keep", lanes);
    (void)way;
    LAUNCH_WITH(p, keep, IST_INOUT(q->found), IST_IN(q->det.objects), IST_IN(q->det.counts), IST_IN(q->upload),
                IST_INT(q->det.max_objects));
}

const ist_family ist_portable_tile_keep = {.emit = emit_keep};

/* Words of the buffer as rows of detections. */
static ist_tensor rows_of(ist_tensor found, int word, int words, ist_elem elem) {
    ist_tensor rows = ist_view(found, 1, 1, IST_TL_CAPACITY);
    rows.ld = IST_DET_WORDS;
    rows.elem = elem;
    return ist_slice(rows, IST_TL_HEADER + word, words);
}

static void emit_merge(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_tile_merge *q = node;
    const size_t lanes = (size_t)ist_lanes_of(v)->lanes;
    const ist_defines defines = ist_defines_of(p, "-DLANES=%d", (int)lanes);
    ist_nms nms = {.label = q->label,
                   .boxes = rows_of(q->found, IST_DET_BOX, 4, IST_ELEM_F32),
                   .scores = rows_of(q->found, IST_DET_SCORE, 1, IST_ELEM_F32),
                   .count = ist_slice(ist_view(q->found, 1, 1, 1), IST_TL_COUNT, 1),
                   .iou = q->iou};
    (void)way;
    nms.count.ld = 1;
    if (!q->agnostic) nms.group = rows_of(q->found, IST_DET_LABEL, 1, IST_ELEM_I32);
    ist_emit(p, IST_NODE_NMS, &nms);
    ist_tensor work = ist_plan_tensor(p, 1, 1, IST_TL_CAPACITY, 1, IST_ELEM_I32);
    ist_launch stay = launch_of(q->label, defines.text, "tile_stay", lanes);
    LAUNCH_WITH(p, stay, IST_INOUT(q->found), IST_INOUT(q->upload), IST_OUT(work), IST_IN(nms.index), IST_IN(nms.kept),
                IST_FLOAT((float)q->iou), IST_INT(q->agnostic), IST_INT(q->most));
}

const ist_family ist_portable_tile_merge = {.emit = emit_merge};

static void emit_objects(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_tile_objects *q = node;
    ist_detections *d = &q->det;
    const ist_defines defines = ist_defines_of(p, "-DLANES=1");
    ist_launch objects = launch_of(q->label, defines.text, "tile_objects", 1);
    (void)v, (void)way;
    objects.global[0] = (size_t)d->max_objects;
    LAUNCH_WITH(p, objects, IST_OUT(d->objects), IST_OUT(d->counts), IST_OUT(d->total), IST_OUT(d->image_of),
                IST_OUT(d->boxes), IST_OUT(q->tile_of), IST_OUT(q->own), IST_OUT(q->picks), IST_IN(q->found), IST_IN(q->upload));
}

const ist_family ist_portable_tile_objects = {.emit = emit_objects};
