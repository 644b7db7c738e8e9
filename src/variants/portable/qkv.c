/* A transformer's packed projection with its position embedding: one product of x, to which the projected embedding, a
 * constant, is added. */
#include "variants/rounding.h"
#include "variants/variant.h"

#include <math.h>
#include <stdlib.h>

/* A quarter-block pair of the position table for coordinate v: sin(v w_j), cos(v w_j), w_j = 10000^(-j/q). */
static void sine_row(double v, int q, double *row) {
    for (int j = 0; j < q; j++) {
        double angle = v * pow(10000.0, -(double)j / q);
        row[j] = sin(angle);
        row[q + j] = cos(angle);
    }
}

/* Adds W[:, half * C/2 ..] row to sum[2C]: the part of one coordinate in the projections to q and k. */
static void project_row(const ist_filter *in_proj, int half, const double *row, double *sum) {
    int width = in_proj->in, count = width / 2;
    for (int o = 0; o < 2 * width; o++) {
        const float *w = in_proj->w + (size_t)o * width + (size_t)half * count;
        double acc = 0;
        for (int i = 0; i < count; i++) acc += row[i] * w[i];
        sum[o] = acc;
    }
}

/* [1,1,h*w,3C]: what the position table adds to q and k of each token, and zeros for v. Token r has coordinates
 * r / h and r mod h (the official code calls the first one w; equal to y, x on square maps). The table is a sum of a
 * term of each coordinate, which is all that is projected. */
static ist_tensor position_term(ist_plan *p, const ist_filter *in_proj, int h, int w) {
    ist_tensor term = {0};
    int width = in_proj->in, tokens = h * w, firsts = (tokens - 1) / h + 1;
    size_t wide = 2 * (size_t)width;
    double *row = malloc((size_t)width * sizeof *row), *sums = malloc((size_t)(firsts + h) * wide * sizeof *sums);
    float *table = calloc((size_t)tokens * 3 * (size_t)width, sizeof *table);
    if (row && sums && table) {
        for (int i = 0; i < firsts + h; i++) {
            sine_row(i < firsts ? i : i - firsts, width / 4, row);
            project_row(in_proj, i >= firsts, row, sums + (size_t)i * wide);
        }
        for (int r = 0; r < tokens; r++) {
            const double *a = sums + (size_t)(r / h) * wide, *b = sums + (size_t)(firsts + r % h) * wide;
            for (size_t o = 0; o < wide; o++) table[(size_t)r * 3 * (size_t)width + o] = (float)(a[o] + b[o]);
        }
        term = ist_plan_const(p, table, 1, 1, tokens, 3 * width, IST_ELEM_T, "position term");
    } else {
        ist_plan_fail(p, IST_E_MEMORY, "out of host memory for %d positions", tokens);
    }
    free(row);
    free(sums);
    free(table);
    return term;
}

static void emit(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_qkv *q = node;
    ist_conv_weights room;
    ist_tensor pos = position_term(p, &q->filter, q->grid_h, q->grid_w);
    (void)v, (void)way;
    ist_filter filter = ist_rounded(p, &q->filter, &room);
    ist_emit(p, IST_NODE_CONV,
             &(ist_conv){.label = q->label, .x = q->x, .y = q->y, .filter = filter, .o = {.epi.add_before = pos}});
    ist_conv_weights_free(&room);
}

const ist_family ist_portable_qkv = {.emit = emit};
