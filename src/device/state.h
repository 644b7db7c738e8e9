/* What a device is inside this layer. Only files of src/device include this; everyone above uses device.h. */
#ifndef IST_DEVICE_STATE_H
#define IST_DEVICE_STATE_H

#include "device/device.h"

#include <pthread.h>
#include <stdio.h>

#define IST_POCL        "Portable Computing Language" /* the name of PoCL's platform */

#define IST_LEDGER_RING 4096 /* entries kept; totals are exact beyond that */

typedef struct ist_ledger {
    pthread_mutex_t lock; /* guards the ledger and the memory counters */
    ist_ledger_entry ring[IST_LEDGER_RING];
    uint64_t recorded; /* entries since the device was opened */
    ist_transfers totals;
    double opened_ms;
} ist_ledger;

/* One built program, or one part of a joined one; `key` is "op\nisa\ndefines". */
typedef struct ist_program {
    char *key;
    cl_program program;
    int part; /* of a joined program, which its first part owns and whose kernels have other names; -1: built alone */
} ist_program;

/* A context that is made while other things are done: see ist_device_ready. */
typedef struct ist_opening {
    pthread_t thread;
    bool under_way, side; /* side: the second queue is wanted as soon as there is a context */
    ist_error failure;
} ist_opening;

struct ist_device {
    ist_device_info facts;
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue, side; /* side: IST_LANE_SIDE, NULL unless asked for */
    ist_opening opening;
    unsigned caps;
    unsigned probed; /* caps before ISTHMUS_CAPS overruled them */
    unsigned deadly; /* caps whose probes ended the process that ran them */
    size_t alignment, local_bytes;
    ist_program *programs;
    size_t program_count, program_cap;
    char *cache_dir;       /* NULL: no cache */
    struct ist_jobs *jobs; /* what workers do for this device; NULL: there are none */
    ist_build_stats builds;
    uint64_t memory_now, memory_peak;
    ist_ledger ledger;
};

/* ---- list.c ---- */

/* Fills `info` but for index, platform and device numbers. IST_E_UNSUPPORTED when it cannot run kernels now. */
ist_status ist_device_query(cl_device_id id, ist_device_info *info, ist_error *err);
/* As ist_device_list, with the handles (either pointer may be NULL); free both with free(). */
ist_status ist_device_enumerate(ist_device_info **list, cl_device_id **ids, int *count, ist_error *err);

/* ---- probed.c ---- */

/* Sets device->caps, probed and deadly. Fails only when the device itself does (a probe that does not build or compute
 * is just false) and when none holds. What they found is kept in the folder of `cache_dir` as in ist_device_options,
 * and they are not run again for the same driver, options and sources. */
ist_status ist_device_probe(ist_device *device, const char *cache_dir, ist_probing probing, ist_error *err);

/* IST_E_NO_DEVICE with a sentence where a probe has shown that what is computed there would be wrong; with
 * ISTHMUS_ANY_DEVICE=1 (tests of single operators) it is relied on all the same. */
ist_status ist_device_rely_on(const ist_device *device, ist_error *err);

/* ---- cache.c ---- */

/* Decides on the folder: see ist_device_options.cache_dir. No folder where the platform keeps binaries itself. */
ist_status ist_cache_open(ist_device *device, const char *cache_dir, ist_error *err);
/* Caches in `dir` whatever the platform does by itself; NULL: no cache. */
ist_status ist_cache_use(ist_device *device, const char *dir, ist_error *err);
/* Everything the binary depends on. */
ist_cache_key ist_cache_make_key(const ist_device *device, const char *options, const char *const *texts, int count);
/* A built program from the cache, or NULL. Entries that are damaged, foreign or refused count in builds.rejected. */
cl_program ist_cache_load(ist_device *device, ist_cache_key key, const char *options);
/* The program's binary for the device (malloc'd), and a program built from one; NULL when that fails. */
unsigned char *ist_cache_binary(const ist_device *device, cl_program program, size_t *bytes);
cl_program ist_cache_build(ist_device *device, const unsigned char *data, size_t bytes, const char *options);
/* The content of such a file (malloc'd); NULL unless key, length and checksum are right and nothing follows. */
unsigned char *ist_cache_read_stream(FILE *file, ist_cache_key key, size_t *bytes);
/* The content of a file of the cache (malloc'd); NULL when there is none (*found is false) or it is damaged. */
unsigned char *ist_cache_read(const char *folder, ist_cache_key key, const char *suffix, size_t *bytes, bool *found);
/* Best effort: a cache that cannot be written costs time, never correctness. */
void ist_cache_write(const char *folder, ist_cache_key key, const char *suffix, const unsigned char *data,
                     size_t bytes);
void ist_cache_store(const ist_device *device, ist_cache_key key, cl_program program);

/* ---- driver_cache.c ---- */

/* Removes what is not whole below PoCL's folder of kernels, so that it compiles that again instead of ending the
 * process; returns how many files. Reads a page of each. */
int ist_driver_cache_mend(const char *folder);

/* ---- limits.c ---- */

/* Whether something that this process may have no more of (descriptors, memory, what ist_limits_no_file says) may be
 * why a driver has failed; which, in words, into `text`. `folder`: where the driver keeps kernels, or NULL. */
bool ist_limits_explain(const char *folder, char *text, size_t size);

/* ---- ptx.c ---- */

/* Makes a built program whose PTX has instructions of sm_90a in comments one that runs them, and one whose options say
 * so (ptx.h) one with a buffer for many, or fails and leaves it; every other program stays as it is. `what`: for the
 * message. */
ist_status ist_ptx_change(ist_device *device, const char *options, const char *what, cl_program *program,
                          ist_error *err);

/* ---- program.c ---- */

/* ist_programs_join on any device. */
ist_status ist_programs_join_now(ist_site site, ist_device *device, const ist_program_part *parts, int count,
                                 ist_error *err);

/* Builds the program, for the cache or for kernels to come. */
ist_status ist_program_make(ist_device *device, const ist_program_part *part, ist_error *err);
/* How long building it takes compared with others, roughly: bytes of its source, of which little is used of what
 * several have in common. */
size_t ist_program_cost(const ist_program_part *part);

void ist_programs_release(ist_device *device);

/* ---- ledger.c ---- */

ist_status ist_ledger_init(ist_ledger *ledger, ist_error *err);
/* An entry that begins now, at_ms on the clock until it is recorded. */
ist_ledger_entry ist_ledger_begin(ist_site site, ist_crossing kind, size_t bytes, const char *what);
void ist_ledger_record(ist_device *device, ist_frame_scope scope, const ist_ledger_entry *entry);
/* Records the entry; the time since its beginning is move_ms. */
void ist_ledger_moved(ist_device *device, ist_frame_scope scope, ist_ledger_entry *entry);
/* Waits for the queue ahead of a blocking call and sets wait->wait_ms; the caller records it when the call succeeds. */
cl_int ist_ledger_wait_first(ist_device *device, ist_ledger_entry *wait);
/* ist_flush of either queue. */
ist_status ist_flush_lane(ist_site site, ist_device *device, ist_frame_scope scope, ist_lane lane, ist_error *err);

/* ---- lane.c ---- */

void ist_lane_close(ist_device *device);
static inline cl_command_queue ist_lane_queue(const ist_device *device, ist_lane lane) {
    return lane == IST_LANE_SIDE ? device->side : device->queue;
}

/* ---- errors.c ---- */

const char *ist_cl_name(cl_int code);

#endif
