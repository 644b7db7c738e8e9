/* Shortest augmenting path (Jonker & Volgenant 1987, rectangular as in Crouse 2016), portable row: one group of LANES
 * work-items, sink j belongs to work-item j mod LANES. Joined in front of kernels that assign.
 *
 * n sources, m >= n sinks, cost of (i, j) at strides.x * i + strides.y * j, q = rint(cost * scale) as a 64-bit integer,
 * +inf forbidden, NaN 1. Duals u, v keep q - u - v >= 0, so distances from a source grow as in Dijkstra. Sources are
 * added in rising order; the next sink is the nearest, at equal distance a free one, then the lowest. Distances stay
 * below 2^61: a free sink has v = 0, which bounds every dual by the largest cost, and with forbidden pairs by n of
 * them.
 *
 * `work` (lap_words() of variants/portable/match.c, 8-byte aligned): u [n], v, dist, open [m + 8] as long; pred, owner [m + 8],
 * sink [n]. */
#ifndef LANES
#define LANES 64
#endif
#define LANE   ((int)get_local_id(0))
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define NEVER  LONG_MAX
#define LAP_ROOM                                                                                                       \
    __local long lap_rank[LANES];                                                                                      \
    __local int lap_where[LANES];
#define LAP_AT(work, n, m) lap_at((work), (n), (m), lap_rank, lap_where)

typedef struct lap {
    __global long *u, *v, *dist, *open; /* open: 0, or -1 once the sink is in the tree */
    __global int *pred, *owner, *sink;
    __local long *rank; /* [LANES] */
    __local int *where; /* [LANES] */
} lap;

static lap lap_at(__global int *work, int n, int m, __local long *rank, __local int *where) {
    lap l;
    m += 8;
    l.u = (__global long *)work;
    l.v = l.u + n;
    l.dist = l.v + m;
    l.open = l.dist + m;
    l.pred = (__global int *)(l.open + m);
    l.owner = l.pred + m;
    l.sink = l.owner + m;
    l.rank = rank;
    l.where = where;
    return l;
}

/* Relaxes all open sinks with one more source; every work-item gets the nearest, -1 when none can be reached. */
static int relax(const lap *l, __global const float *c, int stride, int m, float scale, int source, long base) {
    long best = NEVER;
    int at = -1;
    for (int j = LANE; j < m; j += LANES) {
        if (l->open[j]) continue;
        float f = c[(size_t)j * stride];
        long d = l->dist[j];
        if (!isinf(f)) {
            long r = base + convert_long(rint((isnan(f) ? 1.0f : f) * scale)) - l->v[j];
            if (r < d) {
                l->dist[j] = d = r;
                l->pred[j] = source;
            }
        }
        if (d == NEVER) continue;
        d = 2 * d + (l->owner[j] >= 0);
        if (d < best) {
            best = d;
            at = j;
        }
    }
    l->rank[LANE] = best;
    l->where[LANE] = at;
    for (int step = LANES / 2; step > 0; step >>= 1) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (LANE >= step) continue;
        long a = l->rank[LANE], b = l->rank[LANE + step];
        if (b < a || (b == a && b != NEVER && l->where[LANE + step] < l->where[LANE])) {
            l->rank[LANE] = b;
            l->where[LANE] = l->where[LANE + step];
        }
    }
    SYNC();
    int found = l->where[0];
    SYNC();
    return found;
}

/* One source into the matching; false when it cannot be. */
static bool augment(const lap *l, __global const float *cost, int2 strides, int m, float scale, int s) {
    for (int j = LANE; j < m; j += LANES) {
        l->dist[j] = NEVER;
        l->open[j] = 0;
    }
    SYNC();
    int i = s, j;
    long reach = 0;
    for (;;) {
        j = relax(l, cost + (size_t)i * strides.x, strides.y, m, scale, i, reach - l->u[i]);
        if (j < 0) return false;
        reach = l->dist[j];
        if (LANE == 0) l->open[j] = -1;
        SYNC();
        if (l->owner[j] < 0) break;
        i = l->owner[j];
    }
    for (int k = LANE; k < m; k += LANES)
        if (l->open[k] && k != j) { /* each source in the tree but s owns exactly one sink of it */
            l->u[l->owner[k]] += reach - l->dist[k];
            l->v[k] -= reach - l->dist[k];
        }
    SYNC();
    if (LANE == 0) {
        l->u[s] += reach;
        do {
            int before = l->sink[i = l->pred[j]];
            l->owner[j] = i;
            l->sink[i] = j;
            j = before;
        } while (i != s);
    }
    SYNC();
    return true;
}

/* Least total cost over min(n, m) = n pairs; afterwards lap.sink[source] is its sink or -1. Returns the sources left.
 */
static int lap_solve(const lap *l, __global const float *cost, int2 strides, int n, int m, float scale) {
    int left = 0;
    for (int i = LANE; i < n; i += LANES) {
        l->u[i] = 0;
        l->sink[i] = -1;
    }
    for (int j = LANE; j < m; j += LANES) {
        l->v[j] = 0;
        l->owner[j] = -1;
    }
    SYNC();
    for (int s = 0; s < n; s++) left += !augment(l, cost, strides, m, scale, s);
    return left;
}
