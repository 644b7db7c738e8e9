/* See attention.h. */
#include "variants/attention.h"

ist_attention_args ist_attention_args_of(const ist_attention *a) {
    ist_tensor q = a->q, k = a->k, v = a->v, y = a->y;
    return (ist_attention_args){.q_ld = q.ld,
                                .k_ld = k.ld,
                                .v_ld = v.ld,
                                .out_ld = y.ld,
                                .q_c0 = q.c0,
                                .k_c0 = k.c0,
                                .v_c0 = v.c0,
                                .out_c0 = y.c0,
                                .queries = q.h * q.w,
                                .keys = k.h * k.w,
                                .mapped_q = ist_has(a->q_map),
                                .mapped_kv = ist_has(a->kv_map),
                                .counted = ist_has(a->k_count),
                                .scale = a->scale};
}

ist_launch ist_attention_launch(ist_plan *p, const ist_attention *a) {
    ist_tensor q = a->q, k = a->k, y = a->y;
    int nq = q.h * q.w, nk = k.h * k.w;
    return (ist_launch){.label = a->label,
                        .dims = 3,
                        .global = {1, (size_t)a->heads, (size_t)y.n},
                        .local = {1, 1, 1},
                        .args = {IST_OUT(y), IST_IN(q), IST_IN(k), IST_IN(a->v), IST_IN(a->q_map), IST_IN(a->kv_map),
                                 IST_IN(ist_plan_current_limit(p))},
                        .arg_count = 7,
                        .flops = 4.0 * y.n * nq * nk * q.c};
}
