/* Window attention on matrix instructions, half storage: the scores of 16 queries with a whole window fit registers
 * (cl/nvidia/window). */
#include "variants/defines.h"
#include "variants/variant.h"
#include "variants/window.h"

#include "base/mem.h"

#include <stdlib.h>

enum { WARPS = 7 /* at most, and blocks of keys in registers */ };

/* Biases as the fragments of blocks of 16 queries and `tiles` of eight keys, in units of the scale. */
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
        all[i] = k >= tokens ? -1e30f : q >= tokens ? 0.0f : bias[h * tokens + dy * ws + dx] / IST_WINDOW_SCALE;
    }
    ist_tensor t = ist_plan_const_bytes(p, all, count * sizeof *all, label);
    free(all);
    return t;
}

/* Pieces of 16 bytes are aligned. */
static bool takes(const ist_plan *p, const ist_variant *v, const void *node) {
    const ist_window_attention *a = node;
    (void)p, (void)v;
    return a->qkv.elem == IST_ELEM_T && a->ws >= 2 && a->ws <= 14 && (a->qkv.ld | a->qkv.c0) % 8 == 0;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_window_attention *a = node;
    int ws = a->ws, tokens = ws * ws, blocks = ist_div_up(tokens, 16), warps = blocks < WARPS ? blocks : WARPS;
    int chunks = ist_div_up(blocks, WARPS), chunk = ist_div_up(blocks, chunks), items = 32 * warps;
    ist_tensor pad = ist_plan_const(p, a->pad, 1, 1, 1, a->qkv.c, IST_ELEM_T, a->label);
    ist_tensor table = fragment_bias(p, a->bias, a->heads, ws, 2 * chunk * chunks, a->label);
    ist_defines d = ist_defines_of(p, "-DWS=%d -DWARPS=%d -DCHUNK=%d -DCHUNKS=%d", ws, warps, chunk, chunks);
    (void)v, (void)way;
    const ist_window_args by_value = ist_window_args_of(a);
    ist_launch l = ist_window_launch(p, a, pad, table);
    l.op = "nvidia/window";
    l.isa = "nvidia/ptx+nvidia/sums";
    l.defines = d.text;
    l.dims = 3;
    l.global[0] = (size_t)ist_windows(a) * (size_t)ist_div_up(tokens, 16 * warps) * (size_t)items;
    l.global[1] = (size_t)a->heads;
    l.global[2] = (size_t)a->qkv.n;
    l.local[0] = (size_t)items, l.local[1] = l.local[2] = 1;
    l.args[l.arg_count++] = (ist_arg)IST_STRUCT(window_args, &by_value);
    ist_plan_launch(p, &l);
}

const ist_family ist_nvidia_window = {.takes = takes, .emit = emit};
