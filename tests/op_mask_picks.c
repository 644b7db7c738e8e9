/* MASKS by a list: objects whose logits are anywhere, in crops of an image whose rows begin anywhere. Bits lie where
 * the whole image has them, in the place that was asked for, and nowhere else; without a place there are statistics
 * alone. */
#include "support/each_variant.h"
#include "support/external.h"
#include "variants/upload.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { EXT_UPLOAD = 0, EXT_STORE = 1, LOW = 64, CROPS = 5, PLACES = 4, PICKS = 7, MOST = 8 };

/* An image and its crops: x0 y0 x1 y1. */
typedef struct scene {
    int width, height, crop[CROPS][4], count;
    float offset;
} scene;

/* Tops and bottoms on and beside multiples of 32, crops within one word, at edges, a pixel wide. */
static const scene scenes[] = {
    {150, 101, {{0, 0, 150, 101}, {13, 33, 140, 95}, {70, 64, 150, 101}, {5, 31, 6, 65}, {0, 40, 150, 60}}, PICKS, 1},
    {97, 64, {{0, 0, 97, 64}, {1, 1, 96, 63}, {40, 32, 97, 64}, {0, 63, 97, 64}, {60, 0, 64, 33}}, MOST, 0.5f},
    {40, 30, {{0, 0, 40, 30}, {0, 7, 20, 30}, {20, 0, 40, 23}, {11, 13, 12, 14}, {3, 29, 40, 30}}, 1, 2.25f},
};

static void logits_of(optest *t, float *v, int kind) {
    const float r = optest_uniform(t, 5, 30), cx = optest_uniform(t, 0, LOW), cy = optest_uniform(t, 0, LOW);
    for (int y = 0; y < LOW; y++)
        for (int x = 0; x < LOW; x++)
            v[y * LOW + x] = kind == 1   ? -5
                             : kind == 2 ? 4
                                         : r - hypotf((float)x - cx, (float)y - cy) + optest_uniform(t, -3, 3);
}

static uint32_t *upload_of(optest *t, const scene *s, uint32_t store_words, size_t *bytes) {
    *bytes = 4 * (IST_UP_HEADER + (size_t)CROPS * IST_IM_WORDS);
    uint32_t *up = optest_alloc(t, *bytes);
    up[IST_UP_STORE_WORDS] = store_words;
    for (int c = 0; c < CROPS; c++) {
        const int *k = s->crop[c];
        ist_upload_image(up, c,
                         &(ist_frame_image){.width = k[2] - k[0],
                                            .height = k[3] - k[1],
                                            .channels = 3,
                                            .sample_bytes = 1,
                                            .stride = 1,
                                            .seg_side = 4 * LOW});
        up[IST_UP_HEADER + c * IST_IM_WORDS + IST_IM_CROP_X] = (uint32_t)k[0];
        up[IST_UP_HEADER + c * IST_IM_WORDS + IST_IM_CROP_Y] = (uint32_t)k[1];
    }
    return up;
}

/* The mask of one crop: its bits in `store`, unless that is NULL, its statistics. */
static void expect_mask(const scene *s, const int *crop, const float *low, uint32_t *store, int sums[7]) {
    const int w = crop[2] - crop[0], h = crop[3] - crop[1], column = (s->height + 31) / 32;
    float *v = malloc(sizeof *v * (size_t)w * (size_t)h);
    int sw, sh;
    memcpy(sums, (int[7]){0, INT_MAX, -1, INT_MAX, -1, 0, 0}, 7 * sizeof *sums);
    ist_segmenter_size(4 * LOW, w, h, &sw, &sh);
    ref_upsample(low, LOW, sw, sh, v, w, h);
    for (int x = 0; store && x < w; x++)
        for (int j = crop[1] / 32; j <= (crop[3] - 1) / 32; j++) store[(crop[0] + x) * column + j] = 0;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            const float p = v[(size_t)y * w + x];
            const int ix = crop[0] + x, iy = crop[1] + y;
            sums[5] += p > s->offset;
            sums[6] += p > -s->offset;
            if (!(p > 0)) continue;
            sums[0]++;
            if (ix < sums[1]) sums[1] = ix;
            if (ix > sums[2]) sums[2] = ix;
            if (iy < sums[3]) sums[3] = iy;
            if (iy > sums[4]) sums[4] = iy;
            if (store) store[ix * column + iy / 32] |= 1u << iy % 32;
        }
    free(v);
}

static bool in_crops(each_way way, const void *what, unsigned i) {
    const scene *s = what;
    const int column = (s->height + 31) / 32;
    const size_t store_words = (size_t)s->width * (size_t)column + i % 3;
    optest own, *t = &own;
    optest_begin(t, "masks in crops", i);
    ref_map low = optest_zeros(t, MOST, LOW, LOW, 1);
    for (int k = 0; k < MOST; k++) logits_of(t, low.v + (size_t)k * LOW * LOW, k % 4);
    /* a place at most once; the first and the last crop, and items out of order */
    int picks[2 * MOST], image_of[MOST];
    for (int k = 0; k < MOST; k++) {
        picks[2 * k] = (int)((unsigned)(5 * k) + i) % MOST;
        picks[2 * k + 1] = k % 2 ? -1 : PLACES - 1 - k / 2;
        image_of[k] = k ? optest_int(t, 0, CROPS - 1) : (int)i % CROPS;
    }
    size_t bytes;
    uint32_t *up = upload_of(t, s, (uint32_t)store_words, &bytes);
    uint32_t *want = optest_alloc(t, 4 * store_words * PLACES);
    memset(want, EXTERNAL_PATTERN, 4 * store_words * PLACES);
    external upload = external_create(t, up, bytes), store = external_create(t, NULL, 4 * store_words * PLACES);
    ist_tensor list = optest_ints(t, picks, 2 * MOST);
    list.w = MOST, list.c = list.ld = 2;
    ist_masks node = {.label = "masks",
                      .logits = optest_in(t, low, IST_ELEM_F32, false),
                      .upload = ist_plan_external(t->plan, EXT_UPLOAD, IST_ELEM_I32),
                      .store = ist_plan_external(t->plan, EXT_STORE, IST_ELEM_I32),
                      .picks = list,
                      .det = {.batch = 1, .max_objects = MOST},
                      .side = 4 * LOW,
                      .offset = s->offset};
    node.det.total = optest_ints(t, &s->count, 1);
    node.det.image_of = optest_ints(t, image_of, MOST);
    cr_assert(each_emits(t, way, &node));
    ist_mask_sums sums = {.label = "sums", .stats = node.stats, .det = node.det};
    int count;
    const ist_variant *first = ist_variants_of(IST_NODE_MASKS, &count);
    cr_assert(each_emits(t, (each_way){ist_variants_of(IST_NODE_MASK_SUMS, &count) + (way.v - first), true}, &sums));
    EXTERNAL_OK(t, ist_plan_finish(t->plan, &t->err));
    EXTERNAL_OK(t, ist_plan_bind(t->plan, EXT_UPLOAD, upload.mem, &t->err));
    EXTERNAL_OK(t, ist_plan_bind(t->plan, EXT_STORE, store.mem, &t->err));
    for (int k = 0; k < t->tensor_count; k++) {
        const optest_tensor *e = &t->tensors[k];
        if (e->whole.elem == IST_ELEM_I32)
            EXTERNAL_OK(t, ist_plan_write_i32(t->plan, e->whole, (const int *)(const void *)e->start, &t->err));
        else
            EXTERNAL_OK(t, ist_plan_write_f32(t->plan, e->whole, e->start, &t->err));
    }
    EXTERNAL_OK(t, ist_plan_replay(t->plan, &t->err));
    int got[8 * MOST], areas = 0;
    EXTERNAL_OK(t, ist_plan_read_i32(t->plan, sums.y, got, &t->err));
    for (int k = 0; k < s->count; k++) {
        int expected[7];
        const int place = picks[2 * k + 1], *crop = s->crop[image_of[k]];
        expect_mask(s, crop, low.v + (size_t)picks[2 * k] * LOW * LOW,
                    place < 0 ? NULL : want + (size_t)place * store_words, expected);
        areas += expected[0];
        for (int j = 0; j < 7; j++)
            cr_assert_eq(got[8 * k + j], expected[j], "%s, seed %llu, object %d, crop %d: statistic %d is %d, not %d",
                         t->name, (unsigned long long)t->seed, k, image_of[k], j, got[8 * k + j], expected[j]);
    }
    if (s->count > 1) cr_assert_gt(areas, 0);
    const uint32_t *bits = external_read(t, &store);
    for (size_t k = 0; k < store_words * PLACES; k++)
        cr_assert_eq(bits[k], want[k], "%s, seed %llu: word %zu of place %zu is %08x, not %08x", t->name,
                     (unsigned long long)t->seed, k % store_words, k / store_words, bits[k], want[k]);
    external_release(t, &upload);
    external_release(t, &store);
    optest_end(t);
    return true;
}

Test(op_mask_picks, in_crops) {
    hide(0);
    for (unsigned i = 0; i < (optest_small() ? 1 : 15); i++)
        each_variant(IST_NODE_MASKS, 0, in_crops, &scenes[i % 3], i, false);
    each_had_its_case(IST_NODE_MASKS, 0);
}
