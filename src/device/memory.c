/* Device buffers with their count, windows into them, and pinned host memory. */
#define _DEFAULT_SOURCE /* madvise */
#include "device/state.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- large pages ----
 * On a CPU the arena and the weights are host memory. In pages of 4 KiB they need more entries than the processor's
 * address translation keeps; where the system offers large pages to programs that ask, we ask. */

enum { LARGE_PAGE = 2 << 20 };

/* NULL where large pages are not offered or not worth it. */
static ist_pages *map_pages(const ist_device *device, size_t bytes) {
#ifdef MADV_HUGEPAGE
    if (device->facts.type != IST_DEVICE_CPU || bytes < LARGE_PAGE || bytes > SIZE_MAX - 2 * LARGE_PAGE) return NULL;
    ist_pages *pages = malloc(sizeof *pages);
    if (!pages) return NULL;
    pages->mapped = (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE + LARGE_PAGE;
    pages->map = mmap(NULL, pages->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages->map == MAP_FAILED) {
        free(pages);
        return NULL;
    }
    size_t in = (uintptr_t)pages->map % LARGE_PAGE;
    pages->data = (unsigned char *)pages->map + (in ? LARGE_PAGE - in : 0);
    madvise(pages->data, pages->mapped - LARGE_PAGE, MADV_HUGEPAGE); /* advice: ordinary pages do as well */
    return pages;
#else
    (void)device, (void)bytes;
    return NULL;
#endif
}

ist_pages *ist_pages_open(const ist_device *device, size_t bytes) {
    ist_pages *pages = map_pages(device, bytes);
    if (pages) return pages;
    pages = malloc(sizeof *pages);
    if (pages) *pages = (ist_pages){.data = calloc(1, bytes)};
    if (pages && !pages->data) {
        free(pages);
        return NULL;
    }
    return pages;
}

void ist_pages_close(ist_pages **pages) {
    if (!*pages) return;
    if ((*pages)->map)
        munmap((*pages)->map, (*pages)->mapped);
    else
        free((*pages)->data);
    free(*pages);
    *pages = NULL;
}

static void CL_CALLBACK free_pages(cl_mem mem, void *context) {
    ist_pages *pages = context;
    (void)mem;
    ist_pages_close(&pages);
}

/* A buffer of *pages, which it takes over then, or of the platform's memory. */
static cl_mem new_buffer(const ist_device *device, size_t bytes, ist_pages **pages, cl_int *rc) {
    if (!*pages || !(*pages)->map) return clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, rc);
    cl_mem mem = clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes, (*pages)->data, rc);
    if (*rc == CL_SUCCESS) *rc = clSetMemObjectDestructorCallback(mem, free_pages, *pages);
    if (*rc == CL_SUCCESS) {
        *pages = NULL;
        return mem;
    }
    if (mem) clReleaseMemObject(mem);
    return clCreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, rc);
}

/* As ist_buffer_create; of *pages, unless that is NULL or the platform refuses: it is NULL afterwards when it is the
 * buffer's. */
static ist_status create_of(ist_device *device, size_t bytes, const char *what, ist_pages **pages, cl_mem *out,
                            ist_error *err) {
    *out = NULL;
    IST_TRY(ist_device_ready(device, err));
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
    cl_mem mem = new_buffer(device, bytes, pages, &rc);
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

ist_status ist_buffer_create(ist_device *device, size_t bytes, const char *what, cl_mem *out, ist_error *err) {
    ist_pages *pages = map_pages(device, bytes);
    ist_status status = create_of(device, bytes, what, &pages, out, err);
    ist_pages_close(&pages);
    return status;
}

ist_status ist_buffer_zeroed_at(ist_site site, ist_device *device, size_t bytes, const char *what, cl_mem *out,
                                ist_error *err) {
    ist_pages *pages = map_pages(device, bytes);
    bool fresh = pages != NULL;
    ist_status status = create_of(device, bytes, what, &pages, out, err);
    bool taken = fresh && !pages;
    ist_pages_close(&pages);
    if (status || taken) return status; /* the system gives pages of zeros */
    void *zeros = calloc(1, bytes);
    status = zeros ? ist_write_at(site, device, (ist_frame_scope){0}, *out, 0, bytes, zeros, true, what, err)
                   : ist_fail(err, IST_E_MEMORY, "%s: out of host memory for %zu bytes", what, bytes);
    free(zeros);
    if (status) ist_buffer_release(device, out);
    return status;
}

ist_status ist_buffer_filled_at(ist_site site, ist_device *device, size_t bytes, const char *what, ist_pages **pages,
                                cl_mem *out, ist_error *err) {
    IST_TRY(create_of(device, bytes, what, pages, out, err));
    if (!*pages) return IST_OK;
    ist_status status =
        ist_write_at(site, device, (ist_frame_scope){0}, *out, 0, bytes, (*pages)->data, true, what, err);
    if (status)
        ist_buffer_release(device, out);
    else
        ist_pages_close(pages);
    return status;
}

ist_status ist_buffer_sub(ist_device *device, cl_mem parent, size_t offset, size_t bytes, const char *what, cl_mem *out,
                          ist_error *err) {
    *out = NULL;
    if (offset % device->alignment)
        return ist_fail(err, IST_E_ARGUMENT, "%s: offset %zu is no multiple of %zu", what, offset, device->alignment);
    size_t whole;
    cl_int rc = clGetMemObjectInfo(parent, CL_MEM_SIZE, sizeof whole, &whole, NULL);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clGetMemObjectInfo", "%s, CL_MEM_SIZE", what);
    if (bytes > whole || offset > whole - bytes) /* not every driver looks */
        return ist_fail(err, IST_E_ARGUMENT, "%s: %zu bytes at %zu of %zu", what, bytes, offset, whole);
    cl_buffer_region region = {offset, bytes};
    cl_mem mem = clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &rc);
    if (rc != CL_SUCCESS) return ist_fail_cl(err, rc, "clCreateSubBuffer", "%s, %zu bytes at %zu", what, bytes, offset);
    *out = mem;
    return IST_OK;
}

/* NVIDIA's driver takes 0.7 ns a byte (580.159.04) to release a window that kernels have written, presumably since it
 * fetches that, unless it knows that nobody wants it. Without that they only take longer, so what the driver says of it
 * is not asked. */
void ist_buffer_forget(ist_device *device, cl_mem buffer) {
    if (!buffer || device->facts.type != IST_DEVICE_GPU) return;
    if (clEnqueueMigrateMemObjects(device->queue, 1, &buffer, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL, NULL) ==
        CL_SUCCESS)
        ist_finish(device, (ist_frame_scope){0}, "release", NULL);
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
    IST_TRY(ist_device_ready(device, err));
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
