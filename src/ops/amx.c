#include "ops/amx.h"
#include "ops/rows.h"

#include "base/half.h"
#include "base/mem.h"

#include <stdlib.h>

/* Part `part` of a weight: each is the rounded rest of those before. Zero beyond the last output and input. */
static uint32_t part_of(const ist_filter *f, int o, int i, int tap, int part) {
    if (o >= f->out || i >= f->in) return 0;
    float rest = f->w[((size_t)o * (size_t)f->in + (size_t)i) * (size_t)(f->kh * f->kw) + (size_t)tap];
    uint16_t bits = ist_float_to_bf16(rest);
    for (; part > 0; part--) bits = ist_float_to_bf16(rest -= ist_bf16_to_float(bits));
    return bits;
}

size_t ist_amx_pairs(const ist_filter *f, int parts) {
    size_t count = ist_round_up((size_t)f->out, IST_AMX_BLOCK), in = ist_round_up((size_t)f->in, IST_AMX_DEPTH) / 2;
    bool fits = ist_mul_size(count, (size_t)(f->kh * f->kw * parts), &count) && ist_mul_size(count, in, &count);
    return fits && count <= SIZE_MAX / sizeof(uint32_t) ? count : 0;
}

/* The pairs of one step and part: from column `col` and input `in` on. */
static uint32_t *pack_panel(const ist_filter *f, int col, int tap, int in, int part, uint32_t *dst) {
    enum { HALF_BLOCK = IST_AMX_BLOCK / 2, PAIRS = IST_AMX_DEPTH / 2 };
    for (int half = col; half < col + IST_AMX_BLOCK; half += HALF_BLOCK)
        for (int i = in; i < in + PAIRS; i++)
            for (int o = half; o < half + HALF_BLOCK; o++)
                *dst++ = part_of(f, o, i, tap, part) | part_of(f, o, i + PAIRS, tap, part) << 16;
    return dst;
}

void ist_amx_pack(const ist_filter *f, int parts, uint32_t *dst) {
    for (int col = 0; col < f->out; col += IST_AMX_BLOCK)
        for (int t = 0; t < f->kh * f->kw; t++)
            for (int in = 0; in < f->in; in += IST_AMX_DEPTH)
                for (int part = 0; part < parts; part++) dst = pack_panel(f, col, t, in, part, dst);
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
