/* D-FINE's deformable attention (MSDeformableAttention of src/zoo/dfine/dfine_decoder.py). One source, op/deform, for
 * both machines. */
#include "ops/ops.h"
#include "ops/chain.h"
#include "ops/rows.h"

#include "base/mem.h"

enum { POINTS_MAX = 64, PORTABLE_GROUP = 64, QUERIES_PER_GROUP = 4 };

/* Points of all levels, or 0 when the levels do not describe `memory`. */
static int points_of(const ist_level *levels, int count, int tokens) {
    int points = 0;
    for (int i = 0; i < count; i++) {
        const ist_level *l = &levels[i];
        if (l->h < 1 || l->w < 1 || l->points < 1 || l->start < 0 || l->points > POINTS_MAX ||
            l->start > tokens - l->h * l->w)
            return 0;
        points += l->points;
    }
    return points <= POINTS_MAX ? points : 0;
}

/* [4][pad]: width, height, first token and reach of each point; the last point repeats up to `pad`. */
static void fill_points(const ist_level *levels, int points, int pad, float *table) {
    for (int k = 0, i = 0, left = levels[0].points; k < pad; k++) {
        if (!left && k < points) left = levels[++i].points;
        if (left) left--;
        table[k] = (float)levels[i].w;
        table[pad + k] = (float)levels[i].h;
        table[2 * pad + k] = (float)levels[i].start;
        table[3 * pad + k] = 0.5f * (1.0f / (float)levels[i].points);
    }
}

ist_tensor ist_op_deform_attention(ist_plan *p, ist_tensor offsets, ist_tensor weights, ist_tensor ref,
                                   ist_tensor memory, const ist_level *levels, int level_count, int heads,
                                   ist_tensor into, const char *label) {
    ist_tensor none = {0};
    if (ist_plan_status(p)) return none;
    int queries = offsets.h * offsets.w, tokens = memory.h * memory.w, points = points_of(levels, level_count, tokens);
    int d = heads > 0 ? memory.c / heads : 0;
    if (!points || heads < 1 || d * heads != memory.c || d % 4 || offsets.c != heads * points * 2 ||
        weights.c != heads * points || weights.h * weights.w != queries || ref.h * ref.w != queries || ref.c != 4 ||
        weights.n != offsets.n || ref.n != offsets.n || (memory.n != offsets.n && memory.n != 1) ||
        ref.elem != IST_ELEM_F32 || offsets.elem != weights.elem) {
        ist_plan_fail(p, IST_E_ARGUMENT,
                      "%s: deformable attention of offsets [%d,%d,%d], weights [%d,%d,%d], boxes [%d,%d,%d], memory "
                      "[%d,%d,%d], %d heads, %d points",
                      label, offsets.n, queries, offsets.c, weights.n, weights.h * weights.w, weights.c, ref.n,
                      ref.h * ref.w, ref.c, memory.n, tokens, memory.c, heads, points);
        return none;
    }
    bool cpu = ist_cpu_row(p);
    ist_tensor out = ist_plan_into(p, into, offsets.n, 1, queries, memory.c, IST_ELEM_T, label);
    float points_of_levels[4 * POINTS_MAX];
    int pad = cpu ? (int)ist_round_up((size_t)points, 16) : points;
    fill_points(levels, points, pad, points_of_levels);
    if (ist_chain_take(p,
                       &(ist_chain_step){.op = IST_CHAIN_DEFORM,
                                         .out = {out},
                                         .rows = {offsets, weights, ref},
                                         .whole = {memory},
                                         .ints = {heads, points},
                                         .data = {points_of_levels},
                                         .sizes = {4 * pad},
                                         .flops = 8.0 * offsets.n * queries * points * memory.c},
                       label))
        return out;
    ist_tensor table = ist_plan_const(p, points_of_levels, 1, 1, 4, pad, IST_ELEM_F32, label);
    bool aligned = !cpu && (d | memory.ld | memory.c0 | out.ld | out.c0) % 8 == 0;
    ist_defines defines = ist_defines_of(p, "-DPOINTS=%d%s%s", points,
                                         cpu       ? " -DWIDE"
                                         : aligned ? " -DALIGNED"
                                                   : "",
                                         offsets.elem == IST_ELEM_F32 ? " -DWHERE_F32" : "");
    size_t units = cpu ? (size_t)ist_div_up(queries, QUERIES_PER_GROUP)
                       : ist_round_up((size_t)queries * (size_t)(memory.c / (aligned ? 8 : 4)), PORTABLE_GROUP);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/deform",
                                     .defines = defines.text,
                                     .kernel = "deform",
                                     .dims = 2,
                                     .global = {units, (size_t)offsets.n},
                                     .local = {cpu ? 1 : PORTABLE_GROUP, 1},
                                     .args = {IST_OUT(out), IST_IN(memory), IST_IN(offsets), IST_IN(weights),
                                              IST_IN(ref), IST_IN(table), IST_IN(ist_plan_current_limit(p)),
                                              IST_INT4(out.ld, memory.ld, offsets.ld, weights.ld),
                                              IST_INT4(out.c0, memory.c0, offsets.c0, weights.c0),
                                              IST_INT4(ref.ld, ref.c0, 0, 0), IST_INT4(queries, tokens, heads, d),
                                              IST_INT4(0, QUERIES_PER_GROUP, memory.n == 1, 0)},
                                     .arg_count = 12,
                                     .flops = 8.0 * offsets.n * queries * points * memory.c});
    return out;
}
