/* Rows of a map that are alike. A letterboxed picture fills the upper rows of a network's input; below it layers near
 * the input see nothing but padding, and make the same row over and over. Operators that know where copy such rows. */
#ifndef IST_OPS_ALIKE_H
#define IST_OPS_ALIKE_H

#include "core/plan.h"

/* Of item n, rows from ceil(content[n] / step) + above on have the same bits, but for the last `below`. */
typedef struct ist_alike {
    ist_tensor content; /* I32 [1,1,n,1]: rows of the picture in the network's input; empty: nothing is known */
    int step, above, below;
} ist_alike;

/* Rows of what an operator that treats all rows in the same way makes of a map with `h` rows of which those of `in` are
 * alike: of windows of three rows, `stride` apart, with a row of zeros above. No more than these, perhaps fewer. */
ist_alike ist_alike_behind(ist_alike in, int h, int stride);
/* For isa/alike: {ints from item to item, first int, step, above, end} of a map with `h` rows. */
ist_arg ist_alike_ints(ist_alike a, int h);

#endif
