/* Max over 2x2 windows, stride 1; pixels beyond the right and lower edge count as zero. A work-item takes `run`
 * neighbouring pixels: a whole row on a CPU, one pixel elsewhere. in = {h, w, ld, c0}, out = {ld, c0, c, run}.
 * Grid: x = n * h * w / run. */
#define LOAD1(p, i)     LOAD(p, i)
#define STORE1(v, p, i) STORE(v, p, i)

/* N channels of `run` pixels from column ox on: `down` is the way to the line below, 0 where there is none. */
#define DEFINE_POOL(N, V)                                                                                              \
    static inline void pool##N(__global const T *a, __global T *d, int ox, int down, int4 in, int4 out) {              \
        V zero = 0.0f, left = fmax(LOAD##N(a, 0), down ? LOAD##N(a, down) : zero);                                     \
        for (int end = ox + out.w; ox < end; ox++, d += out.x) {                                                       \
            V right = zero;                                                                                            \
            a += in.z;                                                                                                 \
            if (ox + 1 < in.y) right = fmax(LOAD##N(a, 0), down ? LOAD##N(a, down) : zero);                            \
            STORE##N(fmax(left, right), d, 0);                                                                         \
            left = right;                                                                                              \
        }                                                                                                              \
    }
DEFINE_POOL(16, float16)
DEFINE_POOL(4, float4)
DEFINE_POOL(1, float)

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
