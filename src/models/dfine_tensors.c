/* D-FINE's sizes and tensors (Peterande/D-FINE, configs and src/zoo/dfine). The order of visits is the order of the
 * official state_dict. */
#include "models/dfine.h"
#include "models/tensors.h"

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
    return kind >= IST_MODEL_DFINE_N && kind <= IST_MODEL_DFINE_X ? &dfine_archs[kind - IST_MODEL_DFINE_N] : NULL;
}

static const ist_dfine_arch *arch_of(const ist_walk *w) {
    return ist_dfine_arch_of(w->form->kind);
}

/* ---- HGNetv2 backbone ---- */

/* Convolution, batch norm and, for an activated unit of a size with LAB, its two scalars. */
static void hgnet_unit(ist_walk *w, const char *prefix, int out, int in, int k, bool activated) {
    size_t p = ist_walk_enter(w, "%s", prefix);
    IST_EMIT(w, "conv.weight", out, in, k, k);
    ist_walk_batch_norm(w, "bn.", out);
    if (activated && arch_of(w)->lab) {
        IST_EMIT(w, "lab.scale", 1);
        IST_EMIT(w, "lab.bias", 1);
    }
    ist_walk_leave(w, p);
}

static void hgnet_block(ist_walk *w, const ist_hgnet_stage *s, int in) {
    for (int i = 0; i < s->layers; i++) {
        size_t p = ist_walk_enter(w, "layers.%d.", i);
        int from = i ? s->mid : in;
        if (s->light) {
            hgnet_unit(w, "conv1.", s->mid, from, 1, false);
            hgnet_unit(w, "conv2.", s->mid, 1, 5, true);
        } else {
            hgnet_unit(w, "", s->mid, from, 3, true);
        }
        ist_walk_leave(w, p);
    }
    hgnet_unit(w, "aggregation.0.", s->out / 2, in + s->layers * s->mid, 1, true);
    hgnet_unit(w, "aggregation.1.", s->out, s->out / 2, 1, true);
}

static void hgnet(ist_walk *w) {
    const ist_dfine_arch *a = arch_of(w);
    int m = a->stem_mid;
    w->tracked = !a->frozen_bn;
    size_t p = ist_walk_enter(w, "backbone.");
    hgnet_unit(w, "stem.stem1.", m, w->form->channels ? w->form->channels : 3, 3, true);
    hgnet_unit(w, "stem.stem2a.", m / 2, m, 2, true);
    hgnet_unit(w, "stem.stem2b.", m, m / 2, 2, true);
    hgnet_unit(w, "stem.stem3.", m, 2 * m, 3, true);
    hgnet_unit(w, "stem.stem4.", a->stem_out, m, 1, true);
    for (int i = 0; i < 4; i++) {
        const ist_hgnet_stage *s = &a->stages[i];
        size_t q = ist_walk_enter(w, "stages.%d.", i);
        if (i) hgnet_unit(w, "downsample.", s->in, 1, 3, false);
        for (int b = 0; b < s->blocks; b++) {
            size_t r = ist_walk_enter(w, "blocks.%d.", b);
            hgnet_block(w, s, b ? s->out : s->in);
            ist_walk_leave(w, r);
        }
        ist_walk_leave(w, q);
    }
    ist_walk_leave(w, p);
    w->tracked = true;
}

/* ---- hybrid encoder ---- */

/* A convolution and its batch norm; one convolution with bias where deploy() fuses. */
static void conv_norm(ist_walk *w, const char *prefix, int out, int in, int k, bool fuses) {
    size_t p = ist_walk_enter(w, "%s", prefix);
    if (fuses && w->form->deployed) {
        IST_EMIT(w, "conv_bn_fused.weight", out, in, k, k);
        IST_EMIT(w, "conv_bn_fused.bias", out);
    } else {
        IST_EMIT(w, "conv.weight", out, in, k, k);
        ist_walk_batch_norm(w, "norm.", out);
    }
    ist_walk_leave(w, p);
}

static void csp(ist_walk *w, const char *prefix, int in) {
    int c = arch_of(w)->elan;
    size_t p = ist_walk_enter(w, "%s", prefix);
    conv_norm(w, "0.conv1.", c, in, 1, true);
    conv_norm(w, "0.conv2.", c, in, 1, true);
    for (int b = 0; b < arch_of(w)->bottlenecks; b++) {
        size_t q = ist_walk_enter(w, "0.bottlenecks.%d.", b);
        if (w->form->deployed) {
            IST_EMIT(w, "conv.weight", c, c, 3, 3);
            IST_EMIT(w, "conv.bias", c);
        } else {
            conv_norm(w, "conv1.", c, c, 3, false);
            conv_norm(w, "conv2.", c, c, 1, false);
        }
        ist_walk_leave(w, q);
    }
    conv_norm(w, "1.", c, c, 3, true);
    ist_walk_leave(w, p);
}

/* RepNCSPELAN4: 2 * hidden in, hidden out. */
static void elan(ist_walk *w, const char *list, int index) {
    int c = arch_of(w)->hidden, c4 = arch_of(w)->elan;
    size_t p = ist_walk_enter(w, "%s.%d.", list, index);
    conv_norm(w, "cv1.", 2 * c, 2 * c, 1, true);
    csp(w, "cv2.", c);
    csp(w, "cv3.", c4);
    conv_norm(w, "cv4.", c, 2 * c + 2 * c4, 1, true);
    ist_walk_leave(w, p);
}

static void self_attention(ist_walk *w, const char *prefix, int dim) {
    size_t p = ist_walk_enter(w, "%s", prefix);
    IST_EMIT(w, "in_proj_weight", 3 * dim, dim);
    IST_EMIT(w, "in_proj_bias", 3 * dim);
    ist_walk_linear(w, "out_proj.", dim, dim);
    ist_walk_leave(w, p);
}

static void hybrid_encoder(ist_walk *w) {
    const ist_dfine_arch *a = arch_of(w);
    int c = a->hidden, n = a->levels;
    size_t p = ist_walk_enter(w, "encoder."), q;
    for (int i = 0; i < n; i++) {
        q = ist_walk_enter(w, "input_proj.%d.", i);
        conv_norm(w, "", c, a->stages[4 - n + i].out, 1, false);
        ist_walk_leave(w, q);
    }
    q = ist_walk_enter(w, "encoder.0.layers.0.");
    self_attention(w, "self_attn.", c);
    ist_walk_linear(w, "linear1.", a->encoder_ff, c);
    ist_walk_linear(w, "linear2.", c, a->encoder_ff);
    ist_walk_norm(w, "norm1.", c);
    ist_walk_norm(w, "norm2.", c);
    ist_walk_leave(w, q);
    for (int i = 0; i < n - 1; i++) {
        q = ist_walk_enter(w, "lateral_convs.%d.", i);
        conv_norm(w, "", c, c, 1, true);
        ist_walk_leave(w, q);
    }
    for (int i = 0; i < n - 1; i++) elan(w, "fpn_blocks", i);
    for (int i = 0; i < n - 1; i++) {
        q = ist_walk_enter(w, "downsample_convs.%d.0.", i);
        conv_norm(w, "cv1.", c, c, 1, true);
        conv_norm(w, "cv2.", c, 1, 3, true);
        ist_walk_leave(w, q);
    }
    for (int i = 0; i < n - 1; i++) elan(w, "pan_blocks", i);
    ist_walk_leave(w, p);
}

/* ---- D-FINE decoder ---- */

static void decoder_layer(ist_walk *w, int index) {
    const ist_dfine_arch *a = arch_of(w);
    int d = a->dim;
    size_t p = ist_walk_enter(w, "decoder.layers.%d.", index);
    self_attention(w, "self_attn.", d);
    ist_walk_norm(w, "norm1.", d);
    ist_walk_emit_unneeded(w, "cross_attn.num_points_scale", IST_WEIGHT_F32, 1, (int[]){IST_DFINE_POINTS});
    ist_walk_linear(w, "cross_attn.sampling_offsets.", 2 * IST_DFINE_HEADS * IST_DFINE_POINTS, d);
    ist_walk_linear(w, "cross_attn.attention_weights.", IST_DFINE_HEADS * IST_DFINE_POINTS, d);
    ist_walk_linear(w, "gateway.gate.", 2 * d, 2 * d);
    ist_walk_norm(w, "gateway.norm.", d);
    ist_walk_linear(w, "linear1.", a->decoder_ff, d);
    ist_walk_linear(w, "linear2.", d, a->decoder_ff);
    ist_walk_norm(w, "norm3.", d);
    ist_walk_leave(w, p);
}

static void decoder_constants(ist_walk *w) {
    int tokens = 0, n = arch_of(w)->levels;
    for (int i = 0; i < n; i++) {
        int side = w->form->size >> (5 - (n - 1 - i)); /* strides end at 32 */
        tokens += side * side;
    }
    IST_EMIT(w, "up", 1);
    ist_walk_emit(w, "reg_scale", IST_WEIGHT_I64, 1, (int[]){1});
    ist_walk_emit_unneeded(w, "anchors", IST_WEIGHT_F32, 3, (int[]){1, tokens, 4});
    ist_walk_emit_unneeded(w, "valid_mask", IST_WEIGHT_BOOL, 3, (int[]){1, tokens, 1});
}

/* One entry set per decoder layer, of which inference reads the last and a deployed file holds only the last. */
static void per_layer_heads(ist_walk *w, const char *list, bool quality) {
    int last = arch_of(w)->layers - 1;
    for (int i = w->form->deployed ? last : 0; i <= last; i++) {
        w->needed = i == last;
        size_t p = ist_walk_enter(w, "%s.%d.", list, i);
        if (quality)
            ist_walk_mlp(w, "reg_conf.", 4 * 5, 64, 1, 2);
        else
            ist_walk_linear(w, "", w->form->classes, arch_of(w)->dim);
        ist_walk_leave(w, p);
    }
    w->needed = true;
}

static void dfine_decoder(ist_walk *w) {
    const ist_dfine_arch *a = arch_of(w);
    int d = a->dim;
    size_t p = ist_walk_enter(w, "decoder."), q;
    decoder_constants(w);
    for (int i = 0; a->decoder_proj && i < a->levels; i++) {
        q = ist_walk_enter(w, "input_proj.%d.", i);
        conv_norm(w, "", d, a->hidden, 1, false);
        ist_walk_leave(w, q);
    }
    ist_walk_emit_unneeded(w, "decoder.up", IST_WEIGHT_F32, 1, (int[]){1});
    ist_walk_emit_unneeded(w, "decoder.reg_scale", IST_WEIGHT_I64, 1, (int[]){1});
    for (int i = 0; i < a->layers; i++) decoder_layer(w, i);
    per_layer_heads(w, "decoder.lqe_layers", true);
    ist_walk_emit_unneeded(w, "denoising_class_embed.weight", IST_WEIGHT_F32, 2, (int[]){w->form->classes + 1, d});
    ist_walk_mlp(w, "query_pos_head.", 4, 2 * d, d, 2);
    ist_walk_linear(w, "enc_output.proj.", d, d);
    ist_walk_norm(w, "enc_output.norm.", d);
    ist_walk_linear(w, "enc_score_head.", w->form->classes, d);
    ist_walk_mlp(w, "enc_bbox_head.", d, d, 4, 3);
    per_layer_heads(w, "dec_score_head", false);
    ist_walk_mlp(w, "pre_bbox_head.", d, d, 4, 3);
    for (int i = 0; i < a->layers; i++) {
        q = ist_walk_enter(w, "dec_bbox_head.%d.", i);
        ist_walk_mlp(w, "", d, d, 4 * (IST_DFINE_REG_MAX + 1), 3);
        ist_walk_leave(w, q);
    }
    ist_walk_leave(w, p);
}

void ist_dfine_tensors(ist_walk *w) {
    hgnet(w);
    hybrid_encoder(w);
    dfine_decoder(w);
}

/* ---- what a file has ---- */

/* Rows of a class head; 0 when none of them is in the file. */
static int class_rows(const ist_weights *weights, const ist_dfine_arch *arch) {
    char last[64];
    snprintf(last, sizeof last, "decoder.dec_score_head.%d.weight", arch->layers - 1);
    const char *const heads[] = {"decoder.enc_score_head.weight", last};
    for (int i = 0; i < 2; i++) {
        const ist_weight *t = ist_weights_find(weights, heads[i]);
        if (t && t->rank == 2 && t->dims[0] > 0 && t->dims[0] <= IST_WEIGHTS_CLASSES_MAX) return (int)t->dims[0];
    }
    return 0;
}

/* Channels of the images that the stem reads: 1, 3 or 4. */
static int stem_channels(const ist_weights *weights) {
    const ist_weight *t = ist_weights_find(weights, "backbone.stem.stem1.conv.weight");
    return t && t->rank == 4 && (t->dims[1] == 1 || t->dims[1] == 4) ? (int)t->dims[1] : 3;
}

void ist_dfine_form(const ist_weights *weights, ist_arch_form *form) {
    form->size = 640;
    form->channels = stem_channels(weights);
    form->classes = class_rows(weights, ist_dfine_arch_of(form->kind));
    /* DEIM's tensors are those of D-FINE: only somebody who knows can say it, in the metadata. */
    const char *act = ist_weights_metadata(weights, "activation");
    form->silu = act && !strcmp(act, "silu");
    form->deployed = ist_weights_find(weights, "encoder.lateral_convs.0.conv_bn_fused.weight") != NULL;
}
