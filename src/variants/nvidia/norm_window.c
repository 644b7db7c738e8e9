/* Norm, projection and window attention in one launch on the matrix instructions of warpgroups
 * (cl/nvidia/norm_window). */
#include "variants/fragments.h"
#include "variants/nvidia/norm_window_args.h"
#include "variants/defines.h"
#include "variants/padding_reuse.h"
#include "variants/variant.h"
#include "variants/window.h"

#include "base/mem.h"

#include <stdlib.h>

enum { HEAD = IST_WINDOW_HEAD, PARTS = 3, WIDE = 64, C_MAX = 320 };
enum { LOCAL_ROOM = 226 << 10 }; /* bytes of local memory that cl/probe/ptx_wgmma.cl has found */

/* Rows of a line of tokens, blocks of 16 rows of a window, windows of a group; units of work, which are these and a
 * head, and how many groups share them. */
typedef struct layout {
    int line, blocks, windows, work, groups;
} layout;

static int windows_of(ist_tensor x, int ws) {
    return ist_div_up(x.w, ws) * ist_div_up(x.h, ws);
}

/* Floats of a head's biases: of the projection, then of scores by the distance of lines. */
static int table_size(layout l, int ws) {
    return PARTS * HEAD + (l.line == 8 ? 2 * l.blocks * 64 : ws * 256);
}

/* Bytes of local memory: heads' weights and biases, a group's values and keys, its tokens where registers are short. */
static int64_t local_of(layout l, const ist_norm_window *a) {
    enum { BLOCKS = 4, TOKENS = 16 };
    int64_t head = (int64_t)(PARTS * HEAD) * ist_div_up(a->x.c, WIDE) * WIDE * 2 + table_size(l, a->ws) * 4 + 1024;
    int64_t tokens = (int64_t)l.windows * ist_div_up(l.blocks, BLOCKS) * BLOCKS * TOKENS;
    return head * (l.groups < l.work ? 2 : 1) + tokens * 2 * HEAD * 2 + (l.line > 8 ? tokens * a->x.c * 2 : 0) + 1024;
}

/* Eight warps at least. Heads share a norm. Where a group has all registers of a unit, there are as many groups as
 * units, each with as many heads as another; else two heads a group where that leaves a unit more than one, all where
 * it leaves many. */
static layout layout_of(const ist_plan *p, const ist_norm_window *a) {
    enum { WARPS = 8, HEADS_MAX = 5, MANY = 5, TWO_GROUPS = 160 };
    layout l = {.line = a->ws <= 8 ? 8 : 16, .blocks = a->ws <= 8 ? (a->ws + 1) / 2 : a->ws};
    l.windows = l.blocks < WARPS ? WARPS / l.blocks : 1;
    l.work = a->x.n * ist_div_up(windows_of(a->x, a->ws), l.windows) * a->heads;
    int64_t units = ist_plan_units(p), work = l.work;
    int heads = 1;
    for (int h = 2; h <= HEADS_MAX; h++)
        if (a->heads % h == 0 && 2 * work >= (h == 2 ? 3 : 2 * MANY) * units * h) heads = h;
    l.groups = l.work / heads;
    if ((l.line > 8 || a->x.c > TWO_GROUPS) && 2 * work >= 3 * units) l.groups = (int)units;
    if (local_of(l, a) > LOCAL_ROOM) l.groups = l.work;
    return l;
}

static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_norm_window *a = node;
    ist_tensor x = a->x;
    (void)v;
    return x.elem == IST_ELEM_T && a->ws >= 2 && a->ws <= 16 && x.c % 32 == 0 && x.c <= C_MAX &&
           (x.ld | x.c0) % 8 == 0 && local_of(layout_of(p, a), a) <= LOCAL_ROOM;
}

/* Row of the projection that column `i` of a head's part is: values lie so that what a work-item has of four blocks of
 * eight columns, two of each, is eight in a row. */
static int row_of(int head, int part, int i) {
    return (head * PARTS + part) * HEAD + (part == 2 ? ist_place_channel(i) : i);
}

/* Weights times the norm's scale: of each head tiles of 64 inputs, rows of 64 halves whose 16-byte parts are exchanged
 * but in one that is half full. */
static ist_tensor pack_weights(ist_plan *p, const ist_norm_window *a, int c, const char *label) {
    size_t count = (size_t)(PARTS * c) * (size_t)c;
    float *packed = malloc(count * sizeof *packed), *to = packed;
    ist_tensor t = {0};
    if (!packed) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
        return t;
    }
    for (int h = 0; h < a->heads; h++)
        for (int tile = 0; tile < c; tile += WIDE) {
            int width = c - tile < WIDE ? c - tile : WIDE;
            for (int o = 0; o < PARTS * HEAD; o++) {
                const float *w = a->qkv.w + (size_t)row_of(h, o / HEAD, o % HEAD) * (size_t)c;
                for (int k = 0; k < width; k++) {
                    int channel = ist_place_channel(tile + k);
                    to[ist_group_part_at(o, k, width)] = w[channel] * a->norm.gamma[channel];
                }
            }
            to += PARTS * HEAD * width;
        }
    t = ist_plan_const(p, packed, 1, 1, 1, (int)count, IST_ELEM_T, label);
    free(packed);
    return t;
}

/* Bias of a query and a key `lines` apart, in units of the scale. */
static float score_bias(const ist_norm_window *a, int head, int lines, int query, int key) {
    if (key >= a->ws) return -1e30f;
    if (query >= a->ws || lines >= a->ws) return 0.0f;
    return a->bias.v[(head * a->ws + lines) * a->ws + abs(query - key)] / IST_WINDOW_SCALE;
}

static ist_tensor pack_table(ist_plan *p, const ist_norm_window *a, layout l, const char *label) {
    size_t size = (size_t)table_size(l, a->ws), count = (size_t)a->heads * size;
    float *all = malloc(count * sizeof *all), *to = all;
    ist_tensor t = {0};
    if (!all) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %zu biases", label, count);
        return t;
    }
    int pieces = l.line == 8 ? 2 : 4, halves = l.line / 8;
    for (int h = 0; h < a->heads; h++) {
        for (int i = 0; i < PARTS * HEAD; i++) *to++ = ist_window_shift(a, row_of(h, i / HEAD, i % HEAD));
        for (int i = 0; i < (int)size - PARTS * HEAD; i++) {
            int e = i % pieces, lane = i / pieces % 32, half = i / pieces / 32 % halves,
                lines = i / pieces / 32 / halves;
            *to++ = score_bias(a, h, lines, lane / 4 + e / 2 * 8, half * 8 + lane % 4 * 2 + e % 2);
        }
    }
    t = ist_plan_const_bytes(p, all, count * sizeof *all, label);
    free(all);
    return t;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    ist_norm_window *a = node;
    const char *label = a->label;
    ist_tensor x = a->x, y = a->y, content = a->reuse.content;
    (void)v, (void)way;
    int across = ist_div_up(x.w, a->ws), windows = windows_of(x, a->ws), tokens = a->ws * a->ws;
    layout l = layout_of(p, a);
    size_t items = 128 * (size_t)(ist_div_up(l.blocks, 4) * l.windows);
    ist_tensor weights = pack_weights(p, a, x.c, label), table = pack_table(p, a, l, label);
    ist_defines d = ist_defines_of(p, "-DC=%d -DWS=%d -DWINDOWS=%d -DHEADS=%d -DROW=%d", x.c, a->ws, l.windows,
                                   a->heads, ist_div_up(l.work, l.groups));
    ist_padding_reuse_define(&d, &a->reuse);
    const ist_padding_reuse_args read = ist_padding_reuse_read(a->reuse, x.h);
    const ist_padding_reuse_args out =
        ist_padding_reuse_leave_out(&a->reuse, ist_padding_reuse_windows(a->reuse, x.h, a->ws), x.h);
    const ist_norm_window_args by_value = {.h = x.h,
                                           .w = x.w,
                                           .across = across,
                                           .per_map = windows,
                                           .groups_of_map = ist_div_up(windows, l.windows),
                                           .each = l.work / l.groups,
                                           .more = l.work % l.groups,
                                           .x_ld = x.ld,
                                           .x_c0 = x.c0,
                                           .out_ld = y.ld,
                                           .out_c0 = y.c0,
                                           .eps = a->eps,
                                           .scale = IST_WINDOW_SCALE,
                                           .in = read,
                                           .out = out};
    ist_plan_launch(
        p, &(ist_launch){
               .label = label,
               .op = "nvidia/norm_window",
               .isa = "nvidia/ptx+nvidia/norm+nvidia/sums+nvidia/wgmma+portable/left_out",
               .defines = d.text,
               .kernel = "window",
               .dims = 1,
               .global = {(size_t)l.groups * items},
               .local = {items},
               .args = {IST_OUT(y), IST_IN(x), IST_IN(weights), IST_IN(table), IST_IN(ist_plan_current_limit(p)),
                        IST_IN(content), IST_STRUCT(norm_window_args, &by_value)},
               .arg_count = 7,
               .flops = 6.0 * (double)ist_pixels(x) * x.c * x.c + 4.0 * x.n * windows * tokens * (double)tokens * x.c,
               .bytes = 4.0 * (double)ist_pixels(x) * x.c});
}

const ist_family ist_nvidia_norm_window = {.takes = takes, .emit = emit, .rows = IST_REPEATS_LEFT_OUT};
