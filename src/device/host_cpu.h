/* What the processor that runs this can do beyond what OpenCL says of it. Kernels with such instructions must not be
 * run elsewhere, not even to see whether they work. */
#ifndef IST_DEVICE_HOST_CPU_H
#define IST_DEVICE_HOST_CPU_H

#include <stdbool.h>

/* AVX512_BF16. */
bool ist_host_bf16(void);

/* AMX with bfloat16, and AVX512_BF16, whose rounding cpu/amx uses. Asks the system for leave to use the tiles'
 * registers, which it then grants to all threads of this process (Linux 5.16; documented under arch/x86/xstate); false
 * where it does not. */
bool ist_host_amx(void);

#endif
