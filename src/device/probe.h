/* Capability probes: a capability is true when its kernel builds and returns the numbers computed here.
 *
 * Every kernel of cl/probe/ is `probe(out, in)` over the same 256 input words. A probe that does not build, launch or
 * compute is false and no error; only losing the device is. A driver may also not survive one: compilers have
 * assertions that end their process. So the first time for a driver another process runs them (probe_apart.c), one that
 * this may happen to. Files of src/device and the program that is that process (src/isthmus_probe.c) include this. */
#ifndef IST_DEVICE_PROBE_H
#define IST_DEVICE_PROBE_H

#include "device/state.h"

enum { IST_PROBE_MOST = 32 };

/* Of one probe. Numbers are on disk (probed.c). */
typedef enum ist_probe_result {
    IST_PROBE_UNKNOWN,
    IST_PROBE_FAILS,
    IST_PROBE_HOLDS,
    IST_PROBE_DIES /* it ended the process that ran it, or did not end itself */
} ist_probe_result;

/* ---- probe.c ---- */

int ist_probe_count(void);
const char *ist_probe_name(int probe);
int ist_probe_find(const char *name); /* -1: there is none */

/* Whether it may be run on the device: instructions of a CPU stop a processor that lacks them. */
bool ist_probe_may_run(const ist_device *device, int probe);

/* How they are run, and who hears of it (NULL: nobody). */
typedef struct ist_probe_course {
    bool backwards, alone; /* from the last to the first; each built by itself also where joining is cheaper */
    void *user;
    void (*begins)(void *user, const char *name); /* of a probe, or IST_PROBES_JOINED: all are built as one program */
    void (*ended)(void *user, const char *name, bool holds);
} ist_probe_course;
#define IST_PROBES_JOINED "joined"

/* Runs those whose result is unknown. `why` becomes the failure of the first build that fails. */
ist_status ist_probes_run(ist_device *device, const ist_probe_course *course, ist_probe_result *results, ist_error *why,
                          ist_error *err);

/* As ist_program_cost. */
size_t ist_probe_cost(int probe);

/* ---- workers.c ---- */

/* Runs those whose result is unknown in the device's workers, if it has any. What is still unknown afterwards was not
 * done, or ended the worker that ran it. */
void ist_probes_by_workers(ist_device *device, ist_probe_result *results);

/* ---- probe_apart.c ---- */

/* Runs those whose result is unknown in other processes, which begin again behind a probe that ended one. What is still
 * unknown afterwards could not be run so: there is no program for it, it could not be started, or did not find the
 * device. False when a process was ended from outside: that says nothing about the driver. */
bool ist_probes_apart(const ist_device *device, const char *cache_dir, ist_probe_result *results);

/* What both programs must agree about: device, driver, the sources of kernels and the list of probes. */
ist_cache_key ist_probe_key(const ist_device *device);

/* What the other process says, a line each, before and after a probe and at its end; else it has not come so far. */
#define IST_PROBE_SAYS_BEGIN "begin"
#define IST_PROBE_SAYS_HOLDS "holds"
#define IST_PROBE_SAYS_FAILS "fails"
#define IST_PROBE_SAYS_END   "end"

#endif
