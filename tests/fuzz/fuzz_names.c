/* libFuzzer: any bytes as a file of class names. */
#include "io/labels.h"

#include "exact_text.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char **names, *text = exact_text(data, size);
    size_t count;
    if (!text) return 0;
    if (!ist_names_parse(text, size, "fuzz", &names, &count, NULL)) {
        for (size_t i = 0; i < count; i++)
            if (!strlen(names[i])) abort();
        ist_names_free(&names, count);
    } else if (names) {
        abort();
    }
    free(text);
    return 0;
}
