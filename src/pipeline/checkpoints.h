/* The checkpoints of a frame. Reading them takes about as long as opening a device, so a thread does it meanwhile. */
#ifndef IST_PIPELINE_CHECKPOINTS_H
#define IST_PIPELINE_CHECKPOINTS_H

#include "models/models.h"

/* The checkpoints of an engine being opened; freed once the plan holds their constants. */
typedef struct ist_checkpoints {
    ist_weights *detector, *segmenter;
    ist_checkpoint_info detector_info, segmenter_info;
} ist_checkpoints;

typedef struct ist_reading ist_reading;

/* Begins to read; NULL: no memory. The paths are borrowed until they are read. */
ist_reading *ist_reading_begin(const ist_config *config);
/* Waits until they are read; again: the same. What is in *read is the reading's. */
ist_status ist_reading_wait(ist_reading *reading, ist_checkpoints **read, ist_error *err);
/* Waits, and frees what was read; NULL: nothing. */
void ist_reading_close(ist_reading **reading);

#endif
