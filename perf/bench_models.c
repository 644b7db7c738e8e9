/* bench_models CHECKPOINT: one network, frame by frame on request, so that a script can interleave it with its peers.
 *
 * Prints "ready NAME" once everything is recorded, built and has run once. Then each line "run" on standard input
 * executes one frame (replay and wait; inputs are on the device) and prints its milliseconds; end of input ends the
 * program. */
#include "support/model_plan.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    model_plan_options options;
    model_plan m;
    ist_error err = {0};
    char line[64];
    double ms;
    if (!model_plan_arguments(argc, argv, &options)) return 2;
    ist_status status = model_plan_open(&options, &m, &err);
    if (!status) status = model_plan_run(&m, &ms, &err); /* some platforms compile at the first launch */
    if (!status) printf("ready %s\n", m.what);
    fflush(stdout);
    while (!status && fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "run\n")) continue;
        status = model_plan_run(&m, &ms, &err);
        if (!status) printf("%.4f\n", ms);
        fflush(stdout);
    }
    if (status) fprintf(stderr, "%s\n", err.text);
    model_plan_close(&m);
    return status ? 1 : 0;
}
