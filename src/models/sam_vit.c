/* SAM's own image encoder, a plain ViT (ImageEncoderViT of facebookresearch/segment-anything's modeling/image_encoder.py,
 * after ViTDet: Li et al., arXiv 2203.16527). ViT-B has 12 blocks of 768 channels, which look at windows of 14 x 14
 * tokens but for blocks 2, 5, 8 and 11; MedSAM (bowang-lab/MedSAM) is the same network. The checkpoint says how many
 * blocks there are and how wide, how many tokens a side has, and what each block sees: g is the side of the grid of
 * tokens, c the width. */
#include "models/sam.h"

#define OPTS(...) (&(ist_conv_opts){__VA_ARGS__})

static const float LN_EPS = 1e-6f;
enum { HEAD = 64 };

/* Blocks 0, 1, .. that the checkpoint has. */
static int blocks_of(const ist_net *net) {
    int count = 0;
    while (ist_weights_find(net->weights, ist_name_of("image_encoder.blocks.%d.norm1.weight", count).text)) count++;
    return count;
}

/* Patches of 16 x 16 pixels, and where they lie: [n,16 g,16 g,3] -> [n,g,g,c]. */
static ist_tensor patch_embed(const ist_net *net, ist_tensor image) {
    int g = image.w / IST_SAM_PATCH;
    ist_filter patch = ist_take_dense(net, "image_encoder.patch_embed.proj");
    ist_tensor where = IST_NODE(net, PARAMETER, parameter, .label = "image_encoder.pos_embed",
                                .y = {.n = 1, .h = g, .w = g, .c = patch.out},
                                .rows = {ist_take_array(net, "image_encoder.pos_embed")}); /* [1,g,g,c] */
    return ist_net_apply(net, image, patch, OPTS(.stride = IST_SAM_PATCH, .epi.add_before = where),
                         "image_encoder.patch_embed.proj"); /* [n,g,g,c] */
}

/* x + proj(attention(qkv LN(x))). */
static ist_tensor attention(const ist_net *net, ist_tensor x, const char *block) {
    ist_name name = ist_name_of("%s.attn", block), norm = ist_name_of("%s.norm1", block);
    ist_tensor y = IST_NODE(net, NORM_MLP, norm_mlp, .label = norm.text, .x = x, .eps = LN_EPS,
                            .norm = ist_take_norm(net, "%s", norm.text),
                            .fc1 = ist_take_dense(net, "%s.qkv", name.text)); /* [n,g,g,3 c] */
    y = IST_NODE(net, RELATIVE_ATTENTION, relative_attention, .label = name.text, .qkv = y, .heads = x.c / HEAD,
                 .rel_h = ist_take_array(net, "%s.rel_pos_h", name.text),
                 .rel_w = ist_take_array(net, "%s.rel_pos_w", name.text),
                 .pad = ist_take_array(net, "%s.qkv.bias", name.text));                /* [n,g,g,c] */
    return ist_net_dense(net, y, OPTS(.epi.add_before = x), "%s.proj", name.text); /* [n,g,g,c] */
}

/* x + lin2(gelu(lin1 LN(x))), 4 c between: [n,g,g,c]. */
static ist_tensor mlp(const ist_net *net, ist_tensor x, const char *block) {
    ist_name name = ist_name_of("%s.mlp", block);
    return IST_NODE(net, NORM_MLP, norm_mlp, .label = name.text, .x = x, .eps = LN_EPS, .act = IST_ACT_GELU,
                    .norm = ist_take_norm(net, "%s.norm2", block), .fc1 = ist_take_dense(net, "%s.lin1", name.text),
                    .fc2 = ist_take_dense(net, "%s.lin2", name.text));
}

ist_tensor ist_sam_vit(const ist_net *net, ist_tensor image) {
    int blocks = blocks_of(net);
    ist_graph_reduced(net->graph, true);
    ist_tensor x = patch_embed(net, image); /* [n,g,g,c] */
    ist_net_name(net, x, "patch_embed");
    for (int b = 0; b < blocks; b++) {
        ist_name block = ist_name_of("image_encoder.blocks.%d", b);
        x = attention(net, x, block.text); /* [n,g,g,c] */
        x = mlp(net, x, block.text);       /* [n,g,g,c] */
        ist_net_name(net, x, "block%d", b);
    }
    x = ist_sam_neck(net, x); /* [n,g,g,256] */
    ist_graph_reduced(net->graph, false);
    ist_net_name(net, x, "embedding");
    return x;
}
