/* The mask decoder's upscaling (output_upscaling of segment-anything's modeling/mask_decoder.py).
 *
 * Both updates of the image by a prompt's tokens are linear but for a factor per row, and the first transposed
 * convolution behind them is linear: convolved once, the image serves all of its prompts, and each adds the convolved
 * values of its own tokens (ops/upscale.h has the formula). */
#include "models/sam_upscale.h"
#include "models/mobilesam.h"

#include <stdlib.h>
#include <string.h>

enum { GRID = IST_SAM_GRID, DIM = IST_SAM_DIM, INNER = DIM / 2 };
enum { C1 = IST_UPSCALE_MIDDLE, C2 = IST_UPSCALE_OUT, OUTS = IST_SAM_UPSCALE_OUTS };

/* NAME of the checkpoint as floats; NULL when the plan has failed. */
static float *load(const ist_net *net, const char *name, int rank, const int64_t *dims) {
    float *v = NULL;
    if (!ist_plan_status(net->plan)) ist_weights_f32(net->weights, name, rank, dims, &v, ist_plan_error(net->plan));
    return v;
}

/* Takes the mean of `count` values, `step` apart, off each of them. */
static void centre(float *v, int count, int step) {
    double sum = 0;
    for (int o = 0; o < count; o++) sum += (double)v[o * step];
    for (int o = 0; o < count; o++) v[o * step] -= (float)(sum / count);
}

void ist_sam_upscale_begin(const ist_net *net, ist_sam_upscale *u) {
    *u = (ist_sam_upscale){.net = *net};
    u->w1 = load(net, "mask_decoder.output_upscaling.0.weight", 4, (int64_t[]){DIM, C1, 2, 2});
    u->b1 = load(net, "mask_decoder.output_upscaling.0.bias", 1, (int64_t[]){C1});
    u->w2 = load(net, "mask_decoder.output_upscaling.3.weight", 4, (int64_t[]){C1, C2, 2, 2});
    u->b2 = load(net, "mask_decoder.output_upscaling.3.bias", 1, (int64_t[]){C2});
    u->norm = ist_take_norm(net, "mask_decoder.output_upscaling.1");
    if (!ist_plan_status(net->plan) && u->norm.n != C1)
        ist_plan_fail(net->plan, IST_E_WEIGHTS, "mask_decoder.output_upscaling.1: norm of %d channels", u->norm.n);
    if (ist_plan_status(net->plan)) return;
    /* The norm takes the mean off what the first convolution makes. Without it from the beginning, sums of squares are
     * of deviations. */
    for (int i = 0; i < DIM * 4; i++) centre(u->w1 + i / 4 * C1 * 4 + i % 4, C1, 4);
    centre(u->b1, C1, 1);
}

/* ---- what prompts share ---- */

/* The convolution behind the second norm, and behind both, as what is normed sees them, which has no mean: outputs are
 * (pixel of the 2x2 block, channel). */
static void convolve_norms(ist_sam_upscale *u, const ist_norm_weights norm[2]) {
    for (int o = 0; o < OUTS; o++) {
        for (int i = 0; i < DIM; i++) u->behind[1][i * OUTS + o] = norm[1].w[i] * u->w1[(i * C1 + o % C1) * 4 + o / C1];
        centre(u->behind[1] + o, DIM, OUTS);
        for (int i = 0; i < DIM; i++) u->behind[0][i * OUTS + o] = norm[0].w[i] * u->behind[1][i * OUTS + o];
        centre(u->behind[0] + o, DIM, OUTS);
    }
}

/* constants of ist_upscale_sharing; bias: of the updates. */
static void sum_constants(ist_sam_upscale *u, const ist_norm_weights norm[2], float *const bias[2]) {
    enum { ROWS = 3 };
    for (int o = 0; o < OUTS; o++) {
        double sum[ROWS] = {0, 0, (double)u->b1[o % C1]};
        for (int i = 0; i < DIM; i++) {
            sum[0] += (double)bias[0][i] * (double)u->behind[0][i * OUTS + o];
            sum[1] += ((double)norm[0].b[i] + (double)bias[1][i]) * (double)u->behind[1][i * OUTS + o];
            sum[2] += (double)norm[1].b[i] * (double)u->w1[(i * C1 + o % C1) * 4 + o / C1];
        }
        for (int r = 0; r < ROWS; r++) u->constants[(o / C1 * ROWS + r) * C1 + o % C1] = (float)sum[r];
    }
}

const float *ist_sam_upscale_map(ist_sam_upscale *u) {
    static const char at[] = "shared upscaling";
    ist_plan *p = u->net.plan;
    ist_norm_weights norm[2] = {{0}};
    float *bias[2] = {NULL};
    for (int i = 0; i < 2; i++) {
        ist_name out = ist_name_of("mask_decoder.transformer.layers.%d.cross_attn_image_to_token.out_proj.bias", i);
        norm[i] = ist_take_norm(&u->net, "mask_decoder.transformer.layers.%d.norm4", i);
        bias[i] = load(&u->net, out.text, 1, (int64_t[]){DIM});
        u->behind[i] = malloc(sizeof(float) * DIM * OUTS);
        if (!ist_plan_status(p) && norm[i].n != DIM)
            ist_plan_fail(p, IST_E_WEIGHTS, "layers.%d.norm4: norm of %d channels", i, norm[i].n);
    }
    u->constants = malloc(sizeof(float) * 3 * OUTS);
    if (!u->behind[0] || !u->behind[1] || !u->constants) ist_plan_fail(p, IST_E_MEMORY, "%s: out of host memory", at);
    if (!ist_plan_status(p)) {
        convolve_norms(u, norm);
        sum_constants(u, norm, bias);
    }
    for (int i = 0; i < 2; i++) {
        ist_norm_weights_free(&norm[i]);
        free(bias[i]);
    }
    return u->behind[0];
}

void ist_sam_upscale_share(ist_sam_upscale *u, const ist_shared_image *image) {
    u->sharing = (ist_upscale_sharing){
        .map = image->of, .ways = image->ways, .image = image->map, .trace = image->trace, .constants = u->constants};
    u->shares = true;
}

void ist_sam_upscale_values(ist_sam_upscale *u, int layer, ist_tensor tokens, const ist_conv_weights *v,
                            const float *out) {
    ist_plan *p = u->net.plan;
    if (ist_plan_status(p)) return;
    float *m = calloc((size_t)INNER * OUTS, sizeof *m);
    if (!m) {
        ist_plan_fail(p, IST_E_MEMORY, "shared upscaling: out of host memory");
        return;
    }
    for (int i = 0; i < INNER; i++)
        for (int k = 0; k < DIM; k++)
            for (int o = 0; o < OUTS; o++) m[i * OUTS + o] += out[i * DIM + k] * u->behind[layer][k * OUTS + o];
    ist_head_fold fold = {.d = INNER / IST_TWO_WAY_HEADS,
                          .k = OUTS,
                          .w = v->w,
                          .b = v->b,
                          .m = m,
                          .scale = 1.0f,
                          .relative = true,
                          .only = {u->sharing.ways, 1}};
    u->sharing.values[layer] = ist_op_fold_heads(p, tokens, (ist_tensor){0}, &fold, "shared upscaling");
    free(m);
}

/* ---- all prompts ---- */

ist_tensor ist_sam_upscale_masks(const ist_sam_upscale *u, ist_tensor image, ist_tensor vectors) {
    if (ist_plan_status(u->net.plan)) return (ist_tensor){0};
    ist_upscale_weights w = {u->w1, u->b1, u->norm.w, u->norm.b, u->w2, u->b2, 1e-6f};
    return ist_op_upscale(u->net.plan, ist_view(image, vectors.n, GRID, GRID), &w, vectors,
                          u->shares ? &u->sharing : NULL, u->seen, "mask_decoder.output_upscaling");
}

void ist_sam_upscale_free(ist_sam_upscale *u) {
    float *all[] = {u->w1, u->b1, u->w2, u->b2, u->behind[0], u->behind[1], u->constants};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    ist_norm_weights_free(&u->norm);
    *u = (ist_sam_upscale){0};
}
