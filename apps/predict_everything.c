/* `isthmus segment --everything`: the automatic mask generator's parameters on the command line, under their published
 * names. */
#include "predict.h"

#include "pipeline/everything.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct parameter {
    const char *name;
    size_t offset;
    bool whole;       /* an int, else a double */
    double low, high; /* the engine knows better */
} parameter;

#define WHOLE(name, member, low, high)                                                                                 \
    { name, offsetof(ist_everything, member), true, low, high }
#define NUMBER(name, member, low, high)                                                                                \
    { name, offsetof(ist_everything, member), false, low, high }
static const parameter parameters[] = {
    WHOLE("points-per-side", points_per_side, 1, IST_GRID_SIDE_MAX),
    WHOLE("points-per-batch", points_per_batch, 1, IST_POINTS_AT_A_TIME_MAX),
    NUMBER("pred-iou-thresh", pred_iou_thresh, -1e6, 1e6),
    NUMBER("stability-score-thresh", stability_score_thresh, -1e6, 1e6),
    NUMBER("stability-score-offset", stability_score_offset, 0, 1e6),
    NUMBER("box-nms-thresh", box_nms_thresh, 0, 1),
    WHOLE("crop-n-layers", crop_n_layers, 0, IST_CROP_LAYERS_MAX),
    NUMBER("crop-nms-thresh", crop_nms_thresh, 0, 1),
    NUMBER("crop-overlap-ratio", crop_overlap_ratio, 0, 0.99),
    WHOLE("crop-n-points-downscale-factor", crop_n_points_downscale_factor, 1, IST_GRID_SIDE_MAX),
    WHOLE("min-mask-region-area", min_mask_region_area, 0, 1 << 30),
    WHOLE("max-masks", max_masks, 1, IST_MASKS_MAX),
};
enum { PARAMETERS = sizeof parameters / sizeof *parameters };
_Static_assert((int)PARAMETERS == (int)PREDICT_EVERYTHING_PARAMETERS, "an option for each");

int predict_take_everything(int which, const char *value, predict_options *o) {
    const parameter *p = &parameters[which];
    char *member = (char *)&o->parameters + p->offset;
    o->parameter_given = p->name;
    if (p->whole)
        return predict_parse_number(o->command, p->name, value, (long)p->low, (long)p->high, (int *)(void *)member);
    if (cli_parse_number(value, p->low, p->high, (double *)(void *)member)) return CLI_SUCCESS;
    return cli_usage(o->command, "--%s: '%s' is not a number from %g to %g", p->name, value, p->low, p->high);
}

int predict_check_everything(const predict_options *o) {
    ist_error err;
    if (!o->everything && !o->serve && o->parameter_given)
        return cli_usage(o->command, "--%s belongs to --everything", o->parameter_given);
    if (!o->everything && !o->serve) return CLI_SUCCESS;
    if (o->multimask)
        return cli_usage(o->command, "--everything asks for three masks of each point, without --multimask");
    if (o->batch != 1) return cli_usage(o->command, "--everything takes images one by one, without --batch");
    if (ist_everything_check(&o->parameters, &err)) return cli_usage(o->command, "%s", err.text);
    return CLI_SUCCESS;
}

void predict_print_everything(const predict_options *o, char *text, size_t size) {
    const ist_everything *p = &o->parameters;
    /* not points_per_batch: the same masks by another way */
    snprintf(text, size, "%d,%.9g,%.9g,%.9g,%.9g,%d,%.9g,%.9g,%d,%d,%d", p->points_per_side, p->pred_iou_thresh,
             p->stability_score_thresh, p->stability_score_offset, p->box_nms_thresh, p->crop_n_layers,
             p->crop_nms_thresh, p->crop_overlap_ratio, p->crop_n_points_downscale_factor, p->min_mask_region_area,
             p->max_masks);
}
