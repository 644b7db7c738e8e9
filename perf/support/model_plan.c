/* See model_plan.h. */
#include "support/model_plan.h"

#include "models/models.h"
#include "pipeline/tuning_record.h"
#include "variants/lower.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool model_plan_arguments(int argc, char **argv, model_plan_options *o) {
    *o = (model_plan_options){0};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(a, "--half"))
            o->half = true;
        else if (!strcmp(a, "--bf16"))
            o->bf16 = true;
        else if (!strcmp(a, "--decoder"))
            o->decoder = true;
        else if (!strcmp(a, "--multimask"))
            o->multimask = true;
        else if (!strcmp(a, "--device") && value)
            o->device = argv[++i];
        else if (!strcmp(a, "--size") && value)
            o->size = atoi(argv[++i]);
        else if (!strcmp(a, "--count") && value)
            o->count = atoi(argv[++i]);
        else if (!strcmp(a, "--points") && value)
            o->points = atoi(argv[++i]);
        else if (!strcmp(a, "--limit") && value)
            o->limit = atoi(argv[++i]);
        else if (!strcmp(a, "--content") && value)
            o->content = atoi(argv[++i]);
        else if (a[0] != '-' && !o->checkpoint)
            o->checkpoint = a;
        else {
            fprintf(stderr, "%s: unknown argument or missing value\n", a);
            return false;
        }
    }
    if (!o->size) o->size = 640;
    if (!o->count) o->count = 1;
    if (!o->checkpoint)
        fprintf(stderr,
                "usage: %s [--device SPEC] [--size N] [--count N] [--half] [--bf16] [--decoder [--multimask] "
                "[--points N] [--limit N]] [--content ROWS] CHECKPOINT\n",
                argv[0]);
    return o->checkpoint != NULL;
}

/* Noise in [0, 1), so that no kernel meets a shortcut, in the first `rows` rows of each item (0: in all). */
static ist_status fill(ist_plan *plan, ist_tensor t, int rows, ist_error *err) {
    const size_t line = (size_t)t.w * (size_t)t.c;
    size_t count = (size_t)ist_pixels(t) * (size_t)t.c;
    float *v = malloc(count * sizeof *v);
    uint32_t s = 1;
    if (!v) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu input values", count);
    for (size_t i = 0; i < count; i++) {
        s = s * 1664525u + 1013904223u;
        v[i] = !rows || i / line % (size_t)t.h < (size_t)rows ? (float)(s >> 8) / 16777216.0f : 0.0f;
    }
    ist_status status = ist_plan_write_f32(plan, t, v, err);
    free(v);
    return status;
}

/* Corners of boxes, or points, of different places and distances. */
static ist_status fill_boxes(ist_plan *plan, ist_tensor boxes, ist_error *err) {
    float *v = malloc((size_t)ist_pixels(boxes) * 2 * sizeof *v);
    if (!v) return ist_fail(err, IST_E_MEMORY, "out of memory for %d boxes", boxes.n);
    for (int i = 0; i < boxes.n; i++) {
        float x = (float)(37 * i % 700), y = (float)(53 * i % 600), side = (float)(100 + 29 * i % 200);
        for (int k = 0; k < boxes.w; k++) {
            v[2 * (i * boxes.w + k)] = x + side * (float)k;
            v[2 * (i * boxes.w + k) + 1] = y + side * (float)k;
        }
    }
    ist_status status = ist_plan_write_f32(plan, boxes, v, err);
    free(v);
    return status;
}

enum { PATCH = 16, CHANNELS = 256 /* of a segmenter's embedding: pixels of the input for a token, channels */ };

/* Pictures of so many rows in the inputs; empty when rows is 0. */
static ist_tensor contents(ist_graph *g, int n, int side, int rows) {
    int32_t *sizes = rows ? ist_graph_room(g, 2 * (size_t)n * sizeof *sizes) : NULL;
    if (!sizes) return (ist_tensor){0};
    for (int i = 0; i < n; i++) sizes[2 * i] = side, sizes[2 * i + 1] = rows;
    return ist_graph_const(g, sizes, 1, 1, n, 2, IST_ELEM_I32, "content");
}

/* Each of `n` the number `value`. */
static ist_tensor ints(ist_graph *g, int n, int h, int w, int value) {
    size_t count = (size_t)n * (size_t)h * (size_t)w;
    int32_t *all = ist_graph_room(g, count * sizeof *all);
    if (!all) return (ist_tensor){0};
    for (size_t i = 0; i < count; i++) all[i] = value;
    return ist_graph_const(g, all, n, h, w, 1, IST_ELEM_I32, "numbers");
}

static void draw_decoder(const model_plan_options *o, const ist_segmenter_model *model, const ist_net *net, int side,
                         ist_tensor *in) {
    ist_graph *g = net->graph;
    int n = o->count, places = o->points ? o->points + 1 : 2;
    in[0] = ist_graph_input(g, 1, side / PATCH, side / PATCH, CHANNELS, IST_ELEM_T);
    in[1] = ist_graph_input(g, n, 1, places, 2, IST_ELEM_F32);
    ist_prompted prompted = {.embedding = in[0]};
    if (o->limit) ist_graph_limit(g, ints(g, 1, 1, 1, o->limit));
    if (o->points) {
        prompted.image_of = ints(g, 1, 1, n, 0);
        prompted.counts = ints(g, 1, 1, n, model->own_tokens + places);
        prompted.sparse = model->points(net, in[1], ints(g, n, 1, places, 1), side);
    } else {
        prompted.sparse = model->boxes(net, in[1], side, true);
    }
    ist_prompt_masks masks = model->decode(net, &prompted, o->multimask);
    ist_graph_output(g, masks.low_res);
    ist_graph_output(g, masks.iou);
}

/* The network's graph; its inputs, of which there are at most two: an image or embedding, boxes. */
static void draw(const model_plan_options *o, const ist_weights *weights, model_plan *m, ist_graph *g, ist_tensor *in) {
    const char *name = ist_model_name(m->info.kind);
    const ist_detector_model *detector = ist_detector_of(m->info.kind);
    const ist_segmenter_model *segmenter = ist_segmenter_of(m->info.kind);
    const ist_net net = {g, weights};
    ist_error err;
    int n = o->count, side = 0;
    if (detector) {
        in[0] = ist_graph_input(g, n, o->size, o->size, 3, IST_ELEM_T);
        ist_detected r = detector->record(&net, &m->info, in[0]);
        ist_graph_output(g, r.logits);
        ist_graph_output(g, r.boxes);
        snprintf(m->what, sizeof m->what, "%s %dx%d batch %d", name, o->size, o->size, n);
    } else if (!segmenter || ist_segmenter_side(&m->info, 0, &side, &err)) {
        ist_graph_fail(g, IST_E_WEIGHTS, "%s is neither a detector nor a segmenter", name);
    } else if (o->decoder) {
        draw_decoder(o, segmenter, &net, side, in);
        snprintf(m->what, sizeof m->what, "%s decoder %d %s%s", name, n, o->points ? "prompts" : "boxes",
                 o->multimask ? ", three masks each" : "");
    } else {
        in[0] = ist_graph_input(g, n, side, side, 3, IST_ELEM_T);
        ist_graph_output(g, segmenter->encode(&net, in[0], contents(g, n, side, o->content)));
        snprintf(m->what, sizeof m->what, "%s encoder batch %d", name, n);
    }
}

static ist_status record(const model_plan_options *o, const ist_weights *weights, model_plan *m, ist_error *err) {
    ist_graph *g = NULL;
    ist_lowering *lowering = NULL;
    ist_tensor in[2] = {{0}}, at[2] = {{0}};
    IST_TRY(ist_graph_open(&g, err));
    draw(o, weights, m, g, in);
    for (int i = 0; i < 2; i++)
        if (ist_has(in[i])) at[i] = ist_plan_input(m->plan, in[i].n, in[i].h, in[i].w, in[i].c, in[i].elem);
    ist_lower(m->plan, g, at, &lowering);
    ist_lowering_close(&lowering);
    ist_graph_close(&g);
    IST_TRY(ist_plan_finish(m->plan, err));
    IST_TRY(fill(m->plan, at[0], o->content, err));
    return ist_has(at[1]) ? fill_boxes(m->plan, at[1], err) : IST_OK;
}

ist_status model_plan_open(const model_plan_options *o, model_plan *m, ist_error *err) {
    ist_device_options device = {.spec = o->device};
    ist_weights *weights = NULL;
    *m = (model_plan){0};
    ist_status status = ist_weights_open(o->checkpoint, &weights, err);
    if (!status) status = ist_checkpoint_identify(weights, &m->info, err);
    if (!status) status = ist_device_open(&device, &m->device, err);
    if (!status) {
        ist_tuning_load(m->device, NULL, &m->tuning);
        ist_plan_options plan = {
            .half = o->half, .bf16 = o->bf16, .apart = o->apart, .notes = true, .tuning = &m->tuning};
        status = ist_plan_begin(m->device, &plan, &m->plan, err);
    }
    if (!status) status = record(o, weights, m, err);
    ist_weights_close(&weights);
    return status;
}

void model_plan_close(model_plan *m) {
    ist_plan_close(&m->plan);
    ist_device_close(&m->device);
    ist_tuning_free(&m->tuning);
    ist_checkpoint_info_free(&m->info);
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

ist_status model_plan_run(model_plan *m, double *ms, ist_error *err) {
    double start = now_ms();
    IST_TRY(ist_plan_replay(m->plan, err));
    m->enqueue_ms = now_ms() - start;
    IST_TRY(ist_finish(m->device, (ist_frame_scope){0}, "benchmark", err));
    *ms = now_ms() - start;
    return IST_OK;
}
