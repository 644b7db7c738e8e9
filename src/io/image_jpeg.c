/* JPEG in through libturbojpeg: gray stays gray, YCbCr and RGB become RGB, and so do CMYK and YCCK, of Adobe's kind as
 * Pillow takes all of them: 255 is no ink.
 * Accurate inverse DCT and smooth chroma upsampling, as Pillow decodes. */
#include "io/image.h"
#include "io/image_cmyk.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>

static ist_status fail_jpeg(tjhandle handle, const char *name, ist_error *err) {
    const char *text = tjGetErrorStr2(handle);
    if (strstr(text, "remature end")) return ist_fail(err, IST_E_INPUT, "%s: the JPEG is truncated: %s", name, text);
    return ist_fail(err, IST_E_INPUT, "%s: damaged JPEG: %s", name, text);
}

/* Padding in front of the end of the image, when all of it has been decoded. The library keeps its first warning only:
 * any other might hide one that means pixels which are not the picture's. */
static bool is_harmless(tjhandle handle) {
    return tjGetErrorCode(handle) == TJERR_WARNING &&
           strstr(tjGetErrorStr2(handle), "extraneous bytes before marker 0xd9");
}

/* Padding between segments, as cameras write it, or no end: see mend. */
static bool is_mendable(tjhandle handle) {
    const char *text = tjGetErrorStr2(handle);
    return tjGetErrorCode(handle) == TJERR_WARNING &&
           (strstr(text, "extraneous bytes") || strstr(text, "remature end of JPEG"));
}

/* CMYK becomes RGB in its place, and what is left over is given back. */
static void drop_ink(ist_bitmap *b) {
    size_t pixels = (size_t)b->width * (size_t)b->height;
    ist_cmyk_to_rgb(b->pixels, b->pixels, pixels, true);
    void *less = realloc(b->pixels, 3 * pixels);
    if (less) b->pixels = less;
    b->format = IST_RGB8;
    b->stride = 3 * (size_t)b->width;
}

static ist_status decode(tjhandle handle, const void *bytes, size_t count, const char *name, size_t max_pixels,
                         ist_bitmap *out, ist_error *err) {
    int width = 0, height = 0, sampling = 0, space = 0;
    if (tjDecompressHeader3(handle, bytes, (unsigned long)count, &width, &height, &sampling, &space) &&
        !is_harmless(handle))
        return fail_jpeg(handle, name, err);
    bool gray = space == TJCS_GRAY, ink = space == TJCS_CMYK || space == TJCS_YCCK;
    if (width < 1 || height < 1)
        return ist_fail(err, IST_E_INPUT, "%s: the JPEG is truncated after %zu bytes: it has no size", name, count);
    ist_pixel_format format = gray ? IST_GRAY8 : ink ? IST_RGBA8 : IST_RGB8; /* RGBA8: of four samples, for now */
    IST_TRY(ist_bitmap_allocate(name, (size_t)width, (size_t)height, format, max_pixels, out, err));
    /* LIMITSCANS: a small progressive file cannot ask for hours of work */
    if (out->stride > INT_MAX) return ist_fail(err, IST_E_LIMIT, "%s: a row of %zu bytes", name, out->stride);
    if (tjDecompress2(handle, bytes, (unsigned long)count, out->pixels, width, (int)out->stride, height,
                      gray  ? TJPF_GRAY
                      : ink ? TJPF_CMYK
                            : TJPF_RGB,
                      TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS) &&
        !is_harmless(handle))
        return fail_jpeg(handle, name, err);
    if (ink) drop_ink(out);
    return IST_OK;
}

/* What mend reads and writes. */
typedef struct mending {
    const uint8_t *in;
    size_t count, at;
    uint8_t *out;
    size_t length;
    int components; /* of a frame that is sequential and Huffman coded; 0: of none */
    bool whole;     /* the scan has all of them */
} mending;

enum { MARKER_SOF0 = 0xC0, MARKER_SOF1 = 0xC1, MARKER_RST0 = 0xD0, MARKER_EOI = 0xD9, MARKER_SOS = 0xDA };

/* Copies the next segment, without what stands in front of it; its marker, or 0 where none is complete. */
static int copy_segment(mending *m) {
    const uint8_t *in = m->in;
    while (m->at + 1 < m->count && (in[m->at] != 0xFF || in[m->at + 1] == 0 || in[m->at + 1] == 0xFF)) m->at++;
    if (m->at + 4 > m->count) return 0;
    int marker = in[m->at + 1];
    bool bare = (marker >= MARKER_RST0 && marker <= MARKER_EOI) || marker == 1;
    size_t size = bare ? 2 : 2 + ((size_t)in[m->at + 2] << 8 | in[m->at + 3]);
    if (size > m->count - m->at || (!bare && size < 4)) return 0;
    if ((marker == MARKER_SOF0 || marker == MARKER_SOF1) && size > 9) m->components = in[m->at + 9];
    if (marker == MARKER_SOS && size > 4) m->whole = m->components == in[m->at + 4];
    memcpy(m->out + m->length, in + m->at, size);
    m->length += size;
    m->at += size;
    return marker;
}

/* The file without padding between its segments and, where nothing but a scan of everything can follow, with an end, in
 * *out, malloc'd: what is missing of such a scan gives a warning of its own, whereas of others the last one may be
 * missing. False when there is no scan. */
static bool mend(const void *bytes, size_t count, uint8_t **out, size_t *length) {
    mending m = {.in = bytes, .count = count, .at = 2, .out = malloc(count + 2), .length = 2};
    int marker = 0;
    *out = m.out;
    if (!m.out) return false;
    memcpy(m.out, bytes, 2);
    while (marker != MARKER_SOS)
        if (!(marker = copy_segment(&m)) || marker == MARKER_EOI) return false;
    memcpy(m.out + m.length, m.in + m.at, count - m.at);
    m.length += count - m.at;
    if (m.whole) {
        m.out[m.length++] = 0xFF;
        m.out[m.length++] = MARKER_EOI;
    }
    *length = m.length;
    return true;
}

ist_status ist_jpeg_decode(const void *bytes, size_t count, const char *name, size_t max_pixels, ist_bitmap *out,
                           ist_error *err) {
    *out = (ist_bitmap){0};
    tjhandle handle = tjInitDecompress();
    if (!handle) return ist_fail(err, IST_E_MEMORY, "%s: out of memory", name);
    ist_status status = decode(handle, bytes, count, name, max_pixels, out, err);
    if (status) ist_bitmap_free(out);
    if (status == IST_E_INPUT && is_mendable(handle)) {
        uint8_t *mended;
        size_t length;
        if (mend(bytes, count, &mended, &length)) status = decode(handle, mended, length, name, max_pixels, out, err);
        if (status) ist_bitmap_free(out);
        free(mended);
    }
    tjDestroy(handle);
    return status;
}
