/* Small copies of pictures: see thumbnail.h. */
#include "io/thumbnail.h"

#include <stdlib.h>
#include <turbojpeg.h>

void ist_thumbnail_size(int width, int height, int side, int *out_width, int *out_height) {
    int longer = width > height ? width : height;
    *out_width = width;
    *out_height = height;
    if (longer <= side) return;
    *out_width = (int)((long long)width * side / longer);
    *out_height = (int)((long long)height * side / longer);
    if (*out_width < 1) *out_width = 1;
    if (*out_height < 1) *out_height = 1;
}

/* The mean of the pixels [x0, x1) x [y0, y1). */
static void average(const ist_bitmap *rgb, int x0, int x1, int y0, int y1, unsigned char out[3]) {
    unsigned long long sum[3] = {0}, count = (unsigned long long)(x1 - x0) * (unsigned long long)(y1 - y0);
    for (int y = y0; y < y1; y++) {
        const unsigned char *p = (const unsigned char *)rgb->pixels + (size_t)y * rgb->stride + 3 * (size_t)x0;
        for (int x = x0; x < x1; x++)
            for (int c = 0; c < 3; c++) sum[c] += *p++;
    }
    for (int c = 0; c < 3; c++) out[c] = (unsigned char)((sum[c] + count / 2) / count);
}

static void scale(const ist_bitmap *from, ist_bitmap *to) {
    for (int y = 0; y < to->height; y++) {
        int y0 = (int)((long long)y * from->height / to->height);
        int y1 = (int)((long long)(y + 1) * from->height / to->height);
        unsigned char *p = (unsigned char *)to->pixels + (size_t)y * to->stride;
        for (int x = 0; x < to->width; x++, p += 3) {
            int x0 = (int)((long long)x * from->width / to->width);
            int x1 = (int)((long long)(x + 1) * from->width / to->width);
            average(from, x0, x1, y0, y1, p);
        }
    }
}

static ist_status encode(const ist_bitmap *rgb, int quality, ist_thumbnail *out, ist_error *err) {
    tjhandle handle = tjInitCompress();
    unsigned long count = 0;
    if (!handle) return ist_fail(err, IST_E_MEMORY, "out of memory for a JPEG");
    ist_status status = IST_OK;
    if (tjCompress2(handle, rgb->pixels, rgb->width, (int)rgb->stride, rgb->height, TJPF_RGB, &out->bytes, &count,
                    TJSAMP_420, quality, TJFLAG_ACCURATEDCT))
        status = ist_fail(err, IST_E_MEMORY, "cannot make a JPEG: %s", tjGetErrorStr2(handle));
    out->count = count;
    tjDestroy(handle);
    return status;
}

ist_status ist_thumbnail_make(const ist_bitmap *image, const int window[2], int side, int quality, ist_thumbnail *out,
                              ist_error *err) {
    ist_bitmap rgb = {0}, small = {0};
    *out = (ist_thumbnail){0};
    IST_TRY(ist_bitmap_as_rgb(image, window[0], window[1], &rgb, err));
    ist_thumbnail_size(rgb.width, rgb.height, side, &out->width, &out->height);
    ist_status status = ist_bitmap_allocate("a small copy", (size_t)out->width, (size_t)out->height, IST_RGB8,
                                            IST_MAX_PIXELS, &small, err);
    if (!status) {
        scale(&rgb, &small);
        status = encode(&small, quality, out, err);
    }
    ist_bitmap_free(&rgb);
    ist_bitmap_free(&small);
    if (status) ist_thumbnail_free(out);
    return status;
}

void ist_thumbnail_free(ist_thumbnail *thumbnail) {
    tjFree(thumbnail->bytes);
    *thumbnail = (ist_thumbnail){0};
}
