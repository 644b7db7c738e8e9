/* Text through cairo: see overlay.h. Only label plates pass through it, so its 32767 pixel limit never meets an image.
 */
#include "io/overlay.h"

#include <cairo.h>
#include <math.h>

#define MAX_TEXT_WIDTH 4096

/* Points a context of `surface` at the font; the caller destroys it. */
static cairo_t *text_context(cairo_surface_t *surface, double size) {
    cairo_t *cr = cairo_create(surface);
    cairo_select_font_face(cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_BOLD);
    cairo_set_font_size(cr, size);
    return cr;
}

static void measure(const char *text, double size, int *width, int *height, double origin[2]) {
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_A8, 1, 1);
    cairo_t *cr = text_context(surface, size);
    cairo_text_extents_t ink;
    cairo_font_extents_t font;
    cairo_text_extents(cr, text, &ink);
    cairo_font_extents(cr, &font);
    double advance = fmin(fmax(ink.x_advance, ink.x_bearing + ink.width), MAX_TEXT_WIDTH);
    *width = (int)ceil(fmax(advance, 1));
    *height = (int)ceil(fmax(font.ascent + font.descent, 1));
    origin[0] = ink.x_bearing < 0 ? -ink.x_bearing : 0;
    origin[1] = font.ascent;
    cairo_destroy(cr);
    cairo_surface_destroy(surface);
}

ist_status ist_overlay_text(const char *text, double size, ist_bitmap *out, ist_error *err) {
    int width, height;
    double origin[2];
    measure(text, size, &width, &height, origin);
    IST_TRY(ist_bitmap_allocate("label", (size_t)width, (size_t)height, IST_GRAY8, SIZE_MAX, out, err));
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_A8, width, height);
    cairo_t *cr = text_context(surface, size);
    cairo_move_to(cr, origin[0], origin[1]);
    cairo_show_text(cr, text);
    cairo_status_t status = cairo_status(cr);
    cairo_destroy(cr);
    cairo_surface_flush(surface);
    const unsigned char *data = cairo_image_surface_get_data(surface);
    int stride = cairo_image_surface_get_stride(surface);
    for (int y = 0; y < height && !status; y++)
        for (int x = 0; x < width; x++)
            ((uint8_t *)out->pixels)[(size_t)y * out->stride + (size_t)x] =
                data[(size_t)y * (size_t)stride + (size_t)x];
    cairo_surface_destroy(surface);
    if (status) {
        ist_bitmap_free(out);
        return ist_fail(err, IST_E_IO, "cannot draw the text '%s': %s", text, cairo_status_to_string(status));
    }
    return IST_OK;
}
