/* Prompt tokens of the segmenter. One kernel each serves every device: they are a percent of a frame.
 */
#include "ops/prompt.h"
#include "ops/rows.h"

#include "base/mem.h"

enum { GROUP = 64, LABELS = 5 };

ist_tensor ist_op_point_tokens(ist_plan *p, ist_tensor points, ist_tensor labels, int first_label, bool pad,
                               const ist_point_code *code, ist_tensor own, const char *label) {
    ist_tensor none = {0};
    if (ist_plan_status(p)) return none;
    if (points.elem != IST_ELEM_F32 || points.c != 2 || points.h != 1 ||
        (ist_has(labels) && (labels.elem != IST_ELEM_I32 || labels.n != points.n || labels.w != points.w))) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: points [%d,%d,%d,%d], want float pairs and one int label each", label,
                      points.n, points.h, points.w, points.c);
        return none;
    }
    if (ist_has(own) &&
        (own.n != 1 || own.h != 1 || own.c != IST_POINT_DIM || own.ld != own.c || own.c0 || own.elem != IST_ELEM_T)) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: own tokens [%d,%d,%d,%d], want dense ones of %d channels", label, own.n,
                      own.h, own.w, own.c, IST_POINT_DIM);
        return none;
    }
    int tokens = own.w + points.w + pad, half = IST_POINT_DIM / 2;
    ist_tensor gauss = ist_plan_const(p, code->gauss, 1, 1, 2, half, IST_ELEM_F32, label);
    ist_tensor table = ist_plan_const(p, code->table, 1, 1, LABELS, IST_POINT_DIM, IST_ELEM_F32, label);
    ist_tensor y = ist_plan_tensor(p, points.n, 1, tokens, IST_POINT_DIM, IST_ELEM_T);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/prompt",
                                     .defines = ist_defines_of(p, "%s", "").text,
                                     .kernel = "point_tokens",
                                     .dims = 3,
                                     .global = {(size_t)half, (size_t)tokens, (size_t)points.n},
                                     .local = {GROUP, 1, 1},
                                     .args = {IST_OUT(y), IST_IN(points), IST_IN(labels), IST_IN(gauss), IST_IN(table),
                                              IST_IN(own), IST_IN(ist_plan_current_limit(p)),
                                              IST_INT8(own.w, points.w, points.ld, points.c0, ist_has(labels),
                                                       labels.ld, labels.c0, first_label),
                                              IST_FLOAT(code->side)},
                                     .arg_count = 9});
    return y;
}

ist_tensor ist_op_join_tokens(ist_plan *p, ist_tensor a, ist_tensor b, const char *label) {
    ist_tensor none = {0};
    if (ist_plan_status(p)) return none;
    if (a.c != b.c || (a.n != 1 && a.n != b.n) || a.h != 1 || b.h != 1 || a.elem != IST_ELEM_T || b.elem != a.elem) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: joins [%d,%d,%d,%d] and [%d,%d,%d,%d]", label, a.n, a.h, a.w, a.c, b.n,
                      b.h, b.w, b.c);
        return none;
    }
    ist_tensor y = ist_plan_tensor(p, b.n, 1, a.w + b.w, a.c, IST_ELEM_T);
    ist_plan_launch(p, &(ist_launch){.label = label,
                                     .op = "op/prompt",
                                     .defines = ist_defines_of(p, "%s", "").text,
                                     .kernel = "join_tokens",
                                     .dims = 3,
                                     .global = {ist_round_up((size_t)a.c, GROUP), (size_t)y.w, (size_t)y.n},
                                     .local = {GROUP, 1, 1},
                                     .args = {IST_OUT(y), IST_IN(a), IST_IN(b), IST_IN(ist_plan_current_limit(p)),
                                              IST_INT8(a.c, a.w, b.w, a.n, a.ld, a.c0, b.ld, b.c0)},
                                     .arg_count = 5});
    return y;
}
