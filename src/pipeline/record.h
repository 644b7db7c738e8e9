/* The frame of an engine: a graph of both networks and what is around them, lowered into the engine's plan. */
#ifndef IST_PIPELINE_RECORD_H
#define IST_PIPELINE_RECORD_H

#include "pipeline/checkpoints.h"
#include "pipeline/engine.h"

/* From image to embedding, and from embedding and given prompts to packet: two plans, so that the second can be
 * replayed by itself. For masks of everything there are more behind the encoder: a batch of points, which masks are kept,
 * small regions of those, the packet. For images in tiles: automatic windows, the detector on a tile, what stays of all, the
 * packet. Everything else is one. */
typedef enum ist_frame_part {
    IST_FRAME_WHOLE,
    IST_FRAME_ENCODER,
    IST_FRAME_DECODER,
    IST_FRAME_POINTS,
    IST_FRAME_SELECTION,
    IST_FRAME_CLEANING,
    IST_FRAME_PACKING,
    IST_FRAME_WINDOWS,
    IST_FRAME_TILE,
    IST_FRAME_MERGING,
    IST_FRAME_TILED
} ist_frame_part;

/* Records into `plan`, whose failure it is when a model cannot be recorded. keep: a byte per class, NULL for all.
 * `kept`: somebody reads all tensors. Fails without memory. */
ist_status ist_frame_record(ist_engine *e, ist_plan *plan, ist_frame_part part, const ist_checkpoints *c,
                            const unsigned char *keep, bool kept, ist_error *err);

#endif
