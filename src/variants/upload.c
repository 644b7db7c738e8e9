/* Filling an upload on the host: Pillow's tap tables and the image blocks. */
#include "variants/upload.h"

#include <math.h>
#include <string.h>

/* First input index and number of taps of output index o (Pillow's precompute_coeffs, triangle filter). */
static int window_of(int n_in, int n_out, int o, int *count) {
    double scale = (double)n_in / n_out, support = scale > 1 ? scale : 1, centre = (o + 0.5) * scale;
    int lo = (int)(centre - support + 0.5), hi = (int)(centre + support + 0.5);
    if (lo < 0) lo = 0;
    if (hi > n_in) hi = n_in;
    *count = hi - lo;
    return lo;
}

static int most_taps(int n_in, int n_out) {
    int most = 1;
    for (int o = 0; o < n_out; o++) {
        int count;
        window_of(n_in, n_out, o, &count);
        if (count > most) most = count;
    }
    return most;
}

size_t ist_resize_taps_words(int n_in, int n_out) {
    return IST_TAPS_PAIRS + (size_t)n_out * (2 + (size_t)most_taps(n_in, n_out));
}

static double triangle(double centre, double factor, int i) {
    double t = fabs((i - centre + 0.5) * (1.0 / factor));
    return t < 1 ? 1 - t : 0;
}

void ist_resize_taps(int n_in, int n_out, uint32_t *table) {
    int k = most_taps(n_in, n_out);
    double scale = (double)n_in / n_out, factor = scale > 1 ? scale : 1;
    table[IST_TAPS_K] = (uint32_t)k;
    for (int o = 0; o < n_out; o++) {
        int count, lo = window_of(n_in, n_out, o, &count);
        uint32_t *coef = table + IST_TAPS_PAIRS + 2 * (size_t)n_out + (size_t)o * (size_t)k;
        double sum = 0, centre = (o + 0.5) * scale;
        for (int t = 0; t < count; t++) sum += triangle(centre, factor, lo + t);
        for (int t = 0; t < k; t++)
            coef[t] = t < count ? (uint32_t)(triangle(centre, factor, lo + t) / sum * (1 << 22) + 0.5) : 0;
        /* an axis that keeps its size has one tap of weight 1 and one of weight 0 */
        while (count > 1 && !coef[count - 1]) count--;
        table[IST_TAPS_PAIRS + 2 * o] = (uint32_t)lo;
        table[IST_TAPS_PAIRS + 2 * o + 1] = (uint32_t)count;
    }
}

void ist_segmenter_size(int side, int width, int height, int *w, int *h) {
    double scale = (double)side / (width > height ? width : height);
    *w = (int)(width * scale + 0.5);
    *h = (int)(height * scale + 0.5);
    if (*w < 1) *w = 1;
    if (*h < 1) *h = 1;
}

bool ist_resize_vertical_first(ist_resize_order order, int w, int h, int to_w, int to_h) {
    int down = h - to_h, across = w - to_w; /* Pillow 13.0, ImagingResampleInner */
    if (order == IST_RESIZE_ORDER_PILLOW_13) return down > 0 && down > 2 * across;
    return order == IST_RESIZE_ORDER_VERTICAL;
}

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

void ist_upload_image(uint32_t *upload, int i, const ist_frame_image *m) {
    uint32_t *im = upload + IST_UP_HEADER + (size_t)i * IST_IM_WORDS;
    int w, h;
    ist_segmenter_size(m->seg_side ? m->seg_side : IST_SEGMENTER_SIDE, m->width, m->height, &w, &h);
    double sx = (double)w / m->width, sy = (double)h / m->height;
    memset(im, 0, IST_IM_WORDS * sizeof *im);
    im[IST_IM_WIDTH] = (uint32_t)m->width;
    im[IST_IM_HEIGHT] = (uint32_t)m->height;
    im[IST_IM_CHANNELS] = (uint32_t)m->channels;
    im[IST_IM_SAMPLE] = (uint32_t)m->sample_bytes;
    im[IST_IM_OFFSET_LOW] = (uint32_t)m->offset;
    im[IST_IM_OFFSET_HIGH] = (uint32_t)(m->offset >> 32);
    im[IST_IM_STRIDE] = m->stride;
    im[IST_IM_DET_X] = m->det_x;
    im[IST_IM_DET_Y] = m->det_y;
    im[IST_IM_SEG_WIDTH] = (uint32_t)w;
    im[IST_IM_SEG_HEIGHT] = (uint32_t)h;
    im[IST_IM_SEG_X] = m->seg_x;
    im[IST_IM_SEG_Y] = m->seg_y;
    im[IST_IM_SCALE_X] = bits_of((float)sx);
    im[IST_IM_SCALE_X_LOW] = bits_of((float)(sx - (float)sx));
    im[IST_IM_SCALE_Y] = bits_of((float)sy);
    im[IST_IM_SCALE_Y_LOW] = bits_of((float)(sy - (float)sy));
    im[IST_IM_MASK_X] = bits_of((float)w / (float)m->width);
    im[IST_IM_MASK_Y] = bits_of((float)h / (float)m->height);
    im[IST_IM_TARGETS] = (uint32_t)m->targets;
    im[IST_IM_TARGET_AT] = m->target_at;
    im[IST_IM_DET_VERTICAL] = m->det_vertical;
    im[IST_IM_SEG_VERTICAL] = m->seg_vertical;
    im[IST_IM_CROP_X] = (uint32_t)m->crop_x;
    im[IST_IM_CROP_Y] = (uint32_t)m->crop_y;
    im[IST_IM_LOW] = (uint32_t)m->low;
    im[IST_IM_HIGH] = m->low || m->high || m->automatic ? (uint32_t)m->high : UINT16_MAX;
    im[IST_IM_WHOLE_WIDTH] = (uint32_t)(m->whole_width ? m->whole_width : m->width);
    im[IST_IM_WHOLE_HEIGHT] = (uint32_t)(m->whole_height ? m->whole_height : m->height);
}
