/* SAM's mask decoder (segment-anything's modeling/mask_decoder.py): a two-way transformer between a few tokens and the
 * image, upscaling, and one dot product per mask. */
#include "models/sam.h"

#include <stdlib.h>

enum { MASK_TOKENS = IST_SAM_OWN_TOKENS - 1 };

/* The MLPs of the IoU token, for all masks, and of mask tokens `first` and on. */
static ist_token_mlps token_mlps(const ist_net *net, ist_tensor tokens, int first, int masks) {
    ist_token_mlps node = {.label = "output MLPs", .x = tokens, .count = 1 + masks, .first = first};
    ist_name names[1 + MASK_TOKENS];
    for (int i = 0; i <= masks; i++) {
        names[i] = i ? ist_name_of("mask_decoder.output_hypernetworks_mlps.%d", first + i - 1)
                     : ist_name_of("mask_decoder.iou_prediction_head");
        node.names[i] = names[i].text;
        for (int l = 0; l < 3; l++) node.mlp[i][l] = ist_take_dense(net, "%s.layers.%d", names[i].text, l);
    }
    ist_net_node(net, IST_NODE_TOKEN_MLPS, &node);
    return node;
}

/* Two transposed convolutions, and the product with each mask's vector: [P * masks,4 grid,4 grid,1]. */
static ist_tensor upscale(const ist_net *net, const ist_sam_prompted *in, ist_tensor image, ist_tensor vectors) {
    static const char root[] = "mask_decoder.output_upscaling";
    int grid = in->embedding.w;
    return IST_NODE(net, UPSCALE, upscale, .label = root, .x = ist_view(image, image.n, grid, grid), .vectors = vectors,
                    .w1 = ist_take_array(net, "%s.0.weight", root), .b1 = ist_take_array(net, "%s.0.bias", root),
                    .w2 = ist_take_array(net, "%s.3.weight", root), .b2 = ist_take_array(net, "%s.3.bias", root),
                    .norm = ist_take_norm(net, "%s.1", root), .eps = 1e-6f, .content = in->content,
                    .image_of = in->image_of);
}

/* Where the caller has named no images. */
static ist_tensor first_image(ist_graph *g, int prompts) {
    ist_tensor image_of = {0};
    int *zeros = calloc((size_t)(prompts > 0 ? prompts : 1), sizeof *zeros);
    if (!zeros) ist_graph_fail(g, IST_E_MEMORY, "mask decoder: out of host memory");
    if (zeros) image_of = ist_graph_const(g, zeros, 1, 1, prompts, 1, IST_ELEM_I32, "image of prompt");
    free(zeros);
    return image_of;
}

ist_sam_masks ist_sam_decode(const ist_net *net, const ist_sam_prompted *prompted, bool multimask) {
    ist_sam_prompted in = *prompted;
    int first = multimask ? 1 : 0, masks = multimask ? MASK_TOKENS - 1 : 1;
    if (!ist_has(in.image_of)) in.image_of = first_image(net->graph, in.sparse.n);
    ist_graph_begin(net->graph, IST_SPAN_MASK_DECODER, "mask_decoder");
    ist_sam_transformed t = ist_sam_two_way(net, &in);
    ist_token_mlps heads = token_mlps(net, t.tokens, first, masks);
    ist_tensor low_res = upscale(net, &in, t.image, heads.vectors);
    ist_graph_end(net->graph);
    ist_sam_masks out = {.low_res = low_res, .iou = ist_slice(heads.iou, first, masks), .masks = masks};
    ist_net_name(net, out.low_res, "masks");
    ist_net_name(net, out.iou, "iou");
    return ist_graph_failed(net->graph) ? (ist_sam_masks){0} : out;
}
