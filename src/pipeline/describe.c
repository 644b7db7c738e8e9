/* A network for what it would be: see describe.h. */
#include "pipeline/describe.h"

#include "core/plan.h"
#include "models/models.h"
#include "pipeline/engine.h"
#include "pipeline/tuning_record.h"
#include "variants/lower.h"

#include <stdlib.h>

enum { INPUTS = 2 };

struct ist_description {
    ist_weights *weights;
    ist_checkpoint_info info;
    ist_graph *graph;
    ist_tensor inputs[INPUTS];
    int input_count;
    ist_device *device;
    ist_tuning tuning;
    ist_plan *plan;
    ist_lowering *lowering;
};

static ist_tensor input(ist_description *d, ist_tensor t) {
    ist_tensor value = ist_graph_input(d->graph, t.n, t.h, t.w, t.c, t.elem);
    d->inputs[d->input_count++] = t;
    return value;
}

static void record_detector(ist_description *d, const ist_detector_model *model) {
    const int side = ist_config_default().input_size;
    const ist_net net = {d->graph, d->weights};
    ist_detected out = model->record(&net, &d->info, input(d, (ist_tensor){.n = 1, .h = side, .w = side,
                                                                        .c = d->info.channels, .elem = IST_ELEM_T}));
    if (ist_graph_failed(d->graph)) return;
    ist_graph_output(d->graph, out.logits);
    ist_graph_output(d->graph, out.boxes);
}

static void record_segmenter(ist_description *d, const ist_segmenter_model *model, int side) {
    const ist_net net = {d->graph, d->weights};
    ist_tensor image = input(d, (ist_tensor){.n = 1, .h = side, .w = side, .c = 3, .elem = IST_ELEM_T});
    ist_tensor corners = input(d, (ist_tensor){.n = 1, .h = 1, .w = 2, .c = 2, .elem = IST_ELEM_F32});
    ist_prompted in = {.embedding = model->encode(&net, image, (ist_tensor){0})};
    in.sparse = model->boxes(&net, corners, side, true);
    ist_prompt_masks out = model->decode(&net, &in, false);
    if (ist_graph_failed(d->graph)) return;
    ist_graph_output(d->graph, out.low_res);
    ist_graph_output(d->graph, out.iou);
}

static ist_status record(ist_description *d, const char *path, ist_error *err) {
    const ist_detector_model *detector;
    int side = 0;
    IST_TRY(ist_weights_open(path, &d->weights, err));
    ist_status status = ist_checkpoint_identify(d->weights, &d->info, err);
    if (!status) status = ist_checkpoint_check(&d->info, err);
    if (!status) status = ist_checkpoint_check_values(d->weights, &d->info, err);
    if (status) {
        ist_fail_context(err, "%s", path);
        return status;
    }
    IST_TRY(ist_graph_open(&d->graph, err));
    detector = ist_detector_of(d->info.kind);
    if (detector) {
        record_detector(d, detector);
    } else {
        IST_TRY(ist_segmenter_side(&d->info, 0, &side, err));
        record_segmenter(d, ist_segmenter_of(d->info.kind), side);
    }
    if (ist_graph_failed(d->graph)) *err = d->graph->error;
    return d->graph->error.code;
}

ist_status ist_description_open(const char *path, ist_description **description, ist_error *err) {
    ist_description *d = *description = calloc(1, sizeof *d);
    if (!d) return ist_fail(err, IST_E_MEMORY, "describe: out of host memory");
    ist_status status = record(d, path, err);
    if (status) ist_description_close(description);
    return status;
}

void ist_description_close(ist_description **description) {
    if (!description || !*description) return;
    ist_description *d = *description;
    ist_lowering_close(&d->lowering);
    ist_plan_close(&d->plan);
    ist_tuning_free(&d->tuning);
    ist_device_close(&d->device);
    ist_graph_close(&d->graph);
    ist_checkpoint_info_free(&d->info);
    ist_weights_close(&d->weights);
    free(d);
    *description = NULL;
}

ist_status ist_description_lower(ist_description *d, const char *device, ist_precision *precision, ist_error *err) {
    ist_tensor at[INPUTS];
    IST_TRY(ist_device_open(&(ist_device_options){.spec = device}, &d->device, err));
    IST_TRY(ist_precision_choose(d->device, precision, err));
    ist_tuning_load(d->device, NULL, &d->tuning);
    const ist_plan_options options = {.half = *precision == IST_PRECISION_FP16,
                                      .bf16 = *precision == IST_PRECISION_BF16,
                                      .tuning = &d->tuning,
                                      .late = true};
    IST_TRY(ist_plan_begin(d->device, &options, &d->plan, err));
    for (int i = 0; i < d->input_count; i++) {
        const ist_tensor *t = &d->inputs[i];
        at[i] = ist_plan_input(d->plan, t->n, t->h, t->w, t->c, t->elem);
    }
    ist_lower(d->plan, d->graph, at, &d->lowering);
    if (ist_plan_status(d->plan)) *err = *ist_plan_error(d->plan);
    return ist_plan_status(d->plan);
}

const char *ist_description_model(const ist_description *d) {
    return ist_model_name(d->info.kind);
}

const ist_graph *ist_description_graph(const ist_description *d) {
    return d->graph;
}

double ist_description_multiply_adds(const ist_description *d) {
    double sum = 0;
    for (size_t i = 0; i < d->graph->node_count; i++)
        sum += ist_multiply_adds(d->graph->nodes[i].kind, d->graph->nodes[i].of);
    return sum;
}

int ist_description_launches(const ist_description *d) {
    return d->lowering ? ist_plan_describe(d->plan).launches : -1;
}

int ist_description_of(const ist_description *d, int node, int region, char *text, size_t size) {
    text[0] = 0;
    return d->lowering ? ist_lowering_describe(d->lowering, node, region, text, size) : -1;
}
