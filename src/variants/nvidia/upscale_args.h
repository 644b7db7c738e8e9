/* What the kernels of SAM's mask upscaling on PTX matrix instructions take by value. */
#ifndef IST_VARIANTS_NVIDIA_UPSCALE_ARGS_H
#define IST_VARIANTS_NVIDIA_UPSCALE_ARGS_H

#include "variants/upscale_args.h"

typedef struct ist_nvidia_upscale_args {
    ist_upscale_args common;
    int prompts;
} ist_nvidia_upscale_args;

#endif
