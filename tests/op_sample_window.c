/* SAMPLE_WINDOW: the percentiles of 16-bit images against sorted samples, for every pixel format, rows with padding,
 * crops, and pictures that have few values or one. By every variant of the table. */
#include "support/each_variant.h"
#include "support/external.h"
#include "variants/upload.h"

#include <stdlib.h>

enum { UPLOAD, PIXELS, BATCH = 4, HEADER = IST_UP_HEADER + BATCH * IST_IM_WORDS };

/* Samples: any value of `spread`, from `least` on; a share of `outliers` in 1000 are 0 or 65535. */
typedef struct picture {
    int w, h, channels, spread, least, outliers;
} picture;

typedef struct window {
    int low, high;
} window;

static int by_value(const void *a, const void *b) {
    return (int)*(const uint16_t *)a - (int)*(const uint16_t *)b;
}

/* Row by row w * channels samples, then pad. */
static window sorted_out(const uint16_t *v, const picture *p, int pad) {
    size_t count = 0;
    int colours = p->channels < 3 ? 1 : 3;
    uint16_t *all = malloc(sizeof *all * (size_t)(p->w * p->h * colours));
    for (int y = 0; y < p->h; y++, v += pad)
        for (int x = 0; x < p->w; x++, v += p->channels)
            for (int c = 0; c < colours; c++) all[count++] = v[c];
    qsort(all, count, sizeof *all, by_value);
    size_t k = count / 200;
    window w = {all[k], all[count - 1 - k]};
    if (w.low == w.high) w = (window){all[0], all[count - 1]};
    if (w.low == w.high) w.high++;
    free(all);
    return w;
}

static uint16_t *draw(optest *t, const picture *p, int pad) {
    size_t n = (size_t)(p->w * p->channels + pad) * (size_t)p->h;
    uint16_t *v = optest_alloc(t, 2 * n);
    for (size_t i = 0; i < n; i++) {
        v[i] = (uint16_t)(p->least + optest_int(t, 0, p->spread - 1));
        if (optest_int(t, 0, 999) < p->outliers) v[i] = i % 2 ? 65535 : 0;
    }
    return v;
}

/* Four images: one to be found, one with a window, one of 8 bits, one to be found. The last is a crop where `bits` say
 * so, and the plan is for one image more. */
static bool find(each_way way, const void *shape, unsigned bits) {
    const picture *p = shape;
    const int pad = (int)bits % 3;
    optest t;
    optest_begin(&t, "windows", bits);
    uint16_t *v = draw(&t, p, pad);
    size_t stride = (size_t)(p->w * p->channels + pad) * 2, bytes = stride * (size_t)p->h;
    window want = sorted_out(v, p, pad);
    uint32_t *up = optest_alloc(&t, HEADER * 4);
    memset(up, 0, HEADER * 4);
    up[IST_UP_COUNT] = BATCH;
    for (int i = 0; i < BATCH; i++) {
        ist_frame_image m = {.width = p->w,
                             .height = p->h,
                             .channels = p->channels,
                             .sample_bytes = i == 2 ? 1 : 2,
                             .stride = (uint32_t)stride,
                             .offset = 0,
                             .automatic = i != 1,
                             .low = i == 1 ? -7 : 0,
                             .high = i == 1 ? 99 : 0};
        if (i == 3 && bits & 1) {
            m.crop_x = p->w / 3, m.crop_y = p->h / 2;
            m.width = p->w - m.crop_x, m.height = (p->h + 1) / 2;
            m.offset = (uint64_t)m.crop_y * stride + (uint64_t)(m.crop_x * p->channels * 2);
            m.whole_width = p->w, m.whole_height = p->h;
        }
        ist_upload_image(up, i, &m);
    }
    external upload = external_create(&t, up, HEADER * 4), raw = external_create(&t, v, bytes);
    ist_sample_window node = {.label = "windows",
                              .upload = ist_plan_external(t.plan, UPLOAD, IST_ELEM_I32),
                              .pixels = ist_plan_external(t.plan, PIXELS, IST_ELEM_U8),
                              .batch = BATCH + 1};
    cr_assert(each_emits(&t, way, &node));
    EXTERNAL_OK(&t, ist_plan_finish(t.plan, &t.err));
    EXTERNAL_OK(&t, ist_plan_bind(t.plan, UPLOAD, upload.mem, &t.err));
    EXTERNAL_OK(&t, ist_plan_bind(t.plan, PIXELS, raw.mem, &t.err));
    EXTERNAL_OK(&t, ist_plan_replay(t.plan, &t.err));
    const uint32_t *got = external_read(&t, &upload);
    for (int i = 0; i < BATCH; i++) {
        uint32_t *im = up + IST_UP_HEADER + i * IST_IM_WORDS;
        if (i == 0 || i == 3) im[IST_IM_LOW] = (uint32_t)want.low, im[IST_IM_HIGH] = (uint32_t)want.high;
    }
    for (int i = 0; i < HEADER; i++)
        cr_assert_eq(got[i], up[i], "%s, %d x %d x %d: word %d is %d, not %d", way.v->name, p->w, p->h, p->channels, i,
                     (int)got[i], (int)up[i]);
    external_release(&t, &upload);
    external_release(&t, &raw);
    optest_end(&t);
    return true;
}

Test(op_sample_window, sorted_samples) {
    static const picture all[] = {
        {37, 41, 1, 4096, 0, 0},     {90, 70, 1, 4096, 0, 3},    {61, 300, 3, 65536, 0, 0}, {64, 64, 4, 300, 40000, 2},
        {50, 31, 2, 1000, 255, 4},   {1, 1, 1, 65536, 0, 0},     {1, 199, 1, 9, 250, 0},    {200, 1, 1, 20000, 500, 0},
        {40, 40, 1, 1, 777, 2},      {40, 40, 3, 1, 65535, 0},   {13, 17, 2, 1, 0, 0},      {300, 2, 3, 2, 255, 0},
        {256, 130, 1, 256, 1024, 0}, {90, 129, 1, 3, 65533, 10}, {128, 128, 1, 1, 0, 4},    {5, 3, 4, 65536, 0, 0}};
    hide(0);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        each_variant(IST_NODE_SAMPLE_WINDOW, 0, find, &all[i], i, false);
    each_had_its_case(IST_NODE_SAMPLE_WINDOW, 0);
}

/* Tiles: what the whole image has, in their blocks and in those of their own uploads and of their groups'; nothing
 * else changes. */
static bool spread(each_way way, const void *shape, unsigned bits) {
    enum { TILES = 70, EACH = 8, GROUPS = (TILES - 1 + EACH - 1) / EACH, STEP = 64, GROUP = 320 };
    enum {
        AT = IST_UP_HEADER + TILES * IST_IM_WORDS,
        GROUP_AT = AT + (TILES - 1) * STEP,
        WORDS = GROUP_AT + GROUPS * GROUP
    };
    const picture *p = shape;
    optest t;
    optest_begin(&t, "tiles", bits);
    uint16_t *v = draw(&t, p, 0);
    size_t stride = (size_t)(p->w * p->channels) * 2;
    window want = sorted_out(v, p, 0);
    uint32_t *up = optest_alloc(&t, WORDS * 4);
    for (int i = 0; i < WORDS; i++) up[i] = 77;
    memset(up, 0, IST_UP_HEADER * 4);
    up[IST_UP_COUNT] = 1, up[IST_UP_TILES] = TILES, up[IST_UP_TILE_AT] = AT, up[IST_UP_TILE_STEP] = STEP;
    up[IST_UP_GROUP] = EACH, up[IST_UP_GROUP_AT] = GROUP_AT, up[IST_UP_GROUP_STEP] = GROUP;
    ist_frame_image m = {.width = p->w,
                         .height = p->h,
                         .channels = p->channels,
                         .sample_bytes = 2,
                         .stride = (uint32_t)stride,
                         .automatic = true};
    ist_upload_image(up, 0, &m);
    external upload = external_create(&t, up, WORDS * 4), raw = external_create(&t, v, stride * (size_t)p->h);
    ist_sample_window node = {.label = "windows",
                              .upload = ist_plan_external(t.plan, UPLOAD, IST_ELEM_I32),
                              .pixels = ist_plan_external(t.plan, PIXELS, IST_ELEM_U8),
                              .batch = 1};
    cr_assert(each_emits(&t, way, &node));
    EXTERNAL_OK(&t, ist_plan_finish(t.plan, &t.err));
    EXTERNAL_OK(&t, ist_plan_bind(t.plan, UPLOAD, upload.mem, &t.err));
    EXTERNAL_OK(&t, ist_plan_bind(t.plan, PIXELS, raw.mem, &t.err));
    EXTERNAL_OK(&t, ist_plan_replay(t.plan, &t.err));
    for (int i = 0; i < TILES; i++) {
        const int k = i - 1,
                  at[3] = {i * IST_IM_WORDS, AT + k * STEP, GROUP_AT + k / EACH * GROUP + k % EACH * IST_IM_WORDS};
        for (int c = 0; c < (i ? 3 : 1); c++) {
            uint32_t *im = up + IST_UP_HEADER + at[c];
            im[IST_IM_LOW] = (uint32_t)want.low, im[IST_IM_HIGH] = (uint32_t)want.high;
        }
    }
    const uint32_t *got = external_read(&t, &upload);
    for (int i = 0; i < WORDS; i++)
        cr_assert_eq(got[i], up[i], "%s: word %d is %d, not %d", way.v->name, i, (int)got[i], (int)up[i]);
    external_release(&t, &upload);
    external_release(&t, &raw);
    optest_end(&t);
    return true;
}

Test(op_sample_window, tiles) {
    static const picture p = {61, 47, 3, 4096, 100, 3};
    hide(0);
    each_variant(IST_NODE_SAMPLE_WINDOW, 0, spread, &p, 0, false);
    each_had_its_case(IST_NODE_SAMPLE_WINDOW, 0);
}
