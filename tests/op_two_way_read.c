/* An image that all of its prompts read: its keys and values and the layer on what tokens read of them, on matrix
 * instructions or, without them, on nvidia/ptx's plain form, against scalar arithmetic. */
#include "support/claimed_matrix.h"
#include "support/hidden_caps.h"
#include "support/two_way_test.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { HEADS = IST_TWO_WAY_HEADS };

/* hidden: what tokens x + add read, softmax over the image of (w (x + add) + b) . (wk (image + position)), values wv
 * image + bv, in heads of 16. */
static void read_reference(const ist_head_fold *q, const ist_image_keys *k, ref_map x, ref_map add, ref_map seen,
                           ref_map position, ref_map hidden) {
    enum { D = 16, OUTS = HEADS * D };
    int rows = seen.w;
    double *keys = malloc(sizeof *keys * (size_t)(2 * rows * OUTS)), *values = keys + rows * OUTS;
    cr_assert_not_null(keys);
    for (int n = 0; n < hidden.n; n++) {
        for (int i = 0; i < rows * OUTS; i++) {
            const float *row = ref_at(seen, n, 0, i / OUTS), *place = ref_at(position, 0, 0, i / OUTS);
            keys[i] = 0, values[i] = k->value_bias[i % OUTS];
            for (int c = 0; c < seen.c; c++) {
                keys[i] += (double)k->keys[i % OUTS * seen.c + c] * ((double)row[c] + (double)place[c]);
                values[i] += (double)k->values[i % OUTS * seen.c + c] * (double)row[c];
            }
        }
        for (int t = 0; t < x.w; t++)
            for (int h = 0; h < OUTS; h += D) {
                double query[D], sum = 0, read[D] = {0};
                for (int i = 0; i < D; i++) {
                    query[i] = q->b[h + i];
                    for (int c = 0; c < x.c; c++)
                        query[i] += (double)q->w[(h + i) * x.c + c] *
                                    ((double)ref_at(x, n, 0, t)[c] + (add.v ? (double)ref_at(add, n, 0, t)[c] : 0));
                }
                for (int r = 0; r < rows; r++) {
                    double score = 0;
                    for (int i = 0; i < D; i++) score += query[i] * keys[r * OUTS + h + i];
                    double weight = exp2(score * (double)q->scale);
                    sum += weight;
                    for (int i = 0; i < D; i++) read[i] += weight * values[r * OUTS + h + i];
                }
                for (int i = 0; i < D; i++) ref_at(hidden, n, 0, t)[h + i] = (float)(read[i] / sum);
            }
    }
    free(keys);
}

/* bits of i: 1 addend, 2 map, 4 shift, 8 limit. The reading and a layer on it. */
static void reading_case(int prompts, int tokens, int rows, int c, unsigned i) {
    enum { OUTS = HEADS * 16 };
    optest t;
    optest_begin(&t, "reading", i + 100u * (unsigned)rows);
    cr_assert(ist_image_reads(tokens, c, 16) && two_way_halves(t.plan, tokens, c));
    int count = i & 8 ? prompts - 1 : prompts, images = i & 2 ? 2 : prompts, map[8];
    for (int n = 0; n < prompts; n++) map[n] = n < count ? n / 2 % 2 ^ n % 3 / 2 : 1 << 24;
    float *shift = i & 4 ? optest_values(&t, (size_t)c, -1, 1) : NULL;
    float *wk = optest_values(&t, (size_t)(OUTS * c), -0.2f, 0.2f),
          *wv = optest_values(&t, (size_t)(OUTS * c), -0.2f, 0.2f);
    float *w = optest_values(&t, (size_t)(OUTS * c), -0.2f, 0.2f), *b = optest_values(&t, OUTS, -1, 1);
    ref_map x = optest_random(&t, prompts, 1, tokens, c), add = {0}, image = optest_random(&t, images, 1, rows, c);
    ref_map position = optest_random(&t, 1, 1, rows, c), hidden = optest_zeros(&t, count, 1, tokens, OUTS);
    ist_tensor xt = optest_in(&t, x, IST_ELEM_T, false), at = {0}, mt = {0};
    if (i & 1) {
        add = optest_random(&t, prompts, 1, tokens, c);
        at = optest_in(&t, add, IST_ELEM_T, false);
    }
    if (i & 2) mt = optest_ints(&t, map, prompts);
    ist_image_side side = {.x = optest_in(&t, image, IST_ELEM_T, false), .map = mt, .shift = shift};
    ist_image_keys keys = {wk, wv, b, position.v};
    ist_fold_job query = {.add = at,
                          .fold = {.d = 16, .k = c, .w = w, .b = b, .scale = 0.3f, .columns = true, .plain = true}};
    ist_token_folds folds = {.jobs = &query, .count = 1, .groups = two_way_groups(t.plan, c)};
    ist_token_job before = passing_layer(&t, 128), l = passing_layer(&t, c);
    before.in = c, before.out = c, before.folds = &folds;
    before.w1 = optest_values(&t, (size_t)(128 * c), -0.3f, 0.3f), before.b1 = b;
    before.w = optest_values(&t, (size_t)(128 * c), -0.3f, 0.3f);
    float *sums = optest_values(&t, (size_t)(c * OUTS), 0, 0);
    for (int k = 0; k < OUTS; k++) sums[k % c * OUTS + k] = 1;
    l.hidden = OUTS, l.w = sums;
    if (count < prompts) ist_plan_limit(t.plan, optest_ints(&t, &count, 1));
    ist_tensor kv = ist_image_make_keys(t.plan, &side, &keys, "keys");
    ist_tensor tokens_read = ist_token_layer(t.plan, xt, &before, "before");
    ist_token_reading reading = {kv, mt, folds.y[0]};
    ist_tensor y = ist_token_read(t.plan, tokens_read, &reading, &l, "read");
    optest_run(&t);
    x = optest_read(&t, tokens_read);
    cr_assert_eq(ist_plan_replay(t.plan, &t.err), IST_OK, "%s", t.err.text); /* counters are back */
    ref_map want_kv = optest_zeros(&t, images, 1, rows, 2 * OUTS);
    for (int k = 0; k < images * rows * 2 * OUTS; k++) {
        int o = k % (2 * OUTS), row = k / (2 * OUTS);
        const float *line = (o < OUTS ? wk : wv) + o % OUTS * c, *place = ref_at(position, 0, 0, row % rows);
        double sum = o < OUTS ? 0 : b[o - OUTS];
        for (int at_c = 0; at_c < c; at_c++)
            sum += (double)line[at_c] * ((double)image.v[row * c + at_c] + (shift ? (double)shift[at_c] : 0) +
                                         (o < OUTS ? (double)place[at_c] : 0));
        want_kv.v[k] = (float)sum;
    }
    optest_close(&t, "keys and values", optest_read(&t, kv), want_kv, 2e-3, 1e-2);
    read_reference(&query.fold, &keys, x, add, picked_items(&t, image, i & 2 ? map : NULL, shift, count), position,
                   hidden);
    x.n = count;
    for (int k = 0; k < count * tokens * OUTS; k++) x.v[k / OUTS * c + k % OUTS % c] += hidden.v[k];
    ref_map got = optest_read(&t, y);
    got.n = count;
    optest_close(&t, "read", got, passed_layer(&t, x, &l), 0, 1e-2);
    optest_end(&t);
}

Test(two_way_read, keys_and_values_and_what_tokens_read) {
    without = IST_CAP_VEC16;
    if (!claim_matrix_warps() || optest_small()) return; /* interpreters do not see that a counter orders groups */
    reading_case(3, 7, 150, 64, 15);
    reading_case(1, 8, 128, 128, 2);
    reading_case(5, 3, 70, 64, 3);
    reading_case(4, 7, 257, 64, 4);
    reading_case(4, 2, 20, 64, 10);
}
