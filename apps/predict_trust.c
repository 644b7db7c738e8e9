/* --trust and its thresholds: whether guidance may rely on a track (visible, relocalizing, lost). */
#include "predict.h"

#include <stdio.h>

static int take_threshold(const predict_options *o, const char *name, const char *text, float *value) {
    if (cli_parse_float(text, 0, 1, value)) return CLI_SUCCESS;
    return cli_usage(o->command, "--%s: '%s' is not a number from 0 to 1", name, text);
}

int predict_take_trust_option(int id, const char *value, predict_options *o, bool *mine) {
    if (!o->trust.struct_size) o->trust = ist_trust_default();
    *mine = id >= OPTION_TRUST && id <= OPTION_N_LOST;
    o->judges = o->judges || id == OPTION_TRUST;
    o->trust_given = o->trust_given || (*mine && id != OPTION_TRUST);
    switch (id) {
    case OPTION_TAU_CONF:
        return take_threshold(o, "tau-conf", value, &o->trust.tau_conf);
    case OPTION_THETA_ON:
        return take_threshold(o, "theta-on", value, &o->trust.theta_on);
    case OPTION_THETA_OFF:
        return take_threshold(o, "theta-off", value, &o->trust.theta_off);
    case OPTION_THETA_CONT:
        return take_threshold(o, "theta-cont", value, &o->trust.theta_cont);
    case OPTION_N_LOST:
        return predict_parse_number(o->command, "n-lost", value, 1, 1000000, &o->trust.n_lost);
    default:
        return CLI_SUCCESS;
    }
}

int predict_check_trust(const predict_options *o) {
    if (o->trust_given && !o->judges) return cli_usage(o->command, "thresholds of trust need --trust");
    if (!o->judges) return CLI_SUCCESS;
    if (!o->masks) return cli_usage(o->command, "--trust judges masks, --no-masks leaves none");
    if (o->batch > 1) return cli_usage(o->command, "--trust takes frames one by one, not --batch %d", o->batch);
    if (o->targets) return cli_usage(o->command, "--trust and --targets exclude each other");
    if (o->trust.theta_off > o->trust.theta_on) return cli_usage(o->command, "--theta-off is above --theta-on");
    return CLI_SUCCESS;
}

void predict_print_trust(const predict_options *o, char *text, size_t size) {
    const ist_trust_options *t = &o->trust;
    snprintf(text, size, "tau-conf %.7g, theta-on %.7g, theta-off %.7g, theta-cont %.7g, n-lost %d",
             (double)t->tau_conf, (double)t->theta_on, (double)t->theta_off, (double)t->theta_cont, t->n_lost);
}
