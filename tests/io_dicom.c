/* DICOM in, from files written here: photometric interpretations, bits, windows, frames, codings; what is refused. */
#include "io/frames.h"
#include "io/image_format.h"
#include "io/inflated.h"

#include "support/dicom_file.h"

#include <isa-l/igzip_lib.h>
#include <turbojpeg.h>

static void need_dicom(void) {
    dicom_file f;
    dicom_begin(&f, "1");
    if (!ist_image_format_is_read(ist_image_format_of(f.bytes, f.count))) cr_skip_test("built without DCMTK");
}

static ist_bitmap read_one(const dicom_file *f) {
    ist_bitmap b;
    ist_error err = {0};
    cr_assert_eq(ist_bitmap_decode(f->bytes, f->count, "t.dcm", 10000, &b, &err), IST_OK, "%s", err.text);
    ist_image_size size = ist_image_measure_bytes(f->bytes, f->count, 10000);
    cr_expect_geq(size.decoded, b.stride * (size_t)b.height);
    return b;
}

static void expect_failure(const dicom_file *f, size_t count, ist_status status, const char *part) {
    ist_bitmap b;
    ist_error err = {0};
    cr_expect_eq(ist_bitmap_decode(f->bytes, count, "t.dcm", 10000, &b, &err), status, "%s", err.text);
    cr_expect_not_null(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
    cr_expect_null(b.pixels);
}

/* Gray of 3 x 1 pixels. */
static void expect_gray(const char *photometric, int allocated, int stored, int with_sign, const char *const texts[4],
                        const void *pixels, ist_pixel_format format, const void *want, int low, int high) {
    static const uint32_t tags[4] = {0x00281050, 0x00281051, 0x00281052, 0x00281053};
    dicom_file f;
    dicom_begin(&f, "1");
    dicom_describe(&f, 1, photometric, 1, 3, 1, allocated, stored, with_sign, 0);
    for (int i = 0; i < 4; i++)
        if (texts[i]) dicom_text(&f, tags[i], "DS", texts[i]);
    dicom_pixels(&f, pixels, (uint32_t)(3 * allocated / 8), allocated);
    ist_bitmap b = read_one(&f);
    cr_expect(b.width == 3 && b.height == 1 && b.format == format);
    cr_expect_arr_eq(b.pixels, want, b.stride);
    cr_expect(b.window_low == low && b.window_high == high, "%s: window %d to %d, want %d to %d", photometric,
              b.window_low, b.window_high, low, high);
    ist_bitmap_free(&b);
    for (size_t n = 140; n < f.count; n += 3) expect_failure(&f, n, IST_E_INPUT, "t.dcm: ");
}

Test(io_dicom, gray_and_its_window) {
    const char *const none[4] = {0};
    need_dicom();
    expect_gray("MONOCHROME2", 8, 8, 0, none, "\1\2\xFF", IST_GRAY8, "\1\2\xFF", 0, 0);
    expect_gray("MONOCHROME1", 8, 8, 0, none, "\1\2\xFF", IST_GRAY8, "\xFE\xFD\0", 0, 0);
    /* without a window: the range of the bits stored, and nothing of those above */
    const uint16_t twelve[3] = {0, 1000, 0xF000 | 4095}, plain[3] = {0, 1000, 4095}, turned[3] = {4095, 3095, 0};
    expect_gray("MONOCHROME2", 16, 12, 0, none, twelve, IST_GRAY16, plain, 0, 4095);
    const char *const window[4] = {"1500.5", "1001"};
    expect_gray("MONOCHROME2", 16, 12, 0, window, twelve, IST_GRAY16, plain, 1000, 2000);
    expect_gray("MONOCHROME1", 16, 12, 0, window, twelve, IST_GRAY16, turned, 2095, 3095);
    /* Hounsfield units, two windows of which the first counts: stored -1024 .. is moved up by 32768 */
    const uint16_t ct[3] = {(uint16_t)-1024, 0, 3000}, moved[3] = {32768 - 1024, 32768, 35768};
    const char *const soft[4] = {"36.5\\500", "401\\2000", "-1024", "1"};
    expect_gray("MONOCHROME2", 16, 16, 1, soft, ct, IST_GRAY16, moved, 32768 + 860, 32768 + 1260);
    const char *const half[4] = {"50.5", "11", "0", "0.5"}; /* stored values are twice what the window is in */
    expect_gray("MONOCHROME2", 16, 12, 0, half, twelve, IST_GRAY16, plain, 90, 110);
    const char *const bad[4] = {"1e300", "0"};
    expect_gray("MONOCHROME2", 16, 12, 0, bad, twelve, IST_GRAY16, plain, 0, 4095);
}

Test(io_dicom, colours) {
    static const uint8_t pixels[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const uint8_t planes[12] = {1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12};
    dicom_file f;
    need_dicom();
    for (int planar = 0; planar < 2; planar++) {
        dicom_begin(&f, "1");
        dicom_describe(&f, 3, "RGB", 1, 2, 2, 8, 8, 0, planar);
        dicom_pixels(&f, planar ? planes : pixels, 12, 8);
        ist_bitmap b = read_one(&f);
        cr_expect_eq(b.format, IST_RGB8);
        cr_expect_arr_eq(b.pixels, pixels, 12);
        ist_bitmap_free(&b);
    }
    dicom_begin(&f, "1"); /* values of pydicom 3.0's convert_color_space */
    dicom_describe(&f, 3, "YBR_FULL", 1, 2, 1, 8, 8, 0, 0);
    dicom_pixels(&f, (const uint8_t[]){100, 90, 200, 255, 0, 255}, 6, 8);
    ist_bitmap b = read_one(&f);
    cr_expect_arr_eq(b.pixels, ((const uint8_t[]){201, 62, 33, 255, 208, 28}), 6);
    ist_bitmap_free(&b);
    static const uint8_t tables[3][8] = {
        {0, 1, 0, 2, 0, 3, 0, 4}, {0, 5, 0, 6, 0, 7, 0, 8}, {0, 9, 0, 10, 0, 11, 0, 12}};
    dicom_begin(&f, "1"); /* four colours, of values from 10 on */
    dicom_describe(&f, 1, "PALETTE COLOR", 1, 4, 1, 8, 8, 0, 0);
    for (uint32_t c = 0; c < 3; c++) dicom_element(&f, 0x00281101 + c, "US", "\4\0\12\0\20\0", 6);
    for (uint32_t c = 0; c < 3; c++) dicom_element(&f, 0x00281201 + c, "OW", tables[c], 8);
    dicom_pixels(&f, "\0\12\13\77", 4, 8);
    b = read_one(&f);
    cr_expect_arr_eq(b.pixels, ((const uint8_t[]){1, 5, 9, 1, 5, 9, 2, 6, 10, 4, 8, 12}), 12);
    ist_bitmap_free(&b);
}

enum { W = 16, H = 8, FRAMES = 4 };

/* Frames of W x H, each of another gray; as JPEGs, each a fragment, under this name, or (NULL) as they are. */
static void make_frames(dicom_file *f, const char *jpeg) {
    static uint8_t pixels[FRAMES * W * H];
    for (int i = 0; i < FRAMES * W * H; i++) pixels[i] = (uint8_t)(40 * (i / (W * H)) + 20);
    dicom_begin(f, jpeg ? jpeg : "1");
    dicom_describe(f, 1, "MONOCHROME2", FRAMES, W, H, 8, 8, 0, 0);
    if (!jpeg) {
        dicom_pixels(f, pixels, sizeof pixels, 8);
        return;
    }
    dicom_element(f, 0x7FE00010, "OB", NULL, UINT32_MAX);
    dicom_raw(f, "\xFE\xFF\x00\xE0\0\0\0\0", 8); /* no table of offsets */
    tjhandle handle = tjInitCompress();
    for (int i = 0; i < FRAMES; i++) {
        unsigned char *bytes = NULL;
        unsigned long size = 0;
        cr_assert_eq(tjCompress2(handle, pixels + i * W * H, W, 0, H, TJPF_GRAY, &bytes, &size, TJSAMP_GRAY, 90, 0), 0);
        dicom_raw(f, "\xFE\xFF\x00\xE0", 4);
        dicom_number(f, (uint32_t)(size + size % 2), 4);
        dicom_raw(f, bytes, size);
        if (size % 2) dicom_raw(f, "", 1);
        tjFree(bytes);
    }
    tjDestroy(handle);
    dicom_raw(f, "\xFE\xFF\xDD\xE0\0\0\0\0", 8);
}

/* One frame of W x H in a progressive JPEG that says that it is width x height, whose last scan comes `scans` times
 * more; with `split` in two fragments, of which the first ends where a segment may seem to end the image. */
static void make_hostile(dicom_file *f, int width, int height, int scans, bool split) {
    static const uint8_t pixels[W * H] = {1, 2, 3};
    unsigned char *bytes = NULL;
    unsigned long size = 0, sof = 0, sos = 0;
    tjhandle handle = tjInitCompress();
    cr_assert_eq(tjCompress2(handle, pixels, W, 0, H, TJPF_GRAY, &bytes, &size, TJSAMP_GRAY, 90, TJFLAG_PROGRESSIVE),
                 0);
    tjDestroy(handle);
    for (unsigned long i = 0; i + 1 < size; i++) {
        if (bytes[i] == 0xFF && bytes[i + 1] == 0xC2) sof = i;
        if (bytes[i] == 0xFF && bytes[i + 1] == 0xDA) sos = i;
    }
    cr_assert(sof && sos);
    const uint8_t sides[4] = {(uint8_t)(height >> 8), (uint8_t)height, (uint8_t)(width >> 8), (uint8_t)width};
    memcpy(bytes + sof + 5, sides, 4);
    size_t scan = size - 2 - sos, comment = split ? 6 : 0, all = size + comment + (size_t)scans * scan;
    uint8_t *jpeg = malloc(all), *to = jpeg;
    cr_assert_not_null(jpeg);
    to = (uint8_t *)memcpy(to, bytes, 2) + 2;
    if (split) to = (uint8_t *)memcpy(to, "\xFF\xFE\0\4\xFF\xD9", 6) + 6;
    to = (uint8_t *)memcpy(to, bytes + 2, size - 4) + size - 4;
    for (int i = 0; i < scans; i++) to = (uint8_t *)memcpy(to, bytes + sos, scan) + scan;
    memcpy(to, bytes + size - 2, 2);
    tjFree(bytes);
    dicom_begin(f, "4.50");
    dicom_describe(f, 1, "MONOCHROME2", 1, W, H, 8, 8, 0, 0);
    dicom_element(f, 0x7FE00010, "OB", NULL, UINT32_MAX);
    dicom_raw(f, "\xFE\xFF\x00\xE0\0\0\0\0", 8);
    const size_t cut = split ? 8 : all;
    for (size_t at = 0; at < all; at = at ? all : cut) {
        size_t part = at ? all - cut : cut;
        dicom_raw(f, "\xFE\xFF\x00\xE0", 4);
        dicom_number(f, (uint32_t)(part + part % 2), 4);
        dicom_raw(f, jpeg + at, part);
        if (part % 2) dicom_raw(f, "", 1);
    }
    dicom_raw(f, "\xFE\xFF\xDD\xE0\0\0\0\0", 8);
    free(jpeg);
}

/* The decoders behind DCMTK would take twelve gigabytes, or hours. */
Test(io_dicom, a_jpeg_in_it_cannot_ask_for_more_than_the_file) {
    dicom_file f;
    need_dicom();
    make_hostile(&f, W, H, 0, false);
    ist_bitmap b = read_one(&f);
    cr_expect(b.width == W && b.height == H);
    ist_bitmap_free(&b);
    make_hostile(&f, 65500, 65500, 0, false);
    expect_failure(&f, f.count, IST_E_INPUT,
                   "t.dcm: damaged DICOM: a JPEG of 65500 x 65500 pixels in 1 for frames of 16 x 8");
    make_hostile(&f, W, H + 1, 0, false);
    expect_failure(&f, f.count, IST_E_INPUT, "a JPEG of 16 x 9 pixels");
    make_hostile(&f, 65500, 65500, 0, true);
    expect_failure(&f, f.count, IST_E_INPUT, "a frame's JPEG ends within a segment");
    make_hostile(&f, W, H, 600, false);
    expect_failure(&f, f.count, IST_E_LIMIT, "scans, the limit is 500");
}

Test(io_dicom, frames_without_number_are_refused) {
    dicom_file f;
    need_dicom();
    dicom_begin(&f, "1");
    dicom_describe(&f, 1, "MONOCHROME2", IST_MAX_FRAMES + 1, 1, 1, 8, 8, 0, 0);
    size_t room = f.count + IST_MAX_FRAMES + 64, pixels = IST_MAX_FRAMES + 2;
    uint8_t *file = calloc(room, 1);
    cr_assert_not_null(file);
    dicom_raw(&f, "\xE0\x7F\x10\x00OB\0\0", 8);
    dicom_number(&f, (uint32_t)pixels, 4);
    memcpy(file, f.bytes, f.count);
    ist_frames *frames = NULL;
    ist_error err = {0};
    cr_expect_eq(ist_frames_open_bytes(file, f.count + pixels, "t.dcm", 10000, &frames, &err), IST_E_LIMIT, "%s",
                 err.text);
    cr_expect_not_null(strstr(err.text, "t.dcm: 2097153 frames, the limit is 2097152"), "%s", err.text);
    cr_expect_null(frames);
    free(file);
}

/* From a file and from memory, forward and back. */
Test(io_dicom, frames_are_read_one_by_one) {
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "a.dcm");
    need_dicom();
    for (int way = 0; way < 4; way++) {
        dicom_file f;
        ist_frames *frames = NULL;
        ist_error err = {0};
        make_frames(&f, way & 1 ? "4.50" : NULL);
        scratch_write(path, f.bytes, f.count);
        ist_status status = way & 2 ? ist_frames_open(path, 1000, &frames, &err)
                                    : ist_frames_open_bytes(f.bytes, f.count, "t.dcm", 1000, &frames, &err);
        cr_assert_eq(status, IST_OK, "%s", err.text);
        cr_assert_eq(ist_frames_count(frames), FRAMES);
        cr_expect(ist_frames_have_windows(frames));
        for (int i = 0; i < 2 * FRAMES; i++) {
            int k = i < FRAMES ? i : 2 * FRAMES - 1 - i;
            ist_bitmap b;
            cr_assert_eq(ist_frames_read(frames, (size_t)k, &b, &err), IST_OK, "frame %d: %s", k, err.text);
            cr_assert(b.width == W && b.height == H);
            int got = ((uint8_t *)b.pixels)[W * H - 1];
            cr_expect(abs(got - (40 * k + 20)) <= 1, "frame %d: %d", k, got);
            ist_bitmap_free(&b);
        }
        ist_frames_close(&frames);
        expect_failure(&f, f.count, IST_E_INPUT, "has 4 frames");
    }
    scratch_remove(&s);
}

/* What LOW:HIGH of --window means: values behind slope and intercept, Hounsfield units of a CT. */
Test(io_dicom, values_are_behind_the_rescale) {
    static const int16_t stored[2] = {-1000, 1000};
    static const struct {
        const char *photometric;
        int want[2];
    } cases[] = {{"MONOCHROME2", {32768 - 100, 32768 + 300}}, {"MONOCHROME1", {32767 - 300, 32767 + 100}}};
    need_dicom();
    for (int i = 0; i < 2; i++) {
        dicom_file f;
        int window[2];
        dicom_begin(&f, "1");
        dicom_describe(&f, 1, cases[i].photometric, 1, 2, 1, 16, 16, 1, 0);
        dicom_text(&f, 0x00281052, "DS", "40");
        dicom_text(&f, 0x00281053, "DS", "0.5");
        dicom_pixels(&f, stored, sizeof stored, 16);
        ist_bitmap b = read_one(&f);
        ist_bitmap_window(&b, -10, 190, window); /* stored -100 to 300 */
        cr_expect(window[0] == cases[i].want[0] && window[1] == cases[i].want[1], "%s: %d to %d", cases[i].photometric,
                  window[0], window[1]);
        const int sample = ((uint16_t *)b.pixels)[1];
        cr_expect_eq(b.value_zero + b.value_step * sample, 540, "1000 is 540");
        ist_bitmap_free(&b);
    }
}

/* Deflated from behind its meta header on; larger than what is inflated at a time. Frames forward and back, from a file
 * and from memory. */
Test(io_dicom, deflated_files) {
    enum { SIDE = 300, COUNT = 3, PIXELS = SIDE * SIDE * COUNT };
    static uint16_t pixels[PIXELS];
    static uint8_t plain[2 * PIXELS + 4096], file[3 * PIXELS];
    dicom_file f;
    need_dicom();
    for (int i = 0; i < PIXELS; i++) pixels[i] = (uint16_t)(i * 2654435761u >> 16 & 0xFFF);
    dicom_begin(&f, "1.99");
    const size_t meta = f.count;
    dicom_describe(&f, 1, "MONOCHROME2", COUNT, SIDE, SIDE, 16, 12, 0, 0);
    dicom_element(&f, 0x7FE00010, "OW", NULL, UINT32_MAX);
    size_t head = f.count - meta;
    memcpy(plain, f.bytes + meta, head);
    memcpy(plain + head - 4, &(uint32_t){sizeof pixels}, 4);
    memcpy(plain + head, pixels, sizeof pixels);
    memcpy(file, f.bytes, meta);
    struct isal_zstream z;
    isal_deflate_stateless_init(&z);
    z.next_in = plain, z.avail_in = (uint32_t)(head + sizeof pixels);
    z.next_out = file + meta, z.avail_out = (uint32_t)(sizeof file - meta);
    cr_assert_eq(isal_deflate_stateless(&z), COMP_OK);
    const size_t count = meta + z.total_out;
    scratch s = scratch_make();
    const char *path = scratch_path(&s, "a.dcm");
    scratch_write(path, file, count);
    for (int way = 0; way < 2; way++) {
        ist_frames *frames = NULL;
        ist_error err = {0};
        ist_status status = way ? ist_frames_open(path, 1 << 20, &frames, &err)
                                : ist_frames_open_bytes(file, count, "t.dcm", 1 << 20, &frames, &err);
        cr_assert_eq(status, IST_OK, "%s", err.text);
        cr_assert_eq(ist_frames_count(frames), COUNT);
        for (int i = 0; i < 2 * COUNT; i++) {
            const int k = i < COUNT ? i : 2 * COUNT - 1 - i;
            ist_bitmap b;
            cr_assert_eq(ist_frames_read(frames, (size_t)k, &b, &err), IST_OK, "frame %d: %s", k, err.text);
            cr_assert(b.width == SIDE && b.format == IST_GRAY16);
            cr_assert_arr_eq(b.pixels, pixels + k * SIDE * SIDE, 2 * SIDE * SIDE, "frame %d", k);
            ist_bitmap_free(&b);
        }
        ist_frames_close(&frames);
    }
    ist_frames *frames = NULL;
    ist_error err = {0};
    cr_expect_eq(ist_frames_open_bytes(file, count - 9, "t.dcm", 1 << 20, &frames, &err), IST_E_INPUT);
    cr_expect_str_eq(err.text, "t.dcm: its deflated part is damaged or cut");
    scratch_remove(&s);
}

/* A few bytes that inflate to very many: named once they are more than the limit. */
Test(io_dicom, a_bomb) {
    enum { MOST = 1 << 20 };
    static uint8_t zeros[MOST + 1], file[1 << 14];
    struct isal_zstream z;
    ist_byte_source source;
    ist_error err = {0};
    memcpy(file, "head", 4);
    for (size_t more = 0; more < 2; more++) {
        isal_deflate_stateless_init(&z);
        z.next_in = zeros, z.avail_in = (uint32_t)(MOST + more), z.next_out = file + 4, z.avail_out = sizeof file - 4;
        cr_assert_eq(isal_deflate_stateless(&z), COMP_OK);
        const ist_byte_source bytes = ist_byte_source_of(file, 4 + z.total_out);
        ist_status status = ist_inflated_open(&bytes, 4, MOST, "t.dcm", &source, &err);
        cr_expect_eq(status, more ? IST_E_LIMIT : IST_OK, "%s", err.text);
        if (status) continue;
        char five[6] = "";
        cr_expect_eq(source.size, 4 + MOST);
        cr_expect_eq(ist_byte_source_read(&source, 2, five, 5), 5);
        cr_expect_arr_eq(five, "ad\0\0\0", 5);
        cr_expect_eq(ist_byte_source_read(&source, MOST, five, 5), 4);
        ist_byte_source_close(&source);
    }
    cr_expect_str_eq(err.text, "t.dcm: inflates to more than the limit of 1048576 bytes");
}

/* TEM within a JPEG's header, at which DCMTK would wait for ever. */
Test(io_dicom, a_marker_that_means_nothing) {
    dicom_file f;
    need_dicom();
    for (int damage = 0; damage < 2; damage++) {
        make_frames(&f, "4.50");
        size_t at = 0;
        while (memcmp(f.bytes + at, "\xFF\xD8\xFF\xE0", 4)) at++;
        if (damage) memcpy(f.bytes + at + 20, "\xFF\x01", 2); /* in place of a table's marker */
        ist_frames *frames = NULL;
        ist_error err = {0};
        ist_bitmap b;
        cr_assert_eq(ist_frames_open_bytes(f.bytes, f.count, "t.dcm", 1000, &frames, &err), IST_OK, "%s", err.text);
        cr_expect_eq(ist_frames_read(frames, 0, &b, &err), damage ? IST_E_INPUT : IST_OK);
        if (damage) cr_expect_str_eq(err.text, "t.dcm: damaged DICOM: a marker in a JPEG that has no place there");
        ist_bitmap_free(&b);
        cr_expect_eq(ist_frames_read(frames, 1, &b, &err), IST_OK, "%s", err.text);
        ist_bitmap_free(&b);
        ist_frames_close(&frames);
    }
}

/* Runs and bytes as they are, of gray of 16 bits: a segment of high bytes, one of low bytes. */
Test(io_dicom, runs_and_their_damage) {
    static const uint16_t want[4] = {0x0101, 0x0102, 0x0103, 0x0203};
    static const uint8_t runs[12] = {(uint8_t)-2, 1, 0, 2,              /* three times 1, one 2 */
                                     128,         2, 1, 2, 3, 0, 3, 0}; /* nothing, three as they are, one */
    dicom_file f;
    need_dicom();
    for (int damage = 0; damage < 4; damage++) {
        uint8_t fragment[64 + 12] = {2, 0, 0, 0, 64, 0, 0, 0, 68};
        memcpy(fragment + 64, runs, sizeof runs);
        if (damage == 1) fragment[0] = 3;     /* segments that a sample does not have */
        if (damage == 2) fragment[8] = 200;   /* one that begins behind the end */
        if (damage == 3) fragment[69] = 0x7E; /* more bytes than there are */
        dicom_begin(&f, "5");
        dicom_describe(&f, 1, "MONOCHROME2", 1, 2, 2, 16, 16, 0, 0);
        dicom_element(&f, 0x7FE00010, "OB", NULL, UINT32_MAX);
        dicom_raw(&f, "\xFE\xFF\x00\xE0\0\0\0\0\xFE\xFF\x00\xE0\x4C\0\0\0", 16);
        dicom_raw(&f, fragment, sizeof fragment);
        dicom_raw(&f, "\xFE\xFF\xDD\xE0\0\0\0\0", 8);
        if (damage) {
            expect_failure(&f, f.count, IST_E_INPUT, "runs that are cut or too short");
            continue;
        }
        ist_bitmap b = read_one(&f);
        cr_expect_eq(b.format, IST_GRAY16);
        cr_expect_arr_eq(b.pixels, want, sizeof want);
        ist_bitmap_free(&b);
    }
}

Test(io_dicom, what_is_not_read_is_named) {
    dicom_file f;
    need_dicom();
    dicom_begin(&f, "1");
    dicom_text(&f, 0x00100010, "PN", "Nobody");
    expect_failure(&f, f.count, IST_E_INPUT, "without pictures");
    dicom_begin(&f, "1");
    dicom_describe(&f, 1, "MONOCHROME2", 1, 1, 1, 32, 32, 0, 0);
    dicom_pixels(&f, "abcd", 4, 16);
    expect_failure(&f, f.count, IST_E_INPUT, "1 samples of 32 bits in photometric interpretation MONOCHROME2");
    dicom_begin(&f, "1");
    dicom_describe(&f, 1, "MONOCHROME2", 1, 200, 100, 8, 8, 0, 0);
    dicom_pixels(&f, "abcd", 4, 8);
    expect_failure(&f, f.count, IST_E_LIMIT, "200 x 100 pixels");
    dicom_begin(&f, "1"); /* frames cost nothing to promise */
    dicom_describe(&f, 1, "MONOCHROME2", 2000000000, 2, 2, 8, 8, 0, 0);
    dicom_pixels(&f, "abcd", 4, 8);
    expect_failure(&f, f.count, IST_E_INPUT, "truncated: 4 bytes for 2000000000 frames");
    dicom_begin(&f, "1");
    dicom_describe(&f, 1, "PALETTE COLOR", 1, 2, 2, 8, 8, 0, 0);
    dicom_pixels(&f, "abcd", 4, 8);
    expect_failure(&f, f.count, IST_E_INPUT, "palette is missing");
    dicom_begin(&f, "1.99"); /* it says that it is deflated */
    dicom_describe(&f, 1, "MONOCHROME2", 1, 2, 2, 8, 8, 0, 0);
    dicom_pixels(&f, "abcd", 4, 8);
    expect_failure(&f, f.count, IST_E_INPUT, "t.dcm: its deflated part is damaged or cut");
    const bool lacks = strstr(ist_image_format_of(f.bytes, f.count)->version, "no JPEG 2000") != NULL;
    static const char *const codings[2] = {"4.90", "4.92"};
    const char *const want[2] = {
        lacks ? "t.dcm: is coded as JPEG 2000 (Lossless only) (1.2.840.10008.1.2.4.90), which this isthmus was built "
                "without (Debian: libopenjp2-7-dev)"
              : "t.dcm: damaged JPEG 2000: no codestream begins there", /* JPEGs do */
        "t.dcm: is coded as JPEG 2000 Part 2 Multicomponent Image Compression (Lossless only) "
        "(1.2.840.10008.1.2.4.92), "
        "which is not read"};
    for (int i = 0; i < 2; i++) {
        ist_frames *frames = NULL;
        ist_error err = {0};
        ist_bitmap b;
        make_frames(&f, codings[i]);
        cr_assert_eq(ist_frames_open_bytes(f.bytes, f.count, "t.dcm", 1000, &frames, &err), IST_OK, "%s", err.text);
        cr_expect_eq(ist_frames_read(frames, 0, &b, &err), IST_E_INPUT);
        cr_expect_str_eq(err.text, want[i]);
        ist_frames_close(&frames);
    }
}

/* DCMTK goes into each sequence by calling itself. */
Test(io_dicom, sequences_in_sequences_end_before_the_stack_does) {
    enum { LEVELS = 100000, LEVEL = 20 };
    static const uint8_t level[LEVEL] = {0x40, 0,    0,    1,    'S', 'Q',  0,    0,    0xFF, 0xFF,
                                         0xFF, 0xFF, 0xFE, 0xFF, 0,   0xE0, 0xFF, 0xFF, 0xFF, 0xFF};
    dicom_file f;
    need_dicom();
    dicom_begin(&f, "1");
    uint8_t *bytes = malloc(f.count + LEVELS * LEVEL);
    memcpy(bytes, f.bytes, f.count);
    for (size_t i = 0; i < LEVELS; i++) memcpy(bytes + f.count + i * LEVEL, level, LEVEL);
    ist_frames *frames = NULL;
    ist_error err = {0};
    cr_expect_eq(ist_frames_open_bytes(bytes, f.count + LEVELS * LEVEL, "t.dcm", 1000, &frames, &err), IST_E_INPUT);
    cr_expect_not_null(strstr(err.text, "t.dcm: damaged DICOM"), "%s", err.text);
    free(bytes);
}
