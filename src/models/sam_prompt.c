/* SAM's prompt encoder (segment-anything's modeling/prompt_encoder.py): points, boxes and masks become tokens and a dense
 * map. */
#include "models/sam.h"

/* The decoder's own: the IoU token, the mask tokens. */
static ist_tensor own_tokens(const ist_net *net) {
    return IST_NODE(net, PARAMETER, parameter, .label = "output tokens",
                    .y = {.n = 1, .h = 1, .w = IST_SAM_OWN_TOKENS, .c = IST_SAM_DIM},
                    .rows = {ist_take_array(net, "mask_decoder.iou_token.weight"),
                             ist_take_array(net, "mask_decoder.mask_tokens.weight")});
}

/* Random Fourier features of each point, and the embedding of its label. */
static ist_tensor encode(const ist_net *net, ist_point_tokens node, int side, bool own) {
    node.label = "prompt_encoder";
    node.side = (float)side;
    if (own) node.own = own_tokens(net);
    node.gauss = ist_take_array(net, "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix");
    node.table[0] = ist_take_array(net, "prompt_encoder.not_a_point_embed.weight");
    for (int i = 1; i < IST_POINT_LABELS; i++)
        node.table[i] = ist_take_array(net, "prompt_encoder.point_embeddings.%d.weight", i - 1);
    return ist_net_node(net, IST_NODE_POINT_TOKENS, &node);
}

ist_tensor ist_sam_box_tokens(const ist_net *net, ist_tensor boxes, int side, bool own) {
    return encode(net, (ist_point_tokens){.points = boxes, .first_label = 2}, side, own); /* corners: labels 2 and 3 */
}

ist_tensor ist_sam_point_tokens(const ist_net *net, ist_tensor points, ist_tensor labels, int side, bool pad) {
    return encode(net, (ist_point_tokens){.points = points, .labels = labels, .pad = pad}, side, true);
}

ist_tensor ist_sam_prompt_tokens(const ist_net *net, ist_tensor points, ist_tensor labels, int side) {
    return encode(net, (ist_point_tokens){.points = points, .labels = labels, .corners = true}, side, true);
}

ist_tensor ist_sam_join_tokens(const ist_net *net, ist_tensor a, ist_tensor b) {
    return IST_NODE(net, JOIN_TOKENS, join_tokens, .label = "prompt tokens", .a = a, .b = b);
}

ist_tensor ist_sam_mask_prompt(const ist_net *net, ist_tensor masks) {
    const ist_conv_opts half = {.stride = 2};
    ist_layer_norm gelu = {.eps = 1e-6f, .act = IST_ACT_GELU};
    gelu.x = ist_net_dense(net, masks, &half, "prompt_encoder.mask_downscaling.0"); /* [P,128,128,4] */
    ist_tensor x = ist_net_layer_norm(net, gelu, "prompt_encoder.mask_downscaling.1");
    gelu.x = ist_net_dense(net, x, &half, "prompt_encoder.mask_downscaling.3"); /* [P,64,64,16] */
    x = ist_net_layer_norm(net, gelu, "prompt_encoder.mask_downscaling.4");
    return ist_net_dense(net, x, NULL, "prompt_encoder.mask_downscaling.6"); /* [P,64,64,256] */
}

ist_tensor ist_sam_dense_prompt(const ist_net *net, ist_tensor masks, ist_tensor given) {
    static const char none[] = "prompt_encoder.no_mask_embed";
    return IST_NODE(net, DENSE_PROMPT, dense_prompt, .label = none, .x = ist_sam_mask_prompt(net, masks),
                    .given = given, .none = ist_take_array(net, "%s.weight", none));
}
