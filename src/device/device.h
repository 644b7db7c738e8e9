/* The device layer: the only place that talks to OpenCL about devices, memory, crossings, waits and builds.
 *
 * Owns: the device list and SPEC selection, the context and the in-order queue (own or adopted; on request a second one
 * for kernels beside those of the first), capability probes, programs and their binary cache, buffers, and the transfer
 * ledger that every crossing and every wait goes through.
 * Everything above enqueues kernels through ist_enqueue and never waits by itself.
 *
 * Threads: one thread may enqueue (ist_enqueue, ist_write, ist_read) while another waits (ist_wait). The ledger locks.
 */
#ifndef IST_DEVICE_DEVICE_H
#define IST_DEVICE_DEVICE_H

#include "base/status.h"

#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct ist_device ist_device;

/* Where a call stands in the source. The calls below that leave a record are macros that say so by themselves. */
typedef struct ist_site {
    const char *file; /* from the root of the repository on */
    const char *function;
    int line;
} ist_site;
#define IST_HERE ((ist_site){__FILE__, __func__, __LINE__})

/* A capability is true when a small kernel of cl/probe/ builds *and* returns the right numbers on this device, or when
 * it is a plain property (CPU). For tests and diagnosis, ISTHMUS_CAPS overrules: "-INT64,+CPU" hides one and claims
 * another; ISTHMUS_CPU_BUILD_OPTIONS goes to the compilers of CPUs. X(name, probe source or NULL, meaning) */
#define IST_CAP_LIST(X)                                                                                                \
    X(CPU, NULL, "a CPU with native float vectors: one work-item per group, no local memory")                          \
    X(SIMD16, NULL, "a CPU with native vectors of 16 floats")                                                          \
    X(VEC16, "vec16", "float16 arithmetic, vload16/vstore16 at odd addresses")                                         \
    X(LOCAL, "local", "barriers and 8 KiB of local memory in groups of 64 work-items")                                 \
    X(GROUP256, "group256", "groups of 256 work-items with 16 KiB of local memory")                                    \
    X(HALF_STORAGE, "half_storage", "vload_half / vstore_half round correctly")                                        \
    X(ATOMICS, "atomics", "32-bit global atomics: add, min, max, or")                                                  \
    X(INT64, "int64", "64-bit integer arithmetic and comparisons")                                                     \
    X(FP64, "fp64", "double arithmetic")                                                                               \
    X(LONG_LOOPS, "long_loops", "loops of more than 65535 rounds come to their end")                                   \
    X(LOOP_BODIES, "loop_bodies", "bodies of loops run once in a round")                                               \
    X(PTX_MMA, "ptx_mma", "PTX matrix instructions and asynchronous copies (nvidia/ptx), 97 KiB of local memory")      \
    X(PTX_MEET, "ptx_meet", "work-groups of a launch that see what others write while both run (nvidia/ptx)")          \
    X(PTX_BLOCK, "ptx_block", "kernels that are given places in one buffer for buffers (device/ptx.h)")                \
    X(PTX_WGMMA, "ptx_wgmma", "PTX matrix instructions of warpgroups (nvidia/wgmma), 202 KiB of local memory")         \
    X(AMD_MFMA, "amd_mfma", "AMD's matrix instructions of waves of 64 (matrix/matrix, CDNA)")                          \
    X(AMD_WMMA, "amd_wmma", "AMD's matrix instructions of waves of 32 (matrix/matrix, RDNA3)")                         \
    X(INTEL_DPAS, "intel_dpas", "Intel's matrix instructions of subgroups of 8 (matrix/matrix, Xe-HPG)")               \
    X(X86_BF16, "x86_bf16", "AVX512_BF16: sums of bfloat16 products by inline assembly")                               \
    X(X86_AMX, "x86_amx", "AMX: products of tiles of bfloat16 by inline assembly (cpu/amx)")

typedef enum ist_cap_bit {
#define X(name, probe, text) IST_CAP_BIT_##name,
    IST_CAP_LIST(X)
#undef X
        IST_CAP_COUNT
} ist_cap_bit;

#define X(name, probe, text) IST_CAP_##name = 1u << IST_CAP_BIT_##name,
typedef enum ist_cap { IST_CAP_LIST(X) } ist_cap;
#undef X

const char *ist_cap_name(int bit);
const char *ist_cap_meaning(int bit);

/* ---- list, open ---- */

/* The in-order queues. MAIN carries everything; SIDE, where it was opened, kernels only. */
typedef enum ist_lane { IST_LANE_MAIN, IST_LANE_SIDE } ist_lane;

/* Fills the flat list (all platforms, all devices); the caller frees *list with free(). *count = 0 is success. */
ist_status ist_device_list(ist_device_info **list, int *count, ist_error *err);

/* Position in `list` that SPEC selects: "" or NULL: first GPU, else first CPU, else the first; "0": flat index; "1:0":
 * platform:device; "gpu", "cpu"; "uuid:HEX"; else part of a device or platform name, case-insensitive. IST_E_NO_DEVICE
 * with a sentence that lists what there is. */
ist_status ist_device_select(const ist_device_info *list, int count, const char *spec, int *index, ist_error *err);

/* Who runs the probes of a device of which nothing is kept yet. */
typedef enum ist_probing {
    IST_PROBING_APART, /* another process, which a driver may end; this one where none can be started */
    IST_PROBING_HERE,  /* this one, from the last to the first: a process that others do without, beside one that opens
                          the same device: each finds what the other has compiled */
    IST_PROBING_NONE   /* nobody: for the other process */
} ist_probing;

typedef struct ist_device_options {
    const char *spec;                        /* NULL: ISTHMUS_DEVICE, else the default */
    void *cl_context, *cl_device, *cl_queue; /* adopt all three, or none */
    const char *cache_dir; /* NULL: ISTHMUS_CACHE_DIR, else $XDG_CACHE_HOME/isthmus or ~/.cache/isthmus; "off" */
    ist_probing probing;
    struct ist_jobs *jobs; /* what workers are to do (jobs.h), where that is of use; NULL: there are none */
    bool early;            /* return while a context of our own is still being made, which takes 0.1 s on a GPU */
} ist_device_options;

/* Opens (or adopts, retaining) a context and an in-order queue, and runs the probes. The first time for a driver that
 * starts isthmus-probe (device/probe.h), and waits for it. A device that the probes of LONG_LOOPS and
 * LOOP_BODIES show to compute wrong results is IST_E_NO_DEVICE; "", "gpu" and "cpu" pass over it. */
ist_status ist_device_open(const ist_device_options *options, ist_device **device, ist_error *err);
void ist_device_close(ist_device **device);

/* Waits until a device that was opened early has its context, and says why it has none. What needs it waits by itself,
 * in the thread that opened the device; other threads may use the device from then on. */
ist_status ist_device_ready(ist_device *device, ist_error *err);

/* Makes the second queue, IST_LANE_SIDE; once. */
ist_status ist_lane_open(ist_device *device, ist_error *err);

const ist_device_info *ist_device_facts(const ist_device *device);
unsigned ist_device_caps(const ist_device *device);    /* ist_cap bits */
bool ist_device_is_cpu(const ist_device *device);      /* IST_CAP_CPU, which ISTHMUS_CAPS can claim or hide */
unsigned ist_device_probed(const ist_device *device);  /* what the probes found, whatever ISTHMUS_CAPS claims */
unsigned ist_device_deadly(const ist_device *device);  /* whose probes ended the process that ran them */
size_t ist_device_alignment(const ist_device *device); /* bytes; sub-buffer origins are multiples of this */
size_t ist_device_local_bytes(const ist_device *device);
cl_context ist_device_context(ist_device *device);
cl_command_queue ist_device_queue(ist_device *device);

/* ---- programs ---- */

/* A kernel of program {defines, prelude, isa, op}: `op` and `isa` are source names ("cpu/conv", "cpu/tile"; isa may be
 * NULL, or names separated by +), `defines` a string of -D options (may be ""). Programs are built once per (op, isa,
 * defines) and shared; each call gives a new cl_kernel, the caller's to release with ist_kernel_release. A failed build
 * puts the first line of the log in `err`. Where the platform keeps no cache of its own, binaries are kept in
 * cache_dir. */
#define ist_kernel_create(...) ist_kernel_create_at(IST_HERE, __VA_ARGS__)
ist_status ist_kernel_create_at(ist_site site, ist_device *device, const char *op, const char *isa, const char *defines,
                                const char *kernel, cl_kernel *out, ist_error *err);
/* The same for a program that is all in `text`. */
#define ist_kernel_of_text(...) ist_kernel_of_text_at(IST_HERE, __VA_ARGS__)
ist_status ist_kernel_of_text_at(ist_site site, ist_device *device, const char *text, const char *kernel,
                                 cl_kernel *out, ist_error *err);
void ist_kernel_release(cl_kernel *kernel);

/* What identifies a program: the arguments of ist_kernel_create. */
typedef struct ist_program_part {
    const char *op, *isa, *defines; /* isa may be NULL, defines "" */
} ist_program_part;
/* Its source as it is compiled, the caller's to free. */
ist_status ist_program_text(const ist_program_part *part, char **text, ist_error *err);
/* Builds programs that will be wanted together as one, which is much cheaper on CPU platforms (elsewhere it does
 * nothing). Where they cannot be joined, each is built when a kernel asks for it, as without this call. */
#define ist_programs_join(...) ist_programs_join_at(IST_HERE, __VA_ARGS__)
ist_status ist_programs_join_at(ist_site site, ist_device *device, const ist_program_part *parts, int count,
                                ist_error *err);

/* Says that the program will be wanted; and, when all have been named, builds those that nobody else has taken and
 * waits for the others. What is missing then is built when a kernel asks for it. Nothing where there are no workers
 * (ist_device_options.jobs). */
void ist_program_announce(ist_device *device, const ist_program_part *part);
void ist_programs_gather(ist_device *device);
/* In a worker, on the device that the list is for: does jobs until there are no more. */
void ist_device_work(ist_device *device, struct ist_jobs *jobs, int worker);

/* How what one process compiles serves another that opens the same device. */
typedef enum ist_sharing {
    IST_SHARES_NOTHING,  /* not at all, or nobody has looked */
    IST_SHARES_LAUNCHES, /* the platform compiles a kernel when it is first launched, one at a time in a process, and
                            keeps the result on disk (PoCL) */
    IST_SHARES_PROGRAMS  /* a program is compiled when it is built, and kept in cache_dir */
} ist_sharing;
ist_sharing ist_device_sharing(const ist_device_info *info);

/* The folder in which PoCL keeps kernels: it has read the environment once a platform has been asked for, we read it
 * each time. */
bool ist_driver_cache_folder(char *path, size_t size);
/* Whether a driver that keeps kernels there cannot write its files: the process may write none of that size, the disk
 * is full, the folder cannot be written. Why, in words, into `text`. */
bool ist_limits_no_file(const char *folder, char *text, size_t size);
/* Whether this process may only use so much memory; how much, in words, into `text`. */
bool ist_limits_memory(char *text, size_t size);
/* Whether a driver is installed that does not load; why, in the loader's words, into `text`. */
bool ist_driver_problem(char *text, size_t size);

/* The folder that binaries are kept in for `cache_dir` as in ist_device_options; false when there is none. */
bool ist_cache_folder(const char *cache_dir, char *path, size_t size);
/* Makes the folders that a file at `path` needs, as far as that can be done. */
void ist_cache_make_folder_of(const char *path);

/* Opens a file of the cache folder to read; NULL where there is none, or a link. */
FILE *ist_cache_open_file(const char *path);

/* Makes an empty file there, with its folder, unless it is there; false when that fails or it is a link. */
bool ist_cache_make_mark(const char *path);

typedef struct ist_cache_key {
    uint64_t hash[2];
} ist_cache_key;
/* A hash of texts; moving a border between two changes it. */
ist_cache_key ist_hash_texts(const char *const *texts, int count);
/* The same of all kernel sources. */
ist_cache_key ist_hash_sources(void);

typedef struct ist_build_stats {
    int built, from_cache, rejected; /* programs compiled from source, loaded, and cache entries found unusable */
} ist_build_stats;
ist_build_stats ist_device_builds(const ist_device *device);

/* ---- memory ---- */

/* Device memory; contents undefined. `what` names it in errors: "arena", "weights". Counted in ist_device_memory. */
ist_status ist_buffer_create(ist_device *device, size_t bytes, const char *what, cl_mem *out, ist_error *err);
/* The same, filled with zeros: without a crossing where its memory comes fresh from the system. */
#define ist_buffer_zeroed(...) ist_buffer_zeroed_at(IST_HERE, __VA_ARGS__)
ist_status ist_buffer_zeroed_at(ist_site site, ist_device *device, size_t bytes, const char *what, cl_mem *out,
                                ist_error *err);

/* Host memory to be filled with what becomes a buffer: on a CPU large pages, which need not be copied. */
typedef struct ist_pages {
    void *data;
    void *map; /* what was mapped; NULL: data is calloc'd */
    size_t mapped;
} ist_pages;
/* Zeros; NULL when there is no memory. */
ist_pages *ist_pages_open(const ist_device *device, size_t bytes);
void ist_pages_close(ist_pages **pages);
/* A buffer with the first `bytes` of *pages: made of them, or else written from them. *pages is NULL afterwards; after
 * a failure *out is NULL instead, and *pages the caller's to close. */
#define ist_buffer_filled(...) ist_buffer_filled_at(IST_HERE, __VA_ARGS__)
ist_status ist_buffer_filled_at(ist_site site, ist_device *device, size_t bytes, const char *what, ist_pages **pages,
                                cl_mem *out, ist_error *err);

/* A window of `parent`, within it; offset must be a multiple of ist_device_alignment. Not counted. */
ist_status ist_buffer_sub(ist_device *device, cl_mem parent, size_t offset, size_t bytes, const char *what, cl_mem *out,
                          ist_error *err);
/* Before the windows of a buffer are released: nobody wants its contents any more. Waits for the queue. */
void ist_buffer_forget(ist_device *device, cl_mem buffer);
void ist_buffer_release(ist_device *device, cl_mem *buffer);
void ist_device_memory(const ist_device *device, uint64_t *now, uint64_t *peak);

/* Host memory the device can move quickly (pinned where the platform pins), mapped for the device's life time. Part of
 * set-up: its one map is recorded in the ledger, outside every frame. */
typedef struct ist_pinned {
    cl_mem mem;
    void *data;
    size_t bytes;
} ist_pinned;
#define ist_pinned_create(...)  ist_pinned_create_at(IST_HERE, __VA_ARGS__)
#define ist_pinned_release(...) ist_pinned_release_at(IST_HERE, __VA_ARGS__)
ist_status ist_pinned_create_at(ist_site site, ist_device *device, size_t bytes, const char *what, ist_pinned *out,
                                ist_error *err);
void ist_pinned_release_at(ist_site site, ist_device *device, ist_pinned *pinned);

/* ---- crossings and waits: the ledger ---- */

typedef enum ist_crossing {
    IST_CROSS_WRITE,
    IST_CROSS_READ,
    IST_CROSS_MAP,
    IST_CROSS_UNMAP,
    IST_CROSS_COPY, /* on the device */
    IST_CROSS_WAIT,
    IST_CROSS_FLUSH,
    IST_CROSS_BUILD, /* of a program, from source or from the cache */
    IST_CROSS_KINDS
} ist_crossing;

/* One record; `what` is a static string or lives as long as the device. */
typedef struct ist_ledger_entry {
    ist_crossing kind;
    uint64_t frame; /* 0: set-up */
    size_t bytes;
    const char *what;
    double at_ms;   /* the call, since the device was opened */
    double wait_ms; /* time the host waited for earlier work */
    double move_ms; /* time the host spent in the call itself; what a non-blocking transfer takes later is not known */
    ist_site site;
} ist_ledger_entry;

/* The frame a crossing belongs to: its number (0: set-up) and the counters it adds to (may be NULL). */
typedef struct ist_frame_scope {
    uint64_t frame;
    ist_transfers *counts;
} ist_frame_scope;

/* Enqueues a host-to-device write; `src` must stay valid until a later wait unless `blocking`. A blocking write counts
 * as a wait too. */
#define ist_write(...) ist_write_at(IST_HERE, __VA_ARGS__)
ist_status ist_write_at(ist_site site, ist_device *device, ist_frame_scope scope, cl_mem dst, size_t offset,
                        size_t bytes, const void *src, bool blocking, const char *what, ist_error *err);
/* Enqueues a device-to-host read. With `done` NULL it blocks (and counts as a wait); else *done is an event to wait for
 * with ist_wait, which releases it. */
#define ist_read(...) ist_read_at(IST_HERE, __VA_ARGS__)
ist_status ist_read_at(ist_site site, ist_device *device, ist_frame_scope scope, cl_mem src, size_t offset,
                       size_t bytes, void *dst, cl_event *done, const char *what, ist_error *err);
/* Waits for *event and releases it (also on failure); the error of the command it stands for is reported. */
#define ist_wait(...) ist_wait_at(IST_HERE, __VA_ARGS__)
ist_status ist_wait_at(ist_site site, ist_device *device, ist_frame_scope scope, cl_event *event, const char *what,
                       ist_error *err);
/* *done: the command that `event` stands for has ended, or failed. Neither a crossing nor a wait. */
ist_status ist_event_ended(cl_event event, bool *done, const char *what, ist_error *err);
/* An event that stands for all commands of the first queue so far, to be waited for with ist_wait. */
ist_status ist_mark(ist_device *device, cl_event *reached, const char *what, ist_error *err);
/* clFinish of every queue; counts as a wait. */
#define ist_finish(...) ist_finish_at(IST_HERE, __VA_ARGS__)
ist_status ist_finish_at(ist_site site, ist_device *device, ist_frame_scope scope, const char *what, ist_error *err);
/* clFlush: not a crossing and not a wait. */
#define ist_flush(...) ist_flush_at(IST_HERE, __VA_ARGS__)
ist_status ist_flush_at(ist_site site, ist_device *device, ist_frame_scope scope, ist_error *err);
/* Device-side copy; not a crossing. */
#define ist_copy(...) ist_copy_at(IST_HERE, __VA_ARGS__)
ist_status ist_copy_at(ist_site site, ist_device *device, ist_frame_scope scope, cl_mem src, size_t src_offset,
                       cl_mem dst, size_t dst_offset, size_t bytes, const char *what, ist_error *err);

/* Enqueues one kernel. `label` names it in errors ("conv 3x3 backbone.stem.stem3"). */
ist_status ist_enqueue_on(ist_device *device, ist_lane lane, cl_kernel kernel, int dims, const size_t *global,
                          const size_t *local, const char *label, ist_error *err);
/* On the main lane. */
ist_status ist_enqueue(ist_device *device, cl_kernel kernel, int dims, const size_t *global, const size_t *local,
                       const char *label, ist_error *err);
/* What is enqueued on `lane` from here on begins when everything on `other` so far has ended; the host waits for
 * nothing. Flushes `other`. */
#define ist_lane_follow(...) ist_lane_follow_at(IST_HERE, __VA_ARGS__)
ist_status ist_lane_follow_at(ist_site site, ist_device *device, ist_frame_scope scope, ist_lane lane, ist_lane other,
                              ist_error *err);

/* Totals since the device was opened, and the most recent entries (oldest first, at most `capacity`; the ledger keeps a
 * fixed number). Returns how many were stored. */
void ist_ledger_totals(ist_device *device, ist_transfers *totals);
int ist_ledger_recent(ist_device *device, ist_ledger_entry *entries, int capacity);

/* For a reader that follows the ledger: at most `capacity` entries from number *cursor on (0: the first), oldest first.
 * Moves *cursor behind them and adds to *missed what the ledger no longer had. Returns how many were stored. */
int ist_ledger_since(ist_device *device, uint64_t *cursor, uint64_t *missed, ist_ledger_entry *entries, int capacity);

/* ---- errors ---- */

/* "clEnqueueReadBuffer failed: CL_OUT_OF_RESOURCES (-5): packet, 4096 bytes": fails with IST_E_DEVICE_MEMORY for
 * allocation failures, else IST_E_DEVICE. */
ist_status ist_fail_cl(ist_error *err, cl_int code, const char *call, const char *fmt, ...) IST_PRINTF(4, 5);

#endif
