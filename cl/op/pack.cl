/* Everything the host gets, in one packet (frame.h): records, prefix sums over the masks' words, the words themselves.
 *
 * Masks that do not fit the packet are moved together at the start of the mask store. LANES work-items share one
 * problem: 1 on CPUs, 64 elsewhere. */
#ifndef LANES
#define LANES 1
#endif
#ifndef GROUPS
#define GROUPS 32
#endif
#ifdef SCORE_F32
#define ST          float
#define SCORE(p, i) ((p)[i])
#else
#define ST          T
#define SCORE(p, i) LOAD(p, i)
#endif
#define STATS 8
#if LANES == 1
#define SYNC()
#define LANE 0
#else
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define LANE   ((int)get_local_id(0))
#endif

#define RECORD(packet, k) ((packet) + PK_HEADER + batch * PK_IMAGE_WORDS + (k)*OB_WORDS)

/* The record of object k, but for its place in the mask stream. sizes: batch, max_objects, has a match, has masks;
 * place: ld, c0 of the score. One work-item per object. */
__kernel void records(__global int *packet, __global const int *objects, __global const int *counts,
                      __global const int *image_of, __global const int *total, __global const int *match,
                      __global const int *stats, __global const ST *score, int4 sizes, int4 place) {
    int k = get_global_id(0), batch = sizes.x;
    if (k >= *total) return;
    int n = image_of[k], slot = n * sizes.y + k - counts[4 * n + 2];
    __global const int *d = objects + (size_t)slot * DET_WORDS;
    __global int *r = RECORD(packet, k);
    for (int i = 0; i < OB_WORDS; i++) r[i] = 0;
    r[OB_LABEL] = d[DET_LABEL];
    r[OB_SCORE] = d[DET_SCORE];
    vstore4(vload4(0, d + DET_BOX), 0, r + OB_BOX);
    r[OB_QUERY] = d[DET_QUERY];
    r[OB_MATCH] = sizes.z ? match[2 * slot] : -1;
    r[OB_MATCH_IOU] = sizes.z ? match[2 * slot + 1] : 0;
    r[OB_IMAGE] = n;
    if (!sizes.w) return;
    r[OB_MASK_SCORE] = as_int(SCORE(score, (size_t)k * place.x + place.y));
    int area = 0, x0 = INT_MAX, x1 = -1, y0 = INT_MAX, y1 = -1, high = 0, low = 0;
    for (int g = 0; g < GROUPS; g++) {
        int8 s = vload8(0, stats + ((size_t)k * GROUPS + g) * STATS);
        area += s.s0;
        x0 = min(x0, s.s1);
        x1 = max(x1, s.s2);
        y0 = min(y0, s.s3);
        y1 = max(y1, s.s4);
        high += s.s5;
        low += s.s6;
    }
    r[OB_STABILITY] = as_int(low ? (float)high / (float)low : 0.0f);
    if (!area) return;
    r[OB_AREA] = area;
    vstore4((int4)(x0, y0, x1, y1), 0, r + OB_MASK_BOX);
    r[OB_X0] = x0;
    r[OB_Y0] = y0 & ~31;
    r[OB_COLUMNS] = x1 - x0 + 1;
    r[OB_COLUMN_WORDS] = y1 / 32 - y0 / 32 + 1;
}

/* Places of the masks in the stream, image blocks and header. One group. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void places(__global int *packet,
                                                                        __global const int *counts,
                                                                        __global const int *total,
                                                                        __global const uint *upload, int batch) {
    __local uint sums[LANES];
    __local uint stored[LANES];
    uint base = 0, room = upload[UP_PACKET_WORDS], fits = 0;
    int count = *total;
    for (int from = 0; from < count; from += LANES) {
        int k = from + LANE;
        __global int *r = RECORD(packet, min(k, count - 1));
        uint words = k < count ? (uint)r[OB_COLUMNS] * (uint)r[OB_COLUMN_WORDS] : 0u, sum = words;
        sums[LANE] = words;
        SYNC();
        for (int step = 1; step < LANES; step <<= 1) {
            uint add = LANE >= step ? sums[LANE - step] : 0u;
            SYNC();
            sums[LANE] = sum = sum + add;
            SYNC();
        }
        if (k < count) r[OB_OFFSET] = (int)(base + sum - words);
        if (base + sum <= room) fits = base + sum;
        base += sums[LANES - 1];
        SYNC();
    }
    stored[LANE] = fits;
    SYNC();
    if (LANE == 0) {
        for (int l = 1; l < LANES; l++) fits = max(fits, stored[l]);
        for (int i = 0; i < PK_HEADER; i++) packet[i] = 0;
        packet[PK_IMAGES] = (int)upload[UP_COUNT];
        packet[PK_OBJECTS] = count;
        packet[PK_MASK_WORDS] = (int)base;
        packet[PK_STORED_WORDS] = (int)fits;
    }
    for (int n = LANE; n < batch; n += LANES)
        vstore4((int4)(counts[4 * n], counts[4 * n + 1], counts[4 * n + 2], 0), n, packet + PK_HEADER);
}

/* Word i of a mask's window: where it is in the store. blocks: words per column of the image. */
static size_t source(__global const int *r, int i, int blocks) {
    int words = r[OB_COLUMN_WORDS], column = i / words;
    return (size_t)(r[OB_X0] + column) * blocks + r[OB_Y0] / 32 + (i - column * words);
}

static int blocks_of(__global const int *r, __global const uint *upload) {
    return ((int)IMAGE_AT(upload, r[OB_IMAGE])[IM_HEIGHT] + 31) / 32;
}

/* Windows of the masks that fit. Groups (part, object); sizes: batch, max_objects, parts. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void windows(__global int *packet,
                                                                         __global const uint *store,
                                                                         __global const int *total,
                                                                         __global const uint *upload, int4 sizes) {
    int part = get_group_id(0), k = get_group_id(1), batch = sizes.x;
    if (k >= *total) return;
    __global const int *r = RECORD(packet, k);
    int columns = r[OB_COLUMNS], words = r[OB_COLUMN_WORDS], blocks = blocks_of(r, upload);
    if ((uint)r[OB_OFFSET] + (uint)(columns * words) > (uint)packet[PK_STORED_WORDS]) return;
    __global int *to = RECORD(packet, batch * sizes.y) + (uint)r[OB_OFFSET];
    store += (size_t)k * upload[UP_STORE_WORDS];
#if LANES == 1
    for (int c = part * columns / sizes.z; c < (part + 1) * columns / sizes.z; c++) {
        __global const uint *from = store + (size_t)(r[OB_X0] + c) * blocks + r[OB_Y0] / 32;
        for (int i = 0; i < words; i++) to[c * words + i] = (int)from[i];
    }
#else
    for (int i = part * LANES + LANE; i < columns * words; i += sizes.z * LANES)
        to[i] = (int)store[source(r, i, blocks)];
#endif
}

/* The other masks, moved to the start of the store one after the other: the place of a word never lies beyond the word
 * itself, so going upwards nothing is overwritten that is still to be read. One group. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void spill(__global uint *store, __global const int *packet,
                                                                       __global const uint *upload, int batch) {
    int count = packet[PK_OBJECTS];
    uint stored = (uint)packet[PK_STORED_WORDS];
    if (stored == (uint)packet[PK_MASK_WORDS]) return;
    for (int k = 0; k < count; k++) {
        __global const int *r = RECORD(packet, k);
        int size = r[OB_COLUMNS] * r[OB_COLUMN_WORDS], blocks = blocks_of(r, upload);
        if ((uint)r[OB_OFFSET] < stored || !size) continue;
        __global uint *from = store + (size_t)k * upload[UP_STORE_WORDS];
        __global uint *to = store + ((uint)r[OB_OFFSET] - stored);
        for (int i = 0; i < size; i += LANES) {
            uint v = i + LANE < size ? from[source(r, i + LANE, blocks)] : 0u;
            SYNC();
            if (i + LANE < size) to[i + LANE] = v;
            SYNC();
        }
    }
}
