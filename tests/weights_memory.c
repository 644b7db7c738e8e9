/* Every allocation that fails, at every position, ends in IST_E_MEMORY (or the library's own sentence) and leaks
 * nothing. Only calls from the project's objects fail here; jansson gets the same treatment through its hooks. */
#include "base/sha256.h"
#include "support/host_memory.h"
#include "synth.h"
#include "weights/fold.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[512];

/* Runs `work` with the first, second, .. allocation failing until none fails; returns how many positions there were. */
static long every_position(ist_status (*work)(ist_error *err)) {
    for (long at = 1; at < 100000; at++) {
        ist_error err = {0};
        blocks = calls = 0;
        fail_at = at;
        ist_status status = work(&err);
        fail_at = 0;
        cr_assert_eq(blocks, 0, "allocation %ld: %ld blocks leaked", at, blocks);
        if (calls < at) {
            cr_expect_eq(status, IST_OK, "%s", err.text);
            return at - 1;
        }
        cr_assert_neq(status, IST_OK, "allocation %ld failed unseen", at);
        cr_assert_gt(strlen(err.text), 0);
    }
    return -1;
}

static ist_status open_path(ist_error *err) {
    ist_weights *w = NULL;
    ist_status status = ist_weights_open(path, &w, err);
    ist_weights_close(&w);
    return status;
}

Test(weights_memory, torch) {
    snprintf(path, sizeof path, IST_GOLDEN_DIR "/weights/training.pth");
    cr_expect_gt(every_position(open_path), 50);
    snprintf(path, sizeof path, IST_GOLDEN_DIR "/weights/parameter.pth");
    cr_expect_gt(every_position(open_path), 30);
    snprintf(path, sizeof path, IST_GOLDEN_DIR "/weights/views.pth");
    cr_expect_gt(every_position(open_path), 30);
    snprintf(path, sizeof path, IST_GOLDEN_DIR "/weights/legacy_objects.pth");
    cr_expect_gt(every_position(open_path), 50);
}

/* What SHA256SUMS names is read once more, through a buffer. */
Test(weights_memory, listed) {
    char folder[] = IST_BUILD_DIR "/memory_XXXXXX", list[512], sum[IST_SHA256_TEXT];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/m.pth", folder);
    snprintf(list, sizeof list, "%s/SHA256SUMS", folder);
    cr_assert_eq(symlink(IST_GOLDEN_DIR "/weights/legacy.pth", path), 0);
    long unlisted = every_position(open_path);
    cr_assert_eq(ist_sha256_file(path, sum, NULL), IST_OK);
    FILE *f = fopen(list, "w");
    cr_assert_not_null(f);
    fprintf(f, "%s  m.pth\n", sum);
    fclose(f);
    cr_expect_gt(every_position(open_path), unlisted);
    remove(list);
    remove(path);
    rmdir(folder);
}

static ist_weights *small(ist_error *err) {
    static const char *const names[] = {"model.encoder_input_proj.0.0.weight",
                                        "model.decoder.layers.0.self_attn.q_proj.bias",
                                        "model.decoder.layers.0.self_attn.k_proj.bias",
                                        "model.decoder.layers.0.self_attn.v_proj.bias",
                                        "class_embed.0.bias",
                                        "model.decoder.class_embed.0.bias"};
    ist_weights *w = NULL;
    if (ist_weights_create(&w, err)) return NULL;
    ist_status status = ist_weights_set_metadata(w, "names", "[\"a\",\"b\"]", err);
    for (size_t i = 0; i < sizeof names / sizeof *names && !status; i++)
        status = ist_weights_add(w, names[i], IST_WEIGHT_F32, 1, (int64_t[]){2}, (float[]){1, 2}, err);
    if (status) ist_weights_close(&w);
    return w;
}

static ist_status save(ist_error *err) {
    ist_weights *w = small(err);
    if (!w) return IST_E_MEMORY;
    ist_status status = ist_weights_save_safetensors(w, path, true, err);
    ist_weights_close(&w);
    return status;
}

static void temporary(void) {
    snprintf(path, sizeof path, IST_BUILD_DIR "/memory_XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
}

Test(weights_memory, safetensors) {
    ist_error err;
    temporary();
    cr_assert_eq(save(&err), IST_OK, "%s", err.text);
    cr_expect_gt(every_position(open_path), 20);
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
    cr_expect_gt(every_position(save), 100);
    remove(path);
}

static ist_weights *model;

static ist_status identify(ist_error *err) {
    ist_checkpoint_info info;
    ist_status status = ist_checkpoint_identify(model, &info, err);
    ist_checkpoint_info_free(&info);
    return status;
}

static ist_status fold(ist_error *err) {
    ist_conv_weights c = {0}, r = {0}, l = {0};
    ist_norm_weights n = {0};
    ist_status status = ist_fold_conv(model, "backbone.stem.stem1.conv.weight", "backbone.stem.stem1.bn",
                                      "backbone.stem.stem1.lab", &c, err);
    if (!status) status = ist_fold_repvgg(model, "encoder.fpn_blocks.0.cv2.0.bottlenecks.0", &r, err);
    if (!status)
        status = ist_load_linear(model, "decoder.enc_output.proj.weight", "decoder.enc_output.proj.bias", &l, err);
    if (!status) status = ist_load_norm(model, "decoder.enc_output.norm", &n, err);
    ist_conv_weights_free(&c);
    ist_conv_weights_free(&r);
    ist_conv_weights_free(&l);
    ist_norm_weights_free(&n);
    return status;
}

Test(weights_memory, models) {
    ist_error err;
    cr_assert_eq(synth_weights(IST_MODEL_DFINE_N, 3, 1, &model, &err), IST_OK, "%s", err.text);
    cr_expect_gt(every_position(identify), 50);
    cr_expect_geq(every_position(fold), 20);
    ist_weights_close(&model);
}
