#include "support/published.h"

#include "support/engines.h"
#include "synth.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

double published_number(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    cr_assert(json_is_number(v), "golden data: no number \"%s\"", key);
    return json_number_value(v);
}

int published_integer(const json_t *o, const char *key) {
    return (int)published_number(o, key);
}

const char *published_string(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    cr_assert_not_null(s, "golden data: no string \"%s\"", key);
    return s;
}

/* ---- images ---- */

/* The phantom, or its red channel as an 8-bit gray image. */
ist_image published_image(const json_t *phantom) {
    ist_image m = engines_image(published_integer(phantom, "width"), published_integer(phantom, "height"),
                                (uint64_t)published_number(phantom, "seed"));
    size_t pixels = (size_t)m.width * (size_t)m.height, bytes = 3 * pixels;
    uint8_t *p = (void *)m.pixels;
    if (json_is_true(json_object_get(phantom, "gray"))) {
        for (size_t i = 0; i < pixels; i++) p[i] = p[3 * i];
        m.format = IST_GRAY8;
        bytes = pixels;
    }
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, synth_fnv1a64(p, bytes));
    cr_assert_str_eq(hash, published_string(phantom, "fnv"), "the image is not the one the golden data were made from");
    return m;
}

/* ---- masks ---- */

int published_bit(const ist_mask *m, int x, int y) {
    if (x < m->x0 || x >= m->x0 + m->columns || y < m->y0 || y >= m->y0 + 32 * m->words) return 0;
    return m->bits[(size_t)(x - m->x0) * (size_t)m->words + (size_t)(y - m->y0) / 32] >> ((y - m->y0) & 31) & 1;
}

static int nibble(char c) {
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* IoU of the mask with the stored samples: every step-th row and column, one bit each, high bit first. */
double published_iou(const ist_mask *m, const ist_frame *f, const json_t *samples) {
    int step = published_integer(samples, "step"), rows = published_integer(samples, "rows"),
        columns = published_integer(samples, "columns");
    const char *hex = published_string(samples, "hex");
    cr_assert_eq(rows, (f->height + step - 1) / step);
    cr_assert_eq(columns, (f->width + step - 1) / step);
    cr_assert_eq(strlen(hex), (size_t)(rows * columns + 7) / 8 * 2);
    int both = 0, either = 0;
    for (int i = 0; i < rows * columns; i++) {
        int want = nibble(hex[i / 4]) >> (3 - i % 4) & 1,
            got = published_bit(m, i % columns * step, i / columns * step);
        both += want & got;
        either += want | got;
    }
    return either ? (double)both / either : 1;
}
