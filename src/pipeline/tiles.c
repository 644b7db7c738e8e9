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
    l->each = t->batch;
    l->groups = ist_div_up(l->tiles - 1, l->each);
    return IST_OK;
}

void ist_tile_place(const ist_tile_layout *l, int i, int *x, int *y) {
    int right = l->image_width - l->width, bottom = l->image_height - l->height;
    *x = (i - 1) % l->columns * l->step_x;
    *y = (i - 1) / l->columns * l->step_y;
    if (*x > right) *x = right; /* the last ones are as large as the others */
    if (*y > bottom) *y = bottom;
}

/* Words of an upload of so many images without tables, so that another can follow. */
static size_t upload_words(int images, size_t alignment) {
    const size_t words = IST_UP_HEADER + (size_t)images * IST_IM_WORDS;
    return ist_align_up(words * sizeof(uint32_t), alignment) / sizeof(uint32_t);
}

size_t ist_tiles_lay_out(ist_tile_layout *l, int det_width, int det_height, int side, size_t alignment, size_t at) {
    if (l->tiles > 1) {
        l->at = ist_align_up(at * sizeof(uint32_t), alignment) / sizeof(uint32_t);
        l->step = upload_words(1, alignment);
        l->det_x = l->at + (size_t)(l->tiles - 1) * l->step;
        l->group_at = l->each > 1 ? l->det_x : l->at;
        l->group_step = upload_words(l->each, alignment);
        if (l->each > 1) l->det_x += (size_t)l->groups * l->group_step;
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

/* Block of tile i in an upload of its own or its group's, which begins at word `at`: block k there. */
static void fill_own(uint32_t *upload, const ist_tile_layout *l, ist_frame_image block, size_t at, int k) {
    block.det_x = (uint32_t)(l->det_x - at), block.det_y = (uint32_t)(l->det_y - at);
    block.seg_x = l->seg_x ? (uint32_t)(l->seg_x - at) : 0;
    block.seg_y = l->seg_x ? (uint32_t)(l->seg_y - at) : 0;
    ist_upload_image(upload + at, k, &block);
}

static void fill_header(uint32_t *own, int first, int count, bool begins) {
    memset(own, 0, IST_UP_HEADER * sizeof *own);
    own[IST_UP_COUNT] = (uint32_t)count;
    own[IST_UP_TILE] = (uint32_t)first;
    if (begins) own[IST_UP_FLAGS] = IST_UP_FIRST_TILE;
}

int ist_tiles_group(const ist_tile_layout *l, int group, int *first) {
    *first = 1 + group * l->each;
    return l->tiles - *first < l->each ? l->tiles - *first : l->each;
}

void ist_tiles_fill(uint32_t *upload, const ist_tile_layout *l, const ist_frame_image *image, int det_width,
                    int det_height, ist_resize_order order, bool whole, bool tables) {
    upload[IST_UP_TILES] = (uint32_t)l->tiles;
    upload[IST_UP_TILE_AT] = (uint32_t)l->at;
    upload[IST_UP_TILE_STEP] = (uint32_t)l->step;
    upload[IST_UP_GROUP] = (uint32_t)l->each;
    upload[IST_UP_GROUP_AT] = (uint32_t)l->group_at;
    upload[IST_UP_GROUP_STEP] = (uint32_t)l->group_step;
    if (whole || l->tiles == 1) upload[IST_UP_FLAGS] |= IST_UP_FIRST_TILE;
    if (l->tiles > 1 && tables) fill_tables(upload, l, det_width, det_height, image->seg_side);
    int w, h;
    ist_segmenter_size(image->seg_side ? image->seg_side : IST_SEGMENTER_SIDE, l->width, l->height, &w, &h);
    for (int i = 1; i < l->tiles; i++) {
        const size_t at = l->at + (size_t)(i - 1) * l->step;
        const int group = (i - 1) / l->each;
        ist_frame_image block = *image;
        ist_tile_place(l, i, &block.crop_x, &block.crop_y);
        block.width = l->width, block.height = l->height;
        block.whole_width = image->width, block.whole_height = image->height;
        block.offset += (uint64_t)block.crop_y * block.stride +
                        (uint64_t)block.crop_x * (uint64_t)(block.channels * block.sample_bytes);
        block.det_vertical = ist_resize_vertical_first(order, l->width, l->height, det_width, det_height);
        block.seg_vertical = l->seg_x && ist_resize_vertical_first(order, l->width, l->height, w, h);
        block.targets = 0;
        fill_own(upload, l, block, 0, i);
        fill_header(upload + at, i, 1, i == 1 && !whole);
        fill_own(upload, l, block, at, 0);
        if (l->each == 1) continue;
        fill_own(upload, l, block, l->group_at + (size_t)group * l->group_step, i - 1 - group * l->each);
    }
    for (int g = 0; g < l->groups && l->each > 1; g++) {
        int first, count = ist_tiles_group(l, g, &first);
        fill_header(upload + l->group_at + (size_t)g * l->group_step, first, count, g == 0 && !whole);
    }
}
