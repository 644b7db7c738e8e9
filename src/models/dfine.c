/* The whole detector: backbone, encoder, memory, decoder. */
#include "models/dfine.h"

/* All maps as tokens, in the decoder's width. */
static ist_dfine_memory memory_of(const ist_net *net, const ist_dfine_arch *arch, ist_pyramid maps) {
    ist_dfine_memory m = {.levels = maps.levels};
    ist_concat all = {.label = "decoder.memory"};
    for (int l = 0, start = 0; l < maps.levels; l++) {
        ist_tensor map = maps.maps[l];
        if (arch->decoder_proj) map = ist_net_conv_norm(net, map, NULL, "decoder.input_proj.%d", l); /* [n,h,w,D] */
        m.level[l] = (ist_level){.h = map.h, .w = map.w, .start = start, .points = arch->points[l]};
        start += map.h * map.w;
        all.x[l] = map;
    }
    m.tokens = ist_net_node(net, IST_NODE_CONCAT_ROWS, &all); /* [n,1,T,D] */
    ist_net_name(net, m.tokens, "dec.memory");
    return m;
}

static bool accepts(const ist_net *net, const ist_checkpoint_info *info, const ist_dfine_arch *arch, ist_tensor image) {
    ist_graph *g = net->graph;
    int channels = info->channels ? info->channels : 3;
    if (ist_graph_failed(g)) return false;
    if (!arch) {
        ist_graph_fail(g, IST_E_WEIGHTS, "the checkpoint is %s, not a D-FINE", ist_model_name(info->kind));
        return false;
    }
    if (image.n < 1 || image.h < 32 || image.w < 32 || image.h % 32 || image.w % 32 || image.c != channels) {
        ist_graph_fail(g, IST_E_ARGUMENT, "D-FINE reads [n,h,w,%d] with h and w divisible by 32, got [%d,%d,%d,%d]",
                       channels, image.n, image.h, image.w, image.c);
        return false;
    }
    int tokens = 0;
    for (int l = 0; l < arch->levels; l++) tokens += (image.h >> (5 - l)) * (image.w >> (5 - l));
    if (tokens >= IST_DFINE_QUERIES) return true;
    ist_graph_fail(g, IST_E_ARGUMENT, "input %d x %d gives %s %d tokens, fewer than its %d queries", image.w, image.h,
                   ist_model_name(info->kind), tokens, IST_DFINE_QUERIES);
    return false;
}

ist_dfine_result ist_dfine_forced(const ist_net *net, const ist_checkpoint_info *info, ist_tensor image,
                                  ist_tensor force_index) {
    const ist_dfine_arch *arch = ist_dfine_arch_of(info->kind);
    ist_graph *g = net->graph;
    if (!accepts(net, info, arch, image)) return (ist_dfine_result){0};
    ist_graph_reduced(g, true);
    ist_graph_stage(g, "detector_backbone");
    ist_pyramid maps = ist_hgnetv2(net, arch, image);
    ist_graph_stage(g, "detector_encoder");
    maps = ist_hybrid_encoder(net, arch, maps);
    ist_graph_reduced(g, false);
    ist_dfine_memory memory = memory_of(net, arch, maps);
    memory.act = info->silu ? IST_ACT_SILU : IST_ACT_RELU;
    memory.stored = info->stored_constants;
    ist_graph_stage(g, "detector_decoder");
    ist_dfine_result result = ist_dfine_decoder(net, arch, &memory, force_index);
    return ist_graph_failed(g) ? (ist_dfine_result){0} : result;
}

ist_dfine_result ist_dfine(const ist_net *net, const ist_checkpoint_info *info, ist_tensor image) {
    return ist_dfine_forced(net, info, image, (ist_tensor){0});
}

/* ---- the five sizes ---- */

#define SIZE(letter)                                                                                                   \
    const ist_detector_model ist_dfine_##letter = {                                                                    \
        .is = {"dfine-" #letter, "D-FINE", ist_dfine_tensors, ist_dfine_form},                                         \
        .multiple = 32,                                                                                                \
        .std = {256, 256, 256}, /* IST_DETECTOR_WHITE */                                                               \
        .record = ist_dfine,                                                                                           \
    };
SIZE(n) SIZE(s) SIZE(m) SIZE(l) SIZE(x)
