/* Labels on overlays: see overlay_canvas.h. Where they go is overlay_place.c. */
#include "io/overlay_canvas.h"

#include "io/visibility.h"

#include <stdlib.h>

enum {
    LEAST_FONT = 7,   /* pixels: below, nobody can read it */
    MOST_TEXT = 4000, /* pixels: what ist_overlay_text draws whole */
    MOST_NAME = 500   /* bytes */
};

/* What is written: a name of which `most` bytes are kept, and numbers. *length becomes what was kept. */
static void label_text(const ist_object *o, const ist_overlay_view *view, const ist_trust *trust, size_t most,
                       ist_text *text, size_t *length) {
    char number[16];
    ist_text name = {0};
    ist_text_utf8(&name, ist_label_name(view->labels, o->label, number));
    size_t n = name.length < most ? name.length : most;
    while (n < name.length && n && ((unsigned char)name.data[n] & 0xC0) == 0x80) n--; /* whole characters */
    bool tracked = view->match == IST_MATCH_TRACKS;
    ist_text_clear(text);
    if (tracked && o->match >= 0) ist_text_printf(text, "#%d ", o->match);
    if (n) ist_text_add(text, name.data, n);
    if (n < name.length) ist_text_put(text, "\xE2\x80\xA6"); /* ellipsis */
    ist_text_printf(text, " %.2f", (double)o->score);
    if (!tracked && view->match != IST_MATCH_NONE && o->match >= 0) ist_text_printf(text, " =%d", o->match);
    if (trust) ist_text_printf(text, " %s", ist_visibility_name(trust->state));
    text->failed = text->failed || name.failed;
    ist_text_free(&name);
    *length = n;
}

/* Text smaller than usual where the image is narrower than the label. */
static ist_status make_small_glyphs(const ist_canvas *c, const char *text, int room, ist_bitmap *glyphs,
                                    ist_error *err) {
    IST_TRY(ist_overlay_text(text, c->font, glyphs, err));
    for (double size = c->font; glyphs->width > room && size > LEAST_FONT;) {
        size = fmax(LEAST_FONT, fmin(size - 1, floor(size * room / glyphs->width)));
        ist_bitmap_free(glyphs);
        IST_TRY(ist_overlay_text(text, size, glyphs, err));
    }
    return IST_OK;
}

/* A name that is too long even so is cut, in wide images at the usual size. */
static ist_status make_glyphs(const ist_canvas *c, const ist_object *o, const ist_overlay_view *view,
                              const ist_trust *trust, ist_text *text, ist_bitmap *glyphs, ist_error *err) {
    int room = c->image->width - 2 * c->line;
    if (room > MOST_TEXT) room = MOST_TEXT;
    size_t kept;
    label_text(o, view, trust, MOST_NAME, text, &kept);
    IST_TRY(ist_text_status(text, err));
    IST_TRY(make_small_glyphs(c, text->data, room, glyphs, err));
    double size = room > 16 * c->font ? c->font : LEAST_FONT;
    while (glyphs->width > room && kept > 0) {
        label_text(o, view, trust, kept - (kept + 7) / 8, text, &kept);
        IST_TRY(ist_text_status(text, err));
        ist_bitmap_free(glyphs);
        IST_TRY(ist_overlay_text(text->data, size, glyphs, err));
    }
    return IST_OK;
}

/* What is placed: the discs of points, which keep their places, then a label per object, with its text. */
typedef struct label_set {
    ist_bitmap *glyphs;        /* [count] */
    ist_overlay_plate *plates; /* [discs + count], as boxes */
    int (*boxes)[4];
    int discs, count;
    bool too_many;
} label_set;

enum { MOST_DISCS = 64 }; /* more of them would leave no room, or cost time */

static void free_labels(label_set *set) {
    for (int i = 0; set->glyphs && i < set->count; i++) ist_bitmap_free(&set->glyphs[i]);
    free(set->glyphs);
    free(set->plates);
    free(set->boxes);
}

static void keep_discs(const ist_canvas *c, const ist_prompt_list *prompts, label_set *set) {
    int radius = (int)ceil(ist_disc_radius(c->line));
    for (size_t i = 0; i < prompts->count; i++)
        for (size_t k = 0; k < prompts->items[i].point_count && set->discs < MOST_DISCS; k++) {
            const ist_point *p = &prompts->items[i].points[k];
            int x = ist_to_pixel(p->x, c->image->width), y = ist_to_pixel(p->y, c->image->height),
                side = 2 * radius + 1;
            set->plates[set->discs++] = (ist_overlay_plate){x - radius, y - radius, side, side, true};
        }
}

static ist_status measure_labels(const ist_canvas *c, const ist_frame *frame, const ist_overlay_view *view,
                                 label_set *set, ist_error *err) {
    ist_text text = {0};
    ist_status status = IST_OK;
    size_t n = frame->object_count > 0 ? (size_t)frame->object_count : 1;
    double area = 0, most = (double)c->image->width * c->image->height / 4;
    *set = (label_set){.count = frame->object_count};
    set->glyphs = calloc(n, sizeof *set->glyphs);
    set->plates = calloc(n + MOST_DISCS, sizeof *set->plates);
    set->boxes = calloc(n + MOST_DISCS, sizeof *set->boxes);
    if (!set->glyphs || !set->plates || !set->boxes)
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu labels", n);
    if (view->prompts) keep_discs(c, view->prompts, set);
    for (int i = 0; i < set->count && !status && !set->too_many; i++) {
        ist_overlay_plate *plate = &set->plates[set->discs + i];
        status = make_glyphs(c, &frame->objects[i], view, ist_visibility_of(frame, i), &text, &set->glyphs[i], err);
        plate->width = set->glyphs[i].width + 2 * c->line;
        plate->height = set->glyphs[i].height + 2 * c->line;
        ist_pixel_box(c, frame->objects[i].box, set->boxes[set->discs + i]);
        area += (double)plate->width * plate->height;
        set->too_many = view->apart && area > most;
    }
    ist_text_free(&text);
    return status;
}

/* A plate of the object's colour with dark text. */
static void draw_label(const ist_canvas *c, const ist_overlay_plate *p, const ist_bitmap *glyphs,
                       const uint8_t rgb[3]) {
    static const uint8_t ink[3] = {0, 0, 0};
    const uint8_t *coverage = glyphs->pixels;
    ist_fill(c->image, p->x, p->y, p->x + p->width, p->y + p->height, rgb, 255);
    for (int v = 0; v < glyphs->height; v++)
        for (int u = 0; u < glyphs->width; u++)
            ist_blend(c->image, p->x + c->line + u, p->y + c->line + v, ink,
                      coverage[(size_t)v * glyphs->stride + (size_t)u]);
}

ist_status ist_canvas_labels(const ist_canvas *c, const ist_frame *frame, const ist_overlay_view *view,
                             const uint8_t (*colors)[3], ist_error *err) {
    label_set set;
    ist_status status = measure_labels(c, frame, view, &set, err);
    if (!status && !set.too_many) {
        ist_overlay_place(c->image->width, c->image->height, c->line, (const int(*)[4])set.boxes, set.plates, set.discs,
                          set.discs + set.count);
        for (int i = 0; i < set.count; i++) {
            const ist_overlay_plate *plate = &set.plates[set.discs + i];
            if (plate->placed) draw_label(c, plate, &set.glyphs[i], colors[i]);
        }
    }
    free_labels(&set);
    return status;
}
