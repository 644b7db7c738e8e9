/* Masks and the packet: bits, counts and boxes against PyTorch's two-step upsampling in plain C; windows, prefix sums,
 * and nothing lost when the packet is too small. */
#include "variants/upload.h"
#include "variants/variant.h"
#include "support/external.h"

#include <math.h>
#include <stdlib.h>

enum { EXT_UPLOAD = 0, EXT_STORE = 1, EXT_PACKET = 2, MAX_OBJECTS = 12 };

typedef struct scene {
    int batch, count, most, total; /* plan's images, images here, objects per image, objects in all */
    int width[4], height[4], objects_of[4];
    int size;      /* of the low-resolution logits */
    uint32_t room; /* mask words of the packet */
    float *low;    /* [P][size * size] */
    float *score;  /* [P] */
    int *words;    /* objects: [batch][most][IST_DET_WORDS] */
    size_t store_words;
    uint32_t *packet, *store; /* results */
} scene;

/* Blobs on a slope: some of it beyond +-1, edges everywhere; kind 1 empty, 2 full, 3 a single spot, 4 with NaN. */
static void low_logits(optest *t, float *low, int size, int kind) {
    float one = (float)size / 256, r = optest_uniform(t, 8, 90) * one;
    float cx = optest_uniform(t, 20, 230) * one, cy = optest_uniform(t, 20, 230) * one;
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++) {
            float v = r - hypotf((float)x - cx, (float)y - cy) + optest_uniform(t, -3, 3);
            if (kind == 1) v = -5;
            if (kind == 2) v = 2.5f;
            if (kind == 3) v = x == 100 * size / 256 && y == 130 * size / 256 ? 6.0f : -8.0f;
            if (kind == 4 && optest_int(t, 0, 50) == 0) v = NAN;
            low[y * size + x] = v;
        }
}

static void fill(optest *t, scene *s) {
    if (!s->size) s->size = 256;
    size_t logits = (size_t)s->size * (size_t)s->size;
    s->low = optest_alloc(t, sizeof *s->low * logits * (size_t)(s->batch * s->most));
    s->score = optest_alloc(t, sizeof *s->score * (size_t)(s->batch * s->most));
    s->words = optest_alloc(t, sizeof *s->words * IST_DET_WORDS * (size_t)(s->batch * s->most));
    s->total = 0;
    for (int i = 0; i < s->count; i++) {
        size_t need = (size_t)s->width[i] * (size_t)((s->height[i] + 31) / 32);
        if (need > s->store_words) s->store_words = need;
        s->total += s->objects_of[i];
    }
    s->store_words += 3;
    for (int k = 0; k < s->batch * s->most; k++) {
        low_logits(t, s->low + (size_t)k * logits, s->size, k % 6);
        s->score[k] = (float)optest_int(t, 0, 1024) / 1024;
    }
    for (int i = 0; i < s->batch * s->most * IST_DET_WORDS; i++) s->words[i] = (int)optest_u32(t);
}

static uint32_t *upload_of(optest *t, const scene *s, size_t *bytes) {
    *bytes = 4 * (IST_UP_HEADER + (size_t)s->batch * IST_IM_WORDS);
    uint32_t *up = optest_alloc(t, *bytes);
    up[IST_UP_COUNT] = (uint32_t)s->count;
    up[IST_UP_PACKET_WORDS] = s->room;
    up[IST_UP_STORE_WORDS] = (uint32_t)s->store_words;
    for (int i = 0; i < s->count; i++)
        ist_upload_image(up, i,
                         &(ist_frame_image){.width = s->width[i],
                                            .height = s->height[i],
                                            .channels = 3,
                                            .sample_bytes = 1,
                                            .stride = 1,
                                            .seg_side = 4 * s->size});
    return up;
}

/* The tensors a detector would have left. */
static ist_detections detections_of(optest *t, const scene *s) {
    int counts[16] = {0}, image_of[4 * MAX_OBJECTS] = {0}, k = 0;
    for (int i = 0; i < s->count; i++) {
        counts[4 * i] = s->objects_of[i];
        counts[4 * i + 1] = 3 * i;
        counts[4 * i + 2] = k;
        for (int j = 0; j < s->objects_of[i]; j++) image_of[k++] = i;
    }
    ist_detections d = {.batch = s->batch, .max_objects = s->most};
    d.objects = optest_ints(t, s->words, s->batch * s->most * IST_DET_WORDS);
    d.counts = optest_ints(t, counts, 4 * s->batch);
    d.total = optest_ints(t, &s->total, 1);
    d.image_of = optest_ints(t, image_of, s->batch * s->most);
    return d;
}

static void run(optest *t, scene *s, bool masks, const int *match) {
    size_t bytes, prompts = (size_t)s->batch * (size_t)s->most;
    uint32_t *up = upload_of(t, s, &bytes);
    external upload = external_create(t, up, bytes), store = external_create(t, NULL, 4 * s->store_words * prompts);
    external packet = external_create(t, NULL, 4 * (ist_packet_masks_at(s->batch, s->most) + s->room));
    ist_detections d = detections_of(t, s);
    ref_map low = {(int)prompts, s->size, s->size, 1, s->low}, score = {(int)prompts, 1, 1, 1, s->score};
    ist_pack in = {.label = "pack", .det = d, .score = optest_in(t, score, IST_ELEM_T, true)};
    in.upload = ist_plan_external(t->plan, EXT_UPLOAD, IST_ELEM_I32);
    in.packet = ist_plan_external(t->plan, EXT_PACKET, IST_ELEM_I32);
    if (masks) {
        in.store = ist_plan_external(t->plan, EXT_STORE, IST_ELEM_I32);
        ist_masks node = {.label = "masks", .upload = in.upload, .store = in.store, .det = d, .side = 4 * s->size, .offset = 1};
        node.logits = optest_in(t, low, IST_ELEM_F32, false);
        ist_emit(t->plan, IST_NODE_MASKS, &node);
        in.stats = node.stats;
    }
    if (match) in.match = optest_ints(t, match, 2 * (int)prompts);
    ist_emit(t->plan, IST_NODE_PACK, &in);
    EXTERNAL_OK(t, ist_plan_finish(t->plan, &t->err));
    EXTERNAL_OK(t, ist_plan_bind(t->plan, EXT_UPLOAD, upload.mem, &t->err));
    EXTERNAL_OK(t, ist_plan_bind(t->plan, EXT_STORE, store.mem, &t->err));
    EXTERNAL_OK(t, ist_plan_bind(t->plan, EXT_PACKET, packet.mem, &t->err));
    for (int i = 0; i < t->tensor_count; i++) {
        const optest_tensor *e = &t->tensors[i];
        if (e->whole.elem == IST_ELEM_I32)
            EXTERNAL_OK(t, ist_plan_write_i32(t->plan, e->whole, (const int *)(const void *)e->start, &t->err));
        else
            EXTERNAL_OK(t, ist_plan_write_f32(t->plan, e->whole, e->start, &t->err));
    }
    EXTERNAL_OK(t, ist_plan_replay(t->plan, &t->err));
    s->packet = external_read(t, &packet);
    s->store = external_read(t, &store);
    external_release(t, &upload);
    external_release(t, &store);
    external_release(t, &packet);
}

static float float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

typedef struct facts {
    int area, box[4], high, low;
} facts;

static facts facts_of(const float *v, int w, int h) {
    facts f = {.box = {w, h, -1, -1}};
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            float p = v[(size_t)y * w + x];
            f.high += p > 1;
            f.low += p > -1;
            if (!(p > 0)) continue;
            f.area++;
            if (x < f.box[0]) f.box[0] = x;
            if (y < f.box[1]) f.box[1] = y;
            if (x > f.box[2]) f.box[2] = x;
            if (y > f.box[3]) f.box[3] = y;
        }
    if (!f.area) memset(f.box, 0, sizeof f.box);
    return f;
}

/* Object k against the upsampled logits; returns the words of its window. */
static uint32_t check_mask(const optest *t, const scene *s, int k, int w, int h, uint32_t offset) {
    const uint32_t *o = s->packet + ist_packet_objects_at(s->batch) + (size_t)k * IST_OB_WORDS;
    float *v = malloc(sizeof *v * (size_t)w * (size_t)h);
    int sw, sh;
    ist_segmenter_size(4 * s->size, w, h, &sw, &sh);
    ref_upsample(s->low + (size_t)k * (size_t)s->size * (size_t)s->size, s->size, sw, sh, v, w, h);
    facts f = facts_of(v, w, h);
    cr_assert_eq((int)o[IST_OB_AREA], f.area, "%s, object %d, %d x %d, seed %llu: area %d, not %d", t->name, k, w, h,
                 (unsigned long long)t->seed, (int)o[IST_OB_AREA], f.area);
    for (int i = 0; i < 4; i++)
        cr_assert_eq((int)o[IST_OB_MASK_BOX + i], f.box[i], "%s, object %d: box[%d] is %d, not %d", t->name, k, i,
                     (int)o[IST_OB_MASK_BOX + i], f.box[i]);
    cr_assert_float_eq(float_of(o[IST_OB_STABILITY]), f.low ? (float)f.high / (float)f.low : 0, 1e-6);
    cr_assert_eq(float_of(o[IST_OB_MASK_SCORE]), s->score[k]);
    int x0 = (int)o[IST_OB_X0], y0 = (int)o[IST_OB_Y0], words = (int)o[IST_OB_COLUMN_WORDS],
        cols = (int)o[IST_OB_COLUMNS];
    cr_assert(cols == (f.area ? f.box[2] - f.box[0] + 1 : 0) &&
              (!cols || (x0 == f.box[0] && y0 == f.box[1] / 32 * 32)));
    cr_assert_eq(o[IST_OB_OFFSET], offset);
    uint32_t stored = s->packet[IST_PK_STORED_WORDS], size = (uint32_t)(cols * words);
    const uint32_t *bits = s->packet + ist_packet_masks_at(s->batch, s->most) + offset;
    if (offset + size > stored) bits = s->store + (offset - stored);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            bool inside = x >= x0 && x < x0 + cols && y >= y0 && y < y0 + 32 * words;
            bool got = inside && (bits[(x - x0) * words + (y - y0) / 32] >> (y - y0) % 32 & 1);
            cr_assert_eq(got, v[(size_t)y * w + x] > 0, "%s, object %d, pixel %d,%d: %d, logit %.9g", t->name, k, x, y,
                         got, v[(size_t)y * w + x]);
        }
    free(v);
    return size;
}

static void check(const optest *t, const scene *s, bool masks, const int *match) {
    const uint32_t *p = s->packet;
    cr_assert(p[IST_PK_IMAGES] == (uint32_t)s->count && p[IST_PK_OBJECTS] == (uint32_t)s->total);
    int k = 0;
    uint32_t offset = 0, fits = 0;
    for (int i = 0; i < s->batch; i++) {
        const uint32_t *b = p + IST_PK_HEADER + (size_t)i * IST_PK_IMAGE_WORDS;
        cr_assert(b[IST_PI_OBJECTS] == (uint32_t)s->objects_of[i] &&
                  (i >= s->count || b[IST_PI_DROPPED] == (uint32_t)(3 * i)));
        for (int j = 0; j < s->objects_of[i]; j++, k++) {
            const uint32_t *o = p + ist_packet_objects_at(s->batch) + (size_t)k * IST_OB_WORDS;
            const int *d = s->words + ((size_t)i * s->most + j) * IST_DET_WORDS;
            cr_assert(!j ? b[IST_PI_FIRST] == (uint32_t)k : true);
            cr_assert((int)o[IST_OB_LABEL] == d[IST_DET_LABEL] && (int)o[IST_OB_SCORE] == d[IST_DET_SCORE] &&
                      (int)o[IST_OB_QUERY] == d[IST_DET_QUERY] && o[IST_OB_IMAGE] == (uint32_t)i &&
                      !memcmp(o + IST_OB_BOX, d + IST_DET_BOX, 16));
            cr_assert((int)o[IST_OB_MATCH] == (match ? match[2 * (i * s->most + j)] : -1) &&
                      (int)o[IST_OB_MATCH_IOU] == (match ? match[2 * (i * s->most + j) + 1] : 0));
            if (!masks) {
                for (int q = IST_OB_MASK_SCORE; q < IST_OB_IMAGE; q++) cr_assert_eq(o[q], 0);
                continue;
            }
            offset += check_mask(t, s, k, s->width[i], s->height[i], offset);
            if (offset <= s->room) fits = offset;
        }
    }
    cr_assert(p[IST_PK_MASK_WORDS] == offset && p[IST_PK_STORED_WORDS] == fits,
              "%s: %u words, %u in the packet; not %u and %u", t->name, p[IST_PK_MASK_WORDS], p[IST_PK_STORED_WORDS],
              offset, fits);
}

static const scene scenes[] = {
    {.batch = 1, .count = 1, .most = 6, .objects_of = {6}, .width = {61}, .height = {45}, .room = 100000},
    {.batch = 2, .count = 2, .most = 3, .objects_of = {2, 3}, .width = {1, 33}, .height = {70, 1}, .room = 100},
    {.batch = 1, .count = 1, .most = 6, .objects_of = {6}, .width = {1280}, .height = {720}, .room = 60000},
    {.batch = 3, .count = 2, .most = 7, .objects_of = {7, 4}, .width = {90, 401}, .height = {200, 333}, .room = 1500},
    {.batch = 1, .count = 1, .most = 6, .objects_of = {3}, .width = {1500}, .height = {1700}, .room = 0},
    {.batch = 2, .count = 2, .most = 4, .objects_of = {0, 0}, .width = {10, 10}, .height = {10, 10}, .room = 10},
    {.batch = 1, .count = 1, .most = 12, .objects_of = {12}, .width = {100}, .height = {64}, .room = 700},
    {.batch = 1, .count = 1, .most = 6, .objects_of = {6}, .width = {75}, .height = {101}, .room = 10000, .size = 64},
    {.batch = 1, .count = 1, .most = 6, .objects_of = {6}, .width = {61}, .height = {45}, .room = 9000, .size = 128},
    {.batch = 1, .count = 1, .most = 6, .objects_of = {5}, .width = {83}, .height = {1}, .room = 900, .size = 16},
};

Test(op_mask, packets) {
    for (unsigned i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        if (optest_small() && scenes[i].width[0] * scenes[i].height[0] > 7000) continue;
        optest t;
        optest_begin(&t, "packet", i);
        scene s = scenes[i];
        fill(&t, &s);
        int match[8 * MAX_OBJECTS];
        for (unsigned k = 0; k < sizeof match / sizeof *match; k++) match[k] = (int)optest_u32(&t);
        run(&t, &s, true, i % 2 ? match : NULL);
        check(&t, &s, true, i % 2 ? match : NULL);
        optest_end(&t);
    }
}

Test(op_mask, without_a_segmenter) {
    optest t;
    optest_begin(&t, "boxes only", 0);
    scene s = scenes[3];
    fill(&t, &s);
    run(&t, &s, false, NULL);
    check(&t, &s, false, NULL);
    optest_end(&t);
}
