/* --track and what has to do with it. */
#include "predict.h"

int predict_take_track_option(int id, const char *value, predict_options *o, bool *mine) {
    *mine = true;
    switch (id) {
    case OPTION_TRACK:
        o->track = true;
        break;
    case OPTION_TRACK_IOU:
        o->track_given = "track-iou";
        if (!cli_parse_float(value, 0, 1, &o->track_iou))
            return cli_usage(o->command, "--track-iou: '%s' is not a number from 0 to 1", value);
        break;
    case OPTION_TRACK_AGE:
        o->track_given = "track-age";
        return predict_parse_number(o->command, "track-age", value, 0, 1000000, &o->track_age);
    case OPTION_TRACK_MOTION:
        o->track_given = "track-motion";
        o->track_motion = true;
        break;
    case OPTION_TRACK_HIGH:
        o->track_given = "track-high";
        if (!cli_parse_float(value, 0, 1, &o->track_high) || !(o->track_high > 0))
            return cli_usage(o->command, "--track-high: '%s' is not a number above 0, at most 1", value);
        break;
    default:
        *mine = false;
    }
    return CLI_SUCCESS;
}

int predict_check_track(const predict_options *o) {
    if (!o->track_given || o->track) return CLI_SUCCESS;
    return cli_usage(o->command, "--%s needs --track", o->track_given);
}
