/* Automatic windows of 16-bit images: from the 0.5th to the 99.5th percentile of the samples of all colours (not of
 * alpha). Sorted, numbered from 0, those are samples k and count - 1 - k with k = count / 200; where they are equal, the
 * least and the greatest; where these are equal too, v and v + 1. Images whose LOW and HIGH are not both 0 have theirs.
 *
 * Four samples of known rank (least, low, high, greatest) are found by their digits: PARTS groups of an image count upper
 * bytes, one group adds these and finds in which the four are and at which rank among those of that byte; the same again
 * for the lower bytes, of each of the four by itself.
 *
 * counts [batch, PARTS, RANKS, 256]; ranks [batch, 2, RANKS]: upper byte and rank in there. LANES work-items a group;
 * with 1 nothing needs atomics. codes/frame and frame.cl are joined in front. */
#ifndef LANES
#define LANES 1
#endif
#define PARTS 128
#define RANKS 4
#define BINS  256
#if LANES == 1
#define LANE   0
#define SYNC() (void)0
#define INC(p) (void)(*(p))++
#else
#define LANE   ((int)get_local_id(0))
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#define INC(p) (void)atomic_inc(p)
#endif

static bool asks(__global const uint *upload, int image) {
    __global const uint *im = IMAGE_AT(upload, image);
    return image < (int)upload[UP_COUNT] && im[IM_SAMPLE] == 2 && !im[IM_LOW] && !im[IM_HIGH];
}

static int colours_of(__global const uint *im) {
    return im[IM_CHANNELS] < 3 ? 1 : 3;
}

/* Part get_group_id(0) counts every PARTS-th row. lower: 0 for upper bytes, all of them in the first of the ranks. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
window_count(__global uint *counts, __global uint *ranks, __global const uint *upload, __global const uchar *pixels,
             int lower) {
    __local uint bins[RANKS * BINS];
    const int part = get_group_id(0), image = get_group_id(1), all = lower ? RANKS * BINS : BINS;
    if (!asks(upload, image)) return;
    __global const uint *im = IMAGE_AT(upload, image);
    const int channels = (int)im[IM_CHANNELS], colours = colours_of(im);
    const int width = (int)im[IM_WHOLE_WIDTH], height = (int)im[IM_WHOLE_HEIGHT];
    const ulong offset = (ulong)im[IM_OFFSET_LOW] | (ulong)im[IM_OFFSET_HIGH] << 32;
    const ulong before = (ulong)im[IM_CROP_Y] * im[IM_STRIDE] + (ulong)im[IM_CROP_X] * (ulong)(2 * channels);
    __global const uchar *base = pixels + (size_t)(offset - before);
    uint upper[RANKS];
    for (int r = 0; r < RANKS; r++) upper[r] = lower ? ranks[image * 2 * RANKS + r] : 0;
    for (int i = LANE; i < all; i += LANES) bins[i] = 0;
    SYNC();
    for (int y = part; y < height; y += PARTS) {
        __global const uchar *row = base + (size_t)y * im[IM_STRIDE];
        for (int x = LANE; x < width; x += LANES)
            for (int c = 0; c < colours; c++) {
                const int at = 2 * (x * channels + c);
                if (!lower) {
                    INC(bins + row[at + 1]);
                    continue;
                }
                for (int r = 0; r < RANKS; r++)
                    if (row[at + 1] == upper[r]) INC(bins + r * BINS + row[at]);
            }
    }
    SYNC();
    counts += ((size_t)image * PARTS + part) * RANKS * BINS;
    for (int i = LANE; i < all; i += LANES) counts[i] = bins[i];
}

/* The bin in which the sample of that rank is; *rank becomes its rank in there. */
static uint bin_of(__local const uint *bins, uint *rank) {
    uint bin = 0;
    for (; bin < BINS - 1 && *rank >= bins[bin]; bin++) *rank -= bins[bin];
    return bin;
}

/* One group of an image; of one in tiles these get its window, in their blocks
 * and in those of their own uploads and their groups'. */
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
window_pick(__global uint *upload, __global uint *ranks, __global const uint *counts, int lower) {
    __local uint bins[RANKS * BINS], value[RANKS];
    const int image = get_group_id(0), all = lower ? RANKS * BINS : BINS;
    if (!asks(upload, image)) return;
    __global uint *im = IMAGE_AT(upload, image);
    counts += (size_t)image * PARTS * RANKS * BINS;
    ranks += image * 2 * RANKS;
    for (int i = LANE; i < all; i += LANES) {
        uint sum = 0;
        for (int p = 0; p < PARTS; p++) sum += counts[p * RANKS * BINS + i];
        bins[i] = sum;
    }
    SYNC();
    const uint count = im[IM_WHOLE_WIDTH] * im[IM_WHOLE_HEIGHT] * (uint)colours_of(im), k = count / 200;
    const uint first[RANKS] = {0, k, count - 1 - k, count - 1};
    if (LANE == 0)
        for (int r = 0; r < RANKS; r++) {
            uint rank = lower ? ranks[RANKS + r] : first[r];
            uint bin = bin_of(bins + (lower ? r * BINS : 0), &rank);
            value[r] = ranks[r] << 8 | bin;
            if (lower) continue;
            ranks[r] = bin;
            ranks[RANKS + r] = rank;
        }
    if (!lower) return;
    SYNC();
    const bool flat = value[1] == value[2];
    const uint low = flat ? value[0] : value[1], high = max(flat ? value[3] : value[2], low + 1);
    const int tiles = (int)upload[UP_TILES];
    if (LANE == 0) im[IM_LOW] = low, im[IM_HIGH] = high;
    for (int t = 1 + LANE; t < tiles; t += LANES) {
        const int each = (int)upload[UP_GROUP], group = (t - 1) / each;
        __global uint *own = upload + upload[UP_TILE_AT] + (t - 1) * upload[UP_TILE_STEP];
        __global uint *its = upload + upload[UP_GROUP_AT] + group * upload[UP_GROUP_STEP];
        __global uint *blocks[3] = {IMAGE_AT(upload, t), IMAGE_AT(own, 0), IMAGE_AT(its, t - 1 - group * each)};
        for (int b = 0; b < 3; b++) blocks[b][IM_LOW] = low, blocks[b][IM_HIGH] = high;
    }
}
