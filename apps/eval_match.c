/* Assignment of detections to annotations by the exact matcher: see eval.h.
 *
 * A pair costs minus its IoU, and nothing when it may not be; the matcher pairs as many as there are, and pairs that
 * may not be are dropped again. */
#include "eval.h"

#include "base/mem.h"

#include <stdlib.h>

typedef struct matching {
    ist_engine *engine;
    const ist_coco *truth;
    const ist_coco_list *results;
    bool masks;
    eval_overlap *overlap;
    const ist_coco_object *annotations[EVAL_MATCH_MOST], *detections[EVAL_MATCH_MOST];
    int rows, columns; /* more than fit are counted all the same */
    float cost[EVAL_MATCH_MOST * EVAL_MATCH_MOST];
} matching;

static float pair_cost(const ist_coco_object *detection, const ist_coco_object *annotation) {
    if (detection->category != annotation->category) return 0;
    double iou = ist_coco_iou(detection, annotation, false);
    return iou >= EVAL_MATCH_IOU ? (float)-iou : 0;
}

static ist_status match_image(matching *m, ist_error *err) {
    int chosen[EVAL_MATCH_MOST];
    if (m->rows > EVAL_MATCH_MOST || m->columns > EVAL_MATCH_MOST) {
        m->overlap->crowded++;
        return IST_OK;
    }
    m->overlap->objects += (size_t)m->rows;
    if (!m->rows || !m->columns) return IST_OK;
    for (int r = 0; r < m->rows; r++)
        for (int c = 0; c < m->columns; c++)
            m->cost[r * m->columns + c] = pair_cost(m->detections[c], m->annotations[r]);
    IST_TRY(ist_assign(m->engine, m->cost, m->rows, m->columns, m->columns, chosen, NULL, err));
    for (int r = 0; r < m->rows; r++) {
        if (chosen[r] < 0 || m->cost[r * m->columns + chosen[r]] >= 0) continue;
        m->overlap->matched++;
        m->overlap->box_iou += ist_coco_iou(m->detections[chosen[r]], m->annotations[r], false);
        if (m->masks) m->overlap->mask_iou += ist_coco_iou(m->detections[chosen[r]], m->annotations[r], true);
    }
    return IST_OK;
}

/* Takes an image's annotations and detections from the front of what is left. */
static void take_image(matching *m, const ist_coco_place **a, const ist_coco_place *a_end, const ist_coco_place **b,
                       const ist_coco_place *b_end) {
    size_t image = (*a)->image;
    m->rows = m->columns = 0;
    for (; *a < a_end && (*a)->image == image; ++*a) {
        const ist_coco_object *o = &m->truth->objects.items[(*a)->index];
        if (o->crowd) continue;
        if (m->rows < EVAL_MATCH_MOST) m->annotations[m->rows] = o;
        m->rows++;
    }
    for (; *b < b_end && (*b)->image <= image; ++*b) {
        const ist_coco_object *o = &m->results->items[(*b)->index];
        if ((*b)->image < image || o->score <= EVAL_MATCH_SCORE) continue;
        if (m->columns < EVAL_MATCH_MOST) m->detections[m->columns] = o;
        m->columns++;
    }
}

ist_status eval_match(ist_engine *engine, const ist_coco *truth, const ist_coco_list *results, bool masks,
                      eval_overlap *overlap, ist_error *err) {
    ist_coco_place *annotations = NULL, *detections = NULL;
    size_t annotation_count = 0, detection_count = 0;
    matching *m = malloc(sizeof *m);
    if (!m) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu bytes", sizeof *m);
    *overlap = (eval_overlap){.measured = true};
    m->engine = engine;
    m->truth = truth;
    m->results = results;
    m->masks = masks;
    m->overlap = overlap;
    ist_status status = ist_coco_places(truth, &truth->objects, false, &annotations, &annotation_count, err);
    if (!status) status = ist_coco_places(truth, results, false, &detections, &detection_count, err);
    const ist_coco_place *a = annotations, *b = detections;
    while (!status && a < annotations + annotation_count) {
        take_image(m, &a, annotations + annotation_count, &b, detections + detection_count);
        status = match_image(m, err);
    }
    free(annotations);
    free(detections);
    free(m);
    return status;
}
