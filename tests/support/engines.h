/* Engines on synthetic checkpoints and images for tests of the whole frame. Checkpoints are written once per build
 * folder; images are phantoms. A failure ends the test. */
#ifndef IST_TESTS_ENGINES_H
#define IST_TESTS_ENGINES_H

#include "isthmus.h"

#include <stdbool.h>

/* Path of the synthetic checkpoint of `model` ("n".."x", "sam"); the string lives until the process ends. */
const char *engines_checkpoint(const char *model, int classes, uint64_t seed);

/* Defaults for tests: D-FINE `detector` ("n".., seed 7, 80 classes) and with `masks` MobileSAM seed 3, of an input of 256
 * where CPUs have no kernels of their own. */
ist_config engines_config(const char *detector, bool masks);

/* Whether the library is built without the kernel variants of CPUs (ISTHMUS_MACHINES). PoCL then takes most of a second
 * for the smallest detector, nearly all of it in convolutions, whose barriers it turns into loops: fewer frames do. */
bool engines_lack_cpu(void);

ist_engine *engines_open(const ist_config *config);

/* RGB phantom; the pixels are the caller's to free through (void *)image.pixels. */
ist_image engines_image(int width, int height, uint64_t seed);

/* Submits one batch and receives its result. */
const ist_result *engines_run(ist_engine *engine, const ist_image *images, int count);

/* Fails the test unless both frames hold the same objects and masks bit for bit. */
void engines_same(const ist_frame *a, const ist_frame *b);

#endif
