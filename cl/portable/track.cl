/* What detections are matched with: tracks, given targets, D-FINE's set. frame.cl and the solver, lap.cl or lap_serial.cl,
 * are joined in front. */

/* Track state, two of it (UP_TRACK_HALF): last id given, number of tracks; then tracks by rising id. */
#define ST_LAST   0
#define ST_COUNT  1
#define ST_HEADER 4
#define TR_ID     0
#define TR_LABEL  1
#define TR_AGE    2
#define TR_BOX    4
#define TR_SPEED  8  /* pixels a frame, of each side of the box */
#define TR_SEEN   12 /* frames in which it had an object, but for the first */
#define TR_WORDS  16
#ifndef TRACKS
#define TRACKS 300
#endif
#define STATE_WORDS (ST_HEADER + TRACKS * TR_WORDS)

/* Costs are fixed point with 20 fractional bits, so that small differences between devices do not show. */
#define SCALE 1048576.0f

static float4 box_at(__global const int *p) {
    return as_float4(vload4(0, p));
}

static float area(float4 b) {
    return fmax(b.z - b.x, 0.0f) * fmax(b.w - b.y, 0.0f);
}

/* Intersection over union of corner boxes; 0 for empty ones and NaN. */
static float iou(float4 a, float4 b) {
    float4 both = (float4)(fmax(a.xy, b.xy), fmin(a.zw, b.zw));
    float inside = area(both), all = area(a) + area(b) - inside;
    return inside > 0.0f && all > 0.0f ? inside / all : 0.0f;
}

/* Where a track's box is expected: where it was or, with `motion`, where its speed has taken it since. */
static float4 expected(__global const int *track, int motion) {
    float4 box = box_at(track + TR_BOX);
    return motion ? box + box_at(track + TR_SPEED) * (float)(track[TR_AGE] + 1) : box;
}

/* Solves `a` objects against `b` others with cost 1 - gain; only gains above 0 count as pairs. `cost` is
 * [smaller side][larger side]. partner[object] becomes the index of the other or -1. */
static void pair_up(lap *l, __global const float *cost, __global int *partner, int a, int b) {
    int n = min(a, b), m = max(a, b);
    for (int i = LANE; i < a; i += LANES) partner[i] = -1;
    SYNC();
    if (n == 0) return;
    lap_solve(l, cost, (int2)(m, 1), n, m, SCALE);
    for (int s = LANE; s < n; s += LANES) {
        int t = l->sink[s];
        if (t >= 0 && cost[(size_t)s * m + t] < 1.0f) partner[a <= b ? s : t] = a <= b ? t : s;
    }
    SYNC();
}

/* match [n, max_objects, 2]: target index (or -1) and IoU of each object. work: per image `sizes.z` ints of solver
 * state, then costs. sizes: max_objects, max_targets, ints of solver state, ints per image. One group per image. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
match_targets(__global int *match, __global int *work, __global const int *objects, __global const int *counts,
              __global const uint *upload, int4 sizes) {
    LAP_ROOM
    int image = get_group_id(0);
    if (image >= (int)upload[UP_COUNT]) return;
    __global const uint *im = upload + UP_HEADER + image * IM_WORDS;
    __global const int *targets = (__global const int *)upload + im[IM_TARGET_AT];
    int a = counts[4 * image], b = min((int)im[IM_TARGETS], sizes.y);
    work += (size_t)image * sizes.w;
    __global float *cost = (__global float *)(work + sizes.z);
    __global int *partner = work + sizes.z + sizes.x * sizes.y;
    objects += (size_t)image * sizes.x * DET_WORDS;
    match += (size_t)image * sizes.x * 2;
    for (int i = LANE; i < a * b; i += LANES) {
        int o = i / b, t = i - o * b, label = targets[t * TARGET_WORDS + TARGET_LABEL];
        bool fits = label < 0 || label == objects[o * DET_WORDS + DET_LABEL];
        float gain = fits ? iou(box_at(objects + o * DET_WORDS + DET_BOX), box_at(targets + t * TARGET_WORDS)) : 0.0f;
        cost[a <= b ? i : t * a + o] = 1.0f - gain;
    }
    lap l = LAP_AT(work, min(a, b), max(a, b));
    SYNC();
    pair_up(&l, cost, partner, a, b);
    for (int o = LANE; o < a; o += LANES) {
        int t = partner[o];
        match[2 * o] = t;
        match[2 * o + 1] =
            as_int(t < 0 ? 0.0f : iou(box_at(objects + o * DET_WORDS + DET_BOX), box_at(targets + t * TARGET_WORDS)));
    }
}

/* Whether an object that no track has begins one: with a score above `high`, where that is set. */
static bool begins(__global const int *object, float high) {
    return high <= 0.0f || as_float(object[DET_SCORE]) > high;
}

/* Takes the objects of one image over into the tracks: matched tracks move, others age and end, the objects left start
 * new ones in their order. One work-item does this. */
static void update(__global int *state, __global const int *objects, __global const int *partner, __global int *match,
                   __global int *seen, int a, int age, int motion, float high) {
    __global int *tracks = state + ST_HEADER;
    int count = state[ST_COUNT], kept = 0;
    for (int t = 0; t < count; t++) seen[t] = -1;
    for (int o = 0; o < a; o++)
        if (partner[o] >= 0) seen[partner[o]] = o;
    for (int t = 0; t < count; t++) {
        __global int *from = tracks + t * TR_WORDS, *to = tracks + kept * TR_WORDS;
        int16 track = vload16(0, from);
        if (seen[t] >= 0) {
            int4 box = vload4(0, objects + seen[t] * DET_WORDS + DET_BOX);
            float4 step = (as_float4(box) - as_float4(track.s4567)) / (float)(track.s2 + 1);
            if (motion) track.s89ab = as_int4(track.sc ? 0.5f * (as_float4(track.s89ab) + step) : step);
            track.s4567 = box;
            track.sc++;
        }
        track.s2 = seen[t] < 0 ? track.s2 + 1 : 0;
        if (track.s2 > age) continue;
        vstore16(track, 0, to);
        kept++;
    }
    int over = kept - TRACKS;
    for (int o = 0; o < a; o++) over += partner[o] < 0 && begins(objects + o * DET_WORDS, high);
    while (over > 0) { /* those unseen for longest make room, of several the oldest */
        int oldest = 0, left = 0;
        for (int t = 0; t < kept; t++) oldest = max(oldest, tracks[t * TR_WORDS + TR_AGE]);
        for (int t = 0; t < kept; t++) {
            if (over > 0 && tracks[t * TR_WORDS + TR_AGE] == oldest)
                over--;
            else
                vstore16(vload16(t, tracks), left++, tracks);
        }
        kept = left;
    }
    for (int o = 0; o < a; o++) {
        if (partner[o] >= 0) continue;
        __global const int *d = objects + o * DET_WORDS;
        bool begun = begins(d, high);
        match[2 * o] = begun ? ++state[ST_LAST] : -1;
        match[2 * o + 1] = 0;
        if (!begun) continue;
        int16 track = 0;
        track.s01 = (int2)(state[ST_LAST], d[DET_LABEL]);
        track.s4567 = vload4(0, d + DET_BOX);
        vstore16(track, kept++, tracks);
    }
    state[ST_COUNT] = kept;
}

/* match [n, max_objects, 2]: track id and IoU of each object; images one after the other. work: solver state, costs,
 * partners, places. sizes: max_objects, ints of solver state, most frames a track survives unseen. One group. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
match_tracks(__global int *match, __global int *state, __global int *work, __global const int *objects,
             __global const int *counts, __global const uint *upload, int4 sizes, float least, float high) {
    LAP_ROOM
    __global float *cost = (__global float *)(work + sizes.y);
    __global int *partner = work + sizes.y + sizes.x * TRACKS, *seen = partner + sizes.x, *first = seen + TRACKS;
    int stages = high > 0.0f ? 2 : 1, motion = sizes.w;
    uint flags = upload[UP_FLAGS];
    __global const int *before = state + (flags & UP_TRACK_HALF ? STATE_WORDS : 0);
    if (!(flags & UP_TRACK_HALF)) state += STATE_WORDS;
    __global const int *tracks = state + ST_HEADER;
    for (int i = LANE; i < ST_HEADER + TR_WORDS * before[ST_COUNT]; i += LANES) state[i] = before[i];
    SYNC();
    if (LANE == 0 && (flags & UP_RESET_TRACKS)) state[ST_LAST] = state[ST_COUNT] = 0;
    SYNC();
    for (int image = 0; image < (int)upload[UP_COUNT]; image++) {
        int a = counts[4 * image], b = state[ST_COUNT];
        for (int t = LANE; t < b; t += LANES) seen[t] = 0;
        SYNC();
        for (int stage = 0; stage < stages; stage++) { /* strong objects first, then weak ones and the tracks that are left */
            for (int i = LANE; i < a * b; i += LANES) {
                int o = i / b, t = i - o * b;
                __global const int *object = objects + o * DET_WORDS, *track = tracks + t * TR_WORDS;
                float gain = iou(box_at(object + DET_BOX), expected(track, motion));
                if (gain < least || track[TR_LABEL] != object[DET_LABEL]) gain = 0.0f;
                if (begins(object, high) != (stage == 0) || seen[t]) gain = 0.0f;
                cost[a <= b ? i : t * a + o] = 1.0f - gain;
            }
            lap l = LAP_AT(work, min(a, b), max(a, b));
            SYNC();
            pair_up(&l, cost, partner, a, b);
            for (int o = LANE; o < a; o += LANES) {
                if (stage && partner[o] < 0) partner[o] = first[o];
                first[o] = partner[o];
                if (partner[o] >= 0) seen[partner[o]] = 1;
            }
            SYNC();
        }
        for (int o = LANE; o < a; o += LANES) {
            int t = partner[o];
            if (t < 0) continue;
            match[2 * o] = tracks[t * TR_WORDS + TR_ID];
            match[2 * o + 1] =
                as_int(iou(box_at(objects + o * DET_WORDS + DET_BOX), expected(tracks + t * TR_WORDS, motion)));
        }
        SYNC();
        if (LANE == 0) update(state, objects, partner, match, seen, a, sizes.z, motion, high);
        SYNC();
        objects += sizes.x * DET_WORDS;
        match += 2 * sizes.x;
    }
}

static float focal(float logit) {
    float p = 1.0f / (1.0f + ist_exp_float(-logit)), r = 1.0f - p;
    float c = 0.25f * (r * r) * -log(p + 1e-8f) - 0.75f * (p * p) * -log(1.0f - p + 1e-8f);
    return logit != logit ? logit : c;
}

/* D-FINE's matching cost (matcher.md 1) of query q and target t of each image, target-major: cost [n, max_targets,
 * queries]; dims [n, 2] = targets, queries. sizes: queries, classes, ld and c0 of the logits; place: ld and c0 of the
 * boxes, max_targets. One work-item per (query, target, image). */
__kernel void set_cost(__global float *cost, __global int *dims, __global const float *logits,
                       __global const float *boxes, __global const uint *upload, int4 sizes, int4 place) {
    int q = get_global_id(0), t = get_global_id(1), image = get_global_id(2);
    bool live = image < (int)upload[UP_COUNT];
    __global const uint *im = upload + UP_HEADER + image * IM_WORDS;
    int count = live ? min((int)im[IM_TARGETS], place.z) : 0;
    if (q == 0 && t == 0) {
        dims[2 * image] = count;
        dims[2 * image + 1] = sizes.x;
    }
    if (t >= count || q >= sizes.x) return;
    __global const int *target = (__global const int *)upload + im[IM_TARGET_AT] + t * TARGET_WORDS;
    size_t row = (size_t)image * sizes.x + q;
    __global const float *x = logits + row * sizes.z + sizes.w;
    int label = target[TARGET_LABEL];
    float logit = label >= 0 && label < sizes.y ? x[label] : x[0];
    if (label < 0)
        for (int c = 1; c < sizes.y; c++) logit = fmax(logit, x[c]);

    float2 extent = (float2)((float)im[IM_WIDTH], (float)im[IM_HEIGHT]);
    float4 g = box_at(target), b = vload4(0, boxes + row * place.x + place.y);
    g = (float4)((g.xy + g.zw) * 0.5f / extent, (g.zw - g.xy) / extent);
    float4 d = fabs(b - g);
    float l1 = d.x + d.y + d.z + d.w;
    float4 bc = (float4)(b.xy - 0.5f * fmax(b.zw, 0.0f), b.xy + 0.5f * fmax(b.zw, 0.0f));
    float4 gc = (float4)(g.xy - 0.5f * fmax(g.zw, 0.0f), g.xy + 0.5f * fmax(g.zw, 0.0f));
    float inside = area((float4)(fmax(bc.xy, gc.xy), fmin(bc.zw, gc.zw)));
    float all = area(bc) + area(gc) - inside;
    float hull = area((float4)(fmin(bc.xy, gc.xy), fmax(bc.zw, gc.zw)));
    float giou = inside / all - (hull - all) / hull;
    float v = 2.0f * focal(logit) + 5.0f * l1 - 2.0f * giou;
    /* a NaN anywhere is cost 1; the bound keeps fixed point from overflowing */
    cost[((size_t)image * place.z + t) * sizes.x + q] = v != v ? 1.0f : clamp(v, -1e8f, 1e8f);
}

/* match [n, max_objects, 2] from query_of [n, max_targets]: an object gets the target of its query when it has the
 * target's label or no other object of that query does and it comes first. sizes: max_objects, max_targets. One
 * work-item per object. */
__kernel void set_apply(__global int *match, __global const int *query_of, __global const int *objects,
                        __global const int *counts, __global const uint *upload, int4 sizes) {
    int o = get_global_id(0), image = get_global_id(1);
    if (image >= (int)upload[UP_COUNT] || o >= counts[4 * image]) return;
    __global const uint *im = upload + UP_HEADER + image * IM_WORDS;
    __global const int *targets = (__global const int *)upload + im[IM_TARGET_AT];
    objects += (size_t)image * sizes.x * DET_WORDS;
    int query = objects[o * DET_WORDS + DET_QUERY], found = -1;
    for (int t = 0; t < min((int)im[IM_TARGETS], sizes.y); t++)
        if (query_of[image * sizes.y + t] == query) found = t;
    float overlap = 0.0f;
    if (found >= 0) {
        int label = targets[found * TARGET_WORDS + TARGET_LABEL], best = -1;
        for (int i = 0; i < counts[4 * image]; i++) {
            if (objects[i * DET_WORDS + DET_QUERY] != query) continue;
            if (best < 0) best = i;
            if (objects[i * DET_WORDS + DET_LABEL] == label) {
                best = i;
                break;
            }
        }
        if (best != o)
            found = -1;
        else
            overlap = iou(box_at(objects + o * DET_WORDS + DET_BOX), box_at(targets + found * TARGET_WORDS));
    }
    size_t at = 2 * ((size_t)image * sizes.x + o);
    match[at] = found;
    match[at + 1] = as_int(overlap);
}
