/* Resampling of raw pixels into network input, portable row: one work-item makes ROWS output pixels of one column.
 *
 * out [batch, size.y, size.x, OUT] of T. Input rows are resampled horizontally one after the other, rounded to 8 bit as
 * Pillow does, and added into the output rows that use them. The tap tables say everything about geometry (frame.h).
 * Result (v - mean) / std, correctly rounded, 0 outside the resized image.
 *
 * -D OUT: 3, gray repeated and alpha dropped; 1, colours by Pillow's convert("L"), before they are resampled; 4, alpha
 * behind the colours, 255 where the image has none.
 * -D ORDER: word of the image's block that says whether it is resampled vertically first; without it none is.
 * -D WINDOWS: 16-bit samples go through the image's window; without it through 0..65535. */
#ifndef ROWS
#define ROWS 8
#endif
#ifndef OUT
#define OUT 3
#endif
#define HALF (1 << 21)

/* Samples of pixel x as 8-bit RGB, and alpha where it is asked for. */
static int4 samples(__global const uchar *row, int x, int channels, int sample, int2 window) {
    int i = x * channels, step = channels < 3 ? 0 : 1, a = OUT == 4 ? i + channels - 1 : i;
    if (sample == 1) return (int4)(row[i], row[i + step], row[i + 2 * step], row[a]);
    uint4 v = (uint4)(row[2 * i], row[2 * (i + step)], row[2 * (i + 2 * step)], row[2 * a]);
    v += (uint4)(row[2 * i + 1], row[2 * (i + step) + 1], row[2 * (i + 2 * step) + 1], row[2 * a + 1]) << 8;
#ifdef WINDOWS
    return (int4)(through_window(v.x, window.x, window.y), through_window(v.y, window.x, window.y),
                  through_window(v.z, window.x, window.y), through_window(v.w, window.x, window.y));
#else
    return convert_int4((v + 128u) / 257u);
#endif
}

/* The OUT channels of pixel x, in the first places. */
static int4 pixel(__global const uchar *row, int x, int channels, int sample, int2 window) {
    int4 v = samples(row, x, channels, sample, window);
#if OUT == 1
    if (channels >= 3) v.x = (v.x * 19595 + v.y * 38470 + v.z * 7471 + 0x8000) >> 16;
#elif OUT == 4
    if (channels % 2) v.w = 255;
#endif
    return v;
}

#ifdef ORDER
/* Column x of `n` rows, resampled and rounded. */
static int4 column(__global const uchar *row, uint stride, __global const int *c, int n, int x, int channels,
                   int sample, int2 window) {
    int4 s = (int4)(HALF);
    for (int t = 0; t < n; t++) s += pixel(row + (size_t)t * stride, x, channels, sample, window) * c[t];
    return min(s >> 22, (int4)(255));
}
#endif

/* a / d correctly rounded, r being 1 / d correctly rounded (Markstein 1990). */
static float4 divide(float4 a, float4 d, float4 r) {
    float4 q = a * r;
    return fma(fma(-q, d, a), r, q);
}

/* fields: x table, y table, and the fields of the resized width and height in the image's block (0: size). */
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void resize(__global T *out, __global const uint *upload,
                                                                     __global const uchar *pixels, int4 fields,
                                                                     int4 size, float4 mean, float4 std, float4 rcp) {
    int image = get_global_id(2), x = get_global_id(0), y0 = get_global_id(1) * ROWS;
    if (image >= (int)upload[UP_COUNT] || x >= size.x) return;
    __global const uint *im = IMAGE_AT(upload, image);
    __global const int *tx = (__global const int *)upload + im[fields.x];
    __global const int *ty = (__global const int *)upload + im[fields.y];
    int w = fields.z ? (int)im[fields.z] : size.x, h = fields.w ? (int)im[fields.w] : size.y;
    int kx = tx[TAPS_K], ky = ty[TAPS_K], rows = min(ROWS, h - y0);
    __global const int *py = ty + TAPS_PAIRS + 2 * y0, *cy = ty + TAPS_PAIRS + 2 * h + y0 * ky;
    __global const int *cx = tx + TAPS_PAIRS + 2 * w + x * kx;
    __global const uchar *base = pixels + (size_t)((ulong)im[IM_OFFSET_LOW] | (ulong)im[IM_OFFSET_HIGH] << 32);
    int channels = (int)im[IM_CHANNELS], sample = (int)im[IM_SAMPLE];
    int2 window = (int2)((int)im[IM_LOW], (int)im[IM_HIGH]);
    int4 acc[ROWS];
    for (int r = 0; r < ROWS; r++) acc[r] = (int4)(HALF);

    if (x < w && rows > 0) {
        int lo = tx[TAPS_PAIRS + 2 * x], n = tx[TAPS_PAIRS + 2 * x + 1];
        int end = py[2 * rows - 2] + py[2 * rows - 1];
#ifdef ORDER
        if (im[ORDER]) {
            for (int r = 0; r < ROWS && r < rows; r++) {
                __global const uchar *row = base + (size_t)py[2 * r] * im[IM_STRIDE];
                for (int t = 0; t < n; t++)
                    acc[r] +=
                        column(row, im[IM_STRIDE], cy + r * ky, py[2 * r + 1], lo + t, channels, sample, window) * cx[t];
            }
            end = 0;
        }
#endif
        for (int y = py[0]; y < end; y++) {
            __global const uchar *row = base + (size_t)y * im[IM_STRIDE];
            int4 s = (int4)(HALF);
            for (int t = 0; t < n; t++) s += pixel(row, lo + t, channels, sample, window) * cx[t];
            s = min(s >> 22, (int4)(255));
            for (int r = 0; r < ROWS; r++) {
                int t = r < rows ? y - py[2 * r] : -1;
                if (t >= 0 && t < py[2 * r + 1]) acc[r] += s * cy[r * ky + t];
            }
        }
    }
    for (int r = 0; r < ROWS && y0 + r < size.y; r++) {
        size_t o = (((size_t)image * size.y + y0 + r) * size.x + x) * OUT;
        float4 v = divide(convert_float4(min(acc[r] >> 22, (int4)(255))) - mean, std, rcp);
        if (x >= w || r >= rows) v = (float4)(0.0f);
        STORE(v.x, out, o);
#if OUT > 1
        STORE(v.y, out, o + 1);
        STORE(v.z, out, o + 2);
#endif
#if OUT == 4
        STORE(v.w, out, o + 3);
#endif
    }
}
