/* The kinds of nodes: one list from which enum, names and tables are made, and what can be asked of a node without
 * knowing which kind it is: its operands and numbers, the extents of its results, its multiply-adds. */
#ifndef IST_GRAPH_KINDS_H
#define IST_GRAPH_KINDS_H

#include "base/status.h"
#include "graph/nodes.h"

/* X(enumerator, name, struct of nodes.h without ist_) */
#define IST_NODE_LIST(X)                                                                                               \
    X(CONV, conv, conv)                                                                                                \
    X(DWCONV, dwconv, conv)                                                                                            \
    X(MAXPOOL, maxpool, maxpool)                                                                                       \
    X(LAYER_NORM, layer_norm, layer_norm)                                                                              \
    X(ADD, add, add)                                                                                                   \
    X(COPY, copy, copy)                                                                                                \
    X(COPY_ROWS, copy_rows, copy_rows)                                                                                 \
    X(CLAMP, clamp, clamp)                                                                                             \
    X(EXPAND, expand, expand)                                                                                          \
    X(CONCAT, concat, concat)                                                                                          \
    X(CONCAT_ROWS, concat_rows, concat)                                                                                \
    X(PUT_ITEMS, put_items, put_items)                                                                                 \
    X(FILL_ROWS, fill_rows, fill_rows)                                                                                 \
    X(REPEAT_ROWS, repeat_rows, repeat_rows)                                                                           \
    X(GATE, gate, gate)                                                                                                \
    X(ATTENTION, attention, attention)                                                                                 \
    X(WINDOW_ATTENTION, window_attention, window_attention)                                                            \
    X(RELATIVE_ATTENTION, relative_attention, relative_attention)                                                      \
    X(DEFORM, deform_attention, deform)                                                                                \
    X(ROW_MAX, row_max, row_max)                                                                                       \
    X(TOPK, topk, top_rows)                                                                                            \
    X(TOP_ROWS, top_rows, top_rows)                                                                                    \
    X(TOP_SCORES, top_scores, top_scores)                                                                              \
    X(NMS, nms, nms)                                                                                                   \
    X(GATHER, gather, gather)                                                                                          \
    X(BOX_INIT, box_init, box)                                                                                         \
    X(BOX_REFINE, box_refine, box)                                                                                     \
    X(ADD_QUALITY, add_quality, box)                                                                                   \
    X(FDR, fdr, fdr)                                                                                                   \
    X(LQE, lqe, lqe)                                                                                                   \
    X(STEM, stem, stem)                                                                                                \
    X(SEPARABLE, separable, separable)                                                                                 \
    X(CSP, csp, csp)                                                                                                   \
    X(FUSE, fuse, fuse)                                                                                                \
    X(QKV, qkv, qkv)                                                                                                   \
    X(PATCH_EMBED, patch_embed, patch_embed)                                                                           \
    X(MBCONV, mbconv, mbconv)                                                                                          \
    X(NORM_WINDOW, norm_window, norm_window)                                                                           \
    X(NORM_MLP, norm_mlp, norm_mlp)                                                                                    \
    X(POINT_TOKENS, point_tokens, point_tokens)                                                                        \
    X(JOIN_TOKENS, join_tokens, join_tokens)                                                                           \
    X(DENSE_PROMPT, dense_prompt, dense_prompt)                                                                        \
    X(PARAMETER, parameter, parameter)                                                                                 \
    X(GRID_CODE, grid_code, grid_code)                                                                                 \
    X(ATTENTION_LAYER, attention_layer, attention_layer)                                                               \
    X(MLP_LAYER, mlp_layer, mlp_layer)                                                                                 \
    X(TOKEN_MLPS, token_mlps, token_mlps)                                                                              \
    X(UPSCALE, upscale, upscale)                                                                                       \
    X(SAMPLE_WINDOW, sample_window, sample_window)                                                                     \
    X(RESIZE, resize, resize)                                                                                          \
    X(DETECT, detect, detect)                                                                                          \
    X(GIVEN_BOXES, given_boxes, given_boxes)                                                                           \
    X(GIVEN_PROMPTS, given_prompts, given_prompts)                                                                     \
    X(ASSIGN, assign, assignment)                                                                                      \
    X(MATCH, match, match)                                                                                             \
    X(MASKS, masks, masks)                                                                                             \
    X(MASK_SUMS, mask_sums, mask_sums)                                                                                 \
    X(PACK, pack, pack)                                                                                                \
    X(FOUND_NONE, found_none, found_none)                                                                              \
    X(GRID_POINTS, grid_points, grid_points)                                                                           \
    X(GRID_PICKS, grid_picks, grid_picks)                                                                              \
    X(GRID_KEEP, grid_keep, grid_keep)                                                                                 \
    X(GRID_SELECT, grid_select, grid_select)                                                                           \
    X(GRID_CLEAN, grid_clean, grid_clean)                                                                              \
    X(GRID_OBJECTS, grid_objects, grid_objects)                                                                        \
    X(TILE_KEEP, tile_keep, tile_keep)                                                                                 \
    X(TILE_MERGE, tile_merge, tile_merge)                                                                              \
    X(TILE_OBJECTS, tile_objects, tile_objects)

/* Spans: runs of neighbouring nodes that a variant may take as one. SEQUENCE: operators on the same rows (queries,
 * tokens). TRANSITION: the last layers of a map and the downsampling behind it. STAGE: of a backbone, with the
 * downsampling behind it. FILLED_NORM: a norm behind chosen pixels that are filled. PROJECTED_MLP: a linear layer with a residual, as behind attention, and the norm, MLP and
 * convolution behind it. MASK_DECODER: two-way transformer, MLPs and upscaling of SAM; TWO_WAY: its transformer, with
 * what brings the image to the prompts. X(enumerator, name) */
#define IST_SPAN_LIST(X)                                                                                               \
    X(SEQUENCE, sequence)                                                                                              \
    X(TRANSITION, transition)                                                                                          \
    X(STAGE, stage)                                                                                                    \
    X(FILLED_NORM, filled_norm)                                                                                        \
    X(PROJECTED_MLP, projected_mlp)                                                                                    \
    X(MASK_DECODER, mask_decoder)                                                                                      \
    X(TWO_WAY, two_way)

/* Kinds of nodes, then those of spans. */
typedef enum ist_node_kind {
#define X(id, name, type) IST_NODE_##id,
    IST_NODE_LIST(X)
#undef X
        IST_NODE_KINDS,
    IST_NODE_LAST = IST_NODE_KINDS - 1,
#define X(id, name) IST_SPAN_##id,
    IST_SPAN_LIST(X)
#undef X
        IST_KINDS
} ist_node_kind;

/* What a member of a node's struct is. IN: an operand, empty where it is optional. OUT: a result, which needs a place of
 * its extents. MADE: a result whose place is decided where it is computed (a view of another tensor, a list with room at
 * its end). FILTER: numbers that storage in half rounds as a whole; RAW: a filter that is merged or split first.
 * TEXT: a name. */
typedef enum ist_field_kind {
    IST_FIELD_IN,
    IST_FIELD_OUT,
    IST_FIELD_MADE,
    IST_FIELD_FILTER,
    IST_FIELD_RAW,
    IST_FIELD_AFFINE,
    IST_FIELD_ARRAY,
    IST_FIELD_TEXT,
    IST_FIELD_END
} ist_field_kind;

typedef struct ist_field {
    ist_field_kind kind;
    const char *name;
    size_t offset;
    int count;   /* of an array of members, .. */
    size_t step; /* .. so many bytes apart */
} ist_field;

/* Of a span there is a name only. */
typedef struct ist_kind {
    const char *name;
    size_t size;
    const ist_field *fields; /* up to one of IST_FIELD_END */
    /* Checks the operands and sets the extents and element types of the results. A result that has a place already
     * (its buffer is not 0) may decide on the element type. */
    ist_status (*infer)(void *node, ist_error *err);
} ist_kind;

const ist_kind *ist_kind_of(ist_node_kind kind);
/* Of one run, whatever the counts on the device; 0: none to speak of. */
double ist_multiply_adds(ist_node_kind kind, const void *node);

/* Member i of a field. */
static inline void *ist_field_at(void *node, const ist_field *f, int i) {
    return (char *)node + f->offset + (size_t)i * f->step;
}
static inline const void *ist_field_of(const void *node, const ist_field *f, int i) {
    return (const char *)node + f->offset + (size_t)i * f->step;
}

#endif
