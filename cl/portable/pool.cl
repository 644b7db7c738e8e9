/* Max over 2x2 windows, stride 1; pixels beyond the right and lower edge count as zero. On a CPU a work-item takes
 * `run` neighbouring pixels, a whole row, and all channels; elsewhere (maxpool2x2_group) -D RUN pixels and four
 * channels. in = {h, w, ld, c0}, out = {ld, c0, c, run}. Grid: x = n * h * w / run. */
#ifndef RUN
#define RUN 1
#endif
/* TAKEn, PUTn: n channels. */
#ifdef ALIGNED /* of a group: every quad of channels lies at a multiple of its size */
#define TAKE4(p, i)    LOAD4_ALIGNED(p, i)
#define PUT4(v, p, i)  STORE4_ALIGNED(v, p, i)
#else
#define TAKE4(p, i)    LOAD4(p, i)
#define PUT4(v, p, i)  STORE4(v, p, i)
#endif
#define TAKE16(p, i)   LOAD16(p, i)
#define PUT16(v, p, i) STORE16(v, p, i)
#define TAKE1(p, i)    LOAD(p, i)
#define PUT1(v, p, i)  STORE(v, p, i)

/* N channels of `run` pixels from column ox on: `down` is the way to the line below, 0 where there is none. */
#define DEFINE_POOL(F, N, V)                                                                                           \
    static inline void F(__global const T *a, __global T *d, int ox, int down, int4 in, int4 out) {                    \
        V zero = 0.0f, left = fmax(TAKE##N(a, 0), down ? TAKE##N(a, down) : zero);                                     \
        for (int end = ox + out.w; ox < end; ox++, d += out.x) {                                                       \
            V right = zero;                                                                                            \
            a += in.z;                                                                                                 \
            if (ox + 1 < in.y) right = fmax(TAKE##N(a, 0), down ? TAKE##N(a, down) : zero);                            \
            PUT##N(fmax(left, right), d, 0);                                                                           \
            left = right;                                                                                              \
        }                                                                                                              \
    }
DEFINE_POOL(pool16, 16, float16)
DEFINE_POOL(pool4, 4, float4)
DEFINE_POOL(pool1, 1, float)

__kernel void maxpool2x2(__global const T *restrict x, __global T *restrict y, __global const int *restrict limit, int4 in,
                         int4 out) {
    int p = get_global_id(0) * out.w, line = p / in.y, ox = p - line * in.y, n = line / in.x, c = 0;
    if (n >= *limit) return;
    int down = line + 1 < (n + 1) * in.x ? in.y * in.z : 0;
    __global const T *a = x + (long)p * in.z + in.w;
    __global T *d = y + (long)p * out.x + out.y;
    for (; c + 16 <= out.z; c += 16) pool16(a + c, d + c, ox, down, in, out);
    for (; c + 4 <= out.z; c += 4) pool4(a + c, d + c, ox, down, in, out);
    for (; c < out.z; c++) pool1(a + c, d + c, ox, down, in, out);
}

/* out.w: quads of channels; n items, lines a multiple of RUN. Grid: x = n * h * w * quads / RUN, rounded up to the
 * group. */
__attribute__((reqd_work_group_size(64, 1, 1))) __kernel void
maxpool2x2_group(__global const T *restrict x, __global T *restrict y, __global const int *restrict limit, int4 in,
                 int4 out, int items) {
    int strip = get_global_id(0) / out.w, c = (get_global_id(0) - strip * out.w) * 4, p = strip * RUN;
    int line = p / in.y, ox = p - line * in.y;
    int n = line / in.x, down = line + 1 < (n + 1) * in.x ? in.y * in.z : 0;
    if (n >= min(*limit, items)) return;
    __global const T *a = x + (long)p * in.z + in.w + c;
    __global T *d = y + (long)p * out.x + out.y + c;
    int4 to = (int4)(out.x, out.y, out.z, RUN);
    if (c + 4 <= out.z) {
        pool4(a, d, ox, down, in, to);
    } else {
        for (int i = 0; c + i < out.z; i++) pool1(a + i, d + i, ox, down, in, to);
    }
}
