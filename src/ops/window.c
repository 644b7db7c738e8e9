/* TinyViT's window attention (Attention of MobileSAM's modeling/tiny_vit_sam.py).
 *
 * The map is cut into windows without being copied; tokens beyond the map are never stored anywhere. Rows:
 * op/window_cpu (lanes are queries, then channels), op/window_mma (matrix instructions, half storage) and op/attention
 * (a query per work-item). */
#include "ops/ops.h"
#include "ops/rows.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

enum {
    HEAD = 32,
    GROUP = 64,
    WARPS = 7 /* at most, of op/window_mma; and blocks of keys in registers */,
    SIDE_MAX = 16
};

static const float SCALE = 0.17677669529663688f; /* 1/sqrt(32) */
static const double LOG2E = 1.44269504088896340736;

/* The logarithm to base 2 of the sum of e^bias over the tokens of a window that lie beyond `rows` and `cols`, for the
 * query at line y and column x. */
static float padding_bias(const float *bias, int ws, int rows, int cols, int y, int x) {
    float top = -INFINITY, sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int v = 0; v < ws; v++)
            for (int u = v < rows ? cols : 0; u < ws; u++) {
                float b = bias[abs(v - y) * ws + abs(u - x)];
                if (!pass)
                    top = fmaxf(top, b);
                else
                    sum += expf(b - top);
            }
    return (float)((top + logf(sum)) * LOG2E);
}

/* What op/window_cpu knows of its tables of biases. */
enum { KEY_TILE = 7, BLOCK = 48 };
static const float LOWEST = -3.0e38f;

/* Biases of windows of which `rows` lines and `cols` columns lie inside the map: [block of queries][key][BLOCK], with
 * the padding as one token more. Returns their number; full may be NULL. */
static size_t window_bias(float *full, const float *bias, int ws, int rows, int cols) {
    int count = rows * cols, tokens = count + (count < ws * ws);
    int keys = ist_div_up(tokens, KEY_TILE) * KEY_TILE, lanes = ist_div_up(tokens, BLOCK) * BLOCK;
    for (int i = 0; full && i < keys * lanes; i++) {
        int q = i / (keys * BLOCK) * BLOCK + i % BLOCK, k = i / BLOCK % keys;
        full[i] = q < count && k < count
                      ? (float)(bias[abs(k / cols - q / cols) * ws + abs(k % cols - q % cols)] * LOG2E)
                      : LOWEST;
    }
    for (int i = 0; full && count < tokens && i < count; i++)
        full[(i / BLOCK * keys + count) * BLOCK + i % BLOCK] =
            full[(count / BLOCK * keys + i) * BLOCK + count % BLOCK] =
                padding_bias(bias, ws, rows, cols, i / cols, i % cols);
    return (size_t)keys * (size_t)lanes;
}

/* All biases of op/window_cpu on a map of h x w, times log2(e), and where they are, as its argument `tables`. */
static ist_tensor expanded_bias(ist_plan *p, const float *bias, int heads, int ws, int h, int w, int tables[4],
                                const char *label) {
    const int rows[] = {ws, ws, h % ws, h % ws}, cols[] = {ws, w % ws, ws, w % ws};
    size_t all = 0;
    for (int i = 0; i < 4; i++) {
        if (i) tables[i - 1] = (int)all;
        all += window_bias(NULL, bias, ws, rows[i], cols[i]);
    }
    tables[3] = (int)all;
    float *full = malloc((size_t)heads * all * sizeof *full);
    if (!full) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for a table of %d x %zu biases", label, heads, all);
        return (ist_tensor){0};
    }
    for (int i = 0; i < 4 * heads; i++)
        window_bias(full + (size_t)(i / 4) * all + (i % 4 ? tables[i % 4 - 1] : 0), bias + i / 4 * ws * ws, ws,
                    rows[i % 4], cols[i % 4]);
    ist_tensor t = ist_plan_const_bytes(p, full, (size_t)heads * all * sizeof *full, label);
    free(full);
    return t;
}

/* Biases of op/window_mma as the fragments of blocks of 16 queries and `tiles` of eight keys, in units of SCALE. */
static ist_tensor fragment_bias(ist_plan *p, const float *bias, int heads, int ws, int tiles, const char *label) {
    int tokens = ws * ws, blocks = ist_div_up(tokens, 16);
    size_t count = (size_t)heads * (size_t)blocks * (size_t)tiles * 128;
    float *all = malloc(count * sizeof *all);
    if (!all) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %zu biases", label, count);
        return (ist_tensor){0};
    }
    for (size_t i = 0; i < count; i++) {
        int e = (int)(i % 4), lane = (int)(i / 4 % 32), tile = (int)(i / 128 % (size_t)tiles);
        int block = (int)(i / 128 / (size_t)tiles % (size_t)blocks), h = (int)(i / 128 / (size_t)(tiles * blocks));
        int q = block * 16 + lane / 4 + e / 2 * 8, k = tile * 8 + lane % 4 * 2 + e % 2;
        int dy = abs(k / ws - q / ws), dx = abs(k % ws - q % ws);
        all[i] = k >= tokens ? -1e30f : q >= tokens ? 0.0f : bias[h * tokens + dy * ws + dx] / SCALE;
    }
    ist_tensor t = ist_plan_const_bytes(p, all, count * sizeof *all, label);
    free(all);
    return t;
}

/* The CPU row makes all heads of a window at once where that leaves enough items: a token's heads lie side by side in
 * memory. */
static int heads_per_item(int units, int windows, int heads) {
    enum { ITEMS_OF_UNIT = 50 };
    int per = 1;
    while (per < heads && windows * ist_div_up(heads, 2 * per) >= ITEMS_OF_UNIT * units) per *= 2;
    return per < heads ? per : heads;
}

/* Matrix instructions: the scores of 16 queries with a whole window fit registers, pieces of 16 bytes are aligned. */
static bool matrix_row(const ist_plan *p, ist_tensor qkv, int ws) {
    return (ist_plan_caps(p) & IST_CAP_PTX_MMA) && ist_plan_half(p) && qkv.elem == IST_ELEM_T && ws >= 2 && ws <= 14 &&
           (qkv.ld | qkv.c0) % 8 == 0;
}

ist_tensor ist_op_window_attention(ist_plan *p, ist_tensor qkv, const float *pad_qkv, const float *bias, int heads,
                                   int ws, const char *label) {
    ist_tensor none = {0};
    if (ist_plan_status(p)) return none;
    if (heads < 1 || qkv.c != heads * 3 * HEAD || ws < 1 || ws > SIDE_MAX) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: window attention of %d channels with %d heads, windows of %d", label,
                      qkv.c, heads, ws);
        return none;
    }
    int tokens = ws * ws, across = ist_div_up(qkv.w, ws), windows = across * ist_div_up(qkv.h, ws);
    ist_tensor out = ist_plan_tensor(p, qkv.n, qkv.h, qkv.w, heads * HEAD, IST_ELEM_T);
    bool cpu = ist_cpu_row(p), mma = !cpu && matrix_row(p, qkv, ws);
    ist_tensor pad = ist_plan_const(p, pad_qkv, 1, 1, 1, qkv.c, mma ? IST_ELEM_T : IST_ELEM_F32, label);
    double flops = 4.0 * qkv.n * windows * tokens * (double)tokens * heads * HEAD;
    int blocks = ist_div_up(tokens, 16), warps = blocks < WARPS ? blocks : WARPS;
    int chunks = ist_div_up(blocks, WARPS), chunk = ist_div_up(blocks, chunks);
    int tables[4] = {0};
    ist_arg queue = {0};
    if (cpu) queue = (ist_arg)IST_INOUT(ist_plan_work_queue(p));
    ist_tensor table = cpu   ? expanded_bias(p, bias, heads, ws, qkv.h, qkv.w, tables, label)
                       : mma ? fragment_bias(p, bias, heads, ws, 2 * chunk * chunks, label)
                             : ist_plan_const(p, bias, 1, 1, heads, tokens, IST_ELEM_F32, label);
    ist_defines d = cpu   ? ist_defines_of(p, "-DTOKENS=%d", SIDE_MAX * SIDE_MAX)
                    : mma ? ist_defines_of(p, "-DWS=%d -DWARPS=%d -DCHUNK=%d -DCHUNKS=%d", ws, warps, chunk, chunks)
                          : ist_defines_of(p, "-DWS=%d", ws);
    int items = cpu ? 1 : mma ? 32 * warps : GROUP, parts = ist_div_up(tokens, mma ? 16 * warps : GROUP);
    size_t groups = (size_t)windows * (size_t)parts;
    int per = cpu ? heads_per_item(ist_plan_units(p), windows * qkv.n, heads) : 1;
    ist_plan_launch(
        p,
        &(ist_launch){.label = label,
                      .op = cpu   ? "op/window_cpu"
                            : mma ? "op/window_mma"
                                  : "op/attention",
                      .isa = cpu   ? "isa/tile+isa/attend"
                             : mma ? "isa/ptx+isa/sums"
                                   : NULL,
                      .defines = d.text,
                      .kernel = "window",
                      .dims = 3,
                      .global = {cpu ? (size_t)ist_plan_units(p) : groups * (size_t)items, cpu ? 1 : (size_t)heads,
                                 cpu ? 1 : (size_t)qkv.n},
                      .local = {(size_t)items, 1, 1},
                      .args = {IST_OUT(out), IST_IN(qkv), IST_IN(pad), IST_IN(table), IST_IN(ist_plan_current_limit(p)),
                               IST_INT4(qkv.h, qkv.w, across, ws), IST_INT4(qkv.ld, qkv.c0, out.ld, out.c0),
                               IST_INT4(heads, per, windows, cpu && ist_plan_work_turn(p)), IST_FLOAT(SCALE),
                               IST_INT4(tables[0], tables[1], tables[2], tables[3]), IST_INT(qkv.n), queue},
                      .arg_count = cpu ? 12 : 9,
                      .flops = flops});
    return out;
}
