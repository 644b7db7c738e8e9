/* See attention.h. */
#include "variants/attention.h"

ist_launch ist_attention_launch(ist_plan *p, const ist_attention *a, const int two[2]) {
    ist_tensor q = a->q, k = a->k, v = a->v, y = a->y;
    int nq = q.h * q.w, nk = k.h * k.w;
    return (ist_launch){.label = a->label,
                        .dims = 3,
                        .global = {1, (size_t)a->heads, (size_t)y.n},
                        .local = {1, 1, 1},
                        .args = {IST_OUT(y), IST_IN(q), IST_IN(k), IST_IN(v), IST_IN(a->q_map), IST_IN(a->kv_map),
                                 IST_IN(ist_plan_current_limit(p)), IST_INT4(q.ld, k.ld, v.ld, y.ld),
                                 IST_INT4(q.c0, k.c0, v.c0, y.c0), IST_INT4(nq, nk, ist_attention_dim(a), a->heads),
                                 IST_INT4(ist_has(a->q_map), ist_has(a->kv_map), two[0], two[1]),
                                 IST_FLOAT(a->scale)},
                        .arg_count = 12,
                        .flops = 4.0 * y.n * nq * nk * q.c};
}
