/* bench_clblast [--device SPEC]: CLBlast's SGEMM beside the fp32 variants for 1x1 convolutions, on shapes of the
 * models.
 *
 * For each shape: rate of the variant that is chosen and of a portable one, and of CLBlastSgemm on the same
 * queue; then the processor time of the thread that enqueues a call, a launch of ours and one of CLBlast's. The product
 * alone: ours has bias and activation in it, CLBlast's would need another pass. Medians of interleaved rounds. */
#include "core/plan.h"
#include "variants/variant.h"

#include <clblast_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 7, MOST_CALLS = 200 };

typedef struct shape {
    int m, n, k; /* pixels, output and input channels */
    const char *where;
} shape;

static const shape shapes[] = {
    {25600, 64, 32, "D-FINE-N stage 2"},      {6400, 128, 256, "encoder 80 x 80"},
    {1600, 256, 512, "encoder 40 x 40"},      {400, 512, 1024, "stage 4"},
    {300, 256, 1024, "decoder, 300 queries"}, {16384, 512, 128, "TinyViT MLP, 128 x 128"},
    {4096, 480, 160, "TinyViT QKV, 64 x 64"}, {4096, 320, 1280, "TinyViT MLP, 64 x 64"},
};

static double now_ms(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[n / 2];
}

/* One way to compute a shape. */
typedef struct way {
    const char *name;
    ist_plan *plan; /* NULL: CLBlast */
    double ms[ROUNDS], host_ms[ROUNDS];
} way;

typedef struct bench {
    ist_device *device;
    shape s;
    cl_mem x, w, y;
    float *values;
} bench;

static ist_status make_plan(bench *b, const ist_variant *v, way *out, ist_error *err) {
    shape s = b->s;
    IST_TRY(ist_plan_begin(b->device, &(ist_plan_options){0}, &out->plan, err));
    ist_conv q = {.label = "1x1",
                  .x = ist_plan_input(out->plan, 1, 1, s.m, s.k, IST_ELEM_T),
                  .filter = {.out = s.n, .in = s.k, .kh = 1, .kw = 1, .w = b->values, .b = b->values}};
    if (v)
        ist_emit_by(out->plan, v, 1, &q);
    else
        ist_emit(out->plan, IST_NODE_CONV, &q);
    IST_TRY(ist_plan_finish(out->plan, err));
    out->name = v ? v->name : "chosen";
    return ist_plan_write_f32(out->plan, q.x, b->values, err);
}

static ist_status call(bench *b, way *v, ist_error *err) {
    if (v->plan) return ist_plan_replay(v->plan, err);
    size_t m = (size_t)b->s.m, n = (size_t)b->s.n, k = (size_t)b->s.k;
    cl_command_queue queue = ist_device_queue(b->device);
    CLBlastStatusCode code = CLBlastSgemm(CLBlastLayoutRowMajor, CLBlastTransposeNo, CLBlastTransposeNo, m, n, k, 1.0f,
                                          b->x, 0, k, b->w, 0, n, 0.0f, b->y, 0, n, &queue, NULL);
    return code == CLBlastSuccess ? IST_OK : ist_fail(err, IST_E_DEVICE, "CLBlastSgemm: %d", (int)code);
}

static ist_status timed(bench *b, way *v, int calls, double *ms, double *host_ms, ist_error *err) {
    double start = now_ms(CLOCK_MONOTONIC), cpu = now_ms(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < calls; i++) IST_TRY(call(b, v, err));
    *host_ms = (now_ms(CLOCK_THREAD_CPUTIME_ID) - cpu) / calls;
    IST_TRY(ist_finish(b->device, (ist_frame_scope){0}, "benchmark", err));
    *ms = (now_ms(CLOCK_MONOTONIC) - start) / calls;
    return IST_OK;
}

static ist_status measure(bench *b, way *ways, int count, ist_error *err) {
    int calls[4];
    for (int i = 0; i < count; i++) { /* compile, then find how many calls make a tenth of a second */
        double ms, host;
        IST_TRY(timed(b, &ways[i], 1, &ms, &host, err));
        IST_TRY(timed(b, &ways[i], 2, &ms, &host, err));
        calls[i] = ms > 0 && 100 / ms < MOST_CALLS ? (int)(100 / ms) + 1 : MOST_CALLS;
    }
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < count; i++) IST_TRY(timed(b, &ways[i], calls[i], &ways[i].ms[r], &ways[i].host_ms[r], err));
    double flops = 2.0 * b->s.m * b->s.n * b->s.k;
    printf("%6d x %4d x %4d  %-22s", b->s.m, b->s.n, b->s.k, b->s.where);
    for (int i = 0; i < count; i++)
        printf("  %s %.4f ms %.1f GFLOP/s host %.1f us", ways[i].name, median(ways[i].ms, ROUNDS),
               flops / median(ways[i].ms, ROUNDS) * 1e-6, median(ways[i].host_ms, ROUNDS) * 1e3);
    printf("\n");
    fflush(stdout);
    return IST_OK;
}

static ist_status open_buffers(bench *b, ist_error *err) {
    size_t m = (size_t)b->s.m, n = (size_t)b->s.n, k = (size_t)b->s.k, most = m * k > n * k ? m * k : n * k;
    unsigned state = 1;
    b->values = malloc((most + n) * sizeof *b->values);
    if (!b->values) return ist_fail(err, IST_E_MEMORY, "out of memory");
    for (size_t i = 0; i < most + n; i++) {
        state = state * 1664525u + 1013904223u;
        b->values[i] = (float)(state >> 8) * (2.0f / 16777216.0f) - 1.0f;
    }
    ist_frame_scope setup = {0};
    IST_TRY(ist_buffer_create(b->device, m * k * sizeof(float), "x", &b->x, err));
    IST_TRY(ist_buffer_create(b->device, n * k * sizeof(float), "w", &b->w, err));
    IST_TRY(ist_buffer_create(b->device, m * n * sizeof(float), "y", &b->y, err));
    IST_TRY(ist_write(b->device, setup, b->x, 0, m * k * sizeof(float), b->values, true, "x", err));
    return ist_write(b->device, setup, b->w, 0, n * k * sizeof(float), b->values, true, "w", err);
}

static ist_status run(ist_device *device, shape s, ist_error *err) {
    bench b = {.device = device, .s = s};
    way ways[3] = {{.name = "CLBlast"}, {0}, {0}};
    int count = 1;
    ist_status status = open_buffers(&b, err);
    if (!status) status = make_plan(&b, NULL, &ways[count++], err);
    if (!status) status = make_plan(&b, ist_variant_named(IST_NODE_CONV, "any_64x64"), &ways[count++], err);
    if (!status) status = measure(&b, ways, count, err);
    for (int i = 1; i < count; i++) ist_plan_close(&ways[i].plan);
    ist_buffer_release(device, &b.x);
    ist_buffer_release(device, &b.w);
    ist_buffer_release(device, &b.y);
    free(b.values);
    return status;
}

int main(int argc, char **argv) {
    ist_device_options options = {.spec = argc == 3 && !strcmp(argv[1], "--device") ? argv[2] : NULL};
    ist_device *device = NULL;
    ist_error err = {0};
    if (argc != 1 && !options.spec) {
        fprintf(stderr, "usage: %s [--device SPEC]\n", argv[0]);
        return 2;
    }
    ist_status status = ist_device_open(&options, &device, &err);
    if (!status) printf("%s\n", ist_device_facts(device)->name), fflush(stdout);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && !status; i++) status = run(device, shapes[i], &err);
    if (status) fprintf(stderr, "%s\n", err.text);
    ist_device_close(&device);
    return status ? 1 : 0;
}
