/* An engine as a Python object holds it: what the interpreter needs beyond isthmus.h. binding.py gives these
 * declarations and those of isthmus.h to cffi, whose calls run without the interpreter's lock.
 *
 * One thread is in an engine at a time: another gets IST_E_STATE, but for held_close, which waits for it. Closing may
 * come at any time and more than once (a with statement, the garbage collector, interpreter exit while a daemon thread
 * waits for a frame); every call after it is IST_E_STATE. After fork() a child's calls are IST_E_STATE too, and closing
 * only forgets.
 *
 * Results are copied out of the engine's slot, which is free again before held_receive returns: what Python sees never
 * depends on the engine. */
#ifndef ISTHMUS_HELD_H
#define ISTHMUS_HELD_H

#include "isthmus.h"

typedef struct held_engine held_engine;

/* A received batch in memory of its own. Pointers in it lead into it. */
typedef struct held_batch {
    uint64_t tag; /* of the batch, also after a failure that ended it; 0: none ended */
    int frame_count, object_count, trust_count;
    size_t word_count;    /* of all masks together */
    size_t low_res_count; /* logits of all objects together; 0 without config.low_res */
    ist_frame *frames;
    ist_object *objects; /* of all frames, one after the other, */
    ist_trust *trust;    /* as these */
    uint32_t *words;
    float *low_res;
    ist_transfers transfers;
    double submit_ms, wait_ms, total_ms;
} held_batch;

/* NULL when out of memory. */
held_engine *held_new(void);

/* ist_open, once. */
ist_status held_open(held_engine *h, const ist_config *config, ist_error *err);

/* ist_close; accepts NULL and what was never opened. */
void held_close(held_engine *h);

/* The same, and frees `h`. */
void held_free(held_engine *h);

/* Batches submitted and not yet received. */
int held_in_flight(const held_engine *h);

/* ist_submit and ist_submit_prompts. The tag of a batch, that of its first image, is not 0. */
ist_status held_submit(held_engine *h, const ist_image *images, int count, ist_error *err);
ist_status held_submit_prompts(held_engine *h, const ist_embedding *embedding, const ist_prompt *prompts, int count,
                               uint64_t tag, ist_error *err);

/* ist_receive, a copy, ist_release. `batch` is zeros or freed. */
ist_status held_receive(held_engine *h, held_batch *batch, ist_error *err);

/* Frees what a batch holds; accepts zeros. */
void held_batch_free(held_batch *batch);

/* ist_encode and ist_embedding_release. */
ist_status held_encode(held_engine *h, const ist_image *image, ist_embedding **embedding, ist_error *err);
ist_status held_forget(held_engine *h, ist_embedding **embedding, ist_error *err);

/* ist_engine_describe, ist_reset_tracks, ist_assign. */
ist_status held_describe(held_engine *h, ist_engine_info *info, ist_error *err);
ist_status held_reset_tracks(held_engine *h, ist_error *err);
ist_status held_assign(held_engine *h, const float *cost, int rows, int cols, int ld, int *row_to_col, double *total,
                       ist_error *err);

/* Name of a label as result files have it, and its category id there: the checkpoint's name, COCO's for a model of its
 * 80 classes (whose category ids are the dataset's sparse ones), else the number. `name` is cut to `size`. */
ist_status held_label(held_engine *h, int label, char *name, size_t size, int64_t *category, ist_error *err);

/* The COCO run-length text of a mask in an image of width x height, malloc'd into *text: free with held_text_free. */
ist_status held_rle(const ist_mask *mask, int width, int height, char **text, ist_error *err);
void held_text_free(char **text);

#endif
