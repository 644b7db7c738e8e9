/* Which kernel variants a frame takes on a device, and why. Not part of the public API; `isthmus devices` is how people see
 * it.
 *
 * The choice is the one that running makes: the frame is recorded, and nothing of it compiled. What decides it is found
 * by recording again, each time with one capability taken for the opposite of what its probe found, or without the
 * device's tuning record: the variants that then have fewer launches were decided by that. */
#ifndef IST_PIPELINE_CHOICE_H
#define IST_PIPELINE_CHOICE_H

#include "isthmus.h"

#include <stdbool.h>

/* A program of the frame: the variant that takes it, its source, its build options. */
typedef struct ist_variant_use {
    const char *node, *machine, *variant; /* "conv", "cpu", "cpu_6x64"; static, "" for none */
    char *op, *isa, *defines;             /* "cpu/conv", "portable/vector", "-DMR=6 ..."; "" for none */
    int launches;                         /* of the frame */
    unsigned found;                       /* ist_cap bits that the device has, without which it would have fewer */
    unsigned missing; /* those that it lacks, with which it would have fewer: other variants would do better */
    bool tuned;       /* a tuning record named it */
} ist_variant_use;

typedef struct ist_choice {
    unsigned caps;                    /* ist_cap bits of the device */
    unsigned deadly;                  /* those whose probes ended the process that ran them */
    unsigned needed;                  /* those without which it could not run the frame at all */
    ist_precision precision;          /* what AUTO became */
    char detector[32], segmenter[32]; /* "dfine-n", "mobile-sam"; "" for none */
    int launches;
    ist_variant_use *uses; /* in the order of the frame */
    int count;
} ist_choice;

/* Asks for the frame of `config`, of which device, checkpoints, precision and batch count. *choice is empty after a
 * failure. */
ist_status ist_choice_make(const ist_config *config, ist_choice *choice, ist_error *err);
void ist_choice_free(ist_choice *choice);

#endif
