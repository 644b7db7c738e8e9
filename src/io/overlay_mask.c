/* Masks on overlays, 32 x 32 pixels at a time: see overlay_canvas.h. */
#include "io/overlay_canvas.h"

#include <string.h>

/* Rows y to y + 31 of column x as a word: 0 outside the mask's window, 1 outside the image, which is no contour. */
static uint32_t rows_at(const ist_canvas *c, const ist_mask *m, int x, int y) {
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
static uint32_t inner_rows(const ist_canvas *c, const ist_mask *m, int column, int w, int reach) {
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

/* Pixels of a row that the bits of a word say, from p on; of what stands at `under`, which may be p. */
static void draw_inside(uint8_t *p, const uint8_t *under, uint32_t bits, const uint8_t colors[SPAN]) {
    if (bits == UINT32_MAX) {
        if (under != p) memcpy(p, under, SPAN);
        mix_span(p, colors);
        return;
    }
    for (; bits; bits &= bits - 1) {
        int first = 3 * __builtin_ctz(bits);
        for (int k = 0; k < 3; k++) p[first + k] = ist_mixed(under[first + k], colors[k], INSIDE);
    }
}

static void draw_contour(uint8_t *p, uint32_t bits, const uint8_t rgb[3]) {
    for (; bits; bits &= bits - 1) memcpy(p + 3 * __builtin_ctz(bits), rgb, 3);
}

/* The mask's pixels in the object's colour, its contour opaque: 32 columns of 32 rows at a time, turned so that a row's
 * pixels lie side by side. */
void ist_canvas_mask(const ist_canvas *c, const ist_mask *m, const uint8_t rgb[3]) {
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
            size_t at = (size_t)y * c->image->stride + 3 * (size_t)(m->x0 + first);
            uint8_t *p = (uint8_t *)c->image->pixels + at;
            const uint8_t *under = c->under ? (const uint8_t *)c->under->pixels + at : p;
            for (int row = 0; row < 32 && y + row < c->image->height;
                 row++, p += c->image->stride, under += c->image->stride) {
                draw_inside(p, under, inside[row], colors);
                draw_contour(p, contour[row], rgb);
            }
        }
}
