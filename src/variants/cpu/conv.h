/* What the convolutions of CPUs know of each other: they share the work of a frame, and each leaves to others what those
 * do in fewer cycles. */
#ifndef IST_VARIANTS_CPU_CONV_H
#define IST_VARIANTS_CPU_CONV_H

#include "variants/conv.h"
#include "variants/variant.h"

extern const ist_family ist_cpu_conv, ist_cpu_conv_parts;

/* Cycles of a core for all of a problem by the cheapest register tile (cpu/conv.c) that the device can run, of one item:
 * an item's result must not depend on those beside it, so that which kind of sum it is cannot either. */
double ist_conv_panels_cycles(const ist_plan *p, const ist_conv *q);
/* The same on the matrix unit in three parts (cpu/conv_amx.c); HUGE_VAL where there is none, or register tiles are
 * better. */
double ist_conv_parts_cycles(const ist_plan *p, const ist_conv *q);
/* By Winograd's algorithm (cpu/winograd.c); HUGE_VAL where it does not fit or does not win over register tiles. */
double ist_winograd_cycles(const ist_plan *p, const ist_conv *q);

/* A cost below that of any register tile for the same problem, rising with `cycles`: whether another kind of sum is taken
 * has been decided for one item, or by the plan's precision. */
double ist_conv_below_panels(const ist_plan *p, const ist_conv *q, double cycles);

#endif
