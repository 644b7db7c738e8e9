/* Size tables and the walk over every state dict. The order of visits is the order of the official state_dict. */
#include "weights/arch.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
/*   stage:   in   mid   out blocks layers light */
#define B0 {{ 16,  16,   64, 1, 3, false}, { 64,  32,  256, 1, 3, false}, \
            {256,  64,  512, 2, 3, true},  {512, 128, 1024, 1, 3, true}}
#define B2 {{ 32,  32,   96, 1, 4, false}, { 96,  64,  384, 1, 4, false}, \
            {384, 128,  768, 3, 4, true},  {768, 256, 1536, 1, 4, true}}
#define B4 {{ 48,  48,  128, 1, 6, false}, {128,  96,  512, 1, 6, false}, \
            {512, 192, 1024, 3, 6, true}, {1024, 384, 2048, 1, 6, true}}
#define B5 {{ 64,  64,  128, 1, 6, false}, {128, 128,  512, 2, 6, false}, \
            {512, 256, 1024, 5, 6, true}, {1024, 512, 2048, 2, 6, true}}

/* N, S, M, L, X. The official frozen batch norms (L, X) keep no num_batches_tracked. */
static const ist_dfine_arch dfine_archs[] = {
/*   stem     lab    frozen stages levels C   ff  c4  bottlenecks dim L  ff   points     proj  reg_scale */
    {16, 16, true,  false, B0,    2, 128,  512,  21, 2,         128, 3,  512, {6, 6},    false, 4},
    {16, 16, true,  false, B0,    3, 256, 1024,  64, 1,         256, 3, 1024, {3, 6, 3}, false, 4},
    {24, 32, true,  false, B2,    3, 256, 1024, 128, 2,         256, 4, 1024, {3, 6, 3}, false, 4},
    {32, 48, false, true,  B4,    3, 256, 1024, 128, 3,         256, 6, 1024, {3, 6, 3}, false, 4},
    {32, 64, false, true,  B5,    3, 384, 2048, 192, 3,         256, 6, 1024, {3, 6, 3}, true,  8},
};
/* clang-format on */

const ist_dfine_arch *ist_dfine_arch_of(ist_model_kind kind) {
    return ist_model_is_dfine(kind) ? &dfine_archs[kind - IST_MODEL_DFINE_N] : NULL;
}

const char *ist_model_name(ist_model_kind kind) {
    static const char *const names[] = {
#define X(id, name) name,
        IST_MODEL_LIST(X)
#undef X
    };
    return kind < IST_MODEL_KINDS ? names[kind] : names[IST_MODEL_UNKNOWN];
}

/* A walk in progress. `name` holds the current prefix; entries append their suffix behind it. Failure is sticky. */
typedef struct walk {
    const ist_arch_form *form;
    const ist_dfine_arch *arch;
    ist_arch_visit visit;
    void *user;
    ist_status status;
    bool needed;    /* of the entries emitted now */
    bool tracked;   /* batch norms have num_batches_tracked */
    char name[160]; /* the longest official key has 78 characters */
    size_t length;
} walk;

/* Extends the prefix; returns its old length for leave(). */
static size_t enter(walk *w, const char *fmt, ...) IST_PRINTF(2, 3);
static size_t enter(walk *w, const char *fmt, ...) {
    size_t old = w->length;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(w->name + old, sizeof w->name - old, fmt, ap);
    va_end(ap);
    w->length = old + (size_t)n;
    return old;
}

static void leave(walk *w, size_t length) {
    w->length = length;
    w->name[length] = '\0';
}

static void emit(walk *w, const char *suffix, ist_weight_type type, int rank, const int *dims) {
    if (w->status) return;
    size_t old = enter(w, "%s", suffix);
    ist_arch_entry e = {.name = w->name, .type = type, .rank = rank, .needed = w->needed};
    for (int i = 0; i < rank; i++) e.dims[i] = dims[i];
    w->status = w->visit(w->user, &e);
    leave(w, old);
}

#define EMIT(w, suffix, ...)                                                                                           \
    emit(w, suffix, IST_WEIGHT_F32, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[]){__VA_ARGS__})

/* The same for entries that inference does not read. */
static void emit_unneeded(walk *w, const char *suffix, ist_weight_type type, int rank, const int *dims) {
    bool old = w->needed;
    w->needed = false;
    emit(w, suffix, type, rank, dims);
    w->needed = old;
}

static void batch_norm(walk *w, const char *prefix, int channels) {
    size_t p = enter(w, "%s", prefix);
    EMIT(w, "weight", channels);
    EMIT(w, "bias", channels);
    EMIT(w, "running_mean", channels);
    EMIT(w, "running_var", channels);
    if (w->tracked) emit_unneeded(w, "num_batches_tracked", IST_WEIGHT_I64, 0, NULL);
    leave(w, p);
}

/* weight [out,in] and bias [out] */
static void linear(walk *w, const char *prefix, int out, int in) {
    size_t p = enter(w, "%s", prefix);
    EMIT(w, "weight", out, in);
    EMIT(w, "bias", out);
    leave(w, p);
}

/* weight [n] and bias [n] of a layer norm */
static void norm(walk *w, const char *prefix, int n) {
    size_t p = enter(w, "%s", prefix);
    EMIT(w, "weight", n);
    EMIT(w, "bias", n);
    leave(w, p);
}

static void mlp(walk *w, const char *prefix, int in, int hidden, int out, int layers) {
    size_t p = enter(w, "%s", prefix);
    for (int i = 0; i < layers; i++) {
        size_t q = enter(w, "layers.%d.", i);
        linear(w, "", i == layers - 1 ? out : hidden, i ? hidden : in);
        leave(w, q);
    }
    leave(w, p);
}

/* ---- HGNetv2 backbone ---- */

/* Convolution, batch norm and, for an activated unit of a size with LAB, its two scalars. */
static void hgnet_unit(walk *w, const char *prefix, int out, int in, int k, bool activated) {
    size_t p = enter(w, "%s", prefix);
    EMIT(w, "conv.weight", out, in, k, k);
    batch_norm(w, "bn.", out);
    if (activated && w->arch->lab) {
        EMIT(w, "lab.scale", 1);
        EMIT(w, "lab.bias", 1);
    }
    leave(w, p);
}

static void hgnet_block(walk *w, const ist_hgnet_stage *s, int in) {
    for (int i = 0; i < s->layers; i++) {
        size_t p = enter(w, "layers.%d.", i);
        int from = i ? s->mid : in;
        if (s->light) {
            hgnet_unit(w, "conv1.", s->mid, from, 1, false);
            hgnet_unit(w, "conv2.", s->mid, 1, 5, true);
        } else {
            hgnet_unit(w, "", s->mid, from, 3, true);
        }
        leave(w, p);
    }
    hgnet_unit(w, "aggregation.0.", s->out / 2, in + s->layers * s->mid, 1, true);
    hgnet_unit(w, "aggregation.1.", s->out, s->out / 2, 1, true);
}

static void hgnet(walk *w) {
    const ist_dfine_arch *a = w->arch;
    int m = a->stem_mid;
    w->tracked = !a->frozen_bn;
    size_t p = enter(w, "backbone.");
    hgnet_unit(w, "stem.stem1.", m, 3, 3, true);
    hgnet_unit(w, "stem.stem2a.", m / 2, m, 2, true);
    hgnet_unit(w, "stem.stem2b.", m, m / 2, 2, true);
    hgnet_unit(w, "stem.stem3.", m, 2 * m, 3, true);
    hgnet_unit(w, "stem.stem4.", a->stem_out, m, 1, true);
    for (int i = 0; i < 4; i++) {
        const ist_hgnet_stage *s = &a->stages[i];
        size_t q = enter(w, "stages.%d.", i);
        if (i) hgnet_unit(w, "downsample.", s->in, 1, 3, false);
        for (int b = 0; b < s->blocks; b++) {
            size_t r = enter(w, "blocks.%d.", b);
            hgnet_block(w, s, b ? s->out : s->in);
            leave(w, r);
        }
        leave(w, q);
    }
    leave(w, p);
    w->tracked = true;
}

/* ---- hybrid encoder ---- */

/* A convolution and its batch norm; one convolution with bias where deploy() fuses. */
static void conv_norm(walk *w, const char *prefix, int out, int in, int k, bool fuses) {
    size_t p = enter(w, "%s", prefix);
    if (fuses && w->form->deployed) {
        EMIT(w, "conv_bn_fused.weight", out, in, k, k);
        EMIT(w, "conv_bn_fused.bias", out);
    } else {
        EMIT(w, "conv.weight", out, in, k, k);
        batch_norm(w, "norm.", out);
    }
    leave(w, p);
}

static void csp(walk *w, const char *prefix, int in) {
    int c = w->arch->elan;
    size_t p = enter(w, "%s", prefix);
    conv_norm(w, "0.conv1.", c, in, 1, true);
    conv_norm(w, "0.conv2.", c, in, 1, true);
    for (int b = 0; b < w->arch->bottlenecks; b++) {
        size_t q = enter(w, "0.bottlenecks.%d.", b);
        if (w->form->deployed) {
            EMIT(w, "conv.weight", c, c, 3, 3);
            EMIT(w, "conv.bias", c);
        } else {
            conv_norm(w, "conv1.", c, c, 3, false);
            conv_norm(w, "conv2.", c, c, 1, false);
        }
        leave(w, q);
    }
    conv_norm(w, "1.", c, c, 3, true);
    leave(w, p);
}

/* RepNCSPELAN4: 2 * hidden in, hidden out. */
static void elan(walk *w, const char *list, int index) {
    int c = w->arch->hidden, c4 = w->arch->elan;
    size_t p = enter(w, "%s.%d.", list, index);
    conv_norm(w, "cv1.", 2 * c, 2 * c, 1, true);
    csp(w, "cv2.", c);
    csp(w, "cv3.", c4);
    conv_norm(w, "cv4.", c, 2 * c + 2 * c4, 1, true);
    leave(w, p);
}

static void self_attention(walk *w, const char *prefix, int dim) {
    size_t p = enter(w, "%s", prefix);
    EMIT(w, "in_proj_weight", 3 * dim, dim);
    EMIT(w, "in_proj_bias", 3 * dim);
    linear(w, "out_proj.", dim, dim);
    leave(w, p);
}

static void hybrid_encoder(walk *w) {
    const ist_dfine_arch *a = w->arch;
    int c = a->hidden, n = a->levels;
    size_t p = enter(w, "encoder."), q;
    for (int i = 0; i < n; i++) {
        q = enter(w, "input_proj.%d.", i);
        conv_norm(w, "", c, a->stages[4 - n + i].out, 1, false);
        leave(w, q);
    }
    q = enter(w, "encoder.0.layers.0.");
    self_attention(w, "self_attn.", c);
    linear(w, "linear1.", a->encoder_ff, c);
    linear(w, "linear2.", c, a->encoder_ff);
    norm(w, "norm1.", c);
    norm(w, "norm2.", c);
    leave(w, q);
    for (int i = 0; i < n - 1; i++) {
        q = enter(w, "lateral_convs.%d.", i);
        conv_norm(w, "", c, c, 1, true);
        leave(w, q);
    }
    for (int i = 0; i < n - 1; i++) elan(w, "fpn_blocks", i);
    for (int i = 0; i < n - 1; i++) {
        q = enter(w, "downsample_convs.%d.0.", i);
        conv_norm(w, "cv1.", c, c, 1, true);
        conv_norm(w, "cv2.", c, 1, 3, true);
        leave(w, q);
    }
    for (int i = 0; i < n - 1; i++) elan(w, "pan_blocks", i);
    leave(w, p);
}

/* ---- D-FINE decoder ---- */

static void decoder_layer(walk *w, int index) {
    const ist_dfine_arch *a = w->arch;
    int d = a->dim;
    size_t p = enter(w, "decoder.layers.%d.", index);
    self_attention(w, "self_attn.", d);
    norm(w, "norm1.", d);
    emit_unneeded(w, "cross_attn.num_points_scale", IST_WEIGHT_F32, 1, (int[]){IST_DFINE_POINTS});
    linear(w, "cross_attn.sampling_offsets.", 2 * IST_DFINE_HEADS * IST_DFINE_POINTS, d);
    linear(w, "cross_attn.attention_weights.", IST_DFINE_HEADS * IST_DFINE_POINTS, d);
    linear(w, "gateway.gate.", 2 * d, 2 * d);
    norm(w, "gateway.norm.", d);
    linear(w, "linear1.", a->decoder_ff, d);
    linear(w, "linear2.", d, a->decoder_ff);
    norm(w, "norm3.", d);
    leave(w, p);
}

static void decoder_constants(walk *w) {
    int tokens = 0, n = w->arch->levels;
    for (int i = 0; i < n; i++) {
        int side = w->form->size >> (5 - (n - 1 - i)); /* strides end at 32 */
        tokens += side * side;
    }
    EMIT(w, "up", 1);
    emit(w, "reg_scale", IST_WEIGHT_I64, 1, (int[]){1});
    emit_unneeded(w, "anchors", IST_WEIGHT_F32, 3, (int[]){1, tokens, 4});
    emit_unneeded(w, "valid_mask", IST_WEIGHT_BOOL, 3, (int[]){1, tokens, 1});
}

/* One entry set per decoder layer, of which inference reads the last and a deployed file holds only the last. */
static void per_layer_heads(walk *w, const char *list, bool quality) {
    int last = w->arch->layers - 1;
    for (int i = w->form->deployed ? last : 0; i <= last; i++) {
        w->needed = i == last;
        size_t p = enter(w, "%s.%d.", list, i);
        if (quality)
            mlp(w, "reg_conf.", 4 * 5, 64, 1, 2);
        else
            linear(w, "", w->form->classes, w->arch->dim);
        leave(w, p);
    }
    w->needed = true;
}

static void dfine_decoder(walk *w) {
    const ist_dfine_arch *a = w->arch;
    int d = a->dim;
    size_t p = enter(w, "decoder."), q;
    decoder_constants(w);
    for (int i = 0; a->decoder_proj && i < a->levels; i++) {
        q = enter(w, "input_proj.%d.", i);
        conv_norm(w, "", d, a->hidden, 1, false);
        leave(w, q);
    }
    emit_unneeded(w, "decoder.up", IST_WEIGHT_F32, 1, (int[]){1});
    emit_unneeded(w, "decoder.reg_scale", IST_WEIGHT_I64, 1, (int[]){1});
    for (int i = 0; i < a->layers; i++) decoder_layer(w, i);
    per_layer_heads(w, "decoder.lqe_layers", true);
    emit_unneeded(w, "denoising_class_embed.weight", IST_WEIGHT_F32, 2, (int[]){w->form->classes + 1, d});
    mlp(w, "query_pos_head.", 4, 2 * d, d, 2);
    linear(w, "enc_output.proj.", d, d);
    norm(w, "enc_output.norm.", d);
    linear(w, "enc_score_head.", w->form->classes, d);
    mlp(w, "enc_bbox_head.", d, d, 4, 3);
    per_layer_heads(w, "dec_score_head", false);
    mlp(w, "pre_bbox_head.", d, d, 4, 3);
    for (int i = 0; i < a->layers; i++) {
        q = enter(w, "dec_bbox_head.%d.", i);
        mlp(w, "", d, d, 4 * (IST_DFINE_REG_MAX + 1), 3);
        leave(w, q);
    }
    leave(w, p);
}

/* ---- MobileSAM: TinyViT image encoder ---- */

static void conv_bn(walk *w, const char *prefix, int out, int in, int k) {
    size_t p = enter(w, "%s", prefix);
    EMIT(w, "c.weight", out, in, k, k);
    batch_norm(w, "bn.", out);
    leave(w, p);
}

static void tinyvit_block(walk *w, int dim, int window) {
    int heads = dim / 32;
    EMIT(w, "attn.attention_biases", heads, window * window);
    norm(w, "attn.norm.", dim);
    linear(w, "attn.qkv.", 3 * dim, dim);
    linear(w, "attn.proj.", dim, dim);
    norm(w, "mlp.norm.", dim);
    linear(w, "mlp.fc1.", 4 * dim, dim);
    linear(w, "mlp.fc2.", dim, 4 * dim);
    conv_bn(w, "local_conv.", dim, 1, 3);
}

static void tinyvit_layer(walk *w, int layer, int dim, int blocks, int window, int merged) {
    size_t p = enter(w, "layers.%d.", layer);
    for (int b = 0; b < blocks; b++) {
        size_t q = enter(w, "blocks.%d.", b);
        if (window) {
            tinyvit_block(w, dim, window);
        } else {
            conv_bn(w, "conv1.", 4 * dim, dim, 1);
            conv_bn(w, "conv2.", 4 * dim, 1, 3);
            conv_bn(w, "conv3.", dim, 4 * dim, 1);
        }
        leave(w, q);
    }
    if (merged) {
        conv_bn(w, "downsample.conv1.", merged, dim, 1);
        conv_bn(w, "downsample.conv2.", merged, 1, 3);
        conv_bn(w, "downsample.conv3.", merged, merged, 1);
    }
    leave(w, p);
}

static void tinyvit(walk *w) {
    size_t p = enter(w, "image_encoder.");
    conv_bn(w, "patch_embed.seq.0.", 32, 3, 3);
    conv_bn(w, "patch_embed.seq.2.", 64, 32, 3);
    tinyvit_layer(w, 0, 64, 2, 0, 128);
    tinyvit_layer(w, 1, 128, 2, 7, 160);
    tinyvit_layer(w, 2, 160, 6, 14, 320);
    tinyvit_layer(w, 3, 320, 2, 7, 0);
    w->needed = false; /* the classifier of the pretraining */
    norm(w, "norm_head.", 320);
    linear(w, "head.", 1000, 320);
    w->needed = true;
    EMIT(w, "neck.0.weight", 256, 320, 1, 1);
    norm(w, "neck.1.", 256);
    EMIT(w, "neck.2.weight", 256, 256, 3, 3);
    norm(w, "neck.3.", 256);
    leave(w, p);
}

/* ---- MobileSAM: prompt encoder and mask decoder ---- */

/* A convolution with bias, kernel k x k. */
static void conv_bias(walk *w, const char *prefix, int d0, int d1, int k, int bias) {
    size_t p = enter(w, "%s", prefix);
    EMIT(w, "weight", d0, d1, k, k);
    EMIT(w, "bias", bias);
    leave(w, p);
}

static void prompt_encoder(walk *w) {
    size_t p = enter(w, "prompt_encoder.");
    EMIT(w, "pe_layer.positional_encoding_gaussian_matrix", 2, 128);
    for (int i = 0; i < 4; i++) {
        size_t q = enter(w, "point_embeddings.%d.", i);
        EMIT(w, "weight", 1, 256);
        leave(w, q);
    }
    EMIT(w, "not_a_point_embed.weight", 1, 256);
    conv_bias(w, "mask_downscaling.0.", 4, 1, 2, 4);
    norm(w, "mask_downscaling.1.", 4);
    conv_bias(w, "mask_downscaling.3.", 16, 4, 2, 16);
    norm(w, "mask_downscaling.4.", 16);
    conv_bias(w, "mask_downscaling.6.", 256, 16, 1, 256);
    EMIT(w, "no_mask_embed.weight", 1, 256);
    leave(w, p);
}

static void sam_attention(walk *w, const char *prefix, int inner) {
    size_t p = enter(w, "%s", prefix);
    linear(w, "q_proj.", inner, 256);
    linear(w, "k_proj.", inner, 256);
    linear(w, "v_proj.", inner, 256);
    linear(w, "out_proj.", 256, inner);
    leave(w, p);
}

static void mask_decoder(walk *w) {
    size_t p = enter(w, "mask_decoder."), q;
    for (int i = 0; i < 2; i++) {
        q = enter(w, "transformer.layers.%d.", i);
        sam_attention(w, "self_attn.", 256);
        norm(w, "norm1.", 256);
        sam_attention(w, "cross_attn_token_to_image.", 128);
        norm(w, "norm2.", 256);
        linear(w, "mlp.lin1.", 2048, 256);
        linear(w, "mlp.lin2.", 256, 2048);
        norm(w, "norm3.", 256);
        norm(w, "norm4.", 256);
        sam_attention(w, "cross_attn_image_to_token.", 128);
        leave(w, q);
    }
    sam_attention(w, "transformer.final_attn_token_to_image.", 128);
    norm(w, "transformer.norm_final_attn.", 256);
    EMIT(w, "iou_token.weight", 1, 256);
    EMIT(w, "mask_tokens.weight", 4, 256);
    conv_bias(w, "output_upscaling.0.", 256, 64, 2, 64); /* transposed: [in,out,2,2] */
    norm(w, "output_upscaling.1.", 64);
    conv_bias(w, "output_upscaling.3.", 64, 32, 2, 32);
    for (int i = 0; i < 4; i++) {
        q = enter(w, "output_hypernetworks_mlps.%d.", i);
        mlp(w, "", 256, 256, 32, 3);
        leave(w, q);
    }
    mlp(w, "iou_prediction_head.", 256, 256, 4, 3);
    leave(w, p);
}

ist_status ist_arch_walk(const ist_arch_form *form, ist_arch_visit visit, void *user) {
    walk w = {.form = form,
              .arch = ist_dfine_arch_of(form->kind),
              .visit = visit,
              .user = user,
              .needed = true,
              .tracked = true};
    if (w.arch) {
        hgnet(&w);
        hybrid_encoder(&w);
        dfine_decoder(&w);
    } else if (form->kind == IST_MODEL_MOBILE_SAM) {
        tinyvit(&w);
        prompt_encoder(&w);
        mask_decoder(&w);
    }
    return w.status;
}
