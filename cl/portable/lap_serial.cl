/* Shortest augmenting path, CPU row: one work-item, vectors of 8 sinks. Joined in front of kernels that assign; the
 * portable row lap.cl has the same functions. See there for the algorithm and the layout of `work`. */
#define LANES 1
#define LANE  0
#define SYNC()
#define NEVER LONG_MAX
#define LAP_ROOM
#define LAP_AT(work, n, m) lap_at((work), (n), (m))

typedef struct lap {
    __global long *u, *v, *dist, *open; /* open: 0, or -1 once the sink is in the tree */
    __global int *pred, *owner, *sink;
} lap;

static lap lap_at(__global int *work, int n, int m) {
    lap l;
    m += 8;
    l.u = (__global long *)work;
    l.v = l.u + n;
    l.dist = l.v + m;
    l.open = l.dist + m;
    l.pred = (__global int *)(l.open + m);
    l.owner = l.pred + m;
    l.sink = l.owner + m;
    return l;
}

static long8 fixed8(float8 c, float scale) {
    c = select(c, (float8)(1.0f), isnan(c));
    long8 q = convert_long8(rint(select(c, (float8)(0.0f), isinf(c)) * scale));
    return select(q, (long8)(NEVER), convert_long8(isinf(c)));
}

/* Costs of sinks j to j + 7 for one source; beyond m: forbidden. */
static long8 costs(__global const float *c, int stride, int j, int m, float scale) {
    float8 v = (float8)(INFINITY);
    if (stride == 1 && j + 8 <= m) {
        v = vload8(0, c + j);
    } else {
        float t[8];
        for (int i = 0; i < 8; i++) t[i] = j + i < m ? c[(size_t)(j + i) * stride] : INFINITY;
        v = vload8(0, t);
    }
    return fixed8(v, scale);
}

/* Relaxes all open sinks with one more source; returns the nearest and its distance, -1 when none can be reached. */
static int relax(lap *l, __global const float *c, int stride, int m, float scale, int source, long base,
                 long *nearest) {
    long8 best = (long8)(NEVER), where = (long8)(-1);
    long8 lane = (long8)(0, 1, 2, 3, 4, 5, 6, 7);
    for (int j = 0; j < m; j += 8) {
        long8 q = costs(c, stride, j, m, scale), d = vload8(0, l->dist + j), open = vload8(0, l->open + j);
        long8 r = select(base + q - vload8(0, l->v + j), (long8)(NEVER), q == NEVER);
        long8 closer = (r < d) & ~open;
        d = select(d, r, closer);
        vstore8(d, 0, l->dist + j);
        vstore8(select(vload8(0, l->pred + j), (int8)(source), convert_int8(closer)), 0, l->pred + j);
        long8 taken = convert_long8(vload8(0, l->owner + j) >= 0);
        long8 rank = select(2 * d - taken, (long8)(NEVER), open | (d == NEVER));
        long8 better = rank < best;
        best = select(best, rank, better);
        where = select(where, lane + j, better);
    }
    long b[8], w[8], least = NEVER, at = -1;
    vstore8(best, 0, b);
    vstore8(where, 0, w);
    for (int i = 0; i < 8; i++)
        if (b[i] != NEVER && (b[i] < least || (b[i] == least && w[i] < at))) {
            least = b[i];
            at = w[i];
        }
    *nearest = at < 0 ? NEVER : l->dist[at];
    return (int)at;
}

/* One source into the matching; false when it cannot be. */
static bool augment(lap *l, __global const float *cost, int2 strides, int m, float scale, int s) {
    for (int j = 0; j < m + 8; j += 8) {
        vstore8((long8)(NEVER), 0, l->dist + min(j, m));
        vstore8((long8)(0), 0, l->open + min(j, m));
    }
    int i = s, j;
    long reach = 0;
    for (;;) {
        j = relax(l, cost + (size_t)i * strides.x, strides.y, m, scale, i, reach - l->u[i], &reach);
        if (j < 0) return false;
        l->open[j] = -1;
        if (l->owner[j] < 0) break;
        i = l->owner[j];
    }
    l->u[s] += reach;
    for (int k = 0; k < m; k++)
        if (l->open[k] && k != j) {
            l->u[l->owner[k]] += reach - l->dist[k];
            l->v[k] -= reach - l->dist[k];
        }
    do {
        int before = l->sink[i = l->pred[j]];
        l->owner[j] = i;
        l->sink[i] = j;
        j = before;
    } while (i != s);
    return true;
}

/* Least total cost over min(n, m) = n pairs; afterwards lap.sink[source] is its sink or -1. Returns the sources left.
 */
static int lap_solve(lap *l, __global const float *cost, int2 strides, int n, int m, float scale) {
    int left = 0;
    for (int i = 0; i < n; i++) {
        l->u[i] = 0;
        l->sink[i] = -1;
    }
    for (int j = 0; j < m + 8; j++) {
        l->v[j] = 0;
        l->owner[j] = -1;
    }
    for (int s = 0; s < n; s++) left += !augment(l, cost, strides, m, scale, s);
    return left;
}
