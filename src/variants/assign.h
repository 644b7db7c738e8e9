/* ist_assign of isthmus.h without the argument checks on the engine. */
#ifndef IST_VARIANTS_ASSIGN_H
#define IST_VARIANTS_ASSIGN_H

#include "device/device.h"

/* Checks the matrix, records a plan of its own, makes one write and one read (set-up entries of the ledger), waits.
 * row_to_col gets the column of each row or -1, *total (may be NULL) the sum of the pairs' costs. */
ist_status ist_assign_solve(ist_device *device, const float *cost, int rows, int cols, int ld, int *row_to_col,
                            double *total, ist_error *err);

#endif
