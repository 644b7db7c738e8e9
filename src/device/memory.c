/* Device buffers with their count, windows into them, and pinned host memory. */
#define _DEFAULT_SOURCE /* madvise */
#include "device/state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- large pages ----
 * On a CPU the arena and the weights are host memory. In pages of 4 KiB they need more entries than the processor's
 * address translation keeps; where the system offers large pages to programs that ask, we ask. */

enum { LARGE_PAGE = 2 << 20 };

/* Room for `bytes` in large pages, or NULL where that is not offered or not worth it: the platform allocates then. */
static void *large_pages(const ist_device *device, size_t bytes) {
#ifdef MADV_HUGEPAGE
    if (device->facts.type != IST_DEVICE_CPU || bytes < LARGE_PAGE || bytes > SIZE_MAX - LARGE_PAGE) return NULL;
    size_t whole = (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    void *memory = aligned_alloc(LARGE_PAGE, whole);
    if (memory) madvise(memory, whole, MADV_HUGEPAGE); /* advice: ordinary pages do as well */
    return memory;
#else
    (void)device, (void)bytes;
    return NULL;
#endif
}

static void CL_CALLBACK free_pages(cl_mem mem, void *memory) {
    (void)mem;
    free(memory);
}

/* A buffer of the platform's memory, or of ours, which is freed with it. */
static cl_mem new_buffer(const ist_device *device, size_t bytes, cl_int *rc) {
    void *memory = large_pages(device, bytes);
    if (!memory) return clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, rc);
    cl_mem mem = clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes, memory, rc);
    if (*rc == CL_SUCCESS) *rc = clSetMemObjectDestructorCallback(mem, free_pages, memory);
    if (*rc == CL_SUCCESS) return mem;
    if (mem) clReleaseMemObject(mem);
    free(memory);
    return clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, rc);
}

ist_status ist_buffer_create(ist_device *device, size_t bytes, const char *what, cl_mem *out, ist_error *err) {
    *out = NULL;
    const ist_device_info *f = &device->facts;
    if (bytes == 0) return ist_fail(err, IST_E_ARGUMENT, "%s: a buffer of 0 bytes", what);
    if (bytes > f->max_alloc_bytes)
        return ist_fail(err, IST_E_DEVICE_MEMORY, "%s: %zu bytes, but %s allows at most %llu bytes in one buffer", what,
                        bytes, f->name, (unsigned long long)f->max_alloc_bytes);
    uint64_t now;
    ist_device_memory(device, &now, NULL);
    /* Some platforms allocate at first use: without this check they fail in the middle of a frame. */
    if (bytes > f->global_bytes || now > f->global_bytes - bytes)
        return ist_fail(err, IST_E_DEVICE_MEMORY,
                        "%s: %zu bytes more than the %llu in use do not fit %s, which has %llu", what, bytes,
                        (unsigned long long)now, f->name, (unsigned long long)f->global_bytes);
    cl_int rc;
    cl_mem mem = new_buffer(device, bytes, &rc);
    if (rc != CL_SUCCESS)
        return ist_fail_cl(err, rc, "clCreateBuffer", "%s, %zu bytes (%llu in use on %s)", what, bytes,
                           (unsigned long long)now, f->name);
    pthread_mutex_lock(&device->ledger.lock);
    device->memory_now += bytes;
    if (device->memory_now > device->memory_peak) device->memory_peak = device->memory_now;
    pthread_mutex_unlock(&device->ledger.lock);
    *out = mem;
    return IST_OK;
}

ist_status ist_buffer_sub(ist_device *device, cl_mem parent, size_t offset, size_t bytes, const char *what, cl_mem *out,
                          ist_error *err) {
    *out = NULL;
    if (offset % device->alignment)
        return ist_fail(err, IST_E_ARGUMENT, "%s: offset %zu is no multiple of %zu", what, offset, device->alignment);
    cl_buffer_region region = {offset, bytes};
    cl_int rc;
    cl_mem mem = clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &rc);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clCreateSubBuffer", "%s, %zu bytes at %zu", what, bytes, offset);
    *out = mem;
    return IST_OK;
}

void ist_buffer_release(ist_device *device, cl_mem *buffer) {
    if (!buffer || !*buffer) return;
    size_t bytes = 0;
    cl_mem parent = NULL;
    if (clGetMemObjectInfo(*buffer, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL) == CL_SUCCESS &&
        !parent && clGetMemObjectInfo(*buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL) == CL_SUCCESS) {
        pthread_mutex_lock(&device->ledger.lock);
        device->memory_now -= bytes;
        pthread_mutex_unlock(&device->ledger.lock);
    }
    clReleaseMemObject(*buffer);
    *buffer = NULL;
}

void ist_device_memory(const ist_device *device, uint64_t *now, uint64_t *peak) {
    ist_device *d = (ist_device *)device; /* the lock is the one part of a device that reading changes */
    pthread_mutex_lock(&d->ledger.lock);
    if (now) *now = d->memory_now;
    if (peak) *peak = d->memory_peak;
    pthread_mutex_unlock(&d->ledger.lock);
}

ist_status ist_pinned_create_at(ist_site site, ist_device *device, size_t bytes, const char *what, ist_pinned *out,
                                ist_error *err) {
    *out = (ist_pinned){0};
    if (bytes == 0) return ist_fail(err, IST_E_ARGUMENT, "%s: a buffer of 0 bytes", what);
    cl_int rc;
    cl_mem mem = clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes, NULL, &rc);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clCreateBuffer", "%s, %zu bytes of host memory", what, bytes);
    ist_ledger_entry wait = ist_ledger_begin(site, IST_CROSS_WAIT, 0, what);
    rc = ist_ledger_wait_first(device, &wait);
    if (rc != CL_SUCCESS) {
        clReleaseMemObject(mem);
        return ist_fail_cl(err, rc, "clFinish", "%s", what);
    }
    ist_ledger_entry map = ist_ledger_begin(site, IST_CROSS_MAP, bytes, what);
    void *data =
        clEnqueueMapBuffer(device->queue, mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, NULL, NULL, &rc);
    if (rc != CL_SUCCESS) {
        clReleaseMemObject(mem);
        return ist_fail_cl(err, rc, "clEnqueueMapBuffer", "%s, %zu bytes", what, bytes);
    }
    ist_ledger_record(device, (ist_frame_scope){0}, &wait);
    ist_ledger_moved(device, (ist_frame_scope){0}, &map);
    *out = (ist_pinned){.mem = mem, .data = data, .bytes = bytes};
    return IST_OK;
}

void ist_pinned_release_at(ist_site site, ist_device *device, ist_pinned *pinned) {
    if (!pinned || !pinned->mem) return;
    ist_ledger_entry unmap = ist_ledger_begin(site, IST_CROSS_UNMAP, pinned->bytes, "host memory");
    if (clEnqueueUnmapMemObject(device->queue, pinned->mem, pinned->data, 0, NULL, NULL) == CL_SUCCESS) {
        ist_ledger_moved(device, (ist_frame_scope){0}, &unmap);
        ist_finish_at(site, device, (ist_frame_scope){0}, "host memory", NULL);
    }
    clReleaseMemObject(pinned->mem);
    *pinned = (ist_pinned){0};
}
