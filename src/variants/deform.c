/* D-FINE's deformable attention (MSDeformableAttention of src/zoo/dfine/dfine_decoder.py). */
#include "variants/deform.h"

#include "variants/defines.h"
#include "variants/deform_args.h"

void ist_deform_table(const ist_deform *d, int pad, float table[4 * IST_POINTS_MAX]) {
    const ist_level *levels = d->level;
    int points = ist_deform_points(d);
    for (int k = 0, i = 0, left = levels[0].points; k < pad; k++) {
        if (!left && k < points) left = levels[++i].points;
        if (left) left--;
        table[k] = (float)levels[i].w;
        table[pad + k] = (float)levels[i].h;
        table[2 * pad + k] = (float)levels[i].start;
        float scale = d->point_scale ? d->point_scale[k < points ? k : points - 1] : 1.0f / (float)levels[i].points;
        table[3 * pad + k] = 0.5f * scale;
    }
}

void ist_deform_launch(ist_plan *p, const ist_deform *d, int pad, size_t units, size_t group, const char *options) {
    ist_tensor offsets = d->offsets, weights = d->weights, ref = d->ref, memory = d->memory, out = d->y;
    int queries = offsets.h * offsets.w, points = ist_deform_points(d), dim = memory.c / d->heads;
    float values[4 * IST_POINTS_MAX];
    ist_deform_table(d, pad, values);
    ist_tensor table = ist_plan_const(p, values, 1, 1, 4, pad, IST_ELEM_F32, d->label);
    const ist_deform_args by_value = {.out_ld = out.ld,
                                      .memory_ld = memory.ld,
                                      .offsets_ld = offsets.ld,
                                      .weights_ld = weights.ld,
                                      .ref_ld = ref.ld,
                                      .out_c0 = out.c0,
                                      .memory_c0 = memory.c0,
                                      .offsets_c0 = offsets.c0,
                                      .weights_c0 = weights.c0,
                                      .ref_c0 = ref.c0,
                                      .queries = queries,
                                      .tokens = memory.h * memory.w,
                                      .heads = d->heads,
                                      .dim = dim,
                                      .one_memory = memory.n == 1,
                                      .rows = IST_DEFORM_QUERIES};
    ist_defines defines = ist_defines_of(p, "-DPOINTS=%d%s%s", points, options,
                                         offsets.elem == IST_ELEM_F32 ? " -DWHERE_F32" : "");
    ist_plan_launch(p, &(ist_launch){.label = d->label,
                                     .op = "portable/deform",
                                     .defines = defines.text,
                                     .kernel = "deform",
                                     .dims = 2,
                                     .global = {units, (size_t)offsets.n},
                                     .local = {group, 1},
                                     .args = {IST_OUT(out), IST_IN(memory), IST_IN(offsets), IST_IN(weights),
                                              IST_IN(ref), IST_IN(table), IST_IN(ist_plan_current_limit(p)),
                                              IST_STRUCT(deform_args, &by_value)},
                                     .arg_count = 8,
                                     .flops = 8.0 * offsets.n * queries * points * memory.c});
}
