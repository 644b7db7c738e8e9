/* D-FINE's hybrid encoder (Peterande/D-FINE, src/zoo/dfine/hybrid_encoder.py): input projections, a transformer layer on
 * the coarsest map, top-down and bottom-up fusion. */
#include "models/dfine.h"

#include <math.h>

#define OPTS(...) (&(ist_conv_opts){__VA_ARGS__})
#define SILU      .epi.act = IST_ACT_SILU

/* AIFI: attention among the tokens of a map, and an MLP. */
static ist_tensor transformer_layer(const ist_net *net, const char *name, ist_tensor map) {
    int width = map.c;
    float scale = (float)(1 / sqrt(width / IST_DFINE_HEADS));
    ist_name attn = ist_name_of("%s.self_attn", name), weight = ist_name_of("%s.in_proj_weight", attn.text);
    ist_filter in_proj = ist_take_linear(net, weight.text, ist_name_of("%s.in_proj_bias", attn.text).text);
    ist_tensor t = ist_view(map, map.n, 1, map.h * map.w); /* [n,1,T,C] */
    ist_graph_begin(net->graph, IST_SPAN_SEQUENCE, "%s", attn.text);
    ist_tensor qkv = IST_NODE(net, QKV, qkv, .label = attn.text, .x = t, .filter = in_proj, .grid_h = map.h,
                              .grid_w = map.w); /* [n,1,T,3C] */
    ist_tensor q = ist_slice(qkv, 0, width), k = ist_slice(qkv, width, width), v = ist_slice(qkv, 2 * width, width);
    ist_tensor a = IST_NODE(net, ATTENTION, attention, .label = attn.text, .q = q, .k = k, .v = v,
                            .heads = IST_DFINE_HEADS, .scale = scale); /* [n,1,T,C] */
    a = ist_net_dense(net, a, NULL, "%s.out_proj", attn.text);        /* [n,1,T,C] */
    t = ist_net_layer_norm(net, (ist_layer_norm){.x = a, .add = t, .eps = 1e-5f}, "%s.norm1", name);
    ist_tensor f = ist_net_dense(net, t, OPTS(.epi.act = IST_ACT_GELU), "%s.linear1", name); /* [n,1,T,ff] */
    f = ist_net_dense(net, f, NULL, "%s.linear2", name);                                     /* [n,1,T,C] */
    t = ist_net_layer_norm(net, (ist_layer_norm){.x = f, .add = t, .eps = 1e-5f}, "%s.norm2", name);
    ist_graph_end(net->graph);
    return ist_view(t, map.n, map.h, map.w);
}

/* CSP block of RepVGG bottlenecks and the 3x3 convolution behind it: x -> [n,h,w,c4]. */
static ist_tensor csp(const ist_net *net, const ist_dfine_arch *arch, const char *name, ist_tensor x) {
    ist_filter left = ist_take_conv_norm(net, "%s.0.conv1", name), right = ist_take_conv_norm(net, "%s.0.conv2", name);
    ist_csp block = {.label = name, .x = x, .first = ist_take_stack(net, left, right), .necks = arch->bottlenecks};
    for (int b = 0; b < arch->bottlenecks; b++)
        block.neck[b] = ist_take_repvgg(net, "%s.0.bottlenecks.%d", name, b);
    block.last = ist_take_conv_norm(net, "%s.1", name);
    return ist_net_node(net, IST_NODE_CSP, &block);
}

/* RepNCSPELAN4 behind its cv1, whose result is x [n,h,w,2C]: -> [n,h,w,C]. */
static ist_tensor elan(const ist_net *net, const ist_dfine_arch *arch, const char *name, ist_tensor x) {
    int width = arch->hidden;
    ist_tensor y = csp(net, arch, ist_name_of("%s.cv2", name).text, ist_slice(x, width, width)); /* [n,h,w,c4] */
    ist_tensor z = csp(net, arch, ist_name_of("%s.cv3", name).text, y);                          /* [n,h,w,c4] */
    ist_tensor all = IST_NODE(net, CONCAT, concat, .label = name, .x = {x, y, z});
    return ist_net_conv_norm(net, all, OPTS(SILU), "%s.cv4", name);
}

/* top [n,h/2,w/2,C], upsampled, and the backbone's map of `level`, projected: -> [n,h,w,C] */
static ist_tensor top_down(const ist_net *net, const ist_dfine_arch *arch, int level, ist_tensor top, ist_tensor side) {
    ist_name name = ist_name_of("encoder.fpn_blocks.%d", arch->levels - 2 - level);
    ist_name cv1 = ist_name_of("%s.cv1", name.text), proj = ist_name_of("encoder.input_proj.%d", level);
    ist_filter filter = ist_take_conv_norm(net, "%s", cv1.text);
    ist_tensor x = IST_NODE(net, FUSE, fuse, .label = cv1.text, .top = top, .side = side, .filter = filter,
                            .side_filter = ist_take_conv_norm(net, "%s", proj.text), .side_label = proj.text,
                            .tap = ist_name_of("enc.proj%d", level).text); /* [n,h,w,2C] */
    return elan(net, arch, name.text, x);
}

/* fine [n,2h,2w,C], downsampled, beside the stored map of the next level: -> [n,h,w,C] */
static ist_tensor bottom_up(const ist_net *net, const ist_dfine_arch *arch, int j, ist_tensor fine, ist_tensor stored) {
    ist_name name = ist_name_of("encoder.pan_blocks.%d", j), down = ist_name_of("encoder.downsample_convs.%d.0", j);
    ist_filter point = ist_take_conv_norm(net, "%s.cv1", down.text);
    ist_tensor d = IST_NODE(net, SEPARABLE, separable, .label = down.text, .x = fine, .point = point,
                            .depth = ist_take_conv_norm(net, "%s.cv2", down.text),
                            .o = {.stride = 2, IST_PAD(1)}); /* [n,h,w,C] */
    ist_net_name(net, d, "enc.down%d", j);
    ist_tensor pair = IST_NODE(net, CONCAT, concat, .label = name.text, .x = {d, stored}); /* [n,h,w,2C] */
    return elan(net, arch, name.text, ist_net_conv_norm(net, pair, OPTS(SILU), "%s.cv1", name.text));
}

ist_pyramid ist_hybrid_encoder(const ist_net *net, const ist_dfine_arch *arch, ist_pyramid features) {
    int last = arch->levels - 1;
    ist_tensor stored[3] = {{0}};
    ist_pyramid out = {.levels = arch->levels};
    ist_tensor top = ist_net_conv_norm(net, features.maps[last], NULL, "encoder.input_proj.%d", last); /* [n,h,w,C] */
    ist_net_name(net, top, "enc.proj%d", last);
    top = transformer_layer(net, "encoder.encoder.0.layers.0", top); /* [n,h,w,C] */
    ist_net_name(net, top, "enc.aifi0");
    for (int j = 0, l = last; l > 0; j++, l--) {
        top = stored[l] = ist_net_conv_norm(net, top, NULL, "encoder.lateral_convs.%d", j); /* [n,h,w,C] */
        ist_net_name(net, top, "enc.lateral%d", j);
        top = top_down(net, arch, l - 1, top, features.maps[l - 1]); /* [n,2h,2w,C] */
        ist_net_name(net, top, "enc.fpn%d", j);
    }
    out.maps[0] = top;
    for (int l = 1; l <= last; l++) {
        out.maps[l] = bottom_up(net, arch, l - 1, out.maps[l - 1], stored[l]); /* [n,h,w,C] */
        ist_net_name(net, out.maps[l], "enc.pan%d", l - 1);
    }
    return out;
}
