/* The command lines of `isthmus predict`, `isthmus segment`, `isthmus eval` and `isthmus verify`, and where the default
 * checkpoints are. */
#include "predict.h"

#include "io/atomic_file.h"

#include "base/mem.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef ISTHMUS_DATADIR
#define ISTHMUS_DATADIR "/usr/local/share/isthmus"
#endif

#define DEFAULT_DETECTOR  "dfine_n_demo.safetensors"
#define DEFAULT_SEGMENTER "mobile_sam_demo.safetensors"
#define DEFAULT_SAVE      (PREDICT_SAVE_JSON | PREDICT_SAVE_NDJSON | PREDICT_SAVE_MASKS | PREDICT_SAVE_OVERLAY)

/* Option, short letter or 0, name of its value, help. */
#define PREDICT_FIRST_OPTIONS(X)                                                                                       \
    X(OUTPUT, 'o', "output", "DIR", "folder to write to; made when missing")                                           \
    X(CONF, 0, "conf", "P", "keep detections with a score above P (0.4)")                                              \
    X(MAX_OBJECTS, 0, "max-objects", "N", "most objects per image, 1 to 300 (16)")

#define FOLDER_OPTIONS(X)                                                                                              \
    X(RECURSIVE, 'r', "recursive", NULL, "enter the folders inside of folders")                                        \
    X(EXIF_ORIENTATION, 0, "exif-orientation", NULL,                                                                   \
      "turn pictures as their EXIF orientation says; boxes and masks are those of the\n"                               \
      "turned pictures")                                                                                               \
    X(LIMIT, 0, "limit", "N", "stop after the first N images")                                                         \
    X(QUIET, 0, "quiet", NULL, "no progress, no summary; failures are still named")
#define ENGINE_OPTIONS(X)                                                                                              \
    FOLDER_OPTIONS(X)                                                                                                  \
    X(CLASSES, 0, "classes", "LIST", "keep these classes only: ids or names, separated by commas")

#define NMS_OPTIONS(X)                                                                                                 \
    X(NMS, 0, "nms", "IOU",                                                                                            \
      "drop a detection that overlaps a better one of its class by more than IOU,\n"                                   \
      "above 0, at most 1 (off, as published)")                                                                        \
    X(AGNOSTIC, 0, "agnostic", NULL, "with --nms: a better one of any class")                                          \
    X(TILE, 0, "tile", "WxH[+OVERLAP]",                                                                                \
      "large images: detect in tiles of W x H pixels, which overlap by a fifth of\n"                                   \
      "each side or OVERLAP pixels, and in the whole; what is found twice goes by\n"                                   \
      "--nms (0.5), masks are made in an object's tile")

#define RESUME_OPTIONS(X)                                                                                              \
    X(RESUME, 0, "resume", NULL, "keep what an earlier run with the same options has written")                         \
    X(MEMORY, 0, "memory", "BYTES", "for images in flight, with K, M or G (a quarter of the memory)")

#define RUN_OPTIONS(X)                                                                                                 \
    X(NAMES, 0, "names", "FILE", "class names: one per line, a JSON array or a data.yaml")                             \
    RESUME_OPTIONS(X)

#define DEVICES_OPTION(X)                                                                                              \
    PREDICT_DEVICE_OPTION(X, ".\nall or all:SPEC: the images are shared out among all devices of one kind")
#define MODEL_OPTIONS(X)                                                                                               \
    PREDICT_MODEL_OPTIONS(X)                                                                                           \
    PREDICT_WINDOW_OPTION(X)                                                                                           \
    DEVICES_OPTION(X)

#define BATCH_OPTION(X) PREDICT_BATCH_OPTION(X, "images, or with --tile tiles of one,")

#define SAVE_OPTION(X)  X(SAVE, 0, "save", PREDICT_SAVE_VALUE, "{} (json,ndjson,masks,overlay)")

#define SHARD_OPTION(X)                                                                                                \
    X(SHARD, 0, "shard", "I/N",                                                                                        \
      "the Ith of N parts of the images, for isthmus merge; auto: what Slurm's array\n"                                \
      "job says")

#define PREDICT_LAST_OPTIONS(X)                                                                                        \
    X(TARGETS, 0, "targets", "FILE",                                                                                   \
      "match with given boxes: JSON {\"a.png\": [{\"box\": [x0,y0,x1,y1],\n"                                           \
      "\"label\": 0}]} or COCO annotations")                                                                           \
    X(NO_DETECTOR, 0, "no-detector", NULL, "the boxes of --targets are the objects: masks for all of them")            \
    X(TAR, 0, "tar", "FILE", "images of a tar stream, as it comes; '-': standard input")                               \
    SHARD_OPTION(X)                                                                                                    \
    SAVE_OPTION(X)

#define SEGMENT_ONLY_OPTIONS(X)                                                                                        \
    X(BOXES, 0, "boxes", "FILE",                                                                                       \
      "what to cut out: JSON {\"a.png\": [{\"box\": [x0,y0,x1,y1]}]} or COCO\n"                                        \
      "annotations")                                                                                                   \
    X(POINTS, 0, "points", "FILE",                                                                                     \
      "the same; a prompt has a box, points (label 1 in, 0 out), a mask of\n"                                          \
      "low-resolution logits, or any of them together: JSON {\"a.png\":\n"                                             \
      "[{\"points\": [[x,y,1],[x,y,0]], \"mask\": \"low_res.npy\"}]}")                                                 \
    X(MULTIMASK, 0, "multimask", NULL, "three masks for each prompt: what it may mean")                                \
    X(EVERYTHING, 0, "everything", NULL, "masks of everything, asked for by a grid of points")                         \
    PREDICT_EVERYTHING_OPTIONS(X)                                                                                      \
    X(SERVE, 0, "serve", "HOST:PORT",                                                                                  \
      "instead of -o and prompts: a page for the browser that asks for masks by\n"                                     \
      "clicks, at 127.0.0.1:8000 for example; port 0: a free one")

#define SEGMENT_OPTIONS(X)                                                                                             \
    X(OUTPUT, 'o', "output", "DIR", "folder to write to; made when missing")                                           \
    SEGMENT_ONLY_OPTIONS(X)

#define EVAL_ONLY_OPTIONS(X)                                                                                           \
    X(ANNOTATIONS, 0, "annotations", "FILE", "COCO annotations: the truth")                                            \
    X(RESULTS, 0, "results", "FILE",                                                                                   \
      "evaluate these COCO results instead of images; the device is used\n"                                            \
      "(for the mask IoU) only when --device names one")                                                               \
    X(JSON, 0, "json", "FILE", "also write the numbers as JSON; '-': standard output")                                 \
    X(NO_TRUTH_PROMPTS, 0, "no-truth-prompts", NULL, "no second run that gives the segmenter the annotations' boxes")

#define EVAL_OPTIONS(X)                                                                                                \
    EVAL_ONLY_OPTIONS(X)                                                                                               \
    X(OUTPUT, 'o', "output", "DIR", "keep the results there, as predict writes them")                                  \
    X(CONF, 0, "conf", "P", "keep detections with a score above P (0.001)")                                            \
    X(MAX_OBJECTS, 0, "max-objects", "N", "most objects per image, 1 to 300 (100)")                                    \
    X(SAVE, 0, "save", PREDICT_SAVE_VALUE, "with -o: what to write besides results.json (ndjson): {}")

#define VERIFY_OPTIONS(X)                                                                                              \
    X(CONF, 0, "conf", "P", "compare detections with a score above P (0.4)")                                           \
    X(MAX_OBJECTS, 0, "max-objects", "N", "most objects per image, 1 to 300 (16)")                                     \
    X(PRINT_JSON, 0, "json", NULL, "print a JSON object instead of a table")

enum {
    OPTION_FIRST = 255,
#define X(id, letter, name, value, help) OPTION_##id,
    PREDICT_FIRST_OPTIONS(X) ENGINE_OPTIONS(X) NMS_OPTIONS(X) RUN_OPTIONS(X) PREDICT_LAST_OPTIONS(X)
        SEGMENT_ONLY_OPTIONS(X) EVAL_ONLY_OPTIONS(X) PREDICT_WINDOW_OPTION(X)
#undef X
            OPTION_PRINT_JSON
};

#define X(id, letter, name, value, help) {name, letter ? letter : OPTION_##id, value, help},
const cli_option cmd_predict_options[] = {
    PREDICT_FIRST_OPTIONS(X) MODEL_OPTIONS(X) ENGINE_OPTIONS(X) NMS_OPTIONS(X) BATCH_OPTION(X) RUN_OPTIONS(X)
        PREDICT_TRACK_OPTIONS(X) PREDICT_LAST_OPTIONS(X) PREDICT_TRUST_OPTIONS(X){NULL, 0, NULL, NULL}};
const cli_option cmd_segment_options[] = {SEGMENT_OPTIONS(X) PREDICT_SEGMENTER_OPTIONS(X) PREDICT_WINDOW_OPTION(X) DEVICES_OPTION(
    X) FOLDER_OPTIONS(X) BATCH_OPTION(X) RESUME_OPTIONS(X) SHARD_OPTION(X) SAVE_OPTION(X){NULL, 0, NULL, NULL}};
const cli_option cmd_eval_options[] = {EVAL_OPTIONS(X) MODEL_OPTIONS(X) ENGINE_OPTIONS(X) NMS_OPTIONS(X) BATCH_OPTION(X)
                                           RUN_OPTIONS(X){NULL, 0, NULL, NULL}};
const cli_option cmd_verify_options[] = {VERIFY_OPTIONS(X) PREDICT_MODEL_OPTIONS(X) PREDICT_DEVICE_OPTION(X, "")
                                             ENGINE_OPTIONS(X){NULL, 0, NULL, NULL}};
#undef X

static const char *const save_names[] = {
#define X(id, name) name,
    PREDICT_SAVES(X)
#undef X
};
enum { SAVE_NAMES = sizeof save_names / sizeof *save_names };

void predict_print_save(unsigned save, char *text, size_t size) {
    size_t n = 0;
    *text = '\0';
    for (int i = 0; i < SAVE_NAMES; i++)
        if (save & 1u << i && n < size) n += (size_t)snprintf(text + n, size - n, "%s%s", n ? "," : "", save_names[i]);
}

static bool add_save(unsigned *save, const char *name, size_t length) {
    for (unsigned i = 0; i < SAVE_NAMES; i++)
        if (strlen(save_names[i]) == length && !memcmp(save_names[i], name, length)) {
            *save |= 1u << i;
            return true;
        }
    return false;
}

/* 0 or the exit code. */
int predict_parse_save(const char *command, const char *list, unsigned *save) {
    *save = 0;
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ",");
        if (!add_save(save, p, n))
            return cli_usage(command, "--save: '%.*s' is none of json, ndjson, masks, overlay, yolo, csv, mot", (int)n,
                             p);
        p += n;
        if (!*p) return CLI_SUCCESS;
    }
}

const char *predict_precision_name(ist_precision precision) {
    static const char *const names[] = {"auto", "fp32", "fp16", "bf16"};
    return names[precision];
}

int predict_parse_precision(const char *command, const char *text, ist_precision *precision) {
    for (int p = IST_PRECISION_AUTO; p <= IST_PRECISION_BF16; p++)
        if (!strcmp(text, predict_precision_name((ist_precision)p))) {
            *precision = (ist_precision)p;
            return CLI_SUCCESS;
        }
    return cli_usage(command, "--precision: '%s' is none of auto, fp32, fp16, bf16", text);
}

const char *predict_resize_order_name(ist_resize_order order) {
    static const char *const names[] = {"auto", "horizontal", "vertical", "pillow13"};
    return names[order];
}

static int parse_resize_order(const char *text, predict_options *o) {
    for (int k = IST_RESIZE_ORDER_AUTO; k <= IST_RESIZE_ORDER_PILLOW_13; k++)
        if (!strcmp(text, predict_resize_order_name((ist_resize_order)k))) {
            o->resize_order = (ist_resize_order)k;
            return CLI_SUCCESS;
        }
    return cli_usage(o->command, "--resize-order: '%s' is none of auto, horizontal, vertical, pillow13", text);
}

int predict_parse_number(const char *command, const char *name, const char *text, long low, long high, int *out) {
    if (cli_parse_int(text, low, high, out)) return CLI_SUCCESS;
    return cli_usage(command, "--%s: '%s' is not a whole number from %ld to %ld", name, text, low, high);
}

static int copy_path(const char *path, char **out) {
    free(*out);
    *out = ist_strdup(path);
    return *out ? CLI_SUCCESS : cli_fail(CLI_FAILED, "out of memory");
}

/* "N" or "WxH". */
static int parse_imgsz(const char *text, predict_options *o) {
    char width[16];
    const char *x = strchr(text, 'x');
    size_t n = x ? (size_t)(x - text) : strlen(text);
    snprintf(width, sizeof width, "%.*s", (int)n, text);
    if (n < sizeof width && cli_parse_int(width, 64, 2048, &o->input_width) &&
        cli_parse_int(x ? x + 1 : width, 64, 2048, &o->input_height) && o->input_width % 32 == 0 &&
        o->input_height % 32 == 0)
        return CLI_SUCCESS;
    return cli_usage(o->command, "--imgsz: '%s' is not N or WxH, multiples of 32 from 64 to 2048", text);
}

void predict_configure_inputs(const predict_options *o, ist_config *config) {
    config->input_width = o->input_width;
    config->input_height = o->input_height;
    if (o->input_width && o->input_width == o->input_height) config->input_size = o->input_width;
    config->segmenter_size = o->segmenter_size;
    config->resize_order = o->resize_order;
    config->stored_constants = o->stored_constants;
    config->window = o->window;
}

/* Options about what detections become; 0 or the exit code. */
static int take_detection_option(int id, const char *value, predict_options *o, bool *mine) {
    *mine = true;
    switch (id) {
    case OPTION_NMS:
        if (!cli_parse_number(value, 0, 1, &o->nms_iou) || !(o->nms_iou > 0))
            return cli_usage(o->command, "--nms: '%s' is not a number above 0, at most 1", value);
        break;
    case OPTION_AGNOSTIC:
        o->nms_agnostic = true;
        break;
    case OPTION_TARGETS:
        o->targets = value;
        break;
    case OPTION_NO_DETECTOR:
        o->no_detector = true;
        break;
    case OPTION_WINDOW:
        return predict_parse_window(value, o);
    case OPTION_TILE:
        return predict_parse_tile(value, o);
    default:
        *mine = false;
    }
    return CLI_SUCCESS;
}

static void take_other_option(int id, const char *value, predict_options *o) {
    if (id == OPTION_BOXES) o->boxes = value;
    if (id == OPTION_POINTS) o->points = value;
    if (id == OPTION_MULTIMASK) o->multimask = true;
    if (id == OPTION_EVERYTHING) o->everything = true;
    if (id == OPTION_SERVE) o->serve = value;
    if (id == OPTION_ANNOTATIONS) o->annotations = value;
    if (id == OPTION_RESULTS) o->results = value;
    if (id == OPTION_JSON) o->json = value;
    if (id == OPTION_NO_TRUTH_PROMPTS) o->no_truth_prompts = true;
    if (id == OPTION_PRINT_JSON) o->print_json = true;
}

int predict_take_model_option(int id, const char *value, predict_options *o, bool *mine) {
    *mine = true;
    switch (id) {
    case OPTION_DETECTOR:
        return copy_path(value, &o->detector);
    case OPTION_SEGMENTER:
        return copy_path(value, &o->segmenter);
    case OPTION_IMGSZ:
        return parse_imgsz(value, o);
    case OPTION_SEGMENTER_SIZE:
        if (!cli_parse_int(value, 32, 4096, &o->segmenter_size) || o->segmenter_size % 32)
            return cli_usage(o->command, "--segmenter-size: '%s' is not a multiple of 32 from 32 to 4096", value);
        break;
    case OPTION_STORED_CONSTANTS:
        o->stored_constants = true;
        break;
    case OPTION_RESIZE_ORDER:
        return parse_resize_order(value, o);
    case OPTION_NO_MASKS:
        o->masks = false;
        break;
    case OPTION_DEVICE:
        o->device = value;
        break;
    case OPTION_PRECISION:
        return predict_parse_precision(o->command, value, &o->precision);
    case OPTION_OVERLAP:
        o->overlap = IST_OVERLAP_ON;
        break;
    case OPTION_NO_OVERLAP:
        o->overlap = IST_OVERLAP_OFF;
        break;
    case OPTION_BATCH:
        return predict_parse_number(o->command, "batch", value, 1, 64, &o->batch);
    default:
        *mine = false;
    }
    return CLI_SUCCESS;
}

/* 0 or the exit code. */
static int take_option(int id, const char *value, predict_options *o) {
    bool taken;
    int code = predict_take_model_option(id, value, o, &taken);
    if (!taken) code = take_detection_option(id, value, o, &taken);
    if (!taken) code = predict_take_track_option(id, value, o, &taken);
    if (!taken) code = predict_take_trust_option(id, value, o, &taken);
    if (taken) return code;
    switch (id) {
    case 'o':
        o->output = value;
        break;
    case 'r':
        o->recursive = true;
        break;
    case OPTION_EXIF_ORIENTATION:
        o->exif_orientation = true;
        break;
    case OPTION_CLASSES:
        o->classes = value;
        break;
    case OPTION_NAMES:
        o->names = value;
        break;
    case OPTION_RESUME:
        o->resume = true;
        break;
    case OPTION_QUIET:
        o->quiet = true;
        break;
    case OPTION_TAR:
        o->tar = value;
        break;
    case OPTION_SHARD:
        return predict_parse_shard(o->command, value, &o->shard);
    case OPTION_SAVE:
        return predict_parse_save(o->command, value, &o->save);
    case OPTION_MEMORY:
        if (!cli_parse_bytes(value, &o->memory))
            return cli_usage(o->command, "--memory: '%s' is not a number of bytes, such as 800M or 4G", value);
        break;
    case OPTION_MAX_OBJECTS:
        return predict_parse_number(o->command, "max-objects", value, 1, 300, &o->max_objects);
    case OPTION_LIMIT:
        return predict_parse_number(o->command, "limit", value, 1, INT32_MAX, &o->limit);
    case OPTION_CONF:
        if (!cli_parse_float(value, 0, 1, &o->conf))
            return cli_usage(o->command, "--conf: '%s' is not a number from 0 to 1", value);
        break;
    default:
        if (id >= OPTION_POINTS_PER_SIDE && id <= OPTION_MAX_MASKS)
            return predict_take_everything(id - OPTION_POINTS_PER_SIDE, value, o);
        take_other_option(id, value, o);
    }
    return CLI_SUCCESS;
}

static int check_masks(predict_options *o) {
    if (!o->masks && o->segmenter) return cli_usage(o->command, "--no-masks and --segmenter exclude each other");
    if (!o->masks && (o->save & PREDICT_SAVE_MASKS))
        return cli_usage(o->command, "--no-masks and --save masks exclude each other");
    return CLI_SUCCESS;
}

static int check_folders(const predict_options *o, int argc) {
    if (o->first_source >= argc && !o->tar) return cli_usage(o->command, "name at least one image, folder or '-'");
    if (o->first_source < argc && o->tar) return cli_usage(o->command, "--tar and images exclude each other");
    if (!o->output) return cli_usage(o->command, "-o DIR is missing");
    if (!*o->output) return cli_usage(o->command, "-o: the name of the folder is empty");
    return CLI_SUCCESS;
}

static bool names_all_devices(const predict_options *o) {
    return o->device && !strncmp(o->device, "all", 3) && (!o->device[3] || o->device[3] == ':');
}

/* Options of runs over all images mean nothing to a page. */
static int check_serve(const predict_options *o, int argc) {
    if (o->first_source >= argc) return cli_usage(o->command, "name at least one image, folder or '-'");
    if (o->output || o->boxes || o->points || o->multimask || o->everything || o->save || o->resume || o->memory ||
        o->batch != 1 || o->shard.count || o->window)
        return cli_usage("segment", "--serve excludes -o, --boxes, --points, --multimask, --everything, --save, "
                                    "--resume, --memory, --batch, --shard and --window");
    if (names_all_devices(o)) return cli_usage("segment", "--serve needs one device");
    return predict_check_everything(o); /* of the page's button */
}

static int check_shard(const predict_options *o) {
    if (!o->shard.count || (o->save & PREDICT_SAVE_NDJSON)) return CLI_SUCCESS;
    return cli_usage(o->command, "--shard needs ndjson among --save: merge reads it");
}

static int check_segment(predict_options *o, int argc) {
    if (o->serve) return check_serve(o, argc);
    int code = check_folders(o, argc);
    if (code) return code;
    if (!!o->boxes + !!o->points + o->everything != 1)
        return cli_usage("segment", "give one of --boxes FILE, --points FILE and --everything");
    if ((code = predict_check_everything(o))) return code;
    if (!o->save) o->save = DEFAULT_SAVE;
    return check_shard(o);
}

static int check_nms(predict_options *o) {
    int code = predict_check_tile(o);
    if (code) return code;
    if (!o->nms_agnostic || o->nms_iou > 0) return CLI_SUCCESS;
    return cli_usage(o->command, "--agnostic needs --nms IOU");
}

/* Options that say something of detections. */
static bool is_of_detections(int id) {
    static const int ids[] = {
        OPTION_DETECTOR, OPTION_CONF,  OPTION_MAX_OBJECTS, OPTION_CLASSES,          OPTION_NMS,
        OPTION_AGNOSTIC, OPTION_TRACK, OPTION_IMGSZ,       OPTION_STORED_CONSTANTS, OPTION_NO_MASKS};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i] == id) return true;
    return false;
}

static int check_predict(predict_options *o, int argc) {
    int code = check_folders(o, argc);
    if (!code) code = check_nms(o);
    if (!code) code = predict_check_trust(o);
    if (code) return code;
    if (o->no_detector && !o->targets) return cli_usage("predict", "--no-detector needs --targets FILE");
    if (o->no_detector && o->of_detections)
        return cli_usage("predict", "--no-detector and --%s exclude each other", o->of_detections);
    if ((code = predict_check_track(o))) return code;
    if ((o->track || o->judges) && names_all_devices(o))
        return cli_usage("predict", "--%s needs one device: tracks go from image to image",
                         o->track ? "track" : "trust");
    if (o->track && o->targets) return cli_usage("predict", "--track and --targets exclude each other");
    if (!o->save) o->save = DEFAULT_SAVE & ~(o->masks ? 0u : (unsigned)PREDICT_SAVE_MASKS);
    if (o->tar && (o->resume || o->shard.count || o->targets || o->track || o->judges))
        return cli_usage("predict",
                         "--tar excludes --resume, --shard, --targets, --track and --trust: a stream comes once");
    code = check_shard(o);
    return code ? code : check_masks(o);
}

static int check_eval(predict_options *o, int argc) {
    if (!o->annotations) return cli_usage("eval", "--annotations FILE is missing");
    if (o->results && o->first_source < argc) return cli_usage("eval", "--results and images exclude each other");
    if (!o->results && o->first_source >= argc)
        return cli_usage("eval", "name at least one image, folder or '-', or --results FILE");
    if (o->results && (o->output || o->resume)) return cli_usage("eval", "--results excludes -o and --resume");
    if (o->output && !*o->output) return cli_usage("eval", "-o: the name of the folder is empty");
    if (!o->output && (o->save || o->resume)) return cli_usage("eval", "--save and --resume need -o DIR");
    if (o->output && !o->save) o->save = PREDICT_SAVE_NDJSON;
    o->save |= PREDICT_SAVE_JSON;
    int code = check_nms(o);
    return code ? code : check_masks(o);
}

static const char *name_of(const cli_option *list, int id) {
    while (list->name && list->id != id) list++;
    return list->name;
}

int predict_parse(int argc, char **argv, predict_options *o, bool *stop) {
    ist_config defaults = ist_config_default();
    bool eval = !strcmp(argv[0], "eval"), verify = !strcmp(argv[0], "verify"), segment = !strcmp(argv[0], "segment");
    const cli_option *list = eval      ? cmd_eval_options
                             : verify  ? cmd_verify_options
                             : segment ? cmd_segment_options
                                       : cmd_predict_options;
    *o = (predict_options){.command = argv[0],
                           .masks = true,
                           .segment = segment,
                           .track_iou = defaults.track_iou,
                           .track_age = defaults.track_age,
                           .conf = eval ? 0.001f : defaults.conf,
                           .max_objects = eval ? 100 : defaults.max_objects,
                           .batch = 1,
                           .parameters = ist_everything_default()};
    const char *value;
    int id, code = CLI_SUCCESS;
    while (!code && (id = cli_next(argv[0], list, argc, argv, &value, &code)) != CLI_END) {
        if (id == CLI_STOP) {
            *stop = true;
            return code;
        }
        code = take_option(id, value, o);
        if (is_of_detections(id)) o->of_detections = name_of(list, id);
    }
    o->first_source = optind;
    if (!code)
        code = eval      ? check_eval(o, argc)
               : verify  ? check_masks(o)
               : segment ? check_segment(o, argc)
                         : check_predict(o, argc);
    if (!code && (o->save & PREDICT_SAVE_MOT) && !o->track)
        code = cli_usage(argv[0], "--save mot needs predict's --track");
    *stop = code != CLI_SUCCESS;
    return code;
}

void predict_options_free(predict_options *o) {
    free(o->detector);
    free(o->segmenter);
    o->detector = o->segmenter = NULL;
}

/* FOLDER/file in *path when it can be read. */
static bool find_in(const char *folder, const char *file, char **path) {
    *path = ist_path_join(folder, file);
    if (*path && !access(*path, R_OK)) return true;
    free(*path);
    *path = NULL;
    return false;
}

/* The same in a folder beside the program's own, "../weights" for example. */
static bool find_beside_program(const char *relative, const char *file, char **path) {
    char program[4096], folder[4200];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) return false;
    program[n] = '\0';
    char *slash = strrchr(program, '/');
    if (!slash) return false;
    *slash = '\0';
    snprintf(folder, sizeof folder, "%s/%s", program, relative);
    return find_in(folder, file, path);
}

/* The default checkpoint (or the demo frames, without an option): in $ISTHMUS_WEIGHTS_DIR when that is set; else where
 * the program's own are: below the prefix that it is in, wherever that was moved to, beside a program that was built
 * (CMake puts a link into the build folder, wherever that is), or in the source tree around the build folder (build or
 * build/NAME); else where they were to be installed. */
static int find_default(const char *file, const char *option, char **path) {
    const char *folder = getenv("ISTHMUS_WEIGHTS_DIR");
    bool given = folder && *folder;
    if (!given) folder = ISTHMUS_DATADIR "/weights";
    if (!given &&
        (find_beside_program("../share/isthmus/weights", file, path) || find_beside_program("weights", file, path) ||
         find_beside_program("../weights", file, path) || find_beside_program("../../weights", file, path)))
        return CLI_SUCCESS;
    if (find_in(folder, file, path)) return CLI_SUCCESS;
    if (!option) return cli_fail(CLI_FAILED, "there are no demo frames in %s; name images", folder);
    return cli_fail(CLI_BAD_MODEL, "there is no %s in %s; name a checkpoint with --%s FILE", file, folder, option);
}

int predict_find_demo(char **path) {
    return find_default("demo", NULL, path);
}

static int check_checkpoint(const char *path) {
    struct stat st;
    if (access(path, R_OK)) return cli_fail(CLI_BAD_MODEL, "%s: %s", path, strerror(errno));
    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        return cli_fail(CLI_BAD_MODEL, "%s: is a folder, not a checkpoint", path);
    return CLI_SUCCESS;
}

int predict_find_checkpoints(predict_options *o) {
    const bool detects = predict_detects(o);
    int code = o->detector || !detects ? CLI_SUCCESS : find_default(DEFAULT_DETECTOR, "detector", &o->detector);
    if (!code && detects) code = check_checkpoint(o->detector);
    if (code || !o->masks) return code;
    if (!o->segmenter) code = find_default(DEFAULT_SEGMENTER, "segmenter", &o->segmenter);
    if (code && detects) cli_note("without a segmenter, --no-masks finds boxes only");
    return code ? code : check_checkpoint(o->segmenter);
}
