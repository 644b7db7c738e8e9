#include "ops/bf16.h"

#include "base/mem.h"

#include <stdlib.h>

enum { PART = IST_AMX_BLOCK * IST_AMX_DEPTH };

/* Where the first part of the weight of column o and input i lies, in steps of `steps` a panel. */
static size_t place_of(int o, int i, int steps, int parts) {
    int column = o % IST_AMX_BLOCK, input = i % IST_AMX_DEPTH;
    size_t step = (size_t)(o / IST_AMX_BLOCK) * (size_t)steps + (size_t)(i / IST_AMX_DEPTH);
    return step * (size_t)(parts * PART) +
           (size_t)(column / 16 * PART / 2 + input / 2 * 32 + column % 16 * 2 + input % 2);
}

ist_tensor ist_amx_matrix(ist_plan *p, const ist_filter *f, const char *label) {
    int parts = ist_amx_parts(p), panels = ist_div_up(f->out, IST_AMX_BLOCK), steps = ist_div_up(f->in, IST_AMX_DEPTH);
    size_t size = (size_t)panels * (size_t)steps;
    uint16_t *w = ist_mul_size(size, (size_t)(parts * PART) * sizeof *w, &size) ? calloc(size, 1) : NULL;
    ist_tensor t = {0};
    if (!w) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %d x %d weights", label, f->out, f->in);
        return t;
    }
    for (int o = 0; o < f->out; o++)
        for (int i = 0; i < f->in; i++)
            ist_amx_split(f->w[(size_t)o * (size_t)f->in + (size_t)i], parts, w + place_of(o, i, steps, parts));
    t = ist_plan_const_bytes(p, w, size, label);
    free(w);
    return t;
}
