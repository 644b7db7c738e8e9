/* See crops.h. */
#include "pipeline/crops.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

/* Length of each of n crops of a side that overlap. */
static int crop_length(int side, int n, int overlap) {
    return (int)ceil(((double)overlap * (n - 1) + side) / n);
}

ist_status ist_crops_of(const ist_everything *e, int width, int height, ist_crop *crops, ist_error *err) {
    int shorter = width < height ? width : height, count = 0;
    crops[count++] = (ist_crop){0, 0, width, height};
    for (int l = 1; l <= e->crop_n_layers; l++) {
        int n = 1 << l, overlap = (int)(e->crop_overlap_ratio * shorter * (2.0 / n));
        int w = crop_length(width, n, overlap), h = crop_length(height, n, overlap);
        for (int k = 0; k < n * n; k++) {
            int x = (w - overlap) * (k / n), y = (h - overlap) * (k % n);
            ist_crop c = {x, y, x + w < width ? x + w : width, y + h < height ? y + h : height};
            if (c.x1 <= c.x0 || c.y1 <= c.y0)
                return ist_fail(err, IST_E_INPUT, "an image of %d x %d pixels is too small for crop layer %d", width,
                                height, l);
            crops[count++] = c;
        }
    }
    return IST_OK;
}

/* Place i of n in (0, 1): numpy.linspace(1 / 2n, 1 - 1 / 2n, n)[i]. */
static double spaced(int i, int n) {
    double from = 1.0 / (2 * n), to = 1.0 - from;
    if (n == 1) return from;
    return i == n - 1 ? to : i * ((to - from) / (n - 1)) + from;
}

int ist_grid_point(const ist_grids *grids, const ist_crop *crops, int i, double *x, double *y) {
    int c = 0;
    while (i >= grids->first[c + 1]) c++;
    int side = grids->side[grids->layer[c]], k = i - grids->first[c];
    *x = spaced(k % side, side) * (crops[c].x1 - crops[c].x0);
    *y = spaced(k / side, side) * (crops[c].y1 - crops[c].y0);
    return c;
}

size_t ist_crops_lay_out(const ist_grids *grids, int side, size_t alignment, size_t at, ist_crops_layout *layout) {
    layout->grid = at;
    at += (size_t)grids->points * IST_GR_WORDS;
    layout->at[0] = layout->words[0] = 0;
    for (int c = 1; c < grids->crops; c++) {
        const ist_crop *k = &layout->crops[c];
        int w, h, width = k->x1 - k->x0, height = k->y1 - k->y0;
        ist_segmenter_size(side, width, height, &w, &h);
        layout->at[c] = ist_align_up(at * sizeof(uint32_t), alignment) / sizeof(uint32_t);
        layout->words[c] =
            IST_UP_HEADER + IST_IM_WORDS + ist_resize_taps_words(width, w) + ist_resize_taps_words(height, h);
        at = layout->at[c] + layout->words[c];
    }
    return at;
}

/* A coordinate such that the prompt encoder, which adds half a pixel, has what the generator has: it adds in double and
 * rounds then. */
static uint32_t coordinate(double at) {
    float f = (float)(at + 0.5) - 0.5f;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static void fill_points(uint32_t *upload, const ist_grids *grids, const ist_crops_layout *layout, int side) {
    uint32_t *to = upload + layout->grid;
    for (int i = 0; i < grids->points; i++, to += IST_GR_WORDS) {
        double x, y;
        int w, h, c = ist_grid_point(grids, layout->crops, i, &x, &y);
        int width = layout->crops[c].x1 - layout->crops[c].x0, height = layout->crops[c].y1 - layout->crops[c].y0;
        ist_segmenter_size(side, width, height, &w, &h);
        to[IST_GR_X] = coordinate(x * ((double)w / width));
        to[IST_GR_Y] = coordinate(y * ((double)h / height));
        to[IST_GR_CROP] = (uint32_t)c;
    }
}

/* The upload of crop c: what its block is in there. */
static void fill_upload(uint32_t *up, const ist_frame_image *block, bool tables) {
    ist_frame_image own = *block;
    int w, h;
    ist_segmenter_size(own.seg_side, own.width, own.height, &w, &h);
    own.seg_x = IST_UP_HEADER + IST_IM_WORDS;
    own.seg_y = own.seg_x + (uint32_t)ist_resize_taps_words(own.width, w);
    memset(up, 0, IST_UP_HEADER * sizeof *up);
    up[IST_UP_COUNT] = 1;
    ist_upload_image(up, 0, &own);
    if (!tables) return;
    ist_resize_taps(own.width, w, up + own.seg_x);
    ist_resize_taps(own.height, h, up + own.seg_y);
}

void ist_crops_fill(uint32_t *upload, const ist_grids *grids, const ist_crops_layout *layout,
                    const ist_frame_image *image, ist_resize_order order, bool tables) {
    upload[IST_UP_GRID] = (uint32_t)grids->points;
    upload[IST_UP_GRID_AT] = (uint32_t)layout->grid;
    if (tables) fill_points(upload, grids, layout, image->seg_side);
    for (int c = 0; c < grids->crops; c++) {
        const ist_crop *k = &layout->crops[c];
        uint32_t *im = upload + IST_UP_HEADER + (size_t)c * IST_IM_WORDS;
        ist_frame_image block = *image;
        block.width = k->x1 - k->x0, block.height = k->y1 - k->y0;
        block.crop_x = k->x0, block.crop_y = k->y0;
        block.whole_width = image->width, block.whole_height = image->height;
        if (c) {
            int w, h;
            ist_segmenter_size(block.seg_side, block.width, block.height, &w, &h);
            block.offset +=
                (uint64_t)k->y0 * block.stride + (uint64_t)k->x0 * (uint64_t)(block.channels * block.sample_bytes);
            block.seg_vertical = ist_resize_vertical_first(order, block.width, block.height, w, h);
            fill_upload(upload + layout->at[c], &block, tables);
        }
        ist_upload_image(upload, c, &block);
        float score = 1.0f / (float)((int64_t)block.width * block.height);
        memcpy(&im[IST_IM_CROP_SCORE], &score, sizeof score);
    }
}
