/* Opens a device of the list, or adopts a caller's context and queue, and runs the capability probes. */
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS /* clCreateCommandQueue: every platform has it, 1.2 has no other */
#include "device/state.h"

#include "base/mem.h"
#include "device/jobs.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Whether SPEC leaves it to us which device of a kind is taken. */
static bool names_a_kind(const char *spec) {
    return !spec || !*spec || !strcasecmp(spec, "gpu") || !strcasecmp(spec, "cpu");
}

/* Takes the devices out of the list whose numbers are bits of `without`. */
static int leave_out(ist_device_info *list, cl_device_id *ids, int count, uint64_t without) {
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (i < 64 && without >> i & 1) continue;
        list[kept] = list[i];
        ids[kept++] = ids[i];
    }
    return kept;
}

static ist_status make_context(ist_device *d, ist_error *err) {
    cl_int rc;
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)d->platform, 0};
    d->context = clCreateContext(properties, 1, &d->id, NULL, NULL, &rc);
    if (rc != CL_SUCCESS) {
        d->context = NULL;
        return ist_fail_cl(err, rc, "clCreateContext", "device %s", d->facts.name);
    }
    d->queue = clCreateCommandQueue(d->context, d->id, 0, &rc);
    if (rc != CL_SUCCESS) {
        d->queue = NULL;
        return ist_fail_cl(err, rc, "clCreateCommandQueue", "device %s", d->facts.name);
    }
    return IST_OK;
}

static void *run_make_context(void *of) {
    ist_device *d = of;
    make_context(d, &d->opening.failure);
    return NULL;
}

ist_status ist_device_ready(ist_device *d, ist_error *err) {
    ist_opening *o = &d->opening;
    if (o->under_way) {
        pthread_join(o->thread, NULL);
        o->under_way = false;
        if (o->side && !o->failure.code) ist_lane_open(d, &o->failure);
    }
    if (o->failure.code && err) *err = o->failure;
    return o->failure.code;
}

static ist_status open_own(ist_device *d, const ist_device_options *o, const char *spec, uint64_t without,
                           ist_error *err) {
    ist_device_info *list = NULL;
    cl_device_id *ids = NULL;
    int count = 0, chosen = 0;
    IST_TRY(ist_device_enumerate(&list, &ids, &count, err));
    if (list) count = leave_out(list, ids, count, without);
    ist_status status = ist_device_select(list, count, spec, &chosen, err);
    if (status == IST_OK) {
        d->facts = list[chosen];
        d->id = ids[chosen];
    }
    free(list);
    free(ids);
    if (status != IST_OK) return status;
    if (o->jobs && ist_device_sharing(&d->facts) == IST_SHARES_PROGRAMS && ist_jobs_are_for(o->jobs, d->facts.index))
        d->jobs = o->jobs; /* workers open it now, too */

    cl_int rc = clGetDeviceInfo(d->id, CL_DEVICE_PLATFORM, sizeof d->platform, &d->platform, NULL);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clGetDeviceInfo", "platform of %s", d->facts.name);
    d->opening.under_way = o->early && !pthread_create(&d->opening.thread, NULL, run_make_context, d);
    return d->opening.under_way ? IST_OK : make_context(d, err);
}

/* The engine relies on queue order, and on the three handles belonging together. */
static ist_status check_adopted(cl_context context, cl_device_id id, cl_command_queue queue, ist_error *err) {
    cl_context queue_context = NULL;
    cl_device_id queue_device = NULL;
    cl_command_queue_properties properties = 0;
    cl_int rc = clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof queue_context, &queue_context, NULL);
    if (rc == CL_SUCCESS) rc = clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof queue_device, &queue_device, NULL);
    if (rc == CL_SUCCESS) rc = clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clGetCommandQueueInfo", "adopted queue");
    if (queue_context != context) return ist_fail(err, IST_E_ARGUMENT, "the adopted queue belongs to another context");
    if (queue_device != id) return ist_fail(err, IST_E_ARGUMENT, "the adopted queue belongs to another device");
    if (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
        return ist_fail(err, IST_E_ARGUMENT, "the adopted queue is out of order; an in-order queue is needed");
    return IST_OK;
}

static ist_status adopt(ist_device *d, const ist_device_options *o, ist_error *err) {
    if (!o->cl_context || !o->cl_device || !o->cl_queue)
        return ist_fail(err, IST_E_ARGUMENT, "to adopt, give context, device and queue: %s missing",
                        !o->cl_context  ? "the context is"
                        : !o->cl_device ? "the device is"
                                        : "the queue is");
    IST_TRY(check_adopted(o->cl_context, o->cl_device, o->cl_queue, err));
    d->id = o->cl_device;
    IST_TRY(ist_device_query(d->id, &d->facts, err));
    d->facts.index = d->facts.platform = d->facts.device = -1; /* a sub-device is not in the list */
    ist_device_info *list = NULL;
    cl_device_id *ids = NULL;
    int count = 0;
    IST_TRY(ist_device_enumerate(&list, &ids, &count, err));
    for (int i = 0; i < count; i++)
        if (ids[i] == d->id) d->facts = list[i];
    free(list);
    free(ids);
    cl_int rc = clGetDeviceInfo(d->id, CL_DEVICE_PLATFORM, sizeof d->platform, &d->platform, NULL);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clGetDeviceInfo", "platform of %s", d->facts.name);
    rc = clRetainContext(o->cl_context);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clRetainContext", "adopted context");
    d->context = o->cl_context;
    rc = clRetainCommandQueue(o->cl_queue);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clRetainCommandQueue", "adopted queue");
    d->queue = o->cl_queue;
    return IST_OK;
}

static ist_status read_limits(ist_device *d, ist_error *err) {
    cl_uint align_bits = 0;
    cl_ulong local = 0;
    cl_int rc = clGetDeviceInfo(d->id, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof align_bits, &align_bits, NULL);
    if (rc == CL_SUCCESS) rc = clGetDeviceInfo(d->id, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clGetDeviceInfo", "limits of %s", d->facts.name);
    d->alignment = 64; /* a cache line and a float16, also where the device would take less */
    while (d->alignment < align_bits / 8) d->alignment *= 2;
    d->local_bytes = (size_t)local;
    return IST_OK;
}

/* What would end the process inside of a driver that writes files whenever it compiles (PoCL). */
static ist_status prepare_driver(const ist_device *d, ist_error *err) {
    char folder[1024], why[320];
    if (strcmp(d->facts.platform_name, IST_POCL) || !ist_driver_cache_folder(folder, sizeof folder)) return IST_OK;
    if (ist_limits_no_file(folder, why, sizeof why))
        return ist_fail(err, IST_E_NO_DEVICE, "%s cannot compile: %s", d->facts.name, why);
    ist_driver_cache_mend(folder);
    return IST_OK;
}

/* *unreliable is the number of a device that was opened and cannot be relied on, else -1. */
static ist_status open_one(const ist_device_options *options, const char *spec, uint64_t without, ist_device **device,
                           int *unreliable, ist_error *err) {
    *unreliable = -1;
    *device = NULL;
    ist_device *d = calloc(1, sizeof *d);
    if (!d) return ist_fail(err, IST_E_MEMORY, "no memory for a device (%zu bytes)", sizeof *d);
    ist_status status = ist_ledger_init(&d->ledger, err);
    if (status != IST_OK) {
        free(d);
        return status;
    }
    bool adopted = options->cl_context || options->cl_device || options->cl_queue;
    status = adopted ? adopt(d, options, err) : open_own(d, options, spec, without, err);
    if (status == IST_OK) status = prepare_driver(d, err);
    if (status == IST_OK) status = read_limits(d, err);
    if (status == IST_OK) status = ist_cache_open(d, options->cache_dir, err);
    if (status == IST_OK) status = ist_device_probe(d, options->cache_dir, options->probing, err);
    if (status == IST_OK && options->probing != IST_PROBING_NONE) {
        status = ist_device_rely_on(d, err);
        if (status != IST_OK && !adopted) *unreliable = d->facts.index;
    }
    if (status != IST_OK) ist_device_close(&d);
    *device = d;
    return status;
}

/* Where SPEC names a kind only, a device that cannot be relied on is passed over for the next; where there is none, the
 * first says why. */
ist_status ist_device_open(const ist_device_options *options, ist_device **device, ist_error *err) {
    static const ist_device_options none = {0};
    ist_error first = {0}, failure = {0};
    uint64_t without = 0;
    int unreliable;
    if (!options) options = &none;
    const char *spec = options->spec && *options->spec ? options->spec : getenv("ISTHMUS_DEVICE");
    for (;;) {
        ist_status status = open_one(options, spec, without, device, &unreliable, &failure);
        if (status == IST_OK) return IST_OK;
        if (!first.code) first = failure;
        bool next = unreliable >= 0 && unreliable < 64 && names_a_kind(spec);
        bool none_left = without && failure.code == IST_E_NO_DEVICE;
        if (next) without |= UINT64_C(1) << unreliable;
        if (next) continue;
        if (err) *err = none_left ? first : failure;
        return status;
    }
}

void ist_device_close(ist_device **device) {
    if (!device || !*device) return;
    ist_device *d = *device;
    ist_device_ready(d, NULL);
    if (d->queue) ist_finish(d, (ist_frame_scope){0}, "close", NULL);
    ist_programs_release(d);
    ist_lane_close(d);
    if (d->queue) clReleaseCommandQueue(d->queue);
    if (d->context) clReleaseContext(d->context);
    pthread_mutex_destroy(&d->ledger.lock);
    free(d->cache_dir);
    free(d);
    *device = NULL;
}

const ist_device_info *ist_device_facts(const ist_device *device) {
    return &device->facts;
}
unsigned ist_device_caps(const ist_device *device) {
    return device->caps;
}
bool ist_device_is_cpu(const ist_device *device) {
    return device->caps & IST_CAP_CPU;
}
unsigned ist_device_probed(const ist_device *device) {
    return device->probed;
}
unsigned ist_device_deadly(const ist_device *device) {
    return device->deadly;
}
size_t ist_device_alignment(const ist_device *device) {
    return device->alignment;
}
size_t ist_device_local_bytes(const ist_device *device) {
    return device->local_bytes;
}
cl_context ist_device_context(ist_device *device) {
    ist_device_ready(device, NULL);
    return device->context;
}
cl_command_queue ist_device_queue(ist_device *device) {
    ist_device_ready(device, NULL);
    return device->queue;
}
ist_build_stats ist_device_builds(const ist_device *device) {
    return device->builds;
}
