/* Norm, projection and window attention: the row of one launch, op/norm_window_wgmma, or the operators one by one. */
#include "ops/norm_window.h"

#include "ops/conv_rows.h"
#include "ops/fragments.h"
#include "ops/norm_mlp.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <stdlib.h>

enum { HEAD = 32, PARTS = 3, WIDE = 64, C_MAX = 320, LOCAL_ROOM = 202 << 10 };

static const float SCALE = 0.17677669529663688f; /* 1/sqrt(32) */

/* Rows of a line of tokens, blocks of 16 rows of a window, windows and heads of a group. */
typedef struct layout {
    int line, blocks, windows, heads;
} layout;

static int windows_of(ist_tensor x, int ws) {
    return ist_div_up(x.w, ws) * ist_div_up(x.h, ws);
}

/* Eight warps at least. Heads share a norm: two where that leaves a unit more than one group, more where it leaves
 * many. */
static layout layout_of(const ist_plan *p, ist_tensor x, const ist_norm_window *a) {
    enum { WARPS = 8, HEADS_MAX = 5, MANY = 5 };
    layout l = {.line = a->ws <= 8 ? 8 : 16, .blocks = a->ws <= 8 ? (a->ws + 1) / 2 : a->ws, .heads = 1};
    l.windows = l.blocks < WARPS ? WARPS / l.blocks : 1;
    int64_t groups = (int64_t)x.n * windows_of(x, a->ws) * a->heads / l.windows, units = ist_plan_units(p);
    for (int h = 2; h <= HEADS_MAX; h++)
        if (a->heads % h == 0 && 2 * groups >= (h == 2 ? 3 : 2 * MANY) * units * h) l.heads = h;
    return l;
}

/* Floats of a head's biases: of the projection, then of scores by the distance of lines. */
static int table_size(layout l, int ws) {
    return PARTS * HEAD + (l.line == 8 ? 2 * l.blocks * 64 : ws * 256);
}

static bool takes(const ist_plan *p, ist_tensor x, const ist_norm_window *a) {
    layout l = layout_of(p, x, a);
    int head = PARTS * HEAD * ist_div_up(x.c, WIDE) * WIDE * 2 + table_size(l, a->ws) * 4 + 1024;
    int local = head * (l.heads > 1 ? 2 : 1) + l.windows * 2 * l.blocks * 16 * 80 + 1024;
    unsigned need = IST_CAP_PTX_MMA | IST_CAP_PTX_WGMMA;
    return (ist_plan_caps(p) & need) == need && !ist_cpu_row(p) && ist_plan_half(p) && x.elem == IST_ELEM_T &&
           a->ws >= 2 && a->ws <= 16 && x.c % 32 == 0 && x.c <= C_MAX && (x.ld | x.c0) % 8 == 0 && local <= LOCAL_ROOM;
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
                    to[ist_group_part_at(o, k, width)] = w[channel] * a->gamma[channel];
                }
            }
            to += PARTS * HEAD * width;
        }
    t = ist_plan_const(p, packed, 1, 1, 1, (int)count, IST_ELEM_T, label);
    free(packed);
    return t;
}

/* What a token of zeros behind the norm is projected to. */
static float shifted_bias(const ist_norm_window *a, int c, int row) {
    double sum = a->qkv.b ? a->qkv.b[row] : 0;
    for (int i = 0; i < c; i++) sum += (double)a->qkv.w[(size_t)row * (size_t)c + (size_t)i] * a->beta[i];
    return (float)sum;
}

/* Bias of a query and a key `lines` apart, in units of SCALE. */
static float score_bias(const ist_norm_window *a, int head, int lines, int query, int key) {
    if (key >= a->ws) return -1e30f;
    if (query >= a->ws || lines >= a->ws) return 0.0f;
    return a->bias[(head * a->ws + lines) * a->ws + abs(query - key)] / SCALE;
}

static ist_tensor pack_table(ist_plan *p, const ist_norm_window *a, layout l, int c, const char *label) {
    size_t size = (size_t)table_size(l, a->ws), count = (size_t)a->heads * size;
    float *all = malloc(count * sizeof *all), *to = all;
    ist_tensor t = {0};
    if (!all) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %zu biases", label, count);
        return t;
    }
    int pieces = l.line == 8 ? 2 : 4, halves = l.line / 8;
    for (int h = 0; h < a->heads; h++) {
        for (int i = 0; i < PARTS * HEAD; i++) *to++ = shifted_bias(a, c, row_of(h, i / HEAD, i % HEAD));
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

static ist_tensor in_one(ist_plan *p, ist_tensor x, const ist_norm_window *a, const char *label) {
    int across = ist_div_up(x.w, a->ws), windows = windows_of(x, a->ws), tokens = a->ws * a->ws;
    layout l = layout_of(p, x, a);
    size_t items = 128 * (size_t)(ist_div_up(l.blocks, 4) * l.windows);
    ist_tensor y = ist_plan_tensor(p, x.n, x.h, x.w, x.c, IST_ELEM_T);
    ist_tensor weights = pack_weights(p, a, x.c, label), table = pack_table(p, a, l, x.c, label);
    ist_defines d = ist_defines_of(p, "-DC=%d -DWS=%d -DWINDOWS=%d -DHEADS=%d", x.c, a->ws, l.windows, l.heads);
    ist_plan_launch(
        p, &(ist_launch){
               .label = label,
               .op = "op/norm_window_wgmma",
               .isa = "isa/ptx+isa/norm+isa/sums+isa/wgmma",
               .defines = d.text,
               .kernel = "window",
               .dims = 3,
               .global = {(size_t)ist_div_up(windows, l.windows) * items, (size_t)(a->heads / l.heads), (size_t)x.n},
               .local = {items, 1, 1},
               .args = {IST_OUT(y), IST_IN(x), IST_IN(weights), IST_IN(table), IST_IN(ist_plan_current_limit(p)),
                        IST_INT4(x.h, x.w, across, windows), IST_INT4(x.ld, x.c0, y.ld, y.c0), IST_FLOAT(a->eps),
                        IST_FLOAT(SCALE)},
               .arg_count = 9,
               .flops = 6.0 * (double)ist_pixels(x) * x.c * x.c + 4.0 * x.n * windows * tokens * (double)tokens * x.c,
               .bytes = 4.0 * (double)ist_pixels(x) * x.c});
    return y;
}

static ist_tensor in_steps(ist_plan *p, ist_tensor x, const ist_norm_window *a, const char *label) {
    char name[160];
    float *pad = malloc((size_t)a->qkv.out * sizeof *pad);
    if (!pad) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %d biases", label, a->qkv.out);
        return (ist_tensor){0};
    }
    for (int o = 0; o < a->qkv.out; o++) pad[o] = shifted_bias(a, x.c, o);
    snprintf(name, sizeof name, "%s.qkv", label);
    ist_norm_mlp layer = {.gamma = a->gamma, .beta = a->beta, .eps = a->eps, .fc1 = a->qkv};
    ist_tensor u = ist_op_norm_mlp(p, x, &layer, name), y = {0}; /* [n,h,w,3c] */
    if (!ist_plan_status(p)) y = ist_op_window_attention(p, u, pad, a->bias, a->heads, a->ws, label);
    free(pad);
    return y;
}

ist_tensor ist_op_norm_window(ist_plan *p, ist_tensor x, const ist_norm_window *a, const char *label) {
    ist_tensor none = {0};
    if (ist_plan_status(p)) return none;
    const ist_filter *f = &a->qkv;
    if (a->heads < 1 || x.c != a->heads * HEAD || f->in != x.c || f->out != PARTS * x.c || f->kh != 1 || f->kw != 1) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: projection %d -> %d for %d heads on [%d,%d,%d,%d]", label, f->in, f->out,
                      a->heads, x.n, x.h, x.w, x.c);
        return none;
    }
    return takes(p, x, a) ? in_one(p, x, a, label) : in_steps(p, x, a, label);
}
