/* How an epilogue reaches the kernels of the convolution family: two ints of flags and addend layouts (the EPI_* of
 * cl/prelude.cl). */
#ifndef IST_VARIANTS_EPILOGUE_H
#define IST_VARIANTS_EPILOGUE_H

#include "core/plan.h"
#include "graph/nodes.h"

enum {
    IST_EPI_BEFORE = 1,
    IST_EPI_BEFORE_UP2 = 2,
    IST_EPI_BEFORE_ONE = 4,
    IST_EPI_LAB = 8,
    IST_EPI_AFTER = 16,
    IST_EPI_AFTER_ONE = 32
};

/* Checks the addends against the result; false and the plan failed when they do not fit. */
bool ist_epilogue_check(ist_plan *p, const ist_epilogue *e, ist_tensor y, const char *label);
/* {act, flags, before.ld, before.c0, after.ld, after.c0, 0, 0} and {lab scale, lab bias, 0, 0}. */
ist_arg ist_epilogue_ints(const ist_epilogue *e, ist_tensor y);
ist_arg ist_epilogue_lab(const ist_epilogue *e);

#endif
