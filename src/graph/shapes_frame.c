/* shapes.c for the frame around the networks, and for masks of everything. */
#include "graph/found.h"
#include "graph/shapes_result.h"

enum { BOX = 4, CANDIDATES = 300 };

/* ---- the frame ---- */

ist_status ist_infer_sample_window(void *node, ist_error *err) {
    const ist_sample_window *q = node;
    if (q->batch < 1) return ist_fail(err, IST_E_ARGUMENT, "%s: windows of %d images", q->label, q->batch);
    return IST_OK;
}

ist_status ist_infer_resize(void *node, ist_error *err) {
    ist_resize *q = node;
    if (q->channels != 1 && q->channels != 3 && q->channels != 4)
        return ist_fail(err, IST_E_ARGUMENT, "%s: %d channels of an image, want 1, 3 or 4", q->label, q->channels);
    if (q->what == IST_RESIZE_SEGMENTER) q->content = extents(1, 1, q->batch, 2, IST_ELEM_I32);
    return result(&q->y, extents(q->batch, q->h, q->w, q->channels, IST_ELEM_T), false, q->label, err);
}

static void infer_detections(ist_detections *d) {
    int places = d->batch * d->max_objects;
    d->objects = extents(d->batch, 1, d->max_objects, IST_DET_WORDS, IST_ELEM_I32);
    d->counts = extents(d->batch, 1, 1, 4, IST_ELEM_I32);
    d->total = extents(1, 1, 1, 1, IST_ELEM_I32);
    d->image_of = extents(1, 1, places, 1, IST_ELEM_I32);
    d->boxes = extents(places, 1, 1, BOX, IST_ELEM_F32);
}

ist_status ist_infer_detect(void *node, ist_error *err) {
    ist_detect *q = node;
    ist_tensor logits = q->logits, boxes = q->boxes;
    if (boxes.c != BOX || boxes.n != logits.n || ist_tokens_of(boxes) != ist_tokens_of(logits) ||
        q->det.max_objects < 1 || q->det.max_objects > CANDIDATES || logits.elem != IST_ELEM_F32 ||
        boxes.elem != IST_ELEM_F32)
        return ist_fail(err, IST_E_ARGUMENT,
                        "%s: logits [%d,%d,%d], boxes [%d,%d,%d], at most %d objects: not possible", q->label, logits.n,
                        ist_tokens_of(logits), logits.c, boxes.n, ist_tokens_of(boxes), boxes.c, q->det.max_objects);
    q->det.batch = logits.n;
    infer_detections(&q->det);
    return IST_OK;
}

static ist_tensor match_of(const ist_detections *d) {
    return extents(d->batch, 1, d->max_objects, 2, IST_ELEM_I32);
}

ist_status ist_infer_given_boxes(void *node, ist_error *err) {
    ist_given_boxes *q = node;
    infer_detections(&q->det);
    return result(&q->match, match_of(&q->det), false, q->label, err);
}

ist_status ist_infer_given_prompts(void *node, ist_error *err) {
    ist_given_prompts *q = node;
    ist_detections *d = &q->det;
    int places = d->batch * q->prompts;
    if (d->batch < 1 || q->prompts < 1 || q->masks < 1 || q->k < 1 || q->few < 0 || q->few > q->k || q->low < 0)
        return ist_fail(err, IST_E_ARGUMENT, "%s: %d prompts of %d places with %d masks in each of %d images", q->label,
                        q->prompts, q->k, q->masks, d->batch);
    d->max_objects = q->prompts * q->masks;
    infer_detections(d);
    d->boxes = (ist_tensor){0};
    q->points = extents(places, 1, q->k, 2, IST_ELEM_F32);
    q->labels = extents(places, 1, q->k, 1, IST_ELEM_I32);
    q->tokens = q->image_of = extents(1, 1, places, 1, IST_ELEM_I32);
    q->total = extents(1, 1, 1, 1, IST_ELEM_I32);
    q->content = extents(1, 1, d->batch, 2, IST_ELEM_I32);
    q->match = match_of(d);
    if (q->few) {
        q->few_points = extents(places, 1, q->few, 2, IST_ELEM_F32);
        q->few_labels = extents(places, 1, q->few, 1, IST_ELEM_I32);
        q->few_tokens = q->tokens;
    }
    if (!q->low) return IST_OK;
    q->mask = extents(places, q->low, q->low, 1, IST_ELEM_F32);
    q->masked = q->tokens;
    return IST_OK;
}

ist_status ist_infer_assign(void *node, ist_error *err) {
    ist_assignment *q = node;
    ist_tensor cost = q->cost;
    if (cost.c != 1 || cost.ld != 1 || cost.elem != IST_ELEM_F32 || q->dims.elem != IST_ELEM_I32 ||
        cost.h > IST_ASSIGN_MAX || cost.w > IST_ASSIGN_MAX || q->bits < 0 || q->bits > 50)
        return ist_fail(err, IST_E_ARGUMENT, "%s: assignment of [%d,%d,%d,%d] with %d bits; at most %d x %d", q->label,
                        EXTENTS(cost), q->bits, IST_ASSIGN_MAX, IST_ASSIGN_MAX);
    IST_TRY(result(&q->match, extents(cost.n, 1, cost.h, 1, IST_ELEM_I32), false, q->label, err));
    return result(&q->complete, extents(cost.n, 1, 1, 1, IST_ELEM_I32), false, q->label, err);
}

ist_status ist_infer_match(void *node, ist_error *err) {
    ist_match *q = node;
    return result(&q->match, match_of(&q->det), false, q->label, err);
}

ist_status ist_infer_masks(void *node, ist_error *err) {
    ist_masks *q = node;
    ist_tensor logits = q->logits;
    int prompts = q->det.batch * q->det.max_objects, pixels = ist_tokens_of(logits), low = q->side / IST_LOGIT_PIXELS;
    if (logits.elem != IST_ELEM_F32 || logits.n != prompts || pixels * logits.c != low * low ||
        (logits.c > 1 ? pixels != 1 : logits.ld != 1))
        return ist_fail(err, IST_E_ARGUMENT, "%s: low-resolution logits [%d,%d,%d,%d] of %d prompts", q->label,
                        EXTENTS(logits), prompts);
    q->stats = extents(1, 1, prompts, IST_MASK_STATS, IST_ELEM_I32);
    return IST_OK;
}

ist_status ist_infer_mask_sums(void *node, ist_error *err) {
    ist_mask_sums *q = node;
    int objects = q->det.batch * q->det.max_objects;
    return result(&q->y, extents(1, 1, objects, IST_MASK_STATS, IST_ELEM_I32), false, q->label, err);
}

ist_status ist_infer_pack(void *node, ist_error *err) {
    ist_pack *q = node;
    int prompts = q->det.batch * q->det.max_objects;
    bool scored = q->score.n * q->score.c == prompts && ist_tokens_of(q->score) == 1;
    if (!ist_has(q->stats) || (scored && ist_has(q->store))) return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT, "%s: %d x %d mask scores for %d prompts", q->label, q->score.n, q->score.c,
                    prompts);
}

/* ---- masks of everything ---- */

ist_status ist_infer_found_none(void *node, ist_error *err) {
    const ist_found_none *q = node;
    return ist_has(q->found) ? IST_OK : ist_fail(err, IST_E_ARGUMENT, "%s: nowhere to find anything", q->label);
}

ist_status ist_infer_grid_points(void *node, ist_error *err) {
    ist_grid_points *q = node;
    int prompts = q->prompts;
    if (prompts < 1 || q->crops < 1 || q->crops > IST_CROPS_MAX)
        return ist_fail(err, IST_E_ARGUMENT, "%s: %d points at a time of %d crops", q->label, prompts, q->crops);
    q->points = extents(prompts, 1, 2, 2, IST_ELEM_F32);
    q->labels = extents(prompts, 1, 2, 1, IST_ELEM_I32);
    q->image_of = extents(1, 1, prompts, 1, IST_ELEM_I32);
    q->total = extents(1, 1, 1, 1, IST_ELEM_I32);
    q->content = extents(1, 1, q->crops, 2, IST_ELEM_I32);
    return IST_OK;
}

ist_status ist_infer_grid_picks(void *node, ist_error *err) {
    ist_grid_picks *q = node;
    ist_tensor iou = q->iou;
    if (iou.elem != IST_ELEM_F32 || ist_tokens_of(iou) != 1 || iou.n != ist_tokens_of(q->image_of))
        return ist_fail(err, IST_E_ARGUMENT, "%s: quality [%d,%d,%d,%d] of masks of %d points", q->label, EXTENTS(iou),
                        ist_tokens_of(q->image_of));
    q->det = (ist_detections){.batch = 1, .max_objects = iou.n * iou.c};
    q->det.total = extents(1, 1, 1, 1, IST_ELEM_I32);
    q->det.image_of = extents(1, 1, q->det.max_objects, 1, IST_ELEM_I32);
    q->picks = extents(1, 1, q->det.max_objects, 2, IST_ELEM_I32);
    return IST_OK;
}

ist_status ist_infer_grid_keep(void *node, ist_error *err) {
    const ist_grid_keep *q = node;
    if (ist_tokens_of(q->stats) == q->det.max_objects && q->stats.c == IST_MASK_STATS) return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT, "%s: statistics [%d,%d,%d,%d] of %d masks", q->label, EXTENTS(q->stats),
                    q->det.max_objects);
}

ist_status ist_infer_grid_select(void *node, ist_error *err) {
    const ist_grid_select *q = node;
    if (q->crops >= 1 && q->crops <= IST_CROPS_MAX && q->most >= 1 && q->capacity >= 1) return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT, "%s: %d of %d candidates in %d crops", q->label, q->most, q->capacity,
                    q->crops);
}

ist_status ist_infer_grid_clean(void *node, ist_error *err) {
    const ist_grid_clean *q = node;
    if (q->least >= 1 && q->most >= 1 && q->capacity >= 1) return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT, "%s: regions of %d pixels in %d masks", q->label, q->least, q->most);
}

ist_status ist_infer_grid_objects(void *node, ist_error *err) {
    ist_grid_objects *q = node;
    ist_detections *d = &q->det;
    if (d->max_objects < 1) return ist_fail(err, IST_E_ARGUMENT, "%s: %d objects", q->label, d->max_objects);
    d->batch = 1;
    infer_detections(d);
    d->boxes = (ist_tensor){0};
    q->match = match_of(d);
    q->stats = extents(1, 1, d->max_objects, IST_MASK_STATS, IST_ELEM_I32);
    q->score = extents(d->max_objects, 1, 1, 1, IST_ELEM_F32);
    return IST_OK;
}

/* ---- tiles ---- */

ist_status ist_infer_tile_keep(void *node, ist_error *err) {
    const ist_tile_keep *q = node;
    if (ist_has(q->found) && q->det.batch >= 1) return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT, "%s: objects of %d tiles at a time", q->label, q->det.batch);
}

ist_status ist_infer_tile_merge(void *node, ist_error *err) {
    const ist_tile_merge *q = node;
    if (ist_has(q->found) && q->iou > 0 && q->iou <= 1 && q->most > 0) return IST_OK;
    return ist_fail(err, IST_E_ARGUMENT, "%s: %d objects of tiles with an IoU of %g", q->label, q->most, q->iou);
}

ist_status ist_infer_tile_objects(void *node, ist_error *err) {
    ist_tile_objects *q = node;
    int most = q->det.max_objects;
    if (!ist_has(q->found) || most < 1) return ist_fail(err, IST_E_ARGUMENT, "%s: %d objects of tiles", q->label, most);
    q->det.batch = 1;
    infer_detections(&q->det);
    q->tile_of = q->own = extents(1, 1, most, 1, IST_ELEM_I32);
    q->picks = extents(1, 1, most, 2, IST_ELEM_I32);
    return IST_OK;
}
