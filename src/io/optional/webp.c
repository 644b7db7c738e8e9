/* WebP in through libwebp: colour, with alpha where the file has it, decoded as Pillow does. An animation is a
 * container of its pictures as they are shown, each composed over those before it. */
#include "io/image_format.h"

#include "io/exif.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <webp/decode.h>
#include <webp/demux.h>

void ist_webp_measure(const unsigned char *head, size_t count, size_t max_pixels, ist_image_size *size, bool *unclear) {
    WebPBitstreamFeatures f;
    VP8StatusCode code = WebPGetFeatures(head, count, &f);
    if (code == VP8_STATUS_OK) {
        ist_image_size_set(size, (size_t)f.width, (size_t)f.height, f.has_alpha ? 4 : 3, max_pixels);
        size->passing = 2 * size->decoded; /* a lossless file is decoded as a whole, in 4 bytes per pixel and more */
    } else {
        *unclear = code == VP8_STATUS_NOT_ENOUGH_DATA && count == IST_IMAGE_HEAD;
    }
}

static ist_status fail_webp(VP8StatusCode code, const char *name, size_t count, ist_error *err) {
    if (code == VP8_STATUS_OUT_OF_MEMORY) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", name);
    if (code == VP8_STATUS_NOT_ENOUGH_DATA || code == VP8_STATUS_SUSPENDED)
        return ist_fail(err, IST_E_INPUT, "%s: the WebP is truncated after %zu bytes", name, count);
    return ist_fail(err, IST_E_INPUT, "%s: damaged WebP (libwebp's code %d)", name, (int)code);
}

ist_status ist_webp_decode(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                           ist_error *err) {
    WebPDecoderConfig config;
    *out = (ist_bitmap){0};
    if (!WebPInitDecoderConfig(&config))
        return ist_fail(err, IST_E_UNSUPPORTED, "%s: libwebp is of another version than isthmus was built with", name);
    VP8StatusCode code = WebPGetFeatures(bytes, count, &config.input);
    if (code) return fail_webp(code, name, count, err);
    ist_pixel_format format = config.input.has_alpha ? IST_RGBA8 : IST_RGB8;
    IST_TRY(ist_bitmap_allocate(name, (size_t)config.input.width, (size_t)config.input.height, format, max_pixels, out,
                                err));
    config.output.colorspace = config.input.has_alpha ? MODE_RGBA : MODE_RGB;
    config.output.u.RGBA.rgba = out->pixels;
    config.output.u.RGBA.stride = (int)out->stride;
    config.output.u.RGBA.size = out->stride * (size_t)out->height;
    config.output.is_external_memory = 1;
    code = out->stride > INT_MAX ? VP8_STATUS_INVALID_PARAM : WebPDecode(bytes, count, &config);
    WebPFreeDecBuffer(&config.output);
    if (!code) return IST_OK;
    ist_bitmap_free(out);
    return fail_webp(code, name, count, err);
}

/* ---- animations ---- */

enum { FLAGS = 20, ANIMATED = 2 }; /* byte of an extended file's header, and the bit there */

/* libwebp wants all of a file in memory. */
typedef struct animation {
    const char *name;
    size_t max_pixels;
    const uint8_t *bytes;
    size_t size;
    uint8_t *owned; /* bytes of a file, or NULL */
    WebPBitstreamFeatures features;
    WebPAnimDecoder *decoder; /* has two canvases: NULL until a frame is read */
    size_t next, good;        /* frame that comes next; those before this one are known to be, or `count` */
} animation;

bool ist_webp_in_frames(const unsigned char *head, size_t count) {
    return count > FLAGS && !memcmp(head + 12, "VP8X", 4) && head[FLAGS] & ANIMATED;
}

static void close_webp(void *state) {
    animation *a = state;
    WebPAnimDecoderDelete(a->decoder);
    free(a->owned);
    free(a);
}

static ist_status take_bytes(animation *a, const ist_byte_source *source, ist_error *err) {
    a->bytes = source->bytes;
    a->size = (size_t)source->size;
    if (source->fd < 0) return IST_OK;
    if (source->size > IST_MAX_FILE_BYTES)
        return ist_fail(err, IST_E_LIMIT, "%s: %llu bytes are more than the limit of %zu", a->name,
                        (unsigned long long)source->size, IST_MAX_FILE_BYTES);
    a->owned = malloc(a->size ? a->size : 1);
    if (!a->owned) return ist_fail(err, IST_E_MEMORY, "%s: out of memory for %zu bytes", a->name, a->size);
    a->bytes = a->owned;
    a->size = ist_byte_source_read(source, 0, a->owned, a->size);
    return IST_OK;
}

/* All of its chunks are looked at, and nothing is decoded. */
static ist_status count_frames(animation *a, size_t *frames, ist_error *err) {
    const WebPData data = {a->bytes, a->size};
    VP8StatusCode code = WebPGetFeatures(a->bytes, a->size, &a->features);
    if (code) return fail_webp(code, a->name, a->size, err);
    WebPDemuxer *demuxer = WebPDemux(&data);
    if (!demuxer) return ist_fail(err, IST_E_INPUT, "%s: damaged WebP: its frames are cut or out of order", a->name);
    *frames = WebPDemuxGetI(demuxer, WEBP_FF_FRAME_COUNT);
    WebPDemuxDelete(demuxer);
    a->good = *frames;
    return IST_OK;
}

static ist_status open_webp(const ist_byte_source *source, const char *name, size_t max_pixels, void **state,
                            size_t *frames, ist_image_size *largest, ist_error *err) {
    animation *a = calloc(1, sizeof *a);
    if (!a) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", name);
    *a = (animation){.name = name, .max_pixels = max_pixels};
    ist_status status = take_bytes(a, source, err);
    if (!status) status = count_frames(a, frames, err);
    if (status) {
        close_webp(a);
        return status;
    }
    const size_t width = (size_t)a->features.width, height = (size_t)a->features.height;
    ist_image_size_set(largest, width, height, a->features.has_alpha ? 4 : 3, max_pixels);
    largest->passing =
        4 * 4 * width * height + (a->owned ? a->size : 0);   /* two canvases, and a frame decoded as a still */
    if (!largest->pixels) largest->passing = 0, *frames = 1; /* reading says so */
    *state = a;
    return IST_OK;
}

/* Goes to the frame, from the beginning if it lies behind. */
static ist_status seek(animation *a, size_t frame, uint8_t **canvas, ist_error *err) {
    const WebPData data = {a->bytes, a->size};
    WebPAnimDecoderOptions options;
    int when;
    if (!WebPAnimDecoderOptionsInit(&options))
        return ist_fail(err, IST_E_UNSUPPORTED, "%s: libwebpdemux is of another version than isthmus was built with",
                        a->name);
    options.color_mode = MODE_RGBA;
    if (!a->decoder) a->decoder = WebPAnimDecoderNew(&data, &options);
    if (!a->decoder) return ist_fail(err, IST_E_MEMORY, "%s: out of memory for its frames", a->name);
    if (frame < a->next) {
        WebPAnimDecoderReset(a->decoder);
        a->next = 0;
    }
    for (; a->next <= frame && frame < a->good; a->next++)
        if (!WebPAnimDecoderGetNext(a->decoder, canvas, &when)) a->good = a->next;
    if (frame < a->good) return IST_OK;
    return ist_fail(err, IST_E_INPUT, "%s: damaged WebP: frame %zu cannot be decoded", a->name, a->good + 1);
}

static ist_status read_webp(void *state, size_t frame, ist_bitmap *out, ist_error *err) {
    animation *a = state;
    const size_t channels = a->features.has_alpha ? 4 : 3;
    uint8_t *canvas = NULL;
    IST_TRY(ist_bitmap_allocate(a->name, (size_t)a->features.width, (size_t)a->features.height,
                                channels == 4 ? IST_RGBA8 : IST_RGB8, a->max_pixels, out, err));
    IST_TRY(seek(a, frame, &canvas, err)); /* the caller frees what a failure leaves */
    uint8_t *to = out->pixels;
    for (size_t n = (size_t)out->width * (size_t)out->height; n; n--, to += channels, canvas += 4)
        memcpy(to, canvas, channels);
    out->orientation = ist_exif_orientation(a->bytes, a->size);
    return IST_OK;
}

const ist_container ist_webp_container = {.open = open_webp, .read = read_webp, .close = close_webp};
