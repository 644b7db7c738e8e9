/* TinyViT-5M, MobileSAM's image encoder (ChaoningZhang/MobileSAM, modeling/tiny_vit_sam.py), for square inputs of any side
 * that is a multiple of 32: 1024 in MobileSAM, 256 in LiteMedSAM. */
#include "models/sam.h"
#include "models/tensors.h"

#include <stdlib.h>

#define OPTS(...) (&(ist_conv_opts){__VA_ARGS__})

static const float LN_EPS = 1e-5f;

/* Convolution BLOCK.PART.c and its batch norm. */
static ist_filter take(const ist_net *net, const char *block, const char *part) {
    ist_name weight = ist_name_of("%s.%s.c.weight", block, part), bn = ist_name_of("%s.%s.bn", block, part);
    return ist_take_conv(net, weight.text, bn.text);
}

/* [n,s,s,3] -> [n,s/4,s/4,64]. */
static ist_tensor patch_embed(const ist_net *net, ist_tensor image, ist_tensor content) {
    static const char name[] = "image_encoder.patch_embed";
    return IST_NODE(net, PATCH_EMBED, patch_embed, .label = name, .image = image, .content = content,
                    .first = take(net, name, "seq.0"), .second = take(net, name, "seq.2"));
}

/* Expansion, depthwise convolution, projection. */
static ist_tensor bottleneck(const ist_net *net, ist_mbconv block, const char *name) {
    block.label = name;
    block.expand = take(net, name, "conv1");
    block.spread = take(net, name, "conv2");
    block.project = take(net, name, "conv3");
    return ist_net_node(net, IST_NODE_MBCONV, &block);
}

/* The last GELU comes after the sum: [n,h,w,c] -> [n,h,w,c], 4 c between. */
static ist_tensor mbconv(const ist_net *net, ist_tensor x, int b) {
    ist_name name = ist_name_of("image_encoder.layers.0.blocks.%d", b);
    return bottleneck(net, (ist_mbconv){.x = x, .stride = 1, .residual = true, .act = IST_ACT_GELU}, name.text);
}

/* Patch merging: [n,h,w,c] -> [n,h/s,w/s,out]. */
static ist_tensor merge(const ist_net *net, ist_tensor x, int layer, int stride) {
    ist_name name = ist_name_of("image_encoder.layers.%d.downsample", layer);
    x = bottleneck(net, (ist_mbconv){.x = x, .stride = stride}, name.text);
    ist_net_name(net, x, "layer%d.down", layer);
    return x;
}

/* Window attention with its norm, not its projection. Padding tokens of a window are zeros behind the norm. */
static ist_tensor attention(const ist_net *net, ist_tensor x, int heads, int ws, const char *name) {
    return IST_NODE(net, NORM_WINDOW, norm_window, .label = name, .x = x, .heads = heads, .ws = ws, .eps = LN_EPS,
                    .norm = ist_take_norm(net, "%s.norm", name), .qkv = ist_take_dense(net, "%s.qkv", name),
                    .bias = ist_take_array(net, "%s.attention_biases", name));
}

/* z + fc2(gelu(fc1(LN(z)))), 4 c between, of z = local_conv(x). */
static ist_tensor local_mlp(const ist_net *net, ist_tensor x, const char *name) {
    ist_name mlp = ist_name_of("%s.mlp", name);
    return IST_NODE(net, NORM_MLP, norm_mlp, .label = mlp.text, .x = x, .eps = LN_EPS, .act = IST_ACT_GELU,
                    .spread = take(net, name, "local_conv"), .norm = ist_take_norm(net, "%s.norm", mlp.text),
                    .fc1 = ist_take_dense(net, "%s.fc1", mlp.text), .fc2 = ist_take_dense(net, "%s.fc2", mlp.text));
}

/* A stage of window blocks. */
static ist_tensor stage(const ist_net *net, ist_tensor x, int layer, int blocks, int heads, int ws) {
    for (int b = 0; b < blocks; b++) {
        ist_name name = ist_name_of("image_encoder.layers.%d.blocks.%d", layer, b);
        ist_name attn = ist_name_of("%s.attn", name.text);
        ist_tensor y = attention(net, x, heads, ws, attn.text); /* [n,h,w,c] */
        ist_graph_begin(net->graph, IST_SPAN_PROJECTED_MLP, "%s", name.text);
        x = ist_net_dense(net, y, OPTS(.epi.add_before = x), "%s.proj", attn.text); /* [n,h,w,c] */
        x = local_mlp(net, x, name.text);                                           /* [n,h,w,c] */
        ist_graph_end(net->graph);
        ist_net_name(net, x, "layer%d.block%d", layer, b);
    }
    return x;
}

ist_tensor ist_tinyvit(const ist_net *net, ist_tensor image, ist_tensor content) {
    if (image.h != image.w || image.h % 32 || image.h < 32 || image.c != 3)
        ist_graph_fail(net->graph, IST_E_ARGUMENT, "TinyViT: image [%d,%d,%d,%d], it takes squares of multiples of 32, RGB",
                       image.n, image.h, image.w, image.c);
    ist_graph_reduced(net->graph, true);
    ist_tensor x = patch_embed(net, image, content); /* [n,s/4,s/4,64] */
    ist_net_name(net, x, "patch_embed");
    for (int b = 0; b < 2; b++) {
        x = mbconv(net, x, b); /* [n,s/4,s/4,64] */
        ist_net_name(net, x, "layer0.block%d", b);
    }
    x = merge(net, x, 0, 2);         /* [n,s/8,s/8,128] */
    x = stage(net, x, 1, 2, 4, 7);   /* [n,s/8,s/8,128] */
    x = merge(net, x, 1, 2);         /* [n,s/16,s/16,160] */
    x = stage(net, x, 2, 6, 5, 14);  /* [n,s/16,s/16,160] */
    x = merge(net, x, 2, 1);         /* [n,s/16,s/16,320] */
    x = stage(net, x, 3, 2, 10, 7);  /* [n,s/16,s/16,320] */
    x = ist_sam_neck(net, x);        /* [n,s/16,s/16,256] */
    ist_graph_reduced(net->graph, false);
    ist_net_name(net, x, "embedding");
    return x;
}

/* ---- tensors ---- */

static void conv_tensors(ist_walk *w, const char *prefix, int out, int in, int k) {
    size_t p = ist_walk_enter(w, "%s", prefix);
    IST_EMIT(w, "c.weight", out, in, k, k);
    ist_walk_batch_norm(w, "bn.", out);
    ist_walk_leave(w, p);
}

static void block_tensors(ist_walk *w, int dim, int window) {
    int heads = dim / 32;
    IST_EMIT(w, "attn.attention_biases", heads, window * window);
    ist_walk_norm(w, "attn.norm.", dim);
    ist_walk_linear(w, "attn.qkv.", 3 * dim, dim);
    ist_walk_linear(w, "attn.proj.", dim, dim);
    ist_walk_norm(w, "mlp.norm.", dim);
    ist_walk_linear(w, "mlp.fc1.", 4 * dim, dim);
    ist_walk_linear(w, "mlp.fc2.", dim, 4 * dim);
    conv_tensors(w, "local_conv.", dim, 1, 3);
}

static void layer_tensors(ist_walk *w, int layer, int dim, int blocks, int window, int merged) {
    size_t p = ist_walk_enter(w, "layers.%d.", layer);
    for (int b = 0; b < blocks; b++) {
        size_t q = ist_walk_enter(w, "blocks.%d.", b);
        if (window) {
            block_tensors(w, dim, window);
        } else {
            conv_tensors(w, "conv1.", 4 * dim, dim, 1);
            conv_tensors(w, "conv2.", 4 * dim, 1, 3);
            conv_tensors(w, "conv3.", dim, 4 * dim, 1);
        }
        ist_walk_leave(w, q);
    }
    if (merged) {
        conv_tensors(w, "downsample.conv1.", merged, dim, 1);
        conv_tensors(w, "downsample.conv2.", merged, 1, 3);
        conv_tensors(w, "downsample.conv3.", merged, merged, 1);
    }
    ist_walk_leave(w, p);
}

static void tensors(ist_walk *w) {
    size_t p = ist_walk_enter(w, "image_encoder.");
    conv_tensors(w, "patch_embed.seq.0.", 32, 3, 3);
    conv_tensors(w, "patch_embed.seq.2.", 64, 32, 3);
    layer_tensors(w, 0, 64, 2, 0, 128);
    layer_tensors(w, 1, 128, 2, 7, 160);
    layer_tensors(w, 2, 160, 6, 14, 320);
    layer_tensors(w, 3, 320, 2, 7, 0);
    w->needed = false; /* the classifier of the pretraining */
    ist_walk_norm(w, "norm_head.", 320);
    ist_walk_linear(w, "head.", 1000, 320);
    w->needed = true;
    ist_sam_neck_tensors(w, 320);
    ist_walk_leave(w, p);
}

static void all_tensors(ist_walk *w) {
    tensors(w);
    ist_sam_tensors(w);
}

/* No tensor has a shape that depends on the input's side; a file may say it in its metadata. */
static void form(const ist_weights *weights, ist_arch_form *f) {
    const char *text = ist_weights_metadata(weights, "image_size");
    char *end;
    long side = text ? strtol(text, &end, 10) : 0;
    if (text && end != text && !*end && side > 0 && side <= INT32_MAX) f->side = (int)side;
}

/* ---- MobileSAM ---- */

const ist_segmenter_model ist_mobile_sam = {
    .is = {.name = "mobilesam", .family = "MobileSAM", .tensors = all_tensors, .form = form},
    .side = 1024,
    .multiple = 32,
    .least = 64,
    .most = 1024,
    .patch = IST_SAM_PATCH,
    .channels = IST_SAM_DIM,
    .mean = {123.675f, 116.28f, 103.53f},
    .std = {58.395f, 57.12f, 57.375f},
    .encode = ist_tinyvit,
    .boxes = ist_sam_box_tokens,
    .points = ist_sam_prompt_tokens,
    .own_tokens = IST_SAM_OWN_TOKENS,
    .dense = ist_sam_dense_prompt,
    .decode = ist_sam_decode,
};
