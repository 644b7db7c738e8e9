/* Low-resolution mask logits -> bits at the image's size (postprocess_masks of segment-anything's modeling/sam.py):
 * bilinear LOW -> 4 LOW, the first h rows and w columns of that, bilinear -> H x W, logit > 0. -D LOW: a quarter of the
 * network's input, 256 of 1024.
 *
 * The large map is never stored. A strip of columns walks down 32 rows at a time and keeps, of the low-resolution rows
 * and of the large map's rows that the current output row lies between, the values at its own columns. Each
 * interpolation is fma(a, 1 - t, b * t), horizontal before vertical: bit for bit what PyTorch computes on CPUs.
 *
 * LANES 1: a work-item is a strip of 16 columns in a vector; else a work-item is one column of a strip of LANES. PICKS:
 * objects are named by a list (MASKS of graph/nodes.h), and lie in crops of image 0. */
#pragma OPENCL FP_CONTRACT OFF
#ifndef LANES
#define LANES 1
#endif
#ifndef LOW
#define LOW 256
#endif
#define STATS 8

#if LANES == 1
#define STRIP      16
#define V          float16
#define I          int16
#define TO_V       convert_float16
#define TO_I       convert_int16
#define FIRST(i)   ((i).s0)
#define LAST(i)    ((i).sf)
#define COLUMNS(x) ((x) + (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#define AT(p, i)                                                                                                       \
    ((float16)(p[i.s0], p[i.s1], p[i.s2], p[i.s3], p[i.s4], p[i.s5], p[i.s6], p[i.s7], p[i.s8], p[i.s9], p[i.sa],      \
               p[i.sb], p[i.sc], p[i.sd], p[i.se], p[i.sf]))
#define IF(c) (c)
#else
#define STRIP      LANES
#define V          float
#define I          int
#define TO_V       convert_float
#define TO_I       convert_int
#define FIRST(i)   (i)
#define LAST(i)    (i)
#define COLUMNS(x) ((x) + (int)get_local_id(0))
#define AT(p, i)   (p[i])
#define IF(c)      (-(int)(c)) /* scalar comparisons give 1, vector ones -1 */
#endif

/* PyTorch's source position of output d, never below 0. */
#define SOURCE(d, scale, zero) fmax((scale) * ((d) + 0.5f) - 0.5f, (zero))
#define MIX(a, b, t)           fma((a), 1.0f - (t), (b) * (t))

/* Where columns x of the large map lie among the low-resolution columns. */
typedef struct columns {
    I b0, b1;
    V t;
} columns;

static columns columns_of(I x) {
    columns c;
    V at = SOURCE(TO_V(x), 0.25f, (V)(0.0f));
    c.b0 = TO_I(at);
    c.b1 = min(c.b0 + 1, (I)(LOW - 1));
    c.t = at - TO_V(c.b0);
    return c;
}

/* A strip's columns: their two neighbours in the large map and the weight of the second. */
typedef struct strip {
    columns left, right;
    V t;
    I x, live;
} strip;

static strip strip_of(int x0, int width, int w, float scale) {
    strip s;
    s.x = COLUMNS(x0);
    s.live = IF(s.x < (I)(width));
    V at = SOURCE(TO_V(min(s.x, (I)(width - 1))), scale, (V)(0.0f));
    I i0 = min(TO_I(at), (I)(w - 1));
    s.left = columns_of(i0);
    s.right = columns_of(min(i0 + 1, (I)(w - 1)));
    s.t = fmin(at - TO_V(i0), (V)(1.0f));
    return s;
}

/* One low-resolution row at the strip's two sets of columns. */
typedef struct low_row {
    V left, right;
    int row;
} low_row;

static low_row low_row_of(__global const float *p, const strip *s, int row) {
    low_row r;
    __global const float *q = p + row * LOW;
    r.left = MIX(AT(q, s->left.b0), AT(q, s->left.b1), s->left.t);
    r.right = MIX(AT(q, s->right.b0), AT(q, s->right.b1), s->right.t);
    r.row = row;
    return r;
}

/* The two low-resolution rows around row y of the large map; rows are asked for in rising order. */
typedef struct pair {
    low_row r0, r1;
} pair;

static V map_row(__global const float *p, const strip *s, pair *k, int y) {
    float at = SOURCE((float)y, 0.25f, 0.0f);
    int a0 = (int)at, a1 = min(a0 + 1, LOW - 1);
    if (k->r0.row != a0) k->r0 = k->r1.row == a0 ? k->r1 : low_row_of(p, s, a0);
    if (k->r1.row != a1) k->r1 = k->r0.row == a1 ? k->r0 : low_row_of(p, s, a1);
    float t = at - (float)a0;
    return MIX(MIX(k->r0.left, k->r1.left, t), MIX(k->r0.right, k->r1.right, t), s->t);
}

/* Largest low-resolution logit that rows y0 to y1 of the large map can see at the strip's columns. */
static float largest(__global const float *p, const strip *s, int y0, int y1) {
    float m = -INFINITY;
    int from = (int)SOURCE((float)y0, 0.25f, 0.0f), to = min((int)SOURCE((float)y1, 0.25f, 0.0f) + 1, LOW - 1);
    for (int a = from; a <= to; a++)
        for (int b = FIRST(s->left.b0); b <= LAST(s->right.b1); b++) m = fmax(m, p[a * LOW + b]);
    return m;
}

/* Per work-item: set pixels, extremes of their places, pixels above 1 and above -1. */
typedef struct tally {
    I area, x0, x1, y0, y1, high, low;
} tally;

/* 32 rows of a strip from row y of the image on: its words; counts go into the tally. The picture has `height` rows from
 * row `top` of the image on, and h in the network's input, `scale` of them from row to row; stability counts pixels above
 * `offset` and -offset. */
#if LANES == 1
NOINLINE
#else
static
#endif
I block(__global const float *p, const strip *s, tally *n, int y, int top, int height, int h, float scale, float offset,
        bool look) {
    I word = (I)(0);
    int begin = max(y - top, 0), end = min(y + 32 - top, height);
    int first = min((int)SOURCE((float)begin, scale, 0.0f), h - 1);
    int last = min((int)SOURCE((float)(end - 1), scale, 0.0f) + 1, h - 1);
    if (look && largest(p, s, first, last) <= -offset - 0.001f) return word; /* nothing here reaches even -offset */
    pair k;
    V m0 = (V)(0.0f), m1 = (V)(0.0f);
    int have0 = -1, have1 = -1;
    k.r0.row = k.r1.row = -1;
    k.r0.left = k.r0.right = k.r1.left = k.r1.right = (V)(0.0f);
    for (int row = begin; row < end; row++) {
        float at = SOURCE((float)row, scale, 0.0f);
        int i0 = min((int)at, h - 1), i1 = min(i0 + 1, h - 1);
        if (have0 != i0) {
            m0 = have1 == i0 ? m1 : map_row(p, s, &k, i0);
            have0 = i0;
        }
        if (have1 != i1) {
            m1 = i1 == i0 ? m0 : map_row(p, s, &k, i1);
            have1 = i1;
        }
        V v = MIX(m0, m1, fmin(at - (float)i0, 1.0f));
        word |= IF(v > (V)(0.0f)) & (I)(1 << (row + top - y));
        n->high -= IF(v > (V)(offset)) & s->live;
        n->low -= IF(v > (V)(-offset)) & s->live;
    }
    word &= s->live;
    I any = IF(word != (I)(0));
    n->area += popcount(word);
    n->x0 = min(n->x0, select((I)(INT_MAX), s->x, any));
    n->x1 = max(n->x1, select((I)(-1), s->x, any));
    n->y0 = min(n->y0, select((I)(INT_MAX), y + 31 - clz(word & -word), any));
    n->y1 = max(n->y1, select((I)(-1), y + 31 - clz(word), any));
    return word;
}

#if LANES == 1
static int sum_of(I v) {
    int8 a = v.lo + v.hi;
    int4 b = a.lo + a.hi;
    return b.x + b.y + b.z + b.w;
}
static int min_of(I v) {
    int8 a = min(v.lo, v.hi);
    int4 b = min(a.lo, a.hi);
    return min(min(b.x, b.y), min(b.z, b.w));
}
#define TOTAL(v) sum_of(v)
#define MIN(v)   min_of(v)
#else
#define TOTAL(v) SUM(v)
#define MIN(v)   LEAST(v)
#endif

/* An object's groups (parts_of in frame.cl) take equal shares of its image's strips and row blocks. stats [group,
 * STATS]: area, least x, most x, least y, most y, above offset, above -offset. Item i's LOW * LOW logits begin at
 * object_floats * i + logits_c0. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
masks(__global uint *store, __global int *stats, __global const float *logits, __global const int *image_of,
      __global const int *total, __global const int *picks, __global const uint *upload, mask_args arg) {
#if LANES > 1
    __local int room[LANES];
#endif
    int count = *total, parts = parts_of(count, arg.all_groups, arg.object_groups), k = get_group_id(0) / parts;
    int g = get_group_id(0) - k * parts;
    if (k >= count) return;
    __global const uint *im = IMAGE_AT(upload, image_of[k]);
    int width = (int)im[IM_WIDTH], w = (int)im[IM_SEG_WIDTH];
#ifdef PICKS
    int item = picks[2 * k], place = picks[2 * k + 1], left = (int)im[IM_CROP_X], top = (int)im[IM_CROP_Y];
    int column_words = ((int)IMAGE_AT(upload, 0)[IM_HEIGHT] + 31) / 32;
    bool keep = place >= 0;
#else
    int item = k, place = k, left = 0, top = 0, column_words = ((int)im[IM_HEIGHT] + 31) / 32;
    bool keep = true;
#endif
    int height = (int)im[IM_HEIGHT], h = (int)im[IM_SEG_HEIGHT];
    float sx = as_float(im[IM_MASK_X]), sy = as_float(im[IM_MASK_Y]);
    int first = top / 32, blocks = (top + height + 31) / 32 - first;
    int strips = (width + STRIP - 1) / STRIP, all = blocks * strips;
    __global const float *p = logits + (size_t)item * arg.object_floats + arg.logits_c0;
    store += (size_t)max(place, 0) * upload[UP_STORE_WORDS] + (size_t)left * column_words + first;
    tally n;
    n.area = n.high = n.low = (I)(0);
    n.x0 = n.y0 = (I)(INT_MAX);
    n.x1 = n.y1 = (I)(-1);
    strip s;
    int from = (int)((long)all * g / parts), to = (int)((long)all * (g + 1) / parts);
    bool look = LANES == 1 || to - from > 1; /* a group with one block has nobody to look for before the others do */
    for (int t = from; t < to; t++) {
        int column = t / blocks, b = t - column * blocks;
        if (t == from || b == 0) s = strip_of(column * STRIP, width, w, sx);
        I word = block(p, &s, &n, 32 * (first + b), top, height, h, sy, arg.offset, look);
#if LANES == 1
        if (!keep) continue;
        __global uint *o = store + (size_t)column * STRIP * column_words + b;
        uint words[16];
        vstore16(as_uint16(word), 0, words);
        for (int i = 0; i < min(STRIP, width - column * STRIP); i++) o[(size_t)i * column_words] = words[i];
#else
        if (keep && s.x < width) store[(size_t)s.x * column_words + b] = as_uint(word);
#endif
    }
    int area = TOTAL(n.area), x0 = MIN(n.x0), x1 = -MIN(-n.x1), y0 = MIN(n.y0), y1 = -MIN(-n.y1);
    int high = TOTAL(n.high), low = TOTAL(n.low);
    if (get_local_id(0) == 0) {
        int8 sums = (int8)(area, x0, x1, y0, y1, high, low, 0);
        if (left && area) sums.s12 += left;
        vstore8(sums, get_group_id(0), stats);
    }
}
