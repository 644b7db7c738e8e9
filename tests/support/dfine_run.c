/* See dfine_run.h. */
#include "support/dfine_run.h"
#include "graph/frame.h"
#include "support/by_shadow.h"
#include "synth.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr)                                                                                                       \
    do {                                                                                                               \
        if ((expr) != IST_OK) cr_assert_fail("%s", err.text);                                                          \
    } while (0)

/* The network's input. */
static void write_images(ist_plan *plan, ist_tensor image, uint64_t seed) {
    ist_error err = {0};
    size_t count = (size_t)image.h * (size_t)image.w * 3;
    uint8_t *bytes = malloc(count);
    float *values = malloc((size_t)image.n * count * sizeof *values);
    cr_assert(bytes && values);
    for (int n = 0; n < image.n; n++) {
        synth_phantom(image.h, image.w, seed + (uint64_t)n, bytes);
        for (size_t i = 0; i < count; i++) values[(size_t)n * count + i] = (float)bytes[i] * (IST_DETECTOR_WHITE / 255);
    }
    OK(ist_plan_write_f32(plan, image, values, &err));
    free(bytes);
    free(values);
}

/* Records the network and lowers it into the plan; returns the plan's image. */
static ist_tensor record(dfine_run *r, const dfine_setup *setup, const ist_weights *weights,
                         const ist_checkpoint_info *info) {
    ist_error err = {0};
    ist_lowering *lowering = NULL;
    ist_graph *g = NULL;
    OK(ist_graph_open(&g, &err));
    ist_tensor image = ist_graph_input(g, setup->n, setup->h, setup->w, 3, IST_ELEM_T), force = {0};
    if (setup->order) force = ist_graph_const(g, setup->order, 1, 1, IST_DFINE_QUERIES, 1, IST_ELEM_I32, "given order");
    ist_dfine_forced(&(ist_net){g, weights}, info, image, force);
    image = ist_plan_input(r->plan, setup->n, setup->h, setup->w, 3, IST_ELEM_T);
    if (setup->by_shadow) {
        lower_by_shadow(r->plan, g, &image, 1);
    } else {
        ist_lower(r->plan, g, &image, &lowering);
        ist_lowering_close(&lowering);
    }
    ist_graph_close(&g);
    return image;
}

void dfine_start(dfine_run *r, const dfine_setup *setup) {
    ist_error err = {0};
    ist_weights *weights = NULL;
    ist_checkpoint_info info = {0};
    ist_device_options device = {0};
    ist_plan_options options = {.taps = true, .half = setup->half};
    memset(r, 0, sizeof *r);
    OK(synth_weights(setup->kind, setup->classes, setup->seed, &weights, &err));
    if (setup->change) setup->change(weights);
    OK(ist_checkpoint_identify(weights, &info, &err));
    cr_assert(info.kind == setup->kind && info.classes == setup->classes);
    info.stored_constants = setup->stored;
    OK(ist_device_open(&device, &r->device, &err));
    OK(ist_plan_begin(r->device, &options, &r->plan, &err));
    ist_tensor image = record(r, setup, weights, &info);
    ist_checkpoint_info_free(&info);
    ist_weights_close(&weights);
    OK(ist_plan_finish(r->plan, &err));
    write_images(r->plan, image, setup->image_seed ? setup->image_seed : setup->seed);
    OK(ist_plan_replay(r->plan, &err));
}

void dfine_stop(dfine_run *r) {
    ist_plan_close(&r->plan);
    ist_device_close(&r->device);
}

static size_t size_of(ist_tensor t) {
    return (size_t)ist_pixels(t) * (size_t)t.c;
}

float *dfine_read(const dfine_run *r, const char *name) {
    ist_error err = {0};
    ist_tensor t = ist_plan_tapped(r->plan, name);
    cr_assert(ist_has(t), "no tapped tensor %s", name);
    float *values = malloc(size_of(t) * sizeof *values);
    cr_assert_not_null(values);
    OK(ist_plan_read_f32(r->plan, t, values, &err));
    return values;
}

int *dfine_read_ints(const dfine_run *r, const char *name) {
    ist_error err = {0};
    ist_tensor t = ist_plan_tapped(r->plan, name);
    cr_assert(ist_has(t), "no tapped tensor %s", name);
    int *values = malloc(size_of(t) * sizeof *values);
    cr_assert_not_null(values);
    OK(ist_plan_read_i32(r->plan, t, values, &err));
    return values;
}

void dfine_edit(ist_weights *weights, const char *name, void (*edit)(float *values, size_t count, float by), float by) {
    const ist_weight *w = ist_weights_find(weights, name);
    cr_assert(w && w->type == IST_WEIGHT_F32, "no float32 tensor %s", name);
    float *values = malloc(w->bytes);
    cr_assert_not_null(values);
    memcpy(values, w->data, w->bytes);
    edit(values, w->count, by);
    memcpy((void *)w->data, values, w->bytes); /* the checkpoint is this test's own */
    free(values);
}
