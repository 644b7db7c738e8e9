/* Tensors in the middle of the frame, for `isthmus verify`. */
#include "pipeline/inspect.h"

#include "pipeline/engine.h"

#include <stdlib.h>

bool ist_engine_keeps(const ist_engine *e, const char *name) {
    return e->plan && ist_has(ist_plan_tapped(e->plan, name));
}

ist_status ist_engine_read_kept(ist_engine *e, const char *name, ist_kept *kept, ist_error *err) {
    *kept = (ist_kept){0};
    if (!e->plan || !e->sequence) return ist_fail(err, IST_E_STATE, "%s: no batch has been submitted yet", name);
    IST_TRY(ist_engine_idle(e, err));
    ist_tensor t = ist_plan_tapped(e->plan, name);
    if (!ist_has(t)) return ist_fail(err, IST_E_STATE, "%s: the frame keeps no tensor of this name", name);
    size_t count = (size_t)ist_pixels(t) * (size_t)t.c;
    float *values = malloc(count * sizeof *values);
    if (!values) return ist_fail(err, IST_E_MEMORY, "%s: out of host memory for %zu values", name, count);
    ist_status status = IST_OK;
    if (t.elem == IST_ELEM_I32) {
        int *ints = malloc(count * sizeof *ints);
        status = ints ? ist_plan_read_i32(e->plan, t, ints, err)
                      : ist_fail(err, IST_E_MEMORY, "%s: out of host memory for %zu values", name, count);
        for (size_t i = 0; ints && !status && i < count; i++) values[i] = (float)ints[i];
        free(ints);
    } else {
        status = ist_plan_read_f32(e->plan, t, values, err);
    }
    if (status)
        free(values);
    else
        *kept = (ist_kept){.n = t.n, .h = t.h, .w = t.w, .c = t.c, .values = values};
    return status;
}
