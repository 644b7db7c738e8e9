/* Objects and prompts from the detector's raw output (Peterande/D-FINE, src/zoo/dfine/postprocessor.py).
 *
 * Three steps around the top-k operator: sigmoid scores, threshold and class filter per image, one flat prompt list
 * over the batch. LANES work-items share one problem: 1 on CPUs, 64 elsewhere. */
#ifndef LANES
#define LANES 1
#endif
#if LANES == 1
#define SYNC()
#define LANE 0
#else
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#define LANE   ((int)get_local_id(0))
#endif

/* y[n, q * c + i] = sigmoid(logits[n, q, i]), NaN stays NaN. One work-item per query on CPUs, per
 * value elsewhere. */
__kernel void scores(__global float *y, __global const float *logits, __global const uint *upload, scores_args arg) {
    int n = get_global_id(1), c = arg.classes;
    int q = LANES == 1 ? get_global_id(0) : get_global_id(0) / c, i = LANES == 1 ? 0 : get_global_id(0) - q * c;
    if (n >= (int)upload[UP_COUNT] || q >= arg.queries) return;
    __global const float *x = logits + ((size_t)n * arg.queries + q) * arg.logits_ld + arg.logits_c0;
    y += ((size_t)n * arg.queries + q) * c;
#if LANES == 1
    for (; i + 16 <= c; i += 16) {
        float16 v = vload16(0, x + i), s = 1.0f / (1.0f + ist_exp_float16(-v));
        vstore16(select(s, v, v != v), 0, y + i);
    }
    for (; i < c; i++)
#endif
        y[i] = x[i] != x[i] ? x[i] : 1.0f / (1.0f + ist_exp_float(-x[i]));
}

/* The flat list over the batch: first object of each image into counts[n, 2], total, image_of[p], prompts [p, 4] in the
 * segmenter's coordinates; zeros from total on. One group; `end` is its local memory. */
static void flatten_all(__global int *counts, __global int *total, __global int *image_of, __global float *prompts,
                        __global const int *objects, __global const uint *upload, int batch, int max_objects,
                        __local int *end) {
    if (LANE == 0) {
        int all = 0;
        for (int n = 0; n < batch; n++) {
            counts[4 * n + 2] = all;
            counts[4 * n + 3] = 0;
            all += counts[4 * n];
        }
        *total = *end = all;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    for (int n = 0; n < batch; n++) {
        __global const uint *im = IMAGE_AT(upload, n);
        for (int i = LANE; i < counts[4 * n]; i += LANES) {
            int p = counts[4 * n + 2] + i;
            float4 b = as_float4(vload4(0, objects + ((size_t)n * max_objects + i) * DET_WORDS + DET_BOX));
            image_of[p] = n;
            prompts[4 * p] = scaled(b.x, im[IM_SCALE_X], im[IM_SCALE_X_LOW]);
            prompts[4 * p + 1] = scaled(b.y, im[IM_SCALE_Y], im[IM_SCALE_Y_LOW]);
            prompts[4 * p + 2] = scaled(b.z, im[IM_SCALE_X], im[IM_SCALE_X_LOW]);
            prompts[4 * p + 3] = scaled(b.w, im[IM_SCALE_Y], im[IM_SCALE_Y_LOW]);
        }
    }
    for (int p = *end + LANE; p < batch * max_objects; p += LANES) {
        image_of[p] = 0;
        vstore4((float4)(0.0f), p, prompts);
    }
}

/* objects [n, max_objects, DET_WORDS] and counts [n, 4] of image n from the sorted candidates best[n, k]; `keep` one
 * byte per class. Counts of images beyond the batch are 0. ONE: the only image, whose group makes the flat list too. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
pick(__global int *objects, __global int *counts, __global const float *score, __global const int *best,
     __global const float *boxes, __global const uchar *keep, __global const uint *upload, pick_args arg
#ifdef ONE
     , __global int *total, __global int *image_of, __global float *prompts
#endif
) {
    __local int before[LANES + 1];
    int n = get_group_id(0), k = arg.candidates, c = arg.classes, run = (k + LANES - 1) / LANES;
    int from = min(LANE * run, k), to = min(from + run, k), kept = 0;
    bool live = n < (int)upload[UP_COUNT];
    __global const float *s = score + (size_t)n * arg.queries * c;
    best += n * k;
    if (live)
        for (int i = from; i < to; i++) kept += s[best[i]] > arg.threshold && keep[best[i] % c];
    before[LANE + 1] = kept;
    SYNC();
    if (LANE == 0) {
        before[0] = 0;
        for (int l = 0; l < LANES; l++) before[l + 1] += before[l];
        int all = before[LANES];
        counts[4 * n] = min(all, arg.max_objects);
        counts[4 * n + 1] = max(all - arg.max_objects, 0);
    }
    SYNC();
    float4 extent = convert_float4((int4)((int)IMAGE_AT(upload, n)[IM_WIDTH], (int)IMAGE_AT(upload, n)[IM_HEIGHT],
                                          (int)IMAGE_AT(upload, n)[IM_WIDTH], (int)IMAGE_AT(upload, n)[IM_HEIGHT]));
    int slot = before[LANE];
    for (int i = live ? from : to; i < to && slot < arg.max_objects; i++) {
        int flat = best[i], q = flat / c;
        if (!(s[flat] > arg.threshold && keep[flat % c])) continue;
        float4 b = vload4(0, boxes + ((size_t)n * arg.queries + q) * arg.boxes_ld + arg.boxes_c0);
        float4 corners = (float4)(b.xy - 0.5f * b.zw, b.xy + 0.5f * b.zw) * extent;
        __global int *o = objects + ((size_t)n * arg.max_objects + slot++) * DET_WORDS;
        o[DET_LABEL] = flat % c;
        o[DET_SCORE] = as_int(s[flat]);
        o[DET_QUERY] = q;
        vstore4(as_int4(corners), 0, o + DET_BOX);
        o[DET_WORDS - 1] = 0;
    }
#ifdef ONE
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    flatten_all(counts, total, image_of, prompts, objects, upload, 1, arg.max_objects, before);
#endif
}

/* objects and counts of image n as pick makes them, from found [n, candidates, DET_WORDS]: those that index [n, candidates]
 * names, the first kept[n]. ONE as there. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
stay(__global int *objects, __global int *counts, __global const int *found, __global const int *index,
     __global const int *kept, __global const uint *upload, int candidates, int max_objects
#ifdef ONE
     , __global int *total, __global int *image_of, __global float *prompts
#endif
) {
    const int n = get_group_id(0), all = n < (int)upload[UP_COUNT] ? kept[n] : 0, count = min(all, max_objects);
    objects += (size_t)n * max_objects * DET_WORDS;
    found += (size_t)n * candidates * DET_WORDS;
    index += (size_t)n * candidates;
    if (LANE == 0) {
        counts[4 * n] = count;
        counts[4 * n + 1] = all - count;
    }
    for (int i = LANE; i < count; i += LANES) vstore8(vload8(index[i], found), i, objects);
#ifdef ONE
    __local int end;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    flatten_all(counts, total, image_of, prompts, objects, upload, 1, max_objects, &end);
#endif
}

/* objects [n, max_objects, DET_WORDS], counts [n, 4] and match [n, max_objects, 2] from the targets of image n. One
 * work-item per place. */
__kernel void given_boxes(__global int *objects, __global int *counts, __global int *match,
                          __global const uint *upload) {
    const int i = get_global_id(0), n = get_global_id(1), most = get_global_size(0);
    __global const uint *im = IMAGE_AT(upload, n);
    const int given = n < (int)upload[UP_COUNT] ? (int)im[IM_TARGETS] : 0;
    if (i == 0) {
        counts[4 * n] = min(given, most);
        counts[4 * n + 1] = max(given - most, 0);
    }
    if (i >= given) return;
    __global const uint *t = upload + im[IM_TARGET_AT] + (size_t)i * TARGET_WORDS;
    const size_t at = (size_t)n * most + i;
    __global int *o = objects + at * DET_WORDS;
    o[DET_LABEL] = (int)t[TARGET_LABEL];
    o[DET_SCORE] = as_int(1.0f);
    o[DET_QUERY] = -1;
    vstore4(as_int4(vload4(0, t + TARGET_BOX)), 0, o + DET_BOX);
    o[DET_WORDS - 1] = 0;
    match[2 * at] = i;
    match[2 * at + 1] = as_int(1.0f);
}

/* counts, total, image_of and prompts as flatten_all makes them. One group. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
flatten(__global int *counts, __global int *total, __global int *image_of, __global float *prompts,
        __global const int *objects, __global const uint *upload, int batch, int max_objects) {
    __local int end;
    flatten_all(counts, total, image_of, prompts, objects, upload, batch, max_objects, &end);
}
