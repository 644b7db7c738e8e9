/* JPEG 2000 through OpenJPEG, in its strict mode and in this thread: see jpeg2000.h. */
#include "io/jpeg2000.h"

#include <openjpeg.h>
#include <stdio.h>
#include <string.h>

enum { STREAM_BUFFER = 1 << 16 };

typedef struct memory {
    const unsigned char *bytes;
    size_t count, at;
} memory;

typedef struct complaint {
    char text[120]; /* the first error */
} complaint;

/* ---- OpenJPEG's view of the codestream ---- */

static OPJ_SIZE_T on_read(void *to, OPJ_SIZE_T count, void *user) {
    memory *m = user;
    const size_t left = m->count - m->at, n = count < left ? count : left;
    if (!n) return (OPJ_SIZE_T)-1; /* the end */
    memcpy(to, m->bytes + m->at, n);
    m->at += n;
    return n;
}

static OPJ_OFF_T on_skip(OPJ_OFF_T count, void *user) {
    memory *m = user;
    if (count < 0 || (uint64_t)count > m->count - m->at) return -1;
    m->at += (size_t)count;
    return count;
}

static OPJ_BOOL on_seek(OPJ_OFF_T to, void *user) {
    memory *m = user;
    if (to < 0 || (uint64_t)to > m->count) return OPJ_FALSE;
    m->at = (size_t)to;
    return OPJ_TRUE;
}

static void on_error(const char *message, void *user) {
    complaint *c = user;
    if (c->text[0]) return;
    snprintf(c->text, sizeof c->text, "%s", message);
    c->text[strcspn(c->text, "\n")] = 0;
    if (!strcmp(c->text, "Failed to decode.")) c->text[0] = 0;
}

static void on_message(const char *message, void *user) {
    (void)message, (void)user;
}

/* ---- decoding ---- */

/* Whether what was decoded is what the survey found: it is OpenJPEG's own reading of the same bytes. */
static bool is_as_asked(const opj_image_t *image, const ist_jpeg2000_frame *frame) {
    if (image->numcomps != frame->samples) return false;
    for (OPJ_UINT32 c = 0; c < image->numcomps; c++) {
        const opj_image_comp_t *p = &image->comps[c];
        if (!p->data || p->w != frame->width || p->h != frame->height || p->prec > frame->bits) return false;
    }
    return true;
}

static void put_samples(const opj_image_t *image, const ist_jpeg2000_frame *frame, bool with_sign, void *to) {
    const size_t pixels = frame->width * frame->height;
    for (OPJ_UINT32 c = 0; c < image->numcomps; c++) {
        const OPJ_INT32 *from = image->comps[c].data;
        const uint32_t mask = (1u << image->comps[c].prec) - 1, sign = with_sign ? 1u << (image->comps[c].prec - 1) : 0;
        for (size_t i = 0; i < pixels; i++) {
            const uint32_t v = (((uint32_t)from[i] & mask) ^ sign) - sign;
            if (frame->bits == 8)
                ((uint8_t *)to)[i * frame->samples + c] = (uint8_t)v;
            else
                ((uint16_t *)to)[i * frame->samples + c] = (uint16_t)v;
        }
    }
}

static opj_stream_t *open_stream(memory *m) {
    opj_stream_t *stream = opj_stream_create(m->count < STREAM_BUFFER ? m->count : STREAM_BUFFER, OPJ_TRUE);
    if (!stream) return NULL;
    opj_stream_set_read_function(stream, on_read);
    opj_stream_set_skip_function(stream, on_skip);
    opj_stream_set_seek_function(stream, on_seek);
    opj_stream_set_user_data(stream, m, NULL);
    opj_stream_set_user_data_length(stream, m->count);
    return stream;
}

/* NULL where it fails, and why in `c`. No threads of its own: the environment could ask for some. */
static opj_image_t *decode(opj_codec_t *codec, opj_stream_t *stream, complaint *c) {
    opj_dparameters_t parameters;
    opj_image_t *image = NULL;
    opj_set_default_decoder_parameters(&parameters);
    opj_set_error_handler(codec, on_error, c);
    opj_set_warning_handler(codec, on_message, NULL);
    opj_set_info_handler(codec, on_message, NULL);
    if (opj_setup_decoder(codec, &parameters) && opj_decoder_set_strict_mode(codec, OPJ_TRUE) &&
        (!opj_has_thread_support() || opj_codec_set_threads(codec, 0)) && opj_read_header(stream, codec, &image) &&
        opj_decode(codec, stream, image))
        return image;
    opj_image_destroy(image);
    return NULL;
}

ist_status ist_jpeg2000_decode(const unsigned char *bytes, size_t count, const char *name,
                               const ist_jpeg2000_frame *frame, bool with_sign, void *to, ist_error *err) {
    ist_jpeg2000_survey s;
    IST_TRY(ist_jpeg2000_survey_of(bytes, count, name, frame, &s, err));
    memory m = {.bytes = bytes + s.begin, .count = s.end - s.begin};
    complaint c = {0};
    opj_stream_t *stream = open_stream(&m);
    opj_codec_t *codec = opj_create_decompress(OPJ_CODEC_J2K);
    opj_image_t *image = stream && codec ? decode(codec, stream, &c) : NULL;
    ist_status status = IST_OK;
    if (!stream || !codec || (!image && strstr(c.text, "emory")))
        status = ist_fail(err, IST_E_MEMORY, "%s: out of memory", name);
    else if (!image || !is_as_asked(image, frame))
        status =
            ist_fail(err, IST_E_INPUT, "%s: damaged JPEG 2000: %s", name, c.text[0] ? c.text : "it cannot be decoded");
    else
        put_samples(image, frame, with_sign, to);
    opj_image_destroy(image);
    opj_destroy_codec(codec);
    opj_stream_destroy(stream);
    return status;
}
