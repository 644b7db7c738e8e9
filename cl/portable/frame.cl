/* Word offsets of the upload and of the packet: the numbers of src/ops/frame.h and src/ops/detect.h, joined in front of
 * the kernels that read or write them. */
#define UP_COUNT        0
#define UP_FLAGS        1
#define UP_PACKET_WORDS 2
#define UP_STORE_WORDS  3
#define UP_HEADER       16
#define UP_RESET_TRACKS 1
#define UP_TRACK_HALF   2

#define IM_WIDTH       0
#define IM_HEIGHT      1
#define IM_CHANNELS    2
#define IM_SAMPLE      3
#define IM_OFFSET_LOW  4
#define IM_OFFSET_HIGH 5
#define IM_STRIDE      6
#define IM_DET_X       7
#define IM_DET_Y       8
#define IM_SEG_WIDTH   9
#define IM_SEG_HEIGHT  10
#define IM_SEG_X       11
#define IM_SEG_Y       12
#define IM_SCALE_X     13
#define IM_SCALE_X_LOW 14
#define IM_SCALE_Y     15
#define IM_SCALE_Y_LOW 16
#define IM_MASK_X      17
#define IM_MASK_Y      18
#define IM_TARGETS     19
#define IM_TARGET_AT   20
#define IM_WORDS       32

#define TARGET_BOX   0
#define TARGET_LABEL 4
#define TARGET_WORDS 5

#define TAPS_K     0
#define TAPS_PAIRS 1

#define PK_IMAGES       0
#define PK_OBJECTS      1
#define PK_MASK_WORDS   2
#define PK_STORED_WORDS 3
#define PK_HEADER       16
#define PI_OBJECTS      0
#define PI_DROPPED      1
#define PI_FIRST        2
#define PK_IMAGE_WORDS  4

#define OB_LABEL        0
#define OB_SCORE        1
#define OB_BOX          2
#define OB_QUERY        6
#define OB_MATCH        7
#define OB_MATCH_IOU    8
#define OB_MASK_SCORE   9
#define OB_STABILITY    10
#define OB_AREA         11
#define OB_MASK_BOX     12
#define OB_X0           16
#define OB_Y0           17
#define OB_COLUMNS      18
#define OB_COLUMN_WORDS 19
#define OB_OFFSET       20
#define OB_IMAGE        21
#define OB_WORDS        24

#define DET_LABEL 0
#define DET_SCORE 1
#define DET_QUERY 2
#define DET_BOX   3
#define DET_WORDS 8

/* Block of image i. */
#define IMAGE_AT(upload, i) ((upload) + UP_HEADER + (i) * IM_WORDS)

/* Groups of each of `count` objects, when there are `all` for them together and at most `most` for one. */
static inline int parts_of(int count, int all, int most) {
    return clamp(all / max(count, 1), 1, most);
}
