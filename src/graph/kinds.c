/* What members each kind of node has, and what shapes.c knows of it. */
#include "graph/shapes.h"

#define MEMBER(type, field, member, times) {IST_FIELD_##field, #member, offsetof(type, member), times, 0}
#define IN(type, member)                   MEMBER(type, IN, member, 1)
#define OUT(type, member)                  MEMBER(type, OUT, member, 1)
#define MADE(type, member)                 MEMBER(type, MADE, member, 1)
#define FILTER(type, member)               MEMBER(type, FILTER, member, 1)
#define RAW(type, member)                  MEMBER(type, RAW, member, 1)
#define AFFINE(type, member)               MEMBER(type, AFFINE, member, 1)
#define ARRAY(type, member)                MEMBER(type, ARRAY, member, 1)
#define TEXT(type, member)                 MEMBER(type, TEXT, member, 1)
/* All elements of an array of members, or of one member of the structs in it. */
#define EACH(field, type, array, member, times)                                                                        \
    {IST_FIELD_##field, #array, offsetof(type, array) + (member), times, sizeof ((type *)0)->array[0]}
#define DETECTIONS(field, type)                                                                                        \
    MEMBER(type, field, det.objects, 1), MEMBER(type, field, det.counts, 1), MEMBER(type, field, det.total, 1),        \
        MEMBER(type, field, det.image_of, 1), MEMBER(type, field, det.boxes, 1)
#define END {IST_FIELD_END, "", 0, 0, 0}

/* Of ist_conv_opts o. */
#define ADDENDS(type) IN(type, o.epi.add_before), IN(type, o.epi.add_after)

static const ist_field conv[] = {TEXT(ist_conv, label), IN(ist_conv, x), ADDENDS(ist_conv), OUT(ist_conv, y),
                                 FILTER(ist_conv, filter), END};
static const ist_field maxpool[] = {TEXT(ist_maxpool, label), IN(ist_maxpool, x), OUT(ist_maxpool, y), END};
static const ist_field layer_norm[] = {TEXT(ist_layer_norm, label), IN(ist_layer_norm, x), IN(ist_layer_norm, add),
                                       OUT(ist_layer_norm, y), AFFINE(ist_layer_norm, norm), END};
static const ist_field add[] = {TEXT(ist_add, label), IN(ist_add, a), IN(ist_add, b), OUT(ist_add, y), END};
static const ist_field copy[] = {TEXT(ist_copy, label), IN(ist_copy, x), OUT(ist_copy, y), END};
static const ist_field copy_rows[] = {TEXT(ist_copy_rows, label), IN(ist_copy_rows, x), IN(ist_copy_rows, into), END};
static const ist_field clamp[] = {TEXT(ist_clamp, label), IN(ist_clamp, x), OUT(ist_clamp, y), END};
static const ist_field expand[] = {TEXT(ist_expand, label), IN(ist_expand, x), IN(ist_expand, map), OUT(ist_expand, y),
                                   END};
static const ist_field concat[] = {TEXT(ist_concat, label), EACH(IN, ist_concat, x, 0, IST_CONCAT_MAX),
                                   OUT(ist_concat, y), END};
static const ist_field put_items[] = {TEXT(ist_put_items, label), IN(ist_put_items, x), IN(ist_put_items, into),
                                      IN(ist_put_items, counts), END};
static const ist_field fill_rows[] = {TEXT(ist_fill_rows, label), IN(ist_fill_rows, x), IN(ist_fill_rows, rows),
                                      MADE(ist_fill_rows, y), RAW(ist_fill_rows, filter), END};
static const ist_field repeat_rows[] = {TEXT(ist_repeat_rows, label), IN(ist_repeat_rows, x), MADE(ist_repeat_rows, y), END};
static const ist_field gate[] = {TEXT(ist_gate, label), IN(ist_gate, g), IN(ist_gate, a), IN(ist_gate, b),
                                 OUT(ist_gate, y), AFFINE(ist_gate, norm), END};
static const ist_field attention[] = {TEXT(ist_attention, label), IN(ist_attention, q), IN(ist_attention, k),
                                      IN(ist_attention, v), IN(ist_attention, q_map), IN(ist_attention, kv_map),
                                      IN(ist_attention, k_count), OUT(ist_attention, y), END};
static const ist_field window_attention[] = {TEXT(ist_window_attention, label), IN(ist_window_attention, qkv),
                                             OUT(ist_window_attention, y), END};
static const ist_field relative_attention[] = {TEXT(ist_relative_attention, label), IN(ist_relative_attention, qkv),
                                               OUT(ist_relative_attention, y), ARRAY(ist_relative_attention, rel_h),
                                               ARRAY(ist_relative_attention, rel_w),
                                               ARRAY(ist_relative_attention, pad), END};
static const ist_field deform[] = {TEXT(ist_deform, label), IN(ist_deform, offsets), IN(ist_deform, weights),
                                   IN(ist_deform, ref), IN(ist_deform, memory), OUT(ist_deform, y), END};
static const ist_field top_rows[] = {TEXT(ist_top_rows, label), IN(ist_top_rows, x), OUT(ist_top_rows, y), END};
static const ist_field row_max[] = {TEXT(ist_row_max, label), IN(ist_row_max, x), OUT(ist_row_max, y), END};
static const ist_field top_scores[] = {TEXT(ist_top_scores, label), IN(ist_top_scores, x),
                                       MADE(ist_top_scores, scores), MADE(ist_top_scores, index), END};
static const ist_field nms[] = {TEXT(ist_nms, label),   IN(ist_nms, boxes), IN(ist_nms, scores), IN(ist_nms, group),
                                IN(ist_nms, count), OUT(ist_nms, index), OUT(ist_nms, kept), END};
static const ist_field gather[] = {TEXT(ist_gather, label), IN(ist_gather, x), IN(ist_gather, index),
                                   OUT(ist_gather, y), END};
static const ist_field box[] = {TEXT(ist_box, label), IN(ist_box, a), IN(ist_box, b), OUT(ist_box, y), END};
static const ist_field fdr[] = {TEXT(ist_fdr, label), IN(ist_fdr, increment), IN(ist_fdr, previous), IN(ist_fdr, ref),
                                OUT(ist_fdr, boxes), OUT(ist_fdr, corners), END};
static const ist_field lqe[] = {TEXT(ist_lqe, label), IN(ist_lqe, corners), OUT(ist_lqe, y), END};
static const ist_field stem[] = {TEXT(ist_stem, label), EACH(TEXT, ist_stem, names, 0, IST_STEM_LAYERS),
                                 IN(ist_stem, image), OUT(ist_stem, y),
                                 EACH(FILTER, ist_stem, layers, offsetof(ist_stem_layer, f), IST_STEM_LAYERS), END};
static const ist_field separable[] = {TEXT(ist_separable, label), IN(ist_separable, x), ADDENDS(ist_separable),
                                      OUT(ist_separable, y), FILTER(ist_separable, point),
                                      FILTER(ist_separable, depth), END};
static const ist_field csp[] = {TEXT(ist_csp, label), IN(ist_csp, x), OUT(ist_csp, y), FILTER(ist_csp, first),
                                EACH(FILTER, ist_csp, neck, 0, IST_CSP_NECKS), FILTER(ist_csp, last), END};
static const ist_field fuse[] = {TEXT(ist_fuse, label), TEXT(ist_fuse, side_label), TEXT(ist_fuse, tap),
                                 IN(ist_fuse, top), IN(ist_fuse, side), OUT(ist_fuse, y), RAW(ist_fuse, filter),
                                 RAW(ist_fuse, side_filter), END};
static const ist_field qkv[] = {TEXT(ist_qkv, label), IN(ist_qkv, x), OUT(ist_qkv, y), RAW(ist_qkv, filter), END};
static const ist_field patch_embed[] = {TEXT(ist_patch_embed, label), IN(ist_patch_embed, image), IN(ist_patch_embed, content),
                                        OUT(ist_patch_embed, y), RAW(ist_patch_embed, first),
                                        RAW(ist_patch_embed, second), END};
static const ist_field mbconv[] = {TEXT(ist_mbconv, label), IN(ist_mbconv, x), OUT(ist_mbconv, y),
                                   RAW(ist_mbconv, expand), RAW(ist_mbconv, spread), RAW(ist_mbconv, project), END};
static const ist_field norm_window[] = {TEXT(ist_norm_window, label), IN(ist_norm_window, x), OUT(ist_norm_window, y),
                                        AFFINE(ist_norm_window, norm), ARRAY(ist_norm_window, bias),
                                        RAW(ist_norm_window, qkv), END};
static const ist_field norm_mlp[] = {TEXT(ist_norm_mlp, label), IN(ist_norm_mlp, x), OUT(ist_norm_mlp, y),
                                     AFFINE(ist_norm_mlp, norm), RAW(ist_norm_mlp, spread), RAW(ist_norm_mlp, fc1),
                                     RAW(ist_norm_mlp, fc2), END};
static const ist_field point_tokens[] = {TEXT(ist_point_tokens, label), IN(ist_point_tokens, points),
                                         IN(ist_point_tokens, labels), IN(ist_point_tokens, own),
                                         OUT(ist_point_tokens, y), ARRAY(ist_point_tokens, gauss),
                                         EACH(ARRAY, ist_point_tokens, table, 0, IST_POINT_LABELS), END};
static const ist_field join_tokens[] = {TEXT(ist_join_tokens, label), IN(ist_join_tokens, a), IN(ist_join_tokens, b),
                                        OUT(ist_join_tokens, y), END};
static const ist_field dense_prompt[] = {TEXT(ist_dense_prompt, label), IN(ist_dense_prompt, x),
                                         IN(ist_dense_prompt, given),   OUT(ist_dense_prompt, y),
                                         ARRAY(ist_dense_prompt, none), END};
static const ist_field parameter[] = {TEXT(ist_parameter, label), MADE(ist_parameter, y),
                                      EACH(ARRAY, ist_parameter, rows, 0, 2), END};
static const ist_field grid_code[] = {TEXT(ist_grid_code, label), MADE(ist_grid_code, y), ARRAY(ist_grid_code, gauss),
                                      END};
static const ist_field attention_layer[] = {
    TEXT(ist_attention_layer, label), IN(ist_attention_layer, q), IN(ist_attention_layer, q_pos),
    IN(ist_attention_layer, k), IN(ist_attention_layer, k_pos), IN(ist_attention_layer, k_count),
    IN(ist_attention_layer, add), OUT(ist_attention_layer, y), RAW(ist_attention_layer, query),
    RAW(ist_attention_layer, key), RAW(ist_attention_layer, value), RAW(ist_attention_layer, out), AFFINE(ist_attention_layer, norm), END};
static const ist_field mlp_layer[] = {TEXT(ist_mlp_layer, label), IN(ist_mlp_layer, x), OUT(ist_mlp_layer, y),
                                      RAW(ist_mlp_layer, lin1), RAW(ist_mlp_layer, lin2), AFFINE(ist_mlp_layer, norm),
                                      END};
static const ist_field token_mlps[] = {TEXT(ist_token_mlps, label),
                                       EACH(TEXT, ist_token_mlps, names, 0, IST_TOKEN_MLPS_MAX),
                                       IN(ist_token_mlps, x), OUT(ist_token_mlps, iou), OUT(ist_token_mlps, vectors),
                                       EACH(RAW, ist_token_mlps, mlp[0], 0, 3), EACH(RAW, ist_token_mlps, mlp[1], 0, 3),
                                       EACH(RAW, ist_token_mlps, mlp[2], 0, 3), EACH(RAW, ist_token_mlps, mlp[3], 0, 3),
                                       EACH(RAW, ist_token_mlps, mlp[4], 0, 3), END};
static const ist_field upscale[] = {TEXT(ist_upscale, label), IN(ist_upscale, x), IN(ist_upscale, vectors),
                                    IN(ist_upscale, content), IN(ist_upscale, image_of),
                                    OUT(ist_upscale, y), ARRAY(ist_upscale, w1), ARRAY(ist_upscale, b1),
                                    ARRAY(ist_upscale, w2), ARRAY(ist_upscale, b2), AFFINE(ist_upscale, norm), END};
static const ist_field sample_window[] = {TEXT(ist_sample_window, label), IN(ist_sample_window, upload),
                                          IN(ist_sample_window, pixels), END};
static const ist_field resize[] = {TEXT(ist_resize, label), IN(ist_resize, upload), IN(ist_resize, pixels),
                                   OUT(ist_resize, y), MADE(ist_resize, content), END};
static const ist_field detect[] = {TEXT(ist_detect, label), IN(ist_detect, logits), IN(ist_detect, boxes),
                                   IN(ist_detect, upload), DETECTIONS(MADE, ist_detect), END};
static const ist_field given_boxes[] = {TEXT(ist_given_boxes, label), IN(ist_given_boxes, upload),
                                        OUT(ist_given_boxes, match), DETECTIONS(MADE, ist_given_boxes), END};
static const ist_field given_prompts[] = {
    TEXT(ist_given_prompts, label), IN(ist_given_prompts, upload), OUT(ist_given_prompts, points),
    OUT(ist_given_prompts, labels), OUT(ist_given_prompts, tokens), OUT(ist_given_prompts, few_points),
    OUT(ist_given_prompts, few_labels), OUT(ist_given_prompts, few_tokens), OUT(ist_given_prompts, mask),
    OUT(ist_given_prompts, masked), OUT(ist_given_prompts, total), OUT(ist_given_prompts, image_of),
    OUT(ist_given_prompts, match), OUT(ist_given_prompts, content), DETECTIONS(OUT, ist_given_prompts), END};
static const ist_field assignment[] = {TEXT(ist_assignment, label), IN(ist_assignment, cost), IN(ist_assignment, dims),
                                   OUT(ist_assignment, match), OUT(ist_assignment, complete), END};
static const ist_field match[] = {TEXT(ist_match, label), IN(ist_match, upload), IN(ist_match, logits),
                                  IN(ist_match, boxes), OUT(ist_match, match), DETECTIONS(IN, ist_match), END};
static const ist_field masks[] = {TEXT(ist_masks, label), IN(ist_masks, logits), IN(ist_masks, upload),
                                  IN(ist_masks, store), IN(ist_masks, picks), MADE(ist_masks, stats),
                                  DETECTIONS(IN, ist_masks), END};
static const ist_field mask_sums[] = {TEXT(ist_mask_sums, label), IN(ist_mask_sums, stats), OUT(ist_mask_sums, y),
                                      DETECTIONS(IN, ist_mask_sums), END};
static const ist_field pack[] = {TEXT(ist_pack, label), IN(ist_pack, match), IN(ist_pack, stats), IN(ist_pack, score),
                                 IN(ist_pack, logits), IN(ist_pack, upload), IN(ist_pack, store), IN(ist_pack, packet),
                                 DETECTIONS(IN, ist_pack), END};
static const ist_field found_none[] = {TEXT(ist_found_none, label), IN(ist_found_none, found), END};
static const ist_field grid_points[] = {
    TEXT(ist_grid_points, label),     IN(ist_grid_points, upload),  IN(ist_grid_points, found),
    OUT(ist_grid_points, points),     OUT(ist_grid_points, labels), OUT(ist_grid_points, image_of),
    OUT(ist_grid_points, total),      OUT(ist_grid_points, content), END};
static const ist_field grid_picks[] = {TEXT(ist_grid_picks, label), IN(ist_grid_picks, found), IN(ist_grid_picks, iou),
                                       IN(ist_grid_picks, image_of), IN(ist_grid_picks, total),
                                       OUT(ist_grid_picks, picks), OUT(ist_grid_picks, det.total),
                                       OUT(ist_grid_picks, det.image_of), END};
static const ist_field grid_keep[] = {TEXT(ist_grid_keep, label), IN(ist_grid_keep, upload), IN(ist_grid_keep, found),
                                      IN(ist_grid_keep, iou), IN(ist_grid_keep, total), IN(ist_grid_keep, picks),
                                      IN(ist_grid_keep, stats), DETECTIONS(IN, ist_grid_keep), END};
static const ist_field grid_select[] = {TEXT(ist_grid_select, label), IN(ist_grid_select, upload),
                                        IN(ist_grid_select, found), END};
static const ist_field grid_clean[] = {TEXT(ist_grid_clean, label), IN(ist_grid_clean, upload),
                                       IN(ist_grid_clean, found), IN(ist_grid_clean, store),
                                       IN(ist_grid_clean, regions), END};
static const ist_field grid_objects[] = {TEXT(ist_grid_objects, label), IN(ist_grid_objects, found),
                                         OUT(ist_grid_objects, match), OUT(ist_grid_objects, stats),
                                         OUT(ist_grid_objects, score), DETECTIONS(OUT, ist_grid_objects), END};
static const ist_field tile_keep[] = {TEXT(ist_tile_keep, label), IN(ist_tile_keep, upload), IN(ist_tile_keep, found),
                                      DETECTIONS(IN, ist_tile_keep), END};
static const ist_field tile_merge[] = {TEXT(ist_tile_merge, label), IN(ist_tile_merge, upload),
                                       IN(ist_tile_merge, found), END};
static const ist_field tile_objects[] = {TEXT(ist_tile_objects, label), IN(ist_tile_objects, upload),
                                         IN(ist_tile_objects, found), OUT(ist_tile_objects, tile_of),
                                         OUT(ist_tile_objects, own),
                                         OUT(ist_tile_objects, picks), DETECTIONS(OUT, ist_tile_objects), END};

const ist_kind *ist_kind_of(ist_node_kind kind) {
    static const ist_kind kinds[] = {
#define X(id, name, type) {#name, sizeof(ist_##type), type, ist_infer_##name},
        IST_NODE_LIST(X)
#undef X
#define X(id, name) {#name, 0, NULL, NULL},
            IST_SPAN_LIST(X)
#undef X
    };
    return &kinds[kind];
}
