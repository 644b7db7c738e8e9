/* libFuzzer: any bytes behind the marker that begins a JPEG. What the library decodes without a complaint must come out
 * equal; what it complains about is refused, or mended first (io/image_jpeg.c), and then is whole. */
#include "check_image.h"

#include <stdint.h>
#include <turbojpeg.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* By the library alone; false when it says anything. */
static bool reference(const uint8_t *file, size_t size, const ist_bitmap *b, uint8_t *pixels) {
    tjhandle handle = tjInitDecompress();
    int width, height, sampling, space;
    bool read = handle && !tjDecompressHeader3(handle, file, (unsigned long)size, &width, &height, &sampling, &space) &&
                width == b->width && height == b->height &&
                !tjDecompress2(handle, file, (unsigned long)size, pixels, width, (int)b->stride, height,
                               b->format == IST_GRAY8 ? TJPF_GRAY : TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS);
    if (handle) tjDestroy(handle);
    return read;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ist_bitmap b;
    uint8_t *file = malloc(size + 2), *pixels = NULL;
    if (!file) return 0;
    file[0] = 0xFF;
    file[1] = 0xD8;
    if (size) memcpy(file + 2, data, size);
    if (image_decode(file, size + 2, &b)) {
        pixels = malloc(b.stride * (size_t)b.height);
        if (pixels && reference(file, size + 2, &b, pixels) && memcmp(pixels, b.pixels, b.stride * (size_t)b.height))
            abort();
        ist_bitmap_free(&b);
    }
    free(pixels);
    free(file);
    return 0;
}
