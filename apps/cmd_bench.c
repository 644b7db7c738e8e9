/* isthmus bench: latency of one batch at a time, throughput with batches in flight, time per stage, device memory. */
#include "bench.h"

#include "percentile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PROFILES = 5 /* runs behind the times of the stages */ };

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static ist_status warm_up(measure *m, ist_error *err) {
    double ms;
    int batches = (m->warmup + m->options.batch - 1) / m->options.batch;
    for (int i = 0; i < batches; i++) IST_TRY(measure_batch(m, &ms, err));
    return IST_OK;
}

/* Submits ahead as far as the engine allows and receives the oldest. */
static ist_status overlapped(measure *m, bench_result *r, ist_error *err) {
    int ahead = ist_config_default().frames_in_flight, submitted = 0;
    double start = now_ms();
    for (int received = 0; received < r->count;) {
        if (submitted < r->count && submitted - received < ahead) {
            IST_TRY(measure_submit(m, err));
            submitted++;
            continue;
        }
        const ist_result *result = NULL;
        IST_TRY(ist_receive(m->job.engine, &result, err));
        ist_release(m->job.engine, &result);
        received++;
    }
    double ms = now_ms() - start;
    r->fps = ms > 0 ? 1e3 * r->frames / ms : 0;
    return IST_OK;
}

static ist_status upload_to_packet(measure *m, bench_result *r, ist_error *err) {
    IST_TRY(warm_up(m, err));
    for (int i = 0; i < r->count; i++) IST_TRY(measure_batch(m, &r->ms[i], err));
    return overlapped(m, r, err);
}

/* A batch begins when the one before has ended on the queue, so kernels of different ones do not overlap: the rate
 * follows from the latencies. */
static ist_status kernels_alone(measure *m, bench_result *r, ist_error *err) {
    double sum = 0;
    IST_TRY(warm_up(m, err));
    for (int i = 0; i < r->count; i++) {
        IST_TRY(ist_engine_replay(m->job.engine, &r->ms[i], err));
        sum += r->ms[i];
    }
    r->fps = sum > 0 ? 1e3 * r->frames / sum : 0;
    return IST_OK;
}

/* 0 or the exit code. */
static int take_samples(measure *m, bench_result *r) {
    ist_error err;
    ist_status status = IST_OK;
    r->count = (m->frames + m->options.batch - 1) / m->options.batch;
    r->frames = r->count * m->options.batch;
    r->ms = calloc((size_t)r->count, sizeof *r->ms);
    if (!r->ms) return cli_fail(CLI_FAILED, "out of memory for %d samples", r->count);
    status = measure_batch(m, &r->first_ms, &err);
    if (status) return cli_fail(cli_exit_code(status), "%s", err.text);
    if (m->scope == MEASURE_FILE_TO_FILE) {
        int code = bench_files(m, r);
        if (code) return code;
    } else if (m->scope == MEASURE_KERNELS) {
        status = kernels_alone(m, r, &err);
    } else {
        status = upload_to_packet(m, r, &err);
    }
    if (status) return cli_fail(cli_exit_code(status), "%s", err.text);
    percentile_sort(r->ms, (size_t)r->count);
    r->p50 = percentile(r->ms, (size_t)r->count, 50);
    r->p90 = percentile(r->ms, (size_t)r->count, 90);
    r->p99 = percentile(r->ms, (size_t)r->count, 99);
    r->least = r->ms[0];
    return CLI_SUCCESS;
}

static int print_json(const measure *m, const bench_result *r, const measure_sum *stages, int count) {
    const ist_engine_info *e = &m->job.engine_info;
    ist_text out = {0};
    ist_error err;
    ist_text_put(&out, "{");
    measure_put_name(&out, "device", e->device.name);
    ist_text_put(&out, ",");
    measure_put_name(&out, "driver", e->device.driver);
    ist_text_put(&out, ",");
    measure_put_name(&out, "precision", measure_precision(m));
    ist_text_put(&out, ",");
    measure_put_name(&out, "detector", e->detector);
    ist_text_put(&out, ",");
    measure_put_name(&out, "segmenter", e->segmenter);
    ist_text_printf(&out, ",\"batch\":%d,\"scope\":\"%s\",\"frames\":%d,\"latency_ms\":{", m->options.batch,
                    measure_scope_name(m->scope), r->frames);
    measure_put_number(&out, "p50", r->p50);
    ist_text_put(&out, ",");
    measure_put_number(&out, "p90", r->p90);
    ist_text_put(&out, ",");
    measure_put_number(&out, "p99", r->p99);
    ist_text_put(&out, ",");
    measure_put_number(&out, "min", r->least);
    ist_text_put(&out, "},");
    measure_put_number(&out, "throughput_fps", r->fps);
    ist_text_put(&out, ",\"start_ms\":{");
    measure_put_number(&out, "open", m->open_ms);
    ist_text_put(&out, ",");
    measure_put_number(&out, "first_batch", r->first_ms);
    ist_text_put(&out, "},");
    measure_put_stages(&out, stages, count);
    ist_text_printf(&out, ",\"peak_device_bytes\":%llu}\n", (unsigned long long)e->device_peak_bytes);
    int code = ist_text_status(&out, &err) ? cli_fail(CLI_FAILED, "%s", err.text) : CLI_SUCCESS;
    if (!code) fputs(out.data, stdout);
    ist_text_free(&out);
    return code;
}

static void print_text(const measure *m, const bench_result *r, const measure_sum *stages, int count) {
    double total = 0;
    for (int i = 0; i < count; i++) total += stages[i].ms;
    measure_print_heading(m);
    printf("scope       %s, %d %s after %d of warm-up\n", measure_scope_name(m->scope), r->frames,
           ist_plural((size_t)r->frames, "frame", "frames"), m->warmup);
    printf("latency     p50 %.2f, p90 %.2f, p99 %.2f, least %.2f ms per batch\n", r->p50, r->p90, r->p99, r->least);
    printf("throughput  %.2f frames per second\n", r->fps);
    printf("start       %.0f ms to open, %.0f ms for the first batch\n", m->open_ms, r->first_ms);
    printf("memory      %.1f MiB on the device at most\n", (double)m->job.engine_info.device_peak_bytes / 1048576);
    printf("stages      %.2f ms in kernels\n", total);
    for (int i = 0; i < count; i++)
        printf("  %-18s %9.3f ms %5.1f %%\n", stages[i].name, stages[i].ms, total > 0 ? 100 * stages[i].ms / total : 0);
}

/* Stages, memory, output. 0 or the exit code. */
static int report(measure *m, const bench_result *r) {
    ist_launch_time *times = NULL;
    measure_sum *stages = NULL;
    ist_error err;
    int launches = 0, count = 0;
    ist_status status = ist_engine_describe(m->job.engine, &m->job.engine_info, &err);
    if (!status) status = measure_launches(m, PROFILES, &times, &launches, &err);
    if (!status) stages = calloc((size_t)launches + 1, sizeof *stages);
    if (!status && !stages) status = ist_fail(&err, IST_E_MEMORY, "out of memory for %d launches", launches);
    int code = status ? cli_fail(cli_exit_code(status), "%s", err.text) : CLI_SUCCESS;
    if (!code) count = measure_stages(times, launches, stages);
    if (!code && m->json)
        code = print_json(m, r, stages, count);
    else if (!code)
        print_text(m, r, stages, count);
    free(times);
    free(stages);
    return code;
}

int cmd_bench(int argc, char **argv) {
    measure m;
    bench_result result = {0};
    bench_baseline baseline = {.batch = 0};
    bool stop = false;
    int code = measure_parse(argc, argv, &m, &stop);
    if (!stop) {
        if (m.baseline) code = bench_read_baseline(m.baseline, &baseline);
        if (!code) code = measure_open(&m);
        if (!code && m.baseline) code = bench_check_baseline(&m, &baseline);
        if (!code) code = take_samples(&m, &result);
        if (!code) code = report(&m, &result);
        if (!code && m.baseline) code = bench_compare(&m, &result, &baseline);
    }
    free(result.ms);
    measure_close(&m);
    return code;
}
