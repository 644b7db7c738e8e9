/* Preprocessing: bit for bit Pillow's resizer followed by the networks' normalisation, for every pixel format, and the
 * layouts that kernels and host share. */
#include "variants/upload.h"
#include "variants/variant.h"
#include "support/external.h"
#include "support/golden.h"
#include "support/hidden_caps.h"
#include "synth.h"

#include "base/hash.h"
#include "base/sample_window.h"
#include "device/sources.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const float mean[3] = {123.675f, 116.28f, 103.53f}, std[3] = {58.395f, 57.12f, 57.375f};

/* ---- layouts ---- */

typedef struct entry {
    const char *name;
    int value;
} entry;

#define UP(x)                                                                                                          \
    { "UP_" #x, IST_UP_##x }
#define IM(x)                                                                                                          \
    { "IM_" #x, IST_IM_##x }
#define PK(x)                                                                                                          \
    { "PK_" #x, IST_PK_##x }
#define OB(x)                                                                                                          \
    { "OB_" #x, IST_OB_##x }
#define DET(x)                                                                                                         \
    { "DET_" #x, IST_DET_##x }
static const entry layout[] = {UP(COUNT),
                               UP(FLAGS),
                               UP(PACKET_WORDS),
                               UP(STORE_WORDS),
                               UP(HEADER),
                               UP(RESET_TRACKS),
                               UP(TRACK_HALF),
                               IM(WIDTH),
                               IM(HEIGHT),
                               IM(CHANNELS),
                               IM(SAMPLE),
                               IM(OFFSET_LOW),
                               IM(OFFSET_HIGH),
                               IM(STRIDE),
                               IM(DET_X),
                               IM(DET_Y),
                               IM(SEG_WIDTH),
                               IM(SEG_HEIGHT),
                               IM(SEG_X),
                               IM(SEG_Y),
                               IM(SCALE_X),
                               IM(SCALE_X_LOW),
                               IM(SCALE_Y),
                               IM(SCALE_Y_LOW),
                               IM(MASK_X),
                               IM(MASK_Y),
                               IM(TARGETS),
                               IM(TARGET_AT),
                               IM(DET_VERTICAL),
                               IM(SEG_VERTICAL),
                               IM(LOW),
                               IM(HIGH),
                               IM(WHOLE_WIDTH),
                               IM(WHOLE_HEIGHT),
                               IM(WORDS),
                               {"TARGET_BOX", IST_TARGET_BOX},
                               {"TARGET_LABEL", IST_TARGET_LABEL},
                               {"TARGET_WORDS", IST_TARGET_WORDS},
                               {"TAPS_K", IST_TAPS_K},
                               {"TAPS_PAIRS", IST_TAPS_PAIRS},
                               PK(IMAGES),
                               PK(OBJECTS),
                               PK(MASK_WORDS),
                               PK(STORED_WORDS),
                               PK(HEADER),
                               {"PI_OBJECTS", IST_PI_OBJECTS},
                               {"PI_DROPPED", IST_PI_DROPPED},
                               {"PI_FIRST", IST_PI_FIRST},
                               {"PI_WINDOW", IST_PI_WINDOW},
                               PK(IMAGE_WORDS),
                               OB(LABEL),
                               OB(SCORE),
                               OB(BOX),
                               OB(QUERY),
                               OB(MATCH),
                               OB(MATCH_IOU),
                               OB(MASK_SCORE),
                               OB(STABILITY),
                               OB(AREA),
                               OB(MASK_BOX),
                               OB(X0),
                               OB(Y0),
                               OB(COLUMNS),
                               OB(COLUMN_WORDS),
                               OB(OFFSET),
                               OB(IMAGE),
                               OB(WORDS),
                               DET(LABEL),
                               DET(SCORE),
                               DET(QUERY),
                               DET(BOX),
                               DET(WORDS)};
enum { ENTRIES = sizeof layout / sizeof *layout };

/* Compares every #define of a listed name in a kernel source; returns how many there are. */
static int compare_defines(const char *source) {
    const ist_source *s = ist_sources;
    while (s->name && strcmp(s->name, source) != 0) s++;
    cr_assert_not_null(s->name, "%s is not among the kernel sources", source);
    int found = 0;
    for (const char *line = s->text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char name[64];
        int value;
        if (sscanf(line, "#define %63[A-Z_0-9] %d", name, &value) != 2) continue;
        for (int i = 0; i < ENTRIES; i++)
            if (!strcmp(name, layout[i].name)) {
                cr_assert_eq(value, layout[i].value, "%s: %s is %d, the host has %d", source, name, value,
                             layout[i].value);
                found++;
            }
    }
    return found;
}

Test(op_image, layouts_agree) {
    cr_assert_eq(compare_defines("codes/frame"), ENTRIES);
}

/* ---- pixels ---- */

typedef struct picture {
    int w, h, channels, sample;
    ist_resize_order order;
    int low, high; /* of 16-bit samples */
    size_t stride, bytes;
    unsigned char *pixels; /* as submitted */
    unsigned char *rgb;    /* what the networks should see, w x h x 3 */
} picture;

/* 16-bit sample v in 8. */
static int narrowed(int v, int low, int high) {
    double q = floor(255.0 * (v - low) / (high - low) + 0.5);
    return q < 0 ? 0 : q > 255 ? 255 : (int)q;
}

/* What networks see of the first three samples of each pixel. */
static void see(const picture *p) {
    for (int y = 0; y < p->h; y++)
        for (int x = 0; x < p->w; x++)
            for (int c = 0; c < 3; c++) {
                const unsigned char *s =
                    p->pixels + (size_t)y * p->stride +
                    ((size_t)x * (size_t)p->channels + (size_t)(p->channels < 3 ? 0 : c)) * (size_t)p->sample;
                int v = p->sample == 1 ? s[0] : narrowed(s[0] + 256 * s[1], p->low, p->high);
                p->rgb[((size_t)y * (size_t)p->w + (size_t)x) * 3 + (size_t)c] = (unsigned char)v;
            }
}

static picture random_picture(optest *t, int w, int h, int channels, int sample, int pad) {
    picture p = {.w = w, .h = h, .channels = channels, .sample = sample, .high = 65535};
    p.stride = (size_t)w * channels * sample + (size_t)pad;
    p.bytes = p.stride * (size_t)(h - 1) + (size_t)w * channels * sample;
    p.pixels = optest_alloc(t, p.bytes);
    p.rgb = optest_alloc(t, (size_t)w * h * 3);
    for (size_t i = 0; i < p.bytes; i++) p.pixels[i] = (unsigned char)optest_u32(t);
    see(&p);
    return p;
}

/* An upload of `count` pictures; with `apart` the pixels go to *pixels instead of into the upload. */
static uint32_t *make_upload(optest *t, const picture *p, int count, int width, int height, int side,
                             unsigned char **pixels, size_t *words, size_t *pixel_bytes) {
    size_t at = IST_UP_HEADER + (size_t)count * IST_IM_WORDS, bytes = 0;
    for (int i = 0; i < count; i++) {
        int w, h;
        ist_segmenter_size(side, p[i].w, p[i].h, &w, &h);
        at += ist_resize_taps_words(p[i].w, width) + ist_resize_taps_words(p[i].h, height) +
              ist_resize_taps_words(p[i].w, w) + ist_resize_taps_words(p[i].h, h);
        bytes += p[i].bytes + 3; /* odd places */
    }
    uint32_t *up = optest_alloc(t, at * 4 + bytes);
    *words = at;
    *pixel_bytes = bytes;
    *pixels = (unsigned char *)(up + at);
    at = IST_UP_HEADER + (size_t)count * IST_IM_WORDS;
    bytes = 0;
    up[IST_UP_COUNT] = (uint32_t)count;
    for (int i = 0; i < count; i++) {
        ist_frame_image im = {.width = p[i].w,
                              .height = p[i].h,
                              .channels = p[i].channels,
                              .sample_bytes = p[i].sample,
                              .offset = bytes,
                              .stride = (uint32_t)p[i].stride,
                              .seg_side = side,
                              .low = p[i].low,
                              .high = p[i].high};
        int w, h;
        ist_segmenter_size(side, p[i].w, p[i].h, &w, &h);
        const int pairs[4][2] = {{p[i].w, width}, {p[i].h, height}, {p[i].w, w}, {p[i].h, h}};
        uint32_t *places[4] = {&im.det_x, &im.det_y, &im.seg_x, &im.seg_y};
        for (int k = 0; k < 4; k++) {
            *places[k] = (uint32_t)at;
            ist_resize_taps(pairs[k][0], pairs[k][1], up + at);
            at += ist_resize_taps_words(pairs[k][0], pairs[k][1]);
        }
        im.det_vertical = ist_resize_vertical_first(p[i].order, p[i].w, p[i].h, width, height);
        im.seg_vertical = ist_resize_vertical_first(p[i].order, p[i].w, p[i].h, w, h);
        memcpy(*pixels + bytes, p[i].pixels, p[i].bytes);
        bytes += p[i].bytes + 3;
        ist_upload_image(up, i, &im);
    }
    return up;
}

enum { EXT_UPLOAD, EXT_PIXELS };

static ist_tensor resize(ist_plan *p, ist_resize_for what, ist_tensor upload, ist_tensor pixels, int batch, int width,
                         int height, bool orders, bool windows, const char *label) {
    ist_resize node = {
        .label = label, .upload = upload, .pixels = pixels, .what = what, .batch = batch, .windows = windows};
    node.w = width;
    node.h = height;
    node.channels = 3;
    node.orders = orders;
    ist_emit(p, IST_NODE_RESIZE, &node);
    return node.y;
}

static void resized(const picture *p, unsigned char *out, int h, int w) {
    if (ist_resize_vertical_first(p->order, p->w, p->h, w, h))
        ref_resize_vertical_first(p->rgb, p->h, p->w, out, h, w);
    else
        ref_resize(p->rgb, p->h, p->w, out, h, w);
}

/* The detector's input of each picture. */
static void check_detector(optest *t, const picture *p, int count, ist_tensor det) {
    ref_map got = optest_read(t, det), want = optest_zeros(t, 1, det.h, det.w, 3);
    unsigned char *small = optest_alloc(t, ref_size(want));
    for (int i = 0; i < count; i++) {
        resized(&p[i], small, det.h, det.w);
        for (size_t k = 0; k < ref_size(want); k++) want.v[k] = (float)small[k] / 256.0f;
        ref_map one = {1, det.h, det.w, 3, ref_at(got, i, 0, 0)};
        optest_close(t, "detector input", one, want, 0, 0);
    }
    for (size_t k = (size_t)count * ref_size(want); k < ref_size(got); k++) cr_assert(isnan(got.v[k]));
}

/* The segmenter's: zeros outside of the picture. */
static void check_segmenter(optest *t, const picture *p, int count, ist_tensor seg) {
    int side = seg.w;
    ref_map got = optest_read(t, seg), want = optest_zeros(t, 1, side, side, 3);
    for (int i = 0; i < count; i++) {
        int w, h;
        ist_segmenter_size(side, p[i].w, p[i].h, &w, &h);
        unsigned char *part = optest_alloc(t, (size_t)w * h * 3);
        resized(&p[i], part, h, w);
        memset(want.v, 0, ref_size(want) * sizeof *want.v);
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++)
                for (int c = 0; c < 3; c++) {
                    volatile float centred = (float)part[((size_t)y * w + x) * 3 + c] - mean[c];
                    ref_at(want, 0, y, x)[c] = centred / std[c];
                }
        ref_map one = {1, side, side, 3, ref_at(got, i, 0, 0)};
        optest_close(t, "segmenter input", one, want, t->half ? 5e-4 : 0, 0);
    }
}

/* Runs both preprocessors on `count` pictures in a plan for `batch` and compares with the reference; side 0: the
 * detector's alone. */
static void check_sizes(optest *t, const picture *p, int count, int batch, int width, int height, int side) {
    size_t words, bytes;
    unsigned char *pixels;
    uint32_t *up = make_upload(t, p, count, width, height, side ? side : 1024, &pixels, &words, &bytes);
    external upload = external_create(t, up, words * 4), raw = external_create(t, pixels, bytes);
    ist_tensor eu = ist_plan_external(t->plan, EXT_UPLOAD, IST_ELEM_I32);
    ist_tensor ep = ist_plan_external(t->plan, EXT_PIXELS, IST_ELEM_U8);
    bool orders = p->order != IST_RESIZE_ORDER_AUTO, windows = p->low != 0 || p->high != 65535;
    ist_tensor seg = {0};
    ist_tensor det =
        resize(t->plan, IST_RESIZE_DETECTOR, eu, ep, batch, width, height, orders, windows, "detector input");
    if (side)
        seg = resize(t->plan, IST_RESIZE_SEGMENTER, eu, ep, batch, side, side, orders, windows, "segmenter input");
    EXTERNAL_OK(t, ist_plan_finish(t->plan, &t->err));
    EXTERNAL_OK(t, ist_plan_bind(t->plan, EXT_UPLOAD, upload.mem, &t->err));
    EXTERNAL_OK(t, ist_plan_bind(t->plan, EXT_PIXELS, raw.mem, &t->err));
    EXTERNAL_OK(t, ist_plan_replay(t->plan, &t->err));
    check_detector(t, p, count, det);
    if (side) check_segmenter(t, p, count, seg);
    external_release(t, &upload);
    external_release(t, &raw);
}

static void check(optest *t, const picture *p, int count, int batch, int size, bool segmenter) {
    check_sizes(t, p, count, batch, size, size, segmenter ? 1024 : 0);
}

Test(op_image, every_format) {
    unsigned salt = 0;
    for (int sample = 1; sample <= 2; sample++)
        for (int channels = 1; channels <= 4; channels++) {
            optest t;
            optest_begin(&t, "formats", salt++);
            picture p[2];
            p[0] = random_picture(&t, optest_int(&t, 1, 90), optest_int(&t, 1, 90), channels, sample, 0);
            p[1] = random_picture(&t, optest_int(&t, 60, 200), optest_int(&t, 60, 200), channels, sample, 5);
            check(&t, p, 2, 3, optest_small() ? 32 : 96, false);
            optest_end(&t);
        }
}

/* Sample c of pixel i as 8 bits. */
static int sample_of(const picture *p, int x, int y, int c) {
    const unsigned char *s =
        p->pixels + (size_t)y * p->stride + ((size_t)x * (size_t)p->channels + (size_t)c) * (size_t)p->sample;
    return p->sample == 1 ? s[0] : narrowed(s[0] + 256 * s[1], p->low, p->high);
}

/* What a channel of such a network sees of the picture, three times: Pillow's convert("L"), or alpha. */
static unsigned char *one_channel(optest *t, const picture *p, bool alpha) {
    unsigned char *v = optest_alloc(t, (size_t)p->w * (size_t)p->h * 3);
    for (int y = 0; y < p->h; y++)
        for (int x = 0; x < p->w; x++) {
            int value = sample_of(p, x, y, 0);
            if (alpha)
                value = p->channels % 2 ? 255 : sample_of(p, x, y, p->channels - 1);
            else if (p->channels > 2)
                value = (sample_of(p, x, y, 0) * 19595 + sample_of(p, x, y, 1) * 38470 + sample_of(p, x, y, 2) * 7471 +
                         0x8000) >>
                        16;
            for (int c = 0; c < 3; c++)
                v[3 * ((size_t)y * (size_t)p->w + (size_t)x) + (size_t)c] = (unsigned char)value;
        }
    return v;
}

/* A detector's input of 1 or 4 channels of a picture. */
static void check_channels(optest *t, const picture *p, int channels) {
    enum { W = 96, H = 64 };
    size_t words, bytes;
    unsigned char *pixels, *want = optest_alloc(t, W * H * 3), *last = optest_alloc(t, W * H * 3);
    uint32_t *up = make_upload(t, p, 1, W, H, 1024, &pixels, &words, &bytes);
    external upload = external_create(t, up, words * 4), raw = external_create(t, pixels, bytes);
    ist_resize node = {.label = "detector input", .what = IST_RESIZE_DETECTOR, .batch = 1, .w = W, .h = H};
    node.upload = ist_plan_external(t->plan, EXT_UPLOAD, IST_ELEM_I32);
    node.pixels = ist_plan_external(t->plan, EXT_PIXELS, IST_ELEM_U8);
    node.channels = channels;
    ist_emit(t->plan, IST_NODE_RESIZE, &node);
    EXTERNAL_OK(t, ist_plan_finish(t->plan, &t->err));
    EXTERNAL_OK(t, ist_plan_bind(t->plan, EXT_UPLOAD, upload.mem, &t->err));
    EXTERNAL_OK(t, ist_plan_bind(t->plan, EXT_PIXELS, raw.mem, &t->err));
    EXTERNAL_OK(t, ist_plan_replay(t->plan, &t->err));
    ref_map got = optest_read(t, node.y);
    cr_assert(got.h == H && got.w == W && got.c == channels);
    ref_resize(channels == 1 ? one_channel(t, p, false) : p->rgb, p->h, p->w, want, H, W);
    ref_resize(one_channel(t, p, true), p->h, p->w, last, H, W);
    for (int i = 0; i < W * H; i++)
        for (int c = 0; c < channels; c++) {
            float v = (float)(c == 3 ? last[3 * i] : want[3 * i + c]) / 256;
            cr_assert_eq(got.v[i * channels + c], v, "%s, seed %llu: channel %d of pixel %d is %g, not %g", t->name,
                         (unsigned long long)t->seed, c, i, got.v[i * channels + c], v);
        }
    external_release(t, &upload);
    external_release(t, &raw);
}

Test(op_image, networks_of_one_and_four_channels) {
    unsigned salt = 0;
    for (int of = 1; of <= 4; of += 3)
        for (int sample = 1; sample <= 2; sample++)
            for (int channels = 1; channels <= 4; channels++) {
                optest t;
                optest_begin(&t, "network's channels", salt++);
                picture p = random_picture(&t, optest_int(&t, 1, 90), optest_int(&t, 1, 90), channels, sample, 3);
                check_channels(&t, &p, of);
                optest_end(&t);
            }
}

Test(op_image, every_shape) {
    static const int shapes[][2] = {{1, 1}, {1, 77},   {130, 1},  {64, 64}, {64, 9},
                                    {2, 3}, {501, 37}, {65, 640}, {63, 257}};
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        optest t;
        optest_begin(&t, "shapes", i);
        picture p = random_picture(&t, shapes[i][0], shapes[i][1], 3, 1, (int)i % 2);
        check(&t, &p, 1, 1, 64, false);
        optest_end(&t);
    }
}

Test(op_image, segmenter) {
    static const int shapes[][2] = {{37, 50}, {1024, 700}, {1400, 333}, {1, 90}};
    for (unsigned i = 0; !optest_small() && i < sizeof shapes / sizeof *shapes; i++) {
        optest t;
        optest_begin(&t, "segmenter", i);
        picture p = random_picture(&t, shapes[i][0], shapes[i][1], i % 2 ? 3 : 4, 1, 0);
        check(&t, &p, 1, 1, 32, true);
        optest_end(&t);
    }
}

/* Detectors of unequal sides, segmenters of others than 1024. */
Test(op_image, other_sizes) {
    static const struct {
        int w, h, width, height, side;
    } cases[] = {{90, 61, 96, 32, 256}, {33, 140, 32, 160, 64}, {300, 20, 160, 64, 512}, {70, 70, 64, 96, 224}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (optest_small() && cases[i].side > 64) continue;
        optest t;
        optest_begin(&t, "sizes", i);
        picture p = random_picture(&t, cases[i].w, cases[i].h, i % 2 ? 3 : 1, 1, 2);
        check_sizes(&t, &p, 1, 2, cases[i].width, cases[i].height, cases[i].side);
        optest_end(&t);
    }
}

/* Both orders in one batch, every pixel format and shape. */
static void check_orders(void) {
    static const int shapes[][2] = {{1, 1}, {40, 300}, {300, 40}, {64, 64}, {90, 64}, {64, 90}, {1, 200}, {33, 170}};
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    for (int order = IST_RESIZE_ORDER_VERTICAL; order <= IST_RESIZE_ORDER_PILLOW_13; order++)
        for (unsigned i = 0; i < SHAPES; i++) {
            optest t;
            optest_begin(&t, "orders", i);
            picture p[2];
            for (unsigned k = 0; k < 2; k++) {
                const int *shape = shapes[(i + k) % SHAPES];
                p[k] = random_picture(&t, shape[0], shape[1], 1 + (int)i % 4, 1 + (int)i / 4, 3);
                p[k].order = k ? IST_RESIZE_ORDER_HORIZONTAL : (ist_resize_order)order;
            }
            check_sizes(&t, p, 2, 2, 64, 64, optest_small() ? 0 : 96);
            optest_end(&t);
        }
}

Test(op_image, orders) {
    check_orders();
    without = IST_CAP_CPU;
    check_orders();
}

/* 16-bit samples through windows, also those wider than the samples, next to images that have none; in either order. */
static void check_windows(void) {
    static const int windows[][2] = {{0, 4095},           {100, 101}, {-500, 70000},  {40000, 40999},
                                     {-1000000, 1000000}, {0, 65536}, {65534, 65535}, {-300, -100}};
    enum { WINDOWS = sizeof windows / sizeof *windows };
    for (unsigned i = 0; i < WINDOWS; i++) {
        optest t;
        optest_begin(&t, "windows", i);
        picture p[2];
        for (unsigned k = 0; k < 2; k++) {
            p[k] = random_picture(&t, optest_int(&t, 1, 90), optest_int(&t, 1, 90), 1 + (int)(i + k) % 4, 2, 1);
            p[k].low = windows[(i + k) % WINDOWS][0], p[k].high = windows[(i + k) % WINDOWS][1];
            if (i % 2) p[k].order = IST_RESIZE_ORDER_VERTICAL;
            see(&p[k]);
        }
        check_sizes(&t, p, 2, 2, 64, 64, optest_small() ? 0 : 96);
        optest_end(&t);
    }
}

Test(op_image, windows) {
    check_windows();
    without = IST_CAP_CPU;
    check_windows();
}

/* Every sample through every kind of window: one row, at its own size. */
Test(op_image, every_sample) {
    static const int windows[][2] = {{0, 4095}, {0, 255}, {1000, 64000}, {-777777, 999999}, {0, 65536}};
    for (unsigned i = 0; !optest_small() && i < sizeof windows / sizeof *windows; i++) {
        optest t;
        optest_begin(&t, "samples", i);
        picture p = random_picture(&t, 256, 256, 1, 2, 0);
        for (int k = 0; k < 65536; k++)
            p.pixels[2 * k] = (unsigned char)k, p.pixels[2 * k + 1] = (unsigned char)(k >> 8);
        p.low = windows[i][0], p.high = windows[i][1];
        see(&p);
        for (int k = 0; k < 65536; k++)
            cr_assert_eq(ist_through_window(k, p.low, p.high), p.rgb[3 * k], "%d in %d..%d", k, p.low, p.high);
        check_sizes(&t, &p, 1, 1, 256, 256, 0);
        optest_end(&t);
    }
}

Test(op_image, order_of_pillow_13) {
    static const struct {
        int w, h, to_w, to_h;
        bool vertical;
    } want[] = {{900, 1200, 640, 640, true},  {1200, 900, 640, 640, false}, {106, 150, 64, 64, true},
                {107, 150, 64, 64, false},    {10, 641, 640, 640, true},    {10, 640, 640, 640, false},
                {10, 600, 640, 640, false},   {641, 642, 640, 640, false},  {641, 643, 640, 640, true},
                {900, 1200, 768, 1024, false}};
    for (unsigned i = 0; i < sizeof want / sizeof *want; i++) {
        int w = want[i].w, h = want[i].h, to_w = want[i].to_w, to_h = want[i].to_h;
        cr_expect_eq(ist_resize_vertical_first(IST_RESIZE_ORDER_PILLOW_13, w, h, to_w, to_h), want[i].vertical,
                     "%d x %d", w, h);
        cr_expect(ist_resize_vertical_first(IST_RESIZE_ORDER_VERTICAL, w, h, to_w, to_h));
        cr_expect(!ist_resize_vertical_first(IST_RESIZE_ORDER_HORIZONTAL, w, h, to_w, to_h));
        cr_expect(!ist_resize_vertical_first(IST_RESIZE_ORDER_AUTO, w, h, to_w, to_h));
    }
}

/* A row or column of one pixel at the end of a strip of any size keeps inside its image: 2000 columns to 1024. */
Test(op_image, segmenter_size) {
    static const int want[][5] = {{1280, 720, 1024, 576, 1024}, {720, 1280, 576, 1024, 1024},
                                  {1, 5000, 1, 1024, 1024},     {5000, 2, 1024, 1, 1024},
                                  {854, 480, 1024, 576, 1024},  {1024, 1024, 1024, 1024, 1024},
                                  {3, 2, 1024, 683, 1024},      {1280, 720, 256, 144, 256},
                                  {3, 2, 512, 341, 512},        {5000, 2, 256, 1, 256}};
    for (unsigned i = 0; i < sizeof want / sizeof *want; i++) {
        int w, h;
        ist_segmenter_size(want[i][4], want[i][0], want[i][1], &w, &h);
        cr_assert(w == want[i][2] && h == want[i][3], "%d x %d gives %d x %d", want[i][0], want[i][1], w, h);
    }
}

/* ---- golden: Pillow itself ---- */

static void check_golden(const ist_weights *golden, const char *name, bool segmenter) {
    optest t;
    optest_begin(&t, name, 0);
    char key[64];
    snprintf(key, sizeof key, "%s.size", name);
    int *size = golden_ints(golden, key, 4);
    picture p = {.w = size[1], .h = size[0], .channels = 3, .sample = 1, .stride = (size_t)size[1] * 3};
    p.bytes = p.stride * (size_t)p.h;
    p.pixels = optest_alloc(&t, p.bytes);
    synth_phantom(p.h, p.w, 1, p.pixels);
    size_t words, bytes;
    unsigned char *pixels;
    int side = segmenter ? 1024 : 640;
    uint32_t *up = make_upload(&t, &p, 1, 640, 640, 1024, &pixels, &words, &bytes);
    external upload = external_create(&t, up, words * 4), raw = external_create(&t, pixels, bytes);
    ist_tensor eu = ist_plan_external(t.plan, EXT_UPLOAD, IST_ELEM_I32),
               ep = ist_plan_external(t.plan, EXT_PIXELS, IST_ELEM_U8);
    ist_tensor y = resize(t.plan, segmenter ? IST_RESIZE_SEGMENTER : IST_RESIZE_DETECTOR, eu, ep, 1, side, side, false,
                          false, name);
    EXTERNAL_OK(&t, ist_plan_finish(t.plan, &t.err));
    EXTERNAL_OK(&t, ist_plan_bind(t.plan, EXT_UPLOAD, upload.mem, &t.err));
    EXTERNAL_OK(&t, ist_plan_bind(t.plan, EXT_PIXELS, raw.mem, &t.err));
    EXTERNAL_OK(&t, ist_plan_replay(t.plan, &t.err));
    ref_map got = optest_read(&t, y);
    int oh = size[2], ow = size[3];
    unsigned char *out = optest_alloc(&t, (size_t)oh * ow * 3);
    int64_t sum = 0, want_sum;
    for (int i = 0; i < oh; i++)
        for (int j = 0; j < ow * 3; j++) {
            float v = ref_at(got, 0, i, 0)[j];
            long b = lroundf(segmenter ? v * std[j % 3] + mean[j % 3] : v * 256.0f);
            out[(size_t)i * ow * 3 + (size_t)j] = (unsigned char)b;
            sum += b;
        }
    const ist_weight *samples = ist_weights_find(golden, name);
    snprintf(key, sizeof key, "%s.sum", name);
    memcpy(&want_sum, ist_weights_find(golden, key)->data, sizeof want_sum);
    cr_assert_eq(sum, want_sum, "%s: bytes add up to %lld, Pillow's to %lld", name, (long long)sum,
                 (long long)want_sum);
    for (size_t j = 0; j < samples->count; j++) {
        size_t at = (size_t)((uint64_t)j * 2654435761u % ((uint64_t)oh * ow * 3));
        cr_assert_eq(out[at], ((const unsigned char *)samples->data)[j], "%s: byte %zu", name, at);
    }
    external_release(&t, &upload);
    external_release(&t, &raw);
    free(size);
    optest_end(&t);
}

Test(op_image, golden) {
    if (optest_small()) return;
    ist_weights *golden = golden_open("resize");
    check_golden(golden, "dfine_up", false);
    check_golden(golden, "dfine_down", false);
    check_golden(golden, "sam_up", true);
    check_golden(golden, "sam_down", true);
    ist_weights_close(&golden);
}

/* ---- golden: Pillow 12 and 13, in whose order pictures are resampled ---- */

/* FNV-1a of the picture's bytes in a detector's input of this size, as the device makes it. */
static void hash_resized(const picture *p, int to_h, int to_w, char text[17]) {
    optest t;
    optest_begin(&t, "order", 0);
    size_t words, bytes;
    unsigned char *pixels;
    uint32_t *up = make_upload(&t, p, 1, to_w, to_h, 1024, &pixels, &words, &bytes);
    external upload = external_create(&t, up, words * 4), raw = external_create(&t, pixels, bytes);
    ist_tensor eu = ist_plan_external(t.plan, EXT_UPLOAD, IST_ELEM_I32);
    ist_tensor ep = ist_plan_external(t.plan, EXT_PIXELS, IST_ELEM_U8);
    bool orders = p->order != IST_RESIZE_ORDER_AUTO;
    ist_tensor y = resize(t.plan, IST_RESIZE_DETECTOR, eu, ep, 1, to_w, to_h, orders, false, "order");
    EXTERNAL_OK(&t, ist_plan_finish(t.plan, &t.err));
    EXTERNAL_OK(&t, ist_plan_bind(t.plan, EXT_UPLOAD, upload.mem, &t.err));
    EXTERNAL_OK(&t, ist_plan_bind(t.plan, EXT_PIXELS, raw.mem, &t.err));
    EXTERNAL_OK(&t, ist_plan_replay(t.plan, &t.err));
    ref_map got = optest_read(&t, y);
    uint64_t hash = IST_FNV_OFFSET;
    for (size_t i = 0; i < ref_size(got); i++) {
        unsigned char byte = (unsigned char)(got.v[i] * 256);
        hash = ist_fnv(hash, &byte, 1);
    }
    snprintf(text, 17, "%016llx", (unsigned long long)hash);
    external_release(&t, &upload);
    external_release(&t, &raw);
    optest_end(&t);
}

Test(op_image, orders_of_pillow_12_and_13) {
    static const char *const versions[] = {"12", "12", "13"};
    static const ist_resize_order orders[] = {IST_RESIZE_ORDER_AUTO, IST_RESIZE_ORDER_HORIZONTAL,
                                              IST_RESIZE_ORDER_PILLOW_13};
    json_t *file = json_load_file(IST_GOLDEN_DIR "/resize_order.json", 0, NULL), *one;
    cr_assert_not_null(file);
    size_t i, differ = 0;
    json_array_foreach(json_object_get(file, "cases"), i, one) {
        const json_t *size = json_object_get(one, "size"), *to = json_object_get(one, "to");
        const json_t *hashes = json_object_get(one, "pillow");
        int h = (int)json_integer_value(json_array_get(size, 0)), w = (int)json_integer_value(json_array_get(size, 1));
        int to_h = (int)json_integer_value(json_array_get(to, 0)),
            to_w = (int)json_integer_value(json_array_get(to, 1));
        if (optest_small() && to_h > 64) continue;
        picture p = {.w = w, .h = h, .channels = 3, .sample = 1, .stride = (size_t)w * 3};
        p.bytes = p.stride * (size_t)h;
        p.pixels = malloc(p.bytes);
        cr_assert_not_null(p.pixels);
        synth_phantom(h, w, (uint64_t)json_integer_value(json_object_get(one, "seed")), p.pixels);
        for (int k = 0; k < 6; k++) { /* by the device's own variant, and by the portable one */
            char text[17];
            without = k < 3 ? 0 : IST_CAP_CPU;
            p.order = orders[k % 3];
            hash_resized(&p, to_h, to_w, text);
            cr_expect_str_eq(text, json_string_value(json_object_get(hashes, versions[k % 3])), "%d x %d, Pillow %s", h,
                             w, versions[k % 3]);
        }
        differ += strcmp(json_string_value(json_object_get(hashes, "12")),
                         json_string_value(json_object_get(hashes, "13"))) != 0;
        free(p.pixels);
    }
    cr_expect_geq(differ, optest_small() ? 2 : 6);
    json_decref(file);
}
