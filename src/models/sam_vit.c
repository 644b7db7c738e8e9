/* SAM's own image encoder, a plain ViT (ImageEncoderViT of facebookresearch/segment-anything's
 * modeling/image_encoder.py, after ViTDet: Li et al., arXiv 2203.16527). ViT-B has 12 blocks of 768 channels, which
 * look at windows of 14 x 14 tokens but for blocks 2, 5, 8 and 11; MedSAM (bowang-lab/MedSAM) is the same network. The
 * checkpoint says how many blocks there are and how wide, how many tokens a side has, and what each block sees: g is
 * the side of the grid of tokens, c the width. */
#include "models/sam.h"
#include "models/tensors.h"

#define OPTS(...) (&(ist_conv_opts){__VA_ARGS__})

static const float LN_EPS = 1e-6f;
enum { HEAD = 64, WINDOW = 14, CHOICES = 32 /* blocks of which the form says what they see */, WIDTH_MAX = 1024 };
static const ist_arch_form vit_b = {
    .side = 1024, .blocks = 12, .width = 768, .whole_map = 1 << 2 | 1 << 5 | 1 << 8 | 1 << 11};

/* Dimension `dim` of a tensor of that rank; 0 where there is none. */
static int extent(const ist_weights *weights, const char *name, int rank, int dim) {
    const ist_weight *t = ist_weights_find(weights, name);
    return t && t->rank == rank && t->dims[dim] > 0 && t->dims[dim] <= 4 * WIDTH_MAX ? (int)t->dims[dim] : 0;
}

/* Blocks 0, 1, .. that the checkpoint has. */
static int blocks_of(const ist_weights *weights) {
    int count = 0;
    while (ist_weights_find(weights, ist_name_of("image_encoder.blocks.%d.norm1.weight", count).text)) count++;
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
                 .pad = ist_take_array(net, "%s.qkv.bias", name.text));            /* [n,g,g,c] */
    return ist_net_dense(net, y, OPTS(.epi.add_before = x), "%s.proj", name.text); /* [n,g,g,c] */
}

/* x + lin2(gelu(lin1 LN(x))), 4 c between: [n,g,g,c]. */
static ist_tensor mlp(const ist_net *net, ist_tensor x, const char *block) {
    ist_name name = ist_name_of("%s.mlp", block);
    return IST_NODE(net, NORM_MLP, norm_mlp, .label = name.text, .x = x, .eps = LN_EPS, .act = IST_ACT_GELU,
                    .norm = ist_take_norm(net, "%s.norm2", block), .fc1 = ist_take_dense(net, "%s.lin1", name.text),
                    .fc2 = ist_take_dense(net, "%s.lin2", name.text));
}

ist_tensor ist_sam_vit(const ist_net *net, ist_tensor image, ist_tensor content) {
    int blocks = blocks_of(net->weights);
    int g = extent(net->weights, "image_encoder.pos_embed", 4, 1), side = g * IST_SAM_PATCH;
    if (image.h != side || image.w != side || image.c != 3)
        ist_graph_fail(net->graph, IST_E_ARGUMENT, "SAM ViT: image [%d,%d,%d,%d], this checkpoint is for %d x %d, RGB",
                       image.n, image.h, image.w, image.c, side, side);
    (void)content; /* every block mixes rows of the picture with those below it */
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

/* ---- tensors ---- */

static void block_tensors(ist_walk *w, int c, int sees) {
    ist_walk_norm(w, "norm1.", c);
    IST_EMIT(w, "attn.rel_pos_h", 2 * sees - 1, HEAD);
    IST_EMIT(w, "attn.rel_pos_w", 2 * sees - 1, HEAD);
    ist_walk_linear(w, "attn.qkv.", 3 * c, c);
    ist_walk_linear(w, "attn.proj.", c, c);
    ist_walk_norm(w, "norm2.", c);
    ist_walk_linear(w, "mlp.lin1.", 4 * c, c);
    ist_walk_linear(w, "mlp.lin2.", c, 4 * c);
}

static void tensors(ist_walk *w) {
    const ist_arch_form *f = w->form->blocks ? w->form : &vit_b;
    int c = f->width, grid = f->side / IST_SAM_PATCH;
    size_t p = ist_walk_enter(w, "image_encoder.");
    IST_EMIT(w, "pos_embed", 1, grid, grid, c);
    ist_walk_conv_bias(w, "patch_embed.proj.", c, 3, IST_SAM_PATCH, c);
    for (int b = 0; b < f->blocks; b++) {
        size_t q = ist_walk_enter(w, "blocks.%d.", b);
        block_tensors(w, c, b < CHOICES && f->whole_map >> b & 1 ? grid : WINDOW);
        ist_walk_leave(w, q);
    }
    ist_sam_neck_tensors(w, c);
    ist_walk_leave(w, p);
    ist_sam_tensors(w);
}

/* What ViT-B has stands for what the file does not tell, and is then what is missed there. */
static void form_of(const ist_weights *weights, ist_arch_form *form) {
    int width = extent(weights, "image_encoder.patch_embed.proj.weight", 4, 0);
    int grid = extent(weights, "image_encoder.pos_embed", 4, 1), blocks = blocks_of(weights);
    form->width = width % HEAD == 0 && width > 0 && width <= WIDTH_MAX ? width : vit_b.width;
    form->side = grid > 0 && grid <= IST_RELATIVE_SIDE_MAX ? grid * IST_SAM_PATCH : vit_b.side;
    form->blocks = blocks ? blocks : vit_b.blocks;
    for (int b = 0; b < blocks && b < CHOICES; b++) {
        int rows = extent(weights, ist_name_of("image_encoder.blocks.%d.attn.rel_pos_h", b).text, 2, 0);
        if (rows == 2 * (form->side / IST_SAM_PATCH) - 1) form->whole_map |= 1u << b;
    }
    if (!blocks) form->whole_map = vit_b.whole_map;
}

const ist_segmenter_model ist_sam_vit_model = {
    .is = {.name = "sam-vit", .family = "SAM ViT", .tensors = tensors, .form = form_of},
    .side = 1024,
    .multiple = 32,
    .least = 64,
    .most = 1024,
    .patch = IST_SAM_PATCH,
    .channels = IST_SAM_DIM,
    .one_side = true,
    .mean = {123.675f, 116.28f, 103.53f},
    .std = {58.395f, 57.12f, 57.375f},
    .encode = ist_sam_vit,
    .boxes = ist_sam_box_tokens,
    .points = ist_sam_prompt_tokens,
    .own_tokens = IST_SAM_OWN_TOKENS,
    .dense = ist_sam_dense_prompt,
    .decode = ist_sam_decode,
};
