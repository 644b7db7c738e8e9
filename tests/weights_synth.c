/* The synthetic generator against its published self-check values. */
#include "synth.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static float *make(const char *key, int rank, const int64_t *dims, uint64_t seed, size_t *count) {
    *count = 1;
    for (int i = 0; i < rank; i++) *count *= (size_t)dims[i];
    float *v = malloc(*count * sizeof *v);
    cr_assert_not_null(v);
    synth_weight(key, rank, dims, seed, v);
    return v;
}

static void expect_values(const char *key, int rank, const int64_t *dims, uint64_t seed, size_t first, size_t n,
                          const float *want) {
    size_t count;
    float *v = make(key, rank, dims, seed, &count);
    for (size_t i = 0; i < n; i++) cr_expect_eq(v[first + i], want[i], "%s[%zu] = %.9g", key, first + i, v[first + i]);
    free(v);
}

static void expect_hash(const char *key, int rank, const int64_t *dims, uint64_t seed, uint64_t want) {
    size_t count;
    float *v = make(key, rank, dims, seed, &count);
    cr_expect_eq(synth_fnv1a64(v, count * sizeof *v), want, "%s", key);
    free(v);
}

Test(weights_synth, values) {
    expect_values("backbone.stem.stem1.conv.weight", 4, (int64_t[]){16, 3, 3, 3}, 49001, 0, 4,
                  (float[]){0.536257923f, 0.435582608f, 0.233712405f, -0.196392566f});
    expect_values("decoder.dec_score_head.2.bias", 1, (int64_t[]){80}, 49001, 0, 4,
                  (float[]){-2.74512458f, -2.68757391f, -2.49373531f, -2.59701443f});
    expect_values("decoder.enc_output.proj.weight", 2, (int64_t[]){128, 128}, 49001, 0, 4,
                  (float[]){-0.0702629089f, -0.0496610776f, 0.0798678547f, -0.136052638f});
    expect_values("image_encoder.layers.1.blocks.0.local_conv.c.weight", 4, (int64_t[]){128, 1, 3, 3}, 1, 3, 4,
                  (float[]){0.175805867f, 1.14673483f, -0.0532973111f, -0.0177618563f});
}

Test(weights_synth, hashes) {
    expect_hash("backbone.stem.stem1.conv.weight", 4, (int64_t[]){16, 3, 3, 3}, 49001, 0x91d9c7aec87a0f20u);
    expect_hash("backbone.stages.2.blocks.1.aggregation.0.conv.weight", 4, (int64_t[]){256, 704, 1, 1}, 49001,
                0x11dd49ffc6f19ad7u);
}

Test(weights_synth, image) {
    const size_t bytes = 640 * 640 * 3;
    uint8_t *rgb = malloc(bytes);
    cr_assert_not_null(rgb);
    synth_phantom(640, 640, 49001, rgb);
    const uint8_t first[] = {92, 169, 33, 89, 163, 39};
    cr_expect_arr_eq(rgb, first, sizeof first);
    cr_expect_eq(synth_fnv1a64(rgb, bytes), 0x242b8ee79b7a5b38u);
    free(rgb);
}

Test(weights_synth, seeds_and_kinds) {
    cr_expect_eq(synth_kind("n"), IST_MODEL_DFINE_N);
    cr_expect_eq(synth_kind("dfine-x"), IST_MODEL_DFINE_X);
    cr_expect_eq(synth_kind("sam"), IST_MODEL_MOBILE_SAM);
    cr_expect_eq(synth_kind("sam_vit_b"), IST_MODEL_SAM_VIT);
    cr_expect_eq(synth_kind(""), IST_MODEL_UNKNOWN);
    cr_expect_eq(synth_golden_seed(IST_MODEL_DFINE_N, 1), 49001);
    cr_expect_eq(synth_golden_seed(IST_MODEL_DFINE_L, 1), 4001);
    cr_expect_eq(synth_golden_seed(IST_MODEL_MOBILE_SAM, 1), 1);
}

Test(weights_synth, constants_of_the_architecture) {
    ist_error err;
    ist_weights *w = NULL;
    cr_assert_eq(synth_weights(IST_MODEL_DFINE_N, 2, 5, &w, &err), IST_OK, "%s", err.text);
    float v;
    cr_expect_eq(ist_weights_scalar(w, "decoder.reg_scale", &v, &err), IST_OK);
    cr_expect_eq(v, 4);
    cr_expect_eq(ist_weights_find(w, "decoder.reg_scale")->type, IST_WEIGHT_I64);
    const ist_weight *anchors = ist_weights_find(w, "decoder.anchors");
    cr_assert_eq(anchors->count, 2000 * 4);
    const float *a = anchors->data; /* row 1: centre (1.5/40, 0.5/40), logits; level of stride 32 starts at row 1600 */
    cr_expect_float_eq(a[4], -3.2452f, 1e-3f);
    cr_expect_float_eq(a[6], -2.9444f, 1e-3f);
    cr_expect_float_eq(a[1600 * 4 + 2], -2.1972f, 1e-3f);
    cr_expect_eq(ist_weights_find(w, "decoder.denoising_class_embed.weight")->dims[0], 3);
    ist_weights_close(&w);
    cr_expect_null(w);
}
