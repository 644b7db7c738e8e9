/* See weights.h. */
#include "variants/nvidia/weights.h"

#include <stdlib.h>
#include <string.h>

ist_tensor ist_pack_taps(ist_plan *p, const ist_filter *f, const char *label) {
    size_t c = (size_t)f->out;
    float *all = calloc(10 * c, sizeof *all);
    ist_tensor t = {0};
    if (!all) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %zu weights", label, 10 * c);
        return t;
    }
    for (size_t i = 0; i < 9 * c; i++) all[i % 9 * c + i / 9] = f->w[i];
    if (f->b) memcpy(all + 9 * c, f->b, c * sizeof *all);
    t = ist_plan_const(p, all, 1, 1, 10, f->out, IST_ELEM_F32, label);
    free(all);
    return t;
}
