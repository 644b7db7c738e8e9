/* The tape of a sequence on CPUs: WORDS ints per step, read by cl/cpu/sequence.cl, which gets these numbers as
 * codes/sequence_cpu. */
#ifndef IST_VARIANTS_CPU_SEQUENCE_TAPE_H
#define IST_VARIANTS_CPU_SEQUENCE_TAPE_H

#include "variants/sequence_steps.h"

/* 0: operator, 1: columns of the result, 2: activation or mode; then places of three ints {tensor, first element, elements
 * per row}: OUT the result, A, B, C operands, WHOLE a second result or what is read at any row; from NUMBERS on numbers of
 * the operator. OUTSIDE: tensors that are arguments. */
enum ist_cpu_word { OUT = 4, A = 7, B = 10, C = 13, WHOLE = 16, NUMBERS = 20, OUTSIDE = 20, WORDS = 32 };

/* With a tensor's number (0: scratch, none below 0). ONE_ITEM: one item for all; RING: four lines of a map in scratch, line
 * l at l % 4. */
enum ist_cpu_tensor { ONE_ITEM = 256, RING = 512 };

/* Beside those of ist_step_op, which kernels get without IST_STEP_: a linear layer on the matrix unit. */
enum ist_cpu_step { LINEAR_PARTS = IST_STEP_DEPTHWISE + 1 };

/* Of SUM's second operand. */
enum ist_cpu_sum_flag { PRESENT = 1, ONE_COLUMN = 2, CLAMPED = 8 };

#endif
