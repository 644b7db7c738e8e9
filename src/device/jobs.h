/* Work that the processes of a first start share, in memory that all of them see: probes to run and programs to build.
 *
 * One process runs frames: it says which device and what is to be done, as soon as it knows. The others, its workers,
 * take what is there, the longest first, and keep what they find and build where that process looks for it. Nobody
 * waits for a lock of another, so that one may end at any moment: what it had taken is lost and done elsewhere. */
#ifndef IST_DEVICE_JOBS_H
#define IST_DEVICE_JOBS_H

#include <stdbool.h>
#include <stddef.h>

enum { IST_JOBS_WORKERS = 15 };

typedef struct ist_jobs ist_jobs;

typedef struct ist_job {
    int number;                     /* in the list */
    int probe;                      /* its number, else -1 */
    const char *op, *isa, *defines; /* of a program, as ist_program_part; in the shared memory */
} ist_job;

/* Of memory that is all zeros, which is a list without jobs. */
size_t ist_jobs_bytes(void);

/* ---- a worker ---- */

/* Begins: it counts as alive until its process ends or it leaves. False when that is not to be had. */
bool ist_jobs_enter(ist_jobs *jobs, int worker);
/* It does no more. */
void ist_jobs_leave(ist_jobs *jobs, int worker);
/* Waits until the device is known; its place in the list of devices, or -1: there will be none. */
int ist_jobs_device(const ist_jobs *jobs);
/* Waits for a job and takes it; false: all are taken and there will be no more for workers. */
bool ist_jobs_next(ist_jobs *jobs, int worker, ist_job *job);
/* What came of it, a number of the caller's. */
void ist_jobs_done(ist_jobs *jobs, int number, int result);
/* Waits for the end: whether it is a good one. */
bool ist_jobs_good(const ist_jobs *jobs);

/* ---- the process that runs frames ---- */

/* How many workers there are; before anything else here. */
void ist_jobs_begin(ist_jobs *jobs, int workers);
/* The jobs are for this device; false when they are for another, and then for this one there are none. */
bool ist_jobs_are_for(ist_jobs *jobs, int device);
/* Adds one unless it is there: its number in the list, or -1 where there is no room. `cost`: how long it takes compared
 * with others. */
int ist_jobs_add(ist_jobs *jobs, const ist_job *job, size_t cost);
/* Takes one; false when all are taken. */
bool ist_jobs_take(ist_jobs *jobs, ist_job *job);
/* All have been added, so that workers come to an end; one that is added later is done by whoever takes it here. */
void ist_jobs_close(ist_jobs *jobs);
/* Waits until all are done that can still be done. */
void ist_jobs_settle(ist_jobs *jobs);
/* Whether that one is done, and its result. */
bool ist_jobs_is_done(const ist_jobs *jobs, int number, int *result);
/* Closes them, and says whether what was wanted is there. Again: nothing. */
void ist_jobs_end(ist_jobs *jobs, bool good);

#endif
