/* bfloat16 on the host, and weights for isa/amx. */
#ifndef IST_OPS_BF16_H
#define IST_OPS_BF16_H

#include "ops/ops.h"

#include <stdint.h>
#include <string.h>

/* To nearest, ties to even, as the instructions round what is not subnormal. */
static inline uint32_t ist_bf16_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u) return u >> 16 | 0x40u;
    return (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}

/* Columns and depth of a panel's step (isa/amx). */
enum { IST_AMX_BLOCK = 32, IST_AMX_DEPTH = 32 };

/* Parts of bfloat16 that a float becomes on AMX: as many as make it up, or one where the plan is narrow. */
static inline int ist_amx_parts(const ist_plan *p) {
    return ist_plan_bf16(p) ? 1 : 3;
}

/* One weight split into dst[p * IST_AMX_BLOCK * IST_AMX_DEPTH] for part p: each the rounded rest of those before. */
static inline void ist_amx_split(float w, int parts, uint16_t *dst) {
    for (int p = 0; p < parts; p++, dst += IST_AMX_BLOCK * IST_AMX_DEPTH) {
        uint32_t h = ist_bf16_of(w), u = h << 16;
        float part;
        memcpy(&part, &u, sizeof part);
        *dst = (uint16_t)h;
        w -= part;
    }
}

/* A matrix [out][in] as a constant [out / 32][in / 32][part][half of the columns][pair][16] of pairs, with zeros beyond
 * the last output and input; fails the plan where memory or sizes do not suffice. */
ist_tensor ist_amx_matrix(ist_plan *p, const ist_filter *f, const char *label);

/* Whether the device's AMX computes, not its emulation: -DASM. */
static inline bool ist_amx_instructions(const ist_plan *p) {
    return ist_device_probed(ist_plan_device((ist_plan *)p)) & IST_CAP_X86_AMX;
}

#endif
