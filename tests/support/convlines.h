/* Cases for rows that cpu/conv_lines lays out the input for: cpu/conv_bf16 and cpu/conv_amx. */
#ifndef IST_TESTS_CONVLINES_H
#define IST_TESTS_CONVLINES_H

#include "variants/conv_rows.h"
#include "support/convtest.h"

/* Claims the capabilities `caps` ("+A,+B") besides what ISTHMUS_CAPS says, for plans that round to bfloat16 or that do
 * not: where the processor lacks them, the kernels compute in plain OpenCL what its instructions do. */
void convlines_claim(const char *caps, bool rounds);
/* The next row from *index on of the family that a plan runs which may round or not, or NULL; *index goes behind it. */
const ist_conv_row *convlines_row(ist_conv_family family, bool rounds, int *index);

/* Each runs its cases on the row against the scalar definition, of rounded operands where the row rounds them: shapes
 * of every kind; random ones; limits that leave items untouched. */
void convlines_shapes(const ist_conv_row *row, bool rounds);
void convlines_random(const ist_conv_row *row, bool rounds);
void convlines_limits(const ist_conv_row *row, bool rounds);

/* The family of the row that the heuristic takes for a 3x3 convolution of `in` channels on a size x size map. */
ist_conv_family convlines_chosen(bool narrow, int in, int size);

#endif
