/* See upscale.h. */
#include "variants/upscale.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { C1 = IST_UPSCALE_MIDDLE, C2 = IST_UPSCALE_OUT };

/* Takes the mean of C1 values, `step` apart, off each of them. */
static void centre(float *v, int step) {
    double sum = 0;
    for (int o = 0; o < C1; o++) sum += (double)v[o * step];
    for (int o = 0; o < C1; o++) v[o * step] -= (float)(sum / C1);
}

bool ist_upscale_centred(ist_plan *p, const ist_upscale *q, ist_upscale *centred, float **room) {
    size_t count = (size_t)q->x.c * C1 * 4;
    *room = ist_plan_status(p) ? NULL : malloc((count + C1) * sizeof **room);
    if (!*room) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory for %zu weights", q->label, count);
        return false;
    }
    memcpy(*room, q->w1.v, count * sizeof **room);
    memcpy(*room + count, q->b1.v, C1 * sizeof **room);
    for (int i = 0; i < q->x.c * 4; i++) centre(*room + i / 4 * C1 * 4 + i % 4, 4);
    centre(*room + count, 1);
    *centred = *q;
    centred->w1.v = *room;
    centred->b1.v = *room + count;
    return true;
}

void ist_upscale_row(const float *src, int step, float *dst) {
    double mean = 0;
    for (int o = 0; o < C1; o++) mean += src[o * step] / (double)C1;
    for (int o = 0; o < C1; o++) dst[o] = (float)(src[o * step] - mean);
}

/* From PyTorch's [in][out][2][2]. */
static void pack_weights(const ist_upscale *q, int in, float *w1, float *w2) {
    for (int phase = 0; phase < 4; phase++)
        for (int i = 0; i < in; i++, w1 += C1) ist_upscale_row(q->w1.v + (size_t)i * C1 * 4 + phase, 4, w1);
    for (int line = 0; line < 2; line++)
        for (int i = 0; i < C1; i++)
            for (int column = 0; column < 2; column++)
                for (int o = 0; o < C2; o++) *w2++ = q->w2.v[(i * C2 + o) * 4 + 2 * line + column];
}

void ist_upscale_pack_norm(ist_plan *p, const ist_upscale *q, ist_upscale_packed *out) {
    float norm[3 * C1];
    ist_upscale_row(q->b1.v, 1, norm);
    memcpy(norm + C1, q->norm.gamma, sizeof norm / 3);
    memcpy(norm + 2 * C1, q->norm.beta, sizeof norm / 3);
    out->norm = ist_plan_const(p, norm, 1, 1, 3, C1, IST_ELEM_F32, q->label);
    out->b2 = ist_plan_const(p, q->b2.v, 1, 1, 1, C2, IST_ELEM_F32, q->label);
}

bool ist_upscale_pack(ist_plan *p, const ist_upscale *q, ist_upscale_packed *out) {
    size_t first = 4 * (size_t)q->x.c * C1, second = 4 * C1 * C2;
    float *both = malloc((first + second) * sizeof *both);
    if (!both) {
        ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory to pack %zu weights", q->label, first + second);
        return false;
    }
    pack_weights(q, q->x.c, both, both + first);
    out->w1 = ist_plan_const_bytes(p, both, first * sizeof *both, q->label);
    out->w2 = ist_plan_const_bytes(p, both + first, second * sizeof *both, q->label);
    free(both);
    ist_upscale_pack_norm(p, q, out);
    return !ist_plan_status(p);
}

ist_upscale_args ist_upscale_args_of(const ist_upscale *q) {
    ist_tensor x = q->x, vectors = q->vectors;
    return (ist_upscale_args){
        .h = x.h,
        .w = x.w,
        .x_ld = x.ld,
        .x_c0 = x.c0,
        .vectors = vectors.h * vectors.w,
        .vectors_ld = vectors.ld,
        .vectors_c0 = vectors.c0,
        .eps = q->eps,
        .seen = {.content_ld = q->content.ld, .content_c0 = q->content.c0, .token_pixels = IST_TOKEN_PIXELS}};
}

bool ist_upscale_content_fits(const ist_upscale *q) {
    return !ist_has(q->content) || (q->content.c == 2 && q->content.elem == IST_ELEM_I32 &&
                                    q->image_of.elem == IST_ELEM_I32 && ist_pixels(q->image_of) >= q->x.n);
}

double ist_upscale_flops(const ist_upscale *q, double depth) {
    int masks = q->vectors.h * q->vectors.w;
    return 2.0 * ist_pixels(q->x) * (4.0 * depth * C1 + 16.0 * C1 * C2 + 16.0 * C2 * masks);
}
