/* Window attention on CPUs: lanes are queries, then channels; padding is one key more (cl/cpu/window). */
#include "variants/cpu/window_args.h"
#include "variants/defines.h"
#include "variants/variant.h"
#include "variants/window.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

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

/* What the kernel knows of its tables of biases. */
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

/* All biases on a map of h x w, times log2(e), and where those of cut windows begin, and a head's number. */
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

/* An item makes all heads of a window at once where that leaves enough items: a token's heads lie side by side in
 * memory. */
static int heads_per_item(int units, int windows, int heads) {
    enum { ITEMS_OF_UNIT = 50 };
    int per = 1;
    while (per < heads && windows * ist_div_up(heads, 2 * per) >= ITEMS_OF_UNIT * units) per *= 2;
    return per < heads ? per : heads;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_window_attention *a = node;
    ist_tensor qkv = a->qkv;
    int tables[4] = {0}, units = ist_plan_units(p);
    ist_tensor pad = ist_plan_const(p, a->pad, 1, 1, 1, qkv.c, IST_ELEM_F32, a->label);
    ist_tensor table = expanded_bias(p, a->bias, a->heads, a->ws, qkv.h, qkv.w, tables, a->label);
    ist_defines d = ist_defines_of(p, "-DTOKENS=%d", IST_WINDOW_SIDE_MAX * IST_WINDOW_SIDE_MAX);
    int per = heads_per_item(units, ist_windows(a) * qkv.n, a->heads);
    (void)v, (void)way;
    const ist_cpu_window_args by_value = {.common = ist_window_args_of(a),
                                          .items = qkv.n,
                                          .per_map = ist_windows(a),
                                          .side = a->ws,
                                          .heads = a->heads,
                                          .tile_heads = per,
                                          .backwards = ist_plan_work_turn(p),
                                          .at_right = tables[0],
                                          .at_end = tables[1],
                                          .at_both = tables[2],
                                          .table_size = tables[3]};
    ist_launch l = ist_window_launch(p, a, pad, table);
    l.op = "cpu/window";
    l.isa = "cpu/tile+cpu/attention_parts";
    l.defines = d.text;
    l.dims = 3;
    l.global[0] = (size_t)units, l.global[1] = l.global[2] = 1;
    l.local[0] = l.local[1] = l.local[2] = 1;
    l.args[l.arg_count++] = (ist_arg)IST_STRUCT(cpu_window_args, &by_value);
    l.args[l.arg_count++] = (ist_arg)IST_INOUT(ist_plan_work_queue(p));
    ist_plan_launch(p, &l);
}

const ist_family ist_cpu_window = {.emit = emit};
