/* HGNetv2, the backbone of D-FINE (Peterande/D-FINE, src/nn/backbone/hgnetv2.py).
 *
 * A unit is convolution, batch norm, ReLU and, in the small sizes, a learnable affine of two scalars (LAB). A block reads
 * its input and the results of all of its layers side by side. */
#include "graph/frame.h"
#include "models/dfine.h"

#define OPTS(...) (&(ist_conv_opts){__VA_ARGS__})
#define RELU      .epi.act = IST_ACT_RELU

/* image [n,h,w,c], whose white is not 1, -> [n,h/4,w/4,o]. */
static ist_tensor stem(const ist_net *net, ist_tensor image) {
    static const char *const names[IST_STEM_LAYERS] = {"stem1", "stem2a", "stem2b", "stem3", "stem4"};
    ist_stem s = {.label = "backbone.stem", .image = image};
    ist_name labels[IST_STEM_LAYERS];
    for (int i = 0; i < IST_STEM_LAYERS; i++) {
        labels[i] = ist_name_of("backbone.stem.%s", names[i]);
        s.names[i] = labels[i].text;
        s.layers[i] = (ist_stem_layer){.f = ist_take_conv_bn(net, "%s", labels[i].text), .lab_scale = 1};
    }
    s.layers[0].f = ist_take_scaled(net, s.layers[0].f, 1 / IST_DETECTOR_WHITE);
    return ist_net_node(net, IST_NODE_STEM, &s);
}

/* A layer of a block: 3x3, or 1x1 and a depthwise 5x5. */
static ist_tensor layer(const ist_net *net, bool light, ist_tensor x, const char *name) {
    if (!light) return ist_net_conv_bn(net, x, OPTS(IST_PAD(1), RELU), "%s", name);
    ist_filter depth = ist_take_conv_bn(net, "%s.conv2", name);
    return IST_NODE(net, SEPARABLE, separable, .label = name, .x = x, .point = ist_take_conv_bn(net, "%s.conv1", name),
                    .depth = depth, .o = {IST_PAD(2), RELU});
}

/* Block b of stage s: x -> [n,h,w,out], plus x behind the first one. A downsampling may follow the last block. */
static ist_tensor block(const ist_net *net, const ist_hgnet_stage *stage, int s, int b, ist_tensor x) {
    ist_name name = ist_name_of("backbone.stages.%d.blocks.%d", s, b);
    ist_concat all = {.label = name.text, .x = {x}};
    ist_tensor y = x;
    for (int i = 0; i < stage->layers; i++)
        y = all.x[1 + i] = layer(net, stage->light, y, ist_name_of("%s.layers.%d", name.text, i).text); /* [n,h,w,mid] */
    ist_tensor wide = ist_net_node(net, IST_NODE_CONCAT, &all); /* [n,h,w,in + layers * mid] */
    if (s < 3 && b + 1 == stage->blocks)
        ist_graph_begin(net->graph, IST_SPAN_TRANSITION, "backbone.stages.%d.downsample", s + 1);
    y = ist_net_conv_bn(net, wide, OPTS(RELU), "%s.aggregation.0", name.text); /* [n,h,w,out / 2] */
    return ist_net_conv_bn(net, y, OPTS(RELU, .epi.add_after = b ? x : (ist_tensor){0}), "%s.aggregation.1",
                           name.text); /* [n,h,w,out] */
}

ist_pyramid ist_hgnetv2(const ist_net *net, const ist_dfine_arch *arch, ist_tensor image) {
    ist_pyramid features = {.levels = arch->levels};
    ist_graph_uniform(net->graph, true);
    ist_tensor x = stem(net, image); /* [n,h/4,w/4,c] */
    ist_net_name(net, x, "stem");
    for (int s = 0; s < 4; s++) {
        int level = s - (4 - arch->levels);
        if (s < 3) ist_graph_begin(net->graph, IST_SPAN_STAGE, "backbone.stages.%d", s);
        for (int b = 0; b < arch->stages[s].blocks; b++) x = block(net, &arch->stages[s], s, b, x);
        ist_net_name(net, x, "stage%d", s);
        if (level >= 0) features.maps[level] = x;
        if (s == 3) break;
        x = ist_net_conv_bn(net, x, OPTS(.stride = 2, IST_PAD(1)), "backbone.stages.%d.downsample", s + 1);
        ist_graph_end(net->graph); /* the transition */
        ist_graph_end(net->graph); /* the stage */
    }
    ist_graph_uniform(net->graph, false);
    return features;
}
