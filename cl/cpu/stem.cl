/* HGNetv2's stem in one kernel, for CPUs: a group makes bands of output lines and keeps the maps between the
 * layers in rings of lines in its part of `scratch`, which stay in its caches; the whole maps (13 MB and more) never
 * exist. A band below the group's last one goes on with its rings; another one makes up to three lines of a map again.
 *
 *   a = f1(conv 3x3, stride 2, padding 1: 3 -> M)       b = f2(conv 2x2: M -> M/2)       c = f3(conv 2x2: M/2 -> M)
 *   d = [max 2x2 of a, c]     e = f4(conv 3x3, stride 2, padding 1: 2M -> M)     y = f5(conv 1x1: M -> out)
 *
 * f(v) = scale max(v, 0) + shift; the 2x2 windows reach one pixel right and down, zeros beyond the edge.
 * -D M: 16, 24 or 32; ROOM: floats of scratch for each group. Needs portable/vector with VL = 16 (for T and Y32 stores).
 * par: 10 floats scale and shift of f1..f5, padding to 16, then for each layer weights [step][lane] and bias [lane],
 * lanes padded to 16. Steps of a layer run over ky, kx, input channel. With M = 16 the layer b has only 8 outputs: its
 * 16 lanes are the sums of the left and of the right column of the window, steps run over ky and input channel, and
 * neighbouring pixels are added afterwards.
 * Grid: x = compute units, which share out the bands of the images by `queue` (see prelude). */
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
typedef __global float *line_t;
typedef float16 at4_t __attribute__((aligned(4)));
#define PUT16(v, p) (*(__global at4_t *)(p) = (v))

#define EACH12(F)   F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
#define EACH16(F)   EACH12(F) F(12) F(13) F(14) F(15)

/* Sums of 16 pixels by 16 lanes, or of 12 by 32; STEP floats between the pixels' windows, RUN neighbouring inputs of
 * each line of the window. */
#ifdef SIMD16
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
#define PART_OF(p)     (*(__global const at4_t *)(p))
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

#define PUT_OUT(r) STORE_YV(F16(c##r), y, (x + r) * y_ld);
NOINLINE void layer5(const line_t line, weights_t first, float2 f, __global TY *y, int width, int y_ld, int channels) {
    const line_t *lines = &line;
    weights_t bias = first + channels * M;
    for (int j = 0; j < channels; j += 16, y += 16, bias += 16)
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
NOINLINE void image_line(line_t dst, __global const T *x, int n, int iy, int h, int w) {
    int count = w * 3;
    if (iy < 0 || iy >= h) {
        clear(dst, count + 4);
        return;
    }
    x += (long)(n * h + iy) * count;
    dst[0] = dst[1] = dst[2] = 0.0f;
    for (int i = 0; i < count; i += 16) PUT16(LOAD16(x, i), dst + 3 + i);
}

#define SCALE(i) vload2(i, par)

/* What a group keeps between the lines that it makes: rings of lines, and the next line of each map that it has not. */
typedef struct rings_t {
    line_t images, maps1, maps2, maps3, last;
    int image_length, length1, length2, length3; /* of a line */
    int c, next0, next1, next2;
} rings_t;

static inline rings_t rings_in(line_t room, int width) {
    const int w = width >> 1;
    rings_t s = {room, 0, 0, 0, 0, width * 3 + 16, (w + 1) * M, (w + 2) * (M / 2), (w + 1) * 2 * M, 0, 0, 0, 0};
    s.maps1 = s.images + 3 * s.image_length;
    s.maps2 = s.maps1 + 3 * s.length1;
    s.maps3 = s.maps2 + 2 * s.length2;
    s.last = s.maps3 + 3 * s.length3;
    for (int i = 0; i < 3; i++) clear(s.maps1 + i * s.length1 + w * M, M);
    for (int i = 0; i < 2; i++) clear(s.maps2 + i * s.length2 + w * (M / 2), M / 2);
    return s;
}

/* Before output line `first`, when the line above it is not the group's last one. */
static inline void begin_at(rings_t *s, int first) {
    for (int i = 0; i < 3; i++) clear(s->maps3 + i * s->length3, first ? 2 * M : s->length3);
    s->c = max(2 * first - 1, 0);
    s->next0 = 2 * s->c - 1;
    s->next1 = s->next2 = s->c;
}

/* Output lines [first, end) of item n; the arguments are the kernel's. */
static inline void make_lines(rings_t *s, __global const T *image, weights_t par, __global TY *y, int n, int first,
                              int end, const cpu_stem_args arg) {
    const int x_h = arg.x_h, x_w = arg.x_w, h = x_h >> 1, w = x_w >> 1;
    line_t lines[3];
    for (int oy = first; oy < end; oy++) {
        for (; s->c <= 2 * oy + 1; s->c++) {
            const int c = s->c;
            for (; s->next1 <= c + 2; s->next1++) {
                line_t dst = s->maps1 + s->next1 % 3 * s->length1;
                if (s->next1 == h) clear(dst, w * M);
                if (s->next1 >= h) continue;
                for (; s->next0 <= 2 * s->next1 + 1; s->next0++)
                    image_line(s->images + (s->next0 + 3) % 3 * s->image_length, image, n, s->next0, x_h,
                               x_w);
                for (int i = 0; i < 3; i++) lines[i] = s->images + (2 * s->next1 + 2 + i) % 3 * s->image_length;
                layer1(lines, par + W1, par + B1, SCALE(0), dst, w, image + (long)(n * x_h + s->next0) * x_w * 3);
            }
            for (; s->next2 <= c + 1; s->next2++) {
                line_t dst = s->maps2 + s->next2 % 2 * s->length2;
                if (s->next2 == h) clear(dst, w * (M / 2));
                if (s->next2 >= h) continue;
                for (int i = 0; i < 2; i++) lines[i] = s->maps1 + (s->next2 + i) % 3 * s->length1;
                layer2(lines, par + W2, par + B2, SCALE(1), dst, w);
            }
            line_t both = s->maps3 + c % 3 * s->length3 + 2 * M;
            maxima(s->maps1 + c % 3 * s->length1, s->maps1 + (c + 1) % 3 * s->length1, both, w);
            for (int i = 0; i < 2; i++) lines[i] = s->maps2 + (c + i) % 2 * s->length2;
            layer3(lines, par + W3, par + B3, SCALE(2), both + M, w,
                   image + (long)(n * x_h + s->next0 + 1) * x_w * 3);
        }
        for (int i = 0; i < 3; i++) lines[i] = s->maps3 + (2 * oy + 2 + i) % 3 * s->length3;
        layer4(lines, par + W4, par + B4, SCALE(3), s->last, w >> 1,
               image + (long)(n * x_h + s->next0 + 2) * x_w * 3);
        layer5(s->last, par + W5, SCALE(4), y + (long)((n * (h >> 1) + oy) * (w >> 1)) * arg.y_ld + arg.y_c0, w >> 1,
               arg.y_ld, arg.y_c);
    }
}

NOINLINE void stem_group(__global const T *restrict image, __global const float *restrict par, __global float *scratch,
                         __global TY *restrict y, __global const int *restrict limit, const cpu_stem_args arg,
                         __global int *queue, const int4 group) {
    rings_t rings;
    work_t work = work_begin(group.w, min(arg.items, *limit) * arg.bands, false);
    for (int item, before = -2; (item = work_next(&work, queue)) >= 0; before = item) {
        const int n = item / arg.bands, first = (item - n * arg.bands) * arg.band_lines;
        if (before == -2) rings = rings_in(scratch + group.x * ROOM, arg.x_w);
        if (item != before + 1 || first == 0) begin_at(&rings, first);
        make_lines(&rings, image, par, y, n, first, min(first + arg.band_lines, arg.x_h >> 2), arg);
    }
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
stem(__global const T *restrict image, __global const float *restrict par, __global float *scratch,
     __global TY *restrict y, __global const int *restrict limit, cpu_stem_args arg, __global int *queue) {
    stem_group(image, par, scratch, y, limit, arg, queue, THIS_GROUP);
}
