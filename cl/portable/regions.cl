/* Small regions of masks (GRID_CLEAN of graph/nodes.h): holes are filled, islands removed, as segment-anything's
 * remove_small_regions does with OpenCV's 8-connected labels.
 *
 * One group a mask at a time. Bits lie down columns, so that a column is a few runs: a run is a node of a forest whose
 * trees are regions, runs of neighbouring columns that touch are united (the root is the run of the least number,
 * Playne and Hawick's way with atomic minima), then a root has its region's size. No pixel has a label. */

typedef volatile __global int *forest;

/* The first row from y on whose bit is not that of `flip`; `rows` if there is none. */
static int next_row(__global const uint *column, int y, int rows, uint flip) {
    while (y < rows) {
        const uint rest = (column[y >> 5] ^ flip) >> (y & 31);
        if (rest) return min(y + 31 - (int)clz(rest & -rest), rows);
        y = (y | 31) + 1;
    }
    return rows;
}

/* A run of a column: rows [from, to), the n-th. */
typedef struct run {
    int from, to, n;
} run;

static run first_run(__global const uint *column, int rows, uint flip) {
    run r;
    r.n = 0;
    r.from = next_row(column, 0, rows, flip);
    r.to = next_row(column, r.from, rows, ~flip);
    return r;
}

static run next_run(__global const uint *column, run r, int rows, uint flip) {
    r.n++;
    r.from = next_row(column, r.to, rows, flip);
    r.to = next_row(column, r.from, rows, ~flip);
    return r;
}

static int root_of(forest parent, int i) {
    for (int up = parent[i]; up != i; up = parent[i]) i = up;
    return i;
}

static void unite(forest parent, int a, int b) {
    for (;;) {
        a = root_of(parent, a);
        b = root_of(parent, b);
        if (a == b) return;
        const int high = max(a, b), low = min(a, b);
#if LANES == 1
        parent[high] = low;
        return;
#else
        const int old = atomic_min(parent + high, low);
        if (old == high) return;
        a = old;
        b = low;
#endif
    }
}

/* Bits of rows [from, to) become those of `value`. */
static void put_rows(__global uint *column, int from, int to, uint value) {
    for (int y = from; y < to; y = (y | 31) + 1) {
        const int end = min(to, (y | 31) + 1) - (y & ~31);
        const uint rows = (end == 32 ? UINT_MAX : (1u << end) - 1u) & (UINT_MAX << (y & 31));
        column[y >> 5] = value ? column[y >> 5] | rows : column[y >> 5] & ~rows;
    }
}

/* A mask as its group sees it. */
typedef struct whole_mask {
    __global uint *bits;
    forest parent, size;
    int width, height, words, runs; /* of the image; words and room for runs of a column */
} whole_mask;

/* Where OpenCV meets a pixel: it goes through blocks of two by two. */
static int met_at(const whole_mask *m, int x, int y) {
    return (y / 2) * ((m->width + 1) / 2) + x / 2;
}

/* Regions of fewer than `least` pixels become the other colour: those of zeros where `holes`, else those of ones, of
 * which the largest stays where all are small. Whether there was any. */
static bool remove_small(const whole_mask *m, bool holes, int least, __local int *room) {
    const uint flip = holes ? UINT_MAX : 0u;
    for (int x = LANE; x < m->width; x += LANES) {
        __global const uint *column = m->bits + (size_t)x * m->words;
        for (run r = first_run(column, m->height, flip); r.from < m->height; r = next_run(column, r, m->height, flip)) {
            m->parent[x * m->runs + r.n] = x * m->runs + r.n;
            m->size[x * m->runs + r.n] = 0;
        }
    }
    SYNC();
    for (int x = LANE + 1; x < m->width; x += LANES) {
        __global const uint *left = m->bits + (size_t)(x - 1) * m->words, *right = left + m->words;
        run a = first_run(left, m->height, flip), b = first_run(right, m->height, flip);
        while (a.from < m->height && b.from < m->height) {
            if (a.from <= b.to && b.from <= a.to) unite(m->parent, (x - 1) * m->runs + a.n, x * m->runs + b.n);
            if (a.to < b.to)
                a = next_run(left, a, m->height, flip);
            else
                b = next_run(right, b, m->height, flip);
        }
    }
    SYNC();
    for (int x = LANE; x < m->width; x += LANES) {
        __global const uint *column = m->bits + (size_t)x * m->words;
        for (run r = first_run(column, m->height, flip); r.from < m->height; r = next_run(column, r, m->height, flip)) {
            const int root = root_of(m->parent, x * m->runs + r.n);
#if LANES == 1
            m->size[root] += r.to - r.from;
#else
            atomic_add(m->size + root, r.to - r.from);
#endif
        }
    }
    SYNC();
    int small = 0, most = 0;
    for (int x = LANE; x < m->width; x += LANES) {
        __global const uint *column = m->bits + (size_t)x * m->words;
        for (run r = first_run(column, m->height, flip); r.from < m->height; r = next_run(column, r, m->height, flip)) {
            const int i = x * m->runs + r.n;
            if (m->parent[i] != i) continue;
            small |= m->size[i] < least;
            most = max(most, m->size[i]);
        }
    }
    small = -LEAST(-small);
    most = -LEAST(-most);
    if (!small) return false;
    int stays = INT_MAX; /* where the region that stays all the same is met */
    for (int x = LANE; x < m->width && !holes && most < least; x += LANES) {
        __global const uint *column = m->bits + (size_t)x * m->words;
        for (run r = first_run(column, m->height, flip); r.from < m->height; r = next_run(column, r, m->height, flip))
            if (m->size[root_of(m->parent, x * m->runs + r.n)] == most) stays = min(stays, met_at(m, x, r.from));
    }
    stays = LEAST(stays);
    int staying = INT_MAX;
    for (int x = LANE; x < m->width && stays < INT_MAX; x += LANES) {
        __global const uint *column = m->bits + (size_t)x * m->words;
        for (run r = first_run(column, m->height, flip); r.from < m->height; r = next_run(column, r, m->height, flip))
            if (met_at(m, x, r.from) == stays) staying = root_of(m->parent, x * m->runs + r.n);
    }
    staying = LEAST(staying);
    for (int x = LANE; x < m->width; x += LANES) {
        __global uint *column = m->bits + (size_t)x * m->words;
        for (run r = first_run(column, m->height, flip); r.from < m->height; r = next_run(column, r, m->height, flip)) {
            const int root = root_of(m->parent, x * m->runs + r.n);
            if (m->size[root] < least && root != staying) put_rows(column, r.from, r.to, holes);
        }
    }
    SYNC();
    return true;
}

/* Zeros outside of the crop, where nothing was stored, and below the image. */
static void clear_outside(const whole_mask *m, __global const uint *crop) {
    const int left = (int)crop[IM_CROP_X], top = (int)crop[IM_CROP_Y];
    const int right = left + (int)crop[IM_WIDTH], bottom = top + (int)crop[IM_HEIGHT];
    for (int x = LANE; x < m->width; x += LANES) {
        __global uint *column = m->bits + (size_t)x * m->words;
        const bool inside = x >= left && x < right;
        for (int w = 0; w < m->words; w++)
            if (!inside || w < top / 32 || w >= (bottom + 31) / 32) column[w] = 0;
    }
    SYNC();
}

/* Group g cleans masks g, g + cleaners, ..; regions: two words a run for each group. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void clean(__global uint *store, __global int *found,
                                                                       __global int *regions,
                                                                       __global const uint *upload, int capacity,
                                                                       int least) {
    __local int room[LANES];
    const int cleaners = (int)upload[UP_CLEANERS], group = get_group_id(0), kept = found[FD_KEPT];
    __global const uint *image = IMAGE_AT(upload, 0);
    whole_mask m;
    m.width = (int)image[IM_WIDTH];
    m.height = (int)image[IM_HEIGHT];
    m.words = (m.height + 31) / 32;
    m.runs = m.height / 2 + 1;
    if (group >= cleaners) return;
    const size_t runs = (size_t)m.width * m.runs;
    m.parent = regions + 2 * runs * group;
    m.size = m.parent + runs;
    for (int k = group; k < kept; k += cleaners) {
        __global int *c =
            found + FD_HEADER + (size_t)(found + FD_HEADER + (size_t)capacity * (CD_WORDS + FL_KEPT))[k] * CD_WORDS;
        m.bits = store + (size_t)k * upload[UP_STORE_WORDS];
        clear_outside(&m, IMAGE_AT(upload, c[CD_CROP]));
        const bool filled = remove_small(&m, true, least, room), removed = remove_small(&m, false, least, room);
        if (!filled && !removed) continue;
        whole w = no_mask();
        for (int x = LANE; x < m.width; x += LANES) {
            __global const uint *column = m.bits + (size_t)x * m.words;
            int first = m.height, last = -1;
            for (run r = first_run(column, m.height, 0u); r.from < m.height; r = next_run(column, r, m.height, 0u)) {
                first = min(first, r.from);
                last = r.to - 1;
                w.area += r.to - r.from;
            }
            if (last < 0) continue;
            w.x0 = min(w.x0, x);
            w.x1 = max(w.x1, x);
            w.y0 = min(w.y0, first);
            w.y1 = max(w.y1, last);
        }
        w.area = SUM(w.area);
        w.x0 = LEAST(w.x0);
        w.x1 = -LEAST(-w.x1);
        w.y0 = LEAST(w.y0);
        w.y1 = -LEAST(-w.y1);
        if (LANE == 0) {
            c[CD_AREA] = w.area;
            vstore4(w.area ? (int4)(w.x0, w.x1, w.y0, w.y1) : (int4)(0), 0, c + CD_X0);
            c[CD_CHANGED] = 1;
        }
        SYNC();
    }
}
