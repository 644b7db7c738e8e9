/* A frame of a result that outlives it, in one block: objects, trust and mask words; no low-resolution logits, and no maps of
 * what trust has measured. */
#ifndef FRAME_COPY_H
#define FRAME_COPY_H

#include "isthmus.h"

size_t frame_copy_bytes(const ist_frame *frame);

/* `block` has as many bytes and is aligned as malloc does it. */
void frame_copy(const ist_frame *frame, void *block, ist_frame *copy);

#endif
