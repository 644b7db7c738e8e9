/* D-FINE's box arithmetic: reference boxes, distributions over bins, quality (Peterande/D-FINE,
 * src/zoo/dfine/dfine_decoder.py and dfine_utils.py). */
#include "ops/ops.h"
#include "ops/chain.h"
#include "ops/lanes.h"

#include "base/mem.h"

enum { SIDES = 4, BINS = 33 };

/* Options for the storage types of two operands. */
static ist_defines types_of(const ist_plan *p, ist_tensor a, ist_tensor b, int lanes) {
    return ist_defines_of(p, "-DLANES=%d %s %s", lanes, a.elem == IST_ELEM_F32 ? "-DA_F32" : "",
                          b.elem == IST_ELEM_F32 ? "-DB_F32" : "");
}

/* A kernel over the pixels of a with b beside it: F32 result of a's extents. */
static ist_tensor pixelwise(ist_plan *p, ist_tensor a, ist_tensor b, ist_chain_op op, const char *kernel,
                            const char *label) {
    ist_tensor none = {0};
    if (ist_plan_status(p)) return none;
    int pixels = a.h * a.w;
    if (b.h * b.w != pixels || (b.n != 1 && b.n != a.n) || (b.c != a.c && b.c != 1)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: [%d,%d,%d] beside [%d,%d,%d]", label, a.n, pixels, a.c, b.n, b.h * b.w,
                      b.c);
        return none;
    }
    size_t local = (size_t)ist_lanes(p);
    ist_tensor y = ist_plan_tensor(p, a.n, a.h, a.w, a.c, IST_ELEM_F32);
    if (ist_chain_take(p, &(ist_chain_step){.op = op, .out = {y}, .rows = {a, b}}, label)) return y;
    ist_defines defines = types_of(p, a, b, (int)local);
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "op/box",
                         .defines = defines.text,
                         .kernel = kernel,
                         .dims = 2,
                         .global = {ist_round_up((size_t)pixels, local), (size_t)a.n},
                         .local = {local, 1},
                         .args = {IST_OUT(y), IST_IN(a), IST_IN(b), IST_IN(ist_plan_current_limit(p)),
                                  IST_INT4(pixels, a.c, b.n == 1 && a.n > 1, 0), IST_INT4(a.ld, a.c0, b.ld, b.c0)},
                         .arg_count = 6,
                         .bytes = 12.0 * a.n * pixels * a.c});
    return y;
}

ist_tensor ist_op_box_init(ist_plan *p, ist_tensor delta, ist_tensor anchor_logit, const char *label) {
    return pixelwise(p, delta, anchor_logit, IST_CHAIN_BOX_INIT, "box_init", label);
}

ist_tensor ist_op_box_refine(ist_plan *p, ist_tensor delta, ist_tensor ref, const char *label) {
    return pixelwise(p, delta, ref, IST_CHAIN_BOX_REFINE, "box_refine", label);
}

ist_tensor ist_op_add_quality(ist_plan *p, ist_tensor logits, ist_tensor quality, const char *label) {
    if (!ist_plan_status(p) && quality.c != 1)
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: quality has %d channels, not 1", label, quality.c);
    return pixelwise(p, logits, quality, IST_CHAIN_SUM, "add_quality", label);
}

static bool dense_f32(ist_tensor t, int n, int pixels, int c) {
    return t.elem == IST_ELEM_F32 && t.n == n && t.h * t.w == pixels && t.c == c && t.ld == c && t.c0 == 0;
}

ist_tensor ist_op_fdr(ist_plan *p, ist_tensor increment, ist_tensor previous, ist_tensor ref_init, const float *project,
                      float reg_scale, ist_tensor *corners_out, const char *label) {
    ist_tensor none = {0};
    if (corners_out) *corners_out = none;
    if (ist_plan_status(p)) return none;
    int n = increment.n, q = increment.h * increment.w;
    if (increment.c != SIDES * BINS || !dense_f32(ref_init, n, q, 4) ||
        (ist_has(previous) && !dense_f32(previous, n, q, SIDES * BINS))) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: increments [%d,%d,%d], boxes [%d,%d,%d] do not fit", label, n, q,
                      increment.c, ref_init.n, ref_init.h * ref_init.w, ref_init.c);
        return none;
    }
    bool cpu = ist_lanes(p) == 1;
    size_t lanes = cpu ? 1 : IST_GROUP_LANES;
    ist_tensor corners = ist_plan_tensor(p, n, 1, q, SIDES * BINS, IST_ELEM_F32);
    ist_tensor ref = ist_plan_tensor(p, n, 1, q, 4, IST_ELEM_F32);
    if (corners_out) *corners_out = corners;
    if (ist_chain_take(p,
                       &(ist_chain_step){.op = IST_CHAIN_FDR,
                                         .out = {ref, corners},
                                         .rows = {increment, previous, ref_init},
                                         .data = {project},
                                         .sizes = {BINS},
                                         .floats = {reg_scale}},
                       label))
        return ref;
    ist_tensor w = ist_plan_const(p, project, 1, 1, 1, BINS, IST_ELEM_F32, label);
    ist_defines defines = types_of(p, increment, none, (int)lanes);
    ist_plan_launch(
        p, &(ist_launch){.label = label,
                         .op = "op/box",
                         .defines = defines.text,
                         .kernel = "fdr",
                         .dims = 2,
                         .global = {cpu ? (size_t)q : ist_round_up((size_t)q * SIDES, lanes), (size_t)n},
                         .local = {lanes, 1},
                         .args = {IST_OUT(ref), IST_OUT(corners), IST_IN(increment), IST_IN(previous), IST_IN(ref_init),
                                  IST_IN(w), IST_IN(ist_plan_current_limit(p)), IST_INT4(q, ist_has(previous), 0, 0),
                                  IST_INT4(increment.ld, increment.c0, 0, 0), IST_FLOAT(reg_scale)},
                         .arg_count = 10,
                         .bytes = 12.0 * n * q * SIDES * BINS});
    return ref;
}

ist_tensor ist_op_lqe(ist_plan *p, ist_tensor corners, const char *label) {
    ist_tensor none = {0};
    if (ist_plan_status(p)) return none;
    int n = corners.n, q = corners.h * corners.w;
    if (!dense_f32(corners, n, q, SIDES * BINS)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: corners [%d,%d,%d] are not dense floats of %d", label, n, q, corners.c,
                      SIDES * BINS);
        return none;
    }
    size_t local = (size_t)ist_lanes(p);
    ist_tensor y = ist_plan_tensor(p, n, 1, q, SIDES * 5, IST_ELEM_F32);
    if (ist_chain_take(p, &(ist_chain_step){.op = IST_CHAIN_LQE, .out = {y}, .rows = {corners}}, label)) return y;
    ist_defines defines = types_of(p, none, none, (int)local);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/box",
                                     .defines = defines.text,
                                     .kernel = "lqe",
                                     .dims = 2,
                                     .global = {ist_round_up((size_t)q * SIDES, local), (size_t)n},
                                     .local = {local, 1},
                                     .args = {IST_OUT(y), IST_IN(corners), IST_IN(ist_plan_current_limit(p)),
                                              IST_INT4(q, y.ld, y.c0, 0)},
                                     .arg_count = 4,
                                     .bytes = 4.0 * n * q * SIDES * BINS});
    return y;
}
