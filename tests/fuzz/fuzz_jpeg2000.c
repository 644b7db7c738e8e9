/* libFuzzer: any bytes as a JPEG 2000 codestream of a picture whose size and samples the first four bytes say. What is
 * decoded is so twice; the survey before it lets nothing pass that takes more than it says. */
#include "io/jpeg2000.h"

#include <sanitizer/allocator_interface.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The most that is allocated at a time. */
static size_t in_use, most_in_use;

static void on_malloc(const volatile void *p, size_t size) {
    (void)p, (void)size;
    in_use = __sanitizer_get_current_allocated_bytes();
    if (in_use > most_in_use) most_in_use = in_use;
}

static void on_free(const volatile void *p) {
    (void)p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int hooked;
    ist_error err = {0};
    if (size < 4) return 0;
    if (!hooked) hooked = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    const ist_jpeg2000_frame frame = {
        .width = 1u + data[0], .height = 1u + data[1], .samples = data[2] & 1 ? 3 : 1, .bits = data[2] & 2 ? 16 : 8};
    const size_t count = frame.width * frame.height * frame.samples * (frame.bits / 8);
    uint8_t *first = malloc(count), *second = malloc(count), *bytes = malloc(size - 4 ? size - 4 : 1);
    if (!first || !second || !bytes) abort();
    memcpy(bytes, data + 4, size - 4);
    memset(first, 1, count);
    memset(second, 2, count);
    most_in_use = 0;
    const size_t before = __sanitizer_get_current_allocated_bytes();
    ist_status status = ist_jpeg2000_decode(bytes, size - 4, "fuzz", &frame, data[3] & 1, first, &err);
    /* beside what lies there, the codestream and what its parts are kept in */
    if (most_in_use > before + ist_jpeg2000_passing(frame) + 64 * size + (1 << 20)) abort();
    if (status && !err.text[0]) abort();
    if (!status && ist_jpeg2000_decode(bytes, size - 4, "fuzz", &frame, data[3] & 1, second, &err)) abort();
    if (!status && memcmp(first, second, count)) abort();
    free(first), free(second), free(bytes);
    return 0;
}
