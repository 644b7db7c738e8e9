/* A launch with these arguments, for kernels that share all else. */
#ifndef IST_VARIANTS_PORTABLE_LAUNCH_WITH_H
#define IST_VARIANTS_PORTABLE_LAUNCH_WITH_H

#include "core/plan.h"

#include <string.h>

#define LAUNCH_WITH(p, launch, ...)                                                                                    \
    do {                                                                                                               \
        const ist_arg args_[] = {__VA_ARGS__};                                                                         \
        memcpy((launch).args, args_, sizeof args_);                                                                    \
        (launch).arg_count = (int)(sizeof args_ / sizeof *args_);                                                      \
        ist_plan_launch(p, &(launch));                                                                                 \
    } while (0)

#endif
