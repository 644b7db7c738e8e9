/* libFuzzer: any bytes as an image file. The limit is small so that memory stays small. */
#include "io/image.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ist_bitmap bitmap;
    if (ist_bitmap_decode(data, size, "fuzz", 1 << 16, &bitmap, NULL)) {
        if (bitmap.pixels) abort();
        return 0;
    }
    /* copies every byte that the bitmap promises, for the address sanitizer to see */
    size_t bytes = bitmap.stride * (size_t)bitmap.height;
    void *copy = malloc(bytes);
    if (copy) memcpy(copy, bitmap.pixels, bytes);
    free(copy);
    ist_bitmap_free(&bitmap);
    return 0;
}
