/* Masks of everything between decoder and packet, against the generator's steps in plain C: points batch by batch,
 * filters, suppression within crops and across, the objects that are left; by every variant of the table. What lies
 * between the nodes (graph/found.h) is compared after each of them. */
#include "base/mem.h"
#include "graph/found.h"
#include "support/each_variant.h"
#include "support/external.h"
#include "variants/lanes.h"
#include "variants/portable/mask_groups.h"
#include "variants/upload.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXT_UPLOAD = 0, EXT_FOUND = 1, EACH = 3, WIDTH = 300, HEIGHT = 260, EDGE = 20, MOST = 400 };

typedef struct candidate {
    float iou;
    int area, box[4], high, low, point, mask, crop; /* box: x0 y0 x1 y1, inclusive */
} candidate;

/* What is known so far, as found.h has it. */
typedef struct state {
    int taken, count, selected, kept, dropped, stored, survivors, of_crop[IST_CROPS_MAX];
    candidate list[MOST];
    int keep[MOST];
} state;

/* points of all crops, prompts at a time; thresholds; masks at most. */
typedef struct shape {
    int crops, points, prompts, most, capacity;
    double iou, stability, within, across;
} shape;

typedef struct scene {
    const shape *shape;
    int crop[IST_CROPS_MAX][4]; /* x0 y0 x1 y1, the last two exclusive */
    float score[IST_CROPS_MAX];
    float x[MOST], y[MOST];
    int crop_of[MOST]; /* of points */
    state state;
} scene;

IST_PRINTF(4, 5) static void differs(const optest *t, int got, int want, const char *fmt, ...) {
    char what[100];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    cr_assert_fail("%s, seed %llu: %s: %d, not %d", t->name, (unsigned long long)t->seed, what, got, want);
}

/* Integers are alike; else says which. */
#define SAME(got, want, ...)                                                                                           \
    do {                                                                                                               \
        if ((got) != (want)) differs(t, got, want, __VA_ARGS__);                                                       \
    } while (0)

static bool same_float(float a, float b) {
    return isnan(b) ? isnan(a) : a == b;
}

/* ---- the generator's steps ---- */

static int left_of(int all, int from, int most) {
    int left = all - from;
    return left < 0 ? 0 : left > most ? most : left;
}

static bool cut_off(const int *crop, const int *box) {
    static const int image[4] = {0, 0, WIDTH, HEIGHT};
    for (int i = 0; i < 4; i++)
        if (abs(box[i] - crop[i]) <= EDGE && abs(box[i] - image[i]) > EDGE) return true;
    return false;
}

/* sums as MASK_SUMS has them. */
static void put_sums(candidate *c, const int *sums, const int *crop) {
    const int box[4] = {sums[1], sums[3], sums[2], sums[4]}, corner[4] = {crop[0], crop[1], crop[0], crop[1]};
    memcpy(c->box, sums[0] ? box : corner, sizeof c->box);
    c->area = sums[0];
    c->high = sums[5];
    c->low = sums[6];
}

static void ref_keep(scene *s, const int *picks, const int *pick_image, int picked, const int *sums, const float *iou,
                     int total) {
    state *a = &s->state;
    for (int k = 0; k < picked; k++) {
        const int *m = sums + 8 * k, *crop = s->crop[pick_image[k]], item = picks[2 * k];
        candidate c = {.iou = iou[item],
                       .point = a->taken + item / EACH,
                       .mask = item % EACH,
                       .crop = pick_image[k]};
        float stability = m[6] ? (float)m[5] / (float)m[6] : 0;
        put_sums(&c, m, crop);
        if (s->shape->stability > 0 && !(stability >= (float)s->shape->stability)) continue;
        if (cut_off(crop, c.box) || a->count == s->shape->capacity) continue;
        a->of_crop[c.crop]++;
        a->list[a->count++] = c;
    }
    a->taken += total;
}

/* torchvision.ops.nms of boxes of the candidates index[0..count), which are left in the order of falling keys. */
static int ref_suppress(const state *a, int *index, const float *key, int count, double threshold) {
    int kept = 0, order[MOST];
    for (int i = 0; i < count; i++) { /* stable; NaN before all */
        int rank = 0;
        for (int j = 0; j < count; j++) {
            float x = isnan(key[j]) ? INFINITY : key[j], y = isnan(key[i]) ? INFINITY : key[i];
            rank += x > y || (x == y && j < i);
        }
        order[rank] = index[i];
    }
    for (int i = 0; i < count; i++) {
        const int *b = a->list[order[i]].box;
        bool stays = true;
        for (int k = 0; stays && k < kept; k++) {
            const int *o = a->list[index[k]].box;
            float w = fmaxf(0, fminf((float)b[2], (float)o[2]) - fmaxf((float)b[0], (float)o[0]));
            float h = fmaxf(0, fminf((float)b[3], (float)o[3]) - fmaxf((float)b[1], (float)o[1]));
            float inter = w * h, mine = (float)(b[2] - b[0]) * (float)(b[3] - b[1]);
            float other = (float)(o[2] - o[0]) * (float)(o[3] - o[1]), ratio = inter / (mine + other - inter);
            stays = !((double)ratio > threshold);
        }
        if (stays) index[kept++] = order[i]; /* never ahead of i */
    }
    return kept;
}

static void ref_select(scene *s) {
    state *a = &s->state;
    int all[MOST], count = 0, first = 0;
    float key[MOST];
    for (int c = 0; c < s->shape->crops; c++) {
        for (int i = 0; i < a->of_crop[c]; i++) {
            all[count + i] = first + i;
            key[i] = a->list[first + i].iou;
        }
        int left = ref_suppress(a, all + count, key, a->of_crop[c], s->shape->within);
        first += a->of_crop[c];
        count += left;
    }
    a->survivors = s->shape->crops > 1 ? count : 0; /* a word of the second suppression */
    for (int i = 0; i < count; i++) key[i] = s->score[a->list[all[i]].crop];
    if (s->shape->crops > 1) count = ref_suppress(a, all, key, count, s->shape->across);
    a->kept = count < s->shape->most ? count : s->shape->most;
    a->dropped = count - a->kept;
    a->selected = 1;
    memcpy(a->keep, all, sizeof all);
}

/* ---- the scene ---- */

static void fill_scene(optest *t, scene *s, const shape *h) {
    static const int near[] = {0, 1, 20, 21, 40, 70};
    *s = (scene){.shape = h};
    memcpy(s->crop[0], (int[4]){0, 0, WIDTH, HEIGHT}, sizeof s->crop[0]);
    for (int c = 1; c < h->crops; c++)
        for (int i = 0; i < 2; i++) {
            int side = i ? HEIGHT : WIDTH;
            s->crop[c][i] = optest_int(t, 0, 1) ? near[optest_int(t, 0, 5)] : optest_int(t, 0, side - 90);
            s->crop[c][i + 2] = side - (optest_int(t, 0, 1) ? near[optest_int(t, 0, 5)] : 0);
            if (s->crop[c][i + 2] < s->crop[c][i] + 50) s->crop[c][i + 2] = s->crop[c][i] + 50;
        }
    for (int c = 0; c < h->crops; c++) {
        const int *k = s->crop[c];
        s->score[c] = c % 3 == 2 ? s->score[c - 1] : 1.0f / (float)((k[2] - k[0]) * (k[3] - k[1])); /* some alike */
    }
    for (int p = 0; p < h->points; p++) {
        s->x[p] = optest_uniform(t, 0, 1024);
        s->y[p] = optest_uniform(t, 0, 1024);
        s->crop_of[p] = p * h->crops / h->points;
    }
}

static external upload_of(optest *t, const scene *s) {
    const size_t grid = IST_UP_HEADER + (size_t)s->shape->crops * IST_IM_WORDS;
    const size_t bytes = 4 * (grid + (size_t)s->shape->points * IST_GR_WORDS);
    uint32_t *up = optest_alloc(t, bytes);
    up[IST_UP_GRID] = (uint32_t)s->shape->points;
    up[IST_UP_GRID_AT] = (uint32_t)grid;
    for (int c = 0; c < s->shape->crops; c++) {
        const int *k = s->crop[c];
        uint32_t *im = up + IST_UP_HEADER + (size_t)c * IST_IM_WORDS;
        ist_upload_image(up, c,
                         &(ist_frame_image){.width = k[2] - k[0],
                                            .height = k[3] - k[1],
                                            .channels = 3,
                                            .sample_bytes = 1,
                                            .stride = 1,
                                            .seg_side = 1024});
        im[IST_IM_CROP_X] = (uint32_t)k[0];
        im[IST_IM_CROP_Y] = (uint32_t)k[1];
        memcpy(im + IST_IM_CROP_SCORE, &s->score[c], 4);
    }
    for (int p = 0; p < s->shape->points; p++) {
        uint32_t *to = up + grid + (size_t)p * IST_GR_WORDS;
        memcpy(to + IST_GR_X, &s->x[p], 4);
        memcpy(to + IST_GR_Y, &s->y[p], 4);
        to[IST_GR_CROP] = (uint32_t)s->crop_of[p];
    }
    return external_create(t, up, bytes);
}

/* As the state is, with noise in what is not known yet. */
static external found_of(optest *t, const scene *s) {
    const state *a = &s->state;
    const size_t words = ist_found_words((size_t)s->shape->capacity);
    int *w = optest_alloc(t, 4 * words);
    for (size_t i = IST_FD_HEADER; i < words; i++) w[i] = (int)optest_u32(t);
    w[IST_FD_TAKEN] = a->taken;
    w[IST_FD_CANDIDATES] = a->count;
    for (int c = 0; c < s->shape->crops; c++) w[IST_FD_OF_CROP + c] = a->of_crop[c];
    for (int i = 0; i < a->count; i++) {
        const candidate *c = &a->list[i];
        int *to = w + IST_FD_HEADER + i * IST_CD_WORDS;
        memcpy(to + IST_CD_IOU, &c->iou, 4);
        to[IST_CD_AREA] = c->area;
        to[IST_CD_X0] = c->box[0], to[IST_CD_Y0] = c->box[1], to[IST_CD_X1] = c->box[2], to[IST_CD_Y1] = c->box[3];
        to[IST_CD_HIGH] = c->high, to[IST_CD_LOW] = c->low;
        to[IST_CD_POINT] = c->point, to[IST_CD_MASK] = c->mask, to[IST_CD_CROP] = c->crop;
    }
    return external_create(t, w, 4 * words);
}

static void check_state(optest *t, const scene *s, const external *found) {
    const state *a = &s->state;
    const int *w = external_read(t, found);
    SAME(w[IST_FD_TAKEN], a->taken, "points taken");
    SAME(w[IST_FD_CANDIDATES], a->count, "candidates");
    SAME(w[IST_FD_SELECTED] != 0, a->selected, "selection");
    SAME(w[IST_FD_KEPT], a->kept, "kept");
    SAME(w[IST_FD_DROPPED], a->dropped, "dropped");
    SAME(w[IST_FD_STORED], a->stored, "stored");
    if (s->shape->crops > 1) SAME(w[IST_FD_SURVIVORS], a->survivors, "survivors");
    for (int c = 0; c < s->shape->crops; c++) SAME(w[IST_FD_OF_CROP + c], a->of_crop[c], "candidates of crop %d", c);
    for (int i = 0; i < a->count; i++) {
        const candidate *c = &a->list[i];
        const int *g = w + IST_FD_HEADER + i * IST_CD_WORDS;
        float iou;
        memcpy(&iou, g + IST_CD_IOU, 4);
        SAME(g[IST_CD_POINT], c->point, "point of candidate %d", i);
        SAME(g[IST_CD_MASK], c->mask, "mask of candidate %d", i);
        SAME(g[IST_CD_CROP], c->crop, "crop of candidate %d", i);
        cr_assert(same_float(iou, c->iou), "%s: quality of candidate %d is %g, not %g", t->name, i, iou, c->iou);
        cr_assert(g[IST_CD_AREA] == c->area && g[IST_CD_HIGH] == c->high && g[IST_CD_LOW] == c->low, "%s: candidate %d",
                  t->name, i);
        cr_assert(g[IST_CD_X0] == c->box[0] && g[IST_CD_Y0] == c->box[1] && g[IST_CD_X1] == c->box[2] &&
                      g[IST_CD_Y1] == c->box[3],
                  "%s: box of candidate %d", t->name, i);
    }
    const int *kept = w + IST_FD_HEADER + s->shape->capacity * (IST_CD_WORDS + IST_FL_KEPT);
    for (int k = 0; k < a->kept; k++) SAME(kept[k], a->keep[k], "candidate kept at place %d of %d", k, a->kept);
}

/* ---- plans ---- */

/* The variant of another kind that goes with the way's. */
static each_way like(each_way way, ist_node_kind kind) {
    int count, own;
    const ist_variant *v = ist_variants_of(kind, &count), *first = ist_variants_of(way.v->kind, &own);
    return (each_way){count == own ? v + (way.v - first) : v, true};
}

static void emit(optest *t, each_way way, ist_node_kind kind, void *node) {
    way = like(way, kind);
    cr_assert(each_emits(t, way, node), "%s is not taken by %s", ist_kind_of(kind)->name, way.v->name);
}

/* The variants share their kernels' source: what was launched for the way's kind is its own. */
static void launched(const optest *t, each_way way) {
    int own = 0, all = ist_plan_describe(t->plan).launches;
    for (int i = 0; i < all; i++) {
        const ist_launch *l = ist_plan_launch_at(t->plan, i);
        if (!l->from.node || strcmp(l->from.node, ist_kind_of(way.v->kind)->name)) continue;
        cr_assert_str_eq(l->from.variant, way.v->name, "%s", t->name);
        own++;
    }
    cr_assert_gt(own, 0, "%s: none of %d launches is of %s", t->name, all, way.v->name);
}

static void read_ints(optest *t, ist_tensor x, int *to) {
    EXTERNAL_OK(t, ist_plan_read_i32(t->plan, x, to, &t->err));
}

/* Selection and the objects, and what they find. */
static void select_and_check(each_way way, scene *s, const external *upload, const external *found) {
    optest own, *t = &own;
    const shape *h = s->shape;
    const state *a = &s->state;
    optest_begin(t, "selection", 0);
    ist_grid_select select = {.label = "select",
                              .upload = ist_plan_external(t->plan, EXT_UPLOAD, IST_ELEM_I32),
                              .found = ist_plan_external(t->plan, EXT_FOUND, IST_ELEM_I32),
                              .crop_thresh = h->within,
                              .across_thresh = h->across,
                              .crops = h->crops,
                              .most = h->most,
                              .capacity = h->capacity};
    ist_grid_objects objects = {
        .label = "objects", .found = select.found, .det = {.max_objects = h->most}, .capacity = h->capacity};
    emit(t, way, IST_NODE_GRID_SELECT, &select);
    emit(t, way, IST_NODE_GRID_OBJECTS, &objects);
    EXTERNAL_OK(t, ist_plan_finish(t->plan, &t->err));
    EXTERNAL_OK(t, ist_plan_bind(t->plan, EXT_UPLOAD, upload->mem, &t->err));
    EXTERNAL_OK(t, ist_plan_bind(t->plan, EXT_FOUND, found->mem, &t->err));
    EXTERNAL_OK(t, ist_plan_replay(t->plan, &t->err));
    if (way.v->kind == IST_NODE_GRID_SELECT) launched(t, way);
    ref_select(s);
    check_state(t, s, found);
    int total, counts[4], *image_of = optest_alloc(t, sizeof(int) * MOST),
                          *match = optest_alloc(t, sizeof(int) * 2 * MOST);
    int *stats = optest_alloc(t, sizeof(int) * 8 * MOST), *words = optest_alloc(t, sizeof(int) * IST_DET_WORDS * MOST);
    ref_map score = optest_read(t, objects.score);
    read_ints(t, objects.det.total, &total);
    read_ints(t, objects.det.counts, counts);
    read_ints(t, objects.det.image_of, image_of);
    read_ints(t, objects.det.objects, words);
    read_ints(t, objects.match, match);
    read_ints(t, objects.stats, stats);
    SAME(total, a->kept, "objects");
    cr_assert(counts[0] == a->kept && counts[1] == a->dropped && !counts[2], "%s", t->name);
    for (int k = 0; k < h->most; k++) SAME(image_of[k], 0, "image of object %d", k);
    for (int k = 0; k < a->kept; k++) {
        const candidate *c = &a->list[a->keep[k]];
        const int *o = words + k * IST_DET_WORDS, *m = stats + 8 * k;
        float box[4], quality, one;
        memcpy(box, o + IST_DET_BOX, sizeof box);
        memcpy(&quality, o + IST_DET_SCORE, 4);
        memcpy(&one, match + 2 * k + 1, 4);
        SAME(o[IST_DET_LABEL], 0, "label of object %d", k);
        SAME(o[IST_DET_QUERY], c->mask, "mask of object %d", k);
        SAME(match[2 * k], c->point, "point of object %d", k);
        cr_assert(one == 1 && same_float(quality, c->iou) && same_float(score.v[k], c->iou), "%s, object %d", t->name,
                  k);
        for (int i = 0; i < 4; i++) cr_assert(box[i] == (float)c->box[i], "%s, object %d", t->name, k);
        const int want[] = {c->area, c->box[0], c->box[2], c->box[1], c->box[3], c->high, c->low};
        for (int i = 0; i < 7; i++) SAME(m[i], want[i], "statistic %d of object %d", i, k);
    }
    optest_end(t);
}

/* ---- points batch by batch, from the grids to the objects ---- */

static float quality_of(optest *t, double threshold) {
    const int kind = optest_int(t, 0, 11);
    if (!kind) return NAN;
    if (kind == 1) return (float)threshold; /* is not above it */
    if (kind == 2) return nextafterf((float)threshold, INFINITY);
    return (float)optest_int(t, 0, 16) / 16; /* many alike */
}

/* Statistics of a mask in a crop: some empty, many with edges about 20 pixels from the crop's, or as stable as asked.
 */
static void mask_of(optest *t, const scene *s, int crop, int sums[8]) {
    static const int off[] = {0, 19, 20, 21, 22};
    const int *c = s->crop[crop], low = 20 * optest_int(t, 0, 300);
    const int high[] = {low, low / 20 * 19, optest_int(t, 0, low)};
    if (!optest_int(t, 0, 6)) {
        memcpy(sums, (int[8]){0, INT_MAX, -1, INT_MAX, -1, 0, low / 7, 0}, 8 * sizeof *sums);
        return;
    }
    sums[0] = optest_int(t, 1, 9000);
    for (int i = 0; i < 2; i++) {
        int a = c[i] + (optest_int(t, 0, 2) ? optest_int(t, 21, 24) : off[optest_int(t, 0, 4)]);
        int b = c[i + 2] - (optest_int(t, 0, 2) ? optest_int(t, 21, 24) : off[optest_int(t, 0, 4)]);
        if (a >= WIDTH) a = WIDTH - 1;
        if (b == c[i + 2]) b--;
        sums[1 + 2 * i] = a < b ? a : b;
        sums[2 + 2 * i] = a < b ? b : a;
    }
    sums[5] = high[optest_int(t, 0, 2)];
    sums[6] = low;
    sums[7] = 0;
}

typedef struct batch {
    ist_grid_points points;
    ist_grid_picks picks;
    ist_grid_keep keep;
    optest_tensor *iou, *sums;
} batch;

static void record_batch(optest *t, each_way way, const scene *s, unsigned i, batch *b) {
    const shape *h = s->shape;
    const int items = EACH * h->prompts;
    *b = (batch){.points = {.label = "points",
                            .upload = ist_plan_external(t->plan, EXT_UPLOAD, IST_ELEM_I32),
                            .found = ist_plan_external(t->plan, EXT_FOUND, IST_ELEM_I32),
                            .prompts = h->prompts,
                            .crops = h->crops,
                            .capacity = h->capacity}};
    emit(t, way, IST_NODE_GRID_POINTS, &b->points);
    b->picks = (ist_grid_picks){.label = "picks",
                                .found = b->points.found,
                                .iou = optest_in(t, optest_zeros(t, h->prompts, 1, 1, EACH), IST_ELEM_F32, i & 1),
                                .image_of = b->points.image_of,
                                .total = b->points.total,
                                .iou_thresh = (float)h->iou,
                                .capacity = h->capacity};
    b->iou = &t->tensors[t->tensor_count - 1];
    emit(t, way, IST_NODE_GRID_PICKS, &b->picks);
    ist_tensor sums = optest_ints(t, optest_alloc(t, sizeof(int) * 8 * (size_t)items), 8 * items);
    b->sums = &t->tensors[t->tensor_count - 1];
    sums.w = items, sums.c = sums.ld = 8;
    b->keep = (ist_grid_keep){.label = "keep",
                              .upload = b->points.upload,
                              .found = b->points.found,
                              .iou = b->picks.iou,
                              .total = b->points.total,
                              .picks = b->picks.picks,
                              .stats = sums,
                              .det = b->picks.det,
                              .stability_thresh = (float)h->stability,
                              .capacity = h->capacity};
    emit(t, way, IST_NODE_GRID_KEEP, &b->keep);
    EXTERNAL_OK(t, ist_plan_finish(t->plan, &t->err));
}

/* What GRID_POINTS gave: `total` points from number[0] on. */
static void check_points(optest *t, const scene *s, const batch *b, const int *number, int total) {
    const shape *h = s->shape;
    int got, *labels = malloc(sizeof(int) * 2 * (size_t)h->prompts), *crops = malloc(sizeof(int) * (size_t)h->prompts);
    int content[2 * IST_CROPS_MAX];
    ref_map at = {h->prompts, 1, 2, 2, malloc(sizeof(float) * 4 * (size_t)h->prompts)};
    EXTERNAL_OK(t, ist_plan_read_f32(t->plan, b->points.points, at.v, &t->err));
    read_ints(t, b->points.total, &got);
    read_ints(t, b->points.labels, labels);
    read_ints(t, b->points.image_of, crops);
    read_ints(t, b->points.content, content);
    SAME(got, total, "points");
    for (int p = 0; p < h->prompts; p++) {
        const float x = p < total ? s->x[number[p]] : 0, y = p < total ? s->y[number[p]] : 0;
        SAME(crops[p], p < total ? s->crop_of[number[p]] : 0, "crop of point %d", p);
        cr_assert(labels[2 * p] == 1 && labels[2 * p + 1] == -1, "%s, point %d", t->name, p);
        cr_assert(at.v[4 * p] == x && at.v[4 * p + 1] == y && !at.v[4 * p + 2] && !at.v[4 * p + 3], "%s, point %d",
                  t->name, p);
    }
    for (int c = 0; c < h->crops; c++) {
        int w, y;
        ist_segmenter_size(1024, s->crop[c][2] - s->crop[c][0], s->crop[c][3] - s->crop[c][1], &w, &y);
        cr_assert(content[2 * c] == w && content[2 * c + 1] == y, "%s, crop %d", t->name, c);
    }
    free(labels);
    free(crops);
    free(at.v);
}

static void check_picks(optest *t, const batch *b, const int *picks, const int *images, int picked) {
    int got, items = b->picks.det.max_objects, *mine = malloc(sizeof(int) * 3 * (size_t)items),
             *image = mine + 2 * items;
    read_ints(t, b->picks.det.total, &got);
    read_ints(t, b->picks.picks, mine);
    read_ints(t, b->picks.det.image_of, image);
    SAME(got, picked, "masks to look at");
    for (int k = 0; k < picked; k++) {
        SAME(mine[2 * k], picks[2 * k], "item of pick %d", k);
        SAME(mine[2 * k + 1], picks[2 * k + 1], "place of pick %d", k);
        SAME(image[k], images[k], "crop of pick %d", k);
    }
    free(mine);
}

/* One replay: what it should do is done to the state, what it did is compared. */
static void take_batch(optest *t, scene *s, const batch *b, const external *found) {
    const shape *h = s->shape;
    state *a = &s->state;
    float iou[MOST] = {0};
    int number[MOST], picks[2 * MOST], images[MOST], picked = 0, *sums = (int *)(void *)b->sums->start;
    const int from = a->selected ? a->stored : a->taken;
    const int total = left_of(a->selected ? a->kept : h->points, from, h->prompts);
    for (int p = 0; p < total; p++) number[p] = a->selected ? a->list[a->keep[from + p]].point : from + p;
    for (int k = 0; k < EACH * h->prompts; k++) {
        iou[k] = quality_of(t, h->iou);
        b->iou->start[(size_t)(k / EACH) * b->iou->view.ld + b->iou->view.c0 + k % EACH] = iou[k];
    }
    for (int k = 0; k < EACH * total; k++) {
        const int crop = s->crop_of[number[k / EACH]];
        if (a->selected ? k % EACH != a->list[a->keep[from + k / EACH]].mask : h->iou > 0 && !(iou[k] > (float)h->iou))
            continue;
        picks[2 * picked] = k;
        picks[2 * picked + 1] = a->selected ? from + k / EACH : -1;
        images[picked] = crop;
        mask_of(t, s, crop, sums + 8 * picked++);
    }
    EXTERNAL_OK(t, ist_plan_write_f32(t->plan, b->iou->whole, b->iou->start, &t->err));
    EXTERNAL_OK(t, ist_plan_write_i32(t->plan, b->sums->whole, sums, &t->err));
    EXTERNAL_OK(t, ist_plan_replay(t->plan, &t->err));
    check_points(t, s, b, number, total);
    check_picks(t, b, picks, images, picked);
    for (int k = 0; k < picked && a->selected; k++) /* what was stored last is what is said */
        put_sums(&a->list[a->keep[from + k]], sums + 8 * k, s->crop[images[k]]);
    if (a->selected)
        a->stored += total;
    else
        ref_keep(s, picks, images, picked, sums, iou, total);
    check_state(t, s, found);
}

static bool all_of_it(each_way way, const void *what, unsigned i) {
    optest own, *t = &own;
    const shape *h = what;
    optest_begin(t, "everything", i);
    scene *s = optest_alloc(t, sizeof *s);
    batch b;
    fill_scene(t, s, h);
    external upload = upload_of(t, s), found = found_of(t, s);
    record_batch(t, way, s, i, &b);
    EXTERNAL_OK(t, ist_plan_bind(t->plan, EXT_UPLOAD, upload.mem, &t->err));
    EXTERNAL_OK(t, ist_plan_bind(t->plan, EXT_FOUND, found.mem, &t->err));
    for (int k = 0; k <= h->points / h->prompts + 1; k++) take_batch(t, s, &b, &found); /* the last of none */
    launched(t, way);
    cr_assert_eq(s->state.taken, h->points);
    cr_assert_gt(s->state.count, 0, "%s, seed %llu: nothing to select from", t->name, (unsigned long long)t->seed);
    select_and_check(way, s, &upload, &found);
    for (int k = 0; k <= s->state.kept / h->prompts + 1; k++) take_batch(t, s, &b, &found);
    cr_assert_eq(s->state.stored, s->state.kept);
    external_release(t, &upload);
    external_release(t, &found);
    optest_end(t);
    return true;
}

/* Batches end between points of a crop, at the last of one, and before all work-items have a mask. */
Test(op_everything, from_points_to_objects) {
    hide(0);
    static const shape all[] = {
        {.crops = 1,
         .points = 25,
         .prompts = 7,
         .most = 400,
         .capacity = 320,
         .iou = 0.5,
         .stability = 0.95,
         .within = 0.7,
         .across = 0.7},
        {.crops = 5,
         .points = 50,
         .prompts = 16,
         .most = 30,
         .capacity = 320,
         .iou = 0.25,
         .stability = 0.5,
         .within = 0.9,
         .across = 0.8},
        {.crops = 21,
         .points = 84,
         .prompts = 33,
         .most = 12,
         .capacity = 310,
         .iou = 0,
         .stability = -1,
         .within = 1,
         .across = 1},
        {.crops = 5,
         .points = 20,
         .prompts = 64,
         .most = 20,
         .capacity = 11,
         .iou = -3,
         .stability = 0.5,
         .within = 0.7,
         .across = 0.6},
        {.crops = 1,
         .points = 9,
         .prompts = 1,
         .most = 3,
         .capacity = 320,
         .iou = 0,
         .stability = 0,
         .within = 0.99,
         .across = 0},
    };
    for (unsigned i = 0; i < (optest_small() ? 1 : sizeof all / sizeof *all); i++)
        each_variant(IST_NODE_GRID_PICKS, 0, all_of_it, &all[i], i, false);
    each_had_its_case(IST_NODE_GRID_PICKS, 0);
}

/* ---- selection alone ---- */

enum { CROWDED, ALIKE, RATIOS, NOTHING, KINDS };

/* Within crops, and across crops of one score or several. RATIOS: an IoU of m / l for small numbers, on a threshold
 * that as float lies below or above the double. */
static void fill_candidates(optest *t, scene *s, int kind, int count) {
    state *a = &s->state;
    static const int parts[][2] = {{7, 10}, {3, 5}, {14, 20}, {9, 15}, {4, 5}, {1, 3}, {13, 20}};
    a->count = kind == NOTHING ? 0 : count;
    for (int i = 0; i < a->count; i++) {
        candidate *c = &a->list[i];
        *c = (candidate){.iou = quality_of(t, 0.5),
                         .area = optest_int(t, 0, 5000),
                         .high = optest_int(t, 0, 99),
                         .low = optest_int(t, 0, 99),
                         .point = optest_int(t, 0, 9999),
                         .mask = i % EACH,
                         .crop = i * s->shape->crops / count};
        for (int k = 0; k < 2; k++) {
            c->box[k] = kind == ALIKE ? 20 * optest_int(t, 0, 2) : optest_int(t, 0, 30);
            c->box[k + 2] = c->box[k] + (kind == ALIKE ? 30 : optest_int(t, 0, 60));
        }
        if (kind == RATIOS) {
            const int *part = parts[optest_int(t, 0, 6)], row = optest_int(t, 0, count / 8),
                      times = optest_int(t, 1, 9);
            memcpy(c->box, (int[4]){3, 50 * row, 3 + times * part[optest_int(t, 0, 1)], 50 * row + 1 + row % 40},
                   sizeof c->box);
        }
        a->of_crop[c->crop]++;
    }
}

static bool selection(each_way way, const void *what, unsigned i) {
    static const int counts[] = {300, 1, 33, 64, 65, 257};
    optest own, *t = &own;
    const shape *h = what;
    optest_begin(t, "candidates", i);
    scene *s = optest_alloc(t, sizeof *s);
    fill_scene(t, s, h);
    fill_candidates(t, s, (int)i % KINDS, counts[i % 6]);
    external upload = upload_of(t, s), found = found_of(t, s);
    select_and_check(way, s, &upload, &found);
    external_release(t, &upload);
    external_release(t, &found);
    optest_end(t);
    return true;
}

Test(op_everything, suppression) {
    hide(0);
    static const double thresholds[] = {0.7, 0.6, 0.8, 1.0 / 3, 0.65, 0, 1};
    static const int crops[] = {1, 5, 21}, most[] = {400, 7, 60, 1};
    bool below = false, above = false;
    for (int k = 0; k < 7; k++) {
        below |= (double)(float)thresholds[k] < thresholds[k];
        above |= (double)(float)thresholds[k] > thresholds[k];
    }
    cr_assert(below && above);
    for (unsigned i = 0; i < (optest_small() ? 2 : 42); i++) {
        const shape s = {.crops = crops[i % 3],
                         .points = 21,
                         .prompts = 21,
                         .most = most[i / 3 % 4],
                         .capacity = 320,
                         .within = thresholds[i % 7],
                         .across = thresholds[(i + 1) % 7]};
        each_variant(IST_NODE_GRID_SELECT, 0, selection, &s, i, false);
    }
    each_had_its_case(IST_NODE_GRID_SELECT, 0);
}

/* ---- statistics, and the beginning ---- */

static bool sums_of_parts(each_way way, const void *what, unsigned i) {
    const int objects = *(const int *)what, count = i & 1 ? objects - objects / 3 : objects;
    const ist_mask_groups g = ist_mask_groups_of(ist_lanes_of(way.v), objects);
    const int share = g.all / (count ? count : 1), parts = share < 1 ? 1 : share > g.most ? g.most : share;
    optest own, *t = &own;
    optest_begin(t, "sums", i + 10u * (unsigned)objects);
    int *stats = optest_alloc(t, sizeof(int) * 8 * (size_t)g.all),
        *want = optest_alloc(t, sizeof(int) * 8 * (size_t)objects);
    int *got = optest_alloc(t, sizeof(int) * 8 * (size_t)objects);
    for (int k = 0; k < 8 * g.all; k++) stats[k] = (int)optest_u32(t); /* of those beyond the count */
    for (int k = 0; k < 8 * objects; k++) want[k] = (int)optest_u32(t);
    for (int k = 0; k < count; k++) {
        const int none[8] = {0, INT_MAX, -1, INT_MAX, -1};
        int *y = want + 8 * k;
        memcpy(y, none, sizeof none);
        for (int p = 0; p < parts; p++) {
            int *x = stats + 8 * (k * parts + p);
            memcpy(x, none, sizeof none);
            x[5] = optest_int(t, 0, 9), x[6] = optest_int(t, 0, 90);
            if (k % 5 && optest_int(t, 0, 3)) { /* every fifth is empty */
                x[0] = optest_int(t, 1, 999);
                for (int j = 1; j < 5; j += 2) {
                    x[j] = optest_int(t, 0, 65000);
                    x[j + 1] = optest_int(t, x[j], 65535);
                }
            }
            for (int j = 0; j < 8; j++) {
                if (j == 1 || j == 3)
                    y[j] = x[j] < y[j] ? x[j] : y[j];
                else if (j == 2 || j == 4)
                    y[j] = x[j] > y[j] ? x[j] : y[j];
                else
                    y[j] += x[j];
            }
        }
    }
    ist_tensor x = optest_ints(t, stats, 8 * g.all), y = optest_ints(t, want, 8 * objects);
    x.w = g.all, y.w = objects, x.c = x.ld = y.c = y.ld = 8;
    int *before = (int *)(void *)t->tensors[t->tensor_count - 1].start;
    for (int k = 0; k < 8 * count; k++) before[k] = 7;
    ist_mask_sums node = {.label = "sums",
                          .stats = x,
                          .y = y,
                          .det = {.batch = 1, .max_objects = objects, .total = optest_ints(t, &count, 1)}};
    emit(t, way, IST_NODE_MASK_SUMS, &node);
    optest_run(t);
    launched(t, way);
    read_ints(t, node.y, got);
    for (int k = 0; k < 8 * objects; k++) SAME(got[k], want[k], "statistic %d of object %d", k % 8, k / 8);
    optest_end(t);
    return true;
}

Test(op_everything, mask_sums) {
    hide(0);
    static const int objects[] = {1, 3, 64, 201, 768};
    for (unsigned i = 0; i < (optest_small() ? 4 : 10); i++)
        each_variant(IST_NODE_MASK_SUMS, 0, sums_of_parts, &objects[i / 2], i, false);
    each_had_its_case(IST_NODE_MASK_SUMS, 0);
}

static bool nothing(each_way way, const void *what, unsigned i) {
    optest own, *t = &own;
    (void)what;
    optest_begin(t, "nothing found", i);
    const size_t words = ist_found_words(40);
    uint32_t *noise = optest_alloc(t, 4 * words);
    for (size_t k = 0; k < words; k++) noise[k] = optest_u32(t);
    external found = external_create(t, noise, 4 * words);
    ist_found_none node = {.label = "none", .found = ist_plan_external(t->plan, EXT_FOUND, IST_ELEM_I32)};
    emit(t, way, IST_NODE_FOUND_NONE, &node);
    EXTERNAL_OK(t, ist_plan_finish(t->plan, &t->err));
    EXTERNAL_OK(t, ist_plan_bind(t->plan, EXT_FOUND, found.mem, &t->err));
    EXTERNAL_OK(t, ist_plan_replay(t->plan, &t->err));
    launched(t, way);
    const uint32_t *got = external_read(t, &found);
    for (size_t k = 0; k < words; k++)
        cr_assert_eq(got[k], k < IST_FD_HEADER ? 0 : noise[k], "word %zu is %u", k, got[k]);
    external_release(t, &found);
    optest_end(t);
    return true;
}

Test(op_everything, found_none) {
    each_variant(IST_NODE_FOUND_NONE, 0, nothing, NULL, 0, false);
    each_had_its_case(IST_NODE_FOUND_NONE, 0);
}
