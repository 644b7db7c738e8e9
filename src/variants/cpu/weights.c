/* See weights.h. */
#include "variants/cpu/weights.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { VEC = 16, TAPS = 9, ROWS_MIN = 8 };

/* Room for a filter's weights; NULL, and the plan failed, without memory. */
static float *room_for(ist_plan *p, const ist_filter *f, const char *label, size_t *bytes) {
    size_t count = (size_t)f->out * (size_t)f->in * (size_t)(f->kh * f->kw);
    float *w = malloc(count * sizeof *w);
    if (!w) ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", label, count);
    *bytes = count * sizeof *w;
    return w;
}

static ist_tensor kept(ist_plan *p, float *taken, size_t bytes, const char *label) {
    ist_tensor t = ist_plan_const_bytes(p, taken, bytes, label);
    free(taken);
    return t;
}

ist_tensor ist_cpu_panels(ist_plan *p, const ist_filter *f, int panel, const char *label) {
    size_t bytes;
    float *w = room_for(p, f, label, &bytes), *to = w;
    if (!w) return (ist_tensor){0};
    for (int o = 0; o < f->out; o += panel)
        for (int i = 0; i < f->in; i++)
            for (int k = 0; k < panel && o + k < f->out; k++)
                *to++ = f->w[(size_t)(o + k) * (size_t)f->in + (size_t)i];
    return kept(p, w, bytes, label);
}

ist_tensor ist_cpu_taps(ist_plan *p, const ist_filter *f, const char *label) {
    size_t bytes;
    float *w = room_for(p, f, label, &bytes), *to = w;
    if (!w) return (ist_tensor){0};
    for (int o = 0; o < f->out; o += VEC)
        for (int t = 0; t < TAPS; t++)
            for (int k = 0; k < VEC; k++) *to++ = f->w[(o + k) * TAPS + t];
    return kept(p, w, bytes, label);
}

ist_tensor ist_cpu_values(ist_plan *p, const float *v, int count, const float *w, int more, const char *label) {
    float *all = calloc((size_t)(count + more), sizeof *all);
    ist_tensor t = {0};
    if (!all) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %d values", label, count + more);
        return t;
    }
    if (v) memcpy(all, v, (size_t)count * sizeof *all);
    if (w) memcpy(all + count, w, (size_t)more * sizeof *all);
    t = ist_plan_const(p, all, 1, 1, 1, count + more, IST_ELEM_F32, label);
    free(all);
    return t;
}

int ist_cpu_bands(const ist_plan *p, int rows, int segments, int groups_per_unit) {
    int bands = ist_div_up(groups_per_unit * ist_plan_units(p), segments), most = rows / ROWS_MIN;
    if (bands > most) bands = most > 1 ? most : 1;
    return bands;
}
