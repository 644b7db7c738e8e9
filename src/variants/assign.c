/* The one-off solver behind ist_assign: a plan of one node. */
#include "variants/assign.h"

#include "variants/variant.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* Largest finite magnitude and whether a pair is forbidden; fails on NaN and -inf. */
static ist_status survey(const float *cost, int rows, int cols, int ld, float *most, bool *forbidden, ist_error *err) {
    *most = 0;
    *forbidden = false;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            float v = cost[(size_t)r * (size_t)ld + (size_t)c];
            if (isnan(v) || (isinf(v) && v < 0))
                return ist_fail(err, IST_E_ARGUMENT, "assign: the cost of row %d, column %d is %s", r, c,
                                isnan(v) ? "not a number" : "minus infinity");
            if (isinf(v))
                *forbidden = true;
            else if (fabsf(v) > *most)
                *most = fabsf(v);
        }
    return IST_OK;
}

/* The costs, dense, scaled by a power of two so that the largest magnitude is in [0.5, 1). */
static void fill(float *to, const float *cost, int rows, int cols, int ld, float most) {
    int exponent = 0;
    if (most > 0) frexpf(most, &exponent);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) *to++ = ldexpf(cost[(size_t)r * (size_t)ld + (size_t)c], -exponent);
}

/* Bits after the point: with forbidden pairs a dual may reach n times the largest cost, and must stay below 2^61. */
static int bits_for(int n, bool forbidden) {
    int spare = 0;
    while (forbidden && n >> spare) spare++;
    return forbidden && 58 - spare < 50 ? 58 - spare : 50;
}

typedef struct problem {
    int rows, cols;
    size_t in_bytes, out_bytes;
    float *in;
    int *out; /* column of each row */
    cl_mem upload, result;
    ist_plan *plan;
} problem;

enum { EXT_IN = 0, EXT_OUT = 1 };

static ist_tensor outside(ist_plan *p, int ext, int h, int w, ist_elem elem) {
    ist_tensor t = ist_plan_external(p, ext, elem);
    t.n = t.c = t.ld = 1;
    t.h = h;
    t.w = w;
    return t;
}

static ist_status solve(ist_device *device, problem *b, int bits, ist_error *err) {
    IST_TRY(ist_plan_begin(device, NULL, &b->plan, err));
    ist_plan *p = b->plan;
    ist_assignment node = {.label = "assign",
                           .cost = outside(p, EXT_IN, b->rows, b->cols, IST_ELEM_F32),
                           .dims = ist_plan_const(p, (int[]){b->rows, b->cols}, 1, 1, 1, 2, IST_ELEM_I32, "assign"),
                           .match = outside(p, EXT_OUT, 1, b->rows, IST_ELEM_I32),
                           .bits = bits};
    ist_emit(p, IST_NODE_ASSIGN, &node);
    IST_TRY(ist_plan_finish(p, err));
    IST_TRY(ist_buffer_create(device, b->in_bytes, "assignment costs", &b->upload, err));
    IST_TRY(ist_buffer_create(device, b->out_bytes, "assignment", &b->result, err));
    IST_TRY(ist_plan_bind(p, EXT_IN, b->upload, err));
    IST_TRY(ist_plan_bind(p, EXT_OUT, b->result, err));
    ist_frame_scope scope = {0};
    IST_TRY(ist_write(device, scope, b->upload, 0, b->in_bytes, b->in, false, "assignment costs", err));
    ist_status st = ist_plan_replay(p, err);
    if (!st) return ist_read(device, scope, b->result, 0, b->out_bytes, b->out, NULL, "assignment", err);
    ist_finish(device, scope, "assignment costs", NULL); /* the write may still be reading b->in */
    return st;
}

static ist_status collect(const problem *b, const float *cost, int ld, int *row_to_col, double *total,
                          ist_error *err) {
    double sum = 0;
    int pairs = 0;
    for (int r = 0; r < b->rows; r++) {
        row_to_col[r] = b->out[r];
        if (b->out[r] < 0) continue;
        sum += cost[(size_t)r * (size_t)ld + (size_t)b->out[r]];
        pairs++;
    }
    if (pairs < (b->rows < b->cols ? b->rows : b->cols)) {
        for (int r = 0; r < b->rows; r++) row_to_col[r] = -1;
        return ist_fail(err, IST_E_ARGUMENT, "assign: forbidden pairs leave no complete assignment of %d x %d", b->rows,
                        b->cols);
    }
    if (total) *total = sum;
    return IST_OK;
}

ist_status ist_assign_solve(ist_device *device, const float *cost, int rows, int cols, int ld, int *row_to_col,
                            double *total, ist_error *err) {
    if (rows < 0 || cols < 0 || rows > IST_ASSIGN_MAX || cols > IST_ASSIGN_MAX || ld < cols)
        return ist_fail(err, IST_E_ARGUMENT, "assign: %d x %d costs, %d from row to row; at most %d x %d", rows, cols,
                        ld, IST_ASSIGN_MAX, IST_ASSIGN_MAX);
    float most;
    bool forbidden;
    IST_TRY(survey(cost, rows, cols, ld, &most, &forbidden, err));
    if (total) *total = 0;
    for (int r = 0; r < rows; r++) row_to_col[r] = -1;
    if (!rows || !cols) return IST_OK;
    problem b = {.rows = rows, .cols = cols};
    b.in_bytes = (size_t)rows * (size_t)cols * sizeof *b.in;
    b.out_bytes = (size_t)rows * sizeof *b.out;
    b.in = malloc(b.in_bytes);
    b.out = malloc(b.out_bytes);
    ist_status st = IST_OK;
    if (!b.in || !b.out) {
        st = ist_fail(err, IST_E_MEMORY, "assign: out of host memory for %d x %d costs", rows, cols);
    } else {
        fill(b.in, cost, rows, cols, ld, most);
        st = solve(device, &b, bits_for(rows < cols ? rows : cols, forbidden), err);
        if (!st) st = collect(&b, cost, ld, row_to_col, total, err);
    }
    ist_plan_close(&b.plan);
    ist_buffer_release(device, &b.upload);
    ist_buffer_release(device, &b.result);
    free(b.in);
    free(b.out);
    return st;
}
