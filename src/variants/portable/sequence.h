/* What sequences on GPUs have in common on all machines. */
#ifndef IST_VARIANTS_PORTABLE_SEQUENCE_H
#define IST_VARIANTS_PORTABLE_SEQUENCE_H

#include "variants/span.h"
#include "variants/tape.h"

/* Whether rows are few and fit local memory. */
bool ist_tape_takes(const ist_plan *p, const ist_variant *v, const void *span);
bool ist_tape_pack(struct ist_sequence *s, ist_step *step);

/* The form of every GPU, and the one with PTX's copies. */
extern const ist_sequence_form ist_tape_sequence, ist_tape_sequence_ptx;

#endif
