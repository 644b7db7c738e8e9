/* Drawing results on images: see overlay.h. Lowest score first, so that the best object lies on top. */
#include "io/overlay.h"

#include "io/text.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct canvas {
    ist_bitmap *image; /* RGB8 */
    int line;          /* box line width in pixels */
    double font;       /* text size in pixels */
} canvas;

void ist_overlay_color(int key, uint8_t rgb[3]) {
    /* successive multiples of the golden ratio spread over the hue circle; saturation alternates as well */
    double hue = fmod(0.09 + 0.61803398875 * (key < 0 ? 0 : key), 1.0) * 6, saturation = key % 2 ? 0.65 : 0.9;
    for (int c = 0; c < 3; c++) {
        double k = fmod((c == 0 ? 5 : c == 1 ? 3 : 1) + hue, 6), ramp = fmin(fmin(k, 4 - k), 1);
        rgb[c] = (uint8_t)lround(255 * (1 - saturation * fmax(ramp, 0)));
    }
}

static int color_key(const ist_object *object, ist_match_mode match) {
    return match == IST_MATCH_TRACKS && object->match >= 0 ? object->match : object->label;
}

static uint8_t mixed(int below, int above, int alpha) {
    return (uint8_t)(below + (above - below) * alpha / 255);
}

static void blend(const ist_bitmap *image, int x, int y, const uint8_t rgb[3], int alpha) {
    if (x < 0 || y < 0 || x >= image->width || y >= image->height) return;
    uint8_t *p = (uint8_t *)image->pixels + (size_t)y * image->stride + 3 * (size_t)x;
    for (int c = 0; c < 3; c++) p[c] = mixed(p[c], rgb[c], alpha);
}

static void fill(const ist_bitmap *image, int x0, int y0, int x1, int y1, const uint8_t rgb[3], int alpha) {
    x0 = x0 < 0 ? 0 : x0;
    y0 = y0 < 0 ? 0 : y0;
    x1 = x1 > image->width ? image->width : x1;
    y1 = y1 > image->height ? image->height : y1;
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++) blend(image, x, y, rgb, alpha);
}

/* Rows y to y + 31 of column x as a word: 0 outside the mask's window, 1 outside the image, which is no contour. */
static uint32_t rows_at(const canvas *c, const ist_mask *m, int x, int y) {
    int width = c->image->width, height = c->image->height;
    if (x < 0 || x >= width || y >= height || y <= -32) return UINT32_MAX;
    uint32_t word = 0, outside = 0;
    if (y < 0) outside |= (1u << -y) - 1;
    if (height - y < 32) outside |= ~((1u << (height - y)) - 1);
    int column = x - m->x0, row = y - m->y0;
    if (column < 0 || column >= m->columns || row <= -32 || row >= 32 * m->words) return outside;
    const uint32_t *bits = m->bits + (size_t)column * (size_t)m->words;
    int first = (row + 32) / 32 - 1, shift = row - 32 * first;
    if (first >= 0) word = bits[first] >> shift;
    if (shift && first + 1 < m->words) word |= bits[first + 1] << (32 - shift);
    return word | outside;
}

/* The rows of word w of a column that have no pixel outside of the mask within `reach`. */
static uint32_t inner_rows(const canvas *c, const ist_mask *m, int column, int w, int reach) {
    int x = m->x0 + column, y = m->y0 + 32 * w;
    const uint32_t *at = m->bits + (size_t)column * (size_t)m->words + (size_t)w;
    bool amid = reach < 32 && column >= reach && column + reach < m->columns && w > 0 && w + 1 < m->words &&
                y + 32 + reach <= c->image->height;
    uint32_t inner = UINT32_MAX;
    for (int r = 1; r <= reach && inner; r++) {
        if (amid) {
            ptrdiff_t side = (ptrdiff_t)r * m->words;
            inner &= at[-side] & at[side] & (at[0] << r | at[-1] >> (32 - r)) & (at[0] >> r | at[1] << (32 - r));
        } else {
            inner &= rows_at(c, m, x - r, y) & rows_at(c, m, x + r, y);
            inner &= rows_at(c, m, x, y - r) & rows_at(c, m, x, y + r);
        }
    }
    return inner;
}

/* Bit j of word i becomes bit i of word j (after Hacker's Delight, 7-3). */
static void transpose(uint32_t m[32]) {
    uint32_t half = 0xFFFF;
    for (int j = 16; j; j >>= 1, half ^= half << j)
        for (int k = 0; k < 32; k = ((k | j) + 1) & ~j) {
            uint32_t t = (m[k] >> j ^ m[k | j]) & half;
            m[k | j] ^= t;
            m[k] ^= t << j;
        }
}

enum { INSIDE = 80, SPAN = 3 * 32 };

/* mixed() of 32 pixels on vector units; for 0 <= v < 65535, v / 255 is (v + 1 + (v >> 8)) >> 8. */
static void mix_span(uint8_t *restrict p, const uint8_t *restrict colors) {
    for (int i = 0; i < SPAN; i++) {
        int16_t more = (int16_t)(colors[i] - p[i]), sign = (int16_t)(more >> 15);
        int16_t v = (int16_t)(((more ^ sign) - sign) * INSIDE), q = (int16_t)((v + 1 + (v >> 8)) >> 8);
        p[i] = (uint8_t)(p[i] + (q ^ sign) - sign);
    }
}

/* Pixels of a row that the bits of a word say, from p on. */
static void draw_inside(uint8_t *p, uint32_t bits, const uint8_t colors[SPAN]) {
    if (bits == UINT32_MAX) {
        mix_span(p, colors);
        return;
    }
    for (; bits; bits &= bits - 1) {
        uint8_t *at = p + 3 * __builtin_ctz(bits);
        for (int k = 0; k < 3; k++) at[k] = mixed(at[k], colors[k], INSIDE);
    }
}

static void draw_contour(uint8_t *p, uint32_t bits, const uint8_t rgb[3]) {
    for (; bits; bits &= bits - 1) memcpy(p + 3 * __builtin_ctz(bits), rgb, 3);
}

/* The mask's pixels in the object's colour, its contour opaque: 32 columns of 32 rows at a time, turned so that a row's
 * pixels lie side by side. */
static void draw_mask(const canvas *c, const ist_mask *m, const uint8_t rgb[3]) {
    int reach = c->line > 2 ? c->line / 2 : 1, width = c->image->width - m->x0;
    int columns = m->columns < width ? m->columns : width;
    uint8_t colors[SPAN];
    for (int i = 0; i < SPAN; i++) colors[i] = rgb[i % 3];
    for (int w = 0; w < m->words; w++)
        for (int first = 0; first < columns; first += 32) {
            uint32_t inside[32] = {0}, contour[32] = {0}, any = 0;
            for (int i = 0; i < 32 && first + i < columns; i++) {
                uint32_t bits = m->bits[(size_t)(first + i) * (size_t)m->words + (size_t)w];
                uint32_t inner = bits ? inner_rows(c, m, first + i, w, reach) : 0;
                inside[i] = bits & inner;
                contour[i] = bits & ~inner;
                any |= bits;
            }
            if (!any) continue;
            transpose(inside);
            transpose(contour);
            int y = m->y0 + 32 * w;
            uint8_t *p = (uint8_t *)c->image->pixels + (size_t)y * c->image->stride + 3 * (size_t)(m->x0 + first);
            for (int row = 0; row < 32 && y + row < c->image->height; row++, p += c->image->stride) {
                draw_inside(p, inside[row], colors);
                draw_contour(p, contour[row], rgb);
            }
        }
}

static int to_pixel(float value, int size) {
    return (int)lroundf(fminf(fmaxf(value, -64), (float)size + 64)); /* far outside is as good as just outside */
}

/* The frame of a rectangle, `width` thick, centred on its border. */
static void draw_frame(const canvas *c, const int box[4], int width, const uint8_t rgb[3], int alpha) {
    int out = width / 2, in = width - out;
    int x0 = box[0] - out, y0 = box[1] - out, x1 = box[2] + in, y1 = box[3] + in;
    fill(c->image, x0, y0, x1, y0 + width, rgb, alpha);
    fill(c->image, x0, y1 - width, x1, y1, rgb, alpha);
    fill(c->image, x0, y0 + width, x0 + width, y1 - width, rgb, alpha);
    fill(c->image, x1 - width, y0 + width, x1, y1 - width, rgb, alpha);
}

static void pixel_box(const canvas *c, const ist_object *o, int box[4]) {
    for (int i = 0; i < 4; i++) box[i] = to_pixel(o->box[i], i % 2 ? c->image->height : c->image->width);
}

static void draw_box(const canvas *c, const ist_object *o, const uint8_t rgb[3]) {
    static const uint8_t black[3] = {0, 0, 0};
    int box[4], rim = c->line > 1 ? (c->line + 1) / 2 : 0;
    pixel_box(c, o, box);
    if (rim) draw_frame(c, box, c->line + 2 * rim, black, 110);
    draw_frame(c, box, c->line, rgb, 255);
}

static void label_text(const ist_object *o, const ist_labels *labels, ist_match_mode match, ist_text *text) {
    char number[16];
    ist_text_clear(text);
    if (match == IST_MATCH_TRACKS && o->match >= 0) ist_text_printf(text, "#%d ", o->match);
    ist_text_utf8(text, ist_label_name(labels, o->label, number));
    ist_text_printf(text, " %.2f", (double)o->score);
    if (match != IST_MATCH_TRACKS && match != IST_MATCH_NONE && o->match >= 0) ist_text_printf(text, " =%d", o->match);
}

/* What draw_labels works with, one of each per object. */
typedef struct label_set {
    ist_bitmap *glyphs;
    ist_overlay_plate *plates;
    int (*boxes)[4];
    int count;
} label_set;

static void free_labels(label_set *set) {
    for (int i = 0; set->glyphs && i < set->count; i++) ist_bitmap_free(&set->glyphs[i]);
    free(set->glyphs);
    free(set->plates);
    free(set->boxes);
}

/* Text smaller than usual where the image is narrower than the label; below 7 pixels nobody can read it. */
static ist_status make_glyphs(const canvas *c, const char *text, ist_bitmap *glyphs, ist_error *err) {
    int room = c->image->width - 2 * c->line;
    IST_TRY(ist_overlay_text(text, c->font, glyphs, err));
    for (double size = c->font; glyphs->width > room && size > 7;) {
        size = fmax(7, fmin(size - 1, floor(size * room / glyphs->width)));
        ist_bitmap_free(glyphs);
        IST_TRY(ist_overlay_text(text, size, glyphs, err));
    }
    return IST_OK;
}

static ist_status measure_labels(const canvas *c, const ist_frame *frame, const ist_labels *labels,
                                 ist_match_mode match, label_set *set, ist_error *err) {
    ist_text text = {0};
    ist_status status = IST_OK;
    size_t n = frame->object_count > 0 ? (size_t)frame->object_count : 1;
    *set = (label_set){.count = frame->object_count};
    set->glyphs = calloc(n, sizeof *set->glyphs);
    set->plates = calloc(n, sizeof *set->plates);
    set->boxes = calloc(n, sizeof *set->boxes);
    if (!set->glyphs || !set->plates || !set->boxes)
        return ist_fail(err, IST_E_MEMORY, "out of memory for %zu labels", n);
    for (int i = 0; i < set->count && !status; i++) {
        label_text(&frame->objects[i], labels, match, &text);
        status = ist_text_status(&text, err);
        if (!status) status = make_glyphs(c, text.data, &set->glyphs[i], err);
        set->plates[i].width = set->glyphs[i].width + 2 * c->line;
        set->plates[i].height = set->glyphs[i].height + 2 * c->line;
        pixel_box(c, &frame->objects[i], set->boxes[i]);
    }
    ist_text_free(&text);
    return status;
}

/* A plate of the object's colour with dark text. */
static void draw_label(const canvas *c, const ist_overlay_plate *p, const ist_bitmap *glyphs, const uint8_t rgb[3]) {
    static const uint8_t ink[3] = {0, 0, 0};
    const uint8_t *coverage = glyphs->pixels;
    fill(c->image, p->x, p->y, p->x + p->width, p->y + p->height, rgb, 255);
    for (int v = 0; v < glyphs->height; v++)
        for (int u = 0; u < glyphs->width; u++)
            blend(c->image, p->x + c->line + u, p->y + c->line + v, ink,
                  coverage[(size_t)v * glyphs->stride + (size_t)u]);
}

static ist_status draw_labels(const canvas *c, const ist_frame *frame, const ist_labels *labels, ist_match_mode match,
                              ist_error *err) {
    label_set set;
    ist_status status = measure_labels(c, frame, labels, match, &set, err);
    if (!status)
        ist_overlay_place(c->image->width, c->image->height, c->line, (const int(*)[4])set.boxes, set.plates,
                          set.count);
    for (int i = 0; i < set.count && !status; i++) {
        uint8_t rgb[3];
        ist_overlay_color(color_key(&frame->objects[i], match), rgb);
        if (set.plates[i].placed) draw_label(c, &set.plates[i], &set.glyphs[i], rgb);
    }
    free_labels(&set);
    return status;
}

ist_status ist_overlay_draw(const ist_bitmap *image, const ist_frame *frame, const ist_labels *labels,
                            ist_match_mode match, ist_bitmap *out, ist_error *err) {
    IST_TRY(ist_bitmap_as_rgb(image, out, err));
    double side = ((double)image->width + image->height) / 2;
    canvas c = {.image = out, .line = (int)lround(side * 0.003), .font = fmin(fmax(side * 0.022, 12), 96)};
    int least = side < 160 ? 1 : 2;
    if (c.line < least) c.line = least;
    uint8_t rgb[3];
    for (int i = frame->object_count - 1; i >= 0; i--) {
        ist_overlay_color(color_key(&frame->objects[i], match), rgb);
        draw_mask(&c, &frame->objects[i].mask, rgb);
    }
    for (int i = frame->object_count - 1; i >= 0; i--) {
        ist_overlay_color(color_key(&frame->objects[i], match), rgb);
        draw_box(&c, &frame->objects[i], rgb);
    }
    ist_status status = draw_labels(&c, frame, labels, match, err);
    if (status) ist_bitmap_free(out);
    return status;
}
