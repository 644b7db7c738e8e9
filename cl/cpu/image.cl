/* Resampling of raw pixels into network input, CPU row: one work-item makes ROWS x COLS output pixels.
 *
 * out [batch, size.y, size.x, 3] of T. Input rows are resampled horizontally one after the other, rounded to 8 bit as
 * Pillow does, and added into the output rows that use them; nothing but the tile's accumulators is kept. The tap
 * tables say everything about geometry (frame.h). Result (v - mean) / std, correctly rounded, 0 outside the resized
 * image.
 *
 * -D ORDER: word of the image's block that says whether it is resampled vertically first; without it none is.
 * -D WINDOWS: 16-bit samples go through the image's window; without it through 0..65535. */
#ifndef ROWS
#define ROWS 8
#endif
#define COLS       64
#define VECS       (3 * COLS / 16)
#define HALF       (1 << 21)
#define QUICK_TAPS 12  /* most taps of the quick way: shrinking to a fifth */
#define SPAN       128 /* columns that are resampled vertically at a time */

/* One tap loop: `wide` reads a pixel together with what follows it and is used for `safe` taps. */
#define TAPS(taps, wide, narrow)                                                                                       \
    for (int x = first; x < count; x++) {                                                                              \
        int lo = pairs[2 * x], n = pairs[2 * x + 1], safe = min(n, taps), t = 0;                                       \
        __global const int *c = coef + x * k;                                                                          \
        int4 s = (int4)(HALF);                                                                                         \
        for (; t < safe; t++) {                                                                                        \
            int at = lo + t;                                                                                           \
            s += (wide)*c[t];                                                                                          \
        }                                                                                                              \
        narrow;                                                                                                        \
        vstore4(min(s >> 22, (int4)(255)), 0, h + 3 * x);                                                              \
    }
#define REST(pixel)                                                                                                    \
    for (; t < n; t++) {                                                                                               \
        int at = lo + t;                                                                                               \
        s += (pixel)*c[t];                                                                                             \
    }

#define GRAY(v)   ((int4)((int)(v)))
#define RGB(p, i) ((int4)(p[i], p[(i) + 1], p[(i) + 2], 0))
#ifdef WINDOWS
#define NARROW(v) ((int)through_window(v, window.x, window.y))
#else
#define NARROW(v) ((int)(((v) + 128u) / 257u))
#endif
#define WORD(i)   NARROW((uint)row[2 * (i)] + ((uint)row[2 * (i) + 1] << 8))

/* h[3 * x + channel], first <= x < count: the row at output resolution, 8-bit values. What is left of the fourth value
 * of a pixel the next pixel overwrites. */
NOINLINE void horizontal(__global const uchar *row, int width, int channels, int sample, int2 window,
                         __global const int *pairs, __global const int *coef, int k, int first, int count, int *h) {
    if (channels < 3) {
        if (sample == 2)
            TAPS(n, GRAY(WORD(channels * at)), )
        else
            TAPS(n, GRAY(row[channels * at]), )
    } else if (sample == 2) {
        TAPS(n, ((int4)(WORD(channels * at), WORD(channels * at + 1), WORD(channels * at + 2), 0)), )
    } else {
        TAPS(width - 1 - lo, convert_int4(vload4(0, row + channels * at)), REST(RGB(row, channels * at)))
    }
}

/* The same for 8-bit RGB and RGBA, columns [0, count), four at a time: turned[t * COLS + x] is tap t of column x, 0
 * beyond its last, and no column's k pixels reach the end of the row. */
NOINLINE void quads(__global const uchar *row, int channels, __global const int *pairs, const int *turned, int k,
                    int count, int *h) {
    for (int x = 0; x < count; x += 4) {
        __global const uchar *p0 = row + channels * pairs[2 * x], *p1 = row + channels * pairs[2 * x + 2];
        __global const uchar *p2 = row + channels * pairs[2 * x + 4], *p3 = row + channels * pairs[2 * x + 6];
        int16 s = (int16)(HALF);
        for (int t = 0, at = 0; t < k; t++, at += channels) {
            int4 c = vload4(0, turned + t * COLS + x);
            uchar16 p = (uchar16)(vload4(0, p0 + at), vload4(0, p1 + at), vload4(0, p2 + at), vload4(0, p3 + at));
            s += convert_int16(p) * c.xxxxyyyyzzzzwwww;
        }
        s = min(s >> 22, (int16)(255));
        vstore4(s.lo.lo, 0, h + 3 * x);
        vstore4(s.lo.hi, 0, h + 3 * x + 3);
        vstore4(s.hi.lo, 0, h + 3 * x + 6);
        vstore4(s.hi.hi, 0, h + 3 * x + 9);
    }
}

#ifdef ORDER
/* h[colours * (x - from) + colour], from <= x < from + count: these columns of `n` rows, the first of them `row`,
 * resampled; 8-bit values. */
NOINLINE void vertical(__global const uchar *row, uint stride, int channels, int sample, int2 window,
                       __global const int *c, int n, int from, int count, int *h) {
    int colours = channels < 3 ? 1 : 3, i = 0;
    row += from * channels * sample;
    if (channels == colours && sample == 1)
        for (; i + 16 <= colours * count; i += 16) {
            int16 s = (int16)(HALF);
            for (int t = 0; t < n; t++) s += convert_int16(vload16(0, row + (size_t)t * stride + i)) * (int16)(c[t]);
            vstore16(min(s >> 22, (int16)(255)), 0, h + i);
        }
    for (; i < colours * count; i++) {
        __global const uchar *at = row + (i / colours * channels + i % colours) * sample;
        int s = HALF;
        for (int t = 0; t < n; t++, at += stride)
            s += (sample == 1 ? (int)at[0] : NARROW((uint)at[0] + ((uint)at[1] << 8))) * c[t];
        h[i] = min(s >> 22, 255);
    }
}

/* sums[3 * x + channel], x < count: a row of results vertically first, before the shift. */
NOINLINE void columns_first(__global const uchar *row, uint stride, int channels, int sample, int2 window,
                            __global const int *cy, int ny, __global const int *pairs, __global const int *cx, int k,
                            int count, int *sums) {
    int colours = channels < 3 ? 1 : 3, h[3 * SPAN], end = pairs[2 * count - 2] + pairs[2 * count - 1];
    for (int i = 0; i < 3 * count; i++) sums[i] = HALF;
    for (int from = pairs[0]; from < end; from += SPAN) {
        int to = min(from + SPAN, end);
        vertical(row, stride, channels, sample, window, cy, ny, from, to - from, h);
        for (int x = 0; x < count; x++) {
            int lo = pairs[2 * x], last = min(lo + pairs[2 * x + 1], to);
            for (int at = max(lo, from); at < last; at++)
                for (int i = 0; i < 3; i++)
                    sums[3 * x + i] += h[colours * (at - from) + (colours == 1 ? 0 : i)] * cx[x * k + at - lo];
        }
    }
}
#endif

/* a / d correctly rounded, r being 1 / d correctly rounded (Markstein 1990). */
static float16 divide(float16 a, float16 d, float16 r) {
    float16 q = a * r;
    return fma(fma(-q, d, a), r, q);
}

/* Three vectors of interleaved RGB, made into network input. */
NOINLINE void normalise(const int16 *acc, float *value, float4 mean, float4 std, float4 rcp) {
    float3 m = mean.xyz, d = std.xyz, r = rcp.xyz;
    for (int j = 0; j < 3; j++) {
        float16 a = convert_float16(min(acc[j] >> 22, (int16)(255)));
        float16 m16 = (float16)(m, m, m, m, m, m.x), d16 = (float16)(d, d, d, d, d, d.x);
        vstore16(divide(a - m16, d16, (float16)(r, r, r, r, r, r.x)), j, value);
        m = m.yzx; /* 16 is 1 modulo 3 */
        d = d.yzx;
        r = r.yzx;
    }
}

/* fields: x table, y table, and the fields of the resized width and height in the image's block (0: size). */
NOINLINE void resize_group(__global T *out, __global const uint *upload, __global const uchar *pixels, int4 fields,
                           int4 size, float4 mean, float4 std, float4 rcp, const int4 group) {
    int image = group.z, x0 = group.x * COLS, y0 = group.y * ROWS;
    if (image >= (int)upload[UP_COUNT]) return;
    __global const uint *im = IMAGE_AT(upload, image);
    __global const int *tx = (__global const int *)upload + im[fields.x];
    __global const int *ty = (__global const int *)upload + im[fields.y];
    int w = fields.z ? (int)im[fields.z] : size.x, h = fields.w ? (int)im[fields.w] : size.y;
    int kx = tx[TAPS_K], ky = ty[TAPS_K], columns = min(COLS, w - x0), rows = min(ROWS, h - y0);
    __global const int *py = ty + TAPS_PAIRS + 2 * y0, *cy = ty + TAPS_PAIRS + 2 * h + y0 * ky;
    __global const uchar *base = pixels + (size_t)((ulong)im[IM_OFFSET_LOW] | (ulong)im[IM_OFFSET_HIGH] << 32);
    __global const int *px = tx + TAPS_PAIRS + 2 * x0, *cx = tx + TAPS_PAIRS + 2 * w + x0 * kx;
    int channels = (int)im[IM_CHANNELS], sample = (int)im[IM_SAMPLE], quick = 0;
    int2 window = (int2)((int)im[IM_LOW], (int)im[IM_HIGH]);
    int line[3 * COLS + 16], turned[QUICK_TAPS * COLS];
    int16 acc[ROWS * VECS];
    for (int i = 0; i < ROWS * VECS; i++) acc[i] = (int16)(HALF);
    for (int i = 0; i < 3 * COLS + 16; i++) line[i] = 0;

    if (columns > 0 && rows > 0) {
        if (sample == 1 && channels >= 3 && kx <= QUICK_TAPS) {
            while (quick + 4 <= columns && px[2 * quick + 6] + kx < (int)im[IM_WIDTH]) quick += 4;
            for (int x = 0; x < quick; x++)
                for (int t = 0; t < kx; t++) turned[t * COLS + x] = cx[x * kx + t];
        }
        int end = py[2 * rows - 2] + py[2 * rows - 1];
#ifdef ORDER
        for (int r = 0; im[ORDER] && r < rows; r++) {
            __global const uchar *row = base + (size_t)py[2 * r] * im[IM_STRIDE];
            columns_first(row, im[IM_STRIDE], channels, sample, window, cy + r * ky, py[2 * r + 1], px, cx, kx, columns,
                          line);
            for (int v = 0; v < VECS; v++) acc[r * VECS + v] = vload16(v, line);
        }
        if (im[ORDER]) end = 0;
#endif
        for (int y = py[0]; y < end; y++) {
            __global const uchar *row = base + (size_t)y * im[IM_STRIDE];
            if (quick) quads(row, channels, px, turned, kx, quick, line);
            horizontal(row, (int)im[IM_WIDTH], channels, sample, window, px, cx, kx, quick, columns, line);
            for (int r = 0; r < rows; r++) {
                int t = y - py[2 * r];
                if (t < 0 || t >= py[2 * r + 1]) continue;
                int c = cy[r * ky + t];
                for (int v = 0; v < VECS; v++) acc[r * VECS + v] += vload16(v, line) * c;
            }
        }
    }
    int made = min(COLS, size.x - x0), inside = 3 * max(columns, 0);
    float value[3 * COLS];
    for (int r = 0; r < ROWS && y0 + r < size.y; r++) {
        __global T *o = out + (((size_t)image * size.y + y0 + r) * size.x + x0) * 3;
        int samples = r < rows ? inside : 0;
        for (int v = 0; v < VECS && 16 * v < samples; v += 3)
            normalise(acc + r * VECS + v, value + 16 * v, mean, std, rcp);
        for (int i = samples; i < 3 * COLS; i++) value[i] = 0.0f;
        if (made == COLS)
            for (int v = 0; v < VECS; v++) STORE16(vload16(v, value), o, 16 * v);
        else
            for (int i = 0; i < 3 * made; i++) STORE(value[i], o, i);
    }
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
resize(__global T *out, __global const uint *upload, __global const uchar *pixels, int4 fields, int4 size, float4 mean,
       float4 std, float4 rcp) {
    resize_group(out, upload, pixels, fields, size, mean, std, rcp, THIS_GROUP);
}
