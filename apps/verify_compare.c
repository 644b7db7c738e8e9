/* What differs between two engines on one image: see verify.h.
 *
 * The order of the queries is each engine's own ranking, which rounding can change, so queries are paired by the token
 * they were chosen from; detections are paired by their boxes. */
#include "verify.h"

#include "pipeline/inspect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The same tensor of both engines. */
typedef struct pair {
    ist_kept got, want;
} pair;

static void free_pair(pair *p) {
    free(p->got.values);
    free(p->want.values);
    *p = (pair){{0}, {0}};
}

static ist_status read_pair(const verify_side *tested, const verify_side *reference, const char *name, pair *p,
                            ist_error *err) {
    *p = (pair){{0}, {0}};
    IST_TRY(ist_engine_read_kept(tested->engine, name, &p->got, err));
    ist_status status = ist_engine_read_kept(reference->engine, name, &p->want, err);
    if (!status && (p->got.n != p->want.n || p->got.h != p->want.h || p->got.w != p->want.w || p->got.c != p->want.c))
        status = ist_fail(err, IST_E_STATE, "%s: [%d,%d,%d,%d] on one side, [%d,%d,%d,%d] on the other", name, p->got.n,
                          p->got.h, p->got.w, p->got.c, p->want.n, p->want.h, p->want.w, p->want.c);
    if (status) free_pair(p);
    return status;
}

static void add_values(verify_error *e, const float *got, const float *want, size_t count) {
    for (size_t i = 0; i < count; i++) {
        double d = (double)got[i] - want[i];
        if (!isfinite(got[i]) || !isfinite(want[i])) {
            e->wild = true;
        } else {
            e->difference += d * d;
            e->reference += (double)want[i] * want[i];
        }
    }
    e->values += count;
}

static size_t size_of(const ist_kept *t) {
    return (size_t)t->n * (size_t)t->h * (size_t)t->w * (size_t)t->c;
}

static ist_status compare_tensor(const verify_side *tested, const verify_side *reference, const char *name,
                                 verify_error *e, ist_error *err) {
    pair p;
    IST_TRY(read_pair(tested, reference, name, &p, err));
    add_values(e, p.got.values, p.want.values, size_of(&p.want));
    free_pair(&p);
    return IST_OK;
}

/* ---- queries ---- */

/* Adds rows of `name` whose queries were chosen from the same token. */
static ist_status compare_queries(const verify_side *tested, const verify_side *reference, const char *name,
                                  const pair *tokens, verify_error *e, size_t *common, ist_error *err) {
    pair p;
    IST_TRY(read_pair(tested, reference, name, &p, err));
    size_t queries = size_of(&tokens->want), row = (size_t)p.want.c;
    *common = 0;
    for (size_t i = 0; i < queries; i++)
        for (size_t k = 0; k < queries; k++)
            if (tokens->got.values[k] == tokens->want.values[i]) {
                add_values(e, p.got.values + k * row, p.want.values + i * row, row);
                (*common)++;
                break;
            }
    free_pair(&p);
    return IST_OK;
}

static ist_status compare_detector(const verify_side *a, const verify_side *b, verify_sums *s, ist_error *err) {
    static const char *const maps[] = {"stage1", "stage2", "stage3"};
    pair tokens;
    size_t common = 0;
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        /* the encoder of size N does not read the first, which is inside a launch then on some devices */
        if (!i && !(ist_engine_keeps(a->engine, maps[i]) && ist_engine_keeps(b->engine, maps[i]))) continue;
        IST_TRY(compare_tensor(a, b, maps[i], &s->stages[VERIFY_BACKBONE], err));
    }
    IST_TRY(compare_tensor(a, b, "dec.memory", &s->stages[VERIFY_ENCODER], err));
    IST_TRY(read_pair(a, b, "sel.topk_index", &tokens, err));
    ist_status status = compare_queries(a, b, "logits", &tokens, &s->stages[VERIFY_LOGITS], &common, err);
    if (!status) status = compare_queries(a, b, "boxes", &tokens, &s->stages[VERIFY_BOXES], &common, err);
    s->queries += size_of(&tokens.want);
    s->common_queries += common;
    free_pair(&tokens);
    return status;
}

/* ---- objects ---- */

static double box_iou(const float *a, const float *b) {
    double w = fmin(a[2], b[2]) - fmax(a[0], b[0]), h = fmin(a[3], b[3]) - fmax(a[1], b[1]);
    double both = w > 0 && h > 0 ? w * h : 0;
    double either =
        ((double)a[2] - a[0]) * ((double)a[3] - a[1]) + ((double)b[2] - b[0]) * ((double)b[3] - b[1]) - both;
    return either > 0 ? both / either : 0;
}

/* Rows y .. y+31 of column x; y is a multiple of 32. */
static uint32_t word_at(const ist_mask *m, int x, int y) {
    int column = x - m->x0, word = (y - m->y0) / 32;
    if (column < 0 || column >= m->columns || y < m->y0 || word >= m->words) return 0;
    return m->bits[(size_t)column * (size_t)m->words + (size_t)word];
}

static double mask_iou(const ist_mask *a, const ist_mask *b) {
    int x0 = a->x0 < b->x0 ? a->x0 : b->x0, y0 = a->y0 < b->y0 ? a->y0 : b->y0;
    int ax = a->x0 + a->columns, bx = b->x0 + b->columns, ay = a->y0 + 32 * a->words, by = b->y0 + 32 * b->words;
    size_t both = 0, either = 0;
    for (int x = x0; x < (ax > bx ? ax : bx); x++)
        for (int y = y0; y < (ay > by ? ay : by); y += 32) {
            uint32_t u = word_at(a, x, y), v = word_at(b, x, y);
            both += (size_t)__builtin_popcount(u & v);
            either += (size_t)__builtin_popcount(u | v);
        }
    return either ? (double)both / (double)either : 1; /* two empty masks are the same */
}

static void add_object(verify_sums *s, const ist_object *got, const ist_object *want, bool masks) {
    double iou = box_iou(got->box, want->box), score = fabs((double)got->score - want->score);
    if (!s->same_objects || iou < s->least_box_iou) s->least_box_iou = iou;
    if (score > s->most_score) s->most_score = score;
    s->box_iou += iou;
    s->same_objects++;
    if (!masks) return;
    iou = mask_iou(&got->mask, &want->mask);
    if (!s->masks || iou < s->least_mask_iou) s->least_mask_iou = iou;
    s->mask_iou += iou;
    s->masks++;
}

/* The object of `f` with `want`'s label whose box is most like it, from VERIFY_BOX_IOU on and not taken; -1: none. */
static int find_same(const ist_frame *f, const ist_object *want, const bool *taken) {
    double best = 0;
    int found = -1;
    for (int i = 0; i < f->object_count; i++) {
        double iou = box_iou(f->objects[i].box, want->box);
        if (taken[i] || f->objects[i].label != want->label || iou < VERIFY_BOX_IOU || iou <= best) continue;
        best = iou;
        found = i;
    }
    return found;
}

/* Whether rounding can decide if an object of this score is in `f`: then it cannot be held against it that it is not.
 */
static bool is_cut(const ist_frame *f, const ist_object *o, float conf) {
    if (o->score <= conf + VERIFY_CUT_SCORE) return true;
    if (!f->dropped || !f->object_count) return false;
    return o->score <= f->objects[f->object_count - 1].score + VERIFY_CUT_SCORE;
}

/* `logits`: of the masks, an item per object; values NULL without masks. */
static void compare_objects(const ist_frame *got, const ist_frame *want, const pair *logits, verify_sums *s) {
    bool taken[300] = {false}, masks = logits->want.values != NULL;
    size_t item = masks ? size_of(&logits->want) / (size_t)logits->want.n : 0;
    s->objects += (size_t)got->object_count;
    s->reference_objects += (size_t)want->object_count;
    for (int k = 0; k < want->object_count; k++) {
        int i = find_same(got, &want->objects[k], taken);
        if (i < 0) s->cut += is_cut(got, &want->objects[k], s->conf);
        if (i < 0) continue;
        taken[i] = true;
        add_object(s, &got->objects[i], &want->objects[k], masks);
        if (masks)
            add_values(&s->stages[VERIFY_MASK_LOGITS], logits->got.values + (size_t)i * item,
                       logits->want.values + (size_t)k * item, item);
    }
    for (int i = 0; i < got->object_count; i++) s->cut += !taken[i] && is_cut(want, &got->objects[i], s->conf);
}

/* ---- one image ---- */

static ist_status run(const verify_side *side, const ist_image *image, const ist_result **result, ist_error *err) {
    IST_TRY(ist_submit(side->engine, image, 1, err));
    return ist_receive(side->engine, result, err);
}

/* What `one` image came to joins `all`. */
static void add_image(verify_sums *all, const verify_sums *one, const char *path) {
    verify_worst w = {path, verify_f1(one), verify_relative(&one->stages[VERIFY_BOXES]), one->queries,
                      one->common_queries};
    if (!all->worst.path || w.f1 < all->worst.f1 || (!(w.f1 > all->worst.f1) && w.boxes > all->worst.boxes))
        all->worst = w;
    for (int i = 0; i < VERIFY_STAGE_COUNT; i++) {
        verify_error *e = &all->stages[i];
        e->difference += one->stages[i].difference;
        e->reference += one->stages[i].reference;
        e->wild = e->wild || one->stages[i].wild;
        e->values += one->stages[i].values;
    }
    if (one->same_objects && (!all->same_objects || one->least_box_iou < all->least_box_iou))
        all->least_box_iou = one->least_box_iou;
    if (one->masks && (!all->masks || one->least_mask_iou < all->least_mask_iou))
        all->least_mask_iou = one->least_mask_iou;
    all->most_score = fmax(all->most_score, one->most_score);
    all->box_iou += one->box_iou;
    all->mask_iou += one->mask_iou;
    all->images++;
    all->queries += one->queries;
    all->common_queries += one->common_queries;
    all->objects += one->objects;
    all->reference_objects += one->reference_objects;
    all->same_objects += one->same_objects;
    all->masks += one->masks;
    all->cut += one->cut;
}

ist_status verify_image(const verify_side *tested, const verify_side *reference, const ist_image *image,
                        const char *path, verify_sums *sums, ist_error *err) {
    verify_sums one = {.conf = sums->conf};
    const ist_result *got = NULL, *want = NULL;
    pair logits = {{0}, {0}};
    bool masks = *tested->info.segmenter;
    ist_status status = run(tested, image, &got, err);
    if (!status) status = run(reference, image, &want, err);
    if (!status) status = compare_detector(tested, reference, &one, err);
    if (!status && masks) status = compare_tensor(tested, reference, "embedding", &one.stages[VERIFY_EMBEDDING], err);
    if (!status && masks) status = read_pair(tested, reference, "masks", &logits, err);
    if (!status) {
        compare_objects(&got->frames[0], &want->frames[0], &logits, &one);
        add_image(sums, &one, path);
    }
    free_pair(&logits);
    ist_release(tested->engine, &got);
    ist_release(reference->engine, &want);
    return status;
}
