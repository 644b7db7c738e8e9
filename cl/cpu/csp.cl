/* A CSP block of few channels and the 3x3 convolution behind it in one launch, for CPUs: one work-item per group takes a
 * band of lines from the first layer to the last; what lies between stays in its part of `scratch`, which the
 * second-level cache holds.
 *
 *   l, r = silu(conv 1x1: in -> 2 C)     l = silu(conv 3x3: C -> C), `necks` times     y = silu(conv 3x3 (l + r))
 *
 * C is between 16 and 32: vectors of channels would be half empty. So maps are planes, one for each channel, and lanes
 * are pixels: a line of a plane is a zero and then its pixels, so that the zero to the right of a line is the next
 * line's. The tile is GROUP channels by three vectors of pixels; what it makes in the lanes of zeros is cleared after.
 *
 * Needs cpu/tile. -D C. Weights: 1x1 [in][WIDE] and bias [WIDE], outputs l, then r; for each
 * 3x3 layer [group][in][ky][kx][GROUP] and bias [group][GROUP]; zeros where there is no output.
 * in = {h, w, ld, c0, channels, 0, 0, 0}; out = {n, ld, c0, necks, bands, backwards?, floats per plane, 0}.
 * Grid: x = compute units, which share out bands by `queue` (see prelude). */
#define GROUP  7
#define GROUPS ((C + GROUP - 1) / GROUP)
#define WIDE   ((2 * C + 15) / 16 * 16)
#define STEP   48 /* pixels of a tile */
#define LATER  (GROUPS * GROUP * (9 * C + 1))

typedef __global float *plane_t;
typedef __global const float *weights_t;

/* A group's part of the map: planes hold `lines` lines from line `top` on, which may lie above the map. */
typedef struct band_t {
    int top, lines, height, width, size; /* size: floats per plane */
} band_t;

/* Where a plane has the zero before line y. */
static inline int place(const band_t *b, int y) {
    return (y - b->top) * (b->width + 1);
}

/* Zeros beside lines [y0, y1) of all planes and, where the map ends there, below them. */
NOINLINE void clear_edges(const band_t *b, plane_t planes, int y0, int y1) {
    const int end = place(b, y1);
    for (int c = 0; c < C; c++, planes += b->size) {
        for (int y = y0; y <= y1; y++) planes[place(b, y)] = 0.0f;
        for (int i = 0; y1 == b->height && i < STEP; i += 16) vstore16((float16)(0.0f), 0, planes + end + i);
    }
}

/* Zeros above the map's first line and below its last one, all that the band has of them. */
NOINLINE void clear_outside(const band_t *b, plane_t planes) {
    const int head = b->top < 0 ? place(b, 0) : 0, tail = place(b, b->height);
    for (int c = 0; c < C; c++, planes += b->size) {
        for (int i = 0; i < head; i++) planes[i] = 0.0f;
        for (int i = tail; i < b->size; i++) planes[i] = 0.0f;
    }
}

/* ---- the first layer: lanes are channels, then transposed ---- */

#define OPEN3(r)    float16 c##r##_0 = vload16(0, bias), c##r##_1 = vload16(1, bias), c##r##_2 = vload16(2, bias);
#define MAC3(r)                                                                                                        \
    {                                                                                                                  \
        const float16 v = (float16)((r < 4 ? near : far)[r % 4 * ld]);                                                 \
        c##r##_0 = fma(v, b0, c##r##_0);                                                                               \
        c##r##_1 = fma(v, b1, c##r##_1);                                                                               \
        c##r##_2 = fma(v, b2, c##r##_2);                                                                               \
    }
#define CLOSE3(r) acc[r * 3] = c##r##_0, acc[r * 3 + 1] = c##r##_1, acc[r * 3 + 2] = c##r##_2;

/* Three vectors of channels of eight pixels. */
NOINLINE void first_tile(float16 *acc, __global const T *near, int ld, int in, weights_t w, weights_t bias) {
    __global const T *far = near + 4 * ld;
    EACH8(OPEN3)
    for (int k = 0; k < in; k++, near++, far++, w += WIDE) {
        const float16 b0 = vload16(0, w), b1 = vload16(1, w), b2 = vload16(2, w);
        EACH8(MAC3)
    }
    EACH8(CLOSE3)
}

/* Vector j of 16 pixels as 16 planes. */
NOINLINE void put_planes(const float16 *acc, plane_t to, int size) {
#pragma clang loop unroll(disable)
    for (int k = 0; k < 4; k++, to += 4 * size) {
#define PIECE(i) ((const float4 *)(acc + i * 3))[k]
        TRANSPOSE16X4(w, PIECE)
#undef PIECE
        vstore16(w0, 0, to), vstore16(w1, 0, to + size), vstore16(w2, 0, to + 2 * size), vstore16(w3, 0, to + 3 * size);
    }
}

/* Lines [y0, y1) of l and r; x is the item's first element. */
NOINLINE void first_layer(const band_t *b, plane_t planes, __global const T *x, int ld, int in, weights_t w, int y0,
                          int y1) {
    weights_t bias = w + in * WIDE;
    for (int y = y0; y < y1; y++) {
        __global const T *line = x + (size_t)y * b->width * ld;
        for (int i = 0; i < b->width; i += 16) {
            float16 room[24 * 3], *acc = room + 8 * 3;
            const int count = min(16, b->width - i);
            for (int k = 0; k < count; k += 8) { /* the last eight may begin before their place: the same again */
                const int first = min(i + k, b->width - 8);
                first_tile(acc + (first - i) * 3, line + first * ld, ld, in, w, bias);
            }
            for (int k = 0; k < count * 3; k++) acc[k] = activate_float16(acc[k], ACT_SILU);
            for (int k = count * 3; k < 16 * 3; k++) acc[k] = (float16)(0.0f);
            for (int j = 0; j < 3; j++)
                put_planes(acc + j, planes + (size_t)16 * j * b->size + place(b, y) + 1 + i, b->size);
        }
    }
}

/* ---- the others: lanes are pixels ---- */

#define EACH7(F)   F(0) F(1) F(2) F(3) F(4) F(5) F(6)
#define OPEN7(r)   float16 a##r##_0 = (float16)(bias[r]), a##r##_1 = a##r##_0, a##r##_2 = a##r##_0;
#define MAC7(r)                                                                                                        \
    {                                                                                                                  \
        const float16 v = (float16)(w[r]);                                                                             \
        a##r##_0 = fma(v, p0, a##r##_0);                                                                               \
        a##r##_1 = fma(v, p1, a##r##_1);                                                                               \
        a##r##_2 = fma(v, p2, a##r##_2);                                                                               \
    }
#define TAP(at)                                                                                                        \
    {                                                                                                                  \
        const float16 p0 = vload16(0, at), p1 = vload16(1, at), p2 = vload16(2, at);                                   \
        EACH7(MAC7)                                                                                                    \
        w += GROUP;                                                                                                    \
    }
#define TAPS(at)   TAP((at) - 1) TAP(at) TAP((at) + 1)
#define CLOSE7(r)  acc[r * 3] = a##r##_0, acc[r * 3 + 1] = a##r##_1, acc[r * 3 + 2] = a##r##_2;

/* 48 pixels from `from` on of GROUP channels. */
NOINLINE void later_tile(float16 *acc, plane_t from, int size, int line, weights_t w, weights_t bias) {
    EACH7(OPEN7)
    for (int c = 0; c < C; c++, from += size) {
        TAPS(from - line)
        TAPS(from)
        TAPS(from + line)
    }
    EACH7(CLOSE7)
}

/* Lines [y0, y1) of silu(conv 3x3) + what `add` has at the same places; none of it where `add` is 0. */
NOINLINE void later_layer(const band_t *b, plane_t to, plane_t from, plane_t add, weights_t w, int y0, int y1) {
    const int line = b->width + 1, size = b->size, end = place(b, y1);
    weights_t bias = w + GROUPS * GROUP * 9 * C;
    for (int i = place(b, y0) + 1; i < end; i += STEP)
        for (int g = 0; g < GROUPS; g++) {
            float16 acc[GROUP * 3];
            const int count = min(GROUP, C - g * GROUP);
            later_tile(acc, from + i, size, line, w + g * GROUP * 9 * C, bias + g * GROUP);
            for (int k = 0; k < count * 3; k++) {
                const size_t at = (size_t)(g * GROUP + k / 3) * size + i + k % 3 * 16;
                float16 v = activate_float16(acc[k], ACT_SILU);
                if (add) v += vload16(0, add + at);
                vstore16(v, 0, to + at);
            }
        }
    clear_edges(b, to, y0, y1);
}

/* Channels [c, c + 16) of 16 pixels, of which `count` are there. */
NOINLINE void put_pixels(plane_t from, int size, __global T *y, int ld, int count) {
#pragma clang loop unroll(disable)
    for (int k = 0; k < count; k += 4) {
#define PIECE(i) vload4(0, from + i * size + k)
        TRANSPOSE16X4(w, PIECE)
#undef PIECE
#define COLUMN(i)                                                                                                      \
    if (k + i < count) STORE16(w##i, y, (k + i) * ld);
        COLUMN(0) COLUMN(1) COLUMN(2) COLUMN(3)
#undef COLUMN
    }
}

NOINLINE void csp_group(__global T *restrict y, __global const T *restrict x, __global float *scratch,
                        __global const float *restrict weights, __global const int *restrict limit, int8 in, int8 out,
                        __global int *queue, const int4 group) {
    const int h = in.s0, w = in.s1, necks = out.s3, bands = out.s4, size = out.s6;
    plane_t left = scratch + (size_t)group.x * (WIDE + C) * size, right = left + (size_t)C * size;
    work_t work = work_begin(group.w, min(out.s0, *limit) * bands, out.s5);
    for (int item; (item = work_next(&work, queue)) >= 0;) {
        const int n = item / bands, k = item - n * bands, y0 = k * h / bands, y1 = (k + 1) * h / bands;
        const band_t b = {y0 - necks - 1, y1 - y0 + 2 * necks + 2, h, w, size};
        plane_t from = left, to = left + (size_t)WIDE * size;
        weights_t later = weights + (in.s4 + 1) * WIDE;
        if (b.top < 0 || b.top + b.lines > h) {
            clear_outside(&b, from);
            clear_outside(&b, to);
        }
        first_layer(&b, left, x + (size_t)n * h * w * in.s2 + in.s3, in.s2, in.s4, weights, max(b.top, 0),
                    min(b.top + b.lines, h));
        clear_edges(&b, left, max(b.top, 0), min(b.top + b.lines, h));
        for (int i = necks; i >= 0; i--, later += LATER) { /* i: lines above and below that the next layer reads */
            later_layer(&b, to, from, i == 1 ? right : 0, later, max(y0 - i, 0), min(y1 + i, h));
            plane_t made = to;
            to = from;
            from = made;
        }
        for (int line = y0; line < y1; line++)
            for (int i = 0; i < w; i += 16)
                for (int c = 0; c < C; c += 16) { /* the last channels begin before their place: the same again */
                    const int first = min(c, C - 16);
                    put_pixels(from + (size_t)first * size + place(&b, line) + 1 + i, size,
                               y + ((size_t)(n * h + line) * w + i) * out.s1 + out.s2 + first, out.s1, min(16, w - i));
                }
    }
    work_end(&work, queue);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
csp(__global T *restrict y, __global const T *restrict x, __global float *scratch,
    __global const float *restrict weights, __global const int *restrict limit, int8 in, int8 out,
    __global int *queue) {
    csp_group(y, x, scratch, weights, limit, in, out, queue, THIS_GROUP);
}
