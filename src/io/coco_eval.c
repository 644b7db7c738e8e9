/* COCO's evaluation: see coco_eval.h.
 *
 * One category at a time: its images are matched at all sizes and thresholds, which leaves two bit sets per detection
 * and size; then the detections of all images are sorted once and each curve is one pass over them. The stable sorts,
 * the constants and the form of each quotient are those of COCO's evaluation, since ties decide numbers. */
#include "io/coco_eval.h"

#include "base/mem.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES = 4, THRESHOLDS = 10, RECALLS = 101, MAX_DETECTIONS = 100, AT_50 = 0, AT_75 = 5 };

static const double size_ranges[SIZES][2] = {{0, 1e10}, {0, 32 * 32}, {32 * 32, 96 * 96}, {96 * 96, 1e10}};

/* A detection and how it was matched; bit t of each set stands for threshold t. */
typedef struct verdict {
    double score;
    size_t index; /* in the results */
    size_t order; /* decides between equal scores */
    int rank;     /* by score within its image and category */
    uint16_t matched[SIZES], ignored[SIZES];
} verdict;

/* The category at hand, and room that is used again. */
typedef struct evaluation {
    const ist_coco *truth;
    const ist_coco_list *results;
    bool masks;
    double thresholds[THRESHOLDS], recalls[RECALLS];
    verdict *verdicts;
    size_t count, capacity;
    size_t found[SIZES]; /* annotations that count */
    double *ious;        /* of one image: detections x annotations */
    size_t iou_capacity;
    size_t *tries; /* of one image: annotations in the order in which they are tried */
    size_t try_capacity;
    unsigned char *taken; /* of one image: annotations that have their detection */
    size_t taken_capacity;
    double *precision, *recall; /* along one curve */
    size_t precision_capacity, recall_capacity;
} evaluation;

/* Annotations or detections of one image and category. */
typedef struct group {
    const ist_coco_place *places;
    size_t count;
} group;

static ist_status out_of_memory(size_t count, ist_error *err) {
    return ist_fail(err, IST_E_MEMORY, "out of memory for the evaluation of %zu objects", count);
}

static int compare_places(const void *a, const void *b) {
    const ist_coco_place *x = a, *y = b;
    if (x->category != y->category) return x->category < y->category ? -1 : 1;
    if (x->image != y->image) return x->image < y->image ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

ist_status ist_coco_places(const ist_coco *truth, const ist_coco_list *list, bool by_category, ist_coco_place **places,
                           size_t *count, ist_error *err) {
    *count = 0;
    *places = calloc(list->count + 1, sizeof **places);
    if (!*places) return ist_fail(err, IST_E_MEMORY, "out of memory for %zu objects", list->count);
    for (size_t i = 0; i < list->count; i++) {
        const ist_coco_object *o = &list->items[i];
        if (truth->images[o->image].used)
            (*places)[(*count)++] = (ist_coco_place){by_category ? o->category : 0, o->image, i};
    }
    qsort(*places, *count, sizeof **places, compare_places);
    return IST_OK;
}

static double box_iou(const double d[4], const double g[4], bool crowd) {
    double w = fmin(d[0] + d[2], g[0] + g[2]) - fmax(d[0], g[0]);
    double h = fmin(d[1] + d[3], g[1] + g[3]) - fmax(d[1], g[1]);
    if (w <= 0 || h <= 0) return 0;
    double both = w * h, area = d[2] * d[3];
    return both / (crowd ? area : area + g[2] * g[3] - both);
}

double ist_coco_iou(const ist_coco_object *d, const ist_coco_object *g, bool masks) {
    if (!masks) return box_iou(d->box, g->box, g->crowd);
    if (d->width != g->width || d->height != g->height) return 0;
    uint64_t both = ist_rle_overlap(&d->mask, &g->mask), area = ist_rle_area(&d->mask);
    if (!both) return 0;
    return (double)both / (double)(g->crowd ? area : area + ist_rle_area(&g->mask) - both);
}

static bool outside(double area, int size) {
    return area < size_ranges[size][0] || area > size_ranges[size][1];
}

/* Orders the annotations for one size: those that count, then the others. Returns how many count. */
static size_t order_tries(evaluation *e, const group *truth, int size) {
    size_t counting = 0, n = 0;
    for (int ignored = 0; ignored < 2; ignored++) {
        for (size_t g = 0; g < truth->count; g++) {
            const ist_coco_object *o = &e->truth->objects.items[truth->places[g].index];
            if ((o->crowd || outside(o->area, size)) == (bool)ignored) e->tries[n++] = g;
        }
        if (!ignored) counting = n;
    }
    return counting;
}

/* Which of the tries a detection takes at one threshold: the last of those it overlaps most, one that counts before any
 * that does not; SIZE_MAX: none. A crowd can be taken again. */
static size_t best_try(const evaluation *e, const group *truth, size_t counting, const double *ious, double threshold) {
    double best = fmin(threshold, 1 - 1e-10);
    size_t match = SIZE_MAX;
    for (size_t k = 0; k < truth->count; k++) {
        size_t g = e->tries[k];
        if (e->taken[g] && !e->truth->objects.items[truth->places[g].index].crowd) continue;
        if (match < counting && k >= counting) break;
        if (ious[g] < best) continue;
        best = ious[g];
        match = k;
    }
    return match;
}

static void match_at(evaluation *e, const group *truth, verdict *verdicts, size_t count, int size, int threshold) {
    size_t counting = order_tries(e, truth, size);
    uint16_t bit = (uint16_t)(1u << threshold);
    if (truth->count) memset(e->taken, 0, truth->count);
    for (size_t d = 0; d < count; d++) {
        verdict *v = &verdicts[d];
        size_t k = best_try(e, truth, counting, e->ious + d * truth->count, e->thresholds[threshold]);
        bool matched = false;
        if (k != SIZE_MAX) {
            size_t g = e->tries[k];
            e->taken[g] = 1;
            matched = !e->truth->objects.items[truth->places[g].index].no_id;
            if (k >= counting) v->ignored[size] |= bit;
        }
        if (matched) v->matched[size] |= bit;
        if (!matched && outside(e->results->items[v->index].area, size)) v->ignored[size] |= bit;
    }
    if (!threshold) e->found[size] += counting;
}

static int compare_verdicts(const void *a, const void *b) {
    const verdict *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* Adds the verdicts over one image's detections, best first and no more than COCO's limit. */
static ist_status match_image(evaluation *e, const group *truth, const group *found, ist_error *err) {
    size_t cells; /* one item of room more than needed: pointers into none would be null */
    if (!ist_grow((void **)&e->verdicts, &e->capacity, e->count + found->count + 1, sizeof *e->verdicts))
        return out_of_memory(e->count + found->count, err);
    verdict *verdicts = e->verdicts + e->count;
    for (size_t d = 0; d < found->count; d++) {
        size_t index = found->places[d].index;
        verdicts[d] = (verdict){.score = e->results->items[index].score, .index = index, .order = d};
    }
    if (found->count) qsort(verdicts, found->count, sizeof *verdicts, compare_verdicts);
    size_t count = found->count < MAX_DETECTIONS ? found->count : MAX_DETECTIONS;
    if (!ist_mul_size(count, truth->count, &cells) ||
        !ist_grow((void **)&e->ious, &e->iou_capacity, cells + 1, sizeof *e->ious) ||
        !ist_grow((void **)&e->tries, &e->try_capacity, truth->count, sizeof *e->tries) ||
        !ist_grow((void **)&e->taken, &e->taken_capacity, truth->count, sizeof *e->taken))
        return out_of_memory(truth->count, err);
    for (size_t d = 0; d < count; d++) {
        verdicts[d].order = e->count + d;
        verdicts[d].rank = (int)d;
        for (size_t g = 0; g < truth->count; g++)
            e->ious[d * truth->count + g] = ist_coco_iou(&e->results->items[verdicts[d].index],
                                                         &e->truth->objects.items[truth->places[g].index], e->masks);
    }
    for (int size = 0; size < SIZES; size++)
        for (int t = 0; t < THRESHOLDS; t++) match_at(e, truth, verdicts, count, size, t);
    e->count += count;
    return IST_OK;
}

/* Fills precision and recall along the sorted detections of rank below `limit`; returns their number. */
static size_t trace(evaluation *e, int size, int threshold, int limit) {
    size_t n = 0, hits = 0, misses = 0;
    for (size_t i = 0; i < e->count; i++) {
        const verdict *v = &e->verdicts[i];
        if (v->rank >= limit) continue;
        bool matched = v->matched[size] >> threshold & 1, ignored = v->ignored[size] >> threshold & 1;
        hits += matched && !ignored;
        misses += !matched && !ignored;
        e->recall[n] = (double)hits / (double)e->found[size];
        e->precision[n++] = (double)hits / ((double)misses + (double)hits + DBL_EPSILON);
    }
    return n;
}

/* Mean over the recalls of the best precision at that recall or a higher one. */
static double mean_precision(evaluation *e, size_t n) {
    double sum = 0;
    size_t at = 0;
    for (size_t i = n; i > 1; i--)
        if (e->precision[i - 1] > e->precision[i - 2]) e->precision[i - 2] = e->precision[i - 1];
    for (int r = 0; r < RECALLS; r++) {
        while (at < n && e->recall[at] < e->recalls[r]) at++;
        if (at < n) sum += e->precision[at];
    }
    return sum / RECALLS;
}

/* Sums over categories. */
typedef struct tally {
    double sums[IST_COCO_NUMBER_COUNT];
    size_t counts[IST_COCO_NUMBER_COUNT];
} tally;

static void add_to(tally *t, int number, double value) {
    t->sums[number] += value;
    t->counts[number]++;
}

/* Mean precision (with its values at IoU 0.5 and 0.75) and mean recall over the thresholds. */
static void sum_curves(evaluation *e, int size, int limit, double *precision, double *at50, double *at75,
                       double *recall) {
    *precision = *recall = 0;
    for (int t = 0; t < THRESHOLDS; t++) {
        size_t n = trace(e, size, t, limit);
        if (n) *recall += e->recall[n - 1];
        double mean = mean_precision(e, n);
        if (t == AT_50) *at50 = mean;
        if (t == AT_75) *at75 = mean;
        *precision += mean;
    }
    *precision /= THRESHOLDS;
    *recall /= THRESHOLDS;
}

static ist_status finish_category(evaluation *e, tally *sums, double *ap, double *ap50, ist_error *err) {
    static const int precisions[SIZES] = {IST_COCO_AP, IST_COCO_APS, IST_COCO_APM, IST_COCO_APL};
    static const int recalls[SIZES] = {IST_COCO_AR100, IST_COCO_ARS, IST_COCO_ARM, IST_COCO_ARL};
    *ap = *ap50 = -1;
    if (!ist_grow((void **)&e->precision, &e->precision_capacity, e->count, sizeof *e->precision) ||
        !ist_grow((void **)&e->recall, &e->recall_capacity, e->count, sizeof *e->recall))
        return out_of_memory(e->count, err);
    if (e->count) qsort(e->verdicts, e->count, sizeof *e->verdicts, compare_verdicts);
    for (int size = 0; size < SIZES; size++) {
        double precision, at50, at75, recall;
        if (!e->found[size]) continue;
        sum_curves(e, size, MAX_DETECTIONS, &precision, &at50, &at75, &recall);
        add_to(sums, precisions[size], precision);
        add_to(sums, recalls[size], recall);
        if (size) continue;
        *ap = precision;
        *ap50 = at50;
        add_to(sums, IST_COCO_AP50, at50);
        add_to(sums, IST_COCO_AP75, at75);
        sum_curves(e, size, 1, &precision, &at50, &at75, &recall);
        add_to(sums, IST_COCO_AR1, recall);
        sum_curves(e, size, 10, &precision, &at50, &at75, &recall);
        add_to(sums, IST_COCO_AR10, recall);
    }
    return IST_OK;
}

/* Takes the places of (category, image) from the front of what is left. */
static group take_group(group *left, size_t category, size_t image) {
    group taken = {.places = left->places};
    while (left->count && left->places->category == category && left->places->image == image)
        taken.count++, left->places++, left->count--;
    return taken;
}

static ist_status evaluate_category(evaluation *e, size_t category, group *truth, group *found, tally *sums, double *ap,
                                    double *ap50, ist_error *err) {
    e->count = 0;
    memset(e->found, 0, sizeof e->found);
    for (;;) {
        const ist_coco_place *a = truth->count && truth->places->category == category ? truth->places : NULL;
        const ist_coco_place *b = found->count && found->places->category == category ? found->places : NULL;
        if (!a && !b) break;
        size_t image = !b || (a && a->image < b->image) ? a->image : b->image;
        group annotations = take_group(truth, category, image), detections = take_group(found, category, image);
        IST_TRY(match_image(e, &annotations, &detections, err));
    }
    return finish_category(e, sums, ap, ap50, err);
}

static ist_status evaluate(evaluation *e, group truth, group found, ist_coco_scores *scores, ist_error *err) {
    tally sums = {0};
    size_t categories = e->truth->category_count;
    scores->class_ap = calloc(categories + 1, sizeof *scores->class_ap);
    scores->class_ap50 = calloc(categories + 1, sizeof *scores->class_ap50);
    if (!scores->class_ap || !scores->class_ap50) return out_of_memory(categories, err);
    for (size_t c = 0; c < categories; c++)
        IST_TRY(evaluate_category(e, c, &truth, &found, &sums, &scores->class_ap[c], &scores->class_ap50[c], err));
    for (int i = 0; i < IST_COCO_NUMBER_COUNT; i++)
        scores->numbers[i] = sums.counts[i] ? sums.sums[i] / (double)sums.counts[i] : -1;
    return IST_OK;
}

/* Evenly spaced values from first to last, in the arithmetic of NumPy's linspace. */
static void space_evenly(double first, double last, int count, double *values) {
    double step = (last - first) / (count - 1);
    for (int i = 0; i < count; i++) values[i] = i * step + first;
    values[count - 1] = last;
}

ist_status ist_coco_evaluate(const ist_coco *truth, const ist_coco_list *results, bool masks, ist_coco_scores *scores,
                             ist_error *err) {
    evaluation e = {.truth = truth, .results = results, .masks = masks};
    group annotations = {0}, detections = {0};
    ist_coco_place *a = NULL, *b = NULL;
    *scores = (ist_coco_scores){0};
    space_evenly(0.5, 0.95, THRESHOLDS, e.thresholds);
    space_evenly(0, 1, RECALLS, e.recalls);
    ist_status status = ist_coco_places(truth, &truth->objects, true, &a, &annotations.count, err);
    if (!status) status = ist_coco_places(truth, results, true, &b, &detections.count, err);
    annotations.places = a;
    detections.places = b;
    if (!status) status = evaluate(&e, annotations, detections, scores, err);
    free(a);
    free(b);
    free(e.verdicts);
    free(e.ious);
    free(e.tries);
    free(e.taken);
    free(e.precision);
    free(e.recall);
    if (status) ist_coco_scores_free(scores);
    return status;
}

void ist_coco_scores_free(ist_coco_scores *scores) {
    free(scores->class_ap);
    free(scores->class_ap50);
    *scores = (ist_coco_scores){0};
}
