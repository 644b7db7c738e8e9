/* The two byte layouts that cross between host and device: the upload of one batch and its packet.
 *
 * Both are arrays of 32-bit words (floats by their bits), so there is no padding to agree on. Kernels get the
 * numbers of this file as macros without IST_ (codes/frame). Host code fills an upload with the
 * functions of image.h and reads a packet with the offsets below. */
#ifndef IST_GRAPH_FRAME_H
#define IST_GRAPH_FRAME_H

#include <stddef.h>
#include <stdint.h>

/* What RESIZE makes of white for a detector: 255 / 256, since values are exact in binary then. */
#define IST_DETECTOR_WHITE (255.0f / 256.0f)

/* ---- upload: header, one block per image, then (anywhere, found by offset) tap tables, targets and pixels ---- */

enum ist_upload_word {
    IST_UP_COUNT = 0,        /* images in this batch; word 0, so that the upload itself serves ist_plan_limit */
    IST_UP_FLAGS = 1,        /* IST_UP_RESET_TRACKS, IST_UP_TRACK_HALF */
    IST_UP_PACKET_WORDS = 2, /* mask words the packet has room for */
    IST_UP_STORE_WORDS = 3,  /* words per object in the mask store: at least width * ceil(height / 32) of every image */
    IST_UP_PROMPTS = 4,      /* prompts of all images */
    IST_UP_PROMPT_AT = 5,    /* their offset */
    IST_UP_GRID = 6,         /* points of all crops' grids, for masks of everything; image blocks are those of crops */
    IST_UP_GRID_AT = 7,      /* their offset */
    IST_UP_CLEANERS = 8,     /* masks that there is memory for to be cleaned at a time */
    IST_UP_TILE = 9,         /* which tile the first image is, the others follow; 0: none, or the whole image */
    IST_UP_TILES = 10,       /* of an image in tiles: how many there are, the whole one first; image blocks are theirs */
    IST_UP_TILE_AT = 11,     /* where the upload of tile 1 begins */
    IST_UP_TILE_STEP = 12,   /* words from there to the next one's */
    IST_UP_GROUP = 13,       /* tiles but the whole image in groups of so many, */
    IST_UP_GROUP_AT = 14,    /* the first of which has its upload here, */
    IST_UP_GROUP_STEP = 15,  /* so many words before the next one's; with groups of 1 that of tile 1 */
    IST_UP_HEADER = 16,      /* words of the header */

    IST_UP_RESET_TRACKS = 1, /* flag: forget all tracks before the first image of this batch */
    IST_UP_TRACK_HALF = 2,    /* flag: the tracks so far are the second half of the state. A batch leaves its own in the
                              * other half, so that one that fails on the way can be forgotten: the host turns the flag
                              * over with each batch that was enqueued whole */
    IST_UP_FIRST_TILE = 4    /* flag: the first of an image's tiles to be looked at */
};

/* Prompts of all images, one image after the other: IST_PM_WORDS words each from IST_UP_PROMPT_AT on. */
enum ist_prompt_word {
    IST_PM_IMAGE = 0,    /* of the batch */
    IST_PM_POINTS = 1,   /* how many: its points, padding if it has no box, two corners if it has one */
    IST_PM_POINT_AT = 2, /* words of these: IST_POINT_WORDS each */
    IST_PM_MASK_AT = 3,  /* words of its mask, row by row floats; 0: none */
    IST_PM_BOX = 4,      /* 4 floats, as given; zeros without */
    IST_PM_WORDS = 8
};

/* x and y in pixels of the image, floats; label: 1 object, 0 background, -1 padding, 2 and 3 corners of a box. */
enum ist_prompt_point_word { IST_POINT_X = 0, IST_POINT_Y = 1, IST_POINT_LABEL = 2, IST_POINT_WORDS = 3 };

/* A point of a grid, the crops' one after the other: x and y as the prompt encoder takes them, floats in pixels of the
 * segmenter's input, and the crop. */
enum ist_grid_word { IST_GR_X = 0, IST_GR_Y = 1, IST_GR_CROP = 2, IST_GR_WORDS = 3 };

/* Block of image i: words from IST_UP_HEADER + i * IST_IM_WORDS. Offsets of tables and targets are in words from the
 * start of the upload. */
enum ist_image_word {
    IST_IM_WIDTH = 0,      /* W, pixels */
    IST_IM_HEIGHT = 1,     /* H */
    IST_IM_CHANNELS = 2,   /* 1 gray, 2 gray + alpha, 3 RGB, 4 RGBA */
    IST_IM_SAMPLE = 3,     /* bytes per sample: 1, or 2 (little-endian) */
    IST_IM_OFFSET_LOW = 4, /* first byte of the pixels in the pixel buffer, 64 bits */
    IST_IM_OFFSET_HIGH = 5,
    IST_IM_STRIDE = 6,      /* bytes from row to row, below 2^31 */
    IST_IM_DET_X = 7,       /* tap table W -> detector size */
    IST_IM_DET_Y = 8,       /* tap table H -> detector size */
    IST_IM_SEG_WIDTH = 9,   /* w: width of the image inside the segmenter's square input */
    IST_IM_SEG_HEIGHT = 10, /* h */
    IST_IM_SEG_X = 11,      /* tap table W -> w */
    IST_IM_SEG_Y = 12,      /* tap table H -> h */
    IST_IM_SCALE_X = 13,    /* w / W as two floats, high part then rest: prompts are x * (w / W) in double upstream */
    IST_IM_SCALE_X_LOW = 14,
    IST_IM_SCALE_Y = 15, /* h / H likewise */
    IST_IM_SCALE_Y_LOW = 16,
    IST_IM_MASK_X = 17, /* (float)w / (float)W: PyTorch's source step when masks return to the image's size */
    IST_IM_MASK_Y = 18,
    IST_IM_TARGETS = 19,      /* number of targets */
    IST_IM_TARGET_AT = 20,    /* their offset: IST_TARGET_WORDS each */
    IST_IM_DET_VERTICAL = 21, /* nonzero: resampled vertically first for the detector */
    IST_IM_SEG_VERTICAL = 22, /* .. for the segmenter */
    IST_IM_PROMPTS = 23,      /* number of prompts */
    IST_IM_PROMPT = 24,       /* the first of them, among those of all images */
    IST_IM_CROP_X = 25,       /* of a crop: where it is in the image */
    IST_IM_CROP_Y = 26,
    IST_IM_CROP_SCORE = 27,   /* float: which crop's masks stay, 1 / area */
    IST_IM_LOW = 28,          /* 16-bit samples that become 0 and 255 (base/sample_window.h), ints; both 0: */
    IST_IM_HIGH = 29,         /*   SAMPLE_WINDOW finds them in the whole image and puts them here */
    IST_IM_WHOLE_WIDTH = 30,  /* of the image that this is a crop of, or of itself */
    IST_IM_WHOLE_HEIGHT = 31,
    IST_IM_WORDS = 32
};

/* A target: corners in pixels of the image (4 floats), class or -1 (any class). */
enum ist_target_word { IST_TARGET_BOX = 0, IST_TARGET_LABEL = 4, IST_TARGET_WORDS = 5 };

/* A tap table for one axis n_in -> n_out (made by ist_resize_taps): word 0 is K; then n_out pairs (first input index,
 * number of taps <= K); then n_out * K coefficients, fixed point with 22 fractional bits. */
enum ist_taps_word { IST_TAPS_K = 0, IST_TAPS_PAIRS = 1 };

/* ---- packet: header, one block per image of the plan's batch, object records, mask words, logits ---- */

enum ist_packet_word {
    IST_PK_IMAGES = 0,
    IST_PK_OBJECTS = 1,    /* over the whole batch */
    IST_PK_MASK_WORDS = 2, /* of all masks together: the mask stream */
    IST_PK_STORED_WORDS =
        3, /* first words of the stream, which lie in the packet. When fewer than IST_PK_MASK_WORDS:
            * stream word i >= stored is word i - stored of the mask store (which belongs to this batch
            * until another one is enqueued with the same store): one extra read gets them all */
    IST_PK_HEADER = 16
};

/* Block of image i: words from IST_PK_HEADER + i * IST_PK_IMAGE_WORDS. */
enum ist_packet_image_word {
    IST_PI_OBJECTS = 0,
    IST_PI_DROPPED = 1,
    IST_PI_FIRST = 2,
    IST_PI_WINDOW = 3, /* of a 16-bit image: low in 16 bits, high - 1 in 16 bits, where they are in 0..65536; else 0 */
    IST_PK_IMAGE_WORDS = 4
};

/* Record of object k (numbered over the batch, image by image, by falling score). */
enum ist_object_word {
    IST_OB_LABEL = 0,
    IST_OB_SCORE = 1, /* float */
    IST_OB_BOX = 2,   /* 4 floats, x0 y0 x1 y1 in pixels, not clipped */
    IST_OB_QUERY = 6,
    IST_OB_MATCH = 7,      /* track id, target index, or -1 */
    IST_OB_MATCH_IOU = 8,  /* float */
    IST_OB_MASK_SCORE = 9, /* float */
    IST_OB_STABILITY = 10, /* float */
    IST_OB_AREA = 11,
    IST_OB_MASK_BOX = 12, /* 4 ints, inclusive x0 y0 x1 y1 */
    IST_OB_X0 = 16,       /* the mask's window: ist_mask of isthmus.h */
    IST_OB_Y0 = 17,
    IST_OB_COLUMNS = 18,
    IST_OB_COLUMN_WORDS = 19,
    IST_OB_OFFSET = 20, /* first word in the mask stream; a mask lies wholly in the packet or wholly in the store */
    IST_OB_IMAGE = 21,
    IST_OB_WORDS = 24
};

/* Row of a detection (IST_NODE_DETECT), between kernels only. */
enum ist_detection_word { IST_DET_LABEL = 0, IST_DET_SCORE = 1, IST_DET_QUERY = 2, IST_DET_BOX = 3, IST_DET_WORDS = 8 };

/* Word where the records start, and where the mask words start; behind room for IST_UP_PACKET_WORDS of those begin the
 * low-resolution logits of all objects, floats, where they are wanted. */
static inline size_t ist_packet_objects_at(int batch) {
    return IST_PK_HEADER + (size_t)batch * IST_PK_IMAGE_WORDS;
}
static inline size_t ist_packet_masks_at(int batch, int max_objects) {
    return ist_packet_objects_at(batch) + (size_t)batch * (size_t)max_objects * IST_OB_WORDS;
}

#endif
