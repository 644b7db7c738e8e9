/* libFuzzer: any bytes as a file of prompts, as one prompt and as a NumPy file of logits. */
#include "io/npy.h"
#include "io/prompts.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_prompts(const char *text, size_t size) {
    ist_prompt_file prompts;
    if (ist_prompt_file_parse(text, size, "folder/fuzz", &prompts, NULL)) {
        if (prompts.count || prompts.lists) abort();
        return;
    }
    if (prompts.count > size) abort();
    ist_prompt_file_find(&prompts, "in/a.png", "a.png");
    for (size_t i = 0; i < prompts.count; i++)
        for (size_t k = 0; k < prompts.lists[i].count; k++) {
            const ist_prompt_entry *p = &prompts.lists[i].items[k];
            if (p->point_count > IST_PROMPT_POINTS || !(p->point_count || p->boxed || p->mask)) abort();
        }
    ist_prompt_file_free(&prompts);
}

static void try_prompt(const char *text, size_t size) {
    ist_prompt_entry p;
    if (ist_prompt_parse(text, size, "fuzz", &p, NULL)) {
        if (p.points || p.mask) abort();
        return;
    }
    if (p.point_count > IST_PROMPT_POINTS || !(p.point_count || p.boxed) || p.mask) abort();
    ist_prompt_entry_free(&p);
}

static void try_npy(const char *bytes, size_t size) {
    ist_npy map;
    if (ist_npy_parse(bytes, size, "fuzz", &map, NULL)) {
        if (map.values) abort();
        return;
    }
    if ((size_t)map.width * (size_t)map.height * sizeof(float) > size) abort();
    ist_npy_free(&map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size ? size : 1); /* exactly as long as it claims */
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    try_prompts(text, size);
    try_prompt(text, size);
    try_npy(text, size);
    free(text);
    return 0;
}
