/* Convolutions on CPUs that first lay out what the windows of an item of work see: what such kernels share.
 *
 * Input and output are float. An item of work is some lines of one item's map (of a linear layer: some pixels) by some
 * column tiles of NV vectors of 16 output channels. The lines that its windows see are laid out once in the group's
 * part of `scratch`, with zeros for the padding. A window of stride s sees every s-th pixel, so the pixels are sorted
 * into planes, one for each remainder of line and column: then every tap of neighbouring results is at neighbouring
 * pixels, across the ends of lines too, and the summation has neither bounds nor gathering. The price is a result or
 * two per line that nobody wants.
 *
 * The kernel says how a pixel is laid out (lay_pixel). Needs portable/vector with VL = 16; -D NV. */

/* The map and the part of it that an item of work makes. */
typedef struct {
    int h, w, stride, kh, kw, top, left, cin, ld; /* of the input and the windows */
    int pitch;                                    /* pixels of a line in scratch */
    int step, room;                               /* lay_pixel's */
    int line, lines, width;                       /* results: first line, lines, pixels of a line */
} part_t;

/* Writes pixel number `pixel` of scratch: the m->cin channels at x, or zeros where x is null. */
static inline void lay_pixel(__global uint *scratch, int pixel, __global const TX *x, const part_t *m);

/* Lines of a plane, and pixels of it: the last line's windows end up to kw - 1 pixels behind it, in padding. */
static inline int plane_lines(const part_t *m) {
    return m->lines + (m->kh - 1) / m->stride;
}
static inline int plane_pixels(const part_t *m) {
    return plane_lines(m) * m->pitch + m->kw - 1;
}

/* Number of the pixel of scratch that tap (ky, kx) of the part's first result sees. */
static inline int tap_pixel(const part_t *m, int ky, int kx) {
    const int plane = ky % m->stride * min(m->stride, m->kw) + kx % m->stride;
    return plane * plane_pixels(m) + ky / m->stride * m->pitch + kx / m->stride;
}

/* Lays out what the windows see; x is the first pixel of the item's map. */
static inline void fill(__global uint *scratch, __global const TX *x, const part_t *m) {
    const int planes_y = min(m->stride, m->kh), planes_x = min(m->stride, m->kw), pixels = plane_pixels(m);
    int pixel = 0;
    for (int py = 0; py < planes_y; py++)
        for (int px = 0; px < planes_x; px++) {
            int iy = m->line * m->stride + py - m->top, ix = px - m->left;
            for (int i = 0, column = 0; i < pixels; i++, column++, ix += m->stride) {
                if (column == m->pitch) column = 0, ix = px - m->left, iy += m->stride;
                const bool inside = iy >= 0 && iy < m->h && ix >= 0 && ix < m->w;
                lay_pixel(scratch, pixel++, inside ? x + ((long)iy * m->w + ix) * m->ld : 0, m);
            }
        }
}

/* Part number `chunk` of those of `lines` lines (linear: pixels), of which there are all_lines in a map (linear: in
 * all): completes m and lays it out. Returns the number of its first result among the pixels of the output. */
static inline int part_begin(part_t *m, int chunk, int lines, int all_lines, bool linear, __global uint *scratch,
                             __global const TX *x, const conv_shape shape) {
    const int parts = (all_lines + lines - 1) / lines, n = chunk / parts, line = (chunk - n * parts) * lines;
    const int count = min(lines, all_lines - line);
    if (linear) { /* one line of pixels */
        m->h = m->lines = 1;
        m->w = m->pitch = m->width = count;
    } else {
        m->line = line;
        m->lines = count;
    }
    fill(scratch, x + (linear ? (long)line : (long)n * shape.x_h * shape.x_w) * shape.x_ld + shape.x_c0, m);
    return linear ? line : (n * shape.y_h + line) * shape.y_w;
}

/* A tile of sums that waits to be stored: rows of NV vectors, results of channel `col` on from `column` of line `line`
 * of the part on, of which those beyond its width do not exist; `first` is the number of the part's first pixel. */
typedef struct {
    const float16 *sums;
    int rows, line, column, first, col;
} tile_t;

/* Stores the next `count` rows. */
NOINLINE void store_rows(tile_t *t, int count, const part_t *m, __global TY *y, __global const T *before,
                         __global const T *after, const conv_shape shape, const epilogue_args epi) {
    const bool mapped = (epi.flags & (EPI_BEFORE_UP2 | EPI_BEFORE_ONE | EPI_AFTER_ONE)) != 0;
    const bool simple = epi.act <= ACT_RELU && (epi.flags & ~EPI_LAB) == 0 && t->col + NV * VL <= shape.y_c;
    const float16 low = (float16)(epi.act == ACT_RELU ? 0.0f : -INFINITY);
    const float16 scale = (float16)(epi.flags & EPI_LAB ? epi.lab_scale : 1.0f);
    const float16 shift = (float16)(epi.flags & EPI_LAB ? epi.lab_bias : 0.0f);
    const float16 *sums = t->sums;
    int column = t->column, line = t->line;
    t->rows -= count;
    for (; count > 0; count--, column++, sums += NV) {
        if (column == m->pitch) column = 0, line++;
        if (column >= m->width) continue;
        const int p = t->first + line * m->width + column;
        __global TY *yp = y + (size_t)p * shape.y_ld + shape.y_c0 + t->col;
        if (simple) {
            for (int j = 0; j < NV; j++) STORE_YV(fma(max(sums[j], low), scale, shift), yp, j * VL);
            continue;
        }
        int b = p, a = p;
        if (mapped) {
            const int all = p / shape.y_w, ox = p - all * shape.y_w, n = all / shape.y_h, oy = all - n * shape.y_h;
            b = before_pixel(n, oy, ox, shape.y_h, shape.y_w, epi.flags);
            a = after_pixel(n, oy, ox, shape.y_h, shape.y_w, epi.flags);
        }
        __global const T *bp = before + (size_t)b * epi.before_ld + epi.before_c0 + t->col;
        __global const T *ap = after + (size_t)a * epi.after_ld + epi.after_c0 + t->col;
        for (int j = 0, c = 0; j < NV && t->col + c < shape.y_c; j++, c += VL)
            finish(sums[j], shape.y_c - t->col - c, yp + c, bp + c, ap + c, epi);
    }
    t->sums = sums;
    t->column = column;
    t->line = line;
}
