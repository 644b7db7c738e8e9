/* Writes a synthetic checkpoint: make_checkpoint MODEL SEED CLASSES OUT.safetensors [CHANNELS]
 *
 * MODEL is n, s, m, l, x, sam or sam_vit_b. SEED g:N stands for golden seed N of that model. CLASSES is ignored for
 * segmenters, CHANNELS are of a detector's images. */
#include "synth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc != 5 && argc != 6) {
        fprintf(stderr, "usage: %s n|s|m|l|x|sam|sam_vit_b SEED|g:SEED CLASSES OUT.safetensors [1|3|4]\n", argv[0]);
        return 2;
    }
    ist_model_kind kind = synth_kind(argv[1]);
    bool golden = !strncmp(argv[2], "g:", 2);
    char *end_seed, *end_classes;
    errno = 0;
    unsigned long long seed = strtoull(argv[2] + (golden ? 2 : 0), &end_seed, 10);
    long classes = strtol(argv[3], &end_classes, 10);
    if (kind == IST_MODEL_UNKNOWN || errno || *end_seed || *end_classes || classes < 1 || classes > 10000) {
        fprintf(stderr, "%s: unknown model \"%s\", seed \"%s\" or classes \"%s\"\n", argv[0], argv[1], argv[2],
                argv[3]);
        return 2;
    }
    ist_error err;
    ist_arch_form form = {.kind = kind, .classes = (int)classes, .size = 640};
    if (argc == 6) form.channels = atoi(argv[5]);
    if (synth_form_checkpoint(&form, golden ? synth_golden_seed(kind, seed) : seed, NULL, NULL, argv[4], &err)) {
        fprintf(stderr, "%s: %s\n", argv[0], err.text);
        return 1;
    }
    return 0;
}
