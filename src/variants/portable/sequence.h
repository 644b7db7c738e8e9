/* What sequences on GPUs have in common on all machines. */
#ifndef IST_VARIANTS_PORTABLE_SEQUENCE_H
#define IST_VARIANTS_PORTABLE_SEQUENCE_H

#include "variants/span.h"
#include "variants/tape.h"

/* Whether rows are few and fit local memory. */
bool ist_tape_takes(const ist_plan *p, const ist_variant *v, const void *span);
bool ist_tape_pack(struct ist_sequence *s, ist_step *step);

/* Launches of steps [first, end), by cl/portable/sequence. */
void ist_tape_launch_sequence(ist_plan *plan, struct ist_sequence *s, size_t first, size_t end, ist_tensor weights,
                              ist_tensor table, const char *label);

/* Float4 of local memory that a group has its rows in, and bytes of local memory in all. */
enum { IST_TAPE_OUTPUTS = 1024, IST_TAPE_SLOTS = 2900, IST_TAPE_LOCAL_BYTES = 16 * IST_TAPE_SLOTS + 1280 };
/* A form with these parts before cl/portable/sequence. */
#define IST_TAPE_FORM(parts)                                                                                           \
    {.vector = 4,                                                                                                      \
     .outputs = IST_TAPE_OUTPUTS,                                                                                      \
     .config = (parts),                                                                                                \
     .pack = ist_tape_pack,                                                                                            \
     .launch = ist_tape_launch_sequence}
/* The form of every GPU. */
extern const ist_sequence_form ist_tape_sequence;

#endif
