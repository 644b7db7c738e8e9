/* libFuzzer: any bytes as an image file. */
#include "check_image.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ist_bitmap bitmap;
    if (image_decode(data, size, &bitmap)) ist_bitmap_free(&bitmap);
    return 0;
}
