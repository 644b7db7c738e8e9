/* Every public function with arguments that cannot be: the status, one clear sentence, and an engine that still works.
 */
#include "scratch.h"
#include "support/engines.h"

#include "weights/weights.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ist_error err;

/* The call failed as it should, with a sentence that contains `part`. */
static void refused(ist_status got, ist_status want, const char *part) {
    cr_assert_eq(got, want, "status %d instead of %d; %s", got, want, err.text);
    cr_assert_eq(err.code, want);
    cr_assert_not_null(strstr(err.text, part), "no \"%s\" in: %s", part, err.text);
    cr_assert_null(strchr(err.text, '\n'), "%s", err.text);
    err = (ist_error){0};
}

static ist_config small_config(void) {
    ist_config c = engines_config("n", false);
    c.input_size = 256;
    return c;
}

/* ---- ist_devices, ist_open ---- */

Test(api_arguments, devices) {
    int count = -1;
    refused(ist_devices(NULL, 0, NULL, &err), IST_E_ARGUMENT, "ist_devices");
    refused(ist_devices(NULL, 1, &count, &err), IST_E_ARGUMENT, "capacity 1");
    refused(ist_devices(NULL, -1, &count, &err), IST_E_ARGUMENT, "capacity -1");
    cr_assert_eq(ist_devices(NULL, 0, &count, NULL), IST_OK);
    cr_assert_gt(count, 0);
    ist_device_info *list = calloc((size_t)count, sizeof *list);
    cr_assert_eq(ist_devices(list, count, &count, &err), IST_OK);
    int defaults = 0;
    for (int i = 0; i < count; i++) defaults += list[i].is_default;
    cr_assert_eq(defaults, 1);
    free(list);
}

static void not_opened(const ist_config *c, ist_status want, const char *part) {
    ist_engine *e = (ist_engine *)&err; /* anything but NULL */
    refused(ist_open(c, &e, &err), want, part);
    cr_assert_null(e);
}

/* One field of a good configuration set to something that is refused. */
#define BAD(field, value, want, part)                                                                                  \
    do {                                                                                                               \
        ist_config bad_ = good;                                                                                        \
        bad_.field = (value);                                                                                          \
        not_opened(&bad_, want, part);                                                                                 \
    } while (0)

Test(api_arguments, configuration) {
    const ist_config good = small_config();
    ist_engine *e = NULL;
    refused(ist_open(&good, NULL, &err), IST_E_ARGUMENT, "engine");
    cr_assert_eq(ist_open(&good, NULL, NULL), IST_E_ARGUMENT);
    refused(ist_open(NULL, &e, &err), IST_E_ARGUMENT, "ist_config_default");
    ist_config zero = {0};
    not_opened(&zero, IST_E_ARGUMENT, "ist_config_default");
    BAD(struct_size, sizeof(size_t) - 1, IST_E_ARGUMENT, "ist_config_default");
    BAD(struct_size, sizeof good + 1, IST_E_ARGUMENT, "ist_config_default");
    BAD(input_size, 0, IST_E_ARGUMENT, "input_size");
    BAD(input_size, 650, IST_E_ARGUMENT, "multiple of 32");
    BAD(input_size, 2080, IST_E_ARGUMENT, "input_size is 2080");
    BAD(input_size, -640, IST_E_ARGUMENT, "input_size");
    BAD(input_width, 320, IST_E_ARGUMENT, "input_height is 0");
    BAD(input_height, 320, IST_E_ARGUMENT, "input_width is 0");
    BAD(input_width, -32, IST_E_ARGUMENT, "input_width is -32");
    ist_config odd = good;
    odd.input_width = 320;
    odd.input_height = 300;
    not_opened(&odd, IST_E_ARGUMENT, "input_width and input_height are 320 and 300, want multiples of 32");
    BAD(segmenter_size, -1, IST_E_ARGUMENT, "segmenter_size is -1");
    BAD(segmenter_size, 4128, IST_E_ARGUMENT, "segmenter_size is 4128");
    BAD(batch, 0, IST_E_ARGUMENT, "batch");
    BAD(batch, 65, IST_E_ARGUMENT, "batch is 65");
    BAD(max_objects, 0, IST_E_ARGUMENT, "max_objects");
    BAD(max_objects, 301, IST_E_ARGUMENT, "max_objects");
    BAD(conf, NAN, IST_E_ARGUMENT, "conf");
    BAD(conf, -0.1f, IST_E_ARGUMENT, "conf");
    BAD(conf, INFINITY, IST_E_ARGUMENT, "conf");
    BAD(frames_in_flight, 0, IST_E_ARGUMENT, "frames_in_flight");
    BAD(frames_in_flight, 9, IST_E_ARGUMENT, "frames_in_flight");
    BAD(max_targets, -1, IST_E_ARGUMENT, "max_targets");
    BAD(max_targets, 301, IST_E_ARGUMENT, "max_targets");
    BAD(max_pixels, 0, IST_E_ARGUMENT, "max_pixels");
    BAD(max_pixels, INT32_MAX, IST_E_ARGUMENT, "max_pixels");
    BAD(track_iou, NAN, IST_E_ARGUMENT, "track_iou");
    BAD(track_iou, 1.5f, IST_E_ARGUMENT, "track_iou");
    BAD(track_age, -1, IST_E_ARGUMENT, "track_age");
    BAD(nms_iou, NAN, IST_E_ARGUMENT, "nms_iou");
    BAD(nms_iou, -0.5, IST_E_ARGUMENT, "nms_iou is -0.5, want 0..1");
    BAD(nms_iou, 1.5, IST_E_ARGUMENT, "nms_iou is 1.5");
    BAD(nms_agnostic, 1, IST_E_ARGUMENT, "config.nms_agnostic needs config.nms_iou");
    BAD(nms_agnostic, 2, IST_E_ARGUMENT, "nms_agnostic is 2");
    BAD(match, (ist_match_mode)4, IST_E_ARGUMENT, "match");
    BAD(precision, (ist_precision)4, IST_E_ARGUMENT, "precision");
    BAD(overlap, (ist_overlap)3, IST_E_ARGUMENT, "overlap");
    BAD(stored_constants, 2, IST_E_ARGUMENT, "stored_constants");
    BAD(track_motion, 2, IST_E_ARGUMENT, "track_motion");
    BAD(track_high, 1.5f, IST_E_ARGUMENT, "track_high");
    BAD(readback, 2, IST_E_ARGUMENT, "readback");
    BAD(window, (ist_window)3, IST_E_ARGUMENT, "window is 3");
    BAD(resize_order, (ist_resize_order)4, IST_E_ARGUMENT, "resize_order");
    setenv("ISTHMUS_CAPS", "-HALF_STORAGE,-X86_BF16", 1);
    BAD(precision, IST_PRECISION_FP16, IST_E_UNSUPPORTED, "the half_storage probe; use fp32 or auto");
    BAD(precision, IST_PRECISION_BF16, IST_E_UNSUPPORTED, "has no AVX512_BF16, or does not build the x86_bf16 probe");
    unsetenv("ISTHMUS_CAPS");
    BAD(prompts, (ist_prompts)4, IST_E_ARGUMENT, "prompts is 4");
    BAD(prompts, IST_PROMPTS_GIVEN, IST_E_ARGUMENT, "config.prompts are given: give a segmenter");
    BAD(max_points, 0, IST_E_ARGUMENT, "max_points is 0");
    BAD(max_points, 257, IST_E_ARGUMENT, "max_points is 257, want 1..256");
    BAD(max_embeddings, 0, IST_E_ARGUMENT, "max_embeddings is 0");
    BAD(max_embeddings, 1025, IST_E_ARGUMENT, "max_embeddings is 1025");
    BAD(multimask, 2, IST_E_ARGUMENT, "multimask is 2");
    BAD(multimask, 1, IST_E_ARGUMENT, "config.multimask needs config.prompts to be given ones");
    BAD(low_res, 1, IST_E_ARGUMENT, "config.low_res needs");
    BAD(mask_prompts, 1, IST_E_ARGUMENT, "config.mask_prompts needs");
    BAD(prompts, IST_PROMPTS_TARGETS, IST_E_ARGUMENT, "give a segmenter");
    odd = good;
    odd.prompts = IST_PROMPTS_TARGETS;
    odd.segmenter = "x";
    odd.nms_iou = 0.5;
    not_opened(&odd, IST_E_ARGUMENT, "config.nms_iou is for detections");
    BAD(class_count, 1, IST_E_ARGUMENT, "class_count");
    BAD(class_count, -1, IST_E_ARGUMENT, "class_count");
    BAD(cl_context, &err, IST_E_ARGUMENT, "together");
    ist_config adopted = good;
    adopted.cl_device = adopted.cl_queue = &err;
    not_opened(&adopted, IST_E_ARGUMENT, "together");
}

Test(api_arguments, classes_of_the_detector) {
    static const int beyond[] = {3, 80}, below[] = {-1};
    ist_config c = small_config();
    c.classes = beyond;
    c.class_count = 2;
    not_opened(&c, IST_E_ARGUMENT, "class 80: the detector has classes 0..79");
    c.classes = below;
    c.class_count = 1;
    not_opened(&c, IST_E_ARGUMENT, "class -1");
}

Test(api_arguments, device_spec) {
    const ist_config good = small_config();
    BAD(device, "no such device", IST_E_NO_DEVICE, "no such device");
    BAD(device, "99", IST_E_NO_DEVICE, "99");
    BAD(device, "uuid:00", IST_E_NO_DEVICE, "uuid:00");
}

/* ---- prompts ---- */

/* One field of a good prompt set to something that is refused, asked of an image and of its embedding. */
#define BAD_PROMPT(field, value, want, part)                                                                           \
    do {                                                                                                               \
        ist_prompt bad_ = good;                                                                                        \
        bad_.field = (value);                                                                                          \
        m.prompts = &bad_;                                                                                             \
        m.prompt_count = 1;                                                                                            \
        refused(ist_submit(e, &m, 1, &err), want, part);                                                               \
        refused(ist_submit_prompts(e, k, &bad_, 1, 0, &err), want, part);                                              \
    } while (0)

Test(api_arguments, prompts) {
    enum { SIDE = 256, LOW = SIDE / 4, POINTS = 2 };
    static float logits[LOW * LOW];
    static const float no_box[] = {1, 2, NAN, 4};
    static const ist_point dots[] = {{3, 4, 1}, {-5, 1000, 0}, {1, 1, 1}}, nowhere[] = {{1, INFINITY, 1}};
    static const ist_point unknown[] = {{1, 1, 2}}, padding[] = {{1, 1, -1}};
    const ist_prompt good = {.points = dots, .point_count = POINTS};
    ist_config c = engines_config("n", true);
    c.detector = NULL;
    c.prompts = IST_PROMPTS_GIVEN;
    c.segmenter_size = SIDE;
    c.max_objects = 2;
    c.max_points = POINTS;
    c.mask_prompts = 1;
    ist_engine *e = engines_open(&c), *other = NULL;
    ist_image m = engines_image(40, 30, 1);
    ist_embedding *k = NULL;
    ist_transfers moved;
    refused(ist_encode(NULL, &m, &k, &err), IST_E_ARGUMENT, "no engine");
    refused(ist_encode(e, NULL, &k, &err), IST_E_ARGUMENT, "no image");
    refused(ist_encode(e, &m, NULL, &err), IST_E_ARGUMENT, "no place for the embedding");
    ist_image none = m;
    none.width = 0;
    refused(ist_encode(e, &none, &k, &err), IST_E_ARGUMENT, "0 x 30 pixels");
    cr_assert_eq(ist_encode(e, &m, &k, &err), IST_OK, "%s", err.text);
    refused(ist_embedding_transfers(NULL, &moved, &err), IST_E_ARGUMENT, "no embedding");
    refused(ist_submit_prompts(NULL, k, &good, 1, 0, &err), IST_E_ARGUMENT, "no engine");
    refused(ist_submit_prompts(e, NULL, &good, 1, 0, &err), IST_E_ARGUMENT, "no embedding");
    refused(ist_submit_prompts(e, k, NULL, 1, 0, &err), IST_E_ARGUMENT, "1 prompts, but no pointer");
    refused(ist_submit_prompts(e, k, &good, -1, 0, &err), IST_E_ARGUMENT, "-1 prompts");
    refused(ist_submit_prompts(e, k, &good, 3, 0, &err), IST_E_LIMIT, "3 prompts, the engine was opened for at most 2");
    refused(ist_submit_prompts(e, (ist_embedding *)&moved, &good, 1, 0, &err), IST_E_ARGUMENT, "none of this engine's");
    BAD_PROMPT(point_count, 10000, IST_E_LIMIT, "10000 points, the engine was opened for at most 2");
    BAD_PROMPT(point_count, -1, IST_E_ARGUMENT, "-1 points");
    BAD_PROMPT(point_count, 0, IST_E_ARGUMENT, "prompt 0: neither points nor box nor mask");
    BAD_PROMPT(points, NULL, IST_E_ARGUMENT, "2 points, but no pointer");
    BAD_PROMPT(box, no_box, IST_E_ARGUMENT, "the box has a coordinate that is not a number");
    BAD_PROMPT(mask, logits, IST_E_ARGUMENT, "a mask of 0 x 0, want logits of 64 x 64");
    ist_prompt masked = good, one = good;
    one.point_count = 1;
    one.points = nowhere;
    refused(ist_submit_prompts(e, k, &one, 1, 0, &err), IST_E_ARGUMENT,
            "point 0 has a coordinate that is not a number");
    one.points = unknown;
    refused(ist_submit_prompts(e, k, &one, 1, 0, &err), IST_E_ARGUMENT, "point 0 has label 2, want 1 (in) or 0 (out)");
    one.points = padding;
    refused(ist_submit_prompts(e, k, &one, 1, 0, &err), IST_E_ARGUMENT, "label -1");
    masked.mask = logits;
    masked.mask_width = masked.mask_height = LOW;
    logits[LOW] = NAN;
    refused(ist_submit_prompts(e, k, &masked, 1, 0, &err), IST_E_ARGUMENT, "the mask has a value that is not a number");
    masked.mask_width = 4 * LOW;
    refused(ist_submit_prompts(e, k, &masked, 1, 0, &err), IST_E_ARGUMENT, "a mask of 256 x 64");
    /* and it still works, points outside of the image and no prompts at all included */
    const ist_result *r = NULL;
    for (int count = 0; count < 2; count++) {
        cr_assert_eq(ist_submit_prompts(e, k, &good, count, 7, &err), IST_OK, "%s", err.text);
        cr_assert_eq(ist_receive(e, &r, &err), IST_OK, "%s", err.text);
        cr_assert_eq(r->frames[0].object_count, count);
        ist_release(e, &r);
    }
    /* engines for other prompts, and without masks */
    c.mask_prompts = 0;
    other = engines_open(&c);
    masked.mask_width = LOW;
    m.prompts = &masked;
    m.prompt_count = 1;
    refused(ist_submit(other, &m, 1, &err), IST_E_ARGUMENT, "a mask, the engine was opened without mask_prompts");
    refused(ist_submit_prompts(other, k, &good, 1, 0, &err), IST_E_ARGUMENT, "none of this engine's");
    ist_close(&other);
    c.prompts = IST_PROMPTS_TARGETS;
    other = engines_open(&c);
    refused(ist_submit(other, &m, 1, &err), IST_E_ARGUMENT,
            "1 prompts, the engine was opened for prompts of another kind");
    ist_embedding *not_made = NULL;
    refused(ist_encode(other, &m, &not_made, &err), IST_E_STATE, "other prompts than given ones");
    ist_close(&other);
    ist_embedding_release(e, &k);
    ist_embedding_release(e, &k);
    ist_embedding_release(e, NULL);
    ist_close(&e);
    free((void *)m.pixels);
}

/* An older caller's structure ends earlier: what it does not know keeps its default. */
Test(api_arguments, older_configuration) {
    ist_config c = small_config();
    ist_engine *e = NULL;
    c.struct_size = offsetof(ist_config, frames_in_flight);
    c.frames_in_flight = -5;
    c.max_pixels = -5;
    cr_assert_eq(ist_open(&c, &e, &err), IST_OK, "%s", err.text);
    ist_image m = engines_image(64, 48, 1);
    for (int i = 0; i < ist_config_default().frames_in_flight; i++) cr_assert_eq(ist_submit(e, &m, 1, &err), IST_OK);
    refused(ist_submit(e, &m, 1, &err), IST_E_STATE, "in flight");
    ist_close(&e);
    ist_close(&e);
    ist_close(NULL);
    free((void *)m.pixels);
}

/* ---- checkpoints ---- */

Test(api_arguments, checkpoints) {
    const ist_config good = small_config();
    const char *sam = engines_checkpoint("sam", 80, 3);
    BAD(detector, sam, IST_E_WEIGHTS, "the detector must be D-FINE");
    BAD(segmenter, good.detector, IST_E_WEIGHTS, "the segmenter must be MobileSAM or SAM ViT");
    BAD(detector, "/no/such/file.pth", IST_E_IO, "/no/such/file.pth");
    BAD(segmenter, "/no/such/sam.pt", IST_E_IO, "/no/such/sam.pt");
    BAD(detector, IST_SOURCE_DIR, IST_E_IO, IST_SOURCE_DIR);
    BAD(detector, IST_SOURCE_DIR "/LICENSE", IST_E_WEIGHTS, "LICENSE");
    ist_config c = good;
    c.segmenter = sam;
    c.detector = NULL;
    not_opened(&c, IST_E_ARGUMENT, "masks need boxes");
}

/* Writes the checkpoint `from` to `path` with one element of tensor `name` set to `value`. */
static void damage(const char *from, const char *name, float value, const char *path) {
    ist_weights *in, *out;
    cr_assert_eq(ist_weights_open(from, &in, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_weights_create(&out, &err), IST_OK);
    for (size_t i = 0; i < ist_weights_count(in); i++) {
        const ist_weight *w = ist_weights_at(in, i);
        unsigned char *data = malloc(w->bytes + 1);
        memcpy(data, w->data, w->bytes);
        if (!strcmp(w->name, name)) {
            cr_assert(w->type == IST_WEIGHT_F32 && w->count > 3);
            memcpy(data + 3 * sizeof value, &value, sizeof value);
        }
        cr_assert_eq(ist_weights_add(out, w->name, w->type, w->rank, w->dims, data, &err), IST_OK, "%s", err.text);
        free(data);
    }
    cr_assert_eq(ist_weights_save_safetensors(out, path, false, &err), IST_OK, "%s", err.text);
    ist_weights_close(&in);
    ist_weights_close(&out);
}

Test(api_arguments, weights_that_are_no_numbers) {
    static const struct {
        const char *tensor;
        float value;
        const char *part;
    } cases[] = {{"backbone.stem.stem1.conv.weight", NAN, "element 3 of 432 is not a number"},
                 {"encoder.encoder.0.layers.0.norm1.weight", INFINITY, "is infinite"},
                 {"backbone.stem.stem1.bn.running_var", -1, "element 3 is negative"},
                 {"decoder.decoder.layers.0.gateway.norm.bias", NAN, "not a number"}};
    ist_config c = small_config();
    const char *whole = c.detector;
    scratch folder = scratch_make();
    c.detector = scratch_path(&folder, "damaged.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        damage(whole, cases[i].tensor, cases[i].value, c.detector);
        ist_engine *e = NULL;
        ist_status st = ist_open(&c, &e, &err);
        cr_expect_not_null(strstr(err.text, cases[i].tensor), "%s", err.text);
        refused(st, IST_E_WEIGHTS, cases[i].part);
        cr_assert_null(e);
    }
    scratch_remove(&folder);
}

/* ---- frames ---- */

#define BAD_IMAGE(field, value, want, part)                                                                            \
    do {                                                                                                               \
        ist_image bad_ = good;                                                                                         \
        bad_.field = (value);                                                                                          \
        refused(ist_submit(e, &bad_, 1, &err), want, part);                                                            \
    } while (0)

Test(api_arguments, images) {
    ist_config c = small_config();
    c.match = IST_MATCH_TARGETS;
    c.max_targets = 2;
    c.batch = 2;
    c.max_pixels = 10000;
    ist_engine *e = engines_open(&c);
    const ist_image good = engines_image(100, 90, 8);
    const ist_result *want = engines_run(e, &good, 1);
    refused(ist_submit(NULL, &good, 1, &err), IST_E_ARGUMENT, "engine");
    refused(ist_submit(e, NULL, 1, &err), IST_E_ARGUMENT, "images");
    refused(ist_submit(e, &good, 0, &err), IST_E_ARGUMENT, "0 images");
    refused(ist_submit(e, &good, -1, &err), IST_E_ARGUMENT, "-1 images");
    refused(ist_submit(e, &good, 3, &err), IST_E_ARGUMENT, "3 images, the engine was opened for 1..2");
    BAD_IMAGE(width, 0, IST_E_ARGUMENT, "0 x 90");
    BAD_IMAGE(height, -7, IST_E_ARGUMENT, "100 x -7");
    BAD_IMAGE(height, 101, IST_E_LIMIT, "100 x 101");
    BAD_IMAGE(width, INT32_MAX, IST_E_LIMIT, "the limit is 10000");
    BAD_IMAGE(format, (ist_pixel_format)0, IST_E_ARGUMENT, "format 0x0");
    BAD_IMAGE(format, (ist_pixel_format)0x15, IST_E_ARGUMENT, "0x15");
    BAD_IMAGE(format, (ist_pixel_format)0x33, IST_E_ARGUMENT, "0x33");
    BAD_IMAGE(format, (ist_pixel_format)0x113, IST_E_ARGUMENT, "0x113");
    BAD_IMAGE(stride, 299, IST_E_ARGUMENT, "stride 299 for rows of 300 bytes");
    BAD_IMAGE(stride, (size_t)1 << 40, IST_E_ARGUMENT, "stride");
    BAD_IMAGE(pixels, NULL, IST_E_ARGUMENT, "pixels or cl_buffer");
    BAD_IMAGE(cl_buffer, &err, IST_E_ARGUMENT, "pixels or cl_buffer");
    BAD_IMAGE(target_count, 1, IST_E_ARGUMENT, "1 targets, but no pointer to them");
    BAD_IMAGE(target_count, -1, IST_E_ARGUMENT, "-1 targets");
    ist_target targets[3] = {{{1, 2, 30, 40}, 0}, {{1, 2, 30, 40}, 1}, {{1, 2, 30, 40}, 2}};
    ist_image aimed = good;
    aimed.targets = targets;
    aimed.target_count = 3;
    refused(ist_submit(e, &aimed, 1, &err), IST_E_ARGUMENT, "3 targets, the engine was opened for at most 2");
    aimed.target_count = 2;
    targets[1].box[3] = NAN;
    refused(ist_submit(e, &aimed, 1, &err), IST_E_ARGUMENT, "target 1");
    targets[1].box[3] = INFINITY;
    refused(ist_submit(e, &aimed, 1, &err), IST_E_ARGUMENT, "target 1");
    ist_image second_bad[2] = {good, good};
    second_bad[1].width = 0;
    refused(ist_submit(e, second_bad, 2, &err), IST_E_ARGUMENT, "image 1");
    const ist_result *got = engines_run(e, &good, 1); /* nothing of this left a trace */
    engines_same(&want->frames[0], &got->frames[0]);
    ist_release(e, &want);
    ist_release(e, &got);
    ist_close(&e);
    free((void *)good.pixels);
}

Test(api_arguments, results) {
    ist_config c = small_config();
    ist_engine *e = engines_open(&c);
    const ist_result *r = (const ist_result *)&err, *none = NULL;
    refused(ist_receive(e, &r, &err), IST_E_STATE, "nothing is in flight");
    cr_assert_null(r);
    refused(ist_receive(NULL, &r, &err), IST_E_ARGUMENT, "engine");
    refused(ist_receive(e, NULL, &err), IST_E_ARGUMENT, "result");
    ist_release(NULL, NULL);
    ist_release(e, NULL);
    ist_release(e, &none);
    ist_image m = engines_image(64, 48, 1);
    r = engines_run(e, &m, 1);
    const ist_result *twice = r, foreign = *r, *stray = &foreign;
    ist_release(e, &stray); /* not one of the engine's: nothing is given back */
    cr_assert_null(stray);
    cr_assert_eq(r->frame_count, 1);
    ist_release(e, &r);
    ist_release(e, &twice);
    ist_engine_info info;
    refused(ist_engine_describe(NULL, &info, &err), IST_E_ARGUMENT, "engine");
    refused(ist_engine_describe(e, NULL, &err), IST_E_ARGUMENT, "info");
    cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK);
    cr_assert_eq(info.classes, 80);
    cr_assert_eq(info.precision, IST_PRECISION_FP32);
    cr_assert_null(ist_class_name(NULL, 0));
    cr_assert_null(ist_class_name(e, -1));
    cr_assert_null(ist_class_name(e, 80));
    refused(ist_reset_tracks(NULL, &err), IST_E_ARGUMENT, "engine");
    refused(ist_reset_tracks(e, &err), IST_E_STATE, "without tracks");
    ist_close(&e);
    cr_assert_null(e);
    free((void *)m.pixels);
}

/* ---- ist_assign ---- */

Test(api_arguments, assignment) {
    ist_config c = ist_config_default();
    ist_engine *e = engines_open(&c);
    float cost[] = {3, 1, 99, 2, 2, 99};
    int match[2] = {7, 7};
    double total = 5;
    refused(ist_assign(NULL, cost, 2, 2, 3, match, &total, &err), IST_E_ARGUMENT, "ist_assign");
    refused(ist_assign(e, NULL, 2, 2, 3, match, &total, &err), IST_E_ARGUMENT, "missing pointer");
    refused(ist_assign(e, cost, 2, 2, 3, NULL, &total, &err), IST_E_ARGUMENT, "missing pointer");
    refused(ist_assign(e, cost, -1, 2, 3, match, &total, &err), IST_E_ARGUMENT, "-1 x 2");
    refused(ist_assign(e, cost, 2, -2, 3, match, &total, &err), IST_E_ARGUMENT, "2 x -2");
    refused(ist_assign(e, cost, 2, 2, 1, match, &total, &err), IST_E_ARGUMENT, "1 apart");
    refused(ist_assign(e, cost, 2, 100000, 100000, match, &total, &err), IST_E_LIMIT, "100000");
    cost[4] = NAN;
    refused(ist_assign(e, cost, 2, 2, 3, match, &total, &err), IST_E_ARGUMENT, "row 1, column 1");
    cost[4] = -INFINITY;
    refused(ist_assign(e, cost, 2, 2, 3, match, &total, &err), IST_E_ARGUMENT, "minus infinity");
    cost[3] = cost[4] = INFINITY;
    refused(ist_assign(e, cost, 2, 2, 3, match, &total, &err), IST_E_ARGUMENT, "no complete assignment of 2 x 2");
    cost[4] = 2;
    cr_assert_eq(ist_assign(e, cost, 2, 2, 3, match, &total, &err), IST_OK, "%s", err.text);
    cr_assert(match[0] == 0 && match[1] == 1 && total == 5);
    cr_assert_eq(ist_assign(e, NULL, 0, 3, 3, NULL, &total, &err), IST_OK);
    cr_assert_eq(total, 0);
    cr_assert_eq(ist_assign(e, NULL, 2, 0, 0, match, NULL, &err), IST_OK);
    cr_assert(match[0] == -1 && match[1] == -1);
    ist_image m = engines_image(8, 8, 1);
    refused(ist_submit(e, &m, 1, &err), IST_E_STATE, "without a model");
    ist_engine_info info;
    cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK);
    cr_assert(!*info.detector && !*info.segmenter && info.kernels == 0 && info.classes == 0);
    ist_close(&e);
    free((void *)m.pixels);
}

/* ---- texts ---- */

Test(api_arguments, texts) {
#define X(name, value, text)                                                                                           \
    cr_expect_eq((int)name, value);                                                                                    \
    cr_expect_str_eq(ist_status_text(name), text);
    IST_STATUS_LIST(X)
#undef X
    cr_assert_not_null(ist_status_text((ist_status)99));
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", IST_VERSION_MAJOR, IST_VERSION_MINOR, IST_VERSION_PATCH);
    cr_assert_str_eq(ist_version(), version);
}
