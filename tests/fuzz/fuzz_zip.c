/* The input as a PyTorch zip archive: the container, its pickle and its storages at once. */
#include "read_weights.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size >= 4 && !memcmp(bytes, "PK", 2)) read_weights(bytes, size);
    return 0;
}
