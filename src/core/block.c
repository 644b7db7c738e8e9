/* Pages of constants, state and arena of a plan as one buffer, without windows (device/ptx.h): a driver that looks
 * after each buffer among the arguments of a launch has one to look after. */
#include "core/plan_internal.h"

#include "base/mem.h"
#include "device/ptx.h"

#include <stdlib.h>

enum { BESIDE = 4096 }; /* bytes: constants of one launch with no more between are one run */

/* Where the pages from `page` on begin: behind those before it, which come first. */
static size_t page_at(const ist_plan *p, size_t page) {
    size_t at = 0;
    for (size_t i = 0; i < page; i++) at += ist_align_up(p->pages[i].used, ist_device_alignment(p->device));
    return at;
}

static ist_status upload_pages(ist_plan *p, ist_error *err) {
    for (size_t i = 0; i < p->page_count; i++) {
        ist_plan_page *page = &p->pages[i];
        IST_TRY(ist_write(p->device, (ist_frame_scope){0}, p->block, page_at(p, i), page->used, page->host->data, true,
                          "weights", err));
        ist_pages_close(&page->host);
    }
    return IST_OK;
}

static ist_status zero_state(ist_plan *p, size_t at, size_t bytes, ist_error *err) {
    if (!bytes) return IST_OK;
    void *zeros = calloc(1, bytes);
    if (!zeros) return ist_fail(err, IST_E_MEMORY, "plan: out of host memory for %zu bytes", bytes);
    ist_status st =
        ist_write(p->device, (ist_frame_scope){0}, p->block, at, bytes, zeros, true, "persistent state", err);
    free(zeros);
    return st;
}

ist_status ist_plan_create_block(ist_plan *p, ist_error *err) {
    size_t state = page_at(p, p->page_count), state_bytes = ist_plan_place_state(p);
    p->arena_at = state + state_bytes;
    size_t bytes = p->arena_at + p->arena_size.peak;
    if (!bytes) return IST_OK;
    IST_TRY(ist_buffer_create(p->device, bytes, "weights and arena", &p->block, err));
    for (size_t i = 0; i < p->buffer_count; i++) {
        ist_plan_buffer *b = &p->buffers[i];
        bool used = b->home == IST_HOME_PERSISTENT || b->first >= 0;
        if (b->home == IST_HOME_EXTERNAL || !used) continue;
        b->mem = p->block;
        b->at = b->offset + (b->home == IST_HOME_ARENA        ? p->arena_at
                             : b->home == IST_HOME_PERSISTENT ? state
                                                              : page_at(p, (size_t)b->page));
    }
    IST_TRY(upload_pages(p, err));
    return zero_state(p, state, state_bytes, err);
}

/* ---- what launches bring into the device's cache ---- */

/* The launch behind n on its lane, as ist_plan_replay_for has them; the number of launches: none. */
static size_t next_of(const ist_plan *p, size_t n) {
    if (ist_plan_branches(p) && (int)n + 1 == p->side) return (size_t)p->join;
    if (ist_plan_branches(p) && (int)n + 1 == p->join) return (size_t)ist_plan_meet(p);
    return n + 1;
}

static const ist_plan_buffer *constant(const ist_plan *p, const ist_arg *a) {
    if (a->kind != IST_ARG_IN || !ist_has(a->tensor)) return NULL;
    const ist_plan_buffer *b = ist_plan_buffer_of(p, a->tensor);
    return b->home == IST_HOME_CONST ? b : NULL;
}

/* From the first to the last byte of the constants of launch n that lie beside its largest, the weights: what is recorded
 * for one launch follows each other. None: the same place. */
static void constants_of(const ist_plan *p, size_t n, size_t *at, size_t *end) {
    const ist_launch *l = &p->nodes[n].launch;
    *at = *end = 0;
    for (int i = 0; i < l->arg_count; i++) {
        const ist_plan_buffer *b = constant(p, &l->args[i]);
        if (b && b->bytes > *end - *at) *at = b->at, *end = b->at + b->bytes;
    }
    for (int i = 0; i < l->arg_count; i++) {
        const ist_plan_buffer *b = constant(p, &l->args[i]);
        if (!b || b->at > *end + BESIDE || b->at + b->bytes + BESIDE < *at) continue;
        if (b->at < *at) *at = b->at;
        if (b->at + b->bytes > *end) *end = b->at + b->bytes;
    }
}

ist_status ist_plan_set_block(ist_plan *p, size_t n, ist_error *err) {
    const ist_launch *l = &p->nodes[n].launch;
    cl_kernel kernel = p->nodes[n].kernel;
    size_t groups = 1, at = 0, end = 0, next = next_of(p, n);
    for (int i = 0; i < l->dims && i < 2; i++) groups *= l->global[i] / l->local[i];
    if (next < p->node_count) constants_of(p, next, &at, &end);
    cl_ulong ahead = ist_ptx_ahead(at, end, p->arena_at + p->arena_size.peak, groups);
    cl_int code = clSetKernelArg(kernel, 0, sizeof p->block, &p->block);
    if (code == CL_SUCCESS) code = clSetKernelArg(kernel, (cl_uint)l->arg_count + 1, sizeof ahead, &ahead);
    if (code != CL_SUCCESS) return ist_fail_cl(err, code, "clSetKernelArg", "%s (%s), block", l->label, l->kernel);
    return IST_OK;
}
