/* What the groups of an object found (mask.cl), together: LANES work-items share it, 1 on CPUs. Before mask.cl,
 * pack.cl, everything.cl and regions.cl. */
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

#if LANES == 1
#define LEAST(v) (v)
#define SUM(v)   (v)
#else
/* Over the group; every work-item gets the result. Inlined, since a function with barriers that is called by another than the
 * kernel ends the process in rusticl (Mesa 25.0.7). */
static inline __attribute__((always_inline)) int reduced(int v, __local int *room, bool least) {
    barrier(CLK_LOCAL_MEM_FENCE);
    room[LANE] = v;
    for (int step = LANES / 2; step > 0; step >>= 1) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (LANE < step) room[LANE] = least ? min(room[LANE], room[LANE + step]) : room[LANE] + room[LANE + step];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return room[0];
}
#define LEAST(v) reduced(v, room, true)
#define SUM(v)   reduced(v, room, false)
#endif

typedef struct whole {
    int area, x0, x1, y0, y1, high, low;
} whole;

static inline whole no_mask(void) {
    whole w = {0, INT_MAX, -1, INT_MAX, -1, 0, 0};
    return w;
}

/* Of object k's `parts`; with room for LANES ints. */
static whole whole_of(__global const int *stats, int k, int parts, __local int *room) {
    whole w = no_mask();
    for (int g = LANE; g < parts; g += LANES) {
        int8 s = vload8((size_t)k * parts + g, stats);
        w.area += s.s0;
        w.x0 = min(w.x0, s.s1);
        w.x1 = max(w.x1, s.s2);
        w.y0 = min(w.y0, s.s3);
        w.y1 = max(w.y1, s.s4);
        w.high += s.s5;
        w.low += s.s6;
    }
    w.area = SUM(w.area);
    w.x0 = LEAST(w.x0);
    w.x1 = -LEAST(-w.x1);
    w.y0 = LEAST(w.y0);
    w.y1 = -LEAST(-w.y1);
    w.high = SUM(w.high);
    w.low = SUM(w.low);
    return w;
}
