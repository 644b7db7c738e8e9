/* MobileSAM against the published network (golden seed 1): synthetic checkpoint and image are rebuilt from the seed. */
#include "models/mobilesam.h"
#include "support/golden.h"
#include "synth.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr)                                                                                                       \
    do {                                                                                                               \
        if ((expr) != IST_OK) cr_assert_fail("%s", err.text);                                                          \
    } while (0)

enum { SIDE = IST_SAM_SIDE, ROWS = 768, COLUMNS = 1024 }; /* the picture; the rest of the input is padding */

static ist_weights *checkpoint(void) {
    ist_error err = {0};
    ist_weights *w = NULL;
    OK(synth_weights(IST_MODEL_MOBILE_SAM, 1, synth_golden_seed(IST_MODEL_MOBILE_SAM, 1), &w, &err));
    return w;
}

/* The normalised picture in a zero square. */
static float *picture(void) {
    static const float mean[3] = {123.675f, 116.28f, 103.53f}, std[3] = {58.395f, 57.12f, 57.375f};
    uint8_t *rgb = malloc((size_t)ROWS * COLUMNS * 3);
    float *x = calloc((size_t)SIDE * SIDE * 3, sizeof *x);
    cr_assert(rgb && x);
    synth_phantom(ROWS, COLUMNS, synth_golden_seed(IST_MODEL_MOBILE_SAM, 1), rgb);
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS * 3; i++) x[i] = ((float)rgb[i] - mean[i % 3]) / std[i % 3];
    free(rgb);
    return x;
}

static const char *const encoder_maps[] = {"patch_embed", "layer0.block0", "layer0.block1"};
static const char *const encoder_tokens[] = {
    "layer0.down",   "layer1.block0", "layer1.block1", "layer1.down",   "layer2.block0", "layer2.block1", "layer2.block2",
    "layer2.block3", "layer2.block4", "layer2.block5", "layer2.down",   "layer3.block0", "layer3.block1",
};

static void encoder(bool half) {
    ist_error err = {0};
    ist_device *device = NULL;
    ist_plan *plan = NULL;
    ist_weights *weights = checkpoint(), *golden = golden_open("mobilesam");
    float *x = picture();
    OK(ist_device_open(&(ist_device_options){0}, &device, &err));
    OK(ist_plan_begin(device, &(ist_plan_options){.taps = true, .half = half}, &plan, &err));
    ist_tensor image = ist_plan_input(plan, 1, SIDE, SIDE, 3, IST_ELEM_T);
    ist_tinyvit(plan, weights, image);
    OK(ist_plan_finish(plan, &err));
    OK(ist_plan_write_f32(plan, image, x, &err));
    OK(ist_plan_replay(plan, &err));
    for (size_t i = 0; i < sizeof encoder_maps / sizeof *encoder_maps; i++)
        golden_check(plan, golden, encoder_maps[i], GOLDEN_MAP);
    for (size_t i = 0; i < sizeof encoder_tokens / sizeof *encoder_tokens; i++)
        golden_check(plan, golden, encoder_tokens[i], GOLDEN_TOKENS);
    golden_check(plan, golden, "embedding", GOLDEN_MAP);
    free(x);
    ist_plan_close(&plan);
    ist_device_close(&device);
    ist_weights_close(&weights);
    ist_weights_close(&golden);
}

Test(model_mobilesam, encoder) {
    encoder(false);
}
