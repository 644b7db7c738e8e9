/* The command line of `isthmus predict` and where its default checkpoints are. */
#include "predict.h"

#include "io/atomic_file.h"

#include "base/mem.h"

#include <errno.h>
#include <getopt.h>
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
#define OPTIONS(X)                                                                                                     \
    X(OUTPUT, 'o', "output", "DIR", "folder to write to; made when missing")                                           \
    X(RECURSIVE, 'r', "recursive", NULL, "enter the folders inside of folders")                                        \
    X(DETECTOR, 0, "detector", "FILE", "D-FINE checkpoint (.pth, .pt, .safetensors); default: the demo weights")       \
    X(SEGMENTER, 0, "segmenter", "FILE", "MobileSAM checkpoint; default: the demo weights")                            \
    X(NO_MASKS, 0, "no-masks", NULL, "boxes only")                                                                     \
    X(CONF, 0, "conf", "P", "keep detections with a score above P (0.4)")                                              \
    X(CLASSES, 0, "classes", "LIST", "keep these classes only: ids or names, separated by commas")                     \
    X(MAX_OBJECTS, 0, "max-objects", "N", "most objects per image, 1 to 300 (16)")                                     \
    X(DEVICE, 0, "device", "SPEC", "0, 1:0, gpu, cpu, part of a name, uuid:...; see isthmus devices")                  \
    X(PRECISION, 0, "precision", "P", "auto, fp32 or fp16 (auto)")                                                     \
    X(BATCH, 0, "batch", "N", "images per submission, 1 to 64 (1)")                                                    \
    X(TRACK, 0, "track", NULL, "give objects ids that last; each folder is one sequence")                              \
    X(TARGETS, 0, "targets", "FILE",                                                                                   \
      "match with given boxes: JSON {\"a.png\": [{\"box\": [x0,y0,x1,y1],\n"                                           \
      "\"label\": 0}]} or COCO annotations")                                                                           \
    X(NAMES, 0, "names", "FILE", "class names: one per line, a JSON array or a data.yaml")                             \
    X(SAVE, 0, "save", "LIST", "json, ndjson, masks, overlay, yolo, csv (json,ndjson,masks,overlay)")                  \
    X(RESUME, 0, "resume", NULL, "keep what an earlier run with the same options has written")                         \
    X(LIMIT, 0, "limit", "N", "stop after the first N images")                                                         \
    X(QUIET, 0, "quiet", NULL, "no progress, no summary; failures are still named")

enum {
    OPTION_FIRST = 255,
#define X(id, letter, name, value, help) OPTION_##id,
    OPTIONS(X)
#undef X
};

static const cli_option options_list[] = {
#define X(id, letter, name, value, help) {name, letter ? letter : OPTION_##id, value, help},
    OPTIONS(X)
#undef X
        {NULL, 0, NULL, NULL},
};

static bool add_save(unsigned *save, const char *name, size_t length) {
    static const char *const names[] = {
#define X(id, name) name,
        PREDICT_SAVES(X)
#undef X
    };
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == length && !memcmp(names[i], name, length)) {
            *save |= 1u << i;
            return true;
        }
    return false;
}

/* 0 or the exit code. */
static int parse_save(const char *list, unsigned *save) {
    *save = 0;
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ",");
        if (!add_save(save, p, n))
            return cli_usage("predict", "--save: '%.*s' is none of json, ndjson, masks, overlay, yolo, csv", (int)n, p);
        p += n;
        if (!*p) return CLI_SUCCESS;
    }
}

static int parse_precision(const char *text, ist_precision *precision) {
    if (!strcmp(text, "auto"))
        *precision = IST_PRECISION_AUTO;
    else if (!strcmp(text, "fp32"))
        *precision = IST_PRECISION_FP32;
    else if (!strcmp(text, "fp16"))
        *precision = IST_PRECISION_FP16;
    else
        return cli_usage("predict", "--precision: '%s' is none of auto, fp32, fp16", text);
    return CLI_SUCCESS;
}

static int parse_number(const char *name, const char *text, long low, long high, int *out) {
    if (cli_parse_int(text, low, high, out)) return CLI_SUCCESS;
    return cli_usage("predict", "--%s: '%s' is not a whole number from %ld to %ld", name, text, low, high);
}

static int copy_path(const char *path, char **out) {
    free(*out);
    *out = ist_strdup(path);
    return *out ? CLI_SUCCESS : cli_fail(CLI_FAILED, "out of memory");
}

/* 0 or the exit code. */
static int take_option(int id, const char *value, predict_options *o) {
    switch (id) {
    case 'o':
        o->output = value;
        break;
    case 'r':
        o->recursive = true;
        break;
    case OPTION_DETECTOR:
        return copy_path(value, &o->detector);
    case OPTION_SEGMENTER:
        return copy_path(value, &o->segmenter);
    case OPTION_NO_MASKS:
        o->masks = false;
        break;
    case OPTION_CLASSES:
        o->classes = value;
        break;
    case OPTION_DEVICE:
        o->device = value;
        break;
    case OPTION_TRACK:
        o->track = true;
        break;
    case OPTION_TARGETS:
        o->targets = value;
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
    case OPTION_SAVE:
        return parse_save(value, &o->save);
    case OPTION_PRECISION:
        return parse_precision(value, &o->precision);
    case OPTION_MAX_OBJECTS:
        return parse_number("max-objects", value, 1, 300, &o->max_objects);
    case OPTION_BATCH:
        return parse_number("batch", value, 1, 64, &o->batch);
    case OPTION_LIMIT:
        return parse_number("limit", value, 1, INT32_MAX, &o->limit);
    case OPTION_CONF:
        if (!cli_parse_float(value, 0, 1, &o->conf))
            return cli_usage("predict", "--conf: '%s' is not a number from 0 to 1", value);
        break;
    default:
        break;
    }
    return CLI_SUCCESS;
}

static int check_together(predict_options *o, int argc) {
    if (o->first_source >= argc) return cli_usage("predict", "name at least one image, folder or '-'");
    if (!o->output) return cli_usage("predict", "-o DIR is missing");
    if (!*o->output) return cli_usage("predict", "-o: the name of the folder is empty");
    if (o->track && o->targets) return cli_usage("predict", "--track and --targets exclude each other");
    if (!o->masks && o->segmenter) return cli_usage("predict", "--no-masks and --segmenter exclude each other");
    if (!o->masks && (o->save & PREDICT_SAVE_MASKS))
        return cli_usage("predict", "--no-masks and --save masks exclude each other");
    if (!o->save) o->save = DEFAULT_SAVE & ~(o->masks ? 0u : (unsigned)PREDICT_SAVE_MASKS);
    return CLI_SUCCESS;
}

int predict_parse(int argc, char **argv, predict_options *o, bool *stop) {
    ist_config defaults = ist_config_default();
    *o = (predict_options){.masks = true, .conf = defaults.conf, .max_objects = defaults.max_objects, .batch = 1};
    const char *value;
    int id, code = CLI_SUCCESS;
    while (!code && (id = cli_next("predict", options_list, argc, argv, &value, &code)) != CLI_END) {
        if (id == CLI_STOP) {
            *stop = true;
            return code;
        }
        code = take_option(id, value, o);
    }
    o->first_source = optind;
    if (!code) code = check_together(o, argc);
    *stop = code != CLI_SUCCESS;
    return code;
}

void predict_options_free(predict_options *o) {
    free(o->detector);
    free(o->segmenter);
    o->detector = o->segmenter = NULL;
}

/* The default checkpoint: below $ISTHMUS_WEIGHTS_DIR, else where it is installed. */
static int find_default(const char *file, const char *option, char **path) {
    const char *folders[2] = {getenv("ISTHMUS_WEIGHTS_DIR"), ISTHMUS_DATADIR "/weights"};
    for (int i = 0; i < 2; i++) {
        if (!folders[i] || !*folders[i]) continue;
        char *candidate = ist_path_join(folders[i], file);
        if (candidate && !access(candidate, R_OK)) {
            *path = candidate;
            return CLI_SUCCESS;
        }
        free(candidate);
    }
    return cli_fail(CLI_BAD_MODEL, "there is no %s in %s; name a checkpoint with --%s FILE", file,
                    folders[0] && *folders[0] ? folders[0] : folders[1], option);
}

static int check_checkpoint(const char *path) {
    struct stat st;
    if (access(path, R_OK)) return cli_fail(CLI_BAD_MODEL, "%s: %s", path, strerror(errno));
    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        return cli_fail(CLI_BAD_MODEL, "%s: is a folder, not a checkpoint", path);
    return CLI_SUCCESS;
}

int predict_find_checkpoints(predict_options *o) {
    int code = o->detector ? CLI_SUCCESS : find_default(DEFAULT_DETECTOR, "detector", &o->detector);
    if (!code) code = check_checkpoint(o->detector);
    if (code || !o->masks) return code;
    if (!o->segmenter) code = find_default(DEFAULT_SEGMENTER, "segmenter", &o->segmenter);
    if (code) cli_note("without a segmenter, --no-masks finds boxes only");
    return code ? code : check_checkpoint(o->segmenter);
}
