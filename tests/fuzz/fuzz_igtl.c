/* libFuzzer: any bytes as what comes over an OpenIGTLink connection. The first byte says in which pieces it comes;
 * where a checksum is wrong the image is looked at all the same, since no input would ever guess one. */
#include "live/igtl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const ist_igtl_reader *r, ist_igtl_canvas *canvas) {
    ist_live_frame *frame;
    if (ist_igtl_image(r, canvas, &frame, NULL)) {
        if (frame) abort();
        return;
    }
    const ist_live_geometry *g = &frame->geometry;
    if ((uint64_t)g->size[0] * g->size[1] * g->size[2] != (uint64_t)frame->image.width * (uint64_t)frame->image.height)
        abort();
    unsigned sum = 0;
    const unsigned char *p = frame->image.pixels;
    for (size_t i = 0; i < frame->image.stride * (size_t)frame->image.height; i++) sum += p[i];
    if (sum == 1) frame->timestamp++; /* the pixels are read */
    ist_live_frame_drop(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ist_igtl_reader r = {0};
    ist_igtl_canvas canvas = {0};
    ist_igtl_event event = IST_IGTL_MORE;
    size_t step = size ? (size_t)(data[0] >> 1) * 8 + 1 : 1;
    for (size_t at = 1; at < size && event != IST_IGTL_BROKEN;) {
        size_t room;
        void *to = ist_igtl_room(&r, &room);
        if (!to) break;
        size_t n = size - at < step ? size - at : step;
        if (n > room) n = room;
        memcpy(to, data + at, n);
        at += n;
        event = ist_igtl_filled(&r, n, NULL);
        bool image = event == IST_IGTL_IMAGE || (event == IST_IGTL_BAD_CRC && r.wanted);
        if (image && r.body_size <= r.capacity) look(&r, &canvas);
        if (r.capacity > 4 * size + (1 << 17)) abort();
    }
    ist_igtl_reader_free(&r);
    ist_bitmap_free(&canvas.image);
    return 0;
}
