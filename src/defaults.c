/* Where configurations start from. A file of its own, so that the double of the engine in tests has the same. */
#include "isthmus.h"

ist_config ist_config_default(void) {
    return (ist_config){.struct_size = sizeof(ist_config),
                        .input_size = 640,
                        .batch = 1,
                        .max_objects = 16,
                        .conf = 0.4f,
                        .frames_in_flight = 2,
                        .max_targets = 100,
                        .max_pixels = 67108864,
                        .track_iou = 0.3f,
                        .track_age = 30,
                        .max_points = 9,
                        .max_embeddings = 8};
}

ist_everything ist_everything_default(void) {
    return (ist_everything){.struct_size = sizeof(ist_everything),
                            .points_per_side = 32,
                            .points_per_batch = 64,
                            .pred_iou_thresh = 0.88,
                            .stability_score_thresh = 0.95,
                            .stability_score_offset = 1,
                            .box_nms_thresh = 0.7,
                            .crop_nms_thresh = 0.7,
                            .crop_overlap_ratio = 512.0 / 1500,
                            .crop_n_points_downscale_factor = 1,
                            .max_masks = 512};
}

ist_trust_options ist_trust_default(void) {
    return (ist_trust_options){.struct_size = sizeof(ist_trust_options),
                               .tau_conf = 0.5f,
                               .theta_on = 0.6f,
                               .theta_off = 0.4f,
                               .theta_cont = 0.5f,
                               .n_lost = 5};
}

ist_tiles ist_tiles_default(void) {
    return (ist_tiles){
        .struct_size = sizeof(ist_tiles), .width = 640, .height = 640, .overlap = -1, .whole = 1, .batch = 1};
}
