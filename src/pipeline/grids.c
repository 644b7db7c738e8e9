/* See everything.h. */
#include "pipeline/everything.h"

static ist_status in_range(ist_error *err, const char *name, double value, double low, double high) {
    if (value >= low && value <= high) return IST_OK; /* false for NaN */
    return ist_fail(err, IST_E_ARGUMENT, "config.everything.%s is %g, want %g..%g", name, value, low, high);
}

ist_status ist_everything_check(const ist_everything *e, ist_error *err) {
    ist_grids grids;
    IST_TRY(in_range(err, "points_per_side", e->points_per_side, 1, IST_GRID_SIDE_MAX));
    IST_TRY(in_range(err, "points_per_batch", e->points_per_batch, 1, IST_POINTS_AT_A_TIME_MAX));
    IST_TRY(in_range(err, "pred_iou_thresh", e->pred_iou_thresh, -1e6, 1e6));
    IST_TRY(in_range(err, "stability_score_thresh", e->stability_score_thresh, -1e6, 1e6));
    IST_TRY(in_range(err, "stability_score_offset", e->stability_score_offset, 0, 1e6));
    IST_TRY(in_range(err, "box_nms_thresh", e->box_nms_thresh, 0, 1));
    IST_TRY(in_range(err, "crop_n_layers", e->crop_n_layers, 0, IST_CROP_LAYERS_MAX));
    IST_TRY(in_range(err, "crop_nms_thresh", e->crop_nms_thresh, 0, 1));
    IST_TRY(in_range(err, "crop_overlap_ratio", e->crop_overlap_ratio, 0, 0.99));
    IST_TRY(in_range(err, "crop_n_points_downscale_factor", e->crop_n_points_downscale_factor, 1, IST_GRID_SIDE_MAX));
    IST_TRY(in_range(err, "min_mask_region_area", e->min_mask_region_area, 0, 1 << 30));
    IST_TRY(in_range(err, "max_masks", e->max_masks, 1, IST_MASKS_MAX));
    ist_grids_of(e, &grids);
    for (int l = 0; l <= e->crop_n_layers; l++)
        if (grids.side[l] < 1)
            return ist_fail(
                err, IST_E_ARGUMENT,
                "config.everything: %d points on a side leave none for crop layer %d, each has a %dth of the "
                "one before",
                e->points_per_side, l, e->crop_n_points_downscale_factor);
    if (grids.points <= IST_CANDIDATES_MAX / 3) return IST_OK;
    return ist_fail(err, IST_E_LIMIT,
                    "config.everything: %d points in %d crops, at most %d; fewer crop layers, points on a "
                    "side or a larger downscale factor might do",
                    grids.points, grids.crops, IST_CANDIDATES_MAX / 3);
}

void ist_grids_of(const ist_everything *e, ist_grids *grids) {
    *grids = (ist_grids){.crops = 0};
    int side = e->points_per_side;
    for (int l = 0; l <= e->crop_n_layers; l++, side /= e->crop_n_points_downscale_factor) {
        grids->side[l] = side;
        for (int k = 0; k < 1 << 2 * l; k++) {
            grids->layer[grids->crops++] = l;
            grids->first[grids->crops] = grids->points += side * side;
        }
    }
}
