/* How an epilogue reaches the kernels of the convolution family (epilogue_args.h). */
#ifndef IST_VARIANTS_EPILOGUE_H
#define IST_VARIANTS_EPILOGUE_H

#include "core/plan.h"
#include "graph/nodes.h"
#include "variants/epilogue_args.h"

/* Checks the addends against the result; false and the plan failed when they do not fit. */
bool ist_epilogue_check(ist_plan *p, const ist_epilogue *e, ist_tensor y, const char *label);
ist_epilogue_args ist_epilogue_args_of(const ist_epilogue *e, ist_tensor y);

#endif
