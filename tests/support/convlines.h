/* Cases for variants that cpu/conv_lines lays out the input for: cpu/conv_bf16 and cpu/conv_amx. */
#ifndef IST_TESTS_CONVLINES_H
#define IST_TESTS_CONVLINES_H

#include "support/convtest.h"

/* Claims the capabilities `caps` ("+A,+B") besides what ISTHMUS_CAPS says, for plans that round to bfloat16 or that do
 * not: where the processor lacks them, the kernels compute in plain OpenCL what its instructions do. */
void convlines_claim(const char *caps, bool rounds);
/* The next variant from *index on that needs `needs` and is for plans that round, or that do not, whichever runs; NULL:
 * there is none. *index goes behind it. */
const ist_variant *convlines_next(unsigned needs, bool rounds, int *index);

/* Each runs its cases on the variant against the scalar definition, of rounded operands where the variant rounds them:
 * shapes of every kind; random ones; limits that leave items untouched. */
void convlines_shapes(const ist_variant *v, bool rounds);
void convlines_random(const ist_variant *v, bool rounds);
void convlines_limits(const ist_variant *v, bool rounds);

/* The variant that is chosen for a 3x3 convolution of `in` channels on a size x size map. */
const ist_variant *convlines_chosen(bool narrow, int in, int size);
/* Whether its name begins so. */
bool convlines_is(const ist_variant *v, const char *prefix);

#endif
