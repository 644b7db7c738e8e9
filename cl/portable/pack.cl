/* Everything the host gets, in one packet (frame.h): records, prefix sums over the masks' words, the words themselves.
 *
 * Masks that do not fit the packet are moved together at the start of the mask store. LANES work-items share one
 * problem: 1 on CPUs, 64 elsewhere; SPILL_LANES where one group has all of it to do. */
#ifndef LANES
#define LANES 1
#endif
#ifndef SPILL_LANES
#define SPILL_LANES LANES
#endif
#ifdef SCORE_F32
#define ST          float
#define SCORE(p, i) ((p)[i])
#else
#define ST          T
#define SCORE(p, i) LOAD(p, i)
#endif

#define RECORD(packet, k) ((packet) + PK_HEADER + batch * PK_IMAGE_WORDS + (k)*OB_WORDS)

/* The record of object k, but for its place in the mask stream. One group per object. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
records(__global int *packet, __global const int *objects, __global const int *counts, __global const int *image_of,
        __global const int *total, __global const int *match, __global const int *stats, __global const ST *score,
        records_args arg) {
    __local int room[LANES];
    int k = get_group_id(0), batch = arg.batch, count = *total;
    if (k >= count) return;
    whole w = no_mask();
    if (arg.masked) w = whole_of(stats, k, parts_of(count, arg.all_groups, arg.object_groups), room);
    if (LANE) return;
    int n = image_of[k], slot = n * arg.max_objects + k - counts[4 * n + 2];
    __global const int *d = objects + (size_t)slot * DET_WORDS;
    __global int *r = RECORD(packet, k);
    for (int i = 0; i < OB_WORDS; i++) r[i] = 0;
    r[OB_LABEL] = d[DET_LABEL];
    r[OB_SCORE] = d[DET_SCORE];
    vstore4(vload4(0, d + DET_BOX), 0, r + OB_BOX);
    r[OB_QUERY] = d[DET_QUERY];
    r[OB_MATCH] = arg.matched ? match[2 * slot] : -1;
    r[OB_MATCH_IOU] = arg.matched ? match[2 * slot + 1] : 0;
    r[OB_IMAGE] = n;
    if (!arg.masked) return;
    const int prompt = k / arg.scores_each;
    r[OB_MASK_SCORE] = as_int(SCORE(score, (size_t)prompt * arg.score_ld + arg.score_c0 + k % arg.scores_each));
    r[OB_STABILITY] = as_int(w.low ? (float)w.high / (float)w.low : 0.0f);
    if (!w.area) return;
    r[OB_AREA] = w.area;
    vstore4((int4)(w.x0, w.y0, w.x1, w.y1), 0, r + OB_MASK_BOX);
    r[OB_X0] = w.x0;
    r[OB_Y0] = w.y0 & ~31;
    r[OB_COLUMNS] = w.x1 - w.x0 + 1;
    r[OB_COLUMN_WORDS] = w.y1 / 32 - w.y0 / 32 + 1;
}

static uint words_of(__global const int *r) {
    return (uint)r[OB_COLUMNS] * (uint)r[OB_COLUMN_WORDS];
}

/* PI_WINDOW of image n. */
static int window_of(__global const uint *upload, int n) {
    __global const uint *im = IMAGE_AT(upload, n);
    int low = (int)im[IM_LOW], high = (int)im[IM_HIGH];
    if (n >= (int)upload[UP_COUNT] || im[IM_SAMPLE] != 2 || low < 0 || low >= high || high > 65536) return 0;
    return (int)((uint)low | (uint)(high - 1) << 16);
}

/* Places of the masks in the stream, image blocks and header: one group's work. */
static void head(__global int *packet, __global const int *counts, __global const uint *upload, int batch, int count,
                 __local uint *sums, __local uint *stored) {
    uint base = 0, room = upload[UP_PACKET_WORDS], fits = 0;
    for (int from = 0; from < count; from += LANES) {
        int k = from + LANE;
        __global int *r = RECORD(packet, min(k, count - 1));
        uint words = k < count ? words_of(r) : 0u, sum = words;
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
        vstore4((int4)(counts[4 * n], counts[4 * n + 1], counts[4 * n + 2], window_of(upload, n)), n, packet + PK_HEADER);
}

/* Without masks: the head alone. One group. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void places(__global int *packet,
                                                                        __global const int *counts,
                                                                        __global const int *total,
                                                                        __global const uint *upload, int batch) {
    __local uint sums[LANES];
    __local uint stored[LANES];
    head(packet, counts, upload, batch, *total, sums, stored);
}

/* Word i of a mask's window: where it is in the store. blocks: words per column of the image. */
static size_t source(__global const int *r, int i, int blocks) {
    int words = r[OB_COLUMN_WORDS], column = i / words;
    return (size_t)(r[OB_X0] + column) * blocks + r[OB_Y0] / 32 + (i - column * words);
}

static int blocks_of(__global const int *r, __global const uint *upload) {
    return ((int)IMAGE_AT(upload, r[OB_IMAGE])[IM_HEIGHT] + 31) / 32;
}

/* Group 0 writes the head; the others copy the windows of the masks that fit, each object's in parts_of parts, for
 * which they find its place themselves. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
windows(__global int *packet, __global const uint *store, __global const int *counts, __global const int *total,
        __global const uint *upload, windows_args arg) {
    __local uint sums[LANES];
    __local uint stored[LANES];
    int item = (int)get_group_id(0) - 1, batch = arg.batch, count = *total;
    int parts = parts_of(count, arg.all_groups, arg.object_groups);
    if (item < 0) {
        head(packet, counts, upload, batch, count, sums, stored);
        return;
    }
    int k = item / parts, part = item - k * parts;
    if (k >= count) return;
    __global const int *r = RECORD(packet, k);
    uint offset = 0;
    for (int j = LANE; j < k; j += LANES) offset += words_of(RECORD(packet, j));
#if LANES > 1
    offset = (uint)reduced((int)offset, (__local int *)sums, false);
#endif
    int columns = r[OB_COLUMNS], words = r[OB_COLUMN_WORDS], blocks = blocks_of(r, upload);
    if (offset + words_of(r) > upload[UP_PACKET_WORDS]) return;
    __global int *to = RECORD(packet, batch * arg.max_objects) + offset;
    store += (size_t)k * upload[UP_STORE_WORDS];
#if LANES == 1
    for (int c = part * columns / parts; c < (part + 1) * columns / parts; c++) {
        __global const uint *from = store + (size_t)(r[OB_X0] + c) * blocks + r[OB_Y0] / 32;
        for (int i = 0; i < words; i++) to[c * words + i] = (int)from[i];
    }
#else
    for (int i = part * LANES + LANE; i < columns * words; i += parts * LANES)
        to[i] = (int)store[source(r, i, blocks)];
#endif
}

/* The other masks, moved to the start of the store one after the other: the place of a word never lies beyond the word
 * itself, so going upwards nothing is overwritten that is still to be read. One group, of SPILL_LANES. */
#define EACH 16 /* words that a work-item has at a time */
__kernel __attribute__((reqd_work_group_size(SPILL_LANES, 1, 1))) void
spill(__global uint *store, __global const int *packet, __global const uint *upload, int batch) {
    int count = packet[PK_OBJECTS];
    uint stored = (uint)packet[PK_STORED_WORDS];
    if (stored == (uint)packet[PK_MASK_WORDS]) return;
    for (int k = 0; k < count; k++) {
        __global const int *r = RECORD(packet, k);
        int size = r[OB_COLUMNS] * r[OB_COLUMN_WORDS], blocks = blocks_of(r, upload);
        if ((uint)r[OB_OFFSET] < stored || !size) continue;
        __global uint *from = store + (size_t)k * upload[UP_STORE_WORDS];
        __global uint *to = store + ((uint)r[OB_OFFSET] - stored);
        for (int i = 0; i < size; i += EACH * SPILL_LANES) {
            uint v[EACH];
            for (int e = 0; e < EACH; e++) {
                int at = i + e * SPILL_LANES + (int)get_local_id(0);
                v[e] = from[source(r, min(at, size - 1), blocks)];
            }
            SYNC();
            for (int e = 0; e < EACH; e++) {
                int at = i + e * SPILL_LANES + (int)get_local_id(0);
                if (at < size) to[at] = v[e];
            }
            SYNC();
        }
    }
}

/* The low-resolution logits of object k behind the room for masks: work-item (i, k). */
__kernel void logits(__global int *packet, __global const float *low_res, __global const int *total,
                     __global const uint *upload, logits_args arg) {
    const int i = (int)get_global_id(0), k = (int)get_global_id(1);
    if (k >= *total || i >= arg.pixels) return;
    packet[(size_t)arg.first + upload[UP_PACKET_WORDS] + (size_t)k * arg.pixels + i] =
        as_int(low_res[(size_t)k * arg.logits_ld + arg.logits_c0 + i]);
}
