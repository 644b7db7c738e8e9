/* bench_conv [VARIANT [LAYERS]]: speed of the dense convolutions of D-FINE-N, S and X, TinyViT and SAM's decoder, layer
 * by layer, beside the multiply-add rate that a loop on registers alone reaches on the same device.
 *
 * Times are those of the device's clock; the least of many is reported, so that what other programs take of the machine
 * is left out as far as possible. VARIANT forces one of the table (src/variants/table.inc), - none, all: each of those
 * that the device can run, in each of its ways, with its estimated cost beside, best first; LAYERS is part of the names of
 * those to measure, such as "160 ->". */
#include "variants/peak.h"
#include "variants/variant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct layer {
    const char *model;
    int h, w, cin, cout, k, stride;
    ist_act act;
} layer;

static const layer layers[] = {
    {"N, S stem1", 640, 640, 3, 16, 3, 2, IST_ACT_RELU},
    {"N, S stem2a", 320, 320, 16, 8, 2, 1, IST_ACT_RELU},
    {"N, S stem2b", 320, 320, 8, 16, 2, 1, IST_ACT_RELU},
    {"N, S stem3", 320, 320, 32, 16, 3, 2, IST_ACT_RELU},
    {"N, S stage 1", 160, 160, 16, 16, 3, 1, IST_ACT_RELU},
    {"N, S stage 2", 80, 80, 64, 32, 3, 1, IST_ACT_RELU},
    {"N, S stage 2", 80, 80, 160, 128, 1, 1, IST_ACT_RELU},
    {"N, S stage 2", 80, 80, 128, 256, 1, 1, IST_ACT_RELU},
    {"N, S stage 3", 40, 40, 704, 256, 1, 1, IST_ACT_RELU},
    {"N, S stage 3", 40, 40, 256, 512, 1, 1, IST_ACT_RELU},
    {"N, S stage 4", 20, 20, 896, 512, 1, 1, IST_ACT_RELU},
    {"N, S stage 4", 20, 20, 512, 1024, 1, 1, IST_ACT_RELU},
    {"N fpn", 40, 40, 128, 42, 1, 1, IST_ACT_SILU},
    {"N fpn", 40, 40, 21, 21, 3, 1, IST_ACT_SILU},
    {"N fpn", 40, 40, 298, 128, 1, 1, IST_ACT_SILU},
    {"N decoder", 1, 300, 128, 512, 1, 1, IST_ACT_RELU},
    {"N decoder", 1, 300, 512, 128, 1, 1, IST_ACT_NONE},
    {"S fpn", 80, 80, 512, 512, 1, 1, IST_ACT_SILU},
    {"S fpn", 80, 80, 64, 64, 3, 1, IST_ACT_SILU},
    {"S fpn", 80, 80, 640, 256, 1, 1, IST_ACT_SILU},
    {"S pan", 40, 40, 64, 64, 3, 1, IST_ACT_SILU},
    {"S pan", 20, 20, 64, 64, 3, 1, IST_ACT_SILU},
    {"S lateral", 20, 20, 512, 256, 1, 1, IST_ACT_SILU},
    {"S decoder", 1, 300, 256, 256, 1, 1, IST_ACT_NONE},
    {"S decoder", 1, 300, 256, 1024, 1, 1, IST_ACT_RELU},
    {"S decoder", 1, 300, 1024, 256, 1, 1, IST_ACT_NONE},
    {"SAM tokens", 1, 7, 256, 128, 1, 1, IST_ACT_NONE},
    {"SAM tokens", 1, 7, 256, 256, 1, 1, IST_ACT_NONE},
    {"SAM tokens", 1, 7, 256, 2048, 1, 1, IST_ACT_RELU},
    {"SAM tokens", 1, 7, 2048, 256, 1, 1, IST_ACT_NONE},
    {"SAM 8 boxes", 8, 7, 256, 256, 1, 1, IST_ACT_NONE},
    {"SAM 8 boxes", 8, 7, 2048, 256, 1, 1, IST_ACT_NONE},
    {"SAM head", 1, 1, 256, 32, 1, 1, IST_ACT_NONE},
    {"S head", 1, 8400, 256, 80, 1, 1, IST_ACT_NONE},
    {"X stage 1", 160, 160, 64, 64, 3, 1, IST_ACT_RELU},
    {"X stage 2", 80, 80, 512, 128, 3, 1, IST_ACT_RELU},
    {"X stage 2", 80, 80, 128, 128, 3, 1, IST_ACT_RELU},
    {"X stage 3", 40, 40, 2560, 512, 1, 1, IST_ACT_RELU},
    {"X fpn", 80, 80, 192, 192, 3, 1, IST_ACT_SILU},
    {"X pan", 40, 40, 192, 192, 3, 1, IST_ACT_SILU},
    {"X pan", 20, 20, 192, 192, 3, 1, IST_ACT_SILU},
    {"TinyViT patch", 1024, 1024, 3, 32, 3, 2, IST_ACT_GELU},
    {"TinyViT patch", 512, 512, 32, 64, 3, 2, IST_ACT_NONE},
    {"TinyViT 0", 256, 256, 64, 256, 1, 1, IST_ACT_GELU},
    {"TinyViT 0", 256, 256, 256, 64, 1, 1, IST_ACT_GELU},
    {"TinyViT 1", 128, 128, 128, 512, 1, 1, IST_ACT_GELU},
    {"TinyViT 1", 128, 128, 512, 128, 1, 1, IST_ACT_NONE},
    {"TinyViT 2", 64, 64, 160, 480, 1, 1, IST_ACT_NONE},
    {"TinyViT 2", 64, 64, 160, 640, 1, 1, IST_ACT_GELU},
    {"TinyViT 3", 64, 64, 320, 1280, 1, 1, IST_ACT_GELU},
    {"TinyViT neck", 64, 64, 256, 256, 3, 1, IST_ACT_NONE},
};

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

enum { USED = 64, LAUNCHES = 8 };

/* Least milliseconds of one replay; the kernel that ran and its constants go to `used`. */
static ist_status measure(ist_device *device, const layer *l, const ist_variant *v, int way, double *ms, double *flops,
                          double *cost, char used[USED], ist_error *err) {
    int pad = l->k == 3 ? 1 : 0;
    size_t weights = (size_t)l->cout * l->cin * l->k * l->k, pixels = (size_t)l->h * l->w * l->cin;
    float *w = malloc(weights * sizeof *w), *x = malloc(pixels * sizeof *x);
    ist_plan *plan = NULL;
    ist_status st = w && x ? IST_OK : ist_fail(err, IST_E_MEMORY, "out of memory for %zu weights", weights);
    for (size_t i = 0; w && i < weights; i++) w[i] = (float)(i * 2654435761u % 1000) / 1000 - 0.5f;
    for (size_t i = 0; x && i < pixels; i++) x[i] = (float)(i * 2654435761u % 1009) / 1009 - 0.5f;
    if (!st) st = ist_plan_begin(device, NULL, &plan, err);
    if (!st) {
        ist_conv q = {.label = l->model,
                      .x = ist_plan_input(plan, 1, l->h, l->w, l->cin, IST_ELEM_T),
                      .filter = {.out = l->cout, .in = l->cin, .kh = l->k, .kw = l->k, .w = w},
                      .o = {.stride = l->stride,
                            .top = pad,
                            .left = pad,
                            .bottom = l->k / 2,
                            .right = l->k / 2,
                            .epi.act = l->act}};
        st = ist_kind_of(IST_NODE_CONV)->infer(&q, err); /* the extents of the result, by which costs go */
        if (!st && v && cost && (!ist_variant_takes(plan, v, &q) || way > ist_variant_ways(plan, v, &q)))
            st = IST_E_ARGUMENT;
        if (!st && v && cost) *cost = ist_variant_cost(plan, v, &q, way);
        if (st)
            ist_plan_fail(plan, st, "%s: not for %s", l->model, v ? v->name : "any");
        else if (v)
            ist_emit_by(plan, v, way, &q);
        else
            ist_emit(plan, IST_NODE_CONV, &q);
        st = ist_plan_finish(plan, err);
        if (!st) st = ist_plan_write_f32(plan, q.x, x, err);
        *flops = st ? 0 : ist_plan_launch_at(plan, 0)->flops;
        if (!st) snprintf(used, USED, "%s", strrchr(ist_plan_launch_at(plan, 0)->op, '/') + 1);
        if (!st) snprintf(used + strlen(used), USED - strlen(used), " %s", ist_plan_launch_at(plan, 0)->defines);
    }
    *ms = 1e30;
    double start = now_ms(), one[LAUNCHES];
    for (int r = 0; !st && (r < 10 || (now_ms() - start < 50 && r < 100)); r++) {
        st = ist_plan_profile(plan, one, err);
        double sum = 0;
        for (int i = 0; !st && i < ist_plan_describe(plan).launches; i++) sum += one[i];
        if (!st && sum < *ms) *ms = sum;
    }
    ist_plan_close(&plan);
    free(w);
    free(x);
    return st;
}

typedef struct timed {
    const ist_variant *v;
    int way;
    double ms, cost, flops;
} timed;

static int by_ms(const void *a, const void *b) {
    const timed *x = a, *y = b;
    return (x->ms > y->ms) - (x->ms < y->ms);
}

/* A line for each variant and way that takes the layer, best first; costs are the variants' own, those of a CPU in other
 * units than those of a GPU. */
static void print_all(ist_device *device, const layer *l, const char *name, double most) {
    enum { MOST = 400, WAYS = 8 };
    timed *list = calloc(MOST, sizeof *list);
    int count, found = 0;
    const ist_variant *known = ist_variants_of(IST_NODE_CONV, &count);
    for (int i = 0; list && i < count; i++)
        for (int way = 1; way <= WAYS && found < MOST; way++) {
            timed t = {.v = &known[i], .way = way};
            char used[USED] = "";
            ist_error err = {0};
            if (!measure(device, l, t.v, way, &t.ms, &t.flops, &t.cost, used, &err)) list[found++] = t;
        }
    if (list) qsort(list, (size_t)found, sizeof *list, by_ms);
    for (int i = 0; list && i < found; i++)
        printf("%s %8.2f us %5.1f %%  cost %9.0f  %s/%d\n", name, 1e3 * list[i].ms,
               most > 0 ? list[i].flops / list[i].ms * 1e-4 / most : 0, list[i].cost, list[i].v->name, list[i].way);
    free(list);
}

int main(int argc, char **argv) {
    ist_device *device = NULL;
    ist_error err = {0};
    ist_device_options options = {0};
    const ist_variant *v = argc > 1 ? ist_variant_named(IST_NODE_CONV, argv[1]) : NULL;
    const bool all = argc > 1 && !strcmp(argv[1], "all");
    if (argc > 3 || (argc > 1 && !v && !all && strcmp(argv[1], "-"))) {
        int count;
        const ist_variant *known = ist_variants_of(IST_NODE_CONV, &count);
        fprintf(stderr, "usage: bench_conv [VARIANT|all|- [LAYERS]]; variants:");
        for (int i = 0; i < count; i++) fprintf(stderr, " %s", known[i].name);
        fprintf(stderr, "\n");
        return 2;
    }
    ist_status st = ist_device_open(&options, &device, &err);
    ist_peak peak = {0};
    if (!st) st = ist_peak_measure(device, &peak, &err);
    double most = peak.gflops, total_ms = 0, total_flops = 0;
    if (!st) printf("%s: %.0f GFLOP/s from registers\n", ist_device_facts(device)->name, most);
    for (size_t i = 0; !st && i < sizeof layers / sizeof layers[0]; i++) {
        const layer *l = &layers[i];
        char used[USED] = "", name[64];
        snprintf(name, sizeof name, "%-14s %4dx%-4d %4d ->%5d %dx%d/%d", l->model, l->h, l->w, l->cin, l->cout, l->k,
                 l->k, l->stride);
        if (argc > 2 && !strstr(name, argv[2])) continue;
        double ms, flops;
        if (all) {
            print_all(device, l, name, most);
            continue;
        }
        st = measure(device, l, v, 1, &ms, &flops, NULL, used, &err);
        if (st) break;
        printf("%s %8.3f ms %8.1f GFLOP/s %5.1f %%  %s\n", name, ms, flops / ms * 1e-6,
               most > 0 ? flops / ms * 1e-4 / most : 0, used);
        total_ms += ms;
        total_flops += flops;
    }
    if (!st && total_ms > 0)
        printf("all            %.3f ms %.1f GFLOP/s %.1f %%\n", total_ms, total_flops / total_ms * 1e-6,
               most > 0 ? total_flops / total_ms * 1e-4 / most : 0);
    if (st) fprintf(stderr, "%s\n", err.text);
    ist_device_close(&device);
    return st ? 1 : 0;
}
