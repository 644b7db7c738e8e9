/* Mask upscaling against the scalar reference, on the device's own row and the portable ones. */
#include "variants/cpu/upscale.h"
#include "variants/upscale.h"
#include "variants/variant.h"
#include "support/claimed_amx.h"
#include "support/claimed_matrix.h"
#include "support/hidden_caps.h"
#include "support/optest.h"
#include "support/relative_tokens.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { C1 = IST_UPSCALE_MIDDLE, IMAGES = 5, MOST_PROMPTS = 5 };

/* The kernel that a case must launch, NULL: any; `instead` where channels are no multiple of `depth`. */
static const char *row, *instead;
static int depth = 1;

static const char *dense; /* where its input begins at multiples of four elements; NULL: as elsewhere */

static void takes_row(const optest *t, int k, ist_tensor x) {
    const bool aligned = x.ld % 4 == 0 && x.c0 % 4 == 0;
    optest_takes(t, dense && aligned ? dense : k % depth ? instead : row);
}

static void expect(const char *kernel, int multiple, const char *otherwise) {
    row = kernel;
    depth = multiple;
    instead = otherwise;
    dense = NULL;
}

/* What of the logits is seen: both empty, all. */
typedef struct seen_part {
    ist_tensor content, image_of;
} seen_part;
static const seen_part nothing = {{0}, {0}};

/* The node by the variant that the plan chooses. */
static ist_tensor upscaled(ist_plan *p, ist_tensor x, ist_upscale node, ist_tensor vectors,
                           const ist_upscale_sharing *sharing, seen_part seen) {
    node.label = "upscale";
    node.x = x;
    node.vectors = vectors;
    node.sharing = sharing;
    node.content = seen.content;
    node.image_of = seen.image_of;
    ist_emit(p, IST_NODE_UPSCALE, &node);
    return node.y;
}

/* Numbers of a node for k channels. */
static ist_upscale numbers(int k, const float *w1, const float *b1, const float *gamma, const float *beta,
                           const float *w2, const float *b2) {
    return (ist_upscale){.w1 = {w1, (size_t)k * IST_UPSCALE_MIDDLE * 4, NULL},
                         .b1 = {b1, IST_UPSCALE_MIDDLE, NULL},
                         .w2 = {w2, IST_UPSCALE_MIDDLE * IST_UPSCALE_OUT * 4, NULL},
                         .b2 = {b2, IST_UPSCALE_OUT, NULL},
                         .norm = {gamma, beta, IST_UPSCALE_MIDDLE, NULL},
                         .eps = 1e-6f};
}

/* Pictures of all kinds of sizes, and which one each prompt is of. */
typedef struct pictures {
    int size[IMAGES][2], image_of[MOST_PROMPTS];
    seen_part seen;
} pictures;

static pictures draw_pictures(optest *t, int n, int h, int w) {
    pictures all;
    const int most[2] = {w * IST_TOKEN_PIXELS, h * IST_TOKEN_PIXELS};
    for (int i = 0; i < IMAGES; i++)
        for (int k = 0; k < 2; k++)
            all.size[i][k] = i == 0   ? most[k]
                             : i == 1 ? k
                             : i == 2 ? (most[k] / IST_TOKEN_PIXELS + 1) / 2 * IST_TOKEN_PIXELS - 1
                                      : optest_int(t, 1, most[k]);
    for (int k = 0; k < MOST_PROMPTS; k++) all.image_of[k] = optest_int(t, 0, IMAGES - 1);
    all.seen = (seen_part){optest_ints(t, all.size[0], 2 * IMAGES), optest_ints(t, all.image_of, n)};
    all.seen.content = ist_view(all.seen.content, 1, 1, IMAGES);
    all.seen.content.c = all.seen.content.ld = 2;
    return all;
}

/* The last low-resolution logit that portable/mask reads of an axis with `size` pixels. */
static int last_read(int size, int logits) {
    if (!size) return -1;
    const int last = (int)fmaxf(0.25f * ((float)(size - 1) + 0.5f) - 0.5f, 0) + 1;
    return last < logits ? last : logits - 1;
}

/* What is seen of `part` has the bits of `whole`. */
static void check_seen(optest *t, ist_tensor whole, ist_tensor part, const pictures *all, int items, int masks) {
    ref_map want = optest_read(t, whole), got = optest_read(t, part);
    for (int i = 0; i < items; i++) {
        const int *size = all->size[all->image_of[i / masks]];
        const int right = last_read(size[0], want.w), bottom = last_read(size[1], want.h);
        for (int y = 0; y <= bottom; y++)
            cr_assert(!memcmp(ref_at(got, i, y, 0), ref_at(want, i, y, 0), sizeof(float) * (size_t)(right + 1)),
                      "item %d, line %d of %d x %d pixels", i, y, size[0], size[1]);
    }
}

/* bits of i: 1 slices, 2 limit. */
static void upscale_case(int n, int h, int w, int k, int masks, unsigned i) {
    enum { C2 = IST_UPSCALE_OUT };
    optest t;
    optest_begin(&t, "upscale", i + 10u * (unsigned)(h + w + k));
    int count = i & 2 ? n - 1 : n;
    float *w1 = optest_values(&t, (size_t)k * C1 * 4, -0.2f, 0.2f), *b1 = optest_values(&t, C1, -1, 1);
    float *gamma = optest_values(&t, C1, -1, 1), *beta = optest_values(&t, C1, -1, 1);
    float *w2 = optest_values(&t, C1 * C2 * 4, -0.2f, 0.2f), *b2 = optest_values(&t, C2, -1, 1);
    ist_upscale weights = numbers(k, w1, b1, gamma, beta, w2, b2);
    if (t.half) { /* rows may store weights as they store activations */
        for (int e = 0; e < k * C1 * 4; e++) w1[e] = rintf(w1[e] * 1024) / 1024;
        for (int e = 0; e < C1 * C2 * 4; e++) w2[e] = rintf(w2[e] * 1024) / 1024;
    }
    ref_map x = optest_random(&t, n, h, w, k), vectors = optest_random(&t, n, 1, masks, C2);
    ref_map want = optest_zeros(&t, n * masks, 4 * h, 4 * w, 1);
    ist_tensor xt = optest_in(&t, x, IST_ELEM_T, i & 1), vt = optest_in(&t, vectors, IST_ELEM_T, i & 1);
    if (count < n) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    pictures all = draw_pictures(&t, n, h, w);
    ist_tensor y = upscaled(t.plan, xt, weights, vt, NULL, nothing);
    ist_tensor part = upscaled(t.plan, xt, weights, vt, NULL, all.seen);
    optest_run(&t);
    takes_row(&t, k, xt);
    ref_upscale(x, w1, b1, gamma, beta, 1e-6, w2, b2, vectors, want);
    want.n = count * masks;
    ref_map got = optest_read(&t, y);
    got.n = want.n;
    /* Float results, inputs rounded to the storage type before; on matrix instructions the middle is rounded as well.
     */
    bool matrix = t.half && ist_plan_caps(t.plan) & IST_CAP_PTX_MMA;
    optest_close(&t, "upscale", got, want, 0, matrix ? 4e-3 : 2e-5);
    check_seen(&t, y, part, &all, got.n, masks);
    optest_end(&t);
}

static void shapes(void) {
    for (unsigned i = 0; i < 4; i++) {
        upscale_case(2, 1, 2, 16, 1, i);
        if (optest_small()) return;
        upscale_case(2, 3, 5, 256, 1, i);
        upscale_case(3, 9, 8, 64, 3, i);
        upscale_case(1 + (i > 1), 7, 11, 48, 2, i);
    }
}

Test(upscale, own_row) {
    without = 0;
    shapes();
}

Test(upscale, portable) {
    without = IST_CAP_VEC16 | IST_CAP_PTX_MMA;
    expect("portable/upscale", 1, NULL);
    if (!optest_little_local()) dense = "portable/upscale_tile";
    shapes();
    if (!optest_small()) upscale_case(2, 13, 21, 96, 2, 2); /* more than two groups of an item */
}

Test(upscale, portable_small_groups) {
    without = IST_CAP_VEC16 | IST_CAP_PTX_MMA | IST_CAP_GROUP256;
    expect("portable/upscale", 1, NULL);
    shapes();
}

/* The row on matrix instructions; without them nvidia/ptx computes the same in plain OpenCL. */
static void matrix_shapes(int k) {
    without = IST_CAP_VEC16;
    upscale_case(1, 1, 3, k, 1, 0);
    if (optest_small()) return;
    upscale_case(2, 3, 5, 256, 1, 2);
    upscale_case(3, 9, 8, 64, 3, 0);
}

Test(upscale, matrix) {
    expect("nvidia/upscale_mma", 32, "portable/upscale");
    if (!claim_matrix_warps()) return;
    matrix_shapes(32);
    if (optest_small()) return;
    upscale_case(5, 43, 48, 32, 1, 2); /* more prompts than groups along them */
    upscale_case(3, 5, 31, 96, 2, 2);
}

Test(upscale, matrix_groups) {
    expect("nvidia/upscale_wgmma", 64, "nvidia/upscale_mma");
    if (!claim_matrix_groups()) return;
    matrix_shapes(64);
    upscale_case(3, 5, 31, 128, 2, 2);
    upscale_case(3, 5, 31, 96, 2, 2); /* by warps */
}

/* ---- prompts that share the first convolution of their image ---- */

enum { HEADS = IST_TWO_WAY_HEADS, K = 256, OUTS = 4 * C1, PROMPTS = 4 };

/* One update of the image; values as the convolution behind it sees them in `raised`. */
typedef struct update {
    ref_map values, raised; /* panels */
    float *norm, *behind;   /* {bias, gamma, beta} [3][K]; [K][OUTS], without means over K */
} update;

static update random_update(optest *t, int tokens, const float *after) {
    update u = {.values = optest_random(t, PROMPTS, K / 64, tokens * HEADS, 64),
                .raised = optest_zeros(t, PROMPTS, 4, tokens * HEADS, C1),
                .norm = optest_values(t, 3 * K, -1, 1),
                .behind = optest_values(t, K * OUTS, 0, 0)};
    for (int o = 0; o < OUTS; o++) {
        double mean = 0;
        for (int i = 0; i < K; i++) mean += (double)(u.norm[K + i] * after[i * OUTS + o]) / K;
        for (int i = 0; i < K; i++) u.behind[i * OUTS + o] = (float)(u.norm[K + i] * after[i * OUTS + o] - mean);
    }
    for (int n = 0; n < PROMPTS; n++)
        for (int c = 0; c < tokens * HEADS; c++)
            for (int o = 0; o < OUTS; o++) {
                double sum = 0;
                for (int i = 0; i < K; i++)
                    sum += (double)ref_at(u.values, n, i / 64, c)[i % 64] * (double)u.behind[i * OUTS + o];
                ref_at(u.raised, n, o / C1, c)[o % C1] = (float)sum;
            }
    return u;
}

/* [4][3][C1] of ist_upscale_sharing, `plain` the convolution alone. */
static float *constants_of(optest *t, const update u[2], const float *plain, const float *b1) {
    float *all = optest_values(t, 3 * OUTS, 0, 0);
    for (int o = 0; o < OUTS; o++) {
        double sum[3] = {0, 0, (double)b1[o % C1]};
        for (int i = 0; i < K; i++) {
            sum[0] += (double)u[0].norm[i] * (double)u[0].behind[i * OUTS + o];
            sum[1] += (double)(u[0].norm[2 * K + i] + u[1].norm[i]) * (double)u[1].behind[i * OUTS + o];
            sum[2] += (double)u[1].norm[2 * K + i] * (double)plain[i * OUTS + o];
        }
        for (int r = 0; r < 3; r++) all[(o / C1 * 3 + r) * C1 + o % C1] = (float)sum[r];
    }
    return all;
}

/* Updates row v of prompt n with random weights, which relative to the last token go to `noted`, with the norm's
 * factor. */
static void update_row(optest *t, const update *u, int n, int tokens, double *v, float *noted) {
    double weights[IST_TRACE_TOKENS * HEADS], mean = 0, variance = 0;
    for (int h = 0; h < HEADS; h++) {
        double left = 1;
        for (int k = 0; k < tokens; k++) {
            double w = k < tokens - 1 ? left * (double)optest_uniform(t, 0, 1) : left;
            weights[k * HEADS + h] = w;
            left -= w;
            noted[k * HEADS + h] = k < tokens - 1 ? (float)w : NAN;
        }
    }
    for (int k = 0; k < K; k++) {
        v[k] += (double)u->norm[k];
        for (int c = 0; c < tokens * HEADS; c++) v[k] += weights[c] * (double)ref_at(u->values, n, k / 64, c)[k % 64];
        mean += v[k] / K;
    }
    for (int k = 0; k < K; k++) variance += (v[k] - mean) * (v[k] - mean) / K;
    noted[IST_TRACE_FLOATS - 1] = (float)(1 / sqrt(variance + 1e-5));
    for (int k = 0; k < K; k++)
        v[k] = (v[k] - mean) / sqrt(variance + 1e-5) * (double)u->norm[K + k] + (double)u->norm[2 * K + k];
    for (int c = tokens * HEADS; c < IST_TRACE_FLOATS - 1; c++) noted[c] = 0;
    for (int c = (tokens - 1) * HEADS; c < tokens * HEADS; c++)
        if (c < IST_TRACE_FLOATS - 1) noted[c] = 1;
}

/* C1 values, `step` apart, less their mean. */
static void take_mean(float *v, int step) {
    double sum = 0;
    for (int o = 0; o < C1; o++) sum += (double)v[o * step];
    for (int o = 0; o < C1; o++) v[o * step] -= (float)(sum / C1);
}

/* Two updates of the image for each prompt, then masks; bit n of `sharing` says that prompt n shares. */
static void sharing_case(int h, int w, int tokens, int masks, int count, unsigned sharing_bits) {
    enum { C2 = IST_UPSCALE_OUT };
    optest t;
    optest_begin(&t, "shared upscale", (unsigned)(h + w + 10 * tokens + 100 * count));
    int map[PROMPTS] = {1, 1, 0, 1}, ways[PROMPTS];
    float *w1 = optest_values(&t, K * C1 * 4, -0.2f, 0.2f), *b1 = optest_values(&t, C1, -1, 1);
    float *gamma = optest_values(&t, C1, -1, 1), *beta = optest_values(&t, C1, -1, 1);
    float *w2 = optest_values(&t, C1 * C2 * 4, -0.2f, 0.2f), *b2 = optest_values(&t, C2, -1, 1);
    float *plain = optest_values(&t, K * OUTS, 0, 0);
    for (int i = 0; i < K * 4; i++) take_mean(w1 + i / 4 * C1 * 4 + i % 4, 4);
    take_mean(b1, 1);
    for (int i = 0; i < K; i++)
        for (int o = 0; o < OUTS; o++) plain[i * OUTS + o] = w1[(i * C1 + o % C1) * 4 + o / C1];
    update u[2];
    u[1] = random_update(&t, tokens, plain);
    u[0] = random_update(&t, tokens, u[1].behind);
    ist_upscale weights = numbers(K, w1, b1, gamma, beta, w2, b2);
    ref_map x = optest_random(&t, 2, 1, h * w, K), image = optest_zeros(&t, 2, 1, h * w, OUTS);
    ref_map vectors = optest_random(&t, PROMPTS, 1, masks, C2), trace = optest_zeros(&t, PROMPTS, 2, h * w, 64);
    ref_map seen = optest_zeros(&t, PROMPTS, h, w, K), own = optest_zeros(&t, PROMPTS, h, w, K);
    for (int n = 0; n < 2; n++)
        for (int r = 0; r < h * w; r++)
            for (int k = 0; k < K; k++)
                for (int o = 0; o < OUTS; o++)
                    ref_at(image, n, 0, r)[o] += ref_at(x, n, 0, r)[k] * u[0].behind[k * OUTS + o];
    for (int n = 0; n < PROMPTS; n++) {
        ways[n] = sharing_bits >> n & 1;
        for (int r = 0; r < h * w; r++) {
            double v[K];
            for (int k = 0; k < K; k++) v[k] = (double)ref_at(x, map[n], 0, r)[k];
            for (int i = 0; i < 2; i++) update_row(&t, &u[i], n, tokens, v, ref_at(trace, n, i, r));
            for (int k = 0; k < K; k++) {
                ref_at(seen, n, 0, r)[k] = (float)v[k];
                ref_at(own, n, 0, r)[k] = ways[n] ? NAN : (float)v[k];
            }
        }
    }
    ist_tensor xt = optest_in(&t, own, IST_ELEM_T, false), vt = optest_in(&t, vectors, IST_ELEM_T, false);
    ist_upscale_sharing sharing = {.map = optest_ints(&t, map, PROMPTS),
                                   .ways = optest_ints(&t, ways, PROMPTS),
                                   .image = optest_in(&t, image, IST_ELEM_F32, true),
                                   .trace = optest_in(&t, trace, IST_ELEM_F32, false),
                                   .constants = constants_of(&t, u, plain, b1)};
    for (int i = 0; i < 2; i++)
        sharing.values[i] = optest_in(&t, relative_to_last(&t, u[i].raised, false, tokens, HEADS), IST_ELEM_F32, false);
    if (count < PROMPTS) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    pictures all = draw_pictures(&t, PROMPTS, h, w);
    ist_tensor y = upscaled(t.plan, xt, weights, vt, &sharing, nothing);
    ist_tensor part = upscaled(t.plan, xt, weights, vt, &sharing, all.seen);
    optest_run(&t);
    takes_row(&t, K, xt);
    ref_map want = optest_zeros(&t, PROMPTS * masks, 4 * h, 4 * w, 1), got = optest_read(&t, y);
    ref_upscale(seen, w1, b1, gamma, beta, 1e-6, w2, b2, vectors, want);
    got.n = want.n = count * masks;
    optest_close(&t, "shared upscale", got, want, 0, t.half ? 1e-2 : 4e-5);
    check_seen(&t, y, part, &all, got.n, masks);
    optest_end(&t);
}

static void shared_shapes(void) {
    without = 0;
    optest t;
    optest_begin(&t, "sharing?", 1);
    const ist_variant *own = ist_variant_named(IST_NODE_UPSCALE, "cpu");
    bool shares = own && ist_variant_runs(t.plan, own);
    optest_drop(&t);
    if (!shares) return;
    sharing_case(1, 3, 2, 1, 4, 11);
    if (optest_small()) return;
    sharing_case(5, 9, 7, 1, 4, 15);
    sharing_case(4, 32, 8, 3, 4, 11);
    sharing_case(5, 9, 7, 2, 3, 4);
}

Test(upscale, prompts_that_share) {
    shared_shapes();
}

/* The row on AMX: by its instructions where the processor has them, else in plain OpenCL. */
Test(upscale, amx_row) {
    if (getenv("ISTHMUS_HALF") || getenv("ISTHMUS_SMALL")) return;
    claim_amx();
    without = 0;
    expect("cpu/upscale_amx", 32, "cpu/upscale");
    shapes();
    upscale_case(2, 7, 11, 32, 2, 3);
    upscale_case(2, 13, 21, 96, 2, 1); /* more than two groups of a prompt */
    shared_shapes();
}

Test(upscale, refuses_other_vectors) {
    without = 0;
    optest t;
    float zeros[64 * 64 * 4] = {0};
    optest_begin(&t, "upscale refusal", 1);
    ist_upscale weights = numbers(64, zeros, zeros, zeros, zeros, zeros, zeros);
    ist_tensor x = optest_in(&t, optest_random(&t, 1, 2, 2, 64), IST_ELEM_T, false);
    ist_tensor v = optest_in(&t, optest_random(&t, 1, 1, 1, 16), IST_ELEM_T, false);
    cr_assert_not(ist_has(upscaled(t.plan, x, weights, v, NULL, nothing)));
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    optest_drop(&t);
}
