/* Assignment and matching: launches of cl/portable/assign and track. One problem is one group's. */
#include "variants/lanes.h"

#include <math.h>
#include <string.h>

enum { TRACK_WORDS = 16, STATE_WORDS = 4 + TRACK_WORDS * IST_TRACK_MAX /* one of two */, MATCH_BITS = 20 };

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

/* What stands in front of track.cl. */
static const char *track_parts(const ist_variant *v) {
    return ist_lanes_of(v)->lanes == 1 ? "codes/frame+portable/frame+portable/lap_serial" : "codes/frame+portable/frame+portable/lap";
}

/* A launch of `groups` groups, each of which solves one problem. */
static void launch_groups(ist_plan *p, const ist_variant *v, ist_launch l, size_t groups, const ist_arg *args,
                          int count) {
    size_t lanes = (size_t)ist_lanes_of(v)->lanes;
    l.dims = 1;
    l.global[0] = lanes * groups;
    l.local[0] = lanes;
    l.arg_count = count;
    memcpy(l.args, args, (size_t)count * sizeof *args);
    ist_plan_launch(p, &l);
}
#define LAUNCH(p, v, l, groups, args) launch_groups(p, v, l, groups, args, (int)(sizeof(args) / sizeof *(args)))

static void emit_assign(ist_plan *p, const ist_variant *v, void *node, int way) {
    const ist_assignment *q = node;
    ist_tensor cost = q->cost;
    int rows = cost.h, cols = cost.w, words = lap_words(smaller(rows, cols), larger(rows, cols));
    ist_tensor work = ist_plan_tensor(p, cost.n, 1, 1, words, IST_ELEM_I32);
    const ist_arg args[] = {IST_OUT(q->match),
                            IST_OUT(q->complete),
                            IST_OUT(work),
                            IST_IN(cost),
                            IST_IN(q->dims),
                            IST_IN(ist_plan_current_limit(p)),
                            IST_INT4(rows, cols, words, 0),
                            IST_FLOAT(ldexpf(1, q->bits))};
    ist_launch l = {.label = q->label, .op = "portable/assign", .kernel = "assign"};
    (void)way;
    l.isa = ist_lanes_of(v)->lanes == 1 ? "portable/lap_serial" : "portable/lap";
    LAUNCH(p, v, l, (size_t)cost.n, args);
}

const ist_family ist_portable_assign = {.emit = emit_assign};

static void match_tracks(ist_plan *p, const ist_variant *v, const ist_match *q) {
    int most = q->det.max_objects, solver = lap_words(IST_TRACK_MAX, IST_TRACK_MAX);
    ist_tensor state = ist_plan_persistent(p, 1, 1, 2, STATE_WORDS, IST_ELEM_I32);
    ist_tensor work = ist_plan_tensor(p, 1, 1, 1, solver + most * IST_TRACK_MAX + 2 * most + IST_TRACK_MAX, IST_ELEM_I32);
    const ist_arg args[] = {IST_OUT(q->match),
                            IST_INOUT(state),
                            IST_OUT(work),
                            IST_IN(q->det.objects),
                            IST_IN(q->det.counts),
                            IST_IN(q->upload),
                            IST_INT4(most, solver, q->age, q->motion),
                            IST_FLOAT(q->track_iou),
                            IST_FLOAT(q->track_high)};
    ist_launch l = {.label = q->label, .op = "portable/track", .isa = track_parts(v), .kernel = "match_tracks"};
    LAUNCH(p, v, l, 1, args);
}

static void match_targets(ist_plan *p, const ist_variant *v, const ist_match *q) {
    int most = q->det.max_objects, room = larger(q->max_targets, 1);
    int solver = lap_words(smaller(most, room), larger(most, room));
    int words = solver + most * room + most + (most * room + most) % 2;
    ist_tensor work = ist_plan_tensor(p, q->det.batch, 1, 1, words, IST_ELEM_I32);
    const ist_arg args[] = {IST_OUT(q->match),      IST_OUT(work),     IST_IN(q->det.objects),
                            IST_IN(q->det.counts),  IST_IN(q->upload), IST_INT4(most, room, solver, words)};
    ist_launch l = {.label = q->label, .op = "portable/track", .isa = track_parts(v), .kernel = "match_targets"};
    LAUNCH(p, v, l, (size_t)q->det.batch, args);
}

/* Costs of all targets and queries, then their assignment, then what that is for objects. */
static void match_set(ist_plan *p, const ist_variant *v, const ist_match *q) {
    ist_tensor logits = q->logits, boxes = q->boxes;
    int queries = logits.h * logits.w, room = larger(q->max_targets, 1), batch = q->det.batch, most = q->det.max_objects;
    size_t lanes = (size_t)ist_lanes_of(v)->lanes;
    ist_assignment assign = {.label = q->label,
                             .cost = ist_plan_tensor(p, batch, room, queries, 1, IST_ELEM_F32),
                             .dims = ist_plan_tensor(p, batch, 1, 1, 2, IST_ELEM_I32),
                             .bits = MATCH_BITS};
    ist_plan_launch(p,
                    &(ist_launch){.label = q->label,
                                  .op = "portable/track",
                                  .isa = track_parts(v),
                                  .kernel = "set_cost",
                                  .dims = 3,
                                  .global = {ist_round_up((size_t)queries, lanes), (size_t)room, (size_t)batch},
                                  .local = {lanes, 1, 1},
                                  .args = {IST_OUT(assign.cost), IST_OUT(assign.dims), IST_IN(logits), IST_IN(boxes),
                                           IST_IN(q->upload), IST_INT4(queries, logits.c, logits.ld, logits.c0),
                                           IST_INT4(boxes.ld, boxes.c0, room, 0)},
                                  .arg_count = 7});
    ist_plan_tap(p, "match.cost", assign.cost);
    ist_plan_limit(p, q->upload); /* word 0 is the number of images */
    ist_emit(p, IST_NODE_ASSIGN, &assign);
    ist_plan_limit(p, (ist_tensor){0});
    ist_plan_launch(p,
                    &(ist_launch){.label = q->label,
                                  .op = "portable/track",
                                  .isa = track_parts(v),
                                  .kernel = "set_apply",
                                  .dims = 2,
                                  .global = {ist_round_up((size_t)most, lanes), (size_t)batch},
                                  .local = {lanes, 1},
                                  .args = {IST_OUT(q->match), IST_IN(assign.match), IST_IN(q->det.objects),
                                           IST_IN(q->det.counts), IST_IN(q->upload), IST_INT4(most, room, 0, 0)},
                                  .arg_count = 6});
}

static void emit_match(ist_plan *p, const ist_variant *v, void *node, int way) {
    static void (*const by[])(ist_plan *, const ist_variant *, const ist_match *) = {
        [IST_MATCH_BY_TRACKS] = match_tracks, [IST_MATCH_BY_TARGETS] = match_targets, [IST_MATCH_BY_SET] = match_set};
    const ist_match *q = node;
    (void)way;
    by[q->by](p, v, q);
}

const ist_family ist_portable_match = {.emit = emit_match};
