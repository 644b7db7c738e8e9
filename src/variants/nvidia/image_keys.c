/* Keys and values of an image before its first update, which all of its prompts share: a linear layer whose addend is
 * what position and shift make. */
#include "variants/nvidia/tokens.h"
#include "variants/fragments.h"
#include "variants/defines.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS = IST_TWO_WAY_HEADS, HEAD = 16, OUTS = HEADS * HEAD, IMAGE_MAX = IST_IMAGE_CHANNELS };

bool ist_image_reads(int tokens, int c, int d) {
    return ist_two_way_matrix(tokens, 64) && d == HEAD && c % 32 == 0 && c >= 32 && c <= IMAGE_MAX;
}

/* What the position adds to keys, W position [rows][OUTS], and zeros for values; to `to` [rows][2 OUTS]. Four inputs at
 * a time, so that sums are loaded and stored a fourth as often. */
static void project_position(const ist_image_keys *w, int rows, int k, float *restrict turned, float *restrict to) {
    for (int o = 0; o < OUTS; o++)
        for (int i = 0; i < k; i++) turned[i * OUTS + o] = w->keys[o * k + i];
    memset(to, 0, sizeof *to * (size_t)rows * 2 * OUTS);
    const float *at = w->position;
    for (int r = 0; r < rows; r++, to += 2 * OUTS)
        for (int i = 0; i < k; i += 4, at += 4) {
            const float *t = turned + i * OUTS, a = at[0], b = at[1], c = at[2], d = at[3];
            for (int o = 0; o < OUTS; o++)
                to[o] = to[o] + a * t[o] + b * t[OUTS + o] + c * t[2 * OUTS + o] + d * t[3 * OUTS + o];
        }
}

/* Fragments of both matrices as cl/nvidia/image_rows takes them. */
static void pack_keys(const ist_image_keys *w, int k, float *to) {
    float block[8 * IMAGE_MAX];
    for (int o = 0; o < 2 * OUTS; o += 8) {
        for (int i = 0; i < 8; i++) {
            int row = ist_place_channel(o + i);
            memcpy(block + i * k, row < OUTS ? w->keys + row * k : w->values + (row - OUTS) * k,
                   sizeof *to * (size_t)k);
        }
        for (int c = 0; c < k; c += 32) to = ist_fragments(block + c, 1, 1, (size_t)k, false, to);
    }
}

/* The bias, of which the shift is a part, to every row of `to` [rows][2 OUTS]. */
static void add_bias(const ist_image_keys *w, int rows, int k, const float *shift, float *to) {
    for (int o = 0; o < 2 * OUTS; o++) {
        const float *row = o < OUTS ? w->keys + o * k : w->values + (o - OUTS) * k;
        float bias = o < OUTS ? 0 : w->value_bias[o - OUTS];
        for (int i = 0; shift && i < k; i++) bias += row[i] * shift[i];
        for (int r = 0; r < rows; r++) to[r * 2 * OUTS + o] += bias;
    }
}

ist_image_rows_args ist_image_rows_of(ist_tensor x) {
    return (ist_image_rows_args){.all_rows = x.n * x.w, .length = x.w, .x_ld = x.ld, .x_c0 = x.c0};
}

bool ist_image_keys_begin(ist_plan *p, const ist_image_side *image, const ist_image_keys *w, const char *label,
                          ist_image_keys_step *step) {
    ist_tensor x = image->x;
    *step = (ist_image_keys_step){.x = x};
    if (ist_plan_status(p)) return false;
    if (x.elem != IST_ELEM_T || x.h != 1 || x.c > IMAGE_MAX || x.c % 32 || (x.ld | x.c0) % 8) {
        ist_plan_fail(p, IST_E_ARGUMENT, "%s: keys of [%d,%d,%d,%d]", label, x.n, x.h, x.w, x.c);
        return false;
    }
    size_t position = (size_t)x.w * 2 * OUTS, turned = (size_t)(OUTS * x.c);
    float *room = malloc((position + turned) * sizeof *room);
    step->count = (size_t)(2 * OUTS * x.c);
    step->weights = malloc(step->count * sizeof *step->weights);
    if (!room || !step->weights) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for the position's keys", label);
    } else {
        if (ist_plan_has_values(p)) {
            project_position(w, x.w, x.c, room + position, room);
            add_bias(w, x.w, x.c, image->shift, room);
            pack_keys(w, x.c, step->weights);
        }
        step->beside = ist_plan_const(p, room, 1, 1, x.w, 2 * OUTS, IST_ELEM_T, label);
        step->y = ist_plan_tensor(p, x.n, 1, x.w, 2 * OUTS, IST_ELEM_T);
    }
    free(room);
    return !ist_plan_status(p);
}

ist_tensor ist_image_make_keys(ist_plan *p, const ist_image_side *image, const ist_image_keys *w, const char *label) {
    enum { ITEMS = 256, EACH = 64 };
    ist_image_keys_step s;
    ist_tensor none = {0}, x = image->x;
    if (ist_image_keys_begin(p, image, w, label, &s)) {
        ist_tensor weights = ist_plan_const(p, s.weights, 1, 1, 2 * OUTS, x.c, IST_ELEM_T, label);
        ist_defines defines = ist_defines_of(p, "-DIN=%d", x.c);
        const ist_image_rows_args by_value = ist_image_rows_of(x);
        ist_plan_launch(p, &(ist_launch){.label = label,
                                         .op = "nvidia/image_keys",
                                         .isa = "nvidia/ptx+nvidia/image_rows",
                                         .defines = defines.text,
                                         .kernel = "image_keys",
                                         .dims = 1,
                                         .global = {(size_t)ist_div_up(by_value.all_rows, EACH) * ITEMS},
                                         .local = {ITEMS},
                                         .args = {IST_OUT(s.y), IST_IN(x), IST_IN(weights), IST_IN(s.beside),
                                                  IST_STRUCT(image_rows_args, &by_value)},
                                         .arg_count = 5,
                                         .flops = 4.0 * by_value.all_rows * x.c * OUTS});
    }
    free(s.weights);
    return ist_plan_status(p) ? none : s.y;
}
