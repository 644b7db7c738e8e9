/* Masks of everything: what a frame enqueues for them (crops.h has their part of the upload). */
#include "pipeline/engine.h"

#include "graph/nodes.h"

/* Masks of the image that there is memory to clean at a time, an image of a megapixel needs 4 MiB for each. */
int ist_everything_cleaners(const ist_image *image) {
    const size_t most = (size_t)256 << 20, bytes = ist_region_words(image->width, image->height) * sizeof(uint32_t);
    return bytes * IST_CLEANERS_MAX <= most ? IST_CLEANERS_MAX : bytes >= most ? 1 : (int)(most / bytes);
}

ist_status ist_everything_reserve(ist_engine *e, const ist_image *image, ist_error *err) {
    if (!e->cleaning) return IST_OK;
    size_t bytes =
        ist_region_words(image->width, image->height) * sizeof(uint32_t) * (size_t)ist_everything_cleaners(image);
    if (bytes <= e->regions_bytes) return IST_OK;
    e->regions_bytes = 0;
    ist_plan_unbind(e->cleaning, e->regions);
    ist_buffer_release(e->device, &e->regions);
    IST_TRY(ist_buffer_create(e->device, bytes, "regions of masks", &e->regions, err));
    e->regions_bytes = bytes;
    return IST_OK;
}

/* What was kept is asked for: how much that is only the device knows. */
static ist_status enqueue_kept(ist_engine *e, ist_frame_scope scope, ist_error *err) {
    for (int i = 0; i < e->config.max_objects; i += e->everything.points_per_batch)
        IST_TRY(ist_plan_replay_for(e->plan, scope, err));
    return IST_OK;
}

/* Points batch by batch, selection, then once more what was kept. Where small regions go, those that are left after
 * that are asked for a last time, in the order that they have then, and cleaned. */
ist_status ist_everything_enqueue(ist_engine *e, ist_slot *s, cl_mem pixels, ist_frame_scope scope, ist_error *err) {
    ist_plan *plans[IST_PLANS_MAX];
    int each = e->everything.points_per_batch, count = ist_engine_plans(e, plans);
    for (int i = 1; i < count; i++) { /* behind the encoder */
        IST_TRY(ist_plan_bind(plans[i], IST_EXT_UPLOAD, s->upload, err));
        IST_TRY(ist_plan_bind(plans[i], IST_EXT_FOUND, e->found, err));
        IST_TRY(ist_plan_bind(plans[i], IST_EXT_STORE, s->store, err));
    }
    IST_TRY(ist_plan_bind(e->plan, IST_EXT_EMBEDDING, e->embedding, err));
    if (e->cleaning) IST_TRY(ist_plan_bind(e->cleaning, IST_EXT_REGIONS, e->regions, err));
    IST_TRY(ist_plan_bind(e->packing, IST_EXT_PACKET, s->packet, err));
    IST_TRY(ist_plan_bind(e->encoder, IST_EXT_PIXELS, pixels, err));
    IST_TRY(ist_plan_bind(e->encoder, IST_EXT_FOUND, e->found, err));
    for (int c = 0; c < e->grids.crops; c++)
        IST_TRY(
            ist_replay_within(e, e->encoder, s, c ? s->crops->at[c] : 0, c ? s->crops->words[c] : 0, c, scope, err));
    for (int i = 0; i < e->grids.points; i += each) IST_TRY(ist_plan_replay_for(e->plan, scope, err));
    IST_TRY(ist_plan_replay_for(e->selection, scope, err));
    IST_TRY(enqueue_kept(e, scope, err));
    for (int i = 0; i < 2 && e->cleaning; i++) {
        IST_TRY(ist_plan_replay_for(e->cleaning, scope, err));
        if (!i) IST_TRY(enqueue_kept(e, scope, err));
    }
    return ist_plan_replay_for(e->packing, scope, err);
}
