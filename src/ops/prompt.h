/* Operators of the segmenter's prompt encoder: prompt tokens. */
#ifndef IST_OPS_PROMPT_H
#define IST_OPS_PROMPT_H

#include "ops/ops.h"

enum { IST_POINT_DIM = 256 };

/* What a point's code is made of: `gauss` [2][128] (random Fourier features, row 0 multiplies x), and the embedding to
 * add per label -1..3: `table` [5][256] in the order not_a_point, 0, 1, 2, 3. `side`: pixels of the network's input. */
typedef struct ist_point_code {
    const float *gauss, *table;
    float side;
} ist_point_code;

/* points F32 [P,1,k,2] in pixels; labels I32 [P,1,k,1], or empty: point j has label first_label + j. With `pad` one
 * more token of label -1 follows. Label -1 has no position; given labels other than -1, 0, 1 have a position only.
 * Tokens `own` [1,1,i,256], or none, stand before those of every prompt.
 * -> [P,1,(i+) k (+1),256] (PositionEmbeddingRandom of segment-anything's modeling/prompt_encoder.py). */
ist_tensor ist_op_point_tokens(ist_plan *p, ist_tensor points, ist_tensor labels, int first_label, bool pad,
                               const ist_point_code *code, ist_tensor own, const char *label);
/* Tokens of a, then those of b, per item: [1 or P,1,i,c] and [P,1,j,c] -> [P,1,i+j,c]. */
ist_tensor ist_op_join_tokens(ist_plan *p, ist_tensor a, ist_tensor b, const char *label);

#endif
