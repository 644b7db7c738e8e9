/* What each kind of node makes of its operands, and what it refuses with which sentence: a table of cases, at least one
 * of either for every kind. Multiply-adds are compared with counts made by hand. */
#include "graph/kinds.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct shape_case {
    ist_node_kind kind;
    void *node;
    const char *want; /* the results, or the sentence */
    ist_status code;
} shape_case;

#define MAKES(ID, type, want, ...)                                                                                     \
    { IST_NODE_##ID, &(ist_##type){.label = "l", __VA_ARGS__}, want, IST_OK }
#define REFUSES(ID, type, code, text, ...)                                                                             \
    { IST_NODE_##ID, &(ist_##type){.label = "l", __VA_ARGS__}, text, IST_E_##code }
#define VIEW(n, h, w, c, elem)                                                                                         \
    { 1, n, h, w, c, c, 0, IST_ELEM_##elem }
#define T(n, h, w, c) VIEW(n, h, w, c, T)
#define F(n, h, w, c) VIEW(n, h, w, c, F32)
#define I(n, h, w, c) VIEW(n, h, w, c, I32)
#define U(n, h, w, c) VIEW(n, h, w, c, U8)
#define WIDE(n, h, w, c, elem)                                                                                         \
    { 1, n, h, w, c, (c) + 1, 0, IST_ELEM_##elem }
#define FILTER(out, in, kh, kw)                                                                                        \
    { out, in, kh, kw, NULL, NULL, NULL }
#define NORM(n)                                                                                                        \
    { NULL, NULL, n, NULL }
#define ARRAY(count)                                                                                                   \
    { NULL, count, NULL }
#define LAYER(out, in, k)                                                                                              \
    { FILTER(out, in, k, k), 1, 0 }

/* ---- convolutions and rows ---- */

static const shape_case small[] = {
    MAKES(CONV, conv, "t[2,8,6,5]", .x = T(2, 8, 6, 3), .filter = FILTER(5, 3, 3, 3), .o = {0, 1, 1, 1, 1}),
    MAKES(CONV, conv, "t[2,4,3,5]", .x = T(2, 8, 6, 3), .filter = FILTER(5, 3, 3, 3), .o = {2, 1, 1, 1, 1}),
    MAKES(CONV, conv, "t[1,8,6,5]", .x = T(1, 8, 6, 3), .filter = FILTER(5, 3, 2, 2), .o = {1, 0, 0, 1, 1}),
    MAKES(CONV, conv, "f[1,1,7,5]", .x = F(1, 1, 7, 3), .filter = FILTER(5, 3, 1, 1), .o = {.exact = true}),
    MAKES(CONV, conv, "f[1,1,7,5]", .x = T(1, 1, 7, 3), .filter = FILTER(5, 3, 1, 1), .y = F(1, 1, 7, 5)),
    MAKES(CONV, conv, "t[2,4,4,5]", .x = T(2, 4, 4, 3), .filter = FILTER(5, 3, 1, 1),
          .o = {.epi = {.add_before = T(1, 2, 2, 5), .up2 = true, .add_after = F(2, 4, 4, 5)}}),
    REFUSES(CONV, conv, ARGUMENT, "l: filter [5,4,3,3] with stride 1 on [2,8,6,3]", .x = T(2, 8, 6, 3),
            .filter = FILTER(5, 4, 3, 3)),
    REFUSES(CONV, conv, ARGUMENT, "l: filter [5,3,3,3] with stride 2 on [1,2,6,3]", .x = T(1, 2, 6, 3),
            .filter = FILTER(5, 3, 3, 3), .o = {2}),
    REFUSES(CONV, conv, ARGUMENT, "l: filter [0,3,1,1] with stride 1 on [1,2,6,3]", .x = T(1, 2, 6, 3),
            .filter = FILTER(0, 3, 1, 1)),
    REFUSES(CONV, conv, ARGUMENT, "l: filter [5,3,1,1] with stride 1 on [1,2,6,3]", .x = I(1, 2, 6, 3),
            .filter = FILTER(5, 3, 1, 1)),
    REFUSES(CONV, conv, ARGUMENT, "l: makes [1,2,6,5], the place for it is [1,2,6,4]", .x = T(1, 2, 6, 3),
            .filter = FILTER(5, 3, 1, 1), .y = T(1, 2, 6, 4)),
    REFUSES(CONV, conv, ARGUMENT, "l: the place for the result holds no activations", .x = T(1, 2, 6, 3),
            .filter = FILTER(5, 3, 1, 1), .y = I(1, 2, 6, 5)),
    REFUSES(CONV, conv, ARGUMENT, "l: addend [1,3,4,5] (element type 0, upsampled) to a result [1,4,4,5]",
            .x = T(1, 4, 4, 3), .filter = FILTER(5, 3, 1, 1), .o = {.epi = {.add_before = T(1, 3, 4, 5), .up2 = true}}),
    REFUSES(CONV, conv, ARGUMENT, "l: addend [1,4,4,5] (element type 2) to a result [1,4,4,5]", .x = T(1, 4, 4, 3),
            .filter = FILTER(5, 3, 1, 1), .o = {.epi = {.add_after = I(1, 4, 4, 5)}}),
    MAKES(DWCONV, conv, "t[1,4,3,3]", .x = T(1, 8, 6, 3), .filter = FILTER(3, 1, 5, 5), .o = {2, 2, 2, 2, 2}),
    REFUSES(DWCONV, conv, ARGUMENT, "l: depthwise filter [3,1,2,2] with stride 1 on [1,8,6,3]", .x = T(1, 8, 6, 3),
            .filter = FILTER(3, 1, 2, 2)),
    REFUSES(DWCONV, conv, ARGUMENT, "l: depthwise filter [4,1,3,3] with stride 1 on [1,8,6,3]", .x = T(1, 8, 6, 3),
            .filter = FILTER(4, 1, 3, 3)),
    REFUSES(DWCONV, conv, ARGUMENT, "l: depthwise filter [3,1,3,5] with stride 1 on [1,8,6,3]", .x = T(1, 8, 6, 3),
            .filter = FILTER(3, 1, 3, 5)),
    MAKES(MAXPOOL, maxpool, "t[1,8,6,3]", .x = T(1, 8, 6, 3)),
    REFUSES(MAXPOOL, maxpool, ARGUMENT, "l: the input holds no activations", .x = F(1, 8, 6, 3)),
    MAKES(LAYER_NORM, layer_norm, "t[2,1,6,1024]", .x = T(2, 1, 6, 1024), .norm = NORM(1024)),
    MAKES(LAYER_NORM, layer_norm, "t[2,1,6,8]", .x = T(2, 1, 6, 8), .add = T(1, 1, 6, 8), .norm = NORM(8)),
    REFUSES(LAYER_NORM, layer_norm, LIMIT, "l: normalisation over 1025 channels, the most is 1024",
            .x = T(2, 1, 6, 1025), .norm = NORM(1025)),
    REFUSES(LAYER_NORM, layer_norm, WEIGHTS, "l: norm of 7 channels, the tensor has 8", .x = T(2, 1, 6, 8),
            .norm = NORM(7)),
    REFUSES(LAYER_NORM, layer_norm, ARGUMENT, "l: [3,1,6,8] added to [2,1,6,8] before the normalisation",
            .x = T(2, 1, 6, 8), .add = T(3, 1, 6, 8), .norm = NORM(8)),
    MAKES(ADD, add, "f[2,1,6,8]", .a = F(2, 1, 6, 8), .b = T(1, 1, 1, 8)),
    MAKES(ADD, add, "t[2,3,6,8]", .a = T(2, 3, 6, 8), .b = T(2, 3, 6, 8)),
    REFUSES(ADD, add, ARGUMENT, "l: [2,1,6,8] + [3,1,6,8]", .a = T(2, 1, 6, 8), .b = T(3, 1, 6, 8)),
    REFUSES(ADD, add, ARGUMENT, "l: [2,1,6,8] + [2,1,6,1]", .a = T(2, 1, 6, 8), .b = T(2, 1, 6, 1)),
    REFUSES(ADD, add, ARGUMENT, "l: bytes are not activations", .a = U(2, 1, 6, 8), .b = T(2, 1, 6, 8)),
    MAKES(COPY, copy, "f[1,2,3,4]", .x = F(1, 2, 3, 4)),
    MAKES(COPY, copy, "t[5,2,3,4]", .x = F(1, 2, 3, 4), .y = T(5, 2, 3, 4)),
    REFUSES(COPY, copy, ARGUMENT, "l: makes [2,2,3,4], the place for it is [5,2,3,4]", .x = T(2, 2, 3, 4),
            .y = T(5, 2, 3, 4)),
    REFUSES(COPY, copy, ARGUMENT, "l: bytes are not activations", .x = U(2, 2, 3, 4)),
    MAKES(COPY_ROWS, copy_rows, "", .x = T(2, 2, 3, 4), .into = T(2, 1, 9, 4), .first = 3),
    REFUSES(COPY_ROWS, copy_rows, ARGUMENT, "l: [2,2,3,4] as rows 4 and on of [2,1,9,4]", .x = T(2, 2, 3, 4),
            .into = T(2, 1, 9, 4), .first = 4),
    REFUSES(COPY_ROWS, copy_rows, ARGUMENT, "l: [2,2,3,4] as rows -1 and on of [2,1,9,4]", .x = T(2, 2, 3, 4),
            .into = T(2, 1, 9, 4), .first = -1),
    MAKES(PUT_ITEMS, put_items, "", .x = F(6, 2, 3, 4), .into = F(6, 2, 3, 4), .counts = I(1, 1, 2, 1)),
    REFUSES(PUT_ITEMS, put_items, ARGUMENT, "l: [6,2,3,4] into [6,2,3,5] by 2 counts", .x = F(6, 2, 3, 4),
            .into = F(6, 2, 3, 5), .counts = I(1, 1, 2, 1)),
    REFUSES(PUT_ITEMS, put_items, ARGUMENT, "l: [6,2,3,4] into [6,2,3,4] by 4 counts", .x = F(6, 2, 3, 4),
            .into = F(6, 2, 3, 4), .counts = I(1, 1, 4, 1)),
    MAKES(CLAMP, clamp, "f[1,2,3,4]", .x = F(1, 2, 3, 4)),
    REFUSES(CLAMP, clamp, ARGUMENT, "l: makes [1,2,3,4], the place for it is [1,2,3,4]", .x = F(1, 2, 3, 4),
            .y = T(1, 2, 3, 4)),
    MAKES(EXPAND, expand, "t[7,2,3,4]", .x = T(2, 2, 3, 4), .map = I(1, 1, 7, 1)),
    REFUSES(EXPAND, expand, ARGUMENT, "l: expansion by a map of [1,1,7,1]", .x = T(2, 2, 3, 4), .map = F(1, 1, 7, 1)),
    REFUSES(EXPAND, expand, ARGUMENT, "l: expansion by a map of [1,1,7,2]", .x = T(2, 2, 3, 4), .map = I(1, 1, 7, 2)),
    MAKES(CONCAT, concat, "t[2,3,4,12]", .x = {T(2, 3, 4, 5), T(2, 3, 4, 6), T(2, 3, 4, 1)}),
    REFUSES(CONCAT, concat, ARGUMENT, "l: [2,3,5,6] beside [2,3,4,5]", .x = {T(2, 3, 4, 5), T(2, 3, 5, 6)}),
    REFUSES(CONCAT, concat, ARGUMENT, "l: [2,3,4,6] beside [2,3,4,5]", .x = {T(2, 3, 4, 5), F(2, 3, 4, 6)}),
    MAKES(CONCAT_ROWS, concat, "t[2,1,42,5]", .x = {T(2, 3, 4, 5), T(2, 5, 6, 5)}),
    REFUSES(CONCAT_ROWS, concat, ARGUMENT, "l: [2,5,6,4] beside [2,1,12,5]", .x = {T(2, 3, 4, 5), T(2, 5, 6, 4)}),
    MAKES(FILL_ROWS, fill_rows, "t[2,1,9,4]", .x = T(2, 1, 9, 4), .rows = I(1, 1, 3, 1), .filter = {.out = 4}),
    REFUSES(FILL_ROWS, fill_rows, ARGUMENT, "l: fill_rows wants activations and one dense list of rows",
            .x = T(2, 1, 9, 4), .rows = I(2, 1, 3, 1), .filter = {.out = 4}),
    MAKES(REPEAT_ROWS, repeat_rows, "t[2,6,9,4]", .x = T(2, 6, 9, 4)),
    REFUSES(REPEAT_ROWS, repeat_rows, ARGUMENT, "l: repeat_rows wants activations", .x = I(2, 6, 9, 4)),
    MAKES(GATE, gate, "t[2,1,9,4]", .g = T(2, 1, 9, 8), .a = T(2, 1, 9, 4), .b = T(2, 1, 9, 4), .norm = NORM(4)),
    REFUSES(GATE, gate, ARGUMENT, "l: gate [2,1,9,7] for [2,1,9,4] and [2,1,9,4]", .g = T(2, 1, 9, 7),
            .a = T(2, 1, 9, 4), .b = T(2, 1, 9, 4), .norm = NORM(4)),
    REFUSES(GATE, gate, WEIGHTS, "l: norm of 5 channels, the tensor has 4", .g = T(2, 1, 9, 8), .a = T(2, 1, 9, 4),
            .b = T(2, 1, 9, 4), .norm = NORM(5)),
};

/* ---- attention, selection, boxes ---- */

static const shape_case decoder[] = {
    MAKES(ATTENTION, attention, "t[3,1,5,64]", .q = T(3, 1, 5, 64), .k = T(3, 1, 9, 64), .v = T(3, 1, 9, 64),
          .heads = 8),
    MAKES(ATTENTION, attention, "t[7,1,5,64]", .q = T(3, 1, 5, 64), .k = T(1, 1, 9, 64), .v = T(1, 1, 9, 64),
          .q_map = I(1, 1, 7, 1), .kv_map = I(1, 1, 7, 1), .heads = 1, .count = 7),
    REFUSES(ATTENTION, attention, ARGUMENT,
            "l: attention of q [3,5,60], k [3,9,60], v [3,9,60] with 10 heads is not possible", .q = T(3, 1, 5, 60),
            .k = T(3, 1, 9, 60), .v = T(3, 1, 9, 60), .heads = 10),
    REFUSES(ATTENTION, attention, ARGUMENT,
            "l: attention of q [1,5,68], k [1,9,68], v [1,9,68] with 1 heads is not possible", .q = T(1, 1, 5, 68),
            .k = T(1, 1, 9, 68), .v = T(1, 1, 9, 68), .heads = 1),
    REFUSES(ATTENTION, attention, ARGUMENT,
            "l: attention of q [3,5,64], k [1,9,64], v [1,9,64] with 8 heads is not possible", .q = T(3, 1, 5, 64),
            .k = T(1, 1, 9, 64), .v = T(1, 1, 9, 64), .heads = 8),
    MAKES(WINDOW_ATTENTION, window_attention, "t[1,9,5,64]", .qkv = T(1, 9, 5, 192), .heads = 2, .ws = 7),
    REFUSES(WINDOW_ATTENTION, window_attention, ARGUMENT,
            "l: window attention of 191 channels with 2 heads, windows of 7", .qkv = T(1, 9, 5, 191), .heads = 2,
            .ws = 7),
    REFUSES(WINDOW_ATTENTION, window_attention, ARGUMENT,
            "l: window attention of 192 channels with 2 heads, windows of 17", .qkv = T(1, 9, 5, 192), .heads = 2,
            .ws = 17),
    MAKES(DEFORM, deform, "t[1,1,5,16]", .offsets = T(1, 1, 5, 32), .weights = T(1, 1, 5, 16), .ref = F(1, 1, 5, 4),
          .memory = T(1, 1, 20, 16), .level = {{4, 4, 0, 4}, {2, 2, 16, 4}}, .levels = 2, .heads = 2),
    REFUSES(
        DEFORM, deform, ARGUMENT,
        "l: deformable attention of offsets [1,5,32], weights [1,5,16], boxes [1,5,4], memory [1,19,16], 2 heads, 0 "
        "points",
        .offsets = T(1, 1, 5, 32), .weights = T(1, 1, 5, 16), .ref = F(1, 1, 5, 4), .memory = T(1, 1, 19, 16),
        .level = {{4, 4, 0, 4}, {2, 2, 16, 4}}, .levels = 2, .heads = 2),
    REFUSES(
        DEFORM, deform, ARGUMENT,
        "l: deformable attention of offsets [1,5,32], weights [1,5,16], boxes [1,5,4], memory [1,20,16], 2 heads, 8 "
        "points",
        .offsets = T(1, 1, 5, 32), .weights = F(1, 1, 5, 16), .ref = F(1, 1, 5, 4), .memory = T(1, 1, 20, 16),
        .level = {{4, 4, 0, 4}, {2, 2, 16, 4}}, .levels = 2, .heads = 2),
    MAKES(RELATIVE_ATTENTION, relative_attention, "t[1,20,15,128]", .qkv = T(1, 20, 15, 384), .heads = 2,
          .rel_h = {.count = 27 * 64}, .rel_w = {.count = 27 * 64}, .pad = {.count = 384}),
    REFUSES(RELATIVE_ATTENTION, relative_attention, ARGUMENT, "l: attention of 384 channels, 384 of padding, in 5 heads",
            .qkv = T(1, 20, 15, 384), .heads = 5, .rel_h = {.count = 27 * 64}, .rel_w = {.count = 27 * 64},
            .pad = {.count = 384}),
    REFUSES(RELATIVE_ATTENTION, relative_attention, WEIGHTS,
            "l: 26 and 27 relative positions of 64 channels are not 2 s - 1 of windows of up to 64 tokens",
            .qkv = T(1, 20, 15, 384), .heads = 2, .rel_h = {.count = 26 * 64}, .rel_w = {.count = 27 * 64},
            .pad = {.count = 384}),
    MAKES(ROW_MAX, row_max, "f[2,1,12,1]", .x = T(2, 3, 4, 80)),
    REFUSES(ROW_MAX, row_max, ARGUMENT, "l: makes [2,1,12,1], the place for it is [2,1,12,1]", .x = T(2, 3, 4, 80),
            .y = T(2, 1, 12, 1)),
    MAKES(TOPK, top_rows, "i[2,1,300,1]", .x = F(2, 1, 300, 1), .k = 300),
    REFUSES(TOPK, top_rows, ARGUMENT,
            "l: the 301 largest of 300 values (1 channels): at most 512 of 4194304 are possible", .x = F(2, 1, 300, 1),
            .k = 301),
    REFUSES(TOPK, top_rows, ARGUMENT,
            "l: the 3 largest of 300 values (2 channels): at most 512 of 4194304 are possible", .x = F(2, 1, 300, 2),
            .k = 3),
    MAKES(TOP_ROWS, top_rows, "i[2,1,512,1]", .x = T(2, 1, 8400, 80), .k = 512),
    REFUSES(TOP_ROWS, top_rows, ARGUMENT,
            "l: the 513 largest of 8400 values (80 channels): at most 512 of 4194304 are possible",
            .x = T(2, 1, 8400, 80), .k = 513),
    MAKES(TOP_SCORES, top_scores, "f[2,1,1,24000] i[2,1,300,1]", .x = F(2, 1, 300, 80), .k = 300),
    REFUSES(TOP_SCORES, top_scores, ARGUMENT, "l: the 0 largest of 24000 scores: at most 512 of 4194304 are possible",
            .x = F(2, 1, 300, 80), .k = 0),
    REFUSES(TOP_SCORES, top_scores, ARGUMENT, "l: the 9 largest of 24000 scores: at most 512 of 4194304 are possible",
            .x = T(2, 1, 300, 80), .k = 9),
    MAKES(NMS, nms, "i[2,1,4096,1] i[2,1,1,1]", .boxes = F(2, 1, 4096, 4), .scores = F(2, 1, 4096, 1), .iou = 1),
    MAKES(NMS, nms, "i[2,1,9,1] i[2,1,1,1]", .boxes = F(2, 1, 9, 4), .scores = F(2, 1, 9, 1), .group = I(2, 1, 9, 1),
          .count = WIDE(2, 1, 1, 1, I32), .iou = 0.5),
    REFUSES(NMS, nms, ARGUMENT, "l: suppression among [1,1,4097,4] boxes with [1,1,4097,1] scores and [0,0,0,0] groups; at "
            "most 4096 boxes", .boxes = F(1, 1, 4097, 4), .scores = F(1, 1, 4097, 1)),
    REFUSES(NMS, nms, ARGUMENT, "l: suppression among [2,1,9,4] boxes with [2,1,9,1] scores and [1,1,9,1] groups; at most "
            "4096 boxes", .boxes = F(2, 1, 9, 4), .scores = F(2, 1, 9, 1), .group = I(1, 1, 9, 1)),
    REFUSES(NMS, nms, ARGUMENT, "l: [1,1,1,1] counts of 2 lists of boxes", .boxes = F(2, 1, 9, 4),
            .scores = F(2, 1, 9, 1), .count = I(1, 1, 1, 1)),
    REFUSES(NMS, nms, ARGUMENT, "l: boxes that overlap by more than 1.5; 0 to 1 is possible", .boxes = F(2, 1, 9, 4),
            .scores = F(2, 1, 9, 1), .iou = 1.5),
    REFUSES(NMS, nms, ARGUMENT, "l: boxes that overlap by more than nan; 0 to 1 is possible", .boxes = F(2, 1, 9, 4),
            .scores = F(2, 1, 9, 1), .iou = NAN),
    MAKES(GATHER, gather, "f[2,1,9,4]", .x = F(1, 1, 30, 4), .index = I(2, 1, 9, 1)),
    REFUSES(GATHER, gather, ARGUMENT, "l: gather of [3,30,4] by [2,9,1] is not possible", .x = F(3, 1, 30, 4),
            .index = I(2, 1, 9, 1)),
    REFUSES(GATHER, gather, ARGUMENT, "l: gather of [2,30,4] by [2,9,1] is not possible", .x = F(2, 1, 30, 4),
            .index = WIDE(2, 1, 9, 1, I32)),
    MAKES(BOX_INIT, box, "f[2,1,9,4]", .a = F(2, 1, 9, 4), .b = F(1, 1, 9, 4)),
    REFUSES(BOX_INIT, box, ARGUMENT, "l: [2,9,4] beside [1,8,4]", .a = F(2, 1, 9, 4), .b = F(1, 1, 8, 4)),
    MAKES(BOX_REFINE, box, "f[2,1,9,4]", .a = F(2, 1, 9, 4), .b = F(2, 1, 9, 4)),
    REFUSES(BOX_REFINE, box, ARGUMENT, "l: [2,9,4] beside [2,9,3]", .a = F(2, 1, 9, 4), .b = F(2, 1, 9, 3)),
    MAKES(ADD_QUALITY, box, "f[2,1,9,80]", .a = F(2, 1, 9, 80), .b = F(2, 1, 9, 1)),
    REFUSES(ADD_QUALITY, box, ARGUMENT, "l: quality has 80 channels, not 1", .a = F(2, 1, 9, 80), .b = F(2, 1, 9, 80)),
    MAKES(FDR, fdr, "f[2,1,9,4] f[2,1,9,132]", .increment = T(2, 1, 9, 132), .ref = F(2, 1, 9, 4)),
    REFUSES(FDR, fdr, ARGUMENT, "l: increments [2,9,131], boxes [2,9,4] do not fit", .increment = T(2, 1, 9, 131),
            .ref = F(2, 1, 9, 4)),
    REFUSES(FDR, fdr, ARGUMENT, "l: increments [2,9,132], boxes [2,9,4] do not fit", .increment = T(2, 1, 9, 132),
            .ref = F(2, 1, 9, 4), .previous = T(2, 1, 9, 132)),
    MAKES(LQE, lqe, "f[2,1,9,20]", .corners = F(2, 1, 9, 132)),
    REFUSES(LQE, lqe, ARGUMENT, "l: corners [2,9,132] are not dense floats of 132", .corners = WIDE(2, 1, 9, 132, F32)),
};

/* ---- composite nodes ---- */

static const shape_case composite[] = {
    MAKES(STEM, stem, "t[1,16,8,48]", .image = T(1, 64, 32, 3),
          .layers = {LAYER(32, 3, 3), LAYER(16, 32, 2), LAYER(32, 16, 2), LAYER(32, 64, 3), LAYER(48, 32, 1)}),
    REFUSES(STEM, stem, ARGUMENT, "l: no stem of 32 and 48 channels for an image [1,62,32,3]", .image = T(1, 62, 32, 3),
            .layers = {LAYER(32, 3, 3), LAYER(16, 32, 2), LAYER(32, 16, 2), LAYER(32, 64, 3), LAYER(48, 32, 1)}),
    REFUSES(STEM, stem, WEIGHTS, "l: no stem of 32 and 48 channels for an image [1,64,32,3]", .image = T(1, 64, 32, 3),
            .layers = {LAYER(32, 3, 3), LAYER(16, 32, 2), LAYER(32, 16, 2), LAYER(32, 32, 3), LAYER(48, 32, 1)}),
    MAKES(SEPARABLE, separable, "t[1,4,4,12]", .x = T(1, 8, 8, 6), .point = FILTER(12, 6, 1, 1),
          .depth = FILTER(12, 1, 3, 3), .o = {2, 1, 1, 1, 1}),
    REFUSES(SEPARABLE, separable, ARGUMENT, "l: filters [12,6,1,1] and [11,1,3,3] on [1,8,8,6]", .x = T(1, 8, 8, 6),
            .point = FILTER(12, 6, 1, 1), .depth = FILTER(11, 1, 3, 3)),
    MAKES(CSP, csp, "t[1,8,8,6]", .x = T(1, 8, 8, 10), .first = FILTER(12, 10, 1, 1), .necks = 2,
          .neck = {FILTER(6, 6, 3, 3), FILTER(6, 6, 3, 3)}, .last = FILTER(6, 6, 3, 3)),
    REFUSES(CSP, csp, ARGUMENT, "l: CSP block of 12 outputs, 0 bottlenecks and 6 channels on [1,8,8,10]",
            .x = T(1, 8, 8, 10), .first = FILTER(12, 10, 1, 1), .last = FILTER(6, 6, 3, 3)),
    REFUSES(CSP, csp, ARGUMENT, "l: CSP block of 12 outputs, 2 bottlenecks and 6 channels on [1,8,8,10]",
            .x = T(1, 8, 8, 10), .first = FILTER(12, 10, 1, 1), .necks = 2,
            .neck = {FILTER(6, 6, 3, 3), FILTER(6, 6, 1, 1)}, .last = FILTER(6, 6, 3, 3)),
    MAKES(FUSE, fuse, "t[1,8,6,20]", .top = T(1, 4, 3, 10), .side = T(1, 8, 6, 7), .filter = FILTER(20, 17, 1, 1)),
    MAKES(FUSE, fuse, "t[1,8,6,20]", .top = T(1, 4, 3, 10), .side = T(1, 8, 6, 7), .filter = FILTER(20, 15, 1, 1),
          .side_filter = FILTER(5, 7, 1, 1)),
    REFUSES(FUSE, fuse, WEIGHTS, "l: filter [20,17] on [1,4,3,10], upsampled, and 7 channels of [1,8,7,7]",
            .top = T(1, 4, 3, 10), .side = T(1, 8, 7, 7), .filter = FILTER(20, 17, 1, 1)),
    REFUSES(FUSE, fuse, WEIGHTS, "l: filter [20,17] on [1,4,3,10], upsampled, and 5 channels of [1,8,6,7]",
            .top = T(1, 4, 3, 10), .side = T(1, 8, 6, 7), .filter = FILTER(20, 17, 1, 1),
            .side_filter = FILTER(5, 7, 1, 1)),
    MAKES(QKV, qkv, "t[1,1,20,24]", .x = T(1, 1, 20, 8), .filter = FILTER(24, 8, 1, 1), .grid_h = 4, .grid_w = 5),
    REFUSES(QKV, qkv, WEIGHTS, "l: projection [24,8] of [1,1,20,8] on a grid of 4 x 4", .x = T(1, 1, 20, 8),
            .filter = FILTER(24, 8, 1, 1), .grid_h = 4, .grid_w = 4),
    REFUSES(QKV, qkv, WEIGHTS, "l: projection [16,8] of [1,1,20,8] on a grid of 4 x 5", .x = T(1, 1, 20, 8),
            .filter = FILTER(16, 8, 1, 1), .grid_h = 4, .grid_w = 5),
    MAKES(PATCH_EMBED, patch_embed, "t[1,8,3,64]", .image = T(1, 32, 9, 3), .first = FILTER(32, 3, 3, 3),
          .second = FILTER(64, 32, 3, 3)),
    REFUSES(PATCH_EMBED, patch_embed, ARGUMENT, "l: 3 -> 32 -> 64 on [1,32,9,4]", .image = T(1, 32, 9, 4),
            .first = FILTER(32, 3, 3, 3), .second = FILTER(64, 32, 3, 3)),
    MAKES(MBCONV, mbconv, "t[1,5,3,8]", .x = T(1, 9, 6, 4), .expand = FILTER(16, 4, 1, 1),
          .spread = FILTER(16, 1, 3, 3), .project = FILTER(8, 16, 1, 1), .stride = 2),
    MAKES(MBCONV, mbconv, "t[1,9,6,4]", .x = T(1, 9, 6, 4), .expand = FILTER(16, 4, 1, 1),
          .spread = FILTER(16, 1, 3, 3), .project = FILTER(4, 16, 1, 1), .stride = 1, .residual = true),
    REFUSES(MBCONV, mbconv, ARGUMENT, "l: bottleneck 4 -> 16 -> 8, stride 1, on [1,9,6,4]", .x = T(1, 9, 6, 4),
            .expand = FILTER(16, 4, 1, 1), .spread = FILTER(16, 1, 3, 3), .project = FILTER(8, 16, 1, 1), .stride = 1,
            .residual = true),
    REFUSES(MBCONV, mbconv, ARGUMENT, "l: bottleneck 4 -> 16 -> 8, stride 3, on [1,9,6,4]", .x = T(1, 9, 6, 4),
            .expand = FILTER(16, 4, 1, 1), .spread = FILTER(16, 1, 3, 3), .project = FILTER(8, 16, 1, 1), .stride = 3),
    MAKES(NORM_WINDOW, norm_window, "t[1,9,6,64]", .x = T(1, 9, 6, 64), .norm = NORM(64), .heads = 2,
          .qkv = FILTER(192, 64, 1, 1), .ws = 7),
    REFUSES(NORM_WINDOW, norm_window, ARGUMENT, "l: projection 64 -> 192 for 3 heads on [1,9,6,64]",
            .x = T(1, 9, 6, 64), .norm = NORM(64), .heads = 3, .qkv = FILTER(192, 64, 1, 1), .ws = 7),
    MAKES(NORM_MLP, norm_mlp, "t[1,9,6,8]", .x = T(1, 9, 6, 8), .norm = NORM(8), .spread = FILTER(8, 1, 3, 3),
          .fc1 = FILTER(32, 8, 1, 1), .fc2 = FILTER(8, 32, 1, 1)),
    MAKES(NORM_MLP, norm_mlp, "t[1,9,6,32]", .x = T(1, 9, 6, 8), .norm = NORM(8), .fc1 = FILTER(32, 8, 1, 1)),
    REFUSES(NORM_MLP, norm_mlp, ARGUMENT, "l: layers 8 -> 32 and 31 -> 8 on [1,9,6,8]", .x = T(1, 9, 6, 8),
            .norm = NORM(8), .fc1 = FILTER(32, 8, 1, 1), .fc2 = FILTER(8, 31, 1, 1)),
    REFUSES(NORM_MLP, norm_mlp, WEIGHTS, "l: norm of 9 channels, the tensor has 8", .x = T(1, 9, 6, 8), .norm = NORM(9),
            .fc1 = FILTER(32, 8, 1, 1)),
};

/* ---- prompts and masks ---- */

#define QUERY .query = FILTER(4, 8, 1, 1), .key = FILTER(4, 8, 1, 1), .value = FILTER(4, 8, 1, 1)
#define MLPS                                                                                                           \
    .mlp = {{FILTER(8, 8, 1, 1), FILTER(8, 8, 1, 1), FILTER(4, 8, 1, 1)},                                              \
            {FILTER(8, 8, 1, 1), FILTER(8, 8, 1, 1), FILTER(32, 8, 1, 1)}}

static const shape_case prompts[] = {
    MAKES(POINT_TOKENS, point_tokens, "t[3,1,2,256]", .points = F(3, 1, 2, 2)),
    MAKES(POINT_TOKENS, point_tokens, "t[3,1,8,256]", .points = F(3, 1, 2, 2), .labels = I(3, 1, 2, 1),
          .own = T(1, 1, 5, 256), .pad = true),
    REFUSES(POINT_TOKENS, point_tokens, ARGUMENT, "l: points [3,1,2,2], want float pairs and one int label each",
            .points = F(3, 1, 2, 2), .labels = I(3, 1, 1, 1)),
    REFUSES(POINT_TOKENS, point_tokens, ARGUMENT, "l: own tokens [1,1,5,255], want dense ones of 256 channels",
            .points = F(3, 1, 2, 2), .own = T(1, 1, 5, 255)),
    MAKES(JOIN_TOKENS, join_tokens, "t[3,1,7,8]", .a = T(1, 1, 5, 8), .b = T(3, 1, 2, 8)),
    REFUSES(JOIN_TOKENS, join_tokens, ARGUMENT, "l: joins [2,1,5,8] and [3,1,2,8]", .a = T(2, 1, 5, 8),
            .b = T(3, 1, 2, 8)),
    MAKES(DENSE_PROMPT, dense_prompt, "t[3,4,4,8]", .x = T(3, 4, 4, 8), .given = I(1, 1, 3, 1), .none = ARRAY(8)),
    REFUSES(DENSE_PROMPT, dense_prompt, WEIGHTS, "l: 7 values for [3,4,4,8]", .x = T(3, 4, 4, 8),
            .given = I(1, 1, 3, 1), .none = ARRAY(7)),
    MAKES(PARAMETER, parameter, "t[1,1,5,8]", .y = {.n = 1, .h = 1, .w = 5, .c = 8}, .rows = {ARRAY(8), ARRAY(32)}),
    REFUSES(PARAMETER, parameter, WEIGHTS, "l: 39 values for [1,1,5,8]", .y = {.n = 1, .h = 1, .w = 5, .c = 8},
            .rows = {ARRAY(8), ARRAY(31)}),
    MAKES(GRID_CODE, grid_code, "t[1,1,16,6]", .grid = 4, .gauss = ARRAY(6)),
    REFUSES(GRID_CODE, grid_code, WEIGHTS, "l: a grid of 4 by 7 values", .grid = 4, .gauss = ARRAY(7)),
    MAKES(ATTENTION_LAYER, attention_layer, "t[3,1,5,8]", .q = T(3, 1, 5, 8), .k = T(3, 1, 9, 8), QUERY,
          .k_pos = T(1, 1, 9, 8), .out = FILTER(8, 4, 1, 1), .norm = NORM(8), .heads = 2),
    REFUSES(ATTENTION_LAYER, attention_layer, WEIGHTS,
            "l: attention of [3,1,5,8] to [3,1,9,8] by projections 8 -> 4, 8 -> 4, 8 -> 4 and 4 -> 8 in 3 heads",
            .q = T(3, 1, 5, 8), .k = T(3, 1, 9, 8), QUERY, .out = FILTER(8, 4, 1, 1), .norm = NORM(8), .heads = 3),
    REFUSES(ATTENTION_LAYER, attention_layer, WEIGHTS,
            "l: attention of [3,1,5,8] to [3,1,9,8] by projections 8 -> 4, 8 -> 4, 8 -> 4 and 4 -> 8 in 2 heads",
            .q = T(3, 1, 5, 8), .k = T(3, 1, 9, 8), QUERY, .q_pos = T(1, 1, 9, 8), .out = FILTER(8, 4, 1, 1),
            .norm = NORM(8), .heads = 2),
    REFUSES(ATTENTION_LAYER, attention_layer, WEIGHTS,
            "l: attention of [3,1,5,8] to [3,1,9,8] by projections 8 -> 4, 8 -> 4, 8 -> 4 and 4 -> 8 in 2 heads",
            .q = T(3, 1, 5, 8), .k = T(3, 1, 9, 8), QUERY, .k_count = I(1, 1, 2, 1), .out = FILTER(8, 4, 1, 1),
            .norm = NORM(8), .heads = 2),
    MAKES(MLP_LAYER, mlp_layer, "t[3,1,5,8]", .x = T(3, 1, 5, 8), .lin1 = FILTER(32, 8, 1, 1),
          .lin2 = FILTER(8, 32, 1, 1), .norm = NORM(8)),
    REFUSES(MLP_LAYER, mlp_layer, WEIGHTS, "l: layers 8 -> 32 and 32 -> 9 on [3,1,5,8]", .x = T(3, 1, 5, 8),
            .lin1 = FILTER(32, 8, 1, 1), .lin2 = FILTER(9, 32, 1, 1), .norm = NORM(8)),
    MAKES(TOKEN_MLPS, token_mlps, "f[3,1,1,4] t[3,1,1,32]", .x = T(3, 1, 7, 8), .count = 2, MLPS),
    REFUSES(TOKEN_MLPS, token_mlps, WEIGHTS, "l: 2 MLPs of tokens 6 and on of [3,1,7,8]", .x = T(3, 1, 7, 8),
            .count = 2, .first = 6, MLPS),
    MAKES(UPSCALE, upscale, "f[6,16,16,1]", .x = T(3, 4, 4, 32), .vectors = T(3, 1, 2, 32), .norm = NORM(64)),
    REFUSES(UPSCALE, upscale, ARGUMENT, "l: masks of [3,4,4,40] and [3,1,2,32]", .x = T(3, 4, 4, 40),
            .vectors = T(3, 1, 2, 32), .norm = NORM(64)),
};

/* ---- the frame ---- */

#define DET(b, most) .det = {.batch = b, .max_objects = most}

static const shape_case frame[] = {
    MAKES(SAMPLE_WINDOW, sample_window, "", .batch = 2),
    REFUSES(SAMPLE_WINDOW, sample_window, ARGUMENT, "l: windows of 0 images"),
    MAKES(RESIZE, resize, "t[2,64,32,3]", .what = IST_RESIZE_DETECTOR, .batch = 2, .w = 32, .h = 64, .channels = 3),
    MAKES(RESIZE, resize, "t[2,64,64,3] i[1,1,2,2]", .what = IST_RESIZE_SEGMENTER, .batch = 2, .w = 64, .h = 64,
          .channels = 3),
    REFUSES(RESIZE, resize, ARGUMENT, "l: makes [2,64,32,3], the place for it is [1,64,32,3]", .batch = 2, .w = 32,
            .h = 64, .channels = 3, .y = T(1, 64, 32, 3)),
    MAKES(DETECT, detect, "i[2,1,5,8] i[2,1,1,4] i[1,1,1,1] i[1,1,10,1] f[10,1,1,4]", .logits = F(2, 1, 300, 80),
          .boxes = F(2, 1, 300, 4), .det = {.max_objects = 5}),
    REFUSES(DETECT, detect, ARGUMENT, "l: logits [2,300,80], boxes [2,299,4], at most 5 objects: not possible",
            .logits = F(2, 1, 300, 80), .boxes = F(2, 1, 299, 4), .det = {.max_objects = 5}),
    REFUSES(DETECT, detect, ARGUMENT, "l: logits [2,300,80], boxes [2,300,4], at most 301 objects: not possible",
            .logits = F(2, 1, 300, 80), .boxes = F(2, 1, 300, 4), .det = {.max_objects = 301}),
    MAKES(GIVEN_BOXES, given_boxes, "i[2,1,5,2] i[2,1,5,8] i[2,1,1,4] i[1,1,1,1] i[1,1,10,1] f[10,1,1,4]", DET(2, 5)),
    REFUSES(GIVEN_BOXES, given_boxes, ARGUMENT, "l: makes [2,1,5,2], the place for it is [2,1,4,2]", DET(2, 5),
            .match = I(2, 1, 4, 2)),
    MAKES(GIVEN_PROMPTS, given_prompts,
          "f[10,1,4,2] i[10,1,4,1] i[1,1,10,1] i[1,1,1,1] i[1,1,10,1] i[2,1,15,2] i[1,1,2,2] i[2,1,15,8] i[2,1,1,4] "
          "i[1,1,1,1] i[1,1,30,1]",
          .det = {.batch = 2}, .prompts = 5, .masks = 3, .k = 4, .own = 5),
    MAKES(GIVEN_PROMPTS, given_prompts,
          "f[2,1,3,2] i[2,1,3,1] i[1,1,2,1] f[2,16,16,1] i[1,1,2,1] i[1,1,1,1] i[1,1,2,1] i[1,1,2,2] i[1,1,1,2] "
          "i[1,1,2,8] i[1,1,1,4] i[1,1,1,1] i[1,1,2,1]",
          .det = {.batch = 1}, .prompts = 2, .masks = 1, .k = 3, .own = 5, .low = 16),
    MAKES(GIVEN_PROMPTS, given_prompts,
          "f[2,1,6,2] i[2,1,6,1] i[1,1,2,1] f[2,1,3,2] i[2,1,3,1] i[1,1,2,1] i[1,1,1,1] i[1,1,2,1] i[1,1,2,2] "
          "i[1,1,1,2] i[1,1,2,8] i[1,1,1,4] i[1,1,1,1] i[1,1,2,1]",
          .det = {.batch = 1}, .prompts = 2, .masks = 1, .k = 6, .few = 3, .own = 5),
    REFUSES(GIVEN_PROMPTS, given_prompts, ARGUMENT, "l: 2 prompts of 3 places with 1 masks in each of 1 images",
            .det = {.batch = 1}, .prompts = 2, .masks = 1, .k = 3, .few = 4),
    REFUSES(GIVEN_PROMPTS, given_prompts, ARGUMENT, "l: 0 prompts of 3 places with 1 masks in each of 1 images",
            .det = {.batch = 1}, .masks = 1, .k = 3),
    MAKES(ASSIGN, assignment, "i[2,1,5,1] i[2,1,1,1]", .cost = F(2, 5, 7, 1), .dims = I(2, 1, 1, 2), .bits = 50),
    REFUSES(ASSIGN, assignment, ARGUMENT, "l: assignment of [1,1,4097,1] with 0 bits; at most 4096 x 4096",
            .cost = F(1, 1, 4097, 1), .dims = I(1, 1, 1, 2)),
    REFUSES(ASSIGN, assignment, ARGUMENT, "l: assignment of [2,5,7,1] with 51 bits; at most 4096 x 4096",
            .cost = F(2, 5, 7, 1), .dims = I(2, 1, 1, 2), .bits = 51),
    MAKES(MATCH, match, "i[2,1,5,2]", DET(2, 5)),
    REFUSES(MATCH, match, ARGUMENT, "l: makes [2,1,5,2], the place for it is [1,1,5,2]", DET(2, 5),
            .match = I(1, 1, 5, 2)),
    MAKES(MASK_SUMS, mask_sums, "i[1,1,10,8]", .stats = I(1, 1, 10, 8), DET(2, 5)),
    REFUSES(MASK_SUMS, mask_sums, ARGUMENT, "l: makes [1,1,10,8], the place for it is [1,1,9,8]", .stats = I(1, 1, 10, 8),
            DET(2, 5), .y = I(1, 1, 9, 8)),
    MAKES(FOUND_NONE, found_none, "", .found = I(1, 1, 1, 1)),
    REFUSES(FOUND_NONE, found_none, ARGUMENT, "l: nowhere to find anything"),
    MAKES(TILE_KEEP, tile_keep, "", .found = I(1, 1, 1, 1), DET(2, 5)),
    REFUSES(TILE_KEEP, tile_keep, ARGUMENT, "l: objects of 0 tiles at a time", .found = I(1, 1, 1, 1), DET(0, 5)),
    MAKES(TILE_MERGE, tile_merge, "", .found = I(1, 1, 1, 1), .iou = 0.5, .most = 9),
    REFUSES(TILE_MERGE, tile_merge, ARGUMENT, "l: 9 objects of tiles with an IoU of 0", .found = I(1, 1, 1, 1), .most = 9),
    MAKES(TILE_OBJECTS, tile_objects, "i[1,1,7,1] i[1,1,7,1] i[1,1,7,2] i[1,1,7,8] i[1,1,1,4] i[1,1,1,1] i[1,1,7,1] f[7,1,1,4]",
          .found = I(1, 1, 1, 1), .det = {.max_objects = 7}),
    REFUSES(TILE_OBJECTS, tile_objects, ARGUMENT, "l: 0 objects of tiles", .found = I(1, 1, 1, 1)),
    MAKES(GRID_POINTS, grid_points, "f[7,1,2,2] i[7,1,2,1] i[1,1,7,1] i[1,1,1,1] i[1,1,5,2]", .prompts = 7, .crops = 5),
    REFUSES(GRID_POINTS, grid_points, ARGUMENT, "l: 7 points at a time of 86 crops", .prompts = 7, .crops = 86),
    MAKES(GRID_PICKS, grid_picks, "i[1,1,21,2] i[1,1,1,1] i[1,1,21,1]", .iou = F(7, 1, 1, 3), .image_of = I(1, 1, 7, 1)),
    REFUSES(GRID_PICKS, grid_picks, ARGUMENT, "l: quality [7,1,1,3] of masks of 6 points", .iou = F(7, 1, 1, 3),
            .image_of = I(1, 1, 6, 1)),
    MAKES(GRID_KEEP, grid_keep, "", .stats = I(1, 1, 21, 8), DET(1, 21)),
    REFUSES(GRID_KEEP, grid_keep, ARGUMENT, "l: statistics [1,1,20,8] of 21 masks", .stats = I(1, 1, 20, 8), DET(1, 21)),
    MAKES(GRID_SELECT, grid_select, "", .crops = 5, .most = 3, .capacity = 60),
    REFUSES(GRID_SELECT, grid_select, ARGUMENT, "l: 0 of 60 candidates in 5 crops", .crops = 5, .capacity = 60),
    MAKES(GRID_CLEAN, grid_clean, "", .least = 9, .most = 3, .capacity = 60),
    REFUSES(GRID_CLEAN, grid_clean, ARGUMENT, "l: regions of 0 pixels in 3 masks", .most = 3, .capacity = 60),
    MAKES(GRID_OBJECTS, grid_objects, "i[1,1,4,2] i[1,1,4,8] f[4,1,1,1] i[1,1,4,8] i[1,1,1,4] i[1,1,1,1] i[1,1,4,1]",
          .det = {.max_objects = 4}),
    REFUSES(GRID_OBJECTS, grid_objects, ARGUMENT, "l: 0 objects", .det = {.max_objects = 0}),
    MAKES(MASKS, masks, "i[1,1,10,8]", .logits = F(10, 16, 16, 1), DET(2, 5), .side = 64),
    MAKES(MASKS, masks, "i[1,1,10,8]", .logits = F(10, 1, 1, 256), DET(2, 5), .side = 64),
    REFUSES(MASKS, masks, ARGUMENT, "l: low-resolution logits [10,16,15,1] of 10 prompts", .logits = F(10, 16, 15, 1),
            DET(2, 5), .side = 64),
    REFUSES(MASKS, masks, ARGUMENT, "l: low-resolution logits [9,16,16,1] of 10 prompts", .logits = F(9, 16, 16, 1),
            DET(2, 5), .side = 64),
    MAKES(PACK, pack, "", DET(2, 5)),
    MAKES(PACK, pack, "", DET(2, 5), .stats = I(1, 1, 10, 8), .score = WIDE(10, 1, 1, 1, T), .store = I(1, 1, 1, 1)),
    MAKES(PACK, pack, "", DET(2, 6), .stats = I(1, 1, 12, 8), .score = F(4, 1, 1, 3), .store = I(1, 1, 1, 1)),
    REFUSES(PACK, pack, ARGUMENT, "l: 9 x 1 mask scores for 10 prompts", DET(2, 5), .stats = I(1, 1, 10, 8),
            .score = F(9, 1, 1, 1), .store = I(1, 1, 1, 1)),
};

static const struct {
    const shape_case *cases;
    size_t count;
} tables[] = {{small, sizeof small / sizeof *small},
              {decoder, sizeof decoder / sizeof *decoder},
              {composite, sizeof composite / sizeof *composite},
              {prompts, sizeof prompts / sizeof *prompts},
              {frame, sizeof frame / sizeof *frame}};
enum { TABLES = sizeof tables / sizeof *tables };

/* "f[n,h,w,c] .." of the results that a node has, in the order of its members. */
static void results_of(const shape_case *s, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (const ist_field *f = ist_kind_of(s->kind)->fields; f->kind != IST_FIELD_END; f++) {
        const ist_tensor *t = ist_field_of(s->node, f, 0);
        if ((f->kind != IST_FIELD_OUT && f->kind != IST_FIELD_MADE) || !t->n) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%c[%d,%d,%d,%d]", used ? " " : "", "tfiu"[t->elem],
                                 t -> n, t -> h, t -> w, t -> c);
        cr_assert_lt(used, size);
    }
}

Test(graph_shapes, cases) {
    char text[256];
    for (int i = 0; i < TABLES; i++)
        for (size_t k = 0; k < tables[i].count; k++) {
            const shape_case *s = &tables[i].cases[k];
            ist_error err = {0};
            ist_status status = ist_kind_of(s->kind)->infer(s->node, &err);
            cr_expect_eq(status, s->code, "%s, case %zu of table %d (%s): status %d, %s", ist_kind_of(s->kind)->name, k,
                         i, s->want, status, err.text);
            if (status == IST_OK) results_of(s, text, sizeof text);
            cr_expect_str_eq(status ? err.text : text, s->want, "%s: %s, not %s", ist_kind_of(s->kind)->name,
                             status ? err.text : text, s->want);
        }
}

Test(graph_shapes, every_kind_has_cases) {
    int makes[IST_NODE_KINDS] = {0}, refuses[IST_NODE_KINDS] = {0};
    for (int i = 0; i < TABLES; i++)
        for (size_t k = 0; k < tables[i].count; k++)
            ++*(tables[i].cases[k].code ? &refuses[tables[i].cases[k].kind] : &makes[tables[i].cases[k].kind]);
    for (int kind = 0; kind < IST_NODE_KINDS; kind++)
        cr_expect(makes[kind] && refuses[kind], "%s: %d and %d cases", ist_kind_of((ist_node_kind)kind)->name,
                  makes[kind], refuses[kind]);
}

/* ---- multiply-adds, of nodes as infer leaves them ---- */

static void costs(ist_node_kind kind, void *node, double want) {
    ist_error err = {0};
    cr_assert_eq(ist_kind_of(kind)->infer(node, &err), IST_OK, "%s", err.text);
    double got = ist_multiply_adds(kind, node);
    cr_expect_eq(got, want, "%s: %.0f multiply-adds, not %.0f", ist_kind_of(kind)->name, got, want);
}

Test(graph_shapes, multiply_adds) {
    costs(IST_NODE_CONV, &(ist_conv){.x = T(2, 8, 6, 3), .filter = FILTER(5, 3, 3, 3), .o = {2, 1, 1, 1, 1}},
          2 * 4 * 3 * 5 * 27);
    costs(IST_NODE_DWCONV, &(ist_conv){.x = T(1, 8, 6, 3), .filter = FILTER(3, 1, 5, 5), .o = {1, 2, 2, 2, 2}},
          48 * 3 * 25);
    costs(IST_NODE_ATTENTION,
          &(ist_attention){.q = T(3, 1, 5, 64), .k = T(3, 1, 9, 64), .v = T(3, 1, 9, 64), .heads = 8},
          3 * 5 * 9 * 64 * 2);
    costs(IST_NODE_WINDOW_ATTENTION, &(ist_window_attention){.qkv = T(1, 9, 5, 192), .heads = 2, .ws = 7},
          2 * 49 * 49 * 64 * 2); /* two windows, the second padded */
    costs(IST_NODE_MBCONV,
          &(ist_mbconv){.x = T(1, 8, 6, 4),
                        .expand = FILTER(16, 4, 1, 1),
                        .spread = FILTER(16, 1, 3, 3),
                        .project = FILTER(8, 16, 1, 1),
                        .stride = 2},
          48 * 64 + 12 * (16 * 9 + 128));
    costs(IST_NODE_NORM_MLP,
          &(ist_norm_mlp){.x = T(1, 9, 6, 8), .norm = NORM(8), .fc1 = FILTER(32, 8, 1, 1), .fc2 = FILTER(8, 32, 1, 1)},
          54 * 512);
    costs(IST_NODE_ATTENTION_LAYER,
          &(ist_attention_layer){
              .q = T(3, 1, 5, 8), .k = T(3, 1, 9, 8), QUERY, .out = FILTER(8, 4, 1, 1), .norm = NORM(8), .heads = 2},
          15 * 64 + 27 * 64 + 2 * 15 * 9 * 4);
    costs(IST_NODE_TOKEN_MLPS, &(ist_token_mlps){.x = T(3, 1, 7, 8), .count = 2, MLPS},
          3 * (64 + 64 + 32 + 64 + 64 + 256));
    costs(IST_NODE_UPSCALE, &(ist_upscale){.x = T(3, 4, 4, 32), .vectors = T(3, 1, 2, 32), .norm = NORM(64)},
          3 * (16. * 32 * 64 * 4 + 64. * 64 * 32 * 4 + 256. * 32 * 2)); /* of 16, 64 and 256 pixels */
    costs(IST_NODE_ADD, &(ist_add){.a = T(2, 1, 6, 8), .b = T(2, 1, 6, 8)}, 0);
}
