/* May guidance trust what was found? Weights of masks, scores S1 to S4 and C1 to C3, and a state per track, behind the
 * packet of a batch of one image. codes/frame, codes/trust and frame.cl are joined in front.
 *
 * All sums are integers, so that no order of adding changes a bit; what is divided comes from 128-bit differences of
 * them. Masks here are dense: bit y % 32 of word x * blocks + y / 32, of the whole frame. Places of tracks are numbered 0
 * to TRUST_TRACKS - 1; weights [place][edge, in, out], masks [place][turn], gray [turn], shown [place]. */

#define TABLE(table, turn)       ((table) + (turn) * (TT_HEADER + TRUST_TRACKS * TT_WORDS))
#define PLACE(table, turn, slot) (TABLE(table, turn) + TT_HEADER + (slot) * TT_WORDS)

enum { LOST, RELOCALIZING, VISIBLE };

/* ---- the frame as 8-bit gray: ITU-R 601 luma as Pillow computes it; 16 bit through the window ---- */

static uint sample_at(__global const uchar *p, __global const uint *im, uint i) {
    return im[IM_SAMPLE] == 1 ? p[i]
                              : through_window((uint)p[2 * i] | (uint)p[2 * i + 1] << 8, (int)im[IM_LOW], (int)im[IM_HIGH]);
}

/* One pixel each. */
__kernel void trust_gray(__global uchar *gray, __global const uchar *pixels, __global const uint *upload,
                         trust_args a) {
    int x = get_global_id(0), y = get_global_id(1);
    __global const uint *im = IMAGE_AT(upload, 0);
    ulong offset = (ulong)im[IM_OFFSET_HIGH] << 32 | im[IM_OFFSET_LOW];
    uint channels = im[IM_CHANNELS], bytes = im[IM_SAMPLE], value;
    __global const uchar *p = pixels + offset + (ulong)y * im[IM_STRIDE] + (ulong)x * channels * bytes;
    if (channels < 3)
        value = sample_at(p, im, 0);
    else
        value = (sample_at(p, im, 0) * 19595u + sample_at(p, im, 1) * 38470u + sample_at(p, im, 2) * 7471u +
                 0x8000u) >>
                16;
    gray[(ulong)a.turn * a.width * a.height + (ulong)y * a.width + x] = (uchar)value;
}

/* ---- which object is whose ---- */

static int find_place(__global const int *table, int turn, int id) {
    for (int s = 0; s < TRUST_TRACKS; s++)
        if (PLACE(table, turn, s)[TT_ID] == id) return s;
    return -1;
}

/* A free place, else that of the track that has not been seen for longest; -1: all are of this frame. */
static int make_place(__global const int *table, int turn) {
    int best = -1, unseen = 0;
    for (int s = 0; s < TRUST_TRACKS; s++) {
        __global const int *p = PLACE(table, turn, s);
        if (p[TT_ID] == 0) return s;
        if (p[TT_OBJECT] < 0 && p[TT_UNSEEN] >= unseen + (best >= 0)) best = s, unseen = p[TT_UNSEEN];
    }
    return best;
}

static void take_place(__global int *p, int id) {
    for (int i = 0; i < TT_WORDS; i++) p[i] = 0;
    p[TT_ID] = id;
    p[TT_STATE] = RELOCALIZING;
    p[TT_OBJECT] = -1;
}

/* One work-item: the new table from the old one. */
__kernel void trust_begin(__global int *table, __global const int *packet, trust_args a) {
    __global const int *before = TABLE(table, 1 - a.turn);
    __global int *now = TABLE(table, a.turn);
    bool same = !a.reset && before[TT_WIDTH] == a.width && before[TT_HEIGHT] == a.height;
    int count = packet[PK_HEADER + PI_OBJECTS];
    for (int i = 0; i < TT_HEADER + TRUST_TRACKS * TT_WORDS; i++) now[i] = a.reset ? 0 : before[i];
    now[TT_WIDTH] = same ? a.width : 0; /* until trust_end: whether there is a frame before */
    for (int s = 0; s < TRUST_TRACKS; s++) {
        __global int *p = PLACE(table, a.turn, s);
        p[TT_OBJECT] = -1;
        p[TT_KEEP] = 0;
        if (!same) p[TT_MASKED] = p[TT_DEEP] = p[TT_SHOWN] = 0;
    }
    if (!a.tracks) { /* the best object, whatever it is */
        __global int *p = PLACE(table, a.turn, 0);
        if (count > 0 && p[TT_ID] == 0) take_place(p, 1);
        if (count > 0) p[TT_OBJECT] = 0;
    }
    for (int pass = 0; a.tracks && pass < 2; pass++) /* those that are known first */
        for (int k = 0; k < count; k++) {
            int id = packet[a.objects_at + k * OB_WORDS + OB_MATCH], s = id > 0 ? find_place(table, a.turn, id) : -1;
            if (id <= 0 || (pass == 0 && s < 0)) continue;
            if (s < 0 && (s = make_place(table, a.turn)) >= 0) take_place(PLACE(table, a.turn, s), id);
            if (s >= 0) PLACE(table, a.turn, s)[TT_OBJECT] = k;
        }
    for (int s = 0; s < TRUST_TRACKS; s++) {
        __global int *p = PLACE(table, a.turn, s);
        if (p[TT_ID] == 0) continue;
        p[TT_UNSEEN] = p[TT_OBJECT] < 0 ? p[TT_UNSEEN] + 1 : 0;
        if (p[TT_OBJECT] >= 0) p[TT_HALF] = 1 - p[TT_HALF];
        if (a.tracks && p[TT_UNSEEN] > a.age) p[TT_ID] = 0;
    }
}

/* The record of a place's object; 0: it has none. */
static __global const int *object_of(__global const int *table, __global const int *packet, int slot, trust_args a) {
    __global const int *p = PLACE(table, a.turn, slot);
    return p[TT_ID] && p[TT_OBJECT] >= 0 ? packet + a.objects_at + p[TT_OBJECT] * OB_WORDS : 0;
}

/* ---- weights ---- */

/* Rows of the frame among the 32 of block w. */
static uint inside(int w, trust_args a) {
    int rows = a.height - 32 * w;
    return rows >= 32 ? 0xffffffffu : rows > 0 ? (1u << rows) - 1 : 0;
}

/* Word w of column x of an object's mask, which lies in the packet or in the store, cut to its window. */
static uint mask_word(__global const int *packet, __global const uint *store, __global const int *o, int x, int w,
                      trust_args a) {
    int c = x - o[OB_X0], b = w - o[OB_Y0] / 32, words = o[OB_COLUMN_WORDS];
    if (c < 0 || c >= o[OB_COLUMNS] || b < 0 || b >= words || x >= a.width || w >= a.blocks) return 0;
    uint j = (uint)o[OB_OFFSET] + (uint)(c * words + b), stored = (uint)packet[PK_STORED_WORDS];
    return (j < stored ? (uint)packet[a.masks_at + j] : store[j - stored]) & inside(w, a);
}

/* A word and the ones above and below, spread by one row, or by two, both ways. */
static uint spread1(uint above, uint m, uint below) {
    return m | m << 1 | above >> 31 | m >> 1 | below << 31;
}
static uint spread2(uint above, uint m, uint below) {
    return spread1(above, m, below) | m << 2 | above >> 30 | m >> 2 | below << 30;
}

/* A word of a place each: the dense mask, edge, in and out. */
__kernel void trust_weights(__global int *packet, __global const uint *store, __global const int *table,
                            __global uint *masks, trust_args a) {
    int x = get_global_id(0), w = get_global_id(1), slot = get_global_id(2);
    __global const int *o = object_of(table, packet, slot, a);
    if (!o) return;
    size_t words = (size_t)a.width * a.blocks, at = (size_t)x * a.blocks + w;
    uint m = 0, grown = 0, grown2 = 0, shrunk = 0;
    for (int dx = -2; dx <= 2; dx++) {
        uint up = mask_word(packet, store, o, x + dx, w - 1, a), mid = mask_word(packet, store, o, x + dx, w, a),
             down = mask_word(packet, store, o, x + dx, w + 1, a);
        grown2 |= spread2(up, mid, down);
        if (dx == 0) m = mid;
        if (dx < -1 || dx > 1) continue;
        grown |= spread1(up, mid, down);
        if (x + dx < 0 || x + dx >= a.width) continue; /* what is outside takes nothing away */
        shrunk |= spread1(w > 0 ? ~up : 0, ~mid & inside(w, a), ~down & inside(w + 1, a));
    }
    uint in = m & ~shrunk;
    __global uint *weights = (__global uint *)packet + a.weights_at + 3 * words * slot;
    weights[at] = grown & ~in & inside(w, a);
    weights[words + at] = in;
    weights[2 * words + at] = grown2 & ~m & inside(w, a);
    masks[words * (2 * slot + PLACE(table, a.turn, slot)[TT_HALF]) + at] = m;
}

/* ---- sums ---- */

/* Columns in which an object's regions can have pixels: first and last + 1. */
static int2 columns_of(__global const int *o, trust_args a) {
    return (int2)(max(o[OB_X0] - 2, 0), min(o[OB_X0] + o[OB_COLUMNS] + 2, a.width));
}

static int laplacian(__global const uchar *g, int x, int y, trust_args a) {
    size_t row = (size_t)y * a.width, up = y > 0 ? row - a.width : row, down = y + 1 < a.height ? row + a.width : row;
    return (int)g[up + x] + g[down + x] + g[row + max(x - 1, 0)] + g[row + min(x + 1, a.width - 1)] - 4 * (int)g[row + x];
}

/* A part of a column of a place each, every TRUST_PARTS-th word: its part of every sum. partial [place][sum][width][part]. */
__kernel void trust_columns(__global long *partial, __global const int *packet, __global const int *table,
                            __global const uint *masks, __global const uchar *gray, __global const uchar *shown,
                            trust_args a) {
    int item = get_global_id(0), x = item / TRUST_PARTS, part = item % TRUST_PARTS, slot = get_global_id(1);
    __global const int *o = object_of(table, packet, slot, a), *p = PLACE(table, a.turn, slot);
    if (!o || x < columns_of(o, a).x || x >= columns_of(o, a).y) return;
    size_t words = (size_t)a.width * a.blocks, pixels = (size_t)a.width * a.height, at = (size_t)x * a.blocks;
    __global const uint *edge = (__global const uint *)packet + a.weights_at + 3 * words * slot + at;
    __global const uint *mask = masks + words * (2 * slot + p[TT_HALF]) + at;
    __global const uint *old = masks + words * (2 * slot + 1 - p[TT_HALF]) + at;
    __global const uchar *now = gray + pixels * a.turn, *before = gray + pixels * (1 - a.turn);
    __global const uchar *seen = shown + pixels * slot;
    bool has_before = TABLE(table, a.turn)[TT_WIDTH] != 0;
    long sums[SUMS];
    for (int q = 0; q < SUMS; q++) sums[q] = 0;
    int first = max(o[OB_Y0] / 32 - 1, 0), end = min(o[OB_Y0] / 32 + o[OB_COLUMN_WORDS] + 1, a.blocks);
    for (int w = first + part; w < end; w += TRUST_PARTS) {
        uint e = edge[w], i = edge[words + w], out = edge[2 * words + w], m = mask[w];
        if (p[TT_MASKED]) sums[SUM_M_BOTH] += popcount(m & old[w]);
        for (uint left = e | i | out; left; left &= left - 1) {
            uint bit = left & (0u - left);
            int y = 32 * w + 31 - (int)clz(bit);
            long v = now[(size_t)y * a.width + x];
            if (e & bit) {
                long l = laplacian(now, x, y, a), b = has_before ? before[(size_t)y * a.width + x] : 0;
                sums[SUM_E_N]++, sums[SUM_E_L] += l, sums[SUM_E_LL] += l * l;
                sums[SUM_E_X] += v, sums[SUM_E_XX] += v * v;
                sums[SUM_E_Y] += b, sums[SUM_E_YY] += b * b, sums[SUM_E_XY] += v * b;
            }
            if (i & bit) sums[SUM_I_N]++, sums[SUM_I_X] += v, sums[SUM_I_XX] += v * v;
            if (out & bit) sums[SUM_O_N]++, sums[SUM_O_X] += v, sums[SUM_O_XX] += v * v;
            if (m & bit) {
                long b = p[TT_SHOWN] ? seen[(size_t)y * a.width + x] : 0;
                sums[SUM_M_N]++, sums[SUM_M_ROW] += y, sums[SUM_M_X] += v, sums[SUM_M_XX] += v * v;
                sums[SUM_M_Y] += b, sums[SUM_M_YY] += b * b, sums[SUM_M_XY] += v * b;
            }
        }
    }
    for (int q = 0; q < SUMS; q++) partial[((size_t)slot * SUMS + q) * a.width * TRUST_PARTS + item] = sums[q];
}

/* A sum of a place each: over its columns. */
__kernel void trust_sums(__global long *sums, __global const long *partial, __global const int *packet,
                         __global const int *table, trust_args a) {
    int q = get_global_id(0), slot = get_global_id(1);
    __global const int *o = object_of(table, packet, slot, a);
    long sum = 0;
    if (!o) return;
    int2 range = columns_of(o, a) * TRUST_PARTS;
    for (int i = range.x; i < range.y; i++) sum += partial[((size_t)slot * SUMS + q) * a.width * TRUST_PARTS + i];
    sums[slot * SUMS + q] = sum;
}

/* A line of a place each, for how far a mask goes without a break: whether column x has a set pixel, then rows in words.
 * lines [place][width + blocks]. */
__kernel void trust_lines(__global uint *lines, __global const int *packet, __global const int *table,
                          __global const uint *masks, trust_args a) {
    int i = get_global_id(0), slot = get_global_id(1), w = i - a.width;
    __global const int *o = object_of(table, packet, slot, a);
    if (!o) return;
    __global const uint *mask =
        masks + (size_t)a.width * a.blocks * (2 * slot + PLACE(table, a.turn, slot)[TT_HALF]);
    int2 range = columns_of(o, a);
    uint any = 0;
    if (w < 0)
        for (int b = 0; b < a.blocks && i >= range.x && i < range.y; b++) any |= mask[(size_t)i * a.blocks + b];
    else
        for (int x = range.x; x < range.y; x++) any |= mask[(size_t)x * a.blocks + w];
    lines[(size_t)slot * (a.width + a.blocks) + i] = any;
}

/* ---- scores ---- */

/* a b - c d, exact until the last step. */
static float difference(ulong a, ulong b, ulong c, ulong d) {
    ulong low = a * b, high = mul_hi(a, b), low2 = c * d, high2 = mul_hi(c, d);
    bool negative = high < high2 || (high == high2 && low < low2);
    ulong l = negative ? low2 - low : low - low2;
    ulong h = negative ? high2 - high - (low2 < low) : high - high2 - (low < low2);
    float value = (float)h * 18446744073709551616.0f + (float)l;
    return negative ? -value : value;
}

/* n^2 times the variance of n values with that sum and sum of squares. */
static float spread_of(long n, long sum, long squares) {
    return difference((ulong)n, (ulong)squares, abs(sum), abs(sum));
}

static float variance(long n, long sum, long squares) {
    return n ? spread_of(n, sum, squares) / ((float)n * (float)n) : 0.0f;
}

/* (1 + r) / 2; r is 0 where one of both does not vary. The sums are of n, x, xx, y, yy, xy. */
static float likeness(long n, long x, long xx, long y, long yy, long xy) {
    float vx = spread_of(n, x, xx), vy = spread_of(n, y, yy);
    float r = vx > 0.0f && vy > 0.0f ? difference((ulong)n, (ulong)xy, (ulong)x, (ulong)y) / (sqrt(vx) * sqrt(vy)) : 0.0f;
    return 0.5f + 0.5f * clamp(r, -1.0f, 1.0f);
}

static float contrast(__global const long *s) {
    if (!s[SUM_I_N] || !s[SUM_O_N]) return 0.0f;
    float in = (float)s[SUM_I_X] / (float)s[SUM_I_N], out = (float)s[SUM_O_X] / (float)s[SUM_O_N];
    float c = fabs(in - out) / sqrt(variance(s[SUM_I_N], s[SUM_I_X], s[SUM_I_XX]) +
                                    variance(s[SUM_O_N], s[SUM_O_X], s[SUM_O_XX]) + 1.0f);
    return c / (1.0f + c);
}

/* Longest run of lines with a set pixel, of those across the longer side of the mask's box. */
static float longest_run(__global const int *o, __global const uint *lines, trust_args a) {
    int x0 = o[OB_MASK_BOX], y0 = o[OB_MASK_BOX + 1], x1 = o[OB_MASK_BOX + 2], y1 = o[OB_MASK_BOX + 3];
    bool columns = x1 - x0 >= y1 - y0;
    int run = 0, best = 0, count = columns ? x1 - x0 + 1 : y1 - y0 + 1;
    for (int i = 0; i < count; i++) {
        uint any = columns ? lines[x0 + i] : lines[a.width + (y0 + i) / 32] & (1u << ((y0 + i) % 32));
        run = any ? run + 1 : 0;
        best = max(best, run);
    }
    return (float)best / (float)count;
}

static float box_iou(__global const int *o) {
    float x0 = as_float(o[OB_BOX]), y0 = as_float(o[OB_BOX + 1]), x1 = as_float(o[OB_BOX + 2]),
          y1 = as_float(o[OB_BOX + 3]);
    float mx0 = o[OB_MASK_BOX], my0 = o[OB_MASK_BOX + 1], mx1 = o[OB_MASK_BOX + 2] + 1, my1 = o[OB_MASK_BOX + 3] + 1;
    float both = fmax(fmin(x1, mx1) - fmax(x0, mx0), 0.0f) * fmax(fmin(y1, my1) - fmax(y0, my0), 0.0f);
    float all = fmax(x1 - x0, 0.0f) * fmax(y1 - y0, 0.0f) + (mx1 - mx0) * (my1 - my0) - both;
    return all > 0.0f ? both / all : 0.0f;
}

/* S1 to S4, C1 to C3 of an object whose mask has pixels. */
static void judge(float *score, __global const int *o, __global const int *p, __global const long *s,
                  __global const uint *lines, bool has_before, trust_args a) {
    float v = variance(s[SUM_E_N], s[SUM_E_L], s[SUM_E_LL]);
    long all = s[SUM_M_N] + p[TT_AREA] - s[SUM_M_BOTH];
    float overlap = p[TT_MASKED] && all > 0 ? (float)s[SUM_M_BOTH] / (float)all : 0.0f;
    float depth = (float)s[SUM_M_ROW] / (float)s[SUM_M_N];
    score[0] = v / (v + 100.0f);
    score[1] = contrast(s);
    score[2] = longest_run(o, lines, a);
    score[3] = !s[SUM_E_N]   ? 0.0f
               : has_before ? likeness(s[SUM_E_N], s[SUM_E_X], s[SUM_E_XX], s[SUM_E_Y], s[SUM_E_YY], s[SUM_E_XY])
                             : 0.5f;
    score[4] = 0.5f * (box_iou(o) + overlap);
    score[5] = p[TT_SHOWN] ? likeness(s[SUM_M_N], s[SUM_M_X], s[SUM_M_XX], s[SUM_M_Y], s[SUM_M_YY], s[SUM_M_XY]) : 0.5f;
    score[6] = p[TT_DEEP] ? fmax(0.0f, 1.0f - fabs(depth - as_float(p[TT_DEPTH])) / (0.1f * (float)a.height)) : 0.0f;
}

/* The state after this frame; *low counts frames in a row. What is low is never visible, so that nothing flickers. */
static int next_state(int state, __global int *low, float score, float s, float c, trust_args a) {
    bool is_low = score <= a.tau_conf || s < a.theta_off;
    int count = *low;
    *low = 0;
    if (state == LOST) return score > a.tau_conf ? RELOCALIZING : LOST;
    if (state == VISIBLE) return is_low ? RELOCALIZING : VISIBLE;
    if (is_low) {
        if (count + 1 >= a.n_lost) return LOST;
        *low = count + 1;
        return RELOCALIZING;
    }
    return s > a.theta_on && c > a.theta_cont ? VISIBLE : RELOCALIZING;
}

/* A place each: scores, state, its record, and its part of the table for the next frame. */
__kernel void trust_end(__global int *packet, __global int *table, __global const long *sums,
                        __global const uint *lines, trust_args a) {
    int slot = get_global_id(0);
    __global int *p = PLACE(table, a.turn, slot), *r = packet + a.records_at + slot * TS_WORDS;
    __global const int *o = object_of(table, packet, slot, a);
    __global const long *s = sums + slot * SUMS;
    bool has_before = TABLE(table, a.turn)[TT_WIDTH] != 0;
    float score[7] = {0, 0, 0, 0, 0, 0, 0};
    if (o && s[SUM_M_N]) judge(score, o, p, s, lines + (size_t)slot * (a.width + a.blocks), has_before, a);
    float visible = (score[0] + score[1] + score[2] + score[3]) / 4.0f;
    float continuous = (score[4] + score[5] + score[6]) / 3.0f;
    if (p[TT_ID]) p[TT_STATE] = next_state(p[TT_STATE], p + TT_LOW, o ? as_float(o[OB_SCORE]) : 0.0f, visible, continuous, a);
    r[TS_ID] = p[TT_ID];
    r[TS_OBJECT] = p[TT_OBJECT];
    r[TS_STATE] = p[TT_STATE];
    for (int i = 0; i < 7; i++) r[TS_SCORES + i] = as_int(score[i]);
    r[TS_S] = as_int(visible);
    r[TS_C] = as_int(continuous);
    if (!o) return;
    p[TT_MASKED] = 1;
    p[TT_AREA] = (int)s[SUM_M_N];
    if (s[SUM_M_N]) p[TT_DEPTH] = as_int((float)s[SUM_M_ROW] / (float)s[SUM_M_N]), p[TT_DEEP] = 1;
    p[TT_KEEP] = p[TT_STATE] == VISIBLE;
    if (p[TT_KEEP]) p[TT_SHOWN] = 1;
}

/* TRUST_KEPT pixels of a place each: the frame as the last in which the track was visible. The first also says what size
 * it had. */
__kernel void trust_keep(__global uchar *shown, __global int *table, __global const uchar *gray, trust_args a) {
    size_t i = (size_t)get_global_id(0) * TRUST_KEPT, pixels = (size_t)a.width * a.height;
    int slot = get_global_id(1);
    if (!i && !slot) TABLE(table, a.turn)[TT_WIDTH] = a.width, TABLE(table, a.turn)[TT_HEIGHT] = a.height;
    if (!PLACE(table, a.turn, slot)[TT_KEEP]) return;
    for (size_t end = min(i + TRUST_KEPT, pixels); i < end; i++) shown[pixels * slot + i] = gray[pixels * a.turn + i];
}
