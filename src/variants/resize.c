/* What is resampled to what: the detector's image and the segmenter's letterboxed one. */
#include "variants/resize.h"

#include "graph/frame.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* Words of an image's block that say where the tap tables are and how large the picture becomes, 0: all of it; which
 * axis is first; what is taken off a value, and what it is divided by. */
typedef struct recipe {
    int fields[4], order;
    float mean[3], std[3];
} recipe;
static const recipe recipes[] = {
    [IST_RESIZE_DETECTOR] = {{IST_IM_DET_X, IST_IM_DET_Y, 0, 0},
                             IST_IM_DET_VERTICAL,
                             {0, 0, 0},
                             {256, 256, 256}}, /* IST_DETECTOR_WHITE */
    [IST_RESIZE_SEGMENTER] = {{IST_IM_SEG_X, IST_IM_SEG_Y, IST_IM_SEG_WIDTH, IST_IM_SEG_HEIGHT},
                              IST_IM_SEG_VERTICAL,
                              {123.675f, 116.28f, 103.53f},
                              {58.395f, 57.12f, 57.375f}},
};

/* Width and height of each image's picture in the network's input, a view of the upload. */
static ist_tensor content_of(ist_tensor upload, int batch) {
    upload = ist_view(upload, 1, 1, batch);
    upload.ld = IST_IM_WORDS;
    return ist_slice(upload, IST_UP_HEADER + IST_IM_SEG_WIDTH, 2);
}

void ist_resize_launch(ist_plan *p, ist_resize *q, const char *op, int rows, int columns, int items) {
    const recipe *r = &recipes[q->what];
    const int *f = r->fields;
    bool given = q->std[0] != 0;
    const float *m = given ? q->mean : r->mean, *s = given ? q->std : r->std;
    ist_tensor y = q->y;
    char orders[40] = "";
    if (q->orders) snprintf(orders, sizeof orders, " -DORDER=%d", r->order);
    if (q->windows) strcat(orders, " -DWINDOWS");
    ist_defines defines = ist_defines_of(p, y.c == 3 ? "-DROWS=%d%s" : "-DROWS=%d%s -DOUT=%d", rows, orders, y.c);
    size_t across = (size_t)ist_div_up(y.w, columns);
    if (q->what == IST_RESIZE_SEGMENTER) q->content = content_of(q->upload, q->batch);
    ist_plan_launch(p, &(ist_launch){.label = q->label,
                                     .op = op,
                                     .isa = "codes/frame+portable/frame",
                                     .defines = defines.text,
                                     .kernel = "resize",
                                     .dims = 3,
                                     .global = {across * (size_t)items, (size_t)ist_div_up(y.h, rows), (size_t)y.n},
                                     .local = {(size_t)items, 1, 1},
                                     .args = {IST_OUT(y), IST_IN(q->upload), IST_IN(q->pixels),
                                              IST_INT4(f[0], f[1], f[2], f[3]), IST_INT4(y.w, y.h, 0, 0),
                                              IST_FLOAT4(m[0], m[1], m[2], m[2]), IST_FLOAT4(s[0], s[1], s[2], s[2]),
                                              IST_FLOAT4(1 / s[0], 1 / s[1], 1 / s[2], 1 / s[2])},
                                     .arg_count = 8,
                                     .bytes = 4.0 * y.c * y.n * y.h * y.w});
}
