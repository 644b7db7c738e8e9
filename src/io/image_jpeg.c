/* JPEG in through libturbojpeg: gray stays gray, YCbCr and RGB become RGB, CMYK is refused.
 * Accurate inverse DCT and smooth chroma upsampling, as Pillow decodes. */
#include "io/image.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <turbojpeg.h>

static ist_status fail_jpeg(tjhandle handle, const char *name, ist_error *err) {
    const char *text = tjGetErrorStr2(handle);
    if (strstr(text, "remature end")) return ist_fail(err, IST_E_INPUT, "%s: the JPEG is truncated: %s", name, text);
    return ist_fail(err, IST_E_INPUT, "%s: damaged JPEG: %s", name, text);
}

/* Cameras pad between segments; every other warning means pixels that are not the picture's. */
static bool is_harmless(tjhandle handle) {
    return tjGetErrorCode(handle) == TJERR_WARNING && strstr(tjGetErrorStr2(handle), "extraneous bytes");
}

static ist_status decode(tjhandle handle, const void *bytes, size_t count, const char *name, size_t max_pixels,
                         ist_bitmap *out, ist_error *err) {
    int width = 0, height = 0, sampling = 0, space = 0;
    if (tjDecompressHeader3(handle, bytes, (unsigned long)count, &width, &height, &sampling, &space) &&
        !is_harmless(handle))
        return fail_jpeg(handle, name, err);
    if (space == TJCS_CMYK || space == TJCS_YCCK)
        return ist_fail(err, IST_E_INPUT, "%s: CMYK JPEG is not supported; convert it to RGB first", name);
    bool gray = space == TJCS_GRAY;
    if (width < 1 || height < 1)
        return ist_fail(err, IST_E_INPUT, "%s: the JPEG is truncated after %zu bytes: it has no size", name, count);
    IST_TRY(
        ist_bitmap_allocate(name, (size_t)width, (size_t)height, gray ? IST_GRAY8 : IST_RGB8, max_pixels, out, err));
    /* LIMITSCANS: a small progressive file cannot ask for hours of work */
    if (out->stride > INT_MAX) return ist_fail(err, IST_E_LIMIT, "%s: a row of %zu bytes", name, out->stride);
    if (tjDecompress2(handle, bytes, (unsigned long)count, out->pixels, width, (int)out->stride, height,
                      gray ? TJPF_GRAY : TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS) &&
        !is_harmless(handle))
        return fail_jpeg(handle, name, err);
    return IST_OK;
}

ist_status ist_jpeg_decode(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                           ist_error *err) {
    *out = (ist_bitmap){0};
    tjhandle handle = tjInitDecompress();
    if (!handle) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", name);
    ist_status status = decode(handle, bytes, count, name, max_pixels, out, err);
    tjDestroy(handle);
    if (status) ist_bitmap_free(out);
    return status;
}
