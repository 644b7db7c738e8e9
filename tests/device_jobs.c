/* Jobs that processes share: the longest first, each by one; what a worker had taken that has ended is nobody's; a
 * worker's results and programs are those of the process that asked. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "device/jobs.h"
#include "device/probe.h"
#include "support/folder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

static ist_jobs *jobs;
static ist_error err;

static void begin(void) {
    jobs = mmap(NULL, ist_jobs_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(jobs, MAP_FAILED);
}

static void end(void) {
    munmap(jobs, ist_jobs_bytes());
}

TestSuite(device_jobs, .init = begin, .fini = end);

static int add(const char *defines, const char *isa, size_t cost) {
    return ist_jobs_add(jobs, &(ist_job){.probe = -1, .op = "portable/fill_rows", .isa = isa, .defines = defines},
                        cost);
}

Test(device_jobs, the_longest_comes_first_and_once) {
    ist_job job;
    int result;
    int small = add("-DA", NULL, 1), large = add("-DB", NULL, 9), other = add("-DB", "nvidia/ptx", 5);
    cr_expect_eq(add("-DA", NULL, 1), small);
    cr_expect_eq(add("-DB", "nvidia/ptx", 5), other);
    int probe = ist_jobs_add(jobs, &(ist_job){.probe = 3}, 7);
    cr_expect_eq(ist_jobs_add(jobs, &(ist_job){.probe = 3}, 7), probe);
    const int order[] = {large, probe, other, small};
    for (int i = 0; i < 4; i++) {
        cr_assert(ist_jobs_take(jobs, &job));
        cr_expect_eq(job.number, order[i]);
        cr_expect_not(ist_jobs_is_done(jobs, job.number, &result));
        ist_jobs_done(jobs, job.number, 40 + i);
        cr_assert(ist_jobs_is_done(jobs, job.number, &result));
        cr_expect_eq(result, 40 + i);
        if (job.number == probe) {
            cr_expect_eq(job.probe, 3);
            continue;
        }
        cr_expect_eq(job.probe, -1);
        cr_expect_str_eq(job.op, "portable/fill_rows");
        cr_expect_str_eq(job.defines, job.number == small ? "-DA" : "-DB");
        if (job.number == other)
            cr_expect_str_eq(job.isa, "nvidia/ptx");
        else
            cr_expect_null(job.isa);
    }
    cr_expect_not(ist_jobs_take(jobs, &job));
}

/* A list that is full, or a text that is too long, takes no more and stays what it is. */
Test(device_jobs, there_is_an_end_to_them) {
    char text[1200];
    int count = 0;
    ist_job job;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    cr_expect_eq(add(text, NULL, 1), -1);
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "-DN=%d", i);
        if (add(text, NULL, (size_t)i) != i) break;
        count++;
    }
    cr_expect_geq(count, 100);
    cr_expect_eq(add("-DMORE", NULL, 1), -1);
    cr_expect_eq(add("-DN=0", NULL, 0), 0);
    for (int i = 0; i < count; i++) cr_assert(ist_jobs_take(jobs, &job));
    cr_expect_not(ist_jobs_take(jobs, &job));
}

Test(device_jobs, they_are_for_one_device) {
    cr_expect(ist_jobs_are_for(jobs, 2));
    cr_expect_not(ist_jobs_are_for(jobs, 0));
    cr_expect(ist_jobs_are_for(jobs, 2));
    cr_expect_eq(ist_jobs_device(jobs), 2);
    ist_jobs_end(jobs, false);
    ist_jobs_end(jobs, true);
    cr_expect_not(ist_jobs_good(jobs));
}

Test(device_jobs, without_a_device_workers_come_to_their_end) {
    ist_job job;
    ist_jobs_begin(jobs, 1);
    cr_assert(ist_jobs_enter(jobs, 0));
    ist_jobs_end(jobs, true);
    cr_expect_eq(ist_jobs_device(jobs), -1);
    cr_expect_not(ist_jobs_next(jobs, 0, &job));
    cr_expect(ist_jobs_good(jobs));
    ist_jobs_leave(jobs, 0);
}

/* One is killed over its job, one has left. */
Test(device_jobs, what_a_dead_worker_had_is_not_waited_for) {
    ist_job job;
    int result, number = add("-DA", NULL, 1);
    pid_t child = fork();
    if (!child) {
        if (ist_jobs_enter(jobs, 0) && ist_jobs_next(jobs, 0, &job)) kill(getpid(), SIGKILL);
        _exit(0);
    }
    ist_jobs_begin(jobs, 2);
    cr_assert(ist_jobs_enter(jobs, 1));
    ist_jobs_leave(jobs, 1);
    ist_jobs_settle(jobs); /* while that process is not waited for */
    cr_expect_not(ist_jobs_is_done(jobs, number, &result));
    cr_expect_not(ist_jobs_take(jobs, &job));
    int later = add("-DB", NULL, 1);
    ist_jobs_settle(jobs); /* nobody is left */
    cr_assert(ist_jobs_take(jobs, &job));
    cr_expect_eq(job.number, later);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFSIGNALED(status));
}

static ist_device *open_device(ist_probing probing, const char *cache) {
    ist_device *d = NULL;
    ist_device_options options = {.cache_dir = "off", .probing = probing};
    cr_assert_eq(ist_device_open(&options, &d, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_cache_use(d, cache, &err), IST_OK);
    return d;
}

/* Whatever the platform does by itself, programs are kept in a folder here. */
static int work(const char *cache) {
    if (!ist_jobs_enter(jobs, 0) || ist_jobs_device(jobs) < 0) return 1;
    ist_device *d = open_device(IST_PROBING_NONE, cache);
    ist_device_work(d, jobs, 0);
    ist_device_close(&d);
    ist_jobs_leave(jobs, 0);
    return ist_jobs_good(jobs) ? 0 : 2;
}

Test(device_jobs, a_worker_probes_and_builds) {
    char cache[256];
    ist_probe_result theirs[IST_PROBE_MOST] = {IST_PROBE_UNKNOWN}, ours[IST_PROBE_MOST] = {IST_PROBE_UNKNOWN};
    ist_error why = {0};
    unsetenv("ISTHMUS_CAPS");
    folder_make(cache, sizeof cache);
    pid_t child = fork();
    if (!child) _exit(work(cache));
    ist_jobs_begin(jobs, 1);
    ist_device *d = open_device(IST_PROBING_NONE, cache);
    cr_assert(ist_jobs_are_for(jobs, d->facts.index));
    d->jobs = jobs;
    ist_probes_by_workers(d, theirs);
    cr_assert_eq(ist_probes_run(d, &(ist_probe_course){.alone = true}, ours, &why, &err), IST_OK, "%s", err.text);
    for (int i = 0; i < ist_probe_count(); i++) cr_expect_eq(theirs[i], ours[i], "%s", ist_probe_name(i));

    const ist_program_part good = {"portable/fill_rows", NULL, ""}, bad = {"portable/fill_rows", NULL, "-Dfill_rows=0"};
    ist_program_announce(d, &good);
    ist_program_announce(d, &bad);
    ist_program_announce(d, &good);
    ist_jobs_settle(jobs);
    ist_programs_gather(d);
    ist_jobs_end(jobs, true);
    ist_build_stats before = ist_device_builds(d);
    cl_kernel kernel = NULL;
    cr_assert_eq(ist_kernel_create(d, good.op, good.isa, good.defines, "fill_rows", &kernel, &err), IST_OK, "%s",
                 err.text);
    cr_expect_eq(ist_device_builds(d).built, before.built);
    cr_expect_eq(ist_device_builds(d).from_cache, before.from_cache + 1);
    ist_kernel_release(&kernel);
    cr_expect_eq(ist_kernel_create(d, bad.op, bad.isa, bad.defines, "fill_rows", &kernel, &err), IST_E_BUILD);
    ist_device_close(&d);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
    folder_remove(cache);
}

/* Without one that works, or lives, all is as if there were none: the process does it by itself. */
Test(device_jobs, without_workers_it_builds_by_itself) {
    ist_probe_result none[IST_PROBE_MOST] = {IST_PROBE_UNKNOWN};
    ist_device *d = open_device(IST_PROBING_NONE, NULL);
    const ist_program_part part = {"portable/fill_rows", NULL, ""};
    ist_program_announce(d, &part); /* nothing: it has no list */
    ist_programs_gather(d);
    ist_probes_by_workers(d, none);
    cr_expect_eq(ist_device_builds(d).built, 0);
    d->jobs = jobs;
    ist_probes_by_workers(d, none);
    for (int i = 0; i < ist_probe_count(); i++)
        cr_expect_eq(none[i], ist_probe_may_run(d, i) ? IST_PROBE_UNKNOWN : IST_PROBE_FAILS, "%s", ist_probe_name(i));
    ist_program_announce(d, &part);
    ist_programs_gather(d);
    cr_expect_eq(ist_device_builds(d).built, 1);
    ist_device_close(&d);
}
