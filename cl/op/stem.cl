/* HGNetv2's stem in one kernel, for CPUs: a work-item makes a band of output lines and keeps the maps between the
 * layers in rings of lines, which stay in its caches; the whole maps (13 MB and more) never exist.
 *
 *   a = f1(conv 3x3, stride 2, padding 1: 3 -> M)       b = f2(conv 2x2: M -> M/2)       c = f3(conv 2x2: M/2 -> M)
 *   d = [max 2x2 of a, c]     e = f4(conv 3x3, stride 2, padding 1: 2M -> M)     y = f5(conv 1x1: M -> out)
 *
 * f(v) = scale max(v, 0) + shift; the 2x2 windows reach one pixel right and down, zeros beyond the edge.
 * -D M: 16, 24 or 32; ROOM: floats of local memory. Needs isa/vector with VL = 16 (for T and Y32 stores).
 * par: 10 floats scale and shift of f1..f5, padding to 16, then for each layer weights [step][lane] and bias [lane],
 * lanes padded to 16. Steps of a layer run over ky, kx, input channel. With M = 16 the layer b has only 8 outputs: its
 * 16 lanes are the sums of the left and of the right column of the window, steps run over ky and input channel, and
 * neighbouring pixels are added afterwards.
 * in = {h, w, band, bands}, out = {ld, c0, out channels, 0}; h and w are multiples of 32, the input is dense.
 * Grid: x = bands * n. */
#define LANES (M > 16 ? 32 : 16)
#define W1    16
#define B1    (W1 + 27 * LANES)
#define W2    (B1 + LANES)
#if M == 16
#define B2 (W2 + 2 * M * 16)
#else
#define B2 (W2 + 4 * M * 16)
#endif
#define W3 (B2 + 16)
#define B3 (W3 + 2 * M * LANES)
#define W4 (B3 + LANES)
#define B4 (W4 + 18 * M * LANES)
#define W5 (B4 + LANES)

typedef __global const float *weights_t;
typedef __local float *line_t;
typedef float16 at4_t __attribute__((aligned(4)));
#define PUT16(v, p) (*(__local at4_t *)(p) = (v))

#define EACH12(F)   F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
#define EACH16(F)   EACH12(F) F(12) F(13) F(14) F(15)

/* Sums of 16 pixels by 16 lanes, or of 12 by 32; STEP floats between the pixels' windows, RUN neighbouring inputs of
 * each line of the window. */
#ifdef __AVX512F__
#define ZERO1(r) float16 c##r = vload16(0, bias);
#define MAC1(r)  c##r = fma((float16)(a[r * step + k]), b0, c##r);
#define SUM1(LINES, RUN, STEP)                                                                                         \
    EACH16(ZERO1)                                                                                                      \
    for (int l = 0; l < LINES; l++) {                                                                                  \
        enum { step = STEP };                                                                                          \
        const line_t a = lines[l] + x * step;                                                                          \
        for (int k = 0; k < RUN; k++, w += 16) {                                                                       \
            float16 b0 = vload16(0, w);                                                                                \
            EACH16(MAC1)                                                                                               \
        }                                                                                                              \
    }
#define ZERO2(r) float16 c##r = vload16(0, bias), d##r = vload16(1, bias);
#define MAC2(r)                                                                                                        \
    {                                                                                                                  \
        float16 v = (float16)(a[r * step + k]);                                                                        \
        c##r = fma(v, b0, c##r);                                                                                       \
        d##r = fma(v, b1, d##r);                                                                                       \
    }
#define SUM2(LINES, RUN, STEP)                                                                                         \
    EACH12(ZERO2)                                                                                                      \
    for (int l = 0; l < LINES; l++) {                                                                                  \
        enum { step = STEP };                                                                                          \
        const line_t a = lines[l] + x * step;                                                                          \
        for (int k = 0; k < RUN; k++, w += 32) {                                                                       \
            float16 b0 = vload16(0, w), b1 = vload16(1, w);                                                            \
            EACH12(MAC2)                                                                                               \
        }                                                                                                              \
    }
#else /* four pixels by 16 lanes at a time: 8 registers of 8 floats; weights `ld` floats apart */
#define EACH4(F) F(0) F(1) F(2) F(3)
#define ZERO4(r) float16 c##r = vload16(0, bias);
#define MAC4(r)  c##r = fma((float16)(a[r * step + k]), b, c##r);
#define KEEP4(r) sum[r] = c##r;
NOINLINE void sum4(const line_t *lines, int count, int run, int step, int x, weights_t w, int ld, weights_t bias,
                   float16 *sum) {
    EACH4(ZERO4)
    for (int l = 0; l < count; l++) {
        const line_t a = lines[l] + x * step;
        for (int k = 0; k < run; k++, w += ld) {
            const float16 b = vload16(0, w);
            EACH4(MAC4)
        }
    }
    EACH4(KEEP4)
}
#define FIRST_LANES(r)  const float16 c##r = sums[0][r];
#define SECOND_LANES(r) const float16 d##r = sums[1][r];
#define SUM1(LINES, RUN, STEP)                                                                                         \
    float16 sums[1][16];                                                                                               \
    for (int i = 0; i < 16; i += 4) sum4(lines, LINES, RUN, STEP, x + i, w, 16, bias, sums[0] + i);                    \
    EACH16(FIRST_LANES)
#define SUM2(LINES, RUN, STEP)                                                                                         \
    float16 sums[2][12];                                                                                               \
    for (int i = 0; i < 24; i += 4)                                                                                    \
        sum4(lines, LINES, RUN, STEP, x + i % 12, w + i / 12 * 16, 32, bias + i / 12 * 16, sums[i / 12] + i % 12);     \
    EACH12(FIRST_LANES) EACH12(SECOND_LANES)
#endif
#define F16(v)   fma(max(v, (float16)(0.0f)), (float16)(f.x), (float16)(f.y))
#define KEEP1(r) PUT16(F16(c##r), dst + (x + r) * to);
#if M == 24
#define KEEP2(r) KEEP1(r) vstore8(F16(d##r).lo, 0, dst + (x + r) * to + 16);
#else
#define KEEP2(r) KEEP1(r) PUT16(F16(d##r), dst + (x + r) * to + 16);
#endif

/* A line of M channels, TO floats from pixel to pixel, from LINES lines. Meanwhile 6 elements of the image per pixel
 * are asked for: with half of its width, a line of it. */
#if M == 16
#define TILE                            16
#define LINE_OF_M(LINES, RUN, STEP, TO) SUM1(LINES, RUN, STEP) EACH16(KEEP1)
#else
#define TILE                            12
#define LINE_OF_M(LINES, RUN, STEP, TO) SUM2(LINES, RUN, STEP) EACH12(KEEP2)
#endif
#define DEFINE_LINE(NAME, LINES, RUN, STEP, TO)                                                                        \
    NOINLINE void NAME(const line_t *lines, weights_t first, weights_t bias, float2 f, line_t dst, int width,          \
                       __global const T *next) {                                                                       \
        enum { to = TO };                                                                                              \
        for (int x0 = 0; x0 < width; x0 += TILE, next += TILE * 6) {                                                   \
            int x = min(x0, width - TILE);                                                                             \
            weights_t w = first;                                                                                       \
            for (int i = 0; i < TILE * 6; i += 64 / sizeof(T)) PREFETCH_L2(next + i);                                  \
            LINE_OF_M(LINES, RUN, STEP, TO)                                                                            \
        }                                                                                                              \
    }
DEFINE_LINE(layer1, 3, 9, 6, M)
DEFINE_LINE(layer3, 2, M, (M / 2), (2 * M))
DEFINE_LINE(layer4, 3, (6 * M), (4 * M), M)

#if M == 16
#define PAIR(r, s, t)                                                                                                  \
    {                                                                                                                  \
        float16 v = (float16)(c##r.lo, c##s.lo) + (float16)(c##s.hi, c##t.hi);                                         \
        PUT16(F16(v), dst + (x + r) * 8);                                                                              \
    }
/* From right to left: the last pixel of a tile needs the right neighbour's sums. */
NOINLINE void layer2(const line_t *lines, weights_t first, weights_t bias, float2 f, line_t dst, int width) {
    float16 c16 = 0.0f;
    for (int x = width - 16; x >= 0; x -= 16) {
        weights_t w = first;
        SUM1(2, 16, 16)
        PAIR(0, 1, 2)
        PAIR(2, 3, 4) PAIR(4, 5, 6) PAIR(6, 7, 8) PAIR(8, 9, 10) PAIR(10, 11, 12) PAIR(12, 13, 14) PAIR(14, 15, 16)
            c16 = c0;
    }
}
#else
#if M == 24
#define KEEP_HALF(r)                                                                                                   \
    {                                                                                                                  \
        float16 v = F16(c##r);                                                                                         \
        vstore8(v.lo, 0, dst + (x + r) * 12);                                                                          \
        vstore4(v.hi.lo, 0, dst + (x + r) * 12 + 8);                                                                   \
    }
#else
#define KEEP_HALF(r) PUT16(F16(c##r), dst + (x + r) * 16);
#endif
NOINLINE void layer2(const line_t *lines, weights_t first, weights_t bias, float2 f, line_t dst, int width) {
    for (int x = 0; x < width; x += 16) {
        weights_t w = first;
        SUM1(2, (2 * M), M)
        EACH16(KEEP_HALF)
    }
}
#endif

/* 2x2 maxima of two lines into the first channels of d. */
#if M == 24
typedef float8 part_t;
#define PART_OF(p)     vload8(0, p)
#define PUT_PART(v, p) vstore8(v, 0, p)
#else
typedef float16 part_t;
#define PART_OF(p)     (*(__local const at4_t *)(p))
#define PUT_PART(v, p) PUT16(v, p)
#endif
NOINLINE void maxima(const line_t up, const line_t down, line_t dst, int width) {
    enum { part = sizeof(part_t) / sizeof(float) };
    for (int i = 0; i < M; i += part) {
        part_t left = max(PART_OF(up + i), PART_OF(down + i));
        for (int x = 0; x < width; x++) {
            const part_t right = max(PART_OF(up + (x + 1) * M + i), PART_OF(down + (x + 1) * M + i));
            PUT_PART(max(left, right), dst + x * 2 * M + i);
            left = right;
        }
    }
}

#define PUT_OUT(r) STORE_YV(F16(c##r), y, (x + r) * out.x);
NOINLINE void layer5(const line_t line, weights_t first, float2 f, __global TY *y, int width, int4 out) {
    const line_t *lines = &line;
    weights_t bias = first + out.z * M;
    for (int j = 0; j < out.z; j += 16, y += 16, bias += 16)
        for (int x0 = 0; x0 < width; x0 += 16) {
            int x = min(x0, width - 16);
            weights_t w = first + j * M;
            SUM1(1, M, M)
            EACH16(PUT_OUT)
        }
}

/* `count` zeros; a multiple of 4. */
NOINLINE void clear(line_t p, int count) {
    for (int i = 0; i < count; i += 4) vstore4((float4)(0.0f), 0, p + i);
}

/* Line iy of item n of the image behind one pixel of zeros. */
NOINLINE void image_line(line_t dst, __global const T *x, int n, int iy, int4 in) {
    int count = in.y * 3;
    if (iy < 0 || iy >= in.x) {
        clear(dst, count + 4);
        return;
    }
    x += (long)(n * in.x + iy) * count;
    dst[0] = dst[1] = dst[2] = 0.0f;
    for (int i = 0; i < count; i += 16) PUT16(LOAD16(x, i), dst + 3 + i);
}

#define SCALE(i) vload2(i, par)

NOINLINE void stem_group(__global const T *restrict image, __global const float *restrict par, __global TY *restrict y,
                         __global const int *restrict limit, int4 in, int4 out, line_t room, const int4 group) {
    int n = group.x / in.w, first = (group.x - n * in.w) * in.z, h = in.x >> 1, w = in.y >> 1;
    int end = min(first + in.z, h >> 1);
    if (n >= *limit) return;
    int image_length = in.y * 3 + 16, length1 = (w + 1) * M, length2 = (w + 2) * (M / 2), length3 = (w + 1) * 2 * M;
    line_t images = room, maps1 = images + 3 * image_length, maps2 = maps1 + 3 * length1, maps3 = maps2 + 2 * length2;
    line_t last = maps3 + 3 * length3, lines[3];
    int c = max(2 * first - 1, 0), next0 = 2 * c - 1, next1 = c, next2 = c;
    for (int i = 0; i < 3; i++) clear(maps1 + i * length1 + w * M, M);
    for (int i = 0; i < 2; i++) clear(maps2 + i * length2 + w * (M / 2), M / 2);
    for (int i = 0; i < 3; i++) clear(maps3 + i * length3, first ? 2 * M : length3);
    for (int oy = first; oy < end; oy++) {
        for (; c <= 2 * oy + 1; c++) {
            for (; next1 <= c + 2; next1++) {
                line_t dst = maps1 + next1 % 3 * length1;
                if (next1 == h) clear(dst, w * M);
                if (next1 >= h) continue;
                for (; next0 <= 2 * next1 + 1; next0++)
                    image_line(images + (next0 + 3) % 3 * image_length, image, n, next0, in);
                for (int i = 0; i < 3; i++) lines[i] = images + (2 * next1 + 2 + i) % 3 * image_length;
                layer1(lines, par + W1, par + B1, SCALE(0), dst, w, image + (long)(n * in.x + next0) * in.y * 3);
            }
            for (; next2 <= c + 1; next2++) {
                line_t dst = maps2 + next2 % 2 * length2;
                if (next2 == h) clear(dst, w * (M / 2));
                if (next2 >= h) continue;
                for (int i = 0; i < 2; i++) lines[i] = maps1 + (next2 + i) % 3 * length1;
                layer2(lines, par + W2, par + B2, SCALE(1), dst, w);
            }
            line_t both = maps3 + c % 3 * length3 + 2 * M;
            maxima(maps1 + c % 3 * length1, maps1 + (c + 1) % 3 * length1, both, w);
            for (int i = 0; i < 2; i++) lines[i] = maps2 + (c + i) % 2 * length2;
            layer3(lines, par + W3, par + B3, SCALE(2), both + M, w, image + (long)(n * in.x + next0 + 1) * in.y * 3);
        }
        for (int i = 0; i < 3; i++) lines[i] = maps3 + (2 * oy + 2 + i) % 3 * length3;
        layer4(lines, par + W4, par + B4, SCALE(3), last, w >> 1, image + (long)(n * in.x + next0 + 2) * in.y * 3);
        layer5(last, par + W5, SCALE(4), y + (long)((n * (h >> 1) + oy) * (w >> 1)) * out.x + out.y, w >> 1, out);
    }
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
stem(__global const T *restrict image, __global const float *restrict par, __global TY *restrict y,
     __global const int *restrict limit, int4 in, int4 out) {
    __local float array[ROOM];
    stem_group(image, par, y, limit, in, out,
               array + get_local_id(0) /* + 0: no constant address (cl/README.md, "What to know") */, THIS_GROUP);
}
