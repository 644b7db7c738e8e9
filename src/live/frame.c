/* See frame.h. */
#include "live/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

ist_live_frame *ist_live_frame_new(const char *device) {
    ist_live_frame *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    atomic_init(&f->references, 1);
    snprintf(f->device, sizeof f->device, "%s", device);
    f->geometry.matrix[0] = f->geometry.matrix[4] = f->geometry.matrix[8] = 1;
    f->geometry.coord = 1;
    return f;
}

void ist_live_frame_place(ist_live_frame *f) {
    f->geometry.size[0] = (uint16_t)f->image.width;
    f->geometry.size[1] = (uint16_t)f->image.height;
    f->geometry.size[2] = 1;
}

ist_live_frame *ist_live_frame_hold(ist_live_frame *f) {
    atomic_fetch_add_explicit(&f->references, 1, memory_order_relaxed);
    return f;
}

void ist_live_frame_drop(void *frame) {
    ist_live_frame *f = frame;
    if (!f || atomic_fetch_sub_explicit(&f->references, 1, memory_order_acq_rel) > 1) return;
    ist_bitmap_free(&f->image);
    free(f->file);
    free(f);
}

uint64_t ist_live_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return ((uint64_t)t.tv_sec << 32) + (((uint64_t)t.tv_nsec << 32) / 1000000000u);
}
