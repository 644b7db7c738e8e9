/* isthmus: find objects in a frame, match them, cut out their masks, on any OpenCL device.
 *
 * This header is the whole public API and its manual. It needs no OpenCL header and compiles as C11 and C++.
 *
 * Life of an engine
 *     ist_config cfg = ist_config_default();
 *     cfg.detector = "dfine_n.safetensors"; cfg.segmenter = "mobile_sam.pt";
 *     ist_engine *e = NULL; ist_error err;
 *     if (ist_open(&cfg, &e, &err)) { fprintf(stderr, "%s\n", err.text); return 1; }
 *     ist_submit(e, &image, 1, &err);            enqueues everything; returns without waiting
 *     const ist_result *r;
 *     ist_receive(e, &r, &err);                  waits once, for the oldest submitted batch
 *     ... r->frames[0].objects[i] ...            valid until released
 *     ist_release(e, &r);
 *     ist_close(&e);
 *
 * Per submitted batch the engine makes one host-to-device write, one device-to-host read (or none: config.readback) and
 * at most one wait; nothing is computed on the host in between. `ist_result.transfers` shows what happened.
 *
 * Errors: every function that can fail returns an ist_status and fills the caller's ist_error (may be NULL) with one
 * sentence. No function prints, exits or touches a global. Destructors take the address of the handle, accept NULL and
 * set it to NULL.
 *
 * Threads: an engine is used by one thread at a time, except that ist_submit on one thread and ist_receive/ist_release
 * on another may run side by side; a single thread that feeds and polls uses ist_try_receive. A second thread in ist_submit, in ist_receive, or in anything beside ist_assign gets
 * IST_E_STATE and changes nothing. ist_close must be the last call. After fork() a child opens engines of its own: calls
 * on one of its parent's are IST_E_STATE there, and ist_close only forgets it; many drivers do not work in a child at
 * all once the parent has used them. Two engines never share state. Beside a device that is no CPU, an engine has up to
 * three threads that sleep but for moments in which ist_submit copies pixels to an idle device. Some drivers (PoCL 3.1)
 * set themselves up at a process's first question and without a lock: where several threads open engines, let one call
 * ist_devices before.
 *
 * Memory: pixels passed to ist_submit are copied before it returns. Results belong to the engine and stay valid until
 * ist_release; at most `frames_in_flight` batches can be submitted and not yet released. */
#ifndef ISTHMUS_H
#define ISTHMUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define IST_VERSION_MAJOR 0
#define IST_VERSION_MINOR 1
#define IST_VERSION_PATCH 0

/* Every status code, its value and what it means. */
#define IST_STATUS_LIST(X)                                                                                             \
    X(IST_OK, 0, "success")                                                                                            \
    X(IST_E_ARGUMENT, 1, "an argument is out of range")                                                                \
    X(IST_E_MEMORY, 2, "out of host memory")                                                                           \
    X(IST_E_IO, 3, "a file could not be read or written")                                                              \
    X(IST_E_INPUT, 4, "the input is not a valid image or document")                                                    \
    X(IST_E_WEIGHTS, 5, "the checkpoint is damaged or does not fit")                                                   \
    X(IST_E_NO_DEVICE, 6, "no usable OpenCL device")                                                                   \
    X(IST_E_DEVICE, 7, "an OpenCL call failed")                                                                        \
    X(IST_E_DEVICE_MEMORY, 8, "out of device memory")                                                                  \
    X(IST_E_BUILD, 9, "a kernel did not build")                                                                        \
    X(IST_E_LIMIT, 10, "a size exceeds a limit")                                                                       \
    X(IST_E_STATE, 11, "the call is out of order")                                                                     \
    X(IST_E_UNSUPPORTED, 12, "not supported on this device or by this model")

typedef enum ist_status {
#define X(name, value, text) name = value,
    IST_STATUS_LIST(X)
#undef X
} ist_status;

/* What went wrong: the code and one sentence. Filled on failure only. */
typedef struct ist_error {
    ist_status code;
    char text[500];
} ist_error;

/* The general meaning of a code, a static string. */
const char *ist_status_text(ist_status code);

/* "0.1.0", a static string. */
const char *ist_version(void);

/* ---- devices ------------------------------------------------------------------------------------------------- */

typedef enum ist_device_type { IST_DEVICE_CPU, IST_DEVICE_GPU, IST_DEVICE_OTHER } ist_device_type;

/* One OpenCL device of this machine. `index` is its place in the flat list over all platforms. */
typedef struct ist_device_info {
    int index;              /* position in the flat list */
    int platform;           /* platform number */
    int device;             /* number within its platform */
    ist_device_type type;
    int is_default;         /* 1 for the device that an empty SPEC selects */
    char name[128];
    char vendor[128];
    char platform_name[128];
    char driver[128];       /* driver version */
    char version[128];      /* OpenCL version string */
    char uuid[40];          /* hexadecimal, empty when the device does not tell */
    int compute_units;
    uint64_t global_bytes;  /* device memory */
    uint64_t max_alloc_bytes;
} ist_device_info;

/* Lists at most `capacity` devices into `list` (may be NULL when capacity is 0) and stores the number that exist in
 * *count. No platform at all is success with *count = 0. */
ist_status ist_devices(ist_device_info *list, int capacity, int *count, ist_error *err);

/* ---- engine -------------------------------------------------------------------------------------------------- */

typedef struct ist_engine ist_engine;

/* How activations are stored; sums, statistics, boxes, scores and mask logits are 32-bit floats in all. */
typedef enum ist_precision {
    IST_PRECISION_AUTO, /* FP16 on a GPU that can store halves, else FP32 */
    IST_PRECISION_FP32,
    IST_PRECISION_FP16, /* IST_E_UNSUPPORTED where the device cannot store halves; IST_E_WEIGHTS for a finite weight
                         *   that a half cannot hold */
    IST_PRECISION_BF16  /* activations are stored as in FP32; dense convolutions and linear layers of the backbone, the
                         *   hybrid encoder and the segmenter's encoder, but for those that are part of a fused kernel,
                         *   round what they multiply to bfloat16 (8 significant bits). For CPUs with AVX512_BF16,
                         *   IST_E_UNSUPPORTED elsewhere. Whether it is faster depends on the CPU: isthmus bench tells.
                         *   AUTO never becomes this. */
} ist_precision;

/* Whether the segmenter's encoder runs on a second in-order queue of the same context, beside the detector. Only
 * kernels run there: still one write, one read and one wait per batch, all on the first queue, and the same results. It
 * needs more device memory, since the two networks no longer share the arena. Without detector or segmenter it changes
 * nothing. */
typedef enum ist_overlap {
    IST_OVERLAP_AUTO, /* on GPUs that one small network does not fill (64 compute units or more); never with a queue of
                       * the caller's, which then carries everything */
    IST_OVERLAP_ON,
    IST_OVERLAP_OFF
} ist_overlap;

/* In which order the two axes of a picture are resampled to a network's input. The rounding to 8 bit between the two passes
 * makes last bits of pixels differ, and boxes of weak objects by pixels. */
typedef enum ist_resize_order {
    IST_RESIZE_ORDER_AUTO,       /* what the library's exactness is stated for: HORIZONTAL */
    IST_RESIZE_ORDER_HORIZONTAL, /* horizontally first, as Pillow before 13.0 */
    IST_RESIZE_ORDER_VERTICAL,   /* vertically first */
    IST_RESIZE_ORDER_PILLOW_13   /* as Pillow 13.0: vertically first where the height shrinks, and by more than twice as
                                  *   many pixels as the width (which counts as negative where it grows) */
} ist_resize_order;

/* How 16-bit samples become the 8 bits that networks read. A window of low and high makes round(255 (v - low) /
 * (high - low)) of v, halves up, 0 below low and 255 above high. 8-bit images are taken as they are. */
typedef enum ist_window {
    IST_WINDOW_NONE,  /* 0 and 65535 for every image: round(v / 257) */
    IST_WINDOW_GIVEN, /* ist_image.window_low and window_high; where both are 0 they are 0 and 65535 */
    IST_WINDOW_AUTO   /* the same, but where both are 0 the device finds them in the image, of at most 10^9 pixels: the
                       * 0.5th and the 99.5th percentile of its samples, of all colours together and without alpha.
                       * Sorted, numbered from 0, these are samples k and n - 1 - k of n, k = n / 200 (rounded down).
                       * Where they are equal: the least and the greatest, where these are too: v and v + 1 */
} ist_window;

/* What the matcher compares detections with. */
typedef enum ist_match_mode {
    IST_MATCH_NONE,
    IST_MATCH_TRACKS,      /* IoU to the tracks of earlier frames; ids are stable over the submitted sequence */
    IST_MATCH_TARGETS,     /* IoU to ist_image.targets */
    IST_MATCH_TARGETS_SET  /* D-FINE's set cost (focal class, L1, GIoU) to ist_image.targets, over all 300 queries as
                            *   in training: a target whose query is no object of the frame is nobody's match */
} ist_match_mode;

/* Masks of everything: the parameters of segment-anything's SamAutomaticMaskGenerator under their names there, with its
 * defaults from ist_everything_default(). A grid of points is asked for three masks each; of these stay the ones of high
 * predicted quality and stability whose boxes do not overlap those of better ones. With crop layers the same is done
 * in (2^i)^2 crops of the image for each layer i, whose masks give way to those of smaller crops. */
typedef struct ist_everything {
    size_t struct_size;
    int points_per_side;                /* of the grid in the whole image: 1..128; default 32 */
    int points_per_batch;               /* asked at a time: 1..256; default 64. More is faster and needs more device
                                         *   memory; the masks are the same but for last bits. */
    double pred_iou_thresh;             /* masks of a predicted IoU above it stay; 0 or less: all; default 0.88 */
    double stability_score_thresh;      /* masks of at least this stability stay; 0 or less: all; default 0.95 */
    double stability_score_offset;      /* stability is area at logit > offset over area at logit > -offset, 0 or more;
                                         *   default 1 */
    double box_nms_thresh;              /* of two masks in a crop whose boxes have an IoU above it the one of the higher
                                         *   predicted IoU stays; default 0.7 */
    int crop_n_layers;                  /* 0..3; default 0: the whole image only */
    double crop_nms_thresh;             /* likewise across crops; default 0.7 */
    double crop_overlap_ratio;          /* of the crops of layer 1, as a fraction of the image's shorter side, below 1;
                                         *   later layers overlap less; default 512 / 1500 */
    int crop_n_points_downscale_factor; /* the grid of layer i has points_per_side / factor^i points on a side, at least
                                         *   one; default 1 */
    int min_mask_region_area;           /* holes and islands of fewer pixels are removed from what is left, and masks
                                         *   that become duplicates by that; default 0: none */
    int max_masks;                      /* of an image, 1..4096; ist_frame.dropped counts others; default 512 */
} ist_everything;

ist_everything ist_everything_default(void);

/* What an image's objects are. */
typedef enum ist_prompts {
    IST_PROMPTS_DETECTIONS, /* what the detector finds */
    IST_PROMPTS_TARGETS,    /* the image's targets, in their order, the first max_objects of them: score 1, match =
                             * index of the target, query -1. Masks for given boxes; no detector is used or needed. */
    IST_PROMPTS_GIVEN,      /* ist_image.prompts, or those of ist_submit_prompts, in their order, at most max_objects of
                             * an image. One object each, three with config.multimask: score 1, label 0, match = index of
                             * the prompt, query = which of its masks, box = the prompt's, zeros without one. No detector
                             * is used or needed. */
    IST_PROMPTS_EVERYTHING  /* masks of everything, config.everything, in SamAutomaticMaskGenerator's order: score and
                             * mask_score = predicted IoU, label 0, box = mask_box, match = number of its point, query =
                             * which of the point's masks, point, crop_box. One image a batch; max_objects does not
                             * count. No detector is used or needed. */
} ist_prompts;

/* Whether guidance may trust what is found: scores and a state for each track, computed behind the packet. Start from
 * ist_trust_default(). */
typedef struct ist_trust_options {
    size_t struct_size;
    float tau_conf;   /* detections with a score above this count as seen; default 0.5 */
    float theta_on;   /* S above which a track becomes visible; default 0.6 */
    float theta_off;  /* S below which it is no longer; default 0.4 */
    float theta_cont; /* C above which it becomes visible; default 0.5 */
    int n_lost;       /* low frames in a row until it is lost, 1..1000000; default 5 */
    int weights;      /* 1: results bring ist_trust.edge, in and out; default 0 */
} ist_trust_options;

ist_trust_options ist_trust_default(void);

/* Large images in tiles: the detector sees each tile at its input's size, so that what is small in the image is not small
 * there. An image is cut into tiles of one size from the upper left on, those of the last column and row moved inwards; one
 * that is not larger than a tile is taken as ever. Detections of all tiles, up to 4096 of an image (ist_frame.dropped counts
 * others), become the image's by NMS with config.nms_iou (0.5 where that is 0), and of what is left a detection that
 * ends at a border between tiles gives way where more than that of it lies in another that does not, or in a better one.
 * An object larger than the overlap may be cut in every tile; where it is not found in the whole image, its parts stay.
 * Masks are made in the tile that the object was found in, which the segmenter sees at its input's size; of tiles without an
 * object that stays nothing is computed, but their embeddings have room: tiles times (segmenter_size / 16)^2 * 256 floats.
 * 16-bit tiles go through the window of the whole image, an automatic one too. */
typedef struct ist_tiles {
    size_t struct_size;
    int width, height; /* of a tile in pixels, 32 to 65536; default 640. At most 1024 of an image: IST_E_LIMIT */
    int overlap;       /* of neighbours, pixels, at most half of a tile's shorter side; default -1: a fifth of each side */
    int whole;         /* 1 (the default): the whole image is one more, for what is large */
    int batch;         /* tiles of an image that the detector takes at a time, 1 to 64; default 1 */
} ist_tiles;

ist_tiles ist_tiles_default(void);

/* Whether results come to the host. */
typedef enum ist_readback {
    IST_READBACK_PACKET, /* one read per batch */
    IST_READBACK_NONE    /* no read: frames of a result have no objects (object_count 0), which are for kernels of the
                          * caller's, in ist_device_packet */
} ist_readback;

/* How to open an engine. Start from ist_config_default(): `struct_size` tells the library which fields exist. Strings
 * are copied. */
typedef struct ist_config {
    size_t struct_size;
    const char *detector;     /* D-FINE checkpoint (.pth, .pt, .safetensors), or NULL: see prompts; without either,
                               *   an engine for ist_assign only */
    const char *segmenter;    /* MobileSAM or SAM ViT-B checkpoint, or NULL: no masks */
    const char *device;       /* SPEC: "0", "1:0", "gpu", "cpu", part of a name, "uuid:..."; NULL or "": the default */
    void *cl_context;         /* adopt a cl_context, cl_device_id, in-order cl_command_queue of the caller: give all */
    void *cl_device;          /*   three or none. The engine retains them and the caller may release its references. */
    void *cl_queue;
    ist_precision precision;
    ist_match_mode match;
    int input_size;           /* detector input, a multiple of 32 in [64, 2048] that gives the model a token for
                               *   each of its 300 queries: from 256 for N, from 128 for the others; default 640 */
    int batch;                /* images per submission, 1..64; default 1 */
    int max_objects;          /* objects per image, 1..300; default 16 */
    float conf;               /* detections with a score above this are kept; default 0.4 */
    const int *classes;       /* labels to keep, or NULL: all */
    int class_count;
    int frames_in_flight;     /* batches submitted and not yet released, 1..8; default 2 */
    int max_targets;          /* targets per image, 0..300; default 100 */
    int max_pixels;           /* largest width * height; default 67108864 */
    const char *cache_dir;    /* kernel binaries; NULL: ISTHMUS_CACHE_DIR or the user's cache; "off": none */
    float track_iou;          /* least IoU that continues a track; default 0.3 */
    int track_age;            /* frames a track survives unseen; default 30 */
    ist_prompts prompts;      /* default IST_PROMPTS_DETECTIONS; IST_PROMPTS_TARGETS needs a segmenter, and takes
                               *   neither classes nor another match than IST_MATCH_NONE */
    ist_overlap overlap;      /* default IST_OVERLAP_AUTO */
    int segmenter_size;       /* side of the segmenter's square input, a multiple of 32 in [64, 1024] (1024 alone for
                               *   networks that know no other); default 0: what the checkpoint's metadata say
                               *   ("image_size"), else 1024 */
    int input_width;          /* detector input of unequal sides, each as input_size; both 0 (the default): a square */
    int input_height;         /*   of input_size */
    ist_resize_order resize_order; /* default IST_RESIZE_ORDER_AUTO */
    int stored_constants;     /* 1: the detector's anchors, their mask and the scales of its sampling points are those in
                               *   the checkpoint, which files of half or bfloat16 round and the published code reads;
                               *   IST_E_WEIGHTS where they are not there or are for another input size. Default 0:
                               *   computed. */
    int max_points;           /* for IST_PROMPTS_GIVEN as all that follow: points of a prompt, 1..256; default 9. Only
                               *   prompts that need room for many pay for it: those of one or two points, of a box, and
                               *   of a box and a point take as long whatever it is, on NVIDIA with its matrix
                               *   instructions; others as long as up to 9, 17 or 25 points would. */
    int multimask;            /* 1: three masks of each prompt for what it may mean; default 0: one */
    int low_res;              /* 1: results bring ist_object.low_res; default 0 */
    int mask_prompts;         /* 1: prompts may have a mask; default 0 */
    int max_embeddings;       /* that may be alive, 1..1024; default 8. One takes (segmenter_size / 16)^2 * 256 floats, of
                               *   16 bits in FP16: 4 MiB of 1024 pixels in FP32. */
    const ist_everything *everything; /* for IST_PROMPTS_EVERYTHING, copied; NULL (the default): its defaults */
    double nms_iou;           /* above 0, at most 1: of the detector's 300 best above conf one is dropped whose box has an
                               *   intersection over union above this with a better one that stays, of the same label;
                               *   max_objects counts those that stay. Default 0: none is, as published */
    int nms_agnostic;         /* 1: with nms_iou, of any label; default 0 */
    ist_readback readback;    /* default IST_READBACK_PACKET */
    int track_motion;         /* 1: a track is expected where its speed takes it (constant velocity, of each side of its box);
                               *   default 0: where it was */
    float track_high;         /* above 0, at most 1: detections of a higher score are matched with tracks first, the others
                               *   with those that are left, and begin none (ist_object.match -1); default 0: all at once */
    const ist_trust_options *trust; /* NULL (the default): none. Needs a detector, a segmenter and a batch of 1; copied */
    ist_window window;        /* default IST_WINDOW_NONE */
    const ist_tiles *tiles;   /* NULL (the default): none. Needs a detector, a batch of 1, and neither trust nor
                               *   IST_MATCH_TARGETS_SET; copied */
} ist_config;

ist_config ist_config_default(void);

/* Selects the device, reads the checkpoints, records, places and builds the whole frame. Takes from a fraction of a
 * second (kernels cached) to many seconds. On success *engine is the caller's to close. The first time for a driver it
 * starts another process, isthmus-probe (installed with the library; ISTHMUS_PROBE names another place, or "off"), tries
 * small kernels there that the driver may not survive, and waits for its end; what was found is kept in the cache
 * folder. Where it cannot be started they are tried in this process. A device on which that finds
 * wrong results is IST_E_NO_DEVICE with a sentence; "", "gpu" and "cpu" pass over it. */
ist_status ist_open(const ist_config *config, ist_engine **engine, ist_error *err);

/* Waits for what is in flight, then frees everything. Results not yet released become invalid. */
void ist_close(ist_engine **engine);

/* ---- frames in ----------------------------------------------------------------------------------------------- */

/* Samples are interleaved; 16-bit samples are in host byte order. Gray is replicated, alpha is dropped, 16-bit values
 * are scaled to 8 bit (round(v / 257), or ist_window), all on the device. For a detector of one channel colours become gray (Pillow's
 * convert("L")); one of four also reads alpha, 255 where the image has none. */
typedef enum ist_pixel_format {
    IST_GRAY8 = 0x11, IST_GRAYA8 = 0x12, IST_RGB8 = 0x13, IST_RGBA8 = 0x14,
    IST_GRAY16 = 0x21, IST_GRAYA16 = 0x22, IST_RGB16 = 0x23, IST_RGBA16 = 0x24
} ist_pixel_format;

/* A given box to match detections with: corners in pixels of the image. */
typedef struct ist_target {
    float box[4];  /* x0 y0 x1 y1 */
    int label;     /* class, or -1: matches any class */
} ist_target;

/* A point in pixels of the image, x to the right, y down; pixel centres are at whole numbers, as SamPredictor has it. */
typedef struct ist_point {
    float x, y;
    int label;  /* 1: belongs to the object, 0: does not */
} ist_point;

/* What to cut out, as SamPredictor.predict takes it: points, a box, a mask, or any of them together. Points and corners may
 * lie outside of the image, as there: the network then sees where. */
typedef struct ist_prompt {
    const ist_point *points;      /* NULL for none */
    int point_count;
    const float *box;             /* x0 y0 x1 y1 in pixels of the image, or NULL */
    const float *mask;            /* logits of an earlier answer (ist_object.low_res), row by row, or NULL */
    int mask_width, mask_height;  /* both must be a quarter of the segmenter's input: 256 of 1024 */
} ist_prompt;

typedef struct ist_image {
    int width, height;            /* pixels, at least 1 */
    ist_pixel_format format;
    size_t stride;                /* bytes from row to row; 0: rows are packed */
    const void *pixels;           /* host memory, or NULL when `cl_buffer` is given */
    void *cl_buffer;              /* a cl_mem buffer of the adopted context, the same for all images of a batch: the
                                   *   pixels never cross */
    size_t cl_offset;             /* first byte of the image in cl_buffer */
    const ist_target *targets;    /* for IST_MATCH_TARGETS* and IST_PROMPTS_TARGETS, copied */
    int target_count;
    uint64_t tag;                 /* the caller's; comes back in ist_frame */
    const ist_prompt *prompts;    /* for IST_PROMPTS_GIVEN, copied; none is an image without objects */
    int prompt_count;
    uint64_t timestamp;           /* the caller's, in any unit; comes back in ist_frame */
    int window_low, window_high;  /* with config.window, of a 16-bit format: samples that become 0 and 255, low below high,
                                   *   both within 1000000 of 0; both 0: see ist_window */
} ist_image;

/* Enqueues one batch of 1..config.batch images and returns; only images above 1080p that are larger than any before
 * wait for the batches in flight to make room. IST_E_STATE when frames_in_flight batches are already out: receive and
 * release one first (or cancel). IST_E_LIMIT when an image exceeds max_pixels or 65536 pixels on a side. A failed submit leaves the
 * engine as it was, unless the device itself was lost (then every later call fails). */
ist_status ist_submit(ist_engine *engine, const ist_image *images, int count, ist_error *err);

/* Where ist_submit would copy the pixels of 1..config.batch images: memory that the device reads fast (pinned where the
 * platform pins memory), for a decoder or a capture card to write to. pixels[i] becomes the place of image i, whose width,
 * height and format are read and nothing else: height rows, packed, aligned to 64 bytes. Write them, let
 * ist_image.pixels point there, with stride 0, and submit the same images: their pixels are not copied. Targets, prompts
 * and tags may be anything by then; a pixel pointer elsewhere in that memory is IST_E_ARGUMENT, one to memory of your own
 * is copied as ever.
 *
 * The memory is yours until these images have been submitted, another batch of any kind is tried, or ist_stage is called
 * again, whose places need not be the same. What is in it at first is undefined. Room is made for as many targets and
 * prompts as the engine was opened for (with config.mask_prompts 256 KiB for each, of a segmenter of 1024). Errors are
 * those of ist_submit: IST_E_STATE when frames_in_flight batches are out, for example. Call it on the submitting thread. */
ist_status ist_stage(ist_engine *engine, const ist_image *images, int count, void **pixels, ist_error *err);

/* ---- one image, many prompts --------------------------------------------------------------------------------- */

/* What crossed between host and device for one batch. */
typedef struct ist_transfers {
    int writes, reads, waits;
    uint64_t h2d_bytes, d2h_bytes;
} ist_transfers;

/* What the segmenter's encoder makes of an image: asked once, it answers any number of prompts, each batch of which costs
 * the decoder alone. It belongs to its engine, lies in device memory, and is invalid after ist_close. */
typedef struct ist_embedding ist_embedding;

/* Encodes an image; its prompts and targets are ignored. One write, which waits for the batches in flight, no read; the
 * encoder itself runs when this has returned. Needs IST_PROMPTS_GIVEN. IST_E_LIMIT when config.max_embeddings are
 * alive. Like ist_submit it is one of the calls that only one thread may be in. */
ist_status ist_encode(ist_engine *engine, const ist_image *image, ist_embedding **embedding, ist_error *err);

/* ist_submit of prompts for an embedding instead of an image: a batch like any other, one write, one read, received by
 * ist_receive, with one frame of the embedding's image. At most config.max_objects prompts. */
ist_status ist_submit_prompts(ist_engine *engine, const ist_embedding *embedding, const ist_prompt *prompts, int count,
                              uint64_t tag, ist_error *err);

/* What crossed for an embedding. */
ist_status ist_embedding_transfers(const ist_embedding *embedding, ist_transfers *transfers, ist_error *err);

/* Gives its memory back; batches submitted against it are not affected. Accepts NULL and a pointer to NULL; nulls
 * *embedding. Not beside ist_submit on another thread. */
void ist_embedding_release(ist_engine *engine, ist_embedding **embedding);

/* ---- results out --------------------------------------------------------------------------------------------- */

/* A binary mask, bit-packed down columns, cut to its tight box (rounded outwards to whole 32-row words).
 * Pixel (x, y) of the image is set iff x in [x0, x0 + columns), y in [y0, y0 + 32 * words) and bit (y - y0) % 32 of
 * bits[(x - x0) * words + (y - y0) / 32] is set. columns = 0: the mask is empty. */
typedef struct ist_mask {
    int x0, y0;       /* y0 is a multiple of 32 */
    int columns;
    int words;        /* 32-bit words per column */
    const uint32_t *bits;
} ist_mask;

typedef struct ist_object {
    int label;           /* class index of the detector */
    float score;         /* sigmoid, 0..1 */
    float box[4];        /* x0 y0 x1 y1 in pixels of the image; not clipped */
    int query;           /* D-FINE query this came from, 0..299; -1 for a given box */
    int match;           /* track id (1..), or index of the matched target (0..); -1: none */
    float match_iou;     /* IoU with the matched track or target; 0 when unmatched */
    float mask_score;    /* the segmenter's own IoU estimate; 0 without masks */
    float stability;     /* area at logit > 1 over area at logit > -1; 0 when the latter is 0 */
    int area;            /* set pixels of the mask */
    int mask_box[4];     /* inclusive x0 y0 x1 y1 of set pixels; zeros when empty */
    ist_mask mask;
    const float *low_res; /* with config.low_res: logits at a quarter of the segmenter's input, row by row, the picture
                           *   in the upper left; a mask prompt for another round. Else NULL. */
    double point[2];      /* of everything: x and y of the point that was asked, in pixels of the image. Else zeros. */
    int crop_box[4];      /* of everything: x0 y0 x1 y1 of the crop in which it was, x1 and y1 exclusive. Else zeros. */
} ist_object;

/* What a track is to guidance. */
typedef enum ist_visibility {
    IST_LOST,         /* not there; seen again (score above tau_conf) it is relocalizing */
    IST_RELOCALIZING, /* where every track begins. Low (a score that is not above tau_conf, or S below theta_off) in n_lost
                       *   frames in a row it is lost; not low, with S above theta_on and C above theta_cont, visible */
    IST_VISIBLE       /* until it is low */
} ist_visibility;

/* One track in one frame; without IST_MATCH_TRACKS there is one, number 1, of the frame's best object. Up to 32 tracks are
 * judged; one that is not seen counts as score 0, with scores of 0, until config.track_age ends it.
 *
 * Weights of the mask M (3x3 and 5x5 squares; what is outside of the image takes nothing away from M and adds nothing):
 * edge = dilate3(M) - erode3(M), in = erode3(M), out = dilate5(M) - M. I is the frame as 8-bit gray. Scores are in 0..1, and
 * 0 where their region is empty; where there is nothing to compare with, correlations are 0, IoUs and depth's score too. */
typedef struct ist_trust {
    int track;
    int object;       /* index among the frame's objects, -1: not seen */
    ist_visibility state;
    float sharpness;  /* S1: v / (v + 100), v the variance of I's 4-neighbour Laplacian over edge */
    float contrast;   /* S2: c / (1 + c), c = |mean_in - mean_out| / sqrt(var_in + var_out + 1) */
    float continuity; /* S3: along the longer side of the mask's box, longest run of lines with a set pixel / lines */
    float stability;  /* S4: (1 + r) / 2, r the correlation of I with the frame before over edge */
    float geometry;   /* C1: mean of IoU(box, box of M) and IoU(M, the track's mask before) */
    float appearance; /* C2: (1 + r) / 2, r over M, with the last frame in which the track was visible */
    float depth;      /* C3: max(0, 1 - |d - d before| / (0.1 height)), d the mean row of M */
    float s, c;       /* means of S1 to S4 and of C1 to C3 */
    ist_mask edge, in, out; /* with ist_trust_options.weights, of the whole image */
} ist_trust;

/* Objects of one image by falling score, of given prompts in their order. */
typedef struct ist_frame {
    uint64_t tag;
    int width, height;
    int object_count;
    int dropped;         /* detections above the threshold that did not fit max_objects */
    const ist_object *objects;
    uint64_t timestamp;  /* of the image; 0 for ist_submit_prompts */
    const ist_trust *trust; /* with config.trust: the tracks that live */
    int trust_count;
    int window_low, window_high; /* what the image's 16-bit samples went through; both 0 for 8-bit images, for
                                  * ist_submit_prompts, and for an automatic window without a read */
} ist_frame;

/* A batch's packet in device memory, as 32-bit words: a header, one block per image, object records, mask words, logits.
 * Block of image i: words from images_at + i * image_words on, ist_packet_image_word. Record of object k, numbered over
 * the batch, of image i those from IST_PACKET_IMAGE_FIRST on: words from objects_at + k * object_words on,
 * ist_packet_object_word. Masks are laid out as ist_mask says and make one stream of words; word j of it is word
 * masks_at + j of the packet below IST_PACKET_STORED_WORDS, else word j - IST_PACKET_STORED_WORDS of `store`; a mask lies
 * wholly in one of them. Offsets are the same for every batch of an engine but for logits_at.
 * The buffers are the engine's, for reading: commands enqueued in `queue`, which is in order, after ist_submit find them
 * filled; those of another queue of the context wait for `done`. They hold the batch until its slot is used again, that
 * is until the ist_release of its result. */
typedef struct ist_device_packet {
    void *packet;  /* cl_mem */
    void *store;   /* cl_mem; NULL without masks */
    void *queue;   /* cl_command_queue */
    void *done;    /* cl_event, the engine's until the batch is received: clRetainEvent keeps it; NULL once received */
    int image_count;
    size_t images_at, image_words;
    size_t objects_at, object_words;
    size_t masks_at, mask_words;   /* room for masks in the packet */
    size_t logits_at, logit_words; /* config.low_res: of all objects, one after the other; logit_words 0 without */
} ist_device_packet;

/* Words of the header. */
typedef enum ist_packet_header_word {
    IST_PACKET_IMAGES = 0,
    IST_PACKET_OBJECTS = 1,      /* of all images */
    IST_PACKET_STREAM_WORDS = 2, /* of all masks: the length of the stream */
    IST_PACKET_STORED_WORDS = 3  /* those of them that lie in the packet, the first */
} ist_packet_header_word;

/* Words of an image's block. */
typedef enum ist_packet_image_word_at {
    IST_PACKET_IMAGE_OBJECTS = 0, /* ist_frame.object_count */
    IST_PACKET_IMAGE_DROPPED = 1, /* ist_frame.dropped */
    IST_PACKET_IMAGE_FIRST = 2,   /* number of its first object */
    IST_PACKET_IMAGE_WINDOW = 3   /* of a 16-bit image: low + 65536 (high - 1), where 0 <= low < high <= 65536; else 0 */
} ist_packet_image_word_at;

/* Words of an object's record, the fields of ist_object; floats by their bits. */
typedef enum ist_packet_object_word {
    IST_PACKET_LABEL = 0,
    IST_PACKET_SCORE = 1,       /* float */
    IST_PACKET_BOX = 2,         /* 4 floats */
    IST_PACKET_QUERY = 6,
    IST_PACKET_MATCH = 7,
    IST_PACKET_MATCH_IOU = 8,   /* float */
    IST_PACKET_MASK_SCORE = 9,  /* float */
    IST_PACKET_STABILITY = 10,  /* float */
    IST_PACKET_AREA = 11,
    IST_PACKET_MASK_BOX = 12,   /* 4 ints */
    IST_PACKET_MASK_X0 = 16,    /* ist_mask.x0, y0, columns, words */
    IST_PACKET_MASK_Y0 = 17,
    IST_PACKET_MASK_COLUMNS = 18,
    IST_PACKET_MASK_COLUMN_WORDS = 19,
    IST_PACKET_MASK_AT = 20,    /* its first word in the stream */
    IST_PACKET_IMAGE = 21       /* of the batch */
} ist_packet_object_word;

typedef struct ist_result {
    int frame_count;
    const ist_frame *frames;
    ist_transfers transfers;
    double submit_ms;    /* host time spent in ist_submit */
    double wait_ms;      /* host time spent waiting in ist_receive */
    double total_ms;     /* from the start of ist_submit to the end of ist_receive */
    ist_device_packet device; /* the same results in device memory */
} ist_result;

/* Waits for the oldest submitted batch and gives its results. IST_E_STATE when nothing is in flight. */
ist_status ist_receive(ist_engine *engine, const ist_result **result, ist_error *err);

/* ist_receive for a thread that has other things to do: waits at most `timeout_ms` (0 to 86400000; 0: not at all, as
 * ist_try_receive). When the oldest batch has not ended by then that is success with *result = NULL, and nothing has
 * changed. Sleeps between looks at the device, for a sixteenth of the time waited so far and a millisecond at most:
 * where the last microseconds count, have a thread in ist_receive. IST_E_STATE when nothing is in flight. */
ist_status ist_receive_for(ist_engine *engine, double timeout_ms, const ist_result **result, ist_error *err);
ist_status ist_try_receive(ist_engine *engine, const ist_result **result, ist_error *err);

/* Gives up on every batch that is submitted and not received: none of them is delivered. What a device has been given it
 * computes, and tracks move on; a submit that comes before it has ended, and finds no other slot, waits for the oldest
 * of them. Results that are out stay valid. *cancelled (may be NULL): how many batches. One of the calls that only the
 * receiving thread makes. */
ist_status ist_cancel(ist_engine *engine, int *cancelled, ist_error *err);

/* Where the batch that was submitted last will lie in device memory, for commands of the caller's to be enqueued before
 * it has been computed; valid until it is received or cancelled. IST_E_STATE when nothing is in flight. One of the calls
 * that only the submitting thread makes. */
ist_status ist_submitted(ist_engine *engine, ist_device_packet *device, ist_error *err);

/* Gives the result's slot back for the next submit. Accepts NULL and a pointer to NULL; nulls *result. */
void ist_release(ist_engine *engine, const ist_result **result);

/* ---- facts about an engine ----------------------------------------------------------------------------------- */

typedef struct ist_engine_info {
    ist_device_info device;
    ist_precision precision;      /* what AUTO became */
    char detector[32];            /* "dfine-n" .. "dfine-x", or "" */
    char segmenter[32];           /* "mobilesam", or "" */
    int classes;
    int input_size, batch, max_objects;
    uint64_t arena_bytes;         /* intermediates, placed */
    uint64_t arena_lower_bound;   /* most bytes alive at once: no placement can need less */
    uint64_t weight_bytes;
    uint64_t device_bytes;        /* everything the engine holds on the device now */
    uint64_t device_peak_bytes;
    int kernels;                  /* launches per frame */
    int overlap;                  /* 1: on two queues; what AUTO became */
    int input_width, input_height; /* of the detector */
    int segmenter_size;           /* side of the segmenter's input; 0 without one */
} ist_engine_info;

ist_status ist_engine_describe(const ist_engine *engine, ist_engine_info *info, ist_error *err);

/* Class name from the checkpoint's metadata, or NULL when it has none or `label` is out of range. */
const char *ist_class_name(const ist_engine *engine, int label);

/* Forgets all tracks, and what config.trust has kept: the next frame starts a new sequence. Takes effect in queue order. */
ist_status ist_reset_tracks(ist_engine *engine, ist_error *err);

/* ---- assignment ---------------------------------------------------------------------------------------------- */

/* Exact minimum-cost assignment of min(rows, cols) pairs, solved on the engine's device.
 * cost: row-major rows x cols, `ld` floats from row to row; +inf forbids a pair; NaN and -inf are IST_E_ARGUMENT, as is
 * a matrix with no complete assignment. row_to_col: `rows` ints, -1 where a row stays free. *total (may be NULL): the
 * sum of the chosen costs in double precision. Costs are rounded to multiples of 2^-50 of the largest magnitude.
 * Waits for the result; must not be called while batches are in flight (IST_E_STATE). */
ist_status ist_assign(ist_engine *engine, const float *cost, int rows, int cols, int ld, int *row_to_col, double *total,
                      ist_error *err);

#ifdef __cplusplus
}
#endif
#endif
