/* TinyViT-5M at 1024, MobileSAM's image encoder (ChaoningZhang/MobileSAM, modeling/tiny_vit_sam.py).
 *
 * Batch norms are folded; padding tokens of a window are zeros behind the norm, so that their projection is a constant.
 */
#include "models/mobilesam.h"

#include "models/bridge.h"
#include "ops/mbconv.h"
#include "ops/norm_mlp.h"
#include "ops/norm_window.h"
#include "ops/patch.h"

#include <stdlib.h>

#define OPTS(...) (&(ist_conv_opts){__VA_ARGS__})

static const float LN_EPS = 1e-5f, LN2D_EPS = 1e-6f;

/* Convolution BLOCK.PART.c and its batch norm. */
static ist_conv_weights take(const ist_net *net, const char *block, const char *part) {
    ist_name weight = ist_name_of("%s.%s.c.weight", block, part), bn = ist_name_of("%s.%s.bn", block, part);
    return ist_take_conv(net, weight.text, bn.text, NULL);
}

/* [n,1024,1024,3] -> [n,256,256,64]. */
static ist_tensor patch_embed(const ist_net *net, ist_tensor image, ist_alike *alike) {
    ist_conv_weights first = take(net, "image_encoder.patch_embed", "seq.0");
    ist_conv_weights second = take(net, "image_encoder.patch_embed", "seq.2");
    ist_tensor x = ist_op_patch_embed(net->plan, image, ist_filter_of(&first), ist_filter_of(&second), alike,
                                      "image_encoder.patch_embed");
    ist_conv_weights_free(&first);
    ist_conv_weights_free(&second);
    return x;
}

static void check_norm(const ist_net *net, const ist_norm_weights *norm, int channels, const char *name) {
    if (!ist_plan_status(net->plan) && norm->n != channels)
        ist_plan_fail(net->plan, IST_E_WEIGHTS, "%s: norm of %d channels, the tensor has %d", name, norm->n, channels);
}

/* conv1, conv2, conv3 of a block: expansion, depthwise, projection. */
static ist_tensor bottleneck(const ist_net *net, ist_tensor x, ist_mbconv block, ist_alike *alike, const char *name) {
    ist_conv_weights expand = take(net, name, "conv1"), spread = take(net, name, "conv2");
    ist_conv_weights project = take(net, name, "conv3");
    block.expand = ist_filter_of(&expand);
    block.spread = ist_filter_of(&spread);
    block.project = ist_filter_of(&project);
    ist_tensor y = ist_op_mbconv(net->plan, x, &block, alike, name);
    ist_conv_weights_free(&expand);
    ist_conv_weights_free(&spread);
    ist_conv_weights_free(&project);
    return y;
}

/* The last GELU comes after the sum: [n,h,w,c] -> [n,h,w,c], 4 c between. */
static ist_tensor mbconv(const ist_net *net, ist_tensor x, ist_alike *alike, const char *name) {
    return bottleneck(net, x, (ist_mbconv){.stride = 1, .residual = true, .act = IST_ACT_GELU}, alike, name);
}

/* [n,h,w,c] -> [n,h/s,w/s,out]. */
static ist_tensor merge(const ist_net *net, ist_tensor x, int stride, ist_alike *alike, const char *name) {
    return bottleneck(net, x, (ist_mbconv){.stride = stride}, alike, name);
}

/* Window attention with its norm and projection; the result includes the residual. */
static ist_tensor attention(const ist_net *net, ist_tensor x, int heads, int ws, const char *name) {
    ist_plan *p = net->plan;
    ist_error err = {0};
    float *biases = NULL;
    ist_tensor y = {0};
    ist_name bias_name = ist_name_of("%s.attention_biases", name);
    ist_norm_weights norm = ist_take_norm(net, "%s.norm", name);
    ist_conv_weights qkv = ist_take_dense(net, "%s.qkv", name);
    if (!ist_plan_status(p) &&
        ist_weights_f32(net->weights, bias_name.text, 2, (int64_t[]){heads, (int64_t)ws * ws}, &biases, &err))
        ist_plan_fail(p, err.code, "%s", err.text);

    check_norm(net, &norm, x.c, name);
    ist_norm_window layer = {.gamma = norm.w,
                             .beta = norm.b,
                             .bias = biases,
                             .eps = LN_EPS,
                             .qkv = ist_filter_of(&qkv),
                             .heads = heads,
                             .ws = ws};
    if (!ist_plan_status(p)) y = ist_op_norm_window(p, x, &layer, name); /* [n,h,w,c] */
    ist_norm_weights_free(&norm);
    ist_conv_weights_free(&qkv);
    free(biases);
    return ist_dense(net, y, OPTS(.epi.add_before = x), "%s.proj", name); /* [n,h,w,c] */
}

/* z + fc2(gelu(fc1(LN(z)))), 4 c between, of z = local_conv(x). */
static ist_tensor local_mlp(const ist_net *net, ist_tensor x, const char *name) {
    ist_name label = ist_name_of("%s.mlp", name);
    ist_conv_weights spread = take(net, name, "local_conv");
    ist_norm_weights norm = ist_take_norm(net, "%s.norm", label.text);
    ist_conv_weights fc1 = ist_take_dense(net, "%s.fc1", label.text), fc2 = ist_take_dense(net, "%s.fc2", label.text);
    ist_norm_mlp layer = {.gamma = norm.w,
                          .beta = norm.b,
                          .eps = LN_EPS,
                          .spread = ist_filter_of(&spread),
                          .fc1 = ist_filter_of(&fc1),
                          .fc2 = ist_filter_of(&fc2),
                          .act = IST_ACT_GELU};
    check_norm(net, &norm, x.c, label.text);
    ist_tensor y = ist_op_norm_mlp(net->plan, x, &layer, label.text);
    ist_norm_weights_free(&norm);
    ist_conv_weights_free(&spread);
    ist_conv_weights_free(&fc1);
    ist_conv_weights_free(&fc2);
    return y;
}

static ist_tensor window_block(const ist_net *net, ist_tensor x, int heads, int ws, const char *name) {
    ist_name attn = ist_name_of("%s.attn", name);
    x = attention(net, x, heads, ws, attn.text); /* [n,h,w,c] */
    return local_mlp(net, x, name);              /* [n,h,w,c] */
}

/* A stage of window blocks. */
static ist_tensor stage(const ist_net *net, ist_tensor x, int layer, int blocks, int heads, int ws) {
    for (int b = 0; b < blocks; b++) {
        ist_name name = ist_name_of("image_encoder.layers.%d.blocks.%d", layer, b);
        x = window_block(net, x, heads, ws, name.text);
        ist_tap(net, x, "layer%d.block%d", layer, b);
    }
    return x;
}

static ist_tensor down(const ist_net *net, ist_tensor x, int layer, int stride, ist_alike alike) {
    ist_name name = ist_name_of("image_encoder.layers.%d.downsample", layer);
    x = merge(net, x, stride, &alike, name.text);
    ist_tap(net, x, "layer%d.down", layer);
    return x;
}

static ist_tensor neck(const ist_net *net, ist_tensor x) {
    x = ist_dense(net, x, NULL, "image_encoder.neck.0");                   /* [n,64,64,256] */
    x = ist_layer_norm(net, x, LN2D_EPS, NULL, "image_encoder.neck.1");    /* [n,64,64,256] */
    x = ist_dense(net, x, OPTS(IST_PAD(1)), "image_encoder.neck.2");       /* [n,64,64,256] */
    return ist_layer_norm(net, x, LN2D_EPS, NULL, "image_encoder.neck.3"); /* [n,64,64,256] */
}

ist_tensor ist_tinyvit(ist_plan *p, const ist_weights *weights, ist_tensor image, ist_tensor content) {
    static const ist_alike unlike = {{0}, 0, 0, 0}; /* windows that divide a map make its rows different */
    const ist_net net = {p, weights};
    ist_alike alike = {.content = ist_slice(content, 1, 1), .step = 1};
    if (!ist_plan_status(p) && (image.h != IST_SAM_SIDE || image.w != IST_SAM_SIDE || image.c != 3))
        ist_plan_fail(p, IST_E_ARGUMENT, "TinyViT: image [%d,%d,%d,%d], it takes 1024x1024 RGB", image.n, image.h,
                      image.w, image.c);
    ist_plan_narrow(p, true);
    ist_tensor x = patch_embed(&net, image, &alike); /* [n,256,256,64] */
    ist_plan_tap(p, "patch_embed", x);
    for (int b = 0; b < 2; b++) {
        ist_name name = ist_name_of("image_encoder.layers.0.blocks.%d", b);
        x = mbconv(&net, x, &alike, name.text); /* [n,256,256,64] */
        ist_tap(&net, x, "layer0.block%d", b);
    }
    x = down(&net, x, 0, 2, alike);  /* [n,128,128,128] */
    x = stage(&net, x, 1, 2, 4, 7);  /* [n,128,128,128] */
    x = down(&net, x, 1, 2, unlike); /* [n,64,64,160] */
    x = stage(&net, x, 2, 6, 5, 14); /* [n,64,64,160] */
    x = down(&net, x, 2, 1, unlike); /* [n,64,64,320] */
    x = stage(&net, x, 3, 2, 10, 7); /* [n,64,64,320] */
    x = neck(&net, x);               /* [n,64,64,256] */
    ist_plan_narrow(p, false);
    ist_plan_tap(p, "embedding", x);
    return x;
}
