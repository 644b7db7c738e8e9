/* See window.h. */
#include "variants/window.h"

ist_launch ist_window_launch(ist_plan *p, const ist_window_attention *a, ist_tensor pad, ist_tensor table, int per,
                             bool turn) {
    ist_tensor qkv = a->qkv, y = a->y;
    int tokens = a->ws * a->ws, windows = ist_windows(a);
    return (ist_launch){.label = a->label,
                        .kernel = "window",
                        .args = {IST_OUT(y), IST_IN(qkv), IST_IN(pad), IST_IN(table), IST_IN(ist_plan_current_limit(p)),
                                 IST_INT4(qkv.h, qkv.w, ist_windows_across(a), a->ws),
                                 IST_INT4(qkv.ld, qkv.c0, y.ld, y.c0), IST_INT4(a->heads, per, windows, turn),
                                 IST_FLOAT(IST_WINDOW_SCALE)},
                        .arg_count = 9,
                        .flops = 4.0 * qkv.n * windows * tokens * (double)tokens * a->heads * IST_WINDOW_HEAD};
}

float ist_window_shift(const ist_norm_window *a, int row) {
    double sum = a->qkv.b ? a->qkv.b[row] : 0;
    int c = a->x.c;
    for (int i = 0; i < c; i++) sum += (double)a->qkv.w[(size_t)row * (size_t)c + (size_t)i] * a->norm.beta[i];
    return (float)sum;
}
