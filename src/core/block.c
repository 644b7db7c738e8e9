/* Pages of constants, state and arena of a plan as one buffer, without windows (device/ptx.h): a driver that looks
 * after each buffer among the arguments of a launch has one to look after. */
#include "core/plan_internal.h"

#include "base/mem.h"

#include <stdlib.h>

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
