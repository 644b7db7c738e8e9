/* Networks at other inputs than the published ones: detectors of unequal sides and of 1 or 4 channels, segmenters at
 * other sides than 1024, through the whole frame. */
#include "models/sam.h"
#include "pipeline/inspect.h"
#include "ref.h"
#include "support/engines.h"
#include "synth.h"
#include "variants/upload.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ist_error err;

static ist_kept kept(ist_engine *e, const char *name) {
    ist_kept k;
    cr_assert_eq(ist_engine_read_kept(e, name, &k, &err), IST_OK, "%s", err.text);
    return k;
}

static ist_engine *open_kept(const ist_config *c) {
    ist_engine *e = NULL;
    cr_assert_eq(ist_engine_open_kept(c, &e, &err), IST_OK, "%s", err.text);
    return e;
}

static bool mask_bit(const ist_mask *m, int x, int y) {
    if (x < m->x0 || x >= m->x0 + m->columns || y < m->y0 || y >= m->y0 + 32 * m->words) return false;
    return m->bits[(x - m->x0) * m->words + (y - m->y0) / 32] >> (y - m->y0) % 32 & 1;
}

/* ---- sides of the segmenter ---- */

static ist_config segmenter_config(int size) {
    ist_config c = ist_config_default();
    c.segmenter = engines_checkpoint("sam", 80, 3);
    c.segmenter_size = size;
    c.prompts = IST_PROMPTS_TARGETS;
    c.precision = IST_PRECISION_FP32;
    c.max_objects = 2;
    return c;
}

static const ist_target boxes[2] = {{{10, 20, 90, 140}, 0}, {{50, 5, 119, 60}, 0}};

/* 120 x 160 pixels with two boxes. */
static ist_image prompted_image(void) {
    ist_image m = engines_image(120, 160, 4);
    m.targets = boxes;
    m.target_count = 2;
    return m;
}

/* Masks against the low-resolution logits, which are those of this side. */
static void check_masks(ist_engine *e, const ist_frame *f, int side) {
    int w, h, low = side / 4;
    ist_segmenter_size(side, f->width, f->height, &w, &h);
    ist_kept logits = kept(e, "masks"), embedding = kept(e, "embedding"), image = kept(e, "patch_embed");
    cr_assert(embedding.h == side / 16 && embedding.w == side / 16 && embedding.c == 256);
    cr_assert(image.h == low && image.w == low && logits.h == low && logits.w == low);
    float *v = malloc((size_t)f->width * (size_t)f->height * sizeof *v);
    cr_assert_not_null(v);
    for (int k = 0; k < f->object_count; k++) {
        const ist_object *o = &f->objects[k];
        ref_upsample(logits.values + (size_t)k * (size_t)low * (size_t)low, low, w, h, v, f->width, f->height);
        int area = 0;
        for (int y = 0; y < f->height; y++)
            for (int x = 0; x < f->width; x++) {
                bool in = v[(size_t)y * (size_t)f->width + (size_t)x] > 0;
                area += in;
                cr_assert_eq(mask_bit(&o->mask, x, y), in, "side %d, object %d, pixel %d,%d", side, k, x, y);
            }
        cr_assert_eq(o->area, area);
        cr_expect(area > 0 && area < f->width * f->height, "side %d, object %d: %d pixels", side, k, area);
    }
    free(v), free(logits.values), free(embedding.values), free(image.values);
}

Test(pipeline_inputs, masks_of_any_side) {
    static const int sides[] = {256, 96, 512};
    ist_image m = prompted_image();
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        ist_config c = segmenter_config(sides[i]);
        ist_engine *e = open_kept(&c);
        ist_engine_info info;
        cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK);
        cr_expect_eq(info.segmenter_size, sides[i]);
        const ist_result *r = engines_run(e, &m, 1);
        cr_assert_eq(r->frames[0].object_count, 2);
        check_masks(e, &r->frames[0], sides[i]);
        ist_release(e, &r);
        ist_close(&e);
    }
    free((void *)m.pixels);
}

Test(pipeline_inputs, the_side_in_metadata_is_the_default) {
    char path[512];
    snprintf(path, sizeof path, IST_BUILD_DIR "/sam_256_XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    ist_arch_form form = {.kind = IST_MODEL_MOBILE_SAM, .classes = 80};
    cr_assert_eq(synth_form_checkpoint(&form, 3, "image_size", "256", path, &err), IST_OK, "%s", err.text);
    ist_config asked = segmenter_config(256), told = segmenter_config(0);
    told.segmenter = path;
    ist_engine *a = engines_open(&asked), *b = engines_open(&told);
    ist_image m = prompted_image();
    const ist_result *x = engines_run(a, &m, 1), *y = engines_run(b, &m, 1);
    engines_same(&x->frames[0], &y->frames[0]);
    ist_release(a, &x);
    ist_release(b, &y);
    ist_close(&a);
    ist_close(&b);
    remove(path);
    free((void *)m.pixels);
}

Test(pipeline_inputs, sides_that_it_cannot_do) {
    static const struct {
        int size;
        const char *sentence;
    } cases[] = {{100, "segmenter size 100: mobilesam works at multiples of 32 from 64 to 1024"},
                 {32, "segmenter size 32"},
                 {1056, "segmenter size 1056"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ist_config c = segmenter_config(cases[i].size);
        ist_engine *e = NULL;
        cr_expect_eq(ist_open(&c, &e, &err), IST_E_ARGUMENT);
        cr_expect_not_null(strstr(err.text, cases[i].sentence), "%s", err.text);
        cr_expect_null(e);
    }
}

/* ---- sides of the detector ---- */

static ist_config detector_config(void) {
    ist_config c = engines_config("n", false);
    c.precision = IST_PRECISION_FP32;
    c.input_size = 256;
    c.conf = 0;
    return c;
}

Test(pipeline_inputs, two_equal_sides_are_a_square) {
    ist_config square = detector_config(), sides = detector_config();
    sides.input_size = 640;
    sides.input_width = sides.input_height = 256;
    ist_engine *a = engines_open(&square), *b = engines_open(&sides);
    ist_image m = engines_image(200, 150, 8);
    const ist_result *x = engines_run(a, &m, 1), *y = engines_run(b, &m, 1);
    engines_same(&x->frames[0], &y->frames[0]);
    ist_release(a, &x);
    ist_release(b, &y);
    ist_close(&a);
    ist_close(&b);
    free((void *)m.pixels);
}

/* Levels have the shapes of the input, and boxes are fractions of the image whatever the input. */
Test(pipeline_inputs, unequal_sides) {
    static const int sides[][2] = {{384, 192}, {192, 384}};
    ist_image m = engines_image(300, 200, 8);
    for (size_t i = 0; i < 2; i++) {
        ist_config c = detector_config();
        int width = c.input_width = sides[i][0], height = c.input_height = sides[i][1];
        ist_engine *e = open_kept(&c);
        ist_engine_info info;
        cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK);
        cr_expect(info.input_width == width && info.input_height == height);
        const ist_result *r = engines_run(e, &m, 1);
        const ist_frame *f = &r->frames[0];
        cr_assert_eq(f->object_count, c.max_objects);
        ist_kept raw = kept(e, "boxes"), last = kept(e, "enc.aifi0"), memory = kept(e, "dec.memory");
        cr_expect(last.h * last.w == width * height / 1024, "%d x %d", last.h, last.w);
        cr_expect_eq(memory.w, width * height / 1024 + width * height / 256);
        for (int k = 0; k < f->object_count; k++) {
            const float *b = raw.values + 4 * f->objects[k].query, *box = f->objects[k].box;
            cr_expect_float_eq(box[0], (b[0] - b[2] / 2) * 300, 1e-2);
            cr_expect_float_eq(box[1], (b[1] - b[3] / 2) * 200, 1e-2);
            cr_expect_float_eq(box[2], (b[0] + b[2] / 2) * 300, 1e-2);
            cr_expect_float_eq(box[3], (b[1] + b[3] / 2) * 200, 1e-2);
        }
        free(raw.values), free(last.values), free(memory.values);
        ist_release(e, &r);
        ist_close(&e);
    }
    free((void *)m.pixels);
}

/* ---- channels ---- */

static ist_engine *of_channels(int channels) {
    char path[512];
    snprintf(path, sizeof path, IST_BUILD_DIR "/channels_XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    ist_arch_form form = {.kind = IST_MODEL_DFINE_N, .classes = 80, .size = 640, .channels = channels};
    cr_assert_eq(synth_form_checkpoint(&form, 7, NULL, NULL, path, &err), IST_OK, "%s", err.text);
    ist_config c = detector_config();
    c.detector = path;
    ist_engine *e = engines_open(&c);
    remove(path);
    return e;
}

/* Gray becomes its own red, green and blue; alpha, where it is none, 255. */
static ist_image widened(const ist_image *gray, int channels, int alpha) {
    ist_image m = *gray;
    size_t pixels = (size_t)m.width * (size_t)m.height;
    uint8_t *v = malloc(pixels * (size_t)channels);
    cr_assert_not_null(v);
    for (size_t i = 0; i < pixels; i++)
        for (int c = 0; c < channels; c++)
            v[i * (size_t)channels + (size_t)c] =
                channels % 2 == 0 && c == channels - 1 ? (uint8_t)alpha : ((const uint8_t *)gray->pixels)[i];
    m.pixels = v;
    m.format = (ist_pixel_format)(0x10 + channels);
    return m;
}

/* Whether both pictures give the same objects. */
static bool same(ist_engine *e, const ist_image *a, const ist_image *b) {
    const ist_result *r = engines_run(e, a, 1);
    int count = r->frames[0].object_count;
    ist_object *first = malloc((size_t)count * sizeof *first);
    cr_assert_not_null(first);
    memcpy(first, r->frames[0].objects, (size_t)count * sizeof *first);
    ist_release(e, &r);
    r = engines_run(e, b, 1);
    bool equal = r->frames[0].object_count == count;
    for (int i = 0; i < count && equal; i++)
        equal = !memcmp(first[i].box, r->frames[0].objects[i].box, sizeof first[i].box) &&
                first[i].query == r->frames[0].objects[i].query && first[i].score == r->frames[0].objects[i].score;
    ist_release(e, &r);
    free(first);
    return equal;
}

static ist_image gray_image(void) {
    ist_image m = engines_image(90, 70, 6);
    uint8_t *v = (uint8_t *)(uintptr_t)m.pixels;
    for (int i = 0; i < 90 * 70; i++) v[i] = v[3 * i];
    m.format = IST_GRAY8;
    return m;
}

Test(pipeline_inputs, one_channel) {
    ist_engine *e = of_channels(1);
    ist_image gray = gray_image(), rgb = widened(&gray, 3, 0), rgba = widened(&gray, 4, 30),
              other = widened(&gray, 3, 0);
    uint8_t *v = (uint8_t *)(uintptr_t)other.pixels;
    for (int i = 0; i < 90 * 70; i++) { /* a colour of another luma */
        v[3 * i] = 255;
        v[3 * i + 2] = 0;
    }
    cr_expect(same(e, &gray, &rgb));
    cr_expect(same(e, &gray, &rgba), "alpha is dropped");
    cr_expect_not(same(e, &gray, &other));
    ist_close(&e);
    free((void *)gray.pixels), free((void *)rgb.pixels), free((void *)rgba.pixels), free((void *)other.pixels);
}

Test(pipeline_inputs, four_channels) {
    ist_engine *e = of_channels(4);
    ist_image gray = gray_image(), full = widened(&gray, 4, 255), half = widened(&gray, 4, 128);
    ist_image pair = widened(&gray, 2, 128);
    cr_expect(same(e, &gray, &full), "without alpha it is 255");
    cr_expect(same(e, &pair, &half), "gray and alpha");
    cr_expect_not(same(e, &full, &half));
    ist_close(&e);
    free((void *)gray.pixels), free((void *)full.pixels), free((void *)half.pixels), free((void *)pair.pixels);
}

/* ---- the order of resampling ---- */

/* A tensor of the frame that an engine of this order makes of the image. */
static ist_kept made_of(const ist_config *config, ist_resize_order order, const ist_image *image, const char *name) {
    ist_config c = *config;
    c.resize_order = order;
    ist_engine *e = open_kept(&c);
    const ist_result *r = engines_run(e, image, 1);
    ist_kept k = kept(e, name);
    ist_release(e, &r);
    ist_close(&e);
    return k;
}

static bool same_values(ist_kept a, ist_kept b) {
    size_t bytes = (size_t)a.n * (size_t)a.h * (size_t)a.w * (size_t)a.c * sizeof *a.values;
    return a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c && !memcmp(a.values, b.values, bytes);
}

/* A tall picture is another one vertically first, and Pillow 13 takes it so; a wide one only where it is asked for. */
static void check_orders(const ist_config *c, ist_image *m, const char *name) {
    bool tall = m->height > m->width;
    ist_kept of[4];
    for (int k = IST_RESIZE_ORDER_AUTO; k <= IST_RESIZE_ORDER_PILLOW_13; k++)
        of[k] = made_of(c, (ist_resize_order)k, m, name);
    cr_expect(same_values(of[IST_RESIZE_ORDER_AUTO], of[IST_RESIZE_ORDER_HORIZONTAL]), "%s", name);
    cr_expect(!same_values(of[IST_RESIZE_ORDER_VERTICAL], of[IST_RESIZE_ORDER_HORIZONTAL]), "%s", name);
    cr_expect(
        same_values(of[IST_RESIZE_ORDER_PILLOW_13], of[tall ? IST_RESIZE_ORDER_VERTICAL : IST_RESIZE_ORDER_HORIZONTAL]),
        "%s, %d x %d", name, m->width, m->height);
    for (int k = 0; k < 4; k++) free(of[k].values);
}

Test(pipeline_inputs, orders_of_resampling) {
    static const int sizes[][2] = {{150, 700}, {700, 150}};
    ist_config segmenter = segmenter_config(96), detector = ist_config_default();
    detector.detector = engines_checkpoint("n", 80, 3);
    detector.input_size = 256;
    detector.precision = IST_PRECISION_FP32;
    for (int i = 0; i < 2; i++) {
        ist_image m = engines_image(sizes[i][0], sizes[i][1], 4);
        check_orders(&detector, &m, "sel.logits");
        m.targets = boxes;
        m.target_count = 2;
        check_orders(&segmenter, &m, "patch_embed");
        free((void *)m.pixels);
    }
}

/* ---- windows of 16-bit images ---- */

static ist_engine *windowed(ist_window window, int batch) {
    ist_config c = ist_config_default();
    c.detector = engines_checkpoint("n", 80, 3);
    c.input_size = 256;
    c.precision = IST_PRECISION_FP32;
    c.conf = 0.01f;
    c.batch = batch;
    c.window = window;
    return engines_open(&c);
}

/* 16-bit samples 300 + 13 v of the samples v of an 8-bit picture. */
static ist_image deepened(const ist_image *m) {
    size_t n = (size_t)(m->width * m->height);
    ist_image deep = *m;
    uint16_t *wide = malloc(sizeof *wide * n);
    cr_assert_not_null(wide);
    for (size_t i = 0; i < n; i++) wide[i] = (uint16_t)(300 + 13 * ((const uint8_t *)m->pixels)[i]);
    deep.format = IST_GRAY16;
    deep.pixels = wide;
    return deep;
}

static void refused(ist_engine *e, ist_image m, int low, int high, const char *text) {
    m.window_low = low, m.window_high = high;
    cr_assert_eq(ist_submit(e, &m, 1, &err), IST_E_ARGUMENT);
    cr_expect_str_eq(err.text, text);
}

Test(pipeline_inputs, given_windows) {
    ist_engine *e = windowed(IST_WINDOW_GIVEN, 1), *none = windowed(IST_WINDOW_NONE, 1);
    ist_image gray = gray_image(), deep = deepened(&gray), plain = deep;
    deep.window_low = 300, deep.window_high = 300 + 13 * 255;
    cr_expect(same(e, &gray, &deep), "the window undoes it");
    cr_expect_not(same(e, &plain, &deep), "without a window it is another picture");
    gray.window_low = 5, gray.window_high = 6;
    cr_expect(same(e, &gray, &deep), "8-bit images are taken as they are");
    const ist_result *r = engines_run(e, &deep, 1);
    cr_expect(r->frames[0].window_low == 300 && r->frames[0].window_high == 3615);
    ist_release(e, &r);
    r = engines_run(e, &plain, 1);
    cr_expect(r->frames[0].window_low == 0 && r->frames[0].window_high == 65535);
    ist_release(e, &r);
    r = engines_run(e, &gray, 1);
    cr_expect(r->frames[0].window_low == 0 && r->frames[0].window_high == 0);
    ist_release(e, &r);
    refused(e, plain, 300, 200, "image 0: a window of 300 to 200, want low below high, both within 1000000 of 0");
    refused(e, plain, 7, 7, "image 0: a window of 7 to 7, want low below high, both within 1000000 of 0");
    refused(e, plain, 0, 1000001, "image 0: a window of 0 to 1000001, want low below high, both within 1000000 of 0");
    refused(none, plain, 0, 4095, "image 0: a window, the engine was opened without config.window");
    ist_close(&e);
    ist_close(&none);
    free((void *)gray.pixels), free((void *)deep.pixels);
}

/* What the device finds is what it says that it found, and a batch's images have one each. */
Test(pipeline_inputs, automatic_windows) {
    ist_engine *e = windowed(IST_WINDOW_AUTO, 3);
    ist_image gray = gray_image(), found = deepened(&gray), given = found, flat = found;
    uint16_t *black = calloc(90 * 70, sizeof *black);
    flat.pixels = black;
    int count[256] = {0}, low = -1, high = -1;
    for (int i = 0; i < 90 * 70; i++) count[((const uint8_t *)gray.pixels)[i]]++;
    for (int v = 0, below = 0; v < 256; below += count[v++]) { /* of 6300 samples, numbers 31 and 6268 */
        if (below <= 31 && 31 < below + count[v]) low = 300 + 13 * v;
        if (below <= 6268 && 6268 < below + count[v]) high = 300 + 13 * v;
    }
    given.window_low = low, given.window_high = high;
    cr_expect(same(e, &found, &given), "%d to %d", low, high);
    const ist_image all[] = {flat, found, gray};
    const ist_result *r = engines_run(e, all, 3);
    cr_expect(r->frames[0].window_low == 0 && r->frames[0].window_high == 1);
    cr_expect(r->frames[1].window_low == low && r->frames[1].window_high == high, "%d to %d, not %d to %d",
              r->frames[1].window_low, r->frames[1].window_high, low, high);
    cr_expect(r->frames[2].window_low == 0 && r->frames[2].window_high == 0);
    cr_expect(r->transfers.writes == 1 && r->transfers.reads == 1 && r->transfers.waits <= 1);
    ist_release(e, &r);
    ist_close(&e);
    free((void *)gray.pixels), free((void *)found.pixels), free(black);
}
