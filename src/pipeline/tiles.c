/* See tiles.h. */
#include "pipeline/tiles.h"

#include "base/mem.h"
#include "base/status.h"

#include <string.h>

ist_status ist_tiles_check(const ist_tiles *t, ist_error *err) {
    int shorter = t->width < t->height ? t->width : t->height;
    if (t->width < 32 || t->height < 32 || t->width > IST_RESIZE_MAX || t->height > IST_RESIZE_MAX)
        return ist_fail(err, IST_E_ARGUMENT, "config.tiles are of %d x %d pixels, want 32 to %d on a side", t->width,
                        t->height, IST_RESIZE_MAX);
    if (t->overlap < -1 || t->overlap > shorter / 2)
        return ist_fail(err, IST_E_ARGUMENT, "tiles.overlap is %d, want at most %d, half of a tile's shorter side",
                        t->overlap, shorter / 2);
    if (t->whole != 0 && t->whole != 1) return ist_fail(err, IST_E_ARGUMENT, "tiles.whole is %d, want 0..1", t->whole);
    return IST_OK;
}

/* How many tiles of a side, step apart, reach the end of an image's. */
static int count_of(int side, int tile, int step) {
    return side <= tile ? 1 : 1 + ist_div_up(side - tile, step);
}

ist_status ist_tiles_of(const ist_tiles *t, int width, int height, ist_tile_layout *l, ist_error *err) {
    *l = (ist_tile_layout){.tiles = 1,
                           .width = t->width < width ? t->width : width,
                           .height = t->height < height ? t->height : height,
                           .image_width = width,
                           .image_height = height,
                           .step_x = t->width - (t->overlap < 0 ? t->width / 5 : t->overlap),
                           .step_y = t->height - (t->overlap < 0 ? t->height / 5 : t->overlap)};
    l->columns = count_of(width, t->width, l->step_x);
    l->rows = count_of(height, t->height, l->step_y);
    int64_t all = (int64_t)l->columns * l->rows;
    if (all > 1) all++;
    if (all > IST_TILES_MAX)
        return ist_fail(err, IST_E_LIMIT, "%d x %d pixels are %lld tiles of %d x %d with the whole, at most %d", width,
                        height, (long long)all, t->width, t->height, IST_TILES_MAX);
    l->tiles = (int)all;
    return IST_OK;
}

void ist_tile_place(const ist_tile_layout *l, int i, int *x, int *y) {
    int right = l->image_width - l->width, bottom = l->image_height - l->height;
    *x = (i - 1) % l->columns * l->step_x;
    *y = (i - 1) / l->columns * l->step_y;
    if (*x > right) *x = right; /* the last ones are as large as the others */
    if (*y > bottom) *y = bottom;
}

size_t ist_tiles_lay_out(ist_tile_layout *l, int det_width, int det_height, int side, size_t alignment, size_t at) {
    if (l->tiles > 1) {
        l->at = ist_align_up(at * sizeof(uint32_t), alignment) / sizeof(uint32_t);
        l->step = ist_align_up((IST_UP_HEADER + IST_IM_WORDS) * sizeof(uint32_t), alignment) / sizeof(uint32_t);
        l->det_x = l->at + (size_t)(l->tiles - 1) * l->step;
        l->det_y = l->det_x + ist_resize_taps_words(l->width, det_width);
        at = l->det_y + ist_resize_taps_words(l->height, det_height);
        if (side) {
            int w, h;
            ist_segmenter_size(side, l->width, l->height, &w, &h);
            l->seg_x = at;
            l->seg_y = at + ist_resize_taps_words(l->width, w);
            at = l->seg_y + ist_resize_taps_words(l->height, h);
        }
    }
    return l->end = at;
}

static void fill_tables(uint32_t *upload, const ist_tile_layout *l, int det_width, int det_height, int side) {
    ist_resize_taps(l->width, det_width, upload + l->det_x);
    ist_resize_taps(l->height, det_height, upload + l->det_y);
    if (!l->seg_x) return;
    int w, h;
    ist_segmenter_size(side, l->width, l->height, &w, &h);
    ist_resize_taps(l->width, w, upload + l->seg_x);
    ist_resize_taps(l->height, h, upload + l->seg_y);
}

void ist_tiles_fill(uint32_t *upload, const ist_tile_layout *l, const ist_frame_image *image, int det_width,
                    int det_height, ist_resize_order order, bool whole, bool tables) {
    upload[IST_UP_TILES] = (uint32_t)l->tiles;
    upload[IST_UP_TILE_AT] = (uint32_t)l->at;
    upload[IST_UP_TILE_STEP] = (uint32_t)l->step;
    if (whole || l->tiles == 1) upload[IST_UP_FLAGS] |= IST_UP_FIRST_TILE;
    if (l->tiles > 1 && tables) fill_tables(upload, l, det_width, det_height, image->seg_side);
    int w, h;
    ist_segmenter_size(image->seg_side ? image->seg_side : IST_SEGMENTER_SIDE, l->width, l->height, &w, &h);
    for (int i = 1; i < l->tiles; i++) {
        const size_t at = l->at + (size_t)(i - 1) * l->step;
        uint32_t *own = upload + at;
        ist_frame_image block = *image;
        ist_tile_place(l, i, &block.crop_x, &block.crop_y);
        block.width = l->width, block.height = l->height;
        block.whole_width = image->width, block.whole_height = image->height;
        block.offset += (uint64_t)block.crop_y * block.stride +
                        (uint64_t)block.crop_x * (uint64_t)(block.channels * block.sample_bytes);
        block.det_vertical = ist_resize_vertical_first(order, l->width, l->height, det_width, det_height);
        block.seg_vertical = l->seg_x && ist_resize_vertical_first(order, l->width, l->height, w, h);
        block.targets = 0;
        block.det_x = (uint32_t)(l->det_x - at), block.det_y = (uint32_t)(l->det_y - at);
        block.seg_x = l->seg_x ? (uint32_t)(l->seg_x - at) : 0;
        block.seg_y = l->seg_x ? (uint32_t)(l->seg_y - at) : 0;
        ist_upload_image(upload, i, &block);
        memset(own, 0, IST_UP_HEADER * sizeof *own);
        own[IST_UP_COUNT] = 1;
        own[IST_UP_TILE] = (uint32_t)i;
        if (i == 1 && !whole) own[IST_UP_FLAGS] = IST_UP_FIRST_TILE;
        ist_upload_image(own, 0, &block);
    }
}
