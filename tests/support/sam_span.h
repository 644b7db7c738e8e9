/* SAM's two-way transformer as a span of a small graph, with random numbers, and its reference. */
#ifndef IST_TESTS_SAM_SPAN_H
#define IST_TESTS_SAM_SPAN_H

#include "support/lowered.h"

enum { SAM_PROMPTS = 8 };

/* A grid of grid x grid tokens per image; `inner` channels of attention to the image, `hidden` of the MLPs. Prompts
 * from `count` on are not computed. With `dense` each prompt has an image of its own added, else all a vector. With
 * `counted` each prompt has some of the tokens only: what the others become is nobody's business. */
typedef struct sam_shape {
    int prompts, count, images, grid, tokens, dim, inner, hidden;
    bool dense, counted;
} sam_shape;

typedef struct sam_span {
    sam_shape shape;
    lowered graph;
    ref_two_way_weights weights;
    float *gauss, *shift, *room; /* room: where further numbers come from */
    ref_map tokens, embedding, dense;
    int map[SAM_PROMPTS];                                            /* of each prompt: the image */
    int counts[SAM_PROMPTS];                                         /* and of how many tokens it is */
    ist_tensor tokens_in, embedding_in, dense_in, map_in, counts_in; /* the graph's inputs */
    ist_tensor tokens_out, image_out;                                /* the span's results */
} sam_span;

/* Numbers for a layer of the span's tensors: within +-`reach`, from `low` to `high`. */
float *sam_numbers(optest *t, sam_span *s, int count, float low, float high);
ref_linear sam_linear(optest *t, sam_span *s, int out, int in);
ist_filter sam_filter(ref_linear l);

/* Draws numbers and inputs, opens the graph. map: images of prompts, NULL: by turns. */
void sam_begin(optest *t, sam_span *s, sam_shape shape, const int *map);
/* Records the span. */
void sam_add_two_way(sam_span *s);
/* What the first `count` prompts should be, after lowering: tokens [count,1,N,dim], zeros for those that a prompt does
 * not have, image [count,1,L,dim]. */
void sam_reference(optest *t, const sam_span *s, ref_map *tokens, ref_map *image);
/* Fails unless kernel `op` was launched, and by the variant of that name. */
void sam_made_by(const optest *t, const char *op, const char *variant);

#endif
