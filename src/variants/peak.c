/* The device's highest rates, measured: see peak.h. */
#include "variants/peak.h"

#include "base/clock.h"

#include <stdio.h>

enum {
    RUNS = 6,        /* the best counts */
    MIN_RUN_MS = 10, /* shorter runs would measure the launch */
    FIRST_STEPS = 64,
    LAST_STEPS = 1 << 15, /* of one launch; llvmpipe leaves loops after 65535 */
    MAX_LAUNCHES = 1 << 12,
    COPY_BYTES = 1 << 27,
    COPY_STEPS = 64 /* vectors per work-item */
};

/* Shapes of the multiply-add kernel: capability that it needs (0: none), floats per vector, chains. Which is fastest
 * depends on the registers, so all that can run do. Where work-items are lanes, wide shapes only take long to compile.
 */
#define PEAK_ROWS(X)                                                                                                   \
    X(IST_CAP_CPU, 16, 24) /* 32 registers of 512 bits */                                                              \
    X(IST_CAP_CPU, 8, 12)  /* 16 registers of 256 bits */                                                              \
    X(0, 4, 8)             /* 16 registers of 128 bits; GPUs */

typedef struct peak_row {
    unsigned caps;
    int lanes, chains;
} peak_row;

static const peak_row rows[] = {
#define X(caps, lanes, chains) {caps, lanes, chains},
    PEAK_ROWS(X)
#undef X
};

typedef struct grid {
    size_t global, local;
} grid;

/* CPUs take one work-item per group, as the engine's kernels do. */
static grid grid_of(const ist_device *d) {
    size_t units = ist_device_facts(d)->compute_units > 0 ? (size_t)ist_device_facts(d)->compute_units : 1;
    size_t local = ist_device_caps(d) & IST_CAP_CPU ? 1 : 64;
    return (grid){16 * units * local, local};
}

static ist_status timed(ist_device *d, cl_kernel k, grid g, int launches, const char *what, double *ms,
                        ist_error *err) {
    double start = ist_clock_ms();
    for (int i = 0; i < launches; i++) IST_TRY(ist_enqueue(d, k, 1, &g.global, &g.local, what, err));
    IST_TRY(ist_finish(d, (ist_frame_scope){0}, what, err));
    *ms = ist_clock_ms() - start;
    return IST_OK;
}

static ist_status set_argument(cl_kernel k, cl_uint index, size_t bytes, const void *value, ist_error *err) {
    cl_int rc = clSetKernelArg(k, index, bytes, value);
    return rc == CL_SUCCESS ? IST_OK : ist_fail_cl(err, rc, "clSetKernelArg", "peak, argument %u", index);
}

/* Doubles the steps, then the launches until a run is long enough, then takes the best of some. */
static ist_status run_multiply_add(ist_device *d, cl_kernel k, cl_mem y, const peak_row *row, double *gflops,
                                   ist_error *err) {
    grid g = grid_of(d);
    cl_int steps = FIRST_STEPS;
    cl_float scale = 0.999f, shift = 0.001f;
    double ms = 0, step_flops = 2.0 * row->lanes * row->chains * (double)g.global;
    IST_TRY(set_argument(k, 0, sizeof y, &y, err));
    IST_TRY(set_argument(k, 1, sizeof steps, &steps, err));
    IST_TRY(set_argument(k, 2, sizeof scale, &scale, err));
    IST_TRY(set_argument(k, 3, sizeof shift, &shift, err));
    IST_TRY(timed(d, k, g, 1, "multiply-adds", &ms, err)); /* some platforms compile at the first launch */
    for (int launches = 1, runs = 0; runs < RUNS;) {
        IST_TRY(set_argument(k, 1, sizeof steps, &steps, err));
        IST_TRY(timed(d, k, g, launches, "multiply-adds", &ms, err));
        if (ms < MIN_RUN_MS && steps < LAST_STEPS) {
            steps *= 2;
        } else if (ms < MIN_RUN_MS && launches < MAX_LAUNCHES) {
            launches *= 2;
        } else {
            double rate = step_flops * steps * launches / ms * 1e-6;
            if (rate > *gflops) *gflops = rate;
            runs++;
        }
    }
    return IST_OK;
}

static ist_status measure_multiply_add(ist_device *d, const peak_row *row, double *gflops, ist_error *err) {
    char defines[64];
    cl_kernel k = NULL;
    cl_mem y = NULL;
    snprintf(defines, sizeof defines, "-D VL=%d -D CHAINS=%d", row->lanes, row->chains);
    ist_status status = ist_buffer_create(d, grid_of(d).global * (size_t)row->lanes * sizeof(float), "peak", &y, err);
    if (!status) status = ist_kernel_create(d, "portable/peak", "portable/vector", defines, "multiply_add", &k, err);
    if (!status) status = run_multiply_add(d, k, y, row, gflops, err);
    ist_kernel_release(&k);
    ist_buffer_release(d, &y);
    return status;
}

/* One way, then the other: the first copy of each pair also makes the pages behind both buffers real. */
static ist_status run_copy(ist_device *d, cl_kernel k, const cl_mem *ends, grid g, size_t bytes, double *best,
                           ist_error *err) {
    cl_int steps = COPY_STEPS;
    double ms = 0;
    IST_TRY(set_argument(k, 2, sizeof steps, &steps, err));
    for (int r = 0; r < RUNS; r++) {
        IST_TRY(set_argument(k, 0, sizeof ends[0], &ends[r & 1], err));
        IST_TRY(set_argument(k, 1, sizeof ends[0], &ends[!(r & 1)], err));
        IST_TRY(timed(d, k, g, 1, "copy", &ms, err));
        double rate = 2.0 * (double)bytes / ms * 1e-6;
        if (r > 1 && rate > *best) *best = rate;
    }
    return IST_OK;
}

static ist_status measure_copy(ist_device *d, double *best, ist_error *err) {
    int lanes = ist_device_caps(d) & IST_CAP_CPU ? 16 : 4;
    size_t local = ist_device_caps(d) & IST_CAP_CPU ? 1 : 64, group_bytes = local * COPY_STEPS * (size_t)lanes * 4;
    uint64_t bytes = COPY_BYTES, most = ist_device_facts(d)->max_alloc_bytes / 4;
    if (most && bytes > most) bytes = most;
    grid g = {(size_t)bytes / group_bytes * local, local};
    if (!g.global) return ist_fail(err, IST_E_LIMIT, "peak: %llu bytes are too few to copy", (unsigned long long)bytes);
    bytes = g.global / local * group_bytes;
    char defines[64];
    cl_kernel k = NULL;
    cl_mem ends[2] = {NULL, NULL};
    snprintf(defines, sizeof defines, "-D VL=%d -D CHAINS=8", lanes);
    ist_status status = ist_buffer_create(d, (size_t)bytes, "copy", &ends[0], err);
    if (!status) status = ist_buffer_create(d, (size_t)bytes, "copy", &ends[1], err);
    if (!status) status = ist_kernel_create(d, "portable/peak", "portable/vector", defines, "copy", &k, err);
    if (!status) status = run_copy(d, k, ends, g, (size_t)bytes, best, err);
    ist_kernel_release(&k);
    ist_buffer_release(d, &ends[0]);
    ist_buffer_release(d, &ends[1]);
    return status;
}

ist_status ist_peak_measure(ist_device *d, ist_peak *peak, ist_error *err) {
    *peak = (ist_peak){0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(rows[i].caps & ~ist_device_caps(d))) IST_TRY(measure_multiply_add(d, &rows[i], &peak->gflops, err));
    return measure_copy(d, &peak->gbytes_per_second, err);
}
