#include "variants/cpu/amx.h"
#include "variants/defines.h"

#include "base/half.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Weights of a step, input by input, and then what is left of them. */
typedef float step_weights[IST_AMX_DEPTH][IST_AMX_BLOCK];

size_t ist_amx_pairs(const ist_filter *f, int parts) {
    size_t count = ist_round_up((size_t)f->out, IST_AMX_BLOCK), in = ist_round_up((size_t)f->in, IST_AMX_DEPTH) / 2;
    bool fits = ist_mul_size(count, (size_t)(f->kh * f->kw * parts), &count) && ist_mul_size(count, in, &count);
    return fits && count <= SIZE_MAX / sizeof(uint32_t) ? count : 0;
}

/* From output `col` and input `in` on; zeros beyond the last of them. */
static void load_step(const ist_filter *f, int col, int tap, int in, step_weights w) {
    size_t taps = (size_t)(f->kh * f->kw);
    memset(w, 0, sizeof(step_weights));
    for (int o = 0; o < IST_AMX_BLOCK && col + o < f->out; o++) {
        const float *row = f->w + ((size_t)(col + o) * (size_t)f->in + (size_t)in) * taps + (size_t)tap;
        for (int i = 0; i < IST_AMX_DEPTH && in + i < f->in; i++) w[i][o] = row[(size_t)i * taps];
    }
}

/* The pairs of the next part, which is taken away from w. */
static uint32_t *take_part(step_weights w, uint32_t *dst) {
    enum { HALF_BLOCK = IST_AMX_BLOCK / 2, PAIRS = IST_AMX_DEPTH / 2 };
    for (int half = 0; half < IST_AMX_BLOCK; half += HALF_BLOCK)
        for (int i = 0; i < PAIRS; i++, dst += HALF_BLOCK) {
            float *first = w[i] + half, *second = w[i + PAIRS] + half;
            for (int o = 0; o < HALF_BLOCK; o++) {
                uint32_t low = ist_float_to_bf16(first[o]), high = ist_float_to_bf16(second[o]);
                first[o] -= ist_bits_to_float(low << 16);
                second[o] -= ist_bits_to_float(high << 16);
                dst[o] = low | high << 16;
            }
        }
    return dst;
}

void ist_amx_pack(const ist_filter *f, int parts, uint32_t *dst) {
    step_weights w;
    for (int col = 0; col < f->out; col += IST_AMX_BLOCK)
        for (int t = 0; t < f->kh * f->kw; t++)
            for (int in = 0; in < f->in; in += IST_AMX_DEPTH) {
                load_step(f, col, t, in, w);
                for (int part = 0; part < parts; part++) dst = take_part(w, dst);
            }
}

ist_tensor ist_amx_matrix(ist_plan *p, const ist_filter *f, const char *label) {
    int parts = ist_amx_parts(p);
    size_t count = ist_amx_pairs(f, parts);
    uint32_t *pairs = count ? malloc(count * sizeof *pairs) : NULL;
    ist_tensor t = {0};
    if (!pairs) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %d x %d weights", label, f->out, f->in);
        return t;
    }
    if (ist_plan_has_values(p)) ist_amx_pack(f, parts, pairs);
    t = ist_plan_const_bytes(p, pairs, count * sizeof *pairs, label);
    free(pairs);
    return t;
}
