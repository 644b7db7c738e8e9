/* Which options decide what an image's results are: a run that resumes must have the same ones (io/run_options.h).
 *
 * Not among them: what is the same bits by another way (--batch), what says where or how much (--device, --limit), and
 * tables, which are made anew from frames.ndjson. An option that changes results belongs into this list. */
#include "predict.h"

#include <stdio.h>
#include <string.h>

static void put(ist_run_option *o, const char *name, const char *value) {
    o->name = name;
    o->part = false;
    ist_print_ends(o->value, sizeof o->value, "%s", value);
}

static ist_status put_file(ist_run_option *o, const char *name, const char *path, ist_error *err) {
    o->name = name;
    o->part = false;
    return ist_run_option_file(path, o, err);
}

/* Pictures of a run that did not save any would be those of the run before it. */
static void put_save(ist_run_option *o, unsigned save) {
    static const char *const names[] = {"masks", "overlay", "yolo"};
    static const unsigned bits[] = {PREDICT_SAVE_MASKS, PREDICT_SAVE_OVERLAY, PREDICT_SAVE_YOLO};
    o->name = "save";
    o->part = true;
    o->value[0] = '\0';
    for (int i = 0; i < PREDICT_IMAGE_FILES; i++)
        if (save & bits[i]) {
            if (*o->value) strcat(o->value, ",");
            strcat(o->value, names[i]);
        }
}

ist_status predict_run_options(const predict_options *o, ist_run_option list[PREDICT_RUN_OPTIONS_MAX], size_t *count,
                               ist_error *err) {
    char number[32], window[32], tile[40], parameters[160], trust[160];
    ist_run_option *next = list;
    IST_TRY(put_file(next++, "detector", predict_detects(o) ? o->detector : NULL, err));
    IST_TRY(put_file(next++, "segmenter", o->masks ? o->segmenter : NULL, err));
    put(next++, "precision", predict_precision_name(o->precision));
    snprintf(number, sizeof number, "%.7g", (double)o->conf);
    put(next++, "conf", number);
    snprintf(number, sizeof number, "%d", o->max_objects);
    put(next++, "max-objects", number);
    snprintf(number, sizeof number, "%dx%d", o->input_width, o->input_height);
    put(next++, "imgsz", o->input_width ? number : "default");
    snprintf(number, sizeof number, "%d", o->segmenter_size);
    put(next++, "segmenter-size", o->segmenter_size ? number : "default");
    put(next++, "resize-order",
        predict_resize_order_name(o->resize_order ? o->resize_order : IST_RESIZE_ORDER_HORIZONTAL));
    put(next++, "exif-orientation", o->exif_orientation ? "on" : "off");
    put(next++, "stored-constants", o->stored_constants ? "on" : "off");
    predict_print_window(o, window, sizeof window);
    put(next++, "window", window);
    predict_print_tile(o, tile, sizeof tile);
    put(next++, "tile", tile);
    put(next++, "classes", o->classes ? o->classes : "all");
    snprintf(number, sizeof number, "%.15g", o->nms_iou);
    put(next++, "nms", o->nms_iou > 0 ? number : "off");
    put(next++, "agnostic", o->nms_agnostic ? "on" : "off");
    put(next++, "track", o->track ? "on" : "off");
    snprintf(number, sizeof number, "%.7g", (double)o->track_iou);
    put(next++, "track-iou", number);
    snprintf(number, sizeof number, "%d", o->track_age);
    put(next++, "track-age", number);
    put(next++, "track-motion", o->track_motion ? "on" : "off");
    snprintf(number, sizeof number, "%.7g", (double)o->track_high);
    put(next++, "track-high", o->track_high > 0 ? number : "off");
    predict_print_trust(o, trust, sizeof trust);
    put(next++, "trust", o->judges ? trust : "off");
    IST_TRY(put_file(next++, "targets", o->targets, err));
    put(next++, "no-detector", o->no_detector ? "on" : "off");
    IST_TRY(put_file(next++, "names", o->names, err));
    IST_TRY(put_file(next++, "boxes", o->boxes, err));
    IST_TRY(put_file(next++, "points", o->points, err));
    put(next++, "multimask", o->multimask ? "on" : "off");
    predict_print_everything(o, parameters, sizeof parameters);
    put(next++, "everything", o->everything ? parameters : "off");
    put_save(next++, o->save);
    *count = (size_t)(next - list);
    return IST_OK;
}
