/* Masks: low-resolution logits -> bits at the image's size, and the packet that carries everything home.
 *
 * The mask store is an external buffer of capacity P * IST_UP_STORE_WORDS words (P = batch * max_objects): object k
 * owns words from k * store_words, column x of its image ceil(H / 32) words, bit r of word j is row 32 j + r. It also
 * receives the masks that do not fit the packet, so it must stay untouched until the host has seen the packet: one per
 * frame in flight. */
#ifndef IST_OPS_MASK_H
#define IST_OPS_MASK_H

#include "ops/detect.h"

/* logits F32 [P, 256, 256, 1] (any view with 65536 consecutive values per prompt): two bilinear steps 256 -> 1024 ->
 * crop -> image (op/mask), bits logit > 0, and the counts behind area, box and stability. Returns partial statistics
 * for ist_op_pack, I32. Honours detections.total by itself. */
ist_tensor ist_op_masks(ist_plan *p, ist_tensor logits, ist_tensor upload, const ist_detections *det, ist_tensor store,
                        const char *label);

typedef struct ist_pack_inputs {
    const ist_detections *det;
    ist_tensor match; /* I32 [batch, 1, max_objects, 2] of ist_op_match_*: match, bits of its IoU; empty: none */
    ist_tensor stats; /* of ist_op_masks; empty: no segmenter, all mask fields 0 */
    ist_tensor score; /* F32 or T [P, 1, 1, 1] view (a channel slice is fine): the segmenter's IoU estimate */
    ist_tensor upload, store, packet; /* external buffers; store empty without a segmenter */
} ist_pack_inputs;

/* Fills the packet (frame.h). The packet holds ist_packet_masks_at(batch, max_objects) + upload[IST_UP_PACKET_WORDS]
 * words. */
void ist_op_pack(ist_plan *p, const ist_pack_inputs *in, const char *label);

#endif
