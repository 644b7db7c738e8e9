/* WebP in through libwebp: colour, with alpha where the file has it, decoded as Pillow does. */
#include "io/image_format.h"

#include <limits.h>
#include <webp/decode.h>

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
    if (config.input.has_animation)
        return ist_fail(err, IST_E_INPUT, "%s: an animated WebP is not read; save its frames as files", name);
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
