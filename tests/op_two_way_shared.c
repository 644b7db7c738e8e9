/* Prompts that share all projections of their image, behind no, one and two updates, against the scalar reference,
 * which sees the image by itself for each of them. */
#include "variants/cpu/shared_prompts.h"
#include "support/hidden_caps.h"
#include "support/optest.h"
#include "support/relative_tokens.h"
#include "support/two_way_test.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { HEADS = IST_TWO_WAY_HEADS, COLUMNS = 64, PROMPTS = 6, MOST = 2, OUTS = 20, TWIN = 4 /* of prompt 1 */ };

typedef struct shape {
    int tokens, asked, length, k, d; /* tokens, those of the last reading, image rows, channels, of a head */
} shape;

/* An update's or a reading's side of the tokens, and what it is to the reference. */
typedef struct sides {
    ref_map keys[2], values[2], queries[3]; /* plain columns [P,1,d + 1,64] */
    float *wk[3], *wv[3], *bv[3], *wq[2], *bq[2], *out[2], *out_bias[2], *gamma[2], *beta[2], *map, *shift;
} sides;

/* Prompt TWIN has the tokens of prompt 1. */
static ref_map plain_columns(optest *t, const shape *s, int tokens, float gain) {
    ref_map m = optest_zeros(t, PROMPTS, 1, s->d + 1, COLUMNS);
    for (int n = 0; n < PROMPTS; n++)
        for (int c = 0; c < COLUMNS; c++)
            for (int i = 0; i <= s->d; i++) {
                float v = optest_uniform(t, -gain, gain), none = i < s->d ? 0 : -3.0e38f;
                if (n == TWIN) v = ref_at(m, 1, 0, i)[c];
                ref_at(m, n, 0, i)[c] = c >= tokens * HEADS ? none : i < s->d ? v : 0;
            }
    return m;
}

static sides random_sides(optest *t, const shape *s, bool shifted) {
    sides a = {.shift = shifted ? optest_values(t, (size_t)s->k, -1, 1) : NULL};
    size_t inner = (size_t)(HEADS * s->d), k = (size_t)s->k, all = inner * k;
    float key = 8 / sqrtf((float)(s->k * s->d)), value = 1 / sqrtf((float)s->d);
    for (int i = 0; i < 3; i++) {
        a.wk[i] = optest_values(t, all, -key, key), a.wv[i] = optest_values(t, all, -0.3f, 0.3f);
        a.bv[i] = optest_values(t, inner, -1, 1);
        a.queries[i] = plain_columns(t, s, i < 2 ? s->tokens : s->asked, 1);
    }
    for (int i = 0; i < 2; i++) {
        a.wq[i] = optest_values(t, all, -key, key), a.bq[i] = optest_values(t, inner, -1, 1);
        a.out[i] = optest_values(t, all, -value, value), a.out_bias[i] = optest_values(t, k, -1, 1);
        a.gamma[i] = optest_values(t, k, -1, 1), a.beta[i] = optest_values(t, k, -1, 1);
        a.keys[i] = plain_columns(t, s, s->tokens, 1), a.values[i] = plain_columns(t, s, s->tokens, 1);
    }
    a.map = optest_values(t, k * OUTS, -0.3f, 0.3f);
    return a;
}

/* Plain columns folded with w [8 d][k], b [8 d] or NULL. */
static ref_map folded(optest *t, const shape *s, ref_map plain, const float *w, const float *b) {
    ref_map m = optest_zeros(t, plain.n, 1, s->k + 1, plain.c);
    for (int n = 0; n < plain.n; n++)
        for (int c = 0; c < plain.c; c++)
            for (int k = 0; k <= s->k; k++) {
                double sum = k == s->k ? (double)ref_at(plain, n, 0, s->d)[c] : 0;
                for (int i = 0, o = c % HEADS * s->d; i < s->d; i++, o++)
                    sum += ref_at(plain, n, 0, i)[c] * (double)(k < s->k ? w[o * s->k + k] : b ? b[o] : 0);
                ref_at(m, n, 0, k)[c] = (float)sum;
            }
    return m;
}

/* Values behind the output projection [k][8 d], as panels. */
static ref_map projected(optest *t, const shape *s, ref_map plain, const float *out) {
    ref_map m = optest_zeros(t, plain.n, s->k / 64, s->tokens * HEADS, 64);
    for (int n = 0; n < plain.n; n++)
        for (int c = 0; c < m.w; c++)
            for (int k = 0; k < s->k; k++) {
                double sum = 0;
                for (int i = 0; i < s->d; i++)
                    sum += ref_at(plain, n, 0, i)[c] * (double)out[k * HEADS * s->d + c % HEADS * s->d + i];
                ref_at(m, n, k / 64, c)[k % 64] = (float)sum;
            }
    return m;
}

/* The image behind an update as its noted weights and factors tell it. */
static ref_map told(optest *t, const shape *s, ref_map trace, int update, ref_map seen, ref_map values,
                    const sides *a) {
    ref_map y = optest_zeros(t, seen.n, 1, s->length, s->k);
    int last = (s->tokens - 1) * HEADS;
    for (int n = 0; n < seen.n; n++)
        for (int r = 0; r < s->length; r++) {
            const float *w = ref_at(trace, n, update, r);
            double v[256], mean = 0;
            for (int k = 0; k < s->k; k++) {
                v[k] = (double)ref_at(seen, n, 0, r)[k] + (double)a->out_bias[update][k];
                for (int c = 0; c < last + HEADS; c++) {
                    double u = (double)ref_at(values, n, k / 64, c)[k % 64];
                    double rest = (double)ref_at(values, n, k / 64, last + c % HEADS)[k % 64];
                    v[k] += c < last ? w[c] * (u - rest) : u;
                }
                mean += v[k] / s->k;
            }
            for (int k = 0; k < s->k; k++)
                ref_at(y, n, 0, r)[k] =
                    (float)((v[k] - mean) * w[63] * (double)a->gamma[update][k] + (double)a->beta[update][k]);
        }
    return y;
}

/* Compares the items of got whose way is 1. */
static void close_sharing(optest *t, const char *what, ref_map got, ref_map want, const int *ways, double allowed) {
    size_t one = (size_t)want.h * (size_t)want.w * (size_t)want.c;
    for (int n = 0; n < want.n; n++)
        if (!ways[n]) memcpy(got.v + (size_t)n * one, want.v + (size_t)n * one, one * sizeof *got.v);
    got.n = want.n;
    optest_close(t, what, got, want, 0, allowed);
}

/* bits of i: 1 slices and shift, 2 a count with which one image has few prompts. */
static void sharing_case(const shape *s, unsigned i) {
    optest t;
    optest_begin(&t, "sharing", i + 10u * (unsigned)(s->tokens + s->length + s->k));
    int of[PROMPTS] = {0, 1, 1, 0, 1, 1 << 20}, ways[PROMPTS] = {0, 1, 1, 0, 1, 0}, count = i & 2 ? 5 : 6;
    if (!(i & 2)) of[5] = 0, ways[0] = ways[3] = ways[5] = 1;
    sides a = random_sides(&t, s, i & 1);
    ref_map x = optest_random(&t, 2, 1, s->length, s->k), position = optest_random(&t, 1, 1, s->length, s->k);
    ist_image_side side = {
        .x = optest_in(&t, x, IST_ELEM_T, i & 1), .map = optest_ints(&t, of, PROMPTS), .shift = a.shift};
    ist_shared_weights w = {.d = s->d, .position = position.v, .map = a.map, .outs = OUTS, .eps = 1e-5f};
    for (int j = 0; j < 3; j++)
        w.reading[j].keys = a.wk[j], w.reading[j].values = a.wv[j], w.reading[j].value_bias = a.bv[j];
    for (int j = 0; j < 2; j++) {
        w.update[j].queries = a.wq[j], w.update[j].query_bias = a.bq[j];
        w.update[j].out = a.out[j], w.update[j].out_bias = a.out_bias[j];
        w.update[j].gamma = a.gamma[j], w.update[j].beta = a.beta[j];
    }
    ist_shared_tokens tokens = {{0}, {{0}}, {0}};
    ist_tensor queries[3], keys[2], values[2], y[3];
    for (int j = 0; j < 3; j++) {
        int asked = j < 2 ? s->tokens : s->asked;
        queries[j] = optest_in(&t, a.queries[j], IST_ELEM_F32, false);
        y[j] = optest_in(&t, optest_zeros(&t, PROMPTS, 1, asked, HEADS * s->d), IST_ELEM_T, false);
    }
    for (int j = 0; j < 2; j++) {
        keys[j] = optest_in(&t, relative_to_last(&t, a.keys[j], true, s->tokens, HEADS), IST_ELEM_F32, false);
        values[j] = optest_in(&t, a.values[j], IST_ELEM_F32, false);
    }
    if (count < PROMPTS) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_shared_image image = ist_share_image(t.plan, &side, &w, PROMPTS, s->tokens, MOST, "share");
    for (int j = 0; j < 3; j++) {
        tokens.queries = queries[j];
        if (j) tokens.keys = keys[j - 1], tokens.values[j - 1] = values[j - 1];
        ist_shared_read(t.plan, &image, j, &tokens, y[j], "read");
    }
    optest_run(&t);
    double allowed = t.half ? 8e-3 : 2e-5;
    ref_map seen = picked_items(&t, x, of, a.shift, count), trace = optest_read(&t, image.trace);
    ref_map map = optest_read(&t, image.map), straight = optest_zeros(&t, 2, 1, s->length, OUTS);
    for (int n = 0; n < 2; n++)
        for (int r = 0; r < s->length; r++)
            for (int k = 0; k < s->k * OUTS; k++)
                ref_at(straight, n, 0, r)[k % OUTS] +=
                    (ref_at(x, n, 0, r)[k / OUTS] + (a.shift ? a.shift[k / OUTS] : 0)) * a.map[k];
    close_sharing(&t, "map", map, straight, (int[]){!(i & 2), 1}, allowed);
    for (int j = 0; j < 3; j++) {
        if (j) {
            ref_map after = optest_zeros(&t, count, 1, s->length, s->k);
            ref_map panels = projected(&t, s, a.values[j - 1], a.out[j - 1]);
            ref_image_update(seen, position, folded(&t, s, a.keys[j - 1], a.wq[j - 1], a.bq[j - 1]), panels,
                             a.out_bias[j - 1], a.gamma[j - 1], a.beta[j - 1], 1e-5, after);
            close_sharing(&t, "trace", told(&t, s, trace, j - 1, seen, panels, &a), after, ways, allowed);
            seen = after;
        }
        ref_map want = optest_zeros(&t, count, 1, y[j].w, HEADS * s->d), got = optest_read(&t, y[j]);
        size_t one = (size_t)y[j].w * (size_t)(HEADS * s->d);
        cr_assert(!memcmp(got.v + one, got.v + TWIN * one, one * sizeof *got.v), "reading %d differs from itself", j);
        ref_image_read(seen, position, folded(&t, s, a.queries[j], a.wk[j], NULL), s->d, a.wv[j], a.bv[j], want);
        close_sharing(&t, "reading", got, want, ways, allowed);
    }
    optest_end(&t);
}

/* Whether the device has the row; elsewhere there is nothing to see. */
static bool shares(void) {
    optest t;
    without = 0;
    optest_begin(&t, "sharing?", 1);
    bool yes = absorbed_kernels(t.plan)->shares;
    optest_drop(&t);
    return yes;
}

Test(two_way_shared, prompts_that_share) {
    static const shape all[] = {{7, 2, 131, 256, 16}, {8, 5, 43, 64, 8}, {5, 5, 50, 64, 4},
                                {6, 1, 300, 128, 16}, {2, 1, 7, 64, 32}, {1, 1, 1, 64, 4}};
    for (unsigned k = 0; shares() && k < (optest_small() ? 1 : sizeof all / sizeof *all); k++)
        for (unsigned i = 0; i < 4; i++) sharing_case(&all[optest_small() ? 4 : k], i);
}

Test(two_way_shared, refuses_what_does_not_fit) {
    int of[3] = {0, 0, 0};
    float zeros[1] = {0};
    ist_shared_weights w = {.d = 4, .position = zeros};
    if (!shares()) return;
    optest t;
    optest_begin(&t, "sharing refusal", 0); /* too many tokens */
    ist_image_side side = {.x = optest_in(&t, optest_random(&t, 1, 1, 2, 64), IST_ELEM_T, false),
                           .map = optest_ints(&t, of, 3)};
    ist_share_image(t.plan, &side, &w, 3, IST_TRACE_TOKENS + 1, MOST, "share");
    cr_assert_eq(ist_plan_status(t.plan), IST_E_ARGUMENT);
    optest_drop(&t);
}
