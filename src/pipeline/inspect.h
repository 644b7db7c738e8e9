/* What `isthmus verify` asks of an engine beyond isthmus.h: tensors in the middle of the frame. Not part of the public
 * API. */
#ifndef IST_PIPELINE_INSPECT_H
#define IST_PIPELINE_INSPECT_H

#include "isthmus.h"

#include <stdbool.h>

/* ist_open of an engine whose frame keeps the tensors that its models name until its end, which takes more memory and
 * no other kernels. The arguments are not checked: start from ist_config_default() and values that ist_open takes. */
ist_status ist_engine_open_kept(const ist_config *config, ist_engine **engine, ist_error *err);

/* A kept tensor, dense [n,h,w,c]; integers become floats. */
typedef struct ist_kept {
    int n, h, w, c;
    float *values; /* the caller's to free */
} ist_kept;

/* Whether the frame keeps a tensor called `name`: one that lives only inside a launch, as the result of a stage whose
 * downsampling is part of it, is not kept. */
bool ist_engine_keeps(const ist_engine *engine, const char *name);

/* Reads the tensor called `name` ("stage3", "dec.memory", "logits", ...) as the last batch left it; waits. On the
 * submitting thread, with nothing in flight. IST_E_STATE when the frame keeps none of that name. */
ist_status ist_engine_read_kept(ist_engine *engine, const char *name, ist_kept *kept, ist_error *err);

#endif
