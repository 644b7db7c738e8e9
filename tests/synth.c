/* Synthetic checkpoints and images; tests/golden/README.md is the definition, weights_synth.c has the check values. */
#include "synth.h"

#include "base/mem.h"
#include "models/dfine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ODD 0x9E3779B97F4A7C15u

/* ---- generator ---- */

uint64_t synth_fnv1a64(const void *bytes, size_t size) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < size; i++) h = (h ^ ((const uint8_t *)bytes)[i]) * 0x100000001B3u;
    return h;
}

uint64_t synth_base(const char *name, uint64_t seed) {
    return synth_fnv1a64(name, strlen(name)) ^ seed * ODD;
}

uint32_t synth_draw(uint64_t base, uint64_t i) {
    uint64_t z = base + i + ODD;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ z >> 31) >> 40);
}

/* Signed: [-2^23, 2^23). */
static int64_t draw(uint64_t base, uint64_t i) {
    return (int64_t)synth_draw(base, i) - (1 << 23);
}

/* In [-1, 1), exact. */
static double unit(uint64_t base, uint64_t i) {
    return (double)draw(base, i) * 0x1p-23;
}

/* ---- weights ---- */

static bool contains(const char *key, const char *part) {
    return strstr(key, part) != NULL;
}

/* Variance gain: the first substring found in the key decides. */
static double gain(const char *key) {
    static const struct {
        const char *part;
        double gain;
    } gains[] = {
        {".conv1.conv.", 1.0},
        {".bottlenecks.", 1.4},
        {"downsample.conv.", 1.0},
        {"downsample_convs", 1.0},
        {"input_proj", 1.0},
        {"lateral_convs", 1.0},
        {"aggregation.1.", 1.6},
        {"in_proj_weight", 2.0},
        {"self_attn.out_proj.", 0.25},
        {"attention_weights", 4.0},
        {"sampling_offsets", 1.0},
        {"query_pos_head.layers.0.", 8.0},
        {"enc_bbox_head.layers.2", 0.0625},
        {"pre_bbox_head.layers.2", 0.0625},
        {"score_head", 2.0},
        {"backbone.stem.", 3.0},
        {"backbone.", 2.2},
        {".cv4.", 4.0},
        {"fpn_blocks", 2.2},
        {"pan_blocks", 2.2},
        {".q_proj.", 4.0},
        {".k_proj.", 4.0},
        {".qkv.", 4.0},
        {"output_upscaling", 4.0},
        {"patch_embed", 2.0},
        {".conv1.c.", 2.0},
        {".conv2.c.", 2.0},
        {"fc2", 2.0},
        {"lin2", 2.0},
        {"layers.1.weight", 2.0},
    };
    for (size_t i = 0; i < sizeof gains / sizeof *gains; i++)
        if (contains(key, gains[i].part)) return gains[i].gain;
    return 1.0;
}

/* Embedding tables and other rank-2 tensors that are not matrices. */
static bool is_table(const char *key) {
    static const char *const parts[] = {
        "point_embeddings.",
        "not_a_point_embed.",
        "no_mask_embed.",
        "class_embed.",
        "iou_token.",
        "mask_tokens.",
        "positional_encoding_gaussian_matrix",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (contains(key, parts[i])) return true;
    return false;
}

/* add + factor * u(i) */
static void fill(uint64_t base, uint64_t n, double add, double factor, float *dst) {
    for (uint64_t i = 0; i < n; i++) dst[i] = (float)(add + factor * unit(base, i));
}

/* Filters with half of each one's mean taken out: without it deep ReLU stacks map all positions to nearly the same
 * features. */
static void fill_filters(uint64_t base, uint64_t rows, uint64_t row, double amplitude, float *dst) {
    double c = amplitude / (16777216.0 * (double)row);
    for (uint64_t r = 0; r < rows; r++) {
        int64_t sum = 0;
        for (uint64_t i = 0; i < row; i++) sum += draw(base, r * row + i);
        for (uint64_t i = 0; i < row; i++)
            dst[r * row + i] = (float)((double)(2 * (int64_t)row * draw(base, r * row + i) - sum) * c);
    }
}

static void fill_vector(const char *key, uint64_t base, uint64_t n, float *dst) {
    size_t length = strlen(key);
    static const char box_bias[] = "enc_bbox_head.layers.2.bias";
    size_t tail = sizeof box_bias - 1;
    if (length >= tail && !strcmp(key + length - tail, box_bias)) {
        for (uint64_t i = 0; i < n; i++) dst[i] = (float)(unit(base, i) / 4 + (i >= 2 ? 0.75 : 0.0));
    } else if (contains(key, "score_head")) {
        fill(base, n, -2.5, 0.5, dst);
    } else if (contains(key, "sampling_offsets")) {
        fill(base, n, 0, 2, dst);
    } else {
        fill(base, n, 0, 0.125, dst);
    }
}

void synth_weight(const char *key, int rank, const int64_t *dims, uint64_t seed, float *dst) {
    uint64_t base = synth_base(key, seed), n = 1;
    for (int i = 0; i < rank; i++) n *= (uint64_t)dims[i];
    const char *dot = strrchr(key, '.'), *last = dot ? dot + 1 : key;
    if (!strcmp(last, "running_var")) {
        fill(base, n, 1, 0.25, dst);
    } else if (!strcmp(last, "running_mean")) {
        fill(base, n, 0, 0.125, dst);
    } else if (!strcmp(last, "scale") || (rank == 1 && !strcmp(last, "weight"))) {
        fill(base, n, 1, 0.125, dst);
    } else if (!strcmp(last, "attention_biases")) {
        fill(base, n, 0, 2, dst);
    } else if (!strcmp(last, "pos_embed")) {
        fill(base, n, 0, 1, dst);
    } else if (is_table(key)) {
        fill(base, n, 0, 1, dst);
    } else if (rank == 1) {
        fill_vector(key, base, n, dst);
    } else if (contains(key, "local_conv.c.weight")) {
        for (uint64_t i = 0; i < n; i++) dst[i] = (float)(unit(base, i) / 4 + (i % 9 == 4 ? 1.0 : 0.0));
    } else {
        uint64_t row = n / (uint64_t)dims[0];
        double amplitude = sqrt(3.0 * gain(key) / (double)row);
        if (rank == 4 && dims[1] >= 2)
            fill_filters(base, (uint64_t)dims[0], row, amplitude, dst);
        else
            fill(base, n, 0, amplitude, dst);
    }
}

/* ---- constants that the architecture fixes ---- */

/* anchors [1,T,4] as logits, infinite where a side lies outside (0.01, 0.99); valid_mask [1,T,1] for the same rows. */
static void fill_anchors(const ist_arch_form *form, bool mask, void *dst) {
    const ist_dfine_arch *a = ist_dfine_arch_of(form->kind);
    size_t row = 0;
    for (int level = 0; level < a->levels; level++) {
        int side = form->size >> (5 - (a->levels - 1 - level));
        double box = 0.05 * (double)(1 << level);
        for (int cell = 0; cell < side * side; cell++, row++) {
            double v[4] = {(cell % side + 0.5) / side, (cell / side + 0.5) / side, box, box};
            bool valid = true;
            for (int i = 0; i < 4; i++) valid = valid && v[i] > 0.01 && v[i] < 0.99;
            if (mask) ((uint8_t *)dst)[row] = valid;
            for (int i = 0; i < 4 && !mask; i++)
                ((float *)dst)[4 * row + (size_t)i] = valid ? (float)log(v[i] / (1 - v[i])) : INFINITY;
        }
    }
}

/* 1 / points of the level each point belongs to. */
static void fill_points_scale(const ist_dfine_arch *a, float *dst) {
    for (int level = 0, p = 0; level < a->levels; level++)
        for (int i = 0; i < a->points[level]; i++) dst[p++] = 1.0f / (float)a->points[level];
}

static bool fill_constant(const ist_arch_form *form, const ist_arch_entry *e, void *dst) {
    const ist_dfine_arch *a = ist_dfine_arch_of(form->kind);
    const char *dot = strrchr(e->name, '.'), *last = dot ? dot + 1 : e->name;
    if (!strcmp(last, "num_batches_tracked"))
        *(int64_t *)dst = 0;
    else if (!strcmp(last, "anchors") || !strcmp(last, "valid_mask"))
        fill_anchors(form, !strcmp(last, "valid_mask"), dst);
    else if (!strcmp(last, "num_points_scale"))
        fill_points_scale(a, dst);
    else if (!strcmp(last, "up"))
        *(float *)dst = 0.5f;
    else if (!strcmp(last, "reg_scale"))
        *(int64_t *)dst = a->reg_scale;
    else
        return false;
    return true;
}

/* ---- checkpoints ---- */

ist_model_kind synth_kind(const char *model) {
    static const char *const shorts[IST_MODEL_KINDS] = {"", "n", "s", "m", "l", "x", "sam", "sam_vit_b"};
    for (int k = IST_MODEL_DFINE_N; k < IST_MODEL_KINDS; k++)
        if (!strcmp(model, shorts[k]) || !strcmp(model, ist_model_name((ist_model_kind)k))) return (ist_model_kind)k;
    return IST_MODEL_UNKNOWN;
}

uint64_t synth_golden_seed(ist_model_kind kind, uint64_t seed) {
    static const int salts[IST_MODEL_KINDS] = {0, 49, 29, 22, 4, 13, 0, 0};
    return seed + 1000u * (uint64_t)salts[kind];
}

typedef struct synth_job {
    const ist_arch_form *form;
    uint64_t seed;
    ist_weights *weights;
    ist_error *err;
} synth_job;

static ist_status add_entry(void *user, const ist_arch_entry *e) {
    const synth_job *job = user;
    size_t n = 1;
    for (int i = 0; i < e->rank; i++) n *= (size_t)e->dims[i];
    void *values = malloc(n * 8); /* 8: the widest type */
    if (!values) return ist_fail(job->err, IST_E_MEMORY, "%s: out of host memory", e->name);
    if (!fill_constant(job->form, e, values)) synth_weight(e->name, e->rank, e->dims, job->seed, values);
    ist_status status = ist_weights_add(job->weights, e->name, e->type, e->rank, e->dims, values, job->err);
    free(values);
    return status;
}

ist_status synth_weights_of(const ist_arch_form *form, uint64_t seed, ist_weights **out, ist_error *err) {
    ist_weights *w = NULL;
    if (form->kind == IST_MODEL_UNKNOWN) return ist_fail(err, IST_E_ARGUMENT, "no such model to make up");
    IST_TRY(ist_weights_create(&w, err));
    synth_job job = {form, seed, w, err};
    ist_status status = ist_arch_walk(form, add_entry, &job);
    if (status)
        ist_weights_close(&w);
    else
        *out = w;
    return status;
}

ist_status synth_weights(ist_model_kind kind, int classes, uint64_t seed, ist_weights **out, ist_error *err) {
    if (classes < 1) return ist_fail(err, IST_E_ARGUMENT, "no model with %d classes to make up", classes);
    return synth_weights_of(&(ist_arch_form){.kind = kind, .classes = classes, .size = 640}, seed, out, err);
}

ist_status synth_checkpoint(ist_model_kind kind, int classes, uint64_t seed, const char *path, ist_error *err) {
    ist_arch_form form = {.kind = kind, .classes = classes, .size = 640};
    return synth_form_checkpoint(&form, seed, NULL, NULL, path, err);
}

ist_status synth_form_checkpoint(const ist_arch_form *form, uint64_t seed, const char *key, const char *value,
                                 const char *path, ist_error *err) {
    ist_weights *w = NULL;
    IST_TRY(synth_weights_of(form, seed, &w, err));
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
    ist_status status = ist_weights_set_metadata(w, "synthetic_seed", text, err);
    if (!status && key) status = ist_weights_set_metadata(w, key, value, err);
    if (!status) status = ist_weights_save_safetensors(w, path, false, err);
    ist_weights_close(&w);
    return status;
}

/* ---- image ---- */

static int byte_at(uint64_t base, int64_t i) {
    return (int)(synth_draw(base, (uint64_t)i) >> 16);
}

/* Bilinear noise on a lattice of 2^bits pixels, 0..255. */
static int lattice(uint64_t base, int bits, int plane, int height, int width, int y, int x) {
    int s = 1 << bits, gh = (height >> bits) + 2, gw = (width >> bits) + 2;
    int gy = y >> bits, gx = x >> bits, fy = y & (s - 1), fx = x & (s - 1);
    int64_t at = (int64_t)(plane * gh + gy) * gw + gx;
    return (byte_at(base, at) * (s - fy) * (s - fx) + byte_at(base, at + 1) * (s - fy) * fx +
            byte_at(base, at + gw) * fy * (s - fx) + byte_at(base, at + gw + 1) * fy * fx) >>
           (2 * bits);
}

static int clamp255(int v) {
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

/* An ellipse that brightens or darkens what it covers. */
typedef struct blob {
    int64_t cx, cy, rx, ry;
    int shift[3];
} blob;

static void make_blobs(int height, int width, uint64_t seed, blob blobs[8]) {
    uint64_t base = synth_base("phantom.blobs", seed);
    for (uint64_t b = 0; b < 8; b++) {
        int64_t q[8];
        for (uint64_t m = 0; m < 8; m++) q[m] = synth_draw(base, 8 * b + m);
        blobs[b] = (blob){q[0] * width >> 24,
                          q[1] * height >> 24,
                          width / 32 + (q[2] * (width / 6) >> 24),
                          height / 32 + (q[3] * (height / 6) >> 24),
                          {0}};
        for (int c = 0; c < 3; c++) blobs[b].shift[c] = (int)(q[4 + c] * 161 >> 24) - 60;
    }
}

void synth_phantom(int height, int width, uint64_t seed, uint8_t *rgb) {
    uint64_t coarse = synth_base("phantom.coarse", seed), fine = synth_base("phantom.fine", seed);
    uint64_t speckle = synth_base("phantom.speckle", seed);
    blob blobs[8];
    make_blobs(height, width, seed, blobs);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            int64_t at = (int64_t)y * width + x;
            int r = (int)synth_draw(speckle, (uint64_t)at), detail = lattice(fine, 5, 0, height, width, y, x);
            for (int c = 0; c < 3; c++) {
                int v = (3 * lattice(coarse, 6, c, height, width, y, x) + detail) >> 2;
                for (const blob *b = blobs; b < blobs + 8; b++) {
                    int64_t dx = x - b->cx, dy = y - b->cy;
                    if (dx * dx * b->ry * b->ry + dy * dy * b->rx * b->rx <= b->rx * b->rx * b->ry * b->ry)
                        v += b->shift[c];
                }
                v = clamp255(v) * (192 + (r >> 17)) >> 8;
                rgb[3 * at + c] = (uint8_t)clamp255(v + ((r >> (4 * c)) & 7) - 4);
            }
        }
}
