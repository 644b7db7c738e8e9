/* What is done about jobs (jobs.h): the process that runs frames says what it will need and builds what nobody has
 * taken; its workers do the rest. */
#include "device/probe.h"

#include "device/jobs.h"

#include <stdlib.h>

/* ---- a worker ---- */

static int run_probe(ist_device *d, int probe) {
    static const ist_probe_course alone = {.alone = true};
    ist_probe_result results[IST_PROBE_MOST];
    ist_error why = {0};
    for (int i = 0; i < ist_probe_count(); i++) results[i] = i == probe ? IST_PROBE_UNKNOWN : IST_PROBE_FAILS;
    if (ist_probes_run(d, &alone, results, &why, NULL)) return IST_PROBE_UNKNOWN;
    return results[probe];
}

void ist_device_work(ist_device *d, ist_jobs *jobs, int worker) {
    ist_job job;
    while (ist_jobs_next(jobs, worker, &job)) {
        int result = 0;
        if (job.probe >= 0)
            result = run_probe(d, job.probe);
        else /* what does not build fails again where somebody hears of it */
            ist_program_make(d, &(ist_program_part){job.op, job.isa, job.defines}, NULL);
        ist_jobs_done(jobs, job.number, result);
    }
}

/* ---- the process that runs frames ---- */

void ist_probes_by_workers(ist_device *d, ist_probe_result *results) {
    int numbers[IST_PROBE_MOST];
    if (!d->jobs) return;
    for (int i = 0; i < ist_probe_count(); i++) {
        numbers[i] = -1;
        if (results[i]) continue;
        if (ist_probe_may_run(d, i))
            numbers[i] = ist_jobs_add(d->jobs, &(ist_job){.probe = i}, ist_probe_cost(i));
        else
            results[i] = IST_PROBE_FAILS;
    }
    ist_jobs_settle(d->jobs);
    for (int i = 0; i < ist_probe_count(); i++) {
        int result;
        if (numbers[i] >= 0 && ist_jobs_is_done(d->jobs, numbers[i], &result)) results[i] = (ist_probe_result)result;
    }
}

void ist_program_announce(ist_device *d, const ist_program_part *part) {
    if (!d->jobs) return;
    ist_job job = {.probe = -1, .op = part->op, .isa = part->isa, .defines = part->defines};
    ist_jobs_add(d->jobs, &job, ist_program_cost(part));
}

void ist_programs_gather(ist_device *d) {
    ist_job job;
    if (!d->jobs) return;
    ist_jobs_close(d->jobs);
    while (ist_jobs_take(d->jobs, &job)) {
        if (job.probe < 0) ist_program_make(d, &(ist_program_part){job.op, job.isa, job.defines}, NULL);
        ist_jobs_done(d->jobs, job.number, IST_PROBE_UNKNOWN);
    }
    ist_jobs_settle(d->jobs);
}
