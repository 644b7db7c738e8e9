/* Judging tracks behind the packet (cl/portable/trust.cl): eight launches after the frame's own, which read its packet,
 * masks and pixels and what they have kept of the frames before, and write records behind the packet's logits. */
#ifndef IST_PIPELINE_TRUST_H
#define IST_PIPELINE_TRUST_H

#include "pipeline/engine.h"

/* IST_E_UNSUPPORTED on a device without 64-bit integers. *stage is the engine's. */
ist_status ist_trust_open(ist_engine *engine, const ist_trust_options *options, ist_trust_stage **stage,
                          ist_error *err);
void ist_trust_close(ist_engine *engine, ist_trust_stage **stage);

/* Words of the packet behind its logits: records, and weights behind those, of an image of that size. */
size_t ist_trust_record_words(const ist_trust_stage *stage);
size_t ist_trust_weight_words(const ist_trust_stage *stage, int width, int height);
/* Whether the weights are read back. */
bool ist_trust_reads_weights(const ist_trust_stage *stage);

/* Room to keep an image of that size; a larger one than any before forgets what was kept. */
ist_status ist_trust_reserve(ist_engine *engine, ist_trust_stage *stage, int width, int height, ist_error *err);

/* Enqueues them for the slot's batch; `reset` forgets all tracks before. */
ist_status ist_trust_enqueue(ist_engine *engine, ist_trust_stage *stage, const ist_slot *slot, const ist_image *image,
                             bool reset, ist_error *err);
/* The batch has been enqueued whole: the next one goes on from it. */
void ist_trust_advance(ist_trust_stage *stage);

/* What the packet that has landed says, into the slot's frame. */
ist_status ist_trust_unpack(const ist_engine *engine, const ist_trust_stage *stage, ist_slot *slot, ist_error *err);

#endif
