/* The frame as users of the library see it: transfers, slots, batches, inputs of every kind, overflow of the packet. */
#include "support/engines.h"

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static ist_error err;

static void one_crossing_each_way(const ist_result *r) {
    cr_assert_eq(r->transfers.writes, 1);
    cr_assert_eq(r->transfers.reads, 1);
    cr_assert_leq(r->transfers.waits, 1);
}

/* D-FINE-N at 256 keeps many frames short; what is counted does not depend on the size. */
static void cross_once_each_way_in_constant_memory(int frames, ist_precision precision) {
    ist_config c = engines_config("n", false);
    c.precision = precision;
    c.input_size = 256;
    c.match = IST_MATCH_TRACKS;
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(320, 200, 5);
    uint64_t bytes = 0;
    for (int i = 0; i < frames; i++) {
        const ist_result *r = engines_run(e, &m, 1);
        one_crossing_each_way(r);
        cr_assert_eq(r->transfers.waits, 1);
        cr_assert_geq(r->transfers.h2d_bytes, 320 * 200 * 3);
        ist_release(e, &r);
        ist_engine_info info;
        cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK);
        if (precision) cr_assert_eq(info.precision, precision);
        if (i == 1) bytes = info.device_bytes;
        if (i > 1) cr_assert_eq(info.device_bytes, bytes, "frame %d", i);
        if (i > 1) cr_assert_eq(info.device_peak_bytes, bytes);
    }
    ist_close(&e);
    free((void *)m.pixels);
}

Test(pipeline_frame, a_thousand_frames_cross_once_each_way_in_constant_memory) {
    cross_once_each_way_in_constant_memory(engines_lack_cpu() ? 10 : 1000, IST_PRECISION_AUTO);
}

Test(pipeline_frame, so_do_frames_in_the_other_precision) {
    ist_config c = engines_config("n", false);
    ist_engine *e = engines_open(&c);
    ist_engine_info info;
    cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK);
    cr_assert_eq(info.precision, info.device.type == IST_DEVICE_GPU ? IST_PRECISION_FP16 : IST_PRECISION_FP32);
    ist_close(&e);
    ist_precision other = info.precision == IST_PRECISION_FP16 ? IST_PRECISION_FP32 : IST_PRECISION_FP16;
    cross_once_each_way_in_constant_memory(engines_lack_cpu() ? 5 : 20, other);
}

Test(pipeline_frame, masks_cross_once_too_and_memory_stays_under_a_gibibyte) {
    ist_config c = engines_config("s", true);
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(640, 480, 9);
    ist_engine_info info;
    for (int i = 0; i < 4; i++) {
        const ist_result *r = engines_run(e, &m, 1);
        one_crossing_each_way(r);
        cr_assert_gt(r->frames[0].object_count, 0);
        ist_release(e, &r);
    }
    cr_assert_eq(ist_engine_describe(e, &info, &err), IST_OK);
    cr_assert_lt(info.device_peak_bytes, UINT64_C(1) << 30, "%llu bytes", (unsigned long long)info.device_peak_bytes);
    cr_assert_geq(info.arena_bytes, info.arena_lower_bound);
    cr_assert_str_eq(info.detector, "dfine-s");
    cr_assert_str_eq(info.segmenter, "mobilesam");
    ist_close(&e);
    free((void *)m.pixels);
}

Test(pipeline_frame, two_runs_give_the_same_bits) {
    ist_config c = engines_config("n", true);
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(333, 517, 2), other = engines_image(64, 48, 3);
    const ist_result *a = engines_run(e, &m, 1), *b = engines_run(e, &m, 1);
    cr_assert_gt(a->frames[0].object_count, 0);
    engines_same(&a->frames[0], &b->frames[0]);
    ist_release(e, &b);
    b = engines_run(e, &other, 1); /* another size in between leaves nothing behind */
    ist_release(e, &b);
    b = engines_run(e, &m, 1);
    engines_same(&a->frames[0], &b->frames[0]);
    ist_close(&e);
    free((void *)m.pixels);
    free((void *)other.pixels);
}

/* On a GPU the size of the batch can decide which kernels run, and with them the order of sums. */
static void same_or_close(const ist_frame *a, const ist_frame *b, bool bits) {
    if (bits) {
        engines_same(a, b);
        return;
    }
    int same = 0;
    for (int i = 0; i < a->object_count; i++)
        for (int k = 0; k < b->object_count; k++) {
            const ist_object *x = &a->objects[i], *y = &b->objects[k];
            double off = fabs(x->score - y->score);
            for (int s = 0; s < 4; s++) off = fmax(off, fabs(x->box[s] - y->box[s]) / (double)a->width);
            if (x->label != y->label || off > 0.02) continue;
            cr_expect(abs(x->area - y->area) <= 2 + x->area / 20, "areas %d and %d", x->area, y->area);
            same++;
            break;
        }
    cr_expect_geq(same, (a->object_count > b->object_count ? a->object_count : b->object_count) - 1, "%d of %d and %d",
                  same, a->object_count, b->object_count);
}

static void a_batch_equals_its_images_one_by_one(ist_precision precision, int least) {
    ist_config c = engines_config("n", true);
    c.precision = precision;
    c.max_objects = 5; /* of one image few enough for rows that a batch is too large for */
    ist_engine *single = engines_open(&c);
    c.batch = 3;
    ist_engine *batch = engines_open(&c);
    ist_engine_info info;
    cr_assert_eq(ist_engine_describe(batch, &info, &err), IST_OK);
    ist_image m[3] = {engines_image(200, 150, 11), engines_image(97, 131, 12), engines_image(320, 240, 13)};
    for (int count = least; count <= 3; count++) {
        const ist_result *all = engines_run(batch, m, count);
        one_crossing_each_way(all);
        for (int i = 0; i < count; i++) {
            const ist_result *r = engines_run(single, &m[i], 1);
            cr_assert_eq(all->frames[i].tag, (uint64_t)(11 + i));
            cr_assert_gt(r->frames[0].object_count, 0);
            same_or_close(&all->frames[i], &r->frames[0], info.device.type == IST_DEVICE_CPU);
            ist_release(single, &r);
        }
        ist_release(batch, &all);
    }
    ist_close(&single);
    ist_close(&batch);
    for (int i = 0; i < 3; i++) free((void *)m[i].pixels);
}

Test(pipeline_frame, a_batch_equals_its_images_one_by_one) {
    a_batch_equals_its_images_one_by_one(IST_PRECISION_FP32, 1);
}

Test(pipeline_frame, a_batch_in_half_equals_its_images_one_by_one) {
    a_batch_equals_its_images_one_by_one(IST_PRECISION_FP16, 3);
}

Test(pipeline_frame, frames_in_flight_come_back_in_order) {
    ist_config c = engines_config("n", false);
    c.frames_in_flight = 3;
    ist_engine *e = engines_open(&c);
    ist_image m[3] = {engines_image(64, 64, 1), engines_image(80, 40, 2), engines_image(33, 95, 3)};
    const ist_result *r[3];
    for (int i = 0; i < 3; i++) cr_assert_eq(ist_submit(e, &m[i], 1, &err), IST_OK, "%s", err.text);
    cr_assert_eq(ist_submit(e, &m[0], 1, &err), IST_E_STATE);
    cr_assert_eq(ist_assign(e, (float[]){1}, 1, 1, 1, (int[]){0}, NULL, &err), IST_E_STATE);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(ist_receive(e, &r[i], &err), IST_OK);
        cr_assert_eq(r[i]->frames[0].tag, (uint64_t)(1 + i));
        cr_assert_eq(r[i]->frames[0].width, m[i].width);
    }
    const ist_result *none;
    cr_assert_eq(ist_receive(e, &none, &err), IST_E_STATE);
    cr_assert_null(none);
    cr_assert_eq(ist_submit(e, &m[0], 1, &err), IST_E_STATE); /* received is not released */
    ist_release(e, &r[1]);
    cr_assert_null(r[1]);
    cr_assert_eq(ist_submit(e, &m[1], 1, &err), IST_OK);
    ist_close(&e); /* with one batch in flight and two results out */
    for (int i = 0; i < 3; i++) free((void *)m[i].pixels);
}

/* Buffers of one slot grow while other batches fly, and shrinking sizes use what is there. */
Test(pipeline_frame, sizes_change_in_flight) {
    static const int sizes[][2] = {{40, 30},   {90, 300},    {500, 200}, {2500, 1000},
                                   {640, 480}, {1600, 1800}, {40, 30},   {2100, 1900}};
    enum { IMAGES = sizeof sizes / sizeof *sizes, FLIGHT = 3 };
    ist_config c = engines_config("n", false);
    c.input_size = 256;
    c.conf = 0;
    c.max_objects = 6;
    c.frames_in_flight = FLIGHT;
    ist_engine *e = engines_open(&c);
    ist_image m[IMAGES];
    for (int i = 0; i < IMAGES + FLIGHT; i++) {
        if (i >= FLIGHT) {
            const ist_result *got;
            cr_assert_eq(ist_receive(e, &got, &err), IST_OK, "%s", err.text);
            ist_engine *alone = engines_open(&c);
            const ist_result *want = engines_run(alone, &m[i - FLIGHT], 1);
            engines_same(&want->frames[0], &got->frames[0]);
            cr_assert_eq(got->frames[0].tag, m[i - FLIGHT].tag);
            ist_release(e, &got);
            ist_close(&alone);
        }
        if (i >= IMAGES) continue;
        m[i] = engines_image(sizes[i][0], sizes[i][1], (uint64_t)(50 + i));
        cr_assert_eq(ist_submit(e, &m[i], 1, &err), IST_OK, "%s", err.text);
    }
    ist_close(&e);
    for (int i = 0; i < IMAGES; i++) free((void *)m[i].pixels);
}

/* The same picture in every pixel format gives the same objects where the formats hold the same values. */
Test(pipeline_frame, formats_of_one_picture_agree) {
    ist_config c = engines_config("n", false);
    ist_engine *e = engines_open(&c);
    int w = 90, h = 70, n = w * h;
    uint8_t *gray = malloc((size_t)n), *wide = malloc((size_t)(w * 4 * h * 2 + 64 * h));
    for (int i = 0; i < n; i++) gray[i] = (uint8_t)(i * 7 + (i / w) * 3);
    ist_image m = {.width = w, .height = h, .format = IST_GRAY8, .pixels = gray};
    const ist_result *want = engines_run(e, &m, 1);
    static const ist_pixel_format formats[] = {IST_GRAYA8,  IST_RGB8,  IST_RGBA8, IST_GRAY16,
                                               IST_GRAYA16, IST_RGB16, IST_RGBA16};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        int channels = (int)formats[f] & 15, sample = (int)formats[f] >> 4;
        m.format = formats[f];
        m.pixels = wide;
        m.stride = f % 2 ? (size_t)(w * channels * sample + 10 + 2 * (int)f) : 0;
        size_t stride = m.stride ? m.stride : (size_t)(w * channels * sample);
        for (int i = 0; i < n; i++)
            for (int ch = 0; ch < channels; ch++) {
                bool alpha = channels % 2 == 0 && ch == channels - 1;
                unsigned v = alpha ? (unsigned)(i * 31) & 255 : gray[i];
                uint16_t v16 = (uint16_t)(v * 257);
                uint8_t *at = wide + (size_t)(i / w) * stride + (size_t)((i % w * channels + ch) * sample);
                if (sample == 2)
                    memcpy(at, &v16, 2);
                else
                    *at = (uint8_t)v;
            }
        const ist_result *got = engines_run(e, &m, 1);
        engines_same(&want->frames[0], &got->frames[0]);
        ist_release(e, &got);
    }
    ist_close(&e);
    free(gray);
    free(wide);
}

/* A context, queue and image buffer of the caller: the pixels never cross. */
Test(pipeline_frame, adopted_context_with_pixels_on_the_device) {
    ist_config c = engines_config("n", false);
    ist_engine *own = engines_open(&c);
    ist_engine_info info;
    cr_assert_eq(ist_engine_describe(own, &info, &err), IST_OK);
    cl_platform_id platforms[16];
    cl_device_id devices[16];
    cr_assert_eq(clGetPlatformIDs(16, platforms, NULL), CL_SUCCESS);
    cr_assert_eq(clGetDeviceIDs(platforms[info.device.platform], CL_DEVICE_TYPE_ALL, 16, devices, NULL), CL_SUCCESS);
    cl_context context = clCreateContext(NULL, 1, &devices[info.device.device], NULL, NULL, NULL);
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, devices[info.device.device], NULL, NULL);
    c.cl_context = context;
    c.cl_device = devices[info.device.device];
    c.cl_queue = queue;
    ist_engine *adopted = engines_open(&c);
    clReleaseContext(context);

    ist_image m = engines_image(123, 77, 21), on_device = m;
    const ist_result *want = engines_run(own, &m, 1);
    size_t bytes = 123 * 77 * 3, offset = 17;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_ONLY, offset + bytes, NULL, NULL);
    cr_assert_eq(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, offset, bytes, m.pixels, 0, NULL, NULL), CL_SUCCESS);
    on_device.pixels = NULL;
    on_device.cl_buffer = buffer;
    on_device.cl_offset = offset;
    ist_image beyond = on_device;
    beyond.cl_offset++;
    cr_assert_eq(ist_submit(adopted, &beyond, 1, &err), IST_E_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "28413 bytes from byte 18 on, but cl_buffer has 28430"), "%s", err.text);
    beyond.cl_offset = SIZE_MAX;
    cr_assert_eq(ist_submit(adopted, &beyond, 1, &err), IST_E_ARGUMENT);
    beyond = on_device;
    beyond.stride = 370;
    cr_assert_eq(ist_submit(adopted, &beyond, 1, &err), IST_E_ARGUMENT);
    cr_assert_eq(ist_submit(own, &on_device, 1, &err), IST_E_ARGUMENT); /* of another context */
    for (int i = 0; i < 2; i++) {
        const ist_result *got = engines_run(adopted, &on_device, 1);
        engines_same(&want->frames[0], &got->frames[0]);
        one_crossing_each_way(got);
        cr_assert_lt(got->transfers.h2d_bytes, bytes + 65536, "the pixels crossed");
        ist_release(adopted, &got);
        got = engines_run(adopted, &m, 1);
        engines_same(&want->frames[0], &got->frames[0]);
        ist_release(adopted, &got);
    }
    clReleaseMemObject(buffer);
    clReleaseCommandQueue(queue);
    ist_close(&own);
    ist_close(&adopted);
    free((void *)m.pixels);
}

/* Masks of a large image exceed the packet's four megabytes: all of them arrive and the ledger shows the second read.
 */
Test(pipeline_frame, a_packet_never_loses_a_mask) {
    ist_config c = engines_config("n", true);
    c.conf = 0.0f;
    c.max_objects = 12;
    ist_engine *e = engines_open(&c);
    ist_image m = engines_image(2600, 2400, 4);
    const ist_result *r = engines_run(e, &m, 1);
    cr_assert_eq(r->frames[0].object_count, 12);
    size_t words = 0;
    for (int i = 0; i < 12; i++) {
        const ist_object *o = &r->frames[0].objects[i];
        int area = 0, x1 = -1;
        for (int x = 0; x < o->mask.columns; x++)
            for (int k = 0; k < o->mask.words; k++) {
                int bits = __builtin_popcount(o->mask.bits[(size_t)x * (size_t)o->mask.words + (size_t)k]);
                area += bits;
                if (bits) x1 = o->mask.x0 + x;
            }
        cr_assert_eq(area, o->area, "object %d: %d pixels set, area %d", i, area, o->area);
        if (area) cr_assert_eq(x1, o->mask_box[2]);
        words += (size_t)o->mask.columns * (size_t)o->mask.words;
    }
    cr_assert_gt(words, (size_t)1 << 20, "the case needs more mask words than the packet holds: %zu", words);
    cr_assert_eq(r->transfers.writes, 1);
    cr_assert_eq(r->transfers.reads, 2);
    cr_assert_eq(r->transfers.waits, 2);
    ist_release(e, &r);
    ist_close(&e);
    free((void *)m.pixels);
}

Test(pipeline_frame, a_batch_beyond_the_device_is_refused_by_name) {
    ist_config c = engines_config("n", true);
    ist_engine *e = NULL;
    c.batch = 64, c.max_objects = 300; /* tensors of more than 2^31 numbers */
    cr_expect_eq(ist_open(&c, &e, &err), IST_E_LIMIT);
    cr_expect_null(e);
    /* Which tensor is the first to be too large is the device's rows' affair. */
    cr_expect(strstr(err.text, "a batch of 64 with up to 300 objects each is too much at once, a smaller batch or "
                               "fewer objects might do: ") == err.text,
              "%s", err.text);
    cr_expect(strstr(err.text, " values, at most 2147483647 are possible"), "%s", err.text);
}

Test(pipeline_frame, tiny_and_thin_images) {
    static const int sizes[][2] = {{1, 1}, {1, 500}, {500, 1}, {2, 3}, {3000, 2}, {65536, 1}, {1, 65536}};
    ist_config c = engines_config("n", true);
    c.conf = 0.0f;
    c.max_objects = 2;
    ist_engine *e = engines_open(&c);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ist_image m = engines_image(sizes[i][0], sizes[i][1], 30 + i);
        const ist_result *r = engines_run(e, &m, 1);
        cr_assert_eq(r->frames[0].object_count, 2);
        for (int k = 0; k < 2; k++) {
            const ist_object *o = &r->frames[0].objects[k];
            cr_assert(isfinite(o->score) && isfinite(o->mask_score));
            cr_assert_leq(o->area, m.width * m.height);
            cr_assert_leq(o->mask.x0 + o->mask.columns, m.width);
        }
        ist_release(e, &r);
        free((void *)m.pixels);
    }
    ist_close(&e);
}
