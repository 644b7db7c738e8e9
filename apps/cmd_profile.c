/* isthmus profile: where the time of a frame goes, launch by launch, beside what the device can do at most. */
#include "profile.h"

#include "io/atomic_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double profile_share(const profile *p, double ms, double flops, double bytes) {
    double compute = p->peak.gflops > 0 ? flops * 1e-9 / p->peak.gflops : 0; /* seconds at the peak */
    double memory = p->peak.gbytes_per_second > 0 ? bytes * 1e-9 / p->peak.gbytes_per_second : 0;
    return ms > 0 ? 1e3 * (compute > memory ? compute : memory) / ms : 0;
}

void profile_kernel_name(const ist_launch_time *l, char *name, size_t size) {
    snprintf(name, size, "%s %s%s%s", l->op, l->kernel, *l->defines ? " " : "", l->defines);
}

/* By name, so that launches of one kernel are neighbours; then by falling time. */
static int by_kernel(const void *a, const void *b) {
    const ist_launch_time *x = *(const ist_launch_time *const *)a, *y = *(const ist_launch_time *const *)b;
    int c = strcmp(x->op, y->op);
    if (!c) c = strcmp(x->kernel, y->kernel);
    return c ? c : strcmp(x->defines, y->defines);
}

static int slowest_first(const void *a, const void *b) {
    const measure_sum *x = a, *y = b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

static ist_status sum_kernels(profile *p, ist_error *err) {
    size_t n = (size_t)p->launches;
    const ist_launch_time **order = calloc(n + 1, sizeof *order);
    if (!order) return ist_fail(err, IST_E_MEMORY, "out of memory for %d launches", p->launches);
    for (size_t i = 0; i < n; i++) order[i] = &p->times[i];
    qsort(order, n, sizeof *order, by_kernel);
    for (size_t i = 0; i < n; i++) {
        if (!i || by_kernel(&order[i - 1], &order[i]))
            p->kernels[p->kernel_count++] = (measure_sum){.name = order[i]->kernel, .first = order[i]};
        measure_sum *k = &p->kernels[p->kernel_count - 1];
        k->ms += order[i]->ms;
        k->flops += order[i]->flops;
        k->bytes += order[i]->bytes;
        k->launches++;
    }
    free(order);
    qsort(p->kernels, (size_t)p->kernel_count, sizeof *p->kernels, slowest_first);
    return IST_OK;
}

static ist_status warm_up(measure *m, ist_error *err) {
    double ms;
    for (int i = 0; i == 0 || i < m->warmup; i += m->options.batch) IST_TRY(measure_batch(m, &ms, err));
    return IST_OK;
}

/* The higher of what was seen before the profile and after it: other programs take their part of the machine. */
static ist_status measure_peak(const measure *m, ist_device_peak *peak, ist_error *err) {
    ist_device_peak now;
    IST_TRY(ist_engine_peak(m->job.engine, &now, err));
    if (now.gflops > peak->gflops) peak->gflops = now.gflops;
    if (now.gbytes_per_second > peak->gbytes_per_second) peak->gbytes_per_second = now.gbytes_per_second;
    return IST_OK;
}

static ist_status take(measure *m, profile *p, ist_launch_time **times, ist_error *err) {
    IST_TRY(warm_up(m, err));
    IST_TRY(measure_peak(m, &p->peak, err));
    IST_TRY(measure_launches(m, m->frames, times, &p->launches, err));
    p->times = *times;
    for (int i = 0; i < m->frames; i++) {
        double ms = 0;
        IST_TRY(ist_engine_replay(m->job.engine, &ms, err));
        if (!i || ms < p->frame_ms) p->frame_ms = ms;
    }
    IST_TRY(measure_peak(m, &p->peak, err));
    p->stages = calloc((size_t)p->launches + 1, sizeof *p->stages);
    p->kernels = calloc((size_t)p->launches + 1, sizeof *p->kernels);
    if (!p->stages || !p->kernels) return ist_fail(err, IST_E_MEMORY, "out of memory for %d launches", p->launches);
    p->stage_count = measure_stages(p->times, p->launches, p->stages);
    for (int i = 0; i < p->stage_count; i++) p->total_ms += p->stages[i].ms;
    return sum_kernels(p, err);
}

static ist_status write_trace(const profile *p, const char *path, ist_error *err) {
    ist_text text = {0};
    ist_status status = profile_trace(p, &text, err);
    if (!status) status = ist_atomic_write(path, text.data, text.length, err);
    ist_text_free(&text);
    return status;
}

/* 0 or the exit code. */
static int report(const profile *p) {
    ist_text text = {0};
    ist_error err;
    ist_status status = p->m->trace ? write_trace(p, p->m->trace, &err) : IST_OK;
    if (!status && p->m->json) status = profile_json(p, &text, &err);
    if (!status && p->m->json)
        fputs(text.data, stdout);
    else if (!status)
        profile_print(p);
    ist_text_free(&text);
    return status ? cli_fail(CLI_FAILED, "%s", err.text) : CLI_SUCCESS;
}

int cmd_profile(int argc, char **argv) {
    measure m;
    profile p = {.m = &m};
    ist_launch_time *times = NULL;
    ist_error err;
    bool stop = false;
    int code = measure_parse(argc, argv, &m, &stop);
    if (!stop) {
        if (m.trace && ist_atomic_try(m.trace, &err)) code = cli_fail(CLI_FAILED, "%s", err.text);
        if (!code) code = measure_open(&m);
        if (!code && take(&m, &p, &times, &err)) code = cli_fail(cli_exit_code(err.code), "%s", err.text);
        if (!code) code = report(&p);
    }
    free(times);
    free(p.stages);
    free(p.kernels);
    measure_close(&m);
    return code;
}
