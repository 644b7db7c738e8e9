/* How kernels divide by a number known before the launch (variants/divider.h). */
#ifndef IST_VARIANTS_DIVIDER_ARGS_H
#define IST_VARIANTS_DIVIDER_ARGS_H

/* Multiplier and shift with which n / d = n * multiplier >> shift for 0 <= n < 2^31 (Granlund and Montgomery 1994). */
typedef struct ist_divider {
    int multiplier, shift;
} ist_divider;

#endif
