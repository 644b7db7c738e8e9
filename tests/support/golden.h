/* Results of the published networks (tests/golden/models, described in tests/golden/README.md) and the comparison of a
 * replayed plan's tapped tensors with them. A failing check ends the test. */
#ifndef IST_TESTS_GOLDEN_H
#define IST_TESTS_GOLDEN_H

#include "core/plan.h"
#include "weights/weights.h"

#include <stddef.h>

/* tests/golden/models/MODEL.safetensors; the caller closes it with ist_weights_close. */
ist_weights *golden_open(const char *model);

/* How a tensor's channels lie in the golden file: maps are stored channel by channel, tokens row by row. */
typedef enum golden_layout { GOLDEN_MAP, GOLDEN_TOKENS } golden_layout;

/* Compares the tapped tensor of the same name (one item) with the stored samples, each within
 * max(10 * d, 2e-5 * rms), where d is the largest difference between the published network run in float32 and in
 * float64, and rms that of the tensor. Two float32 runs that sum in different orders differ by a small multiple of d;
 * where d is itself tiny (few operations, friendly values) single roundings of the stored constants remain, and the
 * second bound covers them: it is 170 units in the last place of a typical value. In a plan that stores halves the
 * bound is twice the largest difference of the published network with emulated halves. */
void golden_check(ist_plan *plan, const ist_weights *golden, const char *name, golden_layout layout);

/* The float32 comparison for values already on the host: `got` is h x w pixels of c channels. */
void golden_check_values(const ist_weights *golden, const char *name, golden_layout layout, const float *got,
                         size_t pixels, size_t channels);
/* Where got has only the first `kept` of every item's `rows` tokens. */
void golden_check_first(const ist_weights *golden, const char *name, const float *got, size_t items, size_t rows,
                        size_t kept, size_t channels);

/* The stored integers of NAME; count must match. The caller frees the result. */
int *golden_ints(const ist_weights *golden, const char *name, size_t count);

#endif
