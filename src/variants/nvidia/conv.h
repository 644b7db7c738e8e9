/* What the convolutions on matrix instructions of warpgroups share. */
#ifndef IST_VARIANTS_NVIDIA_CONV_H
#define IST_VARIANTS_NVIDIA_CONV_H

#include "variants/conv.h"
#include "variants/defines.h"
#include "variants/variant.h"

/* Whether their kernels can do the problem. */
bool ist_conv_wgmma_takes(const ist_conv_problem *q);
/* Weights [step][blocks of 16 channels][64 halves] as nvidia/wgmma reads them, bias [blocks of 16 channels]; false,
 * and the plan failed, when they are too large. */
bool ist_conv_wgmma_pack(ist_plan *p, const ist_conv_problem *q, int blocks, ist_tensor *weights, ist_tensor *bias);
/* Of a 1x1 convolution rows that repeat others are left out: which these are. Of others none. */
const ist_padding_reuse *ist_conv_leave_out(ist_conv *q);
/* What compilers are told of addends and of the affine block (cl/nvidia/conv_parts). */
void ist_conv_wgmma_define(ist_defines *d, const ist_conv_problem *q);
/* The fastest tile for the problem, as it is estimated; *groups: of the launch. */
const ist_variant *ist_conv_wgmma_best(const ist_plan *p, const ist_conv_problem *q, int *groups);
/* A 1x1 convolution of channels side by side, the first of which come from `top`, a map of half the height and width
 * that is upsampled (nearest): q->x has the others, q->f reads both, and q->o has no addends. top.c is a multiple of 64.
 */
void ist_conv_wgmma_with_top(ist_plan *p, const ist_conv_problem *q, ist_tensor top);
/* 64-channel steps of a tile. */
int ist_conv_wgmma_steps(const ist_conv_problem *q);

#endif
