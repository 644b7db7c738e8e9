/* The two-way transformer of SAM's mask decoder (segment-anything's modeling/transformer.py): the tokens of a prompt attend
 * to each other and to the image, and the image to them. */
#include "models/sam.h"

enum { LAYERS = 2, HEADS = 8 };

static const float EPS = 1e-5f;
static const ist_tensor none = {0};

/* What every layer has: the initial tokens [P,1,N,256] and the position code of the grid [1,1,T,256] are added to
 * whatever asks or is asked; a prompt has counts[i] of the tokens, or all. */
typedef struct transformer {
    const ist_net *net;
    ist_tensor t, pe, counts;
} transformer;

/* LN(add + attention of q to k), by the projections of AT and the norm NORM. */
static ist_tensor attend(const transformer *tr, ist_attention_layer l, const char *at, const char *norm) {
    static const char root[] = "mask_decoder.transformer";
    l.label = at;
    l.heads = HEADS;
    l.eps = EPS;
    l.query = ist_take_dense(tr->net, "%s.%s.q_proj", root, at);
    l.key = ist_take_dense(tr->net, "%s.%s.k_proj", root, at);
    l.value = ist_take_dense(tr->net, "%s.%s.v_proj", root, at);
    l.out = ist_take_dense(tr->net, "%s.%s.out_proj", root, at);
    l.norm = ist_take_norm(tr->net, "%s.%s", root, norm);
    return ist_net_node(tr->net, IST_NODE_ATTENTION_LAYER, &l);
}

static ist_tensor mlp(const transformer *tr, ist_tensor q, const char *at, const char *norm) {
    return IST_NODE(tr->net, MLP_LAYER, mlp_layer, .label = at, .x = q, .act = IST_ACT_RELU, .eps = EPS,
                    .lin1 = ist_take_dense(tr->net, "mask_decoder.transformer.%s.lin1", at),
                    .lin2 = ist_take_dense(tr->net, "mask_decoder.transformer.%s.lin2", at),
                    .norm = ist_take_norm(tr->net, "mask_decoder.transformer.%s", norm));
}

/* TwoWayAttentionBlock i: the new tokens; *k becomes the new image. The first layer's tokens are their own position. */
static ist_tensor layer(const transformer *tr, int i, ist_tensor q, ist_tensor *k) {
    const char *at = ist_graph_text(tr->net->graph, "layers.%d", i);
    ist_tensor pos = i ? tr->t : none;
    q = attend(
        tr,
        (ist_attention_layer){.q = q, .q_pos = pos, .k = q, .k_pos = pos, .k_count = tr->counts, .add = i ? q : none},
        ist_name_of("%s.self_attn", at).text, ist_name_of("%s.norm1", at).text); /* [P,1,N,256] */
    q = attend(tr, (ist_attention_layer){.q = q, .q_pos = tr->t, .k = *k, .k_pos = tr->pe, .add = q},
               ist_name_of("%s.cross_attn_token_to_image", at).text, ist_name_of("%s.norm2", at).text);
    q = mlp(tr, q, ist_name_of("%s.mlp", at).text, ist_name_of("%s.norm3", at).text);
    *k = attend(
        tr, (ist_attention_layer){.q = *k, .q_pos = tr->pe, .k = q, .k_pos = tr->t, .k_count = tr->counts, .add = *k},
        ist_name_of("%s.cross_attn_image_to_token", at).text, ist_name_of("%s.norm4", at).text);
    return q;
}

/* The embedding of each prompt's image plus its dense prompt, or the vector for none: [P,1,T,256]. */
static ist_tensor prompted_image(const ist_net *net, const ist_sam_prompted *in) {
    ist_tensor e = in->embedding;
    int tokens = e.h * e.w;
    e = IST_NODE(net, EXPAND, expand, .label = "image of prompt", .x = ist_view(e, e.n, 1, tokens), .map = in->image_of);
    if (ist_has(in->dense)) return ist_net_add(net, ist_view(in->dense, in->dense.n, 1, tokens), e, "dense prompt");
    ist_tensor no_mask = IST_NODE(net, PARAMETER, parameter, .label = "prompt_encoder.no_mask_embed",
                                  .y = {.n = 1, .h = 1, .w = 1, .c = IST_SAM_DIM},
                                  .rows = {ist_take_array(net, "prompt_encoder.no_mask_embed.weight")});
    return ist_net_add(net, e, no_mask, "no mask prompt");
}

ist_sam_transformed ist_sam_two_way(const ist_net *net, const ist_sam_prompted *in) {
    transformer tr = {.net = net, .t = in->sparse, .counts = in->counts};
    ist_array gauss = ist_take_array(net, "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix");
    ist_graph_begin(net->graph, IST_SPAN_TWO_WAY, "mask_decoder.transformer");
    tr.pe = IST_NODE(net, GRID_CODE, grid_code, .label = "dense_pe", .gauss = gauss, .grid = in->embedding.w);
    ist_net_name(net, tr.pe, "dense_pe");
    ist_tensor k = prompted_image(net, in), q = tr.t;
    for (int i = 0; i < LAYERS; i++) q = layer(&tr, i, q, &k);
    q = attend(&tr, (ist_attention_layer){.q = q, .q_pos = tr.t, .k = k, .k_pos = tr.pe, .add = q},
               "final_attn_token_to_image", "norm_final_attn");
    ist_graph_end(net->graph);
    ist_net_name(net, q, "tokens");
    ist_net_name(net, k, "keys");
    return (ist_sam_transformed){q, k};
}
