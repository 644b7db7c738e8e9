/* Masks of everything between the decoder and the packet (graph/found.h; GRID_POINTS and on of graph/nodes.h): points
 * taken batch by batch, filters, non-maximum suppression. Every count is on the device; what is appended keeps its
 * order, so that two runs give the same bits. LANES work-items share one problem: 1 on CPUs. */
static inline __global const int *candidate_at(__global const int *found, int i) {
    return found + FD_HEADER + (size_t)i * CD_WORDS;
}

/* A list of found.h, behind room for `capacity` candidates. */
#define LIST(found, which, capacity) ((found) + FD_HEADER + (size_t)(capacity) * (CD_WORDS + (which)))

/* How many of the group's work-items before this one have `v`; *all: how many in all. */
static int before(bool v, __local int *room, int *all) {
#if LANES == 1
    *all = v;
    return 0;
#else
    SYNC();
    room[LANE] = v;
    SYNC();
    int sum = v;
    for (int step = 1; step < LANES; step <<= 1) {
        int add = LANE >= step ? room[LANE - step] : 0;
        SYNC();
        room[LANE] = sum = sum + add;
        SYNC();
    }
    *all = room[LANES - 1];
    return sum - v;
#endif
}

__kernel void found_none(__global int *found) {
    found[get_global_id(0)] = 0;
}

/* Work-item p: the p-th of the next points, or of those to be asked again. */
__kernel void grid_points(__global float *points, __global int *labels, __global int *image_of, __global int *total,
                          __global int *content, __global const int *found, __global const uint *upload,
                          grid_points_args arg) {
    const int p = (int)get_global_id(0), prompts = arg.prompts;
    const bool again = found[FD_SELECTED];
    const int from = again ? found[FD_STORED] : found[FD_TAKEN];
    const int all = again ? found[FD_KEPT] : (int)upload[UP_GRID], count = clamp(all - from, 0, prompts);
    if (p < arg.crops) {
        __global const uint *im = IMAGE_AT(upload, p);
        vstore2((int2)((int)im[IM_SEG_WIDTH], (int)im[IM_SEG_HEIGHT]), p, content);
    }
    if (p == 0) *total = count;
    if (p >= prompts) return;
    float x = 0.0f, y = 0.0f;
    int crop = 0;
    if (p < count) {
        const int kept = again ? LIST(found, FL_KEPT, arg.capacity)[from + p] : 0;
        const int point = again ? candidate_at(found, kept)[CD_POINT] : from + p;
        __global const uint *at = upload + upload[UP_GRID_AT] + (size_t)point * GR_WORDS;
        x = as_float(at[GR_X]), y = as_float(at[GR_Y]), crop = (int)at[GR_CROP];
    }
    vstore4((float4)(x, y, 0.0f, 0.0f), p, points);
    vstore2((int2)(1, -1), p, labels);
    image_of[p] = crop;
}

/* One group. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
grid_picks(__global int *picks, __global int *pick_image, __global int *pick_total, __global const int *found,
           __global const float *iou, __global const int *image_of, __global const int *total, grid_filter_args arg) {
    __local int room[LANES];
    const int points = *total, masks = arg.each;
    int count = 0;
    if (found[FD_SELECTED]) {
        const int from = found[FD_STORED];
        for (int j = LANE; j < points; j += LANES) {
            const int kept = LIST(found, FL_KEPT, arg.capacity)[from + j];
            vstore2((int2)(j * masks + candidate_at(found, kept)[CD_MASK], from + j), j, picks);
            pick_image[j] = image_of[j];
        }
        count = points;
    } else {
        for (int first = 0; first < points * masks; first += LANES) {
            const int item = first + LANE, point = item / masks;
            bool take = item < points * masks;
            int all;
            if (take && arg.filtered)
                take = iou[(size_t)point * arg.iou_ld + arg.iou_c0 + item - point * masks] > arg.threshold;
            const int at = count + before(take, room, &all);
            count += all;
            if (!take) continue;
            vstore2((int2)(item, -1), at, picks);
            pick_image[at] = image_of[point];
        }
    }
    if (LANE == 0) *pick_total = count;
}

/* One group an object. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
mask_sums(__global int *sums, __global const int *stats, __global const int *total, int all_groups, int object_groups) {
    __local int room[LANES];
    const int k = get_group_id(0), count = *total;
    if (k >= count) return;
    const whole w = whole_of(stats, k, parts_of(count, all_groups, object_groups), room);
    if (LANE == 0) vstore8((int8)(w.area, w.x0, w.x1, w.y0, w.y1, w.high, w.low, 0), k, sums);
}

/* a / b rounded to nearest, as thresholds compare it: where OpenCL's division is off by some last bits, one step of
 * Newton's mends them. */
static float quotient(float a, float b) {
    const float q = a / b;
    return fma(fma(-q, b, a), 1.0f / b, q);
}

/* Whether a box's edge lies beside the crop's and not beside the image's. */
static bool cut_off(int at, int crop, int image) {
    return abs_diff(at, crop) <= 20u && abs_diff(at, image) > 20u;
}

/* Least and most x, least and most y of a mask in a crop; an empty one lies in the crop's corner. */
static int4 box_of(int8 sums, __global const uint *crop) {
    const int left = (int)crop[IM_CROP_X], top = (int)crop[IM_CROP_Y];
    return sums.s0 ? sums.s1234 : (int4)(left, left, top, top);
}

static void put_sums(__global int *candidate, int8 sums, __global const uint *crop) {
    candidate[CD_AREA] = sums.s0;
    vstore4(box_of(sums, crop), 0, candidate + CD_X0);
    candidate[CD_HIGH] = sums.s5;
    candidate[CD_LOW] = sums.s6;
}

/* One group. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
grid_keep(__global int *found, __global const int *picks, __global const int *pick_image,
          __global const int *pick_total, __global const int *sums, __global const float *iou,
          __global const int *total, __global const uint *upload, grid_filter_args arg) {
    __local int room[LANES];
    const int points = *total, taken = found[FD_TAKEN], stored = found[FD_STORED], selected = found[FD_SELECTED];
    const int picked = *pick_total, said = selected ? picked : 0, count = selected ? 0 : picked; /* one of two loops */
    int candidates = found[FD_CANDIDATES];
    SYNC();
    /* what is said of a mask is what was stored, though another batch may differ in last bits */
    for (int k = LANE; k < said; k += LANES)
        put_sums(found + FD_HEADER + (size_t)LIST(found, FL_KEPT, arg.capacity)[stored + k] * CD_WORDS,
                 vload8((size_t)k, sums), IMAGE_AT(upload, pick_image[k]));
    for (int first = 0; first < count; first += LANES) {
        const int k = min(first + LANE, count - 1), item = picks[2 * k], point = item / arg.each, crop = pick_image[k];
        __global const uint *im = IMAGE_AT(upload, crop), *image = IMAGE_AT(upload, 0);
        const int8 s = vload8((size_t)k, sums);
        const int left = (int)im[IM_CROP_X], top = (int)im[IM_CROP_Y];
        const int4 box = box_of(s, im);
        /* of none 0, as its part is; a choice of quotients ends some compilers where work-items are 64 */
        const float stability = quotient((float)s.s5, (float)max(s.s6, 1));
        bool take = first + LANE < count && (!arg.filtered || stability >= arg.threshold);
        int all;
        if (cut_off(box.s0, left, 0) || cut_off(box.s1, left + (int)im[IM_WIDTH], (int)image[IM_WIDTH]) ||
            cut_off(box.s2, top, 0) || cut_off(box.s3, top + (int)im[IM_HEIGHT], (int)image[IM_HEIGHT]))
            take = false;
        const int at = candidates + before(take, room, &all);
        candidates += all;
        if (take && at < arg.capacity) {
            __global int *c = found + FD_HEADER + (size_t)at * CD_WORDS;
            c[CD_IOU] = as_int(iou[(size_t)point * arg.iou_ld + arg.iou_c0 + item - point * arg.each]);
            put_sums(c, s, im);
            c[CD_POINT] = taken + point;
            c[CD_MASK] = item - point * arg.each;
            c[CD_CROP] = crop;
            c[CD_CHANGED] = 0;
#if LANES == 1
            found[FD_OF_CROP + crop]++;
#else
            atomic_inc(found + FD_OF_CROP + crop);
#endif
        }
    }
    SYNC();
    if (LANE) return;
    if (selected) {
        found[FD_STORED] = stored + points;
    } else {
        found[FD_CANDIDATES] = min(candidates, arg.capacity);
        found[FD_TAKEN] = taken + points;
    }
}

/* ---- non-maximum suppression ---- */

/* Candidates of crops before this one. */
static int first_of(__global const int *found, int crop) {
    int first = 0;
    for (int i = 0; i < crop; i++) first += found[FD_OF_CROP + i];
    return first;
}

/* What is suppressed: candidates within each crop, what is left of them across crops, what was kept of those and
 * cleaned then. */
enum { WITHIN, ACROSS, CLEANED };

static int count_of(__global const int *found, int stage) {
    return found[stage == WITHIN ? FD_CANDIDATES : stage == ACROSS ? FD_SURVIVORS : FD_KEPT];
}

/* What a candidate is sorted by, larger first: its quality, the score of its crop, whether it was changed. NaN before
 * all. */
static float key_of(__global const int *found, __global const uint *upload, int i, int stage) {
    __global const int *c = candidate_at(found, i);
    if (stage == CLEANED) return c[CD_CHANGED] ? 0.0f : 1.0f;
    const float key = as_float(stage == ACROSS ? (int)IMAGE_AT(upload, c[CD_CROP])[IM_CROP_SCORE] : c[CD_IOU]);
    return isnan(key) ? INFINITY : key;
}

/* Work-item i: the place of candidate i among those of its crop, else of the i-th that is left among all. */
__kernel void grid_rank(__global int *found, __global const uint *upload, int capacity, int stage) {
    const int i = (int)get_global_id(0);
    __global const int *list = LIST(found, stage == CLEANED ? FL_KEPT : FL_SURVIVORS, capacity);
    if (i >= count_of(found, stage) || (stage == CLEANED && found[FD_CLEANED])) return;
    const int mine = stage == WITHIN ? i : list[i], crop = candidate_at(found, mine)[CD_CROP];
    const int from = stage == WITHIN ? first_of(found, crop) : 0;
    const int to = stage == WITHIN ? from + found[FD_OF_CROP + crop] : count_of(found, stage);
    const float key = key_of(found, upload, mine, stage);
    int rank = from;
    for (int j = from; j < to; j++) {
        const float other = key_of(found, upload, stage == WITHIN ? j : list[j], stage);
        rank += other > key || (other == key && j < i);
    }
    __global const int *c = candidate_at(found, mine);
    LIST(found, FL_ORDER, capacity)[rank] = mine;
    vstore4((float4)((float)c[CD_X0], (float)c[CD_Y0], (float)c[CD_X1], (float)c[CD_Y1]), rank,
            (__global float *)LIST(found, FL_BOXES, capacity));
}

/* Products and sums are rounded each by itself; at the head of functions, since what follows in a joined program is
 * others'. */
static float area_of(float4 b) {
#pragma OPENCL FP_CONTRACT OFF
    return (b.s2 - b.s0) * (b.s3 - b.s1);
}

/* Whether the IoU is above the threshold as torchvision.ops.nms rounds both: see nms.cl. */
static bool overlaps(float4 a, float4 b, float threshold, float half_step) {
#pragma OPENCL FP_CONTRACT OFF
    const float w = fmax(fmin(a.s2, b.s2) - fmax(a.s0, b.s0), 0.0f);
    const float h = fmax(fmin(a.s3, b.s3) - fmax(a.s1, b.s1), 0.0f);
    const float inter = w * h, both = area_of(a) + area_of(b) - inter;
    return inter > 0.0f && fma(-threshold, both, inter) > both * half_step;
}

/* Group g: candidates of crop g, else all. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
grid_suppress(__global int *found, int capacity, int stage, float threshold, float half_step) {
    __local uint alive[ALIVE_WORDS];
    const int crop = get_group_id(0), from = stage == WITHIN ? first_of(found, crop) : 0;
    const int count = stage == WITHIN ? found[FD_OF_CROP + crop] : count_of(found, stage);
    if (stage == CLEANED && found[FD_CLEANED]) return;
    __global const float *boxes = (__global const float *)LIST(found, FL_BOXES, capacity) + 4 * (size_t)from;
    __global int *is_alive = LIST(found, FL_ALIVE, capacity) + from;
    for (int i = LANE; i < (count + 31) / 32; i += LANES) alive[i] = UINT_MAX;
    SYNC();
    for (int i = 0; i < count; i++) {
        if (!(alive[i / 32] >> (i % 32) & 1u)) continue;
        const float4 box = vload4(i, boxes);
        for (int j = i + 1 + LANE; j < count; j += LANES) {
            if (!(alive[j / 32] >> (j % 32) & 1u) || !overlaps(box, vload4(j, boxes), threshold, half_step)) continue;
#if LANES == 1
            alive[j / 32] &= ~(1u << (j % 32));
#else
            atomic_and(alive + j / 32, ~(1u << (j % 32)));
#endif
        }
        SYNC();
    }
    for (int i = LANE; i < count; i += LANES) is_alive[i] = (int)(alive[i / 32] >> (i % 32) & 1u);
}

/* One group: what is alive, in order, becomes the survivors or, at the `last` time, what is kept, at most `most`. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void grid_compact(__global int *found, int capacity,
                                                                              int stage, int last, int most) {
    __local int room[LANES];
    const int count = count_of(found, stage);
    if (stage == CLEANED && found[FD_CLEANED]) return;
    __global const int *order = LIST(found, FL_ORDER, capacity), *is_alive = LIST(found, FL_ALIVE, capacity);
    __global int *to = LIST(found, last ? FL_KEPT : FL_SURVIVORS, capacity);
    int kept = 0;
    for (int first = 0; first < count; first += LANES) {
        const int i = min(first + LANE, count - 1);
        const bool take = first + LANE < count && is_alive[i];
        int all;
        const int at = kept + before(take, room, &all);
        kept += all;
        if (take) to[at] = order[i];
    }
    SYNC();
    if (LANE) return;
    if (!last) {
        found[FD_SURVIVORS] = kept;
        return;
    }
    found[FD_KEPT] = min(kept, most);
    if (stage == CLEANED) {
        found[FD_CLEANED] = 1;
        found[FD_STORED] = 0;
    } else {
        found[FD_DROPPED] = kept - min(kept, most);
        found[FD_SELECTED] = 1;
    }
}

/* Work-item k: object k of the image. */
__kernel void grid_objects(__global int *objects, __global int *counts, __global int *total, __global int *image_of,
                           __global int *match, __global int *stats, __global float *score, __global const int *found,
                           int capacity) {
    const int k = (int)get_global_id(0), kept = found[FD_KEPT];
    image_of[k] = 0;
    if (k == 0) {
        *total = kept;
        vstore4((int4)(kept, found[FD_DROPPED], 0, 0), 0, counts);
    }
    if (k >= kept) return;
    __global const int *c = candidate_at(found, LIST(found, FL_KEPT, capacity)[k]);
    __global int *o = objects + (size_t)k * DET_WORDS;
    const int4 box = vload4(0, c + CD_X0);
    o[DET_LABEL] = 0;
    o[DET_SCORE] = c[CD_IOU];
    o[DET_QUERY] = c[CD_MASK];
    vstore4(as_int4(convert_float4(box.s0213)), 0, o + DET_BOX);
    o[DET_WORDS - 1] = 0;
    vstore2((int2)(c[CD_POINT], as_int(1.0f)), k, match);
    vstore8((int8)(c[CD_AREA], box.s0, box.s1, box.s2, box.s3, c[CD_HIGH], c[CD_LOW], 0), k, stats);
    score[k] = as_float(c[CD_IOU]);
}
