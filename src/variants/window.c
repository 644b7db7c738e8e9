/* See window.h. */
#include "variants/window.h"

ist_window_args ist_window_args_of(const ist_window_attention *a) {
    ist_tensor qkv = a->qkv, y = a->y;
    return (ist_window_args){.h = qkv.h,
                             .w = qkv.w,
                             .across = ist_windows_across(a),
                             .qkv_ld = qkv.ld,
                             .qkv_c0 = qkv.c0,
                             .out_ld = y.ld,
                             .out_c0 = y.c0,
                             .scale = IST_WINDOW_SCALE};
}

ist_launch ist_window_launch(ist_plan *p, const ist_window_attention *a, ist_tensor pad, ist_tensor table) {
    ist_tensor qkv = a->qkv;
    int tokens = a->ws * a->ws, windows = ist_windows(a);
    return (ist_launch){
        .label = a->label,
        .kernel = "window",
        .args = {IST_OUT(a->y), IST_IN(qkv), IST_IN(pad), IST_IN(table), IST_IN(ist_plan_current_limit(p))},
        .arg_count = 5,
        .flops = 4.0 * qkv.n * windows * tokens * (double)tokens * a->heads * IST_WINDOW_HEAD};
}

float ist_window_shift(const ist_norm_window *a, int row) {
    double sum = a->qkv.b ? a->qkv.b[row] : 0;
    int c = a->x.c;
    for (int i = 0; i < c; i++) sum += (double)a->qkv.w[(size_t)row * (size_t)c + (size_t)i] * a->norm.beta[i];
    return (float)sum;
}
