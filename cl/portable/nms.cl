/* Greedy non-maximum suppression, as torchvision's nms and batched_nms.
 *
 * In order of falling score, equal scores by rising index and NaN as -inf, a box is kept unless its intersection over
 * union with a kept one of its group is above the threshold. Everything is rounded as in torchvision, whose quotient
 * inter / all, all = area + area - inter, is above the float t exactly when it lies beyond the middle between t and the next
 * float (on it no quotient of floats can lie, for want of digits): when inter - t * all, in which fma makes no error near
 * there, is more than half of that step times all. NaN is above nothing.
 *
 * LANES 1, as on CPUs: one work-item per list sorts by digits, then compares each box with 16 kept ones at a time.
 * Otherwise three launches: each box counts those before it; bits of who suppresses whom, 32 boxes in a word; one group
 * per list goes through blocks of 32 boxes. */
#ifndef LANES
#define LANES 1
#endif

/* Larger is earlier; zeros of both signs are equal. */
static uint key(float v) {
    uint b = v != v ? as_uint(-INFINITY) : v == 0.0f ? 0 : as_uint(v);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}
static uint key_of(__global const float *scores, int list, int i, nms_args arg) {
    return key(scores[((size_t)list * arg.boxes + i) * arg.scores_ld + arg.scores_c0]);
}
static int count_of(__global const int *count, int list, nms_args arg) {
    return arg.count_ld ? clamp(count[(size_t)list * arg.count_ld + arg.count_c0], 0, arg.boxes) : arg.boxes;
}
static float4 box_of(__global const float *boxes, int list, int i, nms_args arg) {
    return vload4(0, boxes + ((size_t)list * arg.boxes + i) * arg.boxes_ld + arg.boxes_c0);
}
static int group_of(__global const int *group, int list, int i, nms_args arg) {
    return arg.group_ld ? group[((size_t)list * arg.boxes + i) * arg.group_ld + arg.group_c0] : 0;
}
/* Products and sums are rounded each by itself; at the head of functions, since what follows in a joined program is others'. */
static float area_of(float4 b) {
#pragma OPENCL FP_CONTRACT OFF
    return (b.z - b.x) * (b.w - b.y);
}

#if LANES == 1

/* Indices of list's first n boxes in order, to `order`; `other` has room for as many. */
static void sort(__global int *order, __global int *other, __global const float *scores, int list, int n, nms_args arg) {
    for (int i = 0; i < n; i++) order[i] = i;
    for (int shift = 0; shift < 32; shift += 8) {
        __global const int *from = shift & 8 ? other : order;
        __global int *to = shift & 8 ? order : other;
        int place[256];
        for (int d = 0; d < 256; d++) place[d] = 0;
        for (int i = 0; i < n; i++) place[key_of(scores, list, i, arg) >> shift & 255u]++;
        for (int d = 255, sum = 0; d >= 0; d--) {
            int here = place[d];
            place[d] = sum;
            sum += here;
        }
        for (int i = 0; i < n; i++) to[place[key_of(scores, list, from[i], arg) >> shift & 255u]++] = from[i];
    }
}

/* index [list, boxes]: the kept in order, -1 behind them; kept [list]: how many. work: per list 8 * room words: two
 * orders, then sides, area and group of the boxes kept so far. One work-item per list. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
nms(__global int *index, __global int *kept, __global int *work, __global const float *boxes,
    __global const float *scores, __global const int *group, __global const int *count, __global const int *limit,
    nms_args arg) {
#pragma OPENCL FP_CONTRACT OFF
    const int list = get_group_id(0), room = arg.room;
    if (list >= *limit) return;
    const int n = count_of(count, list, arg);
    work += (size_t)list * 8 * room;
    index += (size_t)list * arg.boxes;
    __global float *side = (__global float *)(work + 2 * room);
    __global int *groups = work + 7 * room;
    sort(work, work + room, scores, list, n, arg);
    int found = 0;
    for (int e = 0; e < n; e++) {
        const int i = work[e], g = group_of(group, list, i, arg);
        const float4 b = box_of(boxes, list, i, arg);
        const float area = area_of(b);
        int16 over = 0;
        for (int k = 0; k < found && !any(over); k += 16) {
            float16 w = min(vload16(0, side + 2 * room + k), b.z) - max(vload16(0, side + k), b.x);
            float16 h = min(vload16(0, side + 3 * room + k), b.w) - max(vload16(0, side + room + k), b.y);
            float16 inter = max(w, 0.0f) * max(h, 0.0f), all = vload16(0, side + 4 * room + k) + area - inter;
            int16 above = fma((float16)(-arg.threshold), all, inter) > all * arg.half_step;
            over = above & (inter > 0.0f) & (all >= 0.0f) & (vload16(0, groups + k) == g);
        }
        if (any(over)) continue;
        if (found % 16 == 0) /* of no box: nothing is above NaN */
            for (int k = found; k < found + 16; k++) side[4 * room + k] = NAN;
        side[found] = b.x;
        side[room + found] = b.y;
        side[2 * room + found] = b.z;
        side[3 * room + found] = b.w;
        side[4 * room + found] = area;
        groups[found] = g;
        index[found++] = i;
    }
    kept[list] = found;
    for (int e = found; e < arg.boxes; e++) index[e] = -1;
}

#else

#define LANE   ((int)get_local_id(0))
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#define PARTS  8 /* lanes that count for one box */
#define SORTED (LANES / PARTS)

/* Boxes in order: their indices, sides and groups, [list, room]. One group per SORTED boxes of a list. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
nms_order(__global int *order, __global float *sides, __global int *groups, __global const float *boxes,
          __global const float *scores, __global const int *group, __global const int *count,
          __global const int *limit, nms_args arg) {
    __local int before[LANES];
    const int list = get_group_id(1), first = (int)get_group_id(0) * SORTED;
    if (list >= *limit) return;
    const int n = count_of(count, list, arg);
    if (first >= n) return;
    const int i = first + LANE % SORTED, run = (n + PARTS - 1) / PARTS, from = LANE / SORTED * run;
    const uint own = key_of(scores, list, min(i, n - 1), arg);
    int sum = 0;
    for (int j = from; j < min(from + run, n); j++) {
        const uint other = key_of(scores, list, j, arg);
        sum += other > own || (other == own && j < i);
    }
    before[LANE] = sum;
    SYNC();
    if (LANE >= SORTED || i >= n) return;
    sum = 0;
    for (int p = 0; p < PARTS; p++) sum += before[p * SORTED + LANE];
    const size_t at = (size_t)list * arg.room + sum;
    order[at] = i;
    vstore4(box_of(boxes, list, i, arg), at, sides);
    groups[at] = group_of(group, list, i, arg);
}

/* over [list, words, room]: bit c of word w of box i, both in order: whether box i suppresses box 32 w + c behind it if it is
 * kept. Words of boxes behind all of their 32 are left as they are. One group per LANES boxes and word. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
nms_over(__global uint *over, __global const float *sides, __global const int *groups, __global const int *count,
         __global const int *limit, nms_args arg) {
#pragma OPENCL FP_CONTRACT OFF
    __local float side[4][32], area[32];
    __local int other[32];
    const int list = get_group_id(2), w = get_group_id(1), i = get_global_id(0);
    if (list >= *limit) return;
    const int n = count_of(count, list, arg);
    if (32 * w >= n || (int)get_group_id(0) * LANES >= min(n, 32 * w + 32)) return;
    const size_t at = (size_t)list * arg.room;
    if (LANE < 32 && 32 * w + LANE < n) {
        const float4 b = vload4(at + 32 * w + LANE, sides);
        side[0][LANE] = b.x;
        side[1][LANE] = b.y;
        side[2][LANE] = b.z;
        side[3][LANE] = b.w;
        area[LANE] = area_of(b);
        other[LANE] = groups[at + 32 * w + LANE];
    }
    SYNC();
    if (i >= min(n, 32 * w + 32)) return;
    const float4 b = vload4(at + i, sides);
    const float own = area_of(b);
    const int g = groups[at + i], end = min(32, n - 32 * w);
    uint bits = 0;
    for (int c = max(0, i + 1 - 32 * w); c < end; c++) {
        float inter = max(min(side[2][c], b.z) - max(side[0][c], b.x), 0.0f) *
                      max(min(side[3][c], b.w) - max(side[1][c], b.y), 0.0f);
        float all = own + area[c] - inter;
        bool above = fma(-arg.threshold, all, inter) > all * arg.half_step;
        bits |= (uint)(above && inter > 0.0f && all >= 0.0f && other[c] == g) << c;
    }
    over[((size_t)list * (arg.room / 32) + w) * arg.room + i] = bits;
}

/* index [list, boxes]: the kept in order, -1 behind them; kept [list]: how many. Blocks of 32 boxes one after the other:
 * which of them stay is one word, settled by every lane for itself, then each lane marks in the words that are its own
 * whom these suppress. One group per list. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
nms_keep(__global int *index, __global int *kept, __global const uint *over, __global const int *order,
         __global const int *count, __global const int *limit, nms_args arg) {
    __local uint gone[WORDS], stay[WORDS], among[2][32];
    __local int start[WORDS + 1];
    const int list = get_group_id(0), room = arg.room;
    if (list >= *limit) return;
    const int n = count_of(count, list, arg), blocks = (n + 31) / 32;
    over += (size_t)list * (room / 32) * room;
    for (int w = LANE; w < WORDS; w += LANES) gone[w] = 0;
    if (LANE < min(n, 32)) among[0][LANE] = over[LANE];
    SYNC();
    for (int b = 0; b < blocks; b++) {
        uint left = (n - 32 * b < 32 ? (1u << (n - 32 * b)) - 1u : 0xffffffffu) & ~gone[b], here = 0;
        for (int c = 0; c < 32; c++) {
            uint bit = left & 1u << c;
            here |= bit;
            left &= bit ? ~among[b & 1][c] : 0xffffffffu;
        }
        if (LANE == 0) stay[b] = here;
        for (int w = LANE; w < blocks; w += LANES) {
            __global const uint *column = over + (size_t)w * room + 32 * b;
            uint marks = 0;
            if (w <= b) continue; /* others still read those */
            for (int c = 0; c < 32; c++) marks |= here & 1u << c ? column[c] : 0u;
            gone[w] |= marks;
        }
        const int next = 32 * (b + 1) + LANE;
        if (LANE < 32 && next < n) among[(b + 1) & 1][LANE] = over[(size_t)(b + 1) * room + next];
        SYNC();
    }
    if (LANE == 0) {
        start[0] = 0;
        for (int b = 0; b < blocks; b++) start[b + 1] = start[b] + (int)popcount(stay[b]);
        kept[list] = start[blocks];
    }
    SYNC();
    index += (size_t)list * arg.boxes;
    for (int i = start[blocks] + LANE; i < arg.boxes; i += LANES) index[i] = -1;
    for (int i = LANE; i < n; i += LANES) {
        const uint word = stay[i / 32], bit = 1u << i % 32;
        if (word & bit) index[start[i / 32] + (int)popcount(word & (bit - 1u))] = order[(size_t)list * room + i];
    }
}

#endif
