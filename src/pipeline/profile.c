/* Profiles of the recorded frame, over the buffers that the last batch left bound. */
#include "pipeline/profile.h"

#include "base/clock.h"
#include "variants/peak.h"
#include "pipeline/engine.h"

#include <stdlib.h>

static ist_status ready(ist_engine *e, ist_error *err) {
    if (!e->plan) return ist_fail(err, IST_E_STATE, "profile: the engine was opened without a detector");
    if (!e->sequence) return ist_fail(err, IST_E_STATE, "profile: no batch has been submitted yet");
    return ist_engine_idle(e, err);
}

ist_status ist_engine_profile(ist_engine *e, int repeats, ist_launch_time *times, ist_error *err) {
    IST_TRY(ready(e, err));
    int count = ist_plan_describe(e->plan).launches;
    double *ms = calloc((size_t)count + 1, sizeof *ms);
    if (!ms) return ist_fail(err, IST_E_MEMORY, "profile: out of host memory for %d launches", count);
    for (int i = 0; i < count; i++) {
        const ist_launch *l = ist_plan_launch_at(e->plan, i);
        times[i] = (ist_launch_time){.stage = l->stage,
                                     .label = l->label,
                                     .op = l->op,
                                     .kernel = l->kernel,
                                     .defines = l->defines,
                                     .flops = l->flops,
                                     .bytes = l->bytes};
    }
    ist_status status = IST_OK;
    for (int r = 0; r < repeats && !status; r++) {
        status = ist_plan_profile(e->plan, ms, err);
        for (int i = 0; i < count && !status; i++)
            if (!r || ms[i] < times[i].ms) times[i].ms = ms[i];
    }
    free(ms);
    return status;
}

double ist_engine_busy_ms(const ist_engine *e) {
    return e->busy_ms;
}

ist_status ist_engine_replay(ist_engine *e, double *ms, ist_error *err) {
    IST_TRY(ready(e, err));
    double start = ist_clock_ms();
    IST_TRY(ist_plan_replay(e->plan, err));
    IST_TRY(ist_finish(e->device, (ist_frame_scope){0}, "replay", err));
    *ms = ist_clock_ms() - start;
    return IST_OK;
}

ist_status ist_engine_peak(ist_engine *e, ist_device_peak *peak, ist_error *err) {
    ist_peak measured;
    *peak = (ist_device_peak){0};
    IST_TRY(ist_engine_idle(e, err));
    IST_TRY(ist_peak_measure(e->device, &measured, err));
    *peak = (ist_device_peak){measured.gflops, measured.gbytes_per_second};
    return IST_OK;
}
