/* Hugging Face D-FINE names come back as the official ones. tests/golden/weights/names.txt pairs every tensor of
 * D-FINE-N with its names in transformers' DFineForObjectDetection (tests/official/make_weights.py). */
#include "models/checkpoint.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAIRS_MAX 700

/* official, then one or three names */
static char words[PAIRS_MAX][4][128];
static int pairs;

typedef struct shape_job {
    const char *name;
    ist_arch_entry found;
} shape_job;

static ist_status find_shape(void *user, const ist_arch_entry *e) {
    shape_job *job = user;
    if (strcmp(e->name, job->name)) return IST_OK;
    job->found = *e;
    return IST_E_STATE;
}

static ist_arch_entry shape_of(const char *official) {
    ist_arch_form form = {.kind = IST_MODEL_DFINE_N, .classes = 80, .size = 640};
    shape_job job = {.name = official};
    cr_assert_eq(ist_arch_walk(&form, find_shape, &job), IST_E_STATE, "%s", official);
    return job.found;
}

static void read_pairs(void) {
    FILE *f = fopen(IST_GOLDEN_DIR "/weights/names.txt", "r");
    char line[600];
    cr_assert_not_null(f);
    for (pairs = 0; fgets(line, sizeof line, f); pairs++) {
        cr_assert_lt(pairs, PAIRS_MAX);
        int n =
            sscanf(line, "%127s %127s %127s %127s", words[pairs][0], words[pairs][1], words[pairs][2], words[pairs][3]);
        cr_assert(n == 2 || n == 4, "%s", line);
        if (n == 2) *words[pairs][2] = '\0';
    }
    fclose(f);
    cr_assert_eq(pairs, 591);
}

/* A tensor filled with one byte, so that it is known again wherever it goes. */
static void add(ist_weights *w, const char *name, const ist_arch_entry *e, int parts, int mark) {
    ist_error err;
    int64_t dims[4];
    size_t n = 1;
    memcpy(dims, e->dims, sizeof dims);
    dims[0] /= parts;
    for (int i = 0; i < e->rank; i++) n *= (size_t)dims[i];
    uint8_t *data = malloc(n);
    memset(data, mark, n);
    cr_assert_eq(ist_weights_add(w, name, IST_WEIGHT_U8, e->rank, dims, data, &err), IST_OK, "%s", err.text);
    free(data);
}

/* What a reader sees of a file that holds `w`. */
static ist_status through_file(ist_weights *w, ist_weights **out, ist_error *err) {
    char path[512] = IST_BUILD_DIR "/names_XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    cr_assert_eq(ist_weights_save_safetensors(w, path, false, err), IST_OK, "%s", err->text);
    ist_weights_close(&w);
    ist_status status = ist_weights_open(path, out, err);
    remove(path);
    return status;
}

static ist_weights *create(void) {
    ist_weights *w = NULL;
    cr_assert_eq(ist_weights_create(&w, NULL), IST_OK);
    return w;
}

/* Everything of row `i` of the pair list, with marks that depend on the row and the part. */
static void add_row(ist_weights *w, int i, const char *(*rename)(const char *name)) {
    ist_arch_entry e = shape_of(words[i][0]);
    int parts = *words[i][2] ? 3 : 1;
    for (int k = 0; k < parts; k++) {
        const char *name = words[i][1 + k];
        add(w, rename ? rename(name) : name, &e, parts, (i * 3 + k) & 0xff);
    }
}

static void expect_row(const ist_weights *w, int i) {
    const ist_weight *t = ist_weights_find(w, words[i][0]);
    ist_arch_entry e = shape_of(words[i][0]);
    ist_error err;
    cr_assert_not_null(t, "%s (%s)", words[i][0], words[i][1]);
    cr_expect_eq(ist_weight_check_shape(t, e.rank, e.dims, &err), IST_OK, "%s", err.text);
    size_t parts = *words[i][2] ? 3 : 1;
    const uint8_t *bytes = t->data;
    for (size_t k = 0; k < t->bytes; k++) {
        size_t part = k / (t->bytes / parts);
        cr_assert_eq(bytes[k], ((size_t)i * 3 + part) & 0xff, "%s came from the wrong tensor", t->name);
    }
}

static void expect_all(const char *(*rename)(const char *name)) {
    ist_weights *w = create(), *r = NULL;
    ist_error err;
    read_pairs();
    for (int i = 0; i < pairs; i++) add_row(w, i, rename);
    cr_assert_eq(through_file(w, &r, &err), IST_OK, "%s", err.text);
    cr_expect_eq(ist_weights_count(r), (size_t)pairs);
    cr_expect_str_eq(ist_weights_naming(r), "huggingface");
    for (int i = 0; i < pairs; i++) expect_row(r, i);
    ist_checkpoint_info info;
    cr_assert_eq(ist_checkpoint_identify(r, &info, &err), IST_OK, "%s", err.text);
    cr_expect_eq(info.kind, IST_MODEL_DFINE_N);
    cr_expect_eq(info.classes, 80);
    cr_expect_eq(ist_checkpoint_check(&info, &err), IST_OK, "%s", err.text);
    ist_checkpoint_info_free(&info);
    ist_weights_close(&r);
}

/* What is listed as unused is listed by the names that the file has. */
Test(weights_names, unused_names_are_those_of_the_file) {
    ist_weights *w = create(), *r = NULL;
    ist_error err;
    read_pairs();
    for (int i = 0; i < pairs; i++) add_row(w, i, NULL);
    static const char counter[] = "model.backbone.model.embedder.stem1.normalization.num_batches_tracked";
    cr_assert_eq(ist_weights_add(w, counter, IST_WEIGHT_U8, 0, NULL, "", &err), IST_OK);
    cr_assert_eq(through_file(w, &r, &err), IST_OK, "%s", err.text);
    ist_checkpoint_info info;
    cr_assert_eq(ist_checkpoint_identify(r, &info, &err), IST_OK, "%s", err.text);
    bool listed = false;
    for (size_t i = 0; i < info.unused.count; i++) {
        bool official = false;
        for (int k = 0; k < pairs; k++)
            official |= strcmp(words[k][0], words[k][1]) && !strcmp(info.unused.items[i], words[k][0]);
        cr_expect(!official, "%s", info.unused.items[i]);
        listed |= !strcmp(info.unused.items[i], counter);
    }
    cr_expect(listed);
    ist_checkpoint_info_free(&info);
    ist_weights_close(&r);
}

Test(weights_names, hugging_face_2025) {
    expect_all(NULL);
}

/* The same module in later releases: encoder.aifi, o_proj, mlp.layers. */
static const char *later_name(const char *name) {
    static char out[256];
    static const char *const changes[][2] = {{"encoder.encoder.", "encoder.aifi."},
                                             {".out_proj.", ".o_proj."},
                                             {".fc1.", ".mlp.layers.0."},
                                             {".fc2.", ".mlp.layers.1."}};
    snprintf(out, sizeof out, "%s", name);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *at = strstr(out, changes[i][0]), tail[256];
        if (!at) continue;
        snprintf(tail, sizeof tail, "%s", at + strlen(changes[i][0]));
        snprintf(at, sizeof out - (size_t)(at - out), "%s%s", changes[i][1], tail);
    }
    return out;
}

Test(weights_names, hugging_face_later) {
    expect_all(later_name);
}

/* The heads only under the names that share storage with the decoder's. */
static const char *head_alias(const char *name) {
    const char *prefix = "model.decoder.";
    bool head = strstr(name, "decoder.class_embed.") || strstr(name, "decoder.bbox_embed.");
    return head ? name + strlen(prefix) : name;
}

Test(weights_names, heads_under_their_other_name) {
    expect_all(head_alias);
}

static ist_status small(const char *const *names, size_t n, ist_weights **out, ist_error *err) {
    ist_weights *w = create();
    ist_arch_entry e = {.rank = 1, .dims = {2}};
    add(w, "model.backbone.model.embedder.stem1.convolution.weight", &e, 1, 1);
    for (size_t i = 0; i < n; i++) add(w, names[i], &e, 1, 10 + (int)i);
    return through_file(w, out, err);
}

Test(weights_names, both_names_of_a_head) {
    const char *const names[] = {"class_embed.0.bias", "model.decoder.class_embed.0.bias"};
    ist_weights *w = NULL;
    ist_error err;
    cr_assert_eq(small(names, 2, &w, &err), IST_OK, "%s", err.text);
    cr_expect_eq(ist_weights_count(w), 2);
    cr_expect_eq(*(const uint8_t *)ist_weights_find(w, "decoder.dec_score_head.0.bias")->data, 11);
    ist_weights_close(&w);
}

Test(weights_names, incomplete_projections_stay) {
    const char *const names[] = {"model.decoder.layers.0.self_attn.q_proj.bias",
                                 "model.decoder.layers.0.self_attn.v_proj.bias"};
    ist_weights *w = NULL;
    ist_error err;
    cr_assert_eq(small(names, 2, &w, &err), IST_OK, "%s", err.text);
    cr_expect_not_null(ist_weights_find(w, "decoder.decoder.layers.0.self_attn.q_proj.bias"));
    cr_expect_null(ist_weights_find(w, "decoder.decoder.layers.0.self_attn.in_proj_bias"));
    ist_weights_close(&w);
}

Test(weights_names, unequal_projections_are_refused) {
    ist_weights *w = create(), *r = NULL;
    ist_error err;
    ist_arch_entry e = {.rank = 1, .dims = {2}}, longer = {.rank = 1, .dims = {3}};
    add(w, "model.encoder_input_proj.0.0.weight", &e, 1, 1);
    add(w, "model.decoder.layers.0.self_attn.q_proj.bias", &e, 1, 1);
    add(w, "model.decoder.layers.0.self_attn.k_proj.bias", &longer, 1, 1);
    add(w, "model.decoder.layers.0.self_attn.v_proj.bias", &e, 1, 1);
    cr_expect_eq(through_file(w, &r, &err), IST_E_WEIGHTS);
    cr_expect_not_null(strstr(err.text, "k_proj.bias: type or shape differs from"), "%s", err.text);
}

Test(weights_names, decoder_projection_of_x) {
    const char *const names[] = {"model.decoder_input_proj.2.0.weight", "model.decoder_input_proj.2.1.running_var"};
    ist_weights *w = NULL;
    ist_error err;
    cr_assert_eq(small(names, 2, &w, &err), IST_OK, "%s", err.text);
    cr_expect_not_null(ist_weights_find(w, "decoder.input_proj.2.conv.weight"));
    cr_expect_not_null(ist_weights_find(w, "decoder.input_proj.2.norm.running_var"));
    ist_weights_close(&w);
}

/* q, k and v of the official MobileSAM are separate and stay so. */
Test(weights_names, official_names_stay) {
    ist_weights *w = create(), *r = NULL;
    ist_error err;
    ist_arch_entry e = {.rank = 1, .dims = {2}};
    const char *const names[] = {"mask_decoder.x.self_attn.q_proj.bias", "mask_decoder.x.self_attn.k_proj.bias",
                                 "mask_decoder.x.self_attn.v_proj.bias"};
    for (int i = 0; i < 3; i++) add(w, names[i], &e, 1, i);
    cr_assert_eq(through_file(w, &r, &err), IST_OK, "%s", err.text);
    for (int i = 0; i < 3; i++) cr_expect_not_null(ist_weights_find(r, names[i]));
    cr_expect_str_eq(ist_weights_naming(r), "official");
    ist_weights_close(&r);
}
