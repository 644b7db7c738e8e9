/* Models are recognised by their tensors; what is missing, misshapen, unused or in the wrong slot is named. */
#include "synth.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A change to one entry of an otherwise complete checkpoint. */
typedef struct change {
    const char *name; /* NULL: none */
    bool drop;
    int64_t add; /* to the first dim */
} change;

typedef struct build_job {
    ist_weights *weights;
    change change;
} build_job;

/* One byte per element: only names and shapes count here. */
static ist_status add_entry(void *user, const ist_arch_entry *e) {
    build_job *job = user;
    ist_error err;
    int64_t dims[4];
    memcpy(dims, e->dims, sizeof dims);
    if (job->change.name && !strcmp(job->change.name, e->name)) {
        if (job->change.drop) return IST_OK;
        dims[0] += job->change.add;
    }
    size_t n = 1;
    for (int i = 0; i < e->rank; i++) n *= (size_t)dims[i];
    void *zeros = calloc(n, 1);
    ist_status status = ist_weights_add(job->weights, e->name, IST_WEIGHT_U8, e->rank, dims, zeros, &err);
    cr_assert_eq(status, IST_OK, "%s", err.text);
    free(zeros);
    return IST_OK;
}

static ist_weights *build(ist_model_kind kind, int classes, bool deployed, change c) {
    ist_weights *w = NULL;
    cr_assert_eq(ist_weights_create(&w, NULL), IST_OK);
    ist_arch_form form = {.kind = kind, .classes = classes, .size = 640, .deployed = deployed};
    build_job job = {w, c};
    cr_assert_eq(ist_arch_walk(&form, add_entry, &job), IST_OK);
    return w;
}

static void expect_recognised(ist_model_kind kind, int classes, bool deployed) {
    ist_weights *w = build(kind, classes, deployed, (change){0});
    ist_checkpoint_info info;
    ist_error err;
    cr_assert_eq(ist_checkpoint_identify(w, &info, &err), IST_OK, "%s", err.text);
    cr_expect_eq(info.kind, kind, "%s taken for %s", ist_model_name(kind), ist_model_name(info.kind));
    cr_expect_eq(info.classes, ist_model_is(kind, IST_SLOT_DETECTOR) ? classes : 0);
    cr_expect_eq(info.deployed, deployed);
    cr_expect_eq(info.missing.count + info.mismatched.count, 0);
    cr_expect_eq(ist_checkpoint_check(&info, &err), IST_OK);
    ist_checkpoint_info_free(&info);
    ist_weights_close(&w);
}

Test(weights_checkpoint, every_model) {
    for (int k = IST_MODEL_DFINE_N; k < IST_MODEL_KINDS; k++) expect_recognised((ist_model_kind)k, 80, false);
}

Test(weights_checkpoint, any_class_count) {
    expect_recognised(IST_MODEL_DFINE_N, 1, false);
    expect_recognised(IST_MODEL_DFINE_S, 366, false);
    expect_recognised(IST_MODEL_DFINE_N, 2000, false);
}

Test(weights_checkpoint, deployed) {
    expect_recognised(IST_MODEL_DFINE_N, 80, true);
    expect_recognised(IST_MODEL_DFINE_M, 3, true);
}

static void expect_problem(change c, const char *sentence) {
    ist_weights *w = build(IST_MODEL_DFINE_S, 7, false, c);
    ist_checkpoint_info info;
    ist_error err;
    cr_assert_eq(ist_checkpoint_identify(w, &info, &err), IST_OK, "%s", err.text);
    cr_expect_eq(info.kind, IST_MODEL_DFINE_S);
    cr_expect_eq(ist_checkpoint_check(&info, &err), IST_E_WEIGHTS);
    cr_expect_str_eq(err.text, sentence);
    ist_checkpoint_info_free(&info);
    ist_weights_close(&w);
}

Test(weights_checkpoint, missing_and_misshapen) {
    expect_problem((change){"encoder.pan_blocks.1.cv4.norm.bias", true, 0},
                   "encoder.pan_blocks.1.cv4.norm.bias: missing from this dfine-s checkpoint");
    expect_problem((change){"backbone.stem.stem3.conv.weight", false, 1},
                   "backbone.stem.stem3.conv.weight: want [16,32,3,3], file has [17,32,3,3]");
    expect_problem((change){"decoder.dec_score_head.2.bias", false, -1},
                   "decoder.dec_score_head.2.bias: want [7], file has [6]");
}

Test(weights_checkpoint, unneeded_tensors_may_be_absent_or_odd) {
    const char *const names[] = {"decoder.anchors", "decoder.denoising_class_embed.weight",
                                 "decoder.dec_score_head.0.weight", "backbone.stem.stem1.bn.num_batches_tracked",
                                 "decoder.decoder.up"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ist_weights *w = build(IST_MODEL_DFINE_S, 7, false, (change){names[i], true, 0});
        ist_checkpoint_info info;
        cr_assert_eq(ist_checkpoint_identify(w, &info, NULL), IST_OK);
        cr_expect_eq(ist_checkpoint_check(&info, NULL), IST_OK, "%s", names[i]);
        ist_checkpoint_info_free(&info);
        ist_weights_close(&w);
    }
}

/* Half a checkpoint is still recognised; the sentence counts what is wrong. */
Test(weights_checkpoint, counts_problems) {
    ist_weights *all = build(IST_MODEL_MOBILE_SAM, 0, false, (change){0}), *w = NULL;
    ist_error err;
    ist_checkpoint_info info;
    cr_assert_eq(ist_weights_create(&w, &err), IST_OK);
    for (size_t i = 0; i < ist_weights_count(all); i++) {
        const ist_weight *t = ist_weights_at(all, i);
        if (strncmp(t->name, "prompt_encoder.", 15))
            cr_assert_eq(ist_weights_add(w, t->name, t->type, t->rank, t->dims, t->data, &err), IST_OK);
    }
    cr_assert_eq(ist_checkpoint_identify(w, &info, &err), IST_OK, "%s", err.text);
    cr_expect_eq(info.missing.count, 17);
    cr_expect_eq(ist_checkpoint_check(&info, &err), IST_E_WEIGHTS);
    cr_expect_str_eq(err.text,
                     "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix: missing from this mobilesam "
                     "checkpoint (and 16 more problems)");
    ist_checkpoint_info_free(&info);
    ist_weights_close(&w);
    ist_weights_close(&all);
}

Test(weights_checkpoint, no_known_model) {
    ist_weights *w = NULL;
    ist_error err;
    ist_checkpoint_info info;
    cr_assert_eq(ist_weights_create(&w, &err), IST_OK);
    cr_assert_eq(ist_weights_add(w, "fc.weight", IST_WEIGHT_U8, 0, NULL, "", &err), IST_OK);
    cr_expect_eq(ist_checkpoint_identify(w, &info, &err), IST_E_WEIGHTS);
    cr_expect_not_null(
        strstr(err.text, "is neither D-FINE nor MobileSAM nor SAM ViT: of its 1 tensor (first: fc.weight) none is known"), "%s",
        err.text);
    ist_checkpoint_info_free(&info);
    cr_assert_eq(ist_weights_add(w, "mask_decoder.iou_token.weight", IST_WEIGHT_U8, 2, (int64_t[]){1, 256},
                                 (char[256]){0}, &err),
                 IST_OK);
    cr_expect_eq(ist_checkpoint_identify(w, &info, &err), IST_E_WEIGHTS);
    cr_expect_not_null(strstr(err.text, "the closest, sam-vit, finds 1 of its 314 tensors"), "%s", err.text);
    ist_checkpoint_info_free(&info);
    ist_weights_close(&w);
}

Test(weights_checkpoint, facts) {
    ist_weights *w = NULL;
    ist_error err;
    ist_checkpoint_info info;
    char text[64];
    cr_assert_eq(synth_weights(IST_MODEL_MOBILE_SAM, 1, 1, &w, &err), IST_OK);
    cr_assert_eq(ist_checkpoint_identify(w, &info, &err), IST_OK, "%s", err.text);
    cr_expect_eq(info.parameters, 10130092);
    cr_expect_eq(info.tensors, 439);
    cr_expect_eq(info.unused.count, 31);
    cr_expect_str_eq(ist_checkpoint_types_text(&info, text, sizeof text), "F32 412, I64 27");
    cr_expect_eq(strlen(ist_checkpoint_types_text(&info, text, 8)), 7);
    ist_checkpoint_info_free(&info);
    ist_checkpoint_info_free(&info);
    ist_weights_close(&w);
}

static char path[512];

static void write_model(ist_model_kind kind) {
    snprintf(path, sizeof path, IST_BUILD_DIR "/checkpoint_XXXXXX");
    int fd = mkstemp(path);
    ist_error err;
    cr_assert_geq(fd, 0);
    close(fd);
    cr_assert_eq(synth_checkpoint(kind, 2, 3, path, &err), IST_OK, "%s", err.text);
}

Test(weights_checkpoint, slots) {
    ist_weights *w = NULL;
    ist_checkpoint_info info;
    ist_error err;
    write_model(IST_MODEL_DFINE_N);
    cr_assert_eq(ist_checkpoint_open(path, IST_SLOT_DETECTOR, &w, &info, &err), IST_OK, "%s", err.text);
    cr_expect_eq(info.classes, 2);
    cr_expect_str_eq(ist_weights_metadata(w, "synthetic_seed"), "3");
    ist_checkpoint_info_free(&info);
    ist_weights_close(&w);
    cr_expect_eq(ist_checkpoint_open(path, IST_SLOT_SEGMENTER, &w, &info, &err), IST_E_WEIGHTS);
    cr_expect_not_null(strstr(err.text, ": is a dfine-n checkpoint; the segmenter must be MobileSAM or SAM ViT"), "%s", err.text);
    cr_expect_null(w);
    remove(path);
    write_model(IST_MODEL_MOBILE_SAM);
    cr_expect_eq(ist_checkpoint_open(path, IST_SLOT_DETECTOR, &w, &info, &err), IST_E_WEIGHTS);
    cr_expect_not_null(strstr(err.text, ": is a mobilesam checkpoint; the detector must be D-FINE"), "%s", err.text);
    remove(path);
    cr_expect_eq(ist_checkpoint_open(path, IST_SLOT_DETECTOR, &w, &info, &err), IST_E_IO);
}
