/* libFuzzer: any bytes as a BMP, a PNM or a WebP; the first byte chooses the beginning, or leaves it as it is. */
#include "check_image.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char beginnings[8][13] = {"P1", "P2", "P3", "P4", "P5", "P6", "P7", "BM"};
    ist_bitmap b;
    if (size < 3) return 0;
    uint8_t *file = malloc(size - 1);
    if (!file) return 0;
    memcpy(file, data + 1, size - 1);
    if (data[0] < 8) memcpy(file, beginnings[data[0]], 2);
    if (image_decode(file, size - 1, &b)) ist_bitmap_free(&b);
    free(file);
    return 0;
}
