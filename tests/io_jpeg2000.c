/* JPEG 2000 in DICOM, from codestreams written here through OpenJPEG: each pixel is what the same file without coding
 * has; what looks too large, is cut or is another picture never reaches the decoder. */
#include "io/frames.h"
#include "io/image_format.h"
#include "io/jpeg2000_survey.h"

#include "support/dicom_file.h"

#include <openjpeg.h>

static void need_dicom(void) {
    dicom_file f;
    dicom_begin(&f, "1");
    if (!ist_image_format_is_read(ist_image_format_of(f.bytes, f.count))) cr_skip_test("built without DCMTK");
}

/* ---- writing ---- */

enum { MOST_BYTES = 1 << 15, MOST_SAMPLES = 1 << 14 };

typedef struct codestream {
    uint8_t bytes[MOST_BYTES];
    size_t count, at;
} codestream;

typedef struct coding {
    int width, height, samples, bits, with_sign;
    opj_cparameters_t how;
} coding;

static coding coding_of(int width, int height, int samples, int bits, int with_sign) {
    coding c = {width, height, samples, bits, with_sign, {0}};
    opj_set_default_encoder_parameters(&c.how);
    c.how.tcp_numlayers = 1;
    c.how.cp_disto_alloc = 1;
    c.how.numresolution = 3;
    return c;
}

static OPJ_SIZE_T on_write(void *from, OPJ_SIZE_T count, void *user) {
    codestream *to = user;
    cr_assert(to->at + count <= MOST_BYTES);
    memcpy(to->bytes + to->at, from, count);
    to->at += count;
    if (to->at > to->count) to->count = to->at;
    return count;
}

static OPJ_OFF_T on_skip(OPJ_OFF_T count, void *user) {
    ((codestream *)user)->at += (size_t)count;
    return count;
}

static OPJ_BOOL on_seek(OPJ_OFF_T at, void *user) {
    ((codestream *)user)->at = (size_t)at;
    return OPJ_TRUE;
}

static void on_error(const char *message, void *user) {
    (void)user;
    cr_log_error("OpenJPEG: %s", message);
}

/* Samples pixel by pixel. */
static void encode(coding *c, const int *samples, codestream *to) {
    opj_image_cmptparm_t components[3];
    for (int i = 0; i < c->samples; i++)
        components[i] = (opj_image_cmptparm_t){.dx = 1,
                                               .dy = 1,
                                               .w = (OPJ_UINT32)c->width,
                                               .h = (OPJ_UINT32)c->height,
                                               .prec = (OPJ_UINT32)c->bits,
                                               .sgnd = (OPJ_UINT32)c->with_sign};
    opj_image_t *image =
        opj_image_create((OPJ_UINT32)c->samples, components, c->samples == 3 ? OPJ_CLRSPC_SRGB : OPJ_CLRSPC_GRAY);
    cr_assert_not_null(image);
    image->x0 = (OPJ_UINT32)c->how.image_offset_x0, image->y0 = (OPJ_UINT32)c->how.image_offset_y0;
    image->x1 = image->x0 + (OPJ_UINT32)c->width, image->y1 = image->y0 + (OPJ_UINT32)c->height;
    for (int i = 0; i < c->width * c->height; i++)
        for (int k = 0; k < c->samples; k++) image->comps[k].data[i] = samples[i * c->samples + k];
    *to = (codestream){0};
    opj_codec_t *codec = opj_create_compress(OPJ_CODEC_J2K);
    opj_stream_t *stream = opj_stream_create(1024, OPJ_FALSE);
    opj_stream_set_write_function(stream, on_write);
    opj_stream_set_skip_function(stream, on_skip);
    opj_stream_set_seek_function(stream, on_seek);
    opj_stream_set_user_data(stream, to, NULL);
    opj_set_error_handler(codec, on_error, NULL);
    cr_assert(opj_setup_encoder(codec, &c->how, image) && opj_start_compress(codec, image, stream) &&
              opj_encode(codec, stream) && opj_end_compress(codec, stream));
    opj_stream_destroy(stream);
    opj_destroy_codec(codec);
    opj_image_destroy(image);
}

static void begin_fragments(dicom_file *f) {
    dicom_element(f, 0x7FE00010, "OB", NULL, UINT32_MAX);
    dicom_raw(f, "\xFE\xFF\x00\xE0\0\0\0\0", 8); /* no table of offsets */
}

static void put_fragment(dicom_file *f, const uint8_t *bytes, size_t count) {
    dicom_raw(f, "\xFE\xFF\x00\xE0", 4);
    dicom_number(f, (uint32_t)(count + count % 2), 4);
    dicom_raw(f, bytes, count);
    if (count % 2) dicom_raw(f, "", 1);
}

static void end_fragments(dicom_file *f) {
    dicom_raw(f, "\xFE\xFF\xDD\xE0\0\0\0\0", 8);
}

/* A file of one frame. */
static void wrap(dicom_file *f, const char *photometric, const coding *c, int allocated, int stored, int with_sign,
                 const uint8_t *bytes, size_t count) {
    dicom_begin(f, c->how.irreversible ? "4.91" : "4.90");
    dicom_describe(f, c->samples, photometric, 1, c->width, c->height, allocated, stored, with_sign, 0);
    begin_fragments(f);
    put_fragment(f, bytes, count);
    end_fragments(f);
}

/* The same without coding. */
static void wrap_plain(dicom_file *f, const char *photometric, const coding *c, int allocated, int stored,
                       int with_sign, const int *samples) {
    static uint8_t bytes[2 * MOST_SAMPLES];
    const int count = c->width * c->height * c->samples, width = allocated / 8;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < width; k++) bytes[i * width + k] = (uint8_t)((unsigned)samples[i] >> 8 * k);
    dicom_begin(f, "1");
    dicom_describe(f, c->samples, photometric, 1, c->width, c->height, allocated, stored, with_sign, 0);
    dicom_pixels(f, bytes, (uint32_t)(count * width), allocated);
}

/* A picture with edges and noise; the least and the greatest value are there. */
static void paint(const coding *c, int *samples) {
    const int least = c->with_sign ? -(1 << (c->bits - 1)) : 0, most = least + (1 << c->bits) - 1;
    for (int i = 0; i < c->width * c->height * c->samples; i++) {
        const int x = i / c->samples % c->width, y = i / c->samples / c->width;
        const int noise = (int)((unsigned)i * 2654435761u >> 20) % (1 + (1 << c->bits) / 16);
        samples[i] = least + (x + 2 * y + 40 * (i % c->samples)) * (1 << c->bits) / 256 % (1 << c->bits);
        samples[i] = x % 16 == 0 ? most : y % 16 == 0 ? least : samples[i] + noise > most ? most : samples[i] + noise;
    }
}

/* ---- reading ---- */

static ist_bitmap read_one(const dicom_file *f) {
    ist_bitmap b;
    ist_error err = {0};
    cr_assert_eq(ist_bitmap_decode(f->bytes, f->count, "t.dcm", 1 << 20, &b, &err), IST_OK, "%s", err.text);
    return b;
}

static void expect_failure(const dicom_file *f, ist_status status, const char *part) {
    ist_bitmap b;
    ist_error err = {0};
    cr_expect_eq(ist_bitmap_decode(f->bytes, f->count, "t.dcm", 1 << 20, &b, &err), status, "%s", err.text);
    cr_expect_not_null(strstr(err.text, part), "'%s' lacks '%s'", err.text, part);
    cr_expect_null(b.pixels);
}

static void expect_same(const char *what, const dicom_file *coded, const dicom_file *plain, int tolerance) {
    ist_bitmap a = read_one(coded), b = read_one(plain);
    cr_assert(a.width == b.width && a.height == b.height && a.format == b.format, "%s", what);
    cr_expect(a.window_low == b.window_low && a.window_high == b.window_high && a.value_zero == b.value_zero &&
                  a.value_step == b.value_step,
              "%s", what);
    int worst = 0;
    for (size_t i = 0; i < a.stride * (size_t)a.height / (size_t)ist_format_bytes(a.format); i++) {
        const bool wide = ist_format_bytes(a.format) == 2;
        int d = wide ? ((uint16_t *)a.pixels)[i] - ((uint16_t *)b.pixels)[i]
                     : ((uint8_t *)a.pixels)[i] - ((uint8_t *)b.pixels)[i];
        if (abs(d) > worst) worst = abs(d);
    }
    cr_expect_leq(worst, tolerance, "%s: differs by %d", what, worst);
    ist_bitmap_free(&a), ist_bitmap_free(&b);
}

static void expect_lossless(const char *what, coding *c, const char *photometric, int allocated, int stored,
                            int with_sign) {
    static int samples[MOST_SAMPLES];
    static codestream j;
    dicom_file coded, plain;
    paint(c, samples);
    encode(c, samples, &j);
    wrap(&coded, photometric, c, allocated, stored, with_sign, j.bytes, j.count);
    wrap_plain(&plain, photometric, c, allocated, stored, with_sign, samples);
    expect_same(what, &coded, &plain, 0);
}

Test(io_jpeg2000, gray_is_what_it_was) {
    static const struct {
        int bits, with_sign, allocated, stored, file_sign;
    } cases[] = {
        {8, 0, 8, 8, 0},    {8, 1, 8, 8, 1},    {5, 0, 8, 8, 0},    {1, 0, 8, 1, 0},
        {12, 0, 16, 12, 0}, {12, 1, 16, 12, 1}, {16, 0, 16, 16, 0}, {16, 1, 16, 16, 1},
        {12, 1, 16, 16, 1}, {16, 0, 16, 12, 0}, {8, 0, 16, 16, 0},
    };
    need_dicom();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int turned = 0; turned < 2; turned++) {
            char what[60];
            coding c = coding_of(61, 47, 1, cases[i].bits, cases[i].with_sign);
            snprintf(what, sizeof what, "%d bits of %d, sign %d", c.bits, cases[i].stored, c.with_sign);
            expect_lossless(what, &c, turned ? "MONOCHROME1" : "MONOCHROME2", cases[i].allocated, cases[i].stored,
                            cases[i].file_sign);
        }
}

/* Encoders forget the sign, or set it where there is none: the bits are those of the file. */
Test(io_jpeg2000, the_file_says_whether_there_is_a_sign) {
    static int samples[4] = {0, 1, -1, -2048}, as_unsigned[4] = {0, 1, 4095, 2048};
    static codestream j;
    dicom_file coded, plain;
    need_dicom();
    coding without = coding_of(4, 1, 1, 12, 0), with = coding_of(4, 1, 1, 12, 1);
    without.how.numresolution = with.how.numresolution = 1;
    encode(&without, as_unsigned, &j);
    wrap(&coded, "MONOCHROME2", &without, 16, 16, 1, j.bytes, j.count);
    wrap_plain(&plain, "MONOCHROME2", &with, 16, 16, 1, samples);
    expect_same("a sign that was forgotten", &coded, &plain, 0);
    encode(&with, samples, &j);
    wrap(&coded, "MONOCHROME2", &with, 16, 16, 0, j.bytes, j.count);
    wrap_plain(&plain, "MONOCHROME2", &without, 16, 16, 0, as_unsigned);
    expect_same("a sign that is none", &coded, &plain, 0);
}

Test(io_jpeg2000, colours) {
    static const struct {
        const char *coded, *plain;
        int transform, irreversible, tolerance;
    } cases[] = {{"RGB", "RGB", 0, 0, 0},           {"RGB", "RGB", 1, 0, 0},     {"YBR_RCT", "RGB", 1, 0, 0},
                 {"YBR_FULL", "YBR_FULL", 0, 0, 0}, {"YBR_ICT", "RGB", 1, 1, 4}, {"RGB", "RGB", 0, 1, 2}};
    static int samples[MOST_SAMPLES];
    static codestream j;
    need_dicom();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dicom_file coded, plain;
        coding c = coding_of(61, 47, 3, 8, 0);
        c.how.tcp_mct = (char)cases[i].transform, c.how.irreversible = cases[i].irreversible;
        paint(&c, samples);
        encode(&c, samples, &j);
        wrap(&coded, cases[i].coded, &c, 8, 8, 0, j.bytes, j.count);
        wrap_plain(&plain, cases[i].plain, &c, 8, 8, 0, samples);
        expect_same(cases[i].coded, &coded, &plain, cases[i].tolerance);
    }
    dicom_file f;
    coding c = coding_of(61, 47, 1, 8, 0);
    paint(&c, samples);
    encode(&c, samples, &j);
    dicom_begin(&f, "4.90");
    dicom_describe(&f, 3, "RGB", 1, 61, 47, 8, 8, 0, 0);
    begin_fragments(&f);
    put_fragment(&f, j.bytes, j.count);
    end_fragments(&f);
    expect_failure(&f, IST_E_INPUT,
                   "t.dcm: damaged JPEG 2000: a codestream of 61 x 47 pixels in 1 for frames of 61 x "
                   "47 in 3");
}

/* Whatever way the samples lie in it. */
Test(io_jpeg2000, orders_tiles_and_styles) {
    need_dicom();
    for (int i = 0; i < 14; i++) {
        char what[20];
        coding c = coding_of(70, 53, i % 2 ? 3 : 1, 8, 0);
        c.how.tcp_mct = i % 4 == 1;
        if (i < 5) c.how.prog_order = (OPJ_PROG_ORDER)i;
        if (i == 5 || i == 6) c.how.tile_size_on = OPJ_TRUE, c.how.cp_tdx = 32, c.how.cp_tdy = 24;
        if (i == 6) c.how.tp_on = 1, c.how.tp_flag = 'R';
        if (i == 7) c.how.image_offset_x0 = 5, c.how.image_offset_y0 = 3;
        if (i == 8) c.how.tcp_numlayers = 3, c.how.tcp_rates[0] = 20, c.how.tcp_rates[1] = 8, c.how.tcp_rates[2] = 1;
        if (i == 9) c.how.numresolution = 6, c.how.cblockw_init = 16, c.how.cblockh_init = 8;
        if (i == 10) c.how.mode = 1 | 4; /* bypass, with an end of each pass */
        if (i == 11) c.how.mode = 2 | 8 | 32;
        if (i == 12) c.how.csty = 1 | 2 | 4, c.how.res_spec = 1, c.how.prcw_init[0] = c.how.prch_init[0] = 32;
        if (i == 13) c.how.numresolution = 1;
        snprintf(what, sizeof what, "case %d", i);
        expect_lossless(what, &c, i % 2 ? "RGB" : "MONOCHROME2", 8, 8, 0);
    }
}

enum { FRAMES = 5 };

/* Frames each of another gray; in one fragment each, or in three. */
Test(io_jpeg2000, frames_forward_and_back) {
    static int samples[32 * 20];
    static codestream j;
    need_dicom();
    for (int parts = 1; parts <= 3; parts += 2) {
        dicom_file f;
        ist_frames *frames = NULL;
        ist_error err = {0};
        dicom_begin(&f, "4.90");
        dicom_describe(&f, 1, "MONOCHROME2", FRAMES, 32, 20, 16, 12, 0, 0);
        begin_fragments(&f);
        for (int k = 0; k < FRAMES; k++) {
            coding c = coding_of(32, 20, 1, 12, 0);
            for (int i = 0; i < 32 * 20; i++) samples[i] = 700 * k + i % 32;
            encode(&c, samples, &j);
            const size_t part = (j.count / (size_t)parts) & ~(size_t)1;
            for (int p = 0; p < parts; p++)
                put_fragment(&f, j.bytes + (size_t)p * part, p + 1 < parts ? part : j.count - (size_t)p * part);
        }
        end_fragments(&f);
        cr_assert_eq(ist_frames_open_bytes(f.bytes, f.count, "t.dcm", 1000, &frames, &err), IST_OK, "%s", err.text);
        cr_assert_eq(ist_frames_count(frames), FRAMES);
        cr_expect_geq(ist_frames_size(frames).passing, (size_t)(8 * 32 * 20));
        for (int i = 0; i < 3 * FRAMES; i++) {
            const int k = i < FRAMES ? i : i < 2 * FRAMES ? 2 * FRAMES - 1 - i : i * 3 % FRAMES;
            ist_bitmap b;
            cr_assert_eq(ist_frames_read(frames, (size_t)k, &b, &err), IST_OK, "frame %d: %s", k, err.text);
            cr_expect_eq(((uint16_t *)b.pixels)[33], 700 * k + 1, "frame %d of %d fragments", k, parts);
            ist_bitmap_free(&b);
        }
        ist_frames_close(&frames);
    }
}

/* ---- hostile ---- */

/* A codestream of these bytes in a file of 61 x 47 gray pixels. */
static void expect_refused(const uint8_t *bytes, size_t count, ist_status status, const char *part) {
    dicom_file f;
    const coding c = coding_of(61, 47, 1, 8, 0);
    wrap(&f, "MONOCHROME2", &c, 8, 8, 0, bytes, count);
    expect_failure(&f, status, part);
}

static size_t find(const codestream *j, unsigned marker) {
    size_t at = 2;
    while (j->bytes[at] != 0xFF || j->bytes[at + 1] != marker) {
        cr_assert(at + 4 < j->count);
        at += 2 + ((size_t)j->bytes[at + 2] << 8 | j->bytes[at + 3]);
    }
    return at;
}

static void put32(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (24 - 8 * i));
}

static codestream a_codestream(void) {
    static int samples[61 * 47];
    codestream j;
    coding c = coding_of(61, 47, 1, 8, 0);
    paint(&c, samples);
    encode(&c, samples, &j);
    return j;
}

/* Named, by the file or by the codestream alone. */
Test(io_jpeg2000, high_throughput_is_not_read) {
    need_dicom();
    dicom_file f;
    const codestream j = a_codestream();
    dicom_begin(&f, "4.201");
    dicom_describe(&f, 1, "MONOCHROME2", 1, 61, 47, 8, 8, 0, 0);
    begin_fragments(&f);
    put_fragment(&f, j.bytes, j.count);
    end_fragments(&f);
    expect_failure(&f, IST_E_INPUT, "which is not read");
    expect_failure(&f, IST_E_INPUT, "1.2.840.10008.1.2.4.201");
    codestream k = j;
    k.bytes[find(&j, 0x51) + 4] |= 0x40;
    expect_refused(k.bytes, k.count, IST_E_INPUT, "t.dcm: High-Throughput JPEG 2000 is not read");
    k = j, k.bytes[find(&j, 0x52) + 12] |= 0x40;
    expect_refused(k.bytes, k.count, IST_E_INPUT, "t.dcm: High-Throughput JPEG 2000 is not read");
    k = j, k.bytes[find(&j, 0x5C) + 1] = 0x50; /* CAP */
    expect_refused(k.bytes, k.count, IST_E_INPUT, "t.dcm: High-Throughput JPEG 2000 is not read");
}

Test(io_jpeg2000, what_is_cut_is_no_picture) {
    need_dicom();
    codestream j = a_codestream();
    for (size_t n = 0; n < j.count; n += n < 200 || n + 20 > j.count ? 1 : 37)
        expect_refused(j.bytes, n, IST_E_INPUT, "t.dcm: damaged");
    /* pixels that are not there, with an end where there is none */
    const size_t sot = find(&j, 0x90), cut = j.count / 2;
    codestream k = j;
    memcpy(k.bytes + cut, "\xFF\xD9", 2);
    expect_refused(k.bytes, cut + 2, IST_E_INPUT, "damaged JPEG 2000: it is cut");
    put32(k.bytes + sot + 6, (uint32_t)(cut - sot)); /* and a length that says so */
    expect_refused(k.bytes, cut + 2, IST_E_INPUT, "t.dcm: damaged JPEG 2000: ");
    put32(k.bytes + sot + 6, 0); /* or none */
    expect_refused(k.bytes, cut + 2, IST_E_INPUT, "t.dcm: damaged JPEG 2000: ");
}

/* Within a JP2 file, which DICOM does not want and some write. */
Test(io_jpeg2000, boxes_around_it) {
    static const uint8_t boxes[] = "\0\0\0\x0CjP  \r\n\x87\n\0\0\0\x14"
                                   "ftypjp2 \0\0\0\0jp2 \0\0\0\0jp2c";
    static int samples[61 * 47];
    dicom_file coded, plain;
    codestream k, j = a_codestream();
    need_dicom();
    const size_t before = sizeof boxes - 1;
    coding c = coding_of(61, 47, 1, 8, 0);
    paint(&c, samples);
    memcpy(k.bytes, boxes, before);
    memcpy(k.bytes + before, j.bytes, j.count);
    wrap(&coded, "MONOCHROME2", &c, 8, 8, 0, k.bytes, before + j.count);
    wrap_plain(&plain, "MONOCHROME2", &c, 8, 8, 0, samples);
    expect_same("boxes", &coded, &plain, 0);
    for (size_t n = 12; n < before; n++) expect_refused(k.bytes, n, IST_E_INPUT, "a JP2 file without a codestream");
    expect_refused(k.bytes, before, IST_E_INPUT, "no codestream begins there");
    k.bytes[15] = 7; /* a box that is less than its head */
    expect_refused(k.bytes, before + j.count, IST_E_INPUT, "a JP2 file without a codestream");
}

Test(io_jpeg2000, other_pictures_than_the_file_s) {
    need_dicom();
    codestream k, j = a_codestream();
    const size_t siz = find(&j, 0x51);
    k = j, put32(k.bytes + siz + 6, 0xFFFFFFFF); /* a huge one */
    expect_refused(k.bytes, k.count, IST_E_INPUT, "a codestream of 4294967295 x 47 pixels in 1 for frames of 61 x 47");
    k = j, put32(k.bytes + siz + 14, 1); /* offset */
    expect_refused(k.bytes, k.count, IST_E_INPUT, "a codestream of 60 x 47 pixels");
    k = j, put32(k.bytes + siz + 14, 100);
    expect_refused(k.bytes, k.count, IST_E_INPUT, "a codestream of -39 x 47 pixels");
    k = j, k.bytes[siz + 40] = 37; /* of 38 bits */
    expect_refused(k.bytes, k.count, IST_E_INPUT, "damaged JPEG 2000: samples of 38 bits for those of 8");
    k = j, k.bytes[siz + 41] = 2;
    expect_refused(k.bytes, k.count, IST_E_INPUT, "JPEG 2000 of components with fewer pixels is not read");
    k = j, k.bytes[siz + 39] = 2;
    expect_refused(k.bytes, k.count, IST_E_INPUT, "its sizes are cut");
    k = j, put32(k.bytes + siz + 22, 0); /* tiles without a width */
    expect_refused(k.bytes, k.count, IST_E_INPUT, "its tiles do not lie on the picture");
    k = j, put32(k.bytes + siz + 30, 1); /* tiles that begin within it */
    expect_refused(k.bytes, k.count, IST_E_INPUT, "its tiles do not lie on the picture");
    k = j, k.bytes[siz + 4] |= 0x80;
    expect_refused(k.bytes, k.count, IST_E_INPUT, "t.dcm: JPEG 2000 with extensions (part 2) is not read");
    k = j, k.bytes[find(&j, 0x5C) + 1] = 0x74; /* MCT, of part 2 */
    expect_refused(k.bytes, k.count, IST_E_INPUT, "a marker that has no place there");
    k = j, k.bytes[find(&j, 0x90) + 5] = 1; /* the second of one tile */
    expect_refused(k.bytes, k.count, IST_E_INPUT, "a tile that there is not");
    k = j, k.bytes[find(&j, 0x5C) + 1] = 0x64; /* without quantisation */
    expect_refused(k.bytes, k.count, IST_E_INPUT, "it has no coding style");
}

/* A few bytes that would cost gigabytes or hours. */
Test(io_jpeg2000, what_would_take_too_much) {
    need_dicom();
    codestream k, j = a_codestream();
    const size_t siz = find(&j, 0x51), cod = find(&j, 0x52);
    k = j, put32(k.bytes + siz + 22, 1), put32(k.bytes + siz + 26, 1); /* a tile for each pixel */
    expect_refused(k.bytes, k.count, IST_E_LIMIT, "t.dcm: a JPEG 2000 of 2867 tiles for 61 x 47 pixels");
    k = j, k.bytes[cod + 6] = k.bytes[cod + 7] = 0xFF; /* layers */
    expect_refused(k.bytes, k.count, IST_E_INPUT, "packets in each of 65535 layers");
    /* a precinct for each pixel, of every resolution */
    const size_t levels = 2;
    cr_assert_eq(j.bytes[cod + 9], levels);
    k = j, k.bytes[cod + 3] = (uint8_t)(12 + levels + 1), k.bytes[cod + 4] |= 1, k.bytes[cod + 7] = 10;
    memmove(k.bytes + cod + 14 + levels + 1, j.bytes + cod + 14, j.count - cod - 14), k.count += levels + 1;
    memcpy(k.bytes + cod + 14, "\x00\x11\x11", levels + 1);
    expect_refused(k.bytes, k.count, IST_E_INPUT, "packets in each of 10 layers");
    memcpy(k.bytes + cod + 14, "\x00\x01\x11", levels + 1); /* a resolution's, which its bands halve */
    expect_refused(k.bytes, k.count, IST_E_INPUT, "a coding style that there is not");
    k = j, k.bytes[cod + 9] = 33; /* levels */
    expect_refused(k.bytes, k.count, IST_E_INPUT, "a coding style that there is not");
    k = j, k.bytes[cod + 10] = 9; /* code blocks of 2048 */
    expect_refused(k.bytes, k.count, IST_E_INPUT, "a coding style that there is not");
}

/* What the survey counts is what there is, of pictures that are too large to be made here. */
Test(io_jpeg2000, structures_are_counted) {
    static const struct {
        unsigned side, tile, layers, block, style;
        bool precincts;
        ist_status want;
        const char *text;
    } cases[] = {
        {4096, 4096, 1, 4, 0, false, IST_OK, ""},  /* 64 x 64: what all write */
        {4096, 4096, 20, 4, 0, false, IST_OK, ""}, /* of twenty qualities */
        {4096, 512, 1, 4, 0, true, IST_OK, ""},    /* tiles, precincts of 256 */
        {4096, 4096, 1, 4, 4, false, IST_OK, ""},  /* each pass ends */
        {4096, 4096, 1, 0, 0, false, IST_E_LIMIT,
         "t: a JPEG 2000 of 1 tile with 1048576 code blocks and 1 layers for 4096 x 4096 pixels takes more memory"},
        {4096, 4096, 100, 4, 4, false, IST_E_LIMIT, "t: a JPEG 2000 of 1 tile with 4096 code blocks and 100 layers"},
        {4096, 16, 1, 4, 0, false, IST_E_LIMIT, "t: a JPEG 2000 of 65536 tiles for 4096 x 4096 pixels"},
        {4096, 32, 1, 4, 0, false, IST_E_LIMIT, "t: a JPEG 2000 of 16384 tiles for 4096 x 4096 pixels"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const unsigned side = cases[i].side, across = side / cases[i].tile, tiles = across * across;
        const ist_jpeg2000_frame frame = {side, side, 1, 16};
        ist_jpeg2000_survey s;
        ist_error err = {0};
        const size_t room = 100 + (size_t)tiles * 14 + 4096;
        uint8_t *bytes = calloc(room, 1), *p = bytes;
        cr_assert_not_null(bytes);
        memcpy(p, "\xFF\x4F\xFF\x51\0\x29", 6);
        put32(p + 8, side), put32(p + 12, side), put32(p + 24, cases[i].tile), put32(p + 28, cases[i].tile);
        p[41] = 1, p[42] = 15, p[43] = p[44] = 1;
        p += 45;
        memcpy(p, "\xFF\x52\0\x0C", 4);
        p[3] = (uint8_t)(12 + cases[i].precincts), p[4] = cases[i].precincts, p[7] = (uint8_t)cases[i].layers;
        p[10] = p[11] = (uint8_t)cases[i].block, p[12] = (uint8_t)cases[i].style;
        if (cases[i].precincts) p[14] = 0x88;
        p += 2 + p[3];
        memcpy(p, "\xFF\x5C\0\x04\x40\x80", 6);
        p += 6;
        for (unsigned t = 0; t < tiles; t++, p += 14) {
            const bool last = t + 1 == tiles;
            memcpy(p, "\xFF\x90\0\x0A", 4);
            p[4] = (uint8_t)(t >> 8), p[5] = (uint8_t)t, p[11] = 1;
            put32(p + 6, last ? 14 + 4096 - 2 : 14);
            memcpy(p + 12, "\xFF\x93", 2);
        }
        p += 4096 - 2;
        memcpy(p, "\xFF\xD9", 2);
        cr_expect_eq(ist_jpeg2000_survey_of(bytes, (size_t)(p + 2 - bytes), "t", &frame, &s, &err), cases[i].want,
                     "case %zu: %s", i, err.text);
        cr_expect(strstr(err.text, cases[i].text) == err.text, "case %zu: %s", i, err.text);
        if (!cases[i].want) {
            cr_expect(s.begin == 0 && s.end == (size_t)(p + 2 - bytes));
            cr_expect_leq(s.structures, ist_jpeg2000_most_structures(frame));
            cr_expect_geq(s.structures, (size_t)(cases[i].tile / 64) * (cases[i].tile / 64) * 400);
        }
        free(bytes);
    }
}
