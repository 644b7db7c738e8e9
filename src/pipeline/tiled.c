/* Images in tiles: what a frame enqueues for them (tiles.h has their part of the upload). */
#include "pipeline/engine.h"

ist_status ist_tiles_reserve(ist_engine *e, int tiles, ist_error *err) {
    if (!e->detection || !e->encoder || tiles <= e->tile_embeddings) return IST_OK;
    e->tile_embeddings = 0;
    ist_plan_unbind(e->plan, e->embedding);
    ist_buffer_release(e->device, &e->embedding);
    IST_TRY(
        ist_buffer_create(e->device, e->embedding_bytes * (size_t)tiles, "embeddings of tiles", &e->embedding, err));
    e->tile_embeddings = tiles;
    return IST_OK;
}

/* The encoder on a tile; 0: on the whole image. */
static ist_status encode(ist_engine *e, const ist_slot *s, int tile, ist_frame_scope scope, ist_error *err) {
    const ist_tile_layout *l = &s->tiles;
    const size_t at = l->at + (size_t)(tile - 1) * l->step; /* with the tables behind all of them */
    return ist_replay_within(e, e->encoder, s, tile ? at : 0, tile ? l->end - at : 0, tile, scope, err);
}

/* The detector on the whole image and on groups of the others. */
static ist_status detect(ist_engine *e, const ist_slot *s, bool whole, ist_frame_scope scope, ist_error *err) {
    const ist_tile_layout *l = &s->tiles;
    if (whole) IST_TRY(ist_replay_within(e, e->detection, s, 0, 0, 0, scope, err));
    for (int g = 0; g < l->groups; g++) {
        const size_t at = l->group_at + (size_t)g * l->group_step;
        IST_TRY(ist_replay_within(e, e->detection, s, at, l->end - at, 0, scope, err));
    }
    return IST_OK;
}

/* The image's automatic window, in all tiles. */
static ist_status enqueue_window(ist_engine *e, const ist_slot *s, cl_mem pixels, ist_frame_scope scope,
                                 ist_error *err) {
    if (!e->windows) return IST_OK;
    IST_TRY(ist_plan_bind(e->windows, IST_EXT_UPLOAD, s->upload, err));
    IST_TRY(ist_plan_bind(e->windows, IST_EXT_PIXELS, pixels, err));
    return ist_plan_replay_for(e->windows, scope, err);
}

/* The detector on all tiles, what stays of all, the encoder on tiles that have something, then the packet. */
ist_status ist_tiles_enqueue(ist_engine *e, ist_slot *s, cl_mem pixels, ist_frame_scope scope, ist_error *err) {
    ist_plan *const plans[] = {e->detection, e->merging, e->plan};
    const int first = e->tiles.whole || s->tiles.tiles == 1 ? 0 : 1;
    for (int i = 0; i < 3; i++) {
        IST_TRY(ist_plan_bind(plans[i], IST_EXT_FOUND, e->found, err));
        IST_TRY(ist_plan_bind(plans[i], IST_EXT_UPLOAD, s->upload, err));
    }
    IST_TRY(ist_plan_bind(e->detection, IST_EXT_PIXELS, pixels, err));
    IST_TRY(ist_plan_bind(e->plan, IST_EXT_PACKET, s->packet, err));
    IST_TRY(enqueue_window(e, s, pixels, scope, err));
    IST_TRY(detect(e, s, !first, scope, err));
    IST_TRY(ist_plan_replay_for(e->merging, scope, err));
    if (e->encoder) {
        IST_TRY(ist_plan_bind(e->encoder, IST_EXT_PIXELS, pixels, err));
        IST_TRY(ist_plan_bind(e->plan, IST_EXT_EMBEDDING, e->embedding, err));
        IST_TRY(ist_plan_bind(e->plan, IST_EXT_STORE, s->store, err));
        for (int i = first; i < s->tiles.tiles; i++) IST_TRY(encode(e, s, i, scope, err));
    }
    return ist_plan_replay_for(e->plan, scope, err);
}
