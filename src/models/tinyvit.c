/* TinyViT-5M at 1024, MobileSAM's image encoder (mobilesam.md 2; Wu et al., ECCV 2022). Reads like the paper's table:
 * patch embedding, one stage of MBConv blocks, three of window-attention blocks, neck. */
#include "models/bridge.h"
#include "models/mobilesam.h"

#include <stdio.h>
#include <stdlib.h>

/* Prefix.c.weight with batch norm prefix.bn: upstream's Conv2d_BN. */
static ist_tensor conv_bn(const ist_net *net, ist_tensor x, const ist_conv_opts *opts, const char *fmt, ...)
    IST_PRINTF(4, 5);
static ist_tensor conv_bn(const ist_net *net, ist_tensor x, const ist_conv_opts *opts, const char *fmt, ...) {
    char prefix[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    ist_name conv = ist_name_of("%s.c.weight", prefix), bn = ist_name_of("%s.bn", prefix);
    return ist_apply(net, x, ist_take_conv(net, conv.text, bn.text, NULL), opts, prefix);
}

#define GELU .epi = {.act = IST_ACT_GELU}

static ist_tensor mbconv(const ist_net *net, ist_tensor x, const char *at) {
    ist_tensor y;
    y = conv_bn(net, x, &(ist_conv_opts){GELU}, "%s.conv1", at);             /* [n,256,256,256] */
    y = conv_bn(net, y, &(ist_conv_opts){IST_PAD(1), GELU}, "%s.conv2", at); /* depthwise */
    return conv_bn(net, y, &(ist_conv_opts){.epi = {.act = IST_ACT_GELU, .add_before = x}}, "%s.conv3", at);
}

static ist_tensor merge(const ist_net *net, ist_tensor x, int stride, int layer) {
    x = conv_bn(net, x, &(ist_conv_opts){GELU}, "image_encoder.layers.%d.downsample.conv1", layer);
    x = conv_bn(net, x, &(ist_conv_opts){.stride = stride, IST_PAD(1), GELU},
                "image_encoder.layers.%d.downsample.conv2", layer);
    x = conv_bn(net, x, NULL, "image_encoder.layers.%d.downsample.conv3", layer);
    ist_tap(net, x, "layer%d.down", layer);
    return x;
}

/* Query, key and value of a padding token: the projection of the norm's bias, since padding is zeros before the norm.
 */
static float *padding_token(const ist_net *net, const ist_conv_weights *qkv, const ist_norm_weights *norm) {
    float *pad = malloc((size_t)(qkv->out ? qkv->out : 1) * sizeof *pad);
    if (!pad) {
        ist_plan_fail(net->plan, IST_E_MEMORY, "window attention: out of host memory");
        return NULL;
    }
    for (int o = 0; o < qkv->out && norm->n == qkv->in; o++) {
        double sum = qkv->b[o];
        for (int i = 0; i < qkv->in; i++) sum += (double)qkv->w[(size_t)o * (size_t)qkv->in + (size_t)i] * norm->b[i];
        pad[o] = (float)sum;
    }
    return pad;
}

static ist_tensor window_attention(const ist_net *net, ist_tensor x, int ws, const char *at) {
    ist_name norm_name = ist_name_of("%s.attn.norm", at), bias_name = ist_name_of("%s.attn.attention_biases", at);
    int heads = x.c / 32;
    int64_t dims[2] = {heads, ws * ws};
    ist_tensor y = ist_layer_norm(net, x, 1e-5f, NULL, "%s", norm_name.text); /* [n,H,W,dim] */
    ist_conv_weights qkv = ist_take_dense(net, "%s.attn.qkv", at);
    ist_norm_weights norm = ist_take_norm(net, "%s", norm_name.text);
    float *pad = padding_token(net, &qkv, &norm), *bias = NULL;
    if (!ist_plan_status(net->plan))
        ist_weights_f32(net->weights, bias_name.text, 2, dims, &bias, ist_plan_error(net->plan));
    y = ist_apply(net, y, qkv, NULL, ist_name_of("%s.attn.qkv", at).text); /* [n,H,W,3*dim] */
    if (!ist_plan_status(net->plan)) y = ist_op_window_attention(net->plan, y, pad, bias, heads, ws, at);
    ist_norm_weights_free(&norm);
    free(pad);
    free(bias);
    return ist_dense(net, y, &(ist_conv_opts){.epi.add_after = x}, "%s.attn.proj", at); /* [n,H,W,dim] */
}

static ist_tensor window_block(const ist_net *net, ist_tensor x, int ws, const char *at) {
    ist_tensor y;
    x = window_attention(net, x, ws, at);
    x = conv_bn(net, x, &(ist_conv_opts){IST_PAD(1)}, "%s.local_conv", at); /* depthwise, no residual */
    y = ist_layer_norm(net, x, 1e-5f, NULL, "%s.mlp.norm", at);
    y = ist_dense(net, y, &(ist_conv_opts){GELU}, "%s.mlp.fc1", at);                  /* [n,H,W,4*dim] */
    return ist_dense(net, y, &(ist_conv_opts){.epi.add_after = x}, "%s.mlp.fc2", at); /* [n,H,W,dim] */
}

static ist_tensor window_stage(const ist_net *net, ist_tensor x, int layer, int blocks, int ws) {
    for (int b = 0; b < blocks; b++) {
        x = window_block(net, x, ws, ist_name_of("image_encoder.layers.%d.blocks.%d", layer, b).text);
        ist_tap(net, x, "layer%d.block%d", layer, b);
    }
    return x;
}

ist_tensor ist_tinyvit(ist_plan *p, const ist_weights *weights, ist_tensor image) {
    ist_net bridge = {p, weights}, *net = &bridge;
    ist_tensor x = image; /* [n,1024,1024,3] */
    x = conv_bn(net, x, &(ist_conv_opts){.stride = 2, IST_PAD(1), GELU}, "image_encoder.patch_embed.seq.0");
    x = conv_bn(net, x, &(ist_conv_opts){.stride = 2, IST_PAD(1)}, "image_encoder.patch_embed.seq.2");
    ist_tap(net, x, "patch_embed"); /* [n,256,256,64] */
    for (int b = 0; b < 2; b++) {
        x = mbconv(net, x, ist_name_of("image_encoder.layers.0.blocks.%d", b).text);
        ist_tap(net, x, "layer0.block%d", b);
    }
    x = merge(net, x, 2, 0); /* [n,128,128,128] */
    x = window_stage(net, x, 1, 2, 7);
    x = merge(net, x, 2, 1); /* [n,64,64,160] */
    x = window_stage(net, x, 2, 6, 14);
    x = merge(net, x, 1, 2); /* [n,64,64,320] */
    x = window_stage(net, x, 3, 2, 7);
    x = ist_dense(net, x, NULL, "image_encoder.neck.0"); /* [n,64,64,256] */
    x = ist_layer_norm(net, x, 1e-6f, NULL, "image_encoder.neck.1");
    x = ist_dense(net, x, &(ist_conv_opts){IST_PAD(1)}, "image_encoder.neck.2");
    x = ist_layer_norm(net, x, 1e-6f, NULL, "image_encoder.neck.3");
    ist_tap(net, x, "embedding");
    return x;
}
