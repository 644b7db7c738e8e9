/* Tensors of what all segmenters of SAM share: prompt encoder and mask decoder (segment-anything's modeling). */
#include "models/sam.h"
#include "models/tensors.h"

static void prompt_encoder(ist_walk *w) {
    size_t p = ist_walk_enter(w, "prompt_encoder.");
    IST_EMIT(w, "pe_layer.positional_encoding_gaussian_matrix", 2, 128);
    for (int i = 0; i < 4; i++) {
        size_t q = ist_walk_enter(w, "point_embeddings.%d.", i);
        IST_EMIT(w, "weight", 1, 256);
        ist_walk_leave(w, q);
    }
    IST_EMIT(w, "not_a_point_embed.weight", 1, 256);
    ist_walk_conv_bias(w, "mask_downscaling.0.", 4, 1, 2, 4);
    ist_walk_norm(w, "mask_downscaling.1.", 4);
    ist_walk_conv_bias(w, "mask_downscaling.3.", 16, 4, 2, 16);
    ist_walk_norm(w, "mask_downscaling.4.", 16);
    ist_walk_conv_bias(w, "mask_downscaling.6.", 256, 16, 1, 256);
    IST_EMIT(w, "no_mask_embed.weight", 1, 256);
    ist_walk_leave(w, p);
}

static void sam_attention(ist_walk *w, const char *prefix, int inner) {
    size_t p = ist_walk_enter(w, "%s", prefix);
    ist_walk_linear(w, "q_proj.", inner, 256);
    ist_walk_linear(w, "k_proj.", inner, 256);
    ist_walk_linear(w, "v_proj.", inner, 256);
    ist_walk_linear(w, "out_proj.", 256, inner);
    ist_walk_leave(w, p);
}

static void mask_decoder(ist_walk *w) {
    size_t p = ist_walk_enter(w, "mask_decoder."), q;
    for (int i = 0; i < 2; i++) {
        q = ist_walk_enter(w, "transformer.layers.%d.", i);
        sam_attention(w, "self_attn.", 256);
        ist_walk_norm(w, "norm1.", 256);
        sam_attention(w, "cross_attn_token_to_image.", 128);
        ist_walk_norm(w, "norm2.", 256);
        ist_walk_linear(w, "mlp.lin1.", 2048, 256);
        ist_walk_linear(w, "mlp.lin2.", 256, 2048);
        ist_walk_norm(w, "norm3.", 256);
        ist_walk_norm(w, "norm4.", 256);
        sam_attention(w, "cross_attn_image_to_token.", 128);
        ist_walk_leave(w, q);
    }
    sam_attention(w, "transformer.final_attn_token_to_image.", 128);
    ist_walk_norm(w, "transformer.norm_final_attn.", 256);
    IST_EMIT(w, "iou_token.weight", 1, 256);
    IST_EMIT(w, "mask_tokens.weight", 4, 256);
    ist_walk_conv_bias(w, "output_upscaling.0.", 256, 64, 2, 64); /* transposed: [in,out,2,2] */
    ist_walk_norm(w, "output_upscaling.1.", 64);
    ist_walk_conv_bias(w, "output_upscaling.3.", 64, 32, 2, 32);
    for (int i = 0; i < 4; i++) {
        q = ist_walk_enter(w, "output_hypernetworks_mlps.%d.", i);
        ist_walk_mlp(w, "", 256, 256, 32, 3);
        ist_walk_leave(w, q);
    }
    ist_walk_mlp(w, "iou_prediction_head.", 256, 256, 4, 3);
    ist_walk_leave(w, p);
}

void ist_sam_neck_tensors(ist_walk *w, int c) {
    IST_EMIT(w, "neck.0.weight", 256, c, 1, 1);
    ist_walk_norm(w, "neck.1.", 256);
    IST_EMIT(w, "neck.2.weight", 256, 256, 3, 3);
    ist_walk_norm(w, "neck.3.", 256);
}

void ist_sam_tensors(ist_walk *w) {
    prompt_encoder(w);
    mask_decoder(w);
}
