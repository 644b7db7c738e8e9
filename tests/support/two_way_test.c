/* See two_way_test.h. */
#include "support/two_way_test.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

extern const ist_family ist_two_way_absorbed_family;

const ist_absorbed_kernels *absorbed_kernels(const ist_plan *p) {
    int count;
    const ist_variant *v = ist_variants_of(IST_SPAN_TWO_WAY, &count);
    for (int i = 0; i < count; i++)
        if (v[i].family == &ist_two_way_absorbed_family && ist_variant_runs(p, &v[i])) return v[i].config;
    cr_assert_fail("no variant with absorbed projections runs here");
    return NULL;
}

bool two_way_runs(const ist_plan *p, const char *variant) {
    const ist_variant *v = ist_variant_named(IST_SPAN_TWO_WAY, variant);
    return v && ist_variant_runs(p, v);
}

ref_map picked_items(optest *t, ref_map x, const int *map, const float *shift, int n) {
    ref_map y = optest_zeros(t, n, 1, x.w, x.c);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < x.w; r++)
            for (int k = 0; k < x.c; k++)
                ref_at(y, i, 0, r)[k] = ref_at(x, map ? map[i] : i, 0, r)[k] + (shift ? shift[k] : 0);
    return y;
}

ist_token_job passing_layer(optest *t, int hidden) {
    int out = (hidden + 63) / 64 * 64;
    ist_token_job l = {.hidden = hidden, .out = out, .eps = 1e-5f};
    float *w = optest_values(t, (size_t)(out * hidden), 0, 0);
    for (int o = 0; o < hidden; o++) w[o * hidden + o] = 1;
    l.w = w;
    l.b = l.beta = optest_values(t, (size_t)out, 0, 0);
    l.gamma = optest_values(t, (size_t)out, 1, 1);
    return l;
}

ref_map passed_layer(optest *t, ref_map x, const ist_token_job *l) {
    ref_map y = optest_zeros(t, x.n, 1, x.w, l->out);
    for (int i = 0; i < x.n * x.w; i++) {
        const float *v = ref_at(x, i / x.w, 0, i % x.w);
        double mean = 0, variance = 0;
        for (int o = 0; o < x.c; o++) mean += (double)v[o] / l->out;
        for (int o = 0; o < l->out; o++) {
            double apart = (o < x.c ? (double)v[o] : 0) - mean;
            variance += apart * apart / l->out;
        }
        for (int o = 0; o < l->out; o++)
            ref_at(y, i / x.w, 0, i % x.w)[o] = (float)(((o < x.c ? (double)v[o] : 0) - mean) / sqrt(variance + 1e-5));
    }
    return y;
}
