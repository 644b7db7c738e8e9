/* A batch's upload in staging memory: where its parts lie, and how they are filled.
 *
 * Tables come first: they stay where they are from frame to frame as long as sizes do. Then pixels, so that their
 * places depend on sizes and formats alone (ist_stage), then targets and prompts. graph/frame.h has what each is. */
#ifndef IST_PIPELINE_STAGING_H
#define IST_PIPELINE_STAGING_H

#include "pipeline/engine.h"

/* Word offsets of one image's parts of the upload; 0 for parts it does not have. */
typedef struct ist_image_layout {
    ist_slot_geometry geometry;
    size_t det_x, det_y, seg_x, seg_y, targets;
    size_t pixel_byte; /* in the upload, or in the caller's buffer */
    bool in_place;     /* the caller has written them there (ist_stage) */
    size_t row_bytes;
    int seg_w, seg_h;
} ist_image_layout;

typedef struct ist_upload_layout {
    ist_image_layout images[IST_MAX_BATCH];
    size_t prompts, prompt_data; /* records of all images' prompts, their points and masks */
    int prompt_count;
    size_t bytes;
    size_t store_words; /* per object, of the largest image */
    size_t mask_words;  /* room for masks in the packet */
    size_t logit_words; /* and for low-resolution logits */
    ist_crops_layout *crops; /* of everything, filled in as far as crops go; else NULL */
    ist_tile_layout tiles;   /* of tiles, filled in as far as ist_tiles_of does before the rest is laid out */
} ist_upload_layout;

/* What is submitted: images or, in place of the pixels of the only one, its embedding. */
typedef struct ist_submission {
    const ist_image *images;
    int count;
    const ist_embedding *embedding;
    bool decodes; /* and does not only encode */
    bool most;    /* room is made for as many prompts as an image may have */
    ist_crops_layout *crops; /* of everything: the image's */
} ist_submission;

/* Places of a prompt's points in the upload: its own, and the padding or the corners of its box. */
int ist_points_of(const ist_prompt *prompt);

/* The layout of a batch for `slot`, or for any slot where that is NULL; layout->tiles is there already where the engine
 * has tiles. */
void ist_staging_lay_out(const ist_engine *engine, const ist_slot *slot, const ist_submission *batch,
                         ist_upload_layout *layout);

/* Room in a slot for what most users submit, made while the queue is empty. */
ist_status ist_slot_prepare(ist_engine *engine, ist_slot *slot, ist_error *err);

/* Words that targets and prompts of `count` images can take at most. */
size_t ist_staging_most_words(const ist_engine *engine, int count);

/* Of a batch for the slot that is engine->staged: which images lie where they go to. When none does, that is none any
 * more. IST_E_ARGUMENT for one that lies elsewhere in its memory, and might be overwritten before it is copied. */
ist_status ist_staging_find(ist_engine *engine, const ist_slot *slot, const ist_submission *batch,
                            ist_upload_layout *layout, ist_error *err);

/* Fills the slot's staging, which has room. `hurry`: the device waits for it. */
void ist_staging_fill(const ist_engine *engine, ist_slot *slot, const ist_submission *batch,
                      const ist_upload_layout *layout, bool reset, bool hurry);

#endif
