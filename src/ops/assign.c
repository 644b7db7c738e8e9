/* Assignment and matching: launches of assign.cl and track.cl, and the one-off solver behind ist_assign. */
#include "ops/assign.h"

#include "base/mem.h"
#include "ops/lanes.h"
#include "ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRACK_WORDS = 8, STATE_WORDS = 4 + TRACK_WORDS * IST_TRACK_MAX /* one of two */, MATCH_BITS = 20 };

/* Ints of solver state for n sources and m sinks (lap.cl): longs first, an even number in all. */
static int lap_words(int n, int m) {
    int longs = n + 3 * (m + 8), ints = n + 2 * (m + 8);
    return 2 * longs + ints + (ints & 1);
}

static int smaller(int a, int b) {
    return a < b ? a : b;
}

static int larger(int a, int b) {
    return a > b ? a : b;
}

static bool check_int64(ist_plan *p, const char *label) {
    if (ist_plan_status(p)) return false;
    if (ist_plan_caps(p) & IST_CAP_INT64) return true;
    ist_plan_fail(p, IST_E_UNSUPPORTED, "%s: assignment needs 64-bit integers, which this device gets wrong", label);
    return false;
}

static const char *solver_of(const ist_plan *p) {
    return ist_lanes(p) == 1 ? "op/lap_cpu" : "op/lap";
}

/* What stands in front of track.cl. */
static const char *track_parts(const ist_plan *p) {
    return ist_lanes(p) == 1 ? "op/frame+op/lap_cpu" : "op/frame+op/lap";
}

/* A launch of `groups` groups, each of which solves one problem. */
static ist_launch solving(const ist_plan *p, const char *op, const char *isa, const char *kernel, size_t groups,
                          const char *label) {
    size_t lanes = (size_t)ist_lanes(p);
    return (ist_launch){.label = label,
                        .op = op,
                        .isa = isa,
                        .kernel = kernel,
                        .dims = 1,
                        .global = {lanes * groups},
                        .local = {lanes}};
}

ist_tensor ist_op_assign(ist_plan *p, ist_tensor cost, ist_tensor dims, int bits, ist_tensor *complete,
                         const char *label) {
    ist_tensor none = {0};
    if (complete) *complete = none;
    if (!check_int64(p, label)) return none;
    int rows = cost.h, cols = cost.w;
    if (cost.c != 1 || cost.ld != 1 || cost.elem != IST_ELEM_F32 || dims.elem != IST_ELEM_I32 ||
        rows > IST_ASSIGN_MAX || cols > IST_ASSIGN_MAX || bits < 0 || bits > 50) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: assignment of [%d,%d,%d,%d] with %d bits; at most %d x %d", label, cost.n,
                      rows, cols, cost.c, bits, IST_ASSIGN_MAX, IST_ASSIGN_MAX);
        return none;
    }
    int words = lap_words(smaller(rows, cols), larger(rows, cols));
    ist_tensor match = ist_plan_tensor(p, cost.n, 1, rows, 1, IST_ELEM_I32);
    ist_tensor whole = ist_plan_tensor(p, cost.n, 1, 1, 1, IST_ELEM_I32);
    ist_tensor work = ist_plan_tensor(p, cost.n, 1, 1, words, IST_ELEM_I32);
    ist_launch l = solving(p, "op/assign", solver_of(p), "assign", (size_t)cost.n, label);
    ist_arg args[] = {IST_OUT(match),
                      IST_OUT(whole),
                      IST_OUT(work),
                      IST_IN(cost),
                      IST_IN(dims),
                      IST_IN(ist_plan_current_limit(p)),
                      IST_INT4(rows, cols, words, 0),
                      IST_FLOAT(ldexpf(1, bits))};
    memcpy(l.args, args, sizeof args);
    l.arg_count = sizeof args / sizeof *args;
    ist_plan_launch(p, &l);
    if (complete) *complete = whole;
    return match;
}

/* ---- detections ---- */

static ist_tensor match_tensor(ist_plan *p, const ist_detections *det) {
    return ist_plan_tensor(p, det->batch, 1, det->max_objects, 2, IST_ELEM_I32);
}

ist_tensor ist_op_match_tracks(ist_plan *p, ist_tensor upload, const ist_detections *det, float track_iou, int age,
                               const char *label) {
    if (!check_int64(p, label)) return (ist_tensor){0};
    int most = det->max_objects, solver = lap_words(IST_TRACK_MAX, IST_TRACK_MAX);
    ist_tensor match = match_tensor(p, det);
    ist_tensor state = ist_plan_persistent(p, 1, 1, 2, STATE_WORDS, IST_ELEM_I32);
    ist_tensor work = ist_plan_tensor(p, 1, 1, 1, solver + most * IST_TRACK_MAX + most + IST_TRACK_MAX, IST_ELEM_I32);
    ist_launch l = solving(p, "op/track", track_parts(p), "match_tracks", 1, label);
    ist_arg args[] = {IST_OUT(match),
                      IST_INOUT(state),
                      IST_OUT(work),
                      IST_IN(det->objects),
                      IST_IN(det->counts),
                      IST_IN(upload),
                      IST_INT4(most, solver, age, 0),
                      IST_FLOAT(track_iou)};
    memcpy(l.args, args, sizeof args);
    l.arg_count = sizeof args / sizeof *args;
    ist_plan_launch(p, &l);
    return match;
}

ist_tensor ist_op_match_targets(ist_plan *p, ist_tensor upload, const ist_detections *det, int max_targets,
                                const char *label) {
    if (!check_int64(p, label)) return (ist_tensor){0};
    int most = det->max_objects, room = larger(max_targets, 1);
    int solver = lap_words(smaller(most, room), larger(most, room));
    int words = solver + most * room + most + (most * room + most) % 2;
    ist_tensor match = match_tensor(p, det), work = ist_plan_tensor(p, det->batch, 1, 1, words, IST_ELEM_I32);
    ist_launch l = solving(p, "op/track", track_parts(p), "match_targets", (size_t)det->batch, label);
    ist_arg args[] = {IST_OUT(match),      IST_OUT(work),  IST_IN(det->objects),
                      IST_IN(det->counts), IST_IN(upload), IST_INT4(most, room, solver, words)};
    memcpy(l.args, args, sizeof args);
    l.arg_count = sizeof args / sizeof *args;
    ist_plan_launch(p, &l);
    return match;
}

ist_tensor ist_op_match_set(ist_plan *p, ist_tensor upload, const ist_detections *det, ist_tensor logits,
                            ist_tensor boxes, int max_targets, const char *label) {
    if (!check_int64(p, label)) return (ist_tensor){0};
    int queries = logits.h * logits.w, room = larger(max_targets, 1), batch = det->batch, lanes = ist_lanes(p);
    ist_tensor cost = ist_plan_tensor(p, batch, room, queries, 1, IST_ELEM_F32);
    ist_tensor dims = ist_plan_tensor(p, batch, 1, 1, 2, IST_ELEM_I32);
    ist_plan_launch(p,
                    &(ist_launch){.label = label,
                                  .op = "op/track",
                                  .isa = track_parts(p),
                                  .kernel = "set_cost",
                                  .dims = 3,
                                  .global = {ist_round_up((size_t)queries, (size_t)lanes), (size_t)room, (size_t)batch},
                                  .local = {(size_t)lanes, 1, 1},
                                  .args = {IST_OUT(cost), IST_OUT(dims), IST_IN(logits), IST_IN(boxes), IST_IN(upload),
                                           IST_INT4(queries, logits.c, logits.ld, logits.c0),
                                           IST_INT4(boxes.ld, boxes.c0, room, 0)},
                                  .arg_count = 7});
    ist_plan_tap(p, "match.cost", cost);
    ist_plan_limit(p, upload);
    ist_tensor query_of = ist_op_assign(p, cost, dims, MATCH_BITS, NULL, label);
    ist_plan_limit(p, (ist_tensor){0});
    ist_tensor match = match_tensor(p, det);
    ist_plan_launch(p,
                    &(ist_launch){.label = label,
                                  .op = "op/track",
                                  .isa = track_parts(p),
                                  .kernel = "set_apply",
                                  .dims = 2,
                                  .global = {ist_round_up((size_t)det->max_objects, (size_t)lanes), (size_t)batch},
                                  .local = {(size_t)lanes, 1},
                                  .args = {IST_OUT(match), IST_IN(query_of), IST_IN(det->objects), IST_IN(det->counts),
                                           IST_IN(upload), IST_INT4(det->max_objects, room, 0, 0)},
                                  .arg_count = 6});
    return match;
}

/* ---- ist_assign ---- */

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

/* The upload of one problem: sources and sinks (2 words), 2 words of padding, costs [sources][sinks] scaled by a power
 * of two so that the largest magnitude is in [0.5, 1). */
enum { HEAD = 4 };

static void fill(float *to, const float *cost, int rows, int cols, int ld, float most) {
    int exponent = 0, tall = rows > cols, n = tall ? cols : rows, m = tall ? rows : cols;
    int head[HEAD] = {n, m, 0, 0};
    if (most > 0) frexpf(most, &exponent);
    memcpy(to, head, sizeof head);
    to += HEAD;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            *to++ = ldexpf(cost[(size_t)(tall ? j : i) * (size_t)ld + (size_t)(tall ? i : j)], -exponent);
}

/* Bits after the point: with forbidden pairs a dual may reach n times the largest cost, and must stay below 2^61. */
static int bits_for(int n, bool forbidden) {
    int spare = 0;
    while (forbidden && n >> spare) spare++;
    return forbidden && 58 - spare < 50 ? 58 - spare : 50;
}

typedef struct problem {
    int n, m;
    size_t in_bytes, out_bytes;
    float *in;
    int *out; /* sink of each source, then whether the assignment is complete */
    cl_mem upload, result;
    ist_plan *plan;
} problem;

enum { EXT_IN = 0, EXT_OUT = 1 };

static ist_status solve(ist_device *device, problem *b, int bits, ist_error *err) {
    IST_TRY(ist_plan_begin(device, NULL, &b->plan, err));
    ist_plan *p = b->plan;
    ist_launch l = solving(p, "op/assign", solver_of(p), "assign_one", 1, "assign");
    if (check_int64(p, "assign")) {
        int words = lap_words(b->n, b->m);
        ist_tensor work = ist_plan_tensor(p, 1, 1, 1, words, IST_ELEM_I32);
        ist_arg args[] = {IST_OUT(ist_plan_external(p, EXT_OUT, IST_ELEM_I32)), IST_OUT(work),
                          IST_IN(ist_plan_external(p, EXT_IN, IST_ELEM_F32)), IST_FLOAT(ldexpf(1, bits))};
        memcpy(l.args, args, sizeof args);
        l.arg_count = sizeof args / sizeof *args;
        ist_plan_launch(p, &l);
    }
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

static ist_status collect(const problem *b, const float *cost, int rows, int cols, int ld, int *row_to_col,
                          double *total, ist_error *err) {
    if (!b->out[b->n])
        return ist_fail(err, IST_E_ARGUMENT, "assign: forbidden pairs leave no complete assignment of %d x %d", rows,
                        cols);
    double sum = 0;
    for (int r = 0; r < rows; r++) row_to_col[r] = -1;
    for (int i = 0; i < b->n; i++) row_to_col[rows > cols ? b->out[i] : i] = rows > cols ? i : b->out[i];
    for (int r = 0; r < rows; r++)
        if (row_to_col[r] >= 0) sum += cost[(size_t)r * (size_t)ld + (size_t)row_to_col[r]];
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
    problem b = {.n = smaller(rows, cols), .m = larger(rows, cols)};
    b.in_bytes = (HEAD + (size_t)rows * (size_t)cols) * sizeof *b.in;
    b.out_bytes = ((size_t)b.n + 1) * sizeof *b.out;
    b.in = malloc(b.in_bytes);
    b.out = malloc(b.out_bytes);
    ist_status st = IST_OK;
    if (!b.in || !b.out) {
        st = ist_fail(err, IST_E_MEMORY, "assign: out of host memory for %d x %d costs", rows, cols);
    } else {
        fill(b.in, cost, rows, cols, ld, most);
        st = solve(device, &b, bits_for(b.n, forbidden), err);
        if (!st) st = collect(&b, cost, rows, cols, ld, row_to_col, total, err);
    }
    ist_plan_close(&b.plan);
    ist_buffer_release(device, &b.upload);
    ist_buffer_release(device, &b.result);
    free(b.in);
    free(b.out);
    return st;
}
