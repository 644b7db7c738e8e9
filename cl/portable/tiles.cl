/* Detections of tiles become an image's (graph/tiled.h; TILE_KEEP and on of graph/nodes.h). Every count is on the device;
 * what is appended keeps its order, so that two runs give the same bits. LANES work-items share a group; codes/frame,
 * codes/tiled and frame.cl are joined in front. */
#ifndef LANES
#define LANES 1
#endif
#if LANES == 1
#define SYNC()
#define LANE 0
#else
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define LANE   ((int)get_local_id(0))
#endif

#define ROW(found, i)  ((found) + TL_HEADER + (i) * DET_WORDS)
#define STAYS(found)   ((found) + TL_HEADER + TL_CAPACITY * DET_WORDS)

static inline float4 box_of(__global const int *row) {
    return as_float4(vload4(0, row + DET_BOX));
}

/* Appends objects [n, most, DET_WORDS] of the upload's images, tiles one after the other, in pixels of the image that they
 * are of; counts [n, 4]. One group. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
tile_keep(__global int *found, __global const int *objects, __global const int *counts, __global const uint *upload,
          int most) {
    const bool first = upload[UP_FLAGS] & UP_FIRST_TILE;
    const int images = (int)upload[UP_COUNT];
    int before = first ? 0 : found[TL_COUNT], lost = first ? 0 : found[TL_DROPPED];
    SYNC();
    for (int n = 0; n < images; n++, objects += most * DET_WORDS, counts += 4) {
        __global const uint *im = IMAGE_AT(upload, n);
        const int all = counts[0], count = min(all, TL_CAPACITY - before);
        const float x = (float)im[IM_CROP_X], y = (float)im[IM_CROP_Y];
        for (int i = LANE; i < count; i += LANES) {
            int8 o = vload8(i, objects);
            const float4 b = box_of(objects + i * DET_WORDS) + (float4)(x, y, x, y);
            o.s3456 = as_int4(b);
            o.s7 = (int)upload[UP_TILE] + n;
            vstore8(o, 0, ROW(found, before + i));
        }
        before += count;
        lost += counts[1] + all - count;
    }
    if (LANE) return;
    found[TL_COUNT] = before;
    found[TL_DROPPED] = lost;
}

/* Whether a detection ends at a border of its tile that is none of the image's. */
static bool ends_at_border(__global const int *row, __global const uint *upload) {
    __global const uint *im = IMAGE_AT(upload, row[DET_WORDS - 1]);
    const float4 b = box_of(row);
    const float x0 = (float)im[IM_CROP_X], y0 = (float)im[IM_CROP_Y], w = (float)im[IM_WIDTH], h = (float)im[IM_HEIGHT];
    const float near_x = w / (float)TL_BORDER, near_y = h / (float)TL_BORDER;
    return (x0 > 0.0f && b.x < x0 + near_x) || (y0 > 0.0f && b.y < y0 + near_y) ||
           (im[IM_CROP_X] + im[IM_WIDTH] < im[IM_WHOLE_WIDTH] && b.z > x0 + w - near_x) ||
           (im[IM_CROP_Y] + im[IM_HEIGHT] < im[IM_WHOLE_HEIGHT] && b.w > y0 + h - near_y);
}

/* Intersection over the area of a. */
static float covered(float4 a, float4 b) {
    const float w = fmin(a.z, b.z) - fmax(a.x, b.x), h = fmin(a.w, b.w) - fmax(a.y, b.y);
    const float area = (a.z - a.x) * (a.w - a.y);
    return w > 0.0f && h > 0.0f && area > 0.0f ? w * h / area : 0.0f;
}

/* Of what NMS kept, index [*kept] best first, those that stay: not parts of others. Where tiles have uploads of their own,
 * those with no object that is among the first `most` have no image any more. One group; work is a flag for each. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
tile_stay(__global int *found, __global uint *upload, __global int *work, __global const int *index,
          __global const int *kept, float iou, int agnostic, int most) {
    __local int part;
    const int count = *kept;
    for (int i = LANE; i < count; i += LANES) work[i] = ends_at_border(ROW(found, index[i]), upload) ? 1 : 0;
    SYNC();
    for (int i = 0; i < count; i++) {
        __global const int *row = ROW(found, index[i]);
        if (!work[i]) continue;
        if (LANE == 0) part = 0;
        SYNC();
        for (int k = LANE; k < count; k += LANES) {
            __global const int *other = ROW(found, index[k]);
            if (k == i || (work[k] && k > i) || work[k] == 2) continue;
            if (!agnostic && other[DET_LABEL] != row[DET_LABEL]) continue;
            if (covered(box_of(row), box_of(other)) > iou) part = 1;
        }
        SYNC();
        if (LANE == 0 && part) work[i] = 2;
        SYNC();
    }
    const int tiles = (int)upload[UP_TILES];
    for (int t = 1 + LANE; t < tiles; t += LANES) upload[upload[UP_TILE_AT] + (t - 1) * upload[UP_TILE_STEP] + UP_COUNT] = 0;
    SYNC();
    if (LANE) return;
    int stay = 0;
    for (int i = 0; i < count; i++) {
        if (work[i] == 2) continue;
        const int tile = ROW(found, index[i])[DET_WORDS - 1];
        if (tile && stay < most) upload[upload[UP_TILE_AT] + (tile - 1) * upload[UP_TILE_STEP] + UP_COUNT] = 1;
        STAYS(found)[stay++] = index[i];
    }
    found[TL_KEPT] = stay;
}

/* Work-item k: object k of the image. boxes [k, 4] in the input that the segmenter has of its tile, tile_of [k], both
 * zeros from total on; own [k] and picks [k, 2] are k. */
__kernel void tile_objects(__global int *objects, __global int *counts, __global int *total, __global int *image_of,
                           __global float *boxes, __global int *tile_of, __global int *own, __global int *picks,
                           __global const int *found,
                           __global const uint *upload) {
    const int k = (int)get_global_id(0), most = (int)get_global_size(0), stay = found[TL_KEPT], count = min(stay, most);
    image_of[k] = 0;
    tile_of[k] = 0;
    own[k] = k;
    vstore2((int2)(k), k, picks);
    vstore4((float4)(0.0f), k, boxes);
    if (k == 0) {
        *total = count;
        vstore4((int4)(count, found[TL_DROPPED] + stay - count, 0, 0), 0, counts);
    }
    if (k >= count) return;
    int8 o = vload8(0, ROW(found, STAYS(found)[k]));
    const float4 b = as_float4(o.s3456);
    __global const uint *im = IMAGE_AT(upload, o.s7);
    const float x = (float)im[IM_CROP_X], y = (float)im[IM_CROP_Y];
    tile_of[k] = o.s7;
    boxes[4 * k] = scaled(b.x - x, im[IM_SCALE_X], im[IM_SCALE_X_LOW]);
    boxes[4 * k + 1] = scaled(b.y - y, im[IM_SCALE_Y], im[IM_SCALE_Y_LOW]);
    boxes[4 * k + 2] = scaled(b.z - x, im[IM_SCALE_X], im[IM_SCALE_X_LOW]);
    boxes[4 * k + 3] = scaled(b.w - y, im[IM_SCALE_Y], im[IM_SCALE_Y_LOW]);
    o.s7 = 0;
    vstore8(o, k, objects);
}
