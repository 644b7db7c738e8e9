/* Parts of an image, crops and tiles, have uploads of their own within the upload, and embeddings side by side. */
#include "pipeline/engine.h"

ist_status ist_replay_within(ist_engine *e, ist_plan *plan, const ist_slot *s, size_t at, size_t words, int place,
                             ist_frame_scope scope, ist_error *err) {
    cl_mem upload = NULL, embedding = NULL;
    ist_status st = IST_OK;
    if (words)
        st = ist_buffer_sub(e->device, s->upload, at * sizeof(uint32_t), words * sizeof(uint32_t), "upload of a part",
                            &upload, err);
    if (!st && plan == e->encoder)
        st = ist_buffer_sub(e->device, e->embedding, e->embedding_bytes * (size_t)place, e->embedding_bytes,
                            "embedding of a part", &embedding, err);
    if (!st) st = ist_plan_bind(plan, IST_EXT_UPLOAD, words ? upload : s->upload, err);
    if (!st && embedding) st = ist_plan_bind(plan, IST_EXT_EMBEDDING, embedding, err);
    if (!st) st = ist_plan_replay_for(plan, scope, err);
    ist_plan_unbind(plan, upload); /* commands in the queue keep them */
    ist_plan_unbind(plan, embedding);
    ist_buffer_release(e->device, &upload);
    ist_buffer_release(e->device, &embedding);
    return st;
}
