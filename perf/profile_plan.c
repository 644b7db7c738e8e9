/* profile_plan [--repeats N] [--series] CHECKPOINT: every launch of a network with its share of the time, then the sum
 * per kind of launch, and each beside the device's highest rate of multiply-adds.
 *
 * On CPUs launches that would be one (core/series.c) are measured apart, the frame too, unless --series is given.
 *
 * Times are the device's own, from start to end of each kernel, the least of N profiled frames: what other programs
 * take of the machine is left out as far as possible. The peak is the highest of several in between. The frame's time
 * beside them is the host's, and so is the time to enqueue it. */
#include "variants/peak.h"
#include "support/model_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 15, WARM = 3, PEAKS = 4 };

static double least(const double *v, int n, int step) {
    double best = v[0];
    for (int i = 1; i < n; i++) best = v[i * step] < best ? v[i * step] : best;
    return best;
}

typedef struct row {
    const ist_launch *launch;
    double ms, flops, bytes;
    int count;
} row;

/* Of the whole frame, the least of the repeats; peak: GFLOP/s. */
typedef struct totals {
    double frame_ms, enqueue_ms, launches_ms, peak;
} totals;

static int slowest_first(const void *a, const void *b) {
    const row *x = a, *y = b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

static void print(const row *r, const char *name, const totals *t) {
    double rate = r->ms > 0 ? r->flops / r->ms * 1e-6 : 0;
    double traffic = r->ms > 0 ? r->bytes / r->ms * 1e-6 : 0;
    printf("%8.4f ms %5.1f %% %8.1f GFLOP/s %5.1f %% of peak %7.1f GB/s %4d  %s\n", r->ms, 100 * r->ms / t->launches_ms,
           rate, t->peak > 0 ? 100 * rate / t->peak : 0, traffic, r->count, name);
}

/* Convolutions, linear layers and what is fused with them: launches of which products of matrices are the bulk. */
static bool is_product(const ist_launch *l) {
    static const char *const names[] = {"conv",   "winograd", "stem",  "csp",       "sequence", "norm_mlp",
                                        "mbconv", "patch",    "stage", "separable", "two_way",  "upscale"};
    const char *slash = strrchr(l->op, '/'), *op = slash ? slash + 1 : l->op; /* without the machine's folder */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(op, names[i], strlen(names[i]))) return l->flops > 0;
    return false;
}

/* Merges rows of the same op and kernel. */
static int by_kind(const row *rows, int count, row *kinds) {
    int n = 0;
    for (int i = 0; i < count; i++) {
        int k = 0;
        while (k < n && (strcmp(kinds[k].launch->op, rows[i].launch->op) ||
                         strcmp(kinds[k].launch->kernel, rows[i].launch->kernel) ||
                         strcmp(kinds[k].launch->defines, rows[i].launch->defines)))
            k++;
        if (k == n) kinds[n++] = (row){.launch = rows[i].launch};
        kinds[k].ms += rows[i].ms;
        kinds[k].flops += rows[i].flops;
        kinds[k].bytes += rows[i].bytes;
        kinds[k].count++;
    }
    return n;
}

/* The profiled frames, in rounds between which the peak is measured. */
static ist_status take(model_plan *m, int repeats, double *ms, int count, totals *t, ist_error *err) {
    double frame, warm;
    ist_status status = IST_OK;
    for (int i = 0; i < WARM && !status; i++) status = model_plan_run(m, &warm, err);
    for (int i = 0; i < repeats && !status; i++) {
        ist_peak peak = {0};
        status = model_plan_run(m, &frame, err);
        if (!i || frame < t->frame_ms) t->frame_ms = frame;
        if (!i || m->enqueue_ms < t->enqueue_ms) t->enqueue_ms = m->enqueue_ms;
        if (!status) status = ist_plan_profile(m->plan, ms + (size_t)i * (size_t)count, err);
        if (!status && i % (repeats / PEAKS + 1) == 0) status = ist_peak_measure(m->device, &peak, err);
        if (peak.gflops > t->peak) t->peak = peak.gflops;
    }
    return status;
}

static ist_status measure(model_plan *m, int repeats, row *rows, int count, totals *t, ist_error *err) {
    double *ms = malloc((size_t)count * (size_t)repeats * sizeof *ms);
    ist_status status = ms ? take(m, repeats, ms, count, t, err)
                           : ist_fail(err, IST_E_MEMORY, "out of memory for %d launches", count);
    for (int l = 0; l < count && !status; l++) {
        const ist_launch *launch = ist_plan_launch_at(m->plan, l);
        rows[l] = (row){.launch = launch,
                        .ms = least(ms + l, repeats, count),
                        .flops = launch->flops,
                        .bytes = launch->bytes,
                        .count = l};
        t->launches_ms += rows[l].ms;
    }
    free(ms);
    return status;
}

static void report(const model_plan *m, row *rows, int count, const totals *t) {
    ist_plan_facts facts = ist_plan_describe(m->plan);
    row *kinds = calloc((size_t)count, sizeof *kinds), products = {0};
    double flops = 0;
    if (!kinds) return;
    for (int i = 0; i < count; i++) {
        flops += rows[i].flops;
        if (!is_product(rows[i].launch)) continue;
        products.ms += rows[i].ms, products.flops += rows[i].flops, products.bytes += rows[i].bytes, products.count++;
    }
    printf("%s on %s: %d launches, frame %.3f ms, enqueued in %.3f ms, sum of launches %.3f ms, %.2f GFLOP, %.1f "
           "GFLOP/s, peak %.1f GFLOP/s\n",
           m->what, ist_device_facts(m->device)->name, count, t->frame_ms, t->enqueue_ms, t->launches_ms, flops * 1e-9,
           flops / t->frame_ms * 1e-6, t->peak);
    printf("arena %.1f MiB (no placement below %.1f), constants %.1f MiB\n\n", (double)facts.arena_bytes / 1048576,
           (double)facts.arena_lower_bound / 1048576, (double)facts.const_bytes / 1048576);
    print(&products, "convolutions, linear layers and what is fused with them", t);
    int kind_count = by_kind(rows, count, kinds);
    qsort(kinds, (size_t)kind_count, sizeof *kinds, slowest_first);
    for (int i = 0; i < kind_count; i++) {
        char name[400];
        snprintf(name, sizeof name, "%s %s %s", kinds[i].launch->op, kinds[i].launch->kernel, kinds[i].launch->defines);
        print(&kinds[i], name, t);
    }
    printf("\n");
    qsort(rows, (size_t)count, sizeof *rows, slowest_first);
    for (int i = 0; i < count; i++) {
        const ist_launch *l = rows[i].launch;
        char name[400];
        snprintf(name, sizeof name, "%s  %s %s [%zu,%zu,%zu]/[%zu,%zu,%zu]", l->label, l->op, l->kernel, l->global[0],
                 l->dims > 1 ? l->global[1] : 1, l->dims > 2 ? l->global[2] : 1, l->local[0],
                 l->dims > 1 ? l->local[1] : 1, l->dims > 2 ? l->local[2] : 1);
        print(&rows[i], name, t);
    }
    free(kinds);
}

int main(int argc, char **argv) {
    model_plan_options options;
    model_plan m;
    ist_error err = {0};
    totals t = {0};
    int repeats = REPEATS;
    bool series = false;
    int kept = 1; /* arguments that are the plan's, in order */
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--repeats") && i + 1 < argc) {
            repeats = atoi(argv[++i]) > 0 ? atoi(argv[i]) : REPEATS;
        } else if (!strcmp(argv[i], "--series")) {
            series = true;
        } else {
            argv[kept++] = argv[i];
        }
    }
    argv[kept] = NULL;
    argc = kept;
    if (!model_plan_arguments(argc, argv, &options)) return 2;
    options.apart = !series;
    ist_status status = model_plan_open(&options, &m, &err);
    int count = status ? 0 : ist_plan_describe(m.plan).launches;
    row *rows = calloc((size_t)count + 1, sizeof *rows);
    if (!status && rows) status = measure(&m, repeats, rows, count, &t, &err);
    if (status)
        fprintf(stderr, "%s\n", err.text);
    else if (rows)
        report(&m, rows, count, &t);
    free(rows);
    model_plan_close(&m);
    return status ? 1 : 0;
}
