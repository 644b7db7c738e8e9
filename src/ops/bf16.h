/* Weights for isa/amx. */
#ifndef IST_OPS_BF16_H
#define IST_OPS_BF16_H

#include "ops/ops.h"

#include <stdint.h>

/* Columns and depth of a panel's step (isa/amx). */
enum { IST_AMX_BLOCK = 32, IST_AMX_DEPTH = 32 };

/* Weights for isa/amx: [out / 32][tap][in / 32][half of the columns][pair][16] of pairs of bfloat16, the pair's first
 * input in the lower half, with zeros beyond the last output and input. How many pairs, 0 where that is too many. */
size_t ist_amx_pairs(const ist_filter *f);
void ist_amx_pack(const ist_filter *f, uint32_t *dst);
/* The same as a constant; fails the plan where memory or sizes do not suffice. */
ist_tensor ist_amx_matrix(ist_plan *p, const ist_filter *f, const char *label);

/* Whether the device's AMX computes, not its emulation: -DASM. */
static inline bool ist_amx_instructions(const ist_plan *p) {
    const unsigned need = IST_CAP_X86_BF16 | IST_CAP_X86_AMX;
    return (ist_device_probed(ist_plan_device(p)) & need) == need;
}

#endif
