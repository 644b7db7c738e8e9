/* The input as a PyTorch file of the format before 1.6, behind its magic number and version, which no input has to
 * guess: byte order, object, keys and storages. */
#include "read_weights.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static const uint8_t head[] = {0x80, 2,    0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a,
                                   0xa8, 0x50, 0x19, '.',  0x80, 2,    'M',  0xe9, 3,    '.'};
    uint8_t *whole = malloc(sizeof head + size);
    if (!whole) abort();
    memcpy(whole, head, sizeof head);
    if (size) memcpy(whole + sizeof head, bytes, size);
    read_weights(whole, sizeof head + size);
    free(whole);
    return 0;
}
