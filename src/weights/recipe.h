/* Where the numbers of a layer come from: names in a checkpoint and how they become one filter. A recipe is made when a
 * network is written down, which needs shapes only, and loaded when a kernel's constants are packed, so that one layer's
 * numbers are in memory at a time. Recipes and what they point to belong to whoever made them (models/net.h). */
#ifndef IST_WEIGHTS_RECIPE_H
#define IST_WEIGHTS_RECIPE_H

#include "weights/matrix.h"

typedef enum ist_recipe_kind {
    IST_RECIPE_CONV,   /* names: weight, batch norm or NULL, LAB or NULL (ist_fold_conv) */
    IST_RECIPE_LINEAR, /* names: weight [out,in], bias or NULL */
    IST_RECIPE_REPVGG, /* names: the block */
    IST_RECIPE_NORM,   /* names: prefix of weight [n] and bias [n] */
    IST_RECIPE_ARRAY,  /* names: a tensor of any shape */
    IST_RECIPE_STACK,  /* the outputs of parts[0], then those of parts[1] */
    IST_RECIPE_PART    /* ist_part of parts[0] */
} ist_recipe_kind;

typedef struct ist_recipe ist_recipe;
struct ist_recipe {
    ist_recipe_kind kind;
    const ist_weights *weights;
    const char *names[3];
    const ist_recipe *parts[2];
    struct {
        int out0, outs, in0, ins;
        bool bias;
    } part;
    float scale; /* of a filter's weights, not of its bias; 0: none */
};

/* Extents of a filter, from the checkpoint's list of tensors alone. Fails where a weight is missing or misshapen. */
typedef struct ist_recipe_shape {
    int out, in, kh, kw;
    bool lab; /* has a LAB */
} ist_recipe_shape;
ist_status ist_recipe_describe(const ist_recipe *recipe, ist_recipe_shape *shape, ist_error *err);

/* The filter; the caller's to free, empty after a failure. */
ist_status ist_recipe_load(const ist_recipe *recipe, ist_conv_weights *out, ist_error *err);
/* A norm; an array of `count` values, malloc'd, of the tensor's own shape. */
ist_status ist_recipe_load_norm(const ist_recipe *recipe, ist_norm_weights *out, ist_error *err);
ist_status ist_recipe_load_array(const ist_recipe *recipe, size_t count, float **out, ist_error *err);

#endif
