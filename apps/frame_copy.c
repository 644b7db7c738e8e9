/* See frame_copy.h. */
#include "frame_copy.h"

#include <string.h>

static size_t words_of(const ist_mask *mask) {
    return (size_t)mask->columns * (size_t)mask->words;
}

size_t frame_copy_bytes(const ist_frame *frame) {
    size_t words = 0;
    for (int i = 0; i < frame->object_count; i++) words += words_of(&frame->objects[i].mask);
    return (size_t)frame->object_count * sizeof(ist_object) + (size_t)frame->trust_count * sizeof(ist_trust) +
           words * sizeof(uint32_t);
}

void frame_copy(const ist_frame *frame, void *block, ist_frame *copy) {
    ist_object *objects = block;
    ist_trust *trust = (ist_trust *)(void *)(objects + frame->object_count);
    uint32_t *bits = (uint32_t *)(void *)(trust + frame->trust_count);
    *copy = *frame;
    copy->objects = objects;
    copy->trust = trust;
    if (frame->trust_count) memcpy(trust, frame->trust, (size_t)frame->trust_count * sizeof *trust);
    for (int i = 0; i < frame->object_count; i++) {
        const ist_mask *mask = &frame->objects[i].mask;
        objects[i] = frame->objects[i];
        objects[i].mask.bits = bits;
        objects[i].low_res = NULL;
        if (words_of(mask)) memcpy(bits, mask->bits, words_of(mask) * sizeof *bits);
        bits += words_of(mask);
    }
}
