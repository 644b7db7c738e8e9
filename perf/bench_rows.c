/* bench_rows [--device SPEC] [--half] [--size N] [--count N] [--decoder] CHECKPOINT: every kernel of a network beside
 * what the device can do at most (cl/portable/peak.cl).
 *
 * First the kinds of nodes that are tuned: every kernel variant, with every split, on every problem of the network,
 * measured alone, least of some runs of back-to-back launches; the heuristic's choice has a star. Then all kernels of
 * the network as it launches them, each launch waited for, summed by kernel. "Share" is the larger of the shares of the
 * peak in arithmetic and of the peak in bandwidth. Capabilities can be overruled (ISTHMUS_CAPS), which gives the
 * variants of other machines their turn. */
#include "variants/peak.h"
#include "variants/tune.h"
#include "support/model_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS = 5, FRAMES = 8, MOST_WAYS = 192, MOST_KERNELS = 256 };
#define RUN_MS 2.0

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static double share(const ist_peak *peak, double ms, double flops, double bytes) {
    double a = flops * 1e-6 / (ms * peak->gflops), b = bytes * 1e-6 / (ms * peak->gbytes_per_second);
    return 100 * (a > b ? a : b);
}

static void print_rates(const ist_peak *peak, double ms, double flops, double bytes) {
    printf(" %10.1f us %8.1f GFLOP/s %7.1f GB/s %5.1f %%", 1e3 * ms, flops * 1e-6 / ms, bytes * 1e-6 / ms,
           share(peak, ms, flops, bytes));
}

/* ---- variants ---- */

static ist_status fill(ist_plan *p, ist_tensor x, ist_error *err) {
    size_t n = (size_t)ist_pixels(x) * (size_t)x.c;
    float *v = malloc(n * sizeof *v);
    if (!v) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu values", n);
    for (size_t i = 0; i < n; i++) v[i] = (float)(i * 2654435761u % 1009) / 1009 - 0.5f;
    ist_status status = ist_plan_write_f32(p, x, v, err);
    free(v);
    return status;
}

static ist_status run(ist_device *d, ist_plan *p, int launches, double *ms, ist_error *err) {
    double start = now_ms();
    for (int i = 0; i < launches; i++) IST_TRY(ist_plan_replay(p, err));
    IST_TRY(ist_finish(d, (ist_frame_scope){0}, "benchmark", err));
    *ms = (now_ms() - start) / launches;
    return IST_OK;
}

static ist_status time_way(const model_plan *m, const ist_tuned *problem, ist_tune_way way, const ist_peak *peak,
                           bool first, ist_error *err) {
    ist_plan_options options = {.half = ist_plan_half(m->plan)};
    ist_plan *p = NULL;
    ist_tensor x, y;
    double ms = 0, least = 1e30;
    ist_status status = ist_plan_begin(m->device, &options, &p, err);
    if (!status) ist_tune_record(p, problem->family, problem->shape, way, 1e300, &x, &y);
    if (!status) status = ist_plan_finish(p, err);
    if (!status) status = fill(p, x, err);
    if (!status) status = run(m->device, p, 1, &ms, err); /* compiles */
    if (!status) status = run(m->device, p, 1, &ms, err);
    int launches = ms > RUN_MS ? 1 : (int)(RUN_MS / (ms > 1e-3 ? ms : 1e-3)) + 1;
    for (int i = 0; i < RUNS && !status; i++) {
        status = run(m->device, p, launches, &ms, err);
        if (ms < least) least = ms;
    }
    if (!status) {
        double flops = 0, bytes = 0;
        for (int i = 0; i < ist_plan_describe(p).launches; i++) {
            flops += ist_plan_launch_at(p, i)->flops;
            bytes += ist_plan_launch_at(p, i)->bytes;
        }
        printf("  %c %-16s /%d", first ? '*' : ' ', way.variant, way.way);
        print_rates(peak, least, flops, bytes);
        putchar('\n');
        fflush(stdout);
    }
    ist_plan_close(&p);
    return status;
}

static ist_status bench_problems(const model_plan *m, const ist_peak *peak, ist_error *err) {
    const ist_tuning *notes = ist_plan_notes(m->plan);
    ist_plan_options options = {.half = ist_plan_half(m->plan)};
    ist_tune_way ways[MOST_WAYS];
    ist_plan *p = NULL;
    IST_TRY(ist_plan_begin(m->device, &options, &p, err));
    ist_status status = IST_OK;
    for (size_t i = 0; i < notes->count && !status; i++) {
        const ist_tuned *problem = &notes->items[i];
        int count = ist_tune_ways(p, problem->family, problem->shape, ways, MOST_WAYS);
        printf("%s %s, %d launches\n", problem->family, problem->shape, problem->param);
        for (int w = 0; w < count && !status; w++) status = time_way(m, problem, ways[w], peak, w == 0, err);
    }
    ist_plan_close(&p);
    return status;
}

/* ---- all kernels ---- */

typedef struct sum {
    const ist_launch *first;
    int launches;
    double ms, flops, bytes;
} sum;

static int slowest_first(const void *a, const void *b) {
    const sum *x = a, *y = b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

static sum *sum_of(sum *sums, int *count, const ist_launch *l) {
    for (int k = 0; k < *count; k++)
        if (!strcmp(sums[k].first->op, l->op) && !strcmp(sums[k].first->kernel, l->kernel) &&
            !strcmp(sums[k].first->defines, l->defines))
            return &sums[k];
    if (*count == MOST_KERNELS) return &sums[MOST_KERNELS - 1];
    sums[*count].first = l;
    return &sums[(*count)++];
}

static ist_status bench_kernels(const model_plan *m, const ist_peak *peak, ist_error *err) {
    int launches = ist_plan_describe(m->plan).launches, count = 0;
    double *ms = calloc((size_t)launches + 1, sizeof *ms), *least = calloc((size_t)launches + 1, sizeof *least);
    sum *sums = calloc(MOST_KERNELS, sizeof *sums);
    ist_status status = ms && least && sums ? IST_OK : ist_fail(err, IST_E_MEMORY, "out of memory");
    for (int f = 0; f < FRAMES && !status; f++) {
        status = ist_plan_profile(m->plan, ms, err);
        for (int i = 0; i < launches; i++)
            if (!f || ms[i] < least[i]) least[i] = ms[i];
    }
    for (int i = 0; i < launches && !status; i++) {
        const ist_launch *l = ist_plan_launch_at(m->plan, i);
        sum *s = sum_of(sums, &count, l);
        s->launches++;
        s->ms += least[i];
        s->flops += l->flops;
        s->bytes += l->bytes;
    }
    if (!status) qsort(sums, (size_t)count, sizeof *sums, slowest_first);
    for (int k = 0; k < count && !status; k++) {
        printf("%3d x", sums[k].launches);
        print_rates(peak, sums[k].ms, sums[k].flops, sums[k].bytes);
        printf("  %s %s %s\n", sums[k].first->op, sums[k].first->kernel, sums[k].first->defines);
    }
    free(ms);
    free(least);
    free(sums);
    return status;
}

int main(int argc, char **argv) {
    model_plan_options options;
    model_plan m = {0};
    ist_peak peak;
    ist_error err = {0};
    if (!model_plan_arguments(argc, argv, &options)) return 2;
    ist_status status = model_plan_open(&options, &m, &err);
    if (!status) status = ist_peak_measure(m.device, &peak, &err);
    if (!status) {
        const ist_device_info *f = ist_device_facts(m.device);
        printf("%s on %s, driver %s: %.0f GFLOP/s, %.1f GB/s at most\n\nvariants\n", m.what, f->name, f->driver,
               peak.gflops, peak.gbytes_per_second);
        status = bench_problems(&m, &peak, &err);
    }
    if (!status) {
        printf("\nkernels\n");
        status = bench_kernels(&m, &peak, &err);
    }
    if (status) fprintf(stderr, "%s\n", err.text);
    model_plan_close(&m);
    return status ? 1 : 0;
}
