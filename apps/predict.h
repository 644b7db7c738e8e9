/* The parts of `isthmus predict`: options, the run over all images, the files written. Used by predict_*.c and
 * cmd_predict.c; by cmd_eval.c to evaluate what it writes, by bench, profile and verify for the same engine. */
#ifndef PREDICT_H
#define PREDICT_H

#include "ahead.h"
#include "cli.h"

#include "io/atomic_file.h"
#include "io/coco.h"
#include "io/image.h"
#include "io/journal.h"
#include "io/labels.h"
#include "io/prompts.h"
#include "io/record.h"
#include "io/shard.h"
#include "io/sources.h"
#include "io/targets.h"

#include <signal.h>

/* What --save can name: enumerator and name. */
#define PREDICT_SAVES(X)                                                                                               \
    X(JSON, "json")                                                                                                    \
    X(NDJSON, "ndjson")                                                                                                \
    X(MASKS, "masks")                                                                                                  \
    X(OVERLAY, "overlay")                                                                                              \
    X(YOLO, "yolo")                                                                                                    \
    X(CSV, "csv")                                                                                                      \
    X(MOT, "mot")

enum {
#define X(id, name) PREDICT_SAVE_BIT_##id,
    PREDICT_SAVES(X)
#undef X
#define X(id, name) PREDICT_SAVE_##id = 1 << PREDICT_SAVE_BIT_##id,
        PREDICT_SAVES(X)
#undef X
};

/* The command line, checked. Strings point into argv, except the two checkpoint paths, which are owned. */
typedef struct predict_options {
    const char *command; /* "predict", "segment", "eval" or "verify" */
    const char *output, *device, *targets, *names, *classes, *tar;
    char *detector, *segmenter; /* segmenter NULL: --no-masks */
    ist_precision precision;
    ist_overlap overlap;
    float conf;
    int max_objects, batch, limit; /* limit 0: all images */
    int input_width, input_height; /* of the detector; 0: the default */
    int segmenter_size;            /* 0: the default */
    ist_resize_order resize_order;
    bool stored_constants;
    ist_window window;
    double window_low, window_high;       /* values of the file, ist_bitmap_window */
    bool window_of_file, window_if_there; /* an image whose file says none has none */
    bool tiled;
    ist_tiles tiles;
    double nms_iou; /* 0: no detection is suppressed */
    bool nms_agnostic;
    float track_iou, track_high; /* track_high 0: off */
    int track_age;
    bool track_motion;
    const char *track_given;   /* an option about tracks, or NULL */
    const char *of_detections; /* one that needs a detector, or NULL */
    bool no_detector;          /* the targets are the objects */
    size_t memory;             /* bytes for images in flight; 0: a quarter of what there is */
    unsigned save;             /* PREDICT_SAVE_ bits */
    bool judges, trust_given;  /* --trust; one of its thresholds */
    ist_trust_options trust;
    bool masks, track, resume, recursive, quiet;
    bool exif_orientation;
    bool segment;               /* masks for given prompts; no detector */
    const char *boxes, *points; /* segment's: a file of prompts */
    bool multimask;             /* segment's */
    bool everything;            /* segment's: masks of everything, by these */
    ist_everything parameters;
    const char *parameter_given;              /* the last of them that was named */
    const char *serve;                        /* segment's: where its page is served */
    bool no_truth_prompts;                    /* eval's: no run with the annotations' boxes */
    bool print_json;                          /* verify's */
    bool apart;                               /* profile's: a launch for each kernel */
    const char *annotations, *results, *json; /* eval's */
    int first_source;                         /* index in argv */
    ist_shard shard;                          /* count 0: all images */
} predict_options;

/* Whether a detector finds the objects; else they are given. */
static inline bool predict_detects(const predict_options *o) {
    return !o->segment && !o->no_detector;
}

/* Parses the command line of argv[0], "predict", "segment", "eval" or "verify"; CLI_STOP in *stop when the program ends
 * with the returned code (help, a mistake). */
int predict_parse(int argc, char **argv, predict_options *options, bool *stop);

/* Fills in the default checkpoints and checks that the files are there; 0 or the exit code. */
int predict_find_checkpoints(predict_options *options);

/* The folder of the demo frames, in *path, the caller's to free; 0 or the exit code. */
int predict_find_demo(char **path);

void predict_options_free(predict_options *options);

/* The value of --save: its bits; 0, or the exit code when a mistake was named. And the other way round. */
int predict_parse_save(const char *command, const char *list, unsigned *save);
void predict_print_save(unsigned save, char *text, size_t size);

/* Images go through the window that their file says, where it says one, unless --window says another. */
void predict_use_file_windows(predict_options *o);

/* What is added from now on is read for --window's values. */
void predict_show_values(const predict_options *o, ist_sources *sources);

/* The value of --window: 0, or the exit code when a mistake was named; as it is written there, or "off"; the window of
 * an image that was read from `path`, IST_E_INPUT where its file should say it and does not. */
int predict_parse_window(const char *text, predict_options *o);
void predict_print_window(const predict_options *o, char *text, size_t size);
ist_status predict_set_window(const predict_options *o, const ist_bitmap *bitmap, const char *path, ist_image *image,
                              ist_error *err);

/* The same for --tile, and what does not go with it; --batch becomes tiles at a time. */
int predict_parse_tile(const char *text, predict_options *o);
int predict_check_tile(predict_options *o);
void predict_print_tile(const predict_options *o, char *text, size_t size);

/* As it is written behind --resize-order. */
const char *predict_resize_order_name(ist_resize_order order);

int predict_parse_precision(const char *command, const char *text, ist_precision *precision);
/* As it is written behind --precision. */
const char *predict_precision_name(ist_precision precision);

/* Value of a --precision. */
#define PREDICT_PRECISION_VALUE "P auto|fp32|fp16|bf16"
/* Value of a --save. */
#define PREDICT_SAVE_WORD(id, name) name ","
#define PREDICT_SAVE_VALUE          "LIST " PREDICT_SAVES(PREDICT_SAVE_WORD)

/* Values of --precision and of options that are whole numbers; 0, or the exit code when a mistake was named. */
/* Options of every command that opens an engine, for its list: X(id, letter or 0, name, name of its value, help). */
#define PREDICT_SEGMENTER_OPTIONS(X)                                                                                   \
    X(SEGMENTER, 0, "segmenter", "FILE", "MobileSAM or SAM ViT-B checkpoint; default: the demo weights")               \
    X(SEGMENTER_SIZE, 0, "segmenter-size", "N", "segmenter input: N x N pixels (what its checkpoint says, else 1024)") \
    X(RESIZE_ORDER, 0, "resize-order", "O auto|horizontal|vertical|pillow13",                                          \
      "axis that is resampled first: horizontal (as Pillow 11 and 12; auto is the same),\n"                            \
      "vertical, or pillow13 (vertical for tall pictures, as Pillow 13.0)")                                            \
    X(PRECISION, 0, "precision", PREDICT_PRECISION_VALUE, "{} (auto)")
#define PREDICT_MODEL_OPTIONS(X)                                                                                       \
    X(DETECTOR, 0, "detector", "FILE", "D-FINE checkpoint (.pth, .pt, .safetensors); default: the demo weights")       \
    PREDICT_SEGMENTER_OPTIONS(X)                                                                                       \
    X(IMGSZ, 0, "imgsz", "N", "detector input: N or WxH pixels, multiples of 32 from 64 to 2048 (640)")                \
    X(STORED_CONSTANTS, 0, "stored-constants", NULL,                                                                   \
      "the detector's anchors are those in its checkpoint, which half and bfloat16\n"                                  \
      "files have rounded, as the published code takes them")                                                          \
    X(NO_MASKS, 0, "no-masks", NULL, "boxes only")                                                                     \
    X(OVERLAP, 0, "overlap", NULL, "detector and image encoder at the same time, on two queues (on large GPUs)")       \
    X(NO_OVERLAP, 0, "no-overlap", NULL, "all on one queue, in less memory")
#define PREDICT_DEVICE_OPTION(X, more)                                                                                 \
    X(DEVICE, 0, "device", "SPEC", "0, 1:0, gpu, cpu, part of a name, uuid:...; see isthmus devices" more)
#define PREDICT_WINDOW_OPTION(X)                                                                                       \
    X(WINDOW, 0, "window", "W",                                                                                        \
      "16-bit images: LOW:HIGH, the values that become black and white; auto: from\n"                                  \
      "the 0.5th to the 99.5th percentile of each image; dicom: what the file says\n"                                  \
      "(0:65535)")
#define PREDICT_BATCH_OPTION(X, what) X(BATCH, 0, "batch", "N", what " per submission, 1 to 64 (1)")

/* Options about tracks, of `predict` and `live`. */
#define PREDICT_TRACK_OPTIONS(X)                                                                                       \
    X(TRACK, 0, "track", NULL, "give objects ids that last; each folder is one sequence")                              \
    X(TRACK_IOU, 0, "track-iou", "IOU", "least overlap that continues a track, 0 to 1 (0.3)")                          \
    X(TRACK_AGE, 0, "track-age", "N", "images that a track survives unseen (30)")                                      \
    X(TRACK_MOTION, 0, "track-motion", NULL, "expect tracks where their speed takes them")                             \
    X(TRACK_HIGH, 0, "track-high", "P",                                                                                \
      "match detections with a score above P first, the others with the tracks\n"                                      \
      "that are left; those begin none (off)")

/* predict_trust.c's. */
#define PREDICT_TRUST_OPTIONS(X)                                                                                       \
    X(TRUST, 0, "trust", NULL,                                                                                         \
      "judge each track, or the best object: scores of its mask and whether it is\n"                                   \
      "VISIBLE, RELOCALIZING or LOST, for guidance")                                                                   \
    X(TAU_CONF, 0, "tau-conf", "P", "with --trust: a score above this is seen (0.5)")                                  \
    X(THETA_ON, 0, "theta-on", "S", "S above which a track becomes visible (0.6)")                                     \
    X(THETA_OFF, 0, "theta-off", "S", "S below which it is no longer (0.4)")                                           \
    X(THETA_CONT, 0, "theta-cont", "C", "C above which it becomes visible (0.5)")                                      \
    X(N_LOST, 0, "n-lost", "N", "low frames in a row until it is lost (5)")

enum {
    PREDICT_OPTION_FIRST = 511,
#define X(id, letter, name, value, help) OPTION_##id,
    PREDICT_MODEL_OPTIONS(X) PREDICT_DEVICE_OPTION(X, "") PREDICT_BATCH_OPTION(X, "") PREDICT_TRACK_OPTIONS(X)
        PREDICT_TRUST_OPTIONS(X)
#undef X
};

/* Stores one of these; as predict_take_model_option. */
int predict_take_track_option(int id, const char *value, predict_options *options, bool *mine);
/* 0 or the exit code. */
int predict_check_track(const predict_options *options);

/* Stores one of --trust's options; as predict_take_model_option. */
int predict_take_trust_option(int id, const char *value, predict_options *options, bool *mine);
/* 0 or the exit code. */
int predict_check_trust(const predict_options *options);
/* The thresholds, for run.json. */
void predict_print_trust(const predict_options *options, char *text, size_t size);

/* Stores one of these; 0 or the exit code. *mine becomes false when `id` is none of them. */
int predict_take_model_option(int id, const char *value, predict_options *options, bool *mine);
/* The sides and what else of the models' inputs the options ask for. */
void predict_configure_inputs(const predict_options *options, ist_config *config);
int predict_parse_number(const char *command, const char *name, const char *text, long low, long high, int *out);

/* Options of `segment --everything` (predict_everything.c), in this order. */
#define PREDICT_EVERYTHING_OPTIONS(X)                                                                                  \
    X(POINTS_PER_SIDE, 0, "points-per-side", "N", "points on a side of the grid that is asked (32)")                   \
    X(POINTS_PER_BATCH, 0, "points-per-batch", "N", "points asked at a time: speed against memory (64)")               \
    X(PRED_IOU_THRESH, 0, "pred-iou-thresh", "P", "keep masks of a predicted IoU above P (0.88)")                      \
    X(STABILITY_SCORE_THRESH, 0, "stability-score-thresh", "P", "keep masks of at least this stability (0.95)")        \
    X(STABILITY_SCORE_OFFSET, 0, "stability-score-offset", "D", "logits between which it is measured: -D and D (1)")   \
    X(BOX_NMS_THRESH, 0, "box-nms-thresh", "P", "boxes that overlap by a larger IoU are duplicates (0.7)")             \
    X(CROP_N_LAYERS, 0, "crop-n-layers", "N", "also look into 4, 16, 64 crops of the image; 0 to 3 (0)")               \
    X(CROP_NMS_THRESH, 0, "crop-nms-thresh", "P", "the same between crops (0.7)")                                      \
    X(CROP_OVERLAP_RATIO, 0, "crop-overlap-ratio", "P", "how much crops overlap (0.341333)")                           \
    X(CROP_N_POINTS_DOWNSCALE_FACTOR, 0, "crop-n-points-downscale-factor", "N",                                        \
      "each layer's grid has an Nth of the points on a side (1)")                                                      \
    X(MIN_MASK_REGION_AREA, 0, "min-mask-region-area", "N", "fill holes and drop islands of fewer pixels (0)")         \
    X(MAX_MASKS, 0, "max-masks", "N", "most masks of an image, 1 to 4096 (512)")
enum {
#define X(id, letter, name, value, help) PREDICT_EVERYTHING_##id,
    PREDICT_EVERYTHING_OPTIONS(X)
#undef X
        PREDICT_EVERYTHING_PARAMETERS
};
/* Stores one of these; checks all of them together; prints those that decide what masks there are. 0 or the exit code.
 */
int predict_take_everything(int which, const char *value, predict_options *options);
int predict_check_everything(const predict_options *options);
void predict_print_everything(const predict_options *options, char *text, size_t size);

enum { PREDICT_MAX_DEVICES = 64 };

/* Everything a run works with; set up by predict_job.c, read by the threads. */
typedef struct predict_job {
    predict_options *options;
    const ist_coco *truth; /* eval: category ids in results.json are these annotations'; else NULL */
    ist_sources sources;
    struct predict_stream *stream; /* where more of them come from; NULL: these are all */
    size_t begun;                  /* so many of them an earlier round has had */
    ist_shard_part part;           /* with --shard */
    char **names;                  /* given with --names; none when name_count is 0 */
    size_t name_count;
    ist_labels labels;
    ist_targets targets;     /* empty without --targets */
    ist_prompt_file prompts; /* segment's */
    ist_match_mode match;
    ist_engine *engine;
    ist_engine_info engine_info;
    ist_engine *others[PREDICT_MAX_DEVICES - 1]; /* --device all: one engine for each further device */
    int other_count;
    char first_device[16];   /* what options->device becomes once --device all is resolved */
    ahead_processes helpers; /* processes that compile with us */
    ist_journal *journal;
    bool temporary; /* the output folder goes away after the run */
    volatile sig_atomic_t *interrupted;
    void (*received)(void *arg, ist_engine *engine); /* NULL, or called after every batch, by the engine's thread */
    void *received_arg;
} predict_job;

/* From now on the first interrupt finishes the batches that are on a device and makes a run return CLI_INTERRUPTED, the
 * second ends the program. */
void predict_catch_interrupts(predict_job *job);

/* Without --window, images of files that say one (DICOM) go through that, where one is on the list before the run
 * begins. */
void predict_choose_window(predict_job *job);

/* Lists the images that the command line names; 0 or the exit code. */
int predict_list_sources(predict_job *job, int argc, char **argv);

/* Images that come during the run (predict_stream.h): begins to read them; waits for the next round's, or
 * with `all` for all, and adds them to the sources, *more when others may follow; why the stream ended before its end,
 * NULL: it did not; ends reading, accepts a pointer to NULL. */
typedef struct predict_stream predict_stream;
ist_status predict_stream_open(const char *path, bool tar, predict_stream **stream, ist_error *err);
ist_status predict_stream_take(predict_job *job, bool all, bool *more, ist_error *err);
const ist_error *predict_stream_failure(const predict_stream *stream);
void predict_stream_close(predict_stream **stream);

/* --shard (predict_shard.c): its value; keeps the shard's images; whether --resume finds the same shard in the folder,
 * or a run of another to refuse; shard.json, written before the first result and removed by a run of all images. 0 or
 * the exit code. */
int predict_parse_shard(const char *command, const char *text, ist_shard *shard);
int predict_take_shard(predict_job *job);
int predict_check_shard(const predict_job *job, bool *there);
int predict_write_shard(predict_job *job);
void predict_remove_shard(const predict_options *options);

/* The prompts' side of a run of segment (predict_prompts.c): reads the file and checks it against the list of images; 0
 * or the exit code. */
int predict_read_prompts(predict_job *job);
/* Those of an image; NULL: none. */
const ist_prompt_list *predict_prompts_listed(const predict_job *job, const ist_source *source);
/* What the engine must take. */
void predict_configure_prompts(const predict_job *job, ist_config *config);

/* Prompts of one image as the engine takes them, with masks that were read for it. */
typedef struct predict_prompts {
    ist_prompt *list;
    int count;
    float **masks; /* [count]: owned, or NULL */
} predict_prompts;
ist_status predict_prompts_of(const predict_job *job, const ist_source *source, predict_prompts *prompts,
                              ist_error *err);
void predict_prompts_free(predict_prompts *prompts);
/* Of a result for what was given: the score becomes the mask's own, the box of a prompt without one that of its mask.
 */
void predict_settle_prompts(const predict_job *job, const ist_source *source, ist_object *objects, int count);

/* The engine's configuration that the options ask for. *classes (may be NULL after) is what config->classes points to,
 * the caller's to free. 0 or the exit code. */
int predict_configure(const predict_job *job, ist_config *config, int **classes);

/* Opens job->engine and describes it; with --device all, job->others too. 0 or the exit code. */
int predict_open_engine(predict_job *job);

/* All that a stream of frames needs: reads names, finds checkpoints, opens the engine, names its labels; 0 or the exit
 * code. */
int predict_open_stream(predict_job *job);

/* Everything after that: checks inputs, opens the engine unless it is open, runs over the images, writes files and
 * tables into the output folder. The engine stays open, unless all was there already. 0 or the exit code; CLI_PARTIAL
 * when images failed. */
int predict_execute(predict_job *job);

void predict_job_free(predict_job *job);

/* `isthmus predict ARGUMENTS`, from their parsing to the exit code. `job` holds nothing but what is to happen with what
 * is received, and whether the folder goes away (or nothing at all); it is freed. */
int predict_command(int argc, char **argv, predict_job *job);

/* Where a run's time went: what tells whether devices or cores were the limit. */
typedef struct predict_load {
    double ms;                           /* from the first image to the last, tables not counted */
    double device_ms;                    /* with a batch on the device, sum over the devices */
    double cpu_ms, decode_ms, encode_ms; /* processor time: of the whole program, in decoding, in encoding */
    int devices, cores;
    size_t most_bytes; /* that images in flight had at one time */
} predict_load;

/* What a run came to. */
typedef struct predict_totals {
    size_t done, failed, skipped; /* images: written, failed, kept from an earlier run */
    double begin_ms;              /* predict_now_ms when the run began */
    predict_load load;
    bool interrupted;
    ist_text failures; /* lines of failed.ndjson */
} predict_totals;

/* Milliseconds of a clock that only runs forward. */
double predict_now_ms(void);

/* Decodes, submits, receives and encodes all images that have no line in the journal yet: decoding, encoding and
 * engines beyond the first on threads of their own, the first engine on the caller's, lines in input order. Image
 * failures are named on stderr and collected; a failure of the run itself (device lost, disk full) is returned, with
 * what was done safe in the journal. */
ist_status predict_run(predict_job *job, predict_totals *totals, ist_error *err);

/* The files of one image, complete and still under their temporary names. */
enum { PREDICT_IMAGE_FILES = 3 };
typedef struct predict_files {
    ist_atomic_file list[PREDICT_IMAGE_FILES];
    size_t count;
} predict_files;

/* Writes the files of one image: instance map, overlay, YOLO labels. `image` is needed for overlays only. */
ist_status predict_write_image(const predict_job *job, const ist_source *source, const ist_bitmap *image,
                               const ist_frame *frame, predict_files *files, ist_error *err);

void predict_drop_files(predict_files *files);

/* Makes `name` the file of an image, below the output folder, that --save's `kind` (0 .. PREDICT_IMAGE_FILES - 1) asks
 * for; false when `save` does not. */
bool predict_image_file(int kind, unsigned save, const ist_source *source, ist_text *name);

/* Makes the output folder and checks that files can be written to it; *there as ist_make_folders has it. */
ist_status predict_prepare_folder(const char *folder, size_t *there, ist_error *err);

/* Claims the folder for this run and removes what killed ones have left there; *claim is for ist_claim_end
 * (io/claim.h). IST_E_STATE when another run has the folder. */
ist_status predict_claim_folder(const char *folder, int *claim, ist_error *err);

/* ist_journal_check over a predict_options: the files of one image are all there and whole. */
bool predict_image_exists(void *options, const ist_source *source, const ist_journal_frame *frame);

/* The options that decide what an image's results are, for run.json: *count of them. */
enum { PREDICT_RUN_OPTIONS_MAX = 48 };
ist_status predict_run_options(const predict_options *o, ist_run_option list[PREDICT_RUN_OPTIONS_MAX], size_t *count,
                               ist_error *err);

/* The tables over all images are all there and whole. */
bool predict_tables_exist(const predict_options *options);

/* Removes the tables of an earlier run, so that old and new results never mix. */
void predict_remove_tables(const predict_options *options);

/* Writes the tables, frames.ndjson last. */
ist_status predict_write_tables(predict_job *job, const ist_text *failures, ist_error *err);

#endif
