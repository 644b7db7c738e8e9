/* Layers on few tokens against scalar arithmetic: on matrix instructions, or, without them, on nvidia/ptx's plain form. */
#include "variants/nvidia/tokens.h"
#include "variants/variant.h"
#include "support/claimed_matrix.h"
#include "support/hidden_caps.h"
#include "support/optest.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

static void claim_all(void) {
    without = IST_CAP_VEC16;
    claim("+PTX_MMA");
}
TestSuite(token, .init = claim_all);

typedef struct shape {
    int n, tokens, in, hidden, out; /* in 0: no first layer */
} shape;

/* Weights that halves hold exactly. */
static float *weights(optest *t, int count) {
    float *w = optest_values(t, (size_t)count, -0.2f, 0.2f);
    for (int i = 0; i < count; i++) w[i] = rintf(w[i] * 1024) / 1024;
    return w;
}

/* y = LN(add + w hidden + b) of every token. */
static void reference(ref_map hidden, const ist_token_job *l, ref_map add, ref_map y) {
    for (int n = 0; n < y.n; n++)
        for (int i = 0; i < y.w; i++) {
            double v[256], mean = 0, variance = 0;
            for (int o = 0; o < y.c; o++) {
                v[o] = (double)l->b[o] + (add.v ? (double)ref_at(add, n, 0, i)[o] : 0);
                for (int k = 0; k < hidden.c; k++) v[o] += (double)ref_at(hidden, n, 0, i)[k] * l->w[o * hidden.c + k];
                mean += v[o] / y.c;
            }
            for (int o = 0; o < y.c; o++) variance += (v[o] - mean) * (v[o] - mean) / y.c;
            for (int o = 0; o < y.c; o++)
                ref_at(y, n, 0, i)[o] = (float)((v[o] - mean) / sqrt(variance + l->eps) * l->gamma[o] + l->beta[o]);
        }
}

/* w x + b of every token. */
static ref_map linear(optest *t, ref_map x, int outs, const float *w, const float *b) {
    ref_map y = optest_zeros(t, x.n, 1, x.w, outs);
    for (int n = 0; n < x.n; n++)
        for (int i = 0; i < x.w; i++)
            for (int o = 0; o < outs; o++) {
                double v = b[o];
                for (int k = 0; k < x.c; k++) v += (double)ref_at(x, n, 0, i)[k] * w[o * x.c + k];
                ref_at(y, n, 0, i)[o] = (float)v;
            }
    return y;
}

static ref_map first_layer(optest *t, ref_map x, const ist_token_job *l) {
    ref_map y = linear(t, x, l->hidden, l->w1, l->b1);
    for (size_t i = 0; i < ref_size(y); i++) y.v[i] = fmaxf(y.v[i], 0);
    return y;
}

/* q: queries, keys and values of `c` channels each. */
static ref_map attention(optest *t, ref_map q, int c_all) {
    ref_map y = optest_zeros(t, q.n, 1, q.w, c_all);
    for (int n = 0; n < q.n; n++)
        for (int i = 0; i < q.w; i++)
            for (int h = 0; h < c_all; h += 32) {
                double s[8], most = -INFINITY, sum = 0;
                for (int j = 0; j < q.w; j++) {
                    s[j] = 0;
                    for (int c = h; c < h + 32; c++)
                        s[j] += (double)ref_at(q, n, 0, i)[c] * ref_at(q, n, 0, j)[c_all + c];
                    s[j] /= sqrt(32);
                    most = fmax(most, s[j]);
                }
                for (int j = 0; j < q.w; j++) sum += s[j] = exp(s[j] - most);
                for (int j = 0; j < q.w; j++)
                    for (int c = h; c < h + 32; c++)
                        ref_at(y, n, 0, i)[c] += (float)(s[j] / sum * (double)ref_at(q, n, 0, j)[2 * c_all + c]);
            }
    return y;
}

/* bits of i: 1 addend, 2 limit, 4 attention. */
static void layer_case(const shape *s, unsigned i) {
    optest t;
    optest_begin(&t, "token layer", i + 10u * (unsigned)(s->tokens + s->hidden));
    bool attends = i & 4;
    int count = i & 2 ? s->n - 1 : s->n, in = attends ? 0 : s->in;
    ist_token_job l = {.in = in, .hidden = s->hidden, .out = s->out, .eps = 1e-5f};
    l.w = weights(&t, s->out * s->hidden), l.b = optest_values(&t, (size_t)s->out, -1, 1);
    if (in) l.w1 = weights(&t, s->hidden * in), l.b1 = optest_values(&t, (size_t)s->hidden, -1, 1);
    l.gamma = optest_values(&t, (size_t)s->out, -1, 1), l.beta = optest_values(&t, (size_t)s->out, -1, 1);
    ref_map x = optest_random(&t, s->n, 1, s->tokens, s->in ? s->in : s->hidden), add = {0}, all = {0};
    ist_tensor xt = optest_in(&t, x, IST_ELEM_T, false), projections;
    ist_token_projection q = {.in = s->in, .outs = (3 * s->hidden + 127) / 64 * 64};
    if (i & 1) {
        add = optest_random(&t, s->n, 1, s->tokens, s->out);
        l.add = optest_in(&t, add, IST_ELEM_T, false);
    }
    if (attends) {
        q.w = weights(&t, q.outs * q.in), q.b = optest_values(&t, (size_t)q.outs, -1, 1);
        all = linear(&t, x, q.outs, q.w, q.b);
        if (i & 1) {
            ref_map beside = optest_random(&t, s->n, 1, s->tokens, q.outs);
            q.add = optest_in(&t, beside, IST_ELEM_T, false);
            for (size_t k = 0; k < ref_size(all); k++) all.v[k] += beside.v[k];
        }
    }
    if (count < s->n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_tensor y = attends ? ist_token_attention(t.plan, xt, &q, &l, &projections, "layer")
                           : ist_token_layer(t.plan, xt, &l, "layer");
    optest_run(&t);
    cr_assert_eq(ist_plan_replay(t.plan, &t.err), IST_OK, "%s", t.err.text); /* counters are back */
    ref_map want = optest_zeros(&t, s->n, 1, s->tokens, s->out), hidden = x;
    if (in) hidden = first_layer(&t, x, &l);
    if (attends) hidden = attention(&t, all, s->hidden);
    reference(hidden, &l, add, want);
    ref_map got = optest_read(&t, y);
    got.n = want.n = count;
    optest_close(&t, "layer", got, want, 2e-3, 4e-3);
    optest_end(&t);
}

Test(token, layers) {
    static const shape all[] = {{3, 7, 64, 256, 64}, {1, 8, 32, 128, 128}, {2, 1, 64, 128, 64}, {5, 3, 96, 256, 64}};
    if (optest_small()) { /* a single slice: interpreters do not see that a counter orders groups */
        layer_case(&all[2], 0);
        return;
    }
    for (unsigned i = 0; i < 4; i++) layer_case(&all[i], i);
}

Test(token, attention) {
    static const shape all[] = {{3, 7, 64, 64, 64}, {1, 8, 96, 32, 128}, {2, 2, 32, 256, 64}, {4, 5, 256, 256, 256}};
    if (optest_small()) return; /* as above */
    for (unsigned i = 0; i < 4; i++) layer_case(&all[i], i + 4);
    layer_case(&(shape){9, 2, 32, 64, 64}, 5); /* more groups than a small device has units */
}

/* w x + b, relu where asked, of one token. */
static void dense(const double *x, int in, const float *w, const float *b, int out, bool relu, double *y) {
    for (int o = 0; o < out; o++) {
        y[o] = b[o];
        for (int k = 0; k < in; k++) y[o] += x[k] * w[o * in + k];
        if (relu) y[o] = fmax(y[o], 0);
    }
}

static void mlp_case(int n, int tokens, int c, int masks, int results, bool limited) {
        optest t;
    optest_begin(&t, "MLPs", (unsigned)(n + c + masks));
    int count = limited ? n - 1 : n, first = tokens - masks;
    ref_map x = optest_random(&t, n, 1, tokens, c);
    ist_tensor xt = optest_in(&t, x, IST_ELEM_T, false);
    ist_token_mlps node = {.label = "MLPs", .x = xt, .count = masks + 1, .first = first - 1};
    for (int i = 0; i <= masks; i++) {
        node.names[i] = "MLP";
        for (int l = 0; l < 3; l++) {
            int out = l < 2 ? c : i ? 32 : results;
            node.mlp[i][l] = (ist_filter){out, c, 1, 1, weights(&t, out * c), optest_values(&t, (size_t)out, -1, 1), NULL};
        }
    }
    if (limited) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_emit(t.plan, IST_NODE_TOKEN_MLPS, &node);
    optest_run(&t);
    optest_takes(&t, "nvidia/token_mlps");
    ref_map want = optest_zeros(&t, count, 1, masks, 32), want_scores = optest_zeros(&t, count, 1, 1, results);
    for (int i = 0; i < count; i++)
        for (int m = 0; m <= masks; m++) {
            double a[256], b[256];
            for (int k = 0; k < c; k++) a[k] = ref_at(x, i, 0, m ? first + m - 1 : 0)[k];
            dense(a, c, node.mlp[m][0].w, node.mlp[m][0].b, c, true, b);
            dense(b, c, node.mlp[m][1].w, node.mlp[m][1].b, c, true, a);
            dense(a, c, node.mlp[m][2].w, node.mlp[m][2].b, m ? 32 : results, false, b);
            float *to = m ? ref_at(want, i, 0, m - 1) : ref_at(want_scores, i, 0, 0);
            for (int k = 0; k < (m ? 32 : results); k++) to[k] = (float)b[k];
        }
    ref_map got = optest_read(&t, node.vectors), got_scores = optest_read(&t, node.iou);
    got.n = got_scores.n = count;
    optest_close(&t, "vectors", got, want, 2e-3, 4e-3);
    optest_close(&t, "scores", got_scores, want_scores, 2e-3, 4e-3);
    optest_end(&t);
}

Test(token, mlps) {
    mlp_case(2, 3, 64, 1, 4, false);
    if (optest_small()) return;
    mlp_case(17, 7, 64, 3, 4, true);
    mlp_case(3, 8, 128, 2, 32, false);
}

Test(token, refuses_too_many_tokens) {
    optest t;
    float zeros[64 * 128] = {0};
    optest_begin(&t, "token refusal", 1);
    ist_token_job l = {.in = 64,
                         .hidden = 128,
                         .out = 64,
                         .w1 = zeros,
                         .b1 = zeros,
                         .w = zeros,
                         .b = zeros,
                         .gamma = zeros,
                         .beta = zeros,
                         .eps = 1e-5f};
    ist_tensor x = optest_in(&t, optest_random(&t, 1, 1, 9, 64), IST_ELEM_T, false);
    cr_assert_not(ist_has(ist_token_layer(t.plan, x, &l, "layer")));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    optest_drop(&t);
}
