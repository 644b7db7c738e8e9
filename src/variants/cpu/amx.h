/* Weights for cpu/amx. */
#ifndef IST_VARIANTS_AMX_H
#define IST_VARIANTS_AMX_H

#include "core/plan.h"
#include "graph/nodes.h"

#include <stdint.h>

/* Columns and depth of a panel's step, parts of bfloat16 that hold a float (cpu/amx). */
enum { IST_AMX_BLOCK = 32, IST_AMX_DEPTH = 32, IST_AMX_PARTS = 3 };

/* Parts of bfloat16 that a float becomes on AMX: three, which hold all of it, or one where the plan is narrow. */
static inline int ist_amx_parts(const ist_plan *p) {
    return ist_plan_bf16(p) ? 1 : IST_AMX_PARTS;
}

/* Weights for cpu/amx: [out / 32][tap][in / 32][part][half of the columns][pair][16] of pairs of bfloat16, of
 * inputs i and i + 16 of a step with the first in the lower half, with zeros beyond the last output and input. Each
 * part is the rounded rest of those before. How many pairs, 0 where that is too many. */
size_t ist_amx_pairs(const ist_filter *f, int parts);
void ist_amx_pack(const ist_filter *f, int parts, uint32_t *dst);
/* The same as a constant, in as many parts as the plan asks for; fails the plan where memory or sizes do not suffice.
 */
ist_tensor ist_amx_matrix(ist_plan *p, const ist_filter *f, const char *label);

/* Whether the device's AMX computes, not its emulation: -DASM. */
static inline bool ist_amx_instructions(const ist_plan *p) {
    return ist_device_probed(ist_plan_device(p)) & IST_CAP_X86_AMX;
}

#endif
